"""Sweeps: the same table however many workers and interruptions, and nothing run twice."""

from __future__ import annotations

import functools
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numba
import pandas as pd
import pytest

import cctoolkit as cct
from cctoolkit.aqm import DROP, PASS, Aqm
from cctoolkit.errors import ParameterError, SeedWarning
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


LIMIT_NS = 3_000_000


@numba.njit
def too_late(waited_ns):
    return waited_ns > LIMIT_NS


class Helped(Aqm):
    """Of this test: leaves the decision to a helper, and that to a value."""

    class State:
        seen = 0

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return DROP if too_late(now_ns - packet.enqueued_ns) else PASS


def longest(run):
    return {"ms": run.queues.max_delay_ms[0], "more": EXTRA}


EXTRA = 1


def test_what_code_uses_is_part_of_it(tmp_path, counted, monkeypatch):
    """A value, a helper, a default, a first value of the state or what a measure uses: each makes it another sweep."""

    def runs(measure=longest):
        counted.calls.clear()
        sweep(tmp_path / "out.parquet", {"bottleneck.aqm": [Helped], "seed": [1]}, workers=1, measure=measure)
        return len(counted.calls)

    assert [runs(), runs()] == [1, 0]
    monkeypatch.setitem(globals(), "EXTRA", 2)
    assert [runs(), runs()] == [1, 0]
    monkeypatch.setitem(globals(), "LIMIT_NS", 4_000_000)
    assert [runs(), runs()] == [1, 0]
    monkeypatch.setattr(Helped.State, "seen", 1)
    assert [runs(), runs()] == [1, 0]

    def enclosed(factor):
        return lambda run: {"ms": factor * run.queues.max_delay_ms[0]}

    assert [runs(enclosed(1)), runs(enclosed(1)), runs(enclosed(2))] == [1, 0, 1]
    assert [runs(functools.partial(scaled, by=1)), runs(functools.partial(scaled, by=1))] == [1, 0]
    assert runs(functools.partial(scaled, by=2)) == 1


def test_a_measure_s_helper_in_another_file_is_part_of_it(tmp_path, counted, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # a file of one size and second is known by its byte code
    found = []
    for factor in (1, 1, 2):
        (tmp_path / "helper_of_a_measure.py").write_text(f"def doubled(x): return {factor} * x\n")
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "helper_of_a_measure", raising=False)
        helper = importlib.import_module("helper_of_a_measure")
        counted.calls.clear()

        def measure(run):
            return {"ms": helper.doubled(run.queues.max_delay_ms[0])}  # noqa: B023

        sweep(tmp_path / "out.parquet", {"seed": [1]}, workers=1, measure=measure)
        found.append(len(counted.calls))
    assert found == [1, 0, 1]


def scaled(run, by):
    return {"ms": by * run.queues.max_delay_ms[0]}


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


@pytest.mark.slow
def test_several_processes_and_what_is_defined_in_a_cell(tmp_path):
    """As in a notebook: the code is in no module that a worker could import."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    delays = json.loads(done.stdout)
    assert delays == sorted(delays) and delays[0] <= 2 < delays[1] <= 4 < delays[2] <= 8


PLAIN = """
import sys
import cctoolkit as cct
from cctoolkit.aqm import DROP, PASS, Aqm

print("run")
LIMIT = 3

class Impatient(Aqm):
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return DROP if now_ns - packet.enqueued_ns > LIMIT * 1_000_000 else PASS

def measured(run):
    return {"longest_ms": run.queues.max_delay_ms[0], "limit": LIMIT}

base = cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=5, buffer_packets=50), flows=[cct.Flow("reno")], duration_s=1)
grid = cct.sweep(base, {"bottleneck.aqm": ["tail_drop", Impatient()], "repetition": [0, 1]})
table = cct.run_sweep(grid, sys.argv[1], measure=measured, workers=2, progress=False)
assert table.limit.eq(3).all() and table.longest_ms[2:].max() <= 3 < table.longest_ms[:2].min()
"""


@pytest.mark.slow
def test_a_plain_script_needs_no_guard(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    command = [sys.executable, script, tmp_path / "out.parquet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "run\n", "")


# ---- killed and interrupted --------------------------------------------------------------------------------

SLOW = """
import os, sys, time
import cctoolkit as cct

