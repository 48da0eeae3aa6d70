"""A controller beside a capture: what it would have done about that traffic."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from ..capture.model import Capture
from ..errors import ParameterError
from .controller import Controller, Decision
from .meters import LONG_BYTES, CaptureMeter

__all__ = ["replay"]


def replay(
    capture: Capture | Iterable[Capture],
    controller: Controller,
    interval_s: float = 1.0,
    long_bytes: int = LONG_BYTES,
) -> Iterator[Decision]:
    """What a controller would have done about this traffic, interval after interval.

    The capture does not change by it: flows go on as they did in the queue they really had.

    Parameters
    ----------
    capture : Capture, or the parts of one (:func:`cctoolkit.iter_capture`)
        In order of time; a packet from before its interval counts in it.
    controller : Controller
    interval_s : float
    long_bytes : int
        See :class:`CaptureMeter`.

    Yields
    ------
    Decision
        ``now_s`` is the end of the interval since the first packet.

    Raises
    ------
    ParameterError
        An interval that is not above 0.
    """
    if not interval_s > 0:
        raise ParameterError(f"interval_s: {interval_s!r} must be positive")
    meter = CaptureMeter(long_bytes)
    origin_ns: int | None = None
    now = 0  # the interval under way
    for part in (capture,) if isinstance(capture, Capture) else capture:
        ts = part.columns["ts_ns"]
        if len(ts) == 0:
            continue
        origin_ns = int(ts[0]) if origin_ns is None else origin_ns
        number = np.maximum.accumulate(np.maximum((ts - origin_ns) // round(interval_s * 1e9), now))
        edges = np.searchsorted(number, np.arange(now, int(number[-1]) + 2))
        for i, (first, last) in enumerate(itertools.pairwise(edges)):
            if i > 0:
                now += 1
                yield controller.decide(meter.metrics(interval_s), now * interval_s)
            meter.update({name: column[first:last] for name, column in part.columns.items()}, part.keys)
    if origin_ns is not None:
        yield controller.decide(meter.metrics(interval_s), (now + 1) * interval_s)
