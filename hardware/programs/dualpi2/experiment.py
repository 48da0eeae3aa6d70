"""RFC 9332; the controller runs during the traffic."""

from __future__ import annotations

import cctoolkit as cct

from ...common.experiment import Experiment, aqm_of, check_built_in, integer_model
from ..pi2.experiment import controlled
from . import control


def experiment(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """DualPI2 at port `egress`, with its two queues."""
    aqm = aqm_of(scenario, cct.aqm.DualPi2, cct.aqm.IntegerDualPi2, queues=2)
    check_built_in(aqm, cct.aqm.IntegerDualPi2(), "step_ms", "range_ms", "min_backlog_packets")
    controller = control.Controller([egress], integer_model(cct.aqm.IntegerDualPi2, aqm))
    return controlled(scenario, ingress, egress, control, controller, queues=2)
