"""Predictions beside measurements."""

from __future__ import annotations

import pytest

from cctoolkit.errors import ParameterError
from cctoolkit.experiments.lessons import compare_prediction


@pytest.mark.parametrize(
    ("said", "found", "verdict"),
    [
        (100, 100, "right"),
        (91, 100, "right"),
        (109.9, 100, "right"),
        (50, 100, "2.0 times too low"),
        (250.0, 100, "2.5 times too high"),
        (0, 100, "too low"),
        (5, 0.0, "too high"),
        (0, 0, "right"),
        ("Near", "near", "right"),
        (" far", "near", "no"),
        (None, 3, "write down what you expect first"),
        (..., "near", "write down what you expect first"),
    ],
)
def test_verdicts(said, found, verdict):
    table = compare_prediction({"what": said}, {"what": found})
    assert table.columns.to_list() == ["you said", "measured", "verdict"]
    assert table.verdict["what"] == verdict
    assert table.measured["what"] == (found if isinstance(found, str) else f"{found:g}")
    assert (table["you said"]["what"] == "") == (said is None or said is ...)


def test_rows_are_those_measured_in_their_order():
    table = compare_prediction({"b": 12_345.6}, {"a": 1, "b": 12_345.6, "c": "x"})
    assert table.index.to_list() == ["a", "b", "c"]
    assert table["you said"].to_list() == ["", "1.235e+04", ""]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"delay": 3}, "'delay' is not measured; there are 'delay, ms'"),
        ({"delay, ms": "much"}, "delay, ms: 'much' is not a number"),
        ({"who": 3}, "who: 3 is not a word"),
    ],
)
def test_it_says_what_is_wrong(said, message):
    found = {"delay, ms": 3.0} | ({"who": "near"} if "who" in said else {})
    with pytest.raises(ParameterError, match=message):
        compare_prediction(said, found)
