"""Read ``tshark -T fields`` exports as captures, with whatever columns they have.

Columns have tshark's field names, in any order. Flows are numbered by the same kernel as in captures, so an export
with the columns named in :func:`read_tshark_fields` gives the same packets table as its capture.
"""

from __future__ import annotations

import codecs
import csv
import ipaddress
import os
import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, no_type_check

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from ..._support.kernels import kernel
from ..._support.words import first_line
from ...capture.flow_ids import FlowIds
from ...capture.headers import (
    COUNTS,
    KEY_A_HI,
    KEY_A_LO,
    KEY_B_HI,
    KEY_B_LO,
    KEY_HASH,
    KEY_PORTS,
    KEY_SYN_OPTIONS,
    KEY_WORDS,
    NO_SYN_OPTIONS,
    SWAPPED_BIT,
    PacketColumns,
    flow_hash,
)
from ...capture.keys import CaptureMeta
from ...capture.model import Capture
from ...capture.protocols import ACK, AE, CWR, ECE, FIN, ICMP, ICMPV6, PSH, RST, SYN, TCP, UDP, URG
from ...errors import ParameterError, SchemaError, TruncatedCaptureWarning
from ...schema import PACKETS

__all__ = ["read_tshark_fields"]

_TIMES = ("frame.time_epoch", "frame.time", "_ws.col.time", "_ws.col.cls_time", "frame.time_relative")
_FLAG_BITS = {
    "tcp.flags.fin": FIN,
    "tcp.flags.syn": SYN,
    "tcp.flags.reset": RST,
    "tcp.flags.push": PSH,
    "tcp.flags.ack": ACK,
    "tcp.flags.urg": URG,
    "tcp.flags.ece": ECE,
    "tcp.flags.ecn": ECE,  # until Wireshark 4.0
    "tcp.flags.cwr": CWR,
    "tcp.flags.ae": AE,
    "tcp.flags.ns": AE,
}
_USED = (
    *_TIMES, *_FLAG_BITS, "frame.len", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.proto", "ipv6.nxt",
    "ipv6.hopopts.nxt", "ip.len", "ip.hdr_len", "ip.ttl", "ipv6.hlim", "ip.dsfield",
    "ip.dsfield.ecn", "ip.dsfield.dscp", "ipv6.tclass", "tcp.srcport",
    "tcp.dstport", "tcp.seq", "tcp.seq_raw", "tcp.ack", "tcp.ack_raw", "tcp.len", "tcp.hdr_len", "tcp.flags",
    "tcp.window_size_value", "tcp.options.timestamp.tsval", "tcp.options.timestamp.tsecr", "udp.srcport",
    "udp.dstport", "udp.length",
)  # fmt: skip
_SEPARATORS = "\t,;| "
_U32 = 0xFFFFFFFF
_UNKNOWN_PROTOCOL = 255


