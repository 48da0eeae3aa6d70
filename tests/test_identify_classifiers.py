"""Classifiers as scikit-learn knows them, on simulated runs that any of them should tell apart."""

from __future__ import annotations

import dataclasses

import identify_samples as samples
import numpy as np
import pytest
from identify_samples import KINDS, fitted, unfitted
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GroupKFold, cross_val_score
from threadpoolctl import threadpool_limits

torch = pytest.importorskip("torch", reason="the classifiers' networks need torch: the extra 'train'")

from cctoolkit.errors import ParameterError  # noqa: E402
from cctoolkit.identify import CCAClassifier, Windows, cut_windows, load  # noqa: E402
from cctoolkit.identify.bundle import learnt_network  # noqa: E402
from cctoolkit.identify.classifiers import _calibrated, _temperature, summaries  # noqa: E402
from cctoolkit.identify.inputs import VIEW_CHANNELS, VIEW_INPUTS, scale_views  # noqa: E402
from cctoolkit.identify.networks import ScalesNet  # noqa: E402
from cctoolkit.identify.probabilities import named, softmax  # noqa: E402

NETWORKS = [kind for kind in KINDS if kind != "summary"]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


def few(inputs: str, each: int = 12) -> Windows:
    """So many windows of each class."""
    windows = samples.train(inputs)
    return windows.take(np.concatenate([np.flatnonzero(windows.y == cca)[:each] for cca in samples.CCAS]))


