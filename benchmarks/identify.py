"""Naming windows without torch, and training the paper's network (Dragonfly: 100 epochs of 1500 windows in 100 s)."""

from __future__ import annotations

import functools
from pathlib import Path
from unittest import mock

import numpy as np

import cctoolkit as cct
from cctoolkit.identify import DragonflyClassifier, Recording, Windows, cut_windows, load, record
from cctoolkit.identify.inputs import VIEW_INPUTS
from cctoolkit.identify.readers import label_flows

from .measure import line, measure

TRACES = Path(__file__).parents[1] / "traces"
NAMES = ("reno", "cubic", "bbr", "cubic-bbr", "mixed")
WINDOW_MS = 100
#: A batch of windows of ten seconds.
STEP_WINDOWS, STEP_MS = 32, 10_000


@functools.cache
def recordings() -> list[Recording]:
    """Of the bundled captures."""
    found = []
    for name in NAMES:
        before, after = (cct.read_capture(TRACES / f"{name}.{tap}.pcap.gz") for tap in ("ingress", "egress"))
        labels = label_flows(before, TRACES / f"{name}.labels.csv")
        found.append(record(before, after, labels, name=name))
    return found


def windows(count: int, inputs: tuple[str, ...] | str, window_ms: float = WINDOW_MS) -> Windows:
    """Each as many times as it takes."""
    cut = cut_windows(recordings(), window_ms, inputs, per_flow=60)
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
    _steps(repeat)


def _steps(repeat: int) -> None:
    """A step of training with torch's layers, and with ours."""
    import torch

    from cctoolkit.identify import inputs
    from cctoolkit.identify.convolution import TimeConvolution
    from cctoolkit.identify.distinct import Distinct
    from cctoolkit.identify.networks import DeepcciNet, DragonflyNet

    for name, network, prepared, sees in (
        ("Dragonfly", DragonflyNet, inputs.by_maximum, "cbiq+throughput"),
        ("DeePCCI", DeepcciNet, inputs.as_counted, "throughput"),
    ):
        X = torch.from_numpy(prepared(windows(STEP_WINDOWS, sees, STEP_MS).X))
        trained, y = network(X.shape[2], X.shape[1]), torch.arange(STEP_WINDOWS) % 3

        def step(trained: torch.nn.Module = trained, X: torch.Tensor = X, y: torch.Tensor = y) -> None:
            torch.nn.functional.cross_entropy(trained(X)[:, :3], y).backward()

        what = f"a step of {STEP_WINDOWS} windows of {STEP_MS / 1000:g} s, {name}"
        with (
            mock.patch.object(TimeConvolution, "forward", torch.nn.Conv2d.forward),
            mock.patch.object(DragonflyNet, "LONG", X.shape[2] + 1),
            mock.patch.object(Distinct, "recur", False),
        ):
            step()
            plain = line(f"{what}: torch's layers", measure(step, repeat), STEP_WINDOWS, "windows")
        step()
        line(f"{what}: ours", measure(step, repeat), STEP_WINDOWS, "windows", reference=plain)
