"""The packets one wants of a capture of any size: part by part, or copied into a new file byte for byte."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParameterError
from .model import Capture
from .reader import iter_capture, iter_frames
from .selection import Selection
from .writer import PcapWriter

__all__ = ["filter_capture", "selected"]


def selected(parts: Iterable[Capture], selection: Selection | None) -> Iterator[Capture]:
    """The selected packets of a capture's parts, part by part.

    Parameters
    ----------
    parts : iterable of Capture
        What :func:`cctoolkit.iter_capture` gives; times count from the first packet of the first part.
    selection : Selection, optional
        Everything without it.
    """
    origin_ns: int | None = None
    for part in parts:
        if origin_ns is None:
            origin_ns = part.meta.first_ts_ns
        yield part.rows(selection.mask(part, origin_ns)) if selection else part


def filter_capture(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    selection: Selection,
    *,
    snaplen: int | None = None,
    packets: int = 1_000_000,
    **reading: Any,
) -> int:
    """Write the frames of the selected packets, with their payload, to a new capture.

    The file is read twice: once to decide (a flow is known by its first packet, so a later one may need what came
    before), once to copy. Memory holds a part, and four bytes a selected packet.

    Parameters
    ----------
    path : path
        A file; standard input cannot be read twice.
    out : path
        Its name says format and compression, as for :class:`~.writer.PcapWriter`; times are in nanoseconds.
    selection : Selection
    snaplen : int, optional
        Cut frames to this many bytes.
    packets : int
        Packets a part.
    **reading
        As for :func:`~.reader.read_capture`.

    Returns
    -------
    int
        Packets written.

    Raises
    ------
    CaptureFormatError, ParameterError
        No capture; a selection that cannot be, or selected packets of several link types.
    """
    if os.fspath(path) == "-":
        raise ParameterError("path: standard input cannot be read twice; save it to a file first")
    if Path(out).exists() and Path(path).exists() and os.path.samefile(path, out):
        raise ParameterError(f"out: {os.fspath(out)} is the capture itself")
    wanted = []
    origin_ns = None
    for part in iter_capture(path, packets, frame_numbers=True, **reading):
        if origin_ns is None:
            origin_ns = part.meta.first_ts_ns
        wanted.append(part.columns["frame"][selection.mask(part, origin_ns)])
    numbers = np.concatenate(wanted)

    options: dict[str, Any] = {} if snaplen is None else {"snaplen": snaplen}
    seen = 0
    done = 0  # numbers[:done] are written
    with ExitStack() as stack:
        writer: PcapWriter | None = None
        for frames in iter_frames(path):
            upto = int(np.searchsorted(numbers, seen + frames.n, side="right"))
            rows = numbers[done:upto].astype(np.int64) - seen - 1
            seen += frames.n
            done = upto
            if not len(rows):
                continue
            if writer is None:
                writer = stack.enter_context(
                    PcapWriter(out, link_type=int(frames.link_type[rows[0]]), **options)
                )
            if (frames.link_type[rows] != writer.link_type).any():
                raise ParameterError(
                    f"{os.fspath(path)}: the selected packets have several link types, a new file can have one"
                )
            data = frames.data
            writer.write_frames(
                frames.ts_ns[rows],
                [
                    data[start : start + size].tobytes()
                    for start, size in zip(frames.offset[rows], frames.caplen[rows], strict=True)
                ],
                frames.wirelen[rows],
            )
        if writer is None:
            stack.enter_context(PcapWriter(out, **options))
    return len(numbers)
