"""Scenarios (a bottleneck, flows, a duration, a seed) and runs, their results on any backend."""

from .files import read_scenario, read_sweep
from .link_trace import read_link_trace
from .scenario import Bottleneck, Flow, Queue, Scenario, sweep

__all__ = [
    "Bottleneck", "Flow", "Queue", "Scenario", "read_link_trace", "read_scenario", "read_sweep", "sweep",
]  # fmt: skip
