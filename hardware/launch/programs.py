"""What each P4 program needs to be told for a scenario; ``switch.py`` runs it.

One function a program, of the scenario and the switch's two ports: where senders come in, and where the bottleneck is.
"""

from __future__ import annotations

import ipaddress
import time
from typing import Any

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


def _aqm(scenario: cct.Scenario, *kinds: type[cct.aqm.Aqm]) -> cct.aqm.Aqm:
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


def abc(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """Section 6 of the ABC paper: one switch is the whole domain, each client (``Flow.aggregate``) an aggregate."""
    from ..control import abc as control

    aqm = _aqm(scenario, cct.aqm.Abc)  # IntegerAbc is one
    assert isinstance(aqm, cct.aqm.Abc)
    rates_kbps = aqm.reference_rates_bps() / 1e3
    bottleneck = scenario.bottleneck
    prefixes = client_prefixes([flow.aggregate for flow in scenario.flow_list()])
    aggregates = [control.Aggregate(str(p), float(rates_kbps[number])) for number, p in prefixes.items()]
    link = control.Link(
        egress,
        bottleneck.rate_mbps,
        bottleneck.buffer_packets or 24,
        aqm.min_packets,
        aqm.base_packets,
        aqm.gamma_packets,
    )
    domain = control.Domain({ingress: egress, egress: ingress}, links=(link,), aggregates=aggregates)

    def set_up(switch: Switch) -> None:
        control.set_up(switch, domain, frame_bytes=_frame_bytes(scenario))
        control.clear(switch)

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        return {
            "aggregates": control.aggregate_table(switch, domain),
            "ports": control.port_table(switch, domain),
        }

    return Experiment(set_up, read_out=read_out)


def ired(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """Section 5 of the L4S paper, one queue, or two with L4S in its own."""
    from ..control import ired as control

    aqm = _aqm(scenario, cct.aqm.IRed)
    queues = len(scenario.bottleneck.queue_list())

    def set_up(switch: Switch) -> None:
        control.set_up(
            switch,
            {ingress: egress, egress: ingress},
            model=_integer(aqm, cct.aqm.IntegerIRed),
            queues=queues,
        )
        control.clear(switch)
        _shape(switch, scenario, egress)

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        return {"queues": control.queue_states(switch, [egress], queues)}

    return Experiment(set_up, read_out=read_out, queues=queues)


def pi2(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """Section 5 of the L4S paper; the controller runs beside the traffic."""
    from ..control import pi2 as control

    aqm = _aqm(scenario, cct.aqm.TofinoPi2, cct.aqm.IntegerPi2)
    controller = control.Controller([egress], _integer(aqm, cct.aqm.IntegerPi2))
    return _steered(scenario, ingress, egress, control, controller)


def dualpi2(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """RFC 9332; the controller runs beside the traffic."""
    from ..control import dualpi2 as control

    aqm = _aqm(scenario, cct.aqm.DualPi2)
    controller = control.Controller([egress], _integer(aqm, cct.aqm.IntegerDualPi2))
    return _steered(scenario, ingress, egress, control, controller, queues=2)


def rtt_monitor(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """The RTT paper's loop: the switch measures, its controller decides once a second, and rules come out.

    The switch is in the way of the packets instead of beside it, and has the queue; a router for the rules there is
    none, so they are only said.
    """
    from cctoolkit.separation.controller import RttSeparation
    from cctoolkit.separation.router import Router

    from ..constants.rtt_monitor import TABLES
    from ..control.rtt_monitor import Monitor, separate

    rate_mbps = scenario.bottleneck.rate_mbps
    wires = {ingress: egress, egress: ingress}
    monitor = Monitor(wires, rate_mbps=rate_mbps, wires=wires, all_samples=True)
    classes = len({flow.rtt_ms for flow in scenario.flow_list() if not flow.is_udp})
    rules: list[tuple[float, str]] = []
    decide = separate(
        monitor,
        RttSeparation(rate_mbps, max(classes, 1)),
        Router("linux", rate_mbps, "eth1"),
        lambda lines: rules.append((time.time(), lines)),
    )
    metrics: list[pd.DataFrame] = []
    samples: list[pd.DataFrame] = []

    def set_up(switch: Switch) -> None:
        monitor.set_up(switch)
        _shape(switch, scenario, egress)
        time.sleep(
            1e-3 * TABLES.timeout_ms
        )  # an empty entry is of the time when the clock was 0: free a timeout later

    def step(switch: Switch) -> None:
        decide(switch)
        metrics.append(monitor.metrics.assign(time_s=time.time()))
        samples.append(monitor.take_samples())

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        step(switch)
        return {
            "flows": monitor.flows,
            "metrics": pd.concat(metrics, ignore_index=True),
            "rtt_samples": pd.concat(samples, ignore_index=True),
            "rules": pd.DataFrame(rules, columns=["time_s", "lines"]),
        }

    return Experiment(set_up, step, 1.0, read_out)


def cbiq(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """Dragonfly's data, collected in the switch: slots of 1 ms of each TCP flow, and what its CCA is taken for."""
    from cctoolkit.identify.live import FlowKey
    from cctoolkit.identify.live.stream import SlotStream

    from ..control.cbiq import SwitchCollector

    keys = [
        FlowKey(source_address(i), source_port(i), destination_address(i), DESTINATION_PORT)
        for i, flow in enumerate(scenario.flow_list())
        if not flow.is_udp
    ]
    parts: list[pd.DataFrame] = []
    state: dict[str, Any] = {}

    def wired(switch: Switch) -> None:
        for came, leaves in ((ingress, egress), (egress, ingress)):
            switch.add_entry("wire", {"port": came}, "send", {"port": leaves})
        _shape(switch, scenario, egress)

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


def _steered(
    scenario: cct.Scenario, ingress: int, egress: int, control: Any, controller: Any, *, queues: int = 1
) -> Experiment:
    looks = []

    def set_up(switch: Switch) -> None:
        control.set_up(switch, {ingress: egress, egress: ingress})
        control.clear(switch)
        _shape(switch, scenario, egress)

    def step(switch: Switch) -> None:
        controller.step(switch)
        looks.append((time.time(), controller.probability[egress], controller.delay_ns[egress]))

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        steps = pd.DataFrame(looks, columns=["time_s", "probability", "delay_ns"])
        return {"ports": control.port_states(switch, controller), "controller": steps}

    return Experiment(set_up, step, controller.period_s, read_out, queues)


def _integer(aqm: Any, kind: Any) -> Any:
    """The integer model with the same parameters, as far as it has them."""
    return (
        aqm
        if isinstance(aqm, kind)
        else kind(**{k: v for k, v in aqm.parameters().items() if k in kind().parameters()})
    )


#: Where all flows of a testbed go.
DESTINATION_PORT = 5001


def source_address(flow: int) -> str:
    """Of a testbed's flow, as the captures show it."""
    return f"10.1.{(flow // 250) % 250}.{flow % 250 + 1}"


def destination_address(flow: int) -> str:
    return source_address(flow).replace("10.1.", "10.2.", 1)


def source_port(flow: int) -> int:
    return 10_000 + flow % 50_000


def client_prefixes(client_of_flow: list[int]) -> dict[int, ipaddress.IPv4Network]:
    """A prefix for each client, so that the longest one that matches a flow's address is its client's.

    Raises
    ------
    ParameterError
        The flows of one client are not side by side.
    """
    numbers: dict[int, list[int]] = {}
    for flow, client in enumerate(client_of_flow):
        numbers.setdefault(client, []).append(int(ipaddress.IPv4Address(source_address(flow))))
    prefixes = {}
    for client, found in sorted(numbers.items()):
        bits = (min(found) ^ max(found)).bit_length()
        prefixes[client] = ipaddress.IPv4Network((min(found) >> bits << bits, 32 - bits))
    for flow, client in enumerate(client_of_flow):
        address = ipaddress.IPv4Address(source_address(flow))
        matching = [(p.prefixlen, c) for c, p in prefixes.items() if address in p]
        if [c for n, c in matching if n == max(matching)[0]] != [client]:
            raise ParameterError(
                f"flows: flow {flow} of client {client} has an address in another client's prefix"
            )
    return prefixes
