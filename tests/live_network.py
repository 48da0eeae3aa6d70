"""A sender, a router and a receiver in network namespaces, and what tests of the live collector do with them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import need

_CLONE_NEWNET = 0x40000000
#: For what stands for hosts and links of their own: other work on this machine must not hold their packets up.
AT_ONCE = ("chrt", "--rr", "10")
#: Reads ports and lets whoever connects send; echoes nothing.
SINK = """
import socket, sys, threading
def drain(connection):
    while connection.recv(1 << 20):
        pass
def serve(port):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
    ready.release()
    while True:
        threading.Thread(target=drain, args=(listener.accept()[0],), daemon=True).start()
ready = threading.Semaphore(0)
ports = [int(x) for x in sys.argv[1:]]
for port in ports:
    threading.Thread(target=serve, args=(port,), daemon=True).start()
for _ in ports:
    ready.acquire()
print("ready", flush=True)
sys.stdin.read()
"""
#: ADDRESS PORT CCA SPORT, then lines "TIME BYTES": send so much at that moment of the clock.
SOURCE = """
import socket, sys, time
address, port, cca, sport = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cca.encode())
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", sport))
s.connect((address, port))
print("ready", flush=True)
for line in sys.stdin:
    at, size = line.split()
    time.sleep(max(float(at) - time.time(), 0))
    s.sendall(bytes(int(size)))
