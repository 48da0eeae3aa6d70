"""What reading a capture gives: the packets table, who its flows are, and what is known of the file."""

from __future__ import annotations

import html
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ..errors import ParameterError
from ..schema import PACKETS, SACKS, arrays, write_parquet

__all__ = ["Capture", "CaptureMeta", "FlowKeys"]

PROTOCOL_NAMES = {
    0: "HOPOPT",
    1: "ICMP",
    2: "IGMP",
    4: "IPIP",
    6: "TCP",
    17: "UDP",
    33: "DCCP",
    41: "IPv6",
    47: "GRE",
    50: "ESP",
    51: "AH",
    58: "ICMPv6",
    89: "OSPF",
    103: "PIM",
    112: "VRRP",
    115: "L2TP",
    132: "SCTP",
    136: "UDPLite",
}


def protocol_name(number: int) -> str:
    """IANA's keyword of an IP protocol number, or the number where it is not a common one."""
    return PROTOCOL_NAMES.get(int(number), str(int(number)))


def protocol_number(name: str | int) -> int:
    """The reverse of :func:`protocol_name`; takes numbers too.

    Raises
    ------
    ParameterError
        No such protocol.
    """
    if isinstance(name, int | np.integer) or name.isdigit():
        if not 0 <= int(name) <= 255:
            raise ParameterError(f"protocol: {name} is not between 0 and 255")
        return int(name)
    for number, keyword in PROTOCOL_NAMES.items():
        if keyword.lower() == name.lower():
            return number
    raise ParameterError(
        f"protocol: {name!r} is not one of {', '.join(PROTOCOL_NAMES.values())} and no number"
    )


