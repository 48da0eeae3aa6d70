"""Every encapsulation, alone and in stacks: padding behind any of them is no payload.

Frames are made from the inside out. A layer with a length field may count all it holds, or less, or more, and bytes
that nobody counts may follow. Where the payload ends by all these lengths together is known from the making.
"""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import made_captures as made
import naive_capture as naive
import numpy as np
import pytest
import tshark
from hypothesis import given, settings, strategies as st

import cctoolkit as cct

UNBOUNDED = 1 << 40


@dataclass(frozen=True)
class Piece:
    """Bytes in which a TCP payload starts at `start` and, by the lengths in these bytes, ends at `end`."""

    data: bytes
    start: int
    end: int = UNBOUNDED

    def behind(self, header: bytes, counted: int = UNBOUNDED, trailer: bytes = b"") -> Piece:
        """With a header before it that counts so many bytes of it, and a trailer that nobody counts."""
        n = len(header)
        return Piece(header + self.data + trailer, self.start + n, min(self.end, counted) + n)


@dataclass(frozen=True)
class Layer:
    """What a header makes of a piece: other bytes, which other headers announce by these numbers."""

    piece: Piece
    numbers: dict[str, int]
    names: tuple[str, ...]


class Dice(Random):
    """What is left to chance in a stack of layers."""

    jumbograms = True  # IPv6 and UDP without a length
    honest = False  # every length field counts all that its header holds


Maker = Callable[[Dice, Piece, int], tuple[Piece, dict[str, int]]]
MAKERS: dict[str, tuple[str, Maker]] = {}


def maker(name: str, holds: str) -> Callable[[Maker], Maker]:
    """`holds` is the kind of number by which this header announces what it holds."""

    def register(function: Maker) -> Maker:
        MAKERS[name] = (holds, function)
        return function

    return register


def lengths(r: Dice, piece: Piece) -> tuple[int, bytes]:
    """How much of a piece a header counts, never less than its headers, and what follows that nobody counts."""
    size = len(piece.data)
    counted = (
        size
        if r.honest
        else r.choice([size, size, size + r.randrange(30), r.randrange(piece.start, size + 1)])
    )
    return counted, r.randbytes(r.choice([0, 0, 1, 6, 46]))


def tcp_segment(r: Dice) -> Layer:
    header = made.tcp(tcp_options=r.choice([b"", b"\1\1\x08\x0a" + bytes(8)]))
    return Layer(Piece(header + r.randbytes(r.randrange(100)), len(header)), {"ip": 6}, ("TCP",))


