"""The networks as torch modules: windows x inputs x slots in, one score per class out. Needs the extra ``train``.

Convolutions along time run on images one pixel high, channels last: the results of one-dimensional convolutions, but
trained faster. On a CPU, :class:`~.convolution.TimeConvolution` makes their gradients, and training makes use of inputs
that recur (:mod:`.distinct`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from ..errors import ParameterError
from .convolution import TimeConvolution
from .distinct import Distinct, selected
from .first_module import first_module
from .inputs import BIN_CHANNELS, VIEWS

__all__ = ["DeepcciNet", "DragonflyNet", "ScalesNet", "dragonfly_pool"]


def dragonfly_pool(slots: int) -> int:
    """Pooling along time: the largest p with p**5 at most the number of slots (10: 1, 100: 2, 1000: 3, 60 000: 9)."""
    p = 1
    while (p + 1) ** 5 <= slots:
        p += 1
    return p


def _images(x: Tensor) -> Tensor:
    """Windows x channels x slots in the layout of these convolutions."""
    return x.unsqueeze(2).contiguous(memory_format=torch.channels_last)


class DragonflyNet(nn.Module):
    """Dragonfly's network (Carmel and Keslassy, section III-E and Figure 4, with the published code's sizes).

    Five modules of convolution (3 x inputs in the first, 3 x 1 after; 50 filters), batch normalisation, max-pooling
    along time by :func:`dragonfly_pool` and ReLU; a convolution from 50 filters to the classes; the mean over time.

    Parameters
    ----------
    slots, inputs, classes : int

    Notes
    -----
    A kernel as wide as the inputs moves along time only, so the width of the paper's 3 x inputs and 3 x 1 kernels
    becomes channels here: the same results, more than twice as fast in onnxruntime. Likewise, pooling comes before
    ReLU, which then has less to do. The last convolution is padded in time like the others: of 10 000 slots, one is
    left before it. On a CPU, the first module of long windows is trained by :func:`~.first_module.first_module`.
    """

    FILTERS = 50
    #: Windows of so many slots are long.
    LONG = 5000

    def __init__(self, slots: int, inputs: int = 2, classes: int = 3) -> None:
        super().__init__()
        p = dragonfly_pool(slots)
        channels = [inputs, *[self.FILTERS] * 5]
        self.modules_ = nn.Sequential(
            *(
                nn.Sequential(TimeConvolution(a, b, 3), nn.BatchNorm2d(b), nn.MaxPool2d((1, p)), nn.ReLU())
                for a, b in itertools.pairwise(channels)
            )
        )
        self.scores = TimeConvolution(self.FILTERS, classes, 3)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Scores for windows x inputs x slots."""
        if self.training and x.shape[2] >= self.LONG and x.device.type == "cpu":
            first: Any = self.modules_[0]
            convolution, norm, pooling, relu = first
            y = self.modules_[1:](relu(first_module(x, convolution, norm, pooling.kernel_size[1])))
        else:
            y = self.modules_(_images(x))
        return self.scores(y).mean(dim=(2, 3))


class _Residual(nn.Module):
    POOL = 4

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.first = TimeConvolution(channels, filters, 3)
        self.second = TimeConvolution(filters, filters, 3)
        self.past = TimeConvolution(channels, filters, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(filters), nn.BatchNorm2d(filters)])
        self.pool = nn.MaxPool2d((1, self.POOL), ceil_mode=True)  # a remainder keeps a value

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y)) + self.past(x)
        return self.pool(torch.relu(y))

    def of_distinct(self, x: Distinct) -> Distinct:
        """The same for distinct slots."""
        norms: Any = self.norms
        first, before = x.convolved(self.first)
        first = first.with_rows(torch.relu(first.normalised(norms[0])))
        second, middle = first.convolved(self.second)
        past = linear(x.rows, self.past.weight[:, :, 0, 0], self.past.bias)
        y = second.normalised(norms[1]) + selected(past, before[middle])
        return second.with_rows(torch.relu(y)).pooled(self.POOL)


