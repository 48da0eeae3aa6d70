"""The parts of the RTT experiment's summary that are not statements: tables beside the paper's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from .scenarios import SCHEMES, Settings
from .tables import paper

Tables = Mapping[str, pd.DataFrame]


def about() -> str:
    """The schemes."""
    return "Schemes: " + "; ".join(f"**{name}**: {what}" for name, what in SCHEMES.items()) + "."


def beside_paper(name: str, test: int) -> Callable[[Settings, Tables], list[str]]:
    """A page with a table and the paper's words about the test."""

    def page(settings: Settings, tables: Tables) -> list[str]:
        return [markdown_table(tables[name]), "The paper:", markdown_table(paper(test))]

    return page
