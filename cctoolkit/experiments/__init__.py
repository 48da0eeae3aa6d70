"""Experiments: scenarios run and measured; the result is a folder of tables, figures, statements and a summary.

An experiment is a package here, all with the same layout (see ``part.py``), with a function ``run(output, *,
…) -> Path``: keyword options with defaults and, for the command line, ``Annotated[…, typer.Option(help=…)]``. It is
listed in :data:`EXPERIMENTS` under its name, which is the package's with hyphens; ``cct experiment NAME`` then has its
options. Importing an experiment imports nothing heavy, so that ``--help`` costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from ..errors import ParameterError
from . import lessons as lessons  # a public name of the package; light

__all__ = ["EXPERIMENTS", "experiment"]

#: Experiments by name, and what each does.
EXPERIMENTS = {
    "abc": "The ABC paper: three ways to share a link, with and without ABC, compared with CSFQ and fair queueing.",
    "codel": "The P4-CoDel paper: CoDel on its three targets, and where their differences come from.",
    "dragonfly": "The Dragonfly paper: identifying congestion controls from slots, with its network, DeePCCI and ours.",
    "l4s": "iRED and PI2 for L4S: Cubic and Prague in four configurations under four loads, with DualPI2.",
    "rtt-separation": "The RTT paper's six tests: queues by RTT, compared with one queue and with competing schemes.",
    "sim-vs-kernel": "The simulator compared with real Linux: utilisation, delay, loss, marks and shares.",
}


def experiment(name: str) -> Callable[..., Path]:
    """The function that runs an experiment.

    Parameters
    ----------
    name : str
        A name in :data:`EXPERIMENTS`.

    Returns
    -------
    function of (output, options)
        It returns the folder that it wrote.

    Raises
    ------
    ParameterError
        There is no such experiment.

    Examples
    --------
    >>> experiment("sim-vs-kernel")("out", only=["cubic"])            # doctest: +SKIP
    """
    if name not in EXPERIMENTS:
        raise ParameterError(f"experiment: {name!r} must be one of {', '.join(EXPERIMENTS)}")
    return importlib.import_module(f".{name.replace('-', '_')}", __name__).run
