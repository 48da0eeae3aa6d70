"""Labels: which flow used which congestion control, and matching them to a capture's flows."""

from __future__ import annotations

import csv
import ipaddress
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..._support import arguments
from ..._support.arguments import short_text
from ...capture.model import Capture
from ...capture.protocols import DCCP, SCTP, TCP, UDP
from ...errors import ParameterError, SchemaError
from ..settings import KERNEL_CCAS, SIMULATOR_CCAS

__all__ = ["ALIASES", "cca_name", "label_flows", "read_labels"]

#: Names in cctoolkit: Linux's and the simulator's.
KNOWN = frozenset((*KERNEL_CCAS, *SIMULATOR_CCAS))
#: Other names (lower-case letters and digits only, "+" as "plus", without "tcp" at either end) and ours.
ALIASES = {
    "newreno": "reno",
    "renonewreno": "reno",
    "bbr1": "bbr",
    "bbrv1": "bbr",
    "bbrv2": "bbr2",
    "bbrv3": "bbr3",
    "binaryincrease": "bic",
    "caiadelaygradient": "cdg",
    "datacenter": "dctcp",
    "hamilton": "htcp",
    "hs": "highspeed",
    "lowpriority": "lp",
    "newvegas": "nv",
    "s": "scalable",
    "w": "westwood",
    "westwoodplus": "westwood",
}

#: Our column, and other headings for it.
_HEADINGS = {
    "src": ("src_ip", "ip_src", "ip.src", "source", "source_ip", "saddr", "src_addr"),
    "dst": ("dst_ip", "ip_dst", "ip.dst", "destination", "destination_ip", "dest_ip", "daddr", "dst_addr"),
    "sport": ("src_port", "srcport", "tcp.srcport", "source_port"),
    "dport": ("dst_port", "dstport", "tcp.dstport", "destination_port", "dest_port"),
    "protocol": ("proto", "ip.proto"),
    "flow_id": ("flow", "flowid"),
    "file": ("filename", "file_name", "path", "pcap", "capture", "trace"),
    "cca": ("cc", "ccalgo", "cc_algo", "cc_algorithm", "congestion_control", "congestion", "algorithm", "algo",
            "label", "variant"),
}  # fmt: skip
_PROTOCOLS = {"tcp": TCP, "udp": UDP, "sctp": SCTP, "dccp": DCCP}
_TUPLE = ("src", "sport", "dst", "dport")
#: Data of a flow that is no control connection.
LEAST_PAYLOAD_BYTES = 100_000
#: Suffixes of captures and field exports, compressed or not.
CAPTURE_SUFFIXES = (".pcap", ".pcapng", ".cap", ".dmp", ".erf", ".csv", ".tsv", ".txt", ".gz", ".xz", ".zst")


def cca_name(text: str) -> str:
    """A congestion control's name in cctoolkit; unknown names are returned unchanged.

    Case, spaces, dots, hyphens and underscores are ignored, as is "tcp" at either end (:data:`ALIASES`).

    Examples
    --------
    >>> [cca_name(name) for name in ("TCP NewReno", "BBR v1", "BBRv2", "H-TCP", "tcp_westwood+", "Copa")]
    ['reno', 'bbr', 'bbr2', 'htcp', 'westwood', 'Copa']
    """
    key = re.sub(r"[^a-z0-9]", "", text.lower().replace("+", "plus"))
    for name in (key, key.removeprefix("tcp"), key.removesuffix("tcp")):
        if name in KNOWN:
            return name
        if name in ALIASES and (len(name) > 1 or name != key):  # "S-TCP", but not the name "S"
            return ALIASES[name]
    return text.strip()


