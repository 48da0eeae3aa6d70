"""DCTCP: RFC 8257."""

from __future__ import annotations

import math
from typing import ClassVar

from ..errors import ParameterError
from .base import Cca
from .reno import slow_start

__all__ = ["Dctcp"]

SCALE = 1024  # of alpha, as in Linux


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
    many packets were marked, which is what the receiver's state machine of section 3.2 is for. Loss halves the window
    (section 3.5). Under classic ECN feedback alpha stays what it was at first.

    As in Linux a reduction takes a round trip, by proportional rate reduction, in which the window does not grow, and
    alpha and the window are whole numbers (of 1024 and of packets), rounded down. That shows where few packets are
    marked: alpha below g is 0 at the next window without a mark, and what is to be taken from the window may be less
    than one packet, so none.
    """

    name: ClassVar[str] = "dctcp"
    ecn: ClassVar[str] = "accurate"
    reduces_by_marks: ClassVar[bool] = True

    g: float = 1 / 16
    initial_alpha: float = 1.0

    class State:
        alpha = SCALE  # DCTCP.Alpha
        acked = 0  # DCTCP.BytesAcked, in packets
        marked = 0  # DCTCP.BytesMarked
        window_end = 0  # DCTCP.WindowEnd

    class Stats:
        reductions = 0

    def check(self) -> None:
        if not 0 < self.g <= 1:
            raise ParameterError("Dctcp.g: must be positive and at most 1")
        if self.initial_alpha > 1:
            raise ParameterError("Dctcp.initial_alpha: must be at most 1")

    def initial(self) -> dict[str, int]:
        return {"alpha": round(self.initial_alpha * SCALE)}

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        # Section 3.3: the observation window is about a round trip
        s.acked += ack.acked
        s.marked += ack.marked
        if flow.una > s.window_end:
            less = math.floor(s.alpha * p.g)
            s.alpha -= less if less > 0 else s.alpha
            if s.marked > 0:
                s.alpha = min(s.alpha + math.floor(SCALE * p.g * s.marked / max(s.acked, 1)), SCALE)
            s.acked = 0
            s.marked = 0
            s.window_end = flow.next_seq
        if flow.may_grow:
            left = slow_start(flow, float(ack.acked))
            flow.cwnd += left / math.floor(flow.cwnd)

    @staticmethod
    def on_ecn(p, s, stats, flow, ack, now_ns):
        cwnd = math.floor(flow.cwnd)
        flow.ssthresh = max(cwnd - cwnd * s.alpha // (2 * SCALE), 2.0)  # section 3.3, item 9
        stats.reductions += 1

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        flow.ssthresh = max(flow.cwnd // 2, 2.0)  # section 3.5
