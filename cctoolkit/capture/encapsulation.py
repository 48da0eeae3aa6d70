"""The headers between a frame's first byte and its IP header: one function per header, with its standard.

Every function reads one header. It takes

p : int64
    Address of the header's first byte.
end : int64
    Address behind the last captured byte that can belong to it. Nothing at or beyond `end` is read.

and returns

layer : int64
    What follows the header: an EtherType, one of the codes below, or ``IP_PROTOCOL`` + an IP protocol number;
    ``NOTHING`` if unknown here, ``CUT`` if the header was not captured in full.
p : int64
    Address of what follows. It may lie beyond `end`: then the next header finds no bytes.
bound : int64
    Address where what follows ends by the header's own length field; ``UNBOUNDED`` if it has none. Bytes from there
    on are padding or trailers (Ethernet pads frames to 60 bytes) and belong to no payload.

Not decoded: MACsec, TRILL, NSH, L2TPv3, VXLAN-GPE, PPP with header compression, LLC other than SNAP, 802.11 inside
CAPWAP, and 802.11 frames that are encrypted, later fragments or A-MSDUs. Where an IP header encloses them, the row
describes that one; otherwise the frame is counted as ``not_ip``.
"""

from __future__ import annotations

import functools
from typing import Any, no_type_check

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .._support.kernels import callback, kernel, part
from ._load import be16, be32, le16, le32, le64, u8
from ._store import put_le64

__all__ = [
    "CUT",
    "ETHERNET",
    "IPV4",
    "IPV6",
    "IP_PROTOCOL",
    "LINK_LAYERS",
    "LINK_NAMES",
    "NOTHING",
    "UNBOUNDED",
    "UNKNOWN_LINK",
    "call_to_ip",
    "compile_to_ip",
    "compiled_to_ip",
    "has_no_ip",
    "in_udp",
    "to_ip",
]

NOTHING = -2
CUT = -1
UNBOUNDED = 2**63 - 1

# Layers that have an EtherType are called by it; behind it, what a length field stands for is 802.2.
LARGEST_LENGTH = 1500
IPV4, IPV6 = 0x0800, 0x86DD
VLAN, PROVIDER_VLAN, QINQ_9100, QINQ_9200 = 0x8100, 0x88A8, 0x9100, 0x9200
MPLS, MPLS_UPSTREAM = 0x8847, 0x8848
PPPOE_SESSION = 0x8864
E_TAG, VN_TAG, I_TAG, FABRIC_PATH = 0x893F, 0x8926, 0x88E7, 0x8903
TRANSPARENT_ETHERNET, GRE_PPP, ERSPAN_I_II, ERSPAN_III, WCCP = 0x6558, 0x880B, 0x88BE, 0x22EB, 0x883E

# Layers without one.
(
    ETHERNET,
    LLC,
    RAW_IP,
    NULL,
    LOOP,
    SLL,
    SLL2,
    PPP,
    CISCO_HDLC,
    IEEE80211,
    RADIOTAP,
    GTP_U,
    TEREDO,
    VXLAN,
    GENEVE,
    L2TP,
    FDDI,
) = range(0x10000, 0x10011)
UNKNOWN_LINK = 0x1FFFF

# IP protocols.
IP_PROTOCOL = 0x20000
IPV4_IN_IP = IP_PROTOCOL + 4
IPV6_IN_IP = IP_PROTOCOL + 41
GRE = IP_PROTOCOL + 47
MPLS_IN_IP = IP_PROTOCOL + 137
ETHERNET_IN_IP = IP_PROTOCOL + 143
#: Those known here.
IP_PROTOCOLS = [layer - IP_PROTOCOL for layer in (IPV4_IN_IP, IPV6_IN_IP, GRE, MPLS_IN_IP, ETHERNET_IN_IP)]

