"""Tests skip where a program is missing, and only for that."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools import need

from cctoolkit.errors import TestbedUnavailableError
from cctoolkit.testbed import traffic


def test_a_missing_program_skips_the_test_that_starts_it() -> None:
    with pytest.raises(pytest.skip.Exception, match="needs no-such-program"):
        subprocess.run(["no-such-program", "--version"], check=False)
    with pytest.raises(pytest.skip.Exception, match="needs no-such-program"):
        subprocess.Popen("no-such-program")
    with pytest.raises(pytest.skip.Exception, match="needs no-such-program, nor-this"):
        need("sh", "no-such-program", "nor-this")
    need("sh")


def test_what_fails_for_another_reason_fails(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        subprocess.run([tmp_path / "made-by-this-test"], check=False)
    with pytest.raises(FileNotFoundError):
        subprocess.run(["sh", "-c", "true"], cwd=tmp_path / "nowhere", check=False)


def test_the_project_says_itself_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path))
    with pytest.raises(TestbedUnavailableError, match="no C compiler"):
        traffic.binary()
