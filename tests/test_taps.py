"""Recognising packets of one tap at the other, against the naive twin."""

from __future__ import annotations

import itertools
from pathlib import Path

import hypothesis.strategies as st
import naive_slots
import numpy as np
import pytest
from hypothesis import assume, given, settings
from test_slots import MS, constant_rate, cut, packets, tap_pairs
from tools import examples

import cctoolkit as cct
from cctoolkit.analysis import taps

TRACES = Path(__file__).parents[1] / "traces"


def fates_of(
    pairs: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]], max_delay_ns: int = 10**10
) -> dict[int, int | str | None]:
    pair = taps.TapPair()
    matcher = taps.PacketMatcher(data_only=False, losses_only=False, max_delay_ns=max_delay_ns)
    everything = np.zeros(0, np.bool_)
    for ingress, egress in pairs:
        came_in, went_out = pair.update(ingress, egress)
        matcher.update(came_in, went_out, pair, everything)
    rest = pair.rest()
    if rest is not None:
        matcher.update(None, rest, pair, everything)
    fates = np.concatenate(matcher.fates())
    fates = fates[matcher.crosses[fates["way"]]]
    assert len(np.unique(fates["row"])) == len(fates)
    named = {taps.LOST: "lost", taps.UNKNOWN: None}
    return {int(f["row"]): named.get(int(f["delay_ns"]), int(f["delay_ns"])) for f in fates}


@pytest.mark.parametrize("room", [pytest.param(1, marks=pytest.mark.slow), 1 << 14])
@settings(max_examples=examples(150), deadline=None)
@given(tap_pairs(), st.booleans())
def test_same_as_the_naive_twin_also_when_short_of_room(room, pair, alike):
    if alike:  # many equal segments
        few = {"flow_id": 2, "direction": 1, "seq": 3, "ack": 1, "tcp_flags": 32, "payload_bytes": 1}
        pair = tuple(tap | {name: tap[name] % n for name, n in few.items()} for tap in pair)
    ingress, egress = pair
    expected, _ = naive_slots.match(naive_slots.packets_of(ingress), naive_slots.packets_of(egress))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taps, "_ROOM", room)
        assert fates_of([pair]) == expected
        assert fates_of(list(zip(cut(ingress, [5, 12]), cut(egress, [3, 17]), strict=True))) == expected


@pytest.mark.parametrize("room", [pytest.param(1, marks=pytest.mark.slow), 1 << 14])
def test_many_losses_and_many_waiting(room, monkeypatch):
    """60 ms of queue at 100 packets a ms, a fifth lost: more than the table first has room for."""
    monkeypatch.setattr(taps, "_ROOM", room)
    ingress = constant_rate(2**32 - 10_000_000, 40_000, 10)
    keep = np.random.default_rng(1).random(40_000) < 0.8
    keep[-1] = True
    egress = {n: c[keep] for n, c in ingress.items()} | {"ts_ns": ingress["ts_ns"][keep] + 60_000_000}
    fates = fates_of([(ingress, egress)])
    assert fates == {i: 60_000_000 if k else "lost" for i, k in enumerate(keep)}


def test_slower_than_the_limit_is_lost():
    ingress = packets([(0, 0, 10), (1, 10, 10), (2, 20, 10)])
    egress = packets([(1, 0, 10), (21, 10, 10), (12, 20, 10)])
    order = np.argsort(egress["ts_ns"])
    egress = {n: c[order] for n, c in egress.items()}
    assert fates_of([(ingress, egress)], max_delay_ns=10_000_000) == {0: 1_000_000, 1: "lost", 2: 10_000_000}


def test_a_retransmission_without_timestamps_is_not_taken_for_the_lost_original():
    ingress = packets([(0, 90, 10), (0, 0, 10), (1, 10, 10), (50, 0, 10)])
    egress = packets([(1, 90, 10), (2, 10, 10), (51, 0, 10)])
    assert fates_of([(ingress, egress)]) == {0: 1_000_000, 1: "lost", 2: 1_000_000, 3: 1_000_000}


A_LOST_TAIL = [(0, 90, 10), (0, 0, 10), (300, 0, 10)]  # the sender's timeout is 300 ms


@pytest.mark.parametrize("follows", [[], [(320, 10, 10)]], ids=["", "more follows"])
def test_a_lost_tail_is_not_taken_for_its_retransmission(follows):
    ingress = packets(A_LOST_TAIL + follows)
    egress = packets([(1, 90, 10), (301, 0, 10)] + [(at + 1, *more) for at, *more in follows])
    expected = {0: 1_000_000, 1: "lost", 2: 1_000_000} | {3 + k: 1_000_000 for k in range(len(follows))}
    assert fates_of([(ingress, egress)]) == expected


