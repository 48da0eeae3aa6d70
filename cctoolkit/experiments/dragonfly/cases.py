"""What the parts of the Dragonfly experiment train: cases that run side by side, each kept when it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..._support.pool import in_processes
from ..._support.threads import cores
from ...errors import ParameterError
from ...identify import SlotDataset, Windows
from ...identify.windows import joined
from ..code_hash import NOT_SIMULATED
from ..pieces import Pieces
from . import tables
from .logs import INPUTS
from .scenarios import ANSWERING, CLASSIFIERS, DROPPED_PERCENT, PAPER_S, PUBLISHED, jobs
from .tables import EPOCH_BACKGROUNDS, INPUT_CHOICES, RUN_SHARES, RUNS, SAMPLED, Work, simulated

__all__ = [
    "CODE", "Scored", "baseline", "epochs", "inputs", "learning_curve", "linux", "recall", "sampling", "splits",
    "windows",
]  # fmt: skip

#: The code that decides a case's tables.
CODE = ("cctoolkit.experiments.dragonfly.tables", "cctoolkit.experiments.dragonfly.training")


@dataclass(frozen=True)
class Scored:
    """Classifiers, trained and scored: one of the measurements of :mod:`.tables`, and its arguments.

    Parameters
    ----------
    measure : function
        Returns a table, or several.
    arguments : tuple
        Datasets, a :class:`~.training.Training`, and plain values.
    threads : int, optional
        Threads of torch, for one of several cases at a time; by default as they are.
    """

    measure: Callable[..., pd.DataFrame | Sequence[pd.DataFrame]]
    arguments: tuple[Any, ...]
    threads: int | None = None

    def run(self) -> list[pd.DataFrame]:
        """Train and score."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)
        found = self.measure(*self.arguments)
        return [found] if isinstance(found, pd.DataFrame) else list(found)

    def identity(self) -> object:
        """The measurement, and everything that it is made from."""
        return self.measure.__name__, [_identity(argument) for argument in self.arguments]

    def content(self, outcome: Sequence[pd.DataFrame]) -> dict[str, Any]:
        """The tables by number."""
        return {str(number): table for number, table in enumerate(outcome)}

    def outcome(self, content: Mapping[str, Any]) -> list[pd.DataFrame]:
        """The tables again."""
        return [content[number] for number in sorted(content, key=int)]


def _identity(argument: Any) -> object:
    """What distinguishes an argument: of a dataset, its flows and when its slots were written; not where files are."""
    if isinstance(argument, Path):
        return None
    if isinstance(argument, Mapping):
        return {name: _identity(part) for name, part in argument.items()}
    if not isinstance(argument, SlotDataset):
        return argument
    written = [(argument.path / "slots" / f"{run}.parquet").stat() for run in argument.runs]
    flows = pd.util.hash_pandas_object(argument.flows).to_list()
    whole = repr((flows, list(argument.flows), [(file.st_size, file.st_mtime_ns) for file in written]))
    return argument.slot_ms, hashlib.sha256(whole.encode()).hexdigest()


