"""Per-slot inputs: the paper's Table I, the naive twin, closed forms, wraps, corners and batches."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import naive_slots
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from tools import examples

import cctoolkit as cct
from cctoolkit import schema
from cctoolkit.analysis.slots import SlotTable, compute_slots
from cctoolkit.capture.keys import CaptureMeta, FlowKeys
from cctoolkit.capture.model import Capture
from cctoolkit.errors import ParameterError, SchemaError

MS = 1_000_000
VALUES = [name for name in schema.SLOTS if name not in ("flow_id", "slot")]


def packets(
    rows: list[dict[str, Any]] | list[tuple[int, int, int]], **everywhere: Any
) -> dict[str, np.ndarray]:
    """The packets table as arrays; a row is a dict of columns, or time in ms, sequence number and length."""
    columns = {name: np.zeros(len(rows), dtype) for name, dtype in schema.PACKETS.items()}
    columns["tcp_flags"][:] = 16
    for name, value in everywhere.items():
        columns[name][:] = value
    for i, row in enumerate(rows):
        if isinstance(row, tuple):
            row = {"ts_ns": round(row[0] * MS), "seq": row[1] % 2**32, "payload_bytes": row[2]}
        for name, value in row.items():
            columns[name][i] = value
    return columns


def listed(column: pd.Series) -> list[int | None]:
    return [None if pd.isna(x) else int(x) for x in column]


# --- Table I of the paper -----------------------------------------------------------------------------------

INGRESS = [(101, 1600, 100), (101, 1700, 200), (102, 1900, 100), (102, 2000, 100), (102, 2100, 100)]
INGRESS += [(103, 2200, 100), (103, 2300, 100), (105, 2400, 100), (106, 2500, 100), (106, 2600, 100)]
EGRESS = [(102, 1300, 100), (102, 1400, 200), (103, 1600, 100), (103, 1700, 200)]
EGRESS += [(104, 1900, 100), (106, 2000, 100), (106, 2100, 100)]
# The printed bold face is lost in the text that is to be had; these are the packets whose numbers Table Ib shows.
SAMPLED_IN = [(101, 1700, 200), (102, 2000, 100), (103, 2300, 100), (106, 2600, 100)]
SAMPLED_OUT = [(102, 1300, 100), (103, 1700, 200), (106, 2100, 100)]


def test_table_1_without_sampling():
    table = compute_slots(packets(INGRESS), packets(EGRESS), slot_ms=1)
    assert listed(table.slot) == [0, 1, 2, 3, 4, 5]  # the paper's 101 to 106
    assert listed(table.cbiq_bytes)[:5] == [600, 600, 500, 400, 500]
    # InThr(t) = InSeq(t+1) - InSeq(t) from Table Ia. The column is damaged in print: only slot 101's 300 is left.
    assert listed(table.throughput_bytes) == [300, 300, 200, 0, 100, None]
    assert listed(table.in_bytes) == [300, 300, 200, 0, 100, 200]
    assert listed(table.in_seq) == [1600, 1900, 2200, None, 2400, 2500]
    assert listed(table.out_seq) == [None, 1300, 1600, 1900, None, 2000]


def test_table_1_with_sampling_and_interpolation():
    table = compute_slots(packets(SAMPLED_IN), packets(SAMPLED_OUT), slot_ms=1, fill="interpolate")
    assert listed(table.cbiq_bytes)[:5] == [700, 600, 567, 533, 500]
    assert listed(table.throughput_bytes) == [300, 300, 100, 100, 100, None]
    # As printed: 300, 100, 100, 100 and "?" for slots 101 to 105, which is InSeq(t+2) - InSeq(t+1), a slot early.
    assert listed(table.throughput_bytes)[1:] == [300, 100, 100, 100, None]


def test_table_1_first_packet_sampling_changes_nothing_that_it_says():
    whole = compute_slots(packets(INGRESS), packets(EGRESS))
    first = compute_slots(packets(INGRESS), packets(EGRESS), sampling="first")
    for name in "in_seq", "out_seq", "cbiq_bytes", "throughput_bytes":
        pd.testing.assert_series_equal(whole[name], first[name])
    for name in "in_bytes", "out_packets", "drops_estimate", "bytes_in_flight":
        assert first[name].isna().all()


# --- the naive twin -------------------------------------------------------------------------------------------

NEAR_WRAP = 2**32 - 350


@st.composite
def tap_pairs(draw: st.DrawFn, steps: bool = False) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Anything that two taps may see: losses, retransmissions, reordering, strangers, a wrap, cut headers, both ways.

    With `steps` the ingress tap's clock is set back now and then, so that rows are not in order of their stamps.
    """
    packet = st.fixed_dictionaries(
        {
            "flow_id": st.sampled_from([0, 1, 7]),
            "direction": st.sampled_from([0, 0, 0, 1]),
            "seq": st.integers(0, 9).map(lambda k: (NEAR_WRAP + 100 * k) % 2**32),
            "ack": st.integers(0, 9).map(lambda k: (NEAR_WRAP + 100 * k) % 2**32),
            "tcp_flags": st.sampled_from(
                [16, 16, 16, 24, 0, 2, 18, 20, 16 + 64, 16 + 128, 18 + 64, 16 + 256]
            ),
            "payload_bytes": st.sampled_from([0, 100, 100, 200]),
            "ecn": st.sampled_from([0, 2, 3]),
            "tsval": st.sampled_from([0, 2**32 - 1, 5, 9]),
            "has_ts": st.booleans(),
        }
    )
    gap = st.sampled_from([0, 1, 400_000, MS, 3 * MS])
    step = st.sampled_from([0, 0, -300_000, -2 * MS, -50 * MS] if steps else [0])
    rows = draw(st.lists(packet, max_size=25))
    now = draw(st.sampled_from([0, 5, 1_700_000_000 * 1000 * MS]))
    for row in rows:
        now = max(now + draw(gap) + draw(step), 0)
        row["ts_ns"] = now
    left = []
    for row in rows:
        if draw(st.integers(0, 3)):
            left.append({**row, "ts_ns": row["ts_ns"] + draw(st.sampled_from([0, 100_000, 2 * MS, 5 * MS]))})
    if draw(st.booleans()):
        left += [{**row, "ts_ns": rows[0]["ts_ns"]} for row in draw(st.lists(packet, max_size=3)) if rows]
    left.sort(key=lambda row: row["ts_ns"])
    for row in draw(st.sampled_from([[], [], rows, left])):
        row["tsval"] = 0  # cut off by a snap length
    return packets(rows), packets(left)


