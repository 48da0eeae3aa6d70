"""Views of fuzzing for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..._support.words import plural

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def _count(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def table(tables: Tables) -> str:
    """Every target: how many cases, how fast, how much memory, how many faults."""
    found = tables["targets"]
    return markdown_table(
        pd.DataFrame(
            {
                "target": [f"`{name}`" for name in found.target],
                "cases": [_count(n) for n in found.cases],
                "cases/s": [_count(n / max(s, 0.1)) for n, s in zip(found.cases, found.wall_s, strict=True)],
                "peak memory, MB": [_count(mb) for mb in found.peak_mb],
                "faults": found.faults,
            }
        ),
        labels=1,
    )


def in_words(tables: Tables) -> str:
    """All cases, the faults among them, the largest memory."""
    found = tables["targets"]
    cases = found.groupby("group").cases.sum()
    compiled, readers, hostile = (_count(cases.get(group, 0)) for group in ("compiled", "readers", "tables"))
    faults = int(found.faults.sum())
    return (
        f"The kernels read {compiled} inputs and the readers {readers} (guided by coverage), and functions "
        f"{hostile} hostile tables, in {found.wall_s.sum() / 3600:.1f} hours, with "
        f"{plural(faults, 'fault') if faults else 'no fault'}. "
        f"Peak memory was {found.peak_mb.max() / 1000:.1f} GB."
    )


VIEWS: dict[str, Callable[[Tables], str]] = {"table": table, "in-words": in_words}
