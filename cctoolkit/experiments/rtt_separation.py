"""The six tests of the RTT paper, its scaling test and its Table 1, with and without separation and beside
competitors; what the result of test 4 depends on; and tests 1 and 3 on real Linux.

Gomez, Kfoury, Mazloum and Crichigno, "Improving Flow Fairness in Non-programmable Networks using P4-programmable Data
Planes", sections 4 and 5. The paper's numbers are in ``data/papers/rtt-flow-separation.csv``. Fairness never stands
without utilisation beside it.

What the paper leaves open, and what was chosen: 1 Gbit/s; RTTs halfway after the bottleneck and halfway back;
senders and receivers with buffers of 200 MB (section 4); flows that join and leave 30 s apart in test 1; tests 2,
5 and 6 as in
``hardware/launch/rtt-flow-separation/``. BBR is version 1 unless it says otherwise. The controller acts twice a
second.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.pool import results
from ..errors import ParameterError
from ._folder import Folder, OutputOption, WorkersOption, markdown_table
from .papers import paper_numbers

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ..scenario import Flow, Scenario
    from ..separation.controller import Controller

__all__ = ["SCHEMES", "TESTS", "Case", "Outcome", "Settings", "outcomes", "paper", "run", "sample_transfers"]

#: What is done about unfairness, and whether it is the paper's.
SCHEMES = {
    "one queue": "nothing: one queue for all, as long as the largest RTT's BDP",
    "RTT": "the paper's: queues by RTT, BDP/sqrt(N) in each, shares guaranteed and never idle",
    "RTT, hard limits": "the same with every queue limited to its share, whatever the others leave unused",
    "CCA": "queues by congestion control, as P4air and P4CCI, with a classifier that never errs",
    "buffer": "one queue whose buffer follows the number of flows and their RTT, as P4BS",
    "RTT and threshold": "queues by RTT, and who makes others wait for more than 4 ms is isolated",
}
#: The day of the paper's trace; where it is in the cache, test 4 takes its transfers from it.
MAWI_DAY = "2024-02-15"
_WINDOW = 138_121  # packets of 1448 bytes in 200 MB
_STEP_S = 0.5


@dataclass(frozen=True)
class Settings:
    """What all tests are run with.

    Parameters
    ----------
    fast : bool
        A tenth of the rate and shorter: to look, not to cite.
    seeds : int
        Tests 1 and 3 are run so many times, with starts moved by up to half a second; what test 4 depends on is
        looked at with so many samples of transfers.
    scale : float
        Test 4: part of its 6000 transfers.
    capture : path, optional
        Test 4: take the transfers from this capture. Without it, :func:`sample_transfers`.
    min_bytes : int
        Test 4: the least payload of a transfer taken from a capture.
    testbed : bool
        Tests 1 and 3 in a small form (a twentieth of the rate, a third of the time), each run in the simulator and
        on real Linux; :data:`TESTBED_TESTS`.
    """

    fast: bool = False
    seeds: int = 3
    scale: float = 0.02
    capture: Path | None = None
    min_bytes: int = 10_000_000
    testbed: bool = False

    @property
    def rate_mbps(self) -> float:
        return 50.0 if self.testbed else 100.0 if self.fast else 1000.0

    def time_s(self, seconds: float) -> float:
        """A time of the full experiment, in this one."""
        return seconds / 3 if self.testbed else seconds / 4 if self.fast else seconds


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes
    ----------
    about : dict
        Columns that tell it from the others of its test; ``scheme`` is one of :data:`SCHEMES`, and ``where``
        "Linux" where the testbed shall run it.
    scenario : Scenario
        With one queue; schemes make of it what they need.
    k : int
        Classes.
    options : dict
        Of the controller; without others, flows are long from as many bytes on as the link carries in 80 ms.
    sample_s : float
    """

    about: dict[str, Any]
    scenario: Scenario
    k: int = 4
    options: dict[str, Any] = field(default_factory=dict)
    sample_s: float = 1.0

    def controller(self) -> Controller | None:
        """What controls the run; None: nothing."""
        from ..separation.competitors import BufferResizing, CcaSeparation
        from ..separation.controller import RttSeparation

        rate, scheme = self.scenario.bottleneck.rate_mbps, self.about["scheme"]
        options = {
            "long_bytes": round(10_000 * rate)
        } | self.options  # the paper's 10 MB at 1 Gbit/s: as soon
        if scheme in ("RTT", "RTT, hard limits"):
            return RttSeparation(rate, self.k, **options)
        if scheme == "RTT and threshold":
            return RttSeparation(rate, self.k, latency_threshold_ms=4.0, **options)
        if scheme == "CCA":
            return CcaSeparation(rate, self.k, **options)
        if scheme == "buffer":
            return BufferResizing(rate, **options)
        return None

    def run(self) -> Outcome:
        """Run it."""
        controller, scenario = self.controller(), self.scenario
        if controller is not None:
            scenario = controller.scenario(scenario)
        if self.about["scheme"] == "RTT, hard limits":
            limit = scenario.bottleneck.rate_mbps / self.k
            queues = tuple(dataclasses.replace(q, max_rate_mbps=limit) for q in scenario.bottleneck.queues)
            scenario = scenario.replace({"bottleneck.queues": queues})
        log = [] if controller is None else controller.log
        if self.about.get("where") == "Linux":
            from tempfile import TemporaryDirectory

            from ..testbed import run_testbed

            with TemporaryDirectory() as folder:
                made = run_testbed(
                    scenario,
                    Path(folder) / "run",
                    sample_s=self.sample_s,
                    control=controller,
                    control_s=_STEP_S,
                )
            series = made.flow_series.assign(ts_ns=made.flow_series.ts_ns - made.start_ns)
            series = series.rename(columns={"acked_bytes": "received_bytes"})
            queue_series = made.queue_series.assign(ts_ns=made.queue_series.ts_ns - made.start_ns)
            return Outcome(self, made.flows, series, queue_series, log)
        from ..sim.simulation import simulate

        made = simulate(scenario, record=False, sample_s=self.sample_s, control=controller, control_s=_STEP_S)
        return Outcome(self, made.flows, made.flow_series, made.queue_series, log)


