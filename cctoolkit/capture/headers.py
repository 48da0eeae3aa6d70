"""Frames to columns: one kernel walks the link, network and transport headers of every frame.

The headers of nearly all frames (Ethernet, IP, TCP, UDP, ICMP) are read here; those that may stand between them are in
:mod:`encapsulation`, one function each.

Which headers a row describes
    The row's addresses, TTL and DSCP are those of the IP header that directly encloses the transport.
    Encapsulations without a transport of their own (VLAN, MPLS, PPPoE, GRE, IP-in-IP, AH, ...) are always walked
    through, so ``IP/GRE/IP/TCP`` is the TCP flow inside. Encapsulations inside UDP (VXLAN, Geneve, GTP-U, Teredo, L2TP,
    GRE-in-UDP, MPLS-in-UDP, by their registered ports) are walked through only with ``inner``; by default the row is
    the outer UDP. Where an inner header is cut or makes no sense, the row describes what was decoded before it.
Lengths
    ``payload_bytes`` comes from the IP length and never reaches beyond what encloses it: the frame's length on the
    wire, and every length field on the way (802.3, PPPoE, outer IP, UDP, GTP-U, L2TP, PPTP). An IP length of 0
    (segmentation offload) means "to the end of what encloses it".
Fragments
    Only a first fragment has a transport header; later ones are rows with ports 0, so their bytes count. A packet
    inside the first fragment of a tunnel's packet goes on in the later ones: its ``payload_bytes`` do not end with the
    fragment, unless its IP length is 0. (So the later fragments' bytes count twice. Fragments are not put together:
    whether the later ones arrived does not matter.)
Cut headers
    TCP with fewer than 20 captured bytes keeps its ports (if 4 bytes are there) and no other TCP column; its
    ``payload_bytes`` are what follows a header without options.
"""

from __future__ import annotations

from collections import namedtuple
from typing import no_type_check

import numpy as np

from .._support.kernels import inlined, kernel
from ..schema import PACKETS
from ._load import be16, be32, be64, le64, u8
from ._store import put_le64
from .encapsulation import (
    CUT,
    ETHERNET,
    IP_PROTOCOL,
    IP_PROTOCOLS,
    IPV4,
    IPV6,
    LARGEST_LENGTH,
    LINK_LAYERS,
    LINK_NAMES,
    UNBOUNDED,
    UNKNOWN_LINK,
    call_to_ip,
    has_no_ip,
    in_udp,
)
from .protocols import (
    AUTHENTICATION_HEADER,
    DCCP,
    FRAGMENT_HEADER,
    ICMP,
    ICMPV6,
    NO_NEXT_HEADER,
    SCTP,
    TCP,
    UDP,
    UDP_LITE,
)

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
    """Multiply and fold. The seed differs in every process, so that no capture can be made to collide.

    For that, each word goes through the multiplications before it meets the next: what two words together do to the
    hash depends on the seed.
    """
    h = (np.uint64(a_lo) ^ seed) * np.uint64(0x9E3779B97F4A7C15)
    if a_hi | b_hi:  # IPv6
        for word in (a_hi, b_hi):
            h = (h ^ h >> np.uint64(32) ^ np.uint64(word)) * np.uint64(0x165667B19E3779F9)
            h = (h ^ h >> np.uint64(29)) * np.uint64(0x27D4EB2F165667C5)
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

# By IP protocol. Tables, because a chain of comparisons becomes an indirect jump (measured: 4 % slower).
_HAS_PORTS = np.zeros(256, np.bool_)  # at the start of its header, where TCP and UDP have them
_HAS_PORTS[[SCTP, DCCP, UDP_LITE]] = True
_CARRIES_PACKETS = np.zeros(256, np.bool_)
_CARRIES_PACKETS[IP_PROTOCOLS] = True


def link_name(link_type: int) -> str:
    """The LINKTYPE_ name, or the number where this package does not know it."""
    return LINK_NAMES.get(link_type, f"link type {link_type}")


