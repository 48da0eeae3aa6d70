"""The results of a run: two taps, tables and series; the same for simulation, testbed and switch."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support import arguments, parquet
from .._support.arguments import MOST_CHARACTERS, short_text, whole
from .._support.atomic import check_target, replacing, replacing_files, replacing_folder
from .._support.csv import read_csv, write_csv
from .._support.documents import read_json
from .._support.version import __version__
from .._support.words import first_line
from ..capture.keys import CaptureMeta, FlowKeys
from ..capture.model import Capture
from ..errors import ParameterError, SchemaError
from ..schema import read_parquet, write_parquet
from . import Scenario, read_scenario

__all__ = ["LABELS", "Run", "load_run"]

#: Columns of the labels, one row per flow: what it was, and what its sender knows about it. Stored as
#: ``NAME.labels.csv`` beside captures; a :class:`Run` has ``flow_id`` in front.
LABELS = (
    "src",  # the initiator
    "dst",
    "sport",
    "dport",
    "protocol",
    "kind",  # bulk, transfer (a given size), fetch (a request and its response), udp, ping
    "data_from",  # src or dst
    "cca",
    "base_rtt_ms",
    "start_ns",
    "stop_ns",
    "bytes_acked",
    "retransmits",
    "min_rtt_us",
)
_KEY = ("src", "dst", "sport", "dport", "protocol")
_PORTS: dict[str, Any] = {"sport": np.uint16, "dport": np.uint16, "protocol": np.uint8}
_NUMBERS = ("base_rtt_ms", "bytes_acked", "retransmits", "min_rtt_us")
#: Columns that the tables of a run must have; each is numeric, except for text.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "flows": ("flow_id", "name", "cca", "base_rtt_ms", "start_s", "end_s", "received_bytes", "goodput_mbps",
              "retransmits", "min_rtt_ms"),
    "queues": ("queue", "arrived_packets", "sent_packets", "sent_bytes", "dropped_full", "dropped_enqueue",
               "dropped_dequeue", "marked_packets", "mean_delay_ms", "max_delay_ms"),
    "flow_series": ("ts_ns", "flow_id"),
    "queue_series": ("ts_ns", "queue"),
    "cca_stats": ("flow_id",),
    "aqm_stats": ("queue",),
    "drops": ("ts_ns", "flow_id", "queue", "packet", "why"),
}  # fmt: skip
_TEXT = ("name", "cca", "why", "kind", "data_from", "src", "dst")
#: Numbers that only some runs have.
_OPTIONAL = ("completion_s",)
#: Whole numbers in every row.
_NUMBERED = ("flow_id", "queue", "packet", "ts_ns")
#: Ends of the names of counters, which are added up.
_COUNTED = ("_packets", "_bytes", "retransmits", "_full", "_enqueue", "_dequeue")
_FORMAT = 1
_FACTS: dict[str, Any] = {"name": str, "made_by": str, "start_ns": int, "events": int}


@dataclass
class Run:
    """The results of a run, simulated or measured.

    Times in captures, series and labels are nanoseconds of the same clock, which starts at 0 in a simulation.

    Attributes
    ----------
    scenario : Scenario or None
        What was run; None if unknown.
    made_by : str
        What made the run, such as ``"cctoolkit 1.0 simulator"``.
    name : str
        Name of the run.
    ingress, egress : Capture or None
        The taps before and after the queues of the bottleneck; both see both directions. None: not recorded. In a
        simulation, the ingress has a further column ``dropped``.
    labels : DataFrame
        ``flow_id`` and :data:`LABELS`; unknown values are null.
    flows : DataFrame
        One row per flow; at least ``flow_id``, ``name``, ``cca``, ``base_rtt_ms``, ``start_s``, ``end_s``,
        ``received_bytes``, ``goodput_mbps``, ``retransmits`` and ``min_rtt_ms``. In a simulation, data counts as
        received when it leaves the bottleneck for the receiver; ``sent_packets`` and
        ``retransmits`` count data only, ``timeouts`` and ``dropped_packets`` SYNs as well.
    queues : DataFrame
        One row per queue: packets and bytes in and out, drops by kind, marks, delay.
    flow_series, queue_series : DataFrame
        One row per sample and flow or queue, at ``ts_ns``. Counters are cumulative.
    cca_stats, aqm_stats : DataFrame
        Counters of the algorithms (their ``Stats``).
    drops : DataFrame or None
        Packets that did not arrive: ``ts_ns``, ``flow_id``, ``queue`` (-1 on the path), ``packet`` (row of the ingress
        capture), ``why`` (``full``, ``enqueue``, ``dequeue``, ``path``).
    start_ns : int
        Start of the run in ns; ``start_s`` and ``end_s`` are relative to it.
    events : int
        Number of simulator events; 0 elsewhere.

    See Also
    --------
    simulate : simulate a run
    run_testbed : run a scenario on real Linux
    load_run : read a saved run or a pair of captures
    example : a bundled run

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> run.labels[["cca", "base_rtt_ms"]]
         cca  base_rtt_ms
    0  cubic         30.0
    1    bbr         30.0
    >>> {name: round(value, 2) for name, value in run.summary().items()}
    {'goodput_mbps': 7.55, 'jain_index': 0.84, 'retransmits': 154}
    """

    scenario: Scenario | None
    made_by: str
    flows: pd.DataFrame
    labels: pd.DataFrame
    queues: pd.DataFrame = field(default_factory=pd.DataFrame)
    flow_series: pd.DataFrame = field(default_factory=pd.DataFrame)
    queue_series: pd.DataFrame = field(default_factory=pd.DataFrame)
    cca_stats: pd.DataFrame = field(default_factory=pd.DataFrame)
    aqm_stats: pd.DataFrame = field(default_factory=pd.DataFrame)
    drops: pd.DataFrame | None = None
    ingress: Capture | None = None
    egress: Capture | None = None
    name: str = "run"
    start_ns: int = 0
    events: int = 0

    def __post_init__(self) -> None:
        for field_ in dataclasses.fields(self):
            value = getattr(self, field_.name)
            kind = Capture if field_.name in ("ingress", "egress") else pd.DataFrame
            optional = value is None and field_.default is None
            if field_.name in (*_COLUMNS, "labels", "ingress", "egress") and not (
                optional or isinstance(value, kind)
            ):
                raise SchemaError(f"{field_.name}: expected a {kind.__name__}, not {type(value).__name__}")

    @property
    def duration_s(self) -> float:
        """Duration of the scenario in s, or from the start of the run to the end of the last flow."""
        return (
            self.scenario.duration_s
            if self.scenario is not None
            else float(checked(self, "flows").end_s.max())
        )

    def summary(self) -> dict[str, float]:
        """Key figures of the run.

        Returns
        -------
        dict
            ``goodput_mbps`` of all flows together over the whole run; ``jain_index`` of the goodputs of the flows with
            congestion control that started; ``retransmits``. If the queues are known: ``utilisation`` (bytes sent over
            what the link could send), ``mean_delay_ms`` and ``max_delay_ms`` in the queue, ``drop_share`` and
            ``mark_share`` of the arriving packets. With transfers: the number ``completed`` and ``mean_completion_s``.
        """
        flows = checked(self, "flows")
        started = flows.start_s < self.duration_s
        x = flows.goodput_mbps[started & ~flows.cca.isin(["udp", ""])].dropna().to_numpy(np.float64)
        out: dict[str, float] = {
            "goodput_mbps": float(flows.received_bytes.sum() * 8e-6 / self.duration_s),
            "jain_index": float(x.sum() ** 2 / (x.size * (x**2).sum())) if x.any() else math.nan,
            "retransmits": int(flows.retransmits.sum()),
        }
        if len(self.queues):
            q = checked(self, "queues")
            came, sent = int(q.arrived_packets.sum()), max(int(q.sent_packets.sum()), 1)
            if self.scenario is not None:
                out["utilisation"] = _utilisation(self.scenario, int(q.sent_bytes.sum()))
            out["mean_delay_ms"] = float(
                (q.mean_delay_ms * q.sent_packets)[q.sent_packets > 0].sum(skipna=False) / sent
            )
            out["max_delay_ms"] = float(q.max_delay_ms.max())
            dropped = q.dropped_full + q.dropped_enqueue + q.dropped_dequeue
            out["drop_share"] = float(dropped.sum() / max(came, 1))
            out["mark_share"] = float(q.marked_packets.sum() / max(came, 1))
        labels = self.labels.loc[:, ~self.labels.columns.duplicated()]
        if "completion_s" in flows and "kind" in labels and (labels["kind"] == "transfer").any():
            took_s = checked(self, "flows", ["completion_s"])["completion_s"]
            out["completed"] = int(took_s.notna().sum())
            out["mean_completion_s"] = float(took_s.mean())
        return out

    # -- files
    # ---------------------------------------------------------------------------------------------------------

    def to_pcap(
        self, directory: str | os.PathLike[str], name: str | None = None, *, suffix: str = ".pcap.gz",
        snaplen: int = 96,
    ) -> list[Path]:  # fmt: skip
        """Write both taps as captures, with labels and scenario, like the bundled traces.

        Parameters
        ----------
        directory : path
            Receives ``NAME.ingress.pcap.gz``, ``NAME.egress.pcap.gz``, ``NAME.labels.csv`` and ``NAME.scenario.toml``,
            all or none of them. :func:`load_run` reads them as ``directory/NAME``.
        name : str, optional
            By default the name of the scenario.
        suffix : str
            Ending of the captures, as for :class:`~cctoolkit.PcapWriter`.
        snaplen : int
            Snap length in bytes; payload is zeros, so the default keeps only headers.

        Raises
        ------
        ParameterError
            The taps were not recorded.
        """
        from ..capture.writer import write_pcap

        if self.ingress is None or self.egress is None:
            raise ParameterError("run: the taps were not recorded (use simulate(..., record=True))")
        stem = name or self.name
        if os.sep in stem or stem.startswith("."):
            raise ParameterError(f"name: {stem!r} cannot be part of a file name")
        names = [f"{stem}.{tap}{suffix}" for tap in ("ingress", "egress")] + [f"{stem}.labels.csv"]
        with replacing_files(directory) as folder:
            for file, capture in zip(names, (self.ingress, self.egress), strict=False):
                write_pcap(folder / file, capture, snaplen=snaplen, comment=self.made_by)
            self._write_labels(folder / names[-1])
            if self.scenario is not None:
                names.append(f"{stem}.scenario.toml")
                _write_text(folder / names[-1], self.scenario.to_toml())
        return [Path(directory) / file for file in names]

    def _write_labels(self, path: Path) -> None:
        with replacing(path) as tmp:
            write_csv(arguments.table("labels", self.labels, (), LABELS)[list(LABELS)], tmp)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write everything into a new directory: tables as Parquet, the scenario as TOML, the labels as CSV.

        The directory appears only when complete, and replaces an earlier saved run.

        Raises
        ------
        ParameterError
            Something else is in its place.
        """
        about = {"format": _FORMAT, "version": __version__} | {key: getattr(self, key) for key in _FACTS}
        provenance = {"made_by": self.made_by, "version": __version__, "run": self.name}
        if self.scenario is not None:
            provenance["seed"] = str(self.scenario.seed)
        with replacing_directory(Path(directory)) as folder:
            if self.scenario is not None:
                _write_text(folder / "scenario.toml", self.scenario.to_toml())
            self._write_labels(folder / "labels.csv")
            for name in _COLUMNS:
                table = getattr(self, name)
                if table is not None and len(table.columns):
                    parquet.write(table, folder / f"{name}.parquet", provenance)
            for tap in ("ingress", "egress"):
                capture = getattr(self, tap)
                if capture is not None:
                    _save_capture(capture, folder / tap, provenance)
            _write_text(folder / "run.json", json.dumps(about, indent=1) + "\n")
        return Path(directory)

    # -- display
    # -------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        taps = "" if self.ingress is None else f", {len(self.ingress)} packets at the ingress tap"
        return f"<Run {self.name}: {len(self.flows)} flows{taps}; {self.made_by}>"

    def _repr_html_(self) -> str:
        facts = [("made by", self.made_by)]
        if self.scenario is not None:
            facts += scenario_facts(self.scenario)
        facts += [(name.replace("_", " "), _short(value)) for name, value in self.summary().items()]
        if self.ingress is not None and self.egress is not None:
            facts.append(
                (
                    "packets at the taps",
                    f"{len(self.ingress):,} before the queue, {len(self.egress):,} after it",
                )
            )
        left = "text-align:left"
        rows = "".join(
            f"<tr><th style='{left}'>{html.escape(k)}</th><td style='{left}'>{html.escape(v)}</td></tr>"
            for k, v in facts
        )
        parts = [f"<h4>{html.escape(self.name)}</h4><table>{rows}</table>"]
        for table in (overview(self.flows, FLOW_OVERVIEW), overview(self.queues, QUEUE_OVERVIEW)):
            if len(table):
                parts.append(
                    table.head(_SHOWN).to_html(index=False, border=0, na_rep="", float_format=_short)
                )
                if len(table) > _SHOWN:
                    parts.append(f"<p>{_SHOWN} of {len(table):,}</p>")
        return "".join(parts)


