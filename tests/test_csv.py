"""CSV in a spreadsheet and back."""

from __future__ import annotations

import ast
import csv
import io
from pathlib import Path

import pandas as pd
import pytest
from documents import ROOT
from hypothesis import given, strategies as st

import cctoolkit as cct
from cctoolkit._support.csv import as_text, read_csv, write_csv

#: What begins a formula in a spreadsheet (OWASP, "CSV Injection").
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    st.text("'=+-@|\"\t, x1", max_size=6),
)


@given(st.lists(texts, min_size=1, max_size=5))
def test_no_cell_begins_a_formula_and_all_come_back(cells: list[str]) -> None:
    table = pd.DataFrame({"cca": cells, "=name": [-1.5] * len(cells)})
    file = io.StringIO(newline="")
    write_csv(table, file)
    for row in csv.reader(io.StringIO(file.getvalue(), newline="")):
        assert not [cell for cell in row if cell.startswith(FORMULA) and cell != "-1.5"]
    again = io.StringIO(file.getvalue(), newline="")
    back = read_csv(again, dtype={0: str}, keep_default_na=False, lineterminator="\n")
    pd.testing.assert_frame_equal(back, table, check_dtype=False)


@given(texts)
def test_cells(text: str) -> None:
    assert not as_text(text).startswith(FORMULA)
    assert as_text(text) in (text, f"'{text}")


def test_a_hostile_congestion_control_in_labels(tmp_path: Path) -> None:
    """A saved run has the name, and its CSV no formula."""
    link = cct.Bottleneck(rate_mbps=5, buffer_packets=40)
    scenario = cct.Scenario(bottleneck=link, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=1)
    run = cct.simulate(scenario, record=True)
    run.labels["cca"] = "=cmd|' /C calc'!A0"
    run.save(tmp_path / "run")
    assert "'=cmd|' /C calc'!A0" in (tmp_path / "run" / "labels.csv").read_text()
    assert cct.load_run(tmp_path / "run").labels["cca"].tolist() == ["=cmd|' /C calc'!A0"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["cctoolkit", "hardware"])
def test_nothing_else_writes_csv(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / folder).rglob("*.py") if path.name != "csv.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "to_csv"
    ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize("text", ["," * 10**6, "a,b\n" + "," * 10**6, "a\n" * 9 + "1" + ",x" * 10**5])
def test_very_many_columns_are_refused_at_once(text: str, tmp_path: Path) -> None:
    """For pandas they are minutes."""
    path = tmp_path / "wide.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"line \d+ has more than"):
        read_csv(path)
