"""The bundled captures are what their manifests say, and what made them makes them again and leaves nothing behind.

The packets are read here with `struct` alone, so that these tests hold whatever the package reads.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import importlib.util
import itertools
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import tomllib
import uuid
from collections import Counter, defaultdict
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import pytest
from tools import mostly_slow
from tshark import ask

import cctoolkit as cct
from cctoolkit.cca import Cca
from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.identify.settings import BUILT_CCAS
from cctoolkit.testbed.plan import make_plan

ROOT = Path(__file__).parents[1]
TRACES = ROOT / "traces"
SCRIPT = ROOT / "hardware" / "launch" / "netns_traces.py"
MAKE_TRACES = SCRIPT.with_name("make_traces.py")
CAPTURES = {c["name"]: c for c in tomllib.loads((TRACES / "MANIFEST.toml").read_text())["capture"]}
ALL = pytest.mark.parametrize("name", CAPTURES)
#: Those that the testbed made.
TESTBED = TRACES / "testbed"
MADE = {c["name"]: c for c in tomllib.loads((TESTBED / "MANIFEST.toml").read_text())["capture"]}
ALL_MADE = pytest.mark.parametrize("name", MADE)


class Packet(NamedTuple):
    ts_ns: int
    flow: tuple[str, str, int, int, int]  # of this packet: source first
    seq: int
    span: int  # of sequence numbers: payload bytes, and one for SYN and one for FIN
    flags: int
    ecn: int
    wire_bytes: int
    key: bytes  # what routing and marking leave alone


@cache
def packets(path: Path) -> tuple[Packet, ...]:
    """The IP packets of a nanosecond Ethernet pcap."""
    data = gzip.decompress(path.read_bytes())
    magic, _, _, _, _, snap_length, link_type = struct.unpack_from("<IHHIIII", data)
    assert (magic, snap_length, link_type) == (0xA1B23C4D, 96, 1)
    out, at = [], 24
    while at < len(data):
        seconds, nanoseconds, captured, wire = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        ether_type, ip = frame[12:14], frame[14:]
        if ether_type == b"\x08\x00":
            head = (ip[0] & 15) * 4
            protocol, ecn = ip[9], ip[1] & 3
            length = int.from_bytes(ip[2:4]) - head
            src, dst = ip[12:16], ip[16:20]
            key = ip[2:8] + ip[9:10] + ip[12:]  # not TOS, TTL, header checksum
        elif ether_type == b"\x86\xdd":
            head, protocol, ecn = 40, ip[6], ip[1] >> 4 & 3
            length = int.from_bytes(ip[4:6])
            src, dst = ip[8:24], ip[24:40]
            key = ip[4:7] + ip[8:]  # not traffic class, hop limit
        else:
            continue
        sport = dport = seq = span = flags = 0
        if protocol in (6, 17):
            sport, dport = struct.unpack_from("!HH", ip, head)
        if protocol == 6:
            seq, flags = int.from_bytes(ip[head + 4 : head + 8]), ip[head + 13]
            span = length - (ip[head + 12] >> 4) * 4 + (flags & 1) + (flags >> 1 & 1)
        flow = (str(ip_address(src)), str(ip_address(dst)), sport, dport, protocol)
        out.append(Packet(seconds * 10**9 + nanoseconds, flow, seq, span, flags, ecn, wire, key))
    return tuple(out)


def tap(name: str, which: str, folder: Path = TRACES) -> tuple[Packet, ...]:
    return packets(folder / f"{name}.{which}.pcap.gz")


def labels(name: str, folder: Path = TRACES) -> list[dict[str, str]]:
    with (folder / f"{name}.labels.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def five_tuple(row: dict[str, str]) -> tuple[str, str, int, int, int]:
    return row["src"], row["dst"], int(row["sport"]), int(row["dport"]), int(row["protocol"])


def turned(flow: tuple[str, str, int, int, int]) -> tuple[str, str, int, int, int]:
    return flow[1], flow[0], flow[3], flow[2], flow[4]


def routed(all_packets: tuple[Packet, ...], downstream: bool) -> list[Packet]:
    """Those between a sender and a receiver (not the routers' neighbour discovery), one way."""
    senders, receivers = ("10.1.0.", "fd00:1::"), ("10.2.0.", "10.3.0.", "fd00:3::")
    first, second = (senders, receivers) if downstream else (receivers, senders)
    return [p for p in all_packets if p.flow[0].startswith(first) and p.flow[1].startswith(second)]


def crossings(before: list[Packet], after: list[Packet]) -> tuple[list[tuple[Packet, Packet]], list[Packet]]:
    """Each packet of `before` with the same packet in `after`, and those of `after` that have none."""
    waiting: dict[bytes, list[Packet]] = defaultdict(list)
    for packet in reversed(after):
        waiting[packet.key].append(packet)
    pairs = [(p, waiting[p.key].pop()) for p in before if waiting.get(p.key)]
    return pairs, [p for rest in waiting.values() for p in rest]


# -- the bundled files


@ALL
def test_files_are_the_ones_in_the_manifest(name: str) -> None:
    check_files(name, TRACES, CAPTURES[name]["file"])


def check_files(name: str, folder: Path, files: list[dict]) -> None:
    assert {f["tap"]: f["name"] for f in files} == {t: f"{name}.{t}.pcap.gz" for t in ("ingress", "egress")}
    for file in files:
        blob = (folder / file["name"]).read_bytes()
        assert hashlib.sha256(blob).hexdigest() == file["sha256"]
        assert len(blob) == file["bytes"] < 1_000_000
        assert blob[3:8] == bytes(5), "neither a file name nor a time in the gzip header"
        data, at, count = gzip.decompress(blob), 24, 0
        while at < len(data):
            at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
            count += 1
        assert (at, count) == (len(data), file["packets"])


def test_the_manifest_is_complete() -> None:
    listed = {f["name"] for c in CAPTURES.values() for f in c["file"]} | {
        c["labels"] for c in CAPTURES.values()
    }
    assert {p.name for p in TRACES.iterdir()} == listed | {"MANIFEST.toml", "README.md", "testbed"}
    assert sum((TRACES / name).stat().st_size for name in listed) < 8_000_000
    assert {c["licence"] for c in CAPTURES.values()} == {"Apache-2.0"}
    alone = [c["ccas"] for c in CAPTURES.values() if len(labels(c["name"])) == 1]
    assert sorted(alone) == [["bbr"], ["cubic"], ["reno"]]
    assert any(c["ip_versions"] == [6] for c in CAPTURES.values())
    assert all(name in (TRACES / "README.md").read_text() for name in CAPTURES)


@ALL
def test_manifest_agrees_with_the_scenarios_of_the_script(name: str) -> None:
    scenario = next(s for s in script().SCENARIOS if s.name == name)
    entry = CAPTURES[name]
    assert (entry["shows"], entry["queue"], entry["rate_mbps"], entry["ecn"]) == (
        scenario.shows,
        " ".join(scenario.queue),
        scenario.rate_mbps,
        scenario.ecn,
    )
    assert entry["ccas"] == sorted({f.cca for f in scenario.flows} - {""})


@pytest.mark.slow
@ALL
def test_labels_name_every_flow_and_when_it_began(name: str) -> None:
    check_labels(name, TRACES, CAPTURES[name])


def check_labels(name: str, folder: Path, entry: dict) -> None:
    rows = labels(name, folder)
    assert sorted({r["cca"] for r in rows} - {""}) == entry["ccas"]
    for which in ("ingress", "egress"):
        one_way = [p for way in (True, False) for p in routed(tap(name, which, folder), way)]
        first: dict[tuple, Packet] = {}
        payload: Counter = Counter()
        for p in sorted(one_way):
            first.setdefault(p.flow, p)
            payload[p.flow] += p.span - (p.flags & 1) - (p.flags >> 1 & 1)
        assert {f for r in rows for f in (five_tuple(r), turned(five_tuple(r)))} >= set(first)
        for r in rows:
            flow = five_tuple(r)
            started = first[flow].ts_ns
            if (
                r["kind"] == "fetch"
            ):  # written down when the server accepted, one base RTT after the SYN or more
                assert 0 <= int(r["start_ns"]) - started < 2e9
            else:
                # Within a round trip of the queue and a scheduling delay, or seconds for a SYN that was dropped
                lost = which == "egress" and len(rows) > 8
                assert -1e6 <= started - int(r["start_ns"]) < (8e9 if lost else 1e9)
            if flow[4] == 6:
                assert first[flow].flags & 0x12 == 0x02, "the label's source sent the SYN"
                data, other = (flow, turned(flow)) if r["data_from"] == "src" else (turned(flow), flow)
                assert payload[data] >= 0.9 * float(r["bytes_acked"]) > payload[other]


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(CAPTURES, list(CAPTURES)[::4]))
def test_the_queue_lost_exactly_what_the_kernel_counted(name: str) -> None:
    longest_ms, room_ms = check_taps(name, TRACES, CAPTURES[name])
    # Some captures are to be remade on a quieter machine if this fails: the bottleneck paused
    assert longest_ms < 1.01 * room_ms + 1.5


