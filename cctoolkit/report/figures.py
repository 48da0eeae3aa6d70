"""The report's figures, drawn from a summary; the page explains them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.words import format_bytes, format_time_ns
from ..plot.source import Names
from ..plot.style import COLOURS, GREY, POINTS, figure, line_of
from ..plot.thinning import thin, thin_rows
from .summary import Summary, each
from .time_axis import TimeAxis
from .timeline import wider_bins

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["as_json", "cbiq", "figures", "worth_a_curve"]

#: Curves that show at first; the others wait in the legend.
SHOWN = len(COLOURS) - 1
#: Time bins drawn: more than a phone and about as many as a page of paper can show.
BINS = 300
#: A curve over time is not drawn for a flow with less than this share of the largest flow's bytes.
WORTH_A_CURVE = 0.01
#: If no flow ever reaches this share of the peak rate of all packets, the total is drawn separately.
DWARFED = 0.2
#: Flows whose RTTs differ by more than this factor share a logarithmic axis.
MIXED_RTTS = 10
#: A distribution over fewer flows is less informative than their table.
ENOUGH_FLOWS = 10
#: Height of one row of the overview, and the space between two, in pixels.
_ROW_PX, _BETWEEN_PX = 190, 24


def figures(s: Summary) -> dict[str, go.Figure]:
    """All figures that the summary has data for, by name."""
    if not s.totals["packets"]:
        return {}
    found = {"overview": _overview(s)}
    if s.jain["jain"].notna().any():
        found["jain"] = _jain(s)
    if s.totals["rtt_samples"]:
        found["rtt-distribution"] = _rtt_distribution(s)
    size = (s.flows["bytes_fwd"] + s.flows["bytes_rev"]).to_numpy()
    if len(size) >= ENOUGH_FLOWS:
        found["flow-sizes"] = _cdf(size, "bytes on the wire, both directions", "flows", format_bytes)
    whole = s.flows["handshake_rtt_ns"].notna().to_numpy()
    lasted = (s.flows["last_ts_ns"] - s.flows["first_ts_ns"]).to_numpy()[whole] / 1e9
    if len(lasted) >= ENOUGH_FLOWS:
        found["flow-durations"] = _cdf(
            lasted, "first to last packet", "TCP flows", lambda s: format_time_ns(s * 1e9)
        )
    if s.two_taps is not None and len(s.two_taps.queue_delay):
        found["queue-delay"] = _queue_delay(s)
    if s.two_taps is not None and len(s.two_taps.slots):
        found["cbiq"] = cbiq(s, worth_a_curve(s)["flow_id"].tolist())
    return found


def as_json(fig: go.Figure) -> str:
    """A figure as JSON, escaped so that it cannot end its script element."""
    text = json.dumps(json.loads(fig.to_json()), separators=(",", ":"))
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def worth_a_curve(s: Summary) -> pd.DataFrame:
    """The top flows that are drawn over time, in the order of their colours."""
    size = s.top["bytes_fwd"] + s.top["bytes_rev"]
    return s.top[size >= WORTH_A_CURVE * size.max()]


def _figure(height: int = 400, **layout: Any) -> go.Figure:
    """A figure in the common style, without a title: the page has the heading."""
    bottom = 50 if layout.get("showlegend") is False else 90
    return figure(height=height, margin={"l": 60, "r": 15, "t": 30, "b": bottom}, **layout)


def _with_legend(fig: go.Figure, a_row: int = 3) -> go.Figure:
    """Add height for the rows of a long legend."""
    rows = sum(trace.showlegend is not False for trace in fig.data) // a_row
    return fig.update_layout(height=fig.layout.height + 18 * rows, margin_b=fig.layout.margin.b + 18 * rows)


def _add_over_time(
    fig: go.Figure, axis: TimeAxis, x_s: np.ndarray, y: np.ndarray, name: str, hover: str, **more: Any
) -> None:
    """A line over time, in as many traces as the axis has parts."""
    customdata = more.pop("customdata", None)
    group = more.pop("legendgroup", name)
    show = more.pop("showlegend", True)
    for x_axis, here, x in axis.split(x_s):
        data = {} if customdata is None else {"customdata": customdata[here]}
        _add_line(
            fig, x, y[here], name, hover, xaxis=x_axis, legendgroup=group, showlegend=show, **data, **more
        )
        show = False


def _add_line(fig: go.Figure, x: np.ndarray, y: np.ndarray, name: str, hover: str, **more: Any) -> None:
    import plotly.graph_objects as go

    fig.add_trace(
        go.Scatter(
            x=x,
            y=y,
            name=name,
            mode=more.pop("mode", "lines"),
            hovertemplate=f"{hover}<extra>{more.pop('label', name)}</extra>",
            **more,
        )
    )


def _log_axis(low: float, high: float, text: Callable[[float], str] = "{:g}".format) -> dict[str, Any]:
    """A logarithmic axis with every number written out; plotly's own says "2" for 2000."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 5 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [text(tick) for tick in ticks]}


