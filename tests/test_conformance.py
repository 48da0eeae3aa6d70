"""Every frame of every real capture at hand, as read here and as tshark reads it.

Nothing is compared loosely. Where the two do not say the same, a rule says for which frames and columns, and why; a
difference without a rule fails, and so does a rule that explains nothing any more.
"""

from __future__ import annotations

import csv
import gzip
import io
import ipaddress
import lzma
import os
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any

import naive_capture
import numpy as np
import pandas as pd
import pytest
import tshark
import zstandard
from tools import mostly_slow

import cctoolkit as cct
from cctoolkit.capture.keys import FlowKeys
from cctoolkit.capture.model import Capture
from cctoolkit.errors import CaptureFormatError, TruncatedCaptureWarning

CAPTURES = Path(__file__).parents[2] / "shared" / "captures"

pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason="the folder shared/captures is not there")
needs_tshark = pytest.mark.skipif(not tshark.have_tshark(), reason="tshark is not on PATH")


@cache
def manifest() -> dict[str, dict[str, str]]:
    """What MANIFEST.tsv says of each capture, by file name; little of those in semantics/, which it does not list."""
    with open(CAPTURES / "MANIFEST.tsv", newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}
    for path in sorted(CAPTURES.glob("semantics/*.pcap")):
        rows[str(path.relative_to(CAPTURES))] = {"linktype": "EN10MB", "format": "pcap-LE", "note": path.stem}
    return rows


@cache
def representative() -> frozenset[str]:
    """The smallest capture of every link type and format, and of every feature that the manifest names."""
    smallest: dict[str, tuple[int, str]] = {}
    for name, row in manifest().items():
        candidate = ((CAPTURES / name).stat().st_size, name)
        for feature in [
            f"{row['linktype']} {row['format']}",
            *(word.split(":")[0] for word in row["note"].split()),
        ]:
            smallest[feature] = min(smallest.get(feature, candidate), candidate)
    return frozenset(name for _, name in smallest.values())


@cache
def of_each_link_type() -> frozenset[str]:
    """The smallest capture of every link type."""
    by_size = sorted(manifest(), key=lambda name: ((CAPTURES / name).stat().st_size, name), reverse=True)
    return frozenset({manifest()[name]["linktype"]: name for name in by_size}.values())


def all_captures(
    quick: Callable[[], Collection[str]] = representative, names: Iterable[str] | None = None
) -> list[Any]:
    """One parameter a capture; all but the quick ones are marked slow."""
    if not CAPTURES.is_dir():
        return []
    return mostly_slow(names or manifest(), quick())


# ---- What tshark says ------------------------------------------------------------------------------------------------

_IPV4 = ["ip.src", "ip.dst", "ip.proto", "ip.ttl", "ip.dsfield.dscp", "ip.dsfield.ecn"]
_IPV6 = ["ipv6.src", "ipv6.dst", "ipv6.nxt", "ipv6.hlim", "ipv6.tclass.dscp", "ipv6.tclass.ecn"]
_NEXT_HEADER = {
    "ah": "ah.next_header",
    "ipv6.hopopts": "ipv6.hopopts.nxt",
    "ipv6.routing": "ipv6.routing.nxt",
    "ipv6.fraghdr": "ipv6.fraghdr.nxt",
    "ipv6.dstopts": "ipv6.dstopts.nxt",
    "mipv6": "mip6.proto",
}
_TCP = {
    "sport": "tcp.srcport",
    "dport": "tcp.dstport",
    "seq": "tcp.seq_raw",
    "ack": "tcp.ack_raw",
    "tcp_flags": "tcp.flags",
    "payload_bytes": "tcp.len",
    "window": "tcp.window_size_value",
}
_TIMESTAMPS = ("tcp.options.timestamp.tsval", "tcp.options.timestamp.tsecr")
_SACK = ("tcp.options.sack_le", "tcp.options.sack_re")
_SYN = ("tcp.options.mss_val", "tcp.options.wscale.shift", "tcp.options.sack_perm")
_PORTS = {
    "udp": ("udp.srcport", "udp.dstport"),
    "udplite": ("udp.srcport", "udp.dstport"),
    "sctp": ("sctp.srcport", "sctp.dstport"),
    "dccp": ("dccp.srcport", "dccp.dstport"),
}
FIELDS = list(
    dict.fromkeys(
        [
            *["frame.len", "frame.cap_len", "frame.time_epoch", "frame.encap_type", "frame.protocols"],
            *_IPV4,
            *_IPV6,
            *["ip.hdr_len", "ip.len", "ip.flags.mf", "ipv6.plen", "ipv6.fraghdr.more", "udp.length"],
            *_NEXT_HEADER.values(),
            *_TCP.values(),
            *_TIMESTAMPS,
            *_SACK,
            *_SYN,
            *(name for ports in _PORTS.values() for name in ports),
        ]
    )
)


