"""Damaged tables for every public function that takes one: an answer or one of our errors, whatever is in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest
from fuzz import public, tables, watched
from hypothesis import given, settings, strategies as st
from tools import examples

from cctoolkit._support import arguments
from cctoolkit._support.words import format_utc
from cctoolkit.errors import CCToolkitError, ParameterError

NAMES = list(tables.CASES)


def test_every_public_function_that_may_take_a_table_is_tried() -> None:
    """A new one needs a case in ``fuzz/tables.py``, or a reason in its list of exemptions."""
    found = {name: public.may_take_a_table(function) for name, function in public.public()}
    untried = {n: p for n, p in found.items() if p and n not in tables.CASES and not tables.exempt(n)}
    assert not untried
    assert not set(tables.CASES) - set(found), "cases of functions that are not public"
    stale = [rule for rule in tables.EXEMPT if not any(tables.exempt_by(rule, name) for name in found)]
    assert not stale, "reasons for functions that are not there"


@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_each_function_takes_the_undamaged_table(times: int) -> None:
    """Otherwise the others would test nothing but the door."""

    class Harmless(tables.Damage):
        table = array = keys = capture = run = staticmethod(lambda good, *_: good)  # type: ignore[assignment]

    for name in NAMES:
        well = 0
        for seed in range(8):  # a case also draws arguments, of which some are refused
            with suppress(CCToolkitError):
                tables.CASES[name](Harmless(Random(f"{name}/{seed}")))
                well += 1
            if well == times:
                break
        assert well, name


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 2**31))
def test_damaged_tables(name: str, seed: int) -> None:
    assert tables.try_one(name, seed) is None


@pytest.mark.slow
def test_each_function_once(tmp_path: Path) -> None:
    """As users run it, in a process of its own, so that a signal is seen and named; with checks, many times below."""
    faults = tmp_path / "faults"
    outcome = watched.run(lambda slot: tables.fuzz(NAMES, 0, len(NAMES), slot, faults), tmp_path / "log", 60)
    assert not outcome.fault, (outcome.fault, outcome.case)
    assert [json.loads(line) for line in faults.read_text().splitlines()] == []


@pytest.mark.slow
def test_indices_stay_inside(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The same with numba's own checks of every index: what is outside is an IndexError here, and a fault."""
    kept = os.environ.get("NUMBA_CACHE_DIR") or request.config.cache.mkdir("kernels")
    code = (
        "import sys; from pathlib import Path; from fuzz import tables; from fuzz.watched import Slot\n"
        "names = list(tables.CASES); tables.fuzz(names, 0, 15 * len(names), Slot(), Path(sys.argv[1]))"
    )
    found = tmp_path / "faults"
    environment = os.environ | {
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(Path(kept, "checked")),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(found)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [json.loads(line) for line in found.read_text().splitlines()] == []


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, None], dtype="Int64"), pd.Series([2**62, 1]), pd.Series([2**64 - 1, 1], dtype="uint64"),
        pd.Series([1.5, 1]), pd.Series([None, None]), pd.Series([pd.NA, 1], dtype=object), pd.Series([np.inf, 1]),
        pd.Series([-(2**62), 1]),
    ],
)  # fmt: skip
def test_times_that_are_none(column: pd.Series) -> None:
    with pytest.raises(ParameterError, match=r"^t: column 'ts_ns'[^\n]*$"):
        arguments.table("t", pd.DataFrame({"ts_ns": column}), ["ts_ns"], whole=["ts_ns"])


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float64", "Int64", "Float64", "int64[pyarrow]"])
def test_times_in_any_type_are_whole_numbers(dtype: str) -> None:
    table = arguments.table(
        "t", pd.DataFrame({"ts_ns": pd.Series([7, 5], dtype=dtype)}), ["ts_ns"], whole=["ts_ns"]
    )
    assert table.ts_ns.dtype == np.int64 and table.ts_ns.tolist() == [7, 5]


def test_nanoseconds_are_kept_exactly() -> None:
    times = pd.Series([2**53 + 1, 2**62 - 1], dtype="Int64")
    table = arguments.table("t", pd.DataFrame({"ts_ns": times}), ["ts_ns"], whole=["ts_ns"])
    assert table.ts_ns.tolist() == times.tolist()


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01 00:00:00.000000"),
        (1_500, "1970-01-01 00:00:00.000001"),
        (-(2**63), "1677-09-21 00:12:43.145224"),
    ],
)
def test_every_time_can_be_written(ns: int, text: str) -> None:
    assert format_utc(ns) == text
