"""Scores over seeds: their intervals stay within F1's range, and are as wide as scores of new runs scatter."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from cctoolkit.identify import Windows
from cctoolkit.identify.evaluation import evaluate, over_seeds

PER_RUN = 4


def windows_of(runs: int, rng: np.random.Generator, right: float = 0.8) -> Windows:
    """Windows of runs that a classifier gets right or wrong as a whole; ``said`` is its answer."""
    cca = rng.choice(["reno", "cubic"], runs)
    wrong = rng.random(runs) >= right
    predicted = np.where(wrong, np.where(cca == "reno", "cubic", "reno"), cca)
    table = pd.DataFrame({"run": np.arange(runs), "cca": cca, "said": predicted, "half": np.arange(runs) % 2})
    table = table.loc[table.index.repeat(PER_RUN)].reset_index(drop=True)
    X = np.zeros((len(table), 5, 1), np.float32)
    return Windows(X, table["cca"].to_numpy(object), table, ("cbiq_bytes",))


def reading(windows: Windows) -> np.ndarray:
    return windows.table["said"].to_numpy(object)


def scored(windows: Windows, seeds: int, by: str | None = None) -> pd.DataFrame:
    return over_seeds(lambda training, seed: reading, lambda seed: (windows, windows), range(seeds), by=by)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 999), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_intervals_are_in_order_and_within_the_range(runs, seeds, seed, right):
    windows = windows_of(runs, np.random.default_rng(seed), right)
    for by in (None, "half"):
        table = scored(windows, seeds, by)
        known = table[table.low.notna()]
        assert (known.low >= 0).all() and (known.low <= known.high).all() and (known.high <= 1).all()
        assert (table.seeds == seeds).all()
    if right in (0.0, 1.0):
        assert known.low.eq(right).all() and known.high.eq(right).all()


def test_an_interval_is_as_wide_as_new_runs_scatter():
    rng = np.random.default_rng(1)
    new = [evaluate(reading, windows_of(60, rng), draws=2).f1[0] for _ in range(400)]
    low, high = np.quantile(new, [0.025, 0.975])
    widths = [np.ptp(scored(windows_of(60, rng), 1)[["low", "high"]].to_numpy()) for _ in range(20)]
    assert np.mean(widths) == pytest.approx(high - low, rel=0.15)


def test_trainings_that_differ_widen_it():
    windows = windows_of(200, np.random.default_rng(2), 1.0)
    answers = {0: reading, 1: lambda w: np.where(reading(w) == "reno", "cubic", "reno").astype(object)}
    table = over_seeds(lambda training, seed: answers[seed], lambda seed: (windows, windows), (0, 1))
    assert (table.f1[0], table.low[0], table.high[0]) == (0.5, 0.0, 1.0)


def test_a_single_run_has_no_interval():
    table = scored(windows_of(1, np.random.default_rng(3)), 2)
    assert table.low.isna().all() and table.high.isna().all()