def _rate_scale(bytes_per_s: float) -> tuple[float, str]:
    """Factor and unit that make rates up to this one readable."""
    for factor, unit in ((8e-9, "Gbit/s"), (8e-6, "Mbit/s"), (8e-3, "kbit/s")):
        if bytes_per_s * factor >= 1:
            return factor, unit
    return 8, "bit/s"


class _Rates:
    """Bytes in the summary's time bins as rates in bins that fit a page."""

    def __init__(self, s: Summary) -> None:
        bins = len(s.throughput)
        factor = wider_bins(s.bin_ns, bins, BINS)
        self._starts = np.arange(0, bins, factor)
        self.width_s = factor * s.bin_ns / 1e9
        # The last bin is only as long as the capture; when that is little of it, its rate means nothing.
        covered_s = np.full(len(self._starts), self.width_s)
        covered_s[-1] = s.duration_s - self._starts[-1] * s.bin_ns / 1e9
        self._keep = covered_s >= min(self.width_s / 2, s.duration_s)
        self._covered_s = np.maximum(covered_s[self._keep], 1e-9)
        self.middle_s = ((np.arange(len(self._starts)) + 0.5) * self.width_s)[self._keep]

    def of(self, size: np.ndarray) -> np.ndarray:
        """Bytes per second."""
        return np.add.reduceat(size, self._starts)[self._keep] / self._covered_s


def _overview(s: Summary) -> go.Figure:
    """Throughput above round-trip times on one time axis; where the total dwarfs the flows, these get their own row."""
    axis, rates = TimeAxis(s), _Rates(s)
    flows = worth_a_curve(s)
    kinds = {kind: rates.of(s.throughput[f"{kind}_bytes"].to_numpy()) for kind in ("tcp", "udp", "other")}
    total = sum(kinds.values(), np.zeros(len(rates.middle_s)))
    by_way = {
        way: rates.of(of["bytes"].to_numpy())
        for way, of in s.flow_throughput.groupby(["flow_id", "direction"])
    }
    curves = [
        (rank, flow, by_way[flow.flow_id, flow.data_direction])
        for rank, flow in enumerate(each(flows))
        if (flow.flow_id, flow.data_direction) in by_way
    ]
    most = max((curve.max() for _, _, curve in curves), default=0)
    dwarfed = bool(most < DWARFED * total.max(initial=0))
    rows = 1 + dwarfed + (len(s.rtt_over_time) > 0)
    inner = rows * _ROW_PX + (rows - 1) * _BETWEEN_PX
    fig = figure(height=inner + 108, margin={"l": 64, "r": 12, "t": 24, "b": 84})
    y_axes = ["y" if k == 0 else f"y{k + 1}" for k in range(rows)]
    for k, name in enumerate(y_axes):
        top = 1 - k * (_ROW_PX + _BETWEEN_PX) / inner
        fig.layout[name.replace("y", "yaxis")] = {
            "domain": [max(top - _ROW_PX / inner, 0), top],
            "rangemode": "tozero",
            "anchor": "x",
            "nticks": 6,
        }
    axis.lay_out(fig, anchor=y_axes[-1])
    first = y_axes.pop(0)
    if dwarfed:
        _draw_kinds(fig, axis, rates, kinds, total, first)
        first = y_axes.pop(0)
    _draw_throughput(fig, s, axis, rates, None if dwarfed else total, curves, first)
    if y_axes:
        _draw_rtt(fig, s, axis, y_axes[0])
    return _with_legend(fig, a_row=6)


def _rate_axis(fig: go.Figure, y_axis: str, most: float) -> tuple[float, str]:
    """Name the axis; the factor and unit of its rates."""
    scale, unit = _rate_scale(most)
    fig.layout[y_axis.replace("y", "yaxis")].title.text = f"throughput ({unit})"
    return scale, unit


