"""The control plane: shares, buffers, who goes where, and what becomes of the flows in the closed loop."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import cctoolkit as cct
from cctoolkit.errors import ParameterError, SchemaError
from cctoolkit.separation.buffers import bdp_bytes, stanford_buffer_bytes
from cctoolkit.separation.competitors import BufferResizing, CcaSeparation
from cctoolkit.separation.controller import RttSeparation, max_min_shares
from cctoolkit.separation.jenks import IncrementalClasses
from cctoolkit.separation.meters import METRICS, CaptureMeter, RunMeter, capture_metrics
from cctoolkit.separation.replay import replay
from cctoolkit.separation.watched import WatchedCapture

TRACES = Path(__file__).parents[1] / "traces"
positive = st.floats(0.01, 1e5)


# ---- buffers ---------------------------------------------------------------------------------------------------------


def test_buffers_by_hand() -> None:
    assert bdp_bytes(1000, 60) == 7_500_000  # 1 Gbit/s for 60 ms
    assert stanford_buffer_bytes(1000, 60, 4) == 3_750_000
    assert stanford_buffer_bytes(1, 1) == 10 * 1514
    assert stanford_buffer_bytes([1000, 1000], [60, 6], [9, 1]).tolist() == [2_500_000, 750_000]


@given(positive, positive, positive, positive, st.integers(1, 10_000), st.integers(1, 10_000))
def test_buffers_are_positive_and_monotone(
    rate: float, more_rate: float, rtt: float, more_rtt: float, n: int, more: int
) -> None:
    room = stanford_buffer_bytes(rate, rtt, n)
    assert room >= 10 * 1514
    assert stanford_buffer_bytes(rate + more_rate, rtt, n) >= room
    assert stanford_buffer_bytes(rate, rtt + more_rtt, n) >= room
    assert stanford_buffer_bytes(rate, rtt, n + more) <= room
    assert room <= max(math.ceil(bdp_bytes(rate, rtt)), 15140)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
def test_buffers_refuse(bad: float) -> None:
    for arguments in ((bad, 10, 1), (10, bad, 1), (10, 10, bad if bad != 0 else 0.5)):
        with pytest.raises(ParameterError):
            stanford_buffer_bytes(*arguments)


# ---- shares ----------------------------------------------------------------------------------------------------------

demands = st.lists(st.one_of(st.floats(0, 100), st.just(math.inf)), min_size=1, max_size=8)


@given(st.floats(0.1, 200), demands, st.randoms())
def test_max_min(rate: float, wanted: list[float], random: object) -> None:
    """The definition: nobody gets more by weight unless somebody who has less (by weight) is content."""
    weight = np.array([random.choice([0.5, 1.0, 2.0, 3.0]) for _ in wanted])
    share = max_min_shares(rate, wanted, weight)
    assert (share <= np.asarray(wanted) * (1 + 1e-12)).all()
    assert share.sum() == pytest.approx(min(rate, sum(wanted)))
    hungry = share < np.asarray(wanted) * (1 - 1e-9)
    for i in np.flatnonzero(hungry):
        assert share[i] / weight[i] >= (share / weight).max() * (1 - 1e-9)


def test_max_min_is_what_test_2_of_the_paper_shows() -> None:
    """Two flows of 500 Mbit/s each; one falls to 250, the other gets 750."""
    assert max_min_shares(1000, [math.inf, math.inf]).tolist() == [500, 500]
    assert max_min_shares(1000, [math.inf, 250]).tolist() == [750, 250]


def test_max_min_refuses() -> None:
    with pytest.raises(ParameterError):
        max_min_shares(-1, [1])
    with pytest.raises(ParameterError):
        max_min_shares(1, [1, 2], [1])
    with pytest.raises(ParameterError):
        max_min_shares(1, [1], [0])


# ---- one decision ----------------------------------------------------------------------------------------------------


def table(*rows: tuple[object, ...]) -> pd.DataFrame:
    """(flow_id, rtt_ms, throughput_mbps), and what may be told besides."""
    filled = [
        {
            "flow_id": row[0],
            "protocol": 6,
            "rtt_ms": row[1],
            "latest_rtt_ms": row[1],
            "throughput_mbps": row[2],
            "offered_mbps": row[2],
            "is_long": True,
        }
        | (row[3] if len(row) > 3 else {})
        for row in rows
    ]
    return pd.DataFrame(filled, columns=[*METRICS, "cca"])


def test_classes_udp_and_the_rest() -> None:
    controller = RttSeparation(100, k=2)
    assert controller.roles == ("default", "class", "class", "udp")
    decision = controller.decide(
        table(
            (7, 10.0, 20),
            (3, 11.0, 20),
            (5, 80.0, 20),
            (9, 12.0, 5, {"is_long": False}),
            (11, math.nan, 5),
            (20, math.nan, 30, {"protocol": 17, "is_long": False}),
        ),
        1.0,
    )
    assert dict(zip(decision.flows.flow_id, decision.flows.queue, strict=True)) == {3: 1, 7: 1, 5: 2, 20: 3}
    assert decision.assignments == {3: 1, 7: 1, 5: 2, 20: 3}
    assert decision.flows.role.tolist() == ["class", "class", "class", "udp"]
    q = decision.queues
    assert q.flows.tolist() == [2, 2, 1, 1]
    assert q.weight.tolist() == [2, 2, 1, 1]
    assert q.rtt_ms.tolist()[:3] == [12, 10.5, 80]
    assert decision.gvf == pytest.approx(1, abs=1e-3)
    # class 2: a sixth of 100 Mbit/s, 80 ms, one flow
    assert q.buffer_bytes[2] >= stanford_buffer_bytes(100 / 6, 80, 1)
    assert controller.log[0]["added"] == 4


def test_only_what_changed() -> None:
    controller = RttSeparation(100, k=2)
    flows = table((1, 10.0, 50), (2, 80.0, 50))
    first = controller.decide(flows, 1.0)
    assert first.assignments == {1: 1, 2: 2}
    assert set(first.buffers) == {0, 1, 2, 3}
    again = controller.decide(flows, 1.1)
    assert again.changes == 0
    joined = controller.decide(table((1, 10.0, 50), (2, 80.0, 50), (3, 81.0, 0)), 1.2)
    assert joined.assignments == {3: 2}
    left = controller.decide(table((2, 80.0, 50), (3, 81.0, 50)), 1.3)
    assert left.assignments[1] == 0
    assert sum(entry["removed"] for entry in controller.log) == 1


def test_batches() -> None:
    controller = RttSeparation(100, k=2, batch_s=1.0)
    controller.decide(table((1, 10.0, 50)), 0.0)
    waiting = controller.decide(table((1, 10.0, 50), (2, 80.0, 50)), 0.5)
    assert waiting.changes == 0 and waiting.flows.flow_id.tolist() == [1]
    done = controller.decide(table((1, 10.0, 50), (2, 80.0, 50)), 1.0)
    assert done.flows.flow_id.tolist() == [1, 2]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 40), st.floats(1, 300), st.floats(0, 50)), min_size=1, max_size=30,
                unique_by=lambda row: row[0]), st.randoms())  # fmt: skip
def test_decisions_do_not_depend_on_the_order(rows: list[tuple[int, float, float]], random: object) -> None:
    first = RttSeparation(100).decide(table(*rows), 0.0)
    random.shuffle(rows)
    second = RttSeparation(100).decide(table(*rows), 0.0)
    pd.testing.assert_frame_equal(first.flows, second.flows)
    pd.testing.assert_frame_equal(first.queues, second.queues)
    assert (first.queues.buffer_bytes > 0).all()
    assert (first.queues.weight > 0).all()
    here = first.queues.flows > 0
    assert first.queues.share_mbps[here].sum() <= 100 * (1 + 1e-9)


def test_shares() -> None:
    flows = table((1, 10.0, 100), (2, 10.0, 100), (3, 80.0, 100))
    weights = {}
    for shares in ("flows", "queues", "rtt"):
        weights[shares] = RttSeparation(100, 2, shares=shares).decide(flows, 0.0).queues.weight.tolist()[1:3]
    assert weights == {"flows": [2, 1], "queues": [1, 1], "rtt": [1, 4]}


def test_unused_share_goes_to_the_others() -> None:
    controller = RttSeparation(1000, k=2)
    controller.decide(table((1, 20.0, 500), (2, 60.0, 500)), 0.0)
    share = controller.decide(table((1, 20.0, 500), (2, 60.0, 200)), 1.0).queues.share_mbps
    assert share[2] == pytest.approx(250)  # what it sends and a quarter more, so that it can grow
    assert share[1] == pytest.approx(750)


def test_the_loudest_is_isolated() -> None:
    controller = RttSeparation(100, k=1, latency_threshold_ms=5.0)
    quiet = {"latest_rtt_ms": 40.0, "offered_mbps": 5.0}
    loud = {"latest_rtt_ms": 41.0, "offered_mbps": 95.0}
    decision = controller.decide(table((1, 20.0, 5, quiet), (2, 20.0, 95, loud)), 0.0)
    assert dict(zip(decision.flows.flow_id, decision.flows.role, strict=True)) == {1: "class", 2: "isolated"}
    # nobody else suffers now: alone in its queue, a flow may wait as long as it likes
    decision = controller.decide(table((1, 20.0, 5), (2, 20.0, 95, loud)), 5.0)
    assert controller.isolated == {2}
    # it stays there until it ends
    decision = controller.decide(table((1, 20.0, 5), (2, 20.0, 95)), 10.0)
    assert decision.flows.role.tolist() == ["class", "isolated"]
    controller.decide(table((1, 20.0, 5)), 11.0)
    assert controller.isolated == set()


def test_isolation_waits_for_what_it_did() -> None:
    controller = RttSeparation(100, k=1, latency_threshold_ms=5.0)
    slow = {"latest_rtt_ms": 120.0}
    flows = table((1, 20.0, 5, slow), (2, 20.0, 60, slow), (3, 20.0, 40, slow))
    controller.decide(flows, 0.0)
    assert controller.isolated == {2}
    controller.decide(flows, 0.1)
    assert controller.isolated == {2}
    controller.decide(flows, 0.5)  # four round trips later
    assert controller.isolated == {2, 3}


def test_controllers_refuse() -> None:
    with pytest.raises(ParameterError, match="rate_mbps"):
        RttSeparation(0)
    with pytest.raises(ParameterError, match="k: 0"):
        RttSeparation(10, 0)
    with pytest.raises(ParameterError, match="shares"):
        RttSeparation(10, shares="all")
    with pytest.raises(ParameterError, match="latency_threshold_ms"):
        RttSeparation(10, 2, latency_threshold_ms=[1, 2])
    with pytest.raises(ParameterError, match=r"k: 2\.5"):
        CcaSeparation(10, 2.5)
    with pytest.raises(SchemaError, match="rtt_ms"):
        RttSeparation(10).decide(pd.DataFrame({"flow_id": [1]}), 0.0)
    with pytest.raises(SchemaError, match="no column cca"):
        CcaSeparation(10).decide(table((1, 10.0, 1)).drop(columns="cca"), 0.0)


# ---- competitors -----------------------------------------------------------------------------------------------------


def test_queues_by_congestion_control() -> None:
    controller = CcaSeparation(100, 2)
    flows = table(
        (1, 10.0, 5, {"cca": "cubic"}), (2, 80.0, 5, {"cca": "bbr"}), (3, 40.0, 5, {"cca": "cubic"}),
        (4, 40.0, 5, {"cca": "reno"}), (5, 40.0, 5, {"cca": "bbr", "is_long": False}),
    )  # fmt: skip
    decision = controller.decide(flows, 0.0)
    assert dict(zip(decision.flows.flow_id, decision.flows.queue, strict=True)) == {1: 1, 2: 2, 3: 1, 4: 2}
    assert decision.buffers == {}
    guess = CcaSeparation(100, 2, predict=lambda flows: np.where(flows.rtt_ms > 50, "bbr", ""))
    assert guess.decide(flows, 0.0).assignments == {2: 1}


def test_one_resized_buffer() -> None:
    controller = BufferResizing(100)
    decision = controller.decide(table((1, 20.0, 5), (2, 60.0, 5), (3, 900.0, 5, {"is_long": False})), 0.0)
    assert decision.buffers == {0: stanford_buffer_bytes(100, 40, 2)}
    assert decision.assignments == {}


# ---- what is measured ------------------------------------------------------------------------------------------------


def shared(
    flows: list[cct.Flow], rate_mbps: float = 50, rtt_ms: float = 60, duration_s: float = 12
) -> cct.Scenario:
    room = int(bdp_bytes(rate_mbps, rtt_ms))
    bottleneck = cct.Bottleneck(rate_mbps=rate_mbps, buffer_bytes=room)
    return cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=duration_s, seed=3)


def test_a_passive_tap_measures_the_controllers_metrics() -> None:
    """RTTs of simulated senders are those of SEQ/ACK pairing at the ingress tap, at every look.

    But that a sender also has them from SACKs, which may be less where packets were lost.
    """
    flows = [
        cct.Flow("cubic", rtt_ms=20, access_ms=3),
        cct.Flow("bbr", rtt_ms=60),
        cct.Flow("reno", rtt_ms=40, access_ms=20, start_s=1),
    ]
    seen: list[tuple[float, pd.DataFrame]] = []
    meter = RunMeter()
    run = cct.simulate(
        shared(flows, duration_s=6),
        control=lambda sim: seen.append((sim.now_s, meter.read(sim))),
        control_s=0.5,
    )
    samples = cct.rtt_samples(run.ingress)
    assert len(seen) == 11
    for now_s, metrics in seen:
        so_far = samples[samples.ts_ns <= now_s * 1e9]
        least = so_far.groupby(["flow_id", "direction"]).rtt_ns.min().groupby("flow_id").sum() / 1e6
        passive = least[metrics.flow_id].to_numpy()
        assert metrics.rtt_ms.to_numpy() == pytest.approx(passive, rel=0.01)
        assert (metrics.rtt_ms.to_numpy() <= passive + 1e-6).all()
        # without an access delay, the latest is the tap's too: within the packets of one ACK, or of a recovery
        mine = so_far[(so_far.flow_id == 1) & (so_far.direction == 0)]
        assert metrics.latest_rtt_ms[metrics.flow_id == 1].iloc[0] == pytest.approx(
            mine.rtt_ns.iloc[-1] / 1e6, rel=0.2
        )
    # and the meter of captures comes to the same
    whole = capture_metrics(run.ingress)
    assert whole.rtt_ms.to_numpy() == pytest.approx(run.flows.min_rtt_ms.to_numpy(), abs=1e-6)


def test_rates_of_a_run() -> None:
    meter = RunMeter(smoothing_s=1e-9)
    seen: list[pd.DataFrame] = []
    flows = [cct.Flow("udp", rate_mbps=10), cct.Flow("cubic", rate_mbps=5), cct.Flow("cubic", start_s=3)]
    cct.simulate(
        shared(flows, duration_s=4.5),
        control=lambda sim: seen.append(meter.read(sim)),
        control_s=0.5,
        record=False,
    )
    assert seen[0].flow_id.tolist() == [0, 1]
    assert seen[-1].flow_id.tolist() == [0, 1, 2]
    steady = seen[4].set_index("flow_id")
    assert steady.protocol.tolist() == [17, 6]
    assert steady.offered_mbps.to_numpy() == pytest.approx([10, 5], rel=0.02)
    assert steady.throughput_mbps[1] == pytest.approx(5 * 1448 / 1514, rel=0.02)
    assert not steady.is_long.any()


def test_metrics_of_a_capture() -> None:
    """Two Reno flows, 10 and 80 ms: what the labels say, from packets alone."""
    cap = cct.read_capture(TRACES / "rtt-unfairness.egress.pcap.gz")
    found = capture_metrics(cap, long_bytes=1_000_000).set_index("flow_id")
    labels = pd.read_csv(TRACES / "rtt-unfairness.labels.csv")
    flows = cap.flows.set_index("flow_id")
    for label in labels[labels.cca == "reno"].itertuples():
        flow = flows[(flows.sport == label.sport) & (flows.dport == label.dport)].index[0]
        assert found.rtt_ms[flow] == pytest.approx(label.base_rtt_ms, abs=3)
        assert found.bytes[flow] == max(flows.bytes_fwd[flow], flows.bytes_rev[flow])
        assert found.is_long[flow] == (found.bytes[flow] > 1_000_000)


def test_parts_of_a_capture_are_the_whole() -> None:
    cap = cct.read_capture(TRACES / "mixed.ingress.pcap.gz")
    meter = CaptureMeter(idle_s=1e9)
    edges = np.linspace(0, len(cap), 8).astype(int)
    for first, last in itertools.pairwise(edges):
        meter.update({name: column[first:last] for name, column in cap.columns.items()}, cap.keys)
    pd.testing.assert_frame_equal(meter.metrics(cap.duration_s), capture_metrics(cap))
    assert (meter.metrics(1.0).throughput_mbps == 0).all()  # nothing since


def test_a_wrong_timestamp_is_no_day_of_decisions() -> None:
    capture = cct.example("rtt-unfairness").ingress
    late = capture.columns["ts_ns"].copy()
    late[-1] += 2 * 10**18
    wrong = cct.Capture(capture.columns | {"ts_ns": late}, capture.keys, capture.meta)
    with pytest.raises(ParameterError, match="is a timestamp wrong"):
        list(replay(wrong, RttSeparation(10, k=2), 1))
    assert len(capture_metrics(wrong)) == len(capture_metrics(capture))
    early = capture.columns["ts_ns"].copy()
    early[0] += 2 * 10**18
    wrong = cct.Capture(capture.columns | {"ts_ns": early}, capture.keys, capture.meta)
    with pytest.raises(ParameterError, match="is a timestamp wrong"):
        list(replay(wrong, RttSeparation(10, k=2), 1))


def test_times_before_1970() -> None:
    capture = cct.example("rtt-unfairness").ingress
    expected = [decision.assignments for decision in replay(capture, RttSeparation(10, k=2), 5, 500_000)]
    before = capture.columns | {"ts_ns": capture.columns["ts_ns"] - 2 * 10**18}
    old = cct.Capture(before, capture.keys, capture.meta)
    assert [decision.assignments for decision in replay(old, RttSeparation(10, k=2), 5, 500_000)] == expected
    pd.testing.assert_frame_equal(capture_metrics(old), capture_metrics(capture))
    watched = WatchedCapture([old])
    list(watched)
    assert watched.seconds == pytest.approx(capture.duration_s)


def test_replaying_parts_is_replaying_the_whole() -> None:
    path = TRACES / "mixed.ingress.pcap.gz"

    def log(capture: object) -> list[dict]:
        controller = RttSeparation(10, 3)
        list(replay(capture, controller, 0.7, long_bytes=50_000))
        return controller.log

    whole = log(cct.read_capture(path))
    assert len(whole) > 10 and whole[-1]["flows"] > 0
    parts = log(cct.iter_capture(path, packets=777))
    assert str(parts) == str(whole)


def test_what_would_it_have_done() -> None:
    cap = cct.read_capture(TRACES / "rtt-unfairness.egress.pcap.gz")
    controller = RttSeparation(8, k=2)
    decisions = list(replay(cap, controller, 1.0, long_bytes=100_000))
    assert len(decisions) == math.ceil((cap.columns["ts_ns"].max() - cap.columns["ts_ns"].min() + 1) / 1e9)
    queues = decisions[-2].flows.set_index("flow_id").queue
    assert sorted(queues) == [1, 2]
    assert sum(entry["moved"] for entry in controller.log) == 0
    with pytest.raises(ParameterError, match="interval_s"):
        list(replay(cap, controller, 0))


# ---- the closed loop -------------------------------------------------------------------------------------------------


def looped(scenario: cct.Scenario, controller: object) -> cct.Run:
    return cct.simulate(controller.scenario(scenario), control=controller, record=False)


def test_the_link_stays_what_it_was() -> None:
    link = cct.Bottleneck(
        rate_mbps=50, buffer_packets=100, rate_schedule=[(1, 20)], link="shaper", quantum_bytes=3028
    )
    scenario = cct.Scenario(bottleneck=link, flows=[cct.Flow("cubic")], duration_s=2)
    made = RttSeparation(50, k=2).scenario(scenario).bottleneck
    for name in ("rate_mbps", "rate_schedule", "link", "quantum_bytes"):
        assert getattr(made, name) == getattr(link, name)
    assert made.scheduler == "drr" and {q.buffer_bytes for q in made.queue_list()} == {100 * 1514}


@pytest.mark.slow
@pytest.mark.parametrize("cca", ["cubic", "bbr"])
def test_separated_flows_share_evenly_and_use_the_link(cca: str) -> None:
    """The paper's test 1 on a smaller link: Jain at least 0.97, at least 0.95 of the utilisation without."""
    scenario = shared([cct.Flow(cca, rtt_ms=r) for r in (2, 20, 40, 60)], rate_mbps=200, duration_s=20)
    alone = cct.simulate(scenario, record=False).summary()
    controller = RttSeparation(200)
    both = looped(scenario, controller).summary()
    assert alone["jain_index"] < 0.9
    assert both["jain_index"] >= 0.97
    assert both["utilisation"] >= 0.95 * alone["utilisation"]
    assert sorted(controller.decision.flows.queue) == [1, 2, 3, 4]
    assert sum(entry["moved"] for entry in controller.log) == 0


