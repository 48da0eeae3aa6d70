"""The Dragonfly experiment's measurements and tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...analysis.slot_rows import consecutive
from ...errors import ParameterError
from ...identify import Recording, SlotDataset, Windows
from ...identify.probabilities import UNKNOWN
from ...identify.windows import FEATURE_SETS, INPUTS, joined, windows_at
from ...scenario import Flow, Scenario
from ..code_hash import NOT_SIMULATED, code_hash
from .logs import INPUTS as SESSION_INPUTS, read_session, session_windows
from .scenarios import (
    ALL_PACKETS,
    ANSWERING,
    BUNDLED,
    CLASSIFIERS,
    LEARNT_FROM,
    NETWORKS,
    OFFLOAD,
    ONCE,
    OTHER_DATA,
    RANDOM_SAMPLES,
    REAL_LINUX,
    SECOND_LATE,
    SHUFFLED_SAMPLES,
    SIMULATOR,
    jobs,
)
from .shuffled import shuffled_slots
from .training import Training

__all__ = [
    "EPOCH_BACKGROUNDS",
    "Work",
    "accuracy_by_epoch",
    "background_of",
    "best_recalls",
    "bundled_by_place",
    "burst_period_ms",
    "by_published_inputs",
    "by_split",
    "elsewhere",
    "f1_by_input",
    "f1_by_place",
    "f1_by_runs",
    "f1_by_sampling",
    "f1_by_window",
    "f1_of_baseline",
    "last_epochs",
    "left_out",
    "recall_by_epoch",
    "recorded_windows",
    "volatility",
]

#: Figure 5's background traffic: 1000 packets of 1.4 KB a second; ten Vegas flows.
EPOCH_BACKGROUNDS: dict[str, tuple[Flow, ...]] = {
    "none": (),
    "UDP": (Flow("udp", rtt_ms=70, rate_mbps=1000 * 1400 * 8 / 1e6, packet_bytes=1400, arrivals="poisson"),),
    "TCP Vegas": (Flow("vegas", rtt_ms=70, count=10),),
}

#: The code that decides what a simulated run's slots and windows are, and what a run's slots are on real Linux.
RUNS = ("cctoolkit.identify.dataset", "cctoolkit.identify.windows", "cctoolkit.sim.simulation")
_LINUX_RUNS = ("cctoolkit.identify.dataset", "cctoolkit.testbed.uml")

#: Figure 2's choices: each input alone, and the paper's two.
INPUT_CHOICES = (*INPUTS, CLASSIFIERS["Dragonfly"])

#: Shares of the runs that are trained on, for a learning curve.
RUN_SHARES = (1 / 16, 1 / 4, 1.0)

#: Figure 9's classifiers, and what each learns from. With CBIQ alone, samples as published have nothing to learn from.
SAMPLED = {"Dragonfly": LEARNT_FROM, "Dragonfly, CBIQ only": (ALL_PACKETS,)}

#: The paper's runs in the cloud: 27 combinations of congestion controls with 6 buffers.
CLOUD_RUNS = 162

#: Settings that may be left out of training: the first that the data vary.
_SETTINGS = ("background", "aqm", "buffer_packets")


def recorded_windows(
    changes: dict[str, Any],
    scenario: Scenario,
    window_ms: float,
    per_flow: int,
    dropped_percent: Sequence[float],
    special: int = 3,
) -> Windows:
    """A simulated run's windows of CBIQ and throughput when some of its packets are not observed.

    Parameters
    ----------
    changes, scenario
        One of :func:`~.scenarios.jobs`.
    window_ms, per_flow
        As for :func:`cctoolkit.identify.cut_windows`.
    dropped_percent : sequence of float
        Percentages of packets that are not observed; the windows' table has them in a column ``dropped_percent``, and
        in ``samples`` which samples they are of: :data:`~.scenarios.RANDOM_SAMPLES`, and where packets are dropped
        also :data:`~.scenarios.SHUFFLED_SAMPLES` (:mod:`.shuffled`).
    special : int
        How many flows, from the first, to cut windows out of.

    Notes
    -----
    Slots without a packet are filled backward where all packets are observed, and interpolated elsewhere (section
    III-D).
    """
    from ...analysis.slots import compute_slots
    from ...identify import cut_windows
    from ...sim.simulation import simulate

    made = simulate(scenario, record=True)
    known = made.labels[["flow_id", "cca"]].iloc[:special].assign(**changes)
    assert made.ingress is not None and made.egress is not None  # recorded
    taps = made.ingress, made.egress
    chosen: dict[str, Any] = {"flow_ids": known["flow_id"], "seed": scenario.seed}
    whole = compute_slots(*taps, **chosen)
    recordings = []
    for dropped in dropped_percent:
        share = 1 - dropped / 100
        samples = {RANDOM_SAMPLES: whole}
        if dropped:
            samples = {
                RANDOM_SAMPLES: compute_slots(*taps, sampling=share, fill="interpolate", **chosen),
                SHUFFLED_SAMPLES: shuffled_slots(whole, *taps, share, scenario.seed),
            }
        for name, slots in samples.items():
            flows = known.assign(dropped_percent=float(dropped), samples=name)
            recordings.append(Recording(made.name, slots, flows))
    return cut_windows(recordings, window_ms, "cbiq+throughput", per_flow=per_flow)


# ---- what is measured ------------------------------------------------------------------------------------------------


def volatility(recording: Recording, slots: slice = slice(None)) -> pd.DataFrame:
    """How much CBIQ and throughput change from slot to slot.

    Parameters
    ----------
    recording : Recording
    slots : slice
        Slots of each flow.

    Returns
    -------
    DataFrame
        ``flow_id``, ``cca``, and for both the mean absolute step from slot to slot over the mean (the paper says "less
        volatile" and gives no measure).
    """
    from ...identify.windows import slot_arrays

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
    dataset: SlotDataset | Iterable[Recording],
    training: Training,
    window_ms: float = 100.0,
    choices: Sequence[str] = INPUT_CHOICES,
) -> pd.DataFrame:
    """Figure 2: F1 of the Dragonfly network with a single input, and with the two that the paper chose.

    Parameters
    ----------
    dataset, training, window_ms
    choices : sequence of str
        Some of :data:`INPUT_CHOICES`.

    Returns
    -------
    DataFrame
        ``input`` and the result of :func:`cctoolkit.identify.evaluation.over_seeds`, best first. All train and test on
        the same windows; an input that was never observed (the queue, with one tap) is left out.
    """
    windows = training.cut(dataset, window_ms, INPUTS)
    seen = ~np.isnan(windows.X).all(axis=(0, 1))
    tables = []
    for name in choices:
        inputs = FEATURE_SETS.get(name, (name,))
        if seen[[INPUTS.index(column) for column in inputs]].all():
            (table,) = training.scores("Dragonfly", _only(windows, inputs))
            tables.append(table.assign(input=name, window_ms=window_ms))
    return best_first(tables)


def best_first(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables as one, by F1."""
    return (
        pd.concat(tables).sort_values("f1", ascending=False, ignore_index=True) if tables else pd.DataFrame()
    )


def f1_by_window(
    dataset: SlotDataset,
    training: Training,
    windows_ms: Sequence[float],
    classifiers: Sequence[str] = tuple(CLASSIFIERS),
    by: Sequence[str] = (),
    longest: Mapping[str, float] | None = None,
    cloud: SlotDataset | None = None,
) -> tuple[pd.DataFrame, ...]:
    """Figures 6, 7, 8, 10 and 11: F1 of each classifier on windows of each length, or up to its `longest`, in ms.

    With a `cloud`, the same classifiers are also tested on all of its runs (Figure 11).

    Returns
    -------
    DataFrame
        ``classifier``, ``window_ms`` and the result of :func:`cctoolkit.identify.evaluation.over_seeds`, including F1
        of each congestion control. Lengths that no flow fills are left out.
    DataFrame ...
        The same by each column of `by`, then in the `cloud`, if it is given.

    Raises
    ------
    ParameterError
        No flow fills even the shortest window.
    """
    found: list[list[pd.DataFrame]] = [[] for _ in (None, *by, *([] if cloud is None else [None]))]
    for window_ms in sorted(windows_ms):
        for name in classifiers:
            if window_ms > (longest or {}).get(name, math.inf):
                continue
            try:
                windows = training.cut(dataset, window_ms, CLASSIFIERS[name])
            except ParameterError:
                if window_ms > min(windows_ms):
                    continue
                raise
            there = None if cloud is None else training.cut(cloud, window_ms, CLASSIFIERS[name])
            for part, table in zip(found, training.scores(name, windows, *by, elsewhere=there), strict=True):
                table.insert(0, "classifier", name)
                table.insert(1, "window_ms", window_ms)
                part.append(table)
    return tuple(pd.concat(part, ignore_index=True) for part in found)


def f1_by_runs(windows: Windows, training: Training, shares: Sequence[float] = RUN_SHARES) -> pd.DataFrame:
    """F1 of Dragonfly when it learns from some of the runs; the runs tested on are always the same.

    Parameters
    ----------
    windows : Windows
        Windows of Dragonfly's inputs.
    training : Training
    shares : sequence of float
        Of the runs that are not tested on. A larger share includes the smaller ones.

    Returns
    -------
    DataFrame
        ``learnt_share``, ``learnt_runs`` (of those that have windows) and the result of
        :func:`cctoolkit.identify.evaluation.over_seeds`.
    """
    tables = []
    for share in sorted(shares):
        learnt_runs: list[int] = []

        def parts(
            seed: int, share: float = share, learnt_runs: list[int] = learnt_runs
        ) -> tuple[Windows, Windows]:
            learnt, tested = windows.split(0.3, seed)
            names = np.random.default_rng(seed).permutation(sorted(set(learnt.groups)))
            chosen = names[: max(round(share * len(names)), 2)]
            learnt_runs.append(len(chosen))
            return learnt.take(np.isin(learnt.groups, chosen)), tested

        (table,) = training.scores("Dragonfly", parts)
        table.insert(0, "learnt_share", share)
        table.insert(1, "learnt_runs", learnt_runs[0])
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


#: The published program's learning rate, for every network.
_PUBLISHED_RATE = 1e-4


def f1_of_baseline(
    dataset: SlotDataset, training: Training, window_ms: float, answering: Sequence[str] = ANSWERING
) -> pd.DataFrame:
    """F1 of DeePCCI, and of what the authors published as DeePCCI (:mod:`.baseline`).

    Parameters
    ----------
    dataset, training, window_ms
    answering : sequence of str
        Some of :data:`~.scenarios.ANSWERING`.

    Returns
    -------
    DataFrame
        ``answers`` (:data:`~.scenarios.ANSWERING`), ``scored`` (``"all"`` answers or the ``"last"``), ``window_ms`` and
        the result of :func:`cctoolkit.identify.evaluation.over_seeds`. The published program averages F1 over answers;
        here all answers count alike.
    """
    windows = training.cut(dataset, window_ms, CLASSIFIERS["DeePCCI"])
    tables = []
    for how in answering:
        if how == ONCE:
            (table,) = training.scores("DeePCCI", windows)
            tables.append(table.assign(answers=how, scored="all"))
            continue
        for scored, table in _by_second(windows, training, late=how == SECOND_LATE).items():
            tables.append(table.assign(answers=how, scored=scored))
    both = pd.concat(tables, ignore_index=True).assign(window_ms=window_ms)
    first = ["answers", "scored", "window_ms"]
    return both[[*first, *both.columns.drop(first)]]


def _by_second(windows: Windows, training: Training, *, late: bool) -> dict[str, pd.DataFrame]:
    """F1 of all answers, and of the last ones."""
    from ...identify.evaluation import over_seeds
    from .baseline import BySecond, SecondLate, seconds_of

    seconds = seconds_of(windows.X.shape[1], windows.slot_ms)
    rate = _PUBLISHED_RATE if training.learning_rate is None else training.learning_rate
    kind = SecondLate if late else BySecond
    answers: dict[int, np.ndarray] = {}

    def parts(seed: int) -> tuple[Windows, Windows]:
        """What is learnt from, and a row for each answer to the other windows, without their slots."""
        learnt, tested = windows.split(0.3, seed)
        rows = dataclasses.replace(tested, X=tested.X[:, :1]).take(np.repeat(np.arange(len(tested)), seconds))
        number = np.tile(np.arange(seconds), len(tested))
        return learnt, dataclasses.replace(rows, table=rows.table.assign(second=number))

    def train(learnt: Windows, seed: int) -> Callable[[Windows], np.ndarray]:
        if seed not in answers:
            classifier = kind(epochs=training.epochs, learning_rate=rate, seed=seed).fit(learnt)
            answers[seed] = classifier.answers(windows.split(0.3, seed)[1]).ravel()
        return lambda _: answers[seed]

    seeds = range(training.seeds)
    every = over_seeds(train, parts, seeds)
    if seconds == 1:
        return {"all": every}
    by_second = over_seeds(train, parts, seeds, by="second")
    return {"all": every, "last": by_second[by_second.second == seconds - 1].drop(columns="second")}


def accuracy_by_epoch(name: str, windows: Windows, training: Training) -> pd.DataFrame:
    """Figure 5: accuracy on windows of other runs after each epoch of training.

    Parameters
    ----------
    name : str
        One of :data:`~.scenarios.PUBLISHED`.
    windows : Windows
        Windows of its feature set.
    training : Training

    Returns
    -------
    DataFrame
        ``epoch``, ``seed``, ``accuracy``, ``loss`` (in training).
    """
    return _by_epoch(
        name, windows, training, lambda classifier, tested: {"accuracy": classifier.score(tested)}
    )


def recall_by_epoch(windows: Windows, training: Training) -> pd.DataFrame:
    """Figure 10 as published: recall of each congestion control by Dragonfly after each epoch of training.

    Parameters
    ----------
    windows : Windows
        Windows of Dragonfly's inputs.
    training : Training

    Returns
    -------
    DataFrame
        ``epoch``, ``seed``, ``cca``, ``recall`` (the share of its windows that are named right), ``f1``.
    """
    from ...identify.evaluation import f1

    ccas = sorted(set(windows.y))

    def scores(classifier: Any, tested: Windows) -> dict[str, float]:
        answers = classifier.predict(tested)
        recall = {f"recall {cca}": float((answers[tested.y == cca] == cca).mean()) for cca in ccas}
        return recall | {
            f"f1 {cca}": float(x) for cca, x in zip(ccas, f1(tested.y, answers, ccas), strict=True)
        }

    wide = _by_epoch("Dragonfly", windows, training, scores)
    long = pd.wide_to_long(
        wide, ["recall", "f1"], ["seed", "epoch"], "cca", sep=" ", suffix=r"\w+"
    ).reset_index()
    return long[["epoch", "seed", "cca", "recall", "f1"]].sort_values(
        ["seed", "epoch", "cca"], ignore_index=True
    )


def _by_epoch(
    name: str, windows: Windows, training: Training, measure: Callable[[Any, Windows], dict[str, float]]
) -> pd.DataFrame:
    """What is measured on windows of other runs after each epoch, of all seeds."""
    rows = []
    for seed in range(training.seeds):
        learnt, tested = windows.split(0.3, seed)

        def now(classifier: Any, tested: Windows = tested) -> dict[str, float]:
            return measure(classifier, tested)

        rows += [row | {"seed": seed} for row in training.history(name, learnt, seed, now)]
    return pd.DataFrame(rows).astype({"epoch": int, "seed": int})


def f1_by_sampling(
    windows: Windows,
    training: Training,
    classifiers: Mapping[str, Sequence[str]] = SAMPLED,
) -> pd.DataFrame:
    """Figure 9: F1 of classifiers tested on samples of packets, of other runs than those that they learn from.

    Parameters
    ----------
    windows : Windows
        Windows of :func:`recorded_windows`, joined.
    training : Training
    classifiers : mapping of str to sequence of str
        Classifiers of :data:`SAMPLED`, and for each some of :data:`~.scenarios.LEARNT_FROM`. With samples, there is a
        network for each share of dropped packets, and no row for 0 %.

    Returns
    -------
    DataFrame
        ``classifier``, ``learnt_from``, ``dropped_percent``, the result of
        :func:`cctoolkit.identify.evaluation.over_seeds`, and ``share_with_queue``, the share of slots with bytes in the
        queue in the samples.

    Notes
    -----
    DeePCCI is left out: it counts packets, and a sample is not a count.
    """
    tables = []
    for name, learnt_from in classifiers.items():
        inputs = ("cbiq_bytes", "throughput_bytes")[: 1 + (name == "Dragonfly")]
        chosen = dataclasses.replace(windows, X=windows.X[:, :, : len(inputs)], inputs=inputs)
        for how in learnt_from:
            table = (
                _of_all_packets(name, chosen, training)
                if how == ALL_PACKETS
                else _of_each_share(name, chosen.of(samples=how), training)
            )
            table.insert(0, "classifier", name)
            table.insert(1, "learnt_from", how)
            samples = windows.of(samples=SHUFFLED_SAMPLES if how == SHUFFLED_SAMPLES else RANDOM_SAMPLES)
            tables.append(table.assign(share_with_queue=_shares_with_queue(samples, table.dropped_percent)))
    return pd.concat(tables, ignore_index=True)


def _shares_with_queue(windows: Windows, dropped_percent: Iterable[float]) -> list[float]:
    """Share of slots with bytes in the queue, by share of dropped packets."""
    return [float((windows.of(dropped_percent=dropped).X[:, :, 0] > 0).mean()) for dropped in dropped_percent]


def _of_all_packets(name: str, windows: Windows, training: Training) -> pd.DataFrame:
    """F1 of one network by share of dropped packets, learnt from all packets."""

    def parts(seed: int) -> tuple[Windows, Windows]:
        learnt, tested = windows.of(samples=RANDOM_SAMPLES).split(0.3, seed)
        return learnt.of(dropped_percent=0.0), tested

    return training.scores(name, parts, "dropped_percent")[1]


def _of_each_share(name: str, windows: Windows, training: Training) -> pd.DataFrame:
    """F1 of a network for each share of dropped packets, learnt from samples of the same share."""
    tables = []
    for dropped in sorted(set(windows.table["dropped_percent"]) - {0.0}):
        (table,) = training.scores(name, windows.of(dropped_percent=dropped))
        table.insert(0, "dropped_percent", dropped)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def by_split(
    dataset: SlotDataset,
    training: Training,
    window_ms: float,
    classifiers: Sequence[str] = ("Dragonfly", "ours"),
) -> pd.DataFrame:
    """F1 when a split keeps flows apart instead of runs, as in the published code, so that runs leak.

    Returns
    -------
    DataFrame
        ``classifier``, ``window_ms``, ``split`` (``"by run"``, ``"by flow"``, and ``"by window"``, where even windows
        of one flow are on both sides) and the scores.
    """
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


def by_published_inputs(
    dataset: SlotDataset,
    training: Training,
    window_ms: float,
    choices: Sequence[str] = tuple(SESSION_INPUTS),
) -> pd.DataFrame:
    """F1 of Dragonfly's network with the paper's inputs and with those of the published code, in runs never trained on.

    Parameters
    ----------
    dataset, training, window_ms
    choices : sequence of str
        Some of :data:`~.logs.INPUTS`.

    Returns
    -------
    DataFrame
        ``inputs``, ``window_ms`` and the scores.
    """
    windows = _as_published(training.cut(dataset, window_ms, CLASSIFIERS["Dragonfly"]), dataset)
    tables = []
    for inputs in choices:
        (table,) = training.scores("Dragonfly", _only(windows, SESSION_INPUTS[inputs]))
        table.insert(0, "inputs", inputs)
        table.insert(1, "window_ms", window_ms)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _as_published(windows: Windows, dataset: SlotDataset) -> Windows:
    """Windows of CBIQ and throughput with the published tables' other columns: what left, times, sequence numbers."""
    names = ("out_bytes", "in_seq", "out_seq")
    slots = windows.X.shape[1]
    others = np.empty((len(windows), slots, len(names)), np.float32)
    for recording in dataset.recordings(names):
        mine = (windows.table["run"] == recording.name).to_numpy()
        if not mine.any():
            continue
        arrays = [
            (
                flow["flow_id"].iloc[0],
                flow["slot"].iloc[0],
                flow[list(names)].to_numpy(np.float32, na_value=np.nan),
            )
            for _, flow in consecutive(recording.slots, names).groupby("flow_id", sort=False)
        ]
        others[mine] = windows_at(arrays, windows.table[mine], slots)
    time_s = (windows.table["first_slot"].to_numpy()[:, None] + np.arange(slots)) * windows.slot_ms / 1000
    values = np.concatenate([windows.X, others, time_s[:, :, None].astype(np.float32)], axis=2)
    return dataclasses.replace(windows, X=values, inputs=(*windows.inputs, *names, "time_s"))


def f1_by_place(
    places: Mapping[str, SlotDataset], training: Training, window_ms: float, classifier: str
) -> pd.DataFrame:
    """F1 of a classifier trained in each of several places, tested on other runs in all of them.

    Parameters
    ----------
    places : mapping of str to SlotDataset
        The same runs, by name, in each place. A run is trained on, or tested on, in all of them.
    training, window_ms
    classifier : str
        One of :data:`~.scenarios.CLASSIFIERS`.

    Returns
    -------
    DataFrame
        ``classifier``, ``window_ms``, ``trained_on``, ``tested_on`` (places) and the scores.
    """
    windows = _of_places(places, training, window_ms, CLASSIFIERS[classifier])
    tables = []
    for place in places:

        def parts(seed: int, place: str = place) -> tuple[Windows, Windows]:
            learnt, tested = windows.split(0.3, seed)
            return learnt.of(tested_on=place), tested

        _, table = training.scores(classifier, parts, "tested_on")
        tables.append(_of_training(table, classifier, window_ms, place))
    return pd.concat(tables, ignore_index=True)


def bundled_by_place(
    places: Mapping[str, SlotDataset], training: Training, windows_ms: Sequence[float]
) -> pd.DataFrame:
    """F1 of the bundled model `cca` in each place, as :func:`f1_by_place` has it; it may not say "unknown"."""
    from ...identify import load
    from ...identify.evaluation import evaluate

    model = load("cca")
    tables = []
    for window_ms in windows_ms:
        if window_ms >= min(model.windows_ms):
            windows = _of_places(places, training, window_ms, model.inputs)
            names = np.asarray(model.classes_, object)[model.predict_proba(windows).argmax(axis=1)]
            table = evaluate(names, windows, by="tested_on")
            tables.append(_of_training(table, "ours", window_ms, BUNDLED))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _of_places(
    places: Mapping[str, SlotDataset], training: Training, window_ms: float, inputs: str | Sequence[str]
) -> Windows:
    """Windows of each place, which the table calls ``tested_on``."""
    cut = []
    for place, recordings in places.items():
        part = training.cut(recordings, window_ms, inputs)
        cut.append(dataclasses.replace(part, table=part.table.assign(tested_on=place)))
    return joined(cut)


def _of_training(table: pd.DataFrame, classifier: str, window_ms: float, trained_on: str) -> pd.DataFrame:
    table.insert(0, "classifier", classifier)
    table.insert(1, "window_ms", window_ms)
    table.insert(2, "trained_on", trained_on)
    return table


def _only(windows: Windows, inputs: Sequence[str]) -> Windows:
    """The same windows with some of their inputs."""
    columns = [windows.inputs.index(name) for name in inputs]
    return dataclasses.replace(windows, X=windows.X[:, :, columns], inputs=tuple(inputs))


def left_out(
    dataset: SlotDataset,
    training: Training,
    window_ms: float,
    column: str,
    classifier: str = "ours",
    values: Iterable[Any] | None = None,
) -> pd.DataFrame:
    """F1 on settings never trained on, and on the same test windows with training on them.

    Parameters
    ----------
    dataset, training, window_ms
    column : str
        The setting; each of its values is left out of training once.
    classifier : str
        One of :data:`~.scenarios.CLASSIFIERS`.
    values : iterable, optional
        Only these values.

    Returns
    -------
    DataFrame
        `column`, ``f1``, ``low``, ``high`` (left out), ``f1_trained`` (all settings trained on), ``seeds``.
    """
    windows = training.cut(dataset, window_ms, CLASSIFIERS[classifier])
    halves = {seed: windows.split(0.3, seed) for seed in range(training.seeds)}
    tables = []
    for value in sorted(set(windows.table[column]) if values is None else values):
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
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def elsewhere(
    dataset: SlotDataset,
    other: SlotDataset,
    training: Training,
    window_ms: float,
    classifiers: Sequence[str] = ("Dragonfly", "DeePCCI", "ours"),
) -> pd.DataFrame:
    """F1 of classifiers trained on one dataset and tested on another: other settings, or real Linux.

    Returns
    -------
    DataFrame
        ``classifier``, ``window_ms``, ``tested`` (``"here"``: other runs of the same dataset; ``"elsewhere"``: all runs
        of the other) and the scores.
    """
    from ...identify.windows import joined

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
    """The setting that figure 8 and :func:`left_out` vary: the first that varies in the dataset, or None."""
    for name in _SETTINGS:
        if name in dataset.flows and len(set(dataset.flows[name])) > 1:
            return name
    return None


def last_epochs(epochs: pd.DataFrame) -> pd.DataFrame:
    """Accuracy over the last fifth of the epochs: mean, minimum and maximum of the mean over seeds."""
    late = epochs[epochs.epoch > epochs.epoch.max() * 0.8]
    curve = late.groupby(["background", "classifier", "epoch"], sort=False).accuracy.mean()
    return (
        curve.groupby(["background", "classifier"], sort=False)
        .agg(mean="mean", least="min", most="max")
        .reset_index()
    )


def best_recalls(recall: pd.DataFrame) -> pd.DataFrame:
    """Recall and F1 after the last epoch, and ``best``, recall at its best epoch, by window and congestion control."""
    keys = ["window_ms", "cca"]
    last = recall[recall.epoch == recall.epoch.max()].groupby(keys)[["recall", "f1"]].mean()
    best = recall.groupby([*keys, "seed"]).recall.max().groupby(keys).mean()
    return last.assign(best=best).reset_index()


# ---- the parts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """The input of the parts.

    Parameters
    ----------
    data : function
        Returns the data, at first use.
    training : Training
    windows_ms : sequence of float
        Window lengths.
    runs : int
        Simulated runs of the parts that make their own.
    seconds : float
        Duration of those runs.
    folder : Path
        Those runs are kept here.
    workers : int, optional
        Processes; all cores by default.
    other : SlotDataset, optional
        A dataset to test on and never train on.
    network : str, optional
        Which of the paper's networks the runs are like (:data:`~.scenarios.NETWORKS`); other data are like none.
    background : sequence of int, optional
        Numbers of background flows of simulated runs; by default the paper's.
    session : Path, optional
        The authors' session (:func:`.logs.read_session`).
    longest : mapping of str to float, optional
        Longest windows by classifier, in ms.
    """

    data: Callable[[], SlotDataset]
    training: Training
    windows_ms: Sequence[float]
    runs: int
    seconds: float
    folder: Path
    workers: int | None = None
    other: SlotDataset | None = None
    session: Path | None = None
    longest: Mapping[str, float] | None = None
    network: str | None = None
    background: Sequence[int] | None = None

    @cached_property
    def cloud(self) -> SlotDataset | None:
        """Runs in the cloud, for classifiers that are trained on the physical network."""
        if self.network != "physical":
            return None
        runs = min(self.runs, CLOUD_RUNS)
        return simulated(self.folder, "cloud", runs, self.seconds, self.workers, network="cloud")

    @cached_property
    def places(self) -> dict[str, SlotDataset]:
        """The same runs in each of :data:`~.scenarios.PLACES`."""
        settings = self.folder, self.simulated_network, self.runs, self.seconds, self.workers
        return {
            SIMULATOR: self.dataset,
            REAL_LINUX: on_linux(*settings, self.background, offload=False),
            OFFLOAD: on_linux(*settings, self.background, offload=True),
        }

    def longest_of(self, classifier: str) -> float:
        """The longest windows of a classifier, in ms."""
        return (self.longest or {}).get(classifier, math.inf)

    @property
    def simulated_network(self) -> str:
        """The network of the parts that make their own runs."""
        return self.network or "mininet"

    def of_network(self, table: pd.DataFrame, network: str | None = None) -> pd.DataFrame:
        """A table with the network that it is about."""
        name = network or self.network
        return table.assign(network=OTHER_DATA if name is None else NETWORKS[name])

    @cached_property
    def dataset(self) -> SlotDataset:
        """The data."""
        return self.data()

    @cached_property
    def longest_ms(self) -> float:
        """The longest window up to 10 s (the paper's in figures 8 and 9) that flows of the first runs fill."""
        dataset = self.dataset.where(self.dataset.runs[:10])
        for ms in sorted((ms for ms in self.windows_ms if ms <= 10_000), reverse=True):
            try:
                self.training.cut(dataset, ms, "cbiq")
            except ParameterError:
                continue
            return ms
        return min(self.windows_ms)

    @cached_property
    def setting(self) -> str | None:
        """The setting that varies (:func:`background_of`), or that was chosen."""
        return background_of(self.dataset) if self.background is None else "background"

    @cached_property
    def example(self) -> Recording:
        """A run with 15 background flows, if there is one, and its special flows."""
        flows = self.dataset.flows
        with_15 = flows["background"] == 15 if "background" in flows else flows["run"] == ""
        name = flows["run"][with_15].iloc[0] if with_15.any() else self.dataset.runs[0]
        return next(iter(self.dataset.where([name])))


def simulated(
    folder: Path, name: str, runs: int, seconds: float, workers: int | None, **settings: Any
) -> SlotDataset:
    """A dataset of simulated runs (:func:`~.scenarios.jobs`), kept in a folder."""
    code = code_hash(RUNS, without=NOT_SIMULATED)[:8]
    wanted = list(jobs(runs, seconds, **settings))
    return _built(wanted, folder / "data" / f"{name}-{seconds:g}s-{code}", workers)


def on_linux(
    folder: Path, network: str, runs: int, seconds: float, workers: int | None,
    background: Sequence[int] | None = None, *, offload: bool,
) -> SlotDataset:  # fmt: skip
    """The same runs on real Linux, in virtual time; the kernel is part of the folder's name."""
    from ...testbed.kernel import find_kernel

    name = f"{network}-{'offload' if offload else 'linux'}"
    code = f"{code_hash(_LINUX_RUNS)[:8]}-{find_kernel().sha256[:8]}"
    wanted = list(jobs(runs, seconds, network=network, background=background))
    at = folder / "data" / f"{name}-{seconds:g}s-{code}"
    return _built(wanted, at, workers, on="uml", offload=offload)


def _built(
    wanted: Sequence[tuple[dict[str, Any], Scenario]], folder: Path, workers: int | None, **where: Any
) -> SlotDataset:
    import sys

    from ...identify import build_dataset

    return build_dataset(
        wanted, folder, background=0, workers=workers, progress=sys.stderr.isatty(), **where
    ).where([scenario.name for _, scenario in wanted])


def cbiq(work: Work, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``volatility`` of a run, and ``cbiq``: its slots of the last seconds, one flow per congestion control."""
    return {"volatility": volatility(work.example), "cbiq": last_slots(work.example)}


def last_slots(recording: Recording, seconds: float = 5.0) -> pd.DataFrame:
    """CBIQ and ingress throughput of a flow of each congestion control, over the run's last seconds."""
    from ...identify.windows import slot_arrays

    names = ("cbiq_bytes", "throughput_bytes")
    arrays = {flow: (first, values) for flow, first, values in slot_arrays(recording.slots, names)}
    flows = recording.flows.drop_duplicates("cca")
    flows = flows[flows.flow_id.isin([flow for flow, (_, values) in arrays.items() if len(values)])]
    tables = []
    for flow_id, cca in zip(flows.flow_id, flows.cca, strict=True):
        first, values = arrays[flow_id]
        part = values[-round(seconds * 1000 / recording.slot_ms) :]
        begin = first + len(values) - len(part)
        times = [(begin + i) * recording.slot_ms / 1000 for i in range(len(part))]
        columns = dict(zip(names, part.T, strict=True))
        tables.append(pd.DataFrame({"cca": str(cca), "time_s": times} | columns))
    return pd.concat(tables, ignore_index=True)


def inputs(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``inputs``: :func:`f1_by_input`."""
    return {"inputs": work.of_network(best_first(_all(found)))}


def epochs(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``epochs``: :func:`accuracy_by_epoch` with each background."""
    return {"epochs": work.of_network(pd.concat(_all(found), ignore_index=True), work.simulated_network)}


def windows(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``windows`` by length, a table by the setting that varies, of the longest windows, and perhaps ``cloud``."""
    table, *grouped = (
        work.of_network(pd.concat(part).sort_values("window_ms", kind="stable", ignore_index=True))
        for part in zip(*filter(None, found), strict=True)
    )
    tables = {"windows": table}
    if work.cloud is not None:
        tables["cloud"] = grouped.pop().assign(network=NETWORKS["cloud"])
    if work.setting is not None:
        at = grouped[0]
        tables[work.setting] = at[at.window_ms == work.longest_ms].reset_index(drop=True)
    return tables


def recall(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``recall``: :func:`recall_by_epoch` by window."""
    table = pd.concat(_all(found)).sort_values("window_ms", kind="stable", ignore_index=True)
    return {"recall": work.of_network(table)}


def learning_curve(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``learning-curve``: :func:`f1_by_runs` by window."""
    table = pd.concat(_all(found)).sort_values(
        ["window_ms", "learnt_share"], kind="stable", ignore_index=True
    )
    return {"learning-curve": work.of_network(table)}


def sampling(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``sampling``: :func:`f1_by_sampling` on runs without background traffic."""
    return {"sampling": work.of_network(pd.concat(_all(found), ignore_index=True), work.simulated_network)}


def splits(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``splits``, ``published``, ``settings`` (if one varies) and ``elsewhere`` (with another dataset)."""
    tables: dict[str, list[pd.DataFrame]] = {"splits": [], "published": [], "settings": [], "elsewhere": []}
    told_by = {"split": "splits", "inputs": "published", "tested": "elsewhere"}
    for table in _all(found):
        tables[next((name for column, name in told_by.items() if column in table), "settings")].append(table)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items() if parts}


def baseline(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``baseline``: :func:`f1_of_baseline` by window."""
    table = pd.concat(_all(found)).sort_values("window_ms", kind="stable", ignore_index=True)
    if work.background is not None and len(set(work.background)) == 1:
        table = table.assign(background=work.background[0])
    return {"baseline": work.of_network(table)}


def linux(work: Work, found: Sequence[Sequence[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """``linux``: :func:`f1_by_place` and :func:`bundled_by_place`."""
    tables = [*_all(found), bundled_by_place(work.places, work.training, work.windows_ms)]
    table = pd.concat(tables).sort_values("window_ms", kind="stable", ignore_index=True)
    return {"linux": work.of_network(table, work.simulated_network)}


def _all(found: Sequence[Sequence[pd.DataFrame]]) -> list[pd.DataFrame]:
    """The tables of all cases that have one."""
    return [table for tables in found for table in tables if len(table)]


#: Share of the authors' session, from its begin, that networks learn from when they are tested on the rest.
_LEARNT = 0.7


def session(work: Work, found: Sequence[Any]) -> dict[str, pd.DataFrame]:
    """``session`` (its flows), ``session-answers`` (the bundled models'), ``session-learnt`` (networks of its own)."""
    assert work.session is not None
    read = read_session(work.session)
    flows = pd.DataFrame(
        {
            "cca": cca,
            "slots": len(flow),
            "packets": int(flow.in_packets.sum()),
            "bytes_per_packet": flow.throughput_bytes.sum() / flow.in_packets.sum(),
            "most_packets": int(flow.in_packets.max()),
            "mean_cbiq_bytes": flow.cbiq_bytes.mean(),
            "share_with_queue": (flow.cbiq_bytes > 0).mean(),
            "share_left": (flow.out_seq > 0).mean(),
            "burst_period_ms": burst_period_ms(flow.throughput_bytes.to_numpy()),
        }
        for cca, flow in read.groupby("cca", sort=False)
    )
    lengths = [ms for ms in work.windows_ms if ms * 3 <= len(read) / len(flows)]
    if not lengths:
        raise ParameterError(
            f"window_ms: none of {', '.join(f'{ms:g}' for ms in work.windows_ms)} ms fits three times into the session"
        )
    windows = {ms: session_windows(read, ms) for ms in lengths}
    answers = [row for ms, cut in windows.items() for row in _bundled_answers(cut, ms)]
    shortest = windows[lengths[0]]
    return {
        "session": flows,
        "session-answers": pd.DataFrame(answers),
        "session-learnt": _learnt(shortest, work.training),
    }


def burst_period_ms(sent: np.ndarray, slot_ms: float = 1.0, longest_ms: float = 1000.0) -> float:
    """After how long a flow's bytes repeat: a round trip, where acknowledgements clock them and nothing paces them.

    Parameters
    ----------
    sent : array of float
        Bytes by slot.
    slot_ms, longest_ms : float
        Length of a slot, and the longest period to look for.

    Returns
    -------
    float
        The lag of the first clear peak of the autocorrelation, in ms; NaN without any. Reno and CUBIC send a window's
        bursts again a round trip later (Veal et al., New methods for passive estimation of TCP round-trip times, PAM
        2005); BBR paces, so its peaks need not be round trips.
    """
    from scipy.signal import correlate, find_peaks

    centred = sent - sent.mean()
    half = correlate(centred, centred, method="fft")[len(sent) - 1 :]
    if not half[0]:
        return math.nan
    shortest = 5  # slots: closer ones are alike, whatever sends them
    longest = min(round(longest_ms / slot_ms), len(sent) // 4)
    noise = len(sent) ** -0.5  # standard deviation of the autocorrelation of independent values
    peaks, found = find_peaks(half[shortest:longest] / half[0], prominence=10 * noise)
    if not len(peaks):
        return math.nan
    clear = found["prominences"] >= 0.7 * found["prominences"].max()  # multiples of the period are peaks, too
    return float(shortest + peaks[np.argmax(clear)]) * slot_ms


def _bundled_answers(windows: Windows, window_ms: float) -> list[dict[str, Any]]:
    """What the bundled models say of each flow's windows: how many are right or unknown, and the most frequent name."""
    from ...identify import load

    rows = []
    for name in ("dragonfly", "cca"):
        model = load(name)
        if window_ms < min(model.windows_ms) or not (model.any_length or window_ms in model.windows_ms):
            continue
        named = dict(zip(windows.inputs, np.moveaxis(windows.X, 2, 0), strict=True))
        named["in_bytes"] = named["throughput_bytes"]
        unseen = np.full_like(named["in_bytes"], np.nan)
        answers = model.predict(np.stack([named.get(column, unseen) for column in model.inputs], axis=2))
        for cca in dict.fromkeys(windows.y):
            mine = pd.Series(answers[windows.y == cca])
            rows.append(
                {
                    "model": name, "window_ms": window_ms, "cca": cca, "windows": len(mine),
                    "right": int((mine == cca).sum()), "unknown": int((mine == UNKNOWN).sum()),
                    "most_often": str(mine.mode()[0]),
                }
            )  # fmt: skip
    return rows


def _learnt(windows: Windows, training: Training) -> pd.DataFrame:
    """F1 of Dragonfly's network, trained on part of the session and tested on the rest: random windows, or the end."""
    late = windows.table.from_s >= windows.table.from_s.max() * _LEARNT
    tables = []
    for inputs, columns in SESSION_INPUTS.items():
        chosen = _only(windows, columns)
        for split in ("windows at random", "the end of the session"):

            def parts(
                seed: int, chosen: Windows = chosen, random: bool = split == "windows at random"
            ) -> tuple[Windows, Windows]:
                if random:
                    return chosen.split(1 - _LEARNT, seed, by="number")
                return chosen.take((~late).to_numpy()), chosen.take(late.to_numpy())

            (table,) = training.scores("Dragonfly", parts)
            table.insert(0, "inputs", inputs)
            table.insert(1, "tested_on", split)
            tables.append(table.assign(window_ms=windows.window_ms))
    return pd.concat(tables, ignore_index=True)