def check_taps(name: str, folder: Path, entry: dict) -> tuple[float, float]:
    """Raise if the taps contradict each other; the longest time in the queue, and how long a full one takes (ms)."""
    ingress, egress = tap(name, "ingress", folder), tap(name, "egress", folder)
    into, out = routed(ingress, downstream=True), routed(egress, downstream=True)
    pairs, strangers = crossings(into, out)
    assert strangers == [], "all that left the queue had come in"
    assert len(into) - len(pairs) == entry["queue_dropped"] + entry.get("queue_waiting", 0)
    assert all(a.ts_ns <= b.ts_ns for a, b in pairs)
    assert sum(a.ecn != b.ecn for a, b in pairs) == entry["queue_marked"]

    back, strangers = crossings(routed(egress, downstream=False), routed(ingress, downstream=False))
    assert strangers == [] and len(back) == len(routed(egress, downstream=False)), (
        "nothing is lost on the way back"
    )

    kind, _, limit = entry["queue"].split()[:3]
    longest_ms = max(b.ts_ns - a.ts_ns for a, b in pairs) / 1e6
    room_ms = int(limit) * 1514 * 8 / entry["rate_mbps"] / 1e3
    if kind == "pfifo":
        left = [b.ts_ns for _, b in pairs]
        assert left == sorted(left), "first in, first out"
        if entry["queue_dropped"]:
            assert longest_ms > 0.75 * room_ms, "it dropped because it was full"
    return longest_ms, room_ms


