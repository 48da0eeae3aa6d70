"""P4-CoDel on switches: its constants, its words of 32 bits, its control plane; and BMv2 against the model.

The model is :data:`hardware.programs.codel.constants.MODEL`, compiled as the simulator compiles it.
"""

from __future__ import annotations

import math
import re
import struct
import time
from itertools import pairwise
from typing import ClassVar

import fake_bfrt
import numba
import numpy as np
import pytest
from fake_bfrt import Device, table
from hypothesis import example, given, settings, strategies as st
from one_queue import Compiled, packet
from switch_bench import TARGETS, Answer, TestInput, running, running_on

from cctoolkit.aqm import DROP_LATE, MARK, PASS, PisaCoDel
from cctoolkit.aqm.codel_p4 import drop_gap, math_unit, math_unit_gap
from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.scenario import Bottleneck, Flow, Queue, Scenario
from cctoolkit.sim.simulation import Simulation
from hardware import build
from hardware.common.bfrt import BfrtSwitch
from hardware.common.switch import Switch, SwitchError
from hardware.common.tofino_model import HARNESSES
from hardware.constants import Constant
from hardware.programs.codel import constants as codel, control as control_plane

MS = 1_000_000
WORD = 1 << 32
NUMBER = {c.name: c for c in codel.CONSTANTS if isinstance(c, Constant)}
TARGET, INTERVAL = NUMBER["TARGET_NS"].value, NUMBER["INTERVAL_NS"].value
RECORD = codel.MODEL.parameter_record()[0]
DECISION = {PASS: 0, MARK: 1, DROP_LATE: 2}
#: A packet's length in a queue's depth: packets on BMv2, cells on a Tofino.
MTU_DEPTH = {
    "bmv2": NUMBER["MTU_PACKETS"].value,
    "tofino": NUMBER["MTU_TOFINO_CELLS"].value,
    "tofino2": NUMBER["MTU_TOFINO2_CELLS"].value,
}


# ---- constants -------------------------------------------------------------------------------------------------------


def test_constants_are_the_models():
    assert (TARGET, INTERVAL) == (RECORD["target_ns"], RECORD["interval_ns"]) == (5 * MS, 100 * MS)
    assert codel.MODEL.wrap and codel.MODEL.signed
    for name in ("TARGET_NS", "INTERVAL_NS"):
        assert NUMBER[name].bits == 32  # that of the clock: 16 would hold 65 us


@pytest.mark.parametrize(("target", "cell_bytes"), [("TOFINO", 80), ("TOFINO2", 176)])
def test_an_mtu_in_cells(target, cell_bytes):
    """The fewest cells that hold a packet of an MTU, in the width of deq_qdepth."""
    cells = NUMBER[f"MTU_{target}_CELLS"]
    assert (cells.value - 1) * cell_bytes < codel.MODEL.mtu_bytes <= cells.value * cell_bytes
    assert cells.bits == 19


def found(entries, count):
    """Gaps of the entries that match."""
    return [e.gap_ns for e in entries if (count ^ e.count) >> (32 - e.prefix_bits) == 0]


COUNTS = st.integers(1, WORD - 1) | st.integers(1, 40) | st.integers(0, 31).map(lambda bits: 1 << bits)


@settings(deadline=None)
@given(COUNTS)
@example(WORD - 1)
def test_bmv2s_table_is_the_math_unit(count):
    """One entry for each count, with exactly the model's gap."""
    assert found(codel.math_unit_entries(), count) == [math_unit_gap(RECORD, count)]


def test_bmv2s_table_without_drops():
    """A count of 0 has no entry; the table's default is the math unit's answer."""
    assert found(codel.math_unit_entries(), 0) == []
    assert math_unit_gap(RECORD, 0) == 0


@settings(deadline=None)
@given(COUNTS)
def test_the_math_units_error(count):
    """Against the exact law. Bits cut off below m, which is 4 or more, give up to sqrt(5/4); entries are rounded."""
    exact = INTERVAL / math.sqrt(count)
    error = math_unit_gap(RECORD, count) / exact - 1
    # a gap is cut to a whole number: one ns of some 1600 at the largest counts
    assert -0.5 / 64 - 1 / exact < error < math.sqrt(5 / 4) * (1 + 0.5 / 64) - 1


