"""Which packets: by flow, host, port, protocol and time."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import ParameterError
from .keys import FlowKeys
from .protocols import protocol_number

__all__ = ["Selection"]


class Packets(Protocol):
    """What a selection looks at: a :class:`~cctoolkit.Capture`, or a part of one."""

    @property
    def columns(self) -> Any: ...
    @property
    def keys(self) -> FlowKeys: ...


@dataclass(frozen=True)
class Selection:
    """Packets that fit all that is given; None fits everything.

    Parameters
    ----------
    flow_id : int or iterable of int
    host : str
        An address or network (``"10.0.0.0/8"``, ``"2001:db8::/32"``), of either end.
    port : int
        Of either end.
    protocol : str or int
        ``"tcp"``, ``"udp"``, … or a number.
    start_s, stop_s : float
        Seconds from the capture's first packet, ``start_s <= t < stop_s``.

    Raises
    ------
    ParameterError
        A host that is no address, an unknown protocol, a port that cannot be, a time that stops before it starts.
    """

    flow_id: int | Iterable[int] | None = None
    host: str | None = None
    port: int | None = None
    protocol: str | int | None = None
    start_s: float | None = None
    stop_s: float | None = None

    def __post_init__(self) -> None:
        if self.host is not None:
            _network(self.host)
        if self.protocol is not None:
            protocol_number(self.protocol)
        if self.port is not None and not 0 <= self.port <= 65535:
            raise ParameterError(f"port: {self.port} is not between 0 and 65535")
        if self.start_s is not None and self.stop_s is not None and self.stop_s <= self.start_s:
            raise ParameterError(f"stop_s: {self.stop_s} is not after start_s = {self.start_s}")
        if self.flow_id is not None:
            wanted = [self.flow_id] if isinstance(self.flow_id, int | np.integer) else list(self.flow_id)
            object.__setattr__(self, "flow_id", tuple(int(f) for f in wanted))

    def __bool__(self) -> bool:
        """Whether anything is left out at all."""
        return any(value is not None for value in vars(self).values())

    def mask(self, cap: Packets, origin_ns: int) -> np.ndarray:
        """Which packets of a capture (or part) fit; `origin_ns` is the time of the whole capture's first packet."""
        keys = cap.keys
        flows = np.ones(len(keys), bool)
        if self.flow_id is not None:
            flows &= np.isin(keys.flow_id, np.asarray(self.flow_id))
        if self.host is not None:
            flows &= _has_end_in(keys, self.host)
        if self.port is not None:
            flows &= (keys.sport == self.port) | (keys.dport == self.port)
        if self.protocol is not None:
            flows &= keys.protocol == protocol_number(self.protocol)
        if flows.all():
            mask = np.ones(len(cap.columns["ts_ns"]), bool)
        else:
            mask = flows[np.searchsorted(keys.flow_id, cap.columns["flow_id"])]
        ts_ns = cap.columns["ts_ns"]
        if self.start_s is not None:
            mask &= ts_ns >= origin_ns + round(self.start_s * 1e9)
        if self.stop_s is not None:
            mask &= ts_ns < origin_ns + round(self.stop_s * 1e9)
        return mask


def _network(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(host, strict=False)
    except ValueError:
        raise ParameterError(f"host: {host!r} is no IP address or network") from None


def _has_end_in(keys: FlowKeys, host: str) -> np.ndarray:
    """Which flows have an end in an address or network."""
    network = _network(host)
    size = network.max_prefixlen // 8
    netmask = np.frombuffer(network.netmask.packed, np.uint8)
    wanted = np.frombuffer(network.network_address.packed, np.uint8)
    hit = np.zeros(len(keys), bool)
    for end in (keys.src, keys.dst):
        hit |= ((end[:, :size] & netmask) == wanted).all(axis=1)
    return hit & (keys.ip_version == network.version)