# ---- scikit-learn's interface ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "least"), [("dragonfly", 0.9), ("deepcci", 0.9), ("ours", 0.8), ("summary", 0.85)]
)
def test_reno_and_bbr_are_told_apart_in_runs_not_trained_on(kind, least):
    model, test = fitted(kind), samples.test(KINDS[kind][1])
    assert not set(test.groups) & set(samples.train(KINDS[kind][1]).groups)
    probabilities = model.predict_proba(test)
    assert list(model.classes_) == ["bbr", "reno"] and probabilities.shape == (len(test), 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert (probabilities >= 0).all()
    names = model.predict(test)
    sure = names != "unknown"
    assert sure.mean() > 0.8
    assert (names[sure] == model.classes_[probabilities.argmax(axis=1)][sure]).all()
    assert (
        model.score(test)
        == model.score(test.X, test.y)
        == accuracy_score(test.y.astype(str), names.astype(str))
    )
    assert model.score(test) >= least
    np.testing.assert_array_equal(model.predict_proba(test.X), probabilities)  # Windows or array
    # weights of windows count, and a window does not know the others
    weight = (test.y == names).astype(float)
    assert model.score(test, sample_weight=weight) == 1
    np.testing.assert_allclose(model.predict_proba(test.X[5:6]), probabilities[5:6], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_seeds_reproduce(kind):
    windows = few(KINDS[kind][1])
    short = {"iterations": 3} if kind == "summary" else {"epochs": 2}
    first = unfitted(kind, seed=3, **short).fit(windows).predict_proba(windows)
    torch.rand(100)  # what was drawn in between does not matter
    again = clone(unfitted(kind, seed=3, **short)).fit(windows.X, windows.y)
    if kind == "ours":  # validation windows are of other runs only where runs are known
        again.fit(windows.X, windows.y, groups=windows.groups)
    np.testing.assert_array_equal(again.predict_proba(windows), first)
    if kind != "summary":  # trees draw nothing from so few windows
        assert (unfitted(kind, seed=4, **short).fit(windows).predict_proba(windows) != first).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_clones(kind):
    model = unfitted(kind, seed=9)
    parameters = model.get_params()
    assert parameters["seed"] == 9 and parameters == clone(model).get_params()
    assert type(model)(**parameters).get_params() == parameters
    model.set_params(seed=10, learning_rate=0.5)
    assert (model.seed, model.learning_rate) == (10, 0.5)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        model.set_params(depth=3)
    with pytest.raises(NotFittedError):
        clone(fitted(kind)).predict(samples.test(KINDS[kind][1]))


@pytest.mark.parametrize(
    "kind", ["summary", *(pytest.param(kind, marks=pytest.mark.slow) for kind in NETWORKS)]
)
def test_cross_validation_by_run(kind):
    windows = samples.windows(KINDS[kind][1])
    groups = [int(name.split("-")[1]) for name in windows.groups]  # a fold has runs of both
    scores = cross_val_score(unfitted(kind), windows.X, windows.y, groups=groups, cv=GroupKFold(2))
    assert scores.shape == (2,) and scores.max() > 0.7 and scores.mean() > 0.6  # two classes, few windows


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_fitted_says_so(kind, tmp_path):
    windows = few(KINDS[kind][1], 2)
    calls = [lambda m: m.predict(windows), lambda m: m.predict_proba(windows), lambda m: m.score(windows)]
    if kind != "summary":
        calls += [
            lambda m: m.export_onnx(tmp_path / "a.onnx"),
            lambda m: m.save(tmp_path / "a", windows_ms=[100]),
        ]
    for call in calls:
        with pytest.raises(NotFittedError):
            call(unfitted(kind))
    assert not list(tmp_path.iterdir())


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_windows_that_cannot_be_learnt_from_are_refused(kind):
    windows, model = few(KINDS[kind][1], 3), unfitted(kind)
    for X, y, message in [
        (windows.X, ["reno"] * 6, "y: all windows are reno"),
        (windows.X, windows.y[:5], "y: 5 labels .*6"),
        (windows.X, None, "y: no labels"),
        (windows.X[:0], windows.y[:0], "X: no windows"),
        (windows.X[0], windows.y, "X: .*dimensions"),
        (np.full_like(windows.X, np.nan), windows.y, "NaN"),
    ]:
        with pytest.raises(ParameterError, match=message):
            model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(windows)


@pytest.mark.parametrize("kind", ["dragonfly", "deepcci"])
def test_windows_of_another_shape_or_of_other_inputs_are_refused(kind):
    model, windows = fitted(kind), samples.test(KINDS[kind][1])
    n = windows.X.shape[2]
    for X, message in [
        (windows.X[:, :50], f"X: windows of 50 slots x {n} inputs; this classifier was fitted on 100 x {n}"),
        (
            np.zeros((2, 100, 7)),
            f"X: windows of 100 slots x 7 inputs; this classifier was fitted on 100 x {n}",
        ),
        (np.zeros((0, 100, n)), "X: no windows"),
        (np.full((2, 100, n), np.nan), "X: input 0 was never observed"),
    ]:
        with pytest.raises(ParameterError, match=message):
            model.predict_proba(X)
    others = ("bytes_in_flight", "in_bytes")[:n]
    with pytest.raises(
        ParameterError, match=f"X: windows of {', '.join(others)}; this classifier was fitted on"
    ):
        model.predict(cut_windows(samples.recordings(), 100, others))
    with pytest.raises(
        ParameterError, match=f"X: windows of {', '.join(others)}; this classifier was fitted on"
    ):
        model.score(cut_windows(samples.recordings(), 100, others))


def test_what_was_fitted_on_an_array_knows_no_inputs():
    windows = few("cbiq+throughput")
    model = unfitted("dragonfly", epochs=1).fit(windows)
    assert (model.inputs_, model.slot_ms_) == (("cbiq_bytes", "throughput_bytes"), 1)
    model.fit(windows.X, windows.y)
    assert not hasattr(model, "inputs_")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs: 0 is not"),
        ({"batch": 1}, "batch: 1 is not"),
        ({"learning_rate": -1}, "learning_rate: -1 must be positive"),
        ({"device": "abacus"}, "device: abacus"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        unfitted("dragonfly", **changes).fit(few("cbiq+throughput", 4))


def test_validation_needs_two_runs():
    one = few("views").of(run="bbr-0")
    one.y[::2] = "reno"
    with pytest.raises(ParameterError, match="groups: windows of one run cannot be split"):
        unfitted("ours").fit(one)


# ---- training --------------------------------------------------------------------------------------------------------


def test_validation_windows_are_of_other_runs():
    windows = samples.train("views")
    train, validation = unfitted("ours")._held_out(len(windows), windows.groups)
    assert len(train) + len(validation) == len(windows) and len(validation) > 0
    assert not set(windows.groups[train]) & set(windows.groups[validation])


def test_a_checkpoint_is_taken_up(tmp_path, monkeypatch):
    windows, path = few("cbiq+throughput"), tmp_path / "checkpoint"
    whole = unfitted("dragonfly", epochs=4).fit(windows)
    model = unfitted("dragonfly", epochs=4, checkpoint=path)

    def stop(*_):
        if path.is_file():
            raise KeyboardInterrupt

    monkeypatch.setattr(model, "_augment", lambda batch, _: stop() or batch)
    with pytest.raises(KeyboardInterrupt):
        model.fit(windows)
    monkeypatch.undo()
    assert path.is_file()
    model.fit(windows)
    assert model.history_ == whole.history_ and not path.exists()
    np.testing.assert_array_equal(model.predict_proba(windows), whole.predict_proba(windows))


@pytest.mark.parametrize(
    ("kind", "changed"), [("ours", {"hide": 0.5}), ("deepcci", {"pacing_weight": 0.5}), ("dragonfly", {})]
)
def test_a_checkpoint_is_of_its_settings(kind, changed, tmp_path):
    windows, path = few(KINDS[kind][1]), tmp_path / "checkpoint"
    model = unfitted(kind, epochs=2, checkpoint=path, validation_share=0.3)

    def stop(_):
        if path.is_file():
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        model.fit(windows, after_epoch=stop)
    left = path.read_bytes()
    for other in (
        *([clone(model).set_params(**changed)] if changed else []),
        clone(model).set_params(validation_share=0.5),
        clone(model).set_params(epochs=3),
    ):
        with pytest.raises(ParameterError, match=r"checkpoint: .* belongs to another training"):
            other.fit(windows)
    assert path.read_bytes() == left
    assert len(clone(model).set_params(progress=True).fit(windows).history_) == 2


def test_early_stopping_of_a_classifier():
    windows = samples.train("cbiq+throughput")
    model = unfitted("dragonfly", epochs=60, patience=2, validation_share=0.3).fit(windows)
    losses = [row["validation_loss"] for row in model.history_]
    best = int(np.argmin(losses))
    assert len(losses) == min(best + 1 + 2, 60) < 60


def test_deepcci_learns_pacing_with_its_weight():
    model, windows = fitted("deepcci"), samples.test("throughput")
    pacing = model._outputs(windows)[:, -1]
    assert (pacing[windows.y == "bbr"] > 0).mean() > 0.9 and (pacing[windows.y == "reno"] < 0).mean() > 0.9
    out, wanted = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, -3.0]]), torch.tensor([1, 0])  # reno, bbr
    classes = -np.log([np.exp(2) / (np.exp(1) + np.exp(2)), 1 / (1 + np.exp(-1))]).mean()
    paced = np.log([1 + np.exp(0.5), 1 + np.exp(3)]).mean()  # reno is not paced, bbr is
    for weight in (0.0, 0.2, 1.0):
        model = unfitted("deepcci", pacing_weight=weight)
        model.classes_ = np.array(["bbr", "reno"])
        assert model._loss(np.array([1, 0]))(out, wanted).item() == pytest.approx(classes + weight * paced)


