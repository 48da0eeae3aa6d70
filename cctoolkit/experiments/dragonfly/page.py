"""The parts of the Dragonfly experiment's summary that are not statements: conditions and tables."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from .scenarios import ANSWERING, FULL_WINDOWS_MS, PLACES, way_to_answer
from .tables import Work, best_recalls, last_epochs

Tables = Mapping[str, pd.DataFrame]

ABOUT = """\
Windows of slots of 1 ms, cut anywhere in flight. No run is on both sides of a split, except in the part that shows what
that does. F1 is macro F1, with 95 % intervals by a bootstrap over trainings and over the runs tested on. Figures 5 and
6 are of the paper's Mininet, figures 2 and 7 to 10 of its physical network (`--network physical`), figure 11 of its
cloud. A claim is judged with runs like those of its figure, or with the data at hand (`--data`)."""
TABLE_II = """\
Table II is about how fast packets are collected, not about naming: `cct live` (docs/live.md) and `make bench` measure
that on the machine at hand."""
QUICK = (
    "The paper has 1500 runs of a minute and 100 epochs (`--full`). With less, scores are lower, and training "
    f"takes larger steps. Its windows go up to {FULL_WINDOWS_MS[-1] / 1000:g} s."
)


def cbiq(work: Work, tables: Tables) -> list[str]:
    """Volatility of a run."""
    return [
        f"Run {work.example.name}. Mean absolute step from slot to slot, over the mean:",
        markdown_table(tables["volatility"]),
    ]


def inputs(work: Work, tables: Tables) -> list[str]:
    """F1 by input."""
    return [markdown_table(tables["inputs"])]


def epochs(work: Work, tables: Tables) -> list[str]:
    """Accuracy over the last epochs."""
    return [
        f"Windows of {work.longest_ms:g} ms; the paper does not give its length. Over the last fifth of the epochs:",
        markdown_table(last_epochs(tables["epochs"])),
    ]


def windows(work: Work, tables: Tables) -> list[str]:
    """F1 by length, and by the setting that varies."""
    blocks = [markdown_table(tables["windows"])]
    if work.setting is not None:
        heading = f"### By {work.setting}, windows of {work.longest_ms:g} ms"
        blocks += [heading, markdown_table(tables[work.setting])]
    if "cloud" in tables:
        blocks += [
            "### In the cloud",
            "The same classifiers, tested on all runs like the paper's in the cloud (section IV-C).",
            markdown_table(tables["cloud"]),
        ]
    return blocks


def sampling(work: Work, tables: Tables) -> list[str]:
    """F1 by packets dropped."""
    return [
        f"Windows of {work.longest_ms:g} ms, no background traffic; trained on all packets, on samples of as many "
        "packets, and on samples as the authors' published program takes them.",
        markdown_table(sampling_scores(tables["sampling"]), labels=1),
    ]


def sampling_scores(table: pd.DataFrame) -> pd.DataFrame:
    """F1 with its interval by dropped packets, with a column for each classifier and what it learnt from."""
    cells = table.assign(
        cell=scores(table),
        name=[f"{name}, from {what}" for name, what in zip(table.classifier, table.learnt_from, strict=True)],
    )
    wide = cells.pivot_table(
        index="dropped_percent", columns="name", values="cell", aggfunc="first", sort=False
    )
    return wide.fillna("").sort_index().rename_axis("dropped, %").rename_axis(columns=None).reset_index()


def splits(work: Work, tables: Tables) -> list[str]:
    """F1 by split, with the published code's inputs, on settings left out, on another dataset."""
    blocks = [
        "### Runs on both sides of a split",
        markdown_table(tables["splits"]),
        "### What the published code gives to its networks",
        f"Dragonfly's network, windows of {work.longest_ms:g} ms, split by run.",
        markdown_table(tables["published"], labels=1),
    ]
    if "settings" in tables:
        blocks += [
            "### Settings never trained on",
            f"Ours, windows of {work.longest_ms:g} ms. Each value of {work.setting} is left out of training "
            "once; `f1_trained` is the same windows' score with training on it.",
            markdown_table(tables["settings"]),
        ]
    if "elsewhere" in tables:
        assert work.other is not None
        blocks += [
            "### Another dataset",
            f"Windows of {work.longest_ms:g} ms; trained on the data above, tested on other runs of it (here) "
            f"and on {work.other.path} (elsewhere), restricted to the congestion controls trained on.",
            markdown_table(tables["elsewhere"]),
        ]
    return blocks


def recall(work: Work, tables: Tables) -> list[str]:
    """Recall of each congestion control, after the last epoch and at its best."""
    return [
        "Dragonfly's F1 and recall after the last epoch, and recall at the best epoch, as the authors published it.",
        markdown_table(recalls(tables["recall"]), digits=2, labels=1),
    ]


