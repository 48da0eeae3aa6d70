"""Frames -> columns: one kernel walks link, network and transport headers of every frame.

Which headers a row describes
    The row's addresses, TTL and DSCP are those of the IP header that directly encloses the transport.
    Encapsulations without a transport of their own (VLAN, QinQ, E-TAG, MPLS, PPPoE, GRE, ERSPAN, IP-in-IP,
    Ethernet in IPv6, AH) are always walked through, so ``IP/GRE/IP/TCP`` is the TCP flow inside.
    Encapsulations inside UDP (VXLAN, Geneve, GTP-U, Teredo, GRE-in-UDP, MPLS-in-UDP, by their registered ports)
    are walked through only with ``inner``; by default the row is the outer UDP. Where an inner header is cut
    or makes no sense, the row is what was decoded before it.
Lengths
    ``payload_bytes`` comes from the IP length, clipped to the frame's length on the wire. An IP length of 0
    (segmentation offload) means "to the end of the frame".
Fragments
    Only a first fragment has a transport header; later ones are rows with ports 0, so their bytes count.
Cut headers
    TCP with fewer than 20 captured bytes keeps its ports (if 4 bytes are there) and no other TCP column; its
    ``payload_bytes`` are what follows a header without options.
"""

from __future__ import annotations

from collections import namedtuple
from typing import no_type_check

import numpy as np

from .._support.kernels import kernel
from ..schema import PACKETS
from ._load import be16, be32, be64, le32, u8

__all__ = ["COUNTS", "KEY_WORDS", "PacketColumns", "decode_headers", "flow_hash", "link_name"]

PacketColumns = namedtuple("PacketColumns", list(PACKETS))  # type: ignore[misc]  # names come from the schema
# What identifies the flow of a row, for flow_ids: a cache line of eight words. First the two ends a and b (the smaller
# first; an IPv4 address is the low 32 bits of LO), then SWAPPED << 48 | a's port << 32 | b's port << 16 |
# protocol << 8 | IP version (swapped: the row goes from b to a), what a SYN's options said, and a hash of all that.
KEY_WORDS = 8
KEY_A_HI, KEY_A_LO, KEY_B_HI, KEY_B_LO, KEY_PORTS, KEY_SYN_OPTIONS, KEY_HASH = np.arange(7, dtype=np.uint64)
SWAPPED_BIT = 48


@kernel
@no_type_check
def flow_hash(a_hi, a_lo, b_hi, b_lo, ports, seed):
    """Multiply and fold. The seed differs in every process, so that no capture can be made to collide."""
    h = (np.uint64(a_lo) ^ seed) * np.uint64(0x9E3779B97F4A7C15)
    if a_hi | b_hi:  # IPv6
        h ^= np.uint64(a_hi) * np.uint64(0x165667B19E3779F9) ^ np.uint64(b_hi) * np.uint64(0x27D4EB2F165667C5)
    h = (h ^ h >> np.uint64(32) ^ np.uint64(b_lo)) * np.uint64(0xC2B2AE3D27D4EB4F)
    h = (h ^ h >> np.uint64(32) ^ np.uint64(ports)) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ h >> np.uint64(32)


#: What the kernel counts, by position.
COUNTS = (
    "ipv4",
    "ipv6",
    "tcp",
    "udp",
    "icmp",
    "other_transport",
    "not_ip",  # frames without an IP header, so without a row
    "fragments",  # later fragments
    "truncated_headers",  # IP or transport header cut by the snap length, or its lengths contradict
    "vlan",
    "mpls",
    "pppoe",
    "tunnelled",  # rows whose IP header is not the outermost
    "other_link_type",  # frames of a link type this package does not know, so without a row
)
(
    _IPV4,
    _IPV6,
    _TCP,
    _UDP,
    _ICMP,
    _OTHER,
    _NOT_IP,
    _FRAGMENTS,
    _TRUNCATED,
    _VLAN,
    _MPLS,
    _PPPOE,
    _TUNNELLED,
    _OTHER_LINK,
) = range(len(COUNTS))

