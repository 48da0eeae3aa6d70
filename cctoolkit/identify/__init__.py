"""Which congestion control is that? Datasets of slots, classifiers, their training and evaluation, saved models.

Names are loaded at first use: reading a dataset or using a saved model needs no torch, training does (extra ``train``).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_WHERE = {
    "CCAClassifier": "classifiers",
    "DeepcciClassifier": "classifiers",
    "DragonflyClassifier": "classifiers",
    "FEATURE_SETS": "windows",
    "INPUTS": "windows",
    "Model": "bundle",
    "Recording": "dataset",
    "SETTINGS": "settings",
    "SlotDataset": "dataset",
    "SummaryClassifier": "classifiers",
    "Windows": "windows",
    "build_dataset": "dataset",
    "bundled_models": "bundle",
    "classify_flows": "classify",
    "cut_windows": "windows",
    "load": "bundle",
    "record": "dataset",
    "save_models": "bundle",
}

__all__ = list(_WHERE)

if TYPE_CHECKING:
    from .bundle import Model as Model
    from .bundle import bundled_models as bundled_models
    from .bundle import load as load
    from .bundle import save_models as save_models
    from .classifiers import CCAClassifier as CCAClassifier
    from .classifiers import DeepcciClassifier as DeepcciClassifier
    from .classifiers import DragonflyClassifier as DragonflyClassifier
    from .classifiers import SummaryClassifier as SummaryClassifier
    from .classify import classify_flows as classify_flows
    from .dataset import Recording as Recording
    from .dataset import SlotDataset as SlotDataset
    from .dataset import build_dataset as build_dataset
    from .dataset import record as record
    from .settings import SETTINGS as SETTINGS
    from .windows import FEATURE_SETS as FEATURE_SETS
    from .windows import INPUTS as INPUTS
    from .windows import Windows as Windows
    from .windows import cut_windows as cut_windows


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
