"""Selecting packets by flow, host, port, protocol and time."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._support.arguments import number
from .._support.ranges import MOST_PORT
from ..errors import ParameterError
from .keys import FlowKeys
from .protocols import protocol_number

__all__ = ["Selection", "origin_of"]

#: The longest time from a capture's first packet that can be given.
_MOST_S = 2.0**33


def origin_of(cap: Packets) -> int | None:
    """Time of the first packet, from which start and stop count; None without packets.

    Of the first in the file, not of the earliest: one packet with a wrong time must not move the selection.
    """
    ts_ns = cap.columns["ts_ns"]
    return int(ts_ns[0]) if len(ts_ns) else None


class Packets(Protocol):
    """What a selection needs of a :class:`~cctoolkit.Capture` or a part of one."""

    @property
    def columns(self) -> Any: ...
    @property
    def keys(self) -> FlowKeys: ...


@dataclass(frozen=True)
class Selection:
    """Criteria for packets; a packet must match all that are given.

    Parameters
    ----------
    flow_id : int or iterable of int, optional
        Flow numbers.
    host : str, optional
        Address or network (``"10.0.0.0/8"``, ``"2001:db8::/32"``) of either end.
    port : int, optional
        Port of either end.
    protocol : str or int, optional
        ``"tcp"``, ``"udp"``, … or an IP protocol number.
    start_s, stop_s : float, optional
        Time since the first IP packet of the capture in s: ``start_s <= t < stop_s``.

    Raises
    ------
    ParameterError
        Invalid host or port, unknown protocol, or a stop before the start.

    See Also
    --------
    Capture.select : take these packets from a capture
    filter_capture : copy these packets to a new file

    Examples
    --------
    >>> cap = cct.example("mixed").ingress
    >>> first_second = cct.Selection(protocol="tcp", start_s=0, stop_s=1)
    >>> int(first_second.mask(cap, int(cap.columns["ts_ns"][0])).sum())
    1580
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
        if self.port is not None and not 0 <= self.port <= MOST_PORT:
            raise ParameterError(f"port: {self.port} must be between 0 and {MOST_PORT}")
        for name in ("start_s", "stop_s"):
            if (time_s := getattr(self, name)) is not None:
                number(name, time_s, low=-_MOST_S, high=_MOST_S)
        if self.start_s is not None and self.stop_s is not None and self.stop_s <= self.start_s:
            raise ParameterError(f"stop_s: {self.stop_s} must be greater than start_s = {self.start_s}")
        if self.flow_id is not None:
            wanted = [self.flow_id] if isinstance(self.flow_id, int | np.integer) else list(self.flow_id)
            object.__setattr__(self, "flow_id", tuple(int(f) for f in wanted))

    def __bool__(self) -> bool:
        """Whether there is any criterion."""
        return any(value is not None for value in vars(self).values())

    def flows_of(self, cap: Packets) -> np.ndarray | None:
        """Numbers of a capture's flows that match, whatever the time; None if all do."""
        flows = self._flows(cap.keys)
        return None if flows.all() else cap.keys.flow_id[flows]

    def mask(self, cap: Packets, origin_ns: int | None) -> np.ndarray:
        """Which packets of a capture (or part of one) match; `origin_ns` is the time of the capture's first packet."""
        flows = self._flows(cap.keys)
        if flows.all():
            mask = np.ones(len(cap.columns["ts_ns"]), bool)
        else:
            mask = flows[np.searchsorted(cap.keys.flow_id, cap.columns["flow_id"])]
        ts_ns = cap.columns["ts_ns"]
        origin_ns = origin_ns or 0  # None: there is no packet
        if self.start_s is not None:
            mask &= ts_ns >= origin_ns + round(self.start_s * 1e9)
        if self.stop_s is not None:
            mask &= ts_ns < origin_ns + round(self.stop_s * 1e9)
        return mask

    def _flows(self, keys: FlowKeys) -> np.ndarray:
        """Which flows match, whatever the time."""
        flows = np.ones(len(keys), bool)
        if self.flow_id is not None:
            flows &= np.isin(keys.flow_id, np.asarray(self.flow_id))
        if self.host is not None:
            flows &= _has_end_in(keys, self.host)
        if self.port is not None:
            flows &= (keys.sport == self.port) | (keys.dport == self.port)
        if self.protocol is not None:
            flows &= keys.protocol == protocol_number(self.protocol)
        return flows


def _network(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(host, strict=False)
    except ValueError:
        raise ParameterError(f"host: {host!r} is not an IP address or network") from None


def _has_end_in(keys: FlowKeys, host: str) -> np.ndarray:
    """Which flows have an end at this address or in this network."""
    network = _network(host)
    size = network.max_prefixlen // 8
    netmask = np.frombuffer(network.netmask.packed, np.uint8)
    wanted = np.frombuffer(network.network_address.packed, np.uint8)
    hit = np.zeros(len(keys), bool)
    for end in (keys.src, keys.dst):
        hit |= ((end[:, :size] & netmask) == wanted).all(axis=1)
    return hit & (keys.ip_version == network.version)
