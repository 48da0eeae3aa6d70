"""Time bins of a stream: against a naive twin that remembers every packet, however the stream is cut."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import naive_timeline
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made_packets import make_keys, packet_columns
from tools import examples

from cctoolkit.report.timeline import HISTOGRAM_SUBBINS, RESERVOIR, Timeline, histogram_edges_ns, wider_bins

KINDS = {6: 1, 17: 2, 1: 0}  # protocol: column of kind_bytes


def feed(
    packets: list[tuple[int, int, int, int]],
    rtts: dict[int, tuple[int, int]],
    cuts: list[int],
    protocols: dict[int, int] | None = None,
    **options: int,
) -> Timeline:
    """A timeline of packets (ts_ns, flow, direction, bytes), given batch by batch."""
    timeline = Timeline(**options)
    edges = sorted({0, len(packets), *(c for c in cuts if c <= len(packets))})
    for first, last in itertools.pairwise(edges):
        batch = packets[first:last]
        columns = packet_columns((ts, flow, d, 0, 0, 16, 0, 0) for ts, flow, d, _ in batch)
        columns["wire_bytes"] = np.array([wire for *_, wire in batch], np.uint32)
        columns["ecn"] = np.array([flow % 4 for _, flow, *_ in batch], np.uint8)
        keys: Any = make_keys({flow for _, flow, *_ in batch})
        protocol = np.array([(protocols or {}).get(int(f), 6) for f in keys.flow_id], np.uint8)
        samples = [(row, *rtts[row]) for row in sorted(rtts) if first <= row < last]
        timeline.update(
            columns,
            SimpleNamespace(flow_id=keys.flow_id, protocol=protocol),  # type: ignore[arg-type]
            {
                "packet": np.array([row for row, *_ in samples], np.int64),
                "direction": np.array([d for _, d, _ in samples], np.int8),
                "rtt_ns": np.array([rtt for *_, rtt in samples], np.int64),
            },
        )
    return timeline


rtt_of = st.one_of(
    st.none(), st.tuples(st.integers(0, 1), st.sampled_from([0, 1, 31, 32, 33, 10**6, 10**9, 10**13]))
)

# Few flows; times from below a bin to far beyond all of them, clocks that step back. Each example has steps of about
# one size, so that bins that hold something are merged, not only empty ones.
SCALES = [
    [0, 1, 4000, 9_999],
    [10_000, 20_000, 35_000, -15_000],
    [35_000, 100_000, 400_000],
    [0, 9_999, 10_000, 2_000_000, 70_000_000_000, -1, -50_000],
]


def packets_in(steps: list[int]) -> st.SearchStrategy[Any]:
    one = st.tuples(
        st.sampled_from(steps),
        st.integers(0, 9),
        st.integers(0, 1),
        st.sampled_from([60, 61, 200, 1500, 9000]),
    )
    return st.lists(st.tuples(one, rtt_of), max_size=120)


@given(
    st.sampled_from(SCALES).flatmap(packets_in),
    st.lists(st.integers(0, 120), max_size=4),
    st.integers(2, 6),
)
@settings(max_examples=examples(300), deadline=None)
def test_as_the_naive_twin(rows: list[Any], cuts: list[int], tracked: int) -> None:
    clock, packets, rtts = 10**18, [], {}
    for row, ((step, flow, direction, wire), rtt) in enumerate(rows):
        clock += step
        packets.append((clock, flow, direction, wire))
        if rtt is not None:
            rtts[row] = rtt
    naive = naive_timeline.timeline(packets, rtts, tracked, 10)
    protocols = {flow: [6, 17, 1][flow % 3] for flow in range(10)}
    found = feed(packets, rtts, cuts, protocols, tracked=tracked, bins=10)

    assert found.bins == naive["bins"]
    if not packets:
        return
    assert found.width_ns == naive["width_ns"]
    assert found.start_ns == packets[0][0]
    assert found.backward == naive["backward"]
    assert found.largest_bytes == naive["largest"]
    assert found.longest_gap_ns[1] == naive["gap"]
    assert {f for f in range(10) if found.has_bins(f)} == naive["tracked"]
    kind_bytes = np.zeros((found.bins, 3), np.int64)
    kind_packets = np.zeros((found.bins, 3), np.int64)
    for ts, flow, _, wire in packets:
        at = max(ts - packets[0][0], 0) // naive["width_ns"], KINDS[protocols[flow]]
        kind_bytes[at] += wire
        kind_packets[at] += 1
    np.testing.assert_array_equal(found.kind_bytes, kind_bytes)
    np.testing.assert_array_equal(found.kind_packets, kind_packets)
    np.testing.assert_array_equal(
        found.ecn_packets, np.bincount([flow % 4 for _, flow, *_ in packets], minlength=4)
    )
    for flow in naive["tracked"]:
        for direction in (0, 1):
            rtt = found.flow_rtt(flow, direction)
            for at in range(found.bins):
                assert found.flow_bytes(flow)[at, direction] == naive["flow_bytes"].get(
                    (flow, direction, at), 0
                )
                samples = naive["flow_rtts"].get((flow, direction, at), [])
                assert rtt["count"][at] == len(samples)
                if samples:
                    assert rtt["minimum"][at] == np.float32(min(samples))
                    assert rtt["maximum"][at] == np.float32(max(samples))
                    assert rtt["mean"][at] == pytest.approx(np.mean(samples))
                else:
                    assert np.isnan(rtt["mean"][at])

    by_flow = found.rtt_by_flow((0.0, 0.3, 0.5, 1.0))
    assert list(zip(by_flow["flow_id"].tolist(), by_flow["direction"].tolist(), strict=True)) == sorted(
        naive["rtts"]
    )
    for i, key in enumerate(sorted(naive["rtts"])):
        samples = naive["rtts"][key]
        assert by_flow["count"][i] == len(samples)
        assert by_flow["minimum"][i] == min(samples)
        wanted = np.quantile(np.array(samples, np.float32).astype(float), [0, 0.3, 0.5, 1])
        np.testing.assert_allclose(by_flow["quantiles"][i], wanted, rtol=1e-12)


def test_the_largest_flows_always_have_bins() -> None:
    rng = np.random.default_rng(5)
    size = rng.pareto(1.1, 400) * 1000 + 60
    order = rng.permutation(np.repeat(np.arange(400), np.minimum(size // 500 + 1, 300).astype(int)))
    packets = [(10**18 + 1000 * i, int(f), 0, 60 + int(f) % 1000) for i, f in enumerate(order)]
    total = np.bincount(order, weights=[p[3] for p in packets], minlength=400)
    found = feed(packets, {}, [1000, 1500], tracked=32, bins=100)
    largest = np.flatnonzero(total > 2 * np.sort(total)[-16])
    assert len(largest) > 3 and all(found.has_bins(int(f)) for f in largest)
    assert sum(found.has_bins(f) for f in range(400)) <= 32
    for flow in largest:  # and little of them is missing: nothing is given up between promotion and the end
        assert 0 < found.flow_bytes(int(flow)).sum() <= total[flow]


@pytest.mark.parametrize("flows", [9, 40, 1000])
def test_flows_of_one_size_do_not_displace_each_other(flows: int) -> None:
    packets = [(10**18 + 1000 * i, i % flows, 0, 100) for i in range(20 * flows)]
    found = feed(packets, {}, [flows, 7 * flows + 3], tracked=8, bins=100)
    followed = [f for f in range(flows) if found.has_bins(f)]
    assert followed == list(range(8))
    assert all(found.flow_bytes(f).sum() == 20 * 100 for f in followed)


def test_bins_change_hands_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most once per slot and doubling, however many flows there are and whatever they send."""
    calls = []
    make_way = Timeline._make_way

    def counted(timeline: Timeline, size: int) -> None:
        calls.append(size)
        make_way(timeline, size)

    monkeypatch.setattr(Timeline, "_make_way", counted)
    rng = np.random.default_rng(2)
    order = np.minimum(rng.pareto(0.3, 30_000), 3000).astype(int)
    packets = [(10**18 + 1000 * i, int(f), 0, 60 + 1000 * (int(f) % 3)) for i, f in enumerate(order)]
    total = np.bincount(order, weights=[p[3] for p in packets])
    found = feed(packets, {}, [5000], tracked=8, bins=100)
    assert len(calls) < 8 * np.log2(total.max())
    smallest = min(total[f] for f in range(len(total)) if found.has_bins(f))
    assert max(total[f] for f in range(len(total)) if not found.has_bins(f)) <= 2 * smallest


