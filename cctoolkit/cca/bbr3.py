"""BBR, version 3: draft-ietf-ccwg-bbr, with Linux's response to ECN.

Functions and sections are named as in the draft. Its longterm and shortterm are hi and lo in Linux and version 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .._support.kernels import part
from ..errors import ParameterError
from .base import Cca, random
from .bbr import in_network

__all__ = ["Bbr3"]

STARTUP, DRAIN, DOWN, CRUISE, REFILL, UP, PROBE_RTT = range(7)
#: What the current ACKs are about (BBR.ack_phase).
INIT, REFILLING, STARTING, FEEDBACK, STOPPING = range(5)

INFINITE = 1e18  # packets, or bit/s: no bound

_inner = part(error_model="numpy")


# ---- State machine ---------------------------------------------------------------------------------------------------


@_inner
def in_probe_bw(s):
    return DOWN <= s.state <= UP


@_inner
def is_probing(s):
    """IsProbingBW: losses may be self-inflicted, so they do not count against the path."""
    return s.state == STARTUP or s.state == REFILL or s.state == UP


@_inner
def enter(p, s, state):
    """Summary of Control Behavior in the State Machine: the gains of a state."""
    s.state = state
    s.pacing_gain = p.pacing_gains[state]
    s.cwnd_gain = p.cwnd_gains[state]


@_inner
def start_round(s, flow):
    s.next_round_delivered = flow.delivered


@_inner
def reset_full_bw(s, baseline_bps):
    """ResetFullBW: look for a plateau above this bandwidth."""
    s.full_bw_bps = baseline_bps
    s.full_bw_count = 0
    s.full_bw_now = False


@_inner
def reset_short_term_model(s):
    s.bw_lo_bps = INFINITE
    s.inflight_lo = INFINITE


@_inner
def reset_congestion_signals(s):
    s.loss_in_round = False
    s.ecn_in_round = False
    s.bw_latest_bps = 0.0
    s.inflight_latest = 0.0


@_inner
def start_down(p, s, flow, now_ns):
    reset_congestion_signals(s)
    s.up_acked_per_inc = INFINITE
    # PickProbeWait: random, so that flows do not probe at the same time
    s.rounds_since_probe = int(random(flow) * 2)
    s.probe_wait_ns = p.probe_wait_ns + int(random(flow) * p.probe_wait_random_ns)
    s.cycle_ns = now_ns
    s.ack_phase = STOPPING
    start_round(s, flow)
    enter(p, s, DOWN)


@_inner
def start_refill(p, s, flow):
    reset_short_term_model(s)
    s.up_rounds = 0
    s.up_acked = 0.0
    s.probe_was_cautious = False
    s.ack_phase = REFILLING
    start_round(s, flow)
    enter(p, s, REFILL)


@_inner
def start_up(p, s, stats, flow, ack, now_ns):
    s.ack_phase = STARTING
    start_round(s, flow)
    reset_full_bw(s, ack.delivery_bps)
    s.up_ns = now_ns
    enter(p, s, UP)
    raise_slope(s, flow)
    stats.probes += 1


# ---- Network path model ----------------------------------------------------------------------------------------------


@_inner
def packets_of(s, flow, bw_bps, gain):
    """BDPMultiple."""
    return gain * bw_bps * s.min_rtt_ns / (8e9 * flow.wire_bytes)


@_inner
def quantized(p, s, flow, packets):
    """QuantizationBudget, with the offload budget of TCP: three send quanta of a millisecond, or of two packets."""
    quantum = max(min(flow.pacing_bps / 8e3, 65536.0) / flow.wire_bytes, 2.0)
    packets = max(packets, 3 * quantum, float(p.min_cwnd))
    return packets + 2 if s.state == UP else packets


@_inner
def target_inflight(s, flow):
    """TargetInflight."""
    return min(packets_of(s, flow, s.bw_bps, 1.0), flow.cwnd)


@_inner
def inflight_with_headroom(p, s):
    """InflightWithHeadroom: leave a share of what the path can hold to others."""
    if s.inflight_hi >= INFINITE:
        return INFINITE
    return max(s.inflight_hi - max(1.0, p.headroom * s.inflight_hi), float(p.min_cwnd))


@_inner
def is_app_limited(s, ack):
    """MarkConnectionAppLimited: packets sent during PROBE_RTT say nothing about the bandwidth either."""
    prior = ack.sample_prior_delivered
    return ack.sample_app_limited or s.limited_from <= prior <= s.limited_until


@_inner
def is_inflight_too_high(p, s, ack):
    """IsInflightTooHigh: more than 2 % of the packets in flight were lost or, as in Linux, half of them marked."""
    if ack.acked <= 0:
        return False
    if ack.sample_lost > p.loss_threshold * ack.sample_inflight:
        return True
    marked = ack.sample_marked
    return s.ecn_eligible and marked > 0 and marked >= p.ecn_threshold * ack.sample_delivered


@_inner
def inflight_at_loss(p, flow, lost):
    """InflightAtLoss: packets in flight when losses crossed the threshold, within the `lost` packets just lost."""
    before = max(math.floor(p.loss_threshold * flow.lost_inflight), flow.lost_since - lost)
    prefix = (p.loss_threshold * (flow.lost_inflight - 1) - before) / (1 - p.loss_threshold)
    return flow.lost_inflight - 1 + max(prefix, 0.0)


@_inner
def handle_inflight_too_high(p, s, stats, flow, ack, inflight, now_ns):
    """HandleInflightTooHigh: the probe went too far; once per probe."""
    s.probe_too_high = True
    s.is_probe_sample = False
    stats.too_high += 1
    if not is_app_limited(s, ack):
        s.inflight_hi = max(inflight, target_inflight(s, flow) * p.beta)
    if s.state == UP:
        start_down(p, s, flow, now_ns)


@_inner
def note_losses(p, s, stats, flow, ack, now_ns):
    """NoteLoss and HandleLostPacket, for all packets deemed lost since the last ACK."""
    lost = flow.lost - s.lost
    s.lost = flow.lost
    if lost <= 0:
        return
    if not s.loss_in_round:
        s.loss_round_delivered = flow.delivered
    s.loss_in_round = True
    s.loss_events += 1
    if s.is_probe_sample and flow.lost_since > p.loss_threshold * flow.lost_inflight:
        handle_inflight_too_high(p, s, stats, flow, ack, inflight_at_loss(p, flow, lost), now_ns)


@_inner
def update_latest_delivery_signals(s, flow, ack):
    s.loss_round_start = False
    if ack.acked <= 0:
        return
    s.bw_latest_bps = max(s.bw_latest_bps, ack.delivery_bps)
    s.inflight_latest = max(s.inflight_latest, float(ack.sample_delivered))
    if ack.sample_prior_delivered >= s.loss_round_delivered:
        s.loss_round_delivered = flow.delivered
        s.loss_round_start = True


@_inner
def update_round(s, flow, ack):
    """UpdateRound."""
    s.round_start = ack.acked > 0 and ack.sample_prior_delivered >= s.next_round_delivered
    if s.round_start:
        start_round(s, flow)
        s.round_count += 1
        s.rounds_since_probe += 1


@_inner
def update_max_bw(s, ack):
    """UpdateMaxBw: the largest delivery rate of this probing cycle and the previous one."""
    bw = ack.delivery_bps
    if bw > 0 and (bw >= s.max_bw_bps or not is_app_limited(s, ack)):
        s.cycle_bw_bps = max(s.cycle_bw_bps, bw)
        s.max_bw_bps = max(s.cycle_bw_bps, s.previous_cycle_bw_bps)


@_inner
def advance_max_bw_filter(s):
    """AdvanceMaxBwFilter; without a sample in this cycle, the older value stays (Linux)."""
    if s.cycle_bw_bps > 0:
        s.previous_cycle_bw_bps = s.cycle_bw_bps
        s.cycle_bw_bps = 0.0
        s.max_bw_bps = s.previous_cycle_bw_bps


@_inner
def update_ecn(p, s, flow, ack):
    """Linux: DCTCP's moving average of the share of marked packets, once per round trip; only on short paths."""
    if ack.marked > 0 and s.ecn_eligible:
        s.ecn_in_round = True
    if not s.round_start:
        return
    delivered = flow.delivered - s.ecn_delivered
    if delivered > 0:
        s.ecn_eligible = s.ecn_eligible or s.min_rtt_ns <= p.ecn_max_rtt_ns or p.ecn_max_rtt_ns == 0
        part = min((flow.marked - s.ecn_marked) / delivered, 1.0)
        s.ecn_alpha += p.ecn_gain * (part - s.ecn_alpha)
        high = s.ecn_eligible and part >= p.ecn_threshold
        s.startup_ecn_rounds = s.startup_ecn_rounds + 1 if high else 0
    s.ecn_delivered = flow.delivered
    s.ecn_marked = flow.marked