_SHOWN = 20
#: Columns shown in the display of a run.
FLOW_OVERVIEW = (
    "flow_id", "name", "base_rtt_ms", "start_s", "end_s", "goodput_mbps", "mean_rtt_ms", "min_rtt_ms", "sent_packets",
    "retransmits", "timeouts", "dropped_packets", "marked_packets",
)  # fmt: skip
QUEUE_OVERVIEW = (
    "queue", "arrived_packets", "sent_packets", "dropped_full", "dropped_enqueue", "dropped_dequeue",
    "marked_packets", "mean_delay_ms", "max_delay_ms",
)  # fmt: skip


def checked(run: Run, name: str, numbers: Iterable[str] = ()) -> pd.DataFrame:
    """One of a run's tables, checked for the columns that every run has and for these.

    Raises
    ------
    SchemaError
        A column is missing or not numeric.
    """
    columns = _COLUMNS[name]
    numbers = [*(column for column in columns if column not in _TEXT), *numbers]
    texts = [column for column in columns if column in _TEXT]
    table = arguments.table(name, getattr(run, name), numbers, texts, error=SchemaError)
    nullable = [column for column in numbers if not isinstance(table[column].dtype, np.dtype)]
    return table.assign(
        **{column: table[column].to_numpy(np.float64, na_value=np.nan) for column in nullable}
    )


