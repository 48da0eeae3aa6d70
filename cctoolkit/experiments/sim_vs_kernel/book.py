"""Views of the comparison's kept tables for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..statements import bullets
from .conclusions import grid
from .tables import QUANTITIES

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def overall(tables: Tables) -> str:
    """The errors in a few sentences."""
    one = tables["overall"].iloc[0]
    return (
        f"{one.cases:.0f} cases, {one.seeds:.0f} seeds of the simulator and {one.kernel_seeds:.0f} of Linux, "
        f"{one.compared:.0f} comparisons: the median error is {one.median_error:.1f} %, {one.within_10:.0f} % "
        "of all are within 10 %, and the kernel's own spread over seeds has a median of "
        f"{one.kernel_spread:.1f} %. Single flows: {one.single_flows:.1f} %, pairs: {one.pairs:.1f} %. Of the "
        f"{one.above_10:.0f} errors above 10 %, {one.above_10_noise:.0f} are within twice the noise."
    )


def _medians(name: str) -> Callable[[Tables], str]:
    def one(tables: Tables) -> str:
        table = tables[name]
        text = table.astype(dict.fromkeys(table.columns[2:], object))
        for column in text.columns[2:]:
            text[column] = [f"{value:.1f}" if value == value else "" for value in table[column]]
        return markdown_table(text, labels=1)

    return one


def in_words(tables: Tables) -> str:
    """Median error and number of cases, for other pages."""
    one = tables["overall"].iloc[0]
    return f"{one.cases:.0f} cases compared with Linux in virtual time: the median error is {one.median_error:.1f} %"


def largest(tables: Tables) -> str:
    """Which medians are above 10 %."""
    found = []
    for name, column in (("by_cca", "cca"), ("by_aqm", "aqm")):
        table = tables[name].set_index(column)
        found += [
            f"{quantity} of {who} ({table[quantity][who]:.1f})"
            for quantity in QUANTITIES
            if quantity in table
            for who in table.index
            if table[quantity][who] > 10
        ]
    every = pd.concat([tables["by_cca"]["all"], tables["by_aqm"]["all"]]).max()
    return (
        "The largest median over all quantities, of any congestion control or queue discipline, is "
        f"{every:.1f} %. Medians above 10 %: {', '.join(found) or 'none'}."
    )


VIEWS: dict[str, Callable[[Tables], str]] = {
    "overall": overall,
    "by-cca": _medians("by_cca"),
    "by-aqm": _medians("by_aqm"),
    "largest": largest,
    "in-words": in_words,
    "cases": lambda tables: f"{tables['overall'].cases.iloc[0]:.0f} cases",
    "statements": lambda tables: bullets(grid(tables)),
}
