"""The time axis of the report's figures: one, or several side by side where long silences are cut out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.words import format_time_ns

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from .summary import Summary

__all__ = ["BusyAxis", "TimeAxis"]

#: Space between two parts, and the minimum width of one, as shares of the figure's.
_BETWEEN = 0.03
_LEAST = 0.14


class TimeAxis:
    """Places times since the first packet on the axes.

    Parameters
    ----------
    summary : Summary
    """

    def __init__(self, summary: Summary) -> None:
        first_ns = summary.totals["first_ts_ns"]
        parts = summary.idle.parts_ns(first_ns, summary.totals["last_ts_ns"])
        self._parts_s = [((first - first_ns) / 1e9, (last - first_ns) / 1e9) for first, last in parts]
        self.bin_s = summary.bin_ns / 1e9
        #: The time that is 0 on each axis.
        self._start_s = [first for first, _ in self._parts_s]
        middles = [(a[1] + b[0]) / 2 for a, b in zip(self._parts_s, self._parts_s[1:], strict=False)]
        self._borders_s = [-np.inf, *middles, np.inf]
        self._idle = summary.idle
        self._first_ns = first_ns

    def __len__(self) -> int:
        """The number of parts."""
        return len(self._parts_s)

    def between(self, first_s: float, last_s: float) -> TimeAxis:
        """The axis of an interval: parts outside it are left out."""
        there = [k for k, (first, last) in enumerate(self._parts_s) if first <= last_s and last >= first_s]
        if not there:
            return self
        axis = copy.copy(self)
        axis._parts_s = [(max(self._parts_s[k][0], first_s), min(self._parts_s[k][1], last_s)) for k in there]
        axis._start_s = [0.0, *(self._start_s[k] for k in there[1:])]
        axis._borders_s = [-np.inf, *self._borders_s[there[0] + 1 : there[-1] + 1], np.inf]
        return axis

    def move(self, fig: go.Figure, anchor: str) -> go.Figure:
        """Give these axes to a figure drawn on the clock that leaves silences out."""
        traces, axis_of = list(fig.data), fig.layout.to_plotly_json()["xaxis"]
        fig.data = []
        for trace in traces:
            times = pd.Series(np.asarray(trace.x, np.float64))
            real_s = self.real_s(times.ffill().bfill().to_numpy())  # gaps stay where they are
            for x_axis, here, x in self.split(real_s):
                part = trace.to_plotly_json() | {"xaxis": x_axis}
                for name in ("x", "y", "customdata", "text", "hovertext"):
                    if isinstance(part.get(name), list | tuple | np.ndarray):
                        part[name] = np.asarray(part[name])[here]
                part["x"] = np.where(times.isna().to_numpy()[here], np.nan, x)
                if x_axis != "x":
                    part["showlegend"] = False
                fig.add_trace(part)
        fig.layout.xaxis = axis_of | {"range": None}
        return self.lay_out(fig, anchor)

    def busy_s(self, real_s: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`real_s`."""
        if not len(self._idle):
            return real_s
        real_ns = self._first_ns + np.rint(real_s * 1e9).astype(np.int64)
        return (self._idle.to_busy(real_ns) - self._first_ns) / 1e9

    def real_s(self, busy_s: np.ndarray) -> np.ndarray:
        """Seconds on the clock of the time bins, which leave silences out, as seconds since the first packet."""
        if not len(self._idle):
            return busy_s
        busy_ns = self._first_ns + np.rint(busy_s * 1e9).astype(np.int64)
        return (self._idle.to_real(busy_ns) - self._first_ns) / 1e9

    def split(self, x_s: np.ndarray) -> Iterator[tuple[str, slice | np.ndarray, np.ndarray]]:
        """For each part: its axis, which times are on it, and these times, counted from the start of the part."""
        if len(self._parts_s) == 1:
            yield "x", slice(None), x_s
            return
        for k, start_s in enumerate(self._start_s):
            here = (x_s >= self._borders_s[k]) & (x_s < self._borders_s[k + 1])
            if here.any():
                yield f"x{k + 1 if k else ''}", here, x_s[here] - start_s

    def lay_out(self, fig: go.Figure, anchor: str = "y") -> go.Figure:
        """Give a figure these axes, below the y axis `anchor`."""
        if len(self._parts_s) == 1:
            end_s = max(self._parts_s[0][1], 1e-6)
            return fig.update_layout(
                xaxis={
                    "title": {"text": "time since the first packet (s)"},
                    "range": [0, end_s],
                    "anchor": anchor,
                }
            )
        lasted = np.array([max(last - first, 0.0) for first, last in self._parts_s])
        share = np.maximum(lasted / max(lasted.sum(), 1e-9), _LEAST)
        width = share / share.sum() * (1 - _BETWEEN * (len(share) - 1))
        left = 0.0
        axes: dict[str, Any] = {}
        for k, (wide, start, (first, last)) in enumerate(
            zip(width, self._start_s, self._parts_s, strict=True)
        ):
            since = "s since the first packet"
            if k:
                since = f"s, {format_time_ns(start * 1e9)} later"
            room = max(0.02 * lasted[k], self.bin_s, 1e-6)  # the last bin ends after the last packet
            axes[f"xaxis{k + 1 if k else ''}"] = {
                "domain": [left, min(left + wide, 1.0)],
                "range": [first - start - room / 4, last - start + room],
                "title": {"text": since},
                "anchor": anchor,
                "nticks": max(int(wide * 10), 2),
                "mirror": False,
            }
            left += wide + _BETWEEN
        return fig.update_layout(**axes)


class BusyAxis(TimeAxis):
    """One axis on the clock that leaves silences out, for figures that :meth:`TimeAxis.move` cuts afterwards."""

    def split(self, x_s: np.ndarray) -> Iterator[tuple[str, slice | np.ndarray, np.ndarray]]:
        yield "x", slice(None), self.busy_s(x_s)

    def lay_out(self, fig: go.Figure, anchor: str = "y") -> go.Figure:
        return fig
