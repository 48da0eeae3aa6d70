"""Labels and settings from the names of files and folders, as others name their captures."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from ...errors import ParameterError
from .labels import CAPTURE_SUFFIXES, KNOWN, cca_name, stem

__all__ = ["captures_in", "labels_from_names", "settings_from_name"]

#: The settings in Nebby's names: four numbers, perhaps with that of the run in front.
_NEBBY = re.compile(r"(?:-\d{1,9}){4,}(?=-)")
#: The folders of Nebby's first version (test_diff_profiles.sh): delay after the bottleneck, and the rate.
_NEBBY_FOLDER = re.compile(r"(\d{1,6})-ms-(\d{1,9})-kbps")
#: … with this delay before the bottleneck, and a buffer of one BDP.
_NEBBY_BEFORE_MS = 5
#: CCAnalyzer's: Mbit/s, RTT in ms, buffer in packets.
_CCANALYZER = re.compile(r"(?:^|[-_])(\d{1,9})bw-(\d{1,6})rtt-(\d{1,9})q(?:[-_]|$)")


def labels_from_names(paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> pd.DataFrame:
    """Labels from names of files or their folders that contain the congestion control.

    Parameters
    ----------
    paths : path or iterable of path
        Files, or folders, which are searched recursively for captures and field exports.

    Returns
    -------
    DataFrame
        ``file`` and ``cca``: the only congestion control that is a word of the file's name, else of its folder's; null
        if there is none or more than one. A number at the end of the word counts repetitions ("cubic11"), except in
        "bbr1", "bbr2" and "bbr3". In Nebby's names it always does; they need a folder named after the congestion
        control. There is also a column for each setting in the names (:func:`settings_from_name`). Can be passed to
        :func:`~.labels.label_flows`.

    Raises
    ------
    ParameterError
        There is no such file.

    Examples
    --------
    >>> Path("cubic").mkdir()
    >>> Path("cubic/cubic11-0-50-200-2-tcp.csv").touch()
    >>> labels_from_names("cubic")
                                   file    cca  rate_mbps  rtt_ms  buffer_bdp
    0  cubic/cubic11-0-50-200-2-tcp.csv  cubic        0.2   100.0         2.0
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files: list[Path] = []
    for path in map(Path, given):
        if path.is_dir():
            files += captures_in(path)
        elif path.exists():
            files.append(path)
        else:
            raise ParameterError(f"{path}: no such file or folder")
    settings = pd.DataFrame(
        [settings_from_name(path) for path in files], index=range(len(files)), dtype=float
    )
    return pd.DataFrame(
        {
            "file": pd.Series([str(path) for path in files], dtype=object),  # a name need not be UTF-8
            "cca": pd.Series([_cca(path) for path in files], dtype="str"),
        }
    ).join(settings)


def captures_in(folder: Path) -> list[Path]:
    """Captures and field exports in a folder and its folders, by their suffix, in order."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in CAPTURE_SUFFIXES)


def settings_from_name(path: str | os.PathLike[str]) -> dict[str, float]:
    """Settings of a run from the name of its file or of the file's folder.

    Parameters
    ----------
    path : path
        Its name is that of a Nebby trace (``CCA-PRE-POST-KBPS-BDP-tcp.csv``, or any name in a folder
        ``POST-ms-KBPS-kbps``), or has CCAnalyzer's settings (``5bw-35rtt-16q``).

    Returns
    -------
    dict
        ``rate_mbps``, ``rtt_ms`` and ``buffer_bdp`` or ``buffer_packets``; empty for other names.

    Notes
    -----
    The RTT of Nebby's settings is twice the sum of its two delays. Its emulator delivers a full packet's worth of bytes
    at a time, which adds up to 12 / (Mbit/s) ms in each direction. The numbers are those in the names; some traces are
    known to have another delay.

    Examples
    --------
    >>> settings_from_name("reno-5-45-200-2-tcp.csv")
    {'rate_mbps': 0.2, 'rtt_ms': 100.0, 'buffer_bdp': 2.0}
    >>> settings_from_name("server-tcpdump-reno-5bw-35rtt-16q-local-20181126T000645.pcap")
    {'rate_mbps': 5.0, 'rtt_ms': 35.0, 'buffer_packets': 16.0}
    """
    path = Path(path)
    if nebby := _nebby(path):
        before, after, kbps, bdp = nebby
        return {"rate_mbps": kbps / 1000, "rtt_ms": 2 * (before + after), "buffer_bdp": bdp}
    if folder := _NEBBY_FOLDER.fullmatch(path.parent.name):
        after, kbps = map(float, folder.groups())
        return {"rate_mbps": kbps / 1000, "rtt_ms": 2 * (_NEBBY_BEFORE_MS + after), "buffer_bdp": 1.0}
    for name in (path.name, path.parent.name):
        if found := _CCANALYZER.search(name):
            rate, rtt, packets = map(float, found.groups())
            return {"rate_mbps": rate, "rtt_ms": rtt, "buffer_packets": packets}
    return {}


def _nebby(path: Path) -> list[float]:
    """Nebby's settings in a name: delay before and after the bottleneck in ms, kbit/s, buffer in BDP (run_test.sh)."""
    name = stem(path.name)
    found = _NEBBY.findall(name) if name.endswith("-tcp") else []
    return [float(number) for number in found[-1].split("-")[-4:]] if found else []


def _cca(path: Path) -> str | None:
    """The only congestion control in a file's name, else in its folder's."""
    name = stem(path.name)
    found = _named(name) or _named(path.parent.name)
    word = name.partition("-")[0].lower()
    if _nebby(path) and word in KNOWN and word.rstrip("0123456789") in KNOWN - {word}:
        found = _named(path.parent.name)  # "bbr2-0-50-200-2-tcp.csv": the second run of BBR, or BBRv2
    return next(iter(found)) if len(found) == 1 else None


def _named(text: str) -> set[str]:
    """The congestion controls in `text`, as one word or two ("new reno", "bbr v2")."""
    words = [word for word in re.split(r"[^a-z0-9+]+", text.lower()) if word]
    found = set()
    at = 0
    while at < len(words):
        # "bbr-2" is a second run of BBR, not its second version
        one, two = words[at : at + 1], words[at : at + 2]
        for phrase in (two, one) if not two[-1].isdecimal() else (one,):
            name = cca_name("".join(phrase))
            if name not in KNOWN and phrase is one:
                name = one[0].rstrip("0123456789")  # "cubic11"
            if name in KNOWN and len(words[at]) > 1:
                found.add(name)
                at += len(phrase) - 1
                break
        at += 1
    return found
