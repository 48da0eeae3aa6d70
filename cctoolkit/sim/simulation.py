"""Runs a scenario in the event loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from .._support.algorithm.base import explained_failure
from .._support.arguments import number, whole
from .._support.memory import require
from .._support.version import __version__
from .._support.waiting import progress_bar
from ..aqm import QUEUE
from ..cca import ACK, FLOW
from ..errors import AlgorithmError, ParameterError
from ..scenario.run import Run
from ..scenario.scenario import LONG, RATE, WEIGHT, Flow, Scenario
from . import layout
from .engine import BROKEN, FULL, PAUSED, run
from .layout import (
    DROPS,
    LINE,
    NEVER,
    NODE,
    PLACE,
    PORT,
    ROW,
    SEGMENT,
    SENDER,
    SLOT,
)
from .taps import Taps, flow_keys

__all__ = ["Simulation", "simulate"]

_ROWS = 1 << 16
#: Memory of a flow, measured with CUBIC; and of each value of a series, which is there twice when the run ends.
_BYTES_PER_FLOW = 2600
_BYTES_PER_SAMPLE = 16
#: Smallest interval of samples and of calls to a controller.
_SHORTEST_S = 1e-6
#: The state of so many flows and their packets does not fit into a core's cache: the loop looks ahead.
_MANY_FLOWS = 256
_ECN = {"off": 0, "classic": 1, "accurate": 2, "l4s": 3}
_SCHEDULER = {
    "fifo": layout.FIFO,
    "drr": layout.DRR,
    "priority": layout.PRIORITY,
    "fq": layout.FQ,
    "dual_wrr": layout.DUAL_WRR,
    "dual_ts": layout.TIME_SHIFTED,
}
_HEADERS_TCP, _HEADERS_UDP = 66, 42
#: Linux's receive window in packets: initially, its limit without tuning, and the initial estimate per round trip.
_FIRST_WINDOW = 45, 53
_BEST_COPIED = 10

_TIMES = ("ack_ns", "access_ns", "pace_ns", "timer_ns", "delack_ns", "stop_ns", "toggle_ns", "write_ns", "reorder_ns",
          "probe_ns", "rto_at_ns")  # fmt: skip
_LISTS = ("first", "last", "flight_head", "flight_tail", "lost_head", "lost_tail", "ack_head", "ack_tail",
"access_head",
          "access_tail", "held")  # fmt: skip

#: Columns of the flow series: name and origin.
FLOW_SERIES = {
    "cwnd_packets": ("flows", "cwnd"),
    "ssthresh_packets": ("flows", "ssthresh"),
    "pacing_bps": ("flows", "pacing_bps"),
    "srtt_ns": ("flows", "srtt_ns"),
    "rtt_ns": ("flows", "latest_rtt_ns"),
    "inflight_packets": ("flows", "inflight"),
    "in_recovery": ("flows", "in_recovery"),
    "delivered_packets": ("flows", "delivered"),
    "lost_packets": ("flows", "lost"),
    "marked_packets": ("senders", "ce"),
    "received_bytes": ("senders", "received_bytes"),
    "sent_packets": ("senders", "sent"),
}
QUEUE_SERIES = {
    "packets": ("queues", "packets"),
    "bytes": ("queues", "bytes"),
    "delay_ns": ("queues", "last_delay_ns"),
    "probability": ("queues", "probability"),
    "sent_packets": ("lines", "sent"),
    "sent_bytes": ("lines", "sent_bytes"),
    "marked_packets": ("lines", "marked"),
    "delay_sum_ns": ("lines", "delay_sum_ns"),
}


class Simulation:
    """A simulation under way: run it up to a time, look at it, change it, continue.

    Parameters
    ----------
    scenario : Scenario
        What to simulate.
    record : bool
        Record both taps.
    sample_s : float, optional
        Sampling interval of the series in s; None: no series.

    See Also
    --------
    simulate : run a scenario to its end

    Examples
    --------
    Halve the rate after a second:

    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50),
    ...     flows=[cct.Flow("reno", rtt_ms=20)],
    ...     duration_s=2,
    ... )
    >>> sim = cct.Simulation(scenario)
    >>> sim.run(1)
    >>> before = int(sim.flows["received_bytes"][0])
    >>> sim.set_rate(5)
    >>> sim.run()
    >>> after = int(sim.flows["received_bytes"][0]) - before
    >>> round(8e-6 * before, 1), round(8e-6 * after, 1)  # Mbit in each second
    (9.3, 4.8)
    """

    def __init__(self, scenario: Scenario, *, record: bool = False, sample_s: float | None = 0.1) -> None:
        if sample_s is not None:
            number("sample_s", sample_s, above=0, low=_SHORTEST_S, high=LONG)
        n = sum(flow.count for flow in scenario.flows)
        require(n * _BYTES_PER_FLOW, f"a simulation of {n:,} flows", "simulate fewer flows")
        self.scenario = scenario
        self._record = record
        self._sample_ns = None if sample_s is None else max(round(sample_s * 1e9), 1)
        self._flow_specs = scenario.flow_list()
        #: Columns of `flows` that never change: with thousands of flows, making them takes milliseconds.
        self._flow_settings: dict[str, Any] = {
            "flow_id": np.arange(len(self._flow_specs), dtype=np.uint32),
            "name": [x.label for x in self._flow_specs],
            "cca": [x.cca_name for x in self._flow_specs],
            "base_rtt_ms": [x.rtt_ms for x in self._flow_specs],
            "start_s": [x.start_s for x in self._flow_specs],
        }
        self._keep: list[Any] = []  # records whose addresses compiled code uses
        self._algorithms: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {"flows": [], "queues": []}
        self._samples: list[tuple[int, tuple[dict[str, np.ndarray], ...]]] = []
        self._rates = [(round(s * 1e9), mbps) for s, mbps in scenario.bottleneck.rate_schedule]
        self._rates_set: dict[float, float] = {}  # those so far, by time in s
        self._is_changed = False
        self._rng = np.random.Generator(np.random.PCG64(scenario.seed))
        self._taps = (
            Taps(self._flow_specs, np.random.Generator(np.random.PCG64([scenario.seed, 1])))
            if record
            else None
        )
        self._arrays = self._build()
        self._next_sample_ns = self._sample_ns

    # -- building
    # ------------------------------------------------------------------------------------------------------

    def _build(self) -> dict[str, np.ndarray]:
        n = len(self._flow_specs)
        spec = self.scenario.bottleneck
        queues = spec.queue_list()
        rows = _ROWS if self._record else 0
        a = {
            "port": _zeros(1, PORT),
            "flows": _zeros(n, FLOW),
            "senders": _zeros(n, SENDER),
            "nodes": _zeros(4096 + 64 * n, NODE),
            "segments": _zeros(4096 + 64 * n, SEGMENT),
            "queues": _zeros(len(queues), QUEUE),
            "lines": _zeros(len(queues), LINE),
            "heap": _zeros(n, SLOT),
            "places": _zeros(n, PLACE),
            "ack": _zeros(1, ACK),
            "ingress": _zeros(rows, ROW),
            "egress": _zeros(rows, ROW),
            "drops": _zeros(rows, DROPS),
        }
        port = a["port"]
        for name in (
            "old_head",
            "old_tail",
            "new_head",
            "new_tail",
            "node_free",
            "segment_free",
            "starved",
            "broken",
            "refused",
        ):
            port[name] = -1
        port["free_ns"] = NEVER
        port["n_flows"], port["n_queues"] = n, len(queues)
        port["most_bytes"] = max(flow.packet_bytes for flow in self._flow_specs)
        port["look_ahead"] = n >= _MANY_FLOWS
        port["scheduler"] = _SCHEDULER[spec.scheduler or "fifo"]
        port["dual"] = (spec.scheduler or "").startswith("dual")
        port["time_shift_ns"] = round(spec.time_shift_ms * 1e6)
        port["shaper"] = spec.link == "shaper"
        port["record"] = self._record
        self._build_queues(a, queues)
        self._set_rate(a, spec.rate_mbps)
        self._build_flows(a)
        self._set_room(a)
        return a

    def _build_queues(self, a: dict[str, np.ndarray], specs: Any) -> None:
        shared: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        q, line = a["queues"], a["lines"]
        q["index"] = np.arange(len(specs))
        q["queues"] = len(specs)
        q["head_enqueued_ns"] = -1
        q["rng"] = self._rng.integers(0, 2**64, len(specs), np.uint64)
        q["limit_packets"] = [s.buffer_packets or NEVER for s in specs]
        q["limit_bytes"] = [s.buffer_bytes or NEVER for s in specs]
        line["head"] = line["tail"] = line["next_active"] = -1
        line["quantum"] = [s.weight * self.scenario.bottleneck.quantum_bytes for s in specs]
        line["shaped_ns_per_byte"] = [8000 / s.max_rate_mbps if s.max_rate_mbps else 0 for s in specs]
        line["update_ns"] = NEVER
        addresses: dict[int, dict[str, int]] = {}
        for i, spec in enumerate(specs):
            aqm = spec.aqm
            first = id(aqm) not in addresses
            if first:
                addresses[id(aqm)] = aqm.addresses()
                self._keep.append(aqm)
            if first or not aqm.shared:
                shared[id(aqm)] = (aqm.parameter_record(), aqm.state_record(), aqm.stats_record())
                self._keep.append(shared[id(aqm)])
                self._algorithms["queues"].append((i, shared[id(aqm)][1], shared[id(aqm)][2]))
            line["p"][i], line["s"][i], line["stats"][i] = (r.ctypes.data for r in shared[id(aqm)])
            for event, address in addresses[id(aqm)].items():
                line[event][i] = address
            period = aqm.update_period_ns()
            if addresses[id(aqm)]["on_update"] and (first or not aqm.shared):
                if period <= 0:
                    raise ParameterError(f"{type(aqm).__name__}.update_ms: must be positive for on_update")
                line["update_ns"][i] = line["update_period_ns"][i] = period
        a["port"]["update_ns"] = line["update_ns"].min()

    def _build_flows(self, a: dict[str, np.ndarray]) -> None:
        f, s = a["flows"], a["senders"]
        specs = self._flow_specs
        n = len(specs)
        f["index"] = np.arange(n)
        f["rng"] = self._rng.integers(0, 2**64, n, np.uint64)
        f["ssthresh"] = 1e9
        f["min_rtt_ns"] = NEVER
        f["cwnd_limited"] = True
        for name in _TIMES:
            s[name] = NEVER
        for name in _LISTS:
            s[name] = -1
        s["limited"] = True
        for name in ("rack_order", "repeated_for", "probe_end", "timed_out_ns", "end_ns", "established_ns"):
            s[name] = -1
        if self._taps is not None:
            s["isn"], s["irs"] = self._taps.isn, self._taps.irs
        using: dict[Any, list[int]] = {}
        for i, spec in enumerate(specs):
            headers = _HEADERS_UDP if spec.is_udp else _HEADERS_TCP
            payload = spec.packet_bytes - headers
            f["wire_bytes"][i] = spec.packet_bytes
            f["mss_bytes"][i] = payload
            f["initial_window"][i] = f["cwnd"][i] = spec.initial_window
            self._fill_sender(s[i], spec, payload)
            if not spec.is_udp:
                using.setdefault(spec.cca, []).append(i)
        for cca, flows in using.items():
            self._attach(s, cca, flows)
        self._algorithms["flows"].sort(key=lambda entry: entry[0])
        order = np.argsort(s["app_ns"], kind="stable")  # a sorted array is a heap
        a["heap"]["key"], a["heap"]["flow"] = s["app_ns"][order], order
        a["places"]["slot"][order] = np.arange(n)

    def _attach(self, s: np.ndarray, cca: Any, flows: list[int]) -> None:
        """Give flows a congestion control: its functions, parameters that they share, and records of their own."""
        parameters = cca.parameter_record()
        state, stats = (np.repeat(one, len(flows)) for one in (cca.state_record(), cca.stats_record()))
        self._keep.append((parameters, state, stats))
        self._algorithms["flows"] += [
            (flow, state[k : k + 1], stats[k : k + 1]) for k, flow in enumerate(flows)
        ]
        s["p"][flows] = parameters.ctypes.data
        for name, records in (("s", state), ("stats", stats)):
            s[name][flows] = records.ctypes.data + np.arange(len(flows)) * records.itemsize
        for event, address in cca.addresses().items():
            s[event][flows] = address

    @staticmethod
    def _fill_sender(s: Any, spec: Flow, payload: int) -> None:
        one_way = round(spec.rtt_ms * 1e6 / 2)
        access = round(spec.access_ms * 1e6)
        s["app_ns"] = round(spec.start_s * 1e9)
        if spec.stop_s is not None:
            s["stop_ns"] = round(spec.stop_s * 1e9)
        s["to_queue_ns"] = access
        s["to_receiver_ns"] = one_way - access
        s["to_sender_ns"] = round(spec.rtt_ms * 1e6) - one_way
        s["jitter_ns"] = round(spec.jitter_ms * 1e6)
        s["loss"] = spec.loss
        s["queue"] = -1 if spec.queue is None else spec.queue
        s["aggregate"] = spec.aggregate
        s["is_udp"] = spec.is_udp
        s["poisson"] = spec.arrivals == "poisson"
        s["exponential"] = spec.on_off == "exponential"
        s["on_ns"] = (spec.on_s or 0) * 1e9
        s["off_ns"] = (spec.off_s or 0) * 1e9
        s["app_pps"] = (spec.rate_mbps or 0) * 1e6 / 8 / spec.packet_bytes
        s["limit"] = NEVER if spec.bytes is None else -(-spec.bytes // payload)
        s["last_bytes"] = payload if spec.bytes is None else (spec.bytes - 1) % payload + 1
        s["fin"] = spec.bytes is not None
        s["min_rto_ns"] = round(spec.min_rto_ms * 1e6)
        s["max_window"] = spec.max_window
        s["delayed_ack"] = spec.delayed_ack
        s["quick_acks"] = spec.quick_acks
        s["window"], s["window_clamp"] = _FIRST_WINDOW
        s["best_copied"] = _BEST_COPIED
        s["access_ns_per_byte"] = 8000 / spec.access_mbps if spec.access_mbps else 0
        s["ecn"] = _ECN[str(spec.ecn)]
        if not spec.is_udp:
            s["owns_recovery"] = spec.cca.owns_recovery
            s["reduces_by_marks"] = spec.cca.reduces_by_marks

    @staticmethod
    def _set_room(a: dict[str, np.ndarray]) -> None:
        port = a["port"]
        for field, name in (
            ("node_room", "nodes"),
            ("segment_room", "segments"),
            ("room_in", "ingress"),
            ("room_out", "egress"),
            ("room_drops", "drops"),
        ):
            port[field] = len(a[name])

    @staticmethod
    def _set_rate(a: dict[str, np.ndarray], rate_mbps: float) -> None:
        a["port"]["ns_per_byte"] = 8000 / rate_mbps
        a["port"]["rate_bps"] = rate_mbps * 1e6
        a["queues"]["rate_bps"] = rate_mbps * 1e6

    # -- running
    # -------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Simulated time since the start, in s."""
        return int(self._arrays["port"]["now_ns"][0]) / 1e9

    def run(self, until_s: float | None = None, progress: Callable[[float], None] | None = None) -> None:
        """Run until `until_s`, by default to the end.

        Raises
        ------
        AlgorithmError
            An algorithm failed; the text names the line.
        """
        end_ns = round(self.scenario.duration_s * 1e9)
        until_ns = end_ns
        if until_s is not None:
            until_ns = min(round(number("until_s", until_s, high=LONG) * 1e9), end_ns)
        with _failures(self._arrays["port"]) as failures:
            while int(self._arrays["port"]["now_ns"][0]) < until_ns:
                stop_ns = until_ns
                if self._rates:
                    stop_ns = min(stop_ns, self._rates[0][0])
                if self._next_sample_ns is not None:
                    stop_ns = min(stop_ns, self._next_sample_ns)
                self._run_to(stop_ns, failures)
                while self._rates and self._rates[0][0] <= stop_ns:
                    self._set_rate(self._arrays, self._rates.pop(0)[1])
                    self._rates_set[self.now_s] = float(self._arrays["port"]["rate_bps"][0]) / 1e6
                if self._sample_ns and self._next_sample_ns == stop_ns:
                    self._sample(stop_ns)
                    self._next_sample_ns = stop_ns + self._sample_ns
                if progress is not None:
                    progress(stop_ns / 1e9)

    def _run_to(self, until_ns: int, failures: list[BaseException]) -> None:
        a = self._arrays
        while True:
            status = run(
                a["port"], a["flows"], a["senders"], a["nodes"], a["segments"], a["queues"], a["lines"], a["heap"],
                a["places"], a["ack"], a["ingress"], a["egress"], a["drops"], until_ns,
            )  # fmt: skip
            if failures:
                used = [type(f.cca) for f in self._flow_specs if not f.is_udp]
                used += [type(q.aqm) for q in self.scenario.bottleneck.queue_list()]
                raise AlgorithmError(explained_failure(failures[0], dict.fromkeys(used))) from failures[0]
            if status == PAUSED:
                return
            if status == BROKEN and a["port"]["refused"][0] >= 0:
                raise AlgorithmError(self._refused(a["port"][0]))
            if status == BROKEN:
                i = int(a["port"]["broken"][0])
                f = a["flows"][i]
                raise AlgorithmError(
                    f"flow {i} ({self._flow_specs[i].cca_name}) at {self.now_s:.6f} s: cwnd {f['cwnd']}, ssthresh "
                    f"{f['ssthresh']}, pacing_bps {f['pacing_bps']}: all must be non-negative numbers"
                )
            if status == FULL:
                self._make_room()

    def _refused(self, port: Any) -> str:
        """What an AQM returned instead of a verdict."""
        queue, enqueue = int(port["refused"]), port["refused_on_enqueue"]
        event, allowed = (
            ("on_enqueue", "MARK or DROP") if enqueue else ("on_dequeue", "MARK, DROP or DROP_LATE")
        )
        name = type(self.scenario.bottleneck.queue_list()[queue].aqm).__name__
        return (
            f"{name}.{event} returned {int(port['refused_verdict'])} for queue {queue} at {self.now_s:.6f} s: "
            f"must return PASS, {allowed}"
        )

    def _make_room(self) -> None:
        a = self._arrays
        port = a["port"]
        if self._record:
            self._drain()
        for name, live in (("nodes", "node_live"), ("segments", "segment_live")):
            if 2 * int(port[live][0]) > len(a[name]):
                bigger = _zeros(2 * len(a[name]), a[name].dtype)
                bigger[: len(a[name])] = a[name]
                a[name] = bigger
        self._set_room(a)

    def _drain(self) -> None:
        assert self._taps is not None
        a = self._arrays
        port = a["port"]
        self._taps.add(*(a[name][: int(port[rows][0])] for name, rows in
                         (("ingress", "rows_in"), ("egress", "rows_out"), ("drops", "rows_drops"))))  # fmt: skip
        port["rows_in"] = port["rows_out"] = port["rows_drops"] = 0

    def _sample(self, now_ns: int) -> None:
        values = tuple(
            {name: self._arrays[array][field].copy() for name, (array, field) in columns.items()}
            for columns in (FLOW_SERIES, QUEUE_SERIES)
        )
        self._samples.append((now_ns, values))

    # -- inspect and change
    # --------------------------------------------------------------------------------------------

    @property
    def flows(self) -> pd.DataFrame:
        """One row per flow: parameters and results so far."""
        return pd.DataFrame(self.flow_columns())

    def flow_columns(self) -> dict[str, Any]:
        """Columns of `flows`, for a controller: a table takes longer to make. Some change as the simulation goes on."""
        f, s = self._arrays["flows"], self._arrays["senders"]
        seconds = np.maximum(
            np.where(s["end_ns"] >= 0, s["end_ns"], self._arrays["port"]["now_ns"]) - f["start_ns"], 1
        )
        mean_rtt = s["rtt_sum_ns"] / np.maximum(s["rtt_samples"], 1) / 1e6
        return {
            **self._flow_settings,
            "end_s": np.where(s["end_ns"] >= 0, s["end_ns"] / 1e9, np.nan),
            "completion_s": np.where((s["end_ns"] >= 0) & s["fin"], seconds / 1e9, np.nan),
            "queue": s["queue"],
            "acked_bytes": np.maximum(
                f["una"] * f["mss_bytes"]
                - np.where(f["una"] >= s["limit"], f["mss_bytes"] - s["last_bytes"], 0),
                0,
            ),
            "received_bytes": s["received_bytes"],
            "goodput_mbps": s["received_bytes"] * 8e3 / seconds,
            "sent_packets": s["sent"],
            "received_packets": s["received"],
            "retransmits": s["retransmits"],
            "recoveries": s["recoveries"],
            "timeouts": s["timeouts"],
            "dropped_packets": s["dropped"],
            "lost_on_path": s["lost_on_path"],
            "marked_packets": s["ce"],
            "min_rtt_ms": np.where(s["rtt_samples"] > 0, f["min_rtt_ns"] / 1e6, np.nan),
            "mean_rtt_ms": np.where(s["rtt_samples"] > 0, mean_rtt, np.nan),
            "latest_rtt_ms": np.where(s["rtt_samples"] > 0, f["latest_rtt_ns"] / 1e6, np.nan),
            "cwnd_packets": f["cwnd"],
        }

    @property
    def queues(self) -> pd.DataFrame:
        """One row per queue: results so far."""
        q, line = self._arrays["queues"], self._arrays["lines"]
        return pd.DataFrame(
            {
                "queue": np.arange(len(q)),
                "packets": q["packets"],
                "bytes": q["bytes"],
                "arrived_packets": line["arrived"],
                "arrived_bytes": line["arrived_bytes"],
                "sent_packets": line["sent"],
                "sent_bytes": line["sent_bytes"],
                "dropped_full": line["dropped_full"],
                "dropped_enqueue": line["dropped_enqueue"],
                "dropped_dequeue": line["dropped_dequeue"],
                "marked_packets": line["marked"],
                "mean_delay_ms": line["delay_sum_ns"] / np.maximum(line["sent"], 1) / 1e6,
                "max_delay_ms": line["delay_max_ns"] / 1e6,
                "probability": q["probability"],
            }
        )

    def assign_queue(self, flow: int, queue: int) -> None:
        """Assign further packets of `flow` to `queue`; those already waiting stay where they are.

        Raises
        ------
        ParameterError
            There is no such flow or queue.
        """
        self._check("flow", flow, len(self._flow_specs))
        self._check("queue", queue, len(self._arrays["queues"]))
        self._arrays["senders"]["queue"][flow] = queue

    @staticmethod
    def _check(name: str, value: Any, n: int) -> None:
        if not isinstance(value, int | np.integer) or not 0 <= value < n:
            raise ParameterError(f"{name}: {value!r} does not exist; there are {n}, from 0")

    def set_rate(self, rate_mbps: float) -> None:
        """Change the rate of the link from the next packet on."""
        self._set_rate(self._arrays, number("rate_mbps", rate_mbps, **RATE))
        self._rates_set[self.now_s] = float(rate_mbps)
        self._is_changed = True

    def set_buffer(self, queue: int, packets: int | None = None, octets: int | None = None) -> None:
        """Change the buffer of `queue` (None: unchanged)."""
        self._check("queue", queue, len(self._arrays["queues"]))
        for name, value, field in (("packets", packets, "limit_packets"), ("octets", octets, "limit_bytes")):
            if value is not None:
                self._arrays["queues"][field][queue] = whole(name, value, low=1)

    def set_weight(self, queue: int, weight: float) -> None:
        """Change the weight of `queue` in round robin."""
        self._check("queue", queue, len(self._arrays["queues"]))
        weight = number("weight", weight, **WEIGHT)
        self._arrays["lines"]["quantum"][queue] = weight * self.scenario.bottleneck.quantum_bytes

    def aqm_state(self, queue: int = 0) -> Any:
        """State record of the AQM of a queue, to read and (like a control plane) to write."""
        self._check("queue", queue, len(self._arrays["queues"]))
        at = self._arrays["lines"]["s"][queue]  # queues with one AQM may share its state
        return next(s for _, s, _ in self._algorithms["queues"] if s.ctypes.data == at)[0]

    def cca_state(self, flow: int) -> Any:
        """State record of the congestion control of a flow."""
        self._check("flow", flow, len(self._flow_specs))
        if self._flow_specs[flow].is_udp:
            raise ParameterError(f"flow: {flow} has no congestion control")
        return next(s for i, s, _ in self._algorithms["flows"] if i == flow)[0]

    # -- results
    # -------------------------------------------------------------------------------------------------------

    def result(self) -> Run:
        """The results so far; their scenario is what has been run, with the rates that were set."""
        ingress = egress = drops = None
        if self._taps is not None:
            self._drain()
            self._set_room(self._arrays)
            ingress, egress, drops = self._taps.captures(self.scenario)
        flow_stats, queue_stats = (
            pd.DataFrame([{key: i, **_as_dict(stats)} for i, _, stats in self._algorithms[name]])
            for name, key in (("flows", "flow_id"), ("queues", "queue"))
        )
        return Run(
            scenario=self._as_it_ran(),
            made_by=f"cctoolkit {__version__} simulator",
            name=self.scenario.name or "run",
            flows=self.flows,
            labels=self._labels(),
            queues=self.queues,
            flow_series=self._series(0, "flow_id", len(self._flow_specs)),
            queue_series=self._series(1, "queue", len(self._arrays["queues"])),
            cca_stats=flow_stats,
            aqm_stats=queue_stats,
            ingress=ingress,
            egress=egress,
            drops=drops,
            events=int(self._arrays["port"]["events"][0]),
        )

    def _as_it_ran(self) -> Scenario:
        """The scenario with the rates that were set, until now."""
        changes: dict[str, Any] = {}
        if self._is_changed:
            changes["bottleneck.rate_schedule"] = [*self._rates_set.items()]
        if 0 < self.now_s < self.scenario.duration_s:
            changes["duration_s"] = self.now_s
        return self.scenario.replace(changes)

    def _labels(self) -> pd.DataFrame:
        specs, flows = self._flow_specs, self.flows
        keys = flow_keys(specs, np.arange(len(specs)))
        tcp = np.array([not f.is_udp for f in specs])
        ends = np.maximum(flows.end_s.fillna(self.now_s).to_numpy(), flows.start_s.to_numpy())

        def known(column: pd.Series) -> pd.Series:
            return pd.Series(np.where(tcp, column, np.nan)).astype("Float64")

        return pd.DataFrame(
            {
                "flow_id": keys.flow_id,
                "src": keys.src_text(),
                "dst": keys.dst_text(),
                "sport": keys.sport,
                "dport": keys.dport,
                "protocol": keys.protocol,
                "kind": ["udp" if f.is_udp else "bulk" if f.bytes is None else "transfer" for f in specs],
                "data_from": "src",
                "cca": ["" if f.is_udp else f.cca_name for f in specs],
                "base_rtt_ms": flows.base_rtt_ms.astype("Float64"),
                "start_ns": pd.array([round(f.start_s * 1e9) for f in specs], "Int64"),
                "stop_ns": pd.array(np.rint(ends * 1e9).astype(np.int64), "Int64"),
                "bytes_acked": known(flows.acked_bytes),
                "retransmits": known(flows.retransmits),
                "min_rtt_us": known(flows.min_rtt_ms * 1e3),
            }
        )

    def _series(self, which: int, key: str, n: int) -> pd.DataFrame:
        names = (FLOW_SERIES, QUEUE_SERIES)[which]
        times = np.array([s[0] for s in self._samples], np.int64)
        columns: dict[str, np.ndarray] = {
            "ts_ns": np.repeat(times, n),
            key: np.tile(np.arange(n), len(times)),
        }
        for name, (array, field) in names.items():
            parts = [values[which][name] for _, values in self._samples]
            columns[name] = np.concatenate(parts) if parts else np.zeros(0, self._arrays[array][field].dtype)
        return pd.DataFrame(columns)


