"""State that grows with the flows: nothing is lost, and memory is neither touched nor kept without need."""

from __future__ import annotations

import ctypes
import errno
import sys
from pathlib import Path

import numpy as np
import pytest

from cctoolkit._support import state
from cctoolkit._support.state import aligned_zeros, grown, release
from cctoolkit.errors import CCToolkitError

ROWS = 1 << 20
RECORD = np.dtype([("a", "i8"), ("b", "u4"), ("c", "u4")])


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def filled(rows: slice) -> np.ndarray:
    state = aligned_zeros((ROWS, 2), RECORD)
    state["a"][rows] = np.arange(ROWS)[rows, np.newaxis] + 1
    state["c"][rows, 1] = 7
    return state


@pytest.fixture(params=["", "older kernel", "no such call"])
def without_mremap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pages cannot be moved, they are copied."""
    if request.param == "older kernel":
        monkeypatch.setattr(state, "_MOVE", state._MOVE | 8)  # a flag that no kernel knows
    elif request.param:
        known = state._system
        monkeypatch.setattr(
            state, "_system", lambda name, *types: None if name == "mremap" else known(name, *types)
        )


@pytest.mark.slow
@pytest.mark.usefixtures("without_mremap")
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("rows", [slice(None), slice(0, 10), slice(ROWS // 2, ROWS // 2 + 1), slice(0, 0)])
def test_every_row_is_there(rows: slice, moved: bool) -> None:
    old, expected = filled(rows), filled(rows)
    new = grown(old, ROWS + 1, moved=moved)
    assert len(new) == 2 * ROWS and new.ctypes.data % 128 == 0
    assert np.array_equal(new[:ROWS], expected) and not new[ROWS:].view(np.uint8).any()
    if not moved:
        assert np.array_equal(old, expected)


@pytest.mark.slow
def test_it_grows_again_and_again() -> None:
    """Moved pages are in mappings of their own, and move again; the array they came from stays memory."""
    array = aligned_zeros((400_003, 3), np.int64)
    array[:] = np.arange(array.size).reshape(array.shape)
    for _ in range(4):
        expected, before = array.copy(), array
        array = grown(array, len(array) + 1, moved=True)
        assert np.array_equal(array[: len(expected)], expected) and not array[len(expected) :].any()
        before[:] = 5
        assert np.array_equal(array[: len(expected)], expected)
        array[len(expected) :] = 7


def test_memory_that_cannot_be_moved_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: int) -> int:
        ctypes.set_errno(errno.ENOMEM)
        return -1

    monkeypatch.setattr(state, "_system", lambda *_: fails)
    with pytest.raises(CCToolkitError, match="not enough memory"):
        grown(filled(slice(None)), ROWS + 1, moved=True)


def test_what_is_large_enough_or_strided_or_sparse() -> None:
    array = np.arange(10)
    assert grown(array, 10) is array
    assert grown(array[::2], 6).tolist() == [0, 2, 4, 6, 8, 0, 0, 0, 0, 0]
    assert grown(array, 11, np.array([3, 99])).nonzero()[0].tolist() == [3]
    release(array)  # shorter than a page: nothing to give back
    assert array.tolist() == list(range(10))


@pytest.mark.skipif(sys.platform != "linux", reason="measures with /proc")
def test_memory_of_rows_that_are_zero_or_moved() -> None:
    before = resident_bytes()
    state = filled(slice(0, 10))
    state = grown(state, ROWS + 1)
    assert resident_bytes() - before < state.nbytes / 4  # next to nothing was touched
    del state
    old = filled(slice(None))
    full = resident_bytes()
    new = grown(old, ROWS + 1, moved=True)
    assert resident_bytes() - full < old.nbytes / 4  # not twice as much
    assert new["c"][ROWS - 1, 1] == 7
