"""The L4S experiment's queue disciplines with logs: how long packets waited, and how long a drop took.

They decide exactly as their base classes, and write logs.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numba
import numpy as np

from ...aqm.base import DROP, DROP_LATE, MARK, PASS
from ...aqm.codel_p4 import PisaCoDel
from ...aqm.dualpi2 import DualPi2
from ...aqm.ired import IRed
from ...aqm.pi2 import TofinoPi2

__all__ = ["BIN_MS", "DroppingCoDel", "WatchedCoDel", "WatchedDualPi2", "WatchedIRed", "WatchedPi2"]

#: Bin width of the delay histogram.
BIN_MS = 0.01
_BIN_NS = 10_000
_BINS = 30_000  # 300 ms, more than the buffer holds; the last bin takes the rest
_DROPS = 1 << 19


def _logs() -> dict[str, Any]:
    """The logs of a watched queue, from the start of the run."""
    return {
        "delays": np.zeros((2, _BINS), np.int64),  # packets that left, scalable and classic, by delay
        "drop_ns": np.zeros(_DROPS, np.int64),  # one a drop, see the classes
        "gap_ns": np.zeros(_DROPS, np.int64),
        "dropped_at_ns": np.zeros(_DROPS, np.int64),
    }


@numba.njit(error_model="numpy")
def _left(s, packet, now_ns):
    s.delays[1 - packet.ecn % 2, min((now_ns - packet.enqueued_ns) // _BIN_NS, _BINS - 1)] += 1


@numba.njit(error_model="numpy")
def _dropped(s, now_ns, drop_ns, gap_ns):
    if s.noted < _DROPS:
        s.dropped_at_ns[s.noted] = now_ns
        s.drop_ns[s.noted] = drop_ns
        s.gap_ns[s.noted] = gap_ns
    s.noted += 1


_pi2_dequeue = numba.njit(error_model="numpy")(TofinoPi2.on_dequeue)
_ired_dequeue = numba.njit(error_model="numpy")(IRed.on_dequeue)
_ired_enqueue = numba.njit(error_model="numpy")(IRed.on_enqueue)
_dualpi2_dequeue = numba.njit(error_model="numpy")(DualPi2.on_dequeue)
_codel_dequeue = numba.njit(error_model="numpy")(PisaCoDel.on_dequeue)


class WatchedPi2(TofinoPi2):
    """PI2 on the Tofino with logs. A drop takes as long as the packet has waited: it is dropped as it leaves."""

    name: ClassVar[str] = "pi2_tofino_watched"

    class State(TofinoPi2.State):
        noted = 0

    def initial(self) -> dict[str, Any]:
        return super().initial() | _logs()

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        verdict = _pi2_dequeue(p, s, stats, queue, packet, now_ns)
        if verdict == DROP_LATE or (verdict == MARK and packet.ecn == 0):
            _dropped(s, now_ns, now_ns - packet.enqueued_ns, 0)
        else:
            _left(s, packet, now_ns)
        return verdict


class WatchedIRed(IRed):
    """iRED with logs. A drop takes from the decision at egress until a classic packet arrives at ingress.

    The gap in the flow leaves the queue later, by about as long as a packet then waits; `gap_ns` includes that.
    """

    name: ClassVar[str] = "ired_watched"

    class State(IRed.State):
        noted = 0
        raised_ns = 0  # when the flag was raised that is up now

    def initial(self) -> dict[str, Any]:
        return super().initial() | _logs()

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        verdict = _ired_dequeue(p, s, stats, queue, packet, now_ns)
        _left(s, packet, now_ns)
        return verdict

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if not s.flag and s.waiting > 0:
            s.raised_ns = s.arrives_ns[s.first]  # if it is due
        verdict = _ired_enqueue(p, s, stats, queue, packet, now_ns)
        if verdict == DROP:
            since_ns = now_ns - s.raised_ns + p.recirculation_ns
            waits_ns = now_ns - queue.head_enqueued_ns if queue.packets > 0 else 0
            _dropped(s, now_ns, since_ns, since_ns + waits_ns)
        return verdict


class WatchedDualPi2(DualPi2):
    """DualPI2 with logs. A drop takes as long as the packet has waited."""

    name: ClassVar[str] = "dualpi2_watched"

    class State(DualPi2.State):
        noted = 0

    def initial(self) -> dict[str, Any]:
        return super().initial() | _logs()

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        verdict = _dualpi2_dequeue(p, s, stats, queue, packet, now_ns)
        if verdict == DROP or (verdict == MARK and packet.ecn == 0):
            _dropped(s, now_ns, now_ns - packet.enqueued_ns, 0)
        else:
            _left(s, packet, now_ns)
        return verdict


class DroppingCoDel(PisaCoDel):
    """P4-CoDel as in its paper: it does not mark, but drops packets with ECT, too."""

    name: ClassVar[str] = "codel_pisa_dropping"

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return PASS if _codel_dequeue(p, s, stats, queue, packet, now_ns) == PASS else DROP_LATE


class WatchedCoDel(DroppingCoDel):
    """P4-CoDel with logs. A drop takes as long as the packet has waited."""

    name: ClassVar[str] = "codel_pisa_watched"

    class State(PisaCoDel.State):
        noted = 0

    def initial(self) -> dict[str, Any]:
        return super().initial() | _logs()

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        if _codel_dequeue(p, s, stats, queue, packet, now_ns) == PASS:
            _left(s, packet, now_ns)
            return PASS
        _dropped(s, now_ns, now_ns - packet.enqueued_ns, 0)
        return DROP_LATE
