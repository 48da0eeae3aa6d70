"""How evenly flows share a link."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ..._support.arguments import floats
from ...errors import ParameterError
from .rates import RateTable

__all__ = ["jain_index", "jain_over_time", "rtt_unfairness", "share_difference"]


def jain_index(x: Any, axis: int | None = None) -> Any:
    """Jain's fairness index, ``(sum x)**2 / (n * sum x**2)``.

    Parameters
    ----------
    x : array-like of numbers, none negative
        Share of each of n flows.
    axis : int, optional
        Axis along which the flows lie; by default all of `x`.

    Returns
    -------
    float or array
        From 1/n (one flow has everything) to 1 (all have the same). NaN if all are zero, if any is NaN, or without
        flows.

    Raises
    ------
    ParameterError
        A value is negative.

    See Also
    --------
    cctoolkit.jain_over_time : the index in bins of time
    cctoolkit.share_difference : the difference between two groups
    cctoolkit.rtt_unfairness : throughput against RTT

    Notes
    -----
    Jain, Chiu and Hawe, "A quantitative measure of fairness and discrimination for resource allocation in shared
    computer systems", DEC TR-301, 1984.

    Examples
    --------
    >>> cct.jain_index([5, 5, 5, 5]), cct.jain_index([20, 0, 0, 0])
    (1.0, 0.25)
    """
    values = floats("x", x)
    if (values < 0).any():
        raise ParameterError(f"x: {values[values < 0][0]:g} is negative")
    n = values.size if axis is None else values.shape[axis]
    largest = values.max(axis=axis, keepdims=True, initial=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = values / largest  # so that squares neither overflow nor vanish
        index = values.sum(axis=axis) ** 2 / (n * (values**2).sum(axis=axis))
    return float(index) if np.ndim(index) == 0 else index


def jain_over_time(
    cap: Any,
    bin_s: float = 1.0,
    flow_ids: Iterable[int] | int | None = None,
    of: str = "goodput",
    max_rows: int = 10_000_000,
) -> pd.DataFrame:
    """Jain's index of the active flows in each bin of time.

    Parameters
    ----------
    cap : Capture, packets DataFrame or dict of arrays
    bin_s : float
        Bin width; several round-trip times, or the index compares bursts, not flows.
    flow_ids : int or iterable of int, optional
        Flows to compare, preferably ones that last. By default all that delivered data; short flows then lower the
        index.
    of : "goodput" or "throughput"
        See :func:`~cctoolkit.goodput` and :func:`~cctoolkit.throughput`.
    max_rows : int
        As for :func:`~cctoolkit.throughput`.

    Returns
    -------
    DataFrame
        ``bin``, ``start_s`` (of the bin, since the first packet), ``active_flows``, ``jain_index``: one row per bin
        with an active flow. A flow is active from its first bin to its last, in the direction that delivered more; a
        flow starved for a whole bin counts as 0. The index is NaN with fewer than two active flows, or if none
        delivered anything.

    Raises
    ------
    ParameterError
        An argument is invalid, or there are more rows than `max_rows`.

    See Also
    --------
    cctoolkit.jain_index : the index of given rates
    cctoolkit.goodput : the rates
    cctoolkit.plot.throughput : a figure of both

    Examples
    --------
    >>> cap = cct.example("cubic-bbr").ingress
    >>> cct.jain_over_time(cap, bin_s=4.0, flow_ids=[0, 1]).round(2)
       bin  start_s  active_flows  jain_index
    0    0      0.0             2        0.88
    1    1      4.0             2        0.68
    2    2      8.0             2        0.63
    3    3     12.0             2        0.93
    """
    if of not in ("goodput", "throughput"):
        raise ParameterError(f"of: {of!r} is neither 'goodput' nor 'throughput'")
    table = RateTable(bin_s, flow_ids, max_rows)
    table.update(cap)
    rates = table.result()
    way = 2 * rates["flow_id"].to_numpy(np.int64) + rates["direction"].to_numpy()
    delivered = np.bincount(way, rates["goodput_bytes"], minlength=2 * (way.max(initial=0) // 2 + 1)).reshape(
        -1, 2
    )
    main = np.zeros(delivered.shape, np.bool_)
    main[:, 0] = (delivered[:, 0] >= delivered[:, 1]) & (delivered[:, 0] > 0)
    main[:, 1] = delivered[:, 1] > delivered[:, 0]
    rates = rates[main.ravel()[way]]
    bins, at, n = np.unique(rates["bin"].to_numpy(), return_inverse=True, return_counts=True)
    x = rates[f"{of}_mbps"].to_numpy()
    total, squares = (np.bincount(at, weights, minlength=len(bins)) for weights in (x, x**2))
    with np.errstate(invalid="ignore", divide="ignore"):
        index = np.where(n >= 2, total**2 / (n * squares), np.nan)
    return pd.DataFrame({"bin": bins, "start_s": bins * float(bin_s), "active_flows": n, "jain_index": index})


def share_difference(a_mbps: Any, b_mbps: Any) -> float:
    """Difference between the shares of two groups of flows, in percent of their sum.

    Parameters
    ----------
    a_mbps, b_mbps : float or array-like
        Mean rate of a flow in each group (or the groups' totals, if they have equally many flows): one value, or one
        for each of several periods, such as the load phases of an experiment.

    Returns
    -------
    float
        The mean over the periods of ``100 * |a - b| / (a + b)``: 0 if both have the same, 100 if one has everything.
        Periods in which both are 0 are left out; NaN if there are no others.

    Raises
    ------
    ParameterError
        The arguments differ in length, or a rate is negative.

    See Also
    --------
    cctoolkit.jain_index : fairness among any number of flows

    Notes
    -----
    For the "average percentage difference for bandwidth consumption for Prague and Cubic flows" in Table 3 of Almeida,
    Maciel and Verdi, "Evaluating L4S Framework Performance with Programmable Data Plane Hardware". The paper
    prints no formula; this one is bounded, does not depend on the order of the groups, and is the difference of
    their two shares of the link in percentage points.

    Examples
    --------
    >>> cct.share_difference([60.0, 50.0], [40.0, 50.0])
    10.0
    """
    a, b = np.atleast_1d(floats("a_mbps", a_mbps)), np.atleast_1d(floats("b_mbps", b_mbps))
    if a.shape != b.shape:
        raise ParameterError(f"a_mbps and b_mbps: {a.size} and {b.size} periods, expected the same number")
    if (a < 0).any() or (b < 0).any():
        raise ParameterError("a_mbps and b_mbps: rates must not be negative")
    there = a + b > 0
    return float(np.mean(100 * np.abs(a - b)[there] / (a + b)[there])) if there.any() else float("nan")


def rtt_unfairness(throughput_mbps: Any, rtt_ms: Any, flow_ids: Any = None) -> pd.DataFrame:
    """How throughput depends on RTT, for each pair of flows that share a link.

    Parameters
    ----------
    throughput_mbps, rtt_ms : array-like of positive numbers, shape (n,)
        One value per flow; a throughput may be 0.
    flow_ids : array-like, optional
        Names of the flows; by default their positions.

    Returns
    -------
    DataFrame
        One row per pair:

        - ``short_flow``, ``long_flow``: the flow with the shorter RTT, and the other,
        - ``rtt_ratio``: longer RTT over shorter, at least 1,
        - ``throughput_ratio``: the short flow's over the long flow's; above 1 if the short RTT has the advantage (as
          with CUBIC), below 1 if the long one has (as with BBR),
        - ``short_share``: the short flow's share of the pair's throughput,
        - ``exponent``: the a for which throughput is proportional to ``RTT ** -a``, that is ``log(throughput_ratio) /
          log(rtt_ratio)``; NaN if the RTTs are equal. 0 is fair, 1 means equal windows; Reno with synchronised losses
          comes close to 2 (Lakshman and Madhow, 1997).

    Raises
    ------
    ParameterError
        The arguments differ in length, an RTT is not positive, or a throughput is negative.

    See Also
    --------
    cctoolkit.jain_index : fairness in one number
    cctoolkit.rtt_summary : RTTs of the flows of a capture
    cctoolkit.goodput : their rates

    Examples
    --------
    >>> pairs = cct.rtt_unfairness(throughput_mbps=[80, 20], rtt_ms=[10, 40])
    >>> pairs[["rtt_ratio", "throughput_ratio", "exponent"]].iloc[0].to_dict()
    {'rtt_ratio': 4.0, 'throughput_ratio': 4.0, 'exponent': 1.0}
    """
    rate, rtt = floats("throughput_mbps", throughput_mbps), floats("rtt_ms", rtt_ms)
    names = np.arange(rate.size) if flow_ids is None else np.asarray(flow_ids)
    if not rate.shape == rtt.shape == names.shape or rate.ndim != 1:
        raise ParameterError("throughput_mbps, rtt_ms and flow_ids: expected one value per flow in each")
    if not (rtt > 0).all():
        raise ParameterError(f"rtt_ms: {rtt[~(rtt > 0)][0]:g} must be positive")
    if not (rate >= 0).all():
        raise ParameterError(f"throughput_mbps: {rate[~(rate >= 0)][0]:g} must not be negative")
    order = np.argsort(rtt, kind="stable")
    pairs = np.array(list(combinations(order, 2)), np.int64).reshape(-1, 2)
    short, long = pairs[:, 0], pairs[:, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        rtt_ratio = rtt[long] / rtt[short]
        throughput_ratio = rate[short] / rate[long]
        share = rate[short] / (rate[short] + rate[long])
        exponent = np.where(rtt_ratio > 1, np.log(throughput_ratio) / np.log(rtt_ratio), np.nan)
    return pd.DataFrame(
        {
            "short_flow": names[short],
            "long_flow": names[long],
            "rtt_ratio": rtt_ratio,
            "throughput_ratio": throughput_ratio,
            "short_share": share,
            "exponent": exponent,
        }
    )
