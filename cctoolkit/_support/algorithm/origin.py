"""Where an algorithm comes from: this package or a user."""

from __future__ import annotations

from typing import Any

__all__ = ["is_ours"]


def is_ours(thing: Any) -> bool:
    """Whether a class or function is part of this package."""
    return f"{thing.__module__}.".startswith(f"{__name__.partition('.')[0]}.")
