"""Sender and scheduler against what their RFCs say, measured on the taps."""

from __future__ import annotations

import numpy as np
import pytest

from cctoolkit.analysis.metrics import queue_delay
from cctoolkit.analysis.rtt import rtt_samples
from cctoolkit.aqm import DROP, MARK, PASS, Aqm, FqCoDel, random
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
    # at a rate at which a receiver has no second acknowledgement to put with one that waits (SACK compression)
    run = simulate(
        dumbbell(
            [Flow("reno", rtt_ms=40, initial_window=64, bytes=400 * 1448)],
            rate_mbps=10, buffer_packets=1000, aqm=DropOnce(first=0, last=0),
        )
    )  # fmt: skip
    sent = data(run)
    again = int(np.flatnonzero(sent.duplicated("seq"))[0])
    after = sent.ts_ns.to_numpy()[again : again + 28]
    assert np.median(np.diff(after)) == pytest.approx(2 * 1514 * 800, rel=0.001)  # two arrivals apart
    assert (np.diff(after) < 6 * 1514 * 800).all()


class DropThese(Aqm):
    """Of these tests: drops three packets of those with data."""

    first: int = 0
    second: int = 0
    third: int = 0

    class State:
        seen = 0

    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if packet.bytes < 200:
            return PASS
        n = s.seen
        s.seen += 1
        return DROP if n == p.first or n == p.second or n == p.third else PASS


def test_losses_within_a_recovery_reduce_the_window_again():
    """RFC 6675: what is sent in recovery and lost is a further sign of congestion, answered when recovery ends.

    Packet 35 is the retransmission of packet 12, lost again, so that recovery takes long enough to see that 38 is lost.
    """
    recoveries = {
        third: transfer(400, DropThese(first=12, second=35, third=third)).flows.recoveries[0]
        for third in (35, 38)
    }
    assert recoveries == {35: 1, 38: 2}


def test_a_loss_that_only_the_probe_noticed_reduces_the_window():
    """RFC 8985, section 7.4.2: the last packet of a burst was lost and the probe repaired it; the next burst pays."""
    ssthresh = {}
    for drop in (DropOnce(first=9, last=9), DropOnce(first=999, last=999)):
        flow = Flow("reno", rtt_ms=40, on_s=0.045, off_s=1.0)  # the handshake takes 40 ms: ten packets
        run = simulate(dumbbell([flow], rate_mbps=1000, duration_s=1.3, aqm=drop))
        ssthresh[drop.first] = run.flow_series.ssthresh_packets.iloc[-1]
        assert run.flows.retransmits[0] == (1 if drop.first == 9 else 0)
        assert run.flows.recoveries[0] == 0
    assert ssthresh[9] < 20
    assert ssthresh[999] >= 1e9


def test_a_timeout_that_came_too_early_is_undone():
    """RFC 4015: the link all but stops for a packet's time, nothing is lost, and the window is as before."""
    link = Bottleneck(
        rate_mbps=10, buffer_packets=1000, rate_schedule=[(5, 0.02), (5.001, 10)]
    )  # one packet takes 0.6 s
    run = simulate(Scenario(bottleneck=link, flows=[Flow("reno", rtt_ms=40, max_window=60)], duration_s=7))
    assert run.flows.timeouts[0] >= 1 and run.flows.dropped_packets[0] == 0
    series = run.flow_series.set_index("ts_ns")
    before, after = series.loc[4_900_000_000], series.loc[6_500_000_000]
    assert after.cwnd_packets >= before.cwnd_packets
    assert after.ssthresh_packets >= before.ssthresh_packets


def test_after_a_pause_the_window_is_the_initial_one():
    """RFC 2861: it is halved for each retransmission timeout of silence, down to the initial window."""
    flow = Flow("reno", rtt_ms=40, on_s=1.0, off_s=3.0)
    run = simulate(dumbbell([flow], rate_mbps=100, buffer_packets=1000, duration_s=4.5))
    windows = run.flow_series.set_index("ts_ns").cwnd_packets
    assert windows[1_000_000_000] > 100
    again = data(run).query("ts_ns > 3_900_000_000")
    assert (again.ts_ns - again.ts_ns.iloc[0] < 30_000_000).sum() == 10


