"""One run of the L4S experiment, from its scenario to its measurements, and the cases of each part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError
from .scenarios import (
    AS_PUBLISHED,
    AS_PUBLISHED_MTU,
    BUFFER_MS,
    CAUSES,
    CLOCK_MTUS,
    CODEL,
    CODEL_AS_PUBLISHED,
    CONFIGURATIONS,
    CONNECTIONS,
    DELAYS,
    DROPS,
    DROPS_MTUS,
    LATE,
    LATE_MTUS,
    LOGGED,
    LOGGED_SEEDS,
    PAIRS,
    PUBLISHED,
    SAMPLE_S,
    SENDERS,
    SLOW_STARTS,
    SPREAD_S,
    STALLED,
    SYSTEMS,
    TARGET_MS,
    UNEVEN,
    sending_pairs,
    system_named,
    through,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import ArrayLike

    from ...scenario import Flow, Scenario
    from ...sim.simulation import Simulation

__all__ = ["Case", "Outcome", "Settings"]

ETHERNET_BYTES = 14
#: Percentiles of the registers.
REGISTER_PERCENTS = (5, 50, 95)
#: The same, in a phase.
PHASE_PERCENTS = (50, 95)


@dataclass(frozen=True)
class Case:
    """One run: a configuration through a system, under four phases of load.

    Parameters
    ----------
    configuration, system : str
        Names in :data:`~.scenarios.CONFIGURATIONS`, and in :data:`~.scenarios.SYSTEMS` or :data:`~.scenarios.VARIANTS`.
    seed : int
    phase_s : float
        Duration of each phase; the paper's last 120 s.
    aqm, classic, scalable : dict
        Parameters of the queue discipline, and fields of both kinds of flows, that replace the paper's.
    about : dict
        Further columns that distinguish the case from others.
    pairs : tuple of (int, int)
        Classic and scalable flows in each phase; the numbers only grow.
    spread_s : float
        The flows of a phase start within this time of its beginning, drawn from the seed.
    mtu_bytes : int
        Longest IP packet.
    """

    configuration: str
    system: str
    seed: int = 1
    phase_s: float = 120.0
    aqm: dict[str, Any] = field(default_factory=dict)
    classic: dict[str, Any] = field(default_factory=dict)
    scalable: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    pairs: tuple[tuple[int, int], ...] = PAIRS
    spread_s: float = SPREAD_S
    mtu_bytes: int = 1500

    def scenario(self, watched: bool = False) -> Scenario:
        """The scenario: flows in the order in which they join, named ``classic`` and ``scalable``."""
        import numpy as np

        from ...scenario import Bottleneck, Flow, Scenario

        rate_mbps, rtt_ms = CONFIGURATIONS[self.configuration]
        kinds = {
            "classic": {"cca": "cubic"} | self.classic,
            "scalable": {"cca": "prague", "aggregate": 1} | self.scalable,
        }
        late_s = (
            np.random.default_rng(self.seed).uniform(0, self.spread_s, sum(self.pairs[-1])).round(3).tolist()
        )
        flows: list[Flow] = []
        for phase, (before, now) in enumerate(itertools.pairwise(((0, 0), *self.pairs))):
            joining = [["classic"] * (now[0] - before[0]), ["scalable"] * (now[1] - before[1])]
            for name in filter(None, itertools.chain(*itertools.zip_longest(*joining))):
                start_s = round(phase * self.phase_s + late_s[len(flows)], 3)
                same = {
                    "rtt_ms": rtt_ms, "access_mbps": 25_000, "packet_bytes": self.mtu_bytes + ETHERNET_BYTES,
                    "name": name, "start_s": start_s,
                }  # fmt: skip
                flows.append(Flow(**same | kinds[name]))
        made = Scenario(
            bottleneck=Bottleneck(rate_mbps=rate_mbps, buffer_bytes=round(rate_mbps * 125 * BUFFER_MS)),
            flows=tuple(flows),
            duration_s=len(self.pairs) * self.phase_s,
            seed=self.seed,
            name=f"{self.configuration} {self.system}",
        )
        return through(made, self.system, watched=watched, options=self.aqm)

    def run(self) -> Outcome:
        """Simulate the case."""
        import numpy as np

        from ...sim.simulation import Simulation

        sim = Simulation(self.scenario(watched=True), sample_s=SAMPLE_S)
        delays = [_delays(sim) * 0]
        for phase in range(len(self.pairs)):
            sim.run((phase + 1) * self.phase_s)
            delays.append(_delays(sim))
        waited = np.diff(delays, axis=0)
        made, states = sim.result(), _states(sim)
        noted = [min(int(s["noted"]), len(s["drop_ns"])) for s in states]
        drop, gap, at = (
            np.concatenate([s[name][:n] for s, n in zip(states, noted, strict=True)]) / 1e6
            for name in ("drop_ns", "gap_ns", "dropped_at_ns")
        )
        rates = _rates(made.flow_series, list(made.flows.name))
        rows = [
            {"configuration": self.configuration, "system": self.system, "seed": self.seed}
            | self.about
            | {"phase": number + 1, "pairs": "-".join(map(str, self.pairs[number]))}
            | _share(rates, number * self.phase_s, (number + 1) * self.phase_s)
            | _queueing(self, made.queue_series, number)
            | _quantiles(waited[number])
            for number in range(len(self.pairs))
        ]
        counts = {
            "drops": sum(int(s["noted"]) for s in states), "marks": int(made.flows.marked_packets.sum())
        }  # fmt: skip
        return Outcome(self, rates, rows, drop, gap, at / 1e3, waited, counts)


@dataclass
class Outcome:
    """The measurements of a case's run.

    Attributes
    ----------
    case : Case
    rates : DataFrame
        Goodput of each class (``classic``, ``scalable``; Mbit/s) in each second, indexed by its end (``end_s``).
    phases : list of dict
        A row for each phase: rates, shares, queueing delays of each class, utilisation.
    drop_ms : array
        For each drop, the time from the decision until it was carried out. For PI2 and DualPI2 that is how long the
        packet had waited.
    gap_ms : array
        For each drop, the time from the decision until the gap left the queue.
    drop_at_s : array
        When packets were dropped.
    delays : array, shape (phases, 2, bins)
        How many packets waited how long (:data:`~.queues.BIN_MS` a bin) in each phase, scalable and classic.
    counts : dict
        ``drops`` of the queue discipline, ``marks`` that arrived.
    """

    case: Case
    rates: pd.DataFrame
    phases: list[dict[str, Any]]
    drop_ms: np.ndarray
    gap_ms: np.ndarray
    drop_at_s: np.ndarray
    delays: np.ndarray
    counts: dict[str, int]

    @property
    def about(self) -> dict[str, Any]:
        """Columns that distinguish the case from others."""
        case = self.case
        return {"configuration": case.configuration, "system": case.system, "seed": case.seed} | case.about

    def registers(self) -> dict[str, float]:
        """What a switch's registers would show, as in the authors' logs.

        Returns
        -------
        dict
            ``drops_per_s`` and ``marks_per_s``; quantiles of the delay of the packets that left (``qdelay_p50_ms``, …)
            and of the last packet dropped in each second (``drop_p50_ms``, …).
        """
        last, delays = self._last_drops_ms(), self.delays.sum(axis=(0, 1))
        found = {f"{name}_per_s": count / len(last) for name, count in self.counts.items()}
        found |= {f"qdelay_p{percent}_ms": _percentile(delays, percent) for percent in REGISTER_PERCENTS}
        return found | drop_percentiles(last, REGISTER_PERCENTS)

    def register_phases(self) -> list[dict[str, float]]:
        """Delays and drops by phase, as :func:`.logs.register_phases` of the authors' logs.

        Returns
        -------
        list of dict
            Of each phase: ``phase`` (from 1), ``waited`` (share of the packets that waited, at least a bin of the
            histogram, 0 to 1), quantiles of their delay (``qdelay_p50_ms``, ``qdelay_p95_ms``), and of the last packet
            dropped in each second as in :func:`drops_in_phase`.
        """
        last = self._last_drops_ms().reshape(len(self.case.pairs), -1)
        rows = []
        for number, (delays, drops_ms) in enumerate(zip(self.delays.sum(axis=1), last, strict=True)):
            total, waited = delays.sum(), delays.copy()
            waited[0] = 0
            rows.append(
                {"phase": number + 1, "waited": float(waited.sum() / total) if total else math.nan}
                | {f"qdelay_p{percent}_ms": _percentile(waited, percent) for percent in PHASE_PERCENTS}
                | drops_in_phase(drops_ms)
            )
        return rows

    def _last_drops_ms(self) -> np.ndarray:
        """The delay of the last packet dropped in each second of the run, NaN where none was."""
        import numpy as np

        last = np.full(round(len(self.case.pairs) * self.case.phase_s), math.nan)
        order = np.argsort(self.drop_at_s, kind="stable")
        seconds = np.minimum(self.drop_at_s[order], len(last) - 1).astype(int)
        last[seconds] = self.drop_ms[order]  # of equal seconds, the last one stays
        return last

    def differences(self) -> dict[str, float]:
        """The paper's Table 3 in three readings: the difference of both classes in percent of their sum.

        Returns
        -------
        dict
            ``by_phase`` (mean of the phases' differences), ``whole_run`` (difference of the whole run's means) and
            ``each_second`` (mean of each second's difference).
        """
        classic, scalable = ([row[f"{kind}_mbps"] for row in self.phases] for kind in ("classic", "scalable"))
        return readings(classic, scalable, self.rates.classic, self.rates.scalable)


def readings(
    classic_phases: ArrayLike, scalable_phases: ArrayLike, classic: pd.Series, scalable: pd.Series
) -> dict[str, float]:
    """The readings of the paper's Table 3, from the classes' rates in each phase and in each second."""
    from ...analysis.metrics import share_difference

    return {
        "by_phase": share_difference(classic_phases, scalable_phases),
        "whole_run": share_difference(classic.mean(), scalable.mean()),
        "each_second": share_difference(classic, scalable),
    }


#: A drop whose packet waited this much longer than the target was not the last of a queue that is drained to it.
_ABOVE_MS = 0.05
#: Periods that drops are searched for, in s: from two readings of a register.
_SHORTEST_S, _LONGEST_S = 2.0, 8.0
#: Seconds that are too few to find a period in.
_FEW_S = 60


def drop_percentiles(last_ms: np.ndarray, percents: Sequence[int]) -> dict[str, float]:
    """Percentiles of the delay of the last packet dropped in each second, NaN where none was: ``drop_p50_ms``, …"""
    import numpy as np

    known = last_ms[~np.isnan(last_ms)]
    return {
        f"drop_p{percent}_ms": float(np.percentile(known, percent)) if len(known) else math.nan
        for percent in percents
    }


def drops_in_phase(last_ms: np.ndarray) -> dict[str, float]:
    """What the delays of the last packets dropped say about a phase.

    Parameters
    ----------
    last_ms : array
        The delay of the last packet dropped in each second, NaN where none was.

    Returns
    -------
    dict
        ``dropping`` (share of the seconds with a drop, 0 to 1), ``drop_p50_ms``, ``drop_p95_ms`` and ``drop_period_s``:
        with which period, of 2 to 8 s, drops are most often above the target (NaN in less than a minute, or if they
        always or never are).

    Examples
    --------
    >>> every_fifth = np.tile([np.nan, 25.0, 25.0, 25.0, 20.0], 24)
    >>> {name: round(value, 2) for name, value in drops_in_phase(every_fifth).items()}
    {'dropping': 0.8, 'drop_p50_ms': 25.0, 'drop_p95_ms': 25.0, 'drop_period_s': 5.0}
    """
    import numpy as np
    from scipy.signal import periodogram

    above = np.nan_to_num(last_ms) > TARGET_MS + _ABOVE_MS
    period_s = math.nan
    if len(above) >= _FEW_S and 0 < above.mean() < 1:
        frequency, power = periodogram(above.astype(float), detrend="linear", nfft=1 << 14)
        searched = (frequency >= 1 / _LONGEST_S) & (frequency <= 1 / _SHORTEST_S)
        period_s = float(1 / frequency[searched][power[searched].argmax()])
    found = {"dropping": float((~np.isnan(last_ms)).mean())} if len(last_ms) else {"dropping": math.nan}
    return found | drop_percentiles(last_ms, PHASE_PERCENTS) | {"drop_period_s": period_s}


def _states(sim: Simulation) -> list[Any]:
    """The queue disciplines' states: a single one if the queues share it."""
    bottleneck = sim.scenario.bottleneck
    return [sim.aqm_state(i) for i in range(1 if bottleneck.aqm.shared else len(bottleneck.queue_list()))]


def _delays(sim: Simulation) -> np.ndarray:
    return sum(s["delays"].copy() for s in _states(sim))


def _rates(series: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Goodput of each class in each second, from byte counters."""
    whole = series[series.ts_ns % 1_000_000_000 == 0]
    kind = whole.flow_id.map(dict(enumerate(names))).rename("kind")
    received = whole.assign(kind=kind).pivot_table(
        index="ts_ns", columns="kind", values="received_bytes", aggfunc="sum"
    )
    rates = received.astype(float).diff().fillna(received.iloc[:1]) * 8e-6
    return rates.set_axis((rates.index / 1e9).rename("end_s")).rename_axis(columns=None)


def _share(rates: pd.DataFrame, start_s: float, stop_s: float) -> dict[str, float]:
    from ...analysis.metrics import share_difference

    mean = rates[(rates.index > start_s + 1e-6) & (rates.index <= stop_s + 1e-6)].mean()
    return {
        "classic_mbps": mean.classic,
        "scalable_mbps": mean.scalable,
        "scalable_share": mean.scalable / (mean.scalable + mean.classic),
        "difference_percent": share_difference(mean.classic, mean.scalable),
    }


def _queueing(case: Case, series: pd.DataFrame, number: int) -> dict[str, float]:
    """Utilisation, and how much the probability swings: the mean of its square over the square of its mean.

    The probability is PI2's before squaring, that of iRED's classic queue, and DualPI2's p'.
    """
    start_ns, stop_ns = (round((number + k) * case.phase_s * 1e9) for k in (0, 1))
    part = series[(series.ts_ns >= start_ns) & (series.ts_ns <= stop_ns)]
    sent = part.groupby("ts_ns").sent_bytes.sum()
    seconds = (sent.index[-1] - sent.index[0]) / 1e9
    p = part[part.queue == part.queue.max()].probability
    if system_named(case.system).aqm == "dualpi2":
        p = p**0.5
    return {
        "utilisation": (sent.iloc[-1] - sent.iloc[0])
        * 8e-6
        / seconds
        / CONFIGURATIONS[case.configuration][0],
        "probability_swing": float((p**2).mean() / p.mean() ** 2) if p.mean() > 0 else math.nan,
    }


def _percentile(counts: np.ndarray, percent: float) -> float:
    """A percentile of a histogram of delays, in ms."""
    from .queues import BIN_MS

    total = counts.sum()
    return float((counts.cumsum().searchsorted(percent / 100 * total) + 1) * BIN_MS) if total else math.nan


def _quantiles(delays: np.ndarray) -> dict[str, float]:
    """Mean and percentiles of each class's delay in ms."""
    import numpy as np

    from .queues import BIN_MS

    found = {}
    for name, counts in zip(("scalable", "classic"), delays, strict=True):
        total = counts.sum()
        centres = (np.arange(len(counts)) + 0.5) * BIN_MS
        found[f"{name}_delay_ms"] = float(counts @ centres / total) if total else math.nan
        for percent in (50, 99):
            found[f"{name}_p{percent}_ms"] = _percentile(counts, percent)
    return found


@dataclass(frozen=True)
class Settings:
    """How much is run.

    Parameters
    ----------
    configurations : sequence of str
    phase_s : float
        Duration of each phase in whole seconds.
    seeds : int
        Runs of each case.
    causes : sequence of str
        Configurations that :data:`~.scenarios.CAUSES` are tried on.
    kernel : Path, optional
        Run DualPI2 in a Linux kernel, too, and keep its runs in this folder.

    Raises
    ------
    ParameterError
        A configuration is unknown, or the duration of a phase is not a whole number of at least 2 s.
    """

    configurations: Sequence[str] = tuple(CONFIGURATIONS)
    phase_s: float = 30.0
    seeds: int = 3
    causes: Sequence[str] = ("I", "II")
    kernel: Path | None = None

    def __post_init__(self) -> None:
        for name in (*self.configurations, *self.causes):
            if name not in CONFIGURATIONS:
                raise ParameterError(f"configuration: {name!r} must be one of {', '.join(CONFIGURATIONS)}")
        if self.phase_s < 2 or self.phase_s % 1:
            raise ParameterError(f"phase_s: {self.phase_s!r} must be a whole number of seconds, at least 2")

    def cases(self, configurations: Iterable[str], systems: Iterable[str], **changes: Any) -> list[Case]:
        """Each configuration through each system with each seed; `changes` are fields of :class:`Case`."""
        given = {"phase_s": self.phase_s} | changes
        return [
            Case(configuration, system, seed, **given)
            for configuration in configurations
            for system in systems
            for seed in range(1, self.seeds + 1)
        ]

    def _with_packets(
        self,
        mtu_bytes: int,
        systems: Iterable[str],
        seeds: int = LOGGED_SEEDS,
        about: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> list[Case]:
        """:meth:`cases` on all configurations, with packets of a length and at most this many seeds."""
        return replace(self, seeds=min(self.seeds, seeds)).cases(
            self.configurations, systems, mtu_bytes=mtu_bytes, about={"mtu_bytes": mtu_bytes, **(about or {})},
            **changes,
        )  # fmt: skip

    def logged(self) -> list[Case]:
        """The systems of :data:`~.scenarios.LOGGED` with the packet sizes of the authors' logs."""
        return [
            case
            for system, sizes in LOGGED.items()
            for mtu_bytes in sizes
            for case in self._with_packets(
                mtu_bytes, [system],
                self.seeds if system in PUBLISHED and mtu_bytes > 400 else LOGGED_SEEDS,
            )
        ]  # fmt: skip

    def published(self) -> list[Case]:
        """iRED, and as its published program means it, with the packet size of the authors' logs."""
        return self._with_packets(AS_PUBLISHED_MTU, ["iRED", AS_PUBLISHED])

    def clock(self) -> list[Case]:
        """P4-CoDel, and as its published program, with packet sizes of the authors' logs."""
        return [
            case
            for mtu_bytes in CLOCK_MTUS
            for case in self._with_packets(mtu_bytes, [CODEL, CODEL_AS_PUBLISHED])
        ]

    def drops(self) -> list[Case]:
        """The published programs in each of :data:`~.scenarios.DROPS`, with packets as in the switch's registers."""
        return [
            case
            for name, (system, parameters, flows) in DROPS.items()
            for mtu_bytes in DROPS_MTUS[system]
            for case in self._with_packets(
                mtu_bytes, [system], about={"changed": name}, aqm=parameters, classic=flows, scalable=flows
            )
        ]

    def delays(self) -> list[Case]:
        """The systems of :data:`~.scenarios.DELAYS` with packet sizes of the authors' registers."""
        return [
            case
            for system, sizes in DELAYS.items()
            for mtu_bytes in sizes
            for case in self._with_packets(mtu_bytes, [system])
        ]

    def slow_starts(self) -> list[Case]:
        """The paper's systems in phase 1, with each of :data:`~.scenarios.SLOW_STARTS` and packets as in the logs."""
        from .variants import RestartingPrague

        return [
            case
            for name, parameters in SLOW_STARTS.items()
            for case in self._with_packets(
                AS_PUBLISHED_MTU, PUBLISHED, about={"slow_start": name}, pairs=PAIRS[:1],
                scalable={"cca": RestartingPrague(**parameters)} if parameters else {},
            )
        ]  # fmt: skip

    def stalled(self) -> list[Case]:
        """:data:`~.scenarios.STALLED`, where connections stalled, with each of :data:`~.scenarios.CONNECTIONS`."""
        return [
            case
            for system, sizes in STALLED.items()
            for mtu_bytes in sizes
            for configuration in self.configurations
            if (sent := sending_pairs(configuration, system, mtu_bytes)) != PAIRS
            for name, (without, flows) in CONNECTIONS.items()
            for case in replace(self, configurations=[configuration])._with_packets(
                mtu_bytes, [system], about={"connections": name}, pairs=sent if without else PAIRS,
                classic=flows, scalable=flows,
            )
        ]  # fmt: skip

    def late(self) -> list[Case]:
        """PI2 in each of :data:`~.scenarios.LATE`, with packets as in the logs."""
        return [
            case
            for name, (system, parameters) in LATE.items()
            for mtu_bytes in LATE_MTUS
            for case in self._with_packets(mtu_bytes, [system], about={"late": name}, aqm=parameters)
        ]

    def changed(self) -> list[Case]:
        """:data:`~.scenarios.CAUSES` on their configurations, and the paper's phases on all, unless used anyway."""
        cases = []
        for name, (system, changes) in CAUSES.items():
            if changes.get("phase_s") == self.phase_s:
                continue
            configurations = self.configurations if "phase_s" in changes else self.causes
            cases += self.cases(configurations, [system], about={"changed": name}, **changes)
        return cases

    def identified(self) -> list[Case]:
        """The paper's systems with each identifier and each of :data:`~.scenarios.SENDERS`, on one configuration."""
        return [
            case
            for senders, (classic, scalable) in SENDERS.items()
            for identifier in ("ect1", "dscp", "any_ect")
            for case in self.cases(
                self.configurations[:1], PUBLISHED, classic=classic, scalable=scalable,
                aqm={"identifier": identifier}, about={"senders": senders, "identifier": identifier},
            )
        ]  # fmt: skip

    def uneven(self) -> list[Case]:
        """The loads of :data:`~.scenarios.UNEVEN` through every system, on one configuration."""
        return [
            case
            for pair in UNEVEN
            for case in self.cases(
                self.configurations[:1], SYSTEMS, pairs=(pair,), about={"flows": "-".join(map(str, pair))}
            )
        ]
