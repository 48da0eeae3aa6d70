from .collector import (
    Collector as Collector,
    FlowKey as FlowKey,
    KernelCollector as KernelCollector,
    Reading as Reading,
)
from .errors import (
    CollectorError as CollectorError,
    CollectorUnavailableError as CollectorUnavailableError,
)
from .naming import SlotClassifier as SlotClassifier
from .program import missing as missing
from .replay import CaptureCollector as CaptureCollector
from .stream import SlotStream as SlotStream
from .watch import Update as Update, watch as watch
