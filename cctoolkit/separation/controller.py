"""The control plane: from measured flows to queues, buffers and shares.

A controller has a single step, :meth:`Controller.decide`: a table of flow metrics in, a :class:`Decision` out.
Measuring and executing is up to others: as ``control=`` it controls a simulation or a testbed
(``cct.simulate(scenario, control=controller)``), :func:`cctoolkit.separation.replay.replay` applies it to a
capture, and the control plane of a switch calls :meth:`~Controller.decide` with the content of its registers.

The controller of the paper is :class:`RttSeparation`. Its competitors are in ``competitors.py``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.arguments import number
from .._support.ethernet import FULL_FRAME_BYTES
from ..capture.protocols import UDP
from ..errors import ParameterError, SchemaError
from .buffers import bdp_bytes, stanford_buffer_bytes
from .jenks import IncrementalClasses, gvf_of
from .meters import LONG_BYTES, METRICS, RunMeter

if TYPE_CHECKING:
    from ..scenario import Scenario

__all__ = ["Controller", "Decision", "RttSeparation", "max_min_shares"]

SHARES = ("flows", "queues", "rtt")
#: The guard: minimum ratio of the mean RTTs of neighbouring classes, and minimum window of a fair share, in packets.
LEAST_RATIO = 1.25
LEAST_WINDOW = 4


def max_min_shares(rate: float, demands: Any, weights: Any = None) -> np.ndarray:
    """Share a rate so that nobody gets more than their demand, and the rest goes to the others by weight.

    Parameters
    ----------
    rate : float
        What to share, in any unit.
    demands : array-like of numbers, shape (n,)
        Demands, not negative; infinity: unlimited.
    weights : array-like of numbers above 0, shape (n,), optional
        Weights, equal by default.

    Returns
    -------
    array, shape (n,)
        Shares, which sum up to `rate`, or to the demands if that is less.

    Raises
    ------
    ParameterError
        A value is out of range.

    See Also
    --------
    Controller : uses it for the shares of queues

    Notes
    -----
    Weighted max-min fairness by water filling: a demand below the level times its weight is satisfied, and the
    level rises for the rest.

    Examples
    --------
    >>> from cctoolkit.separation.controller import max_min_shares
    >>> max_min_shares(10, [1, np.inf, np.inf], weights=[1, 1, 2]).tolist()
    [1.0, 3.0, 6.0]
    """
    demand = np.asarray(demands, np.float64)
    weight = np.ones(demand.shape) if weights is None else np.asarray(weights, np.float64)
    if demand.ndim != 1 or weight.shape != demand.shape:
        raise ParameterError("demands and weights: must be lists of the same length")
    if not rate >= 0 or not (demand >= 0).all() or not ((weight > 0) & np.isfinite(weight)).all():
        raise ParameterError("rate and demands must not be negative, weights must be positive")
    share = np.zeros(demand.shape)
    left, total = float(rate), weight.sum()
    for i in np.argsort(demand / weight, kind="stable"):  # the first to be satisfied first
        share[i] = min(demand[i], left * weight[i] / total)
        left -= share[i]
        total -= weight[i]
        if total <= 0:
            break
    return share


@dataclass(frozen=True)
class Decision:
    """A decision of a controller, and what is new in it.

    Attributes
    ----------
    now_s : float
        Time of the decision in s.
    flow_columns, queue_columns : dict of arrays
        Columns of `flows` and `queues`.
    flows : DataFrame
        ``flow_id``, ``queue``, ``role`` and ``rtt_ms`` of each flow with a rule, and the ``direction`` of its data
        if the metrics have it; all other flows go to queue 0.
    queues : DataFrame
        One row per queue: ``queue``, ``role``, number of ``flows``, their mean ``rtt_ms`` (NaN: unknown),
        ``weight`` for a work-conserving scheduler (at least 1 for queues with flows), ``share_mbps`` (the expected
        rate, including unused shares of others) and ``buffer_bytes`` (0: unchanged).
    gvf : float
        How well RTT classes describe the flows; NaN without classes.
    assignments : dict of int to int
        Flows whose queue changed, and their new queue; 0 for flows without a rule any more.
    buffers : dict of int to int
        Queues whose buffer changed, and the new size in bytes.
    weights : dict of int to float
        Queues whose weight changed, and the new weight.

    See Also
    --------
    Controller.decide : makes decisions
    cctoolkit.separation.router.Router : writes them as configuration

    Examples
    --------
    >>> from cctoolkit.separation.controller import RttSeparation
    >>> from cctoolkit.separation.meters import capture_metrics
    >>> metrics = capture_metrics(cct.example("rtt-unfairness").ingress, long_bytes=100_000)
    >>> decision = RttSeparation(rate_mbps=10, k=2).decide(metrics, now_s=0)
    >>> decision.assignments
    {0: 2, 1: 1}
    >>> decision.queues[["role", "flows", "rtt_ms"]].round(1)
          role  flows  rtt_ms
    0  default      1     NaN
    1    class      1    10.1
    2    class      1    80.2
    3      udp      0     NaN
    """

    now_s: float
    flow_columns: dict[str, np.ndarray]
    queue_columns: dict[str, Any]
    gvf: float
    assignments: dict[int, int]
    buffers: dict[int, int]
    weights: dict[int, float]

    # A closed loop decides many times a second of simulated time, and nobody looks at most of the tables.
    @functools.cached_property
    def flows(self) -> pd.DataFrame:
        """Each flow with a rule."""
        return pd.DataFrame(self.flow_columns)

    @functools.cached_property
    def queues(self) -> pd.DataFrame:
        """Each queue."""
        return pd.DataFrame(self.queue_columns)

    @property
    def changes(self) -> int:
        """Number of rules and settings that a router must change."""
        return len(self.assignments) + len(self.buffers) + len(self.weights)


class Controller(ABC):
    """Base class of controllers: derives shares, buffers and changes from an assignment of flows to queues.

    A controller implements :meth:`assign`, which chooses a queue for each flow. Everything else is here.

    Parameters
    ----------
    rate_mbps : float
        Rate of the bottleneck in Mbit/s.
    roles : sequence of str
        Roles of the queues, the first of which takes all flows without a rule.
    shares : {"flows", "queues", "rtt"}
        Weight of a queue: its number of flows (equal shares for flows), 1 (equal shares for queues), or its flows
        times their mean RTT.
    batch_s : float
        Minimum time between changes of rules in s; all changes are made at once.
    long_bytes : int
        Flows of a simulation or testbed are long from this many bytes on.
    default_rtt_ms : float
        RTT of flows with unknown RTT in ms, for buffers.
    minimum_packets : int
        As for :func:`~cctoolkit.separation.buffers.stanford_buffer_bytes`.
    tolerance : float
        Relative changes of buffers and weights below this are ignored.

    Attributes
    ----------
    decision : Decision or None
        The last decision.
    log : list of dict
        For each decision: ``now_s``, number of ``flows`` with a rule, rules ``added``, ``moved`` and ``removed``,
        ``settings`` changed (buffers and weights), ``gvf``.

    Raises
    ------
    ParameterError
        A value is out of range.

    See Also
    --------
    RttSeparation : queues by RTT
    cctoolkit.separation.competitors.CcaSeparation : queues by congestion control
    cctoolkit.separation.competitors.BufferResizing : a single queue

    Examples
    --------
    A controller with a queue for flows over 50 ms:

    >>> from cctoolkit.separation.controller import Controller
    >>> class Far(Controller):
    ...     def assign(self, flows, now_s):
    ...         return (flows["rtt_ms"] > 50).to_numpy(np.int64), np.nan
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100),
    ...     flows=[cct.Flow("cubic", rtt_ms=20), cct.Flow("cubic", rtt_ms=80)],
    ...     duration_s=2,
    ... )
    >>> controller = Far(rate_mbps=10, roles=("near", "far"))
    >>> run = cct.simulate(controller.scenario(scenario), control=controller, control_s=0.1)
    >>> controller.decision.flows[["flow_id", "role"]].values.tolist()
    [[1, 'far']]
    """

    #: Whether it sizes the buffers of queues.
    sizes_buffers = True

    def __init__(
        self,
        rate_mbps: float,
        roles: Sequence[str],
        *,
        shares: str = "flows",
        batch_s: float = 0.0,
        long_bytes: int = LONG_BYTES,
        default_rtt_ms: float = 100.0,
        minimum_packets: int = 10,
        tolerance: float = 0.1,
    ) -> None:
        for name, value, minimum in (
            ("rate_mbps", rate_mbps, 1e-9),
            ("default_rtt_ms", default_rtt_ms, 1e-9),
            ("minimum_packets", minimum_packets, 1),
            ("long_bytes", long_bytes, 1),
            ("batch_s", batch_s, 0),
            ("tolerance", tolerance, 0),
        ):
            number(name, value, low=minimum)
        if shares not in SHARES:
            raise ParameterError(f"shares: {shares!r} must be one of {', '.join(SHARES)}")
        self.rate_mbps, self.shares, self.batch_s = float(rate_mbps), shares, float(batch_s)
        self.default_rtt_ms, self.minimum_packets = float(default_rtt_ms), int(minimum_packets)
        self.tolerance, self.long_bytes = float(tolerance), int(long_bytes)
        self.roles = tuple(roles)
        self.decision: Decision | None = None
        self.log: list[dict[str, Any]] = []
        self._due_s = -math.inf
        self._rules = (np.zeros(0, np.int64), np.zeros(0, np.int64))  # flows with a rule, and their queues
        self._weights = np.ones(len(self.roles))
        self._buffers = np.zeros(len(self.roles), np.int64)
        self._one_queue_bytes = bdp_bytes(self.rate_mbps, self.default_rtt_ms)  # scenario() knows better
        self._meter: Any = None

    @property
    def n_queues(self) -> int:
        """Number of queues, including the default one."""
        return len(self.roles)

    def scenario(self, scenario: Scenario) -> Scenario:
        """The scenario with the queues of this controller: work-conserving round robin, all with the same AQM.

        Each queue starts with the buffer of the bottleneck; the controller changes it as it learns more.
        """
        from ..scenario import Queue

        old = scenario.bottleneck
        first = old.queue_list()[0]
        room = first.buffer_bytes or FULL_FRAME_BYTES * (first.buffer_packets or 1)
        self._one_queue_bytes = float(room)
        queues = (Queue(buffer_bytes=room, aqm=first.aqm),) * self.n_queues
        new = dataclasses.replace(
            old,
            buffer_packets=None,
            buffer_bytes=room,
            scheduler="drr" if self.n_queues > 1 else "fifo",
            queues=queues,
        )
        flows = tuple(dataclasses.replace(f, queue=0) for f in scenario.flows)
        return dataclasses.replace(scenario, bottleneck=new, flows=flows)

    # -- to be implemented by controllers
    # ------------------------------------------------------------------------------

    @abstractmethod
    def assign(self, flows: pd.DataFrame, now_s: float) -> tuple[np.ndarray, float]:
        """Choose queues for flows.

        Parameters
        ----------
        flows : DataFrame
            :data:`METRICS`, one row per flow.
        now_s : float
            Time in s.

        Returns
        -------
        array of int64, float
            Queue of each flow (0: no rule), and the GVF of the classes, or NaN.
        """

    def load(self, queue: np.ndarray) -> np.ndarray:
        """Number of flows for the share of each queue, shape (n_queues,).

        Flows without a rule count at most as many as those with one (or as there are queues), so that thousands of
        short flows, which need little, do not get everything.
        """
        load = np.bincount(queue, minlength=self.n_queues).astype(np.float64)
        load[0] = min(load[0], max(load[1:].sum(), self.n_queues))
        return load

    def room(self, metrics: pd.DataFrame, queue: np.ndarray, share_mbps: np.ndarray) -> np.ndarray:
        """Buffer of each queue in bytes, shape (n_queues,): BDP/sqrt(N) of its flows; 0: unchanged."""
        if not self.sizes_buffers:
            return np.zeros(self.n_queues, np.int64)
        count, mean = self._flows_and_rtt(metrics, queue)
        used = np.where(np.isnan(mean), self.default_rtt_ms, np.maximum(mean, 1e-3))
        return stanford_buffer_bytes(
            share_mbps, used, np.maximum(count, 1), minimum_packets=self.minimum_packets
        )

    def _flows_and_rtt(self, metrics: pd.DataFrame, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number of flows of each queue, and the mean of their known RTTs (NaN: none)."""
        n = self.n_queues
        rtt = metrics.rtt_ms.to_numpy(np.float64)
        known = np.isfinite(rtt)
        total = np.bincount(queue[known], rtt[known], minlength=n)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.bincount(queue, minlength=n), total / np.bincount(queue[known], minlength=n)

    # -- the step
    # ------------------------------------------------------------------------------------------------------

    def decide(self, metrics: pd.DataFrame, now_s: float) -> Decision:
        """Decide about the measured flows.

        Parameters
        ----------
        metrics : DataFrame
            At least :data:`METRICS`; missing flows have ended.
        now_s : float
            Time in s on any monotonic clock.

        Returns
        -------
        Decision
            What should be, and what is new.

        Raises
        ------
        SchemaError
            A column is missing.
        """
        names = set(metrics.columns.tolist())
        missing = [name for name in METRICS if name not in names]
        if missing:
            raise SchemaError(f"metrics: columns are missing: {', '.join(missing)}")
        if self.decision is not None and now_s < self._due_s:
            self.decision = dataclasses.replace(
                self.decision, now_s=now_s, assignments={}, buffers={}, weights={}
            )
            return self.decision
        self._due_s = now_s + self.batch_s - 1e-9
        ids = metrics["flow_id"].to_numpy(np.int64)
        if (ids[1:] < ids[:-1]).any():
            metrics = metrics.sort_values("flow_id", kind="stable", ignore_index=True)
        queue, gvf = self.assign(metrics, now_s)
        assignments, counts = self._new_rules(metrics.flow_id.to_numpy(np.int64), queue)
        table, weights, buffers = self._settings(metrics, queue)
        ruled = queue > 0
        chosen = {
            "flow_id": metrics.flow_id.to_numpy()[ruled],
            "queue": queue[ruled],
            "role": np.asarray(self.roles, object)[queue[ruled]],
            "rtt_ms": metrics.rtt_ms.to_numpy(np.float64)[ruled],
        }
        if "direction" in names:
            chosen["direction"] = metrics.direction.to_numpy()[ruled]
        self.decision = Decision(
            now_s=now_s,
            flow_columns=chosen,
            queue_columns=table,
            gvf=gvf,
            assignments=assignments,
            buffers=buffers,
            weights=weights,
        )
        self.log.append(
            {
                "now_s": now_s,
                "flows": int(ruled.sum()),
                **counts,
                "settings": len(buffers) + len(weights),
                "gvf": gvf,
            }
        )
        return self.decision

    def _new_rules(self, ids: np.ndarray, queue: np.ndarray) -> tuple[dict[int, int], dict[str, int]]:
        ruled = queue > 0
        ids, queue = ids[ruled], queue[ruled]
        known, held = self._rules  # sorted by flow
        at = np.searchsorted(known, ids)
        was = np.zeros(len(ids), np.int64)
        if len(known):
            same = known[np.minimum(at, len(known) - 1)] == ids
            was[same] = held[at[same]]
        gone = known[~np.isin(known, ids)]
        differ = was != queue
        counts = {
            "added": int((was == 0).sum()),
            "moved": int((differ & (was > 0)).sum()),
            "removed": len(gone),
        }
        self._rules = ids, queue
        changed = dict(zip(ids[differ].tolist(), queue[differ].tolist(), strict=True))
        return changed | dict.fromkeys(gone.tolist(), 0), counts

    def _settings(
        self, metrics: pd.DataFrame, queue: np.ndarray
    ) -> tuple[dict[str, Any], dict[int, float], dict[int, int]]:
        n = self.n_queues
        count, mean = self._flows_and_rtt(metrics, queue)
        used = np.where(np.isnan(mean), self.default_rtt_ms, np.maximum(mean, 1e-3))
        load = np.maximum(self.load(queue), np.where(count > 0, 1e-3, 1.0))
        if self.shares == "queues":
            load = np.ones(n)
        elif self.shares == "rtt":
            load = load * used
        here = count > 0
        weights = load / (load[here].min() if here.any() else load.min())
        if weights.max() > 64:  # a turn of round robin should be short
            weights = np.maximum(weights * 64 / weights.max(), 0.05)
        # an empty queue expects what it would get for a flow
        everyone = load[here].sum()
        fair = self.rate_mbps * load / np.where(here, everyone, everyone + load)
        sent = np.bincount(queue, metrics.throughput_mbps.to_numpy(np.float64), minlength=n)
        content = sent < 0.9 * fair
        share = fair.copy()
        if here.any():
            demand = np.where(content, np.maximum(1.25 * sent, 0.05 * fair), np.inf)
            share[here] = max_min_shares(self.rate_mbps, demand[here], load[here])
        # a flow may soon use its full share, so the buffer is for at least the fair share
        room = self.room(metrics, queue, np.maximum(share, fair))
        new_weights = np.abs(weights - self._weights) > self.tolerance * self._weights
        new_room = np.abs(room - self._buffers) > self.tolerance * self._buffers
        self._weights = np.where(new_weights, weights, self._weights)
        self._buffers = np.where(new_room, room, self._buffers)
        table = {
            "queue": np.arange(n),
            "role": list(self.roles),
            "flows": count,
            "rtt_ms": mean,
            "weight": self._weights,
            "share_mbps": share,
            "buffer_bytes": self._buffers,
        }
        return (
            table,
            {int(q): float(self._weights[q]) for q in np.flatnonzero(new_weights)},
            {int(q): int(self._buffers[q]) for q in np.flatnonzero(new_room)},
        )

    def __call__(self, target: Any) -> None:
        """One step on a simulation or a testbed: measure, decide, execute.

        Parameters
        ----------
        target : Simulation, or the argument of a testbed's ``control``
            Anything with ``now_s``, ``flow_columns()``, ``assign_queue``, ``set_weight`` and ``set_buffer``.
        """
        if self._meter is None:
            self._meter = RunMeter(self.long_bytes)
        decision = self.decide(self._meter.read(target), target.now_s)
        for flow, queue in decision.assignments.items():
            target.assign_queue(flow, queue)
        if self.n_queues > 1:
            for queue, weight in decision.weights.items():
                target.set_weight(queue, weight)
        for queue, octets in decision.buffers.items():
            target.set_buffer(queue, octets=octets)


