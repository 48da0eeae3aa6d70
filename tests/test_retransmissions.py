"""What was sent again: against the kernels that sent it, against made-up truth, and case by case."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_packets import make_keys, packet_columns

import cctoolkit as cct
from cctoolkit.analysis.flow_kernels import HOLES
from cctoolkit.capture.synth.mawi import mawi_like
from cctoolkit.errors import ParameterError

TRACES = Path(__file__).parents[1] / "traces"
NAMES = sorted(str(p.relative_to(TRACES)).removesuffix(".labels.csv") for p in TRACES.rglob("*.labels.csv"))
FIN, SYN, RST, ACK = 1, 2, 4, 16
MS = 1_000_000

# ------------------------------------------------------------------------------ the bundled captures of Linux


def tap(name: str, which: str) -> cct.Capture:
    return cct.read_capture(TRACES / f"{name}.{which}.pcap.gz")


def counted_by_the_kernel(name: str) -> dict[tuple[str, str, int, int], tuple[str, int]]:
    """Of each TCP flow, the direction of its data and the sender's ``tcpi_total_retrans``."""
    with (TRACES / f"{name}.labels.csv").open(newline="") as file:
        return {
            (r["src"], r["dst"], int(r["sport"]), int(r["dport"])): (
                "fwd" if r["data_from"] == "src" else "rev",
                int(float(r["retransmits"])),
            )
            for r in csv.DictReader(file)
            if r["retransmits"]
        }


def by_ends(flows: pd.DataFrame) -> pd.DataFrame:
    return flows[flows["protocol"] == 6].set_index(["src", "dst", "sport", "dport"])


@pytest.mark.parametrize("name", NAMES)
def test_in_front_of_the_queue_the_counts_are_the_kernels(name: str) -> None:
    flows = by_ends(tap(name, "ingress").flows)
    kernel = counted_by_the_kernel(name)
    assert kernel
    ours = {ends: int(flows.loc[ends, f"retransmits_{way}"]) for ends, (way, _) in kernel.items()}
    assert ours == {ends: count for ends, (_, count) in kernel.items()}
    for ends, (way, count) in kernel.items():  # full segments, or the last of a transfer
        flow = flows.loc[ends]
        assert flow[f"retransmitted_bytes_{way}"] <= 1448 * count
        assert flow[f"out_of_order_{way}"] == flow[f"copies_{way}"] == 0


@pytest.mark.parametrize("name", ["cubic", "cubic-bbr", "reno"])
def test_records_a_little_out_of_order_hardly_change_counts(name: str) -> None:
    """As of a capture on several queues: every fiftieth packet changes places with the next one, stamps and all."""
    capture = tap(name, "ingress")
    order = np.arange(len(capture))
    first = np.arange(0, len(order) - 1, 50)
    order[first], order[first + 1] = first + 1, first
    columns = {column: values[order] for column, values in capture.columns.items()}
    flows = by_ends(cct.flow_table(columns, capture.keys))
    kernel = counted_by_the_kernel(name)
    for ends, (way, count) in kernel.items():  # one that changed places itself may be missed
        assert abs(flows.loc[ends, f"retransmits_{way}"] - count) <= 1


_IDENTITY = ["src", "sport", "dst", "dport", "direction", "seq", "payload_bytes", "tsval", "tcp_flags", "ack"]


def segments(cap: cct.Capture) -> pd.DataFrame:
    """The packets that take sequence numbers, with what they are and who they are at any tap."""
    ends = cap.flows.set_index("flow_id")[["src", "sport", "dst", "dport"]]
    table = cap.packets.assign(kind=np.asarray(cct.segment_kinds(cap))).join(ends, on="flow_id")
    return table[table["kind"] != "other"]