def test_rare_classes_weigh_as_much():
    model = unfitted("ours")
    model.classes_ = np.array(["bbr", "reno"])
    loss = model._loss(np.array([0] * 9 + [1]))
    only_bbr = torch.tensor([[9.0, -9.0]] * 10)
    wanted = torch.tensor([0] * 9 + [1])
    assert loss(only_bbr, wanted).item() == pytest.approx(loss(-only_bbr, wanted).item())


# ---- ours ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_many_lengths() -> CCAClassifier:
    """Trained on 50 ms and 400 ms with queue and flight hidden at times."""
    parts = [cut_windows(samples.recordings(), ms, VIEW_INPUTS, per_flow=10) for ms in (50, 400)]
    return unfitted("ours", lose=0.01).fit([part.split(0.33)[0] for part in parts])


@pytest.mark.slow
@pytest.mark.parametrize("ms", [50, 150, 400, 1000])
def test_one_model_for_windows_of_any_length(of_many_lengths, ms):
    test = cut_windows(samples.recordings(), ms, VIEW_INPUTS, per_flow=10).split(0.33)[1]
    assert of_many_lengths.score(test) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [["cbiq_bytes", "out_bytes", "drops_estimate"], ["bytes_in_flight"]])
def test_one_model_for_one_tap_and_two(of_many_lengths, hidden):
    test = cut_windows(samples.recordings(), 400, VIEW_INPUTS, per_flow=10).split(0.33)[1]
    test.X[:, :, [VIEW_INPUTS.index(name) for name in hidden]] = np.nan
    probabilities = of_many_lengths.predict_proba(test)
    right = of_many_lengths.classes_[probabilities.argmax(axis=1)] == test.y
    assert right.mean() > 0.75


