"""Small charts beside sentences, as SVG: no script needed, in the text's own colours."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

__all__ = ["Sketch", "bars_over_time", "svg"]

WIDTH, HEIGHT = 132, 34
#: Points of a line; more would be finer than a screen.
POINTS = 66


@dataclass(frozen=True)
class Sketch:
    """A small chart: a line with evenly spaced values, or parts of a whole.

    Attributes
    ----------
    what : str
        What it shows, for screen readers.
    values : tuple of float
        NaN is a gap.
    kind : {"line", "parts"}
    """

    what: str
    values: tuple[float, ...]
    kind: Literal["line", "parts"] = "line"


def bars_over_time(
    place: np.ndarray, values: np.ndarray, places: int, how: Literal["max", "mean", "sum"]
) -> tuple[float, ...]:
    """Values at `place` (0 to `places` - 1), combined into the points of a line.

    Returns
    -------
    tuple of float
        NaN where there is no value; 0 for a sum.
    """
    points = min(POINTS, max(places, 1))
    at = np.minimum(np.asarray(place, np.int64) * points // max(places, 1), points - 1)
    values = np.asarray(values, float)
    some = ~np.isnan(values)
    at, values = at[some], values[some]
    if how == "max":
        out = np.full(points, -np.inf)
        np.maximum.at(out, at, values)
        return tuple(np.where(np.isinf(out), np.nan, out).tolist())
    total = np.bincount(at, values, points)
    if how == "sum":
        return tuple(total.tolist())
    count = np.bincount(at, minlength=points)
    return tuple(np.where(count > 0, total / np.maximum(count, 1), np.nan).tolist())


def svg(sketch: Sketch) -> str:
    """The chart as an SVG element; ``.a`` is its area, ``.l`` its line, ``.p0`` and so on are the parts."""
    draw = _line if sketch.kind == "line" else _parts
    return (
        f'<svg class="sketch" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{html.escape(sketch.what)}">{"".join(draw(sketch.values))}</svg>'
    )


def _line(values: tuple[float, ...]) -> Iterable[str]:
    y = np.array(values, float)
    if not len(y):
        return
    top = float(np.nanmax(y)) if (~np.isnan(y)).any() else 0.0
    x = np.linspace(1, WIDTH - 1, max(len(y), 2))[: len(y)]
    height = HEIGHT - 2 - (y / top if top > 0 else y * 0) * (HEIGHT - 5)
    runs = np.split(np.arange(len(y)), np.flatnonzero(np.diff(np.isnan(y))) + 1)
    for run in runs:
        if np.isnan(y[run[0]]):
            continue
        if len(run) == 1:  # one value alone is a dot
            yield f'<circle class="d" cx="{x[run[0]]:.1f}" cy="{height[run[0]]:.1f}" r="1.2"/>'
            continue
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x[run], height[run], strict=True))
        base = HEIGHT - 1
        yield f'<path class="a" d="M{x[run[0]]:.1f} {base}L{path}L{x[run[-1]]:.1f} {base}Z"/>'
        yield f'<path class="l" d="M{path}"/>'


def _parts(values: tuple[float, ...]) -> Iterable[str]:
    total, left = sum(values) or 1.0, 0.0
    for k, value in enumerate(values):
        wide = value / total * (WIDTH - 2)
        if wide > 0:
            yield (
                f'<rect class="p{min(k, 5)}" x="{1 + left:.1f}" y="9" width="{max(wide - 1, 0.6):.1f}" '
                f'height="{HEIGHT - 18}"/>'
            )
        left += wide
