"""What others do about unfairness with the same measurements: queues by congestion control, one resized buffer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ..errors import ParameterError, SchemaError
from .buffers import stanford_buffer_bytes
from .controller import Controller
from .meters import UDP

__all__ = ["BufferResizing", "CcaSeparation"]


class CcaSeparation(Controller):
    """Queues by congestion control, as P4air and P4CCI have them.

    Parameters
    ----------
    rate_mbps : float
        Of the bottleneck.
    k : int
        Queues for congestion controls; those that come when all are taken share the last one.
    predict : function, optional
        Takes the metrics of the flows that are there (:data:`~cctoolkit.separation.meters.METRICS`) and gives
        the name of the congestion control of each, empty where it does not know. Without it, the true one: the column
        ``cca``, as if the classifier never erred.
    sizes_buffers : bool
        Size the buffers as :class:`~cctoolkit.separation.controller.RttSeparation` does, so that a comparison
        shows what the queues alone do. The papers say nothing of buffers, so by default they stay as they are.
    **options
        Of :class:`~cctoolkit.separation.controller.Controller`.

    Raises
    ------
    ParameterError
        A value out of range.

    Notes
    -----
    Turkovic and Kuipers, "P4air" (2020); Kfoury, Crichigno and Bou-Harb, "P4CCI" (2023). P4air also punishes flows
    that take more than their share and gives groups several queues; here the queues share by their number of
    flows. Only long flows are classified, as in RttSeparation. UDP counts as a congestion control of its own.
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
        if isinstance(k, bool) or k != int(k) or k < 1:
            raise ParameterError(f"k: {k!r} is not a whole number of at least 1")
        self.k = int(k)
        self.predict = predict
        self.sizes_buffers = sizes_buffers
        self.queue_of: dict[str, int] = {}
        super().__init__(rate_mbps, ("default", *("class",) * self.k), **options)

    def assign(self, flows: pd.DataFrame, now_s: float) -> tuple[np.ndarray, float]:
        if self.predict is None and "cca" not in flows:
            raise SchemaError("metrics: there is no cca, and no function to predict it")
        names = np.asarray(flows.cca if self.predict is None else self.predict(flows), object)
        names = np.where((flows.protocol == UDP).to_numpy(), "udp", names)
        names = np.where(flows.is_long.to_numpy(np.bool_) | (names == "udp"), names, "")
        for name in pd.unique(names):
            if name and name not in self.queue_of:
                self.queue_of[name] = min(len(self.queue_of) + 1, self.k)
        return np.array([self.queue_of.get(name, 0) for name in names], np.int64), math.nan


class BufferResizing(Controller):
    """One queue whose buffer follows the traffic, as P4BS has it: BDP/sqrt(N) of the long flows there are.

    Parameters
    ----------
    rate_mbps : float
        Of the bottleneck.
    **options
        Of :class:`~cctoolkit.separation.controller.Controller`.

    Notes
    -----
    Kfoury, Crichigno and Bou-Harb, "P4BS" (2023), its rule by the number of long flows and their RTT. The paper's
    further search by measured loss and delay is left out.
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
