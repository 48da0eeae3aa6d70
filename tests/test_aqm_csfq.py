"""CSFQ against its twin, which sums its rates up anew, and against the shares that fairness asks for."""

from __future__ import annotations

import naive_aqm as naive
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from one_queue import Compiled, Link, packet, traffic

from cctoolkit import Bottleneck, Flow, Scenario, simulate
from cctoolkit.aqm import DROP, Csfq
from cctoolkit.errors import ParameterError

MS = 1_000_000


class Twin(naive.Csfq):
    """Compares labels too."""

    def __init__(self, p, seed):
        super().__init__(p, seed)
        self.errors, self.states, self.most_cuts = [], set(), 0

    def on_enqueue(self, queue, pk, now):
        verdict = super().on_enqueue(queue, pk, now)
        self.states.add(self.congested)
        self.most_cuts = max(self.most_cuts, self.cuts)
        if verdict != DROP:
            self.errors.append(pk.label / self.label - 1)
        return verdict


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.integers(1, 2**32),
    st.sampled_from([0.7, 1.1, 1.6, 4.0]),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([1.0, (1.0, 3.0, 0.5)]),
)
def test_twin(seed, load, aggregates, threshold, weights):
    """Windows of a few milliseconds, so that the share is estimated many times; congested, and not, and full."""
    aqm = Csfq(flow_memory_ms=5, link_memory_ms=8, window_ms=4, threshold=threshold, weights=weights)
    link = Link(Compiled(aqm, seed=seed), Twin(aqm, seed), limit=24)
    at, packets = traffic(seed, 400, load=load, aggregates=aggregates, sizes=(64, 590, 1514))
    link.run(at, packets)
    assert len(link.twin.errors) > 100
    assert np.abs(link.twin.errors).max() < 1e-9


def test_the_twins_comparison_saw_all_there_is():
    """The property above is about something: drops by probability, full buffers, both states of the link."""
    aqm = Csfq(flow_memory_ms=5, link_memory_ms=8, window_ms=4)
    link = Link(Compiled(aqm, seed=3), Twin(aqm, 3), limit=24)
    at, packets = traffic(3, 700, load=1.6, aggregates=3)
    at[500:] = at[499] + 20 * MS + np.arange(200) * 300_000  # a pause, then 40 Mbit/s
    link.run(at, packets)
    assert link.twin.states == {True, False}
    assert link.twin.largest > 0 and link.twin.most_cuts > 3
    assert link.compiled.stats["dropped"][0] > 30


def test_label_is_the_rate():
    """40 Mbit/s in packets of 1514 bytes, whatever the spacing of the first ones."""
    compiled, label = Compiled(Csfq()), 0.0
    for now in np.arange(4000) * 302_800:
        pk = packet(aggregate=1)
        compiled.call("on_enqueue", 0, pk, int(now))
        label = pk["label"][0]
    assert label == pytest.approx(40e6, rel=0.01)


def test_packets_at_the_same_time():
    """No gap to divide by: the limit of equation (3), a packet's bits over the memory."""
    compiled = Compiled(Csfq())
    labels = []
    for _ in range(3):
        pk = packet()
        compiled.call("on_enqueue", 0, pk, 10**9)
        labels.append(pk["label"][0])
    assert np.diff(labels) == pytest.approx([1514 * 8 / 0.1] * 2)


def goodput(aqm, *flows):
    """Mbit/s of each flow through 50 Mbit/s, after two seconds."""
    link = Bottleneck(rate_mbps=50, buffer_packets=100, aqm=aqm)
    scenario = Scenario(bottleneck=link, flows=flows, duration_s=12)
    series = simulate(scenario, record=False, sample_s=2).flow_series
    table = series.pivot_table(index="ts_ns", columns="flow_id", values="received_bytes")
    return ((table.iloc[-1] - table.iloc[0]) * 8e-6 / 10).to_numpy()


def udp(rate, k):
    return Flow("udp", rate_mbps=rate, rtt_ms=20, aggregate=k, arrivals="poisson")


def test_max_min_shares_of_constant_rates():
    """10, 30 and 90 Mbit/s into 50: the small one keeps its 10, the others get 20 each."""
    shares = goodput(Csfq(), *(udp(rate, k) for k, rate in enumerate((10, 30, 90))))
    assert shares * 1514 / 1472 == pytest.approx([10, 20, 20], rel=0.06)


def test_weights():
    """Section 3.3: three times the weight, three times the share."""
    shares = goodput(Csfq(weights=(3, 1)), udp(60, 0), udp(60, 1))
    assert shares[0] / shares[1] == pytest.approx(3, rel=0.06)


def test_nothing_is_dropped_without_congestion():
    link = Bottleneck(rate_mbps=50, buffer_packets=100, aqm=Csfq())
    run = simulate(Scenario(bottleneck=link, flows=[udp(20, 0), udp(20, 1)], duration_s=5), record=False)
    assert run.aqm_stats.dropped[0] == 0 and run.queues.dropped_full.sum() == 0


def test_recovers_after_everything_was_dropped():
    """A sender of 1 Gbit/s leaves, a small one stays: the share comes back up."""
    flood = Flow("udp", rate_mbps=1000, rtt_ms=20, aggregate=0, stop_s=2)
    assert goodput(Csfq(), flood, udp(45, 1))[1] * 1514 / 1472 == pytest.approx(45, rel=0.03)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"weights": 0}, "weights"),
        ({"weights": ()}, "weights"),
        ({"weights": (1, -1)}, "weights"),
        ({"flow_memory_ms": 0}, "flow_memory_ms"),
        ({"link_memory_ms": -1}, "link_memory_ms"),
        ({"window_ms": 0}, "window_ms"),
        ({"threshold": 1.5}, "threshold"),
        ({"aggregates": 0}, "aggregates"),
        ({"weights": (1, 2, 3), "aggregates": 2}, "aggregates"),
    ],
)
def test_bad_parameters(bad, match):
    with pytest.raises(ParameterError, match=f"Csfq.{match}"):
        Csfq(**bad)
