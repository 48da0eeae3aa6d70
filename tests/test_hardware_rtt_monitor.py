"""The RTT monitor on switches: its constants, its control plane; and BMv2 against the toolkit's models.

The models are :class:`cctoolkit.DataPlaneTables` and :class:`cctoolkit.CountMinSketch` as the constants module has
them, here mostly with tables so small that everything collides, expires and is voided.
"""

from __future__ import annotations

import gzip
import ipaddress
import itertools
import math
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from naive_rtt import RST, SYN, as_tuples, columns, packet, stream
from switch_bench import TARGETS, Bench, TestInput, running, running_on

import cctoolkit as cct
from cctoolkit import schema
from cctoolkit.analysis.rtt import DataPlaneTables, RttPairing, five_tuple_hashes, rtt_samples
from cctoolkit.analysis.sketch import CountMinSketch
from cctoolkit.capture.keys import FlowKeys
from cctoolkit.errors import CaptureFormatError, ParameterError
from cctoolkit.separation.controller import RttSeparation
from cctoolkit.separation.meters import METRICS
from cctoolkit.separation.router import Router
from hardware import constants
from hardware.common import command
from hardware.common.switch import Switch
from hardware.constants import Constant
from hardware.programs.rtt_monitor import constants as rtt_monitor, control
from hardware.programs.rtt_monitor.control import FiveTuple, Monitor, separate

TRACES = Path(__file__).parents[1] / "traces"
RTT_CAPTURES = Path(__file__).parents[2] / "shared" / "captures" / "rtt"
MS = 1_000_000
TCP, UDP = 6, 17
NUMBER = {c.name: c.value for c in rtt_monitor.CONSTANTS if isinstance(c, Constant)}
EMPTY_OWNER = {"flow": 0, "is_long": 0}


# ---- constants -------------------------------------------------------------------------------------------------------


def test_the_generated_file_is_what_the_constants_say():
    text = constants.generated("rtt_monitor").read_text(encoding="utf-8")
    assert text == constants.render("rtt_monitor")


def test_sizes_are_the_models():
    tables = rtt_monitor.TABLES
    assert 1 << NUMBER["PLACE_BITS"] == NUMBER["TABLE_ENTRIES"] == tables.table_size
    assert (tables.stages, tables.signature_bits, tables.per_direction, tables.tick_bits) == (2, 32, True, 16)
    assert NUMBER["TIMEOUT_STEPS"] == tables.timeout_ms * MS // (1 << 16)
    assert 1 << NUMBER["SLOT_BITS"] == NUMBER["SLOT_ENTRIES"] == rtt_monitor.SLOTS
    assert (
        CountMinSketch(**rtt_monitor.SKETCH).width == NUMBER["SKETCH_ENTRIES"] == 1 << 16
    )  # 16 bits of a CRC
    assert NUMBER["LONG_BYTES"] == 10_000_000


def test_a_clock_set_back_is_not_a_long_rtt():
    """Both are told apart by the sign of 32 bits, so no entry that is alive may be older than half of them."""
    steps = NUMBER["TIMEOUT_STEPS"] + 1
    assert steps << rtt_monitor.TABLES.tick_bits < 1 << 31


def test_what_a_segment_expects():
    """From the entries' text: length less headers, one for SYN and one for FIN, for every header there can be."""
    seen = {}
    for text in rtt_monitor.segment_entries():
        found = re.fullmatch(r"\((true|false), (\d+), (\d), (\d)\): less_headers\((\d+)\);", text)
        seen[found[1] == "true", int(found[2]), int(found[3]), int(found[4])] = int(found[5])
    assert set(seen) == set(itertools.product((True, False), range(5, 16), (0, 1), (0, 1)))
    for (is_ipv4, words, syn, fin), add in seen.items():
        for payload in (0, 1, 1460, 65000):
            # IPv4's length is that of the packet, IPv6's that of what follows its header
            length = (20 if is_ipv4 else 0) + 4 * words + payload
            assert (length + add) % (1 << 32) == payload + syn + fin


# ---- names -----------------------------------------------------------------------------------------------------------


def five_tuples(keys: FlowKeys) -> list[FiveTuple]:
    """Of the initiators."""
    out = []
    for i in range(len(keys)):
        width = 4 if keys.ip_version[i] == 4 else 16
        ends = (keys.src[i, :width].tobytes(), keys.dst[i, :width].tobytes())
        out.append(FiveTuple(*ends, int(keys.protocol[i]), int(keys.sport[i]), int(keys.dport[i])))
    return out


@pytest.mark.parametrize("name", ["mixed.ingress", "three-ccas-ipv6.ingress"])
def test_flows_are_called_what_the_model_calls_them(name):
    cap = cct.read_capture(TRACES / f"{name}.pcap.gz")
    hashes = five_tuple_hashes(np.zeros(0, np.uint32), cap.columns["flow_id"], cap.keys)
    for flow, who in zip(cap.keys.flow_id.tolist(), five_tuples(cap.keys), strict=True):
        assert (who.fid, who.back.fid) == (hashes[2 * flow], hashes[2 * flow + 1])
        assert who.flow == who.back.flow == (who, who.back)[who.direction].fid
        assert who.direction + who.back.direction == 1
        difference = (int(hashes[2 * flow]) - int(hashes[2 * flow + 1])) % (1 << 32)
        assert who.direction == difference >> 31


# ---- the control plane, on a switch of arrays ------------------------------------------------------------------------

PAIRS = {
    "owner": ("flow", "is_long"),
    **{f"direction_of_{d}.bytes": ("offered", "delivered") for d in (0, 1)},
    **{f"direction_of_{d}.rtt": ("least", "latest") for d in (0, 1)},
    **{f"set_{s}.stage_{k}.expected": ("signature", "time") for s in (0, 1) for k in (0, 1)},
}
SINGLE = [f"row_{i}.counters" for i in range(4)]
FAKE_SLOTS = 1024


