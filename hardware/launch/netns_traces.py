#!/usr/bin/env python3
"""Make captures of real Linux TCP through a bottleneck queue, with a tap on each side of the queue.

    sender ──────── router ═══ bottleneck ═══ wan ──────── receiver
             s0  r0        r1              w0     w1    d0
                 ↑ ingress tap  ↑ egress tap
                   (before the queue) (after it)

Four network namespaces are joined by veth pairs, and the kernel's own TCP, routing and queueing disciplines
do all the work on the data path. The base RTT is added on the way *back*: packets from the receiver (ACKs,
requests) leave through a TUN device, a process of this script holds each for the delay of its destination,
and they continue in the wan box. So each sender address has its own base RTT on any kernel with TUN, with or
without netem, and only the kernel touches the data. At the ingress tap the RTT is queueing delay plus base
RTT; at the egress tap it is the base RTT alone.

    netns_traces.py list                list the captures
    netns_traces.py make DIR [NAME…]    make all bundled captures, or the named ones, in DIR
    netns_traces.py clean               remove what a killed run left behind

Needs root, Linux, iproute2, ethtool, sysctl and tcpdump; Python 3.11 or newer with its standard library. All
traffic stays inside the namespaces. Namespaces and processes are removed however the script ends, except by
SIGKILL; even then the processes die with their parent, and `clean` removes the namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import fcntl
import gzip
import hashlib
import heapq
import ipaddress
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LABELS = (
    *("src", "dst", "sport", "dport", "protocol", "kind", "data_from", "cca", "base_rtt_ms"),
    *(
        "start_ns",
        "stop_ns",
        "bytes_acked",
        "retransmits",
        "min_rtt_us",
    ),  # from the kernel of the data's sender
)
PREFIX = "cctk"  # of all namespaces made here: cctk<pid>s, cctk<pid>r, …
TOOLS = ("ip", "tc", "ethtool", "sysctl", "tcpdump")
SNAPLEN = 96
LINKS = ((("s", "s0"), ("r", "r0")), (("r", "r1"), ("w", "w0")), (("w", "w1"), ("d", "d0")))
ACCESS_MBPS = 100  # rate of the sender's own link; without it, a sender would burst at memory speed


_LIBC = ctypes.CDLL(None, use_errno=True)


class Problem(Exception):
    """An error for the user, as one line."""


# ------------------------------------------------------------------------------------------------------------
# The captures


@dataclass(frozen=True)
class Flow:
    """Traffic of one kind.

    `kind` is ``bulk`` (TCP, sender to receiver, until `stop_s`), ``fetch`` (the receiver requests `size`
    bytes over HTTP, and the sender answers), ``udp`` (`rate_kbps` of `size`-byte datagrams) or ``ping`` (ten
    echo requests per second, from the sender).
    """

    kind: str
    cca: str = ""
    rtt_ms: float = 30
    start_s: float = 0.0
    stop_s: float = 0.0  # 0: the scenario's end
    ip: int = 4
    size: int = 0
    rate_kbps: int = 0


@dataclass(frozen=True)
class Scenario:
    name: str
    shows: str
    flows: tuple[Flow, ...]
    rate_mbps: float = 8.0
    queue: tuple[str, ...] = ("pfifo", "limit", "40")
    duration_s: float = 12.0
    ecn: bool = False
    bundled: bool = True


def _fetches(cca: str, starts_s: tuple[float, ...], size: int, ip: int) -> tuple[Flow, ...]:
    return tuple(Flow("fetch", cca, rtt_ms=20, start_s=start, size=size, ip=ip) for start in starts_s)


SCENARIOS = (
    Scenario(
        "reno",
        "Reno alone: the textbook sawtooth; the queue fills, a drop halves the window, the queue nearly empties",
        (Flow("bulk", "reno", rtt_ms=40),),
    ),
    Scenario(
        "cubic",
        "CUBIC alone on the same link: it comes back to where it lost a packet and stays there, so the queue "
        "never empties",
        (Flow("bulk", "cubic", rtt_ms=40),),
    ),
    Scenario(
        "bbr",
        "BBR (v1, as in the kernel) alone on the same link: a short queue after start-up, a probe every eight "
        "round trips, and the pause for a fresh minimum RTT after ten seconds",
        (Flow("bulk", "bbr", rtt_ms=40),),
    ),
    Scenario(
        "cubic-bbr",
        "CUBIC and BBR share a queue of two bandwidth-delay products: who gets how much, and what it costs",
        (Flow("bulk", "cubic"), Flow("bulk", "bbr", start_s=2)),
    ),
    Scenario(
        "three-ccas-ipv6",
        "Reno, CUBIC and BBR over IPv6, starting three seconds apart and leaving in the same order",
        (
            Flow("bulk", "reno", ip=6, stop_s=9),
            Flow("bulk", "cubic", ip=6, start_s=3, stop_s=12),
            Flow("bulk", "bbr", ip=6, start_s=6),
        ),
        duration_s=14,
    ),
    Scenario(
        "rtt-unfairness",
        "Two Reno flows, base RTTs 10 ms and 80 ms, one queue: the short one takes most of the link",
        (Flow("bulk", "reno", rtt_ms=10), Flow("bulk", "reno", rtt_ms=80)),
        queue=("pfifo", "limit", "30"),
    ),
    Scenario(
        "bufferbloat",
        "One CUBIC upload through a queue of 300 packets (about 0.45 s at this rate), with pings and small "
        "downloads suffering behind it",
        (
            Flow("bulk", "cubic", rtt_ms=20, start_s=2),
            Flow("ping", rtt_ms=20),
            *_fetches("cubic", (0.5, 1.0, 4.0, 6.0, 8.0, 10.0), 30_000, 4),
        ),
        queue=("pfifo", "limit", "300"),
    ),
    Scenario(
        "bufferbloat-codel",
        "The same traffic as in bufferbloat, with the same buffer of 300 packets, but CoDel in charge: the queue is "
        "brought back to about 5 ms",
        (
            Flow("bulk", "cubic", rtt_ms=20, start_s=2),
            Flow("ping", rtt_ms=20),
            *_fetches("cubic", (0.5, 1.0, 4.0, 6.0, 8.0, 10.0), 30_000, 4),
        ),
        queue=("codel", "limit", "300", "target", "5ms", "interval", "100ms"),
    ),
    Scenario(
        "fq-codel-ecn",
        "CUBIC and BBR with ECN through fq_codel: equal shares, congestion marked (CE) and not dropped; BBR v1 "
        "ignores the marks, and the only long queue is its own",
        (Flow("bulk", "cubic"), Flow("bulk", "bbr", start_s=2), Flow("ping")),
        queue=("fq_codel", "limit", "300", "target", "5ms", "interval", "100ms", "ecn"),
        ecn=True,
    ),
    Scenario(
        "mixed",
        "A bit of everything, for a first report: long CUBIC, BBR and Reno flows over IPv4 and IPv6, twenty "
        "short downloads, a UDP stream and pings, one full queue",
        (
            Flow("bulk", "cubic", rtt_ms=20),
            Flow("bulk", "bbr", rtt_ms=40, start_s=3, ip=6),
            Flow("bulk", "reno", rtt_ms=60, start_s=1, stop_s=14),
            Flow("udp", rtt_ms=20, start_s=0.5, size=200, rate_kbps=64),
            Flow("ping", rtt_ms=20),
            Flow("ping", rtt_ms=40, ip=6),
            *_fetches("cubic", tuple(0.7 + 1.5 * i for i in range(10)), 15_000, 4),
            *_fetches("bbr", tuple(1.4 + 1.5 * i for i in range(10)), 60_000, 6),
        ),
        rate_mbps=12,
        queue=("pfifo", "limit", "80"),
        duration_s=16,
    ),
    Scenario(
        "smoke",
        "Two seconds, to see whether everything works on this machine; not among the bundled captures",
        (
            Flow("bulk", "cubic", rtt_ms=10),
            Flow("bulk", "reno", rtt_ms=10, ip=6),
            *_fetches("cubic", (0.5,), 5_000, 4),
            Flow("udp", size=100, rate_kbps=32),
            Flow("ping", ip=6),
        ),
        duration_s=2,
        bundled=False,
    ),
)


# ------------------------------------------------------------------------------------------------------------
# Addresses and ports: flow i goes from 10.1.0.(10+i) to 10.3.0.(10+i), or from fd00:1::… to fd00:3::…


def endpoints(scenario: Scenario) -> list[dict[str, Any]]:
    """The flows as plain dictionaries with addresses and ports, for the worker processes."""
    plan = []
    for i, flow in enumerate(scenario.flows):
        if flow.ip == 4:
            sender, receiver = f"10.1.0.{10 + i}", f"10.3.0.{10 + i}"
        else:
            sender, receiver = f"fd00:1::{10 + i:x}", f"fd00:3::{10 + i:x}"
        ports = {
            "bulk": (40000 + i, 5001),
            "fetch": (80, 41000 + i),
            "udp": (42000 + i, 5004),
            "ping": (0, 0),
        }
        sport, dport = ports[flow.kind]
        plan.append(
            asdict(flow)
            | {"sender": sender, "receiver": receiver, "sender_port": sport, "receiver_port": dport}
            | {"stop_s": flow.stop_s or scenario.duration_s}
        )
    return plan


def _family(flow: dict[str, Any]) -> socket.AddressFamily:
    return socket.AF_INET6 if flow["ip"] == 6 else socket.AF_INET


# ------------------------------------------------------------------------------------------------------------
# Worker processes. Each runs this file inside one namespace, as `netns_traces.py worker ROLE`, and gets the
# plan as the first line of standard input. It prints "ready", starts at "go", prints "done", and prints its
# report at "report".


class Worker:
    def __init__(self) -> None:
        self.plan = json.loads(sys.stdin.readline())
        self.records: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.serving: list[threading.Thread] = []
        self.start = 0.0

    def run(self, listen: Any, act: dict[str, Any]) -> None:
        for flow in self.plan:
            listen(self, flow)
        print("ready", flush=True)
        self.start = float(sys.stdin.readline().split()[1])
        threads = [self._thread(act[f["kind"]], f) for f in self.plan if f["kind"] in act]
        for thread in threads:
            thread.join()
        print("done", flush=True)
        sys.stdin.readline()
        for thread in self.serving:
            thread.join(timeout=5)
        print(json.dumps({"records": self.records, "failures": self.failures}), flush=True)

    def _thread(self, work: Any, *args: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work(self, *args)
            except Exception as error:  # a thread's traceback would be lost; the parent prints this line
                self.failures.append(f"{work.__name__}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def serve(self, listener: socket.socket, handle: Any, flow: dict[str, Any]) -> None:
        def accept() -> None:
            while True:
                connection, _ = listener.accept()
                connection.settimeout(20)
                self.serving.append(self._thread(handle, connection, flow))

        threading.Thread(target=accept, daemon=True).start()

    def wait_until(self, offset_s: float) -> None:
        time.sleep(max(0.0, self.start + offset_s - time.monotonic()))


def _listener(flow: dict[str, Any], address: str, port: int) -> socket.socket:
    listener = socket.socket(_family(flow), socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(16)
    return listener


def _congestion_control(sock: socket.socket) -> str:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()


def _tcp_record(sock: socket.socket, flow: dict[str, Any], cca: str, start_ns: int) -> dict[str, Any]:
    """The kernel's counters of a connection whose data are all acknowledged (struct tcp_info)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (retransmits,) = struct.unpack_from("=I", info, 8 + 23 * 4)  # tcpi_total_retrans
    (acked,) = struct.unpack_from("=Q", info, 120)  # tcpi_bytes_acked
    (min_rtt_us,) = struct.unpack_from("=I", info, 148)  # tcpi_min_rtt
    if _congestion_control(sock) != cca:
        raise Problem(f"the kernel changed the congestion control of {flow} to {_congestion_control(sock)}")
    return _record(flow, start_ns) | {
        "cca": cca,
        "bytes_acked": acked,
        "retransmits": retransmits,
        "min_rtt_us": min_rtt_us,
    }


