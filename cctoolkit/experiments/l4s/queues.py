"""The L4S experiment's queue disciplines with logs: how long packets waited, and how long a drop took.

They decide exactly as their base classes, and write logs.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..._support.kernels import part
from ...aqm.base import DROP, DROP_LATE, MARK, PASS, random
from ...aqm.codel_p4 import PisaCoDel
from ...aqm.dualpi2 import DualPi2
from ...aqm.ired import IRed, notify, receive
from ...aqm.pi2 import TofinoPi2, is_scalable, pi_step, send_update

__all__ = [
    "BIN_MS", "DroppingCoDel", "LatePi2", "PublishedIRed", "WatchedCoDel", "WatchedDualPi2", "WatchedIRed",
    "WatchedPi2", "WatchedPublishedIRed",
]  # fmt: skip

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


@part(error_model="numpy")
def _left(s, packet, now_ns):
    s.delays[1 - packet.ecn % 2, min((now_ns - packet.enqueued_ns) // _BIN_NS, _BINS - 1)] += 1


@part(error_model="numpy")
def _dropped(s, now_ns, drop_ns, gap_ns):
    if s.noted < _DROPS:
        s.dropped_at_ns[s.noted] = now_ns
        s.drop_ns[s.noted] = drop_ns
        s.gap_ns[s.noted] = gap_ns
    s.noted += 1


@part(error_model="numpy")
def _before_arrival(s):
    """Note when iRED's flag is raised, if a notification that is due raises it now."""
    if not s.flag and s.waiting > 0:
        s.raised_ns = s.arrives_ns[s.first]


@part(error_model="numpy")
def _dropped_on_arrival(p, s, queue, now_ns):
    since_ns = now_ns - s.raised_ns + p.recirculation_ns
    waits_ns = now_ns - queue.head_enqueued_ns if queue.packets > 0 else 0
    _dropped(s, now_ns, since_ns, since_ns + waits_ns)


_pi2_dequeue = part(error_model="numpy")(TofinoPi2.on_dequeue)
_ired_dequeue = part(error_model="numpy")(IRed.on_dequeue)
_ired_enqueue = part(error_model="numpy")(IRed.on_enqueue)
_dualpi2_dequeue = part(error_model="numpy")(DualPi2.on_dequeue)
_codel_dequeue = part(error_model="numpy")(PisaCoDel.on_dequeue)


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


_watched_pi2_dequeue = part(error_model="numpy")(WatchedPi2.on_dequeue)


class LatePi2(WatchedPi2):
    """PI2 with logs whose controller reads a register that follows the delay only with the packets.

    A packet that leaves brings the register nearer to its own delay: by one part in `rise_packets` if it waited longer,
    by one in `fall_packets` if shorter. With 1 and 1 that is the delay of the last packet, with equal numbers a moving
    average, and with a longer fall the longest delay lately.
    """

    name: ClassVar[str] = "pi2_tofino_late"

    rise_packets: float = 1.0
    fall_packets: float = 1.0

    class State(WatchedPi2.State):
        register_ns = 0.0

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        change = now_ns - packet.enqueued_ns - s.register_ns
        s.register_ns += change / (p.rise_packets if change > 0 else p.fall_packets)
        return _watched_pi2_dequeue(p, s, stats, queue, packet, now_ns)

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        delay = np.int64(s.register_ns)
        s.computed = pi_step(s.computed, delay, s.old_delay_ns, p.target_ns, p.alpha, p.beta)
        s.old_delay_ns = delay
        send_update(p, s, now_ns)
        return PASS


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
        _before_arrival(s)
        verdict = _ired_enqueue(p, s, stats, queue, packet, now_ns)
        if verdict == DROP:
            _dropped_on_arrival(p, s, queue, now_ns)
        return verdict


class PublishedIRed(IRed):
    """iRED as the published program means it: one probability and one drop flag for the port, not for a queue.

    github.com/dcomp-leris/iRED_TNSM, ``source-code/iRED_t2na.p4``. Each kind has its average delay. Above the lower
    threshold a packet meets with the port's probability, a scalable one with twice that; above the upper one always.
    The probability is a counter of 16 bits: each packet that it is compared with raises it by one, and lowers it if it
    was met. So it strives for one half, and the lower threshold becomes a step. Any packet clears the flag, but only a
    classic one is dropped.

    The program itself keeps delays in 16 bits of ns and does not halve the average, so that its thresholds wrap; here
    average and thresholds work.
    """

    name: ClassVar[str] = "ired_published"
    shared: ClassVar[bool] = True

    class State(IRed.State):
        scalable_average = 0.0  # ns; `average` is the classic packets'
        chance = 0  # of 65536

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        scalable = is_scalable(p, packet)
        delay_ns = float(now_ns - packet.enqueued_ns)
        if scalable:
            s.scalable_average = average = p.weight * delay_ns + (1 - p.weight) * s.scalable_average
        else:
            s.average = average = p.weight * delay_ns + (1 - p.weight) * s.average
        queue.probability = s.chance / 65536
        met = average > p.high
        if p.low < average < p.high:
            met = random(queue) * 65536 < (2 if scalable else 1) * s.chance
            s.chance += -1 if met else 1
        if not met:
            return PASS
        if scalable:
            stats.marks += 1
            return MARK
        notify(p, s, stats, now_ns)
        return PASS

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        receive(p, s, now_ns)
        dropped = s.flag and not is_scalable(p, packet)
        s.flag = False
        if dropped:
            stats.drops += 1
            return DROP
        return PASS


_published_dequeue = part(error_model="numpy")(PublishedIRed.on_dequeue)
_published_enqueue = part(error_model="numpy")(PublishedIRed.on_enqueue)


class WatchedPublishedIRed(PublishedIRed):
    """The published iRED with logs, as :class:`WatchedIRed`."""

    name: ClassVar[str] = "ired_published_watched"

    class State(PublishedIRed.State):
        noted = 0
        raised_ns = 0

    def initial(self) -> dict[str, Any]:
        return super().initial() | _logs()

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        verdict = _published_dequeue(p, s, stats, queue, packet, now_ns)
        _left(s, packet, now_ns)
        return verdict

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        _before_arrival(s)
        verdict = _published_enqueue(p, s, stats, queue, packet, now_ns)
        if verdict == DROP:
            _dropped_on_arrival(p, s, queue, now_ns)
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
    """P4-CoDel as in its paper: it does not mark, but drops packets with ECT, too.

    Parameters
    ----------
    late : bool
        A dropped packet takes its time on the link, as behind a shaper. If false, the next one leaves in its place.
    """

    name: ClassVar[str] = "codel_pisa_dropping"

    late: bool = True

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        if _codel_dequeue(p, s, stats, queue, packet, now_ns) == PASS:
            return PASS
        return DROP_LATE if p.late else DROP


_dropping_dequeue = part(error_model="numpy")(DroppingCoDel.on_dequeue)


class WatchedCoDel(DroppingCoDel):
    """P4-CoDel with logs. A drop takes as long as the packet has waited."""

    name: ClassVar[str] = "codel_pisa_watched"

    class State(PisaCoDel.State):
        noted = 0

    def initial(self) -> dict[str, Any]:
        return super().initial() | _logs()

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        verdict = _dropping_dequeue(p, s, stats, queue, packet, now_ns)
        if verdict == PASS:
            _left(s, packet, now_ns)
        else:
            _dropped(s, now_ns, now_ns - packet.enqueued_ns, 0)
        return verdict