class FakeSwitch(Switch):
    """Registers that the test fills in as the data plane would."""

    target = "tofino"

    def __init__(self) -> None:
        self.registers = {
            name: np.ones(FAKE_SLOTS, [(x, np.uint64) for x in fields]) for name, fields in PAIRS.items()
        }
        self.registers |= {name: np.ones(FAKE_SLOTS, np.uint64) for name in SINGLE}
        self.entries: list[tuple[Any, ...]] = []
        self.defaults: dict[str, str] = {}
        self.waiting: dict[str, list[dict[str, int]]] = {"flow_ipv4_t": [], "flow_ipv6_t": []}
        self.cleared = Counter()

    def close(self) -> None: ...

    def reconnect(self, timeout_s: float = 10.0) -> None: ...

    def delete_entry(self, table, keys) -> None:
        raise AssertionError

    clear_table = delete_entry

    def shape(self, port, rate_mbps, *, frame_bytes=1514, buffer_packets=None) -> None:
        raise AssertionError

    def add_entry(self, table, keys, action, data=None, *, priority=0) -> None:
        self.entries.append((table, dict(keys), action, dict(data or {})))

    def set_default(self, table, action, data=None) -> None:
        self.defaults[table] = action

    def read_register(self, name, first=0, count=None) -> np.ndarray:
        return self.registers[name][first : None if count is None else first + count].copy()

    def write_register(self, name, value, index=None) -> None:
        if index is None:
            self.cleared[name] += 1
        at = self.registers[name]
        assert isinstance(value, Mapping) == (at.dtype.names is not None)
        cells = slice(None) if index is None else index
        if isinstance(value, Mapping):
            assert set(value) == set(at.dtype.names)
            for x, number in value.items():
                at[x][cells] = number
        else:
            at[cells] = value

    def digests(self, name, fields=(), timeout_s=0.0) -> Iterator[Mapping[str, Any]]:
        assert tuple(fields) == control._FIELDS
        sent, self.waiting[name] = self.waiting[name], []
        yield from sent

    # what the data plane does

    def own(self, who: FiveTuple, is_long: bool = False, digest: bool = True) -> int:
        slot = who.flow % FAKE_SLOTS
        self.registers["owner"][slot] = (who.flow, is_long)
        for d in (0, 1):
            self.registers[f"direction_of_{d}.bytes"][slot] = (0, 0)
            self.registers[f"direction_of_{d}.rtt"][slot] = (0, 0)
        if is_long and digest:
            self.digest(who, 1)
        return slot

    def digest(self, packet: FiveTuple, events: int, now_ns: int = 5, rtt_ns: int = 0) -> None:
        self.waiting["flow_ipv4_t" if len(packet.source) == 4 else "flow_ipv6_t"].append(
            {
                "now_ns": now_ns,
                "rtt_ns": rtt_ns,
                "events": events | (4 if packet.protocol == UDP else 0),
                "source": int.from_bytes(packet.source, "big"),
                "destination": int.from_bytes(packet.destination, "big"),
                "source_port": packet.source_port,
                "destination_port": packet.destination_port,
            }
        )

    def pass_bytes(self, who: FiveTuple, offered: int = 0, delivered: int = 0) -> None:
        cell = self.registers[f"direction_of_{who.direction}.bytes"][who.flow % FAKE_SLOTS]
        cell["offered"] = (int(cell["offered"]) + offered) % (1 << 32)
        cell["delivered"] = (int(cell["delivered"]) + delivered) % (1 << 32)

    def measure(self, who: FiveTuple, min_ms: float, last_ms: float) -> None:
        """RTTs of data in this direction."""
        cell = self.registers[f"direction_of_{who.direction}.rtt"][who.flow % FAKE_SLOTS]
        cell["least"], cell["latest"] = round(min_ms * MS), round(last_ms * MS)


def who_is(number: int, protocol: int = TCP, version: int = 4) -> FiveTuple:
    """The sender of a made-up flow. Of 20 numbers no two share a slot here."""
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    net = 10 << 24 if version == 4 else 0xFD << 120
    source, destination = (kind(net + side * 65536 + number).packed for side in (1, 2))
    return FiveTuple(source, destination, protocol, 40000 + number, 5201)


def ready(**options: Any) -> tuple[FakeSwitch, Monitor]:
    switch = FakeSwitch()
    monitor = Monitor([0], [1], **{"rate_mbps": 100.0} | options)
    monitor.set_up(switch)
    monitor.read(switch, 0.0)  # rates need two
    return switch, monitor


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return table.to_dict("records")


def test_the_made_up_flows_have_slots_of_their_own():
    flows = (
        [who_is(n) for n in range(6)]
        + [who_is(n, UDP) for n in range(3)]
        + [who_is(n, version=6) for n in range(3)]
    )
    assert len({who.flow % FAKE_SLOTS for who in flows}) == len(flows)
    assert {who.direction for who in flows} == {0, 1}


def test_set_up():
    switch = FakeSwitch()
    Monitor([4, 5], [6], rate_mbps=100, wires={4: 6, 6: 4}).set_up(switch)
    assert [e for e in switch.entries if e[0] == "wire"] == [
        ("wire", {"port": 4}, "send", {"port": 6}),
        ("wire", {"port": 6}, "send", {"port": 4}),
    ]
    assert [e for e in switch.entries if e[0] == "taps"] == [
        ("taps", {"port": 4}, "tap", {"side": 1}),
        ("taps", {"port": 5}, "tap", {"side": 1}),
        ("taps", {"port": 6}, "tap", {"side": 2}),
    ]
    assert switch.defaults == {"samples": "NoAction"}
    for name in (*SINGLE, "owner", *(n for n in PAIRS if "expected" in n)):
        assert not switch.registers[name].astype(bool).any() if name in SINGLE else True
        assert switch.cleared[name] == 1
    Monitor([4], rate_mbps=100, all_samples=True).set_up(switch)
    assert switch.defaults == {"samples": "want_samples"}


