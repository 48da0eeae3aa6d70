"""Slow, obvious twins of the kernels in cctoolkit.plot."""

from __future__ import annotations

import math


def thin_rows(x: list[float], ys: list[list[float]], points: int) -> list[int]:
    if len(x) <= points:
        return list(range(len(x)))
    kept = None
    buckets = points // (4 * len(ys))
    while True:
        rows: set[int] = set()
        for y in ys:
            for bucket in _buckets(x, buckets):
                rows |= {bucket[0], bucket[-1]}
                numbers = [i for i in bucket if not math.isnan(y[i])]
                if numbers:
                    rows |= {min(numbers, key=lambda i: (y[i], i)), max(numbers, key=lambda i: (y[i], -i))}
        if kept is not None and (len(rows) > points or len(rows) <= len(kept)):
            return kept
        kept = sorted(rows)
        if buckets > 4 * len(x):
            return kept
        buckets *= 2


def _buckets(x: list[float], count: int) -> list[list[int]]:
    half_span = 0.5 * max(x) - 0.5 * min(x)
    per_x = count / half_span if half_span and math.isfinite(count / half_span) else 0.0
    found: dict[int, list[int]] = {}
    for i, value in enumerate(x):
        found.setdefault(min(int((0.5 * value - 0.5 * min(x)) * per_x), count - 1), []).append(i)
    return list(found.values())


def unwrap(packets: list[tuple[bool, int, int, int, int]]) -> list[tuple[int, int, int, int] | None]:
    """Of each (from sender, seq, ack, flags, payload): start, end, highest sent, highest acknowledged."""
    base = None
    top, floor = 0, -1
    out: list[tuple[int, int, int, int] | None] = []
    for from_sender, seq, ack, flags, payload in packets:
        syn, fin, rst, has_ack = flags & 2, flags & 1, flags & 4, flags & 16
        if not flags or rst or not (from_sender or has_ack):
            out.append(None)
            continue
        number = seq if from_sender else ack
        if base is None:
            base = number
        start = min(
            ((number - base) % 2**32 + turn * 2**32 for turn in range(top // 2**32 - 2, top // 2**32 + 3)),
            key=lambda at: (abs(at - top), at),
        )
        end = start
        if from_sender:
            end = start + payload + bool(syn) + bool(fin)
            top = max(top, end)
        else:
            floor = max(floor, end)
        out.append((start, end, top, floor))
    return out


def bytes_in_bins(packets: list[tuple[int, int]], first_ns: int, width_ns: int, bins: int) -> list[int]:
    """Of (time, bytes): bytes in each bin."""
    out = [0] * bins
    for ts, size in packets:
        at = (ts - first_ns) // width_ns
        if 0 <= at < bins:
            out[at] += size
    return out


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))
