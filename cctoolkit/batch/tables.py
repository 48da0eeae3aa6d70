"""The tables of a dataset, in files whose bytes depend only on the rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .._support.parquet import provenance_entry
from ..schema import FLOWS, SCHEMA_VERSION, SLOTS

__all__ = ["TABLES", "TableWriter"]

_RTT = {
    "flow_id": "uint32",
    "direction": "int8",  # of the data
    "samples": "int64",
    "rtt_min_ns": "int64",
    "rtt_median_ns": "int64",
    "rtt_p95_ns": "int64",
    "rtt_max_ns": "int64",
}
#: Counts of all packets with an IP header. Seconds count from the first packet of the capture.
_SECONDS = {
    "second": "int64",
    "start_ns": "int64",  # start of the second
    "packets": "int64",
    "bytes": "int64",  # on the wire
    "payload_bytes": "int64",
    "tcp_packets": "int64",
    "tcp_bytes": "int64",
    "udp_packets": "int64",
    "udp_bytes": "int64",
    "ect_packets": "int64",  # ECT(0), ECT(1) or CE
    "ce_packets": "int64",
    "syns": "int64",  # without ACK
    "resets": "int64",
    "new_flows": "int64",
}
#: Rates of long flows.
_RATES = {
    "flow_id": "uint32",
    "direction": "int8",
    "second": "int64",
    "packets": "int64",
    "bytes": "int64",
    "goodput_bytes": "int64",
    "rtt_samples": "int64",  # samples for data in this direction
    "rtt_min_ns": "Int64",
    "rtt_mean_ns": "Int64",
}
_CAPTURES = {
    "name": "str",
    "sha256": "str",
    "format": "str",
    "compression": "str",
    "truncated": "bool",
    "notes": "str",
    "frames": "int64",
    "packets": "int64",
    "wire_bytes": "int64",
    "captured_bytes": "int64",
    "dropped": "Int64",
    "first_ts_ns": "int64",
    "last_ts_ns": "int64",
    "flows": "int64",
    "long_flows": "int64",
}
_CCA = {
    "flow_id": "uint32",
    "cca": "str",  # or "unknown"; null if the flow was too short
    "probability": "float64",
    "limited_by": "str",  # a name in cctoolkit.analysis.limits.LIMITS
    "windows": "int64",  # number of windows
    "window_ms": "float64",
    "feature_set": "str",  # what was seen of the flow
}

#: Columns and types by table. ``captures`` has one row per capture, ``seconds`` one per second; the others are by
#: flow.
TABLES: dict[str, dict[str, str]] = {
    "captures": _CAPTURES,
    "flows": dict(FLOWS),
    "rtt": _RTT,
    "seconds": _SECONDS,
    "rates": _RATES,
    "slots": dict(SLOTS),
    "cca": _CCA,
}

_GROUP_ROWS = 1 << 17


class TableWriter:
    """Writes a Parquet file part by part; it appears only if the ``with`` block ends without an error.

    Row groups have a fixed length, so the file does not depend on how the rows are divided into parts.

    Parameters
    ----------
    path : path
        File to write.
    table : str
        A name in :data:`TABLES`.
    provenance : mapping
        Anything JSON can hold that does not change when the computation is repeated.
    """

    def __init__(self, path: str | os.PathLike[str], table: str, provenance: Mapping[str, Any]) -> None:
        import pyarrow as pa

        self.rows = 0
        self._path = path
        self._columns = TABLES[table]
        self._waiting: list[pd.DataFrame] = []
        self._waiting_rows = 0
        self._stack = ExitStack()
        self._writer: Any = None
        template = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in self._columns.items()})
        types = {"str": pa.string(), "bool": pa.bool_()}
        bare = pa.schema(
            [
                (name, types.get(dtype) or pa.from_numpy_dtype(np.dtype(dtype.lower())))
                for name, dtype in self._columns.items()
            ]
        )
        metadata = pa.Table.from_pandas(template, schema=bare, preserve_index=False).schema.metadata
        self._schema = bare.with_metadata(
            {
                **metadata,
                b"cctoolkit.schema": json.dumps({"table": table, "version": SCHEMA_VERSION}).encode(),
                **provenance_entry(provenance),
            }
        )

    def __enter__(self) -> TableWriter:
        import pyarrow.parquet as pq

        with ExitStack() as stack:
            tmp = stack.enter_context(replacing(self._path))
            file = stack.enter_context(tmp.open("wb"))
            self._writer = stack.enter_context(pq.ParquetWriter(file, self._schema, compression="zstd"))
            self._stack = stack.pop_all()
        return self

    def write(self, rows: pd.DataFrame) -> None:
        """Append rows, casting columns to the types of the table."""
        self.rows += len(rows)
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        while self._waiting_rows >= _GROUP_ROWS:
            self._flush(_GROUP_ROWS)

    def _flush(self, rows: int) -> None:
        import pyarrow as pa

        frame = self._waiting[0] if len(self._waiting) == 1 else pd.concat(self._waiting, ignore_index=True)
        self._waiting = [frame.iloc[rows:]]
        self._waiting_rows = len(frame) - rows
        # text is not cast: None would become a word
        types = {name: dtype for name, dtype in self._columns.items() if dtype != "str"}
        group = frame.iloc[:rows][list(self._columns)].astype(types)
        table = pa.Table.from_pandas(group, schema=self._schema, preserve_index=False)
        self._writer.write_table(table, row_group_size=_GROUP_ROWS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._waiting_rows:
                self._flush(self._waiting_rows)
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._stack.__exit__(kind, error, trace)
