"""The pcapng file format: sections and interfaces in Python, packet blocks in a kernel.

Format: draft-ietf-opsawg-pcapng. A file may hold several sections, each with its own byte order and interfaces; each
interface has its own link type and clock. Blocks without packets are skipped.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import no_type_check

import numpy as np

from .._support.kernels import kernel
from ._load import be16, be32, le16, le32
from .pcap import MAX_FRAME_BYTES

__all__ = ["Interface", "Section", "frame_pcapng"]

SECTION_HEADER = 0x0A0D0D0A
INTERFACE_DESCRIPTION = 1
INTERFACE_STATISTICS = 5
_OBSOLETE_PACKET = 2
_SIMPLE_PACKET = 3
_ENHANCED_PACKET = 6
_BYTE_ORDER_MAGIC = 0x1A2B3C4D

#: A block that claims to be longer is damaged (a packet block holds at most MAX_FRAME_BYTES and options).
MAX_BLOCK_BYTES = 16 << 20

_OPT_END = 0
_OPT_TSRESOL = 9
_OPT_TSOFFSET = 14
_OPT_IFDROP = 5

#: Columns of the interface table that the kernel reads.
_LINK, _SNAPLEN, _SKIP, _TICKS, _SHIFT, _MULTIPLY, _DIVIDE, _OFFSET_S = range(8)
_INTERFACE_COLUMNS = 8

_S = 1_000_000_000
#: Range of whole seconds since the epoch that fit into int64 nanoseconds with any fraction.
_FIRST_S, _LAST_S = -(2**63 // _S), 2**63 // _S - 1


@dataclass(frozen=True)
class Interface:
    """One interface description block.

    Attributes
    ----------
    link_type : int
        ``LINKTYPE_`` number.
    snaplen : int
        Snap length in bytes; 0: no limit.
    ticks_per_s : int
        Resolution of times, from ``if_tsresol``: a power of 10 or 2, up to the 127th; 10**6 by default.
    offset_s : int
        Offset of times in s, from ``if_tsoffset``.
    """

    link_type: int
    snaplen: int
    ticks_per_s: int = 1_000_000
    offset_s: int = 0

    def row(self) -> list[int]:
        """The row of this interface in the kernel's table.

        The kernel computes in 64 bits: it divides times by `skip`, which leaves `ticks` per second, a number that
        fits. The remainder within a second is ``rest * multiply // divide`` nanoseconds, or in two halves
        ``rest * 10**9 >> 32 + shift`` if the product would not fit.
        """
        ticks = self.ticks_per_s
        binary = ticks & (ticks - 1) == 0
        fits = 2**62 if binary else 10**18
        skip = max(1, ticks // fits)
        ticks //= skip
        shift, multiply, divide = 0, 1, 1
        if binary and ticks > 2**33:
            shift = ticks.bit_length() - 1 - 32
        elif binary:
            multiply, divide = _S, ticks
        elif ticks <= _S:
            multiply = _S // ticks
        else:
            divide = ticks // _S
        # with a larger skip any 64-bit time is less than a nanosecond, and so it is with this one
        skip = min(skip, 2**63 - 1)
        return [self.link_type, self.snaplen, skip, ticks, shift, multiply, divide, self.offset_s]


def _options(body: bytes, order: str) -> dict[int, bytes]:
    """The complete options at the end of a block."""
    found: dict[int, bytes] = {}
    p = 0
    while p + 4 <= len(body):
        code, size = struct.unpack_from(f"{order}HH", body, p)
        if code == _OPT_END or p + 4 + size > len(body):
            break
        found[code] = body[p + 4 : p + 4 + size]
        p += 4 + (size + 3) // 4 * 4
    return found


class Section:
    """A section: its byte order, and the interfaces described so far."""

    def __init__(self, big_endian: bool) -> None:
        self.big_endian = big_endian
        self._rows = np.empty((4, _INTERFACE_COLUMNS), np.int64)
        self._n = 0
        self._dropped: dict[int, int] = {}  # interface -> packets reported as lost

    @property
    def interfaces(self) -> np.ndarray:
        """The interfaces for the kernel, one :meth:`Interface.row` each."""
        return self._rows[: self._n]

    @property
    def _order(self) -> str:
        return ">" if self.big_endian else "<"

    @staticmethod
    def major_version(head: bytes, big_endian: bool) -> int:
        """The major version in the first 14 bytes of a section header block; this package reads 1."""
        return int.from_bytes(head[12:14], "big" if big_endian else "little")

    @staticmethod
    def byte_order(head: bytes) -> bool | None:
        """The byte order in the first 12 bytes of a section header block: True if big endian, None if it is not one."""
        if len(head) < 12 or head[:4] != b"\x0a\x0d\x0d\x0a":
            return None
        if head[8:12] == struct.pack(">I", _BYTE_ORDER_MAGIC):
            return True
        if head[8:12] == struct.pack("<I", _BYTE_ORDER_MAGIC):
            return False
        return None

    def add_interface(self, body: bytes) -> Interface | None:
        """Add an interface from the body of its description block (between the lengths); None if that is incomplete."""
        if len(body) < 8:
            return None
        link_type, _, snaplen = struct.unpack_from(f"{self._order}HHI", body)
        options = _options(body[8:], self._order)
        ticks = 1_000_000
        if options.get(_OPT_TSRESOL):
            resolution = options[_OPT_TSRESOL][0]
            ticks = (2 if resolution & 0x80 else 10) ** (resolution & 0x7F)
        offset_s = 0
        if len(options.get(_OPT_TSOFFSET, b"")) == 8:
            (offset_s,) = struct.unpack(f"{self._order}q", options[_OPT_TSOFFSET])
        interface = Interface(link_type, snaplen, ticks, offset_s)
        if self._n == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self._n] = interface.row()
        self._n += 1
        return interface

    def add_statistics(self, body: bytes) -> int | None:
        """Read the body of an interface statistics block; return the packets lost since the last one."""
        if len(body) < 12:
            return None
        (interface,) = struct.unpack_from(f"{self._order}I", body)
        value = _options(body[12:], self._order).get(_OPT_IFDROP, b"")
        if len(value) != 8:
            return None
        before = self._dropped.get(interface, 0)
        (self._dropped[interface],) = struct.unpack(f"{self._order}Q", value)
        return self._dropped[interface] - before


@kernel
@no_type_check
def frame_pcapng(
    data, start, big_endian, interfaces, last_ts_ns, n_max, offset, caplen, wirelen, ts_ns, link_type
):
    """Find up to `n_max` complete frames in `data` from `start` on.

    Simple packet blocks have no time; they get `last_ts_ns`, the time of the packet before. Times are unsigned, but
    ticks of a nanosecond or longer are read as signed: some writers store times before 1970, and as unsigned numbers
    those would lie beyond the year 2262. Times outside the range of int64 nanoseconds are clamped to it.

    Parameters
    ----------
    data : uint8 array
        A part of the file.
    start : int
        Offset of the first block.
    big_endian : bool
        Byte order of the section.
    interfaces : int64 array, shape (interfaces, fields)
        Link type, snap length, clock ticks and offset of each interface.
    last_ts_ns : int
        Time of the packet before, in ns.
    n_max : int
        Most frames to find.
    offset, caplen, wirelen, ts_ns, link_type : int64 arrays
        Receive for each frame its offset in `data`, captured bytes, bytes on the wire, time and link type.

    Returns
    -------
    n : int
        Number of frames; their positions, lengths, times and link types are in the arrays.
    position : int
        Offset of the next block.
    status : int
        0: needs more data (or `n_max` was reached); 1: the block there must be read in Python (a section, an
        interface, statistics); 2: the block there is damaged.
    simple : int
        Number of frames without a time of their own.
    """
    base = np.int64(data.ctypes.data)
    end = np.int64(data.size)
    p = np.int64(start)
    n_interfaces = interfaces.shape[0]
    n = 0
    simple = 0
    last = np.int64(last_ts_ns)
    while n < n_max and end - p >= 12:
        q = base + p
        if big_endian:
            kind, size = be32(q), be32(q + 4)
        else:
            kind, size = le32(q), le32(q + 4)
        if kind == SECTION_HEADER or kind == INTERFACE_DESCRIPTION or kind == INTERFACE_STATISTICS:
            return n, p, 1, simple
        if size < 12 or size % 4 != 0 or size > MAX_BLOCK_BYTES:
            return n, p, 2, simple
        if end - p < size:
            break
        trailer = be32(q + size - 4) if big_endian else le32(q + size - 4)
        if trailer != size:
            return n, p, 2, simple
        if kind == _ENHANCED_PACKET or kind == _OBSOLETE_PACKET:
            if size < 32:
                return n, p, 2, simple
            if big_endian:
                interface = be32(q + 8) if kind == _ENHANCED_PACKET else be16(q + 8)
                ticks = be32(q + 12) << 32 | be32(q + 16)
                captured = be32(q + 20)
                original = be32(q + 24)
            else:
                interface = le32(q + 8) if kind == _ENHANCED_PACKET else le16(q + 8)
                ticks = le32(q + 12) << 32 | le32(q + 16)
                captured = le32(q + 20)
                original = le32(q + 24)
            if captured > size - 32 or captured > MAX_FRAME_BYTES or interface >= n_interfaces:
                return n, p, 2, simple
            per_s = interfaces[interface, _TICKS]
            if per_s > _S:
                unsigned = np.uint64(ticks) // np.uint64(interfaces[interface, _SKIP])
                seconds = np.int64(unsigned // np.uint64(per_s))
                rest = np.int64(unsigned % np.uint64(per_s))
            else:
                seconds = ticks // per_s
                rest = ticks - seconds * per_s
            shift = interfaces[interface, _SHIFT]
            if shift > 0:
                rest = ((rest >> 32) * _S + ((rest & 0xFFFFFFFF) * _S >> 32)) >> shift
            else:
                rest = rest * interfaces[interface, _MULTIPLY] // interfaces[interface, _DIVIDE]
            offset_s = interfaces[interface, _OFFSET_S]
            shifted = seconds + offset_s
            if (shifted ^ seconds) & (shifted ^ offset_s) < 0:  # overflow: both have the same sign
                shifted = _FIRST_S if seconds < 0 else _LAST_S
            last = min(max(shifted, _FIRST_S), _LAST_S) * _S + rest
            offset[n] = p + 28
        elif kind == _SIMPLE_PACKET:
            if size < 16 or n_interfaces == 0:
                return n, p, 2, simple
            interface = np.int64(0)
            original = be32(q + 8) if big_endian else le32(q + 8)
            captured = min(original, size - 16)
            if interfaces[0, _SNAPLEN] > 0:
                captured = min(captured, interfaces[0, _SNAPLEN])
            if captured > MAX_FRAME_BYTES:
                return n, p, 2, simple
            offset[n] = p + 12
            simple += 1
        else:
            p += size
            continue
        caplen[n] = captured
        wirelen[n] = original
        ts_ns[n] = last
        link_type[n] = interfaces[interface, _LINK]
        n += 1
        p += size
    return n, p, 0, simple
