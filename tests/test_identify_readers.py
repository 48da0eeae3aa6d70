"""Readers for other people's data: tshark's exports beside the capture itself, real iperf3, tables of labels."""

from __future__ import annotations

import doctest
import functools
import gzip
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from tshark import ask

sys.path.insert(0, str(Path(__file__).parent))
import made_captures as made

import cctoolkit as cct
from cctoolkit import schema
from cctoolkit.errors import ParameterError, SchemaError, TruncatedCaptureWarning
from cctoolkit.identify.readers import (
    cca_name,
    label_flows,
    labels_from_names,
    names as reader_names,
    read_iperf3,
    read_labels,
    read_tshark_fields,
    settings_from_name,
)
from cctoolkit.identify.readers.labels import ALIASES, KNOWN

CAPTURES = Path(__file__).parents[2] / "shared" / "captures" / "cc"
TRACES = Path(__file__).parents[1] / "traces"
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not on PATH")
needs_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures in {CAPTURES}")
needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not on PATH")

SYN, ACK = 2, 16


# ---------------------------------------------------------------- captures to export


@functools.cache
def simulated() -> tuple[cct.Capture, cct.Capture]:
    """Both taps of two flows through a small queue, with losses; one flow's numbers go past 2**32."""
    run = cct.simulate(
        cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=20),
            flows=[cct.Flow("cubic", rtt_ms=20), cct.Flow("bbr", rtt_ms=30, start_s=0.01)],
            duration_s=0.8,
            seed=3,
        )
    )
    for tap in run.ingress, run.egress:
        first = tap.columns["flow_id"] == 0
        for way, name in ((0, "seq"), (1, "ack")):
            tap.columns[name][first & (tap.columns["direction"] == way)] += np.uint32(2**32 - 200_000)
    return run.ingress, run.egress


@pytest.fixture(scope="module")
def pcaps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pcaps")
    paths = folder / "in.pcap", folder / "out.pcap"
    for tap, path in zip(simulated(), paths, strict=True):
        tap.to_pcap(path)
    return paths


def oddities() -> bytes:
    """IPv6, UDP, an ICMP error that quotes a TCP segment, a frame without IP, a tiny fragment."""
    segment = made.ipv4(6, made.tcp(4000, 80, 7, 9, ACK, 5, payload=b"xyz"), tos=0xB9, ttl=3)
    reply = made.ipv4(6, made.tcp(80, 4000, 9, 10, ACK, 6), src=b"\x0a\0\0\2", dst=b"\x0a\0\0\1")
    stamps = struct.pack(">BBBBII", 1, 1, 8, 10, 4_000_000_000, 17)
    frames = [
        (0x0800, segment),
        (0x0800, made.ipv4(1, b"\3\1" + bytes(6) + segment[:28], src=b"\x0a\0\0\3", dst=b"\x0a\0\0\1")),
        (0x0806, bytes(28)),
        (0x86DD, made.ipv6(6, made.tcp(5, 6, 2**32 - 1, 0, SYN, tcp_options=stamps), traffic_class=2)),
        (0x86DD, made.ipv6(6, made.tcp(6, 5, 0, 0, SYN | ACK), bytes(15) + b"\2", bytes(15) + b"\1")),
        (0x0800, made.ipv4(17, made.udp(53, 53, b"question"), ttl=200)),
        (0x0800, reply),
    ]
    return made.pcap(
        (1_700_000_000_123_456_789 + 1001 * i, data := made.ethernet(kind, body), len(data))
        for i, (kind, body) in enumerate(frames)
    )  # fmt: skip


# ---------------------------------------------------------------- tshark says it

ALL = [
    "frame.time_epoch",
    "frame.len",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "ip.proto",
    "ipv6.nxt",
    "ipv6.hopopts.nxt",
    "ip.dsfield",
    "ipv6.tclass",
    "ip.ttl",
    "ipv6.hlim",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.len",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
]
#: What Nebby's pcap2csv.sh asks for (NUS-SNL/Nebby, analysis/).
NEBBY = [
    "_ws.col.Time",
    "frame.time_relative",
    "tcp.time_relative",
    "frame.number",
    "frame.len",
    "ip.src",
    "tcp.srcport",
    "ip.dst",
    "tcp.dstport",
    "tcp.len",
    "tcp.seq",
    "tcp.ack",
]
NEBBY_OPTIONS = [
    "-o",
    'gui.column.format:"Time","%Aut"',
    "-E",
    "header=y",
    "-E",
    "separator=,",
    "-E",
    "quote=d",
    "-E",
    "occurrence=f",
]


def export(pcap, path, fields, *options):
    wanted = [word for field in fields for word in ("-e", field)]
    path.write_text(ask(pcap, "-T", "fields", *options, *wanted))
    return path


def assert_same(mine: cct.Capture, theirs: cct.Capture, names=tuple(schema.PACKETS)):
    for name in names:
        np.testing.assert_array_equal(mine.columns[name], theirs.columns[name], err_msg=name)
    for name in ("flow_id", "ip_version", "protocol", "sport", "dport", "src", "dst", "saw_syn"):
        np.testing.assert_array_equal(getattr(mine.keys, name), getattr(theirs.keys, name), err_msg=name)


@pytest.mark.slow
@pytest.mark.tshark
@needs_tshark
@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ("-E header=y", None),
        ("-E header=y -E separator=; -E quote=s -E bom=y", None),
        ("-E separator=| -E quote=d -E occurrence=f", ALL),
    ],
    ids=["tabs", "semicolons", "no heading"],
)
def test_an_export_is_its_capture(pcaps, tmp_path, options, columns):
    found = read_tshark_fields(export(pcaps[0], tmp_path / "x", ALL, *options.split()), columns)
    direct = cct.read_capture(pcaps[0])
    assert_same(found, direct)
    assert found.meta.first_ts_ns == direct.meta.first_ts_ns and found.meta.counts == direct.meta.counts
    pd.testing.assert_frame_equal(cct.compute_slots(found), cct.compute_slots(direct))
    columns = [c for c in schema.FLOWS if not c.startswith(("mss", "window_scale", "sack"))]
    pd.testing.assert_frame_equal(found.flows[columns], direct.flows[columns])


@pytest.mark.tshark
@needs_tshark
def test_odd_frames(tmp_path):
    pcap = tmp_path / "odd.pcap"
    pcap.write_bytes(oddities())
    found = read_tshark_fields(export(pcap, tmp_path / "x.tsv", ALL, "-E", "header=y"))
    direct = cct.read_capture(pcap)
    assert_same(found, direct, [name for name in schema.PACKETS if name != "payload_bytes"])
    udp_or_tcp = ~np.isin(direct.keys.protocol[direct.columns["flow_id"]], [1, 58])
    np.testing.assert_array_equal(
        found.columns["payload_bytes"][udp_or_tcp], direct.columns["payload_bytes"][udp_or_tcp]
    )
    assert "1 of 7 frames have neither addresses nor TCP ports" in found.meta.notes[-1]


