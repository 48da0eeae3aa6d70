"""Figures of the Dragonfly experiment, the paper's printed scores as crosses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..plot.style import COLOURS, GREY, figure, small
from .papers import paper_numbers

if TYPE_CHECKING:
    from ..identify import Recording

__all__ = [
    "cbiq_figure",
    "ccas_figure",
    "epochs_figure",
    "inputs_figure",
    "sampling_figure",
    "settings_figure",
    "splits_figure",
    "windows_figure",
]

_ORDER = ("Dragonfly", "Dragonfly, CBIQ only", "DeePCCI", "ours")
_COLOUR = dict(zip(_ORDER, (COLOURS[0], COLOURS[5], COLOURS[1], COLOURS[2]), strict=True))
_CCA_COLOUR = dict(zip(("reno", "cubic", "bbr"), COLOURS, strict=False))
#: Scores in the text of figures 6 (Mininet), 7 (physical network) and 11 (cloud): a symbol each.
_PRINTED = {6: ("x", "Mininet"), 7: ("diamond", "physical network"), 11: ("cross", "cloud")}
_MS = {"100 ms": 100, "6 s": 6000, "1 minute": 60_000}


def _like(fig: go.Figure, title: str, height: int) -> go.Figure:
    looks = figure(title, height=height).layout
    fig.update_layout(template=looks.template, title=looks.title, height=looks.height, margin={"t": 80})
    for text in fig.layout.annotations:
        text.font.size = 13
    return fig


def _interval(table: pd.DataFrame) -> dict[str, Any]:
    """Bars from low to high; of few seeds Student's interval may be longer than F1's range."""
    up = (table["high"].clip(upper=1) - table["f1"]).fillna(0)
    down = (table["f1"] - table["low"].clip(lower=0)).fillna(0)
    return {
        "type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.2, "width": 3,
    }  # fmt: skip


def _curves(fig: go.Figure, table: pd.DataFrame, x: str) -> go.Figure:
    for name in [n for n in _ORDER if n in set(table.classifier)]:
        part = table[table.classifier == name].sort_values(x)
        fig.add_scatter(
            x=part[x], y=part.f1, name=name, mode="lines+markers", line={"color": _COLOUR[name]},
            error_y=_interval(part),
        )  # fmt: skip
    return fig.update_yaxes(title_text="F1 (macro)", range=[0, 1.03])


def cbiq_figure(recording: Recording, seconds: float = 5.0) -> go.Figure:
    """Figure 1: CBIQ and ingress throughput of a flow of each congestion control, over the run's last seconds."""
    from ..identify.windows import slot_arrays

    arrays = {
        f: (first, v) for f, first, v in slot_arrays(recording.slots, ("cbiq_bytes", "throughput_bytes"))
    }
    flows = recording.flows.drop_duplicates("cca")
    flows = flows[flows.flow_id.isin([flow for flow, (_, values) in arrays.items() if len(values)])]
    fig = make_subplots(
        len(flows), 1, shared_xaxes=True, vertical_spacing=0.08, specs=[[{"secondary_y": True}]] * len(flows),
        subplot_titles=[str(cca) for cca in flows.cca],
    )  # fmt: skip
    for row, flow_id in enumerate(flows.flow_id, 1):
        first, values = arrays[flow_id]
        part = values[-round(seconds * 1000 / recording.slot_ms) :]
        begin = first + len(values) - len(part)
        times = [(begin + i) * recording.slot_ms / 1000 for i in range(len(part))]
        for column, (name, colour) in enumerate((("CBIQ", COLOURS[1]), ("ingress throughput", COLOURS[0]))):
            y = part[:, column] / 1000
            fig.add_scattergl(
                x=times, y=y, name=name, legendgroup=name, showlegend=row == 1, mode="lines",
                line={"color": colour, "width": 1.8 - column}, opacity=1 - 0.5 * column,
                row=row, col=1, secondary_y=bool(column),
            )  # fmt: skip
    fig.update_yaxes(title_text="in queue, kB", rangemode="tozero", secondary_y=False)
    fig.update_yaxes(title_text="kB/ms", rangemode="tozero", showgrid=False, secondary_y=True)
    fig.update_xaxes(title_text="s", row=len(flows), col=1)
    return _like(fig, "Bytes in the queue and throughput of a flow (Figure 1)", 180 + 170 * len(flows))


def inputs_figure(table: pd.DataFrame) -> go.Figure:
    """Figure 2: F1 by what the network is told, best on top."""
    part = table.sort_values("f1")
    fig = figure(
        f"Dragonfly's network told of one input alone, {part.window_ms.iloc[0]:g} ms (Figure 2)"
        + small("the paper prints no scores: CBIQ best, then ingress and egress throughput"),
        height=440,
        margin={"t": 75},
        title_pad={"t": 24},
    )
    chosen = [COLOURS[2] if "+" in name else COLOURS[0] for name in part.input]
    fig.add_bar(
        y=part.input,
        x=part.f1,
        orientation="h",
        marker={"color": chosen},
        error_x=_interval(part),
        showlegend=False,
    )
    fig.add_vline(x=1 / 3, line={"color": GREY, "dash": "dot", "width": 1.2})
    fig.update_xaxes(title_text="F1 (macro); dotted: guessing among three", range=[0, 1])
    return fig


