"""``python -m benchmarks [NAME …]``: run the benchmarks, all by default, on one core.

Every ratio is of two medians measured in the same run. Inputs are synthetic captures made here from a fixed seed
and removed afterwards. What each measurement gave last time on this machine is in build/benchmarks.csv; the change is
printed beside the new result, which takes its place.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import tempfile
from pathlib import Path

import pandas as pd

from cctoolkit.experiments.provenance import provenance

from . import last
from .measure import BEFORE, ROWS

NAMES = (
    "startup",
    "decode",
    "analysis",
    "slots",
    "growth",
    "report",
    "sim",
    "ns3",
    "separation",
    "batch",
    "traces",
    "identify",
    "live",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--packets", type=int, help="size of the inputs (each benchmark has its own default)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each measurement")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="write the timings, and the tables of benchmarks that have some",
    )
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"{name!r} is none of {', '.join(NAMES)}")

    core = min(os.sched_getaffinity(0))
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, one core ({core});"
    )
    print(
        "columns: rate by wall time, rate by processor time, median (min–max) of wall time, ratio to the reference, "
        "change since the last run (!: the ranges do not overlap)"
    )
    made = provenance("", "")
    about = {name: made[name] for name in ("machine", "date", "commit")}
    tables: dict[str, pd.DataFrame] = {}
    busy = os.getloadavg()[0]  # with other work, before ours
    with tempfile.TemporaryDirectory(prefix="cct-bench-") as directory:
        for name in options.names or NAMES:
            module = importlib.import_module(f".{name}", __package__)
            print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
            before = len(ROWS)
            BEFORE.clear()
            BEFORE.update(last.last(about["machine"], name))
            os.sched_setaffinity(0, {core})
            tables |= module.run(Path(directory), options.packets, options.repeat) or {}
            for row in ROWS[before:]:
                row["benchmark"] = name
            if len(ROWS) > before:
                last.keep(ROWS[before:], about)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        if ROWS:
            columns = ["benchmark", *(column for column in ROWS[0] if column != "benchmark")]
            tables["timings"] = pd.DataFrame(ROWS, columns=columns)
        for table, frame in tables.items():
            frame.to_parquet(options.output / f"{table}.parquet", index=False)
        made_with = {"repeat": options.repeat, "load_before": round(busy, 1)}
        if options.packets:
            made_with["packets"] = options.packets
        (options.output / "experiment.json").write_text(json.dumps({"options": made_with}), encoding="utf-8")


if __name__ == "__main__":
    main()
