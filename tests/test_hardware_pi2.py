"""PI2 on switches: its constants and its control plane; and both together with BMv2 against the integer model."""

from __future__ import annotations

import csv
import time

import fake_bfrt
import numpy as np
import pytest
from fake_bfrt import Device, register, table
from hardware_l4s import MS, UPDATE, WORD, Drawing, FakeSwitch, recorded, recorder, walk
from one_queue import Compiled, packet
from switch_bench import TARGETS, TestInput, running, running_on
from test_hardware_codel import check_frames, frame, frame_with_ce

from cctoolkit.aqm import DROP_LATE, MARK, PASS
from cctoolkit.aqm.pi2 import ONE, IntegerPi2, fixed_point
from cctoolkit.errors import ParameterError
from cctoolkit.scenario import Bottleneck, Flow, Scenario
from hardware.common.command import SwitchArgs, connect
from hardware.common.switch import SwitchGoneError
from hardware.programs.pi2 import constants as pi2, control as control_plane

DECISION = {PASS: 0, MARK: 1, DROP_LATE: 2}
REGISTERS = [("last_delay_ns", pi2.PORTS, ()), ("signals", pi2.PORTS, ("marked", "dropped"))]
MODEL = IntegerPi2(control_plane_ms=0)


# ---- the control plane, without a switch -----------------------------------------------------------------------------


def test_constants():
    values = {c.name: c.value for c in pi2.CONSTANTS}
    assert values == {"PORT_ENTRIES": 512, "RANDOM_BITS": 16} and ONE == 1 << 16


def test_set_up():
    switch = FakeSwitch(registers=REGISTERS)
    control_plane.set_up(switch, {3: 7, 7: 3, 4: 7}, rate_mbps=50, buffer_packets=400)
    assert switch.tables["wire"] == {
        (3,): ("send", {"port": 7}),
        (4,): ("send", {"port": 7}),
        (7,): ("send", {"port": 3}),
    }
    assert switch.shaped == {3: (50, 1514, 400), 7: (50, 1514, 400)}


def test_controller_is_the_models():
    """The same probabilities after each step, and in the table what the model's data plane has; 0 without packets."""
    switch, model = FakeSwitch(registers=REGISTERS), Compiled(MODEL)
    controller = control_plane.Controller([2, 5])
    before, written = None, 0
    for k, (delay_ns, _) in enumerate(walk(1, 400, 5, 40)):
        now = 10**9 + k * 15 * MS
        if k % 9:
            model.call("on_dequeue", 0, packet(enqueued_ns=now - delay_ns), now)
            switch.registers["last_delay_ns"][5] = delay_ns
        model.call("on_update", 0, packet(), now)
        controller.step(switch)
        assert controller.probability == {2: 0.0, 5: model.state("computed")}
        assert controller.delay_ns[5] == (delay_ns if k % 9 else 0)
        assert not switch.registers["last_delay_ns"].any()
        p = model.state("computed")
        data = {"root": fixed_point(p, 16), "coupled": fixed_point(2 * p, 16)}
        assert switch.tables["probabilities"][5,] == ("set_probabilities", data)
        entries = [data for table, keys, _, data in switch.log if keys == {"port": 5}]
        assert len(entries) == written + (data != before)  # nothing is written twice
        before, written = data, len(entries)
    assert len(switch.log) > 300 and switch.tables["probabilities"][2,][1] == {"root": 0, "coupled": 0}


def test_controller_writes_all_again_to_a_switch_that_was_away():
    switch = FakeSwitch(registers=REGISTERS)
    controller = control_plane.Controller([5])
    switch.registers["last_delay_ns"][5] = 80 * MS
    controller.step(switch)
    kept = switch.tables.pop("probabilities")
    controller.write(switch)
    assert "probabilities" not in switch.tables
    controller.write(switch, again=True)
    assert switch.tables["probabilities"] == kept and kept[5,][1]["root"] > 0


def test_port_states():
    switch = FakeSwitch(registers=REGISTERS)
    controller = control_plane.Controller([2, 5])
    switch.registers["last_delay_ns"][5] = 30 * MS
    switch.registers["signals"][5] = (3, 4)
    controller.step(switch)
    table = control_plane.port_states(switch, controller)
    assert table.iloc[1].to_dict() == pytest.approx(
        {"port": 5, "delay_ms": 30, "probability": 0.3125 * 0.01 + 3.125 * 0.03, "marked": 3, "dropped": 4}
    )
    assert not table.iloc[0, 1:].any()
    control_plane.clear(switch)
    assert not switch.registers["signals"]["marked"].any() and not switch.tables["probabilities"]


