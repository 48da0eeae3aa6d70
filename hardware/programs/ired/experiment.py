"""Section 5 of the L4S paper: one queue, or two with L4S in its own."""

from __future__ import annotations

import pandas as pd

import cctoolkit as cct

from ...common.experiment import Experiment, aqm_of, check_built_in, integer_model, shape_bottleneck
from ...common.switch import Switch
from . import control


def experiment(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """iRED at port `egress`, with as many queues as the scenario has."""
    aqm = aqm_of(scenario, cct.aqm.IRed, cct.aqm.IntegerIRed, queues=2)
    check_built_in(aqm, cct.aqm.IntegerIRed(), "measure", "weight", "coupled", "identifier")
    queues = len(scenario.bottleneck.queue_list())

    def set_up(switch: Switch) -> None:
        control.set_up(
            switch,
            {ingress: egress, egress: ingress},
            model=integer_model(cct.aqm.IntegerIRed, aqm),
            queues=queues,
        )
        control.clear(switch)
        shape_bottleneck(switch, scenario, egress)

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        return {"queues": control.queue_states(switch, [egress], queues)}

    return Experiment(set_up, read_out=read_out, queues=queues)
