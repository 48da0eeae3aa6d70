"""Results kept in ``data/results/``: tables that a command made, how it made them, and whether the code has changed.

A result is a folder of CSV files and ``made.json``: the command, version, commit, date, machine, CPU time, and a hash
of the code (:mod:`.code_hash`). Pages show numbers from these files only (:mod:`.pages`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._support.atomic import replacing
from .._support.csv import read_csv, write_csv
from ..errors import ParameterError
from .catalogue import RESULTS, Result
from .code_hash import ROOT, code_hash
from .provenance import provenance

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FOLDER", "KeptTables", "hash_of", "keep", "made", "note_step", "result", "state"]

#: Where results are kept.
FOLDER = ROOT / "data" / "results"
_DIGITS = 6


class KeptTables(Mapping[str, "pd.DataFrame"]):
    """The tables of a kept result, read at first use.

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
        self._tables = dict.fromkeys(result(name).tables)

    def __getitem__(self, table: str) -> pd.DataFrame:
        if table not in self._tables:
            raise KeyError(table)
        path = _path(self.name, table, self.folder)
        if not path.is_file():
            raise KeyError(table)
        return read_csv(path)

    def __contains__(self, table: object) -> bool:
        return table in self._tables and _path(self.name, str(table), self.folder).is_file()

    def __iter__(self) -> Iterator[str]:
        return (table for table in self._tables if table in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def result(name: str) -> Result:
    """A result of the catalogue, by name.

    Raises
    ------
    ParameterError
        There is no such result.
    """
    if name not in RESULTS:
        raise ParameterError(f"result: {name!r} must be one of {', '.join(RESULTS)}")
    return RESULTS[name]


def hash_of(one: Result) -> str:
    """The hash of the code that a result depends on."""
    return code_hash(one.code, one.files, one.without)


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
        Tables of the catalogue; floats are kept with six significant digits.
    about : mapping
        Content for ``made.json``.
    folder : Path
        Where results are kept.
    """
    target = folder / name
    kept = {table: tables[table] for table in result(name).tables if table in tables}
    for old in target.glob("*.csv"):
        if old.stem not in kept:
            old.unlink()
    for table, frame in kept.items():
        with replacing(_path(name, table, folder)) as tmp:
            write_csv(frame, tmp, float_format=f"%.{_DIGITS}g")
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
        ``"missing"``; ``"recorded"``: copied from a page older than this bookkeeping, so the code behind it is
        unknown; ``"stale"``: the code has changed since; or ``"fresh"``.
    """
    about = made(name, folder)
    if not about:
        return "missing"
    if about.get("code") is None:
        return "recorded"
    return "fresh" if about["code"] == hash_of(result(name)) else "stale"


def note_step(name: str, command: str, step: str, folder: Path = FOLDER) -> None:
    """Record that a step of a result was made, for programs that keep their tables themselves.

    Parameters
    ----------
    name : str
        One of :data:`~.catalogue.RESULTS`.
    command : str
        The command of the step.
    step : str
        Its name. A result is fresh if the same code made all its steps.
    folder : Path
        Where results are kept.
    """
    one = result(name)
    step_made = provenance(command, hash_of(one))
    steps = made(name, folder).get("steps", {}) | {step: step_made}
    codes = {about["code"] for about in steps.values()}
    about = step_made | {
        "command": one.command,
        "code": codes.pop() if len(codes) == 1 else "mixed",
        "steps": steps,
    }
    with replacing(folder / name / "made.json") as tmp:
        tmp.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
