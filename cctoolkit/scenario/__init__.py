"""What to run (a bottleneck, flows, a duration, a seed) and what came out of it, whoever ran it."""

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
