"""AQMs written down once more, slowly, from the pseudo code or the formula of their RFC or paper."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

PASS, MARK, DROP, DROP_LATE = range(4)
MASK = 0xFFFFFFFF
MS = 1_000_000


class SplitMix64:
    """The toolkit's stream of random numbers."""

    def __init__(self, seed):
        self.x = seed

    def __call__(self):
        full = 2**64 - 1
        self.x = (self.x + 0x9E3779B97F4A7C15) & full
        z = self.x
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & full
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & full
        z ^= z >> 31
        return (z >> 11) / 2**53


class Red:
    """Figure 2 of Floyd and Jacobson (1993), gentle as in Floyd's note of 2000."""

    def __init__(self, p, seed):
        self.p, self.random = p, SplitMix64(seed)
        self.avg, self.count = 0.0, -1

    def on_enqueue(self, queue, packet, now):
        p = self.p
        if queue.packets != 0:
            self.avg = (1 - p.weight) * self.avg + p.weight * queue.packets
        else:
            m = (now - queue.idle_since_ns) / (p.mean_packet_bytes * 8e9 / queue.rate_bps)
            self.avg = (1 - p.weight) ** m * self.avg
        upper = 2 * p.max_packets if p.gentle else p.max_packets
        if p.min_packets <= self.avg < upper:
            self.count += 1
            if self.avg < p.max_packets:
                pb = p.max_probability * (self.avg - p.min_packets) / (p.max_packets - p.min_packets)
            else:
                pb = p.max_probability + (1 - p.max_probability) * (self.avg / p.max_packets - 1)
            if self.count * pb >= 1:
                pa = 1.0
            else:
                pa = pb / (1 - self.count * pb)
            if self.count * pb >= 1 or self.random() < pa:
                self.count = 0
                return MARK
            return PASS
        if self.avg >= upper:
            self.count = 0
            return DROP if p.hard_drop else MARK
        self.count = -1
        return PASS


class Codel:
    """RFC 8289, sections 5.4 and 5.5, and for Linux the same with its arithmetic."""

    def __init__(self, p, linux=False):
        self.p, self.linux = p, linux
        self.target, self.interval = round(p.target_ms * MS), round(p.interval_ms * MS)
        self.first_above = self.drop_next = self.count = self.last_count = self.rec = 0
        self.dropping = False

    def newton(self):
        """codel_Newton_step() in the types the kernel has."""
        u32, u64 = 2**32 - 1, 2**64 - 1
        invsqrt = (self.rec << 16) & u32
        invsqrt2 = ((invsqrt * invsqrt) & u64) >> 32
        val = ((3 << 32) - self.count * invsqrt2) & u64
        val >>= 2
        val = ((val * invsqrt) & u64) >> (32 - 2 + 1)
        self.rec = (val >> 16) & 0xFFFF

    def set_count(self, count, again=False):
        self.count = count
        if self.linux:
            if again:
                self.rec = 0xFFFF
            else:
                self.newton()

    def law(self, t):
        if self.linux:
            return t + ((self.interval * ((self.rec << 16) & MASK)) >> 32)
        return t + int(self.interval / math.sqrt(self.count))

    def dodeque(self, pull, now):
        packet = pull()
        if packet is None:
            self.first_above = 0
            return None, False
        ok = False
        if now - packet.enqueued_ns < self.target or packet.left_bytes <= self.p.mtu_bytes:
            self.first_above = 0
        elif self.first_above == 0:
            self.first_above = now + self.interval
        elif now > self.first_above or (now == self.first_above and not self.linux):
            ok = True
        return packet, ok

    def deque(self, pull, now):
        did = []
        packet, ok = self.dodeque(pull, now)
        if packet is None:
            self.dropping = False
            return did
        if self.dropping:
            if not ok:
                self.dropping = False
            while now >= self.drop_next and self.dropping:
                self.set_count(self.count + 1)
                if packet.ecn:
                    self.drop_next = self.law(self.drop_next)
                    return [*did, "mark"]
                did.append("drop")
                packet, ok = self.dodeque(pull, now)
                if packet is None or not ok:
                    self.dropping = False
                else:
                    self.drop_next = self.law(self.drop_next)
        elif ok:
            marked = bool(packet.ecn)
            if not marked:
                did.append("drop")
                packet, _ = self.dodeque(pull, now)
            self.dropping = True
            delta = self.count - self.last_count
            if delta > 1 and now - self.drop_next < 16 * self.interval:
                self.set_count(delta)
            else:
                self.set_count(1, again=True)
            self.drop_next = self.law(now)
            self.last_count = self.count
            if marked:
                return ["mark"]
        return did if packet is None else [*did, "pass"]