@maker("IPv4", "ip")
def ipv4(r: Dice, piece: Piece, protocol: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    offload = not r.honest and r.random() < 0.4
    header = made.ipv4(protocol, b"", length=0 if offload else 20 + counted)
    numbers = {"ethertype": 0x0800, "ppp": 0x21, "ip": 4, "packet": 4, "link": 228}
    return piece.behind(header, UNBOUNDED if offload else counted, trailer), numbers


@maker("IPv6", "ip")
def ipv6(r: Dice, piece: Piece, protocol: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    offload = r.jumbograms and r.random() < 0.4
    header = made.ipv6(protocol, b"", length=0 if offload else counted)
    numbers = {"ethertype": 0x86DD, "ppp": 0x57, "ip": 41, "packet": 6, "ipv6 packet": 6, "link": 229}
    return piece.behind(header, UNBOUNDED if offload else counted, trailer), numbers


@maker("AH", "ip")
def ah(r: Dice, piece: Piece, protocol: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(bytes([protocol, 4, *bytes(22)])), {"ip": 51}


@maker("raw IP", "packet")
def raw_ip(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece, {"link": r.choice([12, 14, 101])}


@maker("null", "packet")
def null(r: Dice, piece: Piece, version: int) -> tuple[Piece, dict[str, int]]:
    link_type, order = r.choice([(0, "<"), (0, ">"), (108, ">")])
    return piece.behind(struct.pack(f"{order}I", 2 if version == 4 else 30)), {"link": link_type}


@maker("Linux cooked", "ethertype")
def cooked(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(struct.pack(">HHHQH", 0, 1, 6, 0, number)), {"link": 113}


@maker("Linux cooked 2", "ethertype")
def cooked_2(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(struct.pack(">HHIHBBQ", number, 0, 1, 1, 0, 6, 0)), {"link": 276}


@maker("Cisco HDLC", "ethertype")
def cisco_hdlc(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(struct.pack(">HH", r.choice([0x0F00, 0x8F00]), number)), {
        "link": r.choice([9, 50, 104])
    }


def ethernet_header(number: int) -> bytes:
    """Between addresses by which tshark recognises Ethernet in a pseudowire, and FabricPath."""
    addresses = "020abd000000 020abc000000" if number == 0x8903 else "a82066000001 00000c000002"
    return bytes.fromhex(addresses) + struct.pack(">H", number)


ETHERNET = {"link": 1, "frame": 1, "ip": 143}


@maker("Ethernet", "ethertype")
def ethernet(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(ethernet_header(number), trailer=lengths(r, piece)[1]), ETHERNET


@maker("SNAP", "ethertype")
def snap(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(b"\xaa\xaa\3\0\0\0" + struct.pack(">H", number)), {"llc": 1}


@maker("802.3", "llc")
def ieee8023(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    return piece.behind(ethernet_header(counted), counted, trailer), ETHERNET


@maker("802.11", "llc")
def ieee80211(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    kind, to_and_from = r.choice([(0x08, 0), (0x08, 1), (0x08, 2), (0x08, 3), (0x88, 1), (0x88, 3)])
    header = struct.pack("<BBH", kind, to_and_from, 0) + b"\2" * 18 + bytes(2)
    header += b"\2" * (6 * (to_and_from == 3)) + bytes(2 * (kind == 0x88))
    return piece.behind(header), {"link": 105, "802.11": len(header), "802.11 frame": 1}


@maker("radiotap", "802.11")
def radiotap(r: Dice, piece: Piece, header_bytes: int) -> tuple[Piece, dict[str, int]]:
    with_time, with_fcs = r.random() < 0.5, r.random() < 0.5
    fields = bytes(8 * with_time) + bytes([0x10 * with_fcs, 12])
    header = struct.pack("<BBHI", 0, 0, 8 + len(fields), 6 | with_time) + fields
    return piece.behind(header, len(piece.data), bytes(4 * with_fcs)), {"link": 127}


@maker("VLAN", "ethertype")
def vlan(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(struct.pack(">HH", 5, number)), {"ethertype": r.choice([0x8100, 0x88A8])}


@maker("VLAN with a length", "llc")
def vlan_8023(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    return piece.behind(struct.pack(">HH", 5, counted), counted, trailer), {"ethertype": 0x8100}


@maker("E-TAG", "ethertype")
def e_tag(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(bytes(6) + struct.pack(">H", number)), {"ethertype": 0x893F}


@maker("VN-Tag", "ethertype")
def vn_tag(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(bytes(4) + struct.pack(">H", number)), {"ethertype": 0x8926}


@maker("I-TAG", "frame")
def i_tag(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(bytes(4)), {"ethertype": 0x88E7}


@maker("FabricPath", "frame")
def fabric_path(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(bytes([0, 0x60])), {"ethertype": 0x8903}


MPLS = {"ethertype": 0x8847, "ppp": 0x281, "ip": 137, "udp": 6635}


def labels(r: Dice) -> bytes:
    return bytes([0, 1, 0, 255]) * r.randrange(3) + bytes([0, 1, 1, 255])


@maker("MPLS", "packet")
def mpls(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(labels(r)), MPLS


@maker("pseudowire", "frame")
def pseudowire(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    looks_like_one = piece.data[0] >> 4 == 0  # an address that begins as a control word does
    return piece.behind(labels(r) + bytes(4 if looks_like_one else 4 * r.randrange(2))), MPLS


@maker("PPP", "ppp")
def ppp(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    framing = r.choice([b"", b"\xff\3"])
    compressed = number < 0x100 and r.random() < 0.3
    header = framing + struct.pack(">B" if compressed else ">H", number)
    return piece.behind(header), {"link": r.choice([9, 50]), "ppp frame": 1}


@maker("PPPoE", "ppp")
def pppoe(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    header = struct.pack(">BBHHH", 0x11, 0, 1, counted + 2, number)
    return piece.behind(header, counted, trailer), {"ethertype": 0x8864, "link": 51}


@maker("FDDI", "llc")
def fddi(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(bytes([r.randrange(0x50, 0x58), *bytes(12)])), {"link": 10}


def gre_header(r: Dice, protocol: int) -> bytes:
    flags = sum(bit for bit in (0x8000, 0x2000, 0x1000) if r.random() < 0.3)
    return struct.pack(">HH", flags, protocol) + bytes(4 * flags.bit_count())


GRE = {"ip": 47, "udp": 4754}


@maker("GRE", "ethertype")
def gre(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(gre_header(r, number)), GRE


@maker("Ethernet in GRE", "frame")
def gre_ethernet(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(gre_header(r, 0x6558)), GRE


@maker("802.11 in GRE", "802.11 frame")
def gre_ieee80211(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(gre_header(r, r.choice([0x8200, 0x8210, 0x83F0, 0x9000]))), GRE


@maker("ERSPAN", "frame")
def erspan(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    header = r.choice(
        [
            struct.pack(">HH", 0, 0x88BE),
            struct.pack(">HHI", 0x1000, 0x88BE, 7) + b"\x10" + bytes(7),
            struct.pack(">HHI", 0x1000, 0x22EB, 7) + b"\x20" + bytes(11),
            struct.pack(">HHI", 0x1000, 0x22EB, 7) + b"\x20" + bytes(10) + b"\1" + bytes(8),
        ]
    )
    return piece.behind(header), {"ip": 47}


@maker("PPTP", "ppp frame")
def pptp(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    acknowledges = r.random() < 0.5
    header = struct.pack(">HHHHI", 0x3001 | 0x80 * acknowledges, 0x880B, counted, 1, 7) + bytes(
        4 * acknowledges
    )
    return piece.behind(header, counted, trailer), {"ip": 47}


def udp(r: Dice, piece: Piece, port: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    without = r.jumbograms and r.random() < 0.3
    header = made.udp(1234, port, length=0 if without else 8 + counted)
    return piece.behind(header, UNBOUNDED if without else counted, trailer), {"ip": 17}


maker("UDP", "udp")(udp)


@maker("VXLAN", "frame")
def vxlan(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(b"\x08" + bytes(7)), {"udp": r.choice([4789, 8472])}


@maker("Geneve", "ethertype")
def geneve(r: Dice, piece: Piece, number: int) -> tuple[Piece, dict[str, int]]:
    words = r.randrange(3)
    return piece.behind(struct.pack(">BBHI", words, 0, number, 0) + bytes(4 * words)), {"udp": 6081}


@maker("Ethernet in Geneve", "frame")
def geneve_ethernet(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(struct.pack(">BBHI", 0, 0, 0x6558, 0)), {"udp": 6081}


@maker("GTP-U", "packet")
def gtp_u(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    optional = r.choice([b"", bytes(4), bytes(3) + b"\x85" + b"\1\x10\1\0"])
    flags = {0: 0x30, 4: 0x32, 8: 0x34}[len(optional)]
    header = struct.pack(">BBHI", flags, 255, len(optional) + counted, 7) + optional
    return piece.behind(header, counted, trailer), {"udp": 2152}


@maker("Teredo", "ipv6 packet")
def teredo(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    return piece.behind(r.choice([b"", bytes(8), b"\0\1\0\0" + bytes(9)])), {"udp": 3544}


@maker("L2TP", "ppp frame")
def l2tp(r: Dice, piece: Piece, _: int) -> tuple[Piece, dict[str, int]]:
    counted, trailer = lengths(r, piece)
    flags = sum(bit for bit in (0x4000, 0x0800, 0x0200) if r.random() < 0.5)
    rest = bytes([0, 1, 0, 2]) + bytes(4 * bool(flags & 0x0800))
    if flags & 0x0200:
        rest += b"\0\2" + bytes(2)
    if not flags & 0x4000:
        return piece.behind(struct.pack(">H", 2 | flags) + rest, trailer=trailer), {"udp": 1701}
    header = struct.pack(">HH", 2 | flags, 4 + len(rest) + counted) + rest
    return piece.behind(header, counted, trailer), {"udp": 1701}


def wrap(r: Dice, layer: Layer, name: str) -> Layer:
    holds, make = MAKERS[name]
    piece, numbers = make(r, layer.piece, layer.numbers[holds])
    return Layer(piece, numbers, (name, *layer.names))


def stack(r: Dice, through: str | None = None, depth: int = 5) -> Layer:
    """Random layers around a TCP segment, up to a link layer; `through` is one of them."""
    while True:
        layer = tcp_segment(r)
        while len(layer.piece.data) < 800:
            fitting = [name for name, (holds, _) in MAKERS.items() if holds in layer.numbers]
            complete = "link" in layer.numbers and (through is None or through in layer.names)
            if complete and (not fitting or len(layer.names) > depth):
                return layer
            if not fitting:
                break
            wanted = through in fitting and through not in layer.names
            layer = wrap(r, layer, through if wanted and through else r.choice(fitting))


def payload_of(frames: list[Layer], link_type: int, cut: Dice | None = None) -> list[int]:
    """The payload as it is decoded, here and by the naive twin."""
    records = []
    for i, frame in enumerate(frames):
        data = frame.piece.data
        captured = data if cut is None else data[: cut.randrange(frame.piece.start, len(data) + 1)]
        records.append((i * 1000, captured, len(data)))
    data = made.pcap(records, link_type=link_type)
    cap = cct.read_capture(io.BytesIO(data), tunnel="inner")
    assert cap.columns["payload_bytes"].tolist() == [
        row.payload_bytes for _, row, *_ in naive.read(data, True).rows
    ]
    assert (cap.columns["window"] == 0xFFFF).all(), "another header than TCP's was taken for it"
    return cap.columns["payload_bytes"].tolist()


def expected(frame: Layer) -> int:
    piece = frame.piece
    return min(piece.end, len(piece.data)) - piece.start


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_no_payload_reaches_beyond_what_encloses_it(seed: int, cut: bool) -> None:
    r = Dice(seed)
    frame = stack(r)
    assert payload_of([frame], frame.numbers["link"], r if cut else None) == [expected(frame)], frame.names


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_each_encapsulation_bounds_the_payload(name: str) -> None:
    """As above, with each encapsulation in turn."""
    r = Dice(name)
    for _ in range(30):
        frame = stack(r, through=name)
        assert name in frame.names
        assert payload_of([frame], frame.numbers["link"], r) == [expected(frame)], frame.names


# ---- Fragments of what carries packets -------------------------------------------------------------------------------


def tunnel(r: Dice) -> Layer:
    """Random layers around an IP packet with a TCP segment, up to one that an IP header can announce."""
    while True:
        layer = tcp_segment(r)
        while len(layer.piece.data) < 800:
            if "ip" in layer.numbers and {"IPv4", "IPv6"} & {*layer.names} and r.random() < 0.5:
                return layer
            fitting = [name for name, (holds, _) in MAKERS.items() if holds in layer.numbers]
            if not fitting:
                break
            layer = wrap(r, layer, r.choice(fitting))


def fragments(version: int, protocol: int, data: bytes, cut: int) -> list[bytes]:
    """An IP packet in two fragments."""
    if version == 4:
        return [
            made.ipv4(protocol, data[:cut], fragment=0x2000),
            made.ipv4(protocol, data[cut:], fragment=cut // 8),
        ]
    return [
        made.ipv6(44, struct.pack(">BBHI", protocol, 0, 1, 7) + data[:cut]),
        made.ipv6(44, struct.pack(">BBHI", protocol, 0, cut, 7) + data[cut:]),
    ]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([4, 6]))
def test_the_payload_inside_a_first_fragment_does_not_end_with_it(seed: int, version: int) -> None:
    """It is that of the packet before it was fragmented."""
    r = Dice(seed)
    r.honest, r.jumbograms = True, False
    layer = tunnel(r)
    piece, protocol = layer.piece, layer.numbers["ip"]
    link_type = {4: 228, 6: 229}[version]
    whole = piece.behind(
        made.ipv4(protocol, piece.data)[:20] if version == 4 else made.ipv6(protocol, piece.data)[:40]
    )
    cut = r.randrange(-(-piece.start // 8), len(piece.data) // 8 + 2) * 8
    first = Piece(fragments(version, protocol, piece.data, cut)[0], piece.start + 20)
    found = [payload_of([Layer(data, {}, ())], link_type)[0] for data in (whole, first)]
    assert found == [expected(Layer(whole, {}, ()))] * 2, layer.names


@pytest.mark.parametrize("version", [4, 6])
def test_a_packet_without_a_length_ends_with_its_fragment(version: int) -> None:
    segment = made.tcp(payload=bytes(1000))
    inside = made.ipv4(6, segment, length=0) if version == 4 else made.ipv6(6, segment, length=0)
    first, _ = fragments(4, {4: 4, 6: 41}[version], inside, 400)
    assert payload_of([Layer(Piece(first, 0), {}, ())], 228) == [400 - (len(inside) - 1000)]


def test_a_fragment_whose_inside_cannot_be_read_counts_its_own_bytes() -> None:
    for protocol, inside in [
        (4, bytes(100)),
        (47, b"\0\0\x12\x34" + bytes(96)),
        (17, made.udp(1, 4789, bytes(92))),
    ]:
        first, _ = fragments(4, protocol, inside, 80)
        cap = cct.read_capture(io.BytesIO(made.pcap([(0, first, len(first))], link_type=228)), tunnel="inner")
        assert cap.columns["payload_bytes"].tolist() == [72 if protocol == 17 else 80]


ZEEK = Path(__file__).parents[2] / "shared/captures/torture/zeek__zeek/testing__btest__Traces__"
INSIDE = made.ipv4(6, made.tcp(payload=bytes(1400)), src=b"\x0a\1\0\1", dst=b"\x0a\1\0\2")


@pytest.mark.skipif(not tshark.have_tshark(), reason="tshark is not on PATH")
@pytest.mark.tshark
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(
    ("protocol", "data"),
    [
        pytest.param(4, INSIDE, id="IPIP"),
        pytest.param(41, made.ipv6(6, made.tcp(payload=bytes(1400))), id="6in4"),
        pytest.param(47, struct.pack(">HH", 0, 0x0800) + INSIDE, id="GRE"),
        pytest.param(137, b"\0\1\1\xff" + INSIDE, id="MPLS"),
        pytest.param(
            17, made.udp(1234, 4789, b"\x08" + bytes(7) + made.ethernet(0x0800, INSIDE)), id="VXLAN"
        ),
    ],
)
def test_a_fragmented_tunnel_is_as_tshark_reassembles_it(
    protocol: int, data: bytes, version: int, tmp_path: Path
) -> None:
    """tshark shows the packet inside with the last fragment, here it is in the row of the first."""
    path = tmp_path / "fragments.pcap"
    frames = fragments(version, protocol, data, 800)
    path.write_bytes(
        made.pcap([(0, frame, len(frame)) for frame in frames], link_type={4: 228, 6: 229}[version])
    )
    fields = tshark.ask(path, "-T", "fields", "-e", "tcp.seq_raw", "-e", "tcp.len").splitlines()
    cap = cct.read_capture(path, tunnel="inner")
    first, last = zip(cap.columns["seq"].tolist(), cap.columns["payload_bytes"].tolist(), strict=True)
    assert fields == ["\t", "\t".join(map(str, first))]
    assert last == (0, len(data) - 800)


@pytest.mark.skipif(
    not tshark.have_tshark() or not ZEEK.parent.is_dir(), reason="tshark or the captures are missing"
)
@pytest.mark.tshark
@pytest.mark.parametrize("name", ["erspan", "tunnels__gtp__gtp9_unknown_or_too_short_payload"])
def test_real_fragmented_tunnels_are_as_tshark_reassembles_them(name: str) -> None:
    path = ZEEK.with_name(f"{ZEEK.name}{name}.pcap")
    theirs = tshark.ask(path, "-Y", "tcp", "-T", "fields", "-e", "tcp.seq_raw", "-e", "tcp.len").splitlines()
    columns = cct.read_capture(path, tunnel="inner").columns
    rows = np.flatnonzero(columns["tcp_flags"])
    assert [f"{columns['seq'][row]}\t{columns['payload_bytes'][row]}" for row in rows] == theirs


#: Where tshark bounds payloads otherwise: it does not look at the payload length of GRE version 1 (RFC 2637, section
#: 4.1), and takes the last four bytes of a FabricPath frame for its checksum, which captures lack.
OTHERWISE_BY_TSHARK = {"PPTP", "FabricPath"}


@pytest.mark.slow
@pytest.mark.skipif(not tshark.have_tshark(), reason="tshark is not on PATH")
@pytest.mark.tshark
def test_payloads_are_as_tshark_reads_them(tmp_path: Path) -> None:
    """Wherever tshark walks through the stack too, which it does for each encapsulation in some stack."""
    r = Dice(7)
    r.jumbograms = False  # tshark decodes nothing behind them
    by_link_type: dict[int, list[Layer]] = {}
    for name in [*MAKERS] * 15:
        frame = stack(r, through=name)
        by_link_type.setdefault(frame.numbers["link"], []).append(frame)
    compared: Counter[str] = Counter()
    for link_type, frames in by_link_type.items():
        path = tmp_path / f"{link_type}.pcap"
        records = [(i * 1000, frame.piece.data, len(frame.piece.data)) for i, frame in enumerate(frames)]
        path.write_bytes(made.pcap(records, link_type=link_type))
        run = tshark.run_tshark(path, ["tcp.len"], extra_layers=[*tshark.INNER_LAYERS, "l2tp"])
        for frame, payload, theirs in zip(
            frames, payload_of(frames, link_type), run.columns["tcp.len"], strict=True
        ):
            if theirs and not OTHERWISE_BY_TSHARK & {*frame.names}:
                assert payload == int(theirs.split(",")[-1]), frame.names
                compared.update({*frame.names})
    assert set(compared) == {*MAKERS, "TCP"} - OTHERWISE_BY_TSHARK
    assert min(compared.values()) >= 5, compared
