"""Numbers in headers: IP protocols, with their IANA keywords, and the flags of TCP."""

from __future__ import annotations

from ..errors import ParameterError

__all__ = ["protocol_name", "protocol_number"]

# IP protocol numbers.
ICMP, TCP, UDP, DCCP, FRAGMENT_HEADER, AUTHENTICATION_HEADER = 1, 6, 17, 33, 44, 51
ICMPV6, NO_NEXT_HEADER, SCTP, UDP_LITE = 58, 59, 132, 136

# Flags of a TCP header, as in the column ``tcp_flags``.
FIN, SYN, RST, PSH, ACK, URG, ECE, CWR, AE = (1 << bit for bit in range(9))

PROTOCOL_NAMES = {
    0: "HOPOPT",
    ICMP: "ICMP",
    2: "IGMP",
    4: "IPIP",
    TCP: "TCP",
    UDP: "UDP",
    DCCP: "DCCP",
    41: "IPv6",
    47: "GRE",
    50: "ESP",
    AUTHENTICATION_HEADER: "AH",
    ICMPV6: "ICMPv6",
    89: "OSPF",
    103: "PIM",
    112: "VRRP",
    115: "L2TP",
    SCTP: "SCTP",
    UDP_LITE: "UDPLite",
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
    if not isinstance(name, str) or name.isdecimal():
        if not 0 <= int(name) <= 255:
            raise ParameterError(f"protocol: {name} must be between 0 and 255")
        return int(name)
    for number, keyword in PROTOCOL_NAMES.items():
        if keyword.lower() == name.lower():
            return number
    raise ParameterError(
        f"protocol: {name!r} must be a number or one of {', '.join(PROTOCOL_NAMES.values())}"
    )