def test_a_quiet_flow_keeps_its_rtt() -> None:
    """The paper's test 5."""
    flows = [cct.Flow("cubic", rtt_ms=20, rate_mbps=10), cct.Flow("cubic", rtt_ms=20, start_s=5)]
    scenario = shared(flows, rtt_ms=200, duration_s=20)

    def late_rtt_ms(run: cct.Run) -> np.ndarray:
        series = run.flow_series
        return series.rtt_ns[(series.flow_id == 0) & (series.ts_ns > 12e9)].to_numpy() / 1e6

    assert np.median(late_rtt_ms(cct.simulate(scenario, record=False))) > 40
    controller = RttSeparation(50, latency_threshold_ms=5.0)
    quiet = late_rtt_ms(looped(scenario, controller))
    assert controller.isolated == {1}
    assert np.percentile(quiet, 95) < 1.2 * 20


def test_udp_does_not_starve_tcp() -> None:
    """The paper's test 6."""
    flows = [cct.Flow("udp", rate_mbps=50)] + [cct.Flow("cubic", rtt_ms=r, start_s=2) for r in (20, 40, 60)]
    scenario = shared(flows, duration_s=12)
    starved = cct.simulate(scenario, record=False).flows
    assert starved.goodput_mbps[1:].sum() < 2
    fair = looped(scenario, RttSeparation(50, long_bytes=1_000_000)).flows
    assert fair.goodput_mbps[1:].min() > 0.7 * 50 / 4  # slow start included
    assert fair.goodput_mbps[0] > 0.9 * 50 / 4


