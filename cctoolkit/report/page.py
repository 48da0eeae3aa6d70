"""One self-contained HTML page about a capture, and the same in short for a terminal."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .._support.words import (
    flow_name,
    format_bytes,
    format_percent,
    format_rate,
    format_time_ns,
    printable,
)
from ..analysis.flows import retransmitted_share
from ..capture.model import Capture
from ..capture.protocols import protocol_name
from ..identify.probabilities import format_cca
from ..plot.source import Names
from ..plot.style import COLOURS, GREY, POINTS, figure, line_of
from ..plot.thinning import thin, thin_rows
from .summary import PACKETS_AGAIN, Summary, each, summarise
from .timeline import wider_bins

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from rich.console import RenderableType

__all__ = ["report", "terminal_summary", "usable_model"]

#: Curves that show at first; the others wait in the legend.
SHOWN = len(COLOURS) - 1
#: Time bins drawn: more than a phone and about as many as a page of paper can show.
BINS = 300
#: A curve over time is not drawn for a flow with less than this share of the largest flow's bytes.
WORTH_A_CURVE = 0.01
#: When no flow ever reaches this share of the peak rate of all packets, these are drawn apart.
DWARFED = 0.2
#: Flows whose RTTs differ by more than this factor share a logarithmic axis.
MIXED_RTTS = 10
#: A distribution over fewer flows says less than their table.
ENOUGH_FLOWS = 10
SERVICES_LISTED = 12


def report(
    source: str | os.PathLike[str] | Capture | Summary,
    path: str | os.PathLike[str] = "report.html",
    *,
    egress: str | os.PathLike[str] | Capture | None = None,
    title: str | None = None,
    top: int = 12,
    model: str | os.PathLike[str] | None = "cca",
    **options: Any,
) -> Path:
    """Write one HTML page about a capture that needs nothing else: no network, no other file.

    Parameters
    ----------
    source : path, Capture or Summary
        A capture file of any size is read once, in bounded memory.
    path : path
        Where to; it appears when it is complete.
    egress : path or Capture, optional
        The same traffic behind the queue: adds queue delay, loss and CBIQ.
    title : str, optional
        Heading of the page; without it the name of the capture file.
    top : int
        How many of the largest flows to show.
    model : str or path, optional
        Names the flows' congestion controls, see :func:`cctoolkit.summarise`; None: they are not named. So they are
        where the bundled ``cca`` is not there, or `source` is a Summary made without a model.
    **options
        As for :func:`cctoolkit.summarise`.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    CaptureFormatError
        `source` is no capture.
    ParameterError
        An argument has no meaning.
    """
    if isinstance(source, Summary):
        summary = source
    else:
        summary = summarise(source, egress=egress, top=top, model=usable_model(model), **options)
    page = _page(summary, title)
    with replacing(path) as tmp:
        tmp.write_text(page, encoding="utf-8")
    return Path(path)


def usable_model(model: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """A model that was named; the default one only where it is bundled."""
    from ..identify.bundle import bundled_models

    return None if model == "cca" and model not in bundled_models() else model


def _page(summary: Summary, title: str | None) -> str:
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    from .._support.version import __version__

    name = printable(os.path.basename(summary.meta.path) or summary.meta.path)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cctoolkit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"printable": printable}
    return environment.get_template("report.html.j2").render(
        title=printable(title) if title else f"Capture report: {name}",
        version=__version__,
        findings=summary.findings(),
        facts=_facts(summary),
        numbers=_numbers(summary),
        protocols=_protocol_rows(summary),
        services=_service_rows(summary),
        ecn=_ecn_rows(summary),
        top=_flow_rows(summary, summary.top),
        long_flows=_flow_rows(summary, summary.long_flows),
        long_flow_count=summary.totals["long_flows"],
        losses=_loss_rows(summary),
        two_taps=_tap_rows(summary),
        flow_columns=_flow_columns(summary),
        ccas=_ccas_in_words(summary),
        loss_columns=LOSS_COLUMNS,
        tap_columns=TAP_COLUMNS,
        long_flow=format_bytes(summary.long_flow_bytes),
        jain_bin=format_time_ns(summary.jain_bin_ns),
        jain_what="the long ones"
        if summary.totals["long_flows"] >= 2
        else "those with 5 % or more of the bytes",
        summary=summary,
        flow_lines=Markup(json.dumps([line_of(rank) for rank in range(len(_worth_a_curve(summary)))])),
        figures={name: Markup(_json(fig)) for name, fig in _figures(summary).items()},
        plotly=Markup(get_plotlyjs().replace("</script", r"<\/script")),
    )


def _json(fig: go.Figure) -> str:
    """A figure as JSON that cannot end the script element it stands in."""
    text = json.dumps(json.loads(fig.to_json()), separators=(",", ":"))
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


# Figures. Each is drawn from binned data; what they mean is said in the page.


def _figures(s: Summary) -> dict[str, go.Figure]:
    if not s.totals["packets"]:
        return {}
    figures = _throughput(s)
    if s.jain["jain"].notna().any():
        figures["jain"] = _jain(s)
    if len(s.rtt_over_time):
        figures["rtt"] = _rtt(s)
    if s.totals["rtt_samples"]:
        figures["rtt-distribution"] = _rtt_distribution(s)
    size = (s.flows["bytes_fwd"] + s.flows["bytes_rev"]).to_numpy()
    if len(size) >= ENOUGH_FLOWS:
        figures["flow-sizes"] = _cdf(size, "bytes on the wire, both directions", "flows", format_bytes)
    whole = s.flows["handshake_rtt_ns"].notna().to_numpy()
    lasted = (s.flows["last_ts_ns"] - s.flows["first_ts_ns"]).to_numpy()[whole] / 1e9
    if len(lasted) >= ENOUGH_FLOWS:
        figures["flow-durations"] = _cdf(
            lasted, "first to last packet", "TCP flows", lambda s: format_time_ns(s * 1e9)
        )
    if s.two_taps is not None and len(s.two_taps.queue_delay):
        figures["queue-delay"] = _queue_delay(s)
    if s.two_taps is not None and len(s.two_taps.slots):
        figures["cbiq"] = _cbiq(s)
    return figures


def _figure(height: int = 400, **layout: Any) -> go.Figure:
    """As all figures, but with the heading left to the page."""
    bottom = 50 if layout.get("showlegend") is False else 90
    return figure(height=height, margin={"l": 60, "r": 15, "t": 30, "b": bottom}, **layout)


def _with_legend(fig: go.Figure) -> go.Figure:
    """Higher by what the rows of a long legend take."""
    rows = sum(trace.showlegend is not False for trace in fig.data) // 3
    return fig.update_layout(height=fig.layout.height + 18 * rows, margin_b=fig.layout.margin.b + 18 * rows)


def _time_axis(s: Summary) -> dict[str, Any]:
    """The same for all figures over time, so that they can be zoomed together."""
    return {
        "xaxis_title_text": "time since the first packet (s)",
        "xaxis_range": [0, max(s.duration_s, 1e-6)],
    }


def _log_axis(low: float, high: float, text: Callable[[float], str] = "{:g}".format) -> dict[str, Any]:
    """A logarithmic axis with every number written out; plotly's own says "2" for 2000."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 5 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [text(tick) for tick in ticks]}


