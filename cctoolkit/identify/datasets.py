"""Several datasets as one: runs to train and test on, their windows and settings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import ParameterError
from .dataset import Recording, SlotDataset
from .inputs import VIEW_INPUTS
from .windows import ARRIVALS, FEATURE_SETS, Windows, cut_windows, joined, window_slots

__all__ = ["WINDOWS_MS", "Datasets", "settings_of"]

#: Default window lengths for training, as far as flows are long enough.
WINDOWS_MS = (100.0, 1000.0, 10000.0)
#: Columns of a dataset's flows that are not settings.
_NO_SETTING = {
    "run", "flow_id", "cca", "bytes_acked", "retransmits", "src", "dst", "sport", "dport",
    "kind", "data_from", "start_ns", "stop_ns", "min_rtt_us",
}  # fmt: skip


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
                raise ParameterError(f"ccas: no flow uses {cca!r}, only {', '.join(there)}")

    def split(self, test_share: float, seed: int) -> tuple[list[str], list[str]]:
        """Names of the runs to train on (at least one) and of those to test on."""
        if not 0 <= test_share < 1:
            raise ParameterError(f"test_share: {test_share:g} is not a share from 0 up to 1")
        held_out = min(int(np.ceil(test_share * len(self.runs))), len(self.runs) - 1)
        order = np.random.default_rng(seed).permutation(self.runs)
        return sorted(order[held_out:].tolist()), sorted(order[:held_out].tolist())

    def cut(
        self, runs: Sequence[str], window_ms: float, inputs: str | Sequence[str], **options: Any
    ) -> Windows:
        """Windows of these runs; `options` are those of :func:`~.windows.cut_windows`."""
        columns = VIEW_INPUTS if inputs == "views" else (inputs,) if isinstance(inputs, str) else inputs
        columns = FEATURE_SETS.get(columns[0], columns)
        return cut_windows(self._recordings(runs, (*columns, *ARRIVALS)), window_ms, inputs, **options)

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


def settings_of(flows: pd.DataFrame) -> pd.DataFrame:
    """The settings of flows.

    Parameters
    ----------
    flows : DataFrame
        Flows of a dataset.

    Returns
    -------
    DataFrame
        One row per setting: its column as ``setting``, the number of ``values``, the smallest as ``from``, the largest
        as ``to``, and the ``median`` of numbers.
    """
    rows = [
        (name, *_range(flows[name].dropna()))
        for name in flows.columns
        if name not in _NO_SETTING and flows[name].notna().any()
    ]
    return pd.DataFrame(rows, columns=["setting", "values", "from", "to", "median"])


def _range(known: pd.Series) -> tuple[int, Any, Any, Any]:
    if not pd.api.types.is_numeric_dtype(known):
        known = known.astype(str)
        return known.nunique(), known.min(), known.max(), None
    return known.nunique(), f"{known.min():.6g}", f"{known.max():.6g}", f"{known.median():.6g}"
