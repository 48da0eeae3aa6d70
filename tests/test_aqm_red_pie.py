"""RED and PIE against their pseudo code, and against what they promise."""

from __future__ import annotations

import naive_aqm as naive
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from one_queue import Compiled, Link, packet, traffic
from tools import examples

from cctoolkit.aqm import DROP, MARK, PASS
from cctoolkit.aqm.pie import Pie
from cctoolkit.aqm.pie_linux import LinuxPie
from cctoolkit.aqm.red import Red
from cctoolkit.errors import ParameterError

MS = 1_000_000
SEEDS = st.integers(1, 2**32)


@settings(max_examples=examples(25), deadline=None)
@given(
    SEEDS,
    st.sampled_from([0.7, 1.0, 1.3, 3.0]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.002, 0.05, 1.0]),
)
def test_red(seed, load, gentle, hard_drop, weight):
    aqm = Red(gentle=gentle, hard_drop=hard_drop, weight=weight, max_probability=0.2)
    link = Link(Compiled(aqm, seed=seed), naive.Red(aqm, seed))
    link.run(*traffic(seed, 1200, load=load, ecn=(0, 2)))
    assert link.compiled.state("average") == pytest.approx(link.twin.avg, rel=1e-9)


def steady_red(average, n=20_000):
    """Positions of the signals while the queue has the same length for ever."""
    red = Compiled(Red(weight=1.0, gentle=True))
    red.queues["packets"] = average
    pk = packet(ecn=2)
    return np.flatnonzero([red.call("on_enqueue", 0, pk, t) == MARK for t in range(n)])


def test_red_gaps_are_uniform():
    """At a fixed average the gap between signals is uniform on 1 to 1/p - 1 (section 7); p = 0.05."""
    gaps = np.diff(steady_red(10))
    assert gaps.min() == 1 and gaps.max() == 19
    expected = len(gaps) / 19

    def chi2(values):
        return ((np.bincount(values, minlength=20)[1:] - expected) ** 2 / expected).sum()

    assert chi2(gaps) < 42.3  # 18 degrees of freedom, one in a thousand
    geometric = np.random.default_rng(1).geometric(
        0.1, len(gaps)
    )  # what the method is there to avoid, same mean
    assert chi2(np.minimum(geometric, 19)) > 200


@pytest.mark.parametrize(
    ("average", "p"), [(10, 0.05), (15, 0.1), (22, 0.1 + 0.9 * 7 / 15), (29, 0.1 + 0.9 * 14 / 15)]
)
def test_red_slopes(average, p):
    left, mean_gap = 1.0, 0.0  # of a gap longer than g packets
    for g in range(1, 100):
        mean_gap += left
        left *= 1 - min(1.0, p / (1 - g * p)) if g * p < 1 else 0.0
    assert np.diff(steady_red(average)).mean() == pytest.approx(mean_gap, rel=0.05)


def test_red_ends_of_the_slope():
    assert len(steady_red(4, 1000)) == 0  # below the lower threshold
    assert len(steady_red(30, 100)) == 100  # twice the upper one: all


def test_red_above_the_slope_drops_or_marks():
    for hard_drop, verdict in ((True, DROP), (False, MARK)):
        red = Compiled(Red(weight=1.0, hard_drop=hard_drop))
        red.queues["packets"] = 31
        assert red.call("on_enqueue", 0, packet(ecn=2), 0) == verdict


def test_red_average_decays_while_idle():
    red = Compiled(Red(weight=0.1), rate_bps=1514 * 8e3)  # a packet a millisecond
    red.s["average"] = 10.0
    red.queues["idle_since_ns"] = 5 * MS
    red.call("on_enqueue", 0, packet(), 12 * MS)
    assert red.state("average") == pytest.approx(10 * 0.9**7)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, st.sampled_from([0.7, 1.05, 1.3, 3.0]), st.booleans(), st.sampled_from([0.0, 150.0]))
def test_pie(seed, load, derandomise, burst_ms):
    aqm = Pie(derandomise=derandomise, burst_ms=burst_ms, target_ms=4.0, update_ms=4.0)
    link = Link(Compiled(aqm, seed=seed), naive.Pie(aqm, seed))
    link.run(*traffic(seed, 2500, load=load, ecn=(0, 2)))
    assert link.compiled.state("probability") == pytest.approx(link.twin.drop_prob, rel=1e-6, abs=1e-15)


def pie_with_delay(delay_ms, updates, start=0.0):
    """A controller's probability after each update under constant delay."""
    pie = Compiled(Pie())
    pie.s["probability"] = start
    pie.s["old_delay_ns"] = round(delay_ms * MS)
    pie.queues["packets"], pie.queues["bytes"] = 100, 150_000
    trace = []
    pie.queues["last_delay_ns"] = round(delay_ms * MS)
    for k in range(1, updates + 1):
        pie.call("on_update", 0, packet(), k * 15 * MS + 10**12)
        trace.append(pie.state("probability"))
    return np.array(trace)


