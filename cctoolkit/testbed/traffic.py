"""All traffic of a testbed run by one small program, ``traffic.c``: sources, sinks and samples of TCP_INFO.

The program is one process for all flows. It enters each flow's network namespaces to open its sockets and then serves
them from one epoll loop with few system calls, which is what makes virtual time fast. It decides nothing by host time,
addresses or memory layout, so that in virtual time the same plan gives the same packets.

    traffic PLAN DIRECTORY [--epoch NS] [--host NAME]

``PLAN`` is the text of :func:`plan_text`; results appear in ``DIRECTORY`` (which exists) when the run is over.
``--epoch`` is CLOCK_REALTIME in nanoseconds at which the run's time 0 is (it waits for it; without it, or if it has
passed, time 0 is when all sockets are open). With ``--host`` only those ends are opened whose namespace is called
NAME, and in the namespace the program was started in: one such process on each physical host makes the same run.
SIGINT and SIGTERM end the run early, as if its duration were over. Exit status 0; 1 with one line on standard error
(``traffic: flow 3: …``) when a socket could not be set up or a controller's command failed. What goes wrong with one
connection later is in its row of the results, and the others go on.

The plan
--------
A line is a word and ``key=value`` pairs; times are nanoseconds since time 0, addresses IPv4 or IPv6::

    traffic 1
    run duration_ns=20000000000 sample_ns=100000000
    queues netns=/run/netns/R device=rb
    control interval_ns=500000000 directory=/run/control spin=1
    command tc -n R -batch
    flow index=0 protocol=tcp source=/run/netns/S0 sink=/run/netns/D0 from=10.1.0.1 to=10.2.0.1 sport=… dport=… …

Namespaces are paths of namespace files, or ``-`` for the one the program was started in.

Results
-------
``flows.csv``, ``series.bin`` and, with ``queues``, ``queues.bin``; :func:`read_results` makes tables of them. Times
in results are CLOCK_REALTIME (time 0 plus CLOCK_MONOTONIC since), the clock of the captures. While it runs, a file
``progress`` says how many nanoseconds of the run have passed.

Control
-------
At every ``interval_ns`` (k = 1, 2, …) the program writes ``directory/queues.K`` (with ``queues``; :func:`read_queues`
reads it) and then ``directory/status.K``, whole at once (:func:`read_series` reads it: the TCP_INFO of the moment, and
for UDP flows bytes sent and packets delivered), and waits for ``directory/answer.K``, which has to appear whole (by
renaming). An empty answer means: go on. Otherwise the words of ``command`` and the answer's path are run, in the
namespace the program was started in, and have to exit with 0. Then all these files are removed. With ``spin=1`` it
waits without sleeping, so that virtual time of a kernel with unlimited CPU speed stands still until the answer is
there; with ``spin=0`` (real time) traffic goes on meanwhile. At the end it writes ``directory/end``.

Queues
------
With ``queues`` the statistics of all queueing disciplines of one device (as ``tc -s qdisc show dev`` reports them)
are read at every sample.
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from ..errors import ParameterError, SchemaError, TestbedUnavailableError

__all__ = [
    "Control",
    "TrafficFlow",
    "TrafficResults",
    "binary",
    "plan_text",
    "read_queues",
    "read_results",
    "read_series",
    "status_time_ns",
]

_WORD = re.compile(r"[A-Za-z0-9_.:/@%+,=-]+")
_ETHERNET, _TCP_WITH_TIMESTAMPS, _UDP = 14, 32, 8


@dataclass(frozen=True, kw_only=True)
class TrafficFlow:
    """One flow, as the traffic program runs it; the source sends the data.

    Parameters
    ----------
    index : int
        The flow's number in the results.
    source_netns, sink_netns : str
        Paths of namespace files; ``"-"``: the one the program is started in. With ``--host``, names of hosts.
    source_address, sink_address : str
        IPv4 or IPv6, both of one family.
    source_port, sink_port : int
    cca : str
        The kernel's name of a congestion control, set on both ends before the connection is made (DCTCP has to be
        known when ECN is agreed), or ``"udp"``.
    start_ns : int
        The connection is opened (UDP: the first packet is sent).
    stop_ns : int, optional
        The application stops writing and closes; what was written is still delivered.
    bytes : int, optional
        Payload to send, then close.
    rate_bps : float, optional
        What the application writes, in bits on the wire a second, in whole packets. Needed for UDP.
    arrivals : str
        Of UDP: ``"cbr"`` or ``"poisson"``.
    on_ns, off_ns : int, optional
        The application writes for `on_ns` from its start, pauses for `off_ns`, and so on.
    on_off : str
        ``"fixed"``, or ``"exponential"``: these are means.
    packet_bytes : int
        Of a full frame with Ethernet header, IP header, and 32 bytes of TCP (with timestamps) or 8 of UDP.
    max_window_bytes : int, optional
        Receiver's window, at least 2304; in the first round trip a few packets more. Without it, it never limits.
    unsent_bytes : int
        So much is kept written and not yet sent of a flow that sends as much as it can. It is still delivered after
        `stop_ns`.
    tos : int
        The IP header's TOS byte (UDP: with the ECN codepoint; TCP's ECN bits belong to the kernel).
    seed : int
        Of Poisson arrivals and exponential pauses.
    """

    index: int
    source_netns: str
    sink_netns: str
    source_address: str
    sink_address: str
    source_port: int
    sink_port: int
    cca: str = "cubic"
    start_ns: int = 0
    stop_ns: int | None = None
    bytes: int | None = None
    rate_bps: float | None = None
    arrivals: str = "cbr"
    on_ns: int | None = None
    off_ns: int | None = None
    on_off: str = "fixed"
    packet_bytes: int = 1514
    max_window_bytes: int | None = None
    unsent_bytes: int = 65536
    tos: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        where = f"flow {self.index}"
        versions = set()
        for name in ("source_address", "sink_address"):
            try:
                versions.add(ipaddress.ip_address(getattr(self, name)).version)
            except ValueError:
                raise ParameterError(f"{where}: {name}: {getattr(self, name)!r} is not an address") from None
        if len(versions) != 1:
            raise ParameterError(f"{where}: source_address and sink_address are of two families")
        for name in ("source_netns", "sink_netns", "cca"):
            _check_word(f"{where}: {name}", getattr(self, name))
        for name in ("source_port", "sink_port"):
            if not 1 <= getattr(self, name) <= 65535:
                raise ParameterError(f"{where}: {name}: {getattr(self, name)!r} is not a port (1 to 65535)")
        if self.arrivals not in ("cbr", "poisson"):
            raise ParameterError(f"{where}: arrivals: {self.arrivals!r} is none of cbr, poisson")
        if self.on_off not in ("fixed", "exponential"):
            raise ParameterError(f"{where}: on_off: {self.on_off!r} is none of fixed, exponential")
        if (self.on_ns is None) != (self.off_ns is None):
            raise ParameterError(f"{where}: on_ns and off_ns: give both or neither")
        if self.is_udp and self.rate_bps is None:
            raise ParameterError(f"{where}: rate_bps: UDP needs one")
        # The kernel takes a maximum segment size (without options) from 88 to 32767 bytes, a UDP packet from 1.
        low, high = (1, 65535 - 40 - _UDP) if self.is_udp else (88 - 12, 32767 - 12)
        if not low <= self.payload_bytes <= high:
            raise ParameterError(
                f"{where}: packet_bytes: {self.packet_bytes!r} leaves {self.payload_bytes} bytes of payload; "
                f"{'UDP' if self.is_udp else 'TCP'} can have {low} to {high}"
            )

    @property
    def is_udp(self) -> bool:
        """Without congestion control."""
        return self.cca == "udp"

    @property
    def payload_bytes(self) -> int:
        """Of a full packet."""
        ip = 20 if ipaddress.ip_address(self.source_address).version == 4 else 40
        return self.packet_bytes - _ETHERNET - ip - (_UDP if self.is_udp else _TCP_WITH_TIMESTAMPS)


@dataclass(frozen=True, kw_only=True)
class Control:
    """A controller outside that is asked every `interval_ns` (see "Control" above).

    Parameters
    ----------
    interval_ns : int
    directory : str
        Where status and answers are, as the traffic program sees it.
    command : sequence of str
        Run with an answer's path as its last argument, such as ``("tc", "-n", "R", "-batch")``.
    spin : bool
        Wait without sleeping (virtual time).
    """

    interval_ns: int
    directory: str
    command: Sequence[str]
    spin: bool = True


class TrafficResults(NamedTuple):
    """What the traffic program left.

    Attributes
    ----------
    start_ns, end_ns : int
        Time 0 and the end of the run (CLOCK_REALTIME).
    flows : DataFrame
        One row a flow by ``index``: ``cca`` (as the kernel reported it at the end; ``"udp"``), ``start_ns`` (the
        connection was opened), ``established_ns``, ``finished_ns`` (all was acknowledged and the other end had
        closed; with UDP, the last packet was sent), ``written_bytes`` (payload given to the kernel), ``acked_bytes``,
        ``received_bytes`` (by the sink), ``sent_packets`` and ``received_packets`` (UDP: datagrams; TCP: segments
        sent, with and without retransmissions counted, and segments delivered), ``retransmits``, ``timeouts``
        (null before Linux 6.7), ``min_rtt_us``, ``rtt_us``, ``delivered_ce``, ``error`` (text; empty: none). What
        did not happen or is not known is null.
    series : DataFrame
        TCP_INFO of every open connection at every sample and at its end; see :func:`read_series`.
    queues : DataFrame
        Statistics of queueing disciplines at every sample: ``ts_ns``, ``handle`` and ``parent`` (as ``tc`` writes
        them: ``"10:"``, ``"1:1"``, ``"root"``), ``kind``, ``bytes`` and ``packets`` (sent), ``backlog_bytes``,
        ``backlog_packets``, ``drops``, ``overlimits``, ``requeues`` and ``xstats`` (bytes: the discipline's own
        statistics as the kernel gives them).
    """

    start_ns: int
    end_ns: int
    flows: pd.DataFrame
    series: pd.DataFrame
    queues: pd.DataFrame


def _check_word(where: str, value: str) -> None:
    if not _WORD.fullmatch(value):
        raise ParameterError(f"{where}: {value!r} has characters a plan cannot have")


def plan_text(
    flows: Sequence[TrafficFlow],
    *,
    duration_ns: int,
    sample_ns: int | None = None,
    queues: tuple[str, str] | None = None,
    control: Control | None = None,
) -> str:
    """The plan the traffic program reads.

    Parameters
    ----------
    flows : sequence of TrafficFlow
    duration_ns : int
        The run ends; open connections are aborted.
    sample_ns : int, optional
        Interval of the series; without it there is only a flow's last row.
    queues : (str, str), optional
        Namespace and device whose queueing disciplines are read at every sample.
    control : Control, optional

    Raises
    ------
    ParameterError
        A value that a plan cannot carry.
    """
    if duration_ns <= 0 or (sample_ns is not None and sample_ns <= 0):
        raise ParameterError("duration_ns and sample_ns must be positive")
    lines = ["traffic 1", f"run duration_ns={duration_ns} sample_ns={sample_ns or 0}"]
    if queues is not None:
        for value in queues:
            _check_word("queues", value)
        lines.append(f"queues netns={queues[0]} device={queues[1]}")
    if control is not None:
        for value in (control.directory, *control.command):
            _check_word("control", value)
        if control.interval_ns <= 0 or not control.command:
            raise ParameterError("control: interval_ns must be positive and command has to have words")
        lines.append(
            f"control interval_ns={control.interval_ns} directory={control.directory} spin={int(control.spin)}"
        )
        lines.append(" ".join(("command", *control.command)))
    lines += [_flow_line(flow) for flow in flows]
    return "\n".join(lines) + "\n"


def _flow_line(flow: TrafficFlow) -> str:
    ip = ipaddress.ip_address(flow.source_address)
    packets_per_ns = 0.0 if flow.rate_bps is None else flow.rate_bps / 8e9 / flow.packet_bytes
    values = {
        "index": flow.index,
        "family": ip.version,
        "udp": int(flow.is_udp),
        "cca": flow.cca,
        "source": flow.source_netns,
        "sink": flow.sink_netns,
        "from": ip,
        "to": ipaddress.ip_address(flow.sink_address),
        "sport": flow.source_port,
        "dport": flow.sink_port,
        "start_ns": flow.start_ns,
        "stop_ns": -1 if flow.stop_ns is None else flow.stop_ns,
        "bytes": -1 if flow.bytes is None else flow.bytes,
        "payload": flow.payload_bytes,
        "gap_ns": repr(1 / packets_per_ns) if packets_per_ns else 0,
        "poisson": int(flow.arrivals == "poisson"),
        "on_ns": flow.on_ns or 0,
        "off_ns": flow.off_ns or 0,
        "exponential": int(flow.on_off == "exponential"),
        "window": flow.max_window_bytes or 0,
        "unsent": flow.unsent_bytes,
        "tos": flow.tos,
        "seed": flow.seed,
    }
    return "flow " + " ".join(f"{key}={value}" for key, value in values.items())


# ---- the program -----------------------------------------------------------------------------------------------------


def cache_directory() -> Path:
    """Where the testbed keeps what it builds: ``$XDG_CACHE_HOME`` or ``~/.cache``, then ``cctoolkit/testbed``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cctoolkit" / "testbed"


