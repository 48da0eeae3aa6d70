"""PI2, DualPI2 and iRED against pseudo code and closed forms."""

from __future__ import annotations

import naive_aqm as naive
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from one_queue import Compiled, Link, packet, traffic
from tools import examples

from cctoolkit.aqm import DROP, MARK, PASS
from cctoolkit.aqm.dualpi2 import DualPi2
from cctoolkit.aqm.dualpi2_linux import LinuxDualPi2
from cctoolkit.aqm.ired import IRed
from cctoolkit.aqm.pi2 import Pi2, TofinoPi2
from cctoolkit.errors import ParameterError

MS = 1_000_000
SEEDS = st.integers(1, 2**32)
LOADS = st.sampled_from([0.9, 1.05, 1.3, 3.0])
KINDS = st.sampled_from([(0,), (1,), (0, 1), (0, 1, 2, 3)])


@settings(max_examples=examples(20), deadline=None)
@given(SEEDS, LOADS, KINDS)
def test_pi2(seed, load, ecn):
    aqm = Pi2(target_ms=5.0, update_ms=4.0)
    link = Link(Compiled(aqm, seed=seed), naive.Pi2(aqm, seed))
    link.run(*traffic(seed, 1500, load=load, ecn=ecn))
    assert link.compiled.state("probability") == pytest.approx(link.twin.history[-1][1], rel=1e-9, abs=1e-15)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, LOADS, KINDS, st.sampled_from([0.0, 0.5, 3.9, 4.0, 17.0]))
def test_tofino_pi2(seed, load, ecn, control_plane_ms):
    aqm = TofinoPi2(target_ms=5.0, update_ms=4.0, control_plane_ms=control_plane_ms)
    Link(Compiled(aqm, seed=seed), naive.TofinoPi2(aqm, seed)).run(*traffic(seed, 1500, load=load, ecn=ecn))


def test_pi2_recurrence():
    """Under a constant delay q the probability after n updates is n alpha (q - target) + beta q, between 0 and 1."""
    pi2 = Compiled(Pi2())
    pi2.queues["packets"] = 10
    n = np.arange(1, 200)
    got = []
    for k in n:
        now = int(k) * 15 * MS
        pi2.queues["head_enqueued_ns"] = now - 50 * MS
        pi2.call("on_update", 0, packet(), now)
        got.append(pi2.state("probability"))
    want = np.minimum(n * 0.3125 * (0.050 - 0.020) + 3.125 * 0.050, 1.0)
    assert np.array(got) == pytest.approx(want, rel=1e-9)


def test_pi2_signs():
    """More delay, more probability (equation (2) of the L4S paper has it the other way round)."""
    for cls in (Pi2, TofinoPi2):
        probability = []
        for delay in (5 * MS, 40 * MS):
            pi2 = Compiled(cls())
            pi2.s["probability" if cls is Pi2 else "computed"] = 0.5
            pi2.s["old_delay_ns"] = pi2.queues["last_delay_ns"] = delay
            pi2.queues["packets"], pi2.queues["head_enqueued_ns"] = 10, 10**9 - delay
            pi2.call("on_update", 0, packet(), 10**9)
            probability.append(pi2.state("probability" if cls is Pi2 else "computed"))
        assert probability[0] < 0.5 < probability[1]


@pytest.mark.slow
@pytest.mark.parametrize(("ecn", "want"), [(0, 0.3**2), (2, 0.3**2), (1, 2 * 0.3), (3, 2 * 0.3)])
def test_pi2_squares_or_doubles(ecn, want):
    pi2 = Compiled(Pi2())
    pi2.s["probability"] = 0.3
    n = 40_000
    rate = np.mean([pi2.call("on_enqueue", 0, packet(ecn=ecn), 0) == MARK for _ in range(n)])
    assert rate == pytest.approx(want, abs=4 * (want * (1 - want) / n) ** 0.5)


def test_tofino_control_plane_delay():
    pi2 = Compiled(TofinoPi2(control_plane_ms=7.0))
    pi2.queues["last_delay_ns"] = 500 * MS
    pi2.call("on_update", 0, packet(), 15 * MS)
    for now, want in ((22 * MS - 1, 0.0), (22 * MS, 1.0)):
        pi2.call("on_dequeue", 0, packet(ecn=1), now)
        assert pi2.state("probability") == want


def test_tofino_many_updates_without_a_packet():
    """Updates that come while nothing leaves do not pile up: the newest that is due counts."""
    pi2 = Compiled(TofinoPi2(control_plane_ms=40.0))
    computed = []
    for k in range(1, 100):
        pi2.queues["last_delay_ns"] = (20 + k) * MS
        pi2.call("on_update", 0, packet(), k * 15 * MS)
        computed.append(pi2.state("computed"))
    now = 99 * 15 * MS
    pi2.call("on_dequeue", 0, packet(), now)
    due = [p for k, p in enumerate(computed, 1) if k * 15 * MS + 40 * MS <= now]
    assert pi2.state("probability") == due[-1]