def test_a_pause_is_no_time_of_growth():
    """After a pause, CUBIC goes back to the window that it had, not to where its cubic would be by now."""
    flow = Flow("cubic", rtt_ms=50, on_s=10, off_s=30)
    run = simulate(dumbbell([flow], rate_mbps=100, buffer_packets=1500, duration_s=45))
    series = run.flow_series.set_index("ts_ns")
    before, after = series.loc[10_000_000_000], series.loc[42_000_000_000]
    assert series.loc[40_100_000_000].cwnd_packets < 100
    assert after.cwnd_packets < 1.2 * before.cwnd_packets and not (run.drops.ts_ns > 40_000_000_000).any()


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_handshake_that_was_hard_starts_with_one_packet(lost):
    """Linux's tcp_init_transfer: from the second retransmitted SYN on; RFC 5681, section 3.1: from the first."""
    blocked_s = (0, 0.5, 2.0, 5.0)[lost]  # SYNs at 0, 1, 3 and 7 s
    flood = [Flow("udp", rate_mbps=1000, rtt_ms=10, stop_s=blocked_s)] if lost else []
    late = Flow("reno", rtt_ms=40, start_s=0.01)
    run = simulate(dumbbell([late, *flood], rate_mbps=10, buffer_packets=1, duration_s=9))
    assert run.flows.timeouts[0] == lost
    first = data(run).query("flow_id == 0")
    assert (first.ts_ns - first.ts_ns.iloc[0] < 20_000_000).sum() == (1 if lost > 1 else 10)


def test_a_flow_stopped_before_its_handshake_ends():
    flow = Flow("reno", rtt_ms=100, stop_s=0.05)
    run = simulate(dumbbell([flow], rate_mbps=10, duration_s=3))
    assert run.flows.end_s[0] == 0.05 and run.flows.sent_packets[0] == 0


def test_what_was_said_last_is_what_was_sent():
    """A stop after everything has been sent changes nothing of a transfer's size."""
    run = simulate(dumbbell([Flow("reno", rtt_ms=100, bytes=1, stop_s=0.2)], rate_mbps=10, duration_s=3))
    assert run.flows.acked_bytes[0] == run.flows.received_bytes[0] == 1


@pytest.mark.parametrize("access_ms", [0, 0.001])
@pytest.mark.parametrize("buffer", [1, 2, 5])
def test_a_burst_finds_the_whole_buffer(buffer, access_ms):
    """Of a first window, which follows the handshake's ACK into an idle link, the buffer keeps what it can hold."""
    flow = Flow("reno", rtt_ms=20, access_ms=access_ms)
    run = simulate(dumbbell([flow], rate_mbps=10, buffer_packets=buffer, duration_s=0.03))
    assert (~data(run).dropped[:10]).sum() == buffer


@pytest.mark.parametrize("limit_mbps", [2, 4])
@pytest.mark.parametrize(("own_bytes", "others_bytes"), [(1514, 1514), (1514, 9000), (9000, 1514)])
@pytest.mark.parametrize("others_mbps", [0.01, 20])
def test_a_limited_queue_gets_its_rate_beside_others(limit_mbps, own_bytes, others_bytes, others_mbps):
    """Waiting for the packets of others on the link costs no rate, and is no credit after a pause."""
    queues = [Queue(max_rate_mbps=limit_mbps), Queue()]
    flows = [
        Flow("udp", rate_mbps=20, packet_bytes=own_bytes, queue=0, rtt_ms=10, start_s=1),
        Flow("udp", rate_mbps=others_mbps, packet_bytes=others_bytes, queue=1, rtt_ms=10),
    ]
    bottleneck = Bottleneck(rate_mbps=10, buffer_packets=100, queues=queues)
    run = simulate(Scenario(bottleneck=bottleneck, flows=flows, duration_s=11))
    assert run.queues.sent_bytes[0] * 8e-6 / 10 == pytest.approx(limit_mbps, rel=0.015)
    assert run.queues.sent_bytes.sum() * 8e-6 / 11 < 10.02


