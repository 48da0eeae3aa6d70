"""The netns backend: packets beside theory, and that nothing stays behind, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tools import need

import cctoolkit as cct
from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.testbed import TestbedError, doctor, netns, run_testbed
from cctoolkit.testbed.plan import make_plan


def why_not() -> str:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs root on Linux"
    try:
        doctor.require("netns")
    except TestbedUnavailableError as err:
        return str(err)
    return "" if Path("/dev/net/tun").exists() or "netem" in doctor.host_qdiscs() else "no netem and no TUN"


@pytest.fixture
def machine() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)


def scenario(*flows: cct.Flow, **changes: object) -> cct.Scenario:
    bottleneck = {"rate_mbps": 10, "buffer_packets": 50} | changes.pop("bottleneck", {})  # type: ignore[operator]
    flows = flows or (cct.Flow("reno", rtt_ms=20),)
    return cct.Scenario(
        bottleneck=cct.Bottleneck(**bottleneck), flows=flows, **{"duration_s": 2.0, **changes}
    )


def namespaces() -> set[str]:
    """The testbed's; other tests have theirs at the same time."""
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return set(re.findall(r"^cct[0-9a-f]{6}[A-Za-z]\S*", done.stdout, re.M))


def processes(folder: Path) -> list[str]:
    """Command lines that name this folder (the traffic program's does, and the tester's own child's)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text and int(path.parent.name) != os.getpid():
            found.append(text)
    return found


# ---- without running anything ----------------------------------------------------------------------------------------


def test_delays_are_taken_out_where_there_is_no_netem() -> None:
    plan = make_plan(
        scenario(
            cct.Flow("reno", rtt_ms=20, access_ms=2, access_mbps=100),
            cct.Flow("cubic", rtt_ms=0),
            bottleneck={"aqm": "codel"},
        ),
        prefix="x",
        virtual=False,
    )
    kinds = {doctor.added_qdisc(line) for host in plan.hosts.values() for line in host.tc}
    assert kinds == {None, "htb", "pfifo", "codel", "netem"}
    for name, host in plan.hosts.items():
        held = name == "D0"
        addresses, queues = netns._without_netem(held, host.ip, host.tc)
        assert "netem" not in {doctor.added_qdisc(line) for line in queues}
        assert not any("ifb" in line or "clsact" in line or "mirred" in line for line in addresses + queues)
        ways = [line for line in addresses if line.startswith("route add 10.1.")]
        if name.startswith("D"):
            assert len(ways) == 1 and (" dev hold " if held else " dev d0 ") in ways[0]
        if name == "R":
            assert queues == host.tc and addresses == host.ip


@pytest.mark.parametrize(
    ("flow", "bottleneck", "has", "message"),
    [
        (
            {},
            {"aqm": "codel"},
            {"htb", "netem", "pfifo"},
            "no queue discipline 'codel'; it has htb netem pfifo",
        ),
        ({"loss": 0.1}, {}, {"htb", "pfifo"}, "no netem, which flow.loss needs"),
        ({"jitter_ms": 1}, {}, {"htb", "pfifo"}, "no netem, which flow.jitter_ms needs"),
        ({"cca": "yeah"}, {}, {"htb", "pfifo", "netem"}, "no congestion control 'yeah'; it has cubic reno"),
    ],
)
def test_what_the_kernel_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flow: dict[str, object],
    bottleneck: dict[str, object],
    has: set[str],
    message: str,
) -> None:
    monkeypatch.setattr(doctor, "require", lambda backend: None)
    monkeypatch.setattr(doctor, "host_qdiscs", lambda more=(): has)
    monkeypatch.setattr(doctor, "host_ccas", lambda: {"reno", "cubic"})
    monkeypatch.setattr(doctor, "_load_module", lambda name: False)
    given = scenario(cct.Flow(**{"cca": "reno", **flow}), bottleneck=bottleneck)
    with pytest.raises(TestbedUnavailableError, match=f"^netns: kernel .*{message}"):
        run_testbed(given, tmp_path / "out", backend="netns")
    assert not list(tmp_path.iterdir())


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TestbedUnavailableError, match=r"^netns: .*root: user 1000 \(sudo\)"):
        run_testbed(scenario(), tmp_path / "out", backend="netns")


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.netns
def test_a_run_is_what_the_scenario_says(machine: None, tmp_path: Path) -> None:
    flows = (
        cct.Flow("reno", rtt_ms=20),
        cct.Flow("cubic", rtt_ms=60, start_s=0.5),
        cct.Flow("udp", rate_mbps=1, rtt_ms=60),
        cct.Flow("reno", rtt_ms=20, bytes=50_000, start_s=0.2),
    )
    before = namespaces()
    run = run_testbed(
        scenario(*flows, duration_s=4.0, bottleneck={"rate_schedule": ((2.0, 5.0),)}),
        tmp_path / "a run",
        backend="netns",
    )
    assert namespaces() == before
    assert not processes(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a run"]

    table = run.flows.set_index("flow_id")
    assert table.cca.tolist() == ["reno", "cubic", "udp", "reno"]
    assert table.error.eq("").all()
    # No round trip is shorter than the delay; the shortest is not much longer, but for a queue of 50 packets (60 ms).
    for i, base_ms in ((0, 20), (1, 60), (3, 20)):
        assert base_ms <= table.min_rtt_ms[i] < base_ms + 75
    assert table.received_bytes[3] == 50_000 and table.completion_s[3] > 0.02
    assert table.sent_packets[2] == pytest.approx(4 * 1e6 / 8 / 1514, abs=10)
    # One packet is one frame on the wire, on both sides of the queue.
    assert max(tap.packets.wire_bytes.max() for tap in (run.ingress, run.egress)) == 1514
    # What the kernel sent again is what the queue dropped (a last loss may not have been noticed).
    assert run.queues.dropped_full.sum() >= run.flows.retransmits.sum() > 0

    # The link: no more than its rate in any half second, before and after the change, and nearly that much.
    data = run.egress.packets[run.egress.packets.direction == 0]
    since_s = (data.ts_ns.to_numpy() - run.start_ns) / 1e9
    for start_s, end_s, mbps in ((0.5, 2.0, 10), (2.2, 4.0, 5)):
        inside = (since_s >= start_s) & (since_s < end_s)
        bits = (
            np.bincount(((since_s[inside] - start_s) * 2).astype(int), data.wire_bytes.to_numpy()[inside]) * 8
        )
        bits = bits[: int((end_s - start_s) * 2)]
        assert (bits <= mbps * 1e6 / 2 + 5 * 1514 * 8).all()
        assert bits.mean() > 0.85 * mbps * 1e6 / 2
    provenance = json.loads((tmp_path / "a run" / "provenance.json").read_text())
    assert provenance["backend"] == "netns" and provenance["kernel"] in provenance["made_by"]
    assert provenance["delays"].startswith(
        "netem" if "netem" in doctor.host_qdiscs() else "the whole round trip"
    )


@pytest.mark.slow
@pytest.mark.netns
def test_a_controller_steers_it(machine: None, tmp_path: Path) -> None:
    times, rates = [], []

    def control(run) -> None:  # type: ignore[no-untyped-def]
        times.append(run.now_s)
        rates.append(run.flows.acked_bytes.iloc[0])
        if len(times) == 2:
            run.set_rate(2.0)

    run = run_testbed(scenario(), tmp_path / "out", backend="netns", control=control, control_s=0.5)
    assert times == [0.5, 1.0, 1.5]
    assert rates == sorted(rates) and rates[0] > 0
    data = run.egress.packets[run.egress.packets.direction == 0]
    since_s = (data.ts_ns.to_numpy() - run.start_ns) / 1e9
    late = data.wire_bytes.to_numpy()[(since_s >= 1.2) & (since_s < 2.0)].sum() * 8
    assert late <= 2e6 * 0.8 + 5 * 1514 * 8


# ---- nothing stays behind --------------------------------------------------------------------------------------------

_CHILD = """
import sys
import cctoolkit as cct
from cctoolkit.testbed import run_testbed
flows = [cct.Flow("reno", rtt_ms=20)]
run_testbed(cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50), flows=flows, duration_s=60.0),
            sys.argv[1], backend="netns")
