"""The Dragonfly paper's figures: naming a flow's congestion control from windows of its slots.

Carmel and Keslassy, "Dragonfly: In-Flight CCA Identification". Data are the paper's Mininet settings (section IV-A) on
the simulator, or a dataset that is there (``cct dataset build``), for instance of the testbed. Tests share no run with
training, which in the paper they do; ``splits`` says what that is worth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ParameterError
from ..scenario import Flow, Scenario
from ._folder import Folder, OutputOption, WorkersOption, markdown_table
from .papers import paper_numbers

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ..identify import Recording, SlotDataset, Windows

__all__ = [
    "CLASSIFIERS",
    "DROPPED_PERCENT",
    "EPOCH_BACKGROUNDS",
    "PARTS",
    "Training",
    "accuracy_by_epoch",
    "background_of",
    "by_split",
    "elsewhere",
    "f1_by_input",
    "f1_by_sampling",
    "f1_by_window",
    "jobs",
    "left_out",
    "recorded_windows",
    "run",
    "statements",
    "volatility",
]

#: What is trained, and the feature set that it is told.
CLASSIFIERS = {
    "Dragonfly": "cbiq+throughput",
    "Dragonfly, CBIQ only": "cbiq",
    "DeePCCI": "throughput",
    "ours": "views",
}
#: Of the paper.
PUBLISHED = ("Dragonfly", "Dragonfly, CBIQ only", "DeePCCI")
#: What an experiment consists of, and the figures each part makes.
PARTS = {
    "cbiq": "Figure 1: bytes in the queue beside throughput",
    "inputs": "Figure 2: one input alone",
    "epochs": "Figure 5: accuracy against epochs of training",
    "windows": "Figures 6, 7, 8, 10, 11: F1 against window, background flows, congestion control",
    "sampling": "Figure 9: F1 against packets dropped at random",
    "splits": "runs on both sides of a split, and settings never trained on",
}
#: Figure 5's kinds of background traffic: 1000 packets of 1.4 KB a second; ten Vegas flows.
EPOCH_BACKGROUNDS: dict[str, tuple[Flow, ...]] = {
    "none": (),
    "UDP": (Flow("udp", rtt_ms=70, rate_mbps=1000 * 1400 * 8 / 1e6, packet_bytes=1400, arrivals="poisson"),),
    "TCP Vegas": (Flow("vegas", rtt_ms=70, count=10),),
}
#: Figure 9's packets not looked at.
DROPPED_PERCENT = (0, 25, 50, 75, 90, 99)
#: Lengths in ms without and with ``--full``; 18 s and 6 s are in the paper's text.
WINDOWS_MS = (100.0, 1000.0, 10_000.0)
FULL_WINDOWS_MS = (10.0, 100.0, 1000.0, 6000.0, 10_000.0, 18_000.0, 60_000.0)
_PAPER_S = 60.0
#: Settings that may be left out of training: the first that the data vary.
_SETTINGS = ("background", "aqm", "buffer_packets")
#: Scores this near to a printed number agree with it.
_NEAR = 0.05 + 1e-9


@dataclass(frozen=True)
class Training:
    """How classifiers are trained and scored.

    Parameters
    ----------
    epochs : int
        The paper: up to 100.
    seeds : int
        Splits, and trainings; intervals are over these.
    per_flow : int
        Windows of each flow, at most as many as a minute has room for (the paper: 1 of 1500 flows).
    learning_rate : float, optional
        Of Dragonfly and DeePCCI instead of their own: for short trainings.
    """

    epochs: int = 100
    seeds: int = 3
    per_flow: int = 10
    learning_rate: float | None = None

    def classifier(self, name: str, seed: int) -> Any:
        """A new one of :data:`CLASSIFIERS`."""
        from ..identify import CCAClassifier, DeepcciClassifier, DragonflyClassifier

        if name == "ours":
            return CCAClassifier(epochs=self.epochs, seed=seed, lose=0.0)
        rate: dict[str, Any] = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        kind = DeepcciClassifier if name == "DeePCCI" else DragonflyClassifier
        return kind(epochs=self.epochs, seed=seed, **rate)

    def cut(
        self, recordings: SlotDataset | Iterable[Recording], window_ms: float, inputs: str | Sequence[str]
    ) -> Windows:
        """Windows of every flow."""
        from ..identify import cut_windows

        room = max(int(_PAPER_S * 1000 // window_ms), 1)
        return cut_windows(recordings, window_ms, inputs, per_flow=min(self.per_flow, room))

    def scores(
        self,
        name: str,
        windows: Windows | Callable[[int], tuple[Windows, Windows]],
        *by: str,
        seeds: Sequence[int] | None = None,
    ) -> list[pd.DataFrame]:
        """F1 of a classifier over seeds: first of all windows, then by each of these columns; each seed trains once."""
        from ..identify.evaluation import over_seeds

        trained: dict[int, Any] = {}

        def train(training: Windows, seed: int) -> Any:
            if seed not in trained:
                trained[seed] = self.classifier(name, seed).fit(training)
            return trained[seed].predict

        chosen = range(self.seeds) if seeds is None else seeds
        columns: tuple[str | None, ...] = (None, *by)
        return [over_seeds(train, windows, chosen, by=column) for column in columns]


# ---- what is run -----------------------------------------------------------------------------------------------------


def jobs(
    runs: int,
    seconds: float = _PAPER_S,
    *,
    seed: int = 1,
    background: Sequence[int] | None = None,
    others: Sequence[Flow] = (),
) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """The settings of section IV-A, scaled to runs of another length.

    Parameters
    ----------
    runs, seed, background
        As for :func:`cctoolkit.identify.settings.paper`.
    seconds : float
        Of a run after its flows have started; the time in which they start is scaled alike.
    others : sequence of Flow
        Further flows, there from the beginning.

    Yields
    ------
    dict, Scenario
    """
    from ..identify.settings import BACKGROUND, paper

    scale = seconds / _PAPER_S
    for changes, made in paper(runs, seed, background=BACKGROUND if background is None else background):
        flows = [dataclasses.replace(flow, start_s=round(flow.start_s * scale, 3)) for flow in made.flows]
        yield (
            changes,
            dataclasses.replace(made, flows=(*flows, *others), duration_s=round(made.duration_s * scale, 3)),
        )


def recorded_windows(
    changes: dict[str, Any],
    scenario: Scenario,
    window_ms: float,
    per_flow: int,
    dropped_percent: Sequence[float],
    special: int = 3,
) -> Windows:
    """A simulated run's windows of CBIQ and throughput when so many of its packets are not looked at.

    Parameters
    ----------
    changes, scenario
        One of :func:`jobs`.
    window_ms, per_flow
        As for :func:`cctoolkit.identify.cut_windows`.
    dropped_percent : sequence of float
        A column ``dropped_percent`` of the windows' table says which.
    special : int
        Of the first so many flows.

    Notes
    -----
    Slots without a packet are filled backward where all packets are looked at, and else interpolated (section III-D).
    """
    from ..analysis.slots import compute_slots
    from ..identify import Recording, cut_windows
    from ..sim.simulation import simulate

    made = simulate(scenario, record=True)
    known = made.labels[["flow_id", "cca"]].iloc[:special].assign(**changes)
    recordings = []
    for dropped in dropped_percent:
        slots = compute_slots(
            made.ingress,
            made.egress,
            sampling=1 - dropped / 100 if dropped else "all",
            fill="interpolate" if dropped else "backward",
            flow_ids=known["flow_id"],
            seed=scenario.seed,
        )
        recordings.append(Recording(made.name, slots, known.assign(dropped_percent=float(dropped))))
    return cut_windows(recordings, window_ms, "cbiq+throughput", per_flow=per_flow)


# ---- what is measured ------------------------------------------------------------------------------------------------


def volatility(recording: Recording, slots: slice = slice(None)) -> pd.DataFrame:
    """How much CBIQ and throughput jump from slot to slot.

    Parameters
    ----------
    recording : Recording
    slots : slice
        Of each flow.

    Returns
    -------
    DataFrame
        ``flow_id``, ``cca``, and of both the mean absolute step from slot to slot over the mean value (the paper says
        "less volatile" and gives no measure).
    """
    import numpy as np
    import pandas as pd

    from ..identify.windows import slot_arrays

    cca = recording.flows.set_index("flow_id")["cca"]
    rows = []
    for flow_id, _, values in slot_arrays(recording.slots, ("cbiq_bytes", "throughput_bytes")):
        part = values[slots].astype(float)
        if flow_id not in cca or len(part) < 2:
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            steps = np.nanmean(np.abs(np.diff(part, axis=0)), axis=0) / np.nanmean(part, axis=0)
        rows.append({"flow_id": flow_id, "cca": cca[flow_id], "cbiq": steps[0], "throughput": steps[1]})
    return pd.DataFrame(rows)


def f1_by_input(
    dataset: SlotDataset | Iterable[Recording], training: Training, window_ms: float = 100.0
) -> pd.DataFrame:
    """Figure 2: the Dragonfly network told of one input alone, and of the two that the paper chose.

    Returns
    -------
    DataFrame
        ``input`` and what :func:`cctoolkit.identify.evaluation.over_seeds` gives, best first. All are trained and
        tested on the same windows; an input that was never observed (the queue, with one tap) is left out.
    """
    import numpy as np
    import pandas as pd

    from ..identify.windows import FEATURE_SETS, INPUTS

    windows = training.cut(dataset, window_ms, INPUTS)
    seen = ~np.isnan(windows.X).all(axis=(0, 1))
    choices = {name: (name,) for name in INPUTS} | {
        CLASSIFIERS["Dragonfly"]: FEATURE_SETS[CLASSIFIERS["Dragonfly"]]
    }
    tables = []
    for name, inputs in choices.items():
        columns = [INPUTS.index(column) for column in inputs]
        if seen[columns].all():
            told = dataclasses.replace(windows, X=windows.X[:, :, columns], inputs=inputs)
            (table,) = training.scores("Dragonfly", told)
            tables.append(table.assign(input=name, window_ms=window_ms))
    return pd.concat(tables).sort_values("f1", ascending=False, ignore_index=True)


def f1_by_window(
    dataset: SlotDataset,
    training: Training,
    windows_ms: Sequence[float],
    classifiers: Sequence[str] = tuple(CLASSIFIERS),
    by: Sequence[str] = (),
) -> tuple[pd.DataFrame, ...]:
    """Figures 6, 7, 8, 10 and 11: each classifier trained on windows of each length.

    Returns
    -------
    DataFrame
        ``classifier``, ``window_ms`` and what :func:`cctoolkit.identify.evaluation.over_seeds` gives, F1 of each
        congestion control among it. Lengths that no flow has are left out.
    DataFrame ...
        The same by each column of `by`.

    Raises
    ------
    ParameterError
        No flow has even the shortest.
    """
    import pandas as pd

    found: list[list[pd.DataFrame]] = [[] for _ in (None, *by)]
    for window_ms in sorted(windows_ms):
        for name in classifiers:
            try:
                windows = training.cut(dataset, window_ms, CLASSIFIERS[name])
            except ParameterError:
                if window_ms > min(windows_ms):
                    continue
                raise
            for part, table in zip(found, training.scores(name, windows, *by), strict=True):
                table.insert(0, "classifier", name)
                table.insert(1, "window_ms", window_ms)
                part.append(table)
    return tuple(pd.concat(part, ignore_index=True) for part in found)


def accuracy_by_epoch(name: str, windows: Windows, training: Training) -> pd.DataFrame:
    """Figure 5: accuracy on windows of other runs after each epoch of training.

    Parameters
    ----------
    name : str
        In :data:`PUBLISHED`.
    windows : Windows
        Of its feature set.
    training : Training

    Returns
    -------
    DataFrame
        ``epoch``, ``seed``, ``accuracy``, ``loss`` (of training).
    """
    import numpy as np
    import pandas as pd
    import torch

    from ..identify.inputs import PREPARATIONS
    from ..identify.training import train_network

    rows: list[dict[str, float]] = []
    for seed in range(training.seeds):
        classifier = training.classifier(name, seed)
        learnt, tested = windows.split(0.3, seed)
        classes, numbers = np.unique(learnt.y.astype(str), return_inverse=True)
        wanted = np.searchsorted(classes, tested.y.astype(str))
        prepare = PREPARATIONS[classifier.preparation]
        ready, unseen = prepare(learnt.X), torch.from_numpy(prepare(tested.X))

        def tell(
            epoch: int, network: Any, seed: int = seed, unseen: Any = unseen, wanted: np.ndarray = wanted,
            n: int = len(classes),
        ) -> dict[str, float]:  # fmt: skip
            device = next(network.parameters()).device
            with torch.inference_mode():
                said = torch.cat([network(part.to(device)).cpu() for part in unseen.split(512)])
            right = said[:, :n].argmax(1).numpy() == wanted
            return {"seed": seed, "accuracy": float(right.mean())}

        classifier.classes_ = classes  # DeePCCI's loss asks which of them pace
        torch.manual_seed(seed)
        network = classifier._network(ready.shape, len(classes))
        rows += train_network(
            network, ready, numbers, classifier._loss(numbers), classifier._recipe(), after_epoch=tell
        )
    return pd.DataFrame(rows).astype({"epoch": int, "seed": int})


def f1_by_sampling(windows: Windows, training: Training) -> pd.DataFrame:
    """Figure 9: trained on all packets, tested on samples of other runs' packets.

    Parameters
    ----------
    windows : Windows
        Those of :func:`recorded_windows`, joined.
    training : Training

    Returns
    -------
    DataFrame
        ``classifier``, ``dropped_percent`` and what :func:`cctoolkit.identify.evaluation.over_seeds` gives.

    Notes
    -----
    DeePCCI counts packets, and a sample is no count: it is left out.
    """
    import pandas as pd

    tables = []
    for name in ("Dragonfly", "Dragonfly, CBIQ only"):
        inputs = ("cbiq_bytes", "throughput_bytes")[: 1 + (name == "Dragonfly")]
        told = dataclasses.replace(windows, X=windows.X[:, :, : len(inputs)], inputs=inputs)

        def parts(seed: int, told: Windows = told) -> tuple[Windows, Windows]:
            learnt, tested = told.split(0.3, seed)
            return learnt.of(dropped_percent=0.0), tested

        _, table = training.scores(name, parts, "dropped_percent")
        table.insert(0, "classifier", name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def by_split(
    dataset: SlotDataset,
    training: Training,
    window_ms: float,
    classifiers: Sequence[str] = ("Dragonfly", "ours"),
) -> pd.DataFrame:
    """What it does to a score when flows, and not runs, are kept apart (the published code): runs leak.

    Returns
    -------
    DataFrame
        ``classifier``, ``window_ms``, ``split`` (``"by run"``, ``"by flow"``, and ``"by window"``, when even windows of
        one flow are on both sides) and the scores.
    """
    import numpy as np
    import pandas as pd

    splits: dict[str, Sequence[str]] = {
        "by run": ["run"], "by flow": ["run", "flow_id"], "by window": ["number"],
    }  # fmt: skip
    tables = []
    for name in classifiers:
        windows = training.cut(dataset, window_ms, CLASSIFIERS[name])
        windows = dataclasses.replace(windows, table=windows.table.assign(number=np.arange(len(windows))))
        for split, by in splits.items():

            def parts(
                seed: int, by: Sequence[str] = by, windows: Windows = windows
            ) -> tuple[Windows, Windows]:
                return windows.split(0.3, seed, by=by)

            (table,) = training.scores(name, parts)
            table.insert(0, "classifier", name)
            table.insert(1, "window_ms", window_ms)
            table.insert(2, "split", split)
            tables.append(table)
    return pd.concat(tables, ignore_index=True)


def left_out(
    dataset: SlotDataset, training: Training, window_ms: float, column: str, classifier: str = "ours"
) -> pd.DataFrame:
    """Settings never trained on, beside the same test windows when they were.

    Parameters
    ----------
    dataset, training, window_ms
    column : str
        The setting; each of its values is left out of training once.
    classifier : str
        In :data:`CLASSIFIERS`.

    Returns
    -------
    DataFrame
        `column`, ``f1``, ``low``, ``high`` (left out), ``f1_trained`` (all settings trained on), ``seeds``.
    """
    import pandas as pd

    windows = training.cut(dataset, window_ms, CLASSIFIERS[classifier])
    halves = {seed: windows.split(0.3, seed) for seed in range(training.seeds)}
    tables = []
    for value in sorted(set(windows.table[column])):
        tested = {seed: test.of(**{column: value}) for seed, (_, test) in halves.items()}
        seeds = [seed for seed, test in tested.items() if len(test)]
        if not seeds:
            continue

        def without(
            seed: int, value: Any = value, tested: dict[int, Windows] = tested
        ) -> tuple[Windows, Windows]:
            learnt = halves[seed][0]
            return learnt.take((learnt.table[column] != value).to_numpy()), tested[seed]

        def whole(seed: int, tested: dict[int, Windows] = tested) -> tuple[Windows, Windows]:
            return halves[seed][0], tested[seed]

        (apart,) = training.scores(classifier, without, seeds=seeds)
        (known,) = training.scores(classifier, whole, seeds=seeds)
        row = apart[["f1", "low", "high", "seeds", "windows"]].assign(f1_trained=known["f1"])
        row.insert(0, column, value)
        tables.append(row)
    return pd.concat(tables, ignore_index=True)


def elsewhere(
    dataset: SlotDataset,
    other: SlotDataset,
    training: Training,
    window_ms: float,
    classifiers: Sequence[str] = ("Dragonfly", "DeePCCI", "ours"),
) -> pd.DataFrame:
    """Trained on one dataset, tested on another: other settings, or the testbed after the simulator.

    Returns
    -------
    DataFrame
        ``classifier``, ``window_ms``, ``tested`` (``"here"``: other runs of the same dataset; ``"elsewhere"``: all of
        the other) and the scores.
    """
    import pandas as pd

    from ..identify.windows import joined

    tables = []
    for name in classifiers:
        windows, theirs = (training.cut(part, window_ms, CLASSIFIERS[name]) for part in (dataset, other))
        known = set(windows.y)
        theirs = theirs.take([i for i, cca in enumerate(theirs.y) if cca in known])

        def parts(seed: int, windows: Windows = windows, theirs: Windows = theirs) -> tuple[Windows, Windows]:
            learnt, tested = windows.split(0.3, seed)
            both = [
                dataclasses.replace(part, table=part.table.assign(tested=where))
                for where, part in (("here", tested), ("elsewhere", theirs))
            ]
            return learnt, joined(both)

        _, table = training.scores(name, parts, "tested")
        table.insert(0, "classifier", name)
        table.insert(1, "window_ms", window_ms)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def background_of(dataset: SlotDataset) -> str | None:
    """The setting that figure 8 and the settings left out are about: the first that varies; None without one."""
    for name in _SETTINGS:
        if name in dataset.flows and len(set(dataset.flows[name])) > 1:
            return name
    return None


# ---- the paper's sentences -------------------------------------------------------------------------------------------


def _printed(figure: int, setting: str) -> float:
    """A number that a figure's text has."""
    numbers = paper_numbers("dragonfly", f"Figure {figure}")
    return float(numbers.loc[numbers.setting == setting, "paper"].iloc[0])


