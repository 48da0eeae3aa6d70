"""The slow, obvious twin of the kernel for what limits a flow: lists, dictionaries, and the definitions one by one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from naive_slots import counted_on

NAN = math.nan


def signs(
    came: Sequence[float],
    flight: Sequence[float],
    seq: Sequence[int],
    ce: Sequence[float],
    echoes: Sequence[float],
    segment: float = 1448.0,
) -> dict[str, float]:
    """What :func:`cctoolkit.flow_limits` measures of a flow, from its slots; None where it has no data."""
    slots = list(zip(came, flight, seq, ce, echoes, strict=True))
    with_data = [t for t, (bytes_, *_) in enumerate(slots) if bytes_ > 0]
    if not with_data:
        return {}
    first, last = with_data[0], with_data[-1]
    known = [t for t in range(first, last + 1) if not math.isnan(flight[t])]
    if known:  # bytes in flight are unknown before both directions were seen, and after one has ended
        first = min(t for t in with_data if t >= known[0])
        last = next((t - 1 for t in range(first, last + 1) if math.isnan(flight[t])), last)
    slots = slots[first : last + 1]
    n = len(slots)
    if n == 0:
        return {}
    came, flight, seq, ce, echoes = (list(column) for column in zip(*slots, strict=True))
    two_ways = bool(known)

    rtt = sum(flight) / sum(came) if two_ways else NAN
    width = max(int(rtt), 10) if two_ways else 100
    silence = min(max(rtt, 5), 200) if two_ways else 200

    # silences with nothing in flight
    idle = run = 0
    for t in range(n):
        if came[t] == 0 and (not two_ways or flight[t] == 0):
            run += 1
        else:
            idle += run if run >= silence else 0
            run = 0

    # sequence numbers, counted on from the first
    begins = counted_on(came, seq)
    highest = [
        max([0.0, *(begins[u] + came[u] for u in begins if u <= t)]) for t in range(n)
    ]  # fmt: skip
    probes = {t for t in begins if came[t] <= 1 and begins[t] < highest[t - 1]}
    broken = {
        t // width for t in begins if begins[t] != (highest[t - 1] if t else 0.0) and t not in probes
    }  # rounds where a hole opens or something is sent again
    origin = max((begins[t] + came[t] for t in begins if t < 2 * width), default=0.0)
    counted = [t for t in begins if t >= 2 * width and begins[t] >= origin and t not in probes]
    below = [t for t in counted if begins[t] < highest[t - 1]]
    passed_at = {t: next(u for u in range(n) if highest[u] > begins[t]) for t in below}
    late = [t for t in below if t - passed_at[t] > (rtt / 2 if two_ways else 5)]
    most = min(400.0, 0.75 * segment)
    resent_bytes = sum(came[t] for t in counted) - (highest[-1] - origin)

    # round trips
    whole = [range(i * width, (i + 1) * width) for i in range(n // width)]
    active = [i for i, part in enumerate(whole) if sum(came[t] for t in part) > 0]
    found = {
        "rounds": len(active), "rtt_slots": rtt, "idle_share": idle / n, "resends": len(late),
        "resend_bytes": sum(min(came[t], highest[t - 1] - begins[t], most) for t in late),
        "resent_bytes": resent_bytes, "ce_packets": sum(ce), "ecn_echoes": sum(echoes), "mark_share": NAN,
        "rate_spread": NAN, "peak_share": NAN, "unforced_share": NAN, "queue_share": NAN, "loss_share": NAN,
        "own_queue": NAN, "growth": NAN,
    }  # fmt: skip
    if not active:
        return found
    rates = [sum(came[t] for t in whole[i]) / width for i in active]
    skipped = len(active) // 8
    mean_rate = statistics.fmean(rates[skipped:])
    found["rate_spread"] = statistics.pstdev(rates[skipped:]) / mean_rate if mean_rate > 0 else 0.0
    found["loss_share"] = sum(i in broken for i in active) / len(active)
    if not two_ways:
        return found
    means = [statistics.fmean(flight[t] for t in whole[i]) for i in active]
    peaks = [max(flight[t] for t in whole[i]) for i in active[skipped:]]
    found["peak_share"] = sum(peak >= max(peaks) - 1600 / 1448 * segment for peak in peaks) / len(peaks)
    marked = [sum(echoes[t] for t in whole[i]) > 0 for i in active]
    found["mark_share"] = sum(marked) / len(active)
    told = [i in broken or mark for i, mark in zip(active, marked, strict=True)]  # that it is too fast
    steps = {k: means[k] - means[k - 1] for k in range(max(skipped, 1), len(active))}
    risen = sum(step for step in steps.values() if step > 0)
    fallen = -sum(step for step in steps.values() if step <= 0)
    unforced = -sum(step for k, step in steps.items() if step <= 0 and not any(told[max(k - 2, 0) : k + 1]))
    found["unforced_share"] = unforced / max(risen, fallen) if max(risen, fallen) > 0 else 1.0

    after = means[skipped:]
    quarter = max(len(after) // 4, 1)
    grown = statistics.fmean(after[-quarter:]) - statistics.fmean(after[:quarter])
    found["growth"] = grown / max(peaks) if max(peaks) > 0 else 0.0

    # by round: RTTs, when an acknowledgement comes, of the number that it is the first to cover
    samples: dict[int, list[int]] = {}
    met: dict[int, list[int]] = {}  # by the round of the sending
    acked = highest[0]
    for t in range(n):
        reached = highest[t] - flight[t]
        if reached > acked:
            acked = reached
            sent = next(u for u in range(n) if highest[u] >= reached)
            samples.setdefault(t // width, []).append(t - sent)
            met.setdefault(sent // width, []).append(t - sent)
    quiet = {
        i: rtts for i, rtts in samples.items()
        if i < len(whole) and not {i, i - 1, i - 2} & broken
    }  # fmt: skip
    if quiet:
        base = min(min(rtts) for rtts in quiet.values())
        limit = base + max(1.5, 0.05 * base)
        found["queue_share"] = sum(statistics.fmean(rtts) > limit for rtts in quiet.values()) / len(quiet)
    clear = [i for i in met if not {i, i - 1, i - 2} & broken]
    inner = [i for i in range(1, len(whole) - 1) if {i - 1, i, i + 1} <= set(clear)]
    if len(inner) >= 5:
        sent_in = [sum(came[t] for t in whole[i]) for i in inner]
        growth = [statistics.fmean(met[i + 1]) - statistics.fmean(met[i - 1]) for i in inner]
        varies = len(set(sent_in)) > 1 and len(set(growth)) > 1
        found["own_queue"] = statistics.correlation(sent_in, growth) if varies else 0.0
    return found
