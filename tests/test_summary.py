"""The summary: against whole-capture pandas and plain loops, whatever the size of the parts, on real captures."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import made_captures
import numpy as np
import pandas as pd
import pytest
from made_packets import make_keys, packet_columns
from tools import need
from tshark import ask

import cctoolkit as cct
from cctoolkit._support.words import (
    format_bytes,
    format_percent,
    format_probability,
    format_rate,
    format_time_ns,
)
from cctoolkit.capture.keys import CaptureMeta
from cctoolkit.capture.model import Capture
from cctoolkit.capture.selection import Selection
from cctoolkit.errors import CaptureFormatError, ParameterError, TruncatedCaptureWarning
from cctoolkit.identify.probabilities import format_cca
from cctoolkit.report import summary as summary_module
from cctoolkit.report.summary import Summary, summarise

TRACES = Path(__file__).parents[1] / "traces"
CAPTURES = Path(__file__).parents[2] / "shared" / "captures"
MS = 1_000_000
ACK, SYN = 16, 2

ours = sorted(TRACES.glob("*.pcap.gz"))
real = sorted(p for p in (CAPTURES / "rtt").glob("*/*") if p.suffix != ".md") if CAPTURES.is_dir() else []


def quietly(path: Path, **options: Any) -> Summary | None:
    """The summary, or None where the file is no capture that is read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncatedCaptureWarning)
        try:
            return summarise(path, **options)
        except CaptureFormatError:
            return None


def same(one: Summary, two: Summary) -> None:
    for item in dataclasses.fields(Summary):
        a, b = getattr(one, item.name), getattr(two, item.name)
        if isinstance(a, pd.DataFrame):
            pd.testing.assert_frame_equal(a, b)
        else:
            assert a == b, item.name


