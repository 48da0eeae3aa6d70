"""Progress at a terminal: that kernels are being compiled, how much of a file has been read.

:func:`compiling` and :func:`reading` are silent unless :func:`enable` was called, as the command line does: a library
does not write to its caller's terminal, and a log has no use for a progress bar.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .words import printable

__all__ = ["above_bars", "compiling", "enable", "progress_bar", "reading"]

#: What takes less time needs no bar.
_DELAY_S = 1.0


class _State:
    enabled = False
    announced_compiling = False


def enable() -> None:
    """Show progress from now on, if standard error is a terminal."""
    _State.enabled = sys.stderr.isatty()


def progress_bar(*, desc: str | None = None, **options: Any) -> Any:
    """A progress bar on a terminal or in a notebook; options are those of :class:`tqdm.tqdm`."""
    from tqdm.auto import tqdm

    return tqdm(desc=None if desc is None else printable(desc), **options)


def above_bars(line: str) -> None:
    """Print a line on standard error, above the progress bars there."""
    if "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr)


def compiling() -> None:
    """Say, the first time, that kernels are being compiled."""
    if _State.enabled and not _State.announced_compiling:
        _State.announced_compiling = True
        above_bars("cct: compiling kernels, once after each installation or update …")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[Callable[[float, int], None]]:
    """Show how much of a file has been read.

    Parameters
    ----------
    path : path
        For the label.

    Yields
    ------
    function of (fraction, frames)
        To be called now and then with what has been read: the fraction of the file (0: unknown) and the number of
        frames.
    """
    if not _State.enabled:
        yield lambda fraction, frames: None
        return
    from tqdm import tqdm

    bar: Any = tqdm(
        desc=printable(os.path.basename(path)), total=1.0, delay=_DELAY_S, leave=False, file=sys.stderr,
        bar_format="{desc}: {percentage:3.0f} %|{bar:20}| {elapsed}, {remaining} left", dynamic_ncols=True,
    )  # fmt: skip

    def update(fraction: float, frames: int) -> None:
        if fraction:
            bar.update(fraction - bar.n)
        else:  # a pipe
            bar.bar_format = f"{{desc}}: {frames:,} packets, {{elapsed}}"
            bar.update(0.0)

    with contextlib.closing(bar):
        yield update
