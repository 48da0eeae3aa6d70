"""``cct experiment l4s``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..._support.options import WorkersOption
from ..folder import Folder
from ..options import ModulesOption, OutputOption, TestbedOption
from .scenarios import CONFIGURATIONS, ON_LINUX, TITLES

__all__ = ["run"]


def run(
    output: OutputOption = Path("l4s"),
    *,
    full: Annotated[
        bool,
        typer.Option(help="Phases of 120 s, as in the paper, instead of 30 s."),
    ] = False,
    configuration: Annotated[
        list[str] | None, typer.Option(help="I, II, III or IV (repeatable) [default: all].")
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option(help=f"Run only this part (repeatable): {', '.join(TITLES)}.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each case, with different start times.", min=1)] = 3,
    testbed: TestbedOption = False,
    modules: ModulesOption = True,
    workers: WorkersOption = None,
) -> Path:
    """Run iRED, PI2 and DualPI2 under the L4S paper's load; write tables, figures and a summary.

    Parameters
    ----------
    output : Path
        Folder.
    full : bool
        The paper's durations.
    configuration : list of str, optional
        Some of :data:`~.scenarios.CONFIGURATIONS`; all by default.
    part : list of str, optional
        Some of :data:`~.scenarios.TITLES`; all by default, ``kernel`` and ``netem`` only with `testbed`.
    seeds : int
        Runs of each case.
    testbed : bool
        Real Linux, compared with the simulator (:mod:`.kernel`); needs a kernel for the testbed's ``uml`` backend.
        Its runs stay in ``kernel/`` and are not run again.
    modules : bool
        With `testbed`: the kernel must have the project's iRED, PI2 and Prague. If False, a kernel without them runs
        DualPI2 alone, with DCTCP in Prague's place, and there is no ``netem``.
    workers : int, optional
        Processes; all cores by default.

    Returns
    -------
    Path
        The folder: ``goodput``, ``phases``, ``table3``, ``drop-delay``, ``logs``, ``causes``, ``identification``,
        ``uneven``, ``statements`` (and ``kernel``, ``netem``) as Parquet, figures, ``summary.md``.

    Raises
    ------
    ParameterError
        There is no such configuration or part, or ``kernel`` or ``netem`` without `testbed`.
    TestbedUnavailableError
        With `testbed`: there is no kernel that has DualPI2, or it lacks modules (see `modules`).
    """
    from ...errors import ParameterError
    from ..part import choose, write
    from .cases import Settings
    from .kernel import kernel_needed, modules_needed
    from .page import about
    from .parts import PARTS

    chosen = tuple(dict.fromkeys(configuration or CONFIGURATIONS))
    causes = tuple(c for c in chosen if c in ("I", "II")) or chosen
    parts = choose(part, TITLES, "part")
    lacking = {} if testbed else dict.fromkeys(ON_LINUX, "--testbed")
    if testbed:
        kernel = kernel_needed()
        if not modules:
            lacking = {"netem": "modules"}
        elif set(ON_LINUX) & set(parts):
            modules_needed(kernel)
    for name, what in lacking.items():
        if part and name in part:
            raise ParameterError(f"part: {name} needs {what}")
    parts = [name for name in parts if name not in lacking]
    kept = Path(output) / "kernel" if testbed else None
    settings = Settings(chosen, 120.0 if full else 30.0, seeds, causes, kept)
    folder = Folder(
        output,
        "l4s",
        {
            "full": full,
            "configuration": list(chosen),
            "part": ", ".join(part) if part else "all",
            "seeds": seeds,
        }
        | {"testbed": testbed},
    )
    found = {name: PARTS[name].run(settings, workers=workers) for name in parts}
    write(folder, "iRED, PI2 and DualPI2 for L4S", found, TITLES, about(settings))
    return folder.path
