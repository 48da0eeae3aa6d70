"""Figures of the Dragonfly experiment, with the paper's printed scores."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ...plot.style import COLOURS, GREY, error_bars, figure, small
from ..panels import panels
from ..papers import paper_numbers
from .scenarios import (
    ANSWERING,
    BUNDLED,
    LEARNT_FROM,
    ONE_ANSWER_F1,
    OTHER_DATA,
    PLACES,
    PRINTED_MS,
    WINDOW_FIGURES,
    is_of,
    network_of,
    way_to_answer,
)
from .tables import best_recalls

__all__ = [
    "baseline_figure",
    "cbiq_figure",
    "ccas_figure",
    "epochs_figure",
    "inputs_figure",
    "learning_curve_figure",
    "linux_figure",
    "recall_figure",
    "sampling_figure",
    "settings_figure",
    "splits_figure",
    "windows_figure",
]

_ORDER = ("Dragonfly", "Dragonfly, CBIQ only", "DeePCCI", "ours")
_COLOUR = dict(zip(_ORDER, (COLOURS[0], COLOURS[5], COLOURS[1], COLOURS[2]), strict=True))
_CCA_COLOUR = dict(zip(("reno", "cubic", "bbr"), COLOURS, strict=False))
#: Scores in the text of the figures of each network have a symbol.
_SYMBOLS = dict(zip(WINDOW_FIGURES, ("x", "diamond", "cross"), strict=True))
_TOP = {"t": 80}


def _interval(table: pd.DataFrame) -> dict[str, Any]:
    return error_bars(table["f1"], table["low"], table["high"], thickness=1.2, width=3)


def _curves(fig: go.Figure, table: pd.DataFrame, x: str) -> go.Figure:
    for name in [n for n in _ORDER if n in set(table.classifier)]:
        part = table[table.classifier == name].sort_values(x)
        fig.add_scatter(
            x=part[x], y=part.f1, name=name, mode="lines+markers", line={"color": _COLOUR[name]},
            error_y=_interval(part),
        )  # fmt: skip
    return fig.update_yaxes(title_text="F1 (macro)", range=[0, 1.03])


def cbiq_figure(slots: pd.DataFrame) -> go.Figure:
    """Figure 1: CBIQ and ingress throughput of a flow of each congestion control.

    Parameters
    ----------
    slots : DataFrame
        ``cca``, ``time_s``, ``cbiq_bytes``, ``throughput_bytes`` (:func:`.tables.last_slots`).
    """
    ccas = list(dict.fromkeys(slots.cca))
    fig = panels(
        len(ccas), 1, ccas, "Bytes in the queue and throughput of a flow (Figure 1)", 180 + 170 * len(ccas), _TOP,
        shared_xaxes=True, vertical_spacing=0.08, specs=[[{"secondary_y": True}]] * len(ccas),
    )  # fmt: skip
    for row, cca in enumerate(ccas, 1):
        part = slots[slots.cca == cca]
        for rank, (name, column, colour) in enumerate(
            (
                ("CBIQ", "cbiq_bytes", COLOURS[1]),
                ("ingress throughput", "throughput_bytes", COLOURS[0]),
            )
        ):
            fig.add_scattergl(
                x=part.time_s, y=part[column] / 1000, name=name, legendgroup=name, showlegend=row == 1, mode="lines",
                line={"color": colour, "width": 1.8 - rank}, opacity=1 - 0.5 * rank,
                row=row, col=1, secondary_y=bool(rank),
            )  # fmt: skip
    fig.update_yaxes(title_text="in queue, kB", rangemode="tozero", secondary_y=False)
    fig.update_yaxes(title_text="kB/ms", rangemode="tozero", showgrid=False, secondary_y=True)
    return fig.update_xaxes(title_text="s", row=len(ccas), col=1)


def inputs_figure(table: pd.DataFrame) -> go.Figure:
    """Figure 2: F1 by the network's input, best on top."""
    part = table.sort_values("f1")
    fig = figure(
        f"Dragonfly's network with a single input, {part.window_ms.iloc[0]:g} ms (Figure 2)"
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
    """Figure 5: accuracy after each epoch, mean over seeds, a panel for each background."""
    names = list(dict.fromkeys(table.background))
    title = f"Accuracy while training, windows of {table.window_ms.iloc[0]:g} ms (Figure 5)"
    titles = [f"background: {n}" for n in names]
    fig = panels(1, len(names), titles, title, 420, _TOP, shared_yaxes=True, horizontal_spacing=0.04)
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
    return fig.update_yaxes(title_text="accuracy, other runs", row=1, col=1)


def windows_figure(table: pd.DataFrame) -> go.Figure:
    """Figure 6, 7 or 11, by the network: F1 against the window's length, with the paper's scores."""
    about = network_of(table)
    shown = {network: n for network, n in WINDOW_FIGURES.items() if about in (OTHER_DATA, network)}
    numbers = f"Figure{'s' * (len(shown) > 1)} {', '.join(map(str, shown.values()))}"
    fig = _curves(figure(f"F1 against the length of the window ({numbers})", height=480), table, "window_ms")
    for network, number in shown.items():
        symbol = f"{_SYMBOLS[network]}-open"
        for name in ("Dragonfly", "DeePCCI"):
            x, y = _printed(number, name)
            fig.add_scatter(
                x=x, y=y, name=f"paper, {network}: {name}", mode="markers",
                marker={"symbol": symbol, "size": 11, "color": _COLOUR[name], "line": {"width": 2}},
            )  # fmt: skip
    return fig.update_xaxes(title_text="window, ms", type="log", dtick=1)


def _printed(number: int, name: str) -> tuple[list[float], list[float]]:
    """Lengths and scores that the paper prints for a classifier."""
    numbers = paper_numbers("dragonfly", f"Figure {number}")
    mine = numbers[numbers.setting.str.endswith(f", {name}")]
    if number == 7:
        return [float(ms) for ms in mine.paper], [0.7] * len(mine)
    return [PRINTED_MS[s.rsplit(", ", 1)[0]] for s in mine.setting], [float(f1) for f1 in mine.paper]


def ccas_figure(table: pd.DataFrame) -> go.Figure:
    """F1 of each congestion control against the window, a panel for each classifier: Figure 10 on its network."""
    names = [n for n in _ORDER if n in set(table.classifier)]
    ccas = [c.removeprefix("f1_") for c in map(str, table) if c.startswith("f1_")]
    title = "F1 of each congestion control" + (" (Figure 10)" if is_of(table, "physical") else "")
    fig = panels(1, len(names), names, title, 420, _TOP, shared_yaxes=True, horizontal_spacing=0.03)
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
    return fig.update_yaxes(title_text="F1", row=1, col=1)


def settings_figure(table: pd.DataFrame, setting: str, window_ms: float) -> go.Figure:
    """F1 by a setting: Figure 8 if that is the number of background flows on the physical network."""
    is_figure_8 = setting == "background" and is_of(table, "physical")
    figure_8 = " (Figure 8)" if is_figure_8 else ""
    fig = _curves(
        figure(f"F1 by {setting}, windows of {window_ms:g} ms{figure_8}", height=440), table, setting
    )
    if is_figure_8:
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
    """Figure 9: F1 against the percentage of packets that are not observed."""
    fig = figure("F1 against packets dropped at random (Figure 9)", height=440)
    for name in [n for n in _ORDER if n in set(table.classifier)]:
        for learnt_from, dash in zip(LEARNT_FROM, ("solid", "dash", "dot"), strict=True):
            part = table[(table.classifier == name) & (table.learnt_from == learnt_from)]
            fig.add_scatter(
                x=part.dropped_percent, y=part.f1, name=f"{name}, learnt from {learnt_from}", mode="lines+markers",
                line={"color": _COLOUR[name], "dash": dash}, error_y=_interval(part),
            )  # fmt: skip
    fig.update_yaxes(title_text="F1 (macro)", range=[0, 1.03])
    return fig.update_xaxes(title_text="not observed, %", range=[-3, 102])


def recall_figure(table: pd.DataFrame) -> go.Figure:
    """Recall of each congestion control against the window: after the last epoch, and at its best epoch (Figure 10)."""
    about = small(
        "recall as in the published program; dashed: after the last epoch; solid: each at its best epoch"
    )
    fig = figure(
        "Recall of each congestion control (Figure 10)" + about,
        height=440,
        margin={"t": 75},
        title_pad={"t": 24},
    )
    for cca, part in best_recalls(table).groupby("cca"):
        for column, dash in (("recall", "dash"), ("best", "solid")):
            fig.add_scatter(
                x=part.window_ms, y=part[column], name=str(cca), legendgroup=str(cca), showlegend=column == "best",
                mode="lines+markers", line={"color": _CCA_COLOUR[str(cca)], "dash": dash},
            )  # fmt: skip
    fig.update_xaxes(title_text="window, ms", type="log", dtick=1)
    return fig.update_yaxes(title_text="recall", range=[0, 1.03])


def learning_curve_figure(table: pd.DataFrame) -> go.Figure:
    """F1 against the number of runs that Dragonfly learns from, a curve for each length of window."""
    fig = figure("Dragonfly's F1 against the number of runs learnt from", height=440)
    for (window_ms, part), colour in zip(table.groupby("window_ms"), COLOURS, strict=False):
        fig.add_scatter(
            x=part.learnt_runs, y=part.f1, name=f"{window_ms:g} ms", mode="lines+markers", line={"color": colour},
            error_y=_interval(part),
        )  # fmt: skip
    fig.update_xaxes(title_text="runs, each with a flow of each congestion control", type="log", dtick=1)
    return fig.update_yaxes(title_text="F1 (macro)", range=[0, 1.03])


def baseline_figure(table: pd.DataFrame) -> go.Figure:
    """F1 against the window, by how DeePCCI answers and which answers are scored."""
    fig = figure("F1 of DeePCCI, by how it answers", height=440)
    colours = dict(zip(ANSWERING, (_COLOUR["DeePCCI"], COLOURS[4], COLOURS[3]), strict=True))
    for (answers, scored), part in table.groupby(["answers", "scored"], sort=False):
        by_length = part.sort_values("window_ms")
        fig.add_scatter(
            x=by_length.window_ms, y=by_length.f1, error_y=_interval(by_length), mode="lines+markers",
            name=way_to_answer(str(answers), str(scored)),
            line={"color": colours[str(answers)], "dash": "dot" if scored == "last" else "solid"},
        )  # fmt: skip
    fig.add_hline(y=ONE_ANSWER_F1, line={"color": GREY, "dash": "dot", "width": 1.2})
    fig.update_xaxes(title_text="window, ms", type="log", dtick=1)
    return fig.update_yaxes(title_text="F1 (macro); dotted: one answer for all", range=[0, 1.03])


def linux_figure(table: pd.DataFrame) -> go.Figure:
    """F1 against the window, by where a classifier was trained (dashes) and tested (panels)."""
    titles = [f"tested: {place}" for place in PLACES]
    fig = panels(
        1, len(PLACES), titles, "F1 by where runs were made", 460, _TOP, shared_yaxes=True, horizontal_spacing=0.03
    )  # fmt: skip
    for column, tested in enumerate(PLACES, 1):
        for name in [n for n in _ORDER if n in set(table.classifier)]:
            for trained, dash in zip((*PLACES, BUNDLED), ("dot", "solid", "dash", "dashdot"), strict=True):
                part = table[
                    (table.classifier == name) & (table.tested_on == tested) & (table.trained_on == trained)
                ].sort_values("window_ms")
                if part.empty:
                    continue
                fig.add_scatter(
                    x=part.window_ms, y=part.f1, name=f"{name}, trained: {trained}", legendgroup=name + trained,
                    showlegend=column == 1, mode="lines+markers", line={"color": _COLOUR[name], "dash": dash},
                    row=1, col=column,
                )  # fmt: skip
    fig.update_xaxes(title_text="window, ms", type="log", dtick=1)
    fig.update_yaxes(range=[0, 1.03])
    return fig.update_yaxes(title_text="F1 (macro)", row=1, col=1)


def splits_figure(table: pd.DataFrame) -> go.Figure:
    """F1 by what a split keeps apart."""
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
