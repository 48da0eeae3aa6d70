"""Views of the L4S experiment's kept tables for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..statements import bullets_of
from . import conclusions
from .page import (
    changes,
    counts_by_connections,
    delays_beside_switch,
    delays_by_change,
    drop_times,
    drops_beside_switch,
    drops_by_change,
    growth_beside_laws,
    kernel_beside_simulator,
    netem_beside_logs,
    readings_beside_paper,
    registers_beside_switch,
    registers_by_lateness,
    shares_and_words,
    shares_beside_logs,
    shares_by_connections,
    shares_by_lateness,
    shares_by_slow_start,
    stalls_by_system,
    table_3,
)
from .scenarios import AS_PUBLISHED, CODEL_AS_PUBLISHED

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


VIEWS: dict[str, Callable[[Tables], str]] = {
    "table-3": lambda tables: markdown_table(table_3(tables["table3"])),
    "figures-5-6": lambda tables: markdown_table(shares_and_words(tables["phases"])),
    "figure-7": lambda tables: markdown_table(drop_times(tables["drop-delay"]), labels=1),
    "logs": lambda tables: markdown_table(shares_beside_logs(tables["logs"])),
    "published-logs": lambda tables: markdown_table(shares_beside_logs(tables["published-logs"])),
    "published-registers": lambda tables: markdown_table(
        registers_beside_switch(tables["published-registers"])
    ),
    "clock-logs": lambda tables: markdown_table(shares_beside_logs(tables["clock-logs"])),
    "clock-registers": lambda tables: markdown_table(registers_beside_switch(tables["clock-registers"])),
    "clock-drops": lambda tables: markdown_table(drops_beside_switch(tables["clock-phases"])),
    "clock-delays": lambda tables: markdown_table(delays_beside_switch(tables["clock-phases"])),
    "drops-ired": lambda tables: markdown_table(drops_by_change(tables["drops"], AS_PUBLISHED)),
    "drops-codel": lambda tables: markdown_table(drops_by_change(tables["drops"], CODEL_AS_PUBLISHED)),
    "drops-delays-ired": lambda tables: markdown_table(
        delays_by_change(tables["drops-phases"], AS_PUBLISHED)
    ),
    "drops-delays-codel": lambda tables: markdown_table(
        delays_by_change(tables["drops-phases"], CODEL_AS_PUBLISHED)
    ),
    "delays": lambda tables: markdown_table(delays_beside_switch(tables["delay-phases"])),
    "growth": lambda tables: markdown_table(growth_beside_laws(tables["growth"])),
    "slow-start": lambda tables: markdown_table(shares_by_slow_start(tables["slow-start"])),
    "stalls": lambda tables: markdown_table(stalls_by_system(tables["stalls"])),
    "stalled": lambda tables: markdown_table(shares_by_connections(tables["stalled"])),
    "stalled-registers": lambda tables: markdown_table(counts_by_connections(tables["stalled-registers"])),
    "late": lambda tables: markdown_table(shares_by_lateness(tables["late"])),
    "late-registers": lambda tables: markdown_table(registers_by_lateness(tables["late-registers"])),
    "registers": lambda tables: markdown_table(registers_beside_switch(tables["registers"])),
    "readings": lambda tables: markdown_table(readings_beside_paper(tables["readings"])),
    "causes": lambda tables: markdown_table(changes(tables["causes"])),
    "kernel": lambda tables: markdown_table(kernel_beside_simulator(tables["kernel"])),
    "netem": lambda tables: markdown_table(netem_beside_logs(tables["netem"])),
    "statements": bullets_of(conclusions.kernel),
    **{
        f"{name}-statements": bullets_of(part)
        for name, part in {
            "table-3": conclusions.table_3,
            "figures-5-6": conclusions.figures_5_and_6,
            "figure-7": conclusions.figure_7,
            "figure-7-logs": conclusions.figure_7_in_logs,
            "low-latency": conclusions.low_latency,
            "shares": conclusions.shares,
            "registers": conclusions.registers,
            "readings": conclusions.readings,
            "published": conclusions.published,
            "clock": conclusions.clock,
            "drops": conclusions.drops,
            "delays": conclusions.delays,
            "slow-start": conclusions.slow_start,
            "stalled": conclusions.stalled,
            "netem": conclusions.netem,
            "late": conclusions.late,
            "causes": conclusions.causes,
            "identification": conclusions.identification,
            "uneven": conclusions.uneven,
        }.items()
    },
}
