"""Time series of a run: congestion windows, goodput, queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import ParameterError, SchemaError
from ..scenario.run import checked
from .source import pick_flows
from .style import (
    COLOURS,
    GREY,
    POINTS,
    escape,
    figure,
    line_of,
    note,
)
from .thinning import thin_rows

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..scenario.run import Run

__all__ = ["goodput", "queue", "window"]


def _line(
    x: np.ndarray, y: np.ndarray, name: str, unit: str, line: dict[str, Any], **more: Any
) -> go.Scatter:
    import plotly.graph_objects as go

    few = thin_rows(x, y, points=POINTS)
    shown = escape(name)
    return go.Scatter(
        x=x[few],
        y=y[few],
        name=shown,
        mode="lines",
        line=line | {"width": 1.6},
        hovertemplate=f"%{{x:.6~g}} s<br>%{{y:.4~g}} {unit}<extra>{shown}</extra>",
        **more,
    )


def _samples(run: Run, which: str, *numbers: str) -> pd.DataFrame:
    if not hasattr(run, which):
        raise ParameterError(f"run: expected a run, not {type(run).__name__}")
    return checked(run, which, numbers) if len(getattr(run, which)) else getattr(run, which)


def _by_flow(run: Run) -> pd.DataFrame:
    flows = checked(run, "flows")
    if flows["flow_id"].dtype == bool:
        raise SchemaError("flows: flow_id is bool, expected numbers")
    return flows.drop_duplicates("flow_id").set_index("flow_id")


def window(run: Run, *, flows: Iterable[int] | None = None, most: int = len(COLOURS)) -> go.Figure:
    """Congestion windows over time, and below them the senders' smoothed RTTs.

    Parameters
    ----------
    run : Run
        With series by flow (``simulate(..., sample_s=…)``).
    flows : iterable of int, optional
        Flows to draw, in the order of the colours. By default, the `most` flows that received most.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `run` is not a run, or there is no such flow.

    See Also
    --------
    goodput : what reached the receivers
    queue : the queues of the same run
    time_sequence : one flow of a capture, packet by packet

    Examples
    --------
    >>> link = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=40)]
    >>> run = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=2), sample_s=0.1)
    >>> fig = cct.plot.window(run)
    >>> list(dict.fromkeys(trace.name for trace in fig.data))
    ['1: reno', '0: cubic']
    """
    series = _samples(run, "flow_series", "cwnd_packets", "srtt_ns")
    fig = figure(
        "Congestion window and round-trip time",
        height=520,
        xaxis_title_text="time since the run's start (s)",
        xaxis_anchor="y2",
        yaxis_domain=[0.42, 1],
        yaxis_title_text="window (packets)",
        yaxis_rangemode="tozero",
        yaxis2={"domain": [0, 0.34], "title": {"text": "smoothed RTT (ms)"}, "rangemode": "tozero"},
    )
    if not len(series):
        return note(fig, "the run has no series")
    with_window = series.groupby("flow_id").srtt_ns.max()
    of_flow = _by_flow(run)
    received = of_flow["received_bytes"].reindex(with_window.index[with_window > 0], fill_value=0)
    names = of_flow["name"].reindex(with_window.index, fill_value="")
    for rank, flow in enumerate(pick_flows(received, flows, most)):
        mine = series[(series.flow_id == flow) & (series.srtt_ns > 0)]
        x = (mine.ts_ns.to_numpy() - run.start_ns) / 1e9
        name, group = f"{flow}: {names.get(flow, '')}", f"flow {flow}"
        fig.add_trace(
            _line(x, mine.cwnd_packets.to_numpy(), name, "packets", line_of(rank), legendgroup=group)
        )
        rtt = mine.srtt_ns.to_numpy() / 1e6
        fig.add_trace(
            _line(x, rtt, name, "ms", line_of(rank), legendgroup=group, showlegend=False, yaxis="y2")
        )
    return fig if fig.data else note(fig, "no flow has a window")


def goodput(
    run: Run, bin_s: float = 1.0, *, flows: Iterable[int] | None = None, most: int = len(COLOURS)
) -> go.Figure:
    """Goodput over time: bytes that reached each flow's receiver, each counted once.

    Parameters
    ----------
    run : Run
        With series by flow (``simulate(..., sample_s=…)``).
    bin_s : float
        Bin width, rounded to whole samples.
    flows : iterable of int, optional
        Flows to draw, in the order of the colours. By default, the `most` flows that received most.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `run` is not a run, `bin_s` is not positive, or there is no such flow.

    See Also
    --------
    cctoolkit.goodput : from captures
    throughput : bytes on the wire, from captures

    Examples
    --------
    >>> link = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=40)]
    >>> run = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=2), sample_s=0.1)
    >>> fig = cct.plot.goodput(run, bin_s=0.5)
    >>> [len(trace.x) for trace in fig.data]
    [4, 4]
    """
    series = _samples(run, "flow_series", "received_bytes")
    if not bin_s > 0:
        raise ParameterError(f"bin_s: {bin_s!r} must be positive")
    fig = figure(
        "Goodput",
        xaxis_title_text="time since the run's start (s)",
        yaxis_title_text="goodput (Mbit/s)",
        yaxis_rangemode="tozero",
    )
    if not len(series):
        return note(fig, "the run has no series")
    of_flow = _by_flow(run)
    received, names = of_flow["received_bytes"], of_flow["name"]
    for rank, flow in enumerate(pick_flows(received[received > 0], flows, most)):
        mine = series[series.flow_id == flow]
        time_s = np.concatenate([[0.0], (mine.ts_ns.to_numpy() - run.start_ns) / 1e9])
        so_far = np.concatenate([[0], mine.received_bytes.to_numpy()])
        between_s = time_s[2] - time_s[1] if len(mine) > 1 else bin_s
        step = max(round(bin_s / between_s), 1) if between_s > 0 else 1
        time_s, so_far = time_s[::step], so_far[::step]
        with np.errstate(invalid="ignore", divide="ignore"):
            mbps = np.diff(so_far) * 8e-6 / np.diff(time_s)
        middle_s = (time_s[1:] + time_s[:-1]) / 2
        fig.add_trace(_line(middle_s, mbps, f"{flow}: {names[flow]}", "Mbit/s", line_of(rank)))
    return fig if fig.data else note(fig, "no flow received anything")


def queue(
    run: Run | Mapping[str, Run], *, queues: Iterable[int] | None = None, most: int = len(COLOURS)
) -> go.Figure:
    """Queueing delay over time (mean over the packets sent between two samples), and below it the queue length.

    Parameters
    ----------
    run : Run, or mapping of names to Runs
        With series by queue (``simulate(..., sample_s=…)``); several runs are drawn together for comparison. For the
        delay of each packet see :func:`cctoolkit.plot.queue_delay`.
    queues : iterable of int, optional
        Queues of each run to draw. By default, the `most` queues that sent most.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `run` is not a run, or there is no such queue.

    See Also
    --------
    queue_delay : the delay of every packet
    trade_off : delay and utilisation of many runs

    Examples
    --------
    >>> link = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=40)]
    >>> run = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=2), sample_s=0.1)
    >>> fig = cct.plot.queue(run)
    >>> fig.layout.yaxis.title.text
    'queueing delay (ms)'
    """
    runs = run if isinstance(run, Mapping) else {"": run}
    fig = figure(
        "Queueing delay and queue length",
        height=520,
        xaxis_title_text="time since the run's start (s)",
        xaxis_anchor="y2",
        yaxis_domain=[0.42, 1],
        yaxis_title_text="queueing delay (ms)",
        yaxis_rangemode="tozero",
        yaxis2={"domain": [0, 0.34], "title": {"text": "packets"}, "rangemode": "tozero"},
    )
    lines = [line for label, one in runs.items() for line in _queue_lines(label, one, queues, most)]
    for rank, (name, x, delay_ms, packets, probability) in enumerate(lines):
        line = line_of(rank)
        fig.add_trace(_line(x, delay_ms, name, "ms", line, legendgroup=name))
        fig.add_trace(
            _line(x, packets, name, "packets", line, legendgroup=name, showlegend=False, yaxis="y2")
        )
        if probability.any():
            dotted = {"color": line["color"], "dash": "dot"}
            fig.add_trace(
                _line(x, 100 * probability, f"{name}: probability", "%", dotted, legendgroup=name, yaxis="y3")
            )
    if any(trace.yaxis == "y3" for trace in fig.data):
        fig.update_layout(
            yaxis3={"overlaying": "y", "side": "right", "title": {"text": "probability (%)", "font": {"color": GREY}},
                    "rangemode": "tozero", "showgrid": False, "tickmode": "auto"},
            margin_r=70,
        )  # fmt: skip
    if not fig.data:
        recorded = any(len(one.queue_series) for one in runs.values())
        note(fig, "no queue sent a packet" if recorded else "the run has no series")
    return fig


def _queue_lines(
    label: str, run: Run, queues: Iterable[int] | None, most: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """For each queue to draw: name, time in seconds, delay in milliseconds, packets waiting, probability."""
    series = _samples(run, "queue_series", "sent_packets", "delay_sum_ns", "packets", "probability")
    if not len(series):
        return
    sent = series.groupby("queue").sent_packets.max()
    picked = pick_flows(sent[sent > 0], queues, most, known=lambda q: q in sent.index)
    for which in picked:
        mine = series[series.queue == which]
        sent_since = np.diff(mine.sent_packets.to_numpy(), prepend=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            delay_ms = np.diff(mine.delay_sum_ns.to_numpy(), prepend=0) / sent_since / 1e6
        name = f"queue {which}" if not label else label if len(picked) == 1 else f"{label}: queue {which}"
        x = (mine.ts_ns.to_numpy() - run.start_ns) / 1e9
        yield name, x, delay_ms, mine.packets.to_numpy(np.float64), mine.probability.to_numpy(np.float64)
