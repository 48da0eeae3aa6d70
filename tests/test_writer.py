from __future__ import annotations

import gzip
import io
import itertools
import lzma
import shutil
import struct
from pathlib import Path

import dpkt
import made_captures
import naive_writer
import numpy as np
import pandas as pd
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings, strategies as st
from tools import examples
from tshark import ask

import cctoolkit as cct
from cctoolkit.capture.keys import FlowKeys
from cctoolkit.capture.reader import read_capture
from cctoolkit.capture.writer import LINK_RAW, PcapWriter, write_frames, write_pcap
from cctoolkit.errors import CaptureFormatError, ParameterError, SchemaError
from cctoolkit.schema import PACKETS

u8, u16, u32 = st.integers(0, 255), st.integers(0, 65535), st.integers(0, 2**32 - 1)
property_test = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def flow(draw):
    version = draw(st.sampled_from([4, 6]))
    protocol = draw(st.sampled_from([6, 6, 6, 17, 1 if version == 4 else 58, 132, 50]))
    has_ports = protocol in (6, 17, 132)
    size = 4 if version == 4 else 16
    address = st.binary(min_size=size, max_size=size)
    return {
        "ip_version": version,
        "protocol": protocol,
        "sport": draw(u16) if has_ports else 0,
        "dport": draw(u16) if has_ports else 0,
        "src": draw(address).ljust(16, b"\0"),
        "dst": draw(address).ljust(16, b"\0"),
        "saw_syn": False,
        "mss": draw(st.tuples(u16, u16)),
        "window_scale": draw(st.tuples(u8, u8)),
        "sack_permitted": draw(st.tuples(st.booleans(), st.booleans())),
    }


@st.composite
def table(draw, max_payload=3000):
    """Rows, keys by flow id, SACK blocks by row."""
    ids = draw(st.lists(st.integers(0, 10_000), min_size=1, max_size=4, unique=True))
    keys = {i: draw(flow()) for i in sorted(ids)}
    rows, sacks = [], {}
    for i in range(draw(st.integers(0, 8))):
        flow_id = draw(st.sampled_from(ids))
        tcp = keys[flow_id]["protocol"] == 6
        has_ts = tcp and draw(st.booleans())
        row = {
            "ts_ns": draw(st.integers(0, 2**32 * 10**9 - 1)),
            "flow_id": flow_id,
            "direction": draw(st.integers(0, 1)),
            "seq": draw(u32) if tcp else 0,
            "ack": draw(u32) if tcp else 0,
            "tcp_flags": draw(st.integers(0, 0xFFF)) if tcp else 0,
            "payload_bytes": draw(
                st.integers(4 if keys[flow_id]["protocol"] == 132 else 0, max_payload)
            ),  # ports
            "wire_bytes": draw(st.integers(0, 2000)),
            "window": draw(u16) if tcp else 0,
            "ecn": draw(st.integers(0, 3)),
            "dscp": draw(st.integers(0, 63)),
            "ttl": draw(u8),
            "tsval": draw(u32) if has_ts else 0,
            "tsecr": draw(u32) if has_ts else 0,
            "has_ts": has_ts,
        }
        if tcp and draw(st.booleans()):
            sacks[i] = draw(st.lists(st.tuples(u32, u32), min_size=1, max_size=5))
        rows.append(row)
    return rows, keys, sacks


def arrays(rows, keys, sacks):
    """The same as the writer takes them."""
    columns = {name: np.array([row[name] for row in rows], dtype) for name, dtype in PACKETS.items()}
    dtypes = {"ip_version": "u1", "protocol": "u1", "sport": "u2", "dport": "u2", "saw_syn": "?"}
    dtypes |= {"mss": "u2", "window_scale": "u1", "sack_permitted": "?"}
    flow_keys = FlowKeys(
        flow_id=np.array(list(keys), np.uint32),
        src=np.array([list(k["src"]) for k in keys.values()], np.uint8),
        dst=np.array([list(k["dst"]) for k in keys.values()], np.uint8),
        **{name: np.array([k[name] for k in keys.values()], dtype) for name, dtype in dtypes.items()},
    )
    blocks = [(i, *block) for i, many in sacks.items() for block in many]
    sack_columns = pd.DataFrame(blocks, columns=["packet", "left", "right"]).astype(
        {"packet": "int64", "left": "uint32", "right": "uint32"}
    )
    return columns, flow_keys, sack_columns


