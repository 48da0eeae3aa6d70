"""CSV that a spreadsheet can open without running its content as formulas.

Spreadsheets run a text as a formula if it begins with ``=``, ``+``, ``-``, ``@`` or a control character, with quotes
around it or without (OWASP, "CSV Injection"). Names of classes, flows and runs may come from anyone, so such a
text gets an apostrophe in front, which to a spreadsheet means "text". :func:`read_csv` removes it.
"""

from __future__ import annotations

import os
import re
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_text", "read_csv", "write_csv"]

#: Columns of a table that is read; ours have dozens.
MOST_COLUMNS = 1000

# with apostrophes before it, so that a text which has one of its own comes back with it
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_MARKED = re.compile(r"'+[=+\-@\t\r\n]")


def as_text(cell: Any) -> Any:
    """A cell that no spreadsheet runs.

    >>> as_text("=cmd|' /C calc'!A0"), as_text("cubic"), as_text(-1.5)
    ("'=cmd|' /C calc'!A0", 'cubic', -1.5)
    """
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def _as_it_was(cell: Any) -> Any:
    return cell[1:] if isinstance(cell, str) and _MARKED.match(cell) else cell


def write_csv(table: pd.DataFrame, to: str | os.PathLike[str] | IO[str], **options: Any) -> None:
    """Write a table without its index; options are those of :meth:`pandas.DataFrame.to_csv`."""
    settings: dict[str, Any] = {"index": False, "lineterminator": "\n"} | options
    _each_text(table, as_text).to_csv(to, **settings)


def read_csv(path: str | os.PathLike[str] | IO[str], **options: Any) -> pd.DataFrame:
    """Read a table that :func:`write_csv` wrote; options are those of :func:`pandas.read_csv`.

    Raises
    ------
    ValueError
        It is no such table.
    """
    import pandas as pd

    if isinstance(path, str | os.PathLike):
        _check_width(path)
    return _each_text(pd.read_csv(path, **options), _as_it_was)


def _check_width(path: str | os.PathLike[str]) -> None:
    """Refuse lines for which pandas would make very many columns, at a tenth of a millisecond each."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.count(b",") >= MOST_COLUMNS:
                raise ValueError(f"line {number} has more than {MOST_COLUMNS:,} columns")


def _each_text(table: pd.DataFrame, change: Any) -> pd.DataFrame:
    """Change the texts in the cells and in the names of columns."""
    import pandas as pd

    changed = {}
    for at, name in enumerate(table.columns):
        column = table.iloc[:, at]
        if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_datetime64_any_dtype(column.dtype):
            continue
        texts = [cell for cell in column.unique() if isinstance(cell, str)]
        others = {cell: change(cell) for cell in texts if change(cell) != cell}
        if others:
            changed[name] = column.astype(object).map(lambda cell, others=others: others.get(cell, cell))
    return table.assign(**changed).rename(columns=change)
