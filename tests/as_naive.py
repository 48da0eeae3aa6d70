"""A capture as the package reads it, held against the naive twin."""

from __future__ import annotations

import io
import warnings
from typing import Any

import naive_capture as naive

import cctoolkit as cct
from cctoolkit.capture.keys import FlowKeys
from cctoolkit.capture.model import Capture
from cctoolkit.errors import TruncatedCaptureWarning


def read(source: Any, **options: Any) -> tuple[Capture, list[str]]:
    """A capture, and what was warned about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TruncatedCaptureWarning)
        cap = cct.read_capture(source, frame_numbers=True, **options)
    notes = [str(w.message) for w in caught if issubclass(w.category, TruncatedCaptureWarning)]
    assert cap.meta.truncated == bool(notes)
    return cap, notes


def read_bytes(data: bytes, **options: Any) -> Capture:
    cap, notes = read(io.BytesIO(data), **options)
    assert not notes
    return cap


def assert_as_naive(data: bytes, tunnel: str = "outer", timeout_s: float | None = 600.0) -> None:
    """The capture is what the naive twin reads, in every column, key and count."""
    timeout_ns = None if timeout_s is None or timeout_s > 1e12 else round(timeout_s * 1e9)
    expected = naive.read(data, tunnel == "inner", timeout_ns)
    cap, notes = read(io.BytesIO(data), tunnel=tunnel, flow_timeout_s=timeout_s)
    assert bool(notes) == expected.file.damaged
    assert cap.columns["frame"].tolist() == expected.frame_numbers
    for name in ("ts_ns", "wire_bytes"):
        assert cap.columns[name].tolist() == [getattr(frame, name) for frame, *_ in expected.rows], name
    assert cap.columns["flow_id"].tolist() == [flow_id for _, _, flow_id, _ in expected.rows]
    assert cap.columns["direction"].tolist() == [direction for *_, direction in expected.rows]
    for name in (
        "seq ack tcp_flags payload_bytes window ecn dscp ttl tsval tsecr has_ts".split()  # noqa: SIM905
    ):
        assert cap.columns[name].tolist() == [getattr(row, name) for _, row, _, _ in expected.rows], name
    sacks = [(i, *edges) for i, (_, row, _, _) in enumerate(expected.rows) for edges in row.sacks]
    assert list(cap.sacks.itertuples(index=False, name=None)) == sacks
    assert_keys(cap.keys, expected.flows)
    meta = cap.meta
    frames = expected.file.frames
    assert (meta.frames, meta.packets) == (len(frames), len(expected.rows))
    assert meta.wire_bytes == sum(frame.wire_bytes for frame in frames)
    assert meta.captured_bytes == sum(len(frame.data) for frame in frames)
    assert {name: n for name, n in meta.counts.items() if n} == dict(expected.counts)
    assert meta.dropped == expected.file.dropped


def assert_keys(keys: FlowKeys, flows: list[naive.Flow]) -> None:
    assert keys.flow_id.tolist() == [flow.flow_id for flow in flows]
    assert keys.ip_version.tolist() == [flow.version for flow in flows]
    assert keys.protocol.tolist() == [flow.protocol for flow in flows]
    assert list(zip(keys.src_text(), keys.sport.tolist(), strict=True)) == [f.initiator for f in flows]
    assert list(zip(keys.dst_text(), keys.dport.tolist(), strict=True)) == [f.responder for f in flows]
    assert keys.saw_syn.tolist() == [flow.isn is not None for flow in flows]
    for name in ("mss", "window_scale", "sack_permitted"):
        assert getattr(keys, name).tolist() == [getattr(flow, name) for flow in flows], name
