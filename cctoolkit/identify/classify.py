"""Identify the congestion controls of a capture's flows with a saved model, in bounded memory and without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from .._support import arguments
from .._support.arguments import positive_ns
from .._support.words import plural
from ..analysis.flows import FlowStatistics
from ..analysis.sender_view import TapRtts, seen_by_sender
from ..analysis.slots import SlotTable
from ..analysis.tap_comparison import TapComparer, check_egress
from ..capture.filtering import selected
from ..capture.model import Capture
from ..capture.protocols import TCP
from ..capture.reader import iter_capture, read_capture
from ..capture.selection import Selection
from ..capture.source import reads_twice
from ..errors import ParameterError, SchemaError
from ..schema import CCAS, empty
from .bundle import Model, bundled_models, load
from .card import alike_in_words
from .probabilities import UNKNOWN

__all__ = [
    "DEFAULT_MODEL",
    "MIN_BYTES",
    "SECONDS",
    "attribution",
    "classify_flows",
    "default_model",
    "name_flows",
    "readable_twice",
]

#: The bundled model used by default.
DEFAULT_MODEL = "cca"
#: Payload in one direction, about 700 segments. A flow with less has hardly left slow start, in which most congestion
#: controls behave alike.
MIN_BYTES = 1_000_000
#: Duration used of each flow, from its first packet: one of the longest windows, or six of 10 s.
SECONDS = 60.0
#: Slots are complete only some time later: bytes in the queue are known at the flow's next packet, losses at later
#: ones.
_AFTER_NS = 1_000_000_000
#: Rows of a slots table processed at a time: about 130 MB.
_ROWS = 1_000_000
#: Maximum number of cells per stretch of time: about 1 GB.
_MAX_CELLS = 10_000_000
_PACKETS = 1_000_000
#: Congestion controls whose packets say ECT(1) (RFC 9331), and the codepoints they have then: ECT(1), or CE if marked.
_L4S = ("prague",)
_ECT1, _CE = 1, 3


def default_model() -> str | None:
    """Name of the default bundled model; None if none is bundled."""
    return DEFAULT_MODEL if DEFAULT_MODEL in bundled_models() else None


def readable_twice(capture: str, **reading: Any) -> tuple[str | Capture, dict[str, Any]]:
    """A capture that can be read twice: a file as it is, a pipe from memory."""
    return (capture, reading) if reads_twice(capture) else (read_capture(capture, **reading), {})


def classify_flows(
    source: str | os.PathLike[str] | Capture,
    egress: str | os.PathLike[str] | Capture | None = None,
    *,
    model: str | os.PathLike[str] | Model = DEFAULT_MODEL,
    flows: pd.DataFrame | None = None,
    min_bytes: int = MIN_BYTES,
    seconds: float = SECONDS,
    window_ms: float | None = None,
    selection: Selection | None = None,
    packets: int | None = None,
    check_taps: bool = True,
    **reading: Any,
) -> pd.DataFrame:
    """Identify the congestion controls of a capture's flows.

    Parameters
    ----------
    source : path or Capture
        The only tap, or the tap before the queue. A file is read twice in bounded memory: once to find the flows, once
        for their slots. A pipe, which cannot be read twice, is kept in memory.
    egress : path or Capture, optional
        The tap after the queue, on the same clock. It adds bytes in the queue (CBIQ), losses and departures.
    model : str, path or Model
        The model, as for :func:`~.bundle.load`.
    flows : DataFrame, optional
        Rows of the flows table (:data:`cctoolkit.schema.FLOWS`): only these flows, without the first reading. Flows
        that are not TCP or have too little data are left out.
    min_bytes : int
        Flows with less payload in both directions are left out.
    seconds : float
        Duration used of each flow, from its first packet.
    window_ms : float, optional
        Window length; by default the longest training length that the flow fills.
    selection : Selection, optional
        Selection of packets of `source`.
    packets : int, optional
        Stop after this many packets of a file, to save time. Flows that start later get no name.
    check_taps : bool
        Check that two captures can be taps before and after one queue (:func:`cctoolkit.compare_taps`), as far as they
        are read.
    **reading
        As for :func:`cctoolkit.read_capture`.

    Returns
    -------
    DataFrame
        :data:`cctoolkit.schema.CCAS`: one row per flow, those with the most data first. ``cca`` is ``"unknown"`` if
        nothing is probable enough, the name is Prague's but no packet says ECT(1), or the flow is not limited here
        (``limited_by`` says what limits it), and null if the flow has no full window; see
        :meth:`Model.predict_slots`.

    Raises
    ------
    CaptureFormatError
        A file is not a capture.
    ParameterError
        There is no such model, it has no network for `window_ms`, the flows of one stretch of time need too much
        memory, the egress capture has no packets, or the taps are swapped, have no packet in common, or their clocks
        differ too much.

    See Also
    --------
    cctoolkit.identify.bundle.load : the model itself
    Model : classify slots
    cctoolkit.compute_slots : the input of models

    Notes
    -----
    Flows are processed in order of their start, so memory holds at most those of two stretches of `seconds`, however
    long the capture is. Reading ends with the last stretch.

    Where handshakes or TCP timestamps show how far the sender is from the tap, the model gets bytes in flight as the
    sender sees them (:func:`cctoolkit.seen_by_sender`).

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> cct.identify.classify_flows(run.ingress, run.egress)[["flow_id", "cca"]]
       flow_id    cca
    0        1    bbr
    1        0  cubic
    """
    opened = model if isinstance(model, Model) else load(model)
    limit_ns = positive_ns(seconds, 1e9, "seconds")
    if flows is None:
        if not isinstance(source, Capture) and not reads_twice(source):
            source, reading = read_capture(source, **reading), {}
        flows = _tcp_flows(_parts(source, selection, reading))
    elif not reads_twice(source):
        raise ParameterError(f"{os.fspath(source)}: cannot be read a second time")  # type: ignore[arg-type]
    numbers = (
        "flow_id",
        "protocol",
        "payload_fwd",
        "payload_rev",
        "packets_fwd",
        "packets_rev",
        "first_ts_ns",
        "last_ts_ns",
        "sport",
        "dport",
    )
    times = ("first_ts_ns", "last_ts_ns")
    flows = arguments.table("flows", flows, numbers, ("src", "dst"), whole=times, error=SchemaError)
    flows = flows[flows["protocol"] == TCP]
    payload = flows[["payload_fwd", "payload_rev"]].max(axis=1)
    flows = flows.assign(payload_bytes=payload.astype("int64"))[payload >= max(min_bytes, 1)]
    flows = flows.sort_values("first_ts_ns", kind="stable")
    jobs = [
        job
        for stretch in _stretches(flows, limit_ns)
        for job in _jobs(stretch, limit_ns, opened.slot_ms, min_bytes)
    ]
    scalable: set[int] = set()
    came = _parts(source, selection, reading, packets)
    if set(_L4S) & set(opened.classes_):
        came = _noting_l4s(came, scalable)
    echoes = TapRtts(flows["flow_id"])
    came = _noting_echoes(came, echoes)
    left = None if egress is None else _parts(egress, None, reading, packets)
    comparer = None if left is None or not check_taps else TapComparer()
    answers = []
    for slots in _slots_of(jobs, came, left, comparer):
        slots = seen_by_sender(slots, echoes.shorten(flows[flows["flow_id"].isin(slots["flow_id"].unique())]))
        answers.append(opened.predict_slots(_beginning(slots, limit_ns), window_ms))
    if comparer is not None:
        comparer.result().check()
    if not answers:
        return empty("ccas")
    found = pd.concat(answers, ignore_index=True)
    table = flows[[name for name in CCAS if name in flows]].merge(found, on="flow_id", how="left")
    table["windows"] = table["windows"].fillna(0)
    table["model"] = opened.name
    # the networks do not see codepoints, and without ECT(1) a sender is none of these
    table.loc[table["cca"].isin(_L4S) & ~table["flow_id"].isin(scalable), "cca"] = UNKNOWN
    table = table.sort_values("payload_bytes", ascending=False, kind="stable", ignore_index=True)
    return table[list(CCAS)].astype(CCAS)


def _noting_l4s(parts: Iterator[Capture], flow_ids: set[int]) -> Iterator[Capture]:
    """The parts; `flow_ids` becomes the numbers of flows with packets for L4S."""
    for part in parts:
        ecn = part.columns["ecn"]
        flow_ids.update(np.unique(part.columns["flow_id"][(ecn == _ECT1) | (ecn == _CE)]).tolist())
        yield part


def _noting_echoes(parts: Iterator[Capture], echoes: TapRtts) -> Iterator[Capture]:
    """The parts, which `echoes` takes, too."""
    for part in parts:
        echoes.update(part.columns)
        yield part


def name_flows(
    flows: pd.DataFrame,
    source: str | Capture,
    egress: str | None,
    *,
    model: str | None = None,
    selection: Selection | None = None,
    **reading: Any,
) -> tuple[pd.DataFrame, str]:
    """Add ``cca``, ``probability`` and ``limited_by`` to rows of a flows table, and describe the model that named them.

    Parameters
    ----------
    flows : DataFrame
    source, egress, model, selection, **reading
        As for :func:`classify_flows`; `source` can be read twice.

    Returns
    -------
    DataFrame
        The rows; null for flows that are not TCP, have too little data, or have no full window.
    str
        The model, and the inputs it used.
    """
    opened = load(model or DEFAULT_MODEL)
    answers = classify_flows(source, egress, model=opened, flows=flows, selection=selection, **reading)
    table = flows.merge(answers[["flow_id", "cca", "probability", "limited_by"]], on="flow_id", how="left")
    if len(answers):
        return table, f"CCA: {attribution(answers, opened)}"
    return (
        table,
        f"CCA: none of these flows is TCP with at least {MIN_BYTES:,} bytes of payload in one direction",
    )


def attribution(named: pd.DataFrame, model: Model) -> str:
    """Which model named flows, from which inputs, and which congestion controls its names cover.

    Parameters
    ----------
    named : DataFrame
        From :func:`classify_flows`.
    model : Model
    """
    has_name = named["cca"].notna()
    if not has_name.any():
        return f"no flow has a full window of the inputs of the model {model.name}"
    sets = named.loc[has_name, "feature_set"].value_counts()
    seen = ", ".join(f"{name} ({plural(n, 'flow')})" for name, n in sets.items())
    short = f"; no full window: {plural(int((~has_name).sum()), 'flow')}" if not has_name.all() else ""
    alike = alike_in_words(model.alike, among=set(named["cca"]))
    return f"by the model {model.name}, from {seen}{short}{alike}"


def _parts(
    source: str | os.PathLike[str] | Capture,
    selection: Selection | None,
    reading: dict[str, Any],
    packets: int | None = None,
) -> Iterator[Capture]:
    """The selected packets, part by part, up to a number of packets of a file."""
    if isinstance(source, Capture):
        return selected([source], selection)
    return selected(_first(iter_capture(source, _PACKETS, ahead=True, **reading), packets), selection)


def _first(parts: Iterator[Capture], packets: int | None) -> Iterator[Capture]:
    """Parts up to this many packets in total; by default all."""
    read = 0
    for part in parts:
        yield part
        read += len(part)
        if packets is not None and read >= packets:
            return


def _tcp_flows(parts: Iterator[Capture]) -> pd.DataFrame:
    """The flows table, TCP only."""
    from ..capture.keys import AllKeys

    statistics, keys = FlowStatistics(), AllKeys()
    for part in parts:
        statistics.update(part)
        keys.add(part.keys)
    everything = keys.all()
    return statistics.result(everything.take(everything.protocol == TCP))


def _stretches(flows: pd.DataFrame, limit_ns: int) -> Iterator[pd.DataFrame]:
    """Flows in order of their start, in groups that start within one stretch of time."""
    first = flows["first_ts_ns"].to_numpy()
    begin = 0
    while begin < len(flows):
        end = int(np.searchsorted(first, first[begin] + limit_ns))
        yield flows.iloc[begin:end]
        begin = end


class _Job:
    """Collects the slots of some flows between two points in time."""

    def __init__(self, flows: pd.DataFrame, end_ns: int, slot_ms: float) -> None:
        self.begin_ns, self.end_ns = int(flows["first_ts_ns"].iloc[0]), end_ns
        self.table = SlotTable(slot_ms, flow_ids=flows["flow_id"], max_rows=4 * _MAX_CELLS, check_taps=False)

    def take(self, part: Capture, behind: Capture | None) -> None:
        if self._concerns(part) or (behind is not None and self._concerns(behind)):
            self.table.update(self._cut(part), None if behind is None else self._cut(behind))

    def _concerns(self, part: Capture) -> bool:
        return len(part) > 0 and part.meta.last_ts_ns >= self.begin_ns and part.meta.first_ts_ns < self.end_ns

    def _cut(self, part: Capture) -> Capture:
        if not len(part) or (self.begin_ns <= part.meta.first_ts_ns and part.meta.last_ts_ns < self.end_ns):
            return part
        ts = part.columns["ts_ns"]
        return part.rows((ts >= self.begin_ns) & (ts < self.end_ns))


def _jobs(flows: pd.DataFrame, limit_ns: int, slot_ms: float, min_bytes: int) -> Iterator[_Job]:
    """The jobs of one stretch, one for each part of its slots table."""
    first, last = flows["first_ts_ns"].to_numpy(), flows["last_ts_ns"].to_numpy()
    end_ns = int(np.minimum(last + 1, first + limit_ns).max()) + _AFTER_NS
    lasts = np.minimum(last, end_ns) - first  # a flow lasts until the stretch's end at most
    rows = lasts // round(slot_ms * 1e6) + 1
    cells = np.minimum(rows, (flows["packets_fwd"] + flows["packets_rev"]).to_numpy()).sum()
    if cells > _MAX_CELLS:
        raise ParameterError(
            f"min_bytes: {len(flows):,} flows of at least {min_bytes:,} bytes begin within {limit_ns / 1e9:g} s: "
            f"{cells:,} slots, but only {_MAX_CELLS:,} fit; raise --min-bytes, lower --seconds, or select fewer "
            "packets (--host, --start, --stop)"
        )
    piece = np.cumsum(rows) // _ROWS
    for _, members in groupby(range(len(flows)), key=piece.__getitem__):
        yield _Job(flows.iloc[list(members)], end_ns, slot_ms)


def _slots_of(
    waiting: list[_Job],
    ingress: Iterator[Capture],
    egress: Iterator[Capture] | None,
    comparer: TapComparer | None,
) -> Iterator[pd.DataFrame]:
    """The slots table of each job once its time is over; the job is then dropped from the list."""
    if not waiting:
        return
    steps = _alone(ingress) if egress is None else _in_step(ingress, egress)
    for part, behind, until_ns in steps:
        if comparer is not None:
            comparer.update(part, behind)
        for job in waiting:
            job.take(part, behind)
        for job in [job for job in waiting if job.end_ns <= until_ns]:
            waiting.remove(job)
            yield job.table.result()
        if not waiting:
            return


def _alone(parts: Iterator[Capture]) -> Iterator[tuple[Capture, None, float]]:
    """Yield each part, and the time up to which everything has been seen."""
    for part in parts:
        yield part, None, part.meta.last_ts_ns
    yield part.rows(np.zeros(len(part), np.bool_)), None, np.inf


def _in_step(
    ingress: Iterator[Capture], egress: Iterator[Capture]
) -> Iterator[tuple[Capture, Capture, float]]:
    """Parts of both taps, the tap that lags first, and the time up to which everything has been seen."""
    taps = [ingress, egress]
    parts = [next(tap) for tap in taps]  # there is always one
    check_egress(parts[1])
    nothing = [part.rows(np.zeros(len(part), np.bool_)) for part in parts]
    reached: list[float] = [part.meta.last_ts_ns for part in parts]
    yield parts[0], parts[1], min(reached)
    while min(reached) < np.inf:
        tap = int(reached[1] < reached[0])
        part = next(taps[tap], None)
        reached[tap] = np.inf if part is None else max(part.meta.last_ts_ns, reached[tap])
        now = list(nothing)
        if part is not None:
            now[tap] = part
        yield now[0], now[1], min(reached)


def _beginning(slots: pd.DataFrame, limit_ns: int) -> pd.DataFrame:
    """Each flow's slots of its first `limit_ns`."""
    flow, slot = slots["flow_id"].to_numpy(), slots["slot"].to_numpy()
    starts = np.flatnonzero(np.diff(flow.astype(np.int64), prepend=-1))
    first = np.repeat(slot[starts], np.diff(starts, append=len(slots)))
    kept = slots[slot - first < -(-limit_ns // round(slots.attrs["slot_ms"] * 1e6))]
    kept.attrs = slots.attrs
    return kept
