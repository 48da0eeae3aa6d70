"""``cct dataset``, ``cct train``, ``cct evaluate``, ``cct classify``: options in, folders, tables and lines out."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import __version__
from .._atomic import replacing
from .._output import Format, TableOutput
from .._terminal import listing, show
from ..capture.model import Capture
from ..capture.reader import read_capture
from ..capture.selection import Selection
from ..errors import ParameterError, SchemaError
from ..findings import format_probability
from ..scenario import Scenario, read_sweep
from ..testbed.doctor import BACKENDS
from .bundle import Model, bundled_models, load, save_models
from .card import alike_in_words, write_card
from .dataset import (
    Recording,
    SlotDataset,
    build_dataset,
    index_dataset,
    provenance,
    record,
    save_recording,
)
from .inputs import VIEW_INPUTS
from .probabilities import UNKNOWN, grouped
from .settings import KERNEL_CCAS, PAPER_CCAS, SETTINGS, SIMULATOR_CCAS
from .windows import ARRIVALS, FEATURE_SETS, Windows, crossover_bands, cut_windows, joined, window_slots

__all__ = ["add", "build", "classify", "evaluate", "groups", "info", "name_flows", "readable_twice", "train"]

_Jobs = list[tuple[dict[str, Any], Scenario]]
#: Columns of a dataset's flows that are no settings.
_NO_SETTING = {
    "run", "flow_id", "cca", "bytes_acked", "retransmits", "src", "dst", "sport", "dport",
    "kind", "data_from", "start_ns", "stop_ns", "min_rtt_us",
}  # fmt: skip
#: What scores may be shown by though it is of windows, not of flows.
_CROSSOVER = "crossover"


def names(text: str | None) -> tuple[str, ...] | None:
    """What commas stand between; None without anything.

    Raises
    ------
    ParameterError
        A name is given twice.
    """
    found = tuple(name.strip().lower() for name in (text or "").split(",") if name.strip())
    twice = [name for name in found if found.count(name) > 1]
    if twice:
        raise ParameterError(f"ccas: {twice[0]} is there twice")
    return found or None


def groups(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What stands behind an equals sign, by what stands before it.

    Raises
    ------
    ParameterError
        No equals sign, nothing on one side of it, or a name is given twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, rest = (part.strip().lower() for part in text.partition("="))
        members = names(rest)
        if not name or members is None:
            raise ParameterError(f"alike: {text!r} is not NAME=CCA,CCA")
        if name in found:
            raise ParameterError(f"alike: {name} is there twice")
        found[name] = members
    names(",".join(cca for members in found.values() for cca in members))  # none in two classes
    return found


# ---- datasets --------------------------------------------------------------------------------------------------------


def build(
    settings: str,
    output: Path,
    *,
    runs: int | None = None,
    seed: int | None = None,
    on: str = "simulator",
    part: str = "train",
    ccas: Sequence[str] | None = None,
    special: int | None = None,
    slot_ms: float = 1.0,
    workers: int | None = None,
    keep_captures: bool = False,
) -> None:
    """Run what settings say and keep the slots; what is in `output` already is not run again.

    Parameters
    ----------
    settings : str
        A name in :data:`~.settings.SETTINGS`, or a TOML file with a scenario and, as a rule, a ``[sweep]``.
    output : Path
    runs, seed, part, ccas
        Of named settings; a file has all that in itself. Without `ccas` those of the paper, or with
        ``every-cca`` all there are.
    on, special, slot_ms, workers, keep_captures
        As for :func:`~.dataset.build_dataset`; without `special`, one flow of each congestion control, and all
        flows of a file's scenarios.

    Raises
    ------
    ParameterError, TestbedUnavailableError, CCToolkitError
        What is wrong, and where.
    """
    if on not in ("simulator", *BACKENDS):
        raise ParameterError(f"on: {on!r} is none of simulator, {', '.join(BACKENDS)}")
    if settings in SETTINGS:
        jobs, flows = _drawn(settings, runs, seed, on, part, ccas)
    elif Path(settings).suffix == ".toml":
        for name, value in (("runs", runs), ("seed", seed), ("ccas", ccas)):
            if value is not None:
                raise ParameterError(f"{name}: {settings} says that itself (a [sweep] may list seeds)")
        jobs = _named_jobs(Path(settings))
        flows = max(sum(flow.count for flow in scenario.flows) for _, scenario in jobs)
    else:
        raise ParameterError(
            f"settings: {settings!r} is neither a .toml file nor one of {', '.join(SETTINGS)}"
        )
    dataset = build_dataset(
        jobs, output, on=on, special=flows if special is None else special, slot_ms=slot_ms, workers=workers,
        progress=sys.stderr.isatty(), keep_captures=keep_captures,
    )  # fmt: skip
    print(f"wrote {len(dataset):,} runs, {_counted(dataset.flows['cca'])}, to {output}")


def _drawn(
    settings: str, runs: int | None, seed: int | None, on: str, part: str, ccas: Sequence[str] | None
) -> tuple[_Jobs, int]:
    """Scenarios of named settings, and how many of each one's flows are special."""
    there = SIMULATOR_CCAS if on == "simulator" else KERNEL_CCAS
    chosen = tuple(ccas or (there if settings == "every-cca" else PAPER_CCAS))
    for cca in chosen:
        if cca not in there:
            what = "the simulator" if on == "simulator" else "the testbed's kernel"
            raise ParameterError(f"ccas: {what} has no {cca!r}; there are {', '.join(there)}")
    options: dict[str, Any] = {"ccas": chosen}
    options |= {name: value for name, value in (("runs", runs), ("seed", seed)) if value is not None}
    if settings == "hard":
        options["part"] = part
    elif part != "train":
        raise ParameterError(f"part: {settings} has no part {part!r}; only hard has")
    return list(SETTINGS[settings](**options)), 1 if settings == "every-cca" else len(chosen)


