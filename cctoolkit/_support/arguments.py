"""Checks of arguments: numbers in range, times in whole nanoseconds; errors name the argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ParameterError

__all__ = ["number", "positive_ns", "whole"]

#: The default upper bound for counts.
MANY = 2**40


def number(
    where: str, value: Any, *, low: float = 0.0, above: float | None = None, high: float = math.inf
) -> int | float:
    """The value as a Python number; numpy numbers are accepted too, since sweeps over `arange` yield them."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ParameterError(f"{where}: {value!r} is not a number")
    if above is not None and not value > above:
        raise ParameterError(f"{where}: {value!r} must be {f'above {above:g}' if above else 'positive'}")
    if value < low:
        raise ParameterError(f"{where}: {value!r} must be at least {low:g}")
    if value > high or abs(value) == math.inf:
        most = f"at most {high:g}" if high < math.inf else "finite"
        raise ParameterError(f"{where}: {value!r} must be {most}")
    return value


def whole(where: str, value: Any, *, low: int = 0, high: float = MANY) -> int:
    value = number(where, value, low=low, high=high)
    if value != int(value):
        raise ParameterError(f"{where}: {value!r} is not a whole number")
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
        raise ParameterError(f"{name}: {value!r} must be a time of at least one nanosecond")
    return ns
