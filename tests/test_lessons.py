"""Predictions beside measurements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cctoolkit.errors import ParameterError
from cctoolkit.experiments.lessons import compare_prediction, fast, trace
from cctoolkit.plot.style import figure


@pytest.mark.parametrize(
    ("prediction", "found", "verdict"),
    [
        (100, 100, "right"),
        (91, 100, "right"),
        (109.9, 100, "right"),
        (50, 100, "too low by a factor of 2.0"),
        (250.0, 100, "too high by a factor of 2.5"),
        (0, 100, "too low"),
        (5, 0.0, "too high"),
        (-5, -10, "too high by a factor of 2.0"),
        (-10, -5, "too low by a factor of 2.0"),
        (0, 0, "right"),
        ("Near", "near", "right"),
        (" far", "near", "no"),
        (None, 3, "write down what you expect first"),
        (..., "near", "write down what you expect first"),
    ],
)
def test_verdicts(prediction, found, verdict):
    table = compare_prediction({"what": prediction}, {"what": found})
    assert table.columns.to_list() == ["you said", "measured", "verdict"]
    assert table.verdict["what"] == verdict
    assert table.measured["what"] == (found if isinstance(found, str) else f"{found:g}")
    assert (table["you said"]["what"] == "") == (prediction is None or prediction is ...)


def test_rows_are_those_measured_in_their_order():
    table = compare_prediction({"b": 12_345.6}, {"a": 1, "b": 12_345.6, "c": "x"})
    assert table.index.to_list() == ["a", "b", "c"]
    assert table["you said"].to_list() == ["", "1.235e+04", ""]


@pytest.mark.parametrize(
    ("prediction", "message"),
    [
        ({"delay": 3}, "'delay' is not measured; expected one of 'delay, ms'"),
        ({"delay, ms": "much"}, "delay, ms: 'much' is not a number"),
        ({"who": 3}, "who: 3 is not a word"),
        ({"delay, ms": float("nan")}, "delay, ms: nan is not a number"),
        ({"delay, ms": [3]}, r"delay, ms: \[3\] is not a number"),
    ],
)
def test_it_says_what_is_wrong(prediction, message):
    found = {"delay, ms": 3.0} | ({"who": "near"} if "who" in prediction else {})
    with pytest.raises(ParameterError, match=message):
        compare_prediction(prediction, found)


@pytest.mark.parametrize(
    ("value", "quick"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)]
)
def test_fast_is_an_environment_variable(monkeypatch, value, quick):
    monkeypatch.delenv("FAST", raising=False)
    if value is not None:
        monkeypatch.setenv("FAST", value)
    assert fast() is quick


def test_figures_of_a_quick_run_say_so(monkeypatch):
    def remarks() -> list[str]:
        return [annotation.text for annotation in figure("any").layout.template.layout.annotations]

    monkeypatch.setenv("FAST", "1")
    assert fast() and remarks() == ["quick run: to look at, not to cite"]
    monkeypatch.setenv("FAST", "0")
    assert not fast() and remarks() == []


def test_a_capture_of_your_own(monkeypatch, tmp_path):
    monkeypatch.delenv("TRACE", raising=False)
    assert trace("../traces/reno.pcap") == Path("../traces/reno.pcap")
    assert trace() is None
    monkeypatch.setenv("TRACE", "")
    assert trace() is None
    monkeypatch.setenv("TRACE", "~/mine.pcap")
    assert trace("../traces/reno.pcap") == trace() == Path.home() / "mine.pcap"


def test_they_are_public_without_importing_anything_else():
    code = "import cctoolkit as cct; print(cct.lessons.fast(), cct.lessons.trace('x.pcap'))"
    environment = {name: value for name, value in os.environ.items() if name not in ("FAST", "TRACE")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "False x.pcap\n"
