"""iRED, ingress random early detection: de Almeida et al., "Evaluating L4S framework performance with
programmable data plane hardware" (2024), section 4.1, after de Almeida et al., "iRED" (CNSM 2022)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..errors import ParameterError
from .base import DROP, MARK, PASS, Aqm, random
from .pi2 import identification, is_scalable

__all__ = ["IRed", "IntegerIRed", "red_probabilities"]


class IRed(Aqm):
    """RED split in two: egress decides, ingress drops the next classic packet; scalable packets are marked.

    At egress each packet moves the average of its queue's delay (or depth). Between the thresholds the
    probability rises linearly from 0 to 1. A scalable packet is marked with twice this probability. A
    classic one is never touched at egress: with the square of the probability it sends a notification (48
    bytes) round to ingress, where it raises a flag; the next classic packet for this queue is dropped and
    lowers it.

    Parameters
    ----------
    measure : str
        What is averaged: ``"delay"`` or ``"depth"`` (packets).
    min_ms, max_ms : float
        Thresholds of the delay.
    min_packets, max_packets : float
        Thresholds of the depth.
    weight : float
        Of the newest value in the average, equation (1); a half is a shift.
    coupling : float
        Factor for scalable packets (k).
    square : bool
        Square the probability for classic packets, as the coupling of the paper's section 3.2 says;
        otherwise they have the probability itself, as in the published program.
    identifier : str
        How scalable packets are told: as of :class:`~cctoolkit.aqm.Pi2`.
    recirculation_us : float
        From the decision at egress until the flag is up at ingress.
    max_notifications : int
        That can be on their way at once; what is more is lost.

    Notes
    -----
    The published program tells scalable packets by a bit of the DSCP. There they do not drop but lower the flag as
    they pass, the thresholds of 20 and 40 ms do not fit their 16 bits, and the probability is a counter that each
    packet moves by one; none of this is in the paper, nor here. Average and flag belong to a queue: with one queue
    for both kinds of traffic they share them; with two (as on the switch) choose ``scheduler="drr"`` and
    ``Flow.queue``. Classic packets are dropped even with ECT(0).
    """

    name: ClassVar[str] = "ired"

    measure: str = "delay"
    min_ms: float = 20.0
    max_ms: float = 40.0
    min_packets: float = 200.0
    max_packets: float = 400.0
    weight: float = 0.5
    coupling: float = 2.0
    square: bool = True
    identifier: str = "ect1"
    recirculation_us: float = 1.0
    max_notifications: int = 256

    class State:
        average = 0.0  # ns or packets
        flag = False  # at ingress: drop the next classic packet
        waiting = 0  # notifications on their way, the oldest at `first`
        first = 0

    class Stats:
        notifications = 0
        lost_notifications = 0
        drops = 0
        marks = 0

    def check(self) -> None:
        if self.measure not in ("delay", "depth"):
            raise ParameterError(f"IRed.measure: {self.measure!r} is neither delay nor depth")
        if self.max_ms <= self.min_ms:
            raise ParameterError("IRed.max_ms: must be above min_ms")
        if self.max_packets <= self.min_packets:
            raise ParameterError("IRed.max_packets: must be above min_packets")
        if not 0 < self.weight <= 1:
            raise ParameterError("IRed.weight: must be positive and at most 1")
        if self.max_notifications == 0:
            raise ParameterError("IRed.max_notifications: must be positive")
        identification("IRed", self.identifier)

    def derived(self) -> dict[str, Any]:
        """The thresholds of what is measured, and how scalable packets are told."""
        told = identification("IRed", self.identifier)
        if self.measure == "delay":
            return {"by_depth": False, "low": self.min_ms * 1e6, "high": self.max_ms * 1e6} | told
        return {"by_depth": True, "low": self.min_packets, "high": self.max_packets} | told

    def initial(self) -> dict[str, Any]:
        """Notifications on their way."""
        return {"arrives_ns": np.zeros(self.max_notifications, np.int64)}

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        # Decision module (egress)
        value = float(queue.packets) if p.by_depth else float(now_ns - packet.enqueued_ns)
        s.average = p.weight * value + (1 - p.weight) * s.average  # equation (1)
        probability = min(max((s.average - p.low) / (p.high - p.low), 0.0), 1.0)
        queue.probability = probability
        if is_scalable(p, packet):
            if random(queue) < p.coupling * probability:
                stats.marks += 1
                return MARK
            return PASS
        if random(queue) < (probability**2 if p.square else probability):
            stats.notifications += 1
            if s.waiting < p.max_notifications:
                s.arrives_ns[(s.first + s.waiting) % p.max_notifications] = now_ns + p.recirculation_ns
                s.waiting += 1
            else:
                stats.lost_notifications += 1
        return PASS

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        # Action module (ingress)
        while s.waiting > 0 and s.arrives_ns[s.first] <= now_ns:
            s.flag = True
            s.first = (s.first + 1) % p.max_notifications
            s.waiting -= 1
        if s.flag and not is_scalable(p, packet):
            s.flag = False
            stats.drops += 1
            return DROP
        return PASS


# ---- in integers -----------------------------------------------------------------------------------------------------

DELAY_SHIFT = 10  # delays are counted in 1024 ns,
LONGEST_DELAY = (1 << 16) - 1  # and what is longer than 67 ms counts as that
EPOCH_PACKETS = 16  # after so many packets the sum of delays begins anew
RED_SHIFT = 5  # the average's last bits, which the table of probabilities does not see
RED_STEPS = (LONGEST_DELAY + 1) >> RED_SHIFT
ONE = 1 << 16  # probabilities have 16 bits after the point


def red_probabilities(
    min_ms: float, max_ms: float, *, coupling: float = 2.0, square: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The table from which a switch takes its probabilities: for each 32.8 µs of average delay, those of its middle.

    Parameters
    ----------
    min_ms, max_ms, coupling, square
        As for :class:`IRed`.

    Returns
    -------
    classic, scalable : array of int64, shape (2048,)
        65536 is 1.
    """
    middle_ms = (np.arange(RED_STEPS) + 0.5) * (1 << RED_SHIFT + DELAY_SHIFT) * 1e-6
    red = np.clip((middle_ms - min_ms) / (max_ms - min_ms), 0, 1)
    classic = red**2 if square else red
    scalable = np.minimum(coupling * red, 1)
    return np.round(classic * ONE).astype(np.int64), np.round(scalable * ONE).astype(np.int64)


