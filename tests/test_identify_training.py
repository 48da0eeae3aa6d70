"""The training loop: seeds, early stopping, and checkpoints that change nothing and execute nothing."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: the extra 'train'")

from torch.nn.functional import cross_entropy  # noqa: E402

from cctoolkit.errors import ParameterError  # noqa: E402
from cctoolkit.identify.training import Recipe, train_network  # noqa: E402

RNG = np.random.default_rng(5)
X = RNG.normal(size=(70, 2, 6)).astype(np.float32)
Y = (X[:, 0].sum(axis=1) > 0).astype(np.int64)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network(seed: int = 0, hidden: int = 8):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(12, hidden),
        torch.nn.BatchNorm1d(hidden),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(hidden, 2),
    )


def recipe(**changes):
    return Recipe(**{"epochs": 6, "batch": 16, "learning_rate": 1e-2, "device": "cpu"} | changes)


def train(net, how, **options):
    return train_network(net, X, Y, cross_entropy, how, **options)


def same(a, b):
    return all(
        torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


class Stop(Exception):
    pass


def interrupt(net, how, path, after, **options):
    """Train until a stop at the end of an epoch, before its checkpoint is written."""

    def stop(epoch, _):
        if epoch == after:
            raise Stop
        return {}

    with pytest.raises(Stop):
        train(net, how, checkpoint=path, after_epoch=stop, **options)


# ---- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["step", "one_cycle"])
def test_it_learns_and_seeds_reproduce(schedule):
    how = recipe(schedule=schedule, epochs=20)
    history = train(a := network(), how)
    assert [row["epoch"] for row in history] == list(range(1, 21))
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert not a.training and (a(torch.from_numpy(X)).argmax(1).numpy() == Y).mean() > 0.9
    assert train(b := network(), how) == history and same(a, b)
    assert train(c := network(), recipe(schedule=schedule, epochs=20, seed=1)) != history and not same(a, c)


def test_step_is_nine_tenths_every_25_epochs():
    """One weight with a constant gradient: Adam's step is then the learning rate."""
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    ones = np.ones((4, 1), np.float32)
    steps = []
    train_network(
        net, ones, np.zeros(4, np.int64), lambda out, _: -out.mean(), recipe(epochs=60, batch=4, learning_rate=1e-3),
        after_epoch=lambda *_: steps.append(net.weight.item()) or {},
    )  # fmt: skip
    rates = np.diff([0.0, *steps])
    np.testing.assert_allclose(rates, 1e-3 * 0.9 ** (np.arange(60) // 25), rtol=1e-3)


def test_rows_are_learnt_from_as_if_there_were_no_others():
    rows = np.random.default_rng(4).permutation(len(X))[: len(X) // 2]
    history = train(whole := network(), recipe(epochs=2), rows=rows)
    alone = train_network(part := network(), X[rows], Y[rows], cross_entropy, recipe(epochs=2))
    assert history == alone and same(whole, part)


def test_every_window_is_seen_once_an_epoch_and_augmented():
    """33 windows in batches of 16: the one left over has no batch of its own, for batch normalisation needs two."""
    seen = []

    def note(batch, generator):
        seen.append(batch[:, 0].tolist())
        return batch

    numbered = np.arange(33, dtype=np.float32)[:, None]
    labels = np.zeros(33, np.int64)
    train_network(torch.nn.Linear(1, 2), numbered, labels, cross_entropy, recipe(epochs=1), augment=note)
    assert [len(batch) for batch in seen] == [16, 16] and len({i for batch in seen for i in batch}) == 32
    seen.clear()
    train_network(
        torch.nn.Linear(1, 2), numbered[:32], labels[:32], cross_entropy, recipe(epochs=2), augment=note
    )
    first, second = seen[0] + seen[1], seen[2] + seen[3]
    assert sorted(first) == sorted(second) == list(range(32)) and first != second


def test_early_stopping_keeps_the_best():
    """Validation windows with the other label: what is learnt makes them worse, so the first epoch is the best."""
    wrong = (X, 1 - Y)
    history = train(stopped := network(), recipe(epochs=50, patience=3), validation=wrong)
    assert len(history) == 4 and history[0]["validation_loss"] == min(
        row["validation_loss"] for row in history
    )
    train(once := network(), recipe(epochs=1))
    assert same(stopped, once)
    # without patience it goes on, and keeps the best all the same
    assert len(train(whole := network(), recipe(epochs=6), validation=wrong)) == 6 and same(whole, once)


def test_validation_loss_is_the_mean_over_all_windows():
    history = train(net := network(), recipe(epochs=1), validation=(X[:50], Y[:50]))
    with torch.inference_mode():
        loss = cross_entropy(net(torch.from_numpy(X[:50])), torch.from_numpy(Y[:50])).item()
    assert history[0]["validation_loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs: 0 is not a whole number of at least 1"),
        ({"epochs": 1.5}, "epochs: 1.5 is not"),
        ({"batch": 1}, "batch: 1 is not a whole number of at least 2"),
        ({"learning_rate": 0}, "learning_rate: 0 must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate: nan must be positive"),
        ({"schedule": "cosine"}, "schedule: 'cosine' is neither 'step' nor 'one_cycle'"),
    ],
)
def test_recipes_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        recipe(**changes)


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(ParameterError, match="device: abacus"):
        train(network(), recipe(device="abacus"))
    if not torch.cuda.is_available():
        with pytest.raises(ParameterError, match="device: cuda"):
            train(network(), recipe(device="cuda"))


# ---- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 2, 4, 6])
@pytest.mark.parametrize(
    "options",
    [{"schedule": "step"}, {"schedule": "one_cycle"}, {"patience": 2}],
    ids=["step", "one_cycle", "patience"],
)
def test_what_goes_on_from_a_checkpoint_is_what_was_never_interrupted(tmp_path, options, after):
    how = recipe(**options)
    validation = (X[:20], Y[:20]) if "patience" in options else None
    history = train(whole := network(), how, validation=validation, checkpoint=tmp_path / "whole")
    after = min(after, len(history))
    path = tmp_path / "part"
    interrupt(network(), how, path, after, validation=validation)
    assert path.is_file() is (after > 1)
    resumed = network(seed=99 if after > 1 else 0)  # its first weights do not matter: the checkpoint has them
    assert train(resumed, how, validation=validation, checkpoint=path) == history
    assert same(resumed, whole)
    assert list(tmp_path.iterdir()) == []  # removed at the end


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    interrupt(network(), recipe(), path, 3)
    content = path.read_bytes()
    for how in (recipe(seed=1), recipe(epochs=7), recipe(learning_rate=2e-2), recipe(schedule="one_cycle")):
        with pytest.raises(ParameterError, match=r"checkpoint: .* belongs to another training .*; remove it"):
            train(network(), how, checkpoint=path)
    for windows, labels in ((X + 1, Y), (X, 1 - Y), (X[:60], Y[:60]), (X.reshape(70, 3, 4), Y)):
        with pytest.raises(ParameterError, match=r"checkpoint: .* belongs to another training"):
            train_network(network(), windows, labels, cross_entropy, recipe(), checkpoint=path)
    other = network()
    other[4].p = 0.2
    for net in (network(hidden=9), other):
        with pytest.raises(ParameterError, match=r"checkpoint: .* belongs to another training"):
            train(net, recipe(), checkpoint=path)
    for options in ({"validation": (X[:20], Y[:20])}, {"identity": {"hide": 0.3}}):
        with pytest.raises(ParameterError, match=r"checkpoint: .* belongs to another training"):
            train(network(), recipe(), checkpoint=path, **options)
    assert path.read_bytes() == content  # nobody's work is lost by asking
    assert len(train(network(), recipe(), checkpoint=path)) == 6


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "checkpoint"
    interrupt(network(), recipe(), path, 3)
    whole = path.read_bytes()
    for content in (b"", b"nothing of torch's", whole[:100], whole[: len(whole) // 2], whole[:-200]):
        path.write_bytes(content)
        with pytest.raises(ParameterError, match=r"checkpoint: .* cannot be read \(.*\); remove it"):
            train(network(), recipe(), checkpoint=path)
    for content in ({}, [1], {"training": "other"}):
        torch.save(content, path)
        with pytest.raises(ParameterError, match=r"checkpoint: .*; remove it"):
            train(network(), recipe(), checkpoint=path)


class Evil:
    """Makes a directory when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_checkpoint_executes_nothing(tmp_path):
    path, mark = tmp_path / "checkpoint", tmp_path / "mark"
    pickle.loads(pickle.dumps(Evil(mark)))
    assert mark.is_dir()  # that is what it would do
    mark.rmdir()
    interrupt(network(), recipe(), path, 3)
    content = torch.load(path, weights_only=True)
    bad = {"state": Evil(mark), "training": Evil(mark), "network": {"1.weight": Evil(mark)}}
    for key, value in bad.items():
        torch.save(content | {key: value}, path)
        with pytest.raises(ParameterError, match=r"checkpoint: .* cannot be read"):
            train(network(), recipe(), checkpoint=path)
    path.write_bytes(pickle.dumps(Evil(mark), protocol=2))
    with pytest.raises(ParameterError, match=r"checkpoint: .* cannot be read"):
        train(network(), recipe(), checkpoint=path)
    assert not mark.exists()
