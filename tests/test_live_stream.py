"""Live without a kernel: rows as they become known, the choice of flows, the dry run and the command."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from rich.console import Console
from test_limits import nearer_to_the_receiver, simulated
from tools import examples, mostly_slow
from typer.testing import CliRunner

import cctoolkit as cct
from cctoolkit import cli, schema
from cctoolkit.analysis.slots import CELL
from cctoolkit.errors import ParameterError
from cctoolkit.identify.live import CaptureCollector, FlowKey, SlotStream, Update, watch
from cctoolkit.identify.live.naming import Naming
from cctoolkit.identify.live.screen import _screen, follow
from cctoolkit.identify.live.selection import FlowSelection

TRACES = Path(__file__).parents[1] / "traces"
BEFORE, AFTER = TRACES / "cubic-bbr.ingress.pcap.gz", TRACES / "cubic-bbr.egress.pcap.gz"
CUBIC = FlowKey("10.1.0.10", 40000, "10.3.0.10", 5001)
BBR = FlowKey("10.1.0.11", 40001, "10.3.0.11", 5001)
NOT_LIVE = ["drops_estimate"]


def acknowledged(slot: int, end: int, acked: int) -> np.ndarray:
    """Of flow 0, without data."""
    cell = cells([(0, slot, -1, 0)])
    cell["packets"], cell["end"], cell["acked"] = 0, end, acked
    return cell


def cells(rows: list[tuple[int, int, int, int]]) -> np.ndarray:
    """Of (flow, slot, first sequence number, bytes)."""
    made = np.zeros(len(rows), CELL)
    for cell, (flow, slot, seq, size) in zip(made, rows, strict=True):
        cell["way"], cell["slot"], cell["first_seq"], cell["bytes"], cell["packets"] = (
            2 * flow,
            slot,
            seq + 1,
            size,
            1,
        )
        cell["source_gap"] = cell["arrival_gap"] = -(2**63)
    return made


def stream(**changes: Any) -> SlotStream:
    made = SlotStream(100, 1_000_000, **{"has_egress": True, "sampled": False, "patience_ms": 20, **changes})
    made.begin(0, 100)
    return made


def replayed(
    period_ms: float, sampling: str, fill: str, taps: tuple[Path, ...] = (BEFORE, AFTER), **options: Any
) -> pd.DataFrame:
    with CaptureCollector(*taps, slot_ms=5, sampling=sampling) as collector:
        updates = list(
            watch(
                collector,
                flows=[CUBIC, BBR],
                heavy=0,
                period_ms=period_ms,
                fill=fill,
                patience_ms=60_000,
                **options,
            )
        )
    table = pd.concat([update.slots for update in updates], ignore_index=True)
    assert updates[-1].counts["late_cells"] == 0
    assert len(updates) > 1
    return table.sort_values(["flow_id", "slot"], kind="stable", ignore_index=True)


# ---- rows as they become known ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", ["backward", "interpolate"])
@pytest.mark.parametrize("sampling", ["all", "first"])
@pytest.mark.parametrize("period_ms", mostly_slow([100, 7.3, 1700], {100}))
def test_pieces_make_the_table_of_the_whole(period_ms: float, sampling: str, fill: str) -> None:
    pieces = replayed(period_ms, sampling, fill)
    whole = cct.compute_slots(
        cct.read_capture(BEFORE), cct.read_capture(AFTER), slot_ms=5, sampling=sampling, fill=fill
    )
    begun = {flow: pieces.slot[pieces.flow_id == flow].min() for flow in (0, 1)}
    # A flow is watched from the slot after the first on.
    last = {flow: pieces.slot[pieces.flow_id == flow].max() for flow in (0, 1)}
    rows = [begun[f] <= s <= last[f] for f, s in zip(whole.flow_id, whole.slot, strict=True)]
    assert sum(rows) == len(pieces) > 3000
    columns = [name for name in schema.SLOTS if name not in NOT_LIVE]
    whole = whole[rows].reset_index(drop=True)
    for name in (
        "in_bytes",
        "in_packets",
        "out_bytes",
        "out_packets",
    ):  # at a capture's end live has no tap's end
        inside = whole[name].notna()
        assert inside.mean() > (0.9 if sampling == "all" else -1)
        pd.testing.assert_series_equal(pieces[name][inside], whole[name][inside])
        columns.remove(name)
    pd.testing.assert_frame_equal(pieces[columns], whole[columns])
    assert pieces[NOT_LIVE].isna().all().all()


def test_one_tap() -> None:
    pieces = replayed(100, "all", "backward", (BEFORE,))
    whole = cct.compute_slots(cct.read_capture(BEFORE), slot_ms=5).set_index(["flow_id", "slot"])
    pieces = pieces.set_index(["flow_id", "slot"])
    assert pieces.cbiq_bytes.isna().all()
    assert pieces.out_bytes.isna().all()
    pd.testing.assert_series_equal(pieces.throughput_bytes, whole.throughput_bytes.reindex(pieces.index))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=40),
    st.lists(st.integers(1, 45), max_size=8),
    st.sampled_from(["backward", "interpolate"]),
)
def test_cuts_do_not_matter(events: list[tuple[int, int]], cuts: list[int], fill: str) -> None:
    """Of data at one tap and the other, and of acknowledgements."""
    sent, left, acked = 0, 0, 0
    taps: list[list[np.ndarray]] = [[cells([])], [cells([])]]
    for slot, what in sorted(events):
        if what == 1:
            taps[1].append(cells([(0, 100 + slot, left, 10)]))
            left += 10
            continue
        if what == 0:
            cell = cells([(0, 100 + slot, sent, 10)])
            sent += 10
        elif acked < sent:
            acked += 5
            cell = acknowledged(100 + slot, 0, 0)
        else:
            continue
        cell["end"], cell["acked"] = 2**32 + sent, 2**32 + acked if acked else 0
        taps[0].append(cell)
    came, went = (np.concatenate(tap) for tap in taps)
    tables = []
    for ends in ([], sorted(set(cuts))):
        one, parts, at = stream(fill=fill, patience_ms=10_000), [], 0
        for end in [100 + end for end in ends]:
            parts.append(
                one.update(*(tap[(tap["slot"] >= at) & (tap["slot"] < end)] for tap in (came, went)), end)
            )
            at = end
        parts.append(one.update(*(tap[tap["slot"] >= at] for tap in (came, went)), 1000, ended=[0]))
        tables.append(pd.concat(parts, ignore_index=True))
        assert one.late_cells == 0
    pd.testing.assert_frame_equal(*tables)
    known = tables[0].bytes_in_flight.dropna()
    assert (len(known) > 0) == (acked > 0)
    assert not acked or known.iloc[-1] == sent - acked


def test_a_row_waits_for_the_other_tap_until_patience_is_over() -> None:
    one = stream()
    came = one.update(
        cells([(0, 100, 0, 10), (0, 101, 10, 10), (0, 103, 20, 10)]), cells([(0, 101, 0, 10)]), 104
    )
    assert came.slot.tolist() == [0]
    assert came.cbiq_bytes.tolist() == [10]
    nothing = one.update(cells([]), cells([]), 115)
    assert len(nothing) == 0
    given_up = one.update(cells([]), cells([]), 122)
    assert given_up.slot.tolist() == [1]  # 2 and 3 wait
    assert given_up.cbiq_bytes.isna().all()
    assert given_up.throughput_bytes.tolist() == [10]
    late = one.update(cells([]), cells([(0, 101, 10, 10), (0, 104, 20, 10)]), 123)
    assert one.late_cells == 1
    assert late.slot.tolist() == [2]


def test_bytes_in_flight_go_on_where_rows_were_given() -> None:
    one = stream(has_egress=False)
    begin = cells([(0, 100, 0, 30), (0, 101, 30, 10)])
    begin["end"] = 5030, 5040
    unknown = one.update(begin, cells([]), 102)
    assert unknown.slot.tolist() == [0]
    assert unknown.bytes_in_flight.isna().all()
    parts = [
        one.update(acknowledged(103, 5040, 5010), cells([]), 104),
        one.update(cells([]), cells([]), 106),
        one.update(cells([]), cells([]), 130),
    ]
    again = cells([(0, 132, 40, 10), (0, 133, 50, 10)])
    again["end"], again["acked"] = (5050, 5060), 5010
    parts += [one.update(again, cells([]), 134), one.update(cells([]), cells([]), 134, ended=[0])]
    table = pd.concat(parts, ignore_index=True).set_index("slot")
    assert table.index.tolist() == list(
        range(1, 34)
    )  # until 3 patience was over, then data said what was before them
    assert table.bytes_in_flight[1:2].isna().all()
    assert (table.bytes_in_flight.loc[3:31] == 30).all()
    assert table.bytes_in_flight.loc[32:].tolist() == [40, 50]
    assert len(one.update(cells([]), cells([]), 140)) == 0


def test_cells_of_slots_that_go_on_wait() -> None:
    one = stream(has_egress=False)
    first = one.update(cells([(0, 100, 0, 10), (0, 102, 10, 10)]), cells([]), 102)
    second = one.update(cells([(0, 102, 20, 10), (0, 103, 30, 10)]), cells([]), 104)
    assert len(first) == 0
    assert second.in_bytes.tolist() == [10, 0, 20]
    assert second.throughput_bytes.tolist() == [10, 0, 20]


# ---- the choice of flows ---------------------------------------------------------------------------------------------


def key(number: int) -> FlowKey:
    return FlowKey("10.0.0.1", number, "10.0.0.2", 80)


def test_heavy_flows_take_the_places_there_are() -> None:
    chosen = FlowSelection([key(0)], heavy=2, idle_s=5)
    assert chosen.first() == [key(0)]
    assert chosen.update([(key(0), 99), (key(1), 10), (key(2), 30), (key(3), 20)], 0) == (
        [key(2), key(3)],
        [],
    )
    assert chosen.update([(key(2), 30), (key(3), 20), (key(4), 40)], 1) == (
        [],
        [],
    )  # not more than twice as much
    assert chosen.update([(key(2), 30), (key(3), 20), (key(4), 41)], 1) == ([key(4)], [key(3)])
    chosen.note_packet(key(4), 6)
    assert chosen.update([], 6.5) == ([], [key(2)])
    assert FlowSelection(heavy=0).update([(key(1), 10)], 0) == ([], [])


def test_flows_come_and_go_in_a_dry_run() -> None:
    with CaptureCollector(BEFORE, AFTER) as collector:
        reports = [
            update
            for update in watch(collector, heavy=1, idle_s=1, heavy_mbps=0.5)
            if update.flows is not None
        ]
    monitored = {
        tuple(row) for update in reports for row in update.flows[["flow_id", "sport"]].itertuples(index=False)
    }
    assert {sport for _, sport in monitored} == {40000, 40001}  # BBR takes CUBIC's place
    assert all(len(update.flows) <= 1 for update in reports)
    assert len({flow for flow, _ in monitored}) == len(monitored)  # a number stands for one flow
    rates = pd.concat([update.flows for update in reports]).query("sport == 40001 and age_s > 2")
    assert rates.in_mbps.median() == pytest.approx(6.7, abs=0.5)


class Teller:
    """Says what it was shown."""

    def __init__(self) -> None:
        self.shown: list[pd.DataFrame] = []

    def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
        schema.check(slots, "slots")
        assert slots.attrs["slot_ms"] == 1
        self.shown.append(slots)
        flows = slots.flow_id.unique()
        return pd.DataFrame({"flow_id": flows, "cca": [f"cca{f}" for f in flows], "probability": 0.5})


def test_the_classifier_sees_the_last_seconds() -> None:
    teller = Teller()
    with CaptureCollector(BEFORE, AFTER) as collector:
        reports = [
            u.flows
            for u in watch(collector, flows=[CUBIC, BBR], classifier=teller, history_s=3)
            if u.flows is not None
        ]
    assert len(teller.shown) >= 10
    for slots in teller.shown:
        for _, flow in slots.groupby("flow_id"):
            assert len(flow) <= 3000
            assert (np.diff(flow.slot) == 1).all()
    assert (
        max(len(slots) for slots in teller.shown) == 6000
    )  # whole histories, though a row is known after its time
    assert reports[-1].cca.tolist() == ["cca0", "cca1"]
    assert reports[-1].probability.tolist() == [0.5, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize("before_ms", [50, 90])
def test_a_flow_has_the_same_name_all_along_its_path(before_ms: int) -> None:
    """A router in the middle knows by TCP timestamps how far the sender is."""
    run = simulated(
        cct.Flow("cubic", rtt_ms=100), cct.Flow("reno", rtt_ms=100, start_s=0.3), buffer_packets=60
    )
    keys = [FlowKey(f"10.1.0.{i}", 10_000 + i - 1, f"10.2.0.{i}", 5001) for i in (1, 2)]
    found = []
    for tap in (run.ingress, nearer_to_the_receiver(run.ingress, before_ms)):
        with CaptureCollector(tap) as collector:
            updates = watch(collector, flows=keys, heavy=0, classifier=cct.identify.load("cca"), report_s=6)
            reports = [update.flows for update in updates if update.flows is not None]
            for to_receiver, to_sender in collector.rtts().values():
                assert to_receiver + to_sender == pytest.approx(100e6, rel=0.02)
        found.append([(report.cca.tolist(), report.limited_by.tolist()) for report in reports[1:]])
    assert found[0] == found[1] and "cubic" in found[0][0][0]


def test_rows_before_a_gap_are_not_shown_to_the_classifier() -> None:
    slots = cct.compute_slots(*map(cct.read_capture, (BEFORE, AFTER)))
    teller = Teller()
    naming = Naming(teller, 1_000_000, history_s=3)
    slots = slots[(slots.slot < 3000) & ~slots.slot.between(1000, 1009)]
    slots.attrs["slot_ms"] = 1.0
    naming.keep(slots)
    naming.names(3000)
    ((shown),) = teller.shown
    assert shown.slot.min() == 1010 and shown.slot.max() == 2999


def test_wrong_arguments() -> None:
    with CaptureCollector(BEFORE) as collector:
        with pytest.raises(ParameterError, match="period_ms"):
            next(watch(collector, period_ms=0))
        for mbps in (0.0, 1e308, float("nan")):
            with pytest.raises(ParameterError, match="heavy_mbps"):
                next(watch(collector, heavy_mbps=mbps))
        with pytest.raises(ParameterError, match="fill"):
            next(watch(collector, fill="forward"))
        with pytest.raises(ParameterError, match="no such flow"):
            next(watch(collector, flows=[key(1)]))


# ---- the command -----------------------------------------------------------------------------------------------------

DRY = ["live", "--from-capture", str(BEFORE), "--from-capture", str(AFTER), "--no-classify"]


def test_command_prints_and_writes(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, [*DRY, "-o", str(tmp_path / "slots.parquet")])
    assert done.exit_code == 0, done.output
    assert "10.1.0.11 40001" in done.output
    assert "Mbit/s" in done.output
    assert "packets in" in done.output
    slots, provenance = schema.read_parquet(tmp_path / "slots.parquet", "slots")
    assert set(slots.flow_id) == {0, 1}
    assert provenance["capture"].startswith(str(BEFORE))
    lines = CliRunner().invoke(cli.app, [*DRY, "-f", "jsonl", "--duration", "3"]).output.splitlines()
    assert {json.loads(line)["sport"] for line in lines} == {40000}
    assert json.loads(lines[-1])["in_mbps"] > 1
    assert 5e3 < json.loads(lines[-1])["bytes_in_flight"] < 5e5


def test_sampling_warns_that_nothing_will_be_named(capfd: pytest.CaptureFixture[str]) -> None:
    class Counting(Teller):
        inputs = ("in_bytes", "cbiq_bytes")

    for sampling, classifier, warned in (
        ("first", Counting(), True),
        ("all", Counting(), False),
        ("first", None, False),
    ):
        collector = functools.partial(CaptureCollector, BEFORE, slot_ms=1.0, sampling=sampling)
        follow(collector, [], None, None, classifier, {}, duration_s=1)
        assert ("nothing will be named" in capfd.readouterr().err) == warned


def test_a_probability_is_of_a_name() -> None:
    flow = {
        "flow_id": 0,
        **CUBIC._asdict(),
        "age_s": 2.0,
        "in_mbps": 1.0,
        "out_mbps": np.nan,
        "cbiq_bytes": np.nan,
    }
    flows = pd.DataFrame(
        [
            {
                **flow,
                "bytes_in_flight": 14480.0,
                "cca": cca,
                "probability": 0.4 if cca else np.nan,
                "limited_by": limit,
            }
            for cca, limit in (
                ("reno", "bottleneck"),
                ("unknown", "unknown"),
                ("unknown", "application"),
                (None, None),
            )
        ]
    )
    counts: dict[str, Any] = {"ingress": {"packets": 5}, "egress": {"packets": 0}, "late_cells": 0}
    text = io.StringIO()
    Console(file=text, width=110).print(_screen(Update(0, pd.DataFrame(), flows, counts, 0.0), 2.0))
    assert text.getvalue().count("40 %") == 1 and text.getvalue().count("unknown") == 1
    assert text.getvalue().count("14.5 kB") == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["live"], "give --ingress"),
        ([*DRY, "--flow", "10.0.0.1-10.0.0.2"], "is not SRC:PORT-DST:PORT"),
        ([*DRY, "--flow", "[fd00::1]:1-[fd00::2]:2"], "fd00::1 1 fd00::2 2: no such flow"),
        ([*DRY, "-f", "csv"], "format: csv"),
        ([*DRY, "--sampling", "some"], "sampling"),
    ],
)
def test_command_says_what_is_wrong(options: list[str], message: str) -> None:
    done = CliRunner().invoke(cli.app, options)
    assert done.exit_code == 1
    assert message in str(done.exception)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path, number: int) -> None:
    path = tmp_path / "slots.csv"
    command = [sys.executable, "-m", "cctoolkit.cli", *DRY, "--speed", "1", "-f", "jsonl", "-o", str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(number)
    assert process.wait(120) == 0
    process.stdout.close()
    assert len(pd.read_csv(path)) > 100


@pytest.mark.parametrize("speed", [0.0, 1e-300, float("inf"), float("nan")])
def test_a_speed_is_a_number(speed: float) -> None:
    with pytest.raises(ParameterError, match="speed"):
        CaptureCollector(BEFORE, speed=speed)
