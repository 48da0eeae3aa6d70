"""Addresses and ports of a scenario's flows: the same in the simulator, on a testbed and in a switch's tables.

A sender has 10.1.x.y, its receiver 10.2.x.y.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DESTINATION_PORT", "RECEIVERS", "SENDERS", "address", "octets", "source_port"]

#: Second octet of an address.
SENDERS, RECEIVERS = 1, 2
DESTINATION_PORT = 5001


def octets(side: int, flow: Any) -> tuple[Any, ...]:
    """The four octets of a flow's address (:data:`SENDERS` or :data:`RECEIVERS`); `flow` may be an array."""
    return 10, side, flow // 250 % 250, flow % 250 + 1


def address(side: int, flow: int) -> str:
    """A flow's IPv4 address in dotted notation."""
    return ".".join(map(str, octets(side, flow)))


def source_port(flow: Any) -> Any:
    """A flow's source port; `flow` may be an array."""
    return 10_000 + flow % 50_000
