"""The Dragonfly paper's figures: naming a flow's congestion control from windows of its slots.

Carmel and Keslassy, "Dragonfly: In-Flight CCA Identification". Data are the paper's Mininet settings (section IV-A) on
the simulator, or an existing dataset (``cct dataset build``), for instance of real Linux. Test data share no run with
training data, as they do in the paper; the part ``splits`` shows what that changes. The parts ``baseline``, ``recall``
and ``sampling`` show what the authors' published programs change, ``learning-curve`` what more runs do, and ``linux``
whether the scores are the simulator's own.

Examples
--------
>>> from cctoolkit.experiments import dragonfly
>>> recipe = dragonfly.Training(epochs=10, seeds=2)
>>> dragonfly.f1_by_window(dataset, recipe, [100, 1000])      # doctest: +SKIP
"""

from __future__ import annotations

import lazy_loader

from .command import run
from .scenarios import (
    CLASSIFIERS,
    DROPPED_PERCENT,
    FULL_WINDOWS_MS,
    PUBLISHED,
    TITLES,
    WINDOWS_MS,
    jobs,
)
from .training import Training

__all__ = ["CLASSIFIERS", "DROPPED_PERCENT", "FULL_WINDOWS_MS", "PUBLISHED", "TITLES", "WINDOWS_MS",
           "Training", "jobs", "run"]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submodules=["cases", "conclusions", "figures", "parts", "tables"],
    submod_attrs={
        "tables": [
            "EPOCH_BACKGROUNDS",
            "accuracy_by_epoch",
            "background_of",
            "bundled_by_place",
            "by_published_inputs",
            "by_split",
            "elsewhere",
            "f1_of_baseline",
            "f1_by_input",
            "f1_by_place",
            "f1_by_runs",
            "f1_by_sampling",
            "f1_by_window",
            "left_out",
            "recall_by_epoch",
            "recorded_windows",
            "volatility",
        ],
        "conclusions": ["statements"],
        "parts": ["PARTS"],
    },
)
