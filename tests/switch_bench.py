"""A program in a switch and packets through it, one answer for each: the tests that hold P4 against Python models.

The switch is BMv2, or the vendor's model of a Tofino. Packets carry time, queue and random bits in a header before
them (``hardware/common/test_input.p4``).
"""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import struct
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fake_bfrt
import pytest
from model_device import ModelDevice

from cctoolkit.errors import TestbedUnavailableError
from hardware import build
from hardware.common.bfrt import BfrtSwitch
from hardware.common.bmv2 import Bmv2Switch, _in_namespace
from hardware.common.switch import Switch
from hardware.common.tofino_model import HARNESSES, TofinoModel, find_harness
from hardware.launch import simple_switch

PASS, MARK, DROP = 0, 1, 2
_HEADER = struct.Struct("!6s6sHQIIIHIQB")
_ETHERTYPE = 0x9000
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class TestInput:
    """What a program is told instead of what the switch knows; the fields of ``test_h``."""

    __test__ = False  # not a test, whatever its name

    now_ns: int
    queue_delay_ns: int = 0
    queue_depth: int = 0
    random: int = 0
    input: int = 0

    def header(self, number: int) -> bytes:
        return _HEADER.pack(
            b"\2" + bytes(5), number.to_bytes(6, "big"), _ETHERTYPE, self.now_ns, self.queue_delay_ns,
            self.queue_depth, self.random, 0xFFFF, 0, 0, self.input,
        )  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What came out: the port, the program's decision and values, and the packet behind the test header."""

    port: int
    decision: int
    value: int
    value2: int
    frame: bytes


def _answer(port: int, data: bytes) -> tuple[int, Answer] | None:
    """A packet's number and answer; None if it has no test header."""
    if len(data) < _HEADER.size:
        return None
    _, number, ether_type, _, _, _, _, decision, value, value2, _ = _HEADER.unpack_from(data)
    if ether_type != _ETHERTYPE:
        return None
    return int.from_bytes(number, "big"), Answer(port, decision, value, value2, data[_HEADER.size :])


def _wait_until(settled: Callable[[int], bool] | None, number: int) -> None:
    patience = time.monotonic() + _PATIENCE_S
    while settled is not None and not settled(number):
        assert time.monotonic() < patience, f"packet {number}: the switch does not settle"


class Bench(ABC):
    """A switch with its ports in the test's hands.

    Attributes
    ----------
    switch : Switch
    target : {"bmv2", "tofino", "tofino2"}
    """

    switch: Switch

    @property
    def target(self) -> str:
        return self.switch.target

    @abstractmethod
    def exchange(
        self,
        packets: Sequence[tuple[TestInput, bytes]],
        port: int | Sequence[int] = 0,
        in_flight: int = 64,
        settled: Callable[[int], bool] | None = None,
    ) -> list[Answer]:
        """Send packets in order, and wait for all answers.

        Parameters
        ----------
        packets : list of (TestInput, bytes)
            The frame follows the test header.
        port : int or list of int
            Where they go in; of each packet, or of all. Packets of two ports could overtake each other, so all
            others have left when one goes into another port than the last.
        in_flight : int
            So many are in the switch at a time. With 1 a packet has left before the next comes.
        settled : function, optional
            Of a packet's number: whether the switch has done what else the packet causes (notifications to itself).
            The next packet waits for it; `in_flight` must be 1.
        """


