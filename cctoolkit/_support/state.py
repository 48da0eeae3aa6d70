"""State arrays that grow with the flows: zeros, one cache line after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["aligned_zeros", "grown"]

_ALIGNMENT_BYTES = 128  # two cache lines: processors fetch them in pairs


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """Zeros that start at a pair of cache lines; they cost no memory until they are touched."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)


def grown(array: np.ndarray, length: int, used: np.ndarray | None = None) -> np.ndarray:
    """`array` with room for `length` rows at least: itself, or twice as long with zeros behind what it holds.

    Doubling keeps the cost of growing small over many batches. Where few rows are not zero, `used` (their indices)
    keeps the others from being copied, which would touch them.
    """
    if length <= len(array):
        return array
    larger = aligned_zeros((max(length, 2 * len(array)), *array.shape[1:]), array.dtype)
    rows = slice(len(array)) if used is None else used[used < len(array)]
    larger[rows] = array[rows]
    return larger
