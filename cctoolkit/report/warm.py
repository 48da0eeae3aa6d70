"""Compile the kernels of the usual work before somebody waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from ..analysis.rtt import rtt_samples
from ..analysis.slots import compute_slots
from ..capture.reader import read_capture
from ..identify.classify import classify_flows
from ..scenario.example import example_path
from ..scenario.scenario import Bottleneck, Flow, Scenario
from ..sim.simulation import simulate
from .page import summary_for_page

__all__ = ["warm"]


def _simulate() -> None:
    link = Bottleneck(rate_mbps=10, buffer_packets=50)
    scenario = Scenario(bottleneck=link, flows=(Flow("reno"), Flow("cubic"), Flow("bbr")), duration_s=0.5)
    simulate(scenario)
    simulate(scenario, record=True)


def _analyse() -> None:
    before, behind = (read_capture(example_path("cubic-bbr", tap)) for tap in ("ingress", "egress"))
    for method in ("seq_ack", "data_plane", "handshake", "timestamps"):
        rtt_samples(before, method)
    compute_slots(before)
    compute_slots(before, behind)
    classify_flows(before, behind)


_WORK: dict[str, Callable[[], Any]] = {
    "reading, flows, report": lambda: summary_for_page(
        example_path("cubic-bbr", "ingress"), egress=example_path("cubic-bbr", "egress")
    ),
    "RTTs, slots, congestion controls": _analyse,
    "simulator": _simulate,
}


def warm() -> Iterator[tuple[str, float]]:
    """Do the usual work once with a bundled capture and a short simulation; the compiled code stays in the cache.

    Yields
    ------
    str, float
        What was done, and how many seconds it took.
    """
    for what, work in _WORK.items():
        began = time.perf_counter()
        work()
        yield what, time.perf_counter() - began