def measured(run):
    if run.scenario.name in {"slow", "never", "always"}:  # a set in code has another order in each process
        time.sleep(0.25)
    with open(os.environ["LOG"], "a") as log:
        log.write(f"{run.scenario.seed} {os.getpid()}\\n")
    return {"packets": run.queues.sent_packets[0]}

base = cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=5, buffer_packets=20), name="slow",
                    flows=[cct.Flow("udp", rate_mbps=4, arrivals="poisson")], duration_s=0.5)
jobs = list(cct.sweep(base, {"seed": range(1, 21)}))
if __name__ == "__main__":
    cct.run_sweep(jobs, sys.argv[1], measure=measured, workers=2, progress=False)
"""


def members(session):
    """Processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, sid = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(sid) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


def eventually(condition, what, process=None):
    for _ in range(1200):
        if condition():
            return
        if process is not None and process.poll() is not None:
            raise AssertionError(f"{what}: {process.communicate()[1]}")
        time.sleep(0.1)
    raise AssertionError(what)


@pytest.fixture
def slow_sweep(tmp_path):
    """Starts a sweep in a session of its own; kills what is left of it at the end."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    started = []

    def start(log="log"):
        command = [sys.executable, str(script), str(tmp_path / "out.parquet")]
        environment = os.environ | {"LOG": str(tmp_path / log)}
        process = subprocess.Popen(
            command, env=environment, text=True, stderr=subprocess.PIPE, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        for pid in members(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()


def ran(log):
    """What was computed, in order, and by which processes."""
    rows = [row.split() for row in log.read_text().splitlines()] if log.exists() else []
    return [int(seed) for seed, _ in rows], {int(pid) for _, pid in rows}


def kept(journal):
    lines = journal.read_bytes().splitlines(keepends=True) if journal.exists() else []
    return sum(line.endswith(b"\n") for line in lines)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["worker killed", "Ctrl-C", "SIGINT to the parent", "parent killed", "parent ended"]
)
def test_nothing_survives_and_nothing_is_lost(tmp_path, slow_sweep, how):
    journal, log = tmp_path / "out.parquet.part", tmp_path / "log"
    process = slow_sweep()
    eventually(lambda: kept(journal) >= 3 and len(ran(log)[1]) == 2, "the sweep has not begun", process)
    workers = ran(log)[1]
    assert process.pid not in workers
    match how:
        case "worker killed":
            os.kill(workers.pop(), signal.SIGKILL)
        case "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)
        case "SIGINT to the parent":
            process.send_signal(signal.SIGINT)
        case "parent killed":
            process.kill()
        case "parent ended":
            process.terminate()
    stderr = process.communicate(timeout=120)[1]  # which workers that survive would keep open
    eventually(lambda: not members(process.pid), "a worker survives")
    if how == "worker killed":
        assert process.returncode == 1
        last = stderr.splitlines()[-1]
        assert "CCToolkitError: a worker process died" in last
        assert "finished jobs are kept" in last
    elif how.startswith("parent"):
        assert process.returncode in (-signal.SIGKILL, -signal.SIGTERM)
        assert "Traceback" not in stderr
    else:
        assert process.returncode == -signal.SIGINT
        assert stderr.count("Traceback") == 1, stderr  # the parent's own: workers say nothing
        assert "leaked" not in stderr
    assert not (tmp_path / "out.parquet").exists()
    first, n_kept = ran(log)[0], kept(journal)
    assert 3 <= n_kept < 20

    again = slow_sweep("again")
    assert again.wait() == 0, again.communicate()[1]
    eventually(lambda: not members(again.pid), "a worker survives")
    table = pd.read_parquet(tmp_path / "out.parquet")
    jobs = runpy.run_path(str(tmp_path / "slow.py"))["jobs"]
    assert table.packets.to_list() == [cct.simulate(s, record=False).queues.sent_packets[0] for _, s in jobs]
    assert table.seed.to_list() == list(range(1, 21)) and table.packets.nunique() > 5
    # what was kept did not run again; what did was under way when it ended
    second = ran(tmp_path / "again")[0]
    assert len(second) == 20 - n_kept == len(set(second))
    assert len(first) == len(set(first)) and len({*first, *second}) == 20
    assert len(set(first) & set(second)) == len(first) - n_kept <= 2
    assert not journal.exists()


@needs_proc
@pytest.mark.slow
def test_two_sweeps_do_not_write_one_table(tmp_path, slow_sweep):
    first = slow_sweep()
    eventually(lambda: kept(tmp_path / "out.parquet.part"), "the sweep has not begun", first)
    second = slow_sweep("second")
    assert "ParameterError: output: another sweep is writing" in second.communicate()[1]
    assert first.wait() == 0 and ran(tmp_path / "second")[0] == []
    assert sorted(ran(tmp_path / "log")[0]) == list(range(1, 21))


def test_errors_name_the_scenario_and_what_is_wrong(tmp_path):
    with pytest.raises(ParameterError, match=r"\.parquet file"):
        sweep(tmp_path / "out.csv")
    with pytest.raises(ParameterError, match="workers: 0"):
        sweep(tmp_path / "out.parquet", workers=0)
    with pytest.raises(ParameterError, match=r"seed = 1: measure: x: list is not a number"):
        sweep(tmp_path / "out.parquet", {"seed": [1]}, workers=1, measure=lambda run: {"x": []})
    (tmp_path / "precious.parquet").write_bytes(b"PAR1")
    with pytest.raises(ParameterError, match="is not a sweep"):
        sweep(tmp_path / "precious.parquet")
    assert (tmp_path / "precious.parquet").read_bytes() == b"PAR1"
    with pytest.raises(cct.AlgorithmError, match=r"bottleneck\.aqm = wrong: Wrong\.on_dequeue, line"):
        sweep(tmp_path / "out.parquet", {"bottleneck.aqm": ["tail_drop", Wrong]}, workers=1)
    assert len((tmp_path / "out.parquet.part").read_text().splitlines()) == 1


class Wrong(Aqm):
    """Of this test: does not compile."""

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return p.there_is_none


def test_seeds_without_effect_are_reported_and_repetitions_work(tmp_path: Path) -> None:
    grid = {"flows.*.loss": [0.0, 0.02]}
    with pytest.warns(SeedWarning, match="1 of 2 combinations have the same result for every seed"):
        cct.run_sweep(
            cct.sweep(BASE, grid | {"seed": [1, 2]}), tmp_path / "a.parquet", workers=1, progress=False
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = cct.sweep(BASE, {"repetition": [0, 1, 2], "flows.*.rtt_ms": [10]} | grid)
        table = cct.run_sweep(again, tmp_path / "b.parquet", workers=1, progress=False)
    assert table.groupby("flows.*.loss").goodput_mbps.nunique().min() > 1
    assert list(table.repetition) == [0, 0, 1, 1, 2, 2]


def test_a_repetition_moves_starts_and_round_trips_a_little() -> None:
    flows = [
        cct.Flow("reno", rtt_ms=20, count=2, access_ms=5),
        cct.Flow("udp", rate_mbps=1, start_s=1, stop_s=2),
    ]
    one = BASE.replace({"flows": flows})
    assert one.repeated(0) == one and one.repeated(3) == one.repeated(3) != one.repeated(4)
    other = one.repeated(3)
    assert len(other.flows) == 3 and other.seed != one.seed
    for before, after in zip(one.flow_list(), other.flows, strict=True):
        assert 0 <= after.start_s - before.start_s <= before.rtt_ms / 1e3
        assert abs(after.rtt_ms / before.rtt_ms - 1) <= 0.02
        assert after.access_ms == pytest.approx(before.access_ms * after.rtt_ms / before.rtt_ms)
    assert other.flows[2].stop_s - other.flows[2].start_s == pytest.approx(1)
    with pytest.raises(ParameterError, match="repetition"):
        one.repeated(-1)
