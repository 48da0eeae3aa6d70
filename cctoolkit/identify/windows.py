"""Windows: labelled stretches of a flow's slots, cut at any point of the flow."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._support import arguments
from ..analysis.segments import LENGTHS, USUAL_SEGMENT_BYTES, packet_lengths, segment_bytes
from ..analysis.slot_rows import consecutive
from ..errors import ParameterError, SchemaError
from .behaviour import behaviours
from .dataset import Recording, SlotDataset
from .inputs import VIEW_CHANNELS, VIEW_INPUTS, scale_view

__all__ = [
    "ARRIVALS",
    "CROSSOVER_BANDS",
    "FEATURE_SETS",
    "INPUTS",
    "Windows",
    "arrivals",
    "crossover_bands",
    "crossover_ratio",
    "cut_windows",
    "joined",
    "slot_arrays",
    "window_slots",
    "windows_at",
]

#: Inputs of classifiers per slot: columns of the slots table.
INPUTS = (
    "cbiq_bytes",
    "throughput_bytes",
    "in_bytes",
    "out_bytes",
    "in_packets",
    "bytes_in_flight",
    "drops_estimate",
    "max_source_gap",  # the paper's maximal time gaps (section III-A); unknown for slots without data, and then 0
    "max_arrival_gap_ns",
)
#: Inputs in bytes, whose segments may have another length than those of training.
_BYTES = ("cbiq_bytes", "throughput_bytes", "in_bytes", "out_bytes", "bytes_in_flight")
#: The (logarithmic) difference from USUAL_SEGMENT_BYTES that does not matter.
_SAME_SEGMENTS = 0.05
#: Columns that tell whether data arrived in a slot; sampled packets (section III-C of the paper) have only the second.
ARRIVALS = ("in_bytes", "throughput_bytes")
#: Named feature sets, and what they need.
FEATURE_SETS: dict[str, tuple[str, ...]] = {
    "cbiq+throughput": ("cbiq_bytes", "throughput_bytes"),  # Dragonfly: two taps, one way, O(1) a slot
    "cbiq": ("cbiq_bytes",),
    "throughput": ("in_packets",),  # DeePCCI: one tap, one way
    "bytes_in_flight+throughput": ("bytes_in_flight", "in_bytes"),  # one tap, both ways
}


def window_slots(window_ms: float, slot_ms: float = 1.0) -> int:
    """Number of slots in a window.

    Raises
    ------
    ParameterError
        It is not a whole, positive number of slots.
    """
    slots = round(window_ms / slot_ms) if np.isfinite(window_ms) else 0
    if slots < 1 or abs(slots * slot_ms - window_ms) > 1e-9 * window_ms:
        raise ParameterError(
            f"window_ms: {window_ms:g} ms must be a multiple of the slot length, {slot_ms:g} ms"
        )
    return slots


@dataclass
class Windows:
    """Labelled windows of one length.

    Attributes
    ----------
    X : float32 array, windows x slots x inputs
        Raw counts (bytes, packets); classifiers do their own normalisation. NaN if not observed.
    y : array of str
        Congestion control.
    table : DataFrame
        One row per window: ``run``, ``flow_id``, ``cca``, ``window_ms``, ``first_slot``, and other columns about the
        flow and the run.
    inputs : tuple of str
        Names along the last axis of `X`.
    slot_ms : float

    See Also
    --------
    cut_windows : make them
    CCAClassifier : train on them

    Examples
    --------
    >>> recordings = [cct.identify.record(cct.example(name)) for name in ("cubic", "bbr")]
    >>> windows = cct.identify.cut_windows(recordings, 500, "cbiq+throughput", per_flow=8)
    >>> windows.X.shape, windows.inputs
    ((16, 500, 2), ('cbiq_bytes', 'throughput_bytes'))
    >>> train, test = windows.split(test_share=0.5)
    >>> set(train.groups) & set(test.groups)
    set()
    """

    X: np.ndarray
    y: np.ndarray
    table: pd.DataFrame
    inputs: tuple[str, ...]
    slot_ms: float = 1.0

    def __post_init__(self) -> None:
        for name, array in (("X", self.X), ("y", self.y)):
            if not isinstance(array, np.ndarray) or array.dtype.kind not in (
                "biuf" if name == "X" else "OUbiufT"
            ):
                found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
                raise ParameterError(
                    f"{name}: expected an array of {'numbers' if name == 'X' else 'names'}, found {found}"
                )
        if not isinstance(self.table, pd.DataFrame) or self.y.ndim != 1:
            raise ParameterError("table, y: expected a DataFrame and names in one dimension")
        if self.X.ndim != 3 or self.X.shape[2] != len(self.inputs):
            raise ParameterError(
                f"X: shape {self.X.shape} is not windows x slots x {len(self.inputs)} inputs ({', '.join(self.inputs)})"
            )
        if len(self.X) != len(self.y) or len(self.X) != len(self.table):
            raise ParameterError(
                f"X, y, table: {len(self.X)}, {len(self.y)} and {len(self.table)} windows, not the same number"
            )

    def __len__(self) -> int:
        return len(self.X)

    @property
    def window_ms(self) -> float:
        """Length."""
        return self.X.shape[1] * self.slot_ms

    @property
    def groups(self) -> np.ndarray:
        """The run of each window, for scikit-learn's group splitters."""
        return self.table["run"].to_numpy()

    def take(self, which: Any) -> Windows:
        """The windows selected by a mask or indices.

        Raises
        ------
        ParameterError
            `which` is neither, or leads outside.
        """
        if not isinstance(which, slice):
            which = np.asarray(which)
            which = which.astype(np.intp) if which.size == 0 else which  # an empty list is one of floats
        try:
            rows = np.arange(len(self))[which]
        except (IndexError, TypeError, ValueError):
            raise ParameterError(f"which: expected a mask or indices of {len(self)} windows") from None
        rows = np.atleast_1d(rows)
        if rows.ndim != 1:
            raise ParameterError(f"which: expected a mask or indices of {len(self)} windows")
        return dataclasses.replace(
            self, X=self.X[rows], y=self.y[rows], table=self.table.iloc[rows].reset_index(drop=True)
        )

    def of(self, **values: Any) -> Windows:
        """The windows whose table columns have these values."""
        mask = np.ones(len(self), np.bool_)
        for column, value in values.items():
            mask &= (self.table[column] == value).to_numpy()
        return self.take(mask)

    def split(
        self, test_share: float = 0.3, seed: int = 0, *, by: str | Sequence[str] = "run"
    ) -> tuple[Windows, Windows]:
        """Split by run, so that training sees nothing of a test run.

        Parameters
        ----------
        test_share : float
            Share of the groups (not of the windows) to test on; both sides get at least one.
        seed : int
        by : str or sequence of str
            Columns of the table that define a group: ``"run"``; a setting (``"rtt_ms"``), to test on settings never
            trained on; or ``("run", "flow_id")``, the paper's split, in which flows of one run may be on both sides.

        Returns
        -------
        Windows, Windows
            Training and testing.

        Raises
        ------
        ParameterError
            There are fewer than two groups, no such column, or the share is not between 0 and 1.
        """
        from sklearn.model_selection import GroupShuffleSplit

        columns = [by] if isinstance(by, str) else list(by)
        for column in columns:
            if column not in self.table:
                raise ParameterError(f"by: {column!r} must be one of {', '.join(map(str, self.table))}")
        group = self.table.groupby(columns, sort=False).ngroup().to_numpy()
        if len(self) == 0 or group.max() < 1:
            raise ParameterError(
                f"by: windows of {int(group.max(initial=-1)) + 1} {'/'.join(columns)} cannot be split"
            )
        arguments.number("test_share", test_share, above=0, high=1)
        groups = int(group.max()) + 1
        testing = min(max(math.ceil(test_share * groups), 1), groups - 1)
        splitter = GroupShuffleSplit(1, test_size=testing, random_state=seed)
        train, test = next(splitter.split(self.X, self.y, group))
        return self.take(train), self.take(test)

    def save(self, path: str | os.PathLike[str], provenance: dict[str, Any] | None = None) -> None:
        """Write as Parquet, atomically: one row per window, its values in one list."""
        import json

        import pyarrow as pa

        from .._support import parquet

        _, slots, inputs = self.X.shape
        flat = pa.array(np.ascontiguousarray(self.X, np.float32).reshape(-1))
        table = parquet.arrow_table(self.table, path)
        table = table.append_column("X", pa.FixedSizeListArray.from_arrays(flat, slots * inputs))
        about = {"inputs": self.inputs, "slots": slots, "slot_ms": self.slot_ms, "version": _VERSION}
        parquet.write(table, path, provenance or {}, {_KEY: json.dumps(about).encode()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Windows:
        """Read what :meth:`save` wrote.

        Raises
        ------
        SchemaError
            The file has no windows, or another version.
        """
        from .._support import parquet

        table = parquet.read(path)
        about = parquet.about(table.schema.metadata, _KEY)
        if about is None:
            raise SchemaError(f"{path}: there are no windows")
        if about.get("version") != _VERSION:
            raise SchemaError(
                f"{path}: windows have version {about.get('version')}, expected {_VERSION}; cut them again"
            )
        try:
            column = table.column("X").combine_chunks()
            X = np.asarray(column.flatten(), np.float32)
            X = X.reshape(len(table), int(about["slots"]), len(about["inputs"]))
            inputs, slot_ms = tuple(map(str, about["inputs"])), float(about["slot_ms"])
            frame = parquet.frame(table.drop_columns(["X"]), path)
            return cls(X, frame["cca"].to_numpy(object), frame, inputs, slot_ms)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as err:
            raise SchemaError(f"{path}: damaged windows ({type(err).__name__}: {err})") from None


_KEY = b"cctoolkit.windows"
_VERSION = 1


def slot_arrays(slots: pd.DataFrame, inputs: Sequence[str]) -> Iterator[tuple[int, int, np.ndarray]]:
    """The slots table as one array per flow.

    Yields
    ------
    flow_id, first slot, float32 array of slots x inputs
        NaN for null. Bytes are scaled to segments of 1448 bytes, if the table has ``in_packets``:
        congestion controls count in segments, whatever their size. Slots at the end in which an input cannot be known
        yet (CBIQ needs a later packet) are left out, unless that input is never known (one tap).

    Raises
    ------
    SchemaError
        The table lacks an input, or a flow lacks a slot between others.
    """
    slots = consecutive(slots, inputs)
    values = np.empty((len(slots), len(inputs)), np.float32)
    for i, name in enumerate(inputs):
        values[:, i] = slots[name].to_numpy(np.float32, na_value=np.nan)
    flow, slot = (slots[name].to_numpy(np.int64) for name in ("flow_id", "slot"))
    bounds = [*np.flatnonzero(np.diff(flow, prepend=-1)), len(flow)] if len(flow) else []
    in_bytes = [i for i, name in enumerate(inputs) if name in _BYTES]
    lengths = packet_lengths(slots)
    for begin, end in itertools.pairwise(bounds):
        part = values[begin:end]
        part[:, in_bytes] *= _to_segments(lengths[begin:end])
        missing_here = np.isnan(part)
        known = np.flatnonzero(~missing_here[:, ~missing_here.all(axis=0)].any(axis=1))
        stop = known[-1] + 1 if len(known) and not missing_here.all() else 0
        yield int(flow[begin]), int(slot[begin]), part[:stop]


def _to_segments(lengths: np.ndarray) -> float:
    """The factor for the bytes of a flow: 1 if its segments are about as long as those of training."""
    scale = USUAL_SEGMENT_BYTES / segment_bytes(lengths)
    return scale if abs(math.log(scale)) > _SAME_SEGMENTS else 1.0


def windows_at(
    arrays: Iterable[tuple[int, int, np.ndarray]], windows: pd.DataFrame, slots: int
) -> np.ndarray:
    """The values in known windows of a recording: windows x slots x inputs.

    Parameters
    ----------
    arrays : iterable of (flow_id, first slot, array)
        From :func:`slot_arrays`, or like it.
    windows : DataFrame
        ``flow_id`` and ``first_slot``, as :func:`cut_windows` has them.
    slots : int
        Length of the windows.
    """
    of_flow = {flow: (first, values) for flow, first, values in arrays}
    cut = []
    for flow, begin in zip(windows["flow_id"], windows["first_slot"], strict=True):
        first, values = of_flow[flow]
        cut.append(values[begin - first :][:slots])
    return np.stack(cut)


def joined(parts: Sequence[Windows]) -> Windows:
    """Join windows with the same inputs and length, or views of any length."""
    return dataclasses.replace(
        parts[0],
        X=np.concatenate([part.X for part in parts]),
        y=np.concatenate([part.y for part in parts]),
        table=pd.concat([part.table for part in parts], ignore_index=True),
    )


def cut_windows(
    recordings: SlotDataset | Iterable[Recording],
    window_ms: float | Sequence[float],
    inputs: str | Sequence[str] = "cbiq+throughput",
    *,
    per_flow: int = 1,
    seed: int = 0,
    ccas: Sequence[str] | None = None,
    behaviour: bool = True,
) -> Windows:
    """Cut windows at random positions of every labelled flow.

    Parameters
    ----------
    recordings : iterable of Recording
        A :class:`~cctoolkit.identify.SlotDataset`, a part of one, or recordings in memory.
    window_ms : float, or sequence of float with ``inputs="views"``
    inputs : str or sequence of str
        A name in :data:`FEATURE_SETS`, or names in :data:`INPUTS`; or ``"views"``: each window as
        :func:`~.inputs.scale_view`, for :class:`~.classifiers.CCAClassifier`; its size does not depend on the length.
    per_flow : int
        Windows per flow and length (the paper: one); they may overlap. Flows that are too short have none.
    seed : int
        Seed for the positions. A flow's windows depend on the seed, its run's name, its number, the length, and how
        long `inputs` are known.
    ccas : sequence of str, optional
        Only flows of these congestion controls.
    behaviour : bool
        Add ``as_reno`` and ``as_cubic`` to the table, if the recordings have the senders' states. Half the time of
        cutting.

    Returns
    -------
    Windows
        Windows without data (:data:`ARRIVALS`) are left out, whatever `inputs` are. Windows with data whose inputs are
        all 0 are kept, such as CBIQ with an empty queue, or CBIQ and throughput while only lost data are
        retransmitted: not building a queue is informative, a classifier in use meets such windows, feature sets are
        compared on the same windows, and the paper leaves none out (section III-E). The table also has ``window_ms``
        and, with `behaviour`, ``as_reno`` and ``as_cubic``: whether Reno's and CUBIC's windows would have moved as the
        sender's did (:mod:`~cctoolkit.identify.behaviour`).

    Raises
    ------
    ParameterError
        No flow is long enough.
    SchemaError
        An input, or every column of :data:`ARRIVALS`, is missing from the slots tables.

    See Also
    --------
    Windows : the result
    record : a recording to cut
    CCAClassifier : train on windows

    Examples
    --------
    >>> recordings = [cct.identify.record(cct.example(name)) for name in ("cubic", "bbr")]
    >>> windows = cct.identify.cut_windows(recordings, 500, "cbiq+throughput", per_flow=8)
    >>> windows.X.shape
    (16, 500, 2)
    """
    views = isinstance(inputs, str) and inputs == "views"
    names = VIEW_INPUTS if views else _names(inputs)
    lengths_ms = [float(ms) for ms in np.atleast_1d(window_ms)]
    if len(lengths_ms) > 1 and not views:
        raise ParameterError('window_ms: several lengths need inputs="views"')
    if isinstance(recordings, SlotDataset):
        recordings = recordings.recordings((*names, *ARRIVALS, *LENGTHS))
    arrays: list[np.ndarray] = []
    rows: list[dict[str, Any]] = []
    slot_ms, flows = 1.0, 0
    for recording in recordings:
        slot_ms = recording.slot_ms
        known = arguments.table("flows", recording.flows, ["flow_id"], ["cca"], error=SchemaError)
        known = known.loc[:, ~known.columns.duplicated()]
        labels: dict[int, dict[str, Any]] = {
            row["flow_id"]: {str(k): v for k, v in row.items()} for row in known.to_dict("records")
        }
        states = recording.states if behaviour else None
        moves = {} if states is None else behaviours(states, slot_ms)
        both = zip(
            slot_arrays(recording.slots, names),
            slot_arrays(recording.slots, arrivals(recording.slots)),
            strict=True,
        )
        for (flow_id, first_slot, values), (_, _, came) in both:
            label = labels.get(flow_id)
            if label is None or (ccas is not None and label["cca"] not in ccas):
                continue
            flows += 1
            moved = moves.get(flow_id)
            for ms in lengths_ms:
                length = window_slots(ms, slot_ms)
                rng = np.random.default_rng([seed, *recording.name.encode(), flow_id, length])
                room = len(values) - length + 1
                for start in rng.integers(room, size=per_flow) if room > 0 else ():
                    if not np.nansum(came[start : start + length]):
                        continue
                    window = values[start : start + length]
                    arrays.append(scale_view(window) if views else window.copy())
                    place: dict[str, Any] = {"window_ms": ms, "first_slot": first_slot + int(start)}
                    if moved is not None:
                        place |= moved.alike(label["cca"], place["first_slot"], length)
                    rows.append({"run": recording.name, **label, **place})
    if not rows:
        lengths = ", ".join(f"{ms:g}" for ms in lengths_ms)
        raise ParameterError(
            f"window_ms: none of {flows} flows has {lengths} ms of slots with packets "
            f"and with {', '.join(names)}"
        )
    table = pd.DataFrame(rows)
    inputs_now = VIEW_CHANNELS if views else names
    return Windows(np.stack(arrays), table["cca"].to_numpy(object), table, inputs_now, slot_ms)


def _names(inputs: str | Sequence[str]) -> tuple[str, ...]:
    names = FEATURE_SETS.get(inputs, (inputs,)) if isinstance(inputs, str) else tuple(inputs)
    for name in names:
        if name not in INPUTS:
            raise ParameterError(
                f"inputs: {name!r} is neither a feature set ({', '.join(FEATURE_SETS)}, views) "
                f"nor one of {', '.join(INPUTS)}"
            )
    return names


def arrivals(slots: pd.DataFrame) -> tuple[str]:
    """The first column of ARRIVALS that was observed."""
    if not isinstance(slots, pd.DataFrame):
        raise SchemaError(f"slots: expected a DataFrame, found {type(slots).__name__}")
    there = [name for name in ARRIVALS if name in slots]
    if not there:
        raise SchemaError(
            f"slots: column {' or '.join(ARRIVALS)} is needed to know in which slots data arrived"
        )
    slots = arguments.table("slots", slots, there, error=SchemaError)
    return (next((name for name in there if slots[name].notna().any()), there[0]),)


# ---- where CUBIC is Reno ---------------------------------------------------------------------------------------------

#: Bands of :func:`crossover_ratio`, for tables; the last is for windows without bytes in flight.
CROSSOVER_BANDS = ("below a tenth", "a tenth to one", "above one", "not observed")
_C, _BETA = 0.4, 0.7  # CUBIC's, RFC 9438 sections 4.6 and 5


def crossover_ratio(windows: Windows) -> np.ndarray:
    """Each window's congestion window in units of W*, above which CUBIC departs from Reno.

    Parameters
    ----------
    windows : Windows
        Windows with the inputs ``in_bytes`` and ``bytes_in_flight``, or views.

    Returns
    -------
    float64 array
        Below 1, CUBIC's own curve is on average below its estimate of Reno's window, which it then follows
        (Reno-friendly region, RFC 9438 section 4.3), so it grows as fast as Reno. NaN if bytes in flight were not
        observed.

    Raises
    ------
    ParameterError
        The windows lack these inputs.

    Notes
    -----
    At a loss rate p and a round trip of RTT seconds the average windows, in segments, are (C (3 + b) / (4 (1 -
    b)))^(1/4) RTT^(3/4) p^(-3/4) for CUBIC's curve (RFC 9438, section 5.1) and sqrt(1.5 / p) for Reno, which CUBIC's
    estimate equals (section 4.3). They are equal at W* = 1.5^1.5 (C (3 + b) / (4 (1 - b)))^(-1/2) RTT^-1.5 = 1.654
    RTT^-1.5: 585 segments at 20 ms, 52 at 100 ms.

    The congestion window is mean bytes in flight over 1448; the RTT follows from Little's law, bytes in flight over
    the arrival rate. Both cover the path after the tap only, so they are underestimated if there is delay before it
    (``access_ms``). The formulas are averages under steady random loss: a ratio near 1 may be in either region, and
    what limits a flow without losses is not seen. In both regions CUBIC multiplies its window by 0.7 at a loss, Reno
    by 0.5.
    """
    if windows.inputs == VIEW_CHANNELS:
        rate, flight, seen = (
            windows.X[:, :, VIEW_CHANNELS.index(f"window.{name}")].astype(float)
            for name in ("in_rate", "flight", "has_flight")
        )
        came = 50 * np.expm1(rate).mean(axis=1)  # logarithms; see inputs.py
        flying = np.where(seen.all(axis=1), 500 * np.expm1(flight).mean(axis=1), np.nan)
    else:
        for name in ("in_bytes", "bytes_in_flight"):
            if name not in windows.inputs:
                raise ParameterError(
                    f"windows: {name} is not among their inputs ({', '.join(windows.inputs)}); "
                    "the crossover is a matter of the flow's window"
                )
        came, flying = (
            windows.X[:, :, windows.inputs.index(name)].mean(axis=1, dtype=float)
            for name in ("in_bytes", "bytes_in_flight")
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        rtt_s = np.where(came > 0, flying / came, np.nan) * windows.slot_ms / 1000
    return flying / USUAL_SEGMENT_BYTES * rtt_s**1.5 * np.sqrt(_C * (3 + _BETA) / (4 * (1 - _BETA)) / 1.5**3)


def crossover_bands(windows: Windows) -> pd.Categorical[str]:
    """The :data:`CROSSOVER_BANDS` of windows, as a column to evaluate by.

    Examples
    --------
    >>> windows.table["crossover"] = crossover_bands(windows)  # doctest: +SKIP
    >>> evaluate(model.predict, windows, by="crossover")  # doctest: +SKIP
    """
    ratio = crossover_ratio(windows)
    band = np.digitize(ratio, [0.1, 1.0])  # NaN is above all
    codes = np.where(np.isnan(ratio), len(CROSSOVER_BANDS) - 1, band)
    return pd.Categorical.from_codes(codes, pd.Index(CROSSOVER_BANDS), ordered=True)
