"""CSFQ, core-stateless fair queueing: Stoica, Shenker and Zhang, "Core-stateless fair queueing: achieving
approximately fair bandwidth allocations in high speed networks", SIGCOMM 1998 (extended in IEEE/ACM Transactions on
Networking 11(1), 2003).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from .._support.kernels import part
from ..errors import ParameterError
from .base import DROP, PASS, Aqm, random

__all__ = ["Csfq"]

_MOST_CUTS = 28  # 0.99**28 is three quarters


@part(error_model="numpy")
def averaged(rate_bps, bits, elapsed_ns, memory_ns):
    """The rate estimate after another packet of `bits`, `elapsed_ns` after the previous one: equation (3)."""
    x = elapsed_ns / memory_ns
    new = bits * 1e9 / memory_ns  # the limit for simultaneous packets
    if x > 0:
        new *= -math.expm1(-x) / x
    return new + math.exp(-x) * rate_bps


@part(error_model="numpy")
def edge_rate(p, s, packet, now_ns):
    """The label written by the edge: rate of the flow over its weight (sections 3.1 and 3.3)."""
    a = min(packet.aggregate, len(s.flow_bps) - 1)
    if s.flow_seen_ns[a] < 0:
        s.flow_seen_ns[a] = now_ns - np.int64(p.flow_memory_ns)
    s.flow_bps[a] = averaged(s.flow_bps[a], 8 * packet.bytes, now_ns - s.flow_seen_ns[a], p.flow_memory_ns)
    s.flow_seen_ns[a] = now_ns
    return s.flow_bps[a] / p.weight_of[a]


@part(error_model="numpy")
def estimate_share(p, s, queue, label, now_ns):
    """Estimate the fair share alpha from rates that already count this packet (figure 3)."""
    congested = s.arrival_bps >= queue.rate_bps
    if congested and not s.congested and queue.packets < p.threshold * queue.limit_packets:
        congested = False  # with so short a queue the link does not count as congested (section 3.2)
    if congested:
        if not s.congested:
            s.congested = True
            s.window_ns = now_ns
            if s.share_bps == 0:  # no estimate yet: accept what fits
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
    """Core-stateless fair queueing: drops with the probability that limits each aggregate to its fair share.

    The edge estimates the rate of each aggregate (``Flow.aggregate``, a "flow" in the paper) and writes it into the
    packets. The core does not know aggregates: it estimates a single number, the fair share alpha, from the total
    rates of arrivals and accepted packets, and drops a packet with probability 1 - alpha / label. Here the edge is
    right before the core, like the activity meter of :class:`~cctoolkit.aqm.Abc`.

    Parameters
    ----------
    flow_memory_ms : float
        K, the averaging constant of an aggregate's rate (equation 3), in ms.
    link_memory_ms : float
        K_alpha, the averaging constant of the rates of arrivals and accepted packets, in ms.
    window_ms : float
        K_c: how long the link must stay congested, or uncongested, before alpha is estimated anew, in ms.
    threshold : float
        An uncongested link stays so while less than this share of its buffer is used (section 3.2).
    weights : float or sequence of float
        Weight of all aggregates, or one each (section 3.3); the last one applies to all that follow.
    aggregates : int
        Number of aggregates; those with this number or a higher one count as the last.

    Notes
    -----
    When a packet finds the buffer full, alpha falls by 1 percent, but by no more than 25 percent between two
    estimates (section 3.2). An uncongested link drops nothing here; figure 3 would drop whatever exceeds the
    largest label of the last K_c. The rate of accepted packets decays while packets are dropped; otherwise alpha
    could stay near zero forever. The first packet of an aggregate counts as if its predecessor had come one K
    earlier. The default constants are our choice: several RTTs of 20 ms. CSFQ drops even packets with ECT.

    See Also
    --------
    Abc : drops by activity instead of rate
    FqCoDel : fair queueing with a queue per flow

    Examples
    --------
    A UDP flow at twice the link rate starves a connection, unless CSFQ limits it:

    >>> flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("udp", rate_mbps=20, rtt_ms=20, aggregate=1)]
    >>> for aqm in ("tail_drop", "csfq"):
    ...     bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=aqm)
    ...     run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    ...     print(aqm, run.flows["goodput_mbps"].round(1).tolist())
    tail_drop [0.2, 9.6]
    csfq [1.8, 7.9]
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
        window_ns = 0  # start of the window
        largest_bps = 0.0  # largest label since then, while the link is not congested
        cuts = 0  # reductions of alpha by a full buffer since the last estimate

    class Stats:
        accepted = 0
        dropped = 0  # by probability; the queue counts drops by a full buffer

    def check(self) -> None:
        weights = self.weights if isinstance(self.weights, tuple) else (self.weights,)
        for weight in weights or ("nothing",):
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
                raise ParameterError(f"Csfq.weights: {weight!r} must be a positive number")
        for name in ("flow_memory_ms", "link_memory_ms", "window_ms"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(f"Csfq.{name}: must be positive")
        if not 0 <= self.threshold <= 1:
            raise ParameterError(f"Csfq.threshold: {self.threshold!r} must be between 0 and 1")
        if not len(weights) <= self.aggregates <= 100_000:
            raise ParameterError(f"Csfq.aggregates: must be at least {len(weights)} and at most 100000")

    def derived(self) -> dict[str, Any]:
        """The weight of each aggregate."""
        given = self.weights if isinstance(self.weights, tuple) else (self.weights,)
        return {"weight_of": np.array([*given, *[given[-1]] * (self.aggregates - len(given))], np.float64)}

    def initial(self) -> dict[str, Any]:
        """Rates at the edge, and when each aggregate was last seen."""
        return {"flow_bps": np.zeros(self.aggregates), "flow_seen_ns": np.full(self.aggregates, -1)}

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        bits = 8 * packet.bytes
        packet.label = edge_rate(p, s, packet, now_ns)

        # The core (figure 3): drop or not, then estimate the link's rates
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
