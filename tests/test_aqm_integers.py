"""The integer variants of iRED, PI2 and DualPI2 against the floating-point ones, and their arithmetic."""

from __future__ import annotations

import ast
import inspect
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from one_queue import Compiled, packet
from test_aqm_behaviour import Steady, cubic, udp
from tools import examples

from cctoolkit.aqm import DROP_LATE, MARK, PASS
from cctoolkit.aqm.dualpi2 import DualPi2, IntegerDualPi2
from cctoolkit.aqm.ired import LONGEST_DELAY, RED_STEPS, IntegerIRed, IRed, red_probabilities
from cctoolkit.aqm.pi2 import IntegerPi2, TofinoPi2, fixed_point
from cctoolkit.errors import ParameterError
from cctoolkit.scenario import Flow

MS = 1_000_000
SEEDS = st.integers(1, 2**32)


def walk(seed, n, low=0.0, high=67.0):
    """Delays in ms that rise, fall, jump, and stay."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(0, 1, n) * rng.choice([0, 0.01, 0.5, 30], n, p=[0.2, 0.4, 0.39, 0.01])
    return np.abs((np.cumsum(steps) + rng.uniform(low, high)) % (2 * high) - high).clip(low)


# ---- iRED ------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(20), deadline=None)
@given(SEEDS)
def test_ired_average(seed):
    """The sums of doubled delays are the average, to 3.6 µs."""
    both = [Compiled(IRed()), Compiled(IntegerIRed())]
    for delay_ns in (walk(seed, 400) * MS).astype(int):
        for ired in both:
            ired.call("on_dequeue", 0, packet(enqueued_ns=10**9), 10**9 + int(delay_ns))
        exact, integer = (ired.state("average") for ired in both)
        assert exact - 3600 < integer <= exact


def test_ired_sums_fit_into_32_bits():
    ired = Compiled(IntegerIRed())
    for _ in range(64):
        ired.call("on_dequeue", 0, packet(ecn=1), 2**40)
        assert ired.state("delay_sum") < 2**32 and ired.state("last_sum") < 2**32
        assert ired.state("average") / 1024 <= LONGEST_DELAY
    assert ired.state("average") / 1024 > LONGEST_DELAY - 3  # cut, and no further


@pytest.mark.parametrize("square", [True, False])
def test_ired_probabilities(square):
    """Rising from 0 at 20 ms to 1 at 40 ms, squared or not; at most 0.002 off anywhere in a step."""
    classic, scalable = red_probabilities(20, 40, square=square)
    for offset in (0, 31.99):
        delay_ms = (np.arange(RED_STEPS) * 32 + offset) * 1024e-6
        red = np.clip((delay_ms - 20) / 20, 0, 1)
        assert np.abs(classic / 65536 - (red**2 if square else red)).max() < 0.002
        assert np.abs(scalable / 65536 - np.minimum(2 * red, 1)).max() < 0.002
    for table in (classic, scalable):
        assert len(table) == RED_STEPS and np.all(np.diff(table) >= 0)
        assert table[0] == 0 and table[-1] == 65536


@pytest.mark.slow
@pytest.mark.parametrize("square", [True, False])
def test_ired_decides_as_in_floats(square):
    """The same packets and the same draws: decisions differ where a draw falls between the two probabilities."""
    both = [Compiled(cls(square=square), seed=7) for cls in (IRed, IntegerIRed)]
    rng = np.random.default_rng(2)
    n, differ, now = 20_000, 0, 10**12
    for delay_ns, ecn in zip((walk(3, n, 10, 50) * MS).astype(int), rng.integers(0, 4, n), strict=True):
        now += 100_000
        verdicts = []
        for ired in both:
            arrived = ired.call("on_enqueue", 0, packet(ecn=ecn), now - int(delay_ns))
            left = ired.call("on_dequeue", 0, packet(ecn=ecn, enqueued_ns=now - int(delay_ns)), now)
            verdicts.append((arrived, left, ired.stats["notifications"][0]))
        differ += verdicts[0][:2] != verdicts[1][:2]
    assert differ < 0.004 * n
    exact, integer = (ired.stats for ired in both)
    for what in ("marks", "notifications", "drops"):
        assert integer[what][0] == pytest.approx(exact[what][0], rel=0.01) and exact[what][0] > 500


def test_ired_in_a_simulation():
    for flows in (cubic(50), [Flow("prague", rtt_ms=40, count=8), *cubic(8)]):
        exact, integer = (Steady(cls(), flows) for cls in (IRed, IntegerIRed))
        assert integer.delay_ms[0] == pytest.approx(exact.delay_ms[0], rel=0.05)
        assert integer.goodput.sum() == pytest.approx(exact.goodput.sum(), rel=0.01)


@pytest.mark.parametrize("bad", [{"measure": "depth"}, {"weight": 0.25}, {"max_ms": 68}, {"min_ms": 40}])
def test_ired_refuses(bad):
    with pytest.raises(ParameterError, match="|".join((*bad, "max_ms"))):
        IntegerIRed(**bad)


# ---- PI2 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 30])
def test_fixed_point(bits):
    one = 1 << bits
    assert [fixed_point(p, bits) for p in (0.0, 1.0, 1.5, 0.5)] == [0, one, one, one // 2]
    for p in np.random.default_rng(1).uniform(0, 1, 100):
        assert abs(fixed_point(p, bits) - p * one) <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("ecn", "want"), [(0, 0.3**2), (2, 0.3**2), (1, 2 * 0.3), (3, 2 * 0.3)])
def test_pi2_squares_or_doubles(ecn, want):
    pi2 = Compiled(IntegerPi2())
    pi2.s["probability"] = 0.3
    n = 40_000
    verdicts = [pi2.call("on_dequeue", 0, packet(ecn=ecn), 0) for _ in range(n)]
    assert set(verdicts) == {PASS, MARK if ecn else DROP_LATE}
    assert np.mean(np.array(verdicts) != PASS) == pytest.approx(want, abs=4 * (want * (1 - want) / n) ** 0.5)


def test_pi2_certain_and_impossible():
    pi2 = Compiled(IntegerPi2())
    for p, want in ((0.0, PASS), (1.0, MARK)):
        pi2.s["probability"] = p
        assert {pi2.call("on_dequeue", 0, packet(ecn=ecn), 0) for ecn in (1, 2) for _ in range(500)} == {want}


def test_pi2_controller_is_the_floating_point_one():
    """As long as packets leave; then the last delay stays for the one, and is none for the other."""
    exact, integer = Compiled(TofinoPi2()), Compiled(IntegerPi2())
    for k, delay_ms in enumerate(walk(5, 200, 15, 40)):
        now = 10**9 + k * 15 * MS
        pk = packet(ecn=2, enqueued_ns=now - round(delay_ms * MS))
        integer.call("on_dequeue", 0, pk, now)
        exact.call("on_dequeue", 0, pk, now)
        exact.queues["last_delay_ns"] = now - pk["enqueued_ns"][0]
        for pi2 in (exact, integer):
            pi2.call("on_update", 0, pk, now)
        assert integer.state("computed") == exact.state("computed")
        assert integer.state("probability") == exact.state("probability")
    assert exact.state("computed") > 0
    exact.queues["last_delay_ns"] = 30 * MS
    for k in range(500):
        for pi2 in (exact, integer):
            pi2.call("on_update", 0, pk, now + k * 15 * MS)
    assert exact.state("computed") == 1 and integer.state("computed") == 0


def test_pi2_in_a_simulation():
    for flows in (cubic(8), [Flow("prague", rtt_ms=40, count=4), *cubic(4)]):
        exact, integer = (Steady(cls(), flows) for cls in (TofinoPi2, IntegerPi2))
        assert integer.delay_ms[0] == pytest.approx(exact.delay_ms[0], rel=0.1)
        assert integer.goodput.sum() == pytest.approx(exact.goodput.sum(), rel=0.01)


# ---- DualPI2 ---------------------------------------------------------------------------------------------------------


def control(aqm, p):
    """A data plane that has been given these probabilities."""
    dual = Compiled(aqm, queues=2)
    dual.s["probability"] = p
    if isinstance(aqm, IntegerDualPi2):
        dual.s["coupled"], dual.s["classic"] = fixed_point(2 * p, 30), fixed_point(p * p, 30)
    return dual


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.0, 1e-4, 0.05, 0.21, 0.4999, 0.5, 0.6, 1.0])
def test_dualpi2_decides_as_in_floats(p):
    """Of 4000 packets with and without ECT, some beyond the step, some alone; counts to one packet, as sums are."""
    rng = np.random.default_rng(3)
    tracks = []
    for cls in (DualPi2, IntegerDualPi2):
        dual = control(cls(), p)
        rng = np.random.default_rng(3)
        verdicts = []
        for _ in range(4000):
            q, ecn = rng.choice([(0, 1), (0, 3), (1, 0), (1, 2)])
            dual.queues["packets"] = rng.integers(0, 3)
            late = rng.random() < 0.1
            pk = packet(ecn=ecn, enqueued_ns=10**9)
            verdicts.append(dual.call("on_dequeue", int(q), pk, 10**9 + (MS if late else MS - 1)) != PASS)
        tracks.append((np.cumsum(verdicts), [dual.stats[k][0] for k in ("l_marks", "l_drops", "c_signals")]))
    assert np.abs(tracks[0][0] - tracks[1][0]).max() <= 3  # one for each sum
    assert tracks[1][1] == pytest.approx(tracks[0][1], abs=1)


def test_dualpi2_sums_fit_into_32_bits():
    for p in (0.5, 0.7, 1.0):
        dual = control(IntegerDualPi2(), p)
        dual.queues["packets"] = 5
        for ecn in (1, 0) * 500:
            dual.call("on_dequeue", 1 - ecn, packet(ecn=ecn), 50 * MS)
            assert all(0 <= dual.state(name) <= 1 << 30 for name in ("l_sum", "l_drop_sum", "c_sum"))


def test_dualpi2_controller():
    """The longer of the delays with which the two queues were left since the last update; 0 without packets."""
    dual = Compiled(IntegerDualPi2(), queues=2)
    want, before = 0.0, 0
    for delays in ([3, 40], [80, 2], [0, 70], [None, 20], [19, None], [None, None]):
        for q, delay_ms in enumerate(delays):
            if delay_ms is not None:
                dual.call("on_dequeue", q, packet(ecn=1 - q), delay_ms * MS)
        dual.call("on_update", 0, packet(), 0)
        q = max(d or 0 for d in delays) * 1e-3
        want = min(max(want + 0.16 * (q - 0.015) + 3.2 * (q - before), 0), 1)
        before = q
        assert dual.state("probability") == pytest.approx(want, abs=1e-12)
        assert dual.state("coupled") == pytest.approx(min(2 * want, 1) * 2**30, abs=1)
        assert dual.state("classic") == pytest.approx(want**2 * 2**30, abs=1)


def test_dualpi2_in_a_simulation():
    steady = Steady(
        IntegerDualPi2(),
        [Flow("cubic", rtt_ms=25, count=2), Flow("prague", rtt_ms=25, count=2)],
        duration_s=60,
    )
    low, classic = steady.delay_ms
    assert low < 1.0 and classic == pytest.approx(15, rel=0.2) and steady.utilisation > 0.97
    assert 1 / 3 < steady.goodput[:2].sum() / steady.goodput.sum() < 2 / 3
    flood = Steady(IntegerDualPi2(), [udp(150, ecn="l4s"), udp(5)], buffer_packets=5000)
    assert flood.run.aqm_stats.l_drops[0] > 0


@pytest.mark.parametrize("bad", [{"range_ms": 0.4}, {"coupling": 0.5}])
def test_dualpi2_refuses(bad):
    with pytest.raises(ParameterError, match="IntegerDualPi2." + next(iter(bad))):
        IntegerDualPi2(**bad)


# ---- all -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [IntegerIRed, IntegerPi2, IntegerDualPi2])
def test_no_division_and_no_floats_for_a_packet(cls):
    """But for draws (a switch has its own), probabilities to be seen, and what comes from the control plane."""
    allowed = (
        "random(queue)",
        "queue.probability",
        "fixed_point",
        "draw //",
        "% EPOCH_PACKETS",
        "arrives_ns",
    )
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls.on_dequeue)))
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.AugAssign | ast.Compare)]
    for statement in statements:
        if any(text in ast.unparse(statement) for text in allowed):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp):
                assert isinstance(node.op, ast.Add | ast.Sub | ast.LShift | ast.RShift), ast.unparse(
                    statement
                )
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