@pytest.mark.slow
def test_behind_the_queue_each_retransmission_is_accounted_for() -> None:
    """Those missing were dropped by the queue, or nothing newer had passed it, so that they look new."""
    total: Counter[str] = Counter()
    for name in NAMES:
        before, after = segments(tap(name, "ingress")), segments(tap(name, "egress"))
        again = Counter(before.loc[before["kind"] == "retransmitted", _IDENTITY].itertuples(index=False))
        edge: dict[tuple, int] = {}
        seen: Counter[str] = Counter()
        for *identity, kind in after[[*_IDENTITY, "kind"]].itertuples(index=False):
            way, seq = tuple(identity[:5]), identity[5]
            end = seq + identity[6] + bool(identity[8] & (SYN | FIN))
            newest = edge.get(way, seq)
            ahead = (seq - newest + 2**31) % 2**32 - 2**31
            sent_again = again[tuple(identity)] > 0
            again[tuple(identity)] -= sent_again
            assert kind == ("new" if ahead >= 0 else "retransmitted"), "nothing is overtaken in these"
            assert sent_again or kind == "new"
            seen[kind] += sent_again
            if (end - newest + 2**31) % 2**32 - 2**31 > 0 or way not in edge:
                edge[way] = end % 2**32
        assert int((after["kind"] == "retransmitted").sum()) == seen["retransmitted"]
        total += seen + Counter(dropped=again.total())
    assert total["retransmitted"] > 5000 and total["dropped"] > 500
    assert total["new"] < 0.05 * (total["retransmitted"] + total["new"])


# ------------------------------------------------------------------------------ a synthetic capture's truth


@pytest.mark.parametrize("seed", range(3))
def test_synthetic_events_are_found(seed: int) -> None:
    columns, keys = next(
        mawi_like(200_000, seed, part_packets=200_000, events=True, loss=0.01, reordering=0.3)
    )
    kinds = np.asarray(cct.segment_kinds(columns, keys))
    flags = columns["tcp_flags"]
    takes_numbers = (
        ((columns["payload_bytes"] > 0) | (flags & (SYN | FIN) != 0)) & (flags != 0) & (flags & RST == 0)
    )
    ordinary, again, filled, overtaken = (takes_numbers & (columns["event"] == event) for event in range(4))
    assert set(kinds[ordinary]) == {"new"} and set(kinds[again]) == {"retransmitted"}
    assert set(kinds[filled]) == {"retransmitted", "new"}  # new: nothing had passed after the lost one
    assert np.mean(kinds[filled] == "new") < 0.25
    stamped = overtaken & columns["has_ts"]
    assert stamped.sum() > 20 and set(kinds[stamped]) == {"reordered"}
    assert set(kinds[overtaken]) <= {"reordered", "retransmitted"}  # without timestamps 3 ms decide


# ------------------------------------------------------------------------------ case by case

_OPEN = [
    (0, 0, 1000, 0, SYN, 0, 100),
    (9 * MS, 1, 5000, 1001, SYN | ACK, 0, 100),
    (10 * MS, 0, 1001, 5001, ACK, 0, 100),
]
#: segments, retransmits, their payload, out of order, copies
Counts = tuple[int, int, int, int, int]


def data(ms: float, seq: int, length: int = 10, tsval: int = 0, flags: int = ACK, ack: int = 5001) -> tuple:
    return (round(ms * MS), 0, seq % 2**32, ack, flags, length, 100, tsval)


def reply(ms: float, ack: int, window: int = 100) -> tuple:
    return (round(ms * MS), 1, 5001, ack, ACK, 0, window)


