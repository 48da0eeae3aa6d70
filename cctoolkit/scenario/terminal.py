"""Show a run on a terminal."""

from __future__ import annotations

from typing import Any

from .._support.terminal import cell_text, listing, show
from .run import FLOW_OVERVIEW, QUEUE_OVERVIEW, Run, overview, scenario_facts

__all__ = ["show_run"]


def show_run(run: Run) -> None:
    """Print a run: scenario and key figures."""
    from rich.table import Table

    facts = Table(box=None, show_header=False, pad_edge=False)
    rows: list[tuple[str, Any]] = [*scenario_facts(run.scenario)] if run.scenario is not None else []
    rows += [(name.replace("_", " "), value) for name, value in run.summary().items()]
    for name, value in rows:
        facts.add_row(name, cell_text(value))
    show(facts)
    for table in (overview(run.flows, FLOW_OVERVIEW), overview(run.queues, QUEUE_OVERVIEW)):
        show("")
        show(listing(table))
