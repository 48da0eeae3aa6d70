"""The tables: which columns they have, of which type, in which unit.

Every table is a :class:`pandas.DataFrame` at the surface and a dict of numpy arrays inside; on disk it is
Parquet. Time is int64 nanoseconds (``_ns``), since the Unix epoch where it is a point in time. Sequence
and acknowledgement numbers are modulo 2**32, as on the wire.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._support import parquet
from ..errors import SchemaError

if TYPE_CHECKING:  # at run time inside functions: the command line's help imports this module
    import numpy as np
    import pandas as pd

__all__ = [
    "CCAS",
    "FLOWS",
    "PACKETS",
    "RTT_SAMPLES",
    "SACKS",
    "SCHEMA_VERSION",
    "SLOTS",
    "TABLES",
    "arrays",
    "check",
    "empty",
    "read_parquet",
    "write_parquet",
]

SCHEMA_VERSION = 2

#: One row a packet with an IP header, in capture order. Rows that are not TCP segments (UDP, ICMP, later
#: fragments, headers cut short) have the TCP columns 0 and ``tcp_flags`` 0; no kernel looks at the protocol.
PACKETS: dict[str, str] = {
    "ts_ns": "int64",  # capture time
    "flow_id": "uint32",  # row of the flows table
    "direction": "int8",  # 0 = from the flow's initiator, 1 = to it
    "seq": "uint32",
    "ack": "uint32",
    "tcp_flags": "uint16",  # FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128, AE 256
    "payload_bytes": "uint32",  # of the transport, from the IP length: right even when the snap length cut it
    "wire_bytes": "uint32",  # original frame length
    "window": "uint16",  # as on the wire, not scaled
    "ecn": "uint8",  # 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE
    "dscp": "uint8",
    "ttl": "uint8",  # or hop limit
    "tsval": "uint32",
    "tsecr": "uint32",
    "has_ts": "bool",  # the TCP timestamps option was there (and whole)
}

#: One row a SACK block; the time-sequence graph draws them.
SACKS: dict[str, str] = {
    "packet": "int64",  # row of the packets table
    "left": "uint32",
    "right": "uint32",
}

#: One row a flow. ``_fwd`` is the direction from the initiator, ``_rev`` the one to it.
FLOWS: dict[str, str] = {
    "flow_id": "uint32",
    "src": "str",  # the initiator: who sent the SYN, else who sent the first packet seen
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
    "segments_fwd": "int64",  # sent that take sequence numbers: payload, SYN or FIN
    "segments_rev": "int64",
    "retransmits_fwd": "int64",  # of those, sent again
    "retransmits_rev": "int64",
    "retransmitted_bytes_fwd": "int64",  # payload sent again
    "retransmitted_bytes_rev": "int64",
    "out_of_order_fwd": "int64",  # segments overtaken on their way to the tap
    "out_of_order_rev": "int64",
    "copies_fwd": "int64",  # segments recorded twice, not sent twice
    "copies_rev": "int64",
    "duplicate_acks_fwd": "int64",  # duplicate ACKs sent in that direction
    "duplicate_acks_rev": "int64",
    "tshark_retransmits_fwd": "int64",  # what tshark calls a retransmission
    "tshark_retransmits_rev": "int64",
    "tshark_out_of_order_fwd": "int64",  # and out of order
    "tshark_out_of_order_rev": "int64",
    "handshake_rtt_ns": "Int64",  # SYN to the initiator's first ACK; null when the handshake was not seen
    "mss_fwd": "UInt16",  # announced in the SYN of that direction
    "mss_rev": "UInt16",
    "window_scale_fwd": "UInt8",
    "window_scale_rev": "UInt8",
    "sack_permitted": "bool",  # announced by both sides
    "is_long": "bool",  # more than `long_flow_bytes` (10 MB) on the wire in one direction
}

#: One row a sample of the round-trip time from the tap to the receiver of the data and back.
RTT_SAMPLES: dict[str, str] = {
    "ts_ns": "int64",  # of the ACK that completes the sample
    "flow_id": "uint32",
    "direction": "int8",  # of the data
    "rtt_ns": "int64",
    "method": "category",
}

#: One row a slot of a flow. What was not observed is null, never 0.
SLOTS: dict[str, str] = {
    "flow_id": "uint32",
    "slot": "int64",  # index from the capture's first slot
    "in_bytes": "Int64",
    "out_bytes": "Int64",
    "in_packets": "Int64",
    "out_packets": "Int64",
    "in_seq": "Int64",
    "out_seq": "Int64",
    "cbiq_bytes": "Int64",
    "throughput_bytes": "Int64",  # the O(1) form, from sequence numbers
    "drops_estimate": "Int64",
    "max_source_gap": "Int64",  # ticks of the sender's TCP timestamp clock
    "max_arrival_gap_ns": "Int64",
    "bytes_in_flight": "Int64",
}

#: One row a flow: what a model says of its congestion control. Null where it was not told enough.
CCAS: dict[str, str] = {
    "flow_id": "uint32",
    "src": "str",
    "sport": "uint16",
    "dst": "str",
    "dport": "uint16",
    "payload_bytes": "int64",  # in the direction with more
    "cca": "str",  # or "unknown"
    "probability": "float64",
    "windows": "int64",  # of how many windows
    "window_ms": "float64",
    "feature_set": "str",  # what was seen of the flow
    "model": "str",
}

#: The tables by name.
TABLES: dict[str, dict[str, str]] = {
    "packets": PACKETS,
    "sacks": SACKS,
    "flows": FLOWS,
    "rtt_samples": RTT_SAMPLES,
    "slots": SLOTS,
    "ccas": CCAS,
}

_KEY_SCHEMA = b"cctoolkit.schema"


def _columns(table: str) -> dict[str, str]:
    try:
        return TABLES[table]
    except KeyError:
        raise SchemaError(f"no table {table!r}; there are {', '.join(TABLES)}") from None


def empty(table: str) -> pd.DataFrame:
    """A table without rows, all columns of the right type."""
    import pandas as pd

    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in _columns(table).items()})


def check(df: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return `df` unchanged if it is a `table`, else raise.

    Extra columns are allowed: a table may be joined with one's own.

    Raises
    ------
    SchemaError
        Names the first column that is missing or of another type.
    """
    import pandas as pd

    for name, dtype in _columns(table).items():
        if name not in df.columns:
            raise SchemaError(f"{table} table: column {name!r} is missing (expected {dtype})")
        found = df[name].dtype
        if dtype in ("str", "category"):
            if dtype == "str" and not pd.api.types.is_string_dtype(found):
                raise SchemaError(f"{table} table: column {name!r} is {found}, expected text")
        elif str(found) != dtype:
            raise SchemaError(f"{table} table: column {name!r} is {found}, expected {dtype}")
    return df


