"""Where the bytes of a capture come from: a path or standard input, plain or compressed, as one growing window.

Compression is recognised by its first bytes, never by the file's name. Plain files are mapped, not read.
Compressed ones are decompressed in a thread of their own (isal, lzma and zstd all release the GIL), so that
decoding and decompression overlap.
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

_CHUNK_BYTES = 4 << 20  # decompressed, the largest piece handed from the thread to the decoder
_READ_BYTES = 1 << 19  # a piece read from the file; of many small members every one copies what is left of it
_LEAST_PIECE_BYTES = 1 << 20  # smaller ones are put together
_PIECES_AHEAD = 4
_RELEASE_BYTES = 64 << 20  # of a mapped file, given back at a time
_FIRST_STEP_BYTES = 1 << 8  # decompressed at a time, at first
_ZSTD_STEP_BYTES = 1 << 18  # compressed, given to zstandard at a time

_MAGICS = {
    b"\x1f\x8b": "gz",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    # what pzstd starts a file with: a skippable frame (RFC 8878, 3.1.2)
    **{bytes([0x50 + i]) + b"\x2a\x4d\x18": "zstd" for i in range(16)},
}
_MAGIC_BYTES = 6


class _ZstdDecompressor:
    """zstandard's streaming object behind the interface that lzma and isal share.

    It knows no `max_length`, so it is given little at a time.
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


def _decompression_errors() -> Any:  # isal's error has no type
    import zstandard
    from isal import igzip_lib

    return (igzip_lib.error, lzma.LZMAError, zstandard.ZstdError, EOFError, ValueError)


def _decompressed(file: IO[bytes], head: bytes, compression: str) -> Iterator[bytes]:
    """Pieces of the decompressed stream, as large as makes sense, and all there was before an error."""
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
    """What the decompressor gives, step by step; several members one after the other are one stream (RFC 1952).

    An error takes the output of its step with it. So the first steps are small, and none is more than an eighth of
    what came before.
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
    """A window over a byte stream: ``data[start:]`` is what is there and not yet consumed.

    Attributes
    ----------
    data : uint8 array
    start : int
        First unread byte in `data`.
    path : str
    compression : str
        ``"none"``, ``"gz"``, ``"xz"`` or ``"zstd"``.
    damage : str or None
        Why the stream ended early, when it did: the compressed data are cut or corrupt.
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
        """How much of the file has been read, from 0 to 1, a little ahead of :attr:`position`; 0: unknown."""
        if not self._file_bytes:
            return 0.0
        at = self._file_position() if self._file_position else self.position
        return min(at / self._file_bytes, 1.0)

    @property
    def position(self) -> int:
        """Offset in the (decompressed) stream of the first unread byte."""
        return self._dropped + self.start

    @property
    def available(self) -> int:
        """Unread bytes in the window."""
        return len(self.data) - self.start

    def more(self) -> bool:
        """Bring the next piece in behind the unread bytes; False at the end of the stream."""
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
            joined.flags.writeable = False  # as the other windows: one type, one compilation of every kernel
            self.data = joined
        else:
            self.data = fresh
        return True

    def need(self, n: int) -> bool:
        """Make at least `n` unread bytes available; False when the stream ends before."""
        while self.available < n:
            if not self.more():
                return False
        return True

    def peek(self, n: int) -> bytes:
        """Up to `n` of the next bytes, unread."""
        self.need(n)
        return self.data[self.start : self.start + n].tobytes()

    def release(self) -> None:
        """Let the operating system have back what was read of a mapped file; its pages would count as ours."""
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


class _Ahead:
    """Runs an iterator in a thread, a few pieces ahead of its consumer."""

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
        except BaseException as err:  # e.g. an I/O error: raised again where the consumer waits
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
    """Open a capture's bytes.

    Parameters
    ----------
    path : path, ``"-"`` or binary file object
        ``"-"`` is standard input. A path may also be a pipe or device. A file object is read from where it stands
        and left open.

    Raises
    ------
    CaptureFormatError
        There is no such file, it is a directory, or it cannot be read.
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
        except (OSError, ValueError) as err:  # ValueError: a zero byte in the name
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
        source.damage = f"{compression} data are damaged: {reason}"

    ahead = _Ahead(_decompressed(file, head, compression), damaged)
    source._pieces = iter(ahead)
    with suppress(OSError, AttributeError, ValueError):  # a BytesIO has no file number
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
    """`n` bytes or all there are: a pipe may give fewer at a time."""
    out = b""
    while len(out) < n and (piece := file.read(n - len(out))):
        if isinstance(piece, str):
            raise ParameterError("path: the file object is in text mode, expected binary")
        out += piece
    return out


def _mapped(file: IO[bytes]) -> mmap.mmap | None:
    """The whole file mapped for reading, or None where that cannot be (pipes, empty files, BytesIO).

    Only what is a file itself: the file number of a decompressing object would be that of the compressed file.
    """
    if not isinstance(getattr(file, "raw", file), io.FileIO):
        return None
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
