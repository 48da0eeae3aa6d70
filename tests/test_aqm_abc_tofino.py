"""ABC as a Tofino does it: against its own definition in whole numbers of any size, and against ABC."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from one_queue import Compiled, Link, packet, traffic

import cctoolkit as cct
from cctoolkit.aqm import DROP, PASS, Abc, TofinoAbc, abc_tofino as module
from cctoolkit.errors import ParameterError
from cctoolkit.experiments.abc import clients, scenario

MS = 1_000_000
WORD = (1 << 32) - 1


class Twin:
    """By the definitions: epochs in a dictionary, logarithms computed anew, numbers without end."""

    def __init__(self, p):
        self.p = p
        self.half_life = 2 ** p.half_life_bits()
        self.count_epoch = 2 ** p.count_epoch_bits()
        self.meters, self.departures = {}, {}
        self.average = 0
        self.carried = []
        self.label = math.nan

    @staticmethod
    def middle(x, bits, shift=0):
        """log2 of the middle of all numbers with the same leading bits."""
        low = x.bit_length() - 1 - bits
        if low <= 0:
            return math.log2(x + shift)
        first = x >> low << low
        return math.log2(first + (2**low - 1) / 2 + shift)

    def activity(self, aggregate, size, now):
        step = now * 2**15 // self.half_life
        epoch, within = divmod(step, 8 * 2**15)
        log_length = round(2**15 * self.middle(size - 14, 7, 14))
        weight = ((log_length + within) // 128 + 0.5) / 256
        meter = self.meters.setdefault(aggregate, SimpleNamespace(first=step, mature=False, epochs={}))
        here = meter.epochs.get(epoch, 0) + round(2**weight / self.p.unit_bytes())
        meter.epochs[epoch] = min(here, WORD)
        total = min(meter.epochs[epoch] + (meter.epochs.get(epoch - 1, 0) >> 8), WORD)
        reference = self.p.reference_rates_bps()[aggregate]
        rate = 8 * self.p.unit_bytes() / (self.half_life * 1e-9 / math.log(2))
        activity = (
            round(65536 * self.middle(total, 7)) + round(65536 * math.log2(rate / reference)) - 2 * within
        )
        age = step - meter.first
        meter.mature |= age >= 16 * 2**15
        if not meter.mature and age > 0:
            low = max(age.bit_length() - 7, 0)
            t = ((age >> low << low) + (2**low - 1) / 2) / 2**15
            activity -= round(65536 * math.log2(1 - 2**-t))
        return activity

    def on_enqueue(self, queue, packet, now):
        activity = self.activity(packet.aggregate, packet.bytes, now)
        self.label = activity / 65536
        excess = activity - (self.average >> 8)
        threshold = math.floor(self.p.base_packets - self.p.gamma_packets * (excess + 1) / 65536)
        threshold = min(max(math.floor(self.p.min_packets), threshold), queue.limit_packets - 1)
        if len(self.carried) > threshold:
            return DROP
        self.carried.append(excess)
        return PASS

    def on_dequeue(self, queue, packet, now):
        epoch, within = divmod(now, self.count_epoch)
        self.departures[epoch] = self.departures.get(epoch, 0) + 1
        count = self.departures[epoch] + self.departures.get(epoch - 1, 0)
        # in eighths of a bit
        packets = round(65536 * self.middle(count, 7)) // 8192 - within * 8 // self.count_epoch
        shift, further = self.p.gains(queue.limit_packets)
        gain_shift, more = int(shift[packets + 8]), int(further[packets + 8])
        part = self.carried.pop(0) * 256 // 2**gain_shift
        self.average += part + (part // 2**more if more else 0)
        return PASS


def labelled(aqm, limit=24):
    """A link whose twin compares labels and averages, too."""
    compiled = Compiled(aqm)

    class Checked(Twin):
        errors, averages = [], []

        def on_enqueue(self, queue, pk, now):
            verdict = super().on_enqueue(queue, pk, now)
            self.errors.append(pk.label - self.label)
            return verdict

        def on_dequeue(self, queue, pk, now):
            verdict = super().on_dequeue(queue, pk, now)
            self.averages.append(int(compiled.state("average")) - self.average)
            return verdict

    return Link(compiled, Checked(aqm), limit=limit)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 2**32),
    st.sampled_from([0.8, 1.1, 1.5, 4.0]),
    st.sampled_from([0.05, 3.0]),
    st.integers(1, 6),
    st.sampled_from([1, 16, 64]),
)
def test_definition(seed, load, memory_s, aggregates, limit):
    """Labels, decisions and averages. Bursts of up to hundreds of packets, pauses of many half-lives of the average."""
    link = labelled(TofinoAbc(meter_memory_s=memory_s, aggregates=64), limit)
    at, packets = traffic(seed, 1200, load=load, aggregates=aggregates, sizes=(64, 590, 1514), start_ns=2**40)
    pauses = np.zeros(len(at), np.int64)
    pauses[400:] += 700 * MS
    pauses[800:] += 300_000 * MS  # more than 64 half-lives of the meter
    link.run(at + pauses, packets)
    assert not np.any(link.twin.errors) and not np.any(link.twin.averages)
    assert len(link.twin.averages) > 0


def meter(aqm, at_ns, size=1514, aggregate=0):
    """Activities of packets that come at these times."""
    abc = Compiled(aqm)
    abc.queues["limit_packets"] = 24
    out = []
    for now in at_ns:
        pk = packet(size=size, aggregate=aggregate)
        abc.call("on_enqueue", 0, pk, int(now))
        out.append(pk["label"][0])
    return np.array(out)


def like(aqm, **parameters):
    """ABC with the memory that this one has."""
    return Abc(meter_memory_s=aqm.meter_s(), **parameters)


def test_the_memory_is_close_to_the_requested_one():
    assert TofinoAbc().meter_s() == pytest.approx(3.0, rel=0.04)
    for seconds in (0.05, 1.0, 30.0):
        assert 2**-0.5 <= TofinoAbc(meter_memory_s=seconds).meter_s() / seconds <= 2**0.5


def forgotten(aqm, at_ns):
    """What activities lack because only this epoch and the one before count."""
    half_life = 2 ** aqm.half_life_bits()
    volume, last, out = {}, 0, []
    for now in at_ns.tolist():
        epoch = now // (8 * half_life)
        volume = {e: v * 2 ** (-(now - last) / half_life) for e, v in volume.items() if v > 1e-9}
        volume[epoch] = volume.get(epoch, 0) + 1
        recent = volume[epoch] + volume.get(epoch - 1, 0)
        out.append(math.log2(sum(volume.values()) / recent))
        last = now
    return np.array(out)


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 590, 1514, 9014])
@pytest.mark.parametrize("start_ns", [0, 12_345_678_901])
def test_activities_are_abcs(size, start_ns):
    """From the third step of a meter's age on, with gaps of all lengths."""
    rng = np.random.default_rng(5)
    mean_gaps = (1e4, 3e5, 1e6, 5e7, 3e5, 2e9, 3e5)
    gaps = [int(gap) + 1000 for mean in mean_gaps for gap in rng.exponential(mean, 2000)]
    at = start_ns + np.cumsum(gaps)
    aqm = TofinoAbc()
    lost = forgotten(aqm, at)
    error = meter(aqm, at, size) - meter(like(aqm), at, size) + lost
    exact = 0.04 if size > 64 else 0.35  # of four units of 16 bytes half a one is much
    step_ns, age = 2**16, at - at[0]
    old = age > 2 * step_ns
    assert np.all(np.abs(error[old]) < exact + 1.5 * step_ns / age[old])
    assert np.quantile(np.abs(error[2000:]), 0.9) < (0.02 if size > 64 else 0.05)
    assert abs(error[old].mean()) < 0.006
    assert lost.max() < 0.6 and np.mean(lost > 0.05) < 0.01


