"""No sentence claims more than the capture shows, with a bottleneck and without one.

The truth of the bundled pairs is what their second tap says.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from made_packets import make_keys, packet_columns
from tools import mostly_slow

import cctoolkit as cct
from cctoolkit.capture.keys import CaptureMeta
from cctoolkit.capture.model import Capture
from cctoolkit.errors import CaptureFormatError, TruncatedCaptureWarning
from cctoolkit.report.summary import QUEUE_INTERVALS, QUEUE_SAMPLES, Summary, summarise

TRACES = Path(__file__).parents[1] / "traces"
PAIRS = sorted(str(p.relative_to(TRACES)).split(".ingress.")[0] for p in TRACES.rglob("*.ingress.pcap.gz"))
SHARED = Path(__file__).parents[2] / "shared" / "captures"
MS, S = 1_000_000, 1_000_000_000
SYN, ACK = 2, 16
#: What a finding says when it says that packets compete or queue.
CONGESTION = ("standing queue", "uneven", "congestion mark", "never reach")


@cache
def tap(name: str, which: str = "ingress") -> Capture:
    return cct.read_capture(TRACES / f"{name}.{which}.pcap.gz")


@cache
def summary(name: str) -> Summary:
    return summarise(tap(name))


def texts(of: Summary | Capture) -> str:
    s = of if isinstance(of, Summary) else summarise(of)
    return "\n".join(finding.text for finding in s.findings())


def claims(of: Summary | Capture) -> list[str]:
    found = texts(of)
    return [claim for claim in CONGESTION if claim in found]


def made(rows: list[tuple[int, ...]], protocols: dict[int, int] | None = None) -> Capture:
    """A capture of these rows (see `packet_columns`), in order of time."""
    columns = packet_columns(sorted(rows))
    keys = make_keys({row[1] for row in rows})
    protocol = [(protocols or {}).get(flow, 6) for flow in keys.flow_id.tolist()]
    keys = dataclasses.replace(keys, protocol=np.array(protocol, np.uint8))
    ts = columns["ts_ns"]
    about = CaptureMeta("made.pcap", frames=len(rows), packets=len(rows), first_ts_ns=int(ts.min()),
                        last_ts_ns=int(ts.max()))  # fmt: skip
    return Capture(columns, keys, about)


def talk(
    every_ms: float, size: int, answer_ms: Callable[[int], float], n: int = 600, flow: int = 0, port: int = 0
) -> list[tuple[int, ...]]:
    """One segment after the other, each acknowledged after so long."""
    rows = []
    for i in range(n):
        at = S + round(i * every_ms * MS)
        rows.append((at, flow, 0, 1 + size * i, 1, ACK, size, 500))
        rows.append((at + round(answer_ms(i) * MS), flow, 1, 1, 1 + size * (i + 1), ACK, 0, 500))
    return rows


# --- no bottleneck, no claim ----------------------------------------------------------------------------------


NO_QUEUE: dict[str, Callable[[], Capture]] = {
    # each of 60 bytes, 50 a second, and answered by an application that takes its time
    "ssh": lambda: made(talk(20, 60, lambda i: 0.2 if i == 0 else 15 + i % 10)),
    "scada": lambda: made(talk(15, 16, lambda i: 1.6 if i == 0 else 10 + i % 5)),
    "delayed acks": lambda: made(
        talk(10, 1448, lambda i: 0.5 if i % 2 else 10.5)
    ),  # every second is answered
    "a fast network": lambda: made(talk(0.2, 1448, lambda i: 0.1 + i % 3 / 10, n=5000)),
    "jitter": lambda: made(talk(2, 1448, lambda i: 20 + (i * 7919) % 23, n=3000)),
    "bursts that drain": lambda: made(talk(2, 1448, lambda i: 20 + i % 25, n=3000)),
    "one direction": lambda: made([row for row in talk(2, 1448, lambda i: 20) if row[2] == 0]),
}


@pytest.mark.parametrize("name", NO_QUEUE)
def test_made_captures_without_a_queue(name):
    assert claims(NO_QUEUE[name]()) == []


def test_a_slow_answer_to_a_small_request_is_reported_as_such():
    for name in ("ssh", "scada"):
        found = texts(NO_QUEUE[name]())
        assert "stays high, but fewer than two packets of its own can be waiting" in found
        assert "delayed ACKs, the application, or a queue filled by others" in found
    assert "stays high" not in texts(NO_QUEUE["jitter"]())


LINK = {"rate_mbps": 20, "buffer_packets": 100}
LIMITED = {
    "a thin stream": [cct.Flow("cubic", rtt_ms=30, rate_mbps=0.2)],
    "video": [cct.Flow("cubic", rtt_ms=30, rate_mbps=6), cct.Flow("bbr", rtt_ms=60, rate_mbps=3)],
    "voice beside data": [
        cct.Flow("cubic", rtt_ms=30, rate_mbps=8),
        cct.Flow("udp", rtt_ms=30, rate_mbps=0.1, packet_bytes=200),
    ],
    "jitter": [cct.Flow("cubic", rtt_ms=30, rate_mbps=5, jitter_ms=4)],
    "clicks": [cct.Flow("cubic", rtt_ms=30, rate_mbps=10, on_s=0.3, off_s=1.0)],
    "small and large": [cct.Flow("reno", rtt_ms=20, rate_mbps=1), cct.Flow("reno", rtt_ms=20, rate_mbps=12)],
    "a limited window": [cct.Flow("cubic", rtt_ms=40, max_window=20)],
    "calls": [cct.Flow("udp", rtt_ms=20, rate_mbps=0.1, packet_bytes=200, count=4)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITED)
def test_applications_that_ask_for_less_than_the_link_has(name):
    scenario = cct.Scenario(bottleneck=cct.Bottleneck(**LINK), flows=LIMITED[name], duration_s=10)
    run = cct.simulate(scenario, record=True)
    assert run.queue_series.empty or run.queues.max_delay_ms.max() < 50
    assert claims(run.ingress) == []
    assert claims(run.egress) == []


#: Captures of control networks, logins, name servers, routing, tunnels and calls.
QUIET = [
    "rtt/zeek__zeek/testing__btest__Traces__modbus__modbusBig.pcap",
    "rtt/zeek__zeek/testing__btest__Traces__ssh__ssh_kex_mlkem.pcap",
    "torture/fpcap__fpcap/tracefiles__RICS2021_787__fwscada_20200625_160926.pcap",
    "torture/LibtraceTeam__libtrace/test__traces__etsi_10_pings.pcap",
    "torture/LibtraceTeam__libtrace/test__traces__vlan.pcap",
    "torture/OISF__suricata-verify/tests__decode-teredo-01__input.pcap",
    "torture/ntop__nDPI/tests__cfgs__default__pcap__hsrp2_ipv6.pcapng",
    "torture/the-tcpdump-group__tcpdump/tests__IGMP_V2.pcap",
    "torture/the-tcpdump-group__tcpdump/tests__OSPFv3_broadcast_adjacency.pcap",
    "torture/the-tcpdump-group__tcpdump/tests__bfd-multihop.pcap",
    "torture/the-tcpdump-group__tcpdump/tests__babel_update_oobr.pcap",
    "torture/the-tcpdump-group__tcpdump/tests__beep-oobr.pcap",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUIET)
def test_quiet_captures_of_others(name):
    if not (SHARED / name).is_file():
        pytest.skip("no captures beside the repository")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncatedCaptureWarning)
        assert claims(summarise(SHARED / name)) == []


@pytest.mark.slow
def test_flows_with_a_standing_queue_have_packets_in_flight():
    """Of every capture at hand: by sequence numbers, which the finding does not look at."""
    files = [p for p in sorted(SHARED.rglob("*")) if p.is_file() and p.suffix not in (".md", ".tsv")]
    if not files:
        pytest.skip("no captures beside the repository")
    checked = 0
    for file in files:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncatedCaptureWarning)
            try:
                cap = cct.read_capture(file)
            except CaptureFormatError:
                continue
        if len(cap) < QUEUE_INTERVALS * QUEUE_SAMPLES:  # which is most of them: no flow can be judged
            continue
        s = summarise(cap)
        judged = s.standing_queue
        for row in judged[judged["loaded"] * 2 >= judged["intervals"]].itertuples():
            flight = cct.compute_slots(cap, slot_ms=100, flow_ids=[row.flow_id]).bytes_in_flight
            assert flight.median() >= 2 * 1448, file
            checked += 1
    assert checked


# --- with a bottleneck, the truth -----------------------------------------------------------------------------


def queue_stands(name: str, flow: int, direction: int) -> float:
    """The share of intervals in which even the least wait between the taps is more than 5 ms."""
    delays = cct.queue_delay(tap(name), tap(name, "egress")).dropna(subset="delay_ns")
    of = delays[(delays.flow_id == flow) & (delays.direction == direction)]
    interval = (of.ts_ns - tap(name).meta.first_ts_ns) // (100 * MS)
    by = of.groupby(interval).delay_ns
    return float((by.min()[by.size() >= 5] > 5 * MS).mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(PAIRS, PAIRS[::7]))
def test_a_standing_queue_is_reported_where_the_second_tap_sees_one(name):
    judged = summary(name).standing_queue
    claims = judged["loaded"] * 2 >= judged["intervals"]
    for row, claim in zip(judged.itertuples(), claims, strict=True):
        truth = queue_stands(name, row.flow_id, row.direction)
        if claim:
            assert truth >= 0.5
        elif "aqm" not in name:
            assert truth < 0.5
        else:  # a few packets in a queue that an AQM keeps short are not told from two
            assert truth < 0.75
    assert claims.any() == ("standing queue" in texts(summary(name)))


@pytest.mark.slow
def test_most_bundled_bottlenecks_are_found():
    found = [name for name in PAIRS if "standing queue" in texts(summary(name))]
    short = {"aqm-codel", "aqm-dctcp", "aqm-dualpi2-l4s", "aqm-fq-codel", "aqm-fq-codel-ecn", "cdg", "vegas"}
    assert {name.removeprefix("testbed/") for name in PAIRS} - {
        n.removeprefix("testbed/") for n in found
    } == (short | {"bufferbloat-codel"})


@pytest.mark.slow
@pytest.mark.parametrize("cca", ["reno", "cubic", "bbr"])
@pytest.mark.parametrize("rate_mbps", [2, 20])
def test_simulated_bottlenecks_are_found(cca, rate_mbps):
    flows = [cct.Flow(cca, rtt_ms=30, count=2)]
    link = cct.Bottleneck(rate_mbps=rate_mbps, buffer_packets=round(rate_mbps * 12))
    run = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=10), record=True)
    assert "standing queue" in claims(run.ingress)
    assert "standing queue" not in claims(run.egress)  # behind the queue nothing of it is to be seen


def test_unfairness_is_reported_only_if_the_slower_flow_wants_more():
    assert "uneven" in texts(summary("cubic-bbr"))
    assert "uneven" in texts(summary("testbed/udp-abuse"))  # a stream that takes all, beside one that would
    assert "uneven" not in texts(summary("fq-codel-ecn"))
    assert "uneven" not in texts(summary("testbed/reno-cubic"))


# --- the other sentences --------------------------------------------------------------------------------------


def hellos(every_s: float, flow: int, size: int, n: int = 30) -> list[tuple[int, ...]]:
    return [(S + round(i * every_s * S) + flow, flow, 0, 0, 0, 0, size, 0) for i in range(n)]


def test_flows_that_say_hello_now_and_then_are_not_compared():
    s = summarise(made(hellos(10, 0, 60) + hellos(10, 1, 400), {0: 2, 1: 89}))
    assert s.jain_flows == [] and "Jain" not in texts(s)
    assert any("send steadily" in note for note in s.notes)


def test_averages_and_percentiles_want_something_to_average():
    two = summarise(made(talk(0.001, 200, lambda i: 0.001, n=1)))
    assert "on average" not in texts(two)
    assert "1 round-trip time seen from the tap: 1 µs." in texts(two)
    assert "median" not in texts(two) and "nine in ten" not in texts(two)
    few = texts(summarise(made(talk(10, 200, lambda i: 5 + i, n=10))))
    assert "10 round-trip times seen from the tap: between" in few and "nine in ten" not in few
    many = texts(summarise(made(talk(10, 200, lambda i: 5.0, n=100))))
    assert "on average" in many and "nine in ten" in many


def test_no_average_over_a_gap():
    late = [(row[0] + 3600 * S, *row[1:]) for row in talk(10, 200, lambda i: 5.0, n=100)]
    assert "on average" not in texts(made(talk(10, 200, lambda i: 5.0, n=100) + late))


def test_flows_without_tcp_are_called_that():
    found = texts(made(hellos(0.1, 0, 60), {0: 17}))
    assert found.startswith("1 flow without TCP carries")


def test_both_ecn_bits_without_any_ecn_capable_packet_are_no_mark():
    capture = made(talk(10, 200, lambda i: 5.0, n=50))
    capture.columns["ecn"][3] = 3
    assert "congestion mark" not in texts(capture)
    capture.columns["ecn"][[1, 5]] = 2
    assert "1 packet (33.3 % of the ECN-capable) carries a congestion mark" in texts(capture)


def test_who_has_most_retransmissions_is_a_matter_of_numbers() -> None:
    """Not of shares: 5 of 30 segments are 17 %, and not where most was lost."""
    s = summary("bufferbloat")
    again = s.flows.set_index("flow_id")[["retransmits_fwd", "retransmits_rev"]].sum(axis=1)
    (found,) = (f for f in s.findings() if "retransmission" in f.text)
    assert found.flow_id == again.idxmax()
    assert f"flow {again.idxmax()} has the most: {again.max()}, " in found.text
    shares = cct.retransmitted_share(s.flows).set_axis(s.flows["flow_id"])
    assert shares.idxmax() != again.idxmax()


def repeated(segments: int, again: int, flow: int = 0) -> list[tuple[int, ...]]:
    rows = [row for row in talk(10, 1000, lambda i: 5, n=segments, flow=flow) if row[2] == 0]
    return rows + [(ts + 300 * MS, *rest) for ts, *rest in rows[:again]]


@pytest.mark.parametrize(
    ("segments", "again", "says", "severity"),
    [
        (8, 1, "1 retransmission among the 9 TCP segments sent.", "notice"),
        (98, 2, "2 retransmissions: 2 % of the TCP segments sent.", "notice"),
        (980, 20, "20 retransmissions: 2 % of the TCP segments sent.", "problem"),
    ],
)
def test_few_retransmissions_make_no_rate(segments: int, again: int, says: str, severity: str) -> None:
    found = summarise(made(repeated(segments, again))).findings()
    assert [f.severity.name for f in found if f.text == says] == [severity]


def test_of_equals_none_has_the_most() -> None:
    assert "has the most" not in texts(made(repeated(50, 1) + repeated(50, 1, flow=1)))


@pytest.mark.parametrize(
    ("zero", "n", "says"),
    [
        (1, 5, "5 round-trip times seen from the tap: too short for the capture's clock."),
        (0.5, 6, "6 round-trip times seen from the tap: at most 10"),
        (
            1,
            100,
            "Nineteen in twenty of the round-trip times seen from the tap are too short for the capture's clock.",
        ),
        (
            0.8,
            100,
            "seen from the tap are mostly too short for the capture's clock; nineteen in twenty are at most 10",
        ),
        (0.2, 100, "nineteen in twenty are at most 10"),
    ],
)
def test_a_coarse_clock_gives_no_nanoseconds(zero: float, n: int, says: str) -> None:
    """Round-trip times of 0 are shorter than the clock's tick, not 1 ns."""
    found = texts(made(talk(20, 1000, lambda i: 0 if i < zero * n else 10, n=n)))
    assert says in found and " ns" not in found