class P4Codel:
    """Listing 1 of the P4-CoDel paper; `gap`: INTERVAL/sqrt(count)."""

    def __init__(self, p, gap=None):
        self.target, self.interval = round(p.target_ms * MS), round(p.interval_ms * MS)
        self.mtu = getattr(p, "mtu_bytes", None)
        self.gap = gap or (lambda count: int(self.interval / math.sqrt(count)))
        self.dropping, self.count, self.last_count, self.drp_next_packet = False, 0, 0, 0

    def step(self, violated, now):
        if not violated:
            self.dropping = False
            return PASS
        if self.dropping is False:
            self.dropping = True
            tmp = self.count
            if self.count - self.last_count > 1 and now - self.drp_next_packet < 16 * self.interval:
                self.count = self.count - self.last_count
            else:
                self.count = 1
            self.drp_next_packet = now + self.gap(self.count)
            self.last_count = tmp
            return PASS
        if self.dropping and self.drp_next_packet <= now:
            self.count += 1
            self.drp_next_packet = now + self.gap(self.count)
            return MARK
        return PASS

    def on_dequeue(self, queue, packet, now):
        return self.step(not (now - packet.enqueued_ns < self.target or queue.bytes < self.mtu), now)


class NpuCodel(P4Codel):
    """Section III-B: at ingress, on the queue's present delay, with tables."""

    def __init__(self, p):
        table = {}
        for count in range(1, 5000):
            root = math.sqrt(count if count <= 16 else 2 ** (len(f"{count:b}") - 1))
            table[count] = int(p.interval_ms * MS / root)
        super().__init__(p, table.__getitem__)

    def on_dequeue(self, queue, packet, now):
        return PASS

    def on_enqueue(self, queue, packet, now):
        delay = now - queue.head_enqueued_ns if queue.packets else 0
        return self.step(queue.packets > 0 and delay >= self.target, now)


def math_unit_gap(interval, count):
    """Tofino's math unit from its definition: the smallest k with count/4**k < 2 gives m = floor(8 count/4**k)."""
    if count == 0:
        return 0
    k = 0
    while count / 4**k >= 2:
        k += 1
    m = math.floor(8 * count / 4**k)
    scale = next(e for e in range(64) if round(interval / math.sqrt(4 / 8) / 2**e) < 256)
    return (round(interval / math.sqrt(m / 8) / 2**scale) * 2**scale) >> k


class PisaCodel:
    """Listing 2 and Figure 4: two stateful ALUs, both run on every packet."""

    def __init__(self, p):
        self.p = p
        self.target, self.interval = round(p.target_ms * MS), round(p.interval_ms * MS)
        self.alu1 = 0
        self.alu2 = [0, 0]  # drop_next, count

    def salu_1(self, violation):
        first = violation and self.alu1 == 0
        self.alu1 = int(violation)
        return first

    def salu_2(self, first, now):
        now += round(self.p.clock_ms * MS)
        clock = now & MASK if self.p.wrap else now
        if first:
            self.alu2 = [clock + self.interval, 1]
            out = False
        else:
            if not self.p.wrap:
                out = self.alu2[0] <= now
            elif self.p.signed:
                out = (clock - self.alu2[0]) % 2**32 < 2**31
            else:
                out = self.alu2[0] <= clock
            if out:
                count = self.alu2[1] + 1
                start = clock if self.p.from_now else self.alu2[0]
                root_of = count if self.p.count_first else self.alu2[1]
                self.alu2 = [start + math_unit_gap(self.interval, root_of), count]
        if self.p.wrap:
            self.alu2[0] %= 2**32
        return out

    def on_dequeue(self, queue, packet, now):
        violation = not (now - packet.enqueued_ns < self.target or queue.bytes < self.p.mtu_bytes)
        first = self.salu_1(violation)
        drop = self.salu_2(first, now)
        if not (violation and drop):
            return PASS
        return MARK if packet.ecn else DROP_LATE