@_inner
def adapt_lower_bounds(p, s, flow):
    """AdaptLowerBoundsFromCongestion: reduce to what was delivered, once per round trip with losses or marks."""
    if is_probing(s) or not (s.loss_in_round or s.ecn_in_round):
        return
    if s.inflight_lo >= INFINITE:
        s.inflight_lo = flow.cwnd
    after_marks = s.inflight_lo
    if s.ecn_in_round:  # Linux
        after_marks *= 1 - p.ecn_factor * s.ecn_alpha
    if s.loss_in_round:
        if s.bw_lo_bps >= INFINITE:
            s.bw_lo_bps = s.max_bw_bps
        s.bw_lo_bps = max(s.bw_latest_bps, p.beta * s.bw_lo_bps)
        s.inflight_lo = max(s.inflight_latest, p.beta * s.inflight_lo)
    s.inflight_lo = min(s.inflight_lo, after_marks)


@_inner
def update_congestion_signals(p, s, flow, ack):
    update_round(s, flow, ack)
    update_max_bw(s, ack)
    update_ecn(p, s, flow, ack)
    if s.loss_round_start:
        adapt_lower_bounds(p, s, flow)
        s.loss_in_round = False
        s.ecn_in_round = False


@_inner
def update_aggregation(s, flow, ack, now_ns):
    """UpdateACKAggregation: the excess over what the bandwidth explains; its maximum over ten round trips."""
    if ack.acked <= 0:
        return
    expected = s.bw_bps * (now_ns - s.extra_start_ns) / (8e9 * flow.wire_bytes)
    if s.extra_delivered <= expected:
        s.extra_delivered = 0
        s.extra_start_ns = now_ns
        expected = 0.0
    s.extra_delivered += ack.acked
    i = s.round_count % len(s.extra_window)
    if s.round_start:
        s.extra_window[i] = 0.0
    s.extra_window[i] = max(s.extra_window[i], min(s.extra_delivered - expected, flow.cwnd))
    if not s.full_bw_reached:  # in Startup, over this round trip only
        s.extra_acked = s.extra_window[i]
    elif s.round_start:
        s.extra_acked = s.extra_window.max()
    else:
        s.extra_acked = max(s.extra_acked, s.extra_window[i])


