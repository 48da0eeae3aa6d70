"""Where the bytes of a capture come from: a path or standard input, plain or compressed, as one growing window.

Compression is recognised by its first bytes, never by the file's name. Plain files are mapped, not read.
Compressed ones are decompressed in a thread of their own (isal, lzma and zstd all release the GIL), so that
decoding and decompression overlap.
"""

from __future__ import annotations

import lzma
import mmap
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any, Protocol

import numpy as np

from ..errors import CaptureFormatError

__all__ = ["ByteSource", "open_source"]

_CHUNK_BYTES = 4 << 20  # decompressed, a piece handed from the thread to the decoder
_READ_BYTES = 1 << 20  # compressed, a piece read from the file
_PIECES_AHEAD = 4

_MAGICS = {
    b"\x1f\x8b": "gz",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_MAGIC_BYTES = 6


class _Decompressor(Protocol):
    """The interface bz2, lzma and isal share."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _ZstdDecompressor:
    """zstandard's streaming object behind the interface of the others."""

    def __init__(self) -> None:
        import zstandard

        self._object = zstandard.ZstdDecompressor().decompressobj()
        self.eof = False
        self.needs_input = True
        self.unused_data = b""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        out = self._object.decompress(data)
        self.eof = self._object.eof
        self.unused_data = self._object.unused_data
        return out


def _new_decompressor(compression: str) -> _Decompressor:
    if compression == "gz":
        from isal import igzip_lib

        return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    if compression == "xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    return _ZstdDecompressor()


def _decompression_errors() -> tuple[type[Exception], ...]:
    import zstandard
    from isal import igzip_lib

    return (igzip_lib.error, lzma.LZMAError, zstandard.ZstdError, EOFError, ValueError)


def _decompressed(file: IO[bytes], head: bytes, compression: str) -> Iterator[bytes]:
    """Pieces of the decompressed stream; several members one after the other are one stream (RFC 1952)."""
    decompressor = _new_decompressor(compression)
    data = head
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
        piece = decompressor.decompress(data, _CHUNK_BYTES)
        data = b""
        if piece:
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
            self._on_damage(str(err))
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
        ``"-"`` is standard input. A path may also be a pipe or device.

    Raises
    ------
    CaptureFormatError
        There is no such file, it is a directory, or it cannot be read.
    """
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
        except OSError as err:
            raise CaptureFormatError(name, 0, f"cannot be read: {err.strerror or err}") from None

    try:
        head = _read_exactly(file, _MAGIC_BYTES)
        compression = next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), "none")
        mapped = _mapped(file) if compression == "none" else None
    except OSError as err:
        file.close()
        raise CaptureFormatError(name, 0, f"cannot be read: {err.strerror or err}") from None

    close_file = (lambda: None) if file is getattr(sys.stdin, "buffer", None) else file.close

    if mapped is not None:
        source = ByteSource(name, "none", np.frombuffer(mapped, np.uint8), None)
        source._file_bytes = len(mapped)
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


def _read_exactly(file: IO[bytes], n: int) -> bytes:
    """`n` bytes or all there are: a pipe may give fewer at a time."""
    out = b""
    while len(out) < n and (piece := file.read(n - len(out))):
        out += piece
    return out


def _mapped(file: IO[bytes]) -> mmap.mmap | None:
    """The whole file mapped for reading, or None where that cannot be (pipes, empty files, BytesIO)."""
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError, AttributeError):
        return None
