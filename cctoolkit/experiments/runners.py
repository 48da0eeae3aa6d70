"""Running cases: in this process or several, in the simulator or on real Linux, new or kept."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .._support.pool import results

if TYPE_CHECKING:
    import pandas as pd

    from ..scenario import Scenario
    from ..scenario.run import Run

__all__ = ["Case", "Row", "Runnable", "for_simulator", "kept", "kernel_run", "outcomes", "run_case"]


class Runnable(Protocol):
    """What can be run: anything with a method ``run``."""

    def run(self) -> Any:
        """Run it, and return what is to be measured."""


@dataclass(frozen=True)
class Case:
    """A scenario to run once.

    Parameters
    ----------
    about : mapping
        Columns that identify the case.
    scenario : Scenario
    record : bool
        Record both taps (the simulator; real Linux always does).
    sample_s : float, optional
        Interval of the series (the simulator).
    kernel : Path, optional
        Run on real Linux, and keep the run in this folder.
    ack_limit : int, optional
        As for :func:`cctoolkit.run_testbed`, on real Linux.
    """

    about: Mapping[str, Any]
    scenario: Scenario
    record: bool = False
    sample_s: float | None = 1.0
    kernel: Path | None = None
    ack_limit: int | None = None

    def run(self) -> Run:
        """Simulate the scenario, or run it on real Linux.

        Raises
        ------
        TestbedUnavailableError
            With `kernel`: this machine has no kernel to run.
        """
        if self.kernel is not None:
            return kernel_run(self.scenario, self.kernel, ack_limit=self.ack_limit)
        from ..sim.simulation import simulate

        return simulate(self.scenario, record=self.record, sample_s=self.sample_s)


@dataclass(frozen=True)
class Row:
    """A measure that makes one row per run: the case's columns, and the values of a function.

    Parameters
    ----------
    measured : function of Run
        Returns a mapping of column names to values.
    """

    measured: Callable[[Run], Mapping[str, Any]]

    def __call__(self, case: Case, run: Run) -> dict[str, Any]:
        return dict(case.about) | dict(self.measured(run))


def outcomes(
    cases: Sequence[Any],
    measure: Callable[[Any, Any], Any] | None = None,
    *,
    workers: int | None = None,
    progress: bool | None = None,
) -> list[Any]:
    """Run cases, several at a time.

    Parameters
    ----------
    cases : sequence of Runnable
    measure : function of (case, run), optional
        What to keep of a run; called in the process that ran it. By default, everything that ``run`` returns.
    workers : int, optional
        Processes; all cores by default. With 1, everything runs in this process.
    progress : bool, optional
        Show a bar; by default on a terminal.

    Returns
    -------
    list
        One outcome per case, in the cases' order.
    """
    progress = sys.stderr.isatty() if progress is None else progress
    return results(run_case, [(case, measure) for case in cases], workers, progress=progress)


def run_case(case: Runnable, measure: Callable[[Any, Any], Any] | None = None) -> Any:
    """Run one case and measure it."""
    made = case.run()
    return made if measure is None else measure(case, made)


def kept(
    cases: Iterable[Case],
    measure: Row,
    path: Path,
    *,
    workers: int | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Simulate cases into a Parquet file; cases that the file already has are not run again.

    Parameters
    ----------
    cases : iterable of Case
    measure : Row
    path : Path
        See :func:`cctoolkit.run_sweep`.
    workers : int, optional
        Processes; all cores by default.
    progress : bool, optional
        Show a bar; by default on a terminal.

    Returns
    -------
    DataFrame
        One row per case.
    """
    from ..sim.sweep import run_sweep

    jobs = [(case.about, case.scenario) for case in cases]
    progress = sys.stderr.isatty() if progress is None else progress
    return run_sweep(jobs, path, measure=measure.measured, workers=workers, progress=progress)


def kernel_run(
    scenario: Scenario,
    folder: Path,
    name: str = "run",
    kernel_id: str | None = None,
    ack_limit: int | None = None,
) -> Run:
    """Run a scenario on real Linux in virtual time, or open the run that an earlier call left.

    Parameters
    ----------
    scenario : Scenario
    folder : Path
        Runs are kept here, in directories named after `name` and everything the run depends on.
    name : str
    kernel_id : str, optional
        Identifies the kernel; by default the hash of the one that :func:`cctoolkit.testbed.kernel.find_kernel` finds.
    ack_limit : int, optional
        As for :func:`cctoolkit.run_testbed`.

    Raises
    ------
    TestbedUnavailableError
        There is no kernel, or it lacks something the scenario needs.
    """
    from ..scenario.run import load_run
    from ..testbed import run_testbed
    from ..testbed.kernel import find_kernel
    from ..testbed.testbed import planned

    kernel_id = kernel_id or find_kernel().sha256
    plan = planned(scenario, "uml", ack_limit=ack_limit)
    digest = hashlib.sha256(f"{plan!r} {kernel_id}".encode()).hexdigest()[:12]
    directory = folder / f"{name}-{digest}"
    return (
        load_run(directory) if directory.is_dir() else run_testbed(scenario, directory, ack_limit=ack_limit)
    )


def for_simulator(scenario: Scenario) -> Scenario:
    """The scenario in a form for the simulator that is comparable with real Linux.

    Linux's shaper holds packets back, but those it lets pass take no time to be sent; the simulator's link then does
    the same. Queue disciplines become Linux's own variants where the simulator has them, and congestion controls get
    Linux's parameters.
    """
    from ..aqm import Aqm

    bottleneck = scenario.bottleneck
    changes: dict[str, Any] = {"bottleneck.link": "shaper"}
    variant = Aqm.registry.get(f"{bottleneck.aqm.name}_linux")
    if variant is not None:
        known = variant().parameters()
        given = {name: value for name, value in bottleneck.aqm.parameters().items() if name in known}
        changes["bottleneck.aqm"] = variant(**given)
    for i, flow in enumerate(scenario.flows):
        given = {} if flow.is_udp else flow.cca.in_linux
        changes |= {f"flows.{i}.cca.{name}": value for name, value in given.items()}
    return scenario.replace(changes)