def read_tshark_fields(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    *,
    flow_timeout_s: float | None = 600.0,
) -> Capture:
    """Read packets from the output of ``tshark -T fields``.

    Parameters
    ----------
    path : path
        Text file, may be compressed (gz, zst). Separated by tab, comma, semicolon, bar or space; quoted or not; with
        or without a heading (``-E header=y``).
    columns : sequence of str, optional
        tshark's field names, if there is no heading.
    separator : str, optional
        By default detected from the first line.
    flow_timeout_s : float or None
        As for :func:`cctoolkit.read_capture`.

    Returns
    -------
    Capture
        A row for each frame whose addresses or TCP ports were exported. ``meta.notes`` lists what the columns do not
        show.

    Raises
    ------
    SchemaError
        A required column is missing, or a cell is not a number, address or time. Names file, line and column.
    ParameterError
        There is neither a heading nor `columns`.

    Warns
    -----
    TruncatedCaptureWarning
        The last line is truncated; it is left out.

    Notes
    -----
    Required columns:

    - a time: ``frame.time_epoch``; else ``frame.time`` (taken as UTC), ``_ws.col.Time`` as time of day (then
      counted from midnight) or ``frame.time_relative`` (then two taps have no common clock);
    - ``tcp.srcport``, ``tcp.dstport``, ``tcp.seq`` or ``tcp.seq_raw``, and ``tcp.len`` (or ``ip.len``, ``ip.hdr_len``
      and ``tcp.hdr_len``).

    Without ``tcp.ack`` there are no bytes in flight, nor with ``tcp.seq_raw`` but neither ``tcp.seq`` nor
    ``tcp.ack_raw``. Sequence numbers may be relative (tshark's default): each direction then begins at 0, and all
    differences of sequence numbers are right. Without ``tcp.flags`` every segment counts as an ACK, and one without
    data at relative number 0 as a SYN. A missing address (some of Nebby's exports have no ``ip.src``) is taken from
    segments in the other direction between the same ports. If a cell has several values (``-E occurrence=a``) the
    first is used: the outermost header.

    Optional columns: ``frame.len``, ``ip.proto``, ``ip.ttl``, ``ip.dsfield`` (or its parts), ``ipv6.src``,
    ``ipv6.dst``, ``ipv6.nxt``, ``ipv6.hopopts.nxt``, ``ipv6.hlim``, ``ipv6.tclass``, ``tcp.flags`` (or its single
    bits), ``tcp.window_size_value``, ``tcp.options.timestamp.tsval`` and ``.tsecr``, ``udp.srcport``, ``udp.dstport``,
    ``udp.length``. SACK blocks, MSS and window scale are not read.

    Examples
    --------
    Printed by ``tshark -n -r FILE -T fields -E header=y -e frame.time_epoch -e ip.src -e ip.dst -e tcp.srcport
    -e tcp.dstport -e tcp.seq -e tcp.ack -e tcp.len``:

    >>> cct.compute_slots(read_tshark_fields("trace.tsv"), slot_ms=10)      # doctest: +SKIP
    """
    cells = _Cells(os.fspath(path), columns, separator)
    notes = cells.notes
    seq_field, ack_field = _numbering(cells)
    to = _transport(cells)
    is_tcp = to.is_tcp
    if not is_tcp.any():
        raise SchemaError(f"{path}: no TCP segment in {len(is_tcp)} lines")
    src, dst = (cells.addresses(f"ip.{side}", f"ipv6.{side}") for side in ("src", "dst"))
    _complete(cells, src, dst, to)
    rows = is_tcp | (src.known & dst.known)

    seq = cells.sequence_numbers(seq_field, is_tcp)
    ack, has_ack = cells.integers(ack_field, most=_U32)
    if not has_ack.any():
        notes.append(f"no {ack_field}: bytes in flight are not known")
    payload = _payload_bytes(cells, to)
    flags = _flags(cells, seq, ack, payload, has_ack)
    if seq_field == "tcp.seq" and (is_tcp & (flags & SYN > 0) & (seq == 0)).any():
        notes.append("sequence numbers are relative: each direction begins at 0")
    if not cells.first_of("ip.dsfield", "ip.dsfield.ecn", "ipv6.tclass"):
        notes.append("no ip.dsfield: marks (ECN) are not known, and count as none")
    tos, _ = cells.integers("ip.dsfield", "ipv6.tclass", most=255)
    ecn, dscp = (cells.integers(f"ip.dsfield.{part}", most=63)[0] for part in ("ecn", "dscp"))
    tsval, has_tsval = cells.integers("tcp.options.timestamp.tsval", most=_U32)
    tsecr, has_tsecr = cells.integers("tcp.options.timestamp.tsecr", most=_U32)
    table: dict[str, Any] = {
        "ts_ns": cells.times(rows),
        "flow_id": np.zeros(len(rows)),
        "direction": np.zeros(len(rows)),
        "seq": seq * is_tcp,
        "ack": ack * is_tcp,
        "tcp_flags": flags * is_tcp,
        "payload_bytes": payload,
        "wire_bytes": _wire_bytes(cells, payload),
        "window": cells.integers("tcp.window_size_value", most=0xFFFF)[0] * is_tcp,
        "ecn": tos & 3 | ecn,
        "dscp": tos >> 2 | dscp,
        "ttl": cells.integers("ip.ttl", "ipv6.hlim", most=255)[0],
        "tsval": tsval * is_tcp,
        "tsecr": tsecr * is_tcp,
        "has_ts": has_tsval & has_tsecr & is_tcp,
    }
    packets = {name: np.ascontiguousarray(table[name][rows].astype(dtype)) for name, dtype in PACKETS.items()}
    flows = FlowIds(flow_timeout_s)
    keys = np.zeros(int(rows.sum()) * KEY_WORDS, np.int64)
    version = np.where(src.version[rows] == 6, 6, 4)
    _pack_keys(
        src.words[rows], dst.words[rows], version, to.protocol[rows], to.sport[rows], to.dport[rows],
        flows.seed, keys,
    )  # fmt: skip
    flows.assign(keys, len(version), PacketColumns(**packets), 0)
    return Capture(packets, flows.keys(), _meta(cells, packets, version, to.protocol[rows]))


