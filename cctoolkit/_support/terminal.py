"""Tables on a terminal."""

from __future__ import annotations

import sys
from typing import Any

import pandas as pd

__all__ = ["cell_text", "listing", "show"]

_SHOWN = 40


def show(renderable: Any) -> None:
    """Print something of rich's; text is taken as it is."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(renderable)


def listing(table: pd.DataFrame) -> Any:
    """A table's first rows for a terminal."""
    from rich.table import Table

    out = Table(box=None, pad_edge=False)
    for name in table.columns:
        words = str(name).replace(".", " .").split("_")
        out.add_column(" ".join(words), justify="right", min_width=max(map(len, words)))
    for row in table.head(_SHOWN).itertuples(index=False):
        out.add_row(*(cell_text(value) for value in row))
    if len(table) > _SHOWN:
        out.caption = f"{_SHOWN} of {len(table):,}"
    return out


def cell_text(value: Any) -> Any:
    """A cell as rich takes it: numbers short, nothing where there is none."""
    from rich.text import Text

    return Text(_cell(value))  # names are a user's: brackets in them are no markup


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return "" if pd.isna(value) else str(value)
    return "" if pd.isna(value) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