def test_a_segment_that_waited_for_longer_than_the_timeout():
    """With its retransmission behind it; if this is lost, what left in between shows it."""
    both = packets([*A_LOST_TAIL, (320, 10, 10)])
    left = packets([(1, 90, 10), (400, 0, 10), (401, 0, 10), (402, 10, 10)])
    assert fates_of([(both, left)]) == {0: 1_000_000, 1: 400_000_000, 2: 101_000_000, 3: 82_000_000}
    between = packets([(0, 90, 10), (0, 0, 10), (100, 10, 10), (300, 0, 10), (320, 20, 10)])
    left = packets([(1, 90, 10), (400, 0, 10), (401, 10, 10), (402, 20, 10)])
    assert fates_of([(between, left)]) == {
        0: 1_000_000, 1: 400_000_000, 2: 301_000_000, 3: "lost", 4: 82_000_000,
    }  # fmt: skip


def test_a_whole_window_is_lost_and_its_retransmissions_wait_together():
    n = 300
    window = constant_rate(0, n, 10)
    again = {name: c.copy() for name, c in window.items()} | {"ts_ns": window["ts_ns"] + 300_000_000}
    first = packets([(0, 90, 10)])
    ingress = {name: np.concatenate([first[name], window[name], again[name]]) for name in first}
    egress = {name: np.concatenate([first[name], again[name]]) for name in first}
    egress["ts_ns"] = egress["ts_ns"] + 60_000_000
    fates = [60_000_000, *["lost"] * n, *[60_000_000] * n]
    assert fates_of([(ingress, egress)]) == dict(enumerate(fates))


def test_a_long_run_of_equal_segments():
    ingress = constant_rate(0, 5000, 10)
    ingress["seq"][:] = 7
    egress = {n: c.copy() for n, c in ingress.items()} | {"ts_ns": ingress["ts_ns"] + 30_000_000}
    assert fates_of([(ingress, egress)]) == dict.fromkeys(range(5000), 30_000_000)


@st.composite
def queues_in_order(draw: st.DrawFn) -> tuple[list[tuple[int, int, int | None]], list[int]]:
    """A queue that keeps the order: times of arrival, segments, and times of departure (None: lost); and the cuts."""
    rows: list[tuple[int, int, int | None]] = []
    came = left = 0
    for segment in draw(st.lists(st.integers(0, 2), min_size=1, max_size=9)):
        came += draw(st.sampled_from([0, 1, 3, 20]))
        lost = draw(st.integers(0, 2)) == 0
        left = left if lost else max(left, came + draw(st.sampled_from([1, 2, 10, 30])))
        rows.append((came, segment, None if lost else left))
    return rows, draw(st.lists(st.integers(0, 9), min_size=2, max_size=2))


