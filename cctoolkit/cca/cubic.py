"""CUBIC: RFC 9438, with HyStart++ (RFC 9406) or Linux's HyStart to leave slow start."""

from __future__ import annotations

from typing import ClassVar

import numba

from ..errors import ParameterError
from .base import Cca

__all__ = ["Cubic"]

_MS = 1_000_000


@numba.njit(error_model="numpy")
def hystart_found(s, flow, ack, now_ns):
    """Whether it is time to leave slow start."""
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
    """The window is a cubic function of the time since the last reduction (RFC 9438).

    Parameters
    ----------
    c : float
        Constant C (section 5, 0.4 packets/s³).
    beta : float
        What is kept of the window at a loss (section 4.6, 0.7).
    fast_convergence : bool
        Section 4.7.
    hystart : bool
        Leave slow start by HyStart (Ha and Rhee 2011) as Linux has it, from a window of 16 packets on: when the
        smallest RTT sample of a round exceeds the smallest of all by an eighth (at least 4 ms, at most 16 ms), seen
        after eight samples; or when ACKs at most 2 ms apart go on for more than half the smallest RTT of the round
        (and half a millisecond).
    first_growth : float
        Until the first reduction the window grows by at least this share a round trip, as in Linux, where the cubic
        function is thought too careful as long as nothing is known of the path (5 %). The RFC has no such rule: 0.

    Notes
    -----
    Not modelled: undoing a reduction that was spurious (section 4.9); nothing is reordered here.
    """

    name: ClassVar[str] = "cubic"

    c: float = 0.4
    beta: float = 0.7
    fast_convergence: bool = True
    hystart: bool = True
    first_growth: float = 0.05

    class State:
        w_max = 0.0  # window before the last reduction
        k_s = 0.0  # seconds from the epoch's start until the cubic is back at w_max
        epoch_ns = -1  # start of the congestion avoidance stage; -1: none
        w_est = 0.0  # window Reno would have
        cwnd_prior = 0.0
        reduced = False
        # HyStart's round, which ends when what had been sent at its start is acknowledged
        round_end = 0
        round_start_ns = 0
        train_ns = 0  # the last ACK of the train; a pause ends it for this round
        round_samples = 0
        round_min_ns = 0

    class Stats:
        hystart_exits = 0

    def check(self) -> None:
        if not 0 < self.beta < 1:
            raise ParameterError("Cubic.beta: has to be between 0 and 1")
        if self.c == 0:
            raise ParameterError("Cubic.c: has to be above 0")

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        if p.hystart and flow.cwnd < flow.ssthresh and ack.rtt_ns >= 0:
            if flow.una > s.round_end:
                s.round_end = flow.next_seq
                s.round_start_ns = now_ns
                s.train_ns = now_ns
                s.round_samples = 0
            if flow.cwnd >= 16 and hystart_found(s, flow, ack, now_ns):
                flow.ssthresh = flow.cwnd
                stats.hystart_exits += 1
        if flow.in_recovery or not flow.cwnd_limited:
            return
        acked = float(ack.acked)
        if flow.cwnd < flow.ssthresh:  # section 4.10
            grown = min(flow.cwnd + acked, flow.ssthresh)
            acked -= grown - flow.cwnd
            flow.cwnd = grown
            if acked == 0.0:
                return

        if s.epoch_ns < 0:  # section 4.2: a new stage begins
            s.epoch_ns = now_ns
            s.w_est = flow.cwnd
            if flow.cwnd < s.w_max:
                s.k_s = ((s.w_max - flow.cwnd) / p.c) ** (1 / 3)  # equation (2)
            else:
                s.w_max = flow.cwnd
                s.k_s = 0.0
            if s.cwnd_prior == 0.0:
                s.cwnd_prior = flow.cwnd

        before = flow.cwnd
        t = (now_ns - s.epoch_ns) * 1e-9
        # Equation (4): slope of Reno's increase until it is back where it was, then Reno's own
        alpha = 1.0 if s.w_est >= s.cwnd_prior else 3 * (1 - p.beta) / (1 + p.beta)
        s.w_est += alpha * acked / flow.cwnd
        w_cubic = p.c * (t - s.k_s) ** 3 + s.w_max  # equation (1)
        if w_cubic < s.w_est:  # section 4.3, Reno-friendly region
            flow.cwnd = max(flow.cwnd, s.w_est)
        else:  # sections 4.4 and 4.5
            ahead = t + flow.srtt_ns * 1e-9
            target = min(max(p.c * (ahead - s.k_s) ** 3 + s.w_max, flow.cwnd), 1.5 * flow.cwnd)
            flow.cwnd += (target - flow.cwnd) * acked / flow.cwnd
        if not s.reduced:
            flow.cwnd = max(flow.cwnd, before + p.first_growth * acked)

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        s.epoch_ns = -1
        s.reduced = True
        s.cwnd_prior = flow.cwnd
        if p.fast_convergence and flow.cwnd < s.w_max:
            s.w_max = flow.cwnd * (1 + p.beta) / 2
        else:
            s.w_max = flow.cwnd
        flow.ssthresh = max(flow.cwnd * p.beta, 2.0)  # equation (5)

    @staticmethod
    def on_rto(p, s, stats, flow, ack, now_ns):
        s.epoch_ns = -1  # section 4.8
        s.reduced = True
        if not (flow.in_recovery or flow.in_rto):  # else it was reduced for this window already
            s.cwnd_prior = flow.cwnd
            s.w_max = flow.cwnd
            flow.ssthresh = max(flow.cwnd * p.beta, 2.0)