def _record(flow: dict[str, Any], start_ns: int) -> dict[str, Any]:
    by_sender = flow["kind"] != "fetch"
    near, far = ("sender", "receiver") if by_sender else ("receiver", "sender")
    protocol = {"udp": 17, "ping": 1 if flow["ip"] == 4 else 58}.get(flow["kind"], 6)
    return {
        "src": flow[near],
        "dst": flow[far],
        "sport": flow[f"{near}_port"],
        "dport": flow[f"{far}_port"],
        "protocol": protocol,
        "kind": flow["kind"],
        "data_from": "src" if by_sender else "dst",
        "base_rtt_ms": flow["rtt_ms"],
        "start_ns": start_ns,
        "stop_ns": time.time_ns(),
    }


# -- the sender's side


def sender_listen(worker: Worker, flow: dict[str, Any]) -> None:
    if flow["kind"] == "fetch":
        listener = _listener(flow, flow["sender"], flow["sender_port"])
        # accepted connections inherit the congestion control
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, flow["cca"].encode())
        worker.serve(listener, answer, flow)


def answer(worker: Worker, connection: socket.socket, flow: dict[str, Any]) -> None:
    start_ns = time.time_ns()
    with connection:
        cca = _congestion_control(connection)
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += connection.recv(4096)
        size = int(request.split()[1].removeprefix(b"/bytes/"))
        header = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % size
        connection.sendall(header + bytes(size))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
        worker.records.append(_tcp_record(connection, flow, cca, start_ns))


