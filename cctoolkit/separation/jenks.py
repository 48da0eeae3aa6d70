"""Classes of similar RTT: natural breaks in one dimension, exact and as the paper's Algorithm 1.

All functions minimise, or try to, the sum of squared deviations of values from the mean of their class. The
goodness of variance fit, ``GVF = 1 - sum_j SD_j / SD``, measures the result: 1 if all values in each class are
equal, 0 if there is a single class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from .._support.arguments import floats, number, whole
from .._support.kernels import kernel
from ..errors import ParameterError

__all__ = [
    "Classes",
    "IncrementalClasses",
    "choose_k",
    "dbscan_classes",
    "gvf_by_k",
    "gvf_of",
    "jenks_classes",
    "kmeans_classes",
]

METHODS = ("exact", "paper")


@dataclass(frozen=True)
class Classes:
    """Values sorted into classes, class 0 the lowest.

    Attributes
    ----------
    breaks : array, shape (k + 1,)
        The lowest value (for Algorithm 1, the lower limit), then the upper limit of each class, which belongs to the
        class.
    labels : array of int64, shape (n,)
        Class of each value, in the given order; higher values have higher classes.
    gvf : float
        Goodness of variance fit in [0, 1]; 1 if all values are equal.

    See Also
    --------
    jenks_classes : classes of little variance

    Examples
    --------
    >>> classes = cct.jenks_classes([10, 11, 50, 52, 100], k=3)
    >>> classes.k, classes.sizes.tolist(), classes.breaks.tolist()
    (3, [2, 2, 1], [10.0, 11.0, 52.0, 100.0])
    """

    breaks: np.ndarray
    labels: np.ndarray
    gvf: float

    @property
    def k(self) -> int:
        """Number of classes (some may be empty with Algorithm 1)."""
        return len(self.breaks) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Number of values in each class, shape (k,)."""
        return np.bincount(self.labels, minlength=self.k)


def jenks_classes(values: Any, k: int, method: str = "exact") -> Classes:
    """Sort values into `k` classes with little variance within.

    Parameters
    ----------
    values : array-like of numbers, shape (n,)
        Finite values in any order, at least one, such as the RTTs of flows. Equal values share a class.
    k : int
        Number of classes.
    method : {"exact", "paper"}
        ``"exact"``: the optimum (Fisher 1958, Jenks 1967), in O(k n log n). With fewer than `k` distinct values,
        each is a class. ``"paper"``: Algorithm 1 of Gomez et al., see Notes. There are always `k` intervals; some
        may be empty.

    Returns
    -------
    Classes
        The classes.

    Raises
    ------
    ParameterError
        There are no values, a value is not finite, or `k` or `method` is invalid.

    See Also
    --------
    cctoolkit.separation.jenks.choose_k : the number of classes
    cctoolkit.separation.jenks.IncrementalClasses : classes of flows measured repeatedly
    cctoolkit.separation.jenks.kmeans_classes, cctoolkit.separation.jenks.dbscan_classes : other algorithms

    Notes
    -----
    **exact.** Dynamic programming over the sorted distinct values: the best j classes of the first m values are the
    best j - 1 classes of the first i and one class of the rest, for the best i. That i does not decrease with m, so
    each layer is solved by divide and conquer. Costs are computed from sums of standardised values; classifications
    whose GVFs differ by less than about 1e-12 count as equal.

    **paper.** Algorithm 1 starts with intervals of equal width and moves width from the interval with the largest
    squared deviation to the one with the lowest, as long as the GVF rises. Where the paper is ambiguous: the width
    moved is a standard deviation of the *largest* (that of the lowest is usually zero); intervals between the two
    keep their width and shift; of several lowest intervals, the nearest one is chosen; and "while the GVF is lower
    than maximum" ends with the first step that does not raise it, which is undone.

    Examples
    --------
    >>> classes = cct.jenks_classes([10, 11, 50, 52, 100], k=3)
    >>> classes.labels.tolist(), round(classes.gvf, 4)
    ([0, 0, 1, 1, 2], 0.9995)
    """
    x = _values(values)
    k = whole("k", k, low=1)
    if method not in METHODS:
        raise ParameterError(f"method: {method!r} must be one of {', '.join(METHODS)}")
    if method == "paper":
        return _algorithm_1(x, k)
    distinct, at, counts = np.unique(x, return_inverse=True, return_counts=True)
    k = min(k, distinct.size)
    _, cuts = _layers(_standardised(distinct), counts.astype(np.float64), k)
    ends = np.empty(k, np.int64)
    ends[k - 1] = distinct.size
    for j in range(k - 1, 0, -1):
        ends[j - 1] = cuts[j, ends[j]]
    labels = np.searchsorted(ends, at, side="right")
    return Classes(np.concatenate((distinct[:1], distinct[ends - 1])), labels, gvf_of(x, labels))


