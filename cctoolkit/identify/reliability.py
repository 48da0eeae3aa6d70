"""Reliability of probabilities: the share of correct names by their probability."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .probabilities import UNKNOWN

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["calibration_error", "reliability", "reliability_figure"]

_BINS = 10


def reliability(answered: pd.DataFrame, by: str) -> pd.DataFrame:
    """How often names are correct, by their probability.

    Parameters
    ----------
    answered : DataFrame
        One row per window: ``said``, ``right`` (whether that is correct), ``probability`` (of the most probable name;
        null without one).
    by : str
        A column of it.

    Returns
    -------
    DataFrame
        `by`, ``bin`` (0 to 9: tenths of the probability), ``windows``, ``probability`` (mean) and ``right`` (share) of
        the windows with a name.
    """
    some = answered[(answered["said"] != UNKNOWN) & answered["probability"].notna()]
    some = some.assign(bin=np.minimum((some["probability"] * _BINS).astype(int), _BINS - 1))
    groups = some.groupby([by, "bin"], sort=False)
    table = groups.agg(
        windows=("right", "size"), probability=("probability", "mean"), right=("right", "mean")
    )
    return table.reset_index()


def calibration_error(bins: pd.DataFrame) -> float:
    """Expected calibration error (Naeini et al., AAAI 2015): mean distance of share and probability.

    Parameters
    ----------
    bins : DataFrame
        Rows of :func:`reliability`; those of one bin count together.
    """
    if not len(bins):
        return np.nan
    whole = _together(bins)
    return float(np.average((whole["right"] - whole["probability"]).abs(), weights=whole["windows"]))


def _together(bins: pd.DataFrame) -> pd.DataFrame:
    """Rows of reliability, one for each bin."""
    weighted = bins.assign(**{name: bins[name] * bins["windows"] for name in ("probability", "right")})
    sums = weighted.groupby("bin")[["windows", "probability", "right"]].sum()
    return sums.assign(**{name: sums[name] / sums["windows"] for name in ("probability", "right")})


def reliability_figure(bins: pd.DataFrame, by: str, title: str = "Reliability of names") -> go.Figure:
    """Share of correct names over their probability: on the diagonal, both are equal.

    Parameters
    ----------
    bins : DataFrame
        Rows of :func:`reliability`.
    by : str
        A column of it: one line for each of its values.
    title : str
    """
    from ..plot.style import COLOURS, GREY, escape, figure

    fig = figure(title, xaxis_title="probability", yaxis_title="share of correct names")
    fig.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "dash": "dot"}, name="calibrated")
    for (name, some), colour in zip(bins.groupby(by, sort=False), itertools.cycle(COLOURS), strict=False):
        whole = _together(some)
        fig.add_scatter(
            x=whole["probability"], y=whole["right"], customdata=whole["windows"],
            mode="lines+markers", line={"color": colour}, name=escape(name),
            hovertemplate="probability %{x:.2f}, right %{y:.2f}, %{customdata:,} windows",
        )  # fmt: skip
    fig.update_xaxes(range=[0, 1])
    fig.update_yaxes(range=[0, 1.02])
    return fig
