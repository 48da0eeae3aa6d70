"""Runs the kernels on bytes between pages that must not be touched; a read outside ends the process.

``guarded.py control`` reads one byte too many on purpose, ``guarded.py frames SEED N`` decodes frames one by one, each
cut at every length, ``guarded.py files SEED N [PATH ...]`` reads whole, cut and damaged files (those at the paths, or
made ones), in one window and in several.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import made_captures as made
import numpy as np

from cctoolkit.capture import encapsulation, headers, reader
from cctoolkit.capture.source import ByteSource, read_pieces_into
from cctoolkit.errors import CaptureFormatError, TruncatedCaptureWarning
from cctoolkit.schema import PACKETS

PAGE = mmap.PAGESIZE


class Guarded:
    """Memory of some size between two pages without access."""

    def __init__(self, size: int) -> None:
        pages = -(-size // PAGE)
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        self._all = np.frombuffer(self._map, np.uint8)
        self.size = pages * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        for at in (0, (pages + 1) * PAGE):
            address = ctypes.c_void_p(self._all.ctypes.data + at)
            if libc.mprotect(address, ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def hold(self, data: bytes, at_end: bool = True) -> np.ndarray:
        """The bytes against the upper (or lower) guard page, as the reader's windows are: not writable."""
        start = PAGE + (self.size - len(data) if at_end else 0)
        place = self._all[start : start + len(data)]
        place[:] = np.frombuffer(data, np.uint8)
        view = place.view()
        view.flags.writeable = False
        return view


class Kernel:
    """`decode_headers` on one frame at a time."""

    def __init__(self) -> None:
        self._block = reader._Block()
        self._columns = headers.PacketColumns(**reader._allocate(PACKETS, 1))
        self._to_ip = encapsulation.compile_to_ip()

    def __call__(self, data: np.ndarray, wire_bytes: int, link_type: int, inner: bool) -> None:
        frames = self._block
        frames.caplen[0], frames.wirelen[0], frames.link_type[0] = len(data), wire_bytes, link_type
        headers.decode_headers(
            data,
            frames.offset,
            frames.caplen,
            frames.wirelen,
            frames.ts_ns,
            frames.link_type,
            1,
            inner,
            1,
            self._columns,
            0,
            frames.keys,
            np.uint64(1),
            np.empty(0, np.uint32),
            frames._sacks,
            frames.counts,
            self._to_ip,
        )


def decode_frames(random: Random, n: int) -> None:
    memory = Guarded(1 << 17)
    kernel = Kernel()
    for _, data, wire_bytes, link_type in made.random_frames(random, n):
        lengths = range(len(data) + 1) if len(data) <= 300 else [*range(300), len(data)]
        for length in lengths:
            for at_end in (True, False):
                window = memory.hold(data[:length], at_end)
                kernel(window, wire_bytes, link_type, True)
                kernel(window, random.choice([wire_bytes, length, 0, 2**32 - 1]), link_type, False)


def made_file(random: Random) -> bytes:
    if random.random() < 0.5:
        return made.random_pcapng(random, made.random_frames(random, 15))
    link_type = random.choice(made.LINK_TYPES)
    return made.random_pcap(random, [f[:3] for f in made.random_frames(random, 15, link_type)], link_type)


def read_files(random: Random, n: int, paths: list[str]) -> None:
    """`n` times every file at the paths, or as many made ones."""
    memory = [Guarded(1 << 20), Guarded(1 << 20)]
    data = b""
    pieces = 1

    def windows() -> Iterator[bytes]:
        size = -(-len(data) // pieces) or 1
        yield from (data[i : i + size] for i in range(0, len(data), size))

    class GuardedSource(ByteSource):
        """The window, after every move, lies in guarded memory; not in the one it lay in before."""

        turn = 0

        def more(self) -> bool:
            there = super().more()
            if there:
                self.turn ^= 1
                self.data = memory[self.turn].hold(self.data.tobytes())
            return there

    def open_source(_: Any) -> ByteSource:
        if pieces == 1:
            return ByteSource("made", "none", read_pieces_into(()), memory[0].hold(data))
        return GuardedSource("made", "none", read_pieces_into(windows()))

    reader.open_source = open_source
    for path in (paths or [""]) * n:
        data = Path(path).read_bytes()[: 1 << 20] if path else made_file(random)
        if random.random() < 0.5:
            data = data[: random.randrange(len(data) + 1)]
        if random.random() < 0.7 and data:
            damaged = bytearray(data)
            for _ in range(random.randrange(1, 6)):
                damaged[random.randrange(len(data))] = random.choice(
                    [0, 1, 0x7F, 0xFF, random.randrange(256)]
                )
            data = bytes(damaged)
        for n_pieces in (1, 2, 7):
            pieces = n_pieces
            with suppress(CaptureFormatError):
                reader.read_capture("made", tunnel=random.choice(["outer", "inner"]))


def main(mode: str, seed: str = "0", n: str = "0", *paths: str) -> None:
    warnings.simplefilter("ignore", TruncatedCaptureWarning)
    if mode == "control":
        window = Guarded(100).hold(b"one byte too many")
        ctypes.string_at(window.ctypes.data, len(window) + 1)
    elif mode == "frames":
        decode_frames(Random(int(seed)), int(n))
    else:
        read_files(Random(int(seed)), int(n), list(paths))


if __name__ == "__main__":
    main(*sys.argv[1:])
