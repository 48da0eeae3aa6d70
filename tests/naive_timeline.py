"""The obvious way to keep time bins: remember every packet that counts, and cut time at the end."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

FIRST_WIDTH_NS = 10_000


def final_width_ns(last_ns: int, bins: int) -> int:
    """The first of 10 µs, 20 µs, 100 µs, 200 µs, … with which a time `last_ns` after the start is in the bins."""
    width = FIRST_WIDTH_NS
    for factor in itertools.cycle((2, 5)):
        if last_ns // width < bins:
            return width
        width *= factor
    raise AssertionError


def timeline(
    packets: list[tuple[int, int, int, int]], rtts: dict[int, tuple[int, int]], tracked: int, bins: int
) -> dict[str, Any]:
    """Packets are (ts_ns, flow, direction, bytes); `rtts` is by row: (direction of the data, ns)."""
    if not packets:
        return {"bins": 0}
    t0 = packets[0][0]
    since = [max(ts - t0, 0) for ts, *_ in packets]
    width = final_width_ns(max(since), bins)
    size: dict[int, int] = defaultdict(int)
    rows_of: dict[int, list[int]] = {}  # of flows with bins: rows since they have them
    threshold = 0
    for row, (_, flow, _, wire) in enumerate(packets):
        if flow not in rows_of and size[flow] + wire > threshold:
            if len(rows_of) == tracked:
                order = sorted(rows_of, key=lambda f: (size[f], f))
                smaller = [f for f in order[: tracked // 2] if 2 * size[f] < size[flow] + wire]
                threshold = size[smaller[-1]] if smaller else 2 * size[order[0]]
                for f in smaller:
                    del rows_of[f]
            if size[flow] + wire > threshold:
                rows_of[flow] = []
        size[flow] += wire
        if flow in rows_of:
            rows_of[flow].append(row)

    flow_bytes: dict[tuple[int, int, int], int] = defaultdict(int)
    flow_rtts: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for flow, rows in rows_of.items():
        for row in rows:
            at = since[row] // width
            flow_bytes[flow, packets[row][2], at] += packets[row][3]
            if row in rtts:
                flow_rtts[flow, rtts[row][0], at].append(rtts[row][1])
    every: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, (direction, rtt) in rtts.items():
        every[packets[row][1], direction].append(rtt)
    return {
        "bins": max(since) // width + 1,
        "width_ns": width,
        "tracked": set(rows_of),
        "flow_bytes": dict(flow_bytes),
        "flow_rtts": dict(flow_rtts),
        "rtts": dict(every),
        "bytes": dict(size),
        "backward": sum(b < a for (a, *_), (b, *_) in itertools.pairwise(packets)),
        "gap": max([0, *(b - a for (a, *_), (b, *_) in itertools.pairwise(packets))]),
        "largest": max(wire for *_, wire in packets),
    }