def read_labels(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a table of labels (CSV; separated by comma, semicolon or tab).

    Parameters
    ----------
    path : path
        A heading, and one line per flow or kind of flow. Column ``cca`` is required, and at least one of ``src``,
        ``sport``, ``dst``, ``dport``, ``protocol`` (name or number), ``flow_id``, ``file``; other common headings are
        understood. Cells may be blank. Other columns are kept as text. Lines starting with ``#`` are skipped.

    Returns
    -------
    DataFrame
        ``line`` (in the file), the columns above that exist (null where blank), and the others; ``cca`` is converted
        by :func:`cca_name`.

    Raises
    ------
    SchemaError
        A column is missing or duplicated, or a cell is not an address, port or number. Names file and line.
    """
    path = os.fspath(path)
    with open(path, encoding="utf-8-sig", newline="") as file:
        try:
            lines = [(n, line) for n, line in enumerate(file, 1) if line.strip() and not line.startswith("#")]
        except UnicodeDecodeError:
            raise SchemaError(f"{path}: labels: not text") from None
    if not lines:
        raise SchemaError(f"{path}: labels: empty, expected a heading line with a column 'cca'")
    separator = max(",;\t", key=lines[0][1].count)
    reader = csv.reader((line for _, line in lines), delimiter=separator, skipinitialspace=True)
    rows = _rows(path, reader)
    names = _columns(path, next(rows))
    table: dict[str, list[Any]] = {name: [] for name in ("line", *names)}
    for cells in rows:
        number = lines[reader.line_num - 1][0]
        if len(cells) != len(names):
            raise SchemaError(
                f"{path}: line {number}: labels: {len(cells)} cells, but {len(names)} columns ({', '.join(names)})"
            )
        table["line"].append(number)
        for name, cell in zip(names, cells, strict=True):
            try:
                table[name].append(_value(name, cell.strip()))
            except ValueError as err:
                raise SchemaError(f"{path}: line {number}: labels: {name}: {err}") from None
    frame = pd.DataFrame(table)
    numbers = {"sport": "UInt16", "dport": "UInt16", "protocol": "UInt8", "flow_id": "UInt32"}
    frame = frame.astype({name: dtype for name, dtype in numbers.items() if name in frame})
    frame.attrs["path"] = path
    return frame


def _rows(path: str, reader: Any) -> Iterator[list[str]]:
    """The cells of each line, none longer than a label may be."""
    try:
        for cells in reader:
            for cell in cells:
                short_text(f"{path}: line {reader.line_num}: labels: a cell", cell)
            yield cells
    except csv.Error as err:  # a cell of 128 KiB, or a quotation mark that is not closed
        raise SchemaError(f"{path}: line {reader.line_num}: labels: {err}") from None
    except ParameterError as err:
        raise SchemaError(str(err)) from None


def _columns(path: str, heading: Sequence[str]) -> list[str]:
    """The heading with our column names."""
    ours = {other: name for name, others in _HEADINGS.items() for other in others}
    lower = [re.sub(r"\s+", "_", cell.strip().lower()) for cell in heading]
    names = []
    for cell, text in zip(lower, heading, strict=True):
        name = cell if cell in _HEADINGS else ours.get(cell, "")
        names.append(text.strip() if not name or (name != cell and name in lower) else name)
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"{path}: labels: two columns are {name!r} ({', '.join(map(str, heading))})")
    if "cca" not in names:
        raise SchemaError(f"{path}: labels: column 'cca' is missing (there are {', '.join(names)})")
    if not set(names) & (set(_HEADINGS) - {"cca", "protocol"}):
        raise SchemaError(
            f"{path}: labels: no column says which flow (src, sport, dst, dport, flow_id or file; there are "
            f"{', '.join(names)})"
        )
    return names


def _value(name: str, cell: str) -> Any:
    """The value of a cell; None if blank.

    Raises
    ------
    ValueError
        The cell is invalid.
    """
    if cell == "" and name in _HEADINGS:
        return None
    if name == "cca":
        return cca_name(cell)
    if name in ("src", "dst"):
        return str(ipaddress.ip_address(cell))
    if name == "protocol" and not cell.isdecimal():
        if cell.lower() not in _PROTOCOLS:
            raise ValueError(f"{cell!r} is not a protocol (a number or one of {', '.join(_PROTOCOLS)})")
        return _PROTOCOLS[cell.lower()]
    most = {"sport": 2**16, "dport": 2**16, "protocol": 2**8, "flow_id": 2**32}.get(name)
    if most is None:
        return cell
    digits = re.sub(r"\.0+$", "", cell)  # whole numbers beside blank cells, as pandas writes them
    if not (digits.isdecimal() and int(digits) < most):
        raise ValueError(f"{cell!r} is not a whole number from 0 to {most - 1}")
    return int(digits)


def stem(name: str) -> str:
    """A file's name without suffixes of formats and compression."""
    while Path(name).suffix in CAPTURE_SUFFIXES:
        name = Path(name).stem
    return name


def _same_file(path: Path, label: str) -> bool:
    """Whether the label means this file: its path or the end of it, with or without suffixes."""
    path, given = path.resolve(), Path(label)
    if "\0" in label:
        return False
    if given.resolve() == path:
        return True
    *folders, name = given.parts or ("",)
    return (
        not given.is_absolute()
        and list(path.parts[-1 - len(folders) : -1]) == folders
        and name in (path.name, stem(path.name))
    )


def label_flows(
    capture: Capture,
    labels: pd.DataFrame | str | os.PathLike[str],
    *,
    least_payload_bytes: int = LEAST_PAYLOAD_BYTES,
) -> pd.DataFrame:
    """Label a capture's flows with their congestion controls.

    Parameters
    ----------
    capture : Capture
    labels : DataFrame or path
        From :func:`read_labels` (which also reads a path), :func:`~.names.labels_from_names`, ``streams`` of
        :func:`~.iperf3.read_iperf3`, ``labels`` of a run, or your own with such columns. A row applies to every flow
        that matches all its cells; addresses and ports may be those of either end. Without ``protocol`` it applies to
        TCP flows.
    least_payload_bytes : int
        A row with only ``file`` applies to the file's flows with at least this much data in one direction, not to
        control connections.

    Returns
    -------
    DataFrame
        One row per flow of the capture, in order: ``flow_id``, ``src``, ``dst``, ``sport``, ``dport``, ``protocol``,
        ``cca`` (null without a label) and the other columns of the labels. ``attrs["unused"]`` counts rows of the
        labels that match no flow.

    Raises
    ------
    SchemaError
        The labels have no column ``cca``, or none that identifies flows.
    ParameterError
        No flow has a label, there is no such flow number, or two equally specific rows give a flow different
        congestion controls. (More specific rows take precedence.)

    Notes
    -----
    If a 5-tuple is reused, and has as many rows as flows, they are matched in order.
    """
    if not isinstance(labels, pd.DataFrame):
        labels = read_labels(labels)
    labels = arguments.table(
        "labels", labels, (), [name for name in _HEADINGS if name in labels], error=SchemaError
    )
    if "cca" not in labels or not set(labels.columns) & (set(_HEADINGS) - {"cca", "protocol"}):
        raise SchemaError(
            "labels: need a column 'cca' and one of src, sport, dst, dport, flow_id, file; there are "
            f"{', '.join(map(str, labels.columns))}"
        )
    flows = _Flows(capture, least_payload_bytes)
    chosen = np.full(len(flows.keys), -1)  # row of the labels for each row of the flows
    specificity = np.zeros(len(flows.keys), np.int64)  # how specific it is
    unused = 0
    rows = _wanted(labels)
    shared = defaultdict(list)
    for row, want in enumerate(rows):
        if _is_tuple(want) and flows.is_file(want):
            shared[_ends(want)].append(row)
    for row, want in enumerate(rows):
        if "cca" not in want:
            continue
        found = flows.of(want, _name_of(labels, row))
        same = shared[_ends(want)] if _is_tuple(want) else []
        if len(same) == len(found) > 1:
            found = found[[same.index(row)]]
        weight = len(want) + 8 * ("flow_id" in want)
        for flow in found:
            before = chosen[flow]
            if before >= 0 and specificity[flow] == weight and rows[before]["cca"] != want["cca"]:
                raise ParameterError(
                    f"{_name_of(labels, row)}: flow {flows.text(flow)} of {capture.meta.path} is {want['cca']}, "
                    f"but {rows[before]['cca']} by {_name_of(labels, before)}"
                )
            if before < 0 or weight > specificity[flow]:
                chosen[flow], specificity[flow] = row, weight
        unused += not len(found)
    if len(chosen) == 0 or chosen.max() < 0:
        raise ParameterError(
            f"{capture.meta.path}: none of {len(labels)} rows of the labels{_of_file(labels)} fits one of its "
            f"{len(flows.keys)} flows"
        )
    table = flows.table()
    more = labels.drop(columns=[c for c in (*table.columns, "file") if c in labels.columns and c != "cca"])
    more = more[["cca", *(c for c in more.columns if c != "cca")]].reset_index(drop=True)
    more = more.reindex(pd.Index(np.where(chosen < 0, len(more), chosen))).reset_index(drop=True)
    out = table.join(more)
    out["cca"] = pd.Series([rows[r]["cca"] if r >= 0 else None for r in chosen], dtype="str")
    out.attrs = {"unused": int(unused)}
    return out


def _wanted(labels: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row without its blank cells."""
    names = [name for name in _HEADINGS if name in labels]
    columns = [labels[name].astype(object).to_list() for name in names]
    rows = []
    for cells in zip(*columns, strict=True):
        row = {n: c for n, c in zip(names, cells, strict=True) if not _blank(n, c)}
        if "cca" in row:
            row["cca"] = cca_name(str(row["cca"]))
        rows.append(row)
    return rows


def _blank(name: str, cell: Any) -> bool:
    if (
        not isinstance(cell, str | int | float | np.generic)
        and cell is not None
        and cell is not pd.NA
        and cell is not pd.NaT
    ):
        raise SchemaError(f"labels: column {name!r} has a {type(cell).__name__}, expected text or a number")
    known: Any = cell
    return bool(pd.isna(known)) or bool(known == "")


def _is_tuple(want: dict[str, Any]) -> bool:
    """Whether a row has both ends, and no flow number."""
    return all(name in want for name in _TUPLE) and "flow_id" not in want


def _ends(want: dict[str, Any]) -> tuple[Any, ...]:
    """Both ends, unordered, and the protocol."""
    ends = sorted([(want["src"], want["sport"]), (want["dst"], want["dport"])], key=str)
    return (*ends, want.get("protocol", TCP))


def _of_file(labels: pd.DataFrame) -> str:
    return f" {labels.attrs['path']}" if "path" in labels.attrs else ""


def _name_of(labels: pd.DataFrame, row: int) -> str:
    """Where to find a row, for error messages."""
    file = _of_file(labels).strip()
    if "line" in labels:
        return (
            f"{file}: line {labels['line'].iloc[row]}" if file else f"labels: line {labels['line'].iloc[row]}"
        )
    return f"labels: row {row}"


class _Flows:
    """A capture's flows, looked up by a row of labels."""

    def __init__(self, capture: Capture, least_payload_bytes: int) -> None:
        self.keys = capture.keys
        self._capture = capture
        self._min_bytes = least_payload_bytes
        self._path = Path(capture.meta.path)
        self._src = np.array(self.keys.src_text(), object)
        self._dst = np.array(self.keys.dst_text(), object)
        self._by_ends: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for row in range(len(self.keys)):
            self._by_ends[_ends(self._as_row(row))].append(row)
        self._with_data: np.ndarray | None = None

    def _as_row(self, row: int) -> dict[str, Any]:
        keys = self.keys
        return {
            "src": self._src[row],
            "dst": self._dst[row],
            "sport": int(keys.sport[row]),
            "dport": int(keys.dport[row]),
            "protocol": int(keys.protocol[row]),
        }

    def text(self, row: int) -> str:
        flow = self._as_row(row)
        return f"{self.keys.flow_id[row]} ({flow['src']}:{flow['sport']} to {flow['dst']}:{flow['dport']})"

    def table(self) -> pd.DataFrame:
        keys = self.keys
        return pd.DataFrame(
            {
                "flow_id": keys.flow_id,
                "src": pd.Series(self._src, dtype="str"),
                "dst": pd.Series(self._dst, dtype="str"),
                "sport": keys.sport,
                "dport": keys.dport,
                "protocol": keys.protocol,
            }
        )

    def is_file(self, want: dict[str, Any]) -> bool:
        """Whether the row applies to this capture."""
        return "file" not in want or _same_file(self._path, str(want["file"]))

    def of(self, want: dict[str, Any], name: str) -> np.ndarray:
        """Rows of the flows that match all this."""
        says = set(want) - {"cca", "protocol"}
        if not says:
            raise ParameterError(f"{name}: names a congestion control, but no flow")
        if not self.is_file(want):
            return np.zeros(0, np.int64)
        if "flow_id" in want:
            found = np.flatnonzero(self.keys.flow_id == want["flow_id"])
            if not len(found):
                raise ParameterError(f"{name}: no flow {want['flow_id']} in {self._capture.meta.path}")
        elif _is_tuple(want):
            return np.array(self._by_ends.get(_ends(want), []), np.int64)
        elif says == {"file"}:
            return np.flatnonzero(self._data_flows() & (self.keys.protocol == want.get("protocol", TCP)))
        else:
            found = np.flatnonzero(self.keys.protocol == want.get("protocol", TCP))
        forward = (self._src, self.keys.sport, self._dst, self.keys.dport)
        return found[self._has(want, found, forward) | self._has(want, found, forward[2:] + forward[:2])]

    @staticmethod
    def _has(want: dict[str, Any], rows: np.ndarray, ends: tuple[np.ndarray, ...]) -> np.ndarray:
        ok = np.ones(len(rows), np.bool_)
        for name, column in zip(_TUPLE, ends, strict=True):
            if name in want:
                ok &= np.asarray(column[rows] == want[name], np.bool_)
        return ok

    def _data_flows(self) -> np.ndarray:
        if self._with_data is None:
            columns = self._capture.columns
            row = np.searchsorted(self.keys.flow_id, columns["flow_id"])
            way = 2 * row + columns["direction"]
            payload = np.bincount(way, columns["payload_bytes"], 2 * len(self.keys)).reshape(-1, 2)
            self._with_data = payload.max(axis=1, initial=0) >= self._min_bytes
        return self._with_data