def _named_jobs(path: Path) -> _Jobs:
    """A file's scenarios, each with a name of its own."""
    jobs = read_sweep(path)
    return [
        (changes, scenario.replace({"name": f"{scenario.name or path.stem}-{i}"}))
        for i, (changes, scenario) in enumerate(jobs)
    ]


def add(
    output: Path,
    ingress: str,
    egress: str | None,
    labels: Path,
    *,
    name: str | None = None,
    slot_ms: float | None = None,
    tunnel: str = "outer",
    check_taps: bool = True,
) -> None:
    """One's own captures as a run of a dataset, which is made where there is none.

    Parameters
    ----------
    output : Path
    ingress, egress : str
        One tap or two.
    labels : Path
        What :func:`~.readers.read_labels` reads.
    name : str, optional
        Of the run; without it the capture's.
    slot_ms : float, optional
        Of a new dataset (1 ms); one that is there has its own.
    tunnel : str
        As for :func:`cctoolkit.read_capture`.
    check_taps : bool
        As for :func:`cctoolkit.compute_slots`.

    Raises
    ------
    ParameterError, SchemaError, CaptureFormatError
        What is wrong, and where.
    """
    from .readers import label_flows

    before = SlotDataset(output) if (output / "dataset.json").is_file() else None
    if before is not None and slot_ms not in (None, before.slot_ms):
        raise ParameterError(f"slot_ms: {output} has slots of {before.slot_ms:g} ms")
    name = name or _stem(ingress)
    if Path(name).name != name:
        raise ParameterError(f"name: {name!r} is no name of a run (a word)")
    if before is not None and name in before.runs:
        raise ParameterError(f"name: {output} has a run {name}; say another --name")
    before_queue = read_capture(ingress, tunnel=tunnel)  # type: ignore[arg-type]
    known = label_flows(before_queue, labels)
    unused = known.attrs["unused"]
    known = _with_numbers(
        known.dropna(subset="cca").drop(columns=["protocol", "line"], errors="ignore"), before
    )
    recording = record(
        before_queue,
        None if egress is None else read_capture(egress, tunnel=tunnel),  # type: ignore[arg-type]
        known,
        name=name,
        slot_ms=before.slot_ms if before is not None else slot_ms or 1.0,
        check_taps=check_taps,
    )
    save_recording(
        output, recording, {"made_by": "captures", "captures": [c for c in (ingress, egress) if c]}
    )
    about = {} if before is None else before.about
    kept = {key: value for key, value in about.items() if key not in ("version", "cctoolkit", "slot_ms")}
    index_dataset(output, kept, recording.slot_ms)
    told = f"; {unused} rows of {labels} fit no flow" if unused else ""
    print(f"added {name} to {output}: {_counted(recording.flows['cca'])}{told}")


