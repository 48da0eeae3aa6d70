"""Thin series for drawing: drop points that do not change the picture, never extremes."""

from __future__ import annotations

import numpy as np

from .._support.arguments import floats
from .._support.kernels import kernel
from ..errors import ParameterError

__all__ = ["thin", "thin_rows"]


#: Buckets at most, for each row; 32 bytes each.
_BUCKETS_PER_ROW = 4


@kernel
def _mark_extremes(x, y, x0, buckets_per_x, buckets, keep):
    """Set `keep` for the first, last, smallest and largest row of each bucket of `x`.

    A NaN in `y` is never an extreme but is kept as first or last, so gaps wider than a bucket remain.
    """
    first = np.full(buckets, -1, np.int64)
    last = np.empty(buckets, np.int64)
    low = np.full(buckets, -1, np.int64)
    high = np.empty(buckets, np.int64)
    for i in range(x.size):
        # Halves, so that the difference of two huge numbers of either sign does not overflow.
        bucket = min(np.int64((0.5 * x[i] - 0.5 * x0) * buckets_per_x), buckets - 1)
        if first[bucket] < 0:
            first[bucket] = i
        last[bucket] = i
        value = y[i]
        if value == value:
            if low[bucket] < 0:
                low[bucket] = i
                high[bucket] = i
            elif value < y[low[bucket]]:
                low[bucket] = i
            elif value > y[high[bucket]]:
                high[bucket] = i
    for bucket in range(buckets):
        if first[bucket] >= 0:
            keep[first[bucket]] = True
            keep[last[bucket]] = True
        if low[bucket] >= 0:
            keep[low[bucket]] = True
            keep[high[bucket]] = True


def thin_rows(x: np.ndarray, *ys: np.ndarray, points: int = 4000) -> np.ndarray:
    """Rows to draw so that each `y` over `x` looks as if all rows were drawn.

    `x` is cut into equal buckets, and in each bucket the first, last, smallest and largest row of each `y` is kept.
    Drawn as a line with at least one bucket per pixel, the picture is the same (M4: Jugel et al., "M4: a
    visualization-oriented time series data aggregation", VLDB 2014).

    Parameters
    ----------
    x : (n,) array of numbers
        Finite, in any order.
    *ys : (n,) arrays of numbers
        One or more series over the same `x`; NaN is a gap.
    points : int
        Maximum number of rows returned; at least 4 for each of `ys`.

    Returns
    -------
    (m,) int64 array
        Ascending row numbers, ``m <= points``; all rows if ``n <= points``.

    Raises
    ------
    ParameterError
        `points` is too small, `x` has a value that is not finite, or the lengths differ.

    See Also
    --------
    thin : the points instead of their rows

    Examples
    --------
    >>> x = np.arange(100_000.0)
    >>> y = np.sin(x)
    >>> rows = cct.plot.thin_rows(x, y, points=1000)
    >>> rows.size <= 1000, y.max() in y[rows]
    (True, True)
    """
    if not ys or points < 4 * len(ys):
        raise ParameterError(f"points={points}: expected at least 4 for each series")
    x = np.ascontiguousarray(floats("x", x, ndim=1))
    series = [np.ascontiguousarray(floats("y", y, ndim=1)) for y in ys]
    if any(len(y) != x.size for y in series):
        raise ParameterError(f"x has {x.size} values, y has {[len(y) for y in series]}")
    if not np.isfinite(x).all():
        raise ParameterError("x has values that are not finite; drop those rows first")
    if x.size <= points:
        return np.arange(x.size)
    x0, half_span = x.min(), 0.5 * x.max() - 0.5 * x.min()
    rows = None
    buckets = points // (4 * len(ys))
    while True:  # smooth series need fewer than 4 rows per bucket, so more buckets fit
        keep = np.zeros(x.size, np.bool_)
        with np.errstate(over="ignore", divide="ignore"):
            buckets_per_x = buckets / half_span
        if not np.isfinite(buckets_per_x):  # all at one x, or nearly
            buckets_per_x = 0.0
        for y in series:
            _mark_extremes(x, y, x0, buckets_per_x, buckets, keep)
        found = np.flatnonzero(keep)
        if rows is not None and (found.size > points or found.size <= rows.size):
            return rows
        rows = found
        if buckets > _BUCKETS_PER_ROW * x.size:  # bursts far apart: finer buckets would be memory for nothing
            return rows
        buckets *= 2


def thin(x: np.ndarray, y: np.ndarray, points: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """`x` and `y` with at most `points` points that draw the same line; see :func:`thin_rows`.

    Returns
    -------
    x, y : ndarray
        The points that are left.

    See Also
    --------
    thin_rows : row numbers, for several series over one x

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(100_000.0)
    >>> y = np.zeros(x.size); y[54_321] = 1
    >>> few_x, few_y = cct.plot.thin(x, y, points=100)
    >>> few_x.size <= 100, float(few_y.max())
    (True, 1.0)
    """
    rows = thin_rows(x, y, points=points)
    return np.asarray(x)[rows], np.asarray(y)[rows]
