"""Read iperf3's JSON: ``-J`` (one or more tests in a file) and ``--json-stream``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ...capture.protocols import SCTP, TCP, UDP
from ...errors import SchemaError
from .labels import cca_name

__all__ = ["Iperf3", "read_iperf3"]

_PROTOCOLS = {"TCP": TCP, "UDP": UDP, "SCTP": SCTP}
#: A stream's interval: our column, iperf3's key, type. Null if a test does not have it (UDP, receivers).
_MEASURED = (
    ("seconds", "seconds", "Float64"),
    ("bytes", "bytes", "Int64"),
    ("bits_per_second", "bits_per_second", "Float64"),
    ("retransmits", "retransmits", "Int64"),
    ("snd_cwnd_bytes", "snd_cwnd", "Int64"),
    ("rtt_us", "rtt", "Int64"),
    ("rttvar_us", "rttvar", "Int64"),
)
_STREAMS = {
    "test": "int64",
    "stream": "int64",
    "src": "str",
    "dst": "str",
    "sport": "UInt16",
    "dport": "UInt16",
    "protocol": "UInt8",
    "data_from": "str",
    "cca": "str",
    "start_ns": "Int64",
}
#: What values of another type or size than iperf3's raise.
_NOT_IPERF3 = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
_SPACE = re.compile(r"\s*")
_EVENTS = ("start", "interval", "end", "error", "server_output_json", "server_output_text")


@dataclass
class Iperf3:
    """The tests in a file.

    Attributes
    ----------
    streams : DataFrame
        One row per stream: ``test`` (0, 1, … in the file), ``stream`` (iperf3's socket number), ``src``, ``dst``,
        ``sport``, ``dport`` (src is the client), ``protocol``, ``data_from`` (src or dst), ``cca`` of the data's
        sender (null for UDP, or if the end is missing), ``start_ns`` (start of the test, to a second, or in recent
        versions to a millisecond). Can be passed to :func:`~.labels.label_flows`.
    intervals : DataFrame
        One row per stream and interval: ``test``, ``stream``, ``t_s`` (its end, since the start of the test; after
        omitted intervals iperf3 restarts at 0), ``seconds``, ``bytes`` and ``bits_per_second`` (payload),
        ``retransmits``, ``snd_cwnd_bytes``, ``rtt_us``, ``rttvar_us``, ``omitted`` and ``sender`` (the host that wrote
        the file sent). Only the sending host knows the values after ``bits_per_second``; they are null in a receiver's
        file.
    notes : list of str
        Errors that iperf3 reported, and truncated parts.
    """

    streams: pd.DataFrame
    intervals: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def read_iperf3(path: str | os.PathLike[str]) -> Iperf3:
    """Read the output of ``iperf3 -J`` or ``iperf3 --json-stream`` from either host.

    Parameters
    ----------
    path : path
        One or more JSON documents in a row, or events of ``--json-stream`` (with ``--json-stream-full-output``, the
        document after them counts once).

    Returns
    -------
    Iperf3

    Raises
    ------
    SchemaError
        The file is not iperf3's JSON, or no test in it ran. Names file and line, and iperf3's message.

    Notes
    -----
    The congestion control of a stream's data is ``sender_tcp_congestion``. In a bidirectional test (``--bidir``) that
    is the server's, and the client's is ``receiver_tcp_congestion`` (seen with iperf3 3.12). A server does not know
    its client's, so ``cca`` is null.

    Examples
    --------
    >>> test = read_iperf3("cubic.json")                              # doctest: +SKIP
    >>> label_flows(cct.read_capture("cubic.pcap"), test.streams)     # doctest: +SKIP
    """
    notes: list[str] = []
    streams: list[dict[str, Any]] = []
    intervals: list[dict[str, Any]] = []
    for number, document in enumerate(_tests(os.fspath(path), notes)):
        try:
            rows = _streams(document, number)
            streams += rows.values()
            intervals += _intervals(document, number)
        except _NOT_IPERF3 as err:
            raise SchemaError(
                f"{path}: test {number}: not what iperf3 writes ({type(err).__name__}: {err})"
            ) from None
        if "error" in document:
            notes.append(f"test {number}: iperf3 said: {document['error']}")
    if not intervals:
        raise SchemaError(f"{path}: {notes[0] if notes else 'no intervals: no test ran'}")
    try:
        table = pd.DataFrame(intervals)
        table = table.astype({ours: dtype for ours, _, dtype in _MEASURED})
        known = pd.DataFrame(streams, columns=list(_STREAMS)).astype(_STREAMS)
    except _NOT_IPERF3 as err:
        raise SchemaError(f"{path}: not what iperf3 writes ({type(err).__name__}: {err})") from None
    return Iperf3(known, table, notes)


def _tests(path: str, notes: list[str]) -> Iterator[dict[str, Any]]:
    """The file's tests as documents of ``-J``, from either format."""
    open_test: dict[str, Any] | None = None  # a document whose events are being read
    held: dict[str, Any] | None = None  # all events have been read; the full document may follow
    for line, value in _values(path, notes):
        if not isinstance(value, dict) or not ("event" in value or "start" in value or "error" in value):
            raise SchemaError(f"{path}: line {line}: JSON, but neither a test nor an event of iperf3")
        if "event" not in value:
            if held is not None and _cookie(held) != _cookie(value):
                yield held
            held = None
            yield value
            continue
        event, data = value["event"], value.get("data")
        if event not in _EVENTS:
            continue
        if event == "start" or open_test is None:
            if held is not None:
                yield held
                held = None
            if open_test is not None:
                notes.append("a test's last events are missing")
                yield open_test
            open_test = {"start": {}, "intervals": [], "end": {}}
        if event == "interval":
            open_test["intervals"].append(data)
        else:
            open_test[event] = data
        if event == "end":
            held, open_test = open_test, None
    if held is not None:
        yield held
    if open_test is not None:
        notes.append("a test's last events are missing")
        yield open_test


def _cookie(document: dict[str, Any]) -> Any:
    return document.get("start", {}).get("cookie")


def _values(path: str, notes: list[str]) -> Iterator[tuple[int, Any]]:
    """Successive JSON values, each with the line it begins on."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: not text, so not what iperf3 -J writes") from None
    decoder = json.JSONDecoder()
    at, line, seen = 0, 1, 0
    while True:
        start = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        line += text.count("\n", at, start)
        if start >= len(text):
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as err:
            if seen and err.pos >= len(text.rstrip()) - 1:
                notes.append(f"line {line}: cut at the end of the file")
                return
            raise SchemaError(f"{path}: line {err.lineno}: expected JSON of iperf3 -J ({err.msg})") from None
        yield line, value
        line += text.count("\n", start, end)
        at = end
        seen += 1
    if not seen:
        raise SchemaError(f"{path}: empty, expected JSON of iperf3 -J")


def _streams(document: dict[str, Any], number: int) -> dict[int, dict[str, Any]]:
    """Rows of ``streams`` by iperf3's socket number."""
    start, end = document.get("start", {}), document.get("end", {})
    test = start.get("test_start", {})
    is_server = "accepted_connection" in start
    sends = {
        s["socket"]: bool(s["sender"])
        for interval in document.get("intervals", [])
        for s in interval["streams"]
        if "sender" in s
    }
    both_ways = len(set(sends.values())) == 2
    stamp = start.get("timestamp", {})
    start_ns = None
    for name, unit_ns in (("timesecs", 10**9), ("timemillisecs", 10**6)):
        if name in stamp:
            start_ns = int(_number(stamp[name]) * unit_ns)
    rows: dict[int, dict[str, Any]] = {}
    for ends in start.get("connected", []):
        here = (ends["local_host"].removeprefix("::ffff:"), ends["local_port"])
        there = (ends["remote_host"].removeprefix("::ffff:"), ends["remote_port"])
        # iperf3 before 3.7 does not say who sends, but has only one direction
        local_sends = sends.get(ends["socket"], bool(test.get("reverse", 0)) == is_server)
        (src, sport), (dst, dport) = (there, here) if is_server else (here, there)
        from_client = local_sends != is_server
        named = "receiver_tcp_congestion" if both_ways and from_client else "sender_tcp_congestion"
        rows[ends["socket"]] = {
            "test": number,
            "stream": ends["socket"],
            "src": src,
            "dst": dst,
            "sport": sport,
            "dport": dport,
            "protocol": _PROTOCOLS.get(test.get("protocol", "TCP")),
            "data_from": "src" if from_client else "dst",
            "cca": cca_name(end[named]) if named in end else None,
            "start_ns": start_ns,
        }
    return rows


def _number(value: object) -> float:
    """A number, or an error: text times a billion is gigabytes."""
    if not isinstance(value, int | float):
        raise TypeError(f"{str(value)[:40]!r} is not a number")
    return value


def _intervals(document: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    start = document.get("start", {})
    sends = bool(start.get("test_start", {}).get("reverse", 0)) == ("accepted_connection" in start)
    for interval in document.get("intervals", []):
        for stream in interval["streams"]:
            yield {
                "test": number,
                "stream": stream["socket"],
                "t_s": float(stream["end"]),
                **{ours: stream.get(theirs) for ours, theirs, _ in _MEASURED},
                "omitted": bool(stream.get("omitted", False)),
                "sender": bool(stream.get("sender", sends)),
            }
