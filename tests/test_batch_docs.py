"""The estimate of `docs/scale.md` follows what was measured."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from cctoolkit.experiments.books import batch
from cctoolkit.experiments.kept import KeptTables


def rows(table: str) -> dict[str, str]:
    """The rows of a Markdown table of two columns."""
    found = re.findall(r"^\| (.*?) \| (.*?) \|$", table, re.M)
    return dict(found[2:])


def test_the_estimate_follows_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that take ten times as long make the archive ten times as long, and nothing else."""
    before = rows(batch.estimate(KeptTables("batch")))
    whole = KeptTables.__getitem__

    def slower(self: KeptTables, table: str) -> pd.DataFrame:
        found = whole(self, table)
        return found.assign(cpu_s=10 * found.cpu_s) if table == "tasks" else found

    monkeypatch.setattr(KeptTables, "__getitem__", slower)
    after = rows(batch.estimate(KeptTables("batch")))
    hours = [float(table["CPU time"].removesuffix(" core hours")) for table in (before, after)]
    assert hours[1] == pytest.approx(10 * hours[0], rel=0.02)
    changed = {what for what in before if before[what] != after[what]}
    assert changed == {"CPU time", "on 2 cores", "on 64 cores"}
