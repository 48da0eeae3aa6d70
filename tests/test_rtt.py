"""RTT pairing: the kernels against their naive twins, and what each of its rules says, one test a rule."""

from __future__ import annotations

import dataclasses
import itertools
import random
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings, strategies as st
from tools import examples

sys.path.insert(0, str(Path(__file__).parent))
import made_packets
import naive_rtt
from naive_rtt import ACK, FIN, RST, SYN, as_tuples, columns, packet, stream

from cctoolkit import schema
from cctoolkit.analysis import rtt
from cctoolkit.analysis.handshake import LONGEST_HALF_NS
from cctoolkit.analysis.rtt import DataPlaneTables, RttPairing, rtt_samples, rtt_summary
from cctoolkit.capture.keys import CaptureMeta
from cctoolkit.capture.model import Capture
from cctoolkit.capture.synth.mawi import MawiLike
from cctoolkit.errors import ParameterError, SchemaError

MS = 1_000_000


def in_batches(pairing, packets, cuts=()):
    """All samples of `packets` cut at `cuts` (fractions of their number)."""
    cols = columns(packets)
    edges = [0, *sorted(round(len(packets) * cut) for cut in cuts), len(packets)]
    found = []
    for start, stop in itertools.pairwise(edges):
        found += as_tuples(pairing.update({name: c[start:stop] for name, c in cols.items()}))
    return found


def samples_ms(packets, method="seq_ack", **options):
    """(time of the ACK, direction of the data, RTT) in milliseconds."""
    table = rtt_samples(columns(packets), method, **options)
    schema.check(table, "rtt_samples")
    assert (table["method"] == method).all()
    return [
        (t / MS, d, r / MS)
        for t, d, r in zip(table["ts_ns"], table["direction"], table["rtt_ns"], strict=True)
    ]


# ---------------------------------------------------------------- kernels and twins

streams = st.builds(stream, st.integers(0, 2**32), st.integers(0, 120))
openings = st.builds(naive_rtt.openings, st.integers(0, 2**32), st.integers(0, 120))
cuttings = st.lists(st.floats(0, 1), max_size=4)


@pytest.fixture(autouse=True)
def small_pools(monkeypatch):
    """Pools of two nodes, so that every test makes them grow."""
    monkeypatch.setattr(rtt, "_FIRST_NODES", 2)


@given(streams, cuttings, st.booleans(), st.sampled_from([1, 2, 64]))
@settings(max_examples=examples(400), deadline=None)
def test_seq_ack_is_its_naive_twin(packets, cuts, karn, one_way):
    pairing = RttPairing("seq_ack", karn=karn, one_way_segments=one_way)
    assert in_batches(pairing, packets, cuts) == naive_rtt.seq_ack(packets, karn, one_way)


def recorded_twice(packets, lag_ns):
    """Each packet again `lag_ns` later, as mirror ports do."""
    return sorted(
        [*packets, *({**p, "ts_ns": p["ts_ns"] + lag_ns} for p in packets)], key=lambda p: p["ts_ns"]
    )


@given(streams, cuttings, st.sampled_from([0, 1000, 199_999, 200_000]))
@settings(max_examples=examples(200), deadline=None)
def test_seq_ack_of_copies_is_its_naive_twin(packets, cuts, lag_ns):
    twice = recorded_twice(packets, lag_ns)
    assert in_batches(RttPairing("seq_ack"), twice, cuts) == naive_rtt.seq_ack(twice)


@given(streams, cuttings, st.sampled_from([1, 2, 64]))
@settings(max_examples=examples(200), deadline=None)
def test_timestamps_is_its_naive_twin(packets, cuts, one_way):
    pairing = RttPairing("timestamps", one_way_segments=one_way)
    assert in_batches(pairing, packets, cuts) == naive_rtt.timestamps(packets, one_way)


@given(streams | openings, cuttings)
@example(naive_rtt.openings(58984416, 35), [])  # a SYN/ACK without a timestamp between two that have one
@settings(max_examples=examples(600), deadline=None)
def test_handshake_is_its_naive_twin(packets, cuts):
    assert in_batches(RttPairing("handshake"), packets, cuts) == naive_rtt.handshake(packets)


@given(
    streams,
    cuttings,
    st.sampled_from([1, 2, 8, 1024]),
    st.integers(1, 3),
    st.sampled_from([1, 3, 32]),
    st.sampled_from([1, 5, 1000]),
    st.booleans(),
    st.sampled_from([0, 16, 22]),
)
@settings(max_examples=examples(400), deadline=None)
def test_data_plane_is_its_naive_twin(packets, cuts, size, stages, bits, timeout_ms, per_direction, tick):
    tables = DataPlaneTables(size, stages, timeout_ms, bits, per_direction, tick)
    pairing = RttPairing("data_plane", tables=tables)
    samples, counters = naive_rtt.data_plane(packets, size, stages, timeout_ms, bits, per_direction, tick)
    assert in_batches(pairing, packets, cuts) == samples
    assert pairing.counters == counters


@given(streams)
@settings(max_examples=examples(100), deadline=None)
def test_karn_only_leaves_out(packets):
    """Samples with Karn's rule are samples without it (as long as no RST takes part, which only tshark lets answer)."""
    packets = [p for p in packets if not p["tcp_flags"] & RST]
    with_rule = in_batches(RttPairing(karn=True), packets)
    assert set(with_rule) <= set(in_batches(RttPairing(karn=False), packets))


