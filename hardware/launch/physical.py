#!/usr/bin/env python3
"""Run a scenario between physical hosts: iperf3 sends, a Linux router (or any other) queues, tcpdump records.

    physical.py SCENARIO.toml HOSTS.toml                 print what each host would do
    physical.py SCENARIO.toml HOSTS.toml -o DIR --run    do it

``HOSTS.toml`` assigns the roles (see ``hosts.example.toml``). Each host gets one shell script over ssh, which
sets up, waits for the start signal, and restores everything at the end. It also restores everything if a
command fails, if this program is interrupted or killed, or if the connection breaks, because the script's
input ends then. ``DIR`` is a run directory like the testbed's: ``cct.load_run(DIR)`` opens it.

Supported: the bottleneck's rate and rate schedule; queues and AQM as Linux queue disciplines (if a Linux
router is named); congestion control, start, stop (whole seconds later), rate, ECN (the same for all flows of
a sender), packet size and window size; UDP; base RTTs by delaying ACKs (if a host is named for that). The
senders' own links are used as they are. Any other setting is refused, by name, and so is a sweep. iperf3 sends
for whole seconds, so flows without a stop may go on for less than a second after the scenario's end. It announces
a UDP flow with one datagram: if the queue drops it, the whole run is made again, up to three times.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import ipaddress
import json
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import pandas as pd

import cctoolkit as cct
from cctoolkit._support import parquet
from cctoolkit._support.csv import write_csv
from cctoolkit._support.documents import read_toml
from cctoolkit.errors import CCToolkitError, ParameterError
from cctoolkit.scenario.run import LABELS, renumbered, replacing_directory
from cctoolkit.testbed.qdisc import QdiscTree, kernel_module

FIRST_PORT = 5201  # of the receiver; flow i uses FIRST_PORT + i
FIRST_SOURCE_PORT = 42001
TRIES = 3  # of a run whose UDP flows do not all start
#: What iperf3 says of a flow that waited for an answer to its first datagram until we, or iperf3 itself, ended it.
STARTED_IN_VAIN = ("interrupt", "unable to read from stream socket")
GRACE_S = 30  # how long a flow may take to deliver the rest after the scenario's end
#: Fields that iperf3 does not support; they must have their defaults.
REFUSED = (
    "bytes",
    "on_s",
    "off_s",
    "loss",
    "jitter_ms",
    "initial_window",
    "delayed_ack",
    "quick_acks",
    "min_rto_ms",
)
#: Fields that are ignored because the hosts decide.
IGNORED = ("access_ms", "access_mbps", "arrivals")

FUNCTIONS = Path(__file__).with_suffix(".sh")


@dataclass(frozen=True)
class Box:
    """A host and its network device."""

    target: str
    interface: str
    address: str = ""
    ingress: str = ""
    flows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Hosts:
    """The hosts and their roles.

    Attributes
    ----------
    senders : list of Box
        Each with its address.
    receiver : Box
    tap : Box
        Records both sides of the queue, with one clock: `ingress` and `interface`.
    bottleneck : Box or None
        A Linux router whose `interface` towards the receiver gets the rate and the queues. None: they are set
        up by hand.
    delay : Box or None
        Delays the ACKs that leave through `interface`. None: base RTTs are those of the network.
    transport : list of str
        Command that runs its remaining arguments on the host ``{target}``. Empty: ssh.
    sudo : bool
        Whether to use sudo on the hosts.
    directory : str
        Where hosts keep captures until they are fetched.
    """

    senders: list[Box]
    receiver: Box
    tap: Box
    bottleneck: Box | None
    delay: Box | None
    transport: list[str]
    sudo: bool
    directory: str

    def command(self, target: str, script: str) -> list[str]:
        """The command that runs a shell script on a host."""
        words = [*(["sudo", "-n"] if self.sudo else []), "sh", "-c", script]
        if self.transport:
            return [w.replace("{target}", target) for w in self.transport] + words
        ssh = ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
        return [*ssh, "--", target, shlex.join(words)]  # the remote shell splits it again


@dataclass(frozen=True)
class Sending:
    """A flow with its ends."""

    index: int
    flow: cct.Flow
    sender: Box
    receiver: str

    @property
    def port(self) -> int:
        return FIRST_PORT + self.index

    @property
    def source_port(self) -> int:
        return FIRST_SOURCE_PORT + self.index

    @property
    def protocol(self) -> int:
        return 17 if self.flow.is_udp else 6


# ---- the input


_PATTERNS = {
    "target": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%-]*"),
    "interface": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}"),
    "directory": re.compile(r"/[A-Za-z0-9_./-]+"),
}


def _matching(kind: str, where: str, value: Any) -> str:
    if not isinstance(value, str) or not _PATTERNS[kind].fullmatch(value):
        raise ParameterError(f"{where}: {value!r} is not a valid {kind}")
    return value


def _box(table: Any, where: str, *, address: bool = False, ingress: bool = False, flows: bool = False) -> Box:
    allowed = {
        "target",
        "interface",
        *(["address"] * address),
        *(["ingress"] * ingress),
        *(["flows"] * flows),
    }
    if not isinstance(table, Mapping):
        raise ParameterError(f"{where}: must be a table")
    for key in table:
        if key not in allowed:
            raise ParameterError(f"{where}.{key}: unknown field; must be one of {', '.join(sorted(allowed))}")
    missing = sorted(allowed - {"flows"} - set(table))
    if missing:
        raise ParameterError(f"{where}.{missing[0]}: is missing")
    box = Box(
        _matching("target", f"{where}.target", table["target"]),
        _matching("interface", f"{where}.interface", table["interface"]),
    )
    if address:
        try:
            box = dataclasses.replace(box, address=str(ipaddress.ip_address(table["address"])))
        except ValueError:
            raise ParameterError(f"{where}.address: {table['address']!r} is not an address") from None
    if ingress:
        box = dataclasses.replace(box, ingress=_matching("interface", f"{where}.ingress", table["ingress"]))
    numbers = table.get("flows", [])
    if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ParameterError(f"{where}.flows: {numbers!r} is not a list of flow numbers")
    return dataclasses.replace(box, flows=tuple(numbers))


def read_hosts(path: Path) -> Hosts:
    """Read the hosts and their roles from TOML.

    Raises
    ------
    ParameterError
        The file cannot be read, or a field is wrong.
    """
    table = read_toml(path)
    try:
        return _hosts_of(table)
    except ParameterError as err:
        raise ParameterError(f"{path}: {err}") from None


def _hosts_of(table: dict[str, Any]) -> Hosts:
    known = {"transport", "sudo", "directory", "senders", "receiver", "tap", "bottleneck", "delay"}
    for key in table:
        if key not in known:
            raise ParameterError(f"{key}: unknown field; must be one of {', '.join(sorted(known))}")
    transport = table.get("transport", "ssh")
    if transport == "ssh":
        transport = []
    elif (
        not isinstance(transport, list) or sum("{target}" in w for w in transport if isinstance(w, str)) != 1
    ):
        raise ParameterError(
            f'transport: {transport!r} must be "ssh" or a list of words, one of them with {{target}}'
        )
    sudo = table.get("sudo", True)
    if not isinstance(sudo, bool):
        raise ParameterError(f"sudo: {sudo!r} must be true or false")
    if not isinstance(table.get("senders"), list) or not table["senders"]:
        raise ParameterError("senders: needs at least one")
    for name in ("receiver", "tap"):
        if name not in table:
            raise ParameterError(f"{name}: is missing")
    senders = [_box(s, f"senders[{i}]", address=True, flows=True) for i, s in enumerate(table["senders"])]
    receiver = _box(table["receiver"], "receiver", address=True)
    families = {ipaddress.ip_address(b.address).version for b in (*senders, receiver)}
    if len(families) != 1:
        raise ParameterError("receiver.address: must have the senders' IP version")
    return Hosts(
        senders=senders,
        receiver=receiver,
        tap=_box(table["tap"], "tap", ingress=True),
        bottleneck=_box(table["bottleneck"], "bottleneck") if "bottleneck" in table else None,
        delay=_box(table["delay"], "delay") if "delay" in table else None,
        transport=transport,
        sudo=sudo,
        directory=_matching("directory", "directory", table.get("directory", "/var/tmp")),
    )


def read_one(path: Path) -> cct.Scenario:
    """Read the scenario of a file that has only one.

    Raises
    ------
    ParameterError
        The file cannot be read, a field is wrong, or it has a sweep.
    """
    scenario = cct.read_scenario(path)
    sweep = read_toml(path).get("sweep")
    if sweep:
        over = ", ".join(sweep) if isinstance(sweep, Mapping) else sweep
        raise ParameterError(
            f"{path}: sweep: this runs one scenario, not a sweep over {over}: "
            "choose one point: write its values into the scenario, and remove [sweep]"
        )
    return scenario


def sendings(scenario: cct.Scenario, hosts: Hosts) -> list[Sending]:
    """The flows with their ends: a sender's own flows, and the others in turn.

    Raises
    ------
    ParameterError
        iperf3 cannot send one of the flows.
    """
    flows = scenario.flow_list()
    default = cct.Flow("cubic")
    for i, flow in enumerate(flows):
        for name in REFUSED:
            if getattr(flow, name) != getattr(default, name):
                raise ParameterError(
                    f"flows[{i}].{name}: {getattr(flow, name)!r}: iperf3 does not support this; leave it out"
                )
        stops = flow.stop_s is not None and flow.stop_s < scenario.duration_s
        if stops and _too_long_s(flow, scenario):
            raise ParameterError(
                f"flows[{i}].stop_s: {flow.stop_s:g}: iperf3 sends for whole seconds; "
                f"choose a time a whole number of seconds after start_s, {flow.start_s:g}"
            )
        if flow.ecn == "accurate" and flow.cca_name != "dctcp":
            raise ParameterError(f"flows[{i}].ecn: 'accurate' needs dctcp")
        if flow.ecn == "l4s" and not flow.is_udp and flow.cca_name not in ("prague", "dctcp"):
            raise ParameterError(f"flows[{i}].ecn: 'l4s' needs prague or dctcp")
    named: dict[int, Box] = {}
    for box in hosts.senders:
        for number in box.flows:
            if number >= len(flows) or number in named:
                raise ParameterError(f"senders: flow {number} does not exist, or has two senders")
            named[number] = box
    out = []
    for i, flow in enumerate(flows):
        sender = named.get(i) or hosts.senders[i % len(hosts.senders)]
        out.append(Sending(i, flow, sender, hosts.receiver.address))
    for box in hosts.senders:
        modes = {
            s.flow.ecn
            for s in out
            if s.sender is box and not s.flow.is_udp and s.flow.ecn in ("off", "classic")
        }
        if len(modes) > 1:
            raise ParameterError(f"flows: all flows of sender {box.target} must have the same ecn")
    return out


# ---- what each host does


@dataclass
class Part:
    """A host's shell commands: for set-up, after "go", and after "stop"."""

    roles: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    go: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)


