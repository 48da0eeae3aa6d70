#!/usr/bin/env python3
"""Run an experiment with a P4 program in one command: program, control plane, traffic, captures of both sides.

    python -m hardware.launch.switch codel hardware/launch/p4-codel/bmv2.toml -o DIR

This compiles the program for BMv2, puts the switch in place of the bottleneck between the network namespaces
of a testbed, fills its tables, shapes it as the scenario's bottleneck, runs the scenario's flows with this
machine's TCP, and writes a directory that ``cct.load_run`` opens. ``DIR/switch`` has what the control plane
read from the switch.

    python -m hardware.launch.switch codel SCENARIO.toml -o DIR \\
        --bfrt SWITCH:50052 --hosts HOSTS.toml --ports 132,140

This does the same with a Tofino that runs the program, between physical hosts (``physical.py``;
``hosts.example.toml`` without its bottleneck). Senders come in at the first of the two ports.

``--beside-simulator`` also simulates the scenario and prints both results.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import cctoolkit as cct
from cctoolkit._support import parquet
from cctoolkit.errors import CCToolkitError, ParameterError
from cctoolkit.scenario.run import replacing_directory
from cctoolkit.testbed import run_testbed

from .. import build
from ..common.experiment import Experiment
from ..common.switch import Switch
from ..common.wires import PORTS, pipe_of
from . import physical, simple_switch

__all__ = ["between_namespaces", "experiment", "main"]


def experiment(program: str, scenario: cct.Scenario, ports: tuple[int, int]) -> Experiment:
    """A program's experiment for a scenario.

    Raises
    ------
    ParameterError
        The scenario does not have the program's AQM, gives it parameters that the program has as constants, or
        asks for what the launcher does not do.
    """
    if scenario.bottleneck.rate_schedule:
        raise ParameterError("bottleneck.rate_schedule: a switch keeps its port's rate during a run")
    module = importlib.import_module(f"hardware.programs.{program}.experiment")
    made: Experiment = module.experiment(scenario, *ports)
    return made


def between_namespaces(
    program: str,
    scenario: cct.Scenario,
    directory: Path,
    *,
    flags: Sequence[str] = (),
    more_set_up: Callable[[Switch], object] | None = None,
    progress: bool = False,
) -> cct.Run:
    """Run a scenario through a program on BMv2.

    Parameters
    ----------
    program : str
    scenario : Scenario
    directory : Path
        Written: the run, and in ``switch/`` what the control plane read.
    flags : sequence of str
        More compiler options.
    more_set_up : function of the switch, optional
        Called when the program is set up.
    progress : bool
        Show how far the run is.

    Raises
    ------
    TestbedUnavailableError
        A tool is missing, or the user is not root.
    """
    plan = experiment(program, scenario, (0, 1))

    @contextlib.contextmanager
    def switch(namespace: str) -> Iterator[dict[str, Any]]:
        cpus = sorted(os.sched_getaffinity(0))
        # keep the switch off the last CPU, which the hosts' processes use
        cpu = cpus[0] if len(cpus) > 1 else None
        with (
            simple_switch.running(json, namespace=namespace, queues=plan.queues, cpu=cpu) as started,
            plan.running(started.control),
        ):
            if more_set_up is not None:
                more_set_up(started.control)
            yield {"switch": "BMv2", "program": program}

    with tempfile.TemporaryDirectory() as folder:
        json = build.bmv2(program, Path(folder), *flags)
        run = run_testbed(scenario, directory, backend="netns", switch=switch, progress=progress)
    _write(plan.tables, directory)
    return run


def between_hosts(
    program: str, scenario: cct.Scenario, directory: Path, hosts_file: Path, bfrt: str, ports: tuple[int, int]
) -> cct.Run:
    """Run a scenario through a Tofino between physical hosts."""
    from ..common.command import SwitchArgs, connect

    hosts = physical.read_hosts(hosts_file)
    if hosts.bottleneck is not None:
        raise ParameterError(
            f"{hosts_file}: bottleneck: remove this table, because the switch is the bottleneck"
        )
    plan = experiment(program, scenario, ports)
    with (
        connect(SwitchArgs(program, bfrt=bfrt)) as control,
        replacing_directory(directory) as folder,
    ):
        raw = folder.with_name(f"{folder.name}.raw")
        raw.mkdir()
        with plan.running(control):
            physical.run(scenario, hosts, raw)
        physical.collect(scenario, hosts, raw, folder)
    _write(plan.tables, directory)
    return cct.load_run(directory)


def _write(tables: dict[str, pd.DataFrame], directory: Path) -> None:
    if tables:
        (directory / "switch").mkdir(exist_ok=True)
    for name, table in tables.items():
        parquet.write(
            table,
            directory / "switch" / f"{name}.parquet",
            {"made_by": f"cctoolkit {cct.__version__} switch"},
        )


def summary(run: cct.Run, name: str) -> pd.DataFrame:
    """One row per flow: goodput, loss and mean queueing delay."""
    delays = cct.queue_delay(run.ingress, run.egress)
    delays = delays[(delays.direction == 0) & delays.delay_ns.notna()]
    table = run.flows[["flow_id", "name", "goodput_mbps"]].copy()
    sent = run.flows.sent_packets.clip(lower=1) if "sent_packets" in run.flows else float("nan")
    table["loss_percent"] = 100 * run.flows.dropped_packets / sent
    table["mean_delay_ms"] = table.flow_id.map(delays.groupby("flow_id").delay_ns.mean().astype(float) / 1e6)
    table.insert(0, "made_by", name)
    return table


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hardware.launch.switch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", choices=build.PROGRAMS, help="P4 program")
    parser.add_argument("scenario", type=Path, help="scenario file with the program's AQM")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="directory to write")
    parser.add_argument(
        "--beside-simulator", action="store_true", help="also simulate the scenario, and print both results"
    )
    parser.add_argument(
        "--bfrt", metavar="HOST:PORT", help="use a Tofino instead of BMv2, through its Barefoot Runtime"
    )
    parser.add_argument(
        "--hosts", type=Path, metavar="HOSTS.toml", help="with --bfrt: the sending and receiving hosts"
    )
    parser.add_argument(
        "--ports", default="0,1", metavar="IN,OUT", help="with --bfrt: device ports of the switch"
    )
    args = parser.parse_args(argv)
    if (args.bfrt is None) != (args.hosts is None):
        parser.error("--bfrt and --hosts must be used together")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        scenario = physical.read_one(args.scenario)
        if args.bfrt is None:
            run = between_namespaces(args.program, scenario, args.output, progress=sys.stderr.isatty())
        else:
            run = between_hosts(
                args.program, scenario, args.output, args.hosts, args.bfrt, _ports(args.ports)
            )
        tables = [summary(run, "switch")]
        if args.beside_simulator:
            tables.append(summary(cct.simulate(scenario), "simulator"))
        print(pd.concat(tables).to_string(index=False, float_format=lambda x: f"{x:.3f}"))
        print(args.output)
    except (CCToolkitError, OSError) as err:
        print(f"switch: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("switch: interrupted", file=sys.stderr)
        return 130
    return 0


def _ports(text: str) -> tuple[int, int]:
    try:
        first, second = map(int, text.split(","))
    except ValueError:
        raise ParameterError(f"--ports: {text!r} must be IN,OUT, two numbers") from None
    if not (0 <= first < PORTS and 0 <= second < PORTS) or first == second:
        raise ParameterError(f"--ports: {text!r} must be two different ports from 0 to {PORTS - 1}")
    if pipe_of(first) != pipe_of(second):
        raise ParameterError(
            f"--ports: {first} and {second} are in different pipes, each with registers of its own: "
            "use ports of one pipe"
        )
    return first, second


if __name__ == "__main__":
    sys.exit(main())
