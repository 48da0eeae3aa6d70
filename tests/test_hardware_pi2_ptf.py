"""The PTF test of PI2 that an owner of a Tofino runs: it passes on a switch that is right, and on no other.

Its switch here is a fake Barefoot Runtime with the integer model's rules behind it, or with the chip's model; its PTF
is a few functions.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import unittest
from collections import deque
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fake_bfrt
import pytest
from fake_bfrt import Device, frozen, register, table
from model_device import ModelDevice
from switch_bench import model_device

from hardware.common.tofino_model import HARNESSES
from hardware.programs.pi2.constants import CONSTANTS, PORTS

PATH = Path(__file__).parents[1] / "hardware" / "programs" / "pi2" / "ptf" / "test.py"
ONE = 1 << 16
BEFORE, BEHIND, CPU = 8, 9, 2
PORT_KEY = ("port", "Exact", 9)
SIGNALS = {"marked": 32, "dropped": 32}
TABLES = [
    table(
        "pipe.Pi2Ingress.wire",
        1,
        keys=[PORT_KEY],
        actions={"Pi2Ingress.send": {"port": 9}, "Pi2Ingress.drop": {}},
    ),
    table(
        "pipe.Pi2Egress.pi2.probabilities",
        2,
        keys=[PORT_KEY],
        actions={"Pi2Egress.pi2.set_probabilities": {"root": 32, "coupled": 32}},
    ),
    register("pipe.Pi2Egress.pi2.last_delay_ns", 3, {"f1": 32}, PORTS),
    register("pipe.Pi2Egress.signals", 4, SIGNALS, PORTS),
]


class DataPlane:
    """The program in a few lines, on a device's tables; `fault` names what it does wrong."""

    class PollSuccess(SimpleNamespace): ...

    class PollFailure: ...

    def __init__(self, device: Device, fault: str = "") -> None:
        self.device, self.fault, self.number = device, fault, 0
        self.waiting: deque[bytes] = deque()

    def flush(self) -> None:
        self.waiting.clear()

    def entry(self, name: str, port: int, default: dict[str, int] | None = None) -> dict[str, int] | None:
        _, data = self.device.entries[f"pipe.{name}"].get(frozen({"port": {"value": port}}), (None, default))
        return data

    def add(self, name: str, field: str, count: int = 1) -> None:
        cell = self.device.hw[f"pipe.{name}"][BEHIND]
        cell[f"{name}.{field}"] = [cell[f"{name}.{field}"][0] + count, *cell[f"{name}.{field}"][1:]]

    def send(self, port: int, packet: bytes) -> None:
        wire = self.entry("Pi2Ingress.wire", port)
        if self.fault == "no wire is needed":
            wire = wire or {"port": BEHIND}
        if wire is None:
            return
        if self.fault != "the delay is not kept":
            self.device.hw["pipe.Pi2Egress.pi2.last_delay_ns"][wire["port"]] = {
                "Pi2Egress.pi2.last_delay_ns.f1": [4321, 0]
            }
        given = self.entry("Pi2Egress.pi2.probabilities", wire["port"], {"root": 0, "coupled": 0})
        assert given is not None
        root, coupled = given["root"], given["coupled"]
        if self.fault == "p' and k p' are swapped":
            root, coupled = coupled, root
        shift = 0 if packet[12] == 8 else 4  # of the ECN field, in the second byte of IPv4 and of IPv6
        ecn = packet[15] >> shift & 3
        self.number += 1
        first, second = self.number * 40503 % ONE, self.number * 30011 % ONE  # spread evenly
        larger = first if self.fault == "p' is not squared" else max(first, second)
        scalable = ecn in (1, 3) or (self.fault == "any ECT is scalable" and ecn == 2)
        if not (first < coupled if scalable else larger < root):
            self.waiting.append(packet)
            return
        if ecn == 0 and self.fault != "Not-ECT is marked":
            self.add("Pi2Egress.signals", "dropped", 2 if self.fault == "drops count twice" else 1)
            return
        self.add("Pi2Egress.signals", "marked", 0 if self.fault == "marks do not count" else 1)
        marked = bytearray(packet)
        marked[15] |= 3 << shift
        if packet[12] == 8 and self.fault != "the checksum stays":
            marked[24:26] = bytes(2)
            total = sum(int.from_bytes(marked[i : i + 2], "big") for i in range(14, 34, 2))
            while total >> 16:
                total = (total & 0xFFFF) + (total >> 16)
            marked[24:26] = (~total & 0xFFFF).to_bytes(2, "big")
        self.waiting.append(bytes(marked))


