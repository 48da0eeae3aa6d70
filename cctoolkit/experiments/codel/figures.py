"""Figures of the P4-CoDel experiment, like the paper's where it has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...plot.style import COLOURS, GREY, INK, figure, line_of
from ...plot.thinning import thin_rows
from ..panels import panels
from .scenarios import KERNEL_TARGETS

__all__ = [
    "gaps",
    "guesses",
    "latency_over_time",
    "loss_and_latency",
    "losses_by_clock",
    "queueing",
    "reentry",
    "root_effect",
    "rtt_shares",
    "through_the_wrap",
    "udp_scan",
]

_TARGET = {"line": {"color": GREY, "dash": "dot", "width": 1}}
_PAPER = {"symbol": "x-thin", "size": 11, "color": INK, "line": {"width": 2}}


def _panels(rows: int, columns: int, titles: Sequence[str], title: str, **options: Any) -> go.Figure:
    spacing = {"horizontal_spacing": 0.1, "vertical_spacing": 0.3 / rows}
    return panels(rows, columns, titles, title, 150 + 220 * rows, **spacing | options)


def latency_over_time(packets: pd.DataFrame) -> go.Figure:
    """Figure 5: queueing delay packet by packet; a row for each target, a column for each number of flows.

    Parameters
    ----------
    packets : DataFrame
        ``target``, ``flows``, ``time_s``, ``delay_ms``.
    """
    targets, flows = list(dict.fromkeys(packets.target)), sorted(packets.flows.unique())
    titles = [f"{name}, {n} flow{'s' if n > 1 else ''}" for name in targets for n in flows]
    fig = _panels(
        len(targets), len(flows), titles, "Latency over time (figure 5)", shared_yaxes=True,
        shared_xaxes=True, horizontal_spacing=0.04, vertical_spacing=0.22 / len(targets),
    )  # fmt: skip
    for row, name in enumerate(targets, 1):
        for col, n in enumerate(flows, 1):
            mine = packets[(packets.target == name) & (packets.flows == n)].sort_values("time_s")
            x, y = mine.time_s.to_numpy(), mine.delay_ms.to_numpy()
            few = thin_rows(x, y, points=3000)
            fig.add_scatter(
                x=x[few], y=y[few], mode="lines", name=name, showlegend=False, row=row, col=col,
                line={"color": COLOURS[row - 1], "width": 1},
            )  # fmt: skip
            fig.add_hline(y=5, row=row, col=col, **_TARGET)
        fig.update_yaxes(title_text="ms", row=row, col=1)
    fig.update_xaxes(title_text="s", row=len(targets))
    top = 1.05 * packets.delay_ms.max()
    return fig.update_yaxes(range=[0, top]).update_layout(height=120 + 130 * len(targets))


def loss_and_latency(table: pd.DataFrame) -> go.Figure:
    """Table I as bars: loss and mean latency against the number of flows, the paper's numbers as crosses.

    Parameters
    ----------
    table : DataFrame
        ``flows``, ``target``, ``loss_percent`` and ``mean_delay_ms`` with their ``…_std``, and the paper's columns.
    """
    fig = _panels(
        1,
        2,
        ["packets lost, %", "mean latency, ms"],
        "Table I: bars with the standard deviation of single runs; crosses: the paper",
    )
    columns = (("loss_percent", "paper_loss_percent"), ("mean_delay_ms", "paper_delay_ms"))
    names = list(dict.fromkeys(table.target))
    targets = list(dict.fromkeys(KERNEL_TARGETS.get(name, name) for name in names))  # in a kernel or not
    width = 0.8 / len(names)
    for col, (quantity, paper) in enumerate(columns, 1):
        for rank, name in enumerate(names):
            mine = table[table.target == name]
            x = mine.flows + (rank - (len(names) - 1) / 2) * width
            fig.add_bar(
                x=x, y=mine[quantity], width=width, name=name, legendgroup=name, showlegend=col == 1,
                marker={
                    "color": COLOURS[targets.index(KERNEL_TARGETS.get(name, name))],
                    "pattern": {"shape": "/" if name in KERNEL_TARGETS else ""},
                }, row=1, col=col,
                error_y={"array": mine[f"{quantity}_std"], "thickness": 1.2, "width": 3},
            )  # fmt: skip
            fig.add_scatter(
                x=x, y=mine[paper], mode="markers", name="the paper", legendgroup="paper", legendrank=2000,
                showlegend=col == 1 and rank == 0, marker=_PAPER, row=1, col=col,
            )  # fmt: skip
    fig.update_xaxes(title_text="flows", tickvals=[1, 2, 3])
    fig.update_yaxes(rangemode="tozero")
    return fig.update_layout(height=460)


def udp_scan(table: pd.DataFrame) -> go.Figure:
    """Figure 7: mean latency against the rate of UDP.

    Parameters
    ----------
    table : DataFrame
        ``rate_mbps``, ``target``, ``arrivals``, ``mean_delay_ms``.
    """
    fig = figure(
        "UDP at a constant rate through 100 Mbit/s (figure 7)", 440, xaxis_title_text="rate of the UDP stream, Mbit/s",
        yaxis_title_text="mean latency, ms (0.01 and less at the bottom)", yaxis_type="log",
    )  # fmt: skip
    table = table[table.rate_mbps >= 80]
    for rank, ((name, arrivals), mine) in enumerate(table.groupby(["target", "arrivals"], sort=False)):
        label = name if arrivals == "cbr" else f"{name}, Poisson arrivals"
        fig.add_scatter(
            x=mine.rate_mbps, y=mine.mean_delay_ms.clip(lower=0.01), name=label, mode="lines+markers",
            line=line_of(rank) | {"dash": "solid" if arrivals == "cbr" else "dot"}, marker={"size": 6},
        )  # fmt: skip
    fig.update_yaxes(tickvals=[0.01, 0.1, 1, 5, 10, 100], ticktext=["0.01", "0.1", "1", "5", "10", "100"])
    fig.add_vline(x=100, **_TARGET)
    return fig.add_hline(y=5, **_TARGET)


def rtt_shares(table: pd.DataFrame) -> go.Figure:
    """Goodput shares of three flows with different RTTs, a panel for each target."""
    names = list(dict.fromkeys(table.target))
    fig = _panels(1, len(names), names, "Three flows with different RTTs: shares of the goodput", shared_yaxes=True,
                  horizontal_spacing=0.03)  # fmt: skip
    for col, name in enumerate(names, 1):
        mine = table[table.target == name]
        for i, label in enumerate(("nearest", "middle", "farthest")):
            fig.add_bar(
                x=mine.rtts_ms, y=mine[f"share_{i + 1}"], name=label, legendgroup=label, showlegend=col == 1,
                marker_color=COLOURS[i], row=1, col=col,
            )  # fmt: skip
    fig.add_hline(y=1 / 3, **_TARGET).add_hline(y=2 / 3, **_TARGET)
    fig.update_xaxes(title_text="RTTs, ms", type="category", tickangle=0, tickfont={"size": 11})
    fig.update_yaxes(range=[0, 1]).update_yaxes(title_text="share", col=1)
    return fig.update_layout(barmode="stack", height=430)


def queueing(table: pd.DataFrame) -> go.Figure:
    """CoDel and fq_codel: each flow's mean delay and goodput."""
    titles = ["mean delay in the queue, ms", "goodput, Mbit/s"]
    fig = _panels(2, 1, titles, "One queue (CoDel) and a queue per flow (fq_codel)", shared_xaxes=True)
    labels = table.queues + np.where(table.target == "simulator", "", " (kernel)") + "<br>" + table.load
    for row, (quantity, order) in enumerate(
        (("delay_ms", ("call", "1 ms", "10 ms", "40 ms")), ("mbps", ("1 ms", "10 ms", "40 ms", "flood"))), 1
    ):
        for name in order:
            rank = ("1 ms", "10 ms", "40 ms", "call", "flood").index(name)
            if f"{name} {quantity}" not in table:
                continue
            fig.add_bar(
                x=labels, y=table[f"{name} {quantity}"], name=name, legendgroup=name,
                showlegend=name in ("call", "flood") or row == 1, marker_color=COLOURS[rank], row=row, col=1,
            )  # fmt: skip
    return fig.update_layout(barmode="group", height=620).update_xaxes(tickfont={"size": 11})


