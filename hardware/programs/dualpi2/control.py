"""DualPI2's control plane: the controller, which reads delays from the data plane and writes probabilities;
and the queues' weights.

::

    python -m hardware.programs.dualpi2.control --bmv2 127.0.0.1:9090 --wire 0:1 --wire 1:0 --rate-mbps 100

It must keep running: without it the data plane uses the last probabilities forever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Annotated

import pandas as pd
import typer

from cctoolkit.aqm.dualpi2 import BITS, ONE, IntegerDualPi2
from cctoolkit.aqm.pi2 import fixed_point
from cctoolkit.errors import ParameterError

from ...common.command import Work, run
from ...common.options import BufferPackets, Duration, FrameBytes, Rate, StepLog, Wire
from ...common.switch import Switch
from ...common.wires import parse_wires, set_wires, shape_ports
from ..pi2 import control as pi2
from .constants import C_QUEUE, L_QUEUE

__all__ = ["Controller", "clear", "port_states", "set_up"]

log = logging.getLogger(__name__)

_fixed_point = fixed_point.py_func  # as in hardware.programs.pi2.control


class Controller(pi2.Controller):
    """A PI controller for the two queues of each port, like :class:`hardware.programs.pi2.control.Controller`.

    Parameters
    ----------
    ports : iterable of int
        The egress ports.
    model : IntegerDualPi2, optional
        Target, gains, interval and coupling. Default: the RFC's.
    """

    def __init__(self, ports: Iterable[int], model: IntegerDualPi2 | None = None) -> None:
        super().__init__(ports)
        self.model = model or IntegerDualPi2()

    def read_delay_ns(self, switch: Switch, port: int) -> int:
        """The longer of the two queues' delays, so that overload by the L queue alone is detected."""
        delays = switch.read_register("last_delay_ns", 2 * port, 2)
        for queue, delay_ns in enumerate(delays):
            if delay_ns:
                switch.write_register("last_delay_ns", 0, 2 * port + queue)
        return int(delays.max())

    def action_data(self, probability: float) -> dict[str, int]:
        """p_CL, p_C, and whether p_CL has reached 1."""
        coupled = int(_fixed_point(self.model.coupling * probability, BITS))
        classic = int(_fixed_point(probability**2, BITS))
        return {"coupled": coupled, "classic": classic, "overloaded": int(coupled == ONE)}


def set_up(
    switch: Switch,
    wires: Mapping[int, int],
    *,
    l_percent: int = 90,
    rate_mbps: float | None = None,
    frame_bytes: int = 1514,
    buffer_packets: int | None = None,
) -> None:
    """Set the wires, shape the ports, and set the queues' weights.

    Parameters
    ----------
    switch : Switch
    wires : dict of int to int
        Where packets from each port leave. Packets from other ports are dropped.
    l_percent : int
        The L queue's weight in percent; the classic queue has the rest. On BMv2, which has no weights, the L
        queue always goes first.
    rate_mbps : float, optional
        Shape each egress port to this rate. DualPI2 only sees queues in this switch.
    frame_bytes, buffer_packets : int
        As in :meth:`Switch.shape`.

    Notes
    -----
    BMv2 gives each queue the whole rate, so the two together may send twice as much.
    """
    if not 0 < l_percent < 100:
        raise ParameterError(f"l_percent: {l_percent} must be 1 to 99")
    set_wires(switch, wires)
    for port in sorted(set(wires.values())):
        if switch.target != "bmv2":
            switch.weight(port, L_QUEUE, l_percent)
            switch.weight(port, C_QUEUE, 100 - l_percent)
    shape_ports(switch, wires, rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)


def clear(switch: Switch) -> None:
    """Reset probabilities, sums, delays and counters."""
    switch.clear_table("probabilities")
    for name in ("last_delay_ns", "classic_sum", "l_sum"):
        switch.write_register(name, 0)
    switch.write_register("signals", {"marked": 0, "dropped": 0})


def port_states(switch: Switch, controller: Controller) -> pd.DataFrame:
    """The current state of the ports.

    Returns
    -------
    DataFrame
        One row per port: ``port``; ``delay_ms``, the controller's last reading; ``probability``, p';
        ``l_marked``, ``l_dropped``, ``c_marked``, ``c_dropped``, packets of the two queues so far.
    """
    rows = []
    for port, probability in controller.probability.items():
        signals = switch.read_register("signals", 2 * port, 2)
        row = {"port": port, "delay_ms": controller.delay_ns[port] * 1e-6, "probability": probability}
        for name, queue in (("l", L_QUEUE), ("c", C_QUEUE)):
            for what in ("marked", "dropped"):
                row[f"{name}_{what}"] = int(signals[queue][what])
        rows.append(row)
    return pd.DataFrame(rows)


_MODEL = IntegerDualPi2()


def control(
    wire: Wire,
    target_ms: Annotated[float, typer.Option(help="Target delay.")] = _MODEL.target_ms,
    update_ms: Annotated[float, typer.Option(help="Update interval.")] = _MODEL.update_ms,
    alpha: Annotated[float, typer.Option(help="Integral gain, Hz.")] = _MODEL.alpha,
    beta: Annotated[float, typer.Option(help="Proportional gain, Hz.")] = _MODEL.beta,
    coupling: Annotated[float, typer.Option(help="Coupling factor k.")] = _MODEL.coupling,
    l_percent: Annotated[int, typer.Option(help="The L queue's weight in percent.")] = 90,
    rate_mbps: Rate = None,
    frame_bytes: FrameBytes = 1514,
    buffer_packets: BufferPackets = None,
    duration_s: Duration = None,
    output: StepLog = None,
) -> Work:
    """Set up a switch with DualPI2, and run its controller."""
    wires = parse_wires(wire)
    model = IntegerDualPi2(
        target_ms=target_ms, update_ms=update_ms, alpha=alpha, beta=beta, coupling=coupling
    )
    controller = Controller(sorted(set(wires.values())), model)

    def start(switch: Switch) -> None:
        set_up(
            switch,
            wires,
            l_percent=l_percent,
            rate_mbps=rate_mbps,
            frame_bytes=frame_bytes,
            buffer_packets=buffer_packets,
        )

    def states(switch: Switch) -> pd.DataFrame:
        return port_states(switch, controller)

    def work(switch: Switch) -> None:
        if switch.target == "bmv2":
            log.warning("BMv2 has no queue weights: the L queue always goes first")
        pi2.run_controller(switch, controller, start, states, duration_s=duration_s, output=output)

    return work


if __name__ == "__main__":
    run("dualpi2", control)
