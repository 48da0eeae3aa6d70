"""Classifiers of the Dragonfly experiment, trained and scored over seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .scenarios import PAPER_S

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from ...identify import Recording, SlotDataset, Windows
    from ..pieces import Pieces

__all__ = ["Training"]

#: The code that decides what a classifier answers.
CODE = ("cctoolkit.identify.classifiers", "cctoolkit.experiments.dragonfly.training")


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
    pieces : Pieces, optional
        Keeps the classifiers' answers, and networks while they are trained.
    """

    epochs: int = 100
    seeds: int = 3
    per_flow: int = 10
    learning_rate: float | None = None
    pieces: Pieces | None = field(default=None, compare=False, repr=False)

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
        return cut_windows(recordings, window_ms, inputs, per_flow=min(self.per_flow, room), behaviour=False)

    def scores(
        self,
        name: str,
        windows: Windows | Callable[[int], tuple[Windows, Windows]],
        *by: str,
        seeds: Sequence[int] | None = None,
        elsewhere: Windows | None = None,
    ) -> list[pd.DataFrame]:
        """F1 of a classifier over seeds: of all windows, by each of these columns, elsewhere. Each seed trains once."""
        from ...identify.evaluation import over_seeds

        trained: dict[int, Any] = {}

        def train(training: Windows, seed: int) -> Any:
            if seed not in trained:
                trained[seed] = self._predictor(name, training, seed)
            return trained[seed]

        chosen = range(self.seeds) if seeds is None else seeds
        columns: tuple[str | None, ...] = (None, *by)
        found = [over_seeds(train, windows, chosen, by=column) for column in columns]
        if elsewhere is not None:
            assert not callable(windows)
            here, there = windows, elsewhere
            found.append(over_seeds(train, lambda seed: (here.split(0.3, seed)[0], there), chosen))
        return found

    def identity(self, kind: str, name: str, seed: int, *windows: Windows) -> tuple[Any, ...]:
        """What identifies a piece: its kind, the training, and the windows."""
        settings = (self.epochs, self.learning_rate, seed)
        return kind, name, settings, [_digest(part) for part in windows]

    def history(
        self, name: str, learnt: Windows, seed: int, measure: Callable[[Any], dict[str, float]]
    ) -> list[dict[str, float]]:
        """What `measure` finds in a classifier after each epoch of its training, and the loss."""
        classifier = self.classifier(name, seed)
        if self.pieces is not None:
            classifier.set_params(checkpoint=self._half_done(self.pieces, "history", name, seed, learnt))
        return list(classifier.fit(learnt, after_epoch=measure).history_)

    def _half_done(self, pieces: Pieces, kind: str, name: str, seed: int, learnt: Windows) -> Path:
        """Where an interrupted training is kept."""
        pieces.folder.mkdir(parents=True, exist_ok=True)
        return pieces.path(self.identity(kind, name, seed, learnt)).with_suffix(".checkpoint")

    def _predictor(self, name: str, learnt: Windows, seed: int) -> Callable[[Windows], np.ndarray]:
        """``predict`` of a classifier trained on windows; with pieces, it is trained only for new answers."""
        if self.pieces is None:
            predict: Callable[[Windows], np.ndarray] = self.classifier(name, seed).fit(learnt).predict
            return predict
        import numpy as np

        pieces = self.pieces
        fitted: list[Any] = []

        def answers(tested: Windows) -> dict[str, Any]:
            if not fitted:
                half_done = self._half_done(pieces, "training", name, seed, learnt)
                classifier = self.classifier(name, seed).set_params(checkpoint=half_done)
                fitted.append(classifier.fit(learnt))
            return {"answers": fitted[0].predict(tested).tolist()}

        def kept_answers(tested: Windows) -> np.ndarray:
            what = self.identity("answers", name, seed, learnt, tested)
            return np.asarray(pieces.made(what, lambda: answers(tested))["answers"], object)

        return kept_answers


def _digest(windows: Windows) -> str:
    """Everything of windows that a classifier learns from."""
    import numpy as np

    about = (windows.inputs, windows.slot_ms, windows.X.shape, windows.y.tolist(), windows.groups.tolist())
    digest = hashlib.sha256(repr(about).encode())
    digest.update(np.ascontiguousarray(windows.X).data)
    return digest.hexdigest()
