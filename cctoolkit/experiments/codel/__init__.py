"""The P4-CoDel paper's measurements on its three targets, and the causes of their differences.

Kundel, Rizk, Blendin, Koldehofe, Hark and Steinmetz, "P4-CoDel: Experiences on Programmable Data Plane Hardware"
(2021), section IV. The paper's numbers are in ``data/papers/p4-codel.csv``; :mod:`.scenarios` says what it leaves open.

Examples
--------
>>> from cctoolkit.experiments import codel
>>> found = codel.PARTS["table-1"].run(codel.Settings(seeds=4))      # doctest: +SKIP
>>> found.tables["table1"], found.figures["table1"]                  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import lazy_loader

from ..seeds import spread
from .command import run
from .scenarios import (
    GUESSES,
    KERNEL,
    TARGETS,
    TITLES,
    WRAPS,
    Settings,
    mixed_scenario,
    scenario,
    target,
    udp_scenario,
)

__all__ = ["GUESSES", "KERNEL", "TARGETS", "TITLES", "WRAPS", "Settings", "mixed_scenario", "run", "scenario",
           "spread", "target", "udp_scenario"]  # fmt: skip

_lookup, __dir__, _ = lazy_loader.attach(
    __name__,
    submodules=["conclusions", "figures", "parts", "tables", "variants"],
    submod_attrs={
        "tables": ["by_flow", "measured", "packet_delays", "paper_table_1", "standing"],
        "parts": ["PARTS"],
    },
)
#: Parts by the names of their functions in the other modules.
_FUNCTIONS = {
    "figure_5": "figure-5",
    "table_1": "table-1",
    "figure_7": "figure-7",
    "different_rtts": "rtts",
    "flow_queueing": "fq-codel",
    "if_3": "if-3",
    "square_roots": "square-root",
    "clock_wrap": "clock",
    "npu_losses": "npu",
}


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return _lookup("PARTS")[_FUNCTIONS[name]].run
    return _lookup(name)