# ---- Startup and Drain -----------------------------------------------------------------------------------------------


@_inner
def check_full_bw_reached(p, s, ack):
    """Exiting Acceleration Based on Bandwidth Plateau: three round trips with less than 25 % more bandwidth.

    Version 2 uses the largest bandwidth so far, version 3 the latest.
    """
    if s.full_bw_now or not s.round_start or is_app_limited(s, ack):
        return
    bw = ack.delivery_bps if p.plateau else s.max_bw_bps
    if bw >= 1.25 * s.full_bw_bps:
        reset_full_bw(s, bw)
        return
    s.full_bw_count += 1
    s.full_bw_now = s.full_bw_count >= 3
    s.full_bw_reached = s.full_bw_reached or s.full_bw_now


@_inner
def check_startup_done(p, s, flow, ack):
    """Exiting Startup: on a plateau, after a round trip of recovery with high loss, or after two with marks (Linux).

    It counts ACKs that report losses, like Linux, while the draft counts lost ranges of sequence numbers.
    """
    if not s.full_bw_reached:
        losses = s.loss_round_start and flow.in_recovery and s.loss_events >= p.startup_losses
        if (losses and is_inflight_too_high(p, s, ack)) or s.startup_ecn_rounds >= 2:
            s.full_bw_reached = True
            s.inflight_hi = packets_of(s, flow, s.max_bw_bps, 1.0)
            if p.plateau:
                s.inflight_hi = max(s.inflight_hi, s.inflight_latest)
    if s.loss_round_start:
        s.loss_events = 0
    if s.state == STARTUP and s.full_bw_reached:
        enter(p, s, DRAIN)
        s.drain_start_round = s.round_count


