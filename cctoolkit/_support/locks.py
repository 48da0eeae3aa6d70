"""Locks on open files and folders, which end with the process that has them, however it ends."""

from __future__ import annotations

from typing import IO, Any

__all__ = ["try_lock"]


def try_lock(file: IO[Any] | int) -> bool:
    """Lock an open file until it is closed; False if somebody else has it locked. On Windows there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
