"""The parts of the P4-CoDel experiment."""

from __future__ import annotations

from ..part import Part
from ..runners import Row
from . import conclusions, figures, page, scenarios, tables
from .scenarios import Settings

__all__ = ["PARTS"]

PARTS: dict[str, Part[Settings]] = {
    "figure-5": Part(
        scenarios=scenarios.figure_5,
        measure=tables.delays,
        tables=tables.figure_5,
        figures=lambda t: {"figure5": figures.latency_over_time(t["figure5_packets"])},
        statements=conclusions.figure_5,
        page=page.figure_5,
    ),
    "table-1": Part(
        scenarios=scenarios.table_1,
        measure=tables.plain,
        tables=tables.table_1,
        figures=lambda t: {"table1": figures.loss_and_latency(t["table1"])},
        statements=conclusions.table_1,
        page=page.table_1,
    ),
    "minute": Part(
        scenarios=scenarios.minute,
        measure=tables.plain,
        tables=tables.minute,
        statements=conclusions.minute,
        page=page.minute,
    ),
    "figure-7": Part(
        scenarios=scenarios.figure_7,
        measure=tables.udp,
        tables=tables.figure_7,
        figures=lambda t: {"figure7": figures.udp_scan(t["figure7"])},
        statements=conclusions.figure_7,
        page=page.figure_7,
    ),
    "rtts": Part(
        scenarios=scenarios.different_rtts,
        measure=Row(tables.shares),
        tables=tables.different_rtts,
        figures=lambda t: {"rtts": figures.rtt_shares(t["rtts"])},
        statements=conclusions.different_rtts,
        page=page.different_rtts,
    ),
    "fq-codel": Part(
        scenarios=scenarios.flow_queueing,
        measure=Row(tables.by_flow),
        tables=tables.flow_queueing,
        figures=lambda t: {"fq_codel": figures.queueing(t["fq_codel"])},
        statements=conclusions.flow_queueing,
        page=page.flow_queueing,
    ),
    "if-3": Part(
        scenarios=scenarios.if_3,
        measure=Row(tables.with_entries),
        tables=tables.if_3,
        figures=lambda t: {"if_3": figures.reentry(t["if_3"])},
        statements=conclusions.if_3,
        page=page.if_3,
    ),
    "square-root": Part(
        scenarios=scenarios.square_roots,
        measure=Row(tables.with_count),
        tables=tables.square_roots,
        figures=lambda t: {
            "square_root_error": figures.gaps(t["square_root_error"]),
            "square_root_effect": figures.root_effect(t["square_root"]),
        },
        statements=conclusions.square_roots,
        page=page.square_roots,
    ),
    "clock": Part(
        scenarios=scenarios.clock_wrap,
        measure=tables.around_the_wrap,
        tables=tables.clock_wrap,
        figures=lambda t: {
            "clock_losses": figures.losses_by_clock(
                t["clock_runs"], tables.paper_table_1().query("target == 'P4-ASIC'")
            ),
            "clock_wrap": figures.through_the_wrap(
                t["clock_packets"], {case: at_s for case, (at_s, _, _) in scenarios.WRAPS.items()}
            ),
        },
        statements=conclusions.clock_wrap,
        page=page.clock_wrap,
    ),
    "npu": Part(
        scenarios=scenarios.npu_losses,
        measure=Row(tables.with_episodes),
        tables=tables.npu_losses,
        figures=lambda t: {
            "npu": figures.guesses(t["npu"], tables.paper_table_1().query("target == 'P4-NPU'"))
        },
        statements=conclusions.npu_losses,
        page=page.npu_losses,
    ),
}