def _meta(
    cells: _Cells, packets: dict[str, np.ndarray], version: np.ndarray, protocol: np.ndarray
) -> CaptureMeta:
    n, ts_ns = len(version), packets["ts_ns"]
    if n < len(cells):
        cells.notes.append(
            f"{len(cells) - n} of {len(cells)} frames have neither addresses nor TCP ports: left out"
        )
    counts = {
        "ipv4": version == 4,
        "ipv6": version == 6,
        "tcp": protocol == TCP,
        "udp": protocol == UDP,
        "icmp": np.isin(protocol, (ICMP, ICMPV6)),
    }
    return CaptureMeta(
        path=cells.path,
        format="tshark fields",
        compression=cells.compression,
        frames=len(cells),
        packets=n,
        first_ts_ns=int(ts_ns.min()),
        last_ts_ns=int(ts_ns.max()),
        wire_bytes=int(packets["wire_bytes"].sum(dtype=np.int64)),
        counts=dict.fromkeys(COUNTS, 0) | {name: int(which.sum()) for name, which in counts.items()},
        truncated=cells.truncated,
        notes=cells.notes,
    )


class _Transport(NamedTuple):
    """Protocol and ports of each line (0 if it has none)."""

    protocol: np.ndarray
    sport: np.ndarray
    dport: np.ndarray
    is_tcp: np.ndarray
    is_udp: np.ndarray


def _transport(cells: _Cells) -> _Transport:
    protocol, known = cells.integers("ip.proto", "ipv6.hopopts.nxt", "ipv6.nxt", most=255)
    is_icmp = known & np.isin(protocol, (ICMP, ICMPV6))  # an ICMP error quotes the ports of another packet
    ports = np.zeros((2, len(cells)), np.int64)
    sides: list[np.ndarray] = []
    for name, number in (("tcp", 6), ("udp", 17)):
        if name == "tcp":
            cells.need("tcp.srcport")
            cells.need("tcp.dstport")
        (own, has_own), (other, has_other) = (
            cells.integers(f"{name}.{side}port", most=0xFFFF) for side in ("src", "dst")
        )
        there = has_own & has_other & ~is_icmp
        for before in sides:
            there &= ~before
        ports[:, there] = own[there], other[there]
        protocol[there] = number
        known |= there
        sides.append(there)
    protocol[~known] = _UNKNOWN_PROTOCOL
    return _Transport(protocol, *ports, *sides)


class _Addresses:
    """A column of addresses as two big-endian words each, as in the flow table."""

    def __init__(self, n: int) -> None:
        self.words = np.zeros((n, 2), np.int64)
        self.version = np.zeros(n, np.int64)
        self.known = np.zeros(n, np.bool_)


