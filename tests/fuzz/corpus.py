"""The corpus: few small inputs that reach every kind of result, made by fuzzing and replayed by an ordinary test.

``python -m tests.fuzz.corpus`` takes what the last runs found in ``build/fuzz/`` into ``tests/corpus/``: of frames one
for each set of headers that the naive twin sees in them, of other files those that reach new lines. Files there stay.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import made_captures as made
import naive_capture as naive

from . import compiled, readers

CORPUS = Path(__file__).parents[1] / "corpus"
_LARGEST = 4096  # bytes of a file of a reader
_MOST_FRAMES = 120  # of a link type


def kinds(frames: list[bytes], link_type: int) -> list[bytes]:
    """The shortest frame of each kind, as the naive twin counts headers."""
    found: dict[object, bytes] = {}
    for frame in sorted(frames, key=lambda f: (len(f), f)):
        what: list[object] = []
        for inner in (False, True):
            counts: Counter[str] = Counter()
            row = naive.Decoder(counts, inner).decode(naive.Frame(frame, len(frame), 0, link_type))
            shape = row and (row.protocol, row.has_ts, len(row.sacks), row.mss > 0, row.payload_bytes > 0)
            what.append((tuple(sorted((name, min(n, 2)) for name, n in counts.items())), shape))
        found.setdefault(tuple(what), frame)
    return list(found.values())[:_MOST_FRAMES]


def lines(reader: readers.Reader, data: bytes) -> set[tuple[str, int]]:
    """The lines of the modules that guide a reader's fuzzing that one input comes past."""
    files = {importlib.import_module(name).__file__ for name in reader.guides}
    seen = set()

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in files:
            return None
        seen.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        reader.check(data)
    finally:
        sys.settrace(before)
    return seen


def smallest(name: str, folder: Path) -> list[Path]:
    """The small inputs of a run that come past a line which no smaller one does, and none of the corpus."""
    reader = readers.TARGETS[name]
    there = (path.read_bytes() for path in (CORPUS / name).glob("*"))
    known: set[tuple[str, int]] = set()
    for data in itertools.chain(reader.seeds(), there):
        known |= lines(reader, data)
    kept = []
    for path in sorted(folder.glob("found/*"), key=lambda p: (p.stat().st_size, p.name)):
        if path.stat().st_size <= _LARGEST and (new := lines(reader, path.read_bytes())) - known:
            known |= new
            kept.append(path)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.corpus", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="what the runs found")
    given = parser.parse_args()
    for name, target in compiled.TARGETS.items():
        path = given.folder / name / "found.json"
        if target.link_type is None or not path.is_file():
            continue
        kept = kinds([bytes.fromhex(case) for case in json.loads(path.read_text())], target.link_type)
        out = CORPUS / f"{name}.pcap"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(made.pcap([(i, f, len(f)) for i, f in enumerate(kept)], link_type=target.link_type))
    for name in readers.TARGETS:
        for path in smallest(name, given.folder / name):
            out = CORPUS / name / path.name[:12]
            out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out)


if __name__ == "__main__":
    main()
