"""Tail drop: no queue management; what finds the buffer full is lost."""

from __future__ import annotations

from typing import ClassVar

from .base import Aqm

__all__ = ["TailDrop"]


class TailDrop(Aqm):
    """A plain buffer (Linux pfifo, bfifo). The buffer's size belongs to the queue, so there is nothing to decide."""

    name: ClassVar[str] = "tail_drop"