def test_a_long_flow():
    switch, monitor = ready()
    who = who_is(1)
    switch.own(who, is_long=True)
    switch.pass_bytes(who, 1_000_000, 900_000)
    switch.pass_bytes(who.back, 20_000, 20_000)
    switch.measure(who, 30, 42.5)
    switch.measure(who.back, 1.25, 1.5)
    (row,) = rows(monitor.read(switch, 2.0))
    assert set(METRICS) <= set(row)
    assert (row["protocol"], row["is_long"], row["bytes"]) == (TCP, True, 1_000_000)
    assert row["offered_mbps"] == pytest.approx(4.0) and row["throughput_mbps"] == pytest.approx(3.6)
    # least of both legs; the latest of the data's, with the other's least
    assert row["rtt_ms"] == pytest.approx(31.25) and row["latest_rtt_ms"] == pytest.approx(43.75)
    assert rows(monitor.flows) == [
        {
            "flow_id": row["flow_id"],
            "src": "10.1.0.1",
            "sport": 40001,
            "dst": "10.2.0.1",
            "dport": 5201,
            "protocol": 6,
        }
    ]

    switch.pass_bytes(who, (1 << 32) - 500, 100_000)  # the counter wraps
    (row,) = rows(monitor.read(switch, 3.0))
    assert row["offered_mbps"] == pytest.approx(((1 << 32) - 500) * 8e-6)
    assert row["throughput_mbps"] == pytest.approx(0.8)


@pytest.mark.parametrize("version", [4, 6])
def test_rtts_that_are_not_known(version):
    switch, monitor = ready()
    one, two, three = (who_is(n, version=version) for n in range(3))
    for who in (one, two, three):
        switch.own(who, is_long=True)
        switch.pass_bytes(who, 1000)
    switch.measure(two, 20, 25)
    switch.measure(three.back, 3, 3)  # the handshake's, before the first ACK
    table = monitor.read(switch, 1.0).set_index("flow_id")
    numbers = {src: n for n, src in zip(monitor.flows.flow_id, monitor.flows.src, strict=True)}
    of = [table.loc[numbers[str(ipaddress.ip_address(who.source))]] for who in (one, two, three)]
    assert [math.isnan(x.rtt_ms) for x in of] == [True, False, False]
    assert [x.rtt_ms for x in of[1:]] == [20, 3]
    assert math.isnan(of[0].latest_rtt_ms) and of[1].latest_rtt_ms == 25 and math.isnan(of[2].latest_rtt_ms)


def test_without_a_tap_behind_the_queue_all_is_delivered():
    switch = FakeSwitch()
    monitor = Monitor([0], rate_mbps=100)
    monitor.set_up(switch)
    monitor.read(switch, 0.0)
    switch.own(who_is(1), is_long=True)
    switch.pass_bytes(who_is(1), 500_000)
    (row,) = rows(monitor.read(switch, 1.0))
    assert row["throughput_mbps"] == row["offered_mbps"] == pytest.approx(4)


def test_short_flows_count_but_have_no_names():
    switch, monitor = ready()
    short, udp = who_is(1), who_is(2, UDP)
    switch.own(short)
    switch.own(udp, is_long=True)
    switch.pass_bytes(short.back, 3000)
    switch.pass_bytes(short, 100)
    switch.pass_bytes(udp, 5000)
    table = monitor.read(switch, 1.0)
    assert sorted(zip(table.protocol, table.is_long, table.bytes, strict=True)) == [
        (6, False, 3000),
        (17, True, 5000),
    ]
    assert monitor.flows.protocol.tolist() == [17]


def test_flows_end():
    switch, monitor = ready(idle_s=2.0, forget_s=10.0)
    long, short = who_is(1), who_is(2)
    slot = switch.own(long, is_long=True)
    switch.own(short)
    for who in (long, short):
        switch.pass_bytes(who, 100)
    first = monitor.read(switch, 1.0)
    assert len(first) == 2
    assert len(monitor.read(switch, 2.9)) == 2
    assert len(monitor.read(switch, 3.1)) == 0  # idle
    assert switch.registers["owner"][slot].tolist() == (long.flow, 1)  # but not forgotten
    switch.pass_bytes(long, 100)
    assert (
        monitor.read(switch, 4.0).flow_id.tolist() == first.flow_id[first.is_long].tolist()
    )  # the same number
    monitor.read(switch, 13.9)
    assert switch.registers["owner"][slot].tolist() == (long.flow, 1)
    monitor.read(switch, 14.1)
    assert switch.registers["owner"][slot].tolist() == (0, 0)
    assert switch.registers["owner"][short.flow % FAKE_SLOTS].tolist() == (
        short.flow,
        0,
    )  # any SYN may take it

    switch.own(long)  # a SYN
    switch.pass_bytes(long, 1)
    (row,) = rows(monitor.read(switch, 20.0))
    assert not row["is_long"] and row["bytes"] == 1


def test_another_flow_takes_the_slot():
    switch, monitor = ready()
    one = who_is(1)
    number = next(n for n in range(2, 500) if who_is(n).flow % FAKE_SLOTS == one.flow % FAKE_SLOTS)
    two = who_is(number)
    switch.own(one)
    switch.pass_bytes(one, 5_000_000)
    before = monitor.read(switch, 1.0)
    switch.own(two, is_long=True)
    switch.pass_bytes(two, 1_000)
    switch.measure(two, 7, 7)
    (row,) = rows(monitor.read(switch, 2.0))
    assert row["flow_id"] != before.flow_id[0]
    assert row["bytes"] == 1_000 and row["offered_mbps"] == pytest.approx(0.008) and row["rtt_ms"] == 7
    assert monitor.flows.src.tolist() == [str(ipaddress.ip_address(two.source))]


def test_a_lost_digest_is_requested_again():
    switch, monitor = ready()
    who = who_is(3)
    slot = switch.own(who, is_long=True, digest=False)
    for now in (1.0, 2.0):
        switch.pass_bytes(who, 1000)
        (row,) = rows(monitor.read(switch, now))
        assert not row["is_long"]  # nobody could make a rule for it
    assert switch.registers["owner"][slot].tolist() == (who.flow, 0)  # the next packet holds it, and says so
    switch.registers["owner"][slot] = (who.flow, 1)
    switch.digest(who, 1)
    switch.pass_bytes(who, 1000)
    (again,) = rows(monitor.read(switch, 3.0))
    assert again["is_long"] and again["flow_id"] == row["flow_id"] and again["bytes"] == 3000
    monitor.read(switch, 4.0)
    assert switch.registers["owner"][slot].tolist() == (who.flow, 1)