def test_what_ours_does_not_take():
    counted = cut_windows(samples.recordings(), 100, VIEW_INPUTS)
    for X, message in [
        (counted.X[:, :, :2], r"X: 2 inputs per slot, not 5 \(in_bytes, cbiq_bytes"),
        (np.where(np.arange(5) == 0, np.nan, counted.X), r"X: in_bytes was not observed \(NaN\)"),
        (
            cut_windows(samples.recordings(), 100, VIEW_INPUTS[::-1]),
            "X: windows of bytes_in_flight, .*, or views",
        ),
    ]:
        with pytest.raises(ParameterError, match=message):
            fitted("ours").predict(X)
        with pytest.raises(ParameterError, match=message):
            unfitted("ours").fit(X, counted.y)
    for X in ([], [counted.X]):
        with pytest.raises(ParameterError, match=r"X: .*Windows"):
            unfitted("ours").fit(X)
    coarse = dataclasses.replace(counted, slot_ms=10.0)
    with pytest.raises(ParameterError, match="X: slots of 1 and 10 ms, not of one width"):
        unfitted("ours").fit([counted, coarse])


def test_ours_knows_the_width_of_its_slots():
    counted = dataclasses.replace(cut_windows(samples.recordings(), 100, VIEW_INPUTS), slot_ms=10.0)
    for X in (counted, [counted, counted.take(np.arange(len(counted)))]):
        model = unfitted("ours", epochs=1).fit(
            samples.train("views")
        )  # of 1 ms; a fit forgets the one before
        assert model.slot_ms_ == 1
        assert model.fit(X).slot_ms_ == 10 and model.predict(counted).shape == (len(counted),)
        with pytest.raises(
            ParameterError, match="X: slots of 1 ms; this classifier was fitted on slots of 10 ms"
        ):
            model.predict(samples.test("views"))


def test_hiding_takes_the_queue_or_the_flight_never_both():
    ones = torch.ones(4000, len(VIEW_CHANNELS), 3)
    changed = unfitted("ours", hide=0.25)._augment(ones, torch.Generator().manual_seed(1))
    assert (ones == 1).all()
    no_queue = changed[:, VIEW_CHANNELS.index("window.has_queue"), 0] == 0
    no_flight = changed[:, VIEW_CHANNELS.index("window.has_flight"), 0] == 0
    assert not (no_queue & no_flight).any()
    for share in (no_queue, no_flight):
        assert 0.22 < share.float().mean() < 0.28
    assert (changed[:, VIEW_CHANNELS.index("window.in_rate")] == 1).all()
    assert (unfitted("ours", hide=0.0)._augment(ones, torch.Generator()) == 1).all()


