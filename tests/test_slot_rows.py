"""Slots tables as time series: all slots of a flow, in order."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from tools import examples

from cctoolkit.analysis.slot_rows import consecutive
from cctoolkit.errors import SchemaError


@st.composite
def flows(draw: st.DrawFn) -> pd.DataFrame:
    """Each flow's slots, together and in order, with a value to recognise the row by."""
    numbers = draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4, unique=True))
    rows = [
        (flow, slot)
        for flow in numbers
        for begin in [draw(st.integers(0, 10**6))]
        for slot in range(begin, begin + draw(st.integers(1, 6)))
    ]
    table = pd.DataFrame(rows, columns=["flow_id", "slot"])
    table.attrs["slot_ms"] = 1.0
    return table.assign(in_bytes=range(len(table)))


@settings(max_examples=examples(100), deadline=None)
@given(flows(), st.randoms(use_true_random=False))
def test_rows_in_any_order_are_put_in_order(table, order):
    rows = list(range(len(table)))
    order.shuffle(rows)
    shuffled = table.iloc[rows]
    found = consecutive(shuffled, ["in_bytes"])
    assert list(found.flow_id.unique()) == list(shuffled.flow_id.unique()) and found.attrs == table.attrs
    for flow, part in found.groupby("flow_id"):
        pd.testing.assert_frame_equal(
            part.reset_index(drop=True), table[table.flow_id == flow].reset_index(drop=True)
        )
    pd.testing.assert_frame_equal(consecutive(table), table)


@settings(max_examples=examples(50), deadline=None)
@given(flows(), st.data())
def test_a_flow_has_every_slot_once(table, data):
    at = data.draw(st.integers(0, len(table) - 1))
    flow, slot = table.flow_id[at], table.slot[at]
    with pytest.raises(SchemaError, match=f"slots: flow {flow} has slot {slot} twice"):
        consecutive(pd.concat([table, table.iloc[[at]]]))
    ends = table.groupby("flow_id").slot.agg(["min", "max"]).loc[flow]
    without = table.drop(index=at)
    if ends["min"] < slot < ends["max"]:
        with pytest.raises(SchemaError, match=f"slots: flow {flow} lacks slot {slot};"):
            consecutive(without)
    else:
        assert len(consecutive(without)) == len(table) - 1


@pytest.mark.parametrize("column", ["flow_id", "slot"])
@pytest.mark.parametrize("value", [None, 0.5, "one"])
def test_numbers_are_whole(column, value):
    table = pd.DataFrame({"flow_id": [1, 1], "slot": [1, 2]})
    table[column] = pd.Series([1, value], dtype=object)
    with pytest.raises(SchemaError, match=column):
        consecutive(table)
    with pytest.raises(SchemaError, match=f"'{column}' is missing"):
        consecutive(table.drop(columns=column))