@dataclass
class Frame:
    """One frame as tshark sees it."""

    number: int
    wire_bytes: int
    captured_bytes: int
    ts_ns: int | None
    layers: list[str]
    transport: str | None = None  # behind the row's IP header
    row: dict[str, Any] | None = (
        None  # by our column names; what tshark did not decode is None; no IP header: None
    )
    ip_header_bytes: int = 0  # without extension headers
    ip_bytes: int = 0  # as its header says, with that header
    fragment: bool = False  # more fragments follow
    inside_fragment: bool = False  # of an IPv4 packet around the row's
    syn_options: tuple[int, int, bool] | None = None  # of a SYN: MSS, window scale, SACK permitted


class _Texts:
    """The printed fields of one frame as numbers."""

    def __init__(self, columns: dict[str, list[str]], i: int) -> None:
        self._columns = columns
        self._i = i

    def texts(self, name: str) -> list[str]:
        text = self._columns[name][self._i]
        return text.split(",") if text else []

    def numbers(self, name: str) -> list[int]:
        return [_number(text) for text in self.texts(name)]

    def number(self, name: str, nth: int) -> int | None:
        """The `nth` occurrence; None where there is none."""
        text = self._columns[name][self._i]
        if "," not in text:  # most often
            return _number(text) if text and nth in (0, -1) else None
        found = text.split(",")
        return _number(found[nth]) if -len(found) <= nth < len(found) else None


@lru_cache(1 << 14)
def _number(text: str) -> int:
    return text == "True" if text in ("True", "False") else int(text, 0)


@lru_cache(1 << 14)
def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _epoch_ns(text: str) -> int | None:
    seconds, _, fraction = text.partition(".")
    return int(seconds) * 10**9 + int(fraction) if text else None


def frames_by_tshark(run: tshark.TsharkRun, inner: bool = False) -> list[Frame]:
    frames: list[Frame] = []
    for i in range(len(run)):
        texts = _Texts(run.columns, i)
        if not texts.texts("frame.encap_type"):
            continue  # a custom block of pcapng: tshark numbers it as a frame, but it is no packet
        layers = run.columns["frame.protocols"][i].split(":")
        if not inner:
            transports = [j for j, layer in enumerate(layers) if layer in tshark.TRANSPORTS]
            layers = layers[: transports[0] + 1] if transports else layers
        frame = Frame(
            number=len(frames) + 1,
            wire_bytes=int(run.columns["frame.len"][i]),
            captured_bytes=int(run.columns["frame.cap_len"][i]),
            ts_ns=_epoch_ns(run.columns["frame.time_epoch"][i]),
            layers=layers,
        )
        _fill_row(frame, texts, -1 if inner else 0)
        frames.append(frame)
    return frames


def _fill_row(frame: Frame, texts: _Texts, nth_transport: int) -> None:
    """The row of the innermost IP header that is whole, and of what follows it."""
    if "ip" not in frame.layers and "ipv6" not in frame.layers:
        return
    whole = {
        layer: min(len(texts.texts(name)) for name in fields)
        for layer, fields in (("ip", _IPV4), ("ipv6", _IPV6))
        if layer in frame.layers
    }
    seen = dict.fromkeys(whole, 0)
    at = -1
    for j, layer in enumerate(frame.layers):
        if layer in seen:
            if seen[layer] < whole[layer]:
                at = j
            seen[layer] += 1
    if at < 0:
        return
    layer = frame.layers[at]
    nth = frame.layers[:at].count(layer)
    fields = _IPV4 if layer == "ip" else _IPV6
    src, dst = (texts.texts(name)[nth] for name in fields[:2])
    protocol, ttl, dscp, ecn = (texts.numbers(name)[nth] for name in fields[2:])
    if layer == "ip":
        frame.ip_header_bytes = texts.number("ip.hdr_len", nth) or 0
        frame.ip_bytes = texts.number("ip.len", nth) or 0
        frame.fragment = bool(texts.number("ip.flags.mf", nth))
    else:
        frame.ip_header_bytes = 40
        frame.ip_bytes = 40 + (texts.number("ipv6.plen", nth) or 0)
        frame.fragment = any(texts.numbers("ipv6.fraghdr.more"))
    outer = frame.layers[:at].count("ip")
    frame.inside_fragment = outer > 0 and any(texts.numbers("ip.flags.mf")[:outer])
    extensions = [name for name in frame.layers[at:] if name in _NEXT_HEADER]
    if extensions:
        number = texts.number(_NEXT_HEADER[extensions[-1]], -1)
        protocol = protocol if number is None else number
    row: dict[str, Any] = {
        "version": 4 if layer == "ip" else 6,
        "src": _address(src),
        "dst": _address(dst),
        "protocol": protocol,
        "ttl": ttl,
        "dscp": dscp,
        "ecn": ecn,
        **dict.fromkeys(["sport", "dport", "seq", "ack", "tcp_flags", "window"], 0),
        "timestamps": None,
        "sacks": [],
    }
    transport = next((name for name in frame.layers[at:] if name in tshark.TRANSPORTS), None)
    frame.transport = transport
    if transport == "tcp":
        row.update({column: texts.number(name, nth_transport) for column, name in _TCP.items()})
        tsval, tsecr = (texts.number(name, -1) for name in _TIMESTAMPS)
        row["timestamps"] = None if tsval is None or tsecr is None else (tsval, tsecr)
        if texts.texts(_SACK[0]) or texts.texts(_SACK[1]):
            row["sacks"] = sorted(zip(*(texts.numbers(name) for name in _SACK), strict=True))
        if row["tcp_flags"] is not None and row["tcp_flags"] & 2:
            mss, scale = (texts.number(name, -1) for name in _SYN[:2])
            frame.syn_options = (mss or 0, 255 if scale is None else scale, bool(texts.texts(_SYN[2])))
    elif transport is not None:
        row["sport"], row["dport"] = (texts.number(name, nth_transport) for name in _PORTS[transport])
        if transport.startswith("udp"):
            length = texts.number("udp.length", nth_transport)
            row["payload_bytes"] = None if length is None else length - 8
    elif not extensions:
        row["payload_bytes"] = frame.ip_bytes - frame.ip_header_bytes
    frame.row = row


