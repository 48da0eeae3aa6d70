"""DualPI2 on switches: its constants and its control plane; and both together with BMv2 against the integer model."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hardware_l4s import MS, UPDATE, WORD, FakeSwitch, recorded, recorder, walk
from one_queue import Compiled, packet
from switch_bench import TARGETS, TestInput, running, running_on
from test_hardware_codel import check_frames, frame, frame_with_ce

from cctoolkit.aqm import DROP_LATE, MARK, PASS
from cctoolkit.aqm.dualpi2 import ONE, IntegerDualPi2
from cctoolkit.aqm.pi2 import fixed_point
from cctoolkit.errors import ParameterError
from cctoolkit.scenario import Bottleneck, Flow, Scenario
from hardware.constants import Constant
from hardware.programs.dualpi2 import constants as dualpi2, control as control_plane

DECISION = {PASS: 0, MARK: 1, DROP_LATE: 2}
# queues of the model, and of the switch
L, C = 0, 1
PLACE = {L: dualpi2.L_QUEUE, C: dualpi2.C_QUEUE}
REGISTERS = [
    ("last_delay_ns", 2 * dualpi2.PORTS, ()),
    ("classic_sum", 2 * dualpi2.PORTS, ()),
    ("l_sum", dualpi2.PORTS, ()),
    ("signals", 2 * dualpi2.PORTS, ("marked", "dropped")),
]


# ---- constants, and the control plane without a switch ---------------------------------------------------------------


def test_constants():
    values = {c.name: (c.value, c.bits) for c in dualpi2.CONSTANTS if isinstance(c, Constant)}
    assert values["STEP_NS"] == (MS, 32) and values["ONE_Q30"] == (1 << 30, 32)
    assert values["MIN_BACKLOG_PACKETS"][0] == IntegerDualPi2().min_backlog_packets
    assert {values["L_QUEUE_ID"], values["C_QUEUE_ID"]} == {(0, 1), (1, 1)}
    # a sum and a probability on top of it, with a sign
    assert 2 * values["ONE_Q30"][0] <= 1 << 31


def test_set_up():
    switch = FakeSwitch()
    control_plane.set_up(switch, {3: 7, 7: 3}, rate_mbps=50)
    assert switch.tables["wire"] == {(3,): ("send", {"port": 7}), (7,): ("send", {"port": 3})}
    assert switch.shaped.keys() == {3, 7}
    for port in (3, 7):
        assert (switch.weights[port, PLACE[L]], switch.weights[port, PLACE[C]]) == (90, 10)
    bmv2 = FakeSwitch("bmv2")
    control_plane.set_up(bmv2, {0: 1})
    assert not bmv2.weights
    for percent in (0, 100):
        with pytest.raises(ParameterError, match="l_percent"):
            control_plane.set_up(switch, {0: 1}, l_percent=percent)


def test_controller_is_the_models():
    """The longer of the two delays, each of them 0 if nothing left; the same probabilities after each step."""
    switch, model = FakeSwitch(registers=REGISTERS), Compiled(IntegerDualPi2(), queues=2)
    controller = control_plane.Controller([2, 5])
    walks = [walk(seed, 400, 0, 12) for seed in (0, 1)]
    rng = np.random.default_rng(1)
    reached = set()
    for k in range(400):
        now = 10**9 + k * 16 * MS
        for q in (L, C):
            if rng.random() < 0.9:
                delay_ns = walks[q][k][0]
                model.call("on_dequeue", q, packet(ecn=1 - q, enqueued_ns=now - delay_ns), now)
                switch.registers["last_delay_ns"][2 * 5 + PLACE[q]] = delay_ns
        model.call("on_update", 0, packet(), now)
        controller.step(switch)
        p = model.state("probability")
        assert controller.probability == {2: 0.0, 5: p}
        assert not switch.registers["last_delay_ns"].any()
        data = {
            "coupled": model.state("coupled"),
            "classic": model.state("classic"),
            "overloaded": int(p >= 0.5),
        }
        assert switch.tables["probabilities"][5,] == ("set_probabilities", data)
        assert data["coupled"] == min(fixed_point(2 * p, 30), ONE)
        reached.add((p > 0, p >= 0.5))
    assert reached == {(False, False), (True, False), (True, True)}


def test_port_states():
    switch = FakeSwitch(registers=REGISTERS)
    controller = control_plane.Controller([2, 5])
    switch.registers["last_delay_ns"][2 * 5 + PLACE[L]] = 30 * MS
    switch.registers["signals"][2 * 5 + PLACE[L]] = (3, 4)
    switch.registers["signals"][2 * 5 + PLACE[C]] = (5, 6)
    controller.step(switch)
    table = control_plane.port_states(switch, controller)
    assert table.iloc[1].to_dict() == pytest.approx(
        {
            "port": 5, "delay_ms": 30, "probability": 0.16 * 0.015 + 3.2 * 0.03,
            "l_marked": 3, "l_dropped": 4, "c_marked": 5, "c_dropped": 6,
        }
    )  # fmt: skip
    assert not table.iloc[0, 1:].any()
    control_plane.clear(switch)
    assert not control_plane.port_states(switch, controller).iloc[:, 3:].any(axis=None)


# ---- BMv2 against the model ------------------------------------------------------------------------------------------


class Bench:
    """Packets are sent in batches from one update to the next."""

    def __init__(self, bench, ports):
        self.bench, self.controller = bench, control_plane.Controller(ports)
        self.waiting, self.sent = [], 0
        control_plane.clear(bench.switch)

    def packet(self, now_ns, delay_ns, ecn, queue, backlog, verdict, port=0):
        given = TestInput(now_ns - delay_ns, delay_ns, queue_depth=backlog)
        self.waiting.append((given, frame(self.sent % 7, ecn, protocol=17), port, queue, verdict))
        self.sent += 1

    def flush(self):
        answers = self.bench.exchange(
            [row[:2] for row in self.waiting], port=[row[2] for row in self.waiting]
        )
        for (given, data, port, queue, verdict), answer in zip(self.waiting, answers, strict=True):
            frame_out = frame_with_ce(data) if verdict == MARK else data
            want = (DECISION[verdict], 1 - port, given.queue_delay_ns, PLACE[queue], frame_out)
            got = (answer.decision, answer.port, answer.value, answer.value2, answer.frame)
            assert got == want, f"{given}, queue {queue}"
        self.waiting.clear()

    def update(self):
        self.flush()
        self.controller.step(self.bench.switch)


@pytest.fixture(scope="module", params=TARGETS)
def bench(request):
    with running_on(request.param, "dualpi2", queues=2) as bench:
        control_plane.set_up(bench.switch, {0: 1, 1: 0})
        yield bench


@pytest.mark.slow
def test_switch_and_controller_decide_as_a_simulation(bench):
    """All packets and all updates, one second of overload with ECT(1) among them; the clock wraps in between."""
    scenario = Scenario(
        bottleneck=Bottleneck(
            rate_mbps=40, buffer_packets=2000, aqm=recorder(IntegerDualPi2, "dualpi2_recorder")()
        ),
        flows=[
            *(Flow("cubic", rtt_ms=rtt, ecn="classic" if rtt > 10 else "off") for rtt in (5, 20, 60)),
            Flow("prague", rtt_ms=10, count=2),
            Flow("udp", rtt_ms=10, rate_mbps=60, ecn="l4s", start_s=1.5, stop_s=2.5),
        ],
        duration_s=4.0,
        seed=8,
    )
    log = recorded(scenario)
    start = WORD - 2_000 * MS
    switch = Bench(bench, [1])
    kinds = []
    for row in log:
        if row.verdict == UPDATE:
            switch.update()
            # what the L queue's probability is in the series
            assert min(2 * switch.controller.probability[1], 1.0) == row.probability
        else:
            switch.packet(
                start + row.now_ns, row.delay_ns, row.ecn, row.queue, row.backlog_packets, row.verdict
            )
            kinds.append((row.queue, row.verdict))
    switch.flush()
    assert len(kinds) > 8_000
    assert min(kinds.count(kind) for kind in [(L, MARK), (L, DROP_LATE), (C, MARK), (C, DROP_LATE)]) > 5
    row = control_plane.port_states(bench.switch, switch.controller).iloc[0]
    assert (row.l_marked, row.l_dropped) == (kinds.count((L, MARK)), kinds.count((L, DROP_LATE)))
    assert (row.c_marked, row.c_dropped) == (kinds.count((C, MARK)), kinds.count((C, DROP_LATE)))


@pytest.mark.slow
def test_switch_and_controller_decide_as_the_model_of_random_walks(bench):
    """Two ports, each with a controller of its own; delays about the step and far from it, all probabilities."""
    switch = Bench(bench, [0, 1])
    models = [Compiled(IntegerDualPi2(), queues=2) for _ in (0, 1)]
    rng = np.random.default_rng(5)
    walks = {
        (port, q): iter(walk(10 * port + q, 8000, *bounds, ecn=kinds, longest_ms=3000))
        for port in (0, 1)
        for q, bounds, kinds in ((L, (0, 2), (1, 3)), (C, (0, 40), (0, 2)))
    }
    now, reached, kinds = 2**33, set(), []
    for k in range(8000):
        now += int(rng.integers(1, 900_000))
        port, q, backlog = (int(rng.integers(n)) for n in (2, 2, 4))
        delay, ecn = next(walks[port, q])
        if rng.random() < 0.05:
            delay = int(rng.choice([MS - 1, MS, MS + 1]))
        model = models[port]
        model.queues["packets"][q] = backlog
        verdict = model.call("on_dequeue", q, packet(ecn=ecn, enqueued_ns=now - delay), now)
        switch.packet(now, delay, ecn, q, backlog, verdict, port)
        kinds.append((q, verdict))
        if k % 30 == 29:
            for model in models:
                model.call("on_update", 0, packet(), now)
            switch.update()
            for out, model in ((1, models[0]), (0, models[1])):
                p = switch.controller.probability[out]
                assert p == model.state("probability")
                reached.add((p == 0, p >= 0.5))
    switch.flush()
    for out, model in ((1, models[0]), (0, models[1])):
        sums = bench.switch.read_register("classic_sum", 2 * out, 2)
        assert sums[PLACE[L]] == model.state("l_drop_sum") and sums[PLACE[C]] == model.state("c_sum")
        assert bench.switch.read_register("l_sum", out, 1)[0] == model.state("l_sum")
    assert reached == {(True, False), (False, False), (False, True)}
    for kind in [(q, v) for q in (L, C) for v in (PASS, MARK, DROP_LATE)]:
        assert kinds.count(kind) > 15, kind


@pytest.mark.parametrize(
    ("given", "queue", "decision"),
    [
        ({"ecn": 0}, C, 2),
        ({"ecn": 1}, L, 1),
        ({"ecn": 2, "protocol": 17}, C, 1),
        ({"ecn": 3}, L, 1),
        ({"ecn": 1, "words": 7}, C, 2),  # IPv4 options
        ({"ecn": 2, "protocol": 1}, C, 1),
        ({"ecn": 0, "ip": 6}, C, 2),
        ({"ecn": 1, "ip": 6}, L, 1),
        ({"ecn": 3, "ip": 6, "protocol": 17}, L, 1),
    ],
)
def test_switch_marks_or_drops(bench, given, queue, decision):
    """Half of all packets, by turns; in overload the share of drops is the same for both queues."""
    sent = frame(flow=9, **given)
    control_plane.clear(bench.switch)
    for overloaded, want in ((0, decision), (1, 2)):
        data = {"coupled": ONE if overloaded else ONE // 2, "classic": ONE // 2, "overloaded": overloaded}
        bench.switch.add_entry("probabilities", {"port": 1}, "set_probabilities", data)
        answers = bench.exchange([(TestInput(1, 5), sent)] * 20)
        assert {a.value2 for a in answers} == {PLACE[queue]}
        got = [a.decision for a in answers]
        # of an L queue in overload the other half is marked
        assert sorted(set(got)) == sorted({want, 1 if overloaded and queue == L else 0})
        assert got.count(want) == pytest.approx(10, abs=1)
        check_frames(answers, sent, given)


@pytest.mark.p4
@pytest.mark.slow
def test_bmv2_with_its_own_clock_and_queues():
    """At 100 packets a second from each queue, and some 700 offered to each: p' rises until both are dropped."""
    with running("dualpi2", queues=2, test_input=False) as bench:
        switch = bench.switch
        control_plane.set_up(switch, {0: 1}, rate_mbps=100 * 1514 * 8 / 1e6, buffer_packets=20)
        controller = control_plane.Controller([1])
        begin, sent, due = time.monotonic(), 0, 0.0
        while (now := time.monotonic() - begin) < 3:
            bench.sockets[0].send(frame(flow=sent % 50, ecn=sent % 4))
            sent += 1
            if now >= due:
                controller.step(switch)
                due = now + controller.period_s
            time.sleep(0.0005)
        row = control_plane.port_states(switch, controller).iloc[0]
    assert row.delay_ms > 15 and row.probability > 0.5
    assert row.l_marked > 5 and row.c_dropped > 20 and row.l_dropped > 20