def recalls(table: pd.DataFrame) -> pd.DataFrame:
    """F1 and recall after the last epoch, and recall at the best, by window: columns for each congestion control."""
    names = {"f1": "F1", "recall": "recall", "best": "recall at its best epoch"}
    wide = best_recalls(table).pivot_table(index="window_ms", columns="cca", values=list(names))
    columns = {
        (column, cca): f"{cca}: {name}" for cca in sorted(set(table.cca)) for column, name in names.items()
    }
    flat = pd.DataFrame({name: wide[key] for key, name in columns.items()})
    return flat.rename_axis("window, ms").reset_index()


def learning_curve(work: Work, tables: Tables) -> list[str]:
    """F1 by the number of runs learnt from."""
    return [markdown_table(learnt_scores(tables["learning-curve"]), labels=1)]


def learnt_scores(table: pd.DataFrame) -> pd.DataFrame:
    """F1 with its interval by window, with a column for each number of runs learnt from."""
    runs = table.groupby("learnt_share").learnt_runs.max()  # with short windows, some runs have none
    cells = table.assign(cell=scores(table), runs=[f"{runs[share]} runs" for share in table.learnt_share])
    wide = cells.pivot_table(index="window_ms", columns="runs", values="cell", aggfunc="first", sort=False)
    return wide.fillna("").rename_axis("window, ms").rename_axis(columns=None).reset_index()


def baseline(work: Work, tables: Tables) -> list[str]:
    """F1 of DeePCCI by how it answers."""
    return [
        "DeePCCI answers once for a window. What the authors published as DeePCCI answers for each second, one second "
        "late: for the first second, and for windows of up to a second, it sees nothing. Its F1 is over all answers.",
        markdown_table(baseline_scores(tables["baseline"]), labels=1),
    ]


def baseline_scores(table: pd.DataFrame) -> pd.DataFrame:
    """F1 with its interval by window, with a column for each way to answer and to score."""
    named = [way_to_answer(*way) for way in zip(table.answers, table.scored, strict=True)]
    cells = table.assign(cell=scores(table), way=named)
    wide = cells.pivot_table(index="window_ms", columns="way", values="cell", aggfunc="first").fillna("")
    ways = dict.fromkeys(way_to_answer(how, scored) for how in ANSWERING for scored in ("all", "last"))
    wide = wide[[way for way in ways if way in wide]]
    return wide.rename_axis("window, ms").rename_axis(columns=None).reset_index()


def linux(work: Work, tables: Tables) -> list[str]:
    """F1 by where runs were trained on and tested on."""
    return [
        "The same scenarios in the simulator and on real Linux, by where networks were trained and tested. A run that "
        "is tested on is not trained on in any place. With offload, taps see what segmentation offload passes on, as "
        "in Mininet: packets of up to 64 kB. The bundled model `cca` was trained elsewhere.",
        markdown_table(places(tables["linux"]), labels=3),
    ]


def places(table: pd.DataFrame) -> pd.DataFrame:
    """F1 with its interval by window, classifier and where it was trained, and by where it was tested."""
    keys = {"window_ms": "window, ms", "classifier": "classifier", "trained_on": "trained"}
    wide = _by_test(table, list(keys))
    return (
        wide[list(PLACES)].add_prefix("tested: ").reset_index().rename(columns=keys).rename_axis(columns=None)
    )


def scores(table: pd.DataFrame) -> list[str]:
    """F1 with its interval, row by row."""
    return [f"{r.f1:.2f} ({r.low:.2f} to {r.high:.2f})" for r in table.itertuples(index=False)]


def _by_test(table: pd.DataFrame, index: str | list[str]) -> pd.DataFrame:
    """F1 with its interval, with a column for each thing that was tested on."""
    cells = table.assign(cell=scores(table))
    return cells.pivot_table(index=index, columns="tested_on", values="cell", aggfunc="first", sort=False)


def session(work: Work, tables: Tables) -> list[str]:
    """The authors' session: its flows, the bundled models' answers, and networks trained on it."""
    return [
        "Three flows of one run. `most_packets`: in one slot; `share_with_queue`: slots with bytes in the queue; "
        "`share_left`: slots in which a sequence number that left was recorded.",
        markdown_table(tables["session"], labels=1),
        "### What the bundled models say",
        markdown_table(session_answers(tables["session-answers"]), labels=5),
        "### Dragonfly's network, trained on the session itself",
        markdown_table(session_learnt(tables["session-learnt"]), labels=1),
    ]


def session_answers(answers: pd.DataFrame) -> pd.DataFrame:
    """How many windows of each flow the bundled models name right, by length."""
    cells = answers.assign(
        cell=[
            f"{row.right} of {row.windows} (most often {row.most_often})"
            for row in answers.itertuples(index=False)
        ]
    )
    wide = cells.pivot_table(
        index=["model", "window_ms"], columns="cca", values="cell", aggfunc="first", sort=False
    )
    return wide.reset_index().rename(columns={"window_ms": "window, ms"}).rename_axis(columns=None)


def session_learnt(learnt: pd.DataFrame) -> pd.DataFrame:
    """F1 with its interval by inputs and by what was tested on."""
    return _by_test(learnt, "inputs").reset_index().rename_axis(columns=None)
