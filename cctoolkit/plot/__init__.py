"""Figures: functions that return a plotly Figure and never show it.

They share one look, thin large series without losing extremes, and escape text that comes from a capture. Time axes
are in seconds since the capture's first packet.
"""

from __future__ import annotations

from .cdfs import completion_cdf, rtt_cdf
from .classes import rtt_classes
from .delays import queue_delay, rtt
from .occupancy import cbiq
from .rates import BIG_SHARE, throughput
from .runs import goodput, queue, window
from .sequence import bytes_in_flight, time_sequence
from .source import Names
from .stacking import stack
from .thinning import thin, thin_rows
from .trade_off import trade_off

__all__ = [
    "BIG_SHARE",
    "Names",
    "bytes_in_flight",
    "cbiq",
    "completion_cdf",
    "goodput",
    "queue",
    "queue_delay",
    "rtt",
    "rtt_cdf",
    "rtt_classes",
    "stack",
    "thin",
    "thin_rows",
    "throughput",
    "time_sequence",
    "trade_off",
    "window",
]
