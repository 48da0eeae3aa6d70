"""iRED and PI2 for L4S: Cubic and Prague through one bottleneck, in four configurations by four phases of load.

De Almeida, Maciel Jr. and Verdi, "Evaluating L4S Framework Performance with Programmable Data Plane Hardware",
section 5; its numbers are in ``data/papers/l4s-ired-pi2.csv``. Beside the paper's two systems stands DualPI2 (RFC
9332), which it did not try, and each of the two with the other's queues, which tells what the algorithms do from what
the queues do.

What the paper leaves open, and what was chosen: the flow counts are those in a phase, so a phase adds 1, 1, 8 and 15
of each kind, each within half a second; 250 ms of buffer (RFC 9332); iRED's two queues ("the corresponding output
queue", section 4.1) are served in turn, with equal weights; PI2 is alone in one queue, its control plane takes 1 ms; a
notification is recirculated in 1 µs; classic packets have the square of iRED's probability (section 3.2).
``hardware/launch/l4s-ired-pi2/`` has the same as scenario files.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.pool import results
from ..errors import ParameterError
from ._folder import Folder, OutputOption, WorkersOption
from .papers import paper_numbers

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ..aqm import Aqm
    from ..scenario import Flow, Scenario
    from ..sim.simulation import Simulation

__all__ = [
    "CAUSES",
    "CONFIGURATIONS",
    "PAIRS",
    "SENDERS",
    "SYSTEMS",
    "UNEVEN",
    "Case",
    "Outcome",
    "Settings",
    "drop_delays",
    "identified_shares",
    "outcomes",
    "run",
    "table_3",
    "through",
]

#: Table 1: rate (Mbit/s) and RTT (ms).
CONFIGURATIONS = {"I": (120.0, 10.0), "II": (120.0, 50.0), "III": (1000.0, 10.0), "IV": (1000.0, 50.0)}
#: Table 2: classic and scalable flows in each phase.
PAIRS = ((1, 1), (2, 2), (10, 10), (25, 25))
_BUFFER_MS = 250
_SPREAD_S = 0.5
_SAMPLE_S = 0.1


@dataclass(frozen=True)
class System:
    """A queue discipline and its queues: whether scalable and classic packets wait apart, and are served in turn."""

    what: str
    aqm: str
    apart: bool = False


SYSTEMS = {
    "iRED": System("the paper's: two queues served in turn", "ired", apart=True),
    "PI2": System("the paper's: one queue, the controller in the control plane", "pi2"),
    "DualPI2": System("RFC 9332: two coupled queues, which the paper did not try", "dualpi2"),
    "iRED, one queue": System("as PI2's, to tell the algorithm from the queues", "ired"),
    "PI2, two queues": System("as iRED's, to tell the algorithm from the queues", "pi2", apart=True),
}
#: The two of the paper.
PUBLISHED = ("iRED", "PI2")


def _aqm(system: System, options: Mapping[str, Any], watched: bool) -> Aqm:
    """With the paper's parameters, or `options` instead."""
    from ..aqm import DualPi2, IRed, TofinoPi2
    from ._l4s_queues import WatchedDualPi2, WatchedIRed, WatchedPi2

    papers: dict[str, dict[str, Any]] = {
        "ired": {"min_ms": 20, "max_ms": 40, "weight": 0.5},
        "pi2": {"target_ms": 20, "update_ms": 15, "alpha": 0.3125, "beta": 3.125},
        "dualpi2": {"target_ms": 20},
    }
    plain: dict[str, type[Aqm]] = {"ired": IRed, "pi2": TofinoPi2, "dualpi2": DualPi2}
    seen: dict[str, type[Aqm]] = {"ired": WatchedIRed, "pi2": WatchedPi2, "dualpi2": WatchedDualPi2}
    return (seen if watched else plain)[system.aqm](**(papers[system.aqm] | dict(options)))


def _is_scalable(flow: Flow, identifier: str) -> bool:
    """Whether a switch that tells flows so takes this one for scalable."""
    return {"ect1": flow.ecn == "l4s", "dscp": flow.aggregate > 0, "any_ect": flow.ecn != "off"}[identifier]