@pytest.mark.slow
@pytest.mark.parametrize("path", [*ours, *real], ids=lambda p: p.name)
def test_does_not_depend_on_the_parts(path: Path) -> None:
    whole = quietly(path)
    if whole is None:
        pytest.skip("no capture")
    for packets in (997, 5000):
        parts = quietly(path, packets=packets)
        assert parts is not None
        same(whole, parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [p for p in [*ours, *real] if p.stat().st_size < 3_500_000],
    ids=lambda p: p.name,
)
def test_as_pandas_counts_it(path: Path) -> None:
    s = quietly(path)
    if s is None:
        pytest.skip("no capture")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncatedCaptureWarning)
        cap = cct.read_capture(path)
    assert s.meta == cap.meta
    pd.testing.assert_frame_equal(s.flows[cap.flows.columns.tolist()], cap.flows)
    packets = cap.packets.assign(
        protocol=lambda df: df["flow_id"].map(cap.flows.set_index("flow_id")["protocol"])
    )
    if packets.empty:
        assert s.totals["packets"] == 0
        return
    version = dict(zip(cap.keys.flow_id.tolist(), cap.keys.ip_version.tolist(), strict=True))

    # protocols
    by = packets.groupby([packets["flow_id"].map(version), "protocol"])["wire_bytes"].agg(["size", "sum"])
    mix = s.protocols.set_index(["ip_version", "protocol"])
    assert mix["packets"].to_dict() == by["size"].to_dict()
    assert mix["bytes"].to_dict() == by["sum"].to_dict()
    assert mix["flows"].sum() == len(cap.flows)
    assert s.services["bytes"].sum() == packets.loc[packets["protocol"].isin([6, 17]), "wire_bytes"].sum()
    assert list(s.ecn_packets.values()) == [int((packets["ecn"] == i).sum()) for i in range(4)]

    # time
    start = int(packets["ts_ns"].iloc[0])
    busy_ns = pd.Series(s.idle.to_busy(packets["ts_ns"].to_numpy()), packets.index)  # silences have no bins
    at = (busy_ns - start).clip(lower=0) // s.bin_ns
    wanted = packets.groupby(at)["wire_bytes"].sum().reindex(range(len(s.throughput)), fill_value=0)
    found = s.throughput[["tcp_bytes", "udp_bytes", "other_bytes"]].sum(axis=1)
    np.testing.assert_array_equal(found, wanted)
    began_ns = s.idle.to_real(start + np.arange(len(found)) * s.bin_ns)
    np.testing.assert_allclose(s.throughput["time_s"], (began_ns - start) / 1e9)
    tcp = packets.loc[packets["protocol"] == 6, "wire_bytes"].groupby(at).sum()
    np.testing.assert_array_equal(s.throughput["tcp_bytes"], tcp.reindex(range(len(found)), fill_value=0))
    assert len(found) <= 2000

    # the largest flows
    size = packets.groupby("flow_id")["wire_bytes"].sum()
    assert (
        s.top["flow_id"].tolist()
        == size.sort_index().sort_values(ascending=False, kind="stable").index[:12].tolist()
    )
    if len(size) <= 512:
        assert (s.top["binned"] == 1).all()
        for (flow, direction), of in s.flow_throughput.groupby(["flow_id", "direction"]):
            mine = (packets["flow_id"] == flow) & (packets["direction"] == direction)
            mine_at = packets.loc[mine, "wire_bytes"].groupby(at[mine]).sum()
            np.testing.assert_array_equal(of["bytes"], mine_at.reindex(range(len(found)), fill_value=0))

    # round-trip times
    samples = cct.rtt_samples(cap)
    assert s.totals["rtt_samples"] == len(samples) == s.rtt_histogram["samples"].sum()
    table = s.flows.set_index("flow_id")
    for (flow, direction), rtt in samples.groupby(["flow_id", "direction"])["rtt_ns"]:
        way = ("fwd", "rev")[direction]
        assert table[f"rtt_samples_{way}"][flow] == len(rtt)
        assert table[f"rtt_min_ns_{way}"][flow] == rtt.min()
        if len(rtt) <= 1024:
            for name, q in (("median", 0.5), ("p95", 0.95)):
                assert table[f"rtt_{name}_ns_{way}"][flow] == pytest.approx(rtt.quantile(q), rel=1e-6, abs=1)
    assert (
        table["rtt_min_ns_fwd"].notna().sum() == samples.loc[samples["direction"] == 0, "flow_id"].nunique()
    )
    if len(samples) > 100:
        assert s.rtt_quantile_ns(0.5) == pytest.approx(
            samples["rtt_ns"].quantile(0.5, "lower"), rel=0.025, abs=2
        )
    shown = samples[samples["flow_id"].isin(s.top["flow_id"])]
    if len(size) <= 512:
        keys = ["flow_id", "direction", "time_s"]
        bins = np.maximum(s.idle.to_busy(shown["ts_ns"].to_numpy()) - start, 0) // s.bin_ns
        binned = shown.assign(time_s=(s.idle.to_real(start + bins * s.bin_ns) - start) / 1e9)
        wanted = binned.groupby(keys)["rtt_ns"].agg(["size", "min", "mean", "max"]).sort_index()
        got = s.rtt_over_time.set_index(keys).sort_index()
        np.testing.assert_array_equal(got["samples"], wanted["size"])
        for name in ("min", "mean", "max"):
            np.testing.assert_allclose(got[f"{name}_ns"], wanted[name], rtol=1e-6)

    # totals
    flows = cap.flows
    for name in ("segments", "retransmits", "out_of_order", "copies", "duplicate_acks", "packets", "bytes"):
        assert s.totals[name] == flows[f"{name}_fwd"].sum() + flows[f"{name}_rev"].sum()
    tcp_flows = flows[(flows["protocol"] == 6) & ((flows["sport"] > 0) | (flows["dport"] > 0))]
    one = (tcp_flows["packets_fwd"] == 0) | (tcp_flows["packets_rev"] == 0)
    assert (s.one_direction["flows"], s.one_direction["of_flows"]) == (one.sum(), len(tcp_flows))


