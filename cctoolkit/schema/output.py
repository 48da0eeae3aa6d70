"""Tables out of the command line: to the terminal, or as CSV, JSON lines or Parquet to a file or a pipe."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pandas as pd

from .._support.atomic import replacing
from ..errors import ParameterError
from . import write_parquet

__all__ = ["Format", "TableOutput"]


class Format(StrEnum):
    """How a table is written."""

    table = "table"
    csv = "csv"
    jsonl = "jsonl"
    parquet = "parquet"


_SUFFIXES = {".csv": Format.csv, ".jsonl": Format.jsonl, ".ndjson": Format.jsonl, ".parquet": Format.parquet}


class TableOutput:
    """Writes one table, part by part; a file appears when the ``with`` block ends well, else not at all.

    Parameters
    ----------
    format : Format, optional
        Without it the suffix of `path` decides, and without a path it is the terminal's table.
    path : path, optional
        Without it, standard output.
    table : str
        Which of the tables of :mod:`cctoolkit.schema` this is, for Parquet.
    provenance : dict
        Stored in Parquet.

    Raises
    ------
    ParameterError
        A suffix that says no format, Parquet without a file, or a terminal table into one.
    """

    def __init__(
        self, format: Format | None, path: Path | None, table: str, provenance: dict[str, Any] | None = None
    ) -> None:
        if format is None and path is not None:
            if path.suffix.lower() not in _SUFFIXES:
                raise ParameterError(
                    f"output: {path} ends in none of {', '.join(_SUFFIXES)}; say --format csv, jsonl or parquet"
                )
            format = _SUFFIXES[path.suffix.lower()]
        self.format = format or Format.table
        self.path = path
        if self.format is Format.parquet and path is None:
            raise ParameterError("format: parquet needs a file (-o FILE.parquet)")
        if self.format is Format.table and path is not None:
            raise ParameterError("format: table is for the terminal; write csv, jsonl or parquet to a file")
        self._table = table
        self._provenance = provenance
        self._parts: list[pd.DataFrame] = []
        self._header = True
        self._stack = ExitStack()
        self._file: IO[str] = sys.stdout

    def __enter__(self) -> TableOutput:
        if self.path is not None and self.format is not Format.parquet:
            with ExitStack() as stack:
                tmp = stack.enter_context(replacing(self.path))
                self._file = stack.enter_context(tmp.open("w", encoding="utf-8", newline=""))
                self._stack = stack.pop_all()
        return self

    def write(self, part: pd.DataFrame) -> None:
        """Append rows."""
        if self.format is Format.csv:
            part.to_csv(self._file, index=False, header=self._header, lineterminator="\n")
            self._header = False
        elif self.format is Format.jsonl:
            if len(part):
                part.to_json(self._file, orient="records", lines=True)
        else:
            self._parts.append(part)

    def frame(self) -> pd.DataFrame:
        """All rows, for the terminal and Parquet."""
        return self._parts[0] if len(self._parts) == 1 else pd.concat(self._parts, ignore_index=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.format is Format.parquet:
            assert self.path is not None
            write_parquet(self.frame(), self.path, self._table, self._provenance)
        self._stack.__exit__(kind, error, trace)
