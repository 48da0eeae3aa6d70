"""The congestion controls again, slowly: plain Python, lists of everything seen, written from the papers alone."""

from __future__ import annotations

import math

MS = 1_000_000


class Twin:
    def on_start(self, flow, ack, now): ...
    def on_ack(self, flow, ack, now): ...
    def on_loss(self, flow, ack, now): ...
    def on_recovered(self, flow, ack, now): ...
    def on_rto(self, flow, ack, now): ...


def slow_start(flow, packets):
    """Grow by what was delivered, up to ssthresh; gives what is left over."""
    room = max(flow.ssthresh - flow.cwnd, 0)
    used = min(room, packets)
    flow.cwnd += used
    return packets - used


class Dctcp(Twin):
    def __init__(self, g=1 / 16):
        self.g, self.alphas = g, [1.0]
        self.window: list[tuple[int, int]] = []  # acked, marked of each ACK
        self.window_end = 0
        self.reduced_until = 0

    def on_ack(self, flow, ack, now):
        self.window.append((ack.acked, ack.marked))
        if flow.una > self.window_end:
            acked, marked = (sum(x) for x in zip(*self.window, strict=True))
            self.alphas.append((1 - self.g) * self.alphas[-1] + self.g * marked / acked)
            self.window, self.window_end = [], flow.next_seq
        if flow.in_recovery:
            return
        if ack.marked and flow.una > self.reduced_until:
            self.reduced_until = flow.next_seq
            flow.cwnd = flow.ssthresh = max(2, flow.cwnd - flow.cwnd * self.alphas[-1] / 2)
        left = slow_start(flow, ack.acked)
        flow.cwnd += left / flow.cwnd

    def on_loss(self, flow, ack, now):
        flow.ssthresh = max(flow.cwnd / 2, 2)

    def on_rto(self, flow, ack, now):
        if not flow.in_recovery and not flow.in_rto:
            self.on_loss(flow, ack, now)


class Prague(Dctcp):
    virtual_ns = 25 * MS

    def on_start(self, flow, ack, now):
        self.updated = now
        self.reduced = -(10**30)
        self.pace(flow)

    def pace(self, flow):
        flow.pacing_bps = (
            flow.cwnd
            * flow.wire_bytes
            * 8
            / (flow.srtt_ns / 1e9)
            * (2 if flow.cwnd < flow.ssthresh / 2 else 1)
        )

    def on_ack(self, flow, ack, now):
        rtt = max(flow.srtt_ns, self.virtual_ns)
        self.window.append((ack.acked, ack.marked))
        if now >= self.updated + rtt:
            acked, marked = (sum(x) for x in zip(*self.window, strict=True))
            self.alphas.append((1 - self.g) * self.alphas[-1] + self.g * marked / acked)
            self.window, self.updated = [], now
        if not flow.in_recovery:
            left = slow_start(flow, ack.acked - ack.marked)
            flow.cwnd += left / flow.cwnd * min(flow.srtt_ns / self.virtual_ns, 1) ** 2
            if ack.marked and now >= self.reduced + rtt:
                self.reduced = now
                flow.cwnd = flow.ssthresh = max(2, flow.cwnd - flow.cwnd * self.alphas[-1] / 2)
        self.pace(flow)


class Vegas(Twin):
    """In slow start rounds 0, 2, 4, ... double the window; what 1, 3, 5, ... measure is compared."""

    alpha, beta, gamma = 2, 4, 1

    def __init__(self):
        self.all_rtts: list[int] = []
        self.rtts: list[int] = []
        self.doubling = True

    def on_ack(self, flow, ack, now):
        self.all_rtts.append(ack.rtt_ns)
        self.rtts.append(ack.rtt_ns)
        if flow.in_recovery:
            return
        starting = flow.cwnd < flow.ssthresh
        if not ack.round_start:
            if starting and self.doubling:
                flow.cwnd = min(flow.cwnd + ack.acked, flow.ssthresh)
            return
        if len(self.rtts) < 3:
            flow.cwnd += ack.acked if starting else ack.acked / flow.cwnd
        else:
            base, rtt = min(self.all_rtts), ack.rtt_ns if starting else min(self.rtts)
            diff = flow.cwnd * (rtt - base) / base
            if starting and self.doubling:
                pass
            elif starting and diff > self.gamma:
                flow.cwnd = min(flow.cwnd, flow.cwnd * base / rtt + 1)
                flow.ssthresh = flow.cwnd
            elif starting:
                flow.cwnd += ack.acked
            elif diff > self.beta:
                flow.cwnd -= 1
                flow.ssthresh = min(flow.ssthresh, flow.cwnd)
            elif diff < self.alpha:
                flow.cwnd += 1
        flow.cwnd = max(flow.cwnd, 2)
        self.rtts = []
        self.doubling = not self.doubling

    def on_recovered(self, flow, ack, now):
        self.rtts = []

    def on_loss(self, flow, ack, now):
        flow.ssthresh = max(flow.cwnd / 2, 2)

    def on_rto(self, flow, ack, now):
        if not flow.in_recovery and not flow.in_rto:
            self.on_loss(flow, ack, now)


