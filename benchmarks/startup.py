"""What one waits for before anything happens: import, and the first call with compiled kernels in the cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .inputs import mawi_like
from .measure import line, measure


def run(directory: Path, packets: int | None, repeat: int) -> None:
    path = mawi_like(directory, 10_000)

    def python(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    first = f"import cctoolkit as cct; cap = cct.read_capture({str(path)!r}); cap.flows; cct.rtt_samples(cap)"
    python(first)  # compiles whatever is not in the cache yet
    line("python -c pass", measure(lambda: python("pass"), repeat), 1, "")
    line("import cctoolkit", measure(lambda: python("import cctoolkit"), repeat), 1, "")
    line("import, read 10 000 packets, flows, RTTs", measure(lambda: python(first), repeat), 1, "")
