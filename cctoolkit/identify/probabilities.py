"""From scores to probabilities to names, for classifiers and saved models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._support.words import format_probability
from ..analysis.limits import limit_in_words
from .inputs import round_trip_slots

__all__ = [
    "LONGEST",
    "ROUND_TRIPS",
    "SHORTEST",
    "UNKNOWN",
    "by_length",
    "by_pieces",
    "format_cca",
    "grouped",
    "named",
    "pieces",
    "possible_answers",
    "softmax",
    "together",
]

UNKNOWN = "unknown"
#: Length of the pieces in which long windows are classified: shortest and longest in slots, and RTTs. Several pieces
#: tell more than one view of the whole window, whose bins cover many RTTs, and a piece of few RTTs tells little: of 15
#: to 100 RTTs, which differ by 0.02 in F1, 25 are best, for few packets in flight and for many.
SHORTEST, LONGEST, ROUND_TRIPS = 1000, 10_000, 25
#: Number of windows copied at a time.
_AT_ONCE = 256


def softmax(scores: np.ndarray) -> np.ndarray:
    """Scores to probabilities, windows x classes."""
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def pieces(X: np.ndarray) -> np.ndarray:
    """Number of pieces of each window: of :data:`ROUND_TRIPS`, and from :data:`SHORTEST` to :data:`LONGEST`.

    Parameters
    ----------
    X : array, windows x slots x :data:`~.inputs.VIEW_INPUTS`
        If the RTT is unknown, a piece is three times the shortest, which is a training length.
    """
    slots = X.shape[1]
    if slots <= SHORTEST:
        return np.ones(len(X), np.int64)
    rtt = round_trip_slots(X)
    longest = np.where(np.isfinite(rtt), np.clip(ROUND_TRIPS * rtt, SHORTEST, LONGEST), 3 * SHORTEST)
    return np.maximum(np.round(slots / longest), 1).astype(np.int64)


def by_pieces(
    X: np.ndarray, probabilities: Callable[[np.ndarray, np.ndarray], np.ndarray], temperature: np.ndarray
) -> np.ndarray:
    """Probabilities; for windows divided by :func:`pieces`, the average log-probabilities of equal pieces.

    Parameters
    ----------
    X : array, windows x slots x inputs
    probabilities : function of (pieces, temperatures)
    temperature : float or array, windows
        Of each window, and so of its pieces.
    """
    temperature = np.broadcast_to(temperature, len(X))
    counts = pieces(X)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for n in np.unique(counts):
        alike = np.flatnonzero(counts == n)
        for rows in np.array_split(alike, -(-len(alike) // _AT_ONCE)):
            split = np.array_split(X[rows], n, axis=1)
            logs = [np.log(np.maximum(probabilities(part, temperature[rows]), 1e-12)) for part in split]
            found.append((rows, softmax(np.mean(logs, axis=0)) if n > 1 else np.exp(logs[0])))
    out = np.empty((len(X), found[0][1].shape[1]), np.float32)
    for rows, values in found:
        out[rows] = values
    return out


def by_length(table: np.ndarray, slots: int | np.ndarray, without: float) -> np.ndarray:
    """Interpolate a value learnt for some window lengths (a temperature or threshold) to any length.

    Parameters
    ----------
    table : array, lengths x 2
        Slots of a window, and the value at that length, which is interpolated over the logarithm of length.
    slots : int or array
        Length of the windows.
    without : float
        The value if the table has no rows.
    """
    if not len(table):
        return np.full(np.shape(slots), without)
    return np.interp(np.log(slots), np.log(table[:, 0]), table[:, 1])


def named(
    probabilities: np.ndarray, classes: np.ndarray, other: str, threshold: float | np.ndarray
) -> np.ndarray:
    """The most probable named class; unknown if it is less probable than `threshold`.

    Without a learnt threshold (`threshold` is 0), unknown if `other` is more probable.
    """
    known = classes != other
    likely = probabilities[:, known].max(axis=1)
    best = classes[known][probabilities[:, known].argmax(axis=1)].astype(object)
    best[likely < np.where(threshold, threshold, probabilities[:, ~known].sum(axis=1))] = UNKNOWN
    return best


def grouped(labels: np.ndarray, groups: Mapping[str, Sequence[str]]) -> np.ndarray:
    """Labels with congestion controls that behave alike replaced by their group's name."""
    name = {member: group for group, members in groups.items() for member in members}
    return np.array([name.get(label, label) for label in labels], object)


def possible_answers(classes: np.ndarray, alike: Mapping[str, Sequence[str]] | None) -> np.ndarray:
    """Possible answers of a classifier with these classes: classes that are alike have one name."""
    return np.unique(grouped(classes, alike).astype(str)) if alike else classes


def together(
    probabilities: np.ndarray, classes: np.ndarray, alike: Mapping[str, Sequence[str]] | None
) -> np.ndarray:
    """Probabilities of :func:`possible_answers`: summed over classes that are alike."""
    if not alike:
        return probabilities
    names = grouped(classes, alike)
    return np.stack(
        [probabilities[:, names == name].sum(axis=1) for name in possible_answers(classes, alike)], axis=1
    )


def format_cca(cca: Any, probability: float, limited_by: Any = None) -> str:
    """A flow's congestion control as ``reno 98 %`` or ``unknown``, or why it shows none; empty if it was not named."""
    if pd.isna(cca):
        return ""
    return limit_in_words(limited_by) or (
        UNKNOWN if cca == UNKNOWN else f"{cca} {format_probability(probability)}"
    )
