"""Functions of the packets table: flows, RTTs, slots, pairs of taps, long flows, metrics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, {"flows", "metrics", "rtt", "sketch", "slots", "taps"}
)
