"""What limits a flow: the kernel against its twin, known causes in the simulator, captured traces."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from naive_limits import signs
from tools import examples

import cctoolkit as cct
from cctoolkit.analysis.limits import LIMITS, NAMEABLE, SIGNS, limit_in_words
from cctoolkit.errors import SchemaError
from cctoolkit.identify.probabilities import format_cca

TRACES = Path(__file__).parents[1] / "traces"


def slots_of(came, flight, seq, **more) -> pd.DataFrame:
    columns = {"in_bytes": came, "in_seq": seq, "bytes_in_flight": flight, **more}
    table = pd.DataFrame({name: pd.array(values, "Int64") for name, values in columns.items()})
    table.insert(0, "flow_id", 0)
    table.insert(1, "slot", range(len(table)))
    return table


def slots_of_columns(came, flight, seq, ce, echoes) -> pd.DataFrame:
    """The slots of a flow as :func:`flows` draws it."""
    return slots_of(
        [int(x) for x in came],
        [None if math.isnan(x) else int(x) for x in flight],
        [None if x < 0 else x for x in seq],
        in_ce_packets=ce,
        ecn_echoes=echoes,
    )


# ---- the kernel and its twin -----------------------------------------------------------------------------------------


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[float], list[float], list[int], list[int], list[int]]:
    """Slots of a flow that loses, repeats, pauses, wraps, is marked; acknowledgements may begin late or never come."""
    length = draw(st.integers(1, 120))
    at = draw(st.sampled_from([0, 1000, 2**32 - 5000]))
    came, flight, seq = [], [], []
    outstanding = 0
    for _ in range(length):
        size = draw(st.sampled_from([0, 0, 1448, 2896, 500]))
        jump = draw(st.sampled_from([0, 0, 0, 0, 1448, -1448, -4000]))
        at = (at + (jump if size else 0)) % 2**32
        came.append(float(size))
        seq.append(at if size else -1)
        at = (at + size) % 2**32
        outstanding = max(outstanding + size - draw(st.sampled_from([0, 1448, 2896])), 0)
        flight.append(float(outstanding))
    unknown = min(draw(st.sampled_from([0, 0, 3, length])), length)
    flight[:unknown] = [math.nan] * unknown
    if draw(st.booleans()) and length > 10:
        flight[-4:] = [math.nan] * 4
    ce, echoes = (
        draw(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=length, max_size=length)) for _ in "12"
    )
    return came, flight, seq, ce, echoes


@settings(max_examples=examples(100), deadline=None)
@given(flows())
def test_what_is_measured_is_what_its_definition_says(flow):
    (row,) = cct.flow_limits(slots_of_columns(*flow)).to_dict("records")
    wanted = signs(*flow)
    for name in SIGNS:
        assert row[name] == pytest.approx(wanted.get(name, math.nan), rel=1e-9, abs=1e-9, nan_ok=True), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cubic", "cubic-bbr", "fq-codel-ecn", "mixed"])
def test_of_captured_flows_too(name):
    slots = cct.compute_slots(cct.load_run(TRACES / name).ingress)
    table = cct.flow_limits(slots)
    for row in table.to_dict("records")[:4]:
        flow = slots[slots.flow_id == row["flow_id"]]
        columns = [
            flow[c].to_numpy(float, na_value=none) for c, none in
            (("in_bytes", math.nan), ("bytes_in_flight", math.nan), ("in_seq", -1), ("in_ce_packets", 0),
             ("ecn_echoes", 0))
        ]  # fmt: skip
        few = [column[:3000].tolist() for column in columns]
        (row,) = cct.flow_limits(flow.iloc[:3000].reset_index(drop=True)).to_dict("records")
        wanted = signs(few[0], few[1], [int(x) for x in few[2]], few[3], few[4], row["segment_bytes"])
        assert {n: row[n] for n in SIGNS} == pytest.approx(wanted, nan_ok=True)


# ---- the answers -----------------------------------------------------------------------------------------------------


def simulated(*flows: cct.Flow, **bottleneck: object) -> cct.Run:
    link = {"rate_mbps": 20, "buffer_packets": 60} | bottleneck
    return cct.simulate(
        cct.Scenario(bottleneck=cct.Bottleneck(**link), flows=flows, duration_s=12), record=True
    )


CAUSES = {
    "bottleneck": ({}, {"bottleneck"}),
    "an application that writes at a rate": ({"rate_mbps": 4}, {"elsewhere"}),
    "an application that pauses": ({"rate_mbps": 8, "on_s": 0.2, "off_s": 0.4}, {"application"}),
    "the receiver's window": ({"max_window": 8}, {"elsewhere"}),
    "the access link": ({"access_mbps": 6}, {"elsewhere"}),
}  # fmt: skip


@pytest.mark.parametrize("cca", ["reno", "cubic", "bbr"])
@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_is_found(cause, cca):
    changes, wanted = CAUSES[cause]
    run = simulated(cct.Flow(cca, rtt_ms=40, **changes))
    for slots in (cct.compute_slots(run.ingress), cct.compute_slots(run.ingress, run.egress)):
        assert set(cct.flow_limits(slots).limited_by) <= wanted


@pytest.mark.parametrize("buffer_packets", [60, 200])
@pytest.mark.parametrize("rtt_ms", [15, 30, 60, 100])
def test_bbr_alone_fills_a_queue_at_times(rtt_ms, buffer_packets):
    slots = cct.compute_slots(
        simulated(cct.Flow("bbr", rtt_ms=rtt_ms), buffer_packets=buffer_packets).ingress
    )
    for first in (0, 4000):
        table = cct.flow_limits(slots[slots.slot >= first].reset_index(drop=True))
        assert list(table.limited_by) == ["bottleneck"] and (table.own_queue > 0.2).all()


@pytest.mark.parametrize(
    ("rate_mbps", "rtt_ms", "buffer_packets", "duration_s", "seed"),
    [(300, 60, 743, 13, 1), (300, 90, 1114, 13, 1), (49.828105, 9.022046, 154, 6, 65)],
)
def test_cubic_alone_keeps_a_queue_and_a_steady_rate(rate_mbps, rtt_ms, buffer_packets, duration_s, seed):
    """It grows slowly near the window at which it lost before, or backs off with a deep queue that never empties."""
    link = cct.Bottleneck(rate_mbps=rate_mbps, buffer_packets=buffer_packets)
    flow = cct.Flow("cubic", rtt_ms=rtt_ms)
    run = cct.simulate(cct.Scenario(bottleneck=link, flows=[flow], duration_s=duration_s, seed=seed))
    (row,) = cct.flow_limits(cct.compute_slots(run.ingress)).to_dict("records")
    assert row["limited_by"] == "bottleneck" and row["rate_spread"] < 0.045


def nearer_to_the_receiver(capture: cct.Capture, by_ms: float) -> cct.Capture:
    """A tap that sees ACKs earlier, and so has less of the path behind it; the handshake takes as long."""
    columns = {name: column.copy() for name, column in capture.columns.items()}
    columns["ts_ns"][columns["direction"] == 1] -= round(by_ms * 1e6)
    order = np.argsort(columns["ts_ns"], kind="stable")
    return cct.Capture({name: column[order] for name, column in columns.items()}, capture.keys, capture.meta)


def near_the_receiver(run: cct.Run) -> cct.Capture:
    """A tap behind the queue, 0.2 ms from the receiver and back."""
    rtt = cct.rtt_samples(run.egress)
    return nearer_to_the_receiver(run.egress, rtt.rtt_ns[rtt.direction == 0].min() / 1e6 - 0.2)


@pytest.mark.parametrize("cca", ["cubic", "bbr"])
@pytest.mark.parametrize("cause", CAUSES)
def test_near_the_receiver_the_cause_cannot_be_seen(cause, cca):
    """A window that leaves pauses of a round trip looks like an application that pauses, unless the path is known."""
    run = simulated(cct.Flow(cca, rtt_ms=40, **CAUSES[cause][0]))
    tap = near_the_receiver(run)
    slots = cct.compute_slots(tap)
    without = cct.flow_limits(slots)
    assert without.path_rtt_slots.isna().all()
    (row,) = cct.flow_limits(cct.seen_by_sender(slots, tap.flows)).to_dict("records")
    assert row["limited_by"] == "behind" and row["path_rtt_slots"] == pytest.approx(40, rel=0.02)
    assert row["rtt_slots"] < 0.1 * row["path_rtt_slots"] and row["sender_rtt_slots"] > 39
    if cause == "the receiver's window":
        assert without.limited_by.tolist() == ["application"]


@pytest.mark.parametrize("cause", CAUSES)
def test_near_the_sender_the_length_of_the_path_changes_nothing(cause):
    run = simulated(cct.Flow("cubic", rtt_ms=40, **CAUSES[cause][0]))
    slots = cct.compute_slots(run.ingress)
    before = cct.flow_limits(slots).limited_by.tolist()
    assert cct.flow_limits(cct.seen_by_sender(slots, run.ingress.flows)).limited_by.tolist() == before


@pytest.mark.parametrize(("cca", "aqm"), [("bbr", "tail_drop"), ("cubic", "codel"), ("cubic", "fq_codel")])
def test_a_bottleneck_between_the_tap_and_a_receiver_near_it_is_seen(cca, aqm):
    """An access link at the end of a path of 100 ms, of which 2 ms are behind the tap."""
    run = simulated(cct.Flow(cca, rtt_ms=100), aqm=aqm)
    tap = nearer_to_the_receiver(run.ingress, 98)
    (row,) = cct.flow_limits(cct.seen_by_sender(cct.compute_slots(tap), tap.flows)).to_dict("records")
    assert row["limited_by"] == "bottleneck" and row["rtt_slots"] < 0.2 * row["path_rtt_slots"]


def test_a_silence_shorter_than_the_path_is_no_pause():
    """Three flows share an access link with CoDel: few packets in each round trip, most of which is before the tap."""
    run = simulated(*[cct.Flow("reno", rtt_ms=100, start_s=0.3 * i) for i in range(3)], aqm="codel")
    tap = nearer_to_the_receiver(run.ingress, 98)
    slots = cct.compute_slots(tap)
    assert "application" in cct.flow_limits(slots).limited_by.tolist()
    assert set(cct.flow_limits(cct.seen_by_sender(slots, tap.flows)).limited_by) == {"bottleneck"}


@pytest.mark.parametrize("what", ["path_rtt_ns", "sender_rtt_ns"])
@pytest.mark.parametrize("noted", [5, {0: "long"}, {0: None}, [1, 2]])
def test_notes_that_are_none(noted, what):
    slots = slots_of([1.0] * 20, [1.0] * 20, [1] * 20)
    slots.attrs |= {"slot_ms": 1.0, what: noted}
    if noted == {0: None}:
        assert cct.flow_limits(slots)[f"{what.removesuffix('_ns')}_slots"].isna().all()
        return
    with pytest.raises(SchemaError, match=what):
        cct.flow_limits(slots)


@pytest.mark.parametrize("cca", ["reno", "cubic", "htcp", "bbr", "bbr3"])
@pytest.mark.parametrize("aqm", ["tail_drop", "codel", "pie"])
def test_competing_flows_are_limited_by_the_bottleneck(cca, aqm):
    run = simulated(cct.Flow(cca, rtt_ms=30), cct.Flow("reno", rtt_ms=50, start_s=0.3), aqm=aqm)
    assert list(cct.flow_limits(cct.compute_slots(run.ingress)).limited_by) == ["bottleneck"] * 2


@pytest.mark.parametrize("cca", ["reno", "cubic"])
def test_marks_are_signals_as_losses_are(cca):
    run = simulated(cct.Flow(cca, rtt_ms=80, ecn="classic", delayed_ack=1), aqm="codel", buffer_packets=300)
    assert (run.flows.retransmits == 0).all()
    slots = cct.compute_slots(run.ingress)
    (row,) = cct.flow_limits(slots).to_dict("records")
    assert row["limited_by"] == "bottleneck" and row["loss_share"] == 0 < row["mark_share"]
    assert row["ce_packets"] == 0 < row["ecn_echoes"]
    (unseen,) = cct.flow_limits(slots.drop(columns="ecn_echoes")).to_dict("records")
    assert unseen["unforced_share"] > row["unforced_share"] + 0.1
    assert cct.flow_limits(cct.compute_slots(run.egress)).limited_by.tolist() == ["behind"]


def test_a_queue_before_the_tap_that_marks_less_does_not_hide_the_bottleneck():
    slots = cct.compute_slots(cct.load_run(TRACES / "fq-codel-ecn").ingress)
    marked = slots.index[(slots.flow_id == 0) & (slots.in_packets > 0)][::100][:20]
    slots.loc[marked, "in_ce_packets"] = 1  # with 59 echoes
    limits = cct.flow_limits(slots).set_index("flow_id")
    assert limits.ce_packets[0] == 20 and limits.limited_by[0] == "bottleneck"


TAPS = sorted(path.name.removesuffix(".ingress.pcap.gz") for path in TRACES.glob("*.ingress.pcap.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TAPS)
def test_captured_flows_before_and_behind_the_queue(name):
    run = cct.load_run(TRACES / name)
    big = run.labels[run.labels.bytes_acked > 1e6]
    before, behind = (
        cct.flow_limits(cct.compute_slots(tap)).merge(tap.flows[["flow_id", "src", "sport"]], on="flow_id")
        .merge(big[["src", "sport", "cca"]], on=["src", "sport"])
        for tap in (run.ingress, run.egress)
    )  # fmt: skip
    assert len(before) == len(behind) == len(big) > 0
    assert set(before.limited_by) == {"bottleneck"}
    assert set(behind.limited_by) == {"behind"}


def test_segments_in_another_order_are_no_retransmissions():
    """Two of a BBR flow without losses are 2.5 ms late at the tap: their bytes pass once, and nothing was repeated."""
    run = simulated(cct.Flow("bbr", rtt_ms=40), buffer_packets=300)
    packets = run.ingress.packets
    data = packets.index[(packets.direction == 0) & (packets.payload_bytes > 0)]
    packets.loc[data[[6000, 8000]], "ts_ns"] += 2_500_000
    packets = packets.sort_values("ts_ns", kind="stable", ignore_index=True)
    (row,) = cct.flow_limits(cct.compute_slots(packets)).to_dict("records")
    assert row["limited_by"] == "bottleneck" and row["resends"] == 0
    (one_way,) = cct.flow_limits(cct.compute_slots(packets[packets.direction == 0])).to_dict("records")
    assert one_way["limited_by"] == "unknown" and one_way["resends"] == 0


@pytest.mark.parametrize("probe_bytes", [0, 1])
def test_keep_alives_and_window_probes_are_no_retransmissions(probe_bytes):
    """A second of data, then keep-alives or probes, a byte each, of a sender that waits; and data again."""
    table = []
    end = 0
    for slot in range(3000):
        came, seq = 0, -1
        if slot % 40 == 0 and (slot < 1000 or slot >= 2000):
            came, seq = 2896, end
            end += came
        elif slot % 100 == 50 and probe_bytes:
            came, seq = 1, end - 1
        table.append(
            (0, slot, came, seq if seq >= 0 else math.nan, 2896 if slot % 40 < 20 and came > 1 else 0)
        )
    slots = pd.DataFrame(table, columns=["flow_id", "slot", "in_bytes", "in_seq", "bytes_in_flight"])
    slots.attrs["slot_ms"] = 1.0
    (row,) = cct.flow_limits(slots).to_dict("records")
    assert row["limited_by"] == "application"
    assert row["resends"] == row["resend_bytes"] == row["resent_bytes"] == row["loss_share"] == 0


def test_small_segments_pass_twice_as_large_ones_do():
    """An interactive session: two of its segments of 36 bytes were lost after the tap, where both copies passed."""
    slots = pd.DataFrame({"flow_id": 0, "slot": np.arange(8000), "in_bytes": 0, "bytes_in_flight": 0})
    sent = np.arange(0, 8000, 100)
    slots.loc[sent, "in_bytes"] = 36
    slots["in_seq"] = pd.array([pd.NA] * 8000, dtype="Int64")
    slots.loc[sent, "in_seq"] = np.arange(len(sent)) * 36
    for again in (4200, 6300):
        slots.loc[again + 40, ["in_bytes", "in_seq"]] = 36, slots.in_seq[again]
    for i in range(20):
        slots.loc[slots.index[slots.in_bytes > 0] + i, "bytes_in_flight"] = 36
    slots.attrs["slot_ms"] = 1.0
    (row,) = cct.flow_limits(slots).to_dict("records")
    assert row["resends"] == 2 and row["resend_bytes"] == row["resent_bytes"] == 72
    assert row["limited_by"] == "application"


def test_what_slow_start_overshoots_is_no_limit():
    run = simulated(cct.Flow("reno", rtt_ms=40, max_window=8), cct.Flow("cubic", rtt_ms=40))
    slots = cct.compute_slots(run.ingress)
    slots = slots[slots.flow_id == 0].reset_index(drop=True)
    assert list(cct.flow_limits(slots).limited_by) == ["elsewhere"]
    slots.loc[60, "bytes_in_flight"] *= 2  # once, in the second round trip
    (row,) = cct.flow_limits(slots).to_dict("records")
    assert row["limited_by"] == "elsewhere" and row["peak_share"] > 0.5


def test_nothing_is_ever_in_flight():
    """Each segment is acknowledged in the slot in which it came."""
    (row,) = cct.flow_limits(
        slots_of([1448, 0] * 500, [0] * 1000, [1448 * (i // 2) for i in range(1000)])
    ).to_dict("records")
    assert row["limited_by"] == "elsewhere" and row["growth"] == 0


def test_little_data_is_too_short():
    run = simulated(cct.Flow("cubic", rtt_ms=40))
    slots = cct.compute_slots(run.ingress)
    assert list(cct.flow_limits(slots.iloc[:200]).limited_by) == ["short"]
    assert len(cct.flow_limits(slots.iloc[:0])) == 0


def test_one_direction_shows_pauses_but_no_bottleneck():
    for changes, wanted in (
        ({"rate_mbps": 8, "on_s": 0.5, "off_s": 0.8}, "application"), ({"rate_mbps": 4}, "unknown"), ({}, "unknown")
    ):  # fmt: skip
        slots = cct.compute_slots(simulated(cct.Flow("cubic", rtt_ms=40, **changes)).ingress)
        slots["bytes_in_flight"] = pd.array([None] * len(slots), dtype="Int64")
        table = cct.flow_limits(slots)
        assert list(table.limited_by) == [wanted] and table.peak_share.isna().all()


def test_each_flow_by_itself_in_the_tables_order():
    slots = cct.compute_slots(cct.load_run(TRACES / "mixed").ingress)
    table = cct.flow_limits(slots)
    assert list(table.flow_id) == list(slots.flow_id.drop_duplicates())
    alone = [cct.flow_limits(flow.reset_index(drop=True)) for _, flow in slots.groupby("flow_id", sort=False)]
    pd.testing.assert_frame_equal(table, pd.concat(alone, ignore_index=True))


def test_rows_in_any_order_but_none_left_out():
    slots = cct.compute_slots(cct.load_run(TRACES / "mixed").ingress)
    table = cct.flow_limits(slots).set_index("flow_id")
    shuffled = slots.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(cct.flow_limits(shuffled).set_index("flow_id").loc[table.index], table)
    by_time = slots.sort_values("slot", kind="stable")
    pd.testing.assert_frame_equal(cct.flow_limits(by_time).set_index("flow_id").loc[table.index], table)
    flow, slot = slots.flow_id[0], slots.slot[0]
    with pytest.raises(SchemaError, match=f"flow {flow} lacks slot {slot + 3};"):
        cct.flow_limits(slots.drop(index=3))
    with pytest.raises(SchemaError, match=r"flow \d+ lacks slot"):
        cct.flow_limits(slots[slots.in_bytes > 0])
    with pytest.raises(SchemaError, match=f"flow {flow} has slot {slot + 2} twice"):
        cct.flow_limits(pd.concat([slots, slots.iloc[2:3]]))


def test_tables_that_are_none():
    with pytest.raises(SchemaError, match="in_seq"):
        cct.flow_limits(pd.DataFrame({"flow_id": [1], "slot": [1], "in_bytes": [1], "bytes_in_flight": [1]}))
    sound = slots_of(
        [1448] * 40, [1448] * 40, list(range(0, 1448 * 40, 1448)), in_ce_packets=[0] * 40, ecn_echoes=[0] * 40
    )
    hostile = sound.astype(float)
    for value in (np.inf, -np.inf, -5.0, 1e300, np.nan):
        for column in ("in_bytes", "in_seq", "bytes_in_flight", "in_ce_packets", "ecn_echoes"):
            wrong = hostile.copy()
            wrong.loc[7, column] = value
            assert set(cct.flow_limits(wrong).limited_by) <= set(LIMITS)


# ---- what is said ----------------------------------------------------------------------------------------------------


def test_every_answer_but_those_with_a_name_has_words():
    for limit, words in LIMITS.items():
        assert limit_in_words(limit) == ("" if limit in NAMEABLE else words)
        assert format_cca("unknown", math.nan, limit) == ("unknown" if limit in NAMEABLE else words)
    assert format_cca("reno", 0.98, "bottleneck") == format_cca("reno", 0.98) == "reno 98 %"


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"rate_mbps": 3}, {"max_window": 8}, {"access_mbps": 6}])
def test_no_flow_is_named_that_the_bottleneck_does_not_limit(changes):
    run = simulated(cct.Flow("cubic", rtt_ms=40, **changes))
    for taps in ((run.ingress, run.egress), (run.ingress,)):
        (flow,) = cct.identify.classify_flows(*taps).to_dict("records")
        assert (flow["cca"], flow["limited_by"]) == ("unknown", "elsewhere")
        assert math.isnan(flow["probability"]) and flow["windows"] > 0


@pytest.mark.slow
def test_names_need_taps_before_the_bottleneck():
    run = cct.example("cubic")
    before, behind = (cct.identify.classify_flows(tap).iloc[0] for tap in (run.ingress, run.egress))
    assert (before["cca"], before["limited_by"]) == ("cubic", "bottleneck") and before["probability"] > 0.5
    assert (behind["cca"], behind["limited_by"]) == ("unknown", "behind")


@pytest.mark.slow
@pytest.mark.parametrize("cca", ["reno", "cubic"])
def test_a_flow_has_the_same_name_all_along_its_path(cca):
    """As a tap far from the sender sees bytes in flight, the model would take these flows for BBR."""
    run = simulated(cct.Flow(cca, rtt_ms=100), cct.Flow(cca, rtt_ms=100, start_s=0.3), buffer_packets=60)
    at_sender = cct.identify.classify_flows(run.ingress)
    assert set(at_sender.cca) <= {cca, "unknown"} and cca in set(at_sender.cca)
    for before_ms in (8, 50, 90):
        on_the_way = cct.identify.classify_flows(nearer_to_the_receiver(run.ingress, before_ms))
        assert on_the_way.cca.tolist() == at_sender.cca.tolist()
        assert set(on_the_way.limited_by) == {"bottleneck"}
