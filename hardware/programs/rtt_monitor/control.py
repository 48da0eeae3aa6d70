"""The RTT monitor's control plane: passes the switch's measurements to the paper's controller, and its rules
to a router.

::

    python -m hardware.programs.rtt_monitor.control --bfrt 127.0.0.1:50052 --before 128 --behind 129 \\
        --rate-mbps 10000 --k 4 --router junos --interface xe-0/1/0 --ingress xe-0/1/1

The decisions and the rules' syntax come from :mod:`cctoolkit.separation`:
:class:`~cctoolkit.separation.controller.RttSeparation` and :class:`~cctoolkit.separation.router.Router`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from cctoolkit import schema
from cctoolkit._support.arguments import number
from cctoolkit._support.atomic import replacing
from cctoolkit._support.csv import write_csv
from cctoolkit.analysis.rtt import samples_table
from cctoolkit.errors import ParameterError
from cctoolkit.separation.controller import Controller, Decision, RttSeparation
from cctoolkit.separation.meters import LONG_BYTES, TCP, UDP
from cctoolkit.separation.router import Router

from ...common.command import Work, main_loop, run
from ...common.options import Duration
from ...common.switch import Switch
from ...common.wires import parse_wires, set_wires
from .constants import SKETCH, SLOTS, TABLES

__all__ = ["CRC32C", "FiveTuple", "Monitor", "separate"]

log = logging.getLogger(__name__)

#: Castagnoli's polynomial, for BMv2. A Tofino gets it from the program.
CRC32C = 0x1EDC6F41
_BEFORE, _BEHIND = 1, 2  # side of the queue, as in types.p4
_BECAME_LONG, _SAMPLE, _IS_UDP = 1, 2, 4
_FIELDS = ("now_ns", "rtt_ns", "events", "source", "destination", "source_port", "destination_port")
_DIGESTS = {"flow_ipv4_t": 4, "flow_ipv6_t": 16}  # bytes of an address
_ROWS = tuple(f"row_{i}.counters" for i in range(SKETCH["depth"]))
_ENTRIES = tuple(f"set_{s}.stage_{k}.expected" for s in (0, 1) for k in range(TABLES.stages))
_WRAP = 1 << 32
_CLOCK = 1 << 48


@dataclass(frozen=True)
class FiveTuple:
    """One direction of a flow.

    Attributes
    ----------
    source, destination : bytes
        Addresses, 4 or 16 bytes.
    protocol : int
    source_port, destination_port : int
    """

    source: bytes
    destination: bytes
    protocol: int
    source_port: int
    destination_port: int

    @property
    def back(self) -> FiveTuple:
        """The reverse direction."""
        return FiveTuple(
            self.destination, self.source, self.protocol, self.destination_port, self.source_port
        )

    @property
    def fid(self) -> int:
        """The data plane's identifier of this direction: :class:`cctoolkit.DataPlaneTables`."""
        ports = self.source_port.to_bytes(2, "big") + self.destination_port.to_bytes(2, "big")
        return zlib.crc32(self.source + self.destination + bytes([self.protocol]) + ports)

    @property
    def direction(self) -> int:
        """0 or 1, as in the data plane; the reverse direction has the other."""
        return (self.fid - self.back.fid) % _WRAP >> 31

    @property
    def flow(self) -> int:
        """The data plane's identifier of both directions: the `fid` of direction 0."""
        return self.back.fid if self.direction else self.fid


@dataclass
class _Flow:
    number: int
    #: The direction that became long or gave the first sample; None until a digest reports it.
    who: FiveTuple | None = None
    is_long: bool = False


