"""Tables as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["markdown_table"]


def markdown_table(frame: pd.DataFrame, digits: int = 3, labels: int | None = None) -> str:
    """A table as Markdown, numbers right-aligned, missing values blank.

    Parameters
    ----------
    frame : DataFrame
        The column names become the header; the index is not shown.
    digits : int
        Significant digits of floats.
    labels : int, optional
        How many columns, from the first, are labels; all others are right-aligned, also where they hold text. By
        default columns of numbers are.

    Returns
    -------
    str
        Without a newline at the end.

    Examples
    --------
    >>> import pandas as pd
    >>> print(markdown_table(pd.DataFrame({"flow": ["near", "far"], "Mbit/s": [61.2345, None]})))
    | flow | Mbit/s |
    | --- | ---: |
    | near | 61.2 |
    | far |  |
    """
    import pandas as pd

    def cell(value: Any) -> str:
        if pd.isna(value):
            return ""
        if isinstance(value, float):
            return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
        return str(value).replace("|", "\\|")

    rules = [
        "---:" if (pd.api.types.is_numeric_dtype(dtype) if labels is None else i >= labels) else "---"
        for i, dtype in enumerate(frame.dtypes)
    ]
    rows = [map(str, frame.columns), rules, *(map(cell, row) for row in frame.itertuples(index=False))]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
