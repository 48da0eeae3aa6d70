"""CoDel's control plane: where ports lead, how many queues flows are spread over, rates; and what the queues are in.

::

    python -m hardware.programs.codel.control --bmv2 127.0.0.1:9090 --wire 0:1 --wire 1:0 --queues 8 --rate-mbps 100
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from cctoolkit.errors import ParameterError

from ...common.command import main_loop, run
from ...common.switch import Switch
from ...common.wires import parse_wires, set_wires
from .constants import QUEUES

__all__ = ["clear", "queue_states", "set_up"]

log = logging.getLogger(__name__)

#: A BMv2's port has 8 priorities.
_MOST_QUEUES = {"bmv2": 8}
#: All the same; the traffic manager's own default.
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
        Where packets of a port leave. Those of other ports are dropped.
    queues : int
        Over so many queues the flows that leave by a port are spread: 1 is CoDel, more is FQ-CoDel. A power of two,
        up to 32, or 8 on BMv2.
    rate_mbps : float, optional
        Of each port that is led to. CoDel sees only queues in this switch.
    frame_bytes, buffer_packets : int
        As in :meth:`Switch.shape`.

    Notes
    -----
    A Tofino serves queues of one priority by deficit round robin; they get equal weights here. BMv2 serves them by
    strict priority, each at the port's rate, so there FQ-CoDel's states can be seen but not its shares.
    """
    most = _MOST_QUEUES.get(switch.target, QUEUES)
    if not 1 <= queues <= most or queues & (queues - 1):
        raise ParameterError(f"queues: {queues} is no power of two up to {most}")
    set_wires(switch, wires)
    for port in sorted(set(wires.values())):
        switch.add_entry("queues", {"port": port}, "spread", {"mask": queues - 1})
        if queues > 1 and switch.target != "bmv2":
            for queue in range(queues):
                switch.weight(port, queue, _WEIGHT)
        if rate_mbps is not None:
            switch.shape(port, rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)


def clear(switch: Switch) -> None:
    """Forget the state of all queues and what was counted."""
    switch.write_register("dropping", 0)
    switch.write_register("drop_next", {"time_ns": 0, "count": 0})
    switch.write_register("signals", {"marked": 0, "dropped": 0})


def queue_states(switch: Switch, ports: Iterable[int], queues: int = 1) -> pd.DataFrame:
    """What the queues of these ports are in now.

    Returns
    -------
    DataFrame
        One row a queue: ``port``, ``queue``; ``dropping``, whether its last packet violated the target; ``count``,
        drops and marks since it does, counting from 1 as the paper does, and ``drop_next_ns``, the switch's clock (32
        bits) when the next is due, both of the last time if it does not; ``marked`` and ``dropped`` packets so far.
    """
    tables = []
    for port in ports:
        first = port * QUEUES
        dropping, following, signals = (switch.read_register(name, first, queues) for name in _REGISTERS)
        # the data plane keeps the count of the drop to come
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
    switch: Switch,
    wire: Annotated[list[str], typer.Option(metavar="IN:OUT", help="Where packets of a port leave.")],
    queues: Annotated[int, typer.Option(help="Of each port that is led to; above 1 it is FQ-CoDel.")] = 1,
    rate_mbps: Annotated[float | None, typer.Option(help="Shape these ports.")] = None,
    frame_bytes: Annotated[int, typer.Option(help="Size of packets, where rates are in packets.")] = 1514,
    buffer_packets: Annotated[int | None, typer.Option(help="Room in a queue.")] = None,
    period_s: Annotated[float, typer.Option(help="Between two looks.")] = 1.0,
    duration_s: Annotated[float | None, typer.Option(help="End after so long; otherwise by Ctrl-C.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Append each look to this CSV.")
    ] = None,
) -> None:
    """Set a switch with CoDel up, and tell what its queues are in."""
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

    def look(switch: Switch) -> None:
        states = queue_states(switch, ports, queues)
        for row in states[states.dropping].itertuples():
            log.info("port %d queue %d: count %d", row.port, row.queue, row.count)
        log.info("%d packets marked, %d dropped", states.marked.sum(), states.dropped.sum())
        if output is not None:
            states.insert(0, "time_s", round(time.time(), 3))
            states.to_csv(output, mode="a", header=not output.exists(), index=False)

    main_loop(switch, look, period_s, set_up=start, duration_s=duration_s)


if __name__ == "__main__":
    run("codel", control)
