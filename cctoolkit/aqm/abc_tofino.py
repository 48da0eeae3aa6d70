"""ABC on a Tofino: the meter and the average activity within the limits of its stages.

A Tofino has no multiplication, no shift by a variable number of bits and no 64-bit arithmetic. Each packet reads and
writes a register once, in one stage, with an addition in between. And the decision is made in the ingress pipeline,
while packets leave through the egress pipeline. So decay, products, logarithms and the average are rearranged here;
``hardware/programs/abc/`` has the same in P4, for the Tofino and BMv2.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from .._support.kernels import part
from ..errors import ParameterError
from .abc import ONE, Abc, leading_one
from .base import DROP, PASS

__all__ = [
    "TofinoAbc",
    "average_gains",
    "length_logarithms",
    "logarithms",
    "weighted_lengths",
    "young_logarithms",
]

TIME_BITS = 48  # width of the switch's clock, in ns
EPOCH_HALF_LIVES = 8  # length of an epoch of the meter
LENGTH_BITS, LOG_BITS, YOUNG_BITS = 7, 7, 6  # bits after the leading one that index the tables of logarithms
WEIGHT_BITS = 8  # fractional bits of the exponent that indexes the weighted lengths
LONGEST_BYTES = 9216  # longer packets count as this long
COARSE_BITS = 15  # steps of the clock are 2**-15 half-lives
MATURE_STEPS = 16 << COARSE_BITS  # a meter is mature after 16 half-lives
AVERAGE_BITS = 24  # fractional bits of the average, which changes by very small amounts
GAIN_BITS = 3  # fractional bits of the logarithm that indexes the gains
MOST_PACKETS_BITS = 20  # the smallest gain is 2**-20
RING = 1 << 16  # most packets that can wait
_WORD = (1 << 32) - 1


def octaves(bits: int, width: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """First value and number of values for each index of a table indexed by the leading one and the next `bits` bits.

    On a switch, these are the prefixes of a longest-prefix match.
    """
    e, mantissa = np.divmod(np.arange(width << bits), 1 << bits)
    first = (((1 << bits) + mantissa) << e) >> bits
    return first, np.maximum(1 << e >> bits, 1)


@part(error_model="numpy")
def octave(x, bits):
    """Index of x > 0 in such a table."""
    e = leading_one(x)
    return (e << bits) + (((x << bits) >> e) & ((1 << bits) - 1))


def _middles(bits: int, width: int = 32) -> np.ndarray:
    first, count = octaves(bits, width)
    return first + (count - 1) / 2


def logarithms() -> np.ndarray:
    """log2 of a 32-bit sum, with 16 fractional bits."""
    return np.round(ONE * np.log2(_middles(LOG_BITS))).astype(np.int64)


def length_logarithms(header_bytes: int = 14) -> np.ndarray:
    """log2 of the bytes of a frame, indexed by the length in its IP header, with 15 fractional bits."""
    frame = np.minimum(_middles(LENGTH_BITS, 16) + header_bytes, LONGEST_BYTES)
    return np.round((1 << COARSE_BITS) * np.log2(frame)).astype(np.int64)


def weighted_lengths(unit_bytes: int) -> np.ndarray:
    """2**x in units of `unit_bytes`, for x at the midpoints of 1/256 steps."""
    longest = math.log2(LONGEST_BYTES) + EPOCH_HALF_LIVES
    x = (np.arange(int(longest * (1 << WEIGHT_BITS)) + 1) + 0.5) / (1 << WEIGHT_BITS)
    return np.round(2.0**x / unit_bytes).astype(np.int64)


def young_logarithms() -> np.ndarray:
    """log2 of 1 - 2**-t with 16 fractional bits, indexed by t in coarse steps of a half-life."""
    width = MATURE_STEPS.bit_length() - 1
    half_lives = _middles(YOUNG_BITS, width) / (1 << COARSE_BITS)
    return np.round(ONE * np.log2(-np.expm1(-half_lives * math.log(2)))).astype(np.int64)


def average_gains(ratio: float, min_shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Gain of the average, indexed by log2 of the number of packets in its memory.

    Parameters
    ----------
    ratio : float
        Desired memory, in epochs of the count.
    min_shift : int
        The largest gain is 2**-min_shift.

    Returns
    -------
    shift, further : array of int
        The gain is 2**-shift (1 + 2**-further), without the second term if `further` is 0. Indexed by log2 of the
        count in steps of 1/8, from -1 on.
    """
    # Packets at a constant rate, in epochs, are counted as (1 + x) 2**-x where one epoch and x of the next have passed
    x = (np.arange(1000) + 0.5) / 1000
    counted = float(np.mean((1 + x) * 2.0**-x))
    eighths = np.arange(-(1 << GAIN_BITS), 32 << GAIN_BITS)
    packets = np.maximum(2.0 ** (eighths / (1 << GAIN_BITS)) * ratio / counted, 1)
    shifts, furthers, values = zip(
        *[
            (shift, further, 2.0**-shift * (1 + (2.0**-further if further else 0)))
            for shift in range(min_shift, MOST_PACKETS_BITS + 1)
            for further in (0, 3, 2, 1)
            if shift > min_shift or further == 0
        ],
        strict=True,
    )
    nearest = np.abs(np.log2(packets)[:, None] + np.log2(values)[None, :]).argmin(axis=1)
    return np.array(shifts)[nearest], np.array(furthers)[nearest]


