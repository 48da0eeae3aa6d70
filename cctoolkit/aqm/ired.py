"""iRED, ingress random early detection: de Almeida et al., "Evaluating L4S framework performance with
programmable data plane hardware" (2024), section 4.1, based on de Almeida et al., "iRED" (CNSM 2022)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .._support.kernels import part
from ..errors import ParameterError
from .base import DROP, MARK, PASS, Aqm, peer, random
from .pi2 import identification, is_scalable

__all__ = ["IRed", "IntegerIRed", "red_probabilities"]


@part(error_model="numpy")
def notify(p, s, stats, now_ns):
    """Send a notification from the egress to the ingress, which it reaches after the recirculation."""
    stats.notifications += 1
    if s.waiting < p.max_notifications:
        s.arrives_ns[(s.first + s.waiting) % p.max_notifications] = now_ns + p.recirculation_ns
        s.waiting += 1
    else:
        stats.lost_notifications += 1


@part(error_model="numpy")
def receive(p, s, now_ns):
    """Raise the drop flag if a notification has reached the ingress."""
    while s.waiting > 0 and s.arrives_ns[s.first] <= now_ns:
        s.flag = True
        s.first = (s.first + 1) % p.max_notifications
        s.waiting -= 1


class IRed(Aqm):
    """RED in two parts: egress decides, ingress drops the next classic packet; scalable packets are marked.

    At egress, each packet updates the average delay (or depth) of its queue. Between the thresholds, the
    probability rises linearly from 0 to 1. A scalable packet is marked with twice this probability. A classic
    packet is never dropped at egress: with the square of the probability it sends a notification (48 bytes) to
    ingress, which sets a flag; the next classic packet for this queue is dropped and clears the flag.

    Parameters
    ----------
    measure : str
        What to average: ``"delay"`` or ``"depth"`` (packets).
    min_ms, max_ms : float
        Thresholds of the delay in ms.
    min_packets, max_packets : float
        Thresholds of the depth in packets.
    weight : float
        Weight of the newest value in the average, equation (1); 0.5 is a shift.
    coupling : float
        Factor k for scalable packets.
    square : bool
        Square the probability for classic packets, as the coupling in section 3.2 of the paper requires; if false,
        use the probability itself, as in the published program.
    coupled : bool
        Couple two queues, 0 for scalable and 1 for classic packets: a scalable packet is marked with the classic
        queue's probability if that is higher than its own queue's, as in a dual-queue coupled AQM (RFC 9332).
    identifier : str
        How to recognise scalable packets, as for :class:`~cctoolkit.aqm.Pi2`.
    recirculation_us : float
        Time from the decision at egress until the flag is set at ingress, in µs.
    max_notifications : int
        Most notifications in flight; further ones are lost.

    Notes
    -----
    The published program recognises scalable packets by a bit of the DSCP. In it, scalable packets are not dropped
    by the flag but clear it, the thresholds of 20 and 40 ms do not fit into their 16 bits, and the probability is a
    counter that each packet changes by one; none of this is in the paper, nor here. Average and flag belong to a
    queue: with one queue, both kinds of traffic share them; for two queues (as on the switch) use
    ``scheduler="drr"`` and ``Flow.queue``. Classic packets are dropped even with ECT(0).

    See Also
    --------
    IntegerIRed : in integers, as in P4
    Red : the original
    Pi2 : a PI controller for both kinds of traffic

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.IRed())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    14.0
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
    coupled: bool = False
    identifier: str = "ect1"
    recirculation_us: float = 1.0
    max_notifications: int = 256

    class State:
        average = 0.0  # ns or packets
        flag = False  # at ingress: drop the next classic packet
        waiting = 0  # notifications in flight, the oldest at `first`
        first = 0

    class Stats:
        notifications = 0
        lost_notifications = 0
        drops = 0
        marks = 0

    def check(self) -> None:
        if self.measure not in ("delay", "depth"):
            raise ParameterError(f"IRed.measure: {self.measure!r} must be 'delay' or 'depth'")
        if self.max_ms <= self.min_ms:
            raise ParameterError("IRed.max_ms: must be greater than min_ms")
        if self.max_packets <= self.min_packets:
            raise ParameterError("IRed.max_packets: must be greater than min_packets")
        if not 0 < self.weight <= 1:
            raise ParameterError("IRed.weight: must be positive and at most 1")
        if self.max_notifications == 0:
            raise ParameterError("IRed.max_notifications: must be positive")
        identification("IRed", self.identifier)

    def derived(self) -> dict[str, Any]:
        """Thresholds of the measured quantity, and how to recognise scalable packets."""
        fields = identification("IRed", self.identifier)
        if self.measure == "delay":
            return {"by_depth": False, "low": self.min_ms * 1e6, "high": self.max_ms * 1e6} | fields
        return {"by_depth": True, "low": self.min_packets, "high": self.max_packets} | fields

    def initial(self) -> dict[str, Any]:
        """Notifications in flight."""
        return {"arrives_ns": np.zeros(self.max_notifications, np.int64)}

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        # Decision module (egress)
        value = float(queue.packets) if p.by_depth else float(now_ns - packet.enqueued_ns)
        s.average = p.weight * value + (1 - p.weight) * s.average  # equation (1)
        probability = min(max((s.average - p.low) / (p.high - p.low), 0.0), 1.0)
        queue.probability = probability
        if is_scalable(p, packet):
            if p.coupled and queue.queues > 1:
                classic: Any = peer(queue, 1)  # type: ignore[call-arg]  # numba adds the first argument
                probability = max(probability, classic.probability)
            if random(queue) < p.coupling * probability:
                stats.marks += 1
                return MARK
            return PASS
        if random(queue) < (probability**2 if p.square else probability):
            notify(p, s, stats, now_ns)
        return PASS

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        # Action module (ingress)
        receive(p, s, now_ns)
        if s.flag and not is_scalable(p, packet):
            s.flag = False
            stats.drops += 1
            return DROP
        return PASS


