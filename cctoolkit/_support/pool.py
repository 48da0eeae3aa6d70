"""Jobs in worker processes, which end when the process that started them ends, however it does.

Starting a worker takes seconds (it imports all that its jobs need), so after the last job workers wait for the next
ones: the cells of a notebook and the parts of an experiment share theirs.
"""

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
from .threads import cores
from .waiting import progress_bar

__all__ = ["in_processes", "results"]


def in_processes(
    function: Callable[..., Any], jobs: Iterable[tuple[Any, ...]], workers: int
) -> Generator[tuple[int, Future[Any]], None, None]:
    """Call a function with each job's arguments; yield (job number, future) as jobs finish.

    Functions and arguments may be defined in notebook cells and in scripts, which need no
    ``if __name__ == "__main__":``. When the generator is closed or this process ends, for
    whatever reason, the workers end at once. After the last job they wait a while for the next
    call, which need not start new ones.

    Raises
    ------
    CCToolkitError
        A worker died.
    """
    from numba import cloudpickle  # also pickles classes and functions of notebook cells

    pool = _take_idle(workers) or _Pool(workers)
    futures: dict[Future[Any], int] = {}
    waiting = iter(enumerate(jobs))
    try:
        while True:
            for number, arguments in itertools.islice(waiting, 2 * workers - len(futures)):
                payload = cloudpickle.dumps((function, arguments))
                with _without_main():
                    futures[pool.executor.submit(_call_pickled, payload)] = number
            if not futures:
                break
            finished = wait(futures, return_when=FIRST_COMPLETED).done
            for future in sorted(finished, key=lambda f: f.exception() is not None):  # successes first
                if isinstance(future.exception(), BrokenProcessPool):
                    raise CCToolkitError(
                        "a worker process died (out of memory?); finished jobs are kept, so run it again"
                    )
                yield futures.pop(future), future
    except BaseException:  # also Ctrl-C, and when the generator is closed
        pool.end()
        raise
    _keep_idle(pool)


class _Pool:
    """Worker processes, and what they were started in."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        context = get_context("spawn")
        self._theirs, self._ours = context.Pipe(duplex=False)
        self.executor = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_end_with_parent, initargs=(self._theirs,)
        )
        self._surroundings, self._modules = _surroundings(), _module_times()

    def end(self) -> None:
        """End the workers, whatever they are doing."""
        self._ours.close()
        self.executor.shutdown(cancel_futures=True)
        self._theirs.close()

    def note_modules(self) -> None:
        """Add modules imported since; a worker may have them as they were before, so older times count."""
        self._modules = _module_times() | self._modules

    def is_as_new(self, workers: int) -> bool:
        """Whether new workers would see the same: variables, folder, and code."""
        if self.workers != workers or self._surroundings != _surroundings():
            return False
        return self._modules.items() <= _module_times().items()

    def forget(self) -> None:
        """In a process forked from the one whose workers these are: hold nothing that keeps them alive."""
        self._ours.close()


def _surroundings() -> tuple[Any, ...]:
    with contextlib.suppress(OSError):
        return os.getcwd(), dict(os.environ), list(sys.path)
    return (object(),)  # the folder is gone: equal to nothing


def _module_times() -> dict[str, tuple[str, int]]:
    """File and time of change of each module that somebody may edit: all but installed ones."""
    installed = tuple(os.path.join(prefix, "") for prefix in (sys.prefix, sys.base_prefix))
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not file.startswith(installed):
            with contextlib.suppress(OSError):
                found[name] = file, os.stat(file).st_mtime_ns
    return found


#: How long workers without jobs are kept, in s.
_KEPT_S = 30.0
_lock = threading.Lock()
_idle: _Pool | None = None
_expiry: threading.Timer | None = None


def _take_idle(workers: int) -> _Pool | None:
    """The idle workers, if they are as new ones would be; others end."""
    global _idle
    with _lock:
        pool, _idle = _idle, None
        if _expiry is not None:
            _expiry.cancel()
    if pool is None or pool.is_as_new(workers):
        return pool
    pool.end()
    return None


def _keep_idle(pool: _Pool) -> None:
    global _idle, _expiry
    pool.note_modules()
    with _lock:
        if _idle is None:
            _idle = pool
            _expiry = threading.Timer(_KEPT_S, _end_idle, (pool,))
            _expiry.daemon = True
            _expiry.start()
            return
    pool.end()


def _end_idle(pool: _Pool) -> None:
    global _idle
    with _lock:
        if _idle is not pool:
            return
        _idle = None
    pool.end()


def _after_fork() -> None:
    global _idle, _expiry, _lock, _forgotten
    _lock = threading.Lock()
    if _idle is not None:
        _idle.forget()
        _forgotten = _idle  # its end would reach for the parent's workers
    _idle = _expiry = None


_forgotten: _Pool | None = None
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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
