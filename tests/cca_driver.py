"""Calls a congestion control as a sender would, without the event loop: a path of which the test decides each ACK."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from cctoolkit.cca import ACK, FLOW, Cca

MS = 1_000_000
WIRE = 1514
CALL = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 5, ctypes.c_int64)


class Driver:
    """A sender whose packets are acknowledged, marked or lost in order, as the test says.

    Lost packets are not sent again; recovery ends when all sent before it began is acknowledged or lost. In recovery
    the window is ssthresh at once, unless the algorithm owns it.
    """

    def __init__(self, cca: Cca, *, rtt_ms: float = 20.0, window: int = 10) -> None:
        self.cca = cca
        self.p, self.s, self.stats = cca.parameter_record(), cca.state_record(), cca.stats_record()
        self.flow_, self.ack_ = np.zeros(1, FLOW), np.zeros(1, ACK)
        self.flow, self.ack = self.flow_.view(np.recarray)[0], self.ack_.view(np.recarray)[0]
        self.state = self.s.view(np.recarray)[0]
        self.functions = {k: CALL(v) for k, v in cca.addresses().items() if v}
        self.now_ns = 1_000 * MS
        f = self.flow
        f.cwnd, f.ssthresh, f.initial_window = window, 1e9, window
        f.wire_bytes, f.mss_bytes = WIRE, WIRE - 66
        f.rng = np.uint64(12345)
        f.min_rtt_ns = f.srtt_ns = f.latest_rtt_ns = round(rtt_ms * MS)
        f.delivered_ns = f.start_ns = self.now_ns
        self.under_way: list[SimpleNamespace] = []
        self.next_round = 0
        self.recovery_point = 0
        self.by_marks = False  # the window is being reduced for marks
        self.twin: Any = None
        self.call("on_start")
        self.send()

    def call(self, event: str) -> None:
        """Call it, and the twin on copies, and compare what both wrote."""
        twin = getattr(self.twin, event, None)
        copy = self.plain(self.flow) if twin else None
        if event in self.functions:
            self.functions[event](
                *(a.ctypes.data for a in (self.p, self.s, self.stats, self.flow_, self.ack_)), self.now_ns
            )
        if twin and copy:
            twin(copy, self.plain(self.ack), self.now_ns)
            got = [self.flow.cwnd, self.flow.ssthresh, self.flow.pacing_bps]
            np.testing.assert_allclose(
                got, [copy.cwnd, copy.ssthresh, copy.pacing_bps], rtol=1e-9, err_msg=event
            )
        assert self.flow.cwnd >= 1 and np.isfinite(self.flow.cwnd) and self.flow.pacing_bps >= 0

    @staticmethod
    def plain(row: Any) -> SimpleNamespace:
        return SimpleNamespace(**{n: row[n].item() for n in row.dtype.names})

    def send(self) -> None:
        """As much as the window allows, at once."""
        while self.flow.inflight + 1 <= self.flow.cwnd and self.flow.inflight < 3000:
            self.send_one()
        self.flow.cwnd_limited = True

    def send_one(self) -> None:
        f = self.flow
        if f.inflight == 0:
            self.call("on_restart")
        f.last_sent_ns = self.now_ns
        f.next_seq += 1
        f.inflight += 1
        seen = {k: int(f[k]) for k in ("delivered", "delivered_ns", "lost", "marked", "inflight")}
        self.under_way.append(SimpleNamespace(**seen, sent_ns=self.now_ns, app_limited=bool(f.app_limited)))
        self.call("on_send")

    def step(self, gap_ns: int, rtt_ns: int, acked: int = 1, lost: int = 0, marked: int = 0) -> None:
        """`gap_ns` later `lost` packets are found lost, the `acked` after them delivered, `marked` of these marked."""
        self.now_ns += gap_ns
        f, a = self.flow, self.ack
        lost = min(lost, len(self.under_way) - 1)
        acked = min(acked, len(self.under_way) - max(lost, 0))
        if acked <= 0:
            return
        marked = min(marked, acked)
        a.prior_inflight = f.inflight
        for packet in self.under_way[:lost]:
            f.lost += 1
            f.lost_inflight, f.lost_since = packet.inflight, f.lost - packet.lost
        del self.under_way[:lost]
        packet = self.under_way[acked - 1]
        del self.under_way[:acked]
        f.una += acked + lost
        f.inflight -= acked + lost
        f.delivered += acked
        f.marked += marked
        f.delivered_ns = self.now_ns
        f.latest_rtt_ns = rtt_ns
        f.min_rtt_ns = min(f.min_rtt_ns, rtt_ns)
        f.srtt_ns += (rtt_ns - f.srtt_ns) // 8
        a.acked, a.advanced, a.lost, a.marked, a.rtt_ns = acked, acked + lost, lost, marked, rtt_ns
        a.sample_delivered = f.delivered - packet.delivered
        a.sample_prior_delivered = packet.delivered
        a.sample_interval_ns = max(self.now_ns - packet.delivered_ns, f.min_rtt_ns)
        a.sample_marked = f.marked - packet.marked
        a.sample_lost = f.lost - packet.lost
        a.sample_inflight = packet.inflight
        a.sample_app_limited = packet.app_limited
        a.delivery_bps = a.sample_delivered * WIRE * 8e9 / a.sample_interval_ns
        a.round_start = packet.delivered >= self.next_round
        if a.round_start:
            self.next_round = int(f.delivered)
            f["round"] += 1  # an attribute of that name is numpy's
        if (f.in_recovery or f.in_rto) and f.una >= self.recovery_point + self.by_marks:
            if f.in_recovery and not self.cca.owns_recovery:
                f.cwnd = max(f.ssthresh, 1.0)
            f.in_recovery = f.in_rto = self.by_marks = False
            self.call("on_recovered")
        if not f.in_recovery and not f.in_rto:
            self.by_marks = bool(marked and not lost and self.cca.reduces_by_marks)
            if lost or self.by_marks:
                self.call("on_ecn" if self.by_marks else "on_loss")
                f.in_recovery = True
                self.recovery_point = int(f.next_seq)
        f.may_grow = f.cwnd_limited and not f.in_recovery
        self.call("on_ack")
        if f.in_recovery and not self.cca.owns_recovery:
            f.cwnd = max(f.ssthresh, 1.0)
        self.send()

    def time_out(self, gap_ns: int) -> None:
        """The retransmission timer expires; all under way is lost."""
        self.now_ns += gap_ns
        f, a = self.flow, self.ack
        a.acked = a.advanced = a.marked = 0
        a.rtt_ns = -1
        a.lost = a.prior_inflight = f.inflight
        a.delivery_bps = 0.0
        f.lost += f.inflight
        f.una += f.inflight
        f.inflight = 0
        self.under_way.clear()
        if not f.in_recovery and not f.in_rto:
            self.call("on_loss")
        f.in_rto, f.in_recovery, self.by_marks = True, False, False
        self.recovery_point = int(f.next_seq)
        self.call("on_rto")
        if not self.cca.owns_recovery:
            f.cwnd = 1.0
        self.send()


class Path(Driver):
    """The same with a link that sends a packet every `slot_ms`, and a queue before it without end: times make sense."""

    def __init__(self, cca: Cca, *, rtt_ms: float = 40.0, slot_ms: float = 1.0) -> None:
        self.slot_ns, self.base_ns = round(slot_ms * MS), round(rtt_ms * MS)
        self.free_ns = self.pace_ns = 0
        self.acks: deque[int] = deque()  # when they come, in order of sending
        super().__init__(cca, rtt_ms=rtt_ms)

    def send(self) -> None:
        """Sending waits for :meth:`walk`."""

    def lose(self, packets: int) -> None:
        """The ACK to come next finds so many packets lost."""
        for _ in range(packets):
            self.acks.popleft()
        due_ns = self.acks.popleft()
        self.step(due_ns - self.now_ns, due_ns - self.under_way[packets].sent_ns, 1, packets)

    def walk(self, seconds: float, marked: int = 0) -> Iterator[Any]:
        """Go on for so long; gives the state after each ACK."""
        end_ns = self.now_ns + round(seconds * 1e9)
        f = self.flow
        f.cwnd_limited = True
        while self.now_ns < end_ns:
            due_ns = self.acks[0] if self.acks else 2**62
            send_ns = max(self.pace_ns, self.now_ns)
            if f.inflight + 1 <= f.cwnd and send_ns <= due_ns:
                self.now_ns = send_ns
                self.free_ns = max(self.free_ns, send_ns) + self.slot_ns
                self.acks.append(self.free_ns + self.base_ns)
                self.send_one()
                self.pace_ns = send_ns + (round(WIRE * 8e9 / f.pacing_bps) if f.pacing_bps else 0)
                f.next_send_ns = self.pace_ns
            else:
                self.acks.popleft()
                self.step(due_ns - self.now_ns, due_ns - self.under_way[0].sent_ns, 1, 0, marked)
                yield self.state

    def until(self, seconds: float, condition: Callable[[Any], bool]) -> bool:
        """Go on until the state is so, at most so long; gives whether it came."""
        return any(condition(state) for state in self.walk(seconds))
