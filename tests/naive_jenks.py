"""Slow and obvious: natural breaks by trying every classification, and Algorithm 1 of the RTT paper word by word."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations


def squared_deviation(values: list[float]) -> Fraction:
    exact = [Fraction(v) for v in values]
    if not exact:
        return Fraction(0)
    mean = sum(exact) / len(exact)
    return sum(((v - mean) ** 2 for v in exact), Fraction(0))


def gvf(values: list[float], labels: list[int]) -> float:
    total = squared_deviation(values)
    if total == 0:
        return 1.0
    inside = sum(
        squared_deviation([v for v, mine in zip(values, labels, strict=True) if mine == j])
        for j in set(labels)
    )
    return float(1 - inside / total)


def best_gvf(values: list[float], k: int) -> float:
    """Every way of cutting the sorted different values into `k` runs."""
    distinct = sorted(set(values))
    k = min(k, len(distinct))
    found = 0.0
    for cuts in combinations(range(1, len(distinct)), k - 1):
        upper = [distinct[c - 1] for c in cuts]
        labels = [sum(v > u for u in upper) for v in values]
        found = max(found, gvf(values, labels))
    return found


def algorithm_1(values: list[float], k: int) -> tuple[list[float], list[int], float]:
    """Limits, labels and GVF; the readings of what it leaves open are those of ``jenks_classes``."""
    low, high = min(values), max(values)
    limits = [low + (high - low) * j / k for j in range(k)] + [high]

    def label(v: float) -> int:
        return next((j for j in range(k - 1) if v <= limits[j + 1]), k - 1)

    labels = [label(v) for v in values]
    reached = gvf(values, labels)
    while True:
        queues = [[v for v, mine in zip(values, labels, strict=True) if mine == j] for j in range(k)]
        sd = [float(squared_deviation(q)) for q in queues]
        rank = [round(x / (sum(sd) or 1), 9) for x in sd]
        most = rank.index(max(rank))
        least = min(range(k), key=lambda j: (rank[j], abs(j - most), j))
        if rank[most] == rank[least]:
            break
        sigma = math.sqrt(sd[most] / len(queues[most]))
        before = list(limits)
        if least < most:
            for j in range(least + 1, most + 1):
                limits[j] += sigma
        else:
            for j in range(most + 1, least + 1):
                limits[j] -= sigma
        moved = [label(v) for v in values]
        now = gvf(values, moved)
        if now <= reached:
            limits = before
            break
        labels, reached = moved, now
    return limits, labels, reached
