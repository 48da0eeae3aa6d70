"""Finished pieces of an experiment, kept in its folder, so that an interrupted experiment continues.

A piece is whatever takes long: a run, a network's answers. Its file is named after a digest of the code that makes it
and of everything it is made from, as sweeps name their runs, so a piece is never taken for another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from .._support.atomic import replacing_folder
from .._support.version import __version__
from .code_hash import code_hash
from .runners import outcomes

__all__ = ["Keepable", "Kept", "Pieces", "kept_outcomes"]

#: A piece's content: tables, and plain values as in JSON.
Content = Mapping[str, Any]
_PLAIN = "plain.json"


class Pieces:
    """The finished pieces in a folder.

    Parameters
    ----------
    folder : Path
        Made when the first piece is kept.
    modules : sequence of str
        Modules whose code makes the pieces; what they import counts, too.
    without : tuple of str
        Modules that do not count.

    Examples
    --------
    >>> pieces = Pieces(Path("out/pieces"), ["cctoolkit.analysis.flows"])                    # doctest: +SKIP
    >>> pieces.made(("answers", 3), lambda: {"answers": ["reno"]})                           # doctest: +SKIP
    {'answers': ['reno']}
    """

    def __init__(self, folder: Path, modules: Sequence[str], without: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._code = f"{__version__} {code_hash(modules, without=without)}"

    def path(self, what: object) -> Path:
        """The path of a piece; `what` identifies it by its ``repr``."""
        return self.folder / hashlib.sha256(repr((self._code, what)).encode()).hexdigest()[:20]

    def made(self, what: object, make: Callable[[], Content]) -> dict[str, Any]:
        """A piece: read if it is there, else made and kept.

        Parameters
        ----------
        what : object
            Everything that it is made from; its ``repr`` counts.
        make : function
            Returns tables and plain values by name.
        """
        path = self.path(what)
        if not (path / _PLAIN).is_file():
            found = make()
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing_folder(path) as tmp:
                tables = {name: value for name, value in found.items() if isinstance(value, pd.DataFrame)}
                for name, table in tables.items():
                    table.to_parquet(tmp / f"{name}.parquet")
                plain = {name: value for name, value in found.items() if name not in tables}
                (tmp / _PLAIN).write_text(json.dumps(plain), encoding="utf-8")
        read = {table.stem: pd.read_parquet(table) for table in sorted(path.glob("*.parquet"))}
        return read | dict(json.loads((path / _PLAIN).read_text(encoding="utf-8")))


class Keepable(Protocol):
    """A case whose outcome can be kept."""

    def run(self) -> Any:
        """Run the case."""

    def identity(self) -> object:
        """Everything that the outcome depends on; its ``repr`` counts."""

    def content(self, outcome: Any) -> Content:
        """An outcome as tables and plain values."""

    def outcome(self, content: Content) -> Any:
        """The outcome again."""


@dataclass(frozen=True)
class Kept:
    """A case that is run only if its outcome is not among the pieces."""

    case: Keepable
    pieces: Pieces

    def run(self) -> Any:
        """The outcome, new or kept."""
        case = self.case
        return case.outcome(self.pieces.made(case.identity(), lambda: case.content(case.run())))


def kept_outcomes(pieces: Pieces) -> Callable[..., list[Any]]:
    """:func:`~.runners.outcomes` that keeps each outcome as soon as its case is done, for :meth:`~.part.Part.run`."""

    def run_cases(cases: Sequence[Keepable], measure: Any = None, **options: Any) -> list[Any]:
        return outcomes([Kept(case, pieces) for case in cases], measure, **options)

    return run_cases
