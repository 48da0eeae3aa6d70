"""Figures: functions that return a plotly Figure and never show it.

They share one look, thin large series without losing extremes, and escape text that comes from a capture. Time axes
are in seconds since the capture's first packet.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
