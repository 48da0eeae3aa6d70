"""The simulator: nothing is lost from the books, order is kept, and TCP does what its laws say."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import cctoolkit as cct
from cctoolkit import aqm, cca
from cctoolkit.errors import AlgorithmError
from cctoolkit.scenario import Bottleneck, Flow, Queue, Scenario
from cctoolkit.sim.simulation import Simulation, simulate

TRACES = Path(__file__).parents[1] / "traces"


def dumbbell(flows, *, rate_mbps=20.0, buffer_packets=50, duration_s=5.0, seed=1, **bottleneck):
    return Scenario(
        bottleneck=Bottleneck(rate_mbps=rate_mbps, buffer_packets=buffer_packets, **bottleneck),
        flows=flows,
        duration_s=duration_s,
        seed=seed,
    )


MIXED = [
    Flow("cubic", rtt_ms=20, access_ms=3),
    Flow("reno", rtt_ms=60, start_s=0.5, stop_s=4, jitter_ms=2, loss=0.002),
    Flow("reno", rtt_ms=10, bytes=300_001, start_s=1),
    Flow("udp", rate_mbps=3, arrivals="poisson", on_s=0.3, off_s=0.2, on_off="exponential"),
    Flow("cubic", rtt_ms=30, rate_mbps=2, ecn=True),
]
SCHEDULERS = {
    "fifo": {},
    "codel": {"aqm": "codel"},
    "drr": {"queues": (Queue(weight=2), Queue(weight=1, max_rate_mbps=4))},
    "priority": {"queues": (Queue(max_rate_mbps=12), Queue()), "scheduler": "priority"},
    "fq": {"scheduler": "fq", "aqm": "codel", "fq_queues": 4},
    "dual_wrr": {"scheduler": "dual_wrr"},
    "dual_ts": {"scheduler": "dual_ts"},
}


def mixed_scenario(scheduler):
    queues = len(SCHEDULERS[scheduler].get("queues", ()))
    scenario = dumbbell(MIXED, **SCHEDULERS[scheduler])
    return (
        scenario.replace({f"flows.{i}.queue": i % queues for i in range(len(MIXED))}) if queues else scenario
    )


@pytest.fixture(scope="module", params=SCHEDULERS)
def mixed(request):
    sim = Simulation(mixed_scenario(request.param), record=True)
    sim.run()
    return sim, sim.result()


def test_packets_are_conserved(mixed):
    sim, run = mixed
    q, f = run.queues, run.flows
    dropped = q.dropped_full + q.dropped_enqueue + q.dropped_dequeue
    assert (q.arrived_packets == q.sent_packets + dropped + q.packets).all()
    forward = run.ingress.columns["direction"] == 0
    assert forward.sum() == q.arrived_packets.sum()
    assert (run.egress.columns["direction"] == 0).sum() == q.sent_packets.sum()
    assert run.ingress.columns["dropped"].sum() == dropped.sum() == (run.drops.why != "path").sum()
    assert (run.drops.why == "path").sum() == f.lost_on_path.sum() > 0
    # each record in the pool is a packet: waiting, or on its way somewhere
    on_the_way = (
        f.sent_packets.sum() - f.received_packets.sum() - f.dropped_packets.sum() - f.lost_on_path.sum()
    )
    assert 0 <= on_the_way <= sim._arrays["port"]["node_live"][0]


def test_all_payload_arrives_once_and_the_finite_flow_ends(mixed):
    _, run = mixed
    flow = run.flows.iloc[2]
    assert flow.received_bytes == 300_001
    assert flow.end_s > flow.start_s and flow.completion_s == pytest.approx(flow.end_s - flow.start_s)
    out = run.egress.packets
    data = out[(out.flow_id == 2) & (out.payload_bytes > 0)].drop_duplicates("seq")
    assert data.payload_bytes.sum() == 300_001


def test_taps_are_in_order_of_time_and_keep_each_flows_order(mixed):
    _, run = mixed
    for tap in (run.ingress, run.egress):
        assert (np.diff(tap.columns["ts_ns"]) >= 0).all()
    came, left = (t.packets[t.packets.direction == 0] for t in (run.ingress, run.egress))
    came = came[~came.dropped]
    for flow in range(5):
        a, b = (x[x.flow_id == flow].reset_index() for x in (came, left))
        n = len(b)  # what is still waiting comes last
        for column in ("seq", "payload_bytes", "tsval", "tcp_flags"):
            assert (a[column][:n] == b[column]).all()
        assert (a.ts_ns[:n] < b.ts_ns).all()


def test_link_never_sends_faster_than_its_rate(mixed):
    _, run = mixed
    out = run.egress.packets[run.egress.packets.direction == 0]
    gaps = np.diff(out.ts_ns)
    assert (gaps >= out.wire_bytes.to_numpy()[1:] * 400 - 1).all()  # 20 Mbit/s: 400 ns a byte


def test_recorded_delays_are_the_queues_own(mixed):
    _, run = mixed
    delays = cct.queue_delay(run.ingress, run.egress)
    delays = delays[delays.payload_bytes > 0]
    tcp = delays[delays.flow_id != 3]
    inside = tcp.delay_ns - tcp.wire_bytes * 400
    assert inside.min() >= -1
    assert tcp.lost.fillna(False).sum() == run.ingress.packets.query("dropped and flow_id != 3").shape[0]


def test_fifo_keeps_order_across_flows():
    run = simulate(mixed_scenario("fifo"))
    came = run.ingress.packets.query("direction == 0 and not dropped").reset_index()
    left = run.egress.packets.query("direction == 0").reset_index()
    n = len(left)
    assert n > 5000
    for column in ("flow_id", "seq", "wire_bytes"):
        assert (came[column][:n] == left[column]).all()


@pytest.mark.parametrize("scheduler", ["fifo", "fq"])
def test_same_seed_same_packets_however_it_is_cut(scheduler):
    scenario = mixed_scenario(scheduler)
    whole = simulate(scenario, sample_s=None)
    sim = Simulation(scenario, record=True, sample_s=0.0371)
    for i in range(1, 500):
        sim.run(i * 0.01)
    sim.run()
    cut = sim.result()
    for tap in ("ingress", "egress"):
        a, b = getattr(whole, tap).columns, getattr(cut, tap).columns
        assert all((a[name] == b[name]).all() for name in a)
    assert whole.flows.equals(cut.flows)
    other = simulate(scenario.replace({"seed": 2}))
    assert len(other.ingress) != len(whole.ingress)


def test_recording_changes_nothing():
    scenario = mixed_scenario("codel")
    assert simulate(scenario, record=False).flows.equals(simulate(scenario, record=True).flows)


def test_memory_is_for_packets_in_flight():
    sim = Simulation(dumbbell([Flow("cubic", count=4)], rate_mbps=200, duration_s=20), sample_s=None)
    sim.run()
    assert sim.queues.sent_packets[0] > 300_000
    assert sim._arrays["port"]["node_used"][0] < 1000
    assert sim._arrays["port"]["segment_used"][0] < 1000


def test_pools_grow_without_a_trace():
    """2000 packets in flight are more than the pools begin with; the run is the same as with room to spare."""
    scenario = dumbbell(
        [Flow("reno", rtt_ms=200, initial_window=6000)], rate_mbps=1000, buffer_packets=10_000
    )
    small, big = Simulation(scenario, sample_s=None), Simulation(scenario, sample_s=None)
    for name in ("nodes", "segments"):
        big._arrays[name] = np.zeros(100_000, big._arrays[name].dtype)
    big._set_room(big._arrays)
    for sim in (small, big):
        sim.run()
    assert small._arrays["port"]["node_used"][0] > 6000
    assert small.flows.equals(big.flows)


@pytest.mark.parametrize("p", [0.001, 0.004, 0.01])
def test_reno_under_random_loss_follows_the_square_root(p):
    """Mathis et al. 1997: the mean window is sqrt(3 / 2p), ACKs not delayed in effect (bytes are counted)."""
    run = simulate(
        dumbbell(
            [Flow("reno", rtt_ms=50, loss=p, count=8)], rate_mbps=10_000, buffer_packets=10**6, duration_s=300
        ),
        record=False,
    )
    window = run.flows.received_packets.mean() / 300 * 0.05
    assert window == pytest.approx(math.sqrt(1.5 / p), rel=0.1)


def test_two_renos_share():
    run = simulate(dumbbell([Flow("reno", count=2)], duration_s=120), record=False)
    assert cct.jain_index(run.flows.goodput_mbps) > 0.99


def test_one_cubic_fills_the_link():
    run = simulate(dumbbell([Flow("cubic", rtt_ms=40)], rate_mbps=100, buffer_packets=200, duration_s=30))
    assert run.flows.goodput_mbps[0] > 0.98 * 100 * 1448 / 1514
    assert run.flows.timeouts[0] == 0


def test_lost_retransmissions_are_noticed_without_a_timeout():
    run = simulate(dumbbell([Flow("reno", loss=0.1, rtt_ms=20)], duration_s=60, rate_mbps=100), record=False)
    flow = run.flows.iloc[0]
    assert flow.lost_on_path > 300
    assert flow.timeouts < 0.1 * flow.lost_on_path


def test_udp_keeps_its_rate_and_tcp_its_applications():
    run = simulate(
        dumbbell([Flow("udp", rate_mbps=3), Flow("reno", rate_mbps=2)], duration_s=20), record=False
    )
    wire = run.flows.sent_packets * 1514 * 8 / 20e6
    assert wire[0] == pytest.approx(3, rel=0.001)
    assert wire[1] == pytest.approx(2, rel=0.01)


def test_rate_follows_its_schedule_and_a_controller():
    scenario = dumbbell([Flow("cubic")], duration_s=9, rate_schedule=((3, 5),))
    run = simulate(
        scenario, control=lambda sim: sim.set_rate(40) if sim.now_s > 5.99 else None, control_s=1.0
    )
    out = run.egress.packets.query("direction == 0")
    bits = out.groupby(out.ts_ns // 10**9).wire_bytes.sum() * 8e-6
    assert bits[[1, 2]].to_numpy() == pytest.approx(20, rel=0.02)
    assert bits[[4, 5]].to_numpy() == pytest.approx(5, rel=0.02)
    assert bits[8] > 30
    assert run.scenario.bottleneck.rate_schedule == ((3, 5), (6, 40), (7, 40), (8, 40))
    assert 0.9 < run.summary()["utilisation"] <= 1


def test_results_so_far_are_of_the_time_so_far():
    sim = Simulation(dumbbell([Flow("cubic"), Flow("reno", start_s=15)], duration_s=20))
    sim.run(4)
    so_far, whole = sim.result(), simulate(dumbbell([Flow("cubic")], duration_s=4))
    assert so_far.duration_s == 4 and so_far.summary() == whole.summary()
    assert so_far.summary()["jain_index"] == 1  # the other one has not started
    assert (so_far.labels.start_ns <= so_far.labels.stop_ns).all()
    sim.run()
    assert sim.result().scenario == sim.scenario


def test_drr_gives_weights_and_wastes_nothing_but_shaping_does():
    flows = [Flow("udp", rate_mbps=30, queue=0), Flow("udp", rate_mbps=30, queue=1, stop_s=5)]
    queues = (Queue(weight=3), Queue(weight=1))
    run = simulate(dumbbell(flows, duration_s=10, queues=queues))
    out = run.egress.packets
    bits = out.groupby([out.ts_ns // 10**9, "flow_id"]).wire_bytes.sum().unstack() * 8e-6
    assert bits[0][3] / bits[1][3] == pytest.approx(3, rel=0.02)
    assert bits[0][8] == pytest.approx(20, rel=0.01)
    shaped = simulate(dumbbell(flows, duration_s=10, queues=(Queue(max_rate_mbps=8), Queue())))
    out = shaped.egress.packets
    assert out[out.ts_ns > 8 * 10**9].wire_bytes.sum() * 8e-6 / 2 == pytest.approx(8, rel=0.01)


def test_controller_moves_a_flow_to_another_queue():
    scenario = dumbbell([Flow("reno"), Flow("reno")], queues=(Queue(), Queue()), scheduler="drr")
    run = simulate(scenario, control=lambda sim: sim.assign_queue(1, 1), control_s=2.0)
    assert (run.queues.sent_packets > 1000).all()


def test_classic_ecn_halves_without_loss():
    run = simulate(dumbbell([Flow("reno", ecn=True)], aqm="codel", buffer_packets=1000, duration_s=30))
    assert run.flows.marked_packets[0] > 10
    after_start = run.flow_series[run.flow_series.ts_ns > 5 * 10**9]
    assert run.flows.retransmits[0] == 0
    assert after_start.srtt_ns.mean() < 30e6
    assert (
        (run.ingress.columns["tcp_flags"] & 128 > 0) & (run.ingress.columns["payload_bytes"] > 0)
    ).sum() > 5


@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_against_the_kernel(name):
    """Utilisation and mean queueing delay of the bundled captures of Linux within 15 %."""
    real = [cct.read_capture(TRACES / f"{name}.{tap}.pcap.gz") for tap in ("ingress", "egress")]
    run = simulate(dumbbell([Flow(name, rtt_ms=40)], rate_mbps=8, buffer_packets=40, duration_s=12.12))
    figures = []
    for ingress, egress in (real, (run.ingress, run.egress)):
        delays = cct.queue_delay(ingress, egress)
        forward = egress.columns["direction"] == 0
        sent = egress.columns["wire_bytes"][forward].sum()
        figures.append((delays[delays.payload_bytes > 0].delay_ns.mean(), sent / egress.meta.duration_s))
    assert figures[1] == pytest.approx(figures[0], rel=0.15)


def test_captures_go_through_the_analyses(tmp_path):
    run = simulate(dumbbell([Flow("cubic", rtt_ms=40), Flow("reno", rtt_ms=40, access_ms=5)]))
    run.ingress.to_pcap(tmp_path / "in.pcap")
    again = cct.read_capture(tmp_path / "in.pcap")
    assert len(again) == len(run.ingress)
    flows = run.ingress.flows
    assert flows.retransmits_fwd.to_list() == run.flows.retransmits.to_list()
    assert not flows.out_of_order_fwd.any()
    rtt = cct.rtt_samples(run.egress).query("direction == 0").groupby("flow_id").rtt_ns.min() / 1e6
    assert rtt[0] == pytest.approx(40, abs=0.01)
    assert rtt[1] == pytest.approx(30, abs=0.01)  # 5 ms each way lie before the tap


class Broken(cca.Cca):
    """Its window becomes no number."""

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        flow.cwnd = math.nan


class Misspelt(aqm.Aqm):
    """Uses a field that is not there."""

    class State:
        count = 0

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        s.cuont += 1
        return aqm.PASS


class Forgetful(aqm.Aqm):
    """Answers not always."""

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        if packet.ecn == 3:
            return 0


class Raising(aqm.Aqm):
    """Fails on the way."""

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if queue.packets > 5:
            raise ValueError("too many")
        return 0


@pytest.mark.slow
def test_mistakes_in_an_algorithm_name_the_line():
    with pytest.raises(AlgorithmError, match=r"Misspelt.on_dequeue, line \d+: 's.cuont \+= 1': .*'cuont'"):
        simulate(dumbbell([Flow("reno")], aqm=Misspelt))
    with pytest.raises(AlgorithmError, match=r"Forgetful.on_dequeue.*every path"):
        simulate(dumbbell([Flow("reno")], aqm=Forgetful))
    with pytest.raises(AlgorithmError, match=r"flow 0 \(broken\) at .* cwnd nan"):
        simulate(dumbbell([Flow(Broken)]))
    with pytest.raises(AlgorithmError, match="too many"):
        simulate(dumbbell([Flow("reno")], aqm=Raising))


class Threshold(aqm.Aqm):
    """A user's AQM, as the documentation shows it."""

    limit_ms: float = 3.0

    class Stats:
        drops = 0

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        if now_ns - packet.enqueued_ns > p.limit_ns:
            stats.drops += 1
            return aqm.DROP
        return aqm.PASS


