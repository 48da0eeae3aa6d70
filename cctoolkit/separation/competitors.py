"""Other approaches with the same measurements: queues by congestion control, a single resized buffer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from .._support.arguments import whole
from ..capture.protocols import UDP
from ..errors import SchemaError
from .buffers import stanford_buffer_bytes
from .controller import Controller

__all__ = ["BufferResizing", "CcaSeparation"]


class CcaSeparation(Controller):
    """Queues by congestion control, as in P4air and P4CCI.

    Parameters
    ----------
    rate_mbps : float
        Rate of the bottleneck in Mbit/s.
    k : int
        Number of queues for congestion controls; further ones share the last queue.
    predict : function, optional
        Takes the metrics of the current flows (:data:`~cctoolkit.separation.meters.METRICS`) and returns the name
        of each flow's congestion control, empty if unknown. By default the true one in the column ``cca``, as if
        the classifier were perfect.
    sizes_buffers : bool
        Size the buffers like :class:`~cctoolkit.separation.controller.RttSeparation`, so that a comparison shows the
        effect of the queues alone. The papers do not mention buffers, so they are unchanged by default.
    **options
        Options of :class:`~cctoolkit.separation.controller.Controller`.

    Raises
    ------
    ParameterError
        A value is out of range.

    Notes
    -----
    Turkovic and Kuipers, "P4air" (2020); Kfoury, Crichigno and Bou-Harb, "P4CCI" (2023). P4air also punishes flows
    that exceed their share and gives groups several queues; here, queues share the link by their number of flows.
    Only long flows are classified, as in RttSeparation. UDP counts as a congestion control of its own.

    See Also
    --------
    cctoolkit.separation.controller.RttSeparation : queues by RTT
    BufferResizing : a single queue

    Examples
    --------
    >>> from cctoolkit.separation.competitors import CcaSeparation
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100),
    ...     flows=[cct.Flow("cubic", rtt_ms=20), cct.Flow("bbr", rtt_ms=20)],
    ...     duration_s=2,
    ... )
    >>> controller = CcaSeparation(rate_mbps=10, long_bytes=10_000)
    >>> run = cct.simulate(controller.scenario(scenario), control=controller, control_s=0.1)
    >>> controller.decision.flows["queue"].tolist()
    [1, 2]
    """

    def __init__(
        self,
        rate_mbps: float,
        k: int = 4,
        *,
        predict: Callable[[pd.DataFrame], Any] | None = None,
        sizes_buffers: bool = False,
        **options: Any,
    ) -> None:
        self.k = whole("k", k, low=1)
        self.predict = predict
        self.sizes_buffers = sizes_buffers
        self.queue_of: dict[str, int] = {}
        super().__init__(rate_mbps, ("default", *("class",) * self.k), **options)

    def assign(self, flows: pd.DataFrame, now_s: float) -> tuple[np.ndarray, float]:
        if self.predict is None and "cca" not in flows:
            raise SchemaError("metrics: no column cca, and no function to predict it")
        names = np.asarray(flows.cca if self.predict is None else self.predict(flows), object)
        names = np.where((flows.protocol == UDP).to_numpy(), "udp", names)
        names = np.where(flows.is_long.to_numpy(np.bool_) | (names == "udp"), names, "")
        for name in pd.unique(names):
            if name and name not in self.queue_of:
                self.queue_of[name] = min(len(self.queue_of) + 1, self.k)
        return np.array([self.queue_of.get(name, 0) for name in names], np.int64), math.nan


class BufferResizing(Controller):
    """A single queue whose buffer follows the traffic, as in P4BS: BDP/sqrt(N) of the current long flows.

    Parameters
    ----------
    rate_mbps : float
        Rate of the bottleneck in Mbit/s.
    **options
        Options of :class:`~cctoolkit.separation.controller.Controller`.

    Notes
    -----
    Kfoury, Crichigno and Bou-Harb, "P4BS" (2023): its rule by number and RTT of long flows, without the paper's
    further search by measured loss and delay.

    See Also
    --------
    cctoolkit.separation.controller.RttSeparation : queues by RTT
    CcaSeparation : queues by congestion control

    Examples
    --------
    >>> from cctoolkit.separation.competitors import BufferResizing
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=1000),
    ...     flows=[cct.Flow("reno", rtt_ms=40, count=4)],
    ...     duration_s=2,
    ... )
    >>> controller = BufferResizing(rate_mbps=10, long_bytes=10_000)
    >>> run = cct.simulate(controller.scenario(scenario), control=controller, control_s=0.1)
    >>> int(controller.decision.queues["buffer_bytes"][0])  # about half of the 50 kB in flight
    25093
    """

    def __init__(self, rate_mbps: float, **options: Any) -> None:
        super().__init__(rate_mbps, ("default",), **options)

    def assign(self, flows: pd.DataFrame, now_s: float) -> tuple[np.ndarray, float]:
        return np.zeros(len(flows), np.int64), math.nan

    def room(self, metrics: pd.DataFrame, queue: np.ndarray, share_mbps: np.ndarray) -> np.ndarray:
        long = metrics[metrics.is_long & metrics.rtt_ms.notna() & (metrics.protocol != UDP)]
        rtt_ms = max(long.rtt_ms.mean(), 1e-3) if len(long) else self.default_rtt_ms
        return np.array(
            [
                stanford_buffer_bytes(
                    self.rate_mbps, rtt_ms, max(len(long), 1), minimum_packets=self.minimum_packets
                )
            ]
        )
