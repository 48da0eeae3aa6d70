"""The bytes of a capture, from a path or standard input, plain or compressed, as a moving window.

Compression is recognised by the first bytes, never by the name of the file. Plain files are mapped into memory.
Compressed ones are decompressed in a thread of their own (isal, lzma and zstd all release the GIL), so that
decompression and decoding overlap.
"""

from __future__ import annotations

import io
import lzma
import mmap
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any

import numpy as np

from ..errors import CaptureFormatError, ParameterError

__all__ = ["ByteSource", "open_source"]

_CHUNK_BYTES = 4 << 20  # decompressed: the largest piece that the thread hands to the decoder
_READ_BYTES = 1 << 19  # read from the file at once; each of many small members copies what is left of it
_LEAST_PIECE_BYTES = 1 << 20  # smaller ones are joined
_PIECES_AHEAD = 4
_RELEASE_BYTES = 64 << 20  # of a mapped file, returned to the system at once
_FIRST_STEP_BYTES = 1 << 8  # decompressed at once, at first
_ZSTD_STEP_BYTES = 1 << 18  # compressed, given to zstandard at once

_MAGICS = {
    b"\x1f\x8b": "gz",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    # pzstd starts a file with a skippable frame (RFC 8878, 3.1.2)
    **{bytes([0x50 + i]) + b"\x2a\x4d\x18": "zstd" for i in range(16)},
}
_MAGIC_BYTES = 6


