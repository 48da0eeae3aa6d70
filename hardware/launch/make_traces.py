#!/usr/bin/env python3
"""Make the captures in traces/testbed, each from its NAME.scenario.toml, with real Linux TCP in virtual time.

    make_traces.py [NAME…] [--into DIR] [--any-kernel]

In virtual time, the same scenario and kernel give the same packets, so a capture can be reproduced exactly.
By default a capture is only made with its own kernel (named in MANIFEST.toml), which must be in the testbed's
cache or named by CCTOOLKIT_UML_KERNEL. With `--any-kernel`, the newest kernel makes all captures, and the
packets differ.

The first lines of a scenario file, up to the first empty line, say what it teaches. The manifest has them,
the kernel, the queue's counters, and three hashes of each capture: of the file; of the uncompressed pcap
(another zlib may compress differently); and of times, sizes, flags and relative sequence numbers. With other
versions of the guest's tools or of this package, the kernel draws other initial sequence numbers and
timestamp offsets: then only the third hash stays the same, and only if nothing else is random (CUBIC, Reno,
Vegas, … through a plain queue).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cctoolkit as cct
from cctoolkit._support.atomic import replacing
from cctoolkit._support.cache_folder import kernel_folder
from cctoolkit.errors import CCToolkitError, ParameterError, TestbedUnavailableError
from cctoolkit.testbed import run_testbed
from cctoolkit.testbed.kernel import VARIABLE, Kernel, find_kernel

FOLDER = Path(__file__).parents[2] / "traces" / "testbed"
SNAPLEN = 96
LICENCE = "Apache-2.0"


def kernels() -> list[Kernel]:
    """All available kernels, the newest first.

    Raises
    ------
    TestbedUnavailableError
        There are none.
    """
    first = find_kernel()
    named = os.environ.get(VARIABLE)
    found = [first]
    try:
        for path in kernel_folder().glob("linux-*"):
            if path.suffix != ".json":
                os.environ[VARIABLE] = str(path)
                found.append(find_kernel())
    finally:
        os.environ.pop(VARIABLE, None)
        if named:
            os.environ[VARIABLE] = named
    return list({k.sha256: k for k in found}.values())


def make(name: str, kernel: Kernel, folder: Path, into: Path) -> dict[str, Any]:
    """Make a capture pair with its labels; returns its entry for the manifest.

    Parameters
    ----------
    name : str
    kernel : Kernel
    folder : path
        Folder of ``NAME.scenario.toml``.
    into : path
        Folder for the files, each of which is written atomically.
    """
    source = folder / f"{name}.scenario.toml"
    scenario = cct.read_scenario(source)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(kernel.path)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch) / "run"
            run = run_testbed(scenario, place, snaplen=SNAPLEN)
            about = json.loads((place / "provenance.json").read_text())
            files = [_store(place, tap, name, into) for tap in ("ingress", "egress")]
            with replacing(into / f"{name}.labels.csv") as tmp:
                shutil.copyfile(place / "labels.csv", tmp)
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
    queues = run.queues
    dropped = queues.dropped_full + queues.dropped_enqueue + queues.dropped_dequeue
    return {
        "name": name,
        "teaches": " ".join(x.lstrip("# ") for x in source.read_text().split("\n\n")[0].splitlines()),
        "scenario": source.name,
        "scenario_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "made_by": "make_traces.py",
        "kernel": kernel.version,
        "kernel_sha256": kernel.sha256,
        "tools": list(about["tools"].values()),
        "licence": LICENCE,
        "queue": next(x.split("handle 10: ")[1] for x in about["qdisc_commands"] if " handle 10: " in x),
        "queue_sent": int(queues.sent_packets.sum()),
        "queue_dropped": int(dropped.sum()),
        "queue_marked": int(queues.marked_packets.sum()),
        "queue_waiting": int(queues.packets.sum()),
        "ccas": sorted(set(run.labels.cca) - {""}),
        "labels": f"{name}.labels.csv",
        "file": files,
    }


def _store(place: Path, tap: str, name: str, into: Path) -> dict[str, Any]:
    capture = gzip.decompress((place / f"{tap}.pcap.gz").read_bytes())
    blob = gzip.compress(capture, 9, mtime=0)
    path = into / f"{name}.{tap}.pcap.gz"
    with replacing(path) as tmp:
        tmp.write_bytes(blob)
    read = cct.read_capture(path)
    return {
        "name": path.name,
        "tap": tap,
        "sha256": hashlib.sha256(blob).hexdigest(),
        "pcap_sha256": hashlib.sha256(capture).hexdigest(),
        "shape_sha256": hashlib.sha256(_shape(read)).hexdigest(),
        "bytes": len(blob),
        "packets": len(read),
        "duration_s": round(read.meta.duration_s, 6),
        "snap_length": SNAPLEN,
    }


def _shape(capture: cct.Capture) -> bytes:
    """The parts of each packet that do not depend on the kernel's random numbers."""
    packets = capture.packets
    seq = packets.seq - packets.groupby(["flow_id", "direction"]).seq.transform("first")  # uint32 wraps
    columns = packets[["flow_id", "direction", "wire_bytes", "tcp_flags", "ecn"]].assign(
        ts_ns=packets.ts_ns - packets.ts_ns.iloc[0], seq=seq
    )
    return columns.to_numpy("int64").tobytes()


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """Entries by name; empty without a manifest."""
    path = folder / "MANIFEST.toml"
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["capture"] if path.exists() else []
    return {entry["name"]: entry for entry in entries}


