"""Control of a testbed run, with the same Python function as for a simulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from ..errors import ParameterError
from ..scenario import Scenario
from .collect import Assignments, queue_numbers, queue_statistics
from .plan import Plan, batch
from .traffic import read_queues, read_series

__all__ = ["Steering"]

#: What to remember of each flow (columns of :func:`~.traffic.read_series`).
_COLUMNS = ["bytes_sent", "bytes_acked", "delivered_packets", "delivered_ce_packets", "retransmits", "min_rtt_us",
          "rtt_us", "cwnd_packets"]  # fmt: skip


class Steering:
    """A run under way, as seen by a controller: inspect flows and queues, change something, return.

    It has the members of :class:`cctoolkit.Simulation` that a controller needs, so one function can control both.
    Changes become ``tc`` commands, executed when the controller returns. On the ``uml`` backend, virtual time
    stands still until then; elsewhere, traffic continues meanwhile.

    Attributes
    ----------
    scenario : Scenario
        What is run.
    now_s : float
        Time since the start in s.
    assignments : list of (int, int, int)
        Assignments so far: nanoseconds since the start, flow, queue.

    See Also
    --------
    cctoolkit.run_testbed : calls a function with it (``control=``)
    cctoolkit.Simulation : has the same members

    Examples
    --------
    >>> def slower(run: Steering | cct.Simulation) -> None:
    ...     if run.now_s > 5:
    ...         run.set_rate(5.0)
    >>> cct.run_testbed(scenario, "slower", control=slower)  # doctest: +SKIP
    """

    def __init__(
        self, plan: Plan, directory: Path, interval_ns: int, control: Callable[[Steering], None]
    ) -> None:
        self.scenario: Scenario = plan.scenario
        self.now_s = 0.0
        self.assignments: Assignments = []
        self._plan, self._directory, self._interval_ns, self._control = plan, directory, interval_ns, control
        self._specs = plan.scenario.flow_list()
        self._weights = [q.weight for q in plan.scenario.bottleneck.queue_list()]
        self._rate_mbps = plan.scenario.bottleneck.rate_mbps
        self._rates = [(round(s * 1e9), mbps) for s, mbps in plan.scenario.bottleneck.rate_schedule]
        self._queue_of = [-1 if f.queue is None else f.queue for f in self._specs]
        self._status = pd.DataFrame(np.nan, index=range(len(self._specs)), columns=_COLUMNS)
        self._open = np.zeros(len(self._specs), np.bool_)
        self._ended_s = np.full(len(self._specs), np.nan)
        self._statistics = pd.DataFrame()
        self._lines: list[str] = []
        self._answered = 0

    def poll(self) -> None:
        """Answer the traffic program if it asks."""
        for status in self._directory.glob("status.[0-9]*"):
            number = int(status.suffix[1:])
            if number <= self._answered:  # not yet removed
                continue
            self._answered = number
            self._read_status(status, number * self._interval_ns)
            self._lines = []
            self._control(self)
            with replacing(self._directory / f"answer.{number}") as tmp:
                tmp.write_text(batch(self._lines), encoding="utf-8")

    def _read_status(self, status: Path, now_ns: int) -> None:
        self.now_s = now_ns / 1e9
        fresh = read_series(status).set_index("index")[_COLUMNS].astype("Float64").astype(np.float64)
        self._status.loc[fresh.index] = fresh
        still = np.isin(np.arange(len(self._specs)), fresh.index)
        self._ended_s[self._open & ~still] = self.now_s
        self._open = still
        self._statistics = read_queues(status.with_name(f"queues{status.suffix}"))
        while self._rates and self._rates[0][0] <= now_ns:
            self._rate_mbps = self._rates.pop(0)[1]

    # -- inspect
    # -------------------------------------------------------------------------------------------------------

    @property
    def flows(self) -> pd.DataFrame:
        """One row per flow: parameters and results so far, named as in ``Simulation.flows``.

        ``end_s`` is when it was first missing; ``latest_rtt_ms`` is the kernel's smoothed RTT; received payload is the
        acknowledged payload.
        """
        return pd.DataFrame(self.flow_columns())

    def flow_columns(self) -> dict[str, Any]:
        """Columns of `flows`."""
        status, specs, plan = self._status, self._specs, self._plan.flows
        payload = np.array([f.payload_bytes for f in plan])
        udp = np.array([f.is_udp for f in plan])
        start_s = np.array([f.start_s for f in specs])
        received = np.where(udp, status.delivered_packets * payload, status.bytes_acked)
        received = np.nan_to_num(received).astype(np.int64)
        seconds = np.fmin(self._ended_s, self.now_s) - start_s
        return {
            "flow_id": np.arange(len(specs), dtype=np.uint32),
            "name": [f.label for f in specs],
            "cca": [f.cca_name for f in specs],
            "base_rtt_ms": [f.rtt_ms for f in specs],
            "start_s": start_s,
            "end_s": self._ended_s,
            "queue": self._queue_of,
            "acked_bytes": np.where(udp, 0, received),
            "received_bytes": received,
            "goodput_mbps": received * 8e-6 / np.maximum(seconds, 1e-9),
            "sent_packets": np.ceil(status.bytes_sent.fillna(0) / payload).astype(np.int64),
            "received_packets": status.delivered_packets.fillna(0).astype(np.int64),
            "retransmits": status.retransmits.fillna(0).astype(np.int64),
            "marked_packets": status.delivered_ce_packets.fillna(0).astype(np.int64),
            "min_rtt_ms": np.where(udp, np.nan, status.min_rtt_us / 1e3),
            "latest_rtt_ms": np.where(udp, np.nan, status.rtt_us / 1e3),
            "cwnd_packets": status.cwnd_packets,
        }

    @property
    def queues(self) -> pd.DataFrame:
        """One row per queue: counters of its queue discipline, named as in ``Simulation.queues``."""
        rows = []
        for queue in queue_numbers(self._plan):
            now = queue_statistics(self._plan, self._statistics, queue).iloc[-1]
            rows.append(
                {
                    "queue": queue,
                    "packets": int(now.backlog_packets),
                    "bytes": int(now.backlog_bytes),
                    "arrived_packets": int(now.packets) + int(now.backlog_packets) + int(now.drops),
                    "sent_packets": int(now.packets),
                    "sent_bytes": int(now.bytes),
                    "dropped_full": int(now.dropped_full),
                    "dropped_enqueue": int(now.dropped_enqueue),
                    "dropped_dequeue": int(now.dropped_dequeue),
                    "probability": float(now.probability),
                }
            )
        return pd.DataFrame(rows)

    # -- change
    # --------------------------------------------------------------------------------------------------------

    def assign_queue(self, flow: int, queue: int) -> None:
        """Assign further packets of `flow` to `queue`; those already waiting stay where they are.

        Raises
        ------
        ParameterError
            There is no such flow or queue.
        """
        if not 0 <= flow < len(self._specs):
            raise ParameterError(f"flow: {flow} does not exist; there are {len(self._specs)}, from 0")
        self._check_queue(queue)
        if self._queue_of[flow] != queue:
            self._queue_of[flow] = queue
            self._lines += self._plan.tree.assign(flow, self._plan.flows[flow].source_address, queue)
            self.assignments.append((round(self.now_s * 1e9), int(flow), int(queue)))

    def set_rate(self, rate_mbps: float) -> None:
        """Change the rate of the link from the next packet on."""
        if not rate_mbps > 0:
            raise ParameterError(f"rate_mbps: {rate_mbps!r} must be positive")
        self._rate_mbps = float(rate_mbps)
        self._lines += self._plan.tree.set_rate(self._rate_mbps, self._weights)

    def set_buffer(self, queue: int, packets: int | None = None, octets: int | None = None) -> None:
        """Change the buffer of `queue`, in packets or bytes as before (None: unchanged)."""
        self._check_queue(queue)
        self._lines += self._plan.tree.set_buffer(queue, packets, octets)

    def set_weight(self, queue: int, weight: float) -> None:
        """Change the weight of `queue` in round robin."""
        self._check_queue(queue)
        if not weight > 0:
            raise ParameterError(f"weight: {weight!r} must be positive")
        self._weights[queue] = float(weight)
        self._lines += self._plan.tree.set_weight(queue, self._weights, self._rate_mbps)

    def _check_queue(self, queue: int) -> None:
        n = len(queue_numbers(self._plan))
        if not 0 <= queue < n:
            raise ParameterError(f"queue: {queue} does not exist; there are {n}, from 0")
