"""Constants of CoDel, from :class:`cctoolkit.aqm.PisaCoDel` with the options that the program implements.

For a Tofino, the compiler computes the math unit's table from ``INTERVAL_NS``. BMv2 has no math unit: a table on
the count's leading bits, made here from :func:`cctoolkit.aqm.codel_p4.math_unit`, gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cctoolkit.aqm.codel_p4 import P4CoDel, PisaCoDel

from ...constants import Constant, Macro

__all__ = [
    "CONSTANTS",
    "MODEL",
    "QUEUES",
    "STATES",
    "Listing1",
    "MathUnitEntry",
    "math_unit_entries",
    "root_entries",
]

#: The program's model. The next drop is at the last one's time + the gap, as in RFC 8289: see the README.
MODEL = PisaCoDel(from_now=False, wrap=True, signed=True)


class Listing1(P4CoDel):
    """Listing 1 in integers, as BMv2's version with ``-DLISTING_1``: roots come from the table of the paper's version
    for network processors, exact up to a count of 16, and up to sqrt(2) too long beyond."""

    name: ClassVar[str] = "codel_listing_1"

    def derived(self) -> dict[str, Any]:
        """The tables of :meth:`P4CoDel.derived`, switched on."""
        return super().derived() | {"by_table": True}


#: Queues per port with a state of their own: all that a Tofino 1 has.
QUEUES = 32
#: By port (9 bits) and queue.
STATES = 512 * QUEUES

#: The traffic manager's unit of queue depth (Intel's open-p4studio, traffic_mgr/init).
CELL_BYTES = {"tofino": 80, "tofino2": 176}

_TABLE, _SCALE = (MODEL.derived()[name] for name in ("table", "scale"))
_RECORD = MODEL.parameter_record()[0]


@dataclass(frozen=True)
class MathUnitEntry:
    """All counts with this prefix have this gap."""

    count: int
    prefix_bits: int
    gap_ns: int


def math_unit_entries() -> list[MathUnitEntry]:
    """The math unit of :func:`cctoolkit.aqm.codel_p4.math_unit_gap` as a table, for all 32-bit counts.

    It finds m, from 4 to 15, and k such that count = m/8 · 4**k, with the bits below m cut off. So each pair
    stands for the counts that begin with the bits of m.
    """
    entries = []
    for k in range(18):
        for m in range(4, 16):
            shift = 2 * k - 3
            # up to count 7, the lowest bits of m are fractional, and must be 0
            count, below = (m << shift, 0) if shift >= 0 else (m >> -shift, m % (1 << -shift))
            if below == 0 and 0 < count < 1 << 32 and (k > 0 or m >= 8):
                gap_ns = int(_TABLE[m]) << _SCALE >> k
                entries.append(MathUnitEntry(count, 32 - max(shift, 0), gap_ns))
    return entries


def root_entries(model: P4CoDel | None = None) -> list[MathUnitEntry]:
    """The roots of Listing 1 as a table for all 32-bit counts: each up to 16, then one per leading one's position."""
    tables = (model or Listing1()).derived()
    exact, classes = tables["exact_ns"], tables["class_ns"]
    entries = [MathUnitEntry(count, 32, int(exact[count])) for count in range(1, len(exact))]
    first = (len(exact) - 1).bit_length()  # 16 has this length too, and an entry that is more specific
    return entries + [MathUnitEntry(1 << n - 1, 33 - n, int(classes[n])) for n in range(first, 33)]


def _mask(prefix_bits: int) -> int:
    return (1 << 32) - (1 << (32 - prefix_bits))


def _cells(target: str) -> int:
    """Cells that an MTU-sized packet occupies."""
    return -(-MODEL.mtu_bytes // CELL_BYTES[target])


CONSTANTS: list[Constant | Macro] = [
    Constant("TARGET_NS", int(_RECORD["target_ns"]), 32, "TARGET, Listing 2"),
    Constant("INTERVAL_NS", int(_RECORD["interval_ns"]), 32, "INTERVAL, Listing 2"),
    Constant("FIRST_DROP_COUNT", 2, 32, "the gap after the first drop is INTERVAL / sqrt(2), Listing 1"),
    Constant("MTU_TOFINO_CELLS", _cells("tofino"), 19, "IFACE_MTU in cells of 80 bytes"),
    Constant("MTU_TOFINO2_CELLS", _cells("tofino2"), 19, "IFACE_MTU in cells of 176 bytes"),
    Constant("MTU_PACKETS", 1, 19, "IFACE_MTU where packets are counted"),
    Constant("STATE_ENTRIES", STATES, 32, "512 ports with 32 queues"),
    Macro(
        "MATH_UNIT_ENTRIES",
        [f"0x{e.count:08x} &&& 0x{_mask(e.prefix_bits):08x}: root({e.gap_ns});" for e in math_unit_entries()],
        "the math unit as a table: prefix of the count, and the gap in ns",
    ),
    Constant("RESUME_NS", 16 * int(_RECORD["interval_ns"]), 64, "16 INTERVAL, Listing 1, if_3"),
    Macro(
        "ROOT_ENTRIES",
        [f"0x{e.count:08x} &&& 0x{_mask(e.prefix_bits):08x}: root({e.gap_ns});" for e in root_entries()],
        "INTERVAL / sqrt(count), Listing 1: prefix of the count, and the gap in ns",
    ),
]