@pytest.mark.slow
def test_activities_after_long_pauses():
    """Up to 8 half-lives nothing is forgotten; later what is a packet's worth, and the meter is young no more."""
    aqm = TofinoAbc()
    half_life = 2 ** aqm.half_life_bits()
    for pause in (5, 10, 12, 40, 70, 1000):
        at = 10**9 + np.concatenate(
            [np.arange(20_000) * 100_000, 2 * 10**9 + np.arange(50) * MS + pause * half_life]
        )
        error = (meter(aqm, at) - meter(like(aqm), at))[20_000:]
        assert np.abs(error).max() < (0.02 if pause < 12 else 0.5), pause
        assert np.abs(error[20:]).max() < 0.05, pause


@pytest.mark.slow
def test_the_wrap_is_not_seen():
    """The same activities whether the clock wraps in between or not."""
    at = np.cumsum(np.random.default_rng(1).exponential(2 * MS, 20_000).astype(np.int64))
    start_ns = 2**48 - 2**34  # where an epoch begins, too
    assert start_ns + at[0] < 2**48 < start_ns + at[-1]
    assert np.array_equal(meter(TofinoAbc(), 2**39 + at), meter(TofinoAbc(), start_ns + at))


def test_a_meter_starts_when_the_clock_is_zero():
    """Neither an age of zero nor a time of zero is a meter that was not begun."""
    at = np.arange(200) * MS
    assert np.array_equal(meter(TofinoAbc(), at), meter(TofinoAbc(), 2**48 + at))
    assert np.array_equal(meter(TofinoAbc(), at), meter(TofinoAbc(), 2**40 + at))


@pytest.mark.parametrize("mbps", [0.1, 10, 500, 8000])
def test_sums_hold_the_largest_rate(mbps):
    """At the end of an epoch, when bytes weigh 256 times as much as at its begin."""
    aqm = TofinoAbc(largest_mbps=mbps)
    model = Compiled(aqm)
    volume = mbps * 1e6 / 8 * aqm.meter_s() / aqm.unit_bytes()  # S after a long time at this rate
    assert volume * 256 < 2**32
    model.s["known"][0, 0], model.s["mature"][0, 0] = 1, 1
    model.s["volume"][0, 1] = round(volume * 256) - round(1514 * 256 / aqm.unit_bytes())
    model.s["volume_cycle"][0, 1] = 9  # epoch 19
    pk = packet()
    model.call("on_enqueue", 0, pk, 20 * 2**34 - 1)
    assert pk["label"][0] == pytest.approx(math.log2(mbps * 100), abs=0.02)