def _zeros(n: int, dtype: np.dtype) -> np.ndarray:
    """An array of zeros that begins with a cache line, as the loop's prefetching assumes."""
    octets = np.zeros(n * dtype.itemsize + layout.CACHE_LINE, np.uint8)
    start = -octets.ctypes.data % layout.CACHE_LINE
    return octets[start : start + n * dtype.itemsize].view(dtype)


def _as_dict(record: np.ndarray) -> dict[str, Any]:
    return {name: record[name][0] for name in record.dtype.names or () if name != "unused"}


@contextmanager
def _failures(port: np.ndarray) -> Iterator[list[BaseException]]:
    """Collect exceptions of compiled functions, which cannot pass through the loop, and stop the loop."""
    found: list[BaseException] = []
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if (
            "cctoolkit" in str(unraisable.err_msg)
            or unraisable.object is None
            or isinstance(unraisable.object, str)
        ):
            err = unraisable.exc_value or RuntimeError(str(unraisable.err_msg))
            found.append(err.with_traceback(unraisable.exc_traceback))
            port["broken"] = 0
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield found
    finally:
        sys.unraisablehook = before


def simulate(
    scenario: Scenario,
    *,
    record: bool = True,
    sample_s: float | None = 0.1,
    control: Callable[[Simulation], None] | None = None,
    control_s: float = 0.1,
    progress: bool = False,
) -> Run:
    """Simulate a scenario to its end.

    Parameters
    ----------
    scenario : Scenario
        What to simulate.
    record : bool
        Record both taps (``run.ingress``, ``run.egress``). Without, a run is about twice as fast and needs no
        memory for packets.
    sample_s : float, optional
        Sampling interval of the flow and queue series in s; None: no series.
    control : function, optional
        Called every `control_s` with the :class:`Simulation`, which it may inspect and change.
    control_s : float
        Interval of `control` in s.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Run
        The results.

    Raises
    ------
    ParameterError
        A field has an invalid value; the text names it.
    AlgorithmError
        An algorithm does not compile, or fails; the text names the line.

    See Also
    --------
    Simulation : step by step
    run_sweep : many scenarios on all cores
    run_testbed : the same scenario on real Linux

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50),
    ...     flows=[cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=20)],
    ...     duration_s=2,
    ... )
    >>> run = cct.simulate(scenario)
    >>> run.flows[["cca", "goodput_mbps"]].round(1)
         cca  goodput_mbps
    0  cubic           3.8
    1   reno           5.7
    >>> round(run.summary()["utilisation"], 2)
    0.99
    """
    if not isinstance(scenario, Scenario):
        raise ParameterError(f"scenario: {type(scenario).__name__} must be a Scenario")
    if sample_s is not None:
        number("sample_s", sample_s, above=0, low=_SHORTEST_S, high=LONG)
        flows, queues = sum(flow.count for flow in scenario.flows), len(scenario.bottleneck.queue_list())
        values = flows * len(FLOW_SERIES) + queues * len(QUEUE_SERIES)
        require(
            scenario.duration_s / sample_s * values * _BYTES_PER_SAMPLE,
            f"a series of {scenario.duration_s / sample_s:,.0f} samples of {flows:,} flows and {queues:,} queues",
            "sample less often (sample_s), or not at all (None)",
        )
    sim = Simulation(scenario, record=record, sample_s=sample_s)
    if control is not None:
        number("control_s", control_s, above=0, low=_SHORTEST_S, high=LONG)
    step_s = (
        control_s if control is not None else scenario.duration_s / 100 if progress else scenario.duration_s
    )
    with progress_bar(
        total=round(scenario.duration_s, 3), unit="s", disable=not progress, leave=False
    ) as bar:
        steps = 0
        while sim.now_s < scenario.duration_s:
            steps += 1
            before = sim.now_s
            sim.run(min(steps * step_s, scenario.duration_s))
            bar.update(sim.now_s - before)
            if control is not None and sim.now_s < scenario.duration_s:
                control(sim)
    return sim.result()
