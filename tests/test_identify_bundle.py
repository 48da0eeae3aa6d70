"""Models on disk: what torch says onnxruntime says too, without torch; and files that cannot be trusted are refused."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import identify_samples as samples
import numpy as np
import pandas as pd
import pytest
from identify_samples import fitted, unfitted
from tools import mostly_slow

torch = pytest.importorskip("torch", reason="making models needs torch: the extra 'train'")
pytest.importorskip("onnxscript", reason="making models needs onnxscript: the extra 'train'")

import cctoolkit as cct  # noqa: E402
from cctoolkit.errors import CCToolkitError, ParameterError, SchemaError  # noqa: E402
from cctoolkit.identify import Windows, cut_windows  # noqa: E402
from cctoolkit.identify.bundle import FORMAT, Model, bundled_models, load  # noqa: E402
from cctoolkit.identify.inputs import VIEW_INPUTS  # noqa: E402
from cctoolkit.identify.readers import label_flows  # noqa: E402
from cctoolkit.identify.saving import save_models  # noqa: E402

TRACES = Path(__file__).parents[1] / "traces"


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def dragonfly(tmp_path_factory):
    """The folder of a fitted DragonflyClassifier."""
    folder = tmp_path_factory.mktemp("models") / "fly"
    results = pd.DataFrame({"test": ["other runs"], "accuracy": [0.97]})
    return fitted("dragonfly").save(
        folder,
        data="Simulated.",
        limits="One link.",
        results=results,
        provenance={"command": "a test", "seed": 0},
    )


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """The folder of a fitted CCAClassifier."""
    return fitted("ours").save(tmp_path_factory.mktemp("models") / "ours", windows_ms=[100, 500])


@pytest.fixture
def copy(dragonfly, tmp_path):
    """A folder to damage."""
    return Path(shutil.copytree(dragonfly, tmp_path / "copy"))


def changed(folder: Path, **values: object) -> None:
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(
        json.dumps({k: v for k, v in (about | values).items() if v is not ...})
    )


# ---- parity ----------------------------------------------------------------------------------------------------------


def same_as_torch(model: Model, kind: str, windows) -> None:
    """Probabilities of onnxruntime and torch differ by 1e-5 at most, however many windows go at once."""
    expected = fitted(kind).predict_proba(windows)
    for batch in (1, 2, 7, len(windows)):
        parts = [model.predict_proba(windows.X[i : i + batch]) for i in range(0, len(windows), batch)]
        assert np.abs(np.concatenate(parts) - expected).max() <= 1e-5
    names = model.predict(windows)
    assert (names == fitted(kind).predict(windows)).all()
    assert list(model.classes_) == list(fitted(kind).classes_)


@pytest.mark.slow
def test_dragonfly_without_torch_is_dragonfly(dragonfly):
    same_as_torch(load(dragonfly), "dragonfly", samples.test("cbiq+throughput"))


@pytest.mark.slow
def test_ours_without_torch_is_ours(ours):
    model = load(ours)
    counted = cut_windows(samples.recordings(), 100, VIEW_INPUTS, per_flow=4)
    same_as_torch(model, "ours", counted)
    longer = cut_windows(samples.recordings(), 700, VIEW_INPUTS)
    longer.X[:, :, 1:4] = np.nan  # one tap
    same_as_torch(model, "ours", longer)
    assert model.any_length and model.windows_ms == (100, 500)


@pytest.mark.slow
def test_deepcci_without_torch_is_deepcci(tmp_path):
    same_as_torch(load(fitted("deepcci").save(tmp_path / "d")), "deepcci", samples.test("throughput"))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_trees_without_scikit_learn_are_the_trees(tmp_path, classes):
    windows = samples.train("views")
    y = windows.y if classes == 2 else np.where(np.arange(len(windows)) % 3 == 0, "cubic", windows.y)
    trees = unfitted("summary").fit(windows, y)
    model = load(trees.save(tmp_path / "trees", windows_ms=[100]))
    assert len(model.classes_) == classes and model.any_length
    for inputs in ("views", VIEW_INPUTS):
        test = cut_windows(samples.recordings(), 100, inputs, per_flow=4)
        np.testing.assert_allclose(model.predict_proba(test), trees.predict_proba(test), atol=1e-6)
        assert (model.predict(test) == trees.predict(test)).all()
    with pytest.raises(ParameterError, match="shortest"):
        model.predict_proba(cut_windows(samples.recordings(), 50, VIEW_INPUTS))


@pytest.mark.slow
def test_one_model_of_several_lengths(tmp_path):
    longer = unfitted("dragonfly", epochs=2).fit(samples.windows("cbiq+throughput", 200))
    folder = save_models([fitted("dragonfly"), longer], tmp_path / "both")
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md", "model.json", "network-100ms.onnx", "network-200ms.onnx"
    ]  # fmt: skip
    model = load(folder)
    assert model.windows_ms == (100, 200) and not model.any_length
    for ms, classifier in ((100, fitted("dragonfly")), (200, longer)):
        windows = samples.windows("cbiq+throughput", ms)
        assert np.abs(model.predict_proba(windows) - classifier.predict_proba(windows)).max() <= 1e-5
    with pytest.raises(ParameterError, match="windows of 50 ms: both has networks for 100, 200 ms"):
        model.predict_proba(cut_windows(samples.recordings(), 50))
    found = model.predict(samples.recordings()[0].slots)  # the longest that the flow fills
    assert list(found.window_ms) == [200]


@pytest.mark.slow
def test_scores_alone(dragonfly, tmp_path):
    import onnxruntime

    path = fitted("dragonfly").export_onnx(tmp_path / "alone.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["X"] and [o.name for o in session.get_outputs()] == [
        "scores"
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["alone.onnx"]  # weights and all
    assert b".py" not in path.read_bytes()  # nor of where it was made


def test_bundled_networks_contain_no_paths():
    for folder in bundled_models().values():
        for path in folder.glob("*.onnx"):
            assert b".py" not in path.read_bytes(), path


_WITHOUT_TORCH = """
import json
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("there is no torch")