def dual(aqm, seed, load, ecn, n=1500):
    compiled = Compiled(aqm, queues=2, seed=seed)
    link = Link(compiled, naive.DualPi2(aqm), choose=lambda pk: 0 if pk["ecn"][0] % 2 else 1)
    return link.run(*traffic(seed, n, load=load, ecn=ecn))


@settings(max_examples=examples(30), deadline=None)
@given(SEEDS, LOADS, KINDS, st.sampled_from([(1.0, 0.0), (1.2, 0.4)]), st.sampled_from([0, 1, 2]))
def test_dualpi2(seed, load, ecn, ramp, backlog):
    aqm = DualPi2(
        target_ms=3.0, update_ms=4.0, step_ms=ramp[0], range_ms=ramp[1], min_backlog_packets=backlog
    )
    link = dual(aqm, seed, load, ecn)
    assert link.compiled.state("probability") == pytest.approx(link.twin.base, rel=1e-9, abs=1e-15)


def test_dualpi2_overload_is_reached_by_the_comparison():
    link = dual(DualPi2(target_ms=3.0, update_ms=4.0), 5, 3.0, (0, 1), 4000)
    assert link.compiled.stats["l_drops"][0] > 0 and link.compiled.stats["c_signals"][0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.0, 0.05, 0.21, 0.4])
def test_dualpi2_coupling(p):
    """Marks in L are k p of the packets, signals in C p², to one packet; between them the square of half."""
    aqm = Compiled(DualPi2(), queues=2)
    aqm.s["probability"] = p
    n = 10_000
    marks = sum(aqm.call("on_dequeue", 0, packet(ecn=1, enqueued_ns=9), 10) == MARK for _ in range(n))
    signals = sum(aqm.call("on_dequeue", 1, packet(ecn=0, enqueued_ns=9), 10) != PASS for _ in range(n))
    assert marks == pytest.approx(2 * p * n, abs=1.01)
    assert signals == pytest.approx(p * p * n, abs=1.01)


def test_dualpi2_step_ramp_and_lone_packets():
    def rate(delay_ms, backlog=5, **options):
        aqm = Compiled(DualPi2(**options), queues=2)
        aqm.queues["packets"][0] = backlog
        pk = packet(ecn=1)
        return np.mean([aqm.call("on_dequeue", 0, pk, round(delay_ms * MS)) == MARK for _ in range(1000)])

    assert rate(0.999999) == 0 and rate(1.0) == pytest.approx(1, abs=2e-3)
    ramp = {"step_ms": 1.2, "range_ms": 0.4}
    assert rate(0.8, **ramp) == 0 and rate(1.2, **ramp) == pytest.approx(1, abs=2e-3)
    assert rate(0.9, **ramp) == pytest.approx(0.25, abs=2e-3)
    assert rate(5.0, backlog=0) == 0  # nothing behind it


def test_dualpi2_limits():
    aqm = Compiled(DualPi2(), queues=2)
    aqm.s["probability"] = 0.5  # p_C at its largest, 1/k²
    verdicts = {aqm.call("on_dequeue", 1, packet(ecn=2), 0) for _ in range(10)}
    assert verdicts == {PASS, DROP}  # even with ECT
    aqm.s["probability"] = 0.49
    assert {aqm.call("on_dequeue", 1, packet(ecn=2), 0) for _ in range(10)} == {PASS, MARK}
    assert DualPi2.shared and DualPi2.scheduler == "dual_wrr"


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    SEEDS,
    LOADS,
    KINDS,
    st.booleans(),
    st.sampled_from(["delay", "depth"]),
    st.sampled_from([0.0, 1.0, 2000.0]),
)
def test_ired(seed, load, ecn, square, measure, recirculation_us):
    aqm = IRed(
        measure=measure, min_ms=2.0, max_ms=6.0, min_packets=15, max_packets=60, square=square,
        recirculation_us=recirculation_us, max_notifications=2000,
    )  # fmt: skip
    link = Link(Compiled(aqm, seed=seed), naive.IRed(aqm, seed))
    link.run(*traffic(seed, 1500, load=load, ecn=ecn))
    assert link.compiled.stats["lost_notifications"][0] == 0


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.3, 0.5])
def test_ired_coupled_marks_by_the_classic_queue(probability):
    """The low-latency queue is empty: its packets are marked with twice the classic queue's probability."""
    coupled, alone = (Compiled(IRed(coupled=c), queues=2) for c in (True, False))
    for one in (coupled, alone):
        one.queues["probability"][1] = probability
    n = 4000
    verdicts = [coupled.call("on_dequeue", 0, packet(ecn=1, enqueued_ns=t), t) for t in range(n)]
    assert verdicts.count(MARK) / n == pytest.approx(2 * probability, abs=0.03)
    assert {alone.call("on_dequeue", 0, packet(ecn=1, enqueued_ns=t), t) for t in range(n)} == {PASS}


def test_ired_coupled_marks_by_its_own_queue_if_that_is_longer():
    ired = Compiled(IRed(coupled=True), queues=2)
    assert ired.call("on_dequeue", 0, packet(ecn=1, enqueued_ns=10**9 - 400 * MS), 10**9) == MARK
    single = Compiled(IRed(coupled=True))  # nothing to couple
    assert single.call("on_dequeue", 0, packet(ecn=1, enqueued_ns=10**9), 10**9) == PASS


