"""The collector in the kernel: real TCP through a router, beside captures of the same packets."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from live_network import Network, network, why_not
from tools import alive, need

import cctoolkit as cct
from cctoolkit.capture.model import Capture
from cctoolkit.identify.live import CollectorError, FlowKey, KernelCollector, watch
from cctoolkit.identify.live.program import programs

pytestmark = pytest.mark.netns
SLOT_MS = 20
SLOT_NS = SLOT_MS * 1_000_000
#: Captures read the clock a moment before the collector does: a microsecond, or more if the processor is taken away.
NEAR_NS = 50_000
IN = ["in_bytes", "in_packets", "in_seq"]
OUT = ["out_bytes", "out_packets", "out_seq"]


@pytest.fixture
def net() -> Iterator[Network]:
    if why_not():
        pytest.skip(f"the collector cannot run here: {why_not()}")
    with network() as made:
        yield made


def collector(net: Network, **settings: Any) -> KernelCollector:
    with net.inside("R"):
        return KernelCollector("in0", "out0", **{"slot_ms": SLOT_MS, **settings})


def hooks(net: Network) -> tuple[str, str]:
    """What hangs on the router's interfaces: tcx links, and packet sockets."""
    need("bpftool")
    links = json.loads(net.command("R", "bpftool", "-j", "link").stdout or "[]")
    tcx = [one for one in links if one["type"] in (11, "tcx")]  # 11: to a bpftool that has no name for it
    return str(tcx), net.command("R", "cat", "/proc/net/packet").stdout


def send(
    net: Network, sport: int, seconds: float, address: str, chunk: int = 60_000, gap_s: float = 0.01
) -> Any:
    """A connection that is going to send; call the result to let it begin."""
    process = net.source(address, 5001, sport=sport)
    source = "10.9.1.1" if "." in address else "fd09:1::1"

    def begin() -> None:
        start = time.time() + 0.05
        lines = "".join(f"{start + i * gap_s:.6f} {chunk}\n" for i in range(round(seconds / gap_s)))
        assert process.stdin is not None
        process.stdin.write(lines.encode())
        process.stdin.close()

    return FlowKey(source, sport, address, 5001), begin


def collect(
    net: Network, tap: KernelCollector, keys: list[FlowKey], seconds: float
) -> tuple[pd.DataFrame, dict[str, Any]]:
    parts, first_slot = [], tap.now_ns // SLOT_NS
    for update in watch(tap, flows=keys, heavy=0, duration_s=seconds):
        parts.append(update.slots)
    slots = pd.concat(parts, ignore_index=True)
    slots["slot"] += first_slot
    return slots.sort_values(["flow_id", "slot"]).set_index(["flow_id", "slot"]), update.counts


def of_captures(
    paths: list[Path], keys: list[FlowKey], sampling: str
) -> tuple[pd.DataFrame, Capture, Capture]:
    """compute_slots of the captures, with flows numbered as the collector numbers them and absolute slots."""
    before, after = map(cct.read_capture, paths)
    table = cct.compute_slots(before, after, slot_ms=SLOT_MS, sampling=sampling)
    flows = {
        FlowKey(src, sport, dst, dport): flow
        for flow, src, sport, dst, dport in zip(
            before.keys.flow_id,
            before.keys.src_text(),
            before.keys.sport,
            before.keys.dst_text(),
            before.keys.dport,
            strict=True,
        )
    }
    number = {flows[key]: i for i, key in enumerate(keys)}
    table = table[table.flow_id.isin(list(number))].copy()
    table["flow_id"] = table.flow_id.map(number).astype(np.uint32)
    table["slot"] += min(before.meta.first_ts_ns, after.meta.first_ts_ns) // SLOT_NS
    return table.set_index(["flow_id", "slot"]).sort_index(), before, after


def edges(ts: np.ndarray) -> set[int]:
    """Slots at whose begin a packet came by: on which side of it, the two clocks need not agree."""
    edge = np.round(ts / SLOT_NS).astype(np.int64)
    return set(edge[np.abs(ts - edge * SLOT_NS) < NEAR_NS].tolist())


