"""Packets table -> capture file: pcap and pcapng with nanosecond times, headers rebuilt with valid checksums.

The table holds no frames, so they are rebuilt: Ethernet (or nothing, for raw IP), IPv4 or IPv6, then TCP, UDP or
whatever the flow's protocol is, followed by zeros. Reading the file returns what is in the table; what the table lacks
is filled in:

========================  ==========================================================================
MAC addresses             ``02:00:00:00:00:01`` sends direction 0, ``…:02`` direction 1
IPv4 identification       0, with "don't fragment" set (RFC 6864: an atomic datagram needs none)
IPv6 flow label           0
TCP options               timestamps if ``has_ts``; MSS, window scale and SACK permitted on SYNs if `keys` has
                          them; SACK blocks from `sacks`, as many as fit into 40 bytes
TCP urgent pointer        0
payload                   zeros
========================  ==========================================================================

Rows without a complete TCP or UDP header
    TCP and UDP rows with both ports 0 are later fragments and are written as such. A TCP row without flags and payload
    whose header does not fit into ``wire_bytes`` is a truncated header; only its ports are written. ICMP gets an echo
    header with a valid checksum; SCTP, DCCP and UDP-Lite get their ports but no checksum.
Lengths
    The original length is ``wire_bytes``: padding follows the rebuilt headers and payload, or the length grows if they
    need more (if, say, the link header of the capture was shorter). An IP packet over 65,535 bytes (segmentation
    offload) gets IP length 0, as in real captures. Length 0 reads as "to the end of the frame", so such a packet, and
    an IPv6 packet with nothing after its header, gets no padding (but for next header 59, "no next header").
"""

from __future__ import annotations

import lzma
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, no_type_check

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .._support.kernels import kernel
from .._support.layout import for_kernels
from .._support.version import __version__
from ..errors import ParameterError, SchemaError
from ..schema import PACKETS, SACKS
from ._load import be32, be64
from ._store import put_be16, put_be32, put_be64, put_le32, put_le64
from .headers import PacketColumns
from .keys import FlowKeys, check_keys
from .pcap import MAX_FRAME_BYTES
from .protocols import NO_NEXT_HEADER
from .source import zstd

__all__ = ["LINK_ETHERNET", "LINK_RAW", "PcapWriter", "write_frames", "write_pcap"]

LINK_ETHERNET = 1
LINK_RAW = 101

#: Link types (by their names in CaptureMeta) with headers of fewer than 14 bytes.
_SHORT_LINKS = frozenset({"RAW", "IPV4", "IPV6", "NULL", "LOOP", "PPP", "PPP_SERIAL", "PPP_ETHER", "C_HDLC"})

_BUFFER_BYTES = 8 << 20
#: Spare room in the buffer: the headers of a truncated packet are written in full before they are cut.
_SLACK_BYTES = 256
_PCAP_RECORD_BYTES = 16
_EPB_BYTES = 32  # enhanced packet block without its data: 28 bytes before, 4 after
_MAX_IP_BYTES = 65_535

Format = Literal["pcap", "pcapng"]


