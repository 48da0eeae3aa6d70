"""Figure 6 of the ABC paper on BMv2: what is run, how a switch is slowed, and that every packet is counted once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from hardware_l4s import FakeSwitch
from switch_bench import skip_without_bmv2
from test_testbed_netns import namespaces, why_not

from cctoolkit.experiments import abc
from hardware.launch import abc_flood


def test_the_experiments_are_the_papers() -> None:
    flood, alone, ten = (abc_flood.scenario(what, 300, 1) for what in ("flood", "alone", "ten"))
    assert flood == abc.scenario("cbr-tcp", 100, duration_s=300, seed=1)
    assert alone.flows == flood.flows[1:] and alone.bottleneck == flood.bottleneck
    assert alone.duration_s == ten.duration_s == 60
    assert [flow.aggregate for flow in ten.flow_list()] == [0] * 10 + [1]


def test_entries_that_match_nothing_differ() -> None:
    switch = FakeSwitch()
    abc_flood.load(3)(switch)
    assert len(switch.tables["reading_load"]) == 3


@pytest.mark.parametrize("clients", [(0, 1, 1), (1,)])
def test_each_clients_packets_are_counted_once(clients: tuple[int, ...]) -> None:
    """The switch has a row for each client that sends, and one for all others."""
    run = SimpleNamespace(
        scenario=SimpleNamespace(flow_list=lambda: [SimpleNamespace(aggregate=c) for c in clients]),
        flows=pd.DataFrame({"sent_packets": [100] * len(clients), "received_packets": [60] * len(clients)}),
    )
    rows = len(set(clients))
    aggregates = pd.DataFrame({"accepted": [70] * rows + [0], "dropped": [20] * rows + [0]})
    found = abc_flood.losses(run, aggregates)
    for client in set(clients):
        sent = 100 * clients.count(client)
        assert found[f"sent_{client}"] == sent and found[f"unread_{client}"] == sent - 90
        assert found[f"dropped_{client}"] == 20
        assert found[f"overflowed_{client}"] == 70 - 60 * clients.count(client)


@pytest.mark.p4
@pytest.mark.netns
@pytest.mark.slow
def test_a_slow_switch_and_its_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every packet is unread, dropped, lost in the buffer or received; a slow switch makes the connection wait."""
    skip_without_bmv2()
    if reason := why_not():
        pytest.skip(reason)
    before = namespaces()
    monkeypatch.setattr(abc_flood, "EXPERIMENTS", {"flood": ("cbr-tcp", 100.0, 6.0)})
    options = ["--duration", "6", "-o", str(tmp_path), "--loads"]
    assert abc_flood.main([*options, "0"]) == 0
    first = pd.read_parquet(tmp_path / "bmv2.parquet")
    assert abc_flood.main([*options, "0", "20000"]) == 0
    table = pd.read_parquet(tmp_path / "bmv2.parquet")
    pd.testing.assert_frame_equal(table.iloc[:1], first)  # not run again
    fast, slow = table.to_dict("records")
    assert (table.dropped_0 > 0).all() and (table.sent_0 > 40_000).all()
    assert abs(fast["unread_0"]) < 0.02 * fast["sent_0"] < 0.3 * slow["sent_0"] < slow["unread_0"]
    assert slow["rtt_ms"] > 2 * fast["rtt_ms"] and slow["read_packets_per_s"] < fast["read_packets_per_s"]
    assert slow["client_1_mbps"] < fast["client_1_mbps"]
    assert namespaces() == before