@pytest.mark.slow
@pytest.mark.parametrize("path", ours, ids=lambda p: p.name)
def test_jain_is_that_of_the_rates_bin_by_bin(path: Path) -> None:
    s = summarise(path)
    cap = cct.read_capture(path)
    packets, flows = cap.packets, cap.flows.set_index("flow_id")
    size = flows["bytes_fwd"] + flows["bytes_rev"]
    wanted = flows.index[flows["is_long"]].tolist()
    if len(wanted) < 2:
        wanted = flows.index[size >= 0.05 * size.sum()].tolist()
    assert sorted(s.jain_flows) == wanted
    assert s.jain_bin_ns >= 100 * MS
    start = int(packets["ts_ns"].iloc[0])
    at = (packets["ts_ns"] - start).clip(lower=0) // s.jain_bin_ns
    for row, bin_ in enumerate(s.jain.itertuples()):
        low, high = start + row * s.jain_bin_ns, start + (row + 1) * s.jain_bin_ns
        there = [f for f in wanted if flows["first_ts_ns"][f] < high and flows["last_ts_ns"][f] >= low]
        assert bin_.flows == len(there)
        rates = []
        for f in there:
            direction = int(flows["payload_rev"][f] > flows["payload_fwd"][f])
            mine = (packets["flow_id"] == f) & (packets["direction"] == direction) & (at == row)
            rates.append(int(packets.loc[mine, "wire_bytes"].sum()))
        if len(there) < 2 or not any(rates):
            assert np.isnan(bin_.jain)
        else:
            assert bin_.jain == pytest.approx(sum(rates) ** 2 / (len(rates) * sum(r * r for r in rates)))


def made(rows: list[tuple[int, ...]], protocol: int = 6, **meta: Any) -> Capture:
    columns = packet_columns(rows)
    keys = make_keys({row[1] for row in rows})
    keys = dataclasses.replace(keys, protocol=np.full(len(keys), protocol, np.uint8))
    ts = columns["ts_ns"]
    first, last = (int(ts.min()), int(ts.max())) if len(ts) else (0, 0)
    about = {"frames": len(rows), "packets": len(rows), "first_ts_ns": first, "last_ts_ns": last} | meta
    return Capture(columns, keys, CaptureMeta("made.pcap", **about))


def bulk(rtts_ms: list[float], flow: int = 0, spacing_ms: float = 2.0) -> list[tuple[int, ...]]:
    """Segments from the initiator, each acknowledged after its own round-trip time."""
    rows = []
    for i, rtt_ms in enumerate(rtts_ms):
        sent = 10**18 + round(i * spacing_ms * MS)
        rows.append((sent, flow, 0, 1000 * i, 1, ACK, 1000, 500))
        rows.append((sent + round(rtt_ms * MS), flow, 1, 1, 1000 * i + 1000, ACK, 0, 500))
    return sorted(rows)


def texts(s: Summary) -> str:
    return "\n".join(finding.text for finding in s.findings())


def test_a_standing_queue_is_one_that_does_not_go_away() -> None:
    # 2 ms at first, then 20 to 30 ms for good
    standing = summarise(made(bulk([2.0] * 50 + [20 + i % 10 for i in range(1000)])))
    intervals, above = standing.standing_queue[["intervals", "above"]].iloc[0]
    assert above >= intervals - 2 >= 18
    assert "standing queue" in texts(standing)
    assert "a minimum of 2 ms" in texts(standing)
    # as high, but empty again every 60 ms: bursts, which a queue is for
    bursts = summarise(made(bulk([2.0 if i % 30 == 0 else 20 + i % 10 for i in range(1000)])))
    assert bursts.standing_queue["above"].iloc[0] <= 1  # the last interval is not a whole one
    assert "standing queue" not in texts(bursts)
    # as steady, but low
    low = summarise(made(bulk([2.0] * 50 + [4 + i % 10 / 5 for i in range(1000)])))
    assert low.standing_queue["above"].iloc[0] == 0
    # too short to tell
    assert summarise(made(bulk([2.0] * 5 + [20.0] * 100))).standing_queue.empty


def test_one_direction_only_is_noted() -> None:
    rows = bulk([5.0] * 40) + [r for r in bulk([5.0] * 40, flow=1) if r[2] == 0]
    s = summarise(made(sorted(rows)))
    assert s.one_direction["flows"] == 1
    assert s.one_direction["of_flows"] == 2
    assert any("1 of 2 TCP flows" in note and "one direction only" in note for note in s.notes)
    one_way = s.flows.set_index("flow_id").loc[1]
    assert one_way["rtt_samples_fwd"] == 0
    assert pd.isna(one_way["rtt_min_ns_fwd"])


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("testbed/reno", "one for each loss"),
        ("testbed/aqm-dualpi2-l4s", "2 fewer, because the capture ended"),
    ],
)
def test_losses_between_the_taps_stand_beside_the_retransmissions(name: str, verdict: str) -> None:
    s = summarise(TRACES / f"{name}.ingress.pcap.gz", egress=TRACES / f"{name}.egress.pcap.gz")
    assert s.two_taps is not None
    lost, again = int(s.two_taps.queue_loss["packets_lost"].sum()), s.totals["retransmits"]
    sentence = f"The queue lost {lost} TCP packets of the largest flows, which retransmitted {again} segments"
    sentence += f": {verdict}"
    assert sentence in texts(s)