class Pie:
    """RFC 8033, appendix A with 5.1, 5.4 and 5.5; delays in seconds."""

    def __init__(self, p, seed):
        self.p, self.random = p, SplitMix64(seed)
        self.drop_prob, self.accu_prob, self.qdelay_old, self.burst_allowance = (
            0.0,
            0.0,
            0.0,
            p.burst_ms * 1e-3,
        )

    def current_qdelay(self, queue):
        return queue.last_delay_ns * 1e-9 if queue.packets else 0.0

    def on_enqueue(self, queue, packet, now):
        if queue.packets == queue.limit_packets:
            self.accu_prob = 0.0
            return PASS
        half = self.p.target_ms * 1e-3 / 2
        if self.drop_prob == 0 and self.current_qdelay(queue) < half and self.qdelay_old < half:
            self.burst_allowance = self.p.burst_ms * 1e-3
        if round(self.burst_allowance * 1e9) > 0 or not self.drop_early(queue):
            return PASS
        self.accu_prob = 0.0
        return MARK if self.drop_prob < self.p.ecn_limit else DROP

    def drop_early(self, queue):
        if self.qdelay_old < self.p.target_ms * 1e-3 / 2 and self.drop_prob < 0.2:
            return False
        if queue.bytes <= 2 * self.p.mean_packet_bytes:
            return False
        if self.p.derandomise:
            self.accu_prob = 0.0 if self.drop_prob == 0 else self.accu_prob
            self.accu_prob += self.drop_prob
            if self.accu_prob < 0.85:
                return False
            if self.accu_prob >= 8.5:
                return True
        return self.random() < self.drop_prob

    def on_update(self, queue, packet, now):
        target = self.p.target_ms * 1e-3
        delay = self.current_qdelay(queue)
        p = self.p.alpha * (delay - target) + self.p.beta * (delay - self.qdelay_old)
        for below, divisor in ((1e-6, 2048), (1e-5, 512), (1e-4, 128), (1e-3, 32), (1e-2, 8), (1e-1, 2)):
            if self.drop_prob < below:
                p /= divisor
                break
        if self.drop_prob >= 0.1 and p > 0.02:
            p = 0.02
        self.drop_prob += p
        if delay == 0 and self.qdelay_old == 0:
            self.drop_prob *= 0.98
        self.drop_prob = min(1.0, max(0.0, self.drop_prob))
        self.qdelay_old = delay
        self.burst_allowance = max(0.0, self.burst_allowance - self.p.update_ms * 1e-3)
        return PASS


class Pi2:
    """p += alpha (q - target) + beta (q - q before); classic p², scalable k p."""

    def __init__(self, p, seed):
        self.p, self.random = p, SplitMix64(seed)
        self.history = [(0, 0.0)]  # (in force from, p')
        self.before = 0.0

    def control(self, delay_ns, from_ns):
        q = delay_ns * 1e-9
        p = (
            self.history[-1][1]
            + self.p.alpha * (q - self.p.target_ms * 1e-3)
            + self.p.beta * (q - self.before)
        )
        self.history.append((from_ns, min(max(p, 0.0), 1.0)))
        self.before = q

    def decide(self, packet, now):
        p = [p for at, p in self.history if at <= now][-1]
        if packet.ecn in (1, 3):
            return MARK if self.random() < self.p.coupling * p else PASS
        first, second = self.random(), self.random()
        return MARK if first < p and second < p else PASS

    def on_enqueue(self, queue, packet, now):
        return self.decide(packet, now)

    def on_update(self, queue, packet, now):
        self.control(now - queue.head_enqueued_ns if queue.packets else 0, now)
        return PASS


class TofinoPi2(Pi2):
    """Delay of the last packet, probability in force later, decision at egress."""

    def on_enqueue(self, queue, packet, now):
        return PASS

    def on_dequeue(self, queue, packet, now):
        verdict = self.decide(packet, now)
        return DROP_LATE if verdict == MARK and packet.ecn == 0 else verdict

    def on_update(self, queue, packet, now):
        self.control(queue.last_delay_ns, now + round(self.p.control_plane_ms * MS))
        return PASS


