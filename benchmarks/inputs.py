"""The captures the benchmarks read, made once a run."""

from __future__ import annotations

from pathlib import Path

from cctoolkit.capture.synth.mawi import synth_mawi


def mawi_like(directory: Path, packets: int, suffix: str = ".pcap") -> Path:
    """A MAWI-like capture of so many packets, snap length 96."""
    path = directory / f"mawi-like-{packets}{suffix}"
    if not path.exists():
        synth_mawi(path, packets, seed=1)
    return path
