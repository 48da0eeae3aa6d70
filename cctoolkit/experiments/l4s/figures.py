"""Figures of the L4S experiment; the first ones resemble the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ...plot.style import BLUE, COLOURS, GREY, INK, VERMILLION, figure
from ..panels import panels
from .scenarios import switch_system

__all__ = [
    "causes_figure",
    "delay_figure",
    "drop_delay_figure",
    "goodput_figure",
    "goodput_figures",
    "logs_figure",
    "queue_delays_figure",
    "registers_figure",
    "table_3_figure",
]

#: The classes, the paper's names for their flows, and colours.
CLASSES = {"classic": ("Cubic", BLUE), "scalable": ("Prague", VERMILLION)}
_SHOWN = ("iRED", "iRED, coupled", "PI2", "DualPI2")
#: The paper's figures 5 and 6: configurations of equal RTT.
_FIGURES = {"figure5": (("I", "III"), "RTT 10 ms"), "figure6": (("II", "IV"), "RTT 50 ms")}


def _panels(rows: int, columns: int, titles: Sequence[str], title: str, **options: Any) -> go.Figure:
    spacing = {"horizontal_spacing": 0.06, "vertical_spacing": 0.14 / max(rows - 1, 1)}
    return panels(rows, columns, titles, title, 150 + 250 * rows, **spacing | options)


def goodput_figure(goodput: pd.DataFrame, phase_s: float, title: str) -> go.Figure:
    """Goodput of each class over time, mean and range of the seeds: one row per configuration, one column per system.

    Parameters
    ----------
    goodput : DataFrame
        ``configuration system seed end_s classic scalable``.
    phase_s : float
        Duration of a phase; lines separate the phases.
    title : str
    """
    rows = list(dict.fromkeys(goodput.configuration))
    columns = list(dict.fromkeys(goodput.system))
    titles = [f"{c}, {s}" for c in rows for s in columns]
    fig = _panels(len(rows), len(columns), titles, title, shared_xaxes=True)
    for i, (configuration, system) in enumerate((c, s) for c in rows for s in columns):
        part = goodput[(goodput.configuration == configuration) & (goodput.system == system)]
        at = {"row": i // len(columns) + 1, "col": i % len(columns) + 1}
        for name, (
            label,
            colour,
        ) in CLASSES.items():  # one thick, one thin: both are seen where they are equal
            over = part.groupby("end_s")[name].agg(["mean", "min", "max"])
            both = [*over.index, *over.index[::-1]]
            fig.add_scatter(
                x=both, y=[*over["max"], *over["min"][::-1]], fill="toself", fillcolor=colour, opacity=0.18,
                line={"width": 0}, hoverinfo="skip", showlegend=False, **at,
            )  # fmt: skip
            fig.add_scatter(
                x=over.index, y=over["mean"], name=label, legendgroup=name, showlegend=i == 0,
                line={"color": colour, "width": 3.2 if name == "classic" else 1.4}, **at,
            )  # fmt: skip
        for phase in range(1, int(part.end_s.max() / phase_s)):
            fig.add_vline(x=phase * phase_s, line={"color": GREY, "width": 1, "dash": "dot"}, **at)
        most = goodput[goodput.configuration == configuration][list(CLASSES)].max().max()
        fig.update_yaxes(range=[0, 1.05 * most], title_text="Mbit/s" if at["col"] == 1 else "", **at)
        fig.update_yaxes(showticklabels=at["col"] == 1, **at)
    fig.update_xaxes(title_text="s", row=len(rows))
    return fig


def goodput_figures(goodput: pd.DataFrame, phase_s: float) -> dict[str, go.Figure]:
    """The paper's figures 5 and 6 with DualPI2, for the systems that were run."""
    drawn = {}
    for name, (configurations, what) in _FIGURES.items():
        part = goodput[goodput.configuration.isin(configurations) & goodput.system.isin(_SHOWN)]
        if len(part):
            drawn[name] = goodput_figure(part, phase_s, f"Goodput of Cubic and Prague, {what}")
    return drawn


def table_3_figure(third: pd.DataFrame) -> go.Figure:
    """Difference between the classes: a group for each configuration, a bar for each system, lines for the paper."""
    fig = figure(
        "Table 3: difference between Prague and Cubic, % (mean of the phases; lines: the paper)",
        height=440,
        barmode="group",
    )
    systems = list(dict.fromkeys(third.system))
    names = list(dict.fromkeys(third.configuration))
    width = 0.8 / len(systems)
    for rank, system in enumerate(systems):
        part = third[third.system == system].groupby("configuration", sort=False)
        mean, deviation = part.by_phase.mean(), part.by_phase.std(ddof=1)
        x = [i - 0.4 + (rank + 0.5) * width for i in range(len(names))]
        fig.add_bar(
            x=x, y=[mean[n] for n in names], width=width * 0.92, name=system, marker_color=COLOURS[rank],
            error_y={"array": [deviation[n] for n in names], "thickness": 1.2, "color": INK},
        )  # fmt: skip
        paper = part.paper.first()
        if paper.notna().any():
            fig.add_scatter(
                x=x, y=[paper[n] for n in names], mode="markers", name=f"{system}, paper",
                marker={"symbol": "line-ew", "size": 26, "line": {"width": 3, "color": INK}}, showlegend=rank == 0,
            )  # fmt: skip
            fig.data[-1].name = "the paper"
    fig.update_xaxes(tickvals=list(range(len(names))), ticktext=[f"configuration {n}" for n in names])
    return fig.update_yaxes(title_text="%", rangemode="tozero")