def through(
    scenario: Scenario, system: str, *, watched: bool = False, options: Mapping[str, Any] | None = None
) -> Scenario:
    """A scenario's flows through one of the :data:`SYSTEMS` instead of the queue they had; rate and buffer stay.

    Parameters
    ----------
    scenario : Scenario
    system : str
    watched : bool
        Queue disciplines that log delays and drops (``_l4s_queues``); they decide alike.
    options : mapping, optional
        Parameters of the queue discipline other than the paper's.

    Raises
    ------
    ParameterError
        There is no such system.
    """
    from ..scenario import Bottleneck, Queue

    if system not in SYSTEMS:
        raise ParameterError(f"system: {system!r} is none of {', '.join(SYSTEMS)}")
    chosen, old = SYSTEMS[system], scenario.bottleneck
    aqm = _aqm(chosen, options or {}, watched)
    bottleneck = Bottleneck(
        rate_mbps=old.rate_mbps,
        buffer_packets=old.buffer_packets,
        buffer_bytes=old.buffer_bytes,
        aqm=aqm,
        queues=(Queue(), Queue()) if chosen.apart else (),
    )
    identifier = aqm.parameters().get("identifier", "ect1")
    queues = [None if not chosen.apart else int(not _is_scalable(f, identifier)) for f in scenario.flows]
    flows = tuple(dataclasses.replace(f, queue=q) for f, q in zip(scenario.flows, queues, strict=True))
    return dataclasses.replace(scenario, bottleneck=bottleneck, flows=flows)


# ---- one run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One run: a configuration through a system, four phases of load.

    Parameters
    ----------
    configuration, system : str
        Of :data:`CONFIGURATIONS` and :data:`SYSTEMS`.
    seed : int
    phase_s : float
        Of each phase; the paper's are 120 s.
    aqm, classic, scalable : dict
        Parameters of the queue discipline, and fields of both kinds of flows, other than the paper's.
    about : dict
        Further columns that tell it from others.
    pairs : tuple of (int, int)
        Classic and scalable flows in each phase; they only become more.
    spread_s : float
        Flows of a phase start within so much of its beginning, drawn from the seed.
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
    spread_s: float = _SPREAD_S

    def scenario(self, watched: bool = False) -> Scenario:
        """What is run: flows in the order they join, named ``classic`` and ``scalable``."""
        import numpy as np

        from ..scenario import Bottleneck, Flow, Scenario

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
                same = {"rtt_ms": rtt_ms, "access_mbps": 25_000, "name": name, "start_s": start_s}
                flows.append(Flow(**same | kinds[name]))
        made = Scenario(
            bottleneck=Bottleneck(rate_mbps=rate_mbps, buffer_bytes=round(rate_mbps * 125 * _BUFFER_MS)),
            flows=tuple(flows),
            duration_s=len(self.pairs) * self.phase_s,
            seed=self.seed,
            name=f"{self.configuration} {self.system}",
        )
        return through(made, self.system, watched=watched, options=self.aqm)

    def run(self) -> Outcome:
        """Run it."""
        import numpy as np

        from ..sim.simulation import Simulation

        sim = Simulation(self.scenario(watched=True), sample_s=_SAMPLE_S)
        delays = [_delays(sim) * 0]
        for phase in range(len(self.pairs)):
            sim.run((phase + 1) * self.phase_s)
            delays.append(_delays(sim))
        made, states = sim.result(), _states(sim)
        noted = [min(int(s["noted"]), len(s["drop_ns"])) for s in states]
        drop, gap = (
            np.concatenate([s[name][:n] for s, n in zip(states, noted, strict=True)]) / 1e6
            for name in ("drop_ns", "gap_ns")
        )
        rates = _rates(made.flow_series, list(made.flows.name))
        rows = [
            {"configuration": self.configuration, "system": self.system, "seed": self.seed}
            | self.about
            | {"phase": number + 1, "pairs": "-".join(map(str, self.pairs[number]))}
            | _share(rates, number * self.phase_s, (number + 1) * self.phase_s)
            | _queueing(self, made.queue_series, number)
            | _quantiles(np.maximum(after - before, 0))
            for number, (before, after) in enumerate(itertools.pairwise(delays))
        ]
        return Outcome(self, rates, rows, drop, gap)