def reentry(table: pd.DataFrame) -> go.Figure:
    """Loss and delay with and without ``if_3``, against the number of flows."""
    fig = _panels(
        1,
        2,
        ["packets lost, %", "mean latency, ms"],
        "With and without the rule for re-entering the dropping state (if_3)",
    )
    for col, quantity in enumerate(("loss_percent", "mean_delay_ms"), 1):
        for (form, rule), mine in table.groupby(["form", "if_3"], sort=False):
            rank = 0 if form == "RFC 8289" else 1
            fig.add_scatter(
                x=mine.flows, y=mine[quantity], name=f"{form}, {rule}", legendgroup=f"{form} {rule}",
                showlegend=col == 1,
                mode="lines+markers", error_y={"array": mine[f"{quantity}_std"], "thickness": 1, "width": 3},
                line={"color": COLOURS[rank], "dash": "solid" if rule == "with" else "dash"}, row=1, col=col,
            )  # fmt: skip
    fig.update_xaxes(title_text="flows", type="log", tickvals=sorted(table.flows.unique()))
    return fig.update_yaxes(rangemode="tozero").update_layout(height=430)


def gaps(errors: pd.DataFrame) -> go.Figure:
    """Error of each square root against the count."""
    fig = figure(
        "Error of the time to the next drop, against interval / sqrt(count)", 400, xaxis_title_text="count",
        xaxis_type="log", yaxis_title_text="error, %",
    )  # fmt: skip
    for rank, (name, mine) in enumerate(errors.groupby("square_root", sort=False)):
        fig.add_scatter(
            x=mine["count"], y=100 * mine.error, name=name, mode="lines", line=line_of(rank) | {"width": 1.6}
        )
    return fig


