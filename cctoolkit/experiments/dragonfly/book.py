"""Views of the Dragonfly experiment's kept tables for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..papers import paper_numbers
from ..statements import bullets_of
from . import conclusions
from .page import (
    baseline_scores,
    learnt_scores,
    places,
    recalls,
    sampling_scores,
    scores,
    session_answers,
    session_learnt,
)
from .scenarios import CLASSIFIERS, NETWORKS, PRINTED_MS, PUBLISHED, WINDOW_FIGURES, network_of
from .tables import last_epochs

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def _by(
    name: str,
    column: str,
    heading: str,
    printed: Callable[[str, str], Mapping[float, str]] = lambda classifier, network: {},
) -> Callable[[Tables], str]:
    """A view of F1 with its interval: one row per value of `column`, one column per classifier.

    `printed` gives the paper's numbers for a classifier on a network, by value; values that only the paper has are
    rows, too.
    """

    def one(tables: Tables) -> str:
        table = tables[name]
        cells = table.assign(cell=scores(table))
        wide = cells.pivot_table(index=column, columns="classifier", values="cell", aggfunc="first")
        wide = wide[[c for c in CLASSIFIERS if c in wide]]
        for classifier in PUBLISHED:
            if len(paper := pd.Series(printed(classifier, network_of(table)), dtype=object)):
                wide = wide.reindex(wide.index.union(paper.index))
                beside = list(wide).index(classifier) + 1 if classifier in wide else wide.shape[1]
                wide.insert(beside, f"{classifier}, paper", paper)
        wide = wide.fillna("").rename_axis(heading).rename_axis(columns=None).reset_index()
        return markdown_table(wide, labels=1)

    return one


def _printed(figure: int, quantity: str) -> Mapping[str, str]:
    """What the paper prints in a figure, by setting."""
    numbers = paper_numbers("dragonfly", f"Figure {figure}")
    return dict(
        numbers[numbers.quantity == quantity][["setting", "paper"]].itertuples(index=False, name=None)
    )


def _printed_windows(classifier: str, network: str) -> dict[float, str]:
    """F1 by window, by length in ms, in figure 6, 7 or 11: that of the network."""
    if network == NETWORKS["physical"]:
        lengths = _printed(7, "interval_ms").items()
        return {float(ms): "0.7" for setting, ms in lengths if setting == f"F1 of 0.7, {classifier}"}
    printed = _printed(WINDOW_FIGURES[network], "f1")
    settings = ((setting.partition(", "), f1) for setting, f1 in printed.items())
    return {PRINTED_MS[length]: f1 for (length, _, name), f1 in settings if name == classifier}


def _printed_background(classifier: str, network: str) -> dict[float, str]:
    """F1 in figure 8, by number of background flows; it is of the physical network."""
    if network != NETWORKS["physical"]:
        return {}
    settings = ((setting.partition(" background flows, "), f1) for setting, f1 in _printed(8, "f1").items())
    return {float(flows): f1 for (flows, _, name), f1 in settings if name == classifier}


def inputs(tables: Tables) -> str:
    """Figure 2: F1 of single inputs and of sets."""
    table = tables["inputs"]
    return markdown_table(
        pd.DataFrame({"input": [f"`{i}`" for i in table.input], "F1": scores(table)}), labels=1
    )


def epochs(tables: Tables) -> str:
    """Figure 5: accuracy over the last fifth of the epochs."""
    printed = _printed(5, "accuracy")
    table = last_epochs(tables["epochs"])
    names = {"Dragonfly, CBIQ only": "Dragonfly with CBIQ only"}
    settings = [
        f"{'no' if row['background'] == 'none' else row['background']} background, "
        f"{names.get(row['classifier'], row['classifier'])}"
        for row in table.to_dict("records")
    ]
    table["paper"] = [printed.get(setting, "") for setting in settings]
    return markdown_table(table, digits=2, labels=2)


def ccas(tables: Tables) -> str:
    """Figure 10: Dragonfly's F1 by congestion control."""
    table = tables["windows"].query("classifier == 'Dragonfly'")
    named = {f"f1_{cca}": cca for cca in ("bbr", "cubic", "reno")}
    return markdown_table(
        table[["window_ms", *named]].rename(columns={"window_ms": "window, ms", **named}), digits=2, labels=1
    )


def published(tables: Tables) -> str:
    """F1 with the paper's inputs and with those of the published code."""
    table = tables["published"]
    return markdown_table(pd.DataFrame({"inputs": table.inputs, "F1": scores(table)}), labels=1)


VIEWS: dict[str, Callable[[Tables], str]] = {
    "inputs": inputs,
    "epochs": epochs,
    "windows": _by("windows", "window_ms", "window, ms", _printed_windows),
    "ccas": ccas,
    "cloud": _by("cloud", "window_ms", "window, ms", _printed_windows),
    "background": _by("background", "background", "background flows", _printed_background),
    "sampling": lambda tables: markdown_table(sampling_scores(tables["sampling"]), labels=1),
    "recall": lambda tables: markdown_table(recalls(tables["recall"]), digits=2, labels=1),
    "learning-curve": lambda tables: markdown_table(learnt_scores(tables["learning-curve"]), labels=1),
    "splits": _by("splits", "split", "split"),
    "published": published,
    "baseline": lambda tables: markdown_table(baseline_scores(tables["baseline"]), labels=1),
    "linux": lambda tables: markdown_table(places(tables["linux"]), labels=3),
    "session": lambda tables: markdown_table(tables["session"], digits=3, labels=1),
    "session-answers": lambda tables: markdown_table(session_answers(tables["session-answers"]), labels=5),
    "session-learnt": lambda tables: markdown_table(session_learnt(tables["session-learnt"]), labels=1),
    **{
        f"{name}-statements": bullets_of(part)
        for name, part in {
            "cbiq": conclusions.cbiq,
            "inputs": conclusions.inputs,
            "epochs": conclusions.epochs,
            "windows": conclusions.windows,
            "background": conclusions.background,
            "cloud": conclusions.cloud,
            "sampling": conclusions.sampling,
            "splits": conclusions.splits,
            "published": conclusions.published,
            "recall": conclusions.recall,
            "learning-curve": conclusions.learning_curve,
            "baseline": conclusions.baseline,
            "linux": conclusions.linux,
            "session": conclusions.session,
        }.items()
    },
}
