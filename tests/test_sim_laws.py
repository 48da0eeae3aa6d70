"""Sender and scheduler against what their RFCs say, measured on the taps."""

from __future__ import annotations

import numpy as np
import pytest

from cctoolkit.aqm import DROP, MARK, PASS, Aqm
from cctoolkit.cca import Cca
from cctoolkit.scenario import Bottleneck, Flow, Queue, Scenario
from cctoolkit.sim.simulation import simulate


def dumbbell(flows, *, rate_mbps=20.0, buffer_packets=50, duration_s=5.0, **bottleneck):
    return Scenario(
        bottleneck=Bottleneck(rate_mbps=rate_mbps, buffer_packets=buffer_packets, **bottleneck),
        flows=flows,
        duration_s=duration_s,
    )


class DropOnce(Aqm):
    """Of these tests: drops the packets numbered `first` to `last` (from 0) of those with data."""

    first: int = 0
    last: int = 0

    class State:
        seen = 0

    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if packet.bytes < 200:
            return PASS
        s.seen += 1
        return DROP if p.first < s.seen <= p.last + 1 else PASS


def data(run):
    return run.ingress.packets.query("direction == 0 and payload_bytes > 0").reset_index(drop=True)


def transfer(packets, drop, *, rtt_ms=40):
    return simulate(
        dumbbell(
            [Flow("reno", rtt_ms=rtt_ms, bytes=packets * 1448)], rate_mbps=1000, buffer_packets=1000, aqm=drop
        )
    )


def test_a_lost_tail_is_probed_after_two_round_trips():
    """RFC 8985, section 7: two SRTT after the last ACK the last packet is sent again; its SACK shows the other hole."""
    run = transfer(8, DropOnce(first=6, last=7))
    sent = data(run)
    assert sent.seq[8:].to_list() == [sent.seq[7], sent.seq[6]]
    last_ack_ns = sent.ts_ns[7] + 40e6
    assert (sent.ts_ns[8] - last_ack_ns) / 1e6 == pytest.approx(80, abs=1)
    assert (sent.ts_ns[9] - sent.ts_ns[8]) / 1e6 == pytest.approx(40, abs=1)
    assert run.flows.timeouts[0] == 0 and run.flows.end_s[0] == pytest.approx(
        0.04 + 0.04 + 0.08 + 0.08, abs=0.002
    )


def test_a_lone_lost_packet_waits_for_the_delayed_ack_too():
    """RFC 8985, section 7.2: with one packet in flight the probe waits 200 ms longer, the delayed ACK's worst, but no
    longer than the retransmission timer, SRTT + 200 ms here, would."""
    run = transfer(1, DropOnce(first=0, last=0))
    sent = data(run)
    assert len(sent) == 2 and run.flows.timeouts[0] == 0
    # SRTT 40, 4 RTTVAR = 80, less than the least: 200
    assert (sent.ts_ns[1] - sent.ts_ns[0]) / 1e6 == pytest.approx(240, abs=2)


def test_retransmission_timer_backs_off():
    """RFC 6298, section 5.5: each timeout doubles the wait. (The probe is the first that goes out again.)"""
    run = transfer(1, DropOnce(first=0, last=4))
    waits_ms = np.diff(data(run).ts_ns) / 1e6
    assert waits_ms == pytest.approx([240, 240, 480, 960, 1920], abs=3)
    assert run.flows.timeouts[0] == 4 and run.flows.received_bytes[0] == 1448


def test_three_sacks_make_a_fast_retransmit_of_what_is_missing():
    """RFC 6675 (DupThresh 3): the hole is filled one round trip after it was made, and nothing else is sent twice."""
    run = transfer(40, DropOnce(first=2, last=2))
    sent = data(run)
    twice = sent[sent.duplicated("seq", keep=False)]
    assert len(twice) == 2
    assert np.diff(twice.ts_ns)[0] / 1e6 == pytest.approx(40, abs=1)
    assert run.flows.recoveries[0] == 1 and run.flows.timeouts[0] == 0


def test_window_reduction_spreads_the_sending():
    """RFC 6937: of about 64 packets in flight one is lost; while it is repaired one goes out for two that arrive."""
    run = simulate(
        dumbbell(
            [Flow("reno", rtt_ms=40, initial_window=64, bytes=400 * 1448)],
            rate_mbps=1000, buffer_packets=1000, aqm=DropOnce(first=0, last=0),
        )
    )  # fmt: skip
    sent = data(run)
    again = int(np.flatnonzero(sent.duplicated("seq"))[0])
    after = sent.ts_ns.to_numpy()[again : again + 28]
    assert np.median(np.diff(after)) == pytest.approx(2 * 1514 * 8, abs=2)  # two arrivals apart
    assert (np.diff(after) < 6 * 1514 * 8).all()


class Paced(Cca):
    """Of these tests: a fixed pacing rate, a window that never matters."""

    mbps: float = 5.0

    def on_start(p, s, stats, flow, ack, now_ns):
        flow.cwnd = 10_000
        flow.pacing_bps = p.mbps * 1e6


