"""The control plane of ``cbiq``, Dragonfly's data collection: identifies flows in a switch while they run.

:class:`SwitchCollector` is to a switch what :class:`cctoolkit.identify.live.KernelCollector` is to a Linux
router: the data plane's cells become :data:`cctoolkit.analysis.slots.CELL`, and everything behind (rows of
the slots table, naming) is :func:`cctoolkit.identify.live.watch`.
"""

from __future__ import annotations

import ipaddress
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cctoolkit import __version__
from cctoolkit._support.arguments import positive_ns
from cctoolkit.analysis.slots import CELL
from cctoolkit.errors import ParameterError
from cctoolkit.identify.live import CollectorError, FlowKey, Reading
from cctoolkit.identify.live.naming import load_classifier
from cctoolkit.identify.live.screen import flow_key, follow
from cctoolkit.schema.output import Format

from ...common.command import Work, run
from ...common.options import BufferPackets, Duration, FrameBytes, Rate
from ...common.switch import Switch, SwitchGoneError
from ...common.wires import parse_wires, set_wires, shape_ports
from .constants import FLOW_BITS, RING_BITS, slot_steps

__all__ = ["SwitchCollector", "control"]

log = logging.getLogger(__name__)

FLOWS, RING = 1 << FLOW_BITS, 1 << RING_BITS
#: A slot is complete this many slots later: packets that were inside the switch have left it by then.
GRACE_SLOTS = 32
_WRAP = 1 << 32
_NONE = -(2**63)
_NOT_COLLECTED = ("source_gap", "arrival_gap", "ce_packets", "ecn_echoes")
_TIME_SHIFT = 16  # the switch reports times in 2^16 ns
_COUNTED_NS = _WRAP  # for this long after an epoch's begin, the data plane counts slots correctly
#: The most by which two clocks may drift (100 ppm per oscillator).
_DRIFT = 2e-4
_POLL_S = 0.002


class _Clock:
    """The switch's time, known from its packets, which write theirs to the registers ``in_seen`` and ``out_seen``.

    Between packets it follows this machine's clock, slightly slowed down so that it is never ahead.

    Parameters
    ----------
    zero_ns : int, optional
        When the switch's clock was 0, in ns since the Unix epoch. Default: measured when the next packet
        passes.
    idle_ns : function
        This machine's clock.
    """

    def __init__(self, zero_ns: int | None, idle_ns: Callable[[], int]) -> None:
        self.zero_ns = zero_ns
        self.known = False
        self.packets = {"in": 0, "out": 0}
        self._idle_ns = idle_ns
        self._seen: dict[str, int] = {}
        self._last_ns = self._updated_ns = 0

    @property
    def now_ns(self) -> int:
        """A lower bound of the switch's time, in ns since its clock was 0."""
        idle_ns = self._idle_ns() - self._updated_ns
        return self._last_ns + int(idle_ns * (1 - _DRIFT))

    @property
    def last_ns(self) -> int:
        """An upper bound of the last packet's time."""
        return self._last_ns + (1 << _TIME_SHIFT) - 1

    def update(self, switch: Switch) -> None:
        """Read the time of the last packet."""
        for side in ("in", "out"):
            seen = switch.read_register(f"{side}_seen")[0]
            ticks, packets = int(seen["time"]), int(seen["packets"])
            before = self._seen.setdefault(side, packets)
            if packets == before:  # it is unknown how long ago the last one passed
                continue
            self._seen[side] = packets
            self.packets[side] += (packets - before) % _WRAP
            at_ns = ticks << _TIME_SHIFT
            if self.known:
                at_ns = self._last_ns + _difference(ticks, self._last_ns >> _TIME_SHIFT) * (1 << _TIME_SHIFT)
            if not self.known or at_ns > self._last_ns:
                self._last_ns, self._updated_ns = at_ns, self._idle_ns()
            self.known = True


@dataclass
class _Watched:
    """A watched flow: the caller's number for it, and how far it was sent and acknowledged, as unwrapped counts."""

    number: int
    key: FlowKey
    end: int = 0
    acked: int = 0


