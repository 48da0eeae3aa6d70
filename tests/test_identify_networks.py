"""The networks: the shapes that the papers give, the number of weights in closed form, DragonflyNet by loops."""

from __future__ import annotations

import naive_identify
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the networks need torch: the extra 'train'")

from cctoolkit.identify.inputs import BIN_CHANNELS, BINS, VIEW_CHANNELS, by_view  # noqa: E402
from cctoolkit.identify.networks import DeepcciNet, DragonflyNet, ScalesNet, dragonfly_pool  # noqa: E402

CHANNELS = len(BIN_CHANNELS)
#: Slots, the pooling that the fifth root gives, and how many slots are left after each of the five modules.
DRAGONFLY = [
    (10, 1, [10, 10, 10, 10, 10]),
    (100, 2, [50, 25, 12, 6, 3]),
    (1000, 3, [333, 111, 37, 12, 4]),
    (10_000, 6, [1666, 277, 46, 7, 1]),
    (60_000, 9, [6666, 740, 82, 9, 1]),
]
#: Slots, and steps after each module of pooling by 4, rounded up.
DEEPCCI = [
    (10, [3, 1, 1, 1, 1]),
    (100, [25, 7, 2, 1, 1]),
    (1000, [250, 63, 16, 4, 1]),
    (10_000, [2500, 625, 157, 40, 10]),
    (60_000, [15_000, 3750, 938, 235, 59]),
]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shapes_of(network, modules, X):
    """Scores, and the shape after each of these modules."""
    shapes = []
    for module in modules:
        module.register_forward_hook(lambda *call: shapes.append(tuple(call[2].shape)))
    with torch.inference_mode():
        return network.eval()(X), shapes


def weights(network):
    return sum(p.numel() for p in network.parameters())


def test_pooling_is_the_fifth_root_of_the_slots():
    printed = {10: 1, 50: 2, 100: 2, 200: 2, 300: 3, 1000: 3, 10_000: 6, 60_000: 9}
    assert {slots: dragonfly_pool(slots) for slots in printed} == printed
    for p in range(2, 12):  # where floating point roots go wrong
        assert (dragonfly_pool(p**5 - 1), dragonfly_pool(p**5)) == (p - 1, p)


@pytest.mark.parametrize(("slots", "pool", "left"), DRAGONFLY)
@pytest.mark.parametrize("inputs", [1, 2])
def test_dragonfly_has_the_layers_of_the_paper(slots, pool, left, inputs):
    network = DragonflyNet(slots, inputs, classes=3)
    scores, shapes = shapes_of(network, network.modules_, torch.rand(2, inputs, slots))
    assert shapes == [(2, 50, 1, n) for n in left]
    assert scores.shape == (2, 3) and torch.isfinite(scores).all()
    for i, (convolution, norm, pooling, relu) in enumerate(network.modules_):
        # 3 x inputs, then 3 x 1, each as wide as what it sees: with the width as channels
        assert convolution.kernel_size == (1, 3) and convolution.padding == (0, 1)
        assert (convolution.in_channels, convolution.out_channels) == (inputs if i == 0 else 50, 50)
        assert norm.num_features == 50 and isinstance(relu, torch.nn.ReLU)
        assert pooling.kernel_size == pooling.stride == (1, pool)
    assert (network.scores.in_channels, network.scores.out_channels) == (50, 3)
    assert network.scores.kernel_size == (1, 3)


@pytest.mark.parametrize("classes", [2, 3, 17])
def test_dragonfly_has_so_many_weights_whatever_the_length(classes):
    first, others, last = 50 * 3 * 2 + 50, 50 * 50 * 3 + 50, 50 * classes * 3 + classes
    norms = 5 * 2 * 50
    for slots in (10, 1000):
        assert weights(DragonflyNet(slots, 2, classes)) == first + 4 * others + norms + last
    assert first + 4 * others + norms == 31_050


@pytest.mark.parametrize(("slots", "pool"), [(10, 1), (40, 2)])
def test_dragonfly_is_its_naive_twin(slots, pool):
    torch.manual_seed(1)
    network = DragonflyNet(slots, 2, 4)
    for norm in (module[1] for module in network.modules_):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        torch.nn.init.uniform_(norm.weight, 0.5, 2)
        torch.nn.init.uniform_(norm.bias, -1, 1)
    X = torch.rand(3, 2, slots)
    named = {name: tensor.numpy().astype(float) for name, tensor in network.state_dict().items()}
    for (
        name,
        kernel,
    ) in named.items():  # to the paper's two dimensions: one channel 3 x inputs, then fifty 3 x 1
        if kernel.ndim == 4:
            named[name] = (
                kernel.transpose(0, 2, 3, 1) if name == "modules_.0.0.weight" else kernel[:, :, 0, :, None]
            )
    expected = [naive_identify.dragonfly(named, window, pool) for window in X.numpy().astype(float)]
    with torch.inference_mode():
        np.testing.assert_allclose(network.eval()(X).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("slots", "left"), DEEPCCI)
