"""Several datasets as one: runs to train and test on, their windows and settings."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.words import by_name, did_you_mean
from ..analysis.segments import LENGTHS
from ..errors import ParameterError
from .dataset import Recording, SlotDataset
from .flow_settings import banded, setting_columns, settings_of_runs
from .inputs import VIEW_INPUTS
from .windows import ARRIVALS, FEATURE_SETS, Windows, cut_windows, joined, window_slots

__all__ = ["WINDOWS_MS", "Datasets"]

#: Default window lengths for training, as far as flows are long enough.
WINDOWS_MS = (100.0, 1000.0, 10000.0)


class Datasets:
    """Several datasets as one.

    A run that several datasets have (:meth:`~.dataset.SlotDataset.contents`) counts once. Different runs with the same
    name get that of their dataset, too: ``mine/first`` and ``theirs/first``.

    Parameters
    ----------
    folders : sequence of Path

    Attributes
    ----------
    parts : dict of str to SlotDataset
        By the folder's name, with as many parent folders as it takes to tell them apart.
    slot_ms : float
    runs : list of str
        Their names, sorted.
    contents : dict of str to str
        By run, a key of what was recorded.
    flows : DataFrame
        Flows of all runs.

    Raises
    ------
    SchemaError
        A folder has no dataset.
    ParameterError
        The datasets have different slot lengths.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.parts = {name: SlotDataset(folder) for name, folder in by_name(folders).items()}
        lengths = {part.slot_ms for part in self.parts.values()}
        if len(lengths) > 1:
            raise ParameterError(f"datasets: slots of {' and '.join(f'{ms:g}' for ms in sorted(lengths))} ms")
        self.slot_ms = lengths.pop()
        self._names = self._names_of_runs()
        self.runs = sorted(name for names in self._names.values() for name in names.values())
        flows = []
        for part, names in zip(self.parts.values(), self._names.values(), strict=True):
            if names:
                own = part.where(list(names)).flows
                flows.append(own.assign(run=own["run"].map(names)))
        self.flows = pd.concat(flows, ignore_index=True)

    def _names_of_runs(self) -> dict[str, dict[str, str]]:
        """By part, the name here of each run that no earlier part has; fills `contents`."""
        there: dict[str, dict[str, str]] = {}
        known: set[str] = set()
        for name, part in self.parts.items():
            there[name] = {run: key for run, key in part.contents().items() if key not in known}
            known |= set(there[name].values())
        times = Counter(run for runs in there.values() for run in runs)
        names = {
            part: {run: run if times[run] == 1 else f"{part}/{run}" for run in runs}
            for part, runs in there.items()
        }
        self.contents = {names[part][run]: key for part, runs in there.items() for run, key in runs.items()}
        return names

    def check_ccas(self, ccas: Sequence[str] | None) -> None:
        """Raise ParameterError unless some flow uses each of these congestion controls."""
        there = sorted(set(self.flows["cca"]))
        for cca in ccas or ():
            if cca not in there:
                raise ParameterError(
                    f"ccas: no flow uses {cca!r}, only {', '.join(there)}{did_you_mean(cca, there)}"
                )

    def split(
        self, test_share: float, seed: int, by: Sequence[str] | None = None, ccas: Sequence[str] | None = None
    ) -> tuple[list[str], list[str]]:
        """Names of the runs to train on (at least one) and of those to test on.

        Parameters
        ----------
        test_share : float
            Share of the runs to test on, rounded up, but at least one run is left to train on.
        seed : int
        by : sequence of str, optional
            Settings (columns of the flows). Runs in which they are equal stay on one side; numbers with many values
            count as equal within a quarter of them (:func:`~.flow_settings.banded`). If empty: all settings, with
            their exact values.
        ccas : sequence of str, optional
            Only runs that have flows with one of these congestion controls.

        Raises
        ------
        ParameterError
            The share is invalid, there is no such setting, or all runs have the same settings.
        """
        if not 0 <= test_share < 1:
            raise ParameterError(f"test_share: {test_share:g} is not a share from 0 up to 1")
        flows = self.flows if ccas is None else self.flows[self.flows["cca"].isin(list(ccas))]
        runs = sorted(set(flows["run"]))
        family = {run: run for run in runs} if by is None else self._families(by, runs)
        members: dict[str, list[str]] = {}
        for run in runs:
            members.setdefault(family[run], []).append(run)
        testing: list[str] = []
        wanted, order = int(np.ceil(test_share * len(runs))), np.random.default_rng(seed)
        for name in order.permutation(list(members))[: len(members) - 1]:
            if len(testing) >= wanted:
                break
            testing += members[name]
        return sorted(set(runs) - set(testing)), sorted(testing)

    def _families(self, by: Sequence[str], runs: Sequence[str]) -> dict[str, str]:
        """By run, a key that identifies its settings; there must be two among these runs."""
        there = setting_columns(self.flows)
        for column in by:
            if column not in there:
                raise ParameterError(
                    f"split_by: {column!r} is not a setting of these datasets ({', '.join(there) or 'they have none'})"
                    f"{did_you_mean(column, there)}"
                )
        flows = self.flows
        if by:
            flows = flows[["run"]].assign(**{column: banded(flows[column]).astype(str) for column in by})
        families = settings_of_runs(flows, list(by) or None)
        if len({families[run] for run in runs}) < 2:
            raise ParameterError(f"split_by: all runs have the same {' and '.join(by) or 'settings'}")
        return families

    def cut(
        self, runs: Sequence[str], window_ms: float, inputs: str | Sequence[str], **options: Any
    ) -> Windows:
        """Windows of these runs; `options` are those of :func:`~.windows.cut_windows`."""
        columns = VIEW_INPUTS if inputs == "views" else (inputs,) if isinstance(inputs, str) else inputs
        columns = FEATURE_SETS.get(columns[0], columns)
        return cut_windows(
            self._recordings(runs, (*columns, *ARRIVALS, *LENGTHS)), window_ms, inputs, **options
        )

    def _recordings(self, runs: Sequence[str], columns: Sequence[str]) -> Iterator[Recording]:
        wanted = set(runs)
        for name, part in self.parts.items():
            names = {there: here for there, here in self._names[name].items() if here in wanted}
            for recording in part.where(list(names)).recordings(columns):
                yield dataclasses.replace(recording, name=names[recording.name])

    def windows(
        self, runs: Sequence[str], windows_ms: Sequence[float] | None, inputs: str, **options: Any
    ) -> tuple[list[float], list[Windows]]:
        """Training windows of several lengths.

        Parameters
        ----------
        runs : sequence of str
        windows_ms : sequence of float, optional
            By default, those of :data:`WINDOWS_MS` for which flows are long enough.
        inputs : str
            A name in :data:`~.windows.FEATURE_SETS`, or ``"views"``.
        **options
            As for :func:`~.windows.cut_windows`.

        Returns
        -------
        list of float
            The lengths in ms.
        list of Windows
            One for each length; for views, which have one size, one for all.

        Raises
        ------
        ParameterError
            No flow is long enough, or a length is not a whole number of slots.
        """
        lengths = list(windows_ms or WINDOWS_MS)
        found = {}
        for ms in lengths:
            window_slots(ms, self.slot_ms)
            try:
                found[ms] = self.cut(runs, ms, inputs, **options)
            except ParameterError:
                if windows_ms is not None or (ms == lengths[-1] and not found):
                    raise
        lengths = sorted(found)
        if inputs != "views":
            return lengths, [found[ms] for ms in lengths]
        return lengths, [joined([found[ms] for ms in lengths])]

    def digests(self) -> dict[str, str]:
        """SHA-256 of each part's table of flows, by the part's name."""
        return {
            name: hashlib.sha256((part.path / "flows.parquet").read_bytes()).hexdigest()
            for name, part in self.parts.items()
        }