def cut(columns: Mapping[str, np.ndarray], at: list[int]) -> list[dict[str, np.ndarray]]:
    edges = [0, *sorted(min(a, len(columns["ts_ns"])) for a in at), len(columns["ts_ns"])]
    return [{n: c[a:b] for n, c in columns.items()} for a, b in itertools.pairwise(edges)]


@settings(max_examples=examples(400), deadline=None)
@given(
    tap_pairs(),
    st.booleans(),
    st.sampled_from([1.0, 0.5, 2.5]),
    st.sampled_from(["all", "all", "first", 0.6]),
    st.sampled_from(["backward", "interpolate"]),
    st.lists(st.integers(0, 25), min_size=2, max_size=2),
    st.lists(st.integers(0, 25), min_size=2, max_size=2),
)
def test_same_as_the_naive_twin_however_it_is_cut(pair, two_taps, slot_ms, sampling, fill, cut_in, cut_out):
    ingress, egress = pair[0], pair[1] if two_taps else None
    whole = compute_slots(
        ingress, egress, slot_ms=slot_ms, sampling=sampling, fill=fill, seed=3, check_taps=False
    )
    schema.check(whole, "slots")
    expected = naive_slots.slots(ingress, egress, slot_ms, sampling, fill, seed=3)
    found = [
        {name: None if pd.isna(v) else int(v) for name, v in row.items()} for row in whole.to_dict("records")
    ]
    assert found == [{name: row[name] for name in whole.columns} for row in expected]

    table = SlotTable(slot_ms, sampling, fill, seed=3, check_taps=False)
    parts_out = cut(egress, cut_out) if egress is not None else [None] * 3
    for part_in, part_out in zip(cut(ingress, cut_in), parts_out, strict=True):
        table.update(part_in, part_out)
    pd.testing.assert_frame_equal(table.result(), whole)
    pd.testing.assert_frame_equal(table.result(), whole)  # asking changes nothing


