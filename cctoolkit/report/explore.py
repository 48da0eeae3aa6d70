"""Pick flows in a table and see their plots: `cap.explore()` in a notebook."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .. import plot
from .._support.words import endpoint
from ..analysis.rtt import rtt_samples
from ..capture.protocols import TCP, protocol_name, protocol_number
from ..errors import ParameterError

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..capture.model import Capture

__all__ = ["Explorer", "explore"]

_ROWS = 500  # options of the table: a browser's list becomes slow with many thousands
_FLOWS = 12  # plotted at once: more cannot be told apart
_ORDERS = {
    "bytes": lambda f: -(f.bytes_fwd + f.bytes_rev),
    "packets": lambda f: -(f.packets_fwd + f.packets_rev),
    "retransmissions": lambda f: -(f.retransmits_fwd + f.retransmits_rev),
    "duration": lambda f: f.first_ts_ns - f.last_ts_ns,
    "start": lambda f: f.first_ts_ns,
    "handshake RTT": lambda f: -f.handshake_rtt_ns.astype("Float64"),
    "flow number": lambda f: f.flow_id,
}
_BINS = {"automatic": None, "1 ms": 1e-3, "10 ms": 1e-2, "100 ms": 0.1, "1 s": 1.0, "10 s": 10.0}
_DIRECTIONS = {"with more data": None, "from the initiator": 0, "to the initiator": 1}

#: The head stands above its columns: one font, and as far from the left as a list's options.
_LOOK_CSS = """
.cct-flows select, .cct-flows pre { font: 12px/1.4 monospace !important; letter-spacing: normal; }
.cct-flows pre { margin: 0; padding: 0; }
"""

#: plotly's bundle for widgets has five megabytes. An anywidget that takes more than two seconds to load ignores all
#: messages from Python for good, and a FigureWidget gets its data in such a message: it stayed empty in a busy
#: browser. So a widget of its own loads the bundle, once, and says when it is there; the figures borrow it.
_LOADER_JS = """
const shared = (globalThis.cctoolkitPlotly ??= Promise.withResolvers());
export default {
  render({ model }) {
    const url = URL.createObjectURL(new Blob([model.get("bundle")], { type: "text/javascript" }));
    import(url).then(module => {
      shared.resolve(module);
      model.set("loaded", true);
      model.save_changes();
    }).finally(() => URL.revokeObjectURL(url));
  },
};
"""
_FIGURE_JS = """
const shared = (globalThis.cctoolkitPlotly ??= Promise.withResolvers());
export default async () => (await shared.promise).default();
"""

#: Tells the figures to fit when they have been drawn (before they have a place, hence 700 pixels wide) and
#: when the place changes. They listen to the window's size only.
_FIT_JS = """
export default {
  render({ el }) {
    const fit = () => requestAnimationFrame(() => window.dispatchEvent(new Event("resize")));
    const observer = new ResizeObserver(fit);
    observer.observe(el);
    document.addEventListener("plotlywidget-after-render", fit);
    return () => {
      observer.disconnect();
      document.removeEventListener("plotlywidget-after-render", fit);
    };
  },
};
"""


def explore(cap: Capture) -> Explorer:
    """Explore a capture in a notebook: a table of flows, and plots of those you pick.

    Needs the extra ``notebooks`` (ipywidgets and anywidget) and a notebook.

    Parameters
    ----------
    cap : Capture

    Returns
    -------
    Explorer
        The notebook shows it if it is the last expression of a cell.

    Raises
    ------
    ParameterError
        The extra is not installed, or the capture has no flows.

    See Also
    --------
    Capture.explore : the same as a method
    cctoolkit.report.page.report : a page about the capture, with a panel for each large flow

    Examples
    --------
    >>> explorer = cct.example("bufferbloat").ingress.explore()
    >>> explorer.table.value = (3, 8)  # select two flows
    >>> explorer.detail.value
    3
    """
    try:
        import anywidget  # noqa: F401  (plotly's FigureWidget needs it)
        import ipywidgets  # noqa: F401
    except ImportError as err:
        raise ParameterError(
            f'explore needs the package {err.name}: pip install "cctoolkit[notebooks]"'
        ) from None
    if not len(cap.flows):
        raise ParameterError("the capture has no flows: there is nothing to explore")
    return Explorer(cap)


@functools.cache
def _widget_classes() -> tuple[Any, Any]:
    """The loader and the figures that depend on it; classes are made here so that the extra may be missing."""
    import anywidget
    import plotly.graph_objects as go
    import traitlets

    class Loader(anywidget.AnyWidget):
        """Loads plotly's bundle in the browser; ``loaded`` then becomes True."""

        _esm = _LOADER_JS
        bundle = traitlets.Unicode(str(go.FigureWidget._esm)).tag(sync=True)
        loaded = traitlets.Bool(False).tag(sync=True)

    class Figure(go.FigureWidget):
        """A FigureWidget whose first message to the browser contains everything."""

        _esm = _FIGURE_JS

        def __init__(self, figure: go.Figure) -> None:
            self._complete = False
            super().__init__(figure)
            self._config = {"responsive": True}
            self._complete = True

        def open(self) -> None:
            """Called by the constructor, too early: there is no data yet."""
            if self._complete:
                super().open()

    return Loader, Figure