#: What a frame of a link type (LINKTYPE_ number, https://www.tcpdump.org/linktypes.html) begins with.
_LINK_TYPES = {
    0: ("NULL", NULL),
    1: ("EN10MB", ETHERNET),
    9: ("PPP", PPP),
    10: ("FDDI", FDDI),
    12: ("RAW", RAW_IP),
    14: ("RAW", RAW_IP),
    50: ("PPP_SERIAL", PPP),
    51: ("PPP_ETHER", PPPOE_SESSION),
    101: ("RAW", RAW_IP),
    104: ("C_HDLC", CISCO_HDLC),
    105: ("IEEE802_11", IEEE80211),
    108: ("LOOP", LOOP),
    113: ("LINUX_SLL", SLL),
    127: ("IEEE802_11_RADIOTAP", RADIOTAP),
    228: ("IPV4", IPV4),
    229: ("IPV6", IPV6),
    276: ("LINUX_SLL2", SLL2),
}
LINK_NAMES = {number: name for number, (name, _) in _LINK_TYPES.items()}
LINK_LAYERS = np.full(512, UNKNOWN_LINK)
LINK_LAYERS[list(_LINK_TYPES)] = [layer for _, layer in _LINK_TYPES.values()]


@kernel
@no_type_check  # numba types it
def to_ip(layer, p, end, wire_end):
    """Walk from the header `layer` at `p` to the next IP header.

    Parameters
    ----------
    layer, p, end : int64
        As above.
    wire_end : int64
        Address behind the last byte that was on the wire, captured or not.

    Returns
    -------
    layer, p : int64
        ``IPV4`` or ``IPV6`` and where it is, or ``NOTHING`` or ``CUT``.
    end, wire_end : int64
        No further than the lengths on the way allow.
    vlans, label_stacks, pppoe_headers : int64
        How many of these were passed, or cut.
    """
    vlans = label_stacks = pppoe_headers = np.int64(0)
    while layer >= 0 and layer != IPV4 and layer != IPV6:
        vlans += _is_vlan(layer)
        label_stacks += _is_mpls(layer)
        pppoe_headers += layer == PPPOE_SESSION
        layer, p, bound = _unwrap(layer, p, end, wire_end)
        if bound != UNBOUNDED:
            wire_end = min(wire_end, bound)
            end = min(end, wire_end)
    return layer, p, end, wire_end, vlans, label_stacks, pppoe_headers


# To compile all of this takes as long as the rest of the decoder, and most captures do without it. So it is compiled
# when a frame needs it, and called by address.


class _Compiled:
    address = 0


def compiled_to_ip() -> int:
    """Address of the compiled :func:`to_ip` for :func:`call_to_ip`, or 0: it is not compiled yet."""
    return _Compiled.address


def compile_to_ip() -> int:
    """Compile :func:`to_ip` if it is not; return its address."""
    _Compiled.address = _callback().address
    return _Compiled.address


@functools.cache
def _callback() -> Any:
    return callback(_to_ip_at, numba.types.void(numba.types.int64))


def _to_ip_at(at: int) -> None:
    found = to_ip(le64(at), le64(at + 8), le64(at + 16), le64(at + 24))
    for k in range(7):
        put_le64(at + 8 * k, found[k])


