"""RTT samples against what others say, sample by sample, on real captures: tshark, tcptrace, and pping's rules."""

from __future__ import annotations

import functools
import gzip
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tshark import ask

sys.path.insert(0, str(Path(__file__).parent))
import naive_rtt
from naive_rtt import ACK, FIN, RST, SYN, packet

import cctoolkit as cct
from cctoolkit.analysis.handshake import LONGEST_HALF_NS
from cctoolkit.analysis.rtt import RttPairing, rtt_samples
from cctoolkit.capture.keys import FlowKeys
from cctoolkit.capture.writer import write_pcap

CAPTURES = Path(__file__).parents[2] / "shared" / "captures"
FILES = sorted(
    p for kind in ("rtt", "cc") for p in (CAPTURES / kind).glob("*/*") if not p.name.endswith(".erf.gz")
)
SEMANTICS = sorted((CAPTURES / "semantics").glob("*.pcap"))

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not on PATH")
needs_tcptrace = pytest.mark.skipif(shutil.which("tcptrace") is None, reason="tcptrace is not on PATH")
needs_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures in {CAPTURES}")
pytestmark = pytest.mark.tshark


def by_size(paths):
    """One parameter a capture; those that keep tshark busy for a second or more are slow."""
    return [
        pytest.param(p, id=p.name, marks=[pytest.mark.slow] if p.stat().st_size > 1_000_000 else [])
        for p in paths
    ]


# ---------------------------------------------------------------- what the others say

PREFERENCES = {
    "tcp.relative_sequence_numbers": "FALSE",
    "tcp.desegment_tcp_streams": "FALSE",  # one line a segment, whatever is inside
    "ip.defragment": "FALSE",
}
FIELDS = [
    "frame.time_epoch",
    "tcp.stream",
    "tcp.flags",
    "tcp.len",
    "tcp.analysis.acks_frame",
    "tcp.analysis.ack_rtt",
    "tcp.analysis.initial_rtt",
]


def nanoseconds(text):
    seconds, _, fraction = text.partition(".")
    return int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))


@functools.cache
def tshark(path):
    """One dict a TCP segment (not those quoted in ICMP errors, not those without any flag)."""
    options = [part for name, value in PREFERENCES.items() for part in ("-o", f"{name}:{value}")]
    options += [part for name in FIELDS for part in ("-e", name)]
    out = ask(path, "-Y", "tcp && !icmp && !icmpv6", "-T", "fields", *options)
    rows = [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in out.splitlines()]
    return [row for row in rows if int(row["tcp.flags"], 16) & 0x1FF]


@functools.cache
def read(path):
    cap = cct.read_capture(path)
    return cap, np.flatnonzero(cap.columns["tcp_flags"])


def aligned(path):
    """The capture, tshark's segments, and which of these a row of the packets table is."""
    cap, rows = read(path)
    theirs = tshark(path)
    assert [int(t) for t in cap.columns["ts_ns"][rows]] == [
        nanoseconds(row["frame.time_epoch"]) for row in theirs
    ]
    return cap, theirs, {int(row): i for i, row in enumerate(rows)}


# ---------------------------------------------------------------- tcp.analysis.ack_rtt


@functools.cache  # two tests compare the same captures
def compare_ack_rtt(path, differing=()):
    """Without Karn's rule every sample is tshark's, from the same frame, of the same length."""
    cap, theirs, segment = aligned(path)
    found = RttPairing("seq_ack", karn=False)
    samples = found.update(cap.columns)
    mine = {segment[int(p)]: int(rtt) for p, rtt in zip(samples["packet"], samples["rtt_ns"], strict=True)}
    assert found.counters["backwards"] == found.counters["one_way_dropped"] == 0
    matched = {i for i, row in enumerate(theirs) if row["tcp.analysis.acks_frame"]}
    assert mine.keys() ^ matched == set(differing)
    for i in mine.keys() & matched:
        # Two segments in the same tick of the clock: tshark names the acknowledged frame, but shows no RTT of 0.
        assert mine[i] == nanoseconds(theirs[i]["tcp.analysis.ack_rtt"] or "0"), theirs[i]
    return len(mine), sum(rtt == 0 for rtt in mine.values())