def test_marks_of_unresponsive_flows_are_counted():
    flow = Flow("udp", rate_mbps=20, rtt_ms=10, ecn="classic")
    run = simulate(dumbbell([flow], rate_mbps=10, aqm="codel", buffer_packets=1000, duration_s=3))
    behind = run.egress.packets
    assert 0 < run.flows.marked_packets[0] == (behind.ecn == 3).sum()


def test_a_loss_is_answered_with_cwr():
    """RFC 3168, section 6.1.2: the first new data after a reduction has CWR, whatever the reason."""
    flow = Flow("reno", rtt_ms=40, ecn="classic")
    run = simulate(dumbbell([flow], rate_mbps=10, buffer_packets=50, duration_s=10))
    assert run.flows.marked_packets[0] == 0 and run.flows.recoveries[0] > 2
    told = np.flatnonzero(data(run).tcp_flags & 128)
    assert run.flows.recoveries[0] - 1 <= len(told) <= run.flows.recoveries[0] + run.flows.timeouts[0]


@pytest.mark.parametrize(
    ("ecn", "syn", "syn_ack", "third", "flags"),
    [
        ("off", 0, 0, 0, {0}),
        ("classic", 192, 64, 0, {0, 64}),  # RFC 3168, section 6.1.1
        ("accurate", 192, 64, 0, {0, 64}),  # RFC 8257, section 3.2
        ("l4s", 448, 128, 128, {n << 6 for n in range(8)}),  # RFC 9768, section 3.1.1, tables 2 and 3
    ],
)
def test_ecn_on_the_wire(ecn, syn, syn_ack, third, flags):
    flow = Flow("dctcp" if ecn in ("accurate", "l4s") else "reno", rtt_ms=20, ecn=ecn)
    aqm = FqCoDel(ce_threshold_ms=1) if ecn == "l4s" else FqCoDel(ce_threshold_ms=1, target_ms=2)
    run = simulate(dumbbell([flow], rate_mbps=10, aqm=aqm, buffer_packets=100, duration_s=5))
    packets = run.ingress.packets
    said = packets.tcp_flags & 448
    assert said[0] == syn and (packets.tcp_flags[0] & 2) and said[1] == syn_ack and said[2] == third
    acks = packets[(packets.direction == 1) & (packets.tcp_flags & 2 == 0)]
    assert set(acks.tcp_flags & 448) == flags


def test_senders_own_link():
    """It spaces what the sender emits at once, and if it is the slowest, packets wait unsent: the RTT stays short."""
    fast = data(simulate(dumbbell([Flow("reno", access_mbps=50, access_ms=3)], duration_s=1, rate_mbps=1000)))
    assert np.diff(fast.ts_ns)[:9] == pytest.approx(1514 * 8e3 / 50, abs=1)
    run = simulate(dumbbell([Flow("cubic", access_mbps=5)], duration_s=10))
    assert np.diff(data(run).ts_ns).min() >= 1514 * 8e3 / 5 - 1
    assert run.flows.goodput_mbps[0] == pytest.approx(5 * 1448 / 1514, rel=0.02)
    assert run.flows.mean_rtt_ms[0] < 20 + 4 * 1514 * 8e-3 / 5
    assert run.queues.max_delay_ms[0] < 0.001


def test_windows_do_not_grow_for_packets_out_of_order():
    class Watching(Cca):
        """Of this test."""

        class Stats:
            grew = 0
            wrong = 0

        def on_ack(p, s, stats, flow, ack, now_ns):
            if flow.may_grow:
                stats.grew += 1
                flow.cwnd += ack.acked / flow.cwnd
                if ack.advanced == 0 or flow.in_recovery:
                    stats.wrong += 1

    run = simulate(dumbbell([Flow(Watching)], duration_s=20))
    assert run.flows.recoveries[0] > 3
    assert run.cca_stats.grew[0] > 1000 and run.cca_stats.wrong[0] == 0


