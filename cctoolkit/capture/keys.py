"""Keys of the flows in a capture, and metadata of the capture itself."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np

from .._support.state import grown
from ..errors import SchemaError
from .addresses import addresses_text

__all__ = ["AllKeys", "CaptureMeta", "FlowKeys", "add_meta", "check_keys"]


@dataclass(frozen=True)
class FlowKeys:
    """Addresses, ports and SYN options of flows, one row per flow, ordered by ``flow_id``.

    Attributes
    ----------
    flow_id : uint32, shape (n,)
        Flow number, as in the packets table.
    ip_version, protocol : uint8, shape (n,)
        IP version (4 or 6) and IP protocol number.
    sport, dport : uint16, shape (n,)
        Ports of initiator and responder.
    src, dst : uint8, shape (n, 16)
        Addresses of initiator and responder in network byte order; IPv4 uses the first 4 bytes.
    saw_syn : bool, shape (n,)
        Whether the initiator's SYN was captured.
    mss : uint16, shape (n, 2)
        MSS announced by initiator and responder, in bytes; 0: not seen.
    window_scale : uint8, shape (n, 2)
        Window scale announced by initiator and responder; 255: not seen.
    sack_permitted : bool, shape (n, 2)
        Whether initiator and responder announced SACK permitted.
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
        """Keep only these rows (a boolean mask or row numbers)."""
        return FlowKeys(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def src_text(self) -> list[str]:
        """Addresses of the initiators as text."""
        return addresses_text(self.src, self.ip_version).tolist()

    def dst_text(self) -> list[str]:
        """Addresses of the responders as text."""
        return addresses_text(self.dst, self.ip_version).tolist()


#: The type of each column of :class:`FlowKeys`, and how many values a flow has.
_KEY_TYPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "flow_id": ("uint32", ()),
    "ip_version": ("uint8", ()),
    "protocol": ("uint8", ()),
    "sport": ("uint16", ()),
    "dport": ("uint16", ()),
    "src": ("uint8", (16,)),
    "dst": ("uint8", (16,)),
    "saw_syn": ("bool", ()),
    "mss": ("uint16", (2,)),
    "window_scale": ("uint8", (2,)),
    "sack_permitted": ("bool", (2,)),
}


def check_keys(keys: FlowKeys, flow_id: np.ndarray | None = None) -> FlowKeys:
    """Check the keys of flows, which index arrays: types, shapes, order.

    Parameters
    ----------
    keys : FlowKeys
        What to check.
    flow_id : uint32 array, optional
        Flow numbers of packets, all of which the keys must cover.

    Returns
    -------
    FlowKeys
        `keys`, unchanged.

    Raises
    ------
    SchemaError
        Not FlowKeys, or damaged; the text names the first wrong column.
    """
    if not isinstance(keys, FlowKeys):
        raise SchemaError(f"keys: expected FlowKeys, found {type(keys).__name__}")
    rows = np.shape(keys.flow_id)[:1]
    for name, (dtype, more) in _KEY_TYPES.items():
        column = getattr(keys, name)
        if not isinstance(column, np.ndarray) or str(column.dtype) != dtype or column.shape != (*rows, *more):
            found = (
                f"{column.dtype} {column.shape}" if isinstance(column, np.ndarray) else type(column).__name__
            )
            raise SchemaError(f"keys: {name} is {found}, expected {dtype} {(*rows, *more)}")
    ids = keys.flow_id
    if not (ids[1:] > ids[:-1]).all():
        raise SchemaError("keys: flow_id must increase from row to row")
    if flow_id is not None and len(flow_id) and (not len(ids) or flow_id.max() > ids[-1]):
        raise SchemaError(f"keys: flow {flow_id.max()} of the packets has no row")
    return keys


