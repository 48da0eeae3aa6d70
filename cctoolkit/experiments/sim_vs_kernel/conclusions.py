"""Statements about the errors of the simulator."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..statements import OURS, Statement
from .tables import QUANTITIES, by_cca, by_quantity, medians

Tables = Mapping[str, pd.DataFrame]

#: A median error that is small, in percent.
SMALL = 4.0
#: An error that is not, in percent.
LARGE = 10.0


def grid(tables: Tables) -> list[Statement]:
    """How near the simulator is to the kernel."""
    errors = tables["errors"]
    size = 100 * errors.error.abs()
    said = [
        Statement(
            "all",
            f"{OURS}at least 80 % of all errors are within {LARGE:g} %",
            f"{100 * (size <= LARGE).mean():.0f} %",
            bool((size <= LARGE).mean() >= 0.8),
        )
    ]
    for what, table, by in (
        ("congestion control", by_cca(errors), "cca"),
        ("queue management", errors, "aqm"),
    ):
        every = medians(table, by).set_index(by)["all"]
        said.append(
            Statement(
                what,
                f"{OURS}the median error over all quantities is below {SMALL:g} % for every {what}",
                ", ".join(f"{name} {value:.1f} %" for name, value in every.items()),
                bool((every < SMALL).all()),
            )
        )
    for what, table, by in (
        ("congestion control", by_cca(errors), "cca"),
        ("queue management", errors, "aqm"),
    ):
        wide = medians(table, by).set_index(by)[[q for q in QUANTITIES if (errors.quantity == q).any()]]
        above = {
            f"{q} of {name}": wide[q][name] for q in wide for name in wide.index if wide[q][name] > LARGE
        }
        said.append(
            Statement(
                what,
                f"{OURS}no median error of a quantity and {what} is above {LARGE:g} %",
                ", ".join(f"{name} {value:.1f} %" for name, value in above.items()) or "none is",
                not above,
            )
        )
    large = errors[size > LARGE]
    noise = (large.error.abs() <= 2 * large.noise.fillna(0)).sum()
    said.append(
        Statement(
            "all",
            f"{OURS}most errors above {LARGE:g} % are noise (within twice the standard error of the difference)",
            f"{noise} of {len(large)}",
            bool(noise > len(large) / 2),
        )
    )
    signed = by_quantity(errors).set_index("quantity")["mean (sign)"].dropna()
    said.append(
        Statement(
            "all",
            f"{OURS}the simulator is biased by less than {LARGE:g} % in every quantity (mean error with its sign)",
            ", ".join(f"{name} {value:+.1f} %" for name, value in signed.items()),
            bool((signed.abs() < LARGE).all()),
        )
    )
    return said
