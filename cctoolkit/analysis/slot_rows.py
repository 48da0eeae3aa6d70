"""Rows of slots tables: of each flow all slots, in order, as whatever reads them as a time series takes for granted."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from .._support import arguments
from ..errors import SchemaError

__all__ = ["consecutive", "observed"]


def consecutive(slots: pd.DataFrame, numbers: Iterable[str] = ()) -> pd.DataFrame:
    """Slots table with each flow's rows together and in order.

    Parameters
    ----------
    slots : DataFrame
        From :func:`cctoolkit.compute_slots`, its rows in any order.
    numbers : iterable of str
        Columns of numbers that it must have, besides ``flow_id`` and ``slot``.

    Returns
    -------
    DataFrame
        Flows in order of their first row.

    Raises
    ------
    SchemaError
        A column is missing, ``flow_id`` or ``slot`` is no whole number, or a flow has a slot twice or lacks one between
        others.
    """
    keys = ["flow_id", "slot"]
    slots = arguments.table("slots", slots, (*numbers, *keys), whole=keys, error=SchemaError)
    flow, slot = (slots[name].to_numpy(np.int64) for name in keys)
    if not ((np.diff(slot) == 1) | (np.diff(flow) != 0)).all() or _is_split(flow):
        first = pd.factorize(flow)[0]
        order = np.lexsort((slot, first))
        attrs, slots = slots.attrs, slots.iloc[order].reset_index(drop=True)
        slots.attrs = attrs
        flow, slot = flow[order], slot[order]
    step, same = np.diff(slot), np.diff(flow) == 0
    wrong = np.flatnonzero(same & (step != 1))
    if len(wrong):
        at = int(wrong[0])
        what = (
            f"has slot {slot[at]} twice"
            if step[at] == 0
            else f"lacks slot {slot[at] + 1}; leave out flows, or their ends, but no slots between"
        )
        raise SchemaError(f"slots: flow {flow[at]} {what}")
    return slots


def observed(column: pd.Series, limit: float = 2.0**53) -> np.ndarray:
    """The numbers of a column as float64, NaN where they are null or impossible.

    Parameters
    ----------
    column : Series
        What counts bytes or packets, or a sequence number.
    limit : float
        The first that is too large.
    """
    values = column.to_numpy(np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        return np.where((values >= 0) & (values < limit), values, np.nan)


def _is_split(flow: np.ndarray) -> bool:
    """Whether the rows of some flow are in several places."""
    starts = flow[np.flatnonzero(np.diff(flow, prepend=flow[:1] - 1))]
    return len(np.unique(starts)) < len(starts)
