"""Datasets: what a recording keeps of a run, and builds that go on where they were interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit import schema
from cctoolkit.errors import ParameterError, SchemaError
from cctoolkit.identify import Recording, SlotDataset, build_dataset, cut_windows, dataset, record

TRACES = Path(__file__).parents[1] / "traces"


def scenario(name: str, *ccas: str, seed: int = 1) -> cct.Scenario:
    return cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=20, buffer_packets=60),
        flows=[cct.Flow(cca, rtt_ms=20) for cca in ccas or ("reno", "bbr")],
        duration_s=2,
        seed=seed,
        name=name,
    )


SCENARIOS = [({"rtt_ms": 20.0, "aqm": f"aqm-{i}"}, scenario(f"run-{i}", seed=i)) for i in range(3)]


class Interrupted(Exception):
    pass


@pytest.fixture
def here(monkeypatch):
    """Builds run in this process, which spares the start of others; `stop_after` so many runs."""

    class Here:
        stop_after = 1000
        ran = 0

        def __call__(self, function, jobs, workers):
            for number, job in enumerate(jobs):
                if self.ran == self.stop_after:
                    raise Interrupted
                function(*job)
                self.ran += 1
                yield number, self

        def result(self):
            return None

    runner = Here()
    monkeypatch.setattr(dataset, "in_processes", runner)
    return runner


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


# ---- one run ---------------------------------------------------------------------------------------------------------


def test_a_bundled_trace_and_its_captures_are_one_recording():
    run = cct.load_run(TRACES / "cubic-bbr")
    recording = record(run, facts={"where": "a desk"})
    assert recording.name == "cubic-bbr" and recording.slot_ms == 1
    assert list(recording.flows.cca) == ["cubic", "bbr"] and set(recording.flows["where"]) == {"a desk"}
    assert list(recording.flows.base_rtt_ms) == [30, 30]
    pd.testing.assert_frame_equal(recording.slots, cct.compute_slots(run.ingress, run.egress))
    labels = run.labels[["flow_id", "cca"]]
    by_hand = record(run.ingress, run.egress, labels, name="mine")
    pd.testing.assert_frame_equal(by_hand.slots, recording.slots)
    assert by_hand.name == "mine" and list(by_hand.flows.columns) == ["flow_id", "cca"]
    one_tap = record(run.ingress, labels=labels)
    assert one_tap.slots.cbiq_bytes.isna().all() and one_tap.slots.bytes_in_flight.notna().any()
    assert one_tap.name == "capture"


def test_only_flows_asked_for_and_other_slots():
    run = cct.simulate(scenario("three", "reno", "bbr", "cubic"), record=True)
    recording = record(run, flow_ids=[2, 0], slot_ms=10, sampling=0.5, seed=3)
    assert list(recording.flows.flow_id) == [0, 2] and set(recording.slots.flow_id) == {0, 2}
    assert recording.slot_ms == 10
    expected = cct.compute_slots(run.ingress, run.egress, slot_ms=10, sampling=0.5, seed=3, flow_ids=[0, 2])
    pd.testing.assert_frame_equal(recording.slots, expected)
    assert recording.slots.in_bytes.isna().all()  # a sample is no count


def test_flows_without_a_congestion_control_are_left_out():
    run = cct.simulate(
        cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=20, buffer_packets=60),
            flows=[cct.Flow("udp", rate_mbps=1), cct.Flow("reno", rtt_ms=20)],
            duration_s=1,
        ),
        record=True,
    )
    recording = record(run)
    assert list(recording.flows.cca) == ["reno"]
    assert set(recording.slots.flow_id) == set(recording.flows.flow_id)
    with pytest.raises(ParameterError, match="no flow is labelled"):
        record(run, labels=run.labels.assign(cca=["udp", None]))
    with pytest.raises(ParameterError, match="no flow is labelled"):
        record(run, flow_ids=[77])


def test_runs_and_captures_without_what_is_needed_are_refused():
    silent = cct.simulate(scenario("silent"), record=False)
    with pytest.raises(ParameterError, match=r"silent: .*taps were not recorded"):
        record(silent)
    run = cct.load_run(TRACES / "reno")
    with pytest.raises(ParameterError, match=r"labels: .*flow_id and cca"):
        record(run.ingress, run.egress)
    with pytest.raises(ParameterError, match="labels: column 'cca' is missing"):
        record(run.ingress, run.egress, run.labels[["flow_id"]])


# ---- builds ----------------------------------------------------------------------------------------------------------


def test_a_build_has_what_its_runs_had(here, tmp_path):
    built = build_dataset(SCENARIOS[:2], tmp_path / "d", progress=False)
    assert built.runs == ["run-0", "run-1"] and len(built) == 2 and built.slot_ms == 1
    assert list(built.flows.columns)[:3] == ["run", "flow_id", "cca"]
    assert list(built.flows.cca) == ["reno", "bbr"] * 2
    assert list(built.flows.aqm) == ["aqm-0"] * 2 + ["aqm-1"] * 2 and set(built.flows.rtt_ms) == {20}
    assert repr(built) == "<SlotDataset d: 2 runs, 4 flows (2 reno, 2 bbr)>"
    for (_, made), recording in zip(SCENARIOS, built, strict=False):
        run = cct.simulate(made, record=True)
        assert isinstance(recording, Recording) and recording.name == made.name
        whole, _ = schema.read_parquet(tmp_path / "d" / "slots" / f"{made.name}.parquet", "slots")
        pd.testing.assert_frame_equal(whole, cct.compute_slots(run.ingress, run.egress))
        assert list(recording.flows.bytes_acked) == list(run.labels.bytes_acked)
        some = next(built.where([made.name]).recordings(["cbiq_bytes"]))
        assert list(some.slots) == ["flow_id", "slot", "cbiq_bytes"]
        np.testing.assert_array_equal(
            some.slots.cbiq_bytes, whole.cbiq_bytes.to_numpy(float, na_value=np.nan)
        )
    windows = cut_windows(built, 500)
    direct = cut_windows([record(cct.simulate(made, record=True)) for _, made in SCENARIOS[:2]], 500)
    np.testing.assert_array_equal(windows.X, direct.X)
    assert list(windows.groups) == ["run-0", "run-0", "run-1", "run-1"] and "aqm" in windows.table


def test_a_build_says_what_made_it(here, tmp_path):
    build_dataset(SCENARIOS[:1], tmp_path, progress=False, special=1, background=0)
    about = json.loads((tmp_path / "dataset.json").read_text())
    assert about == {
        "version": 1, "cctoolkit": cct.__version__, "slot_ms": 1.0, "on": "simulator", "offload": False, "special": 1,
        "background": 0,
    }  # fmt: skip
    _, provenance = schema.read_parquet(tmp_path / "slots" / "run-0.parquet", "slots")
    assert provenance["seed"] == 0 and provenance["version"] == cct.__version__ and provenance["made_by"]
    (tmp_path / "again.toml").write_text(provenance["scenario"])
    assert cct.scenario.read_scenario(tmp_path / "again.toml") == SCENARIOS[0][1]
    assert list(SlotDataset(tmp_path).flows.cca) == ["reno"]  # the special flow alone


def test_an_interrupted_build_goes_on(here, tmp_path):
    whole = build_dataset(SCENARIOS, tmp_path / "whole", progress=False)
    here.ran, here.stop_after = 0, 1
    with pytest.raises(Interrupted):
        build_dataset(SCENARIOS, tmp_path / "part", progress=False)
    done = tmp_path / "part" / "slots" / "run-0.parquet"
    before = done.stat().st_mtime_ns
    with pytest.raises(SchemaError, match=r"holds no dataset of slots \(no readable dataset\.json\)"):
        SlotDataset(tmp_path / "part")
    # a worker that was killed between a run's two files has left the first
    (tmp_path / "part" / "slots" / "run-1.parquet").write_bytes(b"half")
    here.stop_after = 1000
    part = build_dataset(SCENARIOS, tmp_path / "part", progress=False)
    assert here.ran == 1 + 2 and done.stat().st_mtime_ns == before
    assert files(tmp_path / "part") == files(tmp_path / "whole")
    pd.testing.assert_frame_equal(part.flows, whole.flows)
    build_dataset(SCENARIOS, tmp_path / "part", progress=False)
    assert here.ran == 3  # nothing was left to do


def test_a_dataset_grows(here, tmp_path):
    build_dataset(SCENARIOS[:1], tmp_path, progress=False)
    grown = build_dataset(SCENARIOS[1:], tmp_path, progress=False)
    assert here.ran == 3 and grown.runs == ["run-0", "run-1", "run-2"]
    with pytest.raises(ParameterError, match=r"slot_ms: .* was built with slot_ms 1.0, not 10"):
        build_dataset(SCENARIOS, tmp_path, progress=False, slot_ms=10)
    assert SlotDataset(tmp_path).slot_ms == 1


def test_runs_of_something_else_are_not_taken_for_ones_own(here, tmp_path):
    build_dataset(SCENARIOS[:2], tmp_path, progress=False, special=1, background=0)
    before = files(tmp_path)
    same = {"special": 1, "background": 0}
    (changes, made), other = (
        SCENARIOS[0],
        r"scenarios: .* has a run run-0 of another scenario",
    )
    slower = made.replace({"bottleneck.rate_mbps": 10})
    for scenarios, options, message in [
        ([(changes, made.replace({"seed": 9}))], same, other),
        ([SCENARIOS[1], (changes, slower)], same, other),
        (SCENARIOS[:1], same | {"special": 2}, "special: .* built with special 1, not 2"),
        (SCENARIOS, same | {"background": 9}, "background: .* built with background 0, not 9"),
        (SCENARIOS[2:], same | {"on": "uml"}, "on: .* was built with on simulator, not uml"),
        (SCENARIOS, same | {"offload": True}, "offload: the simulator has no segmentation offload"),
    ]:
        for indexed in (True, False):  # an interrupted build has no index
            if not indexed:
                (tmp_path / "dataset.json").unlink()
            with pytest.raises(ParameterError, match=message):
                build_dataset(scenarios, tmp_path, progress=False, **options)
            (tmp_path / "dataset.json").write_bytes(before["dataset.json"])
    assert files(tmp_path) == before and here.ran == 2


def test_folders_of_earlier_versions_are_read_and_grow_where_they_name_their_scenarios(here, tmp_path):
    def strip(*left_out: str) -> None:
        """The provenance of runs without these entries."""
        for path in (tmp_path / "slots").glob("*.parquet"):
            table, metadata = schema.read_parquet(path, "slots")
            schema.write_parquet(
                table, path, "slots", {k: v for k, v in metadata.items() if k not in left_out}
            )

    build_dataset(SCENARIOS[:2], tmp_path, progress=False)
    strip("offload")
    with pytest.raises(ParameterError, match=r"offload: .* was built with offload False, not True"):
        dataset._check_same(tmp_path, {}, {"offload": True})
    strip("on", "special", "background", "slot_ms")
    assert build_dataset(SCENARIOS, tmp_path, progress=False).runs == ["run-0", "run-1", "run-2"]
    assert here.ran == 3
    strip("scenario")
    assert SlotDataset(tmp_path).runs == ["run-0", "run-1", "run-2"]
    assert cut_windows(SlotDataset(tmp_path), 100).window_ms == 100
    with pytest.raises(ParameterError, match="has a run run-0 of another scenario"):
        build_dataset(SCENARIOS, tmp_path, progress=False)
    (tmp_path / "slots" / "run-2.parquet").write_bytes(b"no Parquet")
    with pytest.raises(SchemaError, match=r"run-2\.parquet: not a readable Parquet file"):
        build_dataset([({}, scenario("run-3"))], tmp_path, progress=False)


def test_ones_own_captures_are_not_in_the_way(here, tmp_path):
    dataset.save_recording(tmp_path, record(cct.load_run(TRACES / "reno")), {"made_by": "captures"})
    assert build_dataset(SCENARIOS[:1], tmp_path, progress=False).runs == ["reno", "run-0"]
    with pytest.raises(ParameterError, match="has a run reno of another scenario"):
        build_dataset([({}, scenario("reno"))], tmp_path, progress=False)


def test_scenarios_with_one_name_are_refused_and_those_without_have_their_number(here, tmp_path):
    with pytest.raises(ParameterError, match="scenarios: two "):
        build_dataset([SCENARIOS[0], SCENARIOS[0]], tmp_path)
    unnamed = build_dataset([({}, scenario(""))], tmp_path, progress=False)
    assert unnamed.runs == ["run-00000"]


def test_what_goes_wrong_says_in_which_run(monkeypatch, tmp_path):
    def fail(*_):
        raise ParameterError("flows: too many")

    class Future:
        def result(self):
            fail()

    def in_order(function, jobs, workers):
        yield from ((number, Future()) for number, _ in enumerate(jobs))

    monkeypatch.setattr(dataset, "in_processes", in_order)
    with pytest.raises(ParameterError, match="run-0: flows: too many"):
        build_dataset(SCENARIOS, tmp_path, progress=False)


def test_special_flows_are_kept_and_some_of_the_others():
    assert dataset._kept(2, 3, 9, 0) == [0, 1]
    assert dataset._kept(12, 3, 9, 0) == list(range(12))
    drawn = [dataset._kept(78, 3, 9, run) for run in range(30)]
    for kept in drawn:
        assert (
            kept[:3] == [0, 1, 2]
            and len(kept) == 12 == len(set(kept))
            and kept == sorted(kept)
            and kept[-1] < 78
        )
    assert len({tuple(kept) for kept in drawn}) > 25
    assert drawn[7] == dataset._kept(78, 3, 9, 7)


def test_parts_of_a_dataset(here, tmp_path):
    built = build_dataset(SCENARIOS, tmp_path, progress=False)
    bbr = built.where("cca == 'bbr' and aqm != 'aqm-1'")
    assert bbr.runs == ["run-0", "run-2"] and set(bbr.flows.cca) == {"bbr"}
    assert [(r.name, list(r.flows.cca)) for r in bbr] == [("run-0", ["bbr"]), ("run-2", ["bbr"])]
    assert set(cut_windows(bbr, 100).y) == {"bbr"}
    assert built.where(["run-1", "another"]).runs == ["run-1"]
    assert len(built.where("rtt_ms > 1000")) == 0 and len(built) == 3
    for wrong in ("rtt > 3", "cca ==", "cca > 3"):
        with pytest.raises(ParameterError, match=f"which: '{wrong}': .*; columns are run, flow_id, cca"):
            built.where(wrong)


def test_other_folders_and_other_versions_are_refused(tmp_path):
    for content in (None, "", "no JSON", "[]", "{}"):
        if content is not None:
            (tmp_path / "dataset.json").write_text(content)
        with pytest.raises(SchemaError, match="holds no dataset of slots"):
            SlotDataset(tmp_path)
    (tmp_path / "dataset.json").write_text('{"version": 99}')
    with pytest.raises(SchemaError, match="version 99"):
        SlotDataset(tmp_path)
    (tmp_path / "dataset.json").write_text('{"version": 1, "slot_ms": 1.0}')
    with pytest.raises(SchemaError, match=r"flows\.parquet"):
        SlotDataset(tmp_path)
    with pytest.raises(ParameterError, match="no recordings"):
        build_dataset([], tmp_path / "new", progress=False)


@pytest.mark.slow
def test_workers_and_captures_change_nothing(here, monkeypatch, tmp_path):
    build_dataset(SCENARIOS, tmp_path / "here", progress=False)
    monkeypatch.undo()
    build_dataset(SCENARIOS, tmp_path / "workers", workers=2, progress=False, keep_captures=True)
    captures = files(tmp_path / "workers" / "captures")
    assert sum("ingress" in name for name in captures) >= 3
    run = cct.load_run(tmp_path / "workers" / "captures" / "run-1")
    assert run.scenario == SCENARIOS[1][1]
    without = {name: c for name, c in files(tmp_path / "workers").items() if not name.startswith("captures")}
    assert without == files(tmp_path / "here")


@pytest.mark.slow
def test_a_wrong_scenario_in_a_worker_is_named(tmp_path):
    wrong = scenario("wrong", "bbr", "lp")  # the simulator has no TCP-LP
    with pytest.raises(ParameterError, match=r"^wrong: "):
        build_dataset([SCENARIOS[0], ({}, wrong)], tmp_path, workers=1, progress=False)
    assert build_dataset(SCENARIOS[:1], tmp_path, progress=False).runs == ["run-0"]


@pytest.mark.slow
@pytest.mark.uml
def test_the_kernel_gives_the_same_slots_twice(here, tmp_path):
    uml_kernel()
    runs = [({"rtt_ms": 20}, scenario("kernel", "reno", "bbr"))]
    first = build_dataset(runs, tmp_path / "a", on="uml", progress=False)
    second = build_dataset(runs, tmp_path / "b", on="uml", progress=False)
    (a,), (b,) = first, second
    pd.testing.assert_frame_equal(a.slots, b.slots)
    assert list(a.flows.cca) == ["reno", "bbr"] and (a.flows.bytes_acked > 1e5).all()
    assert a.slots.cbiq_bytes.max() > 10_000
    assert not (tmp_path / "a" / "captures" / "kernel").exists()
    assert first.about["on"] == "uml"
