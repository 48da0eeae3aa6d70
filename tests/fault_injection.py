"""Commands that write, and faults while they do: no room, a limit on the size of files, death at any step.

:data:`WRITING` has a case for every command that writes; ``test_faults.py`` looks the commands up in the command line,
so a new one has to be added here. Cases run in one process, because starting one takes longer than what most commands
do; run as a program, this file is that process::

    python tests/fault_injection.py full INPUTS ROOM     # ROOM: an empty file system, which is filled
    python tests/fault_injection.py limit INPUTS ROOM    # no file may grow (RLIMIT_FSIZE)
    python tests/fault_injection.py killed INPUTS ROOM   # killed at each step of putting outputs in place
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

import cctoolkit as cct
from cctoolkit import cli
from cctoolkit._support import atomic

SCENARIO = """
name = "one"
duration_s = 1
seed = {seed}
[bottleneck]
rate_mbps = 5
buffer_packets = 40
[[flows]]
cca = "cubic"
rtt_ms = 20
"""


@dataclass(frozen=True)
class Inputs:
    """What commands read, all in one folder."""

    folder: Path
    prefix: str = ""

    def __getattr__(self, name: str) -> Path:
        file = {"ingress": "in.pcap.gz", "egress": "out.pcap.gz", "labels": "labels.csv", "scenario": "one.toml",
                "sweep": "two.toml", "dataset": "dataset"}[name]  # fmt: skip
        return self.folder / f"{self.prefix}{file}"


@dataclass(frozen=True)
class Case:
    """A command line that writes.

    Attributes
    ----------
    command : str
        Its words, without options.
    target : str
        What it writes, in the folder for outputs: a file, or a folder.
    more : function of (inputs, target), to a list of arguments
    fresh : bool
        Whether the command does not write to a target that is there.
    """

    command: str
    target: str
    more: Callable[[Inputs, Path], list[object]]
    fresh: bool = False

    @property
    def name(self) -> str:
        return f"{self.command} {Path(self.target).suffix}".strip()

    def arguments(self, inputs: Inputs, out: Path) -> list[str]:
        return [*self.command.split(), *map(str, self.more(inputs, out / self.target))]


WRITING = [
    Case("demo", "demo.html", lambda i, to: ["-o", to]),
    *(Case("flows", f"flows.{kind}", lambda i, to: [i.ingress, "-o", to]) for kind in ("csv", "jsonl", "parquet")),
    Case("rtt", "rtt.csv", lambda i, to: [i.ingress, "--samples", "-o", to]),
    Case("slots", "slots.csv", lambda i, to: [i.ingress, i.egress, "-o", to]),
    Case("report", "report.html", lambda i, to: [i.ingress, "--egress", i.egress, "-o", to]),
    Case("separate", "queues.csv", lambda i, to: [i.ingress, "-k", 2, "--long", 1000, "-o", to]),
    Case(
        "separate", "rules.tc",
        lambda i, to: [i.ingress, "-k", 2, "--long", 1000, "--router", "linux", "--interface", "eth0", "--rules", to],
    ),
    Case("simulate", "run", lambda i, to: [i.scenario, "-o", to]),
    Case("simulate", "runs.parquet", lambda i, to: [i.sweep, "-o", to, "--workers", 1]),
    Case("simulate", "pcaps.d", lambda i, to: [i.scenario, "--pcap", to]),
    Case(
        "train", "model",
        lambda i, to: [i.dataset, "--classifier", "summary", "--window-ms", 500, "--epochs", 2, "-o", to], fresh=True,
    ),
    Case("evaluate", "scores.csv", lambda i, to: ["cca", i.dataset, "--window-ms", 1000, "-o", to]),
    Case("evaluate", "evaluation", lambda i, to: ["cca", i.dataset, "--window-ms", 1000, "-o", to]),
    Case("classify", "ccas.csv", lambda i, to: [i.ingress, "--min-bytes", 1000, "-o", to]),
    Case("batch", "archive", lambda i, to: [i.ingress, "-o", to], fresh=True),
    Case("filter", "some.pcap.gz", lambda i, to: [i.ingress, to, "--snaplen", 60]),
    Case("live", "live.csv", lambda i, to: ["--from-capture", i.ingress, "--no-classify", "-f", "jsonl", "-o", to]),
    Case("synth mawi", "mawi.pcap.gz", lambda i, to: [to, "-n", 2000]),
    Case("dataset build", "built", lambda i, to: [i.sweep, "-o", to, "--workers", 1], fresh=True),
    Case(
        "experiment codel", "codel",
        lambda i, to: ["--part", "clock", "--seeds", 2, "--workers", 1, "-o", to],
    ),
    Case("dataset add", "mine", lambda i, to: [to, i.ingress, i.egress, "--labels", i.labels], fresh=True),
]  # fmt: skip

#: Commands that write and have no case, and why.
ELSEWHERE = {
    "add-cca": "minutes; it writes as `dataset build`, `train` and `evaluate` do",
    "benchmark cca": "simulates for long: test_identify_benchmark.py; datasets are written as by `dataset build`",
    "fetch mawi": "needs a server: test_mawi.py",
    "testbed run": "needs a kernel: test_testbed_uml.py; a run is written as `simulate -o` writes it",
    "testbed sweep": "as `testbed run`",
    "testbed build": "builds a kernel: test_testbed_kernel.py",
    **dict.fromkeys(
        (f"experiment {name}" for name in ("abc", "dragonfly", "l4s", "rtt-separation", "sim-vs-kernel")),
        "minutes; they write as `experiment codel` does (experiments/folder.py)",
    ),
}


def make_inputs(folder: Path, prefix: str = "", seed: int = 1) -> Inputs:
    """Small captures, scenarios and a dataset: what the cases read."""
    from cctoolkit.identify import record
    from cctoolkit.identify.dataset import index_dataset, save_recording

    inputs = Inputs(folder, prefix)
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=5, buffer_packets=40),
        flows=[cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=60)],
        duration_s=2,
        name="in",
        seed=seed,
    )
    run = cct.simulate(scenario, record=True)
    assert run.ingress is not None and run.egress is not None
    cct.write_pcap(inputs.ingress, run.ingress, snaplen=96)
    cct.write_pcap(inputs.egress, run.egress, snaplen=96)
    run.labels.to_csv(inputs.labels, index=False)
    inputs.scenario.write_text(SCENARIO.format(seed=seed))
    inputs.sweep.write_text(SCENARIO.format(seed=seed) + "[sweep]\nseed = [1, 2]\n")
    for number in range(4):
        recording = record(
            cct.simulate(scenario.replace({"seed": number, "name": f"run-{number}"}), record=True)
        )
        save_recording(inputs.dataset, recording, {})
    index_dataset(inputs.dataset, {}, 1.0)
    return inputs


def call(*arguments: object) -> tuple[int, str, str]:
    """Call ``cct`` in this process: exit status, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["cct", *map(str, arguments)]
    status = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as stop:
        status = int(stop.code or 0)
    finally:
        sys.argv = before
    return status, out.getvalue(), err.getvalue()


