"""From counts to what networks are fed: the naive twin, and what must not change the result."""

from __future__ import annotations

import hypothesis.strategies as st
import naive_identify
import numpy as np
import pytest
from hypothesis import example, given, settings

from cctoolkit.errors import ParameterError
from cctoolkit.identify.inputs import (
    BIN_CHANNELS,
    BINS,
    PREPARATIONS,
    VIEW_CHANNELS,
    VIEWS,
    as_counted,
    by_maximum,
    by_view,
    cut_views,
    hidden,
    round_trip_slots,
    scale_view,
    scale_views,
    slots_of,
)


@st.composite
def counts(draw, *shape):
    """Counts of some size, many or all of which may be 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most, share = draw(st.sampled_from([1, 100, 3_000_000])), draw(st.sampled_from([0, 0.1, 0.9, 1]))
    return (rng.integers(0, most, shape, endpoint=True) * (rng.random(shape) < share)).astype(np.float32)


CHANNEL = {name: i for i, name in enumerate(VIEW_CHANNELS)}


any_length = st.integers(1, 400)


@st.composite
def windows(draw, slots=any_length):
    """Slots x 5 counts, of which the queue's or the flight's may not have been observed in some or all slots."""
    window = draw(counts(draw(slots), 5))
    n = len(window)
    for column in range(1, 5):
        hidden = draw(st.sampled_from(["no"] * 6 + ["all", "one"]))
        if hidden == "all":
            window[:, column] = np.nan
        elif hidden == "one":
            window[draw(st.integers(0, n - 1)), column] = np.nan
    return window


@settings(deadline=None, max_examples=40)
@given(windows())
@example(np.zeros((1, 5), np.float32))
@example(np.full((400, 5), 3e6, np.float32))
def test_a_view_is_its_naive_twin(window):
    np.testing.assert_allclose(scale_view(window), naive_identify.view(window), rtol=1e-5, atol=1e-5)


def test_long_windows_are_their_naive_twin():
    rng = np.random.default_rng(1)
    for slots in (99, 101, 113, 1000, 60_000):
        window = rng.poisson(3000, (slots, 5)) * rng.integers(0, 2, (slots, 1))
        np.testing.assert_allclose(scale_view(window), naive_identify.view(window), rtol=1e-4, atol=1e-4)


def test_a_view_by_hand():
    """100 slots in which one segment comes and goes a slot, the queue grows by one, and the flight is ten times one."""
    t = np.arange(100.0)
    window = np.column_stack(
        [np.full(100, 1448), 1448 * t, np.full(100, 1448), np.zeros(100), np.full(100, 14480)]
    )
    view = scale_view(window)
    assert view.shape == (BINS, len(VIEW_CHANNELS)) and view.dtype == np.float32

    def channel(name):
        return view[:, CHANNEL[name]]

    for name, value in {
        "in_relative": 1,
        "out_relative": 1,
        "busy_slots": 1,
        "drops": 0,
        "cbiq_range": 0,
    }.items():
        np.testing.assert_allclose(channel(f"window.{name}"), value, rtol=1e-6, err_msg=name)
    assert (channel("window.log_slots") == 0).all()  # a slot a bin
    np.testing.assert_allclose(channel("window.cbiq_relative"), t / 99, rtol=1e-6)
    np.testing.assert_allclose(channel("window.cbiq_step")[1:], np.arcsinh(1), rtol=1e-6)  # a segment a bin
    delay_ms = np.expm1(2 * channel("window.own_delay"))
    np.testing.assert_allclose(delay_ms, t * 1448 / 1498, rtol=1e-5)  # Little's law, with 50 bytes to spare
    # a round trip is ten slots: there are ten, in each of which the queue grows by ten segments
    assert channel("round_trips.there").tolist() == [1] * 10 + [0] * 90
    np.testing.assert_allclose(channel("round_trips.log_slots")[:10], np.log(10) / 3, rtol=1e-6)
    np.testing.assert_allclose(channel("round_trips.cbiq_step")[1:10], np.arcsinh(10), rtol=1e-6)
    assert channel("eighths.there").tolist() == [1] * 80 + [0] * 20  # of 1.25 slots


def test_a_view_ends_with_the_windows_last_slot():
    """Widths are no whole numbers of slots; what came last has to be seen all the same."""
    for slots in range(1, 400):
        window = np.zeros((slots, 5))
        window[:, 0], window[:, 4] = 1, 0.7 + slots % 9
        window[-1, 0] = 1e6
        view = scale_view(window).reshape(BINS, len(VIEWS), len(BIN_CHANNELS))
        for i in range(len(VIEWS)):
            there = int(view[:, i, 0].sum())
            assert there == 0 or view[there - 1, i, BIN_CHANNELS.index("in_burst")] > np.log1p(1e6 / 600), (
                slots,
                i,
            )


@settings(deadline=None, max_examples=30)
@given(windows(), st.integers(0, 3), st.data())
def test_one_slot_not_observed_hides_its_whole_group_and_nothing_else(window, column, data):
    whole = np.nan_to_num(window)
    part = whole.copy()
    part[data.draw(st.integers(0, len(window) - 1)), column + 1] = np.nan
    queue, drops, flight = column < 2, column == 2, column == 3
    a, b = scale_view(whole), scale_view(part)
    lost = [name for name, seen in zip(VIEW_CHANNELS, (b == 0).all(axis=0), strict=True) if seen]
    assert ("window.has_queue" in lost) is queue and ("window.has_flight" in lost) is flight
    expected = a.T[None].copy()
    hidden(expected, np.array([queue]), np.array([flight]), np.array([drops]))
    np.testing.assert_array_equal(b, expected[0].T)


def test_what_is_hidden():
    """By name: the queue's channels in each view; the flight's, and with it all that goes by round trips."""
    ones = np.ones((4, len(VIEW_CHANNELS), BINS), np.float32)
    hidden(
        ones, np.array([True, False, True, False]), np.array([False, True, True, False]), np.zeros(4, bool)
    )
    queue = {"out_rate", "out_relative", "drops", "own_delay", "has_queue"}
    queue |= {name for name in BIN_CHANNELS if name.startswith("cbiq")}
    flight = {"rtt", "has_flight"} | {name for name in BIN_CHANNELS if name.startswith("flight")}
    for number, name in enumerate(VIEW_CHANNELS):
        view, channel = name.split(".")
        left = [channel not in queue, channel not in flight and view == "window"]
        for window, value in enumerate([left[0], left[1], left[0] and left[1], True]):
            assert (ones[window, number] == value).all(), (name, window)


@settings(deadline=None, max_examples=15)
@given(st.sampled_from([25, 50, 100]).flatmap(lambda slots: windows(st.just(slots))))
def test_a_slot_shown_twice_is_as_two_slots_alike(window):
    """Windows shorter than the bins show slots more than once; only the width of a bin tells."""
    once, stretched = scale_view(window), scale_view(np.repeat(window, BINS // len(window), axis=0))
    same = [c for n, c in CHANNEL.items() if n.startswith("window.") and n != "window.log_slots"]
    np.testing.assert_allclose(once[:, same], stretched[:, same], rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=15)
@given(windows(), st.integers(1, 20))
def test_relative_channels_do_not_know_the_unit(window, factor):
    relative = [
        c for n, c in CHANNEL.items() if n.endswith(("relative", "range", "there", "log_slots", "busy_slots"))
    ]
    a, b = scale_view(window)[:, relative], scale_view(window * np.float32(2**factor))[:, relative]
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_many_views_are_each_by_itself_and_views_stay_as_they_are():
    rng = np.random.default_rng(2)
    X = rng.poisson(1000, (4, 300, 5)).astype(np.float32)
    X[1, 5, 2] = X[2, :, 4] = np.nan
    views = scale_views(X)
    assert views.shape == (4, len(VIEW_CHANNELS), BINS)
    for window, view in zip(X, views, strict=True):
        np.testing.assert_array_equal(scale_view(window).T, view)
    np.testing.assert_array_equal(scale_views(views.transpose(0, 2, 1)), views)


@settings(deadline=None, max_examples=20)
@given(st.tuples(st.integers(1, 4), any_length, st.just(5)).flatmap(lambda shape: counts(*shape)), st.data())
def test_views_are_cut_off_behind_the_last_bin_that_a_window_has(X, data):
    if data.draw(st.booleans()):
        X[data.draw(st.integers(0, len(X) - 1)), :, 4] = np.nan
    whole = scale_views(X)
    for cut, again in zip(cut_views(X), by_view(whole, np.arange(len(X))), strict=True):
        np.testing.assert_array_equal(cut, again)


def test_a_round_trip_is_what_flies_over_what_comes():
    X = np.zeros((4, 200, 5), np.float32)
    X[:, :, 4] = 36_000
    X[0, :, 0], X[1, 7, 0] = 1500, 1500
    X[3, :, 0], X[3, 5, 4] = 1500, np.nan  # not observed in one slot
    np.testing.assert_array_equal(round_trip_slots(X), [24, 4800, np.inf, np.nan])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_how_long_a_window_was_is_seen_in_its_view(dtype):
    lengths = [1, 7, 30, 100, 300, 1000, 3000, 10_000, 12_300, 60_000]
    views = np.stack([scale_view(np.ones((slots, 5), np.float32)) for slots in lengths]).astype(dtype)
    np.testing.assert_allclose(slots_of(views), lengths, rtol=0.006)
    assert slots_of(np.zeros((2, 700, 5))) == 700


@pytest.mark.parametrize("shape", [(3, 100, 2), (1, 1, 100, 5), (3, 0, 5)])
def test_views_of_other_shapes_are_refused(shape):
    with pytest.raises(ParameterError, match="in_bytes, cbiq_bytes, out_bytes"):
        scale_views(np.zeros(shape, np.float32))
    with pytest.raises(ParameterError, match="in_bytes, cbiq_bytes, out_bytes"):
        scale_view(np.zeros(shape[1:], np.float32))


# ---- the paper's ---------------------------------------------------------------------------------------------------

two_inputs = st.tuples(st.integers(1, 4), st.integers(1, 60), st.integers(1, 3)).flatmap(
    lambda shape: counts(*shape)
)


@settings(deadline=None, max_examples=40)
@given(two_inputs)
@example(np.zeros((2, 5, 2), np.float32))
def test_by_maximum_lies_in_0_to_1_and_reaches_1(X):
    ready = by_maximum(X)
    assert ready.shape == (len(X), X.shape[2], X.shape[1]) and ready.dtype == np.float32
    assert (ready >= 0).all() and (ready <= 1).all()
    most = ready.max(axis=2)
    np.testing.assert_array_equal(most, X.max(axis=1) > 0)  # 1, or 0 for an input that is 0 throughout


@settings(deadline=None, max_examples=40)
@given(two_inputs, st.lists(st.integers(-10, 10), min_size=3, max_size=3))
def test_by_maximum_does_not_know_units(X, powers):
    units = np.float32(2.0) ** np.array(powers[: X.shape[2]], np.float32)  # exact in floating point
    np.testing.assert_array_equal(by_maximum(X * units), by_maximum(X))


@settings(deadline=None, max_examples=40)
@given(two_inputs, st.data())
def test_by_maximum_of_a_window_does_not_know_the_others(X, data):
    i = data.draw(st.integers(0, len(X) - 1))
    np.testing.assert_array_equal(by_maximum(X)[i], by_maximum(X[i : i + 1])[0])


def test_as_counted_says_what_was_counted():
    X = np.array([[[1, 10], [np.nan, 20], [3, np.nan]]])
    np.testing.assert_array_equal(as_counted(X), [[[1, 0, 3], [10, 20, 0]]])
    np.testing.assert_array_equal(by_maximum(X), np.float32([[[1 / 3, 0, 1], [0.5, 1, 0]]]))
    assert as_counted(X).flags.c_contiguous and np.isnan(X).any()  # and the argument is left alone


def test_preparations_by_name():
    X = np.random.default_rng(3).poisson(5, (2, 150, 5)).astype(np.float32)
    assert {name: f(X).shape for name, f in PREPARATIONS.items()} == {
        "as_counted": (2, 5, 150),
        "by_maximum": (2, 5, 150),
        "scale_view": (2, 69, 100),
        "summaries": (2, 828),
    }
