"""Classes of RTT: the optimum against jenkspy and every classification, Algorithm 1 against its twin, no flapping."""

from __future__ import annotations

import jenkspy
import naive_jenks
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import cctoolkit as cct
from cctoolkit.errors import ParameterError
from cctoolkit.separation.jenks import (
    IncrementalClasses,
    choose_k,
    dbscan_classes,
    gvf_by_k,
    gvf_of,
    jenks_classes,
    kmeans_classes,
)

METHODS = ("exact", "paper")
#: RTTs as a table has them, with many duplicates, and anything at all.
few = st.lists(st.integers(1, 12).map(float), min_size=1, max_size=12)
rtts = st.lists(st.floats(0.01, 500), min_size=1, max_size=60)
wild = st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=30)
ks = st.integers(1, 9)


def check(classes: cct.separation.jenks.Classes, values: list[float]) -> None:
    """What is true of every classification."""
    x = np.asarray(values)
    assert classes.labels.shape == x.shape
    assert classes.labels.min() >= 0 and classes.labels.max() < classes.k
    order = np.argsort(x, kind="stable")
    assert (np.diff(classes.labels[order]) >= 0).all()  # monotone in RTT
    for v in x:
        assert len(set(classes.labels[x == v])) == 1  # equal values share a class
    assert (np.diff(classes.breaks) >= 0).all()
    assert np.array_equal(classes.labels, np.searchsorted(classes.breaks[1:-1], x, side="left"))
    assert 0 <= classes.gvf <= 1
    assert classes.sizes.sum() == x.size


@settings(deadline=None)
@given(few, ks)
def test_exact_is_the_best_of_all(values: list[float], k: int) -> None:
    found = jenks_classes(values, k)
    check(found, values)
    assert found.k == min(k, len(set(values)))
    assert (found.sizes > 0).all()
    assert found.gvf == pytest.approx(naive_jenks.best_gvf(values, k), abs=1e-12)


@settings(deadline=None)
@given(rtts, ks)
def test_exact_is_jenkspys(values: list[float], k: int) -> None:
    k = min(k, len(set(values)))
    found = jenks_classes(values, k)
    check(found, values)
    theirs = np.searchsorted(jenkspy.jenks_breaks(values, k)[1:-1], values, side="left")
    # breaks may differ where two classifications are equally good; none may be better
    assert found.gvf == pytest.approx(gvf_of(values, theirs), abs=1e-9)


@pytest.mark.parametrize(
    ("seed", "n", "k"), [(0, 2000, 4), (1, 2000, 8), (2, 500, 16), (3, 3000, 2), (4, 1500, 3)]
)
def test_many_flows_have_jenkspys_breaks(seed: int, n: int, k: int) -> None:
    x = np.random.default_rng(seed).lognormal(3, 1, n).round(2 if seed % 2 else 9)
    found = jenks_classes(x, k)
    assert found.breaks == pytest.approx(jenkspy.jenks_breaks(x, k))


@settings(deadline=None)
@given(wild, ks)
def test_any_numbers(values: list[float], k: int) -> None:
    for method in METHODS:
        found = jenks_classes(values, k, method)
        assert np.isfinite(found.breaks).all()
        assert 0 <= found.gvf <= 1


@settings(deadline=None)
@given(rtts, ks)
def test_algorithm_1_is_no_better_than_the_optimum(values: list[float], k: int) -> None:
    found = jenks_classes(values, k, "paper")
    check(found, values)
    assert found.k == k
    assert found.gvf <= jenks_classes(values, k).gvf + 1e-12


@settings(deadline=None)
@example([1.0, 1.0, 2.0, 6.0, 6.0, 7.0, 12.0], 7)  # two classes deviate alike
@given(few, ks)
def test_algorithm_1_is_its_naive_twin(values: list[float], k: int) -> None:
    _, labels, gvf = naive_jenks.algorithm_1(values, k)
    found = jenks_classes(values, k, "paper")
    # where two classes' deviations differ by rounding only, either may give way
    assert found.gvf == pytest.approx(gvf, abs=1e-9) or np.array_equal(found.labels, labels)
    if np.array_equal(found.labels, labels):
        assert found.gvf == pytest.approx(gvf, abs=1e-9)


def test_algorithm_1_by_hand() -> None:
    """Equal intervals of 0 … 12 in three: [0, 4], (4, 8], (8, 12]; the first holds 0 and 4, with a deviation of 2.

    The last, which holds 12 alone, has none and gets the width of one such deviation: [0, 2], (2, 6], (6, 12]. That
    puts 4 with 5 and 6. The next step moves no value, so it is taken back.
    """
    values = [0.0, 4.0, 5.0, 6.0, 12.0]
    found = jenks_classes(values, 3, "paper")
    assert found.breaks == pytest.approx([0, 2, 6, 12])
    assert found.labels.tolist() == [0, 1, 1, 1, 2]
    assert found.gvf == pytest.approx(1 - 2 / 75.2)


