"""A closer look at one flow: the figures that open from its row in the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plot
from .._support.words import format_time_ns
from ..analysis.rtt import rtt_samples
from ..capture.protocols import TCP
from .figures import cbiq
from .summary import Summary, each
from .time_axis import BusyAxis, TimeAxis

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["flow_panels"]

#: Of one kind in one figure: a dozen flows travel with every page.
POINTS = 600
_HEIGHTS = {"sequence": 300, "rtt": 170, "flight": 170, "cbiq": 150, "throughput": 220}


def flow_panels(s: Summary) -> dict[int, go.Figure]:
    """For each top flow whose packets were kept: time-sequence, RTT, bytes in flight and CBIQ over one time axis.

    A flow without TCP has its throughput instead of the first three; CBIQ needs two taps.
    """
    if s.top_packets is None:
        return {}
    present = set(s.top_packets.keys.flow_id.tolist())
    return {flow.flow_id: _panel(s, flow) for flow in each(s.top) if flow.flow_id in present}


def _panel(s: Summary, flow: Any) -> go.Figure:
    assert s.top_packets is not None
    mine = s.top_packets.select(flow_id=flow.flow_id)
    mine.meta.first_ts_ns = s.totals["first_ts_ns"]  # where 0 s is in the other figures
    first, last = ((ts - s.totals["first_ts_ns"]) / 1e9 for ts in (flow.first_ts_ns, mine.meta.last_ts_ns))
    axis = TimeAxis(s).between(first, last)
    alone = mine.columns | {"flow_id": np.zeros(len(mine), np.uint32)}  # state is by flow number
    cut = len(axis) > 1
    if cut:  # draw without the silences, so that thinning keeps what is between them
        mine.columns["ts_ns"] = s.idle.to_busy(mine.columns["ts_ns"])
    drawn: dict[str, go.Figure] = {}
    if flow.protocol == TCP and mine.columns["tcp_flags"].any():
        side = int(flow.data_direction)
        drawn["sequence"] = plot.time_sequence(mine, flow.flow_id, side, points=POINTS)
        samples = rtt_samples(alone).assign(flow_id=np.uint32(flow.flow_id))
        if cut:
            samples["ts_ns"] = s.idle.to_busy(samples["ts_ns"].to_numpy())
        if len(samples):
            drawn["rtt"] = plot.rtt(samples, mine, flows=[flow.flow_id], points=POINTS)
        drawn["flight"] = plot.bytes_in_flight(mine, flow.flow_id, side, points=POINTS)
    else:
        drawn["throughput"] = plot.throughput(mine, flows=[flow.flow_id])
    if s.two_taps is not None:
        queued = cbiq(s, [flow.flow_id], POINTS, BusyAxis(s) if cut else axis)
        if queued.data:
            drawn["cbiq"] = queued.update_layout(title_text="Bytes in the queue (CBIQ)")
    for fig in drawn.values():
        what, _, about = fig.layout.title.text.partition("<br>")
        # The panel names the flow, so neither titles nor legends need to.
        fig.layout.title.text = f"{what}<br>{about}" if "filled" in about else what
        if any(trace.legendgroup for trace in fig.data):
            fig.update_traces(legendgroup=None, showlegend=False)
    fig = plot.stack(*drawn.values(), heights=[_HEIGHTS[name] for name in drawn])
    if cut:
        return axis.move(fig, fig.layout.xaxis.anchor)
    air = max(0.02 * (last - first), 1e-6)
    title = "time since the first packet (s)"
    if mine.meta.last_ts_ns < flow.last_ts_ns:
        title += f"; the first {format_time_ns(mine.meta.last_ts_ns - flow.first_ts_ns)} of the flow"
    return fig.update_xaxes(range=[first - air, last + air], title_text=title)
