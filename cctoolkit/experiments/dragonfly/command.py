"""``cct experiment dragonfly``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..._support.options import WorkersOption
from ..._support.ranges import LEAST_MS
from ...errors import ParameterError
from ..folder import Folder
from ..options import OutputOption, TestbedOption
from .scenarios import (
    CLASSIFIERS,
    FULL_WINDOWS_MS,
    LINUX,
    NETWORKS,
    PAPER_S,
    SESSION,
    TITLES,
    WINDOWS_MS,
)

__all__ = ["run"]


def run(
    output: OutputOption = Path("dragonfly"),
    *,
    network: Annotated[
        str | None,
        typer.Option(
            help="Simulate runs like the paper's mininet (section IV-A), physical network (IV-B) or cloud (IV-C)."
        ),
    ] = None,
    background: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of background flows in simulated runs (repeatable) [default: 0, 15, 30, 60, 75].",
            min=0,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Use this dataset (`cct dataset build`) instead of new simulations."
        ),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A dataset to test on and never train on (splits)."),
    ] = None,
    session: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The session that the authors published, as one CSV (session)."),
    ] = None,
    testbed: TestbedOption = False,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Run only this part (repeatable): {', '.join(TITLES)}.")
    ] = None,
    full: Annotated[
        bool, typer.Option(help="The paper's scale: 1500 runs of a minute, 100 epochs, windows up to 60 s.")
    ] = False,
    runs: Annotated[int | None, typer.Option(help="Simulated runs [default: 60; full: 1500].", min=4)] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Duration of a run once its flows have started, s [default: 20; full: 60].", min=2.0
        ),
    ] = None,
    windows_ms: Annotated[
        list[float] | None,
        typer.Option(
            "--window-ms", help="Window length, ms (repeatable) [default: 100, 1000, 10000].", min=LEAST_MS
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of training [default: 30; full: 100].", min=1)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Splits and trainings [default: 3; full: 5].", min=1)
    ] = None,
    per_flow: Annotated[
        int | None, typer.Option(help="Windows of each flow [default: 10; full: 1].", min=1)
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Learning rate of Dragonfly and DeePCCI [default: 1e-3; full: 1e-4 as published, and 1e-3].",
            min=1e-9,
        ),
    ] = None,
    longest: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=MS",
            help="Longest windows of one classifier, such as DeePCCI=6000 (repeatable) [default: all].",
        ),
    ] = None,
    workers: WorkersOption = None,
) -> Path:
    """Train Dragonfly, DeePCCI and our classifier on simulated runs or a dataset; write tables, figures and a summary.

    Networks are trained side by side, as many as there are workers. Simulated runs stay in the folder (``data``),
    answers and scores of trained networks in ``pieces``, so an interrupted experiment continues where it stopped,
    inside a training too. Needs the extra ``train``.

    Parameters
    ----------
    output : Path
        Folder.
    network : str, optional
        ``"mininet"`` (the default), ``"physical"``, whose classifiers are also tested in the cloud (section IV-C), or
        ``"cloud"``, to train there.
    background : list of int, optional
        Numbers of background flows, used in turn. With one number, networks learn from such runs alone, as the
        published program has it; in the paper, one network learns from all (section IV-B).
    data, other : Path, optional
        Datasets to train and test on, and only to test on.
    session : Path, optional
        The authors' session (:func:`.logs.read_session`).
    testbed : bool
        Also make the same runs on real Linux, in virtual time, without and with segmentation offload (``linux``): 200
        of 11 s take about an hour of one core.
    only : list of str, optional
        Some of :data:`~.scenarios.TITLES`; all by default, the last two only with `testbed` and `session`.
    full : bool
        The paper's scale.
    runs, seconds : int and float, optional
        How many runs to simulate, and how long each lasts.
    windows_ms : list of float, optional
        Window lengths.
    epochs, seeds, per_flow, learning_rate
        As in :class:`~.training.Training`.
    longest : list of str, optional
        Longest windows by classifier, each as ``"NAME=MS"``: training one on windows of a minute takes about an hour on
        a CPU.
    workers : int, optional
        Processes; all cores by default.

    Returns
    -------
    Path
        The folder: ``volatility``, ``cbiq``, ``inputs``, ``epochs``, ``windows``, ``background``, ``cloud`` (with the
        physical network), ``recall``, ``learning-curve``, ``sampling``, ``splits``, ``published``, ``settings``,
        ``elsewhere`` (with `other`), ``baseline``, ``linux`` (with `testbed`), ``session``, ``session-answers`` and
        ``session-learnt`` (with `session`), and ``statements`` as Parquet, figures, ``summary.md``.

    Raises
    ------
    ParameterError
        An option is out of range or unknown, ``"session"`` without `session`, ``"linux"`` without `testbed`,
        `testbed`, `network` or `background` with `data`, or `background` with the cloud.
    SchemaError
        `data` or `other` is not a dataset, `session` no such table.
    TestbedUnavailableError
        With `testbed`: this machine has no kernel to run.
    """
    from ...identify import SlotDataset
    from ...identify.windows import window_slots
    from ..part import choose, write
    from ..pieces import Pieces, kept_outcomes
    from .logs import read_session
    from .tables import Work, simulated
    from .training import CODE, Training

    chosen = choose(only, TITLES, "only")
    if session is None:
        if only and SESSION in only:
            raise ParameterError("only: session needs --session FILE")
        chosen = [name for name in chosen if name != SESSION]
    if testbed:
        from ...testbed.kernel import find_kernel

        if data is not None:
            raise ParameterError("testbed: with --data, there are no scenarios that Linux could run")
        find_kernel()
    else:
        if only and LINUX in only:
            raise ParameterError("only: linux needs --testbed")
        chosen = [name for name in chosen if name != LINUX]
    if network is not None and network not in NETWORKS:
        raise ParameterError(f"network: {network!r} must be one of {', '.join(NETWORKS)}")
    if network is not None and data is not None:
        raise ParameterError("network: with --data, the runs are what they are")
    if background is not None and data is not None:
        raise ParameterError("background: with --data, the runs are what they are")
    if background is not None and network == "cloud":
        raise ParameterError("background: the cloud has no background flows")
    place = None if data is not None else network or "mininet"
    lengths = sorted(set(windows_ms or (FULL_WINDOWS_MS if full else WINDOWS_MS)))
    for ms in lengths:
        window_slots(ms)
    limits = _limits(longest or ())
    number = runs if runs is not None else 1500 if full else 60
    lasting = seconds if seconds is not None else PAPER_S if full else 20.0
    training = Training(
        epochs if epochs is not None else 100 if full else 30,
        seeds if seeds is not None else 5 if full else 3,
        per_flow if per_flow is not None else 1 if full else 10,
        learning_rate if learning_rate is not None else None if full else 1e-3,
        Pieces(output / "pieces", CODE),
    )
    given = None if data is None else SlotDataset(data)
    if session is not None:
        read_session(session)
    foreign = None if other is None else SlotDataset(other)
    options: dict[str, Any] = {
        "data": data,
        "other": other,
        "runs": number,
        "seconds": lasting,
        "windows_ms": lengths,
        "only": chosen,
    }
    options |= {} if network is None else {"network": network}
    options |= {} if background is None else {"background": background}
    options |= {} if session is None else {"session": session.name}
    options |= {"longest": limits} if limits else {}
    options |= {"testbed": True} if testbed else {}
    options |= {name: getattr(training, name) for name in ("epochs", "seeds", "per_flow", "learning_rate")}
    folder = Folder(output, "dragonfly", options)

    def dataset() -> SlotDataset:
        if given is not None:
            made = given
        else:
            assert place is not None
            made = simulated(
                folder.path, place, number, lasting, workers, network=place, background=background
            )
        special = made.about.get("special")
        return made.where(f"flow_id < {special}") if special else made

    work = Work(
        dataset, training, lengths, number, lasting, folder.path, workers, foreign, session, limits, place,
        background,
    )  # fmt: skip

    from . import cases
    from .page import ABOUT, QUICK, TABLE_II
    from .parts import PARTS

    run_cases = kept_outcomes(Pieces(folder.path / "pieces", cases.CODE))
    found = {name: PARTS[name].run(work, workers=workers, run_cases=run_cases) for name in chosen}
    about = [ABOUT, TABLE_II, *([] if full else [QUICK])]
    if chosen != [SESSION]:
        source = f"Data: {data}" if data is not None else f"Data: {number} simulated runs of {lasting:g} s"
        about.insert(1, f"{source}: {work.dataset!r}.")
    write(folder, "Which congestion control is that? (Dragonfly)", found, TITLES, *about)
    return folder.path


def _limits(longest: Iterable[str]) -> dict[str, float]:
    """The longest windows by classifier, from ``NAME=MS``."""
    limits = {}
    for text in longest:
        name, _, ms = text.rpartition("=")
        if name not in CLASSIFIERS:
            raise ParameterError(f"longest: {text!r} must be NAME=MS, with one of {', '.join(CLASSIFIERS)}")
        try:
            limits[name] = float(ms)
        except ValueError:
            raise ParameterError(f"longest: {text!r}: {ms!r} is not a number of milliseconds") from None
    return limits
