"""Jobs in processes of their own, which end with the process that started them, however it ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from .errors import CCToolkitError

__all__ = ["cores", "in_processes"]


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    function: Callable[..., Any], jobs: Iterable[tuple[Any, ...]], workers: int
) -> Generator[tuple[int, Future[Any]], None, None]:
    """Call a function with each job's arguments; give jobs' numbers and their futures as they are done.

    Functions and arguments may come from a notebook's cells. When the generator is closed, or this process ends in
    whatever way, the workers end at once.

    Raises
    ------
    CCToolkitError
        A worker died.
    """
    from numba import cloudpickle  # also carries classes and functions of a notebook's cells

    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_follow, initargs=(theirs,))
    futures: dict[Future[Any], int] = {}
    waiting = iter(enumerate(jobs))
    try:
        while True:
            for number, arguments in itertools.islice(waiting, 2 * workers - len(futures)):
                futures[pool.submit(_unpacked, cloudpickle.dumps((function, arguments)))] = number
            if not futures:
                break
            finished = wait(futures, return_when=FIRST_COMPLETED).done
            for future in sorted(finished, key=lambda f: f.exception() is not None):  # what is done first
                if isinstance(future.exception(), BrokenProcessPool):
                    raise CCToolkitError(
                        "a worker process died (out of memory?); what was done is kept, so run it again"
                    )
                yield futures.pop(future), future
        pool.shutdown()
    finally:
        ours.close()  # whatever they are doing
        pool.shutdown(cancel_futures=True)
        theirs.close()


def _follow(parent: Connection) -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it ends or gives up, however that comes about."""
    import tqdm

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tqdm.tqdm.set_lock(threading.RLock())  # its own is a semaphore that a sudden end leaves behind

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            parent.recv_bytes()  # nothing is ever sent
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _unpacked(payload: bytes) -> Any:
    function, arguments = pickle.loads(payload)
    return function(*arguments)
