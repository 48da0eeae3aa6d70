"""Apply a controller to a capture."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from .._support.arguments import positive_ns
from ..capture.model import Capture
from ..errors import ParameterError
from .controller import Controller, Decision
from .meters import LONG_BYTES, CaptureMeter

__all__ = ["replay"]

#: Intervals between two parts of a capture, of which each is a decision, or from a packet to the first one.
_MOST_INTERVALS = 1_000_000


def replay(
    capture: Capture | Iterable[Capture],
    controller: Controller,
    interval_s: float = 1.0,
    long_bytes: int = LONG_BYTES,
) -> Iterator[Decision]:
    """Yield the decisions that a controller would have made about captured traffic.

    They have no effect on the capture: flows behave as they did in their actual queue.

    Parameters
    ----------
    capture : Capture, or the parts of one (:func:`cctoolkit.iter_capture`)
        Packets in order of time; late packets count in the current interval.
    controller : Controller
        Makes the decisions.
    interval_s : float
        Time between decisions in s.
    long_bytes : int
        As for :class:`~cctoolkit.separation.meters.CaptureMeter`.

    Yields
    ------
    Decision
        ``now_s`` is the end of the interval, relative to the first packet.

    Raises
    ------
    ParameterError
        The interval is not positive, or the capture is too long for it.

    See Also
    --------
    cctoolkit.separation.controller.RttSeparation : the controller of the paper
    cctoolkit.simulate : with ``control``, decisions that take effect

    Examples
    --------
    >>> from cctoolkit.separation.controller import RttSeparation
    >>> from cctoolkit.separation.replay import replay
    >>> capture = cct.example("rtt-unfairness").ingress
    >>> controller = RttSeparation(rate_mbps=10, k=2)
    >>> for decision in replay(capture, controller, interval_s=5, long_bytes=500_000):
    ...     print(decision.now_s, decision.assignments)
    5 {0: 2, 1: 1}
    10 {}
    15 {}
    """
    interval_ns = positive_ns(interval_s, 1e9, "interval_s")
    meter = CaptureMeter(long_bytes)
    origin_ns: int | None = None
    now = 0  # number of the current interval
    for part in (capture,) if isinstance(capture, Capture) else capture:
        ts = part.columns["ts_ns"]
        if len(ts) == 0:
            continue
        origin_ns = int(ts[0]) if origin_ns is None else origin_ns
        number = (ts - origin_ns) // interval_ns
        latest, before = int(number.max()), -int(number.min())
        if max(latest - now, before) > _MOST_INTERVALS:
            raise ParameterError(
                f"interval_s: the capture spans {max(latest, before):,} intervals, but at most {_MOST_INTERVALS:,} "
                "fit; is a timestamp wrong?"
            )
        number = np.maximum.accumulate(np.maximum(number, now))
        edges = np.searchsorted(number, np.arange(now, int(number[-1]) + 2))
        for i, (first, last) in enumerate(itertools.pairwise(edges)):
            if i > 0:
                now += 1
                yield controller.decide(meter.metrics(interval_s), now * interval_s)
            meter.update({name: column[first:last] for name, column in part.columns.items()}, part.keys)
    if origin_ns is not None:
        yield controller.decide(meter.metrics(interval_s), (now + 1) * interval_s)
