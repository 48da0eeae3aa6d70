"""Small charts beside sentences: nothing is lost when values are put together, and the SVG is well formed."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from cctoolkit.report.sketch import HEIGHT, POINTS, WIDTH, Sketch, bars_over_time, svg


@given(st.lists(st.tuples(st.integers(0, 999), st.floats(0, 1e9)), min_size=1), st.integers(1, 1000))
def test_sums_and_extremes_stay(pairs, places):
    place = np.array([min(p, places - 1) for p, _ in pairs])
    values = np.array([v for _, v in pairs])
    total = bars_over_time(place, values, places, "sum")
    assert len(total) == min(POINTS, places)
    assert sum(total) == pytest.approx(values.sum())
    assert np.nanmax(bars_over_time(place, values, places, "max")) == values.max()
    mean = np.array(bars_over_time(place, values, places, "mean"))
    assert np.isnan(mean).sum() == len(mean) - len(set((place * len(mean) // places).tolist()))


finite_or_gap = st.one_of(st.floats(0, 1e12), st.just(float("nan")))


@given(st.lists(finite_or_gap, max_size=POINTS), st.sampled_from(["line", "parts"]))
def test_svg_is_whole_and_inside(values, kind):
    if kind == "parts":
        values = [0.0 if v != v else v for v in values]
    root = ET.fromstring(svg(Sketch('RTT of "a<b>"', tuple(values), kind)))
    assert root.attrib["aria-label"] == 'RTT of "a<b>"'
    for part in root:
        numbers = [
            float(n)
            for n in part.attrib.get("d", "").replace("M", " ").replace("L", " ").replace("Z", "").split()
        ]
        assert all(0 <= x <= WIDTH for x in numbers[::2]) and all(0 <= y <= HEIGHT for y in numbers[1::2])
