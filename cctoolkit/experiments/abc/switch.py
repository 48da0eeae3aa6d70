"""The ABC paper's testbed around the AQM: losses in a software switch and on the link behind it, unseen by ABC.

Sections 5.1 and 6.1.3 of the paper name two places. Each can be switched on alone:

- **The switch reads too slowly.** BMv2 "cannot read input traffic fast enough and drops packets at the ingress". Here a
  server before the meter reads a given number of packets per second; packets that find its buffer full are lost.
- **The link behind the limiter is too slow.** BMv2 sends 4170 packets per second, 50 Mbit/s in packets of 1500 bytes.
  Full TCP packets are frames of 1514 bytes and make 50.5 Mbit/s; UDP packets with 1448 bytes of payload are frames of
  1490 and make 49.7. Here a link of 50 Mbit/s with its own buffer follows the limiter; packets that find that full are
  lost. A mixture fits if at least 63 percent of its packets are UDP.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from ..._support.kernels import part
from ...aqm import DROP, DROP_LATE, PASS, Abc
from ...scenario import Scenario
from .limiter import PACKETS_PER_S

__all__ = ["LIMITER_MBPS", "SwitchAbc", "through_switch"]

_FRAME = 1514  # bytes of a full TCP packet
#: The limiter in frames of that size. The simulator's links count bytes, so all packets must have one size.
LIMITER_MBPS = PACKETS_PER_S * _FRAME * 8e-6

_activity_aqm = part(error_model="numpy")(Abc.on_enqueue)


class SwitchAbc(Abc):
    """ABC in a software switch that reads at a limited rate, with a link behind it.

    Parameters
    ----------
    read_packets_per_s, read_packets : float
        How fast the switch reads, and how many packets may wait to be read.
    link_mbps, link_packets : float
        Rate of the link behind the switch, and its buffer in full frames.
    padding_bytes : tuple of float
        By how much each aggregate's packets are smaller on that link than before it; the last number counts for all
        further aggregates.

    Notes
    -----
    Only losses are modelled: waiting in these two places takes no time (it would be at most 6 ms on the link behind).
    """

    name: ClassVar[str] = "abc_switch"

    read_packets_per_s: float = 1e9
    read_packets: float = 1024.0
    link_mbps: float = 1e6
    link_packets: float = 24.0
    padding_bytes: tuple[float, ...] = (0.0,)

    class State(Abc.State):
        unread = 0.0  # packets
        read_ns = 0
        behind = 0.0  # bytes before the link
        left_ns = 0

    class Stats(Abc.Stats):
        not_read = 0
        lost_behind = 0

    def derived(self) -> dict[str, Any]:
        """ABC's derived parameters, and the padding of each aggregate."""
        padding = [
            *self.padding_bytes,
            *[self.padding_bytes[-1]] * (self.aggregates - len(self.padding_bytes)),
        ]
        return super().derived() | {"padding_of": np.array(padding, np.float64)}

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        s.unread = max(0.0, s.unread - (now_ns - s.read_ns) * 1e-9 * p.read_packets_per_s)
        s.read_ns = now_ns
        if s.unread + 1 > p.read_packets:
            stats.not_read += 1
            return DROP
        s.unread += 1
        return _activity_aqm(p, s, stats, queue, packet, now_ns)

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        s.behind = max(0.0, s.behind - (now_ns - s.left_ns) * 1e-3 * p.link_mbps / 8)
        s.left_ns = now_ns
        size = packet.bytes - p.padding_of[min(packet.aggregate, len(p.padding_of) - 1)]
        if s.behind + size > p.link_packets * _FRAME:
            stats.lost_behind += 1
            return DROP_LATE  # the limiter has spent its time on it
        s.behind += size
        return PASS


def through_switch(scenario: Scenario, **options: Any) -> Scenario:
    """A scenario of the paper behind its limiter in packets per second, with :class:`SwitchAbc` and these options.

    Smaller packets are padded to full size, and UDP's rate is raised so that it sends as many packets as before.
    """
    flows, padding = [], {}
    for flow in scenario.flows:
        padding[flow.aggregate] = float(_FRAME - flow.packet_bytes)
        rate = flow.rate_mbps and flow.rate_mbps * _FRAME / flow.packet_bytes
        flows.append(dataclasses.replace(flow, packet_bytes=_FRAME, rate_mbps=rate))
    by_aggregate = tuple(padding.get(a, 0.0) for a in range(max(padding) + 1))
    aqm = SwitchAbc(**options, padding_bytes=by_aggregate)
    bottleneck = dataclasses.replace(scenario.bottleneck, rate_mbps=LIMITER_MBPS, aqm=aqm)
    return dataclasses.replace(scenario, bottleneck=bottleneck, flows=tuple(flows))
