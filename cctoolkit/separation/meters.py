"""Flow metrics for a controller, measured during a run or from the packets of a capture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.arguments import number
from .._support.ethernet import FULL_FRAME_BYTES
from .._support.state import grown
from ..analysis.rtt import RttPairing
from ..capture.model import Capture
from ..capture.protocols import TCP, UDP

if TYPE_CHECKING:
    from ..capture.keys import FlowKeys

__all__ = ["LONG_BYTES", "METRICS", "CaptureMeter", "RunMeter", "capture_metrics"]

#: Columns of the table of flow metrics, with one row per current flow.
METRICS = (
    "flow_id",  # int
    "protocol",  # 6 TCP, 17 UDP
    "rtt_ms",  # base RTT: the sum of the smallest seen on both sides of the tap; NaN: unknown
    "latest_rtt_ms",  # the last one measured, including queueing; NaN: unknown
    "throughput_mbps",  # recently delivered
    "offered_mbps",  # recently arriving at the bottleneck
    "is_long",  # has carried more than the threshold (10 MB in the paper)
)
#: Threshold of the paper for long flows.
LONG_BYTES = 10_000_000


class RunMeter:
    """Metrics of the flows of a simulation or testbed, read repeatedly.

    Parameters
    ----------
    long_bytes : int
        A flow is long if it has sent more.
    smoothing_s : float
        Time constant of the rates in s.

    Notes
    -----
    The minimum RTT of a simulated sender is, to the nanosecond, the sum of the minimum times from pairing segments
    with acknowledgements at the ingress tap in both directions (including the handshake for the side that sends no
    data), and without an access delay its latest RTT is the latest sample at the tap; a test compares them. So
    nothing is used here that a passive tap would not know, and packets need not be recorded. An exact count of
    bytes replaces the count-min sketch.
    """

    def __init__(self, long_bytes: int = LONG_BYTES, smoothing_s: float = 0.5) -> None:
        self.long_bytes, self.smoothing_s = int(long_bytes), float(smoothing_s)
        self._before_s = 0.0
        self._counts = self._rates = (np.zeros(0), np.zeros(0))  # received, sent
        #: Congestion controls, which flows are UDP, and packet sizes.
        self._kinds: tuple[Any, np.ndarray, np.ndarray | float] | None = None

    def read(self, target: Any) -> pd.DataFrame:
        """Read :data:`METRICS` and ``cca`` of the current flows.

        Parameters
        ----------
        target : object
            Has ``now_s`` and ``flow_columns()`` like a :class:`~cctoolkit.Simulation`; always the same one.
        """
        flows, now_s = target.flow_columns(), float(target.now_s)
        if self._kinds is None:  # which stay the same
            n = len(flows["cca"])
            udp = np.array([cca == "udp" for cca in flows["cca"]], np.bool_)
            self._kinds = pd.array(flows["cca"], "str"), udp, self._packet_bytes(target, n)
            self._counts, self._rates = (np.zeros(n), np.zeros(n)), (np.zeros(n), np.zeros(n))
        cca, udp, packet_bytes = self._kinds
        sent = np.asarray(flows["sent_packets"], np.float64) * packet_bytes
        received = np.asarray(flows["received_bytes"], np.float64)
        passed_s = max(now_s - self._before_s, 1e-9)
        keep = math.exp(-passed_s / self.smoothing_s)
        for rate, before, count in zip(self._rates, self._counts, (received, sent), strict=True):
            now = (count - before) * 8e-6 / passed_s
            rate[:] = np.where(before > 0, keep * rate + (1 - keep) * now, now)
            before[:] = count
        self._before_s = now_s
        there = (sent > 0) & np.isnan(flows["end_s"]) & (udp | ~np.isnan(flows["min_rtt_ms"]))
        there &= ~udp | (self._rates[1] > 0)
        return pd.DataFrame(
            {
                "flow_id": flows["flow_id"][there].astype(np.int64),
                "protocol": np.where(udp, UDP, TCP)[there],
                "rtt_ms": flows["min_rtt_ms"][there],
                "latest_rtt_ms": flows["latest_rtt_ms"][there],
                "throughput_mbps": self._rates[0][there],
                "offered_mbps": self._rates[1][there],
                "is_long": (sent > self.long_bytes)[there],
                "cca": cca[there],
            }
        )

    @staticmethod
    def _packet_bytes(target: Any, n: int) -> np.ndarray | float:
        scenario = getattr(target, "scenario", None)
        if scenario is None:
            return float(FULL_FRAME_BYTES)
        sizes = np.fromiter((f.packet_bytes for f in scenario.flows for _ in range(f.count)), np.float64)
        return sizes if sizes.size == n else float(FULL_FRAME_BYTES)


#: An `idle_s` that is longer than between any two times.
NEVER_IDLE_S = 9e9


class CaptureMeter:
    """Metrics of the flows of a capture, part by part, as known to a passive tap.

    Parameters
    ----------
    long_bytes : int
        A flow is long once a direction has more bytes on the wire.
    idle_s : float
        A flow ends after this time without packets, in s.

    Notes
    -----
    The RTT of a flow is the sum of the minimum times between a segment and its ACK in both directions: from the tap
    to one end and back, and to the other. A direction without a sample counts as 0, and a flow without samples has
    no RTT. The handshake alone has both.
    """

    def __init__(self, long_bytes: int = LONG_BYTES, idle_s: float = 2.0) -> None:
        self.long_bytes = int(number("long_bytes", long_bytes, above=0))
        self.idle_ns = round(number("idle_s", idle_s, above=0) * 1e9)
        self._pairing = RttPairing("seq_ack")
        self._wire = np.zeros(0, np.int64)  # indexed by 2 * flow_id + direction
        self._lately = np.zeros(0, np.int64)  # since the last call of metrics()
        self._payload = np.zeros(0, np.int64)
        self._min_rtt = np.zeros(0, np.int64)  # plus 1; 0: none
        self._last_rtt = np.zeros(0, np.int64)
        self._last = np.zeros(0, np.int64)  # indexed by flow; since the first packet of all, plus 1; 0: none
        self._protocol = np.zeros(0, np.uint8)
        self._origin_ns: int | None = None
        self._now_ns = 0  # since the first packet

    def update(self, columns: Mapping[str, np.ndarray], keys: FlowKeys) -> None:
        """Add packets.

        Parameters
        ----------
        columns : mapping of arrays
            A part of the packets table.
        keys : FlowKeys
            Keys of at least its flows.
        """
        flow_id = columns["flow_id"].astype(np.int64)
        if len(flow_id) == 0:
            return
        way = 2 * flow_id + columns["direction"]
        n = max(int(flow_id.max()), int(keys.flow_id.max())) + 1
        for name in ("_wire", "_lately", "_payload", "_min_rtt", "_last_rtt"):
            setattr(self, name, grown(getattr(self, name), 2 * n))
        self._last, self._protocol = grown(self._last, n), grown(self._protocol, n)
        wire = np.bincount(way, columns["wire_bytes"]).astype(np.int64)
        self._wire[: len(wire)] += wire
        self._lately[: len(wire)] += wire
        self._payload[: len(wire)] += np.bincount(way, columns["payload_bytes"]).astype(np.int64)
        if self._origin_ns is None:
            self._origin_ns = int(columns["ts_ns"][0])
        since_ns = np.maximum(columns["ts_ns"] - self._origin_ns, 0)
        np.maximum.at(self._last, flow_id, since_ns + 1)
        self._protocol[keys.flow_id] = keys.protocol
        samples = self._pairing.update(dict(columns))
        at = 2 * samples["flow_id"].astype(np.int64) + samples["direction"]
        rtt = samples["rtt_ns"] + 1
        self._min_rtt[at] = np.where(self._min_rtt[at] == 0, np.iinfo(np.int64).max, self._min_rtt[at])
        np.minimum.at(self._min_rtt, at, rtt)
        self._last_rtt[at] = rtt  # of several, the last one counts
        self._now_ns = max(self._now_ns, int(since_ns.max()))

    def metrics(self, interval_s: float) -> pd.DataFrame:
        """Metrics of the current flows.

        Parameters
        ----------
        interval_s : float
            Time covered by the packets since the last call in s, for rates.

        Returns
        -------
        DataFrame
            :data:`METRICS`, ``direction`` of the data (the one with more payload), and its ``bytes`` so far.
        """
        flows = np.flatnonzero((self._last > 0) & (self._last - 1 > self._now_ns - self.idle_ns))
        data = (self._payload[2 * flows + 1] > self._payload[2 * flows]).astype(np.int64)
        forth, back = 2 * flows + data, 2 * flows + 1 - data
        minimum = np.stack([self._min_rtt[forth], self._min_rtt[back]])
        there = minimum > 0
        legs = np.where(there, minimum - 1, 0) / 1e6
        # queueing affects the direction of the data; the other one is constant
        last_rtt_ms = (self._last_rtt[forth] - 1) / 1e6 + legs[1]
        rate = self._lately[forth] * 8e-6 / interval_s
        self._lately[:] = 0
        return pd.DataFrame(
            {
                "flow_id": flows,
                "protocol": self._protocol[flows].astype(np.int64),
                "rtt_ms": np.where(there.any(axis=0), legs.sum(axis=0), np.nan),
                "latest_rtt_ms": np.where(self._last_rtt[forth] > 0, last_rtt_ms, np.nan),
                "throughput_mbps": rate,
                "offered_mbps": rate,
                "is_long": self._wire[forth] > self.long_bytes,
                "direction": data,
                "bytes": self._wire[forth],
            }
        )


def capture_metrics(capture: Capture, long_bytes: int = LONG_BYTES) -> pd.DataFrame:
    """Metrics of all flows of a capture, as a single interval: see :meth:`CaptureMeter.metrics`.

    Parameters
    ----------
    capture : Capture
        The capture.
    long_bytes : int
        A flow is long if a direction has more bytes on the wire.

    Returns
    -------
    DataFrame
        One row per flow.
    """
    meter = CaptureMeter(long_bytes, idle_s=NEVER_IDLE_S)
    meter.update(capture.columns, capture.keys)
    return meter.metrics(max(capture.duration_s, 1e-9))