@pytest.mark.parametrize("hours", [1, 38, 40, 77])
def test_times_are_the_switchs_own(hours):
    """However long it has been up: its clock wraps after 78 h, and the first digest may have any time."""
    switch, monitor = ready(all_samples=True)
    who, wrap = who_is(1), 1 << 48
    start = round(hours * 3600e9)
    times_ns = [start, start + 10**9, start + 30 * 3600 * 10**9]
    for now_ns in times_ns:
        switch.digest(who, 2, now_ns=now_ns % wrap, rtt_ns=5 * MS)
    monitor.read(switch, 1.0)
    assert monitor.take_samples().ts_ns.tolist() == times_ns
    monitor.set_up(switch)  # it may have restarted
    switch.digest(who, 2, now_ns=7, rtt_ns=5 * MS)
    monitor.read(switch, 2.0)
    assert monitor.take_samples().ts_ns.tolist() == [7]


def test_taps_name_the_ports_too():
    """There need not be a wire."""
    switch = FakeSwitch()
    used = []
    switch.use_ports = used.append
    Monitor([128], [129], rate_mbps=10.0).set_up(switch)
    assert used[-1] == {128, 129}
    Monitor([128], rate_mbps=10.0, wires={128: 5}).set_up(switch)
    assert used[-1] == {128, 5}


def test_epochs():
    """The sketch's error bound, e N / width, stays below a tenth of a long flow's bytes."""
    switch, monitor = ready(rate_mbps=1000.0)
    n = monitor.epoch_s * 125_000_000
    assert math.e * n / rtt_monitor.SKETCH["width"] == pytest.approx(1_000_000)
    start = switch.cleared.copy()
    monitor.read(switch, monitor.epoch_s - 0.1)
    assert switch.cleared == start
    for name in SINGLE:
        switch.registers[name][:] = 7
    monitor.read(switch, monitor.epoch_s + 0.1)
    monitor.read(switch, monitor.epoch_s + 0.2)
    assert switch.cleared - start == Counter([*SINGLE, *(n for n in PAIRS if "expected" in n)])
    assert not any(switch.registers[name].any() for name in SINGLE)


def test_every_sample_as_a_table():
    switch, monitor = ready(all_samples=True)
    one, two = who_is(1), who_is(2, version=6)
    clock = (1 << 48) - 1_000
    switch.digest(one.back, 2, clock, 30 * MS)  # an ACK: of data that one sends
    switch.digest(one, 2, (clock + 2_000) % (1 << 48), 2 * MS)  # the clock has wrapped
    switch.digest(two.back, 3, 3_000, 40 * MS)  # the receiver's direction becomes long with an ACK
    switch.digest(two, 1, 4_000)
    monitor.read(switch, 1.0)
    table = monitor.take_samples()
    schema.check(table, "rtt_samples")
    assert set(table.method) == {"data_plane"}
    assert table.rtt_ns.tolist() == [30 * MS, 2 * MS, 40 * MS]
    assert table.direction.tolist() == [0, 1, 0]
    assert np.diff(table.ts_ns[:2]).tolist() == [2_000]
    names = monitor.flows.set_index("flow_id")
    assert names.loc[table.flow_id].src.tolist() == ["10.1.0.1", "10.1.0.1", "fd00::1:2"]
    assert len(monitor.take_samples()) == 0


def test_latest_samples_without_digests():
    switch, monitor = ready()
    who = who_is(1)
    switch.own(who, is_long=True)
    switch.measure(who, 10, 12)
    switch.measure(who.back, 1, 1)
    monitor.read(switch, 1.0)
    switch.measure(who, 10, 15)
    monitor.read(switch, 2.0)
    monitor.read(switch, 3.0)  # nothing new
    table = monitor.take_samples()
    found = sorted(zip(table.ts_ns // MS, table.direction, table.rtt_ns // MS, strict=True))
    assert found == [(1000, 0, 12), (1000, 1, 1), (2000, 0, 15)]


def test_the_loop():
    """Two classes of RTT, an isolated flow by its waiting, UDP: as the controller alone decides; rules say it."""
    switch, monitor = ready()
    controller = RttSeparation(100.0, 2)
    twin = RttSeparation(100.0, 2)
    router = Router("linux", 100.0, "eth0")
    rules: list[str] = []
    clock = iter([1.0, 2.0, 3.0])
    step = separate(monitor, controller, router, rules.append, lambda: next(clock))
    flows = [who_is(n) for n in range(4)]
    udp = who_is(9, UDP)
    for n, who in enumerate(flows):
        switch.own(who, is_long=True)
        switch.measure(who, (10, 11, 80, 82)[n], 90)
    switch.own(udp, is_long=True)
    switch.own(who_is(5))  # a short flow
    decisions = []
    for _ in range(2):
        for who in (*flows, udp, who_is(5)):
            switch.pass_bytes(who, 1_000_000, 1_000_000)
        decisions.append(step(switch))
        expected = twin.decide(monitor.metrics, decisions[-1].now_s)
        pd.testing.assert_frame_equal(decisions[-1].flows, expected.flows)
        pd.testing.assert_frame_equal(decisions[-1].queues, expected.queues)
    numbers = dict(zip(monitor.flows.src, monitor.flows.flow_id, strict=True))
    queue = decisions[0].flows.set_index("flow_id").queue
    of = [queue[numbers[str(ipaddress.ip_address(who.source))]] for who in flows]
    assert of[0] == of[1] != of[2] == of[3] and 0 not in of
    assert decisions[0].flows.role.tolist().count("udp") == 1
    assert decisions[0].queues.flows[0] == 1  # the short one
    assert len(rules) == 1  # nothing new in the second interval
    for who in flows:
        assert f"{ipaddress.ip_address(who.source)}/32" in rules[0]
    switch.own(flows[0], is_long=False)
    switch.registers["owner"][flows[0].flow % FAKE_SLOTS] = (0, 0)
    step(switch)
    assert len(rules) == 2 and "del" in rules[1]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"before": []}, "before"),
        ({"behind": [0]}, "behind"),
        ({"rate_mbps": 0}, "rate_mbps"),
        ({"idle_s": -1}, "idle_s"),
        ({"forget_s": math.nan}, "forget_s"),
        ({"long_bytes": 0}, "long_bytes"),
    ],
)
def test_bad_arguments(arguments, word):
    with pytest.raises(ParameterError, match=word):
        Monitor(**{"before": [0], "rate_mbps": 1.0} | arguments)


