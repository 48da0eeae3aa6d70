"""The slow, obvious twin of cctoolkit.analysis.flows: one packet at a time, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

FIN, SYN, RST, ACK = 1, 2, 4, 16


@dataclass
class Side:
    """What one side of a flow has sent."""

    packets: int = 0
    bytes: int = 0
    payload: int = 0
    retransmits: int = 0
    out_of_order: int = 0
    duplicate_acks: int = 0
    times: list[int] = field(default_factory=list)
    edge: int | None = None
    edge_ts: int = 0
    last_ack: int | None = None
    duplicates_in_a_row: int = 0
    window: int | None = None
    last_was_keep_alive: bool = False


@dataclass
class Flow:
    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))
    syn: tuple[int, set[int]] | None = None  # when, and where the next segment may start
    handshake_done: bool = False
    handshake_rtt: int | None = None


def distance(a: int, b: int) -> int:
    """How far a is beyond b on the circle of 2**32 numbers; negative if it is behind."""
    return (a - b + 2**31) % 2**32 - 2**31


def classify(
    flow: Flow, direction: int, ts: int, seq: int, ack: int, flags: int, length: int, window: int
) -> str:
    """Name of what the segment is: retransmission, out_of_order, duplicate_ack, keep_alive, probe or ordinary."""
    own, other = flow.sides[direction], flow.sides[1 - direction]
    control = bool(flags & (FIN | SYN | RST))
    end = (seq + length + bool(flags & (SYN | FIN))) % 2**32
    if own.edge is not None:
        if (
            length == 1
            and seq == own.edge
            and other.window == 0
            and distance(seq + 1, other.last_ack or seq) > 0
        ):
            return "probe"
        if length <= 1 and distance(seq, own.edge) == -1 and not control:
            return "keep_alive"
        if (
            length == 0
            and not control
            and flags & ACK
            and seq == own.edge
            and ack == own.last_ack
            and window == own.window != 0
            and not other.last_was_keep_alive
        ):
            return "duplicate_ack"
    if length == 0 and not flags & (SYN | FIN):
        return "ordinary"
    if length and other.last_ack is not None and distance(seq + length, other.last_ack) <= 0:
        return "retransmission"
    if own.edge is None or distance(seq, own.edge) >= 0:
        return "ordinary"
    if length > 1 and distance(seq, own.edge) == -1:
        return "ordinary"
    asked_for = other.duplicates_in_a_row >= 2 and other.last_ack == seq
    if asked_for and 0 <= ts - max(other.times) < 20_000_000:
        return "retransmission"
    patience = flow.handshake_rtt or 3_000_000
    if 0 <= ts - own.edge_ts < patience and end != own.edge:
        return "out_of_order"
    return "retransmission"


def segments(columns: Mapping[str, np.ndarray], flows: dict[int, Flow]) -> Iterator[str | None]:
    """Take in the packets; yield what each is (None for what is no TCP segment)."""
    names = (
        "ts_ns",
        "flow_id",
        "direction",
        "seq",
        "ack",
        "tcp_flags",
        "payload_bytes",
        "wire_bytes",
        "window",
    )
    for row in zip(*(columns[name].tolist() for name in names), strict=True):
        ts, flow_id, direction, seq, ack, flags, length, wire, window = row
        flow = flows.setdefault(flow_id, Flow())
        own, other = flow.sides[direction], flow.sides[1 - direction]
        kind = classify(flow, direction, ts, seq, ack, flags, length, window) if flags else None
        probe = flags != 0 and (
            own.edge == seq and length == 1 and other.window == 0  # also when it repeats acknowledged data
        )

        own.packets += 1
        own.bytes += wire
        own.payload += length
        own.times.append(ts)
        own.retransmits += kind == "retransmission"
        own.out_of_order += kind == "out_of_order"
        own.duplicate_acks += kind == "duplicate_ack"
        yield kind
        if not flags:
            continue

        end = (seq + length + bool(flags & (SYN | FIN))) % 2**32
        if own.edge is None or (distance(end, own.edge) > 0 and not probe):
            own.edge, own.edge_ts = end, ts

        if kind == "duplicate_ack":
            own.duplicates_in_a_row += 1
        if flags & ACK:
            if ack != own.last_ack:
                own.duplicates_in_a_row = 0
            own.last_ack = ack
        own.window = window
        own.last_was_keep_alive = kind == "keep_alive"

        if direction == 0 and not flow.handshake_done:
            if flags & (SYN | RST | ACK) == SYN:
                flow.syn = ts, {(seq + 1) % 2**32, end}
            elif flow.syn is not None and flags & (SYN | RST | ACK) == ACK and seq in flow.syn[1]:
                flow.handshake_done = True
                if ts >= flow.syn[0]:
                    flow.handshake_rtt = ts - flow.syn[0]


def flow_rows(columns: Mapping[str, np.ndarray]) -> dict[int, dict[str, int | None]]:
    """The numeric part of the flows table, by flow id."""
    flows: dict[int, Flow] = {}
    for _ in segments(columns, flows):
        pass
    rows: dict[int, dict[str, int | None]] = {}
    for flow_id, flow in flows.items():
        times = flow.sides[0].times + flow.sides[1].times
        row: dict[str, int | None] = {"first_ts_ns": min(times), "last_ts_ns": max(times)}
        for side, way in zip(flow.sides, ("fwd", "rev"), strict=True):
            for name in ("packets", "bytes", "payload", "retransmits", "out_of_order", "duplicate_acks"):
                row[f"{name}_{way}"] = getattr(side, name)
        row["handshake_rtt_ns"] = flow.handshake_rtt
        rows[flow_id] = row
    return rows
