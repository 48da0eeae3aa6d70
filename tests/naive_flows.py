"""The slow, obvious twin of cctoolkit.analysis.flows: a packet at a time, and every range seen is remembered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import naive_handshake
import numpy as np

FIN, SYN, RST, ACK = 1, 2, 4, 16
WINDOW = 2**30

COUNTED = ("packets", "bytes", "payload", "segments", "retransmits", "retransmitted_bytes", "out_of_order")
COUNTED += ("copies", "duplicate_acks", "tshark_retransmits", "tshark_out_of_order")


@dataclass
class Ranges:
    """Sorted ranges [left, right) of unbounded numbers that do not touch."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def overlap(self, left: int, right: int) -> int:
        return sum(max(min(right, b) - max(left, a), 0) for a, b in self.ranges)

    def add(self, left: int, right: int) -> None:
        if right > left:
            touching = [(a, b) for a, b in self.ranges if a <= right and left <= b]
            apart = [(a, b) for a, b in self.ranges if not (a <= right and left <= b)]
            joined = min([left, *(a for a, _ in touching)]), max([right, *(b for _, b in touching)])
            self.ranges = sorted([*apart, joined])


@dataclass
class Side:
    """What one side of a flow has sent."""

    packets: int = 0
    bytes: int = 0
    payload: int = 0
    segments: int = 0
    retransmits: int = 0
    retransmitted_bytes: int = 0
    out_of_order: int = 0
    copies: int = 0
    duplicate_acks: int = 0
    tshark_retransmits: int = 0
    tshark_out_of_order: int = 0
    times: list[int] = field(default_factory=list)
    # Sequence numbers are unwrapped: the integer nearest to the edge.
    edge: int | None = None
    edge_ts: int = 0
    edge_tsval: int = 0
    floor: int = 0  # the lowest seen
    seen: Ranges = field(default_factory=Ranges)
    skipped: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # left, right, ts, tsval of who did
    last_ack: int | None = None
    duplicates_in_a_row: int = 0
    window: int | None = None
    last_was_keep_alive: bool = False
    most_holes: int = 0


@dataclass
class Flow:
    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))
    opening: naive_handshake.Opening | None = None
    last_syn: int = 0
    handshake_done: bool = False
    initial_rtt: int = 0
    handshake_rtt: int | None = None
    syn_rtt: int | None = None


def distance(a: int, b: int) -> int:
    """How far a is beyond b on the circle of 2**32 numbers; negative if it is behind."""
    return (a - b + 2**31) % 2**32 - 2**31


@dataclass(frozen=True)
class Packet:
    ts: int
    direction: int
    seq: int
    ack: int
    flags: int
    length: int
    window: int
    tsval: int
    tsecr: int

    @property
    def control(self) -> bool:
        return bool(self.flags & (FIN | SYN | RST))

    @property
    def span(self) -> int:
        return self.length + bool(self.flags & (SYN | FIN))


def acked(other: Side, end: int) -> bool:
    return other.last_ack is not None and distance(end, other.last_ack) <= 0


def is_probe(own: Side, other: Side, p: Packet, at: int) -> bool:
    return own.edge == at and p.length == 1 and other.window == 0 and other.edge is not None


def is_keep_alive(own: Side, p: Packet, at: int) -> bool:
    return own.edge is not None and p.length <= 1 and at == own.edge - 1 and not p.control


def is_duplicate_ack(own: Side, other: Side, p: Packet, at: int) -> bool:
    return (
        p.length == 0
        and not p.control
        and bool(p.flags & ACK)
        and at == own.edge
        and p.ack == own.last_ack
        and p.window == own.window != 0
        and not other.last_was_keep_alive
    )


