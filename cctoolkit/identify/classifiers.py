"""Classifiers with scikit-learn's interface: fit, predict, predict_proba, score, clone, cross-validation.

``X`` holds raw counts, windows x slots x inputs (``X`` of :class:`~.windows.Windows`); each classifier does its own
normalisation.
"""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..errors import ParameterError
from .inputs import (
    PREPARATIONS,
    VIEW_CHANNELS,
    VIEW_INPUTS,
    hidden,
    scale_views,
    slots_of,
    summaries,
)
from .probabilities import (
    by_length,
    by_pieces,
    grouped,
    named,
    possible_answers,
    softmax,
    together,
)
from .windows import Windows, joined

__all__ = ["CCAClassifier", "DeepcciClassifier", "DragonflyClassifier", "SummaryClassifier"]

#: Congestion controls that pace: the target of DeePCCI's second output.
PACED = ("bbr", "bbr2", "bbr3", "prague")
#: The largest threshold for names: a calibrated probability above it is no reason to answer "unknown".
_ALMOST_CERTAIN = 0.95
_Windows = Windows | np.ndarray


def _checked(X: _Windows, y: Any, inputs: int | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Windows and labels as arrays; raise if they are invalid."""
    if isinstance(X, Windows):
        y = X.y if y is None else y
        X = X.X
    X = np.asarray(X)
    if X.dtype != np.float16:  # halves the memory of many views
        X = X.astype(np.float32, copy=False)
    if X.ndim != 3:
        raise ParameterError(f"X: expected 3 dimensions (windows x slots x inputs), not {X.ndim}")
    if inputs is not None and X.shape[2] != inputs:
        raise ParameterError(f"X: {X.shape[2]} inputs per slot, this classifier takes {inputs}")
    if not len(X):
        raise ParameterError("X: no windows")
    if y is None:
        return X, None
    y = np.asarray(y, object).astype(str)
    if len(y) != len(X):
        raise ParameterError(f"y: {len(y)} labels for {len(X)} windows")
    return X, y


def _numbered(labels: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and each label as the number of its class."""
    if labels is None:
        raise ParameterError("y: no labels")
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ParameterError(f"y: all windows are {classes[0]}; expected at least two classes")
    return classes, numbers


class _NetworkClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A torch network behind scikit-learn's interface. Subclasses define the network, preparation and feature sets."""

    preparation: ClassVar[str]
    #: Number of windows that go through the network at a time, and of their slots.
    _AT_ONCE: ClassVar[int] = 512
    _SLOTS_AT_ONCE: ClassVar[int] = 2**21

    epochs: int
    batch: int
    learning_rate: float
    patience: int | None
    validation_share: float
    seed: int
    device: str
    checkpoint: str | os.PathLike[str] | None
    progress: bool

    def fit(
        self,
        X: _Windows,
        y: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
        *,
        after_epoch: Callable[[Any], dict[str, float]] | None = None,
    ) -> Any:
        """Train on windows.

        Parameters
        ----------
        X : Windows or array, windows x slots x inputs
        y : array of str, optional
            Congestion controls; taken from Windows.
        groups : array, optional
            The run of each window, taken from Windows. Validation windows are then from other runs.
        after_epoch : function of the classifier, optional
            Called after each epoch, when the classifier can already predict; what it returns is added to the epoch's
            row in ``history_``.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            There are too few windows, they are too short or not observed, or labels are all of one class, or not one
            per window.
        """
        import torch

        from .training import train_network, use_large_pages

        use_large_pages()
        for name in ("inputs_", "slot_ms_"):  # from an earlier fit
            self.__dict__.pop(name, None)
        if isinstance(X, Windows):
            groups = X.groups if groups is None else groups
            self._check_names(X)
            self.inputs_, self.slot_ms_ = X.inputs, X.slot_ms
        counted, labels = _checked(X, y, self._inputs())
        self._check_window(counted)
        self.classes_, numbers = _numbered(labels)
        _numbered(self._named_alike(self.classes_))  # also after merging classes
        ready = self._prepared(counted)
        self.shape_in_ = counted.shape[1:]
        train, validation = self._held_out(len(ready), groups)

        def report(epoch: int, network: Any) -> dict[str, float]:
            device = next(network.parameters()).device
            found = {} if after_epoch is None else after_epoch(self)
            network.to(device)  # predicting left it on the CPU
            return found

        with torch.random.fork_rng():  # the caller's random numbers stay as they are
            torch.manual_seed(self.seed)
            self.network_ = self._network(ready.shape, len(self.classes_))
            self.history_ = train_network(
                self.network_,
                ready,
                numbers,
                self._loss(numbers[train]),
                self._recipe(),
                rows=train,
                validation=None if validation is None else (ready[validation], numbers[validation]),
                augment=self._augment,
                checkpoint=self.checkpoint,
                identity=self._identity(),
                progress=self.progress,
                after_epoch=None if after_epoch is None else report,
            )
            self._after_fit(ready, numbers, train, validation)
        return self

    def _inputs(self) -> int | None:
        return None

    def _named_alike(self, labels: np.ndarray | None) -> np.ndarray | None:
        """Labels, with classes merged as in the answers."""
        return labels

    def _check_window(self, X: np.ndarray) -> None:
        unseen = np.isnan(X).all(axis=(0, 1))
        if unseen.any():
            raise ParameterError(f"X: input {int(np.flatnonzero(unseen)[0])} was never observed (all NaN)")

    def _prepared(self, X: np.ndarray) -> np.ndarray:
        return PREPARATIONS[self.preparation](X)

    def _held_out(self, n: int, groups: Any) -> tuple[np.ndarray, np.ndarray | None]:
        if not self.validation_share:
            return np.arange(n), None
        from sklearn.model_selection import GroupShuffleSplit

        groups = np.arange(n) if groups is None else np.asarray(groups)
        if len(np.unique(groups)) < 2:
            raise ParameterError("groups: windows of one run cannot be split into training and validation")
        splitter = GroupShuffleSplit(1, test_size=self.validation_share, random_state=self.seed)
        return next(splitter.split(np.zeros(n), groups=groups))

    def _recipe(self) -> Any:
        from .training import Recipe

        return Recipe(
            epochs=self.epochs, batch=self.batch, learning_rate=self.learning_rate, patience=self.patience,
            seed=self.seed, device=self.device,
        )  # fmt: skip

    def _identity(self) -> object:
        """What identifies this training in a checkpoint, besides windows and recipe."""
        anyway = ("checkpoint", "progress", "device")
        settings = {name: value for name, value in self.get_params().items() if name not in anyway}
        return type(self).__name__, settings, self.classes_.tolist(), getattr(self, "inputs_", None)

    @abstractmethod
    def _network(self, shape: tuple[int, ...], classes: int) -> Any:
        """An untrained network for prepared windows of this shape."""

    def _loss(self, numbers: np.ndarray) -> Any:
        from torch.nn.functional import cross_entropy

        return cross_entropy

    _augment: Any = None

    def _after_fit(
        self, ready: np.ndarray, numbers: np.ndarray, train: np.ndarray, validation: np.ndarray | None
    ) -> None:
        """Fit anything else from the windows, after the network."""

    def _at_once(self, ready: Any) -> int:
        """How many prepared windows go through the network at a time."""
        return min(self._AT_ONCE, max(self._SLOTS_AT_ONCE // ready.shape[-1], 1))

    def _outputs(self, X: _Windows) -> np.ndarray:
        """Outputs of the network for windows, scores first."""
        check_is_fitted(self, "network_")
        if isinstance(X, Windows):
            self._check_names(X)
        counted, _ = _checked(X, None, self._inputs())
        self._check_shape(counted)
        return self._through(self._prepared(counted))

    def _through(self, ready: np.ndarray) -> np.ndarray:
        """Outputs of the network for prepared windows, on the device that it is trained on."""
        import torch

        from .training import device_named

        device = device_named(self.device)
        windows = torch.from_numpy(ready)
        self.network_.to(device)
        try:
            with torch.inference_mode():
                parts = windows.split(self._at_once(windows))
                return torch.cat([self.network_(part.to(device).float()).cpu() for part in parts]).numpy()
        finally:
            self.network_.to("cpu")

    def _check_shape(self, X: np.ndarray) -> None:
        if X.shape[1:] != self.shape_in_:
            raise ParameterError(
                f"X: windows of {X.shape[1]} slots x {X.shape[2]} inputs; "
                f"this classifier was fitted on {self.shape_in_[0]} x {self.shape_in_[1]}"
            )
        self._check_window(X)

    def _check_names(self, X: Windows) -> None:
        """Check slots and inputs of Windows; plain arrays have no names."""
        self._check_inputs(X)
        if X.slot_ms != getattr(self, "slot_ms_", X.slot_ms):
            raise ParameterError(
                f"X: slots of {X.slot_ms:g} ms; this classifier was fitted on slots of {self.slot_ms_:g} ms"
            )

    def _check_inputs(self, X: Windows) -> None:
        if X.inputs != getattr(self, "inputs_", X.inputs):
            raise ParameterError(
                f"X: windows of {', '.join(X.inputs)}; this classifier was fitted on {', '.join(self.inputs_)}"
            )

    def predict_proba(self, X: _Windows) -> np.ndarray:
        """Probabilities, windows x ``classes_``."""
        return softmax(self._outputs(X)[:, : len(self.classes_)])

    def predict(self, X: _Windows) -> np.ndarray:
        """The most probable class of each window."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def score(self, X: _Windows, y: npt.ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Accuracy, as for every scikit-learn classifier; :mod:`cctoolkit.identify.evaluation` has other scores."""
        labels = self._named_alike(_checked(X, y, self._inputs())[1])
        if labels is None:
            raise ParameterError("y: no labels")
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(labels, self.predict(X), sample_weight=sample_weight))

    def save(self, directory: str | os.PathLike[str], **facts: Any) -> Path:
        """Write the model as a folder: ONNX, JSON and a model card; see :func:`~.saving.save_model`."""
        from .saving import save_model

        check_is_fitted(self, "network_")
        return save_model(self, directory, **facts)

    def export_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write only the network."""
        from .saving import write_onnx

        check_is_fitted(self, "network_")
        return write_onnx(self, path)


class DragonflyClassifier(_NetworkClassifier):
    """Dragonfly as published: the network, the normalisation and the training of the paper.

    Parameters
    ----------
    epochs, batch, learning_rate : int, int, float
        As in the paper, 100 and 32, and 1e-4 as in the published code (Adam, times 0.9 every 25 epochs).
    patience : int, optional
        Stop after this many epochs without improvement; needs `validation_share`.
    validation_share : float
        Share of runs held out of training to decide when to stop.
    seed : int
        Seed for initialisation and batches. The same seed and windows give the same network on the same machine.
    device : str
        ``"auto"`` uses a GPU if there is one.
    checkpoint : path, optional
        File from which an interrupted training resumes.
    progress : bool

    See Also
    --------
    CCAClassifier : one model for windows of any length
    DeepcciClassifier : the paper's baseline
    cut_windows : windows to train on

    Notes
    -----
    The windows determine the inputs: ``cbiq+throughput`` are the paper's, ``cbiq`` its single-input variant. Each
    window length needs its own classifier, as in the paper.

    Examples
    --------
    >>> recordings = [cct.identify.record(cct.example(name)) for name in ("cubic", "bbr")]
    >>> windows = cct.identify.cut_windows(recordings, 500, "cbiq+throughput", per_flow=8)
    >>> classifier = cct.identify.DragonflyClassifier(epochs=1, device="cpu").fit(windows)
    >>> classifier.predict_proba(windows).shape
    (16, 2)
    """

    preparation = "by_maximum"

    def __init__(
        self, *, epochs: int = 100, batch: int = 32, learning_rate: float = 1e-4, patience: int | None = None,
        validation_share: float = 0.0, seed: int = 0, device: str = "auto",
        checkpoint: str | os.PathLike[str] | None = None, progress: bool = False,
    ) -> None:  # fmt: skip
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation_share = validation_share
        self.seed = seed
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress

    def _network(self, shape: tuple[int, ...], classes: int) -> Any:
        from .networks import DragonflyNet

        return DragonflyNet(shape[2], shape[1], classes)


class DeepcciClassifier(DragonflyClassifier):
    """DeePCCI, the paper's baseline: packets per slot, convolutions and an LSTM, and a second output for pacing.

    Parameters
    ----------
    pacing_weight : float
        Weight of the second output's loss (0.2 as published).
    epochs, batch, learning_rate, patience, validation_share, seed, device, checkpoint, progress
        As :class:`DragonflyClassifier`; the learning rate is 1e-3, because at 1e-4 it is still learning after 100
        epochs.

    See Also
    --------
    DragonflyClassifier : the paper's own network
    CCAClassifier : one model for windows of any length
    cut_windows : windows to train on

    Examples
    --------
    >>> recordings = [cct.identify.record(cct.example(name)) for name in ("cubic", "bbr")]
    >>> windows = cct.identify.cut_windows(recordings, 100, ["in_packets"], per_flow=8)
    >>> classifier = cct.identify.DeepcciClassifier(epochs=1, device="cpu").fit(windows)
    >>> sorted(classifier.classes_.tolist())
    ['bbr', 'cubic']
    """

    preparation = "as_counted"

    def __init__(
        self, *, pacing_weight: float = 0.2, epochs: int = 100, batch: int = 32, learning_rate: float = 1e-3,
        patience: int | None = None, validation_share: float = 0.0, seed: int = 0, device: str = "auto",
        checkpoint: str | os.PathLike[str] | None = None, progress: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            epochs=epochs, batch=batch, learning_rate=learning_rate, patience=patience,
            validation_share=validation_share, seed=seed, device=device, checkpoint=checkpoint, progress=progress,
        )  # fmt: skip
        self.pacing_weight = pacing_weight

    def _network(self, shape: tuple[int, ...], classes: int) -> Any:
        from .networks import DeepcciNet

        return DeepcciNet(shape[2], shape[1], classes)

    def _loss(self, numbers: np.ndarray) -> Any:
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

        paced = torch.tensor([float(c in PACED) for c in self.classes_])

        def loss(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            pacing = binary_cross_entropy_with_logits(out[:, -1], paced.to(out.device)[wanted])
            return cross_entropy(out[:, :-1], wanted) + self.pacing_weight * pacing

        return loss


class CCAClassifier(_NetworkClassifier):
    """Our classifier: windows of any length, one or two taps, calibrated probabilities and "unknown".

    Parameters
    ----------
    epochs, batch, learning_rate : int, int, float
        Training with AdamW and a one-cycle schedule.
    hide : float
        Share of training windows in which to hide the queue, and likewise bytes in flight and drops, so that one model
        serves one or two taps, with or without acknowledgements.
    other : str
        Label of training windows that stand for everything unknown.
    alike : mapping of str to sequence of str, optional
        Congestion controls that behave alike and become one answer: its name, and the others it covers.
    lose : float
        Share of known windows (of the validation runs, for each length) that may be called unknown. Fewer are, if all
        are easy to tell: a name with a probability of 0.95 or more is always given.
    widths : tuple of int
        Number of channels of the network's convolutions; more classes may need more.
    pretrained : str or path, optional
        A saved model of this kind, bundled or in a folder, to continue from: this takes far fewer windows than
        starting from scratch. Its `widths` apply; classes that it does not know are added.
    keep : float
        Weight of the pretrained network in the result, below 1: averaging the weights before and after training
        forgets less of what was learnt before (Wortsman et al., CVPR 2022). Needs a model with the same classes.
    patience, validation_share, seed, device, checkpoint, progress
        As :class:`DragonflyClassifier`. Validation windows also calibrate the probabilities.

    See Also
    --------
    DragonflyClassifier : the paper's network
    SummaryClassifier : a baseline without a network
    cut_windows : windows to train on
    save_models : keep a trained model

    Notes
    -----
    Windows must have :data:`~.inputs.VIEW_INPUTS`; :func:`~.inputs.scale_view` converts them. To train on several
    lengths at once, pass a list of Windows, or views (``cut_windows(…, inputs="views")``). The network learns `alike`
    congestion controls as separate classes and their probabilities are added: ``learnt_`` are its classes,
    ``classes_`` the answers. Probabilities are calibrated by a temperature for each length (Guo et al. 2017;
    ``temperature_``: slots and temperature, interpolated between training lengths). A window is unknown
    if no named class reaches the threshold at which a share `lose` of the known windows of this length is lost
    (``least_``: slots and probability; interpolated as well). Long windows are classified in pieces of 25 RTTs, whose
    log-probabilities are averaged. In training, temperature and threshold come from whole windows; :meth:`calibrate`
    learns them from the final answers.

    Examples
    --------
    >>> recordings = [cct.identify.record(cct.example(name)) for name in ("cubic", "bbr")]
    >>> windows = cct.identify.cut_windows(recordings, 500, "views", per_flow=8)
    >>> classifier = cct.identify.CCAClassifier(epochs=1, device="cpu").fit(windows)
    >>> classifier.predict_proba(windows).shape
    (16, 2)
    """

    preparation = "scale_view"

    def __init__(
        self, *, epochs: int = 40, batch: int = 128, learning_rate: float = 1e-3, hide: float = 0.25,
        other: str = "other", alike: Mapping[str, Sequence[str]] | None = None, lose: float = 0.05,
        widths: tuple[int, ...] = (48, 64, 96), pretrained: str | os.PathLike[str] | None = None,
        keep: float = 0.0,
        patience: int | None = None, validation_share: float = 0.15, seed: int = 0, device: str = "auto",
        checkpoint: str | os.PathLike[str] | None = None, progress: bool = False,
    ) -> None:  # fmt: skip
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.hide = hide
        self.other = other
        self.alike = alike
        self.lose = lose
        self.widths = widths
        self.pretrained = pretrained
        self.keep = keep
        self.patience = patience
        self.validation_share = validation_share
        self.seed = seed
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress

    def fit(
        self,
        X: _Windows | Sequence[Windows],
        y: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
        *,
        after_epoch: Callable[[Any], dict[str, float]] | None = None,
    ) -> CCAClassifier:
        """Train on windows, or on several lengths if `X` is a list; otherwise as for the other classifiers."""
        if not isinstance(X, Windows | np.ndarray):
            X = self._joined(list(X))
        super().fit(X, y, groups, after_epoch=after_epoch)
        return self

    def _joined(self, parts: list[Any]) -> Windows:
        """Windows of several lengths as views."""
        if not parts or not all(isinstance(part, Windows) for part in parts):
            raise ParameterError("X: a list must contain Windows only")
        for part in parts:
            self._check_inputs(part)
        slot_ms = sorted({part.slot_ms for part in parts})
        if len(slot_ms) > 1:
            raise ParameterError(
                f"X: slots of {' and '.join(f'{ms:g}' for ms in slot_ms)} ms, not of one width"
            )
        return joined(
            [
                dataclasses.replace(part, X=scale_views(part.X).transpose(0, 2, 1), inputs=VIEW_CHANNELS)
                for part in parts
            ]
        )

    def _named_alike(self, labels: np.ndarray | None) -> np.ndarray | None:
        return labels if labels is None or not self.alike else grouped(labels, self.alike).astype(str)

    def _check_window(self, X: np.ndarray) -> None:
        if X.shape[2] not in (len(VIEW_INPUTS), len(VIEW_CHANNELS)):
            raise ParameterError(
                f"X: {X.shape[2]} inputs per slot, not {len(VIEW_INPUTS)} ({', '.join(VIEW_INPUTS)})"
            )
        if np.isnan(X[:, :, 0]).any():
            raise ParameterError("X: in_bytes was not observed (NaN); sampled slots cannot be used")

    def _check_shape(self, X: np.ndarray) -> None:
        self._check_window(X)

    def _check_inputs(self, X: Windows) -> None:
        if X.inputs not in (VIEW_INPUTS, VIEW_CHANNELS):
            raise ParameterError(
                f"X: windows of {', '.join(X.inputs)}, not of {', '.join(VIEW_INPUTS)}, or views"
            )

    def _recipe(self) -> Any:
        return dataclasses.replace(super()._recipe(), schedule="one_cycle", weight_decay=1e-2)

    def _network(self, shape: tuple[int, ...], classes: int) -> Any:
        from .networks import ScalesNet

        if not 0 <= self.keep < 1 or (self.keep and self.pretrained is None):
            raise ParameterError(
                f"keep: {self.keep!r} must be at least 0 and below 1, and needs a pretrained model"
            )
        if self.pretrained is None:
            return ScalesNet(classes, self.widths)
        from .bundle import learnt_network

        content, learnt = learnt_network(
            self.pretrained, type(self).__name__, getattr(self, "slot_ms_", None)
        )
        if self.keep and (new := set(self.classes_) - set(learnt)):
            raise ParameterError(f"keep: {self.pretrained} does not know {', '.join(sorted(new))}")
        return ScalesNet.pretrained(content, learnt, self.classes_.tolist())

    def _loss(self, numbers: np.ndarray) -> Any:
        """A loss that weighs all classes equally, whatever their number of windows."""
        import torch
        from torch.nn.functional import cross_entropy

        counts = np.bincount(numbers, minlength=len(self.classes_))
        weights = torch.tensor(len(numbers) / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)

        def loss(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            scores = out[:, : len(self.classes_)]
            # torch's own weights would pull the smoothed part of every window towards the rare classes
            values = cross_entropy(scores, wanted, label_smoothing=0.05, reduction="none")
            weight = weights.to(out.device)[wanted]
            return (values * weight).sum() / weight.sum()

        return loss

    def _augment(self, batch: Any, generator: Any) -> Any:
        """Hide the queue in some windows, bytes in flight in some of the others, and drops in some."""
        import torch

        lot = torch.rand(len(batch), generator=generator).to(batch.device)
        batch = batch.clone()
        unseen = torch.rand(len(batch), generator=generator).to(batch.device) < self.hide
        hidden(batch, lot < self.hide, lot > 1 - self.hide, unseen)
        return batch

    def _after_fit(
        self, ready: np.ndarray, numbers: np.ndarray, train: np.ndarray, validation: np.ndarray | None
    ) -> None:
        if self.keep:
            self._keep_weights(ready.shape)
        self.temperature_, self.least_ = np.empty((0, 2)), np.empty((0, 2))
        self.learnt_, self.classes_ = self.classes_, possible_answers(self.classes_, self.alike)
        if validation is None:
            return
        slots = np.asarray(slots_of(ready[validation].transpose(0, 2, 1)))
        scores, numbers = self._scores(ready[validation]), numbers[validation]
        alone = [(n, _temperature(scores[slots == n], numbers[slots == n])) for n in np.unique(slots)]
        self.temperature_ = np.array(alone).reshape(-1, 2)
        temperature = by_length(self.temperature_, slots, 1.0)
        self._learn_thresholds(
            slots, together(softmax(scores / temperature[:, None]), self.learnt_, self.alike), numbers
        )

    def _keep_weights(self, shape: tuple[int, ...]) -> None:
        before = self._network(shape, len(self.classes_)).state_dict()
        after = self.network_.state_dict()
        for name, values in after.items():
            if values.is_floating_point():  # others count batches
                values.lerp_(before[name], self.keep)

    def _learn_thresholds(self, slots: np.ndarray, probabilities: np.ndarray, numbers: np.ndarray) -> None:
        """Thresholds for names, so that a share `lose` of the known windows of each length is lost.

        No threshold exceeds :data:`_ALMOST_CERTAIN`: where windows are easy to tell, all probabilities are nearly 1,
        and so would be a threshold that loses some of them.
        """
        known = grouped(self.learnt_, self.alike or {})[numbers] != self.other
        likely, slots = self._known(probabilities)[known], slots[known]
        limits = [
            (n, min(np.quantile(likely[slots == n], self.lose), _ALMOST_CERTAIN)) for n in np.unique(slots)
        ]
        self.least_ = np.array(limits).reshape(-1, 2)

    def calibrate(self, X: Windows | Sequence[Windows], other_share: float | None = None) -> CCAClassifier:
        """Recalibrate probabilities and the threshold for "unknown", from windows of runs not trained on.

        Parameters
        ----------
        X : Windows, or several of different lengths
            Of :data:`~.inputs.VIEW_INPUTS`, not views, because long windows are classified in pieces.
        other_share : float, optional
            Share of flows outside the named classes where the classifier will be used, above 0 and below 1; by default
            all classes are equally probable, as in training. Named classes share the rest equally.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            A class has no windows, or there is no class for unknown ones although `other_share` is given.

        Notes
        -----
        One temperature for each length, and one offset of the unknown class (in its last weights), minimise the log
        loss of windows weighted to these shares (Guo et al. 2017; Saerens et al., Neural Computation 14, 2002). The
        thresholds then follow as in training.
        """
        check_is_fitted(self, "network_")
        parts = [X] if isinstance(X, Windows) else list(X)
        scores, numbers, slots = [], [], []
        for part in parts:
            self._check_names(part)
            counted, labels = _checked(part, None, None)
            self._check_shape(counted)
            assert labels is not None  # Windows have them
            if strange := set(labels) - set(self.learnt_):
                raise ParameterError(f"y: {min(strange)} is none of the classes {', '.join(self.learnt_)}")
            once = by_pieces(
                counted, lambda pieces, _: softmax(self._scores(scale_views(pieces))), np.ones(1)
            )
            scores.append(np.log(np.maximum(once, 1e-12)))
            numbers.append(np.searchsorted(self.learnt_, labels))
            slots.append(np.full(len(part), counted.shape[1]))
        self._calibrate(np.concatenate(scores), np.concatenate(numbers), np.concatenate(slots), other_share)
        return self

    def doubt(
        self, X: Windows | Sequence[Windows], ccas: Sequence[str], share: float = 0.02
    ) -> CCAClassifier:
        """Ask for more evidence before certain names, such as those that only simulated runs had in training.

        Parameters
        ----------
        X : Windows, or several of different lengths
            Of other congestion controls, from runs not trained on; of :data:`~.inputs.VIEW_INPUTS`, not views.
        ccas : sequence of str
            The classes whose scores are lowered, all by the same amount (in their last weights).
        share : float
            Of the windows of each length, at most this share may get one of these names afterwards.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            One of `ccas` is not a class of its own, `X` has windows of one, or lowering the scores by 5 is not enough.

        Notes
        -----
        The scores are lowered by the least amount that suffices, to within a tenth. That is a lower prior probability
        of these classes (Saerens et al., Neural Computation 14, 2002). Temperatures and thresholds stay.
        """
        check_is_fitted(self, "network_")
        parts = [X] if isinstance(X, Windows) else list(X)
        for cca in ccas:
            if cca not in self.learnt_ or cca not in self.classes_:
                raise ParameterError(f"ccas: {cca} is none of the classes {', '.join(self.classes_)}")
            if any((part.y == cca).any() for part in parts):
                raise ParameterError(f"X: has windows of {cca}")
        doubted = np.isin(self.learnt_, ccas)

        def suffices(amount: float) -> bool:
            self._shift(doubted, -amount)
            try:
                return all(np.isin(self.predict(part), ccas).mean() <= share for part in parts)
            finally:
                self._shift(doubted, amount)

        low, high = 0.0, 5.0
        if suffices(low):
            return self
        if not suffices(high):
            raise ParameterError(
                f"share: more than {share:g} of the windows of X are still called {' or '.join(ccas)} when those "
                f"scores are {high:g} lower"
            )
        while high - low > 0.1:
            middle = (low + high) / 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        self._shift(doubted, -high)
        return self

    def _shift(self, these: np.ndarray, amount: float) -> None:
        """Add to the scores of classes, in the network's last weights."""
        import torch

        with torch.no_grad():
            self.network_.scores.bias[: len(these)][torch.from_numpy(these)] += float(amount)

    def _calibrate(
        self, scores: np.ndarray, numbers: np.ndarray, slots: np.ndarray, other_share: float | None
    ) -> None:
        is_other = self.learnt_ == self.other
        shares = np.full(len(self.learnt_), 1 / len(self.learnt_))
        if other_share is not None:
            if not is_other.any() or not 0 < other_share < 1:
                raise ParameterError(
                    f"other_share: {other_share!r} needs the class {self.other!r}, and 0 to 1"
                )
            shares = np.where(is_other, other_share, (1 - other_share) / (len(shares) - 1))
        counts = np.bincount(numbers, minlength=len(shares))
        if not counts.all():
            raise ParameterError(f"y: no window of {self.learnt_[counts.argmin()]}")
        weights = (shares / counts)[numbers]
        lengths, row = np.unique(slots, return_inverse=True)
        offset, temperatures = _calibrated(scores, numbers, weights, row, is_other)
        self._shift(is_other, offset)
        self.temperature_ = np.stack([lengths, temperatures], axis=1)
        ready = softmax((scores + offset * is_other) / temperatures[row][:, None])
        self._learn_thresholds(slots, together(ready, self.learnt_, self.alike), numbers)

    def _scores(self, ready: np.ndarray) -> np.ndarray:
        return self._through(ready)[:, : len(self.learnt_)]

    def _probabilities(self, X: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        scores = self._scores(scale_views(X)) / np.reshape(temperature, (-1, 1))
        return together(softmax(scores), self.learnt_, self.alike)

    def _known(self, probabilities: np.ndarray) -> np.ndarray:
        """The largest probability of a named class."""
        return probabilities[:, self.classes_ != self.other].max(axis=1)

    def predict_proba(self, X: _Windows) -> np.ndarray:
        """Calibrated probabilities, windows x ``classes_``."""
        check_is_fitted(self, "network_")
        if isinstance(X, Windows):
            self._check_names(X)
        counted, _ = _checked(X, None, None)
        self._check_shape(counted)
        return by_pieces(counted, self._probabilities, by_length(self.temperature_, slots_of(counted), 1.0))

    def predict(self, X: _Windows) -> np.ndarray:
        """The most probable named class of each window, or ``"unknown"``."""
        probabilities = self.predict_proba(X)
        slots = slots_of(X.X if isinstance(X, Windows) else np.asarray(X))
        return named(probabilities, self.classes_, self.other, by_length(self.least_, slots, 0.0))


def _temperature(scores: np.ndarray, numbers: np.ndarray) -> float:
    """The temperature that calibrates probabilities by minimising log loss (Guo et al. 2017)."""
    rows = np.zeros(len(numbers), np.int64)
    return float(
        _calibrated(scores, numbers, np.ones(len(numbers)), rows, np.zeros(scores.shape[1], bool))[1][0]
    )


def _calibrated(
    scores: np.ndarray, numbers: np.ndarray, weights: np.ndarray, rows: np.ndarray, shifted: np.ndarray
) -> tuple[float, np.ndarray]:
    """The offset of some classes and the temperatures of groups of windows that minimise the weighted log loss.

    Parameters
    ----------
    scores : array, windows x classes
    numbers, weights, rows : array, windows
        Number of the class; weight in the loss; group, from 0.
    shifted : boolean array, classes
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    each, groups = np.arange(len(numbers)), int(rows.max()) + 1
    weights = weights / weights.sum()

    def loss(x: np.ndarray) -> float:
        moved = (scores + x[0] * shifted) / np.exp(x[1:])[rows][:, None]
        return float(-(log_softmax(moved, axis=1)[each, numbers] * weights).sum())

    bounds = [(-5, 5) if shifted.any() else (0, 0), *[(-2, 2)] * groups]
    found = minimize(loss, np.zeros(1 + groups), method="L-BFGS-B", bounds=bounds).x
    return float(found[0]), np.exp(found[1:])


class SummaryClassifier(ClassifierMixin, BaseEstimator):
    """A baseline without a network: gradient-boosted trees on summaries of a window's views.

    Parameters
    ----------
    iterations : int
        Number of trees per class.
    learning_rate : float
    seed : int

    See Also
    --------
    CCAClassifier : the network for the same views
    cut_windows : windows to train on

    Notes
    -----
    The summaries of each channel of :func:`~.inputs.scale_view` are mean, standard deviation, extremes, deciles and
    median, and the standard deviation and extremes of its steps. The trees are scikit-learn's
    ``HistGradientBoostingClassifier``.

    Examples
    --------
    >>> recordings = [cct.identify.record(cct.example(name)) for name in ("cubic", "bbr")]
    >>> windows = cct.identify.cut_windows(recordings, 500, "views", per_flow=8)
    >>> classifier = cct.identify.SummaryClassifier(iterations=5).fit(windows)
    >>> sorted(classifier.classes_.tolist())
    ['bbr', 'cubic']
    """

    preparation: ClassVar[str] = "summaries"

    def __init__(self, *, iterations: int = 150, learning_rate: float = 0.08, seed: int = 0) -> None:
        self.iterations = iterations
        self.learning_rate = learning_rate
        self.seed = seed

    def fit(self, X: _Windows, y: npt.ArrayLike | None = None) -> SummaryClassifier:
        """Train on windows, as :meth:`DragonflyClassifier.fit`."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        self.slot_ms_ = X.slot_ms if isinstance(X, Windows) else 1.0
        counted, labels = _checked(X, y, None)
        _numbered(labels)
        if np.isnan(counted[:, :, 0]).any():
            raise ParameterError("X: in_bytes was not observed (NaN); sampled slots cannot be used")
        self.trees_ = HistGradientBoostingClassifier(
            max_iter=self.iterations, learning_rate=self.learning_rate, random_state=self.seed
        ).fit(summaries(counted), labels)
        self.classes_ = self.trees_.classes_
        return self

    def predict_proba(self, X: _Windows) -> np.ndarray:
        """Probabilities, windows x ``classes_``."""
        check_is_fitted(self, "trees_")
        return self.trees_.predict_proba(summaries(_checked(X, None, None)[0]))

    def predict(self, X: _Windows) -> np.ndarray:
        """The most probable class of each window."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def score(self, X: _Windows, y: npt.ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Accuracy."""
        from sklearn.metrics import accuracy_score

        counted, labels = _checked(X, y, None)
        return float(accuracy_score(labels, self.predict(counted), sample_weight=sample_weight))

    def save(self, directory: str | os.PathLike[str], **facts: Any) -> Path:
        """Write the model as a folder, as :meth:`CCAClassifier.save`; needs onnx."""
        from .saving import save_model

        check_is_fitted(self, "trees_")
        return save_model(self, directory, **facts)
