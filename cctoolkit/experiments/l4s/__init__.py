"""iRED and PI2 for L4S: Cubic and Prague through one bottleneck, in four configurations under four phases of load.

De Almeida, Maciel Jr. and Verdi, "Evaluating L4S Framework Performance with Programmable Data Plane Hardware",
section 5; its numbers are in ``data/papers/l4s-ired-pi2.csv``. The paper's two systems are compared with DualPI2 (RFC
9332), which it did not try, and with each of the two on the other's queues, which separates the effect of the
algorithms from that of the queues. :mod:`.scenarios` documents what the paper leaves open.

Examples
--------
>>> from cctoolkit.experiments import l4s
>>> l4s.Case("I", "PI2", phase_s=15).run().differences()      # doctest: +SKIP
"""

from __future__ import annotations

import lazy_loader

from ..runners import outcomes
from .cases import Case, Outcome, Settings
from .command import run
from .scenarios import (
    CAUSES,
    CONFIGURATIONS,
    JOINING,
    PAIRS,
    PUBLISHED,
    SENDERS,
    SYSTEMS,
    TITLES,
    UNEVEN,
    System,
    through,
)

__all__ = ["CAUSES", "CONFIGURATIONS", "JOINING", "PAIRS", "PUBLISHED", "SENDERS", "SYSTEMS", "TITLES", "UNEVEN",
           "Case", "Outcome", "Settings", "System", "outcomes", "run", "through"]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submodules=["figures", "kernel", "parts", "queues", "tables"],
    submod_attrs={
        "tables": ["drop_delays", "flow_goodputs", "identified_shares", "table_3"],
        "parts": ["PARTS"],
    },
)