# ---- What we say -----------------------------------------------------------------------------------------------------


def frames_by_us(cap: Capture) -> dict[int, dict[str, Any]]:
    """The rows of the packets table by frame number, with the names :func:`frames_by_tshark` uses."""
    keys, columns = cap.keys, cap.columns
    of = np.searchsorted(keys.flow_id, columns["flow_id"])
    assert (keys.flow_id[of] == columns["flow_id"]).all()
    assert len(np.unique(columns["frame"])) == len(cap)
    forward = columns["direction"] == 0
    src, dst = np.array([*keys.src_text(), ""], object)[of], np.array([*keys.dst_text(), ""], object)[of]
    sport, dport = keys.sport[of], keys.dport[of]
    wide = {
        "version": keys.ip_version[of],
        "protocol": keys.protocol[of],
        "src": np.where(forward, src, dst),
        "dst": np.where(forward, dst, src),
        "sport": np.where(forward, sport, dport),
        "dport": np.where(forward, dport, sport),
        **columns,
    }
    names = list(wide)
    rows = [
        dict(zip(names, values, strict=True))
        for values in zip(*(wide[name].tolist() for name in names), strict=True)
    ]
    for row in rows:
        row["sacks"] = []
        row["timestamps"] = (row["tsval"], row["tsecr"]) if row["has_ts"] else None
        assert row["has_ts"] or (row["tsval"], row["tsecr"]) == (0, 0)
    for packet, left, right in cap.sacks.itertuples(index=False):
        rows[packet]["sacks"] = sorted([*rows[packet]["sacks"], (left, right)])
    return {row["frame"]: row for row in rows}


def read_quietly(source: Any, **options: Any) -> tuple[Capture | None, list[str]]:
    """The capture (None: refused) and what was said about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            cap = cct.read_capture(source, frame_numbers=True, **options)
        except CaptureFormatError as err:
            return None, [str(err)]
    notes = [str(w.message) for w in caught if issubclass(w.category, TruncatedCaptureWarning)]
    assert cap.meta.truncated == bool(notes)
    return cap, notes


# ---- Where they differ -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    file: str
    column: str  # of the packets table; or "row" (one has an IP header, the other none), "frames", "status"
    frame: Frame | None
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        where = "" if self.frame is None else f" frame {self.frame.number} ({':'.join(self.frame.layers)})"
        return f"{self.file}{where}: {self.column}: here {self.ours}, tshark {self.theirs}"


def differences(file: str, run: tshark.TsharkRun, inner: bool = False) -> Iterator[Difference]:
    cap, notes = read_quietly(CAPTURES / file, tunnel="inner" if inner else "outer")
    theirs = frames_by_tshark(run, inner)
    refused = run.status != 0 and not theirs
    if (cap is None) != refused or bool(notes) != bool(run.status):
        yield Difference(file, "status", None, notes, (run.status, run.complaint, len(theirs)))
    if cap is None:
        return
    totals = (cap.meta.frames, cap.meta.wire_bytes, cap.meta.captured_bytes)
    expected = (len(theirs), sum(f.wire_bytes for f in theirs), sum(f.captured_bytes for f in theirs))
    if totals != expected:
        yield Difference(file, "frames", None, totals, expected)
    ours = frames_by_us(cap)
    for frame in theirs:
        row = ours.get(frame.number)
        if row is None or frame.row is None:
            if row is not frame.row:
                yield Difference(file, "row", frame, row is not None, frame.row is not None)
            continue
        expected_row = {**frame.row, "ts_ns": frame.ts_ns, "wire_bytes": frame.wire_bytes}
        for column, value in expected_row.items():
            if row[column] != value:
                yield Difference(file, column, frame, row[column], value)
    yield from _syn_differences(file, cap, ours, theirs)


def _syn_differences(
    file: str, cap: Capture, ours: dict[int, dict[str, Any]], theirs: list[Frame]
) -> Iterator[Difference]:
    """The options of the last SYN of each flow and direction."""
    last: dict[tuple[int, int], Frame] = {}
    for frame in theirs:
        if frame.syn_options is not None and frame.number in ours:
            row = ours[frame.number]
            last[row["flow_id"], row["direction"]] = frame
    keys = cap.keys
    for (flow_id, way), frame in last.items():
        i = int(np.searchsorted(keys.flow_id, flow_id))
        found = (int(keys.mss[i, way]), int(keys.window_scale[i, way]), bool(keys.sack_permitted[i, way]))
        if found != frame.syn_options:
            yield Difference(file, "syn_options", frame, found, frame.syn_options)


# ---- Why they differ -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """`columns` of the frames for which `applies` may differ."""

    why: str
    columns: str
    applies: Callable[[Difference, Frame], bool]


_TCP_COLUMNS = "sport dport seq ack tcp_flags payload_bytes window timestamps"
_BYTES = {"eth": 14, "ethertype": 0, "vlan": 4, "sll": 16, "null": 4, "raw": 0, "mpls": 4, "ip": 0, "ipv6": 0}


def _ip_bytes_there(frame: Frame) -> int | None:
    """From the IP header to where the packet ends by its own and the frame's length; None: hard to tell."""
    below = frame.layers[: next(i for i, layer in enumerate(frame.layers) if layer in ("ip", "ipv6"))]
    if any(layer not in _BYTES for layer in below) or len(set(frame.layers) & {"ip", "ipv6"}) != 1:
        return None
    return min(frame.ip_bytes, frame.wire_bytes - sum(_BYTES[layer] for layer in below))


