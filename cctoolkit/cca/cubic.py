"""CUBIC: RFC 9438 as computed by Linux, with its HyStart to leave slow start."""

from __future__ import annotations

import math
from typing import ClassVar

from .._support.kernels import part
from ..errors import ParameterError
from .base import Cca
from .reno import slow_start

__all__ = ["Cubic"]

_MS = 1_000_000


@part(error_model="numpy")
def hystart_found(s, flow, ack, now_ns):
    """Whether to leave slow start."""
    if now_ns - s.train_ns <= 2 * _MS:
        s.train_ns = now_ns
        if now_ns - s.round_start_ns > (flow.min_rtt_ns + _MS) // 2:
            return True
    if s.round_samples == 0 or ack.rtt_ns < s.round_min_ns:
        s.round_min_ns = ack.rtt_ns
    if s.round_samples < 8:
        s.round_samples += 1
        return False
    return s.round_min_ns > flow.min_rtt_ns + min(max(flow.min_rtt_ns // 8, 4 * _MS), 16 * _MS)


class Cubic(Cca):
    """CUBIC: the window is a cubic function of the time since the last reduction (RFC 9438).

    Parameters
    ----------
    c : float
        Constant C in packets/s³ (section 5: 0.4).
    beta : float
        Share of the window that is kept after a loss (section 4.6: 0.7).
    fast_convergence : bool
        Fast convergence (section 4.7).
    hystart : bool
        Leave slow start by HyStart (Ha and Rhee 2011) as in Linux, from a window of 16 packets on: if, after eight
        samples, the smallest RTT of a round exceeds the smallest of all by an eighth (at least 4 ms, at most 16
        ms); or if a train of ACKs at most 2 ms apart lasts longer than half the smallest RTT of the round (plus 0.5
        ms).
    first_growth : float
        Until the first reduction, and after a timeout, the window grows by at least this share per round trip. Linux
        has 5 %, considering the cubic function too cautious while nothing is known about the path; the RFC has no such
        rule (0).

    Notes
    -----
    As in Linux, but not in the RFC: the window changes in whole packets; the cubic function looks ahead by the
    minimum RTT, not the smoothed one (section 4.4); in the Reno-friendly region the window follows the estimate of
    Reno's window at the pace of Reno's ACKs, and that estimate keeps its slope, instead of one packet per round
    trip above the last maximum (section 4.3); a timeout forgets that maximum (section 4.8).

    See Also
    --------
    Reno : the classic
    Htcp : another control for fast, long paths
    Bbr : model-based

    Examples
    --------
    It fills the buffer, which holds 61 ms; the mean queueing delay in ms:

    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Cubic(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    39.6
    """

    name: ClassVar[str] = "cubic"

    c: float = 0.4
    beta: float = 0.7
    fast_convergence: bool = True
    hystart: bool = True
    first_growth: float = 0.05

    class State:
        w_max = 0.0  # window before the last reduction; 0: not known
        origin = 0.0  # the plateau of the cubic: w_max, or the window at the start of this stage
        k_s = 0.0  # seconds from the start of the epoch to the plateau
        epoch_ns = -1  # start of the congestion avoidance stage; -1: none
        w_est = 0.0  # the window that Reno would have
        credit = 0.0  # packets acknowledged since the window last grew
        # HyStart's round, which ends when everything sent at its start is acknowledged
        found = False
        round_end = 0
        round_start_ns = 0
        train_ns = 0  # the last ACK of the train, which a pause ends for this round
        round_samples = 0
        round_min_ns = 0

    class Stats:
        hystart_exits = 0

    def check(self) -> None:
        if not 0 < self.beta < 1:
            raise ParameterError("Cubic.beta: must be between 0 and 1")
        if self.c == 0:
            raise ParameterError("Cubic.c: must be positive")

    @staticmethod
    def on_start(p, s, stats, flow, ack, now_ns):
        s.round_start_ns = now_ns
        s.train_ns = now_ns

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        settling = s.epoch_ns >= 0 and now_ns - s.epoch_ns < 1_000 * _MS
        if p.hystart and not s.found and flow.cwnd < flow.ssthresh and ack.rtt_ns >= 0 and not settling:
            if flow.una > s.round_end:
                s.round_end = flow.next_seq
                s.round_start_ns = now_ns
                s.train_ns = now_ns
                s.round_samples = 0
            if flow.cwnd >= 16 and hystart_found(s, flow, ack, now_ns):
                s.found = True
                flow.ssthresh = flow.cwnd
                stats.hystart_exits += 1
        if not flow.may_grow:
            return
        acked = slow_start(flow, float(ack.acked))  # section 4.10
        if acked == 0.0:
            return

        if s.epoch_ns < 0:  # section 4.2: a new stage starts
            s.epoch_ns = now_ns
            s.w_est = flow.cwnd
            s.origin = max(s.w_max, flow.cwnd)
            s.k_s = ((s.origin - flow.cwnd) / p.c) ** (1 / 3)  # equation (2)
        ahead = (now_ns - s.epoch_ns + flow.min_rtt_ns) * 1e-9
        target = p.c * (ahead - s.k_s) ** 3 + s.origin  # equation (1), section 4.4
        s.w_est += 3 * (1 - p.beta) / (1 + p.beta) * acked / flow.cwnd  # equation (4)

        # packets to be acknowledged for one more in the window, sections 4.3 to 4.5
        count = flow.cwnd / (target - flow.cwnd) if target > flow.cwnd else 100 * flow.cwnd
        if s.w_max == 0.0 and p.first_growth > 0:
            count = min(count, 1 / p.first_growth)
        if math.floor(s.w_est) > flow.cwnd:
            count = min(count, flow.cwnd / (math.floor(s.w_est) - flow.cwnd))
        count = max(count, 2.0)
        if s.credit >= count:  # accumulated while `count` was larger
            s.credit = 0.0
            flow.cwnd += 1
        s.credit += acked
        if s.credit >= count:
            flow.cwnd += s.credit // count
            s.credit %= count

    @staticmethod
    def on_restart(p, s, stats, flow, ack, now_ns):
        if s.epoch_ns >= 0:  # section 4.2: the time in which nothing was sent does not count
            s.epoch_ns = min(s.epoch_ns + now_ns - flow.last_sent_ns, now_ns)

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        s.epoch_ns = -1
        s.credit = 0.0
        if p.fast_convergence and flow.cwnd < s.w_max:
            s.w_max = flow.cwnd * (1 + p.beta) / 2
        else:
            s.w_max = flow.cwnd
        flow.ssthresh = max(math.floor(flow.cwnd * p.beta), 2.0)  # equation (5)

    @staticmethod
    def on_rto(p, s, stats, flow, ack, now_ns):
        s.epoch_ns = -1
        s.credit = 0.0
        s.w_max = 0.0
        s.found = False
        s.round_end = flow.next_seq
        s.round_start_ns = now_ns
        s.train_ns = now_ns
        s.round_samples = 0
