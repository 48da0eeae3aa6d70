"""The changes of a sweep, in tables and in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .._support.algorithm.base import Algorithm
from .scenario import plain

__all__ = ["cell", "describe"]


def cell(value: Any) -> Any:
    """A changed value, as stored in a table."""
    if isinstance(value, type) and issubclass(value, Algorithm):
        return value.name
    value = plain(value)
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


def describe(changes: Mapping[str, Any]) -> str:
    """Changes in words, such as ``bottleneck.rate_mbps = 10``."""
    return ", ".join(f"{name} = {cell(value)}" for name, value in changes.items()) or "the scenario"
