"""The traffic of a testbed run, by one small program, ``traffic.c``: sources, sinks and samples of TCP_INFO.

The program is a single process for all flows. It enters the network namespaces of each flow to open its sockets and
then serves them from one epoll loop with few system calls, which makes virtual time fast. Nothing in it depends on
host time, addresses or memory layout, so that in virtual time the same plan gives the same packets.

    traffic PLAN DIRECTORY [--epoch NS] [--host NAME]

``PLAN`` is the text of :func:`plan_text`; results appear in ``DIRECTORY`` (which must exist) at the end of the run.
``--epoch`` is time 0 of the run as CLOCK_REALTIME in ns; the program waits for it (by default, or if it has passed,
time 0 is when all sockets are open). With ``--host``, only ends whose namespace is called NAME are opened, in the
namespace in which the program was started: one such process on each physical host makes up a run. SIGINT and
SIGTERM end the run early, as if its duration were over. The exit status is 0, or 1 with one line on standard error
(``traffic: flow 3: …``) if a socket could not be set up or a controller's command failed. Later errors of a
connection are in its row of the results, and the others continue.

The plan
--------
A line consists of a word and ``key=value`` pairs; times are nanoseconds since time 0, addresses IPv4 or IPv6::

    traffic 1
    run duration_ns=20000000000 sample_ns=100000000
    queues netns=/run/netns/R device=rb
    control interval_ns=500000000 directory=/run/control spin=1
    command tc -n R -batch
    flow index=0 protocol=tcp source=/run/netns/S0 sink=/run/netns/D0 from=10.1.0.1 to=10.2.0.1 sport=… dport=… …

Namespaces are paths of namespace files, or ``-`` for the one in which the program was started.

Results
-------
``flows.csv``, ``series.bin`` and, with ``queues``, ``queues.bin``, which :func:`read_results` reads. Times in
results are CLOCK_REALTIME (time 0 plus CLOCK_MONOTONIC since), the clock of the captures. During the run, a file
``progress`` has the number of nanoseconds passed.

Control
-------
At every ``interval_ns`` (k = 1, 2, …) the program writes ``directory/queues.K`` (with ``queues``; read by
:func:`read_queues`) and then ``directory/status.K``, atomically (read by :func:`read_series`: the current TCP_INFO,
and for UDP flows bytes sent and packets delivered), and waits for ``directory/answer.K``, which must appear
atomically (by renaming). An empty answer means: continue. Otherwise the words of ``command`` and the path of the
answer are run, in the namespace in which the program was started, and must exit with 0. Then all these files are
removed. With ``spin=1`` it waits without sleeping, so that virtual time of a kernel with unlimited CPU speed stands
still until the answer arrives; with ``spin=0`` (real time) traffic continues meanwhile. At the end it writes
``directory/end``.

Queues
------
With ``queues``, every sample includes the statistics of all queue disciplines of a device (as in ``tc -s qdisc show
dev``).
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .._support.cache_folder import testbed_folder
from .._support.ethernet import ETHERNET_BYTES
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
]

_WORD = re.compile(r"[A-Za-z0-9_.:/@%+,=-]+")
_TCP_BYTES, _UDP_BYTES = 32, 8  # headers, TCP's with timestamps


@dataclass(frozen=True, kw_only=True)
class TrafficFlow:
    """A flow of the traffic program; the source sends the data.

    Parameters
    ----------
    index : int
        Number of the flow in the results.
    source_netns, sink_netns : str
        Paths of namespace files, or ``"-"`` for the namespace of the program. With ``--host``, names of hosts.
    source_address, sink_address : str
        IPv4 or IPv6 addresses of the same family.
    source_port, sink_port : int
        Ports.
    cca : str
        The kernel's name of a congestion control, set on both ends before the connection is made (DCTCP must be known
        when ECN is negotiated), or ``"udp"``.
    start_ns : int
        When to open the connection (UDP: send the first packet), in ns.
    stop_ns : int, optional
        When the application stops writing and closes, in ns; what is written will still be delivered.
    bytes : int, optional
        Payload to send before closing, in bytes.
    rate_bps : float, optional
        Rate at which the application writes, in bit/s on the wire, in whole packets. Required for UDP.
    arrivals : str
        Spacing of UDP packets: ``"cbr"`` or ``"poisson"``.
    on_ns, off_ns : int, optional
        The application writes for `on_ns` from its start, pauses for `off_ns`, and so on, in ns.
    on_off : str
        ``"fixed"``, or ``"exponential"`` with these means.
    packet_bytes : int
        Size of a full frame: Ethernet header, IP header, 32 bytes of TCP (with timestamps) or 8 of UDP, and payload.
    max_window_bytes : int, optional
        Receive window, at least 2304 bytes, and a few packets more in the first round trip; unlimited by default.
    unsent_bytes : int
        Amount kept written but unsent by an unlimited flow, in bytes. It is still delivered after `stop_ns`.
    tos : int
        TOS byte of the IP header (UDP: with the ECN codepoint; for TCP, the ECN bits belong to the kernel).
    seed : int
        Seed of Poisson arrivals and exponential pauses.
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
            raise ParameterError(f"{where}: source_address and sink_address must be of the same family")
        for name in ("source_netns", "sink_netns", "cca"):
            _check_word(f"{where}: {name}", getattr(self, name))
        for name in ("source_port", "sink_port"):
            if not 1 <= getattr(self, name) <= 65535:
                raise ParameterError(f"{where}: {name}: {getattr(self, name)!r} is not a port (1 to 65535)")
        if self.arrivals not in ("cbr", "poisson"):
            raise ParameterError(f"{where}: arrivals: {self.arrivals!r} must be one of cbr, poisson")
        if self.on_off not in ("fixed", "exponential"):
            raise ParameterError(f"{where}: on_off: {self.on_off!r} must be one of fixed, exponential")
        if (self.on_ns is None) != (self.off_ns is None):
            raise ParameterError(f"{where}: on_ns and off_ns: give both or neither")
        if self.is_udp and self.rate_bps is None:
            raise ParameterError(f"{where}: rate_bps: required for UDP")
        # The kernel accepts a maximum segment size (without options) of 88 to 32767 bytes, and UDP packets from 1
        # byte.
        low, high = (1, 65535 - 40 - _UDP_BYTES) if self.is_udp else (88 - 12, 32767 - 12)
        if not low <= self.payload_bytes <= high:
            raise ParameterError(
                f"{where}: packet_bytes: {self.packet_bytes!r} leaves {self.payload_bytes} bytes of payload; "
                f"{'UDP' if self.is_udp else 'TCP'} supports {low} to {high}"
            )

    @property
    def is_udp(self) -> bool:
        """Whether the flow has no congestion control."""
        return self.cca == "udp"

    @property
    def payload_bytes(self) -> int:
        """Payload of a full packet in bytes."""
        ip = 20 if ipaddress.ip_address(self.source_address).version == 4 else 40
        return self.packet_bytes - ETHERNET_BYTES - ip - (_UDP_BYTES if self.is_udp else _TCP_BYTES)


