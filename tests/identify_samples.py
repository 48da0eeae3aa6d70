"""Runs of Reno and of BBR alone on a link, which any classifier should tell apart; and one small model of each kind."""

from __future__ import annotations

import functools
from typing import Any

import cctoolkit as cct
from cctoolkit.identify import (
    CCAClassifier,
    DeepcciClassifier,
    DragonflyClassifier,
    Recording,
    SummaryClassifier,
    Windows,
    cut_windows,
    record,
)

CCAS = ("reno", "bbr")


@functools.cache
def recordings(runs: int = 6) -> tuple[Recording, ...]:
    """So many simulated runs of each, 3 s at 20 Mbit/s and 20 ms."""

    def run(cca: str, seed: int) -> cct.Run:
        scenario = cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=20, buffer_packets=60),
            flows=[cct.Flow(cca, rtt_ms=20)],
            duration_s=3,
            seed=seed,
            name=f"{cca}-{seed}",
        )
        return cct.simulate(scenario, record=True)

    return tuple(record(run(cca, seed)) for seed in range(runs) for cca in CCAS)


@functools.cache
def windows(inputs: str, window_ms: float = 100) -> Windows:
    """Ten of each run; train on :func:`train`, test on :func:`test`, which have no run in common."""
    return cut_windows(recordings(), window_ms, inputs, per_flow=10)


def train(inputs: str, window_ms: float = 100) -> Windows:
    return windows(inputs, window_ms).split(0.33)[0]


def test(inputs: str, window_ms: float = 100) -> Windows:
    return windows(inputs, window_ms).split(0.33)[1]


test.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for one

#: What each kind wants, with training of a second.
KINDS: dict[str, tuple[type, str, dict[str, Any]]] = {
    "dragonfly": (DragonflyClassifier, "cbiq+throughput", {"epochs": 20, "learning_rate": 3e-3}),
    "deepcci": (DeepcciClassifier, "throughput", {"epochs": 40, "learning_rate": 2e-4}),
    "ours": (CCAClassifier, "views", {"epochs": 15, "batch": 32, "learning_rate": 2e-3}),
    "summary": (SummaryClassifier, "views", {"iterations": 20}),
}


def unfitted(kind: str, **changes: Any) -> Any:
    cls, _, options = KINDS[kind]
    return cls(**options | changes)


@functools.cache
def fitted(kind: str) -> Any:
    """Trained on windows of 100 ms; for reading only."""
    return unfitted(kind).fit(train(KINDS[kind][1]))
