"""Drives an AQM's compiled functions as the simulator does, without it, and a naive twin beside them."""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from types import SimpleNamespace

import numpy as np

from cctoolkit.aqm import DROP, DROP_LATE, MARK, PACKET, PASS, QUEUE

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5, ctypes.c_int64)


class Compiled:
    """The functions of an AQM on records of their own; called with a queue's number and one packet's record."""

    def __init__(self, aqm, *, queues=1, rate_bps=100e6, seed=1):
        self.aqm = aqm
        self.p, self.s, self.stats = aqm.parameter_record(), aqm.state_record(), aqm.stats_record()
        self.queues = np.zeros(queues, QUEUE)
        self.queues["index"] = np.arange(queues)
        self.queues["queues"] = queues
        self.queues["head_enqueued_ns"] = -1
        self.queues["limit_packets"] = self.queues["limit_bytes"] = 2**62
        self.queues["rate_bps"] = rate_bps
        self.queues["rng"] = seed
        self.functions = {event: FUNCTION(at) for event, at in aqm.addresses().items() if at}

    def state(self, name):
        return self.s[name][0]

    def call(self, event, q, packet, now_ns):
        if event not in self.functions:
            return PASS
        records = (self.p, self.s, self.stats, self.queues[q : q + 1], packet)
        return self.functions[event](*(r.ctypes.data for r in records), now_ns)


def packet(*, enqueued_ns=0, size=1514, ecn=0, flow=0, aggregate=0):
    out = np.zeros(1, PACKET)
    out["enqueued_ns"], out["bytes"], out["ecn"] = enqueued_ns, size, ecn
    out["flow"], out["aggregate"] = flow, aggregate
    return out


def traffic(
    seed, n=1500, *, load=1.2, rate_bps=100e6, ecn=(0,), start_ns=0, sizes=(1514,), aggregates=1, burst=8
):
    """Times of arrival and packets: bursts of random length, exponential gaps, `load` times the link's rate."""
    rng = np.random.default_rng(seed)
    size = rng.choice(sizes, n)
    length = rng.geometric(1 / burst, n)
    first = np.zeros(n, bool)
    first[np.minimum(np.cumsum(length), n - 1)] = True
    gap = rng.exponential(size.mean() * 8e9 / rate_bps / load * burst, n) * first
    at = start_ns + np.cumsum(np.round(gap).astype(np.int64) + rng.integers(1, 1000, n))
    marks, groups = rng.choice(ecn, n), rng.integers(0, aggregates, n)
    return at, [packet(size=z, ecn=e, aggregate=a) for z, e, a in zip(size, marks, groups, strict=True)]


class Link:
    """A link with queues, an AQM, and its twin: every decision of the two has to be the same.

    The twin has ``on_enqueue``, ``on_dequeue``, ``on_update`` (queue, packet, now), or ``deque(pull, now)`` which
    fetches packets itself as the RFCs' pseudo code does and gives for each "drop", "mark" or "pass".
    """

    def __init__(self, compiled, twin, *, rate_bps=100e6, limit=400, choose=lambda packet: 0):
        self.compiled, self.twin, self.rate_bps, self.limit, self.choose = (
            compiled,
            twin,
            rate_bps,
            limit,
            choose,
        )
        n = len(compiled.queues)
        self.waiting = [deque() for _ in range(n)]
        self.facts = [
            SimpleNamespace(
                index=i, packets=0, bytes=0, head_enqueued_ns=-1, last_delay_ns=0, idle_since_ns=0
            )
            for i in range(n)
        ]
        for f in self.facts:
            f.rate_bps, f.others, f.limit_packets = rate_bps, self.facts, limit
        compiled.queues["limit_packets"] = limit
        self.log = []  # (time, event, verdict)
        self.drops = self.marks = self.sent = 0

    def _changed(self, q):
        facts, row, waiting = self.facts[q], self.compiled.queues, self.waiting[q]
        facts.packets = len(waiting)
        facts.bytes = sum(int(w["bytes"][0]) for w in waiting) if len(waiting) < 3 else facts.bytes
        facts.head_enqueued_ns = int(waiting[0]["enqueued_ns"][0]) if waiting else -1
        for name in ("packets", "bytes", "head_enqueued_ns", "last_delay_ns", "idle_since_ns"):
            row[name][q] = getattr(facts, name)

    def _both(self, event, q, pk, now):
        verdict = self.compiled.call(event, q, pk, now)
        twin = getattr(self.twin, event, None)
        if twin is not None:
            want = twin(self.facts[q], SimpleNamespace(**{k: pk[k][0].item() for k in PACKET.names}), now)
            assert verdict == want, f"{event} at {now} ns: {verdict}, twin {want}"
        self.log.append((now, event, verdict))
        return verdict

    def _fate(self, verdict, pk):
        if verdict in (DROP, DROP_LATE) or (verdict == MARK and pk["ecn"][0] == 0):
            self.drops += 1
            return "drop"
        if verdict == MARK:
            pk["ecn"] = 3
            self.marks += 1
            return "mark"
        return "pass"

    def arrive(self, pk, now):
        q = self.choose(pk)
        pk["enqueued_ns"] = now
        facts, waiting = self.facts[q], self.waiting[q]
        if self._fate(self._both("on_enqueue", q, pk, now), pk) == "drop" or len(waiting) >= self.limit:
            return
        waiting.append(pk)
        facts.bytes += int(pk["bytes"][0])
        facts.idle_since_ns = -1
        self._changed(q)

    def _take(self, q, now):
        pk = self.waiting[q].popleft()
        self.facts[q].bytes -= int(pk["bytes"][0])
        if not self.waiting[q]:
            self.facts[q].idle_since_ns = now
        self._changed(q)
        return pk

    def serve(self, now):
        """Time on the link of the packet that leaves, or None."""
        q = next((i for i, w in enumerate(self.waiting) if w), None)
        if q is None:
            return None
        want = None
        if hasattr(self.twin, "deque"):
            waiting, left = iter(tuple(itertools.islice(self.waiting[q], 50))), self.facts[q].bytes

            def pull():
                nonlocal left
                pk = next(waiting, None)
                if pk is None:
                    return None
                left -= int(pk["bytes"][0])
                return SimpleNamespace(**{k: pk[k][0].item() for k in PACKET.names}, left_bytes=left)

            want = self.twin.deque(pull, now)
        did = []
        pk = None
        while self.waiting[q]:
            pk = self._take(q, now)
            verdict = self._both("on_dequeue", q, pk, now)
            did.append(self._fate(verdict, pk))
            if verdict == DROP_LATE:
                return self._took(pk)
            if did[-1] != "drop":
                break
            pk = None
        if want is not None:
            assert did == want, f"at {now} ns: {did}, twin {want}"
        if pk is None:
            return self.serve(now)
        self.sent += 1
        self.facts[q].last_delay_ns = now - int(pk["enqueued_ns"][0])
        self._changed(q)
        return self._took(pk)

    def _took(self, pk):
        """Time on the link."""
        return round(int(pk["bytes"][0]) * 8e9 / self.rate_bps)

    def run(self, at, packets):
        period = self.compiled.aqm.update_period_ns()
        update = int(at[0]) + period if period else 2**62
        free, i = None, 0
        while i < len(packets):
            now = min(int(at[i]), update, free if free is not None else 2**62)
            if now == update:
                self._both("on_update", 0, packets[0], now)
                update += period
            elif now == free:
                took = self.serve(now)
                free = None if took is None else now + took
            else:
                self.arrive(packets[i], now)
                i += 1
                if free is None:
                    free = now
        return self