def binary(source: Path | None = None) -> Path:
    """The traffic program (or another of one C file `source`), compiled once for each version and kept in the cache.

    Raises
    ------
    TestbedUnavailableError
        There is no C compiler, or it fails.
    """
    source = source or Path(__file__).with_name("traffic.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    path = cache_directory() / f"{source.stem}-{digest}"
    if os.access(path, os.X_OK):
        return path
    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        raise TestbedUnavailableError(f"no C compiler (cc) to build {source.name}: install gcc")
    with replacing(path) as tmp:
        # Static where the C library can be had so: the program then runs in any guest and on any host.
        for static in (["-static"], []):
            done = subprocess.run(
                [compiler, "-O2", "-Wall", "-Wextra", *static, "-o", str(tmp), str(source)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                break
        else:
            said = done.stderr.strip().splitlines()
            raise TestbedUnavailableError(
                f"{compiler} does not compile {source.name}: {said[0] if said else 'no message'}"
            )
    path.chmod(0o755)
    return path


# ---- results ---------------------------------------------------------------------------------------------------------

_MAGIC = b"cctktcp1"
_SERIES = np.dtype(
    [
        ("ts_ns", "<i8"),
        ("delivery", "<u8"),
        ("pacing", "<u8"),
        ("bytes_acked", "<u8"),
        ("bytes_sent", "<u8"),
        ("bytes_retrans", "<u8"),
        ("index", "<u4"),
        ("cwnd", "<u4"),
        ("ssthresh", "<u4"),
        ("rtt_us", "<u4"),
        ("rttvar_us", "<u4"),
        ("min_rtt_us", "<u4"),
        ("retransmits", "<u4"),
        ("lost", "<u4"),
        ("delivered", "<u4"),
        ("delivered_ce", "<u4"),
        ("unacked", "<u4"),
        ("mss", "<u4"),
        ("ca_state", "<u4"),
        ("window", "<u4"),
    ]
)
_CA_STATES = ("open", "disorder", "cwr", "recovery", "loss")
_QUEUE_MAGIC = b"cctkqds1"
_QUEUES = np.dtype(
    [
        ("ts_ns", "<i8"),
        ("bytes", "<u8"),
        ("packets", "<u8"),
        ("handle", "<u4"),
        ("parent", "<u4"),
        ("backlog_bytes", "<u4"),
        ("backlog_packets", "<u4"),
        ("drops", "<u4"),
        ("overlimits", "<u4"),
        ("requeues", "<u4"),
        ("xstats_bytes", "<u4"),
        ("kind", "S16"),
        ("xstats", "V128"),
    ]
)


def read_results(directory: str | os.PathLike[str]) -> TrafficResults:
    """What the traffic program wrote into a directory.

    Raises
    ------
    SchemaError
        A file is missing or not the program's.
    """
    folder = Path(directory)
    path = folder / "flows.csv"
    try:
        first, text = path.read_text(encoding="utf-8").split("\n", 1)
        times = {key: int(value) for key, value in (pair.split("=") for pair in first.split()[1:])}
        flows = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values={c: [""] for c in _NULLABLE})
        flows = flows.astype(dict.fromkeys(_NULLABLE, "Int64"))
        results = times["start_ns"], times["end_ns"]
    except (OSError, ValueError, KeyError) as err:
        raise SchemaError(f"{path}: not the traffic program's ({type(err).__name__}: {err})") from None
    series = read_series(folder / "series.bin")
    queues = folder / "queues.bin"
    return TrafficResults(
        *results, flows, series, read_queues(queues) if queues.is_file() else pd.DataFrame()
    )


_NULLABLE = (
    *("start_ns", "established_ns", "finished_ns", "written_bytes", "acked_bytes", "received_bytes"),
    *("sent_packets", "received_packets", "retransmits", "timeouts", "min_rtt_us", "rtt_us", "delivered_ce"),
)


def _records(path: Path, magic: bytes, dtype: np.dtype) -> np.ndarray:
    try:
        data = path.read_bytes()
    except OSError as err:
        raise SchemaError(f"{path}: {err.strerror}") from None
    if data[:8] != magic or (len(data) - 16) % dtype.itemsize:
        raise SchemaError(f"{path}: not the traffic program's, or cut short")
    return np.frombuffer(data, dtype, offset=16)


def read_series(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The TCP_INFO series of ``series.bin``, or of a controller's status file.

    Returns
    -------
    DataFrame
        One row a sample and connection: ``ts_ns``, ``index`` of the flow, ``cwnd_packets``, ``ssthresh_packets``
        (infinite: none yet), ``rtt_us`` (smoothed), ``rttvar_us``, ``min_rtt_us`` (null: none yet; the kernel's
        minimum over the last five minutes), ``delivery_bps`` and ``pacing_bps`` (payload; infinite: not paced),
        ``bytes_acked``, ``bytes_sent`` and ``bytes_retrans`` (payload), ``retransmits``, ``lost_packets`` (believed
        lost and not yet sent again), ``delivered_packets``, ``delivered_ce_packets``, ``unacked_packets``,
        ``window_bytes`` (the receiver's), ``mss_bytes``, ``ca_state`` (``open``, ``disorder``, ``cwr``, ``recovery``,
        ``loss``).

    Raises
    ------
    SchemaError
        Not such a file.
    """
    r = _records(Path(path), _MAGIC, _SERIES)
    known = np.uint32(0xFFFFFFFF)
    return pd.DataFrame(
        {
            "ts_ns": r["ts_ns"],
            "index": r["index"],
            "cwnd_packets": r["cwnd"],
            "ssthresh_packets": np.where(r["ssthresh"] >= 0x7FFFFFFF, np.inf, r["ssthresh"]),
            "rtt_us": r["rtt_us"],
            "rttvar_us": r["rttvar_us"],
            "min_rtt_us": pd.arrays.IntegerArray(r["min_rtt_us"].astype(np.int64), r["min_rtt_us"] == known),
            "delivery_bps": r["delivery"] * 8.0,
            "pacing_bps": np.where(r["pacing"] == np.uint64(2**64 - 1), np.inf, r["pacing"] * 8.0),
            "bytes_acked": r["bytes_acked"],
            "bytes_sent": r["bytes_sent"],
            "bytes_retrans": r["bytes_retrans"],
            "retransmits": r["retransmits"],
            "lost_packets": r["lost"],
            "delivered_packets": r["delivered"],
            "delivered_ce_packets": r["delivered_ce"],
            "unacked_packets": r["unacked"],
            "window_bytes": r["window"],
            "mss_bytes": r["mss"],
            "ca_state": pd.Categorical(
                np.array(_CA_STATES)[np.minimum(r["ca_state"], 4)], categories=list(_CA_STATES)
            ),
        }
    )


def status_time_ns(path: str | os.PathLike[str]) -> int:
    """The moment of a controller's status file (CLOCK_REALTIME), which may have no connection in it."""
    with open(path, "rb") as file:
        return int(struct.unpack("<8sq", file.read(16))[1])


def read_queues(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Statistics of queueing disciplines, of ``queues.bin`` or for a controller: see :class:`TrafficResults`.

    Raises
    ------
    SchemaError
        Not such a file.
    """
    r = _records(Path(path), _QUEUE_MAGIC, _QUEUES)
    names = ("bytes", "packets", "backlog_bytes", "backlog_packets", "drops", "overlimits", "requeues")
    table = pd.DataFrame({"ts_ns": r["ts_ns"]} | {name: r[name] for name in names})
    table.insert(1, "handle", [_handle(x) for x in r["handle"].tolist()])
    table.insert(2, "parent", [_handle(x) for x in r["parent"].tolist()])
    table.insert(3, "kind", [x.decode() for x in r["kind"].tolist()])
    table["xstats"] = [x[:n] for x, n in zip(r["xstats"].tolist(), r["xstats_bytes"].tolist(), strict=True)]
    return table


def _handle(number: int) -> str:
    if number == 0xFFFFFFFF:
        return "root"
    return f"{number >> 16:x}:{number & 0xFFFF:x}" if number & 0xFFFF else f"{number >> 16:x}:"