@settings(max_examples=examples(200), deadline=None)
@given(tap_pairs(steps=True), st.lists(st.integers(0, 25), min_size=2, max_size=2))
def test_a_clock_that_is_set_back_makes_no_negative_gap(pair, at):
    ingress = pair[0]
    whole = compute_slots(ingress)
    assert (whole.max_arrival_gap_ns.dropna() >= 0).all()
    expected = naive_slots.slots(ingress, None, 1.0, "all", "backward", seed=0)
    assert listed(whole.max_arrival_gap_ns) == [row["max_arrival_gap_ns"] for row in expected]
    table = SlotTable()
    for part in cut(ingress, at):
        table.update(part)
    pd.testing.assert_frame_equal(table.result(), whole)


# --- closed forms ---------------------------------------------------------------------------------------------


def constant_rate(
    first_seq: int, n: int, every_us: int, start_us: int = 0, **more: Any
) -> dict[str, np.ndarray]:
    k = np.arange(n)
    rows = packets([{}] * n, payload_bytes=1000, **more)
    rows["ts_ns"] = 1000 * (start_us + k * every_us)
    rows["seq"] = ((first_seq + 1000 * k) % 2**32).astype(np.uint32)
    return rows


@pytest.mark.parametrize("first_seq", [0, 2**32 - 250_500])
@pytest.mark.parametrize("fill", ["backward", "interpolate"])
def test_a_queue_fed_twice_as_fast_as_it_drains(first_seq, fill):
    """In 4 packets a ms, out 2 a ms: the queue grows by 2000 bytes a slot, across the wrap as well."""
    table = compute_slots(constant_rate(first_seq, 400, 250), constant_rate(first_seq, 400, 500), fill=fill)
    cbiq = table.cbiq_bytes[:99]
    assert listed(cbiq) == [2000 * (t + 1) for t in range(99)]
    assert set(listed(table.throughput_bytes[:99])) == {4000}
    assert listed(table.in_packets[:100]) == [4] * 100
    assert listed(table.out_packets) == [2] * 200
    assert table.cbiq_bytes[99:].isna().all()  # nothing arrives any more, so nothing says
    assert set(listed(table.drops_estimate[:100])) == {0}
    assert table.max_arrival_gap_ns[1:100].eq(250_000).all()


def test_drops_are_counted_in_the_slot_of_arrival():
    ingress = constant_rate(0, 100, 100)  # 10 packets a slot
    keep = np.ones(100, bool)
    keep[[13, 14, 15, 27, 50]] = False
    egress = {n: c[keep] for n, c in ingress.items()} | {"ts_ns": ingress["ts_ns"][keep] + 3 * MS}
    table = compute_slots(ingress, egress)
    assert listed(table.drops_estimate[:10]) == [0, 3, 1, 0, 0, 1, 0, 0, 0, 0]
    assert table.drops_estimate[10:].isna().all()


def test_a_tail_drop_counts_only_once_the_egress_has_gone_on_for_long():
    ingress = constant_rate(0, 20, 100)
    egress = {n: c[:18] for n, c in ingress.items()}
    assert listed(compute_slots(ingress, egress).drops_estimate) == [0, None]
    later = packets([{"ts_ns": 12_000 * MS, "flow_id": 9, "payload_bytes": 1}])
    egress = {n: np.concatenate([egress[n], later[n]]) for n in egress}
    assert listed(compute_slots(ingress, egress).drops_estimate) == [0, 2]