sys.meta_path.insert(0, NoTorch())
import numpy as np
import cctoolkit as cct
from cctoolkit.identify.bundle import load
model = load(sys.argv[1])
run = cct.load_run(sys.argv[2])
table = model.predict(cct.compute_slots(run.ingress, run.egress))
windows = np.load(sys.argv[3])
assert "torch" not in sys.modules
json.dump({"flows": table.to_dict("records"), "probabilities": model.predict_proba(windows).tolist()}, sys.stdout)
"""


@pytest.mark.slow
def test_a_model_needs_no_torch(dragonfly, tmp_path):
    windows = samples.test("cbiq+throughput").X[:3]
    np.save(tmp_path / "X.npy", windows)
    arguments = [sys.executable, "-c", _WITHOUT_TORCH, dragonfly, TRACES / "bbr", tmp_path / "X.npy"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    np.testing.assert_allclose(found["probabilities"], fitted("dragonfly").predict_proba(windows), atol=1e-5)
    assert found["flows"][0]["model"] == "fly"


# ---- what a folder says ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_folder_says_what_the_model_is(dragonfly):
    about = json.loads((dragonfly / "model.json").read_text())
    (network,) = about["networks"]
    assert network["slots"] == 100
    assert network["sha256"] == hashlib.sha256((dragonfly / network["file"]).read_bytes()).hexdigest()
    assert about["classes"] == ["bbr", "reno"] and about["inputs"] == ["cbiq_bytes", "throughput_bytes"]
    assert about["provenance"] == {"command": "a test", "seed": 0}
    assert about["parameters"]["epochs"] == 20 and about["cctoolkit"] == cct.__version__
    assert "checkpoint" not in about["parameters"]
    card = (dragonfly / "README.md").read_text()
    for text in (
        "# fly",
        "Simulated.",
        "One link.",
        "other runs",
        "0.97",
        "bbr, reno",
        "epochs 20",
        "a test",
        "100 ms",
    ):
        assert text in card, text
    model = load(dragonfly)
    assert repr(model) == "<Model fly: bbr, reno from cbiq_bytes, throughput_bytes; windows of 100 ms>"
    assert (model.windows_ms, model.slot_ms, model.any_length) == ((100,), 1, False)


@pytest.mark.slow
def test_a_model_lists_what_its_classes_cover(ours, tmp_path):
    windows = samples.train("views")
    some = Windows(windows.X, windows.y.copy(), windows.table, windows.inputs, windows.slot_ms)
    some.y[np.flatnonzero(some.y == "reno")[::2]] = "lp"
    torch_model = unfitted("ours", epochs=2, alike={"reno": ("lp", "reno")}).fit(some)
    folder = torch_model.save(tmp_path / "groups", windows_ms=[100])
    model = load(folder)
    assert model.alike == {"reno": ("lp", "reno")} and load(ours).alike == {}
    assert list(model.classes_) == ["bbr", "reno"] and model.about["classes"] == ["bbr", "lp", "reno"]
    np.testing.assert_allclose(model.predict_proba(some), torch_model.predict_proba(some), atol=1e-5)
    assert set(model.predict(some)) <= {"bbr", "reno", "unknown"}
    card = (folder / "README.md").read_text()
    assert "tells bbr, reno apart" in card and "; reno also covers lp" in card
    assert "also covers" not in (ours / "README.md").read_text()


@pytest.mark.slow
def test_what_belongs_to_no_model_is_not_saved(tmp_path):
    bare = unfitted("dragonfly", epochs=1)
    windows = samples.train("cbiq+throughput")
    bare.fit(windows.X, windows.y)
    with pytest.raises(ParameterError, match=r"classifier: .*Windows"):
        bare.save(tmp_path / "a")
    with pytest.raises(ParameterError, match="classifiers: "):
        save_models([fitted("dragonfly"), fitted("deepcci")], tmp_path / "a")
    with pytest.raises(ParameterError, match="windows_ms: "):
        fitted("ours").save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_bundled_models_by_name(dragonfly, monkeypatch):
    for name, folder in bundled_models().items():
        assert load(name).name == name == folder.name
    monkeypatch.setattr("cctoolkit.identify.bundle.bundled_models", lambda: {"mine": dragonfly})
    assert load("mine").classes_.tolist() == ["bbr", "reno"]
    with pytest.raises(
        ParameterError, match=r"model: nobody's is neither a folder with a model\.json nor one of mine"
    ):
        load("nobody's")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "right", "wrong"), [("cca", 14, 0), ("every-cca", 14, 2)])
def test_flows_of_other_kernels(model, right, wrong):
    """Of the captures in ``traces/``, which no model was trained on; the numbers are those of the documentation."""
    named = []
    for labels in sorted(TRACES.glob("*.labels.csv")):
        before, after = (
            cct.read_capture(TRACES / labels.name.replace("labels.csv", f"{tap}.pcap.gz"))
            for tap in ("ingress", "egress")
        )
        known = label_flows(before, labels)[["flow_id", "cca"]].rename(columns={"cca": "runs"})
        named.append(cct.identify.classify_flows(before, after, model=model).merge(known, on="flow_id"))
    table = pd.concat(named)
    assert len(table) == 17
    assert (table.cca == table.runs).sum() >= right
    assert (~table.cca.isin(["unknown"]) & (table.cca != table.runs)).sum() <= wrong


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_network_that_is_not_the_one_described_is_refused_before_it_is_read(copy):
    path = copy / "network-100ms.onnx"
    whole = path.read_bytes()
    windows = samples.test("cbiq+throughput")
    for content in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b"", whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(SchemaError, match=r"network-100ms\.onnx: SHA-256"):
            load(copy).predict_proba(windows)
    path.unlink()
    with pytest.raises(SchemaError, match=r"network-100ms\.onnx: .*missing"):
        load(copy).predict_proba(windows)


def test_a_network_lies_in_the_models_folder(copy, tmp_path):
    """A name in model.json cannot lead out of it."""
    outside = tmp_path / "outside.onnx"
    shutil.move(copy / "network-100ms.onnx", outside)
    networks = json.loads((copy / "model.json").read_text())["networks"]
    for file in ("../outside.onnx", str(outside)):
        changed(copy, networks=[networks[0] | {"file": file}])
        with pytest.raises(SchemaError, match=r"copy/outside\.onnx: .*missing"):
            load(copy).predict_proba(samples.test("cbiq+throughput"))


def test_a_network_that_onnxruntime_cannot_read_is_refused(copy):
    networks = json.loads((copy / "model.json").read_text())["networks"]
    (copy / "network-100ms.onnx").write_bytes(b"no network")
    changed(copy, networks=[networks[0] | {"sha256": hashlib.sha256(b"no network").hexdigest()}])
    with pytest.raises(SchemaError, match=r"network-100ms\.onnx: .*onnxruntime"):
        load(copy).predict_proba(samples.test("cbiq+throughput"))


def test_a_model_of_another_format_is_refused_with_what_to_do(copy):
    changed(copy, format=99, cctoolkit="9.9")
    with pytest.raises(
        SchemaError, match=rf"a model of format 99, this package reads {FORMAT}: train it again.*\(9\.9\)"
    ):
        load(copy)


@pytest.mark.parametrize(
    "values",
    [
        {"classes": ...}, {"networks": ...}, {"networks": [{}]}, {"networks": 5}, {"networks": []}, {"inputs": 5},
        {"preparation": "os.system"}, {"slot_ms": "long"}, {"temperature": None}, {"format": ...}, {"windows_ms": []},
        {"networks": [{"slots": 100, "file": 7, "sha256": ""}]}, {"least": ...}, {"least": [1, 2, 3]},
        {"least": [[100, 0.5], [100, 0.6]]}, {"least": [[-1, 0.5]]}, {"least": [["long", 0.5]]},
        {"alike": {"reno": ["bic"]}}, {"alike": {"reno": 5}}, {"alike": ["reno"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_description_that_is_none_is_refused(copy, values):
    changed(copy, **values)
    with pytest.raises(SchemaError, match=r"model\.json: not a valid"):
        load(copy)


def test_a_description_that_cannot_be_read_is_refused(copy):
    for content in (b"", b"no JSON", b"[]", b"\xff\xfe", b'{"format": %d}' % FORMAT):
        (copy / "model.json").write_bytes(content)
        with pytest.raises(SchemaError, match=r"model\.json: not a valid"):
            load(copy)
    (copy / "model.json").unlink()
    with pytest.raises(ParameterError, match=r"is neither a folder with a model\.json"):
        load(copy)


def test_windows_that_are_not_what_it_was_trained_on_are_refused(dragonfly):
    model, windows = load(dragonfly), samples.test("cbiq+throughput")
    holes = windows.X.copy()
    holes[3, 7, 1] = np.nan
    tens = cut_windows(samples.recordings()[:2], 100, "cbiq+throughput")
    tens.slot_ms = 10
    for X, message in [
        (
            samples.test("throughput"),
            "windows of in_packets: fly was trained on cbiq_bytes, throughput_bytes",
        ),
        (tens, "windows of slots of 10 ms: fly was trained on slots of 1 ms"),
        (windows.X[:, :50], "windows of 50 ms: fly has networks for 100 ms"),
        (windows.X[0], r"X: shape \(100, 2\) is not windows x slots x 2 \(cbiq_bytes, throughput_bytes\)"),
        (windows.X[:, :, :1], r"X: shape \(40, 100, 1\) is not windows x slots x 2"),
        (holes, r"X: window 3 has values that were not observed \(NaN\)"),
    ]:
        with pytest.raises(ParameterError, match=message):
            model.predict_proba(X)


@pytest.mark.slow
def test_windows_too_short_or_without_arrivals_are_refused_by_ours(ours):
    any_length = load(ours)
    counted = cut_windows(samples.recordings(), 100, VIEW_INPUTS).X
    with pytest.raises(ParameterError, match="windows of 99 ms: the shortest ours was trained on are 100 ms"):
        any_length.predict_proba(counted[:, :99])
    counted[2, 0, 0] = np.nan
    with pytest.raises(
        ParameterError, match=r"X: window 2 has values that were not observed \(NaN\) of in_bytes"
    ):
        any_length.predict_proba(counted)


# ---- flows of a slots table ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_flows_of_a_trace_by_two_taps_and_by_one(ours):
    model, run = load(ours), cct.load_run(TRACES / "cubic-bbr")
    two = model.predict(cct.compute_slots(run.ingress, run.egress))
    one = model.predict_slots(cct.compute_slots(run.ingress))
    one_way = cct.compute_slots(run.ingress)
    one_way["bytes_in_flight"] = None
    for table, feature_set in (
        (two, "cbiq+bytes_in_flight+throughput"), (one, "bytes_in_flight+throughput"),
        (model.predict(one_way), "throughput"),
    ):  # fmt: skip
        assert list(table.columns) == [
            "flow_id", "cca", "probability", "limited_by", "windows", "window_ms", "feature_set", "model"
        ]  # fmt: skip
        assert list(table.flow_id) == [0, 1] and set(table.feature_set) == {feature_set}
        assert set(table.model) == {"ours"} and set(table.window_ms) == {500}
        assert set(table.cca) <= {"bbr", "reno", "unknown"} and table.probability.between(0.3, 1).all()
        assert (table.windows > 10).all()
    no_queue = samples.recordings()[0].slots.assign(cbiq_bytes=np.nan)  # one channel of it is enough
    assert model.predict(no_queue).iloc[0].feature_set == "bytes_in_flight+throughput"
    assert (two.probability - one.probability).abs().max() > 0  # another view, another number


def test_the_flows_of_runs_not_trained_on_are_named(dragonfly):
    model = load(dragonfly)
    tested = set(samples.test("cbiq+throughput").groups)
    for recording in samples.recordings():
        if recording.name in tested:
            (row,) = model.predict(recording.slots).to_dict("records")
            assert row["cca"] == recording.flows.cca[0] and row["feature_set"] == "cbiq+throughput"
            assert row["probability"] > 0.8 and 25 <= row["windows"] <= 30 and row["window_ms"] == 100


def test_windows_of_a_flow_are_combined(dragonfly):
    """By hand: no overlap, silent ones left out, log-probabilities averaged."""
    model, slots = load(dragonfly), samples.recordings()[0].slots
    row = model.predict(slots).iloc[0]
    values = slots[["cbiq_bytes", "throughput_bytes"]].to_numpy(np.float32, na_value=np.nan)
    whole = [values[i : i + 100] for i in range(0, len(values) - 99, 100)]
    whole = [w for w in whole if not np.isnan(w).any() and w[:, 1].sum() > 0]
    together = np.exp(np.log(model.predict_proba(np.stack(whole))).mean(axis=0))
    together /= together.sum()
    assert row.windows == len(whole) and row.probability == pytest.approx(together.max(), rel=1e-4)
    assert row.cca == model.classes_[together.argmax()]


def test_flows_without_usable_windows(dragonfly):
    model, slots = load(dragonfly), samples.recordings()[0].slots
    short = model.predict(slots[:60]).iloc[0]
    assert short.windows == 0 and pd.isna(short.cca) and np.isnan(short.probability)
    no_queue = slots.assign(cbiq_bytes=np.nan)
    row = model.predict(no_queue).iloc[0]
    assert (row.feature_set, row.windows) == ("", 0) and pd.isna(row.cca)
    silent = slots.assign(cbiq_bytes=0.0, throughput_bytes=0.0)
    assert model.predict(silent).iloc[0].windows == 0
    assert len(model.predict(slots[:0])) == 0


@pytest.mark.slow
def test_a_model_of_the_queue_alone(tmp_path):
    """Its inputs do not say when the flow was sending: the slots do."""
    windows = cut_windows(samples.recordings(), 100, "cbiq", per_flow=2)
    model = load(unfitted("dragonfly", epochs=1).fit(windows).save(tmp_path / "queue"))
    slots = samples.recordings()[0].slots
    row = model.predict(slots).iloc[0]
    assert row.windows > 20 and 0 <= row.probability <= 1
    assert model.predict(slots.assign(in_bytes=0.0)).iloc[0].windows == 0
    with pytest.raises(SchemaError, match="in_bytes or throughput_bytes"):
        model.predict(slots.drop(columns=["in_bytes", "throughput_bytes"]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_views_that_are_not_finite_are_refused(value):
    windows = cut_windows(samples.recordings()[:2], 100, "views", per_flow=2)
    windows.X[1, 3, 0] = value
    with pytest.raises(ParameterError, match="views of window 1 are not finite"):
        load("cca").predict(windows)


def test_slots_that_a_model_does_not_take(dragonfly):
    model, slots = load(dragonfly), samples.recordings()[0].slots
    tens = slots.copy()
    tens.attrs["slot_ms"] = 10.0
    with pytest.raises(ParameterError, match="slots of 10 ms: fly was trained on slots of 1 ms"):
        model.predict(tens)
    with pytest.raises(SchemaError, match="slots: column 'cbiq_bytes' is missing"):
        model.predict(slots.drop(columns="cbiq_bytes"))
    with pytest.raises(ParameterError, match="windows of 200 ms: fly has networks for 100 ms"):
        model.predict_slots(slots, window_ms=200)
    found = model.predict_slots(slots, window_ms=100)
    assert found.window_ms[0] == 100
    mixed = slots.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(model.predict_slots(mixed, window_ms=100), found)
    with pytest.raises(SchemaError, match="lacks slot"):
        model.predict_slots(slots.drop(index=slots.index[5]))
    slots.attrs = {}
    with pytest.raises(ParameterError, match=r"attrs\['slot_ms'\], was lost"):
        model.predict_slots(slots)


def test_loading_executes_nothing(copy, tmp_path):
    """Neither a pickle in a model's folder nor anything that model.json names is looked at."""
    mark = tmp_path / "mark"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(mark),)

    torch.save(Evil(), copy / "network.pt")
    networks = json.loads((copy / "model.json").read_text())["networks"]
    torch.save(Evil(), copy / "network-100ms.onnx")
    digest = hashlib.sha256((copy / "network-100ms.onnx").read_bytes()).hexdigest()
    changed(copy, networks=[networks[0] | {"sha256": digest}])
    with pytest.raises(SchemaError, match="onnxruntime cannot read"):
        load(copy).predict_proba(samples.test("cbiq+throughput"))
    assert not mark.exists()


