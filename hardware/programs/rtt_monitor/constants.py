"""Constants of ``rtt_monitor``: table sizes, the timeout, and the header lengths of TCP segments.

The program implements these models: :data:`TABLES` pairs segments and ACKs, :data:`SKETCH` finds long flows.
Applied to a capture, they give the same samples and long flows as the switch.
"""

from __future__ import annotations

from typing import Any

from cctoolkit.analysis.rtt import DataPlaneTables
from cctoolkit.separation.meters import LONG_BYTES

from ...constants import Constant, Macro

__all__ = ["CONSTANTS", "SKETCH", "SLOTS", "SLOT_BITS", "TABLES", "segment_entries"]

TABLES = DataPlaneTables(table_size=1 << 15, stages=2, timeout_ms=1000, per_direction=True, tick_bits=16)
#: Arguments of :class:`~cctoolkit.CountMinSketch` and :func:`~cctoolkit.long_flows`.
SKETCH: dict[str, Any] = {"width": 1 << 16, "depth": 4, "hash": "crc"}
#: Flows whose bytes and RTTs are stored.
SLOT_BITS = 15
SLOTS = 1 << SLOT_BITS

_IPV4_BYTES, _IPV6_BYTES, _ETHERNET_BYTES = 20, 40, 14
#: The longest timeout at which the sign of a 32-bit difference still tells a long RTT from a clock that was
#: set back.
_MAX_MS = (1 << 31) // 1_000_000

if TABLES.timeout_ms > _MAX_MS:
    raise ValueError(f"timeout_ms: {TABLES.timeout_ms} must be at most {_MAX_MS}")


def segment_entries() -> list[str]:
    """Entries of the table ``segment``: the expected ACK minus the sequence number, without the packet's length.

    That is minus the headers, plus one each for SYN and FIN. The keys: whether the packet is IPv4, the TCP
    header's length in words, SYN, and FIN.
    """
    entries = []
    for is_ipv4, before in (("true", _IPV4_BYTES), ("false", 0)):
        for words in range(5, 16):
            for syn in (0, 1):
                for fin in (0, 1):
                    add = (syn + fin - before - 4 * words) % (1 << 32)
                    entries.append(f"({is_ipv4}, {words}, {syn}, {fin}): less_headers({add});")
    return entries


CONSTANTS: list[Constant | Macro] = [
    Constant("PLACE_BITS", TABLES.table_size.bit_length() - 1, 8, "index of a table of expected ACKs"),
    Constant("TABLE_ENTRIES", TABLES.table_size, 32, "of each set and stage"),
    Constant(
        "TIMEOUT_STEPS",
        TABLES.timeout_ms * 1_000_000 >> TABLES.tick_bits,
        32,
        f"{TABLES.timeout_ms} ms, in steps of 2^{TABLES.tick_bits} ns",
    ),
    Constant("SLOT_BITS", SLOT_BITS, 8, "index of a flow's slot"),
    Constant("SLOT_ENTRIES", SLOTS, 32, "flows whose bytes and RTTs are stored"),
    Constant("SKETCH_ENTRIES", int(SKETCH["width"]), 32, "of each row of the sketch"),
    Constant("LONG_BYTES", LONG_BYTES, 32, "a flow is long above this: section 3.1"),
    Constant("IPV4_FRAME_BYTES", _ETHERNET_BYTES, 32, "of a frame, in addition to IPv4's total length"),
    Constant(
        "IPV6_FRAME_BYTES",
        _ETHERNET_BYTES + _IPV6_BYTES,
        32,
        "of a frame, in addition to IPv6's payload length",
    ),
    Macro(
        "SEGMENT_ENTRIES",
        segment_entries(),
        "expected ACK minus sequence number, without the packet's length",
    ),
]
