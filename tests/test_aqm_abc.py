"""ABC against the closed forms of its meter and average, and its integers against both."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap

import naive_aqm as naive
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from one_queue import Compiled, Link, packet, traffic

from cctoolkit.aqm import DROP, PASS, abc as abc_module
from cctoolkit.aqm.abc import Abc, IntegerAbc
from cctoolkit.errors import ParameterError

MS = 1_000_000
SEEDS = st.integers(1, 2**32)
LOADS = st.sampled_from([0.8, 1.1, 1.5, 4.0])


def labelled(twin_class, aqm):
    """A link whose twin compares labels too."""
    compiled = Compiled(aqm)

    class Twin(twin_class):
        def __init__(self, p):
            super().__init__(p)
            self.errors = []

        def on_enqueue(self, queue, pk, now):
            verdict = super().on_enqueue(queue, pk, now)
            self.errors.append(pk.label - self.label)
            return verdict

    return Link(compiled, Twin(aqm), limit=24)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(SEEDS, LOADS, st.sampled_from([0.05, 3.0]), st.integers(1, 6))
def test_closed_forms(seed, load, memory_s, aggregates):
    """Recursive meter and average are the sums over all packets that came: activities and decisions."""
    link = labelled(naive.Abc, Abc(meter_memory_s=memory_s))
    link.run(*traffic(seed, 700, load=load, aggregates=aggregates, sizes=(64, 590, 1514)))
    assert np.abs(link.twin.errors).max() < 1e-12
    assert link.compiled.stats["dropped"][0] + link.compiled.stats["accepted"][0] == 700


def test_closed_forms_with_drops():
    link = labelled(naive.Abc, Abc())
    link.run(*traffic(3, 1500, load=4.0, aggregates=3))
    assert link.compiled.stats["dropped"][0] > 300


def meter(aqm, at_ns, size=1514, aggregate=0):
    """Activities of packets that come at these times."""
    abc = Compiled(aqm)
    out = []
    for now in at_ns:
        pk = packet(size=size, aggregate=aggregate)
        abc.call("on_enqueue", 0, pk, int(now))
        out.append(pk["label"][0])
    return np.array(out)


@pytest.mark.parametrize("cls", [Abc, IntegerAbc])
def test_meter_finds_a_constant_rate(cls):
    """From the first packets on, not only after a memory; n packets in n - 1 gaps make a bit too much."""
    gap_ns = 302_800  # 1514 bytes at 40 Mbit/s
    n = np.arange(1, 20_000)
    activity = meter(cls(), (n - 1) * gap_ns)
    rate = 10e3 * 2**activity
    assert rate[9] == pytest.approx(40e6 * 10 / 9, rel=0.02)
    assert rate[1000:] == pytest.approx(40e6, rel=0.01)


def test_meter_closed_form_for_a_constant_rate():
    """The geometric sum: S after n packets is b (1 - e^(-βng)) / (1 - e^(-βg)), R = β S / (1 - e^(-β(n-1)g))."""
    g, beta = 302_800e-9, 1 / 3
    n = np.arange(2, 3000)
    s = 8 * 1514 * (1 - np.exp(-beta * n * g)) / (1 - np.exp(-beta * g))
    want = np.log2(beta * s / (1 - np.exp(-beta * (n - 1) * g)) / 10e3)
    assert meter(Abc(), np.arange(2999) * 302_800)[1:] == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("cls", [Abc, IntegerAbc])
def test_first_packet_has_a_finite_activity(cls):
    first, same_time = meter(cls(), [10**9, 10**9])
    assert first == pytest.approx(math.log2(1514 * 8 / 3 / 10e3), abs=0.01)
    assert same_time == pytest.approx(first + 1, abs=0.01)


def test_reference_rates():
    """Twice the reference rate, one less in activity; the last one given goes on."""
    aqm = Abc(reference_kbps=(10, 20))
    at = np.arange(100) * MS
    a, b, c, far = (meter(aqm, at, aggregate=k)[-1] for k in (0, 1, 2, 10**6))
    assert a == pytest.approx(b + 1) and b == c == far


def test_threshold():
    """Equation (2): the queue at which a packet is dropped, by how far it is above the average activity."""
    for excess, limit in ((0.0, 20), (0.5, 12), (1.0, 6), (-1.0, 36)):
        for cls, one in ((Abc, 1), (IntegerAbc, 65536)):
            verdicts = []
            for queue in (limit - 1, limit + 1):
                abc = Compiled(cls())
                own = meter(cls(), [10**9])[0]
                abc.s["activity_count"] = 1000 * one
                abc.s["activity_sum"] = 1000 * one * (own - excess)
                abc.s["averaged_ns"] = 10**9
                abc.queues["packets"] = queue
                verdicts.append(abc.call("on_enqueue", 0, packet(ecn=2), 10**9))
            assert verdicts == [PASS, DROP], (cls, excess)


@settings(max_examples=15, deadline=None)
@given(SEEDS, LOADS, st.sampled_from([0.05, 3.0]), st.integers(1, 6))
def test_integers_do_not_overflow(seed, load, memory_s, aggregates):
    aqm = IntegerAbc(meter_memory_s=memory_s)
    link = labelled(naive.IntegerAbc, aqm)
    link.run(*traffic(seed, 1200, load=load, aggregates=aggregates, sizes=(64, 590, 1514), start_ns=2**40))
    assert not np.any(link.twin.errors)


def test_integers_at_a_hundred_gigabit():
    aqm = IntegerAbc()
    at, packets = traffic(1, 3000, load=1.0, rate_bps=100e9, start_ns=2**50)
    compiled = Compiled(aqm)
    compiled.s["volume"][0, 0] = int(100e9 / 8 * 3) << 6  # as after a long time at this rate
    compiled.s["first_ns"][0, 0], compiled.s["last_ns"][0, 0] = 1, at[0]
    for now, pk in zip(at, packets, strict=True):
        compiled.call("on_enqueue", 0, pk, int(now))
    assert pk["label"][0] == pytest.approx(math.log2(100e9 / 10e3), abs=0.01)


def test_integer_error():
    """Against the floating-point form on the same packets, with pauses of all lengths."""
    rng = np.random.default_rng(5)
    gaps = np.concatenate([rng.exponential(scale, 2000) for scale in (1e4, 3e5, 1e6, 5e7, 3e5, 2e9, 3e5)])
    at = np.cumsum(gaps.astype(np.int64) + 1)
    error = meter(IntegerAbc(), at) - meter(Abc(), at)
    since_s = (at - at[0]) * 1e-9
    assert np.abs(error[(since_s > 10e-6) & (since_s < 15)]).max() < 0.02
    assert np.abs(error[since_s > 15]).max() < 0.003


def test_integer_error_of_a_slow_sender():
    """Half a reference rate in small packets: what rounding takes at each step must not add up."""
    at = np.arange(600) * 100 * MS
    error = meter(IntegerAbc(), at, size=64) - meter(Abc(), at, size=64)
    assert np.abs(error[200:]).max() < 0.003


def test_integers_decide_as_floats_do():
    """The two differ only where the queue is within a tenth of a packet of the threshold."""
    at, packets = traffic(11, 6000, load=1.5, aggregates=4)
    both = [Compiled(cls()) for cls in (Abc, IntegerAbc)]
    rng = np.random.default_rng(1)
    differ = 0
    for now, pk in zip(at, packets, strict=True):
        queue = rng.integers(0, 25)
        verdicts = []
        for abc in both:
            abc.queues["packets"] = queue
            verdicts.append(abc.call("on_enqueue", 0, pk.copy(), int(now)))
        differ += verdicts[0] != verdicts[1]
    assert differ < 0.02 * len(packets)
    assert both[0].stats["dropped"][0] > 500


def test_integer_form_uses_no_division_and_no_floats():
    """For each packet there are additions, multiplications, shifts and tables (the label is for those who look)."""
    helpers = ("measure_fixed", "log2_fixed", "decayed", "steps_between", "leading_one")
    functions = [getattr(abc_module, name).py_func for name in helpers] + [IntegerAbc.on_enqueue]
    for function in functions:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and "packet.label" in ast.unparse(node):
                continue
            if isinstance(node, ast.BinOp) and "ONE" not in ast.unparse(node):
                assert isinstance(
                    node.op, ast.Add | ast.Sub | ast.Mult | ast.LShift | ast.RShift | ast.BitAnd
                )
            if isinstance(node, ast.Constant):
                assert not isinstance(node.value, float)
            assert not (isinstance(node, ast.Name) and node.id == "math")


@pytest.mark.parametrize("cls", [Abc, IntegerAbc])
@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"reference_kbps": 0}, "reference_kbps"),
        ({"reference_kbps": ()}, "reference_kbps"),
        ({"reference_kbps": [10, -1]}, "reference_kbps"),
        ({"meter_memory_s": 0}, "meter_memory_s"),
        ({"aggregates": 0}, "aggregates"),
        ({"reference_kbps": (1, 2, 3), "aggregates": 2}, "aggregates"),
    ],
)
def test_bad_parameters(cls, bad, match):
    with pytest.raises(ParameterError, match=f"{cls.__name__}.*{match}"):
        cls(**bad)


def test_activities_are_what_the_compiled_meter_says():
    """The meter on arrays, beside the AQM's own on the same packets; three aggregates, any first time."""
    at, packets = traffic(5, 900, load=1.2, aggregates=3, sizes=(64, 1514), start_ns=10**18)
    compiled = Compiled(Abc())
    for now, pk in zip(at, packets, strict=True):
        compiled.call("on_enqueue", 0, pk, int(now - at[0]))
    fields = (np.array([pk[name][0] for pk in packets]) for name in ("bytes", "aggregate"))
    found = abc_module.activities(at, *fields)
    assert found == pytest.approx([pk["label"][0] for pk in packets], abs=1e-9)


def test_activities_of_nothing_and_of_nonsense():
    none = np.zeros(0, np.int64)
    assert len(abc_module.activities(none, none, none)) == 0
    with pytest.raises(ParameterError, match="1 times, 0 sizes"):
        abc_module.activities(np.zeros(1), none, none)
    with pytest.raises(ParameterError, match="positive"):
        abc_module.activities(none, none, none, reference_kbps=0)