# What comes next in the frame: EtherTypes stand for themselves; above them, layers without one; then IP protocols.
_ETHERNET = 0x10000
_RAW_IP = 0x10001
_NULL = 0x10002
_LOOP = 0x10003
_SLL = 0x10004
_SLL2 = 0x10005
_PPP = 0x10006
_PPP_HDLC = 0x10007
_CISCO_HDLC = 0x10008
_LLC = 0x10009
_GTP = 0x1000A
_TEREDO = 0x1000B
_VXLAN = 0x1000C
_GENEVE = 0x1000D
_UNKNOWN_LINK = 0x1FFFF
_PROTOCOL = 0x20000
_GRE = _PROTOCOL + 47

_LINK_CODES = {
    0: _NULL,
    1: _ETHERNET,
    9: _PPP,
    12: _RAW_IP,
    14: _RAW_IP,
    50: _PPP_HDLC,
    51: 0x8864,
    101: _RAW_IP,
    104: _CISCO_HDLC,
    108: _LOOP,
    113: _SLL,
    228: 0x0800,
    229: 0x86DD,
    276: _SLL2,
}

_LINK_TABLE = np.full(512, _UNKNOWN_LINK)
_LINK_TABLE[list(_LINK_CODES)] = list(_LINK_CODES.values())

LINK_NAMES = {
    0: "NULL",
    1: "EN10MB",
    9: "PPP",
    12: "RAW",
    14: "RAW",
    50: "PPP_SERIAL",
    51: "PPP_ETHER",
    101: "RAW",
    104: "C_HDLC",
    108: "LOOP",
    113: "LINUX_SLL",
    228: "IPV4",
    229: "IPV6",
    276: "LINUX_SLL2",
}


def link_name(link_type: int) -> str:
    """The LINKTYPE_ name, or the number where this package does not know it."""
    return LINK_NAMES.get(link_type, f"link type {link_type}")