@_inner
def enter_probe_bw_from_drain(p, s, flow, now_ns):
    """CheckDrainDone."""
    if s.state != DRAIN:
        return
    bdp = quantized(p, s, flow, math.ceil(packets_of(s, flow, s.max_bw_bps, 1.0)))
    drained = in_network(s, flow, flow.inflight, now_ns) <= bdp
    if drained or s.round_count > s.drain_start_round + 3:
        start_down(p, s, flow, now_ns)


# ---- ProbeBW ---------------------------------------------------------------------------------------------------------


@_inner
def raise_slope(s, flow):
    """RaiseInflightLongtermSlope: 1, 2, 4, … packets in successive round trips."""
    growth = 2.0**s.up_rounds
    s.up_rounds = min(s.up_rounds + 1, 30)
    s.up_acked_per_inc = max(flow.cwnd / growth, 1.0)


@_inner
def is_cwnd_limited(flow, ack):
    """Whether the window was full when this ACK arrived."""
    return flow.cwnd_limited and ack.prior_inflight + 1 > flow.cwnd


@_inner
def probe_inflight_upward(s, flow, ack):
    """ProbeInflightLongtermUpward."""
    if not is_cwnd_limited(flow, ack) or flow.cwnd < s.inflight_hi:
        return
    s.up_acked += ack.acked
    if s.up_acked >= s.up_acked_per_inc:
        steps = math.floor(s.up_acked / s.up_acked_per_inc)
        s.up_acked -= steps * s.up_acked_per_inc
        s.inflight_hi += steps
    if s.round_start:
        raise_slope(s, flow)


@_inner
def adapt_long_term_model(p, s, stats, flow, ack, now_ns):
    """AdaptLongTermModel; returns whether it changed the state."""
    if s.ack_phase == STARTING and s.round_start:
        s.ack_phase = FEEDBACK
    if s.ack_phase == STOPPING and s.round_start:
        s.is_probe_sample = False
        s.ack_phase = INIT
        if in_probe_bw(s) and not is_app_limited(s, ack):
            advance_max_bw_filter(s)
        if in_probe_bw(s) and s.probe_was_cautious and not s.probe_too_high:
            start_refill(p, s, flow)  # the cautious probe did no harm: probe boldly
            return True
    if is_inflight_too_high(p, s, ack):
        if s.is_probe_sample:  # by marks; losses have been handled
            handle_inflight_too_high(p, s, stats, flow, ack, float(ack.sample_inflight), now_ns)
        return False
    if s.inflight_hi < INFINITE:
        if ack.acked > 0:
            s.inflight_hi = max(s.inflight_hi, float(ack.sample_inflight))
        if s.state == UP:
            probe_inflight_upward(s, flow, ack)
    return False


@_inner
def is_time_to_probe(p, s, flow, now_ns):
    """IsTimeToProbeBW: after two to three seconds, or as many round trips as Reno would need (at most 63)."""
    reno_rounds = min(target_inflight(s, flow), float(p.probe_max_rounds))
    return now_ns > s.cycle_ns + s.probe_wait_ns or s.rounds_since_probe >= reno_rounds


@_inner
def inflight_to_cruise(p, s, flow):
    """IsTimeToCruise: room below the long-term bound, and no queue; the product rounded up, as in Linux."""
    bdp = quantized(p, s, flow, math.ceil(packets_of(s, flow, s.max_bw_bps, 1.0)))
    return min(inflight_with_headroom(p, s), bdp)


