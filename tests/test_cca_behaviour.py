"""Congestion controls in the simulator: what each is for, and beside real Linux where there is a capture."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import cctoolkit as cct
from cctoolkit.aqm import DROP, MARK, PASS, Aqm, random
from cctoolkit.cca.bbr import Bbr
from cctoolkit.cca.bbr2 import Bbr2
from cctoolkit.cca.bbr3 import Bbr3
from cctoolkit.cca.cubic import Cubic
from cctoolkit.cca.dctcp import Dctcp
from cctoolkit.cca.htcp import Htcp
from cctoolkit.cca.prague import Prague
from cctoolkit.cca.vegas import Vegas
from cctoolkit.scenario import Bottleneck, Flow, Scenario
from cctoolkit.sim.simulation import simulate

TRACES = Path(__file__).parents[1] / "traces"


class MarkAtRandom(Aqm):
    """Marks each packet with the same probability."""

    name = "test_mark_at_random"
    probability: float = 0.02

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        return MARK if random(queue) < p.probability else PASS


class StepMarking(Aqm):
    """Marks what has waited longer than a threshold (the low-latency queue of RFC 9332)."""

    name = "test_step_marking"
    at_ms: float = 1.0

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return MARK if now_ns - packet.enqueued_ns > p.at_ns else PASS


class DropEvery(Aqm):
    """Drops each `packets`-th packet with data: the deterministic loss of the laws."""

    name = "test_drop_every"
    packets: int = 1000

    class State:
        seen = 0

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if packet.bytes < 200:
            return PASS
        s.seen += 1
        return DROP if s.seen % p.packets == 0 else PASS


def run(*flows, rate_mbps, seconds, buffer=10_000, sample_s=0.01, **bottleneck):
    link = Bottleneck(rate_mbps=rate_mbps, buffer_packets=buffer, **bottleneck)
    scenario = Scenario(bottleneck=link, flows=flows, duration_s=seconds)
    return simulate(scenario, record=False, sample_s=sample_s)


def mean_of(series, column, from_s, **where):
    rows = series[series.ts_ns >= from_s * 1e9]
    for name, value in where.items():
        rows = rows[rows[name] == value]
    return float(rows[column].mean())


@pytest.mark.slow
@pytest.mark.parametrize(("rate_mbps", "rtt_ms"), [(10, 40), (100, 20), (1000, 50)])
@pytest.mark.parametrize("cca", [Bbr, Bbr2, Bbr3])
def test_bbr_alone_fills_the_link_with_one_bdp(cca, rate_mbps, rtt_ms):
    out = run(Flow(cca(), rtt_ms=rtt_ms), rate_mbps=rate_mbps, seconds=15)
    bdp = rate_mbps * 1e6 * (rtt_ms / 1e3 + 12112 / rate_mbps / 1e6) / 12112
    sent = np.interp([5e9, 15e9], out.queue_series.ts_ns, out.queue_series.sent_packets)
    assert (sent[1] - sent[0]) * 12112 / (
        rate_mbps * 1e6 * 10
    ) > 0.95  # ProbeRTT takes 2 % of these ten seconds
    assert 0.9 < mean_of(out.flow_series, "inflight_packets", 5) / bdp < 1.25
    assert out.queues.dropped_full[0] == 0
    # the queue is what is in flight beyond the bandwidth-delay product
    assert out.queues.mean_delay_ms[0] < 0.3 * rtt_ms


@pytest.mark.parametrize("cca", [Bbr, Bbr3])
def test_bbr_shares_with_itself(cca):
    out = run(Flow(cca(), rtt_ms=40, count=4), rate_mbps=40, buffer=600, seconds=60)
    assert cct.jain_index(out.flows.goodput_mbps) > 0.9
    assert out.queues.sent_bytes[0] * 8 / 40e6 / 60 > 0.95


def mean_window(cca, rtt_ms, loss_every, seconds=300):
    """Of a flow that is alone on an endless link, after a third of the time: packets delivered in a round trip."""
    flow = Flow(cca, rtt_ms=rtt_ms)
    out = run(
        flow, rate_mbps=10_000, buffer=10**6, seconds=seconds, sample_s=1, aqm=DropEvery(packets=loss_every)
    )
    series = out.flow_series
    ends = np.interp([seconds / 3 * 1e9, seconds * 1e9], series.ts_ns, series.delivered_packets)
    return (ends[1] - ends[0]) / (seconds * 2 / 3) * rtt_ms / 1e3


@pytest.mark.parametrize(("loss_every", "rtt_ms"), [(1_000, 40), (10_000, 20), (100_000, 100)])
def test_reno_under_even_loss_follows_the_square_root(loss_every, rtt_ms):
    assert mean_window("reno", rtt_ms, loss_every) == pytest.approx(math.sqrt(1.5 * loss_every), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss_every", "rtt_ms", "region"),
    [(100_000, 100, "cubic"), (300_000, 50, "cubic"), (1_000, 40, "reno"), (10_000, 20, "reno")],
)
def test_cubic_under_even_loss_has_the_average_window_of_its_rfc(loss_every, rtt_ms, region):
    """RFC 9438, section 5.1: of the cubic, and in the Reno-friendly region.

    Where the regions meet (a loss in 10 000 packets at 100 ms) it is 15 % more: near its plateau the cubic grows by
    less than a packet a round trip, and whole packets, as in Linux, run ahead of it.
    """
    c, beta = 0.4, 0.7
    law = {
        "cubic": (c * (3 + beta) / (4 * (1 - beta))) ** 0.25 * (rtt_ms / 1e3 * loss_every) ** 0.75,
        "reno": math.sqrt(3 * (1 - beta) / (1 + beta) * (1 + beta) / (2 * (1 - beta)) * loss_every),
    }
    assert law[region] == max(law.values())
    assert mean_window(Cubic(hystart=False), rtt_ms, loss_every) == pytest.approx(law[region], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.02, 0.05])
@pytest.mark.parametrize("rtt_ms", [10, 20, 40])
def test_prague_under_marks_at_random(rtt_ms, p):
    """The law of one reduction by p/2 a period, and growth between.

    A period is one virtual round trip, v real ones, and the wait for the next mark, 1/(pW) round trips. The window
    grows by g a round trip, for packets not marked, and by the square of its RTT over 25 ms. So
    p W / 2 = g (v + 1 / (p W)), and p W = g v + sqrt((g v)^2 + 2 g). That is W as it is reduced; its mean is that of
    before and after. Whole packets are sent, on average half a one more, and so it also grows for more.
    """
    out = run(Flow(Prague(), rtt_ms=rtt_ms), rate_mbps=1000, seconds=60, aqm=MarkAtRandom(probability=p))
    period = max(rtt_ms, 25) / rtt_ms
    grow = (1 - p) / period**2
    cwnd = mean_of(out.flow_series, "cwnd_packets", 20)
    grow *= cwnd / (cwnd - 0.5)
    expected = (1 - p / 4) * (grow * period + math.sqrt((grow * period) ** 2 + 2 * grow))
    assert (cwnd - 0.5) * p == pytest.approx(expected, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "rtt_ms"), [(0.05, 20), (0.05, 40), (0.1, 20), (0.2, 20)])
def test_dctcp_under_marks_at_random(p, rtt_ms):
    """As a chain of round trips: one of reduction after each with a mark, else growth by one packet.

    Alpha in 1024ths and the window in packets, rounded down, are what decides: by real numbers p W would be sqrt(2).
    """
    rng = np.random.default_rng(1)
    window, alpha, reducing, seen = 20.0, 1024, False, []
    for _ in range(200_000):
        packets = int(window)
        marks = rng.binomial(packets, p)
        alpha -= alpha >> 4 or alpha
        alpha = min(alpha + (marks << 6) // packets, 1024)
        if reducing:
            window = max(int(window) - (int(window) * alpha >> 11), 2)
        else:  # it grows until the first mark
            window += min(rng.geometric(p), packets) / packets
        reducing = marks > 0
        seen.append(window)
    out = run(Flow(Dctcp(), rtt_ms=rtt_ms), rate_mbps=1000, seconds=200, aqm=MarkAtRandom(probability=p))
    assert mean_of(out.flow_series, "cwnd_packets", 20) == pytest.approx(np.mean(seen), rel=0.15)


@pytest.mark.parametrize("cca", [Dctcp, Prague])
def test_scalable_ones_keep_a_small_queue(cca):
    """Under marks from one millisecond on: a full link, less than that in the queue, no loss, equal shares."""
    out = run(Flow(cca(), rtt_ms=10, count=2), rate_mbps=100, seconds=15, aqm=StepMarking())
    sent = np.interp([5e9, 15e9], out.queue_series.ts_ns, out.queue_series.sent_bytes)
    assert (sent[1] - sent[0]) * 8 / 100e6 / 10 > 0.95
    assert out.queues.mean_delay_ms[0] < 1.0
    assert out.queues.dropped_full[0] == 0
    assert cct.jain_index(out.flows.goodput_mbps) > 0.98


def test_prague_is_fair_between_short_rtts():
    """5 and 20 ms behave as 25 ms both: equal rates, where DCTCP's go by the RTT."""
    shares = {}
    for cca in (Prague, Dctcp):
        out = run(Flow(cca(), rtt_ms=5), Flow(cca(), rtt_ms=20), rate_mbps=100, seconds=60, aqm=StepMarking())
        shares[cca] = out.flows.goodput_mbps[0] / out.flows.goodput_mbps[1]
    assert 0.5 < shares[Prague] < 2  # it wanders
    assert shares[Dctcp] > 2.5


