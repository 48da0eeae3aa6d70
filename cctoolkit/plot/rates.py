"""Throughput over time, and how evenly it is shared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.kernels import kernel
from ..capture.model import columns_of
from ..errors import ParameterError
from .source import Names, pick_flows, start_of
from .style import (
    COLOURS,
    GREY,
    INK,
    POINTS,
    figure,
    line_of,
    note,
)
from .thinning import thin_rows

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["BIG_SHARE", "throughput"]

_MOST_BINS = 1_000_000

#: Flows with less than this share of the largest flow's bytes are left out unless asked for.
BIG_SHARE = 0.01


@kernel
def _bin_bytes(ts_ns, flow_id, direction, wire_bytes, row_of, first_ns, width_ns, out):
    """Add each packet's bytes to row 0 (all packets) and to the row of its flow and direction, if it has one.

    Parameters
    ----------
    ts_ns, flow_id, direction, wire_bytes : arrays
        Columns of the packets table (:data:`cctoolkit.schema.PACKETS`).
    row_of : int array, shape (flows, 2)
        Row of `out` of each flow and direction; 0: none.
    first_ns, width_ns : int
        Start of the first bin and width of all.
    out : int64 array, shape (rows, bins)
        Updated.
    """
    bins = out.shape[1]
    for i in range(np.uint64(ts_ns.size)):
        at = (ts_ns[i] - first_ns) // width_ns
        if 0 <= at < bins:
            size = np.int64(wire_bytes[i])
            out[0, at] += size
            row = row_of[np.uint64(flow_id[i]), np.uint64(direction[i] & 1)]
            if row > 0:
                out[row, at] += size


def nice_bin_s(duration_s: float, bins: int = 200) -> float:
    """The smallest of 1, 2, 5 times a power of ten that cuts `duration_s` into at most `bins`; at least 10 µs."""
    minimum = max(duration_s / bins, 1e-5)
    power = 10.0 ** np.floor(np.log10(minimum))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= minimum * (1 - 1e-9)))


def throughput(
    cap: Any,
    bin_s: float | None = None,
    flows: Iterable[int] | None = None,
    *,
    most: int = len(COLOURS),
    between_s: tuple[float, float] | None = None,
) -> go.Figure:
    """Throughput over time, and below it Jain's fairness index of the flows drawn.

    Throughput counts bytes on the wire: for each flow in the direction that carried more of them (not the ACKs of a
    download), and in grey for all packets in both directions. A flow's line runs from its first packet to its last;
    bins without packets in between are 0, and these zeros count in Jain's index (Jain, Chiu and Hawe 1984: the square
    of the sum over n times the sum of the squares). The index has gaps where fewer than two flows are active.

    Parameters
    ----------
    cap : Capture or packets table
    bin_s : float, optional
        Bin width in seconds. By default 1, 2 or 5 times a power of ten, for about 200 bins.
    flows : iterable of int, optional
        Flows to draw, in the order of the colours. By default, the `most` flows with the most bytes, except those with
        less than 1 % of the largest flow's.
    between_s : (float, float), optional
        Draw only this interval, in seconds.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        `bin_s` is not positive or makes more than a million bins, or there is no such flow.

    See Also
    --------
    cctoolkit.throughput : the table behind the upper panel
    cctoolkit.jain_over_time : Jain's index over time as a table
    goodput : application bytes of a simulated run

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> fig = cct.plot.throughput(run.ingress, bin_s=0.1)
    >>> fig.layout.title.text
    "Throughput and Jain's index (2 of 3 flows, bins of 100 ms)"
    """
    import plotly.graph_objects as go

    columns = columns_of(cap)
    names = Names(cap)
    ts_ns, flow_id, wire = columns["ts_ns"], columns["flow_id"], columns["wire_bytes"]
    fig = figure(
        height=520,
        xaxis_title_text="time since the capture's start (s)",
        xaxis_anchor="y2",
        yaxis_domain=[0.36, 1],
        yaxis2={"domain": [0, 0.26], "title": {"text": "Jain's index"}, "range": [0, 1.04]},
        yaxis_rangemode="tozero",
    )
    if not ts_ns.size:
        return note(fig.update_layout(title_text="Throughput"), "no packets")
    way = flow_id.astype(np.int64) * 2 + columns["direction"]
    one_way = np.bincount(way, wire, minlength=2 * (int(flow_id.max()) + 1)).reshape(-1, 2)
    there = np.flatnonzero(one_way.any(axis=1))
    sizes = pd.Series(one_way[there].max(axis=1), there)
    if flows is None:  # a neighbour solicitation every second would make any sharing look unfair
        flows = pick_flows(sizes[sizes >= BIG_SHARE * sizes.max()], None, most)
    picked = pick_flows(sizes, flows, most)
    side = one_way[picked].argmax(axis=1)

    start_ns = start_of(cap, ts_ns)
    span = between_s or (0.0, float(ts_ns.max() - start_ns) / 1e9)
    if bin_s is None:
        bin_s = nice_bin_s(span[1] - span[0])
    width_ns = round(bin_s * 1e9) if np.isfinite(bin_s) else 0
    if width_ns <= 0:
        raise ParameterError(f"bin_s={bin_s}: expected a positive number of seconds, 1e-9 or more")
    first = int(span[0] * 1e9) // width_ns  # bins start at the same times however far one has zoomed in
    bins = max(int(span[1] * 1e9) // width_ns - first + 1, 1)
    if bins > _MOST_BINS:
        raise ParameterError(f"bin_s={bin_s} makes {bins:,} bins; the maximum is {_MOST_BINS:,}")

    row_of = np.zeros(one_way.shape, np.int32)
    row_of[picked, side] = np.arange(1, len(picked) + 1)
    sums = np.zeros((len(picked) + 1, bins), np.int64)
    first_ns = start_ns + first * width_ns
    _bin_bytes(ts_ns, flow_id, columns["direction"], wire, row_of, first_ns, width_ns, sums)
    mbps = sums * (8e3 / width_ns)
    middle_s = (first + np.arange(bins) + 0.5) * (width_ns / 1e9)
    alive = np.zeros((len(picked), bins), np.bool_)
    for rank, (flow, one) in enumerate(zip(picked, side, strict=True)):
        mine = ts_ns[(flow_id == flow) & (columns["direction"] == one)]
        low, high = ((int(t) - first_ns) // width_ns for t in (mine.min(), mine.max()))
        alive[rank, max(low, 0) : max(high + 1, 0)] = True

    scale, unit = _rate_unit(float(mbps.max()))
    rows: list[tuple[int, str, str, dict[str, Any], str]] = [
        (0, "all packets", "all packets, both directions", {"color": GREY, "width": 1}, "all packets")
    ]
    rows += [
        (
            rank + 1,
            names.short(flow, one),
            names.long(flow, one),
            line_of(rank) | {"width": 1.8},
            f"flow {flow}",
        )
        for rank, (flow, one) in enumerate(zip(picked, side, strict=True))
    ]
    for row, name, hover, line, group in rows:
        y = mbps[row] * scale
        if row:
            y = np.where(alive[row - 1], y, np.nan)
        few = thin_rows(middle_s, y, points=POINTS)
        fig.add_trace(
            go.Scatter(
                x=middle_s[few],
                y=y[few],
                name=name,
                legendgroup=group,
                mode="lines",
                line=line,
                hovertemplate=f"%{{x:.6~g}} s<br>%{{y:.4~g}} {unit}<extra>{hover}</extra>",
            )
        )
    jain = _jain(np.where(alive, sums[1:], 0), alive)
    few = thin_rows(middle_s, jain, points=POINTS)
    fig.add_trace(
        go.Scatter(
            x=middle_s[few],
            y=jain[few],
            yaxis="y2",
            name="Jain's index",
            showlegend=False,
            mode="lines",
            line={"color": INK, "width": 1.5},
            hovertemplate="%{x:.6~g} s<br>Jain's index %{y:.3f}<extra></extra>",
        )
    )
    if np.isnan(jain).all():
        note(fig, "Jain's index needs at least two flows at a time", y=0.13)
    if between_s is not None:
        fig.update_xaxes(range=between_s)
    drawn = f"{len(picked)} of {there.size:,} flows, " if len(picked) < there.size else ""
    fig.update_layout(
        title_text=f"Throughput and Jain's index ({drawn}bins of {_seconds(bin_s)})",
        yaxis_title_text=f"throughput ({unit})",
    )
    return fig


def _jain(bytes_in_bin: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Jain's index of each bin over its active flows; NaN with fewer than two, or if none sent."""
    x = bytes_in_bin.astype(np.float64)
    count = alive.sum(axis=0)
    squares = (x**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        index = x.sum(axis=0) ** 2 / (count * squares)
    return np.where((count >= 2) & (squares > 0), index, np.nan)


def _rate_unit(most_mbps: float) -> tuple[float, str]:
    for scale, unit in ((1e-3, "Gbit/s"), (1.0, "Mbit/s")):
        if most_mbps * scale >= 1:
            return scale, unit
    return 1e3, "kbit/s"


def _seconds(value: float) -> str:
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * scale >= 1:
            return f"{value * scale:g} {unit}"
    return f"{value * 1e9:g} ns"