@pytest.mark.parametrize("interval_ms", [6.0, 20.0, 100.0, 1999.0])
def test_the_math_unit_holds_any_interval(interval_ms):
    """Entries of 8 bits and a scale of 6 with a sign."""
    table, scale = math_unit(round(interval_ms * MS))
    assert len(table) == 16 and table.min() >= 0 and table.max() < 256
    assert table[4:].min() >= 64  # or rounding errs by more than 0.8 %
    assert 0 <= scale < 32


@pytest.mark.tofino_model
@pytest.mark.parametrize("target", HARNESSES)
def test_the_compilers_math_unit_is_the_models(target, tmp_path):
    try:
        build.tofino("codel", target, tmp_path)
    except TestbedUnavailableError as err:
        pytest.skip(str(err))
    (assembly,) = tmp_path.glob("pipe/*.bfa")
    unit = re.search(r"math_table:(.*?)data: \[ ([\d, ]+) \]", assembly.read_text(), re.DOTALL)
    table, scale = math_unit(INTERVAL)
    assert [int(x) for x in unit[2].split(",")][4:] == table[4:].tolist()  # entries below 4 are never used
    assert re.findall(r"(\w+): (\S+)", unit[1]) == [
        ("invert", "true"),
        ("shift", "-1"),
        ("scale", str(scale)),
    ]


# ---- words of 32 bits ------------------------------------------------------------------------------------------------


class Model:
    """PisaCoDel of one queue, on what a switch knows."""

    def __init__(self):
        self.codel = Compiled(codel.MODEL)

    def decide(self, now_ns, delay_ns, depth_packets, ecn=0):
        self.codel.queues["bytes"] = depth_packets * codel.MODEL.mtu_bytes
        return self.codel.call("on_dequeue", 0, packet(enqueued_ns=now_ns - delay_ns, ecn=ecn), now_ns)

    @property
    def words(self):
        """dropping, time_ns and count as the switch has them: the count is that of the drop to come."""
        s = self.codel.s[0]
        return bool(s["dropping"]), int(s["drop_next_ns"]), int(s["count"]) + 1 if s["count"] else 0


class Words:
    """What the P4 program writes into its registers, instruction by instruction."""

    def __init__(self):
        self.dropping = self.time_ns = self.count = 0

    def decide(self, now_ns, delay_ns, depth_packets):
        now_ns %= WORD
        violated = delay_ns >= TARGET and depth_packets >= NUMBER["MTU_PACKETS"].value
        before, self.dropping = self.dropping, int(violated)
        if not violated:
            return False
        if not before:
            self.time_ns, self.count = (now_ns + INTERVAL) % WORD, NUMBER["FIRST_DROP_COUNT"].value
            return False
        late = (now_ns - self.time_ns) % WORD
        if late >= WORD // 2:  # negative, as a signed word
            return False
        self.time_ns = (self.time_ns + math_unit_gap(RECORD, self.count)) % WORD
        self.count = (self.count + 1) % WORD
        return True


class Listing1Words:
    """As :class:`Words`, for the P4 program's ``bmv2_listing_1.p4``."""

    def __init__(self):
        self.dropping = self.count = self.last_count = self.drop_next_ns = 0

    def decide(self, now_ns, delay_ns, depth_packets):
        def signed(word, bits):
            return word - (1 << bits) if word >> bits - 1 else word

        before = self.dropping
        if delay_ns < TARGET or depth_packets < NUMBER["MTU_PACKETS"].value:
            self.dropping = 0
            return False
        late = signed((now_ns - self.drop_next_ns) % 2**64, 64)
        if not before:
            self.last_count, last, count = self.count, self.last_count, self.count
            resume = signed((count - last) % WORD, 32) > 1 and late < NUMBER["RESUME_NS"].value
            self.dropping, count = 1, (count - last) % WORD if resume else 1
        elif late >= 0:
            count = (self.count + 1) % WORD
        else:
            return False
        matching = [e for e in codel.root_entries() if not (count ^ e.count) >> 32 - e.prefix_bits]
        gap_ns = max(matching, key=lambda e: e.prefix_bits).gap_ns
        self.count, self.drop_next_ns = count, now_ns + gap_ns
        return bool(before)