def statements(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What the paper says, and what came out.

    Parameters
    ----------
    tables : dict of DataFrame
        Those of ``volatility``, ``inputs``, ``epochs``, ``windows``, ``background``, ``sampling``, ``splits`` that
        there are.

    Returns
    -------
    DataFrame
        ``figure``, ``paper``, ``toolkit``, ``agrees``: within 0.05 of a printed score, or as a sentence says.
    """
    import pandas as pd

    rows: list[tuple[str, str, str, bool]] = []

    def tell(figure: str, paper: str, toolkit: str, agrees: Any) -> None:
        rows.append((figure, paper, toolkit, bool(agrees)))

    def near(figure: int, setting: str, what: str, found: float) -> None:
        printed = _printed(figure, setting)
        tell(str(figure), f"{setting}: {what} {printed:g}", f"{found:.2f}", abs(found - printed) <= _NEAR)

    if "volatility" in tables:
        jumps = tables["volatility"].groupby("cca")[["cbiq", "throughput"]].mean()
        says = ", ".join(
            f"{cca} {row.cbiq:.2f} against {row.throughput:.2f}" for cca, row in jumps.iterrows()
        )
        tell("1", "CBIQ is less volatile than throughput", says, (jumps.cbiq < jumps.throughput).all())
    if "inputs" in tables:
        _tell_inputs(tables["inputs"].set_index("input")["f1"], tell)
    if "epochs" in tables:
        last = _last_epochs(tables["epochs"])
        for background in EPOCH_BACKGROUNDS:
            setting = "no background" if background == "none" else f"{background} background"
            here = last[last.background == background].set_index("classifier")["mean"]
            if here.empty:
                continue
            near(5, f"{setting}, Dragonfly", "accuracy", here["Dragonfly"])
            if background == "none":
                near(5, f"{setting}, Dragonfly with CBIQ only", "accuracy", here["Dragonfly, CBIQ only"])
            best = here.idxmax()
            tell("5", f"{setting}: Dragonfly is the most accurate", f"{best} is", best == "Dragonfly")
        swing = last.set_index(["background", "classifier"])
        if ("none", "DeePCCI") in swing.index:
            low, high = (float(swing[side]["none", "DeePCCI"]) for side in ("least", "most"))
            tell("5", "no background: DeePCCI swings between 0.6 and 0.85", f"{low:.2f} to {high:.2f} in the "
                 "last fifth of its epochs", abs(low - 0.6) <= _NEAR and abs(high - 0.85) <= _NEAR)  # fmt: skip
    if "windows" in tables:
        _tell_windows(tables["windows"], tell, near)
    if "background" in tables:
        _tell_background(tables["background"], tell, near)
    if "sampling" in tables:
        found = tables["sampling"].query("classifier == 'Dragonfly'").set_index("dropped_percent")["f1"]
        if {0.0, 99.0} <= set(found.index):
            lost, printed = found[0.0] - found[99.0], _printed(9, "99 % of the packets dropped, Dragonfly")
            says = f"{found[0.0]:.2f} to {found[99.0]:.2f}"
            tell("9", f"99 % dropped: F1 falls by about {printed:g}", says, abs(lost - printed) <= _NEAR)
    if "splits" in tables:
        for name, part in tables["splits"].groupby("classifier", sort=False):
            f1 = part.set_index("split")["f1"]
            says = ", ".join(f"{split} {value:.2f}" for split, value in f1.items())
            leaks = f1["by flow"] - f1["by run"] > 0
            tell("all", f"(not in the paper) a split by flow scores higher, {name}", says, leaks)
    told = pd.DataFrame(rows, columns=["figure", "paper", "toolkit", "agrees"])
    return told.assign(agrees=told.agrees.map({True: "yes", False: "no"}))


#: The inputs of section III-A; what comes in is counted in bytes and packets, and told by sequence numbers.
_RANKED = {
    "CBIQ": ("cbiq_bytes",),
    "ingress throughput": ("in_bytes", "in_packets", "throughput_bytes"),
    "egress throughput": ("out_bytes",),
    "drops": ("drops_estimate",),
    "source time gap": ("max_source_gap",),
    "arrival time gap": ("max_arrival_gap_ns",),
}


def _tell_inputs(f1: pd.Series, tell: Callable[..., None]) -> None:
    best = {what: f1.reindex(columns).max() for what, columns in _RANKED.items()}
    order = sorted((what for what in best if best[what] == best[what]), key=lambda what: -best[what])
    says = ", ".join(f"{what} {best[what]:.2f}" for what in order)
    tell("2", "CBIQ is the best single input", says, order[:1] == ["CBIQ"])
    tell("2", "ingress and egress throughput are second and third", says,
         order[1:3] == ["ingress throughput", "egress throughput"])  # fmt: skip
    if {"cbiq_bytes", CLASSIFIERS["Dragonfly"]} <= set(f1.index):
        more = f1[CLASSIFIERS["Dragonfly"]] - f1["cbiq_bytes"]
        tell("2", "more inputs than CBIQ add marginally", f"{more:+.2f} with throughput", abs(more) <= _NEAR)


def _tell_windows(table: pd.DataFrame, tell: Callable[..., None], near: Callable[..., None]) -> None:
    curves = table.pivot_table(index="window_ms", columns="classifier", values="f1")
    minute = 60_000.0
    for name in ("Dragonfly", "DeePCCI"):
        if minute in curves.index and name in curves:
            near(6, f"1 minute, {name}", "F1", curves[name][minute])
        for ms, setting in ((100.0, "100 ms"), (6000.0, "6 s"), (minute, "1 minute")):
            if ms in curves.index and name in curves:
                near(11, f"{setting}, {name}", "F1 in the cloud", curves[name][ms])
        if name in curves:
            reached = curves.index[curves[name] >= 0.7]
            says = f"{reached[0]:g} ms" if len(reached) else f"not up to {curves.index[-1]:g} ms"
            printed = _printed(7, f"F1 of 0.7, {name}")
            fits = len(reached) > 0 and printed / 2 <= reached[0] <= 2 * printed
            tell("7", f"{name} reaches F1 of 0.7 at {printed:g} ms", says, fits)
    if {"Dragonfly", "DeePCCI"} <= set(curves):
        ahead = curves["Dragonfly"] - curves["DeePCCI"]
        says = ", ".join(f"{gap:+.2f} at {ms:g} ms" for ms, gap in ahead.items())
        tell("6, 7, 11", "Dragonfly scores higher than DeePCCI at every length", says, (ahead > 0).all())
    if "ours" in curves and "Dragonfly" in curves:
        ahead = curves["ours"] - curves["Dragonfly"]
        says = ", ".join(f"{gap:+.2f} at {ms:g} ms" for ms, gap in ahead.items())
        tell(
            "",
            "(not in the paper) ours scores higher than Dragonfly at every length",
            says,
            (ahead > 0).all(),
        )
    mine = table[table.classifier == "Dragonfly"].set_index("window_ms")
    if {"f1_reno", "f1_cubic", "f1_bbr"} <= set(mine) and len(mine):
        means = {cca: float(mine[f"f1_{cca}"].mean()) for cca in ("bbr", "cubic", "reno")}
        says = ", ".join(f"{cca} {value:.2f}" for cca, value in means.items())
        better = min(means["bbr"], means["cubic"]) > means["reno"]
        tell("10", "BBR and CUBIC are named better than Reno", says, better)
        rises = len(mine) > 1 and mine["f1"].is_monotonic_increasing
        says = ", ".join(f"{value:.2f} at {ms:g} ms" for ms, value in mine["f1"].items())
        tell("10", "F1 increases with the window", says, rises)


def _tell_background(table: pd.DataFrame, tell: Callable[..., None], near: Callable[..., None]) -> None:
    for name in ("Dragonfly", "DeePCCI"):
        f1 = table[table.classifier == name].set_index("background")["f1"]
        if not {0, 75} <= set(f1.index):
            continue
        for flows in (0, 75):
            near(8, f"{flows} background flows, {name}", "F1", f1[flows])
        says = ", ".join(f"{value:.2f} with {flows:g}" for flows, value in f1.items())
        tell("8", f"F1 falls with background flows, {name}", says, f1.is_monotonic_decreasing)


def _last_epochs(epochs: pd.DataFrame) -> pd.DataFrame:
    """Accuracy over the last fifth of the epochs: mean, least and most of the mean over seeds."""
    late = epochs[epochs.epoch > epochs.epoch.max() * 0.8]
    curve = late.groupby(["background", "classifier", "epoch"], sort=False).accuracy.mean()
    return (
        curve.groupby(["background", "classifier"], sort=False)
        .agg(mean="mean", least="min", most="max")
        .reset_index()
    )


# ---- all of it -------------------------------------------------------------------------------------------------------

_ABOUT = """\
Windows of slots of 1 ms, cut anywhere in flight. No run is on both sides of a split (but in the part that shows what
that does). F1 is macro, with Student's 95 % intervals over splits and trainings. The paper's physical network (figures
2, 7 to 10) and cloud (figure 11) are not these data: their numbers stand beside for orientation."""
_TABLE_II = """\
Table II is about how fast packets are collected, not about naming: `cct live` (docs/live.md) and `make bench` measure
that on the machine at hand."""


def run(
    output: OutputOption = Path("dragonfly"),
    *,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A dataset (cct dataset build) instead of new simulations."),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A dataset to be tested on and never trained on (splits)."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(PARTS)}; may be given again. Default: all.")
    ] = None,
    full: Annotated[
        bool, typer.Option(help="The paper's scale: 1500 runs of a minute, 100 epochs, windows to 60 s.")
    ] = False,
    runs: Annotated[int | None, typer.Option(help="Simulated [default: 60; full: 1500].", min=4)] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Of a run, flows started [default: 20; full: 60].", min=2.0)
    ] = None,
    windows_ms: Annotated[
        list[float] | None,
        typer.Option(
            "--window-ms", help="Length of a window; may be given again [default: 100, 1000, 10000]."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of training [default: 30; full: 100].", min=1)] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Splits and trainings [default: 3; full: 5].", min=1)
    ] = None,
    per_flow: Annotated[
        int | None, typer.Option(help="Windows of a flow [default: 10; full: 1].", min=1)
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Of Dragonfly and DeePCCI [default: 1e-3; full: as published, 1e-4 and 1e-3]."),
    ] = None,
    workers: WorkersOption = None,
) -> Path:
    """Train Dragonfly, DeePCCI and ours on simulated runs or a dataset; write tables, figures and a summary.

    What was simulated stays in the folder (``data``) and is not simulated again. Needs the extra ``train``.

    Returns
    -------
    Path
        The folder: ``volatility``, ``inputs``, ``epochs``, ``windows``, ``background``, ``sampling``, ``splits``,
        ``settings``, ``elsewhere`` (with `other`) and ``statements`` as Parquet, figures, ``summary.md``.

    Raises
    ------
    ParameterError
        An option that cannot be.
    SchemaError
        `data` or `other` holds no dataset.
    """
    from ..identify import SlotDataset
    from ..identify.windows import window_slots
    from . import _dragonfly_figures as figures

    chosen = list(dict.fromkeys(only or PARTS))
    for name in chosen:
        if name not in PARTS:
            raise ParameterError(f"only: {name!r} is none of {', '.join(PARTS)}")
    lengths = sorted(set(windows_ms or (FULL_WINDOWS_MS if full else WINDOWS_MS)))
    for ms in lengths:
        window_slots(ms)
    number = runs if runs is not None else 1500 if full else 60
    lasting = seconds if seconds is not None else _PAPER_S if full else 20.0
    training = Training(
        epochs if epochs is not None else 100 if full else 30,
        seeds if seeds is not None else 5 if full else 3,
        per_flow if per_flow is not None else 1 if full else 10,
        learning_rate if learning_rate is not None else None if full else 1e-3,
    )
    given = None if data is None else SlotDataset(data)
    foreign = None if other is None else SlotDataset(other)
    options = {
        "data": data,
        "other": other,
        "runs": number,
        "seconds": lasting,
        "windows_ms": lengths,
        "only": chosen,
    }
    folder = Folder(output, "dragonfly", options | dataclasses.asdict(training))
    dataset = given if given is not None else _simulated(folder, "paper", number, lasting, workers)
    special = dataset.about.get("special")
    if special:
        dataset = dataset.where(f"flow_id < {special}")
    longest = _longest(dataset, training, lengths)
    tables: dict[str, pd.DataFrame] = {}
    blocks: list[str] = []

    def keep(name: str, table: pd.DataFrame, figure: Any, title: str, *more: str) -> None:
        tables[name] = table
        folder.table(name, table)
        if figure is not None:
            folder.figure(name, figure)
        blocks.extend([f"## {title}", *more, markdown_table(table)])

    if "cbiq" in chosen:
        shown = _example(dataset)
        found = volatility(shown)
        keep("volatility", found, figures.cbiq_figure(shown), PARTS["cbiq"],
             f"Run {shown.name}. Mean step from slot to slot over the mean:")  # fmt: skip
    if "inputs" in chosen:
        found = f1_by_input(dataset, training, lengths[0] if 100 not in lengths else 100.0)
        keep("inputs", found, figures.inputs_figure(found), PARTS["inputs"])
    if "epochs" in chosen:
        found = _epochs(folder, training, number, lasting, longest, workers)
        folder.table("epochs", found)
        folder.figure("epochs", figures.epochs_figure(found))
        tables["epochs"] = found
        blocks += [f"## {PARTS['epochs']}", f"Windows of {longest:g} ms; the paper does not say which it has. Of the "
                   "last fifth of the epochs:", markdown_table(_last_epochs(found))]  # fmt: skip
    setting = background_of(dataset)
    if "windows" in chosen:
        by = [] if setting is None else [setting]
        found, *grouped = f1_by_window(dataset, training, lengths, by=by)
        keep("windows", found, figures.windows_figure(found), PARTS["windows"])
        folder.figure("ccas", figures.ccas_figure(found))
        if setting is not None:
            at = grouped[0][grouped[0].window_ms == longest].reset_index(drop=True)
            keep(setting, at, figures.settings_figure(at, setting, longest), f"By {setting}, {longest:g} ms")
    if "sampling" in chosen:
        found = _sampling(training, number, lasting, longest, workers)
        about = f"Windows of {longest:g} ms, no background; trained on all packets."
        keep("sampling", found, figures.sampling_figure(found), PARTS["sampling"], about)
    if "splits" in chosen:
        found = by_split(dataset, training, longest)
        keep("splits", found, figures.splits_figure(found), "Runs on both sides of a split")
        if setting is not None:
            found = left_out(dataset, training, longest, setting)
            keep("settings", found, None, "Settings never trained on",
                 f"Ours, windows of {longest:g} ms: each value of {setting} left out of training once; beside it "
                 "(f1_trained) the same windows when it was not.")  # fmt: skip
        if foreign is not None:
            found = elsewhere(dataset, foreign, training, longest)
            keep("elsewhere", found, None, "Another dataset",
                 f"Windows of {longest:g} ms; trained on the data above, tested on other runs of it (here) and on "
                 f"{other} (elsewhere), of which only congestion controls that were trained on.")  # fmt: skip
    told = statements(tables)
    folder.table("statements", told)
    if not full:
        blocks.insert(
            0,
            "The paper has 1500 runs of a minute and 100 epochs (`--full`): with less, scores are lower, and "
            "steps of training larger.",
        )
    source = f"Data: {data}" if data is not None else f"Data: {number} simulated runs of {lasting:g} s"
    folder.summary(
        "Which congestion control is that? (Dragonfly)", _ABOUT, f"{source}: {dataset!r}.",
        "## The paper's statements", markdown_table(told), *blocks, "## Table II", _TABLE_II,
    )  # fmt: skip
    return folder.path


def _simulated(
    folder: Folder, name: str, runs: int, seconds: float, workers: int | None, **settings: Any
) -> SlotDataset:
    import sys

    from ..identify import build_dataset

    return build_dataset(
        jobs(runs, seconds, **settings),
        folder.path / "data" / f"{name}-{seconds:g}s",
        background=0,
        workers=workers,
        progress=sys.stderr.isatty(),
    ).where([f"paper-{settings.get('seed', 1)}-{number}" for number in range(runs)])


def _longest(dataset: SlotDataset, training: Training, windows_ms: Sequence[float]) -> float:
    """The longest window up to 10 s (the paper's in figures 8 and 9) that flows of the first runs have."""
    dataset = dataset.where(dataset.runs[:10])
    for ms in sorted((ms for ms in windows_ms if ms <= 10_000), reverse=True):
        try:
            training.cut(dataset, ms, "cbiq")
        except ParameterError:
            continue
        return ms
    return min(windows_ms)


def _example(dataset: SlotDataset) -> Recording:
    """A run with 15 background flows, where there is one, and its special flows."""
    with_15 = (
        dataset.flows["background"] == 15 if "background" in dataset.flows else dataset.flows["run"] == ""
    )
    name = dataset.flows["run"][with_15].iloc[0] if with_15.any() else dataset.runs[0]
    return next(iter(dataset.where([name])))


def _epochs(
    folder: Folder, training: Training, runs: int, seconds: float, window_ms: float, workers: int | None
) -> pd.DataFrame:
    import pandas as pd

    tables = []
    for background, others in EPOCH_BACKGROUNDS.items():
        name = f"epochs-{background.lower().replace(' ', '-')}"
        dataset = _simulated(folder, name, runs, seconds, workers, seed=2, background=(0,), others=others)
        for classifier in PUBLISHED:
            windows = training.cut(dataset, window_ms, CLASSIFIERS[classifier])
            found = accuracy_by_epoch(classifier, windows, training)
            tables.append(found.assign(background=background, classifier=classifier, window_ms=window_ms))
    return pd.concat(tables, ignore_index=True)


def _sampling(
    training: Training, runs: int, seconds: float, window_ms: float, workers: int | None
) -> pd.DataFrame:
    from .._support.pool import cores, in_processes
    from ..identify.windows import joined

    room = min(training.per_flow, max(int(_PAPER_S * 1000 // window_ms), 1))
    made = [
        (changes, scenario, window_ms, room, DROPPED_PERCENT)
        for changes, scenario in jobs(runs, seconds, seed=3, background=(0,))
    ]
    done = in_processes(recorded_windows, made, workers or cores())
    parts = {number: future.result() for number, future in done}
    return f1_by_sampling(joined([parts[number] for number in sorted(parts)]), training)