@dataclass
class Outcome:
    """What came out of a case.

    Attributes
    ----------
    case : Case
    rates : DataFrame
        Goodput of each class (``classic``, ``scalable``; Mbit/s) in each second, by the second's end (``end_s``).
    phases : list of dict
        One row a phase: rates, shares, queueing delays of each class, utilisation.
    drop_ms : array
        Of each drop: from the decision until it was done. For PI2 and DualPI2 that is how long the packet had waited.
    gap_ms : array
        Of each drop: from the decision until the gap came out of the queue.
    """

    case: Case
    rates: pd.DataFrame
    phases: list[dict[str, Any]]
    drop_ms: np.ndarray
    gap_ms: np.ndarray

    @property
    def about(self) -> dict[str, Any]:
        """Columns that tell the case from others."""
        case = self.case
        return {"configuration": case.configuration, "system": case.system, "seed": case.seed} | case.about

    def differences(self) -> dict[str, float]:
        """The paper's Table 3 as it may be read: percent that both classes differ by, of what both have.

        Returns
        -------
        dict
            ``by_phase`` (mean of the four phases' differences), ``whole_run`` (difference of the means of the whole
            run) and ``each_second`` (mean of each second's difference).
        """
        from ..analysis.metrics import share_difference

        mean = self.rates.mean()
        phases = [(row["classic_mbps"], row["scalable_mbps"]) for row in self.phases]
        return {
            "by_phase": share_difference(*zip(*phases, strict=True)),
            "whole_run": share_difference(mean.classic, mean.scalable),
            "each_second": share_difference(self.rates.classic, self.rates.scalable),
        }


def _states(sim: Simulation) -> list[Any]:
    """The queue disciplines' states: one, if the queues share it."""
    bottleneck = sim.scenario.bottleneck
    return [sim.aqm_state(i) for i in range(1 if bottleneck.aqm.shared else len(bottleneck.queue_list()))]


def _delays(sim: Simulation) -> np.ndarray:
    return sum(s["delays"].copy() for s in _states(sim))


