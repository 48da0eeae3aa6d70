"""Input of the figures: flows to draw, their names, time since the capture's start."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from .._support import arguments
from .._support.words import endpoint
from ..capture.keys import FlowKeys
from ..capture.model import Capture
from ..capture.protocols import protocol_name
from ..errors import ParameterError
from .style import escape

__all__ = ["Names", "endpoint", "pick_flows", "seconds_since", "sides_of", "start_of", "table_of"]


def table_of(
    value: Any,
    name: str,
    origin: str,
    numbers: Iterable[str],
    others: Iterable[str] = (),
    whole: Iterable[str] = (),
) -> pd.DataFrame:
    """`value`, if it is a table with these columns; see :func:`cctoolkit._support.arguments.table`."""
    return arguments.table(name, value, numbers, others, whole=whole, origin=origin)


def start_of(cap: Any, ts_ns: np.ndarray) -> int:
    """The time that is 0 s on the axes: the capture's first packet, else the minimum of `ts_ns`."""
    if isinstance(cap, Capture) and len(cap):
        return cap.meta.first_ts_ns
    return int(ts_ns.min()) if len(ts_ns) else 0


def seconds_since(ts_ns: np.ndarray, start_ns: int) -> np.ndarray:
    """Nanoseconds as seconds since `start_ns`, subtracted before the float loses digits."""
    return (np.asarray(ts_ns, np.int64) - np.int64(start_ns)) / 1e9


def pick_flows(
    sizes: Mapping[int, float] | pd.Series,
    flows: Iterable[int] | int | None,
    most: int,
    known: Callable[[int], bool] = lambda flow: False,
) -> list[int]:
    """The flows to draw: those in `flows`, in that order, else the `most` largest, largest first.

    Raises
    ------
    ParameterError
        A flow in `flows` is neither in `sizes` nor `known`.
    """
    sizes = pd.Series(sizes, dtype=np.float64)
    if flows is None:
        return [int(f) for f in sizes.nlargest(most).index]
    picked = [int(f) for f in np.atleast_1d(np.asarray(flows if np.isscalar(flows) else list(flows)))]  # type: ignore[arg-type]
    for flow in picked:
        if flow not in sizes.index and not known(flow):
            raise ParameterError(f"flows: there is no flow {flow}")
    return picked


def sides_of(samples: pd.DataFrame, flow: int) -> list[tuple[int, np.ndarray]]:
    """The directions of a flow worth drawing, each with its rows of `samples`.

    The one with more samples, and the other if it has at least five samples and 5 % of all: the few of the handshake
    and the end would only clutter a figure.
    """
    mine = np.flatnonzero(samples["flow_id"].to_numpy() == flow)
    direction = samples["direction"].to_numpy()[mine]
    sides = [(side, mine[direction == side]) for side in (0, 1)]
    minimum = min(max(5, mine.size / 20), max(rows.size for _, rows in sides))
    return [(side, rows) for side, rows in sides if rows.size >= max(minimum, 1)]


class Names:
    """Names of flows for legends and hover texts.

    Parameters
    ----------
    source : Capture, flows DataFrame or None
        Source of the addresses. Without it, flows are named by their numbers.

    See Also
    --------
    throughput, rtt, queue_delay : figures that name flows this way

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> cct.plot.Names(run.ingress).short(0)
    '0: 10.1.0.10:40000 → 10.3.0.10:5001'
    """

    def __init__(self, source: Any = None) -> None:
        self._keys: FlowKeys | None = source.keys if isinstance(source, Capture) else None
        self._table = (
            arguments.table("flows", source, ("flow_id", "sport", "dport", "protocol"), ("src", "dst"))
            .drop_duplicates("flow_id")
            .set_index("flow_id")
            if isinstance(source, pd.DataFrame) and "src" in source
            else None
        )

    def _ends(self, flow_id: int) -> tuple[str, int, str, int, int] | None:
        if self._keys is not None:
            ids = self._keys.flow_id
            row = int(np.searchsorted(ids, flow_id))
            if row < len(ids) and ids[row] == flow_id:
                size = 4 if self._keys.ip_version[row] == 4 else 16
                src, dst = (
                    str(ipaddress.ip_address(bytes(side[row][:size])))
                    for side in (self._keys.src, self._keys.dst)
                )
                return (
                    src,
                    int(self._keys.sport[row]),
                    dst,
                    int(self._keys.dport[row]),
                    int(self._keys.protocol[row]),
                )
        if self._table is not None and flow_id in self._table.index:
            flow: Any = self._table.loc[flow_id]
            return flow["src"], int(flow["sport"]), flow["dst"], int(flow["dport"]), int(flow["protocol"])
        return None

    def has(self, flow_id: int) -> bool:
        """Whether the source knows this flow."""
        return self._ends(flow_id) is not None

    def short(self, flow_id: int, direction: int = 0) -> str:
        """A short name for legends: long addresses are abbreviated; the arrow points in `direction`."""
        return self._name(
            flow_id, direction, lambda host: host if len(host) <= 17 else f"{host[:8]}…{host[-8:]}"
        )

    def long(self, flow_id: int, direction: int = 0) -> str:
        """The full 5-tuple."""
        ends = self._ends(flow_id)
        protocol = "" if ends is None else " " + protocol_name(ends[4])
        return self._name(flow_id, direction, str) + protocol

    def _name(self, flow_id: int, direction: int, shorten: Callable[[str], str]) -> str:
        ends = self._ends(flow_id)
        if ends is None:
            return f"flow {flow_id}" + ("" if direction == 0 else " ←")
        src, sport, dst, dport, _ = ends
        arrow = "→" if direction == 0 else "←"
        return escape(f"{flow_id}: {endpoint(shorten(src), sport)} {arrow} {endpoint(shorten(dst), dport)}")