def overview(table: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """The given columns, if present; of many queues, only those with packets."""
    if "arrived_packets" in table and len(table) > 2:
        table = table[table.arrived_packets > 0]
    return table[[c for c in columns if c in table]]


def scenario_facts(scenario: Scenario) -> list[tuple[str, str]]:
    """The scenario in a few lines, for display."""
    b = scenario.bottleneck
    queue = b.queue_list()[0]
    room = [
        f"{n} {unit}" for n, unit in ((queue.buffer_packets, "packets"), (queue.buffer_bytes, "bytes")) if n
    ]
    aqms = list(dict.fromkeys(q.aqm.name for q in b.queue_list() if q.aqm is not None))
    changes = f", then {len(b.rate_schedule)} changes" if b.rate_schedule else ""
    return [
        ("link", f"{b.rate_mbps:g} Mbit/s{changes}"),
        ("queue", f"{', '.join(aqms)}; {' and '.join(room)}; scheduler {b.scheduler}"),
        ("duration", f"{scenario.duration_s:g} s"),
        ("seed", str(scenario.seed)),
    ]


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _utilisation(scenario: Scenario, sent_bytes: int) -> float:
    """Share of the link's capacity that was used: at most 1, if no more was sent than a link can."""
    capacity = _capacity_bits(scenario)
    sent = 8.0 * sent_bytes
    # a frame counts when its transmission begins, so the last one may end after the scenario does
    last_frame = 8 * max((flow.packet_bytes for flow in scenario.flows), default=0)
    # and so may the last one before each change of the rate
    frames = 1 + len(scenario.bottleneck.rate_schedule)
    return (capacity if capacity < sent <= capacity + frames * last_frame else sent) / capacity


def _capacity_bits(scenario: Scenario) -> float:
    """Bits that the link can send during the scenario, by its rate schedule."""
    steps = [(0.0, scenario.bottleneck.rate_mbps), *scenario.bottleneck.rate_schedule]
    ends = [s for s, _ in steps[1:]] + [scenario.duration_s]
    limit = scenario.duration_s
    return sum(
        (min(end, limit) - min(start, limit)) * mbps * 1e6
        for (start, mbps), end in zip(steps, ends, strict=True)
    )


# ---- writing and reading ---------------------------------------------------------------------------------------------


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as tmp:
        tmp.write_text(text, encoding="utf-8")


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory for a run, which replaces the run in `path` on success; other files there stay.

    Errors are those of a saved run.
    """
    check_run_target(path)
    with replacing_folder(path, keep=lambda name: not _is_of_a_run(name)) as folder:
        yield folder


def _is_of_a_run(name: str) -> bool:
    """Whether a saved run, of the simulator or the testbed, may have a file or folder of this name."""
    stem = name.split(".")[0]
    return name in ("run.json", "provenance.json", "scenario.toml", "labels.csv", "qdisc.json") or (
        stem in _COLUMNS or stem in ("ingress", "egress")
    )


def check_run_target(path: Path) -> None:
    """Raise if no run can be saved there.

    Raises
    ------
    ParameterError
        `path` is a URL or ``-``, or holds something other than a saved run.
    OSError
        As for :func:`cctoolkit._support.atomic.check_target`.
    """
    check_target(path, folder=path.is_dir())
    saved = any((path / name).is_file() for name in ("run.json", "provenance.json"))
    if path.exists() and not saved and (not path.is_dir() or any(path.iterdir())):
        raise ParameterError(f"{path}: exists and is not a saved run")


def _save_capture(capture: Capture, folder: Path, provenance: Mapping[str, Any]) -> None:
    about = {**provenance, "meta": dataclasses.asdict(capture.meta)}
    write_parquet(capture.packets, folder / "packets.parquet", "packets", about)
    write_parquet(capture.sacks, folder / "sacks.parquet", "sacks", about)
    keys = {}
    for f in dataclasses.fields(FlowKeys):
        column = getattr(capture.keys, f.name)
        keys[f.name] = [row.tobytes() for row in column] if column.ndim == 2 else column
    parquet.write(pd.DataFrame(keys), folder / "keys.parquet", provenance)


#: Columns of the keys by type, and how many values a row has where that is not one.
_KEY_TYPES = {
    "flow_id": np.uint32, "ip_version": np.uint8, "protocol": np.uint8, "sport": np.uint16, "dport": np.uint16,
    "src": np.uint8, "dst": np.uint8, "saw_syn": np.bool_, "mss": np.uint16, "window_scale": np.uint8,
    "sack_permitted": np.bool_,
}  # fmt: skip
_KEY_WIDTHS = {"src": 16, "dst": 16, "mss": 2, "window_scale": 2, "sack_permitted": 2}


def _load_capture(folder: Path) -> Capture:
    try:
        packets, about = read_parquet(folder / "packets.parquet", "packets")
        sacks, _ = read_parquet(folder / "sacks.parquet", "sacks")
    except FileNotFoundError as err:
        raise SchemaError(f"{err.filename or folder}: is missing") from None
    except SchemaError as err:  # of a table, which does not know its file
        raise SchemaError(str(err) if str(folder) in str(err) else f"{folder}: {err}") from None
    keys = _load_keys(folder / "keys.parquet")
    unknown = ~packets["flow_id"].isin(keys.flow_id)
    if unknown.any():
        raise SchemaError(f"{folder}: packet {unknown.argmax()} is of flow {packets.flow_id[unknown.argmax()]}, "
                          "which keys.parquet lacks")  # fmt: skip
    if len(sacks) and sacks["packet"].max() >= len(packets):
        raise SchemaError(f"{folder}: sacks.parquet names packet {sacks['packet'].max()} of {len(packets)}")
    columns = {name: np.ascontiguousarray(packets[name].to_numpy()) for name in packets.columns}
    rows = np.stack([sacks[c].to_numpy(np.int64) for c in sacks.columns], axis=1)
    try:
        meta = _meta_of(about["meta"])
    except (KeyError, TypeError, ParameterError) as err:
        raise SchemaError(f"{folder / 'packets.parquet'}: not the packets of a run ({err})") from None
    return Capture(columns, keys, meta, rows)


def _meta_of(about: Any) -> CaptureMeta:
    meta = CaptureMeta(**about)
    empty = CaptureMeta("")
    for f in dataclasses.fields(meta):
        value, kind = getattr(meta, f.name), type(getattr(empty, f.name))
        if kind is int or (f.name == "dropped" and value is not None):
            _nanoseconds(f.name, value)
        elif type(value) is not kind:
            raise TypeError(f"{f.name} is no {kind.__name__}")
    if not all(isinstance(text, str) for text in (*meta.link_types, *meta.notes, *meta.counts)):
        raise TypeError("link_types, notes and counts must be text")
    for name, count in meta.counts.items():
        _nanoseconds(name, count)
    return meta


def _load_keys(path: Path) -> FlowKeys:
    table = _read_table(path)
    keys: dict[str, np.ndarray] = {}
    for name, dtype in _KEY_TYPES.items():
        if name not in table:
            raise SchemaError(f"{path}: column {name!r} is missing")
        try:
            if name in _KEY_WIDTHS:
                packed: np.ndarray = np.frombuffer(b"".join(table[name]), dtype)
                keys[name] = packed.reshape(len(table), _KEY_WIDTHS[name]).copy()
            else:
                keys[name] = table[name].to_numpy().astype(dtype, casting="equiv")
        except (TypeError, ValueError):
            width = _KEY_WIDTHS.get(name)
            expected = f"{width} x {np.dtype(dtype)}" if width else np.dtype(dtype)
            raise SchemaError(f"{path}: column {name!r} is not {expected} in each row") from None
    if np.any(np.diff(keys["flow_id"].astype(np.int64)) <= 0):
        raise SchemaError(f"{path}: column 'flow_id' does not increase from row to row")
    return FlowKeys(**keys)


def _read_table(path: Path) -> pd.DataFrame:
    """A Parquet file that is not one of :data:`cctoolkit.schema.TABLES`."""
    try:
        return parquet.frame(parquet.read(path), path)
    except FileNotFoundError:
        raise SchemaError(f"{path}: is missing") from None


def load_run(path: str | os.PathLike[str], *, check_taps: bool = True) -> Run:
    """Read a run from files.

    Parameters
    ----------
    path : path
        A directory written by :meth:`Run.save` or a testbed; or ``DIRECTORY/NAME`` for ``NAME.ingress.pcap…``,
        ``NAME.egress.pcap…`` (pcap or pcapng, compressed or not) and ``NAME.labels.csv`` in it, as written by a
        switch or :meth:`Run.to_pcap` (``load_run("traces/cubic")``). The directory alone is enough if it has a
        single pair. Labels and ``NAME.scenario.toml`` may be missing.
    check_taps : bool
        Refuse a pair of captures that cannot be taps before and after a queue (:func:`cctoolkit.compare_taps`).

    Returns
    -------
    Run
        A run from captures has no queues and no series. Flows are numbered by their row in the labels, followed by
        flows without labels.

    Raises
    ------
    ParameterError
        There is no run at `path`; or the pair is swapped, has no packet in common, or its clocks differ too much.
    SchemaError, CaptureFormatError
        A file is invalid.

    See Also
    --------
    Run.save, Run.to_pcap : write a run
    example : a bundled run

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50),
    ...     flows=[cct.Flow("reno", rtt_ms=20)],
    ...     duration_s=1,
    ... )
    >>> run = cct.simulate(scenario)
    >>> cct.load_run(run.save("reno")).summary() == run.summary()
    True
    """
    path = Path(path)
    if (path / "run.json").is_file():
        return _load_saved(path)
    if (path / "provenance.json").is_file():
        return _load_testbed(path)
    found = sorted(path.parent.glob(f"{_literal(path.name)}.ingress.pcap*"))
    if not found and path.is_dir():
        found = sorted(path.glob("*.ingress.pcap*"))
        if len(found) > 1:
            names = ", ".join(p.name.split(".ingress.")[0] for p in found)
            raise ParameterError(f"{path}: has several runs ({names}); use {path}/NAME")
    if not found:
        raise ParameterError(
            f"{path}: is neither a saved run nor a pair of captures NAME.ingress.pcap, NAME.egress.pcap"
        )
    name = found[0].name.split(".ingress.")[0]
    return _load_pair(found[0], found[0].parent, name, check_taps)


def _literal(name: str) -> str:
    import glob

    return glob.escape(name)


def _load_saved(folder: Path) -> Run:
    try:
        about = read_json(folder / "run.json", "a saved run")
        if about["format"] != _FORMAT:
            raise SchemaError(f"{folder}: format {about['format']}, this package reads {_FORMAT}")
        facts = _facts_of(about, *_FACTS)
    except (ValueError, KeyError, TypeError) as err:
        raise SchemaError(f"{folder / 'run.json'}: not a saved run ({type(err).__name__}: {err})") from None
    toml = folder / "scenario.toml"
    tables = _load_tables(folder)
    taps: dict[str, Any] = {
        tap: _load_capture(folder / tap) for tap in ("ingress", "egress") if (folder / tap).is_dir()
    }
    labels = _read_labels(folder / "labels.csv")
    if len(labels) != len(tables["flows"]):
        raise SchemaError(
            f"{folder}: labels.csv has {len(labels)} rows, flows.parquet {len(tables['flows'])}"
        )
    labels.insert(0, "flow_id", tables["flows"].flow_id.to_numpy())
    return Run(
        scenario=read_scenario(toml) if toml.is_file() else None,
        labels=labels,
        **facts,
        **tables,
        **taps,
    )


def _load_tables(folder: Path) -> dict[str, Any]:
    tables = {}
    for name, columns in _COLUMNS.items():
        path = folder / f"{name}.parquet"
        if not path.is_file():
            continue
        table = tables[name] = _read_table(path)
        if len(table.columns) or name == "flows":  # a run without, say, drops has a table without columns
            _check_columns(table, columns, path)
    if "flows" not in tables:
        raise SchemaError(f"{folder / 'flows.parquet'}: is missing")
    if tables["flows"].flow_id.duplicated().any():
        raise SchemaError(f"{folder / 'flows.parquet'}: column 'flow_id' has duplicates")
    return tables


def _check_columns(table: pd.DataFrame, required: Iterable[str], path: Path) -> None:
    """Raise for columns that are missing or hold something other than what a run writes."""
    if not table.columns.is_unique:
        raise SchemaError(f"{path}: a column occurs twice")
    for column in required:
        if column not in table:
            raise SchemaError(f"{path}: column {column!r} is missing")
    for column in table.columns.intersection([*required, *_OPTIONAL]):
        why = _why_not(column, table[column])
        if why:
            raise SchemaError(f"{path}: column {column!r} {why}")


def _why_not(name: str, column: pd.Series) -> str:
    """What is wrong with a column; empty if nothing."""
    if name in _TEXT:
        try:
            texts = column.dropna().unique()
        except TypeError:  # lists, tables
            return "is not text"
        if not all(isinstance(text, str) for text in texts):
            return "is not text"
        longest = max(map(len, texts), default=0)
        return f"has {longest:,} characters in a row" if longest > MOST_CHARACTERS else ""
    types = pd.api.types
    if not types.is_numeric_dtype(column) or types.is_bool_dtype(column) or types.is_complex_dtype(column):
        return f"is {column.dtype}, expected numbers"
    if name in _NUMBERED and (not types.is_integer_dtype(column) or column.isna().any()):
        return "is not a whole number in every row"
    if name in _NUMBERED or name.endswith(_COUNTED):
        known = column.dropna()
        low, high = (-1, 2**53) if name != "ts_ns" else (-(2**63), 2**63 - 1)
        if len(known) and not (known.min() >= low and known.max() <= high):
            return "has values out of range"
    return ""


def _facts_of(about: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Name, maker, start and events of a run."""
    facts = {}
    for name in names:
        value = about[name]
        check = short_text if _FACTS[name] is str else _nanoseconds
        facts[name] = check(name, value)
    return facts


