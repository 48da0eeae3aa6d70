"""What no test may leave to the next, and which files begin."""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tools

#: The files that take longest, where no run has measured it yet. Workers take whole files, so when these begin, all
#: workers end at about the same time.
LONGEST = (
    "test_conformance",
    "test_notebooks",
    "test_docs",
    "test_hostile_tables",
    "test_batch_run",
    "test_testbed_uml",
    "test_wheel",
    "test_capture",
    "test_report",
    "test_identify_command",
    "test_testbed_kernel",
    "test_launch_physical",
)


_STARTED = pytest.StashKey[float]()
#: How long each file has taken in this run.
_files_s: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    # Shells start what runs in the background (nohup, &) with Ctrl-C ignored, and so would everything that tests
    # interrupt: they would wait for it in vain.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    tools.fast_set = config.option.markexpr == "not slow"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker how long each file took the last time; all have to agree on the order."""
    key = _kept(node.config, "files_s")
    node.workerinput["files_s"] = node.config.cache.get(key, {}) if key else {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    measured_s = getattr(config, "workerinput", {}).get("files_s", {})
    guessed_s = {name: 1e9 - number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: -(measured_s or guessed_s).get(item.path.stem, 0.0))


def pytest_collection_finish() -> None:
    gc.freeze()  # a million objects of libraries and tests, which each full collection would look at


def _kept(config: pytest.Config, what: str) -> str | None:
    """Where the cache has something about a run of all the tests, or of all that ``-m`` selects; None for others."""
    every = config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.keyword
    every = every and not config.option.collectonly
    if not every or not hasattr(config, "cache") or hasattr(config, "workerinput"):
        return None
    return f"cctoolkit/{what}/{config.option.markexpr or 'all'}"


def pytest_report_header(config: pytest.Config) -> str | None:
    """How long it takes, from the last time on this machine."""
    key = _kept(config, "took_s")
    if key is None or config.cache is None:
        return None
    took_s = config.cache.get(key, None)
    if took_s is None:
        return "duration: not known on this machine before the first run"
    return f"duration: {took_s / 60:.1f} minutes the last time"


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_STARTED] = time.monotonic()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _files_s[Path(report.nodeid.partition("::")[0]).stem] += report.duration


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config, took, files = session.config, _kept(session.config, "took_s"), _kept(session.config, "files_s")
    if took and files and config.cache is not None and exitstatus in (0, 1):  # it ran to the end
        config.cache.set(took, time.monotonic() - config.stash[_STARTED])
        config.cache.set(files, _files_s)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The files that took longest, where the tests that did are asked for: hundreds of quick tests add up, too."""
    if config.option.durations:
        terminalreporter.section(f"slowest {config.option.durations} files")
        for name, took_s in _files_s.most_common(config.option.durations):
            terminalreporter.write_line(f"{took_s:.2f}s {name}")


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