class ModelPlane(DataPlane):
    """The program itself, in the chip's model."""

    device: ModelDevice

    def send(self, port: int, packet: bytes) -> None:
        self.device.flush()
        self.waiting += [frame for at, frame in self.device.model.packets([(port, packet)]) if at == BEHIND]


def modules(port: int, plane: DataPlane, target: str) -> dict[str, ModuleType]:
    """What PTF and the SDE bring, as far as the test uses it."""

    class BfRuntimeTest(unittest.TestCase):
        def setUp(self, client_id: int = 0, p4_name: str = "") -> None:
            client = sys.modules["bfrt_grpc.client"]
            self.dataplane = plane
            plane.flush()
            self.interface = client.ClientInterface(f"127.0.0.1:{port}", client_id=client_id, device_id=0)
            self.interface.bind_pipeline_config(p4_name)

        def tearDown(self) -> None:
            self.interface.tear_down_stream()

    def dp_poll(test: Any, device_number: int, port_number: int, timeout: float) -> Any:
        assert (device_number, port_number) == (0, BEHIND) and timeout > 0
        if not plane.waiting:
            return plane.PollFailure()
        return plane.PollSuccess(packet=plane.waiting.popleft() + bytes(4))  # as if with an FCS

    interfaces = [(0, BEFORE, "veth1"), (0, BEHIND, "veth3"), (0, CPU, "veth251")]
    testutils = ModuleType("ptf.testutils")
    testutils.__dict__.update(
        send_packet=lambda test, at, packet: plane.send(at, packet),
        dp_poll=dp_poll,
        test_param_get={"target": target}.get,
    )
    ptf = ModuleType("ptf")
    ptf.__dict__.update(config={"interfaces": interfaces}, testutils=testutils)
    base = ModuleType("bfruntime_client_base_tests")
    base.__dict__["BfRuntimeTest"] = BfRuntimeTest
    return {"ptf": ptf, "ptf.testutils": testutils, "bfruntime_client_base_tests": base}


def failures(monkeypatch: pytest.MonkeyPatch, plane: DataPlane, target: str = "hw") -> list[str]:
    """The names of the tests that fail on a switch."""
    with fake_bfrt.serving(plane.device) as server:
        for name, module in modules(server.port, plane, target).items():
            monkeypatch.setitem(sys.modules, name, module)
        spec = importlib.util.spec_from_file_location("pi2_ptf_test", PATH)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        tests = [x for x in vars(module).values() if isinstance(x, type) and hasattr(x, "runTest")]
        assert len(tests) == 5  # as PTF finds them
        failed = []
        for test in tests:
            result = test().run()
            assert not result.errors, result.errors
            failed += [test.__name__] * len(result.failures)
    return failed


@pytest.mark.parametrize("target", ["hw", "asic-model"])
def test_a_right_switch_passes(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    assert failures(monkeypatch, DataPlane(Device("pi2", TABLES)), target) == []


@pytest.mark.tofino_model
@pytest.mark.parametrize("chip", HARNESSES)
def test_the_program_passes_in_the_chips_model(monkeypatch: pytest.MonkeyPatch, chip: str) -> None:
    with model_device("pi2", chip) as device:
        assert failures(monkeypatch, ModelPlane(device), "asic-model") == []


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("no wire is needed", {"WireTest"}),
        ("the delay is not kept", {"DelayTest"}),
        ("p' and k p' are swapped", {"KindTest", "ShareTest"}),
        ("p' is not squared", {"ShareTest"}),
        ("any ECT is scalable", {"KindTest", "ShareTest"}),
        ("Not-ECT is marked", {"SignalTest", "ShareTest"}),
        ("drops count twice", {"SignalTest", "KindTest", "ShareTest"}),
        ("marks do not count", {"SignalTest", "KindTest", "ShareTest"}),
        ("the checksum stays", {"SignalTest", "ShareTest"}),
    ],
)
def test_a_wrong_switch_fails(monkeypatch: pytest.MonkeyPatch, fault: str, found: set[str]) -> None:
    assert set(failures(monkeypatch, DataPlane(Device("pi2", TABLES), fault))) == found


def test_it_knows_the_programs_constants_and_needs_only_what_the_sde_brings() -> None:
    tree = ast.parse(PATH.read_text(encoding="utf-8"))
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported == {
        "math",
        "struct",
        "bfrt_grpc.client",
        "ptf.testutils",
        "ptf",
        "bfruntime_client_base_tests",
    }
    assert "ONE = 1 << 16" in PATH.read_text(encoding="utf-8")
    assert {c.name: c.value for c in CONSTANTS}["RANDOM_BITS"] == 16