class SwitchCollector:
    """Reads the data plane ``cbiq`` of a switch; a :class:`cctoolkit.identify.live.Collector`.

    Parameters
    ----------
    switch : Switch
        Must run ``cbiq``.
    slot_ms : float
        0.066 to 50, in whole nanoseconds.
    set_up : function, optional
        Called with the switch at the start and after each reconnection, for anything else that it needs, such
        as wires.
    zero_ns : int, optional
        When the switch's clock was 0, in ns since the Unix epoch. Default: measured when the next packet
        passes, to within some milliseconds. Slots have the same length, and are the same at both taps, in any
        case.
    idle_ns : function
        This machine's clock, for times without packets.

    Raises
    ------
    ParameterError
        The slot is too short or too long.
    SwitchError
        The switch refuses, or does not answer.

    Notes
    -----
    All packets are counted, in slots that begin at multiples of their length. Cells are read once they are
    complete, :data:`GRACE_SLOTS` after the slot. A cell that is not read in time is overwritten by a later
    slot, never mixed with it; the reading then has ``missed_until``, and no rows for the lost slots. Gaps
    between packets (``max_arrival_gap_ns``, ``max_source_gap``) and marks (``in_ce_packets``, ``out_ce_packets``,
    ``ecn_echoes``) are not collected.

    The collection survives a lost switch: when it is back, everything is set up again.
    """

    sampled = False
    has_egress = True

    def __init__(
        self,
        switch: Switch,
        *,
        slot_ms: float = 1.0,
        set_up: Callable[[Switch], None] | None = None,
        zero_ns: int | None = None,
        idle_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.slot_ns = positive_ns(slot_ms, 1e6, "slot_ms")
        try:
            self._coarse, self._fine = slot_steps(self.slot_ns)
        except ValueError as err:
            raise ParameterError(f"slot_ms: {err}") from None
        self._switch = switch
        self._set_up_more = set_up
        self._given_zero_ns, self._idle_ns = zero_ns, idle_ns
        self._watched: dict[int, _Watched] = {}  # by index in the switch
        self._freed: dict[int, int] = {}  # the slot in which an index became free
        self._counts = {side: {"monitored": 0, "cells": 0} for side in ("in", "out")}
        self._away = self._gap = False
        self._set_up()

    # -- set-up ---------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        """Set up everything, also in a switch that was used before."""
        switch = self._switch
        for side in ("in", "out"):
            switch.set_default(f"{side}_slot.epoch", "unknown")
            for name, steps, action in (
                ("coarse", self._coarse, "whole_slots"),
                ("fine", self._fine, "last_slots"),
            ):
                table = f"{side}_slot.{name}"
                switch.clear_table(table)
                for bits, slots, ns in steps:
                    switch.add_entry(table, {"bits": bits}, action, {"slots": slots, "minus_ns": -ns % _WRAP})
        for table in _TABLES:
            switch.clear_table(table)
        for index, flow in self._watched.items():
            self._add_entries(index, flow.key)
        if self._set_up_more is not None:
            self._set_up_more(switch)
        self._clock = _Clock(self._given_zero_ns, self._idle_ns)
        self._epoch_ns: int | None = None  # on the switch's clock
        self._read_until: int | None = None
        self._update_clock()

    def _update_clock(self) -> None:
        """Read the time, and renew the epoch before the data plane's slot count runs out."""
        clock = self._clock
        clock.update(self._switch)
        if not clock.known:
            return
        if clock.zero_ns is None:
            clock.zero_ns = time.time_ns() - clock.now_ns
        now_ns = clock.now_ns
        if self._epoch_ns is None or not 0 <= now_ns - self._epoch_ns < _COUNTED_NS // 2:
            slot = (clock.zero_ns + now_ns - _COUNTED_NS // 4) // self.slot_ns
            self._epoch_ns = slot * self.slot_ns - clock.zero_ns
            data = {"minus_ns": -self._epoch_ns % _WRAP, "number": slot % _WRAP}
            for side in ("in", "out"):
                self._switch.set_default(f"{side}_slot.epoch", "began", data)
            if self._read_until is None:
                self._read_until = self._slot(now_ns)

    def _slot(self, switch_ns: int) -> int:
        assert self._clock.zero_ns is not None
        return (self._clock.zero_ns + switch_ns) // self.slot_ns

    def _add_entries(self, index: int, key: FlowKey) -> None:
        version, keys = _keys(key)
        for table in ("out_flows.flows", "out_acks.acks", "in_flows.flows"):
            self._switch.add_entry(f"{table}_ipv{version}", keys, "watch", {"number": index})

    def _delete_entries(self, key: FlowKey) -> None:
        version, keys = _keys(key)
        for table in ("in_flows.flows", "out_flows.flows", "out_acks.acks"):
            self._switch.delete_entry(f"{table}_ipv{version}", keys)

    def _change(self, change: Callable[[], None]) -> None:
        """Change entries and update the clock. While the switch is gone, the change waits for the next set-up."""
        if not self._away:
            try:
                change()
                self._update_clock()
            except SwitchGoneError as err:
                self._lost(err)

    def _lost(self, err: SwitchGoneError) -> None:
        log.warning("%s; retrying", err)
        self._away = True

    def add(self, number: int, key: FlowKey) -> None:
        """Start to monitor a flow under this number.

        Raises
        ------
        CollectorError
            There is no room, the flow is already monitored, or an address is invalid.
        """
        _keys(key)  # checks the addresses
        if any(flow.key == key for flow in self._watched.values()):
            raise CollectorError(f"{key.src} {key.sport} {key.dst} {key.dport}: is already monitored")
        now = self.now_ns // self.slot_ns
        # cells of the flow that had the index before must not be taken for this flow's
        free = [
            i for i in range(FLOWS) if i not in self._watched and now - self._freed.get(i, now - RING) >= RING
        ]
        if not free:
            raise CollectorError(f"no room for more flows: the switch has room for {FLOWS}")
        self._watched[free[0]] = _Watched(number, key)
        self._change(lambda: self._add_entries(free[0], key))

    def remove(self, key: FlowKey) -> None:
        """Stop monitoring a flow. What was collected since the last reading is lost.

        Raises
        ------
        CollectorError
            The flow is not monitored.
        """
        index = next((i for i, flow in self._watched.items() if flow.key == key), None)
        if index is None:
            raise CollectorError(f"{key.src} {key.sport} {key.dst} {key.dport}: is not monitored")
        del self._watched[index]
        self._change(lambda: self._delete_entries(key))
        self._freed[index] = self.now_ns // self.slot_ns

    def heavy(self, least_bytes: int) -> list[tuple[FlowKey, int]]:
        """Always empty: the data plane only counts watched flows."""
        return []

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, everything: bool = False) -> Reading:
        """Cells of the slots completed since the last reading.

        Parameters
        ----------
        everything : bool
            Include incomplete slots, because no more packets will come.
        """
        try:
            if self._away:
                self._switch.reconnect(timeout_s=0.0)
                self._set_up()
                self._away, self._gap = False, True
                log.info("the switch is back")
            return self._reading(everything)
        except SwitchGoneError as err:
            if not self._away:
                self._lost(err)
            empty = np.empty(0, CELL)
            until = self.now_ns // self.slot_ns if self._read_until is None else self._read_until
            return Reading(empty, empty, until, self._counters())

    def _reading(self, everything: bool) -> Reading:
        empty = np.empty(0, CELL)
        self._update_clock()
        if self._read_until is None:
            return Reading(empty, empty, self.now_ns // self.slot_ns, self._counters())
        since = self._read_until
        until = self._slot(self._clock.now_ns) - GRACE_SLOTS
        if everything:
            until = self._slot(self._clock.last_ns) + 1
        until = max(until, since)
        read = self._read_rings(since, until) if self._watched else {}
        # meanwhile, packets of slots up to the current one may have overwritten cells
        self._update_clock()
        oldest = self._slot(self._clock.last_ns) - RING + 1
        missed_until = since + 1 if self._gap else None
        self._gap = False
        if oldest > since:
            if self._watched:
                log.warning("read too late: lost %d slots", oldest - since)
                missed_until = oldest
            since = oldest
        self._read_until = max(until, since)
        cells: dict[str, list[np.ndarray]] = {"in": [empty], "out": [empty]}
        for index, flow in self._watched.items():
            part = {name: values[index::FLOWS] for name, values in read.items()}
            if part:
                came, left = self._cells(flow, part, since, until)
                cells["in"].append(came)
                cells["out"].append(left)
        came, left = (np.concatenate(cells[side]) for side in ("in", "out"))
        for side, some in (("in", came), ("out", left)):
            self._counts[side]["monitored"] += int(some["packets"].sum())
            self._counts[side]["cells"] += int((some["packets"] != 0).sum())
        return Reading(came, left, self._read_until, self._counters(), missed_until)

    def _read_rings(self, since: int, until: int) -> dict[str, np.ndarray]:
        """The registers' cells for these slots, for all flows."""
        slots = min(until - since, RING)
        at = since % RING
        ends = [(at, min(slots, RING - at)), (0, at + slots - RING)]
        return {
            name: np.concatenate(
                [self._switch.read_register(name, a * FLOWS, n * FLOWS) for a, n in ends if n > 0]
            )
            for name in _REGISTERS
            if slots > 0
        }

    def _cells(
        self, flow: _Watched, part: dict[str, np.ndarray], since: int, until: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """A flow's ingress and egress cells for these slots, in order."""

        def wanted(register: str) -> tuple[np.ndarray, np.ndarray]:
            slot = until + _difference(part[register]["slot"], until)
            at = np.flatnonzero((slot >= since) & (slot < until))
            at = at[np.argsort(slot[at])]
            return at, slot[at]

        sides = []
        for side in ("in", "out"):
            at, slot = wanted(f"{side}_first")
            cells = np.zeros(len(at), CELL)
            cells["way"] = 2 * flow.number
            cells["slot"] = slot
            cells["first_seq"] = part[f"{side}_first"]["seq"][at].astype(np.int64) + 1
            for what in ("bytes", "packets"):
                cells[what] = part[f"{side}_counts"][what][at]
            for what in _NOT_COLLECTED:
                cells[what] = _NONE
            sides.append(cells)
            if side == "in":
                end = part["in_end"][at].astype(np.int64)
        at, acked_slot = wanted("acked")
        return _with_marks(flow, sides[0], end, acked_slot, part["acked"]["ack"][at].astype(np.int64)), sides[
            1
        ]

    def _counters(self) -> dict[str, Any]:
        return {
            tap: {"packets": self._clock.packets[side], **self._counts[side]}
            for tap, side in (("ingress", "in"), ("egress", "out"))
        }

    @property
    def now_ns(self) -> int:
        """The switch's time, in ns since the Unix epoch."""
        clock = self._clock
        return time.time_ns() if not clock.known or clock.zero_ns is None else clock.zero_ns + clock.now_ns

    def rtts(self) -> dict[int, tuple[float, float]]:
        """None: the switch sees no timestamps."""
        return {}

    def wait(self, until_ns: int) -> bool:
        """Sleep until a time; always True, because a live link never ends."""
        while (left_s := (until_ns - self.now_ns) / 1e9) > 0:
            if self._clock.known or self._away:
                time.sleep(left_s)
                break
            time.sleep(min(left_s, _POLL_S))
            try:
                self._update_clock()  # soon after the first packet, for its time
            except SwitchGoneError:
                break  # the next reading handles it
        return True

    def close(self) -> None:
        """Stop watching all flows. The switch keeps forwarding."""
        if not self._away:
            for table in _TABLES:
                self._switch.clear_table(table)


_TABLES = tuple(
    f"{table}_ipv{version}"
    for table in ("in_flows.flows", "out_flows.flows", "out_acks.acks")
    for version in (4, 6)
)
_REGISTERS = ("in_first", "in_counts", "in_end", "out_first", "out_counts", "acked")


def _keys(key: FlowKey) -> tuple[int, dict[str, int]]:
    """The IP version, and the keys of a flow's entries."""
    try:
        source, destination = ipaddress.ip_address(key.src), ipaddress.ip_address(key.dst)
    except ValueError as err:
        raise CollectorError(f"{err}") from None
    if source.version != destination.version or not (0 <= key.sport < 1 << 16 and 0 <= key.dport < 1 << 16):
        raise CollectorError(
            f"{key.src} {key.sport} {key.dst} {key.dport}: must be two addresses of one IP version with ports"
        )
    return source.version, {
        "source": int(source),
        "destination": int(destination),
        "source_port": key.sport,
        "destination_port": key.dport,
    }


def _difference(a: Any, b: int) -> Any:
    """a - b modulo 2**32, as a signed number."""
    if isinstance(a, np.ndarray):
        a = a.astype(np.int64)
    return ((a - b % _WRAP + (1 << 31)) & (_WRAP - 1)) - (1 << 31)


def _with_marks(
    flow: _Watched, cells: np.ndarray, end: np.ndarray, acked_slot: np.ndarray, acked: np.ndarray
) -> np.ndarray:
    """Ingress cells with the highest sequence number sent and acknowledged by then, as in ``compute_slots``.

    Once data were seen, a slot without data also has a cell if it acknowledges more than before.
    """
    slots = np.union1d(cells["slot"], acked_slot)
    if not len(slots):
        return cells
    of_data, of_acks = np.searchsorted(slots, cells["slot"]), np.searchsorted(slots, acked_slot)
    if not flow.end and not flow.acked:  # counting starts with whatever came first
        first = end[0] if len(end) and of_data[0] == 0 else acked[0]
        base = int(first) + _WRAP
    else:
        base = flow.end or flow.acked
    highest = np.zeros((2, len(slots) + 1), np.int64)
    highest[:, 0] = flow.end, flow.acked
    highest[0, of_data + 1] = base + _difference(end, base)
    highest[1, of_acks + 1] = (flow.acked or base) + _difference(acked, flow.acked or base)
    highest = np.maximum.accumulate(highest, axis=1)
    out = np.zeros(len(slots), CELL)
    out["way"], out["slot"] = 2 * flow.number, slots
    for what in _NOT_COLLECTED:
        out[what] = _NONE
    out[of_data] = cells
    out["end"], out["acked"] = highest[:, 1:]
    more = (highest[1, 1:] > highest[1, :-1]) & (highest[0, 1:] > 0)
    flow.end, flow.acked = highest[:, -1].tolist()
    return out[more | (out["packets"] > 0)]


def control(
    flow: Annotated[list[str], typer.Option(metavar="SRC:PORT-DST:PORT", help="Flow to watch (repeatable).")],
    wire: Annotated[
        list[str] | None, typer.Option(metavar="IN:OUT", help="Forward packets from port IN to port OUT.")
    ] = None,
    rate_mbps: Rate = None,
    frame_bytes: FrameBytes = 1514,
    buffer_packets: BufferPackets = None,
    slot_ms: Annotated[float, typer.Option(help="Slot length, ms.")] = 1.0,
    every: Annotated[float, typer.Option(metavar="MS", help="Interval between readings.")] = 100.0,
    report_every: Annotated[float, typer.Option(metavar="S", help="Interval between reports.")] = 1.0,
    duration_s: Duration = None,
    classify: Annotated[bool, typer.Option(help="Identify the flows' congestion controls.")] = True,
    model: Annotated[
        str | None, typer.Option(help="Name or folder of the classifier; default: the bundled one.")
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format", "-f", help="table (updated in place) or jsonl (one line per flow and report)."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write slots to this .csv, .jsonl or .parquet file."
        ),
    ] = None,
) -> Work:
    """Watch flows in a switch and identify their congestion controls while they run: `cct live` for a P4 switch.

    Example: `python -m hardware.programs.cbiq.control --bmv2 127.0.0.1:9090 --wire 0:1 --wire 1:0 --flow
    10.0.0.1:40000-10.0.1.1:5001`
    """
    longest_ms = (RING - GRACE_SLOTS) * slot_ms / 2
    if every > longest_ms:
        raise ParameterError(
            f"--every: {every:g} ms must be at most {longest_ms:g} ms, because the switch stores {RING} slots"
        )
    wires = parse_wires(wire or [])
    for text in flow:  # before the switch is asked
        flow_key(text)

    def set_up(switch: Switch) -> None:
        set_wires(switch, wires)
        shape_ports(switch, wires, rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)

    classifier = load_classifier(model) if classify else None
    return lambda switch: follow(
        lambda: SwitchCollector(switch, slot_ms=slot_ms, set_up=set_up),
        flow,
        format,
        output,
        classifier,
        {"command": sys.argv, "version": __version__, "capture": f"switch: {switch.target}"},
        heavy=0,
        period_ms=every,
        report_s=report_every,
        duration_s=duration_s,
    )


if __name__ == "__main__":
    run("cbiq", control)