def gvf_of(values: Any, labels: Any) -> float:
    """Goodness of variance fit of any classification.

    Parameters
    ----------
    values : array-like of numbers, shape (n,)
        Classified values.
    labels : array-like of int, shape (n,)
        Class of each value.

    Returns
    -------
    float
        ``1 - sum_j SD_j / SD`` in [0, 1]; 1 if all values are equal.

    See Also
    --------
    gvf_by_k : the best GVF for each number of classes

    Examples
    --------
    >>> from cctoolkit.separation.jenks import gvf_of
    >>> round(gvf_of([1, 3, 10, 12], [0, 0, 1, 1]), 3)
    0.953
    """
    x, labels = np.asarray(values, np.float64), np.asarray(labels, np.int64)
    x = _standardised(x)  # so that squares neither overflow nor vanish
    total = float(((x - x.mean()) ** 2).sum())
    if total == 0:
        return 1.0
    count = np.bincount(labels)
    mean = np.bincount(labels, x) / np.maximum(count, 1)
    return min(max(1.0 - float(((x - mean[labels]) ** 2).sum()) / total, 0.0), 1.0)


def gvf_by_k(values: Any, max_k: int) -> np.ndarray:
    """The best GVF with 1, 2, …, `max_k` classes.

    Parameters
    ----------
    values : array-like of numbers, shape (n,)
        What to classify.
    max_k : int
        Largest number of classes.

    Returns
    -------
    array, shape (max_k,)
        GVFs, which never decrease, and are 1 from the number of distinct values on.

    Raises
    ------
    ParameterError
        As for :func:`jenks_classes`.

    See Also
    --------
    choose_k : the number of classes by gain

    Examples
    --------
    >>> from cctoolkit.separation.jenks import gvf_by_k
    >>> gvf_by_k([10, 11, 50, 52, 100], max_k=4).round(3).tolist()
    [0.0, 0.707, 1.0, 1.0]
    """
    x = _values(values)
    max_k = whole("max_k", max_k, low=1)
    distinct, counts = np.unique(x, return_counts=True)
    found = np.ones(max_k)
    k = min(max_k, distinct.size)
    weights = counts.astype(np.float64)
    costs, _ = _layers(_standardised(distinct), weights, k)
    if costs[0] > 0:
        found[:k] = np.clip(1 - costs / costs[0], 0, 1)
    if distinct.size <= max_k:
        found[distinct.size - 1 :] = 1
    return np.maximum.accumulate(found)


def choose_k(values: Any, max_k: int = 8, gain: float = 0.02) -> int:
    """The smallest number of classes from which one more raises the GVF by less than `gain`.

    Parameters
    ----------
    values : array-like of numbers, shape (n,)
        What to classify.
    max_k : int
        Largest number of classes; routers usually have eight queues per port.
    gain : float
        Required gain, between 0 and 1.

    Returns
    -------
    int
        Number of classes.

    Raises
    ------
    ParameterError
        As for :func:`jenks_classes`.

    See Also
    --------
    gvf_by_k : the best GVF for each number of classes

    Examples
    --------
    >>> from cctoolkit.separation.jenks import choose_k
    >>> choose_k([10, 11, 50, 52, 100])
    3
    """
    gain = number("gain", gain, high=1)
    small = np.flatnonzero(np.diff(gvf_by_k(values, max_k)) < gain)
    return int(small[0]) + 1 if small.size else max_k


