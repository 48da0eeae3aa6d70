"""The bytes of a capture, from a path or standard input, plain or compressed, as a moving window.

Compression is recognised by the first bytes, never by the name of the file. Plain files are read and not mapped: the
system kills a process that reads a mapped file which another process has truncated. Compressed ones are decompressed
in a thread of their own (isal, lzma and zstd all release the GIL), so that decompression and decoding overlap.
"""

from __future__ import annotations

import io
import itertools
import lzma
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, Any

import numpy as np

from .._support.threads import Ahead
from ..errors import CaptureFormatError, ParameterError

__all__ = ["ByteSource", "open_source", "read_pieces_into", "reads_twice", "standard_input", "zstd"]

_NOTHING = np.empty(0, np.uint8)
_NOTHING.flags.writeable = False

_CHUNK_BYTES = 4 << 20  # decompressed: the largest piece that the thread hands to the decoder
_READ_BYTES = 1 << 19  # read from the file at once; each of many small members copies what is left of it
_LEAST_PIECE_BYTES = 1 << 20  # smaller ones are joined
_PIECES_AHEAD = 4
_WINDOW_BYTES = 1 << 20  # of a plain file: what a core's cache holds
_FIRST_STEP_BYTES = 1 << 8  # decompressed at once, at first

_MAGICS = {
    b"\x1f\x8b": "gz",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    # pzstd starts a file with a skippable frame (RFC 8878, 3.1.2)
    **{bytes([0x50 + i]) + b"\x2a\x4d\x18": "zstd" for i in range(16)},
}
_MAGIC_BYTES = 6


class _TrailingGarbage(Exception):
    """What follows the compressed data is something else."""


def _new_decompressor(compression: str) -> Any:
    if compression == "gz":
        from isal import igzip_lib

        return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    if compression == "xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    return zstd().ZstdDecompressor()