def bulk(worker: Worker, flow: dict[str, Any]) -> None:
    worker.wait_until(flow["start_s"])
    with socket.socket(_family(flow), socket.SOCK_STREAM) as sock:
        sock.settimeout(20)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, flow["cca"].encode())
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 65536)  # little left to send at the end
        sock.bind((flow["sender"], flow["sender_port"]))
        cca, start_ns = _congestion_control(sock), time.time_ns()
        sock.connect((flow["receiver"], flow["receiver_port"]))
        block = bytes(16384)
        while time.monotonic() < worker.start + flow["stop_s"]:
            sock.send(block)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass
        worker.records.append(_tcp_record(sock, flow, cca, start_ns))


def udp(worker: Worker, flow: dict[str, Any]) -> None:
    worker.wait_until(flow["start_s"])
    gap_s = flow["size"] * 8 / (flow["rate_kbps"] * 1000)
    with socket.socket(_family(flow), socket.SOCK_DGRAM) as sock:
        sock.bind((flow["sender"], flow["sender_port"]))
        start_ns, n = time.time_ns(), 0
        while flow["start_s"] + n * gap_s < flow["stop_s"]:
            worker.wait_until(flow["start_s"] + n * gap_s)
            sock.sendto(bytes(flow["size"]), (flow["receiver"], flow["receiver_port"]))
            n += 1
        worker.records.append(_record(flow, start_ns))