def some_traffic(n=400, seed=1, offload=False):
    """A bigger table without corner cases: what tshark and dpkt are asked about."""
    rng = np.random.default_rng(seed)
    flows = 40
    version = rng.choice([4, 6], flows).astype(np.uint8)
    protocol = rng.choice([6, 6, 6, 17, 1], flows).astype(np.uint8)
    protocol[(protocol == 1) & (version == 6)] = 58
    has_ports = (protocol == 6) | (protocol == 17)
    keys = FlowKeys(
        flow_id=np.arange(flows, dtype=np.uint32) * 7,
        ip_version=version,
        protocol=protocol,
        sport=(rng.integers(50_000, 60_000, flows) * has_ports).astype(np.uint16),
        dport=(rng.integers(60_001, 65_000, flows) * has_ports).astype(np.uint16),
        src=np.where(
            (version == 4)[:, None] & (np.arange(16) >= 4), 0, rng.integers(1, 120, (flows, 16))
        ).astype(np.uint8),
        dst=np.where(
            (version == 4)[:, None] & (np.arange(16) >= 4), 0, rng.integers(1, 120, (flows, 16))
        ).astype(np.uint8),
        saw_syn=np.zeros(flows, bool),
        mss=np.full((flows, 2), [1460, 1400], np.uint16),
        window_scale=np.full((flows, 2), [7, 9], np.uint8),
        sack_permitted=np.ones((flows, 2), bool),
    )
    which = rng.integers(0, flows, n)
    tcp = protocol[which] == 6
    has_ts = tcp & (rng.random(n) < 0.7)
    columns = {
        "ts_ns": 1_700_000_000_123_456_789 + np.cumsum(rng.integers(1, 10**7, n)),
        "flow_id": keys.flow_id[which],
        "direction": rng.integers(0, 2, n),
        "seq": rng.integers(0, 2**32, n) * tcp,
        "ack": rng.integers(0, 2**32, n) * tcp,
        "tcp_flags": rng.choice([0x10, 0x18, 0x12, 0x02, 0x11, 0x150], n) * tcp,
        "payload_bytes": rng.integers(8, 1400, n),
        "wire_bytes": rng.integers(0, 1600, n),
        "window": rng.integers(0, 65536, n) * tcp,
        "ecn": rng.integers(0, 4, n),
        "dscp": rng.integers(0, 64, n),
        "ttl": rng.integers(10, 250, n),
        "tsval": rng.integers(0, 2**32, n) * has_ts,
        "tsecr": rng.integers(0, 2**32, n) * has_ts,
        "has_ts": has_ts,
    }
    columns = {name: values.astype(PACKETS[name]) for name, values in columns.items()}
    with_sacks = np.flatnonzero(tcp & (columns["tcp_flags"] == 0x10))[::3]
    sacks = pd.DataFrame(
        {"packet": with_sacks, "left": np.uint32(5), "right": rng.integers(6, 2**32, len(with_sacks))}
    )
    return columns, keys, sacks.astype({"packet": "int64", "left": "uint32", "right": "uint32"})


@property_test
@given(table(), st.sampled_from([40, 60, 96, 262_144]), st.booleans())
def test_bytes_are_those_of_the_naive_twin(tmp_path, data, snaplen, ethernet):
    columns, keys, sacks = arrays(*data)
    path = write_pcap(
        tmp_path / "x.pcap",
        columns,
        keys,
        sacks=sacks,
        snaplen=snaplen,
        link_type=1 if ethernet else LINK_RAW,
    )
    assert path.read_bytes() == naive_writer.pcap(*data, snaplen, ethernet)


