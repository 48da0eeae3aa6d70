"""Datasets: slots of labelled flows from many runs, in a folder of Parquet files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support import arguments, parquet
from .._support.atomic import check_target, replacing
from .._support.documents import read_json
from .._support.pool import in_processes
from .._support.threads import cores
from .._support.version import __version__
from .._support.waiting import progress_bar
from ..analysis.slots import compute_slots
from ..errors import CCToolkitError, ParameterError, SchemaError
from ..scenario.run import Run
from ..scenario.scenario import Scenario, plain
from ..schema import write_parquet
from .behaviour import sender_states

__all__ = ["Recording", "SlotDataset", "build_dataset", "record"]

_VERSION = 1
_INDEX = "dataset.json"
_FLOWS = "flows.parquet"
#: Number of background flows of a run that are kept.
MOST_BACKGROUND = 9
#: Sampling interval of the senders' states, in s.
STATES_S = 0.02


@dataclass
class Recording:
    """The slots of one run's labelled flows.

    Attributes
    ----------
    name : str
        Name of the run. Splits keep a run on one side.
    slots : DataFrame
        Slots, from :func:`cctoolkit.compute_slots`.
    flows : DataFrame
        ``flow_id`` and ``cca`` of each labelled flow, and other columns about the flow and the run.
    slot_ms : float
    states : DataFrame or None
        The senders' windows over time (``cctoolkit.identify.behaviour.STATES``), if the run has them.

    See Also
    --------
    record : make one
    SlotDataset : many of them in a folder

    Examples
    --------
    >>> recording = cct.identify.record(cct.example("cubic"))
    >>> recording.name, recording.flows.cca.tolist()
    ('cubic', ['cubic'])
    """

    name: str
    slots: pd.DataFrame
    flows: pd.DataFrame
    slot_ms: float = 1.0
    states: pd.DataFrame | None = None


def record(
    run: Run | Any,
    egress: Any = None,
    labels: pd.DataFrame | None = None,
    *,
    name: str | None = None,
    slot_ms: float = 1.0,
    sampling: str | float = "all",
    flow_ids: Sequence[int] | None = None,
    facts: Mapping[str, Any] | None = None,
    seed: int = 0,
    check_taps: bool = True,
) -> Recording:
    """Record the slots of a run's labelled flows.

    Parameters
    ----------
    run : Run or Capture
        A run (from the simulator, a testbed or :func:`cctoolkit.load_run`), or a capture from before the queue.
    egress : Capture, optional
        Capture from after the queue, if `run` is a Capture.
    labels : DataFrame, optional
        Table with ``flow_id`` and ``cca``; by default the run's own. Flows without a congestion control are left out.
    name : str, optional
        Name of the recording; by default the run's.
    slot_ms, sampling, seed, check_taps
        As for :func:`cctoolkit.compute_slots`.
    flow_ids : sequence of int, optional
        Only these flows.
    facts : mapping, optional
        Facts about the run, which become columns of ``flows``.

    Returns
    -------
    Recording

    Raises
    ------
    ParameterError
        There are no labels, the run's taps were not recorded, or they cannot be taps of one queue.

    See Also
    --------
    build_dataset : record many scenarios
    cut_windows : windows of recordings
    cctoolkit.compute_slots : the slots themselves

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> recording = cct.identify.record(run, slot_ms=10)
    >>> recording.flows[["flow_id", "cca"]]
       flow_id    cca
    0        0  cubic
    1        1    bbr
    """
    if isinstance(run, Run):
        if run.ingress is None:
            raise ParameterError(f"{run.name}: its taps were not recorded (simulate(..., record=True))")
        ingress, egress = run.ingress, run.egress
        if labels is None:
            facts_of_flows = ("base_rtt_ms", "bytes_acked", "retransmits")
            labels = arguments.table("labels", run.labels, ["flow_id"], ("cca", *facts_of_flows))
            labels = labels[["flow_id", "cca", *facts_of_flows]]
        known = labels
        name = name or run.name
    else:
        if labels is None:
            raise ParameterError("labels: required for captures: a table with flow_id and cca")
        ingress, known = run, labels
        name = name or "capture"
    known = arguments.table("labels", known, ["flow_id"], ["cca"])
    known = known[~known["cca"].isin(["", "udp"]) & known["cca"].notna()]
    if flow_ids is not None:
        known = known[known["flow_id"].isin(list(flow_ids))]
    flows = known.assign(**dict(facts or {})).reset_index(drop=True)
    wanted = flows["flow_id"].to_numpy()
    if not len(wanted):
        raise ParameterError(f"{name}: no flow is labelled with a congestion control")
    slots = compute_slots(
        ingress, egress, slot_ms, sampling, flow_ids=wanted, seed=seed, check_taps=check_taps
    )
    states = None
    if isinstance(run, Run):
        states = sender_states(run.flow_series, wanted, slots.attrs["start_ns"], slot_ms)
    slots.attrs = {"slot_ms": slot_ms}
    return Recording(name, slots, flows, slot_ms, states)


class SlotDataset:
    """A folder of recordings. Iterating reads them one by one.

    Parameters
    ----------
    path : path
        Folder with ``dataset.json`` (how it was made), ``flows.parquet`` (one row per flow: ``run``, ``flow_id``,
        ``cca``, settings), ``slots/RUN.parquet`` and, of runs, ``states/RUN.parquet`` (the senders' windows over time).

    Raises
    ------
    SchemaError
        There is no dataset, or it has another version.

    See Also
    --------
    build_dataset : make one
    cut_windows : windows to train on

    Examples
    --------
    >>> scenarios = cct.sweep(
    ...     cct.Scenario(
    ...         bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50),
    ...         flows=[cct.Flow("reno", rtt_ms=20)],
    ...         duration_s=2,
    ...     ),
    ...     {"flows.0.cca": ["reno", "bbr"]},
    ... )
    >>> dataset = cct.identify.build_dataset(scenarios, "mine", workers=1, progress=False)
    >>> len(cct.identify.SlotDataset("mine"))
    2
    >>> cct.identify.SlotDataset("mine").where("cca == 'bbr'").flows.cca.tolist()
    ['bbr']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.about = read_json(self.path / _INDEX)
            version = self.about["version"]
        except (SchemaError, KeyError):
            raise SchemaError(f"{self.path}: holds no dataset of slots (no readable {_INDEX})") from None
        if version != _VERSION:
            raise SchemaError(
                f"{self.path}: dataset has version {version}, expected {_VERSION}; build it again"
            )
        try:
            self.flows = parquet.frame(parquet.read(self.path / _FLOWS), self.path / _FLOWS)
        except (OSError, SchemaError):
            raise SchemaError(f"{self.path}: holds no dataset of slots (no readable {_FLOWS})") from None
        self.slot_ms: float = self.about["slot_ms"]

    @property
    def made_with(self) -> dict[str, Any]:
        """Arguments of its build; empty if it was made from captures."""
        return {
            key: value for key, value in self.about.items() if key not in ("version", "cctoolkit", "slot_ms")
        }

    @property
    def runs(self) -> list[str]:
        """Names of the runs, in order."""
        return list(dict.fromkeys(self.flows["run"]))

    def contents(self) -> dict[str, str]:
        """By run, a key of what was recorded: equal in copies of a dataset, different for other runs of the same name.

        Twelve hexadecimal digits of a SHA-256: for a scenario, of the scenario and where it ran; for captures, of the
        number of slots and of the smallest and largest value in each of their columns.
        """
        return {run: self._content(run) for run in self.runs}

    def _content(self, run: str) -> str:
        path = self.path / "slots" / f"{run}.parquet"
        provenance = parquet.read_provenance(path)
        is_scenario = "scenario" in provenance
        facts = [provenance["scenario"], provenance.get("on")] if is_scenario else parquet.extremes(path)
        facts += ["offload"] if provenance.get("offload") else []
        return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:12]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Recording]:
        return self.recordings()

    def recordings(self, columns: Sequence[str] | None = None) -> Iterator[Recording]:
        """Read recordings one by one, with only these columns of the slots. Columns with missing numbers are floats."""
        wanted = None if columns is None else list(dict.fromkeys(["flow_id", "slot", *columns]))
        for run, flows in self.flows.groupby("run", sort=False):
            path = self.path / "slots" / f"{run}.parquet"
            table = parquet.read(path, wanted, memory_map=True)
            known = flows.drop(columns="run").reset_index(drop=True)
            slots = parquet.frame(table, path, ignore_metadata=True)
            slots.attrs = {"slot_ms": self.slot_ms}
            at = self.path / "states" / f"{run}.parquet"
            states = parquet.frame(parquet.read(at), at, ignore_metadata=True) if at.is_file() else None
            yield Recording(str(run), slots, known, self.slot_ms, states)

    def where(self, which: str | Iterable[str]) -> SlotDataset:
        """A part of the dataset: flows that match an expression (as for pandas' ``query``), or flows of these runs."""
        part = object.__new__(SlotDataset)
        part.path, part.about, part.slot_ms = self.path, self.about, self.slot_ms
        if isinstance(which, str):
            try:
                part.flows = self.flows.query(which)
            except Exception as err:  # pandas raises many kinds
                raise ParameterError(
                    f"which: {which!r}: {err}; columns are {', '.join(map(str, self.flows))}"
                ) from None
        else:
            part.flows = self.flows[self.flows["run"].isin(list(which))]
        return part

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {cca}" for cca, n in self.flows["cca"].value_counts().items())
        return f"<SlotDataset {self.path.name}: {len(self)} runs, {len(self.flows)} flows ({counts})>"


