"""Rates, fairness, completion, delay, loss: naive twins, closed forms, tshark, and the counters of a real kernel."""

from __future__ import annotations

import csv
import itertools
import shutil
import tomllib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import naive_metrics
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from naive_slots import packets_of
from test_slots import MS, capture, constant_rate, cut, listed, packets, tap_pairs
from tools import examples
from tshark import ask

import cctoolkit as cct
from cctoolkit import metrics, schema
from cctoolkit.analysis.slots import SlotTable, compute_slots
from cctoolkit.errors import CCToolkitError, ParameterError

ROOT = Path(__file__).parents[1]
TRACES = ROOT / "traces"
SHARED = ROOT.parent / "shared" / "captures"
BUNDLED = tomllib.loads((TRACES / "MANIFEST.toml").read_text())["capture"]
BUNDLED_NAMES = [trace["name"] for trace in BUNDLED]


def records(frame: pd.DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in columns} for row in frame.to_dict("records")]


@st.composite
def one_tap(draw: st.DrawFn) -> dict[str, np.ndarray]:
    columns = draw(tap_pairs())[0]
    n = len(columns["ts_ns"])
    columns["wire_bytes"] = columns["payload_bytes"] + np.uint32(54)
    fins = np.array(draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), np.uint16) == 0
    columns["tcp_flags"][fins & (columns["tcp_flags"] == 16)] |= 1
    return columns


CUTS = st.lists(st.integers(0, 25), min_size=2, max_size=2)


# --- rates ----------------------------------------------------------------------------------------------------


@settings(max_examples=examples(300), deadline=None)
@given(one_tap(), st.sampled_from([0.001, 0.0025, 1.0]), CUTS)
def test_rates_are_the_naive_twins_however_cut(columns, bin_s, cuts):
    table = metrics.RateTable(bin_s)
    table.update(columns)
    whole = table.result()
    expected = naive_metrics.rates(packets_of(columns), round(bin_s * 1e9))
    assert (
        records(whole, ["flow_id", "direction", "bin", "packets", "wire_bytes", "goodput_bytes"]) == expected
    )
    parts = metrics.RateTable(bin_s)
    for part in cut(columns, cuts):
        parts.update(part)
    pd.testing.assert_frame_equal(parts.result(), whole)
    pd.testing.assert_frame_equal(
        metrics.throughput(columns, bin_s), whole.drop(columns=["goodput_bytes", "goodput_mbps"])
    )


def test_rates_of_a_constant_flow():
    columns = constant_rate(2**32 - 100_000, 1000, 1000, start_us=777)  # 1000 bytes a ms = 8 Mbit/s, for 1 s
    columns["wire_bytes"][:] = 1066
    table = metrics.throughput(columns, bin_s=0.1)
    assert table.start_s.tolist() == pytest.approx([k / 10 for k in range(10)])
    assert table.throughput_mbps.tolist() == pytest.approx([8.528] * 10)
    assert metrics.goodput(columns, bin_s=0.1).goodput_mbps.tolist() == pytest.approx([8.0] * 10)


def test_a_bin_in_which_a_flow_is_silent_is_zero_and_one_before_it_began_is_not_there():
    columns = packets([(0, 0, 5), (10, 5, 5), (30, 10, 5)])
    columns["flow_id"][:] = [1, 0, 0]
    table = metrics.goodput(columns, bin_s=0.01)
    assert table.flow_id.tolist() == [0, 0, 0, 1]
    assert table.bin.tolist() == [1, 2, 3, 0]
    assert table.goodput_bytes.tolist() == [5, 0, 5, 5]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_goodput_without_acks_counts_each_byte_once(data):
    """Segments lost before the tap come again later, some twice: as many bytes as a set of them holds."""
    lost = [False, *data.draw(st.lists(st.booleans(), max_size=40))]
    again = data.draw(st.permutations([k for k, gone in enumerate(lost) if gone]))
    order = [k for k, gone in enumerate(lost) if not gone] + list(again)
    useless = data.draw(st.lists(st.sampled_from(order), max_size=5))  # when nothing is missing any more
    columns = packets([(t, 2**32 - 1500 + 100 * k, 100) for t, k in enumerate([*order, *useless])])
    seen = {byte for k in order for byte in range(100 * k, 100 * (k + 1))}
    assert metrics.goodput(columns).goodput_bytes.sum() == len(seen)


