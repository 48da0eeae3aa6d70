"""How much room a queue needs: the bandwidth-delay product, and what many flows leave of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ParameterError

__all__ = ["bdp_bytes", "stanford_buffer_bytes"]


def bdp_bytes(rate_mbps: Any, rtt_ms: Any) -> Any:
    """Bandwidth-delay product: what is under way when a path is just full.

    Parameters
    ----------
    rate_mbps, rtt_ms : positive number or array of them

    Returns
    -------
    float or array
        Bytes, not rounded.

    Raises
    ------
    ParameterError
        A value that is not above 0, or not finite.

    Examples
    --------
    >>> bdp_bytes(1000, 60)
    7500000.0
    """
    rate, rtt = _positive("rate_mbps", rate_mbps), _positive("rtt_ms", rtt_ms)
    product = rate * rtt * 125.0
    return float(product) if np.ndim(product) == 0 else product


def stanford_buffer_bytes(
    rate_mbps: Any, rtt_ms: Any, flows: Any = 1, *, minimum_packets: int = 10, packet_bytes: int = 1514
) -> Any:
    """Buffer of a queue with `flows` long flows: ``BDP / sqrt(flows)``, the paper's "Stanford rule".

    Parameters
    ----------
    rate_mbps : positive number or array
        What the queue can count on.
    rtt_ms : positive number or array
        The flows' mean round-trip time.
    flows : number or array, at least 1
    minimum_packets : int
        Never less than so many full packets: a window that grows by bursts needs them on any path, and the rule,
        made for backbone links, says nothing about such small products.
    packet_bytes : int

    Returns
    -------
    int or array of int64
        Bytes, rounded up.

    Raises
    ------
    ParameterError
        A value out of range.

    Notes
    -----
    Appenzeller, Keslassy and McKeown, "Sizing Router Buffers", SIGCOMM 2004: the sum of n sawtooths that are not
    in step varies by 1/sqrt(n) of what one does. A few flows are in step more often than not, and then lose
    throughput with it; the paper uses the rule with any number.
    """
    n = np.asarray(flows, np.float64)
    if not (np.isfinite(n) & (n >= 1)).all():
        raise ParameterError(f"flows: {flows!r} is not at least 1")
    least = minimum_packets * packet_bytes
    if least < 1:
        raise ParameterError("minimum_packets and packet_bytes: must be at least 1")
    room = np.ceil(np.maximum(bdp_bytes(rate_mbps, rtt_ms) / np.sqrt(n), least))
    return math.ceil(room) if np.ndim(room) == 0 else room.astype(np.int64)


def _positive(name: str, value: Any) -> np.ndarray:
    x = np.asarray(value, np.float64)
    if not (np.isfinite(x) & (x > 0)).all():
        raise ParameterError(f"{name}: {value!r} is not above 0")
    return x