@intrinsic
def _call(typingctx: Any, address: Any, argument: Any) -> Any:
    """Call the C function at an address with one word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, nothing = ir.IntType(64), ir.IntType(8).as_pointer()  # what numba's C functions return for None
        function = builder.inttoptr(args[0], ir.FunctionType(nothing, [word]).as_pointer())
        builder.call(function, [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@part
@no_type_check
def call_to_ip(address, layer, p, end, wire_end, at):
    """:func:`to_ip`, called by address.

    Parameters
    ----------
    address : int64
        What :func:`compiled_to_ip` returned, and not 0.
    layer, p, end, wire_end : int64
        As for :func:`to_ip`.
    at : int64
        Address of seven words to overwrite.
    """
    put_le64(at, layer)
    put_le64(at + 8, p)
    put_le64(at + 16, end)
    put_le64(at + 24, wire_end)
    _call(address, at)
    return le64(at), le64(at + 8), le64(at + 16), le64(at + 24), le64(at + 32), le64(at + 40), le64(at + 48)


@part
@no_type_check
def has_no_ip(layer, p, end):
    """Whether :func:`to_ip` certainly finds nothing, as in most frames without an IP header (ARP, LLDP, STP)."""
    if layer == ETHERNET and end - p >= 18 and be16(p + 12) <= LARGEST_LENGTH:
        return be32(p + 14) != 0xAAAA0300  # LLC without SNAP
    known = _is_vlan(layer) or _is_mpls(layer) or layer == PPPOE_SESSION
    known = known or layer == E_TAG or layer == VN_TAG or layer == I_TAG or layer == FABRIC_PATH
    return layer < ETHERNET and not known


@kernel
@no_type_check
def _is_vlan(layer):
    return layer == VLAN or layer == PROVIDER_VLAN or layer == QINQ_9100 or layer == QINQ_9200


@kernel
@no_type_check
def _is_mpls(layer):
    return layer == MPLS or layer == MPLS_UPSTREAM or layer == MPLS_IN_IP


@kernel
@no_type_check
def _unwrap(layer, p, end, wire_end):
    """The header `layer` at `p`, whichever it is; the frame or packet around it ends at `wire_end` on the wire."""
    # Link layers and what Ethernet carries
    if _is_vlan(layer):
        return vlan(p, end)
    if layer == ETHERNET:
        return ethernet(p, end)
    if layer == LLC:
        return llc(p, end)
    if _is_mpls(layer):
        return mpls(p, end)
    if layer == PPPOE_SESSION:
        return pppoe_session(p, end)
    if layer == PPP:
        return ppp(p, end)
    if layer == SLL:
        return sll(p, end)
    if layer == SLL2:
        return sll2(p, end)
    if layer == RAW_IP:
        return raw_ip(p, end)
    if layer == NULL:
        return null(p, end)
    if layer == LOOP:
        return loop(p, end)
    if layer == CISCO_HDLC:
        return cisco_hdlc(p, end)
    if layer == E_TAG:
        return e_tag(p, end)
    if layer == VN_TAG:
        return vn_tag(p, end)
    if layer == I_TAG:
        return i_tag(p, end)
    if layer == FABRIC_PATH:
        return fabric_path(p, end)
    if layer == RADIOTAP:
        return radiotap(p, end, wire_end)
    if layer == IEEE80211:
        return ieee80211(p, end)
    if layer == FDDI:
        return fddi(p, end)
    # in IP
    if layer == GRE:
        return gre(p, end)
    if layer == IPV4_IN_IP:  # RFC 2003
        return IPV4, p, UNBOUNDED
    if layer == IPV6_IN_IP:  # RFC 2473 and 4213
        return IPV6, p, UNBOUNDED
    if layer == ETHERNET_IN_IP:  # RFC 8986, section 4.9
        return ETHERNET, p, UNBOUNDED
    # in UDP
    if layer == VXLAN:
        return vxlan(p, end)
    if layer == GTP_U:
        return gtp_u(p, end)
    if layer == GENEVE:
        return geneve(p, end)
    if layer == TEREDO:
        return teredo(p, end)
    if layer == L2TP:
        return l2tp(p, end)
    return NOTHING, p, UNBOUNDED


@kernel
@no_type_check
def in_udp(sport, dport):
    """Which layer a UDP datagram carries, by its ports as IANA registers them; NOTHING if they say nothing.

    The side that opens a tunnel picks the source port of VXLAN, Geneve, GRE and MPLS for its entropy (RFC 7348,
    8926, 8086, 7510), so that only the destination port counts; of GTP-U, Teredo and L2TP answers come from the port.
    """
    if dport == 4789 or dport == 8472:  # 8472 was Linux's choice before VXLAN had a port
        return VXLAN
    if dport == 6081:
        return GENEVE
    if dport == 2152 or sport == 2152:
        return GTP_U
    if dport == 3544 or sport == 3544:
        return TEREDO
    if dport == 4754:
        return GRE
    if dport == 6635:
        return MPLS
    if dport == 1701 or sport == 1701:
        return L2TP
    return NOTHING


# ---- Link layers, and what Ethernet carries --------------------------------------------------------------------------


@kernel
@no_type_check
def _by_type_or_length(number, p):
    """IEEE 802.3, clause 3.2.6: up to 1500 it is the length of an LLC frame at `p`, from 1536 on an EtherType."""
    if number <= LARGEST_LENGTH:
        return LLC, p, p + number
    return number, p, UNBOUNDED


@kernel
@no_type_check
def ethernet(p, end):
    """Ethernet, IEEE 802.3::

    0             6        12              14
    | destination | source | type or length | ...
    """
    if end - p < 14:
        return CUT, p, UNBOUNDED
    return _by_type_or_length(be16(p + 12), p + 14)


@kernel
@no_type_check
def vlan(p, end):
    """A VLAN tag, IEEE 802.1Q (0x8100) and 802.1ad (0x88A8; 0x9100 and 0x9200 came before it)::

    0                                 2                4
    | priority 3, DEI 1, VLAN ID 12   | type or length | ...
    """
    if end - p < 4:
        return CUT, p, UNBOUNDED
    return _by_type_or_length(be16(p + 2), p + 4)


@kernel
@no_type_check
def e_tag(p, end):
    """E-TAG of a port extender, IEEE 802.1BR::

    0                               6                8
    | priority, two extender ports  | type or length | ...
    """
    if end - p < 8:
        return CUT, p, UNBOUNDED
    return _by_type_or_length(be16(p + 6), p + 8)


@kernel
@no_type_check
def vn_tag(p, end):
    """VN-Tag, Cisco's predecessor of E-TAG (IEEE 802.1Qbh, withdrawn)::

    0                               4                6
    | two virtual interface numbers | type or length | ...
    """
    if end - p < 6:
        return CUT, p, UNBOUNDED
    return _by_type_or_length(be16(p + 4), p + 6)


@kernel
@no_type_check
def i_tag(p, end):
    """I-TAG of a provider backbone bridge (MAC-in-MAC), IEEE 802.1ah: a customer's whole frame follows::

    0                            4
    | priority, flags, I-SID 24  | destination, source, type or length, ...
    """
    if end - p < 4:
        return CUT, p, UNBOUNDED
    return ETHERNET, p + 4, UNBOUNDED


@kernel
@no_type_check
def fabric_path(p, end):
    """Cisco FabricPath: a host's whole frame follows (Cisco's white paper "Cisco FabricPath", frame format)::

    0                              2
    | forwarding tag 10, TTL 6     | destination, source, type or length, ...
    """
    if end - p < 2:
        return CUT, p, UNBOUNDED
    return ETHERNET, p + 2, UNBOUNDED


@kernel
@no_type_check
def llc(p, end):
    """LLC (IEEE 802.2) with a SNAP header (IEEE 802, clause 9) that names an EtherType; other LLC carries no IP::

    0    1    2      3              6           8
    | AA | AA | 03   | OUI 00:00:00 | EtherType | ...
    """
    if end - p < 8 or be32(p) != 0xAAAA0300 or be16(p + 4) != 0:
        return NOTHING, p, UNBOUNDED
    return be16(p + 6), p + 8, UNBOUNDED


@kernel
@no_type_check
def mpls(p, end):
    """MPLS labels down to the bottom of the stack, RFC 3032::

        0          20      23  24       32 bits
        | label    | class | S | TTL    |  repeated until S = 1

    Nothing says what follows, so its first four bits decide (RFC 4928): 4 and 6 are IP, 0 is the control word of an
    Ethernet pseudowire (RFC 4448, section 4.6, where the word has no length), anything else Ethernet without one.
    """
    bottom = False
    while not bottom and end - p >= 4:
        bottom = u8(p + 2) & 1 != 0
        p += 4
    if not bottom or end - p < 1:
        return CUT, p, UNBOUNDED
    nibble = u8(p) >> 4
    if nibble == 4:
        return IPV4, p, UNBOUNDED
    if nibble == 6:
        return IPV6, p, UNBOUNDED
    if nibble == 0 and end - p >= 18:
        return ETHERNET, p + 4, UNBOUNDED
    return ETHERNET, p, UNBOUNDED


@kernel
@no_type_check
def pppoe_session(p, end):
    """PPP over Ethernet, session stage, RFC 2516. The length counts the PPP frame, without this header::

    0                    1      2         4        6
    | version 1, type 1  | code | session | length | PPP
    """
    if end - p < 8 or be16(p) != 0x1100:  # code 0: session data
        return NOTHING, p, UNBOUNDED
    return PPP, p + 6, p + 6 + be16(p + 4)


@kernel
@no_type_check
def ppp(p, end):
    """PPP, RFC 1661, with or without the address and control bytes of RFC 1662::

    0         2           4
    | FF 03   | protocol  | ...     the protocol is one byte, and odd, where it is compressed

    Cisco HDLC on the same links begins with 0F 00 or 8F 00 (LINKTYPE_PPP_HDLC).
    """
    if end - p >= 2 and (be16(p) == 0x0F00 or be16(p) == 0x8F00):
        return cisco_hdlc(p, end)
    if end - p >= 2 and be16(p) == 0xFF03:
        p += 2
    if end - p < 2:
        return NOTHING, p, UNBOUNDED
    if u8(p) & 1:
        protocol = u8(p)
        p += 1
    else:
        protocol = be16(p)
        p += 2
    if protocol == 0x0021:
        return IPV4, p, UNBOUNDED
    if protocol == 0x0057:
        return IPV6, p, UNBOUNDED
    if protocol == 0x0281:
        return MPLS, p, UNBOUNDED
    return NOTHING, p, UNBOUNDED


@kernel
@no_type_check
def cisco_hdlc(p, end):
    """Cisco HDLC, LINKTYPE_C_HDLC (never standardised; RFC 1547 describes it)::

    0         1         2           4
    | address | control | EtherType | ...
    """
    if end - p < 4:
        return NOTHING, p, UNBOUNDED
    return be16(p + 2), p + 4, UNBOUNDED


@kernel
@no_type_check
def raw_ip(p, end):
    """LINKTYPE_RAW: an IP packet, whose first four bits say which."""
    if end - p < 1:
        return NOTHING, p, UNBOUNDED
    return IPV6 if u8(p) >> 4 == 6 else IPV4, p, UNBOUNDED


@kernel
@no_type_check
def _by_address_family(family, p):
    """AF_INET is 2 everywhere, AF_INET6 is 10 (Linux), 24 (OpenBSD, NetBSD), 28 (FreeBSD) or 30 (macOS)."""
    if family == 2:
        return IPV4, p, UNBOUNDED
    if family == 10 or family == 24 or family == 28 or family == 30:
        return IPV6, p, UNBOUNDED
    return NOTHING, p, UNBOUNDED


@kernel
@no_type_check
def null(p, end):
    """LINKTYPE_NULL, BSD's loopback: an address family (4 bytes) in the capturing machine's byte order."""
    if end - p < 4:
        return NOTHING, p, UNBOUNDED
    return _by_address_family(le32(p) if le32(p) < 0x10000 else be32(p), p + 4)


@kernel
@no_type_check
def loop(p, end):
    """LINKTYPE_LOOP, OpenBSD's loopback: an address family (4 bytes) in network byte order."""
    if end - p < 4:
        return NOTHING, p, UNBOUNDED
    return _by_address_family(be32(p), p + 4)


