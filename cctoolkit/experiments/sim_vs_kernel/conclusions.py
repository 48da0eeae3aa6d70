"""Statements about the errors of the simulator."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..statements import OURS, Statement
from .tables import QUANTITIES

Tables = Mapping[str, pd.DataFrame]

#: A median error that is small, and an error that is large, in percent.
SMALL, LARGE = 4.0, 10.0


def grid(tables: Tables) -> list[Statement]:
    """How close the simulator is to the kernel."""
    overall = tables["overall"].iloc[0]
    by = (("congestion control", "cca", tables["by_cca"]), ("queue discipline", "aqm", tables["by_aqm"]))
    statements = [
        Statement(
            "all",
            f"{OURS}at least 80 % of all errors are within {LARGE:g} %",
            f"{overall.within_10:.0f} % of {overall.compared:.0f}",
            bool(overall.within_10 >= 80),
        )
    ]
    for what, column, table in by:
        every = table.set_index(column)["all"]
        statements.append(
            Statement(
                what,
                f"{OURS}the median error over all quantities is below {SMALL:g} % for every {what}",
                ", ".join(f"{name} {value:.1f} %" for name, value in every.items()),
                bool((every < SMALL).all()),
            )
        )
    for what, column, table in by:
        wide = table.set_index(column)
        above = {
            f"{quantity} of {name}": wide[quantity][name]
            for quantity in QUANTITIES
            if quantity in wide
            for name in wide.index
            if wide[quantity][name] > LARGE
        }
        statements.append(
            Statement(
                what,
                f"{OURS}for every quantity and {what}, the median error is at most {LARGE:g} %",
                ", ".join(f"{name} {value:.1f} %" for name, value in above.items()) or "none is above",
                not above,
            )
        )
    statements.append(
        Statement(
            "all",
            f"{OURS}most errors above {LARGE:g} % are noise (within twice the standard error of the difference)",
            f"{overall.above_10_noise:.0f} of {overall.above_10:.0f}",
            bool(overall.above_10_noise > overall.above_10 / 2),
        )
    )
    if "by_quantity" in tables:
        signed = tables["by_quantity"].set_index("quantity")["mean (sign)"].dropna()
        statements.append(
            Statement(
                "all",
                f"{OURS}in every quantity, the simulator's bias (the mean signed error) is below {LARGE:g} %",
                ", ".join(f"{name} {value:+.1f} %" for name, value in signed.items()),
                bool((signed.abs() < LARGE).all()),
            )
        )
    return statements
