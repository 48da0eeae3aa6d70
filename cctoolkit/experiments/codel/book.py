"""Views of the P4-CoDel experiment's kept tables for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from ..._support.markdown import markdown_table
from ..statements import bullets_of
from . import conclusions, page
from .scenarios import KERNEL, KERNEL_TARGETS

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def point(target: str, flows: int, digits: int = 1) -> Callable[[Tables], str]:
    """A view of one point of table I: loss and mean delay."""

    def one(tables: Tables) -> str:
        part = _point(tables["table1"], target, flows)
        return f"{part.loss_percent:.2f} %, {part.mean_delay_ms:.{digits}f} ms"

    return one


def _point(table: pd.DataFrame, target: str, flows: int) -> pd.Series:
    return table[(table.target == target) & (table.flows == flows)].iloc[0]


def printed(flows: int) -> Callable[[Tables], str]:
    """A view of what the paper prints for Linux."""

    def one(tables: Tables) -> str:
        part = _point(tables["table1"], "Linux", flows)
        return f"{part.paper_loss_percent:g} %, {part.paper_delay_ms:g} ms"

    return one


def paper_longer(tables: Tables) -> str:
    """How much longer one flow's delay is in the paper."""
    alone = tables["table1"].query("flows == 1 and target in ('Linux', 'P4-NPU', 'P4-ASIC')")
    longer = alone.paper_delay_ms - alone.mean_delay_ms
    return f"in the paper it is {longer.min():.1f} to {longer.max():.1f} ms longer, on all targets"


def asic_losses(tables: Tables) -> str:
    """The paper's losses of the ASIC over those measured."""
    asic = tables["table1"].query("target == 'P4-ASIC'").sort_values("flows")
    more = ", ".join(f"{ratio:.1f}" for ratio in asic.paper_loss_percent / asic.loss_percent)
    return f"{more} times as much with 1, 2, 3 flows"


def asic_over_linux(tables: Tables) -> str:
    """How much longer the ASIC's delay with three flows is than Linux's."""
    three = tables["table1"].query("flows == 3").set_index("target")
    here, paper = (
        three[name]["P4-ASIC"] - three[name]["Linux"] for name in ("mean_delay_ms", "paper_delay_ms")
    )
    return f"by {here:.1f} ms here and by {paper:.1f} ms in the paper"


def spread(tables: Tables) -> str:
    """How much the delay varies from run to run with two and three flows."""
    several = tables["table1"].query("flows >= 2").mean_delay_ms_std
    return f"standard deviation {several.min():.1f} to {several.max():.1f} ms with two and three flows"


def table_1(tables: Tables) -> str:
    """Table I, by number of flows and target: the paper's numbers, and the simulator's over 4 s and over a minute."""
    columns = ["flows", "target"]
    minute = tables["table1_minute"][[*columns, "loss_percent", "loss_percent_std"]]
    table = tables["table1"].merge(minute, on=columns, suffixes=("", "_minute"))
    return markdown_table(
        pd.DataFrame(
            {
                "flows": table.flows,
                "target": table.target,
                "loss, %: paper": _printed(table.paper_loss_percent),
                "4 s": _with_std(table.loss_percent, table.loss_percent_std, 3),
                "60 s": _with_std(table.loss_percent_minute, table.loss_percent_std_minute, 3),
                "delay, ms: paper": _printed(table.paper_delay_ms),
                "4 s ": _with_std(table.mean_delay_ms, table.mean_delay_ms_std, 1),
            }
        ),
        labels=2,
    )


def kernel_table_1(tables: Tables) -> str:
    """Table I in real Linux, the kernel's CoDel and the ASIC's, beside the paper's and the simulator's."""
    table = tables["table1"]
    names = {
        name: label
        for kernel, name in KERNEL_TARGETS.items()
        if kernel in set(table.target)
        for name, label in ((name, f"{name}, simulated"), (kernel, f"{name}, in the kernel"))
    }
    shown = table[table.target.isin(names)]
    order = shown.target.map(list(names).index)
    shown = shown.iloc[np.lexsort((order, shown.flows))].replace({"target": names})
    return _beside_paper(shown, "target")


def clock(tables: Tables) -> str:
    """Table I's ASIC from Listing 2 to the published program."""
    return _beside_paper(page.clock_steps(tables["clock"]), "step")


def _beside_paper(table: pd.DataFrame, label: str) -> str:
    return markdown_table(
        pd.DataFrame(
            {
                "flows": table.flows,
                label: table[label],
                "loss, %: paper": _printed(table.paper_loss_percent),
                "here": _with_std(table.loss_percent, table.loss_percent_std, 3),
                "delay, ms: paper": _printed(table.paper_delay_ms),
                "here ": _with_std(table.mean_delay_ms, table.mean_delay_ms_std, 1),
            }
        ),
        labels=2,
    )


def _printed(numbers: pd.Series) -> list[str]:
    return ["" if pd.isna(number) else f"{number:g}" for number in numbers]


def _with_std(means: pd.Series, stds: pd.Series, digits: int) -> list[str]:
    return [f"{mean:.{digits}f} ± {std:.{digits}f}" for mean, std in zip(means, stds, strict=True)]


def udp_scan(tables: Tables) -> str:
    """Delays of the UDP scan, every 5 Mbit/s and around the shaped rate."""
    wide = page.by_rate(tables["figure7"])
    shown = wide[(wide.rate_mbps % 5 == 0) | wide.rate_mbps.between(96, 104)]
    delays = shown.drop(columns="rate_mbps").map("{:.2f}".format)
    delays.insert(0, "Mbit/s", shown.rate_mbps.map("{:g}".format))
    return markdown_table(delays, labels=1)


def kernel_udp_scan(tables: Tables) -> str:
    """Delays of the UDP scan under Linux's CoDel, simulated and in the kernel."""
    wide = page.by_rate(tables["figure7"])
    return markdown_table(
        pd.DataFrame(
            {
                "Mbit/s": wide.rate_mbps.map("{:g}".format),
                "Linux, simulated": wide["Linux"].map("{:.2f}".format),
                "Linux, in the kernel": wide[KERNEL].map("{:.2f}".format),
            }
        ),
        labels=1,
    )


VIEWS: dict[str, Callable[[Tables], str]] = {
    "table-1": table_1,
    "kernel-table-1": kernel_table_1,
    "figure-7": udp_scan,
    "kernel-figure-7": kernel_udp_scan,
    "clock": clock,
    "npu": lambda tables: markdown_table(page.npu_guesses(tables["npu"]), labels=1),
    "paper-longer-1": paper_longer,
    "asic-losses": asic_losses,
    "asic-over-linux": asic_over_linux,
    "spread": spread,
    "paper-1": printed(1),
    "paper-3": printed(3),
    "linux-1": point(KERNEL, 1),
    "linux-3": point(KERNEL, 3),
    "simulated-1": point("Linux", 1),
    "simulated-3": point("Linux", 3),
    **{
        f"{name}-statements": bullets_of(part)
        for name, part in {
            "figure-5": conclusions.figure_5,
            "table-1": conclusions.table_1,
            "minute": conclusions.minute,
            "figure-7": conclusions.figure_7,
            "rtts": conclusions.different_rtts,
            "fq-codel": conclusions.flow_queueing,
            "if-3": conclusions.if_3,
            "square-root": conclusions.square_roots,
            "clock": conclusions.clock_wrap,
            "npu": conclusions.npu_losses,
        }.items()
    },
}
