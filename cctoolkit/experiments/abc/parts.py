"""The parts of the ABC experiment."""

from __future__ import annotations

from ..part import Part
from ..runners import Row
from . import conclusions, figures, page, scenarios, tables
from .scenarios import DELAY, LINUX, SHARINGS, WHY, Settings

__all__ = ["PARTS"]

PARTS: dict[str, Part[Settings]] = {
    "sharing": Part(
        scenarios=scenarios.sharing_cases,
        measure=Row(tables.clients),
        tables=tables.sharing,
        figures=lambda t: {
            **{
                f"figure{SHARINGS[name].figure}": figures.sharing_figure(name, t["clients"])
                for name in dict.fromkeys(t["clients"].sharing)
            },
            "references": figures.references_figure(t["clients"]),
        },
        statements=conclusions.sharing,
        page=page.sharing,
    ),
    WHY: Part(
        scenarios=scenarios.why_cases,
        measure=Row(tables.clients),
        tables=tables.why,
        figures=lambda t: {"why": figures.why_figure(t["why_clients"])},
        statements=conclusions.why,
        page=page.why,
    ),
    DELAY: Part(
        scenarios=scenarios.delay_cases,
        measure=Row(tables.clients),
        tables=tables.delay,
        statements=conclusions.delay,
        page=page.delay,
    ),
    LINUX: Part(
        scenarios=scenarios.linux_cases,
        measure=Row(tables.clients),
        tables=tables.linux,
        statements=conclusions.linux,
        page=page.linux,
    ),
}