def _worth_a_curve(s: Summary) -> pd.DataFrame:
    size = s.top["bytes_fwd"] + s.top["bytes_rev"]
    return s.top[size >= WORTH_A_CURVE * size.max()]


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
        """Bytes a second."""
        return np.add.reduceat(size, self._starts)[self._keep] / self._covered_s


def _throughput(s: Summary) -> dict[str, go.Figure]:
    """The top flows with all packets behind them; where these dwarf the flows, two figures."""
    rates = _Rates(s)
    names = Names(s.top)
    kinds = {kind: rates.of(s.throughput[f"{kind}_bytes"].to_numpy()) for kind in ("tcp", "udp", "other")}
    total = sum(kinds.values(), np.zeros(len(rates.middle_s)))
    by_way = {
        way: rates.of(of["bytes"].to_numpy())
        for way, of in s.flow_throughput.groupby(["flow_id", "direction"])
    }
    curves = [
        (rank, flow, by_way[flow.flow_id, flow.data_direction])
        for rank, flow in enumerate(each(_worth_a_curve(s)))
        if (flow.flow_id, flow.data_direction) in by_way
    ]
    most = max((curve.max() for _, _, curve in curves), default=0)
    figures = {}
    dwarfed = most < DWARFED * total.max()
    if dwarfed:
        scale, unit = _rate_scale(total.max())
        fig = _figure(**_time_axis(s), yaxis_title_text=f"throughput ({unit})", yaxis_rangemode="tozero")
        for rank, (kind, rate) in enumerate(kinds.items()):
            if rate.any():
                _add_line(
                    fig,
                    rates.middle_s,
                    rate * scale,
                    kind if kind == "other" else kind.upper(),
                    f"%{{x:.6~g}} s: %{{y:.4~g}} {unit}",
                    stackgroup="all",
                    line={"color": COLOURS[rank], "width": 0.5},
                )
        figures["throughput-all"] = fig
    scale, unit = _rate_scale(most if dwarfed else total.max(initial=0))
    hover = f"%{{x:.6~g}} s: %{{y:.4~g}} {unit}"
    fig = _figure(**_time_axis(s), yaxis_title_text=f"throughput ({unit})", yaxis_rangemode="tozero")
    if not dwarfed:
        _add_line(
            fig,
            rates.middle_s,
            total * scale,
            "all packets",
            hover,
            line={"color": GREY, "width": 1},
            fill="tozeroy",
            fillcolor="rgba(128,128,128,0.15)",
        )
    for rank, flow, curve in curves:
        began_s, ended_s = ((t - s.totals["first_ts_ns"]) / 1e9 for t in (flow.first_ts_ns, flow.last_ts_ns))
        half_s = rates.width_s / 2
        there = (rates.middle_s + half_s >= began_s) & (rates.middle_s - half_s <= ended_s)
        _add_line(
            fig,
            rates.middle_s,
            np.where(there, curve * scale, np.nan),
            names.short(flow.flow_id, flow.data_direction),
            hover,
            label=names.long(flow.flow_id, flow.data_direction),
            meta={"brief": f"flow {flow.flow_id}"},  # for narrow screens
            line=line_of(rank) | {"width": 1.8},
            visible=True if rank < SHOWN else "legendonly",
        )
    return figures | {"throughput": _with_legend(fig)}