def _q(*words: object) -> str:
    return " ".join(shlex.quote(str(w)) for w in words)


def _whole_s(flow: cct.Flow, scenario: cct.Scenario) -> int:
    """How long iperf3 sends: it takes no fractions of a second."""
    return max(math.ceil(_left_s(flow, scenario)), 1)


def _left_s(flow: cct.Flow, scenario: cct.Scenario) -> float:
    """How long the scenario lets the flow send."""
    stop_s = scenario.duration_s if flow.stop_s is None else min(flow.stop_s, scenario.duration_s)
    return round(stop_s - flow.start_s, 6)  # decimal fractions have no exact difference


def _too_long_s(flow: cct.Flow, scenario: cct.Scenario) -> float:
    return _whole_s(flow, scenario) - _left_s(flow, scenario)


def _payload_bytes(s: Sending) -> int:
    version = ipaddress.ip_address(s.receiver).version
    return s.flow.packet_bytes - (14 + (20 if version == 4 else 40) + (8 if s.flow.is_udp else 32))


def _window_bytes(s: Sending) -> int:
    """The flow's largest window, for iperf3; 0 if the scenario leaves it to the hosts."""
    left_to_hosts = s.flow.is_udp or s.flow.max_window == cct.Flow("cubic").max_window
    return 0 if left_to_hosts else s.flow.max_window * _payload_bytes(s)


