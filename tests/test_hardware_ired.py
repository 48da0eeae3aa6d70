"""iRED on switches: its constants, its control plane; and BMv2, with its notifications, against the integer model."""

from __future__ import annotations

import re
import time
from typing import ClassVar

import numba
import numpy as np
import pytest
from hardware_l4s import MS, WORD, Drawing, FakeSwitch, walk
from switch_bench import TARGETS, TestInput, running, running_on
from test_hardware_codel import check_frames, frame, frame_with_ce

from cctoolkit.aqm import DROP, MARK, PASS
from cctoolkit.aqm.ired import DELAY_SHIFT, EPOCH_PACKETS, LONGEST_DELAY, IntegerIRed
from cctoolkit.errors import ParameterError
from cctoolkit.scenario import Bottleneck, Flow, Scenario
from cctoolkit.sim.simulation import Simulation
from hardware.constants import Constant, Macro
from hardware.programs.ired import constants as ired, control as control_plane

MODEL = IntegerIRed(recirculation_us=0)
NUMBER = {c.name: c for c in ired.CONSTANTS if isinstance(c, Constant)}
MACRO = {c.name: c for c in ired.CONSTANTS if isinstance(c, Macro)}


# ---- constants -------------------------------------------------------------------------------------------------------


def test_constants():
    assert NUMBER["LONGEST_DELAY_STEPS"].value == LONGEST_DELAY and NUMBER["LONGEST_DELAY_STEPS"].bits == 32
    # what has no bit from CUT_SHIFT on is at most the longest
    assert ((1 << NUMBER["CUT_SHIFT"].value) - 1) >> NUMBER["DELAY_SHIFT"].value == LONGEST_DELAY
    assert NUMBER["RED_ENTRIES"].value << NUMBER["RED_SHIFT"].value == LONGEST_DELAY + 1
    assert NUMBER["NOTIFICATION_BYTES"].value == control_plane.NOTIFICATION_BYTES == 48


def test_actions_shift_as_the_model_does():
    """Doubled as often as there were packets before in the epoch; halved once more when it is read."""
    for i, line in enumerate(MACRO["DOUBLE_ACTIONS"].lines):
        assert line == f"action double_{i}() {{ meta.weighted = meta.delay << {i}; }}"
    for i, line in enumerate(MACRO["HALVE_ACTIONS"].lines):
        recent, earlier = re.findall(r"= (.+?);", line)
        assert recent == f"meta.sum >> {i + 1}"
        assert earlier == (f"meta.before >> {i + 1 + EPOCH_PACKETS}" if i < 15 else "0")
    for kind in ("DOUBLE", "HALVE"):
        assert len(MACRO[f"{kind}_ACTIONS"].lines) == len(MACRO[f"{kind}_NAMES"].lines) == EPOCH_PACKETS
        entries = [f"{i}: {kind.lower()}_{i}();" for i in range(EPOCH_PACKETS)]
        assert MACRO[f"{kind}_ENTRIES"].lines == entries


def test_probabilities():
    """From the first step above 20 ms to the last, without gaps; 17 bits hold them."""
    entries = ired.red_entries()
    assert [e.step for e in entries] == list(range(entries[0].step, ired.RED_STEPS))
    assert entries[0].step << 5 + DELAY_SHIFT == pytest.approx(20 * MS, abs=33_000)
    record = MODEL.parameter_record()[0]
    for e in entries:
        assert (e.classic, e.scalable) == (record["classic_table"][e.step], record["scalable_table"][e.step])
        assert e.classic <= e.scalable <= 65536
    assert entries[-1] == (ired.RED_STEPS - 1, 65536, 65536)


# ---- the control plane, without a switch -----------------------------------------------------------------------------

REGISTERS = [
    ("packets", ired.STATES, ()),
    ("delay_sum", ired.STATES, ()),
    ("last_sum", ired.STATES, ()),
    ("average_delay", ired.STATES, ()),
    ("drop_flag", ired.STATES, ()),
    ("drops", ired.STATES, ()),
    ("signals", ired.STATES, ("marked", "notified")),
]


