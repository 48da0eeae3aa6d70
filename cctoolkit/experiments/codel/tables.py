"""From the P4-CoDel experiment's runs to tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...analysis.metrics import jain_index, queue_delay
from ...errors import ParameterError
from ...scenario.run import Run
from ..papers import paper_numbers
from ..runners import Case, Row
from ..seeds import spread
from .scenarios import KERNEL_TARGETS, RATE_MBPS, Settings
from .variants import SQUARE_ROOTS, gap_ms

__all__ = ["by_flow", "measured", "packet_delays", "paper_table_1", "standing"]


# ---- one run ---------------------------------------------------------------------------------------------------------


def measured(run: Run) -> dict[str, float]:
    """A run in the paper's quantities: loss, and latency of the device (time in its queue), both of all packets.

    Returns
    -------
    dict
        ``packets`` that arrived, ``loss_percent`` of them, ``mean_delay_ms``, ``later_delay_ms`` (mean from 1 s on, so
        without the first burst), ``max_delay_ms``, ``utilisation`` and ``jain_index``.
    """
    found = run.summary()
    return {
        "packets": float(run.queues.arrived_packets.sum()),
        "loss_percent": 100 * found["drop_share"],
        "mean_delay_ms": found["mean_delay_ms"],
        "later_delay_ms": _later_delay_ms(run),
        **{name: found[name] for name in ("max_delay_ms", "utilisation", "jain_index")},
    }


def _later_delay_ms(run: Run, after_s: float = 1.0) -> float:
    """From the taps, or from the queues' counters if nothing was recorded."""
    if run.ingress is not None and run.egress is not None:
        delays = packet_delays(run)
        return float(delays[delays.time_s >= after_s].delay_ms.mean())
    if not len(run.queue_series):
        return float("nan")
    sums = run.queue_series.groupby("ts_ns")[["delay_sum_ns", "sent_packets"]].sum()
    later = sums[sums.index >= run.start_ns + after_s * 1e9]
    change = later.iloc[-1] - later.iloc[0]
    return float(change.delay_sum_ns / change.sent_packets / 1e6) if change.sent_packets > 0 else float("nan")


def standing(run: Run) -> dict[str, float]:
    """:func:`measured` for UDP on real Linux, its mean delay from the queue's length (Little's law).

    UDP packets carry no numbers, so once some are lost, two taps cannot show how long each packet waited.
    """
    queued_ms = run.queue_series.bytes * 8e-3 / RATE_MBPS
    return measured(run) | {"mean_delay_ms": float(queued_ms.mean()), "max_delay_ms": float(queued_ms.max())}


def by_flow(run: Run) -> dict[str, float]:
    """:func:`measured`, and of each flow by name ``… delay_ms`` (mean in the queue) and ``… mbps`` (goodput).

    Jain's index covers the flows that send as much as they can.
    """
    assert run.scenario is not None
    greedy = [flow.rate_mbps is None for flow in run.scenario.flow_list()]
    delays = packet_delays(run)
    mean_ms = delays.groupby("flow_id").delay_ms.mean()
    found = measured(run)
    for flow in run.flows.to_dict("records"):
        found[f"{flow['name']} delay_ms"] = float(mean_ms.get(flow["flow_id"], float("nan")))
        found[f"{flow['name']} mbps"] = flow["goodput_mbps"]
    return found | {"jain_index": jain_index(run.flows.goodput_mbps[greedy])}


def packet_delays(run: Run) -> pd.DataFrame:
    """How long each packet of the senders waited in the queue, from the two taps.

    Returns
    -------
    DataFrame
        ``flow_id``, ``time_s`` (at the ingress tap, since the start) and ``delay_ms``, without the packet's own sending
        time; lost packets are left out.

    Raises
    ------
    ParameterError
        The run has no taps.
    """
    if run.ingress is None or run.egress is None:
        raise ParameterError("run: its taps were not recorded (simulate(..., record=True))")
    delays = queue_delay(run.ingress, run.egress, check_taps=False)
    delays = delays[(delays.direction == 0) & (delays.payload_bytes > 0) & delays.delay_ns.notna()]
    waited_ms = delays.delay_ns.to_numpy(np.float64) / 1e6
    if run.events:  # the simulator's egress tap stamps the last byte, Linux's the first
        waited_ms -= delays.wire_bytes.to_numpy(np.float64) * 8e-3 / RATE_MBPS
    return pd.DataFrame(
        {
            "flow_id": delays.flow_id.to_numpy(),
            "time_s": (delays.ts_ns.to_numpy() - run.start_ns) / 1e9,
            "delay_ms": waited_ms,
        }
    )


