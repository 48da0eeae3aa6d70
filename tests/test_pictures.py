"""The pictures of README and book: there, small, and made by a command."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]


def load() -> object:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pictures = load()


def shown() -> set[Path]:
    return {
        (page.parent / name).resolve()
        for page in PAGES
        for name in re.findall(r"!\[[^\]]+\]\((?!http)([^)]+)\)", page.read_text(encoding="utf-8"))
    }


def test_all_are_shown_and_small() -> None:
    there = set(pictures.FOLDER.iterdir())
    assert shown() == there
    assert max(path.stat().st_size for path in there) <= pictures.MOST_BYTES


def test_a_terminal_names_no_machine() -> None:
    text = (pictures.FOLDER / "terminal.svg").read_text(encoding="utf-8")
    assert "bufferbloat" in text
    assert str(ROOT) not in text


def test_the_terminal_shows_what_the_command_prints_today() -> None:
    def words(svg: str) -> list[str]:
        return html.unescape("".join(re.findall(r"<text [^>]*>([^<]*)</text>", svg))).split()

    with contextlib.chdir(ROOT):
        assert words((pictures.FOLDER / "terminal.svg").read_text(encoding="utf-8")) == words(
            pictures.terminal()
        )


@pytest.mark.slow
@pytest.mark.browser
def test_the_command_makes_them(tmp_path: Path) -> None:
    pytest.importorskip("selenium")
    if not (shutil.which("chromium") or shutil.which("google-chrome")) or not shutil.which("chromedriver"):
        pytest.skip("needs chromium and chromedriver on PATH")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, ROOT / "docs" / "pictures.py", tmp_path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in pictures.FOLDER.iterdir()}
