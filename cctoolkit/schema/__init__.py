"""The tables: their columns, types and units.

Tables are a :class:`pandas.DataFrame` on the surface, a dict of numpy arrays inside, and Parquet on disk. Times are
int64 nanoseconds (``_ns``); points in time count from the Unix epoch. Sequence and acknowledgement numbers are
modulo 2**32, as on the wire.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._support import parquet
from ..errors import SchemaError

if TYPE_CHECKING:  # at run time inside functions, because the command line's help imports this module
    import numpy as np
    import pandas as pd

__all__ = [
    "CCAS",
    "FLOWS",
    "MAX_FLOWS",
    "PACKETS",
    "RANGES",
    "RTT_SAMPLES",
    "SACKS",
    "SCHEMA_VERSION",
    "SLOTS",
    "TABLES",
    "arrays",
    "check",
    "check_columns",
    "empty",
    "read_parquet",
    "write_parquet",
]

SCHEMA_VERSION = 2

#: One row per packet with an IP header, in capture order. Rows that are not TCP segments (UDP, ICMP, later fragments,
#: truncated headers) have 0 in the TCP columns and ``tcp_flags``; kernels need not look at the protocol.
PACKETS: dict[str, str] = {
    "ts_ns": "int64",  # capture time
    "flow_id": "uint32",  # row of the flows table
    "direction": "int8",  # 0: from the flow's initiator, 1: to it
    "seq": "uint32",
    "ack": "uint32",
    "tcp_flags": "uint16",  # FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128, AE 256
    "payload_bytes": "uint32",  # transport payload from the IP length, so right even if truncated by the snap length
    "wire_bytes": "uint32",  # original frame length
    "window": "uint16",  # as on the wire, unscaled
    "ecn": "uint8",  # 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE
    "dscp": "uint8",
    "ttl": "uint8",  # TTL or hop limit
    "tsval": "uint32",
    "tsecr": "uint32",
    "has_ts": "bool",  # has a (complete) TCP timestamps option
}

#: One row per SACK block; drawn in the time-sequence graph.
SACKS: dict[str, str] = {
    "packet": "int64",  # row of the packets table
    "left": "uint32",
    "right": "uint32",
}

#: One row per flow. ``_fwd`` is the direction from the initiator, ``_rev`` that to it.
FLOWS: dict[str, str] = {
    "flow_id": "uint32",
    "src": "str",  # the initiator: the sender of the SYN, else of the first packet seen
    "dst": "str",
    "sport": "uint16",
    "dport": "uint16",
    "protocol": "uint8",  # IP protocol number
    "first_ts_ns": "int64",
    "last_ts_ns": "int64",
    "packets_fwd": "int64",
    "packets_rev": "int64",
    "bytes_fwd": "int64",  # on the wire
    "bytes_rev": "int64",
    "payload_fwd": "int64",
    "payload_rev": "int64",
    "segments_fwd": "int64",  # segments with payload, SYN or FIN, which take sequence numbers
    "segments_rev": "int64",
    "retransmits_fwd": "int64",  # retransmissions among them
    "retransmits_rev": "int64",
    "retransmitted_bytes_fwd": "int64",  # retransmitted payload
    "retransmitted_bytes_rev": "int64",
    "out_of_order_fwd": "int64",  # segments overtaken on their way to the tap
    "out_of_order_rev": "int64",
    "copies_fwd": "int64",  # segments recorded twice but sent once
    "copies_rev": "int64",
    "duplicate_acks_fwd": "int64",  # duplicate ACKs sent in that direction
    "duplicate_acks_rev": "int64",
    "tshark_retransmits_fwd": "int64",  # retransmissions by tshark's definition
    "tshark_retransmits_rev": "int64",
    "tshark_out_of_order_fwd": "int64",  # out-of-order segments by tshark's definition
    "tshark_out_of_order_rev": "int64",
    "handshake_rtt_ns": "Int64",  # SYN to the initiator's ACK; null if not seen, or not certain
    "syn_rtt_ns": "Int64",  # its part from SYN to SYN/ACK: from the tap to the responder and back; also null without it
    "mss_fwd": "UInt16",  # announced in the SYN of that direction
    "mss_rev": "UInt16",
    "window_scale_fwd": "UInt8",
    "window_scale_rev": "UInt8",
    "sack_permitted": "bool",  # announced by both sides
    "is_long": "bool",  # more than `long_flow_bytes` (10 MB) on the wire in one direction
}

#: One row per sample of the round-trip time from the tap to the receiver of the data and back.
RTT_SAMPLES: dict[str, str] = {
    "ts_ns": "int64",  # time of the ACK that completes the sample
    "flow_id": "uint32",
    "direction": "int8",  # direction of the data
    "rtt_ns": "int64",
    "method": "category",
}

#: One row per flow and slot. Unobserved values are null, never 0.
SLOTS: dict[str, str] = {
    "flow_id": "uint32",
    "slot": "int64",  # index, from the first slot of the capture
    "in_bytes": "Int64",
    "out_bytes": "Int64",
    "in_packets": "Int64",
    "out_packets": "Int64",
    "in_ce_packets": "Int64",  # marked, ECN codepoint CE
    "out_ce_packets": "Int64",
    "in_seq": "Int64",
    "out_seq": "Int64",
    "cbiq_bytes": "Int64",
    "throughput_bytes": "Int64",  # O(1) estimate from sequence numbers
    "drops_estimate": "Int64",
    "max_source_gap": "Int64",  # ticks of the sender's TCP timestamp clock
    "max_arrival_gap_ns": "Int64",
    "bytes_in_flight": "Int64",
    "ecn_echoes": "Int64",  # changes of the ECN flags in acknowledgements
}

#: One row per flow: a model's prediction of its congestion control. Null if there was not enough data.
CCAS: dict[str, str] = {
    "flow_id": "uint32",
    "src": "str",
    "sport": "uint16",
    "dst": "str",
    "dport": "uint16",
    "payload_bytes": "int64",  # in the direction with more payload
    "cca": "str",  # or "unknown"
    "probability": "float64",
    "limited_by": "str",  # what limits the flow: a name in cctoolkit.analysis.limits.LIMITS
    "windows": "int64",  # number of windows
    "window_ms": "float64",
    "feature_set": "str",  # what was seen of the flow
    "model": "str",
}

#: All tables by name.
TABLES: dict[str, dict[str, str]] = {
    "packets": PACKETS,
    "sacks": SACKS,
    "flows": FLOWS,
    "rtt_samples": RTT_SAMPLES,
    "slots": SLOTS,
    "ccas": CCAS,
}

#: Columns that files of earlier versions lack; null there.
_LATER = {"flows": ("syn_rtt_ns",), "slots": ("in_ce_packets", "out_ce_packets", "ecn_echoes")}

#: Flows that a table from outside can number. What counts by flow makes its state lazily: a large number costs address
#: space, and some hundred MB where a result is looked for. A Capture, whose keys vouch for its numbers, has no limit.
MAX_FLOWS = 1 << 25
#: Columns that index arrays, by table: the smallest value, and the first that is too large.
RANGES: dict[str, dict[str, tuple[int, int]]] = {
    "packets": {"flow_id": (0, MAX_FLOWS), "direction": (0, 2), "ecn": (0, 4)},
    "sacks": {"packet": (0, 1 << 40)},
    "rtt_samples": {"direction": (0, 2)},
}

_KEY_SCHEMA = b"cctoolkit.schema"


def _columns(table: str) -> dict[str, str]:
    try:
        return TABLES[table]
    except KeyError:
        raise SchemaError(f"no table {table!r}; expected one of {', '.join(TABLES)}") from None


def empty(table: str) -> pd.DataFrame:
    """Make a table without rows, with all columns of the right type.

    Parameters
    ----------
    table : str
        A name in :data:`TABLES`.

    Returns
    -------
    DataFrame
        The table.

    See Also
    --------
    check : check a table

    Examples
    --------
    >>> list(cct.schema.empty("sacks"))
    ['packet', 'left', 'right']
    """
    import pandas as pd

    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in _columns(table).items()})


def check(df: pd.DataFrame, table: str) -> pd.DataFrame:
    """Check the columns of a table, their types, and the ranges of those that index arrays (:data:`RANGES`).

    Parameters
    ----------
    df : DataFrame
        What to check. Further columns are allowed.
    table : str
        A name in :data:`TABLES`.

    Returns
    -------
    DataFrame
        `df`, unchanged.

    Raises
    ------
    SchemaError
        A column is missing, has the wrong type or a value out of range; the text names the first one.

    See Also
    --------
    arrays : check a table and get its columns as arrays

    Examples
    --------
    >>> packets = cct.example("mixed").ingress.packets
    >>> cct.schema.check(packets, "packets") is packets
    True
    >>> cct.schema.check(packets.drop(columns="ttl"), "packets")
    Traceback (most recent call last):
    cctoolkit.errors.SchemaError: packets table: column 'ttl' is missing (expected uint8)
    """
    import pandas as pd

    if not isinstance(df, pd.DataFrame):
        raise SchemaError(f"{table} table: expected a DataFrame, found {type(df).__name__}")
    for name, dtype in _columns(table).items():
        there = int((df.columns == name).sum())
        if there != 1:
            wrong = "is missing" if not there else "is there twice"
            raise SchemaError(f"{table} table: column {name!r} {wrong} (expected {dtype})")
        found = df[name].dtype
        if dtype in ("str", "category"):
            if dtype == "str" and not pd.api.types.is_string_dtype(found):
                raise SchemaError(f"{table} table: column {name!r} is {found}, expected text")
        elif str(found) != dtype:
            raise SchemaError(f"{table} table: column {name!r} is {found}, expected {dtype}")
    for name in RANGES.get(table, {}):
        _check_range(df[name].to_numpy(), name, table)
    return df


def check_columns(columns: Mapping[str, np.ndarray], table: str, *, numbered: bool = False) -> None:
    """Check a table that is a mapping of arrays, as :func:`check` does a DataFrame.

    Parameters
    ----------
    columns : mapping of str to array
        The numeric columns; further ones are allowed.
    table : str
        A name in :data:`TABLES`.
    numbered : bool
        Flows are known to be numbered from 0, so that their numbers need no limit.

    Raises
    ------
    SchemaError
        A column is missing, has the wrong type, a different length, or a value out of range; the text names
        the first one.

    See Also
    --------
    check : check a DataFrame

    Examples
    --------
    >>> cap = cct.example("mixed").ingress
    >>> cct.schema.check_columns(cap.columns, "packets")
    >>> cct.schema.check_columns({**cap.columns, "direction": cap.columns["direction"] + 2}, "packets")
    Traceback (most recent call last):
    cctoolkit.errors.SchemaError: packets table: row 0: direction is 2, expected 0 to 1
    """
    import numpy as np

    rows: int | None = None
    if not isinstance(columns, Mapping):
        raise SchemaError(f"{table} table: expected columns by name, found {type(columns).__name__}")
    for name, dtype in _columns(table).items():
        if dtype in ("str", "category"):
            continue
        column = columns.get(name)
        if column is None:
            raise SchemaError(f"{table} table: column {name!r} is missing (expected {dtype})")
        if not isinstance(column, np.ndarray) or str(column.dtype) != dtype:
            found = column.dtype if isinstance(column, np.ndarray) else type(column).__name__
            raise SchemaError(f"{table} table: column {name!r} is {found}, expected {dtype}")
        if rows is None:
            rows = column.size
        if column.shape != (rows,):
            raise SchemaError(
                f"{table} table: column {name!r} has the shape {column.shape}, expected ({rows},)"
            )
    for name in RANGES.get(table, {}):
        if not (numbered and name == "flow_id"):
            _check_range(columns[name], name, table)


def _check_range(values: np.ndarray, name: str, table: str) -> None:
    low, high = RANGES[table][name]
    if not len(values) or (values.min() >= low and values.max() < high):
        return
    row = int(((values < low) | (values >= high)).argmax())
    raise SchemaError(f"{table} table: row {row}: {name} is {values[row]}, expected {low} to {high - 1}")


def arrays(df: pd.DataFrame, table: str) -> dict[str, np.ndarray]:
    """Convert the numeric columns of a table to contiguous numpy arrays for a kernel, without a copy if possible.

    Parameters
    ----------
    df : DataFrame
        The table.
    table : str
        A name in :data:`TABLES`.

    Returns
    -------
    dict of str to array
        Columns by name, without text columns.

    Raises
    ------
    SchemaError
        The table is not valid (:func:`check`).

    See Also
    --------
    check : check a table

    Examples
    --------
    >>> columns = cct.schema.arrays(cct.example("mixed").ingress.packets, "packets")
    >>> columns["ttl"].dtype, len(columns["ttl"])
    (dtype('uint8'), 27657)
    """
    import numpy as np

    check(df, table)
    return {
        name: np.ascontiguousarray(df[name].to_numpy())
        for name, dtype in _columns(table).items()
        if dtype not in ("str", "category")
    }


def write_parquet(
    df: pd.DataFrame, path: str | os.PathLike[str], table: str, provenance: Mapping[str, Any] | None = None
) -> None:
    """Write a table as Parquet with schema version and provenance, atomically.

    Parameters
    ----------
    df : DataFrame
        The table.
    path : path
        File to write; it appears only when complete.
    table : str
        A name in :data:`TABLES`.
    provenance : mapping, optional
        What made the table (command, versions, sha256 of the input, seed); anything JSON can hold.

    Raises
    ------
    SchemaError
        A column is missing or has the wrong type.

    See Also
    --------
    read_parquet : the way back

    Examples
    --------
    >>> flows = cct.example("mixed").ingress.flows
    >>> cct.schema.write_parquet(flows, "flows.parquet", "flows", {"command": "a notebook"})
    >>> table, provenance = cct.schema.read_parquet("flows.parquet", "flows")
    >>> len(table) == len(flows), provenance
    (True, {'command': 'a notebook'})
    """
    check(df, table)
    parquet.write(
        df, path, provenance, {_KEY_SCHEMA: json.dumps({"table": table, "version": SCHEMA_VERSION}).encode()}
    )


def read_parquet(path: str | os.PathLike[str], table: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read a table written by :func:`write_parquet`.

    Parameters
    ----------
    path : path
        The file.
    table : str
        A name in :data:`TABLES`.

    Returns
    -------
    df : DataFrame
        The table.
    provenance : dict
        What made it.

    Raises
    ------
    SchemaError
        The file is not Parquet, or has another table or schema version.

    See Also
    --------
    write_parquet : write a table

    Examples
    --------
    >>> cct.schema.write_parquet(cct.schema.empty("flows"), "flows.parquet", "flows")
    >>> cct.schema.read_parquet("flows.parquet", "packets")
    Traceback (most recent call last):
    cctoolkit.errors.SchemaError: flows.parquet: holds the flows table, expected packets
    """
    import pandas as pd

    arrow = parquet.read(path)
    meta = arrow.schema.metadata or {}
    found = parquet.about(meta, _KEY_SCHEMA)
    if found is None or not {"table", "version"} <= set(found):
        raise SchemaError(f"{os.fspath(path)}: Parquet, but not a cctoolkit table")
    if found["table"] != table:
        raise SchemaError(f"{os.fspath(path)}: holds the {found['table']} table, expected {table}")
    if found["version"] != SCHEMA_VERSION:
        raise SchemaError(
            f"{os.fspath(path)}: schema version {found['version']}, this package reads version {SCHEMA_VERSION}"
        )
    frame = parquet.frame(arrow, path)
    for name in _LATER.get(table, ()):
        if name not in frame:
            frame[name] = pd.Series(pd.NA, frame.index, "Int64")
    return check(frame, table), parquet.provenance_of(meta)
