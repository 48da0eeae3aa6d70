"""Reno: RFC 5681, with recovery as the sender does it for all (SACK, RFC 6937)."""

from __future__ import annotations

from typing import ClassVar

from .base import Cca

__all__ = ["Reno"]


class Reno(Cca):
    """Additive increase of one packet a round trip, half the window at a loss (RFC 5681).

    Notes
    -----
    The increase counts delivered packets (RFC 3465 with no limit, as Linux does), so delayed ACKs do not
    slow it down. The window does not grow while it is not what limits the sender (RFC 7661).
    """

    name: ClassVar[str] = "reno"

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        if flow.in_recovery or not flow.cwnd_limited:
            return
        acked = float(ack.acked)
        if flow.cwnd < flow.ssthresh:  # slow start, section 3.1; what exceeds ssthresh counts as below
            grown = min(flow.cwnd + acked, flow.ssthresh)
            acked -= grown - flow.cwnd
            flow.cwnd = grown
        flow.cwnd += acked / flow.cwnd  # congestion avoidance, equation (3)

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        flow.ssthresh = max(flow.cwnd / 2, 2.0)  # equation (4)

    @staticmethod
    def on_rto(p, s, stats, flow, ack, now_ns):
        if not (
            flow.in_recovery or flow.in_rto
        ):  # else it was halved for this window already (RFC 5681, section 3.1)
            flow.ssthresh = max(flow.cwnd / 2, 2.0)
