"""Where tasks run: in this process, in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from .._support.words import first_line
from ..errors import CCToolkitError, ParameterError
from .memory import BASE_BYTES, Memory

__all__ = ["connected"]

_SHARE = 0.8  # share of a machine's memory for all workers together
_SLACK = 1.25  # factor by which a process may briefly exceed its limit before Dask ends it


@contextlib.contextmanager
def connected(
    workers: int | None, scheduler: str | None, memory_bytes: int | None
) -> Iterator[tuple[Any, Memory]]:
    """Connect to Dask: a client, and the memory of one of its workers.

    Parameters
    ----------
    workers : int, optional
        Number of processes on this machine; 1 or None: this process, one task at a time.
    scheduler : str, optional
        Address of a scheduler to use instead. Its workers should have one thread each.
    memory_bytes : int, optional
        Memory of one worker in bytes; by default an equal share of four fifths of the machine's, or that of the
        cluster's smallest worker.

    Raises
    ------
    ParameterError
        The extra `batch` is missing, no scheduler answers, or the memory is too small even for an empty capture.
    """
    try:
        import dask
        import distributed
        from distributed.system import MEMORY_LIMIT
    except ImportError:
        raise ParameterError("batch: needs Dask: pip install 'cctoolkit[batch]'") from None
    if scheduler is not None and workers is not None:
        raise ParameterError("workers: cannot be combined with a scheduler, which has its own")
    _silence_logs()
    config = {
        # tables are in files, not in Dask's memory: nothing to spill, no use in waiting
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": 0.95,
        "distributed.admin.large-graph-warning-threshold": "1GB",
    }
    with dask.config.set(config), contextlib.ExitStack() as stack:
        if scheduler is not None:
            try:
                client = distributed.Client(scheduler, timeout="10s")
            except (OSError, ValueError, TimeoutError) as err:
                raise ParameterError(f"scheduler: no answer from {scheduler} ({first_line(err)})") from None
            stack.enter_context(client)
            limit = _enough(memory_bytes or _smallest_worker(client), "more memory for each (--memory)")
        else:
            n = workers or 1
            limit = _enough(
                memory_bytes or int(_SHARE * MEMORY_LIMIT / n), "fewer workers, or more memory for each"
            )
            cluster = distributed.LocalCluster(
                n_workers=n,
                threads_per_worker=1,
                processes=n > 1,
                memory_limit=int(limit * _SLACK) if n > 1 else 0,
                dashboard_address="127.0.0.1:0",  # any free port, since a fixed one may be taken
                silence_logs=logging.CRITICAL,
                host="127.0.0.1" if n > 1 else None,
            )
            stack.enter_context(cluster)
            client = stack.enter_context(distributed.Client(cluster))
        loop: Any = client.loop
        # a stream that waits to send when the loop ends leaves a future behind, of which asyncio would complain
        loop.asyncio_loop.set_exception_handler(lambda loop, context: None)
        yield client, Memory(limit)


def _silence_logs() -> None:
    """Errors are ours to report, in one line each; Dask's loggers have levels of their own."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _smallest_worker(client: Any) -> int:
    client.wait_for_workers(1, timeout=60)
    limits = [w["memory_limit"] for w in client.scheduler_info(n_workers=-1)["workers"].values()]
    if not limits or not min(limits):
        raise CCToolkitError("the cluster's workers have no memory limit: give one (--memory)")
    return int(min(limits) / _SLACK)


def _enough(limit_bytes: int, remedy: str) -> int:
    if limit_bytes < BASE_BYTES:
        raise ParameterError(
            f"memory: {limit_bytes / 1e9:.2f} GB per worker, of which {BASE_BYTES / 1e9:.2f} GB are used "
            f"before reading anything: {remedy}"
        )
    return limit_bytes
