"""The tables: checks, arrays, Parquet with provenance, and files that appear whole or not at all."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cctoolkit import schema
from cctoolkit._support.atomic import replacing
from cctoolkit.errors import CaptureFormatError, SchemaError


@pytest.mark.parametrize("table", list(schema.TABLES))
def test_an_empty_table_is_that_table(table: str) -> None:
    df = schema.empty(table)
    assert list(df.columns) == list(schema.TABLES[table])
    assert schema.check(df, table) is df
    assert len(df) == 0


def test_check_names_what_is_missing_or_wrong() -> None:
    df = schema.empty("packets")
    with pytest.raises(SchemaError, match=r"packets table: column 'seq' is missing \(expected uint32\)"):
        schema.check(df.drop(columns="seq"), "packets")
    with pytest.raises(SchemaError, match="column 'seq' is float64, expected uint32"):
        schema.check(df.astype({"seq": "float64"}), "packets")
    with pytest.raises(SchemaError, match="no table 'nothing'"):
        schema.check(df, "nothing")
    schema.check(df.assign(mine=1), "packets")  # extra columns are the user's own


def test_arrays_are_contiguous_and_of_the_schemas_types() -> None:
    df = schema.empty("packets").reindex(range(4)).fillna(0).astype(dict(schema.PACKETS))
    for name, column in schema.arrays(df, "packets").items():
        assert column.flags.c_contiguous
        assert str(column.dtype) == schema.PACKETS[name]


@pytest.mark.parametrize("table", list(schema.TABLES))
def test_parquet_round_trip(table: str, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    schema.write_parquet(schema.empty(table), path, table, {"seed": 7, "path": Path("x")})
    df, provenance = schema.read_parquet(path, table)
    assert list(df.columns) == list(schema.TABLES[table])
    assert provenance == {"seed": 7, "path": "x"}
    assert json.loads(pq.read_schema(path).metadata[b"cctoolkit.schema"])["version"] == schema.SCHEMA_VERSION


def test_columns_added_since_a_file_was_written_are_null(tmp_path: Path) -> None:
    path = tmp_path / "slots.parquet"
    rows = schema.empty("slots").reindex(range(2)).fillna(0).astype(dict(schema.SLOTS))
    schema.write_parquet(rows, path, "slots", {"seed": 7})
    old = pq.read_table(path)
    pq.write_table(old.drop_columns(["in_ce_packets", "out_ce_packets", "ecn_echoes"]), path)
    df, provenance = schema.read_parquet(path, "slots")
    assert df.ecn_echoes.isna().all() and (df.in_bytes == 0).all() and provenance == {"seed": 7}
    pq.write_table(old.drop_columns(["in_bytes"]), path)
    with pytest.raises(SchemaError, match="'in_bytes' is missing"):
        schema.read_parquet(path, "slots")


def test_foreign_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(SchemaError, match="not a cctoolkit table"):
        schema.read_parquet(path, "packets")
    schema.write_parquet(schema.empty("flows"), path, "flows")
    with pytest.raises(SchemaError, match="holds the flows table, expected packets"):
        schema.read_parquet(path, "packets")
    arrow = pa.table({"a": np.arange(3)}).replace_schema_metadata(
        {b"cctoolkit.schema": json.dumps({"table": "flows", "version": 99}).encode()}
    )
    pq.write_table(arrow, path)
    with pytest.raises(
        SchemaError, match=f"schema version 99, this package reads version {schema.SCHEMA_VERSION}"
    ):
        schema.read_parquet(path, "flows")
    path.write_bytes(b"no parquet at all")
    with pytest.raises(SchemaError, match="not a Parquet file"):
        schema.read_parquet(path, "flows")


def test_replacing_keeps_the_old_file_on_failure(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with replacing(path) as tmp:
        tmp.write_text("old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), replacing(path) as tmp:
            tmp.write_text("half")
            raise error
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_killed_writer_leaves_no_half_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    code = f"""
        import os, signal
        from pathlib import Path
        from cctoolkit._support.atomic import replacing
        with replacing({str(path)!r}) as tmp:
            tmp.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == -9
    assert not path.exists()


def test_capture_format_error_survives_pickling() -> None:
    """Workers send their errors home as pickles."""
    error = pickle.loads(pickle.dumps(CaptureFormatError("a.pcap", 24, "a packet")))
    assert str(error) == "a.pcap: byte 24: a packet"
    assert (error.path, error.offset, error.expected) == ("a.pcap", 24, "a packet")
