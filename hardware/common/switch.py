"""What a control plane asks of a switch: tables, registers, digests, shaping.

The same for a Tofino through the Barefoot Runtime (``bfrt.py``) and for BMv2 through its Thrift port (``bmv2.py``), so
that a program's control plane is written once. Names are those of the P4 source without the path to them
(``"forward"``, not ``"SwitchIngress.forward"``); where two controls have the same name the path is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from cctoolkit.errors import CCToolkitError

__all__ = ["Exact", "Lpm", "Range", "Switch", "SwitchError", "SwitchGoneError", "Ternary"]


class SwitchError(CCToolkitError):
    """The switch refused something: no such table, no room, a value out of range."""


class SwitchGoneError(SwitchError):
    """The switch does not answer (any more)."""


@dataclass(frozen=True)
class Exact:
    """Matches one value; a plain int means the same."""

    value: int


@dataclass(frozen=True)
class Lpm:
    """Matches the values whose first `prefix_bits` bits are those of `value`."""

    value: int
    prefix_bits: int


@dataclass(frozen=True)
class Ternary:
    """Matches the values that agree with `value` where `mask` has ones."""

    value: int
    mask: int


@dataclass(frozen=True)
class Range:
    """Matches from `low` to `high`, both included."""

    low: int
    high: int


Key = int | Exact | Lpm | Ternary | Range


class Switch(ABC):
    """A running switch with a program in it. A context manager: leaving it closes the connection, not the switch.

    Every method raises :class:`SwitchGoneError` when the switch does not answer and :class:`SwitchError` when it
    refuses. After the former, :meth:`reconnect` tries again; what was set before is still there if the switch
    kept running, and :meth:`add_entry` on an entry that is there replaces it, so a set-up can simply be repeated.
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
        """End the connection."""

    @abstractmethod
    def reconnect(self, timeout_s: float = 10.0) -> None:
        """Connect again, trying until the time is over."""

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
        """Put an entry in, or replace the one with these keys.

        Parameters
        ----------
        table : str
        keys : dict
            By the key's name in the source (the ``@name``, or the expression).
        action : str
        data : dict of str to int, optional
            The action's parameters.
        priority : int
            Among ternary and range entries the lowest number wins.
        """

    @abstractmethod
    def delete_entry(self, table: str, keys: Mapping[str, Key]) -> None:
        """Take an entry out; it is an error if it is not there."""

    @abstractmethod
    def clear_table(self, table: str) -> None:
        """Take all entries out."""

    @abstractmethod
    def set_default(self, table: str, action: str, data: Mapping[str, int] | None = None) -> None:
        """What the table does without a match."""

    @abstractmethod
    def read_register(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        """Cells of a register.

        Returns
        -------
        array of uint64, shape (count,)
            Without `count` all from `first` on. A register of pairs (a P4 struct of two fields) is a structured array
            with the fields' names.

        Notes
        -----
        On a Tofino each pipe has a copy of its own; this is that of the connection's pipe. BMv2 has no registers of
        structs: there a register NAME of {a, b} is written as two, ``NAME_a`` and ``NAME_b``, and read here as one.
        """

    @abstractmethod
    def write_register(self, name: str, value: int | Mapping[str, int], index: int | None = None) -> None:
        """Set one cell, or all without `index`."""

    @abstractmethod
    def digests(
        self, name: str, fields: Sequence[str] = (), timeout_s: float = 0.0
    ) -> Iterator[Mapping[str, Any]]:
        """What the data plane has sent under this name since the last call; waits so long for the first.

        Parameters
        ----------
        name : str
            Of the struct.
        fields : sequence of str
            Its fields, in order: BMv2's compiler forgets their names. A Tofino knows them.
        timeout_s : float
        """

    @abstractmethod
    def shape(
        self, port: int, rate_mbps: float, *, frame_bytes: int = 1514, buffer_packets: int | None = None
    ) -> None:
        """Let a port send at most so fast, and its queue hold at most so many packets.

        BMv2 counts packets: there the rate is exact for frames of `frame_bytes` only. A Tofino shapes bytes and
        holds buffers in cells; `frame_bytes` says how many of them a packet takes.
        """

    def mirror_session(self, session_id: int, port: int, max_bytes: int | None = None) -> None:
        """Where the copies of a session go, and how long they are at most (BMv2: the program says that)."""
        raise SwitchError(f"{self.target}: no mirror sessions")

    def weight(self, port: int, queue: int, weight: int) -> None:
        """A queue's share, 0 to 1023, among the queues of its port with the same priority."""
        raise SwitchError(f"{self.target}: queues have no weights, only strict priorities")