def test_a_users_aqm_runs():
    run = simulate(dumbbell([Flow("reno")], aqm=Threshold(limit_ms=8)))
    assert run.queues.max_delay_ms[0] <= 8
    assert run.aqm_stats.drops[0] == run.queues.dropped_dequeue[0] > 0


@pytest.mark.parametrize("scheduler", [None, "fq"])
def test_looking_ahead_changes_no_result(monkeypatch, scheduler):
    """With many flows, the loop asks for memory in advance; that is all it does."""
    flows = [Flow("cubic", rtt_ms=10 + i % 7, start_s=i / 1000, access_ms=i % 3) for i in range(300)]
    scenario = dumbbell(flows, rate_mbps=100, duration_s=1, scheduler=scheduler)
    ahead = Simulation(scenario, record=True)
    monkeypatch.setattr("cctoolkit.sim.simulation._MANY_FLOWS", 10**6)
    plain = Simulation(scenario, record=True)
    assert ahead._arrays["port"]["look_ahead"][0] and not plain._arrays["port"]["look_ahead"][0]
    runs = []
    for sim in (ahead, plain):
        sim.run()
        runs.append(sim.result())
    one, other = runs
    assert one.queues.dropped_full.sum() > 100
    for table in ("flows", "queues", "drops", "flow_series"):
        assert getattr(one, table).equals(getattr(other, table)), table
    for tap in ("ingress", "egress"):
        assert getattr(one, tap).packets.equals(getattr(other, tap).packets), tap


