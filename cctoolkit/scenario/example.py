"""Real captures bundled with the package, for examples."""

from __future__ import annotations

from pathlib import Path

from .._support.words import did_you_mean
from ..errors import ParameterError
from .run import Run, load_run

__all__ = ["example", "example_folder", "example_path"]


def example_folder() -> Path:
    """Folder of the bundled captures: beside this file in a wheel, ``traces/`` in a checkout."""
    here = Path(__file__).parent / "example_traces"
    return here if here.is_dir() else Path(__file__).parents[2] / "traces"


def example_path(name: str, tap: str | None = None) -> Path:
    """Path of a bundled capture at a tap (``"ingress"`` or ``"egress"``); without one, the common part of both.

    Raises
    ------
    ParameterError
        There is no such example.
    """
    folder = example_folder()
    names = sorted(path.name.removesuffix(".ingress.pcap.gz") for path in folder.glob("*.ingress.pcap.gz"))
    if name not in names:
        raise ParameterError(f"name: {name!r} must be one of {', '.join(names)}{did_you_mean(name, names)}")
    return folder / (name if tap is None else f"{name}.{tap}.pcap.gz")


def example(name: str = "bufferbloat") -> Run:
    """Open a bundled pair of captures: real Linux TCP through a bottleneck, tapped before and after the queue.

    Parameters
    ----------
    name : str
        ``"bufferbloat"``, ``"cubic-bbr"``, ``"mixed"``, …; an unknown name lists them all. ``traces/README.md``
        describes them.

    Returns
    -------
    Run
        ``ingress`` and ``egress`` are the captures; ``labels`` has the congestion control of each flow.

    Raises
    ------
    ParameterError
        There is no such example.

    See Also
    --------
    load_run : open captures of your own
    simulate : simulate a run

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> run.labels["cca"].tolist()
    ['cubic', 'bbr']
    >>> len(run.ingress), len(run.egress)
    (13160, 13004)
    """
    return load_run(example_path(name))