def _room_for_windows(flows: Sequence[Sending]) -> list[str]:
    """Commands that let both ends have socket buffers of the flows' windows; iperf3 fails without."""
    most = max(map(_window_bytes, flows), default=0)
    return [f"raise_sysctl net.core.{limit} {most}" for limit in ("rmem_max", "wmem_max") if most]


def _iperf(s: Sending, scenario: cct.Scenario, sample_s: float) -> str:
    """The iperf3 client's command."""
    flow, payload = s.flow, _payload_bytes(s)
    whole_s = _whole_s(flow, scenario)
    words: list[object] = [
        "iperf3",
        "-c",
        s.receiver,
        "-p",
        s.port,
        "-B",
        s.sender.address,
        "--cport",
        s.source_port,
    ]
    words += ["-J", "-i", f"{sample_s:g}", "--connect-timeout", "5000"]
    words += ["-t", whole_s]
    if flow.rate_mbps is not None:  # iperf3 counts payload
        words += ["-b", round(flow.rate_mbps * 1e6 * payload / flow.packet_bytes), "-l", payload]
    if flow.is_udp:
        words += ["-u", "-S", {"classic": 2, "accurate": 2, "l4s": 1}.get(str(flow.ecn), 0)]
    else:
        words += ["-C", flow.cca_name]
        if flow.packet_bytes != 1514:
            words += ["-M", payload + 12]
        if window_bytes := _window_bytes(s):
            words += ["-w", window_bytes]
    # --foreground: stay in the job's process group, which is killed as a whole
    limit = ["timeout", "--foreground", "-s", "INT", "-k", "5", whole_s + GRACE_S // 2]
    return _q(*limit, *words)


def parts(scenario: cct.Scenario, hosts: Hosts, *, sample_s: float = 0.1) -> dict[str, Part]:
    """The commands of each host, by target."""
    flows = sendings(scenario, hosts)
    out: dict[str, Part] = {}

    def part(box: Box, role: str) -> Part:
        found = out.setdefault(box.target, Part())
        found.roles.append(role)
        return found

    # The order matters: what is set first is restored last, and a host may have several roles.
    receiver = part(hosts.receiver, "receiver")
    receiver.setup.append("need iperf3 ethtool ss sysctl setsid timeout")
    receiver.setup += [f"no_offloads {_q(hosts.receiver.interface)}", *_room_for_windows(flows)]
    limit_s = math.ceil(scenario.duration_s) + 2 * GRACE_S
    receiver.setup.append(f"serve {_q(limit_s, hosts.receiver.address, *(s.port for s in flows))}")
    if hosts.bottleneck is not None:
        _bottleneck(part(hosts.bottleneck, "bottleneck"), hosts.bottleneck.interface, scenario, flows)
    if hosts.delay is not None:
        _delays(part(hosts.delay, "delay"), hosts.delay.interface, flows)
    tap = part(hosts.tap, "tap")
    tap.setup.append("need tcpdump ethtool setsid")
    for name, device in (("ingress", hosts.tap.ingress), ("egress", hosts.tap.interface)):
        tap.setup += [
            f"no_offloads {_q(device)}",
            f"record {name} {_q(device, f'host {hosts.receiver.address}')}",
        ]
    tap.stop.append("recorded")
    tap.stop += [f"send_file {name}.{suffix}" for name in ("ingress", "egress") for suffix in ("pcap", "err")]
    for box in hosts.senders:
        mine = [s for s in flows if s.sender is box]
        if not mine:
            continue
        sender = part(box, "sender of flows " + ", ".join(str(s.index) for s in mine))
        sender.setup += ["need iperf3 ethtool sysctl setsid timeout", f"no_offloads {_q(box.interface)}"]
        sender.setup.append("set_sysctl net.ipv4.tcp_no_metrics_save 1")
        classic = any(s.flow.ecn == "classic" and not s.flow.is_udp for s in mine)
        sender.setup.append(f"set_sysctl net.ipv4.tcp_ecn {1 if classic else 2}")
        sender.setup += _room_for_windows(mine)
        for cca in sorted({s.flow.cca_name for s in mine} - {"udp"}):
            sender.setup.append(f"need_cca {_q(cca)}")
        for s in mine:
            client = (
                f'sleep {s.flow.start_s:g}; {_iperf(s, scenario, sample_s)}; echo "flow {s.index} $?" >&3'
            )
            sender.go.append(f"job flow{s.index} sh -c {shlex.quote(client)}")
            sender.stop.append(f"send_file flow{s.index}.out")
    return out


def _tree(scenario: cct.Scenario, device: str) -> QdiscTree:
    for queue in scenario.bottleneck.queue_list():
        if queue.aqm is not None and kernel_module(queue) is not None:
            raise ParameterError(
                f"bottleneck.aqm: Linux has no {queue.aqm.name} of its own, and this script loads no modules"
            )
    frame = max(f.packet_bytes for f in scenario.flows)
    # Linux's DCTCP sends ECT(0) although it stands in for a low-latency flow
    any_ect = any(f.ecn == "l4s" and f.cca_name == "dctcp" for f in scenario.flows)
    return QdiscTree(scenario.bottleneck, device, frame, virtual=False, any_ect=any_ect)


def _bottleneck(part: Part, device: str, scenario: cct.Scenario, flows: Sequence[Sending]) -> None:
    tree = _tree(scenario, device)
    part.setup += ["need tc ethtool setsid", f"no_offloads {_q(device)}", f"no_qdisc {_q(device)}"]
    lines = tree.setup()
    for s in flows:
        for line in tree.assign(
            s.index, "0.0.0.0", s.flow.queue or 0
        ):  # these match addresses, but all flows of a sender share one
            words = line.split()
            lines.append(_filter(device, words[words.index("parent") + 1], s, "dport", words[-1]))
    part.setup += [f"run_tc {_q(*line.split())}" for line in lines]
    changes, past_s = [], 0.0
    for at_s, mbps in scenario.bottleneck.rate_schedule:
        changes.append(f"sleep {at_s - past_s:g}")
        changes += [f"tc {_q(*line.split())}" for line in tree.set_rate(mbps)]
        past_s = at_s
    if changes:
        part.go.append(f"job rates sh -c {shlex.quote('; '.join(changes))}")
    part.stop.append(f'tc -s -j qdisc show dev {_q(device)} >"$dir/qdisc.json"; send_file qdisc.json')


def _filter(device: str, parent: str, s: Sending, end: str, classid: str) -> str:
    """A filter from a flow's packets to a class, by the receiver's port (`end`: sport or dport)."""
    protocol, ip = ("ip", "ip") if ipaddress.ip_address(s.receiver).version == 4 else ("ipv6", "ip6")
    return (
        f"filter add dev {device} parent {parent} protocol {protocol} u32 match {ip} protocol {s.protocol} 0xff "
        f"match {ip} {end} {s.port} 0xffff classid {classid}"
    )


def _delays(part: Part, device: str, flows: Sequence[Sending]) -> None:
    """Add the whole RTT on the reverse path; the source port tells whose ACKs they are."""
    rtts_ms = sorted({s.flow.rtt_ms for s in flows if s.flow.rtt_ms > 0})
    if not rtts_ms:
        return
    part.setup += ["need tc ethtool", f"no_qdisc {_q(device)}"]
    lines = [f"qdisc add dev {device} root handle 1: htb default 1",
             f"class add dev {device} parent 1: classid 1:1 htb rate 100gbit quantum 60000"]  # fmt: skip
    for n, rtt_ms in enumerate(rtts_ms, 2):
        lines += [
            f"class add dev {device} parent 1: classid 1:{n:x} htb rate 100gbit quantum 60000",
            f"qdisc add dev {device} parent 1:{n:x} netem limit 1000000 delay {round(rtt_ms * 1000)}us",
        ]
    for s in flows:
        if s.flow.rtt_ms > 0:
            lines.append(_filter(device, "1:", s, "sport", f"1:{rtts_ms.index(s.flow.rtt_ms) + 2:x}"))
    part.setup += [f"run_tc {_q(*line.split())}" for line in lines]


def script(part: Part, hosts: Hosts, snaplen: int) -> str:
    """A host's shell script."""
    start = f"directory={_q(hosts.directory)} snaplen={snaplen}\n" + FUNCTIONS.read_text(encoding="utf-8")
    steps = [*part.setup, "echo ready", "wait_for go", *part.go, "wait_for stop", *part.stop, "echo done"]
    text = start + "\n".join(steps) + "\n"
    if len(text) > 120_000:
        raise ParameterError("flows: too many for the command line of one host; use more senders")
    return text


# ---- running it


class Failed(CCToolkitError):
    """A host failed."""


class FirstDatagramLost(Failed):
    """A UDP flow did not start: iperf3 announces it with one datagram, does not repeat it, and the queue lost it."""


class Stopped(BaseException):
    """A signal arrived; the argument is its number."""


class Shell:
    """A host's running script; its lines arrive in `lines`."""

    def __init__(self, target: str, command: list[str], folder: Path) -> None:
        self.target, self.folder = target, folder
        self.lines: list[str] = []
        self.changed = threading.Condition()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        stream = self.process.stdout
        while line := stream.readline():
            text = line.decode(errors="replace").strip()
            if text.startswith("file "):
                _, name, size = text.split()
                with (self.folder / Path(name).name).open("wb") as file:
                    _copy(stream, file, int(size))
            self._add(text)
        self._add("end")

    def _add(self, text: str) -> None:
        with self.changed:
            self.lines.append(text)
            self.changed.notify_all()

    def send(self, word: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # the missing answer will show what is wrong
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()

    def wait_for(self, word: str, until: float) -> str:
        """Wait for the line that starts with a word; an error line is raised."""
        with self.changed:
            while True:
                for text in self.lines:
                    if f"{text} ".startswith(f"{word} "):
                        return text
                    if text.startswith("error "):
                        raise Failed(f"{self.target}: {text.removeprefix('error ')}")
                if self.lines[-1:] == ["end"]:
                    raise Failed(f"{self.target}: {self._last_error()}")
                if not self.changed.wait(max(until - time.monotonic(), 0)):
                    raise Failed(f"{self.target}: no {word!r} before the timeout")

    def _last_error(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"its shell ended with exit status {self.process.wait()}"

    def close(self) -> None:
        """End the script's input, upon which it restores everything."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(timeout=5)
        self.errors.close()


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size > 0:
        block = source.read(min(size, 1 << 20))
        if not block:
            return
        target.write(block)
        size -= len(block)


def run(
    scenario: cct.Scenario, hosts: Hosts, folder: Path, *, snaplen: int = 96, sample_s: float = 0.1
) -> None:
    """Run the scenario; the hosts' files are in `folder` afterwards.

    Raises
    ------
    Failed
        A host failed.
    """
    plan = parts(scenario, hosts, sample_s=sample_s)
    texts = {target: script(part, hosts, snaplen) for target, part in plan.items()}
    shells: list[Shell] = []
    try:
        for target, text in texts.items():
            shells.append(Shell(target, hosts.command(target, text), folder))
        for shell in shells:
            shell.wait_for("ready", time.monotonic() + GRACE_S)
        for shell in shells:
            shell.send("go")
        until = time.monotonic() + scenario.duration_s + GRACE_S
        by_target = {shell.target: shell for shell in shells}
        for s in sendings(scenario, hosts):
            by_target[s.sender.target].wait_for(f"flow {s.index}", until)
        for shell in shells:
            shell.send("stop")
        for shell in shells:
            shell.wait_for("done", time.monotonic() + 20 * GRACE_S)
    finally:
        closing = [threading.Thread(target=shell.close) for shell in shells]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()


# ---- the results


class Report(NamedTuple):
    """What iperf3 reports about a flow: ``samples`` are rows of (s, window in packets, srtt, rttvar in ns, sent bytes,
    retransmits), the last two since the start; ``None`` stands for a number that it does not give."""

    version: str
    system: str
    cca: str
    received_bytes: int | None
    retransmits: int | None
    samples: list[tuple[float, float, int, int, int, int]]


def _report(folder: Path, s: Sending) -> Report:
    """Read iperf3's report on a flow.

    Raises
    ------
    FirstDatagramLost
        The flow is UDP, the server answered over TCP, but the flow did not start.
    Failed
        There is none, it is damaged, or it has an error instead of a connection.
    """
    path, where = folder / f"flow{s.index}.out", f"{s.sender.target}: flow {s.index}"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise Failed(f"{where}: iperf3 wrote no report") from None
    try:
        start, end = found.get("start", {}), found.get("end", {})
        if not start.get("connected"):
            error = found.get("error", "iperf3 did not connect")
            if s.flow.is_udp and "cookie" in start and error.startswith(STARTED_IN_VAIN):
                raise FirstDatagramLost(
                    f"{where}: its first datagram, which iperf3 sends only once, was lost"
                )
            raise Failed(f"{where}: {error}")
        received, sent = (end.get(f"sum_{side}") or {} for side in ("received", "sent"))
        return Report(
            start["version"], start["system_info"], end.get("sender_tcp_congestion", s.flow.cca_name),
            received.get("bytes"), sent.get("retransmits"), [] if s.flow.is_udp else _samples(found),
        )  # fmt: skip
    except (AttributeError, IndexError, KeyError, TypeError):
        raise Failed(f"{where}: iperf3's report is damaged") from None


def _samples(report: dict[str, Any]) -> list[tuple[float, float, int, int, int, int]]:
    mss = report["start"]["tcp_mss_default"] or 1448
    rows = []
    sent = again = 0
    for interval in report.get("intervals", []):
        x = interval["streams"][0]
        sent, again = sent + x["bytes"], again + x.get("retransmits", 0)
        rows.append((x["end"], x["snd_cwnd"] / mss, x["rtt"] * 1000, x["rttvar"] * 1000, sent, again))
    return rows


def _labels(
    flows: Sequence[Sending], reports: Sequence[Report], hosts: Hosts, ingress: cct.Capture
) -> pd.DataFrame:
    keys, packets = ingress.keys, ingress.packets.groupby("flow_id").ts_ns.agg(["min", "max"])
    ends = zip(
        keys.flow_id.tolist(), keys.sport.tolist(), keys.dport.tolist(), keys.protocol.tolist(), strict=True
    )
    seen = {(sport, dport, protocol): flow_id for flow_id, sport, dport, protocol in ends}
    rows = []
    for s, report in zip(flows, reports, strict=True):
        flow_id = seen.get((s.source_port, s.port, s.protocol))
        when = (None, None) if flow_id is None else tuple(int(t) for t in packets.loc[flow_id])
        udp = s.flow.is_udp
        rows.append(
            (
                s.sender.address, s.receiver, s.source_port, s.port, s.protocol,
                "udp" if udp else "bulk", "src",
                "" if udp else report.cca,
                s.flow.rtt_ms if hosts.delay is not None else None, *when,
                None if udp else report.received_bytes, None if udp else report.retransmits, None,
            )
        )  # fmt: skip
    table = pd.DataFrame(rows, columns=list(LABELS))
    whole = ["start_ns", "stop_ns", "bytes_acked", "retransmits"]
    return table.astype(dict.fromkeys(whole, "Int64") | {"base_rtt_ms": "Float64"})


def _flow_series(flows: Sequence[Sending], reports: Sequence[Report], labels: pd.DataFrame) -> pd.DataFrame:
    rows = [
        (int(start_ns) + round(at_s * 1e9), s.index, *sample)
        for s, report, start_ns in zip(flows, reports, labels.start_ns, strict=True)
        if not pd.isna(start_ns)
        for at_s, *sample in report.samples
    ]
    columns = ["ts_ns", "flow_id", "cwnd_packets", "srtt_ns", "rttvar_ns", "sent_bytes", "retransmits"]
    return (
        pd.DataFrame(rows, columns=columns)
        .astype({"flow_id": "uint32"})
        .sort_values("ts_ns", ignore_index=True)
    )


def _queues(scenario: cct.Scenario, folder: Path, ingress: cct.Capture, egress: cct.Capture) -> pd.DataFrame:
    """The router's counters, and delays between the taps."""
    tree = _tree(scenario, "x")
    try:
        counters = {q["handle"]: q for q in json.loads((folder / "qdisc.json").read_text(encoding="utf-8"))}
    except (OSError, ValueError, KeyError, TypeError):
        raise Failed("bottleneck: tc wrote no counters") from None
    delays = cct.queue_delay(ingress, egress)
    delays = delays[(delays.direction == 0) & delays.delay_ns.notna()]
    queue_of = {i: f.queue or 0 for i, f in enumerate(scenario.flow_list())}
    of_packet = delays.flow_id.map(queue_of).fillna(0)
    rows = []
    for queue in range(1 if tree.single else len(scenario.bottleneck.queue_list())):
        q = counters.get(tree.handle(queue))
        if q is None:
            raise Failed(f"bottleneck: tc wrote no counters of queue {queue}")
        delay_ms = delays.delay_ns[of_packet == queue].to_numpy(float) / 1e6
        sent, dropped, waiting = q["packets"], q["drops"], q["qlen"]
        rows.append(
            {
                "queue": queue, "packets": waiting, "bytes": q["backlog"], "arrived_packets": sent + dropped + waiting,
                "sent_packets": sent, "sent_bytes": q["bytes"], "dropped_full": dropped, "dropped_enqueue": 0,
                "dropped_dequeue": 0, "marked_packets": q.get("ecn_mark", q.get("marked", 0)),
                "mean_delay_ms": float(delay_ms.mean()) if len(delay_ms) else math.nan,
                "max_delay_ms": float(delay_ms.max()) if len(delay_ms) else math.nan,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def collect(scenario: cct.Scenario, hosts: Hosts, raw: Path, folder: Path) -> None:
    """Make the run directory from the hosts' files."""
    flows = sendings(scenario, hosts)
    reports = [_report(raw, s) for s in flows]
    for tap in ("ingress", "egress"):
        with (
            (raw / f"{tap}.pcap").open("rb") as source,
            (folder / f"{tap}.pcap.gz").open("wb") as file,
            gzip.GzipFile("", "wb", 6, file, 0) as packed,
        ):
            shutil.copyfileobj(source, packed, 1 << 20)
    labels = _labels(flows, reports, hosts, cct.read_capture(folder / "ingress.pcap.gz"))
    ingress, egress = renumbered(
        labels, *(cct.read_capture(folder / f"{tap}.pcap.gz") for tap in ("ingress", "egress"))
    )
    start_ns = int(min(labels.start_ns.dropna(), default=ingress.meta.first_ts_ns))
    received = [report.received_bytes or 0 for report in reports]
    seconds = (labels.stop_ns - labels.start_ns) / 1e9
    tables = {
        "flows": pd.DataFrame(
            {
                "flow_id": range(len(flows)),
                "name": [s.flow.label for s in flows],
                "cca": [
                    s.flow.cca_name if s.flow.is_udp else cca
                    for s, cca in zip(flows, labels.cca, strict=True)
                ],
                "base_rtt_ms": labels.base_rtt_ms.astype("float64"),
                "start_s": ((labels.start_ns - start_ns) / 1e9).astype("Float64").astype("float64"),
                "end_s": ((labels.stop_ns - start_ns) / 1e9).astype("Float64").astype("float64"),
                "received_bytes": received,
                "goodput_mbps": (pd.Series(received) * 8e-6 / seconds).astype("Float64").astype("float64"),
                "retransmits": labels.retransmits.fillna(0).astype("int64"),
                "min_rtt_ms": float("nan"),
            }
        ).astype({"flow_id": "uint32"}),
        "flow_series": _flow_series(flows, reports, labels),
    }
    made_by = f"cctoolkit {cct.__version__} physical.py, {reports[0].version}"
    if hosts.bottleneck is not None:
        tables["queues"] = _queues(scenario, raw, ingress, egress)
        shutil.copy(raw / "qdisc.json", folder / "qdisc.json")
    for name, table in tables.items():
        parquet.write(table, folder / f"{name}.parquet", {"made_by": made_by})
    write_csv(labels, folder / "labels.csv")
    (folder / "scenario.toml").write_text(scenario.to_toml(), encoding="utf-8")
    about = {
        "made_by": made_by,
        "version": cct.__version__,
        "name": scenario.name or "run",
        "start_ns": start_ns,
        "senders": [{"system": report.system} for report in reports],
        "tcpdump": {tap: (raw / f"{tap}.err").read_text().splitlines() for tap in ("ingress", "egress")},
    }
    (folder / "provenance.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


# ---- the command


def show(scenario: cct.Scenario, hosts: Hosts, snaplen: int, sample_s: float) -> str:
    """The scripts of all hosts, as text."""
    out = []
    for target, part in parts(scenario, hosts, sample_s=sample_s).items():
        text = script(part, hosts, snaplen)
        out.append(
            f"# {target}: {'; '.join(part.roles)}\n# {shlex.join(hosts.command(target, 'SCRIPT'))}\n{text}"
        )
    return "\n".join(out)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO.toml")
    parser.add_argument("hosts", type=Path, metavar="HOSTS.toml")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="run directory to write")
    parser.add_argument("--run", action="store_true", help="run it; default: print what each host would do")
    parser.add_argument("--snaplen", type=int, default=96, metavar="BYTES", help="captured bytes per packet")
    parser.add_argument(
        "--sample", type=float, default=0.1, metavar="S", help="sampling interval of the time series"
    )
    args = parser.parse_args(argv)
    if args.run and args.output is None:
        parser.error("--run needs -o DIR")

    def stop(number: int, _: object) -> None:
        raise Stopped(number)

    try:
        if not 64 <= args.snaplen <= 262144 or not 0.1 <= args.sample <= 60:
            raise ParameterError("--snaplen must be 64 to 262144, --sample 0.1 to 60")
        scenario, hosts = read_one(args.scenario), read_hosts(args.hosts)
        for i, flow in enumerate(scenario.flows):
            for name in IGNORED:
                if getattr(flow, name) != getattr(cct.Flow("cubic"), name):
                    print(f"physical.py: flows[{i}].{name} is ignored: the hosts decide", file=sys.stderr)
        if late_s := max(_too_long_s(s.flow, scenario) for s in sendings(scenario, hosts)):
            print(
                f"physical.py: duration_s: some flows go on for up to {late_s:.3g} s more, because iperf3 sends for "
                "whole seconds",
                file=sys.stderr,
            )
        if not args.run:
            print(show(scenario, hosts, args.snaplen, args.sample))
            return 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        with replacing_directory(args.output) as folder:
            raw = folder.with_name(f"{folder.name}.raw")
            for tries_left in reversed(range(TRIES)):
                raw.mkdir()
                run(scenario, hosts, raw, snaplen=args.snaplen, sample_s=args.sample)
                try:
                    collect(scenario, hosts, raw, folder)
                    break
                except FirstDatagramLost as err:
                    if not tries_left:
                        raise
                    print(f"physical.py: {err}: running it again", file=sys.stderr)
                    shutil.rmtree(raw)
        print(args.output)
        return 0
    except (CCToolkitError, OSError) as err:
        print(f"physical.py: {err}", file=sys.stderr)
        return 1
    except Stopped as err:
        print(f"physical.py: stopped by {signal.Signals(err.args[0]).name}", file=sys.stderr)
        return 128 + int(err.args[0])


if __name__ == "__main__":
    sys.exit(main())
