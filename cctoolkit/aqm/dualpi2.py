"""DualPI2: RFC 9332, appendix A. Two queues, one PI controller, coupled."""

from __future__ import annotations

from typing import Any, ClassVar

import numba
import numpy as np

from ..errors import ParameterError
from .base import (
    DROP,
    DROP_LATE,
    MARK,
    PASS,
    Aqm,
    delay_ns,
    peer,
)
from .pi2 import fixed_point, pi_step

__all__ = ["DualPi2", "IntegerDualPi2"]

_L = 0  # low latency queue; 1 is the classic one


@numba.njit(error_model="numpy")
def laqm(p, delay):
    """Marking probability of the L queue alone: a ramp, or a step if its range is 0 (figure 4 of the RFC)."""
    if delay >= p.min_threshold_ns + p.range_ns:
        return 1.0
    if delay > p.min_threshold_ns:
        return (delay - p.min_threshold_ns) / p.range_ns
    return 0.0


class DualPi2(Aqm):
    """The dual-queue coupled AQM of RFC 9332, with the overload handling of appendix A.2.

    The classic queue's delay drives a PI controller; classic packets are signalled with the square of its
    output p', packets of the L queue with the larger of k p' and the L queue's own ramp. Which packets go to
    which queue (ECT(1) and CE to L), and the order of service, are the scheduler's: ``"dual_wrr"`` comes
    with this class, ``"dual_ts"`` (time-shifted FIFO, as the RFC prefers) may be asked for.

    Parameters
    ----------
    target_ms, update_ms : float
        Of the controller (``target``, ``Tupdate``).
    alpha, beta : float
        Its gains, Hz. (The RFC's text recommends these; the formulas of its figure 2 give 15 ms, 0.15 and 3.)
    coupling : float
        k.
    step_ms : float
        Delay in the L queue from which all packets are marked (maxTh).
    range_ms : float
        The probability rises from 0 to 1 over so much delay below `step_ms`. 0 is a step, as in Linux and in the
        papers; the RFC recommends a ramp (note c), 0.4 with `step_ms` 1.2.
    min_backlog_packets : int
        With fewer packets behind it in the L queue the ramp does not mark (Th_len).

    Notes
    -----
    Signals come at regular distances, not at random: ``recur()`` of the RFC sums probabilities up. A queue's
    delay is that of its head for the controller, that of the packet itself for the ramp. Without ECT in the
    L queue (it cannot be sent there by the classifier, but a flow may be by its ``queue``) a mark is a drop.

    In overload the text wants the share p'² of the L packets dropped and the rest marked. The pseudo code (figure 7)
    takes both from one sum and drops more (0.47 instead of 0.36 at p' = 0.6); here each has its own. Linux differs
    in more: :class:`~cctoolkit.aqm.LinuxDualPi2`.
    """

    name: ClassVar[str] = "dualpi2"
    shared: ClassVar[bool] = True
    scheduler: ClassVar[str | None] = "dual_wrr"

    target_ms: float = 15.0
    update_ms: float = 16.0
    alpha: float = 0.16
    beta: float = 3.2
    coupling: float = 2.0
    step_ms: float = 1.0
    range_ms: float = 0.0
    min_backlog_packets: int = 1

    class State:
        probability = 0.0  # p'
        old_delay_ns = 0
        l_sum = 0.0  # of probabilities since the last mark in the L queue
        l_drop_sum = 0.0  # the same for drops there, in overload
        c_sum = 0.0  # the same for signals in the classic queue

    class Stats:
        l_marks = 0
        l_drops = 0
        c_signals = 0

    def check(self) -> None:
        if self.target_ms <= 0 or self.update_ms <= 0:
            raise ParameterError("DualPi2.target_ms and DualPi2.update_ms: must be positive")
        if self.range_ms > self.step_ms:
            raise ParameterError("DualPi2.range_ms: must be at most step_ms")
        if self.coupling == 0:
            raise ParameterError("DualPi2.coupling: must be positive")

    def derived(self) -> dict[str, float]:
        """Where the ramp begins (minTh), and the largest probability for classic packets (p_Cmax)."""
        return {
            "min_threshold_ns": round((self.step_ms - self.range_ms) * 1e6),
            "max_classic": min(1 / self.coupling**2, 1.0),
        }

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        coupled = p.coupling * s.probability  # p_CL
        classic = s.probability**2  # p_C
        if queue.index == _L:
            if coupled < 1:
                own = 0.0
                if queue.packets >= p.min_backlog_packets:
                    own = laqm(p, now_ns - packet.enqueued_ns)
                likelihood = max(own, coupled)
            else:  # saturated: drop as the classic queue does (appendix A.2)
                s.l_drop_sum += classic
                if s.l_drop_sum > 1:
                    s.l_drop_sum -= 1
                    stats.l_drops += 1
                    return DROP
                likelihood = 1.0
            s.l_sum += likelihood
            if s.l_sum > 1:
                s.l_sum -= 1
                stats.l_marks += 1
                return MARK
            return PASS
        s.c_sum += classic
        if s.c_sum > 1:
            s.c_sum -= 1
            stats.c_signals += 1
            return DROP if classic >= p.max_classic else MARK
        return PASS

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        # The longer delay of the two, so that overload by the L queue alone is seen (appendix A.2)
        low: Any = peer(queue, 0)  # type: ignore[call-arg]  # numba adds the first argument
        other: Any = peer(queue, 1)
        delay = max(delay_ns(low, now_ns), delay_ns(other, now_ns))
        s.probability = pi_step(s.probability, delay, s.old_delay_ns, p.target_ns, p.alpha, p.beta)
        s.old_delay_ns = delay
        low.probability = min(p.coupling * s.probability, 1.0)
        other.probability = s.probability**2
        return PASS


