from __future__ import annotations

import io
import ipaddress
import math
import shutil
import struct
from dataclasses import fields
from functools import cache

import numpy as np
import pandas as pd
import pytest
from tshark import ask

from cctoolkit.capture.keys import FlowKeys
from cctoolkit.capture.reader import read_capture
from cctoolkit.capture.synth import mawi as synth
from cctoolkit.capture.synth.kernels import FILLED, ORDINARY, REORDERED, RETRANSMITTED, SHARES
from cctoolkit.capture.synth.mawi import MawiLike, mawi_like, synth_mawi
from cctoolkit.capture.writer import PcapWriter
from cctoolkit.errors import ParameterError
from cctoolkit.schema import PACKETS

PACKETS_MADE = 150_000


@cache
def made(**options):
    """One capture: model, columns, keys; the same for all tests that ask for it."""
    model = MawiLike(PACKETS_MADE, seed=5, **options)
    parts = list(model.parts(50_000, events=True))
    columns = {name: np.concatenate([c[name] for c, _ in parts]) for name in parts[0][0]}
    joined = {f.name: np.concatenate([getattr(keys, f.name) for _, keys in parts]) for f in fields(FlowKeys)}
    _, first = np.unique(joined["flow_id"], return_index=True)
    return model, columns, FlowKeys(**{name: values[first] for name, values in joined.items()})


def lossy():
    return made(loss=0.01, reordering=0.2)


def flow_columns(columns, keys, name):
    return getattr(keys, name)[np.searchsorted(keys.flow_id, columns["flow_id"])]


def test_parts_are_a_packets_table_in_order_of_time():
    _, columns, keys = made()
    assert {name: str(c.dtype) for name, c in columns.items() if name != "event"} == PACKETS
    assert len(columns["ts_ns"]) == PACKETS_MADE
    assert (np.diff(columns["ts_ns"]) >= 0).all()
    assert pd.Timestamp(columns["ts_ns"][0]).floor("s") == pd.Timestamp("2001-01-01 05:00:00")
    assert set(np.unique(columns["flow_id"])) == set(keys.flow_id)
    tcp = flow_columns(columns, keys, "protocol") == 6
    assert ((columns["tcp_flags"] != 0) == tcp).all()
    for name in ("seq", "ack", "window", "tsval", "tsecr", "has_ts"):
        assert not columns[name][~tcp].any()


def test_what_comes_does_not_depend_on_the_parts():
    _, columns, keys = made()
    whole = list(mawi_like(PACKETS_MADE, seed=5, part_packets=10**6, events=True))
    assert len(whole) == 1
    for name, column in columns.items():
        np.testing.assert_array_equal(column, whole[0][0][name], name)
    for name in ("flow_id", "src", "dst", "sport", "dport", "mss"):
        np.testing.assert_array_equal(getattr(keys, name), getattr(whole[0][1], name))


def test_more_packets_are_the_same_and_then_more():
    """With the rate given, the number of packets only says where to stop."""
    (short, _), *_ = MawiLike(20_000, 3, duration_s=20, loss=0).parts()
    (long, _), *_ = MawiLike(40_000, 3, duration_s=40, loss=0).parts()
    for name in PACKETS:
        np.testing.assert_array_equal(short[name], long[name][:20_000])


def test_same_seed_same_file_other_seed_other_file(tmp_path):
    one = synth_mawi(tmp_path / "one.pcap.gz", 20_000, 1).read_bytes()
    assert one == synth_mawi(tmp_path / "two.pcap.gz", 20_000, 1).read_bytes()
    assert one != synth_mawi(tmp_path / "three.pcap.gz", 20_000, 2).read_bytes()