def logs_figure(logs: pd.DataFrame) -> go.Figure:
    """Prague's share in each phase, ours (range of the seeds) and the authors': one row per packet size, a column a
    configuration. Variants of a system are left out."""
    logs = logs[~logs.system.str.contains(",")]
    sizes, configurations = list(dict.fromkeys(logs.mtu_bytes)), list(dict.fromkeys(logs.configuration))
    systems = list(dict.fromkeys(logs.system))
    fig = _panels(
        len(sizes), len(configurations), [f"{c}, MTU {m}" for m in sizes for c in configurations],
        "Prague's share of the goodput, %: simulator (solid) and the authors' logs (dotted)", shared_yaxes=True,
    )  # fmt: skip
    for i, (mtu_bytes, configuration) in enumerate((m, c) for m in sizes for c in configurations):
        at = {"row": i // len(configurations) + 1, "col": i % len(configurations) + 1}
        here = logs[(logs.configuration == configuration) & (logs.mtu_bytes == mtu_bytes)]
        for rank, system in enumerate(systems):
            over = here[here.system == system].groupby("phase")
            share = 100 * over.scalable_share.agg(["mean", "min", "max"])
            line = {"color": COLOURS[rank]}
            fig.add_scatter(
                x=share.index, y=share["mean"], name=system, legendgroup=system, showlegend=i == 0, line=line,
                mode="lines+markers",
                error_y={"array": share["max"] - share["mean"], "arrayminus": share["mean"] - share["min"]}, **at,
            )  # fmt: skip
            fig.add_scatter(
                x=share.index, y=100 * over.logged_share.first(), name=f"{system}, logs", showlegend=i == 0,
                line=line | {"dash": "dot"}, mode="lines+markers", marker={"symbol": "diamond"}, **at,
            )  # fmt: skip
        fig.add_hline(y=50, line={"color": GREY, "width": 1}, **at)
    fig.update_yaxes(range=[0, 100])
    fig.update_xaxes(dtick=1)
    return fig.update_xaxes(title_text="phase", row=len(sizes))


def registers_figure(registers: pd.DataFrame) -> go.Figure:
    """Drop delays (median, 5 and 95 %) and the switch's: one panel per configuration, one group per system and MTU."""
    shown = registers.dropna(subset=["logged_drop_p50_ms"])
    shown = shown.assign(logged=shown.system.map(switch_system), variant=shown.system.str.partition(", ")[2])
    names = list(dict.fromkeys(shown.configuration))
    groups = list(dict.fromkeys(zip(shown.logged, shown.mtu_bytes, strict=True)))
    fig = _panels(
        1, len(names), [f"configuration {n}" for n in names],
        "Drop delay by system and MTU (bytes): median, 5 and 95 %", shared_yaxes=True,
    )  # fmt: skip
    markers = {
        "the authors' switch": ("logged_", "", -0.22, INK),
        "simulator": ("", "", 0.0, COLOURS[0]),
        "simulator, beta times 16": ("", "beta times 16", 0.22, COLOURS[1]),
    }
    for i, name in enumerate(names):
        for label, (prefix, variant, aside, colour) in markers.items():
            here = shown[(shown.configuration == name) & (shown.variant == variant)]
            mean = here.groupby(["logged", "mtu_bytes"], sort=False).mean(numeric_only=True)
            low, median, high = (mean[f"{prefix}drop_p{p}_ms"] for p in (5, 50, 95))
            fig.add_scatter(
                x=[groups.index(group) + aside for group in mean.index], y=median, mode="markers", name=label,
                legendgroup=label, showlegend=i == 0, marker={"color": colour, "size": 9},
                error_y={"array": high - median, "arrayminus": median - low}, row=1, col=i + 1,
            )  # fmt: skip
    fig.update_xaxes(tickvals=list(range(len(groups))), ticktext=[f"{s}<br>{m}" for s, m in groups])
    fig.update_layout(height=440)
    fig.update_yaxes(title_text="ms", col=1)
    return fig.update_yaxes(rangemode="tozero")


def queue_delays_figure(phases: pd.DataFrame) -> go.Figure:
    """Median queueing delay of the packets that waited in each phase, and the switch's; means over seeds.

    Parameters
    ----------
    phases : DataFrame
        :func:`.tables.register_phases`. One row of panels for each of the switch's systems and packet sizes,
        one column per configuration.
    """
    phases = phases.assign(logged=phases.system.map(switch_system))
    names = list(dict.fromkeys(phases.configuration))
    rows = list(dict.fromkeys(zip(phases.logged, phases.mtu_bytes, strict=True)))
    systems = list(dict.fromkeys(phases.system))
    fig = _panels(
        len(rows), len(names),
        [f"{system}, {mtu_bytes} bytes, configuration {name}" for system, mtu_bytes in rows for name in names],
        "Median queueing delay of packets that waited", shared_yaxes=True,
    )  # fmt: skip
    shown = set()
    for row, (logged, mtu_bytes) in enumerate(rows):
        for col, name in enumerate(names):
            here = phases[
                (phases.configuration == name) & (phases.logged == logged) & (phases.mtu_bytes == mtu_bytes)
            ]
            lines = [
                (system, part.groupby("phase").qdelay_p50_ms.mean(), COLOURS[systems.index(system)], "solid")
                for system, part in here.groupby("system", sort=False)
            ]
            lines.append(
                ("the authors' switch", here.groupby("phase").logged_qdelay_p50_ms.mean(), INK, "dash")
            )
            for label, median, colour, dash in lines:
                fig.add_scatter(
                    x=median.index, y=median, mode="lines+markers", name=label, legendgroup=label,
                    showlegend=label not in shown, line={"color": colour, "dash": dash}, row=row + 1, col=col + 1,
                )  # fmt: skip
                shown.add(label)
    fig.update_yaxes(rangemode="tozero").update_yaxes(title_text="ms", col=1)
    return fig.update_xaxes(dtick=1).update_xaxes(title_text="phase", row=len(rows))


def drop_delay_figure(drops: pd.DataFrame) -> go.Figure:
    """The paper's Figure 7: time from the decision to drop until the drop; whiskers at 5 and 95 %."""
    shown = {
        ("iRED", "recirculation"): "iRED: recirculation (given)",
        ("iRED", "until the drop"): "iRED: until the next classic packet is dropped",
        ("iRED, coupled", "until the drop"): "iRED, coupled: the same",
        ("PI2", "until the drop"): "PI2: time the dropped packet waited",
        ("DualPI2", "until the drop"): "DualPI2: time the dropped packet waited",
        ("iRED", "until the gap leaves"): "iRED: until the gap leaves the queue",
    }
    fig = figure("Figure 7: how long a drop takes", height=460, boxmode="group")
    for rank, ((system, measure), label) in enumerate(shown.items()):
        part = drops[(drops.system == system) & (drops.measure == measure)]
        fig.add_box(
            x=[f"configuration {c}" for c in part.configuration], lowerfence=part.p5_ms, q1=part.q1_ms,
            median=part.median_ms, q3=part.q3_ms, upperfence=part.p95_ms, name=label, marker_color=COLOURS[rank],
        )  # fmt: skip
    return fig.update_yaxes(title_text="ms", type="log", dtick=1)


def delay_figure(phases: pd.DataFrame) -> go.Figure:
    """99th percentile of both classes' delay in each phase, a panel for each configuration."""
    names = list(dict.fromkeys(phases.configuration))
    fig = _panels(
        1,
        len(names),
        [f"configuration {n}" for n in names],
        "99th percentile of the queueing delay, ms",
        shared_yaxes=True,
    )
    for i, name in enumerate(names):
        for rank, system in enumerate(_SHOWN):
            part = phases[(phases.configuration == name) & (phases.system == system)].groupby("phase")
            for kind, (label, _) in CLASSES.items():
                fig.add_scatter(
                    x=part.pairs.first(), y=part[f"{kind}_p99_ms"].mean(),
                    name=f"{system}, {label}", legendgroup=f"{system} {kind}", showlegend=i == 0,
                    line={"color": COLOURS[rank], "dash": "solid" if kind == "scalable" else "dot"},
                    mode="lines+markers", row=1, col=i + 1,
                )  # fmt: skip
        fig.add_hline(y=2, line={"color": GREY, "width": 1, "dash": "dash"}, row=1, col=i + 1)
    fig.update_layout(height=440)
    fig.update_yaxes(type="log", dtick=1)
    return fig.update_xaxes(title_text="flows of each kind", type="category")


def causes_figure(why: pd.DataFrame) -> go.Figure:
    """The scalable class's share in each phase with each change."""
    names = list(dict.fromkeys(why.changed))[::-1]
    changes = why.groupby("configuration", sort=False).changed.nunique()
    configurations = list(changes.index[changes > 1])
    fig = _panels(
        1, len(configurations), [f"configuration {c}" for c in configurations],
        "One thing changed at a time: Prague's share of the goodput, %", shared_yaxes=True,
    )  # fmt: skip
    for i, configuration in enumerate(configurations):
        part = why[why.configuration == configuration].groupby("changed")
        for rank, phase in enumerate((1, 2, 3, 4)):
            share = 100 * part[f"phase_{phase}_share"].mean().reindex(names)
            fig.add_scatter(
                x=share, y=names, mode="markers", name=f"phase {phase}", legendgroup=str(phase),
                showlegend=i == 0, marker={"color": COLOURS[rank], "size": 10, "symbol": rank}, row=1, col=i + 1,
            )  # fmt: skip
        fig.add_vline(x=50, line={"color": GREY, "width": 1}, row=1, col=i + 1)
    fig.update_layout(height=150 + 30 * len(names))
    fig.update_xaxes(range=[0, 100], title_text="%")
    return fig
