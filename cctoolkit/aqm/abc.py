"""ABC, activity-based congestion management: Menth et al., "Implementation and evaluation of activity-based
congestion management using P4 (P4-ABC)", Future Internet 11(7), 2019.

The meter is TDRM-UTEMA, the average UTEMA, of Menth and Hauser, "On moving averages, histograms and
time-dependent rates for online measurement" (ICPE 2017).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numba
import numpy as np

from .._support.kernels import kernel
from ..errors import ParameterError
from .base import DROP, PASS, Aqm

__all__ = ["Abc", "IntegerAbc", "activities"]


@numba.njit(error_model="numpy")
def measure(p, s, packet, now_ns):
    """Activity meter (section 3.2): log2 of the aggregate's rate over its reference rate."""
    a = min(packet.aggregate, len(s.volume) - 1)
    if s.first_ns[a] < 0:
        s.first_ns[a] = now_ns
        s.last_ns[a] = now_ns
    s.volume[a] *= math.exp(-(now_ns - s.last_ns[a]) / p.meter_memory_ns)
    s.volume[a] += 8 * packet.bytes
    s.last_ns[a] = now_ns
    rate_bps = s.volume[a] * 1e9 / p.meter_memory_ns
    if now_ns > s.first_ns[a]:  # else there is no time yet to divide by
        rate_bps /= -math.expm1(-(now_ns - s.first_ns[a]) / p.meter_memory_ns)
    return math.log2(rate_bps / p.reference_bps[a])  # equation (1)


class Abc(Aqm):
    """Drops the packets of the most active aggregates first (P4-ABC, sections 3.2 and 3.3).

    On arrival a packet is metered with its aggregate (``Flow.aggregate``) at the domain's ingress, which
    writes the activity into its label; the activity AQM of this hop then accepts it or not, by comparing the
    queue with a threshold that falls with the activity.

    Parameters
    ----------
    reference_kbps : float or sequence of float
        Reference rate R_r, of all aggregates or of each; the last one goes on for those not named.
    meter_memory_s, average_memory_s : float
        Memories of the meter (M_AM) and of the average activity (M_AA).
    min_packets, base_packets, gamma_packets : float
        Q_min, Q_base and gamma of equation (2).
    aggregates : int
        How many can be metered. Aggregates with this number or higher are metered together with the last one.

    Notes
    -----
    The very first packet of an aggregate has no time to be divided by: its rate is taken as if the meter had
    run long (β S). Before the first packet is accepted the average is the packet's own activity. ABC drops,
    also with ECT. The queue counts packets waiting, where the BMv2 program copies this number to ingress
    whenever one leaves.

    A domain has a meter at its ingress and an AQM at each hop (section 3.1). Here is one hop, the bottleneck, and
    the meter is right before it, as in the paper's experiment (section 5.1). Hops without a queue would accept all
    (``Q <= Q_min``), so they are not missed; a second congested hop would be.

    Figure 6 does not come out as in the paper: of a flood of 90 Mbit/s beside one connection, 3 Mbit/s are accepted
    here and 32 there. The flood's threshold is `min_packets`, the connection's lies above the buffer, so the flood has
    what the connection leaves over; rates of 32 and 18 Mbit/s would make thresholds of 6.6 and 44 packets, of a buffer
    of 24, so what held the connection back there was not ABC. ``cct experiment abc`` tries what else could have.
    """

    name: ClassVar[str] = "abc"
    shared: ClassVar[bool] = True

    reference_kbps: float | tuple[float, ...] = 10.0
    meter_memory_s: float = 3.0
    average_memory_s: float = 0.3
    min_packets: float = 6.0
    base_packets: float = 20.0
    gamma_packets: float = 16.0
    aggregates: int = 64

    class State:
        activity_sum = 0.0  # UTEMA: sum of activities of accepted packets,
        activity_count = 0.0  # and their number, both decaying
        averaged_ns = 0

    class Stats:
        accepted = 0
        dropped = 0

    def check(self) -> None:
        name = type(self).__name__
        rates = self.reference_kbps if isinstance(self.reference_kbps, tuple) else (self.reference_kbps,)
        for rate in rates or ("nothing",):
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
                raise ParameterError(f"{name}.reference_kbps: {rate!r} is not a number above 0")
        if self.meter_memory_s <= 0 or self.average_memory_s <= 0:
            raise ParameterError(f"{name}.meter_memory_s and {name}.average_memory_s: must be positive")
        if not len(rates) <= self.aggregates <= 100_000:
            raise ParameterError(f"{name}.aggregates: must be at least {len(rates)} and at most 100000")

    def reference_rates_bps(self) -> np.ndarray:
        """Reference rate of each aggregate, bit/s."""
        given = self.reference_kbps if isinstance(self.reference_kbps, tuple) else (self.reference_kbps,)
        return np.array([*given, *[given[-1]] * (self.aggregates - len(given))]) * 1e3

    def derived(self) -> dict[str, Any]:
        """Reference rates as the meter wants them."""
        return {"reference_bps": self.reference_rates_bps()}

    def initial(self) -> dict[str, Any]:
        """A meter for each aggregate: S (bits), t0, and when S was last brought up to date."""
        n = self.aggregates
        return {"volume": np.zeros(n), "first_ns": np.full(n, -1), "last_ns": np.zeros(n, np.int64)}

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        packet.label = measure(p, s, packet, now_ns)

        # Activity AQM (section 3.3)
        decay = math.exp(-(now_ns - s.averaged_ns) / p.average_memory_ns)
        s.activity_sum *= decay
        s.activity_count *= decay
        s.averaged_ns = now_ns
        average = s.activity_sum / s.activity_count if s.activity_count > 0 else packet.label
        threshold = max(p.min_packets, p.base_packets - p.gamma_packets * (packet.label - average))  # (2)
        if queue.packets > threshold:
            stats.dropped += 1
            return DROP
        s.activity_sum += packet.label
        s.activity_count += 1
        stats.accepted += 1
        return PASS


