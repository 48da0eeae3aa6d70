"""MAWI's daily traces: 15 minutes of a transit link of the WIDE backbone, downloaded into a cache.

Samplepoint F has one file per day since 2006-07-01, captured at 14:00 Japan time: ``pcap.gz``, about 10**8 packets,
with scrambled addresses and truncated payload. See https://mawi.wide.ad.jp/mawi/ for the terms of use, and cite the
MAWI Working Group when you publish results.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from pathlib import Path

from .._support.cache_folder import cache_dir as _cache_dir
from ..errors import ParameterError
from .download import fetch_file

__all__ = ["MAWI_URL", "fetch_mawi", "find_trace", "mawi_path", "real_traces"]

MAWI_URL = "https://mawi.wide.ad.jp/mawi/samplepoint-F"

_FIRST_DAY = dt.date(2006, 7, 1)
_JAPAN = dt.timezone(dt.timedelta(hours=9))
#: Captures named after a file of MAWI's: ``200601051400.dump``, ``mawi_200601051400_first10000.pcap.gz``.
_EXCERPT = re.compile(r"(?<!\d)(\d{4})(\d\d)(\d\d)1400(?!\d).*\.(?:pcapng|pcap|dump)(?:\.\w+)?$")


def _day(date: str | dt.date) -> dt.date:
    if isinstance(date, dt.datetime):
        date = date.date()
    if not isinstance(date, dt.date):
        text = str(date).strip()
        try:
            if not re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
                raise ValueError
            date = dt.date.fromisoformat(text)
        except ValueError:
            raise ParameterError(f"date: {date!r} is not a date like 2024-02-15") from None
    today = dt.datetime.now(_JAPAN).date()
    if not _FIRST_DAY <= date <= today:
        raise ParameterError(f"date: samplepoint F has no trace of {date}, only from {_FIRST_DAY} to today")
    return date


def _cached(day: dt.date, cache_dir: str | os.PathLike[str] | None) -> Path:
    return _cache_dir(cache_dir) / "mawi" / "samplepoint-F" / f"{day:%Y%m%d}1400.pcap.gz"


def mawi_path(date: str | dt.date, cache_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The trace of a day if it is in the cache, else None.

    Raises
    ------
    ParameterError
        Not a date, or outside the range of samplepoint F.
    """
    path = _cached(_day(date), cache_dir)
    return path if path.exists() else None


def fetch_mawi(
    date: str | dt.date,
    cache_dir: str | os.PathLike[str] | None = None,
    base_url: str = MAWI_URL,
    progress: bool | None = None,
    *,
    sha256: str | None = None,
) -> Path:
    """Download a day of MAWI's samplepoint F into the cache, unless it is there.

    An interrupted download resumes: within this call while the server answers, else in the next call. The file appears
    once complete, with its SHA-256 beside it; a file from the cache is verified against that.

    Parameters
    ----------
    date : str or date
        Day of the trace, as in ``"2024-02-15"`` or ``"20240215"``.
    cache_dir : path, optional
        By default the environment variable ``CCTOOLKIT_CACHE``, else the user's cache folder.
    base_url : str
        Location of the folders by year, for mirrors.
    progress : bool, optional
        Show a progress bar; by default only on a terminal or in a notebook.
    sha256 : str, optional
        Required checksum; MAWI publishes none.

    Returns
    -------
    Path
        A ``pcap.gz``, which can be read without unpacking it.

    Raises
    ------
    ParameterError
        Not a date, or outside the range of samplepoint F.
    DatasetUnavailableError
        No network, no trace of that day, or a wrong checksum.

    See Also
    --------
    iter_capture : read a capture of any size
    synth_mawi : a synthetic capture of the same kind
    find_trace : whatever trace is available

    Examples
    --------
    >>> path = cct.fetch_mawi("2024-02-15")  # doctest: +SKIP
    >>> for part in cct.iter_capture(path):  # doctest: +SKIP
    ...     print(len(part))
    """
    day = _day(date)
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ParameterError(f"sha256: {sha256!r} must be 64 hexadecimal digits")
    target = _cached(day, cache_dir)
    url = f"{base_url.rstrip('/')}/{day:%Y}/{target.name}"
    return fetch_file(url, target, sha256=sha256, check=_not_gzip, progress=progress)


def _not_gzip(head: bytes) -> str | None:
    if head[:2] == b"\x1f\x8b":
        return None
    return f"not a gzip file but {head[:16]!r}…, perhaps a login page"


