"""The limiter behind the paper's switch."""

__all__ = ["PACKETS_PER_S"]

#: Packets that BMv2 sends in a second: 50 Mbit/s in packets of 1500 bytes (section 5.1).
PACKETS_PER_S = 4170
