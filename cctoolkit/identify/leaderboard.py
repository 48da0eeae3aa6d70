"""Scores of answers to the benchmark by part, and a leaderboard of models."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support import parquet
from .._support.atomic import replacing_files
from .._support.csv import read_csv, write_csv
from .._support.documents import read_json
from .._support.terminal import note
from ..errors import SchemaError
from .behaviour import right
from .benchmark import PARTS, TRUTH
from .elsewhere import FAMILIES
from .evaluation import evaluate, interval
from .probabilities import UNKNOWN
from .reliability import calibration_error, reliability, reliability_figure
from .windows import Windows

__all__ = [
    "NAMELESS",
    "leaderboard",
    "scores",
    "write",
]

#: Parts in which no name is right.
NAMELESS = ("limited", "others")

_DRAWS = 200
_ORDER = ["window_ms", "taps", "elsewhere"]
_ABOUT = "experiment.json"
_BOARD = "leaderboard.csv"


def scores(answered: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Score answers by part, number of taps and window length.

    Parameters
    ----------
    answered : DataFrame
        From :func:`~.benchmark.answers` or :func:`~.benchmark.read_answers`.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    DataFrame
        ``part``, ``taps``, ``window_ms``, ``windows``, ``runs``; ``score`` with its 95 % interval by bootstrap over
        runs (``low``, ``high``): macro F1 over the congestion controls or, for parts where no name is right, the share
        of windows called unknown; ``unknown`` and ``wrong`` (shares of windows without a name and with a wrong one);
        ``ece``, the expected calibration error of the names' probabilities. ``by_behaviour`` is the score if a name is
        also right where its window would have moved as the sender's did (:func:`~.behaviour.right`), and
        ``wrong_by_behaviour`` the share of windows with a name that is wrong even so.
    """
    rows = []
    for (part, taps, ms), some in answered.groupby(["part", "taps", "window_ms"], sort=False):
        predicted, truth = some["said"].to_numpy(object), some["cca"].to_numpy(object)
        unknown = predicted == UNKNOWN
        nameless = part in NAMELESS
        row = {
            "part": part, "taps": taps, "window_ms": ms, "windows": len(some), "runs": some["run"].nunique(),
        }  # fmt: skip
        moved_so = right(predicted, some)
        if nameless:
            row |= _share(unknown, some["run"].to_numpy(), seed)
            by_behaviour = (unknown | moved_so).mean()
        else:
            row |= _macro_f1(predicted, truth, some, seed)
            by_behaviour = _macro_f1(np.where(moved_so, truth, predicted), truth, some, seed)["score"]
        row |= {"unknown": unknown.mean(), "wrong": (~unknown & ((predicted != truth) | nameless)).mean()}
        row["ece"] = calibration_error(_reliability(some))
        row |= {"by_behaviour": by_behaviour, "wrong_by_behaviour": (~unknown & ~moved_so).mean()}
        rows.append(row)
    return pd.DataFrame(rows)


def _macro_f1(predicted: np.ndarray, truth: np.ndarray, table: pd.DataFrame, seed: int) -> dict[str, float]:
    """Macro F1, and its 95 % interval by bootstrap over runs."""
    nothing = np.zeros((len(table), 0, 1), np.float32)
    windows = Windows(nothing, truth, table.reset_index(drop=True), ("in_bytes",))
    (found,) = evaluate(predicted, windows, draws=_DRAWS, seed=seed).to_dict("records")
    return {"score": found["f1"], "low": found["low"], "high": found["high"]}


def _share(chosen: np.ndarray, runs: np.ndarray, seed: int) -> dict[str, float]:
    """The share of windows, and its 95 % interval by bootstrap over runs."""
    names, run = np.unique(runs, return_inverse=True)
    there, found = np.bincount(run), np.bincount(run, weights=chosen)
    drawn = np.random.default_rng(seed).integers(len(names), size=(_DRAWS, len(names)))
    shares = found[drawn].sum(axis=1) / there[drawn].sum(axis=1)
    low, high = interval(shares if len(names) > 1 else shares[:0], 0.95)
    return {"score": float(chosen.mean()), "low": low, "high": high}


