"""RFC 9332; the controller runs beside the traffic."""

from __future__ import annotations

import cctoolkit as cct

from ...common.experiment import Experiment, aqm_of, integer_model
from ..pi2.experiment import controlled
from . import control


def experiment(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """DualPI2 at port `egress`, with its two queues."""
    aqm = aqm_of(scenario, cct.aqm.DualPi2)
    controller = control.Controller([egress], integer_model(cct.aqm.IntegerDualPi2, aqm))
    return controlled(scenario, ingress, egress, control, controller, queues=2)