def kmeans_classes(values: Any, k: int, seed: int = 0) -> Classes:
    """Classes by Lloyd's algorithm (scikit-learn, ten starts), named as future work in section 6 of the paper.

    Parameters
    ----------
    values : array-like of numbers, shape (n,)
        What to classify.
    k : int
        Number of classes; fewer if there are fewer distinct values.
    seed : int
        Seed for the starting points.

    Returns
    -------
    Classes
        The classes.

    Raises
    ------
    ParameterError
        As for :func:`jenks_classes`.

    See Also
    --------
    jenks_classes : the optimum

    Examples
    --------
    >>> from cctoolkit.separation.jenks import kmeans_classes
    >>> kmeans_classes([10, 11, 50, 52, 100], k=3).labels.tolist()
    [0, 0, 1, 1, 2]
    """
    from sklearn.cluster import KMeans

    x = _values(values)
    distinct, at, counts = np.unique(x, return_inverse=True, return_counts=True)
    k = min(whole("k", k, low=1), distinct.size)
    model = KMeans(k, n_init=10, random_state=seed)
    model.fit(_standardised(distinct)[:, None], sample_weight=counts)
    return _ordered(x, model.labels_[at])


def dbscan_classes(values: Any, eps: float, min_samples: int = 1) -> Classes:
    """Classes by density (scikit-learn's DBSCAN), named as future work in section 6 of the paper.

    The number of classes cannot be chosen, so it may exceed the number of queues of a router.

    Parameters
    ----------
    values : array-like of numbers, shape (n,)
        What to classify.
    eps : float
        Largest distance of neighbours, in the unit of the values.
    min_samples : int
        A value with this many neighbours (including itself) is in the core of a class. Values outside of classes
        join the nearest one, since each flow needs a queue; without classes, all values form one.

    Returns
    -------
    Classes
        The classes.

    Raises
    ------
    ParameterError
        As for :func:`jenks_classes`.

    See Also
    --------
    jenks_classes : the optimum for a given number of classes

    Examples
    --------
    >>> from cctoolkit.separation.jenks import dbscan_classes
    >>> dbscan_classes([10, 11, 50, 52, 100], eps=5).labels.tolist()
    [0, 0, 1, 1, 2]
    """
    from sklearn.cluster import DBSCAN

    x = _values(values)
    eps, min_samples = number("eps", eps, above=0), whole("min_samples", min_samples, low=1)
    labels = DBSCAN(eps=eps, min_samples=min_samples).fit(x[:, None]).labels_.copy()
    inside = np.flatnonzero(labels >= 0)
    if inside.size == 0:
        return _ordered(x, np.zeros(x.size, np.int64))
    order = inside[np.argsort(x[inside], kind="stable")]
    for i in np.flatnonzero(labels < 0):
        right = min(np.searchsorted(x[order], x[i]), order.size - 1)
        left = max(right - 1, 0)
        nearest = order[left if abs(x[order[left]] - x[i]) <= abs(x[order[right]] - x[i]) else right]
        labels[i] = labels[nearest]
    return _ordered(x, labels)


def _ordered(x: np.ndarray, labels: np.ndarray) -> Classes:
    """Number classes by their values; equal values already share a class, and classes do not overlap."""
    names, at = np.unique(labels, return_inverse=True)
    lowest = np.full(names.size, np.inf)
    np.minimum.at(lowest, at, x)
    rank = np.argsort(np.argsort(lowest))
    labels = rank[at].astype(np.int64)
    highest = np.full(names.size, -np.inf)
    np.maximum.at(highest, labels, x)
    return Classes(np.concatenate(([x.min()], highest)), labels, gvf_of(x, labels))