def ping(worker: Worker, flow: dict[str, Any]) -> None:
    worker.wait_until(flow["start_s"])
    protocol, kind = (socket.IPPROTO_ICMPV6, 128) if flow["ip"] == 6 else (socket.IPPROTO_ICMP, 8)
    with socket.socket(_family(flow), socket.SOCK_RAW, protocol) as sock:
        sock.bind((flow["sender"], 0))
        start_ns, n = time.time_ns(), 0
        while flow["start_s"] + n / 10 < flow["stop_s"]:
            worker.wait_until(flow["start_s"] + n / 10)
            echo = struct.pack("!BBHHH", kind, 0, 0, os.getpid() & 0xFFFF, n) + bytes(56)
            if kind == 8:  # the kernel only fills in ICMPv6's checksum
                echo = echo[:2] + struct.pack("!H", _checksum(echo)) + echo[4:]
            sock.sendto(echo, (flow["receiver"], 0))
            n += 1
        worker.records.append(_record(flow, start_ns))


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


# -- the receiver's side


def receiver_listen(worker: Worker, flow: dict[str, Any]) -> None:
    if flow["kind"] == "bulk":
        worker.serve(_listener(flow, flow["receiver"], flow["receiver_port"]), sink, flow)
    elif flow["kind"] == "udp":
        sock = socket.socket(_family(flow), socket.SOCK_DGRAM)
        sock.bind((flow["receiver"], flow["receiver_port"]))
        worker._thread(drain, sock)


def sink(worker: Worker, connection: socket.socket, flow: dict[str, Any]) -> None:
    with connection:
        while connection.recv(262144):
            pass


def drain(worker: Worker, sock: socket.socket) -> None:
    while True:
        sock.recv(2048)


def fetch(worker: Worker, flow: dict[str, Any]) -> None:
    worker.wait_until(flow["start_s"])
    with socket.socket(_family(flow), socket.SOCK_STREAM) as sock:
        sock.settimeout(20)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((flow["receiver"], flow["receiver_port"]))
        sock.connect((flow["sender"], flow["sender_port"]))
        sock.sendall(b"GET /bytes/%d HTTP/1.1\r\nHost: sender\r\nConnection: close\r\n\r\n" % flow["size"])
        while sock.recv(65536):
            pass


# -- the wan box


