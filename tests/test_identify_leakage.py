"""Runs and settings that a model has seen, splits by setting, evaluations as folders, congestion controls in files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import cctoolkit as cct
from cctoolkit.cca import Cca
from cctoolkit.errors import ParameterError, SchemaError
from cctoolkit.identify import Windows, bundled_models, load
from cctoolkit.identify.dataset import Recording, SlotDataset, index_dataset, save_recording
from cctoolkit.identify.datasets import Datasets
from cctoolkit.identify.evaluation_folder import FILES, by_setting, reliability_of, write_evaluation
from cctoolkit.identify.flow_settings import banded, settings_of_runs
from cctoolkit.identify.leakage import (
    SPLIT,
    note_settings,
    note_trained_before,
    seen_runs,
    trained_runs,
    trained_settings,
    unseen_runs,
    write_split,
)
from cctoolkit.identify.own_ccas import names_of_file, own_ccas
from cctoolkit.identify.settings import jobs


def of(flows: pd.DataFrame) -> Datasets:
    """Datasets of these flows, without slots."""
    data = object.__new__(Datasets)
    data.flows, data.runs = flows, sorted(set(flows["run"]))
    data.contents = {run: f"content of {run}" for run in data.runs}
    return data


def grid() -> pd.DataFrame:
    """Rates 1 to 12, two AQMs, three seeds: 24 settings of three runs with two flows."""
    rows = [
        {"run": f"{rate}-{aqm}-{seed}", "cca": cca, "rate": rate, "aqm": aqm, "seed": seed, "bytes_acked": 7 * seed}
        for rate in range(1, 13)
        for aqm in ("codel", "red")
        for seed in (1, 2, 3)
        for cca in ("reno", "bbr")
    ]  # fmt: skip
    return pd.DataFrame(rows)


# ---- settings --------------------------------------------------------------------------------------------------------


def test_settings_are_equal_but_for_the_seed_and_what_came_out() -> None:
    settings = settings_of_runs(grid())
    assert len(set(settings.values())) == 24
    for run, of_run in settings.items():
        assert of_run == settings[run.rpartition("-")[0] + "-1"]
    some = pd.DataFrame({"run": ["a", "a", "b", "b", "c"], "rtt": [1, 2, 2, 1, 1]})
    found = settings_of_runs(some)
    assert found["a"] == found["b"] != found["c"]  # in whatever order
    assert settings_of_runs(some.assign(rtt=some.rtt.astype(float), more=np.nan)) == found
    assert set(settings_of_runs(some[["run"]]).values()) == {""}  # nothing known is nothing in common


def test_bands_have_as_many_values_each() -> None:
    numbers = pd.Series([3.0, 1, 2, np.nan, 8, 7, 6, 5, 4])
    bands = banded(numbers)
    assert list(bands.cat.categories) == ["1 to 2", "3 to 4", "5 to 6", "7 to 8"]
    assert (
        bands.tolist()[:3] == ["3 to 4", "1 to 2", "1 to 2"]
        and bands.isna().tolist() == numbers.isna().tolist()
    )
    assert banded(pd.Series([10, 5, 10])).tolist() == ["10", "5", "10"]
    assert list(banded(pd.Series([10, 5])).cat.categories) == ["5", "10"]  # numbers in their order
    assert banded(pd.Series(["red", None, "codel"])).isna().tolist() == [False, True, False]
    close = pd.Series([1 + i * 1e-9 for i in range(8)])
    assert banded(close).nunique() == 4


def test_a_split_by_setting_leaves_settings_out() -> None:
    data = of(grid())
    rate = {run: int(run.split("-")[0]) for run in data.runs}
    for seed in range(5):
        training, testing = data.split(0.3, seed, [])
        settings = settings_of_runs(data.flows)
        assert not {settings[r] for r in training} & {settings[r] for r in testing}
        assert sorted(training + testing) == data.runs and len(testing) >= 0.3 * len(data.runs)
        training, testing = data.split(0.2, seed, ["rate"])  # by quartile
        low, high = min(rate[r] for r in testing), max(rate[r] for r in testing)
        assert high - low == 2 and not {rate[r] for r in training} & {low, low + 1, high}
        training, testing = data.split(0.9, seed, ["aqm"])
        assert {r.split("-")[1] for r in training} ^ {r.split("-")[1] for r in testing} == {"codel", "red"}
        training, testing = data.split(0.3, seed)
        assert len(testing) == 22  # by run
        few = of(grid().query("cca != 'bbr' or rate < 3"))
        training, testing = few.split(0.5, seed, ccas=["bbr"])
        assert len(training) == len(testing) == 6 and {rate[r] for r in training + testing} == {1, 2}
    with pytest.raises(ParameterError, match=r"split_by: 'raet' is not a setting .* did you mean 'rate'"):
        data.split(0.3, 0, ["raet"])
    with pytest.raises(ParameterError, match="all runs have the same aqm"):
        of(grid().assign(aqm="red")).split(0.3, 0, ["aqm"])


def test_a_repetition_has_the_settings_of_what_it_repeats() -> None:
    bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("reno", rtt_ms=20)], duration_s=1)
    rows = [
        {"run": f"{number}", **changes, "base_rtt_ms": one.flows[0].rtt_ms}
        for number, (changes, one) in enumerate(
            cct.sweep(scenario, {"flows.0.rtt_ms": [20, 20.1], "repetition": [0, 1, 2]})
        )
    ]
    flows = pd.DataFrame(rows)
    assert flows["base_rtt_ms"].nunique() == 6
    keys = list(settings_of_runs(flows).values())
    assert len(set(keys[:3])) == len(set(keys[3:])) == 1 and keys[0] != keys[3]
    training, testing = of(flows).split(0.3, 0, [])
    assert len(training) == len(testing) == 3


# ---- several datasets ------------------------------------------------------------------------------------------------


def saved(folder: Path, *runs: tuple[str, str, float]) -> Path:
    """A dataset of runs with a name, a congestion control and a share of the packets of an example."""
    for name, cca, share in runs:
        slots = cct.identify.record(cct.example(cca)).slots
        slots = slots.iloc[: int(share * len(slots))]
        flows = pd.DataFrame({"flow_id": [0], "cca": [cca]})
        save_recording(folder, Recording(name, slots, flows), {"made_by": "captures", "captures": ["x.pcap"]})
    index_dataset(folder, {}, 1.0)
    return folder


def test_runs_are_what_was_recorded_not_their_names(tmp_path: Path) -> None:
    mine = saved(tmp_path / "a" / "mine", ("first", "cubic", 1), ("own", "cubic", 0.8))
    other = saved(tmp_path / "b" / "mine", ("first", "bbr", 1))
    copy = Path(shutil.copytree(mine, tmp_path / "copy"))
    assert SlotDataset(copy).contents() == SlotDataset(mine).contents()

    both = Datasets([mine, other])
    assert both.runs == ["a/mine/first", "b/mine/first", "own"] and set(both.digests()) == {
        "a/mine",
        "b/mine",
    }
    by_run = both.flows.set_index("run")["cca"].to_dict()
    assert by_run == {"a/mine/first": "cubic", "b/mine/first": "bbr", "own": "cubic"}
    windows = both.cut(["b/mine/first", "own"], 500, "throughput", per_flow=2)
    assert windows.table.groupby("run")["cca"].first().to_dict() == {"b/mine/first": "bbr", "own": "cubic"}

    once = Datasets([mine, copy, mine])
    assert once.runs == ["first", "own"] and len(once.flows) == 2 and set(once.parts) == {"mine", "copy"}
    assert len(once.cut(once.runs, 500, "throughput", per_flow=2)) == 4
    assert len(Datasets([copy, other]).runs) == 3


# ---- what a model has seen -------------------------------------------------------------------------------------------


def test_training_data_of_a_model_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = of(grid())
    training = [run for run in data.runs if run.endswith("-1") and "red" in run]
    model = SimpleNamespace(folder=tmp_path, name="mine")
    assert trained_runs(model) is None and trained_settings(model) == set()
    write_split(tmp_path, data.flows, training, ["1-codel-1"])
    assert trained_runs(model) == set(training) and len(trained_settings(model)) == 12
    rest = unseen_runs(model, data)
    assert set(rest) == set(data.runs) - set(training)
    assert "left out 12 of 72 runs" in capsys.readouterr().err
    assert note_settings(data, rest, trained_settings(model)) == 24
    assert "24 of 60 test runs have settings seen in training" in capsys.readouterr().err
    assert note_settings(data, [run for run in rest if "codel" in run], trained_settings(model)) == 0
    assert note_trained_before(model, data, ["1-red-1", "2-red-2"]) == 1
    capsys.readouterr()

    write_split(tmp_path, data.flows, training, ["1-codel-1"], contents=data.contents)
    assert seen_runs(model, data) == training
    renamed = of(grid().assign(run=lambda flows: "theirs/" + flows["run"]))
    listed = pd.DataFrame({"run": training, "part": "train"})
    (tmp_path / "by-name").mkdir()
    listed.to_csv(tmp_path / "by-name" / SPLIT, index=False)
    by_name = SimpleNamespace(folder=tmp_path / "by-name", name="older")
    assert seen_runs(by_name, renamed) == [f"theirs/{run}" for run in training]
    assert seen_runs(model, renamed) == []  # neither the names nor what was recorded
    renamed.contents = {f"theirs/{run}": content for run, content in data.contents.items()}
    assert seen_runs(model, renamed) == [f"theirs/{run}" for run in training]
    other = of(grid())
    other.contents = dict.fromkeys(other.runs, "something else")
    assert seen_runs(model, other) == [] and unseen_runs(model, other) == other.runs
    assert capsys.readouterr().err == ""

    (tmp_path / "on").mkdir()  # another one, that goes on from it
    testing = ["1-red-1", "3-codel-1"]
    write_split(tmp_path / "on", data.flows, ["2-codel-1"], testing, contents=data.contents, before=model)
    on = SimpleNamespace(folder=tmp_path / "on", name="on")
    assert trained_runs(on) == {*training, "2-codel-1"} and len(trained_settings(on)) == 13
    listed = pd.read_csv(tmp_path / "on" / SPLIT)
    assert set(listed["run"][listed["part"] == "test"]) == {"1-codel-1", "3-codel-1"}

    (tmp_path / SPLIT).write_text("run,part\na,train\nb,test\n")  # of an earlier version
    assert trained_runs(model) == {"a"} and trained_settings(model) == set()
    (tmp_path / SPLIT).write_text("name\na\n")
    with pytest.raises(SchemaError, match="not a table of run and part"):
        trained_runs(model)


@pytest.mark.parametrize("name", sorted(bundled_models()))
def test_bundled_models_say_what_they_were_trained_on(name: str) -> None:
    trained = trained_runs(load(name))
    assert trained is not None and len(trained) > 200
    assert not any(run.startswith(("hard-test-", "elsewhere-")) for run in trained)
    for settings in ("paper-1-", "every-cca-1-"):  # each fourth run is for testing
        assert not any(
            int(run.removeprefix(settings)) % 4 == 3 for run in trained if run.startswith(settings)
        )
    drawn = "every-cca" if name == "every-cca" else "paper"
    scenarios, _ = jobs(drawn, runs=3)
    assert {scenario.name for _, scenario in scenarios} <= trained


# ---- evaluations -----------------------------------------------------------------------------------------------------


def answered_windows() -> dict[float, Windows]:
    """Right where the rate is high; an unknown class, always given a name."""
    table = grid().assign(window_ms=100.0, first_slot=0)
    y = table["cca"].where(table["seed"] != 3, "mine").to_numpy(object)
    table["said"] = np.where((table["rate"] > 6) | (table["cca"] == "bbr"), table["cca"], "bbr")
    table["probability"] = np.where(table["rate"] > 6, 0.95, 0.55)
    nothing = np.zeros((len(table), 0, 1), np.float32)
    return {100.0: Windows(nothing, y, table, ("in_bytes",))}


def test_scores_by_setting() -> None:
    found = answered_windows()
    known = {ms: windows.take(windows.y != "mine") for ms, windows in found.items()}
    table = by_setting(known).set_index(["setting", "value"])
    assert list(table.loc["rate"].index) == ["1 to 3", "4 to 6", "7 to 9", "10 to 12"]
    assert table.loc["rate"]["f1"].tolist() == pytest.approx([1 / 3, 1 / 3, 1, 1])
    assert set(table.loc["aqm"].index) == {"codel", "red"} and (table["runs"] > 0).all()
    assert by_setting({100.0: known[100.0].take(known[100.0].table["rate"] == 1).of(aqm="red")}).empty


def test_reliability_counts_names_of_classes_that_a_model_lacks_as_wrong() -> None:
    bins = reliability_of(answered_windows()).set_index("bin")
    assert bins["right"].to_dict() == pytest.approx({5: 1 / 3, 9: 2 / 3})
    assert bins["windows"].sum() == 144


def test_an_evaluation_is_a_folder(tmp_path: Path) -> None:
    found = answered_windows()
    model = SimpleNamespace(classes_=np.array(["bbr", "reno"], object))
    scores = pd.DataFrame({"window_ms": [100.0], "f1": [0.5]})
    write_evaluation(tmp_path / "new", model, scores, found, {"model": "mine"})
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(FILES)
    confused = pd.read_csv(tmp_path / "new" / "confusion.csv").set_index("is")
    assert confused.loc["reno", ["bbr", "reno"]].tolist() == [24, 24] and confused.loc["bbr", "reno"] == 0
    windows = pd.read_parquet(tmp_path / "new" / "windows.parquet")
    assert len(windows) == 144 and windows["right"].sum() == (windows["cca"] == windows["said"]).sum() == 72
    about = json.loads((tmp_path / "new" / "evaluation.json").read_text())
    assert about["ece"] == pytest.approx(((0.55 - 1 / 3) + (0.95 - 2 / 3)) / 2)
    for name in ("confusion", "reliability", "settings"):
        assert "Plotly.newPlot" in (tmp_path / "new" / f"{name}.html").read_text(encoding="utf-8")


# ---- congestion controls in files ------------------------------------------------------------------------------------

MINE = """
from cctoolkit.cca import Cca

