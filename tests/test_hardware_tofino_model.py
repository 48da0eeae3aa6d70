"""The driver of the vendor's chip model, with a stand-in for the model's harness; and the programs as they are.

What the model decides with a test's times, queues and random bits is in ``test_hardware_PROGRAM.py``, marked
``tofino_model``.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from naive_writer import checksum
from switch_bench import ModelBench, model_running

from hardware.common.switch import Lpm, Range, Switch, SwitchError, SwitchGoneError, Ternary
from hardware.common.tofino_model import FOLDER_VARIABLE, HARNESSES, TofinoModel
from hardware.common.wires import set_wires
from hardware.programs import PROGRAMS

FAKE = Path(__file__).with_name("fake_harness.py")


def field(name: str, bits: int, lowest: int = 0) -> dict[str, object]:
    return {"name": name, "global_name": f"hdr.{name}", "bit_width": bits, "start_bit": lowest}


def action(name: str, handle: int, *parameters: str) -> dict[str, object]:
    return {"name": name, "handle": handle, "p4_parameters": [{"name": p} for p in parameters]}


def memory(*units: int, pages: tuple[int, ...] = (0,)) -> dict[str, object]:
    return {"memory_units_and_vpns": [{"memory_units": list(units), "vpns": list(pages)}]}


def piece(name: str, byte: int, bit: int, bits: int, lowest: int = 0) -> dict[str, object]:
    return {
        "field_name": name,
        "start_byte": byte,
        "start_bit": bit,
        "field_width": bits,
        "phv_offset": lowest,
    }


def match_table(name: str, kind: str, fields: list[dict[str, object]], **stage: object) -> dict[str, object]:
    return {
        "name": name,
        "table_type": "match",
        "match_key_fields": fields,
        "actions": [action("In.send", 7, "port"), action("In.drop", 8)],
        "match_attributes": {"stage_tables": [{"stage_number": 2, "stage_table_type": kind} | stage]},
    }


CONTEXT = {
    "tables": [
        match_table(
            "In.wire",
            "hash_match",
            [field("port", 9)],
            ways=[
                {"memory_resource_allocation": memory(40, pages=(0,))},
                {"memory_resource_allocation": memory(41, 42, pages=(1,))},
            ],
        ),
        match_table("In.routes", "ternary_match", [field("to", 8)], memory_resource_allocation=memory(0)),
        {
            "name": "Out.signals",
            "table_type": "stateful",
            "size": 5,
            "stage_tables": [
                {
                    "stage_number": 3,
                    "pack_format": [{"entries_per_table_word": 2}],
                    "memory_resource_allocation": memory(17),
                }
            ],
        },
    ],
    "learn_quanta": [
        {
            "name": "In.flow",
            "lq_cfg_type": 1,
            "fields": [
                piece("meta.clock_ns", 1, 7, 16, lowest=32),
                piece("meta.clock_ns", 3, 7, 32),
                piece("meta.events", 7, 4, 3),
            ],
        }
    ],
}  # fmt: skip
INTERFACE = {
    "tables": [
        {
            "name": "pipe.Out.signals",
            "table_type": "Register",
            "data": [
                {"singleton": {"name": f"Out.signals.{name}", "type": {"width": 32}}}
                for name in ("marked", "dropped")
            ],
        },
        {"name": "pipe.In.wire", "table_type": "MatchAction_Direct", "data": []},
    ],
    "learn_filters": [{"name": "pipe.In.flow", "id": 1, "fields": [{"name": "now_ns"}, {"name": "events"}]}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "context.json").write_text(json.dumps(CONTEXT))
    (tmp_path / "bfrt.json").write_text(json.dumps(INTERFACE))
    return tmp_path


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    path = tmp_path / "harness"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def model(folder: Path, harness: Path) -> Iterator[TofinoModel]:
    with TofinoModel(folder, "tofino", harness=harness) as made:
        yield made


def commands(folder: Path) -> list[str]:
    """What the harness was asked for since the last call."""
    log = folder / "pipe" / "commands.log"
    lines = log.read_text().splitlines()
    log.write_text("")
    return [line for line in lines if not line.startswith("end_of_question")]


def test_packets_come_back_whole(model: TofinoModel, folder: Path) -> None:
    frames = [bytes(range(n)) for n in (60, 64, 8, 9, 200)]
    left = model.packets([(0, frame) for frame in frames])
    assert left == [(1, frame) for frame in frames]
    commands(folder)
    model.packets([(0, frames[0]), (0, frames[1]), (3, frames[2])])
    # the third comes in by another port, so the others leave first
    assert [line.split()[0] for line in commands(folder)] == ["packet", "packet", "wait", "packet", "wait"]


def test_recirculated_packets_are_not_among_those_that_left(model: TofinoModel) -> None:
    assert model.packets([(67, b"x" * 60), (1, b"y" * 60)]) == [(2, b"y" * 60)]


def test_digests_in_the_log(folder: Path, harness: Path) -> None:
    with TofinoModel(folder, "tofino", harness=harness, digests=True) as model:
        frames = [bytes([n, 2, 3, 4, 5, 6, 0b111_101_10]) + b"behind" for n in range(20)]
        assert [frame for _, frame in model.packets([(0, frame) for frame in frames])] == frames
        digests = list(model.digests("flow"))
        assert digests == [{"now_ns": n << 40 | 0x0203040506, "events": 0b101} for n in range(20)]
        assert not list(model.digests("flow"))
        with pytest.raises(SwitchError, match=r"digest others: the program has In\.flow"):
            list(model.digests("others"))


def test_entries_are_written_before_the_next_packet(model: TofinoModel, folder: Path) -> None:
    model.add_entry("wire", {"port": 5}, "send", {"port": 6})
    model.add_entry("In.wire", {"port": 6}, "drop")
    commands(folder)
    model.packets([(0, bytes(60))])
    added = [line for line in commands(folder) if line.startswith("add")]
    assert added == [
        "add In.wire key_of_port:0x005 In.send(port:6) = CCT_PLACE",
        "add In.wire key_of_port:0x006 In.drop() = CCT_PLACE",
    ]
    model.packets([(0, bytes(60))])
    assert not [line for line in commands(folder) if line.startswith("add")]


def test_what_changes_in_a_hash_table_is_written_anew(model: TofinoModel, folder: Path) -> None:
    """The rows of all its entries are emptied first, in all memories of the way."""
    for port in (5, 6):
        model.add_entry("wire", {"port": port}, "send", {"port": 1})
    model.packets([])
    commands(folder)
    model.add_entry("wire", {"port": 5}, "send", {"port": 2})
    model.packets([])
    did = [line for line in commands(folder) if line.split()[0] in ("write_raw_sram", "add")]
    emptied = [f"write_raw_sram 2:{unit}:{row} 0" for row in (1, 2) for unit in (41, 42)]
    assert did[:4] == emptied and [line.split()[2] for line in did[4:]] == [
        "key_of_port:0x005",
        "key_of_port:0x006",
    ]
    model.delete_entry("wire", {"port": 5})
    with pytest.raises(SwitchError, match="no such entry"):
        model.delete_entry("wire", {"port": 5})
    model.packets([])
    assert [line.split()[2] for line in commands(folder) if line.startswith("add")] == ["key_of_port:0x006"]


def test_the_highest_row_of_a_ternary_table_is_the_best_match(model: TofinoModel, folder: Path) -> None:
    model.add_entry("routes", {"to": Lpm(0xA0, 3)}, "drop", priority=1)
    model.add_entry("routes", {"to": Ternary(0x81, 0x81)}, "drop", priority=0)
    model.add_entry("routes", {"to": Lpm(0xA4, 6)}, "drop", priority=1)
    model.packets([])
    added = [line.split()[2:4] for line in commands(folder) if line.startswith("add")]
    assert added == [["511", "to:0b1******1"], ["510", "to:0b101001**"], ["509", "to:0b101*****"]]


def test_registers(model: TofinoModel, folder: Path) -> None:
    model.write_register("signals", {"marked": 7, "dropped": 9})
    assert model.read_register("signals").tolist() == [(7, 9)] * 5
    commands(folder)
    model.write_register("signals", {"marked": 1, "dropped": 2**32 - 1}, 2)
    cells = model.read_register("signals")
    assert cells.dtype.names == ("marked", "dropped")
    assert cells.tolist() == [(7, 9), (7, 9), (1, 2**32 - 1), (7, 9), (7, 9)]
    # two cells share a row, and only that row was written
    assert [line for line in commands(folder) if line.startswith("write")] == [
        f"write_raw_sram 3:17:1 {9 << 96 | 7 << 64 | 0xFFFFFFFF << 32 | 1:032x}"
    ]
    np.testing.assert_array_equal(model.read_register("Out.signals", 2, 1)["marked"], [1])


def test_a_mirror_session_starts_the_model_again(model: TofinoModel, folder: Path) -> None:
    model.add_entry("wire", {"port": 5}, "send", {"port": 6})
    model.set_default("routes", "drop")
    model.packets([])
    commands(folder)
    model.mirror_session(1, 68, 60)
    model.packets([])
    did = [line.split()[0] for line in commands(folder)]
    assert did == ["wire", "load", "load", "load", "setdefault", "add", "place_1025", "wait"]
    model.mirror_session(1, 68, 60)  # it has this one
    assert not commands(folder)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.add_entry("wires", {"port": 1}, "drop"), "wires: no such table; the program has In.wire"),
        (lambda m: m.add_entry("wire", {"prot": 1}, "drop"), "In.wire: has the keys port"),
        (lambda m: m.add_entry("wire", {"port": 512}, "drop"), "In.wire: port: 512 does not fit into 9 bits"),
        (lambda m: m.add_entry("wire", {"port": Ternary(1, 1)}, "drop"), "In.wire: port: must be exact"),
        (lambda m: m.add_entry("wire", {"port": Range(1, 2)}, "drop"), "takes no ranges"),
        (lambda m: m.add_entry("wire", {"port": 1}, "sent"), "has the actions In.send, In.drop, not sent"),
        (lambda m: m.add_entry("wire", {"port": 1}, "send"), "send: has the parameters port"),
        (lambda m: m.read_register("signal"), "signal: no such register; the program has Out.signals"),
        (lambda m: m.read_register("signals", 3, 3), "signals: has 5 cells; 3 to 6 is out of range"),
        (lambda m: m.write_register("signals", 5), "has the fields marked, dropped"),
        (lambda m: m.write_register("signals", {"marked": 2**32, "dropped": 0}), "4294967296 does not fit"),
        (lambda m: m.write_register("signals", {"marked": 0, "dropped": 0}, 5), "5 is out of range"),
        (lambda m: m.mirror_session(1024, 1), "must be 0 to 1023"),
        (lambda m: m.shape(1, 10.0), "no rates and no buffers"),
    ],
)  # fmt: skip
def test_refusals(model: TofinoModel, call, message: str) -> None:
    with pytest.raises(SwitchError, match=message):
        call(model)
        model.packets([])


def test_what_the_harness_refuses(model: TofinoModel) -> None:
    model._process.ask(["add In.wire port:1 sent()"])
    with pytest.raises(SwitchError, match="harness: no action refused in table t"):
        model._process.ask(["add In.wire port:1 refused()"])


def test_a_harness_that_ends(model: TofinoModel) -> None:
    with pytest.raises(SwitchGoneError, match="harness: ended"):
        model._process.ask(["die"])
    model.reconnect()
    assert model.packets([(0, bytes(60))]) == [(1, bytes(60))]


def test_without_a_harness(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(SwitchError, match=f"{HARNESSES['tofino2']} is not on PATH"):
        TofinoModel(folder, "tofino2")
    (folder / "bfrt.json").unlink()
    with pytest.raises(SwitchError, match=r"bfrt\.json: No such file"):
        TofinoModel(folder, "tofino2", harness=FAKE)


# ---- the programs as they are, in the model itself -------------------------------------------------------------------


def frames() -> list[bytes]:
    """One of each kind that a parser tells apart, and of what it does not know."""
    tcp = struct.pack("!HHIIBBHHH", 5001, 80, 7, 9, 5 << 4, 16, 100, 0, 0) + bytes(40)
    udp = struct.pack("!HHHH", 53, 54, 48, 0) + bytes(40)

    def ipv4(payload: bytes, protocol: int, *, words: int = 5, fragment: int = 0) -> bytes:
        size = 4 * words + len(payload)
        head = struct.pack("!BBHHHBBH", 0x40 | words, 0, size, 1, fragment, 64, protocol, 0)
        head += bytes([10, 0, 0, 1, 10, 0, 1, 1]) + bytes(4 * (words - 5))
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload

    def ipv6(payload: bytes, following: int) -> bytes:
        return struct.pack("!IHBB", 6 << 28, len(payload), following, 64) + bytes(range(32)) + payload

    ethernet = bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2])
    return [
        ethernet + kind + packet
        for kind, packet in (
            (b"\x08\x00", ipv4(tcp, 6)),
            (b"\x08\x00", ipv4(udp, 17)),
            (b"\x08\x00", ipv4(tcp, 6, words=7)),
            (b"\x08\x00", ipv4(tcp, 6, fragment=100)),
            (b"\x08\x00", ipv4(bytes(40), 1)),
            (b"\x86\xdd", ipv6(tcp, 6)),
            (b"\x86\xdd", ipv6(udp, 17)),
            (b"\x86\xdd", ipv6(bytes(48), 58)),
            (b"\x81\x00\x00\x05\x08\x00", ipv4(tcp, 6)),
            (b"\x81\x00\x00\x05\x86\xdd", ipv6(tcp, 6)),
            (b"\x08\x06", bytes(46)),
        )
    ]


def set_up(program: str, switch: Switch) -> None:
    """As the program's control plane does it, with packets from port 0 to port 1 and back."""
    wires = {0: 1, 1: 0}
    module = importlib.import_module(f"hardware.programs.{program}.control")
    if program == "rtt_monitor":
        module.Monitor([0], [1], rate_mbps=100.0, wires=wires).set_up(switch)
    elif program == "abc":
        module.set_up(switch, module.Domain(wires))
    elif program == "cbiq":
        set_wires(switch, wires)
    else:
        module.set_up(switch, wires)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((program, target), marks=pytest.mark.tofino_model, id=f"{program}-{target}")
        for program in PROGRAMS
        for target in HARNESSES
    ],
)
def bench(request: pytest.FixtureRequest) -> Iterator[ModelBench]:
    program, target = request.param
    with model_running(program, target, test_input=False) as made:
        set_up(program, made.switch)
        yield made


@pytest.mark.slow
def test_a_program_forwards_what_it_does_not_signal(bench: ModelBench) -> None:
    """Every kind of packet leaves as it came, at any time; from a port without a wire, none does.

    The clock runs meanwhile. What the compiler leaves in a container is seen only at some times.
    """
    sent = frames() * 40
    assert bench.packets([(0, frame) for frame in sent]) == [(1, frame) for frame in sent]
    assert bench.packets([(1, frame) for frame in sent]) == [(0, frame) for frame in sent]
    assert bench.packets([(2, frame) for frame in sent]) == []