#: Name: packets (ts_ns, direction, seq, ack, flags, length, window[, TSval]), what direction 0 counts.
CASES: dict[str, tuple[list[tuple], Counts]] = {
    "a repeat is a retransmission however soon": (
        [data(20, 1001), data(20.1, 1011), data(20.2, 1001)],
        (3, 1, 10, 0, 0),
    ),
    "cut differently": ([data(20, 1001), data(20, 1011), data(80, 1001, 20)], (3, 1, 20, 0, 0)),
    "in part, with new bytes behind": ([data(20, 1001), data(80, 1006, 10)], (2, 1, 5, 0, 0)),
    "in part, with missing bytes before": (
        [data(20, 1001), data(20, 1021), data(80, 1011, 20)],
        (3, 1, 20, 0, 0),
    ),
    "a SYN sent again has no payload": (
        [data(0, 1000, 0, flags=SYN), data(1000, 1000, 0, flags=SYN)],
        (2, 1, 0, 0, 0),
    ),
    "a FIN sent again has no payload": (
        [data(20, 1001), data(21, 1011, 0, flags=FIN | ACK), data(300, 1011, 0, flags=FIN | ACK)],
        (3, 1, 0, 0, 0),
    ),
    "data sent again with the FIN": (
        [data(20, 1001, flags=FIN | ACK), data(300, 1001, flags=FIN | ACK)],
        (2, 1, 10, 0, 0),
    ),
    "numbers wrap": (
        [data(20, 2**32 - 15), data(21, 2**32 - 5), data(22, 5), data(90, 2**32 - 5)],
        (4, 1, 10, 0, 0),
    ),
    "fills a hole with a newer timestamp, however soon": (
        [data(20, 1001, tsval=50), data(21, 1021, tsval=51), data(22, 1011, tsval=52)],
        (3, 1, 10, 0, 0),
    ),
    "fills a hole with an older timestamp, however late": (
        [data(20, 1001, tsval=50), data(21, 1021, tsval=51), data(500, 1011, tsval=50)],
        (3, 0, 0, 1, 0),
    ),
    "timestamps wrap": (
        [data(20, 1001, tsval=2**32 - 2), data(21, 1021, tsval=2**32 - 1), data(22, 1011, tsval=3)],
        (3, 1, 10, 0, 0),
    ),
    "fills a hole within the handshake's RTT": (
        [*_OPEN, data(20, 1001), data(21, 1021), data(30.9, 1011)],
        (4, 0, 0, 1, 0),
    ),
    "fills a hole after the handshake's RTT": (
        [*_OPEN, data(20, 1001), data(21, 1021), data(31, 1011)],
        (4, 1, 10, 0, 0),
    ),
    "equal timestamps leave it to time": (
        [*_OPEN, data(20, 1001, tsval=7), data(21, 1021, tsval=7), data(31, 1011, tsval=7)],
        (4, 1, 10, 0, 0),
    ),
    "without a handshake a tick of 10 ms": (
        [data(20, 1001, tsval=7), data(21, 1021, tsval=7), data(30.9, 1011, tsval=7)],
        (3, 0, 0, 1, 0),
    ),
    "without a handshake and timestamps 3 ms": ([data(20, 1001), data(21, 1021), data(23.9, 1011)], (3, 0, 0, 1, 0)),
    "a pure ACK beyond the edge leaves a hole, too": (
        [data(20, 1001, tsval=5), data(21, 1021, 0, tsval=6), data(22, 1011, tsval=7)],
        (2, 1, 10, 0, 0),
    ),
    "filled once, the second is a repeat": (
        [data(20, 1001), data(21, 1021), data(22, 1011), data(23, 1011)],
        (4, 1, 10, 1, 0),
    ),
    "the first segments of a capture may be in the wrong order": (
        [data(20, 1011, tsval=9), data(20.2, 1001, tsval=8), data(80, 1001, tsval=60)],
        (3, 1, 10, 1, 0),
    ),
    "sent before the capture began, and again in it": (
        [data(20, 1011, tsval=9), data(21, 1001, tsval=10)],
        (2, 1, 10, 0, 0),
    ),
    "recorded twice": ([data(20, 1001), data(20.01, 1001)], (1, 0, 0, 0, 1)),
    "recorded twice, a queue between": (
        [data(20, 1001, tsval=5), data(25, 1011, tsval=10), data(40, 1001, tsval=5)],
        (2, 0, 0, 0, 1),
    ),
    "the newest again after more than a millisecond": ([data(20, 1001), data(21.1, 1001)], (2, 1, 10, 0, 0)),
    "the newest again with another acknowledgment": (
        [data(20, 1001), data(20.1, 1001, ack=5002)],
        (2, 1, 10, 0, 0),
    ),
    "a keep-alive repeats an acknowledged byte": (
        [data(20, 1001), reply(30, 1011), data(9000, 1010, 1), data(9000, 1010, 0)],
        (1, 0, 0, 0, 0),
    ),
    "the last byte again, not acknowledged, is no keep-alive": (
        [data(20, 1001), reply(30, 1010), data(300, 1010, 1)],
        (2, 1, 1, 0, 0),
    ),
    "probes of a closed window, and the byte when it opens": (
        [data(20, 1001), reply(30, 1011, 0), data(300, 1011, 1), data(900, 1011, 1), reply(950, 1011), data(951, 1011)],
        (2, 0, 0, 0, 0),
    ),
    "a reset may have any number": (
        [data(20, 1001), data(21, 900_000, 0, flags=RST), data(22, 1011), data(23, 1021)],
        (3, 0, 0, 0, 0),
    ),
    "another connection's SYN": (
        [data(20, 1001), data(30, 900_000, 0, flags=SYN), data(40, 900_001), data(50, 900_011)],
        (4, 0, 0, 0, 0),
    ),
    "a jump that no window allows": (
        [data(20, 3_000_000_000), data(30, 1_900_000_000), data(40, 1_900_000_010), data(99, 1_900_000_000)],
        (4, 1, 10, 0, 0),
    ),
    "not cut yet: as many segments as they become": (
        [data(20, 1001, 14480, tsval=1), data(80, 1001, 2896, tsval=60), data(80, 3897, 1000, tsval=60)],
        (13, 3, 3896, 0, 0),
    ),
    "not cut yet, half of it new": ([data(20, 1001, 2920), data(80, 1001, 5840)], (6, 2, 2920, 0, 0)),
    "of too many holes the oldest counts as filled": (
        [data(20 + i / 100, 1001 + 20 * i) for i in range(HOLES + 2)]
        + [data(21, 1011 + 20 * i) for i in range(HOLES + 1)],
        (2 * HOLES + 3, 1, 10, HOLES, 0),
    ),
}  # fmt: skip