def test_results_so_far_stay_when_a_simulation_goes_on():
    """The captures share memory with what is recorded later, which must not reach them."""
    sim = Simulation(dumbbell([Flow("cubic", access_ms=3), Flow("reno")], rate_mbps=100), record=True)
    sim.run(1)
    early = sim.result()
    before = [tap.packets.copy() for tap in (early.ingress, early.egress)]
    sim.run()
    late = sim.result()
    for tap, was, whole in zip(
        (early.ingress, early.egress), before, (late.ingress, late.egress), strict=True
    ):
        assert tap.packets.equals(was)
        assert len(whole.packets) > 3 * len(was) > 1000
        settled = was.ts_ns.to_numpy() < 0.9e9  # later, rows of the two directions may still change places
        columns = [name for name in was if name != "dropped"]
        assert whole.packets[columns].iloc[: settled.sum()].equals(was.loc[settled, columns])


def test_the_state_of_a_queue_is_its_own_where_others_share_theirs():
    shared, own = aqm.Csfq(), aqm.CoDel()
    queues = [Queue(aqm=shared), Queue(aqm=own), Queue(aqm=shared)]
    sim = Simulation(
        Scenario(
            bottleneck=Bottleneck(rate_mbps=10, buffer_packets=50, queues=queues),
            flows=[Flow("reno", rtt_ms=20, queue=n) for n in range(3)],
            duration_s=1,
        )
    )
    first, second, third = (sim.aqm_state(n) for n in range(3))
    assert first.dtype == third.dtype != second.dtype
    assert np.shares_memory(np.asarray(first), np.asarray(third))
