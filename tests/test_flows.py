"""Per-flow statistics: against their naive twin, and against tshark on real and on made-up traffic."""

from __future__ import annotations

import functools
import ipaddress
import itertools
import random
import shutil
import struct
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import dpkt
import naive_flows
import naive_rtt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from made_packets import make_keys, packet_columns
from tools import examples
from tshark import ask, tshark_version

import cctoolkit as cct
from cctoolkit import schema
from cctoolkit.analysis.flow_kernels import HOLES
from cctoolkit.analysis.flows import FlowStatistics, flow_table, segment_kinds
from cctoolkit.analysis.rtt import rtt_samples
from cctoolkit.capture.addresses import addresses_text
from cctoolkit.errors import ParameterError, SchemaError

CAPTURES = Path(__file__).parents[2] / "shared" / "captures"
TRACES = Path(__file__).parents[1] / "traces"
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
MS = 1_000_000

COUNTS = [f"{name}_{way}" for name in naive_flows.COUNTED for way in ("fwd", "rev")]


def table_of(columns: dict[str, np.ndarray]) -> pd.DataFrame:
    return flow_table(columns, make_keys(set(columns["flow_id"].tolist()))).set_index("flow_id")


def numbers(table: pd.DataFrame) -> dict[int, dict[str, int | None]]:
    """What the naive twin gives, from a flows table."""
    rows = table.reset_index()[
        ["flow_id", "first_ts_ns", "last_ts_ns", *COUNTS, "handshake_rtt_ns", "syn_rtt_ns"]
    ]
    return {
        int(row.pop("flow_id")): {name: None if pd.isna(v) else int(v) for name, v in row.items()}
        for row in rows.to_dict("records")
    }


# A small world, so that numbers collide: edges near 0, 2**31 and 2**32, few lengths, few windows, all flags.
near = st.sampled_from([base + off for base in (0, 2**31, 2**32) for off in range(-4, 5)]).map(
    lambda x: x % 2**32
)
gap = st.sampled_from([0, 100, 2 * MS, 5 * MS, 19 * MS, 25 * MS, -3 * MS])  # since the packet before
tsval = st.sampled_from([0, 1, 2**32 - 1, 7])
segment = st.tuples(
    gap,
    st.sampled_from([0, 1, 5000]),
    st.integers(0, 1),
    near,
    near,
    st.sampled_from([0, ACK, ACK, ACK, SYN, SYN | ACK, FIN | ACK, RST, RST | ACK, SYN | FIN, PSH | ACK, FIN]),
    st.sampled_from([0, 0, 1, 2, 3, 5, 1500]),
    st.sampled_from([0, 7, 7, 9]),
    tsval,
)
#: One flow's data and ACKs in any order: many holes, filled whole, in part, in the middle, and filled again.
scattered = st.tuples(
    gap,
    st.just(0),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(-20, 40).map(lambda x: x % 2**32),
    st.sampled_from([0, 10, 20, 30]),
    st.sampled_from([ACK, ACK, ACK, FIN | ACK]),
    st.integers(0, 9),
    st.just(7),
    tsval,
)


