"""Child processes that do not outlive their parent, however it ends (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable

__all__ = ["ending_with_parent", "staying_on_one_processor"]

_PR_SET_PDEATHSIG = 1


def ending_with_parent(
    then: Callable[[], object] | None = None, *, by: signal.Signals = signal.SIGKILL
) -> Callable[[], None]:
    """For ``preexec_fn``: the child gets signal `by` when this process ends; `then` is called in the child, too.

    It makes system calls only, and takes no lock that another thread may have held when the process was forked.
    """
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, by)
        if os.getppid() != parent:  # it ended before
            os._exit(1)
        if then is not None:
            then()

    return in_child


def staying_on_one_processor() -> Callable[[], None]:
    """For `then` of :func:`ending_with_parent`: the child and all that it starts stay on the processor where it begins.

    The system puts a new process on an idle one.
    """
    getcpu = ctypes.CDLL(None).sched_getcpu

    def in_child() -> None:
        with contextlib.suppress(OSError):  # it is only faster there
            os.sched_setaffinity(0, {getcpu()})

    return in_child