@pytest.mark.slow
def test_going_on_from_a_saved_model(tmp_path):
    """The network starts as what was saved, with random scores only for a class that it does not know."""
    pytest.importorskip("onnx", reason="the extra `train` is not installed")
    raw, few_windows = samples.windows(VIEW_INPUTS), few("views")
    saved = load(fitted("ours").save(tmp_path / "ours", windows_ms=[100]))
    content, learnt = learnt_network(tmp_path / "ours", "CCAClassifier", few_windows.slot_ms)
    network = ScalesNet.pretrained(content, learnt, ["reno", "vegas", "bbr"]).eval()
    with torch.inference_mode():
        output = network(torch.from_numpy(scale_views(raw.X))).numpy()
    wanted = saved._scores(raw.X)[:, [learnt.index("reno"), learnt.index("bbr")]]
    np.testing.assert_allclose(output[:, [0, 2]], wanted, atol=1e-4)

    parameters = {"pretrained": tmp_path / "ours", "epochs": 1, "widths": (8, 8, 8), "learning_rate": 1e-5}
    went_on = unfitted("ours", **parameters).fit(few_windows)
    assert clone(went_on).pretrained == tmp_path / "ours"
    same = went_on.predict_proba(raw).argmax(1) == saved.predict_proba(raw).argmax(1)
    assert same.mean() > 0.97  # a window near a tie may fall the other way
    again = load(went_on.save(tmp_path / "again", windows_ms=[100]))  # it can be saved, and gone on from
    assert again.about["parameters"]["pretrained"] == "ours"
    np.testing.assert_allclose(again.predict_proba(raw), went_on.predict_proba(raw), atol=1e-4)
    assert unfitted("ours", **{**parameters, "pretrained": tmp_path / "again"}).fit(few_windows).network_


@pytest.mark.slow
def test_the_mean_of_weights_before_and_after(tmp_path):
    pytest.importorskip("onnx", reason="the extra `train` is not installed")
    folder = fitted("ours").save(tmp_path / "ours", windows_ms=[100])
    parameters = {"pretrained": folder, "epochs": 1}
    before = ScalesNet.pretrained(*learnt_network(folder, "CCAClassifier", 1.0), ["bbr", "reno"]).state_dict()
    after, mean = (
        unfitted("ours", keep=k, **parameters).fit(few("views")).network_.state_dict() for k in (0, 0.25)
    )
    for name in ("layers.1.0.weight", "layers.1.1.running_var", "scores.bias", "norm.weight"):
        np.testing.assert_allclose(mean[name], 0.75 * after[name] + 0.25 * before[name], atol=1e-5)
        assert name == "norm.weight" or not torch.equal(after[name], before[name])
    for wrong in ({"keep": 1.0, **parameters}, {"keep": 0.5}):
        with pytest.raises(ParameterError, match=r"keep: .* must be at least 0 and below 1, and needs"):
            unfitted("ours", **wrong).fit(few("views"))
    other = dataclasses.replace(
        few("views"), y=np.where(few("views").y == "bbr", "vegas", "reno").astype(object)
    )
    with pytest.raises(ParameterError, match=r"keep: .* does not know vegas"):
        unfitted("ours", keep=0.5, **parameters).fit(other)