def hold() -> None:
    """Move packets from the receiver's TUN device to the wan box's, each after the delay of its destination."""
    setup = json.loads(sys.stdin.readline())
    delay_ns = {ipaddress.ip_address(f["sender"]).packed: round(f["rtt_ms"] * 1e6) for f in setup["plan"]}
    with contextlib.suppress(OSError):  # helps on a busy machine, but is not required
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    wan = _tun()
    with open(f"/var/run/netns/{setup['receiver']}") as namespace:
        if _LIBC.setns(namespace.fileno(), 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {setup['receiver']}")
    receiver = _tun()
    print("ready", flush=True)
    held: list[tuple[int, int, bytes]] = []
    count = 0
    while True:
        wait_s = max(0, held[0][0] - time.monotonic_ns()) / 1e9 if held else None
        if select.select([receiver], [], [], wait_s)[0]:
            packet = os.read(receiver, 65536)
            destination = packet[16:20] if packet[0] >> 4 == 4 else packet[24:40]
            if destination in delay_ns:  # skip the kernel's own multicast packets
                count += 1
                heapq.heappush(held, (time.monotonic_ns() + delay_ns[destination], count, packet))
        while held and held[0][0] <= time.monotonic_ns():
            os.write(wan, heapq.heappop(held)[2])


def _tun() -> int:
    """The TUN device ``hold`` in this process's namespace."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"hold", 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
    return tun


# ------------------------------------------------------------------------------------------------------------
# The parent: namespaces, links, queue, taps


def call(*command: str) -> str:
    """Run a command; returns its output, or raises a Problem with its first error line."""
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, check=False
    )
    if done.returncode:
        complaint = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise Problem(f"{' '.join(command)}: {complaint[0]}")
    return done.stdout


def _die_with_parent() -> None:
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; kept across exec


def _on_one_cpu() -> None:
    """Pin the process, so that its packets are also routed and queued on that CPU and cannot overtake each other."""
    _die_with_parent()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Bench:
    """The four namespaces and all processes in them; a context manager that leaves nothing behind."""

    def __init__(self) -> None:
        self.names = {box: f"{PREFIX}{os.getpid()}{box}" for box in "srwd"}
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        with signals_ignored():
            for process in self.processes:
                process.kill()
            for process in self.processes:
                process.wait()
                for pipe in (process.stdin, process.stdout, process.stderr):
                    if pipe:
                        with contextlib.suppress(OSError):
                            pipe.close()
            remove_namespaces(set(self.names.values()))

    def ip(self, box: str, *args: str) -> None:
        call("ip", "-n", self.names[box], *args)

    def sysctl(self, box: str, settings: dict[str, int]) -> None:
        pairs = [f"{key}={int(value)}" for key, value in settings.items()]
        call("ip", "netns", "exec", self.names[box], "sysctl", "-qw", *pairs)

    def tc(self, box: str, *args: str) -> str:
        return call("tc", "-n", self.names[box], *args)

    def start(
        self, box: str, *command: str, before: Any = _die_with_parent, **streams: Any
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[box], *command],
            text=True,
            start_new_session=True,  # Ctrl-C at the terminal only reaches the parent, which cleans up
            preexec_fn=before,  # noqa: PLW1509 - this process has one thread
            **streams,
        )
        self.processes.append(process)
        return process

    def build(self, scenario: Scenario, plan: list[dict[str, Any]]) -> None:
        for box, name in self.names.items():
            call("ip", "netns", "add", name)
            self.ip(box, "link", "set", "lo", "up")
            settings = {
                "net.ipv4.ip_forward": box in "rw",
                "net.ipv6.conf.all.forwarding": box in "rw",
                "net.ipv4.conf.all.rp_filter": 0,  # delayed packets come in on another interface
                "net.ipv4.conf.default.rp_filter": 0,
                "net.ipv6.conf.default.accept_dad": 0,  # otherwise IPv6 does not work in the first seconds
                "net.ipv6.conf.default.mldv2_unsolicited_report_interval": 3_600_000,
                "net.ipv4.tcp_ecn": scenario.ecn,
                "net.ipv4.tcp_no_metrics_save": 1,  # no flow starts with metrics of an earlier one
            }
            self.sysctl(box, settings)
        for (box, dev), (peer_box, peer) in LINKS:
            peer_is = ("peer", "name", peer, "netns", self.names[peer_box])
            self.ip(box, "link", "add", dev, "type", "veth", *peer_is)
            for end_box, end in ((box, dev), (peer_box, peer)):
                # one packet per frame, with a correct checksum
                offloads = ("tso", "off", "gso", "off", "gro", "off", "tx", "off", "rx", "off")
                call("ip", "netns", "exec", self.names[end_box], "ethtool", "-K", end, *offloads)
                # no repeated neighbour discovery, so that the queue only carries the traffic
                self.sysctl(
                    end_box, {f"net.ipv{n}.neigh.{end}.base_reachable_time_ms": 3_600_000 for n in (4, 6)}
                )
                self.ip(end_box, "link", "set", end, "txqueuelen", "1000", "up")
        for box in "wd":
            self.ip(box, "tuntap", "add", "dev", "hold", "mode", "tun")
            self.ip(box, "link", "set", "hold", "txqueuelen", "10000", "up")
        for n, net in ((4, "10.{}.0.{}"), (6, "fd00:{}::{}")):
            prefix = "/24" if n == 4 else "/64"
            nets = [net.format(i, "0" if n == 4 else "") + prefix for i in (1, 2, 3)]
            for box, dev, *address in (
                ("r", "r0", 1, 1),
                ("r", "r1", 2, 1),
                ("w", "w0", 2, 2),
                ("w", "w1", 3, 1),
            ):
                self.ip(box, "addr", "add", net.format(*address) + prefix, "dev", dev)
            for flow in plan:
                if flow["ip"] == n:
                    self.ip("s", "addr", "add", flow["sender"] + prefix, "dev", "s0")
                    self.ip("d", "addr", "add", flow["receiver"] + prefix, "dev", "d0")
            if any(flow["ip"] == n for flow in plan):
                self.ip("s", f"-{n}", "route", "add", "default", "via", net.format(1, 1))
                self.ip("d", f"-{n}", "route", "add", "default", "dev", "hold")
            self.ip("r", f"-{n}", "route", "add", nets[2], "via", net.format(2, 2))
            self.ip("w", f"-{n}", "route", "add", nets[0], "via", net.format(2, 1))
        self._shape("s", "s0", ACCESS_MBPS, ("pfifo", "limit", "1000"))
        self._shape("r", "r1", scenario.rate_mbps, scenario.queue)

    def _shape(self, box: str, dev: str, rate_mbps: float, queue: tuple[str, ...]) -> None:
        rate = ("rate", f"{rate_mbps}mbit", "ceil", f"{rate_mbps}mbit")
        # a burst and quantum of one frame: packets leave evenly spaced, not in trains
        burst = ("burst", "1514", "cburst", "1514", "quantum", "1514")
        self.tc(box, "qdisc", "add", "dev", dev, "root", "handle", "1:", "htb", "default", "1")
        self.tc(box, "class", "add", "dev", dev, "parent", "1:", "classid", "1:1", "htb", *rate, *burst)
        self.tc(box, "qdisc", "add", "dev", dev, "parent", "1:1", "handle", "10:", *queue)

    def tap(self, dev: str, path: Path) -> subprocess.Popen[str]:
        command = (
            "tcpdump",
            "-i",
            dev,
            "-n",
            "-s",
            str(SNAPLEN),
            "-B",
            "16384",
            "--time-stamp-precision=nano",
        )
        # It writes to standard output, so that it does not need permission to open the path. It stays root,
        # because a process that changes its user no longer dies with its parent.
        with path.open("wb") as out:
            how = ("-Z", "root", "--immediate-mode", "-U", "-w", "-")
            process = self.start("r", *command, *how, stdout=out, stderr=subprocess.PIPE)
        assert process.stderr
        complaint = ""
        for line in process.stderr:
            if "listening on" in line:
                return process
            complaint = complaint or line.strip()
        raise Problem(f"tcpdump did not start on {dev}: {complaint or 'no message'}")

    def stop_tap(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=20)
        dropped = re.search(r"(\d+) packets? dropped by kernel", text)
        if dropped is None or int(dropped[1]):
            raise Problem(f"tcpdump lost packets: {' '.join(text.split())}")

    def worker(self, box: str, role: str, setup: Any) -> subprocess.Popen[str]:
        command = (sys.executable, "-I", str(Path(__file__).resolve()), "worker", role)
        process = self.start(box, *command, before=_on_one_cpu, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        send_line(process, json.dumps(setup))
        expect(process, "ready", role)
        return process

    def queue_statistics(self) -> dict[str, int]:
        for qdisc in json.loads(self.tc("r", "-s", "-j", "qdisc", "show", "dev", "r1")):
            if qdisc["handle"] == "10:":
                marked = qdisc.get("ecn_mark", 0)
                return {"sent": qdisc["packets"], "dropped": qdisc["drops"], "marked": marked}
        raise Problem("tc does not show the bottleneck queue")


def send_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin
    process.stdin.write(line + "\n")
    process.stdin.flush()


def expect(process: subprocess.Popen[str], word: str, role: str) -> None:
    assert process.stdout
    answer_line = process.stdout.readline().strip()
    if answer_line != word:
        raise Problem(f"the {role} process printed {answer_line!r} instead of {word!r}")


def run(scenario: Scenario, folder: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Run a scenario, with raw captures in `folder`; returns the labels and the queue's counters."""
    plan = endpoints(scenario)
    with Bench() as bench, deadline(scenario.duration_s + 60):
        bench.build(scenario, plan)
        bench.worker("w", "hold", {"plan": plan, "receiver": bench.names["d"]})
        workers = [bench.worker("d", "receiver", plan), bench.worker("s", "sender", plan)]
        taps = [bench.tap("r0", folder / "ingress.pcap"), bench.tap("r1", folder / "egress.pcap")]
        for process in workers:
            send_line(process, f"go {time.monotonic() + 0.2}")
        for process in workers:
            expect(process, "done", "traffic")
        for process in workers:
            send_line(process, "report")
        reports = []
        for process in workers:
            assert process.stdout
            reports.append(json.loads(process.stdout.readline()))
        time.sleep(0.5)  # the last ACKs are still delayed, and the taps must see them
        statistics = bench.queue_statistics()
        for tap in taps:
            bench.stop_tap(tap)
    failures = [line for report in reports for line in report["failures"]]
    if failures:
        raise Problem("; ".join(failures))
    records = [record for report in reports for record in report["records"]]
    if len(records) != len(plan):
        raise Problem(f"only {len(records)} of {len(plan)} flows reported")
    return sorted(records, key=lambda r: r["start_ns"]), statistics


# ------------------------------------------------------------------------------------------------------------
# Files


def count_packets(path: Path) -> tuple[int, float]:
    """The number of packets in tcpdump's pcap (native byte order, nanoseconds), and the seconds they span."""
    data = path.read_bytes()
    if data[:4] != struct.pack("=I", 0xA1B23C4D):
        raise Problem(f"{path.name} is not a nanosecond pcap")
    offset, count, first, last = 24, 0, 0.0, 0.0
    while offset < len(data):
        seconds, nanoseconds, captured = struct.unpack_from("=III", data, offset)
        last = seconds + nanoseconds / 1e9
        first = first or last
        offset += 16 + captured
        count += 1
    return count, last - first


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it if the block succeeds."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def store(
    scenario: Scenario, raw: Path, out: Path, labels: list[dict[str, Any]], queue: dict[str, int]
) -> None:
    """Compress the two captures, write the labels, and update the manifest."""
    files = []
    for tap in ("ingress", "egress"):
        name = f"{scenario.name}.{tap}.pcap.gz"
        packets, span_s = count_packets(raw / f"{tap}.pcap")
        blob = gzip.compress((raw / f"{tap}.pcap").read_bytes(), 9, mtime=0)
        with replacing(out / name) as path:
            path.write_bytes(blob)
        files.append((name, tap, packets, span_s, blob))
    with replacing(out / f"{scenario.name}.labels.csv") as path, path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, LABELS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(labels)
    entry = {
        "name": scenario.name,
        "shows": scenario.shows,
        "made_by": f"{Path(__file__).name} make DIR {scenario.name}",
        "kernel": kernel(),
        "licence": "Apache-2.0",
        "rate_mbps": scenario.rate_mbps,
        "queue": " ".join(scenario.queue),
        "queue_sent": queue["sent"],
        "queue_dropped": queue["dropped"],
        "queue_marked": queue["marked"],
        "ecn": scenario.ecn,
        "base_rtts_ms": sorted({flow.rtt_ms for flow in scenario.flows}),
        "ccas": sorted({flow.cca for flow in scenario.flows if flow.cca}),
        "ip_versions": sorted({flow.ip for flow in scenario.flows}),
        "labels": f"{scenario.name}.labels.csv",
        "file": [
            {
                "name": name,
                "tap": tap,
                "sha256": hashlib.sha256(blob).hexdigest(),
                "bytes": len(blob),
                "packets": packets,
                "duration_s": round(span_s, 6),
                "snap_length": SNAPLEN,
            }
            for name, tap, packets, span_s, blob in files
        ],
    }
    manifest = out / "MANIFEST.toml"
    known = tomllib.loads(manifest.read_text())["capture"] if manifest.exists() else []
    order = [s.name for s in SCENARIOS]
    entries = [e for e in known if e["name"] != scenario.name] + [entry]
    entries.sort(key=lambda e: order.index(e["name"]))
    with replacing(manifest) as path:
        path.write_text(
            f"# Captures and how each was made; written by {Path(__file__).name}\n{to_toml(entries)}"
        )


