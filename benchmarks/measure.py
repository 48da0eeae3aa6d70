"""Timing, printing and recording that all benchmarks share."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .last import change

#: What `line` has printed: the rows of the table ``timings``.
ROWS: list[dict[str, Any]] = []
#: What the benchmark that is running gave last time, by name and count (:mod:`.last`).
BEFORE: dict[tuple[str, int], dict[str, Any]] = {}


@dataclass(frozen=True)
class Timing:
    """Seconds of wall time and of processor time, of several runs."""

    wall_s: list[float]
    cpu_s: list[float]

    @property
    def median_s(self) -> float:
        return statistics.median(self.wall_s)

    @property
    def median_cpu_s(self) -> float:
        return statistics.median(self.cpu_s)

    def spread(self) -> str:
        return f"{min(self.wall_s):.3f}–{max(self.wall_s):.3f}"


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@contextlib.contextmanager
def two_cores() -> Iterator[None]:
    """Let the benchmark, which runs on one core, use two."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(2))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def measure(function: Callable[[], Any], repeat: int = 5) -> Timing:
    """Run `function` `repeat` times; what it returns is dropped before the next run."""
    wall, cpu = [], []
    for _ in range(repeat):
        c, t = _cpu_s(), time.perf_counter()
        result = function()
        wall.append(time.perf_counter() - t)
        cpu.append(_cpu_s() - c)
        del result
    return Timing(wall, cpu)


def line(
    name: str,
    timing: Timing,
    count: int,
    unit: str,
    reference: Timing | None = None,
    *,
    reference_count: int | None = None,
    memory_mb: float | None = None,
) -> Timing:
    """Print and record one result: rates per second of wall and of processor time, spread, ratio to `reference`.

    What has changed since the last run follows, if there was one.

    Ratios are of rates; `reference_count` is what the reference did, if that is not `count` things. A result has one
    name and count within its benchmark.
    """
    ratios = (math.nan, math.nan)
    if reference is not None:
        more = count / (reference_count or count)
        ratios = (
            more * reference.median_s / timing.median_s,
            more * reference.median_cpu_s / max(timing.median_cpu_s, 1e-9),
        )
    ratio = "" if reference is None else f"  {ratios[0]:8.2f} ×"
    memory = "" if memory_mb is None else f"  {memory_mb:.0f} MB"
    ROWS.append(
        {
            "what": name,
            "count": count,
            "unit": unit,
            "runs": len(timing.wall_s),
            "wall_s": timing.median_s,
            "least_s": min(timing.wall_s),
            "most_s": max(timing.wall_s),
            "cpu_s": timing.median_cpu_s,
            "ratio": ratios[0],
            "cpu_ratio": ratios[1],
            "memory_mb": math.nan if memory_mb is None else memory_mb,
        }
    )
    rate, cpu_rate = count / timing.median_s, count / max(timing.median_cpu_s, 1e-9)
    print(
        f"  {name:<58} {_number(rate):>8} {unit}/s  {_number(cpu_rate):>8} {unit}/cpu-s"
        f"  {timing.median_s:8.3f} s ({timing.spread()}){ratio}{memory}{change(ROWS[-1], BEFORE.get((name, count)))}",
        flush=True,
    )
    return timing


def _number(value: float) -> str:
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.2f} {suffix}"
    return f"{value:.1f} "
