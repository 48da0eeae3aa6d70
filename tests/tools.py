"""What tests share: programs that a machine may lack, what the fast set leaves out, and which processes are alive."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

_TESTS = Path(__file__).parent

#: Whether this run leaves out slow tests (``make fast``); conftest.py sets it before test files are imported.
fast_set = False


def examples(number: int) -> int:
    """How many examples a property gets: a fifth of them in the fast set, where it would take seconds."""
    return number // 5 if fast_set else number


def mostly_slow(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Values for ``parametrize``: all but the quick ones are marked slow."""
    return [pytest.param(value, marks=() if value in quick else pytest.mark.slow) for value in values]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def need(*programs: str) -> None:
    """Skip the test if one of the programs is not on PATH.

    Tests that start a program themselves need not call this: see :func:`skip_without_programs`.
    """
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    """If a file of tests starts a program that is not there, its test is skipped.

    The project's own calls are left alone: what a user reads without a program is tested.
    """

    def __init__(self, args: Any, *more: Any, **options: Any) -> None:
        try:
            super().__init__(args, *more, **options)
        except FileNotFoundError as err:
            words = [args] if isinstance(args, str | bytes | Path) else list(args)
            program, frame = str(words[0]), sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename == subprocess.__file__:
                frame = frame.f_back
            is_missing = "/" not in program and err.filename == program
            if is_missing and Path(frame.f_code.co_filename).parent == _TESTS:
                pytest.skip(f"needs {program}")
            raise


def skip_without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each test skip that starts a program which is not on PATH."""
    monkeypatch.setattr(subprocess, "Popen", _Popen)