def _nanoseconds(where: str, value: Any) -> int:
    return whole(where, value, low=-(2**62), high=2**62)


def _load_testbed(folder: Path) -> Run:
    from ..capture.reader import read_capture

    try:
        about = read_json(folder / "provenance.json", "a testbed run")
        facts = _facts_of(about, "name", "made_by", "start_ns")
    except (ParameterError, KeyError, TypeError) as err:
        raise SchemaError(
            f"{folder / 'provenance.json'}: not a testbed run ({type(err).__name__}: {err})"
        ) from None
    labels = _read_labels(folder / "labels.csv")
    names = ("ingress", "egress")
    captures = renumbered(labels, *(read_capture(folder / f"{tap}.pcap.gz") for tap in names))
    taps: dict[str, Any] = dict(zip(names, captures, strict=True))
    labels.insert(0, "flow_id", np.arange(len(labels), dtype=np.uint32))
    scenario = read_scenario(folder / "scenario.toml")
    return Run(scenario=scenario, labels=labels, **facts, **_load_tables(folder), **taps)


def _load_pair(ingress_path: Path, folder: Path, name: str, check_taps: bool) -> Run:
    from ..analysis.tap_comparison import compare_taps
    from ..capture.reader import read_capture

    behind = sorted(folder.glob(f"{_literal(name)}.egress.pcap*"))
    if not behind:
        raise ParameterError(f"{folder / name}: has an ingress capture but no {name}.egress.pcap…")
    ingress, egress = read_capture(ingress_path), read_capture(behind[0])
    if check_taps:
        compare_taps(ingress, egress).check(stacklevel=3)
    labels_path, toml = folder / f"{name}.labels.csv", folder / f"{name}.scenario.toml"
    labels = _read_labels(labels_path) if labels_path.is_file() else _labels_of(ingress)
    labels.insert(0, "flow_id", np.arange(len(labels), dtype=np.uint32))
    ingress, egress = renumbered(labels, ingress, egress)
    known = labels["start_ns"].dropna()
    start_ns = int(min(known)) if len(known) else ingress.meta.first_ts_ns
    return Run(
        scenario=read_scenario(toml) if toml.is_file() else None,
        made_by=f"captures {ingress_path.name}, {behind[0].name}",
        labels=labels,
        flows=_flows_of(labels, start_ns),
        ingress=ingress,
        egress=egress,
        name=name,
        start_ns=start_ns,
    )