@kernel
@no_type_check
def _by_cooked_protocol(protocol, p):
    """Linux's protocol numbers are EtherTypes, and 4 for LLC (whose length field the cooked header has replaced)."""
    return LLC if protocol == 4 else protocol, p, UNBOUNDED


@kernel
@no_type_check
def sll(p, end):
    """LINKTYPE_LINUX_SLL, what Linux's "any" device captures::

    0             2        4                6         14         16
    | packet type | ARPHRD | address length | address | protocol | ...
    """
    if end - p < 16:
        return NOTHING, p, UNBOUNDED
    return _by_cooked_protocol(be16(p + 14), p + 16)


@kernel
@no_type_check
def sll2(p, end):
    """LINKTYPE_LINUX_SLL2, the same with the interface's number::

    0          2          4           8        10            11               12        20
    | protocol | reserved | interface | ARPHRD | packet type | address length | address | ...
    """
    if end - p < 20:
        return NOTHING, p, UNBOUNDED
    return _by_cooked_protocol(be16(p), p + 20)


@kernel
@no_type_check
def radiotap(p, end, wire_end):
    """LINKTYPE_IEEE802_11_RADIOTAP: how a frame was received, then the 802.11 frame; https://www.radiotap.org::

        0         1         2             4               8            length
        | version | padding | length (LE) | present (LE)  | fields ... | 802.11
                                            bit 31: another four bytes of it follow

    Of the fields only the flags matter. They are there if bit 1 of `present` is set, behind eight aligned bytes of
    bit 0: 0x20 pads the 802.11 header to four bytes, 0x10 puts a frame check sequence of four bytes behind the payload.
    """
    if end - p < 8 or u8(p) != 0:
        return NOTHING, p, UNBOUNDED
    frame = p + le16(p + 2)
    present = le32(p + 4)
    field = p + 8
    more = present
    while more >> 31 != 0 and end - field >= 4:
        more = le32(field)
        field += 4
    if present & 1:
        field = p + (field - p + 7) // 8 * 8 + 8
    if frame < field or frame > end:
        return NOTHING, p, UNBOUNDED
    flags = u8(field) if present & 2 and field < frame else np.int64(0)
    layer, p, bound = ieee80211(frame, end, flags & 0x20 != 0)
    return layer, p, wire_end - 4 if flags & 0x10 else bound


