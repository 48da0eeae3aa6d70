"""``cct experiment sim-vs-kernel``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ..._support.options import WorkersOption
from ...errors import ParameterError
from ..folder import Folder
from ..options import OutputOption
from .scenarios import GRID, MODULES, TITLES, Case, Settings

__all__ = ["BUILT_WITH", "run"]

#: The congestion controls of :data:`~.scenarios.MODULES`, and the folder that a kernel is built with for each: one that
#: the user prepares (docs/kernel-code.md), and the project's.
BUILT_WITH = {"bbr3": "bbr3", "prague": "hardware/linux/prague"}


def run(
    output: OutputOption = Path("sim-vs-kernel"),
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only cases with this word in their names, such as bbr or tail_drop; repeat it to require "
            "several words."
        ),
    ] = None,
    modules: Annotated[
        bool,
        typer.Option(
            help="Also BBRv3 and Prague, in a kernel built with them. --only bbr3 and --only prague imply it."
        ),
    ] = False,
    seeds: Annotated[int, typer.Option(help="Runs of each case in the simulator.", min=1)] = 5,
    kernel_seeds: Annotated[int, typer.Option(help="Runs of each case on Linux.", min=1)] = 2,
    duration: Annotated[float, typer.Option(metavar="S", help="Duration of each run, s.", min=1)] = 35.0,
    warmup: Annotated[
        float, typer.Option(metavar="S", help="Time to leave out at the start of each run, s.", min=0)
    ] = 5.0,
    workers: WorkersOption = None,
) -> Path:
    """Run a grid of scenarios in the simulator and on real Linux, and write the errors.

    Parameters
    ----------
    output : Path
        Folder; Linux's runs stay in ``kernel/`` and are not run again.
    only : list of str, optional
        Only cases whose names have all of these words.
    modules : bool
        Also cases of the congestion controls in :data:`~.scenarios.MODULES`, which a kernel has if it was built with
        them; naming one in `only` implies it.
    seeds, kernel_seeds : int
        Runs of each case on each side; the error is between their means.
    duration, warmup : float
        Duration of each run in seconds, and how much of its beginning is not measured.
    workers : int, optional
        Processes; all cores by default.

    Returns
    -------
    Path
        The folder: ``errors.parquet`` (:func:`.tables.compare`), ``runs.parquet`` (every measurement), figures,
        ``summary.md``.

    Raises
    ------
    TestbedUnavailableError
        There is no kernel to run, it was not built with a congestion control that `modules` or `only` asks for, or it
        can run none of the cases. Other cases that it cannot run are left out, and the summary says so.
    ParameterError
        No case has these words in its name, or the warm-up leaves nothing to measure.
    """
    cases = [case for case in _cases(only, modules) if set(only or ()) <= set(re.split("[ +]", case.name))]
    if not cases:
        raise ParameterError(f"only: no case has {' and '.join(only or ())} in its name")
    if warmup >= duration:
        raise ParameterError(f"warmup: {warmup:g} s leave nothing of {duration:g} s")

    from ...testbed.kernel import check_modules, find_kernel
    from ..part import write
    from .parts import PARTS

    kernel = find_kernel()
    wanted = {cca for case in cases for cca, _ in case.flows}
    check_modules(kernel, {cca: folder for cca, folder in BUILT_WITH.items() if cca in wanted})
    options = {"only": only, "modules": modules, "seeds": seeds, "kernel_seeds": kernel_seeds, "duration": duration,
               "warmup": warmup, "kernel": f"Linux {kernel.version}"}  # fmt: skip
    folder = Folder(output, "sim-vs-kernel", {k: v for k, v in options.items() if v})
    settings = Settings(cases, seeds, kernel_seeds, duration, warmup, folder.path / "kernel", kernel.sha256)
    found = {"grid": PARTS["grid"].run(settings, workers=workers)}
    write(folder, "The simulator compared with real Linux", found, TITLES)
    return folder.path


def _cases(only: list[str] | None, modules: bool) -> list[Case]:
    """All cases to choose from."""
    added = [grid for cca, grid in MODULES.items() if modules or cca in (only or ())]
    return [case for grid in (GRID, *added) for case in grid.cases()]