class Htcp(Twin):
    def on_start(self, flow, ack, now):
        self.since, self.beta, self.max_rtt = now, 0.5, 0
        self.rounds = [(now, 0)]  # start, delivered then
        self.throughput = [0.0]  # before each congestion

    def on_ack(self, flow, ack, now):
        if ack.round_start:
            self.rounds.append((now, flow.delivered))
        if flow.in_recovery:
            return
        self.max_rtt = max(self.max_rtt, flow.srtt_ns)
        left = slow_start(flow, ack.acked)
        t = (now - self.since) / 1e9
        f = 1 if t <= 1 else 1 + 10 * (t - 1) + ((t - 1) / 2) ** 2
        f = max(f * min(max(flow.min_rtt_ns / (100 * MS), 0.1), 2), 1)
        flow.cwnd += 2 * (1 - self.beta) * f * left / flow.cwnd

    def on_loss(self, flow, ack, now):
        now_rate = 0.0
        if len(self.rounds) > 1:
            (t0, d0), (t1, d1) = self.rounds[-2:]
            now_rate = (d1 - d0) * 1e9 / max(t1 - t0, 1)
        before = self.throughput[-1]
        self.throughput.append(now_rate)
        moved = abs(now_rate - before) > before / 5
        self.beta = 0.5 if moved or self.max_rtt == 0 else min(0.8, max(0.5, flow.min_rtt_ns / self.max_rtt))
        self.max_rtt = flow.min_rtt_ns + int(0.95 * max(self.max_rtt - flow.min_rtt_ns, 0))
        self.since = now
        flow.ssthresh = max(2, self.beta * flow.cwnd)

    def on_recovered(self, flow, ack, now):
        self.since = now

    def on_rto(self, flow, ack, now):
        if not flow.in_recovery and not flow.in_rto:
            self.on_loss(flow, ack, now)