def test_one_flow_shows_and_two_show() -> None:
    rows = repeated(20, 0)
    assert "1 of 1 TCP flow (100 % of the TCP bytes) shows one direction only" in texts(made(rows))
    assert "2 of 2 TCP flows (100 % of the TCP bytes) show one" in texts(made(rows + repeated(20, 0, flow=1)))


def test_two_taps_say_what_they_saw():
    run = cct.simulate(
        cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=30), flows=[cct.Flow("reno")], duration_s=6
        ),
        record=True,
    )
    s = summarise(run.ingress, egress=run.egress)
    delays = s.two_taps.queue_delay
    share = 100 * delays.lost.sum() / delays.lost.notna().sum()
    assert f"{share:.3g} % of the top flows' packets never reach the second tap" in texts(s)


def test_nothing_known_of_any_fate_says_nothing():
    rows = [(S + i * MS, 0, 0, 0, 0, 0, 100 + i, 0) for i in range(200)]
    lost = [row for i, row in enumerate(rows) if i != 7]
    s = summarise(made(rows, {0: 17}), egress=made([(r[0] + MS, *r[1:]) for r in lost], {0: 17}))
    assert len(s.two_taps.queue_delay) and "second tap" not in texts(s)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three-ccas-ipv6", "testbed/cubic-late", "rtt-unfairness", "reno"])
