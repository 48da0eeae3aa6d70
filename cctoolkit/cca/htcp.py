"""H-TCP: Leith and Shorten, "H-TCP: TCP for high-speed and long-distance networks", PFLDnet 2004."""

from __future__ import annotations

import math
from typing import ClassVar

from .._support.kernels import part
from ..errors import ParameterError
from .base import Cca
from .reno import slow_start

__all__ = ["Htcp"]


@part(error_model="numpy")
def increase(delta_s, beta, threshold_s, min_rtt_ns, rtt_scaling):
    """Packets per round trip, `delta_s` after the last congestion: the paper's alpha(Δ), fair for any beta."""
    f = 1.0
    if delta_s > threshold_s:
        over = delta_s - threshold_s
        f = math.floor(1 + 10 * over + (over / 2) ** 2)
    if rtt_scaling:
        f = max(math.floor(f * min(max(min_rtt_ns / 100e6, 0.1), 2.0)), 1.0)
    return 2 * (1 - beta) * f


@part(error_model="numpy")
def measure(s, flow, ack, now_ns):
    """Update the largest RTT, the smoothed throughput, and its maximum since the last congestion."""
    if ack.rtt_ns >= 0 and not flow.in_rto:
        s.max_rtt_ns = max(s.max_rtt_ns, flow.min_rtt_ns)
        if s.max_rtt_ns < ack.rtt_ns <= s.max_rtt_ns + 20_000_000:
            s.max_rtt_ns = ack.rtt_ns
    s.packets += ack.advanced
    elapsed_ns = now_ns - s.since_ns
    if s.packets >= flow.cwnd - max(s.alpha, 1.0) and elapsed_ns >= flow.min_rtt_ns:
        rate_pps = s.packets * 1e9 / elapsed_ns
        if now_ns - s.congestion_ns < 4 * flow.min_rtt_ns:
            s.rate_pps = rate_pps
            s.max_rate_pps = rate_pps
        else:
            s.rate_pps = (3 * s.rate_pps + rate_pps) / 4
            s.max_rate_pps = max(s.max_rate_pps, s.rate_pps)
        s.packets = 0
        s.since_ns = now_ns


@part(error_model="numpy")
def back_off(s, flow):
    """Adaptive backoff: empty the queue, provided that the throughput says that the path has not changed."""
    steady = 0.8 * s.old_max_rate_pps <= s.max_rate_pps <= 1.2 * s.old_max_rate_pps
    s.old_max_rate_pps = s.max_rate_pps
    s.beta = 0.5
    if steady and s.was_steady and flow.min_rtt_ns > 10_000_000 and s.max_rtt_ns > 0:
        s.beta = min(max(flow.min_rtt_ns / s.max_rtt_ns, 0.5), 0.8)
    s.was_steady = steady
    s.max_rtt_ns = max(s.max_rtt_ns - (s.max_rtt_ns - flow.min_rtt_ns) // 20, flow.min_rtt_ns)


class Htcp(Cca):
    """H-TCP: the window grows faster the longer ago the last congestion was (Leith and Shorten 2004).

    Increase: ``alpha = 2 (1 - beta) f(Δ)`` packets per round trip, with ``f = 1 + 10 (Δ - 1 s) + ((Δ - 1 s) / 2)²``
    from one second after the last congestion on, and 1 before. Backoff: ``beta = RTTmin / RTTmax``, limited to
    [0.5, 0.8], but 0.5 if the largest throughput since the last congestion differs by more than a fifth from the
    one before.

    Parameters
    ----------
    threshold_s : float
        Time after congestion in which it grows like Reno, in s (the paper's Δ_L).
    rtt_scaling : bool
        Multiply f by RTTmin / 100 ms, limited to [0.1, 2], but keep it at least 1 (Linux).

    Notes
    -----
    As in Linux, but not in the paper: f is rounded down; the ACK that completes an increase does not count for the
    next one; the throughput is smoothed over round trips, and its maximum counts; the largest RTT follows jumps of
    at most 20 ms and loses a twentieth of its excess at each congestion; beta is 0.5 if the minimum RTT is below 10
    ms; Δ starts anew at the end of recovery.

    See Also
    --------
    Cubic : the default of Linux
    HighSpeed : another control for fast, long paths

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Htcp(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    38.3
    """

    name: ClassVar[str] = "htcp"

    threshold_s: float = 1.0
    rtt_scaling: bool = True

    class State:
        alpha = 1.0
        beta = 0.5
        congestion_ns = 0  # time of the last congestion, initially the start of the flow
        max_rtt_ns = 0
        counted = 0  # packets acknowledged since the window last grew
        # throughput: packets so far, smoothed, its maximum since the last congestion and before
        packets = 0
        since_ns = 0
        rate_pps = 0.0
        max_rate_pps = 0.0
        old_max_rate_pps = 0.0
        was_steady = False

    class Stats:
        alpha = 1.0  # current increase in packets per round trip

    def check(self) -> None:
        if self.threshold_s <= 0:
            raise ParameterError("Htcp.threshold_s: must be positive")

    @staticmethod
    def on_start(p, s, stats, flow, ack, now_ns):
        s.congestion_ns = now_ns
        s.since_ns = now_ns

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        if flow.in_recovery or flow.in_rto:
            s.packets = 0
            s.since_ns = now_ns
        else:
            measure(s, flow, ack, now_ns)
        if not flow.may_grow:
            return
        if flow.cwnd < flow.ssthresh:
            slow_start(flow, float(ack.acked))
        elif s.counted * s.alpha >= flow.cwnd:
            s.counted = 0
            flow.cwnd += 1
            delta_s = (now_ns - s.congestion_ns) * 1e-9
            s.alpha = increase(delta_s, s.beta, p.threshold_s, flow.min_rtt_ns, p.rtt_scaling)
            stats.alpha = s.alpha
        else:
            s.counted += ack.acked

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        back_off(s, flow)
        s.counted = 0
        s.alpha = 2 * (1 - s.beta)
        s.congestion_ns = now_ns
        flow.ssthresh = max(math.floor(flow.cwnd * s.beta), 2.0)

    @staticmethod
    def on_recovered(p, s, stats, flow, ack, now_ns):
        s.congestion_ns = now_ns
