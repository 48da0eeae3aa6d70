"""Views of the resources of a batch, and the estimate for an archive for the book."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..code_hash import ROOT

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def tasks(tables: Tables) -> str:
    """CPU time and memory of each task."""
    rows = []
    for row in tables["tasks"].to_dict("records"):
        piece = f"a piece of up to {row['blocks'] * row['block_flows']:,} flows".replace(",", " ")
        rows.append(
            {
                "": "one task" if row["how"] == "one task" else piece,
                "CPU time": f"{row['cpu_s']:.1f} s",
                "per packet": f"{1e6 * row['cpu_s'] / row['packets']:.2f} µs",
                "peak memory of the process": f"{row['peak_bytes'] / 1e9:.2f} GB",
            }
        )
    return markdown_table(pd.DataFrame(rows), labels=1)


def capture(tables: Tables) -> str:
    """The capture that was measured."""
    one, sizes = tables["tasks"].iloc[0], tables["sizes"].set_index("table")
    return (
        f"{one.packets / 1e6:.0f} million packets, {sizes.rows['flows'] / 1e3:.0f} thousand flows and "
        f"{one.file_bytes / 1e9:.2f} GB"
    )


def pieces(tables: Tables) -> str:
    """The cost and savings of splitting."""
    by = tables["tasks"].groupby("how")
    time, memory = by.cpu_s.mean(), by.peak_bytes.max()
    return (
        f"a piece takes {100 * time['pieces'] / time['one task']:.0f} % of the time of the whole, and the process "
        f"{100 * memory['pieces'] / memory['one task']:.0f} % of its memory"
    )


def sizes(tables: Tables) -> str:
    """Bytes of a row of each table on disk."""
    found = tables["sizes"]
    found = found[~found.table.isin(["captures", "seconds"])]
    return ", ".join(
        f"{table} {octets / rows:.1f}" for table, rows, octets in found[["table", "rows", "bytes"]].to_numpy()
    )


def estimate(tables: Tables) -> str:
    """The calculation on the page, as a table."""
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", page, re.S)
    assert block
    names: dict[str, dict[str, str]] = {}
    exec(compile(block[1], "docs/scale.md", "exec"), names)
    return markdown_table(pd.DataFrame(names["archive"].items(), columns=["", " "]), labels=1)


VIEWS: dict[str, Callable[[Tables], str]] = {
    "tasks": tasks,
    "capture": capture,
    "pieces": pieces,
    "sizes": sizes,
    "estimate": estimate,
}
