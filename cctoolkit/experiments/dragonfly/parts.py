"""The parts of the Dragonfly experiment."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from ..part import Part
from . import cases, conclusions, figures, page, tables
from .scenarios import LINUX, SESSION
from .tables import Work

__all__ = ["PARTS"]


def _windows(found: Mapping[str, pd.DataFrame]) -> dict[str, go.Figure]:
    table = found["windows"]
    drawn = {"windows": figures.windows_figure(table), "ccas": figures.ccas_figure(table)}
    for setting, at in found.items():
        if setting == "cloud":
            drawn[setting] = figures.windows_figure(at)
        elif setting != "windows":
            drawn[setting] = figures.settings_figure(at, setting, at.window_ms.iloc[0])
    return drawn


PARTS: dict[str, Part[Work]] = {
    "cbiq": Part(
        tables=tables.cbiq,
        figures=lambda t: {"volatility": figures.cbiq_figure(t["cbiq"])},
        statements=conclusions.cbiq,
        page=page.cbiq,
    ),
    "inputs": Part(
        scenarios=cases.inputs,
        tables=tables.inputs,
        figures=lambda t: {"inputs": figures.inputs_figure(t["inputs"])},
        statements=conclusions.inputs,
        page=page.inputs,
    ),
    "epochs": Part(
        scenarios=cases.epochs,
        tables=tables.epochs,
        figures=lambda t: {"epochs": figures.epochs_figure(t["epochs"])},
        statements=conclusions.epochs,
        page=page.epochs,
    ),
    "windows": Part(
        scenarios=cases.windows,
        tables=tables.windows,
        figures=_windows,
        statements=conclusions.windows_and_background,
        page=page.windows,
    ),
    "sampling": Part(
        scenarios=cases.sampling,
        tables=tables.sampling,
        figures=lambda t: {"sampling": figures.sampling_figure(t["sampling"])},
        statements=conclusions.sampling,
        page=page.sampling,
    ),
    "splits": Part(
        scenarios=cases.splits,
        tables=tables.splits,
        figures=lambda t: {"splits": figures.splits_figure(t["splits"])},
        statements=conclusions.splits_and_published,
        page=page.splits,
    ),
    "recall": Part(
        scenarios=cases.recall,
        tables=tables.recall,
        figures=lambda t: {"recall": figures.recall_figure(t["recall"])},
        statements=conclusions.recall,
        page=page.recall,
    ),
    "learning-curve": Part(
        scenarios=cases.learning_curve,
        tables=tables.learning_curve,
        figures=lambda t: {"learning-curve": figures.learning_curve_figure(t["learning-curve"])},
        statements=conclusions.learning_curve,
        page=page.learning_curve,
    ),
    "baseline": Part(
        scenarios=cases.baseline,
        tables=tables.baseline,
        figures=lambda t: {"baseline": figures.baseline_figure(t["baseline"])},
        statements=conclusions.baseline,
        page=page.baseline,
    ),
    LINUX: Part(
        scenarios=cases.linux,
        tables=tables.linux,
        figures=lambda t: {"linux": figures.linux_figure(t["linux"])},
        statements=conclusions.linux,
        page=page.linux,
    ),
    SESSION: Part(tables=tables.session, statements=conclusions.session, page=page.session),
}
