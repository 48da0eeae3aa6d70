"""Packets tables and flow keys by hand, for tests that need no capture."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cctoolkit import schema
from cctoolkit.capture.keys import FlowKeys


def packet_columns(rows: Iterable[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Columns from rows of (ts_ns, flow_id, direction, seq, ack, tcp_flags, payload_bytes, window[, tsval])."""
    rows = [(*row, 0)[:9] for row in rows]
    given_names = (
        "ts_ns",
        "flow_id",
        "direction",
        "seq",
        "ack",
        "tcp_flags",
        "payload_bytes",
        "window",
        "tsval",
    )
    columns = {name: np.zeros(len(rows), dtype) for name, dtype in schema.PACKETS.items()}
    for i, name in enumerate(given_names):
        columns[name] = np.array([row[i] for row in rows], schema.PACKETS[name])
    columns["has_ts"] = columns["tsval"] != 0
    columns["wire_bytes"] = columns["payload_bytes"] + np.uint32(54)
    return columns


def make_keys(flow_ids: Iterable[int]) -> FlowKeys:
    """Keys of made-up IPv4 flows: flow i is from 10.0.(i // 256).(i % 256) to 10.255.0.1."""
    ids = np.array(sorted(flow_ids), np.uint32)
    n = len(ids)
    src, dst = np.zeros((n, 16), np.uint8), np.zeros((n, 16), np.uint8)
    src[:, 0], src[:, 2], src[:, 3] = 10, ids // 256 % 256, ids % 256
    dst[:, :4] = 10, 255, 0, 1
    return FlowKeys(
        flow_id=ids,
        ip_version=np.full(n, 4, np.uint8),
        protocol=np.full(n, 6, np.uint8),
        sport=(1024 + ids % 60000).astype(np.uint16),
        dport=np.full(n, 9999, np.uint16),
        src=src,
        dst=dst,
        saw_syn=np.zeros(n, bool),
        mss=np.tile(np.array([1460, 0], np.uint16), (n, 1)),
        window_scale=np.tile(np.array([0, 255], np.uint8), (n, 1)),
        sack_permitted=np.tile([True, False], (n, 1)),
    )
