#!/usr/bin/env python3
"""Make the bundled models again: runs on real Linux TCP, windows, training, evaluation, cards.

    build.py [STEP…] [--work DIR] [--seed N]

Steps, each of which takes up what is there of the one before: ``data`` (some 3600 runs on the testbed's kernel in
virtual time and 4100 simulations: six to seven core-hours), ``home`` (settings drawn like those of the paper),
``world`` (goes on from there with the settings of the world), ``families`` (the same without one family at a time,
tested on it), ``cca`` (once a seed: goes on from ``world`` with all congestion controls in these settings;
``cca-scores`` without training), ``feature-sets``, ``every-home``, ``every-cca`` (goes on from there with the settings
of the world; ``every-scores`` without training), ``dragonfly`` (with DeePCCI beside it),
``rejection``, ``sim`` (trained on simulations only); without a step all of them. Step ``nebby`` needs other people's
traces, so only by name: ``cct dataset add DIR/nebby Nebby/sensitivity`` first. It also needs a kernel that does what
theirs did: ``cct testbed build --with hardware/linux/link --with hardware/linux/per-ack``. Models go to
``data/models/``, scores to ``data/results/models/``.

Splits are by run, and what is tested is real Linux only (but for congestion controls that it has not): of ``paper``,
``every`` and ``every-world`` each fourth run is for testing; ``hard`` is tested on ``hard-test``, settings drawn apart,
half of them with queue disciplines that no training run has.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cctoolkit import identify
from cctoolkit._support.atomic import replacing
from cctoolkit._support.pool import cores, results
from cctoolkit.analysis.limits import NAMEABLE, flow_limits
from cctoolkit.errors import ParameterError
from cctoolkit.experiments.kept import note_step
from cctoolkit.identify import SlotDataset, Windows, cut_windows
from cctoolkit.identify.behaviour import AS, right
from cctoolkit.identify.card import write_card
from cctoolkit.identify.evaluation import confusion, evaluate, rejection
from cctoolkit.identify.inputs import VIEW_CHANNELS, VIEW_INPUTS, hidden
from cctoolkit.identify.leakage import write_split
from cctoolkit.identify.probabilities import SHORTEST, UNKNOWN, grouped
from cctoolkit.identify.saving import save_models
from cctoolkit.identify.settings import (
    KERNEL_CCAS,
    PAPER_CCAS,
    SIMULATOR_CCAS,
    bursts,
    every_cca,
    hard,
    paper,
    world,
)
from cctoolkit.identify.windows import crossover_bands, joined

MODELS = Path(__file__).parent
RESULTS = MODELS.parent / "results" / "models"

#: Datasets: scenarios, where they run, and how many flows of a run are kept whatever its number.
DATASETS: dict[str, tuple[Any, str, int]] = {
    "paper": (lambda: paper(144), "uml", 3),
    "hard": (lambda: hard(152), "uml", 3),
    "hard-test": (lambda: hard(54, part="test"), "uml", 3),
    "world": (lambda: world(360), "uml", 6),
    "world-every": (lambda: world(360, 2, ccas=(*KERNEL_CCAS, "prague")), "uml", 6),
    "every-world": (lambda: world(660, 3, ccas=KERNEL_CCAS), "uml", 6),
    "every-world-more": (lambda: world(240, 6, ccas=KERNEL_CCAS), "uml", 6),
    "few": (lambda: every_cca(120, 902, ccas=PAPER_CCAS), "uml", 6),
    "every": (lambda: every_cca(1220), "uml", 6),
    "every-more": (lambda: every_cca(120, 904), "uml", 6),
    "bbr-world": (lambda: world(60, 5, ccas=("bbr", "cubic")), "uml", 6),
    "every-test": (lambda: every_cca(60, 903), "uml", 6),
    "bursts": (lambda: bursts(1360, 2), "uml", 1),
    "sim-paper": (lambda: paper(1300, 101), "simulator", 3),
    "sim-hard": (lambda: hard(260, 101), "simulator", 3),
    "sim-world": (lambda: world(700, 101), "simulator", 6),
    "sim-world-every": (lambda: world(300, 102, ccas=SIMULATOR_CCAS), "simulator", 6),
    "sim-every-world": (lambda: world(330, 103, ccas=SIMULATOR_CCAS), "simulator", 6),
    "sim-few": (lambda: every_cca(400, 901, ccas=PAPER_CCAS), "simulator", 6),
    "sim-crowd": (lambda: paper(300, 104), "simulator", 3),
    "sim-every": (lambda: every_cca(540, 501, ccas=SIMULATOR_CCAS), "simulator", 6),
}
#: Congestion controls that do the same here: DCTCP without marks falls back to Reno in Linux, by name or by behaviour.
ALIKE = {"reno": ("reno", "dctcp-reno")}
#: What does in these runs what Reno does: DCTCP without marks halves as Reno does, and LP mostly yields no earlier.
AS_RENO = ("dctcp", "lp")
#: What grows alike, a segment a round trip: DCTCP without marks is Reno, LP mostly yields no earlier, Westwood differs
#: after a loss only, YeAH where its round trips are far above the shortest.
BEHAVIOUR = {"reno": ("reno", "dctcp", "lp", "westwood", "yeah")}
#: Window lengths in milliseconds trained on, with windows of each flow.
LENGTHS = {30: 2, 100: 8, 300: 3, 1000: 8, 3000: 3, 10_000: 4}
TESTED_MS = (10, 100, 1000, 10_000, 60_000)
#: Runs of each family in the benchmark on real Linux, as in data/results/cca-benchmark-linux.
BENCHMARK_RUNS = 12
#: Runs of its part `home` that `every-cca` is tested on.
HOME_RUNS = 8
#: Training: real runs of Reno, CUBIC and BBR, and simulated ones, which are many and alike enough.
NAMED = ("paper", "hard", "few", "sim-paper", "sim-hard", "sim-few")
#: Settings of the world; and of those of `NAMED` so many runs that go along, so that they are not forgotten.
WORLD = ("world", "world-every", "sim-world", "sim-world-every")
REHEARSED = {"hard": 50, "every": 240, "sim-hard": 130, "sim-few": 200, "sim-paper": 200, "sim-every": 200}
#: The same for the last step of `cca`, which has all congestion controls in most settings.
EVERYWHERE = ("world", "sim-world", "sim-world-every", "every-world", "every-world-more", "sim-every-world")
REHEARSED_AGAIN = {
    "hard": 50, "every": 420, "every-more": 120, "sim-paper": 400, "sim-hard": 60, "sim-few": 100,
}  # fmt: skip
#: Of the real runs of the world each seventh is kept back from training, to learn from it how probable names are, where
#: one flow of ten uses a congestion control that has no name.
CALIBRATED = ("world", "world-every", "every-world", "every-world-more")
OTHER_SHARE = 0.1
#: Windows of each flow there.
WORLD_LENGTHS = {30: 1, 100: 4, 300: 2, 1000: 5, 3000: 2, 10_000: 3}
#: Runs of the world that a family of settings has changed.
CHANGED = {
    "path": "path.notna()",
    "aqm": "target_ms.notna() or aqm == 'red'",
    "application": "others.notna()",
    "capture": "packet_bytes.notna()",
    "stack": "stack.notna()",
}
#: The same for all congestion controls; runs of many flows at once are simulated ones only.
EVERY = ("every", "sim-every", "sim-hard", "sim-crowd")
#: Its network is wider, for it has more classes.
WIDTHS = (64, 96, 128)
LEFT_OUT = ("vegas", "htcp", "illinois", "westwood")
#: Windows of each flow in the second step of `every-cca`.
EVERY_LENGTHS = {30: 1, 100: 4, 300: 3, 1000: 6, 3000: 3, 10_000: 4}
EVERY_TESTED_MS = (100, 1000, 10_000)
#: Settings of the world for all congestion controls.
EVERY_WORLD = ("every-world", "sim-every-world")
#: Runs like those of its first step, so that they are not forgotten.
EVERY_AGAIN = ("every-more",)
#: Versions of BBR of which it has simulated runs only: real BBR in an unusual network must not be taken for them.
LATER_BBRS = ("bbr2", "bbr3")
#: Datasets of which each fourth run is for testing.
SPLIT = ("paper", "every", *EVERY_WORLD)


def fourth(run: str) -> bool:
    """Each fourth run is for testing."""
    return int(run.rsplit("-", 1)[-1]) % 4 == 3


def seventh(run: str) -> bool:
    """Each seventh run of the world is kept back from training."""
    return int(run.rsplit("-", 1)[-1]) % 7 == 6


class Work:
    """Datasets and the windows cut from them, kept in a folder."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.seed = seed  # of training

    def dataset(self, name: str) -> SlotDataset:
        scenarios, on, special = DATASETS[name]
        folder = self.folder / name
        if (folder / "dataset.json").is_file():
            return SlotDataset(folder)
        return identify.build_dataset(scenarios(), folder, on=on, special=special)

    def windows(
        self, name: str, ms: float, inputs: str | Sequence[str], per_flow: int, testing: bool = False
    ) -> Windows:
        kind = inputs if isinstance(inputs, str) else "counted"
        data = self.dataset(name)
        if name in SPLIT:
            data = data.where([run for run in data.runs if fourth(run) == testing])
        part = "test" if testing else "train"
        # the number of runs, for a dataset may have grown since windows were cut of it
        path = self.folder / "windows" / f"{name}-{part}-{len(data)}-{ms:g}-{kind}-{per_flow}.parquet"
        if not path.is_file():
            cut_windows(data, ms, inputs, per_flow=per_flow, seed=int(testing)).save(path)
        return Windows.load(path)

    def training(
        self,
        names: Sequence[str],
        ccas: Sequence[str] | None,
        other: Sequence[str] = (),
    ) -> list[Windows]:
        """Views of the training runs; of others than `ccas` under the name "other"."""
        out = []
        for name in names:
            for ms, per_flow in LENGTHS.items():
                many = name in ("sim-paper", "sim-hard")  # runs, which say more than many windows of each
                w = self.windows(name, ms, "views", -(-per_flow // 4) if many else per_flow)
                if name in ("sim-paper", "sim-few"):
                    w = w.take(np.arange(0, len(w), 2))
                w.y = grouped(w.y, ALIKE)
                if ccas is not None:
                    w = w.take(np.isin(w.y, [*ccas, *other]))
                    if name == "every":  # the named ones are few: settings must not give the others away
                        are_named = np.isin(w.y, ccas)
                        named, others = np.flatnonzero(are_named), np.flatnonzero(~are_named)
                        w = w.take(np.concatenate([named, named, others[::2]]))
                    w.y = np.where(np.isin(w.y, ccas), w.y, "other").astype(object)
                w.X = w.X.astype(np.float16)  # half the memory
                out.append(w)
        return out

    def of_the_world(
        self, worlds: Sequence[str], rehearsed: Mapping[str, int], without: str | None = None
    ) -> list[Windows]:
        """Views of runs of the world, but for those that a family has changed, and of some of the settings before."""
        parts = {name: self.shown(name, kept_back=False) for name in worlds}
        for name, runs in rehearsed.items():
            data = self.dataset(name)
            parts[name] = data.where(for_training(name, data)[:runs])
        out = []
        for name, data in parts.items():
            for ms, per_flow in WORLD_LENGTHS.items():
                w = self.kept(f"{name}-{len(data)}", data, ms, "views", per_flow)
                if name in rehearsed and "every" not in name:  # runs of many flows, as in the first step
                    w = w.take(np.arange(0, len(w), 2))
                elif name in worlds:
                    w = _unchanged(w, data, without)
                w.X = w.X.astype(np.float16)
                out.append(_named_or_other(w))
        return out

    def calibrating(self, worlds: Sequence[str], without: str | None = None) -> list[Windows]:
        """Windows as counted of the runs kept back."""
        out = []
        for name in (name for name in CALIBRATED if name in worlds):
            data = self.shown(name, kept_back=True)
            for ms in WORLD_LENGTHS:
                w = self.kept(f"{name}-back-{len(data)}", data, ms, VIEW_INPUTS, 2)
                out.append(_named_or_other(_unchanged(w, data, without)))
        return out

    def kept(
        self, name: str, data: SlotDataset, ms: float, inputs: str | Sequence[str], per_flow: int
    ) -> Windows:
        """Windows that are cut once."""
        kind = inputs if isinstance(inputs, str) else "counted"
        path = self.folder / "windows" / f"{name}-{ms:g}-{kind}-{per_flow}.parquet"
        if not path.is_file():
            size = -(-len(data) // (4 * cores()))
            parts = [data.where(data.runs[i : i + size]) for i in range(0, len(data), size)]
            cut = results(_cut, [(part, ms, inputs, per_flow) for part in parts])
            joined([w for w in cut if w is not None]).save(path)
        return Windows.load(path)

    def shown(self, name: str, *, kept_back: bool) -> SlotDataset:
        """Flows of the world that show their congestion control, of the runs kept back or of the others."""
        data = self.nameable(name)
        back = name in CALIBRATED
        return data.where([run for run in for_training(name, data) if (back and seventh(run)) == kept_back])

    def nameable(self, name: str) -> SlotDataset:
        """Flows of a dataset that show their congestion control."""
        return self.with_limits(name).where(f"limited_by in {NAMEABLE}")

    def with_limits(self, name: str) -> SlotDataset:
        """A dataset with what limits each flow."""
        data = self.dataset(name)
        path = self.folder / "windows" / f"{name}-{len(data)}-limits.parquet"
        if not path.is_file():
            found = [flow_limits(r.slots)[["flow_id", "limited_by"]].assign(run=r.name) for r in data]
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as tmp:
                pd.concat(found).to_parquet(tmp)
        data.flows = data.flows.merge(pd.read_parquet(path), on=["run", "flow_id"])
        return data

    def testing(self, name: str, ms: float, inputs: str | Sequence[str] = "views") -> Windows:
        if inputs == "views" and ms > SHORTEST:
            inputs = VIEW_INPUTS  # may be judged in pieces
        per_flow = {10: 3, 100: 3, 1000: 3, 10_000: 2, 60_000: 1}[int(ms)]
        w = self.windows(name, ms, inputs, per_flow, testing=True)
        w.y = grouped(w.y, ALIKE)
        return w


def _cut(data: SlotDataset, ms: float, inputs: str | Sequence[str], per_flow: int) -> Windows | None:
    """Windows, of views without behaviours; none if no flow fills one."""
    try:
        return cut_windows(data, ms, inputs, per_flow=per_flow, behaviour=inputs != "views")
    except ParameterError:
        return None


def _unchanged(w: Windows, data: SlotDataset, family: str | None) -> Windows:
    """Windows of the runs that a family of settings has not changed; all of them without one."""
    if family is None:
        return w
    return w.take(np.isin(w.groups, data.where(f"not ({CHANGED[family]})").runs))


def _named_or_other(w: Windows) -> Windows:
    w.y = grouped(w.y, ALIKE)
    w = w.take(~np.isin(w.y, AS_RENO))
    w.y = np.where(np.isin(w.y, PAPER_CCAS), w.y, "other").astype(object)
    return w


#: What a user may have of VIEW_INPUTS.
OBSERVED = {
    "two taps, both ways": {*VIEW_INPUTS},
    "one tap, both ways": {"in_bytes", "bytes_in_flight"},
    "two taps, one way": {"in_bytes", "cbiq_bytes", "out_bytes", "drops_estimate"},
    "two taps, both ways, no drops": {"in_bytes", "cbiq_bytes", "out_bytes", "bytes_in_flight"},
    "two taps, one way, no drops": {"in_bytes", "cbiq_bytes", "out_bytes"},
    "one tap, one way": {"in_bytes"},
}


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def write(name: str, table: pd.DataFrame) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    with replacing(RESULTS / f"{name}.csv") as tmp:
        table.to_csv(tmp, index=False, float_format="%.4f")


def scores(predict: Callable[[Windows], np.ndarray], work: Work, model: str, inputs: Any = "views",
           lengths: Sequence[int] = TESTED_MS, ccas: Sequence[str] | None = PAPER_CCAS) -> pd.DataFrame:  # fmt: skip
    """F1 on both evaluation sets, all together and by setting."""
    tables = []
    for name, setting in (("paper", "background"), ("hard-test", "aqm")):
        for ms in lengths:
            if ms == 60_000 and name != "paper":
                continue
            w = work.testing(name, ms, inputs)
            columns = [setting]
            if ccas is not None:
                w = w.take(np.isin(w.y, ccas))
            if "bytes_in_flight" in w.inputs or inputs == "views":
                w.table["crossover"] = crossover_bands(w).astype(str)
                columns.append("crossover")
            if w.inputs == VIEW_CHANNELS:  # so many bins are there, a hundred at most
                count = w.X[:, :, VIEW_CHANNELS.index("round_trips.there")].sum(axis=1)
                w.table["round_trips"] = np.select(
                    [count < 1, count < 3, count < 10], ["0", "1-2", "3-9"], "10-"
                )
                columns.append("round_trips")
            predicted = predict(w)
            for by in (None, *columns):
                t = evaluate(predicted, w, by=by)
                t.insert(0, "by", "" if by is None else by)
                t.insert(1, "value", "" if by is None else t.pop(by).astype(str))
                tables.append(t.assign(model=model, set=name, window_ms=ms))
            log(f"{model} {name} {ms} ms: F1 {evaluate(predicted, w, draws=2).f1[0]:.3f} of {len(w)} windows")
    out = pd.concat(tables, ignore_index=True)
    first = ["model", "set", "window_ms", "by", "value"]
    return out[first + [c for c in out if c not in first]]


def train(work: Work, parts: list[Windows], seed: int = 0, epochs: int = 12, **settings: Any) -> Any:
    X = np.concatenate([w.X for w in parts])
    y = np.concatenate([w.y for w in parts])
    groups = np.concatenate([w.groups for w in parts])
    parts.clear()
    log(f"training on {len(X)} windows of {len(set(groups))} runs: {dict(pd.Series(y).value_counts())}")
    at = work.folder / f"checkpoint-{seed}-{len(X)}.pt"
    classifier = identify.CCAClassifier(
        epochs=epochs, seed=seed, checkpoint=at, hide=0.15,
        lose=0.03,  # in settings not trained on more are lost than in those of the validation runs
        **settings,
    )  # fmt: skip
    return classifier.fit(X, y, groups)


def home(work: Work) -> None:
    """Reno, CUBIC and BBR by name, all others as unknown, but for those that do what Reno does."""
    others = [c for c in KERNEL_CCAS if c not in (*PAPER_CCAS, *AS_RENO)]
    model = train(work, work.training([*NAMED, "every"], PAPER_CCAS, others), work.seed)
    data = f"{learnt_from(work)} {tested_on(work)}"
    save(model, home_folder(work), data=data, limits=IDEAL, step="home")
    write_runs(work, home_folder(work), (*NAMED, "every"), ["hard-test"])


def home_folder(work: Work) -> Path:
    return work.folder / "home"


def having_seen_the_world(work: Work) -> None:
    """The same, having seen the world."""
    data = f"{identify.load(home_folder(work)).about['data']} {went_on_with(work)}"
    save(train_on(work), world_folder(work), data=data, limits=LIMITS, step="world")
    home = identify.load(home_folder(work))
    write_runs(work, world_folder(work), (*WORLD, *REHEARSED), ["hard-test"], before=home)


def train_on(work: Work, without: str | None = None) -> Any:
    parts = work.of_the_world(WORLD, REHEARSED, without)
    before = {"pretrained": home_folder(work), "keep": 0.5}
    model = train(work, parts, work.seed, epochs=6, learning_rate=5e-4, **before)
    return model.calibrate(work.calibrating(WORLD, without), OTHER_SHARE)


def world_folder(work: Work) -> Path:
    return work.folder / "world-model"


def cca(work: Work) -> None:
    """The same, having met all congestion controls there."""
    parts = work.of_the_world(EVERYWHERE, REHEARSED_AGAIN)
    model = train(work, parts, work.seed, epochs=6, learning_rate=5e-4, pretrained=world_folder(work))
    model.calibrate(work.calibrating(EVERYWHERE), OTHER_SHARE)
    before = identify.load(world_folder(work))
    save(
        model,
        model_folder(work),
        data=f"{before.about['data']} {went_on_again(work)}",
        limits=f"{LIMITS} A flow that paces like BBR is called BBR.",
        step="cca",
    )
    write_runs(work, model_folder(work), (*EVERYWHERE, *REHEARSED_AGAIN), ["hard-test"], before=before)
    cca_scores(work)


def families(work: Work) -> None:
    """Families of settings that a model has not seen: trained without each, tested on it."""
    from cctoolkit.identify import benchmark
    from cctoolkit.identify.leaderboard import scores as scored

    data = benchmark.build(work.folder / "benchmark", parts=list(CHANGED), runs=BENCHMARK_RUNS, on="uml")
    asked = benchmark.questions(data, seed=1)  # as cct benchmark cca asks
    tables = []
    for family in CHANGED:
        folder = work.folder / f"without-{family}"
        if not folder.is_dir():
            model = train_on(work, without=family)
            save(
                model,
                folder,
                data=f"As the step `world`, without runs that {family} changes.",
                limits=LIMITS,
                step="families",
            )
        here = asked[asked["part"] == family]
        for name, model in (
            ("without it", identify.load(folder)),
            ("with it", identify.load(world_folder(work))),
        ):
            tables.append(scored(benchmark.answers(model, data, here)).assign(model=name))
            log(f"{family}, {name}: {tables[-1].set_index(['taps', 'window_ms']).score.round(3).to_dict()}")
    table = pd.concat(tables, ignore_index=True)
    write("families", table[["model", *(c for c in table if c != "model")]])


def model_folder(work: Work) -> Path:
    """The bundled model is that of seed 0."""
    return MODELS / "cca" if work.seed == 0 else work.folder / f"cca-{work.seed}"


def one_of(model: identify.Model, ccas: Sequence[str] = PAPER_CCAS) -> Callable[[Any], np.ndarray]:
    """What a model says when it may not say "unknown"."""
    columns = [list(model.classes_).index(c) for c in ccas]
    return lambda X: np.array(ccas, object)[model.predict_proba(X)[:, columns].argmax(axis=1)]


def cca_scores(work: Work) -> None:
    """Of the model as it is used: without torch."""
    model = identify.load(model_folder(work))
    table = pd.concat(
        [scores(model.predict, work, "cca"), scores(one_of(model), work, "cca, one of three")],
        ignore_index=True,
    )
    unknown = pd.DataFrame(
        [others(model, work, where, ms) for where in ("every", "world") for ms in (100, 1000, 10_000)]
    )
    seeds(overall(table).assign(seed=work.seed), unknown.assign(seed=work.seed))
    if work.seed == 0:
        write("cca", table)
        write("others", unknown)
        write_card(MODELS / "cca", model.about, overall(table))


def others(model: identify.Model, work: Work, where: str, ms: int) -> dict[str, Any]:
    """Scores among all the kernel's congestion controls, with settings like those of the paper or of the world."""
    if where == "every":
        w = work.testing("every", ms)
        lost = {
            f"known_lost_{name}": float(np.mean(model.predict(work.testing(name, ms)) == UNKNOWN))
            for name in ("paper", "hard-test")
        }
    else:
        w, lost = every_testing(work, "world", ms), {}
        w = w.take(np.isin(w.y, KERNEL_CCAS))
    named = np.isin(w.y, PAPER_CCAS)
    shares = refused(model.predict, w, named, ~named)
    unlike = w.take(~named & ~np.isin(w.y, AS_RENO))
    said = model.predict(unlike)
    moved = unlike.table.assign(cca=unlike.y)
    found = {
        "set": where,
        "window_ms": ms,
        "f1_of_three": evaluate(one_of(model), w.take(named), draws=2).f1[0],
        **lost,
        "rejected_or_right": float(np.mean((said == UNKNOWN) | right(said, moved))),
        # nobody can tell these from a known one
        "known_by_behaviour": float(np.mean(moved[list(AS)].eq(True).any(axis=1))),
        **shares,
    }
    log(f"cca, others: {found}")
    return found


def refused(
    predict: Callable[[Windows], np.ndarray], w: Windows, known: np.ndarray, unknown: np.ndarray
) -> dict[str, Any]:
    """Shares of windows called unknown: of all, of those that differ from Reno, of each congestion control."""
    result = rejection(predict, w.take(known), w.take(unknown))
    by_cca = result.pop("rejected_by_cca")
    unlike = rejection(predict, w.take(known), w.take(unknown & ~np.isin(w.y, AS_RENO)))
    return {**result, "rejected_unlike_reno": unlike["rejected"], **by_cca}


def seeds(table: pd.DataFrame, unknown: pd.DataFrame) -> None:
    """Put the scores of a seed beside those of others."""
    shares = [c for c in unknown if c.startswith(("known_lost", "rejected"))]
    lost = unknown[["set", "window_ms", *shares, "seed"]].assign(model="cca")
    rows = pd.concat([table[["model", "set", "window_ms", "f1", "seed"]], lost], ignore_index=True)
    there = RESULTS / "seeds.csv"
    if there.is_file():
        before = pd.read_csv(there)
        rows = pd.concat([before[~before["seed"].isin(rows["seed"])], rows], ignore_index=True)
    write("seeds", rows.sort_values(["model", "set", "window_ms", "seed"]))


def feature_sets(work: Work) -> None:
    """The bundled model with one tap or two, with acknowledgements or without."""
    says = one_of(identify.load("cca"))
    rows = []
    for name in ("paper", "hard-test"):
        for ms in (100, 1000, 10_000):
            w = work.testing(name, ms, VIEW_INPUTS)
            for what, seen in OBSERVED.items():
                X = w.X.copy()
                _hide_unseen(X, seen)
                rows.append(
                    evaluate(says(X), w).assign(
                        model="cca, one of three", set=name, window_ms=ms, observed=what
                    )
                )
    table = pd.concat(rows, ignore_index=True)
    first = ["model", "observed", "set", "window_ms"]
    write("feature-sets", table[first + [c for c in table if c not in first]])


#: For the cards of the bundled models of ours.
NEAR = (
    "Slots must be 1 ms. Reno and CUBIC differ in what a flow's window does from one RTT to the next; fewer than a few "
    "RTTs show hardly any of it. It is hardest with long RTTs, above CUBIC's crossover with Reno; the Reno-friendly "
    "region below it is easier."
)
LIMITS = (
    "No segmentation offload, no token buckets, no lost acknowledgements, no measured wireless links in training. "
    + NEAR
)
IDEAL = (
    "The network is ideal: no wireless, no offload, no short flows in the background, no lost acknowledgements. "
    + NEAR
)


def save(model: Any, folder: Path, *, data: str, limits: str, step: str) -> None:
    save_models([model], folder, windows_ms=list(LENGTHS), data=data, limits=limits,
                provenance={"made_by": f"data/models/build.py {step}"})  # fmt: skip


def learnt_from(work: Work) -> str:
    runs = {d: len(work.dataset(d)) for d in DATASETS}
    return (
        f"Linux 7.2's own TCP in virtual time (`data/models/build.py`): {runs['paper']} runs of the Dragonfly paper's "
        f"section IV-A, {runs['hard']} with widely drawn settings (20-1000 Mbit/s, 5-100 ms, 0.1-4 BDP, 3-75 flows, "
        f"tail drop, CoDel, RED), and with one to six flows {runs['few']} of Reno, CUBIC and BBR and "
        f"{runs['every']} of all the kernel's congestion controls; and from cctoolkit's simulator "
        f"{runs['sim-paper']} runs of the first kind, {runs['sim-hard']} of the second and {runs['sim-few']} with one "
        "to six flows."
    )


def write_runs(
    work: Work, folder: Path, names: Sequence[str], test: Sequence[str], before: identify.Model | None = None
) -> None:
    """Beside a model, the runs that it was trained on, and those that are for testing."""
    flows = pd.concat([work.dataset(name).flows for name in (*names, *test)], ignore_index=True)
    training = [run for name in names for run in for_training(name, work.dataset(name))]
    testing = [run for name in names for run in work.dataset(name).runs if for_testing(name, run)]
    testing += [run for name in test for run in work.dataset(name).runs]
    contents = {run: key for name in (*names, *test) for run, key in work.dataset(name).contents().items()}
    write_split(folder, flows, training, list(dict.fromkeys(testing)), contents=contents, before=before)


def for_testing(name: str, run: str) -> bool:
    return name in SPLIT and fourth(run)


def for_training(name: str, data: SlotDataset) -> list[str]:
    return [run for run in data.runs if not for_testing(name, run)]


def went_on_with(work: Work) -> str:
    runs = {d: len(work.dataset(d)) for d in WORLD}
    again = ", ".join(f"{n} of `{name}`" for name, n in REHEARSED.items())
    return (
        "Training went on with widely mixed settings (5-500 Mbit/s, 3-250 ms, 0.1-6 BDP; loss, jitter, variable "
        "rates, six AQMs, cross traffic, segments of 536 to 8948 bytes, ECN, receivers that acknowledge every "
        f"segment): on real Linux {runs['world']} runs of Reno, CUBIC and BBR and {runs['world-every']} of all its "
        f"congestion controls and Prague, simulated {runs['sim-world']} and {runs['sim-world-every']}; and with some "
        f"runs from before ({again})."
    )


def went_on_again(work: Work) -> str:
    runs = {d: len(for_training(d, work.dataset(d))) for d in EVERYWHERE}
    real = runs["every-world"] + runs["every-world-more"]
    again = ", ".join(f"{n} of `{name}`" for name, n in REHEARSED_AGAIN.items())
    return (
        f"A last step had {real} real runs of all the kernel's congestion controls in such settings, "
        f"{runs['sim-every-world']} simulated ones, and again runs of the steps before ({runs['world']} of `world`, "
        f"{runs['sim-world']} of `sim-world`, {runs['sim-world-every']} of `sim-world-every`, {again})."
    )


def tested_on(work: Work) -> str:
    return (
        "Split by run, tested on real Linux: every fourth run of section IV-A and of all congestion controls is for "
        f"testing, as are {len(work.dataset('hard-test'))} runs with independently drawn settings, half of them with "
        "PIE or FQ-CoDel, which no training run has."
    )


def every_home(work: Work) -> None:
    """All congestion controls of the kernel and those of the simulator only, a class for each way to behave."""
    model = train(work, work.training(EVERY, None), epochs=14, widths=WIDTHS, alike=BEHAVIOUR)
    runs = {d: len(work.dataset(d)) for d in EVERY}
    data = (
        f"Linux 7.2's own TCP in virtual time (`data/models/build.py`): {runs['every']} runs with one to six flows of "
        f"all the kernel's congestion controls, but for each fourth; and from cctoolkit's simulator "
        f"{runs['sim-every']} of its congestion controls and {runs['sim-hard'] + runs['sim-crowd']} with up to 78 "
        "flows of Reno, CUBIC and BBR."
    )
    save(model, every_home_folder(work), data=data, limits=IDEAL, step="every-home")
    write_runs(work, every_home_folder(work), EVERY, [])


def every_home_folder(work: Work) -> Path:
    return work.folder / "every-home"


def every(work: Work) -> None:
    """The same, having seen the world."""
    parts = []
    for name in (*EVERY_WORLD, *EVERY_AGAIN):
        trained = nameable(work, name, testing=False) if name in EVERY_WORLD else work.dataset(name)
        for ms, per_flow in EVERY_LENGTHS.items():
            w = work.kept(f"{name}-{len(trained)}", trained, ms, "views", per_flow)
            w.X, w.y = w.X.astype(np.float16), grouped(w.y, ALIKE)
            parts.append(w)
    before = {"pretrained": every_home_folder(work), "widths": WIDTHS, "alike": BEHAVIOUR}
    model = train(work, parts, work.seed, epochs=6, learning_rate=6e-4, **before)
    shown = work.nameable("bbr-world").where("cca == 'bbr'")
    model.doubt(
        [work.kept(f"bbr-world-{len(shown)}", shown, ms, VIEW_INPUTS, 3) for ms in EVERY_TESTED_MS],
        LATER_BBRS,
        share=0.02,
    )
    runs = {d: len(work.dataset(d)) for d in (*EVERY_WORLD, *EVERY_AGAIN, "bbr-world", "every-test")}
    data = (
        f"{identify.load(every_home_folder(work)).about['data']} Training went on with widely mixed settings (5-300 "
        "Mbit/s, 5-200 ms, 0.1-6 BDP; loss, jitter, variable rates, six AQMs, cross traffic, segments of 536 to 8948 "
        f"bytes, ECN, receivers that acknowledge every segment): {runs['every-world']} runs on real Linux and "
        f"{runs['sim-every-world']} simulated ones, each fourth of them for testing (`world`); and with "
        f"{runs['every-more']} new real runs like those of the first training. BBRv2 and BBRv3, which only simulated "
        "runs have, need more evidence than BBR: so much that BBR is called either in at most 2 % of its windows in "
        f"{runs['bbr-world']} more real runs. The other tests are on real Linux, with settings like those of the first "
        f"training: {runs['every-test']} runs of all the kernel's congestion controls (`home`) and {HOME_RUNS} of the "
        "benchmark's part `home` (Reno, CUBIC and BBR). BBRv2, "
        "BBRv3 and Prague, which the kernel lacks, are tested on simulated runs."
    )
    limits = (
        f"{LIMITS} It is a model for windows of ten seconds: the results above show how much shorter ones lose. If "
        "only Reno, CUBIC and BBR are in question, `cca` is better for short windows."
    )
    save(model, MODELS / "every-cca", data=data, limits=limits, step="every-cca")
    write_runs(
        work,
        MODELS / "every-cca",
        (*EVERY_WORLD, *EVERY_AGAIN, "bbr-world"),
        ["every-test"],
        before=identify.load(every_home_folder(work)),
    )
    every_scores(work)


def nameable(work: Work, name: str, *, testing: bool) -> SlotDataset:
    """Flows that show their congestion control, of the runs for testing or of the others."""
    data = work.nameable(name)
    return data.where([run for run in data.runs if fourth(run) == testing])


#: Where `every-cca` is tested: datasets of which.
EVERY_TESTED = {"home": ("every-test",), "world": EVERY_WORLD}


def every_testing(work: Work, where: str, ms: float) -> Windows:
    """Real windows, and simulated ones of congestion controls that the kernel lacks."""
    parts = []
    for name in EVERY_TESTED[where]:
        # in settings of the world, not all flows show their congestion control
        data = nameable(work, name, testing=True) if name in EVERY_WORLD else work.dataset(name)
        w = work.kept(f"{name}-test-{len(data)}", data, ms, VIEW_INPUTS, 3)
        w.y = grouped(w.y, ALIKE)
        parts.append(w.take(~np.isin(w.y, KERNEL_CCAS)) if name.startswith("sim-") else w)
    return joined(parts)


def every_scores(work: Work) -> None:
    """Of the model as it is used, and with a name for each; and of Reno, CUBIC and BBR alone."""
    from cctoolkit.identify import benchmark

    model = identify.load(MODELS / "every-cca")
    apart = shutil.copytree(model.folder, work.folder / "every-apart", dirs_exist_ok=True)
    (apart / "model.json").write_text(json.dumps(model.about | {"alike": {}}))
    of_all = scores_of_all(model, work, BEHAVIOUR)
    write("every-cca", pd.concat([of_all, scores_of_all(identify.load(apart), work, {})], ignore_index=True))
    rows = []
    hard_test = benchmark.build(work.folder / "benchmark", parts=["home"], runs=HOME_RUNS, on="uml")["home"]
    for ms in EVERY_TESTED_MS:
        w = work.kept(f"home-{len(hard_test)}", hard_test, ms, VIEW_INPUTS, 3)
        rows.append(
            evaluate(one_of(model), w).assign(
                model="one of reno, cubic and bbr", set="benchmark", window_ms=ms
            )
        )
    named_all = of_all.assign(model=[f"one of {n}" for n in of_all["classes"]])
    columns = ["model", "set", "window_ms", "windows", "runs", "f1", "low", "high", "f1_by_behaviour"]
    write_card(
        MODELS / "every-cca",
        model.about,
        pd.concat([named_all, *rows], ignore_index=True).reindex(columns=columns),
    )


def scores_of_all(model: identify.Model, work: Work, alike: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """The kernel's on real Linux, and all, those of the simulator only on simulated runs."""
    rows = []
    for where in EVERY_TESTED:
        for ms in EVERY_TESTED_MS:
            w = every_testing(work, where, ms)
            p, said = model.predict_proba(w), model.predict(w)
            for ccas in (KERNEL_CCAS, np.unique(w.y)) if where == "world" else (KERNEL_CCAS,):
                these, columns = np.isin(w.y, ccas), np.isin(model.classes_, ccas)
                classes, part = model.classes_[columns], w.take(these)
                forced, free = classes[p[these][:, columns].argmax(axis=1)], said[these]
                part.y = grouped(part.y, alike)
                moved = part.table.assign(cca=part.y)
                by_behaviour = evaluate(np.where(right(forced, moved), part.y, forced), part)
                rows.append(
                    evaluate(forced, part).assign(
                        classes=len(classes), set=where, window_ms=ms,
                        f1_by_behaviour=by_behaviour.f1, low_by_behaviour=by_behaviour.low,
                        high_by_behaviour=by_behaviour.high, unknown=np.mean(free == UNKNOWN),
                        wrong=np.mean((free != UNKNOWN) & (free != part.y)),
                        wrong_by_behaviour=np.mean((free != UNKNOWN) & ~right(free, moved)),
                        bbr_as_later=np.mean(np.isin(free[part.y == "bbr"], ["bbr2", "bbr3"])),
                    )
                )  # fmt: skip
                log(f"{model.name} {where} {ms} ms, {len(classes)} classes: F1 {rows[-1].f1[0]:.3f}")
                confusion(part.y, forced).to_csv(
                    work.folder / f"every-confusion-{where}-{len(classes)}-{ms}.csv"
                )
    table = pd.concat(rows, ignore_index=True).sort_values(["set", "classes", "window_ms"])
    first = [
        "set", "classes", "window_ms", "windows", "runs", "f1", "low", "high", "f1_by_behaviour", "low_by_behaviour",
        "high_by_behaviour", "unknown", "wrong", "wrong_by_behaviour", "bbr_as_later",
    ]  # fmt: skip
    return table[first + [c for c in table if c not in first]]


#: Published networks: feature set, and epochs by window length (as many as an hour of one core allows).
PUBLISHED: dict[str, tuple[str, dict[int, int]]] = {
    "dragonfly": ("cbiq+throughput", {10: 60, 100: 60, 1000: 30, 10_000: 10}),
    "deepcci": ("throughput", {100: 30, 1000: 6}),
}


def dragonfly(work: Work, kinds: Sequence[str] = tuple(PUBLISHED)) -> None:
    """The paper's network and DeePCCI, on windows of the same runs as ours, one window length a network."""
    tables = []
    for kind in kinds:
        inputs, epochs = PUBLISHED[kind]
        fitted = []
        for ms in epochs:
            both = published_training(work, ms, inputs)
            begin = time.process_time()
            at = work.folder / f"{kind}-{ms}.pt"
            model: Any
            if kind == "deepcci":
                model = identify.DeepcciClassifier(epochs=epochs[ms], checkpoint=at)
            else:
                model = identify.DragonflyClassifier(epochs=epochs[ms], checkpoint=at, learning_rate=5e-4)
            model.fit(both)
            log(f"{kind} {ms} ms: {len(both)} windows, {time.process_time() - begin:.0f} CPU seconds")
            tables.append(scores(model.predict, work, kind, inputs, lengths=[ms]))
            if ms > 10:
                fitted.append(model)
        if kind == "dragonfly":
            save_models(
                fitted, MODELS / "dragonfly", results=overall(pd.concat(tables)),
                data="The training runs of the model `cca` with settings `paper` and `hard` (`data/models/build.py`).",
                limits="As published, each window is divided by its maxima, so magnitudes are lost.",
                provenance={"made_by": "data/models/build.py dragonfly"},
            )  # fmt: skip
            write_runs(work, MODELS / "dragonfly", ("paper", "hard"), ["hard-test"])
    table = pd.concat(tables, ignore_index=True)
    there = RESULTS / "dragonfly.csv"
    if there.is_file():  # of networks that were not asked for now
        before = pd.read_csv(there, keep_default_na=False)
        table = pd.concat([before[~before["model"].isin(kinds)], table], ignore_index=True)
    write("dragonfly", table)


def published_training(work: Work, ms: int, inputs: str) -> Windows:
    return joined([work.windows(name, ms, inputs, 2 if ms < 10_000 else 1) for name in ("paper", "hard")])


def overall(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["by"] == ""].drop(columns=["by", "value"])


def left_out(work: Work) -> None:
    """Unknown ones: congestion controls that no training window was of."""
    others = [c for c in KERNEL_CCAS if c not in (*PAPER_CCAS, *AS_RENO, *LEFT_OUT)]
    model = train(work, work.training(["hard", "sim-few", "every"], PAPER_CCAS, others), epochs=7)
    rows = []
    for ms in (100, 1000, 10_000):
        w = work.testing("every", ms)
        shares = refused(model.predict, w, np.isin(w.y, PAPER_CCAS), np.isin(w.y, LEFT_OUT))
        rows.append({"window_ms": ms, **shares})
        log(f"left out: {rows[-1]}")
    write("rejection", pd.DataFrame(rows))


def simulated(work: Work) -> None:
    """Trained on simulations only, tested on real Linux."""
    model = train(work, work.training(["sim-paper", "sim-hard"], PAPER_CCAS), epochs=10)
    write("simulated", scores(model.predict, work, "trained on simulations", lengths=(100, 1000, 10_000)))


#: Windows of each of Nebby's traces by length in ms, and of our runs of settings like theirs.
NEBBY_LENGTHS = {3000: 10, 10_000: 10, 20_000: 6}
BURSTS_LENGTHS = {3000: 3, 10_000: 3, 20_000: 2}
#: The length that boosting learns from, and is asked about.
NEBBY_BOOSTED, BURSTS_BOOSTED = ({10_000: lengths[10_000]} for lengths in (NEBBY_LENGTHS, BURSTS_LENGTHS))
#: Shares of its settings to learn from, how often they are drawn, and trainings whose probabilities are multiplied.
NEBBY_SHARES = (0.25, 0.5, 0.75, 0.9)
DRAWS = 3
TRAININGS = 2
#: How runs of such settings are learnt from, going on from `every-cca`.
BURSTS_LEARNT: dict[str, Any] = {"epochs": 12, "learning_rate": 1e-3}
#: What learns from Nebby's traces: from which model it goes on, and how.
NEBBY_MODELS: dict[str, dict[str, Any]] = {
    "ours": {"epochs": 10, "learning_rate": 5e-4},
    "ours, with runs alike": {"epochs": 5, "learning_rate": 4e-4},
}


def nebby(work: Work) -> None:
    """Nebby's traces: what is learnt from some of their settings, and from runs alike, tested on the others."""
    runs = _of_nebby(work, "bursts", "views", BURSTS_LENGTHS)
    for seed in range(TRAININGS):
        _first(work, runs, seed)
    write("nebby-runs", _runs_alike(work, runs))
    runs.clear()
    for inputs in ("views", VIEW_INPUTS):  # cut once, for all processes
        _of_nebby(work, "nebby", inputs, NEBBY_LENGTHS)
    _of_nebby(work, "bursts", VIEW_INPUTS, BURSTS_BOOSTED)
    jobs = [("ours, with runs alike", 0.0, 0)]
    jobs += [
        (model, share, draw) for share in NEBBY_SHARES for draw in range(DRAWS) for model in NEBBY_MODELS
    ]
    boosted = ("boosting", "boosting, with runs alike")
    jobs += [(model, 0.5, draw) for draw in range(DRAWS) for model in boosted]
    rows = []
    for row in results(_nebby_score, [(work.folder, *job) for job in jobs]):
        log(f"nebby: {row}")
        rows.append(row)
    write("nebby", pd.DataFrame(rows))


def _nebby_score(folder: Path, model: str, share: float, draw: int) -> dict[str, Any]:
    """One model's score on the settings of Nebby that it has not learnt from."""
    from sklearn.metrics import f1_score

    work = Work(folder)
    flows = SlotDataset(folder / "nebby").flows.set_index("run")
    settings = flows.groupby(["rate_mbps", "rtt_ms"]).ngroup()
    order = np.random.default_rng(draw).permutation(settings.nunique())
    learnt = settings.index[settings.isin(order[: round(share * len(order))])].tolist()
    alike = "alike" in model
    if "boosting" in model:
        asked, shown = _apart(_of_nebby(work, "nebby", VIEW_INPUTS, NEBBY_BOOSTED), learnt)
        shown += _of_nebby(work, "bursts", VIEW_INPUTS, BURSTS_BOOSTED) if alike else []
        said = _of_traces(identify.SummaryClassifier(seed=draw).fit(joined(shown)), asked)
    else:
        _, shown = _apart(_of_nebby(work, "nebby", "views", NEBBY_LENGTHS), learnt)
        shown += _of_nebby(work, "bursts", "views", BURSTS_LENGTHS) if alike else []
        asked, _ = _apart(_of_nebby(work, "nebby", VIEW_INPUTS, NEBBY_LENGTHS), learnt)
        likely = []
        for seed in range(TRAININGS):
            before = _first(work, [], seed) if alike else MODELS / "every-cca"
            fitted = _fitted(shown, before, seed, **NEBBY_MODELS[model]) if share else identify.load(before)
            likely.append(_of_traces(fitted, asked))
        said = functools.reduce(pd.DataFrame.add, likely)
    names = said.idxmax(axis=1)
    true = pd.Series(
        grouped(flows.cca[names.index].to_numpy(object), BEHAVIOUR).astype(str), index=names.index
    )
    f1 = f1_score(true, names, average="macro", labels=np.unique(true))
    right = float((true == names).mean())
    return {"model": model, "share": share, "draw": draw, "traces": len(names), "f1": f1, "right": right}


def _of_nebby(
    work: Work, name: str, inputs: str | Sequence[str], lengths: Mapping[int, int]
) -> list[Windows]:
    """Windows of Nebby's traces, or of our runs as one tap would see them."""
    data = SlotDataset(work.folder / "nebby") if name == "nebby" else work.dataset(name)
    found = [work.kept(name, data, ms, inputs, per_flow) for ms, per_flow in lengths.items()]
    for w in found:
        w.y = grouped(w.y, BEHAVIOUR)
        if name != "nebby":
            _as_one_tap(w)
    return found


def _apart(parts: Sequence[Windows], learnt: Sequence[str]) -> tuple[list[Windows], list[Windows]]:
    """The windows that are asked about, and those that are learnt from."""
    shown = [np.isin(w.groups, learnt) for w in parts]
    return (
        [w.take(~here) for w, here in zip(parts, shown, strict=True)],
        [w.take(here) for w, here in zip(parts, shown, strict=True)],
    )


def _as_one_tap(w: Windows) -> None:
    """What a tap before the bottleneck does not see is hidden."""
    w.X = np.array(w.X)
    if w.inputs == VIEW_CHANNELS:
        every, none = np.ones(len(w.X), bool), np.zeros(len(w.X), bool)
        hidden(w.X.transpose(0, 2, 1), every, none, none)
    else:
        _hide_unseen(w.X, OBSERVED["one tap, both ways"])


def _hide_unseen(X: np.ndarray, seen: Collection[str]) -> None:
    """Hide, in place, the inputs of windows as counted that a user does not have."""
    X[:, :, [i for i, column in enumerate(VIEW_INPUTS) if column not in seen]] = np.nan


def _fitted(parts: Sequence[Windows], before: Path, seed: int, **settings: Any) -> Any:
    X, y, groups = (np.concatenate([getattr(w, of) for w in parts]) for of in ("X", "y", "groups"))
    model = identify.CCAClassifier(pretrained=before, widths=WIDTHS, hide=0.0, seed=seed, **settings)
    return model.fit(X, y, groups)


def _first(work: Work, parts: Sequence[Windows], seed: int) -> Path:
    """A model that has learnt from our runs of settings like Nebby's."""
    folder = work.folder / f"bursts-model-{seed}"
    if not folder.is_dir():
        model = _fitted(parts, MODELS / "every-cca", seed, **BURSTS_LEARNT)
        lengths = [float(ms) for ms in BURSTS_LENGTHS]
        save_models(
            [model], folder, windows_ms=lengths, data="Slow links that deliver in bursts.", limits="One tap."
        )
    return folder


def _runs_alike(work: Work, parts: Sequence[Windows]) -> pd.DataFrame:
    """How many of our own runs of such settings get the right name: what there is to be had, by rate and buffer."""
    held_back = [np.array([fourth(str(run)) for run in w.groups]) for w in parts]
    shown = [w.take(~back) for w, back in zip(parts, held_back, strict=True)]
    model = _fitted(shown, MODELS / "every-cca", 0, **BURSTS_LEARNT)
    said = _of_traces(model, [w.take(back) for w, back in zip(parts, held_back, strict=True)])
    flows = work.dataset("bursts").flows.set_index("run").loc[said.index]
    found = flows[["rate_mbps", "rtt_ms", "buffer_bdp", "delayed_ack"]].copy()
    found["cca"] = grouped(flows.cca.to_numpy(object), BEHAVIOUR)
    return found.assign(said=said.idxmax(axis=1)).reset_index(names="run")


def _of_traces(model: Any, parts: Sequence[Windows]) -> pd.DataFrame:
    """Log-probabilities of each trace: the sum over window lengths of the mean over its windows."""
    found = []
    for w in parts:
        likely = np.log(np.maximum(model.predict_proba(w), 1e-9))
        found.append(pd.DataFrame(likely, columns=model.classes_).groupby(np.asarray(w.groups)).mean())
    return functools.reduce(pd.DataFrame.add, found)


def data(work: Work) -> None:
    for name in DATASETS:
        log(repr(work.dataset(name)))


STEPS = {
    "data": data,
    "home": home,
    "world": having_seen_the_world,
    "families": families,
    "cca": cca,
    "cca-scores": cca_scores,
    "feature-sets": feature_sets,
    "every-home": every_home,
    "every-cca": every,
    "every-scores": every_scores,
    "dragonfly": dragonfly,
    "rejection": left_out,
    "sim": simulated,
    "nebby": nebby,
}
#: Steps that are run only if named.
ONLY_NAMED = ("cca-scores", "every-scores", "nebby")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", nargs="*", choices=[*STEPS, []], help="without one, all")
    parser.add_argument(
        "--work", type=Path, default=Path("build/models"), help="datasets, windows, checkpoints"
    )
    parser.add_argument("--seed", type=int, default=0, help="of training; the model of seed 0 is kept")
    given = parser.parse_args()
    for step in given.step or [name for name in STEPS if name not in ONLY_NAMED]:
        log(step)
        STEPS[step](Work(given.work, given.seed))
        note_step("models", f"python data/models/build.py {step} --seed {given.seed}", step)


if __name__ == "__main__":
    sys.exit(main())