@kernel
@no_type_check
def ieee80211(p, end, padded=False):
    """LINKTYPE_IEEE802_11, a frame of IEEE 802.11 (section 9.2); data frames carry LLC (numbers little-endian)::

        0                                    1       2          4   10  16  22                 24
        | version 2, type 2, subtype 4 bits  | flags | duration | addresses | fragment 4 bits  | ...
        ... address 4 (6, to and from DS) | QoS control (2, subtype 8) | HT control (4, flag 0x80) | payload

    `padded` says that zeros fill the header up to a multiple of four bytes.
    """
    if end - p < 24:
        return NOTHING, p, UNBOUNDED
    control, flags = u8(p), u8(p + 1)
    later_fragment = u8(p + 22) & 15 != 0
    if control & 0x4F != 0x08 or flags & 0x40 or later_fragment:  # no data, or encrypted
        return NOTHING, p, UNBOUNDED
    size = 30 if flags & 3 == 3 else 24
    if control & 0x80:
        if end - p < size + 2 or u8(p + size) & 0x80:  # an A-MSDU, which holds several packets
            return NOTHING, p, UNBOUNDED
        size += 6 if flags & 0x80 else 2
    if padded:
        size = (size + 3) // 4 * 4
    return LLC, p + size, UNBOUNDED


