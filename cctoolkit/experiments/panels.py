"""Figures of several panels in the toolkit's style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..plot.style import figure

__all__ = ["panels", "styled"]


def panels(
    rows: int,
    columns: int,
    titles: Sequence[str],
    title: str,
    height: int,
    margin: dict[str, int] | None = None,
    **options: Any,
) -> go.Figure:
    """An empty figure of panels.

    Parameters
    ----------
    rows, columns : int
    titles : sequence of str
        One for each panel, row by row.
    title : str
        Title of the whole figure.
    height : int
        Height in pixels.
    margin : dict, optional
        Margins other than the style's.
    **options
        Passed to :func:`plotly.subplots.make_subplots`.
    """
    return styled(make_subplots(rows, columns, subplot_titles=titles, **options), title, height, margin)


def styled(fig: go.Figure, title: str, height: int, margin: dict[str, int] | None = None) -> go.Figure:
    """Give a figure of panels the toolkit's style, a title and a height in pixels."""
    looks = figure(title, height=height).layout
    fig.update_layout(template=looks.template, title=looks.title, height=looks.height)
    if margin is not None:
        fig.update_layout(margin=margin)
    for text in fig.layout.annotations:
        text.font.size = 13
    return fig
