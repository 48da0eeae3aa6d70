"""``python -m benchmarks [NAME …]``: run the benchmarks, all by default, on one core.

Every ratio is of two medians measured in the same run. Inputs are synthetic captures made here from a fixed seed
and removed afterwards.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import tempfile
from pathlib import Path

NAMES = (
    "startup",
    "decode",
    "analysis",
    "slots",
    "report",
    "sim",
    "ns3",
    "separation",
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
        "-o", "--output", type=Path, metavar="DIR", help="write tables, of benchmarks that have some"
    )
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"{name!r} is none of {', '.join(NAMES)}")

    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, one core ({core});"
    )
    print(
        "columns: rate by wall time, rate by processor time, median (min–max) of wall time, ratio to the reference"
    )
    with tempfile.TemporaryDirectory(prefix="cct-bench-") as directory:
        for name in options.names or NAMES:
            module = importlib.import_module(f".{name}", __package__)
            print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
            tables = module.run(Path(directory), options.packets, options.repeat) or {}
            for table, frame in tables.items() if options.output else ():
                options.output.mkdir(parents=True, exist_ok=True)
                frame.to_parquet(options.output / f"{table}.parquet", index=False)


if __name__ == "__main__":
    main()