def test_beyond_the_largest_rate_activity_stays():
    """Sums saturate; they do not begin anew."""
    at = np.arange(60_000) * 1000 + 2**34 - 2 * 10**7
    found = meter(TofinoAbc(largest_mbps=0.001), at, size=9014)
    assert np.all(np.diff(found[-30_000:]) > -0.05)


@pytest.mark.parametrize("buffer", [1, 2, 24, 500, 65536])
def test_gains(buffer):
    """One over the number of packets in the memory, within an eighth or so, and never so large that the packets that
    wait, all with the same excess, take the average beyond their activity."""
    aqm = TofinoAbc()
    shift, further = aqm.gains(buffer)
    gain = 2.0**-shift * (1 + np.where(further > 0, 2.0**-further, 0))
    assert gain.max() * buffer <= 1 / math.e
    packets = 2.0 ** ((np.arange(len(gain)) - 8) / 8)
    wanted = packets * aqm.average_memory_s * 1e9 / 2 ** aqm.count_epoch_bits()
    free = (gain < gain.max()) & (gain > gain.min())
    assert np.all(np.abs(np.log2(gain * wanted))[free] < 0.35)
    assert np.all(np.diff(gain) <= 0)


def test_the_average_is_utemas():
    """Of packets that leave at a link's rate, with activities that jump: as UTEMA finds it with a memory of 0.3 s."""
    aqm = TofinoAbc()
    model = Compiled(aqm)
    model.queues["limit_packets"] = 24
    rng = np.random.default_rng(2)
    at = 10**9 + np.cumsum(rng.exponential(240_000, 40_000).astype(np.int64))
    values = np.where((at // 10**9) % 2 == 0, 12.0, 9.0) + rng.normal(0, 0.5, len(at))
    total = count = last = 0.0
    errors = []
    for now, value in zip(at.tolist(), values, strict=True):
        average = int(model.state("average")) / 2**24
        departed = int(model.state("departed")) + 1
        model.s["accepted"] = departed
        model.s["excess"][0, departed % module.RING] = round((value - average) * 65536)
        model.call("on_dequeue", 0, packet(), now)
        decay = math.exp(-(now - last) / 0.3e9)
        total, count, last = total * decay + value, count * decay + 1, now
        errors.append(int(model.state("average")) / 2**24 - total / count)
    errors = np.array(errors[8000:])  # after 2 s
    assert np.abs(errors).max() < 0.25
    assert abs(errors.mean()) < 0.02
    assert np.sqrt(np.mean(errors**2)) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharing", "value"), [("cbr", 20), ("cbr", 60), ("cbr", 100), ("tcp", 1), ("tcp", 10), ("cbr-tcp", 60)]
)
def test_shares_as_abc_does(sharing, value):
    """The paper's experiments: goodputs of both clients, means of three runs."""
    goodput = {}
    for cls in (Abc, TofinoAbc):
        runs = []
        for seed in (1, 2, 3):
            given = scenario(sharing, value, "ABC", duration_s=20, seed=seed).replace(
                {"bottleneck.aqm": cls()}
            )
            found = clients(cct.simulate(given))
            runs.append((found["client_0_mbps"], found["client_1_mbps"]))
        goodput[cls] = np.mean(runs, axis=0)
    assert goodput[TofinoAbc] == pytest.approx(goodput[Abc], abs=0.7)


def test_only_what_a_tofino_has():
    """On the way of a packet no multiplication, no division, no float; shifts are by numbers that a table holds."""
    functions = [module.octave.py_func, module.add_and_sum.py_func, module.measure_tofino.py_func]
    functions += [TofinoAbc.on_enqueue, TofinoAbc.on_dequeue]
    allowed = {
        "2 * a",  # places in the arrays
        "p.gamma_fixed * excess",  # the table of thresholds
        "buffer_bits * p.gains",  # which of the tables of gains
        "activity / ONE",  # for those who look
    }
    for function in functions:
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.Mod | ast.Pow):
                assert ast.unparse(node) in allowed or ast.unparse(node).startswith("2 * min(")
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
            assert not (isinstance(node, ast.Name) and node.id == "math")


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"largest_mbps": 0}, "largest_mbps"),
        ({"meter_memory_s": 0.001}, "meter_memory_s"),
        ({"meter_memory_s": 1e4}, "meter_memory_s"),
        ({"average_memory_s": 1e4}, "average_memory_s"),
        ({"average_memory_s": 0}, "average_memory_s"),
    ],
)
def test_bad_parameters(bad, match):
    with pytest.raises(ParameterError, match=f"TofinoAbc.*{match}"):
        TofinoAbc(**bad)
