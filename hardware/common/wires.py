"""Every program is a bump in the wire: what comes in at a port leaves by the one that it is led to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cctoolkit.errors import ParameterError

from .switch import Switch

__all__ = ["lead", "wires_of"]

_PORTS = 512


def lead(switch: Switch, wires: Mapping[int, int]) -> None:
    """Fill the table that each program has for it; packets of other ports are dropped."""
    for source, destination in wires.items():
        switch.add_entry("wire", {"port": source}, "send", {"port": destination})


def wires_of(texts: Iterable[str]) -> dict[int, int]:
    """Wires from ``IN:OUT``."""
    wires: dict[int, int] = {}
    for text in texts:
        ends = text.split(":")
        if len(ends) != 2 or not all(x.isascii() and x.isdigit() and int(x) < _PORTS for x in ends):
            raise ParameterError(f"--wire: {text!r} is not IN:OUT, two ports")
        source, destination = map(int, ends)
        if wires.setdefault(source, destination) != destination:
            raise ParameterError(f"--wire: port {source} leads to {wires[source]} and to {destination}")
    return wires
