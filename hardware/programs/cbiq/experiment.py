"""Dragonfly's data, collected in the switch: slots of 1 ms of each TCP flow, and the CCA each is identified
as."""

from __future__ import annotations

from typing import Any

import pandas as pd

import cctoolkit as cct
from cctoolkit.identify.live import FlowKey
from cctoolkit.identify.live.stream import SlotStream
from cctoolkit.scenario.endpoints import DESTINATION_PORT, RECEIVERS, SENDERS, address, source_port

from ...common.experiment import Experiment, aqm_of, shape_bottleneck
from ...common.switch import Switch
from ...common.wires import set_wires
from .control import SwitchCollector


def experiment(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """A collector with its taps at both ports of a plain queue."""
    aqm_of(scenario, cct.aqm.TailDrop)
    keys = [
        FlowKey(address(SENDERS, i), source_port(i), address(RECEIVERS, i), DESTINATION_PORT)
        for i, flow in enumerate(scenario.flow_list())
        if not flow.is_udp
    ]
    parts: list[pd.DataFrame] = []
    state: dict[str, Any] = {}

    def wired(switch: Switch) -> None:
        set_wires(switch, {ingress: egress, egress: ingress})
        shape_bottleneck(switch, scenario, egress)

    def set_up(switch: Switch) -> None:
        collector = SwitchCollector(switch, set_up=wired)
        first_slot = collector.now_ns // collector.slot_ns
        stream = SlotStream(first_slot, collector.slot_ns, has_egress=True, sampled=collector.sampled)
        for number, key in enumerate(keys):
            collector.add(number, key)
            stream.begin(number, collector.now_ns // collector.slot_ns + 1)
        state.update(collector=collector, stream=stream)

    def take(ended: range = range(0)) -> None:
        reading = state["collector"].read(everything=len(ended) > 0)
        if reading.missed_until is not None:
            for number in range(len(keys)):
                state["stream"].begin(number, reading.missed_until)
        parts.append(state["stream"].update(reading.in_cells, reading.out_cells, reading.until_slot, ended))

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        take(range(len(keys)))
        slots = pd.concat(parts).sort_values(["flow_id", "slot"], ignore_index=True)
        slots.attrs["slot_ms"] = 1.0
        names = cct.identify.load("cca").predict_slots(slots)
        return {"slots": slots, "names": names}

    return Experiment(set_up, lambda switch: take(), 0.1, read_out)