def empty_ipv6(protocol):
    """An IPv6 packet with nothing after its header, in a frame with a byte of padding."""
    key = {
        "ip_version": 6, "protocol": protocol, "sport": 0, "dport": 0, "src": bytes(16), "dst": bytes(16),
        "saw_syn": False, "mss": (0, 0), "window_scale": (0, 0), "sack_permitted": (False, False),
    }  # fmt: skip
    row = dict.fromkeys(PACKETS, 0) | {"wire_bytes": 55, "has_ts": False}
    return [row], {0: key}, {}


@pytest.mark.slow
@property_test
@given(table(max_payload=200_000), st.sampled_from(["x.pcap", "x.pcapng", "x.pcap.gz", "x.pcapng.zst"]))
@example(empty_ipv6(50), "x.pcap")
@example(empty_ipv6(59), "x.pcap")
def test_read_back_is_what_was_written(tmp_path, data, name):
    """Every column but flow_id and direction, which the reader decides itself; and the ends are the same."""
    rows, keys, sacks = data
    columns, flow_keys, sack_table = arrays(rows, keys, sacks)
    capture = read_capture(
        write_pcap(tmp_path / name, columns, flow_keys, sacks=sack_table), flow_timeout_s=None
    )
    assert len(capture) == len(rows)
    back = capture.columns
    cut = (columns["tcp_flags"] == 0) & np.array(
        [keys[row["flow_id"]]["protocol"] == 6 for row in rows], bool
    )
    for column in PACKETS:
        if column in ("flow_id", "direction", "wire_bytes"):
            continue
        same = back[column] == columns[column]
        if column in ("seq", "ack", "window", "tsval", "tsecr", "has_ts"):
            same = same | cut  # a header without flags may be a cut one, which has ports and nothing else
        assert same.all(), column
    # Length 0 means "to the end of the frame": an empty IPv6 packet cannot be padded, unless it says that it is empty.
    ends_of = [keys[row["flow_id"]] for row in rows]
    unpadded = (columns["payload_bytes"] == 0) & np.array(
        [key["ip_version"] == 6 and key["protocol"] not in (6, 17, 59) for key in ends_of], bool
    )
    assert (unpadded | (back["wire_bytes"] >= np.minimum(columns["wire_bytes"], 65_535))).all()
    for i, row in enumerate(rows):
        key, found = keys[row["flow_id"]], np.searchsorted(capture.keys.flow_id, back["flow_id"][i])
        ends = [(bytes(key["src"]), key["sport"]), (bytes(key["dst"]), key["dport"])]
        if row["direction"] != back["direction"][i]:
            ends.reverse()
        k = capture.keys
        assert ends == [(bytes(k.src[found]), k.sport[found]), (bytes(k.dst[found]), k.dport[found])]
        assert (key["protocol"], key["ip_version"]) == (k.protocol[found], k.ip_version[found])


@property_test
@given(table(), st.sampled_from(["x.pcap", "x.pcapng.gz"]))
def test_second_trip_changes_nothing(tmp_path, data, name):
    columns, keys, sacks = arrays(*data)
    first = read_capture(write_pcap(tmp_path / "first.pcap", columns, keys, sacks=sacks))
    second = read_capture(write_pcap(tmp_path / name, first))
    pd.testing.assert_frame_equal(first.packets, second.packets)
    pd.testing.assert_frame_equal(first.sacks, second.sacks)
    for field in ("src", "dst", "sport", "dport", "protocol", "ip_version", "saw_syn"):
        np.testing.assert_array_equal(getattr(first.keys, field), getattr(second.keys, field))


@property_test
@given(table(), st.lists(st.integers(0, 8), max_size=3))
def test_parts_make_the_same_file(tmp_path, data, cuts):
    columns, keys, sacks = arrays(*data)
    whole = write_pcap(tmp_path / "whole.pcap", columns, keys, sacks=sacks)
    edges = [0, *sorted(min(c, len(data[0])) for c in cuts), len(data[0])]
    with PcapWriter(tmp_path / "parts.pcap") as writer:
        for start, stop in itertools.pairwise(edges):
            mine = sacks[(sacks.packet >= start) & (sacks.packet < stop)]
            writer.write(
                {name: c[start:stop] for name, c in columns.items()},
                keys,
                mine.assign(packet=mine.packet - start),
            )
    assert writer.packets == len(data[0])
    assert (tmp_path / "parts.pcap").read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("snaplen", [262_144, 96])
