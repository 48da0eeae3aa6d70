"""Where time axes are cut: at silences that dwarf the rest, the same however the stream was cut into parts."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from cctoolkit.report.idle import LEAST_NS, MOST_CUTS, Idle, Silences

S = 1_000_000_000
DAY = 86_400 * S


def idle_of(ts: list[int], parts: int = 1) -> Idle:
    silences = Silences()
    for part in np.array_split(np.array(ts, np.int64), parts):
        silences.update(part)
    return silences.idle()


def bursts(starts_s: list[float], lasting_s: float = 5, every_s: float = 0.01) -> list[int]:
    return [round((start + i * every_s) * S) for start in starts_s for i in range(round(lasting_s / every_s))]


@pytest.mark.parametrize(
    ("starts_s", "cuts"),
    [
        ([0], 0),
        ([0, 8], 0),  # too short to matter
        ([0, 132_000_000], 1),  # four years
        ([0, 86_400, 2 * 86_400], 2),  # three days, each as long as the other
        ([0, 86_400, 5 * 365 * 86_400], 2),  # a day, then five years
        ([30 * i for i in range(40)], 0),  # a rhythm, not a silence
        ([*(30 * i for i in range(20)), 86_400], 1),  # a rhythm, then nothing for a day
        ([86_400 * i for i in range(20)], 0),  # too many to read side by side
    ],
)
def test_where_silence_is_cut(starts_s, cuts):
    assert len(idle_of(bursts(starts_s))) == cuts


def test_two_packets_and_none():
    assert len(idle_of([])) == len(idle_of([5])) == 0
    idle = idle_of([5, 5 + 1528 * DAY])
    assert idle.parts_ns(5, 5 + 1528 * DAY) == [(5, 5), (5 + 1528 * DAY, 5 + 1528 * DAY)]


times = st.lists(st.integers(0, 60 * S), min_size=1, max_size=40)


@given(st.lists(times, min_size=1, max_size=4), st.lists(st.integers(60 * S, 10_000 * DAY), min_size=3, max_size=3),
       st.integers(1, 6), st.randoms())  # fmt: skip
def test_cut_time_goes_on_and_comes_back(groups, gaps, parts, random):
    ts, start = [], 10**18
    for group, gap in zip(groups, [*gaps, 0], strict=False):
        ts += [start + t for t in sorted(group)]
        start = ts[-1] + gap
    if random.random() < 0.3 and len(ts) > 3:  # a clock that was set back a little
        k = random.randrange(1, len(ts))
        ts[k] -= 1_000
    idle, again = idle_of(ts), idle_of(ts, parts)
    assert idle == again
    assert len(idle) <= MOST_CUTS
    assert all(removed + idle.remainder_ns > LEAST_NS for removed in idle.removed_ns)
    array = np.array(ts, np.int64)
    busy = idle.to_busy(array)
    assert (idle.to_real(busy) == array).all()
    order = np.argsort(array, kind="stable")
    assert (np.diff(busy[order]) >= 0).all()
    assert (np.diff(busy[order]) <= np.diff(array[order])).all()
    # naively: each part's packets are within it
    inside = idle.parts_ns(min(ts), max(ts))
    assert all(any(first - 1_000 <= t <= last for first, last in inside) for t in ts)
    if len(idle):
        assert busy.max() - busy.min() < (array.max() - array.min()) * (0.5 + 0.05 * MOST_CUTS) + 10**9