def _clipped(d: Difference, frame: Frame, header_bytes: int) -> bool:
    """The payload here ends where the IP packet ends."""
    there = _ip_bytes_there(frame)
    if there is None or any(
        layer in _NEXT_HEADER for layer in frame.layers
    ):  # the header's place is not known
        return d.theirs is None or d.ours < d.theirs
    return d.ours == max(there - frame.ip_header_bytes - header_bytes, 0)


NOT_DECODED = ["arcnet", "erf", "fr", "ipnet", "ipoib", "juniper", "nflog", "pktap", "user_dlt"]

RULES = [
    Rule(
        "a link type that is not decoded",
        "row",
        lambda d, f: f.layers[0] in NOT_DECODED and not d.ours,
    ),
    Rule("MACsec is not walked through", "row", lambda d, f: "macsec" in f.layers and not d.ours),
    Rule(
        "simple packet blocks have no time; here they have the one of the packet before",
        "ts_ns",
        lambda d, f: d.theirs is None,
    ),
    Rule(
        "a first fragment of UDP: the length in its header is that of the whole datagram, here it is this fragment's",
        "payload_bytes",
        lambda d, f: f.transport == "udp" and f.fragment and _clipped(d, f, 8),
    ),
    Rule(
        "the UDP length reaches beyond the IP packet, or the IP length beyond the frame: clipped here",
        "payload_bytes",
        lambda d, f: (
            f.transport == "udp" and d.theirs is not None and d.ours < d.theirs and _clipped(d, f, 8)
        ),
    ),
    Rule(
        "a UDP length of 0 stands for a length that does not fit (RFC 2675, BIG TCP), or is damage: to the end of IP",
        "payload_bytes",
        lambda d, f: f.transport == "udp" and d.theirs == -8 and d.ours > 0,
    ),
    Rule(
        "an IP length of 0 means to the end of the frame, for protocols that tshark does not decode too",
        "payload_bytes",
        lambda d, f: f.transport is None and f.ip_bytes in (0, 40) and d.ours > 0,
    ),
    Rule(
        "the IP length reaches beyond the frame: clipped here",
        "payload_bytes",
        lambda d, f: f.transport is None and d.ours < d.theirs and _clipped(d, f, 0),
    ),
    Rule(
        "no IPv6 payload length (BIG TCP) and no jumbo payload option: tshark decodes no transport",
        f"{_TCP_COLUMNS} syn_options",
        lambda d, f: f.ip_bytes == 40 and "ipv6" in f.layers and d.theirs is None and d.ours is not None,
    ),
    Rule(
        "a TCP header of fewer than 20 bytes, in a tiny fragment or cut: only its ports are taken",
        "sport dport seq ack tcp_flags window payload_bytes",
        lambda d, f: f.transport == "tcp" and f.row["payload_bytes"] is None and d.ours == 0,
    ),
    Rule(
        "tshark has no segment length for a fragment",
        "payload_bytes",
        lambda d, f: f.transport == "tcp" and f.fragment and d.theirs is None and d.ours > 0,
    ),
    Rule(
        "tshark ends what is inside a first fragment with the fragment, unless it puts fragments together",
        "payload_bytes",
        lambda d, f: f.inside_fragment and d.theirs < d.ours,
    ),
]

#: What holds in single files: their columns, and why.
FILES: dict[str, tuple[str, str]] = {}