@dataclass(frozen=True, kw_only=True)
class Control:
    """An external controller that is asked every `interval_ns` (see "Control" above).

    Parameters
    ----------
    interval_ns : int
        Interval in ns.
    directory : str
        Directory of status and answers, as seen by the traffic program.
    command : sequence of str
        Command to run with the path of an answer as its last argument, such as ``("tc", "-n", "R", "-batch")``.
    spin : bool
        Wait without sleeping (virtual time).
    """

    interval_ns: int
    directory: str
    command: Sequence[str]
    spin: bool = True


class TrafficResults(NamedTuple):
    """Results of the traffic program.

    Attributes
    ----------
    start_ns, end_ns : int
        Time 0 and the end of the run (CLOCK_REALTIME).
    flows : DataFrame
        One row per flow by ``index``: ``cca`` (as reported by the kernel at the end; ``"udp"``), ``start_ns`` (when
        the connection was opened), ``established_ns``, ``finished_ns`` (when everything was acknowledged and the
        other end had closed; for UDP, when the last packet was sent), ``written_bytes`` (payload given to the
        kernel), ``acked_bytes``, ``received_bytes`` (by the sink), ``sent_packets`` and ``received_packets`` (UDP:
        datagrams; TCP: segments sent, including retransmissions, and segments delivered), ``retransmits``,
        ``timeouts`` (null before Linux 6.7), ``min_rtt_us``, ``rtt_us``, ``delivered_ce``, ``error`` (text; empty:
        none). Unknown values, and times of what did not happen, are null.
    series : DataFrame
        TCP_INFO of each open connection at each sample and at its end; see :func:`read_series`.
    queues : DataFrame
        Statistics of queue disciplines at each sample: ``ts_ns``, ``handle`` and ``parent`` (in the notation of
        ``tc``: ``"10:"``, ``"1:1"``, ``"root"``), ``kind``, ``bytes`` and ``packets`` (sent), ``backlog_bytes``,
        ``backlog_packets``, ``drops``, ``overlimits``, ``requeues`` and ``xstats`` (raw bytes of the discipline's
        own statistics).
    """

    start_ns: int
    end_ns: int
    flows: pd.DataFrame
    series: pd.DataFrame
    queues: pd.DataFrame


