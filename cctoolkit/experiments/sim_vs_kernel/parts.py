"""The only part of the comparison of simulator and kernel."""

from __future__ import annotations

from ..part import Part
from . import conclusions, figures, page, tables
from .scenarios import Settings

__all__ = ["PARTS"]

PARTS: dict[str, Part[Settings]] = {
    "grid": Part(
        scenarios=Settings.jobs,
        measure=tables.rows,
        tables=tables.grid,
        figures=lambda t: {
            **{f"worst-{rank}": figures.beside(part) for rank, part in t["worst"].groupby("rank")},
            "scatter": figures.scatter(t["errors"]),
            "distribution": figures.distribution(t["errors"]),
        },
        statements=conclusions.grid,
        page=page.grid,
    ),
}