def real_traces(
    cache_dir: str | os.PathLike[str] | None = None, *, excerpts: bool = True
) -> list[tuple[Path, str]]:
    """Real backbone traces on this machine, for questions that synthetic traffic cannot answer.

    These are the file named by the environment variable ``TRACE``, the MAWI days in the cache, and the MAWI captures in
    the folder named by ``CCTOOLKIT_MAWI``, which are treated as excerpts: a second of a backbone link has thousands of
    packets, but hardly one round trip of most flows.

    Parameters
    ----------
    cache_dir : path, optional
        By default the environment variable ``CCTOOLKIT_CACHE``, else the user's cache folder.
    excerpts : bool
        Whether excerpts suffice.

    Returns
    -------
    list of (Path, str)
        Captures, each with one line to show with every result; of days and excerpts the latest first. Empty if there
        are none.

    Raises
    ------
    ParameterError
        ``TRACE`` is not a file, or ``CCTOOLKIT_MAWI`` not a folder.

    See Also
    --------
    find_trace : one trace, synthetic if need be
    fetch_mawi : download a MAWI day

    Examples
    --------
    >>> for path, description in cct.real_traces():
    ...     print(description)  # doctest: +SKIP
    MAWI samplepoint F of 2024-02-15, 14:00 in Japan
    MAWI samplepoint B of 2006-01-05, 14:00 in Japan (an excerpt, mawi_samplepoint-B_200601051400_first10000.pcap)
    """
    found = []
    named = os.environ.get("TRACE")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise ParameterError(f"TRACE: no file {named}")
        found.append((path, f"{path.name} (TRACE)"))
    days = (_cache_dir(cache_dir) / "mawi" / "samplepoint-F").glob("[0-9]" * 12 + ".pcap.gz")
    found += [(path, _mawi_title(path.name)) for path in sorted(days, reverse=True)]
    folder = os.environ.get("CCTOOLKIT_MAWI")
    if folder and excerpts:
        if not Path(folder).is_dir():
            raise ParameterError(f"CCTOOLKIT_MAWI: no folder {folder}")
        parts = [path for path in Path(folder).iterdir() if _EXCERPT.search(path.name)]
        parts.sort(key=lambda path: _EXCERPT.findall(path.name), reverse=True)
        found += [(path, f"{_mawi_title(path.name)} (an excerpt, {path.name})") for path in parts]
    return found


def _mawi_title(name: str) -> str:
    year, month, day = _EXCERPT.findall(name)[0]
    point = re.search(r"samplepoint-(\w)", name)
    return f"MAWI samplepoint {point[1] if point else 'F'} of {year}-{month}-{day}, 14:00 in Japan"


def find_trace(
    packets: int = 200_000, cache_dir: str | os.PathLike[str] | None = None, *, excerpt: bool = False
) -> tuple[Path, str]:
    """Find a backbone trace to work on, for notebooks that should run everywhere.

    It is the first of :func:`real_traces`, else a synthetic capture, made once and kept in the cache.

    Parameters
    ----------
    packets : int
        Size of the synthetic capture.
    cache_dir : path, optional
        By default the environment variable ``CCTOOLKIT_CACHE``, else the user's cache folder.
    excerpt : bool
        Whether an excerpt of a second suffices: for the mix of traffic, directions and RTTs, not for the course of
        flows.

    Returns
    -------
    path : Path
        The capture.
    description : str
        One line to show with every result; says whether the capture is synthetic.

    Raises
    ------
    ParameterError
        ``TRACE`` is not a file, or ``CCTOOLKIT_MAWI`` not a folder.

    See Also
    --------
    real_traces : those that are not synthetic
    fetch_mawi : download a MAWI day
    synth_mawi : make a synthetic capture

    Examples
    --------
    >>> path, description = cct.find_trace(packets=10_000, cache_dir=".")  # doctest: +SKIP
    >>> description  # doctest: +SKIP
    'SYNTHETIC traffic, MAWI-like, 10,000 packets made up from a seed (no MAWI day in the cache)'
    """
    real = real_traces(cache_dir, excerpts=excerpt)
    if real:
        return real[0]

    from .synth.mawi import MawiLike, synth_mawi

    model = MawiLike(packets)
    path = _cache_dir(cache_dir) / "synthetic" / model.name
    if not path.exists():
        synth_mawi(path, packets)
    return (
        path,
        f"SYNTHETIC traffic, MAWI-like, {packets:,} packets made up from a seed (no MAWI day in the cache)",
    )
