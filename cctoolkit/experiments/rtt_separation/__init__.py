"""The six tests of the RTT paper, its scaling test and its Table 1, with and without separation and with competitors;
what the result of test 4 depends on; traffic that separation makes less fair; and tests 1 and 3 on real Linux.

Gomez, Kfoury, Mazloum and Crichigno, "Improving Flow Fairness in Non-programmable Networks using P4-programmable Data
Planes", sections 4 and 5. The paper's numbers are in ``data/papers/rtt-flow-separation.csv``; :mod:`.scenarios` says
what it leaves open. Fairness is always reported together with utilisation.

Examples
--------
>>> from cctoolkit.experiments import rtt_separation
>>> found = rtt_separation.PARTS[3].run(rtt_separation.Settings(fast=True))      # doctest: +SKIP
>>> found.tables["test3"]                                                        # doctest: +SKIP
"""

from __future__ import annotations

import lazy_loader

from ..runners import outcomes
from .cases import Case, Outcome
from .command import run
from .scenarios import (
    MAWI_DAY,
    SCALING,
    SCHEMES,
    TESTBED_TESTS,
    TITLES,
    Settings,
    sample_transfers,
)

__all__ = ["MAWI_DAY", "SCALING", "SCHEMES", "TESTBED_TESTS", "TITLES", "Case", "Outcome", "Settings", "outcomes",
           "run", "sample_transfers"]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submodules=["figures", "parts", "scenarios", "tables"],
    submod_attrs={"tables": ["paper", "scaling", "table_1"], "parts": ["PARTS"]},
)
