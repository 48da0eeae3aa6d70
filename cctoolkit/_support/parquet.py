"""Parquet files that record their provenance."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import SchemaError
from .atomic import replacing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["provenance_entry", "provenance_of", "read_provenance", "readable", "write"]

_KEY = b"cctoolkit.provenance"


def readable(path: str | os.PathLike[str]) -> Any:
    """A file as pyarrow and pandas read it: they take no name that is not UTF-8, so such a file is opened here."""
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
    return dict(json.loads((metadata or {}).get(_KEY, b"{}")))


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
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return provenance_of(pq.read_schema(readable(path)).metadata)
    except (pa.ArrowInvalid, OSError):
        raise SchemaError(f"{path}: not a readable Parquet file; delete it and rebuild it") from None
