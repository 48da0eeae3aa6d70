"""From the RTT experiment's outcomes to tables."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..._support.ethernet import FULL_FRAME_BYTES, FULL_SEGMENT_BYTES
from ...analysis.metrics import jain_index
from ...analysis.rtt import DataPlaneTables, rtt_samples
from ...scenario import Bottleneck, Flow, Scenario
from ...separation.controller import RttSeparation, max_min_shares
from ...separation.jenks import jenks_classes
from ...sim.simulation import simulate
from ..papers import paper_numbers
from ..seeds import mean_and_min, min_and_max
from .cases import Outcome
from .logs import logged_bundles
from .scenarios import (
    CONDITIONS,
    LOGGED_SCHEMES,
    PARTS_2,
    PHASES_2,
    SCALING,
    SCALING_FLOWS,
    SCALING_RTTS_MS,
    Settings,
    places,
)

__all__ = ["paper", "scaling", "table_1"]


def paper(test: int) -> pd.DataFrame:
    """The paper's numbers for a test.

    Parameters
    ----------
    test : int
        1 to 6; 7: the scaling test; 8: test 4; 9: the abstract's average; 10: test 1; 11: test 3; 0: Table 1.

    Returns
    -------
    DataFrame
        As :func:`cctoolkit.paper_numbers`, without ``item``.

    Examples
    --------
    >>> paper(1).paper[0]
    '0.98'
    """
    item = {0: "Table 1", SCALING: "scaling", 8: "test 4", 9: "abstract", 10: "test 1", 11: "test 3"}.get(
        test, f"test {test}"
    )
    return paper_numbers("rtt-flow-separation", item).drop(columns="item")


# ---- series, for figures ---------------------------------------------------------------------------------------------


def goodputs(found: Iterable[Outcome]) -> pd.DataFrame:
    """Goodput over time: one row per outcome, name and second.

    Returns
    -------
    DataFrame
        The outcomes' columns, ``name``, ``end_s``, ``mbps``, ``is_there`` (whether a flow of that name was active for
        the whole second, starved or not) and ``link_mbps``.
    """
    tables = []
    for o in found:
        rates = o.rates_mbps("name")
        there = _there(o, rates)
        for name in dict.fromkeys(o.flows.name):
            tables.append(
                pd.DataFrame({"end_s": rates.index, "mbps": rates[name].to_numpy()}).assign(
                    **o.about,
                    name=name,
                    is_there=there[name].to_numpy(),
                    link_mbps=o.case.scenario.bottleneck.rate_mbps,
                )
            )
    return pd.concat(tables, ignore_index=True)


def _there(o: Outcome, rates: pd.DataFrame) -> pd.DataFrame:
    there = pd.DataFrame(False, index=rates.index, columns=rates.columns)
    end_s = rates.index.to_numpy(float)
    for flow in o.case.scenario.flow_list():
        name = flow.name if flow.name in rates else next(n for n in rates if flow.name.startswith(str(n)))
        there[name] |= (end_s - 1 >= flow.start_s - 1e-6) & (end_s <= (flow.stop_s or np.inf) + 1e-6)
    return there


def completions(found: Iterable[Outcome]) -> pd.DataFrame:
    """Completion times: one row per outcome and transfer."""
    return pd.concat(
        [
            pd.DataFrame({"completion_s": o.flows.completion_s}).assign(**{"shares": "by flows"} | o.about)
            for o in found
        ],
        ignore_index=True,
    )


def round_trips(found: Iterable[Outcome]) -> pd.DataFrame:
    """RTT samples over time: one row per outcome, flow (by number, from 1) and sample."""
    tables = []
    for o in found:
        series = o.flow_series[o.flow_series.rtt_ns > 0]
        tables.append(
            pd.DataFrame(
                {
                    "flow": series.flow_id.to_numpy() + 1,
                    "time_s": series.ts_ns.to_numpy() / 1e9,
                    "rtt_ms": series.rtt_ns.to_numpy() / 1e6,
                }
            ).assign(**o.about)
        )
    return pd.concat(tables, ignore_index=True)


# ---- the tests -------------------------------------------------------------------------------------------------------


def _jain_over_time(outcome: Outcome, step: float) -> float:
    """Mean of the index of the active flows, over the seconds with two or more."""
    rates = outcome.rates_mbps()
    found = []
    for end_s, row in rates.iterrows():
        there = [i for i in range(4) if i * step + 1 < float(end_s) <= (4 + i) * step]  # type: ignore[arg-type]
        if len(there) >= 2:
            found.append(jain_index(row.iloc[there]))
    return float(sum(found) / len(found))


def test_1(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test1`` (means over the seeds) and ``test1-goodput`` (one seed, over time)."""
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
    table = mean_and_min(pd.DataFrame(rows), ["flows", "scheme", *places(settings)[0]])
    drawn = [
        o
        for flows in ("CUBIC", "BBR")
        for scheme in ("one queue", "RTT")
        for o in found
        if (o.about["seed"], o.about["flows"], o.about["scheme"]) == (1, flows, scheme)
    ]
    over_time = goodputs(drawn)
    # without the congestion control, so that a flow has the same name and colour in all panels
    over_time["name"] = over_time.name.str.replace(r" \w+$", "", regex=True)
    return {"test1": table, "test1-goodput": over_time}