@_inner
def is_time_to_go_down(p, s, flow, ack, now_ns):
    """IsTimeToGoDown."""
    inflight = in_network(s, flow, ack.prior_inflight, now_ns)
    if s.probe_too_high and inflight >= s.inflight_hi:
        s.probe_was_cautious = True
        return True
    if not p.plateau:  # version 2: the probe has filled the pipe
        high = quantized(p, s, flow, math.ceil(packets_of(s, flow, s.max_bw_bps, s.pacing_gain)))
        return now_ns > s.up_ns + s.min_rtt_ns and inflight >= high
    if is_cwnd_limited(flow, ack) and flow.cwnd >= s.inflight_hi:
        reset_full_bw(s, ack.delivery_bps)
        return False
    return s.full_bw_now


@_inner
def update_probe_bw_cycle(p, s, stats, flow, ack, now_ns):
    """UpdateProbeBWCyclePhase."""
    if not s.full_bw_reached or adapt_long_term_model(p, s, stats, flow, ack, now_ns) or not in_probe_bw(s):
        return
    if s.state == DOWN or s.state == CRUISE:
        if is_time_to_probe(p, s, flow, now_ns):
            start_refill(p, s, flow)
        elif s.state == DOWN and in_network(s, flow, ack.prior_inflight, now_ns) <= inflight_to_cruise(
            p, s, flow
        ):
            enter(p, s, CRUISE)
    elif s.state == REFILL:
        if s.round_start:
            s.is_probe_sample = True
            start_up(p, s, stats, flow, ack, now_ns)
    elif is_time_to_go_down(p, s, flow, ack, now_ns):
        s.probe_too_high = False
        start_down(p, s, flow, now_ns)


# ---- ProbeRTT --------------------------------------------------------------------------------------------------------


@_inner
def save_cwnd(s, flow):
    """SaveCwnd."""
    if not (flow.in_recovery or flow.in_rto) and s.state != PROBE_RTT:
        s.prior_cwnd = flow.cwnd
    else:
        s.prior_cwnd = max(s.prior_cwnd, flow.cwnd)


@_inner
def probe_rtt_cwnd(p, s, flow):
    return max(packets_of(s, flow, s.bw_bps, p.cwnd_gains[PROBE_RTT]), float(p.min_cwnd))


@_inner
def update_min_rtt(p, s, ack, now_ns):
    """UpdateMinRTT: the minimum of ten seconds, from minima of five."""
    s.probe_rtt_expired = now_ns > s.probe_rtt_stamp_ns + p.probe_rtt_interval_ns
    if ack.rtt_ns >= 0 and (ack.rtt_ns < s.probe_rtt_min_ns or s.probe_rtt_expired):
        s.probe_rtt_min_ns = ack.rtt_ns
        s.probe_rtt_stamp_ns = now_ns
    if s.probe_rtt_min_ns < s.min_rtt_ns or now_ns > s.min_rtt_stamp_ns + p.min_rtt_window_ns:
        s.min_rtt_ns = s.probe_rtt_min_ns
        s.min_rtt_stamp_ns = s.probe_rtt_stamp_ns


@_inner
def check_probe_rtt_done(p, s, flow, now_ns):
    """CheckProbeRTTDone and ExitProbeRTT."""
    if s.probe_rtt_done_ns == 0 or now_ns <= s.probe_rtt_done_ns:
        return
    s.probe_rtt_stamp_ns = now_ns
    flow.cwnd = max(flow.cwnd, s.prior_cwnd)
    reset_short_term_model(s)
    if s.full_bw_reached:
        start_down(p, s, flow, now_ns)
        enter(p, s, CRUISE)
    else:
        enter(p, s, STARTUP)


@_inner
def check_probe_rtt(p, s, stats, flow, ack, now_ns):
    """CheckProbeRTT and HandleProbeRTT."""
    if s.state != PROBE_RTT and s.probe_rtt_expired and not s.idle_restart:
        save_cwnd(s, flow)
        enter(p, s, PROBE_RTT)
        s.probe_rtt_done_ns = 0
        s.ack_phase = STOPPING
        s.limited_from = flow.delivered
        start_round(s, flow)
        stats.probe_rtts += 1
    if s.state == PROBE_RTT:
        s.limited_until = flow.delivered + flow.inflight
        if s.probe_rtt_done_ns == 0 and flow.inflight <= probe_rtt_cwnd(p, s, flow):
            s.probe_rtt_done_ns = now_ns + p.probe_rtt_ns
            s.probe_rtt_round_done = False
            start_round(s, flow)
        elif s.probe_rtt_done_ns != 0:
            s.probe_rtt_round_done = s.probe_rtt_round_done or s.round_start
            if s.probe_rtt_round_done:
                check_probe_rtt_done(p, s, flow, now_ns)
    if ack.acked > 0:
        s.idle_restart = False