def run_command(monkeypatch: pytest.MonkeyPatch, switch: Switch, *args: str) -> int:
    monkeypatch.setattr(command, "connect", lambda at: switch)
    with pytest.raises(SystemExit) as end:
        command.run("rtt_monitor", control.control, args=["--bmv2", "h:1", *args])
    return int(end.value.code or 0)


def test_the_command(monkeypatch, capsys, tmp_path):
    switch = FakeSwitch()
    who = who_is(1)
    reads = itertools.count()
    plain = FakeSwitch.digests

    def digests(self, name, fields=(), timeout_s=0.0):
        if name == "flow_ipv4_t" and next(reads) == 2:  # after the set-up's, and the first look's
            self.own(who, is_long=True)
            self.measure(who, 20, 30)
        if name == "flow_ipv4_t":
            self.pass_bytes(who, 1000, 1000)
        return plain(self, name, fields, timeout_s)

    monkeypatch.setattr(FakeSwitch, "digests", digests)
    args = ["--before", "0", "--behind", "1", "--wire", "0:1", "--rate-mbps", "100", "--router", "linux"]
    args += [
        "--interface",
        "eth7",
        "--interval-s",
        "0.05",
        "--duration-s",
        "0.5",
        "-o",
        str(tmp_path / "out"),
    ]
    assert run_command(monkeypatch, switch, *args) == 0
    output = capsys.readouterr()
    assert "eth7" in output.out and "10.1.0.1/32" in output.out
    assert "1 flows in queues of their own" in output.err
    samples, _ = schema.read_parquet(tmp_path / "out" / "rtt_samples.parquet", "rtt_samples")
    assert samples.rtt_ns.tolist() == [30 * MS]
    flows = pd.read_csv(tmp_path / "out" / "flows.csv")
    assert flows.src.tolist() == ["10.1.0.1"] and flows.flow_id.tolist() == samples.flow_id.tolist()
    metrics = pd.read_csv(tmp_path / "out" / "metrics.csv")
    assert set(METRICS) < set(metrics) and metrics.rtt_ms.tolist()[-1] == 20


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--router", "linux"], "--interface"),
        (["--router", "linux", "--interface", "eth0", "--apply", "r1"], "--apply"),
        (["--router", "junos", "--interface", "xe-0/1/0", "--k", "8", "--ingress", "xe-0/1/1"], "queues"),
        (["--wire", "0"], "--wire"),
    ],
)
def test_the_command_refuses(monkeypatch, capsys, args, word):
    code = run_command(monkeypatch, FakeSwitch(), "--before", "0", "--rate-mbps", "100", *args)
    assert code == 1 and word in capsys.readouterr().err


def test_no_packet_of_a_tofino_keeps_another_ones_digest_type():
    """The compiler clears it for nobody; and tapped packets are measured, although most are dropped."""
    text = (Path(control.__file__).parent / "tofino.p4").read_text()
    for action in ("send", "drop"):
        (body,) = re.findall(rf"action {action}\([^)]*\) {{(.*?)}}", text, re.S)
        assert "digest_type = 0;" in body, action


# ---- BMv2 against the models -----------------------------------------------------------------------------------------

PLACES, SLOTS, COUNTERS, TIMEOUT_MS, LONG = 64, 16, 256, 120, 60_000
SMALL = DataPlaneTables(PLACES, 2, TIMEOUT_MS, per_direction=True, tick_bits=16)
SMALL_FLAGS = (
    f"-DPLACES={PLACES}", f"-DTIMEOUT={TIMEOUT_MS * MS >> 16}", f"-DSLOTS={SLOTS}", f"-DCOUNTERS={COUNTERS}",
    f"-DLONG={LONG}",
)  # fmt: skip
REAL_LONG = 1_000_000
REAL_FLAGS = (
    "-DPLACES=TABLE_ENTRIES", "-DTIMEOUT=TIMEOUT_STEPS", "-DSLOTS=SLOT_ENTRIES", "-DCOUNTERS=SKETCH_ENTRIES",
    f"-DLONG={REAL_LONG}",
)  # fmt: skip
BACK, NEW, OWN, BECAME_LONG, SAMPLE = 16, 8, 4, 2, 1  # of a decision


@pytest.fixture(scope="module")
def small() -> Iterator[Bench]:
    with running("rtt_monitor", *SMALL_FLAGS) as bench:
        yield bench


@pytest.fixture(scope="module")
def real() -> Iterator[Bench]:
    with running("rtt_monitor", *REAL_FLAGS) as bench:
        yield bench


