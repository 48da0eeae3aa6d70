"""Lines and tables on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from .words import printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cell_text", "listing", "note", "say", "show"]

#: Width of a table on a pipe, in columns.
_WIDE = 200


def say(text: object) -> None:
    """Print a line on standard output, with invisible characters escaped."""
    print(printable(text))


def note(text: object) -> None:
    """Print a line on standard error, as :func:`say` does: an error, a warning, or other remarks."""
    print(f"cct: {printable(text)}", file=sys.stderr)


def show(renderable: Any) -> None:
    """Print a rich renderable; text is not parsed for markup."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _WIDE, markup=False, highlight=False).print(renderable)


def listing(
    table: pd.DataFrame,
    *,
    left: Collection[str] = (),
    times_ns: Collection[str] = (),
    wrap: bool = True,
    rows: int = 40,
    more: str = "",
) -> Any:
    """Format the first rows of a table for a terminal.

    Parameters
    ----------
    table : DataFrame
        Names of columns are the header; the index is not shown.
    left : collection of str
        Columns to align left; the others are aligned right.
    times_ns : collection of str
        Columns in nanoseconds, shown in milliseconds.
    wrap : bool
        Allow long headers and cells to wrap on a narrow terminal.
    rows : int
        Most rows to show; a caption below a longer table gives its length.
    more : str
        Text to add to the caption, such as where the rest is.

    Returns
    -------
    rich.table.Table
        For :func:`show`.
    """
    from rich.table import Table

    out = Table(box=None, pad_edge=False, caption_justify="left")
    for name in map(str, table.columns):
        words = (name.removesuffix("_ns") if name in times_ns else name).replace(".", " .").split("_")
        out.add_column(
            " ".join([*words, "(ms)"] if name in times_ns else words),
            justify="left" if name in left else "right",
            min_width=max(map(len, words)),  # wraps between words, never inside one
            no_wrap=not wrap,
        )
    for row in table.head(rows).itertuples(index=False):
        out.add_row(
            *(
                cell_text(value, ms=name in times_ns)
                for name, value in zip(map(str, table.columns), row, strict=True)
            )
        )
    if len(table) > rows:
        out.caption = f"{rows} of {len(table):,} rows{more}"
    return out


def cell_text(value: Any, *, ms: bool = False) -> Any:
    """A table cell as rich text: numbers rounded (or nanoseconds in ms), missing values blank."""
    from rich.text import Text

    return Text(printable(_cell(value, ms)))  # names are the user's: brackets in them are not markup


def _cell(value: Any, ms: bool) -> str:
    import pandas as pd

    if pd.isna(value):
        return ""
    if ms:
        return f"{value / 1e6:.3f}"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
