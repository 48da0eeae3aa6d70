"""What `make bench` keeps, and the change that it prints."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import last

ABOUT = {"machine": "a machine", "date": "2026-01-02", "commit": "0123456789"}


def result(cpu_s: float, **other: object) -> dict[str, object]:
    row = {"benchmark": "decode", "what": "read_capture", "count": 1000, "unit": "packets", "runs": 5}
    times = {"wall_s": cpu_s, "least_s": 0.9 * cpu_s, "most_s": 1.1 * cpu_s, "cpu_s": cpu_s}
    return row | times | {"memory_mb": float("nan")} | other


def test_a_result_replaces_that_of_the_same_measurement_on_the_same_machine(tmp_path):
    path = tmp_path / "build" / "benchmarks.csv"
    last.keep([result(1.0), result(2.0, what="dpkt")], ABOUT, path)
    last.keep([result(5.0)], ABOUT | {"machine": "another"}, path)
    last.keep([result(3.0), result(4.0, count=10)], ABOUT | {"date": "2026-01-03"}, path)
    found = last.last("a machine", "decode", path)
    assert {key: (row["cpu_s"], row["date"]) for key, row in found.items()} == {
        ("read_capture", 1000): (3.0, "2026-01-03"),
        ("read_capture", 10): (4.0, "2026-01-03"),
        ("dpkt", 1000): (2.0, "2026-01-02"),
    }
    assert last.last("another", "decode", path)["read_capture", 1000]["cpu_s"] == 5
    assert last.last("a machine", "slots", path) == {}
    assert len(pd.read_csv(path)) == 4


def test_no_change_is_reported_without_an_earlier_result(tmp_path):
    assert last.last("a machine", "decode", tmp_path / "missing.csv") == {}
    assert last.change(result(1.0), None) == ""


@pytest.mark.parametrize(
    ("now", "before", "text"),
    [
        (result(1.5), result(1.0), "CPU time +50% !"),
        (result(0.5), result(1.0), "CPU time -50% !"),
        (result(1.1), result(1.0), "CPU time +10%"),  # the ranges overlap
        (result(1.5, runs=1), result(1.0), "CPU time +50%"),  # there is no range
        (result(1.0, memory_mb=50.0), result(1.0, memory_mb=100.0), "CPU time +0%, memory -50%"),
    ],
)
def test_the_change(now, before, text):
    assert last.change(now, before | ABOUT).strip() == f"{text} since 2026-01-02 (0123456789)"
    assert last.change(now, before | ABOUT | {"commit": float("nan")}).strip() == f"{text} since 2026-01-02"
