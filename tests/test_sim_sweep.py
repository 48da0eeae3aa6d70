"""Sweeps: the same table however many workers and interruptions, and nothing run twice."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest

import cctoolkit as cct
from cctoolkit.aqm import DROP, PASS, Aqm
from cctoolkit.errors import ParameterError
from cctoolkit.sim import sweep as module
from cctoolkit.sim.sweep import flow_rows, run_sweep


class Blunt(Aqm):
    """Of this test: drops what waited too long."""

    limit_ms: float = 3.0

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return DROP if now_ns - packet.enqueued_ns > p.limit_ns else PASS


BASE = cct.Scenario(
    bottleneck=cct.Bottleneck(rate_mbps=5, buffer_packets=20),
    flows=[cct.Flow("reno"), cct.Flow("cubic")],
    duration_s=1,
)
GRID = {"flows.*.rtt_ms": [10, 30], "bottleneck.aqm": ["tail_drop", Blunt(limit_ms=5)], "seed": [1, 2]}


@pytest.fixture
def counted(monkeypatch):
    """How often a scenario is really run (in this process)."""
    calls = []

    def counting(scenario, **options):
        calls.append(scenario)
        if len(calls) in counting.fail_at:
            raise KeyboardInterrupt
        return cct.simulate(scenario, **options)

    counting.fail_at = ()
    counting.calls = calls
    monkeypatch.setattr(module, "simulate", counting)
    return counting


def sweep(path, grid=GRID, **options):
    return run_sweep(cct.sweep(BASE, grid), path, progress=False, **options)


def test_table_has_what_was_changed_and_measured(tmp_path):
    table = sweep(tmp_path / "out.parquet", workers=1)
    assert len(table) == 8 and table.run.to_list() == list(range(8))
    assert table["flows.*.rtt_ms"].to_list() == [10] * 4 + [30] * 4
    assert table["bottleneck.aqm"][2] == '{"name": "blunt", "limit_ms": 5.0}'
    for (_, scenario), row in zip(cct.sweep(BASE, GRID), table.itertuples(), strict=True):
        assert row.utilisation == cct.simulate(scenario, record=False).summary()["utilisation"]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out.parquet"), table)
    assert [p.name for p in tmp_path.iterdir()] == ["out.parquet"]


def test_interrupted_sweep_goes_on(tmp_path, counted):
    whole = sweep(tmp_path / "whole.parquet", workers=1)
    counted.calls.clear()
    counted.fail_at = (4,)
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "cut.parquet", workers=1)
    assert not (tmp_path / "cut.parquet").exists()
    journal = tmp_path / "cut.parquet.part"
    assert len(journal.read_text().splitlines()) == 3
    journal.write_bytes(journal.read_bytes()[:-20])  # killed while it wrote the third
    counted.fail_at = ()
    counted.calls.clear()
    again = sweep(tmp_path / "cut.parquet", workers=1)
    assert len(counted.calls) == 6
    pd.testing.assert_frame_equal(again, whole)
    assert not journal.exists()


def test_a_grown_grid_runs_only_what_is_new(tmp_path, counted):
    first = sweep(tmp_path / "out.parquet", workers=1)
    counted.calls.clear()
    pd.testing.assert_frame_equal(sweep(tmp_path / "out.parquet", workers=1), first)
    assert not counted.calls
    more = sweep(tmp_path / "out.parquet", GRID | {"seed": [1, 2, 3]}, workers=1)
    assert len(counted.calls) == 4 and len(more) == 12
    pd.testing.assert_frame_equal(
        sweep(tmp_path / "fresh.parquet", GRID | {"seed": [1, 2, 3]}, workers=1), more
    )


def test_changed_code_is_run_again(tmp_path, counted, monkeypatch):
    before = sweep(tmp_path / "out.parquet", workers=1)
    counted.calls.clear()

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return DROP if now_ns - packet.enqueued_ns > 2 * p.limit_ns else PASS

    monkeypatch.setattr(Blunt, "on_dequeue", staticmethod(on_dequeue))
    after = sweep(tmp_path / "out.parquet", workers=1)
    assert len(counted.calls) == 4
    blunt = after["bottleneck.aqm"] != "tail_drop"
    assert (after.max_delay_ms[blunt] > before.max_delay_ms[blunt]).all()
    assert (after.max_delay_ms[~blunt] == before.max_delay_ms[~blunt]).all()
    sweep(tmp_path / "out.parquet", workers=1, measure=flow_rows)
    assert len(counted.calls) == 12


def test_a_row_a_flow(tmp_path):
    table = sweep(tmp_path / "out.parquet", {"seed": [1, 2]}, workers=1, measure=flow_rows)
    assert table.run.to_list() == [0, 0, 1, 1] and table.cca.to_list() == ["reno", "cubic"] * 2
    pd.testing.assert_frame_equal(table, pd.read_parquet(tmp_path / "out.parquet"))
    pd.testing.assert_frame_equal(
        table, sweep(tmp_path / "out.parquet", {"seed": [1, 2]}, workers=1, measure=flow_rows)
    )


SCRIPT = """
import sys
import pandas as pd
import cctoolkit as cct
from cctoolkit.aqm import DROP, PASS, Aqm

class Own(Aqm):
    limit_ms: float = 3.0
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return DROP if now_ns - packet.enqueued_ns > p.limit_ns else PASS

def own_measure(run):
    return {"delay": run.queues.max_delay_ms[0], "packets": len(run.ingress)}

base = cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=5, buffer_packets=20, aqm=Own),
                    flows=[cct.Flow("reno")], duration_s=1)
grid = {"bottleneck.aqm": [Own(limit_ms=x) for x in (2, 4, 8)]}
tables = [cct.run_sweep(cct.sweep(base, grid), f"{sys.argv[1]}/{n}.parquet", measure=own_measure, record=True,
                        workers=n, progress=False) for n in (1, 2)]
pd.testing.assert_frame_equal(*tables)
print(tables[1].delay.round(2).to_list())
"""


def test_several_processes_and_what_is_defined_in_a_cell(tmp_path):
    """As in a notebook: the code is in no module that a worker could import."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    delays = json.loads(done.stdout)
    assert delays == sorted(delays) and delays[0] <= 2 < delays[1] <= 4 < delays[2] <= 8


def test_errors_name_the_scenario_and_what_is_wrong(tmp_path):
    with pytest.raises(ParameterError, match=r"\.parquet file"):
        sweep(tmp_path / "out.csv")
    with pytest.raises(ParameterError, match="workers: 0"):
        sweep(tmp_path / "out.parquet", workers=0)
    with pytest.raises(ParameterError, match=r"seed = 1: measure: x: list is no number"):
        sweep(tmp_path / "out.parquet", {"seed": [1]}, workers=1, measure=lambda run: {"x": []})
    (tmp_path / "precious.parquet").write_bytes(b"PAR1")
    with pytest.raises(ParameterError, match="no sweep's"):
        sweep(tmp_path / "precious.parquet")
    assert (tmp_path / "precious.parquet").read_bytes() == b"PAR1"
    with pytest.raises(cct.AlgorithmError, match=r"bottleneck\.aqm = wrong: Wrong\.on_dequeue, line"):
        sweep(tmp_path / "out.parquet", {"bottleneck.aqm": ["tail_drop", Wrong]}, workers=1)
    assert len((tmp_path / "out.parquet.part").read_text().splitlines()) == 1


class Wrong(Aqm):
    """Of this test: does not compile."""

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return p.there_is_none
