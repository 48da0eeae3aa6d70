"""What a tap did not see below the highest sequence number of a direction whose ACKs it does not see either.

The gaps are the holes of :mod:`cctoolkit.analysis.flow_kernels`: the kernel's state of a direction has ``holes`` (its
row of them, taken when the first gap opens) and ``hole_count``. There, the oldest hole of too many is forgotten. Here
its bytes still count when they come: ``missed`` says how many, but no longer which.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from ..._support.kernels import kernel
from ..flow_kernels import HOLES, fill_holes, insert_hole
from ..sequence import ahead

__all__ = ["GAPS", "new_bytes"]

#: So many gaps of a direction are known exactly. The last hole is room for the rest of a gap filled in its middle.
GAPS = HOLES - 1
_MOST = 0xFFFFFFFF


@kernel
@no_type_check  # numba types it
def new_bytes(state, holes, used, begin, length):
    """Note a segment that does not begin where the data so far ends: it leaves a gap, or may fill some.

    Parameters
    ----------
    state : record with ``end``, ``holes``, ``hole_count`` and ``missed``
        Of the direction; updated, except for ``end``, the highest sequence number before this segment.
    holes : array of :data:`~cctoolkit.analysis.flow_kernels.HOLE`
        :data:`HOLES` for each row, one of which is free; updated.
    used : int64 array, shape (2,)
        The second number is how many rows are taken, besides row 0, which stays empty; updated.
    begin : int64
        The segment's first sequence number.
    length : int64
        How many of its bytes are below ``end``.

    Returns
    -------
    int
        How many of these were not seen before.
    """
    end = np.int64(state.end)
    new = np.int64(0)
    if ahead(begin, end) > 0:
        place = np.int64(state.hole_count)
        insert_hole(state, holes, used, place, state.end, np.uint32(begin), np.int64(0), np.uint32(0))
    else:
        if state.missed != 0:
            first = np.uint64(state.holes) * np.uint64(HOLES)
            known_from = np.int64(holes[first].left) if state.hole_count != 0 else end
            new = min(max(ahead(known_from, begin), 0), length, np.int64(state.missed))
            state.missed -= new
        new += fill_holes(state, holes, used, begin, length)[0]
    if state.hole_count > GAPS:
        oldest = holes[np.uint64(state.holes) * np.uint64(HOLES)]
        left = np.int64(oldest.left)
        size = (np.int64(oldest.right) - left) & _MOST
        state.missed = min(np.int64(state.missed) + size, _MOST)
        fill_holes(state, holes, used, left, size)
    return new
