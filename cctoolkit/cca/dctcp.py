"""DCTCP: RFC 8257."""

from __future__ import annotations

import math
from typing import ClassVar

from ..errors import ParameterError
from .base import Cca
from .reno import slow_start

__all__ = ["Dctcp"]

SCALE = 1024  # alpha is in units of 1/1024, as in Linux


class Dctcp(Cca):
    """DCTCP: reduces the window by half the share of marked packets (RFC 8257).

    Parameters
    ----------
    g : float
        Weight of the latest window in the estimate of that share (section 4.2: 1/16).
    initial_alpha : float
        Initial estimate (section 4.2, item 1 of the initialisation: 1, so the first mark halves the window).

    Notes
    -----
    It counts packets, not bytes (section 3.3); all are full-sized here. With accurate feedback, the sender knows how
    many packets were marked, which is the purpose of the receiver's state machine in section 3.2. Loss halves the
    window (section 3.5). With classic ECN feedback, alpha keeps its initial value.

    As in Linux, a reduction takes a round trip of proportional rate reduction in which the window does not grow, and
    alpha and the window are integers (in units of 1/1024 and packets), rounded down. This matters if few packets are
    marked. An alpha below g is forgotten at every window: if a steady share F of the packets is marked, it then stays
    at g F instead of F, until F exceeds 1/4. A reduction by less than one packet is none.

    See Also
    --------
    Prague : for the Internet
    Reno : halves the window

    Examples
    --------
    With marks from a delay of 1 ms on, the mean queueing delay in ms:

    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50, aqm=cct.aqm.FqCoDel(ce_threshold_ms=1))
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Dctcp(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    0.7
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
