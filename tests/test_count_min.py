"""The count-min sketch: its promises, its naive twin, and the long flows it finds."""

from __future__ import annotations

import itertools
import math
import zlib
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from made_packets import make_keys, packet_columns
from naive_sketch import NaiveSketch

from cctoolkit.analysis.flows import flow_table
from cctoolkit.analysis.sketch import CountMinSketch, LongFlows, long_flows
from cctoolkit.capture.keys import CaptureMeta
from cctoolkit.capture.model import Capture
from cctoolkit.errors import ParameterError

keys_st = st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1))
stream_st = st.lists(st.tuples(keys_st, st.integers(0, 2**40)), max_size=60)
shape_st = st.tuples(st.sampled_from([2, 4, 16, 1024]), st.integers(1, 4), st.booleans(), st.integers(0, 5))


def columns_of_stream(stream):
    keys = np.array([key for key, _ in stream], np.uint64)
    return keys, np.array([amount for _, amount in stream], np.int64)


@settings(deadline=None)
@given(stream_st, shape_st)
def test_it_is_its_naive_twin(stream, shape):
    width, depth, conservative, seed = shape
    sketch = CountMinSketch(width, depth, conservative=conservative, seed=seed)
    naive = NaiveSketch(*shape)
    keys, amounts = columns_of_stream(stream)
    assert sketch.update(keys, amounts).tolist() == [naive.update(key, amount) for key, amount in stream]
    others = np.array([0, 5, 2**32, 2**64 - 1], np.uint64)
    assert sketch.query(others).tolist() == [naive.query(key) for key in others.tolist()]
    assert sketch.query(keys).tolist() == [naive.query(key) for key in keys.tolist()]
    assert sketch.total == sum(amount for _, amount in stream)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1) | st.integers(0, 20), st.integers(0, 2**40)), max_size=60),
    st.sampled_from([2, 16, 1 << 16]),
    st.integers(1, 4),
    st.booleans(),
)
def test_with_the_hashes_of_a_switch_too(stream, width, depth, conservative):
    sketch = CountMinSketch(width, depth, conservative=conservative, hash="crc")
    naive = NaiveSketch(width, depth, conservative, 0, "crc")
    keys, amounts = columns_of_stream(stream)
    assert sketch.update(keys, amounts).tolist() == [naive.update(key, amount) for key, amount in stream]
    others = np.array([0, 5, 2**32 - 1], np.uint64)
    assert sketch.query(others).tolist() == [naive.query(key) for key in others.tolist()]
    counted = {place: naive.counters[place] for place in zip(*np.nonzero(sketch.counters), strict=True)}
    assert counted == {place: int(sketch.counters[place]) for place in counted}
    assert sketch.counters.sum(axis=1).tolist() == [sum(naive.counters[r, i] for i in range(width))
                                                    for r in range(depth)]  # fmt: skip


def test_no_two_keys_share_both_halves_of_a_crc():
    """Where the sum of a pair of rows says nothing of another key, the sketch of a switch is exact."""
    sketch = CountMinSketch(1 << 16, 2, hash="crc")
    keys = np.random.default_rng(1).choice(1 << 32, 1 << 15, replace=False).astype(np.uint64)
    places = sketch._crc_places(keys)
    assert len(np.unique(places[0] << np.uint64(16) | places[1])) == len(keys)
    assert len(np.unique(places[0])) < 0.9 * len(keys)


@settings(deadline=None)
@given(stream_st, shape_st, st.lists(st.integers(0, 60), max_size=3))
def test_never_too_small_and_cuts_do_not_matter(stream, shape, cuts):
    width, depth, conservative, seed = shape
    keys, amounts = columns_of_stream(stream)
    whole = CountMinSketch(width, depth, conservative=conservative, seed=seed)
    whole.update(keys, amounts)
    truth = Counter()
    for key, amount in stream:
        truth[key] += amount
    estimates = whole.query(keys)
    assert all(
        estimate >= truth[key] for key, estimate in zip(keys.tolist(), estimates.tolist(), strict=True)
    )
    assert (estimates <= whole.total).all()

    parts = CountMinSketch(width, depth, conservative=conservative, seed=seed)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, stop in itertools.pairwise(edges):
        parts.update(keys[start:stop], amounts[start:stop])
    assert parts.query(keys).tolist() == estimates.tolist()

    if conservative:  # at most what plain counting says
        plain = CountMinSketch(width, depth, seed=seed)
        plain.update(keys, amounts)
        assert (estimates <= plain.query(keys)).all()


