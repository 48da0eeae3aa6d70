"""Prague as the authors' logs show it: slow start ends with a nearly empty window."""

from __future__ import annotations

from typing import ClassVar

import numba

from ...cca.prague import Prague, pace

__all__ = ["RestartingPrague"]

_on_ack = numba.njit(error_model="numpy")(Prague.on_ack)


class RestartingPrague(Prague):
    """Prague whose first reduction leaves only a few packets in the window.

    In the authors' logs the goodput falls to a few Mbit/s after slow start, whatever the queue discipline. The logs do
    not say why; in Linux this happens if marks are still reported when a timeout has emptied the window.

    Parameters
    ----------
    left_packets : float
        The window after slow start.
    """

    name: ClassVar[str] = "prague_restarting"

    left_packets: float = 2.0

    @staticmethod
    def on_ack(p, s, stats, flow, ack, now_ns):
        first = stats.reductions == 0
        _on_ack(p, s, stats, flow, ack, now_ns)
        if first and stats.reductions > 0:
            s.gap = 0.0
            flow.cwnd = p.left_packets
            flow.ssthresh = p.left_packets
            pace(flow, flow.cwnd)
