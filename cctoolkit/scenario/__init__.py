"""Scenarios (a bottleneck, flows, a duration, a seed) and runs, their results on any backend."""

from .scenario import (
    Bottleneck,
    Flow,
    Queue,
    Scenario,
    read_scenario,
    read_sweep,
    sweep,
)

__all__ = ["Bottleneck", "Flow", "Queue", "Scenario", "read_scenario", "read_sweep", "sweep"]
