"""Flows that are the outside of a tunnel in UDP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .encapsulation import NOTHING, in_udp
from .keys import FlowKeys
from .protocols import UDP
from .reader import iter_capture
from .source import reads_twice

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["has_udp_tunnels", "is_udp_tunnel"]


def is_udp_tunnel(flows: FlowKeys | pd.DataFrame) -> np.ndarray:
    """Whether each flow is UDP on a port of a tunnel that ``tunnel="inner"`` looks into.

    Parameters
    ----------
    flows : FlowKeys or DataFrame
        With ``protocol``, ``sport`` and ``dport``.

    Returns
    -------
    bool, shape (n,)
    """
    layer_in = in_udp.py_func
    protocol, sport, dport = (np.asarray(getattr(flows, name)) for name in ("protocol", "sport", "dport"))
    udp = protocol == UDP
    to = [port for port in np.unique(dport[udp]).tolist() if layer_in(0, port) != NOTHING]
    of = [port for port in np.unique(sport[udp]).tolist() if layer_in(port, 0) != NOTHING]
    return udp & (np.isin(dport, to) | np.isin(sport, of))


def has_udp_tunnels(capture: str | Path) -> bool:
    """Whether a capture has such flows; False, unread, if it can be read only once."""
    return reads_twice(capture) and any(is_udp_tunnel(part.keys).any() for part in iter_capture(capture))
