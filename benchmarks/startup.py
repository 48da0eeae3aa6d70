"""What one waits for before anything happens: import, and the first call with compiled kernels in the cache."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from .inputs import mawi_like
from .measure import line, measure

#: About 2 MB: what is read takes no time.
_PACKETS = 20_000


def run(directory: Path, packets: int | None, repeat: int) -> None:
    path = mawi_like(directory, _PACKETS)
    # what users have: byte code is kept
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def process(*command: str) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    python, cct = sys.executable, str(Path(sys.executable).with_name("cct"))
    read = f"import cctoolkit as cct; cap = cct.read_capture({str(path)!r})"
    cases = {
        "python -c pass": [python, "-c", "pass"],
        "import cctoolkit": [python, "-c", "import cctoolkit"],
        "import, read 20 000 packets": [python, "-c", read],
        "import, read 20 000 packets, flows, RTTs": [
            python,
            "-c",
            f"{read}; cap.flows; cct.rtt_samples(cap)",
        ],
        "cct --help": [cct, "--help"],
    }
    for command in ("info", "flows", "rtt"):
        cases[f"cct {command}, 20 000 packets"] = [cct, command, str(path)]
    for name, command in cases.items():
        process(*command)  # compiles whatever is not in the cache yet
        line(name, measure(functools.partial(process, *command), repeat), 1, "")
