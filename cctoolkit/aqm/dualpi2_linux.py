"""DualPI2 as Linux has it (net/sched/sch_dualpi2.c, since 6.17)."""

from __future__ import annotations

from typing import Any, ClassVar

import numba

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

_L = 0  # low latency queue; 1 is the classic one


@numba.njit(error_model="numpy")
def both(probability, queue):
    """Two draws, the second only if the first says yes: the square of the probability."""
    return random(queue) < probability and random(queue) < probability


class LinuxDualPi2(Aqm):
    """DualPI2 with the rules of the Linux kernel.

    It differs from RFC 9332's (:class:`~cctoolkit.aqm.DualPi2`):

    - Signals are drawn at random, where the RFC sums probabilities up.
    - In the L queue the coupled probability and the step are two decisions one after the other, so packets below
      the step are marked with k p', those above it always.
    - With less than two packets of `mtu_bytes` left in both queues the controller signals nothing; the step may.
    - The step needs a delay above it; how long the L queue has to be is asked when the packet arrives.
    - There is no ramp.
    - Overload begins above k p' = 1 (the RFC: at p'² = 1/k²).

    Parameters
    ----------
    target_ms, update_ms : float
        Of the controller.
    alpha, beta : float
        Its gains, Hz (``tc dualpi2`` has 256ths).
    coupling : float
        ``coupling_factor``.
    step_ms : float
        ``step_thresh``.
    min_backlog_packets : int
        ``min_qlen_step``: an L packet that finds fewer there is not marked by the step.
    drop_overload : bool
        From k p' = 1 on packets of the L queue are dropped with the square of p'; otherwise k p' stays at 1 and the
        buffer overflows.
    mtu_bytes : int
        See above.

    Notes
    -----
    Decisions are taken when packets leave (``drop_dequeue``, the default). Fed with the same packets, served in the
    same order, and the same random numbers, this and the kernel's C code decide alike; it rounds the gains (0.1
    percent at the default values).
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
        l_marks = 0  # by the controller
        step_marks = 0  # by the step, of packets not marked yet
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
