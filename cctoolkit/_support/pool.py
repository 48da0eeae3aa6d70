"""Jobs in worker processes, which end when the process that started them ends, however it does."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from ..errors import CCToolkitError
from .waiting import progress_bar

__all__ = ["cores", "in_processes", "results"]


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    function: Callable[..., Any], jobs: Iterable[tuple[Any, ...]], workers: int
) -> Generator[tuple[int, Future[Any]], None, None]:
    """Call a function with each job's arguments; yield (job number, future) as jobs finish.

    Functions and arguments may be defined in notebook cells and in scripts, which need no
    ``if __name__ == "__main__":``. When the generator is closed or this process ends, for
    whatever reason, the workers end at once.

    Raises
    ------
    CCToolkitError
        A worker died.
    """
    from numba import cloudpickle  # also pickles classes and functions of notebook cells

    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent, initargs=(theirs,))
    futures: dict[Future[Any], int] = {}
    waiting = iter(enumerate(jobs))
    try:
        while True:
            for number, arguments in itertools.islice(waiting, 2 * workers - len(futures)):
                payload = cloudpickle.dumps((function, arguments))
                with _without_main():
                    futures[pool.submit(_call_pickled, payload)] = number
            if not futures:
                break
            finished = wait(futures, return_when=FIRST_COMPLETED).done
            for future in sorted(finished, key=lambda f: f.exception() is not None):  # successes first
                if isinstance(future.exception(), BrokenProcessPool):
                    raise CCToolkitError(
                        "a worker process died (out of memory?); finished jobs are kept, so run it again"
                    )
                yield futures.pop(future), future
        pool.shutdown()
    finally:
        ours.close()  # ends the workers, whatever they are doing
        pool.shutdown(cancel_futures=True)
        theirs.close()


@contextlib.contextmanager
def _without_main() -> Generator[None, None, None]:
    """Keep processes that start meanwhile from running the user's script again; jobs carry what it defines."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def results(
    function: Callable[..., Any],
    jobs: Sequence[tuple[Any, ...]],
    workers: int | None = None,
    *,
    progress: bool = False,
) -> list[Any]:
    """The function's result for each job, in order; `workers` at a time (default: one per core).

    A single worker runs in this process. `progress` shows a bar.

    Raises
    ------
    CCToolkitError
        A worker died.
    """
    workers = min(workers or cores(), max(len(jobs), 1))
    found: dict[int, Any] = {}
    with progress_bar(total=len(jobs), unit="run", disable=not progress, leave=False) as bar:
        if workers == 1:
            for number, job in enumerate(jobs):
                found[number] = function(*job)
                bar.update()
        else:
            with contextlib.closing(in_processes(function, jobs, workers)) as done:
                for number, future in done:
                    found[number] = future.result()
                    bar.update()
    return [found[number] for number in range(len(jobs))]


def _end_with_parent(parent: Connection) -> None:
    """In a worker: leave Ctrl-C to the parent, and exit when the parent ends or closes its end of the pipe."""
    import tqdm

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tqdm.tqdm.set_lock(threading.RLock())  # its default is a semaphore, which a sudden exit would leak

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            parent.recv_bytes()  # nothing is ever sent
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _call_pickled(payload: bytes) -> Any:
    function, arguments = pickle.loads(payload)
    return function(*arguments)
