"""P4-CoDel's targets with one thing changed at a time.

:class:`~cctoolkit.aqm.P4CoDel`, :class:`~cctoolkit.aqm.PisaCoDel` and :class:`~cctoolkit.aqm.NpuCoDel` differ in
several ways at once: their place, the computation of the square root, and whether they have ``if_3``. Here each of
these is a parameter. With its defaults :class:`EgressCoDel` decides as the first and :class:`IngressCoDel` as the
last.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ..._support.kernels import part
from ...aqm import MARK, PASS, Aqm, CoDel, NpuCoDel, P4CoDel, delay_ns
from ...aqm.codel_p4 import drop_gap, math_unit, math_unit_gap
from ...errors import ParameterError

__all__ = ["SQUARE_ROOTS", "AlwaysAfreshCoDel", "CountingCoDel", "EgressCoDel", "IngressCoDel", "gap_ms"]

#: How 1/sqrt(count) is computed: exactly, from the NPU's tables, by Tofino's math unit.
SQUARE_ROOTS = ("exact", "NPU table", "math unit")
_MATH_UNIT = SQUARE_ROOTS.index("math unit")
_MASK = 0xFFFFFFFF


_rfc_8289 = part(error_model="numpy")(CoDel.on_dequeue)


class CountingCoDel(CoDel):
    """RFC 8289's CoDel, counting how often it resumes at the last drop rate."""

    name: ClassVar[str] = "codel_counting"

    class Stats(CoDel.Stats):
        resumed = 0

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        was = s.dropping
        verdict = _rfc_8289(p, s, stats, queue, packet, now_ns)
        if s.dropping and not was and s.count > 1:
            stats.resumed += 1
        return verdict


class AlwaysAfreshCoDel(CountingCoDel):
    """RFC 8289's CoDel without ``if_3`` (Listing 1): every dropping state begins with a count of 1."""

    name: ClassVar[str] = "codel_always_afresh"

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        if not s.dropping:
            s.last_count = s.count  # no drops since: the rule's condition is never true
        return _rfc_8289(p, s, stats, queue, packet, now_ns)


@part(error_model="numpy")
def _gap(p, count):
    if count == 1:
        return p.interval_ns  # a constant in all programs
    return math_unit_gap(p, count) if p.root == _MATH_UNIT else drop_gap(p, count)


class EgressCoDel(Aqm):
    """Listing 1 after the queue, with or without ``if_3`` and with any of the square roots.

    Parameters
    ----------
    target_ms, interval_ms : float
        TARGET and INTERVAL.
    mtu_bytes : int
        It never drops with fewer bytes than this in the queue.
    if_3 : bool
        When it re-enters the dropping state, resume at the last drop rate.
    square_root : str
        One of :data:`SQUARE_ROOTS`.
    """

    name: ClassVar[str] = "codel_p4_ablated"

    target_ms: float = 5.0
    interval_ms: float = 100.0
    mtu_bytes: int = 1514
    if_3: bool = True
    square_root: str = "exact"

    class State(P4CoDel.State):
        pass

    class Stats(P4CoDel.Stats):
        resumed = 0  # entries into the dropping state to which if_3 applied
        largest_count = 0

    def check(self) -> None:
        P4CoDel.check(self)  # type: ignore[arg-type]  # same parameters
        if self.square_root not in SQUARE_ROOTS:
            raise ParameterError(
                f"EgressCoDel.square_root: {self.square_root!r} must be one of {', '.join(SQUARE_ROOTS)}"
            )

    def derived(self) -> dict[str, Any]:
        """The tables of the NPU and of the math unit, and which one is used."""
        table, scale = math_unit(round(self.interval_ms * 1e6))
        return P4CoDel.derived(self) | {  # type: ignore[arg-type]  # same parameters
            "by_table": self.square_root == "NPU table",
            "root": SQUARE_ROOTS.index(self.square_root),
            "table": table,
            "scale": scale,
        }

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        if now_ns - packet.enqueued_ns < p.target_ns or queue.bytes < p.mtu_bytes:  # if_1
            s.dropping = False
            return PASS
        if not s.dropping:  # if_2
            s.dropping = True
            before = s.count
            recent = now_ns - s.drop_next_ns < 16 * p.interval_ns
            if p.if_3 and s.count - s.last_count > 1 and recent:
                s.count -= s.last_count
                stats.resumed += 1
            else:
                s.count = 1
            s.drop_next_ns = now_ns + _gap(p, s.count)
            s.last_count = before
            stats.entered += 1
            return PASS
        if s.drop_next_ns <= now_ns:  # if_4
            s.count += 1
            s.drop_next_ns = now_ns + _gap(p, s.count)
            stats.signals += 1
            stats.largest_count = max(stats.largest_count, s.count)
            return MARK
        return PASS


