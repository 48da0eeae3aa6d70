"""Sizes of packets on Ethernet."""

__all__ = ["ETHERNET_BYTES", "FULL_FRAME_BYTES", "FULL_SEGMENT_BYTES"]

#: The header of a frame.
ETHERNET_BYTES = 14
#: A full packet, 1500 bytes, with that header.
FULL_FRAME_BYTES = 1514
#: Its payload: a full segment of TCP with timestamps.
FULL_SEGMENT_BYTES = 1448
