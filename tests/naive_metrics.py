"""The slow, obvious twins of cctoolkit.analysis.metrics: one packet at a time, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from naive_slots import ACK, RST, SYN, ahead, match

FIN = 1
Packets = list[dict[str, int]]
Way = tuple[int, int]


def of_way(packets: Packets, way: Way) -> Packets:
    return [p for p in packets if (p["flow_id"], p["direction"]) == way]


def begin_of(p: dict[str, int]) -> int:
    return p["seq"] + bool(p["tcp_flags"] & SYN)


def rates(packets: Packets, bin_ns: int) -> list[dict[str, int]]:
    """A row a way and bin, with integers only."""
    if not packets:
        return []
    start = packets[0]["ts_ns"]
    rows = []
    for way in sorted({(p["flow_id"], d) for p in packets for d in (0, 1)}):
        mine = of_way(packets, way)
        acked, by_ack = acknowledged(packets, way)
        delivered = acked if by_ack else unique_payload(mine)
        active = [(p["ts_ns"] - start) // bin_ns for p in mine] + [
            (t - start) // bin_ns for t, n in acked if n
        ]
        for at in range(min(active), max(active) + 1) if active else ():
            here = [p for p in mine if (p["ts_ns"] - start) // bin_ns == at]
            rows.append(
                {
                    "flow_id": way[0],
                    "direction": way[1],
                    "bin": at,
                    "packets": len(here),
                    "wire_bytes": sum(p["wire_bytes"] for p in here),
                    "goodput_bytes": sum(n for t, n in delivered if (t - start) // bin_ns == at),
                }
            )
    return rows


def acknowledged(packets: Packets, way: Way) -> tuple[list[tuple[int, int]], bool]:
    """Time and number of payload bytes newly acknowledged of a way, and whether any ACK was seen."""
    base: int | None = None  # from here, or from the last ACK, it is counted
    by_ack = has_begun = has_data = from_syn = answered = False
    fin: int | None = None
    highest: int | None = None
    steps = []
    for p in packets:
        if p["flow_id"] != way[0] or not p["tcp_flags"]:
            continue
        if p["direction"] == way[1]:
            if p["payload_bytes"] or p["tcp_flags"] & SYN:
                has_begun = True
                base = begin_of(p) if base is None else base
                end = begin_of(p) + p["payload_bytes"]
                highest = end if highest is None else highest + max(ahead(end, highest), 0)
            from_syn |= bool(p["tcp_flags"] & SYN)
            has_data |= p["payload_bytes"] > 0
            if p["tcp_flags"] & FIN:
                fin = begin_of(p) + p["payload_bytes"]
            continue
        answered |= bool(p["tcp_flags"] & SYN)
        if p["tcp_flags"] & ACK and not p["tcp_flags"] & RST:
            if highest is not None and (has_data or not answered) and ahead(p["ack"], highest) > 2**20:
                continue  # of another connection
            if base is None:
                base = p["ack"]
            else:
                advance = ahead(p["ack"], base)
                if advance < 0 and (by_ack or from_syn):
                    continue
                if advance < 0 or advance > 2**30:
                    base = p["ack"]
                elif advance > 0:
                    base = p["ack"]
                    if fin is not None and ahead(p["ack"], fin) > 0:
                        advance, fin = advance - 1, None
                    elif advance == 1 and not has_begun:
                        advance = 0
                    steps.append((p["ts_ns"], advance))
            by_ack = True
    return steps, by_ack


def unique_payload(mine: Packets, most_gaps: int = 15) -> list[tuple[int, int]]:
    """Time and number of payload bytes not seen before; of older gaps than `most_gaps` only the size is known."""
    steps = []
    highest: int | None = None
    gaps: list[range] = []
    missed = 0  # bytes of the older gaps
    for p in mine:
        n = p["payload_bytes"]
        if not p["tcp_flags"]:
            steps.append((p["ts_ns"], n))
        elif n or p["tcp_flags"] & SYN:
            if highest is None:
                steps.append((p["ts_ns"], n))
                highest = begin_of(p) + n
                continue
            begin = highest + ahead(begin_of(p), highest)
            end = begin + n
            beyond = max(end - max(begin, highest), 0)
            older = min(missed, max(min(end, gaps[0].start if gaps else highest) - begin, 0))
            missed -= older
            left = [
                part
                for gap in gaps
                for part in (range(gap.start, min(gap.stop, begin)), range(max(gap.start, end), gap.stop))
                if part
            ]
            filled = sum(map(len, gaps)) - sum(map(len, left))
            gaps = [*left, *([range(highest, begin)] if begin > highest else [])]
            if len(gaps) > most_gaps:
                missed += len(gaps.pop(0))
            steps.append((p["ts_ns"], beyond + older + filled))
            highest = max(highest, end)
    return steps


def completions(packets: Packets) -> list[dict[str, Any]]:
    rows = []
    for flow in sorted({p["flow_id"] for p in packets}):
        segments = [p for p in packets if p["flow_id"] == flow and p["tcp_flags"]]
        sides = [one_side(segments, d) for d in (0, 1)]
        if not any(side["transfer_bytes"] for side in sides):
            continue
        d = int(sides[1]["transfer_bytes"] > sides[0]["transfer_bytes"])
        side = sides[d]
        started = any(p["tcp_flags"] & (SYN | ACK) == SYN for p in segments)
        seen_back = any(p["direction"] != d for p in segments)
        complete = started and side["fin"] and (side["acknowledged"] or not seen_back)
        rows.append(
            {
                "flow_id": flow,
                "direction": d,
                "start_ns": segments[0]["ts_ns"],
                "end_ns": side["end_ns"],
                "transfer_bytes": side["transfer_bytes"],
                "complete": complete,
            }
        )
    return rows


def one_side(segments: Packets, direction: int) -> dict[str, Any]:
    total, end_ns = 0, 0
    highest: int | None = None
    ack: int | None = None
    acknowledged = fin = False
    for p in segments:
        end = begin_of(p) + p["payload_bytes"]
        if p["direction"] == direction:
            if highest is None and (p["payload_bytes"] or p["tcp_flags"] & SYN):
                highest = begin_of(p)
            if p["payload_bytes"] and ahead(end, highest or 0) > 0:
                total += ahead(end, highest or 0)
                highest, end_ns = end, p["ts_ns"]
                acknowledged = ack is not None and ahead(ack, end) >= 0
            if p["tcp_flags"] & FIN and (highest is None or ahead(end, highest) >= 0):
                fin = True
        elif highest is not None and ahead(p["ack"], highest) > 2**20:
            continue  # of another connection
        elif p["tcp_flags"] & ACK and not p["tcp_flags"] & RST and (ack is None or ahead(p["ack"], ack) > 0):
            ack = p["ack"]
            if total and not acknowledged and ahead(ack, highest) >= 0:
                acknowledged, end_ns = True, p["ts_ns"]
    return {"transfer_bytes": total, "end_ns": end_ns, "acknowledged": acknowledged, "fin": fin}


def queue_delays(
    ingress: Packets, egress: Packets, max_delay_ns: int = 10**10
) -> dict[int, int | str | None]:
    """By row of the ingress: delay, "lost" or None (not known), of ways that cross the queue."""
    fates, _ = match(ingress, egress, max_delay_ns)
    rows: dict[Way, list[int]] = defaultdict(list)
    for i, p in enumerate(ingress):
        if not p["tcp_flags"]:
            rows[p["flow_id"], p["direction"]].append(i)
    start = max(ingress[0]["ts_ns"], egress[0]["ts_ns"]) if ingress and egress else 0
    gone = {way: [p for p in of_way(egress, way) if not p["tcp_flags"]] for way in rows}

    def order(way: Way) -> int:
        """How many more packets are later at the egress than earlier, the first beside the first, and so on."""
        taps = [ingress[i] for i in rows.get(way, ())], gone.get(way, ())
        ns = [[p["ts_ns"] for p in tap if p["ts_ns"] >= start] for tap in taps]
        return sum((after > before) - (after < before) for before, after in zip(*ns, strict=False))

    for way, mine in rows.items():
        left = gone[way]
        if not left:
            continue
        ns = [ingress[i]["ts_ns"] for i in mine]
        gap = (ns[-1] - ns[0]) // max(len(ns) - 1, 1)
        began = min(ns[0], left[0]["ts_ns"]) - start > max(2 * gap, 250_000_000)
        if order(way) < 0 and (began or order((way[0], 1 - way[1])) > 0):  # comes from the other side
            continue
        pairs = [(ingress[i], out) for i, out in zip(mine, left, strict=False)]
        delays = [out["ts_ns"] - p["ts_ns"] for p, out in pairs]
        if (
            len(left) == len(mine)
            and all(p["payload_bytes"] == out["payload_bytes"] for p, out in pairs)
            and all(0 <= delay <= max_delay_ns for delay in delays)
        ):
            if any(delays):
                fates |= dict(zip(mine, delays, strict=True))
        else:
            fates |= dict.fromkeys(mine)
    return fates
