"""Of ``cbiq``: flows and slots that a switch has room for, and the tables that divide time by a slot's length.

A switch cannot divide. Two tables do it as on paper: each takes a whole number of slots off the time, the first by
its upper bits, the second by the upper bits of what is left; then less than two slots are left.
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
    Constant("RING_BITS", RING_BITS, 8, "a slot's place in the ring: a second to read a slot of 1 ms"),
    Constant("RING_CELLS", 1 << FLOW_BITS + RING_BITS, 32, "the rings of all flows"),
    Constant("COARSE_SHIFT", COARSE_SHIFT, 8, "the first step of the division: by 2^24 ns, 16.8 ms"),
    Constant("COARSE_ENTRIES", 1 << 32 - COARSE_SHIFT, 32, "all values of the upper bits"),
    Constant("FINE_SHIFT", FINE_SHIFT, 8, "the second: by 2^16 ns, 65.5 µs; a slot is no shorter"),
    Constant("FINE_ENTRIES", FINE_ENTRIES, 32, "for slots of up to 50 ms"),
]

SLOT_MIN_NS = 1 << FINE_SHIFT
SLOT_MAX_NS = (FINE_ENTRIES << FINE_SHIFT) - (1 << COARSE_SHIFT)


def slot_steps(slot_ns: int) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Entries of the tables ``coarse`` and ``fine``, for a slot's length.

    Parameters
    ----------
    slot_ns : int

    Returns
    -------
    coarse, fine : list of (int, int, int)
        Upper bits of a time, whole slots in it, and these slots' nanoseconds; of `fine` those with one slot more: the
        time from which that one has begun too.

    Raises
    ------
    ValueError
        The slot is too short or too long for the tables.
    """
    if not SLOT_MIN_NS <= slot_ns <= SLOT_MAX_NS:
        raise ValueError(
            f"a slot of {slot_ns / 1e6:g} ms: from {SLOT_MIN_NS / 1e6:g} to {SLOT_MAX_NS / 1e6:g} ms can be done"
        )
    coarse = []
    for bits in range(1 << 32 - COARSE_SHIFT):
        slots = (bits << COARSE_SHIFT) // slot_ns
        coarse.append((bits, slots, slots * slot_ns))
    fine = []
    left_ns = slot_ns - 1 + (1 << COARSE_SHIFT) - 1  # at most, after the coarse step
    for bits in range((left_ns >> FINE_SHIFT) + 1):
        slots = (bits << FINE_SHIFT) // slot_ns
        fine.append((bits, slots, (slots + 1) * slot_ns))
    return coarse, fine