def uncertain(tap: Capture) -> set[int]:
    """Slots at whose begin or end data came by."""
    begins = edges(tap.columns["ts_ns"][tap.columns["payload_bytes"] > 0])
    return begins | {slot - 1 for slot in begins}


def only_near_packets_moved(tap: Capture, ours: pd.Series, theirs: pd.Series) -> None:
    """At every slot's begin, the bytes until then differ by no more than what came by just before."""
    slots = np.arange(min(ours.index.levels[1]), max(ours.index.levels[1]) + 1)
    until_then = [
        x.groupby("slot").sum().reindex(slots, fill_value=0).cumsum().to_numpy(np.int64)
        for x in (ours, theirs)
    ]
    order = np.argsort(tap.columns["ts_ns"], kind="stable")
    ts, size = (
        tap.columns["ts_ns"][order],
        np.cumsum(np.append(0, tap.columns["payload_bytes"][order].astype(np.int64))),
    )
    edges = (slots + 1) * SLOT_NS
    near = size[np.searchsorted(ts, edges)] - size[np.searchsorted(ts, edges - 5_000_000)]
    moved = until_then[1] - until_then[0]
    assert (moved >= 0).all()
    assert (moved <= near).all()


@pytest.mark.slow
@pytest.mark.parametrize("offload", [True, False], ids=["gso", "no-gso"])
@pytest.mark.parametrize("sampling", ["all", "first"])
def test_slots_are_those_of_captures(net: Network, tmp_path: Path, sampling: str, offload: bool) -> None:
    net.offload(offload)
    net.shape(40, 100_000)  # less than is sent: a queue, and drops
    net.sink(5001)
    flows = [send(net, 40000 + i, 2.5, to, chunk=28_000) for i, to in enumerate(("10.9.2.1", "fd09:2::1"))]
    keys = [key for key, _ in flows]
    with net.capture(tmp_path, "in0", "out0") as paths, collector(net, sampling=sampling) as tap:
        for _, begin in flows:
            begin()
        ours, counts = collect(net, tap, keys, 6)
    theirs, before, after = of_captures(paths, keys, sampling)

    assert counts["ingress"]["lost_packets"] == counts["egress"]["lost_packets"] == counts["late_cells"] == 0
    assert ours.index.equals(theirs.index)
    assert len(ours) > 200
    for tap, names in ((before, IN), (after, OUT)):
        doubtful = uncertain(tap)
        sure = np.array([slot not in doubtful for _, slot in ours.index])
        assert sure.mean() > 0.2
        for name in names:
            same = ours[name].fillna(-1) == theirs[name].fillna(-1)
            assert same[sure].mean() > 0.95
            assert same.mean() > 0.7
        if (
            tap is before and sampling == "all"
        ):  # a sample's gaps depend on which packet was the sample before
            assert (ours.max_source_gap == theirs.max_source_gap)[sure].mean() > 0.95
            late = (ours.max_arrival_gap_ns - theirs.max_arrival_gap_ns)[sure].dropna().abs()
            assert (late < NEAR_NS).mean() > 0.95
    # CBIQ looks one slot ahead, or as many as are empty
    same = pd.Series(True, ours.index)
    for name in "in_seq", "out_seq":
        ahead = [
            table[name].groupby("flow_id").bfill().groupby("flow_id").shift(-1) for table in (ours, theirs)
        ]
        same &= (ahead[0] == ahead[1]).fillna(False)
    assert same.mean() > 0.5
    pd.testing.assert_series_equal(ours.cbiq_bytes[same], theirs.cbiq_bytes[same])
    assert (ours.throughput_bytes.fillna(-1) == theirs.throughput_bytes.fillna(-1)).mean() > 0.5
    assert ours.cbiq_bytes.max() > 30_000  # there was a queue
    if sampling == "all":
        for name in ("in_bytes", "in_packets", "out_bytes", "out_packets"):
            assert ours[name].groupby("flow_id").sum().equals(theirs[name].groupby("flow_id").sum())
        assert (ours.in_bytes.sum(), ours.out_bytes.sum()) > (10_000_000, 10_000_000)
        for tap, name in ((before, "in_bytes"), (after, "out_bytes")):
            only_near_packets_moved(tap, ours[name], theirs[name])
        # at the end of a slot so much was sent and so much acknowledged, whatever came before
        ends = {slot - 1 for slot in edges(before.columns["ts_ns"])}
        sure = np.array([slot not in ends for _, slot in ours.index])
        assert sure.mean() > 0.2
        assert ours.bytes_in_flight.notna().mean() > 0.95
        same = ours.bytes_in_flight.fillna(-1) == theirs.bytes_in_flight.fillna(-1)
        assert same[sure].mean() > 0.99
        assert same.mean() > 0.7
        assert ours.bytes_in_flight.max() > 60_000  # the queue, and what was lost in it
        assert (ours.bytes_in_flight >= 0).all()
        acks = counts["acks"]
        assert 100 < acks["sampled"] <= acks["monitored"] <= acks["segments"] <= acks["packets"]
        assert acks["lost_packets"] == 0
    else:
        counted = ["in_bytes", "out_bytes", "in_packets", "out_packets", "bytes_in_flight"]
        assert ours[counted].isna().all().all()
        assert counts["acks"]["packets"] == 0
        assert counts["ingress"]["sampled"] < counts["ingress"]["monitored"]


