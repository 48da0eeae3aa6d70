"""The loop of a live run: read cells, build slots, choose flows, name them."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..._support import arguments
from ..._support.ranges import MOST_MBPS
from ...errors import ParameterError
from .collector import Collector, FlowKey
from .naming import Naming, SlotClassifier
from .selection import FlowSelection
from .stream import SlotStream

__all__ = ["Update", "watch"]

_FOREVER = 2**62
_MEASURED = ["in_mbps", "out_mbps", "cbiq_bytes", "bytes_in_flight"]


@dataclass
class Update:
    """The news of a period.

    Attributes
    ----------
    time_ns : int
        Time of the reading.
    slots : DataFrame
        New rows of :data:`cctoolkit.schema.SLOTS`. Slots count from the run's first; ``flow_id`` is the number in
        `flows`. ``drops_estimate`` is null; with sampling, so are byte and packet counts and ``bytes_in_flight``,
        which is also null until an acknowledgement has been seen.
    flows : DataFrame or None
        Every `report_s`, one row per monitored flow; otherwise None: ``flow_id``, ``src``, ``sport``, ``dst``,
        ``dport``, ``age_s`` (time monitored), ``in_mbps``, ``out_mbps`` (payload rate since the last report; with
        sampling ``in_mbps`` is derived from sequence numbers and ``out_mbps`` is null), ``cbiq_bytes`` and
        ``bytes_in_flight`` (means), ``cca``, ``probability`` (for ``"unknown"``, that of the best name) and
        ``limited_by`` (a name in ``cctoolkit.analysis.limits.LIMITS``); null if not named.
    counts : dict
        As :class:`~cctoolkit.identify.live.Reading`, and ``late_cells``.
    build_s : float
        CPU time for building `slots` from cells.

    See Also
    --------
    watch : gives them

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> collector = cct.live.CaptureCollector(run.ingress, run.egress, slot_ms=10)
    >>> update = next(cct.live.watch(collector))
    >>> update.counts["ingress"]["packets"] > 0
    True
    """

    time_ns: int
    slots: pd.DataFrame
    flows: pd.DataFrame | None
    counts: dict[str, Any]
    build_s: float


def watch(
    collector: Collector,
    *,
    flows: Iterable[FlowKey] = (),
    heavy: int = 16,
    heavy_mbps: float = 1.0,
    idle_s: float = 5.0,
    period_ms: float = 100.0,
    report_s: float = 1.0,
    fill: str = "backward",
    patience_ms: float = 1000.0,
    classifier: SlotClassifier | None = None,
    history_s: float = 10.0,
    duration_s: float | None = None,
) -> Iterator[Update]:
    """Monitor live flows: slots and congestion controls, period by period.

    Parameters
    ----------
    collector : KernelCollector or CaptureCollector
    flows : iterable of FlowKey
        Flows to monitor throughout.
    heavy, heavy_mbps, idle_s : int, float, float
        Also monitor up to `heavy` of the heaviest flows that send at least this rate of data, until they are silent
        for `idle_s`. They are chosen again every `report_s`.
    period_ms : float
        Interval for reading cells and building slots; the paper's N.
    report_s : float
        Interval for reporting, choosing and naming flows.
    fill : "backward" or "interpolate"
        As :func:`cctoolkit.compute_slots`.
    patience_ms : float
        How long an incomplete row waits.
    classifier : object with predict_slots, optional
        Names flows (:class:`~cctoolkit.identify.live.SlotClassifier`), from their last `history_s`.
    duration_s : float, optional
        Duration; by default until the generator is closed or a capture ends.

    Yields
    ------
    Update
        One per period; the last one has the remaining rows.

    Raises
    ------
    ParameterError
    CollectorError
        The collector failed, or an interface was removed.

    See Also
    --------
    CaptureCollector : captures, without root
    KernelCollector : a live link
    SlotClassifier : what can name flows

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> collector = cct.live.CaptureCollector(run.ingress, run.egress, slot_ms=10)
    >>> reports = [u.flows for u in cct.live.watch(collector, heavy=2) if u.flows is not None]
    >>> reports[3][["src", "sport", "in_mbps"]].round(1)
             src  sport  in_mbps
    0  10.1.0.10  40000      1.7
    1  10.1.0.11  40001      6.1
    """
    period_ns = arguments.positive_ns(period_ms, 1e6, "period_ms")
    report_ns = arguments.positive_ns(report_s, 1e9, "report_s")
    if fill not in ("backward", "interpolate"):
        raise ParameterError(f"fill: {fill!r} is neither 'backward' nor 'interpolate'")
    heavy = arguments.whole("heavy", heavy)
    arguments.number("heavy_mbps", heavy_mbps, above=0.0, high=MOST_MBPS)
    least_bytes = max(round(heavy_mbps * 1e6 / 8 * report_s), 1) if heavy else 0
    start_ns = collector.now_ns
    end_ns = None if duration_s is None else start_ns + arguments.positive_ns(duration_s, 1e9, "duration_s")
    first_slot = start_ns // collector.slot_ns
    stream = SlotStream(
        first_slot,
        collector.slot_ns,
        has_egress=collector.has_egress,
        sampled=collector.sampled,
        fill=fill,
        patience_ms=patience_ms,
    )
    naming = Naming(classifier, collector.slot_ns, history_s)
    selection = FlowSelection(map(_canonical, flows), heavy, idle_s)
    monitored = _Monitored(collector, stream)
    for key in selection.first():
        monitored.add(key)
    collector.heavy(least_bytes)

    report = _Report()
    next_ns, next_report_ns = start_ns + period_ns, start_ns + report_ns
    ended: list[int] = []
    over = False
    while not over:
        over = not collector.wait(next_ns) or (end_ns is not None and next_ns >= end_ns)
        reading = collector.read()
        if over:  # unfinished and waiting rows are returned as they are
            reading.until_slot = _FOREVER
            ended += monitored.keys
        if reading.missed_until is not None:
            for number in monitored.keys:
                stream.begin(number, reading.missed_until)
        began = time.process_time()
        slots = stream.update(reading.in_cells, reading.out_cells, reading.until_slot, ended)
        build_s = time.process_time() - began
        ended = []
        naming.keep(slots)
        report.add(slots)
        now_ns = collector.now_ns
        for number in set((reading.in_cells["way"] >> 1).tolist()):
            if number in monitored.keys:
                selection.note_packet(monitored.keys[number], now_ns / 1e9)
        table = None
        if now_ns >= next_report_ns or over:
            names = naming.names(now_ns // collector.slot_ns - first_slot, collector.rtts())
            table = report.table(monitored.keys, monitored.since_ns, names, now_ns, collector)
            if not over:
                added, removed = selection.update(collector.heavy(least_bytes), now_ns / 1e9)
                ended = [monitored.remove(key) for key in removed]
                for key in added:
                    monitored.add(key)
            next_report_ns = max(next_report_ns + report_ns, now_ns)
        yield Update(now_ns, slots, table, {**reading.counts, "late_cells": stream.late_cells}, build_s)
        next_ns = max(next_ns + period_ns, now_ns)


def _canonical(key: FlowKey) -> FlowKey:
    """The key as collectors write it."""
    try:
        src, dst = (str(ipaddress.ip_address(address)) for address in (key.src, key.dst))
    except ValueError as err:
        raise ParameterError(f"flows: {err}") from None
    return FlowKey(src, key.sport, dst, key.dport)


class _Monitored:
    """Flows by number; numbers are not reused."""

    def __init__(self, collector: Collector, stream: SlotStream) -> None:
        self._collector = collector
        self._stream = stream
        self._next = 0
        self.keys: dict[int, FlowKey] = {}
        self.since_ns: dict[int, int] = {}

    def add(self, key: FlowKey) -> None:
        number, self._next = self._next, self._next + 1
        self._collector.add(number, key)
        now_ns = self._collector.now_ns
        self._stream.begin(number, now_ns // self._collector.slot_ns + 1)  # the first complete slot
        self.keys[number], self.since_ns[number] = key, now_ns

    def remove(self, key: FlowKey) -> int:
        number = next(n for n, one in self.keys.items() if one == key)
        self._collector.remove(key)
        del self.keys[number], self.since_ns[number]
        return number


class _Report:
    """Data since the last table of flows."""

    def __init__(self) -> None:
        self._parts: list[pd.DataFrame] = []

    def add(self, slots: pd.DataFrame) -> None:
        if len(slots):
            counted = ["in_bytes", "out_bytes", "throughput_bytes", "cbiq_bytes", "bytes_in_flight"]
            self._parts.append(slots[["flow_id", *counted]])

    def table(
        self,
        keys: dict[int, FlowKey],
        since_ns: dict[int, int],
        names: dict[int, dict[str, Any]],
        now_ns: int,
        collector: Collector,
    ) -> pd.DataFrame:
        flows = pd.DataFrame([{"flow_id": n, **key._asdict()} for n, key in keys.items()])
        if flows.empty:
            flows = pd.DataFrame(columns=["flow_id", *FlowKey._fields])
        flows["age_s"] = [(now_ns - since_ns[n]) / 1e9 for n in keys]
        if self._parts:
            by_flow = pd.concat(self._parts).groupby("flow_id")
            slot_s = by_flow.size() * collector.slot_ns / 1e9
            arrived = "throughput_bytes" if collector.sampled else "in_bytes"
            measured = pd.DataFrame(
                {
                    "in_mbps": by_flow[arrived].sum(min_count=1).astype("Float64") * 8e-6 / slot_s,
                    "out_mbps": by_flow["out_bytes"].sum(min_count=1).astype("Float64") * 8e-6 / slot_s,
                    "cbiq_bytes": by_flow["cbiq_bytes"].mean().astype("Float64"),
                    "bytes_in_flight": by_flow["bytes_in_flight"].mean().astype("Float64"),
                }
            ).reindex(flows["flow_id"])
        else:
            measured = pd.DataFrame(index=range(len(flows)), columns=_MEASURED, dtype="Float64")
        self._parts = []
        for name in _MEASURED:
            flows[name] = measured[name].to_numpy(dtype=float, na_value=float("nan"))
        flows["cca"] = [names.get(n, {}).get("cca") for n in keys]
        flows["probability"] = [names.get(n, {}).get("probability", float("nan")) for n in keys]
        flows["limited_by"] = [names.get(n, {}).get("limited_by") for n in keys]
        return flows
