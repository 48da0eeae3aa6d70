"""Settings of notebooks and lessons, and predictions compared with measurements."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ..errors import ParameterError
from ..plot.style import remark_on_all

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare_prediction", "fast", "trace"]


def fast() -> bool:
    """Whether to run a notebook in its quick form: shorter runs, fewer seeds, results for a first look, not for citing.

    In the quick form, every figure says so from then on.

    Returns
    -------
    bool
        True if the environment variable ``FAST`` is set to anything but ``0``, as in ``FAST=1 make lab``.

    See Also
    --------
    trace : the capture to read

    Examples
    --------
    >>> seeds = 1 if cct.lessons.fast() else 3
    """
    quick = os.environ.get("FAST", "") not in ("", "0")
    remark_on_all("quick run: to look at, not to cite" if quick else "")
    return quick


@overload
def trace(default: str | os.PathLike[str]) -> Path: ...
@overload
def trace(default: None = None) -> Path | None: ...
def trace(default: str | os.PathLike[str] | None = None) -> Path | None:
    """The capture that a notebook reads: yours, if there is one.

    Parameters
    ----------
    default : str or path-like, optional
        The capture to read without ``TRACE``.

    Returns
    -------
    Path or None
        The file named by the environment variable ``TRACE``, as in ``TRACE=~/uplink.pcap.gz make lab``, else `default`.

    See Also
    --------
    fast : whether to run in the quick form
    cctoolkit.example : a bundled capture

    Examples
    --------
    >>> path = cct.lessons.trace("../traces/mixed.ingress.pcap.gz")
    """
    chosen = os.environ.get("TRACE") or default
    return None if chosen is None else Path(chosen).expanduser()


def compare_prediction(
    predicted: Mapping[str, float | str | None], measured: Mapping[str, float | str]
) -> pd.DataFrame:
    """Compare predictions with measurements.

    Parameters
    ----------
    predicted : mapping
        Numbers or words by quantity (with its unit); None if not predicted yet.
    measured : mapping
        Likewise.

    Returns
    -------
    DataFrame
        One row per quantity, in the order of `measured`: ``you said``, ``measured``, and ``verdict``: for numbers, by
        which factor they are too high or too low (right within 10 %); for words, whether they are equal, ignoring case.

    Raises
    ------
    ParameterError
        A quantity was predicted that is not measured, or a number was predicted as a word.

    See Also
    --------
    fast : whether to run in the quick form

    Examples
    --------
    >>> measured = {"mean delay, ms": 41.0, "fairer": "codel"}
    >>> print(cct.lessons.compare_prediction({"mean delay, ms": 20, "fairer": "CoDel"}, measured).verdict.to_string())
    mean delay, ms    too low by a factor of 2.0
    fairer                                 right
    """
    import pandas as pd

    unknown = [name for name in predicted if name not in measured]
    if unknown:
        raise ParameterError(
            f"prediction: {unknown[0]!r} is not measured; expected one of {', '.join(map(repr, measured))}"
        )
    rows = {name: _judged(name, predicted.get(name), value) for name, value in measured.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["you said", "measured", "verdict"])


def _judged(name: str, predicted: float | str | None, found: float | str) -> tuple[str, str, str]:
    if predicted is None or predicted is ...:
        return "", _shown(found), "write down what you expect first"
    kind: Any = str if isinstance(found, str) else numbers.Real
    if not isinstance(predicted, kind) or predicted != predicted:
        wanted = "a word" if isinstance(found, str) else "a number"
        raise ParameterError(f"prediction: {name}: {predicted!r} is not {wanted}")
    if isinstance(predicted, str) or isinstance(found, str):
        right = str(predicted).strip().casefold() == str(found).casefold()
        return _shown(predicted), _shown(found), "right" if right else "no"
    if abs(predicted - found) <= 0.1 * abs(found):
        verdict = "right"
    elif predicted * found <= 0:
        verdict = "too high" if predicted > found else "too low"
    else:
        factor = max(predicted / found, found / predicted)
        verdict = f"too {'high' if predicted > found else 'low'} by a factor of {factor:.1f}"
    return _shown(predicted), _shown(found), verdict


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}"