def test_dpkt_reads_the_same(tmp_path, snaplen):
    columns, keys, sacks = some_traffic()
    path = write_pcap(tmp_path / "x.pcap", columns, keys, sacks=sacks, snaplen=snaplen)
    with open(path, "rb") as file:
        records = list(dpkt.pcap.Reader(file))
    assert len(records) == len(columns["ts_ns"])
    for i, (ts, frame) in enumerate(records):
        assert int(ts * 10**9) == columns["ts_ns"][i]
        assert len(frame) <= snaplen
        ip = dpkt.ethernet.Ethernet(frame).data
        k = columns["flow_id"][i] // 7
        ends = [(bytes(keys.src[k]), keys.sport[k]), (bytes(keys.dst[k]), keys.dport[k])]
        if columns["direction"][i]:
            ends.reverse()
        v4 = keys.ip_version[k] == 4
        assert (ip.src.ljust(16, b"\0"), ip.dst.ljust(16, b"\0")) == (ends[0][0], ends[1][0])
        assert (ip.ttl if v4 else ip.hlim) == columns["ttl"][i]
        if snaplen == 262_144 and v4:
            ip.sum = 0
            if keys.protocol[k] in (6, 17):
                ip.data.sum = 0
            assert bytes(ip) == frame[14 : 14 + ip.len]  # dpkt fills in both checksums
        if keys.protocol[k] == 6 and (snaplen == 262_144 or (v4 and not (columns["tcp_flags"][i] & 2))):
            tcp = ip.data
            assert (tcp.sport, tcp.dport) == (ends[0][1], ends[1][1])
            assert (tcp.seq, tcp.ack, tcp.win) == (columns["seq"][i], columns["ack"][i], columns["window"][i])
            assert tcp.flags == columns["tcp_flags"][i]
            options = dict(dpkt.tcp.parse_opts(tcp.opts))
            assert (8 in options) == columns["has_ts"][i]
            if 8 in options:
                assert struct.unpack(">II", options[8]) == (columns["tsval"][i], columns["tsecr"][i])


def tshark(path, fields, *options):
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not on PATH")
    wanted = [word for field in fields for word in ("-e", field)]
    text = ask(path, "-T", "fields", "-E", "separator=,", "-E", "aggregator= ", *options, *wanted)
    return pd.read_csv(io.StringIO(text), names=fields, dtype=str, keep_default_na=False)


CHECKS = ["-o", "tcp.relative_sequence_numbers:FALSE"]
for protocol in ("ip", "tcp", "udp"):
    CHECKS += ["-o", f"{protocol}.check_checksum:TRUE"]