@settings(deadline=None)
@given(st.permutations(list(range(12))), st.lists(st.floats(1, 300), min_size=12, max_size=12), ks)
def test_order_does_not_matter(order: list[int], values: list[float], k: int) -> None:
    x = np.asarray(values)
    for method in METHODS:
        assert np.array_equal(
            jenks_classes(x, k, method).labels[order], jenks_classes(x[order], k, method).labels
        )


@settings(deadline=None)
@given(rtts)
def test_gvf_by_k(values: list[float]) -> None:
    found = gvf_by_k(values, 6)
    assert found == pytest.approx([jenks_classes(values, k).gvf for k in range(1, 7)], abs=1e-9)
    assert (np.diff(found) >= 0).all()


def test_choosing_k() -> None:
    groups = np.concatenate([centre + np.arange(5) * 0.1 for centre in (2, 20, 45, 80)])
    assert choose_k(groups) == 4
    assert choose_k(groups, max_k=2) == 2
    assert choose_k([7.0, 7.0, 7.0]) == 1
    assert choose_k([7.0]) == 1
    assert choose_k(groups, gain=0.0) == 8  # a gain of at least nothing is always there


def test_other_methods_find_plain_groups() -> None:
    groups = np.concatenate([centre + np.arange(5) * 0.1 for centre in (80, 2, 45, 20)])
    expected = np.repeat([3, 0, 2, 1], 5)
    for found in (
        jenks_classes(groups, 4),
        jenks_classes(groups, 4, "paper"),
        kmeans_classes(groups, 4),
        dbscan_classes(groups, 1.0),
        dbscan_classes(groups, 1.0, 3),
    ):
        check(found, groups.tolist())
        assert np.array_equal(found.labels, expected)
        assert found.k == 4


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(few, ks)
def test_kmeans_is_no_better_than_the_optimum(values: list[float], k: int) -> None:
    found = kmeans_classes(values, k)
    check(found, values)
    assert found.gvf <= jenks_classes(values, k).gvf + 1e-9


@settings(deadline=None, max_examples=50)
@given(few, st.integers(1, 4), st.floats(0.5, 3))
def test_dbscan_gives_every_flow_a_class(values: list[float], samples: int, eps: float) -> None:
    found = dbscan_classes(values, eps, samples)
    check(found, values)
    assert (found.sizes > 0).all()


def test_dbscan_noise_joins_the_nearest() -> None:
    values = [1.0, 1.1, 1.2, 4.0, 9.0, 9.1, 9.2]
    assert dbscan_classes(values, 0.2, 3).labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert dbscan_classes(values, 0.01, 3).k == 1


def test_few_values() -> None:
    for method in METHODS:
        one = jenks_classes([5.0, 5.0], 3, method)
        assert one.gvf == 1 and set(one.labels) == {one.labels[0]}
        assert jenks_classes([5.0, 9.0], 1, method).labels.tolist() == [0, 0]
        assert jenks_classes([5.0, 9.0], 1, method).gvf == 0
    assert jenks_classes([3.0, 1.0], 4).labels.tolist() == [1, 0]
    assert jenks_classes([3.0, 1.0], 4).breaks.tolist() == [1, 1, 3]


@pytest.mark.parametrize(
    ("values", "k", "method", "what"),
    [
        ([], 2, "exact", "values"),
        ([[1.0, 2.0]], 2, "exact", "values"),
        ([1.0, float("nan")], 2, "exact", "nan must be finite"),
        ([1.0, float("inf")], 2, "paper", "inf must be finite"),
        ([1.0], 0, "exact", "k: 0"),
        ([1.0], 1.5, "exact", "k: 1.5"),
        ([1.0], True, "exact", "k: True"),
        ([1.0], 1, "best", "method: 'best'"),
    ],
)
def test_refused(values: list[float], k: int, method: str, what: str) -> None:
    with pytest.raises(ParameterError, match=what):
        jenks_classes(values, k, method)


# ---- one interval after another