@st.composite
def one_way(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Segments that skip some numbers or go back by some, over a wrap: gaps stay open while others repeat."""
    step = st.tuples(st.sampled_from([0, 0, 1, 1, 1, -1, -2, -5, -9, -30]), st.integers(1, 3))
    rows, end = [(0, 0, 100)], 2
    for t, (skipped, length) in enumerate(draw(st.lists(step, max_size=80)), 1):
        begin = max(end + skipped, 0)
        rows.append((t, 2**32 - 1500 + 50 * begin, 50 * length))
        end = max(end, begin + length)
    rows[0] = (0, 2**32 - 1500, 100)
    return packets(rows)


@settings(max_examples=examples(300), deadline=None)
@given(one_way(), CUTS)
def test_goodput_without_acks_is_what_was_not_seen_before_however_cut(columns, cuts):
    rows = packets_of(columns)
    steps = np.array([n for _, n in naive_metrics.unique_payload(rows)])
    seen: set[int] = set()
    for p in rows:
        begin = (p["seq"] + 1500) % 2**32
        seen.update(range(begin, begin + p["payload_bytes"]))
    assert sum(n for _, n in naive_metrics.unique_payload(rows, most_gaps=100)) == len(seen)
    table = metrics.RateTable(0.001)
    for part in cut(columns, cuts):
        table.update(part)
    assert table.result().goodput_bytes.tolist() == steps.tolist()


def test_goodput_without_acks_counts_no_repeats_beyond_a_gap():
    """The tap missed a segment; what came after it is sent twice."""
    columns = packets([(0, 0, 1000), (1, 2000, 1000), (2, 3000, 1000), (3, 2000, 1000), (4, 3000, 500)])
    assert metrics.goodput(columns, bin_s=0.001).goodput_bytes.tolist() == [1000, 1000, 1000, 0, 0]
    late = packets([(0, 0, 1000), (1, 2000, 1000), (2, 500, 2000), (3, 500, 2000)])  # half of it was seen
    assert metrics.goodput(late, bin_s=0.001).goodput_bytes.tolist() == [1000, 1000, 1000, 0]


def test_goodput_without_acks_with_more_gaps_than_are_known_one_by_one():
    """A slow start overshoots, and every other segment of it is lost before the tap and comes again."""
    lost_once = [(0, 1000 * k, 1000) for k in (*range(0, 400, 2), *range(1, 400, 2))]
    assert metrics.goodput(packets(lost_once)).goodput_bytes.sum() == 400_000
    for gaps, counted_again in (15, 0), (16, 1000):  # no more than is missing of the older gaps
        sent = [(0, 2000 * k, 1000) for k in range(gaps + 1)]
        table = metrics.goodput(packets(sent + sent + sent))
        assert table.goodput_bytes.sum() == 1000 * (gaps + 1) + counted_again


def test_goodput_without_acks_of_many_flows_with_gaps():
    rows = [
        {"ts_ns": t, "flow_id": flow, "seq": seq, "payload_bytes": 100}
        for t, seq in enumerate((0, 200, 200, 100, 100))
        for flow in range(300)
    ]
    assert (metrics.goodput(packets(rows)).goodput_bytes == 300).all()


def test_goodput_counts_neither_syn_nor_fin_nor_a_fin_it_did_not_see():
    rows = [
        {"ts_ns": 0, "tcp_flags": 2, "seq": 99},
        {"ts_ns": 1, "direction": 1, "tcp_flags": 18, "seq": 499, "ack": 100},
        {"ts_ns": 2, "seq": 100, "ack": 500, "payload_bytes": 50},
        {"ts_ns": 3, "seq": 150, "ack": 500, "tcp_flags": 17},
        {"ts_ns": 4, "direction": 1, "seq": 500, "ack": 151, "tcp_flags": 17},
        {"ts_ns": 5, "seq": 151, "ack": 501},
    ]
    both = metrics.goodput(packets(rows))
    assert both[["direction", "goodput_bytes"]].to_numpy().tolist() == [[0, 50]]
    one = metrics.goodput(packets([row for row in rows if not row.get("direction")]))
    assert one[["direction", "goodput_bytes"]].to_numpy().tolist() == [[0, 50]]


def test_an_ack_from_nowhere_delivers_nothing():
    """An ACK cannot advance by more than the largest window, 2**30 bytes, nor far beyond what was sent."""
    acks = [
        {"ts_ns": k, "direction": 1, "ack": ack} for k, ack in enumerate((0, 10, 2**30 + 11, 2**30 + 13), 1)
    ]
    assert metrics.goodput(packets(acks)).goodput_bytes.sum() == 10 + 2
    assert metrics.goodput(packets([{"ts_ns": 0, "payload_bytes": 10}, *acks])).goodput_bytes.sum() == 10


def test_goodput_of_a_capture_without_the_data():
    """A filter kept the handshake and the ACKs: they tell it, however far beyond what was seen."""
    rows = [
        {"ts_ns": 0, "tcp_flags": 2, "seq": 99},
        {"ts_ns": 1, "direction": 1, "tcp_flags": 18, "ack": 100},
    ]
    rows += [{"ts_ns": k, "direction": 1, "ack": 100 + k * 500_000} for k in range(2, 10)]
    assert metrics.goodput(packets(rows)).goodput_bytes.sum() == 9 * 500_000


@pytest.mark.parametrize("old", [500_000_000, 50_000, -500_000, 2_500_000_000])
def test_what_a_host_says_of_an_earlier_connection_counts_for_nothing(old):
    """It answers the SYN with an ACK of that one, and gets a RST (RFC 9293, section 3.5.1); the SYN is sent again."""
    isn, segments = 1_000_000, range(0, 100_000, 1000)
    syn = {"tcp_flags": 2, "seq": isn}
    rows = [
        {"ts_ns": 0, **syn},
        {"ts_ns": 1, "direction": 1, "seq": 77, "ack": (isn + old) % 2**32},
        {"ts_ns": 2, "tcp_flags": 4, "seq": (isn + old) % 2**32},
        {"ts_ns": 1000, **syn},
        {"ts_ns": 1001, "direction": 1, "tcp_flags": 18, "seq": 99, "ack": isn + 1},
        {"ts_ns": 1002, "seq": isn + 1, "ack": 100},
    ]
    for k in segments:
        rows.append({"ts_ns": 2000 + k, "seq": isn + 1 + k, "ack": 100, "payload_bytes": 1000})
        rows.append({"ts_ns": 2500 + k, "direction": 1, "seq": 100, "ack": isn + 1001 + k})
    rows.append({"ts_ns": 200_000, "tcp_flags": 17, "seq": isn + 100_001, "ack": 100})
    rows.append({"ts_ns": 200_001, "direction": 1, "seq": 100, "ack": isn + 100_002})
    there = packets(rows)
    assert metrics.goodput(there).goodput_bytes.sum() == 100_000
    (row,) = metrics.flow_completion_times(there).to_dict("records")
    assert (row["complete"], row["transfer_bytes"], row["end_ns"]) == (True, 100_000, 2500 + segments[-1])
    if old != 50_000:  # what may be data that the capture missed is believed
        assert cct.compute_slots(there, slot_ms=0.0002).bytes_in_flight.max() == 1000


@pytest.mark.parametrize("name", BUNDLED_NAMES)
def test_goodput_is_what_the_kernel_says_was_acknowledged(name):
    """tcpi_bytes_acked of the sending sockets, which counts SYN and FIN as well."""
    trace = next(t for t in BUNDLED if t["name"] == name)
    with open(TRACES / trace["labels"], newline="") as file:
        labels = [row for row in csv.DictReader(file) if row["kind"] == "bulk"]
    cap = cct.read_capture(str(TRACES / f"{name}.egress.pcap.gz"))
    flows = cap.flows.set_index(["src", "sport"])
    delivered = metrics.goodput(cap, bin_s=0.5).groupby(["flow_id", "direction"]).goodput_bytes.sum()
    completion = metrics.flow_completion_times(cap).set_index("flow_id")
    assert labels
    for row in labels:
        ends = (row["src"], int(row["sport"])), (row["dst"], int(row["dport"]))
        flow = flows.loc[ends[0] if ends[0] in flows.index else ends[1]]
        direction = int((flow.name == ends[0]) != (row["data_from"] == "src"))
        total = delivered[flow.flow_id, direction]
        done = completion.loc[flow.flow_id]
        assert done.direction == direction
        if done.complete:
            assert total == int(row["bytes_acked"]) - 2 == done.transfer_bytes
            assert done.fct_s == pytest.approx((int(row["stop_ns"]) - int(row["start_ns"])) / 1e9, rel=0.02)
        else:  # cut off: the sender may have been told of less or more than the tap saw
            assert total == pytest.approx(int(row["bytes_acked"]), rel=0.02)


@pytest.mark.tshark
@pytest.mark.parametrize(
    "file",
    ["cc/guntas-13__mininet-congestion-control/PCAPs__ND00.pcap", "cc/NUS-SNL__Nebby/scripts__test.pcap"],
)
def test_throughput_and_load_agree_with_tshark_io_stat(file):
    if not (SHARED / file).exists():
        pytest.skip(f"no captures beside the repository ({file})")
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not on PATH")
    out = ask(SHARED / file, "-q", "-z", "io,stat,0.1,FRAMES()ip||ipv6,BYTES()ip||ipv6")
    lines = [
        line.split("|")
        for line in out.splitlines()
        if "<>" in line and line.split("|")[1].strip()[0].isdigit()
    ]
    expected = [(int(cells[2]), int(cells[3])) for cells in lines]
    cap = cct.read_capture(str(SHARED / file))
    if len(cap) != cap.meta.frames:
        assert cap.columns["ts_ns"][0] == cap.meta.first_ts_ns
    table = metrics.throughput(cap, bin_s=0.1).groupby("bin")[["packets", "wire_bytes"]].sum()
    table = table.reindex(range(len(expected)), fill_value=0)
    assert list(table.itertuples(index=False, name=None)) == expected
    load = metrics.link_utilisation(cap, rate_mbps=10, bin_s=0.1)
    assert load.bytes.tolist() == [b for _, b in expected][: len(load)]


# --- utilisation ----------------------------------------------------------------------------------------------


def test_utilisation_of_a_full_link():
    columns = constant_rate(0, 1000, 1230, wire_bytes=1514)
    table = metrics.link_utilisation(columns, rate_mbps=10, bin_s=0.123, overhead_bytes=24)
    assert table.utilisation.tolist() == pytest.approx([1538 * 8 / 12300] * 10)
    assert metrics.link_utilisation(columns, 10, direction=1).bytes.sum() == 0


@settings(max_examples=examples(100), deadline=None)
@given(one_tap(), CUTS)
def test_utilisation_is_the_sum_of_throughputs_however_cut(columns, cuts):
    parts = metrics.LinkUtilisation(100, bin_s=0.001, direction=0)
    for part in cut(columns, cuts):
        parts.update(part)
    table = parts.result()
    rates = metrics.throughput(columns, 0.001)
    sums = rates[rates.direction == 0].groupby("bin").wire_bytes.sum()
    assert table.bytes.tolist() == sums.reindex(table.bin, fill_value=0).tolist()
    assert len(table) == (
        0 if not len(columns["ts_ns"]) else (columns["ts_ns"][-1] - columns["ts_ns"][0]) // MS + 1
    )


# --- fairness -------------------------------------------------------------------------------------------------


def test_jain_closed_forms():
    assert metrics.jain_index([5, 5, 5, 5]) == 1.0
    assert metrics.jain_index([0, 0, 7, 0]) == 0.25
    for k in range(1, 10):  # k of ten have all
        assert metrics.jain_index([1] * k + [0] * (10 - k)) == pytest.approx(k / 10)
    assert metrics.jain_index([1e-300, 1e-300]) == 1.0
    assert metrics.jain_index([1e300, 0]) == 0.5
    for nothing in [], [0, 0], [1, np.nan]:
        assert np.isnan(metrics.jain_index(nothing))
    np.testing.assert_allclose(metrics.jain_index([[1, 1], [1, 0]], axis=1), [1, 0.5])
    np.testing.assert_allclose(metrics.jain_index([[1, 1], [1, 0]], axis=0), [1, 0.5])
    with pytest.raises(ParameterError, match="negative"):
        metrics.jain_index([1, -1])


@given(
    arrays(np.float64, st.integers(1, 20), elements=st.just(0.0) | st.floats(1e-3, 1e6)), st.floats(1e-3, 1e3)
)
def test_jain_is_bounded_and_knows_no_unit(x, factor):
    index = metrics.jain_index(x)
    if x.any():
        assert 1 / len(x) - 1e-12 <= index <= 1 + 1e-12
        assert metrics.jain_index(x * factor) == pytest.approx(index, rel=1e-6)
        assert metrics.jain_index(np.append(x, 0)) == pytest.approx(index * len(x) / (len(x) + 1))


def test_jain_over_time_counts_a_starved_flow_and_forgets_one_that_ended():
    """Flow 0 always sends; flow 1 from 1 s to 4 s, but nothing in the third second."""
    rows = [(1000 * s + 100 * k, 10_000 * s + 100 * k, 100) for s in range(6) for k in range(10)]
    zero = packets(rows)
    one = packets([row for row in rows if 1000 <= row[0] < 2000 or 3000 <= row[0] < 4000], flow_id=1)
    both = {n: np.concatenate([zero[n], one[n]]) for n in zero}
    both = {n: c[np.argsort(both["ts_ns"], kind="stable")] for n, c in both.items()}
    for of in "goodput", "throughput":
        if of == "throughput":
            both["wire_bytes"] = both["payload_bytes"]
        table = metrics.jain_over_time(both, 1.0, of=of)
        assert table.active_flows.tolist() == [1, 2, 2, 2, 1, 1]
        np.testing.assert_allclose(table.jain_index, [np.nan, 1, 0.5, 1, np.nan, np.nan])
    assert metrics.jain_over_time(both, 1.0, flow_ids=[1]).jain_index.isna().all()
    assert len(metrics.jain_over_time(packets([]))) == 0
    much_later = {n: c.copy() for n, c in both.items()}
    much_later["ts_ns"][both["flow_id"] == 1] += 10**18  # a clock that was set: two flows, 30 years, few rows
    assert metrics.jain_over_time(much_later, 1.0).active_flows.tolist() == [1] * 9


def test_share_difference():
    assert metrics.share_difference(30, 10) == metrics.share_difference(10, 30) == 50
    assert metrics.share_difference([60.0, 50.0, 0], [40.0, 50.0, 0]) == 10
    assert metrics.share_difference([0, 5], [5, 0]) == 100
    assert np.isnan(metrics.share_difference(0, 0))
    with pytest.raises(ParameterError, match="2 and 1 periods"):
        metrics.share_difference([1, 2], [1])


def test_rtt_unfairness():
    table = metrics.rtt_unfairness([10, 40, 2.5], [40, 10, 160], flow_ids=[7, 8, 9])
    assert table[["short_flow", "long_flow"]].to_numpy().tolist() == [[8, 7], [8, 9], [7, 9]]
    assert table.rtt_ratio.tolist() == [4, 16, 4]
    assert table.throughput_ratio.tolist() == [4, 16, 4]
    assert table.exponent.tolist() == pytest.approx([1, 1, 1])  # rate = 400 / RTT
    assert table.short_share.tolist() == pytest.approx([0.8, 16 / 17, 0.8])
    assert np.isnan(metrics.rtt_unfairness([1, 2], [5, 5]).exponent[0])
    assert len(metrics.rtt_unfairness([1], [5])) == 0
    for rate, rtt, named in (
        ([1, 2], [0, 1], "rtt_ms"),
        ([1, -2], [1, 1], "throughput_mbps"),
        ([1], [1, 2], "one value"),
    ):
        with pytest.raises(ParameterError, match=named):
            metrics.rtt_unfairness(rate, rtt)


# --- completion -----------------------------------------------------------------------------------------------


@settings(max_examples=examples(300), deadline=None)
@given(one_tap(), CUTS)
def test_completions_are_the_naive_twins_however_cut(columns, cuts):
    whole = metrics.flow_completion_times(columns)
    expected = naive_metrics.completions(packets_of(columns))
    assert (
        records(whole, ["flow_id", "direction", "start_ns", "end_ns", "transfer_bytes", "complete"])
        == expected
    )
    assert (whole.fct_s.notna() == whole.complete).all()
    parts = metrics.FlowCompletion()
    for part in cut(columns, cuts):
        parts.update(part)
    pd.testing.assert_frame_equal(parts.result(), whole)


def test_completion_ends_with_the_last_byte_not_with_the_connection():
    n, size = 5000, 1_000_000  # 5 GB: the sequence numbers go round
    data = packets(
        [{"ts_ns": 10_000 * k + 1000, "seq": (1 + size * k) % 2**32} for k in range(n)], payload_bytes=size
    )
    opening = packets([{"ts_ns": 0, "tcp_flags": 2, "seq": 0}])
    last = int(data["ts_ns"][-1])
    closing = packets(
        [
            {"ts_ns": last + 7, "direction": 1, "ack": (1 + size * n) % 2**32},
            {"ts_ns": last + 10**10, "tcp_flags": 17, "seq": (1 + size * n) % 2**32},
        ]
    )
    done = metrics.flow_completion_times({k: np.concatenate([opening[k], data[k], closing[k]]) for k in data})
    assert done.transfer_bytes[0] == 5_000_000_000
    assert done.complete[0]
    assert done.fct_s[0] == (last + 7) / 1e9


def test_cdf():
    table = metrics.cdf([3, 1, np.nan, 1, 2])
    assert table.value.tolist() == [1, 2, 3]
    assert table.share.tolist() == [0.5, 0.75, 1.0]
    assert len(metrics.cdf([])) == 0
    assert metrics.cdf(pd.Series([5, None], dtype="Int64")).value.tolist() == [5]


# --- delay and loss -------------------------------------------------------------------------------------------


@settings(max_examples=examples(300), deadline=None)
@given(tap_pairs(), CUTS, CUTS, st.booleans())
def test_queue_delays_are_the_naive_twins_however_cut(pair, cut_in, cut_out, datagrams):
    if datagrams:
        pair = [tap | {"tcp_flags": 0 * tap["tcp_flags"]} for tap in pair]
    ingress, egress = pair
    whole = metrics.queue_delay(ingress, egress, check_taps=False)
    expected = naive_metrics.queue_delays(packets_of(ingress), packets_of(egress))
    rows = sorted(expected)
    assert whole.ts_ns.tolist() == ingress["ts_ns"][rows].tolist()
    assert (2 * whole.flow_id + whole.direction).tolist() == [
        2 * int(ingress["flow_id"][i]) + int(ingress["direction"][i]) for i in rows
    ]
    assert whole.payload_bytes.tolist() == ingress["payload_bytes"][rows].tolist()
    both = zip(whole.delay_ns, whole.lost, strict=True)
    found = [None if pd.isna(lost) else "lost" if lost else int(delay) for delay, lost in both]
    assert found == [expected[i] for i in rows]
    parts = metrics.QueueDelay(check_taps=False)
    for part_in, part_out in zip(cut(ingress, cut_in), cut(egress, cut_out), strict=True):
        parts.update(part_in, part_out)
    pd.testing.assert_frame_equal(parts.result(), whole)
    pd.testing.assert_frame_equal(parts.loss(), metrics.queue_loss(ingress, egress, check_taps=False))


def test_delay_of_datagrams_only_where_it_is_certain():
    ingress = packets([(0, 0, 100), (1, 0, 200), (2, 0, 100)], tcp_flags=0)
    left = packets([(1, 0, 100), (3, 0, 200), (4, 0, 100)], tcp_flags=0)
    assert metrics.queue_delay(ingress, left).delay_ns.tolist() == [MS, 2 * MS, 2 * MS]
    assert metrics.queue_loss(ingress, left).packets_lost.tolist() == [0]
    one_lost = {n: c[[0, 2]] for n, c in left.items()}
    table = metrics.queue_delay(ingress, one_lost)
    assert table.delay_ns.isna().all()
    assert table.lost.isna().all()
    loss = metrics.queue_loss(ingress, one_lost)
    assert loss.to_dict("records") == [
        {"flow_id": 0, "direction": 0, "packets_in": 3, "packets_lost": 1, "loss_ratio": 1 / 3}
    ]


@pytest.mark.parametrize("late", [None, "ingress", "egress"])
def test_datagrams_of_the_other_direction_do_not_cross_the_queue(late):
    """A call: 50 packets a second each way, 70 ms from tap to tap and 15 ms back, with losses. A tap may begin late."""

    def call(behind_ms, lost, **way):
        ms = np.arange(5000, 9000, 20)
        return [
            {"ts_ns": int(t + behind_ms) * MS, "tcp_flags": 0, "payload_bytes": 160, **way} for t in ms[~lost]
        ]

    def tap(*parts):
        return packets(sorted(itertools.chain(*parts), key=lambda row: row["ts_ns"]))

    none, some, others = np.zeros(200, bool), np.arange(200) % 9 == 4, np.arange(200) % 31 == 20
    ingress = tap(call(0, none, direction=0), call(15 + 3, others, direction=1))
    egress = tap(call(70, some, direction=0), call(3, none, direction=1))
    both = {"ingress": ingress, "egress": egress}
    if late:
        both[late] = {name: column[100:] for name, column in both[late].items()}
    udp = {0: (1, 5004, 2, 5004)}
    for taps in both.values(), [capture(columns, udp) for columns in both.values()]:
        loss = metrics.queue_loss(*taps)
        assert loss.direction.tolist() == [0] * (late != "egress")  # then losses of datagrams are not known
        assert set(metrics.queue_delay(*taps).direction) == {0}
    if not late:
        assert loss.packets_lost.tolist() == [some.sum()]


@pytest.mark.parametrize("behind_ms", [63, 70, 78])
def test_a_stream_in_one_direction_crosses_unless_it_is_seen_to_begin_beyond(behind_ms):
    """Which packet is which is not known of one that had begun before: it is not taken for one of the other side."""

    def tap(*streams):
        rows = [{"ts_ns": int(ms) * MS, "flow_id": flow} for flow, some in enumerate(streams) for ms in some]
        return packets(sorted(rows, key=lambda row: row["ts_ns"]), tcp_flags=0, payload_bytes=160)

    ms, later = np.arange(0, 4000, 20), np.arange(3000, 5000, 20)
    ingress = tap(ms[50:], later + 15)  # both taps record from 1 s on
    egress = tap((ms + behind_ms)[ms + behind_ms >= 1000], later)
    assert set(metrics.queue_loss(ingress, egress).flow_id) == {0}


@pytest.mark.parametrize("name", ["bufferbloat", "fq-codel-ecn", "mixed"])
def test_replies_to_pings_do_not_cross_the_queue(name):
    ingress, egress = (cct.read_capture(TRACES / f"{name}.{tap}.pcap.gz") for tap in ("ingress", "egress"))
    pings = ingress.keys.flow_id[np.isin(ingress.keys.protocol, [1, 58])]
    loss = metrics.queue_loss(ingress, egress)
    loss = loss[loss.flow_id.isin(pings)]
    assert len(loss)
    assert (loss.direction == 0).all()


def test_datagrams_of_captures_that_do_not_begin_or_end_together():
    """Nothing is lost on 10 ms of path: of a tap that began a second late nothing is said; one that ended may be."""
    came = packets([(ms, 0, 100) for ms in range(0, 4000, 2)], tcp_flags=0)
    left = packets([(ms + 10, 0, 100) for ms in range(0, 4000, 2)], tcp_flags=0)
    late = {n: c[500:] for n, c in left.items()}
    assert metrics.queue_loss(came, late).empty
    first_half = {n: c[:1000] for n, c in came.items()}
    assert metrics.queue_loss(first_half, left).packets_lost.tolist() == [0]
    some = np.arange(2000) % 20 != 7
    assert metrics.queue_loss(first_half, {n: c[some] for n, c in left.items()}).packets_lost.tolist() == [50]


def test_delay_and_loss_of_captures_with_other_flow_numbers():
    segments = constant_rate(0, 100, 100, flow_id=2)
    datagrams = packets([(k, 0, 50 + k) for k in range(10)], flow_id=3, tcp_flags=0)
    ingress = {n: np.concatenate([segments[n], datagrams[n]]) for n in segments}
    ingress = {n: c[np.argsort(ingress["ts_ns"], kind="stable")] for n, c in ingress.items()}
    egress = {n: c.copy() for n, c in ingress.items()}
    egress["ts_ns"] += MS
    egress["flow_id"] = np.where(ingress["flow_id"] == 2, 9, 4).astype(np.uint32)
    egress["direction"] = np.where(ingress["flow_id"] == 2, 1, 0).astype(np.int8)
    keep = np.ones(110, bool)
    keep[np.flatnonzero(ingress["flow_id"] == 2)[40]] = False
    egress = {n: c[keep] for n, c in egress.items()}
    for tap in ingress, egress:
        tap["ts_ns"] += MS
    earlier = packets(
        [(0.5, 0, 50)], flow_id=4, tcp_flags=0
    )  # before the ingress tap saw anything of this flow
    egress = {n: np.concatenate([earlier[n], c]) for n, c in egress.items()}
    tcp, udp = (1, 1000, 2, 80), (1, 53, 2, 53)
    table = metrics.queue_delay(
        capture(ingress, {2: tcp, 3: udp}), capture(egress, {4: udp, 9: (2, 80, 1, 1000)})
    )
    assert table.flow_id.value_counts().to_dict() == {2: 100, 3: 10}
    assert listed(table.delay_ns.dropna()) == [MS] * 109
    assert table.lost.sum() == 1


@pytest.mark.parametrize(
    "cut_away",
    [
        ("egress", {"start_s": 5}),
        ("egress", {"stop_s": 11.5}),
        ("ingress", {"start_s": 5}),
        ("ingress", {"stop_s": 11.5}),
    ],
    ids=str,
)
def test_captures_that_begin_and_end_at_other_times_lose_nothing_more(cut_away):
    """As when two people start tcpdump: the queue's losses are the whole captures', or fewer of them."""
    taps = {tap: cct.read_capture(TRACES / f"bufferbloat.{tap}.pcap.gz") for tap in ("ingress", "egress")}
    whole = cct.queue_delay(**taps)
    tap, away = cut_away
    some = cct.queue_delay(**taps | {tap: taps[tap].select(**away)})
    keys = ["ts_ns", "flow_id", "direction"]
    lost = some[some.lost.fillna(False)][keys]
    assert 0 < len(lost) == len(lost.merge(whole[whole.lost.fillna(False)][keys]))
    loss = cct.queue_loss(**taps | {tap: taps[tap].select(**away)}).set_index(["flow_id", "direction"])
    everything = cct.queue_loss(**taps).set_index(["flow_id", "direction"])
    pings = loss.index.get_level_values("flow_id") == 0  # are counted, with those in the queue at the end
    assert (loss.packets_lost - everything.packets_lost[loss.index] <= 5 * pings).all()
    assert (loss.packets_in <= everything.packets_in[loss.index]).all()


@pytest.mark.parametrize("stop_s", [7, 9, 12])
def test_an_ingress_capture_that_ends_first_loses_no_flow(stop_s):
    """The third flow begins at 6 s, so that most of what the second capture has of it came after the first's end."""
    before, behind = (
        cct.read_capture(TRACES / f"three-ccas-ipv6.{tap}.pcap.gz") for tap in ("ingress", "egress")
    )
    cut_short = before.select(stop_s=stop_s)
    some, everything = cct.queue_delay(cut_short, behind), cct.queue_delay(before, behind)
    ends = cut_short.columns["ts_ns"].max()
    known = some[(some.ts_ns <= ends) & some.lost.notna()]
    expected = everything.merge(known[["ts_ns", "flow_id", "direction"]]).drop_duplicates()
    assert set(known.flow_id) == set(everything.flow_id[everything.ts_ns <= ends])
    assert known.delay_ns.median() == expected.delay_ns.median()
    slots = cct.compute_slots(cut_short, behind, slot_ms=10)
    assert slots.groupby("flow_id").drops_estimate.count().min() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED_NAMES)