@pytest.mark.slow
def test_going_on_from_what_is_none_of_ours(tmp_path):
    pytest.importorskip("onnx", reason="the extra `train` is not installed")
    fitted("dragonfly").save(tmp_path / "theirs")
    with pytest.raises(
        ParameterError,
        match="theirs: is a DragonflyClassifier; training can continue only from a CCAClassifier",
    ):
        unfitted("ours", pretrained=tmp_path / "theirs").fit(few("views"))
    with pytest.raises(ParameterError, match="pretrained: its network is not one of CCAClassifier"):
        ScalesNet.pretrained((tmp_path / "theirs" / "network-100ms.onnx").read_bytes(), ["bbr"], ["bbr"])


def test_windows_of_others_are_unknown():
    """Three classes, one of which is not to be named."""
    windows = samples.windows("views")
    cubic = [s for s in samples.recordings() if s.flows.cca[0] == "reno"]
    assert cubic
    relabelled = Windows(
        windows.X,
        np.where(windows.y == "bbr", "other", windows.y),
        windows.table,
        windows.inputs,
        windows.slot_ms,
    )
    train, test = relabelled.split(0.33)
    third = np.flatnonzero(train.y == "reno")[::2]
    train.y[third] = "vegas"  # a name that half of Reno's windows have
    model = unfitted("ours", lose=0.0).fit(train)
    assert list(model.classes_) == ["other", "reno", "vegas"]
    names = model.predict(test)
    assert (names[test.y == "other"] == "unknown").mean() > 0.8
    assert (names[test.y == "reno"] != "unknown").mean() > 0.6
    assert "other" not in names


@pytest.mark.slow
def test_what_does_the_same_is_one_answer():
    windows = samples.train("views")
    apart = Windows(windows.X, windows.y.copy(), windows.table, windows.inputs, windows.slot_ms)
    apart.y[np.flatnonzero(apart.y == "reno")[::2]] = "lp"
    alike = {"reno": ["lp", "dctcp"]}
    model = unfitted("ours", alike=alike).fit(apart)
    assert list(model.classes_) == ["bbr", "reno"] and list(model.learnt_) == ["bbr", "lp", "reno"]
    assert clone(model).alike == alike
    by_three = unfitted("ours").fit(apart).predict_proba(windows)  # the same network
    expected = np.stack([by_three[:, 0], by_three[:, 1] + by_three[:, 2]], axis=1)
    np.testing.assert_allclose(model.predict_proba(windows), expected, rtol=1e-5)
    assert model.score(apart) == model.score(windows) > 0.8
    assert (model.predict(windows) == "unknown").mean() <= 0.1  # 0.05 asked for, of few windows
    with pytest.raises(ParameterError, match="y: all windows are all"):
        unfitted("ours", alike={"all": ["bbr", "reno"]}).fit(windows)


def test_unknown_is_what_is_other_or_not_probable_enough():
    classes = np.array(["bbr", "other", "reno"])
    probabilities = np.array(
        [[0.7, 0.1, 0.2], [0.2, 0.6, 0.2], [0.45, 0.1, 0.45], [0.1, 0.0, 0.9], [0.5, 0, 0.5]]
    )
    assert list(named(probabilities, classes, "other", 0.5)) == ["bbr", "unknown", "unknown", "reno", "bbr"]
    assert list(named(probabilities, classes, "other", 0.0)) == ["bbr", "unknown", "bbr", "reno", "bbr"]
    assert list(named(probabilities[:, [0, 2]], classes[[0, 2]], "other", 0.71)) == ["unknown"] * 3 + [
        "reno",
        "unknown",
    ]


def test_the_requested_share_of_known_windows_is_rejected():
    model = fitted("ours")
    windows = samples.train("views")
    _, validation = model._held_out(len(windows), windows.groups)
    assert (model.predict(windows.X[validation]) == "unknown").mean() <= 0.1  # 0.05 asked for, of 20 windows
    assert sorted(model.least_[:, 0]) == [100] and 0.5 <= model.least_[0, 1] <= 1
    free = unfitted("ours", epochs=1, validation_share=0.0).fit(few("views"))
    assert free.temperature_.shape == free.least_.shape == (0, 2)
    assert "unknown" not in free.predict(windows)


