"""Output of tables by commands: to the terminal, or as CSV, JSON lines or Parquet to a file or a pipe.

The options for it are declared here too.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, nullcontext
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from .._support.atomic import check_target, replacing
from .._support.csv import write_csv
from .._support.terminal import is_standard_output, printing
from .._support.version import __version__
from ..errors import ParameterError
from . import write_parquet

if TYPE_CHECKING:  # the help of every command imports this module
    import pandas as pd

__all__ = ["Format", "FormatOption", "OutputFileOption", "TableOutput", "command_provenance", "names_table"]


class Format(StrEnum):
    """How a table is written."""

    table = "table"
    csv = "csv"
    jsonl = "jsonl"
    parquet = "parquet"


FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="Output format.", show_default="by FILE's suffix, else table"),
]
OutputFileOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to a .csv, .jsonl or .parquet file; - is standard output.",
    ),
]

_SUFFIXES = {".csv": Format.csv, ".jsonl": Format.jsonl, ".ndjson": Format.jsonl, ".parquet": Format.parquet}


def names_table(path: Path) -> bool:
    """Whether the suffix of a file is that of a table."""
    return path.suffix.lower() in _SUFFIXES


def command_provenance(source: str) -> dict[str, Any]:
    """Provenance of a file: this command line, this version, and the capture (or other source)."""
    return {"command": ["cct", *sys.argv[1:]], "version": __version__, "capture": source}


class TableOutput:
    """Writes one table part by part; a file appears only if the ``with`` block ends without an error.

    Parameters
    ----------
    format : Format, optional
        By default the suffix of `path` decides; without a path it is a table for the terminal.
    path : path, optional
        Standard output, also named ``-``, by default.
    table : str
        The name in :data:`cctoolkit.schema.TABLES`, for Parquet.
    provenance : dict
        Stored in Parquet.

    Raises
    ------
    ParameterError
        The suffix names no format, Parquet has no file, or a terminal table has one.
    """

    def __init__(
        self, format: Format | None, path: Path | None, table: str, provenance: dict[str, Any] | None = None
    ) -> None:
        if is_standard_output(path) and format is not Format.parquet:
            path = None
        if format is None and path is not None:
            if not names_table(path):
                raise ParameterError(
                    f"output: {path} must end in {', '.join(_SUFFIXES)} (or give --format csv, jsonl or parquet)"
                )
            format = _SUFFIXES[path.suffix.lower()]
        self.format = format or Format.table
        self.path = path
        if self.format is Format.parquet and path is None:
            raise ParameterError(
                "format: parquet needs a file (-o FILE.parquet, or -o - for standard output)"
            )
        if self.format is Format.table and path is not None:
            raise ParameterError("format: table is for the terminal; write csv, jsonl or parquet to a file")
        self._table = table
        self._provenance = provenance
        self._parts: list[pd.DataFrame] = []
        self._header = True
        self.rows = 0  # written so far
        self._stack = ExitStack()
        self._file: IO[str] = sys.stdout

    def __enter__(self) -> TableOutput:
        check_target(self.path, or_standard_output=True)
        if self.path is not None and self.format is not Format.parquet:
            with ExitStack() as stack:
                tmp = stack.enter_context(replacing(self.path))
                self._file = stack.enter_context(tmp.open("w", encoding="utf-8", newline=""))
                self._stack = stack.pop_all()
        return self

    def write(self, part: pd.DataFrame) -> None:
        """Append rows."""
        self.rows += len(part)
        with printing() if self.path is None else nullcontext():
            self._write(part)

    def _write(self, part: pd.DataFrame) -> None:
        if self.format is Format.csv:
            write_csv(part, self._file, header=self._header)
            self._header = False
        elif self.format is Format.jsonl:
            if len(part):
                part.to_json(self._file, orient="records", lines=True)
        else:
            self._parts.append(part)

    def frame(self) -> pd.DataFrame:
        """All rows, for the terminal and Parquet."""
        import pandas as pd

        return self._parts[0] if len(self._parts) == 1 else pd.concat(self._parts, ignore_index=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.format is Format.parquet:
            assert self.path is not None
            write_parquet(self.frame(), self.path, self._table, self._provenance)
        self._stack.__exit__(kind, error, trace)
