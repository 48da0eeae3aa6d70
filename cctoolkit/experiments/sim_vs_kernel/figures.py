"""Figures of the comparison of simulator and kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...plot.style import COLOURS, GREY, escape, figure, line_of
from ..panels import panels
from .tables import QUANTITIES, names_of

__all__ = ["beside", "distribution", "scatter"]


def scatter(errors: pd.DataFrame) -> go.Figure:
    """The simulator's value against the kernel's, a panel for each quantity."""
    there = [q for q in QUANTITIES if (errors.quantity == q).any()]
    rows = -(-len(there) // 3)
    fig = panels(
        rows, 3, there, "Simulator against Linux; on the line both agree", 80 + 330 * rows,
        horizontal_spacing=0.07, vertical_spacing=0.16,
    )  # fmt: skip
    groups = names_of(errors.aqm)
    for k, quantity in enumerate(there):
        at = {"row": k // 3 + 1, "col": k % 3 + 1}
        mine = errors[errors.quantity == quantity]
        ends = [0, float(mine[["kernel", "simulator"]].max().max())]
        fig.add_scatter(x=ends, y=ends, mode="lines", line={"color": GREY, "width": 1}, showlegend=False,
                        hoverinfo="skip", **at)  # fmt: skip
        for colour, aqm in zip(COLOURS, groups, strict=False):
            some = mine[mine.aqm == aqm]
            fig.add_scatter(
                x=some.kernel, y=some.simulator, mode="markers", name=escape(aqm), legendgroup=aqm, showlegend=k == 0,
                marker={"color": colour, "size": 6, "opacity": 0.75}, customdata=[escape(c) for c in some.case],
                hovertemplate="%{customdata}<br>Linux %{x:.4g}, simulator %{y:.4g}<extra></extra>", **at,
            )  # fmt: skip
        fig.update_xaxes(title_text="Linux", **at).update_yaxes(title_text="simulator", **at)
    return fig


def distribution(errors: pd.DataFrame) -> go.Figure:
    """Cumulative distribution of the absolute errors, a line for each quantity."""
    fig = figure("Absolute errors", 420, xaxis_title_text="absolute error, % (at least 0.1)", xaxis_type="log",
                 yaxis_title_text="share of cases, %", yaxis_range=[0, 100])  # fmt: skip
    for rank, quantity in enumerate(q for q in QUANTITIES if (errors.quantity == q).any()):
        size = np.sort(100 * errors.error[errors.quantity == quantity].abs().to_numpy())
        share = 100 * np.arange(1, len(size) + 1) / len(size)
        fig.add_scatter(x=np.maximum(size, 0.1), y=share, mode="lines", name=quantity, line=line_of(rank),
                        line_shape="hv", hovertemplate="%{y:.0f} % are within %{x:.3g} %")  # fmt: skip
    return fig.add_vline(x=10, line={"color": GREY, "dash": "dot", "width": 1})


def beside(series: pd.DataFrame) -> go.Figure:
    """Windows and queueing delay of a case over time, the kernel's solid and the simulator's dotted.

    Parameters
    ----------
    series : DataFrame
        The rows of one case in :func:`.tables.worst`.
    """
    fig = figure(
        escape(series.case.iloc[0]),
        560,
        xaxis_title_text="time (s)",
        xaxis_anchor="y2",
        yaxis_domain=[0.46, 1],
        yaxis_title_text="window (packets)",
        yaxis_rangemode="tozero",
        yaxis2={"domain": [0, 0.38], "title": {"text": "queueing delay (ms)"}, "rangemode": "tozero"},
    )
    for side, label, dash in (("kernel", "Linux", "solid"), ("simulator", "simulator", "dot")):
        mine = series[series.side == side]
        for (kind, flow), part in mine.groupby(["series", "flow"], sort=False):
            colour, axis = (GREY, "y2") if kind == "delay" else (COLOURS[int(str(flow))], "y")
            fig.add_scatter(
                x=part.time_s, y=part.value, mode="lines", name=f"{escape(part.name.iloc[0])}, {label}", yaxis=axis,
                line={"color": colour, "dash": dash, "width": 1.6},
            )  # fmt: skip
    return fig
