"""Numbers in the five papers' tables, figures and text, each with its section (``data/papers/``).

One file per paper, one line per number: ``item`` (its table, figure or experiment), ``section``, ``setting``,
``quantity`` (with its unit), ``paper`` (the number, as text because some are ranges; empty if the paper gives none)
and ``note`` (the paper's wording, if it matters).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PAPERS", "author_log", "paper_items", "paper_numbers"]

#: The files and the papers' titles.
PAPERS = {
    "dragonfly": "Dragonfly: In-Flight CCA Identification",
    "l4s-ired-pi2": "Evaluating L4S Framework Performance with Programmable Data Plane Hardware",
    "p4-abc": "Implementation and Evaluation of Activity-Based Congestion Management Using P4 (P4-ABC)",
    "p4-codel": "P4-CoDel: Experiences on Programmable Data Plane Hardware",
    "rtt-flow-separation": "Improving Flow Fairness in Non-programmable Networks using P4-programmable Data Planes",
}
COLUMNS = ["item", "section", "setting", "quantity", "paper", "note"]


def _folder() -> Path:
    """The folder with the papers' numbers: beside this file in a wheel, ``data/papers`` in a checkout."""
    here = Path(__file__).parent / "paper_numbers"
    return here if here.is_dir() else Path(__file__).parents[2] / "data" / "papers"


def paper_numbers(paper: str, item: str | None = None) -> pd.DataFrame:
    """The numbers that a paper prints.

    Parameters
    ----------
    paper : str
        One of :data:`PAPERS`.
    item : str, optional
        Only this table, figure or experiment.

    Returns
    -------
    DataFrame
        ``item section setting quantity paper note``, all text; empty if the paper gives no number.

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
        raise ParameterError(f"paper: {paper!r} must be one of {', '.join(PAPERS)}")
    table = pd.read_csv(_folder() / f"{paper}.csv", dtype=str, keep_default_na=False)
    if item is None:
        return table
    found = table[table["item"] == item].reset_index(drop=True)
    if found.empty:
        raise ParameterError(f"item: {item!r} must be one of {', '.join(table['item'].unique())} of {paper}")
    return found


def paper_items(paper: str) -> pd.DataFrame:
    """The figures and tables of a paper, in its order.

    Returns
    -------
    DataFrame
        ``item``; ``shows``; ``statements``, which belong to it (:func:`.items.item_statements`); ``without``, the
        reason why there are none. All text.

    Examples
    --------
    >>> paper_items("p4-abc").item.tolist()[-1]
    'Figure 6'
    """
    import pandas as pd

    return pd.read_csv(_folder() / "items" / f"{paper}.csv", dtype=str, keep_default_na=False)


def author_log(name: str) -> pd.DataFrame:
    """A table derived from the public logs of a paper's authors: ``logs/NAME.csv`` beside the papers' numbers.

    Examples
    --------
    >>> list(author_log("rtt-flow-separation-pairs"))
    ['flows', 'queues', 'share_of_short_rtt']
    """
    import pandas as pd

    return pd.read_csv(_folder() / "logs" / f"{name}.csv")
