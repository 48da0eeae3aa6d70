"""iRED's control plane: where ports lead, the table of probabilities, the way of notifications; and what was done.

::

    python -m hardware.programs.ired.control --bmv2 127.0.0.1:9090 --wire 0:1 --wire 1:0 --rate-mbps 100

The AQM itself is in the data plane: once set up, the switch does not need this process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from cctoolkit.aqm.ired import DELAY_SHIFT, IntegerIRed
from cctoolkit.errors import ParameterError

from ...common.command import main_loop, run
from ...common.switch import Switch
from ...common.wires import parse_wires, set_wires
from .constants import QUEUES, red_entries

__all__ = ["clear", "queue_states", "set_probabilities", "set_up"]

log = logging.getLogger(__name__)

NOTIFICATION_BYTES = 48
#: Of pipe 0; 128 more for each further pipe.
RECIRCULATION_PORTS = {"tofino": 68, "tofino2": 6}
#: On BMv2 a notification waits in this port's queue, and is not sent there.
_BMV2_PORT = 510
_REGISTERS = ("average_delay", "drop_flag", "drops", "signals")


def set_probabilities(switch: Switch, model: IntegerIRed) -> None:
    """Fill the table of probabilities, for these thresholds, this coupling, squared or not."""
    switch.clear_table("red")
    for entry in red_entries(model):
        data = {"classic": entry.classic, "scalable": entry.scalable}
        switch.add_entry("red", {"step": entry.step}, "set_probabilities", data)


def set_up(
    switch: Switch,
    wires: Mapping[int, int],
    *,
    model: IntegerIRed | None = None,
    queues: int = 1,
    rate_mbps: float | None = None,
    frame_bytes: int = 1514,
    buffer_packets: int | None = None,
    recirculation_port: int | None = None,
) -> None:
    """Fill the tables, lead notifications back, and shape the ports.

    Parameters
    ----------
    switch : Switch
    wires : dict of int to int
        Where packets of a port leave. Those of other ports are dropped.
    model : IntegerIRed, optional
        Thresholds, coupling, and whether to square; by default the paper's.
    queues : int
        1: all packets of a port share a queue. 2: scalable ones have one of their own, number 1.
    rate_mbps : float, optional
        Of each port that is led to. iRED sees only queues in this switch.
    frame_bytes, buffer_packets : int
        As in :meth:`Switch.shape`.
    recirculation_port : int, optional
        On a Tofino, of pipe 0; by default 68, on a Tofino 2 it is 6. Notifications of packets that came in by another
        pipe take the port with 128 more for each pipe, as flags are raised where those packets come in.
    """
    if queues not in (1, 2):
        raise ParameterError(f"queues: {queues} is neither 1 nor 2")
    if switch.target == "bmv2":
        switch.mirror_session(1, _BMV2_PORT)
    else:
        first = RECIRCULATION_PORTS[switch.target] if recirculation_port is None else recirculation_port
        for pipe in sorted({port >> 7 for port in wires}):
            port = first + (pipe << 7)
            if port in wires or port in wires.values():
                raise ParameterError(f"--wire: port {port} is the one for notifications")
            switch.mirror_session(pipe + 1, port, NOTIFICATION_BYTES)
            switch.add_entry("wire", {"port": port}, "receive_notification")
    set_probabilities(switch, model or IntegerIRed())
    set_wires(switch, wires)
    for port in sorted(set(wires.values())):
        for scalable in (0, 1):
            queue = scalable if queues == 2 else 0
            switch.add_entry("queues", {"port": port, "scalable": scalable}, "enqueue", {"queue": queue})
        if rate_mbps is not None:
            switch.shape(port, rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)


def clear(switch: Switch) -> None:
    """Forget the state of all queues and what was counted."""
    for name in ("packets", "delay_sum", "last_sum", "average_delay", "drop_flag", "drops"):
        switch.write_register(name, 0)
    switch.write_register("signals", {"marked": 0, "notified": 0})


def queue_states(switch: Switch, ports: Iterable[int], queues: int = 1) -> pd.DataFrame:
    """What the queues of these ports are in now.

    Returns
    -------
    DataFrame
        One row a queue: ``port``, ``queue``; ``average_ms``, the average delay when the last packet left;
        ``to_drop``, whether the next classic packet will be dropped; ``marked`` and ``dropped`` packets and
        ``notified``, decisions to drop, so far. Of several decisions before the next classic packet one is carried out.
    """
    tables = []
    for port in ports:
        first = port * QUEUES
        average, flag, drops, signals = (switch.read_register(name, first, queues) for name in _REGISTERS)
        tables.append(
            pd.DataFrame(
                {
                    "port": port,
                    "queue": range(queues),
                    "average_ms": average * (2**DELAY_SHIFT * 1e-6),
                    "to_drop": flag != 0,
                    "marked": signals["marked"].astype("int64"),
                    "notified": signals["notified"].astype("int64"),
                    "dropped": drops.astype("int64"),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


_MODEL = IntegerIRed()


def control(
    switch: Switch,
    wire: Annotated[list[str], typer.Option(metavar="IN:OUT", help="Where packets of a port leave.")],
    min_ms: Annotated[float, typer.Option(help="Average delay from which on it signals.")] = _MODEL.min_ms,
    max_ms: Annotated[float, typer.Option(help="From which on it always does.")] = _MODEL.max_ms,
    coupling: Annotated[float, typer.Option(help="Factor for scalable packets.")] = _MODEL.coupling,
    square: Annotated[bool, typer.Option(help="Square the probability for classic packets.")] = True,
    queues: Annotated[int, typer.Option(help="1, or 2: scalable packets in their own.")] = 1,
    rate_mbps: Annotated[float | None, typer.Option(help="Shape these ports.")] = None,
    frame_bytes: Annotated[int, typer.Option(help="Size of packets, where rates are in packets.")] = 1514,
    buffer_packets: Annotated[int | None, typer.Option(help="Room in a queue.")] = None,
    recirculation_port: Annotated[int | None, typer.Option(help="Of a Tofino's pipe 0.")] = None,
    period_s: Annotated[float, typer.Option(help="Between two looks.")] = 1.0,
    duration_s: Annotated[float | None, typer.Option(help="End after so long; otherwise by Ctrl-C.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Append each look to this CSV.")
    ] = None,
) -> None:
    """Set a switch with iRED up, and tell what its queues are in."""
    wires = parse_wires(wire)
    ports = sorted(set(wires.values()))
    model = IntegerIRed(min_ms=min_ms, max_ms=max_ms, coupling=coupling, square=square)

    def start(switch: Switch) -> None:
        set_up(
            switch,
            wires,
            model=model,
            queues=queues,
            rate_mbps=rate_mbps,
            frame_bytes=frame_bytes,
            buffer_packets=buffer_packets,
            recirculation_port=recirculation_port,
        )

    def look(switch: Switch) -> None:
        states = queue_states(switch, ports, queues)
        for row in states.itertuples():
            log.info(
                "port %d queue %d: %.1f ms, %d marked, %d of %d dropped",
                row.port, row.queue, row.average_ms, row.marked, row.dropped, row.notified,
            )  # fmt: skip
        if output is not None:
            states.insert(0, "time_s", round(time.time(), 3))
            states.to_csv(output, mode="a", header=not output.exists(), index=False)

    main_loop(switch, look, period_s, set_up=start, duration_s=duration_s)


if __name__ == "__main__":
    run("ired", control)