def test_delays_are_read_in_the_pipe_of_the_ports():
    """Ports 132 and 140 of a Tofino are in pipe 1, whose registers nobody has to ask for."""
    name = "pipe.Pi2Egress.pi2.last_delay_ns"
    port = ("port", "Exact", 9)
    tables = [
        table("pipe.Pi2Ingress.wire", 1, keys=[port], actions={"Pi2Ingress.send": {"port": 9}}),
        register(name, 2, {"f1": 32}, pi2.PORTS),
    ]
    device = Device("pi2", tables)
    controller = control_plane.Controller([132, 140])
    with (
        fake_bfrt.serving(device) as server,
        connect(SwitchArgs("pi2", bfrt=f"127.0.0.1:{server.port}")) as switch,
    ):
        control_plane.set_up(switch, {132: 140, 140: 132})
        (cell,) = device.hw[name][140].values()
        cell[1] = 60 * MS
        assert [controller.read_delay_ns(switch, p) for p in (132, 140, 140)] == [0, 60 * MS, 0]


@pytest.mark.slow
def test_the_loop_writes_each_step(tmp_path):
    """And goes on, with all set up again, after the switch was away."""
    switch = FakeSwitch(registers=REGISTERS)
    away = iter([False] * 10 + [True] + [False] * 1000)
    read = switch.read_register

    def read_register(name, first=0, count=None):
        if next(away):
            raise SwitchGoneError("gone")
        switch.registers["last_delay_ns"][1] = 40 * MS
        return read(name, first, count)

    switch.read_register = read_register
    out = tmp_path / "steps.csv"
    control_plane.control(["0:1"], update_ms=5, duration_s=2.0, output=out)(switch)
    rows = list(csv.DictReader(out.open()))
    assert len(rows) > 10 and {row["port"] for row in rows} == {"1"} and rows[-1]["delay_ns"] == str(40 * MS)
    p = [float(row["probability"]) for row in rows]
    assert p == sorted(p) and p[0] == pytest.approx(0.3125 * 0.02 + 3.125 * 0.04)
    assert [entry[0] for entry in switch.log].count("wire") == 2
    with pytest.raises(ParameterError, match="target_ms"):
        control_plane.control(["0:1"], target_ms=0)


# ---- BMv2 against the model ------------------------------------------------------------------------------------------


def scenario(aqm):
    return Scenario(
        bottleneck=Bottleneck(rate_mbps=40, buffer_packets=1000, aqm=aqm),
        flows=[
            *(Flow("cubic", rtt_ms=rtt, ecn="classic" if rtt > 10 else "off") for rtt in (5, 20, 60)),
            Flow("prague", rtt_ms=10, count=2),
            Flow("udp", rtt_ms=10, rate_mbps=30, start_s=1.5, stop_s=2.5),
        ],
        duration_s=4.0,
        seed=8,
    )


class Bench:
    """Packets are sent in batches from one update to the next."""

    def __init__(self, bench, ports):
        self.bench, self.controller = bench, control_plane.Controller(ports, MODEL)
        self.waiting, self.sent = [], 0
        control_plane.clear(bench.switch)

    def packet(self, given, port, ecn, verdict):
        self.waiting.append((given, frame(self.sent % 7, ecn, protocol=17), port, verdict))
        self.sent += 1

    def update(self, switch_steps=True):
        answers = self.bench.exchange(
            [row[:2] for row in self.waiting], port=[row[2] for row in self.waiting]
        )
        for (given, data, port, verdict), answer in zip(self.waiting, answers, strict=True):
            want = (
                DECISION[verdict],
                1 - port,
                given.queue_delay_ns,
                frame_with_ce(data) if verdict == MARK else data,
            )
            assert (answer.decision, answer.port, answer.value, answer.frame) == want, f"{given}: {answer}"
        self.waiting.clear()
        if switch_steps:
            self.controller.step(self.bench.switch)


@pytest.fixture(scope="module", params=TARGETS)
def bench(request):
    with running_on(request.param, "pi2") as bench:
        control_plane.set_up(bench.switch, {0: 1, 1: 0})
        yield bench


@pytest.mark.slow
def test_switch_and_controller_decide_as_a_simulation(bench):
    """All packets and all updates of four seconds; the clock wraps in between."""
    log = recorded(scenario(recorder(IntegerPi2, "pi2_recorder")(control_plane_ms=0)))
    start = WORD - 2_000 * MS
    switch = Bench(bench, [1])
    verdicts = []
    for row in log:
        if row.verdict == UPDATE:
            switch.update()
        else:
            assert switch.controller.probability[1] == row.probability
            given = TestInput((start + row.now_ns - row.delay_ns), row.delay_ns, random=row.draw(32))
            switch.packet(given, 0, row.ecn, row.verdict)
            verdicts.append(row.verdict)
    switch.update()
    assert len(verdicts) > 8_000 and min(verdicts.count(v) for v in (MARK, DROP_LATE)) > 30
    row = control_plane.port_states(bench.switch, switch.controller).iloc[0]
    assert (row.marked, row.dropped) == (verdicts.count(MARK), verdicts.count(DROP_LATE))


