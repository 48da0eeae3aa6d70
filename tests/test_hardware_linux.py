"""The queue disciplines of hardware/linux/aqm: their arithmetic, decision for decision, beside the Python models.

The workloads are those with which BMv2's programs are compared with the same models, so the three agree. The rest of a
queue discipline (packets, marks, statistics, timers) is tested in a kernel, by test_testbed_modules.py.
"""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
import test_hardware_abc as bmv2_abc
import test_hardware_codel as bmv2_codel
import test_hardware_ired as bmv2_ired
import test_hardware_pi2 as bmv2_pi2
from hardware_l4s import MS, UPDATE, recorded, recorder, walk
from hypothesis import example, given, settings, strategies as st
from linux_aqm import FIELDS, MODULES, Packet, Twin, compiled
from one_queue import Compiled, Link, packet, traffic
from tools import examples, mostly_slow

from cctoolkit.aqm import (
    DROP,
    DROP_LATE,
    MARK,
    PASS,
    Abc,
    IntegerAbc,
    IntegerIRed,
    IntegerPi2,
    IRed,
    Pi2,
    PisaCoDel,
)
from cctoolkit.aqm.codel_p4 import math_unit
from cctoolkit.aqm.ired import red_probabilities
from cctoolkit.errors import ParameterError
from cctoolkit.testbed.paper_qdiscs import module_parameters

PUBLISHED_CODEL = {"mtu_bytes": 0, "from_now": False, "count_first": False, "wrap": True, "signed": False}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("linux"))


# ---- tables, exactly -------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(300))
@given(st.integers(2, 1_999_999) | st.integers(1, 1999).map(lambda ms: 1000 * ms))
@example(2)
@example(1_999_999)
def test_math_unit(library, interval_us):
    twin = Twin(library, PisaCoDel(target_ms=0.001, interval_ms=interval_us / 1e3))
    table, scale = math_unit(1000 * interval_us)
    assert twin.table(length=17, kind=np.uint32).tolist() == [*table, scale]


@settings(deadline=None, max_examples=100)
@given(
    st.tuples(st.integers(0, 67_107), st.integers(0, 67_107)).filter(lambda x: x[0] < x[1]),
    st.integers(0, 5000),
    st.booleans(),
)
@example((20_000, 40_000), 2000, True)
@example((0, 1), 1000, False)
def test_probabilities_of_ired(library, thresholds, coupling, square):
    low, high = (us / 1e3 for us in thresholds)
    twin = Twin(library, IntegerIRed(min_ms=low, max_ms=high, coupling=coupling / 1e3, square=square))
    library.ired_table.restype = ctypes.POINTER(ctypes.c_uint32)
    wanted = red_probabilities(low, high, coupling=coupling / 1e3, square=square)
    for scalable, table in enumerate(wanted):
        assert library.ired_table(twin.queue, scalable)[: len(table)] == table.tolist()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(20_000, 100_000_000),
    st.integers(1, 100_000_000),
    st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=5),
)
@example(3_000_000, 300_000, [10])
def test_tables_of_abc(library, meter_us, average_us, rates):
    """Powers, logarithms, young meters and offsets, all made without floating point."""
    aqm = IntegerAbc(
        reference_kbps=tuple(rates), meter_memory_s=meter_us / 1e6, average_memory_s=average_us / 1e6
    )
    twin, wanted = Twin(library, aqm), aqm.derived()
    for name in ("power_table", "log_table", "start_table", "offset"):
        assert twin.table(name, len(wanted[name])).tolist() == wanted[name].tolist(), name
    steps = [wanted[f"{kind}_{what}"] for kind in ("meter", "average") for what in ("step_ns", "reciprocal")]
    assert twin.table("decay", 4).tolist() == steps


# ---- decisions on a link, exactly ------------------------------------------------------------------------------------

