"""Statements about measurements: a claim, what was measured, and whether the claim holds.

Every statement is computed from tables each time and may come out either way, or undecided where a measurement is not
certain enough. A claim is a paper's, or ours; the paper's numbers come from ``data/papers/``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .seeds import Measured

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "OURS",
    "Range",
    "Statement",
    "above",
    "all_near",
    "bullets",
    "bullets_of",
    "count_holding",
    "every",
    "holding",
    "inside",
    "near",
    "relative",
    "rising",
    "statements_table",
]

#: Prefix of claims that are ours and not the paper's.
OURS = "(not in the paper) "
_EXACT = 1e-9
#: An interval of a measurement: least and most.
Range = tuple[float, float]
#: A hyphen that stands for a minus sign.
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


@dataclass(frozen=True)
class Statement:
    """A claim beside a measurement.

    Parameters
    ----------
    about : str or int
        The table or figure that the claim belongs to.
    claim : str
        The claim, without a full stop.
    measured : str
        The measurement in words and numbers.
    holds : bool or None
        Whether the measurement supports the claim; None if its interval allows both.
    """

    about: str | int
    claim: str
    measured: str
    holds: bool | None

    def __post_init__(self) -> None:
        if self.holds is not None:  # a comparison of arrays gives numpy's kind
            object.__setattr__(self, "holds", bool(self.holds))

    def sentence(self) -> str:
        """The statement as one line of Markdown.

        Examples
        --------
        >>> Statement("Table I", "loss rises with the flows", "0.05, 0.18, 0.31 %", True).sentence()
        'Holds: loss rises with the flows. Measured: 0.05, 0.18, 0.31 %.'
        >>> Statement("Table I", OURS + "the delay is lower", "-5 %", False).sentence()
        '**Does not hold** (our claim): the delay is lower. Measured: −5 %.'
        >>> Statement("Table I", "the delay is lower", "-5 % (-12 to +2 %)", None).sentence()
        'Undecided: the delay is lower. Measured: −5 % (−12 to +2 %).'
        """
        verdict = {True: "Holds", False: "**Does not hold**", None: "Undecided"}[self.holds]
        whose = " (our claim)" if self.claim.startswith(OURS) else ""
        measured = _MINUS.sub("−", self.measured)
        return f"{verdict}{whose}: {self.claim.removeprefix(OURS)}. Measured: {measured}."


def relative(measured: float, paper: float, within: float = 0.0) -> str:
    """How far a number is from the paper's, in words, with decimals if it is just beyond a tolerance.

    Examples
    --------
    >>> relative(5.16, 5.7), relative(12.5, 5.0), relative(5.0, 5.0), relative(5.11, 5.7, within=0.1)
    ('9 % below', '2.5 times', 'equal', '10.4 % below')
    """
    if paper == 0:
        return f"{measured:+.2g} from 0"
    ratio = measured / paper
    if not math.isfinite(ratio):
        return "nothing measured"
    if ratio >= 2:
        return f"{ratio:.1f} times"
    off = 100 * (ratio - 1)
    if round(off) == 0:
        return "equal"
    digits = _decimals(off, 100 * within, 0) if within else 0
    return f"{abs(off):.{digits}f} % {'above' if off > 0 else 'below'}"


def _decimals(off: float, within: float, least: int) -> int:
    """So many decimals that a rounded difference is on its own side of the tolerance; at most three more than least."""
    most = within + _EXACT
    enough = (n for n in range(least, least + 3) if (abs(round(off, n)) <= most) == (abs(off) <= most))
    return next(enough, least + 3)


def _verdict(found: Measured, paper: float, within: float, absolute: bool) -> bool:
    tolerance = within if absolute else within * abs(paper)
    return abs(found.mean - paper) <= tolerance + _EXACT


def _tolerance(within: float, absolute: bool, unit: str) -> str:
    if not absolute:
        return f"within {100 * within:g} %"
    return f"within {within:g}{' points' if unit.strip() == '%' else unit}"


def _beside(found: Measured, paper: float, unit: str, digits: int, within: float, absolute: bool) -> str:
    if absolute:
        off = found.mean - paper
        return f"{found.text(digits)}{unit} ({off:+.{_decimals(off, within, digits)}f})"
    text = f"{found.text(digits)}{unit} ({relative(found.mean, paper, within)}"
    if not math.isnan(found.std) and abs(found.mean - paper) <= found.std:
        text += ", within one standard deviation"
    return text + ")"


def near(
    about: str | int,
    what: str,
    found: Measured | float,
    paper: float,
    *,
    within: float,
    absolute: bool = False,
    unit: str = "",
    digits: int = 2,
) -> Statement:
    """Whether a measured number meets the paper's.

    Parameters
    ----------
    about : str or int
        Table or figure.
    what : str
        The quantity and its conditions.
    found : Measured or float
        The measurement, with its spread over seeds where known.
    paper : float
        The paper's number.
    within : float
        Tolerance: a fraction of the paper's number, or the largest difference if `absolute`.
    absolute : bool
    unit : str
        Written after numbers, with a leading space where one belongs.
    digits : int
        Decimals of the measurement.

    Returns
    -------
    Statement

    Examples
    --------
    >>> made = near("Table I", "Linux, 1 flow: mean latency", Measured(5.16, 0.2), 5.7, within=0.1, unit=" ms")
    >>> made.claim, made.measured, made.holds
    ('Linux, 1 flow: mean latency is 5.7 ms (within 10 %)', '5.16 ± 0.20 ms (9 % below)', True)
    """
    found = found if isinstance(found, Measured) else Measured(float(found))
    return Statement(
        about,
        f"{what} is {paper:g}{unit} ({_tolerance(within, absolute, unit)})",
        _beside(found, paper, unit, digits, within, absolute),
        _verdict(found, paper, within, absolute),
    )


def inside(low: float, high: float, least: float, most: float) -> bool | None:
    """Whether a quantity lies between `least` and `most`, if all that is known is its interval; None if it may or not.

    Examples
    --------
    >>> inside(0.16, 0.24, 0.15, 0.25), inside(0.01, 0.13, 0.15, 0.25), inside(0.1, 0.2, 0.15, 0.25)
    (True, False, None)
    """
    if least <= low and high <= most:
        return True
    return False if high < least or most < low else None


def above(this: Range, other: Range) -> bool | None:
    """Whether a measurement is above another, by their intervals; None if these overlap.

    Examples
    --------
    >>> above((0.7, 0.8), (0.5, 0.6)), above((0.5, 0.6), (0.7, 0.8)), above((0.5, 0.7), (0.6, 0.8))
    (True, False, None)
    """
    if this[0] > other[1]:
        return True
    return False if this[1] < other[0] or this == other else None


def rising(values: Iterable[float], ranges: Iterable[Range]) -> bool | None:
    """Whether measurements rise from one to the next, by their intervals.

    Returns
    -------
    bool or None
        False if one is certainly below an earlier one; True if each is above the one before and the last certainly
        above the first; else None.

    Examples
    --------
    >>> steps = [(0.4, 0.5), (0.45, 0.6), (0.6, 0.7)]
    >>> rising([0.45, 0.5, 0.65], steps), rising([0.45, 0.44, 0.65], steps), rising([0.65, 0.5, 0.45], steps[::-1])
    (True, None, False)
    """
    values, ranges = list(values), list(ranges)
    if any(ranges[j][1] < ranges[i][0] for j in range(len(ranges)) for i in range(j)):
        return False
    steps = all(after > before for before, after in itertools.pairwise(values))
    return True if steps and len(values) > 1 and above(ranges[-1], ranges[0]) else None


def every(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all of several hold: not if one does not, undecided if one is.

    Examples
    --------
    >>> every([True, True]), every([True, None]), every([None, False])
    (True, None, False)
    """
    known = list(verdicts)
    return False if False in known else None if None in known else True


