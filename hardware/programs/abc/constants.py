"""Constants of ABC: :class:`cctoolkit.aqm.IntegerAbc` (BMv2) and :class:`cctoolkit.aqm.TofinoAbc` (Tofino,
and BMv2 with the Tofino's arithmetic).

Only sizes of registers and tables and positions of clock bits are here. The tables of powers and logarithms
have thousands of entries: ``control.py`` writes them, from the same models.
"""

from __future__ import annotations

from cctoolkit.aqm.abc import BITS, START_BITS, STEPS, IntegerAbc
from cctoolkit.aqm.abc_tofino import (
    AVERAGE_BITS,
    EPOCH_HALF_LIVES,
    GAIN_BITS,
    LENGTH_BITS,
    LOG_BITS,
    MATURE_STEPS,
    MOST_PACKETS_BITS,
    YOUNG_BITS,
    TofinoAbc,
    weighted_lengths,
)

from ...constants import Constant, Macro

__all__ = ["AGGREGATES", "CONSTANTS", "MODEL", "NUMBER", "PROFILES", "TOFINO_MODEL"]

#: Aggregates that can be metered; the last one is for all traffic without its own.
AGGREGATES = 1024
#: Parameter sets of the activity AQM, for ports with different buffers.
PROFILES = 16

MODEL = IntegerAbc(aggregates=AGGREGATES)
TOFINO_MODEL = TofinoAbc(aggregates=AGGREGATES)

_RECORD = MODEL.derived()
_METER = TOFINO_MODEL.half_life_bits()
_EPOCH_BITS = EPOCH_HALF_LIVES.bit_length() - 1

#: A one-packet buffer has the largest gain.
_GAIN_SHIFTS = range(int(TOFINO_MODEL.gains(1)[0].min()), MOST_PACKETS_BITS + 1)


def _shift(shift: int) -> str:
    down = shift - (AVERAGE_BITS - 16)
    return f">> {down}" if down > 0 else f"<< {-down}"


def _octaves(bits: int, width: int) -> int:
    """Number of prefixes in a table indexed by the leading one and the `bits` bits after it."""
    return (1 << bits) * (width - bits + 1) - 1


CONSTANTS: list[Constant | Macro] = [
    Constant("AGGREGATE_ENTRIES", AGGREGATES, 32, "meters; the last one is for all traffic without its own"),
    Constant("PROFILE_ENTRIES", PROFILES, 32, "parameter sets of the AQM"),
    # 64 bits
    Constant("METER_STEP_NS", _RECORD["meter_step_ns"], 64, "1/1024 of the half-life of M_AM = 3 s"),
    Constant("METER_RECIPROCAL_STEPS", _RECORD["meter_reciprocal"], 64, "steps in 2^40 ns"),
    Constant("AVERAGE_STEP_NS", _RECORD["average_step_ns"], 64, "1/1024 of the half-life of M_AA = 0.3 s"),
    Constant("AVERAGE_RECIPROCAL_STEPS", _RECORD["average_reciprocal"], 64, "steps in 2^40 ns"),
    Constant("TABLE_BITS", BITS, 8, "index of the tables of powers and logarithms"),
    Constant("TABLE_ENTRIES", STEPS, 32, "of the tables of powers and logarithms"),
    Constant(
        "GONE_STEPS",
        42 << BITS,
        64,
        "after 42 half-lives nothing is left, and the remainder of a step does not matter",
    ),
    Constant("START_BITS", START_BITS, 8, "after the leading one: index of the table for young meters"),
    Constant("START_ENTRIES", len(_RECORD["start_table"]), 32, "of the table for young meters"),
    Macro(
        "LEADING_ONE_ENTRIES",
        [f"0x{1 << n:016x} &&& 0x{(1 << 64) - (1 << n):016x}: found({n});" for n in range(64)],
        "position of the leading one of 64 bits",
    ),
    # Tofino
    Constant(
        "METER_EPOCH_SHIFT",
        _METER + _EPOCH_BITS,
        8,
        "the meter's half-life is 2^31 ns; an epoch is eight of them",
    ),
    Constant("METER_LOST_BITS", EPOCH_HALF_LIVES, 8, "what the previous epoch has lost"),
    Constant(
        "AVERAGE_EPOCH_SHIFT",
        TOFINO_MODEL.count_epoch_bits(),
        8,
        "packets are counted in epochs of 2^28 ns",
    ),
    Constant(
        "MATURE_SHIFT",
        MATURE_STEPS.bit_length() - 1,
        8,
        "a meter is young while its age, in 2^16 ns, has at most this many bits",
    ),
    Constant("LENGTH_ENTRIES", _octaves(LENGTH_BITS, 16) + 1, 32, "prefixes of an IP length, plus 0"),
    Constant(
        "WEIGHTED_ENTRIES", len(weighted_lengths(1)), 32, "exponents of weighted lengths of up to 9216 bytes"
    ),
    Constant("LOGARITHM_ENTRIES", _octaves(LOG_BITS, 32), 32, "prefixes of a sum"),
    Constant("YOUNG_ENTRIES", _octaves(YOUNG_BITS, MATURE_STEPS.bit_length() - 1), 32, "prefixes of an age"),
    Constant(
        "GAIN_ENTRIES", PROFILES * (33 << GAIN_BITS), 32, "profiles times logarithms of counts, from -1 on"
    ),
    Macro(
        "GAIN_ACTIONS",
        [
            f"action gain_{shift}(bit<8> further) {{ "
            f"meta.part = meta.excess {_shift(shift)}; meta.halvings = further; }}"
            for shift in _GAIN_SHIFTS
        ],
        "excess times 2^-shift, with 8 more fractional bits",
    ),
    Macro("GAIN_NAMES", [f"gain_{shift};" for shift in _GAIN_SHIFTS], "names of these actions"),
    Constant("THRESHOLD_ENTRIES", 2048, 32, "prefixes of an activity excess, for all profiles"),
]

#: Constants by name.
NUMBER = {c.name: c.value for c in CONSTANTS if isinstance(c, Constant)}
