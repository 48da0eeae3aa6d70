"""The control planes' interface to a switch: tables, registers, digests, shaping.

It is the same for a Tofino through the Barefoot Runtime (``bfrt.py``) and for BMv2 through its Thrift port
(``bmv2.py``), so a program's control plane is written once. Names are those of the P4 source without their
path (``"forward"``, not ``"SwitchIngress.forward"``). Where two controls use the same name, the path is
required.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from cctoolkit.errors import CCToolkitError

__all__ = [
    "Exact",
    "Lpm",
    "Range",
    "Switch",
    "SwitchError",
    "SwitchGoneError",
    "Ternary",
    "check_shape",
]


class SwitchError(CCToolkitError):
    """The switch refused a request: no such table, no room, a value out of range."""


class SwitchGoneError(SwitchError):
    """The switch does not answer, or no longer does."""


@dataclass(frozen=True)
class Exact:
    """Matches one value. A plain int means the same."""

    value: int


@dataclass(frozen=True)
class Lpm:
    """Matches values whose first `prefix_bits` bits are those of `value`."""

    value: int
    prefix_bits: int


@dataclass(frozen=True)
class Ternary:
    """Matches values that equal `value` where `mask` has ones."""

    value: int
    mask: int


@dataclass(frozen=True)
class Range:
    """Matches values from `low` to `high`, inclusive."""

    low: int
    high: int


Key = int | Exact | Lpm | Ternary | Range


class Switch(ABC):
    """A running switch with a program loaded. As a context manager, it closes the connection, not the switch.

    Every method raises :class:`SwitchGoneError` if the switch does not answer and :class:`SwitchError` if it
    refuses. After the former, :meth:`reconnect` tries again. If the switch kept running, it still has its
    state. :meth:`add_entry` replaces an existing entry, so a set-up can simply be repeated.
    """

    #: "tofino", "tofino2" or "bmv2".
    target: str

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def reconnect(self, timeout_s: float = 10.0) -> None:
        """Connect again; retry until the timeout."""

    def use_ports(self, ports: Iterable[int]) -> None:  # noqa: B027  # not every switch has pipes
        """Say which ports the program's packets pass, so that their pipe's registers are read.

        By default this does nothing: a switch other than a Tofino has only one pipe.
        """

    @abstractmethod
    def add_entry(
        self,
        table: str,
        keys: Mapping[str, Key],
        action: str,
        data: Mapping[str, int] | None = None,
        *,
        priority: int = 0,
    ) -> None:
        """Add an entry, or replace the one with these keys.

        Parameters
        ----------
        table : str
        keys : dict
            By the key's name in the source: its ``@name``, or the expression.
        action : str
        data : dict of str to int, optional
            The action's parameters.
        priority : int
            Of ternary and range entries. The lowest number wins.
        """

    @abstractmethod
    def delete_entry(self, table: str, keys: Mapping[str, Key]) -> None:
        """Delete an entry, which must exist."""

    @abstractmethod
    def clear_table(self, table: str) -> None:
        """Delete all entries."""

    @abstractmethod
    def set_default(self, table: str, action: str, data: Mapping[str, int] | None = None) -> None:
        """Set the action for packets without a match."""

    @abstractmethod
    def read_register(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        """Read a register.

        Returns
        -------
        array of uint64, shape (count,)
            Without `count`, all cells from `first` on. A register of pairs (a P4 struct of two fields) is a
            structured array with the fields' names.

        Notes
        -----
        On a Tofino each pipe has its own copy; this is the copy of the pipe that has the ports of
        :meth:`use_ports`. BMv2 has no registers of structs: a register NAME of {a, b} is two registers there,
        ``NAME_a`` and ``NAME_b``, and read here as one.
        """

    @abstractmethod
    def write_register(self, name: str, value: int | Mapping[str, int], index: int | None = None) -> None:
        """Set one cell; without `index`, all cells."""

    @abstractmethod
    def digests(
        self, name: str, fields: Sequence[str] = (), timeout_s: float = 0.0
    ) -> Iterator[Mapping[str, Any]]:
        """Digests that the data plane has sent under this name since the last call.

        Parameters
        ----------
        name : str
            The struct's name.
        fields : sequence of str
            The struct's fields, in order. BMv2 needs them because its compiler drops the names; a Tofino does
            not.
        timeout_s : float
            Longest wait for the first digest.
        """

    @abstractmethod
    def shape(
        self, port: int, rate_mbps: float, *, frame_bytes: int = 1514, buffer_packets: int | None = None
    ) -> None:
        """Limit a port's rate and its queue.

        BMv2 counts packets, so its rate is exact only for frames of `frame_bytes`. A Tofino shapes bytes and
        allocates buffers in cells; `frame_bytes` determines how many cells a packet takes. Both refuse what
        :func:`check_shape` refuses.
        """

    def queue_count(self, port: int) -> int:
        """Number of queues that a port has."""
        raise SwitchError(f"{self.target}: does not say how many queues a port has")

    def mirror_session(self, session_id: int, port: int, max_bytes: int | None = None) -> None:
        """Set where a session's copies go and their maximum length (on BMv2, the program sets the length)."""
        raise SwitchError(f"{self.target}: has no mirror sessions")

    def weight(self, port: int, queue: int, weight: int) -> None:
        """Set a queue's weight, 0 to 1023, among its port's queues of the same priority."""
        raise SwitchError(f"{self.target}: queues have strict priorities, no weights")


def check_shape(port: int, rate_mbps: float, frame_bytes: int, buffer_packets: int | None) -> None:
    """Refuse numbers with which no port can be shaped.

    Raises
    ------
    SwitchError
        The rate is not a positive number, or the frame or the buffer is smaller than 1.
    """
    if not (rate_mbps > 0 and math.isfinite(rate_mbps)):
        raise SwitchError(f"port {port}: the rate must be positive, not {rate_mbps} Mbit/s")
    if frame_bytes < 1:
        raise SwitchError(f"port {port}: a frame must have at least 1 byte, not {frame_bytes}")
    if buffer_packets is not None and buffer_packets < 1:
        raise SwitchError(
            f"port {port}: the buffer must have room for at least 1 packet, not {buffer_packets}"
        )