@pytest.mark.slow
@needs_tshark
@needs_captures
@pytest.mark.parametrize("path", by_size(FILES + SEMANTICS))
def test_ack_rtt(path):
    compare_ack_rtt(path)


@pytest.mark.slow
@needs_tshark
@needs_captures
def test_captures_have_samples_to_compare():
    """The test above on captures without samples would say nothing; and zeros do occur."""
    counts = {p.name: compare_ack_rtt(p) for p in FILES if p.stat().st_size < 1_000_000}
    assert sum(n for n, _ in counts.values()) > 20_000
    assert counts["input__zwnd.dmp.gz"] == (8681, 8654)  # its clock ticks every 10 ms
    assert {name for name, (_, zeros) in counts.items() if zeros} == {
        "input__zwnd.dmp.gz",
        "input__psc.fddi.dmp.gz",
    }


# ---------------------------------------------------------------- tcp.analysis.initial_rtt


@pytest.mark.slow
@needs_tshark
@needs_captures
@pytest.mark.parametrize("path", by_size(FILES + SEMANTICS))
def test_initial_rtt(path):
    cap, theirs, segment = aligned(path)
    samples = RttPairing("handshake").update(cap.columns)
    mine = {}
    for p, rtt in zip(samples["packet"], samples["rtt_ns"], strict=True):
        stream = theirs[segment[int(p)]]["tcp.stream"]
        assert stream not in mine  # one a connection
        mine[stream] = int(rtt)
    shown = (row for row in theirs if row["tcp.analysis.initial_rtt"])
    initial = {row["tcp.stream"]: nanoseconds(row["tcp.analysis.initial_rtt"]) for row in shown}
    for stream in initial.keys() | mine.keys():
        if initial.get(stream) == mine.get(stream):
            continue
        rows = [row for row in theirs if row["tcp.stream"] == stream]
        answer = next(row for row in rows if int(row["tcp.flags"], 16) & (SYN | ACK) == ACK)
        refused = int(answer["tcp.flags"], 16) & RST and stream not in mine
        same_tick = mine.get(stream) == 0  # for tshark 0 is "none yet": it takes a later ACK
        opening = [int(row["tcp.flags"], 16) & (SYN | ACK) for row in rows[: rows.index(answer)]]
        again = opening.count(SYN) > 1 or opening.count(SYN | ACK) > 1  # tshark starts at the last SYN
        carries_data = answer["tcp.len"] != "0" and stream not in mine
        slow = initial.get(stream, 0) > LONGEST_HALF_NS and stream not in mine
        explained = refused or same_tick or again or carries_data or slow
        assert explained, (stream, initial.get(stream), mine.get(stream))


# ---------------------------------------------------------------- made up: random streams, and each difference


def keys_for(flows):
    """Five-tuples for flows 0 to `flows` - 1."""
    number = np.arange(flows, dtype=np.uint32)
    address = np.zeros((flows, 16), np.uint8)
    address[:, 0] = 10
    address[:, 3] = 1 + number % 250
    none = np.zeros((flows, 2), np.uint16)
    return FlowKeys(
        flow_id=number,
        ip_version=np.full(flows, 4, np.uint8),
        protocol=np.full(flows, 6, np.uint8),
        sport=(1024 + number).astype(np.uint16),
        dport=np.full(flows, 9, np.uint16),  # discard: no dissector minds what is inside
        src=address,
        dst=address + np.eye(1, 16, 2, dtype=np.uint8),
        saw_syn=np.zeros(flows, bool),
        mss=none,
        window_scale=np.full((flows, 2), 255, np.uint8),
        sack_permitted=np.zeros((flows, 2), bool),
    )


def written(path, packets):
    """The packets as a capture file, in order of time."""
    packets = [p | {"wire_bytes": 60 + p["payload_bytes"], "window": 1000, "ttl": 64} for p in packets]
    packets.sort(key=lambda p: p["ts_ns"])
    write_pcap(path, naive_rtt.columns(packets), keys_for(1 + max(p["flow_id"] for p in packets)))
    return path


