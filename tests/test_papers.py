"""The papers' numbers: the tables' form, and the numbers beside the papers' texts where these are at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

import cctoolkit as cct
from cctoolkit.experiments.items import item_statements
from cctoolkit.experiments.kept import made
from cctoolkit.experiments.papers import COLUMNS, PAPERS, paper_items

ROOT = Path(__file__).parents[1]
TEXTS = ROOT.parent / "shared" / "papers"

SECTION = re.compile(r"Abstract|[1-9](\.[1-9]){0,2}|[IVX]+(-[A-Z])?|Table [0-9IVX]+|Figure \d+|Listing \d+")
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
VALUE = re.compile(rf"(?:(?:up to|below|above|about) )?{NUMBER}(?:(?:, | to | x |/|\^){NUMBER})*")
#: What quantities can be, by the end of their names.
BOUNDS = {"_percent": (-100, 100), "share": (0, 1), "jain_index": (0, 1), "f1": (0, 1), "accuracy": (0, 1)}

papers = pytest.mark.parametrize("paper", PAPERS)


def numbers(value: str) -> list[str]:
    return re.findall(NUMBER, value) if VALUE.fullmatch(value) else []


def test_every_paper_has_a_table_and_every_table_a_paper() -> None:
    assert {path.stem for path in (ROOT / "data" / "papers").glob("*.csv")} == set(PAPERS)


@papers
def test_form(paper: str) -> None:
    text = (ROOT / "data" / "papers" / f"{paper}.csv").read_text(encoding="utf-8")
    assert text.startswith(",".join(COLUMNS) + "\n") and text.endswith("\n") and "\r" not in text
    table = cct.paper_numbers(paper)
    assert list(table.columns) == COLUMNS
    assert len(table) > 20
    for row in table.itertuples():
        assert row.item and row.quantity, row
        assert SECTION.fullmatch(row.section), row
        assert all(cell == cell.strip() for cell in row[1:]), row
        assert re.fullmatch(r"[a-z][a-z0-9_]*", row.quantity), row
        if re.match(r"[-\d.]", row.paper) and row.quantity != "version":
            assert numbers(row.paper), row
        assert row.paper or row.note, f"neither a number nor why there is none: {row}"
        for end, (low, high) in BOUNDS.items():
            if row.quantity.endswith(end):
                assert all(low <= float(number) <= high for number in numbers(row.paper)), row
    twice = table[table.duplicated(["item", "section", "setting", "quantity"], keep=False)]
    assert twice.empty, twice


#: How texts print the captions of figures and tables.
CAPTION = re.compile(r"^\W{0,3}(Fig(?:ure)?|Table)\.? (\d+|[IVX]+)[.:]", re.IGNORECASE | re.MULTILINE)


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the papers' texts are not here")
@papers
def test_every_figure_and_table_is_listed(paper: str) -> None:
    text = (TEXTS / f"{paper}.txt").read_text(encoding="utf-8")
    captions = {
        f"{'Table' if kind.lower() == 'table' else 'Figure'} {number}"
        for kind, number in CAPTION.findall(text)
    }
    assert captions == set(paper_items(paper)["item"])


@pytest.mark.slow
@papers
def test_every_figure_and_table_has_a_measurement_or_a_reason_on_the_papers_page(paper: str) -> None:
    for item in paper_items(paper).to_dict("records"):
        assert bool(item["statements"]) != bool(item["without"]), item
        for source in filter(None, item["statements"].split("|")):
            name = source.split(":")[0]
            assert not made(name) or item_statements(source), f"no statement about {source}"
        assert not item["statements"] or item_statements(item["statements"]), item
    block = f"<!-- results: items/{paper} -->"
    assert any(block in page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))


def test_items_and_papers_that_do_not_exist() -> None:
    assert cct.paper_numbers("dragonfly", "Table II").item.unique().tolist() == ["Table II"]
    with pytest.raises(cct.errors.ParameterError, match=r"paper: .*dragonfly, l4s-ired-pi2"):
        cct.paper_numbers("other")
    with pytest.raises(cct.errors.ParameterError, match=r"item: .*test 1.* of rtt-flow-separation"):
        cct.paper_numbers("rtt-flow-separation", "test 7")


def text_of(paper: str) -> str:
    path = TEXTS / f"{paper}.txt"
    if not path.is_file():
        pytest.skip("the papers' texts are not here")
    text = path.read_text(encoding="utf-8").partition("\nReferences\n")[0].partition("\nREFERENCES\n")[0]
    return text


def letters(text: str) -> str:
    """What is left when spaces, markup and kinds of quotation marks and dashes do not count."""
    return re.sub(r"[^a-z0-9.%]", "", re.sub(r"</?\w+>|\\\w+", "", text).lower())


@papers
def test_numbers_are_in_the_paper(paper: str) -> None:
    """Each as it is, or in the unit that the text uses."""
    text = text_of(paper)
    in_text = {
        float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d(?:\.\d+)?|\d(?:\.\d+)?", text)
    }
    in_text |= {float(i) for i, word in enumerate(WORDS) if re.search(rf"\b{word}\b", text, re.I)}
    missing = []
    for row in cct.paper_numbers(paper).itertuples():
        for number in map(float, numbers(row.paper)):
            if not any(
                round(abs(number) * scale, 6) in in_text for scale in (1, 100, 1e-2, 1e3, 1e-3, 60, 1 / 60)
            ):
                missing.append((row.item, row.setting, row.quantity, number))
    assert not missing


WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@papers
def test_quotations_are_in_the_paper(paper: str) -> None:
    text = letters(text_of(paper))
    for row in cct.paper_numbers(paper).itertuples():
        for quoted in re.findall(r'"([^"]+)"', row.note):
            for part in quoted.split("..."):
                assert letters(part) in text, (row.item, row.setting, part)


def test_dragonflys_table_i_follows_from_its_own_packets() -> None:
    """CBIQ is the difference of the sequence numbers beside it."""
    table = cct.paper_numbers("dragonfly", "Table I(b)").pivot_table(
        index="setting", columns="quantity", values="paper", aggfunc="first"
    )
    table = table.apply(pd.to_numeric)
    assert len(table) == 10
    assert (table.cbiq_bytes == table.in_seq_next - table.out_seq_next).all()