class DualPi2:
    """RFC 9332, appendices A.1 and A.2."""

    def __init__(self, p):
        self.p = p
        self.base, self.prevq = 0.0, 0.0
        self.count = {"l mark": 0.0, "l drop": 0.0, "c": 0.0}

    def recur(self, which, likelihood):
        self.count[which] += likelihood
        if self.count[which] > 1:
            self.count[which] -= 1
            return True
        return False

    def laqm(self, delay):
        max_th = round(self.p.step_ms * MS)
        width = round(self.p.range_ms * MS)
        if delay >= max_th:
            return 1.0
        if delay > max_th - width:
            return (delay - (max_th - width)) / width
        return 0.0

    def on_dequeue(self, queue, packet, now):
        p_c, p_cl = self.base * self.base, self.p.coupling * self.base
        if queue.index == 0:
            if p_cl < 1:
                native = (
                    self.laqm(now - packet.enqueued_ns)
                    if queue.packets >= self.p.min_backlog_packets
                    else 0.0
                )
                return MARK if self.recur("l mark", max(native, p_cl)) else PASS
            if self.recur("l drop", p_c):
                return DROP
            return MARK if self.recur("l mark", 1.0) else PASS
        if self.recur("c", p_c):
            return DROP if p_c >= min(1 / self.p.coupling**2, 1) else MARK  # a mark without ECT is a drop
        return PASS

    def on_update(self, queue, packet, now):
        q = max((now - f.head_enqueued_ns) * 1e-9 if f.packets else 0.0 for f in queue.others)
        self.base += self.p.alpha * (q - self.p.target_ms * 1e-3) + self.p.beta * (q - self.prevq)
        self.base = max(min(self.base, 1.0), 0.0)
        self.prevq = q
        return PASS


class IRed:
    """Section 4.1 of the L4S paper; all notifications are kept."""

    def __init__(self, p, seed):
        self.p, self.random = p, SplitMix64(seed)
        self.s = 0.0
        self.on_their_way, self.flag = [], False

    def on_dequeue(self, queue, packet, now):
        p = self.p
        if p.measure == "delay":
            y, low, high = now - packet.enqueued_ns, p.min_ms * MS, p.max_ms * MS
        else:
            y, low, high = queue.packets, p.min_packets, p.max_packets
        self.s = p.weight * y + (1 - p.weight) * self.s
        red = 0.0 if self.s < low else 1.0 if self.s > high else (self.s - low) / (high - low)
        if packet.ecn in (1, 3):
            return MARK if self.random() < p.coupling * red else PASS
        if self.random() < (red * red if p.square else red):
            self.on_their_way.append(now + round(p.recirculation_us * 1000))
        return PASS

    def on_enqueue(self, queue, packet, now):
        if any(at <= now for at in self.on_their_way):
            self.flag = True
        self.on_their_way = [at for at in self.on_their_way if at > now]
        if self.flag and packet.ecn not in (1, 3):
            self.flag = False
            return DROP
        return PASS


class Abc:
    """The closed forms: every packet that ever came is summed up again."""

    def __init__(self, p):
        self.p = p
        self.seen = {}  # aggregate: [(time, bytes)]
        self.accepted = []  # (time, activity)
        self.label = math.nan

    def activity(self, aggregate, size, now):
        seen = self.seen.setdefault(aggregate, [])
        seen.append((now, size))
        times, sizes = np.array(seen, float).T
        beta = 1 / self.p.meter_memory_s
        total = float(np.sum(8 * sizes * np.exp(-beta * (now - times) * 1e-9)))
        since = (now - seen[0][0]) * 1e-9
        rate = beta * total / (-math.expm1(-beta * since) if since > 0 else 1)
        return math.log2(rate / (self.p.reference_kbps * 1e3))

    def average(self, now):
        if not self.accepted:
            return self.label
        times, values = np.array(self.accepted).T
        weight = np.exp(-(now - times) * 1e-9 / self.p.average_memory_s)
        return float(np.sum(weight * values) / np.sum(weight))

    def on_enqueue(self, queue, packet, now):
        self.label = self.activity(packet.aggregate, packet.bytes, now)
        t_drop = max(
            self.p.min_packets, self.p.base_packets - self.p.gamma_packets * (self.label - self.average(now))
        )
        if queue.packets > t_drop:
            return DROP
        self.accepted.append((now, self.label))
        return PASS


