"""What can happen to a capture while it is read: it is cut, the disk fails, or it unpacks to far more than it is."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import lzma
import os
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random

import made_captures as made
import numpy as np
import pytest
import zstandard

import cctoolkit as cct
from cctoolkit._support.threads import Ahead
from cctoolkit.errors import CaptureFormatError, TruncatedCaptureWarning

COMPRESS = {
    "none": lambda data: data,
    "gz": lambda data: gzip.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": lambda data: zstandard.ZstdCompressor(1).compress(data),
}
#: How much memory reading a file through to its end takes beyond what the program has at first, in MB.
PEAK = """
import resource, sys
from cctoolkit.capture.source import open_source
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, total = peak(), 0
with open_source(sys.argv[1]) as source:
    while source.more():
        total += source.available
        source.start += source.available
print(total, peak() - before)
"""


@pytest.fixture(scope="module")
def plain() -> bytes:
    """More than a window of the reader."""
    return made.pcap([f[:3] for f in made.random_frames(Random(3), 30_000, 1)])


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["gz", "xz", "zstd"])
def test_a_bomb_takes_no_more_memory_than_a_capture(tmp_path: Path, compression: str) -> None:
    """Half a gigabyte of zeros in some hundred kilobytes: the output of a step is bounded, whatever its input is."""
    path = tmp_path / "bomb"
    path.write_bytes(COMPRESS[compression](bytes(512 << 20)))
    assert path.stat().st_size < 4 << 20
    done = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
    total, peak_mb = map(int, done.stdout.split())
    assert total == 512 << 20
    assert peak_mb < 100


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 24, 1_000_003])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, plain: bytes, left: int) -> None:
    """As ``logrotate`` cuts with ``copytruncate``: what was read is kept, with a warning."""
    path = tmp_path / "trace.pcap"
    path.write_bytes(plain)
    whole = cct.read_capture(path).packets
    parts = cct.iter_capture(path, packets=100)
    found = [next(parts).packets]
    os.truncate(path, left)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncatedCaptureWarning)  # none if it is cut between two records
        found += [part.packets for part in parts]
    times = np.concatenate([part.ts_ns for part in found])
    assert 100 < len(times) < len(whole)
    assert np.array_equal(times, whole.ts_ns[: len(times)])


class FailingDisk(io.RawIOBase):
    """A file whose bytes cannot be read beyond some point."""

    def __init__(self, data: bytes, good: int) -> None:
        self._file = io.BytesIO(data[:good])

    def readable(self) -> bool:
        return True

    def readinto(self, window) -> int:  # type: ignore[no-untyped-def, override]
        n = self._file.readinto(window)
        if not n:
            raise OSError(errno.EIO, "Input/output error")
        return n


@pytest.mark.parametrize("compression", COMPRESS)
def test_a_disk_that_fails(plain: bytes, compression: str) -> None:
    data = COMPRESS[compression](plain)
    with pytest.warns(TruncatedCaptureWarning, match="Input/output error"):
        cap = cct.read_capture(FailingDisk(data, len(data) * 3 // 4))
    assert cap.meta.truncated
    assert 10_000 < len(cap.packets) < 30_000


@pytest.mark.parametrize("compression", COMPRESS)
def test_a_disk_that_fails_at_once(plain: bytes, compression: str) -> None:
    with pytest.raises(cct.errors.CaptureFormatError, match="Input/output error"):
        cct.read_capture(FailingDisk(COMPRESS[compression](plain), 4))


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["gz", "xz", "zstd"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_damage_reads_the_same_at_every_speed(
    tmp_path: Path, plain: bytes, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread far ahead or far behind, a file or a pipe in odd pieces: the same packets, the same note."""
    whole = COMPRESS[compression](plain[: len(plain) // 4])
    pipe, random = tmp_path / "pipe", Random(5)
    os.mkfifo(pipe)
    pieces, run = Ahead.__iter__, Ahead._run

    def late_reader(self: Ahead[bytes]) -> Iterator[bytes]:
        self._thread.join(0.2)
        yield from pieces(self)

    def late_thread(self: Ahead[bytes]) -> None:
        time.sleep(0.05)
        run(self)

    def feed(data: bytes) -> None:
        pick, at = Random(6), 0
        with contextlib.suppress(BrokenPipeError), open(pipe, "wb", buffering=0) as file:
            while at < len(data):
                at += file.write(data[at : at + pick.randrange(1, 90_000)]) or 0

    def read(path: Path) -> tuple[object, ...]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncatedCaptureWarning)
            try:
                capture = cct.read_capture(path)
            except CaptureFormatError as err:
                return err.offset, err.expected
        return len(capture), capture.meta.truncated, tuple(capture.meta.notes)

    for _ in range(8):
        data = bytearray(whole)
        at = random.randrange(20, len(data) - 50)
        for i in range(at, at + random.choice([1, 3, 50])):
            data[i] ^= random.randrange(1, 256)
        path = tmp_path / "damaged"
        path.write_bytes(data)
        found = []
        for name, slow in (("__iter__", late_reader), ("_run", late_thread)):
            with monkeypatch.context() as patch:
                patch.setattr(Ahead, name, slow)
                found.append(read(path))
        feeder = threading.Thread(target=feed, args=(bytes(data),))
        feeder.start()
        found.append(read(pipe))
        feeder.join()
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("compression", ["gz", "zstd"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_leaving_a_compressed_pipe_does_not_wait_for_its_writer(
    tmp_path: Path, plain: bytes, compression: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = COMPRESS[compression](plain)
    done = threading.Event()

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), open(pipe, "wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            done.wait(60)

    writer = threading.Thread(target=feed)
    writer.start()
    parts = cct.iter_capture(pipe, 1000)
    next(parts)
    begun = time.monotonic()
    parts.close()  # type: ignore[attr-defined]  # as leaving the loop does
    took_s = time.monotonic() - begun
    done.set()
    writer.join()
    assert took_s < 30


@pytest.mark.slow
def test_very_many_link_types_are_counted(tmp_path: Path) -> None:
    """An interface of every link type there can be: a few are named."""
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    interfaces = b"".join(struct.pack("<IIHHII", 1, 20, kind, 0, 0, 20) for kind in range(65_000))
    packet = struct.pack("<IIIIIII", 6, 32, 40_000, 0, 0, 0, 0) + struct.pack("<I", 32)
    path = tmp_path / "many.pcapng"
    path.write_bytes(section + interfaces + packet)
    capture = cct.read_capture(path)
    assert len(capture.meta.link_types) > 64_900  # some kinds have one name
    assert all(len(note) < 1000 for note in capture.meta.notes)
    assert any("others" in note for note in capture.meta.notes)
    done = subprocess.run(
        [sys.executable, "-m", "cctoolkit.cli", "info", path], capture_output=True, text=True, check=False
    )
    assert len((done.stdout + done.stderr).splitlines()) < 60