def build_dataset(
    scenarios: Iterable[tuple[Mapping[str, Any], Scenario]],
    directory: str | os.PathLike[str],
    *,
    on: str = "simulator",
    offload: bool = False,
    special: int = 3,
    background: int = MOST_BACKGROUND,
    slot_ms: float = 1.0,
    workers: int | None = None,
    progress: bool = True,
    keep_captures: bool = False,
) -> SlotDataset:
    """Run scenarios and store the slots of their flows.

    Parameters
    ----------
    scenarios : iterable of (dict, Scenario)
        As :mod:`cctoolkit.identify.settings` and :func:`cctoolkit.sweep` yield. The dict becomes columns of the flows.
    directory : path
        Folder of the dataset. Existing runs (by name) are not run again, so a dataset can grow and an interrupted
        build resumes. They must have the same scenarios and settings.
    on : str
        ``"simulator"`` or a testbed backend: ``"uml"`` (real Linux in virtual time), ``"netns"``, ``"mininet"``.
    offload : bool
        Leave segmentation offload on, as for :func:`cctoolkit.run_testbed`; the simulator has none.
    special, background : int
        Flows 0 to `special` - 1 of each run are kept, and up to `background` of the others, drawn by the run's number.
    slot_ms : float
    workers : int, optional
        Number of parallel runs; by default one per core.
    progress : bool
    keep_captures : bool
        Also keep the captures (``captures/RUN``).

    Returns
    -------
    SlotDataset

    Raises
    ------
    ParameterError
        The folder has a run with one of these names but another scenario, or runs made with another `on`, `offload`,
        `special`, `background` or `slot_ms`; or `offload` in the simulator.
    TestbedUnavailableError, CCToolkitError
        As for :func:`cctoolkit.simulate` and :func:`cctoolkit.run_testbed`. Finished runs are kept.

    See Also
    --------
    SlotDataset : the result
    SETTINGS : settings to draw scenarios from
    record : a single run

    Examples
    --------
    >>> scenarios = cct.sweep(
    ...     cct.Scenario(
    ...         bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50),
    ...         flows=[cct.Flow("reno", rtt_ms=20)],
    ...         duration_s=2,
    ...     ),
    ...     {"flows.0.cca": ["reno", "bbr"]},
    ... )
    >>> dataset = cct.identify.build_dataset(scenarios, "mine", workers=1, progress=False)
    >>> dataset.flows.cca.tolist()
    ['reno', 'bbr']
    """
    folder = Path(directory)
    if offload and on == "simulator":
        raise ParameterError("offload: the simulator has no segmentation offload; choose another `on`")
    check_target(folder, folder=True)
    jobs = [(number, dict(changes), scenario) for number, (changes, scenario) in enumerate(scenarios)]
    names = [_run_name(number, scenario) for number, _, scenario in jobs]
    if len(set(names)) < len(names):
        raise ParameterError("scenarios: two have the same name")
    made_with = {
        "on": on, "offload": offload, "special": special, "background": background, "slot_ms": slot_ms,
    }  # fmt: skip
    _check_same(folder, {name: job[2] for name, job in zip(names, jobs, strict=True)}, made_with)
    (folder / "slots").mkdir(parents=True, exist_ok=True)
    missing = [
        job
        for job, name in zip(jobs, names, strict=True)
        if not (folder / "slots" / f"{name}.json").is_file()
    ]
    settings = (str(folder), made_with, keep_captures)
    with progress_bar(
        total=len(jobs), initial=len(jobs) - len(missing), unit="run", disable=not progress
    ) as bar:
        done = in_processes(
            _build_one, [(*job, *settings) for job in missing], min(workers or cores(), max(len(missing), 1))
        )
        try:
            for number, future in done:
                try:
                    future.result()
                except CCToolkitError as err:
                    raise err.within(_run_name(missing[number][0], missing[number][2])) from None
                bar.update()
        finally:
            done.close()
    about = {name: value for name, value in made_with.items() if name != "slot_ms"}
    return index_dataset(folder, about, slot_ms)


