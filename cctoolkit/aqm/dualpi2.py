"""DualPI2: RFC 9332, appendix A. Two coupled queues and one PI controller."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .._support.kernels import part
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

_L = 0  # the low latency queue; 1 is the classic queue


@part(error_model="numpy")
def laqm(p, delay):
    """Marking probability of the native L4S AQM: a ramp, or a step if the range is 0 (figure 4 of the RFC)."""
    if delay >= p.min_threshold_ns + p.range_ns:
        return 1.0
    if delay > p.min_threshold_ns:
        return (delay - p.min_threshold_ns) / p.range_ns
    return 0.0


class DualPi2(Aqm):
    """The dual-queue coupled AQM of RFC 9332, with the overload handling of appendix A.2.

    The delay of the classic queue drives a PI controller. Classic packets are signalled with the square of its
    output p', packets of the L queue with the larger of k p' and the L queue's own ramp. The scheduler assigns
    packets to queues (ECT(1) and CE to L) and sets the order of service: ``"dual_wrr"`` by default, or
    ``"dual_ts"`` (time-shifted FIFO, preferred by the RFC).

    Parameters
    ----------
    target_ms, update_ms : float
        Target delay and update interval of the controller (``target``, ``Tupdate``), in ms.
    alpha, beta : float
        Gains of the controller in Hz. (The text of the RFC recommends these; the formulas of its figure 2 give 15 ms,
        0.15 and 3.)
    coupling : float
        Coupling factor k.
    step_ms : float
        Delay in the L queue above which all packets are marked (maxTh), in ms.
    range_ms : float
        The probability rises from 0 to 1 over this much delay below `step_ms`, in ms. 0 is a step, as in Linux and
        in the papers; the RFC recommends a ramp (note c): 0.4 with `step_ms` 1.2.
    min_backlog_packets : int
        The ramp does not mark a packet with fewer packets behind it in the L queue (Th_len).

    Notes
    -----
    Signals come at regular intervals, not at random: ``recur()`` of the RFC sums probabilities up. The controller
    uses the delay of the packet at the head, the ramp that of the packet itself. For a packet without ECT in the L
    queue (the classifier sends none there, but a flow can ask for it with its ``queue``), a mark is a drop.

    In overload, the text of the RFC drops the share p'² of the L packets and marks the rest. Its pseudocode (figure
    7) takes both from one sum and drops more (0.47 instead of 0.36 at p' = 0.6); here each has its own sum. Linux
    has further differences: :class:`~cctoolkit.aqm.LinuxDualPi2`.

    See Also
    --------
    LinuxDualPi2 : the rules of the Linux kernel
    IntegerDualPi2 : a data plane in integers
    Pi2 : one queue for both kinds of traffic

    Examples
    --------
    Mean queueing delay of the two queues in ms, low latency first:

    >>> flows = [cct.Flow("prague", rtt_ms=20), cct.Flow("cubic", rtt_ms=20)]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.DualPi2())
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.queues["mean_delay_ms"].round(1).tolist()
    [0.9, 17.2]
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
        l_sum = 0.0  # sum of probabilities since the last mark in the L queue
        l_drop_sum = 0.0  # same for drops in the L queue, in overload
        c_sum = 0.0  # same for signals in the classic queue

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
        """Start of the ramp (minTh), and the largest probability for classic packets (p_Cmax)."""
        return {
            "min_threshold_ns": round((self.step_ms - self.range_ms) * 1e6),
            "max_classic": (1 / max(self.coupling, 1.0)) ** 2,
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
            else:  # saturated: drop like the classic queue (appendix A.2)
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
        # The longer of the two delays, to detect overload by the L queue alone (appendix A.2)
        low: Any = peer(queue, 0)  # type: ignore[call-arg]  # numba adds the first argument
        other: Any = peer(queue, 1)
        delay = max(delay_ns(low, now_ns), delay_ns(other, now_ns))
        s.probability = pi_step(s.probability, delay, s.old_delay_ns, p.target_ns, p.alpha, p.beta)
        s.old_delay_ns = delay
        low.probability = min(p.coupling * s.probability, 1.0)
        other.probability = s.probability**2
        return PASS


# ---- in integers -----------------------------------------------------------------------------------------------------

BITS = 30  # fractional bits of probabilities and their sums; the smallest nonzero one is below 1e-9
ONE = 1 << BITS


class IntegerDualPi2(DualPi2):
    """DualPI2 with a data plane in integers: packet for packet the P4 programs of ``hardware/programs/dualpi2``.

    The controller stays in floating point, since it runs in the control plane. Parameters are those of
    :class:`DualPi2`; `range_ms` must be 0 and `coupling` at least 1.

    Notes
    -----
    The data plane receives k p' and p'² with 30 fractional bits and sums them up like :class:`DualPi2`, so the
    share of signals is off by less than one packet in 2**30. It deviates where a switch does: the controller sees
    the longer of the delays of the last packets that left the two queues since its last update (0 if none left),
    not those of the packets at the heads; and drops happen at egress, so they take their time on the link.

    See Also
    --------
    DualPi2 : in floating point
    IntegerPi2 : one queue for both kinds of traffic

    Examples
    --------
    Mean queueing delay of the two queues in ms, low latency first:

    >>> flows = [cct.Flow("prague", rtt_ms=20), cct.Flow("cubic", rtt_ms=20)]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.IntegerDualPi2())
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.queues["mean_delay_ms"].round(1).tolist()
    [0.9, 16.7]
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
            raise ParameterError("IntegerDualPi2.range_ms: must be 0, since there is only a step")
        if self.coupling < 1:
            raise ParameterError("IntegerDualPi2.coupling: must be at least 1")

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        delay = now_ns - packet.enqueued_ns
        s.last_delay_ns[queue.index] = delay
        overload = s.coupled == ONE  # p'² has then reached 1 / k²
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