def _rates(series: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Goodput of each class in each second, from counters of bytes."""
    whole = series[series.ts_ns % 1_000_000_000 == 0]
    kind = whole.flow_id.map(dict(enumerate(names))).rename("kind")
    received = whole.assign(kind=kind).pivot_table(
        index="ts_ns", columns="kind", values="received_bytes", aggfunc="sum"
    )
    rates = received.astype(float).diff().fillna(received.iloc[:1]) * 8e-6
    return rates.set_axis((rates.index / 1e9).rename("end_s")).rename_axis(columns=None)


def _share(rates: pd.DataFrame, start_s: float, stop_s: float) -> dict[str, float]:
    from ..analysis.metrics import share_difference

    mean = rates[(rates.index > start_s + 1e-6) & (rates.index <= stop_s + 1e-6)].mean()
    return {
        "classic_mbps": mean.classic,
        "scalable_mbps": mean.scalable,
        "scalable_share": mean.scalable / (mean.scalable + mean.classic),
        "difference_percent": share_difference(mean.classic, mean.scalable),
    }


def _queueing(case: Case, series: pd.DataFrame, number: int) -> dict[str, float]:
    """Utilisation, and how much the probability swings: the mean of its square over the square of its mean.

    The probability is that of PI2 before squaring, of iRED's classic queue, and of DualPI2's p'.
    """
    start_ns, stop_ns = (round((number + k) * case.phase_s * 1e9) for k in (0, 1))
    part = series[(series.ts_ns >= start_ns) & (series.ts_ns <= stop_ns)]
    sent = part.groupby("ts_ns").sent_bytes.sum()
    seconds = (sent.index[-1] - sent.index[0]) / 1e9
    p = part[part.queue == part.queue.max()].probability
    if SYSTEMS[case.system].aqm == "dualpi2":
        p = p**0.5
    return {
        "utilisation": (sent.iloc[-1] - sent.iloc[0])
        * 8e-6
        / seconds
        / CONFIGURATIONS[case.configuration][0],
        "probability_swing": float((p**2).mean() / p.mean() ** 2) if p.mean() > 0 else math.nan,
    }


def _quantiles(delays: np.ndarray) -> dict[str, float]:
    """Mean and percentiles of the delays of each class, ms."""
    import numpy as np

    from ._l4s_queues import BIN_MS

    found = {}
    for name, counts in zip(("scalable", "classic"), delays, strict=True):
        total = counts.sum()
        centres = (np.arange(len(counts)) + 0.5) * BIN_MS
        found[f"{name}_delay_ms"] = float(counts @ centres / total) if total else math.nan
        for percent in (50, 99):
            at = np.searchsorted(counts.cumsum(), percent / 100 * total) + 1
            found[f"{name}_p{percent}_ms"] = float(at * BIN_MS) if total else math.nan
    return found


def outcomes(cases: Sequence[Case], workers: int | None = None, progress: bool = False) -> list[Outcome]:
    """Run cases, several at a time.

    Parameters
    ----------
    cases : sequence of Case
    workers : int, optional
        Processes; all cores without it.
    progress : bool
        Show a bar.
    """
    return results(_outcome, [(case,) for case in cases], workers, progress=progress)


def _outcome(case: Case) -> Outcome:
    return case.run()


# ---- what is run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What all cases are run with.

    Parameters
    ----------
    configurations : sequence of str
    phase_s : float
        Of each phase, whole seconds.
    seeds : int
    causes : sequence of str
        Configurations that :data:`CAUSES` are tried on.
    """

    configurations: Sequence[str] = tuple(CONFIGURATIONS)
    phase_s: float = 30.0
    seeds: int = 3
    causes: Sequence[str] = ("I", "II")

    def __post_init__(self) -> None:
        for name in (*self.configurations, *self.causes):
            if name not in CONFIGURATIONS:
                raise ParameterError(f"configuration: {name!r} is none of {', '.join(CONFIGURATIONS)}")
        if self.phase_s < 2 or self.phase_s % 1:
            raise ParameterError(f"phase_s: {self.phase_s!r} has to be a whole number of seconds, 2 or more")

    def cases(self, configurations: Iterable[str], systems: Iterable[str], **changes: Any) -> list[Case]:
        """Each configuration through each system with each seed; `changes` are fields of :class:`Case`."""
        given = {"phase_s": self.phase_s} | changes
        return [
            Case(configuration, system, seed, **given)
            for configuration in configurations
            for system in systems
            for seed in range(1, self.seeds + 1)
        ]

    def changed(self) -> list[Case]:
        """:data:`CAUSES` on the configurations for them; the paper's phases on all, unless these have them anyway."""
        cases = []
        for name, (system, changes) in CAUSES.items():
            if changes.get("phase_s") == self.phase_s:
                continue
            configurations = self.configurations if "phase_s" in changes else self.causes
            cases += self.cases(configurations, [system], about={"changed": name}, **changes)
        return cases


#: What may make the difference: one thing changed at a time. The system, and fields of :class:`Case`.
CAUSES: dict[str, tuple[str, dict[str, Any]]] = {
    "PI2 as above": ("PI2", {}),
    "phases of 120 s, as in the paper": ("PI2", {"phase_s": 120.0}),
    "controller slower, gains a tenth": ("PI2", {"aqm": {"alpha": 0.03125, "beta": 0.3125}}),
    "control plane in no time": ("PI2", {"aqm": {"control_plane_ms": 0}}),
    "control plane in 60 ms": ("PI2", {"aqm": {"control_plane_ms": 60}}),
    "update every 100 ms": ("PI2", {"aqm": {"update_ms": 100}}),
    "coupling 1 instead of 2": ("PI2", {"aqm": {"coupling": 1}}),
    "Reno instead of Cubic": ("PI2", {"classic": {"cca": "reno"}}),
    "DCTCP instead of Prague": ("PI2", {"scalable": {"cca": "dctcp", "ecn": "l4s"}}),
    "Prague with its own RTT below 25 ms": (
        "PI2",
        {"scalable": {"cca": {"name": "prague", "virtual_rtt_ms": 0}}},
    ),
    "one ACK for 16 packets (receive offload)": (
        "PI2",
        {"classic": {"delayed_ack": 16}, "scalable": {"delayed_ack": 16}},
    ),
    "iRED, one queue": ("iRED, one queue", {}),
    "iRED, one queue, probability not squared": ("iRED, one queue", {"aqm": {"square": False}}),
    "iRED, probability not squared": ("iRED", {"aqm": {"square": False}}),
}

#: Classic and scalable flows where classes of a queue each and flows that share one are told apart.
UNEVEN = ((1, 9), (9, 1))

#: Senders that tell the ways of identification apart: fields of classic and scalable flows.
SENDERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Cubic; Prague": ({}, {}),
    "Cubic; Prague whose DSCP was cleared": ({}, {"aggregate": 0}),
    "Cubic with Prague's DSCP; Prague": ({"aggregate": 1}, {}),
    "Cubic with ECN; Prague": ({"ecn": "classic"}, {}),
    "Cubic; DCTCP": ({}, {"cca": "dctcp"}),
}


