"""The RTT paper's loop: the switch measures, the controller decides once a second, and rules come out.

Here the switch is in the packets' path instead of next to it, and has the queue. There is no router to apply
the rules: they are recorded.
"""

from __future__ import annotations

import time

import pandas as pd

import cctoolkit as cct
from cctoolkit.separation.controller import RttSeparation
from cctoolkit.separation.router import Router

from ...common.experiment import Experiment, aqm_of, shape_bottleneck
from ...common.switch import Switch
from .constants import TABLES
from .control import Monitor, separate


def experiment(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """The monitor, with taps at both ports of a plain queue."""
    aqm_of(scenario, cct.aqm.TailDrop)
    rate_mbps = scenario.bottleneck.rate_mbps
    wires = {ingress: egress, egress: ingress}
    monitor = Monitor(wires, rate_mbps=rate_mbps, wires=wires, all_samples=True)
    classes = len({flow.rtt_ms for flow in scenario.flow_list() if not flow.is_udp})
    rules: list[tuple[float, str]] = []
    decide = separate(
        monitor,
        RttSeparation(rate_mbps, max(classes, 1)),
        Router("linux", rate_mbps, "eth1"),
        lambda lines: rules.append((time.time(), lines)),
    )
    metrics: list[pd.DataFrame] = []
    samples: list[pd.DataFrame] = []

    def set_up(switch: Switch) -> None:
        monitor.set_up(switch)
        shape_bottleneck(switch, scenario, egress)
        # an empty entry dates from when the clock was 0: it is free one timeout later
        time.sleep(1e-3 * TABLES.timeout_ms)

    def step(switch: Switch) -> None:
        decide(switch)
        metrics.append(monitor.metrics.assign(time_s=time.time()))
        samples.append(monitor.take_samples())

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        step(switch)
        return {
            "flows": monitor.flows,
            "metrics": pd.concat(metrics, ignore_index=True),
            "rtt_samples": pd.concat(samples, ignore_index=True),
            "rules": pd.DataFrame(rules, columns=["time_s", "lines"]),
        }

    return Experiment(set_up, step, 1.0, read_out)