@pytest.mark.slow
def test_switch_and_controller_decide_as_the_model_of_random_walks(bench):
    """Two ports, each with a controller of its own; probabilities from 0 to 1, delays of all sizes."""
    switch = Bench(bench, [0, 1])
    models = [Drawing(MODEL, 32, seed=3 + port) for port in (0, 1)]
    walks = [iter(walk(seed, 8000, 0, 60, longest_ms=3000)) for seed in (1, 2)]
    rng = np.random.default_rng(5)
    now, extremes, verdicts = 2**33, [1.0, 0.0], []
    for k in range(8000):
        now += int(rng.integers(1, 900_000))
        port = int(rng.integers(2))
        delay, ecn = next(walks[port])
        verdict, draw = models[port].dequeue(now - delay, delay, ecn)
        switch.packet(TestInput(now - delay, delay, random=draw), port, ecn, verdict)
        verdicts.append(verdict)
        if k % 30 == 29:
            for model in models:
                model.compiled.call("on_update", 0, packet(), now)
            switch.update()
            for out, model in ((1, models[0]), (0, models[1])):
                p = switch.controller.probability[out]
                assert p == model.compiled.state("computed")
                extremes = [min(extremes[0], p), max(extremes[1], p)]
    switch.update(switch_steps=False)
    assert extremes[0] == 0 and extremes[1] > 0.5
    assert min(verdicts.count(v) for v in (PASS, MARK, DROP_LATE)) > 200


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        ({"ecn": 0}, 2),
        ({"ecn": 1}, 1),
        ({"ecn": 2, "protocol": 17}, 1),
        ({"ecn": 3}, 1),
        ({"ecn": 1, "words": 7}, 2),  # IPv4 options
        ({"ecn": 2, "protocol": 1}, 1),
        ({"ecn": 0, "ip": 6}, 2),
        ({"ecn": 1, "ip": 6}, 1),
        ({"ecn": 3, "ip": 6, "protocol": 17}, 1),
    ],
)
def test_switch_marks_or_drops(bench, given, decision):
    sent = frame(flow=9, **given)
    data = {"root": 30_000, "coupled": 60_000}
    bench.switch.add_entry("probabilities", {"port": 1}, "set_probabilities", data)
    scalable = given["ecn"] in (1, 3) and "words" not in given
    limit = 60_000 if scalable else 30_000
    draws = [(limit - 1) << 16, limit << 16, (limit - 1) << 16 | limit - 1, (limit - 1) << 16 | limit]
    answers = bench.exchange([(TestInput(1, 5, random=draw), sent) for draw in draws])
    # a scalable packet has the first draw, a classic one both
    assert [a.decision for a in answers] == [decision, 0, decision, decision if scalable else 0]
    check_frames(answers, sent, given)


@pytest.mark.p4
@pytest.mark.slow
def test_the_loop_holds_a_real_queue_at_its_target():
    """BMv2 with its own clock and queue, at 1000 packets a second, and the controller beside it.

    Senders halve their rate at a drop or mark and add to it otherwise, as TCP does; there are eight, with some 20 ms.
    """
    with running("pi2", test_input=False) as bench:
        switch = bench.switch
        control_plane.set_up(switch, {0: 1}, rate_mbps=1000 * 1514 * 8 / 1e6, buffer_packets=400)
        controller = control_plane.Controller([1])
        delays, probabilities = closed_loop(bench, controller, seconds=12)
        row = control_plane.port_states(switch, controller).iloc[0]
    late = delays[len(delays) // 3 :]
    assert 10 < np.mean(late) < 35, f"{np.mean(late):.1f} ms"
    assert 0.01 < np.mean(probabilities) < 0.5 and row.dropped > 20


def closed_loop(bench, controller, seconds):
    """Senders by one socket; each has at most `window` packets on their way, as an answer comes for each.

    Returns
    -------
    delays in ms and probabilities, one a step
    """
    out, back = bench.sockets[0], bench.sockets[1]
    flows = 8
    window, in_flight, following, cut_until = (
        [4.0] * flows,
        [set() for _ in range(flows)],
        [0] * flows,
        [0.0] * flows,
    )
    delays, probabilities, arrivals = [], [], []
    begin = time.monotonic()
    due = begin
    while (now := time.monotonic()) - begin < seconds:
        while (data := received(back)) is not None:
            arrivals.append((now + 0.02, data))  # the way back
        while arrivals and arrivals[0][0] <= now:
            flow, number = arrivals.pop(0)[1]
            lost = {n for n in in_flight[flow] if n < number - 3}
            in_flight[flow] -= lost | {number}
            if lost and now > cut_until[flow]:
                window[flow], cut_until[flow] = max(window[flow] / 2, 1.0), now + 0.05
            else:
                window[flow] += 1 / window[flow]
        for flow in range(flows):
            while len(in_flight[flow]) < int(window[flow]):
                number = following[flow] = following[flow] + 1
                in_flight[flow].add(number)
                out.send(frame(flow)[:34] + bytes([flow]) + number.to_bytes(4, "big") + bytes(1475))
        if now >= due:
            controller.step(bench.switch)
            due = max(due + controller.period_s, now)
            delays.append(controller.delay_ns[1] * 1e-6)
            probabilities.append(controller.probability[1])
        time.sleep(0.0005)
    return delays, probabilities


def received(sock):
    """Flow and number of a packet that came out, or None."""
    while True:
        try:
            data, origin = sock.recvfrom(4096)
        except BlockingIOError:
            return None
        if origin[2] != 4 and len(data) > 1500:  # not one of our own
            return data[34], int.from_bytes(data[35:39], "big")