class IntegerAbc:
    """The integer form with numbers of any size: a difference is an overflow."""

    def __init__(self, p):
        self.p, self.t = p, p.derived()
        self.meters, self.sum, self.n, self.averaged = {}, 0, 0, 0
        self.label = 0

    def log2(self, x):
        e = x.bit_length() - 1
        return (e << 16) + int(self.t["log_table"][((x << 10) >> e) % 1024])

    def steps(self, kind, last, now):
        step = self.t[f"{kind}_step_ns"]
        return (min(now - last, step << 16) * self.t[f"{kind}_reciprocal"]) >> 40

    def decay(self, x, steps):
        if steps >> 10 > 42:
            return 0
        return math.floor(
            Fraction(x * int(self.t["power_table"][steps % 1024]), 2 ** (20 + (steps >> 10))) + Fraction(1, 2)
        )

    def forward(self, kind, last, now, steps):
        return now if steps > 42 * 1024 else last + steps * self.t[f"{kind}_step_ns"]

    def on_enqueue(self, queue, packet, now):
        first, last, volume = self.meters.get(packet.aggregate, (now, now, 0))
        steps = self.steps("meter", last, now)
        if steps:
            last, volume = self.forward("meter", last, now, steps), self.decay(volume, steps)
        volume += packet.bytes << 6
        self.meters[packet.aggregate] = first, last, volume
        a = self.log2(volume) + int(self.t["offset"][packet.aggregate])
        running = (now - first) >> 4
        if running:
            e = running.bit_length() - 1
            a -= int(self.t["start_table"][e * 64 + ((running << 6) >> e) % 64])
        self.label = a / 65536
        steps = self.steps("average", self.averaged, now)
        if steps:
            self.averaged = self.forward("average", self.averaged, now, steps)
            self.sum, self.n = self.decay(self.sum, steps), self.decay(self.n, steps)
        average = a
        if self.n > 0:
            log_n = self.log2(self.n)
            average = (self.sum * int(self.t["power_table"][log_n % 65536 // 64])) // 2 ** (
                log_n // 65536 + 4
            )
        if queue.packets << 16 > max(
            self.t["min_fixed"], self.t["base_fixed"] - self.t["gamma_fixed"] * (a - average)
        ):
            return DROP
        self.sum += a
        self.n += 65536
        return PASS


class Csfq:
    """Figure 3 of Stoica, Shenker and Zhang (1998); every rate is summed up again from all packets."""

    def __init__(self, p, seed):
        self.p, self.random = p, SplitMix64(seed)
        self.flows = {}  # aggregate: [(time of the one before, time, bits)]
        self.arrived, self.accepted = [], []
        self.before = None
        self.alpha, self.congested, self.start, self.largest, self.cuts = 0.0, False, 0, 0.0, 0
        self.label = math.nan

    @staticmethod
    def rate(packets, memory_ms, now):
        """Equation (3) written out: what each packet added, decayed since."""
        memory = memory_ms * MS
        total = 0.0
        for before, at, bits in packets:
            x = (at - before) / memory
            added = bits / memory if x == 0 else (1 - math.exp(-x)) * bits / (at - before)
            total += added * math.exp(-(now - at) / memory)
        return total * 1e9

    def on_enqueue(self, queue, packet, now):
        p, bits = self.p, 8 * packet.bytes
        mine = self.flows.setdefault(packet.aggregate, [])
        mine.append((mine[-1][1] if mine else now - p.flow_memory_ms * MS, now, bits))
        weights = p.weights if isinstance(p.weights, tuple) else (p.weights,)
        label = self.rate(mine, p.flow_memory_ms, now) / weights[min(packet.aggregate, len(weights) - 1)]
        drop = self.congested and self.random() < 1 - self.alpha / label
        if self.before is not None:
            self.arrived.append((self.before, now, bits))
            self.accepted.append((self.before, now, 0 if drop else bits))
        self.before = now
        a, f = (self.rate(x, p.link_memory_ms, now) for x in (self.arrived, self.accepted))
        c, since = queue.rate_bps, (now - self.start) / MS
        if a >= c and (self.congested or queue.packets >= p.threshold * queue.limit_packets):
            if not self.congested:
                self.congested, self.start = True, now
                self.alpha = self.alpha or min(self.largest, c)
            elif since > p.window_ms:
                self.alpha, self.start, self.cuts = self.alpha * c / f, now, 0
        elif self.congested:
            self.congested, self.start, self.largest = False, now, 0.0
        elif since < p.window_ms:
            self.largest = max(self.largest, label)
        else:
            self.alpha, self.start, self.largest, self.cuts = self.largest, now, label, 0
        self.label = label
        if drop:
            return DROP
        if queue.packets >= queue.limit_packets and self.cuts < 28:
            self.alpha, self.cuts = 0.99 * self.alpha, self.cuts + 1
        if self.congested:
            self.label = min(label, self.alpha)
        return PASS
