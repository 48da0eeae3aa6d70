"""Views of the benchmark of classifiers for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ...identify.elsewhere import FAMILIES
from ...identify.leaderboard import NAMELESS
from ...identify.reliability import calibration_error
from .models import LENGTHS

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def _score(score: float, low: float, high: float) -> str:
    return f"{score:.2f} ({low:.2f}–{high:.2f})"


def scores(tables: Tables) -> str:
    """The score of each part by window length with two taps, and at 10 s with one."""
    table = _ours(tables["scores"])
    rows = []
    for part, some in table.groupby("part", sort=False):
        by = some.set_index(["taps", "window_ms"])[["score", "low", "high"]]
        found = {at: _score(*values) for at, values in zip(by.index, by.to_numpy(), strict=True)}
        row = {"part": f"`{part}`", "runs": int(some["runs"].max())}
        row |= {words: found.get((2, ms), "") for ms, words in LENGTHS.items()}
        rows.append(row | {"10 s, one tap": found.get((1, 10_000), "")})
    return markdown_table(pd.DataFrame(rows), labels=1)


def errors(tables: Tables) -> str:
    """Wrong names, names of flows that should have none, and calibration, with two taps."""
    table = _ours(tables["scores"])
    two = table[table.taps == 2].set_index(["part", "window_ms"])
    named = ", ".join(
        f"{100 * (1 - two.score[('limited', ms)]):.0f} % at {words}"
        for ms, words in LENGTHS.items()
        if ("limited", ms) in two.index
    )
    ten = two.xs(10_000, level="window_ms").drop(index=list(NAMELESS), errors="ignore")
    error = calibration_error(_ours(tables["reliability"]))
    others = two.xs("others", level="part").loc[10_000]
    return (
        f"Of the windows of flows that the bottleneck does not limit, {named} got a name. At 10 s, depending on the "
        f"part, {_range(ten.wrong)} of the windows got a wrong name, and {_range(ten.unknown)} got none; of the "
        f"windows of other congestion controls, {100 * others.unknown:.0f} % got none, and "
        f"{100 * others.by_behaviour:.0f} % none or the name of what they do. Over all parts and lengths, the share of "
        f"correct names differs from their probability by {error:.2f} on average (expected calibration error)."
    )


def offload(tables: Tables) -> str:
    """The runs of home with segmentation offload and without, with two taps."""
    two = _ours(tables["scores"]).query("taps == 2").set_index(["part", "window_ms"])["score"]
    pairs = [
        f"{two[('offload', ms)]:.2f} instead of {two[('home', ms)]:.2f} at {words}"
        for ms, words in LENGTHS.items()
    ]
    return f"In the same runs with segmentation offload, macro F1 is {', '.join(pairs)}."


def hardest(tables: Tables) -> str:
    """The family with the lowest score at 10 s with two taps."""
    table = _ours(tables["scores"])
    ten = table[(table.taps == 2) & (table.window_ms == 10_000) & ~table.part.isin(NAMELESS)]
    worst = ten.sort_values("score").iloc[0]
    return (
        f"The hardest part at 10 s is `{worst.part}`: {100 * worst.unknown:.0f} % of its windows get no name, and "
        f"{100 * worst.wrong:.0f} % a wrong one."
    )


def behaviour(tables: Tables) -> str:
    """With two taps, the score of each part by name and by behaviour."""
    table = _ours(tables["scores"])
    rows = []
    for part, some in table[table.taps == 2].groupby("part", sort=False):
        by = some.set_index("window_ms")
        row = {"part": f"`{part}`"}
        for ms, words in LENGTHS.items():
            if ms in by.index:
                row[words] = f"{by.score[ms]:.2f} → {by.by_behaviour[ms]:.2f}"
        rows.append(row)
    return markdown_table(pd.DataFrame(rows).fillna(""), labels=1)


def baselines(tables: Tables) -> str:
    """Each model's mean score over the families with names and at home, with two taps."""
    table = tables["scores"]
    two = table[(table.taps == 2) & ~table.part.isin(NAMELESS)]
    rows = []
    for model in two.model.unique():
        row = {"model": f"`{model}`"}
        for place, there in (("home", two.part == "home"), ("elsewhere", two.part.isin(FAMILIES))):
            means = two[there & (two.model == model)].groupby("window_ms").score.mean()
            row |= {
                f"{place}, {words}": f"{means[ms]:.2f}" for ms, words in LENGTHS.items() if ms in means.index
            }
        rows.append(row)
    return markdown_table(pd.DataFrame(rows), labels=1)


def _ours(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["model"] == "cca"]


def _range(shares: pd.Series) -> str:
    low, high = (f"{100 * share:.0f}" for share in (shares.min(), shares.max()))
    return f"{low} %" if low == high else f"{low} to {high} %"


VIEWS: dict[str, Callable[[Tables], str]] = {
    "scores": scores, "errors": errors, "offload": offload, "hardest": hardest, "behaviour": behaviour,
    "baselines": baselines,
}  # fmt: skip