@kernel
@no_type_check
def decode_headers(
    data,
    offset,
    caplen,
    wirelen,
    ts_ns,
    link_type,
    n,
    inner,
    first_frame,
    out,
    row0,
    keys,
    seed,
    frame,
    sacks,
    counts,
):
    """Decode `n` frames; return the rows and SACK blocks written, and the frames' original and captured bytes.

    Parameters
    ----------
    data : uint8 array
        Holds the frames.
    offset, caplen, wirelen, ts_ns, link_type : int64 arrays
        Per frame: position in `data`, captured and original length, time, LINKTYPE_ number.
    inner : bool
        Walk through UDP encapsulations too.
    first_frame : int
        Number of the first of these frames, for `frame`.
    out : PacketColumns
        Rows are written from `row0` on; ``flow_id`` and ``direction`` are left to :mod:`flow_ids`.
    keys : int64 array
        ``KEY_WORDS`` words a row, from the first; `seed` goes into the hash.
    frame : uint32 array
        Frame number of each row, from `row0` on; skipped when it has length 0.
    sacks : int64 array, shape (4 n, 3)
        Row, left and right edge of each SACK block.
    counts : int64 array
        Added to, see :data:`COUNTS`.
    """
    c_ts, c_seq, c_ack, c_flags, c_payload, c_wire = (
        out.ts_ns,
        out.seq,
        out.ack,
        out.tcp_flags,
        out.payload_bytes,
        out.wire_bytes,
    )
    c_window, c_ecn, c_dscp, c_ttl, c_tsval, c_tsecr, c_has_ts = (
        out.window,
        out.ecn,
        out.dscp,
        out.ttl,
        out.tsval,
        out.tsecr,
        out.has_ts,
    )
    base = np.int64(data.ctypes.data)
    one = np.uint64(1)
    row = np.uint64(row0)
    k = np.uint64(0)
    n_sacks = 0
    wire_bytes = captured_bytes = n_ipv4 = n_tcp = n_udp = np.int64(0)
    for i in range(n):
        p = base + offset[i]
        end = p + caplen[i]  # of the captured bytes: nothing is read at or beyond it
        wire_end = p + wirelen[i]
        wire_bytes += wirelen[i]
        captured_bytes += caplen[i]
        following = _LINK_TABLE[link_type[i]] if link_type[i] < _LINK_TABLE.size else np.int64(_UNKNOWN_LINK)
        if following == _UNKNOWN_LINK:
            counts[_OTHER_LINK] += 1
            continue

        ip_headers = 0
        version = src_hi = src_lo = dst_hi = dst_lo = np.int64(0)
        protocol = tos = ttl = np.int64(0)
        l4_wire_end = np.int64(0)
        sport = dport = np.int64(0)
        payload = np.int64(0)
        seq = ack = flags = window = tsval = tsecr = np.int64(0)
        has_ts = False
        syn_options = np.int64(0xFF00)
        truncated = False
        later_fragment = False
        row_sacks = 0

        if following == _ETHERNET and end - p >= 14:  # nearly every frame; kept out of the chain below
            following = be16(p + 12)
            p += 14
            if following <= 1500:
                following = _LLC

        while True:
            if following == 0x0800:
                # ---- IPv4, RFC 791
                if end - p < 20 or u8(p) >> 4 != 4:
                    if end - p > 0 and u8(p) >> 4 == 6:  # IPv6 where IPv4 was announced: the version is right
                        following = 0x86DD
                        continue
                    truncated = end - p < 20
                    break
                header_bytes = (u8(p) & 15) * 4
                if header_bytes < 20:
                    truncated = True
                    break
                ip_bytes = be16(p + 2)
                if ip_bytes == 0:  # segmentation offload: the kernel had not filled it in yet
                    ip_bytes = wire_end - p
                version = 4
                src_hi = dst_hi = 0
                src_lo = be32(p + 12)
                dst_lo = be32(p + 16)
                tos = u8(p + 1)
                ttl = u8(p + 8)
                protocol = u8(p + 9)
                fragment = be16(p + 6) & 0x1FFF
                ip_headers += 1
                wire_end = min(wire_end, p + ip_bytes)  # an inner header cannot reach beyond the outer one
                end = min(end, wire_end)
                l4_wire_end = wire_end
                sport = dport = 0
                flags = 0
                p += header_bytes
                payload = max(l4_wire_end - p, 0)
                later_fragment = fragment != 0
                truncated = False
                if later_fragment:
                    break
                following = _PROTOCOL + protocol
            elif following == 0x86DD:
                # ---- IPv6, RFC 8200
                if end - p < 40 or u8(p) >> 4 != 6:
                    truncated = end - p < 40
                    break
                ip_bytes = be16(p + 4) + 40
                if ip_bytes == 40 and u8(p + 6) != 59:  # offload or a jumbogram
                    ip_bytes = wire_end - p
                version = 6
                src_hi = be64(p + 8)
                src_lo = be64(p + 16)
                dst_hi = be64(p + 24)
                dst_lo = be64(p + 32)
                tos = (be16(p) >> 4) & 0xFF
                ttl = u8(p + 7)
                protocol = u8(p + 6)
                ip_headers += 1
                wire_end = min(wire_end, p + ip_bytes)
                end = min(end, wire_end)
                l4_wire_end = wire_end
                sport = dport = 0
                flags = 0
                p += 40
                later_fragment = False
                truncated = False
                # extension headers: hop-by-hop, routing, fragment, AH, destination options, mobility, HIP, shim6
                while True:
                    if protocol == 44:
                        if end - p < 8:
                            truncated = True
                            break
                        later_fragment = be16(p + 2) & 0xFFF8 != 0
                        protocol = u8(p)
                        p += 8
                        if later_fragment:
                            break
                    elif (
                        protocol == 0
                        or protocol == 43
                        or protocol == 60
                        or protocol == 135
                        or protocol == 139
                        or protocol == 140
                    ):
                        if end - p < 8:
                            truncated = True
                            break
                        step = (u8(p + 1) + 1) * 8
                        protocol = u8(p)
                        p += step
                        if p > end:
                            truncated = True
                            break
                    elif protocol == 51:
                        if end - p < 12:
                            truncated = True
                            break
                        step = (u8(p + 1) + 2) * 4
                        protocol = u8(p)
                        p += step
                    else:
                        break
                payload = max(l4_wire_end - p, 0)
                if truncated or later_fragment:
                    break
                following = _PROTOCOL + protocol
            elif following == _PROTOCOL + 6:
                # ---- TCP, RFC 9293
                if end - p >= 4:
                    sport = be16(p)
                    dport = be16(p + 2)
                if end - p < 20:
                    truncated = True
                    payload = max(l4_wire_end - p - 20, 0)
                    break
                seq = be32(p + 4)
                ack = be32(p + 8)
                header_bytes = (u8(p + 12) >> 4) * 4
                flags = be16(p + 12) & 0x0FFF
                window = be16(p + 14)
                payload = l4_wire_end - p - header_bytes
                if header_bytes < 20 or payload < 0:
                    truncated = True
                    payload = 0
                    header_bytes = min(max(header_bytes, 20), l4_wire_end - p)
                options_end = p + header_bytes
                if options_end > end:
                    truncated = True
                    options_end = end
                p += 20
                if options_end - p >= 12 and be32(p) == 0x0101080A:  # the layout of RFC 7323's appendix A
                    tsval = be32(p + 4)
                    tsecr = be32(p + 8)
                    has_ts = True
                    p += 12
                while p < options_end:
                    kind = u8(p)
                    if kind == 1:
                        p += 1
                        continue
                    if kind == 0 or options_end - p < 2:
                        break
                    size = u8(p + 1)
                    if size < 2 or size > options_end - p:
                        break
                    if kind == 8 and size == 10:
                        tsval = be32(p + 2)
                        tsecr = be32(p + 6)
                        has_ts = True
                    elif kind == 5:
                        for block in range((size - 2) // 8):
                            if row_sacks < 4:
                                sacks[n_sacks + row_sacks, 0] = np.int64(row)
                                sacks[n_sacks + row_sacks, 1] = be32(p + 2 + 8 * block)
                                sacks[n_sacks + row_sacks, 2] = be32(p + 6 + 8 * block)
                                row_sacks += 1
                    elif kind == 2 and size == 4:
                        syn_options = (syn_options & 0xFFFF) | be16(p + 2) << 16
                    elif kind == 3 and size == 3:
                        syn_options = (syn_options & ~0xFF00) | u8(p + 2) << 8
                    elif kind == 4 and size == 2:
                        syn_options |= 1
                    p += size
                break
            elif following == _PROTOCOL + 17:
                # ---- UDP, RFC 768
                if end - p >= 4:
                    sport = be16(p)
                    dport = be16(p + 2)
                if end - p < 8:
                    truncated = True
                    payload = max(l4_wire_end - p - 8, 0)
                    break
                payload = max(l4_wire_end - p - 8, 0)
                if be16(p + 4) >= 8:
                    payload = min(payload, be16(p + 4) - 8)
                if not inner:
                    break
                p += 8
                if dport == 4789 or dport == 8472:
                    following = _VXLAN
                elif dport == 6081:
                    following = _GENEVE
                elif dport == 2152 or sport == 2152:
                    following = _GTP
                elif dport == 3544 or sport == 3544:
                    following = _TEREDO
                elif dport == 4754:
                    following = _GRE
                elif dport == 6635:
                    following = 0x8847
                else:
                    break
            elif following == _ETHERNET:
                if end - p < 14:
                    truncated = True
                    break
                following = be16(p + 12)
                p += 14
                if following <= 1500:
                    following = _LLC
            elif following == 0x8100 or following == 0x88A8 or following == 0x9100 or following == 0x9200:
                if ip_headers == 0:
                    counts[_VLAN] += 1
                if end - p < 4:
                    truncated = True
                    break
                following = be16(p + 2)
                p += 4
                if following <= 1500:
                    following = _LLC
            elif following == 0x893F:  # E-TAG, IEEE 802.1BR
                if end - p < 8:
                    truncated = True
                    break
                following = be16(p + 6)
                p += 8
            elif following == _PROTOCOL + 4:
                following = 0x0800
            elif following == _PROTOCOL + 41:
                following = 0x86DD
            elif following == _PROTOCOL + 143:  # RFC 8986
                following = _ETHERNET
            elif following == _GRE:
                # ---- GRE, RFC 2784 and 2890; version 1 is PPTP's, RFC 2637
                if end - p < 4:
                    break
                gre = be16(p)
                following = be16(p + 2)
                p += 4
                if gre & 0x4000:  # source routing of RFC 1701: nobody sends it
                    break
                if gre & 0x8000:
                    p += 4
                if gre & 0x2000:
                    p += 4
                if gre & 0x1000:
                    p += 4
                if gre & 0x0080 and gre & 7 == 1:
                    p += 4
                if following == 0x6558:
                    following = _ETHERNET
                elif following == 0x880B:
                    following = _PPP
                elif following == 0x88BE:  # ERSPAN: type I has no sequence number and no header of its own
                    if gre & 0x1000:
                        p += 8
                    following = _ETHERNET
                elif following == 0x22EB:  # ERSPAN type III; the O bit adds a platform header
                    if end - p < 12:
                        break
                    p += 20 if u8(p + 11) & 1 else 12
                    following = _ETHERNET
                elif following == 0x883E:  # WCCP version 2 puts a redirect header first
                    if end - p < 4:
                        break
                    if u8(p) >> 4 != 4:
                        p += 4
                    following = 0x0800
            elif following == 0x8847 or following == 0x8848 or following == _PROTOCOL + 137:
                if ip_headers == 0:
                    counts[_MPLS] += 1
                bottom = False
                while not bottom and end - p >= 4:
                    bottom = u8(p + 2) & 1 != 0
                    p += 4
                if not bottom or end - p < 1:
                    truncated = True
                    break
                nibble = u8(p) >> 4
                if nibble == 4:
                    following = 0x0800
                elif nibble == 6:
                    following = 0x86DD
                elif nibble == 0 and end - p >= 18:  # a pseudowire with its control word, RFC 4385
                    p += 4
                    following = _ETHERNET
                else:
                    following = _ETHERNET  # without one
            elif following == 0x8864:
                if ip_headers == 0:
                    counts[_PPPOE] += 1
                if end - p < 8 or be16(p) != 0x1100:  # version 1, type 1, code 0 = session data
                    break
                p += 6
                following = _PPP
            elif following == _PROTOCOL + 51:
                # ---- AH, RFC 4302, behind IPv4: authenticated, not encrypted
                if end - p < 12:
                    truncated = True
                    break
                step = (u8(p + 1) + 2) * 4
                protocol = u8(p)
                following = _PROTOCOL + protocol
                p += step
                payload = max(l4_wire_end - p, 0)
            elif following == _LLC:
                if end - p < 8 or be32(p) != 0xAAAA0300 or be16(p + 4) != 0:  # only SNAP with an EtherType
                    break
                following = be16(p + 6)
                p += 8
            elif following == _RAW_IP:
                if end - p < 1:
                    break
                following = 0x86DD if u8(p) >> 4 == 6 else 0x0800
            elif following == _PPP or following == _PPP_HDLC:
                if end - p >= 2 and be16(p) == 0xFF03:
                    p += 2
                if end - p < 2:
                    break
                if u8(p) & 1:  # protocol field compression
                    kind = u8(p)
                    p += 1
                else:
                    kind = be16(p)
                    p += 2
                if kind == 0x21:
                    following = 0x0800
                elif kind == 0x57:
                    following = 0x86DD
                elif kind == 0x281:
                    following = 0x8847
                else:
                    break
            elif following == _CISCO_HDLC:
                if end - p < 4:
                    break
                following = be16(p + 2)
                p += 4
            elif following == _NULL or following == _LOOP:
                # the address family of the capturing machine, in its byte order; AF_INET6 has many numbers
                if end - p < 4:
                    break
                family = le32(p) if le32(p) < 0x10000 and following == _NULL else be32(p)
                p += 4
                if family == 2:
                    following = 0x0800
                elif family == 10 or family == 24 or family == 28 or family == 30:
                    following = 0x86DD
                else:
                    break
            elif following == _SLL:
                if end - p < 16:
                    break
                following = be16(p + 14)
                p += 16
                if following == 4:
                    following = _LLC
            elif following == _SLL2:
                if end - p < 20:
                    break
                following = be16(p)
                p += 20
                if following == 4:
                    following = _LLC
            elif following == _VXLAN:
                if end - p < 8 or u8(p) & 8 == 0:
                    break
                p += 8
                following = _ETHERNET
            elif following == _GENEVE:
                if end - p < 8 or u8(p) >> 6 != 0:
                    break
                following = be16(p + 2)
                if following == 0x6558:
                    following = _ETHERNET
                p += 8 + (u8(p) & 63) * 4
            elif following == _GTP:
                # ---- GTPv1-U, TS 29.281: message 255 carries a user packet
                if end - p < 8 or u8(p) >> 4 != 3 or u8(p + 1) != 0xFF:
                    break
                extended = u8(p) & 4 != 0
                optional = u8(p) & 7 != 0
                p += 8
                if optional:
                    if end - p < 4:
                        break
                    kind = u8(p + 3) if extended else np.int64(0)
                    p += 4
                    whole = True
                    while kind != 0:
                        if end - p < 4 or u8(p) == 0 or end - p < u8(p) * 4:
                            whole = False
                            break
                        p += u8(p) * 4
                        kind = u8(p - 1)
                    if not whole:
                        break
                following = _RAW_IP
            elif following == _TEREDO:
                # ---- RFC 4380: an authentication and an origin header may come first
                if end - p >= 4 and be16(p) == 1:
                    p += 13 + u8(p + 2) + u8(p + 3)
                if end - p >= 8 and be16(p) == 0:
                    p += 8
                following = 0x86DD
            elif (
                following == _PROTOCOL + 132 or following == _PROTOCOL + 33 or following == _PROTOCOL + 136
            ):  # SCTP, DCCP, UDP-Lite: ports where TCP has them
                if end - p >= 4:
                    sport = be16(p)
                    dport = be16(p + 2)
                break
            else:
                break

        if ip_headers == 0:
            counts[_NOT_IP] += 1
            if truncated:
                counts[_TRUNCATED] += 1
            continue

        n_ipv4 += version == 4
        if truncated:
            counts[_TRUNCATED] += 1
        if ip_headers > 1:
            counts[_TUNNELLED] += 1
        if later_fragment:
            counts[_FRAGMENTS] += 1
        elif protocol == 6:
            n_tcp += 1
        elif protocol == 17:
            n_udp += 1
        elif protocol == 1 or protocol == 58:
            counts[_ICMP] += 1
        else:
            counts[_OTHER] += 1
        n_sacks += row_sacks

        c_ts[row] = ts_ns[i]
        c_seq[row] = seq
        c_ack[row] = ack
        c_flags[row] = flags
        c_payload[row] = payload
        c_wire[row] = wirelen[i]
        c_window[row] = window
        c_ecn[row] = tos & 3
        c_dscp[row] = tos >> 2
        c_ttl[row] = ttl
        c_tsval[row] = tsval
        c_tsecr[row] = tsecr
        c_has_ts[row] = has_ts
        # the flow's key has its smaller end first; selected, not branched to: which it is, is a coin toss
        swapped = src_lo > dst_lo
        if src_lo == dst_lo:
            swapped = src_hi > dst_hi if src_hi != dst_hi else sport > dport
        a_hi, a_lo, a_port = (
            dst_hi if swapped else src_hi,
            dst_lo if swapped else src_lo,
            dport if swapped else sport,
        )
        b_hi, b_lo, b_port = (
            src_hi if swapped else dst_hi,
            src_lo if swapped else dst_lo,
            sport if swapped else dport,
        )
        ports = a_port << 32 | b_port << 16 | protocol << 8 | version
        keys[k + KEY_A_HI] = a_hi
        keys[k + KEY_A_LO] = a_lo
        keys[k + KEY_B_HI] = b_hi
        keys[k + KEY_B_LO] = b_lo
        keys[k + KEY_PORTS] = np.int64(swapped) << SWAPPED_BIT | ports
        keys[k + KEY_SYN_OPTIONS] = syn_options
        keys[k + KEY_HASH] = np.int64(flow_hash(a_hi, a_lo, b_hi, b_lo, ports, seed))
        if frame.size:
            frame[row] = first_frame + i
        row += one
        k += np.uint64(KEY_WORDS)
    counts[_IPV4] += n_ipv4
    rows = np.int64(row) - row0
    counts[_IPV6] += rows - n_ipv4
    counts[_TCP] += n_tcp
    counts[_UDP] += n_udp
    return rows, n_sacks, wire_bytes, captured_bytes
