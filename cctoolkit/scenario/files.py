"""Scenario files: TOML with the fields of scenarios, and lists of values to combine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .._support.arguments import short_text
from .._support.documents import read_toml
from ..errors import ParameterError
from .link_trace import read_link_trace
from .scenario import Scenario, scenario_of, sweep

__all__ = ["read_scenario", "read_sweep"]


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario from a TOML file, ignoring a ``[sweep]`` table.

    Parameters
    ----------
    path : path
        The file, with the fields of :class:`Scenario`, :class:`Bottleneck` and :class:`Flow`. In ``[bottleneck]``, it
        may have ``link_trace``, the path of a recorded link (see :func:`cctoolkit.read_link_trace`) from the file's
        folder, instead of ``rate_mbps`` and ``rate_schedule``.

    Returns
    -------
    Scenario
        The scenario.

    Raises
    ------
    ParameterError
        The file or a field is invalid; the text names both.

    See Also
    --------
    Scenario.to_toml : the way back
    simulate : run a scenario

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50), flows=[cct.Flow("reno")], duration_s=2
    ... )
    >>> with open("reno.toml", "w") as file:
    ...     _ = file.write(scenario.to_toml())
    >>> cct.read_scenario("reno.toml") == scenario
    True
    """
    table = read_toml(path)
    table.pop("sweep", None)
    with _errors_name(path):
        return scenario_of(_with_link_trace(table, Path(path).parent))


@contextlib.contextmanager
def _errors_name(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except ParameterError as err:
        raise err.within(os.fspath(path)) from None


def _with_link_trace(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The tables with the rates of ``bottleneck.link_trace``, a path from the folder of the scenario's file."""
    bottleneck = table.get("bottleneck")
    if not isinstance(bottleneck, dict) or "link_trace" not in bottleneck:
        return table
    rest = {name: value for name, value in bottleneck.items() if name != "link_trace"}
    for name in ("rate_mbps", "rate_schedule"):
        if name in rest:
            raise ParameterError(f"bottleneck.{name}: the rates are those of bottleneck.link_trace")
    trace = short_text("bottleneck.link_trace", bottleneck["link_trace"])
    (_, first), *changes = read_link_trace(folder / trace, duration_s=table.get("duration_s"))
    return {**table, "bottleneck": {**rest, "rate_mbps": first, "rate_schedule": changes}}


def read_sweep(path: str | os.PathLike[str]) -> list[tuple[dict[str, Any], Scenario]]:
    """Read the scenarios of a TOML file with a ``[sweep]`` table (lists by quoted path), else a single scenario.

    Raises
    ------
    ParameterError
        The file or a field is invalid; the text names both.

    See Also
    --------
    cctoolkit.sweep : the same from a dict
    cctoolkit.run_sweep : simulates the scenarios

    Examples
    --------
    >>> from pathlib import Path
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100), flows=[cct.Flow("cubic")], duration_s=2
    ... )
    >>> _ = Path("grid.toml").write_text(scenario.to_toml() + '[sweep]\\n"bottleneck.aqm" = ["codel", "pie"]\\n')
    >>> [changes for changes, _ in read_sweep("grid.toml")]
    [{'bottleneck.aqm': 'codel'}, {'bottleneck.aqm': 'pie'}]
    """
    table = read_toml(path)
    grid = table.pop("sweep", {})
    with _errors_name(path):
        if not isinstance(grid, Mapping):
            raise ParameterError("sweep: must be a table of lists by path")
        return list(sweep(scenario_of(_with_link_trace(table, Path(path).parent)), grid))
