"""Code of the documentation: the fenced blocks of a Markdown file, in order, with their languages.

A block after a comment ``<!-- not run: why -->`` is not for running.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]*?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.S | re.M
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    not_run: str | None  # why


def blocks(document: Path) -> list[Block]:
    return [
        Block(found["language"], found["text"], found["why"])
        for found in FENCE.finditer(document.read_text(encoding="utf-8"))
    ]


def code(document: Path, language: str) -> list[str]:
    """Texts of the blocks to be run."""
    return [block.text for block in blocks(document) if block.language == language and block.not_run is None]


def commands(document: Path) -> list[str]:
    """What stands behind ``$`` in console blocks, without comments."""
    lines = "".join(code(document, "console")).splitlines()
    return [line.removeprefix("$ ").partition("  #")[0].strip() for line in lines if line.startswith("$ ")]