@dataclass
class Outcome:
    """What came out of a case: the run's flows and series, and the controller's log."""

    case: Case
    flows: pd.DataFrame
    flow_series: pd.DataFrame
    queue_series: pd.DataFrame
    log: list[dict[str, Any]]

    @property
    def about(self) -> dict[str, Any]:
        return self.case.about

    def rates_mbps(self, by: str = "flow_id") -> pd.DataFrame:
        """Goodput in each step of the series: a row a step (its end, s), a column a flow, or a name."""
        import numpy as np

        table = self.flow_series.pivot_table(index="ts_ns", columns="flow_id", values="received_bytes")
        # Linux says nothing of a flow before it starts and after it ends, and once when it ends
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
        """Mean goodput of each flow, or name, in a part of the run."""
        rates = self.rates_mbps(by)
        return rates[(rates.index > start_s + 1e-6) & (rates.index <= stop_s + 1e-6)].mean()

    def utilisation(self, start_s: float, stop_s: float) -> float:
        """Part of the link's capacity that was sent in a part of the run."""
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
        """Mean waiting time in the bottleneck's queues in a part of the run."""
        both = self.queue_series.groupby("ts_ns")[["delay_sum_ns", "sent_packets"]].sum()
        both.index = both.index / 1e9
        both = both[(both.index >= start_s - 1e-6) & (both.index <= stop_s + 1e-6)]
        change = both.iloc[-1] - both.iloc[0]
        return float(change.delay_sum_ns / max(change.sent_packets, 1) / 1e6)

    def changes(self) -> int:
        """Rules and settings that changed."""
        return int(sum(e["added"] + e["moved"] + e["removed"] + e["settings"] for e in self.log))


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


def _scenario(
    settings: Settings, flows: Iterable[Flow], buffer_ms: float, duration_s: float, seed: int = 1
) -> Scenario:
    from ..scenario import Bottleneck, Scenario

    room = max(math.ceil(settings.rate_mbps * 125 * buffer_ms), 10 * 1514)
    bottleneck = Bottleneck(rate_mbps=settings.rate_mbps, buffer_bytes=room)
    return Scenario(bottleneck=bottleneck, flows=tuple(flows), duration_s=round(duration_s, 3), seed=seed)


def _flow(cca: str, rtt_ms: float, **options: Any) -> Flow:
    from ..scenario import Flow

    return Flow(cca, rtt_ms=rtt_ms, max_window=_WINDOW, **options)


def _moved(seed: int, n: int) -> np.ndarray:
    """Starts of n flows in their first half second, so that seeds differ."""
    import numpy as np

    return np.random.default_rng(seed).uniform(0, 0.5, n).round(3)


def _places(settings: Settings) -> list[dict[str, str]]:
    """Where each case runs, as a column; nothing where that is the simulator alone."""
    return [{"where": "simulator"}, {"where": "Linux"}] if settings.testbed else [{}]


def _place_columns(settings: Settings) -> list[str]:
    return list(_places(settings)[0])


def _frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows))


# ---- test 1: four flows that come and go -----------------------------------------------------------------------------

_RTTS_1 = (2.0, 20.0, 40.0, 60.0)
_SCHEMES_1 = ("one queue", "RTT", "RTT, hard limits", "CCA", "buffer")
_CCAS_1 = {
    "CUBIC": ("cubic",) * 4,
    "BBR": ("bbr",) * 4,
    "CUBIC and BBR": ("cubic", "bbr", "cubic", "bbr"),
}


