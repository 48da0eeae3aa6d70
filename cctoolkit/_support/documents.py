"""Small files from others, read whole: any fault is one line that names the file."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ..errors import CCToolkitError, ParameterError, SchemaError
from .words import first_line, format_bytes

__all__ = ["parsed", "read_file", "read_json", "read_toml"]

#: A scenario of half a million flows, each with a table of its own.
MOST_BYTES = 1 << 26
#: Levels of tables and lists; scenarios have four.
MOST_LEVELS = 32


def read_file(
    path: str | os.PathLike[str],
    most_bytes: int = MOST_BYTES,
    error: type[CCToolkitError] = SchemaError,
) -> bytes:
    """The content of a regular file.

    Parameters
    ----------
    path : path
        The file.
    most_bytes : int
        A larger file is refused before it is read.
    error : type
        Raised if the file is not there, cannot be read, is a folder, a pipe or a device, or is too large.
    """
    path = os.fspath(path)
    try:
        about = os.stat(path)  # before opening, which waits at a pipe
        if not stat.S_ISREG(about.st_mode):
            raise error(f"{path}: not a regular file")
        if about.st_size > most_bytes:
            raise error(f"{path}: {format_bytes(about.st_size)}, expected at most {format_bytes(most_bytes)}")
        with open(path, "rb") as file:
            return file.read(most_bytes)
    except OSError as err:
        raise error(f"{path}: {err.strerror or err}") from None


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises
    ------
    ParameterError
        The file cannot be read, or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            return parsed(_shallow_toml, file.read(MOST_BYTES + 1))
    except OSError as err:
        raise ParameterError(f"{os.fspath(path)}: {err.strerror}") from None
    except ValueError as err:
        raise ParameterError(f"{os.fspath(path)}: not TOML: {err}") from None


def read_json(
    path: str | os.PathLike[str],
    what: str = "",
    error: type[CCToolkitError] = SchemaError,
    most_bytes: int = MOST_BYTES,
) -> dict[str, Any]:
    """The object in a JSON file, which must not have ``NaN`` or ``Infinity`` (RFC 8259).

    Parameters
    ----------
    path : path
        The file.
    what : str
        What the file should be, for the error.
    error : type
        Raised if the file cannot be read (:func:`read_file`), or is not JSON, or not an object.
    most_bytes : int
        A larger file is refused before it is read.
    """
    content = read_file(path, most_bytes, error)
    try:
        return parsed(_strict_json, content)
    except ValueError as err:
        raise error(f"{os.fspath(path)}: not {what or 'a JSON object'}: {err}") from None


#: Strings and comments, in which a dot means nothing; they end with the text, if not before.
_QUOTED = re.compile(
    r"""
    \"{3} [^"\\]*+ (?: (?: \\. | "(?!"") ) [^"\\]*+ )*+ (?: \"{3} | \Z )
    | '{3} .*? (?: '{3} | \Z )
    | " [^"\\\n]*+ (?: \\. [^"\\\n]*+ )*+ "?
    | ' [^'\n]* '?
    | \# [^\n]*
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"[\w-]+")
_LONG_KEY = re.compile(rf"(?:w\.){{{MOST_LEVELS}}}")


def _shallow_toml(text: str) -> dict[str, Any]:
    """TOML without keys of many parts (``a.a.a…``): tomllib's time grows with the square of their number."""
    words = _WORD.sub("w", _QUOTED.sub("w", text)).replace(" ", "").replace("\t", "")
    if _LONG_KEY.search(words):
        raise ValueError(_DEEP)
    return tomllib.loads(text)


def _strict_json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def parsed(parser: Callable[[str], Any], content: bytes) -> dict[str, Any]:
    """Parse UTF-8 text.

    Raises
    ------
    ValueError
        It is too large, nested too deeply, invalid, or not a table; the text is one line.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    try:
        found = parser(content.decode("utf-8"))
    except RecursionError:
        raise ValueError(_DEEP) from None
    except ValueError as err:
        raise ValueError(first_line(err, "invalid")) from None
    if not isinstance(found, Mapping):
        raise ValueError(f"{type(found).__name__} instead of a table")
    _check_depth(found)
    return dict(found)


_DEEP = f"nested deeper than {MOST_LEVELS} levels"


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS):
        inside = (v.values() if isinstance(v, Mapping) else v for v in level)
        level = [x for values in inside for x in values if isinstance(x, Mapping | list)]
        if not level:
            return
    raise ValueError(_DEEP)