def _in_files(columns: str, why: str, names: str) -> None:
    for name in names.split():
        FILES[f"torture/{name}"] = (columns, why)


_in_files(
    "status",
    "ERF is not read: refused in one line",
    """
    LibtraceTeam__libtrace/test__traces__100_packets.erf
    LibtraceTeam__libtrace/test__traces__5_packets.erf
    LibtraceTeam__libtrace/test__traces__provenance.erf
    cisco-system-traffic-generator__trex-core/scripts__exp__dns_rxcheck.erf
    cisco-system-traffic-generator__trex-core/scripts__exp__dns_wlen-0-ex.erf
    cisco-system-traffic-generator__trex-core/scripts__exp__sip_short1_v6-0-ex.erf
    cisco-system-traffic-generator__trex-core/scripts__exp__stl_single_stream_mac11-0-ex.erf
    ../rtt/blitz__tcptrace/input__atm.erf.gz
""",
)
_in_files(
    "status frames",
    "a link type tshark does not know, so it refuses the file; here its frames are counted",
    """
    the-tcpdump-group__libpcap/tests__filter__dsa.pcap
    the-tcpdump-group__tcpdump/tests__dsa-high-vid.pcap
    the-tcpdump-group__tcpdump/tests__edsa-high-vid.pcap
    the-tcpdump-group__tcpdump/tests__juniper_es_oobr.pcap
    the-tcpdump-group__tcpdump/tests__juniper_monitor_invalid_cookie_length.pcap
    the-tcpdump-group__tcpdump/tests__vtp_asan-2.pcap
""",
)
_in_files(
    "frames",
    "tshark takes the pseudo-header of ATM off the lengths",
    """
    the-tcpdump-group__tcpdump/tests__atm-heapoverflow.pcap
""",
)
_in_files(
    "ts_ns",
    "microseconds with the top bit set: signed here, to tshark a time in the year 586524",
    """
    fpcap__fpcap/tracefiles__pcapng-example.pcapng
    seladb__PcapPlusPlus/Tests__Pcap++Test__PcapExamples__file_heuristics__pcapng-example.pcapng.zst
""",
)
_in_files(
    "ts_ns",
    "a fraction of 2**31 ns: added here, printed by tshark as a negative one",
    """
    the-tcpdump-group__tcpdump/tests__timestamp_invalid_nano.pcap
""",
)
_in_files(
    "dst",
    "a source route: tshark gives its last hop, here it is the header's destination",
    """
    kaitoy__pcap4j/pcap4j-packettest__src__test__resources__IpV4PacketTest.pcap
""",
)
_in_files(
    "row",
    "a NULL header with an EtherType in it, as some old systems write",
    """
    seladb__PcapPlusPlus/Tests__Pcap++Test__PcapExamples__null_loopback.pcap
""",
)
_in_files(
    "row",
    "a total length below the header's: to tshark not even addresses, here a row without a transport",
    """
    seladb__PcapPlusPlus/Tests__Packet++Test__PacketExamples__ipv4-malformed.pcap
""",
)
_in_files(
    "row",
    "20 of 60 header bytes captured: tshark stops before the destination, which is there",
    """
    zeek__zeek/testing__btest__Traces__trunc__ipv4-internally-truncated-header.pcap
""",
)
_in_files(
    _TCP_COLUMNS,
    "a malformed IP option: tshark stops, here options are not looked at",
    """
    OISF__suricata-verify/tests__firewall__tcp-session-decode-malformed-ipv4__input.pcap
""",
)
_in_files(
    "ack tcp_flags window payload_bytes",
    "a data offset below 5: tshark stops, here the rest of the header is taken",
    """
    ntop__nDPI/tests__cfgs__default__pcap__kerberos_fuzz.pcapng
""",
)
_in_files(
    "protocol",
    "tshark finds an extension header malformed and stops, here its next header is taken",
    """
    the-tcpdump-group__tcpdump/tests__ipv6_frag6_negative_len.pcap
    the-tcpdump-group__tcpdump/tests__ipv6_missing_jumbo_payload_option.pcap
""",
)
_in_files(
    "sport dport",
    "tshark finds a destination option malformed and stops, here options are not looked at",
    """
    zeek__zeek/testing__btest__Traces__ipv6-mobility-dst-opts.pcap
""",
)
_in_files(
    "protocol",
    "next header 62 was Mobile IPv6 in a draft, and tshark reads it so; it is assigned to CFTP",
    """
    the-tcpdump-group__tcpdump/tests__mobility_opt_asan.pcap
    the-tcpdump-group__tcpdump/tests__mobility_opt_asan_2.pcap
    the-tcpdump-group__tcpdump/tests__mobility_opt_asan_4.pcap
    the-tcpdump-group__tcpdump/tests__mobility_opt_asan_5.pcap
    the-tcpdump-group__tcpdump/tests__mobility_opt_asan_8.pcap
""",
)
_in_files(
    f"src dst protocol ttl {_TCP_COLUMNS}",
    "an A-MSDU of 802.11 is not walked through",
    """
    zeek__zeek/testing__btest__Traces__tunnels__gre-aruba-amsdu.pcap
""",
)
_in_files(
    "payload_bytes",
    "a UDP header cut before its length: here the payload comes from the IP length",
    """
    the-tcpdump-group__tcpdump/tests__udp-length-heapoverflow.pcap
""",
)
FILES = {os.path.normpath(name): rule for name, rule in FILES.items()}