def _check_word(where: str, value: str) -> None:
    if not _WORD.fullmatch(value):
        raise ParameterError(f"{where}: {value!r} has characters that a plan cannot contain")


def plan_text(
    flows: Sequence[TrafficFlow],
    *,
    duration_ns: int,
    sample_ns: int | None = None,
    queues: tuple[str, str] | None = None,
    control: Control | None = None,
) -> str:
    """The text of a plan for the traffic program.

    Parameters
    ----------
    flows : sequence of TrafficFlow
        The flows.
    duration_ns : int
        End of the run in ns, when open connections are aborted.
    sample_ns : int, optional
        Sampling interval of the series in ns; by default only the last row of each flow.
    queues : (str, str), optional
        Namespace and device of the queue disciplines to sample.
    control : Control, optional
        The controller.

    Raises
    ------
    ParameterError
        A plan cannot express a value.
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
            raise ParameterError("control: interval_ns must be positive, and command must not be empty")
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
    """Cache for what the testbed builds: ``testbed`` in ``$CCTOOLKIT_CACHE``, else in the user's cache folder."""
    return testbed_folder()


def binary(source: Path | None = None) -> Path:
    """The traffic program (or that of another C file `source`), compiled once per version into the cache.

    Raises
    ------
    TestbedUnavailableError
        There is no C compiler, or it failed.
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
        # Static if there is a static C library: the program then runs in any guest and on any host.
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
            errors = done.stderr.strip().splitlines()
            raise TestbedUnavailableError(
                f"{compiler} cannot compile {source.name}: {errors[0] if errors else 'no message'}"
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
    """Read the results of the traffic program from a directory.

    Raises
    ------
    SchemaError
        A file is missing or invalid.
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
        raise SchemaError(
            f"{path}: not a result of the traffic program ({type(err).__name__}: {err})"
        ) from None
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
        raise SchemaError(f"{path}: not a result of the traffic program, or truncated")
    return np.frombuffer(data, dtype, offset=16)


def read_series(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read the TCP_INFO series in ``series.bin`` or a controller's status file.

    Returns
    -------
    DataFrame
        One row per sample and connection: ``ts_ns``, ``index`` of the flow, ``cwnd_packets``, ``ssthresh_packets``
        (infinite until it is set), ``rtt_us`` (smoothed), ``rttvar_us``, ``min_rtt_us`` (the kernel's minimum over
        the last five minutes; null: none yet), ``delivery_bps`` and ``pacing_bps`` (of payload; infinite: not
        paced), ``bytes_acked``, ``bytes_sent`` and ``bytes_retrans`` (payload), ``retransmits``, ``lost_packets``
        (deemed lost and not yet retransmitted), ``delivered_packets``, ``delivered_ce_packets``,
        ``unacked_packets``, ``window_bytes`` (of the receiver), ``mss_bytes``, ``ca_state`` (``open``,
        ``disorder``, ``cwr``, ``recovery``, ``loss``).

    Raises
    ------
    SchemaError
        The file is invalid.
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


def read_queues(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read the statistics of queue disciplines in ``queues.bin`` or for a controller: see :class:`TrafficResults`.

    Raises
    ------
    SchemaError
        The file is invalid.
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