def _run_name(number: int, scenario: Scenario) -> str:
    return scenario.name or f"run-{number:05d}"


def _check_same(folder: Path, scenarios: Mapping[str, Scenario], made_with: Mapping[str, Any]) -> None:
    """Raise if runs in the folder were made differently, or have one of these names but another scenario."""

    def check(provenance: Mapping[str, Any]) -> None:
        for key, value in made_with.items():
            # missing: from an earlier version, which had no offload, or from captures
            there = provenance.get(key, False if key == "offload" and "on" in provenance else value)
            if there != value:
                raise ParameterError(
                    f"{key}: {folder} was built with {key} {there}, not {value}; choose another folder"
                )

    if (folder / _INDEX).is_file():
        check(SlotDataset(folder).about)
    for path in sorted((folder / "slots").glob("*.json")):
        provenance = parquet.read_provenance(path.with_suffix(".parquet"))
        check(provenance)
        if path.stem in scenarios and provenance.get("scenario") != scenarios[path.stem].to_toml():
            raise ParameterError(
                f"scenarios: {folder} has a run {path.stem} of another scenario; choose another folder"
            )


def _build_one(
    number: int, changes: dict[str, Any], scenario: Scenario, folder: str, made_with: dict[str, Any],
    keep_captures: bool,
) -> None:  # fmt: skip
    on, slot_ms = made_with["on"], made_with["slot_ms"]
    name = _run_name(number, scenario)
    root = Path(folder)
    at = root / "captures" / name
    if on == "simulator":
        from ..sim.simulation import simulate

        run = simulate(scenario, record=True, sample_s=STATES_S)
    else:
        from ..testbed import run_testbed

        run = run_testbed(scenario, at, backend=on, sample_s=STATES_S, offload=made_with["offload"])
    facts = {key: plain(value) for key, value in changes.items()}
    recording = record(
        run,
        name=name,
        slot_ms=slot_ms,
        facts=facts,
        flow_ids=_kept(len(run.labels), made_with["special"], made_with["background"], number),
        check_taps=False,  # they are ours
    )
    provenance = {"scenario": scenario.to_toml(), "made_by": run.made_by, "seed": scenario.seed}
    save_recording(root, recording, provenance | made_with)
    if on == "simulator" and keep_captures:
        run.save(at)
    elif not keep_captures:
        shutil.rmtree(at, ignore_errors=True)