"""


def gone(before: set[str], folder: Path) -> bool:
    for _ in range(300):
        if namespaces() <= before and not processes(folder):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_when_it_is_stopped(machine: None, tmp_path: Path, number: signal.Signals) -> None:
    before = namespaces()
    process = subprocess.Popen([sys.executable, "-c", _CHILD, tmp_path / "out"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):  # until traffic flows
            if any("--epoch" in text for text in processes(tmp_path)):
                break
            assert process.poll() is None
            time.sleep(0.05)
        assert len(namespaces() - before) == 5
        time.sleep(0.5)
        process.send_signal(number)
        process.wait(120)
    finally:
        process.kill()
        process.wait()
    assert gone(before, tmp_path), (namespaces() - before, processes(tmp_path))
    assert not (tmp_path / "out").exists()
    if number == signal.SIGINT:
        assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.netns
def test_nothing_stays_when_it_fails(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = namespaces()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho traffic: it is broken >&2\nexit 1\n")
    broken.chmod(0o755)
    real = netns.traffic.binary
    monkeypatch.setattr(
        netns.traffic, "binary", lambda source=None: broken if source is None else real(source)
    )
    monkeypatch.setattr(doctor, "require", lambda backend: None)
    with pytest.raises(TestbedError, match=r"^netns: it is broken$"):
        run_testbed(scenario(), tmp_path / "out", backend="netns")
    assert gone(before, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["broken"]


@pytest.mark.slow
@pytest.mark.netns
def test_two_runs_at_once_do_not_meet(machine: None, tmp_path: Path) -> None:
    before = namespaces()
    script = _CHILD.replace("duration_s=60.0", "duration_s=1.0")
    children = [subprocess.Popen([sys.executable, "-c", script, tmp_path / name]) for name in ("a", "b")]
    try:
        assert [child.wait(120) for child in children] == [0, 0]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert namespaces() == before
    for name in ("a", "b"):
        assert cct.load_run(tmp_path / name).flows.acked_bytes[0] > 100_000


@pytest.mark.skipif(shutil.which("tc") is None or os.geteuid() != 0, reason="needs root and tc")
def test_the_list_of_queue_disciplines_is_the_kernels() -> None:
    """Beside what the kernel says when asked for each in another way."""
    has = doctor.host_qdiscs()
    assert has <= set(doctor._QDISCS)
    script = "ip link add p type veth peer name q; tc qdisc add dev p root netem delay 1ms"
    done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, check=False)
    assert (done.returncode == 0) == ("netem" in has)


# ---- a switch in the bottleneck's place ------------------------------------------------------------------------------


class Wire:
    """As simple as a switch can be: what comes in at one port leaves at the other, but for every n-th full frame.

    Full frames after the first `stall_after` stay inside.
    """

    def __init__(self, lose_every: int, stall_after: int = sys.maxsize) -> None:
        self.lose_every, self.stall_after, self.lost, self.passed, self.kept = (
            lose_every,
            stall_after,
            0,
            0,
            0,
        )

    @contextlib.contextmanager
    def __call__(self, namespace: str) -> Iterator[dict[str, str]]:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        there = os.open(namespace, os.O_RDONLY)
        try:
            assert libc.setns(there, 0) == 0
            ports = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(2)]
            for i, sock in enumerate(ports):
                sock.bind((f"p{i}", 0))
        finally:
            assert libc.setns(home, 0) == 0
            os.close(there)
            os.close(home)
        stop = threading.Event()
        thread = threading.Thread(target=self._carry, args=(ports, stop))
        thread.start()
        try:
            yield {"switch": "wire"}
        finally:
            stop.set()
            thread.join()
            for sock in ports:
                sock.close()

    def _carry(self, ports: list[socket.socket], stop: threading.Event) -> None:
        full = 0
        while not stop.is_set():
            for sock in select.select(ports, [], [], 0.05)[0]:
                frame, origin = sock.recvfrom(2048)
                if origin[2] == socket.PACKET_OUTGOING:
                    continue
                if len(frame) > 1000:
                    full += 1
                    if full > self.stall_after:
                        self.kept += 1
                        continue
                    if full % self.lose_every == 0:
                        self.lost += 1
                        continue
                    self.passed += 1
                ports[sock is ports[0]].send(frame)


def run_through(wire: Wire, what: cct.Scenario, folder: Path) -> cct.Run:
    need("ethtool")
    return run_testbed(what, folder / "run", backend="netns", switch=wire)


@pytest.mark.netns
@pytest.mark.slow
def test_a_switch_in_the_bottlenecks_place(machine: None, tmp_path: Path) -> None:
    """What it loses is what the taps on its two sides say, whatever the AQM of the scenario's name is."""
    wire = Wire(lose_every=40)
    aqm = cct.aqm.PisaCoDel()  # Linux has none of these
    run = run_through(wire, scenario(cct.Flow("reno", rtt_ms=20), bottleneck={"aqm": aqm}), tmp_path)
    assert wire.lost > 5 and wire.passed > 200
    queue = run.queues.iloc[0]
    # what was still sent behind the end is in the wire's numbers alone
    assert 0 <= wire.lost - queue.dropped_dequeue <= 2
    assert run.flows.dropped_packets.sum() == queue.dropped_dequeue
    assert abs(wire.passed - queue.sent_packets) < 10  # beside full frames there are a few small ones
    assert run.scenario.bottleneck.aqm == aqm
    assert json.loads((tmp_path / "run" / "provenance.json").read_text())["switch"] == "wire"
    assert run.flows.min_rtt_ms[0] >= 20
    assert not namespaces()


