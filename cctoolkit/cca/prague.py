"""Prague: draft-briscoe-iccrg-prague-congestion-control, the congestion control of L4S (RFC 9330)."""

from __future__ import annotations

import math
from typing import ClassVar

from .._support.kernels import part
from ..errors import ParameterError
from .base import Cca
from .reno import slow_start

__all__ = ["Prague"]


@part(error_model="numpy")
def pace(flow, window):
    """Pace at window/srtt, or twice that in slow start, to avoid bursts.

    Linux counts the headers of IP and TCP in the rate but not in what it paces, so it is a little faster, and the
    window is the limit.
    """
    rate = window * (flow.wire_bytes - 14) / flow.mss_bytes * flow.wire_bytes * 8e9 / max(flow.srtt_ns, 1)
    flow.pacing_bps = 2 * rate if flow.cwnd < flow.ssthresh / 2 else rate


@part(error_model="numpy")
def set_window(s, flow, window):
    """Linux: whole packets are sent, so the window is rounded up, and pacing makes up for the difference."""
    flow.cwnd = math.ceil(window)
    s.gap = flow.cwnd - window


class Prague(Cca):
    """Prague: DCTCP for the Internet, with pacing, less RTT dependence, ECT(1) and accurate feedback.

    As in DCTCP, alpha is a moving average of the share of marked packets (from the first mark on), and marks reduce
    the window by half of it. Timing and growth differ. Alpha and reductions use a virtual RTT of at least 25 ms, and a
    flow with a shorter RTT grows by (RTT / 25 ms)² packets per round trip, so its rate changes as if the RTT were
    25 ms ("reduced RTT-dependence"). The window grows for unmarked packets, even while it is being reduced ("additive
    increase"). It is not a whole number: packets in flight are limited to the next larger one, and pacing follows the
    window itself.

    Parameters
    ----------
    g : float
        Weight of the latest virtual round trip in alpha.
    initial_alpha : float
        Initial alpha; with 1, the first mark halves the window.
    virtual_rtt_ms : float
        Flows with a shorter RTT behave as if they had this one, in ms; 0: off.
    transition_rounds : float
        Round trips after slow start until the virtual RTT counts: 4 in Linux, formerly 500.

    Notes
    -----
    The source is L4STeam's Linux. Not modelled: the fallback if marks of the bottleneck look classic (RFC 3168);
    windows below two packets, by smaller segments. Loss halves the window. Reductions take effect at once, while Linux
    takes one packet per ACK until the window is reached.

    See Also
    --------
    Dctcp : for data centres
    Bbr3 : model-based, with marks

    Examples
    --------
    With DualPI2, the mean queueing delay in ms:

    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50, aqm="dualpi2")
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Prague(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    0.6
    """

    name: ClassVar[str] = "prague"
    ecn: ClassVar[str] = "l4s"

    g: float = 1 / 16
    initial_alpha: float = 1.0
    virtual_rtt_ms: float = 25.0
    transition_rounds: float = 0.0

    class State:
        alpha = 1.0
        acked = 0
        marked = 0
        update_ns = 0  # time of the last update of alpha
        reduced_ns = -(2**62)  # time of the last reduction by marks
        gap = 0.0  # by how much cwnd is above the window
        rounds = 0  # since slow start, up to transition_rounds

    class Stats:
        reductions = 0

    def check(self) -> None:
        if not 0 < self.g <= 1:
            raise ParameterError("Prague.g: must be positive and at most 1")
        if self.initial_alpha > 1:
            raise ParameterError("Prague.initial_alpha: must be at most 1")

    def initial(self) -> dict[str, float]:
        return {"alpha": self.initial_alpha}

    @staticmethod
    def on_start(p, s, stats, flow, ack, now_ns):
        s.update_ns = now_ns
        pace(flow, flow.cwnd)

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        period_ns = max(flow.srtt_ns, p.virtual_rtt_ns if s.rounds >= p.transition_rounds else 0.0)
        s.acked += ack.acked
        s.marked += ack.marked
        if now_ns - s.update_ns >= period_ns and s.acked > 0:
            if flow.marked > 0:
                s.alpha += p.g * (min(s.marked / s.acked, 1.0) - s.alpha)
            s.acked = 0
            s.marked = 0
            s.update_ns = now_ns
            if flow.cwnd >= flow.ssthresh and s.rounds < p.transition_rounds:
                s.rounds += 1
        if flow.may_grow:
            left = slow_start(flow, float(max(ack.acked - ack.marked, 0)))
            window = flow.cwnd - s.gap
            set_window(s, flow, window + left / window * (flow.srtt_ns / period_ns) ** 2)
        if ack.marked > 0 and not flow.in_recovery and now_ns - s.reduced_ns >= period_ns:
            s.reduced_ns = now_ns
            set_window(s, flow, max((flow.cwnd - s.gap) * (1 - s.alpha / 2), 2.0))
            flow.ssthresh = flow.cwnd
            stats.reductions += 1
        pace(flow, flow.cwnd - s.gap)

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        flow.ssthresh = max(flow.cwnd / 2, 2.0)
        s.gap = 0.0
