"""Builds the captures of both taps from the rows of the event loop."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..capture.keys import CaptureMeta, FlowKeys
from ..capture.model import Capture
from ..scenario import Flow, Scenario
from ..scenario.endpoints import DESTINATION_PORT, RECEIVERS, SENDERS, octets, source_port
from ..schema import PACKETS
from .layout import ROW, WHY

__all__ = ["Taps", "flow_keys"]

_WINDOW_SCALE = 10
_FIRST_ROWS = 1 << 16


class Taps:
    """Collects rows and builds captures; flow `i` of the scenario has flow number `i`."""

    def __init__(self, flows: list[Flow], rng: np.random.Generator) -> None:
        n = len(flows)
        self._specs = flows
        self.isn = rng.integers(0, 2**32, n, np.uint32)
        self.irs = rng.integers(0, 2**32, n, np.uint32)
        self._columns = {"ingress": _Columns(), "egress": _Columns()}
        self._drops: list[np.ndarray] = []

    def add(self, ingress: np.ndarray, egress: np.ndarray, drops: np.ndarray) -> None:
        """Copy rows from the buffers of the loop."""
        self._columns["ingress"].add(ingress)
        self._columns["egress"].add(egress)
        self._drops.append(drops.copy())

    def captures(self, scenario: Scenario) -> tuple[Capture, Capture, pd.DataFrame]:
        """Both taps, and the table of lost packets.

        The ingress capture has a further column ``dropped``, true for packets that did not leave the bottleneck.
        """
        drops = np.concatenate(self._drops)
        why = np.array([*WHY])[drops["why"]]
        dropped = drops[drops["why"] < WHY.index("path")]
        captures = {}
        new_row = np.zeros(0, np.int64)
        for name, recorded in self._columns.items():
            columns = recorded.table()
            n = len(columns["ts_ns"])
            if name == "ingress":
                columns["dropped"] = np.zeros(n, np.bool_)
                columns["dropped"][dropped["packet"]] = True
            order = None
            ts = columns["ts_ns"]
            if n and (ts[1:] < ts[:-1]).any():
                order = np.argsort(ts, kind="stable")
                columns = {field: column[order] for field, column in columns.items()}
            if name == "ingress":
                new_row = np.arange(n)
                if order is not None:
                    new_row[order] = np.arange(n)
            captures[name] = self._capture(name, columns, scenario)
        table = pd.DataFrame(
            {
                "ts_ns": drops["ts_ns"],
                "flow_id": drops["flow_id"].astype(np.uint32),
                "queue": drops["queue"],
                "packet": new_row[drops["packet"]] if len(drops) else drops["packet"],
                "why": pd.Categorical(why, categories=list(WHY)),
            }
        )
        return captures["ingress"], captures["egress"], table

    def _capture(self, name: str, columns: dict[str, np.ndarray], scenario: Scenario) -> Capture:
        ts = columns["ts_ns"]
        n = len(ts)
        packets = np.bincount(columns["flow_id"], minlength=len(self._specs))
        keys = flow_keys(self._specs, np.flatnonzero(packets))
        wire = int(columns["wire_bytes"].sum(dtype=np.int64))
        udp = int((columns["tcp_flags"] == 0).sum())
        meta = CaptureMeta(
            path=f"{scenario.name or 'simulation'}.{name}",
            format="simulation",
            link_types=["ETHERNET"],
            frames=n,
            packets=n,
            first_ts_ns=int(ts[0]) if n else 0,
            last_ts_ns=int(ts[-1]) if n else 0,
            wire_bytes=wire,
            captured_bytes=wire,
            dropped=0,
            counts={"ipv4": n, "tcp": n - udp, "udp": udp},
        )
        return Capture(columns, keys, meta)


class _Columns:
    """Columns of the packets table that grow row by row.

    Whole columns from the start, not parts to be joined later: large arrays are backed by large pages, and copied once.
    """

    def __init__(self) -> None:
        self._n = 0
        self._columns = {field: np.empty(_FIRST_ROWS, PACKETS[field]) for field in ROW.names or ()}

    def add(self, rows: np.ndarray) -> None:
        begin, self._n = self._n, self._n + len(rows)
        for field, column in self._columns.items():
            if self._n > len(column):
                larger = np.empty(max(self._n, 2 * len(column)), column.dtype)
                larger[:begin] = column[:begin]
                self._columns[field] = column = larger
            column[begin : self._n] = rows[field]

    def table(self) -> dict[str, np.ndarray]:
        """All columns, in the order of the packets table."""
        columns = {field: column[: self._n] for field, column in self._columns.items()}
        columns["dscp"] = np.zeros(self._n, np.uint8)
        columns["ttl"] = np.full(self._n, 64, np.uint8)
        return {field: columns[field] for field in PACKETS}


def flow_keys(specs: list[Flow], flow_id: np.ndarray) -> FlowKeys:
    """Keys of the flows, with the addresses and ports of :mod:`cctoolkit.scenario.endpoints`."""
    n = len(flow_id)
    i = flow_id.astype(np.int64)
    src, dst = np.zeros((n, 16), np.uint8), np.zeros((n, 16), np.uint8)
    for address, side in ((src, SENDERS), (dst, RECEIVERS)):
        for column, octet in enumerate(octets(side, i)):
            address[:, column] = octet
    udp = np.array([specs[k].is_udp for k in i], np.bool_).reshape(n)
    mss = np.array([specs[k].packet_bytes - 54 for k in i], np.uint16).reshape(n)
    tcp2 = np.repeat(~udp[:, None], 2, axis=1)
    return FlowKeys(
        flow_id=flow_id.astype(np.uint32),
        ip_version=np.full(n, 4, np.uint8),
        protocol=np.where(udp, 17, 6).astype(np.uint8),
        sport=source_port(i).astype(np.uint16),
        dport=np.full(n, DESTINATION_PORT, np.uint16),
        src=src,
        dst=dst,
        saw_syn=~udp,
        mss=np.where(tcp2, mss[:, None], 0).astype(np.uint16),
        window_scale=np.where(tcp2, _WINDOW_SCALE, 255).astype(np.uint8),
        sack_permitted=tcp2,
    )
