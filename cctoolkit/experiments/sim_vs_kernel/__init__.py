"""The simulator compared with real Linux: the same scenarios on both, measured by the same code, and the errors.

Examples
--------
>>> from cctoolkit.experiments import sim_vs_kernel
>>> sim_vs_kernel.run("validation", only=["cubic", "codel"])      # doctest: +SKIP
"""

from __future__ import annotations

import lazy_loader

from ..runners import for_simulator
from .command import run
from .scenarios import GRID, MODULES, TITLES, Case, Grid, Job, Settings

__all__ = ["GRID", "MODULES", "TITLES", "Case", "Grid", "Job", "Settings", "for_simulator", "run"]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submodules=["figures", "parts", "tables"],
    submod_attrs={"tables": ["QUANTITIES", "compare", "measure"], "parts": ["PARTS"]},
)
