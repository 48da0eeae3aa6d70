"""Parquet files that say where they come from: one writer, one place for provenance."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SchemaError
from .atomic import replacing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["provenance_entry", "provenance_of", "read_provenance", "write"]

_KEY = b"cctoolkit.provenance"


def provenance_entry(provenance: Mapping[str, Any]) -> dict[bytes, bytes]:
    """What goes into a file's metadata: the same bytes for the same provenance."""
    return {_KEY: json.dumps(dict(provenance), sort_keys=True, default=str).encode()}


def provenance_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """The provenance in a file's metadata; empty without one."""
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
        A data frame's index is not written.
    path : path
        Appears only when complete.
    provenance : mapping, optional
        What made it (command, version, seed); anything JSON can hold.
    metadata : mapping of bytes, optional
        More entries for the file's metadata.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
    entries = {**(arrow.schema.metadata or {}), **(metadata or {})}
    if provenance is not None:
        entries |= provenance_entry(provenance)
    with replacing(path) as tmp:
        pq.write_table(arrow.replace_schema_metadata(entries), tmp, compression="zstd")


def read_provenance(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The provenance of a file, without reading its rows.

    Raises
    ------
    SchemaError
        The file cannot be read as Parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return provenance_of(pq.read_schema(Path(path)).metadata)
    except (pa.ArrowInvalid, OSError):
        raise SchemaError(f"{path}: cannot be read; remove it and build again") from None