# ---- the meter alone -------------------------------------------------------------------------------------------------


class _Parameters(NamedTuple):
    meter_memory_ns: float
    reference_bps: np.ndarray


class _Meters(NamedTuple):
    volume: np.ndarray
    first_ns: np.ndarray
    last_ns: np.ndarray


class _Packet(NamedTuple):
    aggregate: int
    bytes: int


@kernel(error_model="numpy")
def _metered(p, s, ts_ns, wire_bytes, aggregate):
    out = np.empty(len(ts_ns))
    for i in range(len(ts_ns)):
        out[i] = measure(p, s, _Packet(aggregate[i], wire_bytes[i]), ts_ns[i])
    return out


def activities(
    ts_ns: np.ndarray,
    wire_bytes: np.ndarray,
    aggregate: np.ndarray,
    *,
    reference_kbps: float = 10.0,
    meter_memory_s: float = 3.0,
) -> np.ndarray:
    """The activity of each packet, as the meter of :class:`Abc` finds it: of packets of any origin, also of a capture.

    Parameters
    ----------
    ts_ns, wire_bytes, aggregate : array of int, shape (n,)
        In order of time; aggregates are numbered from 0.
    reference_kbps, meter_memory_s : float
        R_r and M_AM.

    Returns
    -------
    array of float, shape (n,)
        Equation (1): log2 of the rate over the reference rate.

    Raises
    ------
    ParameterError
        Lengths that differ, or a rate or memory that is not above 0.
    """
    if not len(ts_ns) == len(wire_bytes) == len(aggregate):
        raise ParameterError(
            f"activities: {len(ts_ns)} times, {len(wire_bytes)} sizes, {len(aggregate)} aggregates"
        )
    if not (reference_kbps > 0 and meter_memory_s > 0):
        raise ParameterError("activities: reference_kbps and meter_memory_s must be positive")
    ts, group = np.asarray(ts_ns, np.int64), np.asarray(aggregate, np.int64)
    n = int(group.max()) + 1 if len(group) else 0
    p = _Parameters(meter_memory_s * 1e9, np.full(n, reference_kbps * 1e3))
    s = _Meters(np.zeros(n), np.full(n, -1), np.zeros(n, np.int64))
    start = ts.min() if len(ts) else 0  # the meters' "not yet" is a negative time
    return _metered(p, s, ts - start, np.asarray(wire_bytes, np.int64), group)


# ---- in integers -----------------------------------------------------------------------------------------------------

BITS = 10  # of the index of the tables
STEPS = 1 << BITS
ONE = 1 << 16  # logarithms, activities and counts have 16 bits after the point
_POWER_BITS = 20  # powers have 20, or a step of decay would be off by nearly a percent
_VOLUME_BITS = 6  # bytes have 6
_START_BITS = 6  # index of a mantissa in the table for a meter's first seconds


def powers() -> np.ndarray:
    """2**-x for x = 0, 1/1024, … below 1, in 20 bits."""
    return np.round(2.0**_POWER_BITS * 2.0 ** (-np.arange(STEPS) / STEPS)).astype(np.int64)


def logarithms() -> np.ndarray:
    """log2(1 + x) for x in the middle of each 1024th of [0, 1), in 16 bits."""
    return np.round(ONE * np.log2(1 + (np.arange(STEPS) + 0.5) / STEPS)).astype(np.int64)


@numba.njit(error_model="numpy")
def leading_one(x):
    """Position of the leading one, from 0, of x > 0 (in P4: a longest-prefix match)."""
    n = -1
    while x > 0:
        x >>= 1
        n += 1
    return n


@numba.njit(error_model="numpy")
def log2_fixed(p, x):
    """log2 of an integer above 0, by the table."""
    e = leading_one(x)
    return (e << 16) + p.log_table[((x << BITS) >> e) & (STEPS - 1)]


@numba.njit(error_model="numpy")
def steps_between(last_ns, now_ns, step_ns, reciprocal):
    """Whole decay steps of a 1024th of a half-life since `last_ns`: a division, as multiplication by the reciprocal."""
    elapsed = min(now_ns - last_ns, step_ns << (BITS + 6))  # after 64 half-lives nothing is left anyhow
    return (elapsed * reciprocal) >> 40