def test_losses_are_those_the_kernels_queue_counted(name):
    """And the per-slot estimate agrees; the longest delay is that of a full queue, where the queue has a limit only."""
    trace = next(t for t in BUNDLED if t["name"] == name)
    ingress, egress = (
        cct.read_capture(str(TRACES / f"{name}.{tap}.pcap.gz")) for tap in ("ingress", "egress")
    )
    delays = metrics.QueueDelay()
    delays.update(ingress, egress)
    loss, table = delays.loss(), delays.result()
    assert loss.packets_lost.sum() == trace["queue_dropped"]
    tcp_data = table.flow_id.isin(ingress.keys.flow_id[ingress.keys.protocol == 6]) & (
        table.payload_bytes > 0
    )
    assert compute_slots(ingress, egress).drops_estimate.sum() == table.lost[tcp_data].sum()
    kind, _, limit = trace["queue"].partition(" limit ")
    if kind == "pfifo":
        full_ms = int(limit) * 1514 * 8e-3 / trace["rate_mbps"]
        assert 0.9 * full_ms < table.delay_ns.max() / 1e6 < 1.05 * full_ms


def test_cbiq_of_a_lossless_capture_is_the_queue_packet_by_packet():
    """Bytes that came in before the end of a slot and left after it, from the delays of the single packets."""
    ingress, egress = (
        cct.read_capture(str(TRACES / f"fq-codel-ecn.{tap}.pcap.gz")) for tap in ("ingress", "egress")
    )
    table = compute_slots(ingress, egress, slot_ms=2)
    table = table[table.cbiq_bytes.notna()]
    assert len(table) > 5000
    delays = metrics.queue_delay(ingress, egress)
    assert not delays.lost.any()
    origin = min(cap.columns["ts_ns"][0] for cap in (ingress, egress)) // (2 * MS)
    for flow, rows in table.groupby("flow_id"):
        mine = delays[(delays.flow_id == flow) & (delays.payload_bytes > 0)]
        size, came_in = mine.payload_bytes.to_numpy(np.int64), mine.ts_ns.to_numpy()
        left = came_in + mine.delay_ns.to_numpy(np.int64)
        end = (rows.slot.to_numpy() + origin + 1) * 2 * MS
        arrived, departed = (np.append(0, np.cumsum(size))[np.searchsorted(t, end)] for t in (came_in, left))
        assert (arrived - departed).tolist() == rows.cbiq_bytes.tolist()


