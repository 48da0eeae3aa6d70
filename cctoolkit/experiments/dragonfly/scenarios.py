"""Scenarios of the Dragonfly experiment: the paper's settings on the simulator, classifiers, window lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command's help imports this module
    import pandas as pd

    from ...scenario import Flow, Scenario

__all__ = [
    "ALL_PACKETS",
    "ANSWERING",
    "BUNDLED",
    "BY_SECOND",
    "CLASSIFIERS",
    "DROPPED_PERCENT",
    "FULL_WINDOWS_MS",
    "LEARNT_FROM",
    "LINUX",
    "NETWORKS",
    "OFFLOAD",
    "ONCE",
    "ONE_ANSWER_F1",
    "OTHER_DATA",
    "PLACES",
    "PRINTED_MS",
    "PUBLISHED",
    "RANDOM_SAMPLES",
    "REAL_LINUX",
    "SECOND_LATE",
    "SESSION",
    "SHUFFLED_SAMPLES",
    "SIMULATOR",
    "TITLES",
    "WINDOWS_MS",
    "WINDOW_FIGURES",
    "is_of",
    "jobs",
    "network_of",
    "way_to_answer",
]

#: Classifiers, and the feature set that each sees.
CLASSIFIERS = {
    "Dragonfly": "cbiq+throughput",
    "Dragonfly, CBIQ only": "cbiq",
    "DeePCCI": "throughput",
    "ours": "views",
}
#: The paper's classifiers.
PUBLISHED = ("Dragonfly", "Dragonfly, CBIQ only", "DeePCCI")
#: The part that needs the authors' data, and the part that needs real Linux.
SESSION = "session"
LINUX = "linux"
#: What tables call the places where runs come from.
PLACES = SIMULATOR, REAL_LINUX, OFFLOAD = "simulator", "real Linux", "real Linux with offload"
#: What tables call the ways DeePCCI answers: ours; for each second of a window; and as the authors published it.
ANSWERING = ONCE, BY_SECOND, SECOND_LATE = "once", "for each second", "for each second, a second late"
#: What networks that are tested on samples of packets learn from: all packets; other samples; samples as published.
LEARNT_FROM = ALL_PACKETS, RANDOM_SAMPLES, SHUFFLED_SAMPLES = (
    "all packets", "samples", "samples as published",
)  # fmt: skip
#: F1 of one answer for all windows, with as many windows of each of three congestion controls.
ONE_ANSWER_F1 = 1 / 6
#: What tables call the training of the bundled model `cca`.
BUNDLED = "bundled"
#: The paper's networks, and what tables call them.
NETWORKS = {"mininet": "Mininet", "physical": "physical network", "cloud": "cloud"}
#: What tables call data that are like none of the paper's networks in particular.
OTHER_DATA = "other data"
#: The paper's figures that show F1 against the window, by what tables call their network.
WINDOW_FIGURES = {NETWORKS["mininet"]: 6, NETWORKS["physical"]: 7, NETWORKS["cloud"]: 11}
#: How the paper writes lengths of windows, and these in ms.
PRINTED_MS = {"100 ms": 100.0, "6 s": 6000.0, "1 minute": 60_000.0}
#: The parts of the experiment and their titles.
TITLES = {
    "cbiq": "Figure 1: bytes in the queue, and throughput",
    "inputs": "Figure 2: single inputs",
    "epochs": "Figure 5: accuracy against epochs of training",
    "windows": "Figures 6, 7, 8, 10, 11: F1 against window, background flows, congestion control",
    "recall": "Figure 10 as the authors published it: recall, at the best epoch",
    "learning-curve": "F1 against the number of runs that networks learn from",
    "sampling": "Figure 9: F1 against packets dropped at random",
    "splits": "Splits: runs on both sides, and settings never trained on",
    "baseline": "DeePCCI as the Dragonfly authors published it",
    LINUX: "The same runs in the simulator and on real Linux, without and with segmentation offload",
    SESSION: "The authors' published session",
}
#: Figure 9's percentages of packets that are not observed.
DROPPED_PERCENT = (0, 25, 50, 75, 90, 99)
#: Window lengths in ms without and with ``--full``; 18 s and 6 s are in the paper's text.
WINDOWS_MS = (100.0, 1000.0, 10_000.0)
FULL_WINDOWS_MS = (10.0, 100.0, 1000.0, 6000.0, 10_000.0, 18_000.0, 60_000.0)
PAPER_S = 60.0


def way_to_answer(answers: str, scored: str) -> str:
    """What figures and pages call one of :data:`ANSWERING` and which of its answers are scored."""
    return answers if answers == ONCE else f"{answers}: {scored}"


def network_of(table: pd.DataFrame) -> str:
    """The network that a table is about; tables from before there was a choice are about Mininet."""
    return str(table.network.iloc[0]) if "network" in table and len(table) else NETWORKS["mininet"]


def is_of(table: pd.DataFrame, network: str) -> bool:
    """Whether the paper's figures of a network are about such a table; other data may be like any."""
    return network_of(table) in (OTHER_DATA, NETWORKS[network])


def jobs(
    runs: int,
    seconds: float = PAPER_S,
    *,
    network: str = "mininet",
    seed: int = 1,
    background: Sequence[int] | None = None,
    others: Sequence[Flow] = (),
) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """The settings of sections IV-A (Mininet), IV-B (physical network) and IV-C (cloud), scaled to another duration.

    Parameters
    ----------
    runs, seed, background
        As for :func:`cctoolkit.identify.settings.paper`; the cloud has no background flows.
    network : str
        One of :data:`NETWORKS`.
    seconds : float
        Duration of a run once its flows have started; the time within which they start is scaled alike.
    others : sequence of Flow
        Further flows, present from the start.

    Yields
    ------
    dict, Scenario
        What distinguishes the run from others, and what is run.
    """
    from ...identify.settings import BACKGROUND, cloud, paper, physical

    scale = seconds / PAPER_S
    chosen = BACKGROUND if background is None else background
    drawn = {
        "mininet": lambda: paper(runs, seed, background=chosen),
        "physical": lambda: physical(runs, seed, background=chosen, measured_s=PAPER_S),
        "cloud": lambda: cloud(runs, seed, measured_s=PAPER_S),
    }
    for changes, made in drawn[network]():
        flows = [dataclasses.replace(flow, start_s=round(flow.start_s * scale, 3)) for flow in made.flows]
        yield (
            changes,
            dataclasses.replace(made, flows=(*flows, *others), duration_s=round(made.duration_s * scale, 3)),
        )
