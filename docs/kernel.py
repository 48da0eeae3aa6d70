"""Runs in the kernel of every notebook that the book shows: makes figures and widgets that work in a page without a kernel.

A plotly figure becomes a piece of HTML (plotly.js comes with the page, once). Of widgets a picture stays: the
controls as they stand, and what they show. A function under ``interact`` is called once more, with the first values.
"""

from html import escape

import ipywidgets
import plotly.graph_objects as go
import plotly.io as pio
from plotly.io._base_renderers import HtmlRenderer


def figure_html(figure: go.Figure) -> str:
    """The figure, as wide as the page."""
    return pio.to_html(
        figure, full_html=False, include_plotlyjs=False, include_mathjax=False, config={"responsive": True}
    )


class BookRenderer(HtmlRenderer):
    def to_mimebundle(self, fig_dict):
        return {"text/html": figure_html(go.Figure(fig_dict, skip_invalid=True))}


pio.renderers["book"] = BookRenderer()
pio.renderers.default = "book"


def still(widget: ipywidgets.Widget) -> str:
    """What a widget looks like, as HTML."""
    if isinstance(widget, go.FigureWidget):
        return figure_html(go.Figure(widget))
    if isinstance(widget, ipywidgets.Output):
        parts = []
        for output in widget.outputs:
            data = output.get("data", {})
            parts.append(data.get("text/html") or f"<pre>{escape(data.get('text/plain', output.get('text', '')))}</pre>")
        return "".join(parts)
    if isinstance(widget, ipywidgets.HTML):
        return widget.value
    if isinstance(widget, ipywidgets.Box):
        inside = "".join(still(child) for child in widget.children)
        return f'<div class="still-{"row" if isinstance(widget, ipywidgets.HBox) else "column"}">{inside}</div>'
    name = escape(getattr(widget, "description", ""))
    if hasattr(widget, "options"):
        labels = [escape(str(label)) for label in widget._options_labels]
        chosen = {widget.index} if isinstance(widget.index, int) else set(widget.index or ())
        if isinstance(widget, ipywidgets.SelectMultiple):
            lines = "".join(
                f"<option{' selected' if i in chosen else ''}>{label}</option>" for i, label in enumerate(labels)
            )
            return f'<label class="still">{name} <select multiple size="{min(len(labels), 8)}" disabled>{lines}</select></label>'
        value, low, high, at = ", ".join(labels[i] for i in sorted(chosen)), 0, len(labels) - 1, min(chosen, default=0)
        slider = isinstance(widget, ipywidgets.SelectionSlider)
    else:
        value = getattr(widget, "value", "")
        low, high, at = getattr(widget, "min", 0), getattr(widget, "max", 0), value
        slider = hasattr(widget, "min")
        value = "" if value is None else escape(str(value))
    bar = f'<input type="range" min="{low}" max="{high}" step="any" value="{at}" disabled>' if slider else ""
    return f'<label class="still">{name} {bar} <b>{value}</b></label>' if name or bar else ""


def show(widget: ipywidgets.Widget, **_: object) -> dict[str, str]:
    """In place of the widget's own representation, which needs a kernel."""
    if isinstance(widget, ipywidgets.interactive):
        controls = [child for child in widget.children if not isinstance(child, ipywidgets.Output)]
        shown = widget.f(**{control._kwarg: control.value for control in widget.kwargs_widgets})
        result = figure_html(shown) if isinstance(shown, go.Figure) else ""
        return {"text/html": "".join(still(control) for control in controls) + result}
    return {"text/html": still(widget)}


get_ipython().display_formatter.mimebundle_formatter.for_type(ipywidgets.Widget, show)  # noqa: F821
