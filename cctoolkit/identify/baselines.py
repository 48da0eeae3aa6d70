"""Simple classifiers for the benchmark's leaderboard, and an oracle that is given what no packet shows.

They are gradient boosting, the nearest neighbour by time warping, and boosting on the senders' own windows. All are
trained on simulated runs of the settings ``world``. They answer with one of the paper's congestion controls, or
"unknown" where flows are not limited here, as for all models.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from .._support.kernels import kernel
from ..analysis.limits import NAMEABLE, flow_limits
from ..errors import ParameterError
from .classifiers import SummaryClassifier
from .dataset import SlotDataset, build_dataset
from .inputs import VIEW_INPUTS
from .oracle import SENDER_INPUTS, sender_arrays, sender_summaries
from .settings import world
from .windows import cut_windows, window_slots, windows_at

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

__all__ = [
    "RUNS",
    "Baseline",
    "Boosting",
    "Nearest",
    "NearestSeries",
    "Oracle",
    "resampled",
    "train_baselines",
    "warped_distance",
]

#: Runs of `world` that the baselines learn from, and windows of each flow and length.
RUNS, PER_FLOW = 240, 4
_SEED = 901  # settings of no other model
#: Points of a series, and how far a warping path may leave the diagonal (Sakoe and Chiba, 1978): a tenth.
POINTS, BAND = 100, 10


@kernel
def warped_distance(a, b, band, limit):
    """Dynamic time warping of two series; twin: tests/naive_identify.py.

    Parameters
    ----------
    a, b : float array, shape (n,)
    band : int
        Maximum distance of matched points in time.
    limit : float
        Above this, the result is infinite: the nearest neighbour is closer.

    Returns
    -------
    float
        Sum of the squared differences along the best path.
    """
    n = len(a)
    before = np.full(n + 1, np.inf)
    before[0] = 0.0
    for i in range(n):
        row = np.full(n + 1, np.inf)
        best = np.inf
        for j in range(max(i - band, 0), min(i + band + 1, n)):
            difference = a[i] - b[j]
            row[j + 1] = difference * difference + min(before[j], before[j + 1], row[j])
            best = min(best, row[j + 1])
        if best > limit:
            return np.inf
        before = row
    return before[n]


@kernel
def _nearest(series, known, band, out):
    """Number of the nearest of the `known` series for each; the first of equal ones."""
    for i in range(len(series)):
        least = np.inf
        for k in range(len(known)):
            distance = warped_distance(series[i], known[k], band, least)
            if distance < least:
                least = distance
                out[i] = k


def resampled(X: np.ndarray) -> np.ndarray:
    """Series of one input, averaged to :data:`POINTS` points (or fewer) and divided by their maximum."""
    slots = X.shape[1]
    edges = np.linspace(0, slots, min(POINTS, slots) + 1).astype(int)[:-1]
    values = np.add.reduceat(np.asarray(X, float), edges, axis=1)
    values /= np.diff(np.append(edges, slots))
    most = values.max(axis=1, keepdims=True)
    return values / np.where(most > 0, most, 1)


class NearestSeries:
    """1-NN-DTW: the congestion control of the training window whose bytes in the queue (CBIQ) are nearest.

    Parameters
    ----------
    X : array, windows x slots
        CBIQ of the training windows, of one length.
    y : array of str

    Examples
    --------
    >>> ramp = np.linspace(0, 1, 200)
    >>> nearest = NearestSeries(np.stack([ramp, 1 - ramp]), np.array(["up", "down"]))
    >>> nearest.predict(np.roll(ramp, -15)[None]).tolist()
    ['up']
    """

    def __init__(self, X: np.ndarray, y: npt.ArrayLike) -> None:
        self._known, self._names = resampled(X), np.asarray(y, object)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Names of windows x slots."""
        nearest = np.zeros(len(X), np.int64)
        _nearest(resampled(X), self._known, BAND, nearest)
        return self._names[nearest]