def test_roots_of_all_counts_are_the_tables():
    """Each prefix is found, the longest one counts, and it is what the model has."""
    record = codel.Listing1().parameter_record()[0]
    entries = codel.root_entries()
    for count in [*range(1, 70), 127, 128, 2**20 - 1, 2**20, WORD - 1]:
        matching = [e for e in entries if not (count ^ e.count) >> 32 - e.prefix_bits]
        assert max(matching, key=lambda e: e.prefix_bits).gap_ns == drop_gap(record, count)


def test_words_of_listing_1_are_the_model():
    """With "if_3" taken and not taken, counts in all classes of the table, and clocks beyond 32 bits."""
    resumed = signals = 0
    for seed in range(4):
        switch, model = Listing1Words(), Compiled(codel.Listing1())
        for now, delay, depth, ecn in [*walks(seed, 3000), *overload(seed)]:
            model.queues["bytes"] = depth * codel.MODEL.mtu_bytes
            verdict = model.call("on_dequeue", 0, packet(enqueued_ns=now - delay, ecn=ecn), now)
            entered = not switch.dropping
            assert switch.decide(now, delay, depth) == (verdict != PASS)
            s = model.s[0]
            mine = (switch.dropping, switch.count, switch.last_count, switch.drop_next_ns)
            assert mine == (s["dropping"], s["count"], s["last_count"], s["drop_next_ns"])
            signals += verdict != PASS
            resumed += bool(entered and switch.dropping and switch.count > 1)
    assert resumed > 10 and signals > 1000


def overload(seed):
    """Long violations with short pauses, which Listing 1 resumes; after the walks, whose times are below 2^49."""
    rng = np.random.default_rng(seed)
    now = 2**50
    for burst in rng.integers(50, 400, 12):
        for _ in range(burst):
            now += 5 * MS
            yield now, 20 * MS, 20, 1
        now += int(rng.choice([10 * MS, 2000 * MS]))
        yield now, 0, 20, 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from([1000, MS // 10, MS, 7 * MS, 60 * MS, 100 * MS, 2**31 - 1, 2**31, 3 * 10**9]),
        st.sampled_from([TARGET - 1, TARGET, 20 * MS, 20 * MS, 20 * MS]),
        st.sampled_from([0, 1, 5, 5, 5]),
    ),
    min_size=50,
    max_size=300,
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 2**48), STEPS)
def test_counting_ahead_is_the_same(start, steps):
    """The math unit reads the register before it is written, so the count is kept one ahead; decisions stay."""
    model, words = Model(), Words()
    now = 2**49 + start
    for step, delay, depth in steps:
        now += step
        assert words.decide(now, delay, depth) == (model.decide(now, delay, depth) != PASS)
    assert (bool(words.dropping), words.time_ns, words.count) == model.words