@pytest.mark.tshark
@needs_tshark
def test_two_taps(pcaps, tmp_path):
    taps = [read_tshark_fields(export(p, tmp_path / p.name, ALL, "-E", "header=y")) for p in pcaps]
    expected = cct.compute_slots(*map(cct.read_capture, pcaps))
    assert expected.cbiq_bytes.max() > 20_000  # the queue was seen
    pd.testing.assert_frame_equal(cct.compute_slots(*taps), expected)


#: Nebby's exports have relative sequence numbers, and neither flags nor ECN.
WITHOUT_NUMBERS = [
    c
    for c in schema.SLOTS
    if c
    not in ("flow_id", "slot", "in_seq", "max_source_gap", "in_ce_packets", "out_ce_packets", "ecn_echoes")
]


def assert_same_slots(found: cct.Capture, direct: cct.Capture):
    """Of the flow with most data; but for its number, the number of the capture's first slot and where seq begins."""
    tables = []
    for capture in found, direct:
        flows = capture.flows
        fid = flows.flow_id[(flows.payload_fwd + flows.payload_rev).idxmax()]
        tables.append(cct.compute_slots(capture, slot_ms=10, flow_ids=int(fid)))
    one, other = tables
    pd.testing.assert_frame_equal(one[WITHOUT_NUMBERS], other[WITHOUT_NUMBERS])
    assert (np.diff(one.slot) == 1).all() and one.bytes_in_flight.notna().any()
    shift = (other.in_seq - one.in_seq).dropna() % 2**32
    assert len(set(shift)) == 1


@pytest.mark.slow
@pytest.mark.tshark
@needs_tshark
@pytest.mark.parametrize("left_out", [(), ("ip.src",), ("ip.dst", "frame.len")], ids=str)
def test_nebbys_columns(pcaps, tmp_path, left_out):
    fields = [name for name in NEBBY if name not in left_out]
    found = read_tshark_fields(export(pcaps[0], tmp_path / "x.csv", fields, *NEBBY_OPTIONS))
    direct = cct.read_capture(pcaps[0])
    assert_same_slots(found, direct)
    assert_same(found, direct, ["flow_id", "direction", "payload_bytes"])
    assert any("relative" in note for note in found.meta.notes)


@pytest.mark.tshark
@needs_tshark
@needs_captures
@pytest.mark.parametrize(
    "name",
    [
        "NUS-SNL__Nebby/scripts__test.pcap",
        "guntas-13__mininet-congestion-control/PCAPs__ND00.pcap",
        pytest.param("heistp__l4s-tests/results__wifi__cubic_dualpi2_wifi.pcap.gz", marks=pytest.mark.slow),
        pytest.param("heistp__l4s-tests/results__wifi__prague_fq_codel_wifi.pcap.gz", marks=pytest.mark.slow),
    ],
)
def test_other_peoples_captures(name, tmp_path):
    direct = cct.read_capture(CAPTURES / name)
    found = read_tshark_fields(export(CAPTURES / name, tmp_path / "all.tsv", ALL, "-E", "header=y"))
    assert_same(found, direct, [name for name in schema.PACKETS if name != "payload_bytes"])  # of ICMP
    pd.testing.assert_frame_equal(cct.compute_slots(found, slot_ms=10), cct.compute_slots(direct, slot_ms=10))
    found = read_tshark_fields(export(CAPTURES / name, tmp_path / "nebby.csv", NEBBY, *NEBBY_OPTIONS))
    assert_same_slots(found, direct)


# ---------------------------------------------------------------- made by hand


@functools.cache
def addresses(capture: cct.Capture) -> list[list[tuple[str, int]]]:
    """Both ends of each flow."""
    keys = capture.keys
    sides = zip(keys.src_text(), keys.sport, keys.dst_text(), keys.dport, strict=True)
    return [[(src, sport), (dst, dport)] for src, sport, dst, dport in sides]


def cell(capture: cct.Capture, name: str, i: int, zero: tuple[int, int]) -> str:
    """What tshark would print, naively; `zero` is what numbers of the flow and way are relative to."""
    c = capture.columns
    flow, way = int(c["flow_id"][i]), int(c["direction"][i])
    ends = addresses(capture)[flow]
    (src, sport), (dst, dport) = ends[::-1] if way else ends
    flags = int(c["tcp_flags"][i])
    seconds, ns = divmod(int(c["ts_ns"][i]), 10**9)
    match name:
        case "frame.time_epoch":
            return f"{seconds}.{ns:09}"
        case "frame.time":
            return f"{pd.Timestamp(seconds, unit='s'):%b %d, %Y %H:%M:%S}.{ns:09} UTC"
        case "frame.time_relative":
            t = int(c["ts_ns"][i] - c["ts_ns"][0])
            return f"{t // 10**9}.{t % 10**9:09}"
        case "frame.number":
            return str(i + 1)
        case "ip.src" | "ip.dst":
            return src if name == "ip.src" else dst
        case "tcp.srcport" | "tcp.dstport":
            return str(sport if name == "tcp.srcport" else dport)
        case "tcp.seq" | "tcp.seq_raw":
            return str((int(c["seq"][i]) - zero[0] * (name == "tcp.seq")) % 2**32)
        case "tcp.ack" | "tcp.ack_raw":
            return str((int(c["ack"][i]) - zero[1] * (name == "tcp.ack")) % 2**32 if flags & ACK else 0)
        case "tcp.len":
            return str(c["payload_bytes"][i])
        case "tcp.flags":
            return f"0x{flags:04x}"
        case "tcp.flags.syn" | "tcp.flags.ack":
            return str(bool(flags & (SYN if name.endswith("syn") else ACK)))
        case "ip.len":
            return str(c["payload_bytes"][i] + 52)
        case "ip.hdr_len":
            return "20"
        case "tcp.hdr_len":
            return "32"
    raise AssertionError(name)


def printed(capture, fields, rows=150, separator="\t", quote="", heading=True) -> str:
    zeros = {}
    out = io.StringIO()
    if heading:
        out.write(separator.join(fields) + "\n")
    for i in range(min(rows, len(capture))):
        flow, way = int(capture.columns["flow_id"][i]), int(capture.columns["direction"][i])
        zeros.setdefault((flow, way), int(capture.columns["seq"][i]))
        zero = zeros[flow, way], zeros.get((flow, 1 - way), 0)
        cells = (cell(capture, name, i, zero) for name in fields)
        out.write(separator.join(quote + c + quote if c else "" for c in cells) + "\n")
    return out.getvalue()