@needs_tshark
def test_ack_rtt_of_random_streams(tmp_path):
    """Loss, reordering, retransmissions of any cut, partial and stale ACKs, FINs, wraps: 150 streams in one capture."""
    packets = []
    for seed in range(150):
        for p in naive_rtt.stream(seed, 60, kinds=["data", "data", "ack", "ack", "again", "fin"]):
            when = 10**12 + len(packets) * 1_000_000
            packets.append(p | {"flow_id": 3 * seed + p["flow_id"], "ts_ns": when, "has_ts": False})
    path = written(tmp_path / "random.pcap", packets)
    compared, _ = compare_ack_rtt(path)
    assert compared > 1000


OPEN = [packet(0, 0, 99, flags=SYN), packet(10, 1, 499, 100, flags=SYN | ACK), packet(30, 0, 100, 500)]
AT = len(OPEN)  # of the packets that follow


@pytest.mark.slow
@needs_tshark
@pytest.mark.parametrize(
    ("packets", "differing"),
    [
        pytest.param([packet(100, 0, 100, 500, 10, flags=RST | ACK), packet(110, 1, 500, 110)], [], id="rst-data"),
        pytest.param([packet(100, 0, 100, 500, 10), packet(110, 1, 500, 110, flags=RST | ACK)], [], id="rst-answers"),
        pytest.param(
            [packet(100, 0, 100, 500, 10), packet(110, 1, 500, 110, flags=8), packet(120, 1, 500, 110)],
            [AT + 1, AT + 2],  # tshark believes the first, whose number is not valid, and the ACK finds nothing left
            id="no-ack-flag",
        ),
        pytest.param(
            [packet(100, 0, 200, 500, 0, flags=SYN | FIN | ACK), packet(110, 1, 500, 202)],
            [AT + 1],  # SYN and FIN are one each
            id="syn-and-fin",
        ),
        pytest.param(
            [packet(100, 0, 100 + 2**29, 500, 10), packet(110, 1, 500, 110 + 2**29)], [], id="jump-within-the-window"
        ),
        pytest.param(
            [packet(100, 0, 100, 500, 10), packet(105, 0, 100 + 3 * 2**29, 500, 10), packet(110, 1, 500, 110)],
            [AT + 2],  # no window holds both segments: only tshark still waits for the first
            id="jump-beyond-any-window",
        ),
        pytest.param(
            [packet(100, 0, 100, 500, 10), packet(105, 1, 500, 2**30), packet(110, 1, 500, 110)],
            [AT + 2],  # to tshark the stray ACK has covered the segment
            id="ack-of-nothing-sent",
        ),
        pytest.param(
            [packet(100 + i / 1000, 0, 100 + i, 500, 1) for i in range(10_001)] + [packet(200, 1, 500, 10_101)],
            [AT + 10_001],  # tshark has stopped remembering
            id="ten-thousand-segments",
        ),
    ],
)  # fmt: skip
def test_every_difference_there_is(tmp_path, packets, differing):
    compare_ack_rtt(written(tmp_path / "made.pcap", OPEN + packets), tuple(differing))


# ---------------------------------------------------------------- tcptrace


def plain(path, tmp_path):
    """tcptrace reads gz through programs that may not be there."""
    if path.suffix != ".gz":
        return path
    unpacked = tmp_path / "unpacked.pcap"
    unpacked.write_bytes(gzip.decompress(path.read_bytes()))
    return unpacked


def tcptrace(path, tmp_path):
    """Its samples as (time of the ACK in us, RTT in ms), counted; those of 0 and 1 us it does not draw."""
    subprocess.run(
        ["tcptrace", "-n", "-R", str(plain(path, tmp_path))], cwd=tmp_path, capture_output=True, check=False
    )
    graphs = tmp_path.glob("*_rtt.xpl")
    dots = (
        m for graph in graphs for m in re.finditer(r"^dot (\d+)\.(\d{6}) (\d+)$", graph.read_text(), re.M)
    )
    return Counter((int(m[1]) * 1_000_000 + int(m[2]), int(m[3])) for m in dots)


