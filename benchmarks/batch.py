"""What `cct batch` needs for a capture of many flows: processor time and memory of each task, size of the dataset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from .inputs import mawi_like

#: How the capture is computed: flow numbers of a block, and the memory of a task, which decides on its blocks.
WAYS = {"one task": (1 << 20, 10**11), "pieces": (1 << 17, 900_000_000)}

_RUN = (
    "import sys, cctoolkit as cct;"
    " settings = cct.BatchSettings(block_flows=int(sys.argv[3]), long_flow_bytes=200_000);"
    " done = cct.run_batch([sys.argv[1]], sys.argv[2], settings, memory_bytes=int(sys.argv[4]), progress=False);"
    " sys.exit(bool(done.failed))"
)


def run(directory: Path, packets: int | None, repeat: int) -> dict[str, pd.DataFrame]:
    path = mawi_like(directory, packets or 10_000_000, ".pcap.gz")
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    _dataset(
        mawi_like(directory, 10_000), directory / "first", "one task"
    )  # compiles what is not in the cache yet
    rows: list[dict[str, object]] = []
    for how in ("one task", "one task", "pieces"):
        out = directory / f"dataset-{len(rows)}"
        _dataset(path, out, how)
        for entry in sorted((out / "journal").iterdir()):
            about = json.loads(entry.read_text(encoding="utf-8"))
            rows.append(
                {
                    "how": how,
                    "packets": about["packets"],
                    "file_bytes": about["file_bytes"],
                    "blocks": len(about["blocks"]),
                    "block_flows": WAYS[how][0],
                    "readings": about["passes"],
                    "cpu_s": about["cpu_s"],
                    "peak_bytes": about["process_peak_bytes"],
                }
            )
            print(
                f"  {how}: {about['cpu_s']:.1f} cpu-s, {about['process_peak_bytes'] / 1e6:.0f} MB of memory"
            )
    sizes = _sizes(directory / "dataset-0")
    for row in sizes.itertuples():
        print(f"  {row.table}: {row.rows} rows of {row.bytes / max(row.rows, 1):.1f} bytes")
    return {"tasks": pd.DataFrame(rows), "sizes": sizes}


def _dataset(path: Path, out: Path, how: str) -> None:
    command = [sys.executable, "-c", _RUN, str(path), str(out), *map(str, WAYS[how])]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _sizes(dataset: Path) -> pd.DataFrame:
    """Rows and bytes of each table."""
    rows = []
    for table in sorted(path for path in dataset.iterdir() if path.is_dir()):
        files = list(table.rglob("*.parquet"))
        if files:
            count = sum(pq.read_metadata(file).num_rows for file in files)
            rows.append(
                {"table": table.name, "rows": count, "bytes": sum(file.stat().st_size for file in files)}
            )
    return pd.DataFrame(rows)
