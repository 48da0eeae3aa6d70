"""From scores to probabilities to names; what classifiers and saved models share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .._support.words import format_probability
from .inputs import round_trip_slots

__all__ = [
    "LONGEST",
    "ROUND_TRIPS",
    "SHORTEST",
    "UNKNOWN",
    "answers",
    "by_pieces",
    "format_cca",
    "grouped",
    "least_of",
    "named",
    "pieces",
    "softmax",
    "together",
]

UNKNOWN = "unknown"
#: Slots of the shortest and the longest piece of a long window that is judged at once, and round trips of one. Several
#: pieces say more than one view of all, in which a bin is many round trips, and one of a few round trips says little:
#: of 15 to 100, which differ by 0.02 of F1, 25 are best for few packets in flight and for many.
SHORTEST, LONGEST, ROUND_TRIPS = 1000, 10_000, 25
#: Windows that are copied at a time.
_AT_ONCE = 256


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities of scores, windows x classes."""
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def pieces(X: np.ndarray) -> np.ndarray:
    """In how many pieces each window is judged: of :data:`ROUND_TRIPS`, and from :data:`SHORTEST` to :data:`LONGEST`.

    Parameters
    ----------
    X : array, windows x slots x :data:`~.inputs.VIEW_INPUTS`
        Where there is no round trip to be known a piece is three times the shortest, a length trained on.
    """
    slots = X.shape[1]
    if slots <= SHORTEST:
        return np.ones(len(X), np.int64)
    rtt = round_trip_slots(X)
    longest = np.where(np.isfinite(rtt), np.clip(ROUND_TRIPS * rtt, SHORTEST, LONGEST), 3 * SHORTEST)
    return np.maximum(np.round(slots / longest), 1).astype(np.int64)


def by_pieces(X: np.ndarray, probabilities: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Probabilities; of windows that :func:`pieces` divides, from pieces alike, their logarithms averaged."""
    counts = pieces(X)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for n in np.unique(counts):
        alike = np.flatnonzero(counts == n)
        for rows in np.array_split(alike, -(-len(alike) // _AT_ONCE)):
            split = np.array_split(X[rows], n, axis=1)
            logs = [np.log(np.maximum(probabilities(part), 1e-12)) for part in split]
            found.append((rows, softmax(np.mean(logs, axis=0)) if n > 1 else np.exp(logs[0])))
    out = np.empty((len(X), found[0][1].shape[1]), np.float32)
    for rows, values in found:
        out[rows] = values
    return out


def least_of(limits: np.ndarray, slots: int | np.ndarray) -> np.ndarray:
    """How probable a name has to be in windows of so many slots.

    Parameters
    ----------
    limits : array, lengths x 2
        Slots of a window, and the least probability there; more round trips make the right name more probable.
        Without a row: 0.
    slots : int or array
        Between two lengths their limits are interpolated, by the logarithm of length.
    """
    if not len(limits):
        return np.zeros(np.shape(slots))
    return np.interp(np.log(slots), np.log(limits[:, 0]), limits[:, 1])


def named(
    probabilities: np.ndarray, classes: np.ndarray, other: str, least: float | np.ndarray
) -> np.ndarray:
    """The most probable of the classes that have a name; unknown where it is less probable than `least`.

    Where no limit was learnt (`least` is 0) unknown is what `other` is more probable for.
    """
    known = classes != other
    likely = probabilities[:, known].max(axis=1)
    best = classes[known][probabilities[:, known].argmax(axis=1)].astype(object)
    best[likely < np.where(least, least, probabilities[:, ~known].sum(axis=1))] = UNKNOWN
    return best


def grouped(labels: np.ndarray, groups: Mapping[str, Sequence[str]]) -> np.ndarray:
    """Labels with those of a group replaced by the group's name: congestion controls that behave alike."""
    name = {member: group for group, members in groups.items() for member in members}
    return np.array([name.get(label, label) for label in labels], object)


def answers(classes: np.ndarray, alike: Mapping[str, Sequence[str]] | None) -> np.ndarray:
    """What a classifier with these classes may say: those that are alike by one name."""
    return np.unique(grouped(classes, alike).astype(str)) if alike else classes


def together(
    probabilities: np.ndarray, classes: np.ndarray, alike: Mapping[str, Sequence[str]] | None
) -> np.ndarray:
    """Probabilities of :func:`answers`: of classes that are alike the sum."""
    if not alike:
        return probabilities
    names = grouped(classes, alike)
    return np.stack([probabilities[:, names == name].sum(axis=1) for name in answers(classes, alike)], axis=1)


def format_cca(cca: Any, probability: float) -> str:
    """A flow's congestion control as ``reno 98 %`` or ``unknown``; nothing where it was not named."""
    if pd.isna(cca):
        return ""
    return UNKNOWN if cca == UNKNOWN else f"{cca} {format_probability(probability)}"