def matching(flows: pd.DataFrame, text: str) -> pd.DataFrame:
    """The flows that match every word of `text`.

    A number matches a port or a flow number, ``long`` the long flows, a protocol's name the protocol; anything
    else matches part of an address.
    """
    keep = np.ones(len(flows), np.bool_)
    names = {protocol_name(number).lower() for number in flows.protocol.unique()}
    for word in text.lower().split():
        if word.isdecimal():
            keep &= (
                (flows.sport == int(word)) | (flows.dport == int(word)) | (flows.flow_id == int(word))
            ).to_numpy()
        elif word in names:
            keep &= (flows.protocol == protocol_number(word)).to_numpy()
        elif word == "long":
            keep &= flows.is_long.to_numpy()
        else:
            keep &= (
                flows.src.str.contains(word, regex=False) | flows.dst.str.contains(word, regex=False)
            ).to_numpy()
    return flows[keep]


def rows_of(flows: pd.DataFrame) -> tuple[str, list[tuple[str, int]]]:
    """The table's header, and each flow's line of text and number."""
    head = ("flow", "initiator", "responder", "", "packets", "MB", "s", "retr.", "RTT ms")
    rows: Any = flows.itertuples()
    cells = [
        (
            str(f.flow_id),
            endpoint(f.src, f.sport),
            endpoint(f.dst, f.dport),
            protocol_name(f.protocol),
            f"{f.packets_fwd + f.packets_rev:,}",
            f"{(f.bytes_fwd + f.bytes_rev) / 1e6:.3f}",
            f"{(f.last_ts_ns - f.first_ts_ns) / 1e9:.3f}",
            f"{f.retransmits_fwd + f.retransmits_rev:,}",
            "" if pd.isna(f.handshake_rtt_ns) else f"{f.handshake_rtt_ns / 1e6:.1f}",
        )
        for f in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    left = {1, 2, 3}  # texts; numbers are set to the right

    def line(row: tuple[str, ...]) -> str:
        text = "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return text.replace(" ", "\N{NO-BREAK SPACE}")  # a browser's list squeezes ordinary ones

    return line(head), [(line(row), int(f)) for row, f in zip(cells, flows.flow_id, strict=True)]


class Explorer:
    """The widget that :func:`explore` returns.

    Attributes
    ----------
    search : ipywidgets.Text
    order, bins, detail, direction : ipywidgets.Dropdown
    table : ipywidgets.SelectMultiple
        Its ``value`` holds the numbers of the selected flows; set it to select others.
    figure : plotly FigureWidget
        Everything over time, on one axis: zooming one panel zooms all, and restores the detail that thinning left out.
    cdf : plotly FigureWidget
        Distribution of the RTTs.
    view : ipywidgets.VBox
        All of the above.

    See Also
    --------
    explore : makes it

    Examples
    --------
    >>> explorer = cct.example("bufferbloat").ingress.explore()
    >>> explorer.table.value = (0,)  # select a flow
    >>> explorer.order.value = "start"
    """

    def __init__(self, cap: Capture) -> None:
        import anywidget
        import ipywidgets as w

        loader, self._figure_of = _widget_classes()
        self.cap = cap
        self._busy = False
        self.figure: Any = None
        self.cdf: Any = None
        wide = w.Layout(width="auto")
        self.search = w.Text(
            description="find",
            placeholder="address, port, protocol, flow number, long",
            continuous_update=False,
        )
        self.order = w.Dropdown(description="order by", options=list(_ORDERS))
        self.bins = w.Dropdown(description="bins", options=list(_BINS))
        self.detail = w.Dropdown(description="detail of", layout=w.Layout(width="36em"))
        self.direction = w.Dropdown(description="data", options=list(_DIRECTIONS))
        self.table = w.SelectMultiple(rows=10, layout=wide)
        self._head = w.HTML(layout=w.Layout(margin="0 0 0 6px"))
        self._message = w.HTML()
        self._plots = w.VBox([], layout=wide)
        self._loader = loader()
        for box in (self.table, self._head):
            box.add_class("cct-flows")
        look = w.HTML(f"<style>{_LOOK_CSS}</style>")
        self.view = w.VBox(
            [
                look,
                w.HBox([self.search, self.order]),
                self._head,
                self.table,
                w.HBox([self.bins, self.detail, self.direction]),
                self._message,
                anywidget.AnyWidget(_esm=_FIT_JS),
                self._loader,
                self._plots,
            ]
        )
        self._list()
        largest = self.cap.flows.set_index("flow_id")[["bytes_fwd", "bytes_rev"]].max(axis=1).nlargest(3)
        self.table.value = tuple(
            int(flow) for flow in largest.index[largest >= largest.max() * plot.BIG_SHARE]
        )
        self._pick()
        self.search.observe(lambda _: self._list(), "value")
        self.order.observe(lambda _: self._list(), "value")
        self.table.observe(lambda _: self._pick(), "value")
        for control in (self.bins, self.detail, self.direction):
            control.observe(lambda _: self._draw(), "value")
        self._loader.observe(lambda _: self._show(), "loaded")

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.view._repr_mimebundle_(**kwargs)

    def _list(self) -> None:
        """Fill the table; flows that were picked and still match stay picked."""
        picked = self.table.value
        flows = matching(self.cap.flows, self.search.value)
        found = len(flows)
        key = _ORDERS[self.order.value](flows)
        flows = flows.loc[key.sort_values(kind="stable", na_position="last").index[:_ROWS]]
        head, options = rows_of(flows)
        there = {flow for _, flow in options}
        with self.table.hold_trait_notifications():
            self.table.options = options
            self.table.value = tuple(flow for flow in picked if flow in there)
        shown = "" if found == len(options) else f", the first {len(options)} shown"
        self._head.value = f"<pre>{head}</pre>"
        self._message.value = (
            f"{found:,} of {len(self.cap.flows):,} flows{shown}; pick several with Ctrl or Shift"
        )

    def _pick(self) -> None:
        """Handle a new choice of flows."""
        names = plot.Names(self.cap)
        flows = self.table.value[:_FLOWS]
        before = self.detail.value
        self._busy = True
        self.detail.options = [(names.short(flow), flow) for flow in flows]
        if flows:
            self.detail.value = before if before in flows else flows[0]
            self._samples = rtt_samples(self.cap.select(flow_id=flows))
        self._busy = False
        self._draw()

    def _time_figure(self, between_s: tuple[float, float] | None) -> go.Figure:
        """Everything over time for the picked flows."""
        flows = self.table.value[:_FLOWS]
        figures = [
            plot.throughput(self.cap, _BINS[self.bins.value], flows, between_s=between_s),
            plot.rtt(self._samples, self.cap, flows=flows, between_s=between_s),
        ]
        keys = self.cap.keys
        if keys.protocol[np.searchsorted(keys.flow_id, self.detail.value)] == TCP:
            figures += [
                one_flow(self.cap, self.detail.value, _DIRECTIONS[self.direction.value], between_s=between_s)
                for one_flow in (plot.bytes_in_flight, plot.time_sequence)
            ]
        fig = plot.stack(*figures, heights=[300, 180, 180, 300][: len(figures)])
        return fig.update_xaxes(range=between_s or (0.0, max(self.cap.duration_s, 1e-6)))

    def _draw(self) -> None:
        """Redraw the figures."""
        if self._busy:
            return
        self.figure = self.cdf = None
        if self.table.value:
            self.figure = self._figure_of(self._time_figure(None))
            self.cdf = self._figure_of(plot.rtt_cdf(self._samples, self.cap, flows=self.table.value[:_FLOWS]))
            self.figure.layout.xaxis.on_change(self._zoom, "range")
        self._show()

    def _show(self) -> None:
        """Hand the figures to the browser, once it can draw them."""
        if not self._loader.loaded:
            return
        before = self._plots.children
        figures = tuple(fig for fig in (self.figure, self.cdf) if fig is not None)
        for fig in figures:
            fig.open()
        self._plots.children = figures
        for old in before:
            old.close()

    def _zoom(self, axis: Any, seconds: tuple[float, float]) -> None:
        """Redraw the visible range in full detail."""
        if self._busy:
            return
        self._busy = True
        try:
            fresh = self._time_figure((float(seconds[0]), float(seconds[1])))
            # The same flows have the same traces at any zoom: only their contents change, in one message.
            with self.figure.batch_update():
                for old, new in zip(self.figure.data, fresh.data, strict=True):
                    old.update(
                        x=new.x, y=new.y, customdata=new.customdata, name=new.name, showlegend=new.showlegend
                    )
                self.figure.layout.annotations = fresh.layout.annotations
                for axis in fresh.select_yaxes():
                    self.figure.layout[axis.plotly_name].range = axis.range
        finally:
            self._busy = False