# ---- what is made of it ----------------------------------------------------------------------------------------------


def _frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows))


def table_3(found: Iterable[Outcome]) -> pd.DataFrame:
    """The paper's Table 3, measured: a row a run.

    Returns
    -------
    DataFrame
        ``configuration system seed``, :meth:`Outcome.differences`, and ``paper`` (NaN for what it did not try).
    """
    numbers = paper_numbers("l4s-ired-pi2", "Table 3")
    numbers = numbers[numbers.section == "Table 3"]
    published = dict(zip(numbers.setting, numbers.paper.astype(float), strict=True))
    return _frame(
        o.about
        | {"paper": published.get(f"configuration {o.case.configuration}, {o.case.system}", math.nan)}
        | o.differences()
        for o in found
    )


def drop_delays(found: Iterable[Outcome]) -> pd.DataFrame:
    """Quartiles of the time a drop takes, ms: the paper's Figure 7, and when the gap leaves the queue."""
    import numpy as np

    groups: dict[tuple[str, str], list[Outcome]] = {}
    for o in found:
        groups.setdefault((o.case.configuration, o.case.system), []).append(o)
    rows = []
    for (configuration, system), some in groups.items():
        aqm = some[0].case.scenario().bottleneck.aqm
        for measure, values in (
            ("recirculation", np.array([aqm.parameters().get("recirculation_us", math.nan) / 1e3])),
            ("until the drop", np.concatenate([o.drop_ms for o in some])),
            ("until the gap leaves", np.concatenate([o.gap_ms for o in some])),
        ):
            if SYSTEMS[system].aqm != "ired" and measure != "until the drop":
                continue  # a packet dropped as it leaves is a gap at once, and nothing is recirculated
            low, q1, median, q3, high = np.percentile(values, [5, 25, 50, 75, 95])
            rows.append(
                {"configuration": configuration, "system": system, "measure": measure, "drops": len(values)}
                | {"p5_ms": low, "q1_ms": q1, "median_ms": median, "q3_ms": q3, "p95_ms": high}
            )
    return _frame(rows)


def identified_shares(found: Iterable[Outcome]) -> pd.DataFrame:
    """The second sender's share of the goodput, the mean of the phases: a row a run."""
    return _frame(
        o.about | {"second_share": sum(row["scalable_share"] for row in o.phases) / len(o.phases)}
        for o in found
    )


def _uneven(found: Iterable[Outcome]) -> pd.DataFrame:
    """What one flow of each class gets when there are more of one: a row a run."""
    rows = []
    for o in found:
        classic, scalable = o.case.pairs[-1]
        last = o.phases[-1]
        each = {
            "classic_each_mbps": last["classic_mbps"] / classic,
            "scalable_each_mbps": last["scalable_mbps"] / scalable,
        }
        rows.append(
            o.about | each | {"scalable_over_classic": each["scalable_each_mbps"] / each["classic_each_mbps"]}
        )
    return _frame(rows)