@settings(deadline=None)
@given(stream_st, stream_st, st.booleans())
def test_merging(first, second, conservative):
    def sketch_of(stream):
        sketch = CountMinSketch(4, 2, conservative=conservative, seed=3)
        sketch.update(*columns_of_stream(stream))
        return sketch

    merged = sketch_of(first).merge(sketch_of(second))
    together = sketch_of(first + second)
    keys, _ = columns_of_stream(first + second)
    assert merged.total == together.total
    if conservative:  # no longer the same, still never too small
        truth = Counter()
        for key, amount in first + second:
            truth[key] += amount
        assert all(
            estimate >= truth[key]
            for key, estimate in zip(keys.tolist(), merged.query(keys).tolist(), strict=True)
        )
    else:
        assert merged.query(keys).tolist() == together.query(keys).tolist()


@pytest.mark.parametrize(
    "other", [{"width": 8}, {"depth": 3}, {"seed": 1}, {"conservative": True}, {"hash": "crc"}]
)
def test_only_alike_sketches_merge(other):
    shape = {"width": 4, "depth": 2, "seed": 0, "conservative": False}
    with pytest.raises(ParameterError, match=next(iter(other))):
        CountMinSketch(**shape).merge(CountMinSketch(**shape | other))


def test_the_error_bound_holds_as_often_as_promised():
    """On the stream that comes closest to breaking it: as many equal heavy keys as may not share a counter.

    With k of them and one counter in w each, a row of random functions is off by more than e N / w when one of the k
    falls on the counter asked for: 1 - (1 - 1/w)^k, just below 1/e at k < w / e. All d rows at once: to the power d.
    """
    width, depth, heavy, asked, draws = 64, 3, 23, 10, 3000
    keys = np.random.default_rng(1).integers(0, 2**64, heavy + asked, np.uint64)
    amounts = np.where(np.arange(len(keys)) < heavy, 1000, 0)
    off = 0
    for seed in range(draws):
        sketch = CountMinSketch(width, depth, seed=seed)
        sketch.update(keys, amounts)
        off += int((sketch.query(keys[heavy:]) > sketch.error_bound).sum())
    share = off / (draws * asked)
    expected = (1 - (1 - 1 / width) ** heavy) ** depth
    assert share < math.exp(-depth)  # the promise: 5 %
    assert share == pytest.approx(expected, rel=0.2)  # 2.8 %: rows are independent, and as bad as they may be


def test_two_keys_meet_as_often_as_random_ones():
    width, draws = 16, 2000
    for a, b in [(0, 1), (2, 3), (7, 7 + 2**32), (2**63, 2**63 - 1), (2**32, 2**33)]:
        met = 0
        for seed in range(draws):
            sketch = CountMinSketch(width, 1, seed=seed)
            sketch.update(np.array([a], np.uint64))
            met += int(sketch.query(np.array([b], np.uint64))[0])
        assert met / draws == pytest.approx(1 / width, rel=0.5), (a, b)  # 5 standard deviations


def test_size_for_an_error():
    sketch = CountMinSketch.for_error(0.001, 0.01, conservative=True, seed=7)
    assert (sketch.width, sketch.depth) == (4096, 5)  # 2719 and 4.6, rounded up
    assert sketch.conservative and sketch.seed == 7
    sketch.update(np.arange(10), np.full(10, 100))
    assert sketch.error_bound == pytest.approx(math.e * 1000 / 4096)
    assert sketch.error_bound <= 0.001 * 1000


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (lambda: CountMinSketch(100, 2), "width"),
        (lambda: CountMinSketch(1, 2), "width"),
        (lambda: CountMinSketch(4, 0), "depth"),
        (lambda: CountMinSketch(4, 1, hash="md5"), "hash"),
        (lambda: CountMinSketch(1 << 17, 1, hash="crc"), "width"),
        (lambda: CountMinSketch(4, 5, hash="crc"), "depth"),
        (lambda: CountMinSketch(4, 1, hash="crc").update(np.array([1 << 32])), "keys"),
        (lambda: CountMinSketch.for_error(0, 0.1), "epsilon"),
        (lambda: CountMinSketch.for_error(0.1, 1), "delta"),
        (lambda: CountMinSketch(4, 1).update(np.array([-1])), "keys"),
        (lambda: CountMinSketch(4, 1).update(np.array([0.5])), "keys"),
        (lambda: CountMinSketch(4, 1).update(np.array([1]), np.array([-1])), "amounts"),
        (lambda: CountMinSketch(4, 1).update(np.array([1]), np.array([1, 2])), "amounts"),
        (lambda: LongFlows(0), "threshold_bytes"),
        (lambda: LongFlows(method="count-min"), "method"),
        (lambda: LongFlows(method="count_min", width=3), "width"),
    ],
)
def test_bad_parameters_are_named(what, name):
    with pytest.raises(ParameterError, match=name):
        what()


# ------------------------------------------------------------------------------------------ long flows


