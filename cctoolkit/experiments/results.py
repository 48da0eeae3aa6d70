"""Results kept in ``data/results/``: tables that a command made, how it made them, and whether the code has changed.

A result is a folder of CSV files and ``made.json``: the command, version, commit, date, machine, CPU time, and a
:mod:`.fingerprint` of the code. Pages show numbers from these files only (:mod:`.pages`). ::

    python -m cctoolkit.experiments.results list            # every result, and whether the code has changed since
    python -m cctoolkit.experiments.results make codel      # make one again
    python -m cctoolkit.experiments.results render          # fill the marked blocks of all pages
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._support.atomic import replacing
from .._support.version import __version__
from ..errors import CCToolkitError, ParameterError
from .catalogue import RESULTS, Result
from .fingerprint import ROOT, fingerprint

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KeptTables", "keep", "made", "main", "make", "state"]

FOLDER = ROOT / "data" / "results"
_DIGITS = 6


class KeptTables(Mapping[str, "pd.DataFrame"]):
    """The tables of a kept result, read when they are used.

    Parameters
    ----------
    name : str
        One of :data:`~.catalogue.RESULTS`.
    folder : Path
        Where results are kept.

    Raises
    ------
    ParameterError
        There is no such result.

    Examples
    --------
    >>> KeptTables("codel")["table1"].target.unique()      # doctest: +SKIP
    """

    def __init__(self, name: str, folder: Path = FOLDER) -> None:
        self.name, self.folder = name, folder
        self._tables = dict.fromkeys(_result(name).tables)

    def __getitem__(self, table: str) -> pd.DataFrame:
        import pandas as pd

        if table not in self._tables:
            raise KeyError(table)
        path = _path(self.name, table, self.folder)
        if not path.is_file():
            raise KeyError(table)
        return pd.read_csv(path)

    def __contains__(self, table: object) -> bool:
        return table in self._tables and _path(self.name, str(table), self.folder).is_file()

    def __iter__(self) -> Iterator[str]:
        return (table for table in self._tables if table in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _result(name: str) -> Result:
    if name not in RESULTS:
        raise ParameterError(f"result: {name!r} is none of {', '.join(RESULTS)}")
    return RESULTS[name]


def _path(name: str, table: str, folder: Path) -> Path:
    return folder / name / f"{table}.csv"


def keep(
    name: str, tables: Mapping[str, pd.DataFrame], about: Mapping[str, Any], folder: Path = FOLDER
) -> None:
    """Write a result's tables and how they were made.

    Parameters
    ----------
    name : str
        One of :data:`~.catalogue.RESULTS`.
    tables : mapping of str to DataFrame
        Those of the catalogue that there are; floats are kept with six significant digits.
    about : mapping
        Goes into ``made.json``.
    folder : Path
        Where results are kept.
    """
    target = folder / name
    kept = {table: tables[table] for table in _result(name).tables if table in tables}
    for old in target.glob("*.csv"):
        if old.stem not in kept:
            old.unlink()
    for table, frame in kept.items():
        with replacing(_path(name, table, folder)) as tmp:
            frame.to_csv(tmp, index=False, float_format=f"%.{_DIGITS}g", lineterminator="\n")
    with replacing(target / "made.json") as tmp:
        tmp.write_text(json.dumps(dict(about), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def made(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """How a kept result was made; empty if there is none."""
    path = folder / name / "made.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def state(name: str, folder: Path = FOLDER) -> str:
    """Whether a kept result is up to date.

    Returns
    -------
    str
        ``"missing"``; ``"recorded"``: copied from a page older than this bookkeeping, so that the code behind it is not
        known; ``"stale"``: the code has changed since; or ``"fresh"``.
    """
    about = made(name, folder)
    if not about:
        return "missing"
    if about.get("code") is None:
        return "recorded"
    return "fresh" if about["code"] == fingerprint(_result(name).code) else "stale"


def make(name: str, folder: Path = FOLDER) -> None:
    """Run the command of a result and keep its tables.

    Parameters
    ----------
    name : str
        One of :data:`~.catalogue.RESULTS`.
    folder : Path
        Where results are kept.

    Raises
    ------
    ParameterError
        There is no such result, or no command that makes it here.
    CCToolkitError
        The command failed, or it did not write the tables.
    """
    import pandas as pd

    result = _result(name)
    if not result.runs_here:
        raise ParameterError(f"result: {name} is made by `{result.command}`: {result.why_not}")
    code = fingerprint(result.code)  # of what is about to run
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="cct-result-") as scratch:
        output = Path(scratch) / "out"
        words = [*shlex.split(result.command), "-o", str(output)]
        words[:1] = [sys.executable, "-m", "cctoolkit.cli"] if words[0] == "cct" else [sys.executable]
        done = subprocess.run(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
        if done.returncode:
            raise CCToolkitError(f"result: `{result.command}` failed (exit status {done.returncode})")
        tables = {path.stem: pd.read_parquet(path) for path in output.glob("*.parquet")}
        missing = [table for table in result.tables if table not in tables]
        if missing:
            raise CCToolkitError(f"result: `{result.command}` wrote no {', '.join(missing)}")
        options = _options(output)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    about = {
        "command": result.command,
        "options": options,
        "version": __version__,
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "cpu_minutes": round(cpu_s / 60, 1),
        "code": code,
    }
    keep(name, tables, about, folder)


def _options(output: Path) -> dict[str, Any]:
    """What the command was run with, seeds included, as it wrote it down."""
    path = output / "experiment.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))["options"]) if path.is_file() else {}


def _commit() -> str | None:
    """The checkout's commit, with a plus if there are changes to the package."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        changes = subprocess.run(
            ["git", "status", "--porcelain", "--", "cctoolkit"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changes.strip() else "")


