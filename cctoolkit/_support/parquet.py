"""Parquet files that record their provenance. Every file is read here, so that a damaged one is one kind of error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import SchemaError
from .atomic import replacing
from .words import first_line

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "about",
    "arrow_table",
    "extremes",
    "frame",
    "provenance_entry",
    "provenance_of",
    "read",
    "read_provenance",
    "readable",
    "write",
]

_KEY = b"cctoolkit.provenance"


def readable(path: str | os.PathLike[str]) -> Any:
    """A path for pyarrow and pandas; they reject names that are not UTF-8, so such a file is opened here."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return open(path, "rb")
    return str(path)


def provenance_entry(provenance: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The metadata entry for a provenance; the same provenance gives the same bytes."""
    return {_KEY: json.dumps(dict(provenance), sort_keys=True, default=str).encode()}


def provenance_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """The provenance in a file's metadata; empty if there is none."""
    return about(metadata, _KEY) or {}


def about(metadata: Mapping[bytes, bytes] | None, key: bytes) -> dict[str, Any] | None:
    """An entry of a file's metadata that is a JSON object; None if there is none."""
    try:
        found = json.loads((metadata or {})[key])
    except (KeyError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        RecursionError,
    ) as err:
        if isinstance(err, OSError) and err.errno is not None:
            raise  # the system's own: there is no such file, or the disk fails
        raise SchemaError(f"{os.fspath(path)}: not a Parquet file, or damaged ({first_line(err)})") from None


def read(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, *, memory_map: bool = False
) -> pa.Table:
    """Read a Parquet file.

    Parameters
    ----------
    path : path
        The file.
    columns : sequence of str, optional
        All by default.
    memory_map : bool
        Map the file instead of reading it.

    Raises
    ------
    SchemaError
        The file is damaged, or is not Parquet.
    OSError
        There is no such file, or it cannot be read.
    """
    import pyarrow.parquet as pq

    with _reading(path):
        table = pq.read_table(readable(path), columns=columns, memory_map=memory_map)
        table.validate(full=True)  # of damaged pages come offsets that lead outside
        return table


def frame(table: pa.Table, path: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """The table of a file as a data frame; takes the options of :meth:`pyarrow.Table.to_pandas`.

    Raises
    ------
    SchemaError
        The file's description of its columns is damaged.
    """
    with _reading(path):
        return table.to_pandas(**options)


def arrow_table(frame: pd.DataFrame, path: str | os.PathLike[str]) -> pa.Table:
    """A data frame as an Arrow table, without its index; `path` is where it will be written.

    Raises
    ------
    SchemaError
        A column has values of several types, or of one that Parquet lacks.
    """
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as err:
        why = first_line(err)
        raise SchemaError(f"{os.fspath(path)}: a column cannot be stored as Parquet ({why})") from None


def write(
    table: pd.DataFrame | pa.Table,
    path: str | os.PathLike[str],
    provenance: Mapping[str, Any] | None = None,
    metadata: Mapping[bytes, bytes] | None = None,
) -> None:
    """Write a table with its provenance, atomically.

    Parameters
    ----------
    table : DataFrame or pyarrow.Table
        The index of a data frame is not written.
    path : path
        Output file; it appears only when complete.
    provenance : mapping, optional
        What made it (command, version, seed); anything JSON can hold.
    metadata : mapping of bytes, optional
        Further entries for the file's metadata.

    Raises
    ------
    SchemaError
        A column has values of several types, or of one that Parquet lacks.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = table if isinstance(table, pa.Table) else arrow_table(table, path)
    entries = {**(arrow.schema.metadata or {}), **(metadata or {})}
    if provenance is not None:
        entries |= provenance_entry(provenance)
    with replacing(path) as tmp, tmp.open("wb") as file:  # pyarrow takes no name that is not UTF-8
        pq.write_table(arrow.replace_schema_metadata(entries), file, compression="zstd")


def read_provenance(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the provenance of a file but not its rows.

    Raises
    ------
    SchemaError
        The file cannot be read as Parquet.
    """
    import pyarrow.parquet as pq

    try:
        with _reading(path):
            return provenance_of(pq.read_schema(readable(path)).metadata)
    except (SchemaError, OSError):
        raise SchemaError(f"{path}: not a readable Parquet file; delete it and rebuild it") from None


def extremes(path: str | os.PathLike[str]) -> list[tuple[str, int, Any, Any]]:
    """Each column's name, number of values, smallest and largest value, from the file's statistics without its rows.

    Raises
    ------
    SchemaError
        The file cannot be read as Parquet.
    """
    import pyarrow.parquet as pq

    with _reading(path):
        about = pq.read_metadata(readable(path))
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        rows = []
        for column, name in enumerate(about.schema.names):
            parts = [group.column(column).statistics for group in groups]
            ends = [end for part in parts if part and part.has_min_max for end in (part.min, part.max)]
            count = sum(part.num_values for part in parts if part)
            rows.append((name, count, min(ends, default=None), max(ends, default=None)))
        return rows