@pytest.mark.slow
@pytest.mark.tshark
@pytest.mark.parametrize(("name", "link_type"), [("x.pcap", 1), ("x.pcapng.gz", 1), ("x.pcap.gz", LINK_RAW)])
def test_tshark_reads_the_same(tmp_path, name, link_type):
    columns, keys, sacks = some_traffic()
    path = write_pcap(tmp_path / name, columns, keys, sacks=sacks, link_type=link_type)
    fields = [
        "frame.time_epoch", "frame.len", "ip.src", "ipv6.src", "tcp.srcport", "udp.srcport", "tcp.seq_raw",
        "tcp.ack_raw", "tcp.flags", "tcp.len", "udp.length", "tcp.window_size_value",
        "tcp.options.timestamp.tsval", "tcp.options.timestamp.tsecr", "tcp.options.mss_val",
        "tcp.options.wscale.shift", "tcp.options.sack_le", "tcp.options.sack_re", "ip.dsfield", "ipv6.tclass",
        "ip.ttl", "ipv6.hlim", "ip.checksum.status", "tcp.checksum.status", "udp.checksum.status",
        "icmp.checksum.status", "icmpv6.checksum.status",
    ]  # fmt: skip
    seen = tshark(path, fields, *CHECKS)
    assert len(seen) == len(columns["ts_ns"])
    row = columns["flow_id"] // 7
    v4, protocol = keys.ip_version[row] == 4, keys.protocol[row]
    reverse = columns["direction"] == 1
    tcp = protocol == 6
    syn = tcp & (columns["tcp_flags"] & 2 != 0)

    def number(name, where):
        return seen[name][where].map(lambda text: int(text, 0)).to_numpy()

    np.testing.assert_array_equal(
        seen["frame.time_epoch"].str.replace(".", "").astype("int64"), columns["ts_ns"]
    )
    capture = read_capture(path)
    np.testing.assert_array_equal(number("frame.len", slice(None)), capture.columns["wire_bytes"])
    source = np.where(reverse, np.array(keys.dst_text())[row], np.array(keys.src_text())[row])
    assert (np.where(v4, seen["ip.src"], seen["ipv6.src"]) == source).all()
    sport = np.where(reverse, keys.dport[row], keys.sport[row])
    np.testing.assert_array_equal(number("tcp.srcport", tcp), sport[tcp])
    np.testing.assert_array_equal(number("udp.srcport", protocol == 17), sport[protocol == 17])
    for field, column in {
        "tcp.seq_raw": "seq", "tcp.ack_raw": "ack", "tcp.flags": "tcp_flags", "tcp.len": "payload_bytes",
        "tcp.window_size_value": "window",
    }.items():  # fmt: skip
        np.testing.assert_array_equal(number(field, tcp), columns[column][tcp], field)
    np.testing.assert_array_equal(
        number("udp.length", protocol == 17), columns["payload_bytes"][protocol == 17] + np.uint32(8)
    )
    for field, column in {
        "tcp.options.timestamp.tsval": "tsval",
        "tcp.options.timestamp.tsecr": "tsecr",
    }.items():
        np.testing.assert_array_equal(number(field, columns["has_ts"]), columns[column][columns["has_ts"]])
        assert (seen[field][~columns["has_ts"]] == "").all()
    np.testing.assert_array_equal(number("tcp.options.mss_val", syn), np.where(reverse, 1400, 1460)[syn])
    np.testing.assert_array_equal(number("tcp.options.wscale.shift", syn), np.where(reverse, 9, 7)[syn])
    assert (seen["tcp.options.mss_val"][~syn] == "").all()
    for field, column in {"tcp.options.sack_le": "left", "tcp.options.sack_re": "right"}.items():
        expected = pd.Series("", seen.index)
        expected[sacks.packet] = sacks[column].astype(str).to_numpy()
        assert (seen[field] == expected).all()
    tos = columns["dscp"].astype(int) * 4 + columns["ecn"]
    np.testing.assert_array_equal(number("ip.dsfield", v4), tos[v4])
    np.testing.assert_array_equal(number("ipv6.tclass", ~v4), tos[~v4])
    np.testing.assert_array_equal(number("ip.ttl", v4), columns["ttl"][v4])
    np.testing.assert_array_equal(number("ipv6.hlim", ~v4), columns["ttl"][~v4])
    good = {"ip": v4, "tcp": tcp, "udp": protocol == 17, "icmp": protocol == 1, "icmpv6": protocol == 58}
    for name, where in good.items():
        assert (seen[f"{name}.checksum.status"][where] == "1").all(), name
        assert where.any()


@pytest.mark.tshark
def test_tshark_follows_offload_fragments_and_cut_headers(tmp_path):
    columns, keys, _ = some_traffic(6)
    for name in ("seq", "ack", "window", "tsval", "tsecr"):
        columns[name][:] = 0
    columns["has_ts"][:] = False
    keys.protocol[:] = 6
    keys.sport[:], keys.dport[:] = 50_000, 60_000
    keys.ip_version[:3] = [4, 6, 4]
    keys.sport[2] = keys.dport[2] = 0
    columns["flow_id"] = np.array([0, 7, 14, 0, 0, 7], np.uint32)
    columns["tcp_flags"] = np.array([16, 16, 0, 0, 16, 16], np.uint16)
    columns["payload_bytes"] = np.array([70_000, 70_000, 1000, 0, 0, 0], np.uint32)
    columns["wire_bytes"] = np.array([0, 0, 0, 46, 60, 0], np.uint32)
    path = write_pcap(tmp_path / "x.pcap", columns, keys)
    seen = tshark(
        path,
        ["frame.len", "frame.cap_len", "tcp.len", "ip.frag_offset", "eth.padding"],
        *CHECKS,
        "-o",
        "ipv6.tso_support:TRUE",
    )
    assert seen["frame.len"].tolist() == ["70054", "70074", "1034", "46", "60", "74"]
    assert seen["frame.cap_len"].tolist() == ["70054", "70074", "1034", "46", "60", "74"]
    assert seen["tcp.len"].tolist()[:2] == ["70000", "70000"]
    assert seen["ip.frag_offset"][2] == "185" or seen["ip.frag_offset"][2] == "1480"
    assert seen["eth.padding"][4] == "000000000000"