@pytest.mark.parametrize("ahead_ms", [0, 50, 100, 2147])
def test_the_wrap_is_not_seen(ahead_ms):
    """The same decisions whether the clock wraps in between or not."""
    logs = []
    for start in (WORD // 4, WORD - ahead_ms * MS):
        words = Words()
        logs.append([words.decide(start + i * MS, 20 * MS, 5) for i in range(2000)])
    assert logs[0] == logs[1]
    assert not any(logs[0][:100]) and logs[0][100] and sum(logs[0]) > 100


# ---- the control plane, without a switch -----------------------------------------------------------------------------


class FakeSwitch(Switch):
    """Remembers what it is asked."""

    def __init__(self, target="tofino", queues=32):
        self.target, self.queues = target, queues
        self.tables = {"wire": {}, "queues": {}}
        self.shaped, self.weights = {}, {}
        self.registers = {
            "dropping": np.zeros(codel.STATES, np.uint64),
            "drop_next": np.zeros(codel.STATES, [("time_ns", np.uint64), ("count", np.uint64)]),
            "signals": np.zeros(codel.STATES, [("marked", np.uint64), ("dropped", np.uint64)]),
        }

    def add_entry(self, table, keys, action, data=None, *, priority=0):
        self.tables[table][keys["port"]] = (action, data)

    def read_register(self, name, first=0, count=None):
        if count is not None and first + count > len(self.registers[name]):
            raise SwitchError(f"{name}: has no such cells")
        return self.registers[name][first : None if count is None else first + count].copy()

    def write_register(self, name, value, index=None):
        cells = slice(None) if index is None else index
        if isinstance(value, dict):
            for field, word in value.items():
                self.registers[name][field][cells] = word
        else:
            self.registers[name][cells] = value

    def shape(self, port, rate_mbps, *, frame_bytes=1514, buffer_packets=None):
        self.shaped[port] = (rate_mbps, frame_bytes, buffer_packets)

    def queue_count(self, port):
        return self.queues

    def weight(self, port, queue, weight):
        assert self.target != "bmv2"  # it has none
        self.weights[port, queue] = weight

    close = reconnect = delete_entry = clear_table = set_default = digests = None


FakeSwitch.__abstractmethods__ = frozenset()


def test_set_up():
    switch = FakeSwitch()
    control_plane.set_up(switch, {3: 7, 7: 3, 4: 7}, queues=32, rate_mbps=50, buffer_packets=400)
    assert switch.tables["wire"] == {
        3: ("send", {"port": 7}),
        7: ("send", {"port": 3}),
        4: ("send", {"port": 7}),
    }
    assert switch.tables["queues"] == {3: ("spread", {"mask": 31}), 7: ("spread", {"mask": 31})}
    assert switch.shaped == {3: (50, 1514, 400), 7: (50, 1514, 400)}
    assert set(switch.weights) == {(port, queue) for port in (3, 7) for queue in range(32)}
    assert len(set(switch.weights.values())) == 1


def test_set_up_of_one_queue_leaves_the_rest_alone():
    for target in ("tofino2", "bmv2"):
        switch = FakeSwitch(target)
        control_plane.set_up(switch, {0: 1})
        assert switch.tables["queues"] == {1: ("spread", {"mask": 0})}
        assert not switch.weights and not switch.shaped
    control_plane.set_up(switch, {0: 1}, queues=8)
    assert switch.tables["queues"] == {1: ("spread", {"mask": 7})}


@pytest.mark.parametrize(
    ("target", "queues"), [("tofino", 0), ("tofino", 3), ("tofino2", 64), ("bmv2", 16), ("bmv2", -1)]
)
def test_set_up_refuses(target, queues):
    switch = FakeSwitch(target, queues=8)
    with pytest.raises(ParameterError, match="queues"):
        control_plane.set_up(switch, {0: 1}, queues=queues)
    assert switch.tables["wire"] == {}  # nothing half done


@pytest.mark.parametrize(("family", "most"), [("tf1", 8), ("tf2", 16)])
def test_no_more_queues_than_the_port_of_a_tofino_has(family, most):
    """Its traffic manager lists 32 or 128 numbers for them."""
    port = ("port", "Exact", 9)
    tables = [
        table("pipe.I.wire", 1, keys=[port], actions={"I.send": {"port": 9}}),
        table("pipe.I.queues", 2, keys=[port], actions={"I.spread": {"mask": 5}}),
    ]
    device = Device("codel", tables, family=family)
    weights = device.entries[f"{family}.tm.queue.sched_cfg"]
    with (
        fake_bfrt.serving(device) as server,
        BfrtSwitch("127.0.0.1", server.port, program="codel") as switch,
    ):
        says = f"queues: {2 * most} is too many for port 132, which has {most}"
        with pytest.raises(ParameterError, match=says):
            control_plane.set_up(switch, {132: 132}, queues=2 * most)
        assert not device.entries["pipe.I.wire"] and not weights
        control_plane.set_up(switch, {132: 132}, queues=most)
        assert len(weights) == most


def test_queue_states():
    switch = FakeSwitch()
    at = 511 * codel.QUEUES + 2
    switch.registers["dropping"][at] = 1
    switch.registers["drop_next"][at] = (WORD - 1, 5)
    switch.registers["signals"][at] = (3, 4)
    table = control_plane.queue_states(switch, [0, 511], 4)
    assert table[["port", "queue"]].to_numpy().tolist() == [[p, q] for p in (0, 511) for q in range(4)]
    row = table.iloc[6]
    assert row.to_dict() == {
        "port": 511, "queue": 2, "dropping": True, "count": 4, "drop_next_ns": WORD - 1, "marked": 3, "dropped": 4,
    }  # fmt: skip
    assert not table.drop(index=6)[["dropping", "count", "drop_next_ns", "marked", "dropped"]].any(axis=None)
    control_plane.clear(switch)
    assert not control_plane.queue_states(switch, [511], 4).iloc[2, 2:].any()


# ---- BMv2 against the model ------------------------------------------------------------------------------------------


def checksum(header):
    """RFC 1071."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(flow=0, ecn=0, *, ip=4, words=5, protocol=6):
    """A TCP or UDP packet, or one without ports, of a flow; IPv4 with options if `words` is above 5."""
    payload = struct.pack("!HH", 1024 + flow, 5001) + bytes(16 if protocol == 6 else 4)
    if ip == 6:
        word = 6 << 28 | ecn << 20
        header = (
            struct.pack("!IHBB", word, len(payload), protocol, 64) + bytes(15) + b"\1" + bytes(15) + b"\2"
        )
        return bytes(12) + b"\x86\xdd" + header + payload
    options = bytes(4 * (words - 5))
    head = struct.pack(
        "!BBHHHBBH4s4s", 4 << 4 | words, ecn, 4 * words + len(payload), flow, 0, 64, protocol, 0, b"\12\1\0\1",
        b"\12\2\0\1",
    )  # fmt: skip
    head = head[:10] + struct.pack("!H", checksum(head + options)) + head[12:]
    return bytes(12) + b"\x08\x00" + head + options + payload


_pisa = numba.njit(error_model="numpy")(PisaCoDel.on_dequeue)


class Recorder(PisaCoDel):
    """The model, with what it was asked and answered."""

    name: ClassVar[str] = "codel_pisa_recorder"

    class State(PisaCoDel.State):
        rows = 0
        log = np.zeros(5 * 40_000, np.int64)

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        ecn = packet.ecn
        verdict = _pisa(p, s, stats, queue, packet, now_ns)
        at = 5 * s.rows
        if at < len(s.log):
            s.log[at] = now_ns + p.clock_ns
            s.log[at + 1] = now_ns - packet.enqueued_ns
            s.log[at + 2] = queue.bytes
            s.log[at + 3] = ecn
            s.log[at + 4] = verdict
            s.rows += 1
        return verdict


def recorded():
    """Packets as they leave two queues of a simulated port: time, delay, bytes behind it, ECN, verdict, in each.

    CUBIC with and without ECN, and UDP above what is left in the second half. The clock wraps after 3 s.
    """
    aqm = Recorder(from_now=False, wrap=True, clock_ms=WORD / MS - 3000)
    scenario = Scenario(
        bottleneck=Bottleneck(
            rate_mbps=40, buffer_packets=1000, aqm=aqm, scheduler="drr", queues=(Queue(), Queue())
        ),
        flows=[
            *(Flow("cubic", rtt_ms=rtt, ecn="classic" if rtt > 10 else "off") for rtt in (5, 20, 60)),
            *(Flow("cubic", rtt_ms=10, queue=1, ecn=ecn) for ecn in ("off", "classic")),
            Flow("udp", rtt_ms=10, queue=1, rate_mbps=30, start_s=2.5, stop_s=3.5),
        ],
        duration_s=5.0,
        seed=8,
    )
    sim = Simulation(scenario, sample_s=None)
    sim.run(scenario.duration_s)
    logs = []
    for queue in range(2):
        state = sim.aqm_state(queue)
        rows = int(state["rows"])
        assert 1000 < rows < 40_000
        logs.append(np.array(state["log"][: 5 * rows]).reshape(rows, 5))
    return logs


def walks(seed, rows):
    """One queue's packets at random: delays walk about the target and jump, depths and ECN change, time wraps."""
    rng = np.random.default_rng(seed)
    step = rng.choice([MS // 100, MS // 10, MS, 8 * MS, 90 * MS, 2**31 - 1, 2**31 + 1], rows,
                      p=[0.1, 0.35, 0.35, 0.15, 0.046, 0.002, 0.002])  # fmt: skip
    now = rng.integers(2**33, 2**48) + np.cumsum(step + rng.integers(0, 1000, rows))
    delay = np.abs(12 * MS + np.cumsum(rng.normal(0, MS, rows)).astype(np.int64)) % (40 * MS)
    exact = rng.random(rows) < 0.05
    delay[exact] = rng.choice([TARGET - 1, TARGET, TARGET + 1, 0, 2**31, WORD - 1], exact.sum())
    depth = rng.choice([0, 1, 2, 40], rows, p=[0.02, 0.3, 0.3, 0.38])
    return [
        (int(n), int(d), int(q), int(e))
        for n, d, q, e in zip(now, delay, depth, rng.integers(0, 4, rows), strict=True)
    ]


def interleaved(streams, seed=1):
    """Rows of all streams in one random order that keeps each stream's own; with the stream's number."""
    order = np.repeat(np.arange(len(streams)), [len(s) for s in streams])
    np.random.default_rng(seed).shuffle(order)
    following = [iter(s) for s in streams]
    return [(int(i), next(following[i])) for i in order]


def flows_of_queues(bench, ports, queues):
    """For each port and queue a flow that the switch puts there, asked by packets that change no state."""
    flows = {}
    for port in ports:
        packets = [(TestInput(now_ns=i), frame(flow=i, protocol=17)) for i in range(20 * queues)]
        for flow, answer in enumerate(bench.exchange(packets, port=port)):
            assert answer.decision == 0
            flows.setdefault((answer.port, answer.value), flow)
    assert len(flows) == len(ports) * queues
    return flows


def compared(bench, streams, flows):
    """Send each stream as a flow of its own to a queue of its own; every decision and the states are the model's."""
    places = list(flows)[: len(streams)]
    models = [Model() for _ in streams]
    packets, expected, into = [], [], []
    for i, (now, delay, depth, ecn) in interleaved(streams):
        (out, _), flow = places[i], flows[places[i]]
        given = TestInput(now_ns=now, queue_delay_ns=delay, queue_depth=depth * MTU_DEPTH[bench.target])
        packets.append((given, frame(flow, ecn, protocol=17)))
        into.append(1 - out)
        expected.append((i, ecn, models[i].decide(now, delay, depth, ecn)))
    answers = bench.exchange(packets, port=into)
    wrong = [
        n
        for n, ((i, _, verdict), answer) in enumerate(zip(expected, answers, strict=True))
        if (answer.port, answer.value, answer.decision) != (*places[i], DECISION[verdict])
    ]
    assert not wrong, (
        f"{len(wrong)} of {len(packets)}, the first {wrong[0]}: {expected[wrong[0]]}, {answers[wrong[0]]}"
    )
    for (_, ecn, verdict), (_, sent), answer in zip(expected, packets, answers, strict=True):
        marked = verdict == MARK
        assert answer.frame == (sent if not marked else frame_with_ce(sent)), f"ecn {ecn}, verdict {verdict}"
    for i, (place, model) in enumerate(zip(places, models, strict=True)):
        row = control_plane.queue_states(bench.switch, [place[0]], 8).iloc[place[1]]
        dropping, time_ns, count = model.words
        assert (row.dropping, row.drop_next_ns, row["count"]) == (dropping, time_ns, max(count - 1, 0))
        mine = [verdict for j, _, verdict in expected if j == i]
        assert (row.marked, row.dropped) == (mine.count(MARK), mine.count(DROP_LATE))
    return [verdict for _, _, verdict in expected]


def frame_with_ce(sent):
    """As it should come out when it is marked."""
    head = bytearray(sent[14:34])
    head[1] |= 3
    head[10:12] = bytes(2)
    head[10:12] = struct.pack("!H", checksum(bytes(head)))
    return sent[:14] + bytes(head) + sent[34:]


def check_frames(answers, sent, given):
    """All packets come out as they came in, but marked ones with CE; `given` is what `frame` made them from."""
    for answer in answers:
        if answer.decision != 1:
            assert answer.frame == sent
        elif given.get("ip") == 6:
            assert answer.frame == frame(flow=9, **given | {"ecn": 3})
        else:
            assert answer.frame == frame_with_ce(sent) and checksum(answer.frame[14:34]) == 0


@pytest.fixture(scope="module", params=TARGETS)
def bench(request):
    with running_on(request.param, "codel", queues=8) as bench:
        control_plane.set_up(bench.switch, {0: 1, 1: 0}, queues=8)
        yield bench


@pytest.fixture(scope="module")
def flows(bench):
    return flows_of_queues(bench, (0, 1), 8)


@pytest.fixture
def empty(bench):
    control_plane.clear(bench.switch)


@pytest.mark.slow
@pytest.mark.usefixtures("empty")
def test_switch_decides_as_the_model_in_a_simulated_queue(bench, flows):
    logs = recorded()
    mtu = codel.MODEL.mtu_bytes
    streams = [[(now, delay, size // mtu, ecn) for now, delay, size, ecn, _ in log.tolist()] for log in logs]
    assert sum(map(len, streams)) >= 10_000
    for log in logs:
        assert log[0, 0] < WORD < log[-1, 0]
    verdicts = compared(bench, streams, flows)
    # and the simulator decided so, too
    assert sorted(verdicts) == sorted(np.concatenate([log[:, 4] for log in logs]).tolist())
    assert verdicts.count(DROP_LATE) > 20 and verdicts.count(MARK) > 20


@pytest.mark.slow
@pytest.mark.usefixtures("empty")
def test_switch_decides_as_the_model_of_random_walks(bench, flows):
    """In all queues of two ports at once."""
    streams = [walks(seed, 900) for seed in range(len(flows))]
    assert sum(map(len, streams)) >= 10_000
    verdicts = compared(bench, streams, flows)
    assert min(verdicts.count(v) for v in (PASS, MARK, DROP_LATE)) > 300


@pytest.mark.slow
@pytest.mark.usefixtures("empty")
def test_switch_counts_far(bench, flows):
    """A long overload: the count goes through many classes of the math unit, the clock wraps several times."""
    place, flow = next(iter(flows.items()))
    stream = [(WORD - 300 * MS + i * 4 * MS, 30 * MS, 20, i % 2) for i in range(4000)]
    verdicts = compared(bench, [stream], {place: flow})
    assert verdicts.count(PASS) < 2000
    state = control_plane.queue_states(bench.switch, [place[0]], 8).iloc[place[1]]
    assert state["count"] > 2000


@pytest.mark.p4
@pytest.mark.slow
def test_bmv2_decides_as_listing_1():
    """Compiled with -DLISTING_1: each decision and each register are the model's."""
    model = Compiled(codel.Listing1())
    with running("codel", "-DLISTING_1") as bench:
        control_plane.set_wires(bench.switch, {0: 1})
        rows = [*walks(1, 4000), *overload(1)]
        packets = [
            (TestInput(now_ns=now, queue_delay_ns=delay, queue_depth=depth), frame(3, ecn, protocol=17))
            for now, delay, depth, ecn in rows
        ]
        answers = bench.exchange(packets)
        for (now, delay, depth, ecn), (_, sent), answer in zip(rows, packets, answers, strict=True):
            model.queues["bytes"] = depth * codel.MODEL.mtu_bytes
            verdict = model.call("on_dequeue", 0, packet(enqueued_ns=now - delay, ecn=ecn), now)
            assert answer.decision == DECISION[verdict if verdict != MARK or ecn else DROP_LATE]
            assert answer.frame == (frame_with_ce(sent) if answer.decision == 1 else sent)
        for name in ("dropping", "count", "last_count", "drop_next_ns"):
            (word,) = bench.switch.read_register(f"codel.{name}", 1 << 5, 1)
            assert word == model.s[0][name]


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("given", "decision"),
    [
        ({"ecn": 0}, 2),
        ({"ecn": 1}, 1),
        ({"ecn": 2, "protocol": 17}, 1),
        ({"ecn": 3}, 1),
        ({"ecn": 2, "words": 7}, 2),  # IPv4 options
        ({"ecn": 2, "protocol": 1}, 1),  # no ports
        ({"ecn": 0, "ip": 6}, 2),
        ({"ecn": 1, "ip": 6}, 1),
        ({"ecn": 3, "ip": 6, "protocol": 17}, 1),
    ],
)
def test_switch_marks_or_drops(bench, given, decision):
    sent = frame(flow=9, **given)
    packets = [
        (TestInput(now_ns=at * MS, queue_delay_ns=20 * MS, queue_depth=99), sent) for at in (1, 102, 103)
    ]
    answers = bench.exchange(packets)
    assert [a.decision for a in answers] == [0, decision, 0]
    if decision == 2:
        assert answers[1].frame == sent
    elif given.get("ip") == 6:
        assert answers[1].frame == frame(flow=9, **given | {"ecn": 3})
    else:
        assert answers[1].frame == frame_with_ce(sent) and checksum(answers[1].frame[14:34]) == 0
    assert answers[0].frame == answers[2].frame == sent


def test_switch_spreads_flows(bench, flows):
    """A flow stays in its queue, and packets that are not IP have one, too."""
    packets = [(TestInput(now_ns=1), frame(flow, ip=ip, protocol=17)) for ip in (4, 6) for flow in range(64)]
    first, second = (bench.exchange(packets) for _ in range(2))
    assert [a.value for a in first] == [a.value for a in second]
    for answers in (first[:64], first[64:]):
        assert {a.value for a in answers} == set(range(8))
    other = bytes(12) + b"\x88\xcc" + bytes(40)
    answer: Answer = bench.exchange([(TestInput(now_ns=1), other)])[0]
    assert (answer.port, answer.value, answer.frame) == (1, 0, other)


@pytest.mark.p4
@pytest.mark.slow
def test_bmv2_with_its_own_clock_and_queue():
    """No test input: 40 packets wait at 100 a second, so some 400 ms; the first signal comes after an interval."""
    with running("codel", test_input=False) as bench:
        switch = bench.switch
        control_plane.set_up(switch, {0: 1}, rate_mbps=100 * 1514 * 8 / 1e6, buffer_packets=40)
        begin = time.monotonic()
        history = []
        while (now := time.monotonic() - begin) < 2:
            for i in range(10):
                bench.sockets[0].send(frame(flow=i, ecn=2 if i % 2 else 0))
            row = control_plane.queue_states(switch, [1]).iloc[0]
            history.append((now, row.dropping, row.marked + row.dropped, row["count"]))
            time.sleep(0.02)
        row = control_plane.queue_states(switch, [1]).iloc[0]
    assert row.marked > 2 and row.dropped > 2
    assert row["count"] == row.marked + row.dropped + 1  # it never left the dropping state
    entered = next(at for at, dropping, *_ in history if dropping)
    signalled = next(at for at, _, signals, _ in history if signals)
    # looks come late where the machine is busy
    assert entered < 1 and signalled - entered > 0.02
    assert all(a[2] <= b[2] for a, b in pairwise(history))