def _values(values: Any) -> np.ndarray:
    x = floats("values", values)
    if x.ndim != 1 or x.size == 0:
        raise ParameterError("values: must be a list of at least one number")
    if not np.isfinite(x).all():
        raise ParameterError(f"values: {x[~np.isfinite(x)][0]} must be finite")
    return x


def _standardised(x: np.ndarray) -> np.ndarray:
    """Scale to mean 0 and largest magnitude 1, so that sums of squares neither overflow nor vanish."""
    half = x / 2  # the distance of two values of opposite sign may overflow
    centred = half - half.min()
    centred = centred - centred.mean()
    largest = np.abs(centred).max()
    return centred / largest if largest > 0 else centred


# ---- exact -----------------------------------------------------------------------------------------------------------


@numba.njit(inline="always")
def _cost(weight, total, square, i, j):
    """Squared deviation of values i to j - 1 from their mean."""
    s = total[j] - total[i]
    return max(square[j] - square[i] - s * s / (weight[j] - weight[i]), 0.0)


@kernel
def _layers(x, counts, k):
    """Minimum cost of all values in 1, …, k classes, and the start of the last class in each best solution.

    In layer j (from 0), ``cuts[j, m]`` is the start of the last of j + 1 classes of the first m values. It does not
    decrease with m (the cost satisfies the quadrangle inequality), so the middle of a layer limits the search in both
    halves.
    """
    n = len(x)
    weight, total, square = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    for i in range(n):
        weight[i + 1] = weight[i] + counts[i]
        total[i + 1] = total[i] + counts[i] * x[i]
        square[i + 1] = square[i] + counts[i] * x[i] * x[i]
    before, best = np.zeros(n + 1), np.zeros(n + 1)
    cuts = np.zeros((k, n + 1), np.int64)
    costs = np.zeros(k)
    for m in range(1, n + 1):
        before[m] = _cost(weight, total, square, 0, m)
    costs[0] = before[n]
    stack = np.empty((128, 4), np.int64)  # parts of a layer: first and last m, first and last cut
    for j in range(1, k):
        stack[0] = (j + 1, n, j, n - 1)
        depth = 1
        while depth > 0:
            depth -= 1
            first, last, low, high = stack[depth]
            if first > last:
                continue
            m = (first + last) // 2
            minimum, at = np.inf, low
            for i in range(low, min(high, m - 1) + 1):
                c = before[i] + _cost(weight, total, square, i, m)
                if c < minimum:
                    minimum, at = c, i
            best[m] = minimum
            cuts[j, m] = at
            stack[depth] = (first, m - 1, low, at)
            stack[depth + 1] = (m + 1, last, at, high)
            depth += 2
        before, best = best, before
        costs[j] = before[n]
    return costs, cuts


# ---- Algorithm 1 -----------------------------------------------------------------------------------------------------


def _algorithm_1(x: np.ndarray, k: int) -> Classes:
    limits = np.linspace(x.min(), x.max(), k + 1)
    labels = _in_intervals(x, limits)
    gvf = gvf_of(x, labels)
    while True:
        counts = np.bincount(labels, minlength=k)
        mean = np.bincount(labels, x, minlength=k) / np.maximum(counts, 1)
        deviation = np.bincount(labels, (x - mean[labels]) ** 2, minlength=k)
        # Equal ones must not differ by rounding: the first one then gives way (test_algorithm_1_is_its_naive_twin)
        rank = np.round(deviation / max(deviation.sum(), np.finfo(float).tiny), 9)
        largest = int(rank.argmax())
        lowest = min(range(k), key=lambda j: (rank[j], abs(j - largest)))
        if rank[largest] == rank[lowest]:
            break
        width = math.sqrt(deviation[largest] / counts[largest])
        moved = limits.copy()
        if lowest < largest:
            moved[lowest + 1 : largest + 1] += width
        else:
            moved[largest + 1 : lowest + 1] -= width
        candidate = _in_intervals(x, moved)
        reached = gvf_of(x, candidate)
        if not reached > gvf:
            break
        limits, labels, gvf = moved, candidate, reached
    return Classes(limits, labels, gvf)