def _cases_1(settings: Settings) -> list[Case]:
    step = settings.time_s(30)
    cases = []
    for ccas, names in _CCAS_1.items():
        if settings.testbed and len(set(names)) > 1:
            continue
        rtts = _RTTS_1 if ccas != "CUBIC and BBR" else (20.0, 20.0, 60.0, 60.0)
        for seed in range(1, settings.seeds + 1):
            flows = [
                _flow(
                    cca, rtt, start_s=i * step + float(late), stop_s=(4 + i) * step, name=f"{rtt:g} ms {cca}"
                )
                for i, (cca, rtt, late) in enumerate(zip(names, rtts, _moved(seed, 4), strict=True))
            ]
            scenario = _scenario(settings, flows, max(rtts), 7 * step, seed)
            for scheme in _SCHEMES_1[: 2 if settings.testbed else None]:
                for where in _places(settings):
                    cases.append(Case({"flows": ccas, "scheme": scheme, "seed": seed} | where, scenario))
    return cases


def _jain_over_time(outcome: Outcome, step: float) -> float:
    """Mean of the index of each second, of the flows that are there then, with two or more."""
    from ..analysis.metrics import jain_index

    rates = outcome.rates_mbps()
    found = []
    for end_s, row in rates.iterrows():
        there = [i for i in range(4) if i * step + 1 < float(end_s) <= (4 + i) * step]  # type: ignore[arg-type]
        if len(there) >= 2:
            found.append(jain_index(row.iloc[there]))
    return float(sum(found) / len(found))


def _table_1(settings: Settings, found: Sequence[Outcome]) -> pd.DataFrame:
    from ..analysis.metrics import jain_index

    step = settings.time_s(30)
    start, stop = 3 * step + step / 6, 4 * step
    rows = []
    for o in found:
        rates = o.mean_mbps(start, stop)
        rows.append(
            o.about
            | {
                "jain_index": jain_index(rates),
                "jain_each_second": _jain_over_time(o, step),
                "utilisation": o.utilisation(start, stop),
                "utilisation_whole": o.utilisation(0, 7 * step),
                "queue_ms": o.queue_ms(start, stop),
                "changes": o.changes(),
            }
        )
    return _seed_means(_frame(rows), ["flows", "scheme", *_place_columns(settings)])


