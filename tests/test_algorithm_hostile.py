"""Algorithms that hang, reach beyond their queue, or answer nonsense: one line that names the place, in every event."""

from __future__ import annotations

import math
import signal
import subprocess
import sys

import numba
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings, strategies as st
from test_algorithm import cell

import cctoolkit as cct
from cctoolkit import aqm
from cctoolkit._support import kernels
from cctoolkit._support.algorithm import base, guards
from cctoolkit.aqm import DROP, DROP_LATE, MARK, PACKET, PASS, QUEUE, Aqm, peer
from cctoolkit.cca import ACK, FLOW, Cca
from cctoolkit.errors import AlgorithmError, ParameterError

INT64 = st.integers(-(2**63), 2**63 - 1)


def simulated(aqm="codel", cca="reno", queues=1, duration_s=3.0):
    """A scenario in which every event of AQMs and congestion controls happens."""
    scheduler = {"scheduler": "drr", "queues": [cct.Queue()] * queues} if queues > 1 else {}
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=5, buffer_packets=12, aqm=aqm, **scheduler),
        flows=[cct.Flow(cca, ecn="classic"), cct.Flow(cca, loss=0.2, ecn="off")],
        duration_s=duration_s,
    )
    return cct.simulate(scenario, record=False)


# ---- every event, every mistake --------------------------------------------------------------------------------------

HELPERS = """
@numba.njit
def endless(n):
    while n > -1:
        n += 1
    return n

@numba.njit
def element(table, i):
    return table[i]

@numba.njit
def nested(n):
    return sum_of(n)

@numba.njit
def sum_of(n):
    total = 0
    for i in range(n):
        for j in range(n):
            total += i ^ j
    return total
"""
#: What is wrong, the line that has to be named (a part of it), and what is said about it.
WRONG = {
    "while": ("while s.count > -1:\n    s.count += 1", "while s.count > -1:", "still looping after"),
    "while true": ("while True:\n    s.count += 1\n    if s.count < 0:\n        break", "", "still looping after"),
    "for": ("for i in range(10**15):\n    s.count += i & 1", "for i in range", "still looping after"),
    "nested": ("for i in range(10**7):\n    for j in range(10**7):\n        s.count ^= i * j", "for ", "still looping"),
    "swallowed": (
        "try:\n    for i in range(10**15):\n        s.count += i & 1\nexcept Exception:\n    s.count = 1 // 0\n"
        "for i in range(10**15):\n    s.count += i & 1",
        "for i in range", "still looping after",
    ),
    "in a function called": ("s.count += endless(abs(s.count))", "while n > -1:", "still looping after"),
    "in what that calls": ("s.count += nested(10**7)", "for ", "still looping after"),
    "index": ("s.count += s.table[s.count + 10**9]", "s.table[s.count", "IndexError"),
    "negative index": ("s.count += s.table[s.count - 10**9]", "s.table[s.count", "IndexError"),
    "index written": ("s.table[s.count + 10**9] = 1", "s.table[s.count", "IndexError"),
    "index in a function called": ("s.count += element(s.table, s.count + 10**9)", "return table[i]", "IndexError"),
    "raise": ("if s.count >= 0:\n    raise ValueError('no')", "raise ValueError", "ValueError: no"),
}  # fmt: skip
PEER = {
    "peer": (
        "s.count += peer(queue, queue.queues).packets",
        "peer(queue, queue.queues)",
        "there is no queue",
    ),
    "peer, negative": (
        "s.count += peer(queue, -1 - queue.index).packets",
        "peer(queue, -1",
        "there is no queue",
    ),
    "peer, written": (
        "other = peer(queue, 10**9)\nother.probability = 1.0",
        "other = peer",
        "there is no queue",
    ),
}
EVENTS = [(kind, event) for kind in (Aqm, Cca) for event in kind.events]
CASES = [
    pytest.param(kind, event, source, part, says, id=f"{event}: {name}")
    for kind, event in EVENTS
    for name, (source, part, says) in (WRONG | (PEER if kind is Aqm else {})).items()
]