@numba.njit(error_model="numpy")
def decayed(p, x, steps):
    """x after so many steps of decay."""
    shift = _POWER_BITS + (steps >> BITS)
    if shift > 62:
        return 0
    return (x * p.power_table[steps & (STEPS - 1)] + (1 << (shift - 1))) >> shift


@numba.njit(error_model="numpy")
def measure_fixed(p, s, packet, now_ns):
    """The activity meter in integers; 16 bits after the point."""
    a = min(packet.aggregate, len(s.volume) - 1)
    if s.first_ns[a] < 0:
        s.first_ns[a] = now_ns
        s.last_ns[a] = now_ns
    steps = steps_between(s.last_ns[a], now_ns, p.meter_step_ns, p.meter_reciprocal)
    if steps > 0:
        s.volume[a] = decayed(p, s.volume[a], steps)
        # what is left of the time is counted next time, so the error does not add up
        s.last_ns[a] = now_ns if steps > 42 << BITS else s.last_ns[a] + steps * p.meter_step_ns
    s.volume[a] += np.int64(packet.bytes) << _VOLUME_BITS
    activity = log2_fixed(p, s.volume[a]) + p.offset[a]
    running = (now_ns - s.first_ns[a]) >> 4
    if running > 0:
        e = leading_one(running)
        mantissa = ((running << _START_BITS) >> e) & ((1 << _START_BITS) - 1)
        activity -= p.start_table[(e << _START_BITS) + mantissa]
    return activity


class IntegerAbc(Abc):
    """ABC in integers, with tables for exp and log2: what a switch without floating point, such as an
    unpatched BMv2, can do.

    Decay goes in steps of a 1024th of a half-life, so a table of 1024 powers of two and shifts do; what does
    not fill a step is carried over. Logarithms have a table of 1024 mantissas after a longest-prefix match.
    The quotient of the average becomes a product with a power of two, the factor 1 / (1 - exp(-β (t - t0)))
    of a young meter a logarithm from a table. Activities have 16 bits after the point. Only additions,
    multiplications, shifts and tables are used.

    Parameters
    ----------
    As for :class:`Abc`.

    Notes
    -----
    Against :class:`Abc` activities are off by less than 0.003 once an aggregate has been metered for five
    memories, by less than 0.02 before; its first 16 ns are no time yet to divide by. Up to 10**12 bit in a
    memory fit into 64-bit numbers.
    """

    name: ClassVar[str] = "abc_integer"

    class State:
        activity_sum = 0
        activity_count = 0
        averaged_ns = 0

    def derived(self) -> dict[str, Any]:
        """Tables and constants."""
        out: dict[str, Any] = {"power_table": powers(), "log_table": logarithms()}
        for kind, memory_s in (("meter", self.meter_memory_s), ("average", self.average_memory_s)):
            step = max(1, round(memory_s * 1e9 * math.log(2) / STEPS))
            out |= {f"{kind}_step_ns": step, f"{kind}_reciprocal": (1 << 40) // step}
        offset = np.log2(8 / (self.meter_memory_s * self.reference_rates_bps())) - _VOLUME_BITS
        out["offset"] = np.round(ONE * offset).astype(np.int64)
        e, mantissa = np.divmod(np.arange(60 << _START_BITS), 1 << _START_BITS)
        running_s = (1 + (mantissa + 0.5) / (1 << _START_BITS)) * 2.0**e * 16e-9
        young = np.log2(-np.expm1(-running_s / self.meter_memory_s))
        out["start_table"] = np.round(ONE * young).astype(np.int64)
        for name in ("min", "base", "gamma"):
            out[f"{name}_fixed"] = round(getattr(self, f"{name}_packets") * (1 if name == "gamma" else ONE))
        return out

    def initial(self) -> dict[str, Any]:
        """A meter for each aggregate; S is in bytes with 8 bits after the point."""
        return super().initial() | {"volume": np.zeros(self.aggregates, np.int64)}

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        activity = measure_fixed(p, s, packet, now_ns)
        packet.label = activity / ONE

        steps = steps_between(s.averaged_ns, now_ns, p.average_step_ns, p.average_reciprocal)
        if steps > 0:
            s.activity_sum = decayed(p, s.activity_sum, steps)
            s.activity_count = decayed(p, s.activity_count, steps)
            s.averaged_ns = now_ns if steps > 42 << BITS else s.averaged_ns + steps * p.average_step_ns
        average = activity
        if s.activity_count > 0:  # sum / count is sum · 2**-log2(count)
            log_count = log2_fixed(p, s.activity_count)
            power = p.power_table[(log_count & (ONE - 1)) >> (16 - BITS)]
            average = (s.activity_sum * power) >> (log_count >> 16) + _POWER_BITS - 16
        threshold = max(p.min_fixed, p.base_fixed - p.gamma_fixed * (activity - average))
        if queue.packets << 16 > threshold:
            stats.dropped += 1
            return DROP
        s.activity_sum += activity
        s.activity_count += ONE
        stats.accepted += 1
        return PASS
