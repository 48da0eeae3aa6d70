"""Slots as the sender sees them: the kernel against its twin, and taps along a path against the one at its start."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from naive_sender_view import delayed
from test_limits import flows, nearer_to_the_receiver, simulated, slots_of, slots_of_columns
from tools import examples

import cctoolkit as cct
from cctoolkit import seen_by_sender
from cctoolkit.analysis.sender_view import TapRtts
from cctoolkit.errors import ParameterError, SchemaError


def flow_with(handshake_rtt_ns: int | None, syn_rtt_ns: int | None, forward: bool = True) -> pd.DataFrame:
    """Columns of a flows table; the sender is the initiator if the data go forward."""
    table = pd.DataFrame({"flow_id": [0], "payload_fwd": [9 * forward], "payload_rev": [9 * (not forward)]})
    table["handshake_rtt_ns"] = pd.array([handshake_rtt_ns], "Int64")
    table["syn_rtt_ns"] = pd.array([syn_rtt_ns], "Int64")
    return table


@settings(max_examples=examples(100), deadline=None)
@given(flows(), st.integers(1, 150))
def test_every_acknowledgement_counts_later(flow, later):
    came, flight, seq, _, echoes = flow
    slots = slots_of_columns(*flow)
    slots.attrs["slot_ms"] = 1.0
    seen = seen_by_sender(slots, flow_with(200_000_000, later * 1_000_000, forward=False))
    wanted = delayed(came, seq, later, flight, echoes)
    for name, values in zip(("bytes_in_flight", "ecn_echoes"), wanted, strict=True):
        found = seen[name].to_numpy(float, na_value=math.nan)
        np.testing.assert_array_equal(found, values, name)
    for name in set(slots) - {"bytes_in_flight", "ecn_echoes"}:
        assert seen[name].equals(slots[name]), name


@pytest.mark.parametrize("cca", ["cubic", "bbr"])
@pytest.mark.parametrize("aqm", ["tail_drop", "codel"])
@pytest.mark.parametrize("behind_ms", [50, 10, 1])
def test_a_tap_on_the_way_sees_what_the_one_at_the_sender_sees(behind_ms, aqm, cca):
    run = simulated(cct.Flow(cca, rtt_ms=100, ecn="classic"), cct.Flow("reno", rtt_ms=100), aqm=aqm)
    at_sender = cct.compute_slots(run.ingress)
    tap = nearer_to_the_receiver(run.ingress, 100 - behind_ms)
    slots = cct.compute_slots(tap)
    seen = seen_by_sender(slots, tap.flows)
    for flow in (0, 1):
        assert seen.attrs["sender_rtt_ns"][flow] == pytest.approx((100 - behind_ms) * 1e6, rel=0.01)
        ours, theirs, raw = (t[t.flow_id == flow].set_index("slot") for t in (seen, at_sender, slots))
        rows = theirs.index.intersection(ours.index)
        off, raw_off = (
            (t.bytes_in_flight[rows] - theirs.bytes_in_flight[rows]).abs().mean() for t in (ours, raw)
        )
        assert off < 0.001 * theirs.bytes_in_flight[rows].mean() < 0.1 * raw_off
        assert ours.ecn_echoes.sum() == pytest.approx(theirs.ecn_echoes.sum(), rel=0.02)


def test_the_half_towards_the_sender_counts():
    """An upload is sent by the initiator, a download by the other side."""
    slots = slots_of([0, 100, 0, 0, 0], [0, 0, 0, 0, 0], [None, 0, None, None, None])
    slots.attrs["slot_ms"] = 1.0
    for forward, wanted in ((True, [0, 0, 0, 0, 0]), (False, [0, 100, 100, 0, 0])):
        flow = flow_with(2_000_000, 2_000_000, forward)
        assert seen_by_sender(slots, flow).bytes_in_flight.tolist() == wanted


@pytest.mark.parametrize("behind_ms", [70, 20])
def test_timestamps_show_where_the_sender_is_without_a_handshake(behind_ms):
    run = simulated(cct.Flow("cubic", rtt_ms=100), cct.Flow("reno", rtt_ms=100))
    tap = nearer_to_the_receiver(run.ingress, 100 - behind_ms)
    late = tap.rows(tap.columns["ts_ns"] >= tap.columns["ts_ns"][0] + 3 * 10**9)
    assert late.flows.handshake_rtt_ns.isna().all()
    slots = cct.compute_slots(late)
    assert seen_by_sender(slots, late.flows).bytes_in_flight.equals(slots.bytes_in_flight)
    seen = seen_by_sender(slots, late)
    for rtt_ns in seen.attrs["sender_rtt_ns"].values():
        assert rtt_ns == pytest.approx((100 - behind_ms) * 1e6, abs=2e6)
    at_sender = cct.compute_slots(run.ingress).set_index(["flow_id", "slot"]).bytes_in_flight
    ours = seen.assign(slot=seen.slot + 3000).set_index(["flow_id", "slot"]).bytes_in_flight
    rows = at_sender.index.intersection(ours.index)[1000:]
    assert (ours[rows] - at_sender[rows]).abs().mean() < 0.02 * at_sender[rows].mean()


@pytest.mark.parametrize(("on_s", "off_s"), [(0.02, 0.48), (0.005, 0.3)])
def test_a_pause_of_the_application_is_not_the_way_to_the_sender(on_s, off_s):
    """What a sender has to say comes at once, and its next burst echoes what came half a second ago."""
    run = simulated(cct.Flow("cubic", rtt_ms=40, rate_mbps=15, on_s=on_s, off_s=off_s))
    late = run.ingress.rows(run.ingress.columns["ts_ns"] >= 3 * 10**9)
    seen = seen_by_sender(cct.compute_slots(late), late)
    assert max(seen.attrs["sender_rtt_ns"].values(), default=0) < 3e6
    assert cct.flow_limits(seen).limited_by.tolist() == ["application"]


def test_parts_are_as_good_as_the_whole():
    run = simulated(
        cct.Flow("cubic", rtt_ms=100), cct.Flow("reno", rtt_ms=60, on_s=0.1, off_s=0.2, rate_mbps=9)
    )
    tap = nearer_to_the_receiver(run.ingress, 45)
    rows = np.arange(len(tap))
    whole, in_parts, of_one = TapRtts([0, 1]), TapRtts([0, 1]), TapRtts([1])
    whole.update(tap.columns)
    for begin in range(0, len(rows), 777):
        part = tap.rows((rows >= begin) & (rows < begin + 777)).columns
        in_parts.update(part)
        of_one.update(part)
    np.testing.assert_array_equal(in_parts.rtts_ns([1, 0, 7]), whole.rtts_ns([1, 0, 7]))
    np.testing.assert_array_equal(of_one.rtts_ns([0, 1]), [[np.nan] * 2, *whole.rtts_ns([1])])
    assert np.isnan(whole.rtts_ns([7])).all() and whole.rtts_ns([0])[0].tolist() == pytest.approx(
        [55e6, 45e6], rel=0.05
    )

    c, last, samples = tap.columns, {}, {}
    for sample in cct.rtt_samples(tap, method="timestamps").itertuples():
        samples.setdefault((sample.ts_ns, sample.flow_id), []).append(sample)
    shortest: dict[tuple[int, int], list[int]] = {}
    for ts, flow, way, size in zip(
        *(c[n].tolist() for n in ("ts_ns", "flow_id", "direction", "payload_bytes")), strict=True
    ):
        for sample in samples.pop((ts, flow), []):
            if sample.direction != way and (
                not size or last.get((flow, way), -1) > ts - sample.rtt_ns or sample.rtt_ns <= 2e6
            ):
                shortest.setdefault((flow, sample.direction), []).append(sample.rtt_ns)
        if size:
            last[flow, way] = ts
    for (flow, direction), found in shortest.items():
        if len(found) >= 8:
            assert whole.rtts_ns([flow])[0, direction] == min(found)


def test_what_took_longer_does_not_count():
    """A server that is slow to accept makes the handshake's half longer than the way to it."""
    run = simulated(cct.Flow("cubic", rtt_ms=40))
    tap = nearer_to_the_receiver(run.ingress, 30)
    slow = tap.flows.assign(handshake_rtt_ns=tap.flows.handshake_rtt_ns + 200_000_000)
    echoes = TapRtts([0])
    echoes.update(tap.columns)
    (flow,) = echoes.shorten(slow).to_dict("records")
    assert flow["handshake_rtt_ns"] - flow["syn_rtt_ns"] == pytest.approx(30e6, abs=1e6)
    assert flow["syn_rtt_ns"] == pytest.approx(10e6, rel=0.05)


