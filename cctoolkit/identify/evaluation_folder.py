"""An evaluation as a folder: scores, confusion, reliability, scores by setting, and every window; with figures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support import parquet
from .._support.atomic import replacing_set
from .._support.csv import write_csv
from .evaluation import confusion, evaluate
from .flow_settings import banded, setting_columns
from .reliability import calibration_error, reliability, reliability_figure
from .windows import Windows

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from .bundle import Model

__all__ = ["FILES", "by_setting", "confusion_figure", "reliability_of", "settings_figure", "write_evaluation"]

FILES = (
    "scores.csv", "confusion.csv", "confusion.html", "reliability.csv", "reliability.html", "settings.csv",
    "settings.html", "windows.parquet", "evaluation.json",
)  # fmt: skip
#: Columns of windows, beside those of the flows.
_OF_WINDOWS = {"window_ms", "first_slot", "said", "probability"}


def by_setting(windows_by_ms: Mapping[float, Windows]) -> pd.DataFrame:
    """F1 by each setting that varies: numbers with many values by quartile, all others by value.

    Parameters
    ----------
    windows_by_ms : mapping of float to Windows
        By length in ms, windows of known classes whose table has ``said``.

    Returns
    -------
    DataFrame
        ``setting``, ``value`` (text), ``window_ms``, and the columns of :func:`~.evaluation.evaluate`. No rows if no
        setting varies.
    """
    every = pd.concat({ms: windows.table for ms, windows in windows_by_ms.items()})
    tables = []
    for column in setting_columns(every):
        bands = banded(every[column])  # the same for all lengths
        if column in _OF_WINDOWS or bands.nunique() < 2:
            continue
        for ms, windows in windows_by_ms.items():
            band = bands.loc[ms].cat.codes.to_numpy()
            if not (band >= 0).any():
                continue
            known = windows.take(band >= 0)
            known.table["band"] = band[band >= 0]
            found = evaluate(known.table["said"].to_numpy(object), known, by="band")
            names = bands.cat.categories[found.pop("band")]
            tables.append(found.assign(setting=column, value=names, window_ms=ms))
    first = ["setting", "value", "window_ms", "windows", "runs", "f1", "low", "high"]
    if not tables:
        return pd.DataFrame(columns=first)
    table = pd.concat(tables, ignore_index=True)
    return table[first + sorted(str(c) for c in table if c not in first)]


def _known(model: Model, windows_by_ms: Mapping[float, Windows]) -> dict[float, Windows]:
    """Windows of classes that the model knows."""
    known = {ms: windows.take(np.isin(windows.y, model.classes_)) for ms, windows in windows_by_ms.items()}
    return {ms: windows for ms, windows in known.items() if len(windows)}


def reliability_of(windows_by_ms: Mapping[float, Windows]) -> pd.DataFrame:
    """As :func:`~.reliability.reliability`, by ``window_ms``: for a class that the model lacks, every name is wrong."""
    bins = reliability(pd.concat([_answered(windows) for windows in windows_by_ms.values()]), "window_ms")
    return bins.sort_values(["window_ms", "bin"], ignore_index=True)


def write_evaluation(
    directory: str | os.PathLike[str],
    model: Model,
    scores: pd.DataFrame,
    windows_by_ms: Mapping[float, Windows],
    provenance: Mapping[str, Any],
) -> None:
    """Write :data:`FILES` in one step (:func:`.atomic.replacing_set`); other files in the folder stay.

    Parameters
    ----------
    directory : path
    model : Model
    scores : DataFrame
    windows_by_ms : mapping of float to Windows
        Both from :func:`~.scoring.score`.
    provenance : mapping
        What was evaluated, and how.

    Raises
    ------
    ParameterError
        `directory` is a URL.
    """
    folder = Path(directory)
    answered = pd.concat([_answered(windows) for windows in windows_by_ms.values()], ignore_index=True)
    bins = reliability_of(windows_by_ms)
    counts = {ms: confusion(w.y, w.table["said"].to_numpy(object)) for ms, w in windows_by_ms.items()}
    confused = pd.concat([table.reset_index().assign(window_ms=ms) for ms, table in counts.items()])
    confused = confused[["window_ms", *(name for name in confused if name != "window_ms")]]
    confused = confused.fillna(dict.fromkeys(set(confused) - {"window_ms", "is"}, 0))
    settings = by_setting(_known(model, windows_by_ms))
    errors = {ms: calibration_error(bins[bins["window_ms"] == ms]) for ms in dict.fromkeys(bins["window_ms"])}
    with replacing_set(folder) as tmp:
        write_csv(scores, tmp / "scores.csv")
        write_csv(
            confused.astype({c: int for c in confused if c not in ("window_ms", "is")}), tmp / "confusion.csv"
        )
        write_csv(bins, tmp / "reliability.csv")
        write_csv(settings, tmp / "settings.csv")
        parquet.write(answered, tmp / "windows.parquet", provenance)
        for name, fig in (
            ("confusion", confusion_figure(counts)),
            ("reliability", _reliability_figure(bins, errors)),
            ("settings", settings_figure(settings)),
        ):
            fig.write_html(tmp / f"{name}.html", include_plotlyjs=True, div_id=name)
        about = {
            **provenance,
            "ece": calibration_error(bins) if len(bins) else None,
            "ece_by_window_ms": {f"{ms:g}": e for ms, e in errors.items()},
        }
        (tmp / "evaluation.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _answered(windows: Windows) -> pd.DataFrame:
    """One row per window, with its class and whether the answer is right."""
    return windows.table.assign(
        cca=windows.y.astype(str), right=windows.table["said"].to_numpy() == windows.y
    )


def _reliability_figure(bins: pd.DataFrame, errors: Mapping[float, float]) -> go.Figure:
    named = bins.assign(window=[f"{ms:g} ms (ECE {errors[ms]:.2f})" for ms in bins["window_ms"]])
    return reliability_figure(named, "window")


def confusion_figure(counts: Mapping[float, pd.DataFrame]) -> go.Figure:
    """One panel for each window length: rows are true classes, colours the shares of their windows by answer.

    Parameters
    ----------
    counts : mapping of float to DataFrame
        Number of windows, from :func:`~.evaluation.confusion`, by window length in ms.
    """
    from ..plot.style import BLUE, escape, figure

    heights = [26 * len(table) + 110 for table in counts.values()]
    fig = figure("Confusion", height=sum(heights) + 60).set_subplots(
        len(counts), 1, row_heights=heights, vertical_spacing=min(90 / sum(heights), 0.9 / len(counts)),
        subplot_titles=[f"{ms:g} ms" for ms in counts],
    )  # fmt: skip
    for row, table in enumerate(counts.values(), 1):
        shares = table.div(table.sum(axis=1), axis=0)
        words = [[f"{share:.0%}" if share >= 0.005 else "" for share in line] for line in shares.to_numpy()]
        fig.add_heatmap(
            z=shares.to_numpy(), x=[escape(name) for name in table.columns], y=[escape(name) for name in table.index],
            customdata=table.to_numpy(), text=words, texttemplate="%{text}", zmin=0, zmax=1, showscale=False,
            colorscale=[[0, "rgba(0,0,0,0)"], [1, BLUE]], xgap=1, ygap=1,
            hovertemplate="%{y} called %{x}: %{customdata:,} windows (%{z:.1%})<extra></extra>",
            row=row, col=1,
        )  # fmt: skip
        fig.update_yaxes(autorange="reversed", title="true class", row=row, col=1)
    fig.update_xaxes(title="answer", row=len(counts), col=1)
    return fig


def settings_figure(table: pd.DataFrame) -> go.Figure:
    """Macro F1 with its interval, one panel for each setting, one colour for each window length.

    Parameters
    ----------
    table : DataFrame
        From :func:`by_setting`.
    """
    from ..plot.style import COLOURS, error_bars, escape, figure, note, small

    title = "By setting" + small("macro F1; lines are 95 % intervals over runs")
    settings = list(dict.fromkeys(table["setting"]))
    if not settings:
        return note(figure(title), "no setting varies")
    rows = -(-len(settings) // 2)
    fig = figure(title, height=240 * rows + 140, scattermode="group").set_subplots(
        rows, 2, subplot_titles=[escape(name) for name in settings], vertical_spacing=0.4 / rows,
    )  # fmt: skip
    for place, ms in enumerate(dict.fromkeys(table["window_ms"])):
        for panel, name in enumerate(settings):
            some = table[(table["setting"] == name) & (table["window_ms"] == ms)]
            fig.add_scatter(
                x=[escape(value) for value in some["value"]], y=some["f1"],
                error_y=error_bars(some["f1"], some["low"], some["high"]),
                customdata=some[["windows", "runs"]].to_numpy(), mode="markers",
                hovertemplate="%{x}: %{y:.2f}, %{customdata[0]:,} windows of %{customdata[1]:,} runs",
                marker={"color": COLOURS[place % len(COLOURS)], "size": 8},
                name=f"{ms:g} ms", legendgroup=f"{ms:g}", showlegend=panel == 0,
                row=panel // 2 + 1, col=panel % 2 + 1,
            )  # fmt: skip
    fig.update_xaxes(type="category")
    fig.update_yaxes(range=[0, 1.03])
    return fig