ONE_OF = [
    [("frame.time_epoch",), ("frame.time",)],
    [("tcp.seq", "tcp.ack"), ("tcp.seq_raw", "tcp.ack_raw")],
    [("tcp.len",), ("ip.len", "ip.hdr_len", "tcp.hdr_len")],
    [("tcp.flags",), ("tcp.flags.syn", "tcp.flags.ack")],
    [("ip.src", "ip.dst"), ("ip.src",), ("ip.dst",)],
    [("tcp.srcport", "tcp.dstport")],
    [(), ("frame.number",)],
]


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_layout_gives_the_same_slots(tmp_path_factory, data):
    fields = [name for choices in ONE_OF for name in data.draw(st.sampled_from(choices))]
    fields = data.draw(st.permutations(fields))
    heading = data.draw(st.booleans())
    quote = data.draw(st.sampled_from(["", '"', "'"]))
    commas = "frame.time" in fields  # "Nov 16, 2023 …"
    separator = data.draw(st.sampled_from("\t;|" if commas and not quote else "\t,;|"))
    text = printed(simulated()[0], fields, 150, separator, quote, heading)
    path = tmp_path_factory.mktemp("x") / data.draw(st.sampled_from(["x.csv", "x.csv.gz"]))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    found = read_tshark_fields(path, None if heading else fields)
    whole = simulated()[0].rows(np.arange(len(simulated()[0])) < 150)
    assert_same(found, whole, ["ts_ns", "flow_id", "direction", "payload_bytes"])
    one, other = cct.compute_slots(found), cct.compute_slots(whole)
    columns = [c for c in WITHOUT_NUMBERS if c != "slot"]
    pd.testing.assert_frame_equal(one[columns], other[columns])