@kernel
@no_type_check
def fddi(p, end):
    """LINKTYPE_FDDI, a frame of ANSI X3.139; asynchronous ones with LLC have frame control 5x::

    0               1             7        13
    | frame control | destination | source | LLC
    """
    if end - p < 13 or u8(p) >> 4 != 5:
        return NOTHING, p, UNBOUNDED
    return LLC, p + 13, UNBOUNDED


# ---- In IP -----------------------------------------------------------------------------------------------------------


@kernel
@no_type_check
def gre(p, end):
    """GRE, RFC 2784 and 2890; version 1 is PPTP's, RFC 2637, and has a length in the upper half of its key::

        0                                          2              4
        | C, R, K, S, ..., A (0x80), version 3 bits | EtherType    | ...
        ... checksum (4, C) | key (4, K) | sequence number (4, S) | acknowledgement (4, A, version 1) | payload

    Packets with a routing field (R, RFC 1701) are not looked at: nobody sends them. The EtherType may be that of

    * a whole Ethernet frame (0x6558) or PPP (0x880B);
    * ERSPAN, a mirrored Ethernet frame (draft-foschiano-erspan): type I has neither sequence number nor header, type II
      has both, its header takes 8 bytes; type III (0x22EB) takes 12 bytes, and 20 if the last bit of these is set;
    * WCCP version 2 (0x883E), which may put a redirect header of four bytes before the IPv4 packet;
    * an 802.11 frame between an access point and its controller (0x8200 to 0x83F0 in steps of 16, and 0x9000: Aruba).
    """
    if end - p < 4:
        return NOTHING, p, UNBOUNDED
    flags = be16(p)
    layer = be16(p + 2)
    if flags & 0x4000:
        return NOTHING, p, UNBOUNDED
    p += 8 if flags & 0x8000 else 4
    key = p
    if flags & 0x2000:
        p += 4
    if flags & 0x1000:
        p += 4
    bound = UNBOUNDED
    if flags & 7 == 1:
        if flags & 0x0080:
            p += 4
        if flags & 0x2000 and end - key >= 2:
            bound = p + be16(key)
    if layer == TRANSPARENT_ETHERNET:
        return ETHERNET, p, bound
    if layer == GRE_PPP:
        return PPP, p, bound
    if layer & 0xFE0F == 0x8200 or layer == 0x9000:
        return IEEE80211, p, bound
    if layer == ERSPAN_I_II:
        return ETHERNET, p + 8 if flags & 0x1000 else p, bound
    if layer == ERSPAN_III:
        if end - p < 12:
            return NOTHING, p, bound
        return ETHERNET, p + 20 if u8(p + 11) & 1 else p + 12, bound
    if layer == WCCP:
        if end - p < 4:
            return NOTHING, p, bound
        return IPV4, p if u8(p) >> 4 == 4 else p + 4, bound
    return layer, p, bound