class _Cells:
    """The text by column; names lines in errors."""

    def __init__(self, path: str, columns: Sequence[str] | None, separator: str | None) -> None:
        self.path = path
        self.notes: list[str] = []
        self.truncated = False
        self.compression = {".gz": "gz", ".zst": "zstd"}.get(os.path.splitext(path)[1].lower(), "none")
        if separator is not None and len(separator) != 1:
            raise ParameterError(f"separator: {separator!r} is not one character")
        head = self._head()
        if not head:
            raise SchemaError(f"{path}: empty, expected what tshark -T fields prints")
        found = _heading(head[0], separator)
        if found is None and columns is None:
            raise ParameterError(
                f"{path}: the first line has no field names (tshark -E header=y); give them as columns"
            )
        if found is not None:
            names, separator = found
        if columns is not None:
            names = list(columns)
            if found is not None and len(found[0]) != len(names):
                raise ParameterError(f"columns: {len(names)} names, but {path} has {len(found[0])} columns")
        self._first_line = 1 if found is None else 2
        body = head[1:] if found is not None else head
        if separator is None:
            separator = _separator_of(body, len(names))
        if separator is None:
            raise ParameterError(
                f"columns: {len(names)} names, but {path} begins with {body[0].rstrip()[:60]!r}"
            )
        self._names = [name.strip().lower() for name in names]
        for name in self._names:
            if name in _USED and self._names.count(name) > 1:
                raise SchemaError(f"{path}: two columns are {name!r}")
        self._table = self._read(separator, "'" if body and body[0].startswith("'") else '"')

    def _head(self) -> list[str]:
        """The first lines."""
        try:
            with pa.input_stream(self.path, compression="detect") as stream:
                head = bytes(stream.read(1 << 16))
        except OSError as err:
            if not os.path.isfile(self.path):
                raise
            raise SchemaError(f"{self.path}: {first_line(err)}") from None
        if b"\0" in head:
            raise SchemaError(
                f"{self.path}: not text, expected what tshark -T fields prints (read_capture reads captures)"
            )
        self._has_bom = head.startswith(codecs.BOM_UTF8)
        return head.decode("utf-8-sig", errors="replace").splitlines(keepends=True)[:8]

    def _read(self, separator: str, quote: str) -> dict[str, pd.Series]:
        bad = []

        def note(row: Any) -> str:
            bad.append((row.number, row.actual_columns))
            return "skip"

        used = {str(i): name for i, name in enumerate(self._names) if name in _USED}
        try:
            with pa.input_stream(self.path, compression="detect") as stream:
                if self._has_bom:
                    stream.read(len(codecs.BOM_UTF8))
                table = pa.csv.read_csv(
                    stream,
                    pa.csv.ReadOptions(
                        use_threads=False,  # else it does not say in which line
                        encoding="latin1",  # what is used is ASCII; with UTF-8 a bad line that is none escapes `note`
                        skip_rows=self._first_line - 1,
                        column_names=[str(i) for i in range(len(self._names))],
                    ),
                    pa.csv.ParseOptions(
                        delimiter=separator,
                        quote_char=quote,
                        ignore_empty_lines=False,
                        invalid_row_handler=note,
                    ),
                    pa.csv.ConvertOptions(
                        include_columns=list(used), column_types=dict.fromkeys(used, pa.string())
                    ),
                )
        except (pa.ArrowInvalid, OSError) as err:
            raise SchemaError(f"{self.path}: {first_line(err)}") from None
        n = table.num_rows
        if len(bad) == 1 and bad[0][0] == n + self._first_line and bad[0][1] < len(self._names):
            self.truncated = True
            self.notes.append("the last line is cut and left out")
            warnings.warn(
                f"{self.path}: the last line is cut and left out", TruncatedCaptureWarning, stacklevel=4
            )
        elif bad:
            more = bad[0][1] > len(self._names)
            raise SchemaError(
                f"{self.path}: line {bad[0][0]}: {bad[0][1]} cells, but {len(self._names)} columns"
                + " (values with the separator in them need tshark -E quote=d)" * more
            )
        if not n:
            raise SchemaError(f"{self.path}: no lines but the heading")
        return {name: table[i].to_pandas() for i, name in used.items()}

    def __len__(self) -> int:
        return len(next(iter(self._table.values())))

    def first_of(self, *names: str) -> str | None:
        """The first of these columns that exists."""
        return next((name for name in names if name in self._table), None)

    def need(self, *names: str) -> str:
        found = self.first_of(*names)
        if found is None:
            raise SchemaError(
                f"{self.path}: column {' or '.join(names)} is missing (there are {', '.join(self._names)})"
            )
        return found

    def wrong(self, name: str, bad: np.ndarray, expected: str) -> SchemaError:
        """An error for the first `bad` cell."""
        row = int(bad.argmax())
        text = self._table[name].iloc[row]
        return SchemaError(f"{self.path}: line {row + self._first_line}: {name}: {text!r} is not {expected}")

    def text(self, name: str) -> pd.Series:
        """A column with the first value of each cell."""
        cells = self._table[name]
        several = cells.str.contains(",", regex=False)
        return cells.where(~several, cells.str.split(",").str[0]) if several.any() else cells

    def integers(self, *names: str, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the first existing column, and whether there is one; decimal or 0x…."""
        out, known = np.zeros(len(self), np.int64), np.zeros(len(self), np.bool_)
        for name in names:
            if name not in self._table:
                continue
            text = self.text(name)
            there = (text != "").to_numpy()
            decimal = text.str.fullmatch(r"\d{1,10}").to_numpy(np.bool_)
            values = text.where(decimal, "-1").astype("int64[pyarrow]").to_numpy(np.int64).copy()
            if (there & ~decimal).any():  # flags and the like: few distinct values
                codes, different = pd.factorize(text[there & ~decimal])
                values[there & ~decimal] = np.array([_other_number(cell) for cell in different])[codes]
            bad = there & ((values < 0) | (values > most))
            if bad.any():
                raise self.wrong(name, bad, f"a whole number from 0 to {most}")
            new = there & ~known
            out[new] = values[new]
            known |= there
        return out, known

    def sequence_numbers(self, name: str, is_tcp: np.ndarray) -> np.ndarray:
        values, known = self.integers(name, most=_U32)
        if (is_tcp & ~known).any():
            raise self.wrong(name, is_tcp & ~known, "a sequence number")
        return values

    def addresses(self, *names: str) -> _Addresses:
        """Addresses of the first existing column."""
        out = _Addresses(len(self))
        for name in names:
            if name not in self._table:
                continue
            codes, different = pd.factorize(self.text(name))
            words = np.zeros((len(different), 2), np.int64)
            version = np.zeros(len(different), np.int64)
            for i, cell in enumerate(different):
                if cell == "":
                    continue
                try:
                    address = ipaddress.ip_address(cell)
                except ValueError:
                    raise self.wrong(name, codes == i, "an IP address") from None
                version[i] = address.version
                words[i] = np.frombuffer(int(address).to_bytes(16, "big"), ">i8")
            new = (version[codes] > 0) & ~out.known
            out.words[new], out.version[new] = words[codes][new], version[codes][new]
            out.known |= new
        return out

    def times(self, rows: np.ndarray) -> np.ndarray:
        """Nanoseconds, exactly as printed."""
        there = [name for name in _TIMES if name in self._table]
        name = next((name for name in there if (self._table[name][rows] != "").any()), self.need(*_TIMES))
        text = self._table[name]
        if name != "frame.time":  # "Nov 16, 2023 …"
            text = text.str.replace(r"^([\d:]+),(\d+)$", r"\1.\2", regex=True)  # a locale's decimal comma
            text = text.str.split(",").str[0]
        sample = text[rows].iloc[0]
        if re.fullmatch(r"-?\d+(\.\d*)?", sample):
            ns, bad = _decimal_ns(text)
            if name != "frame.time_epoch":
                self.notes.append(f"times are those of {name}: two such taps have no common clock")
        elif re.fullmatch(r"\d\d:\d\d:\d\d(\.\d*)?", sample):
            parts = text.str.split(":", expand=True).reindex(columns=range(3)).fillna("")
            ns, bad = _decimal_ns(parts[2])
            for part, seconds in ((parts[0], 3600), (parts[1], 60)):
                whole, odd = _decimal_ns(part)
                ns, bad = ns + whole * seconds, bad | odd
            day = 86_400_000_000_000
            ns = ns + day * np.cumsum(np.diff(ns, prepend=ns[:1]) < -day // 2)  # past midnight
            self.notes.append(f"times are those of {name}: counted from midnight, the day is not known")
        else:
            ns, bad, zones = _dates_ns(text)
            if zones - {"", "UTC", "GMT"}:
                self.notes.append(f"times are taken as UTC, but {name} is in {', '.join(sorted(zones))}")
        if (bad & rows).any():
            raise self.wrong(name, bad & rows, "a time in seconds, of day, or a date")
        return ns


def _heading(line: str, separator: str | None) -> tuple[list[str], str] | None:
    """Field names and separator, if the line has any of tshark's field names."""
    for sep in separator or _SEPARATORS:
        cells = next(csv.reader([line.strip("\r\n").replace("'", '"')], delimiter=sep), [])
        cells = [cell.strip() for cell in cells]
        if len(cells) > 1 and any(cell.lower() in _USED for cell in cells):
            return cells, sep
    return None


def _separator_of(lines: list[str], n: int) -> str | None:
    """The separator that splits each line into `n` cells."""
    for sep in _SEPARATORS:
        whole = [line.replace("'", '"') for line in lines if line.endswith("\n")] or lines
        if all(len(cells) == n for cells in csv.reader(whole, delimiter=sep)):
            return sep
    return None


def _other_number(text: str) -> int:
    """A number that is not decimal: hexadecimal, or a single bit as printed by recent versions; else -1.

    At most 64 bits: no field has more.
    """
    if text in ("True", "False"):
        return int(text == "True")
    try:
        return min(int(text, 16), 2**63 - 1) if text[:2].lower() == "0x" else -1
    except ValueError:
        return -1


def _decimal_ns(text: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Decimal seconds as nanoseconds, and which are invalid; without floats, whose precision is too small."""
    good = text.str.fullmatch(r"-?\d{1,10}(\.\d*)?").fillna(False).to_numpy(np.bool_)
    sure = text.where(good, "0")
    whole = sure.str.replace(r"\..*", "", regex=True)
    decimals = sure.str.replace(r"^[^.]*\.?", "", regex=True).str.slice(0, 9).str.ljust(9, "0")
    seconds, fraction = (part.astype("int64[pyarrow]").to_numpy(np.int64) for part in (whole, decimals))
    negative = text.str.startswith("-").to_numpy(np.bool_)
    return seconds * 10**9 + np.where(negative, -fraction, fraction), ~good


#: Dates that 64 bits of ns can hold, in whole years.
_IN_NS = pd.Timestamp("1678-01-01", tz="UTC"), pd.Timestamp("2262-01-01", tz="UTC")


def _dates_ns(text: pd.Series) -> tuple[np.ndarray, np.ndarray, set[str]]:
    """Dates in ISO 8601 or tshark's ``frame.time`` format, which are invalid, and named time zones."""
    plain = text.str.replace(r"\s+", " ", regex=True)
    named = plain.str.match(r"[A-Za-z]")
    zone = plain.str.replace(r".*:\d\d(\.\d*)? ?", "", regex=True)
    classic = plain.where(named).str.replace(r"(:\d\d\.\d*).*", r"\1", regex=True)
    dates = pd.to_datetime(classic, format="%b %d, %Y %H:%M:%S.%f", errors="coerce", utc=True)
    iso = pd.to_datetime(plain.where(~named), format="ISO8601", errors="coerce", utc=True)
    dates = dates.fillna(iso)
    dates = dates.where(dates.between(*_IN_NS))
    bad = dates.isna().to_numpy()
    ns = dates.fillna(pd.Timestamp(0, tz="UTC")).dt.as_unit("ns").astype(np.int64).to_numpy()
    return ns, bad, set(zone[named].unique())


def _complete(cells: _Cells, src: _Addresses, dst: _Addresses, to: _Transport) -> None:
    """Fill in an address that was not exported from packets in the other direction between the same ports."""
    for side, missing, own, other, other_side in (
        ("source", src, to.sport, to.dport, dst),
        ("destination", dst, to.dport, to.sport, src),
    ):
        need = to.is_tcp & ~missing.known
        if not need.any():
            continue
        answers = (
            to.is_tcp & other_side.known
        )  # their `other_side` is the missing end of segments in the other direction
        pairs = pd.DataFrame(
            {
                "own": other[answers],
                "peer": own[answers],
                "hi": other_side.words[answers, 0],
                "lo": other_side.words[answers, 1],
                "version": other_side.version[answers],
            }
        ).drop_duplicates()
        twice = pairs.duplicated(["own", "peer"])
        if twice.any():
            own_port, peer_port = pairs.loc[twice, ["own", "peer"]].iloc[0]
            raise SchemaError(
                f"{cells.path}: the {side} address is not in the export, and between ports {peer_port} and {own_port} "
                "there are several: export ip.src and ip.dst"
            )
        found = pd.DataFrame({"own": own[need], "peer": other[need]}).merge(
            pairs, "left", on=["own", "peer"], indicator=True
        )
        filled = (found["_merge"] == "both").to_numpy()
        rows = np.flatnonzero(need)
        missing.words[rows[filled], 0] = found["hi"].to_numpy()[filled]
        missing.words[rows[filled], 1] = found["lo"].to_numpy()[filled]
        missing.version[rows[filled]] = found["version"].to_numpy()[filled]
        missing.known[rows[filled]] = True
        if filled.any():
            cells.notes.append(
                f"{side} addresses that were not exported are those of the segments that come back"
            )
        if not filled.all():
            cells.notes.append(
                f"the {side} address of {int((~filled).sum())} segments is not known: written as zero"
            )


def _numbering(cells: _Cells) -> tuple[str, str]:
    """Columns of sequence and acknowledgement numbers with the same base: both raw, or neither."""
    if cells.first_of("tcp.seq_raw") and (cells.first_of("tcp.ack_raw") or not cells.first_of("tcp.seq")):
        return "tcp.seq_raw", "tcp.ack_raw"
    return cells.need("tcp.seq"), "tcp.ack"


def _payload_bytes(cells: _Cells, to: _Transport) -> np.ndarray:
    lengths = ("ip.len", "ip.hdr_len", "tcp.hdr_len")
    if cells.first_of("tcp.len") is None and all(map(cells.first_of, lengths)):
        (total, known), (ip, _), (tcp, _) = (cells.integers(name, most=0xFFFF) for name in lengths)
        name, values = "ip.len", np.maximum(total - ip - tcp, 0)
    else:
        name = cells.need("tcp.len")
        values, known = cells.integers(name, most=_U32)
    if (to.is_tcp & ~known).any():
        raise cells.wrong(name, to.is_tcp & ~known, "a number of bytes")
    udp, _ = cells.integers("udp.length", most=0xFFFF)
    return np.where(to.is_tcp, values, np.where(to.is_udp, np.maximum(udp - 8, 0), 0))


def _flags(
    cells: _Cells, seq: np.ndarray, ack: np.ndarray, payload: np.ndarray, has_ack: np.ndarray
) -> np.ndarray:
    """TCP flags as exported, else derived from sequence numbers."""
    if cells.first_of("tcp.flags"):
        return cells.integers("tcp.flags", most=0xFFFF)[0] & 0x1FF
    bits = {name: bit for name, bit in _FLAG_BITS.items() if cells.first_of(name)}
    if {"tcp.flags.syn", "tcp.flags.ack"} <= bits.keys():
        flags = np.zeros(len(seq), np.int64)
        for name, bit in bits.items():
            flags |= bit * cells.integers(name, most=1)[0]
        return flags
    cells.notes.append(
        "no tcp.flags: a segment without data at number 0 counts as a SYN, others as ACKs, none as FIN or RST"
    )
    opening = (seq == 0) & (payload == 0)
    flags = np.where(
        has_ack, ACK, PSH
    )  # at least one flag is required: without any it would not be a TCP segment
    flags[opening & (ack == 0)] = SYN
    flags[opening & (ack == 1)] = SYN | ACK
    return flags


def _wire_bytes(cells: _Cells, payload: np.ndarray) -> np.ndarray:
    name = cells.first_of("frame.len", "ip.len")
    if name is None:
        cells.notes.append("no frame.len: bytes on the wire are payload and 40 bytes of headers")
        return payload + 40
    if name == "ip.len":
        cells.notes.append("no frame.len: bytes on the wire are from the IP header on")
    values, known = cells.integers(name, most=_U32)
    return np.where(known, values, payload + 40)


@kernel
@no_type_check
def _pack_keys(src, dst, version, protocol, sport, dport, seed, keys):
    """The rows' 5-tuples as packed by :mod:`cctoolkit.capture.headers`: the smaller end first, and a hash.

    Parameters
    ----------
    src, dst : int64 arrays, shape (rows, 2)
        Upper and lower half of the addresses.
    version, protocol, sport, dport : arrays, shape (rows,)
        IP version, protocol and ports.
    seed : int
        Seed of the hash.
    keys : int64 array
        Receives ``KEY_WORDS`` words a row.
    """
    for i in range(len(version)):
        src_hi, src_lo, dst_hi, dst_lo = src[i, 0], src[i, 1], dst[i, 0], dst[i, 1]
        swapped = src_lo > dst_lo
        if src_lo == dst_lo:
            swapped = src_hi > dst_hi if src_hi != dst_hi else sport[i] > dport[i]
        a_hi, a_lo, a_port = (dst_hi, dst_lo, dport[i]) if swapped else (src_hi, src_lo, sport[i])
        b_hi, b_lo, b_port = (src_hi, src_lo, sport[i]) if swapped else (dst_hi, dst_lo, dport[i])
        ports = a_port << 32 | b_port << 16 | protocol[i] << 8 | version[i]
        k = np.uint64(i * KEY_WORDS)
        keys[k + KEY_A_HI], keys[k + KEY_A_LO] = a_hi, a_lo
        keys[k + KEY_B_HI], keys[k + KEY_B_LO] = b_hi, b_lo
        keys[k + KEY_PORTS] = np.int64(swapped) << SWAPPED_BIT | ports
        keys[k + KEY_SYN_OPTIONS] = NO_SYN_OPTIONS
        keys[k + KEY_HASH] = np.int64(flow_hash(a_hi, a_lo, b_hi, b_lo, ports, seed))
