"""What the benchmarks gave last time on this machine, and the change since.

`make bench` keeps the newest result of each measurement in ``build/benchmarks.csv``, which git ignores: times of other
machines and of other days' load are no reference. The columns are those of the table ``timings`` (times in s, memory in
MB), then ``machine``, ``date`` and ``commit``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from cctoolkit._support.atomic import replacing

__all__ = ["PATH", "change", "keep", "last"]

PATH = Path(__file__).parents[1] / "build" / "benchmarks.csv"
#: One measurement: a result replaces that of the last run with the same values.
_KEY = ["machine", "benchmark", "what", "count"]


def last(machine: str, benchmark: str, path: Path = PATH) -> dict[tuple[str, int], dict[str, Any]]:
    """The last results of a benchmark on this machine, by name and count; empty if there are none."""
    if not path.is_file():
        return {}
    kept = pd.read_csv(path)
    mine = kept[(kept.machine == machine) & (kept.benchmark == benchmark)]
    return {(row["what"], row["count"]): row for row in mine.to_dict("records")}


def keep(rows: list[dict[str, Any]], about: dict[str, Any], path: Path = PATH) -> None:
    """Put results in the place of older ones of the same measurements.

    Parameters
    ----------
    rows : list of dict
        Rows of the table ``timings``.
    about : dict
        ``machine``, ``date`` and ``commit``.
    path : Path
        The file, which may not exist yet.
    """
    kept = pd.DataFrame([row | about for row in rows])
    if path.is_file():
        kept = pd.concat([pd.read_csv(path), kept], ignore_index=True).drop_duplicates(_KEY, keep="last")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as tmp:
        kept.to_csv(tmp, index=False)


def change(now: dict[str, Any], before: dict[str, Any] | None) -> str:
    """The change of processor time and memory, for the end of a line; empty without an earlier result.

    An exclamation mark says that the ranges of wall time do not overlap, so it is hardly chance.
    """
    if before is None:
        return ""
    text = f"  CPU time {now['cpu_s'] / max(before['cpu_s'], 1e-9) - 1:+.0%}"
    several = min(now["runs"], before["runs"]) > 1
    if several and (now["least_s"] > before["most_s"] or now["most_s"] < before["least_s"]):
        text += " !"
    memory = [row.get("memory_mb", math.nan) for row in (now, before)]
    if not any(map(math.isnan, memory)):
        text += f", memory {memory[0] / memory[1] - 1:+.0%}"
    commit = f" ({before['commit']})" if isinstance(before["commit"], str) else ""  # none outside a checkout
    return f"{text} since {before['date']}{commit}"