@pytest.mark.parametrize(("target", "first"), [("tofino", 68), ("tofino2", 6)])
def test_set_up(target, first):
    switch = FakeSwitch(target)
    model = IntegerIRed(min_ms=5, max_ms=10)
    control_plane.set_up(switch, {8: 136, 136: 8, 9: 136}, model=model, queues=2, rate_mbps=120)
    assert switch.tables["wire"] == {
        (8,): ("send", {"port": 136}),
        (9,): ("send", {"port": 136}),
        (136,): ("send", {"port": 8}),
        (first,): ("receive_notification", None),
        (first + 128,): ("receive_notification", None),
    }
    assert switch.mirrors == {1: (first, 48), 2: (first + 128, 48)}
    assert switch.tables["queues"] == {
        (port, kind): ("enqueue", {"queue": kind}) for port in (8, 136) for kind in (0, 1)
    }
    assert switch.shaped == {8: (120, 1514, None), 136: (120, 1514, None)}
    assert len(switch.tables["red"]) == len(ired.red_entries(model)) > 1800
    control_plane.set_probabilities(switch, IntegerIRed(min_ms=50, max_ms=60, square=False))
    assert min(switch.tables["red"])[0] == int(50e6 / 32768) + 1  # nothing of the old ones is left


def test_set_up_of_bmv2():
    switch = FakeSwitch("bmv2")
    control_plane.set_up(switch, {0: 1}, queues=1)
    assert list(switch.mirrors) == [1] and switch.mirrors[1][1] is None
    assert switch.tables["queues"] == {(1, kind): ("enqueue", {"queue": 0}) for kind in (0, 1)}


@pytest.mark.parametrize(
    ("wires", "options", "match"), [({0: 1}, {"queues": 3}, "queues"), ({6: 0}, {}, "notifications")]
)
def test_set_up_refuses(wires, options, match):
    with pytest.raises(ParameterError, match=match):
        control_plane.set_up(FakeSwitch(), wires, **options)


def test_queue_states():
    switch = FakeSwitch(registers=REGISTERS)
    at = 511 * 8 + 1
    switch.registers["average_delay"][at] = 30_000
    switch.registers["drop_flag"][at] = 1
    switch.registers["drops"][at] = 7
    switch.registers["signals"][at] = (3, 9)
    table = control_plane.queue_states(switch, [0, 511], 2)
    assert table.iloc[3].to_dict() == {
        "port": 511, "queue": 1, "average_ms": pytest.approx(30.72), "to_drop": True, "marked": 3, "notified": 9,
        "dropped": 7,
    }  # fmt: skip
    assert not table.iloc[:3, 2:].any(axis=None)
    control_plane.clear(switch)
    assert not control_plane.queue_states(switch, [511], 2).iloc[:, 2:].any(axis=None)


# ---- BMv2 against the model ------------------------------------------------------------------------------------------

_integer = numba.njit(error_model="numpy")(IntegerIRed.on_dequeue)


class Recorder(IntegerIRed):
    """The model, with what it was asked."""

    name: ClassVar[str] = "ired_recorder"

    class State(IntegerIRed.State):
        rows = 0
        log = np.zeros(2 * 40_000, np.int64)

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        at = 2 * s.rows
        if at < len(s.log):
            s.log[at] = now_ns - packet.enqueued_ns
            s.log[at + 1] = packet.ecn
            s.rows += 1
        return _integer(p, s, stats, queue, packet, now_ns)


def recorded():
    """Delays and ECN of packets as they leave a simulated port with iRED; a flood in between."""
    scenario = Scenario(
        bottleneck=Bottleneck(rate_mbps=20, buffer_packets=1000, aqm=Recorder()),
        flows=[
            *(Flow("cubic", rtt_ms=rtt, ecn="classic" if rtt > 10 else "off") for rtt in (5, 20, 60)),
            Flow("prague", rtt_ms=10, count=2),
            Flow("udp", rtt_ms=10, rate_mbps=15, start_s=1.5, stop_s=2.5),
        ],
        duration_s=4.0,
        seed=8,
    )
    sim = Simulation(scenario, sample_s=None)
    sim.run(scenario.duration_s)
    state = sim.aqm_state(0)
    rows = int(state["rows"])
    assert 5000 < rows < 40_000
    return np.array(state["log"][: 2 * rows]).reshape(rows, 2).tolist()


