"""What no test may leave to the next, and which files begin."""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections.abc import Iterator

import pytest
import tools

#: The files that take longest. Workers take whole files, so when these begin, all workers end at about the same time.
LONGEST = (
    "test_conformance",
    "test_notebooks",
    "test_docs",
    "test_batch_run",
    "test_testbed_uml",
    "test_wheel",
    "test_capture",
    "test_identify_command",
    "test_testbed_kernel",
)


_STARTED = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    # Shells start what runs in the background (nohup, &) with Ctrl-C ignored, and so would everything that tests
    # interrupt: they would wait for it in vain.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    tools.fast_set = config.option.markexpr == "not slow"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_collection_finish() -> None:
    gc.freeze()  # a million objects of libraries and tests, which each full collection would look at


def _took(config: pytest.Config) -> str | None:
    """Where the cache has the duration of a run of all the tests, or of all that ``-m`` selects; None for others."""
    every = config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.keyword
    every = every and not config.option.collectonly
    if not every or not hasattr(config, "cache") or hasattr(config, "workerinput"):
        return None
    return f"cctoolkit/took_s/{config.option.markexpr or 'all'}"


def pytest_report_header(config: pytest.Config) -> str | None:
    """How long it takes, from the last time on this machine."""
    key = _took(config)
    if key is None or config.cache is None:
        return None
    took_s = config.cache.get(key, None)
    if took_s is None:
        return "duration: not known on this machine before the first run"
    return f"duration: {took_s / 60:.1f} minutes the last time"


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_STARTED] = time.monotonic()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    key = _took(session.config)
    if key is not None and session.config.cache is not None and exitstatus in (0, 1):  # it ran to the end
        session.config.cache.set(key, time.monotonic() - session.config.stash[_STARTED])


@pytest.fixture(autouse=True, scope="session")
def _programs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        tools.skip_without_programs(patch)
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
