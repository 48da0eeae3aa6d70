"""DeePCCI as the Dragonfly authors published it: an answer for each second, one second late.

github.com/DeanCarmel/Dragonfly, ``learning/deepcci_net.py`` and ``learning/utils.py``: of a window of n seconds (one,
if it is shorter), the network answers n times, and F1 is the mean over these answers. Its last layer, a convolution
with a kernel of 1, is padded by 1 on both sides, which makes n + 2 answers: one to nothing, n to the seconds, one to
nothing. The program takes the first n. So the answer for a second is to the second before, that for the first to
nothing, and with windows of up to a second the network answers the same whatever it sees. It is trained with
Dragonfly's learning rate, 1e-4.

Here, the other layers are those of our DeePCCI, with pooling as published. Theirs have batch normalisation between the
LSTM layers and after the last, and no second output for pacing. Needs the extra ``train``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool1d

from ...identify import DeepcciClassifier, Windows
from ...identify.networks import DeepcciNet, dragonfly_pool

__all__ = ["BySecond", "SecondLate"]


class _ScoresBySecond(DeepcciNet):
    """Our DeePCCI with scores for each second: windows x classes x seconds."""

    def __init__(self, slots: int, inputs: int, classes: int, seconds: int, late: bool) -> None:
        super().__init__(slots, inputs, classes)
        self.seconds, self.late = seconds, late
        pool = dragonfly_pool(slots // seconds)
        modules: Any = self.modules_
        for module in modules:
            module.POOL, module.pool = pool, nn.MaxPool2d((1, pool), ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        """Scores for windows x inputs x slots."""
        memory = self.memory(self._steps(x))[0].transpose(1, 2)
        strongest = max_pool1d(memory, memory.shape[2] // self.seconds)[:, :, : self.seconds]
        by_second = self.scores(strongest.transpose(1, 2)).transpose(1, 2)
        if not self.late:
            return by_second
        nothing = self.scores.bias[:, None].expand(len(x), -1, 1)
        return torch.cat([nothing, by_second[:, :, :-1]], dim=2)


class BySecond(DeepcciClassifier):
    """DeePCCI with an answer for each second, from all that came before in the window.

    Parameters
    ----------
    pacing_weight, epochs, batch, learning_rate, patience, validation_share, seed, device, checkpoint, progress
        As :class:`~cctoolkit.identify.DeepcciClassifier`, except that there is no output for pacing.
    """

    LATE: ClassVar[bool] = False

    def answers(self, windows: Windows) -> np.ndarray:
        """The most probable class by second: windows x seconds."""
        found: np.ndarray = self.classes_[self._outputs(windows).argmax(axis=1)]
        return found

    def _network(self, shape: tuple[int, ...], classes: int) -> Any:
        return _ScoresBySecond(shape[2], shape[1], classes, seconds_of(shape[2], self.slot_ms_), self.LATE)

    def _loss(self, numbers: np.ndarray) -> Any:
        def loss(out: Tensor, wanted: Tensor) -> Tensor:
            return cross_entropy(out, wanted[:, None].expand(-1, out.shape[2]))

        return loss


class SecondLate(BySecond):
    """The same, each answer one second late and the first to nothing, as published."""

    LATE = True


def seconds_of(slots: int, slot_ms: float) -> int:
    """How many answers there are for a window."""
    return max(int(slots * slot_ms / 1000), 1)