def zstd() -> Any:
    """Python's module for Zstandard (3.14), or the same for older ones."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _decompression_errors() -> Any:  # isal's error type is untyped
    from isal import igzip_lib

    return (igzip_lib.error, lzma.LZMAError, zstd().ZstdError, EOFError, ValueError, _TrailingGarbage)


def _starts_member(data: bytes, compression: str) -> bool:
    """Whether data starts as a file with this compression does; of a few bytes, whether it may."""
    magics = [magic for magic, kind in _MAGICS.items() if kind == compression]
    return any(data.startswith(magic) or magic.startswith(data) for magic in magics)


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
    far. Steps depend on nothing but the bytes: a damaged stream gives the same output from a file and from a pipe.
    """
    decompressor = _new_decompressor(compression)
    data = head
    done = 0
    while True:
        if decompressor.eof:
            # trailing zeros are padding (tapes, sector sizes); anything else starts a new member
            data = (decompressor.unused_data + data).lstrip(b"\0")
            while not data:
                data = _read_exactly(file, _READ_BYTES)
                if not data:
                    return
                data = data.lstrip(b"\0")
            data += _read_exactly(file, max(_MAGIC_BYTES - len(data), 0))
            if not _starts_member(data, compression):
                raise _TrailingGarbage
            decompressor = _new_decompressor(compression)
        elif not data and decompressor.needs_input:
            data = _read_exactly(file, _READ_BYTES)
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

    Parameters
    ----------
    path : str
        Name of the file.
    compression : {"none", "gz", "xz", "zstd"}
        Compression of the file.
    read_into : callable
        Puts the next bytes of the (decompressed) stream into a memoryview and returns how many; 0 at the end.
    data : uint8 array, optional
        The first window.

    Attributes
    ----------
    data : uint8 array
        The window, valid until the next call of :meth:`more`.
    start : int
        Index of the first unread byte in `data`.
    damage : str or None
        Why the stream ended early: a read failed, or the compressed data is truncated or corrupt. None if it did not.
    users : list
        Whose ``data`` may be a window: it stays valid until they change that.
    may_wait : bool
        The bytes may come as slowly as another program writes them.
    """

    def __init__(
        self,
        path: str,
        compression: str,
        read_into: Callable[[memoryview], int],
        data: np.ndarray = _NOTHING,
    ) -> None:
        self.path = path
        self.compression = compression
        self.data = data
        self.start = 0
        self.damage: str | None = None
        self.users: list[Any] = []
        self.may_wait = False
        self._dropped = 0  # bytes of the stream before data[0]
        self._read_into = read_into
        self._buffers: list[np.ndarray] = []
        self._close: Callable[[], None] | None = None
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
        """Append the next bytes to the unread ones; False at the end of the stream."""
        unread = self.data[self.start :]
        kept = len(unread)
        buffer = self._buffer(2 * kept)
        buffer[:kept] = unread
        n = self._read(buffer[kept:])
        self._dropped += self.start
        self.start = 0
        self.data = buffer[: kept + n]
        self.data.flags.writeable = False  # every window is: one type, so one compilation of every kernel
        return n > 0

    def _buffer(self, least: int) -> np.ndarray:
        """A buffer of more than `least` bytes that nobody uses."""
        used = [user.data.base for user in self.users]
        self._buffers = [buffer for buffer in self._buffers if len(buffer) > least]
        for buffer in self._buffers:
            if not any(buffer is base for base in used):
                return buffer
        self._buffers.append(np.empty(max(_WINDOW_BYTES, 2 * least), np.uint8))
        return self._buffers[-1]

    def _read(self, window: np.ndarray) -> int:
        """Read into a window; the number of bytes, 0 at the end or where reading fails."""
        try:
            return self._read_into(window.data)
        except OSError as err:
            self.damage = f"it cannot be read any further: {_one_line(err)}"
            return 0

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

    def close(self) -> None:
        if self._close is not None:
            self._close()
            self._close = None
        self.data = _NOTHING
        self._buffers.clear()
        self._read_into = _read_nothing

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read_nothing(_: memoryview) -> int:
    return 0


def read_pieces_into(pieces: Iterable[bytes]) -> Callable[[memoryview], int]:
    """The pieces one after another, as :class:`ByteSource` takes them."""
    rest = memoryview(b"")
    iterator = iter(pieces)

    def read_into(window: memoryview) -> int:
        nonlocal rest
        while not rest:
            piece = next(iterator, None)
            if piece is None:
                return 0
            rest = memoryview(piece)
        n = min(len(window), len(rest))
        window[:n] = rest[:n]
        rest = rest[n:]
        return n

    return read_into


def _until_damage(
    pieces: Iterable[bytes], compression: str, on_damage: Callable[[str], None]
) -> Iterator[bytes]:
    """The pieces, up to an error of the decompressor."""
    try:
        yield from pieces
    except _TrailingGarbage:
        on_damage(f"trailing garbage behind the {compression} data is ignored")
    except _decompression_errors() as err:
        on_damage(f"the {compression} data is damaged: {_one_line(err)}")


def _file_into(file: IO[bytes], head: bytes) -> Callable[[memoryview], int]:
    """The bytes of a file, of which `head` is read already."""
    if not hasattr(file, "readinto"):  # a user's own file object
        return read_pieces_into(itertools.chain([head], iter(lambda: file.read(_READ_BYTES), b"")))
    # a pipe's readinto waits until all of the window is there, its readinto1 does not
    read = getattr(file, "readinto1", file.readinto)
    rest = memoryview(head)

    def read_into(window: memoryview) -> int:
        nonlocal rest
        n = len(rest)
        window[:n] = rest
        rest = rest[n:]
        return n + (read(window[n:]) or 0)

    return read_into


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
        if isinstance(path, io.TextIOBase):
            raise ParameterError("path: the file object is in text mode, expected binary")
    elif os.fspath(path) == "-":
        file = standard_input()
        name = "<stdin>"
    else:
        name = os.fspath(path)
        try:
            file = open(name, "rb", buffering=0)  # noqa: SIM115  # closed with the source
        except (OSError, ValueError) as err:  # ValueError: the name has a zero byte
            raise CaptureFormatError(name, None, f"cannot be read: {_one_line(err)}") from None
        close_file = file.close

    try:
        head = _read_exactly(file, _MAGIC_BYTES)
        compression = next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), "none")
    except OSError as err:
        close_file()
        raise CaptureFormatError(name, None, f"cannot be read: {_one_line(err)}") from None

    if compression == "none":
        source = ByteSource(name, "none", _file_into(file, head))
        source._close = close_file
        source._file_bytes = _stored_bytes(file)
        source.may_wait = _may_wait(file)
        with suppress(OSError, AttributeError):  # a pipe
            source._dropped = file.tell() - len(head)
        return source

    source = ByteSource(name, compression, _read_nothing)

    def damaged(reason: str) -> None:
        source.damage = reason

    source._file_bytes = _stored_bytes(file)
    source._file_position = getattr(file, "tell", None)
    source.may_wait = _may_wait(file)
    source._close = close_file
    pieces: Iterable[bytes] = _decompressed(file, head, compression)
    with suppress(RuntimeError):  # no thread can be started
        pieces = ahead = Ahead(iter(pieces), _PIECES_AHEAD, "decompress")

        def close() -> None:
            # a thread that still waits for the program at the other end of a pipe keeps the file
            if ahead.stop(wait=not source.may_wait):
                close_file()

        source._close = close
    source._read_into = read_pieces_into(_until_damage(pieces, compression, damaged))
    return source


def standard_input() -> Any:
    """Standard input in binary mode.

    Raises
    ------
    CaptureFormatError
        It is closed.
    """
    if sys.stdin is None:
        raise CaptureFormatError("<stdin>", None, "standard input is closed")
    # not its buffer, whose lock a thread that still waits would hold when Python ends
    return getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)


def reads_twice(source: object) -> bool:
    """Whether a source can be read again from the start: a file or a Capture, not a pipe."""
    if not isinstance(source, str | os.PathLike):
        return True
    try:
        return os.fspath(source) != "-" and stat.S_ISREG(os.stat(source).st_mode)
    except OSError:
        return True  # reading it reports the problem


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


def _may_wait(file: IO[bytes]) -> bool:
    """Whether this is a pipe, a terminal or the like."""
    try:
        return not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, AttributeError, ValueError):  # an object without a file
        return False


def _stored_bytes(file: IO[bytes]) -> int:
    """The size of a file on disk; 0: unknown."""
    # the file descriptor of an object that decompresses is that of the compressed file
    if not isinstance(getattr(file, "raw", file), io.FileIO):
        return 0
    return os.fstat(file.fileno()).st_size
