"""The corpus: few small inputs that reach every kind of result, made by fuzzing and replayed by an ordinary test.

``python -m fuzz.corpus`` takes what the last runs found in ``build/fuzz/`` into ``tests/corpus/``: of frames one for
each set of headers that the naive twin sees in them, of other files those that add coverage. Files there stay.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path

import made_captures as made
import naive_capture as naive

from . import compiled, guided, readers

CORPUS = Path(__file__).parents[1] / "corpus"
_LARGEST = 4096  # bytes of a file of a reader
_MOST_FRAMES = 120  # of a link type
_MOST_FILES = 40  # of a reader


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.corpus", description=__doc__)
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
        smallest = guided.smallest(name, given.folder / name)
        for path in sorted(smallest, key=lambda p: (p.stat().st_size, p.name))[:_MOST_FILES]:
            if path.stat().st_size <= _LARGEST:
                out = CORPUS / name / path.name[:12]
                out.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, out)


if __name__ == "__main__":
    main()