# ---- In UDP ----------------------------------------------------------------------------------------------------------


@kernel
@no_type_check
def vxlan(p, end):
    """VXLAN, RFC 7348: an Ethernet frame::

    0                 1          4     7          8
    | flags (I: 0x08) | reserved | VNI | reserved | ...
    """
    if end - p < 8 or u8(p) & 8 == 0:
        return NOTHING, p, UNBOUNDED
    return ETHERNET, p + 8, UNBOUNDED


@kernel
@no_type_check
def geneve(p, end):
    """Geneve, RFC 8926::

    0                                  1       2           4     7          8
    | version 2, options' words 6 bits | flags | EtherType | VNI | reserved | options, ...
    """
    if end - p < 8 or u8(p) >> 6 != 0:
        return NOTHING, p, UNBOUNDED
    layer = be16(p + 2)
    return ETHERNET if layer == TRANSPARENT_ETHERNET else layer, p + 8 + (u8(p) & 63) * 4, UNBOUNDED


@kernel
@no_type_check
def gtp_u(p, end):
    """GTPv1-U, 3GPP TS 29.281, section 5: message 255 carries a user's IP packet. The length counts what follows it::

    0                         1         2        4      8
    | version 1, E, S, PN 3   | message | length | TEID | ...
    ... sequence number (2), N-PDU number (1), next extension header (1): all there if E, S or PN is set
    ... extension headers: words (1), content, next extension header (1)
    """
    if end - p < 8 or u8(p) >> 4 != 3 or u8(p + 1) != 0xFF:
        return NOTHING, p, UNBOUNDED
    flags = u8(p) & 7
    bound = p + 8 + be16(p + 2)
    p += 8
    if flags != 0:
        if end - p < 4:
            return NOTHING, p, bound
        extension = u8(p + 3) if flags & 4 else np.int64(0)
        p += 4
        while extension != 0:
            if end - p < 4 or u8(p) == 0 or end - p < u8(p) * 4:
                return NOTHING, p, bound
            p += u8(p) * 4
            extension = u8(p - 1)
    return RAW_IP, p, bound


@kernel
@no_type_check
def teredo(p, end):
    """Teredo, RFC 4380, section 5.1.1: an IPv6 packet, before which there may be::

    | 00 01 | client's and value's length (1, 1) | client, value | nonce (8) | confirmation (1) |   authentication
    | 00 00 | port (2) | address (4) |                                                              origin
    """
    if end - p >= 4 and be16(p) == 1:
        p += 13 + u8(p + 2) + u8(p + 3)
    if end - p >= 8 and be16(p) == 0:
        p += 8
    return IPV6, p, UNBOUNDED


@kernel
@no_type_check
def l2tp(p, end):
    """L2TPv2 data, RFC 2661, section 3.1: PPP. The length counts the whole message, with this header::

        0                                          2            4        6
        | T, L, 0, 0, S, 0, O, P, 0 x 4, version 2 | length (L) | tunnel | session | ...
        ... Ns, Nr (2, 2, S) | offset (2, O), that many bytes | PPP

    Control messages (T) carry no packets.
    """
    if end - p < 2 or be16(p) & 0x800F != 2:
        return NOTHING, p, UNBOUNDED
    flags = be16(p)
    bound = UNBOUNDED
    if flags & 0x4000:
        if end - p < 4:
            return NOTHING, p, UNBOUNDED
        bound = p + be16(p + 2)
        p += 2
    p += 6
    if flags & 0x0800:
        p += 4
    if flags & 0x0200:
        if end - p < 2:
            return NOTHING, p, bound
        p += 2 + be16(p)
    return PPP, p, bound