def _seed_means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Means over seeds, in the order the cases came in, and the least fairness of any seed."""
    grouped = table.drop(columns="seed").groupby(keys, sort=False)
    means = grouped.mean().reset_index()
    if "jain_index" in table:
        means.insert(len(keys) + 1, "jain_least", grouped.jain_index.min().to_numpy())
    return means


# ---- test 2: what one does not use, others get -----------------------------------------------------------------------

#: Flow, start, stop, rate it is held back to.
_PARTS_2 = (
    (1, 0, 240, None), (1, 240, 360, 250), (1, 360, 540, None),
    (2, 60, 120, None), (2, 120, 240, 250), (2, 240, 540, None),
    (3, 360, 420, None), (3, 420, 480, 100),
)  # fmt: skip
_PHASES_2 = ((0, 60), (60, 120), (120, 240), (240, 360), (360, 420), (420, 480), (480, 540))


def _cases_2(settings: Settings) -> list[Case]:
    flows = []
    for flow, start, stop, held in _PARTS_2:
        rate = {} if held is None else {"rate_mbps": held * settings.rate_mbps / 1000}
        flows.append(
            _flow(
                "cubic",
                20.0 * flow,
                start_s=settings.time_s(start),
                stop_s=settings.time_s(stop),
                name=f"flow {flow}",
                **rate,
            )
        )
    scenario = _scenario(settings, flows, 60, settings.time_s(540))
    return [
        Case({"scheme": scheme}, scenario, k=3, sample_s=1.0)
        for scheme in ("one queue", "RTT", "RTT, hard limits")
    ]


def _table_2(settings: Settings, found: Sequence[Outcome]) -> pd.DataFrame:
    import numpy as np

    from ..separation.controller import max_min_shares

    rows = []
    for o in found:
        for start, stop in _PHASES_2:
            demand = {
                flow: math.inf if held is None else held for flow, a, b, held in _PARTS_2 if a <= start < b
            }
            fair = max_min_shares(1000, list(demand.values())) * 1448 / 1514 * settings.rate_mbps / 1000
            settled = settings.time_s(start + (stop - start) / 4)
            rates = o.mean_mbps(settled, settings.time_s(stop), by="name")
            names = [f"flow {flow}" for flow in demand]
            got = rates[names].to_numpy()
            rows.append(
                o.about
                | {"from_s": settings.time_s(start), "to_s": settings.time_s(stop)}
                | {
                    f"flow_{i}_mbps": rates.get(f"flow {i}", math.nan) if i in demand else math.nan
                    for i in (1, 2, 3)
                }
                | {f"fair_{i}_mbps": dict(zip(demand, fair, strict=True)).get(i, math.nan) for i in (1, 2, 3)}
                | {
                    "worst_over_fair": float(np.min(got / fair)),
                    "utilisation": o.utilisation(settled, settings.time_s(stop)),
                }
            )
    return _frame(rows)


# ---- test 3: two flows, further and further apart --------------------------------------------------------------------

_RTTS_3 = (10, 15, 20, 30, 40, 60, 80, 100, 120, 140, 160, 180, 200)
_RTTS_3_TESTBED = (15, 40, 100)


def _cases_3(settings: Settings) -> list[Case]:
    duration = settings.time_s(120)
    rtts = _RTTS_3_TESTBED if settings.testbed else _RTTS_3[1::4] if settings.fast else _RTTS_3
    return [
        Case(
            {"flows": name, "scheme": scheme, "rtt_ms": rtt, "seed": seed} | where,
            _scenario(
                settings,
                [
                    _flow(cca, r, start_s=float(late))
                    for r, late in zip((10.0, float(rtt)), _moved(seed, 2), strict=True)
                ],
                rtt,
                duration,
                seed,
            ),
            k=2,
        )
        for name, cca in (("CUBIC", "cubic"), ("BBR", "bbr"))
        for rtt in rtts
        for seed in range(1, settings.seeds + 1)
        for scheme in ("one queue", "RTT")
        for where in _places(settings)
    ]


def _table_3(settings: Settings, found: Sequence[Outcome]) -> pd.DataFrame:
    from ..analysis.metrics import jain_index

    start, stop = settings.time_s(30), settings.time_s(120)
    rows = []
    for o in found:
        short, long = o.mean_mbps(start, stop)
        rows.append(
            o.about
            | {
                "share_of_short_rtt": short / (short + long),
                "jain_index": jain_index([short, long]),
                "utilisation": o.utilisation(start, stop),
                "queue_ms": o.queue_ms(start, stop),
            }
        )
    return _seed_means(_frame(rows), ["flows", "rtt_ms", "scheme", *_place_columns(settings)])


# ---- test 4: completion times of large transfers ---------------------------------------------------------------------

_CCAS_4 = {"CUBIC": "cubic", "HTCP": "htcp", "BBR": "bbr", "BBRv2": "bbr2"}
_QUEUES_4 = (2, 4, 8)


def sample_transfers(settings: Settings, n: int | None = None, load: float = 0.9, seed: int = 1) -> Scenario:
    """Transfers such as those of test 4, for where there is no MAWI day to take them from.

    Parameters
    ----------
    settings : Settings
        6000 transfers times its scale; `fast` has a hundredth of the bytes.
    n : int, optional
        So many instead.
    load : float
        Of the link, while transfers start.
    seed : int

    Returns
    -------
    Scenario
        Sizes: Pareto with shape 1.1 between 150 MB and 2 GB. RTTs: lognormal, median 40 ms, sigma 1, between 1 and
        224 ms. Starts: Poisson, at a rate that gives the load. (The limits are the paper's, section 4.4; shapes,
        median and load are chosen.) One queue with the BDP of the largest RTT.
    """
    import numpy as np

    n = max(round(6000 * settings.scale), 4) if n is None else n
    rng = np.random.default_rng([seed, 4])
    low, high, shape = 150e6, 2e9, 1.1
    u = rng.uniform(size=n)
    sizes = low * (1 - u * (1 - (low / high) ** shape)) ** (-1 / shape)
    if settings.fast:
        sizes /= 100
    rtts = np.exp(rng.normal(math.log(40), 1, 20 * n))
    rtts = rtts[(rtts >= 1) & (rtts <= 224)][:n].round(3)
    seconds = sizes.sum() * 8e-6 * 1514 / 1448 / settings.rate_mbps / load
    starts = np.sort(rng.uniform(0, seconds, n)).round(3)
    flows = [
        _flow("cubic", float(r), bytes=int(b), start_s=float(s))
        for r, b, s in zip(rtts, sizes, starts, strict=True)
    ]
    return _scenario(settings, flows, float(rtts.max()), 1.5 * seconds * max(load, 1.0) + 60)


def _workload_4(settings: Settings) -> Scenario:
    if settings.capture is None:
        return sample_transfers(settings)
    from ..capture.reader import iter_capture
    from ..separation.workload import scenario_from_capture

    found = scenario_from_capture(
        iter_capture(settings.capture),
        settings.rate_mbps,
        min_bytes=settings.min_bytes,
        every=max(round(1 / settings.scale), 1),
    )
    return found.replace({"flows.*.max_window": _WINDOW})


def _cases_4(settings: Settings) -> list[Case]:
    work = _workload_4(settings)
    rtts = [f.rtt_ms for f in work.flows]
    long = {"long_bytes": min(10_000_000, min(f.bytes or 0 for f in work.flows) // 4 + 1)}
    cases = []
    for name, cca in _CCAS_4.items():
        if settings.fast and name not in ("CUBIC", "BBR"):
            continue
        scenario = work.replace({"flows.*.cca": cca})
        about = {"flows": name, "queues": 1, "scheme": "one queue"}
        cases.append(Case(about, scenario, sample_s=10.0))
        for k in _QUEUES_4 if not settings.fast else (4,):
            about = {"flows": name, "queues": k, "scheme": "RTT"}
            cases.append(Case(about, scenario, k=min(k, len(set(rtts))), options=long, sample_s=10.0))
        for scheme in ("CCA", "buffer"):
            cases.append(
                Case({"flows": name, "queues": 1, "scheme": scheme}, scenario, options=long, sample_s=10.0)
            )
    by_rtt = {"flows": "CUBIC", "queues": 4, "scheme": "RTT", "shares": "by RTT"}
    cubic = work.replace({"flows.*.cca": "cubic"})
    cases.append(Case(by_rtt, cubic, k=4, options=long | {"shares": "rtt"}, sample_s=10.0))
    return cases


def _table_4(settings: Settings, found: Sequence[Outcome]) -> pd.DataFrame:
    import numpy as np

    base = {o.about["flows"]: o for o in found if o.about["scheme"] == "one queue"}
    rows = []
    for o in found:
        both = o.flows.completion_s.notna() & base[o.about["flows"]].flows.completion_s.notna()
        times, before = o.flows.completion_s[both], base[o.about["flows"]].flows.completion_s[both]
        rows.append(
            {"shares": "by flows"}
            | o.about
            | {
                "completed": int(o.flows.completion_s.notna().sum()),
                "of": len(o.flows),
                "mean_fct_s": times.mean(),
                "median_fct_s": times.median(),
                "p95_fct_s": float(np.quantile(times, 0.95)) if len(times) else math.nan,
                "fct_reduction": 1 - times.mean() / before.mean(),
                "jain_of_slowdown": _jain_of_slowdown(settings, o, both.to_numpy()),
                "retransmits": int(o.flows.retransmits.sum()),
                "mean_rtt_ms": o.flows.mean_rtt_ms.mean(),
                "last_end_s": float(o.flows.end_s.max()),
                "utilisation": float(
                    o.flows.received_bytes.sum()
                    * 8e-6
                    * 1514
                    / 1448
                    / o.flows.end_s.max()
                    / settings.rate_mbps
                ),
            }
        )
    return _frame(rows)


# ---- what test 4 depends on ------------------------------------------------------------------------------------------

#: Each changes one thing of test 4: load, room in the one queue (in BDPs of the largest RTT), classes, shares.
_CONDITIONS_8 = {
    "as in test 4": (0.9, 1.0, 4, "flows"),
    "one class, beginners apart": (0.9, 1.0, 1, "flows"),
    "shares by RTT": (0.9, 1.0, 4, "rtt"),
    "load 0.6": (0.6, 1.0, 4, "flows"),
    "load 3": (3.0, 1.0, 4, "flows"),
    "one queue of 4 BDP": (0.9, 4.0, 4, "flows"),
    "one queue of BDP / 4": (0.9, 0.25, 4, "flows"),
}
_TRANSFERS_8 = 60


def _cases_8(settings: Settings) -> list[Case]:
    n = 12 if settings.fast else _TRANSFERS_8
    options = {"long_bytes": 100_000 if settings.fast else 10_000_000}
    cases = []
    for seed in range(1, settings.seeds + 1):
        for condition, (load, bdps, k, shares) in _CONDITIONS_8.items():
            work = sample_transfers(settings, n, load, seed)
            room = work.bottleneck.buffer_bytes
            assert room is not None  # as sample_transfers makes it
            work = work.replace({"bottleneck.buffer_bytes": round(bdps * room)})
            about = {"condition": condition, "seed": seed}
            if (load, bdps) != (0.9, 1.0) or condition == "as in test 4":
                cases.append(Case(about | {"scheme": "one queue"}, work, sample_s=10.0))
            more = options | {"shares": shares}
            cases.append(Case(about | {"scheme": "RTT"}, work, k=k, options=more, sample_s=10.0))
    return cases


def _table_8(settings: Settings, found: Sequence[Outcome]) -> pd.DataFrame:
    by = {(o.about["condition"], o.about["scheme"], o.about["seed"]): o for o in found}
    rows = []
    for condition in _CONDITIONS_8:
        reductions, fairness, times, completed = [], [], [], []
        for seed in range(1, settings.seeds + 1):
            separated = by[condition, "RTT", seed]
            same = condition if (condition, "one queue", seed) in by else "as in test 4"
            one = by[same, "one queue", seed]
            both = (separated.flows.completion_s.notna() & one.flows.completion_s.notna()).to_numpy()
            before, after = (o.flows.completion_s[both] for o in (one, separated))
            completed.append(both.mean())
            reductions.append(1 - after.mean() / before.mean())
            times.append((before.mean(), after.mean()))
            fairness.append([_jain_of_slowdown(settings, o, both) for o in (one, separated)])
        change, slow, fair = _frame({"c": c} for c in reductions).c, _mean(times), _mean(fairness)
        rows.append(
            {
                "condition": condition,
                "fct_reduction": change.mean(),
                "least": change.min(),
                "most": change.max(),
                "completed": min(completed),
                "one_queue_fct_s": slow[0],
                "separated_fct_s": slow[1],
                "one_queue_jain_of_slowdown": fair[0],
                "separated_jain_of_slowdown": fair[1],
            }
        )
    return _frame(rows)


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    import numpy as np

    return np.mean(rows, axis=0).tolist()


def _jain_of_slowdown(settings: Settings, o: Outcome, of: np.ndarray) -> float:
    """Jain's index of completion times over the time the transfer needs alone on the link."""
    from ..analysis.metrics import jain_index

    return float(
        jain_index(o.flows.completion_s[of] / (o.flows.received_bytes[of] * 8e-6 / settings.rate_mbps))
    )