@pytest.mark.parametrize(("rate_mbps", "rtt_ms"), [(10, 40), (100, 20), (50, 100)])
def test_vegas_keeps_two_to_four_packets_queued(rate_mbps, rtt_ms):
    """With the paper's slow start; Linux's leaves a queue that goes by one packet a round trip."""
    out = run(Flow(Vegas(double_every=2), rtt_ms=rtt_ms), rate_mbps=rate_mbps, seconds=20)
    assert out.queues.dropped_full[0] == 0
    # with delayed ACKs two packets leave at once, so it holds one more and one less than it counts
    assert 0.5 < mean_of(out.queue_series, "packets", 5) < 6
    sent = np.interp([5e9, 20e9], out.queue_series.ts_ns, out.queue_series.sent_packets)
    assert (sent[1] - sent[0]) * 12112 / (rate_mbps * 1e6 * 15) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("loss", [1e-5, 1e-4])
def test_htcp_is_faster_than_reno_and_cubic_on_a_long_path(loss):
    """At 200 Mbit/s and 100 ms Reno takes a minute and more to come back from a loss, H-TCP some seconds."""
    used = {
        cca: float(
            run(Flow(cca, rtt_ms=100, loss=loss), rate_mbps=200, buffer=200, seconds=60).flows.goodput_mbps[0]
        )
        for cca in ("reno", "cubic", Htcp())
    }
    assert used[Htcp()] > 1.5 * used["reno"]
    assert used[Htcp()] > used["cubic"]


