"""Several figures over one time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ParameterError
from .style import LEGEND, MARGIN, figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["stack"]

_HEAD_PX = 80  # above each figure, for its title and legend
_FOOT_PX = 55  # below the last, for the time
_LEGEND_ROW_PX = 19


def stack(*figures: go.Figure, heights: Sequence[float] | None = None) -> go.Figure:
    """Stack figures over one shared x axis: zooming into one zooms all.

    Parameters
    ----------
    *figures : Figure
        Figures of this package over the same x (time), with their panels, notes and legends. A flow that is in several
        figures has one legend entry; clicking it hides the flow in all of them.
    heights : sequence of float, optional
        Height of each figure in pixels, without its title. By default, the figures' own.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        There are no figures, something else is among them, or not one height for each.

    See Also
    --------
    throughput, rtt, queue_delay : figures over the time of a capture

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> figures = [cct.plot.throughput(run.ingress), cct.plot.queue_delay(run)]
    >>> fig = cct.plot.stack(*figures, heights=[300, 200])
    >>> len(fig.data) == sum(len(figure.data) for figure in figures)
    True
    """
    if not figures:
        raise ParameterError("stack needs at least one figure")
    import plotly.graph_objects as go

    for fig in figures:
        if not isinstance(fig, go.Figure):
            raise ParameterError(f"stack: expected figures, not {type(fig).__name__}")
    if heights is None:
        heights = [
            fig.layout.height - sum((MARGIN | fig.layout.margin.to_plotly_json())[side] for side in "tb")
            for fig in figures
        ]
    if len(heights) != len(figures):
        raise ParameterError(f"heights has {len(heights)} values for {len(figures)} figures")
    inner = sum(heights) + _HEAD_PX * (len(figures) - 1)
    groups = {trace.legendgroup for fig in figures for trace in fig.data if trace.legendgroup}
    head = max(_HEAD_PX, 45 + _LEGEND_ROW_PX * math.ceil(len(groups) / 2))  # room for the legend
    out = figure(height=int(inner) + head + _FOOT_PX, margin_t=head, margin_b=_FOOT_PX)
    out.update_layout(legend={"y": 1, "yref": "paper"})
    top, axes = float(inner), 0
    named: set[str] = set()  # flows that are in the legend already
    for k, (fig, height) in enumerate(zip(figures, heights, strict=True)):
        low, share = (top - height) / inner, height / inner
        layout = fig.layout.to_plotly_json()
        olds = [key.removeprefix("yaxis") for key in layout if key.startswith("yaxis")]
        news = {old: str(axes + i) if axes + i > 1 else "" for i, old in enumerate(olds, 1)}
        axes += len(olds)
        for old, new in news.items():
            axis = layout[f"yaxis{old}"]
            domain = [low + y * share for y in axis.get("domain", (0, 1))]
            moved = axis | {"anchor": "x", "domain": domain}
            if "overlaying" in axis:
                moved["overlaying"] = "y" + news[axis["overlaying"].removeprefix("y")]
            out.layout[f"yaxis{new}"] = moved
        legend = f"legend{k + 2}"
        out.layout[legend] = LEGEND | {"y": top / inner, "yref": "paper", "font": {"size": 11}}
        for trace in fig.data:
            moved = trace.to_plotly_json()
            moved |= {
                "xaxis": "x",
                "yaxis": "y" + news[(trace.yaxis or "y").removeprefix("y")],
                "legend": legend,
            }
            if trace.legendgroup:
                moved |= {"legend": "legend", "showlegend": trace.legendgroup not in named}
            out.add_trace(moved)
        named |= {trace.legendgroup for trace in fig.data if trace.legendgroup}
        for remark in layout.get("annotations", ()):
            out.add_annotation(remark | {"y": low + remark["y"] * share})
        out.add_annotation(
            text=layout["title"].get("text", "").replace("<br>", " · "),
            x=0,
            y=top / inner,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            yshift=(_HEAD_PX if k else head) - 38,
            showarrow=False,
            font_size=15,
        )
        top -= height + _HEAD_PX
    return out.update_xaxes(
        anchor=f"y{axes}" if axes > 1 else "y", title_text=figures[-1].layout.xaxis.title.text
    )