MODELS = {
    "pi2": Pi2(),
    "pi2, any ECT, other gains": Pi2(identifier="any_ect", alpha=0.16, beta=3.2, coupling=1.5, update_ms=32),
    "pi2, by DSCP": Pi2(identifier="dscp"),
    "pi2 on departure": IntegerPi2(control_plane_ms=1),
    "pi2 on departure, slow control plane": IntegerPi2(control_plane_ms=50, update_ms=4),
    "ired": IntegerIRed(),
    "ired, not squared, by DSCP": IntegerIRed(square=False, identifier="dscp", recirculation_us=500),
    "ired, few notifications": IntegerIRed(min_ms=1, max_ms=3, max_notifications=2, recirculation_us=5000),
    "abc": IntegerAbc(reference_kbps=5000.0, base_packets=100.0),
    "abc, several rates": IntegerAbc(
        reference_kbps=(1000.0, 20_000.0, 400.0), aggregates=4, gamma_packets=3.0
    ),
    "codel": PisaCoDel(),
    "codel, as published": PisaCoDel(**PUBLISHED_CODEL, clock_ms=2000),
    "codel, as in hardware/programs": PisaCoDel(from_now=False, wrap=True, clock_ms=3900),
}


def loads(n, seed=1):
    """Under- and overload of 100 Mbit/s in turns, with all codepoints; times since the first packet."""
    at, packets = [], []
    start = 0
    for k, load in enumerate((1.3, 0.7, 1.05, 2.0, 0.9)):
        part, more = traffic(
            10 * seed + k,
            n // 5,
            load=load,
            ecn=(0, 1, 2, 3),
            start_ns=start,
            sizes=(1514, 590, 64),
            aggregates=5,
        )
        start = int(part[-1]) + 1
        at.append(part)
        packets += more
    return np.concatenate(at) - at[0][0], packets


def compared(library, aqm, at, packets, seed=1):
    """`Link` asserts that all decisions are the same."""
    link = Link(Compiled(aqm, seed=seed), Twin(library, aqm, seed=seed), limit=1000)
    return link.run(at, packets)


@pytest.mark.slow
@pytest.mark.parametrize("model", mostly_slow(MODELS, list(MODELS)[::3]))
def test_decisions(library, model):
    link = compared(library, MODELS[model], *loads(10_000))
    assert link.drops + link.marks > 0


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_decisions_of_many_packets(library, model):
    aqm = MODELS[model]
    link = compared(library, aqm, *loads(60_000))
    assert link.sent > 30_000
    stats = [int(x) for x in link.compiled.stats[0].item()]
    _, *own, state = link.twin.shows()
    if isinstance(aqm, Pi2 | IntegerPi2 | PisaCoDel):  # signals by kind; entries and signals
        assert own == stats and min(stats) > 30
    elif isinstance(aqm, IRed):  # notifications, lost ones
        assert own == stats[:2] and state == link.compiled.state("average")
    else:  # accepted
        assert own[0] == stats[0]
        assert (own[1], state) == (link.compiled.state("activity_sum"), link.compiled.state("activity_count"))


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(list(MODELS)),
    st.integers(1, 2**64 - 1),
    st.floats(0.3, 4.0),
    st.sampled_from([(1514,), (1514, 64), (60, 1000, 9014)]),
    st.sampled_from([1, 2, 8, 100]),
)
def test_decisions_with_any_load(library, model, seed, load, sizes, burst):
    at, packets = traffic(
        seed % 2**32, 600, load=load, ecn=(0, 1, 2, 3), sizes=sizes, aggregates=70, burst=burst, rate_bps=20e6
    )
    link = Link(
        Compiled(MODELS[model], seed=seed, rate_bps=20e6),
        Twin(library, MODELS[model], seed=seed),
        limit=300,
        rate_bps=20e6,
    )
    link.run(at - at[0], packets)


# ---- BMv2's workloads ------------------------------------------------------------------------------------------------


def packet_after(now_ns, delay_ns, ecn=0, size=1514, aggregate=0):
    return Packet(enqueued_ns=now_ns - delay_ns, bytes=size, aggregate=aggregate, ecn=ecn)


class Facts:
    """What a twin asks of a queue."""

    def __init__(self, packets=0, octets=0):
        self.packets, self.bytes = packets, octets


