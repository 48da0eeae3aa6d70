"""Threads: the cores there are for them, and an iterator that runs in one, ahead of the loop that uses its items."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["Ahead", "cores", "wait_until"]

Item = TypeVar("Item")

_FIRST_PAUSE_S = 50e-6
_LONGEST_PAUSE_S = 2e-3


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Ahead(Generic[Item]):
    """Iterates over `items` in a thread of its own, which pays if they release the GIL.

    Parameters
    ----------
    items : iterator
        Used by the thread only, from now on. What it raises is raised where its next item would have been.
    most : int
        Items that may wait to be used.
    name : str
        Name of the thread.

    Raises
    ------
    RuntimeError
        No thread can be started.
    """

    def __init__(self, items: Iterator[Item], most: int, name: str) -> None:
        self._items = items
        self._most = most
        self._ready: deque[Item] = deque()
        self._stopped = False
        self._ended = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for item in self._items:
                wait_until(lambda: len(self._ready) < self._most or self._stopped)
                self._ready.append(item)
                if self._stopped:
                    return
        except BaseException as err:  # such as an I/O error
            self._failure = err
        finally:
            self._ended = True

    def __iter__(self) -> Iterator[Item]:
        while True:
            wait_until(lambda: bool(self._ready) or self._ended)
            if self._ready:  # also once it has ended
                yield self._ready.popleft()
            elif self._failure is not None:
                raise self._failure
            else:
                return

    def stop(self, *, wait: bool = True) -> bool:
        """End the thread after the present item.

        Parameters
        ----------
        wait : bool
            Until it has ended.

        Returns
        -------
        bool
            Whether it has.
        """
        self._stopped = True
        if wait:
            self._thread.join()
        return not self._thread.is_alive()


def wait_until(done: Callable[[], bool]) -> None:
    """Wait for another thread, and look again after short pauses.

    To be woken would cost the other thread some 30 µs, in a virtual machine, and that is the one that is late.
    """
    pause_s = _FIRST_PAUSE_S
    while not done():
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
