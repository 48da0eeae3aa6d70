"""Batch on Dask: in this process, in worker processes, with workers and drivers killed in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest
from test_batch import MIXED, ROOT, SETTINGS, ByRate, Tight, compute, contents
from tools import alive

import cctoolkit as cct
from cctoolkit import cli
from cctoolkit.batch.cluster import connected
from cctoolkit.batch.dataset import Dataset
from cctoolkit.batch.piece import compute_piece
from cctoolkit.batch.run import BatchResult, run_batch
from cctoolkit.batch.settings import BatchSettings
from cctoolkit.batch.sources import Source
from cctoolkit.errors import ParameterError, SchemaError

distributed = pytest.importorskip("distributed", reason="the extra `batch` is not installed")
slow = pytest.mark.slow

TRACES = [ROOT / "traces" / f"{name}.ingress.pcap.gz" for name in ("mixed", "cubic-bbr", "three-ccas-ipv6")]


def journal(root: Path) -> dict[str, tuple[int, str]]:
    """What was computed, and when: a file that is written anew has another time."""
    return {
        path.name: (path.stat().st_mtime_ns, path.read_text(encoding="utf-8"))
        for path in (root / "journal").glob("*.json")
        if not path.name.startswith(".")  # being written
    }


@slow
def test_a_batch_in_this_process(tmp_path: Path) -> None:
    """Good and bad captures, a second run that has nothing to do, and one with one capture more."""
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"garbage")
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(gzip.decompress(MIXED.read_bytes())[:-17])
    lines: list[str] = []
    out = tmp_path / "out"
    run = functools.partial(run_batch, output=out, settings=SETTINGS, progress=False, say=lines.append)
    done = run([MIXED, bad, cut, tmp_path / "none.pcap", "none/*.pcap"])
    assert [name.rpartition("-")[0] for name in sorted(done.computed)] == ["cut", "mixed.ingress"]
    assert done.present == []
    assert set(done.failed) == {"none/*.pcap", str(bad), str(tmp_path / "none.pcap")}
    assert "expected a pcap" in done.failed[str(bad)]
    assert len(lines) == 4 and all("\n" not in line for line in lines)
    assert sum("the file is truncated or damaged" in line for line in lines) == 1
    assert len(done.notes) == 1
    assert len(pd.read_parquet(out / "captures")) == 2
    assert not list(out.rglob("*.tmp")) and not (out / "blocks").exists()

    before, files = journal(out), contents(out)
    again = run([MIXED, cut])
    assert sorted(again.present) == sorted(done.computed)
    assert (again.computed, again.failed) == ([], {})
    assert (journal(out), contents(out)) == (before, files)

    more = run([MIXED, TRACES[1], cut], classifier=ByRate())
    assert [name.rpartition("-")[0] for name in more.computed] == ["cubic-bbr.ingress"]
    assert before.items() < journal(out).items()
    cca = pd.read_parquet(out / "cca")
    assert cca.capture.nunique() == 3
    assert set(cca.model) == {"by-rate-1"}

    cut.write_bytes(cut.read_bytes()[:-17])  # another file now: what came of the old one goes
    changed = run([MIXED, TRACES[1], cut])
    assert len(changed.computed) == 1
    assert len(pd.read_parquet(out / "captures")) == 3
    assert len(list((out / "manifests").glob("*.json"))) == 3


@slow
def test_what_dasks_loop_leaves_behind_is_not_heard_of(caplog: pytest.LogCaptureFixture) -> None:
    """A stream that is waiting to send when the loop ends leaves a future whose timeout nobody fetches."""

    async def leave() -> None:
        asyncio.get_running_loop().create_future().set_exception(TimeoutError("Timeout"))

    with connected(None, None, None) as (client, _memory):
        client.sync(leave)
    gc.collect()
    assert caplog.text == ""


@pytest.mark.slow
def test_it_goes_on_within_a_capture(tmp_path: Path) -> None:
    """Some blocks are there, from a driver that was killed: the others are computed, those are not."""
    settings = replace(SETTINGS, block_flows=8)
    whole = compute(MIXED, tmp_path / "whole", settings=settings)
    dataset = Dataset.open(tmp_path / "out", settings)
    for block in (0, 3):
        compute_piece(Source(str(MIXED)), dataset, Tight(1), block)
    before = journal(dataset.root)
    done = run_batch([MIXED], dataset.root, settings, progress=False)
    assert len(done.computed) == 1
    assert contents(dataset.root) == contents(whole.root)
    assert before.items() < journal(dataset.root).items()
    blocks = [json.loads(text)["blocks"] for _, text in journal(dataset.root).values()]
    assert sorted(blocks) == [[0], [1, 2], [3], [4, 5, 6]]


def test_arguments_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="workers: cannot be combined"):
        run_batch([MIXED], tmp_path / "a", workers=2, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(ParameterError, match="is not a dataset"):
        run_batch([MIXED], ROOT)
    with pytest.raises(ParameterError, match=r"by-rate-1 needs slots of 20 ms, not 100"):
        run_batch([MIXED], tmp_path / "b", classifier=ByRate())
    with pytest.raises(ParameterError, match=r"0\.10 GB per worker, of which 0\.55 GB are used"):
        run_batch([MIXED], tmp_path / "c", memory_bytes=10**8)


@slow
def test_a_model_of_ours_on_two_workers(tmp_path: Path) -> None:
    """What the workers say is what the model says of the same slots, flow by flow."""
    pytest.importorskip("torch", reason="making models needs torch: the extra 'train'")
    pytest.importorskip("onnxscript", reason="making models needs onnxscript: the extra 'train'")
    from identify_samples import fitted

    from cctoolkit.batch.cca import SavedModel
    from cctoolkit.identify import load

    folder = fitted("ours").save(tmp_path / "ours", windows_ms=[100, 500])
    model = SavedModel(folder)
    settings = BatchSettings(long_flow_bytes=50_000, slot_ms=model.slot_ms)
    done = run_batch(TRACES[:2], tmp_path / "out", settings, workers=2, classifier=model)
    assert not done.failed
    found = pd.read_parquet(tmp_path / "out" / "cca")
    assert set(found.model) == {model.name}
    assert len(found.dropna(subset="cca")) > 2
    for capture, named in found.groupby("capture", observed=True):
        (path,) = (trace for trace in TRACES if str(capture).startswith(trace.name.removesuffix(".pcap.gz")))
        cap = cct.read_capture(path)
        slots = cct.compute_slots(cap, slot_ms=model.slot_ms, flow_ids=named.flow_id)
        expected = load(folder).predict_slots(slots)
        assert named.flow_id.tolist() == expected.flow_id.tolist()
        assert named.cca.fillna("").tolist() == expected.cca.fillna("").tolist()
        assert named.probability.to_numpy() == pytest.approx(
            expected.probability.to_numpy(), rel=1e-5, nan_ok=True
        )


@slow
def test_no_scheduler_there(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"no answer from tcp://127\.0\.0\.1:9"):
        run_batch([MIXED], tmp_path / "a", scheduler="tcp://127.0.0.1:9")


@slow
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def cct_batch(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["cct", "batch", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
            sys.exit(0)
        return ended.value.code or 0

    monkeypatch.chdir(tmp_path)
    Path("bad.pcap").write_bytes(b"garbage")
    assert cct_batch(str(MIXED), "bad.pcap", "-o", "out") == 1
    output = capfd.readouterr()
    assert output.out == f"{tmp_path / 'out'}: 1 computed, 1 failed\n"
    (line,) = output.err.splitlines()
    assert line.startswith(f"cct: {tmp_path / 'bad.pcap'}: byte 0: expected a pcap")
    assert cct_batch(str(MIXED), "-o", "out", "--memory", "4GB") == 0
    assert capfd.readouterr().out == f"{tmp_path / 'out'}: 1 there before\n"
    assert cct_batch(str(MIXED), "-o", "out", "--slot-ms", "10") == 1
    assert "made with slot_ms = 100.0, not 10.0" in capfd.readouterr().err
    assert cct_batch(str(MIXED), "-o", "out", "--memory", "lots") == 1
    assert "not a size such as 4GB" in capfd.readouterr().err


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Captures that take a worker a second or two each."""
    folder = tmp_path_factory.mktemp("days")
    return [cct.synth_mawi(folder / f"day{i}.pcap.gz", 1_000_000, seed=i, progress=False) for i in range(4)]


