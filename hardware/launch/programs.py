"""What each P4 program needs to be told for a scenario; ``switch.py`` runs it.

One function a program, of the scenario and the switch's two ports: where senders come in, and where the bottleneck is.
"""

from __future__ import annotations

import pandas as pd

import cctoolkit as cct
from cctoolkit.errors import ParameterError

from ..control.switch import Switch
from .switch import Experiment


def _frame_bytes(scenario: cct.Scenario) -> int:
    return max(f.packet_bytes for f in scenario.flows)


def _shape(switch: Switch, scenario: cct.Scenario, port: int) -> None:
    """The bottleneck's rate and buffer."""
    bottleneck, frame = scenario.bottleneck, _frame_bytes(scenario)
    room = bottleneck.buffer_packets or (bottleneck.buffer_bytes or frame) // frame
    switch.shape(port, bottleneck.rate_mbps, frame_bytes=frame, buffer_packets=room)


def _aqm(scenario: cct.Scenario, *kinds: type) -> object:
    """The scenario's AQM, which has to be one of these: with its parameters."""
    aqm = scenario.bottleneck.queue_list()[0].aqm
    if not isinstance(aqm, kinds):
        names = " or ".join(k.name for k in kinds)
        raise ParameterError(f"bottleneck.aqm: this program is {names}, not {getattr(aqm, 'name', aqm)}")
    return aqm


def codel(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """Section IV of the P4-CoDel paper: one queue."""
    from ..control import codel as control

    _aqm(scenario, cct.aqm.PisaCoDel)

    def set_up(switch: Switch) -> None:
        control.set_up(switch, {ingress: egress, egress: ingress})
        control.clear(switch)
        _shape(switch, scenario, egress)

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        return {"queues": control.queue_states(switch, [egress])}

    return Experiment(set_up, read_out=read_out)