@pytest.mark.slow
def test_the_streams_above_reach_everything():
    """A generator without samples, doubts and drops would prove nothing."""
    seen = {}
    for method in rtt.METHODS:
        for seed in range(300):
            pairing = RttPairing(
                method,
                one_way_segments=2,
                tables=DataPlaneTables(8, 2, 20) if method == "data_plane" else None,
            )
            in_batches(pairing, (naive_rtt.openings if method == "handshake" else stream)(seed, 120))
            for name, count in pairing.counters.items():
                seen[method, name] = seen.get((method, name), 0) + count
    never = {
        ("timestamps", "karn_suppressed"),
        ("handshake", "one_way_dropped"),
    }
    rare = {key for key, count in seen.items() if count < 8}
    assert rare == never, {key: seen[key] for key in rare ^ never}


# ---------------------------------------------------------------- seq_ack, rule by rule

MSS = 1000


def exchange(*segments):
    """Packets from ``(ms, first byte, length)`` of side 0 and ``(ms, ack)`` of side 1, in order of time."""
    made = [packet(s[0], 0, s[1], 0, s[2]) if len(s) == 3 else packet(s[0], 1, 0, s[1]) for s in segments]
    return sorted(made, key=lambda p: p["ts_ns"])


def test_expected_ack_counts_syn_and_fin():
    packets = [
        packet(0, 0, 99, flags=SYN),
        packet(10, 1, 499, 100, flags=SYN | ACK),
        packet(30, 0, 100, 500),
        packet(40, 0, 100, 500, payload=50, flags=FIN | ACK),
        packet(70, 1, 500, 151, flags=FIN | ACK),
        packet(75, 0, 151, 501),
    ]
    assert samples_ms(packets) == [(10, 0, 10), (30, 1, 20), (70, 0, 30), (75, 1, 5)]


def test_cumulative_ack_samples_the_last_segment_it_covers():
    assert samples_ms(exchange((0, 0, MSS), (1, 1000, MSS), (2, 2000, MSS), (12, 2000), (20, 3000))) == [
        (12, 0, 11),
        (20, 0, 18),
    ]


def test_duplicate_acks_give_nothing_more():
    assert samples_ms(exchange((0, 0, MSS), (9, 1000), (10, 1000), (11, 1000))) == [(9, 0, 9)]


def test_ack_inside_a_segment_gives_none_and_its_end_does():
    assert samples_ms(exchange((0, 0, 65160), (10, 1448), (11, 2896), (30, 65160))) == [(30, 0, 30)]


def test_sequence_numbers_wrap():
    start = 2**32 - 1500
    packets = exchange(
        (0, start, MSS), (1, start + 1000, MSS), (2, start + 2000, MSS), (9, start + 2000), (10, start + 3000)
    )
    assert samples_ms(packets) == [(9, 0, 8), (10, 0, 8)]


def test_ack_before_its_segment_is_no_answer():
    """Of two captures merged: the ACK comes first, and the next ACK of the same number is no answer either."""
    assert samples_ms(exchange((0, 0, MSS), (5, 1000), (6, 2000), (7, 1000, MSS), (30, 2000))) == [(5, 0, 5)]


def test_negative_samples_are_counted_not_given():
    packets = [packet(5, 0, 0, payload=10), packet(3, 1, 0, 10)]
    table = rtt_samples(columns(packets))
    assert len(table) == 0
    assert table.attrs["rtt"]["backwards"] == 1


def test_both_copies_of_a_retransmission_are_left_out():
    packets = exchange((0, 0, MSS), (100, 0, MSS), (120, 1000), (130, 1000, MSS), (140, 2000))
    assert samples_ms(packets) == [(140, 0, 10)]
    assert samples_ms(packets, karn=False) == [(120, 0, 120), (140, 0, 10)]


def test_segments_recorded_twice_are_samples():
    packets = exchange((0, 0, MSS), (0.05, 1000, MSS), (20, 1000), (25, 2000), (30, 2000, MSS), (55, 3000))
    assert samples_ms(recorded_twice(packets, 100_000)) == samples_ms(packets)
    assert len(samples_ms(packets)) == 3
    assert samples_ms(recorded_twice(packets, 200_000)) == []


def test_a_segment_with_the_bytes_of_two_is_no_copy_of_the_second():
    """It sends both again, so their ACKs are in doubt: the example is a speaker's, which asks twice within 0.1 ms."""
    before = [(0, 0, MSS), (0.05, 1000, MSS), (0.1, 0, 2 * MSS)]
    packets = exchange(*before, (1, 1000), (1.7, 2000), (30, 2000, MSS), (55, 3000))
    assert samples_ms(packets) == [(55, 0, 25)]
    once_acknowledged = exchange((0, 0, MSS), (1, 1000), (1.05, 1000, MSS), (1.1, 500, 1500), (3, 2000))
    assert samples_ms(once_acknowledged) == [(1, 0, 1)]


