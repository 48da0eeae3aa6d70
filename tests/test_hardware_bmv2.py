"""BMv2's side of the control planes' interface, on a running switch."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from switch_bench import TestInput, running, skip_without_bmv2

from hardware import build
from hardware.common import bmv2
from hardware.common.bmv2 import Bmv2Switch
from hardware.common.switch import Exact, Lpm, Range, SwitchError, SwitchGoneError, Ternary
from hardware.launch import simple_switch

SOURCE = Path(__file__).with_name("every_kind.p4")
SEEN = ("input", "now_ns", "port")
FRAME = bytes(12) + b"\x08\x06" + bytes(46)


def p4(test):
    return pytest.mark.p4(pytest.mark.slow(test))  # each starts a compiler and a switch


@pytest.fixture
def bench():
    with running(SOURCE) as running_bench:
        running_bench.switch.add_entry("exact_one", {"ingress_port": 0}, "send", {"port": 1})
        yield running_bench


def decisions(bench, *inputs: TestInput) -> list[int]:
    return [a.decision for a in bench.exchange([(i, FRAME) for i in inputs])]


@p4
def test_every_kind_of_key(bench) -> None:
    s = bench.switch
    s.add_entry("longest", {"input": Lpm(0x80, 1)}, "answer", {"number": 8})
    s.add_entry("longest", {"input": Lpm(0xA0, 4)}, "answer", {"number": 16})
    s.add_entry("longest", {"input": Exact(0xA1)}, "answer", {"number": 32})
    inputs = [TestInput(0, input=x) for x in (0x90, 0xA2, 0xA1, 0x40)]
    assert decisions(bench, *inputs) == [8, 16, 32, 1]
    # the lowest number wins
    s.add_entry(
        "masked", {"random": Ternary(0x1, 0x1), "depth": Range(5, 10)}, "answer", {"number": 100}, priority=2
    )
    s.add_entry("masked", {"random": 3, "depth": 7}, "answer", {"number": 101}, priority=1)
    inputs = [TestInput(0, random=r, queue_depth=d) for r, d in ((1, 5), (3, 7), (3, 10), (2, 7), (1, 11))]
    assert decisions(bench, *inputs) == [100, 101, 100, 1, 1]


@p4
def test_entries_are_replaced_and_taken_out(bench) -> None:
    s = bench.switch
    for number in (5, 6):
        s.add_entry("longest", {"input": Lpm(0, 7)}, "answer", {"number": number})
    assert decisions(bench, TestInput(0, input=1)) == [6]
    s.delete_entry("longest", {"input": Lpm(0, 7)})
    s.set_default("longest", "answer", {"number": 9})
    assert decisions(bench, TestInput(0, input=1)) == [9]
    with pytest.raises(SwitchError, match="no such entry"):
        s.delete_entry("longest", {"input": Lpm(0, 7)})
    s.clear_table("exact_one")
    s.add_entry("exact_one", {"ingress_port": 0}, "send", {"port": 0})
    assert bench.exchange([(TestInput(0), FRAME)])[0].port == 0


@p4
def test_registers_of_pairs_and_digests(bench) -> None:
    s = bench.switch
    big = (1 << 48) - 1
    bench.exchange([(TestInput(big, queue_delay_ns=3, random=0xFFFFFFFF), FRAME)] * 2)
    table = s.read_register("pairs")
    assert table.dtype.names == ("first", "second") and len(table) == 8
    assert (int(table["first"][3]), int(table["second"][3])) == (0xFFFFFFFF, big)
    s.write_register("pairs", {"first": 7, "second": 8}, 2)
    assert s.read_register("pairs", 2, 2).tolist() == [(7, 8), (0xFFFFFFFF, big)]
    s.write_register("pairs_first", 1)
    assert s.read_register("pairs_first").tolist() == [1] * 8
    bench.exchange([(TestInput(77, input=x), FRAME) for x in (1, 2, 3)])
    seen = list(s.digests("seen_t", SEEN, timeout_s=2))
    while len(seen) < 3:  # they come in messages of one or more
        more = list(s.digests("seen_t", SEEN, timeout_s=2))
        assert more
        seen += more
    assert seen == [{"input": x, "now_ns": 77, "port": 0} for x in (1, 2, 3)]
    assert list(s.digests("seen_t", SEEN)) == []


@p4
def test_what_is_refused(bench) -> None:
    s = bench.switch
    for act, message in (
        (lambda: s.add_entry("nothing", {}, "send"), "table nothing: does not exist: the program has"),
        (
            lambda: s.add_entry("exact_one", {"port": 1}, "send", {"port": 1}),
            "expects the keys ingress_port, got port",
        ),
        (
            lambda: s.add_entry("exact_one", {"ingress_port": 512}, "send", {"port": 1}),
            "512 does not fit into 9 bits",
        ),
        (
            lambda: s.add_entry("exact_one", {"ingress_port": Lpm(0, 1)}, "send", {"port": 1}),
            "cannot be the key of a match of kind exact",
        ),
        (
            lambda: s.add_entry("exact_one", {"ingress_port": 1}, "answer", {"number": 1}),
            "answer: does not exist",
        ),
        (lambda: s.add_entry("exact_one", {"ingress_port": 1}, "send"), "send expects port, got nothing"),
        (lambda: s.read_register("pairs", 7, 2), "has 8 cells; 7 to 9 is out of range"),
        (lambda: s.write_register("pairs", 3, 0), "has the fields first, second"),
        (lambda: s.write_register("pairs_first", 1 << 32, 0), "does not fit into 32 bits"),
        (lambda: s.write_register("pairs_first", 1, 8), "has 8 cells; 8 is out of range"),
        (lambda: list(s.digests("other")), "digest other: does not exist"),
        (lambda: list(s.digests("seen_t")), "has 3 fields, but 0 were named"),
    ):
        with pytest.raises(SwitchError, match=message):
            act()


@p4
def test_a_switch_that_goes_away_and_one_that_comes() -> None:
    with running(SOURCE) as first:
        pid = int(first.switch.namespace.split("/")[2])
        control = Bmv2Switch(port=simple_switch.THRIFT_PORT, namespace=first.switch.namespace, timeout_s=2)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SwitchGoneError, match="BMv2 no longer answers"):
            for _ in range(100):
                control.read_register("pairs_first", 0, 1)
                time.sleep(0.02)
        with pytest.raises(SwitchGoneError):
            control.read_register("pairs_first")
        with pytest.raises(SwitchError):
            control.reconnect(timeout_s=0.3)  # the namespace went with it
        with running(SOURCE) as second:
            control.namespace = second.switch.namespace
            control.reconnect(timeout_s=5)
            assert control.read_register("pairs_first", 0, 1).tolist() == [0]


@p4
def test_the_switch_ends_with_who_started_it() -> None:
    skip_without_bmv2()
    code = (
        "import sys, time, tempfile; from pathlib import Path\n"
        "from switch_bench import running\n"
        f"with running(Path({str(SOURCE)!r})) as bench:\n"
        "    print(bench.switch.namespace.split('/')[2], flush=True)\n"
        "    time.sleep(60)\n"
    )
    path = os.pathsep.join([str(SOURCE.parent), str(SOURCE.parents[1]), os.environ.get("PYTHONPATH", "")])
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    assert Path(f"/proc/{pid}/comm").read_text().strip() == "simple_switch"
    child.kill()
    child.wait()
    child.stdout.close()
    for _ in range(100):
        if (
            not Path(f"/proc/{pid}").exists()
            or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]
        ):
            return
        time.sleep(0.05)
    raise AssertionError("simple_switch still runs")


# -- without a switch


def test_nobody_answers() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    with pytest.raises(SwitchGoneError, match=rf"127.0.0.1:{port}: BMv2 does not answer"):
        Bmv2Switch("127.0.0.1", port, timeout_s=1)


def test_digests_without_notifications(tmp_path: Path) -> None:
    pytest.importorskip("pynng", reason="the extra `hardware` is not installed")
    with pytest.raises(
        SwitchGoneError, match=r"/none: no BMv2 publishes digests there \(Connection refused\)"
    ):
        bmv2._subscription(f"ipc://{tmp_path}/none")


class Silent(Bmv2Switch):
    """A switch without its Thrift port, whose program has the digest ``seen_t`` of two fields."""

    def __init__(self) -> None:
        self._subscription, self._digests, self.acknowledged = None, {}, []
        elements = [{"value": ["meta", name]} for name in ("number", "port")]
        types = [{"name": "meta_t", "fields": [["number", 32], ["port", 9]]}]
        self._program = bmv2._Program(
            {
                "pipelines": [],
                "actions": [],
                "learn_lists": [{"id": 1, "name": "seen_t", "elements": elements}],
                "header_types": types,
                "headers": [{"name": "meta", "header_type": "meta_t"}],
            }
        )

    def _call(self, name, *args, service="standard", what=""):
        assert name == "bm_learning_ack_buffer"
        self.acknowledged.append(args[2])


class Shaped(Bmv2Switch):
    """A switch that is only asked to shape."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def _call(self, name, *args, service="standard", what=""):
        self.calls.append((name, *args))


