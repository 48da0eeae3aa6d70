"""The traffic of a capture as a scenario: the same transfers, through any queue."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from .._support.arguments import number, whole
from .._support.ethernet import FULL_FRAME_BYTES, FULL_SEGMENT_BYTES
from .._support.state import grown
from ..capture.model import Capture, columns_of
from ..errors import ParameterError
from ..scenario import Bottleneck, Flow, Scenario
from .buffers import bdp_bytes
from .meters import CaptureMeter

__all__ = ["BusiestSecond", "scenario_from_capture", "transfers"]


class BusiestSecond:
    """Traffic in the busiest second of a capture's busier direction, over batches: an estimate of the link rate.

    The directions are from the initiators of flows and to them. These are the link's if all initiators are on one
    side of it; a table of packets does not say on which side a host is.
    """

    def __init__(self) -> None:
        self._bytes: Counter[int] = Counter()  # by 2 * second + direction
        self._origin_ns: int | None = None

    def update(self, capture: Capture) -> None:
        """Add packets; their times may be anything, since one that is wrong must not decide what counts."""
        ts = capture.columns["ts_ns"]
        if len(ts) == 0:
            return
        if self._origin_ns is None:
            self._origin_ns = int(ts[0])
        second = (ts - self._origin_ns) // 1_000_000_000
        keys, row = np.unique(2 * second + capture.columns["direction"], return_inverse=True)
        found = np.bincount(row, capture.columns["wire_bytes"]).astype(np.int64)
        self._bytes.update(dict(zip(keys.tolist(), found.tolist(), strict=True)))

    @property
    def mbps(self) -> float:
        """Rate in Mbit/s; NaN without packets."""
        return max(self._bytes.values()) * 8e-6 if self._bytes else math.nan


def transfers(
    capture: Capture | Iterable[Capture], min_bytes: int = 10_000_000
) -> tuple[pd.DataFrame, float]:
    """The large TCP transfers of a capture.

    Parameters
    ----------
    capture : Capture, or the parts of one (:func:`cctoolkit.iter_capture`)
        The capture.
    min_bytes : int
        Smallest payload of a transfer in bytes. A flow can have a transfer in each direction.

    Returns
    -------
    DataFrame
        Transfers by start: ``flow_id``, ``direction``, ``start_s`` (of the data, since the first packet),
        ``end_s``, ``bytes`` (captured payload, including retransmissions but not gaps), ``share`` (of the flow's
        payload), ``rtt_ms`` (minimum over both legs, see :class:`~cctoolkit.separation.meters.CaptureMeter`; NaN if
        a direction is missing).
    float
        Rate in Mbit/s in the busiest second of the busier direction (from initiators or to them).

    Raises
    ------
    ParameterError
        `min_bytes` is less than 1.
    """
    number("min_bytes", min_bytes, low=1)
    meter, busiest = CaptureMeter(idle_s=1e9), BusiestSecond()
    payload, first, last = (np.zeros(0, np.int64) for _ in range(3))
    origin_ns: int | None = None
    if not isinstance(capture, Iterable | Capture) or isinstance(
        capture, pd.DataFrame | Mapping | str | bytes
    ):
        raise ParameterError(f"capture: expected a Capture or parts of one, found {type(capture).__name__}")
    for part in (capture,) if isinstance(capture, Capture) else capture:
        if not isinstance(part, Capture):
            raise ParameterError(f"capture: a part is a {type(part).__name__}, expected a Capture")
        columns = columns_of(part)
        if len(columns["ts_ns"]) == 0:
            continue
        origin_ns = int(columns["ts_ns"][0]) if origin_ns is None else origin_ns
        meter.update(columns, part.keys)
        busiest.update(part)
        data = (columns["payload_bytes"] > 0) & (columns["tcp_flags"] != 0)
        way = 2 * columns["flow_id"][data].astype(np.int64) + columns["direction"][data]
        n = 2 * (int(columns["flow_id"].max()) + 1)
        payload, first, last = grown(payload, n), grown(first, n), grown(last, n)
        found = np.bincount(way, columns["payload_bytes"][data], minlength=0).astype(np.int64)
        payload[: len(found)] += found
        since = columns["ts_ns"][data] - origin_ns + 1  # 0: none yet
        first[way] = np.where(first[way] == 0, np.iinfo(np.int64).max, first[way])
        np.minimum.at(first, way, since)
        np.maximum.at(last, way, since)
    way = np.flatnonzero(payload >= min_bytes)
    rtt = np.full(len(way), np.nan)
    if len(way):
        known = meter.metrics(1.0).set_index("flow_id").rtt_ms
        rtt = known.reindex(way // 2).to_numpy(np.float64)
    both = payload[way] + payload[way ^ 1] if len(way) else payload[way]
    table = pd.DataFrame(
        {
            "flow_id": way // 2,
            "direction": (way % 2).astype(np.int8),
            "start_s": (first[way] - 1) / 1e9,
            "end_s": (last[way] - 1) / 1e9,
            "bytes": payload[way],
            "share": payload[way] / np.maximum(both, 1),
            "rtt_ms": rtt,
        }
    )
    return table.sort_values(["start_s", "flow_id"], kind="stable", ignore_index=True), busiest.mbps


def scenario_from_capture(
    capture: Capture | Iterable[Capture],
    rate_mbps: float | None = None,
    *,
    min_bytes: int = 10_000_000,
    cca: Any = "cubic",
    aqm: Any = "tail_drop",
    buffer_bdp: float = 1.0,
    scale_bytes: float = 1.0,
    scale_time: float = 1.0,
    every: int = 1,
    default_rtt_ms: float | None = None,
    duration_s: float | None = None,
    seed: int = 1,
) -> Scenario:
    """Make a scenario of the large transfers in a capture: their starts, volumes and RTTs, through any bottleneck.

    Parameters
    ----------
    capture : Capture, or the parts of one (:func:`cctoolkit.iter_capture`)
        The capture; use parts for a MAWI day.
    rate_mbps : float, optional
        Rate of the bottleneck in Mbit/s; by default that of the busiest second in the busier direction, from the
        initiators of flows or to them.
    min_bytes : int
        Smallest payload of a transfer in bytes; long flows of the RTT paper have 10 MB or more. A flow with this
        much in both directions becomes two.
    cca : Cca, class, name or mapping
        Congestion control of all flows, which a capture does not show.
    aqm : Aqm, class, name or mapping
        Queue management.
    buffer_bdp : float
        Buffer in bandwidth-delay products of the longest RTT.
    scale_bytes, scale_time : float
        Factors for volumes and starts. Starts count from the first transfer.
    every : int
        Use only every n-th transfer, ordered by start.
    default_rtt_ms : float, optional
        RTT in ms of transfers whose other direction was not captured; by default these are left out.
    duration_s : float, optional
        Duration in s; by default the time in which the link can carry everything twice.
    seed : int
        Random seed.

    Returns
    -------
    Scenario
        The scenario. ``flows.name`` is ``"flow N"`` with the number in the capture, or ``"flow N back"`` for data
        of the responder.

    Raises
    ------
    ParameterError
        A value is invalid, or there are no transfers.

    See Also
    --------
    simulate : run the scenario
    read_capture, iter_capture : read the capture

    Examples
    --------
    >>> scenario = cct.scenario_from_capture(cct.example("mixed").ingress, min_bytes=1_000_000, every=2)
    >>> [(flow.name, round(flow.rtt_ms), flow.bytes) for flow in scenario.flows]
    [('flow 0', 20, 5389128), ('flow 9', 40, 16224164)]
    """
    for name, value in (("buffer_bdp", buffer_bdp), ("scale_bytes", scale_bytes), ("scale_time", scale_time)):
        number(name, value, above=0)
    every = whole("every", every, low=1)
    table, busiest = transfers(capture, min_bytes)
    found = len(table)
    if default_rtt_ms is not None:
        table["rtt_ms"] = table.rtt_ms.fillna(default_rtt_ms)
    table = table[table.rtt_ms.notna()].iloc[::every]
    if not len(table):
        raise ParameterError(
            f"capture: {found} flows have {min_bytes} bytes in a direction, but none has a known RTT"
            if found
            else f"capture: no TCP flow has {min_bytes} bytes in a direction (min_bytes)"
        )
    rate = busiest if rate_mbps is None else rate_mbps
    room = max(math.ceil(buffer_bdp * bdp_bytes(rate, max(table.rtt_ms.max(), 1e-3))), 10 * FULL_FRAME_BYTES)
    volume = np.maximum(np.rint(table.bytes * scale_bytes), 1).astype(np.int64)
    start = (table.start_s - table.start_s.iloc[0]) * scale_time
    if duration_s is None:
        sending_s = volume.sum() * 8e-6 * FULL_FRAME_BYTES / FULL_SEGMENT_BYTES / rate
        duration_s = math.ceil(start.iloc[-1] + 2 * sending_s) + 1.0
    flows = tuple(
        Flow(
            cca,
            rtt_ms=round(float(rtt), 6),
            start_s=round(float(at), 9),
            bytes=int(octets),
            name=f"flow {flow_id}{' back' if way else ''}",
        )
        for flow_id, way, at, octets, rtt in zip(
            table.flow_id, table.direction, start, volume, table.rtt_ms, strict=True
        )
    )
    bottleneck = Bottleneck(rate_mbps=round(float(rate), 6), buffer_bytes=room, aqm=aqm)
    return Scenario(bottleneck=bottleneck, flows=flows, duration_s=duration_s, seed=seed)