class IntegerIRed(IRed):
    """iRED in integers, as the P4 programs have it (``hardware/programs/ired``), equal to them packet for packet.

    A stateful unit of a switch adds but does not shift, so it cannot halve its average. Here new values are doubled
    instead: the delay of packet k of an epoch of 16 is added 2**k times, and what is read is shifted back. What was
    before the last epoch, less than a part in 2**17, is forgotten.

    Parameters
    ----------
    As for :class:`IRed`; `measure` has to be ``"delay"``, `weight` 0.5, and `max_ms` below 67 (delays are cut there).

    Notes
    -----
    Against :class:`IRed` the average is off by less than 3.6 µs as long as no delay is cut, the probabilities of
    scalable packets (`coupling` 2) by less than 0.002, and those of classic ones too.
    """

    name: ClassVar[str] = "ired_integer"

    class State(IRed.State):
        position = 0  # of the packet in its epoch
        delay_sum = 0  # of this epoch, each doubled as often as there were packets before it
        last_sum = 0  # of the epoch before

    def check(self) -> None:
        super().check()
        if self.measure != "delay" or self.weight != 0.5:
            raise ParameterError(
                "IntegerIRed.measure and IntegerIRed.weight: delays, halved, are all it can do"
            )
        if self.max_ms * 1e6 >= LONGEST_DELAY << DELAY_SHIFT:
            raise ParameterError(f"IntegerIRed.max_ms: {self.max_ms:g} ms are not below 67")

    def derived(self) -> dict[str, Any]:
        """The tables of probabilities, and how scalable packets are told."""
        classic, scalable = red_probabilities(
            self.min_ms, self.max_ms, coupling=self.coupling, square=self.square
        )
        told = identification("IntegerIRed", self.identifier)
        return told | {"classic_table": classic, "scalable_table": scalable}

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        delay = min((now_ns - packet.enqueued_ns) >> DELAY_SHIFT, LONGEST_DELAY)
        if s.position == 0:
            s.last_sum = s.delay_sum
            s.delay_sum = delay
        else:
            s.delay_sum += delay << s.position
        shift = s.position + 1
        average = (s.delay_sum >> shift) + (s.last_sum >> EPOCH_PACKETS + shift)
        s.position = shift % EPOCH_PACKETS
        s.average = average << DELAY_SHIFT

        queue.probability = min(max((s.average - p.min_ns) / (p.max_ns - p.min_ns), 0.0), 1.0)  # to be seen

        step = average >> RED_SHIFT
        draw = np.int64(random(queue) * ONE)
        if is_scalable(p, packet):
            if draw < p.scalable_table[step]:
                stats.marks += 1
                return MARK
            return PASS
        if draw < p.classic_table[step]:
            stats.notifications += 1
            if s.waiting < p.max_notifications:
                s.arrives_ns[(s.first + s.waiting) % p.max_notifications] = now_ns + p.recirculation_ns
                s.waiting += 1
            else:
                stats.lost_notifications += 1
        return PASS
