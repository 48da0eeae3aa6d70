"""The changes of a sweep, in tables and in words."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from .._support.algorithm.base import Algorithm
from ..errors import SeedWarning
from .scenario import plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cell", "describe", "warn_of_equal_seeds"]


def cell(value: Any) -> Any:
    """A changed value, as stored in a table."""
    if isinstance(value, type) and issubclass(value, Algorithm):
        return value.name
    value = plain(value)
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


def describe(changes: Mapping[str, Any]) -> str:
    """Changes in words, such as ``bottleneck.rate_mbps = 10``."""
    return ", ".join(f"{name} = {cell(value)}" for name, value in changes.items()) or "the scenario"


def warn_of_equal_seeds(
    table: pd.DataFrame, changes: Collection[str], named: Collection[str] = ("run",)
) -> None:
    """Warn if runs that differ only in their seed have the same results: they do not count as repetitions.

    Parameters
    ----------
    table : DataFrame
        Results of a sweep.
    changes : collection of str
        Columns with what was changed.
    named : collection of str
        Further columns that are not results.
    """
    results = [name for name in table if name not in {*changes, *named}]
    if "seed" not in changes or not results:
        return
    others = [name for name in changes if name != "seed"]
    groups = table.groupby(others, dropna=False, sort=False) if others else [((), table)]
    equal = sum(
        len(group.seed.drop_duplicates()) > 1 and len(group[results].drop_duplicates()) == 1
        for _, group in groups
    )
    if equal:
        warnings.warn(
            f"{equal} of {len(groups)} combinations have the same result for every seed, because little in them "
            "is random: repeat them with repetition = [0, 1, …] instead of seeds",
            SeedWarning,
            stacklevel=3,
        )