# ---- the guard -------------------------------------------------------------------------------------------------------


def test_guard_merges_classes_whose_means_are_near() -> None:
    """10, 11 and 12 ms: the ratios of the means are 1.1 and 1.09. 10 and 40 ms: 4."""
    near = table((1, 10.0, 30), (2, 11.0, 30), (3, 12.0, 30))
    assert set(RttSeparation(100, k=3).decide(near, 0).flows.queue) == {1, 2, 3}
    guarded = RttSeparation(100, k=3, guard=True).decide(near, 0)
    assert guarded.flows.empty and math.isnan(guarded.gvf)
    assert guarded.queues.flows.tolist() == [3, 0, 0, 0, 0]
    both = table((1, 10.0, 30), (2, 11.0, 30), (3, 40.0, 30))
    assert RttSeparation(100, k=3, guard=True).decide(both, 0).flows.queue.tolist() == [1, 1, 2]


def test_guard_follows_rtts_that_come_near() -> None:
    """A flow that first met a full queue seems far away, and is not any more once its RTT is known better."""
    controller = RttSeparation(100, k=2, guard=True)
    assert controller.decide(table((1, 10.0, 50), (2, 20.0, 50)), 0).flows.queue.tolist() == [1, 2]
    decision = controller.decide(table((1, 10.0, 50), (2, 12.0, 50)), 1)
    assert decision.flows.empty and decision.assignments == {1: 0, 2: 0}


