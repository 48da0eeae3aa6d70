"""``make results``: list the results behind the numbers of the book, make them again, render the pages. ::

python -m cctoolkit.experiments.results list            # every result, and whether the code has changed since
python -m cctoolkit.experiments.results make codel      # make one again, and render the pages
python -m cctoolkit.experiments.results why codel       # what has changed in the code behind one
python -m cctoolkit.experiments.results make --stale    # all whose code has changed
python -m cctoolkit.experiments.results render          # fill the marked blocks of all pages
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from .._support.children import ending_with_parent
from .._support.terminal import abandon_output, note, printing, say
from ..errors import CCToolkitError, ParameterError
from ..testbed.kernel import find_kernel
from .catalogue import RESULTS
from .code_hash import ROOT, changes
from .kept import FOLDER, hash_of, keep, made, result, state
from .pages import render_all
from .provenance import provenance

__all__ = ["changed_code", "listed", "main", "make"]

#: Commands write here; finished pieces of interrupted ones stay.
WORK = ROOT / "build" / "results"


def make(name: str, folder: Path = FOLDER) -> None:
    """Run the command of a result and keep its tables.

    The command writes into ``build/results/NAME``, so that an interrupted one continues there. It ends when this
    process does (on Linux).

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

    one = result(name)
    if not one.runs_here:
        raise ParameterError(f"result: {name} is made by `{one.command}`: {one.why_not}")
    code = hash_of(one)  # of what is about to run
    kernel = {"kernel": _kernel()} if one.on_linux else {}
    output = WORK / name
    if not (output / "experiment.json").is_file():  # only experiments continue
        shutil.rmtree(output, ignore_errors=True)
    for old in output.glob("*.parquet"):
        old.unlink()
    output.parent.mkdir(parents=True, exist_ok=True)
    began_s = _cpu_of_children_s()
    words = [*shlex.split(one.command), "-o", str(output)]
    words[:1] = [sys.executable, "-m", "cctoolkit.cli"] if words[0] == "cct" else [sys.executable]
    spent = WORK / f"{name}.cpu_s"
    before_s = float(spent.read_text()) if output.exists() and spent.is_file() else 0.0
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False,
            preexec_fn=ending_with_parent(by=signal.SIGTERM) if sys.platform == "linux" else None,
        )  # fmt: skip
    finally:
        cpu_s = before_s + _cpu_of_children_s() - began_s
        spent.write_text(f"{cpu_s}\n")
    if done.returncode:
        raise CCToolkitError(f"result: `{one.command}` failed (exit status {done.returncode})")
    tables = {path.stem: pd.read_parquet(path) for path in output.glob("*.parquet")}
    missing = [table for table in one.tables if table not in tables]
    if missing:
        raise CCToolkitError(f"result: `{one.command}` wrote no {', '.join(missing)}")
    options = _options(output)
    about = {
        "options": options,
        **provenance(one.command, code),
        **kernel,
        "cpu_minutes": round(cpu_s / 60, 1),
    }
    keep(name, tables, about, folder)
    shutil.rmtree(output)
    spent.unlink()


def _kernel() -> str:
    """The testbed's kernel: with scenario and seed, it determines every packet."""
    kernel = find_kernel()
    return f"{kernel.version} ({kernel.sha256[:12]})"


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _options(output: Path) -> dict[str, Any]:
    """The command's options, seeds included, as it recorded them."""
    path = output / "experiment.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))["options"]) if path.is_file() else {}


def listed(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Every result: ``name``, ``state``, ``date``, ``cpu_minutes`` and ``command``."""
    rows = []
    for name, one in RESULTS.items():
        about = made(name, folder)
        rows.append(
            {
                "name": name,
                "state": state(name, folder),
                "date": about.get("date") or "",
                "cpu_minutes": about.get("cpu_minutes"),
                "command": one.command,
            }
        )
    return rows


def changed_code(name: str, folder: Path = FOLDER) -> list[str]:
    """The definitions behind a result that have changed since it was made (:func:`.code_hash.changes`).

    Parameters
    ----------
    name : str
        One of :data:`~.catalogue.RESULTS`.
    folder : Path
        Where results are kept.

    Raises
    ------
    ParameterError
        There is no such result, or its commit is not in this checkout.
    """
    one = result(name)
    commit = str(made(name, folder).get("commit")).removesuffix("+")
    with tempfile.TemporaryDirectory() as before:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            raise ParameterError(f"result: {name} was made at commit {commit}, which is not in this checkout")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(before, filter="data")
        return changes(one.code, one.without, Path(before))


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
    why = commands.add_parser("why", help="list the definitions that have changed since a result was made")
    why.add_argument("name", metavar="NAME", help="result")
    again = commands.add_parser("make", help="make results again and render the pages")
    again.add_argument("names", nargs="*", metavar="NAME", help="results to make")
    again.add_argument("--stale", action="store_true", help="make every result that is stale or missing")
    render = commands.add_parser("render", help="fill the marked blocks of all pages from the results")
    render.add_argument("--check", action="store_true", help="only list pages that are out of date")
    given = parser.parse_args(arguments)
    try:
        status = _run(given)
        with printing():
            sys.stdout.flush()
        return status
    except CCToolkitError as err:
        note(f"results: {err}")
    except BrokenPipeError:  # such as `| head`
        abandon_output()
    return 1


def _run(given: argparse.Namespace) -> int:
    if given.command == "list":
        width = max(map(len, RESULTS))
        say(f"{'result':{width}}  state     made        CPU time  command")
        for row in listed():
            cost = "" if row["cpu_minutes"] is None else f"{row['cpu_minutes']:g} min"
            say(f"{row['name']:{width}}  {row['state']:8}  {row['date']:10}  {cost:>8}  {row['command']}")
        return 0
    if given.command == "why":
        for line in changed_code(given.name) or [f"{given.name}: nothing has changed"]:
            say(line)
        return 0
    if given.command == "make":
        names = list(dict.fromkeys(given.names))
        if given.stale:
            wanted = [name for name in RESULTS if state(name) in ("stale", "missing")]
            names += [name for name in wanted if RESULTS[name].runs_here and name not in names]
        if not names:
            raise ParameterError("make: name a result, or give --stale")
        for name in names:
            result(name)
        for name in names:
            say(f"{name}: {RESULTS[name].command}")
            make(name)
    changed = render_all(check=getattr(given, "check", False))
    for path in changed:
        say(path.relative_to(ROOT))
    return 1 if changed and getattr(given, "check", False) else 0


if __name__ == "__main__":
    sys.exit(main())