def test_wobbling_costs_no_rules() -> None:
    """Four flows whose RTTs are measured with 3 % noise for a thousand intervals."""
    rng = np.random.default_rng(5)
    classes = IncrementalClasses(3)
    base = np.array([10.0, 11.0, 40.0, 90.0])
    first = classes.update([0, 1, 2, 3], base)
    for _ in range(1000):
        now = classes.update([0, 1, 2, 3], base * rng.uniform(0.97, 1.03, 4))
        assert np.array_equal(now, first)
    assert (classes.added, classes.moved, classes.removed) == (4, 0, 0)
    assert classes.changes == 4


def test_without_hysteresis_it_would() -> None:
    """The test above can fail: two flows that swap places at the limit move each time."""
    steady, nervous = (
        IncrementalClasses(2, margin=0.2, tolerance=0.5),
        IncrementalClasses(2, margin=0, tolerance=0),
    )
    for i in range(20):
        x = [10.0, 10.0, 49.0 + i % 2 * 12, 100.0, 100.0]
        steady.update(range(5), x)
        nervous.update(range(5), x)
    assert steady.moved == 0
    assert nervous.moved >= 10


def test_a_real_change_is_followed() -> None:
    classes = IncrementalClasses(2)
    assert classes.update([1, 2, 3], [10, 80, 81]).tolist() == [0, 1, 1]
    assert classes.update([1, 2, 3], [10, 80, 11]).tolist() == [0, 1, 0]
    assert classes.moved == 1


def test_classes_keep_their_queues() -> None:
    """A new shortest RTT pushes the others up a class, but only the new flow costs a rule."""
    classes = IncrementalClasses(4)
    before = classes.update([1, 2], [40, 90])
    after = classes.update([0, 1, 2], [5, 40, 90])
    assert after[1:].tolist() == before.tolist()
    assert len(set(after)) == 3
    assert (classes.added, classes.moved) == (3, 0)


def test_a_free_queue_is_used() -> None:
    """Two flows that shared a class are separated when a third leaves."""
    classes = IncrementalClasses(2)
    assert classes.update([0, 1, 2], [10, 11, 200]).tolist() == [0, 0, 1]
    assert len(set(classes.update([0, 1], [10, 11]))) == 2
    assert classes.removed == 1
    assert classes.update([], []).tolist() == []
    assert classes.removed == 3


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 9), st.floats(1, 300), min_size=0, max_size=10), min_size=1, max_size=6
    ),
    st.integers(1, 5),
    st.sampled_from(METHODS),
    st.randoms(),
)
def test_updates(intervals: list[dict[int, float]], k: int, method: str, random: object) -> None:
    """Whatever comes: every flow has a queue that exists, the order does not matter, and changes are counted."""
    one, other = IncrementalClasses(k, method=method), IncrementalClasses(k, method=method)
    held: dict[int, int] = {}
    changes = 0
    for table in intervals:
        names = list(table)
        queues = dict(zip(names, one.update(names, list(table.values())).tolist(), strict=True))
        random.shuffle(names)
        shuffled = other.update(names, [table[i] for i in names])
        assert dict(zip(names, shuffled.tolist(), strict=True)) == queues
        assert all(0 <= q < k for q in queues.values())
        changes += len(held.keys() - queues.keys()) + sum(held.get(i) != q for i, q in queues.items())
        assert one.changes == changes
        held = queues


def test_without_hysteresis_each_interval_has_the_best_classes() -> None:
    rng = np.random.default_rng(2)
    classes = IncrementalClasses(4, margin=0, tolerance=0)
    for _ in range(30):
        x = rng.lognormal(3, 1, 50)
        queues = classes.update(range(50), x)
        assert gvf_of(x, queues) == pytest.approx(jenks_classes(x, 4).gvf)


def test_incremental_refuses() -> None:
    with pytest.raises(ParameterError, match="k: 0"):
        IncrementalClasses(0)
    with pytest.raises(ParameterError, match="margin"):
        IncrementalClasses(2, margin=1.0)
    with pytest.raises(ParameterError, match="occurs twice"):
        IncrementalClasses(2).update([1, 1], [2.0, 3.0])
    with pytest.raises(ParameterError, match="nan must be finite"):
        IncrementalClasses(2).update([1], [float("nan")])
    with pytest.raises(ParameterError, match="same length"):
        IncrementalClasses(2).update([1, 2], [1.0])


# ---- as a figure


def test_figure_of_classes() -> None:
    x = np.concatenate([np.full(5, 10.0), np.full(3, 40.0), np.full(2, 200.0)])
    fig = cct.plot.rtt_classes(x, jenks_classes(x, 3))
    assert [sum(bar.y) for bar in fig.data] == [5, 3, 2]
    assert [shape.x0 for shape in fig.layout.shapes] == [10, 40]
    assert "3 RTT classes" in fig.layout.title.text and "GVF 1.0000" in fig.layout.title.text