@part(error_model="numpy")
def add_and_sum(sums, cycles, a, epoch, epoch_mask, increment, lost_bits):
    """The sum of this epoch, including the increment of this packet, plus that of the previous epoch.

    Two slots alternate. Each stores the cycle (of two epochs) in which it was started; if that is an old one, its sum
    does not count. The sum of the previous epoch is shifted right by `lost_bits`.
    """
    now = epoch & 1
    total = 0
    for slot in range(2):
        at = 2 * a + slot
        cycle = ((epoch - slot) & epoch_mask) >> 1
        if slot == now:
            sums[at] = min(sums[at] + increment, _WORD) if cycles[at] == cycle else increment
            cycles[at] = cycle
            total += sums[at]
        elif cycles[at] == cycle:
            total += sums[at] >> lost_bits
    return min(total, _WORD)


@part(error_model="numpy")
def measure_tofino(p, s, packet, now_ns):
    """The activity meter, with 16 fractional bits."""
    a = min(packet.aggregate, p.last_aggregate)
    time = now_ns & ((1 << TIME_BITS) - 1)

    # Forward decay: later bytes of an epoch weigh more, and the sum is divided by the current weight
    coarse = time >> p.half_life_bits - COARSE_BITS
    within = coarse & (EPOCH_HALF_LIVES << COARSE_BITS) - 1
    exponent = p.length_log[octave(max(packet.bytes - p.header_bytes, 1), LENGTH_BITS)] + within
    increment = p.weighted[exponent >> COARSE_BITS - WEIGHT_BITS]
    total = add_and_sum(
        s.volume,
        s.volume_cycle,
        a,
        coarse >> p.epoch_shift,
        p.volume_epoch_mask,
        increment,
        EPOCH_HALF_LIVES,
    )
    activity = p.log[octave(total, LOG_BITS)] + p.offset[a] - (within << 16 - COARSE_BITS)

    # A meter younger than 16 half-lives
    coarse &= _WORD
    if s.known[a] == 0:
        s.first[a] = coarse
        s.known[a] = 1
    age = (coarse - s.first[a]) & _WORD
    if age >= MATURE_STEPS:
        s.mature[a] = 1
    if s.mature[a] == 0 and age > 0:
        activity -= p.young[octave(age, YOUNG_BITS)]
    return activity