def arrays(df: pd.DataFrame, table: str) -> dict[str, np.ndarray]:
    """The columns of a table as contiguous numpy arrays, ready for a kernel (no copy where possible)."""
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
    path : path
        Appears only when complete: the data goes to a temporary file beside it, then is renamed.
    table : str
        A name in :data:`TABLES`.
    provenance : mapping, optional
        What made it (command, versions, input sha256, seed); anything JSON can hold.
    """
    check(df, table)
    parquet.write(
        df, path, provenance, {_KEY_SCHEMA: json.dumps({"table": table, "version": SCHEMA_VERSION}).encode()}
    )


def read_parquet(path: str | os.PathLike[str], table: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read a table written by :func:`write_parquet`; return it with its provenance.

    Raises
    ------
    SchemaError
        The file is no Parquet, holds another table, or another schema version.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        arrow = pq.read_table(path)
    except pa.ArrowInvalid as err:
        raise SchemaError(f"{os.fspath(path)}: not a Parquet file ({str(err).splitlines()[0]})") from None
    meta = arrow.schema.metadata or {}
    if _KEY_SCHEMA not in meta:
        raise SchemaError(f"{os.fspath(path)}: Parquet, but not a cctoolkit table")
    found = json.loads(meta[_KEY_SCHEMA])
    if found["table"] != table:
        raise SchemaError(f"{os.fspath(path)}: holds the {found['table']} table, expected {table}")
    if found["version"] != SCHEMA_VERSION:
        raise SchemaError(
            f"{os.fspath(path)}: schema version {found['version']}, this package reads version {SCHEMA_VERSION}"
        )
    return check(arrow.to_pandas(), table), parquet.provenance_of(meta)
