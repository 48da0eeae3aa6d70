"""Reading files of other people that belong into memory: no more than expected, and nothing that never ends."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from ..errors import SchemaError
from .words import format_bytes

__all__ = ["read_file", "read_json"]


def read_file(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The content of a regular file.

    Raises
    ------
    SchemaError
        It is not there, cannot be read, is a folder, a pipe or a device, or is larger than `most_bytes`.
    """
    path = Path(path)
    try:
        about = path.stat()  # before opening, which waits at a pipe
        if not stat.S_ISREG(about.st_mode):
            raise SchemaError(f"{path}: not a regular file")
        if about.st_size > most_bytes:
            raise SchemaError(
                f"{path}: {format_bytes(about.st_size)}, expected at most {format_bytes(most_bytes)}"
            )
        with path.open("rb") as file:
            return file.read(most_bytes)
    except OSError as err:
        raise SchemaError(f"{path}: cannot be read: {err.strerror or err}") from None


def read_json(path: str | os.PathLike[str], most_bytes: int) -> Any:
    """The content of a JSON file, which must not have ``NaN`` or ``Infinity`` (RFC 8259).

    Raises
    ------
    SchemaError
        As :func:`read_file`; or it is not JSON.
    """
    try:
        return json.loads(read_file(path, most_bytes).decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as err:
        why = "nested too deeply" if isinstance(err, RecursionError) else str(err)
        raise SchemaError(f"{path}: not JSON: {why}") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