class TofinoAbc(Abc):
    """ABC on a Tofino: 32-bit additions, shifts by fixed numbers of bits, and tables.

    *Meter.* Instead of decaying the volume S, later bytes weigh more (forward decay): within an epoch of eight
    half-lives a byte adds 2**x, where x is the number of half-lives since the epoch started, so the register only
    needs an addition. The product of length and weight is a sum of logarithms and one table. Two registers
    alternate, one per epoch; one plus the other shifted by 8 bits is S · 2**x, and the activity is its logarithm
    minus x.

    *Average.* A new value of UTEMA differs from the previous one by (A - A_avg) / N, where N is the number of
    packets in the memory. N comes from a count over this epoch, about as long as the memory, and the previous one:
    its logarithm minus the part of this epoch that has passed, since log2(1 + x) is close to x. The difference is
    computed on arrival, where the threshold needs it, and travels with the packet; when the packet leaves, it is
    divided by N (a shift or the sum of two) and added. The departure reports the new average to the ingress
    pipeline.

    *Queue.* Accepted packets are numbered; the number of the packet that left last tells how many wait. The ingress
    accepts no more than the buffer holds.

    Parameters
    ----------
    largest_mbps : float
        Rate of an aggregate in Mbit/s up to which 32-bit sums must not overflow; above it, the activity saturates.
    header_bytes : int
        Bytes of a frame beyond the length in its IP header: 14 for IPv4, 54 for IPv6.
    **others
        The parameters of :class:`Abc`.

    Notes
    -----
    A half-life is a power of two nanoseconds, because epochs are read from bits of the clock: the meter's memory of
    3 s is 3.10 s here. The memory of the average is as given, since the table of gains compensates.

    Compared with :class:`Abc` with a memory of the same half-life, activities are off by at most 0.04, and by less
    than 0.02 for nine in ten packets; by up to 0.35 if the sum consists of a few 64-byte packets only, since its
    unit is 16 bytes by default; and by more in the first millisecond of a meter, since ages have steps of 65.5 µs.
    Packets from before the previous epoch, 8 to 16 half-lives ago, are forgotten: that is 0.006 at constant rates,
    and half a bit after the rate has fallen by a factor of 6000.

    The average changes when packets leave, not when they are accepted, and the gain is at most 1 / (e · buffer in
    packets), rounded down to a power of two: the packets still in the queue were compared with the old average and
    will change it again.

    See Also
    --------
    Abc : in floating point
    IntegerAbc : in integers, without the other limits

    Examples
    --------
    >>> flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("udp", rate_mbps=8, rtt_ms=20, aggregate=1)]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.TofinoAbc(reference_kbps=5000))
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.flows["goodput_mbps"].round(1).tolist()
    [6.7, 2.9]
    """

    name: ClassVar[str] = "abc_tofino"

    largest_mbps: float = 500.0
    header_bytes: int = 14

    class State:
        average = 0  # 24 fractional bits
        departed = 0  # packets
        accepted = 0
        excess = np.zeros(RING, np.int64)  # of waiting packets, by number

    def check(self) -> None:
        super().check()
        if not self.largest_mbps > 0:
            raise ParameterError("TofinoAbc.largest_mbps: must be positive")
        if not 24 <= self.half_life_bits() <= 36:
            raise ParameterError("TofinoAbc.meter_memory_s: must be between 0.02 and 100")
        if not 18 <= self.count_epoch_bits() <= 36:
            raise ParameterError("TofinoAbc.average_memory_s: must be between 0.0005 and 100")

    def half_life_bits(self) -> int:
        """log2 of the meter's half-life in ns."""
        return round(math.log2(self.meter_memory_s * 1e9 * math.log(2)))

    def count_epoch_bits(self) -> int:
        """log2 of the epoch in ns over which packets are counted."""
        return round(math.log2(self.average_memory_s * 1e9))

    def meter_s(self) -> float:
        """The actual memory of the meter in s."""
        return 2.0 ** self.half_life_bits() * 1e-9 / math.log(2)

    def unit_bytes(self) -> int:
        """Unit of the sums: S at the largest rate, with the largest weight of 256, fits into 32 bits."""
        most = self.largest_mbps * 1e6 / 8 * self.meter_s() * 2**EPOCH_HALF_LIVES
        return 1 << max(0, math.ceil(math.log2(most / 2**32)))

    def offsets(self) -> np.ndarray:
        """Offset from the logarithm of a sum to the activity, for each aggregate, with 16 fractional bits."""
        bits_per_s = 8 * self.unit_bytes() / self.meter_s()
        return np.round(ONE * np.log2(bits_per_s / self.reference_rates_bps())).astype(np.int64)

    def gains(self, buffer_packets: int) -> tuple[np.ndarray, np.ndarray]:
        """``average_gains`` for this buffer: first and further shifts, indexed by the logarithm of a count."""
        min_shift = math.ceil(math.log2(math.e * min(buffer_packets, RING)))
        return average_gains(self.average_memory_s * 1e9 / 2.0 ** self.count_epoch_bits(), min_shift)

    def derived(self) -> dict[str, Any]:
        """Tables and constants; gains for each power of two of the buffer in packets."""
        shift, further = zip(*(self.gains(1 << bits) for bits in range(17)), strict=True)
        half_life, count_epoch = self.half_life_bits(), self.count_epoch_bits()
        epoch_shift = COARSE_BITS + EPOCH_HALF_LIVES.bit_length() - 1
        gamma = round(self.gamma_packets * 256)
        return {
            "half_life_bits": half_life,
            "epoch_shift": epoch_shift,
            "volume_epoch_mask": (1 << TIME_BITS - half_life + COARSE_BITS - epoch_shift) - 1,
            "count_epoch_bits": count_epoch,
            "count_epoch_mask": (1 << TIME_BITS - count_epoch) - 1,
            "last_aggregate": self.aggregates - 1,
            "offset": self.offsets(),
            "length_log": length_logarithms(self.header_bytes),
            "weighted": weighted_lengths(self.unit_bytes()),
            "log": logarithms(),
            "young": young_logarithms(),
            "gain_shift": np.concatenate(shift),
            "gain_further": np.concatenate(further),
            "gains": len(shift[0]),
            "min_fixed": math.floor(self.min_packets),
            # 2**-16 of activity less, so that thresholds change where prefixes start
            "base_fixed": round(self.base_packets * (1 << 24)) - gamma,
            "gamma_fixed": gamma,
        }

    def initial(self) -> dict[str, Any]:
        """Meters of two slots each, and the count of departures."""
        n = self.aggregates
        return {
            "volume": np.zeros(2 * n, np.int64),
            "volume_cycle": np.zeros(2 * n, np.int64),
            "first": np.zeros(n, np.int64),
            "known": np.zeros(n, np.int64),
            "mature": np.zeros(n, np.int64),
            "count": np.zeros(2, np.int64),
            "count_cycle": np.zeros(2, np.int64),
        }

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        activity = measure_tofino(p, s, packet, now_ns)
        packet.label = activity / ONE

        excess = activity - (s.average >> AVERAGE_BITS - 16)
        threshold = max(p.min_fixed, (p.base_fixed - p.gamma_fixed * excess) >> 24)  # (2), in whole packets
        threshold = min(threshold, min(queue.limit_packets, RING) - 1)
        if s.accepted - s.departed > threshold:
            stats.dropped += 1
            return DROP
        s.accepted += 1
        s.excess[s.accepted & RING - 1] = excess
        stats.accepted += 1
        return PASS

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        s.departed += 1
        time = now_ns & ((1 << TIME_BITS) - 1)
        epoch = time >> p.count_epoch_bits
        count = add_and_sum(s.count, s.count_cycle, 0, epoch, p.count_epoch_mask, 1, 0)
        log_count = p.log[octave(count, LOG_BITS)] >> 16 - GAIN_BITS
        within = (time >> p.count_epoch_bits - GAIN_BITS) & ((1 << GAIN_BITS) - 1)
        buffer_bits = leading_one(2 * min(queue.limit_packets, RING) - 1)
        gain = buffer_bits * p.gains + log_count - within + (1 << GAIN_BITS)
        shift = p.gain_shift[gain] - (AVERAGE_BITS - 16)
        excess = s.excess[s.departed & RING - 1]
        part = excess >> shift if shift >= 0 else excess << -shift
        further = p.gain_further[gain]
        s.average += part + (part >> further if further > 0 else 0)
        return PASS
