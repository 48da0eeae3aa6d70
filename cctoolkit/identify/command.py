"""``cct dataset``, ``cct train``, ``cct evaluate`` and ``cct classify``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.atomic import check_target
from .._support.options import (
    CommandGroup,
    ModelArgument,
    ModelOption,
    OffloadOption,
    SlotMsOption,
    WorkersOption,
)
from .._support.ranges import LEAST_MS, LEAST_S
from .._support.terminal import is_standard_output, listing, note, say, show
from .._support.version import __version__
from .._support.words import by_name, did_you_mean, format_probability, plural, printable
from ..capture.options import (
    EgressArgument,
    IngressArgument,
    TrustTapsOption,
    Tunnel,
    TunnelOption,
    end_without,
    selecting,
)
from ..errors import ParameterError
from ..schema.output import (
    Format,
    FormatOption,
    OutputFileOption,
    TableOutput,
    command_provenance,
    names_table,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..capture.selection import Selection
    from .baselines import Baseline
    from .bundle import Model
    from .datasets import Datasets

__all__ = ["app", "groups"]

app = CommandGroup()
dataset = CommandGroup(
    no_args_is_help=True, help="Build datasets: slots of labelled flows, to train and test classifiers on."
)
app.add_typer(dataset, name="dataset")
benchmark = CommandGroup(
    no_args_is_help=True, help="Compare ways to name congestion controls on fixed settings."
)
app.add_typer(benchmark, name="benchmark")

_Dataset = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the dataset.")]
_Datasets = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of datasets.")]
_Ccas = Annotated[
    str | None, typer.Option(metavar="CCA,CCA,…", help="Congestion controls, separated by commas.")
]
_WindowMs = Annotated[
    list[float] | None,
    typer.Option("--window-ms", metavar="MS", help="Window length (repeatable).", min=LEAST_MS),
]
_On = Annotated[
    str,
    typer.Option(help="Where to run: simulator, or real Linux with uml (virtual time), netns or mininet."),
]
_PerFlow = Annotated[int, typer.Option(help="Number of windows per flow and length.", min=1)]


@dataset.command()
def build(
    settings: Annotated[
        str,
        typer.Argument(
            metavar="SETTINGS",
            help="paper, physical, cloud, hard, world, every-cca, elsewhere, or a .toml file with a scenario and a "
            "[sweep].",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Folder of the dataset; existing runs are kept."),
    ],
    runs: Annotated[
        int | None, typer.Option(help="Number of runs.", show_default="the settings' own", min=1)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed for drawing the settings.", show_default="1", min=0)
    ] = None,
    on: _On = "simulator",
    offload: OffloadOption = False,
    part: Annotated[
        str | None,
        typer.Option(
            help="Part of `hard`: train, or test (AQMs that train lacks). Family of `elsewhere`: path, aqm, "
            "application, capture, stack, or limited (flows that the bottleneck does not limit).",
            show_default="train; path",
        ),
    ] = None,
    ccas: Annotated[
        str | None,
        typer.Option(
            metavar="CCA,CCA,…",
            help="Congestion controls, separated by commas; also your own: FILE.py, FILE.py:CLASS, linux:NAME.",
        ),
    ] = None,
    special: Annotated[
        int | None,
        typer.Option(
            help="Keep the first flows of each run, this many, and up to nine others at random.",
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

    scenarios, flows = jobs(settings, on=on, runs=runs, seed=seed, part=part, ccas=names_or_files(ccas))
    built = build_dataset(
        scenarios, output, on=on, offload=offload, special=flows if special is None else special, slot_ms=slot_ms,
        workers=workers, progress=sys.stderr.isatty(), keep_captures=captures,
    )  # fmt: skip
    say(f"wrote {plural(len(built), 'run')}, {_counted(built.flows['cca'])}, to {output}")


@dataset.command()
def add(
    dataset: _Dataset,
    ingress: Annotated[
        str,
        typer.Argument(
            metavar="INGRESS",
            help="Capture taken before the queue, or the only one; or a folder of such captures.",
        ),
    ],
    egress: EgressArgument = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with cca and some of src, sport, dst, dport, flow_id, file; or the .json of iperf3 -J.",
            show_default="from the names of files and folders",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.", show_default="the capture's")] = None,
    slot_ms: Annotated[
        float | None,
        typer.Option(help="Slot length of a new dataset, in ms.", show_default="1", min=LEAST_MS),
    ] = None,
    tunnel: TunnelOption = Tunnel.outer,
    trust_taps: TrustTapsOption = False,
) -> None:
    """Add captures, your own or others', with the congestion control of each flow.

    Exports of `tshark -T fields` (.csv, .tsv, .txt, .fields) work, too, such as Nebby's traces. Each file in a folder
    becomes a run, labelled by its name (cubic-3.pcap) or its folder's; files already in the dataset are left out.

    Examples: `cct dataset add mine in.pcap.gz out.pcap.gz --labels labels.csv`, `cct dataset add mine packets.tsv
    --labels iperf3.json`, `cct dataset add theirs Nebby/sensitivity`
    """
    from .own_captures import add_captures, add_folder

    check_target(dataset, folder=True)
    if Path(ingress).is_dir():
        for option, given in (("egress", egress), ("name", name), ("trust_taps", trust_taps)):
            if given:
                raise ParameterError(f"{option}: needs a single capture, but {ingress} is a folder")
        if labels is not None and labels.suffix == ".json":
            raise ParameterError("labels: a folder needs a table with a column file, not iperf3's .json")
        flows = add_folder(
            dataset,
            Path(ingress),
            labels,
            slot_ms=slot_ms,
            tunnel=tunnel.value,
            progress=sys.stderr.isatty(),
        )
        say(f"added {plural(flows['run'].nunique(), 'run')} to {dataset}: {_counted(flows['cca'])}")
        return
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
    rest = f"; {unused} rows of {labels} match no flow" if unused else ""
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
    from .flow_settings import settings_of

    found = SlotDataset(dataset)
    slots, size, made_by, versions = 0, 0, set(), set()
    for run in found.runs:
        path = dataset / "slots" / f"{run}.parquet"
        provenance = read_provenance(path)
        made_by.add(str(provenance.get("made_by", "unknown")))
        versions.add(str(provenance.get("version", "unknown")))
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
            "--others",
            help="Learn to answer unknown from flows with congestion controls other than --ccas (scales).",
        ),
    ] = False,
    alike: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=CCA,CCA", help="Treat these as one class with this name (scales; repeatable)."
        ),
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="MODEL", help="Continue from this model: bundled, or a folder (scales)."
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Number of epochs (for summary: of trees).", show_default="the classifier's own", min=1
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the split, the windows and the training.", min=0)] = 0,
    per_flow: _PerFlow = 4,
    test_share: Annotated[
        float, typer.Option(help="Share of the runs held out to test on, below 1.", min=0.0, max=1.0)
    ] = 0.3,
    split_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,COLUMN,…",
            help="Keep runs with equal values of these settings (see `cct dataset info`) on one side: test on settings "
            "left out of training. Numbers with many values count by quartile. `settings`: equal in all of them.",
            show_default="by run",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto (a GPU if there is one).")] = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save progress here; an interrupted training resumes.")
    ] = None,
) -> None:
    """Train a classifier on datasets, and test it on runs that it was not trained on.

    Without --window-ms, windows are 100 ms, 1 s and 10 s long, where flows last long enough.

    With --compare, the folder gets a model for each classifier, comparison.csv and comparison.html.

    Examples: `cct train mine -o my-model`, `cct train mine -o models --compare`, `cct train hard --split-by aqm -o
    other-aqms`, `cct train paper --classifier dragonfly --window-ms 1000 -o dragonfly`, `cct train mine -o my-model
    --from cca`
    """
    from . import fitting
    from .bundle import learnt_network
    from .datasets import Datasets
    from .fitting import CLASSIFIERS

    chosen_ccas, classes = names(ccas), groups(alike or ())
    if classifier not in CLASSIFIERS:
        raise ParameterError(
            f"classifier: {classifier!r} must be one of {', '.join(CLASSIFIERS)}{did_you_mean(classifier, CLASSIFIERS)}"
        )
    if CLASSIFIERS[classifier].inputs == "views" and inputs not in (None, "views"):
        raise ParameterError(f"inputs: {classifier} uses all inputs; --inputs is for dragonfly and deepcci")
    if CLASSIFIERS[classifier].inputs != "views" and inputs == "views":
        raise ParameterError(f"inputs: views are for scales and summary, not {classifier}")
    alone = {"inputs": inputs, "others": others, "alike": alike, "from": pretrained, "checkpoint": checkpoint}
    for name, given in alone.items():
        if compare and given:
            raise ParameterError(f"{name}: is for one classifier; leave out --compare")
    if others and (classifier != "scales" or not chosen_ccas):
        raise ParameterError("others: needs the classifier scales and --ccas")
    if classes and classifier != "scales":
        raise ParameterError("alike: only scales treats several congestion controls as one class")
    if pretrained is not None:
        if classifier != "scales":
            raise ParameterError(f"from: only scales can continue from a model, not {classifier}")
        _check_extra(torch=True)
        learnt_network(pretrained, "CCAClassifier", None)  # is it one?
    check_target(checkpoint)
    check_target(output, folder=True)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ParameterError(f"output: {output} exists already")
    _check_extra(torch=compare or classifier != "summary")
    data = Datasets(datasets)
    data.check_ccas(chosen_ccas)
    if others and set(data.flows["cca"]) == set(chosen_ccas or ()):
        raise ParameterError(
            f"others: all flows use {', '.join(sorted(chosen_ccas or ()))}; add datasets with other congestion controls"
        )
    for cca in (cca for members in classes.values() for cca in members):
        if cca not in (chosen_ccas or set(data.flows["cca"])):
            there = chosen_ccas or sorted(set(data.flows["cca"]))
            raise ParameterError(f"alike: {cca!r} is not among the classes{did_you_mean(cca, there)}")
    families = None if split_by is None else _columns_to_split_by(split_by)
    training, testing = data.split(test_share, seed, families, None if others else chosen_ccas)
    for part, runs in (("training", training), ("test", testing)):
        used = set(data.flows["cca"][data.flows["run"].isin(runs)])
        if runs and (missing := sorted(set(chosen_ccas or data.flows["cca"]) - used)):
            note(f"no {part} run uses {', '.join(missing)}: try more runs or another --seed")
    order = fitting.Order(data, training, testing, window_ms, per_flow, seed, chosen_ccas, families)
    running: dict[str, Any] = {"epochs": epochs, "device": device, "progress": sys.stderr.isatty()}
    if compare:
        table = fitting.compare(order, output, **running)
        _note_leakage(data, training, testing)
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
        pretrained=pretrained,
        checkpoint=checkpoint,
        **running,
    )
    _note_leakage(data, training, testing, pretrained)
    if scores is not None:
        _show_scores(scores)
    lengths = ", ".join(f"{ms:g}" for ms in model.windows_ms)
    say(f"wrote {output}: {', '.join(model.classes_)} in windows of {lengths} ms")


def _note_leakage(
    data: Datasets, training: Sequence[str], testing: Sequence[str], pretrained: str | None = None
) -> None:
    """Print what makes scores look better than they are."""
    from .bundle import load
    from .flow_settings import settings_of_runs
    from .leakage import note_settings, note_trained_before

    settings = settings_of_runs(data.flows)
    note_settings(
        data, testing, {settings[run] for run in training}, " (--split-by settings keeps them apart)"
    )
    if pretrained is not None:
        note_trained_before(load(pretrained), data, testing)


def _columns_to_split_by(text: str) -> list[str]:
    """Columns separated by commas; none for all settings."""
    columns = [name.strip() for name in text.split(",") if name.strip()]
    if not columns:
        raise ParameterError("split_by: names no setting")
    return [] if columns == ["settings"] else list(dict.fromkeys(columns))


def _check_extra(*, torch: bool) -> None:
    """Check, before the work, that everything needed for training and saving is installed."""
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
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR|FILE",
            help="Folder for everything, or a .csv or .jsonl file for the scores; - is standard output.",
        ),
    ] = None,
) -> None:
    """Evaluate a model on datasets: F1 with 95 % intervals over runs, confusion, reliability, scores by setting.

    Runs that the model was trained on are left out; a note says how many of the others have settings seen in training.

    A folder gets scores, confusion, reliability and settings (.csv; figures .html), and windows.parquet: the answer
    for each window.

    Examples: `cct evaluate my-model mine -o evaluation`, `cct evaluate cca hard-test --window-ms 1000 --by aqm`
    """
    import numpy as np

    from .bundle import load
    from .datasets import Datasets
    from .evaluation import confusion
    from .evaluation_folder import FILES, reliability_of, write_evaluation
    from .leakage import note_settings, trained_settings, unseen_runs
    from .probabilities import UNKNOWN
    from .reliability import calibration_error
    from .scoring import CROSSOVER, score

    one_table = format is not None or is_standard_output(output)
    folder = None if output is None or one_table or names_table(output) else output
    check_target(folder, folder=True)
    if format is Format.parquet or (output is not None and output.suffix == ".parquet"):
        raise ParameterError("format: scores are csv or jsonl, not Parquet")
    chosen_ccas = names(ccas)
    opened = load(model)
    data = Datasets(datasets)
    data.check_ccas(chosen_ccas)
    if by is not None and by not in (*data.flows, CROSSOVER):
        raise ParameterError(f"by: {by!r} must be one of {', '.join(data.flows.columns)}, {CROSSOVER}")
    runs = data.runs if all_runs else unseen_runs(opened, data)
    note_settings(data, [] if all_runs else runs, trained_settings(opened))
    with TableOutput(format, output if folder is None else None, "scores") as out:
        scores, windows_by_ms = score(
            opened, data, runs, list(window_ms or opened.windows_ms), by=by, per_flow=per_flow, seed=seed,
            ccas=chosen_ccas,
        )  # fmt: skip
        if folder is not None:
            write_evaluation(
                folder, opened, scores, windows_by_ms,
                {"command": ["cct", *sys.argv[1:]], "version": __version__, "model": opened.name}
                | {f"sha256 of {name}": digest for name, digest in data.digests().items()},
            )  # fmt: skip
        if out.format is not Format.table:
            out.write(scores)
            return
        _show_scores(scores)
        for ms, windows in windows_by_ms.items():
            predicted = windows.table["said"].to_numpy(object)
            show(f"\n{ms:g} ms, number of windows by true class (rows) and predicted class:")
            show(listing(confusion(windows.y, predicted).reset_index()))
            strange = ~np.isin(windows.y, opened.classes_)
            if strange.any():
                share = np.mean(predicted[strange] == UNKNOWN)
                say(
                    f"classes it was not trained on: {int(strange.sum()):,} windows, "
                    f"{100 * share:.0f} % of them called unknown"
                )
        error = calibration_error(reliability_of(windows_by_ms))
        show("")
        say(f"expected calibration error of the names' probabilities: {error:.2f}")
    if folder is not None:
        say(f"wrote {folder}: {', '.join(FILES)}")


@app.command("add-cca")
def add_cca(
    cca: Annotated[
        str,
        typer.Argument(
            metavar="CCA",
            help="FILE.py or FILE.py:CLASS (a class derived from cctoolkit.cca.Cca), or linux:NAME (`cct testbed build "
            "--with`).",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder for data, model and evaluation; what is there is kept.",
        ),
    ],
    beside: Annotated[
        str, typer.Option(metavar="CCA,CCA,…", help="Congestion controls to distinguish it from.")
    ] = "reno,cubic,bbr",
    settings: Annotated[
        str,
        typer.Option(metavar="SETTINGS", help="As for `cct dataset build`: world, hard, paper, every-cca."),
    ] = "world",
    runs: Annotated[int, typer.Option(help="Number of runs, for training and testing.", min=3)] = 400,
    seed: Annotated[int, typer.Option(help="Seed for the settings, the split and the training.", min=0)] = 1,
    on: _On = "simulator",
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs.", show_default="the classifier's own", min=1)
    ] = None,
    workers: WorkersOption = None,
) -> None:
    """Add a congestion control, end to end: run it, train a classifier that names it, evaluate it, write its card.

    The same as `cct dataset build`, `cct train` and `cct evaluate`, into DIR/data, DIR/model and DIR/evaluation.

    Examples: `cct add-cca aimd.py -o aimd`, `cct add-cca linux:mine -o mine --on uml --runs 1000`
    """
    from .bundle import load
    from .datasets import Datasets
    from .fitting import trained_on

    data, model = output / "data", output / "model"
    check_target(output, folder=True)
    _check_extra(torch=True)
    build(settings, data, runs=runs, seed=seed, on=on, ccas=f"{cca},{beside}", workers=workers)
    if not model.exists():
        train([data], model, seed=seed, epochs=epochs)
    elif load(model).about["provenance"].items() >= trained_on(Datasets([data]), seed).items():
        say(f"kept {model}, trained on these runs")
    else:
        raise ParameterError(
            f"output: {model} was trained on other runs or with another seed; remove it to go on"
        )
    evaluate_command(str(model), [data], output=output / "evaluation")


@benchmark.command("cca")
def benchmark_cca(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Bundled models, or folders made by cct train.", show_default="cca"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the benchmark; existing runs are kept.")
    ] = Path("cca-benchmark"),
    answered: Annotated[
        list[str] | None,
        typer.Option(
            "--answers", metavar="NAME=FILE",
            help="Another classifier's answers: the columns of questions.csv, said and, optionally, probability "
            "(repeatable).",
        ),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Also score boosting, 1-NN-DTW, and an oracle that knows the senders' windows (trained on simulated "
            "runs of world).",
        ),
    ] = False,
    runs: Annotated[int, typer.Option(help="Number of runs of each part.", min=1)] = 24,
    seed: Annotated[int, typer.Option(help="Seed for drawing settings and windows.", min=0)] = 1,
    on: _On = "simulator",
    window_ms: _WindowMs = None,
    per_flow: _PerFlow = 2,
    workers: WorkersOption = None,
) -> None:  # fmt: skip
    """Score models on settings like those of training and on others: paths, AQMs, cross traffic, hosts, limits.

    The same --runs, --seed, --on and --per-flow are the same benchmark. DIR gets questions.csv (the windows), answers,
    scores and reliability (.parquet), reliability.html, and leaderboard.csv, to which each call adds its models.

    Examples: `cct benchmark cca`, `cct benchmark cca cca my-model -o bench --on uml`,
    `cct benchmark cca --answers nebby=theirs.csv`
    """
    from .benchmark import WINDOWS_MS, answers, build, questions, read_answers
    from .bundle import bundled_models, load
    from .classify import DEFAULT_MODEL
    from .datasets import Datasets
    from .leaderboard import write
    from .leakage import seen_runs

    check_target(output, folder=True)
    chosen = map(load, models or ([] if answered else [DEFAULT_MODEL]))
    loaded = {model.folder: model for model in chosen}
    opened = {printable(name): loaded[folder] for name, folder in by_name(list(loaded)).items()}
    files = _names_and_files(answered or ())
    if twice := sorted(files.keys() & {*opened, *bundled_models()}):
        raise ParameterError(f"answers: {twice[0]} is the name of a model, too")
    datasets = build(
        output / "data", runs=runs, seed=seed, on=on, workers=workers, progress=sys.stderr.isatty()
    )  # fmt: skip
    asked = questions(datasets, list(window_ms or WINDOWS_MS), per_flow=per_flow, seed=seed)
    data = Datasets([dataset.path for dataset in datasets.values()])
    for name, model in opened.items():
        known = len(seen_runs(model, data) or ())
        if known:
            note(f"{name} was trained on {known} of the {len(data.runs)} runs: its scores are too high")
    answered_by = {name: read_answers(file, asked) for name, file in files.items()}
    asked_models: dict[str, Model | Baseline] = {**opened}
    if baselines:
        from .baselines import train_baselines

        lengths = sorted(asked["window_ms"].unique())
        trained = train_baselines(
            output / "data/train", lengths, workers=workers, progress=sys.stderr.isatty()
        )
        asked_models |= {baseline.name: baseline for baseline in trained}
    answered_by |= {name: answers(model, datasets, asked) for name, model in asked_models.items()}
    about = {"runs": runs, "seed": seed, "on": on, "per_flow": per_flow}
    scored, board = write(output, asked, answered_by, about)
    for scored_name, table in scored.groupby("model", sort=False):
        show(f"\n{scored_name}, by part, number of taps and window length in ms:")
        _show_scores(table.drop(columns="model"))
    show("\nscores by part (elsewhere: mean over its families with names), best first:")
    show(listing(board.round(2), left=("model",), keep=("model", "taps", "window_ms", "home", "elsewhere")))
    say(f"wrote {output}/questions.csv, answers.parquet, scores.parquet, reliability.html, leaderboard.csv")


def _names_and_files(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, _, file = text.partition("=")
        if not name or not file:
            raise ParameterError(f"answers: {text!r} is not NAME=FILE")
        if found.setdefault(printable(name), file) != file:
            raise ParameterError(f"answers: {name} is given twice")
    return found


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
        typer.Option(metavar="MS", help="Window length.", show_default="the longest that fits", min=LEAST_MS),
    ] = None,
    min_bytes: Annotated[
        int,
        typer.Option(
            metavar="BYTES", help="Leave out flows with less payload than this in each direction.", min=1
        ),
    ] = 1_000_000,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="Use this much of each flow, from its start.", min=LEAST_S)
    ] = 60.0,
    trust_taps: TrustTapsOption = False,
    format: FormatOption = None,
    output: OutputFileOption = None,
) -> None:
    """Name the congestion control of each flow, with a probability, or "unknown".

    One capture shows bytes in flight and throughput; a second one, after the queue, adds the bytes in the queue.

    Examples: `cct classify trace.pcap.gz`, `cct classify in.pcap.gz out.pcap.gz -o ccas.csv`
    """
    from ..analysis.limits import limit_in_words
    from .bundle import load
    from .classify import attribution, classify_flows, default_model

    model = model or default_model()
    if model is None:
        raise ParameterError(
            "model: none is bundled with this version; give one (--model DIR, made by cct train)"
        )
    opened = load(model)
    with TableOutput(format, output, "ccas", command_provenance(ingress)) as out:
        table = classify_flows(
            ingress, egress, model=opened, min_bytes=min_bytes, seconds=seconds,
            window_ms=window_ms, selection=selection, tunnel=tunnel, check_taps=not trust_taps,
        )  # fmt: skip
        if out.format is not Format.table:
            out.write(table)
        elif len(table):
            shown = table.drop(columns=["limited_by", "feature_set", "model"]).assign(
                cca=[
                    limit_in_words(limit) or cca
                    for cca, limit in zip(table["cca"], table["limited_by"], strict=True)
                ],
                probability=table["probability"].map(format_probability, na_action="ignore"),
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
            say(attribution(table, opened))
    if not len(table):
        which = "selected TCP flow" if selection else "TCP flow"
        limit = f"{min_bytes:,} bytes of payload in one direction (--min-bytes lowers the limit)"
        end_without(f"no {which} has {limit}", ingress, tunnel)


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


def names_or_files(text: str | None) -> tuple[str, ...] | None:
    """As :func:`names`, with files of congestion controls (``FILE.py``, ``FILE.py:CLASS``) replaced by their names."""
    from .own_ccas import names_of_file

    parts = [part.strip() for part in (text or "").split(",")]
    return names(",".join(name for part in parts for name in names_of_file(part) or [part]))


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