def test_guard_counts_the_flows_of_queue_0() -> None:
    """Two long flows, and ten that are not: the paper's rule counts 4 of them (as many as queues), the guard all."""
    rows = [(i, 20.0 + 60 * (i == 1), 8, {"is_long": i < 2}) for i in range(12)]
    forged = [(i, math.nan, 0, {"is_long": False}) for i in range(12, 90)]
    for guard, weight in ((False, 4), (True, 10)):
        assert RttSeparation(100, k=2, guard=guard).decide(table(*rows), 0).queues.weight[0] == weight
        # and those whom nobody has answered count for nothing more
        many = RttSeparation(100, k=2, guard=guard).decide(table(*rows, *forged), 0)
        assert many.queues.weight[0] == weight


@pytest.mark.parametrize(("rate_mbps", "separated"), [(3.86, False), (3.88, True)])
def test_guard_leaves_windows_below_four_packets_alone(rate_mbps: float, separated: bool) -> None:
    """Two flows with a mean RTT of 25 ms: 4 * 1514 bytes in 25 ms are 1.938 Mbit/s, for both 3.876."""
    decision = RttSeparation(rate_mbps, k=2, guard=True).decide(table((1, 10.0, 1), (2, 40.0, 1)), 0)
    assert bool(len(decision.flows)) == separated