LARGE = BatchSettings(long_flow_bytes=1_000_000, block_flows=1 << 17)


@pytest.fixture(scope="module")
def undisturbed(days: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What comes of them, one after the other, without a cluster."""
    root = tmp_path_factory.mktemp("undisturbed") / "out"
    for day in days:
        compute(day, root, settings=LARGE)
    found = contents(root)
    assert len(found) == 1 + len(days) * (1 + 6)
    return found


@contextlib.contextmanager
def cluster(n: int) -> Iterator[tuple[str, distributed.Client]]:
    with (
        distributed.LocalCluster(
            n_workers=n, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as local,
        distributed.Client(local) as client,
    ):
        yield local.scheduler_address, client


@slow
def test_a_worker_is_killed_in_the_middle(
    days: list[Path], undisturbed: dict[str, str], tmp_path: Path
) -> None:
    """Two workers, one killed while it computes its second capture: the same bytes, and nothing computed twice."""
    out = tmp_path / "out"
    found: list[BatchResult] = []
    with cluster(2) as (address, client):
        pids = client.run(os.getpid)

        def drive() -> None:
            found.append(
                run_batch(days, out, LARGE, scheduler=address, memory_bytes=8 * 10**9, progress=False)
            )

        driver = threading.Thread(target=drive)
        driver.start()
        while not (out / "journal").exists() or not journal(out):
            time.sleep(0.02)
        time.sleep(0.3)
        victim = next(pids[worker] for worker, tasks in client.processing().items() if tasks)
        before = journal(out)
        os.kill(victim, signal.SIGKILL)
        driver.join(timeout=240)
        assert not driver.is_alive()
        after = set(client.run(os.getpid).values())
    assert victim not in after
    assert len(after - set(pids.values())) == 1  # Dask has put another in its place
    assert 0 < len(before) < len(days)
    (result,) = found
    # what the victim had finished but not reported is there when its task is tried again
    assert len(result.computed) + len(result.present) == len(days)
    assert result.failed == {}
    assert contents(out) == undisturbed
    assert before.items() <= journal(out).items()
    assert len(journal(out)) == len(days)


DRIVER = """
import sys
from pathlib import Path
from cctoolkit.batch.run import run_batch
from cctoolkit.batch.settings import BatchSettings
if __name__ == "__main__":
    settings = BatchSettings(long_flow_bytes=1_000_000, block_flows=1 << 17)
    done = run_batch(sys.argv[2:], sys.argv[1], settings, workers=2)
    assert not done.failed
    print(len(done.computed), len(done.present))
"""


@slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_the_driver_is_killed_in_the_middle(
    days: list[Path], undisturbed: dict[str, str], tmp_path: Path
) -> None:
    """Its workers end with it, what was done stays as it is, and the next run does the rest."""
    script = tmp_path / "drive.py"
    script.write_text(DRIVER)
    out = tmp_path / "out"
    command = [sys.executable, str(script), str(out), *map(str, days)]
    driver = subprocess.Popen(command)
    while not (out / "journal").exists() or not journal(out):
        assert driver.poll() is None
        time.sleep(0.02)
    workers = {int(json.loads(text)["worker"].partition(":")[2]) for _, text in journal(out).values()}
    driver.kill()
    driver.wait()
    for _ in range(600):
        if not any(map(alive, workers)):
            break
        time.sleep(0.1)
    else:
        pytest.fail("its workers go on without it")
    before = journal(out)
    assert 0 < len(before) < len(days)
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    computed, _ = map(int, again.stdout.split())
    assert computed == len(days) - len(before)
    assert contents(out) == undisturbed
    assert before.items() < journal(out).items()
    assert not list(out.rglob("*.tmp"))


@slow
def test_workers_and_splits_leave_no_trace(
    days: list[Path], undisturbed: dict[str, str], tmp_path: Path
) -> None:
    """Two processes, with little memory each: pieces of a block. A worker stays below its limit."""
    settings = BatchSettings(long_flow_bytes=1_000_000, block_flows=1 << 13)
    compute(days[0], tmp_path / "one", settings=settings)
    limit = 600_000_000
    out = tmp_path / "two"
    done = run_batch(days[:1], out, settings, workers=2, memory_bytes=limit)
    assert not done.failed
    assert contents(out) == contents(tmp_path / "one")
    entries = [json.loads(text) for _, text in journal(out).values()]
    assert len(entries) > 1
    assert len({entry["worker"] for entry in entries}) == 2
    assert max(entry["process_peak_bytes"] for entry in entries) < limit


@slow
def test_captures_from_a_web_server(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    served = tmp_path / "served"
    served.mkdir()
    shutil.copy(MIXED, served / MIXED.name)
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(served))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = run_batch([f"{url}/{MIXED.name}", f"{url}/none.pcap"], tmp_path / "out", SETTINGS, workers=2)
        again = run_batch([f"{url}/{MIXED.name}"], tmp_path / "out", SETTINGS)
        server.shutdown()
    silent = run_batch([f"{url}/{MIXED.name}"], tmp_path / "silent", SETTINGS)  # nobody answers any more
    assert "onnect" in silent.failed[f"{url}/{MIXED.name}"]
    assert len(done.computed) == 1
    assert again.present == done.computed
    assert list(done.failed) == [f"{url}/none.pcap"]
    assert done.failed[f"{url}/none.pcap"].startswith("404")
    compute(MIXED, tmp_path / "here")
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


@slow
def test_a_worker_that_always_dies_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask gives a task up after it has cost four workers."""
    with cluster(1) as (address, _):
        monkeypatch.setattr("cctoolkit.batch.run._piece", die)
        done = run_batch([MIXED], tmp_path / "out", SETTINGS, scheduler=address)
    assert list(done.failed) == [str(MIXED)]
    assert "its worker died" in done.failed[str(MIXED)]


def die(*_: object) -> None:
    os._exit(1)


@slow
def test_others_can_read_it(tmp_path: Path) -> None:
    """DuckDB, which nobody here wrote: partitions are columns, and sums are those of the captures."""
    duckdb = pytest.importorskip("duckdb")
    out = tmp_path / "out"
    done = run_batch(TRACES, out, SETTINGS)
    assert not done.failed
    rows = duckdb.sql(
        f"""
        select c.name, c.packets, c.wire_bytes, s.packets, f.packets, f.bytes
        from read_parquet('{out}/captures/*/*.parquet') c
        join (select capture, sum(packets) packets from read_parquet('{out}/seconds/*/*.parquet') group by 1) s
          using (capture)
        join (select capture, sum(packets_fwd + packets_rev) packets, sum(bytes_fwd + bytes_rev) bytes
              from read_parquet('{out}/flows/*/*.parquet') group by 1) f using (capture)
        """
    ).fetchall()
    assert {row[0] for row in rows} == {path.name for path in TRACES}
    for name, packets, wire, by_second, by_flow, flow_bytes in rows:
        cap = cct.read_capture(ROOT / "traces" / name)
        assert packets == by_second == by_flow == len(cap)
        assert flow_bytes == cap.packets.wire_bytes.sum() <= wire


def test_names_that_cannot_be_are_lines(tmp_path: Path) -> None:
    """Loops of links, names that are not text or too long, in folders and alone: the others are done."""
    folder = tmp_path / "captures"
    folder.mkdir()
    for number, name in enumerate(["good.pcap.gz", "\udcff\udcfe.pcap.gz", "a\x1b[31m\nb.pcap.gz"]):
        # captures with the same bytes would be one
        cct.write_pcap(
            folder / name, cct.example("bufferbloat").ingress, comment=str(number), format="pcapng"
        )
    (folder / "loop.pcap").symlink_to("loop.pcap")
    (folder / "round").symlink_to(".")
    lines: list[str] = []
    given = [folder / "loop.pcap", folder, "n" * 300, "zero\0byte", folder / "round"]
    done = run_batch(given, tmp_path / "out", SETTINGS, progress=False, say=lines.append)
    assert len(done.computed) == 3
    assert set(done.failed) == {str(folder / "loop.pcap"), "n" * 300, "zero\0byte"}
    assert len(lines) == 3
    names = pd.read_parquet(tmp_path / "out" / "captures")["name"]
    assert sorted(names) == ["\\udcff\\udcfe.pcap.gz", "a\\x1b[31m\\nb.pcap.gz", "good.pcap.gz"]


@pytest.mark.slow
def test_damaged_bookkeeping_is_made_again(tmp_path: Path) -> None:
    out, trace = tmp_path / "out", cct.example("bufferbloat").ingress.meta.path
    (name,) = run_batch([trace], out, SETTINGS, progress=False).computed
    before = contents(out)
    other = '{"url": "x", "version": [], "capture": "../.."}'
    for damage in ("", "[]", "{}", "null", "{", "[" * 100_000, '{"url": 5}', other):
        for path in [*(out / "manifests").glob("*.json"), *(out / "sources").glob("*.json")]:
            path.write_text(damage)
        again = run_batch([trace], out, SETTINGS, progress=False)
        assert again.failed == {} and [*again.computed, *again.present] == [name]
        assert contents(out) == before
    (out / "dataset.json").write_text("{}")
    with pytest.raises(SchemaError, match=r"dataset\.json"):
        run_batch([trace], out, SETTINGS, progress=False)


@slow
def test_a_scheduler_that_dies_is_a_line(tmp_path: Path) -> None:
    program = "from distributed.cli.dask_scheduler import main; main()"
    scheduler = subprocess.Popen(
        [sys.executable, "-c", program, "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show",
         "--scheduler-file", str(tmp_path / "where.json")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(300):
            with contextlib.suppress(OSError, ValueError, KeyError):
                address = json.loads((tmp_path / "where.json").read_text())["address"]
                break
            time.sleep(0.1)
        arguments = [
            "batch",
            str(MIXED),
            "-o",
            str(tmp_path / "out"),
            "--scheduler",
            address,
            "--memory",
            "4GB",
        ]
        driver = subprocess.Popen(
            [sys.executable, "-m", "cctoolkit.cli", *arguments], stderr=subprocess.PIPE, text=True
        )
        while not (tmp_path / "out" / "dataset.json").exists():
            time.sleep(0.1)
        time.sleep(3)  # no worker: it waits
        scheduler.kill()
        _, err = driver.communicate(timeout=120)
    finally:
        scheduler.kill()
        scheduler.wait()
    assert driver.returncode == 1
    assert len(err.splitlines()) == 1 and err.startswith("cct: scheduler: lost the connection"), err