#: Captures in which UDP carries packets; every fourth is quick.
TUNNELS = [
    f"torture/{name}"
    for name in [
        "LibtraceTeam__libtrace/test__traces__vxlan.pcap",
        "OISF__suricata-verify/tests__decode-teredo-01__input.pcap",
        "OISF__suricata-verify/tests__vxlan-decoder-03__vxlan.pcap",
        "ntop__nDPI/tests__cfgs__default__pcap__teredo.pcap",
        "ntop__nDPI/tests__cfgs__default__pcap__vxlan.pcap",
        "the-tcpdump-group__libpcap/tests__filter__geneve.pcap",
        "the-tcpdump-group__tcpdump/tests__geneve-gcp.pcap",
        "the-tcpdump-group__tcpdump/tests__gso-ipv4-geneve-ipv4.pcap",
        "the-tcpdump-group__tcpdump/tests__gso-ipv4-geneve-ipv6.pcap",
        "the-tcpdump-group__tcpdump/tests__gso-ipv4-vxlan-ipv4.pcap",
        "the-tcpdump-group__tcpdump/tests__gso-ipv6-geneve-ipv6.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__geneve-arp.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__geneve-inner-tcp-bad-checksum.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__geneve-ipv6.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__geneve-many-options.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__geneve-truncated.pcapng",
        "zeek__zeek/testing__btest__Traces__tunnels__geneve-vxlan-dns-truncated.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__gre-over-udp-4754.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__gtp__gtp10_not_0xff.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__gtp__gtp3_false_gtp.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__gtp__gtp4_udp_2152_inside.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__gtp__gtp8_teredo.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__gtp__gtp9_unknown_or_too_short_payload.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__teredo_bubble_with_payload.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__vxlan-encapsulated-igmp-v2.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__vxlan-inner-tcp-bad-checksum.pcap",
        "zeek__zeek/testing__btest__Traces__tunnels__vxlan-triple-v2.pcap",
    ]
]
#: BIG TCP in tunnels: IP and UDP without lengths, at which tshark and tcpdump stop. The segment inside, by hand.
BIG_TCP = {
    "ipv4-geneve-ipv4": ("192.168.1.2", 35663, "192.168.1.1", 38005, 80000),
    "ipv4-vxlan-ipv6": ("fd00::2", 33673, "fd00::1", 36425, 79924),
    "ipv6-geneve-ipv4": ("192.168.1.2", 43959, "192.168.1.1", 39887, 80000),
    "ipv6-geneve-ipv6": ("fd00::1", 38339, "fd00::2", 43997, 80000),
    "ipv6-vxlan-ipv4": ("192.168.1.1", 41873, "192.168.1.2", 38131, 80000),
    "ipv6-vxlan-ipv6": ("fd00::1", 40007, "fd00::2", 40607, 80000),
}


def explanation(d: Difference) -> str | None:
    """Why a difference may be; None: it must not."""
    columns, why = FILES.get(d.file, ("", ""))
    if d.column in columns.split():
        return f"{d.file}: {why}"
    if d.frame is None:
        return None
    for rule in RULES:
        if d.column in rule.columns.split() and rule.applies(d, d.frame):
            return rule.why
    return None


# ---- The tests -------------------------------------------------------------------------------------------------------

explained: Counter[str] = Counter()
compared: set[str] = set()


def can_be_joined(name: str) -> bool:
    """Whether tshark says the same of a capture when others come before it."""
    row = manifest()[name]
    # Not those with an odd header, block or time, or cut short, which are to be read as they are.
    is_plain = row["format"] == "pcap-LE" and not row.get("capinfos") and "trunc-" not in row["note"]
    return is_plain and "packets" in row and (CAPTURES / name).stat().st_size < 300_000


@pytest.fixture(scope="module")
def tshark_runs(request: pytest.FixtureRequest) -> Iterator[Callable[[str], tshark.TsharkRun]]:
    """What tshark says of a capture of this run's tests, each asked for once.

    It starts twice at a time, and once for a hundred small captures, since its start takes longer than they do.
    """
    wanted = [
        item.callspec.params["capture"]
        for item in request.session.items
        if getattr(item, "originalname", None) == test_every_frame_is_as_tshark_reads_it.__name__
    ]
    small = [name for name in wanted if can_be_joined(name)]
    runs: dict[str, tuple[Future[list[tshark.TsharkRun]], int]] = {}
    with ThreadPoolExecutor(2) as pool:
        for first in range(0, len(small), 100):
            some = small[first : first + 100]
            packets = {CAPTURES / name: int(manifest()[name]["packets"]) for name in some}
            found = pool.submit(tshark.run_tshark_on_many, packets, FIELDS)
            runs |= {name: (found, i) for i, name in enumerate(some)}
        for name in wanted:
            if name not in runs:
                runs[name] = pool.submit(lambda path: [tshark.run_tshark(path, FIELDS)], CAPTURES / name), 0

        def run_of(name: str) -> tshark.TsharkRun:
            found, i = runs.pop(name)
            return found.result()[i]

        yield run_of
        for found, _ in runs.values():
            found.cancel()


