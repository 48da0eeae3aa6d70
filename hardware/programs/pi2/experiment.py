"""Section 5 of the L4S paper; the controller runs during the traffic."""

from __future__ import annotations

import time
from typing import Any

import pandas as pd

import cctoolkit as cct

from ...common.experiment import Experiment, aqm_of, check_built_in, integer_model, shape_bottleneck
from ...common.switch import Switch
from . import control


def experiment(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """PI2 at port `egress`."""
    aqm = aqm_of(scenario, cct.aqm.TofinoPi2, cct.aqm.IntegerPi2)
    check_built_in(aqm, cct.aqm.IntegerPi2(), "identifier")
    controller = control.Controller([egress], integer_model(cct.aqm.IntegerPi2, aqm))
    return controlled(scenario, ingress, egress, control, controller)


def controlled(
    scenario: cct.Scenario,
    ingress: int,
    egress: int,
    plane: Any,
    controller: control.Controller,
    *,
    queues: int = 1,
) -> Experiment:
    """An experiment with a controller in the control plane, `plane`: PI2's or DualPI2's module."""
    steps = []

    def set_up(switch: Switch) -> None:
        plane.set_up(switch, {ingress: egress, egress: ingress})
        plane.clear(switch)
        shape_bottleneck(switch, scenario, egress)

    def step(switch: Switch) -> None:
        controller.step(switch)
        steps.append((time.time(), controller.probability[egress], controller.delay_ns[egress]))

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        table = pd.DataFrame(steps, columns=["time_s", "probability", "delay_ns"])
        return {"ports": plane.port_states(switch, controller), "controller": table}

    return Experiment(set_up, step, controller.period_s, read_out, queues)