def test_few_flows_are_exact() -> None:
    packets = [(10**18 + 777_777 * i, i % 7, i % 2, 100 + i) for i in range(3000)]
    found = feed(packets, {}, [17, 1234], tracked=8, bins=50)
    for flow in range(7):
        assert found.flow_bytes(flow).sum() == sum(p[3] for p in packets if p[1] == flow)


def test_many_samples_are_sampled_evenly() -> None:
    n = 20 * RESERVOIR
    values = np.arange(1, n + 1) * 1000  # growing: a sample of what came late, or early, would show
    packets = [(10**18 + i, 0, 1, 60) for i in range(n)]
    rtts = {i: (0, int(v)) for i, v in enumerate(values)}
    one = feed(packets, rtts, []).rtt_by_flow((0.05, 0.5, 0.95))
    two = feed(packets, rtts, [1, 5000, 5001, 12_345]).rtt_by_flow((0.05, 0.5, 0.95))
    np.testing.assert_array_equal(one["quantiles"], two["quantiles"])
    assert one["count"][0] == n
    assert one["minimum"][0] == 1000
    # Four standard deviations of the rank of a quantile of a sample of that size.
    for q, found in zip((0.05, 0.5, 0.95), one["quantiles"][0], strict=True):
        assert abs(found / (1000 * n) - q) < 4 * np.sqrt(q * (1 - q) / RESERVOIR)


