"""Checks of arguments: numbers in range, times in whole nanoseconds; errors name the argument."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np

from ..errors import ParameterError

__all__ = ["first_line", "number", "positive_ns", "short_text", "shown", "whole"]

#: The default upper bound for counts.
MANY = 2**40
#: Characters of a name or label; two names of files fit.
MOST_CHARACTERS = 1000

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def shown(value: Any) -> str:
    """A value as an error shows it: at most a line, whatever it is."""
    try:
        return " ".join(_REPR.repr(value).split())
    except (ValueError, RecursionError):  # an integer of thousands of digits
        return f"this {type(value).__name__}"


def first_line(err: BaseException, otherwise: str) -> str:
    """What a library says about its input: one line, without all of the input."""
    text = next(iter(str(err).splitlines()), "") or otherwise
    return text if len(text) <= 200 else f"{text[:150]} … {text[-40:]}"


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
        raise ParameterError(f"{name}: {shown(value)} must be a time of at least one nanosecond")
    return ns
