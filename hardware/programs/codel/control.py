"""CoDel's control plane: sets wires, queues and rates, and reports the state of the queues.

::

    python -m hardware.programs.codel.control --bmv2 127.0.0.1:9090 --wire 0:1 --wire 1:0 --queues 8 --rate-mbps 100
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Annotated

import pandas as pd
import typer

from cctoolkit.errors import ParameterError

from ...common.command import Work, append_states, main_loop, run
from ...common.options import BufferPackets, Duration, FrameBytes, Period, PollLog, Rate, Wire
from ...common.switch import Switch
from ...common.wires import parse_wires, set_wires, shape_ports
from .constants import QUEUES

__all__ = ["clear", "queue_states", "set_up"]

log = logging.getLogger(__name__)

#: The same for all queues: the traffic manager's default.
_WEIGHT = 1023
_REGISTERS = ("dropping", "drop_next", "signals")


def set_up(
    switch: Switch,
    wires: Mapping[int, int],
    *,
    queues: int = 1,
    rate_mbps: float | None = None,
    frame_bytes: int = 1514,
    buffer_packets: int | None = None,
) -> None:
    """Fill the tables and shape the ports.

    Parameters
    ----------
    switch : Switch
    wires : dict of int to int
        Where packets from each port leave. Packets from other ports are dropped.
    queues : int
        Number of queues that the flows of each egress port are spread over: 1 is CoDel, more is FQ-CoDel. A
        power of two, at most 32, and no more than the port has (:meth:`Switch.queue_count`).
    rate_mbps : float, optional
        Shape each egress port to this rate. CoDel only sees queues in this switch.
    frame_bytes, buffer_packets : int
        As in :meth:`Switch.shape`.

    Notes
    -----
    A Tofino serves queues of equal priority by deficit round robin, here with equal weights. BMv2 serves them
    in strict priority order, each at the port's rate, so it shows FQ-CoDel's states but not its shares.
    """
    if not 1 <= queues <= QUEUES or queues & (queues - 1):
        raise ParameterError(f"queues: {queues} must be a power of two, at most {QUEUES}")
    ports = sorted(set(wires.values()))
    if queues > 1:
        for port in ports:
            if queues > (most := switch.queue_count(port)):
                raise ParameterError(f"queues: {queues} is too many for port {port}, which has {most}")
    set_wires(switch, wires)
    for port in ports:
        switch.add_entry("queues", {"port": port}, "spread", {"mask": queues - 1})
        if queues > 1 and switch.target != "bmv2":
            for queue in range(queues):
                switch.weight(port, queue, _WEIGHT)
    shape_ports(switch, wires, rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)


def clear(switch: Switch) -> None:
    """Reset the state and the counters of all queues."""
    switch.write_register("dropping", 0)
    switch.write_register("drop_next", {"time_ns": 0, "count": 0})
    switch.write_register("signals", {"marked": 0, "dropped": 0})


def queue_states(switch: Switch, ports: Iterable[int], queues: int = 1) -> pd.DataFrame:
    """The current state of these ports' queues.

    Returns
    -------
    DataFrame
        One row per queue: ``port``, ``queue``; ``dropping``, whether the last packet violated the target;
        ``count``, the drops and marks since the violation began, counting from 1 as the paper does;
        ``drop_next_ns``, when the next is due on the switch's 32-bit clock; ``marked`` and ``dropped``,
        packets so far. Without a violation, ``count`` and ``drop_next_ns`` are those of the last one.
    """
    tables = []
    for port in ports:
        first = port * QUEUES
        dropping, following, signals = (switch.read_register(name, first, queues) for name in _REGISTERS)
        # the data plane stores the count of the next drop
        count = following["count"].astype("int64") - 1
        tables.append(
            pd.DataFrame(
                {
                    "port": port,
                    "queue": range(queues),
                    "dropping": dropping != 0,
                    "count": count.clip(0),
                    "drop_next_ns": following["time_ns"].astype("int64"),
                    "marked": signals["marked"].astype("int64"),
                    "dropped": signals["dropped"].astype("int64"),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def control(
    wire: Wire,
    queues: Annotated[int, typer.Option(help="Queues of each egress port; more than 1 is FQ-CoDel.")] = 1,
    rate_mbps: Rate = None,
    frame_bytes: FrameBytes = 1514,
    buffer_packets: BufferPackets = None,
    period_s: Period = 1.0,
    duration_s: Duration = None,
    output: PollLog = None,
) -> Work:
    """Set up a switch with CoDel, and report the state of its queues."""
    wires = parse_wires(wire)
    ports = sorted(set(wires.values()))

    def start(switch: Switch) -> None:
        set_up(
            switch,
            wires,
            queues=queues,
            rate_mbps=rate_mbps,
            frame_bytes=frame_bytes,
            buffer_packets=buffer_packets,
        )

    def poll(switch: Switch) -> None:
        states = queue_states(switch, ports, queues)
        for row in states[states.dropping].itertuples():
            log.info("port %d queue %d: count %d", row.port, row.queue, row.count)
        log.info("%d packets marked, %d dropped", states.marked.sum(), states.dropped.sum())
        append_states(states, output)

    return lambda switch: main_loop(switch, poll, period_s, set_up=start, duration_s=duration_s)


if __name__ == "__main__":
    run("codel", control)