@ALL
def test_retransmissions_are_those_the_kernel_counted(name: str) -> None:
    check_retransmissions(name, TRACES)


def check_retransmissions(name: str, folder: Path) -> None:
    """Before the queue nothing is lost or reordered, so what repeats sequence numbers was sent again."""
    again: Counter = Counter()
    end: dict[tuple, int] = {}
    for p in routed(tap(name, "ingress", folder), downstream=True):
        if p.flow[4] == 6 and p.span:
            ahead = (p.seq - end.setdefault(p.flow, p.seq) + 2**31) % 2**32 - 2**31
            again[p.flow] += ahead < 0
            end[p.flow] = (p.seq + p.span) % 2**32 if ahead + p.span > 0 else end[p.flow]
    for r in labels(name, folder):
        if r["protocol"] == "6":
            flow = five_tuple(r) if r["data_from"] == "src" else turned(five_tuple(r))
            assert again[flow] == float(r["retransmits"]), r


def queue_delays_ms(
    name: str, after_s: float, folder: Path = TRACES, protocol: int | None = None
) -> list[float]:
    pairs, _ = crossings(
        routed(tap(name, "ingress", folder), True), routed(tap(name, "egress", folder), True)
    )
    begin = pairs[0][0].ts_ns + after_s * 1e9
    kept = [(a, b) for a, b in pairs if a.ts_ns > begin and protocol in (None, a.flow[4])]
    return sorted((b.ts_ns - a.ts_ns) / 1e6 for a, b in kept)


