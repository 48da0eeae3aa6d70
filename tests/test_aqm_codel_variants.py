"""Linux's CoDel, P4-CoDel in its three forms, FQ-CoDel's queues: against pseudo code; square roots against bounds."""

from __future__ import annotations

import math

import naive_aqm as naive
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from one_queue import Compiled, Link, packet, traffic
from tools import examples

from cctoolkit.aqm import MARK, PASS, CoDel
from cctoolkit.aqm.codel_linux import LinuxCoDel, newton_step
from cctoolkit.aqm.codel_p4 import NpuCoDel, P4CoDel, PisaCoDel, drop_gap, math_unit, math_unit_gap
from cctoolkit.aqm.fq_codel import FqCoDel
from cctoolkit.errors import ParameterError

MS = 1_000_000
SEEDS = st.integers(0, 2**32)
LOADS = st.sampled_from([0.8, 1.05, 1.5, 3.0])
ECN = st.sampled_from([(0,), (0, 2), (1, 2)])
# short intervals, so that a second of traffic has several drops, re-entries and marks
FAST = {"target_ms": 1.0, "interval_ms": 8.0}


def phases(seed, load, ecn, **options):
    """Overload, calm and overload again: re-entry into the dropping state needs this."""
    at, packets = [], []
    start = 0
    for i, factor in enumerate((load, 0.5, load, 0.7, load)):
        times, more = traffic(seed + i, 250, load=factor, ecn=ecn, start_ns=start, **options)
        at.append(times)
        packets += more
        start = int(times[-1])
    return np.concatenate(at), packets


@settings(max_examples=15, deadline=None)
@given(SEEDS, LOADS, ECN)
def test_linux(seed, load, ecn):
    aqm = LinuxCoDel(**FAST)
    Link(Compiled(aqm), naive.Codel(aqm, linux=True)).run(*phases(seed, load, ecn))


@settings(max_examples=15, deadline=None)
@given(SEEDS, LOADS, ECN)
def test_fq_codel_queue_is_rfc_8289(seed, load, ecn):
    aqm = FqCoDel(**FAST)
    Link(Compiled(aqm), naive.Codel(aqm)).run(*phases(seed, load, ecn))


def test_the_twins_comparison_can_fail():
    at, packets = phases(1, 3.0, (0,))
    with pytest.raises(AssertionError, match="twin"):
        Link(Compiled(LinuxCoDel(**FAST)), naive.Codel(CoDel(**FAST))).run(at, packets)


def test_linux_drops_faster_after_reentry():
    """A count that jumps down leaves the reciprocal root far too small after one step."""
    exact = 65536 / math.sqrt(10)
    root = round(65536 / math.sqrt(300))
    first = newton_step(root, 10)
    assert first < exact / 3
    for _ in range(8):
        root = newton_step(root, 10)
    assert root == pytest.approx(exact, rel=1e-3)


def test_linux_root_counting_up():
    root, errors = 65535, {}
    for count in range(2, 3000):
        root = newton_step(root, count)
        errors[count] = root / 65536 * math.sqrt(count) - 1
    assert errors[2] == pytest.approx(0.5 * math.sqrt(2) - 1, abs=1e-3)  # 29 % too soon
    assert max(abs(e) for c, e in errors.items() if c >= 5) < 0.02


def test_fq_codel_ce_threshold():
    link = Compiled(FqCoDel(ce_threshold_ms=1.0))
    assert link.call("on_dequeue", 0, packet(ecn=2), MS) == PASS  # not above it
    assert link.call("on_dequeue", 0, packet(ecn=2), MS + 1) == MARK
    assert link.call("on_dequeue", 0, packet(ecn=0), MS + 1) == PASS
    assert Compiled(FqCoDel()).call("on_dequeue", 0, packet(ecn=2), 4 * MS) == PASS


def test_fq_codel_comes_with_its_scheduler():
    assert FqCoDel.scheduler == "fq" and not FqCoDel.shared


@settings(max_examples=15, deadline=None)
@given(SEEDS, LOADS, ECN, st.integers(0, 2**45))
def test_listing_1(seed, load, ecn, start):
    aqm = P4CoDel(**FAST)
    Link(Compiled(aqm), naive.P4Codel(aqm)).run(*phases(seed, load, ecn))


@settings(max_examples=15, deadline=None)
@given(SEEDS, LOADS, ECN)
def test_npu(seed, load, ecn):
    aqm = NpuCoDel(**FAST)
    Link(Compiled(aqm), naive.NpuCodel(aqm)).run(*phases(seed, load, ecn))


