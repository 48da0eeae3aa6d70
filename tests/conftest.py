"""What no test may leave to the next."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands that tests call in this process say how much is logged, and where."""
    root = logging.getLogger()
    level, handlers = root.level, set(root.handlers)
    levels = {name: logging.getLogger(name).level for name in ("hardware", "__main__")}
    yield
    for handler in set(root.handlers) - handlers:
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
