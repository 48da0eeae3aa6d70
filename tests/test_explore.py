"""Picking, searching and zooming in the explorer change what its figures show."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import cctoolkit as cct
from cctoolkit import plot
from cctoolkit.analysis.rtt import rtt_samples
from cctoolkit.capture.model import Capture
from cctoolkit.errors import ParameterError

pytest.importorskip("ipywidgets", reason="the extra `notebooks` is not installed")
pytest.importorskip("anywidget", reason="the extra `notebooks` is not installed")

from cctoolkit.report.explore import Explorer, explore, matching, rows_of

TRACES = Path(__file__).parents[1] / "traces"


@pytest.fixture(scope="module")
def cap() -> Capture:
    return cct.read_capture(TRACES / "cubic-bbr.ingress.pcap.gz")


@pytest.fixture
def explorer(cap: Capture) -> Explorer:
    return cap.explore()


def bulk(cap: Capture) -> list[int]:
    return cap.flows.query("payload_fwd > 100_000").sort_values("bytes_fwd", ascending=False).flow_id.tolist()


def groups(explorer: Explorer) -> set[str]:
    return {trace.legendgroup for trace in explorer.figure.data if trace.legendgroup} - {"all packets"}


def test_it_starts_with_the_large_flows(cap: Capture, explorer: Explorer) -> None:
    assert set(explorer.table.value) == set(bulk(cap))
    assert groups(explorer) == {f"flow {flow}" for flow in bulk(cap)}
    assert len(explorer.table.options) == len(cap.flows)


def test_picking_changes_the_figures(cap: Capture, explorer: Explorer) -> None:
    first, second = bulk(cap)
    explorer.table.value = (second,)
    assert groups(explorer) == {f"flow {second}"}
    names = plot.Names(cap)
    assert explorer.detail.options == ((names.short(second), second),)
    samples = rtt_samples(cap)
    drawn = next(t for t in explorer.figure.data if t.name == names.short(second) and t.mode == "markers")
    mine = samples[(samples.flow_id == second) & (samples.direction == 0)]
    assert drawn.y.max() == mine.rtt_ns.max() / 1e6
    assert explorer.cdf.data[0].name == f"all samples ({(samples.flow_id == second).sum():,})"
    expected = plot.time_sequence(cap, second)
    segments = next(t for t in explorer.figure.data if t.name.startswith("segments"))
    np.testing.assert_array_equal(
        segments.y, next(t for t in expected.data if t.name.startswith("segments")).y
    )
    explorer.table.value = (first, second)
    assert groups(explorer) == {f"flow {flow}" for flow in (first, second)}
    assert explorer.detail.value == second  # what one looked at stays


def test_detail_and_direction_change_the_sequence_graph(cap: Capture, explorer: Explorer) -> None:
    def titles() -> str:
        return " ".join(remark.text for remark in explorer.figure.layout.annotations)

    first, second = bulk(cap)
    explorer.table.value = (first, second)
    explorer.detail.value = second
    assert f'Bytes in flight · <span style="font-size:12px">{plot.Names(cap).long(second)}' in titles()
    assert "data from the initiator" in titles()
    explorer.direction.value = "to the initiator"
    assert "data to the initiator" in titles()


def test_zooming_brings_detail_and_fits_the_heights(cap: Capture, explorer: Explorer) -> None:
    flow = bulk(cap)[0]
    explorer.table.value = (flow,)
    figure = explorer.figure
    before = {trace.name: trace.x for trace in figure.data}
    figure.layout.xaxis.range = (5.0, 5.5)  # what a zoom in the browser does
    assert explorer.figure is figure
    segments = next(t for t in figure.data if t.name.startswith("segments"))
    assert np.nanmin(segments.x) > 4.9
    assert np.nanmax(segments.x) < 5.6
    expected = plot.time_sequence(cap, flow, between_s=(5.0, 5.5))
    axis = figure.layout["yaxis" + segments.yaxis[1:]]
    assert axis.range == expected.layout.yaxis.range
    rate = next(t for t in figure.data if t.name == "all packets")
    assert np.diff(rate.x)[0] < np.diff(before["all packets"])[0] / 10  # narrower bins
    figure.layout.xaxis.range = (0.0, cap.duration_s)
    assert {trace.name for trace in figure.data} == set(before)


def test_bins_can_be_chosen(explorer: Explorer) -> None:
    explorer.bins.value = "1 s"
    assert "bins of 1 s" in explorer.figure.layout.annotations[0].text


def test_search_and_order(cap: Capture, explorer: Explorer) -> None:
    explorer.search.value = "tcp 40001"
    assert len(explorer.table.options) == 1
    assert explorer.table.value == (explorer.table.options[0][1],)  # still fits, so still picked
    assert groups(explorer) == {f"flow {explorer.table.value[0]}"}
    explorer.search.value = "no such host"
    assert explorer.table.options == ()
    assert explorer.figure is None
    explorer.search.value = ""
    explorer.order.value = "start"
    listed = [flow for _, flow in explorer.table.options]
    starts = cap.flows.set_index("flow_id").first_ts_ns[listed]
    assert starts.is_monotonic_increasing
    for order in explorer.order.options:
        explorer.order.value = order
        assert sorted(flow for _, flow in explorer.table.options) == cap.flows.flow_id.tolist()


def test_words_of_a_search() -> None:
    flows = cct.read_capture(TRACES / "mixed.ingress.pcap.gz").flows
    port = int(flows.dport.max())
    for text, expected in (
        ("", np.ones(len(flows), bool)),
        ("udp", flows.protocol == 17),
        (str(port), (flows.sport == port) | (flows.dport == port) | (flows.flow_id == port)),
        (
            flows.src[0],
            (flows.src.str.contains(flows.src[0], regex=False))
            | flows.dst.str.contains(flows.src[0], regex=False),
        ),
        ("long tcp", flows.is_long & (flows.protocol == 6)),
        ("[", np.zeros(len(flows), bool)),
    ):
        assert matching(flows, text).flow_id.tolist() == flows.flow_id[expected].tolist(), text


def test_rows_stand_in_columns(cap: Capture) -> None:
    head, rows = rows_of(cap.flows)
    assert {len(text) for text, _ in rows} == {len(head)}
    assert [flow for _, flow in rows] == cap.flows.flow_id.tolist()
    assert "10.1.0.10:40000" in rows[0][0]
    assert " " not in rows[0][0]  # ordinary blanks would be squeezed
    assert rows_of(cap.flows[:0])[1] == []


def test_a_flow_without_sequence_numbers_has_the_other_panels(cap: Capture, explorer: Explorer) -> None:
    icmp = int(cap.flows.flow_id[cap.flows.protocol == 58].iloc[0])
    explorer.table.value = (icmp,)
    assert groups(explorer) == {f"flow {icmp}"}
    assert len(list(explorer.figure.select_yaxes())) == 3
    assert any("no RTT samples" in remark.text for remark in explorer.figure.layout.annotations)


def test_it_is_shown_as_a_widget(explorer: Explorer) -> None:
    shown = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in (shown[0] if isinstance(shown, tuple) else shown)


def test_no_flows_nothing_to_explore(cap: Capture) -> None:
    with pytest.raises(ParameterError, match="no flows"):
        explore(cap.select(start_s=1e6))


@pytest.mark.parametrize("package", ["ipywidgets", "anywidget"])
def test_a_missing_extra_is_named(cap: Capture, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ParameterError, match=rf"{package}.*cctoolkit\[notebooks\]"):
        explore(cap)
