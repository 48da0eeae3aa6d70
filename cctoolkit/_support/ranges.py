"""Ranges of numbers that ``--help`` shows, without an import of the modules that check them.

``tests/test_cli_commands.py`` compares them with those modules' own.
"""

from __future__ import annotations

__all__ = [
    "LEAST_MBPS", "LEAST_MS", "LEAST_S", "LEAST_SAMPLED", "LEAST_SNAPLEN", "LEAST_SPEED", "MOST_FRAME_BYTES",
    "MOST_MBPS", "MOST_PORT", "MOST_SPEED",
]  # fmt: skip

#: The least time, one nanosecond, in ms and in s.
LEAST_MS, LEAST_S = 1e-6, 1e-9
#: Rates in Mbit/s: from one bit to 10**15 bits per second.
LEAST_MBPS, MOST_MBPS = 1e-6, 1e9
MOST_PORT = 65_535
#: The longest frame of a capture, as in tcpdump.
MOST_FRAME_BYTES = 262_144
#: What the testbed must keep of each packet: its headers.
LEAST_SNAPLEN = 64
#: How many times as fast as it was a capture may be replayed.
LEAST_SPEED, MOST_SPEED = 1e-6, 1e6
#: The least probability of a packet to be sampled.
LEAST_SAMPLED = 1e-12
