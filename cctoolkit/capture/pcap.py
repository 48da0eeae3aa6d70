"""The pcap file format: its header, and the kernel that finds the frames.

Format: draft-ietf-opsawg-pcap. Also accepted: the nanosecond magic, the older versions 2.0 to 2.3 (in which captured
and original length may be swapped), and the 24-byte record headers of the "modified" format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import no_type_check

import numpy as np

from .._support.kernels import kernel
from ._load import be32, le32, prefetch

__all__ = ["MAX_FRAME_BYTES", "PcapHeader", "frame_pcap", "parse_pcap_header"]

#: A record that claims more captured bytes is damaged (libpcap's MAXIMUM_SNAPLEN).
MAX_FRAME_BYTES = 262_144

_MAGIC_USEC = 0xA1B2C3D4
_MAGIC_NSEC = 0xA1B23C4D
_MAGIC_MODIFIED = 0xA1B2CD34

HEADER_BYTES = 24

#: Prefetch distance: a record ends where its header says, so the processor cannot look ahead by itself.
_AHEAD_BYTES = 2048


@dataclass(frozen=True)
class PcapHeader:
    """The header of a pcap file: its first 24 bytes."""

    big_endian: bool
    ns_per_tick: int
    record_header_bytes: int
    version: tuple[int, int]
    snaplen: int
    link_type: int


def parse_pcap_header(head: bytes) -> PcapHeader | None:
    """Parse a file header; None if the magic number is not pcap's or the header is incomplete."""
    if len(head) < HEADER_BYTES:
        return None
    for order, big_endian in (("<", False), (">", True)):
        magic, major, minor, _, _, snaplen, link_type = struct.unpack(f"{order}IHHIIII", head[:HEADER_BYTES])
        if magic in (_MAGIC_USEC, _MAGIC_NSEC, _MAGIC_MODIFIED):
            return PcapHeader(
                big_endian=big_endian,
                ns_per_tick=1 if magic == _MAGIC_NSEC else 1000,
                record_header_bytes=24 if magic == _MAGIC_MODIFIED else 16,
                version=(major, minor),
                snaplen=snaplen,
                link_type=link_type & 0xFFFF,  # the upper bits hold the length of a frame check sequence
            )
    return None


@kernel
@no_type_check
def frame_pcap(
    data, start, big_endian, header_bytes, ns_per_tick, swap_lengths, n_max, offset, caplen, wirelen, ts_ns
):
    """Find up to `n_max` complete frames in `data` from `start` on.

    Parameters
    ----------
    data : uint8 array
        A part of the file.
    start : int
        Offset of the first record.
    big_endian : bool
        Byte order of the file.
    header_bytes : int
        Length of a record's header: 16, or 24 in a variant of pcap.
    ns_per_tick : int
        1 or 1000.
    swap_lengths : int
        Whether the two lengths are swapped: 0 never, 1 always (versions before 2.3), 2 if the captured length is the
        larger (version 2.3).
    n_max : int
        Most frames to find.
    offset, caplen, wirelen, ts_ns : int64 arrays
        Receive for each frame its offset in `data`, captured bytes, bytes on the wire, and time.

    Returns
    -------
    n : int
        Number of frames; their positions, lengths and times are in the arrays.
    position : int
        Offset of the next record.
    damaged : bool
        Whether the record there claims an impossible length.
    """
    base = np.int64(data.ctypes.data)
    end = np.int64(data.size)
    p = np.int64(start)
    n = 0
    while n < n_max and end - p >= header_bytes:
        q = base + p
        prefetch(q + _AHEAD_BYTES)
        prefetch(q + _AHEAD_BYTES + 64)
        if big_endian:
            seconds, fraction, captured, original = be32(q), be32(q + 4), be32(q + 8), be32(q + 12)
        else:
            seconds, fraction, captured, original = le32(q), le32(q + 4), le32(q + 8), le32(q + 12)
        if swap_lengths == 1 or (swap_lengths == 2 and captured > original):
            captured, original = original, captured
        if captured > MAX_FRAME_BYTES:
            return n, p, True
        if end - p - header_bytes < captured:
            break
        offset[n] = p + header_bytes
        caplen[n] = captured
        wirelen[n] = original
        ts_ns[n] = seconds * 1_000_000_000 + fraction * ns_per_tick
        n += 1
        p += header_bytes + captured
    return n, p, False