def write(tmp_path, text, name="x.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


HEAD = "frame.time_epoch,ip.src,ip.dst,tcp.srcport,tcp.dstport,tcp.seq,tcp.ack,tcp.len\n"
ROW = "1.5,10.0.0.1,10.0.0.2,1000,80,1,1,100\n"


@pytest.mark.parametrize(
    ("name", "cells", "ns"),
    [
        ("frame.time_epoch", ["1700000000.123456789", "1700000000.5", "1700000001"],
         [1700000000123456789, 1700000000500000000, 1700000001000000000]),
        ("frame.time_relative", ["-0.000000001", "0.000000000", "12.000000002"], [-1, 0, 12000000002]),
        ("_ws.col.Time", ["0.000000", "0.180182", "3.940065"], [0, 180182000, 3940065000]),
        ("_ws.col.Time", ["23:59:59.999999", "00:00:00.000001", "00:00:00.000002"],
         [86399999999000, 86400000001000, 86400000002000]),
        ("frame.time", ["Nov  6, 2023 12:52:12.459157001 UTC", "Nov 16, 2023 12:52:12.459157000 UTC",
                        "2023-11-16T12:52:13.000000001Z"],
         [1699275132459157001, 1700139132459157000, 1700139133000000001]),
        ("frame.time", ["Nov 16, 2023 12:52:12.459157000 CET", "Nov 16, 2023 12:52:13.459157000 Pacific Daylight Time"],
         [1700139132459157000, 1700139133459157000]),
        ("_ws.col.Time", ["07:09:19,560206", "07:09:20,000001"], [25759560206000, 25760000001000]),
    ],
    ids=["epoch", "relative", "default column", "past midnight", "dates", "zones", "decimal comma"],
)  # fmt: skip
def test_times(tmp_path, name, cells, ns):
    rows = "".join(f"{text}\t{ROW[4:].replace(',', chr(9))}" for text in cells)
    head = HEAD.replace("frame.time_epoch", name).replace(",", "\t")
    found = read_tshark_fields(write(tmp_path, head + rows))
    assert found.columns["ts_ns"].tolist() == ns
    assert any("CET, Pacific Daylight Time" in note for note in found.meta.notes) == ("CET" in cells[0])


@pytest.mark.parametrize("date", ["Nov 16, 0001 12:52:12.459157000 UTC", "9999-11-16T12:52:13Z"])
def test_a_date_that_no_capture_can_have(tmp_path, date):
    rows = "\t".join([date, ROW[4:].replace(",", "\t")])
    with pytest.raises(SchemaError, match=r"line 2: frame\.time: '.*' is not a time"):
        read_tshark_fields(
            write(tmp_path, HEAD.replace("frame.time_epoch", "frame.time").replace(",", "\t") + rows)
        )


def test_the_best_time_is_taken(tmp_path):
    head = "frame.time_relative," + HEAD
    assert read_tshark_fields(write(tmp_path, head + "0.25," + ROW)).columns["ts_ns"].tolist() == [
        1_500_000_000
    ]


def test_a_time_without_values_is_passed_over(tmp_path):
    """Recent versions of Nebby export ``_ws.col.cls_time``, which tshark leaves empty."""
    text = "_ws.col.cls_time," + HEAD.replace("epoch", "relative") + "," + ROW
    assert read_tshark_fields(write(tmp_path, text)).columns["ts_ns"].tolist() == [1_500_000_000]
    with pytest.raises(SchemaError, match=r"line 2: _ws\.col\.cls_time: '' is not a time"):
        read_tshark_fields(write(tmp_path, text.replace(",1.5,", ",,")))


def test_what_is_not_exported(tmp_path):
    """Without flags, acknowledgements, addresses and lengths on the wire; notes say so, and nothing is made up."""
    text = "frame.time_epoch,tcp.srcport,tcp.dstport,tcp.seq,tcp.len\n" + "".join(
        f"{t},{s},{d},{q},{n}\n"
        for t, s, d, q, n in [(1, 9, 80, 0, 0), (2, 80, 9, 0, 0), (3, 9, 80, 1, 500), (4, 9, 80, 501, 500)]
    )
    found = read_tshark_fields(write(tmp_path, text))
    assert found.columns["tcp_flags"].tolist() == [2, 2, 8, 8]
    assert found.columns["direction"].tolist() == [0, 1, 0, 0]
    assert found.columns["wire_bytes"].tolist() == [40, 40, 540, 540]
    slots = cct.compute_slots(found, slot_ms=1000)
    assert slots.bytes_in_flight.isna().all() and slots.in_bytes.tolist() == [500, 500]
    notes = " / ".join(found.meta.notes)
    for note in (
        "no tcp.ack",
        "no tcp.flags",
        "no ip.dsfield",
        "address of 4 segments is not known",
        "no frame.len",
    ):
        assert note in notes


def test_raw_and_relative_numbers_are_not_mixed(tmp_path):
    """Some export ``tcp.seq``, ``tcp.ack`` and ``tcp.seq_raw``: a raw number less a relative one means nothing."""
    head = "frame.time_epoch,tcp.srcport,tcp.dstport,tcp.seq,tcp.ack,tcp.len,tcp.seq_raw\n"
    rows = ["1,9,80,1,1,500,77777", "2,80,9,1,501,0,5", "3,9,80,501,1,200,78277"]
    found = read_tshark_fields(write(tmp_path, head + "\n".join(rows) + "\n"))
    assert cct.compute_slots(found, slot_ms=1000).bytes_in_flight.tolist()[1:] == [0, 200]
    without = write(tmp_path, head.replace("tcp.seq,", "x,") + "\n".join(rows) + "\n")
    found = read_tshark_fields(without)
    assert cct.compute_slots(found, slot_ms=1000).bytes_in_flight.isna().all()
    assert "no tcp.ack_raw: bytes in flight are not known" in found.meta.notes


def test_the_handshake_in_relative_numbers(tmp_path):
    """Without flags: who began is known even where its SYN is not; what was not announced is null."""
    head = "frame.time_epoch,tcp.srcport,tcp.dstport,tcp.seq,tcp.ack,tcp.len,ip.dsfield.ecn,ip.dsfield.dscp\n"
    rows = ["1,9,80,0,0,0,0,0", "1.2,80,9,0,1,0,0,0", "1.3,9,80,1,1,0,0,0", "4,9,80,1,1,70,3,46"]
    found = read_tshark_fields(write(tmp_path, head + "\n".join(rows) + "\n"))
    assert found.columns["tcp_flags"].tolist() == [SYN, SYN | ACK, ACK, ACK]
    assert found.columns["ecn"].tolist() == [0, 0, 0, 3] and found.columns["dscp"].tolist() == [0, 0, 0, 46]
    flow = found.flows.iloc[0]
    assert flow.handshake_rtt_ns == 300_000_000
    assert flow[["mss_fwd", "mss_rev", "window_scale_fwd", "window_scale_rev"]].isna().all()
    late = read_tshark_fields(write(tmp_path, head + "\n".join(rows[1:]) + "\n"))
    assert late.columns["direction"].tolist() == [1, 0, 0]


def test_a_heading_in_ones_own_words(tmp_path):
    head = HEAD.replace("frame.time_epoch", "timestamp").replace("tcp.len", "bytes")
    path = write(tmp_path, head + ROW)
    with pytest.raises(SchemaError, match=r"column tcp\.len is missing \(there are timestamp, ip\.src"):
        read_tshark_fields(path)
    found = read_tshark_fields(path, HEAD.strip().split(","))
    assert found.columns["ts_ns"].tolist() == [1_500_000_000] and found.columns["payload_bytes"].tolist() == [
        100
    ]


def test_missing_source_of_two_servers(tmp_path):
    text = "frame.time_epoch,ip.dst,tcp.srcport,tcp.dstport,tcp.seq,tcp.ack,tcp.len\n"
    rows = ["1,10.0.0.2,1000,80,0,0,0", "2,10.0.0.1,80,1000,0,1,0", "3,10.0.0.3,1000,80,5,5,5"]
    with pytest.raises(
        SchemaError, match=r"the source address is not in the export, and between ports 1000 and 80"
    ):
        read_tshark_fields(write(tmp_path, text + "\n".join(rows) + "\n"))
    found = read_tshark_fields(write(tmp_path, text + "\n".join(rows[:2]) + "\n"))
    assert found.keys.src_text() == ["10.0.0.1"] and found.keys.dst_text() == ["10.0.0.2"]


def test_quoted_by_an_icmp_error(tmp_path):
    head = HEAD.replace("\n", ",ip.proto\n").replace(",", "\t")
    rows = ROW.replace("\n", ",6\n").replace(",", "\t")
    rows += "2\t10.0.0.9,10.0.0.1\t10.0.0.1,10.0.0.2\t1000\t80\t1\t0\t0\t1,6\n"
    found = read_tshark_fields(write(tmp_path, head + rows))
    assert found.columns["tcp_flags"].tolist() == [16, 0] and found.keys.protocol.tolist() == [6, 1]
    assert found.keys.src_text() == ["10.0.0.1", "10.0.0.9"] and found.keys.sport.tolist() == [1000, 0]


def test_a_cut_last_line(tmp_path):
    with pytest.warns(TruncatedCaptureWarning, match="the last line is cut and left out"):
        found = read_tshark_fields(write(tmp_path, HEAD + ROW + ROW[:20]))
    assert len(found) == 1 and found.meta.truncated


@pytest.mark.parametrize(
    ("text", "columns", "error", "message"),
    [
        ("", None, SchemaError, "empty, expected what tshark"),
        (HEAD, None, SchemaError, "no lines"),
        ("\xff\0\1", None, SchemaError, "not text, .*read_capture"),
        (ROW, None, ParameterError, "the first line has no field names .*give them as columns"),
        (ROW, ["tcp.seq", "tcp.len"], ParameterError, "2 names, but .* begins with '1.5,10.0.0.1"),
        (HEAD + ROW, ["tcp.seq"], ParameterError, "1 names, but .* has 8 columns"),
        (HEAD.replace("tcp.len", "tcp.stream") + ROW, None, SchemaError, r"column tcp\.len is missing \(there are"),
        (HEAD.replace("frame.time_epoch", "frame.number") + ROW, None, SchemaError, "column frame.time_epoch or"),
        (HEAD.replace("tcp.seq", "tcp.len") + ROW, None, SchemaError, "two columns are 'tcp.len'|tcp.seq is missing"),
        (HEAD + ROW + ROW.replace("1000", "80a"), None, SchemaError, r"line 3: tcp\.srcport: '80a' is not a whole"),
        (HEAD + ROW.replace("1000", "70000"), None, SchemaError, "line 2: tcp.srcport: '70000' is not a whole number"),
        (HEAD + ROW.replace("0.2", "0.x"), None, SchemaError, r"line 2: ip\.dst: '10\.0\.0\.x' is not an IP address"),
        (HEAD + ROW + ROW.replace(",1,1,", ",,1,"), None, SchemaError, "line 3: tcp.seq: '' is not a sequence"),
        (HEAD + ROW.replace(",100\n", ",\n"), None, SchemaError, "line 2: tcp.len: '' is not a number of bytes"),
        (HEAD + ROW + ROW.replace("1.5", "soon"), None, SchemaError, "line 3: frame.time_epoch: 'soon' is not a time"),
        (HEAD + ROW + "1,2\n" + ROW, None, SchemaError, "line 3: 2 cells, but 8 columns"),
        (HEAD + ROW + "9," + ROW, None, SchemaError, "line 3: 9 cells, but 8 columns .*quote=d"),
        (HEAD + ROW.replace("1000,80", ","), None, SchemaError, "no TCP segment in 1 lines"),
    ],
)  # fmt: skip
def test_exports_that_cannot_be_read(tmp_path, text, columns, error, message):
    path = write(tmp_path, text)
    with pytest.raises(error, match=message) as caught:
        read_tshark_fields(path, columns)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("NewReno", "reno"), ("newreno", "reno"), ("TCP New Reno", "reno"), ("tcp-reno", "reno"), ("CUBIC", "cubic"),
        ("bbr v1", "bbr"), ("BBR", "bbr"), ("bbr1", "bbr"), ("BBRv2", "bbr2"), ("bbr_v3", "bbr3"), ("H-TCP", "htcp"),
        ("HTCP", "htcp"), ("HighSpeed TCP", "highspeed"), ("HSTCP", "highspeed"), ("S-TCP", "scalable"),
        ("Scalable TCP", "scalable"), ("TCP-LP", "lp"), ("TCP-NV", "nv"), ("Westwood+", "westwood"),
        ("TCPW", "westwood"), ("YeAH-TCP", "yeah"), ("DCTCP", "dctcp"), ("BIC-TCP", "bic"), ("tcp_prague", "prague"),
        ("Hamilton", "htcp"),
        ("Copa", "Copa"), (" PCC Vivace ", "PCC Vivace"), ("BBRplus", "BBRplus"), ("s", "s"), ("", ""), ("tcp", "tcp"),
    ],
)  # fmt: skip
def test_cca_names(theirs, ours):
    assert cca_name(theirs) == ours


