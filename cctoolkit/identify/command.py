"""``cct dataset``, ``cct train``, ``cct evaluate`` and ``cct classify``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.atomic import check_target
from .._support.options import ModelArgument, ModelOption, SlotMsOption, WorkersOption
from .._support.terminal import end_empty, listing, say, show
from .._support.words import did_you_mean, format_probability, plural
from ..capture.options import (
    EgressArgument,
    IngressArgument,
    TrustTapsOption,
    Tunnel,
    TunnelOption,
    selecting,
)
from ..errors import ParameterError
from ..schema.output import Format, FormatOption, OutputFileOption, TableOutput, command_provenance

if TYPE_CHECKING:
    import pandas as pd

    from ..capture.selection import Selection

__all__ = ["app", "groups"]

app = typer.Typer(rich_markup_mode="markdown")
dataset = typer.Typer(
    no_args_is_help=True, help="Build datasets: slots of labelled flows, to train and test classifiers on."
)
app.add_typer(dataset, name="dataset")

_Dataset = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the dataset.")]
_Datasets = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of datasets.")]
_Ccas = Annotated[
    str | None, typer.Option(metavar="CCA,CCA,…", help="Congestion controls, separated by commas.")
]
_WindowMs = Annotated[
    list[float] | None,
    typer.Option("--window-ms", metavar="MS", help="Window length (repeatable)."),
]
_PerFlow = Annotated[int, typer.Option(help="Number of windows per flow and length.", min=1)]


@dataset.command()
def build(
    settings: Annotated[
        str,
        typer.Argument(
            metavar="SETTINGS",
            help="paper, physical, hard, every-cca, or a .toml file with a scenario and a [sweep].",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder of the dataset; runs that it has are kept."
        ),
    ],
    runs: Annotated[
        int | None, typer.Option(help="Number of runs.", show_default="the settings' own", min=1)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed for drawing the settings.", show_default="1", min=0)
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            help="Where to run: simulator, or real Linux with uml (virtual time), netns or mininet."
        ),
    ] = "simulator",
    part: Annotated[
        str, typer.Option(help="Part of `hard`: train, or test (settings never trained on).")
    ] = "train",
    ccas: _Ccas = None,
    special: Annotated[
        int | None,
        typer.Option(
            help="Number of first flows to keep of each run, besides nine others.",
            show_default="one per CCA",
            min=0,
        ),
    ] = None,
    slot_ms: SlotMsOption = 1.0,
    workers: WorkersOption = None,
    captures: Annotated[bool, typer.Option("--captures", help="Keep the captures, too.")] = False,
) -> None:
    """Run scenarios, and keep the slots of their flows with the congestion control of each.

    An interrupted build resumes.

    Examples: `cct dataset build paper -o paper --runs 300`, `cct dataset build hard --part test -o hard-test --on uml`
    """
    from .dataset import build_dataset
    from .settings import jobs

    scenarios, flows = jobs(settings, on=on, runs=runs, seed=seed, part=part, ccas=names(ccas))
    built = build_dataset(
        scenarios, output, on=on, special=flows if special is None else special, slot_ms=slot_ms, workers=workers,
        progress=sys.stderr.isatty(), keep_captures=captures,
    )  # fmt: skip
    say(f"wrote {len(built):,} runs, {_counted(built.flows['cca'])}, to {output}")


@dataset.command()
def add(
    dataset: _Dataset,
    ingress: IngressArgument,
    egress: EgressArgument = None,
    labels: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV with cca and some of src, sport, dst, dport, flow_id, file; or the .json of iperf3 -J.",
        ),
    ] = ...,  # type: ignore[assignment]  # typer's word for required
    name: Annotated[str | None, typer.Option(help="Name of the run.", show_default="the capture's")] = None,
    slot_ms: Annotated[
        float | None, typer.Option(help="Slot length of a new dataset, in ms.", show_default="1")
    ] = None,
    tunnel: TunnelOption = Tunnel.outer,
    trust_taps: TrustTapsOption = False,
) -> None:
    """Add captures of your own, with a table of the congestion control of each flow.

    Exports of `tshark -T fields` (.csv, .tsv, .txt, .fields) work, too.

    Examples: `cct dataset add mine in.pcap.gz out.pcap.gz --labels labels.csv`, `cct dataset add mine packets.tsv
    --labels iperf3.json`
    """
    from .own_captures import add_captures

    recording, unused = add_captures(
        dataset,
        ingress,
        egress,
        labels,
        name=name,
        slot_ms=slot_ms,
        tunnel=tunnel.value,
        check_taps=not trust_taps,
    )
    rest = f"; {unused} rows of {labels} fit no flow" if unused else ""
    say(f"added {recording.name} to {dataset}: {_counted(recording.flows['cca'])}{rest}")


@dataset.command()
def info(dataset: _Dataset) -> None:
    """Describe a dataset: runs, flows, settings, length, and how it was made.

    Example: `cct dataset info mine`
    """
    import pyarrow.parquet as pq
    from rich.table import Table

    from .._support.parquet import read_provenance, readable
    from .._support.terminal import cell_text
    from .dataset import SlotDataset
    from .datasets import settings_of

    found = SlotDataset(dataset)
    slots, size, made_by, versions = 0, 0, set(), set()
    for run in found.runs:
        path = dataset / "slots" / f"{run}.parquet"
        said = read_provenance(path)
        made_by.add(str(said.get("made_by", "unknown")))
        versions.add(str(said.get("version", "unknown")))
        slots += pq.read_metadata(readable(path)).num_rows
        size += path.stat().st_size
    hours = slots * found.slot_ms / 3.6e6
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, value in (
        ("dataset", dataset),
        ("runs", f"{len(found):,}"),
        ("flows", _counted(found.flows["cca"]).replace(" flows", "").replace(" flow", "")),
        (
            "slots",
            f"{slots:,} of {found.slot_ms:g} ms: {hours:,.3g} hours of flows, "
            f"{3600 * hours / len(found.flows):.3g} s each",
        ),
        ("on disk", f"{size / 1e6:,.1f} MB"),
        ("made by", ", ".join(sorted(made_by))),
        ("cctoolkit", ", ".join(sorted(versions))),
        *((key.replace("_", " "), str(value)) for key, value in found.made_with.items()),
    ):
        facts.add_row(name, cell_text(value))
    show(facts)
    settings = settings_of(found.flows)
    if len(settings):
        show("")
        show(listing(settings))


@app.command()
def train(
    datasets: _Datasets,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the model, new or empty.")
    ],
    classifier: Annotated[
        str,
        typer.Option(
            help="scales (ours, any length), dragonfly or deepcci (the papers', one length each), or summary "
            "(gradient-boosted trees on hand-made features)."
        ),
    ] = "scales",
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Train all of them on the same runs; write a table and a figure, too."
        ),
    ] = False,
    window_ms: _WindowMs = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FEATURE_SET",
            help="Inputs of dragonfly and deepcci: cbiq+throughput, cbiq, throughput or bytes_in_flight+throughput.",
        ),
    ] = None,
    ccas: _Ccas = None,
    others: Annotated[
        bool,
        typer.Option(
            "--others", help="Learn what to call unknown from flows that are none of --ccas (scales)."
        ),
    ] = False,
    alike: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=CCA,CCA", help="Treat these as one class with this name (scales; repeatable)."
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Number of epochs (of summary: trees).", show_default="the classifier's own", min=1
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the split, the windows and the training.", min=0)] = 0,
    per_flow: _PerFlow = 4,
    test_share: Annotated[float, typer.Option(help="Share of the runs held out to test on.")] = 0.3,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto (a GPU if there is one).")] = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save progress here; an interrupted training resumes.")
    ] = None,
) -> None:
    """Train a classifier on datasets, and test it on runs that it was not trained on.

    Without --window-ms, windows are 100 ms, 1 s and 10 s long, where flows last long enough.

    With --compare, the folder gets a model for each classifier, comparison.csv and comparison.html.

    Examples: `cct train mine -o my-model`, `cct train mine -o models --compare`, `cct train paper --classifier
    dragonfly --window-ms 1000 -o dragonfly`
    """
    from . import fitting
    from .datasets import Datasets
    from .fitting import CLASSIFIERS

    chosen_ccas, classes = names(ccas), groups(alike or ())
    if classifier not in CLASSIFIERS:
        raise ParameterError(
            f"classifier: {classifier!r} must be one of {', '.join(CLASSIFIERS)}{did_you_mean(classifier, CLASSIFIERS)}"
        )
    if CLASSIFIERS[classifier].inputs == "views" and inputs not in (None, "views"):
        raise ParameterError(f"inputs: {classifier} takes everything; --inputs is for dragonfly and deepcci")
    if CLASSIFIERS[classifier].inputs != "views" and inputs == "views":
        raise ParameterError(f"inputs: views are for scales and summary, not {classifier}")
    for name, given in (("inputs", inputs), ("others", others), ("alike", alike), ("checkpoint", checkpoint)):
        if compare and given:
            raise ParameterError(f"{name}: is for one classifier; leave out --compare")
    if others and (classifier != "scales" or not chosen_ccas):
        raise ParameterError("others: needs the classifier scales and --ccas")
    if classes and classifier != "scales":
        raise ParameterError("alike: only scales treats several congestion controls as one class")
    check_target(output, folder=True)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ParameterError(f"output: {output} exists already")
    _check_extra(torch=compare or classifier != "summary")
    data = Datasets(datasets)
    data.check_ccas(chosen_ccas)
    for cca in (cca for members in classes.values() for cca in members):
        if cca not in (chosen_ccas or set(data.flows["cca"])):
            there = chosen_ccas or sorted(set(data.flows["cca"]))
            raise ParameterError(f"alike: {cca!r} is not among the classes{did_you_mean(cca, there)}")
    training, testing = data.split(test_share, seed)
    order = fitting.Order(data, training, testing, window_ms, per_flow, seed, chosen_ccas)
    running: dict[str, Any] = {"epochs": epochs, "device": device, "progress": sys.stderr.isatty()}
    if compare:
        table = fitting.compare(order, output, **running)
        _show_scores(table)
        say(f"wrote {output}: {', '.join(CLASSIFIERS)}, comparison.csv, comparison.html")
        return
    model, scores = fitting.train(
        order,
        classifier,
        output,
        inputs=inputs,
        others=others,
        alike=classes,
        checkpoint=checkpoint,
        **running,
    )
    if scores is not None:
        _show_scores(scores)
    lengths = ", ".join(f"{ms:g}" for ms in model.windows_ms)
    say(f"wrote {output}: {', '.join(model.classes_)} in windows of {lengths} ms")


def _check_extra(*, torch: bool) -> None:
    """Before the work: what training and saving need is there."""
    import importlib.util

    wanted = ("torch", "onnx", "onnxscript") if torch else ("onnx",)
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise ParameterError(f"training needs {' and '.join(missing)}: pip install 'cctoolkit[train]'")


@app.command("evaluate")
def evaluate_command(
    model: ModelArgument,
    datasets: _Datasets,
    window_ms: _WindowMs = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="One line for each value of this setting (see `cct dataset info`)."
        ),
    ] = None,
    per_flow: _PerFlow = 4,
    seed: Annotated[int, typer.Option(help="Seed for cutting windows.", min=0)] = 0,
    ccas: _Ccas = None,
    all_runs: Annotated[bool, typer.Option("--all", help="Include the runs it was trained on.")] = False,
    format: FormatOption = None,
    output: OutputFileOption = None,
) -> None:
    """Evaluate a model on datasets: F1 with 95 % intervals over runs, and the confusion matrix.

    Runs that the model was trained on are left out.

    Examples: `cct evaluate my-model mine`, `cct evaluate cca hard-test --window-ms 1000 --by aqm`
    """
    import numpy as np

    from .bundle import load
    from .datasets import Datasets
    from .evaluation import confusion
    from .probabilities import UNKNOWN
    from .scoring import CROSSOVER, score, unseen_runs

    if format is Format.parquet or (output is not None and output.suffix == ".parquet"):
        raise ParameterError("format: scores are csv or jsonl, not Parquet")
    chosen_ccas = names(ccas)
    speaker = load(model)
    data = Datasets(datasets)
    data.check_ccas(chosen_ccas)
    if by is not None and by not in (*data.flows, CROSSOVER):
        raise ParameterError(f"by: {by!r} must be one of {', '.join(data.flows.columns)}, {CROSSOVER}")
    runs = data.runs if all_runs else unseen_runs(speaker, data)
    with TableOutput(format, output, "scores") as out:
        scores, said = score(
            speaker, data, runs, list(window_ms or speaker.windows_ms), by=by, per_flow=per_flow, seed=seed,
            ccas=chosen_ccas,
        )  # fmt: skip
        if out.format is not Format.table:
            out.write(scores)
            return
        _show_scores(scores)
        for ms, (windows, predicted) in said.items():
            show(f"\n{ms:g} ms, number of windows by true class (rows) and predicted class:")
            show(listing(confusion(windows.y, predicted).reset_index()))
            strange = ~np.isin(windows.y, speaker.classes_)
            if strange.any():
                share = np.mean(predicted[strange] == UNKNOWN)
                say(
                    f"classes it was not trained on: {int(strange.sum()):,} windows, "
                    f"{100 * share:.0f} % of them called unknown"
                )


def _show_scores(scores: pd.DataFrame) -> None:
    shown = scores.rename(columns=lambda name: str(name).removeprefix("f1_"))
    keep = ("classifier", "macro F1", "low", "high", "windows")
    show(listing(shown.rename(columns={"f1": "macro F1"}), left=("classifier", "inputs"), keep=keep))


@app.command("classify")
@selecting
def classify_command(
    ingress: IngressArgument,
    selection: Selection,
    tunnel: str,
    egress: EgressArgument = None,
    model: ModelOption = None,
    window_ms: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Window length.", show_default="the longest that fits"),
    ] = None,
    min_bytes: Annotated[
        int,
        typer.Option(metavar="BYTES", help="Leave out flows with less payload in both directions.", min=1),
    ] = 1_000_000,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="Use this much of each flow, from its start.")
    ] = 60.0,
    trust_taps: TrustTapsOption = False,
    format: FormatOption = None,
    output: OutputFileOption = None,
) -> None:
    """Name the congestion control of each flow, with a probability, or "unknown".

    One capture shows bytes in flight and throughput; a second one, after the queue, adds the bytes in the queue.

    Examples: `cct classify trace.pcap.gz`, `cct classify in.pcap.gz out.pcap.gz -o ccas.csv`
    """
    from .bundle import load
    from .classify import attribution, classify_flows, default_model

    model = model or default_model()
    if model is None:
        raise ParameterError(
            "model: none is bundled with this version; give one (--model DIR, made by cct train)"
        )
    speaker = load(model)
    with TableOutput(format, output, "ccas", command_provenance(ingress)) as out:
        table = classify_flows(
            ingress, egress, model=speaker, min_bytes=min_bytes, seconds=seconds,
            window_ms=window_ms, selection=selection, tunnel=tunnel, check_taps=not trust_taps,
        )  # fmt: skip
        if out.format is not Format.table:
            out.write(table)
        elif len(table):
            shown = table.drop(columns=["feature_set", "model"]).assign(
                probability=table["probability"].map(format_probability)
            )
            shown = shown.rename(columns={"flow_id": "flow"})
            show(
                listing(
                    shown,
                    left=("src", "dst", "cca"),
                    keep=("flow", "src", "sport", "dst", "dport", "cca", "probability"),
                    more="-o FILE",
                )
            )
            say(attribution(table, speaker))
    if not len(table):
        end_empty(
            f"{ingress}: no {'selected ' if selection else ''}TCP flow has {min_bytes:,} bytes of payload in one "
            "direction (--min-bytes lowers the limit)"
        )


def names(text: str | None) -> tuple[str, ...] | None:
    """Names separated by commas; None without any.

    Raises
    ------
    ParameterError
        A name is given twice.
    """
    found = tuple(name.strip().lower() for name in (text or "").split(",") if name.strip())
    twice = [name for name in found if found.count(name) > 1]
    if twice:
        raise ParameterError(f"ccas: {twice[0]} is given twice")
    return found or None


def groups(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """``NAME=CCA,CCA`` as the congestion controls of each name.

    Raises
    ------
    ParameterError
        A text has no equals sign or nothing on one side of it, or a name is given twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, rest = (part.strip().lower() for part in text.partition("="))
        members = names(rest)
        if not name or members is None:
            raise ParameterError(f"alike: {text!r} is not NAME=CCA,CCA")
        if name in found:
            raise ParameterError(f"alike: {name} is given twice")
        found[name] = members
    names(",".join(cca for members in found.values() for cca in members))  # none in two classes
    return found


def _counted(ccas: pd.Series) -> str:
    counts = ccas.value_counts()
    return f"{plural(int(counts.sum()), 'flow')} ({', '.join(f'{n:,} {cca}' for cca, n in counts.items())})"
