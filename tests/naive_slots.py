"""The slow, obvious twins of the kernels for slots and pairs of taps: lists, searches and plain Python integers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SYN, RST, ACK = 2, 4, 16
ECE, CWR, AE = 64, 128, 256
CE = 3


def ahead(a: int, b: int) -> int:
    """How far a is ahead of b on the circle of 2**32 numbers; negative if it is behind."""
    return (a - b + 2**31) % 2**32 - 2**31


def counted_on(came: Sequence[float], seq: Sequence[int]) -> dict[int, int]:
    """By slot with data, its first sequence number, counted on from the flow's first."""
    begins: dict[int, int] = {}
    at, previous = 0, None
    for t in range(len(came)):
        if came[t] > 0 and seq[t] >= 0:
            at += 0 if previous is None else ahead(seq[t], previous)
            previous = seq[t]
            begins[t] = at
    return begins


def packets_of(columns: Mapping[str, np.ndarray]) -> list[dict[str, int]]:
    names = list(columns)
    return [dict(zip(names, map(int, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def identity(p: dict[str, int]) -> tuple[int, ...]:
    names = ["flow_id", "direction", "seq", "ack", "tcp_flags", "payload_bytes", "window"]
    return tuple(p[name] for name in names)


def is_same(a: dict[str, int], b: dict[str, int]) -> bool:
    """Timestamps count if both have them: a snap length cuts them off."""
    stamps = {(p["tsval"], p["tsecr"]) for p in (a, b)} - {(0, 0)}
    return identity(a) == identity(b) and len(stamps) < 2


def match(
    ingress: list[dict[str, int]],
    egress: list[dict[str, int]],
    max_delay_ns: int = 10**10,
    data_only: bool = False,
) -> tuple[dict[int, int | str | None], set[tuple[int, int]]]:
    """By row of the ingress: delay, "lost" or None (not known), of ways that cross the queue; and those ways."""
    relevant = [p["tcp_flags"] != 0 and (p["payload_bytes"] > 0 or not data_only) for p in ingress]
    way = [(p["flow_id"], p["direction"]) for p in ingress]
    ordinal = [sum(relevant[k] and way[k] == way[i] for k in range(i + 1)) for i in range(len(ingress))]
    passed = dict.fromkeys(way, 0)
    left = dict.fromkeys(way, 0)
    first: dict[Any, int] = {}
    fate: dict[int, Any] = {}
    doubtful: dict[Any, list[tuple[dict[str, int], int]]] = {w: [] for w in way}

    def equal_to(out: dict[str, int]) -> list[int]:
        return [
            i
            for i, p in enumerate(ingress)
            if relevant[i]
            and i not in fate
            and is_same(p, out)
            and 0 <= out["ts_ns"] - p["ts_ns"] <= max_delay_ns
        ]

    def settle(w: tuple[int, int], limit: int) -> None:
        """From the last departure back, each is the newest of the equal packets that came in before `limit`."""
        while doubtful[w]:
            out, oldest = doubtful[w].pop()
            limit = max(i for i in equal_to(out) if oldest <= i < limit)
            fate[limit] = out["ts_ns"] - ingress[limit]["ts_ns"]
            passed[w] = max(passed[w], ordinal[limit])
        first.setdefault(w, ordinal[limit])

    latest = -(2**62)
    end = max((p["ts_ns"] for p in ingress), default=0)
    for out in egress:
        latest = max(latest, out["ts_ns"])
        if out["tcp_flags"] == 0 or (data_only and out["payload_bytes"] == 0):
            continue
        w = out["flow_id"], out["direction"]
        left[w] = left.get(w, 0) + (out["ts_ns"] < end)
        equal = equal_to(out)
        in_order = [i for i in equal if ordinal[i] > passed[w]]
        reserved = {oldest for _, oldest in doubtful.get(w, [])}
        overtaken = [i for i in equal if 0 <= passed[w] - ordinal[i] <= 64 and i not in reserved]
        if len(in_order) > 1:
            doubtful[w].append((out, in_order[0]))
            passed[w] = ordinal[in_order[0]]
        elif in_order or overtaken:
            i = in_order[0] if in_order else overtaken[-1]
            fate[i] = out["ts_ns"] - ingress[i]["ts_ns"]
            passed[w] = max(passed[w], ordinal[i])
            if in_order:
                settle(w, i)
    for w in passed:
        if doubtful[w]:
            settle(w, len(ingress))
    crossing = set()
    for w in passed:
        delays = [delay for i, delay in fate.items() if way[i] == w]
        arrived = sum(relevant[i] and way[i] == w for i in range(len(ingress)))
        if 0 < 2 * len(delays) >= left[w] and (any(delays) or len(delays) < arrived):
            crossing.add(w)
    for i, p in enumerate(ingress):
        if relevant[i] and i not in fate:
            gone = ordinal[i] < passed[way[i]] or latest - p["ts_ns"] > max_delay_ns
            unseen = (
                gone and p["ts_ns"] < egress[0]["ts_ns"] and ordinal[i] < first.get(way[i], len(ingress) + 1)
            )
            fate[i] = "lost" if gone and not unseen else None
    return {i: f for i, f in fate.items() if way[i] in crossing}, crossing


def sample_randomly(tap: int, seed: int, p: float, number: int) -> bool:
    """Whether data packet `number` of a tap (0 ingress, 1 egress) is in a random sample: splitmix64."""
    x = (number * 0x9E3779B97F4A7C15 + (2 * seed + tap) * 0xA24BAED4963EE407) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return (x ^ x >> 31) < round(p * 2**64)


def slots(
    ingress: Mapping[str, np.ndarray],
    egress: Mapping[str, np.ndarray] | None,
    slot_ms: float = 1.0,
    sampling: str | float = "all",
    fill: str = "backward",
    seed: int = 0,
) -> list[dict[str, int | None]]:
    slot_ns = round(slot_ms * 1e6)
    taps = [packets_of(ingress)] + ([] if egress is None else [packets_of(egress)])
    origin = min((p["ts_ns"] // slot_ns for tap in taps for p in tap), default=0)
    sampled = sampling != "all"

    def data(tap: int, flow: int, direction: int) -> list[dict[str, int]]:
        found = []
        slots_seen = set()
        for number, p in enumerate(taps[tap]):
            if (
                (p["flow_id"], p["direction"]) != (flow, direction)
                or not p["tcp_flags"]
                or not p["payload_bytes"]
            ):
                continue
            if (
                isinstance(sampling, float)
                and sampling < 1
                and not sample_randomly(tap, seed, sampling, number)
            ):
                continue
            slot = p["ts_ns"] // slot_ns
            if sampling == "first" and slot in slots_seen:
                continue
            slots_seen.add(slot)
            found.append({**p, "slot": slot, "seq": (p["seq"] + bool(p["tcp_flags"] & SYN)) % 2**32})
        return found

    fates, crossing = (
        match(taps[0], taps[1], data_only=True) if egress is not None and not sampled else ({}, set())
    )
    rows = []
    for flow in sorted({p["flow_id"] for p in taps[0]}):
        volume = [sum(p["payload_bytes"] for p in data(0, flow, d)) for d in (0, 1)]
        if not any(volume):
            continue
        d = int(volume[1] > volume[0])
        arrived = data(0, flow, d)
        gone = data(1, flow, d) if egress is not None else []
        marks = [] if sampled else flight_marks(taps[0], flow, d, slot_ns)
        echoes = [] if sampled else ecn_echoes(taps[0], flow, d, slot_ns)
        active = (
            [p["slot"] for p in arrived + gone] + [slot for slot, _, _, counts in marks if counts] + echoes
        )
        span = range(min(active), max(active) + 1)
        in_filled, out_filled = (filled(tap, span, fill) for tap in (arrived, gone))
        for t in span:
            row: dict[str, int | None] = dict.fromkeys(
                [
                    "in_bytes",
                    "out_bytes",
                    "in_packets",
                    "out_packets",
                    "in_ce_packets",
                    "out_ce_packets",
                    "cbiq_bytes",
                    "throughput_bytes",
                    "drops_estimate",
                    "max_source_gap",
                    "max_arrival_gap_ns",
                    "bytes_in_flight",
                    "ecn_echoes",
                ]
            )
            row |= {"flow_id": flow, "slot": t - origin}
            for side, tap, packets in ("in", 0, arrived), ("out", 1, gone):
                here = [p for p in packets if p["slot"] == t]
                row[f"{side}_seq"] = here[0]["seq"] if here else None
                if packets and not sampled and covers(taps[tap], t, slot_ns):
                    row[f"{side}_bytes"] = sum(p["payload_bytes"] for p in here)
                    row[f"{side}_packets"] = len(here)
                    row[f"{side}_ce_packets"] = sum(p["ecn"] == CE for p in here)
            if in_filled.get(t + 1) is not None:
                row["throughput_bytes"] = max(ahead(in_filled[t + 1], in_filled[t]), 0)
                if out_filled.get(t + 1) is not None:
                    row["cbiq_bytes"] = max(ahead(in_filled[t + 1], out_filled[t + 1]), 0)
            pairs = [(a, b) for a, b in itertools.pairwise(arrived) if b["slot"] == t]
            gaps = [b["ts_ns"] - a["ts_ns"] for a, b in pairs]
            row["max_arrival_gap_ns"] = max((gap for gap in gaps if gap >= 0), default=None)
            stamped = [p for p in arrived if p["has_ts"]]
            pairs = [(a, b) for a, b in itertools.pairwise(stamped) if b["slot"] == t]
            row["max_source_gap"] = max((ahead(b["tsval"], a["tsval"]) for a, b in pairs), default=None)
            so_far = [m for m in marks if m[0] <= t]
            if covers(taps[0], t, slot_ns) and so_far and None not in so_far[-1][1:3]:
                row["bytes_in_flight"] = max(so_far[-1][1] - so_far[-1][2], 0)
                row["ecn_echoes"] = sum(slot == t for slot in echoes)
            if (flow, d) in crossing and covers(taps[0], t, slot_ns):
                mine = [
                    fates[i]
                    for i, p in enumerate(taps[0])
                    if i in fates and (p["flow_id"], p["direction"], p["ts_ns"] // slot_ns) == (flow, d, t)
                ]
                row["drops_estimate"] = None if None in mine else mine.count("lost")
            rows.append(row)
    return rows


def covers(tap: list[dict[str, int]], slot: int, slot_ns: int) -> bool:
    times = [p["ts_ns"] for p in tap]
    return bool(times) and min(times) // slot_ns <= slot <= max(times) // slot_ns


def filled(packets: list[dict[str, int]], span: range, fill: str) -> dict[int, int | None]:
    """First sequence number by slot, empty slots filled."""
    first: dict[int, int] = {}
    for p in packets:
        first.setdefault(p["slot"], p["seq"])
    result: dict[int, int | None] = {}
    for t in span:
        after = min((s for s in first if s >= t), default=None)
        before = max((s for s in first if s <= t), default=None)
        if after is None:
            result[t] = None
        elif fill == "backward" or before is None or after == t:
            result[t] = first[after]
        else:
            share = (t - before) / (after - before)
            result[t] = (
                int(np.floor(first[before] + share * ahead(first[after], first[before]) + 0.5)) % 2**32
            )
    return result


def ecn_echoes(tap: list[dict[str, int]], flow: int, direction: int, slot_ns: int) -> list[int]:
    """Slots of the acknowledgements of data whose ECN flags differ from those of the one before."""
    of_flow = [p for p in tap if p["flow_id"] == flow and p["tcp_flags"]]
    slots: list[int] = []
    has_data, last = False, None
    reports = ECE
    for p in of_flow:
        flags = p["tcp_flags"]
        if flags & (SYN | RST | ACK) == SYN | ACK:  # RFC 9768, table 2, by AE, CWR, ECE
            accurate = flags & (AE | CWR | ECE) in (CWR, CWR | ECE, AE, AE | CWR)
            reports = AE | CWR | ECE if accurate else ECE
        has_data |= p["direction"] == direction and p["payload_bytes"] > 0
        if has_data and p["direction"] != direction and flags & (SYN | RST | ACK) == ACK:
            if last is not None and flags & reports != last:
                slots.append(p["ts_ns"] // slot_ns)
            last = flags & reports
    return slots


def flight_marks(
    tap: list[dict[str, int]], flow: int, direction: int, slot_ns: int
) -> list[tuple[int, int | None, int | None, bool]]:
    """After each packet: slot, highest end sent, highest acknowledged (one count for both), it makes a row."""
    marks = []
    end: int | None = None
    acked: int | None = None
    has_data = False
    for p in tap:
        if p["flow_id"] != flow or not p["tcp_flags"]:
            continue
        counts = False
        if p["direction"] == direction and p["payload_bytes"]:
            value = p["seq"] + bool(p["tcp_flags"] & SYN) + p["payload_bytes"]
            if end is not None:
                end = max(end, end + ahead(value, end))
            else:
                end = value % 2**32 if acked is None else acked + ahead(value, acked)
            counts = has_data = True
        elif p["direction"] == direction and p["tcp_flags"] & SYN and not has_data:
            end = (p["seq"] + 1) % 2**32
        if p["direction"] != direction and p["tcp_flags"] & ACK and not p["tcp_flags"] & RST:
            if end is not None and (
                ahead(p["ack"], end) > 2**20 or (not has_data and ahead(p["ack"], end) < 0)
            ):
                continue  # of another connection
            reference = acked if acked is not None else end if end is not None else p["ack"]
            value = reference + ahead(p["ack"], reference)
            if acked is None or value > acked:
                acked = value
                counts = has_data
        marks.append((p["ts_ns"] // slot_ns, end, acked, counts))
    return marks