class DeepcciNet(nn.Module):
    """DeePCCI's network (Sander, Rüth, Hohlfeld and Wehrle, Big-DAMA 2019), for packets per slot.

    Five residual modules (64 channels, kernel 3, pooling by 4), three LSTM layers of 100, then one score per class and
    one for pacing.

    Parameters
    ----------
    slots, inputs, classes : int

    Notes
    -----
    No implementation was published. Two convolutions per residual module, with batch normalisation, and scores from
    the LSTM's last step are our choices. Pooling rounds up, so that 100 slots still leave one step. On a CPU, training
    goes by distinct slots (:class:`~.distinct.Distinct`) where inputs recur, as numbers of packets do.
    """

    FILTERS = 64
    HIDDEN = 100

    def __init__(self, slots: int, inputs: int = 1, classes: int = 3) -> None:
        super().__init__()
        channels = [inputs, *[self.FILTERS] * 5]
        self.modules_ = nn.Sequential(*(_Residual(a, b) for a, b in itertools.pairwise(channels)))
        self.memory = nn.LSTM(self.FILTERS, self.HIDDEN, num_layers=3, batch_first=True)
        self.scores = nn.Linear(self.HIDDEN, classes)
        self.pacing = nn.Linear(self.HIDDEN, 1)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Scores for windows x inputs x slots, with that for pacing last."""
        last = self.memory(self._steps(x))[0][:, -1]
        return torch.cat([self.scores(last), self.pacing(last)], dim=1)

    def _steps(self, x: Tensor) -> Tensor:
        """What the residual modules leave of the slots: windows x steps x filters."""
        plain = x.device.type == "cpu" and x.dtype == torch.float32 and not x.requires_grad
        if self.training and plain:
            slots = Distinct.of(x)
            if slots.recur:
                modules: Any = self.modules_
                for module in modules:
                    slots = module.of_distinct(slots)
                return slots.steps()
        return self.modules_(_images(x)).squeeze(2).transpose(1, 2)


class _LearntNorm(nn.BatchNorm2d):
    """A fixed norm whose learnt values are already part of the weights: batches no longer change it."""

    def train(self, mode: bool = True) -> _LearntNorm:
        return super().train(False)


class ScalesNet(nn.Module):
    """Our network for :func:`~.inputs.scale_view`: strided convolutions shared by the three views, then two layers.

    Parameters
    ----------
    classes : int
    widths : sequence of int
        Number of channels of each convolution.
    dropout : float

    Notes
    -----
    Missing bins stay zero in every layer, so views can be cut off after their last bin without changing the result; in
    short windows most bins are missing. Each view is pooled over its existing bins, by mean and maximum. Returns the
    scores, followed by the layer before them.

    Convolutions run on images one pixel high, channels last: the results of one-dimensional convolutions, trained 1.8
    times as fast, and in a form that onnxruntime computes in blocks of channels.
    """

    EMBEDDING = 96

    def __init__(self, classes: int, widths: Sequence[int] = (48, 64, 96), dropout: float = 0.3) -> None:
        super().__init__()
        channels = len(BIN_CHANNELS)
        self.norm = nn.BatchNorm2d(channels)
        self.layers = nn.ModuleList()
        for i, (a, b) in enumerate(itertools.pairwise([channels, *widths])):
            kernel = 5 if i == 0 else 3
            convolution = nn.Conv2d(a, b, (1, kernel), stride=(1, 2), padding=(0, kernel // 2))
            self.layers.append(nn.Sequential(convolution, nn.BatchNorm2d(b), nn.ReLU()))
        pooled = 2 * widths[-1] * len(VIEWS)
        self.embedding = nn.Sequential(nn.Dropout(dropout), nn.Linear(pooled, self.EMBEDDING), nn.ReLU())
        self.scores = nn.Linear(self.EMBEDDING, classes)
        self.to(memory_format=torch.channels_last)

    @classmethod
    def pretrained(cls, content: bytes, learnt: Sequence[str], classes: Sequence[str]) -> ScalesNet:
        """A network initialised from one saved as ONNX.

        Parameters
        ----------
        content : bytes
            What :func:`~.saving.write_onnx` wrote.
        learnt, classes : sequence of str
            Classes of the saved network, and of this one. New classes start with random weights.

        Notes
        -----
        In the saved network, the first norm is part of the first layer's weights (:meth:`_first`); it stays as it is.
        """
        import onnx

        graph = onnx.load_model_from_string(content).graph
        values = {w.name: torch.tensor(onnx.numpy_helper.to_array(w)) for w in graph.initializer}
        try:
            first = next(node for node in graph.node if node.op_type == "Conv")
            widths = [len(values[f"layers.{i}.0.bias"]) for i in range(3)]
            network = cls(len(classes), widths)
            network.norm = _LearntNorm(len(BIN_CHANNELS), eps=0.0)
            values["layers.0.0.weight"] = values[first.input[1]]
            state = network.state_dict()
            known = [(i, learnt.index(name)) for i, name in enumerate(classes) if name in learnt]
            for part in ("scores.weight", "scores.bias"):
                found = state[part].clone()
                for i, was in known:
                    found[i] = values[part][was]
                values[part] = found
            network.load_state_dict(state | {name: values[name] for name in state if name in values})
        except (StopIteration, KeyError, IndexError, RuntimeError):
            raise ParameterError("pretrained: its network is not one of CCAClassifier") from None
        return network

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """Scores and embedding for windows x channels x bins: all views in one array or one each, cut off or not."""
        if others:  # the first view, of the whole window, has all bins
            parts = [self._pooled(x, whole=True), *(self._pooled(view) for view in others)]
            pooled = torch.cat(parts, dim=1)
        else:
            pooled = self._pooled(x.reshape(-1, len(BIN_CHANNELS), x.shape[2])).reshape(len(x), -1)
        z = self.embedding(pooled)
        return torch.cat([self.scores(z), z], dim=1)

    def _pooled(self, view: Tensor, whole: bool = False) -> Tensor:
        y = self._first(_images(view))
        if whole:
            for layer in self.layers[1:]:
                y = layer(y)
            return torch.cat([y.mean(dim=(2, 3)), y.amax(dim=(2, 3))], dim=1)
        there = view[:, :1, None, ::2]
        y = y * there
        for layer in self.layers[1:]:
            there = there[:, :, :, ::2]
            y = layer(y) * there
        mean = y.sum(dim=(2, 3)) / there.sum(dim=(2, 3)).clamp(min=1.0)
        return torch.cat([mean, y.amax(dim=(2, 3))], dim=1)  # y is not negative

    def _first(self, y: Tensor) -> Tensor:
        """The first layer on normalised bins; missing bins stay zero.

        The first channel is 1 for existing bins, and all channels are 0 for missing ones. So once learnt, the norm's
        factors and (through that channel) its offsets become weights: no work per bin remains.
        """
        first: Any = self.layers[0]
        norm: Any = self.norm
        convolution, *rest = first
        if self.training:
            y = convolution(norm(y) * y[:, :1])
        else:
            factor = (norm.weight / torch.sqrt(norm.running_var + norm.eps))[:, None, None]
            summand = norm.bias[:, None, None] - norm.running_mean[:, None, None] * factor
            by_there = (convolution.weight * summand).sum(dim=1, keepdim=True)
            weight = convolution.weight * factor
            weight = torch.cat([weight[:, :1] + by_there, weight[:, 1:]], dim=1)
            y = conv2d(y, weight, convolution.bias, convolution.stride, convolution.padding)
        for step in rest:
            y = step(y)
        return y