def test_compressed_files_hold_the_plain_bytes(tmp_path):
    columns, keys, sacks = some_traffic()
    plain = write_pcap(tmp_path / "x.pcap", columns, keys, sacks=sacks).read_bytes()
    options = {"sacks": sacks, "comment": "made up"}
    packed = write_pcap(tmp_path / "x.pcap.gz", columns, keys, **options).read_bytes()
    assert gzip.decompress(packed) == plain
    assert packed[10:18] == b"made up\0"  # RFC 1952: no name, so the comment follows the fixed header
    assert lzma.decompress(write_pcap(tmp_path / "x.pcap.xz", columns, keys, **options).read_bytes()) == plain
    packed = write_pcap(tmp_path / "x.pcap.zst", columns, keys, **options).read_bytes()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == plain
    again = write_pcap(tmp_path / "y.pcap.gz", columns, keys, **options).read_bytes()
    assert again == write_pcap(tmp_path / "x.pcap.gz", columns, keys, **options).read_bytes()


def test_pcapng_says_what_it_is(tmp_path):
    columns, keys, _ = some_traffic(3)
    path = write_pcap(tmp_path / "x.pcapng", columns, keys, comment="grüße")
    body = path.read_bytes()
    text = "grüße".encode()
    assert struct.pack("<HH", 1, len(text)) + text in body  # opt_comment
    with open(path, "rb") as file:
        times = [round(ts * 10**9) for ts, _ in dpkt.pcapng.Reader(file)]
    # dpkt gives times as floats
    assert np.allclose(np.array(times, float), columns["ts_ns"].astype(float), rtol=0, atol=1000)


def test_more_than_the_buffers_hold(tmp_path):
    """30,000 full packets go through the two buffers several times."""
    columns, keys, sacks = some_traffic(30_000)
    columns["payload_bytes"][:] = 1400
    back = read_capture(write_pcap(tmp_path / "x.pcap", columns, keys, sacks=sacks))
    assert (tmp_path / "x.pcap").stat().st_size > 40_000_000
    for name in ("ts_ns", "seq", "ack", "payload_bytes", "tsval"):
        np.testing.assert_array_equal(back.columns[name], columns[name])
    np.testing.assert_array_equal(back.sacks["right"], sacks["right"])


frames = st.lists(
    st.tuples(st.integers(0, 2**32 * 10**9 - 1), st.binary(max_size=300), st.integers(0, 500)), max_size=6
)


@property_test
@given(frames, st.integers(1, 200), st.sampled_from(["pcap", "pcapng"]))
def test_frames_are_written_as_they_are(tmp_path, data, snaplen, format):
    times = [ts for ts, _, _ in data]
    raw = [frame for _, frame, _ in data]
    wire = [len(frame) + more for _, frame, more in data]
    path = write_frames(tmp_path / "x", times, raw, 147, wire_bytes=wire, format=format, snaplen=snaplen)
    body = path.read_bytes()
    if format == "pcapng":
        with open(path, "rb") as file:
            reader = dpkt.pcapng.Reader(file)
            assert reader.datalink() == 147
            assert [bytes(frame) for _, frame in reader] == [frame[:snaplen] for frame in raw]
        return
    assert struct.unpack("<IHHiIII", body[:24])[4:] == (0, snaplen, 147)
    position = 24
    for ts, frame, original in zip(times, raw, wire, strict=True):
        seconds, ns, captured, length = struct.unpack("<IIII", body[position : position + 16])
        position += 16
        assert (seconds * 10**9 + ns, length) == (ts, original)
        assert body[position : position + captured] == frame[:snaplen]
        position += captured
    assert position == len(body)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["x.pcap", "x.pcap.gz", "x.pcap.zst", "x.pcap.xz"])
