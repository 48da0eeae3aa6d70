"""Cumulative distributions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .source import Names, pick_flows, sides_of, table_of
from .style import (
    COLOURS,
    INK,
    escape,
    figure,
    line_of,
    note,
)
from .thinning import thin

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["completion_cdf", "rtt_cdf"]

_STEPS = 800  # points per curve: more than a screen has rows


def rtt_cdf(
    samples: pd.DataFrame,
    cap: Any = None,
    *,
    flows: Iterable[int] | None = None,
    most: int = len(COLOURS) - 1,
    log_x: bool | None = None,
) -> go.Figure:
    """Cumulative distribution of round-trip times: all samples in grey, then each flow.

    Parameters
    ----------
    samples, cap, flows
        As in :func:`cctoolkit.plot.rtt`. Samples of data sent to the initiator are dotted.
    most : int
        Without `flows`, draw the flows with the most samples, this many.
    log_x : bool, optional
        Logarithmic RTT axis. By default, logarithmic if the samples span more than two decades.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `samples` is not such a table, or a flow in `flows` has no samples and is not in `cap` either.

    See Also
    --------
    rtt : the samples over time
    cctoolkit.rtt_samples : the samples

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> fig = cct.plot.rtt_cdf(cct.rtt_samples(run.ingress), run.ingress)
    >>> len(fig.data)
    3
    """
    samples = table_of(samples, "samples", "cctoolkit.rtt_samples", ("flow_id", "direction", "rtt_ns"))
    names = Names(cap)
    counts = samples["flow_id"].value_counts()
    picked = [f for f in pick_flows(counts, flows, most, known=names.has) if f in counts.index]
    rtt_ms = samples["rtt_ns"].to_numpy() / 1e6
    fig = figure(
        "Distribution of round-trip times", yaxis_title_text="share of samples", yaxis_range=[0, 1.02]
    )
    _value_axis(fig, "RTT (ms)", rtt_ms, log_x)
    if not rtt_ms.size:
        return note(fig, "no RTT samples")
    _add_cdf(fig, rtt_ms, "all samples", "all flows, both directions", "ms", color=INK, width=2.5)
    for rank, flow in enumerate(picked):
        for side, rows in sides_of(samples, flow):
            mine = rtt_ms[rows]
            look = line_of(rank) | {"width": 1.5} | ({"dash": "dot"} if side else {})
            _add_cdf(fig, mine, names.short(flow, side), names.long(flow, side), "ms", **look)
    return fig


def completion_cdf(fct: pd.DataFrame | Mapping[str, pd.DataFrame], *, log_x: bool | None = None) -> go.Figure:
    """Cumulative distribution of flow completion times.

    Parameters
    ----------
    fct : DataFrame, or mapping of names to DataFrames
        From :func:`cctoolkit.flow_completion_times`; several tables are drawn together for comparison. Flows that did
        not complete in the capture have no time; the legend says how many there are.
    log_x : bool, optional
        Logarithmic time axis. By default, logarithmic if the times span more than two decades.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `fct` is not such a table.

    See Also
    --------
    cctoolkit.flow_completion_times : the times
    cctoolkit.cdf : the distribution as a table

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> fig = cct.plot.completion_cdf(cct.flow_completion_times(run.ingress))
    >>> fig.layout.title.text
    'Flow completion times'
    """
    tables = fct if isinstance(fct, Mapping) else {"flows": fct}
    times_s = {
        name: table_of(table, "fct", "cctoolkit.flow_completion_times", ("fct_s",))["fct_s"].to_numpy(
            np.float64
        )
        for name, table in tables.items()
    }
    fig = figure(
        "Flow completion times", yaxis_title_text="share of flows", yaxis_range=[0, 1.02], showlegend=True
    )
    complete = {name: times[~np.isnan(times)] for name, times in times_s.items()}
    _value_axis(fig, "completion time (s)", np.concatenate([np.empty(0), *complete.values()]), log_x)
    for rank, (name, times) in enumerate(complete.items()):
        left_out = len(times_s[name]) - len(times)
        shown = escape(name) + (f", {left_out:,} incomplete left out" if left_out else "")
        _add_cdf(fig, times, shown, escape(name), "s", **line_of(rank))
    if not fig.data:
        note(fig, "no flow started and completed in the capture")
    return fig


def _add_cdf(fig: go.Figure, values: np.ndarray, name: str, hover: str, unit: str, **line: Any) -> None:
    import plotly.graph_objects as go

    if not values.size:
        return
    x = np.sort(values)
    share = np.arange(1, x.size + 1) / x.size
    share, x = thin(share, x, _STEPS)  # equal steps of share: the tails stay, whatever the axis
    fig.add_trace(
        go.Scatter(
            x=np.concatenate([x[:1], x]),
            y=np.concatenate([[0.0], share]),
            name=f"{name} ({values.size:,})",
            mode="lines",
            line={"shape": "hv"} | line,
            hovertemplate=f"%{{y:.1%}} at or below %{{x:.4g}} {unit}<extra>{hover}</extra>",
        )
    )


def _value_axis(fig: go.Figure, title: str, values: np.ndarray, log_x: bool | None) -> None:
    positive = values[values > 0]
    if log_x is None:
        low, high = np.quantile(positive, [0.01, 0.99]) if positive.size else (1.0, 1.0)
        log_x = bool(high > 100 * low)
    fig.update_xaxes(
        title_text=title, type="log" if log_x else "linear", rangemode="normal" if log_x else "tozero"
    )
