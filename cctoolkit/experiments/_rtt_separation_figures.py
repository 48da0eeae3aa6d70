"""Figures of the RTT paper's tests, as the paper has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..analysis.metrics import cdf, jain_index
from ..plot.style import COLOURS, GREY, figure, line_of

if TYPE_CHECKING:
    from .rtt_separation import Outcome, Settings

__all__ = ["FIGURES", "scaling_figure"]


def _panels(rows: int, columns: int, titles: Sequence[str], title: str, **options: Any) -> go.Figure:
    fig = make_subplots(
        rows, columns, subplot_titles=titles, horizontal_spacing=0.1, vertical_spacing=0.16, **options
    )
    looks = figure(title, height=140 + 260 * rows).layout
    fig.update_layout(template=looks.template, title=looks.title, height=looks.height)
    for text in fig.layout.annotations:
        text.font.size = 13
    return fig


def _there(o: Outcome, rates: pd.DataFrame) -> pd.DataFrame:
    """Whether a flow of that name was there for the whole second, starved or not."""
    there = pd.DataFrame(False, index=rates.index, columns=rates.columns)
    end_s = rates.index.to_numpy(float)
    for flow in o.case.scenario.flow_list():
        name = flow.name if flow.name in rates else next(n for n in rates if flow.name.startswith(str(n)))
        there[name] |= (end_s - 1 >= flow.start_s - 1e-6) & (end_s <= (flow.stop_s or np.inf) + 1e-6)
    return there


def _throughput(
    settings: Settings, found: Sequence[Outcome], columns: int, title: str, name: Callable[[Outcome], str]
) -> go.Figure:
    """Throughput of each name, stacked by panel, and Jain's index of those that are there."""
    rows = -(-len(found) // columns)
    specs = [[{"secondary_y": True}] * columns for _ in range(rows)]
    fig = _panels(rows, columns, [name(o) for o in found], title, specs=specs)
    for i, o in enumerate(found):
        at = {"row": i // columns + 1, "col": i % columns + 1}
        rates = o.rates_mbps("name")
        order = list(dict.fromkeys(o.flows.name))
        for rank, flow in enumerate(order):
            line = go.Scatter(
                x=rates.index, y=rates[flow].where(rates[flow] > 0), name=flow, legendgroup=flow,
                showlegend=i == 0, line=line_of(rank) | {"width": 1.6},
            )  # fmt: skip
            fig.add_trace(line, **at)
        there = rates.where(_there(o, rates))
        index = [jain_index(r.dropna()) if r.notna().sum() > 1 else np.nan for _, r in there.iterrows()]
        fairness = go.Scatter(
            x=rates.index, y=pd.Series(index).rolling(5, min_periods=1).mean(), name="Jain's index",
            legendgroup="jain", showlegend=i == 0, line={"color": GREY, "dash": "dot", "width": 1.4},
        )  # fmt: skip
        fig.add_trace(fairness, secondary_y=True, **at)
        left = {"title_text": "Mbit/s" if at["col"] == 1 else "", "range": [0, settings.rate_mbps]}
        right = {
            "title_text": "Jain's index" if at["col"] == columns else "",
            "range": [0, 1.05],
            "dtick": 0.2,
        }
        fig.update_yaxes(left, secondary_y=False, **at)
        fig.update_yaxes(right, showgrid=False, secondary_y=True, **at)
        fig.update_xaxes(title_text="time, s" if at["row"] == rows else "", **at)
    return fig


def _first(settings: Settings, found: Sequence[Outcome], table: pd.DataFrame) -> dict[str, go.Figure]:
    shown = [
        o
        for flows in ("CUBIC", "BBR")
        for scheme in ("one queue", "RTT")
        for o in found
        if o.about["seed"] == 1 and o.about["flows"] == flows and o.about["scheme"] == scheme
    ]
    # the same colour for the same RTT in all panels
    for o in shown:
        o.flows["name"] = o.flows.name.str.replace(r" \w+$", "", regex=True)
    title = "Test 1: fairness and utilisation with all four flows there"
    bars = figure(title, height=420, barmode="group", scattermode="group")
    for rank, (name, part) in enumerate(table.groupby("flows", sort=False)):
        bars.add_bar(
            x=part.scheme,
            y=part.jain_index,
            name=str(name),
            marker_color=COLOURS[rank],
            offsetgroup=str(name),
        )
        bars.add_scatter(
            x=part.scheme, y=part.utilisation, name="utilisation", legendgroup="utilisation", showlegend=rank == 0,
            mode="markers", marker={"symbol": "line-ew-open", "size": 26, "color": "black", "line": {"width": 3}},
            offsetgroup=str(name),
        )  # fmt: skip
    bars.update_yaxes(title_text="Jain's index (bars), utilisation (lines)", range=[0, 1.05])
    title = "Test 1: four flows, one queue and separated by RTT"
    return {
        "throughput": _throughput(
            settings, shown, 2, title, lambda o: f"{o.about['flows']}, {o.about['scheme']}"
        ),
        "fairness": bars,
    }


def _second(settings: Settings, found: Sequence[Outcome], table: pd.DataFrame) -> dict[str, go.Figure]:
    title = "Test 2: flows that are held back elsewhere"
    return {"throughput": _throughput(settings, found, 1, title, lambda o: o.about["scheme"])}


def _third(settings: Settings, found: Sequence[Outcome], table: pd.DataFrame) -> dict[str, go.Figure]:
    panels = [(flows, scheme) for flows in ("CUBIC", "BBR") for scheme in ("one queue", "RTT")]
    fig = _panels(2, 2, [", ".join(p) for p in panels], "Test 3: a flow with 10 ms beside one further away")
    for i, (flows, scheme) in enumerate(panels):
        part = table[(table.flows == flows) & (table.scheme == scheme)]
        at = {"row": i // 2 + 1, "col": i % 2 + 1}
        for rank, (name, y) in enumerate(
            (("10 ms", part.share_of_short_rtt), ("the other", 1 - part.share_of_short_rtt))
        ):
            fig.add_bar(
                x=part.rtt_ms.astype(str), y=y, name=name, legendgroup=name, showlegend=i == 0,
                marker_color=COLOURS[rank], **at,
            )  # fmt: skip
        fig.add_scatter(
            x=part.rtt_ms.astype(str), y=part.utilisation, name="utilisation", legendgroup="u", showlegend=i == 0,
            mode="lines+markers", line={"color": GREY, "dash": "dot"}, **at,
        )  # fmt: skip
        fig.update_yaxes(range=[0, 1.05], title_text="share" if i % 2 == 0 else "", **at)
        fig.update_xaxes(type="category", title_text="RTT of the other, ms" if i > 1 else "", **at)
        fig.add_hline(y=0.5, line={"color": GREY, "width": 1}, **at)
    return {"shares": fig.update_layout(barmode="stack")}


def _fourth(settings: Settings, found: Sequence[Outcome], table: pd.DataFrame) -> dict[str, go.Figure]:
    names = list(dict.fromkeys(o.about["flows"] for o in found))
    rows = -(-len(names) // 2)
    fig = _panels(rows, 2, names, "Test 4: completion times of large transfers")
    for o in found:
        if o.about["scheme"] not in ("one queue", "RTT") or o.about.get("shares") == "by RTT":
            continue
        i, queues = names.index(o.about["flows"]), o.about["queues"]
        curve, rank = cdf(o.flows.completion_s), (1, 2, 4, 8).index(queues)
        fig.add_scatter(
            x=curve.value, y=curve.share, name="one queue" if queues == 1 else f"{queues} queues",
            legendgroup=str(queues), showlegend=i == 0, line={"color": COLOURS[rank], "shape": "hv"},
            row=i // 2 + 1, col=i % 2 + 1,
        )  # fmt: skip
    fig.update_xaxes(title_text="completion time, s", row=rows)
    fig.update_yaxes(title_text="share of transfers", col=1)
    return {"completion": fig}


def _fifth(settings: Settings, found: Sequence[Outcome], table: pd.DataFrame) -> dict[str, go.Figure]:
    shown = [o for o in found if o.about["scheme"] in ("one queue", "RTT", "RTT and threshold")]
    title = "Test 5: RTT of a quiet flow (1) and a loud one (2)"
    fig = _panels(1, len(shown), [o.about["scheme"] for o in shown], title)
    for i, o in enumerate(shown):
        for flow in (1, 0):  # the quiet one on top, dotted: in one queue both have the same RTT
            part = o.flow_series[(o.flow_series.flow_id == flow) & (o.flow_series.rtt_ns > 0)]
            fig.add_scatter(
                x=part.ts_ns / 1e9, y=part.rtt_ns / 1e6, name=f"flow {flow + 1}", legendgroup=str(flow),
                showlegend=i == 0, row=1, col=i + 1,
                line={"color": COLOURS[flow], "width": 2, "dash": "solid" if flow else "dot"},
            )  # fmt: skip
    fig.update_yaxes(type="log", title_text="RTT, ms", col=1)
    fig.update_yaxes(type="log", matches="y", tickvals=[10, 20, 30, 50, 100, 200, 300])
    return {"rtt": fig.update_xaxes(title_text="time, s")}


def _sixth(settings: Settings, found: Sequence[Outcome], table: pd.DataFrame) -> dict[str, go.Figure]:
    shown = [o for o in found if o.about["scheme"] in ("one queue", "RTT")]
    title = "Test 6: a UDP flow that sends at the link's rate"
    return {"throughput": _throughput(settings, shown, 2, title, lambda o: o.about["scheme"])}


def _eighth(settings: Settings, found: Sequence[Outcome], table: pd.DataFrame) -> dict[str, go.Figure]:
    change, least, most = (-100 * table[name] for name in ("fct_reduction", "most", "least"))
    fig = figure(
        "Test 4 under other conditions: what separation does to the mean completion time", height=440
    )
    fig.add_bar(
        y=table.condition, x=change, orientation="h", marker_color=COLOURS[0], showlegend=False,
        error_x={"array": most - change, "arrayminus": change - least, "symmetric": False, "color": GREY},
    )  # fmt: skip
    fig.add_vline(
        x=-20, line={"color": GREY, "dash": "dot"}, annotation_text="paper", annotation_position="top"
    )
    fig.update_yaxes(autorange="reversed")
    fig.update_xaxes(
        title_text="change, % (bars: mean of the samples; lines: from the least to the most)",
        range=[min(least.min(), -20) - 3, max(most.max(), 0) + 3],
    )
    return {"conditions": fig}


FIGURES = {1: _first, 2: _second, 3: _third, 4: _fourth, 5: _fifth, 6: _sixth, 8: _eighth}


def scaling_figure(table: pd.DataFrame) -> go.Figure:
    """Control-plane time and accuracy against the number of flows."""
    fig = _panels(1, 2, ["time", "accuracy"], "Many flows: time and accuracy of a decision")
    for rank, (column, name) in enumerate(
        (
            ("jenks_ms", "exact classes"),
            ("algorithm_1_ms", "Algorithm 1"),
            ("decide_ms", "a decision, all new"),
            ("again_ms", "a decision, again"),
        )
    ):
        fig.add_scatter(x=table.flows, y=table[column], name=name, line=line_of(rank), row=1, col=1)
    for rank, (column, name) in enumerate(
        (("measured", "flows with a sample"), ("accuracy_measured", "of these, in their class")), 4
    ):
        dash = {"dash": "solid" if column == "measured" else "dot"}  # mostly both are 1
        fig.add_scatter(x=table.flows, y=table[column], name=name, line=line_of(rank) | dash, row=1, col=2)
    fig.update_xaxes(type="log", title_text="flows", dtick=1)
    fig.update_yaxes(type="log", title_text="CPU time, ms", dtick=1, col=1)
    return fig.update_yaxes(range=[0, 1.05], col=2)
