"""DCTCP: RFC 8257."""

from __future__ import annotations

from typing import ClassVar

from ..errors import ParameterError
from .base import Cca

__all__ = ["Dctcp"]


class Dctcp(Cca):
    """Reduces the window by the extent of congestion, not its presence: half of the part of packets marked (RFC 8257).

    Parameters
    ----------
    g : float
        Weight of the latest window in the estimate of that part (section 4.2: 1/16).
    initial_alpha : float
        The estimate at the start (section 4.2, item 1 of the initialisation: 1, so the first mark halves).

    Notes
    -----
    Counts are of packets, not bytes (section 3.3); all are full-sized here. With accurate feedback the sender knows how
    many packets were marked, which is what the receiver's state machine of section 3.2 is for. The window is reduced
    at once, not over a round trip, and goes on growing meanwhile as Reno's does: with marks in every round trip that
    is what gives the steady state W = 2 / p. Linux does not grow in the round trip after a reduction. Loss halves
    the window (section 3.5). Under classic ECN feedback it is Reno.
    """

    name: ClassVar[str] = "dctcp"
    ecn: ClassVar[str] = "accurate"

    g: float = 1 / 16
    initial_alpha: float = 1.0

    class State:
        alpha = 1.0  # DCTCP.Alpha
        acked = 0  # DCTCP.BytesAcked, in packets
        marked = 0  # DCTCP.BytesMarked
        window_end = 0  # DCTCP.WindowEnd
        reduced_end = 0  # no other reduction before this is acknowledged

    class Stats:
        reductions = 0

    def check(self) -> None:
        if not 0 < self.g <= 1:
            raise ParameterError("Dctcp.g: has to be above 0 and at most 1")
        if self.initial_alpha > 1:
            raise ParameterError("Dctcp.initial_alpha: has to be at most 1")

    def initial(self) -> dict[str, float]:
        return {"alpha": self.initial_alpha}

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        # Section 3.3: the observation window is about a round trip
        s.acked += ack.acked
        s.marked += ack.marked
        if flow.una > s.window_end:
            m = min(s.marked / s.acked, 1.0) if s.acked > 0 else 0.0
            s.alpha = s.alpha * (1 - p.g) + p.g * m
            s.acked = 0
            s.marked = 0
            s.window_end = flow.next_seq
        if flow.in_recovery:
            return

        if ack.marked > 0 and flow.una > s.reduced_end:
            s.reduced_end = flow.next_seq
            flow.cwnd = max(flow.cwnd * (1 - s.alpha / 2), 2.0)
            flow.ssthresh = flow.cwnd
            stats.reductions += 1
        if not flow.cwnd_limited:
            return
        acked = float(ack.acked)
        if flow.cwnd < flow.ssthresh:
            grown = min(flow.cwnd + acked, flow.ssthresh)
            acked -= grown - flow.cwnd
            flow.cwnd = grown
        flow.cwnd += acked / flow.cwnd

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        flow.ssthresh = max(flow.cwnd / 2, 2.0)  # section 3.5

    @staticmethod
    def on_rto(p, s, stats, flow, ack, now_ns):
        if not (
            flow.in_recovery or flow.in_rto
        ):  # else that was done for this window (RFC 5681, section 3.1)
            flow.ssthresh = max(flow.cwnd / 2, 2.0)
