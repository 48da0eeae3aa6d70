"""Long silences: where a time axis is cut to show what happened on either side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Idle", "Silences"]

#: Shorter silences are never cut.
LEAST_NS = 10_000_000_000
#: Maximum number of cuts: more parts cannot be read side by side.
MOST_CUTS = 4
#: The silences that are cut make up at least this share of the capture, …
SHARE = 0.5
#: … and the shortest of them is this many times as long as the longest that stays: a pause every 30 s is a rhythm.
CLEARLY = 10
#: Remainder of a silence, as a share of the rest, so that the parts have no time bin in common.
REMAINDER = 0.04
_LEAST_REMAINDER_NS = 10_000_000


@dataclass(frozen=True)
class Idle:
    """Silences that time axes leave out; without any, both clocks are the same.

    Attributes
    ----------
    began_ns : tuple of int
        Time of the last packet before each, ascending.
    removed_ns : tuple of int
        How much of each is left out.
    remainder_ns : int
        How much of each stays.
    """

    began_ns: tuple[int, ...] = ()
    removed_ns: tuple[int, ...] = ()
    remainder_ns: int = 0

    def __len__(self) -> int:
        return len(self.began_ns)

    def to_busy(self, ts_ns: np.ndarray) -> np.ndarray:
        """Times on a clock that stands still in these silences."""
        return ts_ns - self._removed_before()[np.searchsorted(np.array(self.began_ns, np.int64), ts_ns)]

    def to_real(self, busy_ns: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`to_busy`; the remainder of a silence is shared between its sides."""
        removed = self._removed_before()
        borders = np.array(self.began_ns, np.int64) - removed[:-1] + self.remainder_ns // 2
        return busy_ns + removed[np.searchsorted(borders, busy_ns)]

    def _removed_before(self) -> np.ndarray:
        """How much is left out before each part; 0 before the first."""
        return np.append(0, np.cumsum(np.array(self.removed_ns, np.int64)))

    def parts_ns(self, first_ns: int, last_ns: int) -> list[tuple[int, int]]:
        """First and last packet of each stretch between the silences."""
        ends = zip(self.began_ns, self.removed_ns, strict=True)
        resumed = [began + removed + self.remainder_ns for began, removed in ends]
        return list(zip([first_ns, *resumed], [*self.began_ns, last_ns], strict=True))


class Silences:
    """The longest times without a packet, collected part by part."""

    def __init__(self) -> None:
        self._began = np.zeros(0, np.int64)
        self._length = np.zeros(0, np.int64)
        self._first: int | None = None
        self._last = 0

    def update(self, ts_ns: np.ndarray) -> None:
        """Take the capture times of the next packets."""
        if not len(ts_ns):
            return
        if self._first is None:
            self._first = self._last = int(ts_ns[0])
        # A packet stamped earlier than one before it ends no silence.
        before = np.maximum(np.maximum.accumulate(np.append(self._last, ts_ns[:-1])), self._last)
        began, length = np.append(self._began, before), np.append(self._length, ts_ns - before)
        keep = MOST_CUTS + 1
        if len(length) > keep:
            longest = np.argpartition(length, -keep)[-keep:]
            began, length = began[longest], length[longest]
        self._began, self._length = began, length
        self._last = max(self._last, int(ts_ns.max()))

    def idle(self) -> Idle:
        """The silences to cut: a few long ones that make up most of the capture and stand out from the others."""
        duration = self._last - (self._first or 0)
        order = np.argsort(-self._length, kind="stable")
        length = np.append(self._length[order], 0)
        for n in range(min(MOST_CUTS, len(order)), 0, -1):
            cut = length[:n]
            if cut[-1] > LEAST_NS and cut.sum() >= SHARE * duration and cut[-1] >= CLEARLY * length[n]:
                # of times 584 years apart, no more than 64 bits hold
                remainder = min(max(int(REMAINDER * (duration - int(cut.sum()))), _LEAST_REMAINDER_NS), 2**62)
                by_time = order[:n][np.argsort(self._began[order[:n]])]
                began, removed = self._began[by_time], self._length[by_time] - remainder
                return Idle(tuple(began.tolist()), tuple(removed.tolist()), remainder)
        return Idle()
