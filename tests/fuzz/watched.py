"""A process that is watched: what it was at, how long that took, and how much memory."""

from __future__ import annotations

import faulthandler
import mmap
import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MOST_S = 10.0
MOST_BYTES = 2 * 10**9
#: What a process may ask for. State for flow numbers never seen costs address space and no memory, so this is more.
MOST_ADDRESS_SPACE = 256 << 30
_POLL_S = 0.05
_LARGEST_CASE = 1 << 20
_WORDS = 4  # cases begun, bytes of the case, signs of life besides, memory at the start


class Slot:
    """Memory shared with the watcher: the number of cases begun, and the bytes of the last one."""

    def __init__(self) -> None:
        shared = mmap.mmap(-1, 8 * _WORDS + _LARGEST_CASE)
        self.words: np.ndarray = np.frombuffer(shared, np.int64, _WORDS)
        self.place: np.ndarray = np.frombuffer(shared, np.uint8, offset=8 * _WORDS)

    def begin(self, case: bytes) -> None:
        """Note what is tried next."""
        size = min(len(case), _LARGEST_CASE)
        self.place[:size] = np.frombuffer(case, np.uint8, size)
        self.words[1] = size
        self.words[0] += 1

    def start(self) -> None:
        """Note what the process has already: a forked one counts all of its parent's memory as its own."""
        self.words[3] = _memory_bytes(os.getpid(), "VmRSS")

    def alive(self) -> None:
        """Say that work goes on which is no case."""
        self.words[2] += 1

    @property
    def begun(self) -> int:
        return int(self.words[0])

    @property
    def at_start_bytes(self) -> int:
        return int(self.words[3])

    @property
    def case(self) -> bytes:
        return self.place[: self.words[1]].tobytes()


@dataclass(frozen=True)
class Outcome:
    """What became of a process.

    Attributes
    ----------
    cases : int
        Cases begun.
    wall_s : float
    most_bytes : int
        Peak memory, above what the process started with.
    fault : str
        What was wrong with the last case; empty if nothing was.
    case : bytes
        The last case.
    """

    cases: int
    wall_s: float
    most_bytes: int
    fault: str
    case: bytes


def run(work: Callable[[Slot], None], log: Path, most_s: float = MOST_S) -> Outcome:
    """Run `work` in a process of its own until it ends or misbehaves; its output goes to `log`."""
    slot = Slot()
    context = multiprocessing.get_context("fork")
    log.parent.mkdir(parents=True, exist_ok=True)
    child = context.Process(target=_child, args=(work, slot, log))
    began = time.monotonic()
    child.start()
    fault, most_bytes = "", 0
    seen, since, spent = (0, 0), began, 0.0
    while child.is_alive():
        child.join(_POLL_S)
        now = time.monotonic()
        if (signs := (slot.begun, int(slot.words[2]))) != seen:
            seen, since, spent = signs, now, _processor_s(child.pid)
        if slot.at_start_bytes:
            most_bytes = max(most_bytes, _memory_bytes(child.pid, "VmHWM") - slot.at_start_bytes)
        if most_bytes > MOST_BYTES:
            fault = f"took {most_bytes / 1e9:.1f} GB"
        elif slot.begun and _processor_s(child.pid) - spent > most_s:
            fault = f"took more than {most_s:g} s"
        elif slot.begun and now - since > 30 * most_s and not _is_stopped(child.pid):
            fault = f"waited for more than {30 * most_s:g} s"
        if fault:
            child.kill()
            child.join()
    if not fault and child.exitcode:
        fault = _ended(child.exitcode, log)
    return Outcome(slot.begun, time.monotonic() - began, most_bytes, fault, slot.case)


def _child(work: Callable[[Slot], None], slot: Slot, log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    faulthandler.enable(2)  # else a test's own would print where the tests print
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, MOST_ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    slot.start()
    try:
        work(slot)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _memory_bytes(pid: int | None, kind: str) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith(kind)]
    return int(found[0]) * 1024 if found else 0


def _stat(pid: int | None) -> list[str]:
    """What follows a process's name in ``/proc/PID/stat``: its state first; empty if it has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def _processor_s(pid: int | None) -> float:
    """Processor time so far: what others do on the machine does not make a case slow."""
    found = _stat(pid)
    return sum(map(int, found[11:13])) / os.sysconf("SC_CLK_TCK") if found else 0.0


def _is_stopped(pid: int | None) -> bool:
    return _stat(pid)[:1] == ["T"]


def _ended(status: int, log: Path) -> str:
    if status < 0:
        return signal.Signals(-status).name
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"exit status {status}: {lines[-1] if lines else ''}"
