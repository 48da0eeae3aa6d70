"""Views of the ABC experiment's kept tables for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..statements import bullets
from . import conclusions
from .page import delays, goodputs, linux_goodputs
from .scenarios import SHARINGS

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def light(scheme: str, connections: int) -> Callable[[Tables], str]:
    """A view of the goodput of one connection beside several."""

    def one(tables: Tables) -> str:
        clients = tables["clients"]
        wanted = (clients.sharing == "tcp") & (clients.value == connections) & (clients.scheme == scheme)
        part = clients[wanted]
        return f"{part.client_1_mbps.iloc[0]:.1f}"

    return one


def floods(tables: Tables) -> str:
    """What a flood of 100 Mbit/s gets with the two causes outside ABC."""
    gets = tables["why"].set_index("cause").flood_at_100
    causes = ("slow reading", "link behind", "as described")
    return ", ".join(
        f"{gets[cause]:.1f} Mbit/s {cause if cause == 'as described' else f'with {cause}'}"
        for cause in causes
    )


VIEWS: dict[str, Callable[[Tables], str]] = {
    "eight-without": light("without ABC", 8),
    "eight-with": light("ABC", 8),
    "floods": floods,
    **{name: (lambda tables, name=name: goodputs(tables["clients"], name)) for name in SHARINGS},  # type: ignore[misc]
    "delay": lambda tables: markdown_table(delays(tables["delay"]), labels=1),
    "delay-statements": lambda tables: bullets(conclusions.delay(tables)),
    "linux": lambda tables: linux_goodputs(tables["linux"]),
    "linux-statements": lambda tables: bullets(conclusions.linux(tables)),
    "statements": lambda tables: bullets(conclusions.sharing(tables)),
    "why-statements": lambda tables: bullets(conclusions.why(tables)),
}
