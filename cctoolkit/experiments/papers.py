"""What the five papers print: numbers of their tables, figures and text, each with its section (``data/papers/``).

A file is a paper, a line is a statement: ``item`` (the table, figure or experiment it belongs to), ``section``,
``setting``, ``quantity`` (with its unit), ``paper`` (the number, as text because some are ranges; empty where the
paper gives none) and ``note`` (its words, where these matter).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PAPERS", "paper_numbers"]

#: The files, and whose they are.
PAPERS = {
    "dragonfly": "Dragonfly: In-Flight CCA Identification",
    "l4s-ired-pi2": "Evaluating L4S Framework Performance with Programmable Data Plane Hardware",
    "p4-abc": "Implementation and Evaluation of Activity-Based Congestion Management Using P4 (P4-ABC)",
    "p4-codel": "P4-CoDel: Experiences on Programmable Data Plane Hardware",
    "rtt-flow-separation": "Improving Flow Fairness in Non-programmable Networks using P4-programmable Data Planes",
}
COLUMNS = ["item", "section", "setting", "quantity", "paper", "note"]


def _folder() -> Path:
    """In a wheel beside this file, in a checkout where they are kept."""
    here = Path(__file__).parent / "paper_numbers"
    return here if here.is_dir() else Path(__file__).parents[2] / "data" / "papers"


def paper_numbers(paper: str, item: str | None = None) -> pd.DataFrame:
    """What a paper says.

    Parameters
    ----------
    paper : str
        One of :data:`PAPERS`.
    item : str, optional
        Only this table, figure or experiment.

    Returns
    -------
    DataFrame
        ``item section setting quantity paper note``, all text; empty where the paper says nothing.

    Raises
    ------
    ParameterError
        There is no such paper, or no such item in it.

    See Also
    --------
    league : compare queue disciplines of your own

    Examples
    --------
    >>> cct.paper_numbers("rtt-flow-separation", "test 1").paper[0]
    '0.98'
    """
    import pandas as pd

    if paper not in PAPERS:
        raise ParameterError(f"paper: {paper!r} is none of {', '.join(PAPERS)}")
    table = pd.read_csv(_folder() / f"{paper}.csv", dtype=str, keep_default_na=False)
    if item is None:
        return table
    found = table[table["item"] == item].reset_index(drop=True)
    if found.empty:
        raise ParameterError(f"item: {item!r} is none of {', '.join(table['item'].unique())} of {paper}")
    return found