class Expected:
    """What has to come out for one packet."""

    def __init__(self, decision, average=0, signal=0):
        self.decision, self.average, self.signal = decision, average, signal

    @property
    def notified(self):
        return self.signal and self.decision == 0

    def is_of(self, answer):
        return (answer.decision, answer.value, answer.value2) == (self.decision, self.average, self.signal)


class Queue:
    """A queue's model; packets one after another, each gone before the next comes."""

    def __init__(self, seed, start_ns):
        self.model, self.now_ns = Drawing(MODEL, 16, seed=seed), start_ns

    def packet(self, delay_ns, ecn, options=False):
        known = 0 if options else ecn
        arrival = self.now_ns
        self.now_ns += delay_ns + 1000
        if self.model.enqueue(arrival, known) == DROP:
            return TestInput(arrival, delay_ns), Expected(2)
        verdict, draw = self.model.dequeue(arrival, delay_ns, known)
        stats, state = self.model.compiled.stats[0], self.model.compiled
        average = int(state.state("average")) >> DELAY_SHIFT
        notified = int(stats["notifications"]) - getattr(self, "notified", 0)
        self.notified = int(stats["notifications"])
        assert verdict in (PASS, MARK)
        signal = 1 if verdict == MARK or notified else 0
        return TestInput(arrival, delay_ns, random=draw | 0xABCD0000), Expected(
            int(verdict == MARK), average, signal
        )


def compared(bench, rows):
    """Send packets as (port, queue's number, model, delay, ecn); every answer has to be the model's.

    A notification takes its way while the answer comes back, so after a packet that caused one it is waited for.
    """
    waiting, sent, outcomes = [], [], []

    def flush():
        answers = bench.exchange([(given, data) for _, _, given, data, _ in waiting], in_flight=1,
                                 port=[port for port, *_ in waiting])  # fmt: skip
        for (port, ecn, given, data, expected), answer in zip(waiting, answers, strict=True):
            what = f"packet {len(outcomes)}, ecn {ecn}, {given}: {answer}, not {vars(expected)}"
            assert expected.is_of(answer) and answer.port == 1 - port, what
            assert answer.frame == (frame_with_ce(data) if expected.decision == 1 else data), what
            outcomes.append(expected)
        waiting.clear()

    for port, number, queue, delay, ecn in rows:
        given, expected = queue.packet(delay, ecn)
        data = frame(len(sent) % 7, ecn, protocol=17)
        sent.append(data)
        waiting.append((port, ecn, given, data, expected))
        if expected.notified:
            flush()
            index, patience = (1 - port) * ired.QUEUES + number, time.monotonic() + 5
            while bench.switch.read_register("drop_flag", index, 1)[0] == 0:
                assert time.monotonic() < patience, f"no notification of packet {len(outcomes) - 1}"
    flush()
    return outcomes


def counts(outcomes):
    """Marked, notified, dropped."""
    return (
        sum(o.decision == 1 for o in outcomes),
        sum(bool(o.notified) for o in outcomes),
        sum(o.decision == 2 for o in outcomes),
    )


@pytest.fixture(scope="module", params=TARGETS)
def bench(request):
    with running_on(request.param, "ired", queues=2) as bench:
        control_plane.set_up(bench.switch, {0: 1, 1: 0}, model=MODEL, queues=1)
        yield bench


@pytest.fixture
def empty(bench):
    control_plane.clear(bench.switch)


@pytest.mark.slow
@pytest.mark.usefixtures("empty")
def test_switch_decides_as_the_model_with_delays_of_a_simulated_queue(bench):
    """One queue for all: scalable packets leave the flag up. The clock wraps some fifty times."""
    queue = Queue(1, WORD - 40 * MS)
    rows = recorded()[:6000]
    outcomes = compared(bench, [(0, 0, queue, delay, ecn) for delay, ecn in rows])
    assert len(outcomes) == 6000 and queue.now_ns > 20 * WORD
    marked, notified, dropped = counts(outcomes)
    assert marked > 300 and notified > 100 and notified - 1 <= dropped <= notified
    row = control_plane.queue_states(bench.switch, [1]).iloc[0]
    assert (row.marked, row.notified, row.dropped) == (marked, notified, dropped)
    assert row.average_ms == pytest.approx([o.average for o in outcomes if o.decision != 2][-1] * 1.024e-3)
    assert row.to_drop == (notified > dropped)