@pytest.mark.slow
def test_codel_on_the_workload_of_bmv2(library):
    """Walks, and two queues of a simulated port."""
    model = bmv2_codel.codel.MODEL
    logs = [[row[:4] for row in log.tolist()] for log in bmv2_codel.recorded()]
    walks = [
        [(now, delay, depth * model.mtu_bytes, ecn) for now, delay, depth, ecn in bmv2_codel.walks(seed, 900)]
        for seed in range(16)
    ]
    verdicts = []
    for stream in logs + walks:
        python, linux = bmv2_codel.Model(), Twin(library, model)
        for now, delay, octets, ecn in stream:
            python.codel.queues["bytes"] = octets
            pk = packet(enqueued_ns=now - delay, ecn=ecn)
            verdict = python.codel.call("on_dequeue", 0, pk, now)
            assert linux.on_dequeue(Facts(octets=octets), packet_after(now, delay, ecn), now) == verdict
            verdicts.append(verdict)
    assert min(verdicts.count(v) for v in (PASS, MARK, DROP_LATE)) > 300


@pytest.mark.slow
def test_ired_on_the_workload_of_bmv2(library):
    """Delays of a simulated queue, and walks; one packet has left before the next comes."""
    streams = [bmv2_ired.recorded(), *(walk(i, 3000, 5, 50) for i in range(4))]
    counts = np.zeros(3, int)
    for seed, rows in enumerate(streams, 1):
        python, linux = Compiled(bmv2_ired.MODEL, seed=seed), Twin(library, bmv2_ired.MODEL, seed=seed)
        now = 2**32 - 40 * MS
        for delay, ecn in rows:
            pk, same = packet(ecn=ecn, enqueued_ns=now), packet_after(now, 0, ecn)
            verdict = python.call("on_enqueue", 0, pk, now)
            assert linux.on_enqueue(Facts(), same, now) == verdict
            counts[verdict] += 1
            if verdict == PASS:
                verdict = python.call("on_dequeue", 0, pk, now + delay)
                assert linux.on_dequeue(Facts(), same, now + delay) == verdict
                counts[verdict] += 1
            now += delay + 1000
        assert linux.shows()[1] == python.stats["notifications"][0]
    assert counts.min() > 300


@pytest.mark.slow
def test_pi2_on_the_workload_of_bmv2(library):
    """All packets and updates of a simulation, with draws and controller of the switch."""
    aqm = IntegerPi2(control_plane_ms=0)
    log = recorded(bmv2_pi2.scenario(recorder(IntegerPi2, "pi2_recorder_linux")(control_plane_ms=0)))
    linux = Twin(library, aqm, seed=log[0].rng % 2**64)
    verdicts = []
    for row in log:
        if row.verdict == UPDATE:
            linux.on_update(Facts(), None, row.now_ns)
            continue
        same = packet_after(row.now_ns, row.delay_ns, row.ecn)
        assert linux.on_dequeue(Facts(), same, row.now_ns) == row.verdict
        verdicts.append(row.verdict)
    assert len(verdicts) > 8000 and min(verdicts.count(v) for v in (MARK, DROP_LATE)) > 30


@pytest.mark.slow
def test_abc_on_the_workload_of_bmv2(library):
    """The paper's experiments, and many aggregates with bursts and pauses of up to 700 s."""
    streams = [bmv2_abc.recorded(bmv2_abc.Recorder(), *run, 3500) for run in bmv2_abc.RUNS]
    streams.append(bmv2_abc.made(bmv2_abc.Recorder(), 3, 4000))
    for rows in streams:
        linux = Twin(library, IntegerAbc())
        for row in rows:
            now = row["now_ns"]
            same = packet_after(now, 0, size=row["bytes"], aggregate=row["aggregate"])
            assert linux.on_enqueue(Facts(row["depth"]), same, now) == row["verdict"]
        assert sum(row["verdict"] == DROP for row in rows) > 50


# ---- the models in floating point ------------------------------------------------------------------------------------