#: An IP header. An IPv4 address is the low 32 bits of its LO word.
_Ip = namedtuple("_Ip", "version src_hi src_lo dst_hi dst_lo tos ttl")
#: A TCP header and its options. `syn_options` is MSS << 16 | window scale << 8 | SACK permitted.
_Tcp = namedtuple("_Tcp", "seq ack flags window tsval tsecr has_ts syn_options n_sacks")
#: The content of a frame's row, as far as its headers could be read.
_Headers = namedtuple(
    "_Headers", "ip tcp protocol sport dport payload_bytes ip_headers later_fragment truncated"
)
SACK_BYTES = 24  # a row of `sacks`
_LAST_TIME_NS = 2**63 - 1
NO_SYN_OPTIONS = 0xFF00  # no MSS, no window scale, no SACK permitted


@inlined
@no_type_check  # numba types it
def _ipv4(p):
    """IPv4, RFC 791, from a header of 20 captured bytes."""
    zero = np.int64(0)
    return _Ip(np.int64(4), zero, be32(p + 12), zero, be32(p + 16), u8(p + 1), u8(p + 8))


@inlined
@no_type_check
def _ipv6(p):
    """IPv6, RFC 8200, from a header of 40 captured bytes."""
    return _Ip(
        np.int64(6), be64(p + 8), be64(p + 16), be64(p + 24), be64(p + 32), (be16(p) >> 4) & 0xFF, u8(p + 7)
    )


@kernel
@no_type_check
def _behind_ah(protocol, p, end):
    """The authentication header, RFC 4302, at `p`: authenticated, not encrypted::

        0             1                           2          4     8
        | next header | length in words, less two | reserved | SPI | ...

    Returns
    -------
    protocol, p, truncated
        As :func:`_behind_extension_headers`.
    """
    if end - p < 12:
        return protocol, p, True
    return u8(p), p + (u8(p + 1) + 2) * 4, False


@kernel
@no_type_check
def _behind_extension_headers(protocol, p, end):
    """IPv6 extension headers, RFC 8200, section 4, from the one that `protocol` announces at `p`.

    Hop-by-hop options, routing, fragment, AH, destination options, mobility, HIP and shim6.

    Returns
    -------
    protocol, p : int64
        What follows the last of them, and where.
    fragment : int64
        What the fragment header says: bit 0, there are later fragments; bits 3 to 15, where this one begins, in bytes.
        If it does not begin at 0, what follows is no header.
    truncated : bool
        The extension header `protocol` was not captured as a whole.
    """
    fragment = np.int64(0)
    while True:
        if protocol == FRAGMENT_HEADER:
            if end - p < 8:
                return protocol, p, fragment, True
            fragment = be16(p + 2)
            protocol = u8(p)
            p += 8
            if fragment & 0xFFF8:
                return protocol, p, fragment, False
        elif protocol == AUTHENTICATION_HEADER:
            protocol, p, truncated = _behind_ah(protocol, p, end)
            if truncated:
                return protocol, p, fragment, True
        elif (
            protocol == 0
            or protocol == 43
            or protocol == 60
            or protocol == 135
            or protocol == 139
            or protocol == 140
        ):
            if end - p < 8:
                return protocol, p, fragment, True
            size = (u8(p + 1) + 1) * 8
            protocol = u8(p)
            p += size
            if p > end:
                return protocol, p, fragment, True
        else:
            return protocol, p, fragment, False


@inlined
@no_type_check
def _tcp(p, end, wire_end, row, sack_at):
    """TCP, RFC 9293, from a header of 20 captured bytes.

    Returns
    -------
    tcp : _Tcp
    payload_bytes : int64
        None if the data offset contradicts itself or the packet's length.
    truncated : bool
        It does, or options were cut.
    """
    header_bytes = (u8(p + 12) >> 4) * 4
    payload_bytes = wire_end - p - header_bytes
    truncated = False
    if header_bytes < 20 or payload_bytes < 0:
        truncated = True
        payload_bytes = np.int64(0)
        header_bytes = min(max(header_bytes, 20), wire_end - p)
    options_end = p + header_bytes
    if options_end > end:
        truncated = True
        options_end = end
    options = p + 20
    tsval = tsecr = np.int64(0)
    has_ts = False
    syn_options = np.int64(NO_SYN_OPTIONS)
    found = np.int64(0)
    if options_end - options >= 12 and be32(options) == 0x0101080A:  # the layout of RFC 7323's appendix A
        tsval = be32(options + 4)
        tsecr = be32(options + 8)
        has_ts = True
        options += 12
    if options < options_end:
        tsval, tsecr, has_ts, syn_options, found = _tcp_options(
            options, options_end, tsval, tsecr, has_ts, row, sack_at
        )
    tcp = _Tcp(
        be32(p + 4),
        be32(p + 8),
        be16(p + 12) & 0x0FFF,
        be16(p + 14),
        tsval,
        tsecr,
        has_ts,
        syn_options,
        found,
    )
    return tcp, payload_bytes, truncated


