"""Tail drop: no queue management; packets that find the buffer full are lost."""

from __future__ import annotations

from typing import ClassVar

from .base import Aqm

__all__ = ["TailDrop"]


class TailDrop(Aqm):
    """A plain buffer (Linux pfifo, bfifo). Its size belongs to the queue, so there is nothing to decide.

    See Also
    --------
    Red : signals before the buffer is full
    CoDel : limits the queueing delay

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.TailDrop())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    56.8
    """

    name: ClassVar[str] = "tail_drop"
