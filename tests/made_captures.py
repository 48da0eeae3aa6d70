"""Captures made by hand: files of both formats in all their variants, and frames of any stack of headers.

Nothing here shares a line with the package; a random frame may be well-formed, cut, or lie about its lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from random import Random

# ---- Files -----------------------------------------------------------------------------------------------------------


def pcap_header(
    order: str = "<",
    magic: int = 0xA1B2C3D4,
    version: tuple[int, int] = (2, 4),
    snaplen: int = 262144,
    link_type: int = 1,
) -> bytes:
    return struct.pack(f"{order}IHHiIII", magic, *version, 0, 0, snaplen, link_type)


def pcap_record(
    frame: bytes, ticks: int, wire_bytes: int, order: str = "<", header_bytes: int = 16, per_s: int = 10**6
) -> bytes:
    header = struct.pack(f"{order}IIII", *divmod(ticks, per_s), len(frame), wire_bytes)
    return header + bytes(header_bytes - 16) + frame


def pcap(
    frames: Iterable[tuple[int, bytes, int]],
    order: str = "<",
    nanoseconds: bool = False,
    version: tuple[int, int] = (2, 4),
    modified: bool = False,
    **header: int,
) -> bytes:
    """A pcap file of (time in ns, captured bytes, original length)."""
    magic = 0xA1B2CD34 if modified else 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    unit = 1 if nanoseconds else 1000
    records = []
    for ts_ns, data, wire_bytes in frames:
        lengths = (len(data), wire_bytes) if version > (2, 2) else (wire_bytes, len(data))
        seconds, fraction = divmod(ts_ns // unit, 10**9 // unit)
        records.append(struct.pack(f"{order}IIII", seconds, fraction, *lengths) + bytes(8 * modified) + data)
    return pcap_header(order, magic, version, **header) + b"".join(records)


def block(order: str, kind: int, body: bytes) -> bytes:
    """A pcapng block; its body is padded."""
    body += bytes(-len(body) % 4)
    size = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + size + body + size


def options(order: str, *pairs: tuple[int, bytes]) -> bytes:
    """pcapng options with their end mark, or nothing."""
    if not pairs:
        return b""
    out = [
        struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4) for code, value in pairs
    ]
    return b"".join(out) + bytes(4)


def section(order: str = "<", major: int = 1, *pairs: tuple[int, bytes]) -> bytes:
    return block(
        order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, major, 0, -1) + options(order, *pairs)
    )


def interface(order: str = "<", link_type: int = 1, snaplen: int = 0, *pairs: tuple[int, bytes]) -> bytes:
    return block(order, 1, struct.pack(f"{order}HHI", link_type, 0, snaplen) + options(order, *pairs))


def enhanced(
    order: str, interface: int, ticks: int, data: bytes, wire_bytes: int, *pairs: tuple[int, bytes]
) -> bytes:
    head = struct.pack(
        f"{order}IIIII", interface, ticks >> 32 & 0xFFFFFFFF, ticks & 0xFFFFFFFF, len(data), wire_bytes
    )
    return block(order, 6, head + data + bytes(-len(data) % 4) + options(order, *pairs))


def obsolete(order: str, interface: int, ticks: int, data: bytes, wire_bytes: int) -> bytes:
    head = struct.pack(
        f"{order}HHIIII", interface, 7, ticks >> 32 & 0xFFFFFFFF, ticks & 0xFFFFFFFF, len(data), wire_bytes
    )
    return block(order, 2, head + data)


def simple(order: str, data: bytes, wire_bytes: int) -> bytes:
    return block(order, 3, struct.pack(f"{order}I", wire_bytes) + data)


def statistics(order: str, interface: int, dropped: int) -> bytes:
    lost = options(order, (5, struct.pack(f"{order}Q", dropped)))
    return block(order, 5, struct.pack(f"{order}III", interface, 0, 0) + lost)


def random_pcap(random: Random, frames: Sequence[tuple[int, bytes, int]], link_type: int) -> bytes:
    """Frames of one link type in some variant of pcap."""
    return pcap(
        frames,
        order=random.choice("<>"),
        nanoseconds=random.random() < 0.5,
        version=random.choice([(2, 4), (2, 4), (2, 3), (2, 2), (2, 0)]),
        modified=random.random() < 0.1,
        link_type=link_type | random.choice([0, 0, 0x04000000 | 4 << 28]),
        snaplen=random.choice([0, 96, 65535, 262144]),
    )


def random_pcapng(random: Random, frames: Sequence[tuple[int, bytes, int, int]]) -> bytes:
    """Frames, each with its link type, in sections and interfaces of all kinds, between blocks of all kinds."""
    blocks = []
    order = random.choice("<>")
    interfaces: list[int] = []  # their link types

    def new_section() -> None:
        nonlocal order
        order = random.choice("<>")
        interfaces.clear()
        blocks.append(section(order, 1, *([(4, b"somewhere")] * random.randrange(2))))

    def new_interface(link_type: int, resolution: int | None = None) -> None:
        pairs = [(2, b"eth0")] if random.random() < 0.3 else []
        if resolution is not None:
            pairs.append((9, bytes([resolution])))
        if random.random() < 0.2:
            pairs.append((14, struct.pack(f"{order}q", random.choice([0, 1, -1, 10**9, -(2**40)]))))
        snaplen = random.choice([0, 0, 96, 262144])
        blocks.append(interface(order, link_type, snaplen, *pairs))
        interfaces.append(link_type)

    new_section()
    for ticks, data, wire_bytes, link_type in frames:
        if random.random() < 0.05:
            new_section()
        if random.random() < 0.1:
            blocks.append(block(order, random.choice([4, 9, 10, 0xBAD, 0x40000BAD, 0x80000001]), bytes(20)))
        if interfaces and random.random() < 0.1:
            blocks.append(statistics(order, random.randrange(len(interfaces)), random.randrange(1000)))
        if link_type not in interfaces or random.random() < 0.05:
            new_interface(
                link_type, random.choice([None, 6, 9, 3, 0, 12, 0x80, 0x9E, 0xA0, random.randrange(256)])
            )
        kind = random.random()
        if kind < 0.1 and interfaces[0] == link_type:
            blocks.append(simple(order, data, max(wire_bytes, len(data))))
        elif kind < 0.2:
            blocks.append(obsolete(order, interfaces.index(link_type), ticks, data, wire_bytes))
        else:
            pairs = [(1, b"a comment"), (2, b"\0\0\0\1")] if random.random() < 0.2 else []
            blocks.append(enhanced(order, interfaces.index(link_type), ticks, data, wire_bytes, *pairs))
    return b"".join(blocks)


# ---- Frames ----------------------------------------------------------------------------------------------------------

LINK_TYPES = (0, 1, 9, 10, 12, 14, 50, 51, 101, 104, 105, 108, 113, 127, 228, 229, 276)
TUNNEL_PORTS = (4789, 8472, 6081, 2152, 3544, 4754, 6635, 1701)


def tcp(
    sport: int = 1000,
    dport: int = 80,
    seq: int = 0,
    ack: int = 0,
    flags: int = 0x10,
    window: int = 0xFFFF,
    tcp_options: bytes = b"",
    payload: bytes = b"",
    data_offset: int | None = None,
) -> bytes:
    tcp_options += bytes(-len(tcp_options) % 4)
    offset = 5 + len(tcp_options) // 4 if data_offset is None else data_offset
    head = struct.pack(">HHIIHHHH", sport, dport, seq, ack, (offset & 15) << 12 | flags, window, 0, 0)
    return head + tcp_options + payload


def udp(sport: int, dport: int, payload: bytes = b"", length: int | None = None) -> bytes:
    return (
        struct.pack(">HHHH", sport, dport, (8 + len(payload) if length is None else length) & 0xFFFF, 0)
        + payload
    )


def ipv4(
    protocol: int,
    payload: bytes,
    src: bytes = b"\x0a\0\0\1",
    dst: bytes = b"\x0a\0\0\2",
    tos: int = 0,
    ttl: int = 64,
    fragment: int = 0,
    ip_options: bytes = b"",
    length: int | None = None,
    ihl: int | None = None,
    version: int = 4,
) -> bytes:
    ip_options += bytes(-len(ip_options) % 4)
    words = 5 + len(ip_options) // 4 if ihl is None else ihl
    total = 20 + len(ip_options) + len(payload) if length is None else length
    first = version << 4 | words & 15
    head = struct.pack(">BBHHHBBH", first, tos, total & 0xFFFF, 0, fragment, ttl, protocol, 0)
    return head + src + dst + ip_options + payload


def ipv6(
    next_header: int,
    payload: bytes,
    src: bytes = bytes(15) + b"\1",
    dst: bytes = bytes(15) + b"\2",
    traffic_class: int = 0,
    hop_limit: int = 64,
    length: int | None = None,
    version: int = 6,
) -> bytes:
    first = version << 28 | traffic_class << 20
    size = len(payload) if length is None else length
    return struct.pack(">IHBB", first, size & 0xFFFF, next_header, hop_limit) + src + dst + payload


def ethernet(ethertype: int, payload: bytes) -> bytes:
    return bytes(12) + struct.pack(">H", ethertype) + payload


class FrameMaker:
    """Frames of random stacks of headers between a few hosts and ports, so that flows come about."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def some(self, most: int) -> bytes:
        return self.random.randbytes(self.random.randrange(most + 1))

    def frame(self) -> tuple[int, bytes]:
        """A link type and a frame."""
        r = self.random
        if self.chance(0.02):
            return r.choice([2, 6, 147, 163, 1000, 65535]), self.some(100)
        link_type = r.choice([1, 1, 1, *LINK_TYPES])
        if link_type in (12, 14, 101):
            data = self.ip()[1]
        elif link_type == 228:
            data = self.ipv4()
        elif link_type == 229:
            data = self.ipv6()
        elif link_type == 1:
            data = self.ethernet()
        elif link_type in (9, 50):
            data = self.ppp()
        elif link_type == 51:
            data = self.pppoe()
        elif link_type == 10:
            data = r.choice([b"\x50", b"\x57", b"\x80"]) + bytes(12) + self.snap()
        elif link_type == 105:
            data = self.ieee80211()
        elif link_type == 127:
            data = self.radiotap()
        elif link_type == 104:
            ethertype, payload = self.network()
            data = struct.pack(">HH", 0x0F00, ethertype) + payload
        elif link_type in (0, 108):
            version, packet = self.ip()
            family = 2 if version == 4 else r.choice([10, 24, 28, 30])
            order = "<" if link_type == 0 and self.chance(0.5) else ">"
            data = struct.pack(f"{order}I", r.choice([family, family, 7])) + packet
        else:
            ethertype, payload = self.network()
            if self.chance(0.1):
                ethertype, payload = 4, self.snap()
            if link_type == 113:
                data = bytes(14) + struct.pack(">H", ethertype) + payload
            else:
                data = struct.pack(">H", ethertype) + bytes(18) + payload
        if self.chance(0.1) and data:  # damage
            flipped = bytearray(data)
            for _ in range(r.randrange(1, 4)):
                flipped[r.randrange(min(len(flipped), 120))] ^= 1 << r.randrange(8)
            data = bytes(flipped)
        return link_type, data

    def captured(self, data: bytes) -> tuple[bytes, int]:
        """A frame as captured, and its length on the wire, which may lie."""
        r = self.random
        wire_bytes = len(data)
        if self.chance(0.4):
            data = data[: r.randrange(40, 201)]
        if self.chance(0.1):
            data = data[: r.randrange(len(data) + 1)]
        if self.chance(0.05):
            wire_bytes = r.choice([0, len(data) // 2, len(data), wire_bytes + 65000, 2**32 - 1])
        return data, wire_bytes

    # -- below IP

    def ethernet(self, depth: int = 0) -> bytes:
        padding = self.some(20) if self.chance(0.2) else b""
        if self.chance(0.1):
            snap = self.snap(depth)
            return ethernet(self.length(len(snap)) & 0x3FF, snap) + padding
        return ethernet(*self.network(depth)) + padding

    def network(self, depth: int = 0) -> tuple[int, bytes]:
        """An EtherType and what it announces."""
        r = self.random
        kind = r.random()
        if kind < 0.75:
            version, packet = self.ip(depth)
            if self.chance(0.03):
                version = 10 - version
            return (0x0800 if version == 4 else 0x86DD), packet
        if kind < 0.85:
            if self.chance(0.1):
                snap = self.snap(depth)
                return r.choice([0x8100, 0x88A8]), struct.pack(">HH", 5, len(snap) & 0x3FF) + snap
            ethertype, payload = self.network(depth)
            return r.choice([0x8100, 0x88A8, 0x9100, 0x9200]), struct.pack(">HH", 5, ethertype) + payload
        if kind < 0.88:
            ethertype, payload = self.network(depth)
            number, header_bytes = r.choice([(0x893F, 6), (0x8926, 4)])
            return number, bytes(header_bytes) + struct.pack(">H", ethertype) + payload
        if kind < 0.90:
            number, header_bytes = r.choice([(0x88E7, 4), (0x8903, 2)])
            return number, bytes(header_bytes) + self.ethernet(depth)
        if kind < 0.93:
            return r.choice([0x8847, 0x8848]), self.mpls(depth)
        if kind < 0.97:
            return 0x8864, self.pppoe(depth)
        return r.choice([0x0806, 0x88CC, 1501, 0xFFFF]), self.some(60)

    def snap(self, depth: int = 0) -> bytes:
        ethertype, payload = self.network(depth)
        start = self.random.choice(
            [b"\xaa\xaa\3\0\0\0", b"\xaa\xaa\3\0\0\0", b"\xaa\xaa\3\0\1\0", b"\x42\x42\3"]
        )
        return start + struct.pack(">H", ethertype) + payload

    def mpls(self, depth: int = 0) -> bytes:
        labels = b"".join(bytes([0, 1, 0, 255]) for _ in range(self.random.randrange(3))) + bytes(
            [0, 1, 1, 255]
        )
        if self.chance(0.2):
            control_word = bytes(4) if self.chance(0.5) else b""
            return labels + control_word + self.ethernet(depth)
        return labels + self.ip(depth)[1]

    def pppoe(self, depth: int = 0) -> bytes:
        data = self.ppp(depth, framed=False)
        code = 0 if self.chance(0.95) else 9
        padding = self.some(20) if self.chance(0.2) else b""
        return struct.pack(">BBHH", 0x11, code, 1, self.length(len(data)) & 0xFFFF) + data + padding

    def ppp(self, depth: int = 0, framed: bool = True) -> bytes:
        version, packet = self.ip(depth)
        protocol = 0x21 if version == 4 else 0x57
        kind = self.random.random()
        if kind < 0.1:
            protocol, packet = 0x281, self.mpls(depth)
        elif kind < 0.15:
            protocol, packet = 0xC021, self.some(30)
        elif kind < 0.25:
            ethertype, packet = self.network(depth)
            return struct.pack(">HH", self.random.choice([0x0F00, 0x8F00]), ethertype) + packet
        start = b"\xff\x03" if framed and self.chance(0.7) else b""
        compressed = protocol < 0x100 and self.chance(0.3)
        return start + struct.pack(">B" if compressed else ">H", protocol) + packet

    def ieee80211(self, padded: bool = False) -> bytes:
        r = self.random
        kind = r.choice([0x08] * 8 + [0x88] * 8 + [0xC8, 0x48, 0x80, 0x09, 0x04])
        flags = r.choice([0, 1, 2, 3, 0x10, 0x83, 0x40])
        header = bytes([kind, flags]) + bytes(20) + bytes([r.choice([0] * 9 + [1]), 7])
        if flags & 3 == 3:
            header += bytes(6)
        if kind & 0x80:
            header += bytes([0x80 if self.chance(0.1) else 0, 0])
            if flags & 0x80:
                header += bytes(4)
        if padded:
            header += bytes(-len(header) % 4)
        return header + self.snap()

    def radiotap(self) -> bytes:
        """Random fields, of which those before and including the flags are where the standard puts them."""
        r = self.random
        words = [r.choice([0, 1, 2, 3, 0xC402E])]
        while self.chance(0.2):
            words[-1] |= 1 << 31
            words.append(r.randrange(1 << 16))
        flags = r.choice([0, 0x10, 0x20, 0x30, 0x02])
        fields = bytes(-(4 + 4 * len(words)) % 8 + 8) if words[0] & 1 else b""
        if words[0] & 2:
            fields += bytes([flags])
        fields += self.some(12)
        size = 4 + 4 * len(words) + len(fields)
        header = struct.pack(f"<BBH{len(words)}I", 0, 0, self.length(size) & 0xFFFF, *words) + fields
        has_fcs, padded = (words[0] & 2 and flags & bit for bit in (0x10, 0x20))
        return header + self.ieee80211(bool(padded)) + (bytes(4) if has_fcs else b"")

    # -- IP

    def ip(self, depth: int = 0) -> tuple[int, bytes]:
        return (6, self.ipv6(depth)) if self.chance(0.4) else (4, self.ipv4(depth))

    def length(self, right: int) -> int:
        """A length that is right, 0, or a lie."""
        kind = self.random.random()
        if kind < 0.85:
            return right
        return 0 if kind < 0.92 else self.random.choice([self.random.randrange(100), right + 5, 65535])

    def ipv4(self, depth: int = 0) -> bytes:
        r = self.random
        protocol, payload = self.transport(depth)
        ip_options = self.some(40) if self.chance(0.1) else b""
        size = 20 + len(ip_options) + -len(ip_options) % 4 + len(payload)
        return ipv4(
            protocol,
            payload,
            src=bytes([10, 0, 0, r.randrange(3)]),
            dst=bytes([10, 0, 0, r.randrange(3)]),
            tos=r.randrange(256),
            ttl=r.randrange(256),
            fragment=r.choice([0] * 8 + [0x4000, 0x2000, 0x2001, 0x00FF]),
            ip_options=ip_options,
            length=self.length(size),
            ihl=r.randrange(16) if self.chance(0.02) else None,
        )

    def ipv6(self, depth: int = 0) -> bytes:
        r = self.random
        next_header, payload = self.transport(depth)
        for _ in range(r.choice([0, 0, 0, 1, 2, 3])):
            kind = r.choice([0, 43, 60, 135, 139, 140, 44, 51])
            if kind == 44:
                header = struct.pack(">BBHI", next_header, 0, r.choice([0, 1, 8, 0xFFF9]), 7)
            elif kind == 51:
                header = bytes([next_header, 2 + r.randrange(3), *bytes(6)])
                header += bytes((header[1] + 2) * 4 - len(header))
            else:
                header = bytes([next_header, r.randrange(3) if self.chance(0.95) else 255])
                header += bytes((header[1] % 4 + 1) * 8 - 2)
            next_header, payload = kind, header + payload
        return ipv6(
            next_header,
            payload,
            src=bytes([0x20, 1, *bytes(13), r.randrange(3)]),
            dst=bytes([0x20, 1, *bytes(13), r.randrange(3)]),
            traffic_class=r.randrange(256),
            hop_limit=r.randrange(256),
            length=self.length(len(payload)),
        )

    def transport(self, depth: int) -> tuple[int, bytes]:
        """A protocol number and what it announces."""
        r = self.random
        kind = r.random()
        if kind < 0.45 or depth > 3:
            return 6, self.tcp()
        if kind < 0.78:
            return 17, self.udp(depth)
        if kind < 0.81:
            return r.choice([1, 58, 2, 50, 59]), self.some(60)
        if kind < 0.83:
            return r.choice([132, 33, 136]), struct.pack(">HH", r.randrange(4), 443) + self.some(30)
        if kind < 0.92:
            return 47, self.gre(depth + 1)
        if kind < 0.94:
            return 4, self.ipv4(depth + 1)
        if kind < 0.96:
            return 41, self.ipv6(depth + 1)
        if kind < 0.97:
            return 137, self.mpls(depth + 1)
        if kind < 0.98:
            return 143, self.ethernet(depth + 1)
        protocol, payload = self.transport(depth + 1)
        return 51, bytes([protocol, 4, *bytes(22)]) + payload

    # -- transports

    def tcp(self) -> bytes:
        r = self.random
        flags = r.choice([0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14, 0x01, 0, 0xFFF, r.randrange(4096)])
        return tcp(
            sport=r.randrange(4),
            dport=r.randrange(4),
            seq=r.choice([0, 1, 2**32 - 1, r.randrange(2**32)]),
            ack=r.randrange(2**32),
            flags=flags,
            window=r.randrange(2**16),
            tcp_options=self.tcp_options()[:40],
            payload=self.some(200),
            data_offset=r.randrange(16) if self.chance(0.03) else None,
        )

    def tcp_options(self) -> bytes:
        r = self.random
        out = b""
        while self.chance(0.6) and len(out) < 40:
            kind = r.randrange(9)
            if kind == 0:
                out += b"\1" * r.randrange(1, 3)
            elif kind == 1:
                out += b"\1\1\x08\x0a" + r.randbytes(8)
            elif kind == 2:
                out += b"\x08\x0a" + r.randbytes(8)
            elif kind == 3:
                blocks = r.randrange(1, 5)
                out += bytes([5, 2 + 8 * blocks]) + r.randbytes(8 * blocks)
            elif kind == 4:
                out += b"\2\4" + r.randbytes(2)
            elif kind == 5:
                out += b"\3\3" + r.randbytes(1)
            elif kind == 6:
                out += b"\4\2"
            elif kind == 7:
                out += b"\0" if self.chance(0.2) else b"\x22\6" + r.randbytes(4)
            else:
                out += bytes([r.randrange(256), r.choice([0, 1, 3, 40, 255])])
        return out

    def udp(self, depth: int) -> bytes:
        r = self.random
        port = r.choice([53, *TUNNEL_PORTS])
        sport = r.choice([53, 53, 1234, 1234, 2152, 3544])
        payload = self.some(60)
        if depth < 3 and self.chance(0.8):
            if port in (4789, 8472):
                payload = bytes([8 if self.chance(0.9) else 0]) + bytes(7) + self.ethernet(depth + 1)
            elif port == 6081:
                size = r.randrange(4)
                ethertype, inner = (
                    (0x6558, self.ethernet(depth + 1)) if self.chance(0.5) else self.network(depth + 1)
                )
                version = 0 if self.chance(0.95) else 0x40
                payload = struct.pack(">BBHI", version | size, 0, ethertype, 0) + bytes(4 * size) + inner
            elif port == 2152 or sport == 2152:
                payload = self.gtp(depth + 1)
            elif port == 3544 or sport == 3544:
                authentication = b"\0\1\2\3" + bytes(5 + 9) if self.chance(0.3) else b""
                origin = bytes(8) if self.chance(0.3) else b""
                payload = authentication + origin + self.ipv6(depth + 1)
            elif port == 4754:
                payload = self.gre(depth + 1)
            elif port == 6635:
                payload = self.mpls(depth + 1)
            elif port == 1701:
                payload = self.l2tp(depth + 1)
        return udp(sport, port, payload, self.length(8 + len(payload)))

    # -- tunnels

    def gre(self, depth: int) -> bytes:
        r = self.random
        flags = sum(bit for bit in (0x8000, 0x2000, 0x1000) if self.chance(0.3))
        if self.chance(0.02):
            flags |= 0x4000
        body = bytes(4 * (flags & 0xB000).bit_count())
        if self.chance(0.1):
            flags |= 0x0081
            body += bytes(4)
        kind = r.random()
        if kind < 0.5:
            protocol, inner = self.network(depth)
        elif kind < 0.6:
            protocol, inner = 0x6558, self.ethernet(depth)
        elif kind < 0.7:
            protocol, inner = 0x880B, self.ppp(depth)
            if self.chance(0.5):  # PPTP
                key = struct.pack(">HH", self.length(len(inner)) & 0xFFFF, 1)
                flags, body = 0x2001, key
                if self.chance(0.5):
                    flags, body = flags | 0x1000, body + bytes(4)
                if self.chance(0.5):
                    flags, body = flags | 0x0080, body + bytes(4)
                inner += self.some(9)
        elif kind < 0.8:
            protocol, inner = 0x88BE, bytes(8 if flags & 0x1000 else 0) + self.ethernet(depth)
        elif kind < 0.9:
            subheader = self.chance(0.5)
            protocol = 0x22EB
            inner = bytes(11) + bytes([subheader]) + bytes(8 * subheader) + self.ethernet(depth)
        elif kind < 0.95:
            protocol, inner = self.random.choice([0x8200, 0x8240, 0x8201, 0x9000]), self.ieee80211()
        else:
            protocol, inner = 0x883E, bytes(4 if self.chance(0.5) else 0) + self.ipv4(depth)
        return struct.pack(">HH", flags, protocol) + body + inner

    def gtp(self, depth: int) -> bytes:
        flags = 0x30 | (self.random.randrange(8) if self.chance(0.5) else 0)
        optional = b""
        if flags & 7:
            extensions = self.random.randrange(3) if flags & 4 else 0
            optional = bytes(3) + bytes([0x85 if extensions else 0])
            for i in range(extensions):
                words = self.random.choice([1, 1, 2, 0] if self.chance(0.1) else [1, 2])
                optional += bytes([words]) + bytes(max(4 * words - 2, 0))
                optional += bytes([0x85 if i + 1 < extensions else 0])
        message = 0xFF if self.chance(0.95) else 1
        inner = optional + self.ip(depth)[1]
        length = self.length(len(inner)) & 0xFFFF
        padding = self.some(9) if self.chance(0.2) else b""
        return struct.pack(">BBHI", flags, message, length, 9) + inner + padding

    def l2tp(self, depth: int) -> bytes:
        flags = 2 | sum(bit for bit in (0x4000, 0x0800, 0x0200) if self.chance(0.5))
        if self.chance(0.05):
            flags ^= self.random.choice([0x8000, 1])
        rest = bytes(4) + (bytes(4) if flags & 0x0800 else b"")
        if flags & 0x0200:
            size = self.random.choice([0, 2, 5])
            rest += struct.pack(">H", size) + bytes(size)
        rest += self.ppp(depth)
        length = struct.pack(">H", self.length(4 + len(rest)) & 0xFFFF) if flags & 0x4000 else b""
        return struct.pack(">H", flags) + length + rest + self.some(9 if self.chance(0.2) else 0)


def random_frames(random: Random, n: int, link_type: int | None = None) -> list[tuple[int, bytes, int, int]]:
    """`n` frames as (time in ns, captured bytes, original length, link type), all of one link type if one is given."""
    maker = FrameMaker(random)
    frames: list[tuple[int, bytes, int, int]] = []
    now = random.choice([0, 10**18, 4_000_000_000 * 10**9])
    while len(frames) < n:
        kind, data = maker.frame()
        if link_type is not None and kind != link_type:
            continue
        now = max(now + random.choice([0, 1000, 10**6, 10**9, -(10**6), 700 * 10**9]), 0)
        frames.append((min(now, (2**32 - 1) * 10**9), *maker.captured(data), kind))
    return frames
