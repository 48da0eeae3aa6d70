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

__all__ = ["MAWI_URL", "fetch_mawi", "find_trace", "mawi_path"]

MAWI_URL = "https://mawi.wide.ad.jp/mawi/samplepoint-F"

_FIRST_DAY = dt.date(2006, 7, 1)
_JAPAN = dt.timezone(dt.timedelta(hours=9))


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
        raise ParameterError(f"date: samplepoint F has traces from {_FIRST_DAY} to today, not of {date}")
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


def find_trace(packets: int = 200_000, cache_dir: str | os.PathLike[str] | None = None) -> tuple[Path, str]:
    """Find a backbone trace to work on, for notebooks that should run everywhere.

    It is the file named by the environment variable ``TRACE``, else the latest MAWI day in the cache, else a synthetic
    capture, made once and kept in the cache.

    Parameters
    ----------
    packets : int
        Size of the synthetic capture.
    cache_dir : path, optional
        By default the environment variable ``CCTOOLKIT_CACHE``, else the user's cache folder.

    Returns
    -------
    path : Path
        The capture.
    description : str
        One line to show with every result; says whether the capture is synthetic.

    Raises
    ------
    ParameterError
        ``TRACE`` is not a file.

    See Also
    --------
    fetch_mawi : download a MAWI day
    synth_mawi : make a synthetic capture

    Examples
    --------
    >>> path, description = cct.find_trace(packets=10_000, cache_dir=".")  # doctest: +SKIP
    >>> description  # doctest: +SKIP
    'SYNTHETIC traffic, MAWI-like, 10,000 packets made up from a seed (no MAWI day in the cache)'
    """
    named = os.environ.get("TRACE")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise ParameterError(f"TRACE: no file {named}")
        return path, f"{path.name} (TRACE)"
    cache = _cache_dir(cache_dir)
    days = sorted((cache / "mawi" / "samplepoint-F").glob("[0-9]" * 12 + ".pcap.gz"))
    if days:
        day = dt.datetime.strptime(days[-1].name[:8], "%Y%m%d").date()
        return days[-1], f"MAWI samplepoint F of {day}, 14:00 in Japan"

    from .synth.mawi import MawiLike, synth_mawi

    model = MawiLike(packets)
    path = cache / "synthetic" / model.name
    if not path.exists():
        synth_mawi(path, packets)
    return (
        path,
        f"SYNTHETIC traffic, MAWI-like, {packets:,} packets made up from a seed (no MAWI day in the cache)",
    )