class _ZstdDecompressor:
    """zstandard's streaming object with the interface of lzma and isal.

    It lacks `max_length`, so it gets small pieces.
    """

    def __init__(self) -> None:
        import zstandard

        self._object = zstandard.ZstdDecompressor().decompressobj()
        self._data = b""
        self._at = 0
        self.eof = False
        self.needs_input = True
        self.unused_data = b""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if data:
            self._data = data
            self._at = 0
        end = self._at + min(max(max_length // 8, 1), _ZSTD_STEP_BYTES)
        out = self._object.decompress(self._data[self._at : end])
        self._at = end
        self.eof = self._object.eof
        self.needs_input = end >= len(self._data)
        if self.eof:
            self.unused_data = self._object.unused_data + self._data[end:]
        return out


def _new_decompressor(compression: str) -> Any:
    if compression == "gz":
        from isal import igzip_lib

        return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    if compression == "xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    return _ZstdDecompressor()


def _decompression_errors() -> Any:  # isal's error type is untyped
    import zstandard
    from isal import igzip_lib

    return (igzip_lib.error, lzma.LZMAError, zstandard.ZstdError, EOFError, ValueError)


def _decompressed(file: IO[bytes], head: bytes, compression: str) -> Iterator[bytes]:
    """Yield large pieces of the decompressed stream, including all output before an error."""
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in _decompressed_steps(file, head, compression):
            pieces.append(piece)
            size += len(piece)
            if size >= _LEAST_PIECE_BYTES:
                yield b"".join(pieces) if len(pieces) > 1 else piece
                pieces.clear()
                size = 0
    except _decompression_errors():
        yield b"".join(pieces)
        raise
    if pieces:
        yield b"".join(pieces)


def _decompressed_steps(file: IO[bytes], head: bytes, compression: str) -> Iterator[bytes]:
    """Yield the output of the decompressor step by step; consecutive members form one stream (RFC 1952).

    An error loses the output of its step. So the first steps are small, and each is at most an eighth of the output so
    far.
    """
    decompressor = _new_decompressor(compression)
    data = head
    done = 0
    while True:
        if decompressor.eof:
            # trailing zeros are padding (tapes, sector sizes); anything else starts a new member
            data = (decompressor.unused_data + data).lstrip(b"\0")
            while not data:
                data = file.read(_READ_BYTES)
                if not data:
                    return
                data = data.lstrip(b"\0")
            decompressor = _new_decompressor(compression)
        elif not data and decompressor.needs_input:
            data = file.read(_READ_BYTES)
            if not data:
                raise EOFError(f"the {compression} stream ends before its end marker")
        step = min(max(done // 8, _FIRST_STEP_BYTES), _CHUNK_BYTES)
        piece = decompressor.decompress(data, step)
        data = b""
        if piece:
            done += len(piece)
            yield piece


class ByteSource:
    """A window over a byte stream: ``data[start:]`` is available and not yet consumed.

    Attributes
    ----------
    data : uint8 array
        The window.
    start : int
        Index of the first unread byte in `data`.
    path : str
        Name of the file.
    compression : {"none", "gz", "xz", "zstd"}
        Compression of the file.
    damage : str or None
        Why the stream ended early: the compressed data is truncated or corrupt. None if it did not.
    """

    def __init__(self, path: str, compression: str, data: np.ndarray, pieces: Iterator[bytes] | None) -> None:
        self.path = path
        self.compression = compression
        self.data = data
        self.start = 0
        self.damage: str | None = None
        self._dropped = 0  # bytes of the stream before data[0]
        self._pieces = pieces
        self._close: Callable[[], None] | None = None
        self._map: mmap.mmap | None = None
        self._released = 0
        self._file_bytes = 0  # as stored; 0: unknown
        self._file_position: Callable[[], int] | None = None

    @property
    def fraction(self) -> float:
        """Share of the file read so far (0 to 1, a little ahead of :attr:`position`); 0: unknown."""
        if not self._file_bytes:
            return 0.0
        at = self._file_position() if self._file_position else self.position
        return min(at / self._file_bytes, 1.0)

    @property
    def position(self) -> int:
        """Offset of the first unread byte in the (decompressed) stream."""
        return self._dropped + self.start

    @property
    def available(self) -> int:
        """Number of unread bytes in the window."""
        return len(self.data) - self.start

    def more(self) -> bool:
        """Append the next piece to the unread bytes; False at the end of the stream."""
        if self._pieces is None:
            return False
        piece = next(self._pieces, None)
        if piece is None:
            self._pieces = None
            return False
        rest = self.data[self.start :]
        fresh = np.frombuffer(piece, np.uint8)
        self._dropped += self.start
        self.start = 0
        if len(rest):
            joined = np.empty(len(rest) + len(fresh), np.uint8)
            joined[: len(rest)] = rest
            joined[len(rest) :] = fresh
            joined.flags.writeable = (
                False  # like the other windows: one type, so one compilation of every kernel
            )
            self.data = joined
        else:
            self.data = fresh
        return True

    def need(self, n: int) -> bool:
        """Make at least `n` unread bytes available; False if the stream ends first."""
        while self.available < n:
            if not self.more():
                return False
        return True

    def peek(self, n: int) -> bytes:
        """The next bytes, at most `n`, without consuming them."""
        self.need(n)
        return self.data[self.start : self.start + n].tobytes()

    def release(self) -> None:
        """Return the consumed pages of a mapped file to the operating system; else they count as our memory."""
        if self._map is not None and self.start - self._released >= _RELEASE_BYTES:
            upto = self.start // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, self._released, upto - self._released)
            self._released = upto

    def close(self) -> None:
        if self._close is not None:
            self._close()
            self._close = None
        self.data = np.empty(0, np.uint8)
        self._pieces = None

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Readahead:
    """Runs an iterator in a thread, a few pieces ahead of the consumer."""

    def __init__(self, pieces: Iterator[bytes], on_damage: Callable[[str], None]) -> None:
        self._queue: queue.Queue[bytes | None] = queue.Queue(_PIECES_AHEAD)
        self._stop = threading.Event()
        self._pieces = pieces
        self._on_damage = on_damage
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="decompress", daemon=True)
        self._thread.start()

    def _put(self, item: bytes | None) -> None:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._queue.put(item, timeout=0.2)
                return

    def _run(self) -> None:
        try:
            for piece in self._pieces:
                self._put(piece)
                if self._stop.is_set():
                    return
        except _decompression_errors() as err:
            self._on_damage(_one_line(err))
        except BaseException as err:  # such as an I/O error: raised again in the consumer
            self._failure = err
        finally:
            self._put(None)

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._queue.get()) is not None:
            yield piece
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def _stream_pieces(file: IO[bytes], head: bytes) -> Iterator[bytes]:
    yield head
    while piece := file.read(_READ_BYTES):
        yield piece


def open_source(path: str | os.PathLike[str] | IO[bytes]) -> ByteSource:
    """Open the bytes of a capture.

    Parameters
    ----------
    path : path, ``"-"`` or binary file object
        ``"-"`` is standard input. A path may also be a pipe or a device. A file object is read from its current
        position and left open.

    Raises
    ------
    CaptureFormatError
        The file does not exist, is a directory, or cannot be read.
    ParameterError
        A file object in text mode.
    """
    close_file = _nothing
    if hasattr(path, "read"):
        file: Any = path
        name = str(getattr(file, "name", "<stream>"))
    elif os.fspath(path) == "-":
        file = sys.stdin.buffer
        name = "<stdin>"
    else:
        name = os.fspath(path)
        try:
            file = open(name, "rb", buffering=0)  # noqa: SIM115  # closed with the source
        except (OSError, ValueError) as err:  # ValueError: the name has a zero byte
            raise CaptureFormatError(name, 0, f"cannot be read: {_one_line(err)}") from None
        close_file = file.close

    try:
        head = _read_exactly(file, _MAGIC_BYTES)
        compression = next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), "none")
        mapped = _mapped(file) if compression == "none" else None
    except OSError as err:
        close_file()
        raise CaptureFormatError(name, 0, f"cannot be read: {_one_line(err)}") from None

    if mapped is not None:
        source = ByteSource(name, "none", np.frombuffer(mapped, np.uint8), None)
        source.start = file.tell() - len(head)
        source._file_bytes = len(mapped)
        source._map = mapped if hasattr(mapped, "madvise") else None  # not on Windows
        source._close = close_file
        return source
    if compression == "none":
        source = ByteSource(name, "none", np.empty(0, np.uint8), _stream_pieces(file, head))
        source._close = close_file
        return source

    source = ByteSource(name, compression, np.empty(0, np.uint8), None)

    def damaged(reason: str) -> None:
        source.damage = f"the {compression} data is damaged: {reason}"

    ahead = _Readahead(_decompressed(file, head, compression), damaged)
    source._pieces = iter(ahead)
    with suppress(OSError, AttributeError, ValueError):  # a BytesIO has no file descriptor
        source._file_bytes = os.fstat(file.fileno()).st_size
        source._file_position = file.tell

    def close() -> None:
        ahead.stop()
        close_file()

    source._close = close
    return source


def _nothing() -> None:
    pass


def _one_line(err: Exception) -> str:
    return " ".join((getattr(err, "strerror", None) or str(err) or type(err).__name__).split())


def _read_exactly(file: IO[bytes], n: int) -> bytes:
    """Read `n` bytes, or all that remain; a pipe may return fewer at a time."""
    out = b""
    while len(out) < n and (piece := file.read(n - len(out))):
        if isinstance(piece, str):
            raise ParameterError("path: the file object is in text mode, expected binary")
        out += piece
    return out


def _mapped(file: IO[bytes]) -> mmap.mmap | None:
    """The whole file mapped for reading, or None if that is impossible (pipes, empty files, BytesIO).

    Only for real file objects: the file descriptor of a decompressing object is that of the compressed file.
    """
    if not isinstance(getattr(file, "raw", file), io.FileIO):
        return None
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
