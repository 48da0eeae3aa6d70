"""An iterator in a thread gives what it gives in a loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from cctoolkit._support.threads import Ahead


def numbers(n: int, failure: Exception | None = None) -> Iterator[int]:
    yield from range(n)
    if failure is not None:
        raise failure


@given(st.integers(0, 50), st.integers(1, 5))
def test_items_come_in_order_and_all(n: int, most: int) -> None:
    assert list(Ahead(numbers(n), most, "numbers")) == list(range(n))


def test_an_error_comes_after_the_items_before_it() -> None:
    ahead = Ahead(numbers(3, OSError("no more")), 9, "numbers")
    found = []
    with pytest.raises(OSError, match="no more"):
        for item in ahead:
            found.append(item)
            time.sleep(0.01)  # the thread has failed long before
    assert found == [0, 1, 2]


def test_it_is_no_further_ahead_than_it_may_be() -> None:
    made = []

    def noted() -> Iterator[int]:
        for i in range(30):
            made.append(i)
            yield i

    for used in Ahead(noted(), 3, "numbers"):
        time.sleep(0.002)
        assert len(made) <= used + 1 + 3 + 1  # in use, waiting, and one that has no room yet


def test_the_thread_ends_when_stopped() -> None:
    before = threading.active_count()
    ahead = Ahead(numbers(10**9), 2, "numbers")
    assert next(iter(ahead)) == 0
    ahead.stop()
    assert threading.active_count() == before
