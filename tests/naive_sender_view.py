"""The slow, obvious twin of the kernel that counts acknowledgements later."""

from __future__ import annotations

import math
from collections.abc import Sequence

from naive_slots import counted_on


def delayed(
    came: Sequence[float], seq: Sequence[int], later: int, flight: Sequence[float], echoes: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Bytes in flight and ECN echoes of a flow's slots with every acknowledgement `later` slots later; NaN: unknown."""
    n = len(came)
    starts = counted_on(came, seq)
    newer = {
        t: start for t, start in starts.items() if start > max([-1, *(starts[u] for u in starts if u < t)])
    }
    sent = []
    for t in range(n):
        reached = max([0.0, *(starts[u] + came[u] for u in starts if u <= t)])
        sent.append(min([reached, *(start for u, start in newer.items() if u > t)]))
    known = {t: sent[t] - flight[t] for t in range(n) if not math.isnan(flight[t])}

    def acknowledged(t: int) -> float:
        so_far = [known[u] for u in known if u <= t]
        return max(so_far) if so_far else known[min(known)]

    new_flight = [
        math.nan if t not in known else max(sent[t] - acknowledged(t - later), 0.0) for t in range(n)
    ]
    new_echoes = [
        math.nan if math.isnan(echoes[t])
        else echoes[t - later] if t >= later and not math.isnan(echoes[t - later])
        else 0.0
        for t in range(n)
    ]  # fmt: skip
    return new_flight, new_echoes
