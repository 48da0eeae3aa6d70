"""Views of how time and memory grow, for the book; and their plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..._support.markdown import markdown_table
from ..._support.words import plural
from ...plot.style import COLOURS, figure
from ..kept import made

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["VIEWS", "plot"]

Tables = Mapping[str, pd.DataFrame]
_UNITS = {"cpu_s": "CPU time in s", "memory_mb": "memory in MB"}


def _whole(count: float) -> str:
    return f"{count:,.0f}".replace(",", " ")


def _along(tables: Tables, axis: str) -> pd.DataFrame:
    """The measurements in which only `axis` was varied."""
    found = tables["growth"]
    return found[found.axis == axis].sort_values(axis, kind="stable")


def _table(axis: str, value: str) -> Callable[[Tables], str]:
    """A view: a row for each number of `axis`, a column for each program."""

    def one(tables: Tables) -> str:
        found = _along(tables, axis)
        wide = found.pivot_table(index=axis, columns="what", values=value)[list(found.what.unique())]
        wide.insert(0, axis, [_whole(n) for n in wide.index])
        return markdown_table(wide.reset_index(drop=True), labels=1)

    return one


def _octets_each(of: pd.DataFrame, axis: str) -> str:
    """Bytes of memory for one more, from the two largest inputs."""
    few, many = (of.iloc[i] for i in (-2, -1))
    return f"{1e6 * (many.memory_mb - few.memory_mb) / (many[axis] - few[axis]):,.0f} bytes".replace(",", " ")


def per_packet(tables: Tables) -> str:
    """Memory of a further packet in the packets table."""
    found = _along(tables, "packets")
    return _octets_each(found[found.what == "read_capture"], "packets")


def per_flow(tables: Tables) -> str:
    """Memory of a further flow, for each program."""
    programs = _along(tables, "flows").groupby("what", sort=False)
    return ", ".join(f"{_octets_each(of, 'flows')} in `{what}`" for what, of in programs)


def slowest(tables: Tables) -> str:
    """The number of flows with which a report takes longest."""
    found = _along(tables, "flows")
    most = found[found.what == "cct info"].sort_values("cpu_s").iloc[-1]
    return f"it takes longest with {_whole(most.flows)} flows, {most.cpu_s:.3g} s"


def conditions(tables: Tables) -> str:
    """Number of runs, the load from other work, and what was left out."""
    found = tables["growth"]
    load = made("growth").get("options", {}).get("load_before", 0)
    most = found[found.axis == "packets"].groupby("what", sort=False).packets.max()
    short = [f"{what} up to {n:,} packets".replace(",", " ") for what, n in most.items() if n < most.max()]
    left_out = f" Tools that would need more than a minute stop earlier: {', '.join(short)}." if short else ""
    runs = int(found.runs.max())
    return (
        f"Times are medians of {plural(runs, 'run')}, memory is the largest of them. At the start, other work put a "
        f"load of {load:g} on the machine.{left_out}"
    )


def plot(tables: Tables) -> go.Figure:
    """Time and memory against packets and flows, both axes logarithmic."""
    from plotly.subplots import make_subplots

    grid = make_subplots(
        rows=2, cols=2, horizontal_spacing=0.1, vertical_spacing=0.14,
        figure=figure("Time and memory against packets and flows", height=760),
    )  # fmt: skip
    names = list(tables["growth"].what.unique())
    shown = set()
    for column, axis in enumerate(("packets", "flows"), start=1):
        found = _along(tables, axis)
        for row, value in enumerate(_UNITS, start=1):
            for what, of in found.groupby("what", sort=False):
                colour = COLOURS[names.index(what)]
                grid.add_scatter(
                    x=of[axis].astype(np.float64), y=of[value], name=what, legendgroup=what, line_color=colour,
                    mode="lines+markers", showlegend=what not in shown, row=row, col=column,
                )  # fmt: skip
                shown.add(what)
            grid.update_xaxes(type="log", title_text=axis, row=row, col=column)
            grid.update_yaxes(type="log", title_text=_UNITS[value], row=row, col=column)
    return grid


VIEWS: dict[str, Callable[[Tables], str]] = {
    **{
        f"{axis}-{name}": _table(axis, value)
        for axis in ("packets", "flows", "cores")
        for name, value in (("time", "cpu_s"), ("wall", "wall_s"), ("memory", "memory_mb"))
    },
    "per-packet": per_packet,
    "per-flow": per_flow,
    "slowest": slowest,
    "conditions": conditions,
}