# ---- test 5: a quiet flow and a loud one -----------------------------------------------------------------------------


def _cases_5(settings: Settings) -> list[Case]:
    flows = [
        _flow("cubic", 20.0, rate_mbps=0.3 * settings.rate_mbps, name="flow 1"),
        _flow("cubic", 20.0, start_s=settings.time_s(60), name="flow 2"),
    ]
    scenario = _scenario(settings, flows, 200, settings.time_s(120))
    return [
        Case({"scheme": scheme}, scenario, sample_s=0.1)
        for scheme in ("one queue", "RTT", "RTT and threshold", "CCA", "buffer")
    ]


def _table_5(settings: Settings, found: Sequence[Outcome]) -> pd.DataFrame:
    rows = []
    joined, stop = settings.time_s(60), settings.time_s(120)
    for o in found:
        series = o.flow_series[o.flow_series.flow_id == 0].set_index("ts_ns").rtt_ns / 1e6
        series.index = series.index / 1e9
        after, late = series[series.index > joined], series[series.index > joined + 10]
        rows.append(
            o.about
            | {
                "base_rtt_ms": series.min(),
                "median_after_ms": after.median(),
                "p95_after_ms": after.quantile(0.95),
                "max_after_ms": after.max(),
                "p95_over_base": late.quantile(0.95) / 20.0,
                "flow_1_mbps": o.mean_mbps(joined, stop)[0],
                "flow_2_mbps": o.mean_mbps(joined, stop)[1],
                "utilisation": o.utilisation(joined + 5, stop),
            }
        )
    return _frame(rows)