def test_pie_steps_are_scaled_by_the_probability():
    """Section 4.2's table: under a constant 10 ms too much each step is alpha times that, divided."""
    trace = pie_with_delay(25, 3000)
    steps = np.diff(trace)
    for low, high, divisor in (
        (1e-6, 1e-5, 512),
        (1e-5, 1e-4, 128),
        (1e-4, 1e-3, 32),
        (1e-3, 1e-2, 8),
        (1e-2, 0.1, 2),
    ):
        inside = (trace[:-1] >= low) & (trace[:-1] < high)
        assert inside.any()
        assert steps[inside] == pytest.approx(0.125 * 0.010 / divisor, rel=1e-9)


def test_pie_caps_steps():
    """Section 5.5: by no more than 2 percent at a time once above 10 percent."""
    trace = pie_with_delay(2000, 20, start=0.2)
    assert np.diff(trace) == pytest.approx(0.02)


def test_pie_burst_allowance():
    """Section 4.4: 150 ms, ten updates, in which nothing is dropped, whatever the probability."""
    pie = Compiled(Pie(derandomise=False))
    pie.s["probability"], pie.s["old_delay_ns"] = 1.0, 100 * MS
    pie.queues["packets"], pie.queues["bytes"] = 100, 150_000
    pie.queues["last_delay_ns"] = 100 * MS

    def verdicts():
        out = []
        for k in range(12):
            out.append(pie.call("on_enqueue", 0, packet(), k))
            pie.call("on_update", 0, packet(), k * 15 * MS)
            pie.s["probability"] = 1.0
        return out

    assert verdicts() == [PASS] * 10 + [DROP] * 2
    # an arrival in calm gives it back: no probability, delays below half the target
    pie.s["probability"], pie.s["old_delay_ns"], pie.queues["last_delay_ns"] = 0.0, 7 * MS, 7 * MS
    assert pie.call("on_enqueue", 0, packet(), 0) == PASS
    pie.s["probability"], pie.s["old_delay_ns"], pie.queues["last_delay_ns"] = 1.0, 100 * MS, 100 * MS
    assert verdicts() == [PASS] * 10 + [DROP] * 2


def test_pie_drops_ect_above_its_limit():
    pie = Compiled(Pie(burst_ms=0.0))
    pie.queues["packets"], pie.queues["bytes"] = 100, 150_000
    pie.s["old_delay_ns"] = 100 * MS
    seen = {}
    for probability in (0.099, 0.1):  # "if drop_prob_ < mark_ecnth"
        pie.s["probability"] = probability
        seen[probability] = {pie.call("on_enqueue", 0, packet(ecn=2), 0) for _ in range(200)}
    assert seen == {0.099: {PASS, MARK}, 0.1: {PASS, DROP}}


def test_pie_derandomised_gaps():
    """Section 5.4: no two drops closer than 0.85/p packets, none further apart than 8.5/p."""
    pie = Compiled(Pie(burst_ms=0.0))
    pie.queues["packets"], pie.queues["bytes"] = 100, 150_000
    pie.s["old_delay_ns"], pie.s["probability"] = 100 * MS, 0.05
    drops = np.flatnonzero([pie.call("on_enqueue", 0, packet(), t) != PASS for t in range(50_000)])
    gaps = np.diff(drops)
    assert gaps.min() >= 17 and gaps.max() <= 171  # a sum of 0.05s
    assert gaps.max() > 60


def test_pie_drops_for_sure_at_last():
    """Section 5.4: from a sum of 8.5 on without looking at the dice."""
    for start, certain in ((8.40, False), (8.46, True)):
        verdicts = set()
        for seed in range(200):
            pie = Compiled(Pie(burst_ms=0.0), seed=seed)
            pie.queues["packets"], pie.queues["bytes"] = 100, 150_000
            pie.s["old_delay_ns"], pie.s["probability"], pie.s["accumulated"] = 100 * MS, 0.05, start
            verdicts.add(pie.call("on_enqueue", 0, packet(), 0))
        assert verdicts == ({MARK} if certain else {PASS, MARK})


@pytest.mark.parametrize(("old_ms", "factor"), [(0, 0.98), (5, 1.0)])
def test_pie_decays_once_congestion_has_gone(old_ms, factor):
    """Section 4.2: by 2 percent, if there was no delay now and before."""
    pie = Compiled(Pie())
    pie.s["probability"], pie.s["old_delay_ns"] = 0.5, old_ms * MS
    pie.call("on_update", 0, packet(), 10**9)
    assert pie.state("probability") == pytest.approx((0.5 - 0.125 * 0.015 - 1.25 * old_ms * 1e-3) * factor)


@pytest.mark.parametrize(
    ("cls", "bad", "match"),
    [
        (Red, {"max_packets": 5}, "max_packets"),
        (Red, {"max_probability": 1.5}, "max_probability"),
        (Red, {"weight": 0}, "weight"),
        (Red, {"mean_packet_bytes": 0}, "mean_packet_bytes"),
        (Pie, {"target_ms": 0}, "target_ms"),
        (Pie, {"update_ms": 0}, "update_ms"),
        (LinuxPie, {"target_ms": 0}, "LinuxPie.target_ms"),
    ],
)
def test_bad_parameters(cls, bad, match):
    with pytest.raises(ParameterError, match=match):
        cls(**bad)
