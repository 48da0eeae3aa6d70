"""The congestion controls again, slowly: plain Python, lists of everything seen, written from the papers alone."""

from __future__ import annotations

import math

MS = 1_000_000


class Twin:
    def on_start(self, flow, ack, now): ...
    def on_ack(self, flow, ack, now): ...
    def on_loss(self, flow, ack, now): ...
    def on_ecn(self, flow, ack, now): ...
    def on_recovered(self, flow, ack, now): ...
    def on_rto(self, flow, ack, now): ...
    def on_restart(self, flow, ack, now): ...


def slow_start(flow, packets):
    """Grow by what was delivered, up to ssthresh; gives what is left over."""
    room = max(flow.ssthresh - flow.cwnd, 0)
    used = min(room, packets)
    flow.cwnd += used
    return packets - used


class Dctcp(Twin):
    """Whole numbers, as in Linux: alpha in 1024ths."""

    def __init__(self):
        self.alpha = 1024
        self.window: list[tuple[int, int]] = []  # acked, marked of each ACK
        self.window_end = 0

    def on_ack(self, flow, ack, now):
        self.window.append((ack.acked, ack.marked))
        if flow.una > self.window_end:
            acked, marked = (sum(x) for x in zip(*self.window, strict=True))
            self.alpha -= self.alpha >> 4 or self.alpha
            self.alpha = min(self.alpha + (marked << 6) // acked, 1024)
            self.window, self.window_end = [], flow.next_seq
        if flow.may_grow:
            left = slow_start(flow, ack.acked)
            flow.cwnd += left / int(flow.cwnd)

    def on_ecn(self, flow, ack, now):
        flow.ssthresh = max(int(flow.cwnd) - (int(flow.cwnd) * self.alpha >> 11), 2)

    def on_loss(self, flow, ack, now):
        flow.ssthresh = max(int(flow.cwnd) // 2, 2)


class Prague(Twin):
    virtual_ns = 25 * MS

    def on_start(self, flow, ack, now):
        self.alpha = 1.0
        self.window: list[tuple[int, int]] = []
        self.updated = now
        self.reduced = -(10**30)
        self.marked = False
        self.part = 0.0  # of a packet, that the whole ones are too many
        self.pace(flow)

    def pace(self, flow):
        faster = (1500 / 1448) * (2 if flow.cwnd < flow.ssthresh / 2 else 1)
        flow.pacing_bps = (flow.cwnd - self.part) * flow.wire_bytes * 8 / (flow.srtt_ns / 1e9) * faster

    def on_ack(self, flow, ack, now):
        rtt = max(flow.srtt_ns, self.virtual_ns)
        self.window.append((ack.acked, ack.marked))
        self.marked = self.marked or ack.marked > 0
        if now >= self.updated + rtt:
            acked, marked = (sum(x) for x in zip(*self.window, strict=True))
            if self.marked:
                self.alpha = 15 / 16 * self.alpha + marked / acked / 16
            self.window, self.updated = [], now
        if flow.may_grow:
            left = slow_start(flow, ack.acked - ack.marked)
            window = flow.cwnd - self.part
            self.become(flow, window + left / window * min(flow.srtt_ns / self.virtual_ns, 1) ** 2)
        if ack.marked and not flow.in_recovery and now >= self.reduced + rtt:
            self.reduced = now
            window = flow.cwnd - self.part
            self.become(flow, max(2, window - window * self.alpha / 2))
            flow.ssthresh = flow.cwnd
        self.pace(flow)

    def become(self, flow, window):
        flow.cwnd = math.ceil(window)
        self.part = flow.cwnd - window

    def on_loss(self, flow, ack, now):
        flow.ssthresh = max(flow.cwnd / 2, 2)
        self.part = 0.0


class Vegas(Twin):
    """As Linux has it: slow start doubles in each round trip, differences are rounded down."""

    alpha, beta, gamma = 2, 4, 1

    def __init__(self):
        self.all_rtts: list[int] = []
        self.rtts: list[int] = []
        self.round_end = 0

    def on_ack(self, flow, ack, now):
        self.all_rtts.append(ack.rtt_ns)
        self.rtts.append(ack.rtt_ns)
        if flow.in_recovery:
            return
        starting = flow.cwnd < flow.ssthresh
        few = len(self.rtts) < 3
        over = flow.una > self.round_end
        if flow.in_rto or (over and few):  # Reno
            left = slow_start(flow, ack.acked)
            flow.cwnd += left / int(flow.cwnd)
        elif not over:
            if starting:
                slow_start(flow, ack.acked)
        else:
            base, rtt = min(self.all_rtts), min(self.rtts)
            diff = int(flow.cwnd * (rtt - base) / base)
            if starting and diff > self.gamma:
                flow.cwnd = min(flow.cwnd, int(flow.cwnd * base / rtt) + 1)
                flow.ssthresh = flow.cwnd
            elif starting:
                slow_start(flow, ack.acked)
            elif diff > self.beta:
                flow.cwnd -= 1
                flow.ssthresh = min(flow.ssthresh, flow.cwnd)
            elif diff < self.alpha:
                flow.cwnd += 1
        if over and not flow.in_rto:
            flow.cwnd = max(flow.cwnd, 2)
            self.rtts, self.round_end = [], flow.next_seq

    def on_restart(self, flow, ack, now):
        self.__init__()
        self.round_end = flow.una

    def on_recovered(self, flow, ack, now):
        self.rtts, self.round_end = [], flow.next_seq

    def on_loss(self, flow, ack, now):
        flow.ssthresh = max(int(flow.cwnd / 2), 2)


class Htcp(Twin):
    def on_start(self, flow, ack, now):
        self.last, self.beta, self.alpha, self.max_rtt = now, 0.5, 1.0, 0
        self.counted = self.packets = 0
        self.since = now
        self.rates: list[float] = []  # smoothed, since the last congestion
        self.best = [0.0]  # the largest of them at each congestion
        self.largest = 0.0
        self.was_steady = False

    def on_ack(self, flow, ack, now):
        if flow.in_recovery or flow.in_rto:
            self.packets, self.since = 0, now
        else:
            self.max_rtt = max(self.max_rtt, flow.min_rtt_ns)
            if self.max_rtt < ack.rtt_ns <= self.max_rtt + 20 * MS:
                self.max_rtt = ack.rtt_ns
            self.packets += ack.advanced
            took = now - self.since
            if self.packets >= flow.cwnd - max(1.0, self.alpha) and took >= flow.min_rtt_ns:
                rate = self.packets / (took / 1e9)
                if now - self.last < 4 * flow.min_rtt_ns:
                    self.rates = [rate]
                    self.largest = rate
                else:
                    self.rates.append(((self.rates[-1] if self.rates else 0.0) * 3 + rate) / 4)
                    self.largest = max(self.largest, self.rates[-1])
                self.packets, self.since = 0, now
        if not flow.may_grow:
            return
        if flow.cwnd < flow.ssthresh:
            slow_start(flow, ack.acked)
        elif self.counted * self.alpha >= flow.cwnd:
            self.counted = 0
            flow.cwnd += 1
            t = (now - self.last) / 1e9
            f = 1 if t <= 1 else int(1 + 10 * (t - 1) + ((t - 1) / 2) ** 2)
            f = max(int(f * min(max(flow.min_rtt_ns / (100 * MS), 0.1), 2)), 1)
            self.alpha = 2 * (1 - self.beta) * f
        else:
            self.counted += ack.acked

    def on_loss(self, flow, ack, now):
        before = self.best[-1]
        self.best.append(self.largest)
        steady = 0.8 * before <= self.largest <= 1.2 * before
        adaptive = steady and self.was_steady and flow.min_rtt_ns > 10 * MS and self.max_rtt > 0
        self.beta = min(0.8, max(0.5, flow.min_rtt_ns / self.max_rtt)) if adaptive else 0.5
        self.was_steady = steady
        self.max_rtt = max(self.max_rtt - (self.max_rtt - flow.min_rtt_ns) // 20, flow.min_rtt_ns)
        self.alpha, self.counted = 2 * (1 - self.beta), 0
        self.last = now
        flow.ssthresh = max(2, int(self.beta * flow.cwnd))

    def on_recovered(self, flow, ack, now):
        self.last = now


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
        self.repairing = self.repaired_before = self.conserving = False
        self.epoch_acked, self.extras, self.extra_bucket, self.extra_rounds = 0, {}, 0, 0
        self.phase = 0
        self.policed, self.policed_rate, self.interval = False, None, None

    def on_start(self, flow, ack, now):
        self.min_rtt, self.min_rtt_at = flow.min_rtt_ns, now
        self.epoch = now
        flow.pacing_bps = self.gain * flow.cwnd * flow.wire_bytes * 8 / (flow.srtt_ns / 1e9)

    def sample(self, bw):
        """Linux's filter: the best of the last ten round trips, the best since a while later, and since later still."""
        best, now = self.bws, self.round
        if not best or bw >= best[0][1] or now - best[2][0] > 10:
            self.bws = [(now, bw)] * 3
            return
        for i in (1, 2):
            if bw >= best[i][1]:
                best[i:] = [(now, bw)] * (3 - i)
                break
        if now - best[0][0] > 10:
            while now - best[0][0] > 10:
                best.append((now, bw))
                best.pop(0)
        elif best[1][0] == best[0][0] and now - best[0][0] > 2:
            best[1:] = [(now, bw)] * 2
        elif best[2][0] == best[1][0] and now - best[0][0] > 5:
            best[2] = (now, bw)

    @property
    def best(self):
        return self.bws[0][1] if self.bws else 0.0

    @property
    def bw(self):
        return self.policed_rate if self.policed else self.best

    def watch(self, flow, ack, new_round, limited):
        """Two lossy intervals in a row with the same rate: a policer."""
        mark = (flow.delivered_ns, flow.delivered, flow.lost)
        if self.policed:
            if self.mode == "probe_bw" and new_round:
                self.rounds_policed += 1
                if self.rounds_policed == 48:
                    self.policed, self.policed_rate, self.interval = False, None, None
                    self.probe_bw(flow)
            return
        if self.interval is None:
            if not ack.lost:
                return
            self.interval, self.interval_rounds = mark, 0
        self.interval_rounds += new_round
        if limited or self.interval_rounds > 16:
            self.interval, self.policed_rate = None, None
            return
        took, delivered, lost = (b - a for a, b in zip(self.interval, mark, strict=True))
        if self.interval_rounds < 4 or not ack.lost or 256 * lost < 50 * delivered or took < MS:
            return
        rate = delivered * flow.wire_bytes * 8e9 / took
        last, self.policed_rate = self.policed_rate, rate
        if last and abs(rate - last) <= last / 8:
            self.policed, self.policed_rate, self.rounds_policed = True, (rate + last) / 2, 0
        self.interval, self.interval_rounds = mark, 0

    def staying(self, flow, packets, now):
        """Of packets in flight, those still there when the pacing lets the next go, and those."""
        if self.pacing_gain > 1:
            packets += self.quantum(flow)
        return max(packets - int(self.bw * max(flow.next_send_ns - now, 0) / (8e9 * flow.wire_bytes)), 0)

    def quantum(self, flow):
        rate = flow.pacing_bps
        if rate < 24e6:
            return 1 if rate < 1.2e6 else 2
        return max(2, int(min(rate / 8 / 1024, 65536) / flow.wire_bytes))

    @property
    def pacing_gain(self):
        cruise = self.cycle[self.phase]
        if self.policed:
            cruise = 1
        return {"startup": self.gain, "drain": 1 / self.gain, "probe_bw": cruise, "probe_rtt": 1}[self.mode]

    @property
    def cwnd_gain(self):
        return {"startup": self.gain, "drain": self.gain, "probe_bw": 2, "probe_rtt": 1}[self.mode]

    def inflight(self, flow, gain, extra=0.0, bw=None):
        bdp = (self.best if bw is None else bw) * self.min_rtt / (8e9 * flow.wire_bytes)
        n = math.ceil(gain * bdp) + extra + 3 * self.quantum(flow)
        n = math.ceil(n / 2) * 2
        return n + 2 if self.mode == "probe_bw" and self.phase == 0 else n

    def probe_bw(self, flow):
        self.mode, self.phase, self.phase_start = "probe_bw", self.phases(), flow.delivered_ns

    def save(self, flow):
        fresh = not self.repaired_before and self.mode != "probe_rtt"
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
        self.watch(flow, ack, new_round, limited)
        if not limited or ack.delivery_bps >= self.best:
            self.sample(ack.delivery_bps)

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
            stay = self.staying(flow, ack.prior_inflight, now)
            if gain == 1.25:
                go_on = long and (ack.lost > 0 or stay >= self.inflight(flow, 1.25))
            elif gain == 0.75:
                go_on = long or stay <= self.inflight(flow, 1)
            else:
                go_on = long
            if go_on:
                self.phase, self.phase_start = (self.phase + 1) % 8, flow.delivered_ns

        if not self.filled and new_round and not limited:
            if self.best >= 1.25 * self.full_bw:
                self.full_bw, self.full_rounds = self.best, 0
            else:
                self.full_rounds += 1
                self.filled = self.full_rounds == 3
        if self.mode == "startup" and self.filled:
            self.mode = "drain"
        if self.mode == "drain" and self.staying(flow, flow.inflight, now) <= self.inflight(flow, 1):
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
        if self.repairing and not self.repaired_before:
            self.conserving, self.round_end = True, flow.delivered
            cwnd = flow.inflight + ack.acked
        if self.repaired_before and not self.repairing:
            self.conserving = False
            cwnd = max(cwnd, self.prior)
        self.repaired_before = self.repairing
        if self.conserving:
            cwnd = max(cwnd, flow.inflight + ack.acked)
        else:
            recent = [x for b in (self.extra_bucket, self.extra_bucket - 1) for x in self.extras.get(b, [])]
            extra = min(max(recent), self.bw * 0.1 / 8 / flow.wire_bytes) if self.filled else 0
            target = self.inflight(flow, self.cwnd_gain, extra, self.bw)
            if self.filled:
                cwnd = min(cwnd + ack.acked, target)
            elif cwnd < target or flow.delivered < flow.initial_window:
                cwnd += ack.acked
            cwnd = max(cwnd, 4)
        flow.cwnd = min(cwnd, 4) if self.mode == "probe_rtt" else cwnd

    def on_loss(self, flow, ack, now):
        self.save(flow)
        self.repairing = True

    def on_recovered(self, flow, ack, now):
        self.repairing = False

    def on_rto(self, flow, ack, now):
        self.repairing, self.repaired_before, self.full_bw = True, True, 0.0
        self.watch(flow, ack, True, False)
        flow.cwnd = flow.inflight + 1
