"""Flows of a router named while they run: the Dragonfly collector in the kernel, and slots of what it sees.

``watch(KernelCollector("in0", "out0"))`` gives :class:`Update` after :class:`Update`; with a :class:`CaptureCollector`
it does the same with captures. The kernel's part is in ``hardware/ebpf``.
"""

from __future__ import annotations

from .collector import Collector, FlowKey, KernelCollector, Reading
from .errors import CollectorError, CollectorUnavailableError
from .naming import SlotClassifier
from .program import missing
from .replay import CaptureCollector
from .stream import SlotStream
from .watch import Update, watch

__all__ = [
    "CaptureCollector",
    "Collector",
    "CollectorError",
    "CollectorUnavailableError",
    "FlowKey",
    "KernelCollector",
    "Reading",
    "SlotClassifier",
    "SlotStream",
    "Update",
    "missing",
    "watch",
]
