#!/usr/bin/env python3
"""Figure 6 of the ABC paper on BMv2: a flood beside a connection, and where their packets are lost.

    python -m hardware.launch.abc_flood -o DIR

The paper (section 6.1.3) says of its switch that it "cannot read input traffic fast enough and drops packets at the
ingress". This machine's may be faster, so each experiment is repeated with a table of entries that match nothing: BMv2
compares each packet with all of them, and so reads fewer packets per second. Its waiting packets, up to 1024 and what
the kernel's buffer holds, are those of a real switch.

Needs root, p4c and BMv2, and two idle CPUs: it runs in real time. Runs that an earlier call left in the folder are not
repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import cctoolkit as cct
from cctoolkit._support import parquet
from cctoolkit.errors import CCToolkitError
from cctoolkit.experiments import abc
from cctoolkit.experiments.abc.switch import through_switch

from ..common.switch import Switch, Ternary
from .switch import between_namespaces

__all__ = ["EXPERIMENTS", "LOADS", "beside_simulator", "load", "losses", "main"]

#: What is run with each load: name, sharing, client 0's rate in Mbit/s or connections, and the longest duration in s.
EXPERIMENTS = {
    "flood": ("cbr-tcp", 100.0, math.inf),
    "alone": ("cbr-tcp", 0.0, 60.0),
    "ten": ("tcp", 10.0, 60.0),
}
#: Entries that match nothing.
LOADS = (0, 4000, 5000, 6000)
#: All runs so far: those of an earlier call are not repeated.
_RUNS = "runs.parquet"
#: Connections start within the first second.
_SHORTEST_S = 2


def scenario(experiment: str, duration_s: float, seed: int) -> cct.Scenario:
    """One of :data:`EXPERIMENTS` with the paper's parameters; `alone` is figure 6 without the flood."""
    sharing, value, longest_s = EXPERIMENTS[experiment]
    made = abc.scenario(sharing, value or 1, duration_s=min(duration_s, longest_s), seed=seed)
    if value:
        return made
    return dataclasses.replace(made, flows=tuple(flow for flow in made.flows if not flow.is_udp))


def load(entries: int) -> Callable[[Switch], None]:
    """A function that gives a switch so many entries that match nothing."""

    def fill(switch: Switch) -> None:
        for number in range(entries):  # no host has such a source address
            switch.add_entry("reading_load", {"source": Ternary(number, 2**48 - 1)}, "NoAction", priority=1)

    return fill


def losses(run: cct.Run, aggregates: pd.DataFrame) -> dict[str, int]:
    """Where each client's data packets were lost.

    Parameters
    ----------
    run : Run
    aggregates : DataFrame
        From :func:`hardware.programs.abc.control.aggregate_table`.

    Returns
    -------
    dict
        For each client, with its number at the end of the names: packets ``sent``; ``unread``, lost before the switch's
        pipeline; ``dropped`` by ABC; ``overflowed``, accepted by ABC, but not received, mostly because the buffer was
        full.
    """
    assert run.scenario is not None
    clients = np.array([flow.aggregate for flow in run.scenario.flow_list()])
    found: dict[str, int] = {}
    for row, number in enumerate(np.unique(clients)):  # the table has a row for each client that sends
        flows = run.flows[clients == number]
        accepted, dropped = (int(aggregates[name].iloc[row]) for name in ("accepted", "dropped"))
        sent, received = int(flows.sent_packets.sum()), int(flows.received_packets.sum())
        found |= {
            f"sent_{number}": sent,
            f"unread_{number}": sent - accepted - dropped,
            f"dropped_{number}": dropped,
            f"overflowed_{number}": accepted - received,
        }
    return found


def measure(made: cct.Scenario, entries: int, folder: Path) -> dict[str, Any]:
    """Run a scenario on BMv2 with so many entries that match nothing.

    Returns
    -------
    dict
        Goodput of each client, mean RTT of the last connection, data packets read per second, and :func:`losses`.
    """
    flags = ("-DREADING_LOAD",) if entries else ()
    fill = load(entries) if entries else None
    run = between_namespaces("abc", made, folder, flags=flags, more_set_up=fill)
    aggregates = pd.read_parquet(folder / "switch" / "aggregates.parquet")
    goodputs = abc.clients(run)
    return {
        "client_0_mbps": goodputs["client_0_mbps"],
        "client_1_mbps": goodputs["client_1_mbps"],
        "rtt_ms": float(run.flows.mean_rtt_ms.iloc[-1]),
        "read_packets_per_s": float((aggregates.accepted + aggregates.dropped).sum() / made.duration_s),
        **losses(run, aggregates),
    }


def simulated(row: Mapping[Any, Any], read_packets_per_s: float) -> dict[str, float]:
    """Goodputs of the same in the simulator, whose switch reads so many packets per second."""
    made = scenario(row["what"], row["duration_s"], row["seed"])
    found = abc.clients(cct.simulate(through_switch(made, read_packets_per_s=read_packets_per_s)))
    return {f"simulated_{name}": found[name] for name in ("client_0_mbps", "client_1_mbps")}


def beside_simulator(rows: pd.DataFrame) -> pd.DataFrame:
    """Add what the simulator gives if its switch reads as fast as BMv2 did with the flood and as many entries."""
    reads = rows[rows.what == "flood"].groupby("entries").read_packets_per_s.mean()
    goodputs = [simulated(row, reads[row["entries"]]) for row in rows.to_dict("records")]
    return pd.concat([rows, pd.DataFrame(goodputs, index=rows.index)], axis=1)


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hardware.launch.abc_flood",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="directory to write")
    parser.add_argument(
        "--duration",
        type=float,
        default=300.0,
        metavar="S",
        help="of runs with the flood; of others at most 60",
    )
    parser.add_argument("--runs", type=int, default=1, help="runs of each data point")
    parser.add_argument(
        "--loads", type=int, nargs="+", default=LOADS, metavar="N", help="entries that match nothing"
    )
    args = parser.parse_args(argv)
    if args.duration < _SHORTEST_S or args.runs < 1 or min(args.loads) < 0:
        parser.error(f"--duration must be at least {_SHORTEST_S}, --runs at least 1, --loads at least 0")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    about = {"made_by": f"cctoolkit {cct.__version__}"}
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        rows, wanted = _kept(args.output), []
        for entries, what, seed in itertools.product(args.loads, EXPERIMENTS, range(1, args.runs + 1)):
            made = scenario(what, args.duration, seed)
            point = {"what": what, "entries": entries, "seed": seed, "duration_s": made.duration_s}
            row = next((row for row in rows if point.items() <= row.items()), None)
            if row is None:
                with tempfile.TemporaryDirectory(prefix="cctoolkit-abc-") as work:
                    row = point | measure(made, entries, Path(work) / "run")
                print(pd.DataFrame([row]).round(1).to_string(index=False), flush=True)
                rows.append(row)
                parquet.write(pd.DataFrame(rows), args.output / _RUNS, about)
            wanted.append(row)
        parquet.write(beside_simulator(pd.DataFrame(wanted)), args.output / "bmv2.parquet", about)
    except (CCToolkitError, OSError) as err:
        print(f"abc_flood: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("abc_flood: interrupted", file=sys.stderr)
        return 130
    print(args.output)
    return 0


def _kept(folder: Path) -> list[dict[Any, Any]]:
    """The runs that an earlier call left in the folder."""
    kept = folder / _RUNS
    if not kept.is_file():
        return []
    # a run without client 0 has no counts of it
    return [row.dropna().to_dict() for _, row in pd.read_parquet(kept).astype(object).iterrows()]


if __name__ == "__main__":
    sys.exit(main())