@settings(max_examples=examples(300), deadline=None)
@given(queues_in_order())
def test_of_all_assignments_in_order_the_newest_packets_count(queue):
    """So delays are never too long, and right where nothing was lost."""
    rows, cuts = queue
    left = [(gone, segment) for _, segment, gone in rows if gone is not None]
    assume(left)
    possible = [
        chosen
        for chosen in itertools.combinations(range(len(rows)), len(left))
        if all(
            rows[i][1] == segment and rows[i][0] <= gone
            for i, (gone, segment) in zip(chosen, left, strict=True)
        )
    ]
    newest = map(max, zip(*possible, strict=True))
    expected = {i: gone - rows[i][0] for i, (gone, _) in zip(newest, left, strict=True)}
    ingress, egress = (packets([(at, 100 * segment, 10) for at, segment, *_ in tap]) for tap in (rows, left))
    parts = list(zip(cut(ingress, cuts), cut(egress, cuts[::-1]), strict=True))
    found = {i: fate // MS for i, fate in sorted(fates_of(parts).items()) if isinstance(fate, int)}
    assert found == expected
    true = [gone - came for came, _, gone in rows if gone is not None]
    assert all(one <= other for one, other in zip(found.values(), true, strict=True))
    assert len(left) < len(rows) or list(found.values()) == true


@pytest.mark.parametrize("name", ["testbed/dragonfly-6", "testbed/three-ccas", "cubic-bbr"])
def test_the_same_packets_are_lost_without_timestamps(name):
    """Retransmissions of real senders, up to a second after the segment they replace."""
    both = [cct.read_capture(TRACES / f"{name}.{tap}.pcap.gz").columns for tap in ("ingress", "egress")]
    bare = [columns | dict.fromkeys(["tsval", "tsecr"], np.zeros_like(columns["tsval"])) for columns in both]
    assert fates_of([tuple(bare)]) == fates_of([tuple(both)])


def test_what_may_have_left_before_the_second_capture_began_is_not_lost():
    ingress = constant_rate(0, 500, 10)
    egress = {n: c[np.r_[200:300, 301:500]] for n, c in ingress.items()}
    egress["ts_ns"] = (
        egress["ts_ns"] + 300_000
    )  # 30 packets wait; the capture begins with packet 200, at 2.3 ms
    expected = dict.fromkeys(range(200)) | dict.fromkeys(range(200, 500), 300_000) | {300: "lost"}
    assert fates_of([(ingress, egress)]) == expected
    lost_in_front = {n: c[1:] for n, c in egress.items()}  # 200 came in before the first that is seen left
    assert fates_of([(ingress, lost_in_front)]) == expected | {200: None}
    in_the_queue = {
        n: c[np.r_[:5, 6 : len(c)]] for n, c in egress.items()
    }  # before the capture began, behind 200
    assert fates_of([(ingress, in_the_queue)]) == expected | {205: "lost"}


def test_a_capture_that_ends_first_still_crosses():
    """What leaves after the ingress capture's end is no packet that came from elsewhere."""
    ingress = constant_rate(0, 50, 100)
    egress = {n: c.copy() for n, c in constant_rate(0, 500, 100).items()}
    egress["ts_ns"] += 300_000
    assert fates_of([(ingress, egress)]) == dict.fromkeys(range(50), 300_000)


def test_of_two_equal_ones_that_were_overtaken_the_later_is_meant():
    ingress = packets([(0, 90, 10), (0, 0, 10), (1, 0, 10), (2, 10, 10)])
    egress = packets([(1, 90, 10), (3, 10, 10), (4, 0, 10)])
    assert fates_of([(ingress, egress)]) == {0: 1_000_000, 1: "lost", 2: 3_000_000, 3: 1_000_000}


def test_overtaken_by_few_is_recognised_by_many_is_lost():
    n = 100
    ingress = constant_rate(0, n, 10)
    for late, fate in (64, 2_000_000), (65, "lost"):
        egress = {name: c.copy() for name, c in ingress.items()}
        egress["ts_ns"] += 1_000_000
        rows = np.r_[0, 2 : late + 2, 1, late + 2 : n]
        egress = {name: c[rows] for name, c in egress.items()}
        egress["ts_ns"][late + 1] = egress["ts_ns"][late]
        expected = 1_000_000 + 10_000 * late if fate != "lost" else "lost"
        assert fates_of([(ingress, egress)])[1] == expected


def test_a_way_against_the_queue_has_no_fates():
    """ACKs that pass the other tap first did not come through the queue."""
    data = constant_rate(0, 50, 100)
    acks = packets([{"ts_ns": 5_000_000 + 100_000 * k, "direction": 1, "ack": 1000 * k} for k in range(50)])
    egress_side = {n: np.concatenate([data[n], acks[n]]) for n in data}
    egress_side["ts_ns"][:50] += 4_000_000
    ingress_side = {n: np.concatenate([data[n], acks[n]]) for n in data}
    ingress_side["ts_ns"][50:] += 300_000
    for side in ingress_side, egress_side:
        order = np.argsort(side["ts_ns"], kind="stable")
        for name in side:
            side[name] = side[name][order]
    fates = fates_of([(ingress_side, egress_side)])
    assert len(fates) == 50
    assert set(fates.values()) == {4_000_000}


def test_each_tap_starts_with_its_first_packet_also_before_1970():
    ingress, egress = (packets([(ms, 10 * ms, 10) for ms in (at, at + 1)]) for at in (0, 1))
    for tap in (ingress, egress):
        tap["ts_ns"] = tap["ts_ns"] - 10**18
    pair = taps.TapPair(check_taps=False)
    for part in zip(cut(ingress, [1]), cut(egress, [1]), strict=True):
        pair.update(*part)
    starts = pair.ingress_start_ns, pair.egress_start_ns
    assert starts == (ingress["ts_ns"][0], egress["ts_ns"][0])
