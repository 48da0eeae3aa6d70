"""Buffer sizes: the bandwidth-delay product, and the rule for many flows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ParameterError

__all__ = ["bdp_bytes", "stanford_buffer_bytes"]


def bdp_bytes(rate_mbps: Any, rtt_ms: Any) -> Any:
    """Bandwidth-delay product: the data in flight when a path is just full.

    Parameters
    ----------
    rate_mbps, rtt_ms : positive number or array of them
        Rate in Mbit/s and RTT in ms.

    Returns
    -------
    float or array
        Product in bytes, not rounded.

    Raises
    ------
    ParameterError
        A value is not positive, or not finite.

    See Also
    --------
    stanford_buffer_bytes : buffer for many flows

    Examples
    --------
    >>> from cctoolkit.separation.buffers import bdp_bytes
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
        Guaranteed rate of the queue in Mbit/s.
    rtt_ms : positive number or array
        Mean RTT of the flows in ms.
    flows : number or array, at least 1
        Number of long flows.
    minimum_packets : int
        Smallest buffer in full packets: windows that grow in bursts need them on any path, and the rule, made for
        backbone links, does not apply to such small products.
    packet_bytes : int
        Size of a full packet in bytes.

    Returns
    -------
    int or array of int64
        Buffer in bytes, rounded up.

    Raises
    ------
    ParameterError
        A value is out of range.

    See Also
    --------
    bdp_bytes : bandwidth-delay product

    Notes
    -----
    Appenzeller, Keslassy and McKeown, "Sizing Router Buffers", SIGCOMM 2004: the sum of n unsynchronised sawtooths
    varies by 1/sqrt(n) of what a single one does. A few flows are often synchronised, and then lose throughput with
    this buffer; the RTT paper uses the rule for any number of flows.

    Examples
    --------
    >>> from cctoolkit.separation.buffers import stanford_buffer_bytes
    >>> stanford_buffer_bytes(1000, 60, flows=100)
    750000
    """
    n = np.asarray(flows, np.float64)
    if not (np.isfinite(n) & (n >= 1)).all():
        raise ParameterError(f"flows: {flows!r} must be at least 1")
    min_bytes = minimum_packets * packet_bytes
    if min_bytes < 1:
        raise ParameterError("minimum_packets and packet_bytes: must be at least 1")
    room = np.ceil(np.maximum(bdp_bytes(rate_mbps, rtt_ms) / np.sqrt(n), min_bytes))
    return math.ceil(room) if np.ndim(room) == 0 else room.astype(np.int64)


def _positive(name: str, value: Any) -> np.ndarray:
    x = np.asarray(value, np.float64)
    if not (np.isfinite(x) & (x > 0)).all():
        raise ParameterError(f"{name}: {value!r} must be positive")
    return x
