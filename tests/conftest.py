"""What no test may leave to the next, and which files begin."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tools import skip_without_programs

#: The files that take longest. Workers take whole files, so when these begin, all workers end at about the same time.
LONGEST = (
    "test_conformance",
    "test_notebooks",
    "test_docs",
    "test_batch_run",
    "test_testbed_uml",
    "test_capture",
    "test_identify_command",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(autouse=True, scope="session")
def _programs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        skip_without_programs(patch)
        yield


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
