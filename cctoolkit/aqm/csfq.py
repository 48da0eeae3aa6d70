"""CSFQ, core-stateless fair queueing: Stoica, Shenker and Zhang, "Core-stateless fair queueing: achieving
approximately fair bandwidth allocations in high speed networks", SIGCOMM 1998 (longer in IEEE/ACM Transactions on
Networking 11(1), 2003).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numba
import numpy as np

from ..errors import ParameterError
from .base import DROP, PASS, Aqm, random

__all__ = ["Csfq"]

_MOST_CUTS = 28  # 0.99**28 is three quarters


@numba.njit(error_model="numpy")
def averaged(rate_bps, bits, elapsed_ns, memory_ns):
    """The rate after a packet of so many bits, so long after the one before: equation (3)."""
    x = elapsed_ns / memory_ns
    new = bits * 1e9 / memory_ns  # the limit for packets at the same time
    if x > 0:
        new *= -math.expm1(-x) / x
    return new + math.exp(-x) * rate_bps


@numba.njit(error_model="numpy")
def edge_rate(p, s, packet, now_ns):
    """What the edge writes into the label: the flow's rate over its weight (sections 3.1 and 3.3)."""
    a = min(packet.aggregate, len(s.flow_bps) - 1)
    if s.flow_seen_ns[a] < 0:
        s.flow_seen_ns[a] = now_ns - np.int64(p.flow_memory_ns)
    s.flow_bps[a] = averaged(s.flow_bps[a], 8 * packet.bytes, now_ns - s.flow_seen_ns[a], p.flow_memory_ns)
    s.flow_seen_ns[a] = now_ns
    return s.flow_bps[a] / p.weight_of[a]


@numba.njit(error_model="numpy")
def estimate_share(p, s, queue, label, now_ns):
    """The fair share alpha, from rates in which this packet is counted already (figure 3)."""
    congested = s.arrival_bps >= queue.rate_bps
    if congested and not s.congested and queue.packets < p.threshold * queue.limit_packets:
        congested = False  # with so little in the buffer the link is not called congested (section 3.2)
    if congested:
        if not s.congested:
            s.congested = True
            s.window_ns = now_ns
            if s.share_bps == 0:  # nothing is known yet: as many as fit
                s.share_bps = min(s.largest_bps, queue.rate_bps)
        elif now_ns > s.window_ns + p.window_ns:
            s.share_bps *= queue.rate_bps / s.accepted_bps
            s.window_ns = now_ns
            s.cuts = 0
    elif s.congested:
        s.congested = False
        s.window_ns = now_ns
        s.largest_bps = 0.0
    elif now_ns < s.window_ns + p.window_ns:
        s.largest_bps = max(s.largest_bps, label)
    else:
        s.share_bps = s.largest_bps
        s.window_ns = now_ns
        s.largest_bps = label
        s.cuts = 0


class Csfq(Aqm):
    """Drops with the probability that brings each aggregate down to the fair share of the link.

    The edge estimates the rate of each aggregate (``Flow.aggregate``, a "flow" in the paper) and writes it into its
    packets; the core knows no aggregates, it estimates one number, the fair share alpha, from all that arrives and all
    that it accepts, and drops a packet with probability 1 - alpha / label. Here the edge is right before the core, as
    the activity meter of :class:`~cctoolkit.aqm.Abc` is.

    Parameters
    ----------
    flow_memory_ms : float
        K, of an aggregate's rate (equation 3).
    link_memory_ms : float
        K_alpha, of the rates of arrivals and accepted packets.
    window_ms : float
        K_c: how long the link has to stay congested, or not, before alpha is estimated anew.
    threshold : float
        A link that was not congested stays so as long as less than this part of its buffer is taken (section 3.2).
    weights : float or sequence of float
        Of all aggregates or of each (section 3.3); the last one goes on for those not named.
    aggregates : int
        How many can be told apart. Aggregates with this number or higher are one with the last.

    Notes
    -----
    When a packet finds the buffer full, alpha falls by 1 percent, and by no more than 25 percent between two estimates
    (section 3.2). A link that is not congested drops nothing; figure 3 would drop then too, whatever has grown beyond
    the largest label of the last K_c. The rate of accepted packets decays while packets are dropped, or alpha could
    stay near zero for good. The first packet of an aggregate counts as if the one before had come one K earlier. The
    default memories are chosen here: several RTTs of 20 ms. CSFQ drops, also with ECT.
    """

    name: ClassVar[str] = "csfq"
    shared: ClassVar[bool] = True

    flow_memory_ms: float = 100.0
    link_memory_ms: float = 200.0
    window_ms: float = 200.0
    threshold: float = 0.5
    weights: float | tuple[float, ...] = 1.0
    aggregates: int = 64

    class State:
        share_bps = 0.0  # alpha
        arrival_bps = 0.0  # A
        accepted_bps = 0.0  # F
        arrived_ns = -1
        congested = False
        window_ns = 0  # when it began
        largest_bps = 0.0  # label since then, while the link is not congested
        cuts = 0  # of alpha because of a full buffer, since the last estimate

    class Stats:
        accepted = 0
        dropped = 0  # by probability; a full buffer is counted by the queue

    def check(self) -> None:
        weights = self.weights if isinstance(self.weights, tuple) else (self.weights,)
        for weight in weights or ("nothing",):
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
                raise ParameterError(f"Csfq.weights: {weight!r} is not a number above 0")
        for name in ("flow_memory_ms", "link_memory_ms", "window_ms"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"Csfq.{name}: must be positive")
        if not 0 <= self.threshold <= 1:
            raise ParameterError(f"Csfq.threshold: {self.threshold!r} is not between 0 and 1")
        if not len(weights) <= self.aggregates <= 100_000:
            raise ParameterError(f"Csfq.aggregates: must be at least {len(weights)} and at most 100000")

    def derived(self) -> dict[str, Any]:
        """The weight of each aggregate."""
        given = self.weights if isinstance(self.weights, tuple) else (self.weights,)
        return {"weight_of": np.array([*given, *[given[-1]] * (self.aggregates - len(given))], np.float64)}

    def initial(self) -> dict[str, Any]:
        """The edge's rates, and when each aggregate was seen last."""
        return {"flow_bps": np.zeros(self.aggregates), "flow_seen_ns": np.full(self.aggregates, -1)}

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        bits = 8 * packet.bytes
        packet.label = edge_rate(p, s, packet, now_ns)

        # The core (figure 3): drop or not, then what that says of the link
        drop = s.congested and random(queue) < 1 - s.share_bps / packet.label
        if s.arrived_ns >= 0:
            elapsed_ns = now_ns - s.arrived_ns
            s.arrival_bps = averaged(s.arrival_bps, bits, elapsed_ns, p.link_memory_ns)
            s.accepted_bps = averaged(s.accepted_bps, 0 if drop else bits, elapsed_ns, p.link_memory_ns)
        s.arrived_ns = now_ns
        estimate_share(p, s, queue, packet.label, now_ns)
        if drop:
            stats.dropped += 1
            return DROP
        full = queue.packets >= queue.limit_packets or queue.bytes + packet.bytes > queue.limit_bytes
        if full and s.cuts < _MOST_CUTS:
            s.share_bps *= 0.99
            s.cuts += 1
        stats.accepted += not full
        if s.congested:
            packet.label = min(packet.label, s.share_bps)  # for the next hop
        return PASS
