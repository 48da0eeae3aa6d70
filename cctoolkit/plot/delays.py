"""Round-trip times and queueing delays over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import ParameterError
from .rates import BIG_SHARE
from .source import Names, pick_flows, seconds_since, sides_of, start_of, table_of
from .style import (
    COLOURS,
    POINTS,
    figure,
    line_of,
    note,
    small,
)
from .thinning import thin_rows

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["queue_delay", "rtt"]


def rtt(
    samples: pd.DataFrame,
    cap: Any = None,
    *,
    flows: Iterable[int] | None = None,
    most: int = len(COLOURS),
    between_s: tuple[float, float] | None = None,
    points: int = POINTS,
) -> go.Figure:
    """Round-trip times over time: a dot per sample, a colour per flow; filled if the initiator sent the data.

    A sample is the time from the tap to the receiver of the data and back, so the two directions of a flow measure the
    two sides of the tap and are drawn separately. A direction with fewer than five samples, or less than 5 % of the
    flow's, is left out: it has only the handshake and the end.

    Parameters
    ----------
    samples : DataFrame
        :data:`~cctoolkit.schema.RTT_SAMPLES`, from :func:`cctoolkit.rtt_samples`.
    cap : Capture or flows DataFrame, optional
        Names the flows. With a Capture, 0 s is its first packet; otherwise it is the first sample.
    flows : iterable of int, optional
        Flows to draw, in the order of the colours. By default, the `most` flows with the most samples.
    between_s : (float, float), optional
        Draw only this interval, in seconds.
    points : int
        Maximum number of dots, shared by the flows; extremes are kept (:func:`thin_rows`).

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `samples` is not such a table, or a flow in `flows` has no samples and is not in `cap` either.

    See Also
    --------
    rtt_cdf : the distribution of the samples
    cctoolkit.rtt_samples : the samples

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> fig = cct.plot.rtt(cct.rtt_samples(run.ingress), run.ingress)
    >>> [trace.name for trace in fig.data]
    ['1: 10.1.0.11:40001 → 10.3.0.11:5001', '0: 10.1.0.10:40000 → 10.3.0.10:5001']
    """
    import plotly.graph_objects as go

    samples = table_of(
        samples,
        "samples",
        "cctoolkit.rtt_samples",
        ("flow_id", "direction", "ts_ns", "rtt_ns"),
        whole=("ts_ns",),
    )
    names = Names(cap)
    counts = samples["flow_id"].value_counts()
    picked = [f for f in pick_flows(counts, flows, most, known=names.has) if f in counts.index]
    fig = figure(
        _title("Round-trip time", len(picked), len(counts))
        + small("filled: data from the initiator; open: data to it"),
        xaxis_title_text="time since the capture's start (s)",
        yaxis_title_text="RTT (ms)",
        yaxis_rangemode="tozero",
    )
    if not picked:
        return note(fig, "no RTT samples")
    ts_ns = samples["ts_ns"].to_numpy()
    time_s = seconds_since(ts_ns, start_of(cap, ts_ns))
    inside = np.ones(len(samples), np.bool_)
    if between_s is not None:
        inside = (time_s >= between_s[0]) & (time_s <= between_s[1])
        fig.update_xaxes(range=between_s)
    series = [
        (rank, flow, side, rows) for rank, flow in enumerate(picked) for side, rows in sides_of(samples, flow)
    ]
    for rank, flow, side, rows in series:
        rows = rows[inside[rows]]
        rows = rows[np.argsort(time_s[rows], kind="stable")]
        rtt_ms = samples["rtt_ns"].to_numpy()[rows] / 1e6
        few = thin_rows(time_s[rows], rtt_ms, points=max(points // max(len(series), 1), 40))
        colour = line_of(rank)["color"]
        fig.add_trace(
            go.Scatter(
                x=time_s[rows][few],
                y=rtt_ms[few],
                name=names.short(flow, side),
                legendgroup=f"flow {flow}",
                mode="markers",
                marker={"size": 4, "color": colour, "symbol": "circle" if side == 0 else "circle-open"},
                hovertemplate=f"%{{x:.6f}} s<br>%{{y:.3f}} ms<extra>{names.long(flow, side)}</extra>",
            )
        )
    return fig


def _title(what: str, drawn: int, there: int) -> str:
    return what if drawn == there else f"{what} ({drawn} of {there:,} flows)"


def queue_delay(
    delays: Any,
    cap: Any = None,
    *,
    flows: Iterable[int] | None = None,
    most: int = len(COLOURS),
    between_s: tuple[float, float] | None = None,
    points: int = POINTS,
) -> go.Figure:
    """Queueing delay of each packet over time, a colour per flow; a cross on the axis is a lost packet.

    Parameters
    ----------
    delays : DataFrame or run
        The table from :func:`cctoolkit.queue_delay`, or a run, whose ``ingress`` and ``egress`` captures are then
        compared.
    cap : Capture or flows DataFrame, optional
        The ingress tap. It names the flows, and 0 s is its first packet. Not needed with a run.
    flows : iterable of int, optional
        Flows to draw, in the order of the colours. By default, the `most` flows with the most packets, except those
        with less than 1 % of the largest flow's.
    between_s : (float, float), optional
        Draw only this interval, in seconds.
    points : int
        Maximum number of dots, shared by the flows; extremes are kept (:func:`thin_rows`). The same for losses.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `delays` is neither a table nor a run, or there is no such flow.

    See Also
    --------
    cctoolkit.queue_delay : the table behind the figure
    queue : the delay of a simulated queue over time

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> fig = cct.plot.queue_delay(run)
    >>> fig.layout.yaxis.title.text
    'queueing delay (ms)'
    """
    import plotly.graph_objects as go

    if not isinstance(delays, pd.DataFrame):
        if not (hasattr(delays, "ingress") and hasattr(delays, "egress")):
            raise ParameterError(
                f"delays: expected the table of cctoolkit.queue_delay or a run, not {type(delays).__name__}"
            )
        from ..analysis.metrics import queue_delay as between_taps

        cap = delays.ingress if cap is None else cap
        delays = between_taps(delays.ingress, delays.egress)
    delays = table_of(
        delays,
        "delays",
        "cctoolkit.queue_delay",
        ("flow_id", "direction", "ts_ns", "delay_ns", "lost"),
        whole=("ts_ns",),
    )
    names = Names(cap)
    delays = delays[delays["lost"].notna()]  # the fate of the others is unknown
    counts = delays["flow_id"].value_counts()
    if flows is None:
        flows = pick_flows(counts[counts >= BIG_SHARE * counts.max()], None, most)
    picked = [f for f in pick_flows(counts, flows, most, known=names.has) if f in counts.index]
    fig = figure(
        _title("Queueing delay", len(picked), len(counts)),
        xaxis_title_text="time since the capture's start (s)",
        yaxis_title_text="queueing delay (ms)",
        yaxis_rangemode="tozero",
    )
    if not picked:
        return note(fig, "no packet was seen at both taps")
    ts_ns = delays["ts_ns"].to_numpy()
    time_s = seconds_since(ts_ns, start_of(cap, ts_ns))
    delay_ms = delays["delay_ns"].astype("Float64").to_numpy(np.float64, na_value=np.nan) / 1e6
    lost = delays["lost"].to_numpy(np.bool_)
    inside = np.ones(len(delays), np.bool_)
    if between_s is not None:
        inside = (time_s >= between_s[0]) & (time_s <= between_s[1])
        fig.update_xaxes(range=between_s)
    series = [(rank, flow, *side) for rank, flow in enumerate(picked) for side in sides_of(delays, flow)]
    share = max(points // max(len(series), 1), 40)
    for rank, flow, side, rows in series:
        colour = line_of(rank)["color"]
        rows = rows[inside[rows]]
        rows = rows[np.argsort(time_s[rows], kind="stable")]
        name, whole_name = names.short(flow, side), names.long(flow, side)
        matched = rows[~np.isnan(delay_ms[rows])]
        matched = matched[thin_rows(time_s[matched], delay_ms[matched], points=share)]
        fig.add_trace(
            go.Scatter(
                x=time_s[matched],
                y=delay_ms[matched],
                name=name,
                legendgroup=f"flow {flow}",
                mode="markers",
                marker={"size": 3, "color": colour},
                hovertemplate=f"%{{x:.6f}} s<br>%{{y:.3f}} ms<extra>{whole_name}</extra>",
            )
        )
        gone = rows[lost[rows]]
        if gone.size:
            total = gone.size
            gone = gone[thin_rows(time_s[gone], np.zeros(total), points=share)]
            fig.add_trace(
                go.Scatter(
                    x=time_s[gone],
                    y=np.zeros(gone.size),
                    name=f"{name}, lost ({total:,})",
                    legendgroup=f"flow {flow}",
                    mode="markers",
                    marker={
                        "size": 7,
                        "color": colour,
                        "symbol": "x-thin",
                        "line": {"color": colour, "width": 1.5},
                    },
                    hovertemplate=f"%{{x:.6f}} s<br>lost<extra>{whole_name}</extra>",
                )
            )
    return fig