class RttSeparation(Controller):
    """The controller of the paper: assigns long flows to queues by RTT class.

    Queue 0 takes everything without a rule: short flows, and flows whose RTT is not yet known. Queues 1 to K are
    for the classes, another one is for isolated flows if there is a latency threshold, and the last one is for UDP.

    Parameters
    ----------
    rate_mbps : float
        Rate of the bottleneck in Mbit/s.
    k : int
        Largest number of classes.
    method : {"exact", "paper"}
        As for :func:`~cctoolkit.separation.jenks.jenks_classes`.
    latency_threshold_ms : float or sequence of float, optional
        Tolerated queueing delay in ms, for all queues or for each of the queues 0 to K. If half of the flows of a
        queue wait longer, the one with the largest offered rate is isolated.
    separate_udp : bool
        Give UDP its own queue.
    udp_share : float
        Number of flows that the share of that queue corresponds to, however many UDP flows there are.
    rtt_resolution_ms : float
        RTTs are rounded to multiples of this before classification, in ms: closer flows need no separation.
    margin, class_tolerance : float
        Hysteresis of flows and classes, as for :class:`~cctoolkit.separation.jenks.IncrementalClasses`.
    guard : bool
        Separate only where it can help, and never starve queue 0; see Notes. Not in the paper.
    **options
        Options of :class:`Controller`: ``shares``, ``batch_s``, ``long_bytes``, ``default_rtt_ms``,
        ``minimum_packets``, ``tolerance``.

    Raises
    ------
    ParameterError
        A value is out of range.

    See Also
    --------
    cctoolkit.jenks_classes : the classes
    cctoolkit.separation.replay.replay : the decisions about a capture
    cctoolkit.separation.router.Router : the configuration of a router

    Notes
    -----
    Gomez et al., sections 3 and 4. What differs from the paper, or is not specified there:

    - Shares are guarantees, not limits: the scheduler is work conserving, so unused shares go to other queues at once
      (test 2). ``Decision.queues.share_mbps`` is the result, computed explicitly for routers that can only limit.
    - The threshold (test 5) applies to the queueing delay, the latest RTT minus the smallest, not to the RTT: no
      threshold suits classes of both 10 ms and 200 ms. An isolated flow stays so until it ends, and after each
      isolation the queue is left alone for some round trips, until the effect can be measured.
    - The base RTT is the smallest one seen. A flow whose packets all waited seems further away than it is.
    - Buffers are BDP/sqrt(N), with the mean RTT of the class, its number of flows and its share of the link.
    - UDP flows are a single rule for a router, by protocol.

    The paper's rules make some traffic less fair than a single queue does (``docs/separation.md``, "When separation
    pays"). With ``guard=True``, four rules limit that harm:

    - Queue 0 counts all of its TCP flows with a known RTT, so those that are not long yet get their share. (By default
      it counts at most as many as there are long ones.)
    - The mean RTT of a class is at least 1.25 times that of the class below; nearer classes are merged, and if only one
      is left, all flows share queue 0.
    - If a fair share of the link is less than four packets a round trip, all flows share queue 0: windows this small
      cannot repair a loss without a timeout (RFC 5681 needs three duplicate ACKs), whatever their RTTs. Flows are
      counted by their rates, as (sum of rates)² / (sum of squared rates), so idle ones do not count.
    - A queue's buffer is its share of the bottleneck's (of the one in :meth:`~Controller.scenario`, else of the BDP
      with `default_rtt_ms`) instead of BDP/sqrt(N), so separation never costs buffer.

    Examples
    --------
    >>> from cctoolkit.separation.controller import RttSeparation
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100),
    ...     flows=[cct.Flow("cubic", rtt_ms=10, count=2), cct.Flow("cubic", rtt_ms=100, count=2)],
    ...     duration_s=4,
    ... )
    >>> controller = RttSeparation(rate_mbps=10, k=2, long_bytes=10_000)
    >>> run = cct.simulate(controller.scenario(scenario), control=controller, control_s=0.25)
    >>> controller.decision.flows["queue"].tolist()
    [1, 1, 2, 2]
    >>> controller.decision.queues[["role", "flows", "buffer_bytes"]]
          role  flows  buffer_bytes
    0  default      0         25000
    1    class      2         15140
    2    class      2         44286
    3      udp      0         25000
    """

    def __init__(
        self,
        rate_mbps: float,
        k: int = 4,
        *,
        method: str = "exact",
        latency_threshold_ms: float | Sequence[float] | None = None,
        separate_udp: bool = True,
        udp_share: float = 1.0,
        rtt_resolution_ms: float = 1.0,
        margin: float = 0.1,
        class_tolerance: float = 0.02,
        guard: bool = False,
        **options: Any,
    ) -> None:
        self.guard = bool(guard)
        self._classes = IncrementalClasses(
            k,
            margin=margin,
            tolerance=class_tolerance,
            method=method,
            ratio=LEAST_RATIO if self.guard else 1.0,
        )
        self.k = self._classes.k
        roles = ["default", *("class",) * self.k]
        self._threshold: np.ndarray | None = None
        if latency_threshold_ms is not None:
            threshold = np.asarray(latency_threshold_ms, np.float64)
            if threshold.ndim > 1 or threshold.size not in (1, self.k + 1) or not (threshold > 0).all():
                raise ParameterError(
                    f"latency_threshold_ms: {latency_threshold_ms!r} must be a time, or {self.k + 1} of them"
                )
            self._threshold = np.broadcast_to(threshold, (self.k + 1,))
            self._isolation_queue = len(roles)
            roles.append("isolated")
        self._udp_queue = len(roles) if separate_udp else 0
        if separate_udp:
            roles.append("udp")
        for name, value in (("udp_share", udp_share), ("rtt_resolution_ms", rtt_resolution_ms)):
            number(name, value, above=0)
        self.udp_share, self.rtt_resolution_ms = float(udp_share), float(rtt_resolution_ms)
        self.isolated: set[int] = set()
        self._quiet_until_s = np.full(self.k + 1, -math.inf)
        self._answered = 0  # flows of queue 0 with a known RTT: those without one may be forged
        super().__init__(rate_mbps, roles, **options)

    @property
    def classes(self) -> IncrementalClasses:
        """The classes, and the number of their rules so far; their queue 0 is queue 1 here."""
        return self._classes

    def load(self, queue: np.ndarray) -> np.ndarray:
        load = super().load(queue)
        if self.guard:
            load[0] = max(load[0], self._answered)
        if self._udp_queue:
            load[self._udp_queue] = min(load[self._udp_queue], self.udp_share)
        return load

    def room(self, metrics: pd.DataFrame, queue: np.ndarray, share_mbps: np.ndarray) -> np.ndarray:
        if not self.guard:
            return super().room(metrics, queue, share_mbps)
        part = np.ceil(share_mbps / self.rate_mbps * self._one_queue_bytes)
        return np.maximum(part, self.minimum_packets * FULL_FRAME_BYTES).astype(np.int64)

    def assign(self, flows: pd.DataFrame, now_s: float) -> tuple[np.ndarray, float]:
        ids = flows.flow_id.to_numpy(np.int64)
        rtt = flows.rtt_ms.to_numpy(np.float64)
        queue = np.zeros(len(flows), np.int64)
        udp = flows.protocol.to_numpy() == UDP
        queue[udp] = self._udp_queue
        self.isolated &= set(ids.tolist())
        apart = np.isin(ids, list(self.isolated)) if self.isolated else np.zeros(len(ids), np.bool_)
        if self._threshold is not None:
            queue[apart] = self._isolation_queue
        known = flows.is_long.to_numpy(np.bool_) & np.isfinite(rtt) & ~udp & ~apart
        rounded = np.maximum(np.rint(rtt[known] / self.rtt_resolution_ms), 1) * self.rtt_resolution_ms
        queue[known] = 1 + self._classes.update(ids[known], rounded)
        if self.guard and known.any():
            rates = flows.throughput_mbps.to_numpy(np.float64)[~udp & np.isfinite(rtt)]
            if not self._can_help(rtt[known], queue[known], rates):
                queue[known] = 0
        gvf = gvf_of(rounded, queue[known]) if queue[known].any() else math.nan
        if self._threshold is not None:
            self._isolate(flows, ids, queue, now_s)
        self._answered = int(np.isfinite(rtt[(queue == 0) & ~udp]).sum())
        return queue, gvf

    def _can_help(self, rtt_ms: np.ndarray, queue: np.ndarray, rates_mbps: np.ndarray) -> bool:
        """Whether there is more than one class, and a fair share is more than a few packets a round trip."""
        if np.unique(queue).size < 2:
            return False
        squares = float((rates_mbps**2).sum())
        flows = float(rates_mbps.sum()) ** 2 / squares if squares > 0 else len(rates_mbps)
        return bool(bdp_bytes(self.rate_mbps / flows, rtt_ms.mean()) >= LEAST_WINDOW * FULL_FRAME_BYTES)

    def _isolate(self, flows: pd.DataFrame, ids: np.ndarray, queue: np.ndarray, now_s: float) -> None:
        assert self._threshold is not None
        waited = flows.latest_rtt_ms.to_numpy(np.float64) - flows.rtt_ms.to_numpy(np.float64)
        offered = flows.offered_mbps.to_numpy(np.float64)
        for q in range(self.k + 1):
            members = np.flatnonzero((queue == q) & np.isfinite(waited))
            if members.size < 2 or now_s < self._quiet_until_s[q]:
                continue
            if np.median(waited[members]) > self._threshold[q]:
                culprit = members[offered[members].argmax()]
                self.isolated.add(int(ids[culprit]))
                queue[culprit] = self._isolation_queue
                last_rtt_ms = flows.latest_rtt_ms.to_numpy(np.float64)[members].max()
                self._quiet_until_s[q] = now_s + 4 * last_rtt_ms / 1e3
