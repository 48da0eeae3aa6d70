"""Counts of all packets of a capture by second."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .._support.kernels import kernel
from .._support.state import grown
from ..capture.keys import FlowKeys
from ..capture.protocols import ACK, RST, SYN, TCP, UDP
from ..errors import ParameterError
from .tables import TABLES

__all__ = ["Seconds"]

_COUNTED = [name for name in TABLES["seconds"] if name not in ("second", "start_ns")]
_PACKETS, _BYTES, _PAYLOAD, _TCP_PACKETS, _TCP_BYTES, _UDP_PACKETS, _UDP_BYTES, _ECT, _CE, _SYNS, _RESETS, _NEW = (
    range(len(_COUNTED))
)  # fmt: skip
_MOST = 10_000_000


@kernel
def _count(ts, flow_id, wire, payload, ecn, tcp_flags, protocol, next_flow, origin_ns, sums):
    """Add packets to the counts of their seconds.

    Parameters
    ----------
    ts, flow_id, wire, payload, ecn, tcp_flags : arrays
        Columns of the packets table (:data:`cctoolkit.schema.PACKETS`).
    protocol : uint8 array
        IP protocol by flow number.
    next_flow : int
        Number of the next new flow.
    origin_ns : int
        Start of the first second.
    sums : int64 array, shape (seconds, counts)
        Updated.

    Returns
    -------
    int
        Number of the next new flow afterwards.
    """
    for i in range(len(ts)):
        s = sums[
            max((ts[i] - origin_ns) // 1_000_000_000, 0)
        ]  # timestamp before the first packet: counts in the first second
        s[_PACKETS] += 1
        s[_BYTES] += wire[i]
        s[_PAYLOAD] += payload[i]
        kind = protocol[flow_id[i]]
        if kind == TCP:
            s[_TCP_PACKETS] += 1
            s[_TCP_BYTES] += wire[i]
            flags = tcp_flags[i]
            s[_SYNS] += flags & (SYN | ACK) == SYN
            s[_RESETS] += flags & RST != 0
        elif kind == UDP:
            s[_UDP_PACKETS] += 1
            s[_UDP_BYTES] += wire[i]
        s[_ECT] += ecn[i] != 0
        s[_CE] += ecn[i] == 3
        if flow_id[i] >= next_flow:  # flows are numbered in order of first packets
            s[_NEW] += 1
            next_flow = np.int64(flow_id[i]) + 1
    return next_flow


class Seconds:
    """Counts by second, over batches; takes 1 byte of memory per flow and 96 per second.

    Seconds count from the first packet, like the bins of :func:`cctoolkit.throughput`.
    """

    def __init__(self) -> None:
        self._origin_ns: int | None = None
        self._last_ns = 0
        self._next_flow = 0
        self._protocol = np.zeros(0, np.uint8)
        self._sums = np.zeros((0, len(_COUNTED)), np.int64)

    def update(self, columns: dict[str, np.ndarray], keys: FlowKeys) -> None:
        """Add packets and the keys of their flows.

        Raises
        ------
        ParameterError
            The capture spans more than ten million seconds.
        """
        ts = columns["ts_ns"]
        if not len(ts):
            return
        if self._origin_ns is None:
            self._origin_ns = self._last_ns = int(ts[0])
        self._last_ns = max(self._last_ns, int(ts.max()))
        if self._seconds() > _MOST:
            raise ParameterError(
                f"its packets are up to {self._seconds():,} seconds apart: is a timestamp wrong?"
            )
        self._sums = grown(self._sums, self._seconds())
        self._protocol = grown(self._protocol, int(keys.flow_id[-1]) + 1)
        self._protocol[keys.flow_id] = keys.protocol
        self._next_flow = _count(
            ts,
            columns["flow_id"],
            columns["wire_bytes"],
            columns["payload_bytes"],
            columns["ecn"],
            columns["tcp_flags"],
            self._protocol,
            self._next_flow,
            self._origin_ns,
            self._sums,
        )

    def _seconds(self) -> int:
        return 0 if self._origin_ns is None else (self._last_ns - self._origin_ns) // 1_000_000_000 + 1

    def result(self) -> pd.DataFrame:
        """Table ``seconds`` of a dataset: all seconds from the first packet to the last."""
        n = self._seconds()
        second = np.arange(n)
        table = {"second": second, "start_ns": (self._origin_ns or 0) + second * 1_000_000_000}
        return pd.DataFrame(table | {name: self._sums[:n, i] for i, name in enumerate(_COUNTED)})