@kernel
@no_type_check
def _tcp_options(p, options_end, tsval, tsecr, has_ts, row, sack_at):
    """TCP options: timestamps (RFC 7323), SACK blocks (RFC 2018), and what a SYN announces.

    Parameters
    ----------
    p, options_end : int64
        Addresses of the options and of what follows them.
    tsval, tsecr, has_ts : int64, int64, bool
        What is known already.
    row : uint64
        Number of the packet's row.
    sack_at : int64
        Address of the first free row of `sacks`, see :func:`decode_headers`.

    Returns
    -------
    tsval, tsecr, has_ts, syn_options, blocks : int64, int64, bool, int64, int64
        As :data:`_Tcp`.
    """
    syn_options = np.int64(NO_SYN_OPTIONS)
    blocks = np.int64(0)
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
                if blocks < 4:
                    put_le64(sack_at, np.int64(row))
                    put_le64(sack_at + 8, be32(p + 2 + 8 * block))
                    put_le64(sack_at + 16, be32(p + 6 + 8 * block))
                    sack_at += SACK_BYTES
                    blocks += 1
        elif kind == 2 and size == 4:
            syn_options = (syn_options & 0xFFFF) | be16(p + 2) << 16
        elif kind == 3 and size == 3:
            syn_options = (syn_options & ~0xFF00) | u8(p + 2) << 8
        elif kind == 4 and size == 2:
            syn_options |= 1
        p += size
    return tsval, tsecr, has_ts, syn_options, blocks


@inlined
@no_type_check
def _udp_payload(p, end, wire_end):
    """Payload bytes by UDP's own length (RFC 768), which may be 0 (RFC 2675), and by what encloses it."""
    payload_bytes = max(wire_end - p - 8, 0)
    if end - p >= 8 and be16(p + 4) >= 8:
        payload_bytes = min(payload_bytes, be16(p + 4) - 8)
    return payload_bytes


@kernel
@no_type_check
def _count(counts_at, which, more):
    """Add to one of the counts at an address."""
    at = counts_at + 8 * which
    put_le64(at, le64(at) + more)


@inlined
@no_type_check
def _nothing_yet():
    """The IP and the TCP header of a frame in which none has been read."""
    zero = np.int64(0)
    return (
        _Ip(zero, zero, zero, zero, zero, zero, zero),
        _Tcp(zero, zero, zero, zero, zero, zero, False, np.int64(NO_SYN_OPTIONS), zero),
    )


@inlined
@no_type_check
def _plain(layer, p, end, wire_end, inner, row, sack_at):
    """The headers of a frame as most are: TCP or UDP right behind an IP header without options.

    :func:`_walk` gives the same for such a frame. Without this short way, decoding takes an eighth longer.

    Parameters
    ----------
    layer, p, end, wire_end : int64
        As :func:`encapsulation.to_ip`.
    inner : bool
        As :func:`decode_headers`.
    row, sack_at : uint64, int64
        As :func:`_tcp_options`.

    Returns
    -------
    _Headers
        ``ip_headers`` is 0 for any other frame.
    """
    zero = np.int64(0)
    ip, tcp = _nothing_yet()
    header_bytes = packet_bytes = protocol = sport = dport = payload = ip_headers = zero
    truncated = False
    if layer == IPV4 and end - p >= 20 and u8(p) == 0x45 and be16(p + 6) & 0x1FFF == 0:
        ip = _ipv4(p)
        protocol = u8(p + 9)
        header_bytes = np.int64(20)
        packet_bytes = be16(p + 2)
    elif layer == IPV6 and end - p >= 40 and u8(p) >> 4 == 6:
        ip = _ipv6(p)
        protocol = u8(p + 6)
        header_bytes = np.int64(40)
        packet_bytes = be16(p + 4) + 40
    if packet_bytes > header_bytes:  # else offload or a jumbogram
        wire_end = min(wire_end, p + packet_bytes)
        end = min(end, wire_end)
        p += header_bytes
        if protocol == TCP and end - p >= 20:
            tcp, payload, truncated = _tcp(p, end, wire_end, row, sack_at)
            ip_headers = np.int64(1)
        elif protocol == UDP and end - p >= 8 and not inner:
            payload = _udp_payload(p, end, wire_end)
            ip_headers = np.int64(1)
        if ip_headers:
            sport = be16(p)
            dport = be16(p + 2)
    return _Headers(ip, tcp, protocol, sport, dport, payload, ip_headers, False, truncated)


