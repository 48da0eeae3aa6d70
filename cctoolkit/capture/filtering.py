"""Select packets of a capture of any size: part by part, or copied to a new file byte for byte."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from .._support.atomic import is_same_file
from .._support.terminal import is_standard_output
from ..errors import CaptureFormatError, ParameterError
from .model import Capture
from .pcap import MAX_FRAME_BYTES
from .reader import iter_capture, iter_frames
from .selection import Selection, origin_of
from .source import reads_twice, standard_input
from .writer import PcapWriter

__all__ = ["filter_capture", "masks", "selected"]


def masks(
    parts: Iterable[Capture], selection: Selection | None
) -> Iterator[tuple[Capture, np.ndarray | None]]:
    """Yield the parts of a capture, each with which of its packets are selected; None: all.

    Parameters
    ----------
    parts, selection
        As for :func:`selected`.
    """
    origin_ns: int | None = None
    for part in parts:
        if origin_ns is None:
            origin_ns = origin_of(part)
        yield part, selection.mask(part, origin_ns) if selection else None


def selected(parts: Iterable[Capture], selection: Selection | None) -> Iterator[Capture]:
    """Yield the selected packets of a capture part by part.

    Parameters
    ----------
    parts : iterable of Capture
        Parts of a capture, from :func:`cctoolkit.iter_capture`; times are relative to the first packet of the first.
    selection : Selection, optional
        Which packets to yield; by default all.
    """
    for part, mask in masks(parts, selection):
        yield part if mask is None else part.rows(mask)


def _copied(pipe: str | os.PathLike[str], copy: IO[bytes]) -> str:
    """Copy what comes out of a pipe; return its name for messages."""
    if os.fspath(pipe) == "-":
        shutil.copyfileobj(standard_input(), copy)
        name = "<stdin>"
    else:
        with open(pipe, "rb") as file:
            shutil.copyfileobj(file, copy)
        name = os.fspath(pipe)
    copy.flush()
    return name


def filter_capture(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    selection: Selection,
    *,
    snaplen: int | None = None,
    packets: int = 1_000_000,
    **reading: Any,
) -> int:
    """Copy the frames of the selected packets, payload included, to a new capture.

    The file is read twice: once to select packets (which flow a packet belongs to depends on earlier ones), once to
    copy them. Memory holds one part plus four bytes per selected packet.

    Parameters
    ----------
    path : path
        Capture to read; a pipe, as standard input (``"-"``) may be, is first copied to a temporary file.
    out : path
        Capture to write; the name sets format and compression, as for :class:`PcapWriter`. Times have nanoseconds. If
        no packet is selected, no file is written; standard output (``"-"``) or a pipe gets a capture without packets.
    selection : Selection
        Which packets to copy.
    snaplen : int, optional
        Truncate frames to this many bytes. By default, the new file has the snap length of `path`.
    packets : int
        Packets per part.
    **reading
        Options of :func:`read_capture`.

    Returns
    -------
    int
        Number of packets written.

    Raises
    ------
    CaptureFormatError, ParameterError
        Not a capture; `out` is `path`; or the selected packets have several link types, which only pcapng can hold.

    See Also
    --------
    Selection : which packets
    Capture.select : the same for a capture in memory
    write_pcap : writes packets without their payload

    Examples
    --------
    >>> path = cct.example("mixed").ingress.meta.path
    >>> cct.filter_capture(path, "udp.pcap", cct.Selection(protocol="udp", stop_s=1))
    21
    """
    if not reads_twice(path):
        with tempfile.NamedTemporaryFile(suffix=".capture") as copy:
            name = _copied(path, copy)
            try:
                return filter_capture(copy.name, out, selection, packets=packets, snaplen=snaplen, **reading)
            except CaptureFormatError as err:
                raise CaptureFormatError(name, err.offset, err.expected) from None
    if is_same_file(path, out):
        raise ParameterError(f"out: {os.fspath(out)} is the capture being read")
    wanted = []
    stated = 0  # snap length; 0: no limit
    for part, mask in masks(iter_capture(path, packets, frame_numbers=True, **reading), selection):
        stated = part.meta.snaplen
        frame = part.columns["frame"]
        wanted.append(frame.copy() if mask is None else frame[mask])  # a view would hold all of the part
    numbers = np.concatenate(wanted)

    cut = MAX_FRAME_BYTES if snaplen is None else snaplen
    # stated, not cut to: in some captures frames are longer than the header says
    options: dict[str, Any] = {"snaplen": cut, "stated_snaplen": min(stated or cut, cut)}
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
            data = frames.data
            writer.write_frames(
                frames.ts_ns[rows],
                [
                    data[start : start + size].tobytes()
                    for start, size in zip(frames.offset[rows], frames.caplen[rows], strict=True)
                ],
                frames.wirelen[rows],
                frames.link_type[rows],
            )
        if writer is None and (is_standard_output(out) or Path(out).is_fifo()):  # whose reader waits
            stack.enter_context(PcapWriter(out, **options))
    return len(numbers)