def kernel() -> str:
    virtual = "User Mode Linux" in Path("/proc/cpuinfo").read_text()
    version = platform.release().split("-")[0]
    return f"Linux {version}" + (" (User Mode Linux, virtual time)" if virtual else "")


def to_toml(entries: list[dict[str, Any]]) -> str:
    # JSON's strings, numbers, booleans and lists are also TOML's
    lines = []
    for entry in entries:
        files = entry["file"]
        lines += ["", "[[capture]]", *(f"{k} = {json.dumps(v)}" for k, v in entry.items() if k != "file")]
        for file in files:
            lines += ["", "[[capture.file]]", *(f"{k} = {json.dumps(v)}" for k, v in file.items())]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------------------------
# Signals, leftovers, command line


class Stopped(BaseException):
    """A signal arrived; unwinds through all clean-up code."""

    def __init__(self, number: int) -> None:
        self.number = number


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _stop(number: int, _: object) -> None:
    raise Stopped(number)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Protect clean-up code from a second Ctrl-C."""
    before = {s: signal.signal(s, signal.SIG_IGN) for s in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise a Problem if the block (a tool, a transfer) hangs for `seconds`."""

    def late(_: int, __: object) -> None:
        raise Problem(f"not finished after {seconds:.0f} s: stopped")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def namespaces() -> set[str]:
    """Names of the namespaces made by any run of this script."""
    names = (line.split()[0] for line in call("ip", "netns", "list").splitlines() if line.split())
    return {name for name in names if re.fullmatch(rf"{PREFIX}\d+[srwd]", name)}