def write_manifest(folder: Path, entries: Iterable[dict[str, Any]]) -> None:
    """Write the manifest, sorted by name."""
    lines = ["# Captures and how each was made; written by make_traces.py"]
    for entry in sorted(entries, key=lambda e: str(e["name"])):
        lines += ["", "[[capture]]", *_lines(entry)]
        for file in entry["file"]:
            lines += ["", "[[capture.file]]", *_lines(file)]
    with replacing(folder / "MANIFEST.toml") as tmp:
        tmp.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _lines(table: dict[str, Any]) -> list[str]:
    return [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in table.items() if k != "file"]


def _change(before: dict[str, Any] | None, now: dict[str, Any]) -> str:
    sizes = ", ".join(f"{f['bytes'] // 1000} kB" for f in now["file"])
    same = before is not None and [f["pcap_sha256"] for f in before["file"]] == [
        f["pcap_sha256"] for f in now["file"]
    ]
    return f"{sizes}, {'same packets as before' if same else 'new packets'}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="captures to make; default: all")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="DIR", help="default: traces/testbed")
    parser.add_argument("--any-kernel", action="store_true", help="make all captures with the newest kernel")
    args = parser.parse_args(argv)
    known = sorted(p.name.removesuffix(".scenario.toml") for p in FOLDER.glob("*.scenario.toml"))
    try:
        unknown = sorted(set(args.names) - set(known))
        if unknown:
            raise ParameterError(f"no scenario {unknown[0]!r}; must be one of {', '.join(known)}")
        available = kernels()
        by_version = {k.version: k for k in reversed(available)}
        entries = read_manifest(FOLDER)
        made = read_manifest(args.into)
        args.into.mkdir(parents=True, exist_ok=True)
        missing = 0
        for name in args.names or known:
            wanted = None if args.any_kernel or name not in entries else entries[name]["kernel"]
            kernel = available[0] if wanted is None else by_version.get(wanted)
            try:
                if kernel is None:
                    raise TestbedUnavailableError(f"needs Linux {wanted}")
                made[name] = make(name, kernel, FOLDER, args.into)
            except TestbedUnavailableError as err:
                print(f"{name}: skipped: {err}", file=sys.stderr)
                missing += 1
                continue
            write_manifest(args.into, made.values())
            print(f"{name}: {_change(entries.get(name), made[name])}")
        return 1 if missing else 0
    except (CCToolkitError, OSError) as err:
        print(f"make_traces.py: {err}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
