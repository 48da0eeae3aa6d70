"""What the book shows of the L4S experiment's kept tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..statements import bullets_of
from . import conclusions
from .page import readings_beside_paper, registers_beside_switch, shares_beside_logs
from .tables import by_configuration

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


VIEWS: dict[str, Callable[[Tables], str]] = {
    "table-3": lambda tables: markdown_table(
        by_configuration(tables["table3"]).reset_index().rename_axis(columns=None)
    ),
    "logs": lambda tables: markdown_table(shares_beside_logs(tables["logs"])),
    "registers": lambda tables: markdown_table(registers_beside_switch(tables["registers"])),
    "readings": lambda tables: markdown_table(readings_beside_paper(tables["readings"])),
    **{
        f"{name}-statements": bullets_of(part)
        for name, part in {
            "table-3": conclusions.main,
            "shares": conclusions.shares,
            "registers": conclusions.registers,
            "readings": conclusions.readings,
            "causes": conclusions.causes,
            "identification": conclusions.identification,
            "uneven": conclusions.uneven,
        }.items()
    },
}
