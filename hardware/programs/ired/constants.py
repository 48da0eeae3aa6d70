"""Constants of iRED: the units of :class:`cctoolkit.aqm.IntegerIRed`, and its table of probabilities.

The control plane writes the table (one entry per 32.8 µs of average delay above the lower threshold), so
thresholds can be changed while the switch runs.
"""

from __future__ import annotations

from typing import NamedTuple

from cctoolkit.aqm.ired import (
    DELAY_SHIFT,
    EPOCH_PACKETS,
    LONGEST_DELAY,
    RED_SHIFT,
    RED_STEPS,
    IntegerIRed,
    red_probabilities,
)

from ...constants import Constant, Macro

__all__ = ["CONSTANTS", "QUEUES", "STATES", "RedEntry", "red_entries"]

#: Queues per port with a state of their own.
QUEUES = 8
#: By port (9 bits) and queue.
STATES = 512 * QUEUES


class RedEntry(NamedTuple):
    """The probabilities at an average delay; 65536 is 1."""

    step: int
    classic: int
    scalable: int


def red_entries(model: IntegerIRed | None = None) -> list[RedEntry]:
    """The table of probabilities. Averages without an entry have probability 0."""
    model = model or IntegerIRed()
    classic, scalable = red_probabilities(
        model.min_ms, model.max_ms, coupling=model.coupling, square=model.square
    )
    return [
        RedEntry(step, int(c), int(s))
        for step, (c, s) in enumerate(zip(classic, scalable, strict=True))
        if c or s
    ]


def _halve(position: int) -> str:
    """A delay's weight halves with each later packet."""
    last = EPOCH_PACKETS + position + 1
    earlier = f"meta.before >> {last}" if last < 32 else "0"
    return (
        f"action halve_{position}() {{ meta.recent = meta.sum >> {position + 1}; meta.earlier = {earlier}; }}"
    )


CONSTANTS: list[Constant | Macro] = [
    Constant("DELAY_SHIFT", DELAY_SHIFT, 8, "delays are counted in units of 1024 ns"),
    Constant(
        "CUT_SHIFT", DELAY_SHIFT + LONGEST_DELAY.bit_length(), 8, "a delay with bits from here on is clamped"
    ),
    Constant("LONGEST_DELAY_STEPS", LONGEST_DELAY, 32, "in units of 1024 ns: 67 ms"),
    Constant("RED_SHIFT", RED_SHIFT, 8, "low bits of the average that its table ignores"),
    Constant("RED_ENTRIES", RED_STEPS, 32, "averages of 0 to 67 ms, in steps of 32.8 us"),
    Constant("STATE_ENTRIES", STATES, 32, "512 ports with 8 queues"),
    Constant("NOTIFICATION_BYTES", 48, 32, "section 4.1 of the paper"),
    Macro(
        "DOUBLE_ACTIONS",
        [f"action double_{i}() {{ meta.weighted = meta.delay << {i}; }}" for i in range(EPOCH_PACKETS)],
        "packet i of an epoch has weight 2^i",
    ),
    Macro("DOUBLE_NAMES", [f"double_{i};" for i in range(EPOCH_PACKETS)], "names of the actions"),
    Macro(
        "DOUBLE_ENTRIES", [f"{i}: double_{i}();" for i in range(EPOCH_PACKETS)], "by position in the epoch"
    ),
    Macro(
        "HALVE_ACTIONS",
        [_halve(i) for i in range(EPOCH_PACKETS)],
        "after packet i of an epoch: the parts of this epoch and the last one in the average",
    ),
    Macro("HALVE_NAMES", [f"halve_{i};" for i in range(EPOCH_PACKETS)], "names of the actions"),
    Macro("HALVE_ENTRIES", [f"{i}: halve_{i}();" for i in range(EPOCH_PACKETS)], "by position in the epoch"),
]