@pytest.mark.slow
@pytest.mark.usefixtures("empty")
def test_switch_decides_as_the_model_of_random_walks(bench):
    """Two queues in each of two ports; delays of all sizes, also such as are cut."""
    try:
        control_plane.set_up(bench.switch, {0: 1, 1: 0}, model=MODEL, queues=2)
        queues = {(port, kind): Queue(10 * port + kind + 1, 2**40 + 7) for port in (0, 1) for kind in (0, 1)}
        rng = np.random.default_rng(4)
        walks = {
            place: iter(walk(i, 3000, 5, 50, ecn=(1, 3) if place[1] else (0, 2)))
            for i, place in enumerate(queues)
        }
        rows = []
        for _ in range(6000):
            place = (int(rng.integers(2)), int(rng.integers(2)))
            rows.append((*place, queues[place], *next(walks[place])))
        outcomes = compared(bench, rows)
    finally:
        control_plane.set_up(bench.switch, {0: 1, 1: 0}, model=MODEL, queues=1)
    for port in (0, 1):
        states = control_plane.queue_states(bench.switch, [1 - port], 2)
        for kind in (0, 1):
            mine = [o for o, row in zip(outcomes, rows, strict=True) if row[:2] == (port, kind)]
            marked, notified, dropped = counts(mine)
            assert tuple(states.loc[kind, ["marked", "notified", "dropped"]]) == (marked, notified, dropped)
            assert (marked > 300, notified > 100, dropped > 100) == (
                (True, False, False) if kind else (False, True, True)
            )


@pytest.mark.usefixtures("empty")
def test_switch_scalable_packets_leave_the_flag_up(bench):
    queue = Queue(1, 0)
    rows = (
        [(0, 0, queue, 60 * MS, 0)] * 4
        + [(0, 0, queue, 0, 1), (0, 0, queue, 0, 3)] * 50
        + [(0, 0, queue, 0, 2)]
    )
    outcomes = compared(bench, rows)
    assert [o.decision for o in outcomes[4:]].count(2) == 1 and outcomes[-1].decision == 2


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("given", "decision"),
    [
        ({"ecn": 0}, 2),
        ({"ecn": 1}, 1),
        ({"ecn": 2, "protocol": 17}, 2),  # classic packets are dropped, also with ECT
        ({"ecn": 3, "protocol": 1}, 1),
        ({"ecn": 1, "words": 7}, 2),  # IPv4 options
        ({"ecn": 0, "ip": 6}, 2),
        ({"ecn": 1, "ip": 6}, 1),
        ({"ecn": 3, "ip": 6, "protocol": 17}, 1),
    ],
)
def test_switch_marks_or_drops(bench, given, decision):
    """Long delays: a scalable packet is marked, after a classic one the next is dropped."""
    sent = frame(flow=9, **given)
    queue = Queue(1, 0)
    answers = []
    for _ in range(12):
        test_input, expected = queue.packet(66 * MS, given["ecn"], options="words" in given)
        answers += bench.exchange([(test_input, sent)])
        assert expected.is_of(answers[-1])
        deadline = time.monotonic() + 60
        while expected.notified and not bench.switch.read_register("drop_flag", 8, 1)[0]:
            assert time.monotonic() < deadline
    assert [a.decision for a in answers].count(decision) >= 4
    check_frames(answers, sent, given)


@pytest.mark.p4
@pytest.mark.slow
def test_bmv2_with_its_own_clock_and_queue():
    """No test input: a queue of up to 40 packets at 500 a second, so 80 ms. Half the packets are classic."""
    with running("ired", test_input=False) as bench:
        switch = bench.switch
        control_plane.set_up(switch, {0: 1}, rate_mbps=500 * 1514 * 8 / 1e6, buffer_packets=40)
        begin, sent = time.monotonic(), 0
        while time.monotonic() - begin < 2:
            bench.sockets[0].send(frame(flow=sent % 50, ecn=sent % 2))
            sent += 1
            time.sleep(0.001)
        row = control_plane.queue_states(switch, [1]).iloc[0]
    assert 20 < row.average_ms < 90
    assert row.marked > 50
    # behind each decision comes a drop, unless the flag was up already
    assert 50 < row.dropped <= row.notified