class Bbr(Twin):
    """Version 1. `random` gives the phases of the gain cycle, as the algorithm drew them."""

    gain = 2.885
    cycle = (1.25, 0.75, 1, 1, 1, 1, 1, 1)

    def __init__(self, phases):
        self.phases = phases  # a function: the phase the compiled one began with
        self.mode = "startup"
        self.round, self.round_end, self.bws = 0, 0, []  # bws: (round, bit/s), all samples that counted
        self.full_bw, self.full_rounds, self.filled = 0.0, 0, False
        self.probe_done = None
        self.limited = (1, 0)
        self.idle = False
        self.prior = 0.0
        self.repairing = self.entering = self.conserving = False
        self.epoch_acked, self.extras, self.extra_bucket, self.extra_rounds = 0, {}, 0, 0
        self.phase = 0

    def on_start(self, flow, ack, now):
        self.min_rtt, self.min_rtt_at = flow.min_rtt_ns, now
        self.epoch = now
        flow.pacing_bps = self.gain * flow.cwnd * flow.wire_bytes * 8 / (flow.srtt_ns / 1e9)

    @property
    def bw(self):
        newest = max((r for r, _ in self.bws), default=0)
        return max((b for r, b in self.bws if r > newest - 10), default=0.0)

    @property
    def pacing_gain(self):
        cruise = self.cycle[self.phase]
        return {"startup": self.gain, "drain": 1 / self.gain, "probe_bw": cruise, "probe_rtt": 1}[self.mode]

    @property
    def cwnd_gain(self):
        return {"startup": self.gain, "drain": self.gain, "probe_bw": 2, "probe_rtt": 1}[self.mode]

    def inflight(self, flow, gain, extra=0.0):
        rate = flow.pacing_bps
        quantum = (
            1
            if rate < 1.2e6
            else 2
            if rate < 24e6
            else max(2, int(min(rate / 8 * 1e-3, 65536) / flow.wire_bytes))
        )
        bdp = self.bw * self.min_rtt / (8e9 * flow.wire_bytes)
        n = math.ceil(gain * bdp) + extra + 3 * quantum
        n = math.ceil(n / 2) * 2
        return n + 2 if self.mode == "probe_bw" and self.phase == 0 else n

    def probe_bw(self, flow):
        self.mode, self.phase, self.phase_start = "probe_bw", self.phases(), flow.delivered_ns

    def save(self, flow):
        fresh = not self.repairing and self.mode != "probe_rtt"
        self.prior = flow.cwnd if fresh else max(self.prior, flow.cwnd)

    def leave_probe_rtt(self, flow, now):
        if self.probe_done is None or now <= self.probe_done:
            return
        self.min_rtt_at = now
        flow.cwnd = max(flow.cwnd, self.prior)
        if self.filled:
            self.probe_bw(flow)
        else:
            self.mode = "startup"

    def on_ack(self, flow, ack, now):
        new_round = ack.sample_prior_delivered >= self.round_end
        if new_round:
            self.round, self.round_end, self.conserving = self.round + 1, flow.delivered, False
        limited = ack.sample_app_limited or self.limited[0] <= ack.sample_prior_delivered <= self.limited[1]
        if not limited or ack.delivery_bps >= self.bw:
            self.bws.append((self.round, ack.delivery_bps))

        # aggregation of ACKs: buckets of five round trips, the last two count
        if new_round:
            self.extra_rounds += 1
            if self.extra_rounds == 5:
                self.extra_rounds, self.extra_bucket = 0, self.extra_bucket + 1
        expected = self.bw * (now - self.epoch) / (8e9 * flow.wire_bytes)
        if self.epoch_acked <= expected:
            self.epoch, self.epoch_acked, expected = now, 0, 0
        self.epoch_acked += ack.acked
        bucket = self.extras.setdefault(self.extra_bucket, [0])
        bucket.append(min(self.epoch_acked - expected, flow.cwnd))

        if self.mode == "probe_bw":
            gain, long = self.pacing_gain, flow.delivered_ns - self.phase_start > self.min_rtt
            if gain == 1.25:
                go_on = long and (ack.lost > 0 or ack.prior_inflight >= self.inflight(flow, 1.25))
            elif gain == 0.75:
                go_on = long or ack.prior_inflight <= self.inflight(flow, 1)
            else:
                go_on = long
            if go_on:
                self.phase, self.phase_start = (self.phase + 1) % 8, flow.delivered_ns

        if not self.filled and new_round and not limited:
            if self.bw >= 1.25 * self.full_bw:
                self.full_bw, self.full_rounds = self.bw, 0
            else:
                self.full_rounds += 1
                self.filled = self.full_rounds == 3
        if self.mode == "startup" and self.filled:
            self.mode = "drain"
        if self.mode == "drain" and flow.inflight <= self.inflight(flow, 1):
            self.probe_bw(flow)

        expired = now - self.min_rtt_at > 10_000 * MS
        if ack.rtt_ns < self.min_rtt or expired:
            self.min_rtt, self.min_rtt_at = ack.rtt_ns, now
        if expired and not self.idle and self.mode != "probe_rtt":
            self.save(flow)
            self.mode, self.probe_done, self.limited = "probe_rtt", None, (flow.delivered, flow.delivered)
        if self.mode == "probe_rtt":
            self.limited = (self.limited[0], flow.delivered + flow.inflight)
            if self.probe_done is None:
                if flow.inflight <= 4:
                    self.probe_done, self.probe_round, self.round_end = now + 200 * MS, False, flow.delivered
            else:
                self.probe_round |= new_round
                if self.probe_round:
                    self.leave_probe_rtt(flow, now)
        self.idle = False

        rate = 0.99 * self.pacing_gain * self.bw
        if self.filled or rate > flow.pacing_bps:
            flow.pacing_bps = rate
        cwnd = flow.cwnd
        if ack.lost:
            cwnd = max(cwnd - ack.lost, 1)
        if self.entering:
            self.entering, self.conserving, self.round_end = False, True, flow.delivered
            cwnd = flow.inflight + ack.acked
        if self.conserving:
            cwnd = max(cwnd, flow.inflight + ack.acked)
        else:
            recent = [x for b in (self.extra_bucket, self.extra_bucket - 1) for x in self.extras.get(b, [])]
            extra = min(max(recent), self.bw * 0.1 / 8 / flow.wire_bytes) if self.filled else 0
            target = self.inflight(flow, self.cwnd_gain, extra)
            if self.filled:
                cwnd = min(cwnd + ack.acked, target)
            elif cwnd < target or flow.delivered < flow.initial_window:
                cwnd += ack.acked
            cwnd = max(cwnd, 4)
        flow.cwnd = min(cwnd, 4) if self.mode == "probe_rtt" else cwnd

    def on_loss(self, flow, ack, now):
        self.save(flow)
        self.repairing = self.entering = True

    def on_recovered(self, flow, ack, now):
        if self.repairing:
            self.repairing = self.entering = self.conserving = False
            flow.cwnd = max(flow.cwnd, self.prior)

    def on_rto(self, flow, ack, now):
        self.save(flow)
        self.repairing, self.entering, self.conserving, self.full_bw = True, False, False, 0.0
        flow.cwnd = 1
