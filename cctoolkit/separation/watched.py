"""A capture on its way through a controller, with its flows, duration and busiest second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from .._support.state import grown
from ..capture.model import Capture
from .controller import Decision
from .workload import BusiestSecond

__all__ = ["WatchedCapture"]

#: Over a shorter time than this a few packets back to back would make any rate.
_SHORTEST_S = 0.01


class WatchedCapture:
    """Passes on the parts of a capture, and remembers what decisions do not include.

    Parameters
    ----------
    parts : iterable of Capture
        The parts, which iteration yields once and unchanged.

    Attributes
    ----------
    busiest : BusiestSecond
        Traffic in the busiest second of a direction.
    first_ns, last_ns : int
        Times of the first and last packet; `first_ns` is None before any packet.
    """

    def __init__(self, parts: Iterable[Capture]) -> None:
        self._parts = parts
        self._seen = np.zeros(0, np.bool_)
        self._frames: list[pd.DataFrame] = []
        self.busiest = BusiestSecond()
        self.first_ns: int | None = None
        self.last_ns = 0

    def __iter__(self) -> Iterator[Capture]:
        for part in self._parts:
            if len(part):
                ts, keys = part.columns["ts_ns"], part.keys
                if self.first_ns is None:
                    self.first_ns, self.last_ns = int(ts.min()), int(ts.max())
                self.last_ns = max(self.last_ns, int(ts.max()))
                self.busiest.update(part)
                self._seen = grown(self._seen, int(keys.flow_id.max()) + 1)
                fresh = keys.take(~self._seen[keys.flow_id])
                self._seen[keys.flow_id] = True
                self._frames.append(
                    pd.DataFrame(
                        {
                            "flow_id": fresh.flow_id,
                            "src": fresh.src_text(),
                            "sport": fresh.sport,
                            "dst": fresh.dst_text(),
                            "dport": fresh.dport,
                            "protocol": fresh.protocol,
                        }
                    )
                )
            yield part

    @property
    def seconds(self) -> float:
        """Time from the first packet to the last in s, positive."""
        return max((self.last_ns - (self.first_ns or 0)) / 1e9, 1e-9)

    @property
    def link_mbps(self) -> float:
        """Estimated rate of the link: traffic in the busiest second, or over a capture that is shorter than that."""
        return self.busiest.mbps / min(max(self.seconds, _SHORTEST_S), 1.0)

    def flows_of(self, decision: Decision) -> pd.DataFrame:
        """Endpoints and protocol of the flows of a decision."""
        if len(self._frames) > 1:
            self._frames = [pd.concat(self._frames, ignore_index=True)]
        flows = self._frames[0]
        return flows[flows.flow_id.isin(decision.flows.flow_id)]

    def assignments(self, decision: Decision, metrics: pd.DataFrame) -> pd.DataFrame:
        """Flows of a decision with queue, role, 5-tuple (of the data), RTT and bytes, ordered by queue and RTT.

        Parameters
        ----------
        decision : Decision
            The decision.
        metrics : DataFrame
            The metrics that it is based on, with the bytes.
        """
        table = decision.flows.merge(metrics[["flow_id", "bytes"]], on="flow_id")
        table = table.merge(self.flows_of(decision), on="flow_id")
        back = (table.direction == 1).to_numpy()
        for a, b in (("src", "dst"), ("sport", "dport")):
            table[a], table[b] = np.where(back, table[b], table[a]), np.where(back, table[a], table[b])
        columns = ["queue", "role", "flow_id", "src", "sport", "dst", "dport", "protocol", "rtt_ms", "bytes"]
        return table.sort_values(["queue", "rtt_ms", "flow_id"], ignore_index=True)[columns]