def root_effect(table: pd.DataFrame) -> go.Figure:
    """Mean delay with each square root, relative to the exact one of the same algorithm."""
    fig = figure("Mean latency with each square root, relative to the exact one", 420, barmode="group",
                 yaxis_title_text="difference, %")  # fmt: skip
    exact = {"NPU table": "exact", "math unit": "exact", "Newton step (Linux)": "exact (RFC 8289)"}
    means = table.pivot_table(index="load", columns="square_root", values="mean_delay_ms", sort=False)
    stds = table.pivot_table(index="load", columns="square_root", values="mean_delay_ms_std", sort=False)
    for rank, (name, base) in enumerate(exact.items()):
        spread = 100 * (stds[name] / means[base]).reindex(means.index)
        fig.add_bar(
            x=means.index, y=100 * (means[name] / means[base] - 1), name=f"{name}, against {base}",
            marker_color=COLOURS[rank + 1], error_y={"array": spread, "thickness": 1.2, "width": 3},
        )  # fmt: skip
    return fig


def losses_by_clock(runs: pd.DataFrame, paper: pd.DataFrame) -> go.Figure:
    """Loss of each run against the clock at its start."""
    fig = _panels(1, 3, ["1 flow", "2 flows", "3 flows"], "Loss against the 32-bit clock at the start (4 s runs)",
                  horizontal_spacing=0.06)  # fmt: skip
    shown = {
        "+ 32-bit clock, signed differences": "signed differences",
        "+ 32-bit clock, plain comparison": "plain comparison",
    }
    for col in (1, 2, 3):
        for rank, (step, name) in enumerate(shown.items()):
            mine = runs[(runs.flows == col) & (runs.step == step)].sort_values("clock_ms")
            fig.add_scatter(
                x=mine.clock_ms / 1e3, y=mine.loss_percent, name=name, legendgroup=name, showlegend=col == 1,
                mode="lines+markers", line={"color": COLOURS[rank], "width": 1}, marker={"size": 5}, row=1, col=col,
            )  # fmt: skip
        fig.add_hline(
            y=paper.set_index("flows").paper_loss_percent[col],
            row=1,
            col=col,
            line={"color": GREY, "dash": "dash"},
        )
    fig.add_scatter(
        x=[None], y=[None], mode="lines", name="the paper (ASIC)", line={"color": GREY, "dash": "dash"}
    )
    fig.update_xaxes(title_text="clock at the start, s")
    return (
        fig.update_yaxes(rangemode="tozero")
        .update_yaxes(title_text="packets lost, %", col=1)
        .update_layout(height=400)
    )


def through_the_wrap(packets: pd.DataFrame, wraps_at_s: Mapping[str, float]) -> go.Figure:
    """Delay and losses of three flows while the clock wraps, a panel for each case.

    Parameters
    ----------
    packets : DataFrame
        ``case``, ``time_s``, ``delay_ms``, ``lost``.
    wraps_at_s : mapping
        When the clock wraps in each case.
    """
    names = list(wraps_at_s)
    fig = _panels(len(names), 1, names, "Three flows while a 32-bit clock wraps", shared_xaxes=True)
    for row, name in enumerate(names, 1):
        mine = packets[packets.case == name]
        there, lost = mine[~mine.lost].sort_values("time_s"), mine[mine.lost]
        x, y = there.time_s.to_numpy(), there.delay_ms.to_numpy()
        few = thin_rows(x, y, points=3000)
        fig.add_scatter(x=x[few], y=y[few], mode="lines", name="delay", showlegend=row == 1,
                        line={"color": COLOURS[0], "width": 1}, row=row, col=1)  # fmt: skip
        fig.add_scatter(
            x=lost.time_s, y=lost.delay_ms, mode="markers", name="lost packets", showlegend=row == 1,
            marker={"symbol": "line-ns-open", "size": 9, "color": COLOURS[1]}, row=row, col=1,
        )  # fmt: skip
        fig.add_hline(y=5, row=row, col=1, **_TARGET)
        fig.add_vline(x=wraps_at_s[name], row=row, col=1, line={"color": GREY, "dash": "dash"})
    fig.update_yaxes(title_text="ms").update_xaxes(title_text="s", row=len(names))
    return fig.update_layout(height=120 + 170 * len(names))


def guesses(table: pd.DataFrame, paper: pd.DataFrame) -> go.Figure:
    """Loss and delay with one to three flows for each guess about the NPU, and the paper's."""
    fig = figure("The NPU: loss and latency with one, two and three flows, for each change", 560,
                 xaxis_title_text="packets lost, %", yaxis_title_text="mean latency, ms")  # fmt: skip
    for rank, (name, mine) in enumerate(table.groupby("guess", sort=False)):
        fig.add_scatter(
            x=mine.loss_percent, y=mine.mean_delay_ms, text=mine.flows, name=name, mode="lines+markers",
            line=line_of(rank) | {"width": 1.2}, marker={"size": 6},
        )  # fmt: skip
    fig.add_scatter(
        x=paper.paper_loss_percent, y=paper.paper_delay_ms, text=paper.flows, name="the paper",
        mode="lines+markers+text", textposition="bottom right", line={"color": INK, "width": 2}, marker=_PAPER,
    )  # fmt: skip
    return fig
