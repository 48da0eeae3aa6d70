"""What senders do in a window: replays of Reno's and CUBIC's windows beside those of simulated senders."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import cctoolkit as cct
from cctoolkit.errors import SchemaError
from cctoolkit.identify import SlotDataset, build_dataset, cut_windows, record
from cctoolkit.identify.behaviour import AS, STATES, Behaviour, behaviours, right
from cctoolkit.identify.dataset import Recording


def recorded(*ccas: str, rtt_ms: float = 40, buffer_packets: int = 60, **link: object) -> Recording:
    """Flows that share 20 Mbit/s for twenty seconds."""
    bottleneck = cct.Bottleneck(rate_mbps=20, buffer_packets=buffer_packets, **link)
    flows = tuple(cct.Flow(cca, rtt_ms=rtt_ms) for cca in ccas)
    scenario = cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=20, seed=1)
    return record(cct.simulate(scenario, record=True, sample_s=0.02), name="+".join(ccas))


def share(moved: Behaviour, name: str, window_ms: int) -> float:
    """The share of windows in which a sender did what `name` would do."""
    starts = range(3000, 19_900 - window_ms, 37)
    return float(np.mean([moved.same_as(name, start, window_ms) for start in starts]))


@pytest.fixture(scope="module")
def moved() -> dict[str, Behaviour]:
    """A flow of each, alone on the link."""
    out = {}
    for cca in ("reno", "cubic", "htcp", "dctcp", "vegas", "bbr"):
        recording = recorded(cca)
        out[cca] = behaviours(recording.states, recording.slot_ms)[0]
    return out


@pytest.mark.parametrize("cca", ["reno", "cubic"])
@pytest.mark.parametrize("window_ms", [100, 1000, 10_000])
def test_senders_do_what_they_are_called(moved, cca, window_ms):
    assert share(moved[cca], cca, window_ms) == 1


def test_reno_and_cubic_are_alike_only_for_few_round_trips(moved):
    for cca, other in (("reno", "cubic"), ("cubic", "reno")):
        by_length = [share(moved[cca], other, ms) for ms in (30, 300, 1000, 3000)]
        assert by_length == sorted(by_length, reverse=True)
        assert by_length[0] > 0.9 and by_length[-1] == 0


def test_a_loss_tells_their_factors_apart():
    """Half for Reno, 0.7 for CUBIC: even where the windows before and after would be the same."""
    states = recorded("cubic").states
    reduced = states[
        states.in_recovery & ~states.in_recovery.shift(1, fill_value=False) & (states.slot > 3000)
    ]
    moved = Behaviour(states, 1.0)
    for slot in reduced.slot:
        assert moved.same_as("cubic", int(slot) - 40, 80) and not moved.same_as("reno", int(slot) - 40, 80)


def test_others_do_what_reno_does_as_their_definitions_say(moved):
    assert share(moved["dctcp"], "reno", 3000) == 1  # no marks: falls back to Reno (RFC 8257, section 3.5)
    # H-TCP grows as Reno for a second after a loss; with 1 s or less between losses always, else at times
    assert 0 < share(moved["htcp"], "reno", 300) < 1
    assert share(moved["vegas"], "reno", 1000) < share(moved["dctcp"], "reno", 1000)


def test_who_paces_by_a_rate_is_like_nobody(moved):
    assert moved["bbr"].alike("bbr", 5000, 30) == dict.fromkeys(AS, False)
    assert moved["reno"].alike("reno", 5000, 3000) == {"as_reno": True, "as_cubic": False}


def test_windows_without_states_are_like_themselves_only(moved):
    assert not moved["reno"].same_as("reno", -500, 100) and not moved["reno"].same_as("reno", 19_990, 100)


def test_slots_and_states_have_one_clock():
    """Bytes in flight, which the tap sees, are the sender's window: at the same slot, within a round trip's change."""
    recording = recorded("reno")
    flight = recording.slots.set_index("slot").bytes_in_flight.astype(float) / 1448
    calm = recording.states[(recording.states.slot > 3000) & ~recording.states.in_recovery]
    calm = calm[calm.slot < flight.index.max() - 50]
    seen = flight.reindex(calm.slot.astype(int)).to_numpy()
    apart = [np.median(np.abs(np.roll(seen, n) - calm.cwnd_packets)) for n in (0, 25, -25)]
    assert apart[0] < 2 and apart[0] < min(apart[1:])


@pytest.mark.slow
def test_windows_say_what_their_senders_did(tmp_path):
    flows = (cct.Flow("cubic", rtt_ms=40), cct.Flow("bbr", rtt_ms=40))
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=60), flows=flows, duration_s=8, name="a"
    )
    data = build_dataset([({}, scenario)], tmp_path / "data", workers=1, progress=False)
    (recording,) = SlotDataset(data.path)
    assert set(STATES) <= set(recording.states) and set(recording.states.flow_id) == {0, 1}
    table = cut_windows(data, 1000, per_flow=5).table
    assert table.as_cubic.to_list() == (table.cca == "cubic").to_list()
    (tmp_path / "data/states/a.parquet").unlink()
    assert not set(AS) & set(cut_windows(data, 1000, per_flow=5).table)


def test_a_name_is_right_if_its_window_would_have_moved_so():
    table = pd.DataFrame(
        {"cca": ["bic", "bic", "cubic", "bbr", "bic"], "as_reno": [True, False, True, False, None],
         "as_cubic": [False, False, True, False, None]}
    )  # fmt: skip
    assert right(["reno"] * 5, table).tolist() == [True, False, True, False, False]
    assert right(["cubic", "bic", "cubic", "unknown", "bic"], table).tolist() == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert right(["reno", "bbr"], table[["cca"]].iloc[2:4]).tolist() == [False, True]


def test_states_that_are_none():
    with pytest.raises(SchemaError, match="srtt_ns"):
        behaviours(pd.DataFrame({name: [1] for name in STATES}).drop(columns="srtt_ns"), 1.0)


def test_windows_are_in_the_slots_of_the_table_also_if_the_first_packets_have_late_times():
    run = cct.example("cubic")
    taps = {}
    for name in ("ingress", "egress"):
        tap = getattr(run, name)
        late = tap.columns["ts_ns"].copy()
        late[0] += 500_000_000
        taps[name] = cct.Capture(tap.columns | {"ts_ns": late}, tap.keys, tap.meta)
    start_ns = min(int(tap.columns["ts_ns"].min()) for tap in taps.values()) // 10**6 * 10**6
    series = pd.DataFrame({name: [1.0] for name in STATES if name != "slot"})
    series = series.assign(flow_id=0, ts_ns=start_ns + 10**9, in_recovery=False)
    recording = record(dataclasses.replace(run, **taps, flow_series=series), check_taps=False)
    assert recording.states["slot"].tolist() == [1000]


def test_a_series_without_a_time_is_refused() -> None:
    link = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    scenario = cct.Scenario(bottleneck=link, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=1)
    run = cct.simulate(scenario, sample_s=0.1, record=True)
    series = run.flow_series.astype({"ts_ns": object})
    series.loc[3, "ts_ns"] = None
    with pytest.raises(SchemaError, match="flow_series: column 'ts_ns' is object, expected numbers"):
        record(dataclasses.replace(run, flow_series=series), slot_ms=10)