def why_not(columns, time_us, rtt_ms):
    """Why Karn's rule as it is here gives no such sample, though tcptrace does."""
    flow, side, seq, ack = (columns[name].astype(np.int64) for name in ("flow_id", "direction", "seq", "ack"))
    flags, ts = columns["tcp_flags"], columns["ts_ns"] // 1000
    end = (seq + columns["payload_bytes"] + (flags >> 1 & 1) + (flags & 1)) % 2**32
    for i in np.flatnonzero((ts == time_us) & (flags & ACK > 0)):
        if flags[i] & RST:
            return "the answer is a RST"
        before = np.arange(i)
        sent = before[(flow[:i] == flow[i]) & (side[:i] != side[i]) & (end[:i] != seq[:i])]
        answers = before[(flow[:i] == flow[i]) & (side[:i] == side[i])]
        for j in sent[(end[sent] == ack[i]) & ((time_us - ts[sent]) // 1000 == rtt_ms)]:
            if (end[sent[sent < j]] > seq[j]).any():
                return "it began below the highest byte"
            if (ack[answers[answers < j]] >= end[j]).any():
                return "its ACK passed before it"
    return None


#: Captures tcptrace cannot read, does not read as the others do, or finds no connection in.
NOT_FOR_TCPTRACE = {
    "results__skype__bfid__skype_bi_dualpi2_l.pcap.gz": "UDP only",
    "results__skype__bfid__skype_bi_fq_codel.pcap.gz": "UDP only",
    "test__traces__ip-in-mpls.pcap.gz": "MPLS",
    "input__ipopts.dmp.gz": "ICMP only",
    "input__long_rtt.dmp.gz": "IP lengths beyond the frames' original lengths: tcptrace believes IP, tshark the frames",
}


#: Samples tcptrace has besides, and why they are none here (cctoolkit.analysis.rtt, "Karn's rule").
ONLY_TCPTRACE = {
    "tests__rule-hooks__http-body-hook-01__input.pcap": {"it began below the highest byte": 1},
    "input__urgent.dmp.gz": {"it began below the highest byte": 3},
    "tests__pcaps__alexa-app.pcapng": {"the answer is a RST": 2},
    "testing__btest__Traces__modbus__modbusBig.pcap": {"its ACK passed before it": 1},
    "rst.pcap": {"the answer is a RST": 1},
}
#: Samples it has not: it gives a segment up at the first ACK inside it.
NOT_TCPTRACE = {"partial.pcap": {(1_001_300_000, 300): 1}}


@needs_tcptrace
@needs_captures
@pytest.mark.parametrize("path", by_size([p for p in FILES + SEMANTICS if p.name not in NOT_FOR_TCPTRACE]))
def test_karn_is_tcptrace(path, tmp_path):
    """With Karn's rule the samples are tcptrace's, but for those above, each for a reason known by name."""
    theirs = tcptrace(path, tmp_path)
    table = rtt_samples(read(path)[0])
    table = table[table["rtt_ns"] >= 2000]
    times = zip((table["ts_ns"] // 1000).tolist(), (table["rtt_ns"] // 1_000_000).tolist(), strict=True)
    mine = Counter(times)
    assert mine - theirs == NOT_TCPTRACE.get(path.name, {})
    reasons = Counter(why_not(read(path)[0].columns, *sample) for sample in (theirs - mine).elements())
    assert reasons == ONLY_TCPTRACE.get(path.name, {})
    assert mine or path.name == "input__bad_tcp_checksum.dmp.gz"  # which shows one direction only


# ---------------------------------------------------------------- pping


def why_differs_from_pping(columns, packet):
    """What pping and method timestamps treat differently (see :func:`cctoolkit.rtt_samples`) about a sample."""
    flow, side, value = (columns[name][packet] for name in ("flow_id", "direction", "tsecr"))
    stamped = columns["has_ts"] & (columns["flow_id"] == flow)
    seen = np.flatnonzero(stamped & (columns["direction"] != side) & (columns["tsval"] == value))
    # what pping looks at; it takes a SYN with ECN flags for none
    stamped &= (columns["tsval"] != 0) & ((columns["tsecr"] != 0) | (columns["tcp_flags"] == SYN))
    ours, theirs = (np.flatnonzero(stamped & (columns["direction"] == d)) for d in (1 - side, side))
    if seen[0] < theirs[0]:
        return "first seen before the other direction"
    if columns["tsval"][ours[ours < seen[0]]].max(initial=0) > value:
        return "overtaken TSval"
    if columns["tsecr"][theirs[theirs < packet]].max(initial=0) > value:
        return "overtaken echo"
    return None


@needs_captures
@pytest.mark.parametrize("path", by_size(FILES))
def test_timestamps_is_pping(path):
    columns = read(path)[0].columns
    samples = RttPairing("timestamps").update(columns)
    mine = set(zip(samples["packet"].tolist(), samples["rtt_ns"].tolist(), strict=True))
    names = ("ts_ns", "flow_id", "direction", "tcp_flags", "tsval", "tsecr", "has_ts")
    rows = zip(*(columns[name].tolist() for name in names), strict=True)
    theirs = set(naive_rtt.pping([dict(zip(names, row, strict=True)) for row in rows]))
    assert {why_differs_from_pping(columns, i) for i, _ in mine - theirs} <= {
        "first seen before the other direction"
    }
    assert None not in {why_differs_from_pping(columns, i) for i, _ in theirs - mine}
    assert mine & theirs or not theirs


# ---------------------------------------------------------------- the seventeen questions

MS = 1_000_000
HANDSHAKE = [(10, 0, 10), (30, 1, 20)]

#: Each capture: the answers after the handshake as (time of the ACK, direction of the data, RTT) in ms, of seq_ack,
#: of seq_ack without Karn's rule (which are tshark's) and of data_plane; None where they are as seq_ack's.
ANSWERS = {
    "ack_unseen": ([], None, None),  # the ACK is beyond everything seen
    "cumack": ([(1300, 0, 100)], None, None),  # of three segments the last
    "dupack": ([(1100, 0, 100)], None, None),
    "fin": ([(1100, 0, 100), (1250, 1, 50)], None, None),
    "finwithdata": ([(1100, 0, 100)], None, None),  # expects the payload and one more
    "hole_fill": ([(1100, 0, 100)], [(1100, 0, 100), (1400, 0, 380)], [(1100, 0, 100), (1400, 0, 380)]),
    "keepalive": ([(1100, 0, 100)], [(1100, 0, 100), (9070, 0, 70)], [(1100, 0, 100), (9070, 0, 70)]),
    "nosyn": ([(100, 0, 100)], None, None),
    "partial": ([(1300, 0, 300)], None, None),
    "portreuse": ([(1100, 0, 100), (3020, 0, 20), (3030, 1, 10)], None, None),
    "reorder": ([], [(1100, 0, 100)], [(1100, 0, 100)]),
    "repacket": ([], [(2100, 0, 1090)], None),  # the data plane sees the last byte sent twice: void
    "rexmit": ([], [(2100, 0, 1100)], None),
    "rexmit_first_of_two": ([], [(1600, 0, 590)], [(1600, 0, 590)]),
    "rst": ([], [(1100, 0, 100)], None),
    "synrexmit": ([(1060, 1, 10)], [(1050, 0, 1050), (1060, 1, 10)], None),
    "wrap": ([(100, 0, 100)], None, None),
}
NO_HANDSHAKE = ("nosyn", "wrap", "synrexmit")
HANDSHAKES = {
    "nosyn": [],
    "wrap": [],
    "synrexmit": [],  # no timestamp tells which SYN was answered
    "portreuse": [(30, 0, 30), (3030, 0, 30)],
}


def answers(path, method, **options):
    cap = read(path)[0]
    table = rtt_samples(cap, method, **options)
    times = (table["ts_ns"] - cap.meta.first_ts_ns) / MS
    return list(zip(times, table["direction"], table["rtt_ns"] / MS, strict=True))


@needs_captures
@pytest.mark.parametrize("path", SEMANTICS, ids=lambda p: p.stem)
def test_semantics(path):
    """The stated answers; the tests above hold the same files against tshark and tcptrace."""
    seq_ack, no_karn, data_plane = ANSWERS[path.stem]
    opening = [] if path.stem in NO_HANDSHAKE else HANDSHAKE
    assert answers(path, "seq_ack") == opening + seq_ack
    assert answers(path, "seq_ack", karn=False) == opening + (seq_ack if no_karn is None else no_karn)
    assert answers(path, "data_plane") == opening + (seq_ack if data_plane is None else data_plane)
    assert answers(path, "handshake") == HANDSHAKES.get(path.stem, [(30, 0, 30)])
    assert answers(path, "timestamps") == []  # none of them has the option


@needs_captures
def test_all_semantics_are_stated():
    assert {p.stem for p in SEMANTICS} == set(ANSWERS)