class Baseline(ABC):
    """What :func:`~.benchmark.answers` asks, for windows of the lengths that it was trained on."""

    name: str
    inputs: tuple[str, ...]
    any_length: bool

    @abstractmethod
    def answer(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Names, and their probabilities: null without any."""


class Boosting(Baseline):
    """Gradient-boosted trees on summaries (:class:`~.classifiers.SummaryClassifier`), one model for each length."""

    name, inputs, any_length = "boosting", VIEW_INPUTS, True

    def __init__(self, by_slots: dict[int, SummaryClassifier]) -> None:
        self._by_slots = by_slots

    def answer(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _most_probable(self._by_slots[X.shape[1]], X)


class Nearest(Baseline):
    """:class:`NearestSeries` for each length; needs two taps."""

    name, inputs, any_length = "1-NN-DTW", ("in_bytes", "cbiq_bytes"), False

    def __init__(self, by_slots: dict[int, NearestSeries]) -> None:
        self._by_slots = by_slots

    def answer(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._by_slots[X.shape[1]].predict(X[:, :, 1]), np.full(len(X), np.nan)


class Oracle(Baseline):
    """Gradient-boosted trees on the senders' own states (:mod:`~.oracle`), one model for each length."""

    name, inputs, any_length = "oracle", SENDER_INPUTS, False

    def __init__(self, by_slots: dict[int, HistGradientBoostingClassifier]) -> None:
        self._by_slots = by_slots

    def answer(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _most_probable(self._by_slots[X.shape[1]], sender_summaries(X))


def train_baselines(
    directory: str | os.PathLike[str],
    windows_ms: Sequence[float],
    *,
    runs: int = RUNS,
    per_flow: int = PER_FLOW,
    workers: int | None = None,
    progress: bool = True,
) -> list[Baseline]:
    """Simulate runs of the settings ``world`` and train the baselines on flows that the bottleneck limits.

    Parameters
    ----------
    directory : path
        Folder of the dataset; existing runs are kept.
    windows_ms : sequence of float
        A model is trained for each length.
    runs, per_flow : int
        Windows of each flow and length.
    workers, progress
        As for :func:`~.dataset.build_dataset`.

    Raises
    ------
    ParameterError
        No flow is long enough for a window of one of these lengths.
    """
    data = build_dataset(
        world(runs, _SEED), Path(directory), special=6, background=0, workers=workers, progress=progress
    )
    limited = {
        (recording.name, flow)
        for recording in data
        for flow, limit in flow_limits(recording.slots)[["flow_id", "limited_by"]].to_numpy()
        if limit not in NAMEABLE
    }
    shown = [(run, flow) not in limited for run, flow in data.flows[["run", "flow_id"]].to_numpy()]
    data.flows = data.flows[shown]
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees: dict[int, SummaryClassifier] = {}
    oracles: dict[int, HistGradientBoostingClassifier] = {}
    series: dict[int, NearestSeries] = {}
    for ms in windows_ms:
        windows = cut_windows(data, ms, VIEW_INPUTS, per_flow=per_flow)
        if len(set(windows.y)) < 2:
            raise ParameterError(f"window_ms: too few flows have windows of {ms:g} ms to train a baseline")
        slots = window_slots(ms, data.slot_ms)
        trees[slots] = SummaryClassifier().fit(windows)
        series[slots] = NearestSeries(windows.X[:, :, VIEW_INPUTS.index("cbiq_bytes")], windows.y)
        known = sender_summaries(_of_senders(data, windows.table, slots))
        oracles[slots] = HistGradientBoostingClassifier(random_state=0).fit(known, windows.y.astype(str))
    return [Boosting(trees), Nearest(series), Oracle(oracles)]


def _of_senders(data: SlotDataset, windows: pd.DataFrame, slots: int) -> np.ndarray:
    """The senders' states in each window; the windows of a run stand together."""
    parts = []
    for run, some in windows.groupby("run", sort=False):
        (recording,) = data.where([str(run)])
        parts.append(windows_at(sender_arrays(recording), some, slots))
    return np.concatenate(parts)


def _most_probable(model: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a model of scikit-learn's kind says of each row, and how probable that is."""
    probabilities = model.predict_proba(X)
    return model.classes_[probabilities.argmax(axis=1)].astype(object), probabilities.max(axis=1)
