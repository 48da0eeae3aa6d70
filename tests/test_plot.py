"""Figures say what the data say."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import naive_plot
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings, strategies as st

import cctoolkit as cct
from cctoolkit import plot, schema
from cctoolkit.analysis.metrics import flow_completion_times, jain_over_time, queue_delay, throughput as rates
from cctoolkit.analysis.rtt import rtt_samples
from cctoolkit.analysis.slots import compute_slots
from cctoolkit.capture.keys import CaptureMeta, FlowKeys
from cctoolkit.capture.model import Capture
from cctoolkit.errors import CCToolkitError, ParameterError, SchemaError
from cctoolkit.plot.rates import nice_bin_s
from cctoolkit.plot.sequence import sequence_of
from cctoolkit.plot.style import escape

TRACES = Path(__file__).parents[1] / "traces"


@pytest.fixture(scope="module")
def cap() -> Capture:
    return cct.read_capture(TRACES / "cubic-bbr.ingress.pcap.gz")


@pytest.fixture(scope="module")
def egress() -> Capture:
    return cct.read_capture(TRACES / "cubic-bbr.egress.pcap.gz")


@pytest.fixture(scope="module")
def samples(cap: Capture) -> pd.DataFrame:
    return rtt_samples(cap)


def big_flows(cap: Capture) -> list[int]:
    """The TCP flows with data in them, largest first."""
    flows = cap.flows.query("protocol == 6 and payload_fwd > 100_000").sort_values(
        "bytes_fwd", ascending=False
    )
    return flows.flow_id.tolist()


def traces(fig: go.Figure, name: str) -> list[go.Scatter]:
    return [trace for trace in fig.data if trace.name.startswith(name)]


def hand_made(packets: list[dict], scale: int = 255, sacks: list[tuple[int, int, int]] = ()) -> Capture:
    """A Capture of flows between 10.0.0.1:1000+id and 10.0.0.2:80."""
    columns = {
        name: np.array([packet.get(name, 0) for packet in packets], dtype)
        for name, dtype in schema.PACKETS.items()
    }
    ids = np.unique(columns["flow_id"])
    n = len(ids)
    address = np.zeros((n, 16), np.uint8)
    address[:, :4] = [10, 0, 0, 1]
    other = address.copy()
    other[:, 3] = 2
    keys = FlowKeys(
        flow_id=ids.astype(np.uint32),
        ip_version=np.full(n, 4, np.uint8),
        protocol=np.full(n, 6, np.uint8),
        sport=(1000 + ids).astype(np.uint16),
        dport=np.full(n, 80, np.uint16),
        src=address,
        dst=other,
        saw_syn=np.ones(n, bool),
        mss=np.zeros((n, 2), np.uint16),
        window_scale=np.full((n, 2), scale, np.uint8),
        sack_permitted=np.ones((n, 2), bool),
    )
    ts = columns["ts_ns"]
    meta = CaptureMeta(
        "hand.pcap", packets=len(ts), first_ts_ns=int(ts.min(initial=0)), last_ts_ns=int(ts.max(initial=0))
    )
    return Capture(columns, keys, meta, np.array(sacks, np.int64).reshape(-1, 3))


# --- thinning


numbers = st.one_of(st.floats(-1e9, 1e9), st.just(float("nan")), st.sampled_from([0.0, 1.0]))


@settings(deadline=None)  # the first call loads a compiled kernel
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), numbers, numbers), max_size=300),
    st.integers(8, 60),
    st.booleans(),
)
def test_thinning_is_its_twin_and_keeps_its_promises(rows: list, points: int, ordered: bool) -> None:
    if ordered:
        rows = sorted(rows, key=lambda row: row[0])
    x, *ys = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.empty(0),) * 3
    kept = plot.thin_rows(x, *ys, points=points)
    assert kept.tolist() == naive_plot.thin_rows(x.tolist(), [y.tolist() for y in ys], points)
    assert len(kept) <= max(points, 0)
    assert (np.diff(kept) > 0).all()
    for y in ys:
        if not np.isnan(y).all():
            assert np.nanmin(y[kept]) == np.nanmin(y)
            assert np.nanmax(y[kept]) == np.nanmax(y)
    if len(x):
        assert {0, len(x) - 1} <= set(kept.tolist()) or not ordered


@settings(deadline=None)  # the first call loads a compiled kernel
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=9, max_size=50))
def test_thinning_copes_with_any_finite_x(x: list[float]) -> None:
    kept = plot.thin_rows(np.array(x), np.arange(len(x)), points=8)
    assert 1 <= len(kept) <= 8
    assert {0, len(x) - 1} <= set(kept.tolist())


def test_thinning_uses_the_points_a_smooth_line_leaves() -> None:
    x = np.arange(100_000.0)
    few, _ = plot.thin(x, x, points=1000)
    assert 500 < few.size <= 1000


def test_thinning_keeps_wide_gaps() -> None:
    y = np.ones(10_000)
    y[4_000:6_000] = np.nan
    _, few = plot.thin(np.arange(10_000.0), y, points=100)
    assert np.isnan(few).any()


@pytest.mark.parametrize(
    ("x", "y", "points", "word"),
    [([1.0], [1.0], 3, "points"), ([1.0, 2.0], [1.0], 8, "2 values"), ([np.inf], [1.0], 8, "finite")],
)
def test_thinning_refuses(x: list, y: list, points: int, word: str) -> None:
    with pytest.raises(ParameterError, match=word):
        plot.thin_rows(np.array(x), np.array(y), points=points)


# --- throughput


def test_throughput_sums_to_the_bytes(cap: Capture) -> None:
    bin_s = 0.25
    fig = plot.throughput(cap, bin_s=bin_s)
    mbit = {trace.name: np.nansum(trace.y) * bin_s for trace in fig.data}
    assert mbit.pop("all packets") == pytest.approx(cap.columns["wire_bytes"].sum() * 8e-6)
    mbit.pop("Jain's index")
    flows = cap.flows.set_index("flow_id")
    names = plot.Names(cap)
    expected = {names.short(flow): flows.bytes_fwd[flow] * 8e-6 for flow in big_flows(cap)}
    assert mbit == pytest.approx(expected)  # and the neighbour solicitations are not among them


def test_throughput_is_binned_as_the_twin_does(cap: Capture) -> None:
    flow = big_flows(cap)[0]
    fig = plot.throughput(cap, bin_s=0.1, flows=[flow], between_s=(3.0, 5.0))
    of_flow = cap.columns["flow_id"] == flow
    mine = of_flow & (cap.columns["direction"] == 0)
    start = cap.meta.first_ts_ns
    bins = naive_plot.bytes_in_bins(
        list(zip(cap.columns["ts_ns"][mine].tolist(), cap.columns["wire_bytes"][mine].tolist(), strict=True)),
        start + 3 * 10**9,
        10**8,
        21,
    )
    trace = fig.data[1]
    assert trace.y.tolist() == pytest.approx([size * 8e-6 / 0.1 for size in bins])
    assert trace.x.tolist() == pytest.approx([3.05 + 0.1 * k for k in range(21)])
    assert fig.layout.xaxis.range == (3.0, 5.0)


def test_jain_counts_the_starved_and_not_the_absent() -> None:
    second = 10**9
    packets = [{"ts_ns": k * second, "flow_id": 1, "wire_bytes": 1000} for k in range(5)]
    packets += [{"ts_ns": k * second, "flow_id": 3, "wire_bytes": 1000} for k in (1, 3)]
    fig = plot.throughput(hand_made(sorted(packets, key=lambda p: p["ts_ns"])), bin_s=1)
    jain = traces(fig, "Jain")[0].y
    expected = [math.nan, 1, naive_plot.jain([1, 0]), 1, math.nan]
    np.testing.assert_allclose(jain, expected)
    starved = traces(fig, "3:")[0].y
    np.testing.assert_allclose(starved, [math.nan, 8, 0, 8, math.nan])  # kbit/s


def test_throughput_and_index_agree_with_the_metrics(cap: Capture) -> None:
    flows = big_flows(cap)
    fig = plot.throughput(cap, bin_s=0.2, flows=flows)
    index = jain_over_time(cap, 0.2, flows, of="throughput").jain_index
    np.testing.assert_allclose(traces(fig, "Jain")[0].y, index)
    table = rates(cap, bin_s=0.2, flow_ids=flows)
    for flow, trace in zip(flows, fig.data[1:], strict=False):
        mine = table[(table.flow_id == flow) & (table.direction == 0)]
        np.testing.assert_allclose(trace.y[~np.isnan(trace.y)], mine.throughput_mbps)


def test_throughput_of_one_flow_says_why_there_is_no_index(cap: Capture) -> None:
    fig = plot.throughput(cap, flows=big_flows(cap)[:1])
    assert "two flows" in fig.layout.annotations[0].text


def test_throughput_units_follow_the_rate() -> None:
    def axis(size: int) -> str:
        packets = [{"ts_ns": t, "flow_id": 0, "wire_bytes": size} for t in (0, 10**9)]
        return plot.throughput(hand_made(packets), bin_s=1).layout.yaxis.title.text

    assert [axis(size) for size in (100, 10**6, 10**9)] == [
        f"throughput ({unit})" for unit in ("kbit/s", "Mbit/s", "Gbit/s")
    ]


@pytest.mark.parametrize("duration", [0.0, 1e-9, 0.003, 1.0, 12.3, 900.0, 86_400.0])
def test_bins_are_round_and_few(duration: float) -> None:
    width = nice_bin_s(duration)
    assert duration / width <= 200 * (1 + 1e-9)
    assert f"{width:e}"[0] in "125"
    assert width == 1e-5 or duration / width > 200 / 2.6


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"bin_s": 0}, "bin_s"),
        ({"bin_s": -1}, "bin_s"),
        ({"bin_s": 1e-8}, "bins"),
        ({"flows": [12345]}, "12345"),
    ],
)
def test_throughput_refuses(cap: Capture, options: dict, word: str) -> None:
    with pytest.raises(ParameterError, match=word):
        plot.throughput(cap, **options)


def test_a_packets_table_will_do(cap: Capture) -> None:
    from_table, from_columns = plot.throughput(cap.packets), plot.throughput(cap.columns)
    assert from_table.to_dict() == from_columns.to_dict()
    assert from_table.data[1].name == f"flow {big_flows(cap)[0]}"
    with pytest.raises(CCToolkitError, match="packets"):
        plot.throughput("capture.pcap")


# --- round-trip times


def test_rtt_draws_the_samples_of_both_big_flows(cap: Capture, samples: pd.DataFrame) -> None:
    fig = plot.rtt(samples, cap, points=10**6)
    assert len(fig.data) == 2  # and not the two or three samples of the other side
    for flow, trace in zip(samples.flow_id.value_counts().index[:2], fig.data, strict=True):
        mine = samples[(samples.flow_id == flow) & (samples.direction == 0)]
        assert len(trace.y) == len(mine)
        np.testing.assert_allclose(np.sort(trace.y), np.sort(mine.rtt_ns / 1e6))
        np.testing.assert_allclose(trace.x, (mine.ts_ns - cap.meta.first_ts_ns) / 1e9)
        assert (np.diff(trace.x) >= 0).all()
        assert plot.Names(cap).long(flow) in trace.hovertemplate


@pytest.mark.parametrize(
    ("there", "drawn"),
    [
        ((0, 3), [1]),
        ((3, 0), [0]),
        ((100, 3), [0]),
        ((100, 6), [0, 1]),
        ((1000, 6), [0]),
        ((2, 3), [1]),
        ((9, 9), [0, 1]),
    ],
)
def test_sides_with_a_few_samples_are_left_out(there: tuple[int, int], drawn: list[int]) -> None:
    n = sum(there)
    table = pd.DataFrame(
        {"ts_ns": range(n), "flow_id": 0, "direction": [0] * there[0] + [1] * there[1], "rtt_ns": 5}
    )
    symbols = [trace.marker.symbol for trace in plot.rtt(table, points=10**6).data]
    assert symbols == [("circle", "circle-open")[side] for side in drawn]


def test_rtt_thinned_keeps_extremes(cap: Capture, samples: pd.DataFrame) -> None:
    fig = plot.rtt(samples, cap, points=200)
    drawn = np.concatenate([trace.y for trace in fig.data])
    assert len(drawn) <= 200
    forward = samples[samples.direction == 0].rtt_ns / 1e6
    assert drawn.max() == forward.max()
    assert drawn.min() == forward.min()


def test_rtt_between(cap: Capture, samples: pd.DataFrame) -> None:
    fig = plot.rtt(samples, cap, between_s=(4.0, 6.0))
    assert all(4 <= x <= 6 for trace in fig.data for x in trace.x)


def test_rtt_cdf_is_the_empirical_one(cap: Capture, samples: pd.DataFrame) -> None:
    fig = plot.rtt_cdf(samples, cap)
    everything = fig.data[0]
    assert everything.x[0] == samples.rtt_ns.min() / 1e6
    assert everything.x[-1] == samples.rtt_ns.max() / 1e6
    assert (everything.y[0], everything.y[-1]) == (0, 1)
    rtt_ms = samples.rtt_ns.to_numpy() / 1e6
    for x, share in zip(everything.x[1:], everything.y[1:], strict=True):  # ties: the highest step counts
        assert np.mean(rtt_ms < x) < share <= np.mean(rtt_ms <= x)


def test_rtt_axis_turns_logarithmic_when_it_must() -> None:
    def axis(rtt_ns: list[int], **options: bool) -> str:
        table = schema.empty("rtt_samples").reindex(range(len(rtt_ns)))
        table["rtt_ns"], table["flow_id"], table["direction"] = rtt_ns, 0, 0
        return plot.rtt_cdf(table, **options).layout.xaxis.type

    wide = [10**6, 10**9] * 10
    assert axis([10**6, 2 * 10**6]) == "linear"
    assert axis(wide) == "log"
    assert axis(wide, log_x=False) == "linear"


def test_completion_cdf_counts_the_complete_flows() -> None:
    mixed = flow_completion_times(cct.read_capture(TRACES / "mixed.egress.pcap.gz"))
    complete = np.sort(mixed.fct_s.dropna())
    assert len(complete) > 10
    trace = plot.completion_cdf(mixed).data[0]
    assert trace.x.tolist() == [complete[0], *complete]
    np.testing.assert_allclose(trace.y, np.arange(len(complete) + 1) / len(complete))
    half = mixed.copy()
    half.loc[::2, "fct_s"] = math.nan
    both = plot.completion_cdf({"<all>": mixed, "half": half})
    assert both.data[0].name == f"&lt;all&gt; ({len(complete)})"
    assert f", {half.fct_s.isna().sum()} incomplete left out" in both.data[1].name
    nothing = plot.completion_cdf(mixed[:0])
    assert "no flow" in nothing.layout.annotations[0].text


def test_no_samples_give_a_figure_that_says_so() -> None:
    for draw in (plot.rtt, plot.rtt_cdf):
        fig = draw(schema.empty("rtt_samples"))
        assert "no RTT samples" in fig.layout.annotations[0].text
    with pytest.raises(ParameterError, match="flow 5"):
        plot.rtt(schema.empty("rtt_samples"), flows=[5])


# --- sequence space


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[bool, int, int, int, int]]:
    """Segments and ACKs whose numbers move less than 2**31, from a start near the wrap, with noise."""
    base = draw(st.sampled_from([0, 1, 2**31, 2**32 - 3000, 2**32 - 1]))
    at = 0
    out = []
    for _ in range(draw(st.integers(1, 30))):
        kind = draw(st.sampled_from(["new", "new", "old", "ack", "rst", "jump"]))
        payload = draw(st.integers(0, 3000))
        flags = draw(st.sampled_from([0, 2, 16, 17, 18, 24]))
        if kind == "new":
            out.append((True, (base + at) % 2**32, 0, flags, payload))
            at += payload
        elif kind == "old":
            out.append((True, (base + at - draw(st.integers(0, 5000))) % 2**32, 0, flags, payload))
        elif kind == "ack":
            out.append((False, 0, (base + at - draw(st.integers(0, 5000))) % 2**32, flags, payload))
        elif kind == "rst":
            out.append((draw(st.booleans()), draw(st.integers(0, 2**32 - 1)), 0, 4, 0))
        else:
            at += 2**30
            out.append((True, (base + at) % 2**32, 0, flags, payload))
    return out


@settings(deadline=None)  # the first call loads a compiled kernel
@given(conversations())
def test_unwrapping_is_its_twin(packets: list[tuple[bool, int, int, int, int]]) -> None:
    cap = hand_made(
        [
            {
                "ts_ns": 10 * k,
                "direction": int(not forward),
                "seq": seq,
                "ack": ack,
                "tcp_flags": flags,
                "payload_bytes": payload,
            }
            for k, (forward, seq, ack, flags, payload) in enumerate(packets)
        ]
    )
    if not any(flags for _, _, _, flags, _ in packets):
        with pytest.raises(ParameterError, match="not TCP"):
            sequence_of(cap, 0, 0)
        return
    seq = sequence_of(cap, 0, 0)
    expected = [one for one, packet in zip(naive_plot.unwrap(packets), packets, strict=True) if packet[3]]
    used = seq.segment | seq.ack
    assert used.tolist() == [one is not None for one in expected]
    got = np.column_stack([seq.start, seq.end, seq.high, seq.acked])[used]
    assert got.tolist() == [list(one) for one in expected if one is not None]


def test_marked_segments_are_those_of_the_flows_table() -> None:
    seen = 0
    for name in ("cubic-bbr", "reno", "bufferbloat"):
        cap = cct.read_capture(TRACES / f"{name}.ingress.pcap.gz")
        for flow in cap.flows[cap.flows.protocol == 6].itertuples():
            for direction, retransmits, out_of_order in (
                (0, flow.retransmits_fwd, flow.out_of_order_fwd),
                (1, flow.retransmits_rev, flow.out_of_order_rev),
            ):
                fig = plot.time_sequence(cap, flow.flow_id, direction)
                for what, count in (("retransmissions", retransmits), ("out of order", out_of_order)):
                    marks = traces(fig, what)
                    assert len(marks) == 1
                    assert len(marks[0].x) // 3 == count
                    assert marks[0].name == f"{what} ({count:,})"
                    seen += count
    assert seen > 50


def test_overtaken_and_repeated_segments_are_told_apart() -> None:
    rows = [(0, 100), (10, 200), (20, 150), (900, 100)]  # µs, sequence number; 50 bytes each
    packets = [{"ts_ns": 1000 * t, "seq": seq, "tcp_flags": 16, "payload_bytes": 50} for t, seq in rows]
    fig = plot.time_sequence(hand_made(packets), 0)
    for what, at in (("segments", [0, 10]), ("out of order", [20]), ("retransmissions", [900])):
        assert (traces(fig, what)[0].x[::3] * 1e6).round().tolist() == at


def test_time_sequence_lines_and_bars(cap: Capture) -> None:
    flow = big_flows(cap)[0]
    fig = plot.time_sequence(cap, flow, points=10**6)
    mine = cap.columns["flow_id"] == flow
    data = mine & (cap.columns["direction"] == 0) & (cap.columns["payload_bytes"] > 0)
    bars = [trace for name in ("segments", "out of order", "retransmissions") for trace in traces(fig, name)]
    lengths = sum(np.nansum(trace.y[1::3] - trace.y[::3]) for trace in bars)
    assert lengths == cap.columns["payload_bytes"][data].sum() + 2  # SYN and FIN count one
    acked = traces(fig, "acknowledged")[0]
    assert (np.diff(acked.y) >= 0).all()
    assert acked.y[-1] == max(np.nanmax(trace.y) for trace in bars if len(trace.y))  # all of it arrived
    for line in (acked, traces(fig, "receive window")[0]):
        assert (np.diff(line.x) >= 0).all()
    assert [len(traces(fig, name)[0].x) for name in ("SYN", "FIN")] == [1, 1]
    assert plot.Names(cap).long(flow) in fig.layout.title.text


def test_receive_window_is_scaled_with_the_receivers_shift() -> None:
    packets = [
        {"ts_ns": 0, "seq": 99, "tcp_flags": 2, "window": 1000},
        {"ts_ns": 1, "direction": 1, "ack": 100, "tcp_flags": 18, "window": 500},
        {"ts_ns": 2, "seq": 100, "tcp_flags": 16, "payload_bytes": 50, "window": 7},
        {"ts_ns": 3, "direction": 1, "ack": 150, "tcp_flags": 16, "window": 20},
    ]
    seq = sequence_of(hand_made(packets, scale=3), 0)
    assert seq.edge.tolist() == [-1, 1 + 500, -1, 51 + 20 * 8]
    assert seq.scaled
    unknown = sequence_of(hand_made(packets), 0)
    assert unknown.edge.tolist() == [-1, 501, -1, 71]
    names = [trace.name for trace in plot.time_sequence(hand_made(packets), 0).data]
    assert "receive window (scale unknown)" in names


def test_direction_is_that_of_the_data() -> None:
    download = [
        {"ts_ns": 0, "seq": 1, "tcp_flags": 24, "payload_bytes": 10, "ack": 1},
        {"ts_ns": 1, "direction": 1, "seq": 1, "tcp_flags": 24, "payload_bytes": 1000, "ack": 11},
    ]
    assert sequence_of(hand_made(download), 0).direction == 1
    assert sequence_of(hand_made(download), 0, 0).direction == 0
    with pytest.raises(ParameterError, match="direction"):
        sequence_of(hand_made(download), 0, 2)


def test_sack_blocks_are_drawn_where_they_are_across_the_wrap() -> None:
    base = 2**32 - 1000
    packets: list[dict] = [{"ts_ns": 0, "flow_id": 1}]
    packets += [
        {"ts_ns": k, "flow_id": 4, "seq": (base + 500 * k) % 2**32, "tcp_flags": 16, "payload_bytes": 500}
        for k in range(6)
    ]
    packets.append({"ts_ns": 10, "flow_id": 4, "direction": 1, "ack": (base + 500) % 2**32, "tcp_flags": 16})
    blocks = [
        (7, (base + left) % 2**32, (base + right) % 2**32) for left, right in ((1000, 2000), (2500, 3000))
    ]
    cap = hand_made(packets, sacks=blocks)
    drawn = traces(plot.time_sequence(cap, 4), "SACK")[0]
    assert drawn.y.tolist()[:2] == [1000, 2000]
    assert drawn.y.tolist()[3:5] == [2500, 3000]
    assert drawn.name == "SACK blocks (2)"
    other = traces(plot.time_sequence(cap, 4, 1), "SACK")[0]  # they acknowledge the first direction
    assert len(other.x) == 0
    assert other.showlegend is False


def test_sack_blocks_of_a_real_trace_lie_between_acknowledged_and_sent() -> None:
    cap = cct.read_capture(TRACES / "reno.ingress.pcap.gz")
    flow = big_flows(cap)[0]
    drawn = traces(plot.time_sequence(cap, flow, points=10**6), "SACK")[0]
    assert len(drawn.x) // 3 == len(cap.sacks) > 100
    seq = sequence_of(cap, flow)
    sent = np.interp(drawn.x[::3], seq.time_s, seq.high)
    assert (drawn.y[1::3] <= sent + 1).all()
    assert (drawn.y[::3] < drawn.y[1::3]).all()


def test_bytes_in_flight_is_sent_less_acknowledged(cap: Capture) -> None:
    flow = big_flows(cap)[0]
    fig = plot.bytes_in_flight(cap, flow, points=10**6)
    rows = np.flatnonzero((cap.columns["flow_id"] == flow) & (cap.columns["tcp_flags"] != 0))
    c = {name: column[rows].tolist() for name, column in cap.columns.items()}
    twin = naive_plot.unwrap(
        list(
            zip(
                [d == 0 for d in c["direction"]],
                c["seq"],
                c["ack"],
                c["tcp_flags"],
                c["payload_bytes"],
                strict=True,
            )
        )
    )
    expected = [max(sent - max(acked, 0), 0) for _, _, sent, acked in twin]
    assert traces(fig, "in flight")[0].y.tolist() == expected
    assert fig.layout.yaxis.range[1] > max(expected)


def test_bytes_in_flight_agrees_with_the_slots_table(cap: Capture) -> None:
    flow = big_flows(cap)[0]
    table = compute_slots(cap, slot_ms=100, flow_ids=[flow])
    line = traces(plot.bytes_in_flight(cap, flow, points=10**6), "in flight")[0]
    width_ns = 10**8
    first_slot = cap.meta.first_ts_ns // width_ns
    ends_s = ((first_slot + table.slot.to_numpy() + 1) * width_ns - cap.meta.first_ts_ns) / 1e9
    at = np.searchsorted(line.x, ends_s, side="left") - 1
    known = table.bytes_in_flight.notna().to_numpy()
    assert known.sum() > 50
    more = line.y[at][known] - table.bytes_in_flight[known].to_numpy(np.int64)
    assert set(more[:-3].tolist()) == {0}
    assert set(more.tolist()) <= {0, 1}  # the slots table leaves out FIN, which takes a number


def test_one_direction_gives_a_remark() -> None:
    packets = [{"ts_ns": k, "seq": 100 * k, "tcp_flags": 16, "payload_bytes": 100} for k in range(3)]
    assert "only one direction" in plot.bytes_in_flight(hand_made(packets), 0).layout.annotations[0].text
    fig = plot.time_sequence(hand_made(packets), 0, 1)
    assert "only its acknowledgements" in fig.layout.annotations[0].text


def test_between_draws_that_time_in_full(cap: Capture) -> None:
    flow = big_flows(cap)[0]
    whole = plot.time_sequence(cap, flow, points=400)
    part = plot.time_sequence(cap, flow, points=400, between_s=(5.0, 5.2))
    bars = traces(part, "segments")[0]
    assert np.nanmin(bars.x) >= 4.9
    assert np.nanmax(bars.x) <= 5.3
    inside = [
        np.sum((np.nan_to_num(traces(fig, "segments")[0].x) > 5.0) & (traces(fig, "segments")[0].x < 5.2))
        for fig in (whole, part)
    ]
    assert inside[1] > 2 * inside[0]
    assert "of" in traces(whole, "segments")[0].name
    assert "of" not in bars.name


@pytest.mark.parametrize("draw", [plot.time_sequence, plot.bytes_in_flight])
def test_flows_without_sequence_numbers_are_refused(cap: Capture, draw) -> None:
    with pytest.raises(ParameterError, match="no such flow"):
        draw(cap, 10**6)
    icmp = cap.flows.flow_id[cap.flows.protocol == 58].iloc[0]
    with pytest.raises(ParameterError, match="not TCP"):
        draw(cap, icmp)


# --- CBIQ


def test_cbiq_draws_the_slots(cap: Capture, egress: Capture) -> None:
    slots = compute_slots(cap, egress, slot_ms=20)
    fig = plot.cbiq(slots, cap, slot_ms=20, points=10**6)
    assert len(fig.data) == 4
    for k, flow in enumerate(big_flows(cap)):
        mine = slots[slots.flow_id == flow]
        rate, queued = fig.data[2 * k : 2 * k + 2]
        assert (rate.name, queued.name) == ("ingress throughput", "CBIQ")
        np.testing.assert_allclose(
            queued.y, mine.cbiq_bytes.astype("Float64").to_numpy(float, na_value=math.nan)
        )
        assert np.nansum(rate.y) * 0.02 == pytest.approx(mine.in_bytes.sum() * 8e-6)
        np.testing.assert_allclose(queued.x, (mine.slot + 1) * 0.02)
        left, right = (fig.layout["yaxis" + trace.yaxis[1:]] for trace in (queued, rate))
        assert right.overlaying == queued.yaxis
        assert right.side == "right"
        assert (queued.line.color, rate.line.color) == (left.title.font.color, right.title.font.color)


def test_cbiq_says_what_is_missing(cap: Capture) -> None:
    fig = plot.cbiq(compute_slots(cap, slot_ms=100), slot_ms=100)
    assert any("no CBIQ" in remark.text for remark in fig.layout.annotations)
    assert "no slots" in plot.cbiq(schema.empty("slots")).layout.annotations[0].text
    with pytest.raises(ParameterError, match="slot_ms"):
        plot.cbiq(schema.empty("slots"), slot_ms=0)


def test_cbiq_of_a_sample_takes_throughput_from_sequence_numbers(cap: Capture, egress: Capture) -> None:
    slots = compute_slots(cap, egress, slot_ms=20, sampling="first")
    assert slots.in_bytes.isna().all()
    fig = plot.cbiq(slots, slot_ms=20)
    assert np.nansum(fig.data[0].y) > 0


# --- queueing delay


def test_queue_delay_draws_every_packet_and_every_loss(cap: Capture, egress: Capture) -> None:
    delays = queue_delay(cap, egress)
    fig = plot.queue_delay(delays, cap, points=10**6)
    names = plot.Names(cap)
    lost = 0
    for flow in big_flows(cap):
        mine = delays[(delays.flow_id == flow) & (delays.direction == 0)]
        matched = mine[mine.delay_ns.notna()]
        dots = next(trace for trace in fig.data if trace.name == names.short(flow))
        np.testing.assert_allclose(dots.y, matched.delay_ns.to_numpy(np.int64) / 1e6)
        np.testing.assert_allclose(dots.x, (matched.ts_ns - cap.meta.first_ts_ns) / 1e9)
        crosses = traces(fig, f"{names.short(flow)}, lost")[0]
        assert len(crosses.x) == mine.lost.sum()
        lost += len(crosses.x)
    assert lost > 20
    run = SimpleNamespace(ingress=cap, egress=egress)
    assert plot.queue_delay(run, points=10**6).to_dict() == fig.to_dict()
    assert all(2 <= x <= 3 for trace in plot.queue_delay(run, between_s=(2, 3)).data for x in trace.x)


def test_queue_delay_says_what_is_missing(cap: Capture, egress: Capture) -> None:
    nothing = queue_delay(cap, egress.select(start_s=1e6))
    assert "both taps" in plot.queue_delay(nothing).layout.annotations[0].text
    with pytest.raises(ParameterError, match="delays"):
        plot.queue_delay(3)


# --- together


def test_stack_shares_time_and_names_flows_once(cap: Capture, samples: pd.DataFrame) -> None:
    flow = big_flows(cap)[0]
    parts = [plot.throughput(cap), plot.rtt(samples, cap), plot.time_sequence(cap, flow)]
    fig = plot.stack(*parts)
    assert len(fig.data) == sum(len(part.data) for part in parts)
    assert {trace.xaxis for trace in fig.data} == {"x"}
    domains = sorted(axis.domain for axis in fig.select_yaxes())
    assert len(domains) == 4
    assert all(upper[0] > lower[1] for lower, upper in itertools.pairwise(domains))
    assert 0 <= domains[0][0] < domains[-1][1] <= 1
    named = [trace.legendgroup for trace in fig.data if trace.legendgroup and trace.showlegend]
    assert len(named) == len(set(named)) == 3  # all packets and two flows
    for new, old in zip(fig.data, (trace for part in parts for trace in part.data), strict=True):
        np.testing.assert_array_equal(new.y, old.y)
    rtt_axis = fig.layout["yaxis" + traces(fig, plot.Names(cap).short(flow))[1].yaxis[1:]]
    assert rtt_axis.title.text == "RTT (ms)"


def test_stack_keeps_right_axes(cap: Capture, egress: Capture) -> None:
    queue = plot.cbiq(compute_slots(cap, egress, slot_ms=50), slot_ms=50, most=1)
    fig = plot.stack(plot.throughput(cap), queue)
    rate, queued = fig.data[-2:]
    assert fig.layout["yaxis" + rate.yaxis[1:]].overlaying == queued.yaxis
    with pytest.raises(ParameterError, match="heights"):
        plot.stack(queue, heights=[1, 2])
    with pytest.raises(ParameterError, match="at least one"):
        plot.stack()


HOSTILE = "<img src=x onerror=alert(1)>%{x}$y$"


def test_text_from_a_capture_is_harmless() -> None:
    flows = pd.DataFrame(
        {"flow_id": [0], "src": [HOSTILE], "dst": ["b"], "sport": [1], "dport": [2], "protocol": [6]}
    )
    samples = pd.DataFrame({"ts_ns": [1, 2], "flow_id": [0, 0], "direction": [0, 0], "rtt_ns": [5, 6]})
    for fig in (plot.rtt(samples, flows), plot.rtt_cdf(samples, flows)):
        text = json.dumps(fig.to_dict(), default=str)
        assert "&lt;" in text
        assert "<img" not in text
        assert HOSTILE[8:] not in text
    assert escape(HOSTILE) == "&lt;img src=x onerror=alert(1)&gt;%&#123;x}&#36;y&#36;"


def test_names_of_flows() -> None:
    flows = pd.DataFrame(
        {
            "flow_id": [3, 4],
            "src": ["2001:db8:1234:5678::9", "10.0.0.1"],
            "dst": ["2001:db8::1", "10.0.0.2"],
            "sport": [5, 0],
            "dport": [6, 0],
            "protocol": [6, 1],
        }
    )
    names = plot.Names(flows)
    assert names.long(3) == "3: [2001:db8:1234:5678::9]:5 → [2001:db8::1]:6 TCP"
    assert names.short(3, 1) == "3: [2001:db8…:5678::9]:5 ← [2001:db8::1]:6"
    assert names.long(4) == "4: 10.0.0.1 → 10.0.0.2 ICMP"
    assert names.short(9) == "flow 9"
    assert plot.Names().long(9) == "flow 9"


def test_trade_off_draws_every_run_in_its_panel() -> None:
    table = pd.DataFrame(
        {
            "scenario": ["<one>", "<one>", "two", "two"],
            "aqm": ["codel", "pie", "codel", "codel"],
            "mean_delay_ms": [5.0, 15.0, 0.0, 500.0],
            "utilisation": [0.95, 0.99, 0.5, 1.0],
        }
    )
    fig = plot.trade_off(table)
    drawn = {(t.name, t.xaxis): (list(t.x), list(t.y)) for t in fig.data}
    assert drawn[("codel", "x")] == ([5.0], [95.0]) and drawn[("pie", "x")] == ([15.0], [99.0])
    assert drawn[("codel", "x2")] == (
        [0.01, 500.0],
        [50.0, 100.0],
    )  # no delay has no place on a logarithmic axis
    assert [t.name for t in fig.data if t.showlegend] == ["codel", "pie"]
    assert [a.text for a in fig.layout.annotations] == ["&lt;one&gt;", "two"]
    assert fig.layout.xaxis.domain[1] < fig.layout.xaxis2.domain[0] and fig.layout.xaxis2.domain[1] == 1
    low, high = fig.layout.xaxis.range
    assert 10**low < 0.01 and 10**high > 500 and fig.layout.yaxis2.range[0] < 50
    assert len(plot.trade_off(table, by="scenario", panels="").data) == 2
    assert "no runs" in plot.trade_off(table[:0]).layout.annotations[0].text
    with pytest.raises(ParameterError, match="column 'cca'"):
        plot.trade_off(table, by="cca")


def test_figures_are_small_whatever_the_capture() -> None:
    n = 200_000
    rng = np.random.default_rng(1)
    columns = {name: np.zeros(n, dtype) for name, dtype in schema.PACKETS.items()}
    columns["ts_ns"][:] = np.sort(rng.integers(0, 10**11, n))
    columns["direction"][:] = rng.integers(0, 2, n)
    columns["seq"][:] = np.cumsum(np.where(columns["direction"] == 0, 1000, 0)) % 2**32
    columns["ack"][:] = columns["seq"]
    columns["payload_bytes"][:] = np.where(columns["direction"] == 0, 1000, 0)
    columns["wire_bytes"][:] = 1000
    columns["tcp_flags"][:] = 16
    for fig in (
        plot.time_sequence(columns, 0),
        plot.bytes_in_flight(columns, 0),
        plot.throughput(columns, 1e-3),
    ):
        assert all(len(trace.x) <= 3 * 4000 for trace in fig.data)
        assert len(fig.to_json()) < 1_500_000


WRONG = {
    "a run": lambda: cct.example("cubic-bbr"),
    "a capture": lambda: cct.example("cubic-bbr").ingress,
    "another table": lambda: pd.DataFrame({"a": [1]}),
    "an empty table": pd.DataFrame,
    "a number": lambda: 5,
    "a name": lambda: "trace.pcap",
    "nothing": lambda: None,
    "a list": lambda: [1, 2],
}


@pytest.mark.parametrize("name", [n for n in cct.plot.__all__ if n.islower() and not n.startswith("thin")])
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_kind_of_input_is_named(name: str, kind: str) -> None:
    """Or it is the right kind, and drawn."""
    function = getattr(cct.plot, name)
    second = [0] * (name in ("time_sequence", "bytes_in_flight", "rtt_classes"))
    try:
        assert isinstance(function(WRONG[kind](), *second), go.Figure)
    except CCToolkitError as err:
        assert "\n" not in str(err) and any(word in str(err) for word in ("expected", "missing"))


def test_every_function_says_what_it_returns() -> None:
    for name in plot.__all__:
        drawn = getattr(plot, name)
        if inspect.isfunction(drawn):
            assert "\nReturns\n-------\n" in (inspect.getdoc(drawn) or ""), name


def test_flow_ids_of_a_run_are_numbers() -> None:
    link = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=40)]
    run = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=1), sample_s=0.1)
    wrong = dataclasses.replace(run, flows=run.flows.assign(flow_id=run.flows.flow_id > 0))
    for draw in (plot.goodput, plot.window):
        with pytest.raises(SchemaError, match="flow_id is bool, expected numbers"):
            draw(wrong)
