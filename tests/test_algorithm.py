"""Mistakes in an AQM or a congestion control of one's own: refused, with the line and what to do."""

from __future__ import annotations

import itertools
import linecache
import re

import pytest

import cctoolkit as cct
from cctoolkit._support import kernels
from cctoolkit._support.algorithm import base as algorithm
from cctoolkit.errors import AlgorithmError, ParameterError

BEGINNING = """
import math, random as rnd, time
import numba, numpy as np
import cctoolkit as cct
from cctoolkit.aqm import DROP, MARK, PASS, Aqm, CoDel, delay_ns, random
from cctoolkit.cca import Cca, Reno
"""
COUNT = itertools.count()


def cell(source):
    """What a notebook does with a cell; gives what it defines."""
    name = f"a cell/{next(COUNT)}.py"  # no file, and a blank in its path
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {"__name__": "__main__"}
    exec(compile(BEGINNING, "beginning", "exec"), scope)
    exec(compile(source, name, "exec"), scope)
    return scope["Mine"]


def aqm(body, *, before="", parameters="", state="", event="on_dequeue", arguments=None):
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    arguments = arguments or "p, s, stats, queue, packet, now_ns"
    return (
        f"{before}\nclass Mine(Aqm):\n    target_ms: float = 5.0\n{parameters}\n    class State:\n"
        f"        count = 0\n        mean = 0.0\n{state}\n    def {event}({arguments}):\n{lines}\n"
    )


def cca(body, state="pass"):
    return (
        f"class Mine(Cca):\n    class State:\n        count = 0\n        {state}\n"
        f"    def on_ack(p, s, stats, flow, ack, now_ns):\n        {body}\n"
    )


def simulated(mine):
    own = issubclass(mine, cct.aqm.Aqm)
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=20, buffer_packets=100, aqm=mine if own else "tail_drop"),
        flows=[cct.Flow("reno" if own else mine, count=2)],
        duration_s=1,
    )
    return cct.simulate(scenario, record=False)