def _read_labels(path: Path) -> pd.DataFrame:
    blank = {c: [""] for c in (*_NUMBERS, "start_ns", "stop_ns")}
    types: dict[str, Any] = {
        **dict.fromkeys(("src", "dst", "kind", "data_from", "cca"), str),
        "start_ns": "Int64",
        "stop_ns": "Int64",
    }
    try:
        table = read_csv(path, dtype=types, keep_default_na=False, na_values=blank)
        for column in LABELS:
            if column not in table:
                raise SchemaError(f"{path}: labels: column {column!r} is missing")
        for column in _NUMBERS:
            table[column] = table[column].astype("Float64")
        for column in _TEXT[2:]:
            if column in table and table[column].str.len().max() > MOST_CHARACTERS:
                raise SchemaError(
                    f"{path}: labels: {column}: more than {MOST_CHARACTERS} characters in a row"
                )
        for column, kind in _PORTS.items():
            if not table[column].between(0, np.iinfo(kind).max).all():
                raise SchemaError(f"{path}: labels: {column}: expected 0 to {np.iinfo(kind).max} in each row")
        return table.astype(_PORTS)
    except OSError as err:
        raise SchemaError(f"{path}: {err.strerror}") from None
    except (ValueError, TypeError, OverflowError) as err:  # pandas' errors of parsing are ValueErrors
        raise SchemaError(f"{path}: labels: {first_line(err, 'not a table')}") from None