class ModelBench(Bench):
    """A model of a Tofino. Its control plane reaches it as it reaches a Tofino, by the Barefoot Runtime."""

    switch: BfrtSwitch

    def __init__(self, switch: BfrtSwitch, device: ModelDevice, *, digests: bool = False) -> None:
        self.switch, self._device, self._digests = switch, device, digests

    def packets(self, packets: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Send packets as they are, by port and frame; what leaves, port by port."""
        self._device.flush()
        left = self._device.model.packets(packets)
        if self._digests:
            self._device.send_digests()
        return left

    def exchange(
        self,
        packets: Sequence[tuple[TestInput, bytes]],
        port: int | Sequence[int] = 0,
        in_flight: int = 64,
        settled: Callable[[int], bool] | None = None,
    ) -> list[Answer]:
        ports = [port] * len(packets) if isinstance(port, int) else list(port)
        frames = [given.header(n) + frame for n, (given, frame) in enumerate(packets)]
        answers: list[Answer | None] = [None] * len(packets)
        step = in_flight if in_flight < 64 else max(len(packets), 1)
        for begin in range(0, len(packets), step):
            sent = slice(begin, begin + step)
            for left_by, data in self.packets(list(zip(ports[sent], frames[sent], strict=True))):
                if (answer := _answer(left_by, data)) is not None:
                    assert answers[answer[0]] is None, f"packet {answer[0]} came out twice"
                    answers[answer[0]] = answer[1]
            _wait_until(settled, begin)
        lost = [i for i, a in enumerate(answers) if a is None]
        assert not lost, f"no answer to {len(lost)} of {len(packets)} packets, the first is {lost[0]}"
        return [a for a in answers if a is not None]


@dataclass
class Bmv2Bench(Bench):
    """BMv2 in a network namespace."""

    switch: Bmv2Switch
    sockets: dict[int, socket.socket] = field(default_factory=dict)

    def exchange(
        self,
        packets: Sequence[tuple[TestInput, bytes]],
        port: int | Sequence[int] = 0,
        in_flight: int = 64,
        settled: Callable[[int], bool] | None = None,
    ) -> list[Answer]:
        ports = [port] * len(packets) if isinstance(port, int) else list(port)
        answers: list[Answer | None] = [None] * len(packets)
        poll = select.epoll()
        for sock in self.sockets.values():
            poll.register(sock.fileno(), select.EPOLLIN)
        by_file = {sock.fileno(): number for number, sock in self.sockets.items()}
        sent = done = 0
        last_answer = time.monotonic()
        while done < len(packets):
            while sent < len(packets) and sent - done < in_flight:
                if sent != done and ports[sent] != ports[sent - 1]:
                    break
                given, frame = packets[sent]
                self.sockets[ports[sent]].send(given.header(sent) + frame)
                sent += 1
            for file, _ in poll.poll(0.2):
                while (answer := self._received(by_file[file])) is not None:
                    index, what = answer
                    assert answers[index] is None, f"packet {index} came out twice: {answers[index]}, {what}"
                    answers[index] = what
                    done += 1
                    last_answer = time.monotonic()
                    _wait_until(settled, index)
            if time.monotonic() - last_answer > _PATIENCE_S:
                lost = [i for i, a in enumerate(answers[:sent]) if a is None]
                raise AssertionError(f"no answer to {len(lost)} of {sent} packets, the first is {lost[0]}")
        poll.close()
        return [a for a in answers if a is not None]

    def _received(self, port: int) -> tuple[int, Answer] | None:
        while True:
            try:
                data, origin = self.sockets[port].recvfrom(16384)
            except BlockingIOError:
                return None
            if origin[2] != socket.PACKET_OUTGOING and (answer := _answer(port, data)) is not None:
                return answer


def skip_without_bmv2() -> None:
    """Skip the test, with the reason, where it cannot run."""
    if shutil.which("p4c-bm2-ss") is None:
        pytest.skip("p4c-bm2-ss is not on PATH")
    if lack := simple_switch.missing():
        pytest.skip(lack)


#: The switches on which a program runs; for a fixture's `params`.
TARGETS = [
    pytest.param("bmv2", marks=pytest.mark.p4),
    *(pytest.param(chip, marks=pytest.mark.tofino_model) for chip in HARNESSES),
]


def running_on(
    target: str, program: str, *flags: str, ports: int = 2, queues: int = 1, digests: bool = False
) -> contextlib.AbstractContextManager[Bench]:
    """Compile a program with the test header, and start it on one of :data:`TARGETS`."""
    if target == "bmv2":
        return running(program, *flags, ports=ports, queues=queues)
    return model_running(program, target, *flags, digests=digests)


@contextlib.contextmanager
def model_device(program: str, target: str, *flags: str, digests: bool = False) -> Iterator[ModelDevice]:
    """Compile a program for a chip, and start the chip's model behind a Barefoot Runtime. Skips without the tools."""
    if find_harness(target) is None:
        pytest.skip(f"{HARNESSES[target]} is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        try:
            build.tofino(program, target, Path(folder), *flags)
        except TestbedUnavailableError as err:
            pytest.skip(str(err))
        with TofinoModel(folder, target, digests=digests) as model:
            yield ModelDevice(program, Path(folder), model)


@contextlib.contextmanager
def model_running(
    program: str, target: str, *flags: str, test_input: bool = True, digests: bool = False
) -> Iterator[ModelBench]:
    """Compile a program with the test header, and start the model of a chip with it and a client."""
    with (
        model_device(
            program, target, *(["-DTEST_INPUT"] if test_input else []), *flags, digests=digests
        ) as device,
        fake_bfrt.serving(device) as server,
        BfrtSwitch("127.0.0.1", server.port, program=program) as switch,
    ):
        yield ModelBench(switch, device, digests=digests)


@contextlib.contextmanager
def running(
    program: str | Path, *flags: str, ports: int = 2, queues: int = 1, test_input: bool = True
) -> Iterator[Bmv2Bench]:
    """Compile a program with the test header, start BMv2 with it, and connect its ports.

    Parameters
    ----------
    program : str or path
        A name, or a P4 source.
    flags : str
        More options for the compiler, ``-DNAME=value``.
    ports, queues : int
        Of the switch.
    test_input : bool
        Off: the program as it is, with the switch's own clock; :meth:`Bench.exchange` then has no answers.
    """
    skip_without_bmv2()
    with tempfile.TemporaryDirectory() as folder:
        json = build.bmv2(program, Path(folder), *(["-DTEST_INPUT"] if test_input else []), *flags)
        with simple_switch.running(json, ports=ports, queues=queues) as started:
            control = started.control
            for port in range(ports):
                # the queue's own limit, 64 packets by default, must not decide
                control.shape(port, 1e7, frame_bytes=100, buffer_packets=100_000)
            bench = Bmv2Bench(control)
            try:
                with _in_namespace(started.namespace):
                    for port in range(ports):
                        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
                        sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
                        sock.bind((f"h{port}", 0))
                        sock.setblocking(False)
                        bench.sockets[port] = sock
                yield bench
            finally:
                for sock in bench.sockets.values():
                    sock.close()
