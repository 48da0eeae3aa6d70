"""Tables, registers, digests and the traffic manager of a Tofino, through a client like the SDE's."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fake_bfrt
import numpy as np
import pytest
from fake_bfrt import Device, Server, frozen, learn, register, table

from hardware.common import bfrt
from hardware.common.bfrt import BfrtSwitch
from hardware.common.command import SwitchArgs, connect, main_loop
from hardware.common.switch import Exact, Lpm, Range, SwitchError, SwitchGoneError, Ternary
from hardware.common.wires import set_wires

ROOT = Path(__file__).parents[1]
SEND = {"SwitchIngress.send": {"port": 9}, "SwitchIngress.mark": {"port": 9, "ce": "bool"}, "NoAction": {}}
PORT_KEY = ("ig_intr_md.ingress_port", "Exact", 9)
#: Of a port, by family.
QUEUES = {"tf1": 8, "tf2": 16}
PROGRAM = [
    table("pipe.SwitchIngress.wire", 1, keys=[PORT_KEY], actions=SEND, size=4),
    table(
        "pipe.SwitchIngress.route",
        2,
        keys=[PORT_KEY, ("hdr.ipv4.dst_addr", "LPM", 32)],
        actions=SEND,
    ),
    table(
        "pipe.SwitchIngress.rules",
        3,
        keys=[
            ("hdr.ipv4.dst_addr", "Ternary", 32),
            ("ig_md.length", "Range", 16),
            ("$MATCH_PRIORITY", "Exact", "uint32"),
        ],
        actions=SEND,
    ),
    table("pipe.SwitchIngress.codel.drops", 4, keys=[PORT_KEY], actions=SEND),
    table("pipe.SwitchEgress.codel.drops", 5, keys=[PORT_KEY], actions=SEND),
    register("pipe.SwitchEgress.marks", 6, {"f1": 32}, 500),
    register("pipe.SwitchEgress.state", 7, {"since": 32, "count": 16}, 8),
]
LEARNS = [
    learn("pipe.SwitchIngressDeparser.rtt_digest", 1, {"flow": 32, "rtt_ns": 32}),
    learn("pipe.SwitchIngressDeparser.heavy", 2, {"flow": 32, "bytes": 64}),
]


@pytest.fixture(params=["tf1", "tf2"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(bfrt, "_CHUNK", 400)  # registers of 500 cells are read in parts
    with fake_bfrt.serving(Device("codel", PROGRAM, LEARNS, family=request.param)) as server:
        yield server


@pytest.fixture
def switch(server: Server) -> Iterator[BfrtSwitch]:
    with BfrtSwitch("127.0.0.1", server.port, program="codel") as switch:
        yield switch


@pytest.fixture
def device(server: Server) -> Device:
    return server.device


def wire(port: int) -> object:
    return frozen({PORT_KEY[0]: {"value": port}})


def test_which_chip_it_is(server: Server, switch: BfrtSwitch) -> None:
    assert switch.target == {"tf1": "tofino", "tf2": "tofino2"}[server.device.family]


# ---- tables


def test_an_entry_is_put_in_replaced_and_taken_out(switch: BfrtSwitch, device: Device) -> None:
    entries = device.entries["pipe.SwitchIngress.wire"]
    for port in (3, 4):
        switch.add_entry("wire", {"ig_intr_md.ingress_port": 1}, "send", {"port": port})
        assert entries == {wire(1): ("SwitchIngress.send", {"port": port})}
    switch.add_entry("SwitchIngress.wire", {"ingress_port": Exact(2)}, "mark", {"port": 5, "ce": 1})
    switch.add_entry("pipe.SwitchIngress.wire", {"ingress_port": np.int64(3)}, "NoAction")
    assert entries[wire(2)] == ("SwitchIngress.mark", {"port": 5, "ce": True})
    assert entries[wire(3)] == ("NoAction", {})
    switch.delete_entry("wire", {"ingress_port": 2})
    assert list(entries) == [wire(1), wire(3)]
    with pytest.raises(SwitchError, match=r"wire: .*ingress_port.*2.*Delete failed"):
        switch.delete_entry("wire", {"ingress_port": 2})


def test_values_that_do_not_fit_are_refused_before_any_request(switch: BfrtSwitch, device: Device) -> None:
    port = {"ingress_port": 1}
    for call, says in (
        (
            lambda: switch.add_entry("wires", port, "send", {"port": 1}),
            "table wires: does not exist in the program codel",
        ),
        (
            lambda: switch.add_entry("drops", port, "send", {"port": 1}),
            r"give the path: .*SwitchEgress\.codel\.drops, pipe",
        ),
        (lambda: switch.add_entry("wire", {"prot": 1}, "send", {"port": 1}), "expects the keys ig_intr_md"),
        (lambda: switch.add_entry("wire", {}, "send", {"port": 1}), "expects the keys ig_intr_md"),
        (lambda: switch.add_entry("wire", port, "sned", {"port": 1}), "has the actions .*, not sned"),
        (lambda: switch.add_entry("wire", port, "send"), "send expects port, got nothing"),
        (
            lambda: switch.add_entry("wire", port, "NoAction", {"port": 1}),
            "NoAction expects no data, got port",
        ),
        (
            lambda: switch.add_entry("wire", port, "send", {"port": 512}),
            "send: port: 512 does not fit into 9 bits",
        ),
        (lambda: switch.add_entry("wire", port, "send", {"port": -1}), "-1 does not fit"),
        (lambda: switch.add_entry("wire", port, "send", {"port": 1.5}), "1.5 is not an integer"),
        (lambda: switch.add_entry("wire", port, "mark", {"port": 1, "ce": 2}), "2 does not fit into 1 bits"),
        (lambda: switch.add_entry("wire", {"ingress_port": 512}, "send", {"port": 1}), "512 does not fit"),
        (
            lambda: switch.add_entry("wire", {"ingress_port": Range(1, 2)}, "NoAction"),
            "cannot be the key of a match",
        ),
        (lambda: switch.set_default("wire", "sned"), "has the actions"),
        (lambda: switch.clear_table("wires"), "table wires: does not exist"),
    ):
        with pytest.raises(SwitchError, match=says) as error:
            call()
        assert not isinstance(error.value, SwitchGoneError) and "\n" not in str(error.value)
    assert device.log == []


def test_a_full_table_says_so(switch: BfrtSwitch, device: Device) -> None:
    for port in range(4):
        switch.add_entry("wire", {"ingress_port": port}, "send", {"port": 1})
    with pytest.raises(SwitchError, match="Not enough space"):
        switch.add_entry("wire", {"ingress_port": 4}, "send", {"port": 1})
    switch.add_entry("wire", {"ingress_port": 3}, "send", {"port": 2})
    assert device.entries["pipe.SwitchIngress.wire"][wire(3)][1] == {"port": 2}


def test_prefixes_are_cut_to_their_length(switch: BfrtSwitch, device: Device) -> None:
    def key(value: int, bits: int) -> object:
        return frozen({PORT_KEY[0]: {"value": 1}, "hdr.ipv4.dst_addr": {"value": value, "prefix_len": bits}})

    for given, value, bits in (
        (Lpm(0x0A000001, 8), 0x0A000000, 8),
        (Lpm(0x0A000001, 0), 0, 0),
        (0x0A000001, 0x0A000001, 32),
    ):
        switch.add_entry("route", {"ingress_port": 1, "dst_addr": given}, "NoAction")
        assert key(value, bits) in device.entries["pipe.SwitchIngress.route"]
    with pytest.raises(SwitchError, match="0 to 32 bits, not 33"):
        switch.add_entry("route", {"ingress_port": 1, "dst_addr": Lpm(0, 33)}, "NoAction")


def rule(value: int, mask: int, low: int, high: int, priority: int) -> object:
    return frozen(
        {
            "hdr.ipv4.dst_addr": {"value": value, "mask": mask},
            "ig_md.length": {"low": low, "high": high},
            "$MATCH_PRIORITY": {"value": priority},
        }
    )


def test_ternary_and_range_entries_have_priorities(switch: BfrtSwitch, device: Device) -> None:
    entries = device.entries["pipe.SwitchIngress.rules"]
    switch.add_entry(
        "rules", {"dst_addr": Ternary(0x0A0000FF, 0xFF000000), "length": Range(64, 127)}, "NoAction"
    )
    switch.add_entry("rules", {"dst_addr": Lpm(0x0B000000, 8), "length": 5}, "NoAction", priority=7)
    switch.add_entry("rules", {"dst_addr": 1, "length": Range(0, 65535)}, "NoAction", priority=9)
    first, second = rule(0x0A000000, 0xFF000000, 64, 127, 0), rule(0x0B000000, 0xFF000000, 5, 5, 7)
    assert list(entries) == [first, second, rule(1, 0xFFFFFFFF, 0, 65535, 9)]
    # to the switch an entry of another priority is another; here it is the same, and replaced
    switch.add_entry("rules", {"dst_addr": 1, "length": Range(0, 65535)}, "send", {"port": 4}, priority=2)
    switch.add_entry("rules", {"dst_addr": Lpm(0x0B000000, 8), "length": 5}, "send", {"port": 5}, priority=7)
    moved = rule(1, 0xFFFFFFFF, 0, 65535, 2)
    assert entries == {
        first: ("NoAction", {}),
        second: ("SwitchIngress.send", {"port": 5}),
        moved: ("SwitchIngress.send", {"port": 4}),
    }
    switch.delete_entry("rules", {"dst_addr": 1, "length": Range(0, 65535)})
    assert list(entries) == [first, second]
    for keys in ({"dst_addr": 1, "length": Range(0, 65535)}, {"dst_addr": 1, "length": 0}):
        with pytest.raises(SwitchError, match="no such entry"):
            switch.delete_entry("rules", keys)
    with pytest.raises(SwitchError, match="from 5 to 4"):
        switch.add_entry("rules", {"dst_addr": 1, "length": Range(5, 4)}, "NoAction")


def test_earlier_priorities_are_read_from_the_switch(server: Server, device: Device) -> None:
    match = {"dst_addr": Ternary(1, 3), "length": 5}
    for priority, port in ((8, 1), (3, 2)):
        with BfrtSwitch("127.0.0.1", server.port, program="codel") as switch:
            switch.add_entry("rules", match, "send", {"port": port}, priority=priority)
    assert device.entries["pipe.SwitchIngress.rules"] == {
        rule(1, 3, 5, 5, 3): ("SwitchIngress.send", {"port": 2})
    }
    with BfrtSwitch("127.0.0.1", server.port, program="codel") as switch:
        switch.delete_entry("rules", match)
    assert not device.entries["pipe.SwitchIngress.rules"]


def test_many_priorities_are_read_once(switch: BfrtSwitch, device: Device) -> None:
    for i in range(200):
        switch.add_entry("rules", {"dst_addr": i, "length": 5}, "NoAction", priority=i)
    assert len(device.entries["pipe.SwitchIngress.rules"]) == 200
    assert [what for what, _ in device.log].count("read") == 1


def test_clearing_leaves_the_default(switch: BfrtSwitch, device: Device) -> None:
    switch.set_default("rules", "send", {"port": 3})
    switch.add_entry("rules", {"dst_addr": 1, "length": 5}, "NoAction", priority=1)
    switch.add_entry("rules", {"dst_addr": 2, "length": 5}, "NoAction", priority=1)
    switch.clear_table("rules")
    switch.clear_table("rules")
    assert not device.entries["pipe.SwitchIngress.rules"]
    assert device.defaults["pipe.SwitchIngress.rules"] == ("SwitchIngress.send", {"port": 3})
    switch.add_entry("rules", {"dst_addr": 1, "length": 5}, "NoAction", priority=2)
    assert list(device.entries["pipe.SwitchIngress.rules"]) == [rule(1, 0xFFFFFFFF, 5, 5, 2)]


# ---- registers


def fill(device: Device, name: str, field: str, values: list[int], pipe: int) -> None:
    for cell, value in zip(device.hw[name], values, strict=False):
        cell[field] = [*cell[field]]
        cell[field][pipe] = value


def test_a_register_of_each_pipe(server: Server, device: Device) -> None:
    values = np.arange(500) * 858_993
    fill(device, "pipe.SwitchEgress.marks", "SwitchEgress.marks.f1", values.tolist(), 1)
    for pipe, expected in ((1, values), (0, np.zeros(500))):
        with BfrtSwitch("127.0.0.1", server.port, program="codel", pipe=pipe) as switch:
            read = switch.read_register("marks")
            assert read.dtype == np.uint64 and np.array_equal(read, expected)
            assert np.array_equal(switch.read_register("marks", 490), expected[490:])
            assert np.array_equal(switch.read_register("SwitchEgress.marks", 7, 2), expected[7:9])
            assert switch.read_register("marks", 500).shape == (0,)
    with (
        BfrtSwitch("127.0.0.1", server.port, program="codel", pipe=2) as switch,
        pytest.raises(SwitchError, match="pipe 2 does not exist"),
    ):
        switch.read_register("marks", 0, 1)


def test_the_pipe_is_that_of_the_ports(server: Server, device: Device) -> None:
    for pipe in (0, 1):
        fill(device, "pipe.SwitchEgress.marks", "SwitchEgress.marks.f1", [10 + pipe], pipe)

    def read(pipe: int | None, *ports: int) -> int:
        with BfrtSwitch("127.0.0.1", server.port, program="codel", pipe=pipe) as switch:
            switch.use_ports(ports)
            switch.reconnect()  # which forgets nothing about the pipe
            return int(switch.read_register("marks", 0, 1)[0])

    assert [read(None), read(None, 0, 127), read(None, 132, 140)] == [10, 10, 11]
    assert [read(0, 132, 140), read(1, 5), read(1, 5, 132)] == [10, 11, 11]  # a given one stays
    with pytest.raises(SwitchError, match=r"^ports 5 and 132 are in different pipes, .* with --pipe$"):
        read(None, 132, 140, 5, 9)


def test_wires_name_the_ports(switch: BfrtSwitch, device: Device) -> None:
    with pytest.raises(SwitchError, match="ports 3 and 132 are in different pipes"):
        set_wires(switch, {132: 3})
    assert not device.log
    set_wires(switch, {})
    assert switch.pipe == 0


def test_what_is_read_is_the_chip_s_not_the_driver_s_copy(switch: BfrtSwitch, device: Device) -> None:
    for round_ in (1, 2):
        fill(device, "pipe.SwitchEgress.marks", "SwitchEgress.marks.f1", [round_] * 500, 0)
        assert set(switch.read_register("marks").tolist()) == {round_}
        assert switch.read_register("marks", 3, 1).tolist() == [round_]
    assert device.log.count(("SyncRegisters", "pipe.SwitchEgress.marks")) == 2


def test_a_register_of_pairs(switch: BfrtSwitch, device: Device) -> None:
    name = "pipe.SwitchEgress.state"
    fill(device, name, "SwitchEgress.state.since", [10, 11, 12], 0)
    fill(device, name, "SwitchEgress.state.count", [1, 2, 3], 0)
    read = switch.read_register("state", 1, 2)
    assert read.dtype.names == ("since", "count")
    assert read["since"].tolist() == [11, 12] and read["count"].tolist() == [2, 3]
    switch.write_register("state", {"since": 0xFFFFFFFF, "count": 5}, 2)
    assert device.hw[name][2] == {
        "SwitchEgress.state.since": [0xFFFFFFFF] * 2,
        "SwitchEgress.state.count": [5] * 2,
    }
    assert device.hw[name][1]["SwitchEgress.state.since"] == [11, 0]
    for value, says in (
        (5, "has the fields since, count"),
        ({"since": 5}, "has the fields since, count"),
        ({"since": 1, "count": 1 << 16}, "state: count: 65536 does not fit into 16 bits"),
    ):
        with pytest.raises(SwitchError, match=says):
            switch.write_register("state", value, 0)


def test_writing_one_cell_and_all(switch: BfrtSwitch, device: Device) -> None:
    switch.write_register("marks", 7)
    switch.write_register("marks", np.uint32(9), 499)
    read = switch.read_register("marks")
    assert read[499] == 9 and set(read[:499].tolist()) == {7}
    assert device.hw["pipe.SwitchEgress.marks"][499]["SwitchEgress.marks.f1"] == [9, 9]
    for call, says in (
        (lambda: switch.write_register("marks", 1, 500), "has 500 cells; 500 is"),
        (lambda: switch.write_register("marks", 1 << 32, 0), "does not fit into 32 bits"),
        (lambda: switch.read_register("marks", 499, 2), "has 500 cells; 499 to 501 is"),
        (lambda: switch.read_register("marks", -1, 1), "has 500 cells"),
        (lambda: switch.read_register("wire"), "wire: is a table"),
        (lambda: switch.read_register("mark"), "mark: does not exist"),
    ):
        with pytest.raises(SwitchError, match=says):
            call()


# ---- digests


def sent(device: Device, *messages: tuple[str, list[dict[str, int]]]) -> None:
    for name, samples in messages:
        device.send_digest(f"pipe.SwitchIngressDeparser.{name}", samples)


@pytest.mark.slow
def test_digests_of_a_name(switch: BfrtSwitch, device: Device) -> None:
    one, two, three = ({"flow": i, "rtt_ns": 1000 * i} for i in (1, 2, 3))
    assert list(switch.digests("rtt_digest")) == []
    sent(
        device,
        ("rtt_digest", [one, two]),
        ("heavy", [{"flow": 9, "bytes": 1 << 40}]),
        ("rtt_digest", [three]),
    )
    found = list(switch.digests("rtt_digest", timeout_s=5))
    deadline = time.monotonic() + 60
    while len(found) < 3 and time.monotonic() < deadline:  # messages come one by one
        found += switch.digests("rtt_digest", timeout_s=0.2)
    assert found == [one, two, three]
    # what came meanwhile under another name is kept
    assert list(switch.digests("heavy")) == [{"flow": 9, "bytes": 1 << 40}]
    assert list(switch.digests("heavy")) == []


def test_digests_are_found_by_their_fields_too(switch: BfrtSwitch, device: Device) -> None:
    sent(device, ("rtt_digest", [{"flow": 1, "rtt_ns": 5}]))
    assert list(switch.digests("rtt_digest_t", ["flow", "rtt_ns"], 5.0)) == [{"flow": 1, "rtt_ns": 5}]
    with pytest.raises(
        SwitchError, match=r"digest rtt_digest_t: the program has pipe.*rtt_digest, pipe.*heavy"
    ):
        list(switch.digests("rtt_digest_t", ["flow"]))


@pytest.mark.slow
def test_waiting_for_a_digest(switch: BfrtSwitch, device: Device) -> None:
    begin = time.monotonic()
    assert list(switch.digests("heavy", timeout_s=0.3)) == []
    assert 0.3 <= time.monotonic() - begin < 25  # a busy machine takes its time
    late = threading.Timer(0.2, lambda: sent(device, ("heavy", [{"flow": 1, "bytes": 2}])))
    late.start()
    begin = time.monotonic()
    assert list(switch.digests("heavy", timeout_s=30)) == [{"flow": 1, "bytes": 2}]
    assert time.monotonic() - begin < 25
    late.join()


@pytest.mark.slow
def test_digests_without_end_do_not_keep_a_reader(
    switch: BfrtSwitch, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(device, ("heavy", [{"flow": 1, "bytes": 2}]))
    message = switch._client.digest_get(timeout=5)

    def another(timeout: float) -> object:
        time.sleep(0.01)
        return message

    monkeypatch.setattr(switch._client, "digest_get", another)
    begin = time.monotonic()
    for name, least in (("heavy", 1), ("rtt_digest", 0)):
        assert len(list(switch.digests(name))) >= least
    assert time.monotonic() - begin < 60


# ---- the traffic manager


def test_a_port_is_shaped(switch: BfrtSwitch, device: Device) -> None:
    switch.shape(1, 100, buffer_packets=50)
    tm, port = f"{device.family}.tm", frozen({"dev_port": {"value": 1}})
    assert device.entries[f"{tm}.port.sched_shaping"] == {
        port: (
            None,
            {"unit": "BPS", "provisioning": "MIN_ERROR", "max_rate": 100_000, "max_burst_size": 3028},
        )
    }
    assert device.entries[f"{tm}.port.sched_cfg"] == {port: (None, {"max_rate_enable": True})}
    # 1514 bytes are 19 cells of 80, or 9 of 176; queues 1, 2 and 3 of the port are one
    cells = 50 * {"tf1": 19, "tf2": 9}[device.family]
    count = QUEUES[device.family]
    assert device.entries[f"{tm}.queue.buffer"] == {
        (0, frozen({"pg_id": {"value": 3}, "pg_queue": {"value": q}})): (
            "buffer_only",
            {"guaranteed_cells": cells, "tail_drop_enable": True},
        )
        for q in (count, count + 1, *range(count + 4, 2 * count))
    }


def test_shaping_keeps_what_else_is_set_and_may_leave_the_buffer(switch: BfrtSwitch, device: Device) -> None:
    tm, port = f"{device.family}.tm", frozen({"dev_port": {"value": 132}})
    device.entries[f"{tm}.port.sched_cfg"][port] = (None, {"scheduling_speed": "BF_SPEED_10G"})
    switch.shape(132, 9400.0005, frame_bytes=9014)
    assert device.entries[f"{tm}.port.sched_cfg"][port][1] == {
        "scheduling_speed": "BF_SPEED_10G",
        "max_rate_enable": True,
    }
    shaping = device.entries[f"{tm}.port.sched_shaping"][port][1]
    assert shaping["max_rate"] == 9_400_000 and shaping["max_burst_size"] == 18_028
    assert not device.entries[f"{tm}.queue.buffer"]
    switch.shape(132, 40_000)
    assert device.entries[f"{tm}.port.sched_shaping"][port][1]["max_burst_size"] == 50_000
    device.log.clear()
    for rate in (0, -1, float("inf"), float("nan")):
        with pytest.raises(SwitchError, match="the rate must be positive"):
            switch.shape(132, rate)
    for buffer_packets in (0, -1):
        with pytest.raises(SwitchError, match="port 132: the buffer must have room for at least 1 packet"):
            switch.shape(132, 10, buffer_packets=buffer_packets)
    assert not device.log


def test_weights_of_queues_are_set_in_the_port_s_pipe(switch: BfrtSwitch, device: Device) -> None:
    switch.weight(132, 3, 100)
    switch.weight(1, 2, 1023)
    count = QUEUES[device.family]
    key = {q: frozen({"pg_id": {"value": 3}, "pg_queue": {"value": q}}) for q in (3, count + 1)}
    assert device.entries[f"{device.family}.tm.queue.sched_cfg"] == {
        (1, key[3]): (None, {"dwrr_weight": 100}),
        (0, key[count + 1]): (None, {"dwrr_weight": 1023}),
    }
    for port, queue, weight, says in (
        (1, count, 5, f"port 1: has {count} queues; {count} is out of range"),
        (1, 0, 1024, "must be 0 to 1023"),
        (77, 0, 1, "port 77: .*Get failed"),
    ):
        with pytest.raises(SwitchError, match=says):
            switch.weight(port, queue, weight)


def test_a_port_has_a_share_of_its_group_s_queues(switch: BfrtSwitch, device: Device) -> None:
    """Its table lists more queue numbers than that, which stand for the same queues."""
    assert [switch.queue_count(port) for port in (0, 1, 132)] == [QUEUES[device.family]] * 3
    with pytest.raises(SwitchError, match=r"port 77: .*Get failed"):
        switch.queue_count(77)


def test_mirror_sessions_are_made_and_changed(switch: BfrtSwitch, device: Device) -> None:
    session = frozen({"$sid": {"value": 5}})
    for port, longest, length in ((68, None, 0), (196, 64, 64)):
        switch.mirror_session(5, port, longest)
        assert device.entries["$mirror.cfg"] == {
            session: (
                "$normal",
                {
                    "$direction": "EGRESS",
                    "$ucast_egress_port": port,
                    "$ucast_egress_port_valid": True,
                    "$session_enable": True,
                    "$max_pkt_len": length,
                },
            )
        }


# ---- connections


def test_nobody_there(server: Server) -> None:
    server.stop()
    with pytest.raises(
        SwitchGoneError, match=rf"127.0.0.1:{server.port}: the Barefoot Runtime does not answer \(Conn"
    ):
        BfrtSwitch("127.0.0.1", server.port, program="codel")


def test_another_program_and_another_client(server: Server, switch: BfrtSwitch) -> None:
    with pytest.raises(SwitchError, match=r"program codel: .*already owns this P4") as error:
        BfrtSwitch("127.0.0.1", server.port, program="codel")
    assert not isinstance(error.value, SwitchGoneError)
    switch.close()
    with pytest.raises(SwitchError, match="program pi2: Failed to find"):
        BfrtSwitch("127.0.0.1", server.port, program="pi2")
    BfrtSwitch("127.0.0.1", server.port, program="codel").close()
    assert server.device.owner is None and not server.device.clients


def test_a_closed_connection_says_so(switch: BfrtSwitch) -> None:
    switch.close()
    switch.close()
    with pytest.raises(SwitchGoneError, match="not connected"):
        switch.clear_table("wire")


CALLS = {
    "add": lambda s: s.add_entry("wire", {"ingress_port": 1}, "send", {"port": 1}),
    "add_priority": lambda s: s.add_entry("rules", {"dst_addr": 1, "length": 5}, "NoAction"),
    "delete": lambda s: s.delete_entry("wire", {"ingress_port": 1}),
    "clear": lambda s: s.clear_table("wire"),
    "default": lambda s: s.set_default("wire", "NoAction"),
    "read": lambda s: s.read_register("marks", 0, 1),
    "read_all": lambda s: s.read_register("marks"),
    "write": lambda s: s.write_register("marks", 1, 1),
    "shape": lambda s: s.shape(1, 10),
    "weight": lambda s: s.weight(1, 1, 10),
    "mirror": lambda s: s.mirror_session(1, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("server", ["tf1"], indirect=True)
@pytest.mark.parametrize(
    ("how", "call"),
    [(how, call) for how in ("killed", "restarted") for call in CALLS]
    + [("hanging", call) for call in ("add", "read_all", "mirror")],
)
def test_a_switch_that_goes_away_and_comes_back(call: str, how: str, server: Server) -> None:
    device = server.device
    timeout_s = 0.5 if how == "hanging" else 30.0
    with BfrtSwitch("127.0.0.1", server.port, program="codel", timeout_s=timeout_s) as switch:
        switch.add_entry("rules", {"dst_addr": 1, "length": 6}, "NoAction", priority=5)
        if how == "hanging":
            device.hanging = True
        else:
            server.stop()
        if how == "restarted":
            device.power_on()
            server.start()
        with pytest.raises(SwitchGoneError) as error:
            CALLS[call](switch)
        assert f"127.0.0.1:{server.port}: " in str(error.value) and "\n" not in str(error.value)
        if how == "killed":
            with pytest.raises(SwitchGoneError):
                switch.reconnect(timeout_s=0)
            server.start()
        device.hanging = False
        switch.timeout_s = 30.0
        switch.reconnect(timeout_s=10)
        if call == "delete":
            switch.add_entry("wire", {"ingress_port": 1}, "NoAction")
        CALLS[call](switch)
        # what was there is not remembered from before
        switch.add_entry("rules", {"dst_addr": 1, "length": 6}, "NoAction", priority=6)
        rules = device.entries["pipe.SwitchIngress.rules"]
        assert rule(1, 0xFFFFFFFF, 6, 6, 6) in rules and rule(1, 0xFFFFFFFF, 6, 6, 5) not in rules


def test_waiting_for_digests_of_a_dead_switch_ends(server: Server, switch: BfrtSwitch) -> None:
    server.stop()
    with pytest.raises(SwitchGoneError):
        list(switch.digests("heavy", timeout_s=0.2))


@pytest.mark.slow
def test_reconnecting_waits_for_the_server(server: Server, switch: BfrtSwitch) -> None:
    server.stop()
    later = threading.Timer(0.5, server.start)
    later.start()
    switch.reconnect(timeout_s=30)
    later.join()
    switch.add_entry("wire", {"ingress_port": 1}, "NoAction")


@pytest.mark.slow
def test_a_server_that_has_not_noticed_is_waited_for(server: Server, switch: BfrtSwitch) -> None:
    device = server.device
    switch.close()
    device.owner = 77  # the connection of before: cut, but not for the server
    with pytest.raises(SwitchGoneError, match="already owns"):
        switch.reconnect(timeout_s=0.3)
    later = threading.Timer(0.3, lambda: setattr(device, "owner", None))
    later.start()
    switch.reconnect(timeout_s=30)
    later.join()


@pytest.mark.slow
def test_a_control_plane_outlives_the_switch(server: Server) -> None:
    device, seen = server.device, []

    def set_up(switch: object) -> None:
        switch.add_entry("wire", {"ingress_port": 1}, "send", {"port": 2})  # type: ignore[attr-defined]

    def step(switch: object) -> None:
        seen.append(switch.read_register("marks", 0, 1)[0])  # type: ignore[attr-defined]
        if len(seen) == 3:
            server.stop()
            device.power_on()
            server.start()
        if len(seen) == 6:
            raise KeyboardInterrupt

    with connect(SwitchArgs("codel", bfrt=f"127.0.0.1:{server.port}")) as switch:
        main_loop(switch, step, 0.01, set_up=set_up)
    assert len(seen) == 6 and wire(1) in device.entries["pipe.SwitchIngress.wire"]


# ---- the SDE's client


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


CONNECT = """
from hardware.common.switch import SwitchError
from hardware.common import bfrt
try:
    {}
except SwitchError as error:
    print(error)
"""


def test_without_the_client_one_line_says_what_to_do(tmp_path: Path) -> None:
    code = CONNECT.format("bfrt.BfrtSwitch(program='codel')")
    message = (
        "the SDE's client for the Barefoot Runtime (bfrt_grpc) was not found: set SDE_INSTALL or PYTHONPATH\n"
    )
    assert python(code, SDE_INSTALL="") == message
    assert python(code, SDE_INSTALL=str(tmp_path)) == message


@pytest.mark.parametrize("place", ["tofino", "."])
def test_the_client_is_found_in_the_sde(place: str, tmp_path: Path) -> None:
    package = tmp_path / "lib/python3.8/site-packages" / place / "bfrt_grpc"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "client.py").write_text("here = True\n")
    code = CONNECT.format("print(bfrt._import_client().here)")
    assert python(code, SDE_INSTALL=str(tmp_path)) == "True\n"
    (package / "client.py").write_text("import no_such_grpc\n")
    message = "the SDE's client for the Barefoot Runtime cannot be imported: No module named 'no_such_grpc'\n"
    assert python(code, SDE_INSTALL=str(tmp_path)) == message