def mine(kind, event, body):
    end = "\nreturn PASS" if kind is Aqm else ""
    lines = "\n".join(f"        {line}" for line in (body + end).splitlines())
    parameter = "    update_ms: float = 5.0\n" if kind is Aqm else ""
    return (
        f"from cctoolkit.aqm import peer\n{HELPERS}\nclass Mine({kind.__name__}):\n{parameter}"
        f"    class State:\n        count = 0\n        table = [0] * 4\n"
        f"    def {event}({', '.join(kind.arguments)}):\n{lines}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "event", "body", "part", "says"), CASES)
def test_a_mistake_in_any_event_ends_the_run_and_names_the_line(kind, event, body, part, says):
    source = mine(kind, event, body)
    with pytest.raises(AlgorithmError) as caught:
        simulated(**{kind.__name__.lower(): cell(source)})
    text = str(caught.value)
    named = source.splitlines()[int(text.partition("line ")[2].partition(":")[0]) - 1]
    assert text.startswith("Mine.") and "\n" not in text
    assert part in named and repr(named.strip()) in text and says in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codel", "dualpi2", "pie", "bbr3", "cubic", "prague"])
def test_guards_change_no_result(name, monkeypatch):
    """The bundled algorithms, compiled as if they were a user's."""
    key = "aqm" if name in Aqm.registry else "cca"
    as_ours = simulated(**{key: name})
    monkeypatch.setattr(base, "_COMPILED", {})
    for module in (base, guards):  # random() alone may change what belongs to the simulator
        monkeypatch.setattr(module, "is_ours", lambda thing: thing.__module__.endswith("algorithm.random"))
    compiled = []
    real = guards.GuardedCompiler.define_pipelines
    monkeypatch.setattr(
        guards.GuardedCompiler, "define_pipelines", lambda self: compiled.append(1) or real(self)
    )
    monkeypatch.setattr(kernels._KernelCache, "load_overload", lambda *_: None)
    monkeypatch.setattr(kernels._KernelCache, "save_overload", lambda *_: None)
    as_users = simulated(**{key: name})
    assert compiled
    pd.testing.assert_frame_equal(as_ours.flows, as_users.flows)
    pd.testing.assert_frame_equal(as_ours.queues, as_users.queues)


def test_the_limit_is_for_one_event():
    """More iterations than that in a run, but not in an event."""

    class Busy(Aqm):
        class Stats:
            rounds = 0

        @staticmethod
        def on_enqueue(p, s, stats, queue, packet, now_ns):
            for _ in range(500_000):
                stats.rounds += 1 + (stats.rounds & queue.packets & 1) * 0
            return PASS

    run = simulated(aqm=Busy, duration_s=0.8)
    assert run.aqm_stats["rounds"][0] > guards.STEPS


def test_a_function_that_calls_itself_is_refused():
    source = mine(Aqm, "on_dequeue", "s.count = down(s.count)").replace(
        "class Mine", "@numba.njit\ndef down(n):\n    return 1 + down(n - 1) if n > 0 else 0\n\nclass Mine"
    )
    with pytest.raises(
        AlgorithmError, match=r"Mine\.down \(called\), line \d+: .*down calls itself: use a loop"
    ):
        simulated(aqm=cell(source))


@pytest.mark.slow
def test_ctrl_c_ends_a_run_whose_algorithm_is_slow():
    code = (
        "import cctoolkit as cct\n"
        "from test_algorithm_hostile import Slow\n"
        "print('begins', flush=True)\n"
        "scenario = cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=1000, buffer_packets=100, aqm=Slow),\n"
        "                        flows=[cct.Flow()], duration_s=1e6)\n"
        "cct.simulate(scenario, record=False)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "begins\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in errors.splitlines()[-1]


class Slow(Aqm):
    """Ends, but late."""

    class State:
        total = 0

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        for i in range(1_000_000):
            s.total += i ^ s.total
        return PASS


# ---- verdicts --------------------------------------------------------------------------------------------------------


class Verdict(Aqm):
    """Returns a number at one event."""

    at: str = "on_enqueue"
    number: str = "0"  # text, since parameters are not negative
    update_ms: float = 5.0

    def derived(self):
        """The event and the number."""
        return {"event": Aqm.events.index(self.at), "verdict": int(self.number)}

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        return p.verdict if p.event == 0 else PASS

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return p.verdict if p.event == 1 else PASS

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        return p.verdict if p.event == 2 else PASS


ALLOWED = {
    "on_enqueue": (PASS, MARK, DROP),
    "on_dequeue": (PASS, MARK, DROP, DROP_LATE),
    "on_update": None,  # ignored
}


@settings(max_examples=60, deadline=None)
@given(event=st.sampled_from(Aqm.events), verdict=st.one_of(st.integers(-3, 9), INT64))
@example(event="on_enqueue", verdict=DROP_LATE)
@example(event="on_dequeue", verdict=7)
def test_a_verdict_is_allowed_or_an_error(event, verdict):
    allowed = ALLOWED[event]
    if allowed is None or verdict in allowed:
        simulated(aqm=Verdict(at=event, number=str(verdict)), duration_s=0.5)
        return
    with pytest.raises(AlgorithmError) as caught:
        simulated(aqm=Verdict(at=event, number=str(verdict)), duration_s=0.5)
    assert str(caught.value).startswith(f"Verdict.{event} returned {verdict} for queue 0 at ")


# ---- other queues ----------------------------------------------------------------------------------------------------


@numba.njit
def packets_of(queue, index):
    return peer(queue, index).packets


class Neighbour(Aqm):
    """Looks at another queue, itself or through a function, and writes into it."""

    number: str = "0"
    way: int = 0

    def derived(self):
        """The index."""
        return {"other": int(self.number)}

    class State:
        seen = 0

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if p.way == 0:
            s.seen += peer(queue, p.other).packets
        elif p.way == 1:
            s.seen += packets_of(queue, p.other)
        else:
            other = peer(queue, p.other)
            other.probability = 0.5
        return PASS


@settings(max_examples=60, deadline=None)
@given(index=st.one_of(st.integers(-3, 5), INT64), queues=st.integers(1, 4), way=st.integers(0, 2))
def test_a_queue_is_there_or_an_error(index, queues, way):
    aqm = Neighbour(number=str(index), way=way)
    if 0 <= index < queues:
        simulated(aqm=aqm, queues=queues, duration_s=0.2)
        return
    with pytest.raises(
        AlgorithmError, match=r"line \d+: .*peer\(queue, index\): there is no queue"
    ) as caught:
        simulated(aqm=aqm, queues=queues, duration_s=0.2)
    called = "packets_of (called)" if way == 1 else "on_enqueue"
    assert str(caught.value).startswith(f"Neighbour.{called}, line ")


# ---- what belongs to the simulator -----------------------------------------------------------------------------------

WRITABLE = {
    "queue": ("probability",),
    "packet": ("label",),
    "flow": ("cwnd", "ssthresh", "pacing_bps"),
    "ack": (),
}
RECORDS = {"queue": QUEUE, "packet": PACKET, "flow": FLOW, "ack": ACK}
WAYS = {
    "its argument": "{record}.{field} = {record}.{field}",
    "another name": "x = {record}\nx.{field} = {record}.{field}",
    "a function called": "put({record})",
    "peer": "peer(queue, 0).{field} = queue.{field}",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "field", "way"),
    [
        (record, field, way)
        for record, dtype in RECORDS.items()
        for field in dtype.names or ()
        for way in WAYS
        if field != "rng" and (way != "peer" or record == "queue")
    ],
)
def test_only_what_may_be_set_can_be_set(record, field, way):
    kind = Aqm if record in Aqm.arguments else Cca
    event = kind.events[0]
    put = f"@numba.njit\ndef put(record):\n    record.{field} = record.{field}\n\nclass Mine"
    source = mine(kind, event, WAYS[way].format(record=record, field=field)).replace("class Mine", put)
    algorithm = cell(source)()
    if field in WRITABLE[record]:
        algorithm.addresses()
        return
    with pytest.raises(AlgorithmError, match=f"can be set|{record} is read-only") as caught:
        algorithm.addresses()
    assert f".{field} = " in str(caught.value)


# ---- windows ---------------------------------------------------------------------------------------------------------


@numba.njit
def put(flow, numbers):
    flow.cwnd, flow.ssthresh, flow.pacing_bps = numbers[0], numbers[1], numbers[2]


class Window(Cca):
    """Sets numbers at one event."""

    at: str = "on_ack"
    numbers: str = "10.0 10.0 0.0"

    def derived(self):
        """The event and the numbers."""
        return {"event": Cca.events.index(self.at), "set": np.array([float(x) for x in self.numbers.split()])}

    @staticmethod
    def on_start(p, s, stats, flow, ack, now_ns):
        if p.event == 0:
            put(flow, p.set)

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        if p.event == 1:
            put(flow, p.set)

    @staticmethod
    def on_loss(p, s, stats, flow, ack, now_ns):
        if p.event == 2:
            put(flow, p.set)

    @staticmethod
    def on_ecn(p, s, stats, flow, ack, now_ns):
        if p.event == 3:
            put(flow, p.set)

    @staticmethod
    def on_recovered(p, s, stats, flow, ack, now_ns):
        if p.event == 4:
            put(flow, p.set)

    @staticmethod
    def on_rto(p, s, stats, flow, ack, now_ns):
        if p.event == 5:
            put(flow, p.set)

    @staticmethod
    def on_send(p, s, stats, flow, ack, now_ns):
        if p.event == 6:
            put(flow, p.set)


NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, -1.0, 1e-300, 1e300, 2.0**63, math.inf, -math.inf, math.nan]), st.floats()
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(event=st.sampled_from(Cca.events), cwnd=NUMBERS, ssthresh=NUMBERS, pacing_bps=NUMBERS)
def test_whatever_the_window_is_the_run_ends(event, cwnd, ssthresh, pacing_bps):
    cca = Window(at=event, numbers=f"{cwnd!r} {ssthresh!r} {pacing_bps!r}")
    try:
        run = simulated(cca=cca, duration_s=0.5)
    except AlgorithmError as err:
        assert "all must be non-negative numbers" in str(err)
        assert not all(x >= 0 for x in (cwnd, ssthresh, pacing_bps))
    else:
        assert np.isfinite(run.flows.goodput_mbps).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: aqm.IRed(max_notifications=10**15), "IRed.max_notifications: 1000000000000000 is too large"),
        (
            lambda: aqm.TofinoPi2(control_plane_ms=1e9, update_ms=0.1),
            "TofinoPi2.update_ms: 0.1, TofinoPi2.control_plane_ms",
        ),
        (lambda: aqm.IntegerAbc(reference_kbps=2**70), "IntegerAbc.reference_kbps: .* is too large"),
    ],
)
def test_parameters_beyond_computing_are_named(make, message):
    with pytest.raises(ParameterError, match=message):
        make().state_record(), make().parameter_record()


@pytest.mark.parametrize("coupling", [1e-300, 1e300])
def test_any_coupling_can_be_computed(coupling):
    assert 0 <= aqm.DualPi2(coupling=coupling).derived()["max_classic"] <= 1
