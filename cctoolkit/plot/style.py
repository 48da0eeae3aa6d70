"""One look for all figures: colours that everyone can tell apart, readable type, escaped text."""

from __future__ import annotations

import functools
import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

__all__ = [
    "COLOURS",
    "GREY",
    "INK",
    "POINTS",
    "error_bars",
    "escape",
    "figure",
    "line_of",
    "note",
    "remark_on_all",
    "small",
]

#: The palette of Okabe and Ito ("Color universal design", 2008) in an order that keeps neighbours apart. Its yellow
#: cannot be read on white, nor its black in a dark notebook: brown stands for both.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BROWN = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8A6240",
)
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BROWN)
GREY = "#767676"
#: Text, axes and black lines. A figure does not know the notebook's theme, so its background is transparent and its ink
#: readable on JupyterLab's white (contrast 4.7) and on its dark grey #111 (4.0).
INK = "#737373"
CLEAR = "rgba(0,0,0,0)"

#: Points drawn per series: more than four times the columns of a screen.
POINTS = 4000

_DASHES = ("solid", "dash", "dot", "dashdot")


def escape(text: object) -> str:
    """Escape text from a capture so that plotly draws it literally: no markup, no template, no formula."""
    return html.escape(str(text), quote=False).replace("{", "&#123;").replace("$", "&#36;")


#: Margins around the axes, in pixels.
MARGIN = {"l": 70, "r": 20, "t": 60, "b": 80}

#: Legend in rows below the figure, which grows to fit them.
LEGEND: dict[str, Any] = {
    "orientation": "h",
    "traceorder": "normal",
    "x": 0,
    "xanchor": "left",
    "y": 0,
    "yref": "container",
    "yanchor": "bottom",
    "font": {"size": 12},
    "itemsizing": "constant",
}


#: What is written at the top right of every figure.
_remark = ""


def remark_on_all(text: str) -> None:
    """Write `text` at the top right of every figure that is made from now on; nothing if it is empty."""
    global _remark
    _remark = text


@functools.cache
def _template(remark: str) -> go.layout.Template:
    import plotly.graph_objects as go

    axis = {
        "showline": True,
        "linecolor": INK,
        "ticks": "outside",
        "tickcolor": INK,
        "gridcolor": "rgba(128,128,128,0.22)",
        "zeroline": False,
        "automargin": True,
        "title": {"standoff": 8, "font": {"size": 13}},
    }
    return go.layout.Template(
        layout={
            "font": {"family": "Helvetica, Arial, sans-serif", "size": 13, "color": INK},
            "colorway": COLOURS,
            "paper_bgcolor": CLEAR,
            "plot_bgcolor": CLEAR,
            "modebar": {"bgcolor": CLEAR, "color": "rgba(128,128,128,0.6)", "activecolor": INK},
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {
                "bgcolor": "white",
                "font": {"size": 12, "color": "#222"},
                "namelength": -1,
                "align": "left",
            },
            "hovermode": "closest",
            "legend": LEGEND,
            "margin": MARGIN,
            "title": {
                "font": {"size": 15},
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "y": 1,
                "yref": "container",
                "yanchor": "top",
                "pad": {"t": 12},
            },
            # a template's annotations with a name are on every figure that has the template
            "annotations": [
                {
                    "name": "remark",
                    "text": remark,
                    "showarrow": False,
                    "font": {"size": 12, "color": VERMILLION},
                    "xref": "paper",
                    "x": 1,
                    "xanchor": "right",
                    "yref": "paper",
                    "y": 1,
                    "yanchor": "bottom",
                }
            ]
            if remark
            else [],
        }
    )


def figure(title: str = "", height: int = 420, **layout: Any) -> go.Figure:
    """An empty figure in the common look; `layout` holds further plotly layout arguments."""
    import plotly.graph_objects as go

    return go.Figure(layout={"template": _template(_remark), "title_text": title, "height": height} | layout)


def small(text: str) -> str:
    """A second line for a title."""
    return f'<br><span style="font-size:12px">{text}</span>'


def note(fig: go.Figure, text: str, **where: Any) -> go.Figure:
    """Write in the middle of `fig` why it is empty."""
    place: dict[str, Any] = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5} | where
    return fig.add_annotation(text=text, showarrow=False, font={"size": 14, "color": GREY}, **place)


def error_bars(value: pd.Series, low: pd.Series, high: pd.Series, **look: Any) -> dict[str, Any]:
    """Error bars from `low` to `high`; none where they are not known."""
    up, down = ((end - start).clip(lower=0).fillna(0) for start, end in ((value, high), (low, value)))
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, **look}


def line_of(rank: int) -> dict[str, str]:
    """Colour and dash of the flow at place `rank`; they repeat after 28."""
    return {"color": COLOURS[rank % len(COLOURS)], "dash": _DASHES[rank // len(COLOURS) % len(_DASHES)]}