def test_so_many_are_lost_of_each_length():
    """Windows as counted and their views are asked for the same."""
    long, short = (samples.windows(VIEW_INPUTS, ms) for ms in (200, 50))
    shuffled = np.random.default_rng(0).permutation(
        short.y
    )  # nothing to see in short ones: less probable names
    short = Windows(short.X, shuffled, short.table, short.inputs, short.slot_ms)
    model = unfitted("ours", epochs=2, lose=0.5).fit([long, short])
    assert model.least_[:, 0].tolist() == [50, 200]
    names = []
    for windows in (long, short):
        views = Windows(
            scale_views(windows.X).transpose(0, 2, 1),
            windows.y,
            windows.table,
            VIEW_CHANNELS,
            windows.slot_ms,
        )
        names.append(model.predict(windows))
        np.testing.assert_array_equal(model.predict(views), names[-1])
    both = np.concatenate([long.groups, short.groups])
    _, validation = model._held_out(len(both), both)
    unknown = np.concatenate(names) == "unknown"
    assert model.least_[0, 1] < model.least_[1, 1]
    assert unknown[validation[validation >= len(long)]].mean() == pytest.approx(0.5, abs=0.05)
    assert unknown[validation[validation < len(long)]].mean() <= 0.5  # probabilities of 1 are not less than 1


def test_the_temperature_is_found_again():
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 2, (20_000, 3))
    chances = softmax(scores)
    np.testing.assert_allclose(chances, np.exp(scores) / np.exp(scores).sum(1, keepdims=True))
    drawn = (rng.random((len(scores), 1)) > chances.cumsum(axis=1)).sum(axis=1)
    for t in (0.5, 1, 3):
        assert _temperature(scores * t, drawn) == pytest.approx(t, rel=0.05)
    np.testing.assert_allclose(softmax(np.array([[1000.0, 0.0]])), [[1, 0]])