def _ends(keys: FlowKeys) -> list[_Ends]:
    return list(
        zip(keys.src_text(), keys.dst_text(), keys.sport.tolist(), keys.dport.tolist(), keys.protocol.tolist(),
            strict=True)
    )  # fmt: skip


def _labels_of(capture: Capture) -> pd.DataFrame:
    """Labels with only addresses and ports, for flows without a label."""
    table = pd.DataFrame(_ends(capture.keys), columns=list(_KEY))
    for column in LABELS[len(_KEY) :]:
        text = column in ("kind", "data_from", "cca")
        table[column] = (
            "" if text else pd.array([None] * len(table), "Float64" if column in _NUMBERS else "Int64")
        )
    return table


_Ends = tuple[str, str, int, int, int]


def _numbers_of(labels: pd.DataFrame) -> dict[tuple[_Ends, int], int]:
    ends = labels[list(_KEY)].itertuples(index=False, name=None)
    return {known: i for i, known in enumerate(_occurrences(ends))}


def renumbered(labels: pd.DataFrame, *taps: Capture) -> list[Capture]:
    """Number the flows of taps by their row in the labels; flows without a label follow, with the same numbers."""
    numbers = _numbers_of(labels)
    return [_renumbered(tap, numbers) for tap in taps]


def _occurrences(ends: Iterable[_Ends]) -> list[tuple[_Ends, int]]:
    """Addresses and ports with the number of earlier occurrences, since a port may be reused."""
    seen: Counter[_Ends] = Counter()
    out = []
    for e in ends:
        out.append((e, seen[e]))
        seen[e] += 1
    return out


