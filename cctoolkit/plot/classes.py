"""Histogram of flows' RTTs and the classes they fall into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ParameterError
from .style import COLOURS, GREY, figure, note

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..separation.jenks import Classes

__all__ = ["rtt_classes"]

#: Longer than any RTT, by far; a logarithmic axis needs an end.
_MOST_MS = 1e12


def rtt_classes(rtt_ms: Any, classes: Classes, bins: int = 60) -> go.Figure:
    """Histogram of RTTs, coloured by class, with the breaks between classes.

    Parameters
    ----------
    rtt_ms : array-like of positive numbers, shape (n,)
    classes : Classes
        Classes of `rtt_ms`, from :func:`cctoolkit.jenks_classes`.
    bins : int
        Number of bins, equally wide on a logarithmic axis.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `rtt_ms` are not numbers, or `classes` are not theirs.

    See Also
    --------
    cctoolkit.jenks_classes : find the classes

    Examples
    --------
    >>> rtt_ms = [10, 11, 12, 50, 52, 100]
    >>> fig = cct.plot.rtt_classes(rtt_ms, cct.jenks_classes(rtt_ms, k=3))
    >>> [bar.name for bar in fig.data]
    ['class 0: 3 of 10 to 12 ms', 'class 1: 2 of 50 to 52 ms', 'class 2: 1 of 100 to 100 ms']
    """
    try:
        x = np.asarray(rtt_ms, np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"rtt_ms: expected numbers, not {type(rtt_ms).__name__}") from None
    if not hasattr(classes, "labels") or len(classes.labels) != x.size:
        raise ParameterError("classes: expected the result of cctoolkit.jenks_classes for these RTTs")
    if not (np.isfinite(x).all() and (x < _MOST_MS).all()):
        raise ParameterError(f"rtt_ms: must be finite and below {_MOST_MS:g} ms")
    fig = figure(f"{x.size:,} flows in {classes.k} RTT classes, GVF {classes.gvf:.4f}")
    if not x.size:
        return note(fig, "no RTTs")
    low, high = np.log10(max(x.min(), 1e-6)), np.log10(max(x.max(), 1e-6))
    edges = 10 ** np.linspace(low - 0.02, high + 0.02, bins + 1)
    for c in range(classes.k):
        mine = x[classes.labels == c]
        if not mine.size:
            continue
        count, _ = np.histogram(mine, edges)
        shown = np.flatnonzero(count)
        fig.add_bar(
            x=np.sqrt(edges[shown] * edges[shown + 1]),
            y=count[shown],
            width=np.diff(edges)[shown],
            name=f"class {c}: {mine.size:,} of {mine.min():.3g} to {mine.max():.3g} ms",
            marker={"color": COLOURS[c % len(COLOURS)], "line": {"width": 0}},
            hovertemplate="%{x:.3g} ms: %{y} flows<extra></extra>",
        )
    for limit in classes.breaks[1:-1]:
        fig.add_vline(x=float(limit), line={"color": GREY, "dash": "dash", "width": 1})
    fig.update_layout(barmode="stack", bargap=0)
    ticks = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    fig.update_xaxes(type="log", title_text="minimum RTT of the flow (ms)", range=[low - 0.1, high + 0.1])
    fig.update_xaxes(tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return fig.update_yaxes(title_text="flows")