def test_aliases_lead_to_names_of_ours():
    assert set(ALIASES.values()) <= KNOWN and not set(ALIASES) & KNOWN
    assert all(cca_name(name) == name == cca_name(f"TCP {name.upper()}") for name in KNOWN)


@given(st.text(max_size=12))
def test_a_name_stays_what_it_became(text):
    assert cca_name(cca_name(text)) == cca_name(text)


# ---------------------------------------------------------------- tables of labels


def test_a_table_of_labels(tmp_path):
    text = (
        "\ufeff# made by hand\n\nSource IP; Src_Port ;dst;dport;Proto;CC;note\n"
        "10.0.0.1;1000;10.0.0.2;80;TCP;New Reno;\"a; b\"\n ::01;;;443;17; BBR v2;\n;;;5201;;;\n"
    )  # fmt: skip
    found = read_labels(write(tmp_path, text))
    assert found.columns.tolist() == ["line", "src", "sport", "dst", "dport", "protocol", "cca", "note"]
    assert found.line.tolist() == [4, 5, 6]
    assert found.src.tolist()[:2] == ["10.0.0.1", "::1"] and found.src.isna().tolist() == [False, False, True]
    assert found.sport.tolist() == [1000, pd.NA, pd.NA] and found.protocol.tolist() == [6, 17, pd.NA]
    assert found.cca.tolist()[:2] == ["reno", "bbr2"] and found.cca.isna().tolist()[2]
    assert found.note.tolist() == ["a; b", "", ""]


def test_a_table_as_pandas_writes_it(tmp_path):
    found = read_labels(write(tmp_path, "sport,dport,CC Algo\n5001.0,,TCP-Cubic\n,443.0,bbr\n"))
    assert found.sport.tolist() == [5001, pd.NA] and found.dport.tolist() == [pd.NA, 443]
    assert found.cca.tolist() == ["cubic", "bbr"]


