"""BBR, version 1: draft-cardwell-iccrg-bbr-congestion-control-00, and Linux where the draft is open.

Section numbers refer to the draft.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from .._support.kernels import part
from ..errors import ParameterError
from .base import Cca, random

__all__ = ["Bbr"]

STARTUP, DRAIN, PROBE_BW, PROBE_RTT = range(4)

_inner = part(error_model="numpy")


# ---- the model of the path (section 4.1) -----------------------------------------------------------------------------


@_inner
def update_round(s, flow, ack):
    """Section 4.1.1.3: a round trip ends when a packet sent after its start is delivered."""
    s.round_start = ack.sample_interval_ns > 0 and ack.sample_prior_delivered >= s.next_round_delivered
    if s.round_start:
        s.next_round_delivered = flow.delivered
        s.round_count += 1
        s.packet_conservation = False


@_inner
def remember_max(values, rounds, value, now, length):
    """Running maximum over `length` round trips, from the best values of three successive parts (Linux's minmax)."""
    # element by element: numba compiles the assignment of a slice for a second and more
    if value >= values[0] or now - rounds[2] > length:
        values[0] = values[1] = values[2] = value
        rounds[0] = rounds[1] = rounds[2] = now
        return
    if value >= values[1]:
        values[1] = values[2] = value
        rounds[1] = rounds[2] = now
    elif value >= values[2]:
        values[2] = value
        rounds[2] = now
    age = now - rounds[0]
    while now - rounds[0] > length:  # the best value has expired
        values[0], values[1], values[2] = values[1], values[2], value
        rounds[0], rounds[1], rounds[2] = rounds[1], rounds[2], now
    # a quarter of the window has passed without a second best, or half of it without a third
    if age <= length and rounds[1] == rounds[0] and age > length // 4:
        values[1] = values[2] = value
        rounds[1] = rounds[2] = now
    elif age <= length and rounds[2] == rounds[1] and age > length // 2:
        values[2] = value
        rounds[2] = now


@_inner
def is_app_limited(s, ack):
    """Section 4.1.1.4; packets sent during PROBE_RTT count as application-limited (section 4.3.5)."""
    prior = ack.sample_prior_delivered
    return ack.sample_app_limited or s.limited_from <= prior <= s.limited_until


@_inner
def update_bottleneck_bandwidth(p, s, ack):
    """Section 4.1.1.5: the largest delivery rate of the last round trips with a usable sample."""
    bw = ack.delivery_bps
    if bw > 0 and not (is_app_limited(s, ack) and bw < s.bw_best[0]):
        remember_max(s.bw_best, s.bw_rounds, bw, s.round_count, p.bw_rounds)
    s.bw_bps = s.policed_bps if s.policed else s.bw_best[0]


@_inner
def update_aggregation(s, flow, ack):
    """Linux since 5.1: how many more packets are acknowledged at once than the bandwidth explains.

    The window grows by the largest excess of the last five to ten round trips.
    """
    if ack.acked <= 0 or ack.sample_interval_ns <= 0:
        return
    if s.round_start:
        s.extra_rounds += 1
        if s.extra_rounds >= 5:
            s.extra_rounds = 0
            s.extra_older = s.extra_newer
            s.extra_newer = 0.0
    expected = s.bw_bps * (flow.delivered_ns - s.epoch_ns) / (8e9 * flow.wire_bytes)
    if s.epoch_acked <= expected:  # slower than the model: a new epoch
        s.epoch_acked = 0
        s.epoch_ns = flow.delivered_ns
        expected = 0.0
    s.epoch_acked += ack.acked
    s.extra_newer = max(s.extra_newer, min(s.epoch_acked - expected, flow.cwnd))


@_inner
def send_quantum(flow):
    """Section 4.2.2: packets that a host sends at once. Here they leave singly, but the window has room for them."""
    if flow.pacing_bps < 1.2e6:
        return 1.0
    if flow.pacing_bps < 24e6:
        return 2.0
    return max(math.floor(min(flow.pacing_bps / 8192, 65536.0) / flow.wire_bytes), 2.0)  # of 1/1024 s


@_inner
def inflight(s, flow, bw_bps, gain, extra):
    """Section 4.2.3.2: packets in flight for `gain` bandwidth-delay products, plus room for offloading."""
    packets = (
        math.ceil(gain * bw_bps * s.min_rtt_ns / (8e9 * flow.wire_bytes)) + extra + 3 * send_quantum(flow)
    )
    packets = 2 * math.ceil(packets / 2)  # Linux: even, so that a delayed ACK does not wait for an odd one
    if s.mode == PROBE_BW and s.phase == 0:
        packets += 2  # Linux: lets the probe increase what is in flight even on paths of a few packets
    return packets


@_inner
def in_network(s, flow, packets, now_ns):
    """Linux: packets in flight when pacing releases the next ones, these included."""
    gone = math.floor(s.bw_bps * max(flow.next_send_ns - now_ns, 0) / (8e9 * flow.wire_bytes))
    if s.pacing_gain > 1:
        packets += send_quantum(flow)
    return max(packets - gone, 0)


# ---- the state machine (section 4.3) ---------------------------------------------------------------------------------


@_inner
def enter_startup(p, s):
    s.mode = STARTUP
    s.pacing_gain = p.high_gain
    s.cwnd_gain = p.high_gain


@_inner
def enter_probe_bw(p, s, flow):
    """Section 4.3.4.3: start at a random phase other than the draining one."""
    s.mode = PROBE_BW
    s.cwnd_gain = p.cwnd_gain
    s.phase = (8 - int(random(flow) * 7)) % 8  # 0 or 2 to 7
    s.pacing_gain = 1.0 if s.policed else p.cycle[s.phase]
    s.phase_ns = flow.delivered_ns


@_inner
def begin_interval(s, flow):
    s.interval_ns = flow.delivered_ns
    s.interval_delivered = flow.delivered
    s.interval_lost = flow.lost
    s.interval_rounds = 0


@_inner
def forget_policer(s, flow):
    s.policed = False
    s.policed_bps = 0.0
    s.watching = False
    begin_interval(s, flow)


@_inner
def look_for_policer(p, s, flow, ack):
    """Linux's "long-term bandwidth": detect a token bucket, whose long-term rate is much lower than the initial one.

    If in two consecutive intervals of four to sixteen round trips, from loss to loss, a fifth of the packets is
    lost and the rates agree within an eighth, that rate is the bandwidth for the next 48 round trips.
    """
    if s.policed:
        if s.mode == PROBE_BW and s.round_start:
            s.interval_rounds += 1
            if s.interval_rounds >= 48:
                forget_policer(s, flow)
                enter_probe_bw(p, s, flow)
        return
    if not s.watching:
        if ack.lost == 0:
            return
        begin_interval(s, flow)
        s.watching = True
    if s.round_start:
        s.interval_rounds += 1
    if is_app_limited(s, ack) or s.interval_rounds > 16:
        forget_policer(s, flow)
        return
    delivered = flow.delivered - s.interval_delivered
    lost = flow.lost - s.interval_lost
    elapsed_ns = flow.delivered_ns - s.interval_ns
    if s.interval_rounds < 4 or ack.lost == 0 or lost < 50 / 256 * delivered or elapsed_ns < 1_000_000:
        return
    bw = delivered * 8e9 * flow.wire_bytes / elapsed_ns
    if s.policed_bps > 0 and abs(bw - s.policed_bps) <= s.policed_bps / 8:
        s.policed = True
        s.policed_bps = (bw + s.policed_bps) / 2
        s.interval_rounds = 0
        s.pacing_gain = 1.0
    else:
        s.policed_bps = bw
        begin_interval(s, flow)


@_inner
def check_cycle_phase(p, s, flow, ack, now_ns):
    """Section 4.3.4.3: a phase lasts a min_rtt; probing lasts until the pipe is full, draining may end early."""
    if s.mode != PROBE_BW:
        return
    full_length = flow.delivered_ns - s.phase_ns > s.min_rtt_ns
    packets = in_network(s, flow, ack.prior_inflight, now_ns)
    if s.pacing_gain > 1:
        advance = full_length and (
            ack.lost > 0 or packets >= inflight(s, flow, s.bw_best[0], s.pacing_gain, 0.0)
        )
    elif s.pacing_gain < 1:
        advance = full_length or packets <= inflight(s, flow, s.bw_best[0], 1.0, 0.0)
    else:
        advance = full_length
    if advance:
        s.phase = (s.phase + 1) % 8
        s.pacing_gain = 1.0 if s.policed else p.cycle[s.phase]
        s.phase_ns = flow.delivered_ns


@_inner
def check_full_pipe(p, s, ack):
    """Section 4.3.2.2: the pipe is full after three round trips with less than 25 % more bandwidth."""
    if s.filled_pipe or not s.round_start or is_app_limited(s, ack):
        return
    if s.bw_best[0] >= s.full_bw_bps * p.full_growth:
        s.full_bw_bps = s.bw_best[0]
        s.full_rounds = 0
        return
    s.full_rounds += 1
    s.filled_pipe = s.full_rounds >= p.full_rounds


@_inner
def check_drain(p, s, flow, now_ns):
    """Section 4.3.3."""
    if s.mode == STARTUP and s.filled_pipe:
        s.mode = DRAIN
        s.pacing_gain = 1 / p.high_gain
    low = inflight(s, flow, s.bw_best[0], 1.0, 0.0)
    if s.mode == DRAIN and in_network(s, flow, flow.inflight, now_ns) <= low:
        enter_probe_bw(p, s, flow)


@_inner
def save_cwnd(s, flow):
    """Section 4.2.3.4: remember the last unmodulated window."""
    if not s.was_repairing and s.mode != PROBE_RTT:
        s.prior_cwnd = flow.cwnd
    else:
        s.prior_cwnd = max(s.prior_cwnd, flow.cwnd)


@_inner
def check_probe_rtt_done(p, s, flow, now_ns):
    if s.probe_rtt_done_ns == 0 or now_ns <= s.probe_rtt_done_ns:
        return
    s.min_rtt_stamp_ns = now_ns
    flow.cwnd = max(flow.cwnd, s.prior_cwnd)
    if s.filled_pipe:
        enter_probe_bw(p, s, flow)
    else:
        enter_startup(p, s)


@_inner
def update_min_rtt(p, s, stats, flow, ack, now_ns):
    """Sections 4.1.2 and 4.3.5: the minimum RTT of ten seconds, and the pause that measures it anew."""
    expired = now_ns > s.min_rtt_stamp_ns + p.min_rtt_window_ns
    if ack.rtt_ns >= 0 and (ack.rtt_ns < s.min_rtt_ns or expired):
        s.min_rtt_ns = ack.rtt_ns
        s.min_rtt_stamp_ns = now_ns
    if expired and not s.idle_restart and s.mode != PROBE_RTT:
        save_cwnd(s, flow)
        s.mode = PROBE_RTT
        s.pacing_gain = 1.0
        s.cwnd_gain = 1.0
        s.probe_rtt_done_ns = 0
        s.limited_from = flow.delivered
        stats.probe_rtts += 1
    if s.mode == PROBE_RTT:
        s.limited_until = flow.delivered + flow.inflight
        if s.probe_rtt_done_ns == 0 and flow.inflight <= p.min_cwnd:
            s.probe_rtt_done_ns = now_ns + p.probe_rtt_ns
            s.probe_rtt_round_done = False
            s.next_round_delivered = flow.delivered
        elif s.probe_rtt_done_ns != 0:
            if s.round_start:
                s.probe_rtt_round_done = True
            if s.probe_rtt_round_done:
                check_probe_rtt_done(p, s, flow, now_ns)
    if ack.acked > 0:
        s.idle_restart = False


# ---- control parameters (section 4.2) --------------------------------------------------------------------------------


@_inner
def set_pacing_rate(p, s, flow, gain):
    """Section 4.2.1, with Linux's margin of 1 %; until the pipe is full, the rate only rises."""
    rate = gain * s.bw_bps * (1 - p.pacing_margin)
    if rate > 0 and (s.filled_pipe or rate > flow.pacing_bps):
        flow.pacing_bps = rate


@_inner
def set_cwnd(p, s, flow, ack):
    """Section 4.2.3."""
    if ack.acked > 0:
        cwnd = flow.cwnd
        if ack.lost > 0:  # section 4.2.3.4
            cwnd = max(cwnd - ack.lost, 1.0)
        if s.repairing and not s.was_repairing:  # packet conservation for one round trip
            s.packet_conservation = True
            s.next_round_delivered = flow.delivered
            cwnd = float(flow.inflight + ack.acked)
        elif s.was_repairing and not s.repairing:  # recovery has ended
            s.packet_conservation = False
            cwnd = max(cwnd, s.prior_cwnd)
        s.was_repairing = s.repairing
        if s.packet_conservation:
            cwnd = max(cwnd, float(flow.inflight + ack.acked))
        else:
            extra = 0.0
            if s.filled_pipe:  # Linux: at most what is delivered in 100 ms
                extra = min(max(s.extra_older, s.extra_newer), s.bw_bps * 0.1 / (8 * flow.wire_bytes))
            target = inflight(s, flow, s.bw_bps, s.cwnd_gain, extra)
            if s.filled_pipe:
                cwnd = min(cwnd + ack.acked, target)
            elif cwnd < target or flow.delivered < flow.initial_window:
                cwnd += ack.acked
            cwnd = max(cwnd, float(p.min_cwnd))
        flow.cwnd = cwnd
    if s.mode == PROBE_RTT:  # section 4.2.3.5
        flow.cwnd = min(flow.cwnd, float(p.min_cwnd))


class Bbr(Cca):
    """BBR: sends at the bottleneck bandwidth with about one bandwidth-delay product in flight (Cardwell et al. 2017).

    It models the path by the maximum delivery rate and minimum RTT of recent times, paces at a gain times the rate,
    and bounds the packets in flight by another gain times their product. It ignores loss and ECN, except that for
    one round trip after a loss it sends no more than is delivered.

    Parameters
    ----------
    high_gain : float
        Gain of pacing and window in STARTUP; DRAIN paces at its inverse (BBRHighGain, 2/ln 2, sections 4.3.2, 4.3.3).
    cwnd_gain : float
        Window in PROBE_BW, in bandwidth-delay products (section 4.2.3.2).
    probe_gain, drain_gain : float
        Pacing gains in the first two of the eight phases of PROBE_BW; the others have 1 (section 4.3.4).
    bw_rounds : int
        Round trips in the maximum filter of the bandwidth (BtlBwFilterLen, section 4.1.1).
    min_rtt_window_s : float
        Window of the minimum filter of the RTT, in s (RTpropFilterLen, section 4.1.2).
    probe_rtt_ms : float
        Duration of PROBE_RTT in ms (ProbeRTTDuration, section 4.3.5).
    min_cwnd : int
        Smallest window in packets, and the window in PROBE_RTT (BBRMinPipeCwnd).
    full_growth, full_rounds : float, int
        The pipe is full if the bandwidth grows by less than this factor in this many round trips (section 4.3.2.2).
    pacing_margin : float
        Linux paces below the model by this share, so that queues drain.

    Notes
    -----
    Deviations from the draft, as in Linux: the pacing margin, room in the window for aggregated ACKs, windows
    rounded up to even numbers, a drain phase that ends early once the queue has drained, a bandwidth filter with
    three values, the detection of policers. Deviations from Linux: RTT samples of possibly delayed ACKs also count
    once the minimum has expired; packets leave one by one.

    See Also
    --------
    Bbr2 : bounded by loss
    Bbr3 : the current version
    Cubic : loss-based

    Examples
    --------
    A much shorter queue than CUBIC's 40 ms, in ms:

    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Bbr(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    10.4
    """

    name: ClassVar[str] = "bbr"
    owns_recovery: ClassVar[bool] = True

    high_gain: float = 2.885
    cwnd_gain: float = 2.0
    probe_gain: float = 1.25
    drain_gain: float = 0.75
    bw_rounds: int = 10
    min_rtt_window_s: float = 10.0
    probe_rtt_ms: float = 200.0
    min_cwnd: int = 4
    full_growth: float = 1.25
    full_rounds: int = 3
    pacing_margin: float = 0.01

    class State:
        mode = STARTUP
        pacing_gain = 1.0
        cwnd_gain = 1.0
        # round trips
        round_count = 0
        round_start = False
        next_round_delivered = 0
        # bandwidth
        bw_bps = 0.0  # BtlBw
        bw_best = np.zeros(3)
        bw_rounds = np.zeros(3, np.int64)  # rounds in which these were measured
        # policers: rate of the last interval, or the one in use, and the start of this interval
        policed = False
        policed_bps = 0.0
        watching = False
        interval_ns = 0
        interval_delivered = 0
        interval_lost = 0
        interval_rounds = 0
        # round-trip propagation time
        min_rtt_ns = 0  # RTprop
        min_rtt_stamp_ns = 0
        # full pipe
        filled_pipe = False
        full_bw_bps = 0.0
        full_rounds = 0
        # gain cycle
        phase = 0
        phase_ns = 0
        # PROBE_RTT
        probe_rtt_done_ns = 0
        probe_rtt_round_done = False
        limited_from = -1  # samples of packets sent while `delivered` was in this range do not count
        limited_until = -2
        idle_restart = False
        # recovery
        prior_cwnd = 0.0
        repairing = False
        was_repairing = False  # as of the last ACK
        packet_conservation = False
        # aggregation of ACKs
        epoch_ns = 0
        epoch_acked = 0
        extra_rounds = 0
        extra_newer = 0.0
        extra_older = 0.0

    class Stats:
        probe_rtts = 0

    def check(self) -> None:
        if self.bw_rounds < 1:
            raise ParameterError("Bbr.bw_rounds: must be at least 1")
        if self.high_gain <= 1:
            raise ParameterError("Bbr.high_gain: must be greater than 1")
        if self.min_cwnd < 1:
            raise ParameterError("Bbr.min_cwnd: must be at least 1")
        if self.pacing_margin >= 1:
            raise ParameterError("Bbr.pacing_margin: must be less than 1")

    def derived(self) -> dict[str, Any]:
        return {"cycle": np.array([self.probe_gain, self.drain_gain, 1, 1, 1, 1, 1, 1])}

    @staticmethod
    def on_start(p, s, stats, flow, ack, now_ns):
        s.min_rtt_ns = flow.min_rtt_ns
        s.min_rtt_stamp_ns = now_ns
        s.epoch_ns = now_ns
        enter_startup(p, s)
        # Section 4.2.1: without a bandwidth yet, the initial window over the handshake's RTT
        flow.pacing_bps = p.high_gain * flow.cwnd * flow.wire_bytes * 8e9 / max(flow.srtt_ns, 1000)

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        update_round(s, flow, ack)
        if ack.sample_interval_ns > 0:
            look_for_policer(p, s, flow, ack)
        update_bottleneck_bandwidth(p, s, ack)
        update_aggregation(s, flow, ack)
        check_cycle_phase(p, s, flow, ack, now_ns)
        check_full_pipe(p, s, ack)
        check_drain(p, s, flow, now_ns)
        update_min_rtt(p, s, stats, flow, ack, now_ns)
        set_pacing_rate(p, s, flow, s.pacing_gain)
        set_cwnd(p, s, flow, ack)

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        save_cwnd(s, flow)
        s.repairing = True

    @staticmethod
    def on_ecn(p, s, stats, flow, ack, now_ns):
        pass  # version 1 ignores marks

    @staticmethod
    def on_recovered(p, s, stats, flow, ack, now_ns):
        s.repairing = False

    @staticmethod
    def on_rto(p, s, stats, flow, ack, now_ns):
        s.repairing = True
        s.was_repairing = True  # no round trip of packet conservation
        s.full_bw_bps = 0.0  # Linux: restart the search for the full pipe
        s.round_start = True
        look_for_policer(p, s, flow, ack)
        flow.cwnd = flow.inflight + 1.0

    @staticmethod
    def on_send(p, s, stats, flow, ack, now_ns):
        # Section 4.3.4.4: restart from idle; the packet just sent is the only one in flight
        if flow.app_limited and flow.next_seq - flow.una == 1:
            s.idle_restart = True
            s.epoch_ns = now_ns
            s.epoch_acked = 0
            if s.mode == PROBE_BW:
                set_pacing_rate(p, s, flow, 1.0)
            elif s.mode == PROBE_RTT:
                check_probe_rtt_done(p, s, flow, now_ns)