@pytest.mark.parametrize("halves", [(None, None), (3_000_000, None), (3_000_000, 3_000_000)])
def test_without_a_half_towards_the_sender_nothing_changes(halves):
    slots = slots_of([100, 0, 0, 0], [100, 0, 0, 0], [0, None, None, None], ecn_echoes=[0, 1, 0, 0])
    slots.attrs["slot_ms"] = 1.0
    seen = seen_by_sender(slots, flow_with(*halves))
    pd.testing.assert_frame_equal(seen, slots, check_flags=False)
    assert seen.attrs["path_rtt_ns"] == ({0: 3_000_000} if None not in halves else {})


def test_it_is_done_once():
    slots = slots_of([100, 0, 0, 0], [100, 0, 0, 0], [0, None, None, None])
    slots.attrs["slot_ms"] = 1.0
    flow = flow_with(3_000_000, 2_000_000, forward=False)
    seen = seen_by_sender(slots, flow)
    pd.testing.assert_frame_equal(seen_by_sender(seen, flow), seen)
    assert "path_rtt_ns" not in slots.attrs and slots.bytes_in_flight.tolist() == [100, 0, 0, 0]


def test_tables_of_other_kinds_are_refused():
    slots = slots_of([100], [100], [0])
    slots.attrs["slot_ms"] = 1.0
    with pytest.raises(SchemaError, match="syn_rtt_ns"):
        seen_by_sender(slots, flow_with(1, 1).drop(columns="syn_rtt_ns"))
    slots.attrs.clear()
    with pytest.raises(ParameterError, match="slot_ms"):
        seen_by_sender(slots, flow_with(1, 1))
