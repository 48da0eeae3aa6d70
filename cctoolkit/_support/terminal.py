"""Lines, texts and tables on a terminal: whatever the package prints goes through here.

Names of files, flows, classes and keys may come from anyone, so control characters are escaped
(:func:`~.words.printable`): none moves the cursor, changes a colour, starts a new line or reverses the direction of
text. Progress bars are in :mod:`.waiting`, with the same rule; nothing else prints (``tests/test_terminal.py``).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .waiting import above_bars
from .words import plural, printable, printable_lines

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Listing", "abandon_output", "cell_text", "end_empty", "is_standard_output", "listing", "live", "note", "printing",
    "say", "say_beside", "show", "write",
]  # fmt: skip

#: Width of text on a pipe, in columns; tables take what they need there.
_WIDE = 200
#: Between two columns of a table.
_GAP = 2


def say(text: object) -> None:
    """Print a line on standard output."""
    with printing():
        print(printable(text))


def write(text: str) -> None:
    """Print a text that ends its own lines, such as rules for a router."""
    with printing():
        print(printable_lines(text), end="")


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Surround writes to standard output, so that an error of the operating system names it."""
    try:
        yield
    except OSError as err:
        raise OSError(err.errno, err.strerror, "standard output") from None


def abandon_output() -> None:
    """Discard what standard output's reader did not take before it went; else the interpreter tries again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def note(text: object) -> None:
    """Print a line on standard error: an error, a warning, or other remarks."""
    above_bars(f"cct: {printable(text)}")


def is_standard_output(path: str | os.PathLike[str] | None) -> bool:
    """Whether it is ``-``, which names standard output where one file is written."""
    return path is not None and os.fspath(path) == "-"


def say_beside(output: str | os.PathLike[str]) -> Callable[[object], None]:
    """The function that prints lines about a file that is written: :func:`note` if the file is standard output."""
    return note if is_standard_output(output) else say


def end_empty(text: object) -> NoReturn:
    """End the command because there is nothing to show: a line on standard error, and exit status 1, as grep does."""
    import typer

    sys.stdout.flush()
    note(text)
    raise typer.Exit(1)


def show(renderable: Any) -> None:
    """Print a rich renderable, or a group of them; text is not parsed for markup."""
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ  # a pipe has none unless the user names one
    for part in getattr(renderable, "renderables", [renderable]):
        wide = max(_WIDE, part.width) if isinstance(part, Listing) else _WIDE
        with printing():
            _console(width=None if has_width else wide).print(part)


def live() -> Any:
    """A rich screen that is updated in place."""
    from rich.live import Live

    return Live(console=_console(), auto_refresh=False)


def _console(**options: Any) -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class Escaping(Console):
        def render(self, *arguments: Any, **options: Any) -> Iterator[Any]:
            for part in super().render(*arguments, **options):
                yield part if part.control else Segment(printable_lines(part.text), part.style)

    return Escaping(markup=False, highlight=False, **options)


class Listing:
    """A table that fits the terminal: without room, whole columns are left out; cells are never cut.

    Parameters
    ----------
    header : sequence of str
        Names of the columns; they wrap between words.
    rows : sequence of sequences of str
        One text for each column.
    left : collection of str
        Columns to align left; the others are aligned right.
    wrap : collection of str
        Columns whose cells may wrap between words.
    keep : sequence of str
        Columns to keep longest, the most important first; the others are left out from the right.
    caption : str
        A line below the table.
    more : str
        Where to see the columns left out, besides a wider terminal.
    """

    def __init__(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        left: Collection[str] = (),
        wrap: Collection[str] = (),
        keep: Sequence[str] = (),
        caption: str = "",
        more: str = "",
    ) -> None:
        self.header = list(header)
        self.rows = [[printable(cell) for cell in row] for row in rows]
        self.left, self.wrap, self.keep = left, wrap, keep
        self.caption, self.more = caption, more

    @property
    def width(self) -> int:
        """Width of the table without wrapping, in columns of the terminal."""
        return sum(self._widths(i)[1] for i in range(len(self.header))) + _GAP * (len(self.header) - 1)

    def _widths(self, i: int) -> tuple[int, int]:
        """Least and best width of a column."""
        from rich.cells import cell_len

        name = self.header[i]
        cells = {row[i] for row in self.rows}
        words = {word for cell in cells for word in cell.split(" ")} if name in self.wrap else cells
        minimum = max(map(cell_len, [*name.split(" "), *words]), default=0)
        return minimum, max(map(cell_len, [name, *cells]), default=0)

    def _droppable(self) -> list[int]:
        """Columns in the order in which they are left out; the very first never is."""
        rank = {name: len(self.keep) - self.keep.index(name) for name in self.keep}
        empty = [not any(row[i] for row in self.rows) for i in range(len(self.header))]
        order = range(1, len(self.header))
        return sorted(order, key=lambda i: (not empty[i], rank.get(self.header[i], 0), -i))

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.table import Table
        from rich.text import Text

        room = options.max_width
        widths = [self._widths(i) for i in range(len(self.header))]
        shown = list(range(len(self.header)))
        leaving = self._droppable()

        def total(which: int) -> int:
            return sum(widths[i][which] for i in shown) + _GAP * (len(shown) - 1)

        while total(0) > room and leaving:
            shown.remove(leaving.pop(0))
        # the room that is left goes to the columns in order, so that fewer headers wrap
        wide = {i: widths[i][0] for i in shown}
        spare = room - total(0)
        for i in shown:
            extra = min(spare, widths[i][1] - wide[i])
            if extra > 0:
                wide[i] += extra
                spare -= extra
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for i in shown:
            name = self.header[i]
            table.add_column(
                Text(name), justify="left" if name in self.left else "right", width=wide[i], overflow="fold"
            )
        for row in self.rows:
            table.add_row(*(Text(row[i]) for i in shown))
        yield from console.render(table, options.update(width=sum(wide.values()) + _GAP * (len(shown) - 1)))
        if self.caption:
            yield Text(self.caption, style="italic")
        hidden = [self.header[i] for i in range(len(self.header)) if i not in shown]
        if hidden:
            also = f", or {self.more}," if self.more else ""
            yield Text(
                f"A wider terminal{also} shows {plural(len(hidden), 'more column')}: {', '.join(hidden)}",
                style="italic",
            )


def listing(
    table: pd.DataFrame,
    *,
    left: Collection[str] = (),
    times_ns: Collection[str] = (),
    keep: Sequence[str] = (),
    rows: int = 40,
    more: str = "",
) -> Listing:
    """Format the first rows of a table for a terminal.

    Parameters
    ----------
    table : DataFrame
        Names of columns are the header; the index is not shown.
    left : collection of str
        Columns to align left; the others are aligned right.
    times_ns : collection of str
        Columns in nanoseconds, shown in milliseconds.
    keep : sequence of str
        Columns that a narrow terminal keeps longest, the most important first; the others are left out from the right.
    rows : int
        Most rows to show; a caption below a longer table gives its length.
    more : str
        Where the rest is, such as ``"-o FILE"``.

    Returns
    -------
    Listing
        For :func:`show`.
    """

    def titled(name: str) -> str:
        words = (name.removesuffix("_ns") if name in times_ns else name).replace(".", " .").split("_")
        return " ".join([*words, "(ms)"] if name in times_ns else words)

    names = list(map(str, table.columns))
    caption = f"{rows} of {len(table):,} rows" + (f" ({more} writes all)" if more else "")
    return Listing(
        [titled(name) for name in names],
        [
            [_cell(value, name in times_ns) for name, value in zip(names, row, strict=True)]
            for row in table.head(rows).itertuples(index=False)
        ],
        left=[titled(name) for name in left],
        keep=[titled(name) for name in keep],
        caption=caption if len(table) > rows else "",
        more=more,
    )


def cell_text(value: Any) -> Any:
    """A table cell as rich text: numbers rounded, missing values blank."""
    from rich.text import Text

    return Text(printable(_cell(value)))  # names are the user's: brackets in them are not markup


def _cell(value: Any, ms: bool = False) -> str:
    import pandas as pd

    if pd.isna(value):
        return ""
    if ms:
        return f"{value / 1e6:.3f}"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
