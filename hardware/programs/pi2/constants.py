"""Constants of PI2: sizes. Gains and target belong to the controller, in the control plane: see
:class:`cctoolkit.aqm.IntegerPi2`."""

from __future__ import annotations

from cctoolkit.aqm.pi2 import ONE

from ...constants import Constant, Macro

__all__ = ["CONSTANTS", "PORTS"]

#: Each has one queue and one probability.
PORTS = 512

CONSTANTS: list[Constant | Macro] = [
    Constant("PORT_ENTRIES", PORTS, 32, "one queue per port"),
    Constant(
        "RANDOM_BITS", ONE.bit_length() - 1, 8, "of a random draw; probabilities have as many fractional bits"
    ),
]