def test_the_congestion_controls_behave_like_themselves() -> None:
    middle = {}
    for name in ("reno", "cubic", "bbr"):
        delays = queue_delays_ms(name, after_s=2)
        middle[name] = delays[len(delays) // 2]
        if name == "reno":
            assert delays[len(delays) // 100] < 15 and delays[-1] > 55, (
                "the sawtooth empties and fills the queue"
            )
        if name == "cubic":
            assert delays[len(delays) // 100] > 15, "the queue does not empty"
    assert middle["bbr"] < 0.4 * middle["reno"] < 0.6 * middle["cubic"]


def test_codel_cures_bufferbloat() -> None:
    bad, good = queue_delays_ms("bufferbloat", after_s=6), queue_delays_ms("bufferbloat-codel", after_s=6)
    assert bad[len(bad) // 2] > 200
    assert good[len(good) // 2] < 15


@ALL
@pytest.mark.slow
@pytest.mark.tshark
def test_tshark_counts_the_same_packets_and_no_bad_checksum(name: str) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not on PATH")
    for file in CAPTURES[name]["file"]:
        checks = [x for p in ("ip", "tcp", "udp") for x in ("-o", f"{p}.check_checksum:TRUE")]
        fields = [x for f in ("frame.number", "ip.checksum.status", "tcp.checksum.status") for x in ("-e", f)]
        lines = ask(TRACES / file["name"], *checks, "-T", "fields", *fields).splitlines()
        assert len(lines) == file["packets"]
        statuses = Counter(status for line in lines for status in line.split("\t")[1:])
        assert statuses["0"] == 0 and statuses["1"] > 0  # 0 is bad, 1 is good


# -- the files the testbed made


@ALL_MADE
def test_made_files_are_the_ones_in_the_manifest(name: str) -> None:
    entry = MADE[name]
    check_files(name, TESTBED, entry["file"])
    for file in entry["file"]:
        capture = gzip.decompress((TESTBED / file["name"]).read_bytes())
        assert hashlib.sha256(capture).hexdigest() == file["pcap_sha256"]
    source = (TESTBED / entry["scenario"]).read_bytes()
    assert hashlib.sha256(source).hexdigest() == entry["scenario_sha256"]


def test_the_manifest_of_made_files_is_complete() -> None:
    files = {f["name"] for c in MADE.values() for f in c["file"]}
    beside = {c[key] for c in MADE.values() for key in ("labels", "scenario")}
    assert {p.name for p in TESTBED.iterdir()} == files | beside | {"MANIFEST.toml"}
    assert sum(p.stat().st_size for p in TRACES.rglob("*")) < 22_000_000
    readme = (TRACES / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in MADE)
    for entry in MADE.values():
        assert entry["licence"] == "Apache-2.0" and entry["teaches"].endswith(".")
        assert re.fullmatch(r"\d+\.\d+\.\d+-cct", entry["kernel"]), "as `cct testbed build` makes it"
        assert re.fullmatch(r"[0-9a-f]{64}", entry["kernel_sha256"])


def test_each_congestion_control_of_linux_is_there_alone() -> None:
    alone = {c["ccas"][0] for name, c in MADE.items() if [name] == c["ccas"]}
    known = {name for name, cca in Cca.registry.items() if cca.linux_only or name in plan_ccas()}
    known -= {*BUILT_CCAS}  # only in kernels built with them
    assert alone == known and len(alone) >= 17


def plan_ccas() -> set[str]:
    """What the simulator's congestion controls have in common with Linux's, asked of the testbed itself."""
    out = set()
    for name, cca in Cca.registry.items():
        if not cca.linux_only:
            flow = cct.Flow(name)
            scenario = cct.Scenario(
                bottleneck=cct.Bottleneck(rate_mbps=1, buffer_packets=9), flows=[flow], duration_s=1
            )
            with contextlib.suppress(ParameterError):
                make_plan(scenario)
                out.add(name)
    return out


@pytest.mark.slow
@ALL_MADE
def test_made_labels_and_taps_agree(name: str) -> None:
    entry = MADE[name]
    scenario = cct.read_scenario(TESTBED / entry["scenario"])
    assert scenario.name == name
    flows, rows = scenario.flow_list(), labels(name, TESTBED)
    assert [r["cca"] for r in rows] == ["" if f.is_udp else f.cca_name for f in flows]
    assert [float(r["base_rtt_ms"]) for r in rows] == [f.rtt_ms for f in flows]
    begin = min(int(r["start_ns"]) - f.start_s * 1e9 for r, f in zip(rows, flows, strict=True))
    for row, flow in zip(rows, flows, strict=True):  # in virtual time to the microsecond
        assert int(row["start_ns"]) - begin == pytest.approx(flow.start_s * 1e9, abs=2e3)
    check_labels(name, TESTBED, entry)
    longest_ms, room_ms = check_taps(name, TESTBED, entry | {"rate_mbps": scenario.bottleneck.rate_mbps})
    assert longest_ms < 1.01 * room_ms * (2 if scenario.bottleneck.rate_schedule else 1)
    for row, flow in zip(rows, flows, strict=True):
        if not flow.is_udp:
            assert 0 <= float(row["min_rtt_us"]) - flow.rtt_ms * 1e3 <= longest_ms * 1e3
    check_retransmissions(name, TESTBED)


def test_virtual_time_is_exact() -> None:
    """A full frame takes 2018.67 µs at 6 Mbit/s; the kernel's clock has units of 1024 ns here and there."""
    left = [p.ts_ns for p in routed(tap("cubic", "egress", TESTBED), True) if p.wire_bytes == 1514]
    gaps = [b - a for a, b in itertools.pairwise(left[100:])]
    assert all(2_013_000 < gap < 2_024_000 for gap in gaps), "always busy, never faster than the link"
    assert sum(gaps) / len(gaps) == pytest.approx(1514 * 8 / 6e-3, rel=1e-4)
    row = labels("vegas", TESTBED)[0]
    assert 40_000 <= float(row["min_rtt_us"]) < 40_100


def made_delay_ms(name: str, protocol: int | None = 6) -> float:
    delays = queue_delays_ms(name, 3, TESTBED, protocol)
    return sum(delays) / len(delays)


def made_drops_s(name: str) -> list[float]:
    """When packets came that the queue dropped."""
    before, after = (routed(tap(name, t, TESTBED), True) for t in ("ingress", "egress"))
    left = {p.key for p in after}
    last_ns = max(p.ts_ns for p in before if p.key in left)  # later ones still wait
    return [(p.ts_ns - before[0].ts_ns) / 1e9 for p in before if p.key not in left and p.ts_ns < last_ns]


def made_shares(name: str) -> list[float]:
    acked = [float(r["bytes_acked"]) for r in labels(name, TESTBED) if r["bytes_acked"]]
    return [x / sum(acked) for x in acked]


@pytest.mark.slow
def test_made_traces_show_what_they_teach() -> None:
    drops = {name: entry["queue_dropped"] for name, entry in MADE.items()}
    marks = {name: entry["queue_marked"] for name, entry in MADE.items()}
    # alone
    assert made_delay_ms("vegas") < 7 and made_delay_ms("bbr") < 14 and made_delay_ms("cdg") < 14
    assert drops["cdg"] == 0 < drops["nv"] < 40 and drops["vegas"] < 40
    assert 0 < max(made_drops_s("nv")) < 1  # in slow start
    assert made_delay_ms("reno") < made_delay_ms("cubic") < made_delay_ms("scalable")
    assert drops["scalable"] > 2 * drops["reno"] and drops["hybla"] > 2 * drops["reno"]
    assert drops["lp"] == pytest.approx(drops["reno"], rel=0.1)
    # together
    assert made_shares("cubic-bbr")[1] > 2 / 3 and drops["cubic-bbr"] > 200
    assert (
        made_shares("cubic-bbr-deep")[0] > made_shares("cubic-bbr")[0]
        and made_delay_ms("cubic-bbr-deep") > 200
    )
    assert made_shares("rtt-reno")[0] > 0.6 and made_shares("rtt-bbr")[1] > 0.7
    assert 0.5 < made_shares("rtt-cubic")[0] < made_shares("rtt-reno")[0]
    # queues
    assert made_delay_ms("aqm-tail-drop") > 400
    assert made_delay_ms("aqm-codel") < 12 and 12 < made_delay_ms("aqm-pie") < 20
    assert 20 < made_delay_ms("aqm-red") + 2 < 60  # 10 to 30 packets of 2 ms
    assert 12 < made_delay_ms("aqm-dualpi2") < 20
    assert made_delay_ms("aqm-fq-codel", 17) < 3 < 400 < made_delay_ms("aqm-tail-drop", 17)
    assert (drops["aqm-fq-codel-ecn"], drops["aqm-dctcp"]) == (0, 0)
    assert marks["aqm-fq-codel-ecn"] > 30 and marks["aqm-dctcp"] > 500 and made_delay_ms("aqm-dctcp") < 12
    assert 0.3 < made_shares("aqm-dualpi2-l4s")[0] < 0.7 and marks["aqm-dualpi2-l4s"] > 500


@pytest.mark.slow
@pytest.mark.uml
@pytest.mark.parametrize("name", ["cubic", "rtt-reno", "aqm-fq-codel-ecn"])
def test_the_manifests_kernel_makes_the_same_packets_again(name: str, tmp_path: Path) -> None:
    module = load(MAKE_TRACES)
    wanted = MADE[name]["kernel"]
    try:
        found = {k.version: k for k in module.kernels()}
        if wanted not in found:
            pytest.skip(f"the kernel at hand is {', '.join(found)}, not {wanted} (cct testbed build)")
        entry = module.make(name, found[wanted], TESTBED, tmp_path)
    except TestbedUnavailableError as err:
        pytest.skip(str(err))
    if "fq-codel" not in name:  # that draws where its flows go
        assert [f["shape_sha256"] for f in entry["file"]] == [f["shape_sha256"] for f in MADE[name]["file"]]
    if entry["tools"] != MADE[name]["tools"] or entry["kernel_sha256"] != MADE[name]["kernel_sha256"]:
        pytest.skip(
            f"same times; the same bytes need that kernel's file, and {', '.join(MADE[name]['tools'])}"
        )
    assert [f["pcap_sha256"] for f in entry["file"]] == [f["pcap_sha256"] for f in MADE[name]["file"]]
    assert labels(name, tmp_path) == labels(name, TESTBED)


def test_making_what_there_is_not_is_one_line(capsys: pytest.CaptureFixture) -> None:
    assert load(MAKE_TRACES).main(["nonsense"]) == 1
    errors = capsys.readouterr().err
    assert "no scenario 'nonsense'" in errors and errors.count("\n") == 1


# -- the script


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script():
    return load(SCRIPT)


def run_script(*args: str | Path, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def test_script_lists_its_captures() -> None:
    done = run_script("list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*CAPTURES, "smoke"]


def test_script_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    done = run_script("make", tmp_path, "nonsense")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no capture 'nonsense'" in done.stderr
    assert run_script("make").returncode == 2


def test_script_needs_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    module = script()
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    before = {s: signal.getsignal(s) for s in module.SIGNALS}
    try:
        assert module.main(["make", str(tmp_path), "smoke"]) == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "needs root" in capsys.readouterr().err


def why_no_namespaces() -> str:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs root on Linux"
    missing = [tool for tool in script().TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    name = f"probe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return "" if Path("/dev/net/tun").exists() else "needs /dev/net/tun"


class Machine:
    """Runs the script under a mark in the environment, by which its processes are known."""

    def __init__(self) -> None:
        self.mark = f"CCTK_TEST={uuid.uuid4()}"
        self.env = os.environ | {"CCTK_TEST": self.mark.partition("=")[2]}

    def start(self, *args: str | Path, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, args)],
            env=self.env | env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def processes(self) -> list[str]:
        """Command lines of everything alive that carries the mark."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes().split(
                    b"\0"
                ):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def wait_for_tcpdump(self) -> None:
        for _ in range(600):
            if sum(line.startswith("tcpdump") for line in self.processes()) == 2:
                return
            time.sleep(0.05)
        raise AssertionError("tcpdump never started")


def namespaces_of(pid: int) -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith(f"cctk{pid}")]


@pytest.fixture
def machine():
    reason = why_no_namespaces()
    if reason:
        pytest.skip(reason)
    return Machine()


@pytest.mark.slow
@pytest.mark.netns
def test_smoke_run(machine: Machine, tmp_path: Path) -> None:
    process = machine.start("make", tmp_path / "new", "smoke")
    _, stderr = process.communicate(timeout=90)
    assert (process.returncode, stderr) == (0, "")
    (entry,) = tomllib.loads((tmp_path / "new" / "MANIFEST.toml").read_text())["capture"]
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(
        ["MANIFEST.toml", "smoke.labels.csv", *(f["name"] for f in entry["file"])]
    )
    check_labels("smoke", tmp_path / "new", entry)
    check_taps("smoke", tmp_path / "new", entry)
    assert (namespaces_of(process.pid), machine.processes()) == ([], [])


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_a_signal(machine: Machine, tmp_path: Path, number: signal.Signals) -> None:
    process = machine.start("make", tmp_path, "smoke", TMPDIR=str(tmp_path))
    machine.wait_for_tcpdump()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (128 + number, f"netns_traces: stopped by {number.name}\n")
    assert (namespaces_of(process.pid), machine.processes(), list(tmp_path.iterdir())) == ([], [], [])


@pytest.mark.slow
@pytest.mark.netns
def test_nothing_is_left_after_a_failure(machine: Machine, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "tcpdump"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no tap today >&2\nexit 3\n")
    broken.chmod(0o755)
    process = machine.start("make", tmp_path / "out", "smoke", PATH=f"{broken.parent}:{os.environ['PATH']}")
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (1, "netns_traces: tcpdump did not start on r0: no tap today\n")
    assert (namespaces_of(process.pid), machine.processes(), list((tmp_path / "out").iterdir())) == (
        [],
        [],
        [],
    )


@pytest.mark.slow
@pytest.mark.netns
def test_clean_removes_what_a_killed_run_left(machine: Machine, tmp_path: Path) -> None:
    process = machine.start("make", tmp_path, "smoke", TMPDIR=str(tmp_path))
    machine.wait_for_tcpdump()
    run_script("clean")
    assert len(namespaces_of(process.pid)) == 4, "a run still going is left alone"
    process.kill()
    process.communicate()
    for _ in range(100):
        if not machine.processes():
            break
        time.sleep(0.05)
    assert machine.processes() == [], "processes die with their parent"
    assert run_script("clean").returncode == 0
    assert namespaces_of(process.pid) == []