def machine() -> str:
    """Processor, cores, operating system and Python."""
    from .._support.pool import cores

    processor = platform.processor() or platform.machine()
    path = Path("/proc/cpuinfo")
    if path.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", path.read_text(encoding="utf-8"), re.M)
        processor = found[1] if found else processor
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    return f"{processor}, {cores()} cores, {system}, Python {platform.python_version()}"


def listed(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Every result: ``name``, ``state``, ``date``, ``cpu_minutes`` and ``command``."""
    rows = []
    for name, result in RESULTS.items():
        about = made(name, folder)
        rows.append(
            {
                "name": name,
                "state": state(name, folder),
                "date": about.get("date") or "",
                "cpu_minutes": about.get("cpu_minutes"),
                "command": result.command,
            }
        )
    return rows


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m cctoolkit.experiments.results",
        description="Results behind the numbers of the book: list them, make them again, render the pages.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "list", help="list every result: fresh, stale (the code has changed), recorded or missing"
    )
    again = commands.add_parser("make", help="make results again and render the pages")
    again.add_argument("names", nargs="*", metavar="NAME", help="results to make")
    again.add_argument("--stale", action="store_true", help="make every result that is stale or missing")
    render = commands.add_parser("render", help="fill the marked blocks of all pages from the results")
    render.add_argument("--check", action="store_true", help="only list pages that are out of date")
    given = parser.parse_args(arguments)
    try:
        return _run(given)
    except CCToolkitError as err:
        print(f"results: {err}", file=sys.stderr)
        return 1


def _run(given: argparse.Namespace) -> int:
    from .pages import render_all

    if given.command == "list":
        for row in listed():
            cost = "" if row["cpu_minutes"] is None else f"{row['cpu_minutes']:g} min"
            print(f"{row['name']:22} {row['state']:9} {row['date']:11} {cost:>9}  {row['command']}")
        return 0
    if given.command == "make":
        names = list(dict.fromkeys(given.names))
        if given.stale:
            wanted = [name for name in RESULTS if state(name) in ("stale", "missing")]
            names += [name for name in wanted if RESULTS[name].runs_here and name not in names]
        if not names:
            raise ParameterError("make: name a result, or give --stale")
        for name in names:
            _result(name)
        for name in names:
            print(f"{name}: {RESULTS[name].command}", flush=True)
            make(name)
    changed = render_all(check=getattr(given, "check", False))
    for path in changed:
        print(path.relative_to(ROOT))
    return 1 if changed and getattr(given, "check", False) else 0


if __name__ == "__main__":
    sys.exit(main())
