"""What identifies a flow and a TCP segment at any tap: fields that a queue on the way does not change."""

from __future__ import annotations

import numba
import numpy as np

from .._support.state import grown
from ..capture.keys import FlowKeys

__all__ = ["FlowNames", "segment_identity", "timestamps"]


@numba.njit(inline="always")
def segment_identity(way, seq, ack, flags, payload, window):
    """A 64-bit hash of a TCP segment of a way, but for its timestamps; two different ones collide with 2**-64.

    Timestamps (:func:`timestamps`) are compared separately: where a tap's snap length cut them off, the rest decides.
    """
    x = np.uint64(way) << np.uint64(32) | np.uint64(seq)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    x ^= np.uint64(ack) << np.uint64(32) | np.uint64(payload)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    x ^= np.uint64(flags) << np.uint64(32) | np.uint64(window)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> np.uint64(32))


@numba.njit(inline="always")
def timestamps(tsval, tsecr):
    """Both timestamps of a segment (RFC 7323) as one number; 0: it has none, or they were not captured."""
    return np.uint64(tsval) << np.uint64(32) | np.uint64(tsecr)


class FlowNames:
    """Numbers a tap's flows by their 5-tuple, whichever end opened them.

    Parameters
    ----------
    numbers : dict
        Maps a 5-tuple to its number; taps that share it give a 5-tuple the same number.

    Attributes
    ----------
    codes : int64 array
        By flow id: ``2 * number + (the initiator is the upper end) + 1``, or 0: not (yet) seen.
    """

    def __init__(self, numbers: dict[bytes, int]) -> None:
        self.codes = np.zeros(0, np.int64)
        self._numbers = numbers

    def learn(self, keys: FlowKeys) -> list[tuple[int, int, bool]]:
        """Yield flows not seen before: flow id, number, whether the initiator is the upper end."""
        if not len(keys):
            return []
        self.codes = grown(self.codes, int(keys.flow_id[-1]) + 1)
        rows = np.flatnonzero(self.codes[keys.flow_id] == 0)
        ends = np.zeros((2, len(rows), 18), np.uint8)
        for end, address, port in (ends[0], keys.src, keys.sport), (ends[1], keys.dst, keys.dport):
            end[:, :16] = address[rows]
            end[:, 16:] = port[rows].astype(">u2").view(np.uint8).reshape(-1, 2)
        source, target = (np.ascontiguousarray(end).view("V18").ravel() for end in ends)
        upper = np.array([s > t for s, t in zip(_bytes_of(source), _bytes_of(target), strict=True)], np.bool_)
        ends[:, upper] = ends[::-1, upper]
        name = np.concatenate(
            [keys.ip_version[rows, None], keys.protocol[rows, None], ends[0], ends[1]], axis=1
        )
        numbers = [
            self._numbers.setdefault(name, len(self._numbers))
            for name in _bytes_of(np.ascontiguousarray(name).view("V38").ravel())
        ]
        self.codes[keys.flow_id[rows]] = 2 * np.array(numbers, np.int64) + upper + 1
        return list(zip(keys.flow_id[rows].tolist(), numbers, upper.tolist(), strict=True))


def _bytes_of(rows: np.ndarray) -> list[bytes]:
    size, whole = rows.dtype.itemsize, rows.tobytes()
    return [whole[i : i + size] for i in range(0, len(whole), size)]