def gap_ms(square_root: str, count: int, interval_ms: float = 100.0) -> float:
    """interval / sqrt(count) as a target computes it, in ms.

    Parameters
    ----------
    square_root : str
        One of :data:`SQUARE_ROOTS`.
    count : int
        At least 1.
    interval_ms : float

    Examples
    --------
    >>> gap_ms("exact", 4)
    50.0
    """
    if square_root == "exact":
        return interval_ms / math.sqrt(count)
    p = EgressCoDel(interval_ms=interval_ms, square_root=square_root).parameter_record()[0]
    return float(_gap(p, count)) / 1e6


class IngressCoDel(Aqm):
    """The NPU's CoDel before the queue, with properties that the measured device may have had.

    Parameters
    ----------
    target_ms, interval_ms : float
        TARGET and INTERVAL.
    by_packets : bool
        The queue's delay is the sending time of the packets in it (section III-B: its length is known in packets
        only), each `packet_bytes` long; otherwise how long its head has waited.
    packet_bytes : int
    race_us : float
        The others see what one processor writes after this time (section III-B: race conditions): packets that arrive
        within this time of a dropped one, while the target is violated, are dropped by the same state.
    wrap : bool
        Time is nanoseconds in 32 bits, compared as unsigned numbers, as in the published program for the other device.
    clock_ms : float
        With `wrap`, the clock at the start.
    """

    name: ClassVar[str] = "codel_npu_ablated"

    target_ms: float = 5.0
    interval_ms: float = 100.0
    by_packets: bool = False
    packet_bytes: int = 1514
    race_us: float = 0.0
    wrap: bool = False
    clock_ms: float = 0.0

    class State(P4CoDel.State):
        dropped_ns = -(1 << 62)

    class Stats(P4CoDel.Stats):
        raced = 0  # signals decided by a state that was out of date

    def check(self) -> None:
        P4CoDel.check(self)  # type: ignore[arg-type]  # same parameters

    def derived(self) -> dict[str, Any]:
        """The tables of the square root."""
        return NpuCoDel.derived(self)  # type: ignore[arg-type]  # same parameters

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        waits_ns = delay_ns(queue, now_ns)
        if p.by_packets:
            waits_ns = int(queue.packets * p.packet_bytes * 8e9 / queue.rate_bps)
        if queue.packets == 0 or waits_ns < p.target_ns:
            s.dropping = False
            return PASS
        if now_ns - s.dropped_ns < p.race_ns:
            stats.signals += 1
            stats.raced += 1
            return MARK
        clock_ns = now_ns + p.clock_ns
        if p.wrap:
            clock_ns &= _MASK
        if not s.dropping:
            s.dropping = True
            before = s.count
            if s.count - s.last_count > 1 and clock_ns - s.drop_next_ns < 16 * p.interval_ns:
                s.count -= s.last_count
            else:
                s.count = 1
            s.last_count = before
            stats.entered += 1
            drop = False
        else:
            drop = s.drop_next_ns <= clock_ns
            if not drop:
                return PASS
            s.count += 1
            s.dropped_ns = now_ns
            stats.signals += 1
        s.drop_next_ns = clock_ns + drop_gap(p, s.count)
        if p.wrap:
            s.drop_next_ns &= _MASK
        return MARK if drop else PASS
