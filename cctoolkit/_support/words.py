"""Numbers, flows and foreign text formatted for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

__all__ = [
    "by_name",
    "did_you_mean",
    "endpoint",
    "few",
    "first_line",
    "flow_name",
    "format_bytes",
    "format_percent",
    "format_probability",
    "format_rate",
    "format_time_ns",
    "format_utc",
    "plural",
    "printable",
    "printable_lines",
]


def _missing(value: float) -> bool:
    import pandas as pd

    return bool(pd.isna(value))


def format_percent(share: float) -> str:
    """A percentage that never rounds to 0 % or 100 % unless it is exactly that."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "less than 0.1 %"
    if 99.9 < percent < 100:
        return "more than 99.9 %"
    return f"{percent:.3g} %"


def format_probability(probability: float) -> str:
    """A whole percentage; empty if unknown."""
    return "" if _missing(probability) else f"{100 * probability:.0f} %"


def format_bytes(size: float) -> str:
    """``1234567`` as ``1.23 MB``; powers of 1000."""
    return _scaled(size, ("B", "kB", "MB", "GB", "TB", "PB"))


def format_rate(bytes_per_s: float) -> str:
    """Bytes per second formatted as bits per second."""
    return _scaled(8 * bytes_per_s, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s"))


def format_utc(ns: int) -> str:
    """Nanoseconds since 1970 as date and time, to the microsecond."""
    # without pandas, which takes the least int64 for "no time"
    when = datetime(1970, 1, 1) + timedelta(microseconds=int(ns) // 1000)
    return f"{when:%Y-%m-%d %H:%M:%S.%f}"


def format_time_ns(ns: float) -> str:
    """Nanoseconds formatted in the most readable unit."""
    if _missing(ns):
        return "–"
    if ns == 0:
        return "0 s"
    if ns < 1e9:
        return _scaled(ns, ("ns", "µs", "ms"))
    for unit, name in ((86_400e9, "days"), (3_600e9, "h"), (60e9, "min")):
        if ns >= 2 * unit:
            return f"{ns / unit:,.1f} {name}"
    return f"{ns / 1e9:.3g} s"


def _scaled(value: float, units: tuple[str, ...]) -> str:
    step = 0
    while abs(value) >= 999.5 and step < len(units) - 1:
        value /= 1000
        step += 1
    return f"{value:.0f} {units[step]}" if step == 0 or value >= 99.95 else f"{value:.3g} {units[step]}"


def plural(n: int, what: str) -> str:
    """``1 flow``, ``1,234 flows``."""
    return f"{n:,} {what}{'s' if n != 1 else ''}"


def endpoint(host: str, port: int) -> str:
    """``address:port``, with brackets around IPv6; only the address if the port is 0 (protocols without ports)."""
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def flow_name(flow: Mapping[str, Any] | pd.Series) -> str:
    """``10.0.0.1:5001 → 10.0.0.2:80``, from a row of the flows table."""
    return f"{endpoint(flow['src'], flow['sport'])} → {endpoint(flow['dst'], flow['dport'])}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``"; did you mean 'cubic'?"`` where one of the names is close, else nothing: the end of an error."""
    import difflib  # whoever spells names right need not wait for it

    near = difflib.get_close_matches(str(name).lower(), list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def by_name(folders: Sequence[Path]) -> dict[str, Path]:
    """Different folders by name, with as many of their parent folders as it takes to tell them apart."""
    different = {folder.resolve(): folder for folder in reversed(folders)}
    paths = list(dict.fromkeys(folder.resolve() for folder in folders))
    for parts in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return {name: different[path] for name, path in zip(names, paths, strict=True)}
    return {str(path): different[path] for path in paths}


def few(names: Sequence[str], most: int = 10) -> str:
    """``a, b, c``; with more than `most` names, the first ones and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {plural(rest, 'other')}" if rest > 0 else "")


def first_line(err: BaseException, otherwise: str = "") -> str:
    """The first line of a library's error message, without the whole input; of an empty one, its type's name."""
    text = next(iter(str(err).splitlines()), "") or otherwise or type(err).__name__
    return text if len(text) <= 200 else f"{text[:150]} … {text[-40:]}"


def printable(text: object) -> str:
    """Foreign text with invisible characters (controls, line and direction marks, invalid bytes) escaped."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text
    )


def printable_lines(text: str) -> str:
    """As :func:`printable`, for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))
