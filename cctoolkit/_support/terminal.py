"""Runs and tables on a terminal."""

from __future__ import annotations

import sys
from typing import Any

import pandas as pd

from ..scenario.run import FLOW_OVERVIEW, QUEUE_OVERVIEW, Run, overview, scenario_facts

__all__ = ["listing", "show", "show_run"]

_SHOWN = 40


def show(renderable: Any) -> None:
    """Print something of rich's; text is taken as it is."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(renderable)


def show_run(run: Run) -> None:
    """Print what was run and what came out of it."""
    from rich.table import Table

    facts = Table(box=None, show_header=False, pad_edge=False)
    rows: list[tuple[str, Any]] = [*scenario_facts(run.scenario)] if run.scenario is not None else []
    rows += [(name.replace("_", " "), value) for name, value in run.summary().items()]
    for name, value in rows:
        facts.add_row(name, _text(value))
    show(facts)
    for table in (overview(run.flows, FLOW_OVERVIEW), overview(run.queues, QUEUE_OVERVIEW)):
        show("")
        show(listing(table))


def listing(table: pd.DataFrame) -> Any:
    """A table's first rows for a terminal."""
    from rich.table import Table

    out = Table(box=None, pad_edge=False)
    for name in table.columns:
        words = str(name).replace(".", " .").split("_")
        out.add_column(" ".join(words), justify="right", min_width=max(map(len, words)))
    for row in table.head(_SHOWN).itertuples(index=False):
        out.add_row(*(_text(value) for value in row))
    if len(table) > _SHOWN:
        out.caption = f"{_SHOWN} of {len(table):,}"
    return out


def _text(value: Any) -> Any:
    from rich.text import Text

    return Text(_cell(value))  # names are a user's: brackets in them are no markup


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return "" if pd.isna(value) else str(value)
    return "" if pd.isna(value) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
