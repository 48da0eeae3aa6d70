"""Figures of the RTT experiment, like the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ...analysis.metrics import cdf, jain_index
from ...plot.style import COLOURS, GREY, INK, figure, line_of
from ..panels import panels
from ..papers import paper_numbers

Tables = Mapping[str, pd.DataFrame]
Figures = dict[str, go.Figure]


def _panels(rows: int, columns: int, titles: Sequence[str], title: str, **options: Any) -> go.Figure:
    spacing = {"horizontal_spacing": 0.1, "vertical_spacing": 0.16}
    return panels(rows, columns, titles, title, 140 + 260 * rows, **spacing | options)


def _by_place(tables: Tables, *names: str) -> list[tuple[str, list[pd.DataFrame]]]:
    """The tables as they are, or those for each place where they were run, with a suffix for the figures' names."""
    found = [tables[name] for name in names]
    if "where" not in found[0]:
        return [("", found)]
    places = dict.fromkeys(found[0]["where"])
    return [
        (f"-{str(where).lower()}", [table[table["where"] == where] for table in found]) for where in places
    ]


def _throughput(goodput: pd.DataFrame, by: Sequence[str], columns: int, title: str) -> go.Figure:
    """Goodput of each name over time, a panel for each combination of `by`, with Jain's index of the flows present."""
    groups = list(goodput.groupby(list(by), sort=False))
    rows = -(-len(groups) // columns)
    specs = [[{"secondary_y": True}] * columns for _ in range(rows)]
    titles = [", ".join(map(str, key)) for key, _ in groups]
    fig = _panels(rows, columns, titles, title, specs=specs)
    for i, (_, part) in enumerate(groups):
        at = {"row": i // columns + 1, "col": i % columns + 1}
        order = list(dict.fromkeys(part.name))
        rates = part.pivot_table(index="end_s", columns="name", values="mbps", aggfunc="first")
        for rank, flow in enumerate(order):
            line = go.Scatter(
                x=rates.index, y=rates[flow].where(rates[flow] > 0), name=flow, legendgroup=flow,
                showlegend=i == 0, line=line_of(rank) | {"width": 1.6},
            )  # fmt: skip
            fig.add_trace(line, **at)
        is_there = part.pivot_table(index="end_s", columns="name", values="is_there", aggfunc="first")
        there = rates.where(is_there)
        index = [jain_index(r.dropna()) if r.notna().sum() > 1 else np.nan for _, r in there.iterrows()]
        fairness = go.Scatter(
            x=rates.index, y=pd.Series(index).rolling(5, min_periods=1).mean(), name="Jain's index",
            legendgroup="jain", showlegend=i == 0, line={"color": GREY, "dash": "dot", "width": 1.4},
        )  # fmt: skip
        fig.add_trace(fairness, secondary_y=True, **at)
        left = {"title_text": "Mbit/s" if at["col"] == 1 else "", "range": [0, part.link_mbps.iloc[0]]}
        right = {
            "title_text": "Jain's index" if at["col"] == columns else "",
            "range": [0, 1.05],
            "dtick": 0.2,
        }
        fig.update_yaxes(left, secondary_y=False, **at)
        fig.update_yaxes(right, showgrid=False, secondary_y=True, **at)
        fig.update_xaxes(title_text="time, s" if at["row"] == rows else "", **at)
    return fig


def test_1(tables: Tables) -> Figures:
    """Goodput over time with one queue and separated, and fairness and utilisation of every scheme."""
    drawn: Figures = {}
    for suffix, (table, goodput) in _by_place(tables, "test1", "test1-goodput"):
        title = "Test 1: four flows, one queue and separated by RTT"
        drawn[f"test1-throughput{suffix}"] = _throughput(goodput, ["flows", "scheme"], 2, title)
        drawn[f"test1-fairness{suffix}"] = _fairness(table)
    return drawn


def _fairness(table: pd.DataFrame) -> go.Figure:
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
            mode="markers", marker={"symbol": "line-ew-open", "size": 26, "color": INK, "line": {"width": 3}},
            offsetgroup=str(name),
        )  # fmt: skip
    return bars.update_yaxes(title_text="Jain's index (bars), utilisation (lines)", range=[0, 1.05])


def test_2(tables: Tables) -> Figures:
    """Goodput over time under each scheme."""
    title = "Test 2: flows that are held back elsewhere"
    return {"test2-throughput": _throughput(tables["test2-goodput"], ["scheme"], 1, title)}


def test_3(tables: Tables) -> Figures:
    """Shares of two flows against the longer RTT."""
    return {f"test3-shares{suffix}": _shares(table) for suffix, (table,) in _by_place(tables, "test3")}


def _shares(table: pd.DataFrame) -> go.Figure:
    panels = [(flows, scheme) for flows in ("CUBIC", "BBR") for scheme in ("one queue", "RTT")]
    fig = _panels(2, 2, [", ".join(p) for p in panels], "Test 3: a flow with 10 ms and one with a longer RTT")
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
    return fig.update_layout(barmode="stack")


def test_4(tables: Tables) -> Figures:
    """Distribution of completion times, a panel for each congestion control."""
    table = tables["test4-completion"]
    names = list(dict.fromkeys(table.flows))
    rows = -(-len(names) // 2)
    fig = _panels(rows, 2, names, "Test 4: completion times of large transfers")
    drawn = table[table.scheme.isin(["one queue", "RTT"]) & (table.shares != "by RTT")]
    for (name, queues), part in drawn.groupby(["flows", "queues"], sort=False):
        i, curve, rank = names.index(name), cdf(part.completion_s), (1, 2, 4, 8).index(queues)
        fig.add_scatter(
            x=curve.value, y=curve.share, name="one queue" if queues == 1 else f"{queues} queues",
            legendgroup=str(queues), showlegend=i == 0, line={"color": COLOURS[rank], "shape": "hv"},
            row=i // 2 + 1, col=i % 2 + 1,
        )  # fmt: skip
    fig.update_xaxes(title_text="completion time, s", row=rows)
    fig.update_yaxes(title_text="share of transfers", col=1)
    return {"test4-completion": fig}


def test_5(tables: Tables) -> Figures:
    """RTTs of both flows over time."""
    table = tables["test5-rtt"]
    schemes = list(dict.fromkeys(table.scheme))
    fig = _panels(1, len(schemes), schemes, "Test 5: RTT of a quiet flow (1) and a loud one (2)")
    for i, scheme in enumerate(schemes):
        for flow in (2, 1):  # the quiet one on top, dotted: in one queue both have the same RTT
            part = table[(table.scheme == scheme) & (table.flow == flow)]
            fig.add_scatter(
                x=part.time_s, y=part.rtt_ms, name=f"flow {flow}", legendgroup=str(flow),
                showlegend=i == 0, row=1, col=i + 1,
                line={"color": COLOURS[flow - 1], "width": 2, "dash": "solid" if flow == 2 else "dot"},
            )  # fmt: skip
    fig.update_yaxes(type="log", title_text="RTT, ms", col=1)
    fig.update_yaxes(type="log", matches="y", tickvals=[10, 20, 30, 50, 100, 200, 300])
    return {"test5-rtt": fig.update_xaxes(title_text="time, s")}


def test_6(tables: Tables) -> Figures:
    """Goodput over time with one queue and separated."""
    title = "Test 6: a UDP flow that sends at the link's rate"
    return {"test6-throughput": _throughput(tables["test6-goodput"], ["scheme"], 2, title)}


def test_8(tables: Tables) -> Figures:
    """Change of the mean completion time under each condition."""
    table = tables["test8"]
    printed = paper_numbers("rtt-flow-separation", "test 4")
    paper = -100 * float(printed.loc[printed.setting == "large TCP flows, several queues", "paper"].iloc[0])
    change, minimum, most = (-100 * table[name] for name in ("fct_reduction", "most", "least"))
    fig = figure(
        "Test 4 under other conditions: what separation does to the mean completion time", height=440
    )
    fig.add_bar(
        y=table.condition, x=change, orientation="h", marker_color=COLOURS[0], showlegend=False,
        error_x={"array": most - change, "arrayminus": change - minimum, "symmetric": False, "color": GREY},
    )  # fmt: skip
    fig.add_vline(
        x=paper, line={"color": GREY, "dash": "dot"}, annotation_text="paper", annotation_position="top"
    )
    fig.update_yaxes(autorange="reversed")
    fig.update_xaxes(
        title_text="change, % (bars: mean of the samples; lines: smallest to largest)",
        range=[min(minimum.min(), paper) - 3, max(most.max(), 0) + 3],
    )
    return {"test8-conditions": fig}


def test_9(tables: Tables) -> Figures:
    """Jain's index of each traffic under each scheme."""
    table = tables["test9"]
    fig = figure("Test 9: when separation pays", height=180 + 36 * table.traffic.nunique(), barmode="group")
    for rank, (scheme, part) in enumerate(table.groupby("scheme", sort=False)):
        fig.add_bar(
            y=part.traffic, x=part.jain_index, name=str(scheme), orientation="h", marker_color=COLOURS[rank],
            error_x={
                "array": part.jain_index * 0, "arrayminus": part.jain_index - part.jain_least,
                "symmetric": False, "color": GREY,
            },
        )  # fmt: skip
    fig.update_yaxes(autorange="reversed", automargin=True)
    fig.update_xaxes(
        title_text="Jain's index of the TCP flows (bars: mean of the seeds; lines: down to the minimum)",
        range=[0, 1.02],
    )
    return {"test9-fairness": fig}


def test_10(tables: Tables) -> Figures:
    """Fairness against goodput of four bundles, here and in the authors' logs."""
    table = tables["test10"].query("bundles == 4")
    fig = _panels(
        1, 2, list(dict.fromkeys(table.flows)), "Test 10: what fairness costs, with four bundles of streams"
    )
    schemes = list(dict.fromkeys(table.scheme))
    for i, (_, part) in enumerate(table.groupby("flows", sort=False)):
        for suffix, prefix, symbol in (("", "", "circle"), (", authors' logs", "logged_", "diamond-open")):
            for rank, scheme in enumerate(schemes):
                points = part[(part.scheme == scheme) & part[f"{prefix}jain_index"].notna()]
                fig.add_scatter(
                    x=points[f"{prefix}share_of_link"], y=points[f"{prefix}jain_index"], mode="markers",
                    name=scheme + suffix, legendgroup=scheme + suffix, showlegend=i == 0 and len(points) > 0,
                    marker={"symbol": symbol, "size": 12, "color": COLOURS[rank]}, row=1, col=i + 1,
                )  # fmt: skip
    fig.update_xaxes(title_text="goodput, of the link's rate", range=[0.6, 1])
    fig.update_yaxes(range=[0, 1.05])
    return {"test10-cost": fig.update_yaxes(title_text="Jain's index of the bundles", col=1)}


def test_11(tables: Tables) -> Figures:
    """The short RTT's share against the buffer, a panel for each congestion control."""
    table = tables["test11"]
    names = list(dict.fromkeys(table.flows))
    fig = _panels(
        1, len(names), names, "Test 11: the share of the short RTT in one queue, by buffer and streams"
    )
    for i, (_, part) in enumerate(table.groupby("flows", sort=False)):
        for rank, (rtts, pair) in enumerate(part.groupby("rtts", sort=False)):
            for streams in dict.fromkeys(pair.streams):
                line = pair[pair.streams == streams]
                many = "one stream" if streams == 1 else f"{streams} streams"
                fig.add_scatter(
                    x=line.buffer_ms, y=line.share_of_short_rtt, name=f"{rtts}, {many}",
                    legendgroup=f"{rtts} {streams}", showlegend=i == 0, row=1, col=i + 1,
                    line=line_of(rank) | {"dash": "solid" if streams == 1 else "dot"},
                )  # fmt: skip
    fig.add_hline(y=0.5, line={"color": GREY, "width": 1})
    fig.update_xaxes(title_text="buffer, ms", type="log", tickvals=sorted(set(table.buffer_ms)))
    fig.update_yaxes(range=[0, 1.05])
    return {"test11-shares": fig.update_yaxes(title_text="share", col=1)}


def scaling(tables: Tables) -> Figures:
    """Control-plane time and accuracy against the number of flows."""
    table = tables["scaling"]
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
    return {"scaling": fig.update_yaxes(range=[0, 1.05], col=2)}
