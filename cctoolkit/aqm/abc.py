"""ABC, activity-based congestion management: Menth et al., "Implementation and evaluation of activity-based
congestion management using P4 (P4-ABC)", Future Internet 11(7), 2019.

The meter is TDRM-UTEMA, the average UTEMA, of Menth and Hauser, "On moving averages, histograms and
time-dependent rates for online measurement" (ICPE 2017).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .._support.kernels import kernel, part
from ..errors import ParameterError
from .base import DROP, PASS, Aqm

__all__ = ["Abc", "IntegerAbc", "activities"]


@part(error_model="numpy")
def measure(p, s, packet, now_ns):
    """Activity meter (section 3.2): log2 of the rate of an aggregate over its reference rate."""
    a = min(packet.aggregate, len(s.volume) - 1)
    if s.first_ns[a] < 0:
        s.first_ns[a] = now_ns
        s.last_ns[a] = now_ns
    s.volume[a] *= math.exp(-(now_ns - s.last_ns[a]) / p.meter_memory_ns)
    s.volume[a] += 8 * packet.bytes
    s.last_ns[a] = now_ns
    rate_bps = s.volume[a] * 1e9 / p.meter_memory_ns
    if now_ns > s.first_ns[a]:  # else no time has passed to divide by
        rate_bps /= -math.expm1(-(now_ns - s.first_ns[a]) / p.meter_memory_ns)
    return math.log2(rate_bps / p.reference_bps[a])  # equation (1)


class Abc(Aqm):
    """ABC: drops the packets of the most active aggregates first (P4-ABC, sections 3.2 and 3.3).

    On arrival, the ingress of the domain meters the packet's aggregate (``Flow.aggregate``) and writes the activity
    into the packet's label; the activity AQM of this hop then accepts the packet if the queue is below a threshold
    that falls with the activity.

    Parameters
    ----------
    reference_kbps : float or sequence of float
        Reference rate R_r in kbit/s, one for all aggregates or one each; the last one applies to all that follow.
    meter_memory_s, average_memory_s : float
        Memories of the meter (M_AM) and of the average activity (M_AA), in s.
    min_packets, base_packets, gamma_packets : float
        Q_min, Q_base and gamma of equation (2), in packets.
    aggregates : int
        Number of meters. Aggregates with this number or a higher one share the last meter.

    Notes
    -----
    For the very first packet of an aggregate no time has passed to divide by: its rate is taken as if the meter had
    run for long (β S). Before the first packet is accepted, the average is the packet's own activity. ABC drops
    even packets with ECT. The queue is the number of packets waiting; the BMv2 program copies it to ingress
    whenever one leaves.

    A domain has a meter at its ingress and an AQM at each hop (section 3.1). Here there is one hop, the bottleneck,
    with the meter right before it, as in the paper's experiment (section 5.1). Hops without a queue would accept
    everything (``Q <= Q_min``), so only a second congested hop is missing.

    Figure 6 does not come out as in the paper: of a flood of 90 Mbit/s next to one connection, 3 Mbit/s are accepted
    here and 32 there. The threshold of the flood is `min_packets` and that of the connection lies above the buffer,
    so the flood gets what the connection leaves. Rates of 32 and 18 Mbit/s would mean thresholds of 6.6 and 44
    packets with a buffer of 24, so it was not ABC that held the connection back there. ``cct experiment abc`` tries
    other explanations.

    See Also
    --------
    IntegerAbc, TofinoAbc : the same in integers, for switches
    Csfq : fair shares from labels instead of activities

    Examples
    --------
    A connection next to a UDP flow at 80 % of the link rate gets most of the link:

    >>> flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("udp", rate_mbps=8, rtt_ms=20, aggregate=1)]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.Abc(reference_kbps=5000))
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.flows["goodput_mbps"].round(1).tolist()
    [6.5, 3.1]
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
        activity_sum = 0.0  # UTEMA: the sum of activities of accepted packets
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
                raise ParameterError(f"{name}.reference_kbps: {rate!r} must be a positive number")
        if self.meter_memory_s <= 0 or self.average_memory_s <= 0:
            raise ParameterError(f"{name}.meter_memory_s and {name}.average_memory_s: must be positive")
        if not len(rates) <= self.aggregates <= 100_000:
            raise ParameterError(f"{name}.aggregates: must be at least {len(rates)} and at most 100000")

    def reference_rates_bps(self) -> np.ndarray:
        """Reference rate of each aggregate in bit/s."""
        given = self.reference_kbps if isinstance(self.reference_kbps, tuple) else (self.reference_kbps,)
        return np.array([*given, *[given[-1]] * (self.aggregates - len(given))]) * 1e3

    def derived(self) -> dict[str, Any]:
        """Reference rates and decay constants for the meter."""
        return {"reference_bps": self.reference_rates_bps()}

    def initial(self) -> dict[str, Any]:
        """A meter for each aggregate: S (bits), t0, and the time of the last update of S."""
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
    """Activity of each packet according to the meter of :class:`Abc`, for packets of any origin, such as a capture.

    Parameters
    ----------
    ts_ns, wire_bytes, aggregate : array of int, shape (n,)
        Time in ns, size in bytes and aggregate (numbered from 0) of each packet, ordered by time.
    reference_kbps, meter_memory_s : float
        R_r in kbit/s and M_AM in s.

    Returns
    -------
    array of float, shape (n,)
        Equation (1): log2 of the rate over the reference rate.

    Raises
    ------
    ParameterError
        The arrays differ in length, or the rate or memory is not positive.
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
    start = ts.min() if len(ts) else 0  # the meters mark "never" with a negative time
    return _metered(p, s, ts - start, np.asarray(wire_bytes, np.int64), group)


# ---- in integers -----------------------------------------------------------------------------------------------------

BITS = 10  # index of the tables
STEPS = 1 << BITS
ONE = 1 << 16  # logarithms, activities and counts have 16 fractional bits
_POWER_BITS = 20  # powers have 20, else a step of decay would be off by almost a percent
_VOLUME_BITS = 6  # bytes have 6
START_BITS = 6  # index of a mantissa in the table for a meter's first seconds


def powers() -> np.ndarray:
    """2**-x for x = 0, 1/1024, …, 1023/1024, with 20 fractional bits."""
    return np.round(2.0**_POWER_BITS * 2.0 ** (-np.arange(STEPS) / STEPS)).astype(np.int64)


def logarithms() -> np.ndarray:
    """log2(1 + x) for the midpoints of 1024 equal parts of [0, 1), with 16 fractional bits."""
    return np.round(ONE * np.log2(1 + (np.arange(STEPS) + 0.5) / STEPS)).astype(np.int64)


@part(error_model="numpy")
def leading_one(x):
    """Position of the leading one, from 0, of x > 0 (in P4: a longest-prefix match)."""
    n = -1
    while x > 0:
        x >>= 1
        n += 1
    return n


@part(error_model="numpy")
def log2_fixed(p, x):
    """log2 of a positive integer, from the table."""
    e = leading_one(x)
    return (e << 16) + p.log_table[((x << BITS) >> e) & (STEPS - 1)]


@part(error_model="numpy")
def steps_between(last_ns, now_ns, step_ns, reciprocal):
    """Whole decay steps (1/1024 half-life each) since `last_ns`; the division is a multiplication by the reciprocal."""
    elapsed = min(now_ns - last_ns, step_ns << (BITS + 6))  # nothing is left after 64 half-lives
    return (elapsed * reciprocal) >> 40


@part(error_model="numpy")
def decayed(p, x, steps):
    """x after this many decay steps."""
    shift = _POWER_BITS + (steps >> BITS)
    if shift > 62:
        return 0
    return (x * p.power_table[steps & (STEPS - 1)] + (1 << (shift - 1))) >> shift


@part(error_model="numpy")
def measure_fixed(p, s, packet, now_ns):
    """The activity meter in integers, with 16 fractional bits."""
    a = min(packet.aggregate, len(s.volume) - 1)
    if s.first_ns[a] < 0:
        s.first_ns[a] = now_ns
        s.last_ns[a] = now_ns
    steps = steps_between(s.last_ns[a], now_ns, p.meter_step_ns, p.meter_reciprocal)
    if steps > 0:
        s.volume[a] = decayed(p, s.volume[a], steps)
        # the rest of the time counts next time, so errors do not accumulate
        s.last_ns[a] = now_ns if steps > 42 << BITS else s.last_ns[a] + steps * p.meter_step_ns
    s.volume[a] += np.int64(packet.bytes) << _VOLUME_BITS
    activity = log2_fixed(p, s.volume[a]) + p.offset[a]
    running = (now_ns - s.first_ns[a]) >> 4
    if running > 0:
        e = leading_one(running)
        mantissa = ((running << START_BITS) >> e) & ((1 << START_BITS) - 1)
        activity -= p.start_table[(e << START_BITS) + mantissa]
    return activity


class IntegerAbc(Abc):
    """ABC in integers: what a switch without floating point, such as an unpatched BMv2, can do.

    It uses only additions, multiplications, shifts and tables. Volumes decay in steps of 1/1024 half-life, which takes
    a table of 1024 powers of two and shifts; what is left of a step is carried over. Logarithms are a table of 1024
    mantissas after a longest-prefix match. The quotient of the average becomes a product with a power of two, and the
    factor 1 / (1 - exp(-β (t - t0))) of a young meter becomes a logarithm from a table. Activities have 16 fractional
    bits. Parameters are those of :class:`Abc`.

    Notes
    -----
    Compared with :class:`Abc`, activities are off by less than 0.003 once an aggregate has been metered for five
    memories, and by less than 0.02 before; the first 16 ns of an aggregate count as no time. Up to 10**12 bits in a
    memory fit into 64-bit numbers.

    See Also
    --------
    Abc : in floating point
    TofinoAbc : within the limits of a Tofino

    Examples
    --------
    >>> flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("udp", rate_mbps=8, rtt_ms=20, aggregate=1)]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.IntegerAbc(reference_kbps=5000))
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.flows["goodput_mbps"].round(1).tolist()
    [6.6, 3.0]
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
        e, mantissa = np.divmod(np.arange(60 << START_BITS), 1 << START_BITS)
        running_s = (1 + (mantissa + 0.5) / (1 << START_BITS)) * 2.0**e * 16e-9
        young = np.log2(-np.expm1(-running_s / self.meter_memory_s))
        out["start_table"] = np.round(ONE * young).astype(np.int64)
        for name in ("min", "base", "gamma"):
            out[f"{name}_fixed"] = round(getattr(self, f"{name}_packets") * (1 if name == "gamma" else ONE))
        return out

    def initial(self) -> dict[str, Any]:
        """A meter for each aggregate; S is in bytes with 6 fractional bits."""
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
