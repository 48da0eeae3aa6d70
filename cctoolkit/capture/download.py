"""Download one large file: resumable, verified, and in place only once complete.

The downloaders of libraries start over after every interruption, each time into a new temporary file.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from .._support.atomic import replacing
from .._support.locks import try_lock
from .._support.version import __version__
from .._support.waiting import progress_bar
from .._support.words import first_line
from ..errors import DatasetUnavailableError

__all__ = ["fetch_file"]

_CHUNK_BYTES = 1 << 17  # the most that a broken connection loses
_TIMEOUT_S = (15, 60)  # to connect, and between two chunks
_TRIES = 4  # consecutive, without a new byte
_WAIT_S = 2.0


def fetch_file(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    check: Callable[[bytes], str | None] | None = None,
    progress: bool | None = None,
) -> Path:
    """Download `url` to `target` unless it exists, resuming where an earlier call stopped.

    Partial data is kept in ``target.part`` (and the server's version of the file in ``target.part.version``, to
    notice a change) and renamed at the end. The checksum is then written to ``target.sha256``, against which later
    calls verify the file.

    Parameters
    ----------
    url : str
        What to download, by HTTP or HTTPS.
    target : Path
        Where to put it.
    sha256 : str, optional
        Required checksum; by default the recorded one, if any.
    check : callable, optional
        Receives the first bytes of the file; returns what is wrong with them, or None.
    progress : bool, optional
        Show a progress bar; by default only on a terminal or in a notebook.

    Raises
    ------
    DatasetUnavailableError
        No network, no such file on the server, repeated disconnects, or a wrong checksum.
    """
    record = target.with_name(target.name + ".sha256")
    expected = sha256.lower() if sha256 else _recorded(record)
    if target.exists():
        found = _hash_of(target)
        if expected and found != expected:
            raise DatasetUnavailableError(
                f"{target}: sha256 is {found}, expected {expected}; delete the file to download it again"
            )
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        with open(part, "ab") as file:
            if not try_lock(file) or not part.exists():  # the other process may just have finished
                raise DatasetUnavailableError(f"{part}: another process is downloading it")
            try:
                found = _append_rest(file, url, progress)
            finally:
                if file.tell() == 0:
                    part.unlink()
                    _version_file(part).unlink(missing_ok=True)
            wrong = check(_first_bytes(part)) if check else None
            if expected and found != expected:
                wrong = f"sha256 is {found}, expected {expected}"
            if wrong is None:
                os.replace(part, target)
            else:
                part.unlink()
            _version_file(part).unlink(missing_ok=True)
        if wrong is not None:
            raise DatasetUnavailableError(f"{url}: {wrong}")
    if not record.exists():
        with replacing(record) as tmp:
            tmp.write_text(f"{found}  {target.name}\n")  # the format of sha256sum -c
    return target


def _recorded(record: Path) -> str | None:
    return record.read_text().split()[0] if record.exists() else None


def _version_file(part: Path) -> Path:
    return part.with_name(part.name + ".version")


def _first_bytes(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(64)


def _hash_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _append_rest(file: IO[bytes], url: str, progress: bool | None) -> str:
    """Append the rest of `url` to `file`; return the sha256 of the whole."""
    import requests

    part = Path(file.name)
    failures = 0
    bar = progress_bar(
        desc=url.rsplit("/", 1)[-1],
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
        disable=None if progress is None else not progress,
    )
    with bar, requests.Session() as session:
        session.headers.update({"User-Agent": f"cctoolkit/{__version__}", "Accept-Encoding": "identity"})
        while True:
            before = file.tell()
            try:
                total = _receive(session, url, file, part, bar)
            except requests.RequestException as error:
                reason = _reason(error)
            else:
                if file.tell() and (total is None or file.tell() == total):
                    break
                reason = "the connection was closed early" if total or file.tell() else "the answer is empty"
            failures = 0 if file.tell() > before else failures + 1
            if failures == _TRIES or file.tell() == 0:
                kept = (
                    f"; {file.tell():,} bytes are kept; the next call resumes from there"
                    if file.tell()
                    else ""
                )
                raise DatasetUnavailableError(f"{url}: {reason}{kept}") from None
            time.sleep(_WAIT_S)
    file.flush()
    return _hash_of(part)


def _receive(session: Any, url: str, file: IO[bytes], part: Path, bar: Any) -> int | None:
    """One request: append what arrives; return the total length, if the server says."""
    have = file.seek(0, os.SEEK_END)
    version = _version_file(part)
    headers = {}
    if have:
        headers["Range"] = f"bytes={have}-"
        if version.exists():
            headers["If-Range"] = version.read_text()
    with session.get(url, stream=True, timeout=_TIMEOUT_S, headers=headers) as response:
        status = response.status_code
        start, total = _content_range(response.headers.get("Content-Range", ""))
        if have and status == 416 and total == have:
            return total  # already complete
        if have and (status == 416 or (status == 206 and start != have)):
            file.truncate(0)
            return _receive(session, url, file, part, bar)
        if status == 404:
            raise DatasetUnavailableError(f"{url}: not found (HTTP status 404)")
        if status not in (200, 206):
            raise DatasetUnavailableError(f"{url}: HTTP status {status} {response.reason}")
        if status == 200:  # start over: the server does not support ranges, or has a new version of the file
            file.truncate(0)
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
        # a weak ETag says nothing about bytes (RFC 9110, 13.1.5)
        tag = response.headers.get("ETag", "")
        known = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
        if known:
            version.write_text(known)
        bar.reset(total)
        bar.update(file.seek(0, os.SEEK_END))
        for piece in response.iter_content(_CHUNK_BYTES):
            file.write(piece)
            bar.update(len(piece))
    return total


def _content_range(text: str) -> tuple[int | None, int | None]:
    """Start and total length in ``bytes 5-9/10`` or ``bytes */10``."""
    start, _, total = text.removeprefix("bytes ").partition("/")
    first = start.split("-")[0]
    return int(first) if first.isdigit() else None, int(total) if total.isdigit() else None


def _reason(error: Exception) -> str:
    """The innermost cause, in one line."""
    import requests

    if isinstance(error, requests.Timeout):
        return "no answer from the server"
    cause: Any = error
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__
        if not isinstance(inner, Exception) or inner is cause:
            break
        cause = inner
    return f"cannot download ({first_line(cause)}); is the network up?"