@kernel
@no_type_check
def _walk(layer, p, end, wire_end, inner, row, sack_at, counts_at, to_ip, at):
    """One frame's headers, from `layer` at `p` to the transport that :func:`decode_headers` describes.

    Parameters
    ----------
    layer, p, end, wire_end : int64
        As :func:`encapsulation.to_ip`.
    inner : bool
        As :func:`decode_headers`.
    row, sack_at : uint64, int64
        As :func:`_tcp_options`.
    counts_at : int64
        Address of `counts`, see :func:`decode_headers`.
    to_ip, at : int64
        Address of :func:`encapsulation.to_ip`, and of eight words for its use.

    Returns
    -------
    _Headers
        Without any IP header if ``ip_headers`` is 0; -1: `to_ip` is 0 and was needed.
    """
    zero = np.int64(0)
    ip, tcp = _nothing_yet()
    protocol = sport = dport = payload = ip_headers = zero
    later_fragment = truncated = False
    fragment_end = np.int64(UNBOUNDED)  # where the first fragment around `p` ends
    while True:
        if layer != IPV4 and layer != IPV6:
            if has_no_ip(layer, p, end):
                truncated = False
                break
            if to_ip == 0:
                ip_headers = np.int64(-1)
                break
            layer, p, end, wire_end, vlans, label_stacks, pppoe_headers = call_to_ip(
                to_ip, layer, p, end, wire_end, at
            )
            if ip_headers == 0:
                _count(counts_at, _VLAN, vlans)
                _count(counts_at, _MPLS, label_stacks)
                _count(counts_at, _PPPOE, pppoe_headers)
            if layer < 0:
                truncated = layer == CUT
                break

        if layer == IPV4:
            if end - p < 20 or u8(p) >> 4 != 4:
                if end - p > 0 and u8(p) >> 4 == 6:  # IPv6 where IPv4 was announced: the version is right
                    layer = np.int64(IPV6)
                    continue
                truncated = end - p < 20
                break
            header_bytes = (u8(p) & 15) * 4
            if header_bytes < 20:
                truncated = True
                break
            ip = _ipv4(p)
            protocol = u8(p + 9)
            more_fragments = be16(p + 6) & 0x2000 != 0
            later_fragment = be16(p + 6) & 0x1FFF != 0
            packet_bytes = be16(p + 2)
            has_length = packet_bytes != 0  # else segmentation offload, the kernel had not filled it in yet
            # an inner header cannot reach beyond the outer one
            wire_end = min(wire_end, p + packet_bytes if has_length else fragment_end)
            end = min(end, wire_end)
            p += header_bytes
            truncated = False
            while protocol == AUTHENTICATION_HEADER and not truncated and not later_fragment:
                protocol, p, truncated = _behind_ah(protocol, p, end)
        else:
            if end - p < 40 or u8(p) >> 4 != 6:
                truncated = end - p < 40
                break
            ip = _ipv6(p)
            protocol = u8(p + 6)
            packet_bytes = be16(p + 4) + 40
            has_length = packet_bytes != 40 or protocol == NO_NEXT_HEADER  # else offload or a jumbogram
            wire_end = min(wire_end, p + packet_bytes if has_length else fragment_end)
            end = min(end, wire_end)
            protocol, p, fragment, truncated = _behind_extension_headers(protocol, p + 40, end)
            more_fragments, later_fragment = fragment & 1 != 0, fragment & 0xFFF8 != 0
        ip_headers += 1
        sport = dport = zero
        payload = max(wire_end - p, 0)
        if truncated or later_fragment:
            break

        if protocol == TCP:
            if end - p >= 4:
                sport = be16(p)
                dport = be16(p + 2)
            if end - p < 20:
                truncated = True
                payload = max(wire_end - p - 20, 0)
            else:
                tcp, payload, truncated = _tcp(p, end, wire_end, row, sack_at)
            break
        if protocol == UDP:
            if end - p >= 4:
                sport = be16(p)
                dport = be16(p + 2)
            payload = _udp_payload(p, end, wire_end)
            truncated = end - p < 8
            if truncated or not inner:
                break
            layer = in_udp(sport, dport)
            bound = p + be16(p + 4) if be16(p + 4) >= 8 else np.int64(UNBOUNDED)
            p += 8
        elif _CARRIES_PACKETS[protocol]:
            layer = IP_PROTOCOL + protocol
            bound = np.int64(UNBOUNDED)
        else:
            if _HAS_PORTS[protocol] and end - p >= 4:
                sport = be16(p)
                dport = be16(p + 2)
            break
        if more_fragments:  # the packet inside goes on in them
            fragment_end = min(fragment_end, wire_end)
            wire_end = np.int64(UNBOUNDED)
        wire_end = min(wire_end, bound)
        end = min(end, wire_end)
    return _Headers(ip, tcp, protocol, sport, dport, payload, ip_headers, later_fragment, truncated)