def _stem(capture: str) -> str:
    """A capture's name without its suffixes."""
    stem = Path(capture).name.partition(".")[0]
    if not stem or stem == "-":
        raise ParameterError("name: a capture from standard input needs one (--name)")
    return stem


def _with_numbers(flows: pd.DataFrame, before: SlotDataset | None) -> pd.DataFrame:
    """Columns that hold numbers as numbers; the dataset's columns are what they were."""
    flows = flows.copy()
    for column in flows.columns.difference(["flow_id", "cca", "src", "dst", "sport", "dport"]):
        values = pd.to_numeric(flows[column], errors="coerce")
        if values.notna().sum() == flows[column].notna().sum():
            flows[column] = values
        elif (
            before is not None
            and column in before.flows
            and pd.api.types.is_numeric_dtype(before.flows[column])
        ):
            raise ParameterError(f"labels: column {column!r} is text, the dataset's is of numbers")
    return flows


def info(folder: Path) -> None:
    """What is in a dataset: runs, flows, settings, length, how it was made.

    Raises
    ------
    SchemaError
        There is no dataset.
    """
    import pyarrow.parquet as pq
    from rich.table import Table

    dataset = SlotDataset(folder)
    flows = dataset.flows
    slots, size, made_by, versions = 0, 0, set(), set()
    for run in dataset.runs:
        path = folder / "slots" / f"{run}.parquet"
        said = provenance(path)
        made_by.add(str(said.get("made_by", "not said")))
        versions.add(str(said.get("version", "not said")))
        slots += pq.read_metadata(path).num_rows
        size += path.stat().st_size
    hours = slots * dataset.slot_ms / 3.6e6
    facts = Table(box=None, show_header=False, pad_edge=False)
    about = {
        key: value for key, value in dataset.about.items() if key not in ("version", "cctoolkit", "slot_ms")
    }
    rows: list[tuple[str, str]] = [
        ("dataset", str(folder)),
        ("runs", f"{len(dataset):,}"),
        ("flows", _counted(flows["cca"]).replace(" flows", "").replace(" flow", "")),
        (
            "slots",
            f"{slots:,} of {dataset.slot_ms:g} ms: {hours:,.3g} hours of flows, {3600 * hours / len(flows):.3g} s each",
        ),
        ("on disk", f"{size / 1e6:,.1f} MB"),
        ("made by", ", ".join(sorted(made_by))),
        ("cctoolkit", ", ".join(sorted(versions))),
        *((key.replace("_", " "), str(value)) for key, value in about.items()),
    ]
    for row in rows:
        facts.add_row(*row)
    show(facts)
    settings = _settings(flows)
    if settings:
        show("")
        show(listing(pd.DataFrame(settings, columns=["setting", "values", "from", "to", "median"])))


def _settings(flows: pd.DataFrame) -> list[tuple[str, int, Any, Any, Any]]:
    """Of each column that tells in which setting a flow was: name, values, least, greatest, median."""
    return [
        (name, *_range(flows[name]))
        for name in flows.columns
        if name not in _NO_SETTING and flows[name].notna().any()
    ]


