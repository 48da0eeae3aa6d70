"""From scores to probabilities to names; what classifiers and saved models share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["LONGEST", "UNKNOWN", "by_pieces", "named", "softmax"]

UNKNOWN = "unknown"
#: Slots of the longest piece that is judged at once: a view shows a hundred round trips, and several pieces say more.
LONGEST = 2000


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities of scores, windows x classes."""
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def by_pieces(X: np.ndarray, probabilities: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Probabilities; of windows longer than :data:`LONGEST` from pieces alike, their logarithms averaged."""
    pieces = -(-X.shape[1] // LONGEST)
    if pieces == 1:
        return probabilities(X)
    logs = [np.log(np.maximum(probabilities(part), 1e-12)) for part in np.array_split(X, pieces, axis=1)]
    return softmax(np.mean(logs, axis=0))


def named(probabilities: np.ndarray, classes: np.ndarray, other: str, least: float) -> np.ndarray:
    """Classes by probability; unknown where `other` is the most probable or no named class reaches `least`."""
    best = classes[probabilities.argmax(axis=1)].astype(object)
    likely = probabilities[:, classes != other].max(axis=1)
    best[(best == other) | (likely < least)] = UNKNOWN
    return best