def test_interrupted_leaves_nothing(tmp_path, name, error):
    columns, keys, _ = some_traffic()
    (tmp_path / name).write_text("the old one")
    with pytest.raises(error), PcapWriter(tmp_path / name) as writer:
        writer.write(columns, keys)
        raise error
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "the old one"


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    columns, keys, _ = some_traffic()
    writer = PcapWriter(tmp_path / "x.pcap")

    def full(data):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"), writer:
        monkeypatch.setattr(writer, "_sink", type("Sink", (), {"write": staticmethod(full)}))
        writer.write(columns, keys)
    assert not list(tmp_path.iterdir())


def test_raw_ip_stays_raw_ip(tmp_path):
    """Ethernet headers would make every packet longer than it was."""
    columns, keys, sacks = some_traffic()
    columns["wire_bytes"][:] = 0  # as long as its headers and payload
    raw = read_capture(write_pcap(tmp_path / "raw.pcap", columns, keys, sacks=sacks, link_type=LINK_RAW))
    raw.to_pcap(tmp_path / "again.pcap")
    again = read_capture(tmp_path / "again.pcap")
    assert again.meta.link_types == ["RAW"]
    pd.testing.assert_frame_equal(again.packets, raw.packets)
    raw.to_pcap(tmp_path / "ethernet.pcap", link_type=1)
    ethernet = read_capture(tmp_path / "ethernet.pcap").packets
    pd.testing.assert_series_equal(ethernet["wire_bytes"], raw.packets["wire_bytes"] + np.uint32(14))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cctoolkit.errors.TruncatedCaptureWarning")
def test_real_captures_survive(tmp_path):
    """Whatever others have captured comes back as it was, but for what the frames cannot say."""
    folder = Path(__file__).parents[2] / "shared" / "captures"
    if not folder.is_dir():
        pytest.skip(f"no captures: {folder} is not there")
    compared = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.stat().st_size > 3_000_000:
            continue
        try:
            first = read_capture(path)
        except CaptureFormatError:
            continue
        if (first.columns["ts_ns"] < 0).any():
            continue
        if np.isin(first.keys.protocol, [0, 43, 44, 51, 60]).any():  # cut in an extension header, AH included
            continue
        second = read_capture(write_pcap(tmp_path / "x.pcap", first))
        # An IPv6 packet with nothing after its header has length 0, so its padding would be payload; an IP length of 0
        # is only written for what is too long; and a packet that goes on in later fragments is written as one frame.
        keys = first.keys
        v6 = keys.ip_version[np.searchsorted(keys.flow_id, first.columns["flow_id"])] == 6
        payload, wire = first.columns["payload_bytes"], first.columns["wire_bytes"]
        unlike = (v6 & (payload == 0)) | (wire > 65_535) | (payload > wire)
        for name in PACKETS:
            same = first.columns[name] == second.columns[name]
            if name in ("wire_bytes", "payload_bytes"):
                same = same | unlike
            assert same.all(), (path.name, name)
        pd.testing.assert_frame_equal(first.sacks, second.sacks)
        for name in ("src", "dst", "sport", "dport", "protocol", "saw_syn", "mss", "window_scale"):
            np.testing.assert_array_equal(
                getattr(keys, name), getattr(second.keys, name), f"{path.name} {name}"
            )
        compared += 1
    assert compared > 500


def test_no_packets_is_a_capture_too(tmp_path):
    columns, keys, _ = some_traffic(0)
    for name in ("x.pcap", "x.pcapng"):
        assert len(read_capture(write_pcap(tmp_path / name, columns, keys))) == 0