def _range(column: pd.Series) -> tuple[int, Any, Any, Any]:
    """How many values, the least, the greatest, and the middle of numbers."""
    known = column.dropna()
    if not pd.api.types.is_numeric_dtype(known):
        known = known.astype(str)
        return known.nunique(), known.min(), known.max(), None
    return known.nunique(), f"{known.min():.6g}", f"{known.max():.6g}", f"{known.median():.6g}"


def _flows(n: int) -> str:
    return f"{n:,} flow{'s' if n != 1 else ''}"


def _counted(ccas: pd.Series) -> str:
    counts = ccas.value_counts()
    return f"{_flows(counts.sum())} ({', '.join(f'{n:,} {cca}' for cca, n in counts.items())})"


# ---- models ----------------------------------------------------------------------------------------------------------

#: By the name that the command line has: class, and the inputs it is given where none are named.
CLASSIFIERS = {
    "scales": ("CCAClassifier", "views"),
    "dragonfly": ("DragonflyClassifier", "cbiq+throughput"),
    "deepcci": ("DeepcciClassifier", "throughput"),
}
#: Where none are given, those of these for which the flows are long enough.
WINDOWS_MS = (100.0, 1000.0, 10000.0)
_SPLIT = "split.csv"
_RUNS_AT_ONCE = 10