def test_bytes_in_flight_from_one_tap():
    rows = [
        {"ts_ns": 0, "tcp_flags": 2, "seq": 2**32 - 1001},
        {"ts_ns": 100, "direction": 1, "tcp_flags": 18, "ack": 2**32 - 1000},
        {"ts_ns": 1 * MS, "seq": 2**32 - 1000, "payload_bytes": 1000},
        {"ts_ns": 1 * MS, "seq": 0, "payload_bytes": 1000},
        {"ts_ns": 3 * MS, "direction": 1, "ack": 0},
        {"ts_ns": 4 * MS, "seq": 2**32 - 1000, "payload_bytes": 1000},  # again: nothing new is in flight
        {"ts_ns": 5 * MS, "direction": 1, "ack": 1000},
    ]
    table = compute_slots(packets(rows))
    assert listed(table.slot) == [1, 2, 3, 4, 5]
    assert listed(table.bytes_in_flight) == [2000, 2000, 1000, 1000, 0]
    assert (
        table[["out_bytes", "out_packets", "out_seq", "cbiq_bytes", "drops_estimate"]].isna().all(axis=None)
    )


def test_source_gap_across_the_wrap_of_the_clock():
    rows = [{"ts_ns": k * MS, "payload_bytes": 10, "seq": 10 * k, "has_ts": True} for k in range(3)]
    rows[0]["tsval"], rows[1]["tsval"], rows[2]["tsval"] = 2**32 - 2, 3, 1
    assert listed(compute_slots(packets(rows)).max_source_gap) == [None, 5, -2]


# --- sampling -------------------------------------------------------------------------------------------------


def test_random_sampling_keeps_that_share_and_repeats_with_its_seed():
    ingress = constant_rate(0, 20_000, 1000)
    kept = [compute_slots(ingress, sampling=0.3, seed=s).in_seq.notna().sum() for s in (1, 1, 2)]
    assert kept[0] == kept[1] != kept[2]
    assert abs(kept[0] - 6000) < 5 * np.sqrt(20_000 * 0.3 * 0.7)
    pd.testing.assert_frame_equal(compute_slots(ingress, sampling=1.0), compute_slots(ingress))


def test_interpolation_of_a_random_sample_of_a_constant_rate_is_exact():
    ingress = constant_rate(2**32 - 5_000_000, 10_000, 1000)
    table = compute_slots(ingress, sampling=0.2, fill="interpolate", seed=5)
    assert set(listed(table.throughput_bytes.dropna())) == {1000}
    assert len(table) > 9900


# --- flows and taps -------------------------------------------------------------------------------------------


def test_which_flows_and_which_direction():
    down = constant_rate(0, 5, 1000, flow_id=4, direction=1)
    up = packets([(0, 7, 10), (1, 17, 10)], flow_id=4)
    other = packets([(2, 0, 50)], flow_id=1_000_000)
    bare_acks = packets([(2, 0, 0)], flow_id=2)
    udp = packets([(2, 0, 50)], flow_id=3, tcp_flags=0)
    together = {n: np.concatenate([part[n] for part in (down, up, other, bare_acks, udp)]) for n in down}
    order = np.argsort(together["ts_ns"], kind="stable")
    together = {n: c[order] for n, c in together.items()}
    table = compute_slots(together)
    assert table.flow_id.value_counts().to_dict() == {4: 5, 1_000_000: 1}
    assert listed(table.in_bytes[:5]) == [1000] * 5
    assert listed(table.flow_id[table.slot == 2]) == [4, 1_000_000]
    for chosen in 1_000_000, [1_000_000, 3, 99_999_999]:
        only = compute_slots(together, together, flow_ids=chosen)
        assert listed(only.flow_id) == [1_000_000]
        assert listed(only.slot) == [2]  # still counted from the capture's first packet


def test_flows_that_are_not_wanted_cost_no_memory():
    """Of a capture of four million flows two are wanted: one from its start on, and the last."""
    last = 4_000_000
    rows = []
    for at, newest in enumerate([6, 1_000_000, 2_000_000, last]):
        data = {"flow_id": 5, "seq": 10 * at, "payload_bytes": 10}
        ack = {"flow_id": 5, "direction": 1, "ack": 10 * at}
        news = {"flow_id": newest, "seq": 0, "payload_bytes": 50}
        rows += [{"ts_ns": at * MS} | row for row in (data, ack, news)]
    stream = packets(rows)
    expected = compute_slots(stream, flow_ids=[5, last])  # compiles, too
    table = SlotTable(flow_ids=[5, last])
    before = resident_bytes()
    for part in cut(stream, [3, 6, 9]):
        table.update(part)
    result = table.result()
    assert resident_bytes() - before < 50_000_000  # of 800 MB if all had states
    assert listed(result.bytes_in_flight) == [10, 10, 10, 10, None]
    assert listed(result.flow_id) == [5, 5, 5, 5, last]
    pd.testing.assert_frame_equal(result, expected)