def _jain(s: Summary) -> go.Figure:
    fig = _figure(
        height=280,
        **_time_axis(s),
        yaxis_title_text="Jain's index",
        yaxis_range=[0, 1.04],
        showlegend=False,
    )
    middle_s = s.jain["time_s"] + s.jain_bin_ns / 2e9
    _add_line(
        fig,
        middle_s.to_numpy(),
        s.jain["jain"].to_numpy(),
        "Jain's index",
        "%{x:.6~g} s: %{y:.3f} over %{customdata} flows",
        customdata=s.jain["flows"].to_numpy(),
        line={"color": COLOURS[0], "width": 1.8},
    )
    return fig


def _rtt(s: Summary) -> go.Figure:
    import plotly.graph_objects as go

    fig = _figure(**_time_axis(s), yaxis_title_text="RTT (ms)", yaxis_rangemode="tozero")
    names = Names(s.top)
    bins = len(s.throughput)
    width_s = wider_bins(s.bin_ns, bins, BINS) * s.bin_ns / 1e9
    drawn: list[float] = []
    for rank, flow in enumerate(each(_worth_a_curve(s))):
        side = _rtt_direction(flow)
        of = s.rtt_over_time
        of = of[(of["flow_id"] == flow.flow_id) & (of["direction"] == side)]
        if of.empty:
            continue
        wide = (of["time_s"] / width_s + 1e-9).astype(int)
        total = (of["mean_ns"] * of["samples"]).groupby(wide).sum()
        samples = of["samples"].groupby(wide).sum()
        low, high = of["min_ns"].groupby(wide).min(), of["max_ns"].groupby(wide).max()
        # A line or shade across bins without samples would be invented: they are gaps.
        gap = np.flatnonzero(np.diff(samples.index) > 3) + 1
        x, mean, low, high, samples = (
            np.insert(values.to_numpy(float), gap, np.nan)
            for values in (samples.index.to_series(), total / samples, low, high, samples)
        )
        x = (x + 0.5) * width_s
        line = line_of(rank)
        look = {"legendgroup": f"{flow.flow_id}", "visible": True if len(drawn) < SHOWN else "legendonly"}
        _add_line(
            fig,
            x,
            mean / 1e6,
            names.short(flow.flow_id, side),
            "%{x:.6~g} s: mean %{y:.4~g} ms,<br>"
            "%{customdata[0]:.4~g} to %{customdata[1]:.4~g} ms in %{customdata[2]:,} samples",
            label=names.long(flow.flow_id, side),
            customdata=np.column_stack([low / 1e6, high / 1e6, samples]),
            mode="lines+markers",  # a bin without samples on either side is no line
            marker={"size": 3},
            line=line | {"width": 1.6},
            meta={"brief": f"flow {flow.flow_id}"},
            **look,
        )
        runs = [run for run in np.split(np.arange(len(x)), np.flatnonzero(np.isnan(x))) if len(run)]
        around = np.concatenate([np.concatenate([run, run[::-1]]) for run in runs])
        upper = np.concatenate([np.repeat([True, False], len(run)) for run in runs])
        fig.add_trace(
            go.Scatter(
                x=x[around],
                y=np.where(upper, high[around], low[around]) / 1e6,
                mode="none",
                fill="toself",
                fillcolor=_faint(line["color"]),
                hoverinfo="skip",
                showlegend=False,
                **look,
            )
        )
        drawn.append(float(np.nanmedian(mean)))
    if max(drawn, default=0) > MIXED_RTTS * min(drawn, default=0) > 0:
        fig.update_yaxes(_log_axis(min(drawn) / 1e7, max(drawn) / 1e5))
    return _with_legend(fig)


