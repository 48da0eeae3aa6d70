"""Replay captures as if live: a dry run of the collector, without root."""

from __future__ import annotations

import os
import time

import numpy as np

from ..._support.arguments import number, positive_ns
from ..._support.ranges import LEAST_SPEED, MOST_SPEED
from ...analysis.sender_view import TapRtts
from ...analysis.slots import CELL, SlotTable
from ...analysis.tap_comparison import compare_taps
from ...capture.model import Capture
from ...capture.protocols import TCP
from ...capture.reader import read_capture
from ...errors import ParameterError
from .collector import FlowKey, Reading

__all__ = ["CaptureCollector"]

_SILENCE_NS = 60_000_000_000


class CaptureCollector:
    """Captures from one or two taps, replayed by ``wait``.

    Parameters
    ----------
    ingress : Capture or path
    egress : Capture or path, optional
        Timestamped by the same clock.
    slot_ms, sampling, seed
        As :func:`cctoolkit.compute_slots`.
    speed : float, optional
        Seconds of the capture per second; by default as fast as possible.
    check_taps : bool
        Check that two captures can be taps before and after one queue (:func:`cctoolkit.compare_taps`).

    Raises
    ------
    ParameterError
        The captures are swapped, have no packet in common, or their clocks differ too much.

    See Also
    --------
    KernelCollector : the same from a live link
    watch : read it

    Notes
    -----
    Heavy flows are counted exactly here, not by a sketch.

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> collector = cct.live.CaptureCollector(run.ingress, run.egress, slot_ms=10)
    >>> updates = list(cct.live.watch(collector, heavy=2, duration_s=2))
    >>> len(updates[-2].slots.columns) == len(cct.schema.SLOTS)
    True
    """

    def __init__(
        self,
        ingress: Capture | str | os.PathLike[str],
        egress: Capture | str | os.PathLike[str] | None = None,
        *,
        slot_ms: float = 1.0,
        sampling: str | float = "all",
        seed: int = 0,
        speed: float | None = None,
        check_taps: bool = True,
    ) -> None:
        if speed is not None:
            number("speed", speed, low=LEAST_SPEED, high=MOST_SPEED)
        self.slot_ns = positive_ns(slot_ms, 1e6, "slot_ms")
        self.sampled = sampling not in ("all", 1)
        self.has_egress = egress is not None
        self._taps = {"ingress": _Tap(ingress, slot_ms, sampling, seed, with_acks=True)}
        if egress is not None:
            self._taps["egress"] = _Tap(egress, slot_ms, sampling, seed + 1, with_acks=False)
            if check_taps:
                compare_taps(*(tap.capture for tap in self._taps.values())).check()
        times = [tap.capture.columns["ts_ns"] for tap in self._taps.values() if len(tap.capture)]
        self.now_ns = min((int(ts[0]) for ts in times), default=0)
        self._end_ns = max((int(ts[-1]) for ts in times), default=0)
        self._speed = speed
        self._began = self.now_ns, time.monotonic_ns()
        self._heavy_from = self.now_ns

    def add(self, number: int, key: FlowKey) -> None:
        """Start monitoring a flow under this number.

        Raises
        ------
        ParameterError
            The flow is not in the capture.
        """
        if key not in self._taps["ingress"].ways:
            raise ParameterError(f"{key.src} {key.sport} {key.dst} {key.dport}: no such flow in the capture")
        self._set(key, number)

    def remove(self, key: FlowKey) -> None:
        """Stop monitoring a flow."""
        self._set(key, -1)

    def _set(self, key: FlowKey, number: int) -> None:
        for tap in self._taps.values():
            tap.number[tap.ways.get(key, [])] = number

    def heavy(self, least_bytes: int) -> list[tuple[FlowKey, int]]:
        """Flows with at least this many bytes of data at the ingress since the last call, and their bytes."""
        columns = self._taps["ingress"].between(self._heavy_from, self.now_ns).columns
        self._heavy_from = self.now_ns
        if least_bytes < 1:
            return []
        tcp = columns["tcp_flags"] != 0
        ways = (columns["flow_id"][tcp].astype(np.int64) << 1) | columns["direction"][tcp]
        sums = np.bincount(ways, columns["payload_bytes"][tcp])
        keys = self._taps["ingress"].keys
        return [(keys[way], int(sums[way])) for way in np.flatnonzero(sums >= least_bytes).tolist()]

    def read(self) -> Reading:
        """Cells of the packets since the last reading."""
        cells = {name: tap.take_cells() for name, tap in self._taps.items()}
        counts = {"egress": {"packets": 0, "segments": 0}} | {
            name: tap.counts for name, tap in self._taps.items()
        }
        return Reading(
            cells["ingress"],
            cells.get("egress", np.empty(0, CELL)),
            self.now_ns // self.slot_ns,
            counts,
        )

    def rtts(self) -> dict[int, tuple[float, float]]:
        """The shortest RTTs in ns from the tap to the receiver and to the sender of monitored flows, by number."""
        tap = self._taps["ingress"]
        ways = np.flatnonzero(tap.number >= 0)
        to_responder, to_initiator = tap.echoes.rtts_ns(ways >> 1).T
        forward = ways & 1 == 0
        receiver = np.where(forward, to_responder, to_initiator)
        sender = np.where(forward, to_initiator, to_responder)
        known = ~np.isnan(receiver + sender)
        both = zip(receiver[known].tolist(), sender[known].tolist(), strict=True)
        return dict(zip(tap.number[ways[known]].tolist(), both, strict=True))

    def wait(self, until_ns: int) -> bool:
        """Take the packets up to a time of the capture; False at its end."""
        if self.now_ns > self._end_ns:
            return False
        if self._speed is not None:
            due = self._began[1] + (until_ns - self._began[0]) / self._speed
            time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
        else:
            until_ns += self._idle_ns(until_ns)
        for tap in self._taps.values():
            tap.take(tap.between(self.now_ns, until_ns))
        self.now_ns = until_ns
        return True

    def _idle_ns(self, until_ns: int) -> int:
        """Whole periods to skip, without a packet or a monitored flow: a clock may have been set by years."""
        period_ns = until_ns - self.now_ns
        if period_ns <= 0 or any((tap.number >= 0).any() for tap in self._taps.values()):
            return 0
        rest = [
            ts[np.searchsorted(ts, self.now_ns) :]
            for ts in (t.capture.columns["ts_ns"] for t in self._taps.values())
        ]
        silent_ns = min((int(ts[0]) for ts in rest if len(ts)), default=until_ns) - until_ns
        return silent_ns // period_ns * period_ns if silent_ns > _SILENCE_NS else 0

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> CaptureCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Tap:
    """A capture and the cells collected from it."""

    def __init__(
        self,
        source: Capture | str | os.PathLike[str],
        slot_ms: float,
        sampling: str | float,
        seed: int,
        with_acks: bool,
    ) -> None:
        self.capture = _in_order(source if isinstance(source, Capture) else read_capture(source))
        self.keys = _keys(self.capture)
        self.ways: dict[FlowKey, list[int]] = {}  # successive flows may have the same 5-tuple
        for way, key in self.keys.items():
            self.ways.setdefault(key, []).append(way)
        self.number = np.full(max(self.keys, default=-1) + 1, -1)  # by way; -1: not monitored
        self.counts = {"packets": 0, "segments": 0}
        self._table = SlotTable(slot_ms, sampling, seed=seed)
        self._with_acks = with_acks
        self.echoes = TapRtts(self.capture.keys.flow_id if with_acks else [])

    def between(self, from_ns: int, until_ns: int) -> Capture:
        at, stop = np.searchsorted(self.capture.columns["ts_ns"], [from_ns, until_ns])
        columns = {name: column[at:stop] for name, column in self.capture.columns.items()}
        return Capture(columns, self.capture.keys, self.capture.meta)

    def take(self, part: Capture) -> None:
        self.counts["packets"] += len(part)
        self.counts["segments"] += int(
            ((part.columns["tcp_flags"] != 0) & (part.columns["payload_bytes"] != 0)).sum()
        )
        self._table.update(part)
        self.echoes.update(part.columns)

    def take_cells(self) -> np.ndarray:
        """Cells as from the kernel: of monitored flows, and of acknowledgements at the ingress only."""
        cells = self._table.take_cells()[0]
        number = self.number[cells["way"]]
        wanted = number >= 0
        if not self._with_acks:
            wanted &= cells["packets"] != 0
        cells = cells[wanted]
        cells["way"] = 2 * number[wanted]
        if not self._with_acks:
            cells["end"] = cells["acked"] = 0
        return cells


def _in_order(capture: Capture) -> Capture:
    """Packets with timestamps that never go backward."""
    ts = capture.columns["ts_ns"]
    if (ts[1:] >= ts[:-1]).all():
        return capture
    order = np.argsort(ts, kind="stable")
    columns = {name: column[order] for name, column in capture.columns.items()}
    return Capture(columns, capture.keys, capture.meta)


def _keys(capture: Capture) -> dict[int, FlowKey]:
    """Both directions of the capture's TCP flows."""
    flows = capture.keys.take(capture.keys.protocol == TCP)
    found = {}
    for flow, src, sport, dst, dport in zip(
        flows.flow_id.tolist(), flows.src_text(), flows.sport.tolist(), flows.dst_text(), flows.dport.tolist(),
        strict=True,
    ):  # fmt: skip
        found[2 * flow] = FlowKey(src, sport, dst, dport)
        found[2 * flow + 1] = FlowKey(dst, dport, src, sport)
    return found
