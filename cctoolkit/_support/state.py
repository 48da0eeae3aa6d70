"""State arrays that grow with the number of flows, aligned to cache lines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import CCToolkitError
from .words import format_bytes

__all__ = ["aligned_zeros", "grown"]

_ALIGNMENT_BYTES = 128  # two cache lines: processors fetch them in pairs


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """Zeros aligned to a pair of cache lines; they take no memory until touched."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    try:
        memory = np.zeros(size + _ALIGNMENT_BYTES, np.uint8)
    except MemoryError:
        raise CCToolkitError(
            f"not enough memory: {format_bytes(size)} for {shape[0]:,} rows of state; select fewer flows or packets"
        ) from None
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)


def grown(array: np.ndarray, length: int, used: np.ndarray | None = None) -> np.ndarray:
    """`array` with room for at least `length` rows: itself, or a copy of twice the length, padded with zeros.

    Doubling keeps the cost of growing small over many batches. If few rows are nonzero, give their indices as `used`:
    only those are copied, so the rest stays untouched memory.
    """
    if length <= len(array):
        return array
    larger = aligned_zeros((max(length, 2 * len(array)), *array.shape[1:]), array.dtype)
    rows = slice(len(array)) if used is None else used[used < len(array)]
    larger[rows] = array[rows]
    return larger