NOT_A_MODEL = {
    "classes": [5, [], [1], ["a", "a"], ["a\x1b[31m"], ["x" * 200], None],
    "inputs": [[], ["in_bytes", "in_bytes"], ["no such column"], "in_bytes", None],
    "slot_ms": [0, -1, "1", None, 10**400, [1]],
    "windows_ms": [[], [-1], [0], ["x"], None, [[1]]],
    "temperature": [0, -1, "1", None, 10**400, True, [[5, 0]], [[5, 1], [5, 1]], [[1]], [5]],
    "least": [[[5, 0.5], [5, 0.5]], [[-1, 0.5]], [[1, 2]], [[1, -0.1]], [[1]], "x"],
    "networks": [[], None, [{}], [5], *([{"slots": slots, "file": "x", "sha256": ""}] for slots in (-3, 1.5, None))],
    "preparation": ["no such", None, [], "scale_view"],
    "alike": [5, {"x": 5}, {"x": []}, {"x": ["not a class"]}],
    "other": [None, "", 5],
    "format": [None, 99, [], "2"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in NOT_A_MODEL.items() for value in values]
)
def test_a_description_that_makes_no_sense(copy, key, value):
    path = copy / "model.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {key: value}))
    with pytest.raises(SchemaError, match=r"model\.json|format") as failure:
        load(copy)
    assert "\n" not in str(failure.value) and len(str(failure.value)) < 600
    del about[key]
    path.write_text(json.dumps(about))
    if key != "alike":
        with pytest.raises(SchemaError, match=f"{key}' is missing"):
            load(copy)


