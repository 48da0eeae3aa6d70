"""Runs first in the kernel of every notebook in the book: figures and widgets for a page without a kernel.

A plotly figure becomes a piece of HTML (plotly.js is included once per page). A widget becomes a static picture: its
controls and what they show.
"""

import re
from html import escape
from typing import Any

import ipywidgets
import plotly.graph_objects as go
import plotly.io as pio
from IPython.core.getipython import get_ipython
from IPython.utils.capture import capture_output
from plotly.io.base_renderers import HtmlRenderer

#: Control sequences of a terminal.
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\r")


def figure_html(figure: go.Figure) -> str:
    return pio.to_html(figure, full_html=False, include_plotlyjs=False, config={"responsive": True})


class BookRenderer(HtmlRenderer):
    def to_mimebundle(self, fig_dict: dict[str, Any]) -> dict[str, str]:
        return {"text/html": figure_html(go.Figure(fig_dict, skip_invalid=True))}


class Captured:
    """Captures output in an Output widget, which is otherwise done by the browser."""

    def enter(self: ipywidgets.Output) -> None:
        self._capture = capture_output()
        self._captured = self._capture.__enter__()

    def exit(self: ipywidgets.Output, *exception: Any) -> None:
        self._capture.__exit__(*exception)
        streams = (CONTROL.sub("", text) for text in (self._captured.stdout, self._captured.stderr))
        texts = [{"text/plain": text} for text in streams if text.strip()]
        shown = [output.data for output in self._captured.outputs]
        self.outputs = tuple(
            {"output_type": "display_data", "data": data, "metadata": {}} for data in texts + shown
        )


def still(widget: ipywidgets.Widget) -> str:
    """Render a widget as static HTML."""
    if hasattr(widget, "loaded"):
        widget.loaded = True  # the explorer shows its figures when the browser has plotly: this page has
    if isinstance(widget, go.FigureWidget):
        return figure_html(go.Figure(widget))
    if isinstance(widget, ipywidgets.Output):
        return "".join(
            data.get("text/html") or f"<pre>{escape(data.get('text/plain', ''))}</pre>"
            for data in (output["data"] for output in widget.outputs)
        )
    if isinstance(widget, ipywidgets.HTML):
        return widget.value
    if isinstance(widget, ipywidgets.Box):
        layout = "row" if isinstance(widget, ipywidgets.HBox) else "column"
        return f'<div class="still-{layout}">{"".join(still(child) for child in widget.children)}</div>'
    name = getattr(widget, "description", "")
    if isinstance(widget, ipywidgets.SelectMultiple):
        options = "".join(
            f"<option{' selected' if i in widget.index else ''}>{escape(label)}</option>"
            for i, label in enumerate(widget._options_labels)
        )
        return f'<label class="still">{name} <select multiple size="8" disabled>{options}</select></label>'
    if isinstance(widget, ipywidgets.SelectionSlider):
        return control(name, widget.label, 0, len(widget.options) - 1, widget.index)
    if hasattr(widget, "options"):
        return control(name, widget.label)
    if hasattr(widget, "max"):
        return control(name, widget.value, widget.min, widget.max, widget.value)
    return control(name, getattr(widget, "value", "")) if name else ""


def control(name: str, value: Any, low: float = 0, high: float = 0, at: float = 0) -> str:
    """A disabled control, with its value."""
    bar = (
        f'<input type="range" min="{low}" max="{high}" step="any" value="{at}" disabled>'
        if high > low
        else ""
    )
    return f'<label class="still">{escape(name)} {bar} <b>{escape(str(value))}</b></label>'


pio.renderers["book"] = BookRenderer()
pio.renderers.default = "book"
ipywidgets.Widget.open = lambda self: None  # nobody listens; saves the state of every widget
ipywidgets.Output.__enter__, ipywidgets.Output.__exit__ = Captured.enter, Captured.exit
ipywidgets.Widget._repr_mimebundle_ = lambda widget, **_: {"text/html": still(widget)}
get_ipython().display_formatter.mimebundle_formatter.for_type(
    go.FigureWidget, ipywidgets.Widget._repr_mimebundle_
)