def _faint(colour: str) -> str:
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({r},{g},{b},0.16)"


def _rtt_direction(flow: Any) -> int:
    """The direction whose RTT tells of the path the data takes; the other if that has no samples."""
    side = int(flow.data_direction)
    return side if (flow.rtt_samples_fwd, flow.rtt_samples_rev)[side] else 1 - side


def _queue_delay(s: Summary) -> go.Figure:
    assert s.two_taps is not None
    fig = _figure(**_time_axis(s), yaxis_title_text="delay from tap to tap (ms)", yaxis_rangemode="tozero")
    names = Names(s.top)
    of_way = dict(list(s.two_taps.queue_delay.groupby(["flow_id", "direction"])))
    drawn = [
        (rank, flow.flow_id, side, of_way[flow.flow_id, side].dropna(subset="delay_ns"))
        for rank, flow in enumerate(each(_worth_a_curve(s)))
        for side in (0, 1)
        if (flow.flow_id, side) in of_way
    ]
    for rank, flow_id, side, of in drawn:
        x = (of["ts_ns"].to_numpy() - s.totals["first_ts_ns"]) / 1e9
        y = of["delay_ns"].to_numpy(float) / 1e6
        few = thin_rows(x, y, points=max(POINTS // len(drawn), 400))
        _add_line(
            fig,
            x[few],
            y[few],
            names.short(flow_id, side),
            "%{x:.6~g} s: %{y:.4~g} ms",
            label=names.long(flow_id, side),
            mode="markers",
            marker={"size": 3, "color": line_of(rank)["color"]},
            meta={"brief": f"flow {flow_id}"},
        )
    return _with_legend(fig)


def _cbiq(s: Summary) -> go.Figure:
    assert s.two_taps is not None
    fig = _figure(**_time_axis(s), yaxis_title_text="bytes in the queue", yaxis_rangemode="tozero")
    names = Names(s.top)
    since_s = (s.two_taps.first_slot_ns - s.totals["first_ts_ns"]) / 1e9
    for rank, flow in enumerate(each(_worth_a_curve(s))):
        of = s.two_taps.slots
        of = of[of["flow_id"] == flow.flow_id]
        if not of["cbiq_bytes"].notna().any():
            continue
        # what is in the queue at the end of the slot
        x = since_s + (of["slot"].to_numpy() + 1) * s.two_taps.slot_ns / 1e9
        y = of["cbiq_bytes"].to_numpy(float, na_value=np.nan)
        few = thin_rows(x, y, points=POINTS // 4)
        _add_line(
            fig,
            x[few],
            y[few],
            names.short(flow.flow_id),
            "%{x:.6~g} s: %{y:,} bytes",
            label=names.long(flow.flow_id),
            line=line_of(rank) | {"width": 1.4},
            meta={"brief": f"flow {flow.flow_id}"},
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
    few, most = (np.log10(s.rtt_quantile_ns(q) / 1e6) for q in (0.005, 0.995))
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


# Tables: rows of cells; a cell that sorts otherwise than it reads is (text, key).

Cell = tuple[str, float] | tuple[str, float, float]  # the third member is the length of a bar behind it


def _bytes_cell(size: float) -> Cell:
    return format_bytes(size), float(size)


def _time_cell(ns: Any) -> Cell:
    return ("–", -1.0) if pd.isna(ns) else (format_time_ns(float(ns)), float(ns))


def _count_cell(n: float) -> Cell:
    return f"{int(n):,}", float(n)


def _share_cell(part: float, whole: float) -> Cell:
    if not whole:
        return "–", -1.0
    text = format_percent(part / whole).replace("less than ", "< ").replace("more than ", "> ")
    return text, part / whole, part / whole


def _numbers(s: Summary) -> list[tuple[str, str]]:
    """The tiles at the top: what is counted, and how much of it."""
    t = s.totals
    numbers = [
        ("duration", format_time_ns(s.duration_s * 1e9)),
        ("packets", f"{t['packets']:,}"),
        ("bytes on the wire", format_bytes(t["bytes"])),
        ("flows", f"{t['flows']:,}"),
        ("mean rate", format_rate(t["bytes"] / s.duration_s) if s.duration_s else "–"),
    ]
    if t["rtt_samples"]:
        numbers.append(("median RTT", format_time_ns(s.rtt_quantile_ns(0.5))))
    if t["segments"]:
        numbers.append(("TCP retransmitted", format_percent(s.retransmitted_share)))
    return numbers


def _facts(s: Summary) -> list[tuple[str, str]]:
    """What the capture is."""
    m, t = s.meta, s.totals
    compressed = "" if m.compression == "none" else f", compressed with {m.compression}"
    facts = [
        ("file", printable(m.path)),
        ("format", f"{m.format}{compressed}"),
        ("link types", ", ".join(m.link_types) or "none"),
        ("snap length", f"{m.snaplen:,} bytes" if m.snaplen else "no limit"),
        ("frames", f"{m.frames:,}, {m.packets:,} of them with an IP header"),
    ]
    if t["packets"]:
        first, last = (pd.Timestamp(ns, unit="ns", tz="UTC") for ns in (t["first_ts_ns"], t["last_ts_ns"]))
        facts += [
            ("first packet", f"{first:%Y-%m-%d %H:%M:%S.%f} UTC"),
            ("last packet", f"{last:%Y-%m-%d %H:%M:%S.%f} UTC"),
        ]
    if m.captured_bytes:
        facts.append(
            ("captured", f"{format_bytes(m.captured_bytes)} of {format_bytes(m.wire_bytes)} on the wire")
        )
    facts.append(
        (
            "dropped",
            "the file does not say" if m.dropped is None else f"{m.dropped:,} packets lost at capture",
        )
    )
    if m.truncated:
        facts.append(("end", "cut or damaged; all whole frames before are here"))
    facts += [
        (name.replace("_", " "), f"{n:,}")
        for name, n in m.counts.items()
        if n and name in ("vlan", "mpls", "pppoe", "tunnelled")
    ]
    return facts


def _protocol_rows(s: Summary) -> list[list[Cell | str]]:
    return [
        [
            f"IPv{row.ip_version} {row.name}",
            _count_cell(row.flows),
            _count_cell(row.packets),
            _bytes_cell(row.bytes),
            _share_cell(row.bytes, s.totals["bytes"]),
        ]
        for row in each(s.protocols)
    ]


def _service_rows(s: Summary) -> list[list[Cell | str]]:
    return [
        [
            f"{protocol_name(row.protocol)} {row.port}" + (f" ({row.name})" if row.name else ""),
            _count_cell(row.flows),
            _count_cell(row.packets),
            _bytes_cell(row.bytes),
            _share_cell(row.bytes, s.totals["bytes"]),
        ]
        for row in each(s.services.head(SERVICES_LISTED))
    ]


def _ecn_rows(s: Summary) -> list[list[Cell | str]]:
    return [
        [name, _count_cell(n), _share_cell(n, s.totals["packets"])] for name, n in s.ecn_packets.items() if n
    ]


LOSS_COLUMNS = (
    ("flow", "number, initiator → responder"),
    ("retransmitted →", "segments from the initiator"),
    ("retransmitted ←", "segments to the initiator"),
    ("share", "of the segments sent, both directions"),
    ("out of order →", "overtaken on the way to the tap"),
    ("out of order ←", ""),
    ("dup. ACKs →", "sent by the initiator"),
    ("dup. ACKs ←", "sent to the initiator"),
)
LOSSES_LISTED = 12


def _loss_rows(s: Summary) -> list[list[Cell | str]]:
    """The flows with the most retransmissions."""
    again = (s.flows["retransmits_fwd"] + s.flows["retransmits_rev"]).to_numpy()
    order = np.argsort(-again, kind="stable")[:LOSSES_LISTED]
    flows = s.flows.iloc[order[again[order] > 0]]
    shares = retransmitted_share(flows)
    return [
        [
            (f"{flow.flow_id}: {flow_name(flow._asdict())}", float(flow.flow_id)),
            _count_cell(flow.retransmits_fwd),
            _count_cell(flow.retransmits_rev),
            (format_percent(share), share),
            _count_cell(flow.out_of_order_fwd),
            _count_cell(flow.out_of_order_rev),
            _count_cell(flow.duplicate_acks_fwd),
            _count_cell(flow.duplicate_acks_rev),
        ]
        for flow, share in zip(each(flows), shares, strict=True)
    ]


FLOW_COLUMNS = (
    ("flow", "number, initiator → responder"),
    ("protocol", ""),
    ("start", "since the first packet"),
    ("duration", "first to last packet"),
    ("bytes →", "on the wire, from the initiator"),
    ("bytes ←", "on the wire, to the initiator"),
    ("rate", "mean, in the direction with more data"),
    ("handshake", "RTT: SYN to the initiator's first ACK"),
    ("RTT min", "in the direction with more data"),
    ("RTT median", ""),
    ("RTT p95", ""),
    ("retransmitted", "segments, and share of the segments sent; both directions"),
    ("out of order", "segments overtaken on the way to the tap, both directions"),
    ("dup. ACKs", "both directions"),
)


CCA_COLUMN = ("CCA", "congestion control by a model, and how probable")


def _flow_columns(s: Summary) -> list[tuple[str, str]]:
    columns = list(FLOW_COLUMNS)
    if s.ccas is not None and len(s.ccas):
        columns.insert(2, CCA_COLUMN)
    return columns


def _cca_cells(s: Summary) -> dict[int, Cell]:
    """By flow, what the model says; with what it saw where that is not what it saw of most flows."""
    if s.ccas is None:
        return {}
    told = s.ccas[s.ccas["cca"].notna()]
    usual = _usual_feature_set(s.ccas)
    return {
        row.flow_id: (
            printable(format_cca(row.cca, row.probability))
            + (f" ({row.feature_set})" if row.feature_set != usual else ""),
            row.probability,
        )
        for row in each(told)
    }


def _usual_feature_set(ccas: pd.DataFrame) -> str:
    sets = ccas["feature_set"][ccas["cca"].notna()].value_counts()
    return str(sets.index[0]) if len(sets) else ""


_SEEN = {"cbiq": "bytes in the queue", "bytes_in_flight": "bytes in flight", "throughput": "throughput"}


def _ccas_in_words(s: Summary) -> str:
    """Which model spoke, and what it was told."""
    if s.ccas is None or not len(s.ccas):
        return ""
    model = printable(s.ccas["model"].iloc[0])
    parts = [_SEEN.get(name, name) for name in _usual_feature_set(s.ccas).split("+") if name]
    seen = " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
    told = f" from {seen} ({'two taps' if s.two_taps is not None else 'one tap'})" if seen else ""
    return (
        f"CCA: the congestion control that the model {model} takes for the most probable{told}, by the first minute "
        "of each flow; unknown where nothing is probable enough. Only TCP flows with a megabyte of data are asked about"
        + (
            f", and of a file only the first {PACKETS_AGAIN:,} packets."
            if s.meta.packets > PACKETS_AGAIN
            else "."
        )
    )


def _flow_rows(s: Summary, flows: pd.DataFrame) -> list[list[Cell | str]]:
    rows: list[list[Cell | str]] = []
    ccas = _cca_cells(s)
    with_ccas = CCA_COLUMN in _flow_columns(s)
    for flow, share in zip(each(flows), retransmitted_share(flows), strict=True):
        more_rev = flow.payload_rev > flow.payload_fwd
        way = "rev" if more_rev else "fwd"
        lasted_ns = flow.last_ts_ns - flow.first_ts_ns
        size = flow.bytes_rev if more_rev else flow.bytes_fwd
        rate = size / (lasted_ns / 1e9) if lasted_ns else None
        tcp = flow.protocol == 6
        again = flow.retransmits_fwd + flow.retransmits_rev

        def if_tcp(cell: Cell, tcp: bool = tcp) -> Cell:
            return cell if tcp else ("–", -1.0)

        rows.append(
            [
                (f"{flow.flow_id}: {flow_name(flow._asdict())}", float(flow.flow_id)),
                protocol_name(flow.protocol),
                *([ccas.get(flow.flow_id, ("–", -1.0))] if with_ccas else []),
                _time_cell(flow.first_ts_ns - s.totals["first_ts_ns"]),
                _time_cell(lasted_ns),
                _bytes_cell(flow.bytes_fwd),
                _bytes_cell(flow.bytes_rev),
                (format_rate(rate), rate) if rate is not None else ("–", -1.0),
                _time_cell(flow.handshake_rtt_ns),
                *(_time_cell(getattr(flow, f"rtt_{name}_ns_{way}")) for name in ("min", "median", "p95")),
                if_tcp((f"{again:,} ({format_percent(share)})" if again else "0", float(again))),
                if_tcp(_count_cell(flow.out_of_order_fwd + flow.out_of_order_rev)),
                if_tcp(_count_cell(flow.duplicate_acks_fwd + flow.duplicate_acks_rev)),
            ]
        )
    return rows


TAP_COLUMNS = (
    ("flow", "number, initiator → responder; the arrow's direction, or against it"),
    ("packets", "at the first tap"),
    ("lost", "came in and did not leave"),
    ("share", "lost of those that came in"),
    ("delay median", "from tap to tap"),
    ("delay p95", ""),
    ("delay max", ""),
)


def _tap_rows(s: Summary) -> list[list[Cell | str]]:
    if s.two_taps is None:
        return []
    names = s.top.set_index("flow_id")
    delays = dict(list(s.two_taps.queue_delay.groupby(["flow_id", "direction"])["delay_ns"]))
    rows: list[list[Cell | str]] = []
    for way in each(s.two_taps.queue_loss):
        against = " (to the initiator)" if way.direction else ""
        waited = delays[way.flow_id, way.direction].dropna().astype(float)
        rows.append(
            [
                (f"{way.flow_id}: {flow_name(names.loc[way.flow_id])}{against}", float(way.flow_id)),
                _count_cell(way.packets_in),
                _count_cell(way.packets_lost),
                _share_cell(way.packets_lost, way.packets_in)[:2],
                *(_time_cell(waited.quantile(q)) for q in (0.5, 0.95, 1)),
            ]
        )
    return rows


def terminal_summary(summary: Summary) -> RenderableType:
    """The summary for a terminal: findings, what the capture is, the largest flows, and what could not be computed."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from .._support.terminal import Listing

    def bullets(texts: list[str]) -> Table:
        grid = Table.grid(padding=(0, 1))
        for text in texts:
            grid.add_row("•", Text(printable(text)))
        return grid

    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(summary):
        facts.add_row(Text(name, style="dim"), Text(value))
    parts: list[RenderableType] = [
        Text(printable(os.path.basename(summary.meta.path)), style="bold"),
        bullets([finding.text for finding in summary.findings()]),
        Text(),
        facts,
    ]
    if len(summary.top):
        shown = (
            "flow",
            "protocol",
            *(["CCA"] if CCA_COLUMN in _flow_columns(summary) else []),
            "duration",
            "bytes →",
            "bytes ←",
            "rate",
            "RTT min",
            "RTT median",
            "retransmitted",
        )
        there = [name for name, _ in _flow_columns(summary)]
        columns = [there.index(name) for name in shown]
        rows = [
            [cell if isinstance(cell, str) else cell[0] for cell in (row[i] for i in columns)]
            for row in _flow_rows(summary, summary.top)
        ]
        keep = ("bytes →", "RTT median", "retransmitted", "CCA", "rate", "RTT min", "bytes ←", "duration")
        table = Listing(
            shown, rows, left=("flow", "protocol"), wrap=("flow",), keep=keep, more="cct flows -o FILE"
        )
        parts += [Text(), table]
    if summary.notes:
        parts += [Text(), Text("Not here, and why", style="bold"), bullets(summary.notes)]
    return Group(*parts)
