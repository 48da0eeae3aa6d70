"""Sources of cells: the interface of collectors, and the kernel's.

:class:`Collector` describes the methods of a collector: ``add``, ``remove``, ``heavy``, ``read`` and ``wait``.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..._support.arguments import positive_ns
from ...analysis.sender_view import LEAST_ECHOES
from ...analysis.slots import CELL
from ...errors import ParameterError
from .errors import CollectorError
from .program import programs, require

__all__ = ["Collector", "FlowKey", "KernelCollector", "Reading"]


class FlowKey(NamedTuple):
    """One direction of a TCP connection.

    See Also
    --------
    watch : monitor given flows
    CaptureCollector : where flows can come from

    Examples
    --------
    >>> key = cct.live.FlowKey("10.0.0.1", 40000, "10.0.1.1", 443)
    >>> key.dport
    443
    """

    src: str
    sport: int
    dst: str
    dport: int


@dataclass
class Reading:
    """The data collected since the previous reading.

    Attributes
    ----------
    in_cells, out_cells : arrays of ``cctoolkit.analysis.slots.CELL``
        Cells of the monitored flows at the two taps; ways are twice the numbers given to :meth:`Collector.add`. A cell
        without packets at the ingress means that data were acknowledged.
    until_slot : int
        Cells of earlier slots are complete.
    counts : dict
        Totals by tap (``"ingress"``, ``"egress"``): ``packets``, TCP ``segments`` with data, those ``monitored``, of
        them ``sampled`` (counted in cells), their ``cells``, ``lost_cells`` and ``lost_packets``. The kernel also has
        ``"acks"`` for packets that leave by an ingress interface: there ``segments`` are acknowledgements, and
        ``sampled`` those that acknowledge new data.
    missed_until : int or None
        Unread data of slots before this one are lost; nothing is known about these slots.

    See Also
    --------
    Collector : gives them

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> collector = cct.live.CaptureCollector(run.ingress, run.egress, slot_ms=10)
    >>> more = collector.wait(collector.now_ns + 1_000_000_000)
    >>> collector.read().counts["ingress"]["packets"] > 0
    True
    """

    in_cells: np.ndarray
    out_cells: np.ndarray
    until_slot: int
    counts: dict[str, Any] = field(default_factory=dict)
    missed_until: int | None = None


class Collector(Protocol):
    """The interface of a collector for :func:`cctoolkit.identify.live.watch`.

    See Also
    --------
    KernelCollector : on a live link
    CaptureCollector : on captures
    watch : the loop that uses one

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> collector = cct.live.CaptureCollector(run.ingress, run.egress, slot_ms=10)
    >>> more = collector.wait(collector.now_ns + 1_000_000_000)
    >>> (key, payload_bytes), *rest = collector.heavy(least_bytes=10_000)
    >>> collector.add(0, key)
    >>> more = collector.wait(collector.now_ns + 1_000_000_000)
    >>> len(collector.read().in_cells) > 0
    True
    """

    slot_ns: int
    sampled: bool  # byte and packet counts do not cover all packets
    has_egress: bool

    def add(self, number: int, key: FlowKey) -> None:
        """Start monitoring a flow under this number."""

    def remove(self, key: FlowKey) -> None:
        """Stop monitoring a flow."""

    def heavy(self, least_bytes: int) -> list[tuple[FlowKey, int]]:
        """Flows with at least this many bytes of data at the ingress since the last call, and their bytes."""

    def read(self) -> Reading:
        """Return new data."""

    def rtts(self) -> dict[int, tuple[float, float]]:
        """The shortest RTTs in ns from the tap to the receiver and to the sender of monitored flows, by number.

        As far as TCP timestamps have shown them.
        """

    def wait(self, until_ns: int) -> bool:
        """Wait until a time (Unix epoch); False if nothing more will come."""

    @property
    def now_ns(self) -> int: ...

    def close(self) -> None: ...


_REPLY = struct.Struct("<iI")
_COUNTS = ("packets", "segments", "monitored", "sampled", "cells", "lost_cells", "lost_packets")
_HOOKS = ("ingress", "egress", "acks")
_READING = struct.Struct(f"<q{len(_HOOKS) * len(_COUNTS)}Q")
_HEAVY = np.dtype(
    [
        ("src", np.uint8, 16),
        ("dst", np.uint8, 16),
        ("sport", ">u2"),
        ("dport", ">u2"),
        ("version", np.uint32),
        ("bytes", np.uint64),
    ]
)
_TAP_RTTS = np.dtype(
    [
        ("number", np.uint32),
        ("samples", np.uint32, 2),
        ("padding", np.uint32),
        ("shortest_ns", np.int64, 2),
    ]
)
#: Each takes about 400 bytes of the kernel's memory from the start.
_MOST_FLOWS = 2**20
#: Maximum time between a packet's time stamp and its being counted.
_GRACE_NS = 2_000_000


class KernelCollector:
    """The eBPF collector on this machine's interfaces (``hardware/ebpf``). It only listens.

    Parameters
    ----------
    ingress, egress : str or sequence of str
        Interfaces of this network namespace through which packets enter and leave.
    slot_ms, sampling
        As :func:`cctoolkit.compute_slots`; sampling is done in the kernel. Random samples differ each time.
    max_flows : int
        Maximum number of monitored flows.
    buffer_mb : float
        Buffer for cells between two readings (rounded up to a power of two). When it is full, cells are lost and
        counted.
    egress_hook : "queue" or "tc"
        Where leaving packets are seen: after the interface's queueing discipline, as in packet captures, or at tc's
        egress hook before it (for queues elsewhere, as on an intermediate device).

    Raises
    ------
    CollectorUnavailableError
        This machine cannot run it; see :func:`cctoolkit.identify.live.missing`.
    CollectorError
        An interface does not exist, or the kernel refuses.
    ParameterError

    See Also
    --------
    CaptureCollector : the same from captures, without root
    missing : what this machine lacks
    watch : the loop that uses a collector

    Notes
    -----
    Follows section III-C of Carmel and Keslassy with one difference: the kernel hands over cells, not packets, so the
    amount of data does not grow with the rate even if all packets are counted. Only TCP segments in IPv4 or IPv6, with
    up to four VLAN tags, are seen; tunnels are not decoded. Acknowledgements are seen if they leave by an ingress
    interface; bytes in flight are then those of a capture there. If they return by another interface, or packets are
    sampled, bytes in flight are null. Times are CLOCK_REALTIME. Nothing is pinned: hooks and maps belong to a helper
    process and disappear with it, however this process ends.

    Examples
    --------
    >>> collector = cct.live.KernelCollector("eth0", "eth1")  # doctest: +SKIP
    >>> for update in cct.live.watch(collector, heavy=10):  # doctest: +SKIP
    ...     print(update.flows)
    """

    def __init__(
        self,
        ingress: str | Sequence[str],
        egress: str | Sequence[str] = (),
        *,
        slot_ms: float = 1.0,
        sampling: str | float = "all",
        max_flows: int = 1024,
        buffer_mb: float = 32,
        egress_hook: str = "queue",
    ) -> None:
        names_in = [ingress] if isinstance(ingress, str) else list(ingress)
        names_out = [egress] if isinstance(egress, str) else list(egress)
        if not names_in:
            raise ParameterError("ingress: expected at least one interface")
        if sampling not in ("all", "first") and (isinstance(sampling, str) or not 0 < sampling <= 1):
            raise ParameterError(f"sampling: {sampling!r} must be 'all', 'first' or a probability, at most 1")
        if egress_hook not in ("queue", "tc"):
            raise ParameterError(f"egress_hook: {egress_hook!r} is neither 'queue' nor 'tc'")
        if not 1 <= max_flows <= _MOST_FLOWS or not 0.01 <= buffer_mb <= 1024:
            raise ParameterError(
                f"max_flows must be from 1 to {_MOST_FLOWS}, and buffer_mb from 0.01 to 1024"
            )
        self.slot_ns = positive_ns(slot_ms, 1e6, "slot_ms")
        self.sampled = sampling not in ("all", 1)
        self.has_egress = bool(names_out)
        self._clock_ns = time.time_ns()
        require()
        kernel, helper = programs()
        ring_bytes = 4096  # a power of two, in whole pages
        while ring_bytes < buffer_mb * 2**20:
            ring_bytes *= 2
        settings = {
            "slot_ns": self.slot_ns,
            "sampling": "all" if sampling == 1 else sampling,
            "flows": max_flows,
            "cells_bytes": ring_bytes,
            "after": egress_hook,
        }
        command = [str(helper), str(kernel), *(f"{name}={value}" for name, value in settings.items())]
        command += [f"ingress={name}" for name in names_in] + [f"egress={name}" for name in names_out]
        # a pipe that nobody reads would block the helper once it is full
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the rest
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C at the terminal is for this process only
        )
        try:
            self._receive("start")
        except BaseException:
            self.close()
            raise

    @property
    def helper(self) -> int:
        """The helper process, which holds hooks and maps."""
        return self._process.pid

    def _receive(self, what: str) -> bytes:
        assert self._process.stdout is not None
        head = self._process.stdout.read(_REPLY.size)
        if len(head) < _REPLY.size:
            self._process.wait()
            self._errors.seek(0)
            errors = self._errors.read().decode(errors="replace").strip().splitlines()
            why = errors[-1].removeprefix("collector: ") if errors else "it ended"
            raise CollectorError(f"live: {why}")
        error, size = _REPLY.unpack(head)
        if error:
            raise CollectorError(f"live: {what}: {_reason(error)}")
        return self._process.stdout.read(size)

    def _ask(self, line: str) -> bytes:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the missing answer is reported below
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        return self._receive(line)

    def add(self, number: int, key: FlowKey) -> None:
        """Start monitoring a flow under this number.

        Raises
        ------
        CollectorError
            There is no room, the flow is monitored already, or an address is invalid.
        """
        self._ask(f"add {number} {_words(key)}")

    def remove(self, key: FlowKey) -> None:
        """Stop monitoring a flow; data collected since the last reading are lost.

        Raises
        ------
        CollectorError
            The flow is not monitored.
        """
        self._ask(f"remove {_words(key)}")

    def heavy(self, least_bytes: int) -> list[tuple[FlowKey, int]]:
        """Flows with at least this many bytes of data at the ingress since the last call, and their bytes.

        Bytes come from a count-min sketch, so they are never too few. The first call starts counting; 0 stops it.
        """
        rows = np.frombuffer(self._ask(f"heavy {least_bytes}"), _HEAVY)
        return [
            (
                FlowKey(
                    _address(row["src"], row["version"]),
                    int(row["sport"]),
                    _address(row["dst"], row["version"]),
                    int(row["dport"]),
                ),
                int(row["bytes"]),
            )
            for row in rows
        ]

    def read(self) -> Reading:
        """Cells since the last reading. Cells of an unfinished slot are split.

        Raises
        ------
        CollectorError
            An interface was removed.
        """
        data = self._ask("read")
        clock_ns, *numbers = _READING.unpack_from(data)
        self._clock_ns = clock_ns
        cells = np.frombuffer(data, CELL, offset=_READING.size)
        leaves = (cells["way"] & 1).astype(np.bool_)
        sides = cells[~leaves].copy(), cells[leaves].copy()
        for side in sides:
            side["way"] &= ~1
        counts: dict[str, Any] = {
            hook: dict(zip(_COUNTS, numbers[i * len(_COUNTS) :], strict=False))
            for i, hook in enumerate(_HOOKS)
        }
        return Reading(*sides, (clock_ns - _GRACE_NS) // self.slot_ns, counts)

    def rtts(self) -> dict[int, tuple[float, float]]:
        """The shortest RTTs in ns from the tap to the receiver and to the sender of monitored flows, by number.

        Flows without TCP timestamps, of which few have come back, or with sampling are left out.
        """
        found = np.frombuffer(self._ask("rtts"), _TAP_RTTS)
        found = found[(found["samples"] >= LEAST_ECHOES).all(axis=1)]
        return {
            number: (float(receiver), float(sender))
            for number, (receiver, sender) in zip(
                found["number"].tolist(), found["shortest_ns"].tolist(), strict=True
            )
        }

    @property
    def now_ns(self) -> int:
        return time.time_ns()

    def wait(self, until_ns: int) -> bool:
        """Sleep; a live link never ends."""
        time.sleep(max(until_ns - time.time_ns(), 0) / 1e9)
        return True

    def close(self) -> None:
        """Detach everything."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> KernelCollector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _words(key: FlowKey) -> str:
    return f"{key.src} {key.sport} {key.dst} {key.dport}"


def _address(data: np.ndarray, version: int) -> str:
    return str(ipaddress.ip_address(data[: 4 if version == 4 else 16].tobytes()))


def _reason(error: int) -> str:
    known = {
        errno.E2BIG: "no room for more flows (max_flows)",
        errno.EEXIST: "already monitored",
        errno.ENOENT: "not monitored",
        errno.EINVAL: "expected two addresses with ports",
    }
    return known.get(error, os.strerror(error))
