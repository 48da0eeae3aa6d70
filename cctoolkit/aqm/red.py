"""RED (Random Early Detection): Floyd and Jacobson 1993, with the gentle slope (Floyd 2000) and ECN (RFC 3168)."""

from __future__ import annotations

from typing import ClassVar

from ..errors import ParameterError
from .base import DROP, MARK, PASS, Aqm, random

__all__ = ["Red"]


class Red(Aqm):
    """RED: signals, evenly spaced, with a probability that grows with the average queue (Floyd and Jacobson 1993).

    Parameters
    ----------
    min_packets, max_packets : float
        Thresholds min_th and max_th of the average queue, in packets.
    max_probability : float
        Probability max_p at `max_packets`.
    weight : float
        Weight w_q of the moving average.
    gentle : bool
        Above `max_packets`, the probability rises from `max_probability` to 1 at twice `max_packets`; if false, it
        jumps to 1, as in 1993 and in Linux.
    hard_drop : bool
        Drop packets where the probability is 1 even with ECT (RFC 3168, section 7); if false, mark them, as Linux does
        without ``harddrop``.
    mean_packet_bytes : int
        Packet size in bytes; idle time counts as the packets of this size that could have been sent (s in section 4).

    Notes
    -----
    Gaps between signals are uniform on 1 to 1/p - 1, as in the paper's pseudocode (figure 2); its text (section 7)
    says 1 to 1/p. Queue and thresholds are in packets (the paper's first variant).

    Linux (``include/net/red.h``) is not gentle and counts bytes. It draws one random number per signal, with gaps
    of 1 to 1/p. While the queue never runs empty, its average is the same (to 0.003 packets over 330 000 arrivals
    of equal size) and it signals 3 percent less at 1/p of about 25. After idle time the two differ: ``tc`` gives
    the kernel a table for the ``bandwidth`` on its command line (10 Mbit/s by default) in units 15.6 times finer
    than the kernel's, and pauses too short for the table decay by a share that does not depend on the weight.

    See Also
    --------
    CoDel : by delay instead of length
    Choke : RED that penalises flows that occupy the queue
    IRed : RED on a switch

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.Red())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    8.9
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
        average = 0.0  # average queue in packets
        count = -1  # packets since the last signal; -1: below the lower threshold

    class Stats:
        early = 0  # random signals
        forced = 0  # signals at probability 1

    def check(self) -> None:
        if self.max_packets <= self.min_packets:
            raise ParameterError("Red.max_packets: must be greater than min_packets")
        if not 0 < self.max_probability <= 1:
            raise ParameterError("Red.max_probability: must be positive and at most 1")
        if not 0 < self.weight <= 1:
            raise ParameterError("Red.weight: must be positive and at most 1")
        if self.mean_packet_bytes == 0:
            raise ParameterError("Red.mean_packet_bytes: must be positive")

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        # Figure 2: the average, as if small packets had arrived while the queue was idle
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
