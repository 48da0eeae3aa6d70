"""Settings of runs, from the flows of a dataset: their values, the runs that share them, and bands."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["banded", "setting_columns", "settings_of", "settings_of_runs"]

#: Columns of a dataset's flows that are not settings: who, what came out, and the seed.
_NO_SETTING = {
    "run", "flow_id", "cca", "bytes_acked", "retransmits", "src", "dst", "sport", "dport",
    "kind", "data_from", "start_ns", "stop_ns", "min_rtt_us", "seed", "repetition",
}  # fmt: skip
#: A repetition has another RTT, by up to 2 %; where the RTT itself is varied, that is a column, too.
_MOVED_BY_REPETITION = "base_rtt_ms"
#: Settings with more numeric values than this are divided into this many bands of equal counts.
_BANDS = 4


def setting_columns(flows: pd.DataFrame) -> list[str]:
    """Columns of a dataset's flows that are settings with known values."""
    return [name for name in flows.columns if name not in _NO_SETTING and flows[name].notna().any()]


def settings_of(flows: pd.DataFrame) -> pd.DataFrame:
    """The settings of flows.

    Parameters
    ----------
    flows : DataFrame
        Flows of a dataset.

    Returns
    -------
    DataFrame
        One row per setting: its column as ``setting``, the number of ``values``, the smallest as ``from``, the largest
        as ``to``, and the ``median`` of numbers.
    """
    rows = [(name, *_range(flows[name].dropna())) for name in setting_columns(flows)]
    return pd.DataFrame(rows, columns=["setting", "values", "from", "to", "median"])


def _range(known: pd.Series) -> tuple[int, Any, Any, Any]:
    if not pd.api.types.is_numeric_dtype(known):
        known = known.astype(str)
        return known.nunique(), known.min(), known.max(), None
    return known.nunique(), f"{known.min():.6g}", f"{known.max():.6g}", f"{known.median():.6g}"


def banded(values: pd.Series) -> pd.Series:
    """Values in a few groups, in order: numbers with many values by quartile, all others as they are.

    Parameters
    ----------
    values : Series

    Returns
    -------
    Series
        Categories in the order of the values, such as ``"20 to 47.3"``; null where the value is.
    """
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        words = values.map(str, na_action="ignore")
        return words.astype(pd.CategoricalDtype(sorted(words.dropna().unique()), ordered=True))
    there = np.unique(values.dropna().to_numpy(float))
    bands = np.array_split(there, min(_BANDS, max(len(there), 1)))
    short = [_band(part, 6) for part in bands]
    names = short if len(set(short)) == len(short) else [_band(part, 17) for part in bands]
    starts = [part[0] for part in bands if len(part)]
    codes = np.searchsorted(starts, values.to_numpy(float, na_value=-np.inf), side="right") - 1
    return pd.Series(
        pd.Categorical.from_codes(codes, pd.Index(names[: len(starts)]), ordered=True), values.index
    )


def _band(values: np.ndarray, digits: int) -> str:
    ends = dict.fromkeys(f"{value:.{digits}g}" for value in (*values[:1], *values[-1:]))
    return " to ".join(ends)


def settings_of_runs(flows: pd.DataFrame, columns: Sequence[str] | None = None) -> dict[str, str]:
    """By run, a key of its settings, equal for two runs with the same settings.

    Runs have the same settings if their flows have the same values in all columns except the seed, in any order. A
    repetition (:meth:`cctoolkit.Scenario.repeated`) has those of what it repeats.

    Parameters
    ----------
    flows : DataFrame
        Flows of a dataset.
    columns : sequence of str, optional
        Settings that count; by default all.

    Returns
    -------
    dict of str to str
        Twelve hexadecimal digits of a SHA-256; empty for runs without known settings.
    """
    chosen = sorted(setting_columns(flows) if columns is None else columns)
    if columns is None and "repetition" in flows and _MOVED_BY_REPETITION in flows:
        moved = flows[_MOVED_BY_REPETITION].mask(flows["repetition"].notna())
        flows = flows.assign(**{_MOVED_BY_REPETITION: moved})
    found: dict[str, str] = {}
    for run, rows in flows.groupby("run", sort=False)[chosen]:
        values = {
            "\n".join(f"{name}: {_text(value)}" for name, value in row.items() if not pd.isna(value))
            for row in rows.to_dict("records")
        } - {""}
        found[str(run)] = (
            hashlib.sha256("\n\n".join(sorted(values)).encode()).hexdigest()[:12] if values else ""
        )
    return found


def _text(value: Any) -> str:
    """Equal text for 5 and 5.0, since a column with missing values holds floats."""
    return f"{value:.9g}" if isinstance(value, int | float) else str(value)
