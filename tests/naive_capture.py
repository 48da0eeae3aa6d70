"""The slow, obvious twin of cctoolkit.capture: bytes to rows, one header at a time, every access checked.

A header is looked at through a :class:`Window`, which raises :class:`Cut` when one asks for more than was captured.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction

MAX_FRAME_BYTES = 262_144
MAX_BLOCK_BYTES = 16 << 20


class Cut(Exception):
    """Bytes that are not there."""


class NotACapture(Exception):
    pass


# ---- Files -----------------------------------------------------------------------------------------------------------


@dataclass
class Frame:
    data: bytes  # as captured
    wire_bytes: int
    ts_ns: int
    link_type: int


@dataclass
class File:
    frames: list[Frame] = field(default_factory=list)
    damaged: bool = False  # cut or contradictory behind the last of these frames
    dropped: int | None = None


def read_file(data: bytes) -> File:
    """The frames of an uncompressed pcap or pcapng file."""
    for order in ("little", "big"):
        magic = int.from_bytes(data[:4], order)
        if len(data) >= 24 and magic in (0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34):
            return _read_pcap(data, order, magic)
    if data[:4] == b"\n\r\r\n" and data[8:12] in (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a"):
        return _read_pcapng(data)
    raise NotACapture


def _read_pcap(data: bytes, order: str, magic: int) -> File:
    version = (int.from_bytes(data[4:6], order), int.from_bytes(data[6:8], order))
    link_type = int.from_bytes(data[20:24], order) & 0xFFFF
    header_bytes = 24 if magic == 0xA1B2CD34 else 16
    unit = 1 if magic == 0xA1B23C4D else 1000
    file = File()
    rest = data[24:]
    while rest:
        header = rest[:header_bytes]
        seconds, fraction, captured, original = (
            int.from_bytes(header[i : i + 4], order) for i in (0, 4, 8, 12)
        )
        if version < (2, 3) or (version == (2, 3) and captured > original):
            captured, original = original, captured
        body = rest[header_bytes : header_bytes + captured]
        if len(header) < header_bytes or captured > MAX_FRAME_BYTES or len(body) < captured:
            file.damaged = True
            break
        file.frames.append(Frame(body, original, seconds * 10**9 + fraction * unit, link_type))
        rest = rest[header_bytes + captured :]
    return file


@dataclass
class Interface:
    link_type: int
    snaplen: int
    tick_s: Fraction
    offset_s: int

    def ns(self, ticks: int) -> int:
        """The time of 64 bits of ticks, signed where a tick is a nanosecond or more; never beyond the limits."""
        if self.tick_s >= Fraction(1, 10**9) and ticks >= 2**63:
            ticks -= 2**64
        ns = int((ticks * self.tick_s + self.offset_s) * 10**9 // 1)
        seconds = min(max(ns // 10**9, -9_223_372_036), 9_223_372_035)
        return seconds * 10**9 + ns % 10**9


def _read_pcapng(data: bytes) -> File:
    file = File()
    order = "little"
    interfaces: list[Interface] = []
    dropped: dict[int, int] = {}
    last_ns = 0
    p = 0

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], order)

    while p < len(data):
        file.damaged = True  # until the block is whole and consistent
        if data[p : p + 4] == b"\n\r\r\n":
            magic = data[p + 8 : p + 12]
            if magic not in (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a"):
                break
            order = "big" if magic == b"\x1a\x2b\x3c\x4d" else "little"
        kind, size = number(p, 4), number(p + 4, 4)
        whole = 12 <= size <= MAX_BLOCK_BYTES and size % 4 == 0 and p + size <= len(data)
        if len(data) - p < 12 or not whole or number(p + size - 4, 4) != size:
            break
        body, end = p + 8, p + size - 4
        if kind == 0x0A0D0D0A:
            if number(body + 4, 2) != 1:
                break
            interfaces, dropped = [], {}
        elif kind == 1:
            if end - body < 8:
                break
            interfaces.append(_interface(data[body:end], order))
        elif kind == 5:
            lost = _options(data[body + 12 : end], order).get(5, b"")
            if len(lost) == 8:
                interface = number(body, 4)
                change = int.from_bytes(lost, order) - dropped.get(interface, 0)
                dropped[interface] = int.from_bytes(lost, order)
                file.dropped = (file.dropped or 0) + change
        elif kind in (2, 6):
            if end - body < 20:
                break
            interface = number(body, 4) if kind == 6 else number(body, 2)
            captured = number(body + 12, 4)
            if captured > min(end - body - 20, MAX_FRAME_BYTES) or interface >= len(interfaces):
                break
            last_ns = interfaces[interface].ns(number(body + 4, 4) << 32 | number(body + 8, 4))
            frame = data[body + 20 : body + 20 + captured]
            file.frames.append(Frame(frame, number(body + 16, 4), last_ns, interfaces[interface].link_type))
        elif kind == 3:
            if end - body < 4 or not interfaces:
                break
            original = number(body, 4)
            captured = min(original, end - body - 4, interfaces[0].snaplen or original)
            if captured > MAX_FRAME_BYTES:
                break
            frame = data[body + 4 : body + 4 + captured]
            file.frames.append(Frame(frame, original, last_ns, interfaces[0].link_type))
        file.damaged = False
        p += size
    if p == 0:
        raise NotACapture
    return file


def _options(data: bytes, order: str) -> dict[int, bytes]:
    options = {}
    while len(data) >= 4:
        code, size = (int.from_bytes(data[i : i + 2], order) for i in (0, 2))
        if code == 0 or len(data) < 4 + size:
            break
        options[code] = data[4 : 4 + size]
        data = data[4 + -(-size // 4) * 4 :]
    return options


def _interface(body: bytes, order: str) -> Interface:
    options = _options(body[8:], order)
    resolution = options.get(9, b"\x06")[:1] or b"\x06"
    base = 2 if resolution[0] & 0x80 else 10
    offset = options.get(14, b"")
    return Interface(
        link_type=int.from_bytes(body[:2], order),
        snaplen=int.from_bytes(body[4:8], order),
        tick_s=Fraction(1, base ** (resolution[0] & 0x7F)),
        offset_s=int.from_bytes(offset, order, signed=True) if len(offset) == 8 else 0,
    )


# ---- Frames ----------------------------------------------------------------------------------------------------------


UNBOUNDED = 1 << 40


class Window:
    """The captured bytes from some header on, and how many there were on the wire, here and in later fragments."""

    def __init__(self, data: bytes, wire_bytes: int, here_bytes: int = UNBOUNDED) -> None:
        self.data = data
        self.wire_bytes = wire_bytes
        self.here_bytes = min(here_bytes, wire_bytes)

    def __len__(self) -> int:
        return len(self.data)

    def number(self, at: int, size: int) -> int:
        if at + size > len(self.data):
            raise Cut
        return int.from_bytes(self.data[at : at + size], "big")

    def need(self, size: int) -> None:
        if len(self.data) < size:
            raise Cut

    def behind(self, size: int) -> Window:
        return Window(self.data[size:], self.wire_bytes - size, self.here_bytes - size)

    def clipped(self, wire_bytes: int) -> Window:
        """No longer than `wire_bytes`, neither on the wire nor captured."""
        wire_bytes = min(wire_bytes, self.wire_bytes)
        return Window(self.data[: max(wire_bytes, 0)], wire_bytes, self.here_bytes)

    def going_on(self) -> Window:
        """Followed by later fragments, nobody knows how many."""
        return Window(self.data, UNBOUNDED, self.here_bytes)


@dataclass
class Row:
    version: int = 0
    src: str = ""
    dst: str = ""
    protocol: int = 0
    sport: int = 0
    dport: int = 0
    seq: int = 0
    ack: int = 0
    tcp_flags: int = 0
    payload_bytes: int = 0
    window: int = 0
    ecn: int = 0
    dscp: int = 0
    ttl: int = 0
    tsval: int = 0
    tsecr: int = 0
    has_ts: bool = False
    sacks: list[tuple[int, int]] = field(default_factory=list)
    mss: int = 0
    window_scale: int = 255
    sack_permitted: bool = False


ETHERTYPES_OF_VLANS = (0x8100, 0x88A8, 0x9100, 0x9200)
UDP_TUNNELS = {4789: "vxlan", 8472: "vxlan", 6081: "geneve", 4754: "gre", 6635: "mpls"}


class Decoder:
    """Walks through one frame; `row` is the innermost IP header and its transport, as far as they could be read."""

    def __init__(self, counts: Counter[str], inner: bool) -> None:
        self.counts = counts
        self.inner = inner
        self.row: Row | None = None
        self.ip_headers = 0
        self.more_fragments = False
        self.later_fragment = False
        self.truncated = False

    def decode(self, frame: Frame) -> Row | None:
        link_layers = {
            0: lambda w: self.null(w, either_order=True),
            1: self.ethernet,
            9: self.ppp,
            10: self.fddi,
            12: self.raw_ip,
            14: self.raw_ip,
            50: self.ppp,
            51: self.pppoe,
            101: self.raw_ip,
            104: self.cisco_hdlc,
            105: self.ieee80211,
            108: lambda w: self.null(w, either_order=False),
            113: lambda w: self.cooked(w, w.number(14, 2), 16),
            127: self.radiotap,
            228: self.ipv4,
            229: self.ipv6,
            276: lambda w: self.cooked(w, w.number(0, 2), 20),
        }
        if frame.link_type not in link_layers:
            self.counts["other_link_type"] += 1
            return None
        with suppress(Cut):
            link_layers[frame.link_type](Window(frame.data, frame.wire_bytes))
        if self.truncated:
            self.counts["truncated_headers"] += 1
        if self.row is None:
            self.counts["not_ip"] += 1
            return None
        self.counts[f"ipv{self.row.version}"] += 1
        if self.ip_headers > 1:
            self.counts["tunnelled"] += 1
        kinds = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp"}
        self.counts[
            "fragments" if self.later_fragment else kinds.get(self.row.protocol, "other_transport")
        ] += 1
        return self.row

    def header(self, window: Window, size: int) -> None:
        """A header of IP or below that has to be whole."""
        if len(window) < size:
            self.truncated = True
            raise Cut

    # -- below IP

    def ethertype(self, number: int, w: Window) -> None:
        if number == 0x0800:
            self.ipv4(w)
        elif number == 0x86DD:
            self.ipv6(w)
        elif number in ETHERTYPES_OF_VLANS:
            if not self.ip_headers:
                self.counts["vlan"] += 1
            self.header(w, 4)
            self.length_or_type(w.number(2, 2), w.behind(4))
        elif number == 0x893F:
            self.header(w, 8)
            self.length_or_type(w.number(6, 2), w.behind(8))
        elif number == 0x8926:
            self.header(w, 6)
            self.length_or_type(w.number(4, 2), w.behind(6))
        elif number == 0x88E7:
            self.header(w, 4)
            self.ethernet(w.behind(4))
        elif number == 0x8903:
            self.header(w, 2)
            self.ethernet(w.behind(2))
        elif number in (0x8847, 0x8848):
            self.mpls(w)
        elif number == 0x8864:
            self.pppoe(w)

    def length_or_type(self, number: int, w: Window) -> None:
        if number <= 1500:
            self.llc(w.clipped(number))
        else:
            self.ethertype(number, w)

    def ethernet(self, w: Window) -> None:
        self.header(w, 14)
        self.length_or_type(w.number(12, 2), w.behind(14))

    def llc(self, w: Window) -> None:
        w.need(8)
        if w.number(0, 6) == 0xAAAA03000000:
            self.ethertype(w.number(6, 2), w.behind(8))

    def cooked(self, w: Window, protocol: int, size: int) -> None:
        w.need(size)
        if protocol == 4:
            self.llc(w.behind(size))
        else:
            self.ethertype(protocol, w.behind(size))

    def null(self, w: Window, either_order: bool) -> None:
        family = w.number(0, 4)
        if either_order and int.from_bytes(w.data[:4], "little") < 0x10000:
            family = int.from_bytes(w.data[:4], "little")
        if family == 2:
            self.ipv4(w.behind(4))
        elif family in (10, 24, 28, 30):
            self.ipv6(w.behind(4))

    def radiotap(self, w: Window) -> None:
        w.need(8)
        if w.number(0, 1) != 0:
            return
        size = int.from_bytes(w.data[2:4], "little")
        words = [int.from_bytes(w.data[4:8], "little")]
        while words[-1] & 1 << 31 and len(w) >= 8 + 4 * len(words):
            words.append(int.from_bytes(w.data[4 + 4 * len(words) :][:4], "little"))
        at = 4 + 4 * len(words)
        if words[0] & 1:
            at += -at % 8 + 8
        w.need(size)
        if size < at:
            return
        flags = w.number(at, 1) if words[0] & 2 and at < size else 0
        if flags & 0x10:
            w = w.clipped(w.wire_bytes - 4)
        self.ieee80211(w.behind(size), padded=bool(flags & 0x20))

    def fddi(self, w: Window) -> None:
        w.need(13)
        if w.number(0, 1) >> 4 == 5:
            self.llc(w.behind(13))

    def ieee80211(self, w: Window, padded: bool = False) -> None:
        w.need(24)
        version, kind, subtype = w.number(0, 1) & 3, w.number(0, 1) >> 2 & 3, w.number(0, 1) >> 4
        flags = w.number(1, 1)
        to_ds, from_ds, encrypted, high_throughput = (bool(flags & bit) for bit in (1, 2, 0x40, 0x80))
        if (version, kind) != (0, 2) or subtype & 4 or encrypted or w.number(22, 1) & 15:
            return
        size = 24 + 6 * (to_ds and from_ds)
        if subtype & 8:
            w.need(size + 2)
            if w.number(size, 1) & 0x80:
                return
            size += 2 + 4 * high_throughput
        if padded:
            size += -size % 4
        self.llc(w.behind(size))

    def raw_ip(self, w: Window) -> None:
        if w.number(0, 1) >> 4 == 6:
            self.ipv6(w)
        else:
            self.ipv4(w)

    def cisco_hdlc(self, w: Window) -> None:
        self.ethertype(w.number(2, 2), w.behind(4))

    def ppp(self, w: Window) -> None:
        if w.number(0, 2) in (0x0F00, 0x8F00):
            self.cisco_hdlc(w)
            return
        if w.number(0, 2) == 0xFF03:
            w = w.behind(2)
        w.need(2)
        if w.number(0, 1) & 1:
            protocol, w = w.number(0, 1), w.behind(1)
        else:
            protocol, w = w.number(0, 2), w.behind(2)
        if protocol == 0x0021:
            self.ipv4(w)
        elif protocol == 0x0057:
            self.ipv6(w)
        elif protocol == 0x0281:
            self.mpls(w)

    def pppoe(self, w: Window) -> None:
        if not self.ip_headers:
            self.counts["pppoe"] += 1
        w.need(8)
        if w.number(0, 2) == 0x1100:
            self.ppp(w.behind(6).clipped(w.number(4, 2)))

    def mpls(self, w: Window) -> None:
        if not self.ip_headers:
            self.counts["mpls"] += 1
        bottom = False
        while not bottom:
            self.header(w, 4)
            bottom = bool(w.number(2, 1) & 1)
            w = w.behind(4)
        self.header(w, 1)
        nibble = w.number(0, 1) >> 4
        if nibble == 4:
            self.ipv4(w)
        elif nibble == 6:
            self.ipv6(w)
        elif nibble == 0 and len(w) >= 18:
            self.ethernet(w.behind(4))
        else:
            self.ethernet(w)

    # -- IP

    def start_row(self, version: int, src: bytes, dst: bytes, traffic_class: int, ttl: int) -> Row:
        self.row = Row(
            version=version,
            src=str(ipaddress.ip_address(src)),
            dst=str(ipaddress.ip_address(dst)),
            ecn=traffic_class & 3,
            dscp=traffic_class >> 2,
            ttl=ttl,
        )
        self.ip_headers += 1
        self.more_fragments = self.later_fragment = False
        return self.row

    def ipv4(self, w: Window) -> None:
        if len(w) and w.number(0, 1) >> 4 == 6:
            self.ipv6(w)
            return
        self.header(w, 20)
        if w.number(0, 1) >> 4 != 4:
            return
        header_bytes = (w.number(0, 1) & 15) * 4
        if header_bytes < 20:
            self.truncated = True
            return
        total = w.number(2, 2) or w.here_bytes
        row = self.start_row(4, w.data[12:16], w.data[16:20], w.number(1, 1), w.number(8, 1))
        row.protocol = w.number(9, 1)
        self.more_fragments = w.number(6, 2) & 0x2000 != 0
        self.later_fragment = w.number(6, 2) & 0x1FFF != 0
        self.payload(row, w.clipped(total).behind(header_bytes))

    def ipv6(self, w: Window) -> None:
        self.header(w, 40)
        if w.number(0, 1) >> 4 != 6:
            return
        length, protocol = w.number(4, 2), w.number(6, 1)
        total = length + 40 if length or protocol == 59 else w.here_bytes
        row = self.start_row(6, w.data[8:24], w.data[24:40], w.number(0, 2) >> 4 & 0xFF, w.number(7, 1))
        row.protocol = protocol
        w = w.clipped(total).behind(40)
        while not self.later_fragment:
            if row.protocol == 44:
                size, needed = 8, 8
            elif row.protocol in (0, 43, 60, 135, 139, 140):
                size, needed = -1, 8
            elif row.protocol == 51:
                size, needed = -1, 12
            else:
                break
            if len(w) < needed:
                self.truncated = True
                row.payload_bytes = max(w.wire_bytes, 0)
                return
            if row.protocol == 44:
                self.more_fragments = w.number(2, 2) & 1 != 0
                self.later_fragment = w.number(2, 2) & 0xFFF8 != 0
            elif row.protocol == 51:
                size = (w.number(1, 1) + 2) * 4
            else:
                size = (w.number(1, 1) + 1) * 8
            cut = row.protocol != 51 and size > len(w)
            row.protocol = w.number(0, 1)
            w = w.behind(size)
            if cut:
                self.truncated = True
                row.payload_bytes = max(w.wire_bytes, 0)
                return
        self.payload(row, w)

    def payload(self, row: Row, w: Window) -> None:
        """What an IP header encloses."""
        row.payload_bytes = max(w.wire_bytes, 0)
        if self.later_fragment:
            return
        if row.protocol == 6:
            self.tcp(row, w)
        elif row.protocol == 17:
            self.udp(row, w)
        elif row.protocol in (132, 33, 136):
            self.ports(row, w)
        elif row.protocol == 4:
            self.ipv4(self.inside(w))
        elif row.protocol == 41:
            self.ipv6(self.inside(w))
        elif row.protocol == 47:
            self.gre(self.inside(w))
        elif row.protocol == 51:
            self.header(w, 12)
            row.protocol = w.number(0, 1)
            self.payload(row, w.behind((w.number(1, 1) + 2) * 4))
        elif row.protocol == 137:
            self.mpls(self.inside(w))
        elif row.protocol == 143:
            self.ethernet(self.inside(w))

    def inside(self, w: Window) -> Window:
        """What a packet carries, which goes on in its later fragments."""
        return w.going_on() if self.more_fragments else w

    # -- transports

    def ports(self, row: Row, w: Window) -> None:
        if len(w) >= 4:
            row.sport, row.dport = w.number(0, 2), w.number(2, 2)

    def tcp(self, row: Row, w: Window) -> None:
        self.ports(row, w)
        if len(w) < 20:
            self.truncated = True
            row.payload_bytes = max(w.wire_bytes - 20, 0)
            return
        row.seq, row.ack = w.number(4, 4), w.number(8, 4)
        header_bytes = (w.number(12, 1) >> 4) * 4
        row.tcp_flags = w.number(12, 2) & 0x0FFF
        row.window = w.number(14, 2)
        row.payload_bytes = w.wire_bytes - header_bytes
        if header_bytes < 20 or row.payload_bytes < 0:
            self.truncated = True
            row.payload_bytes = 0
        options = w.data[20 : max(header_bytes, 20)]
        if len(w) < header_bytes:
            self.truncated = True
        self.tcp_options(row, options)

    def tcp_options(self, row: Row, options: bytes) -> None:
        while options and options[0] != 0:
            if options[0] == 1:
                options = options[1:]
                continue
            if len(options) < 2 or options[1] < 2 or options[1] > len(options):
                break
            kind, size = options[:2]
            value, options = options[2:size], options[size:]
            if kind == 8 and size == 10:
                row.tsval, row.tsecr = int.from_bytes(value[:4], "big"), int.from_bytes(value[4:], "big")
                row.has_ts = True
            elif kind == 5:
                for i in range(0, len(value) - 7, 8):
                    if len(row.sacks) < 4:
                        edges = value[i : i + 4], value[i + 4 : i + 8]
                        row.sacks.append((int.from_bytes(edges[0], "big"), int.from_bytes(edges[1], "big")))
            elif kind == 2 and size == 4:
                row.mss = int.from_bytes(value, "big")
            elif kind == 3 and size == 3:
                row.window_scale = value[0]
            elif kind == 4 and size == 2:
                row.sack_permitted = True

    def udp(self, row: Row, w: Window) -> None:
        self.ports(row, w)
        row.payload_bytes = max(w.wire_bytes - 8, 0)
        self.header(w, 8)
        if w.number(4, 2) >= 8:
            row.payload_bytes = min(row.payload_bytes, w.number(4, 2) - 8)
        if not self.inner:
            return
        w = self.inside(w)
        if w.number(4, 2) >= 8:
            w = w.clipped(w.number(4, 2))
        w = w.behind(8)
        if row.dport in (4789, 8472):
            w.need(8)
            if w.number(0, 1) & 8:
                self.ethernet(w.behind(8))
        elif row.dport == 6081:
            w.need(8)
            if w.number(0, 1) >> 6 == 0:
                behind = w.behind(8 + (w.number(0, 1) & 63) * 4)
                self.tunnel_type(w.number(2, 2), behind)
        elif 2152 in (row.dport, row.sport):
            self.gtp(w)
        elif 3544 in (row.dport, row.sport):
            if len(w) >= 4 and w.number(0, 2) == 1:
                w = w.behind(13 + w.number(2, 1) + w.number(3, 1))
            if len(w) >= 8 and w.number(0, 2) == 0:
                w = w.behind(8)
            self.ipv6(w)
        elif row.dport == 4754:
            self.gre(w)
        elif row.dport == 6635:
            self.mpls(w)
        elif 1701 in (row.dport, row.sport):
            self.l2tp(w)

    # -- tunnels

    def tunnel_type(self, number: int, w: Window) -> None:
        """An EtherType, or 0x6558 for a whole Ethernet frame."""
        if number == 0x6558:
            self.ethernet(w)
        else:
            self.ethertype(number, w)

    def gre(self, w: Window) -> None:
        w.need(4)
        flags, protocol = w.number(0, 2), w.number(2, 2)
        if flags & 0x4000:
            return
        size = 4 + 4 * sum(bool(flags & bit) for bit in (0x8000, 0x2000, 0x1000))
        if flags & 7 == 1 and flags & 0x0080:
            size += 4
        key_at = 8 if flags & 0x8000 else 4
        inside = w.behind(size)
        if flags & 7 == 1 and flags & 0x2000 and len(w) >= key_at + 2:
            inside = inside.clipped(w.number(key_at, 2))
        w = w.behind(size)
        if protocol == 0x880B:
            self.ppp(inside)
        elif protocol == 0x88BE:
            self.ethernet(inside.behind(8) if flags & 0x1000 else inside)
        elif protocol == 0x22EB:
            w.need(12)
            self.ethernet(inside.behind(20 if w.number(11, 1) & 1 else 12))
        elif protocol == 0x9000 or protocol in range(0x8200, 0x8400, 16):
            self.ieee80211(inside)
        elif protocol == 0x883E:
            w.need(4)
            self.ipv4(inside if w.number(0, 1) >> 4 == 4 else inside.behind(4))
        else:
            self.tunnel_type(protocol, inside)

    def gtp(self, w: Window) -> None:
        w.need(8)
        if w.number(0, 1) >> 4 != 3 or w.number(1, 1) != 0xFF:
            return
        flags = w.number(0, 1)
        whole = w.clipped(8 + w.number(2, 2))
        size = 8
        if flags & 7:
            kind = w.number(11, 1) if flags & 4 else 0
            w.need(12)
            size = 12
            while kind:
                words = w.number(size, 1)
                w.need(size + max(4 * words, 4))
                if words == 0:
                    return
                size += 4 * words
                kind = w.number(size - 1, 1)
        self.raw_ip(whole.behind(size))

    def l2tp(self, w: Window) -> None:
        flags = w.number(0, 2)
        if flags & 0x8000 or flags & 15 != 2:
            return
        size, whole = 6, w
        if flags & 0x4000:
            whole = w.clipped(w.number(2, 2))
            size += 2
        if flags & 0x0800:
            size += 4
        if flags & 0x0200:
            size += 2 + w.number(size, 2)
        self.ppp(whole.behind(size))


# ---- Flows -----------------------------------------------------------------------------------------------------------

FIN, SYN, RST, ACK = 1, 2, 4, 16


@dataclass
class Flow:
    flow_id: int
    version: int
    protocol: int
    initiator: tuple[str, int]
    responder: tuple[str, int]
    last_ns: int
    turned: bool  # the first packet was a SYN-ACK, so from the responder
    isn: int | None = None  # the initiator's, by its SYN
    answered: int | None = None  # the initial sequence number that the first SYN-ACK acknowledged
    fin: bool = False
    rst: bool = False
    mss: list[int] = field(default_factory=lambda: [0, 0])
    window_scale: list[int] = field(default_factory=lambda: [255, 255])
    sack_permitted: list[bool] = field(default_factory=lambda: [False, False])


class FlowTable:
    """Numbers flows as the docstring of cctoolkit.capture.flow_ids says."""

    def __init__(self, timeout_ns: int | None) -> None:
        self.timeout_ns = timeout_ns
        self.flows: list[Flow] = []
        self._current: dict[object, Flow] = {}

    def assign(self, row: Row, ts_ns: int) -> tuple[Flow, int]:
        """The flow of a row and its direction."""
        sender, receiver = (row.src, row.sport), (row.dst, row.dport)
        key = (row.version, row.protocol, frozenset((sender, receiver)))
        flow = self._current.get(key)
        if flow is None or not self._goes_on(flow, row, self._direction(flow, sender, receiver), ts_ns):
            turned = self._opening(row) == SYN | ACK
            flow = Flow(
                flow_id=len(self.flows),
                version=row.version,
                protocol=row.protocol,
                initiator=receiver if turned else sender,
                responder=sender if turned else receiver,
                last_ns=ts_ns,
                turned=turned,
            )
            self.flows.append(flow)
            self._current[key] = flow
        flow.last_ns = max(flow.last_ns, ts_ns)
        direction = self._direction(flow, sender, receiver)
        if row.tcp_flags & SYN:
            flow.mss[direction] = row.mss
            flow.window_scale[direction] = row.window_scale
            flow.sack_permitted[direction] = row.sack_permitted
            if self._opening(row) == SYN and direction == 0:
                flow.isn = row.seq
            elif self._opening(row) == SYN | ACK and flow.answered is None:
                flow.answered = (row.ack - 1) % 2**32
        flow.fin |= bool(row.tcp_flags & FIN)
        flow.rst |= bool(row.tcp_flags & RST)
        return flow, direction

    @staticmethod
    def _opening(row: Row) -> int:
        return row.tcp_flags & (SYN | ACK | RST)

    @staticmethod
    def _direction(flow: Flow, sender: tuple[str, int], receiver: tuple[str, int]) -> int:
        # a port talking to itself has one direction: that of its first packet
        return int(flow.turned if sender == receiver else sender != flow.initiator)

    def _goes_on(self, flow: Flow, row: Row, direction: int, ts_ns: int) -> bool:
        if self.timeout_ns is not None and ts_ns - flow.last_ns > self.timeout_ns:
            return False
        if self._opening(row) == SYN:
            return self._syn_goes_on(flow, row, direction)
        if self._opening(row) == SYN | ACK:
            return self._syn_ack_goes_on(flow, row, direction)
        return True

    @staticmethod
    def _syn_goes_on(flow: Flow, row: Row, direction: int) -> bool:
        if flow.fin:
            return False
        if flow.isn is not None:
            return not flow.rst if direction == 1 else row.seq == flow.isn  # 1: both sides open at once
        # else only behind its SYN-ACK, which may acknowledge data of the SYN too
        return any((row.seq + n) % 2**32 == flow.answered for n in range(row.payload_bytes + 1))

    @staticmethod
    def _syn_ack_goes_on(flow: Flow, row: Row, direction: int) -> bool:
        answered = (row.ack - 1) % 2**32
        if flow.isn is not None and direction == 0:  # both sides open at once
            return row.seq == flow.isn
        if flow.isn is not None:  # after a FIN only if it answers the SYN, and data in it
            return not flow.fin or (answered - flow.isn) % 2**32 < 2**16
        if flow.answered is not None:
            return flow.answered in (answered, row.seq)
        return not flow.fin  # the first of a flow that was picked up in the middle


# ---- All of it -------------------------------------------------------------------------------------------------------


@dataclass
class NaiveCapture:
    file: File
    rows: list[tuple[Frame, Row, int, int]]  # with flow_id and direction
    frame_numbers: list[int]
    flows: list[Flow]
    counts: Counter[str]


def read(data: bytes, inner: bool = False, timeout_ns: int | None = 600 * 10**9) -> NaiveCapture:
    """What ``read_capture`` should make of the bytes of an uncompressed file."""
    file = read_file(data)
    table = FlowTable(timeout_ns)
    counts: Counter[str] = Counter()
    rows, numbers = [], []
    for number, frame in enumerate(file.frames, 1):
        row = Decoder(counts, inner).decode(frame)
        if row is not None:
            flow, direction = table.assign(row, frame.ts_ns)
            rows.append((frame, row, flow.flow_id, direction))
            numbers.append(number)
    return NaiveCapture(file, rows, numbers, table.flows, counts)