def resident_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_a_flow_that_never_leaves_has_no_egress_columns():
    ingress = packets([(0, 0, 10), (1, 10, 10)])
    egress = packets([(0, 0, 10), (2, 10, 10)], flow_id=5)
    with pytest.raises(ParameterError, match="no packet in common"):
        compute_slots(ingress, egress)
    table = compute_slots(ingress, egress, check_taps=False)
    assert listed(table.flow_id) == [0, 0]
    assert (
        table[["out_bytes", "out_packets", "out_seq", "cbiq_bytes", "drops_estimate"]].isna().all(axis=None)
    )


def capture(columns: dict[str, np.ndarray], flows: dict[int, tuple[int, int, int, int]]) -> Capture:
    """`flows`: source address, source port, destination address, destination port by number."""
    ids = sorted(flows)
    n = len(ids)
    src, dst = np.zeros((2, n, 16), np.uint8)
    src[:, 3] = [flows[f][0] for f in ids]
    dst[:, 3] = [flows[f][2] for f in ids]
    keys = FlowKeys(
        flow_id=np.array(ids, np.uint32),
        ip_version=np.full(n, 4, np.uint8),
        protocol=np.full(n, 6, np.uint8),
        sport=np.array([flows[f][1] for f in ids], np.uint16),
        dport=np.array([flows[f][3] for f in ids], np.uint16),
        src=src,
        dst=dst,
        saw_syn=np.zeros(n, np.bool_),
        mss=np.zeros((n, 2), np.uint16),
        window_scale=np.full((n, 2), 255, np.uint8),
        sack_permitted=np.zeros((n, 2), np.bool_),
    )
    return Capture(columns, keys, CaptureMeta("made by a test"))


def test_flows_of_two_captures_are_matched_by_5_tuple():
    """Other numbers, an initiator that the taps see differently, a 5-tuple used twice, a flow only one tap has."""
    ingress = packets(
        [
            {"ts_ns": 0, "flow_id": 0, "seq": 0, "payload_bytes": 10},
            {"ts_ns": 1 * MS, "flow_id": 1, "seq": 500, "payload_bytes": 10},
            {"ts_ns": 9 * MS, "flow_id": 2, "seq": 7000, "payload_bytes": 10},
            {"ts_ns": 10 * MS, "flow_id": 2, "seq": 7010, "payload_bytes": 10},
        ]
    )
    who = (1, 1000, 2, 80)
    before = capture(ingress, {0: who, 1: (3, 1000, 2, 80), 2: who})
    egress = packets(
        [
            {"ts_ns": 1 * MS, "flow_id": 6, "seq": 0, "payload_bytes": 10},
            {"ts_ns": 2 * MS, "flow_id": 3, "seq": 500, "payload_bytes": 10, "direction": 1},
            {"ts_ns": 3 * MS, "flow_id": 5, "seq": 1, "payload_bytes": 10},
            {"ts_ns": 11 * MS, "flow_id": 9, "seq": 7000, "payload_bytes": 10},
            {"ts_ns": 12 * MS, "flow_id": 9, "seq": 7010, "payload_bytes": 10},
        ]
    )
    after = capture(egress, {6: who, 3: (2, 80, 3, 1000), 5: (9, 9, 9, 9), 9: who})
    table = compute_slots(before, after)
    expected = {0: [0], 1: [500], 2: [7000, 7010]}
    for flow, seqs in expected.items():
        assert [s for s in listed(table.out_seq[table.flow_id == flow]) if s is not None] == seqs
    for row in ingress, egress:
        row["ts_ns"] += MS
    earlier = packets(
        [{"ts_ns": 0, "flow_id": 6, "seq": 90, "payload_bytes": 10}]
    )  # before the other tap started
    after.columns = {n: np.concatenate([earlier[n], c]) for n, c in egress.items()}
    again = compute_slots(before, after)
    assert listed(again.slot) == [slot + 1 for slot in listed(table.slot)]
    pd.testing.assert_series_equal(again.out_seq, table.out_seq)
    table = again

    in_batches = SlotTable()
    half = 10 * MS
    for early in True, False:
        parts = []
        for cap in before, after:
            keep = (cap.columns["ts_ns"] < half) == early
            part = {n: c[keep] for n, c in cap.columns.items()}
            parts.append(Capture(part, cap.keys.take(np.isin(cap.keys.flow_id, part["flow_id"])), cap.meta))
        in_batches.update(*parts)
    pd.testing.assert_frame_equal(in_batches.result(), table)


