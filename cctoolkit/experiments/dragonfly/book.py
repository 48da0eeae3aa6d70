"""Views of the Dragonfly experiment's kept tables for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..statements import bullets_of
from . import conclusions
from .scenarios import CLASSIFIERS
from .tables import last_epochs

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def _score(row: pd.Series) -> str:
    return f"{row.f1:.2f} ({row.low:.2f} to {row.high:.2f})"


def _by(name: str, column: str, heading: str) -> Callable[[Tables], str]:
    """A view of F1 with its interval: one row per value of `column`, one column per classifier."""

    def one(tables: Tables) -> str:
        table = tables[name]
        cells = table.assign(cell=table.apply(_score, axis=1))
        wide = cells.pivot_table(index=column, columns="classifier", values="cell", aggfunc="first")
        wide = wide[[c for c in CLASSIFIERS if c in wide]].reset_index()
        return markdown_table(wide.rename(columns={column: heading}).rename_axis(columns=None), labels=1)

    return one


def inputs(tables: Tables) -> str:
    """Figure 2: F1 of single inputs and of sets."""
    table = tables["inputs"]
    return markdown_table(
        pd.DataFrame({"input": [f"`{i}`" for i in table.input], "F1": table.apply(_score, axis=1)}), labels=1
    )


def epochs(tables: Tables) -> str:
    """Figure 5: accuracy over the last fifth of the epochs."""
    return markdown_table(last_epochs(tables["epochs"]), digits=2, labels=2)


def ccas(tables: Tables) -> str:
    """Figure 10: Dragonfly's F1 by congestion control."""
    table = tables["windows"].query("classifier == 'Dragonfly'")
    named = {f"f1_{cca}": cca for cca in ("bbr", "cubic", "reno")}
    return markdown_table(
        table[["window_ms", *named]].rename(columns={"window_ms": "window, ms", **named}), digits=2, labels=1
    )


VIEWS: dict[str, Callable[[Tables], str]] = {
    "inputs": inputs,
    "epochs": epochs,
    "windows": _by("windows", "window_ms", "window, ms"),
    "ccas": ccas,
    "background": _by("background", "background", "background flows"),
    "sampling": _by("sampling", "dropped_percent", "dropped, %"),
    "splits": _by("splits", "split", "split"),
    **{
        f"{name}-statements": bullets_of(part)
        for name, part in {
            "cbiq": conclusions.cbiq,
            "inputs": conclusions.inputs,
            "epochs": conclusions.epochs,
            "windows": conclusions.windows,
            "background": conclusions.background,
            "sampling": conclusions.sampling,
            "splits": conclusions.splits,
        }.items()
    },
}
