"""Dragonfly's first module in one pass is its layers one after another: results, gradients, running statistics."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the networks need torch: the extra 'train'")

from cctoolkit.identify import networks  # noqa: E402
from cctoolkit.identify.first_module import first_module  # noqa: E402


def layers(inputs: int, filters: int = 50):
    convolution = torch.nn.Conv2d(inputs, filters, (1, 3), padding=(0, 1))
    norm = torch.nn.BatchNorm2d(filters)
    with torch.no_grad():  # factors of both signs
        norm.weight.normal_()
        norm.bias.normal_()
    return convolution, norm


@pytest.mark.slow
@pytest.mark.parametrize(("inputs", "slots", "pool"), [(1, 64, 1), (2, 100, 3), (2, 607, 6), (9, 50, 2)])
def test_one_pass_is_the_layers(inputs: int, slots: int, pool: int) -> None:
    torch.manual_seed(inputs)
    plain = layers(inputs)
    fused = copy.deepcopy(plain)
    x = torch.rand(5, inputs, slots) * torch.linspace(0.1, 1, 5)[:, None, None]
    for _ in range(2):  # running statistics of two batches
        expected = torch.nn.functional.max_pool2d(plain[1](plain[0](x.unsqueeze(2))), (1, pool))
        found = first_module(x, *fused, pool)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-4, atol=2e-5)
        x = x.flip(2).sqrt()
    gradient = torch.randn_like(expected)
    expected.backward(gradient)
    found.backward(gradient)
    for name in ("weight", "bias"):
        pairs = [(plain[1], fused[1])] + ([(plain[0], fused[0])] if name == "weight" else [])
        for one, other in pairs:
            want = getattr(one, name).grad
            np.testing.assert_allclose(
                getattr(other, name).grad, want, rtol=1e-3, atol=1e-4 * want.abs().max()
            )
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        np.testing.assert_allclose(getattr(fused[1], name), getattr(plain[1], name), rtol=1e-4, atol=1e-6)


def test_long_windows_are_trained_like_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps of training by either way end in the same network, up to rounding."""
    torch.manual_seed(1)
    x, y = torch.rand(6, 2, 300), torch.tensor([0, 1, 2, 0, 1, 2])
    answers = []
    for long in (1, 10_000):
        monkeypatch.setattr(networks.DragonflyNet, "LONG", long)
        torch.manual_seed(3)
        network = networks.DragonflyNet(300, 2)
        optimiser = torch.optim.SGD(network.parameters(), 0.05)
        for _ in range(3):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network.train()(x), y).backward()
            optimiser.step()
        with torch.inference_mode():
            answers.append(network.eval()(x).numpy())
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-3, atol=1e-4)
    assert np.abs(answers[0]).max() > 0.01


def test_pooling_before_relu_changes_nothing() -> None:
    x = torch.randn(2, 3, 1, 30, requires_grad=True)
    gradients = []
    for order in (
        (torch.nn.MaxPool2d((1, 3)), torch.nn.ReLU()),
        (torch.nn.ReLU(), torch.nn.MaxPool2d((1, 3))),
    ):
        x.grad = None
        y = order[1](order[0](x))
        (y * torch.arange(10.0)).sum().backward()
        gradients.append((y.detach().numpy(), x.grad.numpy().copy()))
    np.testing.assert_array_equal(gradients[0][0], gradients[1][0])
    np.testing.assert_array_equal(gradients[0][1], gradients[1][1])