def test_a_port_is_shaped_in_packets() -> None:
    switch = Shaped()
    switch.shape(1, 10, frame_bytes=1250, buffer_packets=1)
    assert switch.calls == [("set_egress_queue_rate", 1, 1000), ("set_egress_queue_depth", 1, 1)]


@pytest.mark.parametrize(
    ("rate_mbps", "options", "says"),
    [
        *((rate, {}, "port 1: the rate must be positive") for rate in (-5, 0, float("inf"), float("nan"))),
        *((10, {"buffer_packets": n}, "port 1: the buffer must have room") for n in (-1, 0)),
        (10, {"frame_bytes": 0}, "port 1: a frame must have at least 1 byte"),
        *((rate, {}, "port 1: the rate is too large") for rate in (1e20, 1e308)),
        (10, {"buffer_packets": 1 << 31}, "port 1: the buffer is too large"),
    ],
)
def test_a_port_that_cannot_be_shaped(rate_mbps: float, options: dict[str, int], says: str) -> None:
    switch = Shaped()
    with pytest.raises(SwitchError, match=says):
        switch.shape(1, rate_mbps, **options)  # type: ignore[arg-type]
    assert switch.calls == []


@pytest.mark.slow
def test_digests_come_from_bmv2s_own_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody has to name it; and a second's messages wait until they are read."""
    pynng = pytest.importorskip("pynng", reason="the extra `hardware` is not installed")
    assert bmv2.NOTIFICATIONS == "ipc:///tmp/bmv2-0-notifications.ipc"  # simple_switch's options_parse.cpp
    monkeypatch.setattr(bmv2, "NOTIFICATIONS", f"ipc://{tmp_path}/notifications")
    switch = Silent()
    with pytest.raises(SwitchError, match=r"publishes digests there .*--notifications") as refused:
        list(switch.digests("seen_t", ("number", "port")))
    assert not isinstance(refused.value, SwitchGoneError)  # which the main loop would wait for
    messages = 1000
    with pynng.Pub0(listen=bmv2.NOTIFICATIONS, send_buffer_size=messages) as publisher:
        assert list(switch.digests("seen_t", ("number", "port"))) == []
        deadline = time.monotonic() + 10
        while not publisher.pipes and time.monotonic() < deadline:  # before, messages have nowhere to go
            time.sleep(0.01)
        for number in range(messages):
            header = struct.pack("<4sQIiQI", b"LEA|", 0, 0, 1, number, 2)
            publisher.send(header + b"".join(struct.pack(">IH", 2 * number + i, i) for i in (0, 1)))
        seen: list[dict[str, int]] = []
        while more := list(switch.digests("seen_t", ("number", "port"), timeout_s=1)):
            seen += more
    assert seen == [{"number": n, "port": n % 2} for n in range(2 * messages)]
    assert switch.acknowledged == list(range(messages))


def test_missing_parts_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert simple_switch.missing() == "simple_switch is not on PATH"
    with pytest.raises(build.TestbedUnavailableError, match="p4c-bm2-ss is not on PATH"):
        build.bmv2("codel", tmp_path)