@pytest.fixture(scope="module", params=TARGETS)
def real_switch(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with running_on(request.param, "rtt_monitor", *REAL_FLAGS) as bench:
        yield bench


def prepare(bench: Bench, **options: Any) -> Monitor:
    monitor = Monitor([0], [1], **{"rate_mbps": 100.0, "wires": {0: 1, 1: 0}} | options)
    monitor.set_up(bench.switch)
    for s, k in itertools.product((0, 1), (0, 1)):
        bench.switch.write_register(f"set_{s}.stage_{k}.stamps", 0)
    for d in (0, 1):
        bench.switch.write_register(f"direction_of_{d}.bytes", {"offered": 0, "delivered": 0})
        bench.switch.write_register(f"direction_of_{d}.rtt", {"least": 0, "latest": 0})
    return monitor


def ip_frames(path: Path) -> list[tuple[int, bytes]]:
    """(ts_ns, frame) of a classic pcap's frames with an IP header; what the capture reader makes rows of."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    magic, linktype = struct.unpack(order + "I16xI", data[:24])
    scale = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}[magic]
    assert linktype == 1
    out, at = [], 24
    while at < len(data):
        seconds, fraction, captured, _ = struct.unpack_from(order + "4I", data, at)
        frame = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        if frame[12:14] in (b"\x08\x00", b"\x86\xdd"):
            out.append((seconds * 1_000_000_000 + fraction * scale, frame))
    return out


@dataclass
class Expected:
    """What each packet should give, and the registers in the end; obvious and slow."""

    slots: int
    owner: dict[int, list[int]] = field(default_factory=dict)
    bytes: Counter = field(default_factory=Counter)
    rtt: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def take(
        self, who: FiveTuple, tap: int, frame_bytes: int, flags: int, over: bool, rtt_ns: int | None
    ) -> int:
        """The decision; `rtt_ns` is of data the other way."""
        slot, d = who.flow % self.slots, who.direction
        flow, held = self.owner.get(slot, [0, 0])
        new = own = became_long = False
        if tap == 0 and over:
            became_long = not held
            if not held:
                new = flow != who.flow
                flow = who.flow
            self.owner[slot] = [flow, 1]
        elif tap == 0 and flags & SYN and not flags & RST and not held:
            new = flow != who.flow
            flow = who.flow
            self.owner[slot] = [flow, 0]
        own = flow == who.flow
        if new:
            for way in (0, 1):
                self.rtt[slot, way] = [0, 0]
                self.bytes[slot, way, 0] = self.bytes[slot, way, 1] = 0
        if own:
            self.bytes[slot, d, tap] += frame_bytes
            if rtt_ns is not None and not new:
                least, _ = self.rtt.get((slot, 1 - d), [0, 0])
                self.rtt[slot, 1 - d] = [min(least or rtt_ns, rtt_ns), rtt_ns]
        return NEW * new + OWN * own + BECAME_LONG * became_long + SAMPLE * (rtt_ns is not None)

    def registers(self) -> dict[str, np.ndarray]:
        owner = np.zeros(self.slots, [("flow", np.uint64), ("is_long", np.uint64)])
        for slot, pair in self.owner.items():
            owner[slot] = tuple(pair)
        out = {"owner": owner}
        for d in (0, 1):
            counted = np.zeros(self.slots, [("offered", np.uint64), ("delivered", np.uint64)])
            rtt = np.zeros(self.slots, [("least", np.uint64), ("latest", np.uint64)])
            for slot in range(self.slots):
                counted[slot] = (self.bytes[slot, d, 0], self.bytes[slot, d, 1])
                rtt[slot] = tuple(self.rtt.get((slot, d), (0, 0)))
            out |= {f"direction_of_{d}.bytes": counted, f"direction_of_{d}.rtt": rtt}
        return out


@dataclass
class Shown:
    """Packets for the switch, and what should come of them."""

    packets: list[tuple[TestInput, bytes]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    who: list[FiveTuple | None] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    rtts: list[int | None] = field(default_factory=list)
    expected: Expected | None = None
    sketch: CountMinSketch | None = None
    counters: dict[str, int] = field(default_factory=dict)


def shown(
    before: Path, behind: Path | None, tables: DataPlaneTables, slots: int, counters: int, long: int
) -> Shown:
    """Two taps' captures, in order of time, and what the models make of them."""
    out = Shown(expected=Expected(slots), sketch=CountMinSketch(counters, 4, hash="crc"))
    cap = cct.read_capture(before)
    pairing = RttPairing("data_plane", tables=tables)
    samples = pairing.update(cap)
    out.counters = pairing.counters
    rtt_of = dict(zip(samples["packet"].tolist(), samples["rtt_ns"].tolist(), strict=True))
    merged = []
    for tap, path in enumerate([before] + ([behind] if behind else [])):
        of = cap if tap == 0 else cct.read_capture(path)
        names = dict(zip(of.keys.flow_id.tolist(), five_tuples(of.keys), strict=True))
        frames = ip_frames(path)
        assert [ts for ts, _ in frames] == of.columns["ts_ns"].tolist()
        cols = [of.columns[x].tolist() for x in ("flow_id", "direction", "tcp_flags", "wire_bytes")]
        for i, ((ts, frame), flow, side, flags, size) in enumerate(zip(frames, *cols, strict=True)):
            who = names[flow].back if side else names[flow]
            merged.append((ts, tap, i, frame, who if who.protocol in (TCP, UDP) else None, flags, size))
    merged.sort(key=lambda m: m[:3])
    of_sketch = [(m[4].fid, m[6]) for m in merged if m[1] == 0 and m[4] is not None]
    estimates = iter(out.sketch.update(*np.array(of_sketch, np.uint64).reshape(-1, 2).T).tolist())
    for ts, tap, i, frame, who, flags, size in merged:
        out.packets.append((TestInput(ts), frame))
        out.ports.append(tap)
        out.who.append(who)
        rtt_ns = rtt_of.get(i) if tap == 0 else None
        out.rtts.append(rtt_ns)
        if who is None:
            out.decisions.append(0)
        else:
            over = tap == 0 and next(estimates) > long
            out.decisions.append(out.expected.take(who, tap, size, flags, over, rtt_ns))
    return out


def check_answers(found: Sequence[Any], wanted: Shown) -> None:
    for i, (answer, decision, rtt_ns, who) in enumerate(
        zip(found, wanted.decisions, wanted.rtts, wanted.who, strict=True)
    ):
        # data that this packet may acknowledge go the other way
        of_data = BACK if who is not None and who.direction == 0 else 0
        assert answer.decision == decision | of_data, (i, answer, who)
        assert answer.frame == wanted.packets[i][1]  # a tap changes nothing
        if who is not None:
            assert (answer.value2 >> 32, answer.value2 & 0xFFFFFFFF) == (who.fid, who.flow)
            assert answer.value == (rtt_ns or 0), (i, rtt_ns)


def check_registers(bench: Bench, wanted: Shown) -> None:
    assert wanted.expected is not None and wanted.sketch is not None
    for name, cells in wanted.expected.registers().items():
        np.testing.assert_array_equal(bench.switch.read_register(name), cells, name)
    for row in range(4):
        counters = bench.switch.read_register(f"row_{row}.counters")
        assert counters.tolist() == wanted.sketch.counters[row].tolist()


@pytest.mark.p4
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "three-ccas-ipv6"])
def test_bmv2_is_the_models_where_everything_collides(small, name):
    """IPv4 and IPv6, TCP, UDP and others, two taps: each packet's decision and RTT, all registers in the end."""
    prepare(small)
    wanted = shown(
        TRACES / f"{name}.ingress.pcap.gz", TRACES / f"{name}.egress.pcap.gz", SMALL, SLOTS, COUNTERS, LONG
    )
    for counter in ("matched", "expired", "not_inserted", "voided", "matched_late"):
        assert wanted.counters[counter] >= 20, wanted.counters
    seen = Counter(itertools.chain.from_iterable((d & b for b in (8, 4, 2, 1)) for d in wanted.decisions))
    assert seen[NEW] >= 3 and seen[BECAME_LONG] >= 3 and seen[SAMPLE] == wanted.counters["matched"]
    check_answers(small.exchange(wanted.packets, wanted.ports), wanted)
    check_registers(small, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rtt-unfairness", "mixed"])
def test_switch_is_the_models_at_full_size(real_switch, name):
    prepare(real_switch)
    wanted = shown(
        TRACES / f"{name}.ingress.pcap.gz",
        TRACES / f"{name}.egress.pcap.gz",
        rtt_monitor.TABLES,
        rtt_monitor.SLOTS,
        rtt_monitor.SKETCH["width"],
        REAL_LONG,
    )
    assert wanted.counters["matched"] > 3000
    check_answers(real_switch.exchange(wanted.packets, wanted.ports), wanted)
    check_registers(real_switch, wanted)


@pytest.mark.p4
@pytest.mark.slow
@pytest.mark.skipif(not RTT_CAPTURES.is_dir(), reason="no captures there")
def test_bmv2_is_the_models_on_other_captures(small):
    done = 0
    for path in sorted(RTT_CAPTURES.rglob("*.*")):
        try:
            cap = cct.read_capture(path)
        except CaptureFormatError:
            continue
        if cap.meta.format != "pcap" or cap.meta.link_types != ["EN10MB"] or not 0 < len(cap) < 50_000:
            continue
        times = cap.columns["ts_ns"].tolist()
        if [ts for ts, _ in ip_frames(path)] != times:  # tags, MPLS
            continue
        if len({ts >> 48 for ts in times}) > 1:  # joined from captures of different years
            continue
        prepare(small)
        wanted = shown(path, None, SMALL, SLOTS, COUNTERS, LONG)
        # some hold frames of 64 kB, before segmentation
        found = small.exchange([(given, frame[:128]) for given, frame in wanted.packets], wanted.ports)
        assert [a.decision & SAMPLE for a in found] == [int(r is not None) for r in wanted.rtts], path
        done += 1
    assert done >= 10


def frame_of(p: Mapping[str, Any], who: FiveTuple) -> bytes:
    """Headers alone; the payload is only in the length."""
    if p["direction"]:
        who = who.back
    tcp = struct.pack(
        "!HHIIBBHHH",
        who.source_port,
        who.destination_port,
        p["seq"],
        p["ack"],
        5 << 4,
        p["tcp_flags"],
        100,
        0,
        0,
    )
    if len(who.source) == 4:
        ip = (
            struct.pack("!BBHHHBBH", 0x45, 0, 40 + p["payload_bytes"], 0, 0, 64, TCP, 0)
            + who.source
            + who.destination
        )
        return bytes(12) + b"\x08\x00" + ip + tcp
    ip = struct.pack("!IHBB", 6 << 28, 20 + p["payload_bytes"], TCP, 64) + who.source + who.destination
    return bytes(12) + b"\x86\xdd" + ip + tcp


@pytest.mark.p4
@pytest.mark.slow
def test_bmv2_is_the_model_on_anything(small):
    counters = check_anything(small, SMALL)
    for name in ("matched", "expired", "not_inserted", "voided", "matched_void", "matched_late", "backwards"):
        assert counters[name] >= 10, counters


@pytest.mark.slow
def test_switch_is_the_model_on_anything_at_full_size(real_switch):
    counters = check_anything(real_switch, rtt_monitor.TABLES)
    for name in ("matched", "voided", "matched_void", "backwards"):
        assert counters[name] >= 10, counters


def check_anything(bench: Bench, tables: DataPlaneTables) -> dict[str, int]:
    """Retransmissions of any cut, jumps, wraps, SYN, FIN and RST anywhere, clocks set back, many flows at once."""
    prepare(bench)
    packets = []
    start = (1 << 48) * 3 + (1 << 32) * 77 - 360 * MS  # 32 bits of nanoseconds wrap on the way
    for seed in range(60):
        for p in stream(seed, 200):
            if p["payload_bytes"] < 60_000:
                ts = start + 6 * (p["ts_ns"] + (seed % 20) * 100_000)
                packets.append(p | {"flow_id": 3 * seed + p["flow_id"], "ts_ns": ts})
    packets.sort(
        key=lambda p: p["ts_ns"] // (30 * MS)
    )  # keeps clocks that were set back by 12 ms as they are
    ids = sorted({p["flow_id"] for p in packets})
    names = {flow: who_is(flow, version=4 if flow % 2 else 6) for flow in ids}
    keys = FlowKeys(
        saw_syn=np.zeros(len(ids), bool),
        mss=np.zeros((len(ids), 2), np.uint16),
        window_scale=np.zeros((len(ids), 2), np.uint8),
        sack_permitted=np.zeros((len(ids), 2), bool),
        flow_id=np.array(ids, np.uint32),
        ip_version=np.array([4 if flow % 2 else 6 for flow in ids], np.uint8),
        protocol=np.full(len(ids), TCP, np.uint8),
        sport=np.array([names[flow].source_port for flow in ids], np.uint16),
        dport=np.array([names[flow].destination_port for flow in ids], np.uint16),
        src=np.array([list(names[flow].source.ljust(16, b"\0")) for flow in ids], np.uint8),
        dst=np.array([list(names[flow].destination.ljust(16, b"\0")) for flow in ids], np.uint8),
    )
    pairing = RttPairing("data_plane", tables=tables)
    samples = as_tuples(pairing.update(columns(packets), keys))
    frames = [(TestInput(p["ts_ns"]), frame_of(p, names[p["flow_id"]])) for p in packets]
    found = bench.exchange(frames)
    assert len({p["ts_ns"] >> 32 for p in packets}) > 1
    got = [
        (i, p["ts_ns"], p["flow_id"], 1 - p["direction"], a.value)
        for i, (p, a) in enumerate(zip(packets, found, strict=True))
        if a.decision & SAMPLE
    ]
    assert got == samples
    return pairing.counters


@pytest.mark.p4
def test_what_the_wrap_of_48_bits_costs(small):
    """Every 78 h. RTTs are right across it; for one timeout nothing is put in where nothing ever was."""
    prepare(small)
    who, wrap = who_is(1), 1 << 48
    timeout = TIMEOUT_MS * MS
    sent = [
        (wrap - 2 * MS, packet(0, 0, 0, payload=100)),
        (wrap + MS, packet(0, 1, 0, 100)),  # 3 ms
        (wrap + 2 * MS, packet(0, 0, 100, payload=100)),
        (wrap + 3 * MS, packet(0, 1, 0, 200)),  # not put in
        (wrap + timeout + MS, packet(0, 0, 200, payload=100)),
        (wrap + timeout + 5 * MS, packet(0, 1, 0, 300)),  # 4 ms
    ]
    found = small.exchange([(TestInput(ts), frame_of(p, who)) for ts, p in sent])
    assert [a.value for a in found] == [0, 3 * MS, 0, 0, 0, 4 * MS]


def five_tuple_of(digest: Mapping[str, int], width: int) -> FiveTuple:
    ends = [int(digest[x]).to_bytes(width, "big") for x in ("source", "destination")]
    protocol = UDP if digest["events"] & 4 else TCP
    return FiveTuple(*ends, protocol, digest["source_port"], digest["destination_port"])


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_digests(target):
    """A flow that becomes long is told once, by its five-tuple; samples, where they are wanted, one by one."""
    flags = [*REAL_FLAGS[:-1], f"-DLONG={LONG}"]
    with running_on(target, "rtt_monitor", *flags, digests=True) as bench:
        check_digests(bench)


def check_digests(bench: Bench) -> None:
    prepare(bench, all_samples=True)
    wanted = shown(TRACES / "mixed.ingress.pcap.gz", None, rtt_monitor.TABLES, rtt_monitor.SLOTS,
                   rtt_monitor.SKETCH["width"], LONG)  # fmt: skip
    fields = control._FIELDS
    got: dict[int, list[tuple[int, FiveTuple, int, int]]] = {4: [], 16: []}

    def learn(timeout_s: float) -> bool:
        before = sum(map(len, got.values()))
        for name, width in (("flow_ipv4_t", 4), ("flow_ipv6_t", 16)):
            for d in bench.switch.digests(name, fields, timeout_s=timeout_s):
                got[width].append((d["now_ns"], five_tuple_of(d, width), d["events"] & 3, d["rtt_ns"]))
        return sum(map(len, got.values())) > before

    step = 50
    for start in range(0, len(wanted.packets), step):
        bench.exchange(wanted.packets[start : start + step])
        learn(0.002)
    while learn(0.5):  # they come behind the packets
        pass
    for width, digests in got.items():
        expected = [
            (
                given.now_ns % (1 << 48),
                who,
                (decision & BECAME_LONG) // 2 + 2 * (decision & SAMPLE),
                rtt_ns or 0,
            )
            for (given, _), who, decision, rtt_ns in zip(
                wanted.packets, wanted.who, wanted.decisions, wanted.rtts, strict=True
            )
            if who is not None and len(who.source) == width and decision & (BECAME_LONG | SAMPLE)
        ]
        assert digests == expected
        assert (
            any(events & 1 for _, _, events, _ in digests)
            and sum(events >> 1 for _, _, events, _ in digests) > 300
        )
    assert any(who.protocol == UDP for who in (x[1] for x in got[4] + got[16]))


@pytest.mark.p4
@pytest.mark.slow
def test_from_packets_to_rules(real):
    """Two flows of 10 and 60 ms: the switch's measurements are the model's, and give them queues of their own."""
    path = TRACES / "rtt-unfairness.ingress.pcap.gz"
    monitor = prepare(real, long_bytes=REAL_LONG)
    wanted = shown(path, TRACES / "rtt-unfairness.egress.pcap.gz", rtt_monitor.TABLES, rtt_monitor.SLOTS,
                   rtt_monitor.SKETCH["width"], REAL_LONG)  # fmt: skip
    times = [given.now_ns for given, _ in wanted.packets]
    clock = [0.0]
    updates: list[str] = []
    router = Router("linux", 20.0, "eth0")
    step = separate(monitor, RttSeparation(20.0, 2), router, updates.append, lambda: clock[0])
    decision = step(real.switch)
    edges = [*np.searchsorted(times, np.arange(times[0], times[-1], 1_000_000_000)).tolist(), len(times)]
    samples = []
    for second, (first, last) in enumerate(itertools.pairwise(edges), 1):
        real.exchange(wanted.packets[first:last], wanted.ports[first:last])
        clock[0] = float(second)
        decision = step(real.switch)
        samples.append(monitor.take_samples())
    model = rtt_samples(cct.read_capture(path), "data_plane", tables=rtt_monitor.TABLES)
    least = {}
    cap = cct.read_capture(path)
    for flow, who in zip(cap.keys.flow_id.tolist(), five_tuples(cap.keys), strict=True):
        legs = [model.rtt_ns[(model.flow_id == flow) & (model.direction == d)] for d in (0, 1)]
        least[who.flow] = sum(leg.min() for leg in legs if len(leg)) / 1e6
    metrics = monitor.metrics
    assert metrics.is_long.sum() == 2
    for flow_id, rtt_ms in zip(metrics.flow_id, metrics.rtt_ms, strict=True):
        assert rtt_ms == pytest.approx(
            least[next(k for k, f in monitor._flows.items() if f.number == flow_id)]
        )
    assert decision.flows.queue.tolist() and decision.flows.queue.nunique() == 2
    rules = "".join(updates)
    for src in monitor.flows[monitor.flows.flow_id.isin(decision.flows.flow_id)].src:
        assert f"{src}/32" in rules
    table = pd.concat(samples)
    schema.check(table, "rtt_samples")
    assert set(table.rtt_ns) <= set(model.rtt_ns) and len(table) >= 10