def counted(rows: list[tuple], flow: int = 0) -> Counts:
    columns = packet_columns([(10**18 + ts, flow, *rest) for ts, *rest in rows])
    table = cct.flow_table(columns, make_keys([flow])).iloc[0]
    names = ("segments", "retransmits", "retransmitted_bytes", "out_of_order", "copies")
    return tuple(int(table[f"{name}_fwd"]) for name in names)  # type: ignore[return-value]


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    rows, expected = CASES[name]
    assert counted(rows) == expected


def test_after_a_gigabyte_the_first_number_is_forgotten() -> None:
    """A number below the first may then be one of the bytes 2**32 later; what is below the edge counts as seen."""
    start = [data(20, 1001, 2**29, tsval=1), data(21, 1001 + 2**29, 2**29 - 20, tsval=2)]
    assert counted([*start[:1], data(22, 991, tsval=1)])[1:4] == (0, 0, 1)
    assert counted([*start, data(22, 991, tsval=3)])[1:4] == (1, 10, 0)


def test_share() -> None:
    columns = packet_columns(
        [
            (10**18 + ts, 0, *rest)
            for ts, *rest in [data(20, 1001), data(80, 1001), data(81, 1011), reply(99, 1021)]
        ]
        + [(10**18, 1, 0, 1, 1, ACK, 0, 9)]
    )
    flows = cct.flow_table(columns, make_keys([0, 1]))
    assert cct.retransmitted_share(flows)[0] == cct.retransmitted_share(flows, "fwd")[0] == 1 / 3
    assert cct.retransmitted_share(flows, "rev").isna().all() and np.isnan(cct.retransmitted_share(flows)[1])
    assert cct.retransmitted_share(flows.iloc[0]) == 1 / 3
    with pytest.raises(ParameterError, match="way is 'up'"):
        cct.retransmitted_share(flows, "up")
    assert cct.retransmitted_share(flows.filter(regex="^(retransmits|segments)_").sum()) == 1 / 3


# ------------------------------------------------------------------------------ a kernel that cuts no segments