def _in_intervals(x: np.ndarray, limits: np.ndarray) -> np.ndarray:
    return np.searchsorted(limits[1:-1], x, side="left").astype(np.int64)


# ---- repeated measurements -------------------------------------------------------------------------------------------


class IncrementalClasses:
    """Classes of flows whose RTTs are measured repeatedly, without flows moving back and forth.

    Each class has a *queue*, and each flow that changes its queue costs the router a rule. To avoid rules for noisy
    measurements, an update changes the classes only if it is worth it:

    - Classes stay unless new ones are more, or better by more than `tolerance` of GVF. A flow then moves only if
      its value is further than `margin` (relative) beyond the limit between two classes, halfway between their
      values.
    - New classes are adopted all at once, and each takes the queue of most of its flows. If there are no more
      classes than before, flows within `margin` of a limit keep their queue if it is that of an adjacent class.
    - With a minimum `ratio`, there are as many classes as possible, up to k, such that the mean of each is at least
      `ratio` times the mean of the one below; classes that have come too close to each other are merged.

    Parameters
    ----------
    k : int
        Number of classes and queues; queue numbers are 0 to k - 1.
    margin : float
        Relative hysteresis of a flow at a limit.
    tolerance : float
        Gain of GVF required for new classes.
    method : {"exact", "paper"}
        As for :func:`jenks_classes`.
    ratio : float
        Least ratio of the means of neighbouring classes of positive values; 1: any.

    Attributes
    ----------
    added, moved, removed : int
        Number of rules added, changed and deleted so far.
    classes : Classes or None
        The last classes adopted (with labels of the flows in that update).

    Raises
    ------
    ParameterError
        A value is out of range.

    See Also
    --------
    jenks_classes : classes of a single measurement

    Examples
    --------
    Small changes move no flow:

    >>> from cctoolkit.separation.jenks import IncrementalClasses
    >>> classes = IncrementalClasses(k=2)
    >>> classes.update([1, 2, 3], [10, 11, 50]).tolist()
    [0, 0, 1]
    >>> classes.update([1, 2, 3], [10, 14, 48]).tolist(), classes.moved
    ([0, 0, 1], 0)
    """

    def __init__(
        self,
        k: int,
        *,
        margin: float = 0.1,
        tolerance: float = 0.02,
        method: str = "exact",
        ratio: float = 1.0,
    ) -> None:
        self.k = whole("k", k, low=1)
        for name, value in (("margin", margin), ("tolerance", tolerance)):
            if not 0 <= value < 1:
                raise ParameterError(f"{name}: {value!r} must be at least 0 and less than 1")
        if method not in METHODS:
            raise ParameterError(f"method: {method!r} must be one of {', '.join(METHODS)}")
        self.margin, self.tolerance, self.method = float(margin), float(tolerance), method
        self.ratio = float(number("ratio", ratio, low=1))
        self.added = self.moved = self.removed = 0
        self.classes: Classes | None = None
        self._ids = np.zeros(0, np.int64)  # sorted
        self._queues = np.zeros(0, np.int64)  # queues of these flows
        self._limits = np.zeros(0)  # limits between the classes, ascending
        self._order = np.zeros(0, np.int64)  # queue of each class

    @property
    def changes(self) -> int:
        """Total number of rules added, changed and deleted so far."""
        return self.added + self.moved + self.removed

    def update(self, ids: Sequence[int] | np.ndarray, values: Any) -> np.ndarray:
        """Classify the current flows.

        Parameters
        ----------
        ids : array-like of int, shape (n,)
            Distinct flow numbers; missing flows have ended.
        values : array-like of numbers, shape (n,)
            Their values.

        Returns
        -------
        array of int64, shape (n,)
            Queue of each flow, in the order of `ids` (but independent of that order).

        Raises
        ------
        ParameterError
            A value is not finite, or a flow occurs twice.
        """
        names = np.asarray(ids, np.int64)
        x = floats("values", values)
        if names.shape != x.shape or names.ndim != 1:
            raise ParameterError("ids and values: must be lists of the same length")
        if not np.isfinite(x).all():
            raise ParameterError(f"values: {x[~np.isfinite(x)][0]} must be finite")
        order = np.argsort(names, kind="stable")
        names, x = names[order], x[order]
        if (names[1:] == names[:-1]).any():
            raise ParameterError(f"ids: {names[1:][names[1:] == names[:-1]][0]} occurs twice")
        now = np.full(names.size, -1, np.int64)
        if self._ids.size and names.size:
            place = np.minimum(np.searchsorted(self._ids, names), self._ids.size - 1)
            known = self._ids[place] == names
            now[known] = self._queues[place[known]]
        queues = self._sorted(x, now)
        self.removed += int(self._ids.size - (now >= 0).sum())
        self.added += int((now < 0).sum())
        self.moved += int(((now >= 0) & (now != queues)).sum())
        self._ids, self._queues = names, queues
        result = np.empty(names.size, np.int64)
        result[order] = queues
        return result

    def _sorted(self, x: np.ndarray, now: np.ndarray) -> np.ndarray:
        if x.size == 0:
            return np.zeros(0, np.int64)
        kept = self._placed(x, now, self.margin)
        fresh = self._best(x)
        used = np.unique(fresh.labels)
        more = used.size > np.unique(kept).size
        stay = not more and fresh.gvf - gvf_of(x, kept) <= self.tolerance and self._apart(x, kept)
        if self._order.size and stay:
            return kept
        labels = np.searchsorted(used, fresh.labels)  # Algorithm 1 may leave classes empty
        self.classes = fresh
        self._order = self._queues_of(labels, used.size, now)
        low, high = np.full(used.size, np.inf), np.full(used.size, -np.inf)
        np.minimum.at(low, labels, x)
        np.maximum.at(high, labels, x)
        self._limits = (high[:-1] + low[1:]) / 2
        return self._placed(x, now, 0.0 if more else self.margin)  # else a new class might stay empty

    def _best(self, x: np.ndarray) -> Classes:
        """The classes of these values alone: as many as are far enough apart."""
        for k in range(self.k, 1, -1):
            made = jenks_classes(x, k, self.method)
            if self._apart(x, made.labels):
                return made
        return jenks_classes(x, 1, self.method)

    def _apart(self, x: np.ndarray, labels: np.ndarray) -> bool:
        """Whether the means of neighbouring classes have the least ratio."""
        if self.ratio == 1:
            return True
        count = np.bincount(labels)
        mean = np.sort(np.bincount(labels, x)[count > 0] / count[count > 0])
        return bool((mean[1:] >= self.ratio * mean[:-1]).all())

    def _placed(self, x: np.ndarray, now: np.ndarray, margin: float) -> np.ndarray:
        """Queue of each flow by the current limits, with hysteresis."""
        if self._order.size == 0:
            return np.zeros(x.size, np.int64)
        plain = np.searchsorted(self._limits, x, side="left")
        rank = np.full(self.k, -1, np.int64)  # class of each queue
        rank[self._order] = np.arange(self._order.size)
        mine = np.where(now >= 0, rank[np.maximum(now, 0)], -1)
        slack = margin * np.abs(x)
        near = (mine == np.searchsorted(self._limits, x - slack, side="left")) | (
            mine == np.searchsorted(self._limits, x + slack, side="left")
        )
        return self._order[np.where((mine >= 0) & near & (np.abs(mine - plain) <= 1), mine, plain)]

    def _queues_of(self, labels: np.ndarray, classes: int, now: np.ndarray) -> np.ndarray:
        """For each class, the queue that moves the fewest flows; ties by number."""
        from scipy.optimize import linear_sum_assignment

        stay = np.zeros((classes, self.k))
        old = now >= 0
        np.add.at(stay, (labels[old], now[old]), 1.0)
        tie = np.abs(np.arange(classes)[:, None] - np.arange(self.k)[None, :]) / (4.0 * classes * self.k**2)
        _, queues = linear_sum_assignment(stay - tie, maximize=True)
        return queues.astype(np.int64)
