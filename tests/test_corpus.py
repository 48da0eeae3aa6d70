"""Inputs that fuzzing found, read again: no reader breaks on them, and captures are what the naive twin says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from as_naive import assert_as_naive
from fuzz import compiled, readers, watched

CORPUS = Path(__file__).parent / "corpus"
FRAMES = sorted(CORPUS.glob("headers/*.pcap"))


def files(name: str) -> list[Path]:
    return sorted((CORPUS / name).glob("*"))


def test_the_corpus_is_small() -> None:
    assert FRAMES
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize("tunnel", ["outer", "inner"])
@pytest.mark.parametrize("path", FRAMES, ids=lambda path: path.stem)
def test_frames(path: Path, tunnel: str) -> None:
    assert_as_naive(path.read_bytes(), tunnel)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", readers.TARGETS)
def test_readers(name: str) -> None:
    """Seeds and corpus of each reader; what they may raise is in ``fuzz/readers.py``."""
    target = readers.TARGETS[name]
    for data in [*target.seeds(), *(path.read_bytes() for path in files(name))]:
        target.check(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["headers/en10mb", "tcp-options", "pcap-records", "pcapng-blocks"])
def test_kernels_for_a_moment(name: str, tmp_path: Path) -> None:
    """Eight thousand damaged inputs, each against a page that must not be touched, in a process of its own."""
    outcome = watched.run(
        lambda slot: compiled.compare(name, compiled.fuzz(name, 8_000, 7, slot)[0][:400], slot),
        tmp_path / "log",
        120,
    )
    assert not outcome.fault, (outcome.fault, outcome.case.hex(), (tmp_path / "log").read_text()[-2000:])
    assert outcome.cases >= 8_000


def _reads_too_far(slot: watched.Slot) -> None:
    import ctypes

    slot.begin(b"a case")
    ctypes.string_at(8)


def _takes_memory(slot: watched.Slot) -> None:
    slot.begin(b"a case")
    hoard = bytearray(watched.MOST_BYTES + (64 << 20))
    hoard[::4096] = b"x" * len(hoard[::4096])
    time.sleep(60)  # seen long before


def _never_ends(slot: watched.Slot) -> None:
    slot.begin(b"a case")
    while True:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "fault", "most_s"),
    [(_reads_too_far, "SIGSEGV", 60), (_takes_memory, " GB", 60), (_never_ends, "took more than", 2)],
)
def test_the_watcher_sees_faults(work, fault: str, most_s: float, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    outcome = watched.run(work, tmp_path / "log", most_s)
    assert fault in outcome.fault
    assert outcome.case == b"a case"


def test_the_memory_of_those_who_watch_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked process begins with all its parent has: after an hour of tests that was more than a case may take."""
    monkeypatch.setattr(watched, "MOST_BYTES", 100 << 20)
    hoard = bytearray(b"x") * (200 << 20)

    def works(slot: watched.Slot) -> None:
        slot.begin(b"a case")
        time.sleep(0.2)  # long enough to be looked at

    outcome = watched.run(works, tmp_path / "log", 60)
    assert not outcome.fault
    assert outcome.most_bytes < len(hoard)
