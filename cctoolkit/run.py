"""What came out of a run: two taps, tables and series; the same for simulation, testbed and switch."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from .capture.model import Capture
from .scenario import Scenario

__all__ = ["Run"]


@dataclass
class Run:
    scenario: Scenario
    made_by: str
    flows: pd.DataFrame
    queues: pd.DataFrame = field(default_factory=pd.DataFrame)
    flow_series: pd.DataFrame = field(default_factory=pd.DataFrame)
    queue_series: pd.DataFrame = field(default_factory=pd.DataFrame)
    cca_stats: pd.DataFrame = field(default_factory=pd.DataFrame)
    aqm_stats: pd.DataFrame = field(default_factory=pd.DataFrame)
    ingress: Capture | None = None
    egress: Capture | None = None
    drops: pd.DataFrame | None = None
    events: int = 0
