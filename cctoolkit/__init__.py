"""cctoolkit: packet captures, congestion control and queues, for notebooks and the command line.

Packets in one table, whatever made them; everything else is a function of that table. Names are loaded at
first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_WHERE = {
    "Capture": "capture.model",
    "read_capture": "capture.reader",
    "iter_capture": "capture.reader",
}
_MODULES = ("capture", "errors", "schema")

__all__ = list(_WHERE) + list(_MODULES)  # the names stand once, above

if TYPE_CHECKING:
    from . import errors as errors
    from . import schema as schema
    from .capture.model import Capture as Capture
    from .capture.reader import iter_capture as iter_capture
    from .capture.reader import read_capture as read_capture


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