@pytest.mark.parametrize("mbps", [1.0, 5.0, 17.3])
def test_pacing_spaces_packets_at_its_rate(mbps):
    run = simulate(dumbbell([Flow(Paced(mbps=mbps))], duration_s=3))
    sent = data(run)
    gaps = np.diff(sent.ts_ns)
    expected = 1514 * 8e3 / mbps
    assert gaps == pytest.approx(expected, abs=2)
    assert run.flows.goodput_mbps[0] == pytest.approx(mbps * 1448 / 1514, rel=0.03)


def test_flow_queueing_gives_equal_shares_and_new_flows_go_first():
    """RFC 8290: shares are equal whatever is offered; a flow that sends less than its share waits one packet only."""
    flows = [
        Flow("udp", rate_mbps=30),
        Flow("udp", rate_mbps=12),
        Flow("udp", rate_mbps=0.5, packet_bytes=200),
    ]
    run = simulate(dumbbell(flows, scheduler="fq", fq_queues=8, buffer_packets=200, duration_s=5))
    out = run.egress.packets
    bits = out[out.ts_ns > 10**9].groupby("flow_id").wire_bytes.sum() * 8e-6 / 4
    assert bits[2] == pytest.approx(0.5, rel=0.01)
    assert bits[0] == pytest.approx(bits[1], rel=0.01)
    assert bits.sum() == pytest.approx(20, rel=0.01)
    sparse = run.queues.max_delay_ms[2]
    assert sparse <= 2 * 1514 * 8e-3 / 20 + 0.2  # the one being sent, and at most another


def test_flow_queueing_drops_from_the_fattest():
    """RFC 8290, section 4.1: with no room left the longest queue loses, not who arrives."""
    flows = [Flow("udp", rate_mbps=60), Flow("udp", rate_mbps=2)]
    run = simulate(dumbbell(flows, scheduler="fq", fq_queues=2, buffer_packets=40))
    assert run.flows.dropped_packets[1] == 0 and run.flows.dropped_packets[0] > 1000
    assert run.queues.packets.sum() <= 40


@pytest.mark.parametrize("shift_ms", [0.0, 2.0, 20.0])
def test_time_shifted_fifo(shift_ms):
    """RFC 9332, section 4.1.2 b: the head with the greater wait goes, queue 0's counted `time_shift_ms` longer."""
    flows = [
        Flow("udp", rate_mbps=9, ecn="l4s", arrivals="poisson"),
        Flow("udp", rate_mbps=10, arrivals="poisson"),
    ]
    run = simulate(
        dumbbell(flows, scheduler="dual_ts", time_shift_ms=shift_ms, buffer_packets=10_000, duration_s=4)
    )
    arrived = {f: run.ingress.packets.query("flow_id == @f").ts_ns.to_numpy() for f in (0, 1)}
    left = run.egress.packets
    took = round(1514 * 8e3 / 20)
    taken = {0: 0, 1: 0}
    decided = 0
    for ts_ns, flow in zip(left.ts_ns.to_numpy(), left.flow_id.to_numpy(), strict=True):
        start = ts_ns - took
        heads = {f: arrived[f][taken[f]] for f in (0, 1) if taken[f] < len(arrived[f])}
        waiting = {f: t for f, t in heads.items() if t < start - 2}
        if len(waiting) == 2 and abs(waiting[0] - shift_ms * 1e6 - waiting[1]) > 10:
            decided += 1
            assert flow == (0 if waiting[0] - shift_ms * 1e6 < waiting[1] else 1)
        taken[flow] += 1
    assert decided > 500


def test_priority_starves_whom_it_may():
    flows = [Flow("udp", rate_mbps=15, queue=0), Flow("udp", rate_mbps=15, queue=1)]
    run = simulate(dumbbell(flows, scheduler="priority", queues=(Queue(), Queue()), duration_s=5))
    assert run.queues.sent_bytes[0] * 8e-6 / 5 == pytest.approx(15, rel=0.01)
    assert run.queues.sent_bytes[1] * 8e-6 / 5 == pytest.approx(5, rel=0.02)
    assert run.queues.max_delay_ms[0] <= 1514 * 8e-3 / 20 + 0.001


def test_quick_acks_then_every_second_packet():
    run = simulate(dumbbell([Flow("reno", quick_acks=30)], duration_s=1, rate_mbps=100))
    acks = run.ingress.packets.query("direction == 1 and tcp_flags == 16").ack.to_numpy().astype(np.int64)
    steps = np.diff(acks) % 2**32 // 1448
    assert (steps[:29] == 1).all() and np.mean(steps[31:60] == 2) > 0.9


def test_accurate_ecn_counts_every_mark():
    """Of packets with CE behind the queue, each is in ``flow.marked``, even where one ACK answers two."""

    class AlwaysMark(Aqm):
        """Of this test."""

        def on_dequeue(p, s, stats, queue, packet, now_ns):
            return MARK if packet.ecn > 0 else PASS

    class Counting(Cca):
        """Of this test."""

        ecn = "accurate"

        class Stats:
            marked = 0

        def on_ack(p, s, stats, flow, ack, now_ns):
            stats.marked += ack.marked

    run = simulate(dumbbell([Flow(Counting, bytes=200 * 1448)], aqm=AlwaysMark))
    assert run.cca_stats.marked[0] == (run.egress.columns["ecn"] == 3).sum() == 200
    assert run.queues.marked_packets[0] == 200