def test_mix_is_the_documented_one():
    model, columns, keys = made()
    protocol = flow_columns(columns, keys, "protocol")
    assert 0.55 < (protocol == 6).mean() < 0.85
    assert 0.10 < (protocol == 17).mean() < 0.35
    assert 0.015 < (protocol == 1).mean() < 0.10
    assert 500 < columns["wire_bytes"].mean() < 1000
    assert columns["wire_bytes"].min() == 60
    assert columns["wire_bytes"].max() == 1514
    duration_s = np.ptp(columns["ts_ns"]) / 1e9
    assert model.expected_duration_s / 1.5 < duration_s < model.expected_duration_s * 1.5
    # heavy tail: most flows are one packet, and one flow in twenty has most packets
    sizes = np.sort(np.unique(columns["flow_id"], return_counts=True)[1])[::-1]
    assert np.median(sizes) == 1
    assert sizes[: len(sizes) // 20].sum() > PACKETS_MADE / 2

    # of 200,000 flows the shares are known to a few parts in a thousand
    truth = model.flows(np.arange(200_000))
    truth = truth[~truth["in_progress"]]
    shares = truth["kind"].value_counts(normalize=True)
    np.testing.assert_allclose(shares.reindex(synth._KINDS), SHARES, atol=0.005)
    answered = truth[truth["answered"]]
    assert (answered["sees_initiator"] ^ answered["sees_responder"]).mean() == pytest.approx(0.4, abs=0.01)
    assert not truth.loc[~truth["answered"], "sees_responder"].any()
    assert truth.loc[truth["kind"] == "scan", "answered"].mean() == pytest.approx(0.1, abs=0.01)
    version = model._describe(model._control(), np.arange(50_000))["ip_version"]
    kind = model.flows(np.arange(50_000))["kind"]
    assert (version[kind.isin(["dns", "udp", "quic", "web", "long"])] == 6).mean() == pytest.approx(
        0.12, abs=0.01
    )
    assert (version[kind.isin(["scan", "probe"])] == 4).all()


def test_round_trips_follow_the_documented_mixture():
    truth = MawiLike(10**6).flows(np.arange(200_000))
    from scipy.stats import kstest, norm

    def lognormal(x, median, sigma):
        return norm.cdf(np.log(x / median) / sigma)

    def far(x):
        parts = [(0.45, 6e6, 0.6), (0.40, 130e6, 0.25), (0.15, 60e6, 0.4)]
        return sum(share * lognormal(x, median, sigma) for share, median, sigma in parts)

    def near(x):
        return lognormal(x, 4e6, 0.9)

    sample = truth.iloc[:20_000]
    for column, share in (("rtt_responder_ns", 0.65), ("rtt_initiator_ns", 0.35)):
        assert kstest(sample[column], lambda x, s=share: s * far(x) + (1 - s) * near(x)).statistic < 0.015
    np.testing.assert_allclose(
        truth["jitter_initiator_ns"], 20e3 + 0.01 * truth["rtt_initiator_ns"], rtol=1e-3
    )
    assert truth.loc[truth["kind"] == "web", "loss"].mean() == pytest.approx(0.002, rel=0.05)


def test_packets_per_flow_is_what_sets_the_rate():
    """The closed forms behind the rate of births, against what comes."""
    model = MawiLike(2_000_000, seed=2, duration_s=100)
    packets = flows = 0
    for columns, _ in model.parts():
        packets += len(columns["ts_ns"])
        flows = int(columns["flow_id"].max()) + 1
    assert packets == 2_000_000
    assert packets / flows == pytest.approx(synth._packets_per_flow(0.4, 0.02 * packets), rel=0.25)

    rng = np.random.default_rng(0)
    sample = 150 * rng.random(2_000_000) ** (-1 / 1.2)
    assert synth._pareto_mean(1.2, 150, 20_000) == pytest.approx(sample[sample < 20_000].mean(), rel=0.01)


def test_no_flow_comes_twice_and_no_address_is_real():
    _, _, keys = made()
    ends = np.column_stack([keys.src, keys.dst, keys.sport, keys.dport, keys.protocol])
    swapped = np.column_stack([keys.dst, keys.src, keys.dport, keys.sport, keys.protocol])
    both = np.concatenate([ends, swapped])
    assert len(np.unique(both, axis=0)) == len(both)
    allowed = [
        ipaddress.ip_network(text)
        for text in ("198.18.0.0/15", "10.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32")
    ]
    for text in {*keys.src_text()[:3000], *keys.dst_text()[:3000]}:
        address = ipaddress.ip_address(text)
        assert any(address in network for network in allowed if network.version == address.version), text


def expected_acks(columns):
    """seq_ack, the obvious way: an ACK that equals the end of the segment last sent up to there."""
    waiting, out = {}, []
    names = ("ts_ns", "flow_id", "direction", "seq", "ack", "tcp_flags", "payload_bytes")
    for ts, flow, d, seq, ack, flags, payload in zip(*(columns[n].tolist() for n in names), strict=True):
        if flags & 16 and not flags & 4:
            sent = waiting.pop((flow, 1 - d, ack), None)
            if sent is not None:
                out.append((flow, 1 - d, ts - sent))
        size = payload + (flags & 1) + (flags >> 1 & 1)
        if size:
            waiting[flow, d, (seq + size) % 2**32] = ts
    return pd.DataFrame(out, columns=["flow_id", "direction", "rtt_ns"])


def echoed_timestamps(columns):
    """pping's way: from the first sight of a TSval to the first sight of its echo."""
    first, out = {}, []
    names = ("ts_ns", "flow_id", "direction", "tsval", "tsecr", "has_ts")
    for ts, flow, d, tsval, tsecr, has_ts in zip(*(columns[n].tolist() for n in names), strict=True):
        if has_ts:
            first.setdefault((flow, d, tsval), ts)
            sent = first.get((flow, 1 - d, tsecr))
            if sent is not None:
                out.append((flow, 1 - d, ts - sent))
                first[flow, 1 - d, tsecr] = None
    return pd.DataFrame(out, columns=["flow_id", "direction", "rtt_ns"])


def excess(model, samples):
    """What the samples have over the truth, in units of the mean extra delay."""
    truth = model.flows(samples["flow_id"].to_numpy())
    to_responder = samples["direction"].to_numpy() == 0
    rtt = np.where(to_responder, truth["rtt_responder_ns"], truth["rtt_initiator_ns"])
    jitter = np.where(to_responder, truth["jitter_responder_ns"], truth["jitter_initiator_ns"])
    return (samples["rtt_ns"].to_numpy() - rtt) / jitter


@pytest.mark.slow
def test_round_trips_can_be_measured():
    model, columns, _ = made(loss=0, reordering=0)
    samples = expected_acks(columns)
    assert len(samples) > 20_000
    assert samples["direction"].mean() > 0.5  # downloads: towards the initiator
    over = excess(model, samples)
    assert over.min() >= 0
    # exponential, and a little more where an ACK waits for the one before it
    assert np.median(over) == pytest.approx(math.log(2), rel=0.03)
    assert np.quantile(over, 0.9) == pytest.approx(math.log(10), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"loss": 0, "reordering": 0}, {"loss": 0.01, "reordering": 0.2}])