def congested(**options):
    """An iRED that has just decided, at 1 s, that a classic packet has to go."""
    ired = Compiled(IRed(**options))
    assert ired.call("on_dequeue", 0, packet(enqueued_ns=10**9 - 400 * MS), 10**9) == PASS
    assert ired.stats["notifications"][0] == 1
    return ired


def test_ired_drops_the_next_classic_packet_once_the_notification_is_there():
    ired = congested(recirculation_us=5.0)
    assert ired.call("on_enqueue", 0, packet(), 10**9 + 4999) == PASS
    assert ired.call("on_enqueue", 0, packet(), 10**9 + 5000) == DROP
    assert ired.call("on_enqueue", 0, packet(), 10**9 + 5001) == PASS


def test_ired_scalable_packets_leave_the_flag_up():
    ired = congested()
    for ecn in (1, 3, 1):
        assert ired.call("on_enqueue", 0, packet(ecn=ecn), 10**9 + 2000) == PASS
    assert ired.call("on_enqueue", 0, packet(ecn=2), 10**9 + 2001) == DROP


def test_ired_flag_is_no_counter():
    """Two notifications before the next classic packet drop one packet."""
    ired = congested()
    ired.call("on_dequeue", 0, packet(enqueued_ns=10**9 - 400 * MS), 10**9 + 100)
    verdicts = [ired.call("on_enqueue", 0, packet(), 10**9 + 5000 + t) for t in range(3)]
    assert verdicts == [DROP, PASS, PASS]


def test_ired_loses_notifications_beyond_its_room():
    ired = congested(max_notifications=1)
    ired.call("on_dequeue", 0, packet(enqueued_ns=10**9 - 400 * MS), 10**9 + 100)
    assert ired.stats["notifications"][0] == 2 and ired.stats["lost_notifications"][0] == 1


def test_ired_average_is_halved_each_time():
    ired = Compiled(IRed())
    want = 0.0
    for delay in (8, 16, 0, 3):
        ired.call("on_dequeue", 0, packet(enqueued_ns=10**9), 10**9 + delay * MS)
        want = want / 2 + delay * MS / 2
        assert ired.state("average") == want


@pytest.mark.parametrize(
    ("cls", "bad", "match"),
    [
        (Pi2, {"target_ms": 0}, "target_ms"),
        (TofinoPi2, {"update_ms": 0}, "update_ms"),
        (DualPi2, {"target_ms": 0}, "target_ms"),
        (DualPi2, {"range_ms": 2.0}, "range_ms"),
        (DualPi2, {"coupling": 0}, "coupling"),
        (LinuxDualPi2, {"target_ms": 0}, "LinuxDualPi2.target_ms"),
        (LinuxDualPi2, {"coupling": 0}, "LinuxDualPi2.coupling"),
        (IRed, {"measure": "length"}, "measure"),
        (IRed, {"max_ms": 20}, "max_ms"),
        (IRed, {"max_packets": 100}, "max_packets"),
        (IRed, {"weight": 0}, "weight"),
        (IRed, {"max_notifications": 0}, "max_notifications"),
    ],
)
def test_bad_parameters(cls, bad, match):
    with pytest.raises(ParameterError, match=match):
        cls(**bad)


@pytest.mark.parametrize(
    ("identifier", "ecn", "aggregate", "scalable"),
    [
        ("ect1", 1, 0, True), ("ect1", 3, 0, True), ("ect1", 2, 1, False), ("ect1", 0, 1, False),
        ("dscp", 0, 1, True), ("dscp", 2, 1, True), ("dscp", 1, 0, False), ("dscp", 3, 0, False),
        ("any_ect", 2, 0, True), ("any_ect", 1, 0, True), ("any_ect", 3, 0, True), ("any_ect", 0, 1, False),
    ],
)  # fmt: skip
def test_who_is_taken_for_scalable(identifier, ecn, aggregate, scalable):
    """At p' = 0.6 every scalable packet is signalled; iRED's flag drops the next classic one and no other."""
    pk = packet(ecn=ecn, aggregate=aggregate)
    pi2 = Compiled(Pi2(identifier=identifier))
    pi2.s["probability"] = 0.6
    pi2.call("on_enqueue", 0, pk, 0)
    assert (pi2.stats["scalable"][0] == 1) == scalable
    tofino = Compiled(TofinoPi2(identifier=identifier))
    tofino.s["probability"] = 0.6
    tofino.call("on_dequeue", 0, pk, 0)
    assert (tofino.stats["scalable"][0] == 1) == scalable
    ired = Compiled(IRed(identifier=identifier))
    ired.s["flag"] = True
    assert (ired.call("on_enqueue", 0, pk, 0) == DROP) == (not scalable)


@pytest.mark.parametrize("cls", [Pi2, TofinoPi2, IRed])
def test_unknown_identifiers_are_refused(cls):
    with pytest.raises(ParameterError, match="identifier: 'dscp6' must be one of ect1, dscp, any_ect"):
        cls(identifier="dscp6")