@kernel
@no_type_check  # numba infers the types
def _write_records(
    buffer,
    capacity,
    pcapng,
    ethernet,
    snaplen,
    row,
    columns,
    first_flow,
    key_of_flow,
    k_version,
    k_protocol,
    k_sport,
    k_dport,
    k_src,
    k_dst,
    k_mss,
    k_window_scale,
    k_sack_permitted,
    sack,
    s_packet,
    s_left,
    s_right,
):
    """Write records into `buffer`, from `row` on, until the rows end or the buffer is full.

    Parameters
    ----------
    buffer : uint8 array
        Receives the records.
    capacity : int
        How many of its bytes may be used.
    pcapng : bool
        Write enhanced packet blocks rather than pcap records.
    ethernet : bool
        Write Ethernet headers before IP headers.
    snaplen : int
        Most bytes captured of a packet.
    row : int
        Row to begin with.
    columns : PacketColumns
        The packets.
    first_flow : int
        Flow number that `key_of_flow` begins with.
    key_of_flow : int array
        Maps ``flow_id - first_flow`` to the row in the keys plus one; 0: none.
    k_version, k_protocol, k_sport, k_dport : arrays, shape (keys,)
        Columns of :class:`FlowKeys`: IP version, protocol, ports of initiator and responder.
    k_src, k_dst : arrays, 16 bytes a key
        Addresses of initiator and responder, in network byte order.
    k_mss, k_window_scale, k_sack_permitted : arrays, shape (keys, 2)
        Options of the SYN of each direction; an MSS of 0 and a window scale of 255 mean that there was none.
    sack : int
        First SACK block that belongs to `row` or a later one.
    s_packet, s_left, s_right : arrays, shape (blocks,)
        The SACK table: row of the packet, and the edges of the block.

    Returns
    -------
    row, sack : int
        Where to resume.
    written : int
        Bytes written to the buffer.
    unknown : bool
        Whether it stopped because the flow of `row` has no keys.
    """
    c_ts, c_flow, c_direction = columns.ts_ns, columns.flow_id, columns.direction
    c_seq, c_ack, c_flags = columns.seq, columns.ack, columns.tcp_flags
    c_payload, c_wire, c_window = columns.payload_bytes, columns.wire_bytes, columns.window
    c_ecn, c_dscp, c_ttl = columns.ecn, columns.dscp, columns.ttl
    c_tsval, c_tsecr, c_has_ts = columns.tsval, columns.tsecr, columns.has_ts
    n = c_ts.size
    n_flows = np.int64(key_of_flow.size)
    n_sacks = s_packet.size
    base = np.int64(buffer.ctypes.data)
    limit = base + capacity
    src_base = np.int64(k_src.ctypes.data)
    dst_base = np.int64(k_dst.ctypes.data)
    record_header = 28 if pcapng else _PCAP_RECORD_BYTES
    link_bytes = 14 if ethernet else 0
    p = base
    while row < n:
        flow = np.int64(c_flow[row]) - first_flow
        if flow < 0 or flow >= n_flows or key_of_flow[flow] == 0:
            return row, sack, p - base, True
        key = np.int64(key_of_flow[flow]) - 1
        reverse = np.int64(c_direction[row]) & 1
        flags = np.int64(c_flags[row])
        payload = np.int64(c_payload[row])
        wire = np.int64(c_wire[row])
        has_ts = c_has_ts[row]
        version = np.int64(k_version[key])
        protocol = np.int64(k_protocol[key])
        if reverse:
            source, destination = dst_base + 16 * key, src_base + 16 * key
            sport, dport = np.int64(k_dport[key]), np.int64(k_sport[key])
        else:
            source, destination = src_base + 16 * key, dst_base + 16 * key
            sport, dport = np.int64(k_sport[key]), np.int64(k_dport[key])

        # ---- lengths
        while sack < n_sacks and s_packet[sack] < row:
            sack += 1
        first_sack = sack
        while sack < n_sacks and s_packet[sack] == row:
            sack += 1
        mss = window_scale = blocks = np.int64(0)
        sack_permitted = has_scale = is_cut = False
        is_fragment = (protocol == 6 or protocol == 17) and flags == 0 and sport == 0 and dport == 0
        is_tcp = protocol == 6 and not is_fragment
        ip_header = 20 if version == 4 else 40
        transport = 0
        if is_tcp:
            transport = 20
            if flags & 2:
                mss = np.int64(k_mss[key, reverse])
                window_scale = np.int64(k_window_scale[key, reverse])
                has_scale = window_scale != 255
                sack_permitted = k_sack_permitted[key, reverse]
                transport += 4 * (mss != 0) + 4 * has_scale + 4 * (sack_permitted and not has_ts)
            if has_ts:
                transport += 12
            blocks = min(sack - first_sack, (60 - transport - 4) // 8)
            if blocks > 0:
                transport += 4 + 8 * blocks
            if flags == 0 and payload == 0 and link_bytes + ip_header + transport > wire:
                is_cut, has_ts, blocks = True, False, 0
                transport = 4
        elif protocol == 17 and not is_fragment:
            transport = 8
        elif is_fragment and version == 6:
            ip_header += 8
        ip_bytes = ip_header + transport + payload
        length_field = ip_bytes if version == 4 else ip_bytes - 40
        frame = link_bytes + ip_bytes
        if length_field > _MAX_IP_BYTES or (length_field == 0 and protocol != NO_NEXT_HEADER):
            length_field = 0  # "to the end of the frame": padding would count as payload, so there is none
        else:
            frame = max(frame, wire)
        captured = min(frame, snaplen)
        padded = (captured + 3) & ~3 if pcapng else captured
        if p + record_header + padded + _SLACK_BYTES > limit:
            sack = first_sack
            break

        # ---- record header
        ts = c_ts[row]
        if pcapng:
            put_le32(p, 6)
            put_le32(p + 4, _EPB_BYTES + padded)
            put_le32(p + 8, 0)
            put_le32(p + 12, ts >> 32)
            put_le32(p + 16, ts)
            put_le32(p + 20, captured)
            put_le32(p + 24, frame)
        else:
            put_le32(p, ts // 1_000_000_000)
            put_le32(p + 4, ts % 1_000_000_000)
            put_le32(p + 8, captured)
            put_le32(p + 12, frame)
        p += record_header
        start = p

        # ---- Ethernet
        if ethernet:
            put_be32(p, 0x02000000)
            put_be64(p + 4, 0x0002020000000001 - reverse * 0x0001000000000000 + reverse)
            put_be16(p + 12, 0x0800 if version == 4 else 0x86DD)
            p += 14

        # ---- IP; `total` accumulates the pseudo header for the transport checksum
        tos = np.int64(c_dscp[row]) << 2 | np.int64(c_ecn[row])
        ttl = np.int64(c_ttl[row])
        if version == 4:
            src, dst = be32(source), be32(destination)
            total = src + dst
            fragment = 185 if is_fragment else 0x4000  # offset 1480 bytes, or "don't fragment"
            header_sum = (0x4500 | tos) + length_field + fragment + (ttl << 8 | protocol) + total
            header_sum = (header_sum & 0xFFFFFFFF) + (header_sum >> 32)
            for _ in range(3):  # a carry may cause a second, and that a third
                header_sum = (header_sum & 0xFFFF) + (header_sum >> 16)
            put_be32(p, 0x45000000 | tos << 16 | length_field)
            put_be32(p + 4, fragment)
            put_be16(p + 8, ttl << 8 | protocol)
            put_be16(p + 10, ~header_sum)
            put_be32(p + 12, src)
            put_be32(p + 16, dst)
        else:
            put_be32(p, 0x60000000 | tos << 20)
            put_be32(p + 4, length_field << 16 | (44 if is_fragment else protocol) << 8 | ttl)
            total = np.int64(0)
            for word in range(0, 16, 8):
                src, dst = be64(source + word), be64(destination + word)
                put_be64(p + 8 + word, src)
                put_be64(p + 24 + word, dst)
                total += (
                    (src & 0xFFFFFFFF)
                    + (src >> 32 & 0xFFFFFFFF)
                    + (dst & 0xFFFFFFFF)
                    + (dst >> 32 & 0xFFFFFFFF)
                )
            if is_fragment:
                put_be64(p + 40, protocol << 56 | 1480 << 32)
        p += ip_header

        # ---- transport; checksums are sums of 32-bit words, folded at the end (RFC 1071)
        checksum_at = np.int64(0)
        if is_tcp:
            seq, ack = np.int64(c_seq[row]), np.int64(c_ack[row])
            ports = sport << 16 | dport
            fourth = (transport // 4) << 28 | (flags & 0xFFF) << 16 | np.int64(c_window[row])
            total += protocol + transport + payload + ports + seq + ack + fourth
            put_be32(p, ports)
            put_be32(p + 4, seq)
            put_be32(p + 8, ack)
            put_be32(p + 12, fourth)
            put_be32(p + 16, 0)
            if not is_cut:
                checksum_at = p + 16
            p += 4 if is_cut else 20
            if mss != 0:
                put_be32(p, 0x02040000 | mss)
                total += 0x02040000 | mss
                p += 4
            if has_ts:
                # SACK permitted replaces the padding, as in Linux
                head = np.int64(0x0402080A if sack_permitted else 0x0101080A)
                tsval, tsecr = np.int64(c_tsval[row]), np.int64(c_tsecr[row])
                put_be32(p, head)
                put_be32(p + 4, tsval)
                put_be32(p + 8, tsecr)
                total += head + tsval + tsecr
                p += 12
            elif sack_permitted:
                put_be32(p, 0x01010402)
                total += 0x01010402
                p += 4
            if has_scale:
                put_be32(p, 0x01030300 | window_scale)
                total += 0x01030300 | window_scale
                p += 4
            if blocks > 0:
                head = 0x01010500 | (2 + 8 * blocks)
                put_be32(p, head)
                total += head
                p += 4
                for block in range(first_sack, first_sack + blocks):
                    left, right = np.int64(s_left[block]), np.int64(s_right[block])
                    put_be32(p, left)
                    put_be32(p + 4, right)
                    total += left + right
                    p += 8
        elif is_fragment:
            pass
        elif protocol == 17:
            length = 8 + payload if 8 + payload <= _MAX_IP_BYTES else 0
            total += protocol + 8 + payload + (sport << 16 | dport) + length
            put_be32(p, sport << 16 | dport)
            put_be32(p + 4, length << 16)
            checksum_at = p + 6
            p += 8
        elif (protocol == 1 or protocol == 58) and payload >= 8:
            kind = (128 + reverse if protocol == 58 else 8 - 8 * reverse) << 8  # echo request, echo reply
            total = kind + (total + protocol + payload if protocol == 58 else 0)
            put_be16(p, kind)
            put_be16(p + 2, 0)
            put_be32(p + 4, 0)
            checksum_at = p + 2
            p += 8
        elif (protocol == 132 or protocol == 33 or protocol == 136) and payload >= 4:
            put_be32(p, sport << 16 | dport)
            p += 4
        if checksum_at != 0:
            total = (total & 0xFFFFFFFF) + (total >> 32)
            for _ in range(3):  # a carry may cause a second, and that a third
                total = (total & 0xFFFF) + (total >> 16)
            checksum = ~total & 0xFFFF
            if checksum == 0 and protocol == 17:
                checksum = 0xFFFF  # 0 would mean "none", RFC 768
            put_be16(checksum_at, checksum)

        # ---- payload and padding are zeros; what the snap length cuts is overwritten by the next record
        end = start + padded
        while p < end:
            put_le64(p, 0)
            p += 8
        p = end
        if pcapng:
            put_le32(p, _EPB_BYTES + padded)
            p += 4
        row += 1
    return row, sack, p - base, False


class _GzipFile:
    """Deterministic gzip by isal: a header with a comment but no time or name."""

    def __init__(self, raw: IO[bytes], comment: str) -> None:
        from isal import isal_zlib

        self._raw = raw
        self._compressor = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -15)
        self._crc32 = isal_zlib.crc32
        self._crc = self._size = 0
        # RFC 1952: magic, deflate, FCOMMENT, no time, no extra flags, unknown system
        raw.write(b"\x1f\x8b\x08" + (b"\x10" if comment else b"\x00") + bytes(5) + b"\xff")
        if comment:
            raw.write(comment.encode("latin-1", "replace").replace(b"\x00", b"") + b"\x00")

    def write(self, data: memoryview | bytes) -> None:
        self._crc = self._crc32(data, self._crc)
        self._size += len(data)
        self._raw.write(self._compressor.compress(data))

    def close(self) -> None:
        self._raw.write(self._compressor.flush())
        self._raw.write(struct.pack("<II", self._crc, self._size & 0xFFFFFFFF))


def _compressed(raw: IO[bytes], suffix: str, comment: str) -> Any:
    """`raw`, or a compressor on top, whose close leaves `raw` open."""
    if suffix == ".gz":
        return _GzipFile(raw, comment)
    if suffix in (".zst", ".zstd"):
        return zstd().ZstdFile(raw, "wb", level=1)
    if suffix == ".xz":
        return lzma.LZMAFile(raw, "wb", preset=1)
    return None


_COMPRESSION_SUFFIXES = (".gz", ".zst", ".zstd", ".xz")


def _pcapng_option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _pcapng_block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + length + body + length


def _pcapng_interface(link_type: int, snaplen: int) -> bytes:
    resolution = _pcapng_option(9, b"\x09") + _pcapng_option(0, b"")
    return _pcapng_block(1, struct.pack("<HHI", link_type, 0, snaplen) + resolution)


def _file_header(format: Format, link_type: int, snaplen: int, comment: str) -> bytes:
    if format == "pcap":
        return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snaplen, link_type)
    options = _pcapng_option(1, comment.encode()) if comment else b""
    options += _pcapng_option(4, f"cctoolkit {__version__}".encode()) + _pcapng_option(0, b"")
    section = _pcapng_block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options)
    return section + _pcapng_interface(link_type, snaplen)