def _draw_kinds(
    fig: go.Figure,
    axis: TimeAxis,
    rates: _Rates,
    kinds: dict[str, np.ndarray],
    total: np.ndarray,
    y_axis: str,
) -> None:
    scale, unit = _rate_axis(fig, y_axis, total.max())
    for rank, (kind, rate) in enumerate(kinds.items()):
        if rate.any():
            _add_over_time(
                fig,
                axis,
                axis.real_s(rates.middle_s),
                rate * scale,
                f"all {kind if kind == 'other' else kind.upper()}",
                f"%{{x:.6~g}} s: %{{y:.4~g}} {unit}",
                stackgroup="all",
                line={"color": COLOURS[rank], "width": 0.5},
                yaxis=y_axis,
            )


def _draw_throughput(
    fig: go.Figure,
    s: Summary,
    axis: TimeAxis,
    rates: _Rates,
    total: np.ndarray | None,
    curves: list[tuple[int, Any, np.ndarray]],
    y_axis: str,
) -> None:
    """The top flows, with all packets behind them."""
    names = Names(s.top)
    most = max((curve.max() for _, _, curve in curves), default=0) if total is None else total.max(initial=0)
    scale, unit = _rate_axis(fig, y_axis, most)
    hover = f"%{{x:.6~g}} s: %{{y:.4~g}} {unit}"
    x_s = axis.real_s(rates.middle_s)
    if total is not None:
        _add_over_time(
            fig,
            axis,
            x_s,
            total * scale,
            "all packets",
            hover,
            line={"color": GREY, "width": 1},
            fill="tozeroy",
            fillcolor="rgba(128,128,128,0.15)",
            yaxis=y_axis,
        )
    for rank, flow, curve in curves:
        began_s, ended_s = ((t - s.totals["first_ts_ns"]) / 1e9 for t in (flow.first_ts_ns, flow.last_ts_ns))
        half_s = rates.width_s / 2
        there = (x_s + half_s >= began_s) & (x_s - half_s <= ended_s)
        _add_over_time(
            fig,
            axis,
            x_s,
            np.where(there, curve * scale, np.nan),
            f"flow {flow.flow_id}",
            hover,
            label=names.long(flow.flow_id, flow.data_direction),
            line=line_of(rank) | {"width": 1.8},
            visible=True if rank < SHOWN else "legendonly",
            yaxis=y_axis,
        )


def _draw_rtt(fig: go.Figure, s: Summary, axis: TimeAxis, y_axis: str) -> None:
    """Mean, minimum and maximum RTT of the top flows."""
    import plotly.graph_objects as go

    names = Names(s.top)
    width_ns = wider_bins(s.bin_ns, len(s.throughput), BINS) * s.bin_ns
    drawn: list[float] = []
    in_legend = {trace.legendgroup for trace in fig.data}
    for rank, flow in enumerate(each(worth_a_curve(s))):
        side = _rtt_direction(flow)
        of = s.rtt_over_time
        of = of[(of["flow_id"] == flow.flow_id) & (of["direction"] == side)]
        if of.empty:
            continue
        wide = (_busy_s(s, of["time_s"]) / (width_ns / 1e9) + 1e-9).astype(int)
        total = (of["mean_ns"] * of["samples"]).groupby(wide).sum()
        samples = of["samples"].groupby(wide).sum()
        low, high = of["min_ns"].groupby(wide).min(), of["max_ns"].groupby(wide).max()
        # A line or shade across bins without samples would be invented: they are gaps.
        gap = np.flatnonzero(np.diff(samples.index) > 3) + 1
        place, mean, low, high, samples = (
            np.insert(values.to_numpy(float), gap, np.nan)
            for values in (samples.index.to_series(), total / samples, low, high, samples)
        )
        # A gap stands where the value before it does, so that it is on a part of the axis.
        holes = np.isnan(place)
        x_s = axis.real_s((np.where(holes, np.roll(place, 1), place) + 0.5) * width_ns / 1e9)
        line = line_of(rank)
        group = f"flow {flow.flow_id}"
        look = {
            "legendgroup": group,
            "visible": True if len(drawn) < SHOWN else "legendonly",
            "yaxis": y_axis,
        }
        _add_over_time(
            fig,
            axis,
            x_s,
            mean / 1e6,
            group,
            "%{x:.6~g} s: mean %{y:.4~g} ms,<br>"
            "%{customdata[0]:.4~g} to %{customdata[1]:.4~g} ms in %{customdata[2]:,} samples",
            label=names.long(flow.flow_id, side),
            customdata=np.column_stack([low / 1e6, high / 1e6, samples]),
            mode="lines+markers",  # a bin without samples on either side is no line
            marker={"size": 3},
            line=line | {"width": 1.6},
            showlegend=group not in in_legend,
            **look,
        )
        for x_axis, here, x in axis.split(x_s):
            minimum, most = low[here], high[here]
            runs = [run for run in np.split(np.arange(len(x)), np.flatnonzero(np.isnan(minimum))) if len(run)]
            around = np.concatenate([np.concatenate([run, run[::-1]]) for run in runs])
            upper = np.concatenate([np.repeat([True, False], len(run)) for run in runs])
            fig.add_trace(
                go.Scatter(
                    x=np.where(np.isnan(minimum[around]), np.nan, x[around]),
                    y=np.where(upper, most[around], minimum[around]) / 1e6,
                    mode="none",
                    fill="toself",
                    fillcolor=_faint(line["color"]),
                    hoverinfo="skip",
                    showlegend=False,
                    xaxis=x_axis,
                    **look,
                )
            )
        drawn.append(float(np.nanmedian(mean)))
    layout = fig.layout[y_axis.replace("y", "yaxis")]
    layout.title.text = "RTT (ms)"
    if max(drawn, default=0) > MIXED_RTTS * min(drawn, default=0) > 0:
        layout.update(_log_axis(min(drawn) / 1e7, max(drawn) / 1e5))