def _reliability(answered: pd.DataFrame) -> pd.DataFrame:
    """Reliability by part; no name is right in the parts :data:`NAMELESS`."""
    right = (answered["said"] == answered["cca"]) & ~answered["part"].isin(NAMELESS)
    return reliability(answered.assign(right=right), "part")


def leaderboard(scored: pd.DataFrame) -> pd.DataFrame:
    """One row per model, taps and window length.

    Parameters
    ----------
    scored : DataFrame
        Rows of :func:`scores` with a column ``model``.

    Returns
    -------
    DataFrame
        ``model``, ``taps``, ``window_ms``, the score of each part, and ``elsewhere``: the mean over the families with
        names. Best first.
    """
    table = scored.pivot_table("score", ["model", "taps", "window_ms"], "part")
    table = table[[part for part in PARTS if part in table]]
    families = [part for part in FAMILIES if part in table and part not in NAMELESS]
    table.insert(0, "elsewhere", table[families].mean(axis=1))
    return _best_first(table.reset_index().rename_axis(columns=None))


def _best_first(board: pd.DataFrame) -> pd.DataFrame:
    return board.sort_values(_ORDER, ascending=False, kind="stable", ignore_index=True)


def write(
    directory: str | os.PathLike[str],
    asked: pd.DataFrame,
    answered: Mapping[str, pd.DataFrame],
    about: Mapping[str, Any],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Write questions, answers, scores, reliability, and the leaderboard, which also has the models of earlier calls.

    Parameters
    ----------
    directory : path
    asked : DataFrame
        From :func:`~.benchmark.questions`.
    answered : mapping of str to DataFrame
        Answers by the name of the model.
    about : mapping
        What identifies this benchmark. A leaderboard of another one is replaced, with a line on standard error.

    Returns
    -------
    DataFrame
        Scores, with the column ``model``.
    DataFrame
        The leaderboard.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    scored = _by_model({name: scores(table) for name, table in answered.items()})
    trusted = _by_model({name: _reliability(table) for name, table in answered.items()})
    board = leaderboard(scored)
    before = _board_of(folder, about)
    if before is not None:
        key = ["model", "taps", "window_ms"]
        kept = ~pd.MultiIndex.from_frame(before[key]).isin(pd.MultiIndex.from_frame(board[key]))
        board = _best_first(pd.concat([board, before[kept]]))
    elif (folder / _BOARD).is_file():
        note(f"{folder / _BOARD} was of another benchmark, or damaged; it is written anew")
    with replacing_files(folder) as tmp:
        write_csv(asked.drop(columns=list(TRUTH), errors="ignore"), tmp / "questions.csv")
        for name, table in (("answers", _by_model(answered)), ("scores", scored), ("reliability", trusted)):
            parquet.write(table, tmp / f"{name}.parquet", dict(about))
        write_csv(board, tmp / _BOARD, float_format="%.4f")
        reliability_figure(trusted, "model").write_html(tmp / "reliability.html", include_plotlyjs=True)
        text = json.dumps({"experiment": "benchmark cca", "options": dict(about)}, indent=1)
        (tmp / _ABOUT).write_text(text + "\n", encoding="utf-8")
    return scored, board


def _by_model(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.assign(model=name) for name, table in tables.items()], ignore_index=True)


def _board_of(folder: Path, about: Mapping[str, Any]) -> pd.DataFrame | None:
    """The existing leaderboard, if it belongs to the same benchmark."""
    try:
        same = read_json(folder / _ABOUT).get("options") == dict(about)
        board = read_csv(folder / _BOARD)
    except (OSError, ValueError, SchemaError):
        return None
    return board if same and {"model", *_ORDER} <= set(board) else None