def test_timestamps_are_never_echoed_before_they_could_be(options):
    model, columns, _ = made(**options)
    over = excess(model, echoed_timestamps(columns))
    assert len(over) > 20_000
    assert over.min() >= -1e-9


def test_acknowledgements_never_go_beyond_what_was_sent():
    _, columns, keys = lossy()
    truth_free = flow_columns(columns, keys, "saw_syn")
    sent = {}
    names = ("flow_id", "direction", "seq", "ack", "tcp_flags", "payload_bytes")
    for flow, d, seq, ack, flags, payload in zip(
        *(columns[n][truth_free].tolist() for n in names), strict=True
    ):
        end = (seq + payload + (flags & 1) + (flags >> 1 & 1)) % 2**32
        if (flow, d) not in sent or 0 < (end - sent[flow, d]) % 2**32 < 2**31:
            sent[flow, d] = end
        if flags & 16 and (flow, 1 - d) in sent:
            assert (sent[flow, 1 - d] - ack) % 2**32 < 2**31


def test_no_loss_means_no_segment_comes_twice_or_late():
    _, columns, _ = made(loss=0, reordering=0)
    assert not columns["event"].any()
    data = (columns["tcp_flags"] & 0b111 != 0) | (
        (columns["tcp_flags"] != 0) & (columns["payload_bytes"] > 0)
    )
    following = {}
    names = ("flow_id", "direction", "seq", "tcp_flags", "payload_bytes")
    for flow, d, seq, flags, payload in zip(*(columns[n][data].tolist() for n in names), strict=True):
        assert following.get((flow, d), seq) == seq
        following[flow, d] = (seq + payload + (flags & 1) + (flags >> 1 & 1)) % 2**32