def _busy_s(s: Summary, time_s: pd.Series) -> pd.Series:
    """Seconds since the first packet on the clock of the time bins."""
    if not len(s.idle):
        return time_s
    return pd.Series(TimeAxis(s).busy_s(time_s.to_numpy()), index=time_s.index)


def _faint(colour: str) -> str:
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({r},{g},{b},0.16)"


def _rtt_direction(flow: Any) -> int:
    """The direction whose RTT describes the path of the data; the other one if that has no samples."""
    side = int(flow.data_direction)
    return side if (flow.rtt_samples_fwd, flow.rtt_samples_rev)[side] else 1 - side


def _jain(s: Summary) -> go.Figure:
    fig = _figure(height=280, yaxis_title_text="Jain's index", yaxis_range=[0, 1.04], showlegend=False)
    axis = TimeAxis(s)
    _add_over_time(
        axis.lay_out(fig),
        axis,
        s.jain["time_s"].to_numpy() + s.jain_bin_ns / 2e9,
        s.jain["jain"].to_numpy(),
        "Jain's index",
        "%{x:.6~g} s: %{y:.3f} over %{customdata} flows",
        customdata=s.jain["flows"].to_numpy(),
        line={"color": COLOURS[0], "width": 1.8},
    )
    return fig


def _queue_delay(s: Summary) -> go.Figure:
    assert s.two_taps is not None
    fig = _figure(yaxis_title_text="delay from tap to tap (ms)", yaxis_rangemode="tozero")
    axis = TimeAxis(s)
    axis.lay_out(fig)
    names = Names(s.top)
    of_way = dict(list(s.two_taps.queue_delay.groupby(["flow_id", "direction"])))
    drawn = [
        (rank, flow.flow_id, side, of_way[flow.flow_id, side].dropna(subset="delay_ns"))
        for rank, flow in enumerate(each(worth_a_curve(s)))
        for side in (0, 1)
        if (flow.flow_id, side) in of_way
    ]
    for rank, flow_id, side, of in drawn:
        x = (of["ts_ns"].to_numpy() - s.totals["first_ts_ns"]) / 1e9
        y = of["delay_ns"].to_numpy(float) / 1e6
        few = thin_rows(axis.busy_s(x), y, points=max(POINTS // len(drawn), 400))
        _add_over_time(
            fig,
            axis,
            x[few],
            y[few],
            names.short(flow_id, side),
            "%{x:.6~g} s: %{y:.4~g} ms",
            label=names.long(flow_id, side),
            mode="markers",
            marker={"size": 3, "color": line_of(rank)["color"]},
            meta={"brief": f"flow {flow_id}"},  # for narrow screens
        )
    return _with_legend(fig)


def cbiq(
    s: Summary, flow_ids: list[int], points: int = POINTS // 4, axis: TimeAxis | None = None
) -> go.Figure:
    """Bytes in the queue over time, by flow; needs two taps."""
    assert s.two_taps is not None
    fig = _figure(yaxis_title_text="bytes in the queue", yaxis_rangemode="tozero")
    axis = axis or TimeAxis(s)
    axis.lay_out(fig)
    names = Names(s.top)
    since_s = (s.two_taps.first_slot_ns - s.totals["first_ts_ns"]) / 1e9
    for rank, flow_id in enumerate(flow_ids):
        of = s.two_taps.slots
        of = of[of["flow_id"] == flow_id]
        if not of["cbiq_bytes"].notna().any():
            continue
        # what is in the queue at the end of the slot
        x = since_s + (of["slot"].to_numpy() + 1) * s.two_taps.slot_ns / 1e9
        y = of["cbiq_bytes"].to_numpy(float, na_value=np.nan)
        few = thin_rows(axis.busy_s(x), y, points=points)
        _add_over_time(
            fig,
            axis,
            x[few],
            y[few],
            names.short(flow_id),
            "%{x:.6~g} s: %{y:,} bytes",
            label=names.long(flow_id),
            line=line_of(rank) | {"width": 1.4},
            meta={"brief": f"flow {flow_id}"},
            visible=True if rank < SHOWN else "legendonly",
        )
    return _with_legend(fig)


def _rtt_distribution(s: Summary) -> go.Figure:
    import plotly.graph_objects as go

    low, high = s.rtt_histogram["low_ns"].to_numpy(), s.rtt_histogram["high_ns"].to_numpy()
    samples = s.rtt_histogram["samples"].to_numpy()
    # Bars of equal width on a logarithmic axis, 24 a decade: the histogram's own bins are finer.
    bar = np.floor(np.log10((low + high) / 2e6) * 24).astype(int)
    height = np.bincount(bar - bar.min(), samples) / samples.sum()
    edge = 10 ** ((np.arange(len(height) + 1) + bar.min()) / 24)
    few, most = (np.log10(max(s.rtt_quantile_ns(q), 1) / 1e6) for q in (0.005, 0.995))
    fig = _figure(
        xaxis_title_text="RTT (ms)",
        xaxis=_log_axis(edge[0], edge[-1]),
        xaxis_range=[few - 0.2, most + 0.2],  # stragglers are there when one zooms out
        yaxis_title_text="share of the samples",
        yaxis_tickformat=".0%",
        yaxis2={
            "overlaying": "y",
            "side": "right",
            "range": [0, 1.04],
            "tickformat": ".0%",
            "tickmode": "linear",
            "dtick": 0.25,
            "showgrid": False,
            "title": {"text": "at or below"},
        },
        bargap=0,
    )
    fig.add_trace(
        go.Bar(
            x=np.sqrt(edge[1:] * edge[:-1]),
            width=edge[1:] - edge[:-1],
            y=height,
            customdata=np.column_stack([edge[:-1], edge[1:]]),
            name="share of the samples",
            marker={"color": COLOURS[5], "opacity": 0.6, "line": {"width": 0}},
            hovertemplate="%{customdata[0]:.3~g} to %{customdata[1]:.3~g} ms: %{y:.2%}<extra></extra>",
        )
    )
    _add_line(
        fig,
        high / 1e6,
        np.cumsum(samples) / samples.sum(),
        "at or below",
        "%{y:.1%} at or below %{x:.4~g} ms",
        line={"color": COLOURS[0], "width": 1.8, "shape": "hv"},
        yaxis="y2",
    )
    return fig


def _cdf(values: np.ndarray, axis: str, what: str, text: Callable[[float], str]) -> go.Figure:
    share, values = thin(np.arange(1, len(values) + 1) / len(values), np.sort(values), 800)
    share, values = np.append(0, share), np.append(values[:1], values)
    positive = values[values > 0]
    values = np.maximum(values, positive[0] if len(positive) else 1e-9)  # a logarithm has no zero
    fig = _figure(
        height=320,
        xaxis_title_text=axis,
        xaxis=_log_axis(values[0], values[-1], text),
        yaxis_title_text=f"share of the {what}",
        yaxis_range=[0, 1.04],
        yaxis_tickformat=".0%",
        showlegend=False,
    )
    _add_line(
        fig,
        values,
        share,
        what,
        "%{y:.1%} have at most %{customdata}",
        customdata=[text(value) for value in values],
        line={"color": COLOURS[0], "width": 1.8, "shape": "hv"},
    )
    return fig