@pytest.mark.netns
@pytest.mark.slow
def test_what_a_switch_still_holds_is_not_lost(machine: None, tmp_path: Path) -> None:
    wire = Wire(lose_every=40, stall_after=210)
    run = run_through(wire, scenario(), tmp_path)
    queue = run.queues.iloc[0]
    assert 0 < queue.packets <= wire.kept
    assert queue.dropped_dequeue == run.flows.dropped_packets.sum() == wire.lost == 5
    assert queue.arrived_packets == queue.sent_packets + queue.dropped_dequeue + queue.packets


@pytest.mark.netns
@pytest.mark.slow
def test_what_a_switch_loses_of_udp_was_not_sent(machine: None, tmp_path: Path) -> None:
    """The taps cannot match datagrams of which some are lost, but they can count them."""
    wire = Wire(lose_every=4)
    run = run_through(wire, scenario(cct.Flow("udp", rate_mbps=8)), tmp_path)
    assert wire.lost > 50
    queue, flow = run.queues.iloc[0], run.flows.iloc[0]
    assert queue.dropped_dequeue == flow.dropped_packets
    assert 0 <= wire.lost - queue.dropped_dequeue <= 2
    assert queue.arrived_packets == queue.sent_packets + queue.dropped_dequeue + queue.packets
    assert queue.sent_packets == pytest.approx(flow.received_packets, abs=3)
    assert queue.sent_bytes == pytest.approx(flow.received_packets * 1514, rel=0.02)


def test_a_switch_needs_namespaces(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="switch: requires backend netns"):
        run_testbed(scenario(), tmp_path / "run", backend="uml", switch=Wire(2))