def test_our_headings_go_first(tmp_path):
    text = "src,source,cca,label\n1.1.1.1,web,cubic,good\n"
    found = read_labels(write(tmp_path, text))
    assert found.columns.tolist() == ["line", "src", "source", "cca", "label"]
    assert found.iloc[0].tolist() == [2, "1.1.1.1", "web", "cubic", "good"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("# only this\n", "empty"),
        ("src,dst\n1.1.1.1,2.2.2.2\n", r"column 'cca' is missing \(there are src, dst\)"),
        ("cca,rate\ncubic,5\n", "no column says which flow"),
        ("sip,saddr,source,cca\n", r"two columns are 'src' \(sip, saddr, source, cca\)"),
        ("src,cca\n1.1.1.1,cubic\n1.1.1,bbr\n", r"x\.csv: line 3: labels: src: '1\.1\.1' does not appear"),
        ("sport,cca\n80a,cubic\n", "line 2: labels: sport: '80a' is not a whole number from 0 to 65535"),
        ("sport,cca\n80.5,cubic\n", "line 2: labels: sport: '80.5' is not a whole number"),
        ("sport,cca\n65536,cubic\n", "line 2: labels: sport: '65536' is not"),
        ("flow_id,cca\n-1,cubic\n", "line 2: labels: flow_id: '-1' is not"),
        ("sport,protocol,cca\n80,quic,cubic\n", "line 2: labels: protocol: 'quic' is not a protocol"),
        ("#\n\nsport,cca\n80,cubic\n\n80,cubic,5\n", "line 6: labels: 3 cells, but 2 columns"),
    ],
)
def test_labels_that_cannot_be_read(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(SchemaError, match=message) as caught:
        read_labels(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def labelled(tmp_path, text, capture=None, **options):
    found = label_flows(capture or simulated()[0], write(tmp_path, text), **options)
    return [None if pd.isna(cca) else cca for cca in found.cca], found


def ends(capture=None):
    flows = (capture or simulated()[0]).flows
    return [tuple(row) for row in flows[["src", "sport", "dst", "dport"]].itertuples(index=False)]


def test_labels_of_flows(tmp_path):
    (a, ap, b, bp), (c, cp, d, dp) = ends()
    head = "src,sport,dst,dport,cca,rate\n"
    forward, found = labelled(tmp_path, f"{head}{a},{ap},{b},{bp},Cubic,5\n")
    assert forward == ["cubic", None] and found.rate.tolist()[0] == "5" and found.flow_id.tolist() == [0, 1]
    assert labelled(tmp_path, f"{head}{d},{dp},{c},{cp},BBR,\n")[0] == [None, "bbr"]  # from the other end
    assert labelled(tmp_path, f"sport,cca\n{cp},BBR\n{ap},reno\n")[0] == ["reno", "bbr"]
    assert labelled(tmp_path, f"sport,dport,cca\n{bp},{ap},BBR\n")[0] == ["bbr", None]
    assert labelled(tmp_path, "flow_id,cca\n1,vegas\n")[0] == [None, "vegas"]
    assert labelled(tmp_path, f"sport,cca\n{ap},reno\n4,bbr\n5,bbr\n")[1].attrs == {"unused": 2}


def test_who_says_more_goes_first(tmp_path):
    (a, ap, b, bp), _ = ends()
    text = f"file,src,sport,dst,dport,flow_id,cca\nsim,,,,,,reno\n,{a},{ap},{b},{bp},,cubic\n,,{ap},,,,bic\n"
    assert labelled(tmp_path, text, renamed("sim.pcap.gz"))[0] == ["cubic", "reno"]
    assert labelled(tmp_path, text + ",,,,,0,nv\n", renamed("sim.pcap.gz"))[0] == ["nv", "reno"]


def renamed(path) -> cct.Capture:
    capture = simulated()[0].rows(np.ones(len(simulated()[0]), bool))
    capture.meta.path = str(path)
    return capture


@pytest.mark.parametrize(
    ("file", "fits"),
    [("a.pcap.gz", True), ("a", True), ("runs/a.pcap.gz", True), ("runs/a", True), ("b", False), ("a.pcap", False),
     ("other/a", False), ("/runs/a.pcap.gz", False)],
)  # fmt: skip
def test_labels_by_file(tmp_path, file, fits):
    capture = renamed(tmp_path / "runs" / "a.pcap.gz")
    text = f"file,cca\n{file},cubic\n"
    if fits:
        assert labelled(tmp_path, text, capture)[0] == ["cubic", "cubic"]
        assert labelled(tmp_path, text, capture, least_payload_bytes=1)[0] == ["cubic", "cubic"]
        with pytest.raises(ParameterError, match="none of 1 rows"):
            labelled(tmp_path, text, capture, least_payload_bytes=10**9)
    else:
        with pytest.raises(ParameterError, match=r"a\.pcap\.gz: none of 1 rows of the labels .*x\.csv fits"):
            labelled(tmp_path, text, capture)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sport,cca\n{0},cubic\n{0},bbr\n",
            r"x\.csv: line 3: flow 0 \(.* to .*\) of .* is bbr, but cubic by .*line 2",
        ),
        ("flow_id,cca\n7,cubic\n", "line 2: no flow 7 in"),
        ("sport,cca\n1,cubic\n", "none of 1 rows of the labels .* fits one of its 2 flows"),
        ("sport,cca\n,cubic\n", "line 2: names a congestion control, but no flow"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, text, message):
    with pytest.raises(ParameterError, match=message) as caught:
        labelled(tmp_path, text.format(ends()[0][1]))
    assert "\n" not in str(caught.value)


def test_labels_without_what_is_needed():
    with pytest.raises(SchemaError, match="need a column 'cca'"):
        label_flows(simulated()[0], pd.DataFrame({"src": ["10.0.0.1"]}))


def reused(times=2) -> bytes:
    """One 5-tuple, `times` connections, one after the other."""
    frames = []
    for k in range(times):
        for j, (flags, payload) in enumerate([(SYN, b""), (ACK, bytes(50)), (17, b"")]):
            body = made.ethernet(
                0x0800, made.ipv4(6, made.tcp(9, 80, 1000 * k + j, 1, flags, payload=payload))
            )
            frames.append((10**9 * (k + 1) + j * 10**6, body, len(body)))
    return made.pcap(frames)


def test_ports_used_again(tmp_path):
    path = tmp_path / "again.pcap"
    path.write_bytes(reused())
    capture = cct.read_capture(path)
    assert len(capture.keys) == 2
    row = "10.0.0.1,9,10.0.0.2,80"
    head = "src,sport,dst,dport,cca\n"
    assert labelled(tmp_path, f"{head}{row},cubic\n{row},bbr\n", capture)[0] == ["cubic", "bbr"]
    assert labelled(tmp_path, f"{head}{row},\n{row},bbr\n", capture)[0] == [None, "bbr"]
    text = f"file,{head}again,{row},cubic\nother,{row},reno\nagain,{row},bbr\n"
    assert labelled(tmp_path, text, capture)[0] == ["cubic", "bbr"]
    assert labelled(tmp_path, f"{head}{row},cubic\n", capture)[0] == ["cubic", "cubic"]
    with pytest.raises(ParameterError, match=r"line 3: flow 0 .* is bbr, but cubic by .*line 2"):
        labelled(tmp_path, f"{head}{row},cubic\n{row},bbr\n{row},reno\n", capture)


def test_labels_of_a_run():
    """What the toolkit itself writes beside captures."""
    path = next(TRACES.glob("**/*.labels.csv"))
    run = cct.load_run(str(path).removesuffix(".labels.csv"))
    found = label_flows(run.ingress, read_labels(path)).set_index("flow_id")
    known = run.labels.set_index("flow_id")
    known = known[known.cca.isin(KNOWN)]
    assert len(known) and (found.cca[known.index] == known.cca).all()
    assert found.data_from[known.index].tolist() == known.data_from.tolist()
    again = label_flows(run.ingress, run.labels).set_index("flow_id")
    assert (again.cca[known.index] == known.cca).all()


def test_names_of_files(tmp_path):
    names = {
        "cubic_dualpi2_wifi.pcap.gz": "cubic", "bbr-35-500-tcp.csv": "bbr", "run1_New-Reno.pcapng": "reno",
        "d_c2c_h1_scalable_5.pcap": "scalable", "bbr_v2-x.pcap": "bbr2",
        "bbr-2-0-50-200.csv": "bbr", "reno-vs-cubic.pcap": None, "codel.pcap": None,
        "mcubic.csv": None, "cubic11.pcap": "cubic", "bbr2.pcap": "bbr2", "vegas/1.pcap": "vegas",
        "bbr2-0-50-200-2-tcp.csv": None, "bbr9-0-50-200-2-tcp.csv": "bbr", "bbrv2-0-50-200-2-tcp.csv": "bbr2",
        "bbr-50/bbr3-0-50-200-2-tcp.csv": "bbr", "bbr50/bbr2-0-50-200-2-tcp.csv": "bbr",
        "vegas/yeah.tsv": "yeah", "15-ms/htcp.csv": "htcp",
    }  # fmt: skip
    for name in (*names, "notes-cubic.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = labels_from_names([tmp_path])
    by_file = {str(Path(f).relative_to(tmp_path)): c for f, c in zip(found.file, found.cca, strict=True)}
    assert {k: None if pd.isna(v) else v for k, v in by_file.items()} == names
    with pytest.raises(ParameterError, match="no such file"):
        labels_from_names(tmp_path / "cubic.pcap")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("reno-5-45-200-2-tcp.csv", (0.2, 100, 2)),
        ("cubic12-0-50-1000-1-tcp.csv.gz", (1, 100, 1)),
        ("bbr-1-0-50-200-2-aws-88-15-tcp.csv", (0.2, 100, 2)),  # the first run; more words at the end
        ("bbr-2-100-200-v1-5-50-200-2-tcp.csv", (0.2, 110, 2)),
        ("45-ms-400-kbps/yeah.csv", (0.4, 100, 1)),  # 5 ms before the bottleneck, one BDP
        ("reno-5-45-200-2.pcap", None),  # whose numbers are these?
        ("reno-45-200-2-tcp.csv", None),
        ("reno-5-45-9999999999-2-tcp.csv", None),
        ("nv-15bw-85rtt-128q-local-20181113T122428/server-tcpdump.pcap", (15, 85, 128)),
    ],
)
def test_settings_in_names(name, values):
    buffer = "buffer_packets" if "bw-" in name else "buffer_bdp"
    expected = dict(zip(("rate_mbps", "rtt_ms", buffer), values, strict=True)) if values else {}
    assert settings_from_name(name) == expected