# ---- Updating control parameters -------------------------------------------------------------------------------------


@_inner
def set_pacing_rate(p, s, flow, gain):
    """SetPacingRateWithGain."""
    rate = gain * s.bw_bps * (1 - p.pacing_margin)
    if rate > 0 and (s.full_bw_reached or rate > flow.pacing_bps):
        flow.pacing_bps = rate


@_inner
def set_cwnd(p, s, flow, ack):
    """SetCwnd, BoundCwndForProbeRTT, BoundCwndForModel."""
    max_inflight = quantized(p, s, flow, packets_of(s, flow, s.bw_bps, s.cwnd_gain) + s.extra_acked)
    cwnd = flow.cwnd
    if s.full_bw_reached:
        cwnd = min(cwnd + ack.acked, max_inflight)
    elif cwnd < max_inflight or flow.delivered < flow.initial_window:
        cwnd += ack.acked
    cwnd = max(cwnd, float(p.min_cwnd))
    if s.state == PROBE_RTT:
        cwnd = min(cwnd, probe_rtt_cwnd(p, s, flow))
    cap = INFINITE
    if s.state == CRUISE or s.state == PROBE_RTT:
        cap = inflight_with_headroom(p, s)
    elif in_probe_bw(s):
        cap = s.inflight_hi
    cap = max(min(cap, s.inflight_lo), float(p.min_cwnd))
    flow.cwnd = min(cwnd, cap)