# ---- beside real Linux -----------------------------------------------------------------------------------------------


def measured(name):
    """From both taps of a capture: part of the link used, mean delay in the queue, share of each flow's bytes."""
    ingress = cct.read_capture(TRACES / f"{name}.ingress.pcap.gz")
    egress = cct.read_capture(TRACES / f"{name}.egress.pcap.gz")
    delay = cct.queue_delay(ingress, egress)
    delay = delay[(delay.direction == 0) & (delay.wire_bytes > 200)]
    data = egress.packets[egress.packets.payload_bytes > 0]
    seconds = (data.ts_ns.max() - data.ts_ns.min()) / 1e9
    bytes_ = data.groupby("flow_id").payload_bytes.sum()
    return {
        "used": data.wire_bytes.sum() * 8 / 8e6 / seconds,
        "delay_ms": float(delay.delay_ns.dropna().astype(float).mean()) / 1e6,
        "shares": (bytes_ / bytes_.sum()).to_list(),
    }


def simulated(*flows):
    out = run(*flows, rate_mbps=8, buffer=40, seconds=12)
    bytes_ = out.flows.received_bytes
    return {
        "used": out.queues.sent_bytes[0] * 8 / 8e6 / 12,
        "delay_ms": float(out.queues.mean_delay_ms[0]),
        "shares": (bytes_ / bytes_.sum()).to_list(),
    }


def test_bbr_as_linux_alone():
    """There packets left in pairs (segmentation offload), here they leave one by one: a shorter queue."""
    real, ours = measured("bbr"), simulated(Flow(Bbr(), rtt_ms=40))
    assert ours["used"] == pytest.approx(real["used"], rel=0.05)
    assert 0.75 * real["delay_ms"] < ours["delay_ms"] < real["delay_ms"]


def test_bbr_as_linux_with_cubic():
    """Who gets how much hangs on the min_rtt that BBR found as it started, so this is the mean of some starts.

    In the capture the queue was empty for a moment as BBR drained it, and it found 32 ms, where 30 are the base RTT. In
    most runs here it finds 53, and then has more in flight.
    """
    real = measured("cubic-bbr")
    runs = [
        simulated(
            Flow("cubic", rtt_ms=30 + 0.1 * (i % 4)),
            Flow(Bbr(), rtt_ms=30 + 0.1 * (i % 4), start_s=2 + 0.01 * i),
        )
        for i in range(12)
    ]
    assert np.mean([r["used"] for r in runs]) == pytest.approx(real["used"], rel=0.05)
    assert np.mean([r["delay_ms"] for r in runs]) == pytest.approx(real["delay_ms"], rel=0.15)
    assert np.mean([r["shares"][1] for r in runs]) == pytest.approx(real["shares"][1], rel=0.15)


def test_bbr3_probes_as_long_as_googles():
    """Durations of UP and DOWN measured from captures of Google's code in Linux 7.2, in the same scenarios."""
    linux = Bbr3(**Bbr3.in_linux)

    def pacing(**bottleneck):
        link = cct.Bottleneck(rate_mbps=10, link="shaper", **bottleneck)
        flow = cct.Flow(linux, rtt_ms=80.373, start_s=0.18, access_mbps=100)
        out = cct.simulate(cct.Scenario(bottleneck=link, flows=[flow], duration_s=20, seed=1), sample_s=0.002)
        series = out.flow_series[out.flow_series.ts_ns > 5e9]
        return series.pacing_bps.to_numpy() / 9.9e6

    def lengths_ms(at):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], at.astype(int), [0]))))
        lengths = 2 * (edges[1::2] - edges[::2])
        return lengths[lengths > 20]  # the rate may also pass by

    deep = pacing(buffer_packets=264)
    assert lengths_ms(np.isclose(deep, 1.25, rtol=0.01)) == pytest.approx(309, abs=6)
    assert lengths_ms(np.isclose(deep, 232 / 256, rtol=0.01)) == pytest.approx(718, abs=6)
    # losses bound the second probe, and each bound is lower than the one before
    dropping = pacing(buffer_packets=528, aqm="codel_linux")
    assert lengths_ms(np.isclose(dropping, 1.25, rtol=0.01))[1:3] == pytest.approx([266, 182], abs=6)
