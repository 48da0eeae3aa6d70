"""Reno: RFC 5681, with recovery as the sender does it for all (SACK, RFC 6937)."""

from __future__ import annotations

import math
from typing import ClassVar

import numba

from .base import Cca

__all__ = ["Reno", "slow_start"]


@numba.njit(error_model="numpy")
def slow_start(flow, packets):
    """RFC 5681, section 3.1: grow by what was delivered, up to ssthresh; gives how many packets are left over."""
    if flow.cwnd >= flow.ssthresh:
        return packets
    grown = min(flow.cwnd + packets, flow.ssthresh)
    left = packets - (grown - flow.cwnd)
    flow.cwnd = grown
    return left


class Reno(Cca):
    """Additive increase of one packet a round trip, half the window at a loss (RFC 5681).

    Notes
    -----
    The increase counts delivered packets (RFC 3465 with no limit, as Linux does), so delayed ACKs do not
    slow it down. The window does not grow while it is not what limits the sender (RFC 7661), nor for packets out of
    order. Half an odd window is rounded down, as in Linux.
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