WAITED = "now_ns - packet.enqueued_ns"
#: A cell, the line that has to be named (a part of it), and what is said about it.
MISTAKES = {
    "misspelt state": (aqm("s.cuont += 1\nreturn PASS"), "s.cuont += 1", "s has no field 'cuont' (count?)"),
    "misspelt parameter": (
        aqm(f"return DROP if {WAITED} > p.traget_ns else PASS"),
        "p.traget_ns",
        "p has no field 'traget_ns' (target_ns?); it has target_ms, target_ns",
    ),
    "misspelt queue": (aqm("x = 1\nreturn queue.length"), "queue.length", "queue has no field 'length'; it has index"),
    "misspelt flow": (cca("flow.cwd += 1"), "flow.cwd += 1", "flow has no field 'cwd' (cwnd?)"),
    "misspelt math": (aqm("s.mean = math.sqroot(2)\nreturn PASS"), "math.sqroot", "'math' has no attribute 'sqroot'"),
    "nothing returned": (aqm("s.count += 1"), "s.count += 1", "must return PASS, MARK or DROP on every path"),
    "one path without": (
        aqm("if packet.bytes > 5000:\n    return DROP"), "packet.bytes", "PASS, MARK or DROP on every path",
    ),
    "text returned": (aqm("return 'DROP'"), "return 'DROP'", "not the text 'DROP'"),
    "fraction returned": (aqm("return 0.5"), "return 0.5", "must return PASS, MARK or DROP, not a fraction"),
    "boolean returned": (aqm("return packet.bytes > 9"), "return packet", "not True or False"),
    "other number returned": (aqm("return 7"), "return 7", "not 7"),
    "window returned": (cca("return flow.cwnd + 1"), "return flow.cwnd", "must not return anything: set flow.cwnd"),
    "p forgotten": (aqm(f"return DROP if {WAITED} > target_ns else PASS"), "> target_ns", "not defined: p.target_ns?"),
    "s forgotten": (aqm("count += 1\nreturn PASS"), "count += 1", "count is not defined: s.count?"),
    "flow forgotten": (cca("cwnd = flow.cwnd + 1"), "cwnd = flow", "is set and never read: did you mean flow.cwnd"),
    "self": (aqm("return PASS if self.target_ms > 1 else DROP"), "self.target_ms", "there is no self"),
    "fraction in a whole number": (
        aqm("s.count += 0.5\nreturn PASS"), "s.count += 0.5", "would lose the fraction",
    ),
    "a parameter set": (aqm("p.target_ns = 3\nreturn PASS"), "p.target_ns = 3", "p is read-only"),
    "the queue set": (aqm("queue.packets = 0\nreturn PASS"), "queue.packets", "only probability of queue can be set"),
    "the flow set": (cca("flow.inflight = 0"), "flow.inflight = 0", "only cwnd, ssthresh, pacing_bps of flow"),
    "list in the state": (
        aqm("s.past.append(1)\nreturn PASS", state="        past = [0] * 4"), "append", "a fixed size and no append",
    ),
    "past the end": (
        aqm("s.past[s.count] = now_ns\ns.count += 1000\nreturn PASS", state="        past = [0] * 4"),
        "s.past[s.count]", "IndexError: index is out of bounds",
    ),
    "print": (aqm("print(s.count)\nreturn PASS"), "print(s.count)", "count in Stats"),
    "import inside": (aqm("import math\nreturn PASS"), "import math", "move the import outside"),
    "module not there": (aqm("s.mean = maths.sqrt(2)\nreturn PASS"), "maths.sqrt", "maths is not defined"),
    "clock": (aqm("s.mean = time.time()\nreturn PASS"), "time.time()", "time.time cannot be used here"),
    "numpy it has not": (aqm("s.mean = np.clip(s.mean, 0.0, 1.0)\nreturn PASS"), "np.clip", "not support clip(float64"),
    "other random numbers": (
        aqm("return DROP if rnd.random() < 0.1 else PASS"), "rnd.random()", "ignore the scenario's seed",
    ),
    "numpy's random numbers": (
        aqm("return DROP if np.random.rand() < 0.1 else PASS"), "np.random", "write random(queue) in an AQM",
    ),
    "random numbers of nobody": (aqm("return DROP if random() < 0.1 else PASS"), "random()", "random(queue) in an AQM"),
    "helper not compiled": (
        aqm("return helper(s)", before="def helper(s):\n    return PASS"), "return helper", "put @numba.njit before",
    ),
    "mistake in a helper": (
        aqm("return helper(s)", before="@numba.njit\ndef helper(s):\n    return s.cuont"), "return s.cuont", "(count?)",
    ),
    "global variable": (aqm("global N\nN += 1\nreturn PASS", before="N = 0"), "N += 1", "keep it in State"),
    "global list": (aqm("LOG.append(1)\nreturn PASS", before="LOG = []"), "LOG.append", "LOG cannot be used"),
    "text of a parameter": (
        aqm("return PASS if p.mode == 'a' else DROP", parameters="    mode: str = 'a'"), "p.mode", "derived()",
    ),
    "text compared": (aqm("return DROP if packet.ecn == 'CE' else PASS"), "'CE'", "compares a number with text"),
    "no end": (aqm("while True:\n    s.count += 1"), "def on_dequeue", "an endless loop"),
    "raise": (
        aqm("if queue.packets > 5:\n    raise ValueError('too many')\nreturn PASS"), "raise", "ValueError: too many",
    ),
    "assert": (aqm("s.count += 1\nassert s.count < 9\nreturn PASS"), "assert s.count", "AssertionError"),
    "except": (aqm("try:\n    return PASS\nexcept ValueError:\n    return DROP"), "except", "check before the"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_in_a_function_names_the_line(name):
    source, part, says = MISTAKES[name]
    line = next(n for n, text in enumerate(source.splitlines(), 1) if part in text)
    with pytest.raises(AlgorithmError) as caught:
        simulated(cell(source))
    assert re.match(rf"Mine\.\w+(?: \(called\))?, line {line}: ", str(caught.value))
    assert part in str(caught.value) and says in str(caught.value)
    assert "\n" not in str(caught.value)


#: A cell that is refused at once, when the class is made.
CLASSES = {
    "with self": (aqm("return PASS", arguments="self, p, s, stats, queue, packet, now_ns"), "in this order and with"),
    "too few": (aqm("return PASS", arguments="queue, packet"), r"must take \(p, s, stats, queue, packet, now_ns\)"),
    "other order": (aqm("return PASS", arguments="packet, queue, p, s, stats, now_ns"), "in this order"),
    "misspelt event": (aqm("return PASS", event="on_deque"), r"Mine\.on_deque: no such event; .* on_enqueue"),
    "event without on": (aqm("return PASS", event="dequeue"), r"Mine\.dequeue: no such event"),
    "no type": (
        aqm("return PASS", parameters="    limit_ms = 5.0"), r"Mine\.limit_ms: .* a type: limit_ms: float = 5\.0",
    ),
    "no type for another default": ("class Mine(CoDel):\n    target_ms = 1.0", r"a type: target_ms: float = 1\.0"),
    "no default": (aqm("return PASS", parameters="    limit_ms: float"), r"Mine\.limit_ms: .* needs a default"),
    "dict": (aqm("return PASS", state="        per = {}"), r"Mine\.State\.per: {} must be a number"),
    "None": (aqm("return PASS", state="        last = None"), r"Mine\.State\.last: None must be a number"),
    "empty list": (aqm("return PASS", state="        past = []"), r"Mine\.State\.past: \[\] .* np\.zeros\(16\)"),
    "text": (cca("pass", state="phase = 'slow'"), r"Mine\.State\.phase: 'slow' must be a number"),
    "no first value": (aqm("return PASS", state="        last: int"), r"Mine\.State\.last: needs an initial value"),
    "a built-in's name": (
        aqm("return PASS", parameters="    name = 'codel'"), r"'codel' is taken.*name = \"my_codel\"",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_mistake_in_a_class_is_refused_with_the_name(name):
    source, says = CLASSES[name]
    known = dict(cct.aqm.Aqm.registry)
    with pytest.raises(ParameterError, match=says) as caught:
        cell(source)
    assert "\n" not in str(caught.value)
    assert cct.aqm.Aqm.registry == known


FINE = {
    "whole nanoseconds of a fraction": aqm("s.next_ns = now_ns + 0.5\nreturn PASS", state="        next_ns = 0"),
    "array, helper, constant, random numbers": aqm(
        "s.past[s.count % 4] = half(now_ns)\ns.count += 1\nreturn DROP if random(queue) < RATE else PASS",
        before="RATE = 0.001\n@numba.njit\ndef half(x):\n    return x // 2", state="        past = np.zeros(4)",
    ),
    "division by zero": aqm("s.mean = s.mean / 0\nx = s.count // 0\nreturn PASS"),
    "whole milliseconds": aqm(
        f"return DROP if {WAITED} > p.limit_ns else PASS", parameters="    limit_ms: int = 20"
    ),
    "compiled by hand": "class Mine(Aqm):\n    @numba.njit\n"
    "    def on_dequeue(p, s, stats, queue, packet, now_ns):\n        return PASS",
    "other names": aqm("return MARK if a.ecn == 3 else PASS", arguments="p, s, t, q, a, n"),
    "another default": "class Mine(CoDel):\n    target_ms: float = 1.0",
    "None, else a number": aqm("x = None\nif s.count > 3:\n    x = 5\nreturn PASS if x is None else DROP"),
    "nothing to do": cca("pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_what_is_no_mistake_runs(name):
    assert simulated(cell(FINE[name])).queues.sent_packets[0] > 500


def test_a_class_may_be_defined_again():
    """As when a cell is run again."""
    for factor in (1, 2):
        mine = cell(aqm(f"return DROP if {WAITED} > {factor} * p.target_ns else PASS"))
        assert cct.Bottleneck(rate_mbps=1, buffer_packets=9, aqm="mine").aqm == mine()
    assert simulated(mine).queues.max_delay_ms[0] < 10.1


def test_the_first_failure_ends_the_run():
    """Millions of failures would take minutes to report: one for each packet."""
    failures = []
    mine = cell(aqm("s.count += 1\nassert s.count < 9\nreturn PASS"))
    with pytest.raises(AlgorithmError) as caught:
        simulated(mine)
    err = caught.value.__cause__
    while err is not None:
        failures.append(err)
        err = err.__cause__
    assert len(failures) == 1 and isinstance(failures[0], AssertionError)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [cct.aqm.Aqm, cct.cca.Cca])
def test_what_is_built_in_passes_the_checks(kind, monkeypatch):
    """Compiled anew: what comes from the cache has not been checked."""
    compiled = []
    monkeypatch.setattr(
        kernels._KernelCache, "load_overload", lambda self, *_: compiled.append(self._function)
    )
    monkeypatch.setattr(kernels._KernelCache, "save_overload", lambda *_: None)
    monkeypatch.setattr(algorithm, "_COMPILED", {})
    names = [n for n, cls in kind.registry.items() if cls.__module__.startswith("cctoolkit.")]
    for name in names:
        try:
            kind.registry[name]().addresses()
        except ParameterError as err:
            assert "only in the Linux kernel" in str(err)
    assert len(compiled) > 15
