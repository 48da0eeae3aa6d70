"""MAWI's daily traces: 15 minutes of a transit link of the WIDE backbone, fetched into a cache.

Samplepoint F has a file a day since 2006-07-01, captured at 14:00 in Japan: ``pcap.gz``, of the order of 10**8
packets, addresses scrambled, payload cut. See https://mawi.wide.ad.jp/mawi/ for the terms of use, and cite the
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
            raise ParameterError(f"date: {date!r} is no date like 2024-02-15") from None
    today = dt.datetime.now(_JAPAN).date()
    if not _FIRST_DAY <= date <= today:
        raise ParameterError(f"date: samplepoint F has days from {_FIRST_DAY} to today, not {date}")
    return date


def _cached(day: dt.date, cache_dir: str | os.PathLike[str] | None) -> Path:
    return _cache_dir(cache_dir) / "mawi" / "samplepoint-F" / f"{day:%Y%m%d}1400.pcap.gz"


def mawi_path(date: str | dt.date, cache_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The file of a day, if it is in the cache.

    Raises
    ------
    ParameterError
        No date, or none samplepoint F can have.
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
    """Download a day of samplepoint F into the cache, unless it is there already.

    An interrupted download goes on where it stopped, in this call while the server answers, else in the next.
    The file appears when it is whole, with its SHA-256 beside it; a file that is there already is
    compared with that.

    Parameters
    ----------
    date : str or date
        ``"2024-02-15"`` or ``"20240215"``.
    cache_dir : path, optional
        Default: ``CCTOOLKIT_CACHE`` from the environment, else the user's cache folder.
    base_url : str
        Where the years' folders are; for mirrors.
    progress : bool, optional
        Show a bar; by default on a terminal or in a notebook only.
    sha256 : str, optional
        The checksum the file must have. MAWI publishes none.

    Returns
    -------
    Path
        A ``pcap.gz``; read it as it is, there is no need to unpack it.

    Raises
    ------
    ParameterError
        No date, or none samplepoint F can have.
    DatasetUnavailableError
        No network, no trace of that day, or a wrong checksum.

    Examples
    --------
    >>> path = fetch_mawi("2024-02-15")                                        # doctest: +SKIP
    >>> for part in cct.iter_capture(path):                                    # doctest: +SKIP
    ...     print(len(part))
    """
    day = _day(date)
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ParameterError(f"sha256: {sha256!r} is not 64 hexadecimal digits")
    target = _cached(day, cache_dir)
    url = f"{base_url.rstrip('/')}/{day:%Y}/{target.name}"
    return fetch_file(url, target, sha256=sha256, check=_not_gzip, progress=progress)


def _not_gzip(head: bytes) -> str | None:
    if head[:2] == b"\x1f\x8b":
        return None
    return f"no gzip file but {head[:16]!r}…; a login page, perhaps"


def find_trace(packets: int = 200_000, cache_dir: str | os.PathLike[str] | None = None) -> tuple[Path, str]:
    """A backbone trace to work on, and what it is: for notebooks that should run everywhere.

    The file named by ``TRACE`` in the environment; else the latest MAWI day in the cache; else a synthetic
    capture, which is made once and kept in the cache.

    Parameters
    ----------
    packets : int
        Size of the synthetic one.
    cache_dir : path, optional
        As for :func:`fetch_mawi`.

    Returns
    -------
    path : Path
    description : str
        One line to show with every result; says so when the capture is synthetic.

    Raises
    ------
    ParameterError
        ``TRACE`` names no file.
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
