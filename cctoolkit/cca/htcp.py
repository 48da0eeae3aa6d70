"""H-TCP: Leith and Shorten, "H-TCP: TCP for high-speed and long-distance networks", PFLDnet 2004."""

from __future__ import annotations

from typing import ClassVar

import numba

from ..errors import ParameterError
from .base import Cca

__all__ = ["Htcp"]


@numba.njit(error_model="numpy")
def increase(delta_s, beta, threshold_s):
    """Packets a round trip, `delta_s` after the last congestion: the paper's alpha(Δ), fair at any beta."""
    f = 1.0
    if delta_s > threshold_s:
        over = delta_s - threshold_s
        f = 1 + 10 * over + (over / 2) ** 2
    return 2 * (1 - beta) * f


@numba.njit(error_model="numpy")
def back_off(s, flow, now_ns):
    """Adaptive backoff: keep what empties the queue, if the throughput says that the path is still the same."""
    steady = abs(s.rate_pps - s.rate_before_pps) <= 0.2 * s.rate_before_pps
    s.rate_before_pps = s.rate_pps
    s.beta = min(max(flow.min_rtt_ns / s.max_rtt_ns, 0.5), 0.8) if steady and s.max_rtt_ns > 0 else 0.5
    s.max_rtt_ns = flow.min_rtt_ns + int(0.95 * max(s.max_rtt_ns - flow.min_rtt_ns, 0))
    s.congestion_ns = now_ns
    flow.ssthresh = max(flow.cwnd * s.beta, 2.0)


class Htcp(Cca):
    """The longer the last congestion is past, the faster the window grows (Leith and Shorten 2004).

    Increase: ``alpha = 2 (1 - beta) f(Δ)`` packets a round trip, with ``f = 1 + 10 (Δ - 1 s) + ((Δ - 1 s) / 2)²`` from
    one second after the last congestion on, 1 before. Backoff: ``beta = RTTmin / RTTmax`` in [0.5, 0.8], and 0.5 if
    the throughput before this congestion differs by more than a fifth from that before the last one.

    Parameters
    ----------
    threshold_s : float
        Time after congestion in which it is as fast as Reno (the paper's Δ_L).
    rtt_scaling : bool
        f is multiplied by RTTmin / 100 ms, taken as at least 0.1 and at most 2, but does not get below 1 (Linux).

    Notes
    -----
    The throughput before congestion is that of the last whole round trip (Linux smooths it over several). The largest
    RTT is taken from the smoothed one and fades by a twentieth of its excess at each congestion, as in Linux; Linux
    also ignores jumps of more than 20 ms in it, which is not done here. Δ starts anew when recovery is over, as there.
    """

    name: ClassVar[str] = "htcp"

    threshold_s: float = 1.0
    rtt_scaling: bool = True

    class State:
        beta = 0.5
        congestion_ns = 0  # the last one; the flow's start before that
        max_rtt_ns = 0
        # throughput of the last whole round trip, and what it was at the last congestion
        rate_pps = 0.0
        rate_before_pps = 0.0
        round_delivered = 0
        round_ns = 0

    class Stats:
        alpha = 1.0  # packets a round trip, now

    def check(self) -> None:
        if self.threshold_s <= 0:
            raise ParameterError("Htcp.threshold_s: has to be above 0")

    @staticmethod
    def on_start(p, s, stats, flow, ack, now_ns):
        s.congestion_ns = now_ns
        s.round_ns = now_ns

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        if ack.round_start:
            s.rate_pps = (flow.delivered - s.round_delivered) * 1e9 / max(now_ns - s.round_ns, 1)
            s.round_delivered = flow.delivered
            s.round_ns = now_ns
        if flow.in_recovery:
            return
        if ack.rtt_ns >= 0:
            s.max_rtt_ns = max(s.max_rtt_ns, flow.srtt_ns)
        if not flow.cwnd_limited:
            return
        acked = float(ack.acked)
        if flow.cwnd < flow.ssthresh:
            grown = min(flow.cwnd + acked, flow.ssthresh)
            acked -= grown - flow.cwnd
            flow.cwnd = grown
        alpha = increase((now_ns - s.congestion_ns) * 1e-9, s.beta, p.threshold_s)
        if p.rtt_scaling:
            alpha = max(alpha * min(max(flow.min_rtt_ns / 100e6, 0.1), 2.0), 2 * (1 - s.beta))
        stats.alpha = alpha
        flow.cwnd += alpha * acked / flow.cwnd

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        back_off(s, flow, now_ns)

    @staticmethod
    def on_recovered(p, s, stats, flow, ack, now_ns):
        s.congestion_ns = now_ns

    @staticmethod
    def on_rto(p, s, stats, flow, ack, now_ns):
        if not (
            flow.in_recovery or flow.in_rto
        ):  # else that was done for this window (RFC 5681, section 3.1)
            back_off(s, flow, now_ns)
