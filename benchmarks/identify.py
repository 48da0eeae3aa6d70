"""Naming windows without torch, and training the paper's network (Dragonfly: 100 epochs of 1500 windows in 100 s)."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

import cctoolkit as cct
from cctoolkit.identify import DragonflyClassifier, Recording, Windows, cut_windows, load, record
from cctoolkit.identify.inputs import VIEW_INPUTS
from cctoolkit.identify.readers import label_flows

from .measure import line, measure

TRACES = Path(__file__).parents[1] / "traces"
NAMES = ("reno", "cubic", "bbr", "cubic-bbr", "mixed")
WINDOW_MS = 100


@functools.cache
def recordings() -> list[Recording]:
    """Of the bundled captures."""
    found = []
    for name in NAMES:
        before, after = (cct.read_capture(TRACES / f"{name}.{tap}.pcap.gz") for tap in ("ingress", "egress"))
        labels = label_flows(before, TRACES / f"{name}.labels.csv")
        found.append(record(before, after, labels, name=name))
    return found


def windows(count: int, inputs: tuple[str, ...] | str) -> Windows:
    """Each as many times as it takes."""
    cut = cut_windows(recordings(), WINDOW_MS, inputs, per_flow=60)
    return cut.take(np.resize(np.random.default_rng(0).permutation(len(cut)), count))


def run(directory: Path, packets: int | None, repeat: int) -> None:
    count = packets or 1000
    X = windows(count, "cbiq+throughput")
    dragonfly = load("dragonfly")
    dragonfly.predict(X)
    first = line(
        f"{count} windows of {WINDOW_MS} ms: Dragonfly's network",
        measure(lambda: dragonfly.predict(X), repeat),
        count,
        "windows",
    )
    views, ours = windows(count, VIEW_INPUTS), load("cca")
    ours.predict(views)
    line(
        "ours, from counts to names",
        measure(lambda: ours.predict(views), repeat),
        count,
        "windows",
        reference=first,
    )
    try:
        import torch
    except ImportError:
        print("  training: skipped, there is no torch (pip install 'cctoolkit[train]')")
        return
    torch.set_num_threads(1)  # a second brings nothing in batches of 32
    X = windows(1500, "cbiq+throughput")
    timing = measure(lambda: DragonflyClassifier(epochs=100).fit(X), 1)
    line("training, 100 epochs of 1500 windows", timing, 150_000, "windows")