def test_examples_of_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = doctest.testmod(reader_names)
    assert tried.attempted == 5 and not tried.failed


#: What the captures in shared/captures/cc are: by name, what is labelled, and what can be seen in them of the flow with
#: most data (its data and acknowledgements both seen; the tap is at the sender if the SYN's TTL is a first value).
FACTS = {
    # A laptop on Wi-Fi sends by iperf3 for a minute through dualpi2 at 20 Mbit/s, 20 ms, beside a wired flow; AccECN.
    "results__wifi__cubic_dualpi2_wifi.pcap.gz": {
        "cca": "cubic",
        "sport": 38770,
        "mbytes": 62.3,
        "s": 60,
        "ecn": 2,
        "retransmits": 0,
    },
    # The same through fq_codel with Prague.
    "results__wifi__prague_fq_codel_wifi.pcap.gz": {
        "cca": "prague",
        "sport": 38778,
        "mbytes": 67.5,
        "s": 60,
        "ecn": 1,
        "retransmits": 0,
    },
    # A download from mega.io with segments of 244 bytes through 200 kbit/s; nobody knows the server's CCA. The tap is
    # between server and bottleneck.
    "scripts__test.pcap": {"cca": None, "sport": 443, "mbytes": 0.19, "s": 23, "ecn": 0, "retransmits": 229},
    # A test of Nagle's algorithm: 4 kB. No congestion.
    "PCAPs__ND00.pcap": {"cca": None, "sport": 22, "mbytes": 0.009, "s": 18, "ecn": 2, "retransmits": 0},
    # Skype and irtt: UDP only.
    "results__skype__bfid__skype_bi_dualpi2_l.pcap.gz": {"cca": None},
    "results__skype__bfid__skype_bi_fq_codel.pcap.gz": {"cca": None},
}


@needs_captures
def test_what_is_known_of_other_peoples_captures():
    found = labels_from_names(CAPTURES)
    by_file = {Path(f).name: None if pd.isna(c) else c for f, c in zip(found.file, found.cca, strict=True)}
    assert by_file == {name: facts["cca"] for name, facts in FACTS.items()}
    for file in found.file:
        facts = FACTS[Path(file).name]
        capture = cct.read_capture(file)
        if "sport" not in facts:
            assert not (capture.columns["tcp_flags"] != 0).any()
            continue
        flows = capture.flows[capture.flows.protocol == 6]
        flow = flows.loc[flows[["payload_fwd", "payload_rev"]].max(axis=1).idxmax()]
        side = "fwd" if flow.payload_fwd > flow.payload_rev else "rev"
        sender_port = flow.sport if side == "fwd" else flow.dport
        assert sender_port == facts["sport"] and capture.duration_s == pytest.approx(facts["s"], abs=1)
        assert flow[f"payload_{side}"] / 1e6 == pytest.approx(facts["mbytes"], rel=0.1)
        assert flow[f"tshark_retransmits_{side}"] == facts["retransmits"]
        assert flow.packets_fwd > 10 and flow.packets_rev > 10  # both directions
        rows = (capture.columns["flow_id"] == flow.flow_id) & (capture.columns["payload_bytes"] > 0)
        rows &= capture.columns["direction"] == (side == "rev")
        assert np.bincount(capture.columns["ecn"][rows]).argmax() == facts["ecn"]
        assert capture.columns["payload_bytes"][rows].max() <= 1460  # no offload seen
        if facts["cca"]:
            labels = label_flows(capture, found)
            assert labels.cca[labels.flow_id == flow.flow_id].tolist() == [facts["cca"]]
            assert labels.cca.notna().sum() == 1  # not iperf3's control connection
            assert set(capture.columns["ttl"][rows]) == {64}  # at the sender


@needs_captures
@pytest.mark.slow
@pytest.mark.parametrize("model", ["cca", "every-cca"])
@pytest.mark.parametrize("window_ms", [1000, None])
def test_no_wrong_name_on_other_peoples_wifi(model, window_ms):
    """From one tap, whatever the length of the windows; CUBIC by its name."""
    for name, facts in FACTS.items():
        if not facts["cca"]:
            continue
        (path,) = CAPTURES.rglob(name)
        (flow,) = cct.identify.classify_flows(path, model=model, window_ms=window_ms).to_dict("records")
        assert flow["sport"] == facts["sport"] and flow["limited_by"] == "bottleneck"
        assert flow["cca"] in (facts["cca"], "unknown")
        if facts["cca"] == "cubic" and window_ms is None:
            assert flow["cca"] == "cubic"


# ---------------------------------------------------------------- iperf3


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_iperf3(folder, name, *options):
    """One test over loopback; what client and server write."""
    port = str(free_port())
    files = folder / f"{name}.json", folder / f"{name}.server.json"
    with open(files[1], "wb") as out:
        server = subprocess.Popen(["iperf3", "-s", "-1", "-J", "-p", port, "-B", "127.0.0.1"], stdout=out)
        try:
            for _ in range(100):
                time.sleep(0.02)
                with open(files[0], "wb") as file:
                    command = ["iperf3", "-c", "127.0.0.1", "-p", port, "-J", "-i", "0.1", *options]
                    done = subprocess.run(command, stdout=file, check=False, timeout=20)
                if done.returncode == 0:
                    break
            server.wait(timeout=10)
        finally:
            server.kill()
            server.wait()
    return files


@pytest.fixture(scope="module")
def iperf3_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("iperf3")
    some = ("-n", "2M", "-b", "50M")
    return {
        "forward": run_iperf3(folder, "forward", *some, "-P", "2", "-C", "reno"),
        "reverse": run_iperf3(folder, "reverse", *some, "-R", "-C", "cubic"),
        "udp": run_iperf3(folder, "udp", "-u", *some),
    }


@pytest.mark.slow
@needs_iperf3
def test_iperf3_over_loopback(iperf3_files):
    path = iperf3_files["forward"][0]
    written = json.loads(path.read_text())
    found = read_iperf3(path)
    assert found.notes == []
    assert found.streams.cca.tolist() == ["reno", "reno"] and found.streams.data_from.tolist() == [
        "src",
        "src",
    ]
    assert found.streams.sport.tolist() == [c["local_port"] for c in written["start"]["connected"]]
    assert set(found.streams.dport) == {written["start"]["connecting_to"]["port"]} and set(
        found.streams.protocol
    ) == {6}
    assert found.streams.start_ns[0] // 10**9 == written["start"]["timestamp"]["timesecs"]
    streams = [s for interval in written["intervals"] for s in interval["streams"]]
    assert len(found.intervals) == len(streams) > 2
    for name, key in (("bytes", "bytes"), ("snd_cwnd_bytes", "snd_cwnd"), ("rtt_us", "rtt"), ("rttvar_us", "rttvar"),
                      ("retransmits", "retransmits"), ("t_s", "end"), ("stream", "socket")):  # fmt: skip
        assert found.intervals[name].tolist() == [s[key] for s in streams]
    assert found.intervals.sender.all() and (found.intervals.rtt_us > 0).all()
    assert found.intervals.bytes.sum() == pytest.approx(written["end"]["sum_sent"]["bytes"], rel=0.2)