def by_tshark(flow: Flow, own: Side, other: Side, p: Packet, at: int) -> str | None:
    """What tshark takes the segment for: retransmits, out_of_order or nothing."""
    if p.span == 0 or is_keep_alive(own, p, at):
        return None
    if p.length and acked(other, p.seq + p.length):
        return "tshark_retransmits"
    if own.edge is None or at >= own.edge or (p.length > 1 and at == own.edge - 1):
        return None
    asked_for = other.duplicates_in_a_row >= 2 and other.last_ack == p.seq
    if asked_for and 0 <= p.ts - max(other.times) < 20_000_000:
        return "tshark_retransmits"
    patience = flow.initial_rtt or 3_000_000
    if 0 <= p.ts - own.edge_ts < patience and at + p.span != own.edge:
        return "tshark_out_of_order"
    return "tshark_retransmits"


def by_ranges(flow: Flow, own: Side, other: Side, p: Packet, at: int, before: list[Packet]) -> str:
    """What the segment is by what was seen before: other, copy, new, retransmitted or reordered.

    `before` are packets of the flow, among the last 64 of the capture.
    """
    if p.span == 0 or p.flags & RST or is_probe(own, other, p, at):
        return "other"
    if own.edge is None or at >= own.edge:
        return "new"
    end = at + p.span
    if is_keep_alive(own, p, at) and (other.last_ack is None or acked(other, p.seq + 1)):
        return "other"
    newest = (
        end == own.edge
        and 0 <= p.ts - own.edge_ts < 1_000_000
        and p.tsval == own.edge_tsval
        and p.window == own.window
        and (not p.flags & ACK or p.ack == own.last_ack)
    )
    older = p.tsval and own.edge_tsval and distance(p.tsval, own.edge_tsval) < 0
    within = min(
        (flow.handshake_rtt or flow.initial_rtt or 2_000_000) // 2, 10_000_000 if p.tsval else 200_000
    )
    recorded = any(replace(q, ts=p.ts) == p and 0 <= p.ts - q.ts < within for q in before)
    if own.seen.overlap(at, end) == p.span and (older or newest or recorded):
        return "copy"
    if own.seen.overlap(at, min(end, own.edge)):
        return "retransmitted"
    if at < own.floor:
        ts, tsval = own.edge_ts, own.edge_tsval
    else:
        ts, tsval = next((ts, tsval) for left, right, ts, tsval in own.skipped if left <= at < right)
    newer = distance(p.tsval, tsval) if p.tsval and tsval else 0
    patience = flow.handshake_rtt or flow.initial_rtt or (10_000_000 if p.tsval and tsval else 3_000_000)
    overtaken = newer < 0 if newer else -patience < p.ts - ts < patience
    return "reordered" if overtaken else "retransmitted"


