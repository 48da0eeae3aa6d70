"""``cct dataset``, ``cct train``, ``cct evaluate``, ``cct classify``: options in, folders, tables and lines out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from .._output import Format, TableOutput
from .._terminal import listing, show
from ..capture.reader import read_capture
from ..capture.selection import Selection
from ..errors import ParameterError, SchemaError
from ..scenario import Scenario, read_sweep
from .dataset import SlotDataset, build_dataset, index_dataset, record, save_recording
from .settings import KERNEL_CCAS, PAPER_CCAS, SETTINGS, SIMULATOR_CCAS

__all__ = ["add", "build", "classify", "info"]

_Jobs = list[tuple[dict[str, Any], Scenario]]
#: Columns of a dataset's flows that are no settings.
_NO_SETTING = {"run", "flow_id", "cca", "bytes_acked", "retransmits", "src", "dst", "sport", "dport"}


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
    about: dict[str, Any] = {"on": on, "special": flows if special is None else special, "slot_ms": slot_ms}
    _check_same(output, jobs, about)
    dataset = build_dataset(
        jobs, output, on=on, special=about["special"], slot_ms=slot_ms, workers=workers,
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


def _check_same(folder: Path, jobs: _Jobs, about: dict[str, Any]) -> None:
    """What is in the folder already is of the same scenarios, run in the same way."""
    if (folder / "dataset.json").is_file():
        before = SlotDataset(folder).about
        for name, value in about.items():
            if before.get(name, value) != value:
                raise ParameterError(
                    f"output: {folder} was built with {name} {before[name]}, not {value}: take another folder"
                )
    for _, scenario in jobs:
        path = folder / "slots" / f"{scenario.name}.parquet"
        if path.is_file() and provenance(path).get("scenario") != scenario.to_toml():
            raise ParameterError(
                f"output: {folder} has a run {scenario.name} of another scenario: take another folder"
            )


def provenance(path: Path) -> dict[str, Any]:
    """What a Parquet file of slots says of how it was made."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = json.loads((pq.read_schema(path).metadata or {}).get(b"cctoolkit.provenance", b"{}"))
    except (pa.ArrowInvalid, OSError):
        raise SchemaError(f"{path}: cannot be read; remove it and build again") from None
    return dict(found)


def add(
    output: Path,
    ingress: str,
    egress: str | None,
    labels: Path,
    *,
    name: str | None = None,
    slot_ms: float | None = None,
    tunnel: str = "outer",
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
    settings = [
        (name, *_range(flows[name]))
        for name in flows.columns
        if name not in _NO_SETTING and flows[name].notna().any()
    ]
    if settings:
        show("")
        show(listing(pd.DataFrame(settings, columns=["setting", "values", "from", "to", "median"])))


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
) -> None:
    """The table of flow, congestion control and probability of a capture, to the terminal or a file.

    Raises
    ------
    ParameterError, SchemaError, CaptureFormatError
        What is wrong, and where.
    """
    from .bundle import bundled_models
    from .classify import DEFAULT_MODEL, classify_flows

    if model is None and DEFAULT_MODEL not in bundled_models():
        raise ParameterError("model: none comes with this version; say which (--model DIR, of cct train)")
    with TableOutput(format, output, "ccas", provenance) as out:
        table = classify_flows(
            ingress, egress, model=model or DEFAULT_MODEL, min_bytes=min_bytes, seconds=seconds,
            window_ms=window_ms, selection=selection, tunnel=tunnel,
        )  # fmt: skip
        if out.format is not Format.table:
            out.write(table)
        elif len(table):
            shown = table.drop(columns=["feature_set", "model"]).assign(
                probability=[f"{100 * p:.0f} %" if p == p else "" for p in table["probability"]]
            )
            show(listing(shown.rename(columns={"flow_id": "flow"})))
            print(_spoke(table))
        else:
            print(
                f"no TCP flow has {min_bytes:,} bytes of payload in one direction (--min-bytes asks for less)"
            )


def _spoke(table: pd.DataFrame) -> str:
    """Which model named the flows, and what it saw of them."""
    told = table["cca"].notna()
    model = table["model"].iloc[0]
    if not told.any():
        return f"no flow has one whole window in which the model {model} is told enough"
    sets = table.loc[told, "feature_set"].value_counts()
    seen = ", ".join(f"{name} ({_flows(n)})" for name, n in sets.items())
    short = f"; not one whole window: {_flows(int((~told).sum()))}" if not told.all() else ""
    return f"by the model {model}, from {seen}{short}"
