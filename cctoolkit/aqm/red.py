"""RED, random early detection: Floyd and Jacobson 1993, with the gentle slope (Floyd 2000) and ECN (RFC 3168)."""

from __future__ import annotations

from typing import ClassVar

from ..errors import ParameterError
from .base import DROP, MARK, PASS, Aqm, random

__all__ = ["Red"]


class Red(Aqm):
    """Signals with a probability that grows with the average queue, evenly spread (Floyd and Jacobson 1993).

    Parameters
    ----------
    min_packets, max_packets : float
        Thresholds of the average queue, min_th and max_th.
    max_probability : float
        max_p, reached at `max_packets`.
    weight : float
        w_q of the moving average.
    gentle : bool
        Above `max_packets` the probability goes on from `max_probability` to 1 at twice `max_packets`;
        otherwise it jumps to 1, as in 1993 and in Linux.
    hard_drop : bool
        What arrives where the probability is 1 is dropped even with ECT (RFC 3168, section 7); otherwise it
        is marked, as Linux does unless told ``harddrop``.
    mean_packet_bytes : int
        Idle time counts as so many packets of this size that could have been sent (section 4's s).

    Notes
    -----
    Gaps between signals are uniform on 1 to 1/p - 1, as the paper's pseudo code (figure 2) gives them; its text
    (section 7) says 1 to 1/p. Queue and thresholds are in packets (the paper's first form).

    Linux (``include/net/red.h``) is not gentle and counts bytes. It draws a random number once a signal, with gaps
    of 1 to 1/p. While the queue never runs empty its average is the same (to 0.003 packets in 330 000 arrivals of
    equal size) and it signals 3 percent less at 1/p of about 25. After idle time the two differ: there, ``tc`` gives
    the kernel a table for the ``bandwidth`` on its command line (10 Mbit/s if there is none) in units 15.6 times
    finer than the kernel's, and pauses too short for the table take a part that has nothing to do with the weight.
    """

    name: ClassVar[str] = "red"

    min_packets: float = 5.0
    max_packets: float = 15.0
    max_probability: float = 0.1
    weight: float = 0.002
    gentle: bool = True
    hard_drop: bool = False
    mean_packet_bytes: int = 1514

    class State:
        average = 0.0  # of the queue, packets
        count = -1  # packets since the last signal; -1: below the lower threshold

    class Stats:
        early = 0  # signals by chance
        forced = 0  # signals above the slope

    def check(self) -> None:
        if self.max_packets <= self.min_packets:
            raise ParameterError("Red.max_packets: must be above min_packets")
        if not 0 < self.max_probability <= 1:
            raise ParameterError("Red.max_probability: must be positive and at most 1")
        if not 0 < self.weight <= 1:
            raise ParameterError("Red.weight: must be positive and at most 1")
        if self.mean_packet_bytes == 0:
            raise ParameterError("Red.mean_packet_bytes: must be positive")

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        # Figure 2: the average, as if small packets had come while the queue was idle
        if queue.packets > 0:
            s.average += p.weight * (queue.packets - s.average)
        else:
            could_send = (now_ns - queue.idle_since_ns) * queue.rate_bps / (8e9 * p.mean_packet_bytes)
            s.average *= (1 - p.weight) ** could_send

        if s.average < p.min_packets:
            s.count = -1
            queue.probability = 0.0
            return PASS
        if s.average < p.max_packets:
            rise = (s.average - p.min_packets) / (p.max_packets - p.min_packets)
            probability = p.max_probability * rise
        elif p.gentle and s.average < 2 * p.max_packets:
            rise = (s.average - p.max_packets) / p.max_packets
            probability = p.max_probability + (1 - p.max_probability) * rise
        else:
            s.count = 0
            stats.forced += 1
            queue.probability = 1.0
            return DROP if p.hard_drop else MARK
        queue.probability = probability

        # Section 7: dividing by 1 - count p makes the gaps between signals uniform instead of geometric
        s.count += 1
        left = 1 - s.count * probability
        if left <= 0 or random(queue) < probability / left:
            s.count = 0
            stats.early += 1
            return MARK
        return PASS