# ---- in integers -----------------------------------------------------------------------------------------------------

DELAY_SHIFT = 10  # delays are counted in units of 1024 ns
LONGEST_DELAY = (1 << 16) - 1  # longer delays count as this, 67 ms
EPOCH_PACKETS = 16  # packets after which the sum of delays starts anew
RED_SHIFT = 5  # low bits of the average, which the table of probabilities ignores
RED_STEPS = (LONGEST_DELAY + 1) >> RED_SHIFT
ONE = 1 << 16  # probabilities have 16 fractional bits


def red_probabilities(
    min_ms: float, max_ms: float, *, coupling: float = 2.0, square: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The switch's table of probabilities: one entry per 32.8 µs of average delay, for the midpoint.

    Parameters
    ----------
    min_ms, max_ms, coupling, square
        As for :class:`IRed`.

    Returns
    -------
    classic, scalable : array of int64, shape (2048,)
        Probabilities in units of 2**-16.
    """
    middle_ms = (np.arange(RED_STEPS) + 0.5) * (1 << RED_SHIFT + DELAY_SHIFT) * 1e-6
    red = np.clip((middle_ms - min_ms) / (max_ms - min_ms), 0, 1)
    classic = red**2 if square else red
    scalable = np.minimum(coupling * red, 1)
    return np.round(classic * ONE).astype(np.int64), np.round(scalable * ONE).astype(np.int64)


class IntegerIRed(IRed):
    """iRED in integers: packet for packet the P4 programs of ``hardware/programs/ired``.

    A stateful unit of a switch can add but not shift, so it cannot halve its average. Instead, new values are
    doubled: the delay of packet k in an epoch of 16 is added 2**k times, and the result is shifted back when read.
    Delays before the previous epoch, which would weigh less than 2**-17, are forgotten. Parameters are those of
    :class:`IRed`; `measure` must be ``"delay"``, `weight` 0.5, and `max_ms` below 67, where delays saturate.

    Notes
    -----
    Compared with :class:`IRed`, the average is off by less than 3.6 µs as long as no delay saturates, and the
    probabilities of scalable (`coupling` 2) and classic packets by less than 0.002.

    See Also
    --------
    IRed : in floating point
    IntegerPi2 : PI2 in integers

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.IntegerIRed())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    14.0
    """

    name: ClassVar[str] = "ired_integer"

    class State(IRed.State):
        position = 0  # number of the packet in its epoch
        delay_sum = 0  # sum over this epoch, the k-th delay doubled k times
        last_sum = 0  # sum over the previous epoch

    def check(self) -> None:
        super().check()
        if self.measure != "delay" or self.weight != 0.5:
            raise ParameterError("IntegerIRed.measure and IntegerIRed.weight: must be 'delay' and 0.5")
        if self.max_ms * 1e6 >= LONGEST_DELAY << DELAY_SHIFT:
            raise ParameterError(f"IntegerIRed.max_ms: {self.max_ms:g} must be less than 67")

    def derived(self) -> dict[str, Any]:
        """Tables of probabilities, and how to recognise scalable packets."""
        classic, scalable = red_probabilities(
            self.min_ms, self.max_ms, coupling=self.coupling, square=self.square
        )
        fields = identification("IntegerIRed", self.identifier)
        return fields | {"classic_table": classic, "scalable_table": scalable}

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

        queue.probability = min(
            max((s.average - p.min_ns) / (p.max_ns - p.min_ns), 0.0), 1.0
        )  # only for display

        step = average >> RED_SHIFT
        draw = np.int64(random(queue) * ONE)
        if is_scalable(p, packet):
            if draw < p.scalable_table[step]:
                stats.marks += 1
                return MARK
            return PASS
        if draw < p.classic_table[step]:
            notify(p, s, stats, now_ns)
        return PASS