def test_losses_are_compared_only_while_both_taps_record() -> None:
    taps = [cct.read_capture(TRACES / f"bufferbloat.{tap}.pcap.gz") for tap in ("ingress", "egress")]
    s = summarise(taps[0], egress=taps[1].select(start_s=5))
    found = texts(s)
    assert "0.367 % of the " in found and "packets of the top flows whose fate is known never reach" in found
    assert "The queue lost" not in found
    assert any("before the second capture began or after it ended" in note for note in s.notes)
    s = summarise(taps[0], egress=taps[1])
    assert "The queue lost" in texts(s) and not any("second capture began" in note for note in s.notes)


def test_one_share_of_retransmitted_segments() -> None:
    """Of segments, not of packets: acknowledgements are never sent again."""
    rows = bulk([20.0] * 99)
    again = (rows[-1][0] + 300 * MS, *rows[0][1:])  # the first segment
    s = summarise(made([*rows, again]))
    assert (s.totals["segments"], s.totals["retransmits"], s.totals["copies"]) == (100, 1, 0)
    assert s.retransmitted_share == 0.01
    assert "1 retransmission: 1 % of the TCP segments sent" in texts(s)


def test_a_capture_with_each_packet_twice_is_noted() -> None:
    rows = [(ts + copy * 1000, *rest) for ts, *rest in bulk([20.0] * 99) for copy in (0, 1)]
    s = summarise(made(rows))
    assert (s.totals["segments"], s.totals["retransmits"], s.totals["copies"]) == (99, 0, 99)
    assert any(note.startswith("99 TCP segments were recorded twice") for note in s.notes)


def test_no_tcp_is_noted() -> None:
    s = summarise(made([(10**18 + i * MS, 0, 0, 0, 0, 0, 500, 0) for i in range(20)], protocol=17))
    assert any(note.startswith("No TCP") for note in s.notes)
    assert s.services[["protocol", "port"]].to_numpy().tolist() == [[17, 1024]]  # no SYN: the lower port
    assert not any("retransmission" in text for text in texts(s).splitlines())


A, B = b"\x0a\0\0\1", b"\x0a\0\0\2"


def written(path: Path, packets: list[tuple[int, bytes]]) -> Path:
    """A capture file of IP packets, each with its time in ns."""
    frames = [(ts_ns, packet, len(packet)) for ts_ns, packet in sorted(packets)]
    path.write_bytes(made_captures.pcap(frames, link_type=101))
    return path


