#!/usr/bin/env python3
"""One experiment with a P4 program: program, control plane, traffic and captures of both sides in one command.

    python -m hardware.launch.switch codel hardware/launch/p4-codel/bmv2.toml -o DIR

It compiles the program for BMv2, puts the switch between the network namespaces of a testbed in the bottleneck's place,
fills its tables and shapes it as the scenario's bottleneck says, runs the scenario's flows with this machine's TCP, and
leaves a directory that ``cct.load_run`` opens. What the control plane read from the switch lies in ``DIR/switch``.

    python -m hardware.launch.switch codel SCENARIO.toml -o DIR --bfrt SWITCH:50052 --hosts HOSTS.toml --ports 132,140

does the same with a Tofino that runs the program, between physical hosts (``physical.py``, ``hosts.example.toml``
without its bottleneck): of the two ports, the first is where senders come in.

``--beside-simulator`` simulates the same scenario and prints both.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

import cctoolkit as cct
from cctoolkit._support import parquet
from cctoolkit.errors import CCToolkitError, ParameterError
from cctoolkit.scenario.run import replacing_directory
from cctoolkit.testbed import run_testbed

from .. import build
from ..control.switch import Switch, SwitchError
from . import simple_switch

__all__ = ["Experiment", "between_namespaces", "main"]

log = logging.getLogger("hardware.launch.switch")


@dataclass
class Experiment:
    """What a program needs to be told, and what it has to tell: made by its module in ``hardware/launch/programs.py``.

    Attributes
    ----------
    set_up : function of the switch
        Fills tables, shapes ports.
    step : function of the switch, optional
        Called every `period_s` during the run.
    read_out : function of the switch, optional
        Tables by name, at the end.
    queues : int
        Priority queues the program needs at a port (BMv2).
    """

    set_up: Callable[[Switch], object]
    step: Callable[[Switch], object] | None = None
    period_s: float = 1.0
    read_out: Callable[[Switch], dict[str, pd.DataFrame]] | None = None
    queues: int = 1
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, switch: Switch) -> Iterator[None]:
        """Set up; step until the block ends; read out."""
        self.set_up(switch)
        stop, trouble = threading.Event(), []

        def loop() -> None:
            assert self.step is not None
            try:
                while not stop.wait(self.period_s):
                    self.step(switch)
            except SwitchError as err:
                trouble.append(err)

        thread = threading.Thread(target=loop, daemon=True)
        if self.step is not None:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if self.step is not None:
                thread.join(timeout=30)
        if trouble:
            raise trouble[0]
        if self.read_out is not None:
            self.tables = self.read_out(switch)


def experiment(program: str, scenario: cct.Scenario, ports: tuple[int, int]) -> Experiment:
    """What a program needs for a scenario.

    Raises
    ------
    ParameterError
        The scenario's AQM is not the program's.
    """
    from . import programs

    return getattr(programs, program)(scenario, *ports)


def between_namespaces(
    program: str, scenario: cct.Scenario, directory: Path, *, progress: bool = False
) -> cct.Run:
    """Run a scenario through a program on BMv2.

    Raises
    ------
    TestbedUnavailableError
        A tool is missing, or this is not root.
    """
    plan = experiment(program, scenario, (0, 1))

    @contextlib.contextmanager
    def switch(namespace: str) -> Iterator[dict[str, Any]]:
        cpus = sorted(os.sched_getaffinity(0))
        # the hosts' processes have the last CPU to themselves
        cpu = cpus[0] if len(cpus) > 1 else None
        with (
            simple_switch.running(json, namespace=namespace, queues=plan.queues, cpu=cpu) as started,
            plan.running(started.control),
        ):
            yield {"switch": "BMv2", "program": program}

    with tempfile.TemporaryDirectory() as folder:
        json = build.bmv2(program, Path(folder))
        run = run_testbed(scenario, directory, backend="netns", switch=switch, progress=progress)
    _write(plan.tables, directory)
    return run


def between_hosts(
    program: str, scenario: cct.Scenario, directory: Path, hosts_file: Path, bfrt: str, ports: tuple[int, int]
) -> cct.Run:
    """Run a scenario through a Tofino between physical hosts."""
    from ..control.command import SwitchArgs, switch_from
    from . import physical

    hosts = physical.read_hosts(hosts_file)
    if hosts.bottleneck is not None:
        raise ParameterError(f"{hosts_file}: bottleneck: is the switch, leave this table out")
    plan = experiment(program, scenario, ports)
    with (
        switch_from(SwitchArgs(program, bfrt=bfrt)) as control,
        replacing_directory(directory) as folder,
    ):
        raw = folder.with_name("raw")
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
    """One row a flow: what it got, what it lost; and the queue's delay."""
    delays = cct.queue_delay(run.ingress, run.egress)
    delays = delays[(delays.direction == 0) & delays.delay_ns.notna()]
    table = run.flows[["flow_id", "name", "goodput_mbps"]].copy()
    sent = run.flows.sent_packets.clip(lower=1) if "sent_packets" in run.flows else float("nan")
    table["loss_percent"] = 100 * run.flows.dropped_packets / sent
    table["mean_delay_ms"] = table.flow_id.map(delays.groupby("flow_id").delay_ns.mean().astype(float) / 1e6)
    table.insert(0, "made_by", name)
    return table


def main(argv: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hardware.launch.switch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", choices=build.PROGRAMS)
    parser.add_argument("scenario", type=Path)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True)
    parser.add_argument("--beside-simulator", action="store_true", help="simulate it too, and print both")
    parser.add_argument("--bfrt", metavar="HOST:PORT", help="a Tofino's Barefoot Runtime, instead of BMv2")
    parser.add_argument(
        "--hosts", type=Path, metavar="HOSTS.toml", help="with --bfrt: who sends and receives"
    )
    parser.add_argument(
        "--ports", default="0,1", metavar="IN,OUT", help="with --bfrt: the switch's ports (device ports)"
    )
    args = parser.parse_args(argv)
    if (args.bfrt is None) != (args.hosts is None):
        parser.error("--bfrt and --hosts go together")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        scenario = cct.read_scenario(args.scenario)
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
        print("switch: stopped", file=sys.stderr)
        return 130
    return 0


def _ports(text: str) -> tuple[int, int]:
    try:
        first, second = map(int, text.split(","))
    except ValueError:
        raise ParameterError(f"--ports: {text!r} is not IN,OUT, two numbers") from None
    return first, second


if __name__ == "__main__":
    sys.exit(main())
