"""The parts of the L4S experiment."""

from __future__ import annotations

from ..part import Part
from . import conclusions, figures, kernel, page, tables
from .cases import Settings
from .scenarios import SYSTEMS

__all__ = ["PARTS"]

PARTS: dict[str, Part[Settings]] = {
    "table-3": Part(
        scenarios=lambda settings: settings.cases(settings.configurations, SYSTEMS),
        tables=tables.main,
        figures=lambda t: {
            **figures.goodput_figures(
                t["goodput"], phase_s=t["goodput"].end_s.max() / t["phases"].phase.max()
            ),
            "table3": figures.table_3_figure(t["table3"]),
            "figure7": figures.drop_delay_figure(t["drop-delay"]),
            "delay": figures.delay_figure(t["phases"]),
        },
        statements=conclusions.main,
        page=page.main,
    ),
    "logs": Part(
        scenarios=Settings.logged,
        tables=tables.beside_logs,
        figures=lambda t: {
            "logs": figures.logs_figure(t["logs"]),
            "registers": figures.registers_figure(t["registers"]),
        },
        statements=conclusions.logs,
        page=page.logs,
    ),
    "published": Part(
        scenarios=Settings.published,
        tables=tables.published,
        statements=conclusions.published,
        page=page.published,
    ),
    "clock": Part(
        scenarios=Settings.clock,
        tables=tables.clock,
        statements=conclusions.clock,
        page=page.clock,
    ),
    "drops": Part(
        scenarios=Settings.drops, tables=tables.drops, statements=conclusions.drops, page=page.drops
    ),
    "delays": Part(
        scenarios=Settings.delays,
        tables=tables.delays,
        figures=lambda t: {"delays": figures.queue_delays_figure(t["delay-phases"])},
        statements=conclusions.delays,
        page=page.delays,
    ),
    "slow-start": Part(
        scenarios=Settings.slow_starts,
        tables=tables.slow_start,
        statements=conclusions.slow_start,
        page=page.slow_start,
    ),
    "stalled": Part(
        scenarios=Settings.stalled, tables=tables.stalled, statements=conclusions.stalled, page=page.stalled
    ),
    "late": Part(scenarios=Settings.late, tables=tables.late, statements=conclusions.late, page=page.late),
    "causes": Part(
        scenarios=Settings.changed,
        tables=tables.causes,
        figures=lambda t: {"causes": figures.causes_figure(t["causes"])},
        statements=conclusions.causes,
        page=page.causes,
    ),
    "uneven": Part(
        scenarios=Settings.uneven, tables=tables.uneven, statements=conclusions.uneven, page=page.uneven
    ),
    "identification": Part(
        scenarios=Settings.identified,
        tables=tables.identification,
        statements=conclusions.identification,
        page=page.identification,
    ),
    "kernel": Part(
        scenarios=kernel.cases,
        measure=kernel.rows,
        tables=tables.kernel,
        statements=conclusions.kernel,
        page=page.kernel,
    ),
    "netem": Part(
        scenarios=kernel.netem_cases,
        measure=kernel.netem_rows,
        tables=tables.netem,
        statements=conclusions.netem,
        page=page.netem,
    ),
}