def _renumbered(capture: Capture, numbers: dict[tuple[_Ends, int], int]) -> Capture:
    """Give flows of a capture these numbers; further flows get the next ones, and are added to `numbers`.

    A flow known in the other direction is reversed: without a SYN, a tap assumes that the first sender is the
    initiator.
    """
    keys = capture.keys
    ends = _ends(keys)
    turn = np.array([(e, 0) not in numbers and (_reversed(e), 0) in numbers for e in ends], np.bool_)
    known = _occurrences(_reversed(e) if t else e for e, t in zip(ends, turn, strict=True))
    new = np.array([numbers.setdefault(k, len(numbers)) for k in known], np.uint32)
    row = np.searchsorted(keys.flow_id, capture.columns["flow_id"])
    columns = capture.columns | {
        "flow_id": new[row],
        "direction": capture.columns["direction"] ^ turn[row].astype(np.int8),
    }
    swapped: dict[str, np.ndarray] = {}
    for one, other in (("src", "dst"), ("sport", "dport")):
        x, y = getattr(keys, one), getattr(keys, other)
        where = turn[:, None] if x.ndim == 2 else turn
        swapped |= {one: np.where(where, y, x), other: np.where(where, x, y)}
    for name in ("mss", "window_scale", "sack_permitted"):
        both = getattr(keys, name)
        swapped[name] = np.where(turn[:, None], both[:, ::-1], both)
    keys = dataclasses.replace(keys, flow_id=new, **swapped)
    return Capture(columns, keys.take(np.argsort(new)), capture.meta, capture.sacks.to_numpy(np.int64))


def _reversed(ends: _Ends) -> _Ends:
    return ends[1], ends[0], ends[3], ends[2], ends[4]


def _flows_of(labels: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    start_s = ((labels.start_ns - start_ns) / 1e9).astype("Float64").to_numpy(np.float64, na_value=np.nan)
    end_s = ((labels.stop_ns - start_ns) / 1e9).astype("Float64").to_numpy(np.float64, na_value=np.nan)
    acked = labels.bytes_acked.to_numpy(np.float64, na_value=np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        goodput = acked * 8e-6 / (end_s - start_s)
    return pd.DataFrame(
        {
            "flow_id": labels.flow_id,
            "name": labels.cca.where(labels.cca != "", labels.kind),
            "cca": labels.cca,
            "base_rtt_ms": labels.base_rtt_ms.to_numpy(np.float64, na_value=np.nan),
            "start_s": start_s,
            "end_s": end_s,
            "received_bytes": acked,
            "goodput_mbps": goodput,
            "retransmits": labels.retransmits,
            "min_rtt_ms": labels.min_rtt_us.to_numpy(np.float64, na_value=np.nan) / 1e3,
        }
    )
