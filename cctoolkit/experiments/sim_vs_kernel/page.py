"""The parts of the comparison's summary that are not statements: conditions and tables."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from .scenarios import Settings

Tables = Mapping[str, pd.DataFrame]


def grid(settings: Settings, tables: Tables) -> list[str]:
    """Conditions, median errors, and the largest."""
    errors, left_out = tables["errors"], tables["left_out"]
    size = errors.error.abs()
    worst = errors.assign(size=size)[size > 2 * errors.noise.fillna(0)].nlargest(20, "size")
    shown = worst[
        ["case", "quantity", "flow", "kernel", "simulator", "error", "kernel_spread", "noise"]
    ].assign(flow=worst.flow.where(worst.flow >= 0))
    return [
        f"{errors.case.nunique()} cases, {settings.duration_s:g} s each, of which the first "
        f"{settings.warmup_s:g} s do not count. The error is the simulator's mean over its seeds minus the "
        "kernel's, relative to the kernel's mean or to the smallest amount in the table of quantities, "
        "whichever is larger. The standard deviation over the kernel's seeds is given, too: smaller errors "
        "are noise.",
        *(f"Left out: {len(part)} cases ({why})." for why, part in left_out.groupby("why", sort=False)),
        in_short(tables["overall"]),
        "### Median absolute error by congestion control, %",
        "Pairs count for both of their congestion controls.",
        markdown_table(tables["by_cca"]),
        "### Median absolute error by queue discipline, %",
        markdown_table(tables["by_aqm"]),
        "### By quantity",
        markdown_table(tables["by_quantity"]),
        "### Largest errors",
        "Errors beyond twice the noise (the standard error of the difference of the means).",
        markdown_table(shown, 2),
    ]


def in_short(overall: pd.DataFrame) -> str:
    """The errors in one sentence."""
    one = overall.iloc[0]
    return (
        f"Median of all absolute errors: **{one.median_error:.1f} %**; {one.within_10:.0f} % are within 10 %; median "
        f"kernel spread {one.kernel_spread:.1f} %."
    )
