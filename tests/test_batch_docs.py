"""The sum of `docs/scale.md` comes out as printed."""

from __future__ import annotations

import re

import pytest
from documents import ROOT, code

SCALE = ROOT / "docs" / "scale.md"


@pytest.fixture(scope="module")
def archive() -> dict[str, str]:
    (block,) = code(SCALE, "python")
    names: dict[str, dict[str, str]] = {}
    exec(compile(block, str(SCALE), "exec"), names)
    return names["archive"]


def test_the_table_is_the_sum(archive: dict[str, str]) -> None:
    text = SCALE.read_text(encoding="utf-8")
    _, _, after = text.partition("| | |\n| --- | --- |\n")
    rows = [
        tuple(re.fullmatch(r"\| (.*) \| (.*) \|", line).groups())
        for line in after.partition("\n\n")[0].splitlines()
    ]
    assert rows == list(archive.items())


def test_what_was_measured_is_what_is_used() -> None:
    """The rate in the sum is that of the table of measurements."""
    text = SCALE.read_text(encoding="utf-8")
    seconds, millions = map(float, re.search(r"seconds_per_packet = ([\d.]+) / (\d+)e6", text).groups())
    assert f"{seconds:.1f} s: {seconds / millions:.2f} µs per packet" in text
    assert f"{millions:.0f} million packets" in text