@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, LOADS, ECN, *[st.booleans()] * 4, st.sampled_from([0, 1514]))
def test_pisa(seed, load, ecn, from_now, count_first, wrap, signed, mtu):
    aqm = PisaCoDel(
        **FAST, from_now=from_now, count_first=count_first, wrap=wrap, signed=signed, mtu_bytes=mtu
    )
    at, packets = phases(seed, load, ecn)
    Link(Compiled(aqm), naive.PisaCodel(aqm)).run(at + (2**32 - int(at[len(at) // 3])), packets)


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.integers(1, 5), st.floats(0.1, 0.9), st.booleans())
def test_pisa_signed_timestamps_may_wrap(seed, wraps, where, from_now):
    """With signed differences 32 bits decide as 64 do, wherever in the run the clock wraps."""
    at, packets = phases(seed, 3.0, (0,))
    clock_ms = (wraps * 2**32 - int(at[int(where * len(at))])) / MS
    logs = []
    for wrap in (False, True):
        aqm = PisaCoDel(**FAST, from_now=from_now, wrap=wrap, clock_ms=clock_ms if wrap else 0.0)
        link = Link(Compiled(aqm), None)
        logs.append(link.run(at, [p.copy() for p in packets]).log)
    assert logs[0] == logs[1]
    assert any(event == "on_dequeue" and verdict != PASS for _, event, verdict in logs[0])


def test_pisa_unsigned_timestamps_may_not():
    """The next drop lies behind the wrap, so "drop_next <= now" is true of every packet before it."""
    aqm = {False: Compiled(PisaCoDel(wrap=True, signed=False)), True: Compiled(PisaCoDel(wrap=True))}
    for codel in aqm.values():
        codel.queues["packets"], codel.queues["bytes"] = 100, 150_000
    drops = {False: 0, True: 0}
    for now in range(2**32 - 50 * MS, 2**32, MS):
        for signed, codel in aqm.items():
            drops[signed] += codel.call("on_dequeue", 0, packet(enqueued_ns=now - 20 * MS), now) != PASS
    assert drops[True] == 0  # the first drop is due 100 ms after the target was first violated
    assert drops[False] == 5  # until the gap is shorter than what is left before the wrap


COUNTS = [*range(1, 5000), *(2**k + d for k in range(13, 31) for d in (-1, 0, 1))]


@pytest.mark.parametrize("interval_ms", [10.0, 100.0, 1000.0])
def test_math_unit_error_bound(interval_ms):
    codel = Compiled(PisaCoDel(interval_ms=interval_ms))
    interval = round(interval_ms * MS)
    worst = [0.0, 0.0]
    for count in COUNTS:
        gap = math_unit_gap(codel.p[0], count)
        error = gap * math.sqrt(count) / interval - 1
        worst = [min(worst[0], error), max(worst[1], error)]
        assert gap == naive.math_unit_gap(interval, count)
    # Bits cut off below m in 4 to 15 make it up to sqrt(5/4) too long; entries of at least 64 are off by half
    assert worst[0] > -0.5 / 64 and worst[1] < math.sqrt(5 / 4) * (1 + 0.5 / 64) - 1
    assert worst[1] > 0.1


def test_math_unit_table_for_100_ms():
    """Entries and scale of the published Tofino program (2**20), to one unit."""
    table, scale = math_unit(100 * MS)
    published = [0x87, 0x79, 0x6F, 0x66, 0x60, 0x5A, 0x56, 0x52, 0x4E, 0x4B, 0x48, 0x46]
    assert scale == 20
    assert not table[:4].any() and np.abs(table[4:] - published).max() <= 1
    assert table.max() < 256


def test_npu_table_error_bound():
    codel = Compiled(NpuCoDel())
    for count in COUNTS:
        error = drop_gap(codel.p[0], count) * math.sqrt(count) / (100 * MS) - 1
        if count <= 16:
            assert abs(error) < 1e-7
        else:
            assert -4e-4 < error < math.sqrt(2) - 1  # of some 3000 ns, one is cut off
    # the published table: 1562 of 100000 for prefixes of 18 zeros (counts from 4096 on)
    assert drop_gap(codel.p[0], 4096) // 1000 == 1562
    assert drop_gap(codel.p[0], 8191) // 1000 == 1562


def drop_times(aqm, horizon_ms=1500):
    """When a queue that stays 20 ms long has packets dropped; one packet every 0.1 ms."""
    codel = Compiled(aqm)
    codel.queues["packets"], codel.queues["bytes"] = 200, 300_000
    out = []
    for now in range(10**12, 10**12 + horizon_ms * MS, MS // 10):
        codel.queues["head_enqueued_ns"] = now - 20 * MS
        pk = packet(enqueued_ns=now - 20 * MS, ecn=2)
        if MARK in (codel.call("on_enqueue", 0, pk, now), codel.call("on_dequeue", 0, pk, now)):
            out.append((now - 10**12) / MS)
    return np.array(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aqm", "first_counts"),
    [
        (CoDel, (1, 2)),
        (FqCoDel, (1, 2)),
        (LinuxCoDel, (1, 4)),
        (P4CoDel, (2, 3)),
        (NpuCoDel, (2, 3)),
        (PisaCoDel, (2, 3)),
    ],
)
def test_gaps_of_the_variants(aqm, first_counts):
    """Under constant delay each one's first gaps are interval / sqrt of its first counts."""
    times = drop_times(aqm())
    assert times[0] == pytest.approx(100, abs=0.2)
    gaps = np.diff(times[:3])
    tolerance = 0.13 if aqm is PisaCoDel else 0.003
    assert gaps == pytest.approx([100 / math.sqrt(c) for c in first_counts], rel=tolerance, abs=0.2)
    # Linux: 0.5 instead of 0.707 at count 2


def test_pisa_count_after():
    """The root of the count before: from the second drop on the gaps are those of count 1, 2, …"""
    gaps = np.diff(drop_times(PisaCoDel(count_first=False))[:4])
    assert gaps == pytest.approx([100 / math.sqrt(c) for c in (1, 2, 3)], rel=0.13, abs=0.2)
    assert gaps[0] > 99  # 70.7 with count_first


@pytest.mark.parametrize("cls", [LinuxCoDel, P4CoDel, NpuCoDel, PisaCoDel, FqCoDel])
def test_bad_parameters(cls):
    with pytest.raises(ParameterError, match="target_ms"):
        cls(target_ms=0)
    with pytest.raises(ParameterError, match="interval_ms"):
        cls(interval_ms=4)
