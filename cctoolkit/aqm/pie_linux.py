"""PIE as in Linux (net/sched/sch_pie.c, since 3.14; as of 6.12)."""

from __future__ import annotations

from typing import ClassVar

from ..errors import ParameterError
from .base import DROP, MARK, PASS, Aqm, random
from .pie import has_room, tuning

__all__ = ["LinuxPie"]


class LinuxPie(Aqm):
    """PIE with the rules of the Linux kernel.

    It differs from RFC 8033 (:class:`~cctoolkit.aqm.Pie`):

    - Arrivals are judged by the delay of the packet that left last, not by that at the last update; a packet that
      leaves an empty queue behind sets it to 0.
    - The burst allowance decreases with the time between departures, idle time included, and is renewed by the update,
      not by an arrival.
    - The probability is not limited to 1: in overload it keeps growing, and takes as long to fall again.
    - Above a delay of 250 ms, each update adds 2 percent.
    - After calm, the probability falls by 1/64 instead of 2 percent, and not while packets wait.
    - From a sum of 8.5 on (derandomisation), every packet with ECT is marked: only a drop or a random mark resets the
      sum.
    - Packets with ECT are still marked at a probability of exactly 10 percent.

    Parameters
    ----------
    target_ms, update_ms : float
        ``target`` and ``tupdate`` of ``tc pie``, in ms; Linux rounds the latter up to its clock ticks (1, 4 or 10 ms).
    alpha, beta : float
        Gains in Hz; ``tc pie`` has multiples of 1/16.
    burst_ms : float
        Burst allowance in ms; fixed in Linux.
    mtu_bytes : int
        Packet size in bytes; never drops if the queue holds less than two packets of this size.

    Notes
    -----
    Without ``bytemode`` and ``dq_rate_estimator``, which are off by default. The first update comes after
    `update_ms`; in Linux, after half a second. With the same packets and random numbers, the kernel's C code makes
    the same decisions.

    See Also
    --------
    Pie : as in RFC 8033
    LinuxCoDel : another discipline of the kernel

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.LinuxPie(target_ms=10))
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    17.6
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
        delay_ns = 0  # delay of the packet that left last
        old_delay_ns = 0
        burst_ns = 0  # time left in which nothing is dropped
        departed_ns = -1  # when the last packet left; -1: none since the last restart

    class Stats:
        signals = 0

    def check(self) -> None:
        if self.target_ms <= 0 or self.update_ms <= 0:
            raise ParameterError("LinuxPie.target_ms and LinuxPie.update_ms: must be positive")

    def initial(self) -> dict[str, int]:
        """The burst allowance, available from the start."""
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
