"""Several datasets as one: runs to train and test on, their windows and settings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.words import did_you_mean
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
    """Several datasets as one; runs with the same name count as one run.

    Parameters
    ----------
    folders : sequence of Path

    Attributes
    ----------
    parts : list of SlotDataset
    slot_ms : float
    runs : list of str
        Their names, sorted.
    flows : DataFrame
        Flows of all parts.

    Raises
    ------
    SchemaError
        A folder has no dataset.
    ParameterError
        The datasets have different slot lengths.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.parts = [SlotDataset(folder) for folder in folders]
        lengths = {part.slot_ms for part in self.parts}
        if len(lengths) > 1:
            raise ParameterError(f"datasets: slots of {' and '.join(f'{ms:g}' for ms in sorted(lengths))} ms")
        self.slot_ms = lengths.pop()
        self.runs = sorted({run for part in self.parts for run in part.runs})
        self.flows = pd.concat([part.flows for part in self.parts], ignore_index=True)

    def check_ccas(self, ccas: Sequence[str] | None) -> None:
        """Raise ParameterError unless some flow uses each of these congestion controls."""
        there = sorted(set(self.flows["cca"]))
        for cca in ccas or ():
            if cca not in there:
                raise ParameterError(
                    f"ccas: no flow uses {cca!r}, only {', '.join(there)}{did_you_mean(cca, there)}"
                )

    def split(
        self, test_share: float, seed: int, by: Sequence[str] | None = None
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

        Raises
        ------
        ParameterError
            The share is invalid, there is no such setting, or all runs have the same settings.
        """
        if not 0 <= test_share < 1:
            raise ParameterError(f"test_share: {test_share:g} is not a share from 0 up to 1")
        family = {run: run for run in self.runs} if by is None else self._families(by)
        members: dict[str, list[str]] = {}
        for run in self.runs:
            members.setdefault(family[run], []).append(run)
        testing: list[str] = []
        wanted, order = int(np.ceil(test_share * len(self.runs))), np.random.default_rng(seed)
        for name in order.permutation(list(members))[: len(members) - 1]:
            if len(testing) >= wanted:
                break
            testing += members[name]
        return sorted(set(self.runs) - set(testing)), sorted(testing)

    def _families(self, by: Sequence[str]) -> dict[str, str]:
        """By run, a key that identifies its settings."""
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
        if len(set(families.values())) < 2:
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
        for part in self.parts:
            some = part.where(runs)
            if len(some.flows):
                yield from some.recordings(columns)

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
            part.path.name: hashlib.sha256((part.path / "flows.parquet").read_bytes()).hexdigest()
            for part in self.parts
        }
