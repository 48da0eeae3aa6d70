"""Dragonfly's data collection in a switch, held against ``compute_slots`` of the same packets."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from switch_bench import TARGETS, Bench, TestInput, running_on

import cctoolkit as cct
from cctoolkit.analysis.slots import SlotRows, SlotTable, slot_columns
from cctoolkit.capture.model import Capture
from cctoolkit.errors import ParameterError
from cctoolkit.identify.live import CaptureCollector, CollectorError, FlowKey, Reading, watch
from cctoolkit.identify.live.naming import load_classifier
from cctoolkit.schema import SLOTS
from hardware import constants
from hardware.common.switch import Key, Switch, SwitchError, SwitchGoneError
from hardware.programs.cbiq import constants as of_cbiq
from hardware.programs.cbiq.control import FLOWS, GRACE_SLOTS, RING, SwitchCollector

TRACES = Path(__file__).parents[1] / "traces"
MS = 1_000_000
CAME, LEFT = 0, 1
#: What the switch does not collect.
NOT_COLLECTED = ["drops_estimate", "max_source_gap", "max_arrival_gap_ns"]
NOT_COLLECTED += ["in_ce_packets", "out_ce_packets", "ecn_echoes"]
BY_SEQUENCE = ["flow_id", "slot", "in_seq", "out_seq", "cbiq_bytes", "throughput_bytes"]


# ---- the division by tables ------------------------------------------------------------------------------------------


def divided(ns: np.ndarray, slot_ns: int) -> np.ndarray:
    """As the data plane divides: control SlotOf in hardware/programs/cbiq/slots_and_flows.p4."""
    coarse, fine = of_cbiq.slot_steps(slot_ns)
    assert len(coarse) == 1 << 32 - of_cbiq.COARSE_SHIFT
    assert len(fine) <= of_cbiq.FINE_ENTRIES
    _, slots, taken = np.array(coarse).T
    slot = slots[ns >> of_cbiq.COARSE_SHIFT]
    left = ns - taken[ns >> of_cbiq.COARSE_SHIFT]
    bits, slots, following = np.array(fine).T
    assert bits.tolist() == list(range(len(fine)))
    slot = slot + slots[left >> of_cbiq.FINE_SHIFT]
    beyond = (left - following[left >> of_cbiq.FINE_SHIFT]) % 2**32
    assert max(taken.max(), following.max()) < 2**32
    return slot + (beyond < 2**31)


@settings(max_examples=300, deadline=None)
@given(st.integers(of_cbiq.SLOT_MIN_NS, of_cbiq.SLOT_MAX_NS), st.integers(0, 2**32 - 1))
def test_two_tables_divide(slot_ns: int, ns: int) -> None:
    edges = ns // slot_ns * slot_ns + np.array([-1, 0, 1, slot_ns - 1, slot_ns])
    times = np.append(edges, [ns, 0, 2**32 - 1])
    times = times[(times >= 0) & (times < 2**32)]
    assert divided(times, slot_ns).tolist() == (times // slot_ns).tolist()


@pytest.mark.parametrize("slot_ns", [MS, 1 << 20, 100_000, 5 * MS, of_cbiq.SLOT_MIN_NS, of_cbiq.SLOT_MAX_NS])
def test_every_slot_begins_at_its_nanosecond(slot_ns: int) -> None:
    begins = np.arange(0, 2**32, slot_ns)
    assert (divided(begins, slot_ns) == np.arange(len(begins))).all()
    assert (divided(begins[1:] - 1, slot_ns) == np.arange(len(begins) - 1)).all()


@pytest.mark.parametrize("slot_ns", [of_cbiq.SLOT_MIN_NS - 1, of_cbiq.SLOT_MAX_NS + 1])
def test_a_slot_that_the_tables_cannot_do_is_refused(slot_ns: int) -> None:
    with pytest.raises(ValueError, match="ms must be"):
        of_cbiq.slot_steps(slot_ns)


def test_the_generated_file_is_what_the_constants_say() -> None:
    assert constants.generated("cbiq").read_text(encoding="utf-8") == constants.render("cbiq")


# ---- the control plane, with a switch that is none -------------------------------------------------------------------


class FakeSwitch(Switch):
    """The data plane in Python, as far as the control plane can see it."""

    target = "fake"

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """With the power off and on."""
        self.tables: dict[str, dict[tuple[int, ...], int]] = {}
        self.epochs: dict[str, tuple[int, int] | None] = {}
        pairs = {"in_first": "slot seq", "out_first": "slot seq", "acked": "slot ack"}
        pairs |= {"in_counts": "bytes packets", "out_counts": "bytes packets"}
        size = FLOWS * RING
        self.registers = {
            name: np.zeros(size, [(f, np.uint64) for f in fields.split()]) for name, fields in pairs.items()
        }
        self.registers["in_end"] = np.zeros(size, np.uint64)
        for side in ("in", "out"):
            self.registers[f"{side}_seen"] = np.zeros(1, [("time", np.uint64), ("packets", np.uint64)])
        self.on = True
        self.while_read: Callable[[str], None] = lambda name: None

    def answer(self) -> None:
        if not self.on:
            raise SwitchGoneError("it does not answer")

    def close(self) -> None:
        self.on = False

    def reconnect(self, timeout_s: float = 10.0) -> None:
        self.answer()

    def add_entry(
        self,
        table: str,
        keys: Mapping[str, Key],
        action: str,
        data: Mapping[str, int] | None = None,
        *,
        priority: int = 0,
    ) -> None:
        self.answer()
        if "flows" in table or "acks" in table:
            assert action == "watch"
            assert data is not None
            self.tables.setdefault(table, {})[tuple(keys.values())] = data["number"]  # type: ignore[arg-type]

    def delete_entry(self, table: str, keys: Mapping[str, Key]) -> None:
        self.answer()
        if self.tables.get(table, {}).pop(tuple(keys.values()), None) is None:  # type: ignore[arg-type]
            raise SwitchError("no such entry")

    def clear_table(self, table: str) -> None:
        self.answer()
        self.tables.pop(table, None)

    def set_default(self, table: str, action: str, data: Mapping[str, int] | None = None) -> None:
        self.answer()
        assert (action == "began") == (data is not None)
        self.epochs[table] = None if data is None else (data["minus_ns"], data["number"])

    def read_register(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        self.answer()
        values = self.registers[name]
        out = values[first : len(values) if count is None else first + count].copy()
        self.while_read(name)
        return out

    def write_register(self, name: str, value: Any, index: int | None = None) -> None:
        raise AssertionError("cells need no clearing")

    def digests(self, name: str, timeout_s: float = 0.0) -> Iterator[Mapping[str, Any]]:
        raise AssertionError

    def shape(self, port: int, rate_mbps: float, **_: Any) -> None:
        raise AssertionError

    def packet(
        self, side: str, now_ns: int, key: FlowKey, seq: int = 0, payload: int = 0, ack: int | None = None
    ) -> None:
        """One comes in, or leaves, at this time of the switch's clock."""
        seen = self.registers[f"{side}_seen"]
        seen["time"], seen["packets"] = (now_ns >> 16) % 2**32, seen["packets"] + np.uint64(1)
        epoch = self.epochs.get(f"{side}_slot.epoch")
        if epoch is None:
            return
        slot = (epoch[1] + (now_ns + epoch[0]) % 2**32 // MS) % 2**32
        ends = (int(ip_address(key.src)), int(ip_address(key.dst)), key.sport, key.dport)
        version = ip_address(key.src).version
        index = self.tables.get(f"{side}_flows.flows_ipv{version}", {}).get(ends)
        if index is not None and payload:
            at = slot % RING * FLOWS + index
            first, counts, end = (self.registers[n] for n in (f"{side}_first", f"{side}_counts", "in_end"))
            if first["slot"][at] != slot:
                first[at], counts[at], end[at] = (slot, seq), (0, 0), (seq + payload) % 2**32
            counts[at] = counts["bytes"][at] + np.uint64(payload), counts["packets"][at] + np.uint64(1)
            if side == "in" and (seq + payload - int(end[at])) % 2**32 < 2**31:
                end[at] = (seq + payload) % 2**32
        back = (ends[1], ends[0], ends[3], ends[2])
        index = self.tables.get(f"out_acks.acks_ipv{version}", {}).get(back)
        if side == "out" and index is not None and ack is not None:
            acked = self.registers["acked"]
            at = slot % RING * FLOWS + index
            if acked["slot"][at] != slot or (ack - int(acked["ack"][at])) % 2**32 < 2**31:
                acked[at] = slot, ack


KEY = FlowKey("10.0.0.1", 40000, "10.0.1.1", 5001)
BACK = FlowKey("10.0.1.1", 5001, "10.0.0.1", 40000)
OTHER = FlowKey("fd00::1", 40000, "fd01::1", 443)
ZERO_NS = 1_700_000_000_000_000_000


@pytest.fixture
def fake() -> FakeSwitch:
    return FakeSwitch()


@dataclass
class Idle:
    """This machine's clock, in the test's hands."""

    ns: int = 0

    def __call__(self) -> int:
        return self.ns


def collector(fake: FakeSwitch, now_ns: int = 5_000 * MS, **settings: Any) -> SwitchCollector:
    """Watches KEY as flow 7, and knows the time."""
    made = SwitchCollector(fake, **{"zero_ns": ZERO_NS, "idle_ns": lambda: 0, **settings})
    fake.packet("in", now_ns + 100_000, OTHER)  # the switch tells times to 65.5 µs
    made.read()
    made.add(7, KEY)
    return made


def rows_of(reading: Reading) -> list[tuple[int, ...]]:
    cells = reading.in_cells
    return [tuple(row) for row in cells[["slot", "first_seq", "bytes", "packets", "end", "acked"]].tolist()]


FIRST_SLOT = (ZERO_NS + 5_000 * MS) // MS


def test_a_slot_is_read_once_when_it_is_complete(fake: FakeSwitch) -> None:
    tap = collector(fake)
    for at_us, seq in ((5_001_000, 100), (5_001_999, 200), (5_002_000, 300)):
        fake.packet("in", at_us * 1000, KEY, seq, 100)
    fake.packet("out", 5_002_500_000, BACK, ack=200)
    assert rows_of(tap.read()) == []
    fake.packet("in", (5_002 + GRACE_SLOTS) * MS + 100_000, OTHER)
    reading = tap.read()
    slot, lap = FIRST_SLOT + 1, 2**32
    assert rows_of(reading) == [(slot, 101, 200, 2, lap + 300, 0)]
    assert reading.until_slot == slot + 1
    assert reading.in_cells["way"].tolist() == [14]
    fake.packet("in", (5_003 + GRACE_SLOTS) * MS + 100_000, OTHER)
    assert rows_of(tap.read()) == [(slot + 1, 301, 100, 1, lap + 400, lap + 200)]
    assert rows_of(tap.read()) == []
    assert reading.counts["ingress"] == {"packets": 6 - 1, "monitored": 2, "cells": 1}


def test_overwritten_slots_are_reported_as_missed(fake: FakeSwitch, caplog: pytest.LogCaptureFixture) -> None:
    tap = collector(fake)
    n = RING + 100
    for slot in range(n):
        fake.packet("in", (5_001 + slot) * MS, KEY, slot, 1)
    reading = tap.read(everything=True)
    assert reading.missed_until == FIRST_SLOT + 1 + n - RING
    assert [row[0] for row in rows_of(reading)] == list(range(FIRST_SLOT + 1 + n - RING, FIRST_SLOT + 1 + n))
    assert [row[1] - 1 for row in rows_of(reading)] == list(range(n - RING, n))
    assert "lost 101 slots" in caplog.text
    assert tap.read().missed_until is None


def test_cells_that_are_overwritten_while_they_are_read_are_not_mixed(fake: FakeSwitch) -> None:
    tap = collector(fake)
    for slot in range(100):
        fake.packet("in", (5_001 + slot) * MS, KEY, slot, 1)

    def later(name: str) -> None:
        if name == "in_first":
            fake.while_read = lambda name: None
            for slot in range(RING + 50, RING + 60):
                fake.packet("in", (5_001 + slot) * MS, KEY, 10_000 + slot, 1)

    fake.while_read = later
    reading = tap.read(everything=True)
    first = FIRST_SLOT + 1 + 60
    assert reading.missed_until == first
    assert rows_of(reading) == [
        (s, s - FIRST_SLOT, 1, 1, 2**32 + s - FIRST_SLOT, 0) for s in range(first, first + 40)
    ]


def test_a_watch_goes_on_behind_a_gap(fake: FakeSwitch) -> None:
    """Rows of what was missed are not there; they would look as if nothing had been sent."""

    class Live(SwitchCollector):
        at_ms = 5_000

        def wait(self, until_ns: int) -> bool:
            steps = 1400 if self.at_ms == 5_300 else 100  # once it is late
            for _ in range(steps):
                self.at_ms += 1
                fake.packet("in", self.at_ms * MS, KEY, self.at_ms, 1)
                fake.packet("out", self.at_ms * MS, KEY, self.at_ms, 1)
            return True

    tap = Live(fake, zero_ns=ZERO_NS, idle_ns=lambda: 0)
    fake.packet("in", 5_000 * MS + 100_000, OTHER)
    tap.read()
    parts = [u.slots for u in watch(tap, flows=[KEY], heavy=0, duration_s=2.5)]
    slots = pd.concat(parts, ignore_index=True)
    assert (slots.in_bytes == 1).all()
    assert (slots.in_seq == 5_000 + slots.slot).all()
    jumps = slots.slot[slots.slot.diff() != 1].tolist()
    assert len(jumps) == 2  # the first row, and the first after the gap
    assert jumps[1] == 1_700 - RING + 1


def test_sent_and_acknowledged_go_on_beyond_a_lap(fake: FakeSwitch) -> None:
    tap = collector(fake)
    start = 2**32 - 2_000
    now = 5_001
    rows = []
    for i in range(300):
        fake.packet("in", now * MS, KEY, (start + 100 * i) % 2**32, 100)
        if i >= 5:
            fake.packet("out", now * MS, BACK, ack=(start + 100 * (i - 5)) % 2**32)
        now += 1
        if i % 90 == 0:
            rows += rows_of(tap.read())
    rows += rows_of(tap.read(everything=True))
    assert [row[4] for row in rows] == [start + 2**32 + 100 * (i + 1) for i in range(300)]
    assert [row[5] for row in rows[5:]] == [start + 2**32 + 100 * (i - 5) for i in range(5, 300)]


def test_an_index_is_not_given_away_while_its_cells_could_be_taken_for_another_flow(fake: FakeSwitch) -> None:
    tap = collector(fake)
    for i in range(1, FLOWS):
        tap.add(i + 7, FlowKey("10.0.0.2", i, "10.0.1.1", 1))
    with pytest.raises(CollectorError, match="no room"):
        tap.add(99, OTHER)
    tap.remove(KEY)
    fake.packet("in", 5_001 * MS, OTHER)
    tap.read()
    with pytest.raises(CollectorError, match="no room"):
        tap.add(99, OTHER)
    fake.packet("in", (5_001 + RING) * MS, OTHER)
    tap.read()
    tap.add(99, OTHER)
    assert list(fake.tables["in_flows.flows_ipv6"].values()) == [0]
    assert not fake.tables["in_flows.flows_ipv4"].keys() & {(0x0A000001, 0x0A000101, 40000, 5001)}


def test_what_is_no_flow_is_refused(fake: FakeSwitch) -> None:
    tap = collector(fake)
    with pytest.raises(CollectorError, match="already monitored"):
        tap.add(1, KEY)
    with pytest.raises(CollectorError, match="not monitored"):
        tap.remove(OTHER)
    for wrong in (
        FlowKey("x", 1, "y", 2),
        FlowKey("10.0.0.1", 1, "fd00::1", 2),
        FlowKey("10.0.0.1", 1, "10.0.0.2", 1 << 16),
    ):
        with pytest.raises(CollectorError):
            tap.add(1, wrong)
    with pytest.raises(ParameterError, match="ms must be"):
        SwitchCollector(fake, slot_ms=0.01)


@pytest.mark.parametrize("zero_ns", [ZERO_NS, None])
def test_the_epoch_is_renewed_before_the_data_plane_cannot_count(
    fake: FakeSwitch, zero_ns: int | None
) -> None:
    """Over wraps of 32 bits of nanoseconds (4.3 s) and of 48 bits (78 h), and over hours without packets."""
    idle = Idle()
    tap = collector(fake, (1 << 48) - 10_000 * MS, zero_ns=zero_ns, idle_ns=idle)
    at = (1 << 48) - 10_000 * MS + 7
    offset = tap._clock.zero_ns
    assert offset is not None
    for step_ms in (1, 100, 100, 3_000, 6_000, 900_000, 3_600_000, 100):
        for _ in range(max(step_ms // 10_000, 1)):  # read now and then
            idle.ns += min(step_ms, 10_000) * MS
            tap.read()
        at += step_ms * MS
        fake.packet("in", at % (1 << 48), KEY, 5, 10)
        rows = rows_of(tap.read(everything=True))
        assert [row[0] for row in rows] == [(offset + at) // MS]


def test_a_switch_that_comes_back_is_set_up_again(fake: FakeSwitch, caplog: pytest.LogCaptureFixture) -> None:
    wires = []
    tap = collector(fake, set_up=wires.append, zero_ns=None)
    fake.packet("in", 5_001 * MS, KEY, 1, 1)
    fake.on = False
    before = tap.read()
    assert rows_of(before) == []
    tap.add(8, OTHER)
    assert rows_of(tap.read()) == []
    assert caplog.text.count("retrying") == 1
    fake.start()
    tap.read()
    assert len(wires) == 2
    assert list(fake.tables["in_flows.flows_ipv4"].values()) == [0]
    assert list(fake.tables["in_flows.flows_ipv6"].values()) == [1]
    fake.packet("in", 40 * MS, BACK)  # its clock began anew
    reading = tap.read()
    fake.packet("in", 41 * MS, KEY, 77, 1)
    # A slot more than it takes: where slots begin is up to this machine's clock
    fake.packet("in", (43 + GRACE_SLOTS) * MS, OTHER)
    after = tap.read()
    assert reading.missed_until is not None
    assert reading.missed_until >= before.until_slot
    assert [row[1] for row in rows_of(after)] == [78]
    assert rows_of(after)[0][0] >= reading.missed_until


# ---- in BMv2 ---------------------------------------------------------------------------------------------------------


Packet = tuple[int, bytes, int]  # time, what was kept of the frame, and its length


def packets(path: Path, until_s: float, shift_ns: int = 0) -> list[Packet]:
    """Of a bundled capture's first seconds."""
    data = gzip.decompress(path.read_bytes())
    assert data[:4] == bytes.fromhex("4d3cb2a1")  # nanoseconds, little-endian
    out: list[Packet] = []
    at = 24
    while at < len(data):
        seconds, ns, kept, whole = struct.unpack_from("<IIII", data, at)
        out.append((seconds * 10**9 + ns + shift_ns, data[at + 16 : at + 16 + kept], whole))
        at += 16 + kept
        if out[-1][0] - out[0][0] > until_s * 1e9:
            return out[:-1]
    return out


def written(path: Path, some: list[Packet]) -> Path:
    head = struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 16, 1)
    records = [
        struct.pack("<IIII", *divmod(ts, 10**9), len(frame), whole) + frame for ts, frame, whole in some
    ]
    path.write_bytes(head + b"".join(records))
    return path


def ends(frame: bytes) -> FlowKey | None:
    """Of a TCP segment as the bundled captures have it."""
    kind = int.from_bytes(frame[12:14], "big")
    if kind == 0x0800 and frame[23] == 6:
        addresses, ports = (frame[26:30], frame[30:34]), frame[34:38]
    elif kind == 0x86DD and frame[20] == 6:
        addresses, ports = (frame[22:38], frame[38:54]), frame[54:58]
    else:
        return None
    source, destination = (str(ip_address(a)) for a in addresses)
    sport, dport = struct.unpack("!HH", ports)
    return FlowKey(source, sport, destination, dport)


def turned(key: FlowKey) -> FlowKey:
    return FlowKey(key.dst, key.dport, key.src, key.sport)


def data_ways(capture: Capture) -> dict[FlowKey, int]:
    """Of each TCP flow with data, the direction with more of it: as compute_slots chooses."""
    found = {}
    tcp = capture.columns["tcp_flags"] != 0
    ways = capture.columns["flow_id"][tcp].astype(np.int64) * 2 + capture.columns["direction"][tcp]
    keys = capture.keys
    sums = np.bincount(ways, capture.columns["payload_bytes"][tcp], 2 * len(keys.flow_id))
    for flow, src, sport, dst, dport in zip(
        keys.flow_id.tolist(), keys.src_text(), keys.sport, keys.dst_text(), keys.dport, strict=True
    ):
        key = FlowKey(src, int(sport), dst, int(dport))
        if sums[2 * flow : 2 * flow + 2].any():
            found[key if sums[2 * flow] >= sums[2 * flow + 1] else turned(key)] = flow
    return found


class Replay(SwitchCollector):
    """Sends a capture's packets through the switch as the watch waits, each when it came and when it left.

    The test header carries one time, so a packet that was captured at both taps passes twice: once as it arrives,
    looked at by the ingress alone, and once as it leaves, looked at by the egress alone.
    """

    def __init__(self, bench: Bench, events: list[tuple[int, int, bytes]], **settings: Any) -> None:
        start_ns = events[0][0]
        super().__init__(
            bench.switch, zero_ns=start_ns >> 48 << 48, idle_ns=lambda: 0, set_up=wired, **settings
        )
        self._bench, self._events, self._at = bench, events, 0
        self.readings: list[Reading] = []
        # the switch tells its time by packets
        bench.exchange([(TestInput(now_ns=start_ns - 3 * self.slot_ns), bytes(60))])
        super().read()

    def wait(self, until_ns: int) -> bool:
        batch = []
        while self._at < len(self._events) and self._events[self._at][0] < until_ns:
            ts, side, frame = self._events[self._at]
            batch.append((TestInput(now_ns=ts, input=side), frame))
            self._at += 1
        for sent, answer in zip(batch, self._bench.exchange(batch), strict=True):
            assert answer.value2 == 1, "the data plane knows no epoch"
            assert answer.value == sent[0].now_ns // self.slot_ns % 2**32
            assert answer.frame[: len(sent[1])] == sent[1]
        return self._at < len(self._events)

    def play(self, period_ms: int = 100) -> None:
        """From the beginning to the end."""
        at_ns = self._events[0][0]
        while self.wait(at_ns):
            self.read()
            at_ns += period_ms * MS
        self.read()

    def read(self, everything: bool = False) -> Reading:
        self.readings.append(super().read(everything or self._at == len(self._events)))
        assert self.readings[-1].missed_until is None
        return self.readings[-1]


def wired(switch: Switch) -> None:
    for port in (0, 1):
        switch.add_entry("wire", {"port": port}, "send", {"port": 1 - port})


@dataclass
class Pair:
    """A capture pair's first seconds, as files and as events in a switch."""

    before: Capture
    after: Capture
    flows: dict[FlowKey, int]
    events: list[tuple[int, int, bytes]]

    @classmethod
    def of(cls, name: str, folder: Path, seconds: float, shift_ns: int = 0) -> Pair:
        names = [TRACES / f"{name}.{tap}.pcap.gz" for tap in ("ingress", "egress")]
        return cls.made(folder, *(packets(path, seconds, shift_ns) for path in names))

    @classmethod
    def made(cls, folder: Path, *taps: list[Packet]) -> Pair:
        before, after = (cct.read_capture(written(folder / f"{i}.pcap", some)) for i, some in enumerate(taps))
        flows = data_ways(before)
        events = []
        for tap, some in zip((CAME, LEFT), taps, strict=True):
            for ts, frame, _ in some:
                # data come by the ingress tap's link and leave by the egress tap's, what goes back does the reverse
                back = (key := ends(frame)) is not None and turned(key) in flows
                events.append((ts, tap ^ back, frame))
        events.sort(key=lambda event: event[0])
        return cls(before, after, flows, events)


def of_cells(pair: Pair, readings: list[Reading], slot_ns: int, sampled: bool) -> pd.DataFrame:
    """The table of all that was read, numbered as compute_slots numbers it."""
    came = np.concatenate([reading.in_cells for reading in readings])
    left = np.concatenate([reading.out_cells for reading in readings])
    if sampled:  # which knows of no acknowledgements
        came = came[came["packets"] > 0]
    spans = [
        (int(tap.columns["ts_ns"].min()) // slot_ns, int(tap.columns["ts_ns"].max()) // slot_ns)
        for tap in (pair.before, pair.after)
    ]
    rows = SlotRows(np.unique(came["way"]), came, left)
    table = slot_columns(rows, came, left, *spans, interpolate=False, sampled=sampled)
    table["slot"] = rows.slot - min(spans)[0]
    return pd.DataFrame({name: table[name] for name in SLOTS})


@pytest.fixture(scope="module", params=TARGETS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """One switch for all, so that each test also begins with what the one before left in its registers."""
    with running_on(request.param, "cbiq") as made:
        yield made


def same_tables(pair: Pair, tap: Replay, numbers: dict[FlowKey, int], slot_ms: float) -> pd.DataFrame:
    """What was read makes the tables of the captures, row by row; gives the one of the first packets of slots."""
    of = {flow: numbers[key] for key, flow in pair.flows.items()}
    for sampling, columns in (("first", BY_SEQUENCE), ("all", [n for n in SLOTS if n not in NOT_COLLECTED])):
        wanted = cct.compute_slots(pair.before, pair.after, slot_ms, sampling=sampling)
        wanted["flow_id"] = wanted.flow_id.map(of).astype(np.uint32)
        wanted = wanted.sort_values(["flow_id", "slot"], ignore_index=True)
        found = of_cells(pair, tap.readings, tap.slot_ns, sampled=sampling == "first")
        pd.testing.assert_frame_equal(found[columns], wanted[columns])
        if sampling == "first":
            first = found
    return first


@pytest.mark.p4
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seconds", "slot_ms"),
    [
        ("testbed/cubic-bbr", 3.0, 1.0),
        ("three-ccas-ipv6", 2.0, 1.0),
        ("mixed", 1.5, (1 << 20) / 1e6),
        ("rtt-unfairness", 1.5, 0.7),
    ],
)
def test_the_table_is_that_of_captures(
    bench: Bench, name: str, seconds: float, slot_ms: float, tmp_path: Path
) -> None:
    """The captures' packets as they came and left; and flows have the names that the captures' slots give them."""
    pair = Pair.of(name, tmp_path, seconds)
    model = load_classifier()
    if slot_ms != model.slot_ms:
        model = None  # there are names of slots of 1 ms only
    live = {"flows": list(pair.flows), "heavy": 0, "period_ms": 100 * slot_ms, "patience_ms": 60_000}
    tap = Replay(bench, pair.events, slot_ms=slot_ms)
    *_, last = watch(tap, classifier=model, **live)
    table = same_tables(pair, tap, {key: i for i, key in enumerate(pair.flows)}, slot_ms)
    assert len(table) > 1000
    assert table.cbiq_bytes.max() > 10_000
    if model is None:
        return
    *_, wanted = watch(CaptureCollector(pair.before, pair.after, slot_ms=slot_ms), classifier=model, **live)
    assert last.flows is not None
    assert wanted.flows is not None
    assert last.flows.cca.notna().all()
    named = ["cca", "probability"]
    pd.testing.assert_frame_equal(last.flows[named], wanted.flows[named], atol=0.01)


@pytest.mark.slow
def test_the_clock_may_wrap(bench: Bench, tmp_path: Path) -> None:
    """At 32 bits of nanoseconds and at all of a Tofino's 48, in the middle of a capture."""
    begin_ns = packets(TRACES / "testbed/reno.ingress.pcap.gz", 0)[0][0]
    wrap_ns = (begin_ns >> 48) + 1 << 48
    pair = Pair.of("testbed/reno", tmp_path, 1.0, wrap_ns - 500 * MS - begin_ns)
    tap = Replay(bench, pair.events)
    for number, key in enumerate(pair.flows):
        tap.add(number, key)
    tap.play()
    assert pair.events[0][0] < wrap_ns < pair.events[-1][0]
    assert len(same_tables(pair, tap, {key: i for i, key in enumerate(pair.flows)}, 1.0)) > 500


def segment(
    key: FlowKey, seq: int, ack: int, flags: int, payload: int, vlan: int | None = None
) -> tuple[bytes, int]:
    """A frame of which the headers are kept, and its length."""
    tcp = struct.pack("!HHIIBBHHH", key.sport, key.dport, seq % 2**32, ack % 2**32, 8 << 4, flags, 512, 0, 0)
    tcp += bytes(12)
    addresses = ip_address(key.src).packed + ip_address(key.dst).packed
    if len(addresses) == 8:
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp) + payload, 0, 0, 64, 6, 0) + addresses
    else:
        ip = struct.pack("!IHBB", 6 << 28, len(tcp) + payload, 6, 64) + addresses
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    kind = struct.pack("!H", 0x0800 if len(addresses) == 8 else 0x86DD)
    frame = b"\2\0\0\0\0\1\2\0\0\0\0\2" + tag + kind + ip + tcp
    return frame, len(frame) + payload


@pytest.mark.slow
def test_packets_of_all_kinds(bench: Bench, tmp_path: Path) -> None:
    """Sequence numbers that wrap, repeats, losses, data in a SYN, resets, VLAN tags, and what is not to be counted."""
    rng = np.random.default_rng(8)
    keys = [KEY, OTHER, turned(KEY)._replace(sport=9, dport=10)]
    begin_ns = ZERO_NS + 987_654_321
    taps: tuple[list[Packet], list[Packet]] = ([], [])
    for number, key in enumerate(keys):
        start = 2**32 - int(rng.integers(20_000, 60_000))
        at_ns, sent, acked = begin_ns + number, start + 1, start
        for i in range(600):
            at_ns += int(rng.integers(1, 3 * MS) if rng.random() < 0.4 else rng.integers(1, 100_000))
            left_ns = at_ns + int(rng.integers(1_000, 20 * MS))
            kind = rng.random()
            payload, seq, flags = int(rng.integers(1, 1449)), sent, 16
            if i == 0:
                payload, seq, flags = 100, start, 2  # data in a SYN, behind its own number
            elif kind < 0.1:
                payload = 0
            elif kind < 0.25:
                seq = sent - int(rng.integers(1, 3_000))  # a repeat, perhaps of more than was sent
            sent = max(sent, seq + (flags >> 1 & 1) + payload)
            frame, whole = segment(key, seq, 1, flags, payload, 5 if number == 1 and i % 2 else None)
            taps[0].append((at_ns, frame, whole))
            if rng.random() > 0.1:
                taps[1].append((left_ns, frame, whole))
            if rng.random() < 0.6:
                acked = acked + int(rng.integers(0, max(sent - acked, 1)))
                ack, flags = acked, 16
                if rng.random() < 0.2:
                    ack -= int(rng.integers(0, 5_000))  # an old one
                elif rng.random() < 0.1:
                    ack, flags = sent + 100_000, 20  # a reset's does not count
                frame, whole = segment(turned(key), 1, ack, flags, 0)
                taps[0].append((at_ns + int(rng.integers(1, 5 * MS)), frame, whole))
        udp = taps[0][-1][1][:23] + b"\x11" + taps[0][-1][1][24:]
        taps[0].append((at_ns, udp, len(udp)))
    for some in taps:
        some.sort(key=lambda packet: packet[0])
    pair = Pair.made(tmp_path, *taps)
    assert pair.flows.keys() == set(keys)
    tap = Replay(bench, pair.events)
    for number, key in enumerate(keys):
        tap.add(number, key)
    tap.play()
    table = same_tables(pair, tap, {key: i for i, key in enumerate(keys)}, 1.0)
    assert table.in_seq.max() > 2**32 - 60_000
    assert table.in_seq.min() < 500_000
    assert (table.groupby("flow_id").cbiq_bytes.max() > 0).all()


@pytest.mark.slow
def test_flows_come_and_go(bench: Bench, tmp_path: Path) -> None:
    """Of a flow that is watched from one reading to another, the slots between are there, and they are right."""
    # a minute later than in the test before: cells of the same slots would be gone on with
    pair = Pair.of("testbed/cubic-bbr", tmp_path, 3.0, 60_000 * MS)
    cubic, bbr = pair.flows
    changes = {3: [(True, cubic)], 6: [(True, bbr)], 22: [(False, cubic), (True, cubic)], 26: [(False, bbr)]}
    tap = Replay(bench, pair.events)
    number, period, since = 0, 0, {}
    spans: dict[int, tuple[FlowKey, int, int]] = {}
    while tap.wait(pair.events[0][0] + period * 100 * MS):
        tap.read()
        for on, key in changes.get(period, []):
            slot = tap.now_ns // MS
            if on:
                tap.add(number, key)
                since[key] = number, slot
                number += 1
            else:
                tap.remove(key)
                first, begun = since.pop(key)
                spans[first] = key, begun, tap.readings[-1].until_slot
        period += 1
    tap.read()
    for key, (first, begun) in since.items():
        spans[first] = key, begun, tap.readings[-1].until_slot
    assert len(spans) == 3
    whole = SlotTable(1.0)
    whole.update(pair.before, pair.after)
    wanted = whole.take_cells()
    for side, every in enumerate(wanted):
        read = np.concatenate([(one.in_cells, one.out_cells)[side] for one in tap.readings])
        for number, (key, begun, until) in spans.items():
            found = read[(read["way"] == 2 * number) & (read["packets"] > 0)]
            found = found[(found["slot"] > begun) & (found["slot"] < until)]
            flow = pair.flows[key]
            right = every[(every["way"] >> 1 == flow) & (every["packets"] > 0)]
            right = right[(right["slot"] > begun) & (right["slot"] < until)]
            assert len(found) > 50
            for name in ("slot", "first_seq", "bytes", "packets"):
                assert found[name].tolist() == right[name].tolist()
