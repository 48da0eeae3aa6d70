"""Section 6 of the ABC paper: one switch is the whole domain, each client (``Flow.aggregate``) an aggregate."""

from __future__ import annotations

import ipaddress

import pandas as pd

import cctoolkit as cct
from cctoolkit.errors import ParameterError
from cctoolkit.scenario.endpoints import SENDERS, address

from ...common.experiment import Experiment, aqm_of, check_built_in, frame_bytes
from ...common.switch import Switch
from . import control
from .constants import MODEL, TOFINO_MODEL


def experiment(scenario: cct.Scenario, ingress: int, egress: int) -> Experiment:
    """Clients behind port `ingress`, the activity AQM at port `egress`."""
    aqm = aqm_of(scenario, cct.aqm.Abc, cct.aqm.IntegerAbc, cct.aqm.TofinoAbc)
    assert isinstance(aqm, cct.aqm.Abc)
    model = TOFINO_MODEL if isinstance(aqm, cct.aqm.TofinoAbc) else MODEL
    check_built_in(aqm, model, "meter_memory_s", "average_memory_s", "largest_mbps", "header_bytes")
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
        control.set_up(switch, domain, frame_bytes=frame_bytes(scenario))
        control.clear(switch)

    def read_out(switch: Switch) -> dict[str, pd.DataFrame]:
        return {
            "aggregates": control.aggregate_table(switch, domain),
            "ports": control.port_table(switch, domain),
        }

    return Experiment(set_up, read_out=read_out)


def client_prefixes(client_of_flow: list[int]) -> dict[int, ipaddress.IPv4Network]:
    """A prefix for each client, such that the longest match of a flow's address is its client's.

    Raises
    ------
    ParameterError
        A client's flows do not have consecutive numbers.
    """
    numbers: dict[int, list[int]] = {}
    for flow, client in enumerate(client_of_flow):
        numbers.setdefault(client, []).append(int(ipaddress.IPv4Address(address(SENDERS, flow))))
    prefixes = {}
    for client, found in sorted(numbers.items()):
        bits = (min(found) ^ max(found)).bit_length()
        prefixes[client] = ipaddress.IPv4Network((min(found) >> bits << bits, 32 - bits))
    for flow, client in enumerate(client_of_flow):
        source = ipaddress.IPv4Address(address(SENDERS, flow))
        matching = [(p.prefixlen, c) for c, p in prefixes.items() if source in p]
        if [c for n, c in matching if n == max(matching)[0]] != [client]:
            raise ParameterError(
                f"flows: flow {flow} of client {client} has an address in another client's prefix"
            )
    return prefixes
