"""What a flow has in the queue and what it sends: Figure 1 of the Dragonfly paper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import ParameterError
from .source import Names, pick_flows, table_of
from .style import BLUE, POINTS, VERMILLION, figure, note
from .thinning import thin_rows

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["cbiq"]

_PANEL_PX = 230
_HEAD_PX, _FOOT_PX = 70, 55


def cbiq(
    slots: pd.DataFrame,
    cap: Any = None,
    *,
    flows: Iterable[int] | None = None,
    most: int = 3,
    slot_ms: float | None = None,
    points: int = POINTS,
) -> go.Figure:
    """CBIQ (connection bytes in queue) in red and ingress throughput in blue, one panel per flow.

    As Figure 1 of Carmel and Keslassy, "Dragonfly".

    Parameters
    ----------
    slots : DataFrame
        :data:`~cctoolkit.schema.SLOTS`, from :func:`cctoolkit.compute_slots` with two taps.
    cap : Capture or flows DataFrame, optional
        Names the flows.
    flows : iterable of int, optional
        Flows to draw, from the top. By default, the `most` flows that sent most.
    slot_ms : float, optional
        Length of a slot. By default ``slots.attrs["slot_ms"]``, else 1, as in :func:`cctoolkit.compute_slots`.
    points : int
        Maximum number of points per line.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `slots` is not such a table, there is no such flow, or `slot_ms` is not positive.

    See Also
    --------
    cctoolkit.compute_slots : the table behind the figure

    Notes
    -----
    Throughput is ``in_bytes``, or, if sampling left no counts, ``throughput_bytes``, which is derived from sequence
    numbers. Slots that were not observed are gaps.

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> fig = cct.plot.cbiq(cct.compute_slots(run.ingress, run.egress, slot_ms=10), run.ingress)
    >>> sorted({trace.name for trace in fig.data})
    ['CBIQ', 'ingress throughput']
    """
    import plotly.graph_objects as go

    slots = table_of(
        slots,
        "slots",
        "cctoolkit.compute_slots",
        ("flow_id", "slot", "in_bytes", "throughput_bytes", "cbiq_bytes"),
    )
    slot_s = float(slots.attrs.get("slot_ms", 1.0) if slot_ms is None else slot_ms) / 1e3
    if not slot_s > 0:
        raise ParameterError(f"slot_ms={slot_ms}: expected a positive number of milliseconds")
    by_seq = slots["in_bytes"].isna().all()
    sent = slots["throughput_bytes" if by_seq else "in_bytes"]
    names = Names(cap)
    picked = pick_flows(sent.fillna(0).groupby(slots["flow_id"]).sum(), flows, most)
    rows = max(len(picked), 1)
    fig = figure(
        "CBIQ and ingress throughput",
        height=_HEAD_PX + _FOOT_PX + rows * _PANEL_PX,
        margin={"t": _HEAD_PX, "b": _FOOT_PX, "l": 70, "r": 70},
        showlegend=False,  # the axes have the colours
        xaxis_title_text="time since the first slot (s)",
    )
    if not picked:
        return note(fig, "no slots")
    mbps = (sent.astype("Float64") * (8e-6 / slot_s)).to_numpy(np.float64, na_value=np.nan)
    queued = slots["cbiq_bytes"].astype("Float64").to_numpy(np.float64, na_value=np.nan)
    time_s = (slots["slot"].to_numpy() + 1) * slot_s  # CBIQ is what is in the queue at the end of the slot
    for row, flow in enumerate(picked):
        mine = np.flatnonzero(slots["flow_id"].to_numpy() == flow)
        left, right = (str(k) if k > 1 else "" for k in (2 * row + 1, 2 * row + 2))
        top = 1 - row / rows
        fig.layout[f"yaxis{left}"] = {
            "domain": [top - 0.82 / rows, top - 0.08 / rows],
            "title": {"text": "CBIQ (bytes)", "font": {"color": VERMILLION}},
            "tickfont": {"color": VERMILLION},
            "rangemode": "tozero",
        }
        fig.layout[f"yaxis{right}"] = {
            "overlaying": f"y{left}",
            "side": "right",
            "title": {"text": "throughput (Mbit/s)", "font": {"color": BLUE}},
            "tickfont": {"color": BLUE},
            "rangemode": "tozero",
            "showgrid": False,
            "tickmode": "auto",
        }
        for name, values, unit, colour, width, axis in (
            ("ingress throughput", mbps, "Mbit/s", BLUE, 0.7, right),
            ("CBIQ", queued, "bytes", VERMILLION, 1.8, left),
        ):
            few = mine[thin_rows(time_s[mine], values[mine], points=points)]
            fig.add_trace(
                go.Scatter(
                    x=time_s[few],
                    y=values[few],
                    yaxis=f"y{axis}",
                    name=name,
                    mode="lines",
                    line={"color": colour, "width": width},
                    hovertemplate=f"%{{x:.6~g}} s<br>{name} %{{y:,.6~g}} {unit}<extra>{names.long(flow)}</extra>",
                )
            )
        fig.add_annotation(
            text=names.long(flow),
            x=0,
            y=top - 0.08 / rows,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
            font_size=12,
        )
        if np.isnan(queued[mine]).all():
            note(fig, "no CBIQ: it needs taps before and after the queue", y=top - 0.45 / rows)
    return fig.update_xaxes(anchor=f"y{2 * rows - 1}" if rows > 1 else "y")
