"""``python -m tests.fuzz TARGET …``: try damaged input on kernels, readers and functions of tables. ::

    make fuzz                                    # every target for a moment
    make fuzz TARGET=headers/en10mb CASES=1000000
    make fuzz TARGET=readers CASES=20000         # all readers; needs atheris (pip install ".[fuzz]")
    make fuzz TARGET=tables CASES=100000

Groups of targets are ``compiled``, ``readers``, ``tables`` and ``all``. Inputs that were a fault are written to
``build/fuzz/``, and the exit status is 1; what a guided run finds new there is for ``tests/corpus/``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from . import compiled, guided, readers, tables, watched

CORPUS = Path(__file__).parents[1] / "corpus"
#: Cases of a run that is recorded, by group or target: together ten million of what is compiled.
RECORDED = {"compiled": 600_000, "readers": 100_000, "tables": 100_000, "pcap": 5_000, "pcapng": 5_000,
            "compressed": 20_000, "model": 20_000, "network": 5_000}  # fmt: skip
#: The target that stands for all functions of tables.
_TABLES = "tables"


def targets() -> dict[str, str]:
    """Every target and its group."""
    found = dict.fromkeys(compiled.TARGETS, "compiled") | dict.fromkeys(readers.TARGETS, "readers")
    return found | {_TABLES: _TABLES}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", default=["all"], metavar="TARGET", help=", ".join(targets()))
    parser.add_argument("--cases", type=int, help="cases of each target (default: a thousand)", default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recorded", action="store_true", help="as many cases as the book reports")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write the table of what ran")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="faults, logs, new inputs")
    given = parser.parse_args()
    groups = targets()
    for name in given.targets:
        if name not in groups and name not in (*groups.values(), "all"):
            parser.error(f"{name!r} is none of all, compiled, readers, {', '.join(groups)}")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = []
    for name, group in groups.items():
        if not {name, group, "all"} & set(given.targets):
            continue
        cases = RECORDED.get(name, RECORDED[group]) if given.recorded else given.cases
        for row in _run(name, group, cases, given.seed, given.folder):
            rows.append(row)
            costs = f"{row['cases']:>10,} cases {row['wall_s']:8.1f} s {row['peak_mb']:6.0f} MB"
            print(f"{name:28} {costs}  {row['faults']} faults", flush=True)
            if given.output:  # after each target: a long run that is stopped has what it did
                given.output.mkdir(parents=True, exist_ok=True)
                pd.DataFrame(rows).to_parquet(given.output / "targets.parquet", index=False)
    return 1 if any(row["faults"] for row in rows) else 0


def _run(name: str, group: str, cases: int, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    log = place / "log"
    if group == _TABLES:
        done, wall_s, peak, faults = _tables(cases, seed, place)
    else:
        if group == "compiled":
            outcome = watched.run(lambda slot: _compiled(name, cases, seed, slot, place), log)
        else:
            corpus = CORPUS / name
            outcome = watched.run(lambda slot: guided.fuzz(name, cases, seed, slot, corpus, place), log)
        done, wall_s, peak, faults = outcome.cases, outcome.wall_s, outcome.most_bytes, 0
        if outcome.fault:
            faults = 1
            path = place / f"fault-{hashlib.sha256(outcome.case).hexdigest()[:12]}"
            path.write_bytes(outcome.case)
            print(f"{name}: {outcome.fault}: {path}", flush=True)
    yield {
        "target": name,
        "group": group,
        "cases": done,
        "wall_s": round(wall_s, 1),
        "peak_mb": round(peak / 1e6),
        "faults": faults,
    }


def _compiled(name: str, cases: int, seed: int, slot: watched.Slot, place: Path) -> None:
    """Run a kernel's target; hold the inputs of a kind of their own against the naive twin."""
    kept, signatures = compiled.fuzz(name, cases, seed, slot)
    print(f"{signatures} kinds of result")
    compiled.compare(name, kept, slot)
    (place / "found.json").write_text(json.dumps([case.hex() for case in kept]))


def _tables(cases: int, seed: int, place: Path) -> tuple[int, float, float, int]:
    """All functions of tables in turn, in a new process after each that had to be ended."""
    path = place / "faults.jsonl"
    path.unlink(missing_ok=True)
    names = list(tables.CASES)
    first, wall_s, peak, ended = seed * 10**9, 0.0, 0.0, 0
    last = first + cases
    retried: list[Any] = []
    while first < last:
        start = first
        outcome = watched.run(lambda slot: tables.fuzz(names, start, last, slot, path), place / "log")  # noqa: B023
        wall_s, peak = wall_s + outcome.wall_s, max(peak, outcome.most_bytes)
        if not outcome.fault:
            break
        if not outcome.case:
            raise RuntimeError(f"tables: {outcome.fault}: {place / 'log'}")
        name, number_seed, number = json.loads(outcome.case)
        if "took more than" in outcome.fault and number not in retried:
            retried.append(number)  # the first of its kind may have compiled: let it, and try again
            watched.run(lambda slot: tables.fuzz(names, number, number + 1, slot, path), place / "log", 120)  # noqa: B023
            first = number
            continue
        ended += 1
        with path.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({"name": name, "seed": number_seed, "what": outcome.fault, "where": ""}) + "\n"
            )
        first = number + 1
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    for fault in found:
        print(
            f"tables: {fault['name']}, seed {fault['seed']}: {fault['what']} ({fault['where']})", flush=True
        )
    return cases, wall_s, peak, len(found)


if __name__ == "__main__":
    sys.exit(main())