def test_what_waited_behind_a_hole_is_left_out():
    """1000 is lost before the tap, 2000 arrives and waits: its ACK is late by the recovery."""
    before = [(0, 0, MSS), (1, 2000, MSS), (10, 1000)]
    packets = exchange(*before, (300, 1000, MSS), (310, 3000), (311, 3000, MSS), (320, 4000))
    assert samples_ms(packets) == [(10, 0, 10), (320, 0, 9)]
    assert samples_ms(packets, karn=False) == [(10, 0, 10), (310, 0, 309), (320, 0, 9)]
    in_steps = exchange(*before, (300, 1000, MSS), (310, 2000), (310.1, 3000), (311, 3000, MSS), (320, 4000))
    assert samples_ms(in_steps) == [(10, 0, 10), (320, 0, 9)]


def test_retransmission_cut_differently_is_left_out():
    assert samples_ms(exchange((0, 0, MSS), (1, 1000, MSS), (90, 0, 2000), (99, 2000))) == []
    assert samples_ms(exchange((0, 0, 2000), (90, 0, MSS), (99, 1000), (100, 2000))) == []


def test_retransmission_with_new_bytes_is_a_sample_of_them():
    assert samples_ms(exchange((0, 0, MSS), (90, 0, 1500), (99, 1500))) == [(99, 0, 9)]


def test_segments_sent_after_a_retransmission_are_samples():
    """Also while the retransmitted range is not acknowledged: these were sent once, and later."""
    assert samples_ms(exchange((0, 0, MSS), (50, 0, MSS), (51, 1000, MSS), (61, 2000))) == [(61, 0, 10)]


def test_spurious_retransmission_puts_nothing_in_doubt():
    """0 to 1000 had been acknowledged; the segment behind it is in flight and is a good sample."""
    assert samples_ms(exchange((0, 0, MSS), (1, 1000, MSS), (9, 1000), (9.5, 0, MSS), (11, 2000))) == [
        (9, 0, 9),
        (11, 0, 10),
    ]


def test_keep_alives():
    none = exchange((0, 0, MSS), (10, 1000), (5000, 999, 0), (5010, 1000))
    one = exchange((0, 0, MSS), (10, 1000), (5000, 999, 1), (5010, 1000))
    assert samples_ms(none) == samples_ms(one) == [(10, 0, 10)]
    assert samples_ms(none, karn=False) == [(10, 0, 10)]
    assert samples_ms(one, karn=False) == [(10, 0, 10), (5010, 0, 10)]


@pytest.mark.parametrize("flags", [RST, RST | ACK])
def test_rst_is_no_answer(flags):
    packets = [packet(0, 0, 0, payload=10), packet(10, 1, 0, 10, flags=flags)]
    assert samples_ms(packets) == []
    assert samples_ms(packets, karn=False) == ([(10, 0, 10)] if flags & ACK else [])


def test_both_directions_at_once():
    packets = [packet(0, 0, 0, 70, payload=10), packet(5, 1, 70, 10, payload=20), packet(11, 0, 10, 90)]
    assert samples_ms(packets) == [(5, 0, 5), (11, 1, 6)]


def test_a_new_connection_on_the_same_flow_starts_anew():
    """Its numbers are far below the old ones; the old segment is not answered by the new connection."""
    old = [packet(0, 0, 3 * 10**9, payload=10), packet(1, 1, 7, 3 * 10**9)]
    new = [
        packet(50, 0, 99, flags=SYN),
        packet(60, 1, 4, 100, flags=SYN | ACK),
        packet(70, 0, 100, 5, payload=10),
    ]
    packets = [*old, *new, packet(85, 1, 5, 110)]
    assert samples_ms(packets) == [(60, 0, 10), (70, 1, 10), (85, 0, 15)]


def test_one_stray_packet_does_not_end_the_samples():
    """A sequence number or an ACK far outside any window costs what is outstanding, no more."""
    for stray in (
        packet(12, 0, 2**31, payload=10),
        packet(12, 1, 0, 2**31),
        packet(12, 1, 0, 1000 + 2**20 + 1),
    ):
        packets = exchange((0, 0, MSS), (10, 1000), (20, 1000, MSS), (30, 2000))
        packets.insert(2, stray)
        assert samples_ms(packets)[-1] == (30, 0, 10), stray


def test_a_gigabyte_without_an_ack_is_given_up():
    """Past 2**31 bytes the first segment would look as if it were ahead of every ACK, and block all."""
    start, step = 77, 2**20
    data = [packet(i, 0, start + i * step, payload=step) for i in range(2200)]
    packets = [packet(0, 1, 0, start), *data, packet(2200, 1, 0, start + 2200 * step)]
    assert samples_ms(packets) == [(2200, 0, 1)]


def test_one_way_flows_keep_only_the_newest():
    data = [packet(i, 0, 10 * i, payload=10) for i in range(100)]
    late = [packet(200, 1, 0, 10 * 95), packet(201, 1, 0, 1000)]
    pairing = RttPairing(one_way_segments=4)
    assert [s[4] / MS for s in in_batches(pairing, data + late)] == [201 - 99]
    assert pairing.counters["one_way_dropped"] == 96
    assert pairing.counters["segments"] == 100
    both_seen = [packet(0, 1, 0, 0), *data, *late]
    assert samples_ms(both_seen, one_way_segments=4) == [(200, 0, 106), (201, 0, 102)]