def test_events_are_what_they_say():
    _, columns, _ = lossy()
    assert (np.bincount(columns["event"], minlength=4) > 20).all()
    seen = {}
    tcp = columns["tcp_flags"] != 0
    names = ("flow_id", "direction", "seq", "tcp_flags", "payload_bytes", "event")
    for flow, d, seq, flags, payload, event in zip(*(columns[n][tcp].tolist() for n in names), strict=True):
        size = payload + (flags & 1) + (flags >> 1 & 1)
        if not size:
            assert event == ORDINARY
            continue
        before = (flow, d, seq, size) in seen
        newest = seen.get((flow, d), seq)
        old = (newest - seq) % 2**32 < 2**31 and newest != seq
        assert before == (event == RETRANSMITTED)
        if event == ORDINARY:
            assert not old
        if event == REORDERED:
            assert old
        if event == FILLED:
            assert old or newest == seq  # the latter when nothing came after it
        seen[flow, d, seq, size] = True
        if not old:
            seen[flow, d] = (seq + size) % 2**32


def tshark(path, *arguments):
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not on PATH")
    return ask(path, *arguments)


@pytest.mark.slow
@pytest.mark.tshark
def test_tshark_claims_what_was_made(tmp_path):
    _, columns, _ = lossy()
    path = synth_mawi(tmp_path / "synthetic.pcap", PACKETS_MADE, 5, loss=0.01, reordering=0.2)
    claims = ["retransmission", "fast_retransmission", "spurious_retransmission", "out_of_order"]
    faults = ["ack_lost_segment", "reused_ports", "zero_window", "window_full", "keep_alive"]
    wanted = [a for name in claims + faults for a in ("-e", f"tcp.analysis.{name}")]
    text = tshark(path, "-T", "fields", "-E", "separator=,", *wanted)
    table = pd.read_csv(
        io.StringIO(text), names=claims + faults, dtype=str, keep_default_na=False, skip_blank_lines=False
    )
    assert len(table) == PACKETS_MADE
    assert (table[faults] == "").all().all()
    claimed = (table[claims] != "").any(axis=1).to_numpy()
    event = columns["event"]
    assert not claimed[event == ORDINARY].any()
    assert claimed[(event == RETRANSMITTED) | (event == REORDERED)].all()
    assert claimed[event == FILLED].any()


@pytest.mark.slow
@pytest.mark.tshark
def test_tshark_finds_nothing_wrong_without_loss(tmp_path):
    path = synth_mawi(tmp_path / "synthetic.pcap", 30_000, 5, loss=0, reordering=0, snaplen=262_144)
    # payloads are zeros, which DNS dissects as ever the same question
    text = tshark(
        path, "-q", "-z", "expert,note", "--disable-protocol", "dns",
        "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
    )  # fmt: skip
    found = {line.split(maxsplit=3)[3] for line in text.splitlines() if line[:12].strip().isdigit()}
    assert found == {
        "This frame initiates the connection closing",
        "This frame undergoes the connection closing",
        "Connection reset (RST)",
    }
    for protocol in ("ip", "tcp", "udp", "icmp"):
        assert tshark(path, "-Y", f"{protocol}.checksum.status == 0") == ""


def test_file_holds_the_packets(tmp_path):
    _, columns, keys = lossy()
    path = synth_mawi(tmp_path, PACKETS_MADE, 5, loss=0.01, reordering=0.2)
    assert path.parent == tmp_path
    assert path.name == f"synthetic-mawi-like-{PACKETS_MADE}-packets-seed-5-v{synth.SYNTH_VERSION}.pcap.gz"
    assert path.read_bytes()[10:].startswith(b"SYNTHETIC MAWI-like traffic, no real packets")
    capture = read_capture(path, flow_timeout_s=None)
    assert capture.meta.snaplen == 96
    for name in PACKETS:
        if name not in ("flow_id", "direction"):
            np.testing.assert_array_equal(capture.columns[name], columns[name], name)
    # the reader's flows are ours, one to one
    pairs = np.unique(np.stack([capture.columns["flow_id"], columns["flow_id"]]), axis=1)
    assert pairs.shape[1] == len(capture.keys) == len(keys)
    ours = keys.take(np.searchsorted(keys.flow_id, pairs[1]))
    theirs = capture.keys.take(np.searchsorted(capture.keys.flow_id, pairs[0]))
    np.testing.assert_array_equal(theirs.saw_syn, ours.saw_syn)
    opened = ours.saw_syn
    for name in ("src", "dst", "sport", "dport", "protocol", "ip_version"):
        np.testing.assert_array_equal(getattr(theirs, name)[opened], getattr(ours, name)[opened])