def test_two_numbers_for_the_wait_are_explained(name):
    """The growth of an RTT is the wait less what the least RTT holds of it: sample by sample, on real Linux."""
    run = cct.load_run(TRACES / name)
    base = dict(zip(run.labels.flow_id, run.labels.base_rtt_ms, strict=True))
    split = cct.metrics.rtt_split(run.ingress, run.egress).query("samples >= 100")
    noise = 0.3 * MS  # of the machine, and of the receiver
    for row in split.itertuples():
        assert row.rest_median_ns == pytest.approx(base[row.flow_id] * MS, abs=noise)
        assert row.rtt_least_ns == pytest.approx(row.queue_at_least_ns + row.rest_median_ns, abs=noise)
        # medians of sums are not quite sums of medians
        grown = row.growth_median_ns + row.queue_at_least_ns
        assert grown == pytest.approx(row.queue_median_ns, rel=0.05, abs=noise)
    worst = split.queue_at_least_ns.max()
    found = texts(summarise(tap(name), egress=tap(name, "egress")))
    assert "between the taps" in found
    assert ("never saw the queue empty" in found) == (worst > 5 * MS)


def test_the_split_is_that_of_a_plain_loop():
    """Segment by segment: its ACK, and its stamp behind the queue."""
    ingress, egress = tap("testbed/cubic-vegas"), tap("testbed/cubic-vegas", "egress")
    split = cct.metrics.rtt_split(ingress, egress).set_index("flow_id")
    delays = cct.queue_delay(ingress, egress)
    packets = ingress.packets
    for flow in split.index:
        mine = packets[(packets.flow_id == flow) & (packets.direction == 0) & (packets.tcp_flags != 0)]
        delay = delays[(delays.flow_id == flow) & (delays.direction == 0)].delay_ns
        acks = packets[(packets.flow_id == flow) & (packets.direction == 1)]
        rtts = cct.rtt_samples(ingress).query("flow_id == @flow and direction == 0")
        numbers: dict[tuple[int, int], Any] = {}
        for ts, seq, payload, wait in zip(mine.ts_ns, mine.seq, mine.payload_bytes, delay, strict=True):
            if payload and not pd.isna(wait):
                numbers[ts, (int(seq) + int(payload)) % 2**32] = wait
        of_ack: dict[int, list[int]] = {}
        for ts, ack in zip(acks.ts_ns, acks.ack, strict=True):
            of_ack.setdefault(ts, []).append(int(ack))
        found = []
        for ts, rtt in zip(rtts.ts_ns, rtts.rtt_ns, strict=True):
            waits = [numbers[ts - rtt, ack] for ack in of_ack[ts] if (ts - rtt, ack) in numbers]
            if waits:
                found.append((rtt, int(waits[0])))
        rtt, wait = np.array(found).T
        assert split.samples[flow] == len(found)
        assert split.queue_median_ns[flow] == int(np.median(wait))
        assert split.rest_median_ns[flow] == int(np.median(rtt - wait))
        assert split.queue_at_least_ns[flow] == wait[rtt.argmin()]