def test_2(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test2`` (one row per scheme and phase) and ``test2-goodput`` (over time)."""
    rows = []
    for o in found:
        for start, stop in PHASES_2:
            demand = {
                flow: math.inf if held is None else held for flow, a, b, held in PARTS_2 if a <= start < b
            }
            shares = max_min_shares(1000, list(demand.values()))
            fair = shares * FULL_SEGMENT_BYTES / FULL_FRAME_BYTES * settings.rate_mbps / 1000
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
    return {"test2": pd.DataFrame(rows), "test2-goodput": goodputs(found)}


def test_3(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test3``: means over the seeds, and of the short RTT's share the least and the most."""
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
    runs, keys = pd.DataFrame(rows), ["flows", "rtt_ms", "scheme", *places(settings)[0]]
    spread = min_and_max(runs, keys, "share_of_short_rtt").drop(columns="share_of_short_rtt")
    return {"test3": mean_and_min(runs, keys).merge(spread, on=keys)}


#: Stretches of test 4 that count as independent.
_STRETCHES = 30


def test_4(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test4`` (one row per case) and ``test4-completion`` (one row per transfer)."""
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
                **_reduction_interval(times.to_numpy(), before.to_numpy()),
                "jain_of_slowdown": _jain_of_slowdown(settings, o, both.to_numpy()),
                "retransmits": int(o.flows.retransmits.sum()),
                "mean_rtt_ms": o.flows.mean_rtt_ms.mean(),
                "last_end_s": float(o.flows.end_s.max()),
                "utilisation": float(
                    o.flows.received_bytes.sum()
                    * 8e-6
                    * FULL_FRAME_BYTES
                    / FULL_SEGMENT_BYTES
                    / o.flows.end_s.max()
                    / settings.rate_mbps
                ),
            }
        )
    return {"test4": pd.DataFrame(rows), "test4-completion": completions(found)}


def _reduction_interval(times: np.ndarray, before: np.ndarray) -> dict[str, float]:
    """95 % interval of the reduction, by bootstrap over stretches of transfers that start one after another.

    Transfers that run at the same time share the link, so neighbours are not independent.
    """
    stretches = np.array_split(np.arange(len(times)), min(_STRETCHES, max(len(times), 1)))
    sums = np.array([(times[part].sum(), before[part].sum()) for part in stretches])
    drawn = sums[np.random.default_rng(0).integers(len(sums), size=(1000, len(sums)))].sum(axis=1)
    low, high = np.quantile(1 - drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    return {"fct_reduction_low": float(low), "fct_reduction_high": float(high)}


def test_8(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test8``: each condition compared with its own one queue, or with that of test 4."""
    by = {(o.about["condition"], o.about["scheme"], o.about["seed"]): o for o in found}
    rows = []
    for condition in CONDITIONS:
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
        change, slow, fair = pd.Series(reductions), _mean(times), _mean(fairness)
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
    return {"test8": pd.DataFrame(rows)}


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return np.mean(rows, axis=0).tolist()


def _jain_of_slowdown(settings: Settings, o: Outcome, of: np.ndarray) -> float:
    """Jain's index of the transfers' slowdowns: completion time over the time needed alone on the link."""
    return float(
        jain_index(o.flows.completion_s[of] / (o.flows.received_bytes[of] * 8e-6 / settings.rate_mbps))
    )


def test_9(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test9``: means over the seeds, of TCP from a third of the run on; retransmissions of the whole run."""
    rows = []
    for o in found:
        stop = o.case.scenario.duration_s
        start = math.ceil(stop / 3)
        tcp = o.flows.cca != "udp"
        rates = o.mean_mbps(start, stop)[o.flows.flow_id[tcp]]
        rows.append(
            o.about
            | {
                "jain_index": jain_index(rates),
                "tcp_mbps": rates.sum(),
                "utilisation": o.utilisation(start, stop),
                "retransmits_percent": 100 * o.flows.retransmits[tcp].sum() / o.flows.sent_packets[tcp].sum(),
                "queue_ms": o.queue_ms(start, stop),
                "changes": o.changes(),
            }
        )
    return {"test9": mean_and_min(pd.DataFrame(rows), ["traffic", "scheme"])}


def test_10(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test10``: means over the seeds, of bundles; what the authors' logs say of the same ones, as ``logged_…``."""
    start, stop = settings.time_s(15), settings.time_s(40)
    rows = []
    for o in found:
        rates = o.mean_mbps(start, stop, by="name")
        rows.append(
            o.about
            | {
                "jain_index": jain_index(rates),
                "share_of_link": rates.sum() / settings.rate_mbps,
                "queue_ms": o.queue_ms(start, stop),
            }
        )
    keys = ["flows", "bundles", "streams", "streams_with", "scheme"]
    logged = logged_bundles().rename(columns={"queues": "streams_with"})
    logged["scheme"] = logged.streams_with.map(LOGGED_SCHEMES)
    logged = logged.rename(columns={name: f"logged_{name}" for name in logged if name not in keys})
    return {"test10": mean_and_min(pd.DataFrame(rows), keys).merge(logged, "left", keys)}


def test_11(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test11``: the short RTT's share of the goodput after a third of the run: mean and range over the seeds."""
    start, stop = settings.time_s(20), settings.time_s(60)
    rows = []
    for o in found:
        rates = o.mean_mbps(start, stop, by="name")
        short = min(o.case.scenario.flows, key=lambda flow: flow.rtt_ms).name
        rows.append(o.about | {"share_of_short_rtt": rates[short] / rates.sum()})
    keys = ["flows", "rtts", "streams", "buffer_ms"]
    return {"test11": min_and_max(pd.DataFrame(rows), keys, "share_of_short_rtt")}


def test_5(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test5`` (one row per scheme) and ``test5-rtt`` (RTT samples over time)."""
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
    drawn = [o for o in found if o.about["scheme"] in ("one queue", "RTT", "RTT and threshold")]
    return {"test5": pd.DataFrame(rows), "test5-rtt": round_trips(drawn)}


def test_6(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``test6`` (one row per scheme and number of TCP flows) and ``test6-goodput`` (over time)."""
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
    drawn = [o for o in found if o.about["scheme"] in ("one queue", "RTT")]
    return {"test6": pd.DataFrame(rows), "test6-goodput": goodputs(drawn)}


def scaling(settings: Settings, repeat: int = 5) -> pd.DataFrame:
    """Control-plane time and classification accuracy with many flows.

    Flows have RTTs around four values (normal, 5 % of the value), and send a few packets in a simulation. A switch
    measures them with tables of 2**14 entries per stage (:class:`~cctoolkit.DataPlaneTables`), and each flow with a
    sample is classified by its minimum RTT.

    Parameters
    ----------
    settings : Settings
    repeat : int
        Measurements of each time.

    Returns
    -------
    DataFrame
        ``flows``; ``measured``, the fraction with a sample; ``accuracy``, the fraction of all flows assigned to the
        class of their true RTT, and ``accuracy_measured``, the same among those with a sample; and medians of CPU time:
        ``jenks_ms`` (the exact classes alone), ``algorithm_1_ms``, ``decide_ms`` (a whole step of the controller with
        all flows new) and ``again_ms`` (with all RTTs changed by up to 2 %).
    """

    def milliseconds(function: Callable[[], Any]) -> float:
        spent = []
        for _ in range(repeat):
            started = time.process_time()  # CPU time: other processes do not count
            function()
            spent.append(time.process_time() - started)
        return float(np.median(spent) * 1e3)

    rows = []
    for n in SCALING_FLOWS if not settings.fast else SCALING_FLOWS[:3]:
        rng = np.random.default_rng([7, n])
        true = rng.choice(SCALING_RTTS_MS, n)
        true = np.maximum(true * rng.normal(1, 0.05, n), 1.0)
        flows = tuple(
            Flow("cubic", rtt_ms=float(r), bytes=30 * FULL_SEGMENT_BYTES, start_s=float(s))
            for r, s in zip(true, rng.uniform(0, 1, n), strict=True)
        )
        bottleneck = Bottleneck(rate_mbps=10_000, buffer_packets=10_000)
        made = simulate(Scenario(bottleneck=bottleneck, flows=flows, duration_s=3), sample_s=None)
        assert made.ingress is not None
        tables = DataPlaneTables(table_size=1 << 14)
        samples = rtt_samples(made.ingress, "data_plane", tables=tables)
        minimum = samples[samples.direction == 0].groupby("flow_id").rtt_ns.min().reindex(range(n)) / 1e6
        there = minimum.notna().to_numpy()
        measured = minimum.to_numpy()[there]
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
    return pd.DataFrame(rows)


def table_1(first: pd.DataFrame | None, fourth: pd.DataFrame | None) -> pd.DataFrame:
    """The paper's Table 1, measured: each scheme's gain over one queue on the same scenarios.

    Parameters
    ----------
    first, fourth : DataFrame, optional
        The tables of tests 1 and 4.

    Returns
    -------
    DataFrame
        ``scheme``, ``fairness_gain_…_percent`` (of Jain's index, test 1, by flows), ``utilisation_…`` (relative to one
        queue) and ``fct_reduction_…`` (test 4 with four queues, by congestion control).
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
    return pd.DataFrame(list(rows.values()))
