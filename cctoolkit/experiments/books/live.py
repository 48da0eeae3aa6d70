"""Views of the live collector's measurements for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..papers import paper_numbers
from ..statements import Statement

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]

_SAMPLING = {"all": "all", "first": "first of each slot", "0.1": "a random tenth"}


def _thousands(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def rates(tables: Tables) -> str:
    """Table II: packets per second, share captured, cost."""
    rows = []
    for row in tables["rates"].to_dict("records"):
        label = _SAMPLING[str(row["sampling"])]
        if label == "all":
            kind = "segmentation offload (up to 64 kB)" if row["offload"] else "packets of 1500 bytes"
            label = f"{kind}, all"
        rows.append(
            {
                "": label,
                "packets/s without": _thousands(row["without_packets_per_s"]),
                "with": _thousands(row["with_packets_per_s"]),
                "captured, of monitored flows": f"{row['captured_percent']:.3g} % of "
                f"{_thousands(row['monitored_packets'])}",
                "cells": _thousands(row["cells"]),
                "kernel time per packet": f"{row['kernel_ns_per_packet']:.0f} ns "
                f"({row['kernel_core_percent']:.1f} % of a core)",
                "user space": f"{row['user_core_percent']:.1f} % of a core",
                "slots built": f"{row['build_speed']:.0f} × real time",
            }
        )
    printed = paper_numbers("dragonfly", "Table II").set_index(["setting", "quantity"]).paper
    packets = printed["20 Gbit/s", "packets_millions"]
    for setting, label, of in (
        ("20 Gbit/s, no first-packet sampling", "the paper, 20 Gbit/s, all", f" of {packets} M"),
        ("20 Gbit/s, first-packet sampling", "the paper, first of each slot", ""),
    ):
        rows.append(
            {
                "": label,
                "captured, of monitored flows": f"{printed[setting, 'captured_share_percent']} %{of}",
                "slots built": f"{printed[setting, 'build_speed_over_capture']} × real time",
            }
        )
    return markdown_table(pd.DataFrame(rows), labels=1)


def cost(tables: Tables) -> str:
    """What the collector costs in throughput."""
    by = tables["costs"].set_index("offload")

    def text(offload: bool) -> tuple[str, str]:
        one = by.loc[offload]
        medians = f"{one.median_least:.0f} to {one.median_most:.0f} %"
        return medians, f"{one.least:.0f} to {one.most:.0f} %".replace("-", "−")

    (plain, singles), (with_offload, offload_singles) = text(False), text(True)
    used = tables["rates"].kernel_core_percent + tables["rates"].user_core_percent
    return (
        f"With all CPUs busy, the collector reduces throughput by a median of {plain} with packets of "
        f"1500 bytes (single comparisons {singles}), and of {with_offload} with offload ({offload_singles}). "
        f"The programs and user space together take {used.min():.0f} to {used.max():.0f} % of one core."
    )


def lost(tables: Tables) -> str:
    """Whether anything was lost."""
    minimum = tables["rates"].captured_percent.min()
    if minimum >= 100:
        return "Nothing was lost at any rate."
    return f"At least {minimum:.3g} % of the monitored flows' packets were captured."


def names(tables: Tables) -> str:
    """Number of flows named correctly after 2, 4 and 10 s."""
    rows, before = [], ""
    labels = {"reno": "Reno", "cubic": "CUBIC", "bbr": "BBR"}
    for row in tables["names"].to_dict("records"):
        where = "" if row["flows"] == before else f"{'each ' * (row['flows'] == 'alone')}{row['flows']}: "
        before = row["flows"]
        counts = {
            f"{age} s": f"{row[f'right_{age}s']} of {row['runs']}"
            for age in (2, 4, 10)
            if f"right_{age}s" in row
        }
        rows.append({"": f"{where}{labels[row['cca']]}"} | counts)
    return markdown_table(pd.DataFrame(rows), labels=1)


def names_missing(tables: Tables) -> str:
    """Number of flows not named correctly at 10 s."""
    table = tables["names"]
    wrong, of = int((table.runs - table.right_10s).sum()), int(table.runs.sum())
    return f"{of - wrong} of {of} flows are named correctly at 10 s"


def benchmark_row(tables: Tables) -> str:
    """The measurement in a few words, all packets of 1500 bytes."""
    one = tables["rates"].query("not offload and sampling == 'all'").iloc[0]
    return (
        f"{one.with_packets_per_s / 1000:.0f} k packets/s with it ({one.without_packets_per_s / 1000:.0f} k "
        f"without), {one.captured_percent:.3g} % captured; {one.kernel_ns_per_packet:.0f} ns per packet in all "
        f"programs; slots built {one.build_speed:.0f} times faster than real time"
    )


def table_2(tables: Tables) -> list[Statement]:
    """Table II: what the collector captures, and how fast slots are built."""
    printed = paper_numbers("dragonfly", "Table II").set_index(["setting", "quantity"]).paper
    table = tables["rates"].astype({"sampling": str})
    measured = table.query("sampling == 'first'")
    captured, speed = measured.captured_percent.min(), measured.build_speed.min()
    every = table.query("sampling == 'all' and not offload").iloc[0]
    lost = float(printed["20 Gbit/s, no first-packet sampling", "captured_share_percent"])
    paper_s = float(printed["length of an experiment", "duration_s"])
    paper_rate = float(printed["20 Gbit/s", "packets_millions"]) / paper_s
    claims = (
        ("captured_share_percent", "% of the packets are captured", captured, "%"),
        ("build_speed_over_capture", "times real time is the speed of building slots", speed, "times"),
    )
    return [
        Statement(
            "Table II",
            f"with the first packet of each slot only, at least {printed['20 Gbit/s, first-packet sampling', quantity]}"
            f" {claim}",
            f"{found:g} {unit}",
            found >= float(printed["20 Gbit/s, first-packet sampling", quantity]),
        )
        for quantity, claim, found, unit in claims
    ] + [
        Statement(
            "Table II",
            f"without it, packets are lost ({lost:g} % captured of {paper_rate:.1f} million a second)",
            f"{every.captured_percent:g} % of {every.with_packets_per_s / 1e6:.1f} million a second",
            every.captured_percent < 100,
        )
    ]


#: Statements by part, for lists of the paper's tables.
STATEMENTS = {"rates": table_2}

VIEWS: dict[str, Callable[[Tables], str]] = {
    "rates": rates,
    "cost": cost,
    "lost": lost,
    "names": names,
    "names-missing": names_missing,
    "benchmark-row": benchmark_row,
}