# ---- in integers -----------------------------------------------------------------------------------------------------

BITS = (
    30  # after the point of probabilities and their sums; the smallest classic one that counts is below 1e-9
)
ONE = 1 << BITS


class IntegerDualPi2(DualPi2):
    """DualPI2 with a data plane in integers, as the P4 programs have it (``hardware/programs/dualpi2``), equal to them
    packet for packet. The controller stays in floating point: it is the control plane's.

    Parameters
    ----------
    As for :class:`DualPi2`; `range_ms` has to be 0 and `coupling` at least 1.

    Notes
    -----
    The data plane is given k p' and p'² with 30 bits after the point and sums them up as :class:`DualPi2` does, so a
    share is off by less than one packet in 2**30. It differs where a switch differs: the controller sees the longer of
    the delays with which packets left the two queues last since its last update (0 where none left), not of the packets
    at the heads; and drops are made at egress, so they take their time on the link.
    """

    name: ClassVar[str] = "dualpi2_integer"

    class State:
        probability = 0.0  # p', in the control plane
        old_delay_ns = 0
        coupled = 0  # k p', at most 1
        classic = 0  # p'²
        last_delay_ns = np.zeros(2, np.int64)
        l_sum = 0
        l_drop_sum = 0
        c_sum = 0

    def check(self) -> None:
        super().check()
        if self.range_ms != 0:
            raise ParameterError("IntegerDualPi2.range_ms: there is only a step, so it must be 0")
        if self.coupling < 1:
            raise ParameterError("IntegerDualPi2.coupling: must be at least 1")

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        delay = now_ns - packet.enqueued_ns
        s.last_delay_ns[queue.index] = delay
        overload = s.coupled == ONE  # then p'² has reached 1 / k², too
        if queue.index == _L:
            if overload:
                s.l_drop_sum += s.classic
                if s.l_drop_sum > ONE:
                    s.l_drop_sum -= ONE
                    stats.l_drops += 1
                    return DROP_LATE
            step = queue.packets >= p.min_backlog_packets and delay >= p.step_ns
            s.l_sum += ONE if step else s.coupled
            if s.l_sum > ONE:
                s.l_sum -= ONE
                stats.l_marks += 1
                return DROP_LATE if packet.ecn == 0 else MARK
            return PASS
        s.c_sum += s.classic
        if s.c_sum > ONE:
            s.c_sum -= ONE
            stats.c_signals += 1
            return DROP_LATE if overload or packet.ecn == 0 else MARK
        return PASS

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        delay = max(s.last_delay_ns[0], s.last_delay_ns[1])
        s.last_delay_ns[:] = 0
        s.probability = pi_step(s.probability, delay, s.old_delay_ns, p.target_ns, p.alpha, p.beta)
        s.old_delay_ns = delay
        s.coupled = fixed_point(p.coupling * s.probability, BITS)
        s.classic = fixed_point(s.probability**2, BITS)
        low: Any = peer(queue, 0)  # type: ignore[call-arg]  # numba adds the first argument
        other: Any = peer(queue, 1)
        low.probability = min(p.coupling * s.probability, 1.0)
        other.probability = s.probability**2
        return PASS