def content(path: Path) -> dict[str, str]:
    """The files at and below a path by name, without what is being written: hashes of what is in them."""
    below = (p for p in path.rglob("*") if p.is_file() and atomic.SUFFIX not in str(p))
    files = [path] if path.is_file() else sorted(below)
    return {str(p.relative_to(path.parent)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def hidden(folder: Path) -> list[str]:
    """What a write left; a batch's lock stays by design."""
    return [str(p.relative_to(folder)) for p in folder.rglob(".*") if p.name != ".lock"]


def _failing(
    inputs: Inputs, room: Path, fault: Callable[[], contextlib.AbstractContextManager[None]]
) -> dict[str, Any]:
    """Each case when all is well, then under the fault."""
    found: dict[str, Any] = {}
    for case in WRITING:
        out = room / "out"
        status, _, err = call(*case.arguments(inputs, out))
        found[case.name] = {"well": [status, err]}
    for case in WRITING:
        out = room / ("fresh" if case.fresh else "out")
        out.mkdir(exist_ok=True)
        before = content(out / case.target)
        with fault():
            status, output, err = call(*case.arguments(inputs, out))
        found[case.name] |= {
            "status": status,
            "err": err,
            "names": str(out / case.target) in err,
            "reported_success": "wrote" in output,
            "kept": content(out / case.target) == before or case.fresh,
            "hidden": hidden(room),
        }
    return found


@contextlib.contextmanager
def _full(room: Path) -> Iterator[None]:
    """The file system of a folder without a free byte."""
    ballast = room / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
        yield
    finally:
        ballast.unlink()


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """No file of this process may be longer than the semaphores that Python's locks are (``ulimit -f``)."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


#: What puts outputs in place; a process may die before or after each.
_STEPS = [
    (os, "replace"),
    (Path, "rename"),
    (atomic, "_exchanged"),
    (atomic, "_lock"),
    (atomic.shutil, "rmtree"),
]


def _dying_at(step: int | None) -> Callable[[], int]:
    """Kill this process before (even numbers) or after a step; return how many there were."""
    count = 0

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            for after in (False, True):
                if after:
                    result = real(*arguments, **options)
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
            return result

        return counted

    for owner, name in _STEPS:
        setattr(owner, name, wrapped(getattr(owner, name)))
    return lambda: count


def _in_child(work: Callable[[], Any], kill_after_s: float | None = None) -> tuple[int, Any]:
    """Do something in a fork of this process, maybe killed meanwhile: its exit status, and the result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        atomic._sweep_once.cache_clear()  # as in a new process
        result = work()
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(child, 0)
    return status, json.loads(data) if data else None


def _killed(inputs: Inputs, room: Path) -> dict[str, Any]:
    """Cases killed at steps and at random moments, over an old output, then run to their end."""
    return {case.name: _killed_case(case, inputs, room) for case in WRITING if case.name in KILLED}


def _killed_case(case: Case, inputs: Inputs, room: Path) -> dict[str, Any]:
    out, kept = room / "out", room / "old"
    target = out / case.target
    arguments = case.arguments(inputs, out)

    def run(arguments: list[str], step: int | None = None) -> list[Any]:
        steps = _dying_at(step)
        began = time.perf_counter()
        status, _, err = call(*arguments)
        return [status, err, steps(), time.perf_counter() - began]

    call(*arguments)  # compiles what is not compiled, and imports: forks have it
    new = content(target)
    shutil.rmtree(out)
    call(*case.arguments(Inputs(inputs.folder, "old-"), out))
    old = content(target)
    shutil.rmtree(kept, ignore_errors=True)
    out.rename(kept)

    def again() -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(kept, out)

    again()
    _, (status, err, steps, took_s) = _in_child(lambda: run(arguments))
    problems = [] if status == 0 and old != new == content(target) else [f"not the same twice: {err}"]
    chosen = random.Random(case.name)
    moments: list[tuple[int | None, float | None]]
    moments = [(step, None) for step in sorted(chosen.sample(range(steps), min(steps, MOST_STEPS)))]
    moments += [(None, chosen.uniform(0, took_s)) for _ in range(4)]
    deaths = 0
    for step, after_s in moments:
        again()
        status, _ = _in_child(functools.partial(run, arguments, step), after_s)
        deaths += status == signal.SIGKILL
        there = content(target)
        if case.target == "run":  # a folder that is exchanged
            whole = there in (old, new)
        else:
            whole = set(there) <= {*old, *new} and all(
                there.get(n) in (old.get(n), new.get(n)) for n in {*old, *new}
            )
        if not whole:
            problems.append(f"step {step}: neither old nor new: {there}")
        _in_child(functools.partial(run, arguments))
        if content(target) != new or hidden(out):
            problems.append(f"step {step}: the next run left {hidden(out)} and {content(target)}")
    return {"steps": steps, "deaths": deaths, "problems": problems}


def killed_set(room: Path) -> list[dict[str, str]]:
    """What is in a folder after a process was killed at each step of replacing a set of files in it."""
    folder = room / "set"

    def write(text: str) -> None:
        with atomic.replacing_set(folder) as tmp:
            for name in "abc":
                (tmp / name).write_text(text)

    def run(step: int | None) -> int:
        steps = _dying_at(step)
        write("new")
        return steps()

    def left() -> dict[str, str]:
        return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}

    write("old")
    (folder / "other").write_text("kept")
    _, steps = _in_child(lambda: run(None))
    found = [left()]
    for step in range(steps):
        _in_child(lambda: write("old"))  # also removes what the last one left
        status, _ = _in_child(functools.partial(run, step))
        assert status == signal.SIGKILL
        found.append(left())
    _in_child(lambda: run(None))  # removes what the killed ones left
    assert not hidden(room)
    return found


#: Cases that are killed: one of each way to put outputs in place.
MOST_STEPS = 12
KILLED = ("filter .gz", "flows .parquet", "simulate", "simulate .d")


def main(mode: str, folder: str, room: str) -> None:
    """Print what happened, as JSON."""
    inputs, place = Inputs(Path(folder)), Path(room)
    if mode == "full":
        found = _failing(inputs, place, lambda: _full(place))
    elif mode == "limit":
        found = _failing(inputs, place, _limited)
    else:
        # processes would share tqdm's lock, and one that is killed while it holds it stop all others
        tqdm.monitor_interval = 0
        tqdm.set_lock(threading.RLock())
        found = _killed(inputs, place)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
