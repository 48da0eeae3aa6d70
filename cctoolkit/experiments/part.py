"""The structure of all experiments: parts, each from scenarios to statements.

An experiment is a package with the same modules everywhere:

- ``scenarios.py``: the runs, and the parts' titles;
- ``logs.py``: the authors' public logs, if there are any;
- ``tables.py``: measurements of a run, and tables of many runs;
- ``figures.py``: figures of the tables;
- ``conclusions.py``: statements about the tables and the paper's numbers, which may come out either way;
- ``page.py``: Markdown for the summary and the book: conditions, tables, how things work;
- ``parts.py``: the parts, each a :class:`Part` made of functions of these modules;
- ``command.py``: ``run(output, …)``, which ``cct experiment`` calls.

Data flows down this list and never back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .._support.markdown import markdown_table
from .._support.words import did_you_mean
from .folder import Folder
from .runners import outcomes
from .statements import Statement, holding, statements_table

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

__all__ = ["Findings", "Part", "choose", "write"]

S = TypeVar("S")
Tables = Mapping[str, "pd.DataFrame"]


def _nothing(*_: Any) -> Any:
    return []


@dataclass(frozen=True)
class Part(Generic[S]):
    """One part of an experiment.

    Parameters
    ----------
    tables : function of (settings, outcomes)
        Tables by name, from the cases' outcomes.
    scenarios : function of settings
        The cases to run; none by default.
    measure : function of (case, run), optional
        What to keep of each run; by default everything.
    figures : function of tables
        Figures by name.
    statements : function of tables
        Statements about the tables.
    page : function of (settings, tables)
        Blocks of Markdown: conditions, and the tables worth reading.
    """

    tables: Callable[[S, Any], dict[str, pd.DataFrame]]
    scenarios: Callable[[S], Sequence[Any]] = _nothing
    measure: Callable[[Any, Any], Any] | None = None
    figures: Callable[[Tables], dict[str, go.Figure]] = lambda tables: {}
    statements: Callable[[Tables], Sequence[Statement]] = _nothing
    page: Callable[[S, Tables], Sequence[str]] = _nothing

    def run(
        self, settings: S, *, workers: int | None = 1, run_cases: Callable[..., Any] = outcomes
    ) -> Findings[S]:
        """Run the part.

        Parameters
        ----------
        settings
            Settings of the experiment.
        workers : int, optional
            Processes; None for all cores, 1 (the default) to run everything in this process.
        run_cases : function, optional
            Runs the cases instead of :func:`~cctoolkit.experiments.runners.outcomes`.
        """
        found = run_cases(self.scenarios(settings), self.measure, workers=workers)
        return Findings(self, settings, self.tables(settings, found))


@dataclass(frozen=True)
class Findings(Generic[S]):
    """The results of a part.

    Attributes
    ----------
    tables : dict of DataFrame
    figures : dict of Figure
    statements : list of Statement
    text : list of str
        Markdown.
    """

    part: Part[S]
    settings: S
    tables: dict[str, pd.DataFrame]

    @cached_property
    def figures(self) -> dict[str, go.Figure]:
        """Figures by name, drawn at first use."""
        return self.part.figures(self.tables)

    @cached_property
    def statements(self) -> list[Statement]:
        """Statements about the tables."""
        return list(self.part.statements(self.tables))

    @cached_property
    def text(self) -> list[str]:
        """Blocks of Markdown."""
        return list(self.part.page(self.settings, self.tables))


def choose(
    requested: Sequence[str] | None, known: Mapping[str, Any] | Sequence[str], option: str
) -> list[str]:
    """The requested parts, in the order of the known ones; all of them by default.

    Raises
    ------
    ParameterError
        A part is unknown; the message starts with the option's name.
    """
    from ..errors import ParameterError

    for name in requested or ():
        if name not in known:
            raise ParameterError(
                f"{option}: {name!r} must be one of {', '.join(known)}{did_you_mean(name, known)}"
            )
    return [name for name in known if name in (requested or known)]


def write(
    folder: Folder, title: str, found: Mapping[str, Findings[Any]], titles: Mapping[str, str], *about: str
) -> None:
    """Write the tables, figures and statements of parts and the summary into a folder.

    Parameters
    ----------
    folder : Folder
    title : str
        Title of the experiment.
    found : mapping of str to Findings
        Findings by part.
    titles : mapping of str to str
        Headings by part.
    *about : str
        Markdown at the beginning of the summary.
    """
    blocks: list[str] = []
    statements: list[Statement] = []
    for name, findings in found.items():
        for table_name, table in findings.tables.items():
            folder.table(table_name, table)
        for figure_name, figure in findings.figures.items():
            folder.figure(figure_name, figure)
        statements += findings.statements
        blocks += [f"## {titles[name]}", *findings.text]
    if statements:
        table = statements_table(statements)
        folder.table("statements", table)
        blocks = ["## Statements", holding(statements), markdown_table(table), *blocks]
    folder.summary(title, *about, *blocks)
