"""Section IV of the P4-CoDel paper: one queue."""

from __future__ import annotations

import pandas as pd

import cctoolkit as cct

from ...common.experiment import Experiment, aqm_of, check_built_in, shape_bottleneck
from ...common.switch import Switch
from . import control
from .constants import MODEL

#: All but the clock at the beginning, which is the switch's own.
_BUILT_IN = tuple(name for name in MODEL.parameters() if name != "clock_ms")


def experiment(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """CoDel at port `egress`."""
    check_built_in(aqm_of(scenario, cct.aqm.PisaCoDel), MODEL, *_BUILT_IN)

    def set_up(switch: Switch) -> None:
        control.set_up(switch, {ingress: egress, egress: ingress})
        control.clear(switch)
        shape_bottleneck(switch, scenario, egress)

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        return {"queues": control.queue_states(switch, [egress])}

    return Experiment(set_up, read_out=read_out)