def test_guard_counts_flows_by_their_rates() -> None:
    """Two flows with 1 Mbit/s each and 40 with nothing are two flows, not 42."""
    busy, idle = [(1, 10.0, 1), (2, 40.0, 1)], [(i, 20.0, 0, {"is_long": False}) for i in range(3, 43)]
    assert len(RttSeparation(4, k=2, guard=True).decide(table(*busy, *idle), 0).flows) == 2
    wanting = [(i, 20.0, 1, {"is_long": False}) for i in range(3, 43)]
    assert len(RttSeparation(4, k=2, guard=True).decide(table(*busy, *wanting), 0).flows) == 0


def test_guard_shares_the_buffer_like_the_link() -> None:
    """Three flows of four get three quarters of 600 kB; the paper's rule gives BDP/sqrt(N)."""
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=100, buffer_bytes=600_000),
        flows=[cct.Flow("cubic", rtt_ms=10, count=3), cct.Flow("cubic", rtt_ms=80)],
        duration_s=1,
    )
    now = table((0, 10.0, 25), (1, 10.0, 25), (2, 10.0, 25), (3, 80.0, 25))
    room = {}
    for guard in (False, True):
        controller = RttSeparation(100, k=2, separate_udp=False, guard=guard)
        controller.scenario(scenario)
        room[guard] = controller.decide(now, 0).queues.buffer_bytes.tolist()[1:]
    assert room[True] == [450_000, 150_000]
    assert room[False] == [math.ceil(75 * 10 * 125 / math.sqrt(3)), 25 * 80 * 125]