def _cases(work: Work, jobs: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Scored]:
    """Cases that share the cores."""
    at_once = min(work.workers or cores(), len(jobs))
    threads = None if at_once == 1 else max(cores() // at_once, 1)
    return [Scored(measure, arguments, threads) for measure, arguments in jobs]


def inputs(work: Work) -> list[Scored]:
    """Figure 2: a case for each choice of inputs."""
    lengths = work.windows_ms
    window_ms = lengths[0] if 100 not in lengths else 100.0
    shared = (work.dataset, work.training, window_ms)
    return _cases(work, [(tables.f1_by_input, (*shared, (choice,))) for choice in INPUT_CHOICES])


def epochs(work: Work) -> list[Scored]:
    """Figure 5: a case for each background and classifier, on runs of their own."""
    found, length = [], work.longest_ms
    names = [name for name in PUBLISHED if length <= work.longest_of(name)]
    for background, others in EPOCH_BACKGROUNDS.items():
        name = f"epochs-{background.lower().replace(' ', '-')}"
        dataset = simulated(
            work.folder, name, work.runs, work.seconds, work.workers, network=work.simulated_network, seed=2,
            background=(0,), others=others,
        )  # fmt: skip
        found += [(dataset, work.training, length, background, name) for name in names]
    return _cases(work, [(_by_epoch, arguments) for arguments in found])


def _by_epoch(
    dataset: SlotDataset, training: Any, window_ms: float, background: str, name: str
) -> pd.DataFrame:
    table = tables.accuracy_by_epoch(name, training.cut(dataset, window_ms, CLASSIFIERS[name]), training)
    return table.assign(background=background, classifier=name, window_ms=window_ms)


def windows(work: Work) -> list[Scored]:
    """Figures 6, 7, 8, 10 and 11: a case for each length and classifier, the longest first: they take longest."""
    by = () if work.setting is None else (work.setting,)
    shared = (work.dataset, work.training, min(work.windows_ms), by, work.cloud)
    return _cases(work, [(_of_length, (*shared, ms, name)) for ms, name in _lengths(work)])


def _lengths(work: Work) -> list[tuple[float, str]]:
    """Window lengths and classifiers, the longest first."""
    return [
        (ms, name)
        for ms in sorted(work.windows_ms, reverse=True)
        for name in CLASSIFIERS
        if ms <= work.longest_of(name)
    ]


def _of_length(
    dataset: SlotDataset, training: Any, shortest_ms: float, by: Sequence[str], cloud: SlotDataset | None,
    window_ms: float, name: str,
) -> tuple[pd.DataFrame, ...]:  # fmt: skip
    """The tables of one length and classifier; none if no flow fills a window longer than the shortest."""
    try:
        return tables.f1_by_window(dataset, training, [window_ms], [name], by, cloud=cloud)
    except ParameterError:
        if window_ms == shortest_ms:
            raise
        return ()


def recall(work: Work) -> list[Scored]:
    """Figure 10 as published: a case for each length, the longest first."""
    lengths = [ms for ms, name in _lengths(work) if name == "Dragonfly"]
    return _cases(work, [(_recall_of_length, (work.dataset, work.training, ms)) for ms in lengths])


def _recall_of_length(dataset: SlotDataset, training: Any, window_ms: float) -> pd.DataFrame:
    table = tables.recall_by_epoch(training.cut(dataset, window_ms, CLASSIFIERS["Dragonfly"]), training)
    return table.assign(window_ms=window_ms)


def learning_curve(work: Work) -> list[Scored]:
    """A case for each length and share of the runs, the longest first."""
    lengths = [ms for ms, name in _lengths(work) if name == "Dragonfly"]
    shared = (work.dataset, work.training)
    return _cases(work, [(_of_share, (*shared, ms, share)) for ms in lengths for share in RUN_SHARES])


def _of_share(dataset: SlotDataset, training: Any, window_ms: float, share: float) -> pd.DataFrame:
    windows = training.cut(dataset, window_ms, CLASSIFIERS["Dragonfly"])
    return tables.f1_by_runs(windows, training, (share,)).assign(window_ms=window_ms)


def baseline(work: Work) -> list[Scored]:
    """A case for each length and way to answer, the longest first."""
    shared = (work.dataset, work.training)
    lengths = [ms for ms, name in _lengths(work) if name == "DeePCCI"]
    return _cases(
        work,
        [(tables.f1_of_baseline, (*shared, ms, (how,))) for ms in lengths for how in ANSWERING],
    )


def linux(work: Work) -> list[Scored]:
    """A case for each length and classifier, on the same runs in each place."""
    shared = (work.places, work.training)
    return _cases(work, [(tables.f1_by_place, (*shared, ms, name)) for ms, name in _lengths(work)])


def sampling(work: Work) -> list[Scored]:
    """Figure 9: a case for each classifier and what it learns from, on runs without background traffic."""
    longest = work.longest_ms
    room = min(work.training.per_flow, max(int(PAPER_S * 1000 // longest), 1))
    made = [
        (changes, scenario, longest, room, DROPPED_PERCENT)
        for changes, scenario in jobs(
            work.runs, work.seconds, network=work.simulated_network, seed=3, background=(0,)
        )
    ]
    pieces = Pieces(work.folder / "pieces", RUNS, NOT_SIMULATED)
    pieces.folder.mkdir(parents=True, exist_ok=True)
    paths = [
        pieces.path(("sampled and shuffled", changes, scenario.to_toml(), *rest))
        for changes, scenario, *rest in made
    ]
    missing = [(path, *one) for path, one in zip(paths, made, strict=True) if not path.is_file()]
    for _, future in in_processes(_recorded_into, missing, work.workers or cores()):
        future.result()
    names = tuple(path.name for path in paths)  # a digest of everything in them
    shared = (pieces.folder, names, work.training)
    return _cases(
        work, [(_of_samples, (*shared, name, how)) for name, ways in SAMPLED.items() for how in ways]
    )


def _recorded_into(path: Path, *settings: Any) -> None:
    """Keep the windows of one run (:func:`~.tables.recorded_windows`)."""
    tables.recorded_windows(*settings).save(path)


def _of_samples(
    folder: Path, names: Sequence[str], training: Any, classifier: str, learnt_from: str
) -> pd.DataFrame:
    windows = joined([Windows.load(folder / name) for name in names])
    return tables.f1_by_sampling(windows, training, {classifier: (learnt_from,)})


def splits(work: Work) -> list[Scored]:
    """A case for each classifier, choice of inputs, value of the setting that varies, and classifier elsewhere."""
    shared = (work.training, work.longest_ms)
    found: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (tables.by_split, (work.dataset, *shared, (name,))) for name in ("Dragonfly", "ours")
    ]
    found += [(tables.by_published_inputs, (work.dataset, *shared, (inputs,))) for inputs in INPUTS]
    if work.setting is not None:
        values = sorted(set(work.dataset.flows[work.setting]))
        found += [
            (tables.left_out, (work.dataset, *shared, work.setting, "ours", (value,)))
            for value in values
            if len(values) > 1
        ]
    if work.other is not None:
        found += [
            (tables.elsewhere, (work.dataset, work.other, *shared, (name,)))
            for name in ("Dragonfly", "DeePCCI", "ours")
        ]
    return _cases(work, found)