@dataclass(frozen=True)
class FlowKeys:
    """Who the flows are, as arrays with one row a flow, in order of ``flow_id``.

    Attributes
    ----------
    flow_id : uint32, shape (n,)
    ip_version, protocol : uint8, shape (n,)
    sport, dport : uint16, shape (n,)
        The initiator's port and the other's.
    src, dst : uint8, shape (n, 16)
        Addresses in network byte order; an IPv4 address is the first 4 bytes.
    saw_syn : bool, shape (n,)
        The initiator's SYN was captured.
    mss : uint16, shape (n, 2)
        Announced by initiator and responder; 0: not seen.
    window_scale : uint8, shape (n, 2)
        255: not seen.
    sack_permitted : bool, shape (n, 2)
    """

    flow_id: np.ndarray
    ip_version: np.ndarray
    protocol: np.ndarray
    sport: np.ndarray
    dport: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    saw_syn: np.ndarray
    mss: np.ndarray
    window_scale: np.ndarray
    sack_permitted: np.ndarray

    def __len__(self) -> int:
        return len(self.flow_id)

    def take(self, rows: np.ndarray) -> FlowKeys:
        """These rows only (a boolean mask or row numbers)."""
        return FlowKeys(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @staticmethod
    def concatenate(parts: Iterable[FlowKeys]) -> FlowKeys:
        """The keys of several parts of one capture as one; of a flow in several parts the last word counts."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        joined = FlowKeys(
            **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(FlowKeys)}
        )
        # the last of each run of equal ids in a stable order
        order = np.argsort(joined.flow_id, kind="stable")
        ids = joined.flow_id[order]
        return joined.take(order[np.append(ids[1:] != ids[:-1], True)] if len(ids) else order)

    def src_text(self) -> list[str]:
        """The initiators' addresses as text."""
        return _addresses_text(self.src, self.ip_version)

    def dst_text(self) -> list[str]:
        """The responders' addresses as text."""
        return _addresses_text(self.dst, self.ip_version)


def _addresses_text(address: np.ndarray, version: np.ndarray) -> list[str]:
    """Addresses as text, each different one converted once."""
    if not len(address):
        return []
    words = np.ascontiguousarray(address).view(">u8")
    keyed = np.empty((len(address), 3), np.uint64)
    keyed[:, :2] = words
    keyed[:, 2] = version
    rows = np.ascontiguousarray(keyed).view([("", np.uint64)] * 3).ravel()
    unique, inverse = np.unique(rows, return_inverse=True)
    texts = np.empty(len(unique), object)
    for i, (high, low, v) in enumerate(unique.tolist()):
        if v == 4:
            a = high >> 32
            texts[i] = f"{a >> 24}.{a >> 16 & 255}.{a >> 8 & 255}.{a & 255}"
        else:
            texts[i] = str(ipaddress.IPv6Address(high << 64 | low))
    return texts[inverse].tolist()


@dataclass
class CaptureMeta:
    """What is known of a capture besides its packets.

    Attributes
    ----------
    path : str
    format : str
        ``"pcap"`` or ``"pcapng"``.
    compression : str
        ``"none"``, ``"gz"``, ``"xz"`` or ``"zstd"``.
    link_types : list of str
        LINKTYPE_ names, in order of appearance.
    snaplen : int
        The largest of the interfaces'; 0 means no limit.
    frames, packets : int
        Frames in the file, and those of them with an IP header (rows of the packets table).
    first_ts_ns, last_ts_ns : int
        Of the packets: smallest and largest; 0 without packets.
    wire_bytes, captured_bytes : int
        Of all frames.
    dropped : int or None
        Packets the capturing machine says it lost (pcapng interface statistics); None: it does not say.
    counts : dict of str to int
        By :data:`cctoolkit.capture.headers.COUNTS`.
    truncated : bool
        The file ends, or is damaged, in the middle of a packet.
    notes : list of str
        What a reader of the results should know.
    """

    path: str
    format: str = "pcap"
    compression: str = "none"
    link_types: list[str] = field(default_factory=list)
    snaplen: int = 0
    frames: int = 0
    packets: int = 0
    first_ts_ns: int = 0
    last_ts_ns: int = 0
    wire_bytes: int = 0
    captured_bytes: int = 0
    dropped: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    truncated: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def duration_s(self) -> float:
        """From the first packet to the last."""
        return (self.last_ts_ns - self.first_ts_ns) / 1e9


class Capture:
    """Packets, whatever made them; or a part of them.

    Parameters
    ----------
    columns : dict of str to array
        The packets table as arrays (:data:`cctoolkit.schema.PACKETS`); extra columns are kept.
    keys : FlowKeys
    meta : CaptureMeta
    sacks : int64 array, shape (n, 3)
        SACK blocks: row of the packets table, left edge, right edge.
    """

    def __init__(
        self,
        columns: dict[str, np.ndarray],
        keys: FlowKeys,
        meta: CaptureMeta,
        sacks: np.ndarray | None = None,
    ) -> None:
        self.columns = columns
        self.keys = keys
        self.meta = meta
        self._sacks = np.empty((0, 3), np.int64) if sacks is None else sacks

    @cached_property
    def packets(self) -> pd.DataFrame:
        """The packets table (:data:`cctoolkit.schema.PACKETS`); shares memory with :attr:`columns`."""
        return pd.DataFrame(self.columns, copy=False)

    @cached_property
    def flows(self) -> pd.DataFrame:
        """The flows table (:data:`cctoolkit.schema.FLOWS`), computed at first use."""
        from ..flows import flow_table

        return flow_table(self.columns, self.keys)

    @cached_property
    def sacks(self) -> pd.DataFrame:
        """SACK blocks (:data:`cctoolkit.schema.SACKS`)."""
        return pd.DataFrame(
            {name: self._sacks[:, i].astype(dtype) for i, (name, dtype) in enumerate(SACKS.items())}
        )

    def __len__(self) -> int:
        return len(self.columns["ts_ns"])

    @property
    def duration_s(self) -> float:
        """From the first packet to the last."""
        return self.meta.duration_s

    def select(
        self,
        *,
        flow_id: int | Iterable[int] | None = None,
        host: str | None = None,
        port: int | None = None,
        protocol: str | int | None = None,
        start_s: float | None = None,
        stop_s: float | None = None,
    ) -> Capture:
        """The packets that fit all that is given; flow numbers stay as they are.

        Parameters
        ----------
        flow_id : int or iterable of int
        host : str
            An address or network (``"10.0.0.0/8"``, ``"2001:db8::/32"``), of either end.
        port : int
            Of either end.
        protocol : str or int
            ``"tcp"``, ``"udp"``, … or a number.
        start_s, stop_s : float
            Seconds from the capture's first packet, ``start_s <= t < stop_s``.

        Raises
        ------
        ParameterError
            A host that is no address, an unknown protocol, a flow that is not there.
        """
        keep_flow = np.ones(len(self.keys), bool)
        if flow_id is not None:
            wanted = np.atleast_1d(
                np.asarray(flow_id if isinstance(flow_id, int | np.integer) else list(flow_id))
            )
            missing = np.setdiff1d(wanted, self.keys.flow_id)
            if len(missing):
                raise ParameterError(f"flow_id: no flow {missing[0]} in {self.meta.path}")
            keep_flow &= np.isin(self.keys.flow_id, wanted)
        if host is not None:
            keep_flow &= _in_network(self.keys, host)
        if port is not None:
            keep_flow &= (self.keys.sport == port) | (self.keys.dport == port)
        if protocol is not None:
            keep_flow &= self.keys.protocol == protocol_number(protocol)

        if keep_flow.all():
            keep = np.ones(len(self), bool)
        else:
            keep = keep_flow[np.searchsorted(self.keys.flow_id, self.columns["flow_id"])]
        ts = self.columns["ts_ns"]
        if start_s is not None:
            keep &= ts >= self.meta.first_ts_ns + round(start_s * 1e9)
        if stop_s is not None:
            keep &= ts < self.meta.first_ts_ns + round(stop_s * 1e9)
        return self._rows(keep)

    def _rows(self, keep: np.ndarray) -> Capture:
        columns = {name: column[keep] for name, column in self.columns.items()}
        new_row = np.cumsum(keep) - 1
        sacks = self._sacks[keep[self._sacks[:, 0]]].copy()
        sacks[:, 0] = new_row[sacks[:, 0]]
        present = np.unique(columns["flow_id"])
        keys = self.keys.take(np.searchsorted(self.keys.flow_id, present))
        ts = columns["ts_ns"]
        # a selection has no frames of its own: what the file said stays in notes and counts of the whole
        meta = CaptureMeta(
            path=self.meta.path,
            format=self.meta.format,
            compression=self.meta.compression,
            link_types=list(self.meta.link_types),
            snaplen=self.meta.snaplen,
            frames=len(ts),
            packets=len(ts),
            first_ts_ns=int(ts.min()) if len(ts) else 0,
            last_ts_ns=int(ts.max()) if len(ts) else 0,
            wire_bytes=int(columns["wire_bytes"].sum(dtype=np.int64)),
            truncated=self.meta.truncated,
            notes=[*self.meta.notes, f"a selection: {len(ts)} of {len(self)} packets"],
        )
        return Capture(columns, keys, meta, sacks)

    def to_pcap(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the packets as a capture with zeros for payload; see :func:`cctoolkit.capture.writer.write_pcap`."""
        from .writer import write_pcap

        write_pcap(path, self, **options)

    def to_parquet(self, directory: str | os.PathLike[str], provenance: dict[str, Any] | None = None) -> None:
        """Write ``packets.parquet``, ``flows.parquet`` and ``sacks.parquet`` into a directory."""
        from pathlib import Path

        info = {"capture": self.meta.path, **(provenance or {})}
        for table in ("packets", "flows", "sacks"):
            write_parquet(getattr(self, table), Path(directory) / f"{table}.parquet", table, info)

    def explore(self) -> Any:
        """Pick flows in a notebook and see their plots; see :func:`cctoolkit.explore.explore`."""
        from ..explore import explore

        return explore(self)

    def __repr__(self) -> str:
        m = self.meta
        return (
            f"<Capture {m.path}: {len(self)} packets, {len(self.keys)} flows, "
            f"{self.duration_s:.3f} s, {m.wire_bytes / 1e6:.1f} MB on the wire>"
        )

    def _repr_html_(self) -> str:
        m = self.meta
        start = pd.Timestamp(m.first_ts_ns, unit="ns", tz="UTC") if len(self) else None
        rows = [
            ("file", m.path),
            (
                "format",
                f"{m.format}, {', '.join(m.link_types) or 'no interface'}, compression {m.compression}",
            ),
            ("snap length", f"{m.snaplen or 'none'}"),
            ("start (UTC)", f"{start:%Y-%m-%d %H:%M:%S.%f}" if start is not None else "no packets"),
            ("duration", f"{self.duration_s:.3f} s"),
            ("packets", f"{len(self):,} with an IP header, of {m.frames:,} frames"),
            ("bytes on the wire", f"{m.wire_bytes:,}"),
            ("flows", f"{len(self.keys):,}"),
            ("counts", ", ".join(f"{k} {v:,}" for k, v in m.counts.items() if v)),
            *(("note", note) for note in m.notes),
        ]
        body = "".join(
            f"<tr><th style='text-align:left'>{html.escape(k)}</th>"
            f"<td style='text-align:left'>{html.escape(str(v))}</td></tr>"
            for k, v in rows
        )
        return f"<table>{body}</table>"


def _in_network(keys: FlowKeys, host: str) -> np.ndarray:
    """Which flows have an end in an address or network."""
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        raise ParameterError(f"host: {host!r} is no IP address or network") from None
    size = network.max_prefixlen // 8
    mask = np.frombuffer(network.netmask.packed, np.uint8)
    wanted = np.frombuffer(network.network_address.packed, np.uint8)
    hit = np.zeros(len(keys), bool)
    for end in (keys.src, keys.dst):
        hit |= ((end[:, :size] & mask) == wanted).all(axis=1)
    return hit & (keys.ip_version == network.version)


def columns_of(source: Capture | pd.DataFrame | dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The packets table as arrays, from whatever holds it.

    Raises
    ------
    SchemaError
        A data frame or dict that is no packets table.
    """
    if isinstance(source, Capture):
        return source.columns
    if isinstance(source, pd.DataFrame):
        return arrays(source, "packets")
    missing = [name for name in PACKETS if name not in source]
    if missing:
        from ..errors import SchemaError

        raise SchemaError(f"packets columns: {missing[0]!r} is missing")
    return source