def drawn_from(chances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A class for each row, as probable as it says."""
    return (rng.random((len(chances), 1)) > chances.cumsum(axis=1)).sum(axis=1)


def test_temperatures_of_lengths_and_the_share_of_others_are_found_again():
    """Scores of two lengths, sharpened apart; of windows weighted as if every second flow were unknown."""
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 2, (40_000, 3))
    rows = np.arange(len(scores)) % 2
    numbers, is_other = drawn_from(softmax(scores), rng), np.array([False, True, False])
    sharp = scores * np.array([0.5, 3.0])[rows][:, None]
    offset, temperatures = _calibrated(sharp, numbers, np.ones(len(scores)), rows, is_other)
    np.testing.assert_allclose(temperatures, [0.5, 3.0], rtol=0.05)
    assert offset == pytest.approx(0, abs=0.05)
    one = np.zeros(len(scores), np.int64)
    weights = np.where(numbers == 1, 2.0, 1.0)  # a class that is twice as frequent has the offset log 2
    offset, temperatures = _calibrated(scores, numbers, weights, one, is_other)
    assert offset == pytest.approx(np.log(2), abs=0.06) and temperatures == pytest.approx([1], rel=0.05)


@pytest.mark.slow
def test_calibration_with_windows_of_other_runs(tmp_path):
    """Long windows are classified in pieces: what was learnt from single views does not hold for them."""
    pytest.importorskip("onnx", reason="the extra `train` is not installed")
    model = unfitted("ours", epochs=2, lose=0.1).fit(few("views"))
    windows = [samples.windows(VIEW_INPUTS, ms) for ms in (100, 2000)]
    before = model.temperature_
    assert model.calibrate(windows) is model
    assert model.temperature_[:, 0].tolist() == model.least_[:, 0].tolist() == [
        100,
        2000,
    ] and before.shape == (1, 2)
    for part in windows:  # as many as asked for are lost of each length
        assert (model.predict(part) == "unknown").mean() == pytest.approx(0.1, abs=0.05)
    saved = load(model.save(tmp_path / "model", windows_ms=[100, 2000]))
    for part in windows:
        np.testing.assert_allclose(saved.predict_proba(part), model.predict_proba(part), atol=2e-3)
    with pytest.raises(ParameterError, match=r"other_share: .* needs the class 'other'"):
        model.calibrate(windows, other_share=0.3)
    with pytest.raises(ParameterError, match="no window of"):
        model.calibrate(windows[0].take(windows[0].y == "bbr"))


def test_the_fewer_others_are_expected_the_more_probable_are_names():
    windows = samples.windows(VIEW_INPUTS)
    known = np.where(np.arange(len(windows)) % 3 == 0, "other", windows.y).astype(object)
    relabelled = dataclasses.replace(windows, y=known)
    model = unfitted("ours", epochs=2, other="other").fit([relabelled])
    likely = [
        model.calibrate(relabelled, other_share=s).predict_proba(windows)[:, 1].mean() for s in (0.6, 0.1)
    ]
    assert list(model.classes_) == ["bbr", "other", "reno"] and likely[0] > 0.4 > 0.2 > likely[1]
    assert model.predict_proba(windows)[:, 1].mean() == pytest.approx(0.1, abs=0.07)


def test_doubted_names_need_more_evidence():
    """As much as needed: what is something else gets such a name no more often than asked for."""
    windows = samples.windows(VIEW_INPUTS)
    model = unfitted("ours", epochs=3, lose=0.0).fit([windows])
    others = windows.take(windows.y == "reno")
    others.y[:] = "vegas"
    before = model.predict_proba(windows)
    assert list(model.classes_) == ["bbr", "reno"] and (model.predict(others) == "reno").mean() > 0.6
    assert model.doubt(others, ["reno"], share=1.0) is model
    np.testing.assert_array_equal(model.predict_proba(windows), before)
    model.doubt([others], ["reno"], share=0.5)
    assert (model.predict(others) == "reno").mean() <= 0.5
    once = model.predict_proba(windows)
    assert (once[:, 1] < before[:, 1]).all()
    model.doubt([others], ["reno"], share=0.5)  # not twice
    np.testing.assert_array_equal(model.predict_proba(windows), once)
    with pytest.raises(ParameterError, match="ccas: vegas is none of the classes bbr, reno"):
        model.doubt(others, ["vegas"])
    with pytest.raises(ParameterError, match="X: has windows of bbr"):
        model.doubt(windows, ["bbr"])
    with pytest.raises(ParameterError, match="still called bbr or reno when those scores are 5 lower"):
        model.doubt(others, ["bbr", "reno"])  # all of them: lowering changes nothing
    np.testing.assert_allclose(model.predict_proba(windows), once, atol=1e-5)


def test_summaries_are_so_many_numbers_whatever_the_length():
    for slots in (10, 300):
        X = np.random.default_rng(1).poisson(1000, (4, slots, 5))
        assert summaries(X).shape == (4, 12 * len(VIEW_CHANNELS))


def test_names_that_are_almost_certain_are_not_refused():
    model = CCAClassifier(lose=0.03)
    model.learnt_ = model.classes_ = np.array(["bbr", "cubic"])
    sure = 1 - np.geomspace(1e-9, 1e-5, 50)
    likely = np.stack([sure, 1 - sure], axis=1)
    model._learn_thresholds(np.full(50, 1000), likely, np.zeros(50, np.int64))
    assert model.least_.tolist() == [[1000, 0.95]]

    likely = np.stack([np.linspace(0.5, 1, 101), np.linspace(0.5, 0, 101)], axis=1)
    model._learn_thresholds(np.full(101, 1000), likely, np.zeros(101, np.int64))
    np.testing.assert_allclose(model.least_, [[1000, 0.515]])  # where 3 % lie below