class _Data:
    """Several datasets as one; runs of one name are taken for one run."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.parts = [SlotDataset(folder) for folder in folders]
        lengths = {part.slot_ms for part in self.parts}
        if len(lengths) > 1:
            raise ParameterError(f"datasets: slots of {' and '.join(f'{ms:g}' for ms in sorted(lengths))} ms")
        self.slot_ms = lengths.pop()
        self.runs = sorted({run for part in self.parts for run in part.runs})
        self.flows = pd.concat([part.flows for part in self.parts], ignore_index=True)

    def recordings(self, runs: Sequence[str], columns: Sequence[str]) -> Iterator[Recording]:
        for part in self.parts:
            some = part.where(runs)
            if len(some.flows):
                yield from some.recordings(columns)

    def cut(self, runs: Sequence[str], window_ms: Any, inputs: Any, **options: Any) -> Windows:
        columns = VIEW_INPUTS if inputs == "views" else (inputs,) if isinstance(inputs, str) else inputs
        columns = FEATURE_SETS.get(columns[0], columns)
        return cut_windows(self.recordings(runs, (*columns, *ARRIVALS)), window_ms, inputs, **options)

    def split(self, test_share: float, seed: int) -> tuple[list[str], list[str]]:
        """Names of the runs to train on, and of those to test on."""
        if not 0 <= test_share < 1:
            raise ParameterError(f"test_share: {test_share:g} is not a share from 0 up to 1")
        held_out = min(int(np.ceil(test_share * len(self.runs))), len(self.runs) - 1)
        order = np.random.default_rng(seed).permutation(self.runs)
        return sorted(order[held_out:].tolist()), sorted(order[:held_out].tolist())


def train(
    folders: Sequence[Path],
    output: Path,
    *,
    classifier: str = "scales",
    windows_ms: Sequence[float] | None = None,
    inputs: str | None = None,
    ccas: Sequence[str] | None = None,
    others: bool = False,
    alike: Mapping[str, Sequence[str]] | None = None,
    epochs: int | None = None,
    seed: int = 0,
    per_flow: int = 4,
    test_share: float = 0.3,
    device: str = "auto",
    checkpoint: Path | None = None,
) -> None:
    """Train on datasets, score on runs held out, write the model, its card and which runs were which.

    Parameters
    ----------
    folders : sequence of Path
        Datasets.
    output : Path
        A new folder.
    classifier : str
        A name in :data:`CLASSIFIERS`.
    windows_ms : sequence of float, optional
        Without it :data:`WINDOWS_MS`, as far as flows are long enough.
    inputs : str, optional
        A name in :data:`~.windows.FEATURE_SETS`; ``scales`` has its own.
    ccas : sequence of str, optional
        To tell apart; without it all there are.
    others : bool
        Of `scales`: flows of other congestion controls teach what is to be called unknown.
    alike : mapping of str to sequence of str, optional
        Of `scales`: congestion controls that are one answer, by its name.
    epochs, seed, device, checkpoint
        As for the classifiers; `seed` also of the split and of the windows.
    per_flow : int
        Windows of each flow and length.
    test_share : float
        Of the runs.

    Raises
    ------
    ParameterError, SchemaError
        What is wrong, and where.
    """
    if classifier == "summary":
        raise ParameterError(
            "classifier: summary is a baseline without a saved form; "
            "fit cctoolkit.identify.SummaryClassifier on windows in Python"
        )
    if classifier not in CLASSIFIERS:
        raise ParameterError(f"classifier: {classifier!r} is none of {', '.join(CLASSIFIERS)}")
    if classifier == "scales" and inputs not in (None, "views"):
        raise ParameterError(
            "inputs: scales takes all that was observed; name inputs for dragonfly and deepcci"
        )
    if classifier != "scales" and inputs == "views":
        raise ParameterError(f"inputs: views are for scales, {classifier} takes what was counted")
    if others and (classifier != "scales" or not ccas):
        raise ParameterError("others: scales alone learns what is unknown, as all but --ccas")
    if alike and classifier != "scales":
        raise ParameterError("alike: scales alone makes one class of several congestion controls")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ParameterError(f"output: {output} is there already")
    _check_extra()
    data = _Data(folders)
    _check_ccas(data, ccas)
    for cca in (cca for members in (alike or {}).values() for cca in members):
        if cca not in (ccas or set(data.flows["cca"])):
            raise ParameterError(f"alike: {cca!r} is not among what is told apart")
    training, testing = data.split(test_share, seed)
    kind, usual = CLASSIFIERS[classifier]
    chosen = inputs or usual
    options = {"per_flow": per_flow, "seed": seed, "ccas": None if others else ccas}
    lengths, windows = _training_windows(data, training, windows_ms, chosen, options)
    if others:
        for part in windows:
            part.y[~np.isin(part.y, list(ccas or ()))] = "other"
    settings: dict[str, Any] = {"seed": seed, "device": device, "progress": sys.stderr.isatty()}
    settings |= {} if epochs is None else {"epochs": epochs}
    settings |= {"alike": alike} if alike else {}
    fitted = []
    for part in windows:
        where = checkpoint
        if checkpoint is not None and len(windows) > 1:
            where = checkpoint.with_name(f"{checkpoint.stem}-{part.window_ms:g}ms{checkpoint.suffix}")
        fitted.append(
            getattr(importlib.import_module(f"{__package__}.classifiers"), kind)(
                **settings, checkpoint=where
            ).fit(part)
        )
    n = sum(len(part) for part in windows)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # its exporter tells of packages nobody asked for
    save_models(
        fitted, output, windows_ms=lengths, limits=_limits(data, training, fitted[0]),
        data=f"{n:,} windows of {len(training):,} runs of {', '.join(part.path.name for part in data.parts)}; "
        f"{len(testing):,} other runs were held out to test on (split by run, seed {seed}).",
        provenance={"command": " ".join(["cct", *sys.argv[1:]]), "version": __version__, "seed": seed}
        | {f"sha256 of {part.path.name}": _digest(part) for part in data.parts},
    )  # fmt: skip
    parts = ["train"] * len(training) + ["test"] * len(testing)
    with replacing(output / _SPLIT) as tmp:
        pd.DataFrame({"run": [*training, *testing], "part": parts}).to_csv(tmp, index=False)
    if testing:
        model = load(output)
        scores = _scores(model, data, testing, lengths, None, per_flow, seed, None if others else ccas)[0]
        write_card(output, model.about, scores)
        _show_scores(scores)
    print(f"wrote {output}: {', '.join(fitted[0].classes_)} in windows of {_told(lengths)} ms")


def _check_extra() -> None:
    """Before the work: what training and saving need is there."""
    missing = [name for name in ("torch", "onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ParameterError(f"training needs {' and '.join(missing)}: pip install 'cctoolkit[train]'")


def _check_ccas(data: _Data, ccas: Sequence[str] | None) -> None:
    there = sorted(set(data.flows["cca"]))
    for cca in ccas or ():
        if cca not in there:
            raise ParameterError(f"ccas: no flow is {cca!r}; there are {', '.join(there)}")


def _training_windows(
    data: _Data, runs: Sequence[str], windows_ms: Sequence[float] | None, inputs: str, options: dict[str, Any]
) -> tuple[list[float], list[Windows]]:
    """Lengths, and windows of each; all in one where they are views."""
    lengths = list(windows_ms or WINDOWS_MS)
    cut = {}
    for ms in lengths:
        window_slots(ms, data.slot_ms)
        try:
            cut[ms] = data.cut(runs, ms, inputs, **options)
        except ParameterError:
            if windows_ms is not None or (ms == lengths[-1] and not cut):
                raise
    lengths = sorted(cut)
    if inputs != "views":
        return lengths, [cut[ms] for ms in lengths]
    return lengths, [joined([cut[ms] for ms in lengths])]  # views are of one size


def _limits(data: _Data, runs: Sequence[str], classifier: Any) -> str:
    """In which settings it was trained, and what becomes of anything else."""
    flows = data.flows[data.flows["run"].isin(list(runs))]
    ranges = [f"{name} {values[1]} to {values[2]}" for name, *values in _settings(flows) if values[0] > 1]
    seen = (
        f"Trained in these settings: {'; '.join(ranges)}. " if ranges else "All runs had the same settings. "
    )
    rest = (
        "What it was not trained on is called unknown only where it looks like none of its classes."
        if hasattr(classifier, "least_")
        else "Every flow is given one of its classes, also one that uses another congestion control."
    )
    return seen + rest


def _digest(dataset: SlotDataset) -> str:
    return hashlib.sha256((dataset.path / "flows.parquet").read_bytes()).hexdigest()


def evaluate(
    model: str,
    folders: Sequence[Path],
    *,
    windows_ms: Sequence[float] | None = None,
    by: str | None = None,
    per_flow: int = 4,
    seed: int = 0,
    ccas: Sequence[str] | None = None,
    all_runs: bool = False,
    format: Format | None = None,
    output: Path | None = None,
) -> None:
    """How good a saved model is on datasets: F1 with intervals over runs, confusion, what is called unknown.

    Parameters
    ----------
    model : str
        As for :func:`~.bundle.load`.
    folders : sequence of Path
        Datasets.
    windows_ms : sequence of float, optional
        Without it those the model was trained on.
    by : str, optional
        A column of the datasets' flows: a row for each of its values; or ``"crossover"``, the
        :func:`~.windows.crossover_bands` of the windows.
    per_flow, seed, ccas
        As for :func:`~.windows.cut_windows`.
    all_runs : bool
        Runs that the model was trained on, too.

    Raises
    ------
    ParameterError, SchemaError
        What is wrong, and where.
    """
    if format is Format.parquet or (output is not None and output.suffix == ".parquet"):
        raise ParameterError("format: scores are csv or jsonl")
    speaker = load(model)
    data = _Data(folders)
    _check_ccas(data, ccas)
    if by is not None and by not in (*data.flows, _CROSSOVER):
        raise ParameterError(f"by: {by!r} is none of {', '.join(data.flows.columns)}, {_CROSSOVER}")
    runs = data.runs if all_runs else _unseen_runs(speaker, data)
    lengths = list(windows_ms or speaker.windows_ms)
    with TableOutput(format, output, "scores") as out:
        scores, said = _scores(speaker, data, runs, lengths, by, per_flow, seed, ccas)
        if out.format is not Format.table:
            out.write(scores)
            return
        _show_scores(scores)
        for ms, (windows, predicted) in said.items():
            show(f"\n{ms:g} ms, windows by what they are (rows) and what was said:")
            from .evaluation import confusion

            show(listing(confusion(windows.y, predicted).reset_index()))
            strange = ~np.isin(windows.y, speaker.classes_)
            if strange.any():
                share = np.mean(predicted[strange] == UNKNOWN)
                print(
                    f"not trained on: {int(strange.sum()):,} windows, {100 * share:.0f} % of them called unknown"
                )


def _unseen_runs(model: Model, data: _Data) -> list[str]:
    """Runs that a model was not trained on, as far as its folder says."""
    path = model.folder / _SPLIT
    if not path.is_file():
        told = f"{model.name} does not say which runs it was trained on (no {_SPLIT})"
        print(f"cct: {told}; scores on those would be too good", file=sys.stderr)
        return data.runs
    try:
        split = pd.read_csv(path, dtype=str, usecols=["run", "part"])
    except ValueError:  # not even a CSV is one, too
        raise SchemaError(f"{path}: no table of run and part, as cct train writes it") from None
    trained = set(split["run"][split["part"] == "train"])
    runs = [run for run in data.runs if run not in trained]
    if not runs:
        raise ParameterError(
            f"datasets: {model.name} was trained on all of these runs (--all takes them all the same)"
        )
    if len(runs) < len(data.runs):
        told = f"{len(data.runs) - len(runs):,} of {len(data.runs):,} runs, which {model.name} was trained on"
        print(f"cct: left out {told} (--all takes them, too)", file=sys.stderr)
    return runs


_Said = dict[float, tuple[Windows, np.ndarray]]


def _scores(
    model: Model, data: _Data, runs: Sequence[str], lengths: Sequence[float], by: str | None, per_flow: int,
    seed: int, ccas: Sequence[str] | None,
) -> tuple[pd.DataFrame, _Said]:  # fmt: skip
    """F1 of each length (and value of `by`) on the classes the model knows; and what it said of all windows."""
    from .evaluation import evaluate as score

    tables, said = [], {}
    for ms in lengths:
        windows, predicted = _predictions(model, data, runs, ms, per_flow, seed, ccas, bands=by == _CROSSOVER)
        said[ms] = windows, predicted
        known = np.isin(windows.y, model.classes_)
        if known.any():
            table = score(predicted[known], windows.take(known), by=by)
            tables.append(table.assign(window_ms=ms)[["window_ms", *table.columns]])
    if not tables:
        raise ParameterError(f"datasets: no flow is one of {', '.join(model.classes_)}")
    return pd.concat(tables, ignore_index=True), said


def _predictions(
    model: Model, data: _Data, runs: Sequence[str], ms: float, per_flow: int, seed: int, ccas: Sequence[str] | None,
    *, bands: bool = False,
) -> tuple[Windows, np.ndarray]:  # fmt: skip
    """Windows without their values, and what the model says: a few runs at a time, for long windows are large."""
    slots = window_slots(ms, data.slot_ms)
    tables, predicted = [], []
    for at in range(0, len(runs), _RUNS_AT_ONCE):
        try:
            part = data.cut(
                runs[at : at + _RUNS_AT_ONCE], ms, model.inputs, per_flow=per_flow, seed=seed, ccas=ccas
            )
        except ParameterError:
            continue  # no flow of these runs is long enough
        tables.append(part.table.assign(**({_CROSSOVER: crossover_bands(part)} if bands else {})))
        predicted.append(np.asarray(model.predict(part), object))
    if not tables:
        raise ParameterError(
            f"window_ms: no flow has {slots:,} slots in which {', '.join(model.inputs)} are known"
        )
    table = pd.concat(tables, ignore_index=True)
    nothing = np.zeros((len(table), 0, len(model.inputs)), np.float32)
    labels = grouped(table["cca"].to_numpy(object), model.alike)
    return Windows(nothing, labels, table, model.inputs, data.slot_ms), np.concatenate(predicted)


def _show_scores(scores: pd.DataFrame) -> None:
    shown = scores.rename(columns=lambda name: str(name).removeprefix("f1_")).rename(
        columns={"f1": "macro F1"}
    )
    show(listing(shown))


def _told(lengths: Sequence[float]) -> str:
    return ", ".join(f"{ms:g}" for ms in lengths)


# ---- captures --------------------------------------------------------------------------------------------------------


def classify(
    ingress: str,
    egress: str | None = None,
    *,
    model: str | None = None,
    window_ms: float | None = None,
    min_bytes: int,
    seconds: float,
    selection: Selection | None = None,
    tunnel: str = "outer",
    format: Format | None = None,
    output: Path | None = None,
    provenance: dict[str, Any] | None = None,
    check_taps: bool = True,
) -> None:
    """The table of flow, congestion control and probability of a capture, to the terminal or a file.

    Raises
    ------
    ParameterError, SchemaError, CaptureFormatError
        What is wrong, and where.
    """
    from .classify import DEFAULT_MODEL, classify_flows

    if model is None and DEFAULT_MODEL not in bundled_models():
        raise ParameterError("model: none comes with this version; say which (--model DIR, of cct train)")
    speaker = load(model or DEFAULT_MODEL)
    with TableOutput(format, output, "ccas", provenance) as out:
        table = classify_flows(
            ingress, egress, model=speaker, min_bytes=min_bytes, seconds=seconds,
            window_ms=window_ms, selection=selection, tunnel=tunnel, check_taps=check_taps,
        )  # fmt: skip
        if out.format is not Format.table:
            out.write(table)
        elif len(table):
            shown = table.drop(columns=["feature_set", "model"]).assign(
                probability=table["probability"].map(format_probability)
            )
            show(listing(shown.rename(columns={"flow_id": "flow"})))
            print(_spoke(table, speaker))
        else:
            print(
                f"no TCP flow has {min_bytes:,} bytes of payload in one direction (--min-bytes asks for less)"
            )


def readable_twice(capture: str, **reading: Any) -> tuple[str | Capture, dict[str, Any]]:
    """A capture and how to read it: a file as it is, a pipe in memory."""
    from .classify import reads_twice

    return (capture, reading) if reads_twice(capture) else (read_capture(capture, **reading), {})


def name_flows(
    flows: pd.DataFrame,
    source: str | Capture,
    egress: str | None,
    *,
    model: str | None = None,
    selection: Selection | None = None,
    **reading: Any,
) -> tuple[pd.DataFrame, str]:
    """Rows of a flows table with the columns ``cca`` and ``probability``, and who says so.

    Parameters
    ----------
    flows : DataFrame
    source, egress, model, selection, **reading
        As for :func:`~.classify.classify_flows`; `source` can be read twice.

    Returns
    -------
    DataFrame
        Null for flows that are not TCP, that have too little data, or not one whole window.
    str
        The model, and what it saw.
    """
    from .classify import DEFAULT_MODEL, MIN_BYTES, classify_flows

    speaker = load(model or DEFAULT_MODEL)
    said = classify_flows(source, egress, model=speaker, flows=flows, selection=selection, **reading)
    table = flows.merge(said[["flow_id", "cca", "probability"]], on="flow_id", how="left")
    if len(said):
        return table, f"CCA: {_spoke(said, speaker)}"
    return table, f"CCA: none of these flows is TCP with {MIN_BYTES:,} bytes of payload in one direction"


def _spoke(table: pd.DataFrame, model: Model) -> str:
    """Which model named the flows, what it saw of them, and whom else its names stand for."""
    told = table["cca"].notna()
    if not told.any():
        return f"no flow has one whole window in which the model {model.name} is told enough"
    sets = table.loc[told, "feature_set"].value_counts()
    seen = ", ".join(f"{name} ({_flows(n)})" for name, n in sets.items())
    short = f"; not one whole window: {_flows(int((~told).sum()))}" if not told.all() else ""
    alike = alike_in_words(model.alike, among=set(table["cca"]))
    return f"by the model {model.name}, from {seen}{short}{alike}"
