"""What drawn settings share: their random numbers, ranges, and AQMs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..aqm import Aqm, Red
from ..scenario import Scenario

__all__ = ["FRAME_BYTES", "PAPER_CCAS", "Pairs", "aqm_of", "between", "run_rng"]

#: Congestion controls in the paper (section IV-A, as in DeePCCI).
PAPER_CCAS = ("reno", "cubic", "bbr")
#: A full packet on Ethernet, by which buffers are counted.
FRAME_BYTES = 1514
#: What a run is told from others by, and its scenario.
Pairs = Iterator[tuple[dict[str, Any], Scenario]]


def run_rng(seed: int, kind: int, run: int) -> np.random.Generator:
    """The random numbers of a run, whatever the other runs."""
    return np.random.default_rng([seed, kind, run])


def between(rng: np.random.Generator, low: float, high: float) -> float:
    """Log-uniform, rounded to three digits to be readable."""
    return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")


def aqm_of(name: str, buffer_packets: int) -> Aqm:
    """An AQM by name; RED's thresholds, in packets, follow from the buffer."""
    if name != "red":
        aqm: Any = Aqm.registry[name]()
        return aqm
    room = min(buffer_packets, 5000)  # above, Linux refuses them at this weight
    least, most = max(room / 6, 5.0), max(room / 2, 15.0)
    return Red(min_packets=least, max_packets=most, gentle=False)  # as in Linux
