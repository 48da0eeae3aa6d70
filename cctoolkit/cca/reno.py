"""Reno: RFC 5681, with the recovery that the sender provides for all (SACK, RFC 6937)."""

from __future__ import annotations

import math
from typing import ClassVar

from .._support.kernels import part
from .base import Cca

__all__ = ["Reno", "slow_start"]


@part(error_model="numpy")
def slow_start(flow, packets):
    """RFC 5681, section 3.1: grow by the delivered packets up to ssthresh; return the packets left over."""
    if flow.cwnd >= flow.ssthresh:
        return packets
    grown = min(flow.cwnd + packets, flow.ssthresh)
    left = packets - (grown - flow.cwnd)
    flow.cwnd = grown
    return left


class Reno(Cca):
    """Reno: one packet more per round trip, half the window after a loss (RFC 5681).

    Notes
    -----
    The increase counts delivered packets (RFC 3465 without a limit, as in Linux), so delayed ACKs do not slow it
    down. The window does not grow while it does not limit the sender (RFC 7661), nor for packets out of order. Half
    an odd window is rounded down, as in Linux.

    See Also
    --------
    Cubic : the default of Linux
    Dctcp : reduces by the share of marks
    Vegas : by delay

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Reno(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    38.8
    """

    name: ClassVar[str] = "reno"

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        if flow.may_grow:
            left = slow_start(flow, float(ack.acked))
            flow.cwnd += left / math.floor(flow.cwnd)  # congestion avoidance, equation (3)

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        flow.ssthresh = max(flow.cwnd // 2, 2.0)  # equation (4)