def test_acknowledgements_of_packets_out_of_order_are_put_together():
    """Linux: the first three for a hole at once, the others by the millisecond, those that fill it at once."""
    flow = Flow("reno", rtt_ms=40, initial_window=200, bytes=200 * 1448, quick_acks=0)
    run = simulate(dumbbell([flow], rate_mbps=100, buffer_packets=1000, aqm=DropOnce(first=100, last=100)))
    acks = run.ingress.packets.query("direction == 1 and tcp_flags == 16")
    repeated = acks[acks.ack.diff() == 0].ts_ns.to_numpy()
    apart_us = np.diff(repeated) / 1e3
    assert len(repeated) == 99
    assert apart_us[:2] == pytest.approx(121.12, abs=0.01)
    # a timer of 1.1 ms begins with the first packet that waits, and again with the first after it ended
    assert sorted({round(x) for x in apart_us[2:]}) == [0, 1211, 1221]


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
    assert gaps[9:] == pytest.approx(expected, abs=2)
    assert (gaps[:9] == 0).all()  # Linux: not the first ten
    assert run.flows.goodput_mbps[0] == pytest.approx(mbps * 1448 / 1514, rel=0.04)


def test_pacing_makes_up_for_a_packet_that_was_late():
    """Linux: after a packet that left later than it might have, the next gap is shorter, by half at most."""
    flow = Flow(Paced(mbps=5), on_s=0.1, off_s=0.2)
    sent = data(simulate(dumbbell([flow], duration_s=3))).ts_ns.to_numpy()
    gap = 1514 * 8e3 / 5
    begins = np.flatnonzero(np.diff(sent) > 100e6) + 1
    assert len(begins) > 5
    for i in begins:
        assert sent[i + 1] - sent[i] == pytest.approx(gap / 2, abs=2)
        assert sent[i + 2] - sent[i + 1] == pytest.approx(gap, abs=2)


def test_the_timer_goes_by_the_first_packet_an_acknowledgement_is_for():
    """RFC 6298 with delayed ACKs: the first of two packets waited for the other; how long, is no part of the path's."""
    run = simulate(dumbbell([Flow(Paced(mbps=2.4), rtt_ms=20, quick_acks=0)], rate_mbps=1000))
    last = run.flow_series.iloc[-1]
    apart_ms = 1514 * 8e-3 / 2.4
    assert last.rtt_ns / 1e6 == pytest.approx(20, abs=0.1)
    assert last.srtt_ns / 1e6 == pytest.approx(20 + apart_ms, abs=0.2)


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
    """RFC 9332, section 4.2.2: the head with the greater wait goes, queue 0's counted `time_shift_ms` longer."""
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


@pytest.mark.parametrize("low_mbps", [9, 30])
def test_dual_weighted_round_robin(low_mbps):
    """Linux's dualpi2 (dequeue_packet): the sign of a credit says who goes; it changes only while both wait."""
    flows = [
        Flow("udp", rate_mbps=low_mbps, ecn="l4s", arrivals="poisson"),
        Flow("udp", rate_mbps=12, arrivals="poisson"),
    ]
    run = simulate(dumbbell(flows, scheduler="dual_wrr", buffer_packets=10_000, duration_s=4))
    arrived = {f: run.ingress.packets.query("flow_id == @f").ts_ns.to_numpy() for f in (0, 1)}
    left = run.egress.packets
    took = round(1514 * 8e3 / 20)
    taken, decided, clear, fresh = {0: 0, 1: 0}, 0, True, 1514 * (10 - 90)
    credit, last = fresh, -took
    for ts_ns, flow in zip(left.ts_ns.to_numpy(), left.flow_id.to_numpy(), strict=True):
        start = ts_ns - took
        if start > last + 2:  # the link had nothing to send
            credit, clear = fresh, True
        last = ts_ns
        since = {f: start - arrived[f][taken[f]] for f in (0, 1) if taken[f] < len(arrived[f])}
        other = since.get(1 - flow, -took)
        if abs(other) <= 2:  # times do not tell whether it was there already
            clear = False
        elif other > 0:
            if clear:
                decided += 1
                assert flow == (0 if credit <= 0 else 1)
            credit += 1514 * (10 if flow == 0 else -90)
        taken[flow] += 1
    assert decided > 500
    shares = left[left.ts_ns > 10**9].groupby("flow_id").wire_bytes.sum() * 8e-6 / 3
    expected = [9, 11] if low_mbps == 9 else [18, 2]
    assert shares.tolist() == pytest.approx(expected, rel=0.05)
    if (
        low_mbps == 9
    ):  # with priority alone it were 0.55 ms (Poisson arrivals, rho / 2 (1 - rho_L) sending times)
        assert 0.55 < run.queues.mean_delay_ms[0] < 0.9