def test_streaming_two_captures_is_reading_them_whole():
    paths = [str(TRACES / f"three-ccas-ipv6.{tap}.pcap.gz") for tap in ("ingress", "egress")]
    ingress, egress = map(cct.read_capture, paths)
    delays, rates = metrics.QueueDelay(), metrics.RateTable(0.1)
    nothing = [cap.select(start_s=1e6) for cap in (ingress, egress)]
    parts = [iter(cct.iter_capture(path, packets=n)) for path, n in zip(paths, (3000, 4700), strict=True)]
    slots = SlotTable()
    while True:
        came_in, went_out = (next(part, None) for part in parts)
        if came_in is None and went_out is None:
            break
        both = (nothing[0] if came_in is None else came_in, nothing[1] if went_out is None else went_out)
        delays.update(*both)
        slots.update(*both)
        rates.update(both[0])
    pd.testing.assert_frame_equal(delays.result(), metrics.queue_delay(ingress, egress))
    pd.testing.assert_frame_equal(slots.result(), compute_slots(ingress, egress))
    pd.testing.assert_frame_equal(
        rates.result().drop(columns=["goodput_bytes", "goodput_mbps"]), metrics.throughput(ingress, 0.1)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cctoolkit.errors.TruncatedCaptureWarning")
def test_real_captures_give_sane_tables_or_one_clear_line():
    files = [f for f in sorted(SHARED.rglob("*")) if f.is_file() and f.suffix not in (".tsv", ".md")]
    if not files:
        pytest.skip("no captures beside the repository")
    read = 0
    for file in files:
        try:
            cap = cct.read_capture(str(file))
        except CCToolkitError:
            continue
        read += 1
        if (np.diff(cap.columns["ts_ns"]) >= 0).all():  # else packets seem to leave before they came
            # against itself: all there at once, so no queue
            assert not len(metrics.queue_delay(cap, cap, check_taps=False)), file
        try:
            schema.check(compute_slots(cap, slot_ms=100), "slots")
            rates = metrics.goodput(cap)
            assert (rates.goodput_bytes >= 0).all(), file
            assert metrics.jain_over_time(cap).jain_index.dropna().between(0, 1 + 1e-9).all(), file
            assert metrics.link_utilisation(cap, 10).bytes.sum() == cap.columns["wire_bytes"].sum(), file
        except ParameterError as err:  # packets from different years
            assert "max_rows" in str(err), file
    assert read > 100


# --- corners --------------------------------------------------------------------------------------------------


def test_nothing_in_nothing_out():
    none = packets([])
    for table in (
        metrics.throughput(none),
        metrics.goodput(none),
        metrics.link_utilisation(none, 10),
        metrics.flow_completion_times(none),
        metrics.queue_delay(none, none),
        metrics.queue_loss(none, none),
    ):
        assert len(table) == 0
        assert len(table.columns) > 3


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda c: metrics.goodput(c, bin_s=0), "bin_s"),
        (lambda c: metrics.throughput(c, flow_ids=[-3]), "flow_ids"),
        (lambda c: metrics.throughput(c, bin_s=1e-9, max_rows=1000), "max_rows"),
        (lambda c: metrics.link_utilisation(c, 0), "rate_mbps"),
        (lambda c: metrics.link_utilisation(c, 1, direction=2), "direction"),
        (lambda c: metrics.link_utilisation(c, 1, bin_s=1e-9, max_rows=1000), "max_rows"),
        (lambda c: metrics.queue_delay(c, c, max_delay_s=-1), "max_delay_s"),
        (lambda c: metrics.jain_over_time(c, of="latency"), "of"),
    ],
)
def test_bad_arguments_are_named(call, named):
    with pytest.raises(ParameterError, match=named):
        call(constant_rate(0, 100, 10))