def fields(value: object, path: tuple[str | int, ...] = ()):
    """Where something stands in a document."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(min(len(value), 2)):
            yield from fields(value[key], (*path, key))


ANYTHING = [
    None, True, 0, -1, 1e308, 10**400, "", "\x1b[31m\n", "x" * 5000, "\ud800", "..", [], {}, [[]], [None], ["flow_id"],
    ["in_bytes"], [[0, 1]], [[1, -1]], [[5, 1], [2, 1]], [1e-300], {"a": ["cubic"]}, {"cubic": ["cubic"]},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("value", mostly_slow(ANYTHING, ANYTHING[::6]), ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", ["cca", "dragonfly"])
def test_anything_in_any_field(name, value, tmp_path):
    """An answer or one short line, wherever it stands."""
    copy, slots = Path(shutil.copytree(bundled_models()[name], tmp_path / "copy")), short_slots()
    about = json.loads((copy / "model.json").read_text())
    for path in fields({key: v for key, v in about.items() if key not in ("results", "provenance")}):
        text = json.dumps(about)
        changed = inside = json.loads(text) if path else value
        for key in path[:-1]:
            inside = inside[key]
        if path:
            inside[path[-1]] = value
        (copy / "model.json").write_text(json.dumps(changed))
        try:
            named = load(copy).predict_slots(slots)
        except CCToolkitError as error:
            text = str(error)
            assert text.isprintable() and len(text) < 600, path
        else:
            assert named["probability"].dropna().between(-1e-6, 1 + 1e-6).all(), path


@functools.cache
def short_slots() -> pd.DataFrame:
    slots = samples.recordings()[0].slots
    kept = slots[slots["slot"] < slots["slot"].min() + 320]
    kept.attrs.update(slots.attrs)
    return kept


@pytest.mark.parametrize("text", ["", "[" * 100_000, "{", "\xff", "[]", '{"format": NaN}', "5", "null"])
def test_a_description_that_is_no_json(copy, text):
    (copy / "model.json").write_text(text, encoding="latin-1")
    with pytest.raises(SchemaError, match=r"model\.json"):
        load(copy)


def test_networks_that_never_end(copy):
    """A sparse file of 3 GB, a device, a pipe, a folder: refused before they are read."""
    model = load(copy)
    (network,) = copy.glob("*.onnx")
    slots = json.loads((copy / "model.json").read_text())["networks"][0]["slots"]
    X = np.ones((1, slots, len(model.inputs)), np.float32)

    def refused(why):
        with pytest.raises(SchemaError, match=why):
            load(copy).predict(X)
        network.rmdir() if network.is_dir() else network.unlink()

    with network.open("wb") as file:
        file.truncate(3 << 30)
    refused("expected at most")
    network.symlink_to("/dev/zero")
    refused("not a regular file")
    os.mkfifo(network)
    refused("not a regular file")
    network.mkdir()
    refused("not a regular file")
