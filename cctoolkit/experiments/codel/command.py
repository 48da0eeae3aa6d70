"""``cct experiment codel``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..._support.options import WorkersOption
from ..folder import Folder
from ..options import ModulesOption, OutputOption, TestbedOption
from .scenarios import TITLES, Settings

__all__ = ["run"]


def run(
    output: OutputOption = Path("codel"),
    *,
    part: Annotated[
        list[str] | None, typer.Option(help=f"Run only this part (repeatable): {', '.join(TITLES)}.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each point [default: 20, with --full 50].", min=2)
    ] = None,
    full: Annotated[
        bool, typer.Option(help="More seeds, longer runs, every Mbit/s of the UDP scan.")
    ] = False,
    testbed: TestbedOption = False,
    modules: ModulesOption = True,
    workers: WorkersOption = None,
) -> Path:
    """Run the P4-CoDel paper's measurements and variants of its targets; write tables, figures and a summary.

    Parameters
    ----------
    output : Path
        Folder; runs of real Linux stay in ``kernel/`` and are not run again.
    part : list of str, optional
        Some of :data:`~.scenarios.TITLES`; all by default.
    seeds : int, optional
        Runs of each point.
    full : bool
        The longer form (:class:`~.scenarios.Settings`).
    testbed : bool
        Real Linux's CoDel and the project's ``sch_codel_pisa`` as further targets, and Linux's fq_codel.
    modules : bool
        With `testbed`: the kernel must have ``sch_codel_pisa`` for Table I. If False, a kernel without it runs its own
        CoDel alone.
    workers : int, optional
        Processes; all cores by default.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ParameterError
        There is no such part.
    TestbedUnavailableError
        With `testbed`: this machine has no kernel to run, or it lacks a module (see `modules`).
    """
    from ..part import choose, write

    chosen = choose(part, TITLES, "part")
    seeds = seeds or (50 if full else 20)
    options: dict[str, Any] = {"part": ", ".join(part) if part else "all", "seeds": seeds, "full": full}
    kernel = None
    if testbed:
        from ...testbed.kernel import check_modules, find_kernel

        found_kernel = find_kernel()
        if modules and "table-1" in chosen:
            check_modules(found_kernel, {"codel_pisa": "hardware/linux/aqm"})
        kernel = options["testbed"] = f"Linux {found_kernel.version}"
    folder = Folder(output, "codel", options)
    settings = Settings(seeds, full, folder.path / "kernel" if testbed else None)

    from .page import about
    from .parts import PARTS

    found = {name: PARTS[name].run(settings, workers=workers) for name in chosen}
    write(folder, "P4-CoDel: CoDel on three targets", found, TITLES, about(kernel))
    return folder.path