@needs_iperf3
def test_iperf3_the_other_way(iperf3_files):
    client, server = map(read_iperf3, iperf3_files["reverse"])
    for test in client, server:
        assert test.streams.cca.tolist() == ["cubic"] and test.streams.data_from.tolist() == ["dst"]
    columns = ["src", "sport", "dst", "dport", "data_from", "cca"]
    pd.testing.assert_frame_equal(client.streams[columns], server.streams[columns])
    assert client.intervals.rtt_us.isna().all() and (server.intervals.rtt_us > 0).any()
    assert not client.intervals.sender.any() and server.intervals.sender.all()
    receiver = read_iperf3(iperf3_files["forward"][1])
    assert receiver.streams.cca.isna().all()  # a server does not know its client's
    udp = read_iperf3(iperf3_files["udp"][0])
    assert udp.streams.protocol.tolist() == [17] and udp.streams.cca.isna().all()
    assert udp.intervals.retransmits.isna().all() and udp.intervals.bytes.sum() > 0


def as_events(document) -> str:
    """What --json-stream writes of a test (iperf3 3.17 and later; src/iperf_api.c)."""
    events = [{"event": "start", "data": document["start"]}]
    events += [{"event": "interval", "data": interval} for interval in document["intervals"]]
    return "".join(json.dumps(e) + "\n" for e in [*events, {"event": "end", "data": document["end"]}])


def assert_same_tests(one, other):
    pd.testing.assert_frame_equal(one.streams, other.streams)
    pd.testing.assert_frame_equal(one.intervals, other.intervals)


@needs_iperf3
def test_iperf3_one_after_the_other(iperf3_files, tmp_path):
    texts = [iperf3_files[name][0].read_text() for name in ("forward", "reverse", "udp")]
    together = read_iperf3(write(tmp_path, "\n".join(texts)))
    assert together.streams.test.tolist() == [0, 0, 1, 2]
    assert together.streams.cca.tolist()[:3] == ["reno", "reno", "cubic"]
    documents = [json.loads(text) for text in texts]
    assert_same_tests(read_iperf3(write(tmp_path, "".join(map(as_events, documents)))), together)
    full = "".join(as_events(d) + text for d, text in zip(documents, texts, strict=True))
    assert_same_tests(read_iperf3(write(tmp_path, full)), together)

    events = as_events(documents[0]).splitlines(keepends=True)
    killed = read_iperf3(write(tmp_path, "".join(events[:-1]) + events[-1][:40]))
    assert "cut at the end" in killed.notes[0] and "last events are missing" in killed.notes[1]
    assert killed.streams.cca.isna().all()
    pd.testing.assert_frame_equal(killed.intervals, read_iperf3(iperf3_files["forward"][0]).intervals)


@needs_iperf3
def test_iperf3_refused(tmp_path):
    with open(tmp_path / "x.json", "wb") as out:
        command = ["iperf3", "-c", "127.0.0.1", "-p", str(free_port()), "-J"]
        subprocess.run(command, stdout=out, check=False, timeout=20)
    with pytest.raises(SchemaError, match="test 0: iperf3 said: unable to connect to server"):
        read_iperf3(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty, expected JSON"),
        ("iperf3: interrupt\n{}", "line 1: expected JSON of iperf3 -J"),
        ('\n\n{"start": {}, "inter', "line 3: expected JSON"),
        ("[1, 2]", "line 1: JSON, but neither a test nor an event"),
        ('\n{"a": 1}', "line 2: JSON, but neither"),
        ('{"start": {}, "intervals": []}', "no intervals"),
        (
            '{"start": {}, "intervals": [{"streams": [{"socket": 5}]}]}',
            r"test 0: not what iperf3 writes \(KeyError",
        ),
        ('{"start": {"connected": 5}, "intervals": []}', "test 0: not what iperf3 writes"),
    ],
)
def test_what_iperf3_does_not_write(tmp_path, text, message):
    with pytest.raises(SchemaError, match=message) as caught:
        read_iperf3(write(tmp_path, text))
    assert "\n" not in str(caught.value)


BOTH_WAYS = """
set -e
ip link set lo up
unshare -n sleep 30 & there=$!
trap 'kill $there' EXIT
sleep 0.2
ip link add veth0 type veth peer name veth1 netns $there
ip addr add 10.9.0.1/24 dev veth0
ip link set veth0 up
there() { nsenter -t $there -n "$@"; }
there ip addr add 10.9.0.2/24 dev veth1
there ip link set veth1 up
ip route change 10.9.0.0/24 dev veth0 src 10.9.0.1 congctl reno
there ip route change 10.9.0.0/24 dev veth1 src 10.9.0.2 congctl cubic
there iperf3 -s -1 -J > server.json & server=$!
tcpdump -i veth0 -s 100 -U -w both.pcap 2> /dev/null & dump=$!
sleep 0.7
iperf3 -c 10.9.0.2 --bidir -b 20M -n 1M -i 0.1 -J > client.json
wait $server
sleep 0.3
kill $dump
"""


@pytest.mark.slow
@pytest.mark.netns
@needs_iperf3
def test_iperf3_both_ways_under_two_congestion_controls(tmp_path):
    """Each end has its own; the capture says which connection each end fills."""
    tools = [tool for tool in ("tcpdump", "unshare", "nsenter", "ip") if shutil.which(tool) is None]
    if tools or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(tools) or 'nothing else'}")
    done = subprocess.run(
        ["unshare", "-n", "bash", "-c", BOTH_WAYS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode and "Operation not permitted" in done.stderr:
        pytest.skip(f"no network namespace: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    capture = cct.read_capture(tmp_path / "both.pcap")
    found = label_flows(capture, read_iperf3(tmp_path / "client.json").streams)
    found = found.merge(capture.flows[["flow_id", "payload_fwd", "payload_rev"]], on="flow_id")
    for row in found[found.cca.notna()].itertuples():
        sent, received = row.payload_fwd, row.payload_rev
        assert (row.data_from, row.cca) == (("src", "reno") if sent > received else ("dst", "cubic"))
    assert found.cca.notna().sum() == 2
    server = read_iperf3(tmp_path / "server.json").streams
    assert server.cca.isna().tolist() == [True, False] and server.cca[1] == "cubic"