def packets(n: int, flows: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    flow = np.minimum(random.pareto(0.7, n), flows - 1).astype(int)
    rows = zip(
        range(n),
        flow.tolist(),
        random.integers(0, 2, n).tolist(),
        random.integers(0, 1446, n).tolist(),
        strict=True,
    )
    return packet_columns((ts, flow_id, way, 0, 0, 0, length, 0) for ts, flow_id, way, length in rows)


def naive_long_flows(columns, threshold: int) -> dict[tuple[int, int], tuple[int, int]]:
    sums: Counter = Counter()
    crossed: dict[tuple[int, int], int] = {}
    for ts, flow, way, size in zip(
        *(columns[name].tolist() for name in ("ts_ns", "flow_id", "direction", "wire_bytes")), strict=True
    ):
        sums[flow, way] += size
        if sums[flow, way] > threshold:
            crossed.setdefault((flow, way), ts)
    return {key: (sums[key], ts) for key, ts in crossed.items()}


def by_key(table: pd.DataFrame) -> dict[tuple[int, int], tuple[int, int]]:
    columns = (table[name].tolist() for name in ("flow_id", "direction", "bytes", "crossed_ts_ns"))
    return {(flow, way): (size, ts) for flow, way, size, ts in zip(*columns, strict=True)}


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 300), st.integers(1, 50), st.integers(1, 40_000), st.lists(st.integers(0, 300), max_size=3)
)
def test_long_flows(n, flows, threshold, cuts):
    columns = packets(n, flows, seed=n)
    expected = naive_long_flows(columns, threshold)
    exact = long_flows(columns, threshold)
    assert by_key(exact) == expected
    assert exact["crossed_ts_ns"].is_monotonic_increasing

    table = flow_table(columns, make_keys(set(columns["flow_id"].tolist())), threshold)
    assert set(table.loc[table["is_long"], "flow_id"]) == {flow for flow, _ in expected}

    for conservative in (False, True):
        options = {"width": 16, "depth": 2, "conservative": conservative}
        found = by_key(long_flows(columns, threshold, "count_min", **options))
        for key, (size, ts) in expected.items():  # none missed, none late, none too small
            assert found[key][0] >= size and found[key][1] <= ts

        detector = LongFlows(threshold, "count_min", **options)
        edges = [0, *sorted(min(cut, n) for cut in cuts), n]
        for start, stop in itertools.pairwise(edges):
            detector.update({name: column[start:stop] for name, column in columns.items()})
        assert by_key(detector.result()) == found


def test_long_flows_as_a_switch_finds_them():
    """By the hashes of five-tuples, the same in one batch and in several; a flow's two directions are two keys."""
    columns = packets(3000, 200, seed=4)
    keys = make_keys(set(columns["flow_id"].tolist()))
    threshold, shape = 30_000, {"width": 64, "depth": 3, "hash": "crc"}
    naive = NaiveSketch(64, 3, False, 0, "crc")
    row = {int(flow): i for i, flow in enumerate(keys.flow_id)}
    found: dict[tuple[int, int], int] = {}
    for ts, flow, way, size in zip(
        *(columns[name].tolist() for name in ("ts_ns", "flow_id", "direction", "wire_bytes")), strict=True
    ):
        i = row[flow]
        ends = [keys.src[i, :4].tobytes(), keys.dst[i, :4].tobytes()]
        ports = [int(keys.sport[i]).to_bytes(2, "big"), int(keys.dport[i]).to_bytes(2, "big")]
        wire = ends[way] + ends[1 - way] + b"\6" + ports[way] + ports[1 - way]
        if naive.update(zlib.crc32(wire), size) > threshold:
            found.setdefault((flow, way), ts)
    detector = LongFlows(threshold, "count_min", **shape)
    for start, stop in ((0, 1), (1, 1), (1, 1000), (1000, 3000)):
        detector.update({name: column[start:stop] for name, column in columns.items()}, keys)
    table = detector.result()
    assert (
        dict(zip(zip(table.flow_id, table.direction, strict=True), table.crossed_ts_ns, strict=True)) == found
    )
    assert len(naive_long_flows(columns, threshold)) < len(found) < 200
    meta = CaptureMeta(path="", format="pcap", link_types=[])
    whole = long_flows(Capture(columns, keys, meta), threshold, "count_min", **shape)
    pd.testing.assert_frame_equal(whole, table)


def test_a_wide_sketch_is_exact_and_a_narrow_one_is_not():
    columns = packets(200_000, 300, seed=1)  # several chunks
    exact = long_flows(columns, 100_000)
    assert 10 < len(exact) < 300
    wide = long_flows(columns, 100_000, "count_min", width=1 << 20)
    pd.testing.assert_frame_equal(wide, exact)
    narrow = long_flows(columns, 100_000, "count_min", width=64, depth=1)
    assert len(narrow) > len(exact)


def test_long_flows_of_nothing():
    for method in ("exact", "count_min"):
        table = long_flows(packet_columns([]), method=method)
        assert len(table) == 0
        assert table.dtypes.astype(str).tolist() == ["uint32", "int8", "int64", "int64"]