def paper_table_1() -> pd.DataFrame:
    """The paper's table I: ``flows``, ``target``, ``paper_loss_percent``, ``paper_delay_ms``."""
    numbers = paper_numbers("p4-codel", "Table I")
    parts = numbers.setting.str.extract(r"(?P<flows>\d) flows?, (?P<target>.+)")
    table = pd.DataFrame(
        {
            "flows": parts.flows.astype(int),
            "target": parts.target,
            "quantity": numbers.quantity,
            "paper": numbers.paper.astype(float),
        }
    )
    wide = table.pivot_table(index=["flows", "target"], columns="quantity", values="paper").reset_index()
    return wide.rename(
        columns={"loss_percent": "paper_loss_percent", "mean_latency_ms": "paper_delay_ms"}
    ).rename_axis(columns=None)


#: A row a run, in the paper's quantities.
plain = Row(measured)


# ---- what the paper shows --------------------------------------------------------------------------------------------


def delays(case: Case, run: Run) -> tuple[Any, pd.DataFrame]:
    """The case and the delays of its packets."""
    return case.about, packet_delays(run)


def figure_5(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``figure5`` (one row per run) and ``figure5_packets`` (one row per packet)."""
    rows, parts = [], []
    for about, packets in found:
        later = packets[packets.time_s >= 0.5].delay_ms
        rows.append(
            {
                **about,
                "initial_peak_ms": packets[packets.time_s < 0.5].delay_ms.max(),
                "peak_after_ms": later.max(),
                "share_below_target_after": (later < 5).mean(),
                "mean_ms": packets.delay_ms.mean(),
            }
        )
        parts.append(packets.assign(target=about["target"], flows=about["flows"]))
    return {"figure5": pd.DataFrame(rows), "figure5_packets": pd.concat(parts, ignore_index=True)}


def table_1(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``table1`` (means over the seeds, beside the paper's) and ``table1_runs`` (one row per run)."""
    runs = pd.DataFrame(found)
    return {"table1": _beside_paper(runs), "table1_runs": runs}


def _beside_paper(runs: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds, and the paper's numbers.

    A target that the paper does not name is put beside the column it corresponds to.
    """
    target = runs.target.replace(KERNEL_TARGETS).replace({"P4-ASIC, published": "P4-ASIC"})
    runs = runs.assign(paper_target=target)
    means = spread(runs, ["flows", "target", "paper_target"])
    paper = paper_table_1().rename(columns={"target": "paper_target"})
    means = means.merge(paper, on=["flows", "paper_target"], how="left").drop(columns="paper_target")
    return means.sort_values("flows", kind="stable", ignore_index=True)


def minute(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``table1_minute``: means over the seeds, beside the paper's numbers, which are of 4 s."""
    return {"table1_minute": _beside_paper(pd.DataFrame(found))}


def udp(case: Case, run: Run) -> dict[str, Any]:
    """A row of the UDP scan; on real Linux the delay is from the queue's length."""
    return dict(case.about) | (standing if case.kernel is not None else measured)(run)


def figure_7(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``figure7``: one row per rate, target and kind of arrivals."""
    return {"figure7": pd.DataFrame(found).drop(columns="jain_index")}


# ---- what it leaves out ----------------------------------------------------------------------------------------------


def shares(run: Run) -> dict[str, float]:
    """:func:`measured`, and each flow's share of the goodput as ``share_1``, ``share_2``, …"""
    total = run.flows.goodput_mbps.sum()
    parts = {f"share_{i + 1}": mbps / total for i, mbps in enumerate(run.flows.goodput_mbps)}
    return measured(run) | parts


def different_rtts(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``rtts``: means over the seeds."""
    return {"rtts": spread(pd.DataFrame(found), ["rtts_ms", "target"])}


def flow_queueing(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``fq_codel``: means over the seeds."""
    return {"fq_codel": spread(pd.DataFrame(found), ["load", "queues", "target"])}


def with_entries(run: Run) -> dict[str, float]:
    """:func:`measured`, how often the dropping state was entered, and how often of these ``if_3`` applied."""
    stats = run.aqm_stats
    return measured(run) | {
        name: float(stats[name].sum()) for name in stats if name in ("entered", "resumed")
    }


def if_3(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``if_3``: means over the seeds."""
    return {"if_3": spread(pd.DataFrame(found), ["flows", "form", "if_3"])}


def with_count(run: Run) -> dict[str, float]:
    """:func:`measured`, and the largest count of drops in a dropping state where the algorithm keeps it."""
    stats = run.aqm_stats
    found = {"largest_count": float(stats.largest_count.max())} if "largest_count" in stats else {}
    return measured(run) | found


def square_roots(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``square_root`` (means over the seeds) and ``square_root_error`` (of each square root, by count)."""
    errors = pd.DataFrame(
        {"count": count, "square_root": name, "error": gap_ms(name, count) / gap_ms("exact", count) - 1}
        for name in SQUARE_ROOTS
        for count in range(1, 1025)
    )
    table = spread(pd.DataFrame(found), ["load", "square_root"])
    return {"square_root": table, "square_root_error": errors}


def around_the_wrap(case: Case, run: Run) -> Any:
    """A row for a run; for a recorded run its packets, delivered and lost."""
    if not case.record:
        return plain(case, run)
    assert run.drops is not None
    name = case.about["case"]
    lost = run.drops.ts_ns.to_numpy() / 1e9
    return pd.concat(
        [
            packet_delays(run).assign(case=name, lost=False),
            pd.DataFrame({"time_s": lost, "delay_ms": 0.0, "case": name, "lost": True}),
        ],
        ignore_index=True,
    )


def clock_wrap(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``clock`` (means over the seeds), ``clock_runs`` (one row per run) and ``clock_packets`` (of the drawn runs)."""
    runs = pd.DataFrame([row for row in found if isinstance(row, dict)])
    packets = [table for table in found if isinstance(table, pd.DataFrame)]
    table = spread(runs.drop(columns="clock_ms"), ["flows", "step"])
    return {"clock": table, "clock_runs": runs, "clock_packets": pd.concat(packets, ignore_index=True)}


def with_episodes(run: Run) -> dict[str, float]:
    """:func:`measured`, and how many flows lose a packet in one episode (drops less than 10 ms apart)."""
    assert run.drops is not None
    drops = run.drops.sort_values("ts_ns")
    episode = (drops.ts_ns.diff() > 10_000_000).cumsum()
    hit = drops.groupby(episode).flow_id.nunique().mean() if len(drops) else np.nan
    return measured(run) | {"flows_hit_at_once": float(hit)}


def npu_losses(settings: Settings, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``npu``: means over the seeds, beside the paper's."""
    paper = paper_table_1().query("target == 'P4-NPU'").drop(columns="target")
    return {"npu": spread(pd.DataFrame(found), ["guess", "flows"]).merge(paper, on="flows")}


def npu_off_by(table: pd.DataFrame) -> pd.Series:
    """How far each guess is from the paper's six numbers: the root mean square of the ratios' logarithms, as a factor
    less 1."""
    ratios = [table.loss_percent / table.paper_loss_percent, table.mean_delay_ms / table.paper_delay_ms]
    with np.errstate(divide="ignore"):  # without losses it is infinitely far off
        off = np.log(np.column_stack(ratios))
    squares = pd.Series((off**2).mean(axis=1), index=table.index).groupby(table.guess, sort=False).mean()
    return squares.map(np.sqrt).map(np.expm1)
