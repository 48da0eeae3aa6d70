"""Evaluate classifiers: F1 with intervals, by setting and over seeds; confusion; rejection.

Intervals come from resampling runs, not windows, because windows of a run resemble each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..errors import ParameterError
from .probabilities import UNKNOWN
from .windows import Windows

__all__ = ["confusion", "evaluate", "f1", "interval", "over_seeds", "rejection"]

#: Bootstrap draws of each seed.
_DRAWS = 400
#: From windows to labels: ``predict`` of a classifier or model.
Predict = Callable[[Windows], np.ndarray]


def f1(y: np.ndarray, predicted: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """F1 of each class (harmonic mean of precision and recall); 0 if never found, NaN if not in `y`.

    Parameters
    ----------
    y, predicted : array of str
    classes : sequence of str

    Returns
    -------
    array
        F1 by class; the mean is macro F1. Other predictions ("unknown") lower recall.
    """
    y, predicted = np.asarray(y, object), np.asarray(predicted, object)
    out = np.full(len(classes), np.nan)
    for i, name in enumerate(classes):
        right = np.sum((y == name) & (predicted == name))
        there, named_so = np.sum(y == name), np.sum(predicted == name)
        if there:
            out[i] = 2 * right / (there + named_so)
    return out


def evaluate(
    predict: Predict | np.ndarray,
    windows: Windows,
    *,
    by: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    draws: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """F1 on windows, with intervals.

    Parameters
    ----------
    predict : function of Windows, or array of str
        A classifier's ``predict``, or its predictions.
    windows : Windows
    by : str or sequence of str, optional
        Columns of the windows' table: one row for each value, instead of one for all windows.
    confidence : float
        Confidence level of the intervals, by bootstrap over runs.
    draws : int
    seed : int

    Returns
    -------
    DataFrame
        Columns of `by`, ``windows``, ``runs``, ``f1`` (macro, over the classes of the labels), ``low``, ``high``,
        and ``f1_CLASS`` for each class.

    Raises
    ------
    ParameterError
        There are no windows, or no such column.
    """
    if not len(windows):
        raise ParameterError("windows: there are none")
    predicted = np.asarray(predict(windows) if callable(predict) else predict, object)
    rows = []
    for values, scores, drawn in _scored(
        predicted, windows, _columns(by), draws, np.random.default_rng(seed)
    ):
        low, high = interval(drawn, confidence)
        counts = {name: scores.pop(name) for name in ("windows", "runs", "f1")}
        rows.append(values | counts | {"low": low, "high": high} | scores)
    return pd.DataFrame(rows)


def _columns(by: str | Sequence[str] | None) -> list[str]:
    return [] if by is None else [by] if isinstance(by, str) else list(by)


def _scored(
    predicted: np.ndarray, windows: Windows, columns: list[str], draws: int, rng: np.random.Generator
) -> Iterator[tuple[dict[str, Any], dict[str, Any], np.ndarray]]:
    """For each value of the columns: the value, counts and scores of its windows, and draws of their macro F1."""
    for column in columns:
        if column not in windows.table:
            raise ParameterError(f"by: {column!r} must be one of {', '.join(windows.table.columns)}")
    classes = sorted(set(windows.y))
    for values, at in _groups(windows, columns):
        y, predictions, runs = windows.y[at], predicted[at], windows.groups[at]
        scores = f1(y, predictions, classes)
        counts = {"windows": len(at), "runs": len(set(runs)), "f1": np.nanmean(scores)}
        by_class = {f"f1_{name}": score for name, score in zip(classes, scores, strict=True)}
        drawn = _drawn_f1(y, predictions, runs, classes, draws, rng)
        yield dict(zip(columns, values, strict=True)), counts | by_class, drawn


def _groups(windows: Windows, columns: list[str]) -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:
    """Values of columns, and the windows that have them; all windows if there are no columns."""
    if not columns:
        yield (), np.arange(len(windows))
        return
    for value, at in windows.table.groupby(columns, sort=True).indices.items():
        yield value if isinstance(value, tuple) else (value,), np.asarray(at)


def interval(drawn: np.ndarray, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail]) if len(drawn) else (np.nan, np.nan)
    return float(low), float(high)


def _drawn_f1(
    y: np.ndarray,
    predictions: np.ndarray,
    runs: np.ndarray,
    classes: Sequence[str],
    draws: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Bootstrap of macro F1: counts are summed by run once, then runs are resampled. Empty for a single run."""
    names, run = np.unique(runs, return_inverse=True)
    if len(names) < 2:
        return np.empty(0)
    counts = np.zeros((len(names), len(classes), 3))
    for i, name in enumerate(classes):
        there, found = y == name, predictions == name
        for j, which in enumerate((there & found, there, found)):
            counts[:, i, j] = np.bincount(run, weights=which, minlength=len(names))
    drawn = counts[rng.integers(len(names), size=(draws, len(names)))].sum(axis=1)
    right, there, found = drawn.transpose(2, 0, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = np.where(there > 0, 2 * right / (there + found), np.nan)
    return np.nanmean(scores, axis=1)


def over_seeds(
    train: Callable[[Windows, int], Predict],
    windows: Windows | Callable[[int], tuple[Windows, Windows]],
    seeds: Sequence[int] = (0, 1, 2),
    *,
    by: str | Sequence[str] | None = None,
    test_share: float = 0.3,
) -> pd.DataFrame:
    """Split, train and evaluate with several seeds, to see how much of a score is luck.

    Parameters
    ----------
    train : function of (Windows, seed)
        Returns a function that predicts.
    windows : Windows, or function of seed
        Windows to split by run with each seed, or a function that returns the two parts.
    seeds : sequence of int
    by : str or sequence of str, optional
        As for :func:`evaluate`.
    test_share : float
        Share of the runs to test on.

    Returns
    -------
    DataFrame
        As :func:`evaluate`, averaged over the seeds. ``low`` and ``high`` are the 95 % interval of this mean, by a
        bootstrap over seeds and, within each, over the runs tested on; NaN if some seed tested on a single run.
        ``seeds`` is the number of seeds.
    """
    columns = _columns(by)
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    drawn: dict[tuple[Any, ...], list[np.ndarray]] = {}
    for seed in seeds:
        training, testing = windows(seed) if callable(windows) else windows.split(test_share, seed)
        predicted = np.asarray(train(training, seed)(testing), object)
        for values, scores, draws in _scored(predicted, testing, columns, _DRAWS, rng):
            rows.append(values | scores)
            drawn.setdefault(tuple(values.values()), []).append(draws)
    everything = pd.DataFrame(rows)
    keys: Any = columns or [pd.Series(np.zeros(len(everything), int))]
    mean = everything.groupby(keys, sort=True).mean().reset_index(drop=not columns)
    found = [() if not columns else values for values in mean[columns].itertuples(index=False, name=None)]
    intervals = [interval(_drawn_means(drawn[values], rng), 0.95) for values in found]
    column = list(mean.columns).index("f1") + 1
    mean.insert(column, "low", [low for low, _ in intervals])
    mean.insert(column + 1, "high", [high for _, high in intervals])
    mean.insert(column + 2, "seeds", [len(drawn[values]) for values in found])
    return mean


def _drawn_means(by_seed: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Means of one draw for each seed, over seeds resampled with replacement."""
    if not all(len(drawn) for drawn in by_seed):
        return np.empty(0)
    scores = np.array(by_seed)
    chosen = rng.integers(len(scores), size=(scores.shape[1], len(scores)))
    return np.take_along_axis(scores.T, chosen, axis=1).mean(axis=1)


def confusion(y: np.ndarray, predicted: np.ndarray) -> pd.DataFrame:
    """Confusion matrix in windows: one row per true class, one column per predicted class."""
    y, predicted = np.asarray(y, object), np.asarray(predicted, object)
    rows = sorted(set(y))
    columns = [*rows, *sorted(set(predicted) - set(rows) - {UNKNOWN}), *({UNKNOWN} & set(predicted))]
    table = pd.crosstab(pd.Series(y, name="is"), pd.Series(predicted, name="said"))
    return table.reindex(index=rows, columns=columns, fill_value=0)


def rejection(predict: Predict, known: Windows, unknown: Windows) -> dict[str, Any]:
    """How often a classifier rejects congestion controls that it was not trained on.

    Parameters
    ----------
    predict : function of Windows
    known : Windows
        Windows of known classes, from runs not trained on.
    unknown : Windows
        Windows of classes left out of training.

    Returns
    -------
    dict
        ``known_lost``: share of known windows called unknown; ``rejected``: share of unknown windows called unknown;
        ``rejected_by_cca``: the same for each class left out.
    """
    lost = predict(known) == UNKNOWN
    found = predict(unknown) == UNKNOWN
    return {
        "known_lost": float(np.mean(lost)),
        "rejected": float(np.mean(found)),
        "rejected_by_cca": {str(c): float(np.mean(found[unknown.y == c])) for c in sorted(set(unknown.y))},
    }
