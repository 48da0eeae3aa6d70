"""Windows: stretches of a flow's slots with a label, cut anywhere in flight."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..errors import ParameterError, SchemaError
from .dataset import Recording, SlotDataset
from .inputs import SEGMENT_BYTES, VIEW_CHANNELS, VIEW_INPUTS, scale_view

__all__ = [
    "ARRIVALS",
    "CROSSOVER_BANDS",
    "FEATURE_SETS",
    "INPUTS",
    "Windows",
    "crossover_bands",
    "crossover_ratio",
    "cut_windows",
    "joined",
    "slot_arrays",
    "window_slots",
]

#: What a classifier may be told of each slot: columns of the slots table.
INPUTS = (
    "cbiq_bytes",
    "throughput_bytes",
    "in_bytes",
    "out_bytes",
    "in_packets",
    "bytes_in_flight",
    "drops_estimate",
    "max_source_gap",  # the paper's maximal time gaps (section III-A); not known of slots without data, and then 0
    "max_arrival_gap_ns",
)
#: What tells whether data came in a slot: the first is not known of a sample of packets (section III-C of the paper).
ARRIVALS = ("in_bytes", "throughput_bytes")
#: Named choices of inputs, and what they need.
FEATURE_SETS: dict[str, tuple[str, ...]] = {
    "cbiq+throughput": ("cbiq_bytes", "throughput_bytes"),  # Dragonfly: two taps, one way, O(1) a slot
    "cbiq": ("cbiq_bytes",),
    "throughput": ("in_packets",),  # DeePCCI: one tap, one way
    "bytes_in_flight+throughput": ("bytes_in_flight", "in_bytes"),  # one tap, both ways
}


def window_slots(window_ms: float, slot_ms: float = 1.0) -> int:
    """Slots in a window.

    Raises
    ------
    ParameterError
        It is not a whole number of slots, or none.
    """
    slots = round(window_ms / slot_ms) if np.isfinite(window_ms) else 0
    if slots < 1 or abs(slots * slot_ms - window_ms) > 1e-9 * window_ms:
        raise ParameterError(
            f"window_ms: {window_ms:g} ms is not a whole number (at least 1) of slots of {slot_ms:g} ms"
        )
    return slots


@dataclass
class Windows:
    """Windows of one length, with labels.

    Attributes
    ----------
    X : float32 array, windows x slots x inputs
        As counted (bytes, packets); classifiers normalise by themselves. NaN where not observed.
    y : array of str
        Congestion control.
    table : DataFrame
        A row a window: ``run``, ``flow_id``, ``cca``, ``window_ms``, ``first_slot``, and what is known of flow and run.
    inputs : tuple of str
        What the last axis of `X` is.
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
        """The run of each window: what scikit-learn's group splitters want."""
        return self.table["run"].to_numpy()

    def take(self, which: Any) -> Windows:
        """Those of a mask or of indices."""
        return dataclasses.replace(
            self, X=self.X[which], y=self.y[which], table=self.table.loc[which].reset_index(drop=True)
            if np.asarray(which).dtype == bool else self.table.iloc[which].reset_index(drop=True),
        )  # fmt: skip

    def of(self, **values: Any) -> Windows:
        """Those whose columns of the table have these values."""
        mask = np.ones(len(self), np.bool_)
        for column, value in values.items():
            mask &= (self.table[column] == value).to_numpy()
        return self.take(mask)

    def split(
        self, test_share: float = 0.3, seed: int = 0, *, by: str | Sequence[str] = "run"
    ) -> tuple[Windows, Windows]:
        """Two parts that have no run in common, so that nothing of a test run was ever seen.

        Parameters
        ----------
        test_share : float
            Of the groups, not of the windows.
        seed : int
        by : str or sequence of str
            Columns of the table that make a group: ``"run"``; a setting (``"rtt_ms"``), to test on settings never
            trained on; ``("run", "flow_id")`` is the paper's split, in which flows of one run sit on both sides.

        Returns
        -------
        Windows, Windows
            Training and testing.

        Raises
        ------
        ParameterError
            Fewer than two groups, or no such column.
        """
        from sklearn.model_selection import GroupShuffleSplit

        columns = [by] if isinstance(by, str) else list(by)
        for column in columns:
            if column not in self.table:
                raise ParameterError(
                    f"by: windows have no column {column!r}, only {', '.join(map(str, self.table))}"
                )
        group = self.table.groupby(columns, sort=False).ngroup().to_numpy()
        if len(self) == 0 or group.max() < 1:
            raise ParameterError(
                f"by: windows of {int(group.max(initial=-1)) + 1} {'/'.join(columns)} cannot be split"
            )
        splitter = GroupShuffleSplit(1, test_size=test_share, random_state=seed)
        train, test = next(splitter.split(self.X, self.y, group))
        return self.take(train), self.take(test)

    def save(self, path: str | os.PathLike[str], provenance: dict[str, Any] | None = None) -> None:
        """Write as Parquet, one row a window, values of a window in one list; atomic."""
        import json

        import pyarrow as pa

        from .._support import parquet

        _, slots, inputs = self.X.shape
        flat = pa.array(np.ascontiguousarray(self.X, np.float32).reshape(-1))
        table = pa.Table.from_pandas(self.table, preserve_index=False)
        table = table.append_column("X", pa.FixedSizeListArray.from_arrays(flat, slots * inputs))
        about = {"inputs": self.inputs, "slots": slots, "slot_ms": self.slot_ms, "version": _VERSION}
        parquet.write(table, path, provenance or {}, {_KEY: json.dumps(about).encode()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Windows:
        """Read what :meth:`save` wrote.

        Raises
        ------
        SchemaError
            It is something else, or of another version.
        """
        import json

        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
            about = json.loads((table.schema.metadata or {})[_KEY])
        except (pa.ArrowInvalid, KeyError, ValueError):
            raise SchemaError(f"{path}: holds no windows") from None
        if about["version"] != _VERSION:
            raise SchemaError(
                f"{path}: windows of version {about['version']}, this package reads {_VERSION}: cut them again"
            )
        column = table.column("X").combine_chunks()
        X = np.asarray(column.flatten()).reshape(len(table), about["slots"], len(about["inputs"]))
        frame = table.drop_columns(["X"]).to_pandas()
        return cls(X, frame["cca"].to_numpy(object), frame, tuple(about["inputs"]), about["slot_ms"])


_KEY = b"cctoolkit.windows"
_VERSION = 1


def slot_arrays(slots: pd.DataFrame, inputs: Sequence[str]) -> Iterator[tuple[int, int, np.ndarray]]:
    """The slots table, flow by flow, as arrays.

    Yields
    ------
    flow_id, first slot, float32 array of slots x inputs
        NaN where the table has null. Slots at the end in which an input cannot be known yet (CBIQ needs a
        later packet) are left out; an input that is never known (one tap) is not waited for.

    Raises
    ------
    SchemaError
        The table lacks an input.
    """
    missing = [name for name in (*inputs, "flow_id", "slot") if name not in slots]
    if missing:
        raise SchemaError(f"slots: column {missing[0]!r} is missing")
    values = np.empty((len(slots), len(inputs)), np.float32)
    for i, name in enumerate(inputs):
        values[:, i] = slots[name].to_numpy(np.float32, na_value=np.nan)
    flow = slots["flow_id"].to_numpy()
    slot = slots["slot"].to_numpy()
    bounds = [*np.flatnonzero(np.diff(flow, prepend=-1)), len(flow)] if len(flow) else []
    for begin, end in itertools.pairwise(bounds):
        part = values[begin:end]
        missing_here = np.isnan(part)
        known = np.flatnonzero(~missing_here[:, ~missing_here.all(axis=0)].any(axis=1))
        stop = known[-1] + 1 if len(known) and not missing_here.all() else 0
        yield int(flow[begin]), int(slot[begin]), part[:stop]


def joined(parts: Sequence[Windows]) -> Windows:
    """Windows of the same inputs and of one length, or views of any, as one."""
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
) -> Windows:
    """Cut windows at random places of every labelled flow.

    Parameters
    ----------
    recordings : iterable of Recording
        A :class:`~cctoolkit.identify.SlotDataset`, part of one, or recordings at hand.
    window_ms : float, or sequence of float with ``inputs="views"``
    inputs : str or sequence of str
        A name in :data:`FEATURE_SETS`, or names in :data:`INPUTS`; or ``"views"``: each window as
        :func:`~.inputs.scale_view`, for :class:`~.classifiers.CCAClassifier`; of one size whatever the length.
    per_flow : int
        Windows of each flow and length (the paper: one); they may overlap. A flow too short gives none.
    seed : int
        A flow's windows depend on the seed, its run's name, its number, the length, and how long `inputs` are known.
    ccas : sequence of str, optional
        Only flows of these.

    Returns
    -------
    Windows
        Windows in which no data came (:data:`ARRIVALS`) are left out, whatever `inputs` are: there is nothing to tell.
        Windows with data whose inputs are 0 throughout stay, such as CBIQ's at an empty queue, or CBIQ's and
        throughput's while only lost data are sent again: a queue that a flow does not build tells something, a
        classifier in use meets such windows, inputs are compared on the same ones, and the paper leaves none out
        (section III-E). The table also has ``window_ms``.

    Raises
    ------
    ParameterError
        No flow is long enough.
    SchemaError
        An input is not in the slots tables, or nothing that tells of arrivals.

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
        raise ParameterError('window_ms: windows of several lengths have one size only with inputs="views"')
    if isinstance(recordings, SlotDataset):
        recordings = recordings.recordings((*names, *ARRIVALS))
    arrays: list[np.ndarray] = []
    rows: list[dict[str, Any]] = []
    slot_ms, flows = 1.0, 0
    for recording in recordings:
        slot_ms = recording.slot_ms
        labels: dict[int, dict[str, Any]] = {
            row["flow_id"]: {str(k): v for k, v in row.items()} for row in recording.flows.to_dict("records")
        }
        both = zip(
            slot_arrays(recording.slots, names),
            slot_arrays(recording.slots, _arrivals(recording.slots)),
            strict=True,
        )
        for (flow_id, first_slot, values), (_, _, came) in both:
            label = labels.get(flow_id)
            if label is None or (ccas is not None and label["cca"] not in ccas):
                continue
            flows += 1
            for ms in lengths_ms:
                length = window_slots(ms, slot_ms)
                rng = np.random.default_rng([seed, *recording.name.encode(), flow_id, length])
                room = len(values) - length + 1
                for start in rng.integers(room, size=per_flow) if room > 0 else ():
                    if not np.nansum(came[start : start + length]):
                        continue
                    window = values[start : start + length]
                    arrays.append(scale_view(window) if views else window.copy())
                    place = {"window_ms": ms, "first_slot": first_slot + int(start)}
                    rows.append({"run": recording.name, **label, **place})
    if not rows:
        told = ", ".join(f"{ms:g}" for ms in lengths_ms)
        raise ParameterError(
            f"window_ms: none of {flows} flows has {told} ms of slots with packets "
            f"in which {', '.join(names)} are known"
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


def _arrivals(slots: pd.DataFrame) -> tuple[str]:
    """The first of ARRIVALS that was observed."""
    there = [name for name in ARRIVALS if name in slots]
    if not there:
        raise SchemaError(
            f"slots: neither {' nor '.join(ARRIVALS)} is there to tell in which slots data came"
        )
    return (next((name for name in there if slots[name].notna().any()), there[0]),)


# ---- where CUBIC is Reno ---------------------------------------------------------------------------------------------

#: Of :func:`crossover_ratio`, for tables; the last is for windows whose flight was not observed.
CROSSOVER_BANDS = ("below a tenth", "a tenth to one", "above one", "not observed")
_C, _BETA = 0.4, 0.7  # CUBIC's, RFC 9438 sections 4.6 and 5


def crossover_ratio(windows: Windows) -> np.ndarray:
    """How far each window is from where CUBIC leaves Reno: its flow's congestion window in units of W*.

    Parameters
    ----------
    windows : Windows
        With the inputs ``in_bytes`` and ``bytes_in_flight``, or views.

    Returns
    -------
    float64 array
        Below 1 CUBIC's own curve is on average below its estimate of Reno's window, which it then follows
        (Reno-friendly region, RFC 9438 section 4.3), so that it grows as fast as Reno. NaN where the flight was not
        observed.

    Raises
    ------
    ParameterError
        The windows have no such inputs.

    Notes
    -----
    At a loss rate p and a round trip of RTT seconds the average windows, in segments, are
    (C (3 + b) / (4 (1 - b)))^(1/4) RTT^(3/4) p^(-3/4) for CUBIC's curve (RFC 9438, section 5.1) and sqrt(1.5 / p) for
    Reno, which CUBIC's estimate of it equals (section 4.3). They are the same at
    W* = 1.5^1.5 (C (3 + b) / (4 (1 - b)))^(-1/2) RTT^-1.5 = 1.654 RTT^-1.5: 585 segments at 20 ms, 52 at 100 ms.

    The window is the mean of bytes in flight over 1448; the round trip is Little's law, bytes in flight over arrivals.
    Both are of what lies behind the tap: with delay before it (``access_ms``) they are underestimated. The laws are
    averages at a steady random loss: a window near 1 may lie in either region, and what limits a flow that loses
    nothing is not seen. CUBIC also multiplies its window by 0.7 at a loss, Reno by 0.5, in both regions.
    """
    if windows.inputs == VIEW_CHANNELS:
        rate, flight, seen = (
            windows.X[:, :, VIEW_CHANNELS.index(f"window.{name}")].astype(float)
            for name in ("in_rate", "flight", "has_flight")
        )
        came = 50 * np.expm1(rate).mean(axis=1)  # of logarithms, see inputs.py
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
    return flying / SEGMENT_BYTES * rtt_s**1.5 * np.sqrt(_C * (3 + _BETA) / (4 * (1 - _BETA)) / 1.5**3)


def crossover_bands(windows: Windows) -> pd.Categorical[str]:
    """:data:`CROSSOVER_BANDS` of :func:`crossover_ratio`: a column to evaluate by.

    Examples
    --------
    >>> windows.table["crossover"] = crossover_bands(windows)  # doctest: +SKIP
    >>> evaluate(model.predict, windows, by="crossover")  # doctest: +SKIP
    """
    ratio = crossover_ratio(windows)
    band = np.digitize(ratio, [0.1, 1.0])  # NaN is above all
    codes = np.where(np.isnan(ratio), len(CROSSOVER_BANDS) - 1, band)
    return pd.Categorical.from_codes(codes, pd.Index(CROSSOVER_BANDS), ordered=True)