def test_one_way_flows_do_not_fill_the_pool():
    rng = np.random.default_rng(1)
    n = 200_000
    cols = columns([packet(0, 0)]) | {
        "ts_ns": np.arange(n),
        "flow_id": rng.integers(0, 50, n).astype(np.uint32),
    }
    for name, dtype in schema.PACKETS.items():
        cols[name] = np.resize(cols[name], n).astype(dtype)
    cols["seq"] = np.arange(n, dtype=np.uint32) * 100
    cols["payload_bytes"][:] = 100
    pairing = RttPairing()
    assert len(pairing.update(cols)["ts_ns"]) == 0
    assert pairing._counts["used"] <= 50 * 64 + 1


def test_samples_are_true_where_the_truth_is_known():
    """Synthetic traffic with loss before and behind the tap and reordering; its round trips are given.

    A sample can be longer by what its receiver waits (40 ms where a segment behind was lost) and by jitter. Without
    Karn's rule some are longer by a retransmission timeout.
    """
    model = MawiLike(150_000, seed=7, loss=0.01, reordering=0.05, duration_s=20.0)
    too_long = {}
    for karn in (True, False):
        pairing = RttPairing(karn=karn)
        parts = [pairing.update(cols) for cols, _ in model.parts(50_000)]
        flow, side, rtt_ns = (
            np.concatenate([p[name] for p in parts]) for name in ("flow_id", "direction", "rtt_ns")
        )
        truth = model.flows(flow)
        to_side = [
            truth[["rtt_responder_ns", "jitter_responder_ns"]],
            truth[["rtt_initiator_ns", "jitter_initiator_ns"]],
        ]
        base, jitter = np.where(side == 0, *(t.to_numpy().T for t in to_side))
        assert len(rtt_ns) > 10_000
        assert (rtt_ns >= base).all()
        too_long[karn] = int((rtt_ns > base + 20 * jitter + 50 * MS).sum())
    assert too_long[True] == 0
    assert too_long[False] > 50


# ---------------------------------------------------------------- the other methods

OPENED = [packet(0, 0, 99, flags=SYN), packet(10, 1, 499, 100, flags=SYN | ACK)]


def stamped(ms, side, tsval, tsecr, **more):
    return packet(ms, side, tsval=tsval % 2**32, tsecr=tsecr % 2**32, has_ts=True, **more)


def test_handshake_is_the_sum_of_its_halves():
    packets = [*OPENED, packet(30, 0, 100, 500)]
    assert samples_ms(packets, "handshake") == [(30, 0, 30)]
    assert sum(rtt_ms for *_, rtt_ms in samples_ms(packets)) == 30


def test_handshake_needs_no_other_direction():
    assert samples_ms([packet(0, 0, 99, flags=SYN), packet(30, 0, 100, 500)], "handshake") == [(30, 0, 30)]


@pytest.mark.parametrize(
    "answer",
    [
        packet(30, 1, 0, 100, flags=RST | ACK),  # refused
        packet(30, 0, 100, 500, flags=RST | ACK),  # given up
        packet(30, 1, 500, 100),  # of the other side
        packet(30, 0, 5000, 500),  # not the first segment
        packet(30, 0, 100, 500, flags=FIN | ACK),
        packet(30, 0, 100, 500, payload=20),  # the ACK was lost, or it waited for the application
    ],
)
def test_not_a_handshake(answer):
    assert samples_ms([packet(0, 0, 99, flags=SYN), answer], "handshake") == []
    if answer["direction"] == 0:
        assert samples_ms([*OPENED, answer], "handshake") == []


def test_handshake_with_data_in_the_syn():
    for seq in (100, 150):  # accepted or not
        packets = [packet(0, 0, 99, payload=50, flags=SYN), packet(30, 0, seq, 500)]
        assert samples_ms(packets, "handshake") == [(30, 0, 30)]


# ---------------------------------------------------------------- handshakes with losses
#
# A client 5 ms before the tap, a server 10 ms behind it: 30 ms. Both retransmit after 1 s. What is lost before the tap
# does not appear; what is lost behind it does.


def seen_at_the_tap(*sent, stamps=True):
    """Packets that passed the tap, from (what, ms at which it passed, ms at which it was sent, of what it echoes).

    Timestamps are the milliseconds, shifted.
    """
    rows = []
    for what, passed, own, echoed in sent:
        side = what == "syn_ack"
        if stamps:
            tsval, tsecr = own + (7000 if side else 300), echoed + (300 if side else 7000)
            more = {"tsval": tsval, "tsecr": tsecr if what != "syn" else 0, "has_ts": True}
        else:
            more = {}
        if what == "syn":
            rows.append(packet(passed, 0, 99, flags=SYN, **more))
        elif what == "syn_ack":
            rows.append(packet(passed, 1, 499, 100, flags=SYN | ACK, **more))
        else:
            rows.append(packet(passed, 0, 100, 500, payload=80 * (what == "data"), **more))
    return rows


