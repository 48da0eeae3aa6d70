"""Means over seeds, and the spread of single runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Measured", "intervals", "mean_and_min", "min_and_max", "spread", "spread_text", "text_by"]


@dataclass(frozen=True)
class Measured:
    """A quantity over seeds.

    Parameters
    ----------
    mean : float
    std : float
        Standard deviation of single runs (n - 1); NaN if there is one run or the spread is unknown.
    """

    mean: float
    std: float = math.nan

    @classmethod
    def over(cls, values: Iterable[float]) -> Measured:
        """Mean and standard deviation of one value per seed."""
        import numpy as np

        array = np.asarray(list(values), float)
        return cls(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan)

    def text(self, digits: int = 2) -> str:
        """The mean with this many decimals, followed by ± and the standard deviation if known.

        Examples
        --------
        >>> Measured(5.163, 0.214).text()
        '5.16 ± 0.21'
        >>> Measured(5.163).text(1)
        '5.2'
        """
        mean = f"{self.mean:.{digits}f}"
        return mean if math.isnan(self.std) else f"{mean} ± {self.std:.{digits}f}"


def spread(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means over the seeds, and beside each the standard deviation as ``…_std``.

    Parameters
    ----------
    table : DataFrame
        One row per run.
    by : sequence of str
        Columns that identify points; the mean is over ``seed``.

    Returns
    -------
    DataFrame
        `by`, and each numeric column followed by its ``…_std`` (n - 1).

    Examples
    --------
    >>> import pandas as pd
    >>> spread(pd.DataFrame({"flows": [1, 1], "seed": [1, 2], "loss": [2.0, 4.0]}), ["flows"])
       flows  loss  loss_std
    0      1   3.0  1.414214
    """
    import pandas as pd

    groups = table.drop(columns="seed", errors="ignore").groupby(list(by), sort=False)
    mean = groups.mean(numeric_only=True)
    std = groups.std(ddof=1, numeric_only=True).add_suffix("_std")
    columns = [name for column in mean for name in (column, f"{column}_std")]
    return pd.concat([mean, std], axis=1)[columns].reset_index()


def intervals(
    runs: pd.DataFrame, keys: Sequence[str], quantities: Sequence[str], confidence: float = 0.95
) -> pd.DataFrame:
    """Means over the seeds, with half the width of their confidence intervals (Student's t).

    Parameters
    ----------
    runs : DataFrame
        One row per run: `keys` and `quantities`.
    keys : sequence of str
        Columns that are equal in runs that differ only in their seed.
    quantities : sequence of str
        Columns to average.
    confidence : float

    Returns
    -------
    DataFrame
        `keys`, ``runs`` (how many), and each quantity followed by its ``…_ci`` (NaN for a single run).
    """
    import pandas as pd
    from scipy import stats

    rows = []
    for key, part in runs.groupby(list(keys), sort=False):
        row: dict[str, Any] = dict(zip(keys, key if isinstance(key, tuple) else (key,), strict=True)) | {
            "runs": len(part)
        }
        t = stats.t.ppf((1 + confidence) / 2, len(part) - 1) if len(part) > 1 else math.nan
        for name in quantities:
            row[name] = part[name].mean()
            row[f"{name}_ci"] = t * stats.sem(part[name]) if len(part) > 1 else math.nan
        rows.append(row)
    return pd.DataFrame(rows)


def min_and_max(table: pd.DataFrame, keys: Sequence[str], column: str) -> pd.DataFrame:
    """Mean over the seeds, ``least`` and ``most`` of a column: a range that stays within what the quantity can be.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"flows": [1, 1], "seed": [1, 2], "share": [0.5, 1.0]})
    >>> min_and_max(runs, ["flows"], "share")
       flows  share  least  most
    0      1   0.75    0.5   1.0
    """
    runs = table.groupby(list(keys), sort=False)[column]
    return runs.agg(["mean", "min", "max"]).set_axis([column, "least", "most"], axis=1).reset_index()


def mean_and_min(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Means over the seeds in the order of the rows; for ``jain_index`` also the minimum, as ``jain_least``."""
    grouped = table.drop(columns="seed").groupby(list(keys), sort=False)
    means = grouped.mean().reset_index()
    if "jain_index" in table:
        means.insert(len(keys) + 1, "jain_least", grouped.jain_index.min().to_numpy())
    return means


def spread_text(values: Iterable[float], digits: int = 1) -> str:
    """Mean ± standard deviation of one value per seed; the mean alone for a single seed."""
    return Measured.over(values).text(digits)


def text_by(
    table: pd.DataFrame, keys: Sequence[str], columns: Mapping[str, tuple[str, float, int]]
) -> pd.DataFrame:
    """Means and standard deviations over the seeds as text, ready for Markdown.

    Parameters
    ----------
    table : DataFrame
        One row per run.
    keys : sequence of str
        Columns that distinguish points.
    columns : mapping
        New column name to (column of `table`, factor, decimals).
    """
    import pandas as pd

    return pd.DataFrame(
        dict(zip(keys, key, strict=True))
        | {new: spread_text(part[old] * factor, digits) for new, (old, factor, digits) in columns.items()}
        for key, part in table.groupby(list(keys), sort=False)
    )