def run(
    output: OutputOption = Path("l4s"),
    *,
    full: Annotated[
        bool, typer.Option(help="Phases of 120 s as in the paper, not 30 s; causes on all configurations.")
    ] = False,
    configuration: Annotated[
        list[str] | None, typer.Option(help="I, II, III or IV; may be given again. Default: all.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each case; starts differ.", min=1)] = 3,
    testbed: Annotated[
        bool, typer.Option(help="Also DualPI2 with DCTCP in a Linux kernel (see `cct testbed doctor`).")
    ] = False,
    workers: WorkersOption = None,
) -> Path:
    """Run all of it and write tables, figures and a summary.

    Parameters
    ----------
    output : Path
        Folder.
    full : bool
        The paper's length, and causes on all configurations, not only on I and II: half an hour of one core
        instead of five minutes.
    configuration : list of str, optional
    seeds : int
    testbed : bool
        Linux's own DualPI2 beside the simulator's; needs a kernel for the testbed's ``uml`` backend.
    workers : int, optional
        Processes; all cores without it.

    Returns
    -------
    Path
        The folder: ``goodput``, ``phases``, ``table3``, ``drop-delay``, ``causes``, ``identification``,
        ``uneven`` (and ``kernel``) as Parquet, figures, ``summary.md``.

    Raises
    ------
    ParameterError
        There is no such configuration.
    TestbedUnavailableError
        `testbed` without a kernel that has DualPI2.
    """
    import sys

    import pandas as pd

    from . import _l4s_figures as figures, _l4s_summary as summary
    from ._l4s_kernel import beside_kernel, kernel_needed

    chosen = tuple(dict.fromkeys(configuration or CONFIGURATIONS))
    causes = chosen if full else tuple(c for c in chosen if c in ("I", "II")) or chosen
    settings = Settings(chosen, 120.0 if full else 30.0, seeds, causes)
    kernel = kernel_needed() if testbed else None
    folder = Folder(
        output, "l4s", {"full": full, "configuration": list(chosen), "seeds": seeds, "testbed": testbed}
    )
    progress = sys.stderr.isatty()

    main = outcomes(settings.cases(chosen, SYSTEMS), workers, progress)
    phases = pd.DataFrame([row for o in main for row in o.phases])
    third, drops = table_3(main), drop_delays(main)
    goodput = pd.concat([o.rates.reset_index().assign(**o.about) for o in main], ignore_index=True)
    tried = outcomes(settings.changed(), workers, progress)
    why = _frame(
        o.about
        | o.differences()
        | {f"phase_{row['phase']}_share": row["scalable_share"] for row in o.phases}
        | {"probability_swing": o.phases[0]["probability_swing"]}
        for o in tried
    )
    told = outcomes(
        [
            case
            for senders, (classic, scalable) in SENDERS.items()
            for identifier in ("ect1", "dscp", "any_ect")
            for case in settings.cases(
                chosen[:1], PUBLISHED, classic=classic, scalable=scalable, aqm={"identifier": identifier},
                about={"senders": senders, "identifier": identifier},
            )
        ],
        workers,
        progress,
    )  # fmt: skip
    identified = identified_shares(told)
    uneven = _uneven(
        outcomes(
            [
                case
                for pair in UNEVEN
                for case in settings.cases(
                    chosen[:1], SYSTEMS, pairs=(pair,), about={"flows": "-".join(map(str, pair))}
                )
            ],
            workers,
            progress,
        )
    )
    for name, table in (
        ("goodput", goodput), ("phases", phases), ("table3", third), ("drop-delay", drops), ("causes", why),
        ("identification", identified), ("uneven", uneven),
    ):  # fmt: skip
        folder.table(name, table)

    drawn = figures.goodput_figures(goodput, settings.phase_s)
    drawn |= {
        "table3": figures.table_3_figure(third),
        "figure7": figures.drop_delay_figure(drops),
        "delay": figures.delay_figure(phases),
        "causes": figures.causes_figure(why),
    }
    for name, figure in drawn.items():
        folder.figure(name, figure)
    blocks = summary.blocks(settings, phases, third, drops, why, identified, uneven)
    if kernel is not None:
        compared = beside_kernel(settings, folder.path / "kernel", kernel)
        folder.table("kernel", compared)
        blocks += summary.kernel_blocks(compared)
    folder.summary("iRED, PI2 and DualPI2 for L4S", *blocks)
    return folder.path