def marked_segments(src: str, dst: str) -> tuple[list[bytes], list[bytes]]:
    """IP packets with data of a flow, each fifth with CE; and acknowledgements whose ECN flags change four times."""

    def packet(way: tuple[str, str], ecn: int, tcp: bytes) -> bytes:
        ends = b"".join(ipaddress.ip_address(address).packed for address in way)
        if len(ends) == 8:
            return struct.pack("!BBHHHBBH", 0x45, ecn, 20 + len(tcp), 0, 0, 64, 6, 0) + ends + tcp
        return struct.pack("!IHBB", 6 << 28 | ecn << 20, len(tcp), 6, 64) + ends + tcp

    echoes = [0, 64, 0, 64 | 128, 256, 256]  # ECE, with CWR, AE
    data, acks = [], []
    for i in range(60):
        at, echo = 1000 + 100 * i, echoes[i // 10]
        tcp = struct.pack("!HHIIBBHHH", 40000, 5001, at, 1, 5 << 4, 16, 1000, 0, 0)
        data.append(packet((src, dst), 3 if i % 5 == 0 else 2, tcp + bytes(100)))
        header = 5 << 4 | echo >> 8, 16 | echo & 0xFF
        acks.append(
            packet((dst, src), 0, struct.pack("!HHIIBBHHH", 5001, 40000, 1, at + 100, *header, 1000, 0, 0))
        )
    return data, acks


@pytest.mark.slow
def test_marks_and_echoes_are_counted_as_in_captures(net: Network, tmp_path: Path) -> None:
    flows = {"10.9.1.1": "10.9.2.1", "fd09:1::1": "fd09:2::1"}
    keys = [FlowKey(src, 40000, dst, 5001) for src, dst in flows.items()]
    hosts = {}
    for box in "SD":
        with net.inside(box):
            for family in (socket.AF_INET, socket.AF_INET6):
                hosts[box, family] = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with net.capture(tmp_path, "in0", "out0") as paths, collector(net) as tap:
        for number, key in enumerate(keys):
            tap.add(number, key)
        for (src, dst), family in zip(flows.items(), (socket.AF_INET, socket.AF_INET6), strict=True):
            for packet, ack in zip(*marked_segments(src, dst), strict=True):
                hosts["S", family].sendto(packet, (dst, 0))
                time.sleep(0.002)
                hosts["D", family].sendto(ack, (src, 0))
        time.sleep(0.1)
        reading = tap.read()
    for host in hosts.values():
        host.close()
    theirs, *_ = of_captures(paths, keys, "all")
    for number in range(2):
        came, left = (cells[cells["way"] >> 1 == number] for cells in (reading.in_cells, reading.out_cells))
        wanted = theirs.loc[number][["in_ce_packets", "out_ce_packets", "ecn_echoes"]].sum()
        assert wanted.tolist() == [12, 12, 4]
        ours = came["ce_packets"].sum(), left["ce_packets"].sum(), came["ecn_echoes"].sum()
        assert list(ours) == wanted.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("sender", ["S", "D"])
def test_the_ends_are_as_far_away_as_timestamps_say(net: Network, tmp_path: Path, sender: str) -> None:
    """Of an upload the far end is the receiver, of a download the sender."""
    net.delay(20)
    # what D sends comes by "hold", what is for it leaves by "out0"
    receiver, taps = ("D", ("in0", "out0")) if sender == "S" else ("S", (("hold", "out0"), "in0"))
    address, own = ("10.9.2.1", "10.9.1.1") if sender == "S" else ("10.9.1.1", "10.9.2.1")
    net.sink(5001, box=receiver)
    process = net.source(address, 5001, sport=40000, box=sender)
    with net.inside("R"):
        tap = KernelCollector(*taps, slot_ms=SLOT_MS)
    with tap, net.capture(tmp_path, "in0") as paths:
        tap.add(0, FlowKey(own, 40000, address, 5001))
        assert tap.rtts() == {}
        now = time.time()
        assert process.stdin is not None
        process.stdin.write("".join(f"{now + 0.02 * i:.6f} 30000\n" for i in range(75)).encode())
        process.stdin.close()
        time.sleep(2)
        ((to_receiver, to_sender),) = tap.rtts().values()
    samples = cct.rtt_samples(cct.read_capture(paths[0]), method="timestamps")
    shortest = samples.groupby("direction").rtt_ns.min()
    far, near = (to_receiver, to_sender) if sender == "S" else (to_sender, to_receiver)
    assert 20e6 < far < 25e6 and near < 5e6
    # the collector times fewer of them, and the router's own time is on one side of this tap or the other
    assert shortest.sum() - 1e6 < to_receiver + to_sender < shortest.sum() + 5e6


def test_interfaces_may_be_both_ingress_and_egress(net: Network, tmp_path: Path) -> None:
    net.offload(False)
    net.sink(5001)
    key, begin = send(net, 40000, 1, "10.9.2.1", chunk=10_000)
    with net.capture(tmp_path, "in0", "out0") as paths:
        sockets = len(hooks(net)[1].splitlines())
        with net.inside("R"), KernelCollector(["in0", "out0"], ["in0", "out0"], slot_ms=SLOT_MS) as tap:
            assert len(hooks(net)[1].splitlines()) == sockets + 2
            tap.add(0, key)
            begin()
            time.sleep(2)
            reading = tap.read()
    for cells, path in (reading.in_cells, paths[0]), (reading.out_cells, paths[1]):
        packets = cct.read_capture(path)
        # only these: interfaces that come up talk too
        to_sink = packets.keys.dport[packets.columns["flow_id"]] == key.dport
        assert cells["bytes"].sum() == packets.columns["payload_bytes"][to_sink].sum()
    assert reading.in_cells["bytes"].sum() == reading.out_cells["bytes"].sum()
    acks = reading.counts["acks"]
    assert acks["segments"] > reading.counts["egress"]["segments"]  # data acknowledge too
    assert 0 < acks["sampled"] <= acks["monitored"] < acks["segments"]
    assert acks["cells"] == 0
    last = reading.in_cells[-1]
    assert last["acked"] == last["end"] + 1  # the FIN
    # as many bytes as were written, however often TCP sent some of them
    first_seq = packets.columns["seq"][to_sink & (packets.columns["payload_bytes"] > 0)][0]
    assert (int(last["end"]) - int(first_seq)) % 2**32 == 100 * 10_000


@pytest.mark.slow
def test_random_sampling_takes_about_its_share(net: Network) -> None:
    net.offload(False)
    net.sink(5001)
    key, begin = send(net, 40000, 1.5, "10.9.2.1")
    with collector(net, sampling=0.1) as tap:
        begin()
        slots, counts = collect(net, tap, [key], 2.5)
    for side in counts["ingress"], counts["egress"]:
        n, p = side["monitored"], 0.1
        assert n > 2000
        assert abs(side["sampled"] - n * p) < 5 * np.sqrt(n * p * (1 - p))
    assert slots.in_bytes.isna().all()
    assert slots.in_seq.notna().sum() > 20


@pytest.mark.slow
def test_flows_come_and_go_while_it_runs(net: Network) -> None:
    net.sink(5001)
    flows = [send(net, 40000 + i, 2, "10.9.2.1", chunk=3000) for i in range(3)]
    with collector(net) as tap:
        for number, (key, begin) in enumerate(flows):
            begin()
            if number < 2:
                tap.add(number, key)
        with pytest.raises(CollectorError, match="already monitored"):
            tap.add(5, flows[0][0])
        time.sleep(0.5)
        before = tap.read()
        tap.remove(flows[0][0])
        tap.add(2, flows[2][0])
        tap.read()
        time.sleep(0.5)
        after = tap.read()
        for cells in before.in_cells, before.out_cells:
            assert set(cells["way"]) == {0, 2}
        for cells in after.in_cells, after.out_cells:
            assert set(cells["way"]) == {2, 4}
        with pytest.raises(CollectorError, match="not monitored"):
            tap.remove(flows[0][0])
        with pytest.raises(CollectorError, match="two addresses"):
            tap.add(7, FlowKey("10.9.1.1", 70000, "10.9.2.1", 1))


@pytest.mark.slow
def test_heavy_flows_are_found(net: Network, tmp_path: Path) -> None:
    net.sink(5001)
    sizes = {40000: 60_000, 40001: 20_000, 40002: 100}  # every 10 ms
    flows = {sport: send(net, sport, 2, "10.9.2.1", chunk=size) for sport, size in sizes.items()}
    six = send(net, 40003, 2, "fd09:2::1", chunk=40_000)
    with net.capture(tmp_path, "in0") as paths, collector(net) as tap:
        assert tap.heavy(100_000) == []
        for _, begin in [*flows.values(), six]:
            begin()
        time.sleep(3)
        heavy = dict(tap.heavy(100_000))
        assert tap.heavy(100_000) == []  # since the last call
    capture = cct.read_capture(paths[0])
    table = capture.flows
    sent = {FlowKey(row.src, row.sport, row.dst, row.dport): row.payload_fwd for row in table.itertuples()}
    assert set(heavy) == {flows[40000][0], flows[40001][0], six[0]}
    for key, size in heavy.items():  # never too few; seldom too many
        assert sent[key] <= size <= 1.01 * sum(sent.values())
    assert sum(heavy[key] == sent[key] for key in heavy) >= 2


@pytest.mark.slow
def test_what_does_not_fit_is_counted(net: Network) -> None:
    net.offload(False)
    net.sink(5001)
    key, begin = send(net, 40000, 1, "10.9.2.1")
    with collector(net, slot_ms=0.05, buffer_mb=0.01) as tap:
        tap.add(0, key)
        begin()
        time.sleep(1.5)
        reading = tap.read()
    side = reading.counts["ingress"]
    assert side["lost_cells"] > 0
    assert side["lost_packets"] > 0
    assert reading.in_cells["packets"].sum() + side["lost_packets"] == side["sampled"]
    assert len(reading.in_cells) == side["cells"]


@pytest.mark.slow
def test_more_flows_than_places_take_turns(net: Network) -> None:
    """With room in the kernel for the monitored flows only: who leaves makes room for who comes."""
    net.sink(5001)
    flows = [send(net, 40000 + i, 2, "10.9.2.1", chunk=3000) for i in range(4)]
    seen = []
    with collector(net, max_flows=2) as tap:
        live = watch(tap, heavy=2, heavy_mbps=0.1, idle_s=0.3, report_s=0.2, duration_s=10)
        next(live)
        for number in range(0, 4, 2):
            for _, begin in flows[number : number + 2]:
                begin()
            end = time.monotonic() + 3
            for update in live:
                if update.flows is not None and len(update.flows):
                    seen.append(set(update.flows.sport))
                if time.monotonic() > end:
                    break
    assert {40000, 40001} in seen
    assert {40002, 40003} in seen
    assert all(len(ports) <= 2 for ports in seen)


@pytest.mark.slow
def test_an_interface_that_is_removed_ends_the_run(net: Network, tmp_path: Path) -> None:
    """In one line, with the slots until then."""
    net.sink(5001)
    key, begin = send(net, 40000, 1, "10.9.2.1")
    name = f"{key.src}:{key.sport}-{key.dst}:{key.dport}"
    path = tmp_path / "slots.csv"
    process = net.start(
        *("R", sys.executable, "-m", "cctoolkit.cli", "live", "--ingress", "in0", "--egress", "out0"),
        *("--flow", name, "--heavy", "0", "--no-classify", "-f", "jsonl", "-o", str(path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()  # the first report
    begin()
    for _ in range(2):
        process.stdout.readline()
    net.ip("R", "link del out0")
    assert process.wait(120) == 1
    assert process.stderr.read().decode() == "cct: live: out0: the interface was removed\n"
    assert pd.read_csv(path).in_bytes.sum() > 1_000_000


def test_errors_say_what_is_wrong(net: Network) -> None:
    with pytest.raises(CollectorError, match="nowhere: no such interface"), net.inside("R"):
        KernelCollector("nowhere")
    with pytest.raises(cct.errors.ParameterError, match="sampling"):
        KernelCollector("lo", sampling="some")
    assert hooks(net)[0] == "[]"


# ---- headers ---------------------------------------------------------------------------------------------------------


def tcp(
    payload: int, options: bytes = b"", flags: int = 0x10, sport: int = 1000, seq: int = 2**32 - 500
) -> bytes:
    options += b"\0" * (-len(options) % 4)
    return (
        struct.pack("!HHIIBBHHH", sport, 2000, seq, 0, (5 + len(options) // 4) << 4, flags, 100, 0, 0)
        + options
        + bytes(payload)
    )


def ipv4(segment: bytes, options: bytes = b"", fragment: int = 0, size: int | None = None) -> bytes:
    total = 20 + len(options) + len(segment) if size is None else size
    head = struct.pack(
        "!BBHHHBBH4s4s",
        0x45 + len(options) // 4,
        0,
        total,
        0,
        fragment,
        64,
        6,
        0,
        bytes([10, 9, 1, 77]),
        bytes([10, 9, 2, 77]),
    )
    return head + options + segment


def ipv6(segment: bytes, extensions: bytes = b"", following: int = 6) -> bytes:
    a, b = (socket.inet_pton(socket.AF_INET6, x) for x in ("fd09:1::77", "fd09:2::77"))
    return (
        struct.pack("!IHBB", 6 << 28, len(extensions) + len(segment), following, 64)
        + a
        + b
        + extensions
        + segment
    )


def ethernet(kind: int, packet: bytes, tags: tuple[int, ...] = ()) -> bytes:
    vlan = b"".join(struct.pack("!HH", tpid, 5) for tpid in tags)
    return b"\xff" * 6 + b"\2\0\0\0\0\1" + vlan + struct.pack("!H", kind) + packet


UNUSUAL = b"\2\4\5\xb4\4\2\x08\x0a" + struct.pack("!II", 7790, 1)
EXTENSIONS = bytes([60, 0, 1, 4, 0, 0, 0, 0]) + bytes([44, 1]) + bytes(14) + bytes([6, 0, 0, 0, 0, 0, 0, 1])
STAMP = b"\1\1\x08\x0a" + struct.pack("!II", 7777, 1)
FRAMES = {
    "plain": ethernet(0x0800, ipv4(tcp(100))),
    "timestamps": ethernet(0x0800, ipv4(tcp(101, STAMP))),
    "timestamps not where they usually are": ethernet(0x0800, ipv4(tcp(102, UNUSUAL))),
    "last option cut": ethernet(0x0800, ipv4(tcp(103, b"\1\1\1\x08"))),
    "SYN with data": ethernet(0x0800, ipv4(tcp(104, STAMP, flags=2))),
    "options of IP": ethernet(0x0800, ipv4(tcp(105), options=b"\x94\4\0\0")),
    "padding": ethernet(0x0800, ipv4(tcp(6), size=46)) + bytes(30),
    "no data": ethernet(0x0800, ipv4(tcp(0))) + bytes(20),
    "first fragment": ethernet(0x0800, ipv4(tcp(107), fragment=0x2000)),
    "later fragment": ethernet(0x0800, ipv4(tcp(108), fragment=0x2001)),
    "VLAN": ethernet(0x0800, ipv4(tcp(109)), (0x8100,)),
    "VLAN in VLAN": ethernet(0x0800, ipv4(tcp(110)), (0x88A8, 0x8100)),
    "IPv6": ethernet(0x86DD, ipv6(tcp(111, STAMP))),
    "IPv6 in VLAN": ethernet(0x86DD, ipv6(tcp(112)), (0x8100,)),
    "IPv6, hop by hop": ethernet(0x86DD, ipv6(tcp(113), bytes([6, 0, 1, 4, 0, 0, 0, 0]), 0)),
    "IPv6, three extensions": ethernet(
        0x86DD, ipv6(tcp(114), EXTENSIONS, 0)
    ),
    "IPv6, later fragment": ethernet(0x86DD, ipv6(tcp(115), bytes([6, 0, 0, 8, 0, 0, 0, 1]), 44)),
    "UDP": ethernet(0x0800, ipv4(tcp(116)).replace(b"\x40\x06", b"\x40\x11", 1)),
    "cut short": ethernet(0x0800, ipv4(tcp(117)))[:50],
}  # fmt: skip


def inject(net: Network, box: str, device: str, frames: Iterable[bytes] = FRAMES.values()) -> None:
    with net.inside(box), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((device, 0))
        for frame in frames:
            raw.send(frame)
            time.sleep(0.003)


@pytest.mark.parametrize("hook", ["queue", pytest.param("tc", marks=pytest.mark.slow)])
def test_headers_are_read_as_in_captures(net: Network, tmp_path: Path, hook: str) -> None:
    keys = [FlowKey("10.9.1.77", 1000, "10.9.2.77", 2000), FlowKey("fd09:1::77", 1000, "fd09:2::77", 2000)]
    with net.capture(tmp_path, "in0", "out0") as paths, collector(net, slot_ms=1, egress_hook=hook) as tap:
        for number, key in enumerate(keys):
            tap.add(number, key)
        inject(net, "S", "s0")
        inject(net, "R", "out0")
        time.sleep(0.1)
        reading = tap.read()
    for cells, path in zip((reading.in_cells, reading.out_cells), paths, strict=True):
        capture = cct.read_capture(path)
        for number, version in enumerate((4, 6)):
            flow = capture.keys.flow_id[
                (capture.keys.ip_version == version)
                & (capture.keys.protocol == 6)
                & (capture.keys.sport == 1000)
            ]
            packets = capture.packets[
                capture.packets.flow_id.isin(flow)
                & (capture.packets.payload_bytes > 0)
                & (capture.packets.tcp_flags > 0)
            ]
            ours = cells[cells["way"] == 2 * number]
            ours = ours[np.argsort(ours["slot"], kind="stable")]
            assert ours["bytes"].tolist() == packets.payload_bytes.tolist()
            assert (ours["first_seq"] - 1).tolist() == (
                (packets.seq.astype(np.int64) + (packets.tcp_flags // 2 % 2)) % 2**32
            ).tolist()
            stamps = packets.tsval[packets.has_ts].astype(int).diff().dropna().tolist()
            gaps = ours["source_gap"][ours["source_gap"] != -(2**63)].tolist()
            assert gaps == stamps
    assert reading.in_cells["packets"].sum() == reading.counts["ingress"]["monitored"] >= 13


def backward(frame: bytes, ack: int, flags: int) -> bytes:
    """The frame with its ends exchanged, and what it acknowledges."""
    ends = (
        [bytes([10, 9, n, 77]) for n in (1, 2)],
        [socket.inet_pton(socket.AF_INET6, f"fd09:{n}::77") for n in (1, 2)],
    )
    for one, other in ends:
        frame = frame.replace(one + other, other + one)
    at = frame.find(struct.pack("!HHI", 1000, 2000, 2**32 - 500))
    head = struct.pack("!HHIIBB", 2000, 1000, 77, ack % 2**32, *frame[at + 12 : at + 13], flags)
    return frame[:at] + head + frame[at + 14 :] if len(frame) >= at + 20 else frame


@pytest.mark.parametrize("hook", ["queue", pytest.param("tc", marks=pytest.mark.slow)])
def test_acknowledgements_are_read_as_in_captures(net: Network, tmp_path: Path, hook: str) -> None:
    """Of every kind of header, beyond 2**32, backward, again, without the flag, with a reset."""
    keys = [FlowKey("10.9.1.77", 1000, "10.9.2.77", 2000), FlowKey("fd09:1::77", 1000, "fd09:2::77", 2000)]
    data = [ethernet(0x0800, ipv4(tcp(1000))), ethernet(0x86DD, ipv6(tcp(1000)))]
    first = 2**32 - 500
    acks = [backward(frame, first + 10 * i, 0x10) for i, frame in enumerate(FRAMES.values())]
    acks += [backward(one, first + more, flags) for one in (FRAMES["plain"], FRAMES["IPv6"]) for more, flags in (
        (600, 0x10), (600, 0x10), (400, 0x10), (700, 0x14), (800, 0x00), (850, 0x19), (5000, 0x10), (-100, 0x10),
    )]  # fmt: skip
    with net.capture(tmp_path, "in0") as paths, collector(net, slot_ms=1, egress_hook=hook) as tap:
        for number, key in enumerate(keys):
            tap.add(number, key)
        inject(net, "S", "s0", data)
        inject(net, "R", "in0", acks)
        inject(net, "S", "s0", data)
        time.sleep(0.1)
        reading = tap.read()
    cells = reading.in_cells
    theirs = cct.compute_slots(cct.read_capture(paths[0]), slot_ms=1)
    for number, (_, slots) in enumerate(theirs.groupby("flow_id")):
        ours = cells[cells["way"] == 2 * number]
        ours = ours[np.argsort(ours["slot"], kind="stable")]
        known = ours[(ours["end"] > 0) & (ours["acked"] > 0)]
        flight = np.maximum(known["end"] - known["acked"], 0)
        expected = slots.bytes_in_flight.dropna().to_numpy(np.int64)
        changes = np.flatnonzero(np.diff(expected, prepend=-1))
        assert flight[np.flatnonzero(np.diff(flight, prepend=-1))].tolist() == expected[changes].tolist()
        assert len(changes) > 5
    assert reading.counts["acks"]["monitored"] > 20


# ---- nothing stays behind --------------------------------------------------------------------------------------------

RUN = """
import sys, time
from cctoolkit.identify.live import KernelCollector
tap = KernelCollector("in0", "out0")
print(tap.helper, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["close", "interrupt", "kill python", "kill helper"])
def test_nothing_stays_behind(net: Network, how: str) -> None:
    programs()
    before = hooks(net), net.command("R", "tc", "qdisc").stdout, sorted(os.listdir("/sys/fs/bpf"))
    process = net.start(
        "R",
        sys.executable,
        "-c",
        RUN,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None and process.stdin is not None
    helper = int(process.stdout.readline())
    assert hooks(net)[0] != before[0][0] and hooks(net)[1] != before[0][1]
    if how == "close":
        process.stdin.close()
    elif how == "kill helper":
        os.kill(helper, signal.SIGKILL)
    else:
        process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    end = time.monotonic() + 5
    after: Any = None
    while after != before and time.monotonic() < end:
        time.sleep(0.05)
        after = hooks(net), net.command("R", "tc", "qdisc").stdout, sorted(os.listdir("/sys/fs/bpf"))
    assert after == before
    while alive(helper) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(helper)