_RECEIVE = """
import socket
server = socket.create_server(("10.9.2.1", 5001))
server.settimeout(20)
print("ready", flush=True)
connection, _ = server.accept()
while connection.recv(1 << 20):
    pass
"""

#: Offsets into ``struct tcp_info``: total_retrans, data_segs_out, bytes_retrans.
_SEND = """
import json, socket, struct, sys, time
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[1].encode())
s.settimeout(20)
s.connect(("10.9.2.1", 5001))
end = time.monotonic() + 2
while time.monotonic() < end:
    s.send(bytes(262144))
s.shutdown(socket.SHUT_WR)
s.recv(1)
info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
print(json.dumps([struct.unpack_from(f, info, at)[0] for f, at in (("=I", 100), ("=I", 156), ("=Q", 208))]))
"""


@pytest.fixture
def path_with_a_short_queue() -> Iterator[tuple[str, str]]:
    """Names of two network namespaces: sender and receiver, a router with a 20 Mbit/s link between them."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("needs root on Linux")
    if missing := [tool for tool in ("ip", "tc", "tcpdump") if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    sender, router, receiver = (f"cctk{os.getpid()}{end}" for end in "srd")

    def ip(line: str) -> None:
        subprocess.run(["ip", *line.split()], check=True, capture_output=True)

    with ExitStack() as stack:
        for name in (sender, router, receiver):
            try:
                ip(f"netns add {name}")
            except subprocess.CalledProcessError:
                pytest.skip("this machine allows no network namespaces")
            stack.callback(ip, f"netns del {name}")
        for end, name in ((1, sender), (2, receiver)):
            ip(f"link add e{end} netns {name} type veth peer name r{end} netns {router}")
            ip(f"-n {name} addr add 10.9.{end}.1/24 dev e{end}")
            ip(f"-n {router} addr add 10.9.{end}.2/24 dev r{end}")
            ip(f"-n {name} link set e{end} up")
            ip(f"-n {router} link set r{end} up")
            ip(f"-n {name} route add default via 10.9.{end}.2")
        ip(f"netns exec {router} sysctl -qw net.ipv4.ip_forward=1")
        try:
            ip(f"netns exec {router} tc qdisc add dev r2 root tbf rate 20mbit burst 20kb limit 60000")
        except subprocess.CalledProcessError:
            pytest.skip("this kernel has no tbf")
        yield sender, receiver


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize("cca", ["cubic", "reno"])
def test_segments_not_cut_yet_count_as_the_kernel_counts_them(
    cca: str, path_with_a_short_queue: tuple[str, str], tmp_path: Path
) -> None:
    """Captured on the sender, where a segment may be 64 KiB long."""
    sender, receiver = path_with_a_short_queue
    python = [sys.executable, "-c"]
    with ExitStack() as stack:

        def start(namespace: str, *command: str, ready: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
            assert process.stdout is not None
            while ready not in (line := process.stdout.readline()):
                assert line, "it ended"
            return process

        start(receiver, *python, _RECEIVE, ready="ready")
        path = tmp_path / "sender.pcap"
        dump_to = ["tcpdump", "-i", "e1", "-s", "96", "-B", "8192", "--immediate-mode", "-w", str(path)]
        dump = start(sender, *dump_to, "tcp", ready="listening")
        command = ["ip", "netns", "exec", sender, *python, _SEND, cca]
        sent = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        time.sleep(1)  # tcpdump reads no more once it is told to stop
        dump.terminate()
        assert dump.stdout is not None and "0 packets dropped by kernel" in dump.stdout.read()
    kernel = json.loads(sent.stdout)
    capture = cct.read_capture(path)
    assert capture.columns["payload_bytes"].max() > 5000
    flow = capture.flows.iloc[0]
    pure_fin = int(flow["segments_fwd"] - kernel[1] - 1)  # and the SYN
    assert kernel[0] > 0 and pure_fin in (0, 1)
    assert [flow["retransmits_fwd"], flow["retransmitted_bytes_fwd"]] == [kernel[0], kernel[2]]