# --- corners and bad arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize("egress", [None, packets([])])
def test_nothing_in_nothing_out(egress):
    table = compute_slots(packets([]), egress)
    assert len(table) == 0
    schema.check(table, "slots")
    assert list(table.columns) == list(schema.SLOTS)


def test_times_that_go_backward_are_counted_in_their_own_slots():
    ingress = packets([(0, 0, 10), (1, 10, 10), (0.5, 20, 10), (1.5, 30, 10)])
    table = compute_slots(ingress)
    assert listed(table.in_packets) == [2, 2]
    assert listed(table.in_seq) == [0, 10]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"slot_ms": 0}, "slot_ms"),
        ({"slot_ms": float("nan")}, "slot_ms"),
        ({"slot_ms": "1"}, None),
        ({"slot_ms": "x"}, "slot_ms"),
        ({"sampling": "last"}, "sampling"),
        ({"sampling": 0.0}, "sampling"),
        ({"sampling": 1.5}, "sampling"),
        ({"fill": "forward"}, "fill"),
        ({"flow_ids": [-1]}, "flow_ids"),
    ],
)
def test_bad_arguments_are_named(arguments, named):
    if named is None:
        compute_slots(packets(INGRESS), **arguments)
        return
    with pytest.raises(ParameterError, match=named):
        compute_slots(packets(INGRESS), **arguments)


def test_too_large_a_table_is_refused_with_its_size():
    ingress = packets([(0, 0, 10), (3_600_000 * 5, 10, 10)])
    with pytest.raises(ParameterError, match=r"1 flows make 18,000,001 rows \(2.9 GB\), more than max_rows"):
        compute_slots(ingress)
    assert len(compute_slots(ingress, slot_ms=1000)) == 18_001


def test_other_things_than_packets_are_refused():
    with pytest.raises(SchemaError, match="tsval"):
        compute_slots({n: c for n, c in packets([]).items() if n != "tsval"})
    table = SlotTable()
    table.update(packets(INGRESS))
    with pytest.raises(ParameterError, match="egress"):
        table.update(packets(INGRESS), packets(EGRESS))


@pytest.mark.slow
def test_a_data_frame_does_as_well():
    frames = [pd.DataFrame(packets(rows)) for rows in (INGRESS, EGRESS)]
    pd.testing.assert_frame_equal(compute_slots(*frames), compute_slots(packets(INGRESS), packets(EGRESS)))


def test_times_before_1970():
    """In batches, with a tap that ends first: what it did not see is unknown before 1970, too."""
    run = cct.example("cubic")
    whole = [dict(tap.columns) for tap in (run.ingress, run.egress)]
    whole[1] = {name: column[:6000] for name, column in whole[1].items()}
    expected = compute_slots(*whole, slot_ms=100)
    old = [columns | {"ts_ns": columns["ts_ns"] - 2 * 10**18} for columns in whole]
    table = SlotTable(slot_ms=100)
    for batches in zip(*(cut(columns, [2000, 4000]) for columns in old), strict=True):
        table.update(*batches)
    assert expected.out_bytes.isna().any()
    pd.testing.assert_frame_equal(table.result(), expected)