def unexplained(found: Iterator[Difference]) -> list[str]:
    left = []
    for d in found:
        why = explanation(d)
        if why is None:
            left.append(str(d))
        else:
            explained[why] += 1
    return left


@needs_tshark
@pytest.mark.tshark
@pytest.mark.parametrize("capture", all_captures(of_each_link_type))
def test_every_frame_is_as_tshark_reads_it(
    capture: str, tshark_runs: Callable[[str], tshark.TsharkRun]
) -> None:
    left = unexplained(differences(capture, tshark_runs(capture)))
    assert not left, "\n".join(left[:20])
    compared.add(capture)


@needs_tshark
@pytest.mark.tshark
@pytest.mark.parametrize("capture", all_captures(lambda: TUNNELS[::4], TUNNELS))
def test_packets_inside_udp_are_as_tshark_reads_them(capture: str) -> None:
    run = tshark.run_tshark(CAPTURES / capture, FIELDS, extra_layers=tshark.INNER_LAYERS)
    left = unexplained(differences(capture, run, inner=True))
    assert not left, "\n".join(left[:20])


@pytest.mark.parametrize("name", BIG_TCP)
def test_big_tcp_in_tunnels(name: str) -> None:
    path = CAPTURES / f"torture/the-tcpdump-group__tcpdump/tests__bigtcp-{name}.pcap"
    cap = cct.read_capture(path, tunnel="inner")
    keys = cap.keys
    (payload,) = cap.columns["payload_bytes"]
    found = (*keys.src_text(), int(keys.sport[0]), *keys.dst_text(), int(keys.dport[0]), int(payload))
    assert found == BIG_TCP[name]


@pytest.mark.slow
@pytest.mark.tshark
def test_every_rule_explains_something() -> None:
    """An explanation that nothing needs any more would only hide the next mistake."""
    if compared != set(manifest()):
        pytest.skip("not all captures were compared in this run")
    reasons = {rule.why for rule in RULES} | {f"{name}: {why}" for name, (_, why) in FILES.items()}
    assert reasons == set(explained)


def _plain(path: Path) -> bytes:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def _through_a_pipe(data: bytes) -> Any:
    reading, writing = os.pipe()

    def feed() -> None:
        with suppress(BrokenPipeError), open(writing, "wb") as file:
            file.write(data)

    threading.Thread(target=feed, daemon=True).start()
    return open(reading, "rb", buffering=0)


def assert_same_capture(a: Capture, b: Capture) -> None:
    assert a.columns.keys() == b.columns.keys()
    for name, column in a.columns.items():
        np.testing.assert_array_equal(column, b.columns[name], err_msg=name)
    for f in fields(FlowKeys):
        np.testing.assert_array_equal(getattr(a.keys, f.name), getattr(b.keys, f.name), err_msg=f.name)
    assert a.sacks.equals(b.sacks)


WAYS: dict[str, Callable[[bytes], Any]] = {
    "bytes": io.BytesIO,
    "gz": lambda data: io.BytesIO(gzip.compress(data, 1)),
    "gz members": lambda data: io.BytesIO(
        b"".join(gzip.compress(data[i : i + 50_000], 1) for i in range(0, len(data), 50_000)) + bytes(512)
    ),
    "xz": lambda data: io.BytesIO(lzma.compress(data, preset=0)),
    "zstd": lambda data: io.BytesIO(zstandard.ZstdCompressor(1).compress(data)),
    "pipe": _through_a_pipe,
}


@pytest.mark.parametrize("capture", all_captures())
def test_it_does_not_matter_how_the_bytes_arrive(capture: str) -> None:
    data = _plain(CAPTURES / capture)
    cap, notes = read_quietly(CAPTURES / capture)
    for way, source_of in WAYS.items():
        with source_of(data) as source:
            again, same_notes = read_quietly(source)
            assert not source.closed, "the caller's file object is the caller's to close"
        if cap is None:
            assert again is None, way
            continue
        assert again is not None, way
        assert_same_capture(cap, again)
        here, there = asdict(cap.meta), asdict(again.meta)
        for name in ("path", "compression"):
            del here[name], there[name]
        assert here == there, way
        assert [text.split(": ", 1)[1] for text in notes] == [
            text.split(": ", 1)[1] for text in same_notes
        ], way


