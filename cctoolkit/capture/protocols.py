"""IP protocol numbers and their names (IANA's keywords)."""

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
    """IANA's keyword of an IP protocol number, or the number where it is not a common one."""
    return PROTOCOL_NAMES.get(int(number), str(int(number)))


def protocol_number(name: str | int) -> int:
    """The reverse of :func:`protocol_name`; takes numbers too.

    Raises
    ------
    ParameterError
        No such protocol.
    """
    if isinstance(name, int | np.integer) or name.isdecimal():
        if not 0 <= int(name) <= 255:
            raise ParameterError(f"protocol: {name} is not between 0 and 255")
        return int(name)
    for number, keyword in PROTOCOL_NAMES.items():
        if keyword.lower() == name.lower():
            return number
    raise ParameterError(
        f"protocol: {name!r} is no number and not one of {', '.join(PROTOCOL_NAMES.values())}"
    )
