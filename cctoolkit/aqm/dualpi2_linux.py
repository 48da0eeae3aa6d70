"""DualPI2 as in Linux (net/sched/sch_dualpi2.c, since 6.17)."""

from __future__ import annotations

from typing import Any, ClassVar

from .._support.kernels import part
from ..errors import ParameterError
from .base import (
    DROP,
    MARK,
    PASS,
    Aqm,
    delay_ns,
    peer,
    random,
)
from .pi2 import pi_step

__all__ = ["LinuxDualPi2"]

_L = 0  # the low latency queue; 1 is the classic queue


@part(error_model="numpy")
def both(probability, queue):
    """True with the square of the probability: two draws, the second only if the first succeeds."""
    return random(queue) < probability and random(queue) < probability


class LinuxDualPi2(Aqm):
    """DualPI2 with the rules of the Linux kernel.

    It differs from RFC 9332 (:class:`~cctoolkit.aqm.DualPi2`):

    - Signals are random, while the RFC sums probabilities up.
    - In the L queue, the coupled probability and the step are two consecutive decisions: packets below the step are
      marked with probability k p', those above it always.
    - With less than two packets of `mtu_bytes` left in both queues, the controller signals nothing; the step still
      may.
    - The step marks delays above it, not equal to it; the minimum length of the L queue is checked on arrival.
    - There is no ramp.
    - Overload starts above k p' = 1 (in the RFC, at p'² = 1/k²).

    Parameters
    ----------
    target_ms, update_ms : float
        Target delay and update interval of the controller, in ms.
    alpha, beta : float
        Gains of the controller in Hz (``tc dualpi2`` has multiples of 1/256).
    coupling : float
        Coupling factor k (``coupling_factor``).
    step_ms : float
        Delay in the L queue above which all packets are marked, in ms (``step_thresh``).
    min_backlog_packets : int
        The step does not mark an L packet that finds fewer packets in the queue (``min_qlen_step``).
    drop_overload : bool
        Above k p' = 1, drop packets of the L queue with the square of p'; if false, k p' is limited to 1 and the
        buffer overflows.
    mtu_bytes : int
        Packet size for the rule above, in bytes.

    Notes
    -----
    Decisions are made when packets leave (``drop_dequeue``, the default). With the same packets, order of service
    and random numbers, the kernel's C code makes the same decisions; it rounds the gains (by 0.1 percent for the
    defaults).

    See Also
    --------
    DualPi2 : as in RFC 9332
    LinuxPie : another discipline of the kernel

    Examples
    --------
    Mean queueing delay of the two queues in ms, low latency first:

    >>> flows = [cct.Flow("prague", rtt_ms=20), cct.Flow("cubic", rtt_ms=20)]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.LinuxDualPi2())
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.queues["mean_delay_ms"].round(1).tolist()
    [0.8, 15.9]
    """

    name: ClassVar[str] = "dualpi2_linux"
    shared: ClassVar[bool] = True
    scheduler: ClassVar[str | None] = "dual_wrr"

    target_ms: float = 15.0
    update_ms: float = 16.0
    alpha: float = 0.16
    beta: float = 3.2
    coupling: float = 2.0
    step_ms: float = 1.0
    min_backlog_packets: int = 0
    drop_overload: bool = True
    mtu_bytes: int = 1514

    class State:
        probability = 0.0  # p'
        old_delay_ns = 0

    class Stats:
        l_marks = 0  # marks by the controller
        step_marks = 0  # marks by the step, of packets not yet marked
        l_drops = 0
        c_signals = 0

    def check(self) -> None:
        if self.target_ms <= 0 or self.update_ms <= 0:
            raise ParameterError("LinuxDualPi2.target_ms and LinuxDualPi2.update_ms: must be positive")
        if self.coupling == 0:
            raise ParameterError("LinuxDualPi2.coupling: must be positive")

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        packet.label = 1.0 if queue.packets >= p.min_backlog_packets else 0.0  # may the step mark it?
        return PASS

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        other: Any = peer(queue, 1 - queue.index)  # type: ignore[call-arg]  # numba adds the first argument
        coupled = p.coupling * s.probability
        waiting = queue.bytes + other.bytes >= 2 * p.mtu_bytes
        if queue.index != _L:
            if waiting and both(s.probability, queue):
                stats.c_signals += 1
                return DROP if coupled > 1 else MARK
            return PASS
        verdict = PASS
        if waiting and coupled > 1:
            if p.drop_overload and both(s.probability, queue):
                stats.l_drops += 1
                return DROP
            verdict = MARK
        elif waiting and random(queue) < coupled:
            verdict = MARK
        if verdict == MARK:
            stats.l_marks += 1
        elif packet.label > 0 and now_ns - packet.enqueued_ns > p.step_ns:
            stats.step_marks += 1
            verdict = MARK
        return verdict

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        low: Any = peer(queue, 0)  # type: ignore[call-arg]
        other: Any = peer(queue, 1)
        delay = max(delay_ns(low, now_ns), delay_ns(other, now_ns))
        s.probability = pi_step(s.probability, delay, s.old_delay_ns, p.target_ns, p.alpha, p.beta)
        if not p.drop_overload:
            s.probability = min(s.probability, 1 / p.coupling)
        s.old_delay_ns = delay
        low.probability = min(p.coupling * s.probability, 1.0)
        other.probability = s.probability**2
        return PASS
