"""Pages whose numbers come from kept results.

A block between ``<!-- results: NAME/VIEW -->`` and ``<!-- end -->`` is filled by a view of a result's tables: a
function in the ``VIEWS`` of the result's book module (:mod:`.catalogue`). The comments are on separate lines
around tables and paragraphs, or within a line around a phrase. Sources of notebooks have blocks in their Markdown
cells.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from .._support.atomic import replacing
from .._support.markdown import markdown_table
from ..errors import ParameterError
from .catalogue import RESULTS
from .code_hash import ROOT
from .items import items_table
from .kept import KeptTables, made, state

__all__ = ["filled", "pages", "render_all", "view"]

View = Callable[[Mapping[str, pd.DataFrame]], str]
_BLOCK = re.compile(r"<!-- results: (?P<name>[\w-]+)/(?P<view>[\w-]+) -->(?P<text>.*?)<!-- end -->", re.S)
#: Where pages are, including the sources of notebooks, from which the notebooks are made.
_PLACES = ("*.md", "docs/**/*.md", "hardware/**/*.md", "benchmarks/*.md", "data/results/*.md", "notebooks/**/*.md",
           "notebooks/**/*.py")  # fmt: skip


def pages(root: Path = ROOT) -> Iterator[Path]:
    """Every page that has blocks."""
    for pattern in _PLACES:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and _BLOCK.search(path.read_text(encoding="utf-8")):
                yield path


def view(name: str, what: str) -> str:
    """The Markdown of a view.

    Parameters
    ----------
    name : str
        One of :data:`~.catalogue.RESULTS`, or ``every`` or ``items``.
    what : str
        A view of its book module, or ``made``: how the result was made; of ``every``, ``list``; of ``items``, a paper.

    Raises
    ------
    ParameterError
        There is no such result or view, or the result was made by older code and lacks what the view shows.
    """
    if (name, what) == ("every", "list"):
        return every_result()
    if name == "items":
        return items_table(what)
    tables = KeptTables(name)
    if not made(name):
        raise ParameterError(f"results: {name} is missing; `{RESULTS[name].command}` makes it")
    if what == "made":
        return how_made(name)
    views: Mapping[str, View] = importlib.import_module(RESULTS[name].book).VIEWS
    if what not in views:
        raise ParameterError(f"results: {name} has no view {what!r}, only made, {', '.join(views)}")
    try:
        return views[what](tables).strip()
    except (AttributeError, KeyError) as err:
        if state(name) == "fresh":
            raise
        raise ParameterError(
            f"results: {name}/{what} needs what the kept tables lack ({err}); `results make {name}` makes them again"
        ) from err


def every_result() -> str:
    """A table of all results: what each is, and how it was made."""
    rows = []
    for name, result in RESULTS.items():
        about = made(name)
        by = "recorded" if about and about.get("code") is None else about.get("version", "")
        rows.append(
            {
                "folder": f"`{name}/`",
                "what": result.what,
                "command": f"`{result.command}`",
                "date": about.get("date", ""),
                "version": f"{by} ({about['commit']})" if about else "",
                "machine": about.get("machine") or "",
            }
        )
    return markdown_table(pd.DataFrame(rows))


def how_made(name: str) -> str:
    """How a result was made, in one sentence."""
    about = made(name)
    if about.get("code") is None:
        parts = [f"recorded {about['date']}", f"commit {about['commit']}", about.get("machine")]
        where = f"`data/results/{name}/`"
        command = RESULTS[name].command
        return f"{where}, {', '.join(p for p in parts if p)}; `{command}` makes it again."
    return (
        f"`data/results/{name}/`, made by `{about['command']}` with cctoolkit {about['version']} (commit "
        f"{about['commit']}) on {about['date']}: {about['machine']}"
        f"{', kernel ' + about['kernel'] if 'kernel' in about else ''}."
    )


def filled(text: str) -> str:
    """A page's text with its blocks filled.

    Raises
    ------
    ParameterError
        A block names a result or view that does not exist.
    """

    def fill(block: re.Match[str]) -> str:
        found = view(block["name"], block["view"])
        begin, end = f"<!-- results: {block['name']}/{block['view']} -->", "<!-- end -->"
        if not block["text"].startswith("\n"):  # inside a line
            return f"{begin}{found}{end}"
        mark = text[
            text.rfind("\n", 0, block.start()) + 1 : block.start()
        ]  # "# " in the source of a notebook
        lines = [f"{mark}{line}".rstrip() for line in ("", *found.split("\n"), "")]
        return "\n".join([begin, *lines, f"{mark}{end}"])

    return _BLOCK.sub(fill, text)


def render_all(*, check: bool = False, root: Path = ROOT) -> list[Path]:
    """Fill the blocks of all pages, and make notebooks of changed sources.

    A page with a result that has not been made yet stays as it is, and the others are filled.

    Parameters
    ----------
    check : bool
        Write nothing.
    root : Path

    Returns
    -------
    list of Path
        Pages that changed, or would.

    Raises
    ------
    ParameterError
        A page needs a result that is missing, or names one that does not exist; after the others have been filled.
    """
    changed: list[Path] = []
    missing: list[ParameterError] = []
    for path in pages(root):
        text = path.read_text(encoding="utf-8")
        try:
            new = filled(text)
        except ParameterError as error:
            missing.append(error)
            continue
        if new != text:
            changed.append(path)
            if not check:
                with replacing(path) as tmp:
                    tmp.write_text(new, encoding="utf-8")
    if not check and any(path.suffix == ".py" for path in changed):
        import subprocess
        import sys

        subprocess.run(
            [sys.executable, str(root / "notebooks" / "build.py")], check=True, stdout=subprocess.DEVNULL
        )
    if missing:
        raise missing[0]
    return changed
