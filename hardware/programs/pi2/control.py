"""PI2's control plane: the controller, which reads delays from the data plane and writes probabilities.

::

    python -m hardware.programs.pi2.control --bmv2 127.0.0.1:9090 --wire 0:1 --wire 1:0 --rate-mbps 100

It must keep running: without it the data plane uses the last probability forever.
"""

from __future__ import annotations

import csv
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from cctoolkit.aqm.pi2 import IntegerPi2, fixed_point, pi_step

from ...common.command import Work, main_loop, run
from ...common.options import BufferPackets, Duration, FrameBytes, Rate, StepLog, Wire
from ...common.switch import Switch
from ...common.wires import parse_wires, set_wires, shape_ports

__all__ = ["Controller", "clear", "port_states", "run_controller", "set_up"]

log = logging.getLogger(__name__)

_BITS = 16
# The models' functions without compilation, which would delay the first step by seconds
_pi_step, _fixed_point = pi_step.py_func, fixed_point.py_func


class Controller:
    """A PI controller for each port.

    Parameters
    ----------
    ports : iterable of int
        The egress ports.
    model : IntegerPi2, optional
        Target, gains, interval and coupling. Default: the paper's.

    Attributes
    ----------
    probability : dict of int to float
        p' of each port, not squared.
    delay_ns : dict of int to int
        The last delay read, of each port.
    """

    def __init__(self, ports: Iterable[int], model: IntegerPi2 | None = None) -> None:
        self.model: Any = model or IntegerPi2()
        self.probability = dict.fromkeys(ports, 0.0)
        self.delay_ns = dict.fromkeys(self.probability, 0)
        self._written: dict[int, dict[str, int]] = {}

    @property
    def period_s(self) -> float:
        return float(self.model.update_ms * 1e-3)

    def step(self, switch: Switch) -> None:
        """Read and reset the delays, and write the new probabilities.

        A queue from which no packet leaves until the next step then counts as empty.
        """
        m = self.model
        for port, probability in self.probability.items():
            delay_ns = self.read_delay_ns(switch, port)
            new = _pi_step(probability, delay_ns, self.delay_ns[port], m.target_ms * 1e6, m.alpha, m.beta)
            self.probability[port], self.delay_ns[port] = float(new), delay_ns
        self.write(switch)

    def read_delay_ns(self, switch: Switch, port: int) -> int:
        """Delay of the last packet that left since the last step; 0 if none did."""
        delay_ns = int(switch.read_register("last_delay_ns", port, 1)[0])
        if delay_ns:
            switch.write_register("last_delay_ns", 0, port)
        return delay_ns

    def action_data(self, probability: float) -> dict[str, int]:
        """The data plane's parameters for p'."""
        return {
            "root": int(_fixed_point(probability, _BITS)),
            "coupled": int(_fixed_point(self.model.coupling * probability, _BITS)),
        }

    def write(self, switch: Switch, *, again: bool = False) -> None:
        """Write the probabilities that have changed to the data plane; with `again`, all of them."""
        for port, probability in self.probability.items():
            new = self.action_data(probability)
            if again or new != self._written.get(port):
                switch.add_entry("probabilities", {"port": port}, "set_probabilities", new)
                self._written[port] = new


def set_up(
    switch: Switch,
    wires: Mapping[int, int],
    *,
    rate_mbps: float | None = None,
    frame_bytes: int = 1514,
    buffer_packets: int | None = None,
) -> None:
    """Set the wires and shape the ports.

    Parameters
    ----------
    switch : Switch
    wires : dict of int to int
        Where packets from each port leave. Packets from other ports are dropped.
    rate_mbps : float, optional
        Shape each egress port to this rate. PI2 only sees queues in this switch.
    frame_bytes, buffer_packets : int
        As in :meth:`Switch.shape`.
    """
    set_wires(switch, wires)
    shape_ports(switch, wires, rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)


