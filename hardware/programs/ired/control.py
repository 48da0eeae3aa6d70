"""iRED's control plane: sets wires, probabilities and the path of notifications, and reports the state of the
queues.

::

    python -m hardware.programs.ired.control --bmv2 127.0.0.1:9090 --wire 0:1 --wire 1:0 --rate-mbps 100

The AQM is entirely in the data plane: once set up, the switch does not need this process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Annotated

import pandas as pd
import typer

from cctoolkit.aqm.ired import DELAY_SHIFT, IntegerIRed
from cctoolkit.errors import ParameterError

from ...common.command import Work, append_states, main_loop, run
from ...common.options import BufferPackets, Duration, FrameBytes, Period, PollLog, Rate, Wire
from ...common.switch import Switch
from ...common.wires import mirror_to_recirculation, parse_wires, set_wires, shape_ports
from .constants import QUEUES, red_entries

__all__ = ["clear", "queue_states", "set_probabilities", "set_up"]

log = logging.getLogger(__name__)

NOTIFICATION_BYTES = 48
#: On BMv2 a notification passes this port's queue, but is not sent.
_BMV2_PORT = 510
_REGISTERS = ("average_delay", "drop_flag", "drops", "signals")


def set_probabilities(switch: Switch, model: IntegerIRed) -> None:
    """Fill the table of probabilities for the model's parameters."""
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
    """Fill the tables, route notifications, and shape the ports.

    Parameters
    ----------
    switch : Switch
    wires : dict of int to int
        Where packets from each port leave. Packets from other ports are dropped.
    model : IntegerIRed, optional
        Thresholds, coupling, and whether to square. Default: the paper's.
    queues : int
        1: all packets of a port share a queue. 2: scalable packets have their own, number 1.
    rate_mbps : float, optional
        Shape each egress port to this rate. iRED only sees queues in this switch.
    frame_bytes, buffer_packets : int
        As in :meth:`Switch.shape`.
    recirculation_port : int, optional
        Of a Tofino's pipe 0. Default: 68, or 6 on a Tofino 2. Each further pipe's is 128 higher. A
        notification goes to the pipe where its packet came in, because flags are raised there.
    """
    if queues not in (1, 2):
        raise ParameterError(f"queues: {queues} must be 1 or 2")
    if switch.target == "bmv2":
        switch.mirror_session(1, _BMV2_PORT)
    else:
        for port in mirror_to_recirculation(switch, wires, NOTIFICATION_BYTES, recirculation_port):
            switch.add_entry("wire", {"port": port}, "receive_notification")
    set_probabilities(switch, model or IntegerIRed())
    set_wires(switch, wires)
    for port in sorted(set(wires.values())):
        for scalable in (0, 1):
            queue = scalable if queues == 2 else 0
            switch.add_entry("queues", {"port": port, "scalable": scalable}, "enqueue", {"queue": queue})
    shape_ports(switch, wires, rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)


def clear(switch: Switch) -> None:
    """Reset the state and the counters of all queues."""
    for name in ("packets", "delay_sum", "last_sum", "average_delay", "drop_flag", "drops"):
        switch.write_register(name, 0)
    switch.write_register("signals", {"marked": 0, "notified": 0})


def queue_states(switch: Switch, ports: Iterable[int], queues: int = 1) -> pd.DataFrame:
    """The current state of these ports' queues.

    Returns
    -------
    DataFrame
        One row per queue: ``port``, ``queue``; ``average_ms``, the average delay when the last packet left;
        ``to_drop``, whether the next classic packet will be dropped; ``marked`` and ``dropped``, packets so
        far; ``notified``, decisions to drop so far. Several decisions before the next classic packet drop
        only that one.
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
    wire: Wire,
    min_ms: Annotated[float, typer.Option(help="Average delay at which signalling starts.")] = _MODEL.min_ms,
    max_ms: Annotated[
        float, typer.Option(help="Average delay from which every packet is signalled.")
    ] = _MODEL.max_ms,
    coupling: Annotated[
        float, typer.Option(help="Coupling factor k for scalable packets.")
    ] = _MODEL.coupling,
    square: Annotated[bool, typer.Option(help="Square the probability for classic packets.")] = True,
    queues: Annotated[int, typer.Option(help="1: one queue; 2: scalable packets have their own.")] = 1,
    rate_mbps: Rate = None,
    frame_bytes: FrameBytes = 1514,
    buffer_packets: BufferPackets = None,
    recirculation_port: Annotated[
        int | None, typer.Option(help="Tofino: recirculation port of pipe 0.")
    ] = None,
    period_s: Period = 1.0,
    duration_s: Duration = None,
    output: PollLog = None,
) -> Work:
    """Set up a switch with iRED, and report the state of its queues."""
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

    def poll(switch: Switch) -> None:
        states = queue_states(switch, ports, queues)
        for row in states.itertuples():
            log.info(
                "port %d queue %d: %.1f ms, %d marked, %d of %d dropped",
                row.port, row.queue, row.average_ms, row.marked, row.dropped, row.notified,
            )  # fmt: skip
        append_states(states, output)

    return lambda switch: main_loop(switch, poll, period_s, set_up=start, duration_s=duration_s)


if __name__ == "__main__":
    run("ired", control)