@dataclass
class CaptureMeta:
    """What a capture file says besides its packets.

    Attributes
    ----------
    path : str
        The file; ``"<stdin>"`` for standard input.
    format : {"pcap", "pcapng"}
        File format.
    compression : {"none", "gz", "xz", "zstd"}
        Compression of the file.
    link_types : list of str
        Names of link types (``LINKTYPE_…``), in order of appearance.
    snaplen : int
        Snap length in bytes, the largest of all interfaces; 0: no limit.
    frames, packets : int
        Number of frames, and of those with an IP header (rows of the packets table).
    first_ts_ns, last_ts_ns : int
        Smallest and largest time of a packet; 0 without packets.
    wire_bytes, captured_bytes : int
        Total bytes of all frames, as on the wire and as captured.
    dropped : int or None
        Packets that the capturing machine reports as lost (pcapng interface statistics); None: not reported.
    counts : dict of str to int
        Number of frames for each name in :data:`cctoolkit.capture.headers.COUNTS`.
    truncated : bool
        Whether the file ends, or is damaged, in the middle of a packet.
    notes : list of str
        Remarks that a reader of the results should see.
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
        """Time from the first packet to the last, in s."""
        return (self.last_ts_ns - self.first_ts_ns) / 1e9


class AllKeys:
    """The keys of all flows of a stream, collected part by part; a later part knows more of a flow, so it wins."""

    def __init__(self) -> None:
        self._columns: dict[str, np.ndarray] = {}
        #: Addresses beyond the bytes that IPv4 uses: none, or as many rows as the last flow of IPv6 needs.
        self._tails = {name: np.zeros((0, 16 - _IPV4_BYTES), np.uint8) for name in _ADDRESSES}
        self._seen = np.zeros(0, bool)

    def add(self, keys: FlowKeys) -> None:
        first, flows = (int(keys.flow_id[0]), int(keys.flow_id[-1]) + 1) if len(keys) else (0, 0)
        # without gaps, as in most captures, a slice: several times as fast
        rows = slice(first, flows) if flows - first == len(keys) else keys.flow_id
        self._seen = grown(self._seen, flows, moved=True)
        self._seen[rows] = True
        for column in fields(keys):
            values = getattr(keys, column.name)
            if column.name in _ADDRESSES:
                values, tail = values[:, :_IPV4_BYTES], values[:, _IPV4_BYTES:]
                if tail.any():
                    self._tails[column.name] = _put(self._tails[column.name], rows, flows, tail)
            have = self._columns.get(column.name, np.zeros((0, *values.shape[1:]), values.dtype))
            self._columns[column.name] = _put(have, rows, flows, values)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._seen))

    def all(self) -> FlowKeys:
        """The keys, once: they may be views of what was collected, which is given away."""
        ids = np.flatnonzero(self._seen)
        flows = int(ids[-1]) + 1 if len(ids) else 0
        rows = slice(flows) if len(ids) == flows else ids  # complete: a view is enough
        columns, self._columns = self._columns, {}
        for name in _ADDRESSES & columns.keys():
            address = np.zeros((flows, 16), np.uint8)
            address[:, :_IPV4_BYTES] = columns.pop(name)[:flows]
            tail = self._tails[name][:flows]
            address[: len(tail), _IPV4_BYTES:] = tail
            columns[name] = address
        return FlowKeys(**{name: values[rows] for name, values in columns.items()})


#: Columns of :class:`FlowKeys` with addresses, of which IPv4 uses the first bytes.
_ADDRESSES, _IPV4_BYTES = {"src", "dst"}, 4


def _put(have: np.ndarray, rows: slice | np.ndarray, flows: int, values: np.ndarray) -> np.ndarray:
    """`have` with room for so many flows, and `values` in these rows."""
    have = grown(have, flows, moved=True)
    have[rows] = values
    return have


def add_meta(so_far: CaptureMeta | None, part: CaptureMeta) -> CaptureMeta:
    """Metadata up to the end of `part`: sums the counts, which are per part; the rest covers the file so far."""
    if so_far is None:
        return part
    some = [m for m in (so_far, part) if m.packets]
    return replace(
        part,
        frames=so_far.frames + part.frames,
        packets=so_far.packets + part.packets,
        first_ts_ns=min((m.first_ts_ns for m in some), default=0),
        last_ts_ns=max((m.last_ts_ns for m in some), default=0),
        wire_bytes=so_far.wire_bytes + part.wire_bytes,
        captured_bytes=so_far.captured_bytes + part.captured_bytes,
        counts={name: so_far.counts.get(name, 0) + n for name, n in part.counts.items()},
        notes=list(dict.fromkeys(so_far.notes + part.notes)),
    )