def clear(switch: Switch) -> None:
    """Reset probabilities, delays and counters."""
    switch.clear_table("probabilities")
    switch.write_register("last_delay_ns", 0)
    switch.write_register("signals", {"marked": 0, "dropped": 0})


def port_states(switch: Switch, controller: Controller) -> pd.DataFrame:
    """The current state of the ports.

    Returns
    -------
    DataFrame
        One row per port: ``port``; ``delay_ms``, the controller's last reading; ``probability``, p';
        ``marked`` and ``dropped``, packets so far.
    """
    signals = {port: switch.read_register("signals", port, 1)[0] for port in controller.probability}
    return pd.DataFrame(
        {
            "port": list(signals),
            "delay_ms": [controller.delay_ns[port] * 1e-6 for port in signals],
            "probability": [controller.probability[port] for port in signals],
            "marked": [int(s["marked"]) for s in signals.values()],
            "dropped": [int(s["dropped"]) for s in signals.values()],
        }
    )


def run_controller(
    switch: Switch,
    controller: Controller,
    start: Callable[[Switch], object],
    states: Callable[[Switch], pd.DataFrame],
    *,
    duration_s: float | None,
    output: Path | None,
) -> None:
    """Set up the switch and run the controller; log the ports' state once a second, and write each step to a
    CSV file.

    Parameters
    ----------
    switch : Switch
    controller : Controller
    start : function
        Sets the switch up, except for the probabilities.
    states : function
        Returns the ports' state, as :func:`port_states`.
    duration_s : float or None
    output : path or None
        CSV file with the columns ``time_s``, ``port``, ``delay_ns``, ``probability``.
    """
    begin = logged = time.monotonic()
    with output.open("w", newline="", encoding="utf-8") if output else nullcontext() as file:
        table = csv.writer(file) if file else None
        if table is not None:
            table.writerow(["time_s", "port", "delay_ns", "probability"])

        def set_up_again(switch: Switch) -> None:
            start(switch)
            controller.write(switch, again=True)

        def step(switch: Switch) -> None:
            nonlocal logged
            controller.step(switch)
            now = time.monotonic()
            if table is not None:
                for port, probability in controller.probability.items():
                    table.writerow(
                        [f"{now - begin:.6f}", port, controller.delay_ns[port], f"{probability:.9f}"]
                    )
            if now - logged >= 1:
                logged = now
                for row in states(switch).to_dict("records"):
                    log.info(", ".join(f"{name} {value:.5g}" for name, value in row.items()))

        main_loop(switch, step, controller.period_s, set_up=set_up_again, duration_s=duration_s)


_MODEL = IntegerPi2()


def control(
    wire: Wire,
    target_ms: Annotated[float, typer.Option(help="Target delay.")] = _MODEL.target_ms,
    update_ms: Annotated[float, typer.Option(help="Update interval.")] = _MODEL.update_ms,
    alpha: Annotated[float, typer.Option(help="Integral gain, Hz.")] = _MODEL.alpha,
    beta: Annotated[float, typer.Option(help="Proportional gain, Hz.")] = _MODEL.beta,
    coupling: Annotated[
        float, typer.Option(help="Coupling factor k for scalable packets.")
    ] = _MODEL.coupling,
    rate_mbps: Rate = None,
    frame_bytes: FrameBytes = 1514,
    buffer_packets: BufferPackets = None,
    duration_s: Duration = None,
    output: StepLog = None,
) -> Work:
    """Set up a switch with PI2, and run its controller."""
    wires = parse_wires(wire)
    model = IntegerPi2(target_ms=target_ms, update_ms=update_ms, alpha=alpha, beta=beta, coupling=coupling)
    controller = Controller(sorted(set(wires.values())), model)

    def start(switch: Switch) -> None:
        set_up(switch, wires, rate_mbps=rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)

    def states(switch: Switch) -> pd.DataFrame:
        return port_states(switch, controller)

    return lambda switch: run_controller(
        switch, controller, start, states, duration_s=duration_s, output=output
    )


if __name__ == "__main__":
    run("pi2", control)