def _arrays(table: Any, schema: Mapping[str, str], name: str) -> list[np.ndarray]:
    """The columns of a table (DataFrame or mapping of arrays) in the order and with the types of the schema."""
    if not isinstance(table, pd.DataFrame | Mapping):
        raise SchemaError(
            f"{name} table: expected a DataFrame or columns by name, found {type(table).__name__}"
        )
    out = []
    for column, dtype in schema.items():
        if column not in table:
            raise SchemaError(f"{name} table: column {column!r} is missing (expected {dtype})")
        values = np.asarray(table[column])
        if values.ndim != 1:
            raise SchemaError(
                f"{name} table: column {column!r} has the shape {values.shape}, expected one dimension"
            )
        if values.dtype != dtype and not np.can_cast(values.dtype, dtype, "safe") and values.size:
            raise SchemaError(f"{name} table: column {column!r} is {values.dtype}, expected {dtype}")
        out.append(for_kernels(values, dtype))
    if len({len(column) for column in out}) > 1:
        raise SchemaError(f"{name} table: columns have different lengths")
    return out


def _whole_numbers(where: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
        if not array.size:
            return np.zeros(0, np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu" or array.max() >= 2**63:
            raise TypeError
        return array.astype(np.int64)
    except (TypeError, ValueError):
        raise ParameterError(f"{where}: expected a sequence of whole numbers") from None


class PcapWriter:
    """Write packets to a capture file, part by part.

    A context manager: the file appears only if the block ends without an error. Compression runs in its own thread.

    Parameters
    ----------
    path : path
        File to write. The ending ``.gz``, ``.zst`` or ``.xz`` sets the compression; before it, ``.pcapng`` or any
        other ending sets the format.
    format : {"pcap", "pcapng"}, optional
        Overrides the format in the name. Both store nanoseconds.
    snaplen : int, default 262144
        Longer frames are cut to this many bytes; the original lengths are kept.
    stated_snaplen : int, optional
        Snap length that the file states, if it is not `snaplen`: that of the capture from which frames are copied.
    link_type : int, default 1 (Ethernet)
        ``LINKTYPE_`` number. :meth:`write` supports Ethernet and raw IP (101), :meth:`write_frames` any.
    comment : str, optional
        Description of the file, stored in pcapng's section header and in the header of a gzip file. A plain pcap has
        no place for it.

    Attributes
    ----------
    packets : int
        Number of packets written so far.

    Raises
    ------
    ParameterError
        Unknown format, a snap length outside 1 to 262144, or a link type that is not a number from 0 to 65535.

    See Also
    --------
    write_pcap : write a whole packets table
    filter_capture : copy packets of a capture, payload included

    Examples
    --------
    >>> day = cct.synth_mawi("day.pcap", 10_000, seed=1)
    >>> with cct.PcapWriter("headers.pcap.gz", snaplen=96) as writer:
    ...     for part in cct.iter_capture(day, packets=5_000):
    ...         writer.write(part.columns, part.keys)
    >>> writer.packets
    10000
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: Format | None = None,
        snaplen: int = MAX_FRAME_BYTES,
        stated_snaplen: int | None = None,
        link_type: int = LINK_ETHERNET,
        comment: str = "",
    ) -> None:
        self.path = Path(path)
        suffixes = [suffix.lower() for suffix in self.path.suffixes]
        self._compression = suffixes.pop() if suffixes and suffixes[-1] in _COMPRESSION_SUFFIXES else ""
        if format is None:
            format = "pcapng" if suffixes and suffixes[-1] in (".pcapng", ".ntar") else "pcap"
        if format not in ("pcap", "pcapng"):
            raise ParameterError(f"format: {format!r} must be 'pcap' or 'pcapng'")
        if not 1 <= snaplen <= MAX_FRAME_BYTES:
            raise ParameterError(f"snaplen: {snaplen} must be between 1 and {MAX_FRAME_BYTES}")
        if not 0 <= link_type <= 0xFFFF:
            raise ParameterError(f"link_type: {link_type} must be a LINKTYPE_ number (0 to 65535)")
        self.format = format
        self.snaplen = int(snaplen)
        self._stated_snaplen = self.snaplen if stated_snaplen is None else int(stated_snaplen)
        self.link_type = int(link_type)
        self.comment = comment
        self.packets = 0
        self._interfaces = {self.link_type: 0}  # of a pcapng file: number by link type
        self._stack: ExitStack | None = None

    def __enter__(self) -> PcapWriter:
        with ExitStack() as stack:
            raw = stack.enter_context(open(stack.enter_context(replacing(self.path)), "wb"))
            sink = _compressed(raw, self._compression, self.comment)
            # one worker keeps the order; with two buffers it compresses one while the other is filled
            worker = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="pcap-writer"))
            self._sink = raw if sink is None else sink
            self._finish: Callable[[], None] | None = None if sink is None else sink.close
            self._worker = worker
            self._buffers = [np.empty(_BUFFER_BYTES, np.uint8) for _ in range(2)]
            self._pending: list[Future[Any] | None] = [None, None]
            self._turn = 0
            self._sink.write(_file_header(self.format, self.link_type, self._stated_snaplen, self.comment))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stack is not None
        stack, self._stack = self._stack, None
        if error is not None:
            stack.__exit__(kind, error, trace)  # stops the worker, closes and removes the temporary file
            return
        with stack:
            for turn in range(2):
                self._wait(turn)
            if self._finish is not None:
                self._finish()

    def _wait(self, turn: int) -> None:
        future, self._pending[turn] = self._pending[turn], None
        if future is not None:
            future.result()

    def _emit(self, fill: Callable[[np.ndarray], int]) -> None:
        """Have `fill` write into the free buffer, then pass it to the worker."""
        if self._stack is None:
            raise ParameterError(f"{self.path}: the writer is not open: use it in a with statement")
        turn = self._turn
        self._wait(turn)
        written = fill(self._buffers[turn])
        self._pending[turn] = self._worker.submit(self._sink.write, self._buffers[turn].data[:written])
        self._turn = 1 - turn

    def write(
        self,
        columns: Mapping[str, np.ndarray] | pd.DataFrame,
        keys: FlowKeys,
        sacks: Mapping[str, np.ndarray] | pd.DataFrame | None = None,
    ) -> None:
        """Append packets.

        Parameters
        ----------
        columns : mapping of arrays or DataFrame
            The packets table (:data:`cctoolkit.schema.PACKETS`), written in this order.
        keys : FlowKeys
            Addresses, ports and SYN options of the flows in `columns` (and possibly others).
        sacks : mapping of arrays or DataFrame, optional
            SACK blocks (:data:`cctoolkit.schema.SACKS`); ``packet`` is a row of `columns`.

        Raises
        ------
        SchemaError
            A column is missing or has the wrong type.
        ParameterError
            The flow of a packet is not in `keys`, or the file format cannot store its time (before 1970; in pcap also
            after 2106).
        """
        if self.link_type not in (LINK_ETHERNET, LINK_RAW):
            raise ParameterError(
                f"link_type: {self.link_type} must be Ethernet (1) or raw IP (101) to write packets without frames"
            )
        check_keys(keys)
        packets: Any = PacketColumns(*_arrays(columns, PACKETS, "packets"))
        n = len(packets.ts_ns)
        if n == 0:
            return
        self._check_times(packets.ts_ns)
        if sacks is None:
            sacks = {name: np.empty(0, dtype) for name, dtype in SACKS.items()}
        s_packet, s_left, s_right = _arrays(sacks, SACKS, "sacks")
        if s_packet.size and not 0 <= s_packet.min() <= s_packet.max() < n:
            raise SchemaError(f"sacks table: a block belongs to a packet outside the {n} of the table")
        if np.any(s_packet[1:] < s_packet[:-1]):
            order = np.argsort(s_packet, kind="stable")
            s_packet, s_left, s_right = (for_kernels(part[order]) for part in (s_packet, s_left, s_right))

        ids = np.asarray(keys.flow_id, np.int64)
        first_flow = int(ids.min()) if ids.size else 0
        key_of_flow = np.zeros(int(ids.max()) - first_flow + 1 if ids.size else 0, np.uint32)
        key_of_flow[ids - first_flow] = np.arange(1, ids.size + 1)
        key_arrays = tuple(
            for_kernels(values, dtype)
            for values, dtype in (
                (keys.ip_version, np.uint8),
                (keys.protocol, np.uint8),
                (keys.sport, np.uint16),
                (keys.dport, np.uint16),
                (keys.src, np.uint8),
                (keys.dst, np.uint8),
                (keys.mss, np.uint16),
                (keys.window_scale, np.uint8),
                (keys.sack_permitted, np.bool_),
            )
        )
        row = sack = 0
        unknown = False

        def fill(buffer: np.ndarray) -> int:
            nonlocal row, sack, unknown
            row, sack, written, unknown = _write_records(
                buffer,
                buffer.size,
                self.format == "pcapng",
                self.link_type == LINK_ETHERNET,
                self.snaplen,
                row,
                packets,
                first_flow,
                key_of_flow,
                *key_arrays,
                sack,
                s_packet,
                s_left,
                s_right,
            )
            return written

        while row < n:
            self._emit(fill)
            if unknown:
                raise ParameterError(f"packet {row}: flow {packets.flow_id[row]} is not in keys")
        self.packets += n

    def write_frames(
        self,
        ts_ns: Sequence[int] | np.ndarray,
        frames: Iterable[bytes],
        wire_bytes: Sequence[int] | np.ndarray | None = None,
        link_types: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        """Append raw frames.

        Parameters
        ----------
        ts_ns : sequence of int
            Times in ns since the epoch.
        frames : iterable of bytes
            Frames from the link header on; truncated to the snap length.
        wire_bytes : sequence of int, optional
            Original lengths in bytes, if `frames` are already truncated.
        link_types : sequence of int, optional
            ``LINKTYPE_`` numbers, if they differ from the file's; pcapng only, each is an interface of its own.

        Raises
        ------
        ParameterError
            The arguments have different lengths, or the file format cannot store a time or several link types.
        """
        frames = list(frames)
        if not all(isinstance(frame, bytes | bytearray | memoryview) for frame in frames):
            raise ParameterError("frames: expected bytes")
        times = _whole_numbers("ts_ns", ts_ns)
        lengths = [len(frame) for frame in frames] if wire_bytes is None else wire_bytes
        originals = _whole_numbers("wire_bytes", lengths)
        if originals.size and not 0 <= originals.min() <= originals.max() < 2**32:
            raise ParameterError("wire_bytes: a length must be from 0 to 2**32 - 1")
        links = _whole_numbers(
            "link_types", [self.link_type] * len(frames) if link_types is None else link_types
        )
        if not len(times) == len(frames) == len(originals) == len(links):
            raise ParameterError(
                f"{len(times)} times, {len(frames)} frames, {len(originals)} original lengths, {len(links)} link types"
            )
        if links.size and not 0 <= links.min() <= links.max() <= 0xFFFF:
            raise ParameterError("link_types: expected LINKTYPE_ numbers (0 to 65535)")
        if self.format == "pcap" and (links != self.link_type).any():
            raise ParameterError(
                f"{self.path}: a pcap file holds one link type, but there are several: write pcapng (a name in .pcapng)"
            )
        self._check_times(times)
        pieces: list[bytes] = []
        size = 0
        for ts, frame, original, link in zip(
            times.tolist(), frames, originals.tolist(), links.tolist(), strict=True
        ):
            data = bytes(frame[: self.snaplen])
            if self.format == "pcapng":
                if link not in self._interfaces:
                    self._interfaces[link] = len(self._interfaces)
                    pieces.append(_pcapng_interface(link, self._stated_snaplen))
                    size += len(pieces[-1])
                body = (
                    struct.pack(
                        "<IIIII", self._interfaces[link], ts >> 32, ts & 0xFFFFFFFF, len(data), original
                    )
                    + data
                )
                pieces.append(_pcapng_block(6, body + bytes(-len(data) % 4)))
            else:
                seconds, ns = divmod(ts, 1_000_000_000)
                pieces.append(struct.pack("<IIII", seconds, ns, len(data), original) + data)
            size += len(pieces[-1])
            if size > _BUFFER_BYTES - MAX_FRAME_BYTES - _SLACK_BYTES:
                self._emit(_copier(b"".join(pieces)))
                pieces, size = [], 0
        self._emit(_copier(b"".join(pieces)))
        self.packets += len(frames)

    def _check_times(self, ts_ns: np.ndarray) -> None:
        last_s = 2**32 if self.format == "pcap" else 2**63 // 10**9
        outside = (ts_ns < 0) | (ts_ns // 1_000_000_000 >= last_s)
        if outside.any():
            row = int(np.argmax(outside))
            raise ParameterError(f"packet {row}: {self.format} cannot store ts_ns = {ts_ns[row]}")


def _copier(data: bytes) -> Callable[[np.ndarray], int]:
    def fill(buffer: np.ndarray) -> int:
        buffer[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data)

    return fill


def write_pcap(
    path: str | os.PathLike[str],
    capture: Any,
    keys: FlowKeys | None = None,
    *,
    sacks: Mapping[str, np.ndarray] | pd.DataFrame | None = None,
    format: Format | None = None,
    snaplen: int = MAX_FRAME_BYTES,
    link_type: int | None = None,
    comment: str = "",
) -> Path:
    """Write a packets table as a capture file that tcpdump, tshark and this package read.

    :mod:`cctoolkit.capture.writer` says what the frames look like.

    Parameters
    ----------
    path : path
        File to write; it appears only when complete. The ending ``.gz``, ``.zst`` or ``.xz`` sets the compression;
        ``.pcapng`` sets the format.
    capture : Capture, or packets table as a mapping of arrays or DataFrame
        What to write.
    keys : FlowKeys, optional
        Addresses, ports and SYN options of the flows; required unless `capture` is a Capture.
    sacks : mapping of arrays or DataFrame, optional
        SACK blocks; by default those of the Capture.
    link_type : int, optional
        1 (Ethernet) or 101 (raw IP). Default: Ethernet, but raw IP if some link headers of a Capture are shorter than
        Ethernet's, so that lengths stay as they are.
    format, snaplen, comment
        As for :class:`PcapWriter`.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    ParameterError
        `keys` is missing or lacks the flow of a packet, or an option is invalid.
    SchemaError
        A column is missing or has the wrong type.

    See Also
    --------
    PcapWriter : write a capture part by part
    filter_capture : copy packets of a capture, payload included
    read_capture : the way back

    Examples
    --------
    >>> cap = cct.example("mixed").ingress
    >>> path = cct.write_pcap("flow.pcapng.gz", cap.select(flow_id=0), comment="flow 0 of mixed")
    >>> len(cct.read_capture(path)) == int((cap.packets.flow_id == 0).sum())
    True
    """
    columns = capture
    if hasattr(capture, "keys") and hasattr(capture, "meta"):  # a Capture, whose module imports this one
        columns, keys = capture.columns, capture.keys if keys is None else keys
        if sacks is None:
            sacks = capture.sacks
        if link_type is None and not _SHORT_LINKS.isdisjoint(capture.meta.link_types):
            link_type = LINK_RAW
    if keys is None:
        raise ParameterError("keys: required to write a packets table that is not a Capture")
    if link_type is None:
        link_type = LINK_ETHERNET
    with PcapWriter(path, format=format, snaplen=snaplen, link_type=link_type, comment=comment) as writer:
        writer.write(columns, keys, sacks)
    return writer.path


def write_frames(
    path: str | os.PathLike[str],
    ts_ns: Sequence[int] | np.ndarray,
    frames: Iterable[bytes],
    link_type: int = LINK_ETHERNET,
    *,
    wire_bytes: Sequence[int] | np.ndarray | None = None,
    format: Format | None = None,
    snaplen: int = MAX_FRAME_BYTES,
    comment: str = "",
) -> Path:
    """Write raw frames; arguments as for :meth:`PcapWriter.write_frames` and :class:`PcapWriter`."""
    with PcapWriter(path, format=format, snaplen=snaplen, link_type=link_type, comment=comment) as writer:
        writer.write_frames(ts_ns, frames, wire_bytes)
    return writer.path
