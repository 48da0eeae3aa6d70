"""Models on disk: ONNX and JSON in a folder, run by onnxruntime without torch. Loading executes no code.

A folder has ``model.json`` (classes, inputs, preparation, calibration, hashes, training data and results), one
``….onnx`` for each window length (or one for all, if the preparation allows it) and ``README.md``, the model card.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.arguments import floats, number, shown, whole
from .._support.documents import read_file, read_json
from .._support.words import first_line, printable
from ..analysis.limits import NAMEABLE, flow_limits
from ..errors import ParameterError, SchemaError
from ..schema import SLOTS
from .inputs import (
    ANY_LENGTH,
    BIN_CHANNELS,
    BINS,
    PREPARATIONS,
    VIEW_CHANNELS,
    VIEW_INPUTS,
    VIEWS,
    are_views,
    by_view,
    cut_views,
    round_trip_slots,
    slots_of,
    summaries,
)
from .probabilities import (
    SHORTEST,
    UNKNOWN,
    by_length,
    by_pieces,
    named,
    possible_answers,
    softmax,
    together,
)
from .windows import Windows, arrivals, slot_arrays

__all__ = ["Model", "bundled_models", "learnt_network", "load"]

FORMAT = 2
ABOUT = "model.json"
#: Maximum size of a model's files; ours have a thousandth of that.
_MOST_JSON_BYTES, _MOST_NETWORK_BYTES = 64 << 20, 512 << 20
_LONGEST_MS = 1e9
_LONGEST_NAME = 100
#: Inputs that tell in which windows a flow was sending.
_ARRIVALS = ("in_bytes", "in_packets", "throughput_bytes")
#: Number of windows of any length that go through the network at a time.
_AT_ONCE = 64


def bundled_models() -> dict[str, Path]:
    """Names and folders of the bundled models.

    See Also
    --------
    load : open one

    Examples
    --------
    >>> "cca" in cct.identify.bundled_models()
    True
    """
    here = Path(__file__).parents[1] / "bundled_models"  # in a wheel
    root = here if here.is_dir() else Path(__file__).parents[2] / "data" / "models"
    return {path.parent.name: path.parent for path in sorted(root.glob(f"*/{ABOUT}"))}


def load(name: str | os.PathLike[str]) -> Model:
    """Open a model.

    Parameters
    ----------
    name : str or path
        One of :func:`bundled_models`, or a folder that :func:`save_model` wrote.

    Returns
    -------
    Model

    Raises
    ------
    ParameterError
        There is no such model.
    SchemaError
        A file is missing, damaged, or has another format version.

    See Also
    --------
    bundled_models : names to load
    classify_flows : name the flows of a capture
    cctoolkit.identify.saving.save_models : write a model

    Examples
    --------
    >>> model = cct.identify.load("cca")
    >>> "cubic" in model.classes_
    True
    """
    known = bundled_models()
    folder = Path(name)  # a folder takes precedence over a bundled model
    if not (folder / ABOUT).is_file():
        folder = known.get(str(name), folder)
    if not (folder / ABOUT).is_file():
        raise ParameterError(
            f"model: {name} is neither a folder with a {ABOUT} nor one of {', '.join(known) or 'no bundled models'}"
        )
    return Model(folder)


def learnt_network(
    name: str | os.PathLike[str], classifier: str, slot_ms: float | None
) -> tuple[bytes, list[str]]:
    """The network of a saved model to continue training from, as ONNX, and the classes that it learnt.

    Parameters
    ----------
    name : str or path
        As for :func:`load`.
    classifier : str
        The kind of classifier that it must be.
    slot_ms : float, optional
        Slot length that it must take, in ms.
    """
    model = load(name)
    if model.about.get("classifier") != classifier:
        raise ParameterError(
            f"{model.name}: is a {model.about.get('classifier')}; training can continue only from a {classifier}"
        )
    if slot_ms not in (None, model.slot_ms):
        raise ParameterError(f"{model.name}: takes slots of {model.slot_ms:g} ms, not {slot_ms:g}")
    return model._content(model._networks[0]), model._learnt.tolist()


def _names(where: str, found: Any) -> tuple[str, ...]:
    """Check names in a list (or the keys of a mapping): distinct, printable and short.

    Raises
    ------
    ValueError
        They are not.
    """
    if not isinstance(found, list | dict) or not found:
        raise ValueError(f"{where}: expected a list of names")
    for name in found:
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
            raise ValueError(
                f"{where}: {str(name)[:_LONGEST_NAME]!r} is not a name of 1 to {_LONGEST_NAME} printable characters"
            )
    if len(set(found)) < len(found):
        raise ValueError(f"{where}: a name occurs twice")
    return tuple(found)


def _by_length(where: str, found: Any, **limits: float) -> np.ndarray:
    """Rows of slots and a value within limits; a single number stands for all lengths."""
    if not isinstance(found, list):
        found = [[1, found]]
    table = np.array([[number(where, value) for value in row] for row in found], float).reshape(-1, 2)
    if not ((table[:, 0] > 0).all() and (np.diff(table[:, 0]) > 0).all()):
        raise ValueError(f"{where}: slots must increase")
    for value in table[:, 1].tolist():
        number(where, value, **limits)
    return table


class Model:
    """A trained classifier, read from a folder.

    Attributes
    ----------
    name : str
    folder : Path
    about : dict
        ``model.json``.
    classes_ : array of str
    inputs : tuple of str
        Inputs per slot.
    windows_ms : tuple of float
        Window lengths that it was trained on; with `any_length`, lengths in between work too.
    any_length : bool
    alike : dict of str to tuple of str
        Names of classes that cover several congestion controls that behave alike; those are not in ``classes_``.

    See Also
    --------
    load : open a model
    classify_flows : name the flows of a capture

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> model = cct.identify.load("cca")
    >>> model.predict(cct.compute_slots(run.ingress, run.egress))[["flow_id", "cca"]]
       flow_id    cca
    0        0  cubic
    1        1    bbr
    """

    def __init__(self, folder: Path) -> None:
        try:
            self.about = read_json(folder / ABOUT, "a valid model description", most_bytes=_MOST_JSON_BYTES)
            self._made_by = shown(self.about.get("cctoolkit", "unknown")).strip("'")
            version = self.about["format"]
            if version != FORMAT:
                raise SchemaError(
                    f"{folder}: a model of format {shown(version)}, this package reads {FORMAT}: train it again, or "
                    f"take the version of cctoolkit that made it ({self._made_by})"
                )
            self.name = printable(folder.name)
            self._learnt = np.array(_names("classes", self.about["classes"]), dtype=object)
            self.inputs: tuple[str, ...] = _names("inputs", self.about["inputs"])
            if unknown := set(self.inputs) - set(SLOTS):
                raise ValueError(f"inputs: no column of slots is called {min(unknown)!r}")
            self.slot_ms: float = number("slot_ms", self.about["slot_ms"], above=0, high=_LONGEST_MS)
            self.windows_ms: tuple[float, ...] = tuple(
                float(number("windows_ms", ms, above=0, high=_LONGEST_MS)) for ms in self.about["windows_ms"]
            )
            if self.about["preparation"] not in PREPARATIONS:
                raise ValueError(f"preparation: {shown(self.about['preparation'])} is not known")
            self._prepare = PREPARATIONS[self.about["preparation"]]
            any_length = self.about["preparation"] in ANY_LENGTH
            self._networks = [
                {
                    "slots": None if network["slots"] is None else whole("slots", network["slots"], low=1),
                    # in the folder, whatever model.json says
                    "file": Path(*_names("file", [network["file"]])).name,
                    "sha256": network["sha256"],
                }
                for network in self.about["networks"]
            ]
            if any((network["slots"] is None) != any_length for network in self._networks):
                raise ValueError(f"slots: not those of the preparation {self.about['preparation']}")
            if any_length and self.inputs != VIEW_INPUTS:
                raise ValueError(f"inputs: must be {', '.join(VIEW_INPUTS)}")
            if not self._networks or not self.windows_ms:
                raise ValueError("no network or no window length")
            # 0 divides by zero, and less would turn the most probable class into the least probable one
            self._temperature = _by_length("temperature", self.about["temperature"], above=0)
            self._thresholds = _by_length("least", self.about["least"], low=0, high=1)
            (self._other,) = _names("other", [self.about["other"]])
            alike = self.about.get("alike", {})
            self.alike = {
                name: _names(f"alike: {name}", alike[name])
                for name in (_names("alike", alike) if alike else ())
            }
            if not {cca for members in self.alike.values() for cca in members} <= set(self._learnt):
                raise ValueError("alike: must be classes")
            self.classes_ = possible_answers(self._learnt, self.alike)
        except SchemaError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as err:
            why = f"{err} is missing" if isinstance(err, KeyError) else first_line(err)
            raise SchemaError(f"{folder / ABOUT}: not a valid model description ({why})") from None
        self._of_summaries = self.about["preparation"] == "summaries"
        self.any_length = any(network["slots"] is None for network in self._networks)
        self.folder = folder
        self._sessions: dict[str, Any] = {}

    def __repr__(self) -> str:
        lengths = ", ".join(f"{ms:g}" for ms in self.windows_ms)
        return f"<Model {self.name}: {', '.join(self.classes_)} from {', '.join(self.inputs)}; windows of {lengths} ms>"

    def _network(self, slots: int) -> dict[str, Any]:
        """The entry of ``model.json`` for the network for this many slots."""
        for network in self._networks:
            if network["slots"] in (None, slots):
                return network
        there = ", ".join(f"{n['slots'] * self.slot_ms:g}" for n in self._networks)
        raise ParameterError(
            f"windows of {slots * self.slot_ms:g} ms: {self.name} has networks for {there} ms"
        )

    def _session(self, slots: int) -> Any:
        """The network for this many slots; its file is verified before it is read."""
        import onnxruntime

        network = self._network(slots)
        file = network["file"]
        if file not in self._sessions:
            path, content = self.folder / file, self._content(network)
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            options.intra_op_num_threads = 1  # networks are small: threads cost more than they gain
            try:
                self._sessions[file] = onnxruntime.InferenceSession(
                    content, options, providers=["CPUExecutionProvider"]
                )
            except Exception as err:  # onnxruntime's exceptions have no common base
                raise SchemaError(
                    f"{path}: onnxruntime cannot read it ({type(err).__name__}); get the model again"
                ) from None
            wanted = [values.shape[1:] for values in self._sessions[file].get_inputs()]
            made: list[list[Any]]
            made = [[len(BIN_CHANNELS), f"{view}_bins" if i else BINS] for i, view in enumerate(VIEWS)]
            if self._of_summaries:
                made = [[summaries(np.zeros((1, 1, len(VIEW_INPUTS)), np.float32)).shape[1]]]
            elif not self.any_length:
                made = [[len(self.inputs), slots]]
            if wanted != made:
                raise SchemaError(
                    f"{path}: takes {wanted} values per window, this package makes {made}: the model is from another "
                    f"version ({self._made_by}); train it again"
                )
        return self._sessions[file]

    def _content(self, network: dict[str, Any]) -> bytes:
        """The file of a network, verified."""
        path = self.folder / network["file"]
        if not path.exists():
            raise SchemaError(f"{path}: file is missing; the model is incomplete")
        content = read_file(path, _MOST_NETWORK_BYTES)
        if hashlib.sha256(content).hexdigest() != network["sha256"]:
            raise SchemaError(f"{path}: SHA-256 differs from {ABOUT}; get the model again")
        return content

    def _run(self, slots: int, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Scores of the network for this many slots: windows x classes that it learnt."""
        session, windows = self._session(slots), len(next(iter(inputs.values())))
        path = self.folder / self._network(slots)["file"]
        try:
            scores = session.run(None, inputs)[0]
        except Exception as err:  # onnxruntime's exceptions have no common base
            raise SchemaError(
                f"{path}: the network fails ({type(err).__name__}); get the model again"
            ) from None
        if np.ndim(scores) != 2 or len(scores) != windows or scores.shape[1] < len(self._learnt):
            raise SchemaError(
                f"{path}: the network's output has the shape {np.shape(scores)}, expected "
                f"{windows} windows x {len(self._learnt)} classes; get the model again"
            )
        return np.asarray(scores[:, : len(self._learnt)])

    def _checked(self, X: Windows | np.ndarray) -> np.ndarray:
        if isinstance(X, Windows):
            views = self.any_length and X.inputs == VIEW_CHANNELS
            if X.inputs != self.inputs and not views:
                there = "views" if X.inputs == VIEW_CHANNELS else ", ".join(X.inputs)
                raise ParameterError(
                    f"windows of {there}: {self.name} was trained on {', '.join(self.inputs)}"
                )
            if X.slot_ms != self.slot_ms:
                raise ParameterError(
                    f"windows of slots of {X.slot_ms:g} ms: {self.name} was trained on slots of {self.slot_ms:g} ms"
                )
            X = X.X.astype(np.float32, copy=False)
            if views:
                strange = ~np.isfinite(X).all(axis=(1, 2))
                if strange.any():
                    raise ParameterError(f"X: the views of window {int(np.argmax(strange))} are not finite")
                return X
        X = floats("X", X).astype(np.float32)
        if X.ndim != 3 or X.shape[2] != len(self.inputs):
            raise ParameterError(
                f"X: shape {X.shape} is not windows x slots x {len(self.inputs)} ({', '.join(self.inputs)})"
            )
        unseen = np.isnan(X[:, :, 0] if self.any_length else X).any(
            axis=tuple(range(1, 2 if self.any_length else 3))
        )
        if unseen.any():
            raise ParameterError(
                f"X: window {int(np.flatnonzero(unseen)[0])} has values that were not observed (NaN) of "
                f"{self.inputs[0] if self.any_length else ', '.join(self.inputs)}"
            )
        shortest = min(self.windows_ms)
        if self.any_length and X.shape[1] * self.slot_ms < shortest:
            raise ParameterError(
                f"windows of {X.shape[1] * self.slot_ms:g} ms: "
                f"the shortest {self.name} was trained on are {shortest:g} ms"
            )
        return X

    def predict_proba(self, X: Windows | np.ndarray) -> np.ndarray:
        """Class probabilities of windows.

        Parameters
        ----------
        X : Windows or array, windows x slots x ``inputs``
            Raw counts: bytes and packets per slot. A model for any length also takes Windows of views.

        Returns
        -------
        array, windows x ``classes_``

        Raises
        ------
        ParameterError
            Inputs or slots differ from the model's, windows are too short or there is no network for their length, or
            values are NaN.
        """
        counted = self._checked(X)
        if not len(counted):
            return np.empty((0, len(self.classes_)), np.float32)
        temperature = by_length(self._temperature, slots_of(counted), 1.0)
        if self.any_length and not self._of_summaries:
            return by_pieces(counted, self._probabilities, temperature)
        return self._probabilities(counted, temperature)

    def _probabilities(self, X: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        return together(softmax(self._scores(X) / np.reshape(temperature, (-1, 1))), self._learnt, self.alike)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        """Scores of the network, or of the trees, for raw windows or views."""
        if not self.any_length or self._of_summaries:
            return self._run(X.shape[1], {"X": self._prepare(X)})
        scores = np.empty((len(X), len(self._learnt)), np.float32)
        made = are_views(X)
        # group windows with similar RTTs: fewer bins, more to cut off
        length = X[:, :, -len(BIN_CHANNELS)].sum(axis=1) if made else round_trip_slots(X)
        order = np.argsort(length, kind="stable")
        for rows in np.array_split(order, -(-len(order) // _AT_ONCE)):
            parts = by_view(X.transpose(0, 2, 1), rows) if made else cut_views(X[rows])
            scores[rows] = self._run(0, dict(zip(VIEWS, parts, strict=True)))
        return scores

    def _named(self, probabilities: np.ndarray, slots: int | np.ndarray) -> np.ndarray:
        return named(probabilities, self.classes_, self._other, by_length(self._thresholds, slots, 0.0))

    def answer(self, X: Windows | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Name windows and say how probable the names are.

        Parameters
        ----------
        X : Windows or array
            As for :meth:`predict_proba`.

        Returns
        -------
        names, probabilities : array of str, array of float
            What :meth:`predict` answers, and the probability of the most probable name, also of ``"unknown"`` windows.
        """
        probabilities = self.predict_proba(X)
        slots = slots_of(X.X if isinstance(X, Windows) else np.asarray(X))
        return self._named(probabilities, slots), self._likely(probabilities)

    def _likely(self, probabilities: np.ndarray) -> np.ndarray:
        """The probability of the most probable name."""
        return probabilities[:, self.classes_ != self._other].max(axis=1)

    def predict(self, X: Any) -> Any:
        """Name windows or flows.

        Parameters
        ----------
        X : Windows or array
            As for :meth:`predict_proba`.
        X : DataFrame
            A slots table: :meth:`predict_slots`.

        Returns
        -------
        array of str, or DataFrame
            ``"unknown"`` if no class is probable enough.
        """
        if isinstance(X, pd.DataFrame):
            return self.predict_slots(X)
        return self.answer(X)[0]

    def predict_slots(self, slots: pd.DataFrame, window_ms: float | None = None) -> pd.DataFrame:
        """Name the flows of a slots table.

        Parameters
        ----------
        slots : DataFrame
            From :func:`cctoolkit.compute_slots`, with slots as long as the model's, and ``attrs["slot_ms"]``.
        window_ms : float, optional
            Window length. By default the longest training length that the flow fills or, for a model of any length,
            the longest number of whole seconds between them.

        Returns
        -------
        DataFrame
            One row per flow: ``flow_id``, ``cca`` (``"unknown"`` if nothing is probable enough or the flow is not
            limited here, null if it has no full window), ``probability`` (of the most probable named class; null if
            the flow is not limited here), ``limited_by`` (a name in ``cctoolkit.analysis.limits.LIMITS``),
            ``windows`` (number of windows used), ``window_ms``, ``feature_set`` (the inputs observed), ``model``.

        Raises
        ------
        ParameterError
            The slot length is not known or differs from the model's, or the model has no network for the window length.
        SchemaError
            The table lacks a column, or a flow lacks a slot between others.

        Notes
        -----
        Windows are consecutive and do not overlap; those without packets are left out. Their log-probabilities are
        averaged.

        First, :func:`cctoolkit.analysis.limits.flow_limits` decides from all slots of a flow what limits it. Only
        flows limited by the bottleneck, and those for which this is unknown, are named. Without the columns needed, it
        is unknown for all flows.
        """
        if not isinstance(slots, pd.DataFrame):
            raise SchemaError(f"slots: expected a DataFrame, found {type(slots).__name__}")
        slot_ms = slots.attrs.get("slot_ms")
        if slot_ms is None:
            raise ParameterError(
                "slots: their length in ms, attrs['slot_ms'], was lost; set it as cctoolkit.compute_slots does"
            )
        if slot_ms != self.slot_ms:
            raise ParameterError(
                f"slots of {slot_ms:g} ms: {self.name} was trained on slots of {self.slot_ms:g} ms"
            )
        columns = self.inputs
        if not set(columns) & set(_ARRIVALS):  # of CBIQ alone
            columns = (*columns, *arrivals(slots))
        sent = next(i for i, name in enumerate(columns) if name in _ARRIVALS)
        limits = _limits(slots)
        rows: list[dict[str, Any]] = []
        by_length: dict[int, list[tuple[int, np.ndarray]]] = {}
        for flow_id, _, observed in slot_arrays(slots, columns):
            values = observed[:, : len(self.inputs)]
            row = {
                "flow_id": flow_id, "cca": None, "probability": np.nan,
                "limited_by": limits.get(flow_id, "unknown"), "windows": 0, "window_ms": np.nan,
                "feature_set": self._feature_set(values), "model": self.name,
            }  # fmt: skip
            length = self._length(len(values), window_ms)
            if length and row["feature_set"]:
                row["window_ms"] = length * self.slot_ms
                whole_windows = len(values) // length * length
                stretch = values[:whole_windows].reshape(-1, length, values.shape[1])
                came = observed[:whole_windows, sent].reshape(-1, length)
                is_complete = ~np.isnan(came).any(axis=1) & (np.nansum(came, axis=1) > 0)
                if not self.any_length:
                    is_complete &= ~np.isnan(stretch).any(axis=(1, 2))
                row["windows"] = int(is_complete.sum())
                if row["windows"] and row["limited_by"] not in NAMEABLE:
                    row["cca"] = UNKNOWN
                elif row["windows"]:
                    by_length.setdefault(length, []).append((len(rows), stretch[is_complete]))
            rows.append(row)
        for length, flows in by_length.items():
            probabilities = self.predict_proba(np.concatenate([stretch for _, stretch in flows]))
            ends = np.cumsum([len(stretch) for _, stretch in flows])
            for (at, _), part in zip(flows, np.split(probabilities, ends[:-1]), strict=True):
                together = np.exp(np.log(np.maximum(part, 1e-12)).mean(axis=0, keepdims=True))
                together /= together.sum()
                rows[at]["cca"] = self._named(together, length)[0]
                rows[at]["probability"] = float(self._likely(together)[0])
        names = [
            "flow_id",
            "cca",
            "probability",
            "limited_by",
            "windows",
            "window_ms",
            "feature_set",
            "model",
        ]
        return pd.DataFrame(rows, columns=names)

    def _length(self, slots: int, window_ms: float | None) -> int:
        if window_ms is not None:
            from .windows import window_slots

            length = window_slots(window_ms, self.slot_ms)
            return length if length <= slots else 0
        lengths = [round(ms / self.slot_ms) for ms in self.windows_ms]
        fitting = max((length for length in lengths if length <= slots), default=0)
        if self.any_length and fitting:  # and in whole pieces between them
            fitting = max(fitting, min(slots // SHORTEST * SHORTEST, max(lengths)))
        return fitting

    def _feature_set(self, values: np.ndarray) -> str:
        """The inputs observed for a flow, or None if they are not enough."""
        seen = {
            name for name, column in zip(self.inputs, values.T, strict=True) if not np.isnan(column).all()
        }
        if self.inputs == VIEW_INPUTS:
            if "in_bytes" not in seen:
                return ""
            queue = "cbiq+" if {"cbiq_bytes", "out_bytes"} <= seen else ""
            flight = "bytes_in_flight+" if "bytes_in_flight" in seen else ""
            return f"{queue}{flight}throughput"
        return (
            "+".join(name.removesuffix("_bytes") for name in self.inputs) if seen == set(self.inputs) else ""
        )


def _limits(slots: pd.DataFrame) -> dict[int, str]:
    """By flow, what limits it; empty if the table lacks the columns needed."""
    if not {"in_bytes", "in_seq", "bytes_in_flight"} <= set(slots):
        return {}
    found = flow_limits(slots)
    return dict(zip(found["flow_id"].tolist(), found["limited_by"], strict=True))
