"""Windows: where they are cut, what decides that, how they are split, and what files give back."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import cctoolkit as cct
from cctoolkit.errors import ParameterError, SchemaError
from cctoolkit.identify import FEATURE_SETS, INPUTS, Recording, Windows, cut_windows
from cctoolkit.identify.evaluation import evaluate
from cctoolkit.identify.inputs import BINS, VIEW_CHANNELS, VIEW_INPUTS, scale_view
from cctoolkit.identify.windows import (
    CROSSOVER_BANDS,
    crossover_bands,
    crossover_ratio,
    slot_arrays,
    window_slots,
)

RUN, FLOW = 200_000, 20_000  # in_bytes tells run, flow and slot: exact in float32 up to 2**24
MS = 40


def recording(run: int, *lengths: int, slot_ms: float = 1.0, rtt_ms: float = 20.0) -> Recording:
    """A run whose flows have so many slots, each saying where it is."""
    parts = []
    for flow, slots in enumerate(lengths):
        slot = np.arange(slots) + 100 * flow  # flows begin at different times
        here = RUN * run + FLOW * flow + np.arange(slots)
        parts.append(pd.DataFrame({"flow_id": flow, "slot": slot} | dict.fromkeys(INPUTS, here + 1.0)))
    flows = pd.DataFrame(
        {"flow_id": range(len(lengths)), "cca": ["reno", "cubic", "bbr", "vegas"][: len(lengths)]}
    )
    return Recording(f"run-{run}", pd.concat(parts), flows.assign(rtt_ms=rtt_ms), slot_ms)


def sorted_rows(windows: Windows) -> pd.DataFrame:
    table = windows.table.assign(first=windows.X[:, 0, 0])
    return table.sort_values(list(table.columns)).reset_index(drop=True)


# ---- cutting ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(1, 120),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from(list(FEATURE_SETS)),
)
def test_a_window_is_a_stretch_of_one_flow(runs, length, per_flow, seed, inputs):
    recordings = [recording(i, *lengths) for i, lengths in enumerate(runs)]
    enough = sum(slots >= length for lengths in runs for slots in lengths)
    if not enough:
        with pytest.raises(ParameterError, match=f"none of {sum(map(len, runs))} flows has {length} ms"):
            cut_windows(recordings, length, inputs, per_flow=per_flow, seed=seed)
        return
    windows = cut_windows(recordings, length, inputs, per_flow=per_flow, seed=seed)
    assert windows.X.shape == (per_flow * enough, length, len(FEATURE_SETS[inputs]))
    assert (
        windows.X.dtype == np.float32
        and windows.inputs == FEATURE_SETS[inputs]
        and windows.window_ms == length
    )
    for X, y, row in zip(windows.X, windows.y, windows.table.itertuples(), strict=True):
        where = row.first_slot - 100 * row.flow_id
        run = int(row.run.removeprefix("run-"))
        assert 0 <= where <= runs[run][row.flow_id] - length  # in flight, and whole
        expected = RUN * run + FLOW * row.flow_id + where + np.arange(length) + 1.0
        np.testing.assert_array_equal(X, np.repeat(expected[:, None], X.shape[1], axis=1))
        assert y == row.cca == ["reno", "cubic", "bbr", "vegas"][row.flow_id]
        assert (row.window_ms, row.rtt_ms) == (length, 20)


def test_windows_begin_anywhere():
    starts = cut_windows([recording(0, 100)], 11, per_flow=3000).table.first_slot
    assert set(starts) == set(range(90))
    assert starts.value_counts().between(10, 65).all()  # 33 each, were they uniform


@pytest.mark.parametrize(
    ("ms", "slot_ms", "slots"),
    [(10, 1, 10), (60_000, 1, 60_000), (60_000, 10, 6000), (10, 0.1, 100), (1, 0.3, None)],
)
def test_lengths_of_10_ms_to_60_s(ms, slot_ms, slots):
    if slots is None:
        with pytest.raises(ParameterError, match=r"1 ms .*0\.3 ms"):
            window_slots(ms, slot_ms)
        return
    assert window_slots(ms, slot_ms) == slots
    windows = cut_windows([recording(0, 60_000, slot_ms=slot_ms)], ms)
    assert windows.X.shape == (1, slots, 2) and windows.window_ms == ms and windows.slot_ms == slot_ms


@pytest.mark.parametrize("ms", [0, -10, 0.5, 1.5, float("nan"), float("inf")])
def test_lengths_that_are_no_number_of_slots_are_refused(ms):
    with pytest.raises(ParameterError, match=r"window_ms: .* multiple"):
        cut_windows([recording(0, 50)], ms)


def test_windows_depend_on_seed_run_flow_and_length_alone():
    runs = [recording(i, 300, 200, 250) for i in range(4)]
    windows = cut_windows(runs, MS, per_flow=3, seed=7)
    again = cut_windows(runs, MS, per_flow=3, seed=7)
    np.testing.assert_array_equal(windows.X, again.X)
    pd.testing.assert_frame_equal(windows.table, again.table)
    # in another order, without some runs, without some congestion controls
    pd.testing.assert_frame_equal(
        sorted_rows(cut_windows(runs[::-1], MS, per_flow=3, seed=7)), sorted_rows(windows)
    )
    some = cut_windows(runs[2:3], MS, per_flow=3, seed=7, ccas=["cubic"])
    pd.testing.assert_frame_equal(sorted_rows(some), sorted_rows(windows.of(run="run-2", cca="cubic")))
    # fewer of each flow are the first of more
    fewer = cut_windows(runs, MS, per_flow=1, seed=7)
    np.testing.assert_array_equal(fewer.X, windows.X[::3])
    assert (cut_windows(runs, MS, per_flow=3, seed=8).X != windows.X).any()
    assert len(set(windows.table.first_slot - 100 * windows.table.flow_id)) > 12  # runs and flows differ


def test_windows_without_a_packet_are_left_out():
    silent = recording(0, 400)
    silent.slots[list(INPUTS)] = silent.slots[list(INPUTS)].where(silent.slots.slot.between(100, 109), 0.0)
    windows = cut_windows([silent], 20, per_flow=200)
    assert 0 < len(windows) < 60 and (windows.X.sum(axis=(1, 2)) > 0).all()
    assert windows.table.first_slot.between(81, 109).all()
    silent.slots[list(INPUTS)] = 0.0
    with pytest.raises(ParameterError, match=r"window_ms: .*20 ms"):
        cut_windows([silent], 20)


def test_windows_with_data_stay_whatever_the_inputs_say():
    """An empty queue, no drops, nothing in flight: that tells something, too; and inputs are compared on one set."""
    quiet = recording(0, 400)
    for name in INPUTS:
        if name not in ("in_bytes", "in_packets"):
            quiet.slots[name] = 0.0
    places = [
        cut_windows([quiet], 20, inputs, per_flow=30).table
        for inputs in (*FEATURE_SETS, *INPUTS, ["drops_estimate", "cbiq_bytes"])
    ]
    assert len(places[0]) == 30 and all(table.equals(places[0]) for table in places)
    assert not cut_windows([quiet], 20, "cbiq", per_flow=30).X.any()
    sampled = recording(0, 400)  # nothing was counted
    sampled.slots[["in_bytes", "in_packets"]] = np.nan
    sampled.slots["throughput_bytes"] = sampled.slots.throughput_bytes.where(sampled.slots.slot > 380, 0.0)
    assert cut_windows([sampled], 20, "cbiq", per_flow=200).table.first_slot.between(362, 380).all()
    del sampled.slots["throughput_bytes"], sampled.slots["in_bytes"]
    with pytest.raises(SchemaError, match="in_bytes or throughput_bytes"):
        cut_windows([sampled], 20, "cbiq")
    with pytest.raises(ParameterError, match=r"window_ms: .*20 ms"):  # one tap shows no queue at all
        cut_windows(
            [Recording("x", recording(0, 90).slots.assign(cbiq_bytes=np.nan), sampled.flows)], 20, "cbiq"
        )


def test_flows_without_label_and_slots_not_known_yet_are_left_out():
    part = recording(0, 100, 100)
    part.flows = part.flows[part.flows.flow_id == 1]
    part.slots.loc[part.slots.slot > 100 + 49, "cbiq_bytes"] = (
        np.nan
    )  # the end of flow 1: no later packet says
    windows = cut_windows([part], 50)
    assert list(windows.table.flow_id) == [1] and list(windows.table.first_slot) == [100]
    with pytest.raises(ParameterError, match=r"window_ms: .*51 ms .* cbiq_bytes, throughput_bytes"):
        cut_windows([part], 51)
    assert len(cut_windows([part], 51, "throughput")) == 1


def test_an_input_that_is_never_known_is_not_waited_for():
    one_tap = recording(0, 60)
    one_tap.slots[["cbiq_bytes", "out_bytes", "drops_estimate"]] = None
    ((flow, first, values),) = slot_arrays(one_tap.slots, VIEW_INPUTS)
    assert (flow, first, values.shape) == (0, 0, (60, 5)) and np.isnan(values[:, 1:4]).all()
    views = cut_windows([one_tap], 60, "views")
    assert (views.X[0, :, VIEW_CHANNELS.index("window.has_queue")] == 0).all()
    assert (views.X[0, :, VIEW_CHANNELS.index("window.has_flight")] == 1).all()
    with pytest.raises(ParameterError, match=r"window_ms: .*60 ms .* cbiq_bytes"):
        cut_windows([one_tap], 60, "cbiq")


def test_slot_arrays_of_nothing_and_of_tables_that_lack_an_input():
    slots = recording(0, 5).slots
    assert list(slot_arrays(slots.iloc[:0], ["in_bytes"])) == []
    for name in ("in_bytes", "flow_id", "slot"):
        with pytest.raises(SchemaError, match=f"slots: column '{name}' is missing"):
            list(slot_arrays(slots.drop(columns=name), ["in_bytes"]))


# ---- inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "scale"),
    [
        (536, 1448 / 536), (8948, 1448 / 8948), (8844, 1448 / 8844), (48, 1448 / 48), (1428, 1), (1448, 1),
        (43_440, 1), (9_300, 1), (2 * 1448, 1), (6 * 1448, 1), (2 * 1220, 1448 / 1220), (3988, 1448 / 3988),
    ],
)  # fmt: skip
def test_bytes_are_counted_in_segments_of_one_length(payload, scale):
    came = np.array([0, 3, 1, 0, 2, 2]) * payload
    came[2] -= 4  # not all are full
    slots = pd.DataFrame(
        {"flow_id": 0, "slot": range(6), "in_bytes": came, "in_packets": [0, 3, 1, 0, 2, 2], "bytes_in_flight": 1e4}
    )  # fmt: skip
    ((_, _, values),) = slot_arrays(slots, ("in_packets", "in_bytes", "bytes_in_flight"))
    assert values[:, 0].tolist() == [0, 3, 1, 0, 2, 2]
    np.testing.assert_allclose(values[:, 1], came * scale, rtol=1e-6)
    np.testing.assert_allclose(values[:, 2], 10_000 * scale, rtol=1e-6)
    ((_, _, values),) = slot_arrays(slots.drop(columns="in_packets"), ("in_bytes",))
    np.testing.assert_allclose(values[:, 0], came)


def test_short_packets_are_full_segments_only_if_none_is_longer():
    slots = pd.DataFrame({"flow_id": 0, "slot": range(4), "in_bytes": [100, 100, 100, 700], "in_packets": 1})
    ((_, _, values),) = slot_arrays(slots, ("in_bytes",))
    assert values[:, 0].tolist() == [100, 100, 100, 700]  # an application that writes little
    ((_, _, values),) = slot_arrays(slots[:3], ("in_bytes",))
    assert values[:, 0].tolist() == [1448, 1448, 1448]  # a path with a small MTU


def test_a_length_that_others_exceed_is_not_a_segments():
    slots = pd.DataFrame(
        {"flow_id": 0, "slot": range(4), "in_bytes": [4000, 4000, 6000, 1000], "in_packets": 1}
    )
    ((_, _, values),) = slot_arrays(slots, ("in_bytes",))
    assert values[:, 0].tolist() == [4000, 4000, 6000, 1000]  # four segments of 1000 bytes, or any others


def test_flows_with_other_segments_are_like_each_other():
    seen = {}
    for frame in (602, 1514, 9014):
        flow = cct.Flow("reno", rtt_ms=30, packet_bytes=frame)
        link = cct.Bottleneck(rate_mbps=20 * frame / 1514, buffer_packets=50)
        run = cct.simulate(cct.Scenario(bottleneck=link, flows=[flow], duration_s=4), record=True)
        ((_, _, values),) = slot_arrays(cct.compute_slots(run.ingress), ("in_bytes", "bytes_in_flight"))
        seen[frame] = values[:3900]
    for frame in (602, 9014):  # the same packets at the same times, but for the headers' share
        assert seen[frame].sum(axis=0) == pytest.approx(seen[1514].sum(axis=0), rel=0.02)


def test_feature_sets_are_those_of_the_papers():
    assert FEATURE_SETS["cbiq+throughput"] == ("cbiq_bytes", "throughput_bytes")  # Dragonfly, section III-A
    assert FEATURE_SETS["cbiq"] == ("cbiq_bytes",)
    assert FEATURE_SETS["throughput"] == ("in_packets",)  # DeePCCI: packets a slot
    one_tap = FEATURE_SETS["bytes_in_flight+throughput"]
    assert not {"cbiq_bytes", "out_bytes", "drops_estimate"} & set(one_tap)  # these need a second tap
    assert {name for names in FEATURE_SETS.values() for name in names} <= set(INPUTS)


def test_inputs_by_name_and_what_is_none():
    run = recording(0, 80)
    assert cut_windows([run], 8, "in_bytes").inputs == ("in_bytes",)
    assert cut_windows([run], 8, ["out_bytes", "in_bytes"]).inputs == ("out_bytes", "in_bytes")
    for wrong in ("cbiq+rtt", ["in_bytes", "slot"]):
        with pytest.raises(ParameterError, match=r"inputs: .* is neither a feature set \(cbiq\+throughput, "):
            cut_windows([run], 8, wrong)
    run.slots = run.slots.drop(columns="cbiq_bytes")
    with pytest.raises(SchemaError, match="slots: column 'cbiq_bytes' is missing"):
        cut_windows([run], 8)


def test_views_are_of_one_size_and_of_the_same_windows():
    runs = [recording(i, 500, 90) for i in range(2)]
    views = cut_windows(runs, [10, 100, 400], "views", per_flow=2)
    assert views.X.shape == (2 * 2 * (3 + 1), BINS, len(VIEW_CHANNELS)) and views.inputs == VIEW_CHANNELS
    assert views.table.groupby("window_ms").size().to_dict() == {10: 8, 100: 4, 400: 4}
    for ms in (10, 100, 400):
        counted = cut_windows(runs, ms, VIEW_INPUTS, per_flow=2)
        expected = np.stack([scale_view(window) for window in counted.X])
        np.testing.assert_array_equal(views.of(window_ms=ms).X, expected)
    with pytest.raises(ParameterError, match='inputs="views"'):
        cut_windows(runs, [10, 100])


# ---- parts -----------------------------------------------------------------------------------------------------------


def many() -> Windows:
    runs = [recording(i, 90, 90, 90, 90, rtt_ms=[10.0, 30.0, 50.0][i % 3]) for i in range(12)]
    return cut_windows(runs, MS, per_flow=2)


def keys(windows: Windows, *columns: str) -> set[tuple[object, ...]]:
    return set(windows.table[list(columns)].itertuples(index=False, name=None))


def test_a_split_by_run_shares_no_run():
    windows = many()
    for seed in range(5):
        train, test = windows.split(0.25, seed)
        assert len(train) + len(test) == len(windows)
        assert not keys(train, "run") & keys(test, "run")
        assert (
            len(keys(test, "run")) == 3 and len(test) == 3 * 4 * 2
        )  # a quarter of the runs, with all their windows
        for part in (train, test):
            assert list(part.y) == list(part.table.cca) and list(part.groups) == list(part.table.run)
            at = part.X[:, 0, 0] - part.table.run.str.removeprefix("run-").astype(int) * RUN
            assert list((at // FLOW).astype(int)) == list(
                part.table.flow_id
            )  # windows stay beside their rows
    assert keys(windows.split(0.25, 0)[1], "run") != keys(windows.split(0.25, 1)[1], "run")
    assert keys(windows.split(0.25, 3)[1], "run") == keys(many().split(0.25, 3)[1], "run")


def test_a_split_by_setting_shares_no_setting():
    train, test = many().split(0.3, by="rtt_ms")
    assert not keys(train, "rtt_ms") & keys(test, "rtt_ms") and len(keys(test, "rtt_ms")) == 1
    assert not keys(train, "run") & keys(test, "run")


def test_a_split_by_flow_shares_runs_but_no_flow():
    """The published one: flows of a run on both sides."""
    train, test = many().split(0.3, by=("run", "flow_id"))
    assert not keys(train, "run", "flow_id") & keys(test, "run", "flow_id")
    assert keys(train, "run") & keys(test, "run")


def test_what_cannot_be_split_is_refused():
    windows = many()
    with pytest.raises(ParameterError, match="by: windows of 1 run cannot be split"):
        windows.of(run="run-1").split()
    with pytest.raises(ParameterError, match="by: windows of 0 run cannot be split"):
        windows.take([]).split()
    for share in (0, 1.2, np.nan):
        with pytest.raises(ParameterError, match="test_share"):
            windows.split(share)
    train, test = windows.split(1.0)
    assert len(set(train.groups)) == 1 and len(test)
    with pytest.raises(ParameterError, match="by: 'aqm'"):
        windows.split(by=("run", "aqm"))


def test_taking_by_mask_and_by_number():
    windows = many()
    mask = (windows.y == "bbr") & (windows.table.rtt_ms == 30).to_numpy()
    taken = windows.take(mask)
    assert set(taken.y) == {"bbr"} and set(taken.table.rtt_ms) == {30} and len(taken) == mask.sum()
    np.testing.assert_array_equal(taken.X, windows.take(np.flatnonzero(mask)).X)
    np.testing.assert_array_equal(taken.X, windows.of(cca="bbr", rtt_ms=30).X)
    again = taken.take(taken.y == "bbr")  # the table is numbered anew
    pd.testing.assert_frame_equal(again.table, taken.table)


def test_windows_that_do_not_fit_together_are_refused():
    windows = many()
    with pytest.raises(ParameterError, match="is not windows x slots x 1 inputs"):
        Windows(windows.X, windows.y, windows.table, ("cbiq_bytes",))
    with pytest.raises(ParameterError, match=r"X, y, table: 96, 95 and 96 windows"):
        Windows(windows.X, windows.y[1:], windows.table, windows.inputs)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_files_give_back_what_went_in(tmp_path):
    run = recording(3, 90, 90, slot_ms=0.5)
    run.slots.loc[run.slots.slot % 7 == 0, "cbiq_bytes"] = np.nan
    windows = cut_windows([run], 20, per_flow=3)
    assert np.isnan(windows.X).any()
    windows.save(tmp_path / "deep" / "w.parquet", {"command": "made by a test"})
    again = Windows.load(tmp_path / "deep" / "w.parquet")
    np.testing.assert_array_equal(again.X, windows.X)
    assert again.X.dtype == np.float32 and list(again.y) == list(windows.y)
    assert (again.inputs, again.slot_ms, again.window_ms) == (windows.inputs, 0.5, 20)
    pd.testing.assert_frame_equal(again.table, windows.table, check_dtype=False)
    meta = pq.read_metadata(tmp_path / "deep" / "w.parquet").metadata
    assert json.loads(meta[b"cctoolkit.provenance"]) == {"command": "made by a test"}
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["w.parquet"]
    windows.take([]).save(tmp_path / "none.parquet")
    assert Windows.load(tmp_path / "none.parquet").X.shape == (0, 40, 2)


def test_files_that_hold_no_windows_or_of_another_version_are_refused(tmp_path):
    path = tmp_path / "w.parquet"
    windows = cut_windows([recording(0, 90)], MS)
    windows.save(path)
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"cctoolkit.windows"])
    changed = {
        "version 99": json.dumps(about | {"version": 99}),
        "no windows": "no JSON",
    }
    for message, text in changed.items():
        pq.write_table(table.replace_schema_metadata({b"cctoolkit.windows": text.encode()}), path)
        with pytest.raises(SchemaError, match=message):
            Windows.load(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(SchemaError, match="no windows"):
        Windows.load(path)
    windows.save(path)
    whole = path.read_bytes()
    for content in (b"", b"PAR1", b"text", whole[: len(whole) // 2], whole[:-20]):
        path.write_bytes(content)
        with pytest.raises(SchemaError, match="Parquet"):
            Windows.load(path)


# ---- where CUBIC is Reno ---------------------------------------------------------------------------------------------


def steady(segments: float, rtt_ms: float, slots: int = 300, slot_ms: float = 1.0) -> np.ndarray:
    """A flow with so many segments in flight all the time, as slots x VIEW_INPUTS."""
    window = np.zeros((slots, len(VIEW_INPUTS)), np.float32)
    window[:, VIEW_INPUTS.index("bytes_in_flight")] = 1448 * segments
    window[:, VIEW_INPUTS.index("in_bytes")] = 1448 * segments / rtt_ms * slot_ms
    return window


def windows_of(X: np.ndarray, inputs: tuple[str, ...] = VIEW_INPUTS, slot_ms: float = 1.0) -> Windows:
    table = pd.DataFrame({"run": [f"run-{i}" for i in range(len(X))], "flow_id": 0, "cca": "cubic"})
    return Windows(X, table["cca"].to_numpy(object), table, inputs, slot_ms)


@pytest.mark.parametrize(
    "rtt_ms, reno, cubic",
    [  # RFC 9438, tables 1 and 2: average windows at C = 0.4, where CUBIC's is Reno's or larger
        (100, 12, 12), (100, 38, 38), (100, 120, 187), (100, 379, 1054),
        (10, 379, 379), (10, 1200, 1200), (10, 3795, 5926), (10, 12000, 33325),
    ],
)  # fmt: skip
def test_cubic_leaves_reno_where_the_rfcs_tables_say(rtt_ms, reno, cubic):
    ratio = crossover_ratio(windows_of(steady(reno, rtt_ms)[None]))
    assert ratio.shape == (1,) and (ratio[0] > 1) == (cubic > reno)


@given(st.floats(1, 1e4), st.floats(2, 300), st.sampled_from([0.5, 1.0, 2.0]))
def test_at_a_ratio_of_one_the_laws_of_the_rfc_agree(segments, rtt_ms, slot_ms):
    ratio = crossover_ratio(windows_of(steady(segments, rtt_ms, slot_ms=slot_ms)[None], slot_ms=slot_ms))[0]
    window = segments / ratio  # W*
    loss = 1.5 / window**2  # sqrt(1.5 / p)
    cubic = 1.054 * (rtt_ms / 1000) ** 0.75 / loss**0.75  # equation (6)
    assert cubic == pytest.approx(window, rel=1e-3)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([100, 500, 1700]), st.sampled_from([0.5, 1.0]))
def test_views_and_windows_as_counted_have_one_crossover(seed, slots, slot_ms):
    rng = np.random.default_rng(seed)
    X = np.stack([steady(*rng.uniform([2, 5], [500, 200]), slots=slots) for _ in range(5)])
    X *= rng.uniform(0, 2, X.shape).astype(np.float32)
    counted = crossover_ratio(windows_of(X, slot_ms=slot_ms))
    views = windows_of(np.stack([scale_view(window) for window in X]), VIEW_CHANNELS, slot_ms)
    np.testing.assert_allclose(crossover_ratio(views), counted, rtol=1e-4)
    pair = ("bytes_in_flight", "in_bytes")
    columns = [VIEW_INPUTS.index(name) for name in pair]
    np.testing.assert_array_equal(crossover_ratio(windows_of(X[:, :, columns], pair, slot_ms)), counted)


def test_crossover_bands_are_in_order_and_say_what_was_not_observed():
    unseen = steady(50, 100)
    unseen[7, VIEW_INPUTS.index("bytes_in_flight")] = np.nan  # a group with a NaN counts as not observed
    X = np.stack([steady(n, 100) for n in (1, 30, 1000)] + [unseen, steady(0, 100)])  # W* is 52
    for inputs, values in ((VIEW_INPUTS, X), (VIEW_CHANNELS, np.stack([scale_view(window) for window in X]))):
        windows = windows_of(values, inputs)
        bands = crossover_bands(windows)
        assert tuple(bands.categories) == CROSSOVER_BANDS and bands.ordered
        assert list(bands) == [*CROSSOVER_BANDS, "not observed"]  # nothing came in the last
        windows.table["crossover"] = bands
        scores = evaluate(np.full(5, "cubic"), windows.take(np.arange(4)[::-1]), by="crossover")
        assert list(scores["crossover"]) == list(CROSSOVER_BANDS) and (scores["windows"] == 1).all()
    with pytest.raises(ParameterError, match="bytes_in_flight is not among their inputs"):
        crossover_ratio(windows_of(X[:, :, :1], ("in_bytes",)))