def timed(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    ts, out = 10**18, []
    for gap, *rest in rows:
        ts += gap
        out.append((ts, *rest))
    return out


@settings(max_examples=examples(600), deadline=None)
@given(
    st.one_of(st.lists(segment, max_size=40), st.lists(scattered, max_size=30)),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_kernel_is_the_naive_twin_and_cuts_do_not_matter(rows, cuts):
    columns = packet_columns(timed(rows))
    keys = make_keys(set(columns["flow_id"].tolist()))
    whole = flow_table(columns, keys)
    flows: dict[int, naive_flows.Flow] = {}
    kinds = [kind for kind, _ in naive_flows.segments(columns, flows, dict.fromkeys(keys.flow_id, 1460))]
    assert all(side.most_holes <= HOLES for flow in flows.values() for side in flow.sides)
    assert numbers(whole) == {flow_id: naive_flows.flow_row(flow) for flow_id, flow in flows.items()}
    assert list(segment_kinds(columns, keys)) == kinds

    statistics = FlowStatistics()
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, stop in itertools.pairwise(edges):
        statistics.update({name: column[start:stop] for name, column in columns.items()}, keys)
    pd.testing.assert_frame_equal(statistics.result(keys), whole)


@st.composite
def recorded_twice(draw):
    """Packets of which some come again, a few packets and up to some milliseconds later."""
    rows = timed(draw(st.lists(st.one_of(segment, scattered), min_size=1, max_size=25)))
    copies = st.tuples(st.integers(0, len(rows) - 1), st.sampled_from([0, 1, 3, 70, 90, 150]))
    late = st.sampled_from([0, 1000, 199_999, 200_000, MS - 1, MS, 3 * MS, 10 * MS])
    for at, lag, later in draw(st.lists(st.tuples(copies, late).map(lambda x: (*x[0], x[1])), max_size=10)):
        ts, *rest = rows[at]
        other = (ts, 9, 0, 1, 1, ACK, 0, 7, 0)  # of another flow, in between
        rows[at + 1 : at + 1] = [other] * lag + [(ts + later, *rest)]
    return rows


@settings(max_examples=examples(300), deadline=None)
@given(recorded_twice(), st.lists(st.integers(0, 200), max_size=3))
def test_copies_are_those_of_the_naive_twin(rows, cuts):
    columns = packet_columns(rows)
    keys = make_keys(set(columns["flow_id"].tolist()))
    flows: dict[int, naive_flows.Flow] = {}
    kinds = [kind for kind, _ in naive_flows.segments(columns, flows, dict.fromkeys(keys.flow_id, 1460))]
    assert list(segment_kinds(columns, keys)) == kinds
    statistics = FlowStatistics()
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, stop in itertools.pairwise(edges):
        statistics.update({name: column[start:stop] for name, column in columns.items()}, keys)
    expected = {flow_id: naive_flows.flow_row(flow) for flow_id, flow in flows.items()}
    assert numbers(statistics.result(keys)) == expected


@pytest.mark.parametrize("lag_us", [1, 20, 200])
@pytest.mark.parametrize("name", ["mixed", "cubic-bbr", "testbed/rtt-reno"])
def test_a_capture_recorded_twice_counts_once(name, lag_us):
    """Each packet again, as a mirror port for both directions records it: with other packets in between."""
    cap = cct.read_capture(next((TRACES / name).parent.glob(f"{name.split('/')[-1]}.ingress.pcap*")))
    ts_ns = cap.columns["ts_ns"]
    twice = np.concatenate([ts_ns, ts_ns + lag_us * 1000])
    order = np.argsort(twice, kind="stable")
    columns = {key: np.concatenate([column, column])[order] for key, column in cap.columns.items()}
    found, once = flow_table(columns | {"ts_ns": twice[order]}, cap.keys), cap.flows
    for way in ("fwd", "rev"):
        for column in ("segments", "retransmits", "retransmitted_bytes", "out_of_order"):
            assert list(found[f"{column}_{way}"]) == list(once[f"{column}_{way}"])
        assert (found[f"copies_{way}"] == once[f"segments_{way}"]).all()


@settings(max_examples=examples(300), deadline=None)
@given(st.builds(naive_rtt.openings, st.integers(0, 2**32), st.integers(0, 60)))
def test_handshakes_are_those_of_the_naive_twin(packets):
    columns = naive_rtt.columns(packets)
    table = flow_table(columns, make_keys(set(columns["flow_id"].tolist())))
    assert numbers(table) == naive_flows.flow_rows(columns)


def test_the_table_is_a_flows_table_and_says_what_is_not_known():
    columns = packet_columns(
        [(5, 3, 0, 1, 1, ACK, 10, 9), (7, 3, 1, 1, 11, ACK, 0, 9), (9, 8, 1, 0, 0, 0, 20, 0)]
    )
    keys = make_keys([3, 8, 9])  # flow 9 has no packet
    table = flow_table(columns, keys)
    schema.check(table, "flows")
    assert table["flow_id"].tolist() == [3, 8]
    assert table["src"].tolist() == ["10.0.0.3", "10.0.0.8"]
    assert table["dst"].tolist() == ["10.255.0.1"] * 2
    assert table["sport"].tolist() == [1027, 1032]
    assert table["first_ts_ns"].tolist() == [5, 9] and table["last_ts_ns"].tolist() == [7, 9]
    assert table["handshake_rtt_ns"].isna().all()
    assert table["mss_fwd"].tolist() == [1460] * 2 and table["mss_rev"].isna().all()
    assert table["window_scale_fwd"].tolist() == [0] * 2 and table["window_scale_rev"].isna().all()
    assert not table["sack_permitted"].any()  # one side is not enough
    assert table["payload_rev"].tolist() == [0, 20] and table["bytes_rev"].tolist() == [54, 74]


def test_no_packets_no_flows():
    table = flow_table(packet_columns([]), make_keys([]))
    schema.check(table, "flows")
    assert len(table) == 0
    assert len(flow_table(packet_columns([]), make_keys([1, 70_000]))) == 0


def test_every_form_of_the_packets_table():
    columns = packet_columns([(5, 0, 0, 1, 1, ACK, 10, 9)])
    keys = make_keys([0])
    expected = flow_table(columns, keys)
    pd.testing.assert_frame_equal(flow_table(pd.DataFrame(columns), keys), expected)
    capture = cct.Capture(columns, keys, meta=None)
    pd.testing.assert_frame_equal(flow_table(capture, keys), expected)
    with pytest.raises(SchemaError, match="window"):
        flow_table(pd.DataFrame(columns).drop(columns="window"), keys)


def test_long_is_more_than_the_threshold_in_one_direction():
    rows = [
        (i, flow, way, 0, 0, 0, n - 54, 0) for i, (flow, way, n) in enumerate([(0, 0, 1000), (1, 0, 1001)])
    ]
    rows += [(9, 2, 0, 0, 0, 0, 600, 0), (10, 2, 1, 0, 0, 0, 600, 0), (11, 3, 1, 0, 0, 0, 1000, 0)]
    columns = packet_columns(rows)
    assert flow_table(columns, make_keys(range(4)), 1000)["is_long"].tolist() == [False, True, False, True]
    with pytest.raises(ParameterError, match="long_flow_bytes"):
        FlowStatistics(0)


def test_sparse_flow_numbers_cost_no_memory():
    columns = packet_columns([(1, 1_500_000, 0, 1, 1, ACK, 10, 9)])
    table_of(columns)  # compiled, imports done
    tracemalloc.start()  # numpy reports what it asks for: 216 bytes a flow id, zeroed lazily
    table = table_of(columns)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table["packets_fwd"].tolist() == [1]
    assert peak < 1_500_001 * 217 + 2_000_000


@given(
    st.lists(
        st.one_of(
            st.binary(min_size=16, max_size=16),
            st.lists(st.sampled_from([b"\0\0", b"\0\1", b"\1\0", b"\x0a\xbc"]), min_size=8, max_size=8).map(
                b"".join
            ),
        ).flatmap(lambda b: st.tuples(st.just(b), st.sampled_from([4, 6]))),
        max_size=20,
    )
)
@settings(deadline=None)
def test_addresses_as_text(rows):
    address = np.frombuffer(b"".join(b for b, _ in rows), np.uint8).reshape(-1, 16)
    version = np.array([v for _, v in rows], np.uint8)

    def expected(b: bytes, v: int) -> str:
        if v == 4:
            return str(ipaddress.IPv4Address(b[:4]))
        if b.startswith(b"\0" * 10 + b"\xff\xff"):  # newer Pythons write these with dots
            high, low = int.from_bytes(b[12:14]), int.from_bytes(b[14:])
            return f"::ffff:{high:x}:{low:x}"
        return str(ipaddress.IPv6Address(b))

    assert addresses_text(address, version).tolist() == [expected(b, v) for b, v in rows]


# ---------------------------------------------------------------------------------------------- tshark

FIELDS = {
    "tshark_retransmits": "tcp.analysis.retransmission",
    "tshark_out_of_order": "tcp.analysis.out_of_order",
    "duplicate_acks": "tcp.analysis.duplicate_ack",
    "initial_rtt": "tcp.analysis.initial_rtt",
    "stream": "tcp.stream",
    "seq": "tcp.seq_raw",
    "ack": "tcp.ack_raw",
    "flags": "tcp.flags",
    "length": "tcp.len",
}


CLASSES = ["tshark_retransmits", "tshark_out_of_order", "duplicate_acks"]


def tshark(path: Path) -> pd.DataFrame:
    """One row a TCP segment (those quoted in ICMP errors left out), with what tshark says of it."""
    options = [word for name in FIELDS.values() for word in ("-e", name)]
    out = ask(path, "-Y", "tcp and not icmp and not icmpv6", "-T", "fields", *options, check=False)
    table = pd.DataFrame([line.split("\t") for line in out.splitlines()], columns=list(FIELDS), dtype=str)
    for name in CLASSES:
        table[name] = (table[name] != "").astype(int)
    return table


@functools.cache
def tshark_release() -> tuple[int, int]:
    major, minor = next(word for word in tshark_version().split() if word[0].isdigit()).split(".")[:2]
    return int(major), int(minor)


needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not on PATH")


def assert_same_classification(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """`ours`: a flows table by flow_id; `theirs`: one row a segment with flow_id and direction.

    The rules are those of tshark 4.0. Later releases draw the line between out of order and retransmitted
    elsewhere, and look at SACK for duplicate ACKs: there the sum of the first two is compared.
    """
    counted = theirs.groupby(["flow_id", "direction"])[CLASSES].sum()
    for (flow_id, direction), row in counted.iterrows():
        way = ("fwd", "rev")[direction]
        mine = [int(ours.loc[flow_id, f"{name}_{way}"]) for name in CLASSES]
        if tshark_release() == (4, 0):
            assert mine == row.tolist(), f"flow {flow_id} {way}: {CLASSES}"
        else:
            assert sum(mine[:2]) == row.iloc[:2].sum(), f"flow {flow_id} {way}: {CLASSES[:2]}"


def real_captures() -> list:
    """Small captures at once, the rest as slow."""
    paths = [p for folder in ("semantics", "rtt", "cc") for p in sorted((CAPTURES / folder).rglob("*.*"))]
    return [
        pytest.param(p, id=p.name, marks=() if p.parent.name == "semantics" else pytest.mark.slow)
        for p in paths
        if p.is_file() and ".erf" not in p.name  # ERF is no pcap
    ] or [pytest.param(None, marks=pytest.mark.skip(reason=f"no captures at {CAPTURES}"))]


#: Capture: {flow: (tshark's initial RTT, ours)}. Only differences stand here.
HANDSHAKES = {
    # The connection is refused: tshark takes the RST+ACK for the end of a handshake.
    "tests__pcaps__alexa-app.pcapng": {
        **{31: (2_171_000, None), 84: (87_104_000, None)},
        # The SYN was sent again before its SYN/ACK came: which of the two was answered?
        **{87: (243_574_000, None), 88: (210_230_000, None), 99: (74_580_000, None)},
        **{105: (189_782_000, None), 140: (175_555_000, None)},
        # It was sent again after its SYN/ACK, when the ACK was already on the way.
        89: (3_451_000, 1_000_505_000),
    },
    "synrexmit.pcap": {0: (60_000_000, None)},
    # Two SYN/ACKs passed, without timestamps.
    "input__bad_ack_code.dmp.gz": {0: (39_508_000, None)},
    "input__pcap_v2.2.dmp.gz": {0: (39_508_000, None)},
    # The ACK was lost, or data went with it: only the data passed.
    "input__http.dmp.gz": {41: (189_479_000, None)},
    # Answered after longer than a segment is sure not to be sent again.
    "input__rawppp.pcap.gz": {1: (996_510_000, None)},
    # The clock ticks every 10 ms and the handshake ends within a tick: tshark takes 0 for "not yet".
    "input__zwnd.dmp.gz": {1: (10_000_000, 0)},
}


@needs_tshark
@pytest.mark.tshark
@pytest.mark.filterwarnings("ignore::cctoolkit.errors.TruncatedCaptureWarning")
@pytest.mark.parametrize("path", real_captures())
def test_real_captures_agree_with_tshark(path):
    capture = cct.read_capture(path)
    theirs = tshark(path)
    rows = capture.columns["tcp_flags"] != 0
    assert rows.sum() == len(theirs)
    if not len(theirs):
        assert capture.flows[[f"{name}_fwd" for name in CLASSES]].sum().sum() == 0
        return
    assert (
        capture.columns["seq"][rows].tolist() == theirs["seq"].astype("int64").tolist()
    )  # the same segments
    theirs["flow_id"] = capture.columns["flow_id"][rows]
    theirs["direction"] = capture.columns["direction"][rows]
    assert len(theirs[["flow_id", "stream"]].drop_duplicates()) == theirs["stream"].nunique()

    flows = capture.flows.set_index("flow_id")
    assert_same_classification(flows, theirs)

    answered = (
        theirs[theirs["initial_rtt"] != ""].drop_duplicates("flow_id").set_index("flow_id")["initial_rtt"]
    )
    initial_rtt = {flow: round(float(text) * 1e9) for flow, text in answered.items()}
    handshake = flows["handshake_rtt_ns"].dropna().to_dict()
    different = {
        flow: (initial_rtt.get(flow), handshake.get(flow))
        for flow in initial_rtt.keys() | handshake.keys()
        if initial_rtt.get(flow) != handshake.get(flow)
    }
    assert different == HANDSHAKES.get(path.name, {})
    samples = rtt_samples(capture, method="handshake")
    assert dict(zip(samples["flow_id"].tolist(), samples["rtt_ns"].tolist(), strict=True)) == handshake


@pytest.mark.filterwarnings("ignore::cctoolkit.errors.TruncatedCaptureWarning")
@pytest.mark.parametrize("path", real_captures())
def test_real_captures_count_as_with_all_ranges_remembered(path):
    """Sixteen holes are as good as all of them on real traffic."""
    capture = cct.read_capture(path)
    mss_of = capture.keys.mss.astype(int)
    announced = np.where(mss_of == 0, 2**16, mss_of).min(axis=1) % 2**16
    flows: dict[int, naive_flows.Flow] = {}
    mss = dict(zip(capture.keys.flow_id.tolist(), announced.tolist(), strict=True))
    kinds = [kind for kind, _ in naive_flows.segments(capture.columns, flows, mss)]
    assert list(segment_kinds(capture)) == kinds
    assert numbers(capture.flows) == {flow_id: naive_flows.flow_row(flow) for flow_id, flow in flows.items()}


def write_pcap(path: Path, rows: Iterable[tuple[int, ...]]) -> None:
    """The rows of `packet_columns` as a raw-IP pcap, addresses and ports those of `make_keys`."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 101))
        for ts, flow, direction, seq, ack, flags, length, window in rows:
            ends = [(bytes([10, 0, flow // 256, flow % 256]), 1024 + flow), (bytes([10, 255, 0, 1]), 9999)]
            (src, sport), (dst, dport) = ends[direction], ends[1 - direction]
            segment = dpkt.tcp.TCP(
                sport=sport, dport=dport, seq=seq, ack=ack, flags=flags, win=window, data=bytes(length)
            )
            packet = bytes(dpkt.ip.IP(src=src, dst=dst, p=6, len=40 + length, data=segment))
            file.write(struct.pack("<IIII", *divmod(ts, 10**9), len(packet), len(packet)) + packet)


def conversation(dice: random.Random, flow: int, ts: int) -> list[tuple[int, ...]]:
    """A short, faulty TCP conversation: loss, repeats, reordering, probes, keep-alives, wrapping numbers.

    It stays clear of the differences that the next test is about: no side acknowledges what was not sent, and no
    reset is beyond the edge.
    """
    gaps = [100, 400_000, 2 * MS, 5 * MS, 19 * MS, 25 * MS, 300 * MS]
    start = [dice.choice([99_999, 2**31 - 1, 2**32 - 53]), dice.choice([89_999, 2**32 - 33, 70_000])]
    edge = [start[0] + 1, start[1] + 1]
    rows = []

    def send(direction, seq, ack, flags, length=0, window=100):
        nonlocal ts
        ts += dice.choice(gaps)
        rows.append((ts, flow, direction, seq % 2**32, ack % 2**32, flags, length, window))
        return seq + length + bool(flags & (SYN | FIN))

    seen = [False, False]
    if dice.random() < 0.6:
        send(0, start[0], 0, SYN)
        while dice.random() < 0.2:
            send(0, start[0], 0, SYN)
        send(1, start[1], edge[0], SYN | ACK)
        while dice.random() < 0.2:
            send(1, start[1], edge[0], SYN | ACK)
        send(0, edge[0], edge[1], ACK)
        seen = [True, True]
    for _ in range(dice.randint(1, 16)):
        way = int(dice.random() < 0.4)
        flags = dice.choice([ACK] * 20 + [FIN | ACK, RST | ACK])
        length = 0 if flags & RST else dice.choice([0, 0, 0, 10, 10, 10, 1, 2, 20])
        seq = edge[way] + dice.choice([0, 0, 0, 0, -1, 1, 10, -10, -20, 20, -5, -2])
        if flags & RST:
            if not seen[way]:
                continue
            seq = min(seq, edge[way])
        ack = edge[1 - way] - dice.choice([0, 0, 0, 0, 0, 1, 10, 20])
        end = send(way, seq, ack, flags, length, dice.choice([100, 100, 100, 100, 0, 200]))
        edge[way] = max(end, edge[way]) if seen[way] else end
        seen[way] = True
    return rows


@pytest.mark.slow
@needs_tshark
@pytest.mark.tshark
def test_faulty_conversations_agree_with_tshark(tmp_path):
    dice = random.Random(5)
    flows = [conversation(dice, flow, 10**18 + 1000 * flow) for flow in range(2000)]
    # An edge or acknowledgment of exactly 0 is a known difference (next test).
    flows = [
        rows
        for rows in flows
        if all(
            seq and (ack or not flags & ACK) and (seq + length + bool(flags & (SYN | FIN))) % 2**32
            for _, _, _, seq, ack, flags, length, _ in rows
        )
    ]
    rows = sorted(row for flow in flows for row in flow)
    write_pcap(tmp_path / "faulty.pcap", rows)
    theirs = tshark(tmp_path / "faulty.pcap")
    columns = packet_columns(rows)
    assert theirs["seq"].astype("int64").tolist() == columns["seq"].tolist()
    theirs["flow_id"], theirs["direction"] = columns["flow_id"], columns["direction"]
    assert len(flows) > 1500
    assert (theirs[CLASSES].sum() > 200).all()
    assert_same_classification(table_of(columns), theirs)


def _handshake(ts: int = 0, isn: int = 1000) -> list[tuple[int, ...]]:
    """(ts, direction, seq, ack, flags, length, window); the round trip takes 10 ms."""
    return [
        (ts, 0, isn, 0, SYN, 0, 100),
        (ts + 9 * MS, 1, 5000, isn + 1, SYN | ACK, 0, 100),
        (ts + 10 * MS, 0, isn + 1, 5001, ACK, 0, 100),
    ]


#: Name: segments, what is looked at, tshark 4.0's answer, ours.
DIFFERENCES = {
    "an edge of exactly 0 is an edge": (
        [(0, 0, 2**32 - 10, 1, ACK, 10, 100), (50 * MS, 0, 2**32 - 10, 1, ACK, 10, 100)],
        "tshark_retransmits_fwd",
        0,
        1,
    ),
    "an acknowledgment of exactly 0 acknowledges": (
        [(0, 1, 1, 0, ACK, 0, 100), (50 * MS, 0, 2**32 - 10, 1, ACK, 10, 100)],
        "tshark_retransmits_fwd",
        0,
        1,
    ),
    "a segment without ACK does not acknowledge": (
        [
            *_handshake(),
            (20 * MS, 0, 1001, 5001, ACK, 10, 100),
            (30 * MS, 1, 5001, 1011, ACK, 0, 100),
            (40 * MS, 1, 5001, 0, RST, 0, 0),
            (50 * MS, 1, 5001, 1011, ACK, 0, 0),
            (51 * MS, 0, 1011, 5001, ACK, 10, 100),
            (52 * MS, 1, 5001, 0, RST, 0, 0),
            (53 * MS, 0, 1001, 5001, ACK, 10, 100),
        ],
        "tshark_out_of_order_fwd",
        1,
        0,
    ),
    "acknowledging what was not captured is not two duplicate ACKs": (
        [
            (0, 0, 11, 1000, ACK, 0, 100),
            (1000, 1, 1000, 31, ACK, 2, 100),
            (2000, 1, 1000, 31, ACK, 10, 100),
            (3000, 1, 1010, 31, ACK, 10, 100),
        ],
        "tshark_out_of_order_rev",
        0,
        1,
    ),
    "the first SYN's copy in the middle of a connection does not move the edge back": (
        [
            *_handshake(),
            (20 * MS, 0, 1021, 5001, ACK, 10, 100),
            (60 * MS, 0, 1000, 0, SYN, 0, 100),
            (120 * MS, 0, 1011, 5001, ACK, 10, 100),
        ],
        "tshark_retransmits_fwd",
        1,
        2,
    ),
    "a reset beyond the edge does not move it": (
        [
            *_handshake(),
            (20 * MS, 0, 1001, 5001, ACK, 10, 100),
            (30 * MS, 0, 5_001_001, 5001, RST | ACK, 0, 100),
            (60 * MS, 0, 1011, 5001, ACK, 10, 100),
        ],
        "tshark_retransmits_fwd",
        1,
        0,
    ),
    "further back than any window is another connection, not a retransmission": (
        [
            (0, 0, 3_000_000_000, 1, ACK, 10, 100),
            (50 * MS, 0, 1_900_000_000, 1, ACK, 10, 100),
            (90 * MS, 0, 1_900_000_010, 1, ACK, 10, 100),
        ],
        "tshark_retransmits_fwd",
        2,
        0,
    ),
    "a refused connection took no handshake": (
        [(0, 0, 1000, 0, SYN, 0, 100), (10 * MS, 1, 0, 1001, RST | ACK, 0, 0)],
        "handshake_rtt_ns",
        10 * MS,
        None,
    ),
    "a handshake within a tick of the clock took 0": (
        [(0, 0, 1000, 0, SYN, 0, 9), (0, 0, 1001, 5001, ACK, 0, 9), (30 * MS, 0, 1001, 5001, ACK, 9, 9)],
        "handshake_rtt_ns",
        30 * MS,
        0,
    ),
    "a later segment does not end a handshake whose last ACK was not captured": (
        [
            (0, 0, 1000, 0, SYN, 0, 9),
            (10 * MS, 1, 5000, 1001, SYN | ACK, 0, 9),
            (90 * MS, 0, 1010, 5001, ACK, 9, 9),
        ],
        "handshake_rtt_ns",
        90 * MS,
        None,
    ),
    "data from the responder does not end the initiator's handshake; that it came says that an ACK was missed": (
        [
            (0, 0, 1000, 0, SYN, 0, 9),
            (10 * MS, 1, 5001, 1001, ACK, 9, 9),
            (30 * MS, 0, 1001, 5010, ACK, 0, 9),
        ],
        "handshake_rtt_ns",
        10 * MS,
        None,
    ),
    "a repeated SYN starts the clock again, but which of the two was answered is not certain": (
        [(0, 0, 1000, 0, SYN, 0, 9), *_handshake(1000 * MS)],
        "handshake_rtt_ns",
        10 * MS,
        None,
    ),
    "a SYN/ACK that was lost on the way to the tap is not part of the round trip": (
        [(0, 0, 1000, 0, SYN, 0, 9), *_handshake(1000 * MS)[1:]],
        "handshake_rtt_ns",
        1010 * MS,
        None,
    ),
    "a first segment that was sent again ends no handshake": (
        [*_handshake()[:2], (2843 * MS, 0, 1001, 5001, ACK, 10, 100)],
        "handshake_rtt_ns",
        2843 * MS,
        None,
    ),
}


def _loss(duplicates: int, later: int, seq: int = 1001) -> list[tuple[int, ...]]:
    """Three segments, so many duplicate ACKs for the first, and `later` a segment below the edge.

    The handshake took 100 ms: what is not a fast retransmission is out of order.
    """
    rows = [(0, 0, 1000, 0, SYN, 0, 100), (99 * MS, 1, 5000, 1001, SYN | ACK, 0, 99)]
    rows += [(100 * MS, 0, 1001, 5001, ACK, 0, 100)]
    rows += [(101 * MS, 0, 1001 + 10 * i, 5001, ACK, 10, 100) for i in range(3)]
    rows += [(110 * MS, 1, 5001, 1001, ACK, 0, 100)] * (duplicates + 1)
    return [*rows, (110 * MS + later, 0, seq, 5001, ACK, 10, 100)]


#: The same on both sides.
AGREEMENTS = {
    "two duplicate ACKs ask for a segment": (_loss(2, 20 * MS - 1), "tshark_retransmits_fwd", 1),
    "they asked too long ago": (_loss(2, 20 * MS), "tshark_out_of_order_fwd", 1),
    "one duplicate ACK does not ask": (_loss(1, 1 * MS), "tshark_out_of_order_fwd", 1),
    "another segment was asked for": (_loss(2, 1 * MS, seq=1005), "tshark_out_of_order_fwd", 1),
    "duplicate ACKs are counted for who sends them": (_loss(2, 1 * MS), "duplicate_acks_rev", 2),
    "no SYN, no handshake": (_handshake()[1:], "handshake_rtt_ns", None),
    "only the first ACK counts": (
        [*_handshake(), (90 * MS, 0, 1001, 5001, ACK, 10, 100)],
        "handshake_rtt_ns",
        10 * MS,
    ),
    "one direction is enough": (  # tshark prints it only where it has something to say, such as of a repeat
        [_handshake()[0], _handshake()[2], *[(ms * MS, 0, 1001, 5001, ACK, 9, 9) for ms in (20, 90)]],
        "handshake_rtt_ns",
        10 * MS,
    ),
}


@pytest.fixture(scope="module")
def case_rows() -> list[tuple[int, ...]]:
    cases = [*DIFFERENCES.values(), *AGREEMENTS.values()]
    return [(10**18 + ts, flow, *rest) for flow, case in enumerate(cases) for ts, *rest in case[0]]


@pytest.fixture(scope="module")
def case_table(case_rows) -> pd.DataFrame:
    return table_of(packet_columns(case_rows))


@pytest.fixture(scope="module")
def case_tshark(case_rows, tmp_path_factory) -> pd.DataFrame:
    path = tmp_path_factory.mktemp("cases") / "cases.pcap"
    write_pcap(path, case_rows)
    table = tshark(path)
    table["flow_id"] = [row[1] for row in case_rows]
    table["direction"] = [row[2] for row in case_rows]
    return table


def tshark_answer(table: pd.DataFrame, flow: int, what: str) -> int | None:
    rows = table[table["flow_id"] == flow]
    if what == "handshake_rtt_ns":
        answers = [text for text in rows["initial_rtt"] if text]
        return round(float(answers[0]) * 1e9) if answers else None
    name, way = what.rsplit("_", 1)
    return int(rows[rows["direction"] == ("fwd", "rev").index(way)][name].sum())


def our_answer(table: pd.DataFrame, flow: int, what: str) -> int | None:
    value = table.loc[flow, what]
    return None if pd.isna(value) else int(value)


@needs_tshark
@pytest.mark.tshark
@pytest.mark.parametrize("name", DIFFERENCES)
def test_known_differences_from_tshark(name, case_table, case_tshark):
    flow = list(DIFFERENCES).index(name)
    _, what, theirs, ours = DIFFERENCES[name]
    assert our_answer(case_table, flow, what) == ours
    if tshark_release() == (4, 0):
        assert tshark_answer(case_tshark, flow, what) == theirs


@needs_tshark
@pytest.mark.tshark
@pytest.mark.parametrize("name", AGREEMENTS)
def test_known_agreements_with_tshark(name, case_table, case_tshark):
    flow = len(DIFFERENCES) + list(AGREEMENTS).index(name)
    _, what, both = AGREEMENTS[name]
    assert our_answer(case_table, flow, what) == both
    assert tshark_answer(case_tshark, flow, what) == both