def test_snap_length_cuts_payload_only(tmp_path):
    path = synth_mawi(tmp_path / "synthetic.pcap", 20_000, 1, snaplen=96)
    body = path.read_bytes()
    position, lengths = 24, []
    while position < len(body):
        captured, original = struct.unpack("<8xII", body[position : position + 16])
        lengths.append((captured, original))
        position += 16 + captured
    assert all(captured == min(original, 96) for captured, original in lengths)
    assert max(original for _, original in lengths) == 1514
    whole = read_capture(synth_mawi(tmp_path / "whole.pcap", 20_000, 1, snaplen=262_144))
    pd.testing.assert_frame_equal(read_capture(path).packets, whole.packets)


def test_interrupted_leaves_nothing(tmp_path, monkeypatch):
    written = []

    def interrupt(self, columns, keys, sacks=None):
        if written:
            raise KeyboardInterrupt
        written.append(1)

    monkeypatch.setattr(PcapWriter, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        synth_mawi(tmp_path / "synthetic.pcap.gz", 1_200_000, 1)
    assert not list(tmp_path.iterdir())


def test_grows_where_much_is_under_way(monkeypatch):
    """A short and dense capture needs more flows and packets at a time than the tables begin with."""
    grown = []
    monkeypatch.setattr(synth, "_with_rows", lambda *a, do=synth._with_rows: grown.append(a[3]) or do(*a))
    columns, _ = next(mawi_like(400_000, 1, duration_s=0.05, part_packets=10**6))
    assert len(columns["ts_ns"]) == 400_000
    assert grown.count("free_flow") > 1
    assert grown.count("free_packet") > 1
    assert (np.diff(columns["ts_ns"]) >= 0).all()


@pytest.mark.parametrize("packets", [1, 2, 100])
def test_tiny_captures(tmp_path, packets):
    assert len(read_capture(synth_mawi(tmp_path / "x.pcapng", packets, 0))) == packets


def test_bad_arguments():
    for options, message in [
        ({"packets": 0}, "packets: 0"),
        ({"seed": -1}, "seed: -1"),
        ({"loss": 0.5}, "loss: 0.5 must be between 0 and 0.02"),
        ({"one_way": 1.5}, "one_way: 1.5"),
        ({"duration_s": 0}, "duration_s: 0"),
        ({"duration_s": 1e9}, "duration_s: 1000000000.0"),
    ]:
        with pytest.raises(ParameterError, match=message):
            MawiLike(**({"packets": 10**6} | options))


def test_toolkit_finds_the_truth(tmp_path):
    """File, reader, flows and RTT together against what was put in."""
    import cctoolkit as cct

    model, columns, _ = made(loss=0, reordering=0)
    path = synth_mawi(tmp_path / "synthetic.pcap.gz", PACKETS_MADE, 5, loss=0, reordering=0)
    capture = cct.read_capture(path, flow_timeout_s=None)
    flows = capture.flows
    for name in ("retransmits", "out_of_order"):
        assert not flows[f"{name}_fwd"].any()
        assert not flows[f"{name}_rev"].any()
    # the reader's flow numbers and directions are not ours
    number = np.zeros(len(capture.keys), np.int64)
    number[capture.columns["flow_id"]] = columns["flow_id"]
    turned = np.zeros(len(capture.keys), np.int8)
    turned[capture.columns["flow_id"]] = capture.columns["direction"] ^ columns["direction"]
    samples = cct.rtt_samples(capture, method="seq_ack")
    read_as = samples["flow_id"].to_numpy()
    over = excess(
        model, samples.assign(flow_id=number[read_as], direction=samples["direction"] ^ turned[read_as])
    )
    assert len(over) > 20_000
    assert over.min() >= 0
    assert np.median(over) == pytest.approx(math.log(2), rel=0.03)
    handshakes = cct.rtt_samples(capture, method="handshake")
    truth = model.flows(number[handshakes["flow_id"]])
    sides = ["initiator", "responder"]
    over = (handshakes["rtt_ns"] - sum(truth[f"rtt_{side}_ns"] for side in sides)) / sum(
        truth[f"jitter_{side}_ns"] for side in sides
    )
    assert len(over) > 500
    assert over.min() >= 0
    assert over.mean() == pytest.approx(1, rel=0.1)