def test_deepcci_has_the_layers_of_the_paper(slots, left):
    network = DeepcciNet(slots, classes=3)
    scores, shapes = shapes_of(network, network.modules_, torch.rand(2, 1, slots))
    assert shapes == [(2, 64, 1, n) for n in left]
    assert scores.shape == (2, 3 + 1)  # and pacing
    assert (network.memory.num_layers, network.memory.hidden_size) == (3, 100)
    for module in network.modules_:
        assert module.first.kernel_size == module.second.kernel_size == (1, 3)
        assert module.first.out_channels == module.second.out_channels == 64 and module.pool.kernel_size == (
            1,
            4,
        )


@pytest.mark.parametrize("classes", [2, 17])
def test_deepcci_has_so_many_weights(classes):
    def residual(channels, filters=64):
        convolutions = 3 * channels * filters + 3 * filters * filters + channels * filters
        return convolutions + 3 * filters + 2 * 2 * filters  # biases, two norms

    def lstm(inputs, hidden=100):
        return 4 * hidden * (inputs + hidden) + 2 * 4 * hidden  # torch has two biases

    convolutions = residual(1) + 4 * residual(64)
    memory = lstm(64) + 2 * lstm(100)
    heads = 100 * classes + classes + 100 + 1
    assert weights(DeepcciNet(100, 1, classes)) == convolutions + memory + heads


def test_scales_net_gives_scores_and_what_is_before_them():
    network = ScalesNet(classes=5)
    X = torch.rand(3, len(VIEW_CHANNELS), BINS)
    X[:, ::CHANNELS] = 1  # all bins are there
    out, shapes = shapes_of(network, [layer[-1] for layer in network.layers], X)
    assert out.shape == (3, 5 + 96)
    assert shapes == [(9, 48, 1, 50), (9, 64, 1, 25), (9, 96, 1, 13)]  # three views of each of three windows
    with torch.inference_mode():
        torch.testing.assert_close(network.scores(out[:, 5:]), out[:, :5])
        torch.testing.assert_close(network(X)[1], network(X[1:2])[0], rtol=1e-4, atol=1e-5)
    convolutions = 5 * CHANNELS * 48 + 3 * 48 * 64 + 3 * 64 * 96 + 3 * (48 + 64 + 96)  # biases and norms
    embedding = 3 * 2 * 96 * 96 + 96
    assert weights(network) == 2 * CHANNELS + convolutions + embedding + 96 * 5 + 5


def unlike(network):
    """Norms that do not keep nothing nothing, as after training."""
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return network.eval()


def test_scales_net_pools_over_the_bins_that_are_there():
    """What the features are where there is no bin does not matter, and a view without bins is nothing, not NaN."""
    network = unlike(ScalesNet(classes=2))
    X = torch.rand(1, len(VIEW_CHANNELS), BINS)
    X[:, ::CHANNELS] = 1
    X[:, CHANNELS:] = 0  # the first view alone
    with torch.inference_mode():
        features = torch.nn.Sequential(network.norm, *network.layers)(X[:, :CHANNELS, None])
        pooled = torch.cat([features.mean((2, 3)), features.amax((2, 3)), torch.zeros(1, 2 * 2 * 96)], dim=1)
        torch.testing.assert_close(network(X)[:, 2:], network.embedding(pooled), rtol=1e-4, atol=1e-5)
        assert torch.isfinite(network(torch.zeros_like(X))).all()


def test_scales_net_normalises_by_its_first_weights_once_they_are_learnt():
    network = unlike(ScalesNet(classes=2))
    network.norm.weight.data.uniform_(0.5, 2)
    network.norm.bias.data.normal_()
    y = torch.rand(3, CHANNELS, 1, 21)
    y[:, 0], y[1, :, :, 13:], y[2] = 1, 0, 0  # all bins are there, 13, none
    with torch.inference_mode():
        expected = network.layers[0](network.norm(y) * y[:, :1])
        torch.testing.assert_close(network._first(y), expected, rtol=1e-4, atol=1e-5)


def test_scales_net_takes_views_cut_off_behind_their_last_bin():
    network = unlike(ScalesNet(classes=3))
    there = [(100, 0, 0), (100, 1, 9), (100, 13, 97), (100, 12, 96)]
    X = torch.rand(len(there), len(VIEW_CHANNELS), BINS)
    for window, bins in zip(X, there, strict=True):
        for view, n in enumerate(bins):
            part = window[view * CHANNELS : (view + 1) * CHANNELS]
            part[0, :n] = 1
            part[:, n:] = 0
    rows = np.array([3, 0, 2])
    parts = [torch.from_numpy(part) for part in by_view(X.numpy(), rows)]
    assert [part.shape for part in parts] == [(3, CHANNELS, 100), (3, CHANNELS, 13), (3, CHANNELS, 97)]
    assert by_view(X.numpy(), np.array([0]))[1].shape == (1, CHANNELS, 1)  # of none, too
    with torch.inference_mode():
        torch.testing.assert_close(network(*parts), network(X[rows]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [DragonflyNet, DeepcciNet])
def test_a_window_does_not_know_the_others(kind):
    network = kind(100, 2, 3)
    X = torch.rand(5, 2, 100)
    with torch.inference_mode():
        torch.testing.assert_close(network.eval()(X)[3], network(X[3:4])[0], rtol=1e-4, atol=1e-5)
