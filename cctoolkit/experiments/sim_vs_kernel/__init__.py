"""The simulator beside real Linux: the same scenarios on both, measured by the same code, and the error.

Examples
--------
>>> from cctoolkit.experiments import sim_vs_kernel
>>> sim_vs_kernel.run("validation", only=["cubic", "codel"])      # doctest: +SKIP
"""

from __future__ import annotations

from ..lazy import lazy_names
from ..runners import for_simulator
from .command import run
from .scenarios import GRID, TITLES, Case, Grid, Job, Settings

__all__ = ["GRID", "TITLES", "Case", "Grid", "Job", "Settings", "for_simulator", "run"]

__getattr__ = lazy_names(
    __name__,
    {
        "tables": ["QUANTITIES", "compare", "measure"],
        "parts": ["PARTS"],
        "figures": [],
    },
)