@pytest.mark.parametrize("capture", all_captures())
def test_parts_are_the_whole(capture: str) -> None:
    cap, notes = read_quietly(CAPTURES / capture)
    if cap is None:
        with pytest.raises(CaptureFormatError):
            next(cct.iter_capture(CAPTURES / capture))
        return
    sizes = {max(len(cap) // 7, 1), max(len(cap) - 1, 1), len(cap) + 1}
    for size in sizes | ({1, 2} if len(cap) <= 200 else {1009}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            parts = list(cct.iter_capture(CAPTURES / capture, size, frame_numbers=True))
        assert [str(w.message) for w in caught] == notes
        assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
        joined = {name: np.concatenate([part.columns[name] for part in parts]) for name in cap.columns}
        for name, column in cap.columns.items():
            np.testing.assert_array_equal(column, joined[name], err_msg=f"{name}, parts of {size}")
        latest: dict[int, tuple[FlowKeys, int]] = {}  # a flow in several parts: the last knows most
        for part in parts:
            latest.update((flow_id, (part.keys, i)) for i, flow_id in enumerate(part.keys.flow_id.tolist()))
        assert sorted(latest) == cap.keys.flow_id.tolist()
        for f in fields(FlowKeys):
            joined_keys = [
                getattr(keys, f.name)[i] for keys, i in (latest[flow_id] for flow_id in sorted(latest))
            ]
            np.testing.assert_array_equal(
                getattr(cap.keys, f.name), joined_keys or getattr(cap.keys, f.name)[:0]
            )
        before = np.cumsum([0, *(len(part) for part in parts)])
        sacks = [
            part.sacks.assign(packet=part.sacks.packet + n) for part, n in zip(parts, before, strict=False)
        ]
        assert cap.sacks.equals(pd.concat(sacks, ignore_index=True))
        for name in ("frames", "packets", "wire_bytes", "captured_bytes"):
            assert sum(getattr(part.meta, name) for part in parts) == getattr(cap.meta, name), name
        for name, count in cap.meta.counts.items():
            assert sum(part.meta.counts[name] for part in parts) == count, name


@pytest.mark.parametrize("capture", all_captures())
def test_damaged_captures_are_as_the_naive_twin_reads_them(capture: str) -> None:
    """Cut, bytes flipped, words replaced: nothing but what is there, and all that is before the damage."""
    data = _plain(CAPTURES / capture)[:60_000]
    random = Random(capture)
    for _ in range(4):
        damaged = bytearray(data[: random.randrange(len(data) + 1)] if random.random() < 0.3 else data)
        for _ in range(random.randrange(4) if damaged else 0):
            at = random.choice([random.randrange(len(damaged)), random.randrange(min(len(damaged), 200))])
            damaged[at] ^= 1 << random.randrange(8)
            word = random.randrange(len(damaged)) & ~3
            damaged[word : word + 4] = random.choice(
                [bytes(4), b"\xff" * 4, bytes(3) + b"\x0d", b"\xff\xff\0\0"]
            )
        try:
            expected = naive_capture.read(bytes(damaged))
        except naive_capture.NotACapture:
            assert read_quietly(io.BytesIO(damaged))[0] is None
            continue
        cap, notes = read_quietly(io.BytesIO(damaged))
        assert cap is not None
        assert bool(notes) == expected.file.damaged
        assert cap.meta.frames == len(expected.file.frames)
        assert cap.meta.counts == {name: expected.counts[name] for name in cap.meta.counts}
        ours = frames_by_us(cap)
        assert list(ours) == expected.frame_numbers
        for number, (frame, row, flow_id, direction) in zip(
            expected.frame_numbers, expected.rows, strict=True
        ):
            found = ours[number]
            assert (found["ts_ns"], found["wire_bytes"]) == (frame.ts_ns, frame.wire_bytes)
            assert (found["flow_id"], found["direction"]) == (flow_id, direction)
            values = {**vars(row), "sacks": sorted(row.sacks)}
            assert values == {**values, **{name: found[name] for name in values if name in found}}


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_nothing_is_read_outside_the_bytes(rounds: int) -> None:
    """The representative captures, whole and damaged, against a page that must not be read."""
    paths = [str(CAPTURES / name) for name in sorted(representative()) if not name.endswith((".gz", ".zst"))]
    script = Path(__file__).with_name("guarded.py")
    command = [sys.executable, str(script), "files", "1", str(rounds), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["redirected", "piped"])
def test_standard_input(how: str) -> None:
    path = CAPTURES / "semantics" / "cumack.pcap"
    code = (
        "from cctoolkit import *; c = read_capture('-'); print(c.meta.path, len(c), c.columns['seq'].sum())"
    )
    cap = cct.read_capture(path)
    with open(path, "rb") as file:
        done = subprocess.run(
            [sys.executable, "-c", code],
            **({"stdin": file} if how == "redirected" else {"input": file.read()}),
            capture_output=True,
            check=True,
        )
    assert done.stdout.decode().split() == ["<stdin>", str(len(cap)), str(cap.columns["seq"].sum())]