class Leakage_One(Cca):
    def on_ack(p, s, stats, flow, ack, now_ns):
        flow.cwnd += 1

class Leakage_Two(Leakage_One):
    pass
"""


def test_a_file_of_congestion_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "leakage_ccas.py"
    file.write_text(MINE)
    try:
        assert names_of_file(f"{file}:Leakage_Two") == ["leakage_two"]
        assert names_of_file(str(file)) == ["leakage_one", "leakage_two"] == own_ccas()[-2:]
        assert names_of_file("reno") is None and names_of_file("linux:mine") is None
        scenarios, _ = jobs("every-cca", runs=2, ccas=("leakage_one", "reno"))
        assert {flow.cca.name for _, scenario in scenarios for flow in scenario.flows} <= {
            "leakage_one",
            "reno",
        }
        with pytest.raises(ParameterError, match="has no class 'Leakage_To'; did you mean 'Leakage_Two'"):
            names_of_file(f"{file}:Leakage_To")
        (tmp_path / "queue.py").write_text("raise ImportError('not the one of Python')\n")
        code = "import queue, multiprocessing.queues; from leakage_ccas import Leakage_One"
        subprocess.run(
            [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path}; {code}"], check=True
        )
        with pytest.raises(ParameterError, match="a module 'queue' is loaded already; rename"):
            names_of_file(str(tmp_path / "queue.py"))
        (tmp_path / "turtledemo.py").write_text(MINE)
        with pytest.raises(ParameterError, match="there is another module 'turtledemo'; rename"):
            names_of_file(str(tmp_path / "turtledemo.py"))
        (tmp_path / "else").mkdir()
        other = Path(shutil.copy(file, tmp_path / "else"))
        with pytest.raises(ParameterError, match="a module 'leakage_ccas' is loaded already"):
            names_of_file(str(other))
    finally:
        for name in ("leakage_one", "leakage_two"):
            Cca.registry.pop(name, None)
        sys.modules.pop("leakage_ccas", None)
    scenarios, _ = jobs("world", runs=1, on="uml", ccas=("linux:mine", "reno"))
    assert scenarios[0][1].flows[0].cca.name == "linux:mine"


@pytest.mark.parametrize(
    "text, message",
    [
        ("def f(:\n", "line 1: SyntaxError"),
        ("x = 1\ny = 1 / 0\n", "line 2: ZeroDivisionError: division by zero"),
        ("x = 1\n", "defines no class derived from cctoolkit.cca.Cca"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        ("x = 1\0\n", "leakage_nothing.py: SyntaxError"),
        ("f = lambda: f()\nf()\n", "line 1: RecursionError"),
        ("raise ValueError('a\\nb' * 1000)\n", "line 1: ValueError: a"),
        ("raise ValueError\n", "line 1: ValueError: without a text"),
        (None, "no such file"),
    ],
)
def test_files_that_define_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, message: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "leakage_nothing.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ParameterError, match=r"ccas: leakage_nothing\.py") as refused:
        names_of_file(str(file))
    sys.modules.pop("leakage_nothing", None)
    assert message in str(refused.value) and "\n" not in str(refused.value) and len(str(refused.value)) < 400
