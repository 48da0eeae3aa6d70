"""IP protocol numbers and their IANA keywords."""

from __future__ import annotations

import numpy as np

from ..errors import ParameterError

__all__ = ["protocol_name", "protocol_number"]

PROTOCOL_NAMES = {
    0: "HOPOPT",
    1: "ICMP",
    2: "IGMP",
    4: "IPIP",
    6: "TCP",
    17: "UDP",
    33: "DCCP",
    41: "IPv6",
    47: "GRE",
    50: "ESP",
    51: "AH",
    58: "ICMPv6",
    89: "OSPF",
    103: "PIM",
    112: "VRRP",
    115: "L2TP",
    132: "SCTP",
    136: "UDPLite",
}


def protocol_name(number: int) -> str:
    """The IANA keyword of a common IP protocol number, else the number as text."""
    return PROTOCOL_NAMES.get(int(number), str(int(number)))


def protocol_number(name: str | int) -> int:
    """The inverse of :func:`protocol_name`; accepts numbers too.

    Raises
    ------
    ParameterError
        Unknown protocol.
    """
    if isinstance(name, int | np.integer) or name.isdecimal():
        if not 0 <= int(name) <= 255:
            raise ParameterError(f"protocol: {name} must be between 0 and 255")
        return int(name)
    for number, keyword in PROTOCOL_NAMES.items():
        if keyword.lower() == name.lower():
            return number
    raise ParameterError(
        f"protocol: {name!r} must be a number or one of {', '.join(PROTOCOL_NAMES.values())}"
    )