def epochs_figure(table: pd.DataFrame) -> go.Figure:
    """Figure 5: accuracy after each epoch, mean over seeds, a panel a background."""
    names = list(dict.fromkeys(table.background))
    fig = make_subplots(
        1,
        len(names),
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=[f"background: {n}" for n in names],
    )
    for column, background in enumerate(names, 1):
        for name in [n for n in _ORDER if n in set(table.classifier)]:
            part = table[(table.background == background) & (table.classifier == name)]
            mean = part.groupby("epoch").accuracy.mean()
            fig.add_scatter(
                x=mean.index, y=mean, name=name, legendgroup=name, showlegend=column == 1, mode="lines",
                line={"color": _COLOUR[name]}, row=1, col=column,
            )  # fmt: skip
        fig.update_xaxes(title_text="epoch", row=1, col=column)
    fig.update_yaxes(range=[0, 1.03])
    fig.update_yaxes(title_text="accuracy, other runs", row=1, col=1)
    return _like(fig, f"Accuracy while training, windows of {table.window_ms.iloc[0]:g} ms (Figure 5)", 420)


def windows_figure(table: pd.DataFrame) -> go.Figure:
    """Figures 6, 7 and 11: F1 against the window's length, with what the paper prints."""
    fig = _curves(
        figure("F1 against the length of the window (Figures 6, 7, 11)", height=480), table, "window_ms"
    )
    for number, (symbol, place) in _PRINTED.items():
        for name in ("Dragonfly", "DeePCCI"):
            x, y = _printed(number, name)
            fig.add_scatter(
                x=x, y=y, name=f"paper, {place}: {name}", mode="markers",
                marker={"symbol": f"{symbol}-open", "size": 11, "color": _COLOUR[name], "line": {"width": 2}},
            )  # fmt: skip
    return fig.update_xaxes(title_text="window, ms", type="log", dtick=1)


def _printed(number: int, name: str) -> tuple[list[float], list[float]]:
    """Lengths and scores that a figure's text has for a classifier."""
    numbers = paper_numbers("dragonfly", f"Figure {number}")
    mine = numbers[numbers.setting.str.endswith(f", {name}")]
    if number == 7:
        return [float(ms) for ms in mine.paper], [0.7] * len(mine)
    return [_MS[s.rsplit(", ", 1)[0]] for s in mine.setting], [float(f1) for f1 in mine.paper]


def ccas_figure(table: pd.DataFrame) -> go.Figure:
    """Figure 10: F1 of each congestion control against the window, a panel a classifier."""
    names = [n for n in _ORDER if n in set(table.classifier)]
    ccas = [c.removeprefix("f1_") for c in map(str, table) if c.startswith("f1_")]
    fig = make_subplots(1, len(names), shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=names)
    for column, name in enumerate(names, 1):
        part = table[table.classifier == name].sort_values("window_ms")
        for rank, cca in enumerate(ccas):
            fig.add_scatter(
                x=part.window_ms, y=part[f"f1_{cca}"], name=cca, legendgroup=cca, showlegend=column == 1,
                mode="lines+markers", line={"color": _CCA_COLOUR.get(cca, COLOURS[rank % len(COLOURS)])},
                row=1, col=column,
            )  # fmt: skip
    fig.update_xaxes(title_text="window, ms", type="log", dtick=1)
    fig.update_yaxes(range=[0, 1.03])
    fig.update_yaxes(title_text="F1", row=1, col=1)
    return _like(fig, "F1 of each congestion control (Figure 10)", 420)


def settings_figure(table: pd.DataFrame, setting: str, window_ms: float) -> go.Figure:
    """Figure 8, where the setting is the number of background flows."""
    figure_8 = " (Figure 8)" if setting == "background" else ""
    fig = _curves(
        figure(f"F1 by {setting}, windows of {window_ms:g} ms{figure_8}", height=440), table, setting
    )
    if setting == "background":
        numbers = paper_numbers("dragonfly", "Figure 8")
        for name in ("Dragonfly", "DeePCCI"):
            mine = numbers[numbers.setting.str.endswith(f", {name}")]
            fig.add_scatter(
                x=[int(s.split()[0]) for s in mine.setting], y=mine.paper.astype(float), name=f"paper: {name}",
                mode="markers",
                marker={"symbol": "x-open", "size": 11, "color": _COLOUR[name], "line": {"width": 2}},
            )  # fmt: skip
    return fig.update_xaxes(title_text="background flows" if setting == "background" else setting)


def sampling_figure(table: pd.DataFrame) -> go.Figure:
    """Figure 9: F1 against packets not looked at."""
    fig = _curves(
        figure("F1 against packets dropped at random (Figure 9)", height=420), table, "dropped_percent"
    )
    return fig.update_xaxes(title_text="not looked at, %", range=[-3, 102])


def splits_figure(table: pd.DataFrame) -> go.Figure:
    """What runs on both sides of a split do to the score."""
    about = small(f"windows of {table.window_ms.iloc[0]:g} ms")
    fig = figure(
        "F1 when training and test share no run, no flow, no window" + about,
        height=400,
        barmode="group",
        margin={"t": 75},
        title_pad={"t": 24},
    )
    for name in [n for n in _ORDER if n in set(table.classifier)]:
        part = table[table.classifier == name]
        fig.add_bar(
            x=part.split, y=part.f1, name=name, marker={"color": _COLOUR[name]}, error_y=_interval(part)
        )
    return fig.update_yaxes(title_text="F1 (macro)", range=[0, 1.03])
