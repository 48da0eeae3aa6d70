"""PIE as Linux has it (net/sched/sch_pie.c, since 3.14; read in 6.12)."""

from __future__ import annotations

from typing import ClassVar

from ..errors import ParameterError
from .base import DROP, MARK, PASS, Aqm, random
from .pie import has_room, tuning

__all__ = ["LinuxPie"]


class LinuxPie(Aqm):
    """PIE with the rules of the Linux kernel.

    It differs from RFC 8033's (:class:`~cctoolkit.aqm.Pie`):

    - Arrivals are judged by the delay of the packet that left last, not by that of the last update; a packet that
      leaves the queue empty sets it to 0.
    - The burst allowance runs out with the time between departures, idle time included, and is given again by the
      update, not by an arrival.
    - The probability is not held below 1: under overload it goes on growing, and takes as long to come back.
    - With a delay above 250 ms each update adds 2 percent.
    - After calm the probability falls by a 64th, not by 2 percent, and not while packets wait.
    - From a sum of 8.5 on (derandomisation) packets with ECT are marked one after the other: only a drop, or a mark
      by chance, sets the sum back.
    - Packets with ECT are still marked at a probability of exactly 10 percent.

    Parameters
    ----------
    target_ms, update_ms : float
        As in ``tc pie``; Linux rounds `update_ms` up to its clock ticks (1, 4 or 10 ms).
    alpha, beta : float
        Hz; ``tc pie`` has them in sixteenths.
    burst_ms : float
        Fixed in Linux.
    mtu_bytes : int
        With less than two packets of this size in the queue it never drops.

    Notes
    -----
    Without ``bytemode`` and ``dq_rate_estimator``, which are off by default. The first update comes after
    `update_ms`, in Linux after half a second. Fed with the same packets and random numbers, this and the kernel's C
    code decide alike.
    """

    name: ClassVar[str] = "pie_linux"

    target_ms: float = 15.0
    update_ms: float = 15.0
    alpha: float = 0.125
    beta: float = 1.25
    burst_ms: float = 150.0
    mtu_bytes: int = 1514

    class State:
        probability = 0.0
        accumulated = 0.0  # sum of probabilities since the last drop
        delay_ns = 0  # of the packet that left last
        old_delay_ns = 0
        burst_ns = 0  # time left in which nothing is dropped
        departed_ns = -1  # when the last packet left; -1: none since the last restart

    class Stats:
        signals = 0

    def check(self) -> None:
        if self.target_ms <= 0 or self.update_ms <= 0:
            raise ParameterError("LinuxPie.target_ms and LinuxPie.update_ms: must be positive")

    def initial(self) -> dict[str, int]:
        """The burst allowance is there from the start."""
        return {"burst_ns": round(self.burst_ms * 1e6)}

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if not has_room(queue, packet):
            s.accumulated = 0.0
            return PASS
        # pie_drop_early()
        if s.burst_ns > 0:
            return PASS
        if s.delay_ns < p.target_ns // 2 and s.probability < 0.2:
            return PASS
        if queue.bytes < 2 * p.mtu_bytes:
            return PASS
        if s.probability == 0:
            s.accumulated = 0.0
        s.accumulated += s.probability
        if s.accumulated < 0.85:
            return PASS
        if s.accumulated < 8.5:
            if random(queue) >= s.probability:
                return PASS
            s.accumulated = 0.0
        stats.signals += 1
        if packet.ecn != 0 and s.probability <= 0.1:
            return MARK
        s.accumulated = 0.0
        return DROP

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        # pie_process_dequeue()
        s.delay_ns = now_ns - packet.enqueued_ns if queue.packets > 0 else 0
        if s.departed_ns >= 0:
            s.burst_ns = max(0, s.burst_ns - (now_ns - s.departed_ns))
        s.departed_ns = now_ns
        return PASS

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        # pie_calculate_probability()
        step = p.alpha * (s.delay_ns - p.target_ns) * 1e-9 + p.beta * (s.delay_ns - s.old_delay_ns) * 1e-9
        step *= tuning(s.probability)
        if s.probability >= 0.1:
            step = min(step, 0.02)
        if s.delay_ns > 250_000_000:
            step += 0.02
        s.probability = max(s.probability + step, 0.0)
        if s.delay_ns == 0 and s.old_delay_ns == 0 and queue.packets == 0:
            s.probability -= s.probability / 64
        if s.probability == 0 and max(s.delay_ns, s.old_delay_ns) < p.target_ns // 2:  # pie_vars_init()
            s.burst_ns = p.burst_ns
            s.departed_ns = -1
            s.accumulated = 0.0
        s.old_delay_ns = s.delay_ns
        queue.probability = min(s.probability, 1.0)
        return PASS
