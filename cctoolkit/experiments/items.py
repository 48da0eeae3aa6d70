"""Every figure and table of a paper, with what we measured or why there is nothing to measure.

The lists are in ``data/papers/items/``. A row names the statements that belong to a figure or table, each as
``result:part:about``: a result of :mod:`.catalogue`, a part of its experiment, and the statements' label.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

import pandas as pd

from .._support.markdown import markdown_table
from .catalogue import RESULTS
from .kept import KeptTables, made
from .papers import paper_items
from .statements import OURS, Statement, count_holding

__all__ = ["item_statements", "items_table"]


def item_statements(sources: str) -> dict[str, list[Statement]]:
    """The statements about a figure or table, by the result that they are computed from.

    Parameters
    ----------
    sources : str
        ``result:part:about``, several separated by ``|``. Results that have not been made, or have no such statement,
        are left out.
    """
    found: dict[str, list[Statement]] = {}
    for source in filter(None, sources.split("|")):
        name, part, about = source.split(":")
        if made(name):
            every = _statements_of(name, part)(KeptTables(name))
            found.setdefault(name, []).extend(one for one in every if str(one.about) == about)
    return {name: statements for name, statements in found.items() if statements}


def _statements_of(name: str, part: str) -> Callable[[KeptTables], Iterable[Statement]]:
    """The function that makes the statements of a part."""
    book = importlib.import_module(RESULTS[name].book)
    if hasattr(book, "STATEMENTS"):
        return book.STATEMENTS[part]
    parts = importlib.import_module(RESULTS[name].book.replace(".book", ".parts"))
    known = {str(number): one for number, one in parts.PARTS.items()}
    known |= {"table 1": parts.TABLE_1} if hasattr(parts, "TABLE_1") else {}
    return known[part].statements


def items_table(paper: str) -> str:
    """A table with a row for each figure and table of a paper, and each result about it.

    Parameters
    ----------
    paper : str
        One of :data:`~.papers.PAPERS`.

    Returns
    -------
    str
        Markdown: what it shows, how many of the paper's claims about it hold, the first of them and our measurement,
        and the result; or why there is none.
    """
    rows = []
    for item in paper_items(paper).to_dict("records"):
        about = {"": item["item"], "shows": item["shows"]}
        for name, statements in item_statements(item["statements"]).items():
            claims = [s for s in statements if not s.claim.startswith(OURS)]
            first = claims[0] if claims else statements[0]
            rows.append(
                about
                | {
                    "claims that hold": count_holding(claims) if claims else "",
                    "the first claim": first.sentence(),
                    "result": f"`{name}`",
                }
            )
        if not item["statements"]:
            rows.append(about | {"claims that hold": "", "the first claim": item["without"], "result": ""})
    return markdown_table(pd.DataFrame(rows), labels=5)
