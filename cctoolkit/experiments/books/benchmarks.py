"""Views of the benchmarks' timings for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..kept import made

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def _number(value: float) -> str:
    for scale, suffix in ((1e6, " M"), (1e3, " k")):
        if value >= scale:
            return f"{value / scale:.3g}{suffix}"
    return f"{value:.3g}"


def _whole(count: float) -> str:
    return f"{count:,.0f}".replace(",", " ")


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{1e3 * value:.3g} ms"


def _ratio(value: float) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.3g} ×" if value >= 0.1 else f"1/{1 / value:.0f}"


def timings(benchmark: str) -> Callable[[Tables], str]:
    """A view of all timings of a benchmark."""

    def one(tables: Tables) -> str:
        found = tables["timings"]
        return _table(found[found.benchmark == benchmark])

    return one


def _table(found: pd.DataFrame) -> str:
    rows = []
    for row in found.to_dict("records"):
        unit = row["unit"] if isinstance(row["unit"], str) else ""
        spread = f" ({_seconds(row['least_s'])} to {_seconds(row['most_s'])})" if row["runs"] > 1 else ""
        rows.append(
            {
                "what": row["what"] + (f", {_whole(row['count'])} {unit}" if unit else ""),
                "per CPU second": f"{_number(row['count'] / row['cpu_s'])} {unit}" if unit else "",
                "CPU time": _seconds(row["cpu_s"]),
                "time, median (range)": _seconds(row["wall_s"]) + spread,
                "relative to the reference": _ratio(row["cpu_ratio"]),
                "memory": "" if pd.isna(row["memory_mb"]) else f"{row['memory_mb'] / 1e3:.2f} GB",
            }
        )
    table = pd.DataFrame(rows)
    empty = [name for name in table if (table[name] == "").all()]
    return markdown_table(table.drop(columns=empty), labels=1)


def _cpu_ms(tables: Tables, what: str, benchmark: str = "separation") -> list[float]:
    found = tables["timings"]
    return [1e3 * s for s in found[(found.benchmark == benchmark) & (found.what == what)].cpu_s]


def separation(tables: Tables) -> str:
    """CPU times of the control plane, in a sentence."""
    four, eight = (_cpu_ms(tables, f"exact classes, k = {k}")[0] for k in (4, 8))
    (decision,) = _cpu_ms(tables, "a decision, all RTTs measured anew")
    (interval,) = _cpu_ms(tables, "an interval: meter, decision, changed rules")
    (rules,) = _cpu_ms(tables, "all rules, as text")
    return (
        f"In CPU time, exact classes of 10 000 flows take {four:.0f} ms (k = 4; {eight:.0f} ms with k = 8), a "
        f"decision {decision:.0f} ms, a whole interval (meter, decision, changed rules) {interval:.0f} ms, and "
        f"writing all rules the first time {rules:.0f} ms"
    )


def conditions(tables: Tables) -> str:
    """Number of measurements, and the load from other work."""
    load = made("benchmarks").get("options", {}).get("load_before", 0)
    return (
        f"Medians of at most {tables['timings'].runs.max()} runs; ratios are of rates per CPU second. The load from "
        f"other work was {load:g} when they began."
    )


NAMES = ("startup", "decode", "analysis", "slots", "report", "sim", "separation", "identify")
VIEWS: dict[str, Callable[[Tables], str]] = {
    **{name: timings(name) for name in NAMES},
    "separation-in-words": separation,
    "conditions": conditions,
}
