"""Checks of arguments: numbers in range, times in whole nanoseconds, arrays and tables; errors name the argument."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import CCToolkitError, ParameterError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["floats", "number", "positive_ns", "short_text", "shown", "table", "whole"]

#: The default upper bound for counts.
MANY = 2**40
#: Characters of a name or label; two names of files fit.
MOST_CHARACTERS = 1000

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def shown(value: Any) -> str:
    """A value as errors show it: at most one line."""
    try:
        return " ".join(_REPR.repr(value).split())
    except (ValueError, RecursionError):  # an integer of thousands of digits
        return f"this {type(value).__name__}"


def short_text(where: str, value: Any) -> str:
    """The value, if it is text that fits into a table."""
    if not isinstance(value, str):
        raise ParameterError(f"{where}: {shown(value)} must be text")
    if len(value) > MOST_CHARACTERS:
        raise ParameterError(f"{where}: {len(value):,} characters; at most {MOST_CHARACTERS} are allowed")
    return value


def number(
    where: str, value: Any, *, low: float = 0.0, above: float | None = None, high: float = math.inf
) -> int | float:
    """The value as a Python number; numpy numbers are accepted too, since sweeps over `arange` yield them."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ParameterError(f"{where}: {shown(value)} is not a number")
    if above is not None and not value > above:
        raise ParameterError(f"{where}: {shown(value)} must be {f'above {above:g}' if above else 'positive'}")
    if value < low:
        raise ParameterError(f"{where}: {shown(value)} must be at least {low:g}")
    if value > high or abs(value) == math.inf:
        most = f"at most {high:g}" if high < math.inf else "finite"
        raise ParameterError(f"{where}: {shown(value)} must be {most}")
    return value


def whole(where: str, value: Any, *, low: int = 0, high: float = MANY) -> int:
    value = number(where, value, low=low, high=high)
    if value != int(value):
        raise ParameterError(f"{where}: {shown(value)} is not a whole number")
    return int(value)


def positive_ns(value: float, unit_ns: float, name: str) -> int:
    """A time argument as whole nanoseconds.

    Raises
    ------
    ParameterError
        The value is not a number, or less than one nanosecond.
    """
    try:
        ns = round(float(value) * unit_ns)
    except (TypeError, ValueError, OverflowError):
        ns = 0
    if not 1 <= ns < 2**62:
        raise ParameterError(f"{name}: {shown(value)} must be a time from one nanosecond to 146 years")
    return ns


def floats(where: str, values: Any, *, ndim: int | None = None) -> np.ndarray:
    """The values as a float64 array, with `ndim` dimensions if that is given.

    Raises
    ------
    ParameterError
        They are not numbers.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{where}: expected numbers") from None
    if ndim is not None and array.ndim != ndim:
        raise ParameterError(f"{where}: shape {array.shape}, expected {ndim} dimension{'s' * (ndim > 1)}")
    return array


def _whole_numbers(where: str, name: str, column: pd.Series, error: type[CCToolkitError]) -> np.ndarray:
    """A column as int64, if nothing is lost."""
    is_time = name.endswith("ts_ns")
    most = 2**62 if is_time else 2**63 - 1
    exact = column.dtype.kind in "iu" and not column.isna().any()
    values: Any = (
        column.to_numpy(f"{column.dtype.kind}8") if exact else column.to_numpy(np.float64, na_value=np.nan)
    )
    with np.errstate(invalid="ignore"):
        wrong = ~((values > -most) & (values < most) & (values % 1 == 0))
    if wrong.any():
        row = int(wrong.argmax())
        such = "a time in nanoseconds, from 1823 to 2116" if is_time else "a whole number"
        raise error(f"{where}: column {name!r}, row {row}: {values[row]:g} is not {such}")
    return values.astype(np.int64)


def table(
    where: str,
    value: Any,
    numbers: Iterable[str] = (),
    others: Iterable[str] = (),
    *,
    whole: Iterable[str] = (),
    origin: str = "",
    error: type[CCToolkitError] = ParameterError,
) -> pd.DataFrame:
    """Check a table that is not one of the schema's for the columns needed; rows are numbered from 0.

    Parameters
    ----------
    where : str
        Name of the argument.
    value : DataFrame
        What was given.
    numbers, others : iterable of str
        Columns that must be there, once each: of numbers, and of anything.
    whole : iterable of str
        Columns of `numbers` that must hold whole numbers and no nulls; they become int64. In columns of times
        (``…ts_ns``) they are between 1823 and 2116, so that differences do not overflow.
    origin : str
        Function that makes such tables.
    error : type
        What is raised.

    Returns
    -------
    DataFrame
        Columns of numbers have a type of numpy (null is NaN), or one of pandas' own that can be null.

    Raises
    ------
    ParameterError
        Or `error`: it is not a DataFrame, or a column is missing, duplicated or not numeric. The text names the first
        one.
    """
    import pandas as pd

    if not isinstance(value, pd.DataFrame):
        such = f"a table, such as from {origin}," if origin else "a DataFrame,"
        raise error(f"{where}: expected {such} not {type(value).__name__}")
    numbers, whole = tuple(numbers), tuple(whole)
    changed: dict[str, Any] = {}
    for name in (*numbers, *others):
        there = int((value.columns == name).sum())
        if there != 1:
            wrong = "there twice" if there else "missing"
            such = f"; expected a table as from {origin}" if origin else ""
            raise error(f"{where}: column {name!r} is {wrong}{such}")
        found = value[name].dtype
        if name not in numbers:
            continue
        unknown = found == np.object_ and value[name].isna().all()  # as from a table of None
        if unknown:
            changed[name] = np.full(len(value), np.nan)
        elif not pd.api.types.is_numeric_dtype(found) or pd.api.types.is_complex_dtype(found):
            raise error(f"{where}: column {name!r} is {found}, expected numbers")
        if name in whole:
            given = pd.Series(changed[name]) if unknown else value[name]
            changed[name] = _whole_numbers(where, name, given, error)
        elif isinstance(found, pd.ArrowDtype | pd.SparseDtype):
            changed[name] = value[name].to_numpy(np.float64, na_value=np.nan)
    attrs, value = value.attrs, value.loc[:, ~value.columns.duplicated()].reset_index(drop=True)
    if changed:
        value = value.assign(**changed)
    value.attrs = attrs
    return value
