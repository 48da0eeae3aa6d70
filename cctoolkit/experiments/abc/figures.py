"""Figures of the ABC experiment: the paper's three, the references, and what could produce figure 6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ...plot.style import COLOURS, GREY, figure, line_of
from ..panels import panels
from .scenarios import SCHEMES, SHARINGS
from .tables import paper_flood_mbps, paper_half_mbps

__all__ = ["references_figure", "sharing_figure", "why_figure"]


def _add_paper_line(sharing: str) -> tuple[float, str] | None:
    """Draw the paper's goodput with ABC as a line."""
    if sharing == "tcp":
        return paper_half_mbps(), f"the paper: in the order of {paper_half_mbps():g}"
    if sharing == "cbr-tcp":
        return paper_flood_mbps(), f"the paper: client 0 only up to {paper_flood_mbps():g}"
    return None


def sharing_figure(
    sharing: str, table: pd.DataFrame, schemes: Sequence[str] = ("without ABC", "ABC")
) -> go.Figure:
    """Figure 4, 5 or 6: goodput of both clients without and with ABC, bars for confidence intervals.

    Parameters
    ----------
    sharing : str
        One of :data:`~.scenarios.SHARINGS`.
    table : DataFrame
        Means and confidence intervals (:func:`.tables.intervals`).
    schemes : sequence of str
        Two of :data:`~.scenarios.SCHEMES`: drawn dashed and solid.
    """
    what = SHARINGS[sharing]
    fig = figure(what.title, height=440)
    for rank, scheme in enumerate(schemes):
        part = table[(table.sharing == sharing) & (table.scheme == scheme)]
        for client in (0, 1):
            name = f"client_{client}_mbps"
            fig.add_scatter(
                x=part.value, y=part[name], name=f"client {client}, {'with ABC' if scheme == 'ABC' else scheme}",
                mode="lines+markers", line={"color": COLOURS[client], "dash": "dash" if rank == 0 else "solid"},
                marker={"symbol": "circle-open" if rank == 0 else "circle", "size": 7},
                error_y={"type": "data", "array": part[f"{name}_ci"].fillna(0), "thickness": 1.2, "width": 3},
            )  # fmt: skip
    line = _add_paper_line(sharing)
    if line is not None:
        level, text = line
        fig.add_hline(y=level, line={"color": GREY, "dash": "dot", "width": 1.2})
        fig.add_annotation(
            text=text, x=1, xref="paper", xanchor="right", y=level, yanchor="bottom", showarrow=False,
            font={"size": 12, "color": GREY},
        )  # fmt: skip
    fig.update_xaxes(title_text=what.axis, dtick=1 if sharing == "tcp" else 10)
    return fig.update_yaxes(title_text="goodput, Mbit/s", range=[0, 52])


def _panels(
    rows: int, columns: int, titles: Sequence[str], title: str, height: int, **options: Any
) -> go.Figure:
    return panels(rows, columns, titles, title, height, {"t": 75}, **options)


def references_figure(table: pd.DataFrame) -> go.Figure:
    """Goodput of each client under every scheme, a column for each sharing."""
    shown = [s for s in SHARINGS if s in set(table.sharing)]
    titles = [SHARINGS[s].title for s in shown] + [""] * len(shown)
    fig = _panels(
        2, len(shown), titles, "ABC and other ways to be fair", 640,
        shared_xaxes=True, shared_yaxes=True, vertical_spacing=0.06, horizontal_spacing=0.04,
    )  # fmt: skip
    for rank, scheme in enumerate(SCHEMES):
        for column, sharing in enumerate(shown, 1):
            part = table[(table.sharing == sharing) & (table.scheme == scheme)]
            for client in (0, 1):
                fig.add_scatter(
                    x=part.value, y=part[f"client_{client}_mbps"], name=scheme, legendgroup=scheme,
                    showlegend=column == 1 and client == 0, mode="lines+markers",
                    line=line_of(rank) | ({"dash": "dot"} if scheme == "ABC in integers" else {}),
                    marker={"size": 5}, row=client + 1, col=column,
                )  # fmt: skip
    for column, sharing in enumerate(shown, 1):
        axis = "connections of client 0" if sharing == "tcp" else "rate of client 0, Mbit/s"
        fig.update_xaxes(title_text=axis, row=2, col=column)
    fig.update_yaxes(range=[0, 52])
    for client in (0, 1):
        fig.update_yaxes(title_text=f"client {client}, Mbit/s", row=client + 1, col=1)
    return fig


def why_figure(why: pd.DataFrame) -> go.Figure:
    """Client 0 in figures 6 and 5 under the causes that give a flood 24 Mbit/s or more at some rate."""
    flood = why[(why.sharing == "cbr-tcp") & (why.value > 0)]
    most = flood.groupby("cause", sort=False).client_0_mbps.max()
    shown = ["as described", *(c for c in most.index if most[c] >= 24 and c != "as described")]
    fig = _panels(
        1, 2, ["a flood against one connection", "connections against one"],
        "What could produce figure 6, and what it does to figure 5", 480, horizontal_spacing=0.09,
    )  # fmt: skip
    for rank, cause in enumerate(shown, -1):
        line = line_of(rank) if rank >= 0 else {"color": GREY, "width": 4}
        for column, sharing in enumerate(("cbr-tcp", "tcp"), 1):
            part = why[(why.cause == cause) & (why.sharing == sharing) & (why.value > 0)]
            fig.add_scatter(
                x=part.value, y=part.client_0_mbps, name=cause, legendgroup=cause, showlegend=column == 1,
                mode="lines+markers", line=line, marker={"size": 6}, row=1, col=column,
            )  # fmt: skip
    for column, level in ((1, paper_flood_mbps()), (2, paper_half_mbps())):
        fig.add_hline(y=level, line={"color": GREY, "dash": "dot", "width": 1.2}, row=1, col=column)
    fig.add_annotation(
        text=f"the paper: {paper_flood_mbps():g}", x=20, y=paper_flood_mbps(), yanchor="bottom", xanchor="left",
        showarrow=False,
        font={"size": 12, "color": GREY}, row=1, col=1,
    )  # fmt: skip
    fig.update_xaxes(title_text="rate of client 0, Mbit/s", row=1, col=1)
    fig.update_xaxes(title_text="connections of client 0", row=1, col=2)
    fig.update_yaxes(range=[0, 52])
    return fig.update_yaxes(title_text="goodput of client 0, Mbit/s", row=1, col=1)