def remove_namespaces(names: set[str]) -> None:
    for name in sorted(names & namespaces()):
        for pid in call("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        call("ip", "netns", "del", name)


def clean() -> int:
    """Remove the namespaces of dead runs, not those of running ones."""
    gone = set()
    for name in namespaces():
        command = Path(f"/proc/{name[len(PREFIX) : -1]}/cmdline")
        if not (command.exists() and Path(__file__).name.encode() in command.read_bytes()):
            gone.add(name)
    remove_namespaces(gone)
    print(f"removed {len(gone)} namespaces")
    return 0


def check_machine(scenarios: list[Scenario]) -> None:
    if not sys.platform.startswith("linux"):
        raise Problem("needs Linux, for network namespaces")
    if os.geteuid() != 0:
        raise Problem("needs root, to make network namespaces")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise Problem(f"not on PATH: {', '.join(missing)} (Debian: iproute2, ethtool, procps, tcpdump)")
    if not Path("/proc/sys/net/ipv6").exists():
        raise Problem("needs a kernel with IPv6")
    if not Path("/dev/net/tun").exists():
        raise Problem("needs /dev/net/tun for the base RTT (modprobe tun)")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        for cca in sorted({flow.cca for s in scenarios for flow in s.flows if flow.cca}):
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cca.encode())
            except OSError:
                raise Problem(f"this kernel has no congestion control {cca} (modprobe tcp_{cca})") from None