def test_growing_blocks_keep_every_sample() -> None:
    rng = np.random.default_rng(3)
    flow = rng.integers(0, 40, 6000)
    values = rng.integers(1, 10**9, 6000)
    packets = [(10**18 + i, int(f), 1, 60) for i, f in enumerate(flow)]
    found = feed(packets, {i: (0, int(v)) for i, v in enumerate(values)}, [100, 3000]).rtt_by_flow(
        (0, 0.5, 1)
    )
    for i, f in enumerate(found["flow_id"]):
        mine = values[flow == f].astype(np.float32).astype(float)
        np.testing.assert_allclose(found["quantiles"][i], np.quantile(mine, [0, 0.5, 1]))


@given(st.integers(1, 2**62))
@settings(deadline=None)
def test_a_sample_is_in_its_bin_of_the_histogram(rtt_ns: int) -> None:
    found = feed([(10**18, 0, 1, 60)], {0: (0, rtt_ns)}, [])
    (at,) = np.flatnonzero(found.histogram)
    low, high = histogram_edges_ns(at, at + 1)
    assert low <= float(rtt_ns) < high
    assert high <= low * (1 + 1 / HISTOGRAM_SUBBINS)


@pytest.mark.parametrize("options", [{"bins": 11}, {"bins": 0}, {"tracked": 1}])
def test_options_that_make_no_sense(options: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        Timeline(**options)


@pytest.mark.parametrize(
    ("width_ns", "bins", "most", "min_ns", "wide_ns"),
    [
        (10_000, 5, 300, 0, 10_000),
        (20_000_000, 600, 300, 0, 100_000_000),  # 40 ms would be enough, but people read 100
        (100_000_000, 605, 300, 100_000_000, 500_000_000),
        (1_000_000_000, 900, 300, 100_000_000, 5_000_000_000),
        (10_000_000, 1000, 2000, 100_000_000, 100_000_000),
    ],
)
def test_wider_bins_have_round_widths(width_ns: int, bins: int, most: int, min_ns: int, wide_ns: int) -> None:
    assert wider_bins(width_ns, bins, most, min_ns) * width_ns == wide_ns
