"""State arrays that grow with the number of flows, aligned to cache lines."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import CCToolkitError
from .words import format_bytes

__all__ = ["aligned_zeros", "grown", "release"]

_ALIGNMENT_BYTES = 128  # two cache lines: processors fetch them in pairs
_BLOCK_BYTES = 1 << 22  # copied at once; a multiple of the large pages of most systems


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


def grown(
    array: np.ndarray, length: int, used: np.ndarray | None = None, *, moved: bool = False
) -> np.ndarray:
    """`array` with room for at least `length` rows: itself, or a copy of twice the length, padded with zeros.

    Doubling keeps the cost of growing small over many batches. What is all zero is not copied, so that it stays
    untouched memory.

    Parameters
    ----------
    array : array
        The rows so far.
    length : int
        How many are needed.
    used : array of int, optional
        Indices of the rows that are not zero, if they are few.
    moved : bool
        Nothing else refers to `array`: its memory is given back while it is copied, and its content lost.
    """
    if length <= len(array):
        return array
    larger = aligned_zeros((max(length, 2 * len(array)), *array.shape[1:]), array.dtype)
    if used is not None:
        rows = used[used < len(array)]
        larger[rows] = array[rows]
        return larger
    if not array.flags.c_contiguous or array.nbytes < 2 * _BLOCK_BYTES:
        larger[: len(array)] = array
        return larger
    source, target = (part.reshape(-1).view(np.uint8) for part in (array, larger))
    for start in range(0, len(source), _BLOCK_BYTES):
        block = source[start : start + _BLOCK_BYTES]
        if block.any():
            target[start : start + len(block)] = block
            if moved:
                release(block)
    return larger


def release(array: np.ndarray) -> None:
    """Give back the memory of a contiguous array that is no longer needed before all views of it are gone."""
    advise = _madvise()
    if advise is not None:
        first = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
        size = array.ctypes.data + array.nbytes - first
        if size >= mmap.PAGESIZE:
            advise(first, size // mmap.PAGESIZE * mmap.PAGESIZE)


@functools.cache
def _madvise() -> Callable[[int, int], None] | None:
    """Tells the kernel that pages are not needed; None where it would not listen."""
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return lambda address, size: function(address, size, mmap.MADV_DONTNEED)
