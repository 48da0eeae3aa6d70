"""Classifiers of the Dragonfly experiment, trained and scored over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .scenarios import PAPER_S

if TYPE_CHECKING:
    import pandas as pd

    from ...identify import Recording, SlotDataset, Windows

__all__ = ["Training"]


@dataclass(frozen=True)
class Training:
    """How classifiers are trained and scored.

    Parameters
    ----------
    epochs : int
        Epochs of training; the paper has up to 100.
    seeds : int
        Splits and trainings; intervals are over these.
    per_flow : int
        Windows of each flow, at most as many as fit into a minute; the paper has 1 of each of 1500 flows.
    learning_rate : float, optional
        Replaces Dragonfly's and DeePCCI's own, for short trainings.
    """

    epochs: int = 100
    seeds: int = 3
    per_flow: int = 10
    learning_rate: float | None = None

    def classifier(self, name: str, seed: int) -> Any:
        """A new classifier, one of :data:`~.scenarios.CLASSIFIERS`."""
        from ...identify import CCAClassifier, DeepcciClassifier, DragonflyClassifier

        if name == "ours":
            return CCAClassifier(epochs=self.epochs, seed=seed, lose=0.0)
        rate: dict[str, Any] = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        kind = DeepcciClassifier if name == "DeePCCI" else DragonflyClassifier
        return kind(epochs=self.epochs, seed=seed, **rate)

    def cut(
        self, recordings: SlotDataset | Iterable[Recording], window_ms: float, inputs: str | Sequence[str]
    ) -> Windows:
        """Cut windows out of every flow."""
        from ...identify import cut_windows

        room = max(int(PAPER_S * 1000 // window_ms), 1)
        return cut_windows(recordings, window_ms, inputs, per_flow=min(self.per_flow, room))

    def scores(
        self,
        name: str,
        windows: Windows | Callable[[int], tuple[Windows, Windows]],
        *by: str,
        seeds: Sequence[int] | None = None,
    ) -> list[pd.DataFrame]:
        """F1 of a classifier over seeds: of all windows, then by each of these columns. Each seed trains once."""
        from ...identify.evaluation import over_seeds

        trained: dict[int, Any] = {}

        def train(training: Windows, seed: int) -> Any:
            if seed not in trained:
                trained[seed] = self.classifier(name, seed).fit(training)
            return trained[seed].predict

        chosen = range(self.seeds) if seeds is None else seeds
        columns: tuple[str | None, ...] = (None, *by)
        return [over_seeds(train, windows, chosen, by=column) for column in columns]
