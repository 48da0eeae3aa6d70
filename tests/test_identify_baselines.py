"""The leaderboard's baselines: time warping against its twin, and both on runs of their own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from naive_identify import warped
from tools import examples

from cctoolkit.errors import ParameterError
from cctoolkit.identify import SlotDataset
from cctoolkit.identify.baselines import (
    BAND,
    POINTS,
    NearestSeries,
    resampled,
    train_baselines,
    warped_distance,
)
from cctoolkit.identify.benchmark import answers, questions

values = st.floats(0, 1, width=32)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[float], list[float], int]:
    n = draw(st.integers(1, 14))
    a, b = (draw(st.lists(values, min_size=n, max_size=n)) for _ in range(2))
    return a, b, draw(st.integers(0, 15))


@settings(max_examples=examples(100), deadline=None)
@given(pairs())
def test_the_distance_is_that_of_the_best_path(pair):
    a, b, band = pair
    found = warped_distance(np.array(a), np.array(b), band, np.inf)
    assert found == pytest.approx(warped(a, b, band), rel=1e-9, abs=1e-12)
    assert warped_distance(np.array(b), np.array(a), band, np.inf) == pytest.approx(
        found, rel=1e-9, abs=1e-12
    )
    # a limit only ends it earlier
    assert warped_distance(np.array(a), np.array(b), band, found) == found
    if found > 0:
        assert warped_distance(np.array(a), np.array(b), band, found / 2) in (found, math.inf)


def test_shifts_within_the_band_cost_nothing():
    ramp, later = (np.clip(np.linspace(-1, 2, 60) - shift, 0, 1) for shift in (0, 0.2))
    assert warped_distance(ramp, later, 10, np.inf) < 1e-3 < warped_distance(ramp, later, 1, np.inf)


def test_series_are_means_by_their_maximum():
    X = np.arange(1000.0)[None]
    found = resampled(X)
    assert found.shape == (1, POINTS) and BAND < POINTS
    assert found[0] * 994.5 == pytest.approx(X.reshape(POINTS, 10).mean(axis=1))
    assert resampled(np.zeros((2, 7))).tolist() == [[0] * 7] * 2


def test_the_nearest_series_names():
    saw = np.abs(np.linspace(-3, 3, 300) % 2 - 1)
    flat = np.ones(300)
    nearest = NearestSeries(np.stack([saw, flat, flat * 5]), ["reno", "bbr", "cubic"])
    assert nearest.predict(np.stack([np.roll(saw, 9) * 1e6, flat * 0.3])).tolist() == ["reno", "bbr"]


@pytest.mark.slow
def test_baselines_answer_the_benchmark(tmp_path):
    trained = train_baselines(tmp_path / "train", [1000], runs=6, per_flow=12, workers=1, progress=False)
    assert [baseline.name for baseline in trained] == ["boosting", "1-NN-DTW", "oracle"]
    data = {"home": SlotDataset(tmp_path / "train")}
    asked = questions(data, [1000])  # windows that they learned from
    for baseline, taps in zip(trained, ({1, 2}, {2}, {1, 2}), strict=True):
        found = answers(baseline, data, asked)
        assert set(found.taps) == taps and set(found.said) <= {"reno", "cubic", "bbr", "unknown"}
        named = found[(found.said != "unknown") & (found.taps == 2)]
        assert (named.said == named.cca).mean() > 0.95
        assert named.probability.notna().all() == (baseline.name != "1-NN-DTW")
    with pytest.raises(ParameterError, match="flows"):
        train_baselines(tmp_path / "train", [3_600_000], runs=6, workers=1, progress=False)
