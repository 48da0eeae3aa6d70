"""One run of the RTT experiment, from its scenario to its measurements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from ...scenario import Scenario
    from ...separation.controller import Controller

__all__ = ["Case", "Outcome"]

#: The code that decides an outcome.
CODE = ("cctoolkit.experiments.rtt_separation.cases",)
#: How often the controller acts.
STEP_S = 0.5
#: Schemes with hard limits, and the limit of a queue, as a part of the link, by the number of classes.
LIMITS: dict[str, Callable[[int], float]] = {
    "RTT, hard limits": lambda k: 1 / k,
    "RTT, limits in tenths": lambda k: (10 // k) / 10,
}


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes
    ----------
    about : dict
        Columns that tell it from the others of its test; ``scheme`` is one of :data:`~.scenarios.SCHEMES`, and
        ``where`` is "Linux" if the testbed is to run it.
    scenario : Scenario
        The scenario with one queue; schemes add the queues they need.
    k : int
        Number of classes.
    options : dict
        Options of the controller. By default a flow is long once it has sent what the link carries in 80 ms.
    sample_s : float, optional
        Interval of the series; None for none, which saves gigabytes where thousands of flows come and go.
    """

    about: dict[str, Any]
    scenario: Scenario
    k: int = 4
    options: dict[str, Any] = field(default_factory=dict)
    sample_s: float | None = 1.0

    def controller(self) -> Controller | None:
        """The controller of the run, or None."""
        from ...separation.competitors import BufferResizing, CcaSeparation
        from ...separation.controller import RttSeparation

        rate, scheme = self.scenario.bottleneck.rate_mbps, self.about["scheme"]
        options = {
            "long_bytes": round(10_000 * rate)
        } | self.options  # as soon as the paper's 10 MB at 1 Gbit/s
        if scheme == "RTT and guard":
            return RttSeparation(rate, self.k, guard=True, **options)
        if scheme in ("RTT", *LIMITS):
            return RttSeparation(rate, self.k, **options)
        if scheme == "RTT and threshold":
            return RttSeparation(rate, self.k, latency_threshold_ms=4.0, **options)
        if scheme == "CCA":
            return CcaSeparation(rate, self.k, **options)
        if scheme == "buffer":
            return BufferResizing(rate, **options)
        return None

    def identity(self) -> object:
        """Everything that the outcome depends on."""
        return dict(self.about), self.scenario.to_toml(), self.k, dict(self.options), self.sample_s

    def content(self, outcome: Outcome) -> dict[str, Any]:
        """An outcome as tables and plain values."""
        return {name: getattr(outcome, name) for name in ("flows", "flow_series", "queue_series", "log")}

    def outcome(self, content: dict[str, Any]) -> Outcome:
        """The outcome again."""
        return Outcome(self, **content)

    def run(self) -> Outcome:
        """Simulate the case, or run it on real Linux."""
        controller, scenario = self.controller(), self.scenario
        if controller is not None:
            scenario = controller.scenario(scenario)
        if self.about["scheme"] in LIMITS:
            limit = scenario.bottleneck.rate_mbps * LIMITS[self.about["scheme"]](self.k)
            queues = tuple(dataclasses.replace(q, max_rate_mbps=limit) for q in scenario.bottleneck.queues)
            scenario = scenario.replace({"bottleneck.queues": queues})
        log = [] if controller is None else controller.log
        if self.about.get("where") == "Linux":
            from tempfile import TemporaryDirectory

            from ...testbed import run_testbed

            with TemporaryDirectory() as folder:
                made = run_testbed(
                    scenario,
                    Path(folder) / "run",
                    sample_s=1.0 if self.sample_s is None else self.sample_s,
                    control=controller,
                    control_s=STEP_S,
                )
            series = made.flow_series.assign(ts_ns=made.flow_series.ts_ns - made.start_ns)
            series = series.rename(columns={"acked_bytes": "received_bytes"})
            queue_series = made.queue_series.assign(ts_ns=made.queue_series.ts_ns - made.start_ns)
            return Outcome(self, made.flows, series, queue_series, log)
        from ...sim.simulation import simulate

        made = simulate(scenario, record=False, sample_s=self.sample_s, control=controller, control_s=STEP_S)
        return Outcome(self, made.flows, made.flow_series, made.queue_series, log)


@dataclass
class Outcome:
    """The result of a case: the run's flows and series, and the controller's log."""

    case: Case
    flows: pd.DataFrame
    flow_series: pd.DataFrame
    queue_series: pd.DataFrame
    log: list[dict[str, Any]]

    @property
    def about(self) -> dict[str, Any]:
        """Columns that distinguish the case from others."""
        return self.case.about

    def rates_mbps(self, by: str = "flow_id") -> pd.DataFrame:
        """Goodput in each step of the series: rows by the step's end (s), a column for each flow, or each name."""
        import numpy as np

        assert self.case.sample_s is not None
        table = self.flow_series.pivot_table(index="ts_ns", columns="flow_id", values="received_bytes")
        # on Linux a flow has no samples before it starts and after it ends, and one when it ends
        table = table.ffill().fillna(0)
        steps = table.index.to_numpy() / (1e9 * self.case.sample_s)
        whole = np.abs(steps - np.rint(steps)) < 1e-3
        table.index = np.rint(steps) * self.case.sample_s
        table = table[whole]
        rates = table.diff().fillna(table.iloc[:1]) * 8e-6 / self.case.sample_s
        rates.index.name = "end_s"
        if by == "name":
            return rates.T.groupby(self.flows.set_index("flow_id").name.reindex(rates.columns)).sum().T
        return rates

    def mean_mbps(self, start_s: float, stop_s: float, by: str = "flow_id") -> pd.Series:
        """Mean goodput of each flow, or each name, in a part of the run."""
        rates = self.rates_mbps(by)
        return rates[(rates.index > start_s + 1e-6) & (rates.index <= stop_s + 1e-6)].mean()

    def utilisation(self, start_s: float, stop_s: float) -> float:
        """Share of the link's capacity that was used in a part of the run."""
        sent = self.queue_series.groupby("ts_ns").sent_bytes.sum()
        sent.index = sent.index / 1e9
        sent = sent[(sent.index >= start_s - 1e-6) & (sent.index <= stop_s + 1e-6)]
        if len(sent) < 2:
            return math.nan
        seconds = sent.index[-1] - sent.index[0]
        return float(
            (sent.iloc[-1] - sent.iloc[0]) * 8e-6 / seconds / self.case.scenario.bottleneck.rate_mbps
        )

    def queue_ms(self, start_s: float, stop_s: float) -> float:
        """Mean queueing delay in a part of the run, in ms."""
        both = self.queue_series.groupby("ts_ns")[["delay_sum_ns", "sent_packets"]].sum()
        both.index = both.index / 1e9
        both = both[(both.index >= start_s - 1e-6) & (both.index <= stop_s + 1e-6)]
        change = both.iloc[-1] - both.iloc[0]
        return float(change.delay_sum_ns / max(change.sent_packets, 1) / 1e6)

    def changes(self) -> int:
        """How many rules and settings the controller changed."""
        return int(sum(e["added"] + e["moved"] + e["removed"] + e["settings"] for e in self.log))