class Monitor:
    """What a switch with the RTT monitor has measured: flows, with the names of the long ones, and RTT samples.

    Parameters
    ----------
    before, behind : iterable of int
        Ports with a tap before the router's queue, where everything is measured, and behind it, where
        delivered bytes are counted. Without `behind`, offered bytes count as delivered.
    wires : dict of int to int
        Where to forward tapped packets, by ingress port. Packets from other ports are dropped.
    rate_mbps : float
        Rate of the router's link. It determines how often the sketch is cleared.
    all_samples : bool
        Make the switch send each RTT sample (a Tofino can send some ten thousand per second). Otherwise only
        the latest sample of each flow is read, once per interval.
    idle_s : float
        A flow is left out after this long without packets.
    forget_s : float
        The slot of a long flow is freed after this long without packets.
    long_bytes : int
        Only needed if the program was compiled with a different number.

    Attributes
    ----------
    epoch_s : float
        Interval at which tables and sketch are cleared. It keeps the sketch's error below a tenth of
        `long_bytes` (with the probability that :class:`cctoolkit.CountMinSketch` states). So a flow with less
        than `long_bytes` in an epoch never becomes long; a long flow stays long.

    Notes
    -----
    If a digest is lost, an unknown flow holds a slot. The slot is then released, and the flow's next packet
    causes another digest.
    """

    def __init__(
        self,
        before: Iterable[int],
        behind: Iterable[int] = (),
        *,
        rate_mbps: float,
        wires: Mapping[int, int] | None = None,
        all_samples: bool = False,
        idle_s: float = 2.0,
        forget_s: float = 60.0,
        long_bytes: int = LONG_BYTES,
    ) -> None:
        self.before, self.behind, self.wires = tuple(before), tuple(behind), dict(wires or {})
        if not self.before:
            raise ParameterError("before: needs at least one port with a tap before the queue")
        if both := set(self.before) & set(self.behind):
            raise ParameterError(f"behind: port {min(both)} is also in before")
        for name, value in (
            ("rate_mbps", rate_mbps),
            ("idle_s", idle_s),
            ("forget_s", forget_s),
            ("long_bytes", long_bytes),
        ):
            number(name, value, above=0)
        self.all_samples, self.idle_s, self.forget_s = all_samples, float(idle_s), float(forget_s)
        self.epoch_s = 0.1 * long_bytes * SKETCH["width"] / (math.e * rate_mbps * 125_000)
        self._next = 0
        self._start(SLOTS)

    def _start(self, slots: int) -> None:
        self._flows: dict[int, _Flow] = {}  # by the data plane's identifier
        self._numbers: dict[int, _Flow] = {}
        self._found: list[tuple[int, int, int, int]] = []  # time, flow, the data plane's direction, RTT
        self._clock_ns: int | None = None  # of the last digest
        self._read_s = self._cleared_s = math.nan
        self._owner = np.zeros(slots, np.int64)
        self._number = np.zeros(slots, np.int64)
        self._counts = np.zeros((2, 2, slots), np.int64)  # direction; offered and delivered
        self._carried = np.zeros((2, slots), np.int64)
        self._last_rtts = np.zeros((2, slots), np.int64)
        self._seen_s = np.full(slots, -math.inf)
        self._nameless = np.zeros(slots, np.bool_)

    # -- the switch ----------------------------------------------------------------------------------------------------

    def set_up(self, switch: Switch) -> None:
        """Fill the tables, and clear the data plane's state."""
        if switch.target == "bmv2":
            switch.use_crc32(CRC32C)  # type: ignore[attr-defined]  # only BMv2 has it
        set_wires(switch, self.wires)
        switch.use_ports({*self.before, *self.behind, *self.wires, *self.wires.values()})
        for side, ports in ((_BEFORE, self.before), (_BEHIND, self.behind)):
            for port in ports:
                switch.add_entry("taps", {"port": port}, "tap", {"side": side})
        switch.set_default("samples", "want_samples" if self.all_samples else "NoAction")
        self._clear(switch)
        switch.write_register("owner", {"flow": 0, "is_long": 0})
        for name in _DIGESTS:
            for _ in switch.digests(name, _FIELDS):
                pass  # discard digests about the old state
        self._start(len(switch.read_register("owner")))

    @staticmethod
    def _clear(switch: Switch) -> None:
        for name in _ROWS:
            switch.write_register(name, 0)
        for name in _ENTRIES:
            switch.write_register(name, {"signature": 0, "time": 0})

    def read(self, switch: Switch, now_s: float) -> pd.DataFrame:
        """Read what the switch has measured since the last call.

        Parameters
        ----------
        switch : Switch
        now_s : float
            Time on any monotonic clock.

        Returns
        -------
        DataFrame
            :data:`~cctoolkit.separation.meters.METRICS`, and ``bytes`` so far, of all present flows: long
            ones, whose names are in :attr:`flows`, and those whose SYN was seen and whose slot no other flow
            has taken. The first call returns no rows, because rates need two readings.
        """
        for name, width in _DIGESTS.items():
            for digest in switch.digests(name, _FIELDS):
                self._learn(digest, width)
        owner = switch.read_register("owner")
        counts = [switch.read_register(f"direction_of_{d}.bytes") for d in (0, 1)]
        rtts = [switch.read_register(f"direction_of_{d}.rtt") for d in (0, 1)]
        flow, is_long = owner["flow"].astype(np.int64), owner["is_long"] != 0
        passed_s = now_s - self._read_s
        self._read_s = now_s
        self._number_flows(flow, now_s)
        self._count(counts, now_s)
        last_rtts = np.stack([x["latest"] for x in rtts]).astype(np.int64)
        if not self.all_samples:
            self._sample(last_rtts, flow, now_s)
        self._last_rtts = last_rtts
        minima = np.stack([x["least"] for x in rtts]).astype(np.int64)
        #: The last result of :meth:`read`.
        self.metrics = self._table(
            np.flatnonzero((flow > 0) & (self._seen_s > now_s - self.idle_s)), minima, passed_s
        )
        self._maintain(switch, flow, is_long, now_s)
        return self.metrics

    def _learn(self, digest: Mapping[str, Any], width: int) -> None:
        """Process a digest: a flow's five-tuple, or a sample."""
        source, destination = (int(digest[name]).to_bytes(width, "big") for name in ("source", "destination"))
        events, protocol = int(digest["events"]), UDP if int(digest["events"]) & _IS_UDP else TCP
        packet = FiveTuple(
            source, destination, protocol, int(digest["source_port"]), int(digest["destination_port"])
        )
        now_ns = int(digest["now_ns"])
        if self._clock_ns is None:  # the switch may have been up for any time
            self._clock_ns = now_ns
        # digests arrive almost in order; the clock's 48 bits wrap after 78 h
        self._clock_ns += (now_ns - self._clock_ns + _CLOCK // 2) % _CLOCK - _CLOCK // 2
        flow = self._flow(packet.flow)
        if events & _BECAME_LONG:
            flow.who, flow.is_long = packet, True
        if events & _SAMPLE:  # of data in the reverse direction
            flow.who = flow.who or packet.back
            self._found.append((self._clock_ns, flow.number, 1 - packet.direction, int(digest["rtt_ns"])))

    def _flow(self, name: int) -> _Flow:
        if name not in self._flows:
            self._flows[name] = self._numbers[self._next] = _Flow(self._next)
            self._next += 1
        return self._flows[name]

    def _number_flows(self, flow: np.ndarray, now_s: float) -> None:
        """Assign numbers to flows that have taken a slot."""
        changed = np.flatnonzero(flow != self._owner)
        for slot in changed.tolist():
            old = self._flows.get(int(self._owner[slot]))
            if old is not None and old.who is None:  # nothing refers to it any more
                del self._flows[int(self._owner[slot])], self._numbers[old.number]
            if flow[slot]:
                self._number[slot] = self._flow(int(flow[slot])).number
        for counted in (self._counts, self._carried, self._last_rtts):
            counted[..., changed] = 0
        self._seen_s[changed] = now_s
        self._owner = flow

    def _count(self, counts: list[np.ndarray], now_s: float) -> None:
        now = np.stack([[x["offered"], x["delivered"]] for x in counts]).astype(np.int64)
        self._recent = (now - self._counts) % _WRAP
        self._counts = now
        self._carried += self._recent[:, 0]
        self._seen_s[self._recent.any(axis=(0, 1))] = now_s

    def _sample(self, last_rtts: np.ndarray, flow: np.ndarray, now_s: float) -> None:
        """Collect the latest RTTs that have changed."""
        direction, slot = np.nonzero((last_rtts != self._last_rtts) & (last_rtts > 0) & (flow > 0))
        self._found += zip(
            np.full(len(slot), round(now_s * 1e9)).tolist(),
            self._number[slot].tolist(),
            direction.tolist(),
            last_rtts[direction, slot].tolist(),
            strict=True,
        )

    def _table(self, slots: np.ndarray, minima: np.ndarray, passed_s: float) -> pd.DataFrame:
        if math.isnan(passed_s):
            slots = slots[:0]
        flows = [self._numbers[number] for number in self._number[slots].tolist()]
        likely = self._carried[1, slots] > self._carried[0, slots]
        data = np.array(
            [flow.who.direction if flow.who else guess for flow, guess in zip(flows, likely, strict=True)],
            np.int64,
        )
        legs = np.where(minima[:, slots] > 0, minima[:, slots] / 1e6, np.nan)
        last_rtts = np.where(self._last_rtts[data, slots] > 0, self._last_rtts[data, slots] / 1e6, np.nan)
        offered, delivered = self._recent[data, :, slots].T * 8e-6 / max(passed_s, 1e-9)
        back = np.nan_to_num(legs[1 - data, np.arange(len(slots))])
        return pd.DataFrame(
            {
                "flow_id": self._number[slots],
                "protocol": np.array([flow.who.protocol if flow.who else TCP for flow in flows], np.int64),
                "rtt_ms": np.where(np.isnan(legs).all(axis=0), np.nan, np.nansum(legs, axis=0)),
                # queueing affects the direction of the data; the reverse path keeps its smallest RTT
                "latest_rtt_ms": last_rtts + back,
                "throughput_mbps": delivered if self.behind else offered,
                "offered_mbps": offered,
                "is_long": np.array([flow.is_long for flow in flows], np.bool_),
                "bytes": self._carried[data, slots],
            }
        ).sort_values("flow_id", ignore_index=True)

    def _maintain(self, switch: Switch, flow: np.ndarray, is_long: np.ndarray, now_s: float) -> None:
        """Free the slots of ended flows, release those of unknown flows, and begin a new epoch when due."""
        for slot in np.flatnonzero(is_long & (self._seen_s <= now_s - self.forget_s)).tolist():
            switch.write_register("owner", {"flow": 0, "is_long": 0}, slot)
            self._flow(int(flow[slot])).is_long = False
            self._owner[slot] = 0  # if the flow returns, it starts afresh
        known = {name for name, found in self._flows.items() if found.is_long}
        nameless = is_long & ~np.isin(flow, list(known))
        for slot in np.flatnonzero(nameless & self._nameless).tolist():  # unknown in two calls in a row
            switch.write_register("owner", {"flow": int(flow[slot]), "is_long": 0}, slot)
        self._nameless = nameless
        if not now_s < self._cleared_s + self.epoch_s:
            if not math.isnan(self._cleared_s):
                self._clear(switch)
            self._cleared_s = now_s

    # -- read-out ------------------------------------------------------------------------------------------------------

    @property
    def flows(self) -> pd.DataFrame:
        """Flows with a known five-tuple: ``flow_id``, ``src``, ``sport``, ``dst``, ``dport``, ``protocol``.

        The direction is from the sender of the data to the receiver.
        """
        named = [(flow.number, flow.who) for flow in self._flows.values() if flow.who is not None]
        return pd.DataFrame(
            [
                (number, str(ipaddress.ip_address(who.source)), who.source_port,
                 str(ipaddress.ip_address(who.destination)), who.destination_port, who.protocol)
                for number, who in named
            ],
            columns=["flow_id", "src", "sport", "dst", "dport", "protocol"],
        )  # fmt: skip

    def take_samples(self) -> pd.DataFrame:
        """The RTT samples since the last call, as :data:`cctoolkit.schema.RTT_SAMPLES`.

        Direction 0 is from ``src`` to ``dst`` of :attr:`flows`. Times are on the switch's clock or, without
        `all_samples`, the times of the readings.
        """
        found, self._found = self._found, []
        rows = np.array(found, np.int64).reshape(-1, 4)
        ways = {number: flow.who.direction if flow.who else 0 for number, flow in self._numbers.items()}
        data = np.array([ways.get(number, 0) for number in rows[:, 1].tolist()], np.int64)
        columns: dict[str, np.ndarray] = {
            "ts_ns": rows[:, 0],
            "flow_id": rows[:, 1].astype(np.uint32),
            "direction": (rows[:, 2] ^ data).astype(np.int8),
            "rtt_ns": rows[:, 3],
        }
        return samples_table(columns, "data_plane")


def separate(
    monitor: Monitor,
    controller: Controller,
    router: Router | None = None,
    emit: Callable[[str], object] = print,
    now_s: Callable[[], float] = time.monotonic,
) -> Callable[[Switch], Decision]:
    """The paper's loop, as a function to call with the switch once per interval.

    Parameters
    ----------
    monitor : Monitor
        Must be set up.
    controller : Controller
    router : Router, optional
        Renders the rules.
    emit : function
        Receives the new rules: prints them, or applies them (:class:`hardware.router.junos.JunosRouter`).
    now_s : function
        A monotonic clock.
    """

    def step(switch: Switch) -> Decision:
        now = now_s()
        decision = controller.decide(monitor.read(switch, now), now)
        if router is not None and (lines := router.update(decision, monitor.flows)):
            emit(lines)
        return decision

    return step


def _write(folder: Path, monitor: Monitor, samples: list[pd.DataFrame]) -> None:
    """Write ``rtt_samples.parquet`` and ``flows.csv``."""
    table = pd.concat(samples, ignore_index=True) if samples else schema.empty("rtt_samples")
    schema.write_parquet(table, folder / "rtt_samples.parquet", "rtt_samples", {"program": "rtt_monitor"})
    with replacing(folder / "flows.csv") as path:
        write_csv(monitor.flows, path)


def control(
    before: Annotated[
        list[int], typer.Option(metavar="PORT", help="Port with a tap before the router's queue.")
    ],
    rate_mbps: Annotated[float, typer.Option(help="Rate of the router's link.")],
    behind: Annotated[
        list[int] | None, typer.Option(metavar="PORT", help="Port with a tap behind the router's queue.")
    ] = None,
    wire: Annotated[
        list[str] | None, typer.Option(metavar="IN:OUT", help="Forward tapped packets; default: drop them.")
    ] = None,
    k: Annotated[int, typer.Option(help="Number of RTT classes.")] = 4,
    latency_threshold_ms: Annotated[
        float | None, typer.Option(help="Isolate flows that delay others by more than this.")
    ] = None,
    interval_s: Annotated[float, typer.Option(help="Time between decisions.")] = 1.0,
    router: Annotated[
        str | None, typer.Option(metavar="KIND", help="Syntax of the rules: junos or linux.")
    ] = None,
    interface: Annotated[str | None, typer.Option(help="Router interface with the queues.")] = None,
    ingress: Annotated[str | None, typer.Option(help="Router interface where flows come in.")] = None,
    udp_limit_mbps: Annotated[float | None, typer.Option(help="Hard limit for UDP.")] = None,
    apply: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Apply the rules to this Junos router instead of printing them."),
    ] = None,
    all_samples: Annotated[
        bool, typer.Option(help="Collect every RTT sample, not just the latest per interval.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for metrics.csv, flows.csv, rtt_samples.parquet."),
    ] = None,
    duration_s: Duration = None,
) -> Work:
    """Measure tapped flows, and assign them to a router's queues."""
    if router is not None and interface is None:
        raise ParameterError("--router: needs --interface, the bottleneck's interface")
    if apply is not None and router != "junos":
        raise ParameterError("--apply: needs --router junos")
    monitor = Monitor(
        before, behind or (), rate_mbps=rate_mbps, wires=parse_wires(wire or ()), all_samples=all_samples
    )
    controller = RttSeparation(rate_mbps, k, latency_threshold_ms=latency_threshold_ms)
    renderer = None
    if router is not None and interface is not None:
        renderer = Router(router, rate_mbps, interface, ingress=ingress, udp_limit_mbps=udp_limit_mbps)
        renderer.check_queues(controller.n_queues)
    samples: list[pd.DataFrame] = []

    def polling(step: Callable[[Switch], Decision]) -> Callable[[Switch], None]:
        def poll(switch: Switch) -> None:
            decision = step(switch)
            samples.append(monitor.take_samples())
            log.info(
                "%d flows in queues of their own, %d changes, %d RTT samples",
                len(decision.flows), decision.changes, len(samples[-1]),
            )  # fmt: skip
            if output is not None:
                table = monitor.metrics.assign(time_s=round(time.time(), 3))
                path = output / "metrics.csv"
                write_csv(table, path, mode="a", header=not path.exists())
            else:
                samples.clear()

        return poll

    def work(switch: Switch) -> None:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            emit: Callable[[str], object] = print
            if apply is not None:
                from ...router.junos import JunosRouter

                emit = stack.enter_context(JunosRouter(apply))
            step = polling(separate(monitor, controller, renderer, emit))
            try:
                main_loop(switch, step, interval_s, set_up=monitor.set_up, duration_s=duration_s)
            finally:
                if output is not None:
                    _write(output, monitor, samples)

    return work


if __name__ == "__main__":
    run("rtt_monitor", control)
