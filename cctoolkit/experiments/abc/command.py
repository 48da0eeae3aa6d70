"""``cct experiment abc``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..._support.options import WorkersOption
from ...errors import ParameterError
from ..folder import Folder
from ..options import OutputOption
from .scenarios import DELAY, LINUX, SHARINGS, TITLES, WHY, Settings

__all__ = ["run"]


def run(
    output: OutputOption = Path("abc"),
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Run only this part (repeatable): {', '.join((*SHARINGS, WHY, DELAY, LINUX))}."),
    ] = None,
    full: Annotated[bool, typer.Option(help="Run for 300 s, as in the paper, instead of 30 s.")] = False,
    runs: Annotated[int, typer.Option(help="Runs of each data point; the paper has 10.", min=1)] = 10,
    duration: Annotated[
        float | None, typer.Option(help="Duration of each run in seconds; overrides --full.", min=2.0)
    ] = None,
    testbed: Annotated[
        bool,
        typer.Option(
            help="Add real Linux; needs a kernel with `sch_abc` (`cct testbed build --with hardware/linux/aqm`)."
        ),
    ] = False,
    workers: WorkersOption = None,
) -> Path:
    """Run the ABC paper's sharing experiments; write tables, figures and a summary.

    Runs of the same duration that an earlier call left in the folder are not run again.

    Parameters
    ----------
    output : Path
        Folder.
    only : list of str, optional
        Some of :data:`~.scenarios.SHARINGS`, ``"why"``, ``"delay"`` or ``"linux"``; all by default, the last only with
        `testbed`.
    full : bool
        Runs of 300 s.
    runs : int
        Runs of each data point.
    duration : float, optional
        Duration of each run in seconds.
    testbed : bool
        Real Linux, compared with the simulator. Its runs stay in ``kernel/`` and are not run again.
    workers : int, optional
        Processes; all cores by default.

    Returns
    -------
    Path
        The folder: ``runs.parquet``, ``why_runs.parquet`` and ``delay_runs.parquet`` (every run), ``clients.parquet``,
        ``why_clients.parquet`` and ``delay.parquet`` (means and confidence intervals), ``integers.parquet``,
        ``why.parquet``, ``statements.parquet``, figures, ``summary.md``.

    Raises
    ------
    ParameterError
        An option is out of range or unknown, or ``"linux"`` without `testbed`.
    TestbedUnavailableError
        With `testbed`: there is no kernel, or it has no ``sch_abc``.
    """
    from ...testbed.kernel import check_modules, find_kernel
    from ..part import choose, write
    from ..runners import kept

    chosen = choose(only, (*SHARINGS, WHY, DELAY, LINUX), "only")
    if testbed:
        check_modules(find_kernel(), {"abc": "hardware/linux/aqm"})
    elif only and LINUX in only:
        raise ParameterError("only: linux needs --testbed")
    seconds = duration if duration is not None else 300.0 if full else 30.0
    folder = Folder(output, "abc", {"only": chosen, "duration_s": seconds, "runs": runs, "testbed": testbed})
    shared = [name for name in SHARINGS if name in chosen]
    settings = Settings(shared, seconds, runs)

    from .page import about
    from .parts import PARTS

    files = {"sharing": "runs", WHY: "why_runs", DELAY: "delay_runs"}
    found = {
        name: PARTS[name].run(
            settings, workers=workers, run_cases=partial(kept, path=folder.path / f"{files[name]}.parquet")
        )
        for name in files
        if (settings.sharings if name == "sharing" else name in chosen)
    }
    if testbed and LINUX in chosen:
        everywhere = Settings(shared or tuple(SHARINGS), seconds, runs, folder.path / "kernel")
        found[LINUX] = PARTS[LINUX].run(everywhere, workers=workers)
    write(folder, "Sharing a link by activity (P4-ABC)", found, TITLES, about())
    return folder.path
