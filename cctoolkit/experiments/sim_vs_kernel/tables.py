"""Measurements compared between simulator and kernel, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..._support.ethernet import FULL_FRAME_BYTES
from ...analysis.metrics import queue_delay
from ...errors import ParameterError, TestbedUnavailableError
from ...scenario.run import Run
from .scenarios import Job, Settings

__all__ = ["QUANTITIES", "compare", "measure"]

#: What is compared: name, meaning, and the smallest amount that errors are relative to (None: see :func:`compare`).
QUANTITIES = {
    "utilisation": ("share of the link's rate used", 0.05),
    "mean delay": ("in the queue, of packets that left, ms", None),
    "95 % delay": ("95th percentile of the same, ms", None),
    "loss": ("share of packets lost in the queue", 1e-3),
    "marks": ("share of packets that left with CE", 1e-3),
    "share": ("of the bytes that left, each flow's, with several flows", 0.02),
}


def measure(run: Run, *, warmup_s: float) -> list[dict[str, Any]]:
    """Measure the compared quantities, from the two taps only.

    Parameters
    ----------
    run : Run
        A run with both taps and a scenario, through a link that shapes (its egress tap stamps a packet's first byte).
        Packets with payload from the flows' initiators count, from `warmup_s` after the start of the run to the end of
        the scenario.
    warmup_s : float
        Time to leave out at the start, in s.

    Returns
    -------
    list of dict
        ``quantity`` (of :data:`QUANTITIES`), ``flow`` (its number for shares, else -1) and ``value`` (NaN without
        packets).

    Raises
    ------
    ParameterError
        The run has no taps or no scenario.
    """
    if run.ingress is None or run.egress is None or run.scenario is None:
        raise ParameterError("run: a measurement needs both taps and the scenario")
    rate_mbps = run.scenario.bottleneck.rate_mbps
    begin_ns, end_ns = (run.start_ns + round(s * 1e9) for s in (warmup_s, run.scenario.duration_s))

    came = queue_delay(run.ingress, run.egress, check_taps=False)
    came = came[(came.payload_bytes > 0) & (came.direction == 0) & came.ts_ns.between(begin_ns, end_ns)]
    left = came[came.delay_ns.notna()]
    delay_ms = left.delay_ns.to_numpy(np.float64) / 1e6

    sent = run.egress.packets
    sent = sent[(sent.payload_bytes > 0) & (sent.direction == 0) & sent.ts_ns.between(begin_ns, end_ns)]
    total = int(sent.wire_bytes.sum())
    found = {
        "utilisation": total * 8e-6 / rate_mbps / ((end_ns - begin_ns) / 1e9),
        "mean delay": float(delay_ms.mean()) if len(delay_ms) else np.nan,
        "95 % delay": float(np.percentile(delay_ms, 95)) if len(delay_ms) else np.nan,
        "loss": float(came.lost.dropna().astype(float).mean()),
        "marks": float((sent.ecn == 3).mean()),
    }
    rows = [{"quantity": name, "flow": -1, "value": value} for name, value in found.items()]
    flows = sorted(run.flows.flow_id) if len(run.flows) > 1 else []
    by_flow = sent.groupby("flow_id").wire_bytes.sum()
    return rows + [
        {"quantity": "share", "flow": i, "value": by_flow.get(flow, 0) / total if total else np.nan}
        for i, flow in enumerate(flows)
    ]


def compare(measured: pd.DataFrame) -> pd.DataFrame:
    """The error of each quantity in each case.

    Parameters
    ----------
    measured : DataFrame
        ``case``, ``side`` (``kernel`` or ``simulator``), ``seed``, ``quantity``, ``flow``, ``value`` and the columns of
        a case, such as ``rate_mbps``.

    Returns
    -------
    DataFrame
        One row per case and quantity: the case, ``kernel`` and ``simulator`` (means over the seeds), and, relative to
        the kernel's mean or the quantity's smallest amount (:data:`QUANTITIES`; for delays one packet's sending time),
        whichever is larger: ``error`` (the simulator's mean minus the kernel's), ``kernel_spread`` (standard deviation
        over the kernel's seeds) and ``noise`` (standard error of the difference of both means). Losses and marks that
        are zero on both sides are left out.
    """
    about = [c for c in measured.columns if c not in ("side", "seed", "value")]

    def side(name: str) -> pd.DataFrame:
        groups = measured[measured.side == name].groupby(about, sort=False).value
        return pd.DataFrame(
            {name: groups.mean(), f"{name}_std": groups.std(ddof=1), f"{name}_n": groups.count()}
        )

    table = side("kernel").join(side("simulator")).reset_index()
    packet_ms = FULL_FRAME_BYTES * 8e-3 / table.rate_mbps.astype(float)
    least = table.quantity.map({name: floor for name, (_, floor) in QUANTITIES.items()}).astype(float)
    scale = np.maximum(table.kernel.abs(), least.fillna(packet_ms))
    table["error"] = (table.simulator - table.kernel) / scale
    table["kernel_spread"] = table.kernel_std / scale
    variance = table.kernel_std**2 / table.kernel_n + table.simulator_std**2 / table.simulator_n
    table["noise"] = np.sqrt(variance) / scale
    nothing = table.quantity.isin(["loss", "marks"]) & (table.kernel == 0) & (table.simulator == 0)
    columns = [*about, "kernel", "simulator", "error", "kernel_spread", "noise"]
    return table.loc[~nothing, columns].reset_index(drop=True)


# ---- tables of many runs ---------------------------------------------------------------------------------------------

#: Cases with the largest errors whose first runs are drawn.
DRAWN = 6


def rows(job: Job, run: Run | TestbedUnavailableError) -> list[dict[str, Any]] | tuple[str, str]:
    """One row per quantity; the case and the reason where the kernel cannot run it."""
    if isinstance(run, TestbedUnavailableError):
        return job.case.name, str(run)
    return [job.about | row for row in measure(run, warmup_s=job.warmup_s)]


def grid(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``runs`` (every measurement), ``errors`` (:func:`compare`), their medians ``by_cca``, ``by_aqm`` and
    ``by_quantity``, ``overall``, ``worst`` (series of the largest errors) and ``left_out`` (cases that the kernel
    cannot run).

    Raises
    ------
    TestbedUnavailableError
        The kernel can run none of the cases.
    ParameterError
        There is nothing to compare.
    """
    left_out: dict[str, str] = dict(one for one in found if isinstance(one, tuple))
    every = [row for one in found if not isinstance(one, tuple) for row in one if row["case"] not in left_out]
    if not every:
        raise TestbedUnavailableError(next(iter(left_out.values())))
    runs = pd.DataFrame(every).sort_values(
        ["case", "side", "seed", "flow", "quantity"], kind="stable", ignore_index=True
    )
    errors = compare(runs)
    if errors.empty:
        raise ParameterError("only: there is nothing to compare in these cases")
    return {
        "runs": runs,
        "errors": errors,
        "by_cca": medians(by_cca(errors), "cca"),
        "by_aqm": medians(errors, "aqm"),
        "by_quantity": by_quantity(errors),
        "overall": overall(settings, errors),
        "worst": worst(settings, errors),
        "left_out": pd.DataFrame(list(left_out.items()), columns=["case", "why"]),
    }


def worst(settings: Settings, errors: pd.DataFrame) -> pd.DataFrame:
    """Windows and queueing delays over time of the cases with the largest errors, first run of each side.

    Returns
    -------
    DataFrame
        ``rank``, ``case``, ``side``, ``series`` (``window`` in packets, or ``delay`` in ms), ``flow`` (number; -1 for
        the delay), ``name``, ``time_s``, ``value``.
    """
    size = errors.assign(size=errors.error.abs())
    names = size.nlargest(len(size), "size").case.unique()[:DRAWN]
    first = {(job.case.name, job.side): job for job in settings.jobs() if job.seed == 1}
    tables = []
    for rank, name in enumerate(names, 1):
        for side in ("kernel", "simulator"):
            run = first[name, side].run()
            assert isinstance(run, Run)
            tables.append(over_time(run).assign(rank=rank, case=name, side=side))
    return pd.concat(tables, ignore_index=True)


def over_time(run: Run) -> pd.DataFrame:
    """Windows of each flow, and the mean queueing delay of each tenth of a second."""
    assert run.ingress is not None and run.egress is not None
    series = run.flow_series[run.flow_series.cwnd_packets < 1e6]
    tables = []
    for i, flow in enumerate(sorted(run.flow_series.flow_id.unique())):
        mine = series[series.flow_id == flow]
        seconds = (mine.ts_ns.to_numpy() - run.start_ns) / 1e9
        window = pd.DataFrame({"time_s": seconds, "value": mine.cwnd_packets.to_numpy(float)})
        tables.append(window.assign(series="window", flow=i, name=run.flows.name[i]))
    delays = queue_delay(run.ingress, run.egress, check_taps=False)
    delays = delays[(delays.payload_bytes > 0) & delays.delay_ns.notna()]
    tenth = ((delays.ts_ns - run.start_ns) // 10**8).to_numpy()
    mean = delays.delay_ns.astype(np.float64).groupby(tenth).mean() / 1e6
    delay = pd.DataFrame({"time_s": mean.index.to_numpy() / 10, "value": mean.to_numpy()})
    return pd.concat([*tables, delay.assign(series="delay", flow=-1, name="delay")], ignore_index=True)


def names_of(joined: Sequence[str] | pd.Series) -> list[str]:
    """The names in texts that join them by +, each once."""
    return list(dict.fromkeys(name for names in joined for name in str(names).split("+")))


def by_cca(errors: pd.DataFrame) -> pd.DataFrame:
    """The errors with a column ``cca``; cases of several congestion controls count for each."""
    return pd.concat(
        [errors.assign(cca=cca)[[cca in c.split("+") for c in errors.ccas]] for cca in names_of(errors.ccas)]
    )


def medians(errors: pd.DataFrame, by: str) -> pd.DataFrame:
    """Median absolute errors in percent: a row for each value of `by`, a column for each quantity.

    Returns
    -------
    DataFrame
        `by`, ``cases``, the quantities, ``all`` of them, and ``kernel spread``.
    """
    error = errors.assign(error=100 * errors.error.abs())
    wide = error.pivot_table(index=by, columns="quantity", values="error", aggfunc="median", sort=False)
    wide = wide[[q for q in QUANTITIES if q in wide]]
    groups = error.groupby(by, sort=False)
    wide["all"] = groups.error.median()
    wide["kernel spread"] = 100 * groups.kernel_spread.median()
    wide.insert(0, "cases", groups.case.nunique())
    return wide.reset_index().rename_axis(columns=None)


def overall(settings: Settings, errors: pd.DataFrame) -> pd.DataFrame:
    """One row: how much was compared, and how close it is.

    Returns
    -------
    DataFrame
        ``cases``, ``seeds``, ``kernel_seeds``, ``compared``; median absolute errors in percent: ``median_error``,
        ``single_flows`` and ``pairs``; ``within_10`` (percent of the errors), ``kernel_spread`` (median, percent);
        ``above_10`` (how many errors) and ``above_10_noise`` (how many of these within twice the noise).
    """
    size = 100 * errors.error.abs()
    large = errors[size > 10]
    is_pair = errors.ccas.str.contains("+", regex=False)
    return pd.DataFrame(
        [
            {
                "cases": errors.case.nunique(),
                "seeds": settings.seeds,
                "kernel_seeds": settings.kernel_seeds,
                "compared": len(errors),
                "median_error": size.median(),
                "single_flows": size[~is_pair].median(),
                "pairs": size[is_pair].median(),
                "within_10": 100 * (size <= 10).mean(),
                "kernel_spread": 100 * errors.kernel_spread.median(),
                "above_10": len(large),
                "above_10_noise": int((large.error.abs() <= 2 * large.noise.fillna(0)).sum()),
            }
        ]
    )


def by_quantity(errors: pd.DataFrame) -> pd.DataFrame:
    """Errors of each quantity in percent: how many, median, 90th percentile, mean with sign, the kernel's spread."""
    found = []
    for name, (meaning, least) in QUANTITIES.items():
        mine = errors[errors.quantity == name]
        size = mine.error.abs()
        found.append(
            {
                "quantity": name,
                "meaning": meaning,
                "least": "one packet's sending time" if least is None else f"{least:g}",
                "compared": len(mine),
                "median error, %": 100 * size.median(),
                "90 %": 100 * size.quantile(0.9),
                "mean (sign)": 100 * mine.error.mean(),
                "kernel spread, %": 100 * mine.kernel_spread.median(),
            }
        )
    return pd.DataFrame(found)
