"""Worker processes: they wait for the next jobs while new ones would be the same, and never outlive their parent."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools import alive

from cctoolkit._support import pool
from cctoolkit.errors import CCToolkitError


def worker(delay_s: float = 0.2) -> int:
    time.sleep(delay_s)  # so that each worker gets one
    return os.getpid()


def workers() -> set[int]:
    return set(pool.results(worker, [()] * 4, workers=2))


def eventually(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


@pytest.fixture(autouse=True)
def _nobody_waits() -> Iterator[None]:
    def end() -> None:
        if pool._idle is not None:
            pool._end_idle(pool._idle)

    end()
    yield
    end()


@pytest.mark.slow
def test_workers_wait_for_the_next_jobs() -> None:
    first = workers()
    assert len(first) == 2 and workers() == first
    assert len(set(pool.results(worker, [()] * 6, workers=3)) | first) == 5  # another number of them
    assert eventually(lambda: not any(map(alive, first)))


@pytest.mark.slow
def test_workers_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_KEPT_S", 0.1)
    first = workers()
    assert eventually(lambda: not any(map(alive, first)))
    assert not workers() & first


@pytest.mark.slow
def test_a_change_of_variables_or_folder_needs_new_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = workers()
    monkeypatch.setenv("SOMETHING", "else")
    second = workers()
    monkeypatch.chdir(tmp_path)
    assert not first & second and not workers() & second


def test_an_edited_module_is_not_served_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "edited_module.py"
    file.write_text("def answer():\n    return 1\n")
    edited = importlib.import_module("edited_module")
    try:
        assert pool.results(edited.answer, [(), ()], workers=2) == [1, 1]
        file.write_text("def answer():\n    return 22\n")
        importlib.reload(edited)
        assert pool.results(edited.answer, [(), ()], workers=2) == [22, 22]
    finally:
        del sys.modules["edited_module"]


def fails(number: int) -> int:
    if number == 1:
        raise ValueError("one")
    return worker(0)


def dies(number: int) -> None:
    os._exit(number)


@pytest.mark.slow
def test_workers_end_with_an_error_and_with_those_who_look_away() -> None:
    first = workers()
    with pytest.raises(ValueError, match="one"):
        pool.results(fails, [(0,), (1,)], workers=2)
    assert eventually(lambda: not any(map(alive, first)))
    with pytest.raises(CCToolkitError, match="a worker process died"):
        pool.results(dies, [(3,), (3,)], workers=2)
    assert pool._idle is None
    with contextlib.closing(pool.in_processes(worker, [(60,), (0,)], 2)) as done:
        next(done)
    assert pool._idle is None


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)", "raise SystemExit(1)"])
def test_workers_end_with_their_parent(end: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nfrom cctoolkit._support import pool\n"
        "def worker():\n    time.sleep(0.2)\n    return os.getpid()\n"
        "print(*set(pool.results(worker, [()] * 4, workers=2)), flush=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(20)\n    os._exit(0)\n"  # who holds nothing of theirs
        f"{end}\n"
    )
    started = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    first = [int(pid) for pid in started.stdout.readline().split()]
    started.wait(timeout=30)
    assert len(first) == 2
    assert eventually(lambda: not any(map(alive, first)))
    started.stdout.close()
