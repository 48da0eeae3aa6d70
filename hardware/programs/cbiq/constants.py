"""Constants of ``cbiq``: room for flows and slots, and the tables that divide a time by the slot length.

A switch cannot divide. Two tables do long division: each takes a whole number of slots off the time, the
first by its upper bits, the second by the upper bits of the remainder. Less than two slots remain.
"""

from __future__ import annotations

from ...constants import Constant

__all__ = ["CONSTANTS", "SLOT_MAX_NS", "SLOT_MIN_NS", "slot_steps"]

FLOW_BITS = 4
RING_BITS = 10
COARSE_SHIFT = 24
FINE_SHIFT = 16
FINE_ENTRIES = 1024

CONSTANTS = [
    Constant("FLOW_BITS", FLOW_BITS, 8, "a watched flow's number"),
    Constant("FLOW_ENTRIES", 1 << FLOW_BITS, 32, "watched flows, of IPv4 and IPv6 together"),
    Constant("RING_BITS", RING_BITS, 8, "a slot's place in the ring; leaves a second to read a slot of 1 ms"),
    Constant("RING_CELLS", 1 << FLOW_BITS + RING_BITS, 32, "rings of all flows"),
    Constant("COARSE_SHIFT", COARSE_SHIFT, 8, "first step of the division: by 2^24 ns, 16.8 ms"),
    Constant("COARSE_ENTRIES", 1 << 32 - COARSE_SHIFT, 32, "all values of the upper bits"),
    Constant("FINE_SHIFT", FINE_SHIFT, 8, "second step: by 2^16 ns, 65.5 µs; the shortest slot"),
    Constant("FINE_ENTRIES", FINE_ENTRIES, 32, "for slots of up to 50 ms"),
]

SLOT_MIN_NS = 1 << FINE_SHIFT
SLOT_MAX_NS = (FINE_ENTRIES << FINE_SHIFT) - (1 << COARSE_SHIFT)


def slot_steps(slot_ns: int) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Entries of the tables ``coarse`` and ``fine`` for a slot length.

    Parameters
    ----------
    slot_ns : int

    Returns
    -------
    coarse, fine : list of (int, int, int)
        Upper bits of a time, the number of whole slots in it, and the length of these slots in ns. In `fine`
        the length includes one more slot: from this time on, that slot has begun too.

    Raises
    ------
    ValueError
        The slot is too short or too long for the tables.
    """
    if not SLOT_MIN_NS <= slot_ns <= SLOT_MAX_NS:
        raise ValueError(f"{slot_ns / 1e6:g} ms must be {SLOT_MIN_NS / 1e6:g} to {SLOT_MAX_NS / 1e6:g} ms")
    coarse = []
    for bits in range(1 << 32 - COARSE_SHIFT):
        slots = (bits << COARSE_SHIFT) // slot_ns
        coarse.append((bits, slots, slots * slot_ns))
    fine = []
    left_ns = slot_ns - 1 + (1 << COARSE_SHIFT) - 1  # the most that the coarse step leaves
    for bits in range((left_ns >> FINE_SHIFT) + 1):
        slots = (bits << FINE_SHIFT) // slot_ns
        fine.append((bits, slots, (slots + 1) * slot_ns))
    return coarse, fine