s.close()
"""


@functools.cache
def why_not(*more_tools: str) -> str:
    """Why the collector, and what else is needed, cannot run here; empty: it can."""
    from cctoolkit.identify.live import CollectorError, KernelCollector, missing

    lacking = missing()
    if lacking:
        return f"lacks {'; '.join(lacking)}"
    tools = [tool for tool in ("ip", *more_tools) if shutil.which(tool) is None]
    if tools:
        return f"lacks {', '.join(tools)}"
    try:
        KernelCollector("lo").close()
    except CollectorError as err:
        return str(err)
    return ""


class Network:
    """Namespaces PREFIX-S, -R and -D in a row; R's interfaces are ``in0`` and ``out0``."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._stack = contextlib.ExitStack()

    def ns(self, box: str) -> str:
        return f"{self.prefix}-{box}"

    def ip(self, box: str, *lines: str) -> None:
        text = "".join(f"{line}\n" for line in lines)
        subprocess.run(["ip", "-n", self.ns(box), "-batch", "-"], input=text, text=True, check=True)

    def command(self, box: str, *command: str) -> subprocess.CompletedProcess[str]:
        need(command[0])
        return subprocess.run(
            ["ip", "netns", "exec", self.ns(box), *command], capture_output=True, text=True, check=True
        )

    def start(self, box: str, *command: str, **streams: object) -> subprocess.Popen[bytes]:
        need(command[0])
        process = subprocess.Popen(["ip", "netns", "exec", self.ns(box), *command], **streams)  # type: ignore[call-overload]

        def end() -> None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

        self._stack.callback(end)
        return process

    @contextlib.contextmanager
    def inside(self, box: str) -> Iterator[None]:
        """This thread, and what it starts, is in a namespace."""
        libc = ctypes.CDLL(None, use_errno=True)
        home, there = (
            os.open("/proc/thread-self/ns/net", os.O_RDONLY),
            os.open(f"/run/netns/{self.ns(box)}", os.O_RDONLY),
        )
        try:
            assert libc.setns(there, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            yield
        finally:
            assert libc.setns(home, _CLONE_NEWNET) == 0
            os.close(home)
            os.close(there)

    def sink(self, *ports: int, box: str = "D") -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = self.start(box, sys.executable, "-c", SINK, *map(str, ports), **pipes)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"

    def source(
        self, address: str, port: int, cca: str = "cubic", sport: int = 0, box: str = "S"
    ) -> subprocess.Popen[bytes]:
        """A connection is there; lines "TIME BYTES" to its standard input make it send."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = self.start(box, sys.executable, "-c", SOURCE, address, str(port), cca, str(sport), **pipes)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        return process

    @contextlib.contextmanager
    def capture(self, folder: Path, *interfaces: str) -> Iterator[list[Path]]:
        """tcpdump at R's interfaces; the files are whole when the block is over."""
        paths = [folder / f"{name}.pcap" for name in interfaces]
        taps = []
        for name, path in zip(interfaces, paths, strict=True):
            command = [
                "tcpdump",
                "-i",
                name,
                "-s",
                "128",
                "-B",
                "65536",
                "--time-stamp-precision=nano",
                "-Z",
                "root",
                "-U",
            ]
            tap = self.start("R", *command, "-w", str(path), stderr=subprocess.PIPE)
            assert tap.stderr is not None
            while b"listening on" not in tap.stderr.readline():
                assert tap.poll() is None
            taps.append(tap)
        yield paths
        time.sleep(1.5)  # tcpdump gets packets by the second
        for tap in taps:
            tap.send_signal(signal.SIGINT)
            assert tap.stderr is not None
            output = tap.stderr.read().decode()
            tap.wait()
            dropped = re.search(r"(\d+) packets? dropped by kernel", output)
            if dropped is None or int(dropped[1]):
                pytest.skip(f"tcpdump lost packets, there is nothing to compare with: {output}")

    def shape(self, rate_mbps: float, limit_bytes: int) -> None:
        """A bottleneck at ``out0``."""
        burst = max(round(rate_mbps * 1e6 / 8 / 250), 3000)
        self.command(
            "R", "tc", "qdisc", "replace", "dev", "out0", "root", "tbf",
            "rate", f"{rate_mbps}mbit", "burst", str(burst), "limit", str(limit_bytes),
        )  # fmt: skip

    def delay(self, ms: float) -> None:
        """What D sends S takes so long to R, through a TUN device: this kernel need not have netem."""
        from cctoolkit.testbed import traffic

        program = traffic.binary(Path(traffic.__file__).with_name("guest") / "hold.c")
        command = [
            *AT_ONCE,
            str(program),
            *(f"/run/netns/{self.ns(box)}" for box in "RD"),
            str(round(ms * 1e6)),
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = self.start("R", *command, **pipes)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        for box in "RD":
            self.ip(box, "link set hold mtu 1500 txqueuelen 100000 up")
        self.ip("D", "route add 10.9.1.0/24 dev hold", "route add fd09:1::/64 dev hold")

    def bottleneck(self, rate_mbps: float, rtt_ms: float, buffer_bdp: float) -> None:
        """Packets of at most 1500 bytes through a tail-drop queue, and a round trip."""
        self.offload(False)
        self.shape(rate_mbps, round(buffer_bdp * rate_mbps * 1e6 / 8 * rtt_ms / 1e3))
        self.delay(rtt_ms)
        for box in "SD":  # a connection knows nothing of those before it
            self.command(box, "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")

    def iperf3(self, cca: str, port: int, seconds: float) -> subprocess.Popen[bytes]:
        """One flow of iperf3 to 10.9.2.1 and this port, under way."""
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.start("D", *AT_ONCE, "iperf3", "-s", "-1", "-p", str(port), **silent)
        while f":{port} " not in self.command("D", "ss", "-Hltn").stdout:
            time.sleep(0.05)
        command = [
            *AT_ONCE,
            "iperf3",
            "-c",
            "10.9.2.1",
            "-p",
            str(port),
            "-C",
            cca,
            "-t",
            str(round(seconds)),
        ]
        return self.start("S", *command, **silent)

    def offload(self, on: bool) -> None:
        for box, names in (("S", ("s0",)), ("R", ("in0", "out0")), ("D", ("d0",))):
            for name in names:
                self.command(
                    box,
                    "ethtool",
                    "-K",
                    name,
                    *(x for f in ("tso", "gso", "gro") for x in (f, "on" if on else "off")),
                )

    def close(self) -> None:
        self._stack.close()
        for box in "SRD":
            subprocess.run(["ip", "netns", "del", self.ns(box)], stderr=subprocess.DEVNULL, check=False)


def _remove_left_behind() -> None:
    """Namespaces of tests that were killed: their process is gone."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for name, process in re.findall(r"^(cctlive(\d+)-[SRD])\b", listed, re.M):
        if not Path(f"/proc/{process}").exists():
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """The sender is 10.9.1.1 and fd09:1::1, the receiver 10.9.2.1 and fd09:2::1."""
    _remove_left_behind()
    net = Network(f"cctlive{os.getpid()}")
    try:
        for box in "SRD":
            subprocess.run(["ip", "netns", "add", net.ns(box)], check=True)
        net.ip("S", f"link add s0 type veth peer name in0 netns {net.ns('R')}")
        net.ip("D", f"link add d0 type veth peer name out0 netns {net.ns('R')}")
        for box, names in (("S", ["s0"]), ("R", ["in0", "out0"]), ("D", ["d0"])):
            net.ip(box, "link set lo up", *(f"link set {name} up" for name in names))
            for path in (
                "ipv6/conf/all/accept_dad",
                "ipv6/conf/default/accept_dad",
                *(f"ipv6/conf/{n}/accept_dad" for n in names),
            ):
                net.command(box, "sh", "-c", f"echo 0 >/proc/sys/net/{path}")
        net.command(
            "R",
            "sh",
            "-c",
            "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
        )
        ends = [("S", "s0", "1", "in0"), ("D", "d0", "2", "out0")]
        for box, name, link, near in ends:
            net.ip(
                box, f"addr add 10.9.{link}.1/24 dev {name}", f"addr add fd09:{link}::1/64 dev {name} nodad"
            )
            net.ip(
                "R",
                f"addr add 10.9.{link}.254/24 dev {near}",
                f"addr add fd09:{link}::fe/64 dev {near} nodad",
            )
            net.ip(box, f"route add default via 10.9.{link}.254", f"route add default via fd09:{link}::fe")
        yield net
    finally:
        net.close()
