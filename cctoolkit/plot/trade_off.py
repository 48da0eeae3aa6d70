"""Delay against utilisation: the trade-off of queue management."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .source import table_of
from .style import COLOURS, escape, figure, note, small

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["trade_off"]

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "hexagon", "triangle-down")
_LEAST_MS = 0.01  # smaller values are drawn here, as the axis is logarithmic
_TICKS_MS = [step * 10.0**power for power in range(-2, 5) for step in (1, 2, 5)]
_GAP = 0.04


def trade_off(table: pd.DataFrame, by: str = "aqm", panels: str = "scenario") -> go.Figure:
    """Utilisation over mean queueing delay, one mark per run: the best is at the top left.

    Parameters
    ----------
    table : DataFrame
        Runs with ``mean_delay_ms`` and ``utilisation``, such as from :func:`cctoolkit.league` or
        :func:`cctoolkit.run_sweep`.
    by : str
        Column whose values get a colour and symbol each.
    panels : str
        Column whose values get a panel each, side by side; without that column there is one panel.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `table` is not a table, or lacks a column.

    See Also
    --------
    cctoolkit.league : runs to compare
    cctoolkit.run_sweep : runs to compare
    queue : one run over time

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {"aqm": ["tail_drop", "codel"], "mean_delay_ms": [80.0, 6.0], "utilisation": [1.0, 0.97]}
    ... )
    >>> fig = cct.plot.trade_off(table)
    >>> [trace.name for trace in fig.data]
    ['tail_drop', 'codel']
    """
    numbers = ("mean_delay_ms", "utilisation")
    table = table_of(table, "table", "cctoolkit.league", numbers, (by,))
    table = table.assign(**{name: table[name].to_numpy(float, na_value=np.nan) for name in numbers})
    parts = list(table.groupby(panels, sort=False)) if panels in table else [("", table)]
    fig = figure("Utilisation and queueing delay" + small("top left is best"), height=430)
    if not parts:
        return note(fig, "no runs")
    delays = np.maximum(table.mean_delay_ms.to_numpy(float), _LEAST_MS)
    x_range = np.log10([delays.min() / 1.4, delays.max() * 1.4])
    y_low = 100 * table.utilisation.min()
    width = (1 + _GAP) / len(parts)
    values = list(dict.fromkeys(table[by]))
    for number, (panel, runs) in enumerate(parts):
        axis = str(number + 1) if number else ""
        left = number * width
        fig.update_layout(
            {
                f"xaxis{axis}": {
                    "type": "log",
                    "tickvals": _TICKS_MS,
                    "range": x_range,
                    "domain": [left, min(left + width - _GAP, 1)],
                    "anchor": f"y{axis}",
                    "title": {"text": "mean queueing delay (ms)"},
                },
                f"yaxis{axis}": {
                    "range": [min(y_low - 2, 95), 100.5],
                    "anchor": f"x{axis}",
                    "showticklabels": not number,
                },
            }
        )
        if not pd.isna(panel) and panel != "":
            fig.add_annotation(
                text=escape(panel), x=left, y=1, xref="paper", yref="paper", xanchor="left", yanchor="bottom",
                showarrow=False,
            )  # fmt: skip
        for rank, value in enumerate(values):
            mine = runs[runs[by] == value]
            name = escape(value)
            fig.add_scatter(
                x=np.maximum(mine.mean_delay_ms.to_numpy(float), _LEAST_MS),
                y=100 * mine.utilisation.to_numpy(float),
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                name=name,
                legendgroup=name,
                showlegend=not number,
                mode="markers",
                marker={
                    "size": 9,
                    "opacity": 0.8,
                    "color": COLOURS[rank % len(COLOURS)],
                    "symbol": _SYMBOLS[rank % len(_SYMBOLS)],
                },
                hovertemplate=f"%{{x:.3g}} ms<br>%{{y:.4g}} %<extra>{name}</extra>",
            )
    return fig.update_layout(yaxis_title_text="link used (%)", margin_t=80)