# ---- test 6: UDP that does not yield ---------------------------------------------------------------------------------


def _cases_6(settings: Settings) -> list[Case]:
    flows = [_flow("udp", 20.0, rate_mbps=settings.rate_mbps, name="UDP")] + [
        _flow("cubic", 20.0, start_s=settings.time_s(60 * i), name=f"TCP {i}") for i in (1, 2, 3)
    ]
    scenario = _scenario(settings, flows, 20, settings.time_s(240))
    return [Case({"scheme": s}, scenario) for s in ("one queue", "RTT", "RTT, hard limits", "CCA", "buffer")]


def _table_6(settings: Settings, found: Sequence[Outcome]) -> pd.DataFrame:
    from ..analysis.metrics import jain_index

    rows = []
    for o in found:
        for n in (0, 1, 2, 3):
            start, stop = settings.time_s(60 * n + 15), settings.time_s(60 * (n + 1))
            rates = o.mean_mbps(start, stop).to_numpy()[: n + 1]
            fair = settings.rate_mbps / (n + 1)
            rows.append(
                o.about
                | {
                    "tcp_flows": n,
                    "jain_index": jain_index(rates),
                    "udp_mbps": rates[0],
                    "tcp_least_mbps": rates[1:].min() if n else math.nan,
                    "tcp_over_fair_share": rates[1:].mean() / fair if n else math.nan,
                    "utilisation": o.utilisation(start, stop),
                }
            )
    return _frame(rows)


# ---- the scaling test of section 4.5 ---------------------------------------------------------------------------------

_FLOWS_7 = (100, 300, 1000, 3000, 10_000)
_CENTRES_7 = (10.0, 40.0, 90.0, 180.0)