def test_bad_arguments(tmp_path):
    columns, keys, _ = some_traffic(5)
    path = tmp_path / "x.pcap"
    with pytest.raises(ParameterError, match="packet 3: flow 1 is not in keys"):
        write_pcap(path, columns | {"flow_id": np.array([0, 0, 0, 1, 0], np.uint32)}, keys)
    with pytest.raises(ParameterError, match=r"packet 2: .*ts_ns = -1"):
        write_pcap(path, columns | {"ts_ns": np.array([0, 0, -1, 1, 0])}, keys)
    with pytest.raises(ParameterError, match="pcap cannot store"):
        write_pcap(path, columns | {"ts_ns": np.full(5, 2**32 * 10**9)}, keys)
    write_pcap(path, columns | {"ts_ns": np.full(5, 2**32 * 10**9)}, keys, format="pcapng")
    path.unlink()
    with pytest.raises(SchemaError, match="'ttl' is missing"):
        write_pcap(path, {name: c for name, c in columns.items() if name != "ttl"}, keys)
    with pytest.raises(SchemaError, match="'seq' is float64, expected uint32"):
        write_pcap(path, columns | {"seq": np.zeros(5)}, keys)
    with pytest.raises(SchemaError, match="different lengths"):
        write_pcap(path, columns | {"seq": np.zeros(4, np.uint32)}, keys)
    with pytest.raises(ParameterError, match="snaplen: 0"):
        write_pcap(path, columns, keys, snaplen=0)
    with pytest.raises(ParameterError, match="format: 'erf'"):
        write_pcap(path, columns, keys, format="erf")
    with pytest.raises(ParameterError, match="link_type: 113"):
        write_pcap(path, columns, keys, link_type=113)
    with pytest.raises(ParameterError, match="keys: required"):
        write_pcap(path, columns)
    with pytest.raises(ParameterError, match="1 times, 0 frames"):
        write_frames(path, [1], [])
    with pytest.raises(ParameterError, match="not open"):
        PcapWriter(path).write(columns, keys)
    assert not list(Path(tmp_path).iterdir())


def two_links(path: Path, snaplen: int) -> Path:
    """The same packets on Ethernet and as raw IP, by turns."""
    parts = [made_captures.section()] + [made_captures.interface("<", link, snaplen) for link in (1, 101)]
    with open(write_pcap(path.with_suffix(".pcap"), *some_traffic(20)[:2]), "rb") as file:
        frames = [frame for _, frame in dpkt.pcap.Reader(file)]
    for i, frame in enumerate(frames):
        raw = frame[14:] if i % 2 else frame
        parts.append(made_captures.enhanced("<", i % 2, 10**6 * i, raw, len(raw)))
    path.write_bytes(b"".join(parts))
    return path


def test_filtering_keeps_link_types_and_snap_length(tmp_path: Path) -> None:
    source = two_links(tmp_path / "two.pcapng", 9000)
    out = tmp_path / "copy.pcapng"
    n = cct.filter_capture(source, out, cct.Selection())
    before, after = read_capture(source), read_capture(out)
    assert n == len(before) == 20
    assert after.meta.link_types == before.meta.link_types == ["EN10MB", "RAW"]
    assert after.meta.snaplen == 9000
    for name, column in before.columns.items():
        np.testing.assert_array_equal(after.columns[name], column)
    with pytest.raises(ParameterError, match="pcapng"):
        cct.filter_capture(source, tmp_path / "copy.pcap", cct.Selection())
    assert not (tmp_path / "copy.pcap").exists()


@pytest.mark.parametrize(
    ("stated", "cut", "expected"), [(60, None, 60), (0, None, 262144), (900, 50, 50), (40, 50, 40)]
)
def test_a_copy_states_the_snap_length_of_the_original(tmp_path: Path, stated, cut, expected) -> None:
    """And cuts nothing to it: some captures have longer frames than their header allows."""
    data = write_pcap(tmp_path / "x.pcap", *some_traffic(20)[:2]).read_bytes()
    source = tmp_path / "stated.pcap"
    source.write_bytes(data[:16] + struct.pack("<I", stated) + data[20:])
    cct.filter_capture(source, tmp_path / "y.pcap", cct.Selection(), snaplen=cut)
    copied = (tmp_path / "y.pcap").read_bytes()
    assert struct.unpack_from("<I", copied, 16) == (expected,)
    if cut is None:
        assert copied[24:] == data[24:]