def wire_segments(payload: int, p: Packet, mss: int) -> int:
    if payload <= 1460:
        return 1
    return -(-payload // max((mss or 1460) - 12 * bool(p.tsval), 1))


def take_in(own: Side, p: Packet, at: int, kind: str, probe: bool, mss: int) -> None:
    """Note what was seen, and count it."""
    end = at + p.span
    own.copies += kind == "copy"
    if kind not in ("other", "copy"):
        own.segments += wire_segments(p.length, p, mss)
    if kind == "reordered":
        own.out_of_order += wire_segments(p.length, p, mss)
    if kind == "retransmitted":
        assert own.edge is not None
        below = min(end, own.edge) - at
        again = below - 1 if p.flags & SYN else min(below, p.length)  # numbers of SYN and FIN are no bytes
        own.retransmits += wire_segments(again, p, mss)
        own.retransmitted_bytes += again
    if p.flags & RST or probe:
        return
    if own.edge is None:
        own.floor = at
    elif at > own.edge:
        own.skipped.append((own.edge, at, p.ts, p.tsval))
    elif at < own.floor and kind != "other":
        if end < own.floor:
            own.skipped.append((end, own.floor, own.edge_ts, own.edge_tsval))
        own.floor = at
    if kind != "other":
        own.seen.add(at, end)
    if own.edge is None or end > own.edge:
        own.edge, own.edge_ts, own.edge_tsval = end, p.ts, p.tsval
    inside = [(max(a, own.floor), min(b, own.edge)) for a, b in own.seen.ranges]
    own.most_holes = max(own.most_holes, len(inside) + 1)


def segments(
    columns: Mapping[str, np.ndarray], flows: dict[int, Flow], mss: Mapping[int, int] | None = None
) -> Iterator[tuple[str, str | None]]:
    """Take in the packets; yield what each is by the ranges seen, and by tshark."""
    names = ("flow_id", "wire_bytes", "ts_ns", "direction", "seq", "ack", "tcp_flags", "payload_bytes")
    names += ("window", "tsval", "tsecr")
    last: list[tuple[int, Packet]] = []
    for row in zip(*(columns[name].tolist() for name in names), strict=True):
        flow_id, wire, *rest = row
        p = Packet(*rest)
        flow = flows.setdefault(flow_id, Flow())
        own, other = flow.sides[p.direction], flow.sides[1 - p.direction]
        own.packets += 1
        own.bytes += wire
        own.payload += p.length
        own.times.append(p.ts)
        before = [q for number, q in last[-64:] if number == flow_id]
        last.append((flow_id, p))
        if not p.flags:
            yield "other", None
            continue

        at = p.seq if own.edge is None else own.edge + distance(p.seq, own.edge)
        if own.edge is not None and not p.flags & RST:
            ahead = at - own.edge
            other_syn = bool(p.flags & SYN) and ahead != 0 and not -(2**16) <= ahead < 0
            if abs(ahead) > WINDOW or other_syn:
                own.edge, own.seen, own.skipped = None, Ranges(), []
                at = p.seq
        kind, theirs = by_ranges(flow, own, other, p, at, before), by_tshark(flow, own, other, p, at)
        if theirs:
            setattr(own, theirs, getattr(own, theirs) + 1)
        duplicate, keep_alive = is_duplicate_ack(own, other, p, at), is_keep_alive(own, p, at)
        own.duplicate_acks += duplicate
        take_in(own, p, at, kind, is_probe(own, other, p, at), (mss or {}).get(flow_id, 0))
        yield "other" if kind == "copy" else kind, theirs

        if duplicate:
            own.duplicates_in_a_row += 1
        if p.flags & ACK:
            if p.ack != own.last_ack:
                own.duplicates_in_a_row = 0
            own.last_ack = p.ack
        own.window = p.window
        own.last_was_keep_alive = keep_alive

        if not flow.handshake_done:
            take_handshake(flow, p)


def take_handshake(flow: Flow, p: Packet) -> None:
    opening = flow.opening
    if p.direction == 0 and p.flags & (SYN | ACK | RST) == SYN:
        if opening is None or opening.seq != p.seq:
            opening = flow.opening = naive_handshake.Opening(p.seq, p.length)
        opening.syn(p.ts, p.tsval)
        flow.last_syn = p.ts
    elif opening is None:
        return
    elif p.direction == 1:
        opening.other_side(p.ts, p.seq, p.ack, p.flags, p.tsval, p.tsecr)
    elif opening.ends_with(p.flags, p.seq):
        flow.handshake_done = True
        flow.initial_rtt = max(p.ts - flow.last_syn, 0)
        rtt = opening.rtt(p.ts, p.ack, p.flags, p.length, p.tsecr)
        if rtt is not None and rtt >= 0:
            flow.handshake_rtt, flow.syn_rtt = rtt, opening.syn_rtt()


def flow_rows(columns: Mapping[str, np.ndarray], mss: Mapping[int, int] | None = None) -> dict[int, dict]:
    """The numeric part of the flows table, by flow id."""
    flows: dict[int, Flow] = {}
    for _ in segments(columns, flows, mss):
        pass
    return {flow_id: flow_row(flow) for flow_id, flow in flows.items()}


def flow_row(flow: Flow) -> dict[str, int | None]:
    times = flow.sides[0].times + flow.sides[1].times
    row: dict[str, int | None] = {"first_ts_ns": min(times), "last_ts_ns": max(times)}
    for side, way in zip(flow.sides, ("fwd", "rev"), strict=True):
        row |= {f"{name}_{way}": getattr(side, name) for name in COUNTED}
    return row | {"handshake_rtt_ns": flow.handshake_rtt, "syn_rtt_ns": flow.syn_rtt}