def _kept(flows: int, special: int, background: int, number: int) -> list[int]:
    """The special flows, and some of the others, drawn by the run's number."""
    others = np.arange(min(special, flows), flows)
    drawn = np.random.default_rng([number, 77]).choice(others, min(background, len(others)), replace=False)
    return [*range(min(special, flows)), *sorted(drawn.tolist())]


def save_recording(root: Path, recording: Recording, provenance: Mapping[str, Any]) -> None:
    """Write a recording's slots, then its labels: a recording with labels is complete."""
    (root / "slots").mkdir(parents=True, exist_ok=True)
    write_parquet(
        recording.slots,
        root / "slots" / f"{recording.name}.parquet",
        "slots",
        {"version": __version__, **provenance},
    )
    if recording.states is not None:
        (root / "states").mkdir(exist_ok=True)
        parquet.write(
            recording.states, root / "states" / f"{recording.name}.parquet", {"version": __version__}
        )
    with replacing(root / "slots" / f"{recording.name}.json") as tmp:
        recording.flows.to_json(tmp, orient="records")


def index_dataset(root: Path, about: Mapping[str, Any], slot_ms: float) -> SlotDataset:
    """Write the index of the recordings in a folder."""
    tables = [
        pd.read_json(path, orient="records").assign(run=path.stem)
        for path in sorted((root / "slots").glob("*.json"))
    ]
    if not tables:
        raise ParameterError(f"{root}: there are no recordings")
    flows = pd.concat(tables, ignore_index=True)
    flows = flows[["run", *(c for c in flows if c != "run")]]
    with replacing(root / _FLOWS) as tmp, tmp.open("wb") as file:
        flows.to_parquet(file, index=False)
    facts = {"version": _VERSION, "cctoolkit": __version__, "slot_ms": slot_ms, **about}
    with replacing(root / _INDEX) as tmp:
        tmp.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return SlotDataset(root)