class Bbr3(Cca):
    """BBRv3: BBR with bounds learnt from loss and marks (draft-ietf-ccwg-bbr).

    Like version 1, it paces at the measured bandwidth. But it probes for more only every two to three seconds,
    remembers how many packets in flight caused more than 2 % loss (``inflight_hi``), leaves room below that for
    others, and reduces to what is delivered while losses continue (``bw_lo``, ``inflight_lo``).

    Parameters
    ----------
    startup_gain, drain_gain, down_gain, up_gain : float
        Pacing gains in Startup, Drain, ProbeBW_DOWN and ProbeBW_UP; 1 elsewhere.
    startup_cwnd_gain, cwnd_gain, up_cwnd_gain, probe_rtt_cwnd_gain : float
        Windows in bandwidth-delay products: in Startup and Drain, ProbeBW except UP, ProbeBW_UP, and ProbeRTT.
    loss_threshold : float
        Tolerated share of losses among the packets in flight (LossThresh).
    beta : float
        Smallest share of a bound that is kept after losses.
    headroom : float
        Share of inflight_hi left to others while cruising.
    startup_losses : int
        ACKs reporting losses within one round trip that end Startup.
    probe_wait_s, probe_wait_random_s : float
        Time between probes in s: the first, plus up to the second.
    probe_max_rounds : int
        Most round trips between probes (or the window in packets, if that is less).
    min_rtt_window_s : float
        Window of the minimum filter of the RTT, in s (MinRTTFilterLen).
    probe_rtt_interval_s, probe_rtt_ms : float
        Interval and duration of ProbeRTT, in s and ms (ProbeRTTInterval, ProbeRTTDuration).
    min_cwnd : int
        Smallest window in packets (MinPipeCwnd).
    pacing_margin : float
        Paces below the model by this share.
    ecn_threshold, ecn_factor, ecn_gain, ecn_max_rtt_ms : float
        Linux's response to accurate ECN feedback: the share of marks that ends a probe, the share of inflight_lo that
        alpha = 1 takes per round trip, the weight of the last round trip in alpha, and the largest min_rtt (in ms) at
        which marks are heeded at all (0: any).

    Notes
    -----
    Deviations from the draft: Packets deemed lost by one ACK are handled together, and had as many in flight as the
    last of them. Startup counts ACKs that report losses, not lost ranges (as in Linux). There is no undo, since
    nothing is reordered here. The bandwidth of an older cycle stays until a newer one has a sample (as in Linux).
    Google's Linux code has other gains in Drain and ProbeBW_DOWN (``in_linux``). As there, packets in flight are those
    at the time when pacing releases the next ones, these included. Packets leave one by one, whatever the send
    quantum. The draft does not specify the response to marks: here it is that of Linux, but the echo of RFC 3168
    counts as a loss.

    See Also
    --------
    Bbr : version 1
    Bbr2 : version 2
    Prague : scalable, for L4S

    Examples
    --------
    A much shorter queue than CUBIC's 40 ms, in ms:

    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Bbr3(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    6.1
    """

    name: ClassVar[str] = "bbr3"
    in_linux: ClassVar[Mapping[str, float]] = {
        "drain_gain": 88 / 256,
        "down_gain": 232 / 256,
        "loss_threshold": 5 / 256,
    }
    owns_recovery: ClassVar[bool] = True
    #: Exiting Acceleration Based on Bandwidth Plateau also ends ProbeBW_UP, which is new in version 3.
    plateau: ClassVar[bool] = True

    startup_gain: float = 2.77
    drain_gain: float = 0.5
    down_gain: float = 0.9
    up_gain: float = 1.25
    startup_cwnd_gain: float = 2.0
    cwnd_gain: float = 2.0
    up_cwnd_gain: float = 2.25
    probe_rtt_cwnd_gain: float = 0.5
    loss_threshold: float = 0.02
    beta: float = 0.7
    headroom: float = 0.15
    startup_losses: int = 6
    probe_wait_s: float = 2.0
    probe_wait_random_s: float = 1.0
    probe_max_rounds: int = 63
    min_rtt_window_s: float = 10.0
    probe_rtt_interval_s: float = 5.0
    probe_rtt_ms: float = 200.0
    min_cwnd: int = 4
    pacing_margin: float = 0.01
    ecn_threshold: float = 0.5
    ecn_factor: float = 1 / 3
    ecn_gain: float = 1 / 16
    ecn_max_rtt_ms: float = 5.0

    class State:
        state = STARTUP
        pacing_gain = 1.0
        cwnd_gain = 1.0
        # round trips
        round_count = 0
        round_start = False
        next_round_delivered = 0
        # bandwidth
        bw_bps = 0.0
        max_bw_bps = 0.0
        cycle_bw_bps = 0.0  # largest sample of this cycle
        previous_cycle_bw_bps = 0.0
        # round-trip time
        min_rtt_ns = 0
        min_rtt_stamp_ns = 0
        probe_rtt_min_ns = 0
        probe_rtt_stamp_ns = 0
        probe_rtt_expired = False
        probe_rtt_done_ns = 0
        probe_rtt_round_done = False
        limited_from = -1  # samples of packets sent while `delivered` was in this range do not count
        limited_until = -2
        idle_restart = False
        # bounds: long term, short term
        inflight_hi = INFINITE
        bw_lo_bps = INFINITE
        inflight_lo = INFINITE
        # congestion signals of this round trip
        lost = 0  # flow.lost, as far as handled
        loss_in_round = False
        loss_events = 0  # ACKs that reported losses
        loss_round_delivered = 0
        loss_round_start = False
        bw_latest_bps = 0.0
        inflight_latest = 0.0
        ecn_in_round = False
        ecn_eligible = False
        ecn_alpha = 1.0
        ecn_delivered = 0
        ecn_marked = 0
        startup_ecn_rounds = 0
        # full pipe
        full_bw_reached = False
        full_bw_now = False
        full_bw_bps = 0.0
        full_bw_count = 0
        drain_start_round = 0
        # probing for bandwidth
        ack_phase = INIT
        is_probe_sample = False
        cycle_ns = 0
        probe_wait_ns = 0
        rounds_since_probe = 0
        probe_too_high = False
        probe_was_cautious = False
        up_ns = 0
        up_rounds = 0
        up_acked = 0.0
        up_acked_per_inc = INFINITE
        # aggregation of ACKs
        extra_window = np.zeros(10)
        extra_acked = 0.0
        extra_start_ns = 0
        extra_delivered = 0
        # window before recovery or ProbeRTT
        prior_cwnd = 0.0

    class Stats:
        probes = 0
        too_high = 0  # probes that went too far
        probe_rtts = 0

    def check(self) -> None:
        who = type(self).__name__
        if not 0 < self.loss_threshold < 1:
            raise ParameterError(f"{who}.loss_threshold: must be between 0 and 1")
        if not 0 < self.beta <= 1:
            raise ParameterError(f"{who}.beta: must be positive and at most 1")
        if self.startup_gain <= 1:
            raise ParameterError(f"{who}.startup_gain: must be greater than 1")
        if self.min_cwnd < 1:
            raise ParameterError(f"{who}.min_cwnd: must be at least 1")
        if self.headroom >= 1 or self.pacing_margin >= 1:
            raise ParameterError(f"{who}.headroom and {who}.pacing_margin: must be less than 1")

    def derived(self) -> dict[str, Any]:
        cwnd = self.cwnd_gain
        return {
            "pacing_gains": np.array(
                [self.startup_gain, self.drain_gain, self.down_gain, 1, 1, self.up_gain, 1]
            ),
            "cwnd_gains": np.array(
                [self.startup_cwnd_gain] * 2 + [cwnd] * 3 + [self.up_cwnd_gain, self.probe_rtt_cwnd_gain]
            ),
            "plateau": self.plateau,
        }

    @staticmethod
    def on_start(p, s, stats, flow, ack, now_ns):
        s.min_rtt_ns = flow.min_rtt_ns
        s.min_rtt_stamp_ns = now_ns
        s.probe_rtt_min_ns = flow.min_rtt_ns
        s.probe_rtt_stamp_ns = now_ns
        s.extra_start_ns = now_ns
        enter(p, s, STARTUP)
        # InitPacingRate
        flow.pacing_bps = p.startup_gain * flow.cwnd * flow.wire_bytes * 8e9 / max(flow.srtt_ns, 1000)

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        note_losses(p, s, stats, flow, ack, now_ns)
        # UpdateModelAndState
        update_latest_delivery_signals(s, flow, ack)
        update_congestion_signals(p, s, flow, ack)
        update_aggregation(s, flow, ack, now_ns)
        check_full_bw_reached(p, s, ack)
        check_startup_done(p, s, flow, ack)
        enter_probe_bw_from_drain(p, s, flow, now_ns)
        update_probe_bw_cycle(p, s, stats, flow, ack, now_ns)
        update_min_rtt(p, s, ack, now_ns)
        check_probe_rtt(p, s, stats, flow, ack, now_ns)
        if s.loss_round_start:  # AdvanceLatestDeliverySignals
            s.bw_latest_bps = ack.delivery_bps
            s.inflight_latest = float(ack.sample_delivered)
        s.bw_bps = min(s.max_bw_bps, s.bw_lo_bps)  # BoundBWForModel
        # UpdateControlParameters
        set_pacing_rate(p, s, flow, s.pacing_gain)
        set_cwnd(p, s, flow, ack)

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        save_cwnd(s, flow)  # OnEnterFastRecovery

    @staticmethod
    def on_ecn(p, s, stats, flow, ack, now_ns):
        save_cwnd(s, flow)
        s.loss_in_round = True

    @staticmethod
    def on_recovered(p, s, stats, flow, ack, now_ns):
        flow.cwnd = max(flow.cwnd, s.prior_cwnd)  # RestoreCwnd

    @staticmethod
    def on_rto(p, s, stats, flow, ack, now_ns):
        save_cwnd(s, flow)  # OnEnterRTO
        flow.cwnd = flow.inflight + 1.0

    @staticmethod
    def on_send(p, s, stats, flow, ack, now_ns):
        # HandleRestartFromIdle; the packet just sent is the only one in flight
        if flow.app_limited and flow.next_seq - flow.una == 1:
            s.idle_restart = True
            s.extra_start_ns = now_ns
            if in_probe_bw(s):
                set_pacing_rate(p, s, flow, 1.0)
            elif s.state == PROBE_RTT:
                check_probe_rtt_done(p, s, flow, now_ns)
