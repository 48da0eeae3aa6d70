"""``python -m benchmarks [NAME …]``: run the benchmarks, all by default, on one core.

Every ratio is of two medians measured in the same run. Inputs are synthetic captures made here from a fixed seed
and removed afterwards.
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

from .measure import ROWS

NAMES = (
    "startup",
    "decode",
    "analysis",
    "slots",
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
        "columns: rate by wall time, rate by processor time, median (min–max) of wall time, ratio to the reference"
    )
    tables: dict[str, pd.DataFrame] = {}
    busy = os.getloadavg()[0]  # with other work, before ours
    with tempfile.TemporaryDirectory(prefix="cct-bench-") as directory:
        for name in options.names or NAMES:
            module = importlib.import_module(f".{name}", __package__)
            print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
            before = len(ROWS)
            os.sched_setaffinity(0, {core})
            tables |= module.run(Path(directory), options.packets, options.repeat) or {}
            for row in ROWS[before:]:
                row["benchmark"] = name
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
