"""Every program is a bump in the wire: what comes in at one port leaves by the port it is wired to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cctoolkit.errors import ParameterError

from .switch import Switch

__all__ = [
    "PORTS", "RECIRCULATION_PORTS", "mirror_to_recirculation", "parse_wires", "pipe_of", "set_wires", "shape_ports",
]  # fmt: skip

#: A port's number has 9 bits.
PORTS = 512
#: In pipe 0 of a Tofino; each further pipe's is 128 higher. What leaves by them comes in again.
RECIRCULATION_PORTS = {"tofino": 68, "tofino2": 6}


def pipe_of(port: int) -> int:
    """The pipe of a Tofino that has a port."""
    return port >> 7


def set_wires(switch: Switch, wires: Mapping[int, int]) -> None:
    """Fill the table ``wire``, which every program has. Packets from other ports are dropped."""
    switch.use_ports({*wires, *wires.values()})
    for source, destination in wires.items():
        switch.add_entry("wire", {"port": source}, "send", {"port": destination})


def shape_ports(
    switch: Switch,
    wires: Mapping[int, int],
    rate_mbps: float | None,
    *,
    frame_bytes: int = 1514,
    buffer_packets: int | None = None,
) -> None:
    """Shape the ports that wires lead to, unless the rate is None; other parameters as in :meth:`Switch.shape`."""
    if rate_mbps is not None:
        for port in sorted(set(wires.values())):
            switch.shape(port, rate_mbps, frame_bytes=frame_bytes, buffer_packets=buffer_packets)


def mirror_to_recirculation(
    switch: Switch, wires: Mapping[int, int], copied_bytes: int, first: int | None = None
) -> list[int]:
    """Mirror the beginning of packets to the recirculation port of each pipe that has wires: its session is pipe + 1.

    Parameters
    ----------
    switch : Switch
        A Tofino.
    wires : dict of int to int
    copied_bytes : int
        Length of the copies.
    first : int, optional
        The port in pipe 0. Default: :data:`RECIRCULATION_PORTS`.

    Returns
    -------
    list of int
        The ports, where copies come in again.

    Raises
    ------
    ParameterError
        A wire uses such a port.
    """
    first = RECIRCULATION_PORTS[switch.target] if first is None else first
    ports = {pipe: first + (pipe << 7) for pipe in sorted({pipe_of(port) for port in wires})}
    for pipe, port in ports.items():
        if port in wires or port in wires.values():
            raise ParameterError(f"wires: port {port} is reserved for notifications")
        switch.mirror_session(pipe + 1, port, copied_bytes)
    return list(ports.values())


def parse_wires(texts: Iterable[str]) -> dict[int, int]:
    """Parse wires written as ``IN:OUT``."""
    wires: dict[int, int] = {}
    for text in texts:
        ends = text.split(":")
        if len(ends) != 2 or not all(x.isascii() and x.isdigit() and int(x) < PORTS for x in ends):
            raise ParameterError(f"--wire: {text!r} must be IN:OUT, two ports from 0 to {PORTS - 1}")
        source, destination = map(int, ends)
        if wires.setdefault(source, destination) != destination:
            raise ParameterError(f"--wire: port {source} cannot go to both {wires[source]} and {destination}")
    return wires