def of_servers(path: Path) -> Path:
    """Only what servers sent, most of them from ports above those of their clients."""
    packets = []
    for client, server in ((40_000, 50_000), (40_001, 50_000), (80, 8443), (52_000, 443)):
        for at_ms, flags in enumerate((SYN | ACK, ACK)):
            segment = made_captures.tcp(
                server, client, flags=flags, ack=1, payload=bytes(server // 1000 * at_ms)
            )
            packets.append((at_ms * MS, made_captures.ipv4(6, segment, B, A)))
    return written(path, packets)


def test_who_answers_a_syn_is_the_server(tmp_path: Path) -> None:
    """It opens passively (RFC 9293, section 3.5), in the first flow or captured behind data that it sent."""
    services = summarise(of_servers(tmp_path / "servers.pcap"), packets=2).services
    assert services[["port", "flows"]].to_numpy().tolist() == [[50_000, 2], [8443, 1], [443, 1]]
    late = [
        (at_ms * MS, made_captures.ipv4(6, made_captures.tcp(50_000, 40_000, flags=flags), B, A))
        for at_ms, flags in enumerate((ACK, SYN | ACK))
    ]
    assert summarise(written(tmp_path / "late.pcap", late)).services["port"].tolist() == [50_000]


@pytest.mark.tshark
def test_services_of_servers_are_the_senders_of_syn_acks_to_tshark(tmp_path: Path) -> None:
    need("tshark")
    path = of_servers(tmp_path / "servers.pcap")
    says = ask(path, "-Y", "tcp.flags.syn == 1 && tcp.flags.ack == 1", "-T", "fields", "-e", "tcp.srcport")
    flows = summarise(path).services.set_index("port")["flows"]
    assert flows.to_dict() == Counter(map(int, says.split()))


@pytest.mark.parametrize(("fragmented", "noted"), [(0, False), (1, False), (50, True)])
def test_fragmented_tcp_is_noted(tmp_path: Path, fragmented: int, noted: bool) -> None:
    """Segments of 1420 bytes, some in three fragments, each with its ACK."""
    packets = []
    for k in range(200):
        segment = made_captures.tcp(40_000, 5001, 1 + 1400 * k, 1, payload=bytes(1400))
        size = 552 if k < fragmented else 1420
        for at in range(0, len(segment), size):
            flags = 0x2000 if at + size < len(segment) else 0
            piece = made_captures.ipv4(6, segment[at : at + size], A, B, fragment=flags | at // 8)
            packets.append((10 * k * MS + at, piece))
        ack = made_captures.tcp(5001, 40_000, 1, 1401 + 1400 * k)
        packets.append(((10 * k + 5) * MS, made_captures.ipv4(6, ack, B, A)))
    s = summarise(written(tmp_path / "fragments.pcap", packets))
    assert s.totals["rtt_samples"] == 200 - fragmented
    assert s.meta.counts.get("fragments", 0) == 2 * fragmented
    assert (s.one_direction["flows"], s.one_direction["of_flows"]) == (0, 1)  # fragments are none
    assert any("100 of 500 TCP packets (20 %)" in note for note in s.notes) == noted


@pytest.mark.parametrize(("to_server_us", "noted"), [(49_900, True), (25_000, False), (100, False)])
def test_a_tap_near_the_receiver_is_noted(tmp_path: Path, to_server_us: int, noted: bool) -> None:
    """A download over a path of 50 ms, captured at the client, in the middle, and at the server."""
    packets: list[tuple[int, bytes]] = []

    def up(at_us: int, seq: int, ack: int, flags: int = ACK) -> None:
        segment = made_captures.tcp(40_000, 80, seq, ack, flags)
        packets.append((1000 * at_us, made_captures.ipv4(6, segment, A, B)))

    def down(at_us: int, seq: int, ack: int, flags: int = ACK, payload: bytes = b"") -> None:
        segment = made_captures.tcp(80, 40_000, seq, ack, flags, payload=payload)
        packets.append((1000 * at_us, made_captures.ipv4(6, segment, B, A)))

    up(0, 0, 0, SYN)
    down(to_server_us, 0, 1, SYN | ACK)
    up(50_000, 1, 1)
    for k in range(20):
        down(100_000 + 50_000 * k, 1 + 1000 * k, 1, payload=bytes(1000))
        up(150_000 + 50_000 * k - to_server_us, 1, 1001 + 1000 * k)
    s = summarise(written(tmp_path / "download.pcap", sorted(packets)))
    found = [note for note in s.notes if "near the receiver" in note]
    assert len(found) == noted
    for note in found:
        assert note.startswith("1 TCP flow with 100 % of the payload was captured")
        assert "typically 100 µs" in note and "50 ms by the handshakes" in note


@pytest.mark.parametrize(("port", "noted"), [(4789, True), (2152, True), (443, False)])
def test_tunnels_in_udp_are_noted(tmp_path: Path, port: int, noted: bool) -> None:
    datagram = made_captures.ipv4(17, made_captures.udp(50_000, port, b"inside"), A, B)
    other = made_captures.ipv4(17, made_captures.udp(50_000, 53, b"else"), A, B)
    path = written(tmp_path / "tunnels.pcap", [(1, datagram), (2, datagram), (3, other), (4, other)])
    found = {tunnel: summarise(path, tunnel=tunnel).notes for tunnel in ("outer", "inner")}
    hints = {tunnel: [note for note in notes if "tunnels" in note] for tunnel, notes in found.items()}
    assert len(hints["outer"]) == noted and hints["inner"] == []
    assert all("2 of 4 packets (50 %)" in note for note in hints["outer"])


def test_nothing_at_all() -> None:
    s = summarise(made([], frames=3))
    assert s.totals["packets"] == s.totals["flows"] == len(s.top) == len(s.throughput) == 0
    assert "no packet with an IP header" in texts(s)
    assert any("None of the 3 frames" in note for note in s.notes)


def test_defects_of_a_capture_are_noted() -> None:
    rows = bulk([5.0] * 20)
    rows += [(10**18 + 86_400 * 10**9 + i, 0, 0, 30_000 + 1000 * i, 1, ACK, 20_000, 500) for i in range(3)]
    rows[3], rows[4] = rows[4], rows[3]
    notes = "\n".join(
        summarise(made(rows, dropped=7, counts={"fragments": 2, "not_ip": 5, "truncated_headers": 1})).notes
    )
    for text in (
        "7 packets lost",
        "2 later IP fragments",
        "5 frames without an IP packet",
        "headers of 1 packet ",
        "20,054 bytes",
    ):
        assert text in notes
    assert "No packet for 24.0 h" in notes
    assert "1 packet with a timestamp before" in notes
    assert "second capture, from after the queue" in notes


def test_concentration() -> None:
    many = [(10**18 + i, i, 0, 0, 0, ACK, 46, 0) for i in range(100)]
    large = [(10**18 + 200 + i, i % 2, 0, 0, 0, ACK, 9000, 0) for i in range(100)]
    assert "Two flows carry 98.9 % of the bytes." in texts(summarise(made(many + large)))
    assert "The largest flow carries 1 % of the bytes, the ten largest 10 %." in texts(summarise(made(many)))


def test_a_selection_is_what_is_looked_at() -> None:
    path = ours[0]
    cap = cct.read_capture(path)
    flow = int(cap.flows.loc[cap.flows["bytes_fwd"].idxmax(), "flow_id"])
    s = summarise(path, selection=Selection(flow_id=flow, start_s=2.0, stop_s=5.0), packets=1000)
    inside = cap.select(flow_id=flow, start_s=2.0, stop_s=5.0)
    assert s.totals["packets"] == len(inside) > 0
    assert s.meta.packets == len(cap)
    assert any(f"{len(inside):,} of the capture's {len(cap):,}" in note for note in s.notes)
    nothing = summarise(path, selection=Selection(host="192.0.2.1"))
    assert nothing.findings()[0].text == "No packet matches the selection."


def test_capture_or_path() -> None:
    same(summarise(ours[0]), summarise(cct.read_capture(ours[0])))


def test_bad_arguments() -> None:
    with pytest.raises(ParameterError, match="top"):
        summarise(ours[0], top=0)
    with pytest.raises(ParameterError, match="tunnel"):
        summarise(cct.read_capture(ours[0]), tunnel="inner")
    with pytest.raises(CaptureFormatError):
        summarise(Path(__file__))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (format_bytes(0), "0 B"),
        (format_bytes(999), "999 B"),
        (format_bytes(1000), "1 kB"),
        (format_bytes(999_600), "1 MB"),
        (format_bytes(123_456_789), "123 MB"),
        (format_rate(1_250_000), "10 Mbit/s"),
        (format_time_ns(950), "950 ns"),
        (format_time_ns(87_654), "87.7 µs"),
        (format_time_ns(119e9), "119 s"),
        (format_time_ns(900e9), "15.0 min"),
        (format_time_ns(float("nan")), "–"),
        (format_percent(0), "0 %"),
        (format_percent(0.00001), "less than 0.1 %"),
        (format_percent(0.99999), "more than 99.9 %"),
        (format_percent(0.5), "50 %"),
        (format_probability(0.996), "100 %"),
        (format_probability(float("nan")), ""),
        (format_cca("reno", 0.98), "reno 98 %"),
        (format_cca("unknown", 0.4), "unknown"),
        (format_cca(None, float("nan")), ""),
        (format_percent(1), "100 %"),
    ],
)
def test_numbers_as_people_read_them(found: str, wanted: str) -> None:
    assert found == wanted


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_sums_by_blocks_are_those_of_the_whole(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = cct.example("mixed").ingress
    whole = cct.summarise(capture)
    assert len(whole.flows) > 7 and len(whole.services) > 1
    monkeypatch.setattr(summary_module, "_BLOCK", rows)
    parts = cct.summarise(capture)
    pd.testing.assert_frame_equal(parts.protocols, whole.protocols)
    pd.testing.assert_frame_equal(parts.services, whole.services)