def all_near(
    about: str | int,
    what: str,
    pairs: Mapping[Any, tuple[Measured | float, float]],
    *,
    within: float,
    absolute: bool = False,
    unit: str = "",
    digits: int = 2,
) -> Statement:
    """Whether several measured numbers all meet the paper's.

    Parameters
    ----------
    about : str or int
        Table or figure.
    what : str
        The quantity.
    pairs : mapping
        Condition to (measurement, the paper's number).
    within, absolute, unit, digits
        As for :func:`near`.

    Returns
    -------
    Statement
        Holds if every pair is near; the measurement names those that are not.

    Examples
    --------
    >>> made = all_near("Table I", "Linux: loss", {"1 flow": (0.05, 0.05), "2 flows": (0.3, 0.17)}, within=0.2)
    >>> made.measured, made.holds
    ('1 flow: 0.05 (equal), 2 flows: 0.30 (76 % above); not within 20 %: 2 flows', False)
    """
    known = {k: (f if isinstance(f, Measured) else Measured(float(f)), p) for k, (f, p) in pairs.items()}
    off = [str(k) for k, (f, p) in known.items() if not _verdict(f, p, within, absolute)]
    tolerance = _tolerance(within, absolute, unit)
    text = ", ".join(f"{k}: {_beside(f, p, unit, digits, within, absolute)}" for k, (f, p) in known.items())
    if off:
        text += f"; not {tolerance}: {', '.join(off)}"
    numbers = ", ".join(f"{paper:g}" for _, paper in known.values())
    return Statement(about, f"{what} is {numbers}{unit} ({tolerance})", text, not off)


def statements_table(found: Iterable[Statement]) -> pd.DataFrame:
    """Statements as a table.

    Returns
    -------
    DataFrame
        ``figure`` (table or figure: numbers, or all text), ``paper`` (the claim), ``toolkit`` (the measurement) and
        ``agrees`` (yes, no or undecided).
    """
    import pandas as pd

    found = list(found)
    are_numbers = all(isinstance(s.about, int) for s in found)
    words = {True: "yes", False: "no", None: "undecided"}
    rows = [(s.about if are_numbers else str(s.about), s.claim, s.measured, words[s.holds]) for s in found]
    return pd.DataFrame(rows, columns=["figure", "paper", "toolkit", "agrees"])


def bullets(found: Iterable[Statement]) -> str:
    """Statements as a Markdown list."""
    return "\n".join(f"- {s.sentence()}" for s in found)


def bullets_of(part: Callable[[Any], Iterable[Statement]]) -> Callable[[Any], str]:
    """A view of kept tables: the statements that `part` makes of them, as a Markdown list."""
    return lambda tables: bullets(part(tables))


def count_holding(found: Iterable[Statement]) -> str:
    """How many of the statements hold.

    Examples
    --------
    >>> count_holding([Statement(5, "a", "b", True), Statement(5, "c", "d", None)])
    '1 of 2'
    """
    known = list(found)
    return f"{sum(s.holds is True for s in known)} of {len(known)}"


def holding(found: Iterable[Statement]) -> str:
    """How many statements hold.

    Examples
    --------
    >>> holding([Statement(5, "a", "b", True), Statement(5, "c", "d", False)])
    '1 of 2 statements hold.'
    """
    return f"{count_holding(found)} statements hold."