class Disagreeing(Twin):
    """Goes the Python model's way, and counts where its own would be another."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.differ = self.decisions = 0

    def compare(self, link):
        both = link._both

        def counted(event, q, pk, now):
            twin, link.twin = link.twin, None
            verdict = both(event, q, pk, now)
            link.twin = twin
            facts = link.facts[q]
            mine = getattr(self, event)(facts, told_of(pk), now)
            self.decisions += event != "on_update"
            self.differ += mine != verdict
            return verdict

        link._both = counted
        return link


def told_of(pk):
    return Packet(*(int(pk[name][0]) for name in ("enqueued_ns", "bytes", "aggregate", "ecn")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aqm", "most"),
    [
        # a draw lies between two probabilities that differ by up to 0.002
        (IRed(), 0.002),
        # a queue lies between two thresholds: activities are off by up to 0.02, that is 0.3 packets
        (Abc(reference_kbps=5000.0, base_packets=100.0), 0.01),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_models_in_floating_point(library, aqm, most):
    """Asked in the queue of the model in floating point, the module seldom decides otherwise."""
    twin = Disagreeing(library, aqm)
    link = twin.compare(Link(Compiled(aqm), twin, limit=1000))
    link.run(*loads(50_000))
    assert twin.decisions >= 50_000
    assert twin.differ <= most * twin.decisions


# ---- parameters ------------------------------------------------------------------------------------------------------

HOSTILE = {
    "pi2": [
        {"target_us": 0}, {"update_us": 0}, {"update_us": 9}, {"target_us": 2**32 - 1}, {"alpha_uhz": 2**32 - 1},
        {"beta_uhz": 400_000_001}, {"coupling_milli": 2**32 - 1}, {"identifier": 3}, {"control_plane_us": 2**32 - 1},
    ],
    "ired": [
        {"max_us": 67_108}, {"min_us": 40_000}, {"min_us": 2**32 - 1}, {"max_us": 2**32 - 1}, {"identifier": 2**31},
        {"coupling_milli": 2**32 - 1}, {"max_notifications": 0}, {"max_notifications": 2**32 - 1},
        {"recirculation_us": 2**32 - 1},
    ],
    "abc": [
        {"aggregates": 0}, {"aggregates": 100_001}, {"aggregates": 2**32 - 1}, {"meter_memory_us": 0},
        {"average_memory_us": 2**32 - 1}, {"reference_kbps": "0"}, {"reference_kbps": ""}, {"gamma_packets": 2**32 - 1},
        {"reference_kbps": ",".join(65 * "5")},
    ],
    "codel_pisa": [
        {"target_us": 0}, {"target_us": 100_000}, {"interval_us": 2_000_000}, {"interval_us": 2**32 - 1},
        {"interval_us": 0},
    ],
}  # fmt: skip
PAIRS = {"pi2": Pi2(), "ired": IntegerIRed(), "abc": IntegerAbc(), "codel_pisa": PisaCoDel()}


@pytest.mark.parametrize(("kind", "bad"), [(kind, bad) for kind, rows in HOSTILE.items() for bad in rows])
def test_modules_refuse(library, kind, bad):
    wrong = Twin(library, PAIRS[kind], **bad).wrong
    assert wrong is not None and any(name in wrong.decode() for name in (*bad, "max_us"))


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_whatever_they_accept_is_safe(library, data):
    """Any parameters: refused, or no undefined behaviour (which would end this process) with any packets."""
    kind = data.draw(st.sampled_from(list(FIELDS)))
    number = st.integers(0, 2**32 - 1) | st.integers(0, 100_000) | st.sampled_from([0, 1, 2, 10])
    bad = {name: data.draw(number) for name in data.draw(st.sets(st.sampled_from(FIELDS[kind])))}
    if kind == "abc" and data.draw(st.booleans()):
        bad["reference_kbps"] = ",".join(map(str, data.draw(st.lists(number, max_size=9))))
    twin = Twin(library, PAIRS[kind], **bad)
    if twin.wrong is not None:
        return
    steps = st.sampled_from([0, 1, 15, 16, 1000, 10**6, 10**9, 2**32, 10**13, 2**58])
    now = 0
    for _ in range(40):
        now = min(now + data.draw(steps), 2**62)
        pk = packet_after(
            now,
            min(data.draw(steps), now),
            data.draw(st.integers(0, 3)),
            data.draw(st.sampled_from([0, 1, 64, 1514, 2**32 - 1])),
            data.draw(st.sampled_from([0, 1, 63, 64, 2**32 - 1])),
        )
        facts = Facts(
            data.draw(st.sampled_from([0, 1, 1000, 2**32 - 1])), data.draw(st.sampled_from([0, 1514, 2**32]))
        )
        facts.head_enqueued_ns = pk.enqueued_ns
        assert twin.on_enqueue(facts, pk, now) in (PASS, MARK, DROP)
        assert twin.on_dequeue(facts, pk, now) in (PASS, MARK, DROP_LATE)
        twin.on_update(facts, pk, now)
        assert 0 <= twin.shows()[0] < 2**32


@pytest.mark.parametrize(
    ("aqm", "match"),
    [
        (Pi2(target_ms=0.0005), "target_ms.*microseconds"),
        (Pi2(alpha=1e-7), "alpha.*microhertz"),
        (IRed(measure="depth"), "measure"),
        (IRed(weight=0.25), "weight"),
        (IRed(coupled=True), "coupled"),
        (Abc(reference_kbps=0.5), "reference_kbps"),
        (Abc(base_packets=12.5), "base_packets.*packets"),
        (PisaCoDel(clock_ms=0.0001), "clock_ms"),
    ],
)
def test_values_without_a_parameter(aqm, match):
    with pytest.raises(ParameterError, match=match):
        module_parameters(aqm)


def test_an_aqm_without_a_module():
    from cctoolkit.aqm import Csfq

    assert module_parameters(Csfq()) is None


# ---- sources ---------------------------------------------------------------------------------------------------------


def declared(kind):
    """Parameters of a module with their defaults, from its source."""
    text = (MODULES / f"sch_{kind}.c").read_text()
    names = re.findall(r"module_param(?:_array)?\((\w+),", text)
    names += re.findall(r"module_param_named\((\w+),", text)
    found = {}
    for name in names:
        variable = "signed_difference" if name == "signed" else name
        value = re.search(rf"^static [\w ]+ {variable}(?:\[\w+\])?(?: = ([^;]+))?;", text, re.MULTILINE)
        assert value is not None, name
        found[name] = value[1] or "0"
    return found


@pytest.mark.parametrize("kind", PAIRS)
def test_defaults_are_the_models(kind):
    """All parameters exist, have the defaults of the Python classes, and a description with a unit."""
    numbers = {"true": 1, "AQM_BY_ECT1": 0}
    found = {
        name: numbers.get(value, value) if not value.isdigit() else int(value)
        for name, value in declared(kind).items()
    }
    _, wanted = module_parameters(PAIRS[kind])
    if kind == "pi2":
        wanted |= {"control_plane_us": 1000}
    wanted |= {"limit": 1000}
    if kind == "abc":
        wanted["reference_kbps"] = "{ 10 }"
    assert found == wanted
    text = (MODULES / f"sch_{kind}.c").read_text()
    for name in found:
        assert re.search(rf"MODULE_PARM_DESC\({name},", text), name
        assert f"`{name}`" in (MODULES.parent / "README.md").read_text(), name


def test_sources_say_their_licence_and_are_all_built():
    sources = [*MODULES.glob("*.[ch]"), MODULES / "Kbuild"]
    assert {f"sch_{kind}.c" for kind in PAIRS} <= {p.name for p in sources}
    for path in sources:
        assert "SPDX-License-Identifier: GPL-2.0" in path.read_text().splitlines()[0], path
    listed = (MODULES / "Kbuild").read_text()
    for path in MODULES.glob("*.c"):
        assert f"{path.stem}.o" in listed, path
