"""State arrays that grow with the number of flows, aligned to cache lines."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ..errors import CCToolkitError
from .words import format_bytes

__all__ = ["aligned_zeros", "grown", "release"]

_ALIGNMENT_BYTES = 128  # two cache lines: processors fetch them in pairs
_LARGE_BYTES = 1 << 23  # such an array has a mapping of its own
_LARGE_PAGE_BYTES = 1 << 21
_BLOCK_BYTES = 1 << 22  # copied or moved at once; a multiple of the large pages of most systems
_MOVE = 1 | 2 | 4  # MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP (Linux 5.7) of mremap(2)


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """Zeros aligned to a pair of cache lines, large arrays to large pages; they take no memory until touched."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    large = size >= _LARGE_BYTES and sys.platform == "linux"
    alignment = _LARGE_PAGE_BYTES if large else _ALIGNMENT_BYTES
    try:
        memory = _mapping(size + alignment) if large else np.zeros(size + alignment, np.uint8)
    except (MemoryError, OSError):
        raise _not_enough(size, f"{shape[0]:,} rows of state") from None
    start = -memory.ctypes.data % alignment
    return memory[start : start + size].view(dtype).reshape(shape)


def _not_enough(size: int, what: str) -> CCToolkitError:
    return CCToolkitError(
        f"not enough memory: {format_bytes(size)} for {what}; select fewer flows or packets"
    )


def _mapping(size: int) -> np.ndarray:
    """Bytes in a mapping of their own, in large pages where the kernel has them."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def grown(
    array: np.ndarray, length: int, used: np.ndarray | None = None, *, moved: bool = False
) -> np.ndarray:
    """`array` with room for at least `length` rows: itself, or its content in twice the length, padded with zeros.

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
        Nothing else refers to `array`, and its content may be lost: its pages move to the new array, or are given back
        while they are copied.
    """
    if length <= len(array):
        return array
    larger = aligned_zeros((max(length, 2 * len(array)), *array.shape[1:]), array.dtype)
    if used is not None:
        rows = used[used < len(array)]
        larger[rows] = array[rows]
        return larger
    if not array.flags.c_contiguous or array.nbytes < _LARGE_BYTES:
        larger[: len(array)] = array
        return larger
    source, target = (part.reshape(-1).view(np.uint8) for part in (array, larger[: len(array)]))
    for start in range(0, len(source), _BLOCK_BYTES):
        block, place = (part[start : start + _BLOCK_BYTES] for part in (source, target))
        if moved and len(block) == _BLOCK_BYTES and _move_pages(block, place):
            continue
        if block.any():
            place[:] = block
            if moved:
                release(block)
    return larger


def _move_pages(block: np.ndarray, place: np.ndarray) -> bool:
    """Move the pages of a block instead of copying them, if the kernel can; zeros take their place.

    A block is moved at a time, as its pages must be in one mapping, and moving some splits mappings.
    """
    mremap = _system(
        "mremap", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    )
    here, there = block.ctypes.data, place.ctypes.data
    if mremap is None or here % mmap.PAGESIZE or there % mmap.PAGESIZE:
        return False
    if mremap(here, len(block), len(block), _MOVE, there) == there:
        return True
    if ctypes.get_errno() == errno.EINVAL:  # of the flags, by an older kernel
        return False
    raise _not_enough(len(block), "state")  # the place may be gone


def release(array: np.ndarray) -> None:
    """Give back the memory of a contiguous array that is no longer needed before all views of it are gone."""
    madvise = _system("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if madvise is not None:
        first = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
        size = array.ctypes.data + array.nbytes - first
        if size >= mmap.PAGESIZE:
            madvise(first, size // mmap.PAGESIZE * mmap.PAGESIZE, mmap.MADV_DONTNEED)


@functools.cache
def _system(name: str, *arguments: Any) -> Callable[..., int] | None:
    """A function of Linux's C library that returns an address or a status; None elsewhere."""
    if sys.platform != "linux":
        return None
    function: Any = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is not None:
        function.argtypes, function.restype = arguments, ctypes.c_ssize_t
    return cast("Callable[..., int] | None", function)
