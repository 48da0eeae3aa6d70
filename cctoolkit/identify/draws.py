"""Common parts of randomly drawn settings: random numbers, ranges, and AQMs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .._support.ethernet import FULL_FRAME_BYTES
from ..aqm import Aqm, Red
from ..scenario import Bottleneck, Flow, Scenario

__all__ = [
    "PAPER_CCAS",
    "Pairs",
    "aqm_of",
    "between",
    "buffer_packets",
    "run_rng",
    "run_seed",
    "staggered",
]

#: Congestion controls in the paper (section IV-A, as in DeePCCI).
PAPER_CCAS = ("reno", "cubic", "bbr")
#: What distinguishes a run from others, and its scenario.
Pairs = Iterator[tuple[dict[str, Any], Scenario]]


def run_rng(seed: int, kind: int, run: int) -> np.random.Generator:
    """The random numbers of a run, independent of other runs."""
    return np.random.default_rng([seed, kind, run])


def run_seed(seed: int, run: int) -> int:
    """The seed of a run's scenario."""
    return seed * 1_000_003 + run


def drawn(
    settings: str, seed: int, run: int, bottleneck: Bottleneck, flows: Iterable[Flow], duration_s: float
) -> Scenario:
    """The scenario of one run of some settings; its name is ``SETTINGS-SEED-RUN``."""
    return Scenario(
        bottleneck=bottleneck,
        flows=tuple(flows),
        duration_s=round(duration_s, 3),
        seed=run_seed(seed, run),
        name=f"{settings}-{seed}-{run}",
    )


def between(rng: np.random.Generator, low: float, high: float) -> float:
    """Log-uniform, rounded to three digits to be readable."""
    return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")


def buffer_packets(bdp: float, rate_mbps: float, rtt_ms: float) -> int:
    """A buffer of `bdp` bandwidth-delay products, in full packets; at least 10."""
    return max(round(bdp * rate_mbps * rtt_ms * 125 / FULL_FRAME_BYTES), 10)


def staggered(
    rng: np.random.Generator, ccas: Iterable[str], max_start_s: float, rate_mbps: float, rtt_ms: float
) -> list[dict[str, Any]]:
    """A flow of each congestion control on one path, as arguments of :class:`~cctoolkit.Flow`; starts are drawn."""
    return [
        {
            "cca": cca,
            "rtt_ms": rtt_ms,
            "access_mbps": 10 * rate_mbps,
            "start_s": round(float(rng.uniform(0, max_start_s)), 3),
        }
        for cca in ccas
    ]


def aqm_of(name: str, buffer_packets: int) -> Aqm:
    """An AQM by name; RED's thresholds, in packets, follow from the buffer."""
    if name != "red":
        aqm: Any = Aqm.registry[name]()
        return aqm
    room = min(buffer_packets, 5000)  # above, Linux refuses them at this weight
    minimum, maximum = max(room / 6, 5.0), max(room / 2, 15.0)
    return Red(min_packets=minimum, max_packets=maximum, gentle=False)  # as in Linux