def test_guard_is_one_queue_where_rtts_are_near() -> None:
    """Not like one queue: the same packets at the same times."""
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=20, buffer_bytes=30_000),
        flows=[cct.Flow("cubic", rtt_ms=rtt) for rtt in (10, 10.8, 11.5)],
        duration_s=10,
    )
    one = cct.simulate(scenario, record=False).flows
    for guard in (False, True):
        controller = RttSeparation(20, k=3, long_bytes=100_000, guard=guard)
        made = cct.simulate(controller.scenario(scenario), control=controller, control_s=0.5, record=False)
        assert made.flows.received_bytes.equals(one.received_bytes) == guard


def test_guard_does_not_starve_flows_that_are_not_long() -> None:
    """Forty flows, of which few have sent 2 MB after a while."""
    rtts = np.random.default_rng(1).uniform(5, 200, 40)
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=50, buffer_bytes=1_000_000),
        flows=[cct.Flow("cubic", rtt_ms=float(r)) for r in rtts],
        duration_s=20,
    )
    fairness = {}
    for guard in (False, True):
        controller = RttSeparation(50, k=4, long_bytes=4_000_000, guard=guard)
        made = cct.simulate(controller.scenario(scenario), control=controller, control_s=0.5, record=False)
        fairness[guard] = made.summary()["jain_index"]
    assert fairness[False] < 0.7 < 0.8 < fairness[True]


def test_least_ratio_of_classes() -> None:
    """Means 10, 11 and 30: at a ratio of 1.2 the first two merge (10.5 and 30), at 4 all of them."""
    values = [10.0, 11.0, 30.0]
    for ratio, wanted in ((1.0, [0, 1, 2]), (1.2, [0, 0, 1]), (4.0, [0, 0, 0])):
        assert IncrementalClasses(3, ratio=ratio).update([1, 2, 3], values).tolist() == wanted
    with pytest.raises(ParameterError, match="ratio"):
        IncrementalClasses(3, ratio=0.5)