def unsupported(scenarios: list[Scenario]) -> list[Scenario]:
    """The scenarios whose queueing discipline this kernel lacks, found by trial."""
    found = []
    with Bench() as bench:
        call("ip", "netns", "add", bench.names["s"])
        for scenario in scenarios:
            try:
                bench.tc("s", "qdisc", "replace", "dev", "lo", "root", *scenario.queue)
            except Problem:
                found.append(scenario)
    return found


def make(out: Path, names: list[str]) -> int:
    known = {s.name: s for s in SCENARIOS}
    for name in names:
        if name not in known:
            raise Problem(f"no capture {name!r}; must be one of {', '.join(known)}")
    chosen = [known[name] for name in names] or [s for s in SCENARIOS if s.bundled]
    check_machine(chosen)
    for scenario in unsupported(chosen):
        reason = f"this kernel has no {scenario.queue[0]} queue (modprobe sch_{scenario.queue[0]})"
        if scenario.name in names:
            raise Problem(f"{scenario.name}: {reason}")
        print(f"{scenario.name}: skipped: {reason}")
        chosen.remove(scenario)
    out.mkdir(parents=True, exist_ok=True)
    for scenario in chosen:
        print(f"{scenario.name}: {scenario.duration_s:g} s at {scenario.rate_mbps:g} Mbit/s", flush=True)
        with tempfile.TemporaryDirectory(prefix=PREFIX) as raw:
            labels, queue = run(scenario, Path(raw))
            store(scenario, Path(raw), out, labels, queue)
        sent, dropped, marked = (queue[key] for key in ("sent", "dropped", "marked"))
        print(f"    queue: {sent} packets sent, {dropped} dropped, {marked} marked")
        for r in labels:
            if r["kind"] == "bulk":
                rate = r["bytes_acked"] * 8e3 / (r["stop_ns"] - r["start_ns"])
                print(f"    {r['cca']:6} {r['src']}: {rate:6.2f} Mbit/s, {r['retransmits']} retransmitted")
    return 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the captures")
    making = commands.add_parser("make", help="make captures")
    making.add_argument("out", type=Path, metavar="DIR")
    making.add_argument(
        "names", nargs="*", metavar="NAME", help="captures to make; default: all bundled ones"
    )
    commands.add_parser("clean", help="remove namespaces that a killed run left behind")
    working = commands.add_parser("worker")  # started by `make` inside a namespace
    working.add_argument("role", choices=("sender", "receiver", "hold"))
    args = parser.parse_args(argv)
    if args.command == "worker":
        if args.role == "sender":
            Worker().run(sender_listen, {"bulk": bulk, "udp": udp, "ping": ping})
        elif args.role == "receiver":
            Worker().run(receiver_listen, {"fetch": fetch})
        else:
            hold()
        return 0
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        if args.command == "list":
            for scenario in SCENARIOS:
                print(f"{scenario.name:18} {scenario.shows}")
            return 0
        if args.command == "clean":
            return clean()
        return make(args.out.resolve(), args.names)
    except Problem as problem:
        print(f"netns_traces: {problem}", file=sys.stderr)
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        print(f"netns_traces: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(f"netns_traces: stopped by {signal.Signals(stopped.number).name}", file=sys.stderr)
        return 128 + stopped.number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