# --- clocks that are set --------------------------------------------------------------------------------------


@st.composite
def with_steps(draw: st.DrawFn) -> tuple[Capture, Capture]:
    """Both taps of a run, with one clock that is set forward and back, by little and by years."""
    i, e = _short_run()
    taps = []
    for capture in (i, e):
        ts = capture.columns["ts_ns"].copy()
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(ts) - 1))
            ts[at:] += draw(
                st.sampled_from([-300, -2 * MS, -80 * MS, -5 * S, 40 * MS, 3600 * S, -30 * 10**16])
            )
        taps.append(Capture(capture.columns | {"ts_ns": ts}, capture.keys, capture.meta))
    return taps[0], taps[1]


@cache
def _short_run() -> tuple[Capture, Capture]:
    flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=40, bytes=20_000)]
    link = cct.Bottleneck(rate_mbps=2, buffer_packets=20)
    run = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=2), record=True)
    later = 17 * 10**17
    moved = [
        Capture(tap.columns | {"ts_ns": tap.columns["ts_ns"] + later}, tap.keys, tap.meta)
        for tap in (run.ingress, run.egress)
    ]
    return moved[0], moved[1]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(with_steps())
def test_no_time_is_negative_whatever_the_clock_did(taps):
    ingress, egress = taps
    slots = cct.compute_slots(ingress, egress, 100, check_taps=False, max_rows=10**9) if _near(taps) else None
    if slots is not None:
        assert (slots.max_arrival_gap_ns.dropna() >= 0).all()
        assert (slots[["in_bytes", "out_bytes", "cbiq_bytes", "bytes_in_flight"]].dropna() >= 0).all(
            axis=None
        )
    delays = cct.queue_delay(ingress, egress, check_taps=False).delay_ns.dropna()
    assert (delays >= 0).all()
    assert (cct.rtt_samples(ingress).rtt_ns >= 0).all()
    flows = ingress.flows
    assert (flows.last_ts_ns >= flows.first_ts_ns).all()
    assert (flows.handshake_rtt_ns.dropna() >= 0).all()
    times = cct.flow_completion_times(ingress)
    assert all((times[name].dropna() >= 0).all() for name in times if name.endswith(("_ns", "_s")))
    s = summarise(ingress)
    assert s.duration_s >= 0 and (s.rtt_over_time.min_ns >= 0).all()
    assert not re.search(r"(^|\s)-\d", texts(s))


def _near(taps: tuple[Capture, Capture]) -> bool:
    """A table with a row for each slot of years is none that anybody asks for."""
    return bool(np.ptp(np.concatenate([tap.columns["ts_ns"] for tap in taps])) < 10**14)