SYN_AGAIN = ("syn", 1005, 1000, 0)
LOSSES = {  # name: what passed the tap, milliseconds with timestamps, without
    "none": ([("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), ("ack", 35, 30, 15)], 30, 30),
    "the SYN, before the tap": (
        [SYN_AGAIN, ("syn_ack", 1025, 1015, 1000), ("ack", 1035, 1030, 1015)],
        30,
        30,
    ),
    "the SYN, behind the tap": (
        [("syn", 5, 0, 0), SYN_AGAIN, ("syn_ack", 1025, 1015, 1000), ("ack", 1035, 1030, 1015)],
        30,
        None,
    ),
    "two SYNs, behind the tap": (
        [
            *[("syn", 5, 0, 0), SYN_AGAIN, ("syn", 3005, 3000, 0)],
            *[("syn_ack", 3025, 3015, 3000), ("ack", 3035, 3030, 3015)],
        ],
        30,
        None,
    ),
    "the SYN/ACK before the tap, and the SYN arrives again": (  # Linux echoes the first SYN still
        [("syn", 5, 0, 0), SYN_AGAIN, ("syn_ack", 1025, 1015, 0), ("ack", 1035, 1030, 1015)],
        None,
        None,
    ),
    "the SYN/ACK before the tap, and the server repeats it": (
        [("syn", 5, 0, 0), ("syn_ack", 1025, 1015, 0), ("ack", 1035, 1030, 1015)],
        None,
        None,
    ),
    "the SYN/ACK behind the tap, and the SYN arrives again": (
        [
            *[("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), SYN_AGAIN],
            *[("syn_ack", 1025, 1015, 0), ("ack", 1035, 1030, 1015)],
        ],
        30,
        None,
    ),
    "the SYN/ACK behind the tap, and the server repeats it": (
        [("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), ("syn_ack", 1030, 1020, 0), ("ack", 1040, 1035, 1020)],
        30,
        None,
    ),
    "two SYN/ACKs behind the tap": (
        [
            *[("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), SYN_AGAIN, ("syn_ack", 1025, 1015, 0)],
            *[("syn", 3005, 3000, 0), ("syn_ack", 3025, 3015, 0), ("ack", 3035, 3030, 3015)],
        ],
        30,
        None,
    ),
    "the ACK before the tap, answered again with the echo of the first SYN/ACK": (
        [("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), ("syn_ack", 1030, 1020, 0), ("ack", 1040, 1035, 15)],
        None,
        None,
    ),
    "the ACK before the tap, and data follows": (
        [("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), ("data", 85, 80, 15)],
        None,
        None,
    ),
    "the ACK and the first data before the tap": (
        [("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), ("data", 2843, 2838, 15), ("ack", 2900, 2895, 15)],
        None,
        None,
    ),
    "the ACK before the tap, much later another": (
        [("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), ("ack", 5035, 5030, 15)],
        None,
        None,
    ),
    "none, and no SYN/ACK was captured": ([("syn", 5, 0, 0), ("ack", 35, 30, 15)], 30, 30),
    "the SYN, and no SYN/ACK was captured": (
        [("syn", 5, 0, 0), SYN_AGAIN, ("ack", 1035, 1030, 15)],
        None,
        None,
    ),
    "the SYN/ACK or the ACK, and no SYN/ACK was captured": (
        [("syn", 5, 0, 0), ("ack", 10_005, 0, 15)],
        None,
        None,
    ),
    "none, but a mirror port copies": (
        [
            *[("syn", 5, 0, 0), ("syn", 5.02, 0, 0), ("syn_ack", 25, 15, 0), ("syn_ack", 25.02, 15, 0)],
            *[("ack", 35, 30, 15), ("ack", 35.02, 30, 15)],
        ],
        30,
        30,
    ),
}


@pytest.mark.parametrize("stamps", [True, False])
@pytest.mark.parametrize("lost", LOSSES)
def test_what_is_lost_never_makes_a_wrong_handshake_rtt(lost, stamps):
    sent, with_stamps, without = LOSSES[lost]
    expected = with_stamps if stamps else without
    packets = seen_at_the_tap(*sent, stamps=stamps)
    assert [rtt_ms for *_, rtt_ms in samples_ms(packets, "handshake")] == [expected] * (expected is not None)
    assert naive_rtt.handshake(packets) == in_batches(RttPairing("handshake"), packets)


def test_an_echo_of_something_else_proves_that_the_tap_missed_it():
    """The SYN/ACK answers a SYN, or the ACK a SYN/ACK, that did not pass the tap."""
    missed_syn = seen_at_the_tap(SYN_AGAIN, ("syn_ack", 1010, 1000, 0), ("ack", 1020, 1015, 1000))
    missed_syn_ack = seen_at_the_tap(("syn", 5, 0, 0), ("syn_ack", 25, 15, 0), ("ack", 35, 30, 10))
    assert samples_ms(missed_syn, "handshake") == samples_ms(missed_syn_ack, "handshake") == []


def test_timestamps_too_coarse_to_tell_two_syns_apart():
    packets = seen_at_the_tap(
        ("syn", 5, 0, 0), ("syn", 1005, 0, 0), ("syn_ack", 1025, 15, 0), ("ack", 1035, 30, 15)
    )
    assert samples_ms(packets, "handshake") == []


def test_an_ack_of_later_data_ends_no_handshake():
    """The ACK was lost before the tap; this one is for what the responder sent then."""
    packets = [*OPENED, packet(500, 1, 500, 100, 80), packet(530, 0, 100, 580)]
    assert samples_ms(packets, "handshake") == []
    assert samples_ms([packets[0], *packets[2:]], "handshake") == []  # not even where no SYN/ACK was seen


def test_a_clock_that_is_set_back_gives_no_handshake_rtt():
    syn, syn_ack = OPENED
    for packets in (
        [syn, syn_ack, packet(9, 0, 100, 500)],
        [syn, packet(-5, 1, 499, 100, flags=SYN | ACK), packet(20, 0, 100, 500)],
        [syn, packet(-5, 0, 100, 500)],
    ):
        pairing = RttPairing("handshake")
        assert in_batches(pairing, packets) == []
        assert pairing.counters["backwards"] == 1


@given(openings)
@settings(max_examples=examples(300), deadline=None)
def test_a_handshake_rtt_is_never_longer_than_its_two_halves_may_be(packets):
    found = in_batches(RttPairing("handshake"), packets)
    assert all(0 <= rtt <= 2 * LONGEST_HALF_NS for *_, rtt in found)


def test_timestamps_first_sight_to_first_echo():
    packets = [
        stamped(0, 0, 100, 0, flags=SYN),
        stamped(10, 1, 900, 100, flags=SYN | ACK),
        stamped(25, 0, 125, 900),
        stamped(26, 0, 125, 900),  # neither value is new, the echo was matched
        stamped(35, 1, 925, 125),
        stamped(36, 1, 925, 125),
    ]
    assert samples_ms(packets, "timestamps") == [(10, 0, 10), (25, 1, 15), (35, 0, 10)]


def test_timestamps_wrap():
    packets = [stamped(i, 0, 2**32 - 2 + i, 1) for i in range(5)] + [
        stamped(9 + i, 1, 7, 2**32 - 2 + i) for i in range(5)
    ]
    # 0 is no value, neither sent nor echoed
    assert samples_ms(packets, "timestamps") == [(9, 0, 9), (10, 0, 9), (12, 0, 9), (13, 0, 9)]


def test_timestamps_need_the_ack_flag_and_the_option():
    assert samples_ms([stamped(0, 0, 5, 0), stamped(9, 1, 7, 5, flags=SYN)], "timestamps") == []
    assert samples_ms([packet(0, 0, tsval=5), packet(9, 1, tsecr=5)], "timestamps") == []


# ---------------------------------------------------------------- data plane


def test_crc_tables_give_the_published_check_values():
    """CRC-32 as zlib's; CRC-32C of "123456789" is 0xE3069283 (RFC 3720, appendix B.4, gives its other examples)."""
    for table, expected in (
        (rtt.kernels.CRC32_TABLE, zlib.crc32(b"123456789")),
        (rtt.kernels.CRC32C_TABLE, 0xE3069283),
    ):
        crc = 0xFFFFFFFF
        for byte in b"123456789":
            crc = crc >> 8 ^ int(table[(crc ^ byte) & 255])
        assert crc ^ 0xFFFFFFFF == expected
    assert naive_rtt.crc32c(b"123456789") == 0xE3069283


@given(streams)
@settings(max_examples=50, deadline=None)
def test_large_tables_miss_nothing_exact_memory_finds(packets):
    """Where nothing is sent twice, large tables find what seq_ack finds (and more: also below a higher ACK)."""
    sent, once = set(), []
    for p in packets:
        end = (p["flow_id"], p["direction"], p["seq"] + p["payload_bytes"])
        if not p["tcp_flags"] & (SYN | FIN | RST) and not (p["payload_bytes"] and end in sent):
            once.append(p)
            sent.add(end)
    tables = DataPlaneTables(1 << 20, 4, 86_400_000)
    exact = in_batches(RttPairing(karn=True), once)
    assert set(exact) <= set(in_batches(RttPairing("data_plane", tables=tables), once))


def busy(n=6000, flows=40):
    """Many segments in flight at once, each acknowledged after 20 ms, none lost."""
    packets = []
    for i in range(n):
        flow, k = i % flows, i // flows
        packets.append(packet(i * 0.01, 0, k * 100, payload=100, flow=flow))
        packets.append(packet(i * 0.01 + 20, 1, 0, k * 100 + 100, flow=flow))
    return sorted(packets, key=lambda p: p["ts_ns"])


def test_what_the_bounds_cost():
    packets = busy()
    assert len(samples_ms(packets)) == 6000
    lost = []
    for size in (1 << 8, 1 << 10, 1 << 12, 1 << 16):
        table = rtt_samples(columns(packets), "data_plane", tables=DataPlaneTables(size))
        cost = table.attrs["data_plane"]
        assert (cost["table_size"], cost["stages"], cost["timeout_ms"], cost["signature_bits"]) == (
            size,
            2,
            1000,
            32,
        )
        assert cost["matched"] == len(table) == cost["inserted"]
        assert cost["inserted"] + cost["not_inserted"] == cost["segments"] == 6000
        lost.append(cost["not_inserted"])
    assert lost == sorted(lost, reverse=True) and lost[0] > 1000 and lost[-1] == 0


def test_a_second_stage_takes_what_collides_in_the_first():
    """With one CRC salted for each stage it would not: keys that collide once would collide always."""
    packets = busy()
    one, two = (
        rtt_samples(columns(packets), "data_plane", tables=DataPlaneTables(size, stages)).attrs["data_plane"]
        for size, stages in ((1 << 13, 1), (1 << 12, 2))
    )
    assert two["not_inserted"] < one["not_inserted"] / 2  # of the same memory


def test_entries_expire():
    late = [packet(0, 0, 0, payload=10), packet(51, 1, 0, 10)]
    table = rtt_samples(columns(late), "data_plane", tables=DataPlaneTables(1, 1, timeout_ms=50))
    assert len(table) == 0 and table.attrs["data_plane"]["matched_late"] == 1
    replaced = [packet(0, 0, 0, payload=10), packet(51, 0, 10, payload=10), packet(60, 1, 0, 20)]
    table = rtt_samples(columns(replaced), "data_plane", tables=DataPlaneTables(1, 1, timeout_ms=50))
    assert table["rtt_ns"].tolist() == [9 * MS] and table.attrs["data_plane"]["expired"] == 1
    taken = [packet(0, 0, 0, payload=10), packet(50, 0, 10, payload=10), packet(60, 1, 0, 20)]
    table = rtt_samples(columns(taken), "data_plane", tables=DataPlaneTables(1, 1, timeout_ms=50))
    assert len(table) == 0 and table.attrs["data_plane"]["not_inserted"] == 1


def test_ages_are_counted_in_ticks():
    tick_ms = (1 << 22) / MS  # 4.19 ms; a timeout of 10 ms is two of them
    tables = DataPlaneTables(1, 1, timeout_ms=10, tick_bits=22)
    for sent, acked, found in ((0, 2.99, 1), (0, 3, 0), (0.99, 2.99, 1), (0.99, 3, 0)):
        pair = [packet(sent * tick_ms, 0, 0, payload=10), packet(acked * tick_ms, 1, 0, 10)]
        table = rtt_samples(columns(pair), "data_plane", tables=tables)
        assert len(table) == found and table.attrs["data_plane"]["matched_late"] == 1 - found
        assert table["rtt_ns"].tolist() == [pair[1]["ts_ns"] - pair[0]["ts_ns"]] * found


def test_a_set_for_each_direction():
    """Both directions' segments collide in one entry, but not in one entry each."""
    both = [packet(0, 0, 0, 0, payload=10), packet(1, 1, 0, 0, payload=10)]
    both += [packet(2, 0, 10, 10), packet(3, 1, 10, 10)]
    for flow in range(8):  # whichever of the two FID is larger
        packets = [p | {"flow_id": flow} for p in both]
        one = samples_ms(packets, "data_plane", tables=DataPlaneTables(1, 1))
        two = samples_ms(packets, "data_plane", tables=DataPlaneTables(1, 1, per_direction=True))
        assert one == [(3, 0, 3)]
        assert two == [(2, 1, 1), (3, 0, 3)]


def five_tuple(version, flow):
    """A made-up five-tuple: (addresses, ports) of the initiator and the responder."""
    rng = random.Random(flow)
    return [(rng.randbytes(4 if version == 4 else 16), rng.randrange(2**16)) for _ in range(2)]


def test_data_plane_hashes_the_five_tuple():
    """Entry for entry: samples and counts of the twin, which hashes the bytes the docstring names with zlib."""
    packets = [p | {"flow_id": 3 * p["flow_id"]} for p in busy(2000, 10)]
    ids = np.arange(0, 30, 3, dtype=np.uint32)
    keys = made_packets.make_keys(ids.tolist())
    for address in keys.src, keys.dst:
        address[:] = 0
    keys = dataclasses.replace(keys, ip_version=np.where(ids % 2, 6, 4).astype(np.uint8))
    hashes = {}
    ports = np.zeros((2, 10), np.uint16)
    for row, flow in enumerate(ids.tolist()):
        version = 6 if flow % 2 else 4
        ends = five_tuple(version, flow)
        for side, (address, port) in enumerate(ends):
            (keys.src, keys.dst)[side][row, : len(address)] = list(address)
            ports[side, row] = port
            (src, sport), (dst, dport) = (ends[side], ends[1 - side])
            wire = src + dst + bytes([6]) + sport.to_bytes(2, "big") + dport.to_bytes(2, "big")
            assert len(wire) == (13 if version == 4 else 37)
            hashes[flow, side] = zlib.crc32(wire)
    keys = dataclasses.replace(keys, sport=ports[0], dport=ports[1])
    for rest in ((False, 0), (True, 16)):
        pairing = RttPairing("data_plane", tables=DataPlaneTables(1024, 2, 25, 12, *rest))
        samples = as_tuples(pairing.update(columns(packets), keys))
        twin = naive_rtt.data_plane(packets, 1024, 2, 25, 12, *rest, lambda *k: hashes[k])
        assert (samples, pairing.counters) == twin
        assert len(samples) > 20


# ---------------------------------------------------------------- tables and arguments


def test_inputs_are_interchangeable():
    packets = stream(5, 100)
    cols = columns(packets)
    expected = rtt_samples(cols)
    assert len(expected) > 5
    frame = pd.DataFrame(cols)
    meta = CaptureMeta(path="made by hand")
    keys = made_packets.make_keys(np.unique(cols["flow_id"]).tolist())
    for source in (frame, Capture(cols, keys, meta), {name: c[::-1][::-1] for name, c in cols.items()}):
        pd.testing.assert_frame_equal(rtt_samples(source), expected)


def test_no_packets_no_samples():
    for method in rtt.METHODS:
        table = rtt_samples(schema.empty("packets").astype(schema.PACKETS), method)
        schema.check(table, "rtt_samples")
        assert len(table) == 0
        assert len(rtt_summary(table)) == 0


def test_flow_numbers_may_be_far_apart():
    """State is made by number, lazily: the largest number costs address space, no memory and no time."""
    packets = [p | {"flow_id": schema.MAX_FLOWS - 1} for p in exchange((0, 0, MSS), (9, 1000))]
    for method, found in (("seq_ack", 1), ("data_plane", 1), ("handshake", 0), ("timestamps", 0)):
        assert len(samples_ms(packets, method)) == found


@pytest.mark.slow
def test_any_numbers_at_all():
    """Columns no TCP ever sent: nothing breaks or loops, no sample is negative, and cuts still change nothing."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(0, 300))
        cols = {
            name: rng.integers(0, 256, 8 * n, np.uint8).view(dtype)[:n]
            for name, dtype in schema.PACKETS.items()
        }
        cols["has_ts"] = rng.random(n) < 0.9
        cols["flow_id"] %= 3
        cols["direction"] &= 1
        cols["ecn"] &= 3
        if seed % 3:  # numbers a quarter of their space apart, where comparing them stops being transitive
            quarters = (rng.integers(0, 4, (2, n)) << 30).astype(np.uint32)
            cols["seq"], cols["ack"] = quarters + rng.integers(0, 5, (2, n), np.uint32)
            cols["payload_bytes"] = rng.choice(np.array([0, 1, 2, 2**29, 2**30], np.uint32), n)
            cols["tcp_flags"] = rng.choice(np.array([ACK, ACK, ACK, SYN, RST, ACK | FIN], np.uint16), n)
        cut = int(rng.integers(0, n + 1))
        for method in rtt.METHODS:
            tables = DataPlaneTables(64) if method == "data_plane" else None
            for karn in (True, False):
                whole = as_tuples(RttPairing(method, karn=karn, tables=tables).update(cols))
                pairing = RttPairing(method, karn=karn, tables=tables)
                halves = (
                    {name: c[part] for name, c in cols.items()} for part in (slice(cut), slice(cut, None))
                )
                assert [s for half in halves for s in as_tuples(pairing.update(half))] == whole
                assert all(sample[4] >= 0 for sample in whole)


def test_counters_add_up():
    for seed in range(20):
        table = rtt_samples(columns(stream(seed, 100)), "data_plane", tables=DataPlaneTables(16))
        cost = table.attrs["data_plane"]
        assert cost["matched"] == len(table)
        assert (
            cost["inserted"]
            >= cost["matched"] + cost["matched_void"] + cost["matched_late"] + cost["backwards"]
        )


def test_parquet_keeps_the_samples(tmp_path):
    table = rtt_samples(columns(stream(5, 100)))
    schema.write_parquet(table, tmp_path / "rtt.parquet", "rtt_samples")
    back, _ = schema.read_parquet(tmp_path / "rtt.parquet", "rtt_samples")
    pd.testing.assert_frame_equal(back, table)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"method": "ping"}, "method"),
        ({"one_way_segments": 0}, "one_way_segments"),
        ({"method": "seq_ack", "tables": DataPlaneTables()}, "tables"),
    ],
)
def test_bad_arguments(arguments, word):
    with pytest.raises(ParameterError, match=word):
        RttPairing(**arguments)


@pytest.mark.parametrize(
    "field_value",
    [
        ("table_size", 1000),
        ("table_size", 0),
        ("stages", 0),
        ("timeout_ms", 0),
        ("signature_bits", 33),
        ("tick_bits", 33),
    ],
)
def test_bad_tables(field_value):
    with pytest.raises(ParameterError, match=field_value[0]):
        DataPlaneTables(**dict([field_value]))


def test_bad_tables_of_packets():
    cols = columns(stream(1, 10))
    with pytest.raises(SchemaError, match="ack"):
        rtt_samples({name: c for name, c in cols.items() if name != "ack"})
    with pytest.raises(SchemaError, match="'ack' has the shape"):
        rtt_samples(cols | {"ack": cols["ack"][:-1]})
    with pytest.raises(SchemaError):
        rtt_summary(pd.DataFrame(cols))


def test_summary_is_what_numpy_says():
    rng = np.random.default_rng(3)
    n = 5000
    table = rtt.samples_table(
        {
            "ts_ns": np.arange(n),
            "flow_id": rng.choice([0, 1, 2, 7, 4_000_000_000], n, p=[0.5, 0.3, 0.1, 0.0998, 0.0002]).astype(
                np.uint32
            ),
            "direction": rng.integers(0, 2, n).astype(np.int8),
            "rtt_ns": rng.integers(0, 10**12, n),
        },
        "seq_ack",
    )
    other = rtt.samples_table({name: table[name].to_numpy()[:10] for name in table.columns[:-1]}, "handshake")
    both = pd.concat([table, other])
    summary = rtt_summary(both)
    by = ["flow_id", "direction", "method"]
    groups = both.groupby(by, observed=True)["rtt_ns"]
    assert summary[by].to_records(index=False).tolist() == list(groups.groups)
    for row, (_, values) in zip(summary.itertuples(), groups, strict=True):
        assert (row.samples, row.rtt_min_ns, row.rtt_max_ns) == (len(values), values.min(), values.max())
        assert abs(row.rtt_median_ns - np.median(values)) <= 1
        assert abs(row.rtt_p95_ns - np.percentile(values, 95)) <= 1