def test_a_shaper_lets_packets_go_at_once_and_holds_the_next_back():
    """As Linux's htb: spacing is the wire's, but no packet's round trip has its own sending time in it."""
    flow = Flow("reno", rtt_ms=20, access_mbps=50)
    wire, shaper = (simulate(dumbbell([flow], link=link, buffer_packets=50)) for link in ("wire", "shaper"))
    took_ns = 1514 * 8e3 / 20
    for run in (wire, shaper):
        sent = run.egress.packets.query("direction == 0 and payload_bytes > 0").ts_ns.to_numpy()
        assert np.median(np.diff(sent)) == pytest.approx(took_ns, abs=1)
        assert np.diff(sent).min() >= took_ns - 1
        least = rtt_samples(run.ingress).query("direction == 0").rtt_ns[1:].min() / 1e6  # but the SYN's
        assert least == pytest.approx(20 if run is shaper else 20 + took_ns / 1e6, abs=0.01)
    delays = [
        queue_delay(r.ingress, r.egress).query("payload_bytes > 0").delay_ns.min() for r in (wire, shaper)
    ]
    assert delays == pytest.approx([took_ns, 0], abs=2)


def test_priority_starves_lower_queues():
    flows = [Flow("udp", rate_mbps=15, queue=0), Flow("udp", rate_mbps=15, queue=1)]
    run = simulate(dumbbell(flows, scheduler="priority", queues=(Queue(), Queue()), duration_s=5))
    assert run.queues.sent_bytes[0] * 8e-6 / 5 == pytest.approx(15, rel=0.01)
    assert run.queues.sent_bytes[1] * 8e-6 / 5 == pytest.approx(5, rel=0.02)
    assert run.queues.max_delay_ms[0] <= 1514 * 8e-3 / 20 + 0.001


def test_quick_acks_then_every_second_packet():
    """Linux: one by one at first, and as long as the receive window grows, which slow start makes it do."""
    run = simulate(dumbbell([Flow("reno")], duration_s=5, rate_mbps=10, buffer_packets=100))
    acks = run.ingress.packets.query("direction == 1 and tcp_flags == 16")
    steps = np.diff(acks.ack.to_numpy().astype(np.int64)) % 2**32 // 1448
    assert (steps[:19] == 1).all()
    assert np.mean(steps[:100] == 1) > 0.8
    assert np.mean(steps[acks.ts_ns.to_numpy()[1:] > 3 * 10**9] == 2) > 0.97


def test_a_change_of_marks_is_signalled_at_once():
    """RFC 8257, section 3.2: when CE begins or ends to be set the receiver does not wait for a second packet."""

    class MarkSome(Aqm):
        """Of this test: marks a third of the packets, at random."""

        def on_dequeue(p, s, stats, queue, packet, now_ns):
            return MARK if packet.ecn > 0 and random(queue) < 1 / 3 else PASS

    class Steady(Cca):
        """Of this test: a window that stays."""

        ecn = "accurate"

    run = simulate(dumbbell([Flow(Steady)], aqm=MarkSome, duration_s=10))
    out = run.egress.packets
    sent = out[(out.direction == 0) & (out.payload_bytes > 0)]
    changes = sent[((sent.ecn == 3) != (sent.ecn.shift() == 3)) & (sent.ts_ns < 9.9e9)].iloc[1:]
    acks = run.ingress.packets.query("direction == 1")
    ends = (changes.seq + changes.payload_bytes).to_numpy()
    assert len(changes) > 100
    assert np.isin(ends, acks.ack.to_numpy()).all()
    assert len(acks) < 0.9 * len(sent)


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