@inlined
@no_type_check
def _flow_ends(headers):
    """Both ends of a row's flow, the smaller first, as the key has them.

    Returns
    -------
    a_hi, a_lo, b_hi, b_lo, ports : int64
        As :data:`KEY_WORDS`, ``ports`` without the word's upper bits.
    swapped : bool
        The row goes from b to a.
    """
    ip = headers.ip
    swapped = ip.src_lo > ip.dst_lo
    if ip.src_lo == ip.dst_lo:
        swapped = ip.src_hi > ip.dst_hi if ip.src_hi != ip.dst_hi else headers.sport > headers.dport
    # exchanged by masks, since a branch would be a coin toss
    flip = -np.int64(swapped)
    hi = (ip.src_hi ^ ip.dst_hi) & flip
    lo = (ip.src_lo ^ ip.dst_lo) & flip
    port = (headers.sport ^ headers.dport) & flip
    a_hi, a_lo, a_port = ip.src_hi ^ hi, ip.src_lo ^ lo, headers.sport ^ port
    b_hi, b_lo, b_port = ip.dst_hi ^ hi, ip.dst_lo ^ lo, headers.dport ^ port
    ports = a_port << 32 | b_port << 16 | headers.protocol << 8 | ip.version
    return a_hi, a_lo, b_hi, b_lo, ports, swapped


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
    to_ip,
):
    """Decode `n` frames.

    If a frame needs :func:`encapsulation.to_ip` and `to_ip` is 0, the number of rows is -1, and what was written is
    worth nothing.

    Parameters
    ----------
    data : uint8 array
        Holds the frames.
    offset, caplen, wirelen, ts_ns, link_type : int64 arrays
        Per frame: position in `data`, captured and original length, time, LINKTYPE_ number.
    n : int
        Number of frames.
    inner : bool
        Walk through UDP encapsulations too.
    first_frame : int
        Number of the first of these frames, for `frame`.
    out : PacketColumns
        Receives the rows; ``flow_id`` and ``direction`` are left to :mod:`flow_ids`.
    row0 : int
        Row of `out` to begin with.
    keys : int64 array
        Receives ``KEY_WORDS`` words a row, from its start on.
    seed : int
        Seed of the hash in `keys`.
    frame : uint32 array
        Frame number of each row, from `row0` on; skipped when it has length 0.
    sacks : int64 array, shape (4 n, 3)
        Row, left and right edge of each SACK block.
    counts : int64 array
        Added to, see :data:`COUNTS`.
    to_ip : int
        Address of the compiled :func:`encapsulation.to_ip`, or 0.

    Returns
    -------
    rows, n_sacks : int
        Rows and SACK blocks written.
    wire_bytes, captured_bytes : int
        The frames' original and captured bytes.
    first_ts_ns, last_ts_ns : int
        Least and greatest time of the rows; the greatest and least int64 if there are none.
    """
    # read from `out` in the loop, a column would have its references counted there
    c_ts_ns, c_seq, c_ack, c_tcp_flags, c_payload_bytes = (
        out.ts_ns,
        out.seq,
        out.ack,
        out.tcp_flags,
        out.payload_bytes,
    )
    c_wire_bytes, c_window, c_ecn, c_dscp, c_ttl = out.wire_bytes, out.window, out.ecn, out.dscp, out.ttl
    c_tsval, c_tsecr, c_has_ts = out.tsval, out.tsecr, out.has_ts
    base = np.int64(data.ctypes.data)
    one = np.uint64(1)
    row = np.uint64(row0)
    k = np.uint64(0)
    counts_at = np.int64(counts.ctypes.data)
    keys_address = np.int64(keys.ctypes.data)
    sacks_address = np.int64(sacks.ctypes.data)
    n_sacks = np.int64(0)
    wire_bytes = captured_bytes = n_ipv4 = n_tcp = n_udp = np.int64(0)
    first_ts_ns, last_ts_ns = np.int64(_LAST_TIME_NS), np.int64(~_LAST_TIME_NS)
    for i in range(n):
        p = base + offset[i]
        end = p + caplen[i]
        wire_end = p + wirelen[i]
        wire_bytes += wirelen[i]
        captured_bytes += caplen[i]
        layer = LINK_LAYERS[link_type[i]] if link_type[i] < LINK_LAYERS.size else np.int64(UNKNOWN_LINK)
        if layer == UNKNOWN_LINK:
            counts[_OTHER_LINK] += 1
            continue
        if layer == ETHERNET and end - p >= 14:  # nearly every frame
            following = be16(p + 12)
            if following > LARGEST_LENGTH:
                layer = following
                p += 14
        sack_at = sacks_address + n_sacks * SACK_BYTES
        key_at = keys_address + np.int64(k) * 8  # free until the headers are known
        headers = _plain(layer, p, end, wire_end, inner, row, sack_at)
        if headers.ip_headers == 0:
            headers = _walk(layer, p, end, wire_end, inner, row, sack_at, counts_at, to_ip, key_at)
        ip, tcp = headers.ip, headers.tcp
        if headers.ip_headers < 0:
            return np.int64(-1), n_sacks, wire_bytes, captured_bytes, first_ts_ns, last_ts_ns
        if headers.truncated:
            counts[_TRUNCATED] += 1
        if headers.ip_headers == 0:
            counts[_NOT_IP] += 1
            continue
        n_ipv4 += ip.version == 4
        if headers.ip_headers > 1:
            counts[_TUNNELLED] += 1
        if headers.later_fragment:
            counts[_FRAGMENTS] += 1
        elif headers.protocol == TCP:
            n_tcp += 1
        elif headers.protocol == UDP:
            n_udp += 1
        elif headers.protocol == ICMP or headers.protocol == ICMPV6:
            counts[_ICMP] += 1
        else:
            counts[_OTHER] += 1
        n_sacks += tcp.n_sacks

        c_ts_ns[row] = ts_ns[i]
        first_ts_ns = min(first_ts_ns, ts_ns[i])
        last_ts_ns = max(last_ts_ns, ts_ns[i])
        c_seq[row] = tcp.seq
        c_ack[row] = tcp.ack
        c_tcp_flags[row] = tcp.flags
        c_payload_bytes[row] = headers.payload_bytes
        c_wire_bytes[row] = wirelen[i]
        c_window[row] = tcp.window
        c_ecn[row] = ip.tos & 3
        c_dscp[row] = ip.tos >> 2
        c_ttl[row] = ip.ttl
        c_tsval[row] = tcp.tsval
        c_tsecr[row] = tcp.tsecr
        c_has_ts[row] = tcp.has_ts
        a_hi, a_lo, b_hi, b_lo, ports, swapped = _flow_ends(headers)
        keys[k + KEY_A_HI] = a_hi
        keys[k + KEY_A_LO] = a_lo
        keys[k + KEY_B_HI] = b_hi
        keys[k + KEY_B_LO] = b_lo
        keys[k + KEY_PORTS] = np.int64(swapped) << SWAPPED_BIT | ports
        keys[k + KEY_SYN_OPTIONS] = tcp.syn_options
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
    return rows, n_sacks, wire_bytes, captured_bytes, first_ts_ns, last_ts_ns
