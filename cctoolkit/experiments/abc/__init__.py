"""The three sharing experiments of the ABC paper, compared with references, and possible causes of its figure 6.

Menth, Mostafaei, Merling and Häberle, "Implementation and Evaluation of Activity-Based Congestion Management Using P4
(P4-ABC)", Future Internet 11(7), 2019, section 6. The paper's numbers are in ``data/papers/p4-abc.csv``;
:mod:`.scenarios` says what it leaves open.

Examples
--------
>>> import cctoolkit as cct
>>> from cctoolkit.experiments import abc
>>> abc.clients(cct.simulate(abc.scenario("tcp", 4)))      # doctest: +SKIP
"""

from __future__ import annotations

import lazy_loader

from .command import run
from .scenarios import (
    CAUSES,
    SCHEMES,
    SHARINGS,
    TITLES,
    WHY,
    Cause,
    Settings,
    Sharing,
    jobs,
    scenario,
    why_jobs,
)

__all__ = ["CAUSES", "SCHEMES", "SHARINGS", "TITLES", "WHY", "Cause", "Settings", "Sharing", "jobs", "run", "scenario",
           "why_jobs"]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submodules=["conclusions", "figures", "parts", "sources", "switch", "tables"],
    submod_attrs={
        "tables": ["clients", "integer_differences", "intervals", "verdicts"],
        "conclusions": ["statements"],
        "sources": ["by_source", "source_prefixes"],
        "parts": ["PARTS"],
    },
)
