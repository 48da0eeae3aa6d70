"""``cct experiment rtt-separation``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..._support.options import WorkersOption
from ...errors import ParameterError
from ..folder import Folder
from ..options import OutputOption
from ..runners import outcomes
from .scenarios import MAWI_DAY, TESTBED_TESTS, TITLES, Settings

__all__ = ["run"]


def run(
    output: OutputOption = Path("rtt-separation"),
    *,
    test: Annotated[
        list[int] | None,
        typer.Option(
            help="1 to 6, 7 (scaling), 8 (what test 4 depends on), 9 (when separation pays), 10 (the authors' "
            "bundles) or 11 (test 3 with other buffers) (repeatable) [default: all].",
            min=1,
            max=11,
        ),
    ] = None,
    fast: Annotated[
        bool, typer.Option(help="A tenth of the rate, and shorter: for a first look, not for citing.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Runs of tests 1, 3 and 9 to 11; samples of test 8.", min=1)] = 3,
    full: Annotated[
        bool, typer.Option(help="The paper's scale: all of the 6000 transfers of test 4 (hours).")
    ] = False,
    scale: Annotated[
        float | None,
        typer.Option(
            help="Test 4: fraction of its 6000 transfers [default: 0.02, with --full 1].", min=1e-4, max=1.0
        ),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            help="Test 4: take the transfers from this capture [default: the paper's MAWI day if it is in the "
            "cache, else a documented sample]."
        ),
    ] = None,
    min_bytes: Annotated[
        int, typer.Option(help="Test 4: smallest payload of a transfer in the capture.", min=1)
    ] = 10_000_000,
    testbed: Annotated[
        bool,
        typer.Option(
            "--testbed",
            help="Tests 1 and 3 in a small form, in the simulator and on real Linux (`cct testbed`).",
        ),
    ] = False,
    workers: WorkersOption = None,
) -> Path:
    """Run the RTT paper's tests; write tables, figures and a summary.

    Finished simulations stay in the folder (``pieces``), so an interrupted experiment continues.

    Parameters
    ----------
    output : Path
        Folder.
    test : list of int, optional
        Some of :data:`~.scenarios.TITLES`; all by default.
    full : bool
        The paper's scale: `scale` is 1 instead of 0.02.
    fast, seeds, scale, capture, min_bytes, testbed
        As in :class:`~.scenarios.Settings`.
    workers : int, optional
        Processes; all cores by default.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ParameterError
        An option is out of range or unknown.
    TestbedUnavailableError
        With `testbed`: this machine has no kernel to run.
    """
    from ...capture.mawi import mawi_path
    from ..code_hash import NOT_SIMULATED
    from ..part import Findings, write
    from ..pieces import Pieces, kept_outcomes

    known = sorted(TESTBED_TESTS if testbed else TITLES)
    chosen = sorted(set(test or known))
    for number in chosen:
        if number not in known:
            raise ParameterError(f"test: {number} must be one of {', '.join(map(str, known))}")
    if full and fast:
        raise ParameterError("full: cannot be combined with fast")
    if scale is None:
        scale = 1.0 if full else Settings.scale
    if capture is None and not fast:
        capture = mawi_path(MAWI_DAY)
    settings = Settings(fast, 1 if fast or testbed else seeds, scale, capture, min_bytes, testbed)
    options: dict[str, Any] = {
        "test": chosen, "fast": fast, "seeds": settings.seeds, "scale": scale, "capture": capture,
    }  # fmt: skip
    options |= {"testbed": True} if testbed else {}
    folder = Folder(output, "rtt-separation", options)

    from .cases import CODE
    from .page import about
    from .parts import PARTS, TABLE_1

    run_cases = outcomes if testbed else kept_outcomes(Pieces(folder.path / "pieces", CODE, NOT_SIMULATED))
    found: dict[Any, Findings[Settings]] = {
        number: PARTS[number].run(settings, workers=workers, run_cases=run_cases) for number in chosen
    }
    titles: dict[Any, str] = dict(TITLES)
    if not testbed and {1, 4} & set(chosen):
        tables = {name: table for findings in found.values() for name, table in findings.tables.items()}
        found["table 1"] = Findings(TABLE_1, settings, TABLE_1.tables(settings, tables))
        titles["table 1"] = "Table 1, measured: gains over one queue on the same scenarios"
    write(folder, "Separation of flows by RTT", found, titles, about())
    return folder.path