def scaling(settings: Settings, repeat: int = 5) -> pd.DataFrame:
    """Control-plane time and classification accuracy with many flows.

    Flows have RTTs around four values (normal, 5 % of the value), and send a few packets in a simulation. A switch
    measures them with tables of 2**14 entries a stage (:class:`~cctoolkit.DataPlaneTables`), and classes are made
    of the least RTT of each flow that has a sample. Accuracy is the part of all flows that come into the class
    that the exact breaks of the true RTTs would put them in; ``measured`` is the part with a sample.

    Returns
    -------
    DataFrame
        ``flows``, ``measured``, ``accuracy``, ``accuracy_measured`` (of those with a sample), and medians of CPU time:
        ``jenks_ms`` (the exact classes alone), ``algorithm_1_ms``, ``decide_ms`` (a whole step of the controller
        with all flows new) and ``again_ms`` (with all RTTs measured anew by 2 %).
    """
    import time

    import numpy as np
    import pandas as pd

    from ..analysis.rtt import DataPlaneTables, rtt_samples
    from ..scenario import Bottleneck, Flow, Scenario
    from ..separation.controller import RttSeparation
    from ..separation.jenks import jenks_classes
    from ..sim.simulation import simulate

    def milliseconds(function: Callable[[], Any]) -> float:
        spent = []
        for _ in range(repeat):
            started = time.process_time()  # of the processor: others on the machine do not count
            function()
            spent.append(time.process_time() - started)
        return float(np.median(spent) * 1e3)

    rows = []
    for n in _FLOWS_7 if not settings.fast else _FLOWS_7[:3]:
        rng = np.random.default_rng([7, n])
        true = rng.choice(_CENTRES_7, n)
        true = np.maximum(true * rng.normal(1, 0.05, n), 1.0)
        flows = tuple(
            Flow("cubic", rtt_ms=float(r), bytes=30 * 1448, start_s=float(s))
            for r, s in zip(true, rng.uniform(0, 1, n), strict=True)
        )
        bottleneck = Bottleneck(rate_mbps=10_000, buffer_packets=10_000)
        made = simulate(Scenario(bottleneck=bottleneck, flows=flows, duration_s=3), sample_s=None)
        assert made.ingress is not None
        tables = DataPlaneTables(table_size=1 << 14)
        samples = rtt_samples(made.ingress, "data_plane", tables=tables)
        least = samples[samples.direction == 0].groupby("flow_id").rtt_ns.min().reindex(range(n)) / 1e6
        there = least.notna().to_numpy()
        measured = least.to_numpy()[there]
        right = jenks_classes(true, 4).labels[there] == jenks_classes(measured, 4).labels
        metrics = pd.DataFrame(
            {
                "flow_id": np.arange(len(measured)),
                "protocol": 6,
                "rtt_ms": measured,
                "latest_rtt_ms": measured,
                "throughput_mbps": 1.0,
                "offered_mbps": 1.0,
                "is_long": True,
            }
        )
        controller = RttSeparation(10_000, 4)
        controller.decide(metrics, 0.0)
        again = metrics.assign(rtt_ms=metrics.rtt_ms * rng.uniform(1, 1.02, len(metrics)))
        jenks_classes(measured, 4)
        rows.append(
            {
                "flows": n,
                "measured": there.mean(),
                "accuracy": right.sum() / n,
                "accuracy_measured": right.mean(),
                "jenks_ms": milliseconds(lambda m=measured: jenks_classes(m, 4)),  # type: ignore[misc]
                "algorithm_1_ms": milliseconds(lambda m=measured: jenks_classes(m, 4, "paper")),  # type: ignore[misc]
                "decide_ms": milliseconds(lambda m=metrics: RttSeparation(10_000, 4).decide(m, 0.0)),  # type: ignore[misc]
                "again_ms": milliseconds(lambda c=controller, m=again: c.decide(m, 1.0)),  # type: ignore[misc]
            }
        )
    return _frame(rows)


# ---- all of it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """One of the paper's tests, or one of ours about it: its title, what to run and what to make of it."""

    __test__ = False  # the name starts with "Test", and pytest would collect it

    title: str
    cases: Callable[[Settings], list[Case]]
    table: Callable[[Settings, Sequence[Outcome]], pd.DataFrame]


TESTS = {
    1: Test("Four flows that come and go (section 4.1, figure 5)", _cases_1, _table_1),
    2: Test("What one does not use, others get (section 4.2, figure 6)", _cases_2, _table_2),
    3: Test("Two flows, further and further apart (section 4.3, figure 7)", _cases_3, _table_3),
    4: Test("Completion times of large transfers (section 4.4, figure 8)", _cases_4, _table_4),
    5: Test("A quiet flow and a loud one (section 4.5, figure 9)", _cases_5, _table_5),
    6: Test("UDP that does not yield (section 4.6, figure 10)", _cases_6, _table_6),
    8: Test("What the result of test 4 depends on (not in the paper)", _cases_8, _table_8),
}
SCALING = 7
#: Those that real Linux can run too.
TESTBED_TESTS = (1, 3)


def paper(test: int) -> pd.DataFrame:
    """What the paper says of a test (7: the scaling test; 8: of test 4; 0: Table 1)."""
    item = {0: "Table 1", SCALING: "scaling", 8: "test 4"}.get(test, f"test {test}")
    return paper_numbers("rtt-flow-separation", item).drop(columns="item")


