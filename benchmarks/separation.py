"""The RTT paper's control plane: exact classes of 10 000 flows (aim: 50 ms), a whole interval of it (aim: 100 ms)."""

from __future__ import annotations

from pathlib import Path

import jenkspy
import numpy as np
import pandas as pd

import cctoolkit as cct
from cctoolkit.separation.controller import RttSeparation
from cctoolkit.separation.meters import RunMeter
from cctoolkit.separation.router import Router

from .measure import line, measure


def run(directory: Path, packets: int | None, repeat: int) -> None:
    n = 10_000
    rng = np.random.default_rng(1)
    rtts = rng.lognormal(3.5, 0.9, n)
    cct.jenks_classes(rtts, 4)
    for k in (4, 8):
        theirs = measure(lambda k=k: jenkspy.jenks_breaks(rtts, k), repeat)  # type: ignore[misc]
        line(f"jenkspy, k = {k}", theirs, n, "flows")
        ours = measure(lambda k=k: cct.jenks_classes(rtts, k), repeat)  # type: ignore[misc]
        line(f"exact classes, k = {k}", ours, n, "flows", theirs)
        paper = measure(lambda k=k: cct.jenks_classes(rtts, k, "paper"), repeat)  # type: ignore[misc]
        line(f"Algorithm 1 of the paper, k = {k}", paper, n, "flows", theirs)

    metrics = pd.DataFrame(
        {
            "flow_id": np.arange(n),
            "protocol": 6,
            "rtt_ms": rtts,
            "latest_rtt_ms": rtts,
            "throughput_mbps": 1.0,
            "offered_mbps": 1.0,
            "is_long": True,
        }
    )
    line(
        "a decision, all flows new",
        measure(lambda: RttSeparation(10_000).decide(metrics, 0), repeat),
        n,
        "flows",
    )
    controller, now = RttSeparation(10_000), iter(range(10**6))

    def again() -> None:
        wobble = metrics.rtt_ms * rng.uniform(1, 1.02, n)
        controller.decide(metrics.assign(rtt_ms=wobble), next(now))

    again()
    line("a decision, all RTTs measured anew", measure(again, repeat), n, "flows")

    flows = tuple(cct.Flow("cubic", rtt_ms=float(r), rate_mbps=0.5) for r in rtts)
    bottleneck = cct.Bottleneck(rate_mbps=10_000, buffer_packets=10_000)
    simulation = cct.Simulation(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    simulation.run(1.0)
    meter = RunMeter(long_bytes=1)
    line("the meter of a simulation", measure(lambda: meter.read(simulation), repeat), n, "flows")

    decision = RttSeparation(10_000).decide(metrics, 0)
    table = pd.DataFrame({"flow_id": np.arange(n), "sport": 1 + np.arange(n), "dport": 443, "protocol": 6})
    table["src"], table["dst"] = "10.0.0.1", "10.0.1.1"
    whole = measure(lambda: Router("linux", 10_000, "eth0").update(decision, table), repeat)
    line("all rules, as text", whole, n, "flows")

    router = Router("linux", 10_000, "eth0")

    def interval() -> None:
        measured = meter.read(simulation)
        wobble = metrics.rtt_ms * rng.uniform(1, 1.02, n)
        router.update(controller.decide(metrics.assign(rtt_ms=wobble), next(now)), table)
        assert len(measured)

    interval()
    line("an interval: meter, decision, changed rules", measure(interval, repeat), n, "flows")
