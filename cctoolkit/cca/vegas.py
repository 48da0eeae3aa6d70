"""TCP Vegas: Brakmo and Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet", JSAC 1995."""

from __future__ import annotations

import math
from typing import ClassVar

from .._support.kernels import part
from ..errors import ParameterError
from .base import Cca
from .reno import slow_start

__all__ = ["Vegas"]


@part(error_model="numpy")
def grow_as_reno(flow, ack):
    if flow.may_grow:
        left = slow_start(flow, float(ack.acked))
        flow.cwnd += left / math.floor(flow.cwnd)


class Vegas(Cca):
    """Vegas: keeps a few packets in the queue, which it infers from the RTT (Brakmo and Peterson 1995).

    Once per round trip it compares the rate without a queue, cwnd/baseRTT, with the actual rate, cwnd/RTT. The
    difference times baseRTT is the number of its packets in the queue: ``diff = cwnd (RTT - baseRTT) / RTT`` in the
    paper (section III-B), ``cwnd (RTT - baseRTT) / baseRTT`` in Linux.

    Parameters
    ----------
    alpha, beta : float
        With fewer than `alpha` packets queued, the window grows by one per round trip; with more than `beta`, it
        shrinks.
    gamma : float
        Slow start ends with more than this many packets queued (section III-C).
    double_every : int
        Slow start doubles the window every this many round trips. With 1, as in Linux, it notices the queue late
        and must drain a long one, by one packet per round trip. In the paper it is 2 (section III-C): the window is
        constant in between, so that the RTT belongs to the window it is compared with.
    linux_diff : bool
        Compute the difference as in Linux; if false, as in the paper. They differ by the factor RTT/baseRTT.
    min_samples : int
        Grow like Reno in round trips with fewer RTT samples (Linux; a single one could be a delayed ACK).

    Notes
    -----
    The difference is rounded down, as in Linux: with the default of 2 to 4 packets, the window is stable below 5. The
    RTT is the minimum of the round trip (but in slow start with `double_every` above 1, that of the packet sent at its
    start, as in the paper). Slow start ends with the window that the path holds, plus one (as in Linux; the paper does
    not reduce the window). When data is sent after everything was acknowledged, it forgets baseRTT and starts a new
    round trip, as in Linux. Loss halves the window; SACK replaces the paper's finer retransmission timer (section
    III-A).

    See Also
    --------
    NewVegas : for data centres, in the Linux kernel
    Bbr : models the path
    Reno : by loss alone

    Examples
    --------
    A packet takes 1.2 ms; the mean queueing delay in ms, with the initial overshoot:

    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Vegas(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    7.6
    """

    name: ClassVar[str] = "vegas"

    alpha: float = 2.0
    beta: float = 4.0
    gamma: float = 1.0
    double_every: int = 1
    linux_diff: bool = True
    min_samples: int = 3

    class State:
        base_ns = 2**62  # minimum RTT ever seen
        round_min_ns = 2**62  # minimum RTT of this round trip
        samples = 0
        rounds = 0
        round_end = 0  # the round ends when more than this is acknowledged

    class Stats:
        diff = 0.0  # in the last round trip
        slow_start_exits = 0

    def check(self) -> None:
        if self.alpha > self.beta:
            raise ParameterError("Vegas.alpha: must be at most beta")
        if self.double_every < 1:
            raise ParameterError("Vegas.double_every: must be at least 1")

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        if ack.rtt_ns >= 0:
            s.base_ns = min(s.base_ns, ack.rtt_ns)
            s.round_min_ns = min(s.round_min_ns, ack.rtt_ns)
            s.samples += 1
        if flow.in_recovery or ack.advanced == 0:
            return
        if flow.in_rto:
            grow_as_reno(flow, ack)
            return
        starting = flow.cwnd < flow.ssthresh
        if flow.una <= s.round_end:
            if starting and flow.cwnd_limited and s.rounds % p.double_every == 0:
                slow_start(flow, float(ack.acked))
            return

        s.round_end = flow.next_seq
        comparable = not starting or (s.rounds + 1) % p.double_every == 0
        if s.samples < p.min_samples:
            grow_as_reno(flow, ack)
        elif comparable:
            # In slow start the minimum RTT is that of half the window; the round's last packet was sent at its start
            rtt_ns = ack.rtt_ns if starting and p.double_every > 1 and ack.rtt_ns >= 0 else s.round_min_ns
            diff = flow.cwnd * (rtt_ns - s.base_ns) // max(s.base_ns if p.linux_diff else rtt_ns, 1)
            stats.diff = diff
            if starting:
                if diff > p.gamma:
                    flow.cwnd = min(flow.cwnd, flow.cwnd * s.base_ns // max(rtt_ns, 1) + 1)
                    flow.ssthresh = flow.cwnd
                    stats.slow_start_exits += 1
                elif flow.cwnd_limited:
                    slow_start(flow, float(ack.acked))
            elif diff > p.beta:
                flow.cwnd -= 1
                flow.ssthresh = min(flow.ssthresh, flow.cwnd)
            elif diff < p.alpha and flow.cwnd_limited:
                flow.cwnd += 1
        s.rounds += 1
        flow.cwnd = max(flow.cwnd, 2.0)
        s.round_min_ns = 2**62
        s.samples = 0

    @staticmethod
    def on_restart(p, s, stats, flow, ack, now_ns):
        s.base_ns = 2**62
        s.round_min_ns = 2**62
        s.samples = 0
        s.round_end = flow.una

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        flow.ssthresh = max(flow.cwnd // 2, 2.0)

    @staticmethod
    def on_recovered(p, s, stats, flow, ack, now_ns):
        s.round_end = flow.next_seq
        s.round_min_ns = 2**62  # RTTs during recovery do not count
        s.samples = 0
