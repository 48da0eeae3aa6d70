"""Captures from paths, globs, folders, MAWI days and URLs, fetched to this machine."""

from __future__ import annotations

import contextlib
import datetime as dt
import glob
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._support.words import first_line, printable
from ..capture.mawi import fetch_mawi, mawi_path
from ..errors import CaptureFormatError, DatasetUnavailableError, ParameterError

__all__ = ["Source", "find_sources", "local_file", "sha256_of"]

_CAPTURE = re.compile(r"\.(pcap|pcapng|cap)(\.(gz|xz|zst))?$", re.IGNORECASE)
_DAY = r"\d{4}-\d\d-\d\d"
_DAYS = re.compile(rf"({_DAY})(?:\.\.({_DAY}))?")
_MAWI = "mawi:"


@dataclass(frozen=True)
class Source:
    """A capture at any location.

    Attributes
    ----------
    url : str
        An absolute path, ``mawi:`` and a day, or a URL supported by fsspec.
    """

    url: str

    @property
    def is_mawi(self) -> bool:
        return self.url.startswith(_MAWI)

    @property
    def is_remote(self) -> bool:
        return "://" in self.url

    @property
    def name(self) -> str:
        """Name of the file, as it is stored in tables: bytes that are not text are escaped."""
        if self.is_mawi:
            return f"{self.url.removeprefix(_MAWI).replace('-', '')}1400.pcap.gz"
        where = self.url.partition("?")[0] if self.is_remote else self.url
        return printable(where.rstrip("/").rsplit("/", 1)[-1])

    @property
    def stem(self) -> str:
        """Name without the ending, with only characters that are safe in a path and in ``capture=…``."""
        return re.sub(r"[^\w.+-]", "_", _CAPTURE.sub("", self.name)) or "capture"

    @property
    def key(self) -> str:
        """A short name of the location (not of its content)."""
        return hashlib.sha256(os.fsencode(self.url)).hexdigest()[:24]

    def version(self) -> str:
        """A value that changes with the file: size and time of a file, or what the store of a URL reports.

        A MAWI day never changes.

        Raises
        ------
        CaptureFormatError, DatasetUnavailableError
            It does not exist.
        """
        if self.is_mawi:
            return "day"
        if self.is_remote:
            with _as_our_errors(self.url):
                fs, path = _file_system(self.url)
                return f"{fs.info(path).get('size')}-{fs.ukey(path)}"
        try:
            found = os.stat(self.url)
        except OSError as err:
            raise CaptureFormatError(self.url, None, f"cannot be read: {err.strerror}") from None
        return f"{found.st_size}-{found.st_mtime_ns}"


def find_sources(captures: Iterable[str | os.PathLike[str]]) -> tuple[list[Source], dict[str, str]]:
    """Find captures, each once, in the given order; matches of a glob or folder are ordered by name.

    Single paths and URLs are not checked for existence.

    Parameters
    ----------
    captures : iterable of str or path
        A path; a folder (all captures in and below it, by file name); a glob (with ``**`` for subfolders); a MAWI
        day (``2024-02-15``) or range of days (``2024-02-01..2024-02-29``); a URL supported by fsspec, which may
        have ``*``.

    Returns
    -------
    sources : list of Source
        The captures.
    failed : dict of str to str
        Arguments without captures, and why: an empty glob or folder, invalid days, a URL whose store does not
        answer or needs a missing package.
    """
    found: dict[Source, None] = {}
    without: dict[str, str] = {}
    for given in captures:
        capture = os.fspath(given)
        try:
            found |= dict.fromkeys(_meant(capture))
        except (ParameterError, DatasetUnavailableError) as err:
            without[capture] = str(err).removeprefix("captures: ").removeprefix(f"{capture}: ")
        except OSError as err:
            without[capture] = f"cannot be read: {err.strerror or err}"
        except ValueError:
            without[capture] = "not a file name: it contains a zero byte"
    return list(found), without


def _meant(text: str) -> Iterator[Source]:
    days = _DAYS.fullmatch(text)
    if days:
        yield from _days(*days.groups())
    elif "://" in text:
        yield from _urls(text)
    else:
        path = Path(text).expanduser()
        if path.is_dir():
            paths = sorted(p for p in path.rglob("*") if _CAPTURE.search(p.name) and p.is_file())
        elif glob.has_magic(text) and not path.exists():
            paths = [Path(p) for p in sorted(glob.glob(str(path), recursive=True)) if os.path.isfile(p)]
        else:
            paths = [path]
        if not paths:
            raise ParameterError("has no captures" if path.is_dir() else "no file matches")
        for path in paths:
            yield Source(
                os.path.realpath(path)
            )  # pathlib's raises at a loop of links, which is one bad capture


def _days(first: str, last: str | None) -> Iterator[Source]:
    mawi_path(first)  # raises if it is invalid
    mawi_path(last or first)
    begin, end = dt.date.fromisoformat(first), dt.date.fromisoformat(last or first)
    if begin > end:
        raise ParameterError("ends before it starts")
    for day in range((end - begin).days + 1):
        yield Source(f"{_MAWI}{begin + dt.timedelta(day)}")


def _urls(url: str) -> Iterator[Source]:
    try:
        fs, path = _file_system(url)
    except (ImportError, ValueError) as err:
        raise ParameterError(str(err)) from None
    if "file" in fs.protocol:
        yield from _meant(path)
    elif "*" in url:
        with _as_our_errors(url):
            paths = sorted(fs.glob(path))
        if not paths:
            raise ParameterError("no file matches")
        yield from (Source(fs.unstrip_protocol(p)) for p in paths)
    else:
        yield Source(url)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ParameterError("URLs need fsspec: pip install 'cctoolkit[batch]'") from None
    return url_to_fs(url)


@contextlib.contextmanager
def _as_our_errors(url: str) -> Iterator[None]:
    """Convert exceptions of a store's library to our own."""
    try:
        yield
    except Exception as err:
        why = first_line(err)
        if isinstance(err, FileNotFoundError):
            cause = err.__cause__  # fsspec raises the same if it cannot connect
            if cause is None or isinstance(cause, FileNotFoundError):
                why = "not found"
            else:
                why = first_line(cause, "not found")
        raise DatasetUnavailableError(f"{url}: {why}") from None


@contextlib.contextmanager
def local_file(source: Source, keep: bool) -> Iterator[Path]:
    """Yield the capture as a local file.

    The content of a URL is copied to the temporary directory for the duration of the block. A MAWI day is
    downloaded into the cache, and stays there if it was there before, or with `keep`.

    Raises
    ------
    DatasetUnavailableError
        It cannot be downloaded.
    """
    if source.is_mawi:
        day = source.url.removeprefix(_MAWI)
        there = mawi_path(day) is not None
        path = fetch_mawi(day, progress=False)
        try:
            yield path
        finally:
            if not (there or keep):
                path.unlink(missing_ok=True)
                path.with_name(path.name + ".sha256").unlink(missing_ok=True)
    elif source.is_remote:
        with tempfile.TemporaryDirectory(prefix="cct-batch-") as folder:
            path = Path(folder) / (source.name or "capture")
            with _as_our_errors(source.url):
                fs, remote = _file_system(source.url)
                fs.get_file(remote, str(path))
            yield path
    else:
        yield Path(source.url)


def sha256_of(path: Path) -> str:
    """SHA-256 of the bytes of a file, as stored.

    Raises
    ------
    CaptureFormatError
        It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as err:
        raise CaptureFormatError(path, None, f"cannot be read: {err.strerror}") from None