def table_1(first: pd.DataFrame | None, fourth: pd.DataFrame | None) -> pd.DataFrame:
    """The paper's Table 1, measured: how much better than one queue each scheme is, on the same scenarios.

    Parameters
    ----------
    first, fourth : DataFrame, optional
        The tables of tests 1 and 4.

    Returns
    -------
    DataFrame
        ``scheme``, ``fairness_gain_…_percent`` (of Jain's index, test 1, by flows), ``utilisation_…`` (over that
        of one queue) and ``fct_reduction_…`` (test 4 with four queues, by congestion control).
    """
    rows: dict[str, dict[str, Any]] = {s: {"scheme": s} for s in ("CCA", "buffer", "RTT", "RTT, hard limits")}
    if first is not None:
        for name, part in first.groupby("flows", sort=False):
            base = part.set_index("scheme").loc["one queue"]
            for r in part[part.scheme != "one queue"].to_dict("records"):
                key = str(name).replace(" ", "_").lower()
                gain = r["jain_index"] / base.jain_index - 1
                rows[r["scheme"]][f"fairness_gain_{key}_percent"] = 100 * gain
                rows[r["scheme"]][f"utilisation_{key}"] = r["utilisation"] / base.utilisation
    if fourth is not None:
        part = fourth[(fourth.shares == "by flows") & (fourth.queues.isin([1, 4]))]
        for r in part[part.scheme != "one queue"].to_dict("records"):
            rows[r["scheme"]][f"fct_reduction_{r['flows'].lower()}"] = r["fct_reduction"]
    return _frame(rows.values())


def run(
    output: OutputOption = Path("rtt-separation"),
    *,
    test: Annotated[
        list[int] | None,
        typer.Option(
            help="1 to 6, 7 for the scaling test, 8 for what test 4 depends on; may be given again. Default: all."
        ),
    ] = None,
    fast: Annotated[
        bool, typer.Option(help="A tenth of the rate and shorter: to look, not to cite.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Of tests 1 and 3; samples of test 8.", min=1)] = 3,
    scale: Annotated[
        float, typer.Option(help="Test 4: part of its 6000 transfers (1: all).", min=1e-4, max=1.0)
    ] = 0.02,
    capture: Annotated[
        Path | None,
        typer.Option(
            help="Test 4: take the transfers from this capture [default: the paper's MAWI day if it is in the "
            "cache, else a documented sample]."
        ),
    ] = None,
    min_bytes: Annotated[int, typer.Option(help="Test 4: least payload of those.", min=1)] = 10_000_000,
    testbed: Annotated[
        bool,
        typer.Option(
            "--testbed",
            help="Tests 1 and 3 in a small form, in the simulator and on real Linux (cct testbed).",
        ),
    ] = False,
    workers: WorkersOption = None,
) -> Path:
    """Run tests and write tables, figures and a summary.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ParameterError
        An option that cannot be.
    """
    import sys

    from ..capture.mawi import mawi_path
    from ._rtt_separation_figures import FIGURES, scaling_figure

    known = TESTBED_TESTS if testbed else sorted((*TESTS, SCALING))
    chosen = sorted(set(test or known))
    for number in chosen:
        if number not in known:
            raise ParameterError(f"test: {number} is none of {', '.join(map(str, known))}")
    if capture is None and not fast:
        capture = mawi_path(MAWI_DAY)
    settings = Settings(fast, 1 if fast or testbed else seeds, scale, capture, min_bytes, testbed)
    options = {"test": chosen, "fast": fast, "seeds": settings.seeds, "scale": scale, "capture": capture}
    options |= {"testbed": True} if testbed else {}
    folder = Folder(output, "rtt-separation", options)
    tables: dict[int, pd.DataFrame] = {}
    blocks = []
    for number in chosen:
        if number == SCALING:
            title, table = "Many flows (section 4.5)", scaling(settings)
            folder.figure("scaling", scaling_figure(table))
        else:
            one = TESTS[number]
            title = one.title
            found = outcomes(one.cases(settings), workers, progress=sys.stderr.isatty())
            table = one.table(settings, found)
            for where in dict.fromkeys(o.about.get("where", "") for o in found):
                here = table[table["where"] == where] if where else table
                shown = [o for o in found if o.about.get("where", "") == where]
                for name, figure in FIGURES[number](settings, shown, here).items():
                    folder.figure(f"test{number}-{name}{f'-{where.lower()}' if where else ''}", figure)
        tables[number] = table
        folder.table("scaling" if number == SCALING else f"test{number}", table)
        blocks += [
            f"## Test {number}. {title}" if number != SCALING else f"## {title}",
            markdown_table(table),
        ]
        blocks += ["The paper:", markdown_table(paper(number))]
    if not testbed and (1 in tables or 4 in tables):
        compared = table_1(tables.get(1), tables.get(4))
        folder.table("table1", compared)
        blocks += [
            "## Table 1, measured: gains over one queue on the same scenarios",
            markdown_table(compared),
            "The paper:",
            markdown_table(paper(0)),
        ]
    schemes = "Schemes: " + "; ".join(f"**{name}**: {what}" for name, what in SCHEMES.items()) + "."
    folder.summary("Separation of flows by RTT", schemes, *blocks)
    return folder.path
