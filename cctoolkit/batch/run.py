"""Many captures into one dataset: the driver, which distributes tasks and keeps track of results."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from .._support.version import __version__
from .._support.waiting import progress_bar
from .._support.words import first_line
from ..errors import CCToolkitError, ParameterError
from .cca import BatchClassifier, classify
from .cluster import connected
from .dataset import Dataset
from .memory import Memory
from .piece import Outcome, compute_piece
from .settings import BatchSettings
from .sources import Source, find_sources
from .tables import TableWriter

__all__ = ["BatchResult", "run_batch"]


@dataclass
class BatchResult:
    """The result of a batch.

    Attributes
    ----------
    output : Path
        Directory of the dataset.
    computed, present : list of str
        Names of the results of captures computed now, and of those already present.
    failed : dict of str to str
        Captures without results (by path or URL), and why.
    notes : dict of str to list of str
        Remarks on captures computed now, such as a truncated file.

    See Also
    --------
    run_batch : run a batch

    Examples
    --------
    >>> result = cct.run_batch([cct.example("mixed").ingress.meta.path, "missing.pcap"], "archive")
    >>> len(result.computed), len(result.failed)
    (1, 1)
    """

    output: Path
    computed: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)


def run_batch(
    captures: Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    settings: BatchSettings | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    memory_bytes: int | None = None,
    classifier: BatchClassifier | None = None,
    keep: bool = True,
    progress: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> BatchResult:
    """Compute flows, RTTs, counts per second and slots of many captures, on Dask.

    Parameters
    ----------
    captures : iterable of str or path
        Paths, folders, globs, MAWI days (``2024-02-15``, ``2024-02-01..2024-02-29``), URLs supported by fsspec.
    output : path
        Directory of the dataset, which all workers must see under this name. It can be read while it is made.
    settings : BatchSettings, optional
        What to compute; the same for all of a dataset.
    workers : int, optional
        Number of processes on this machine. 1 or None: this process, one capture at a time.
    scheduler : str, optional
        Address of a Dask scheduler (``tcp://…``) to use instead. Its workers must have this version of the package,
        and should have one thread each.
    memory_bytes : int, optional
        Memory of one worker in bytes. It affects how many pieces a capture with very many flows is split into, but
        not the results. By default an equal share of four fifths of this machine's memory, or that of the
        scheduler's smallest worker.
    classifier : BatchClassifier, optional
        Adds the table ``cca``: a :class:`cctoolkit.batch.cca.SavedModel`, or your own.
    keep : bool
        Keep downloaded MAWI days in the cache.
    progress : bool, optional
        Show a progress bar; by default only on a terminal or in a notebook.
    say : callable, optional
        Called with a line for each failed capture and each note, as soon as it is known.

    Returns
    -------
    BatchResult
        What was computed, and what failed.

    Raises
    ------
    ParameterError
        An argument is invalid, the classifier needs other slots, `output` is something else, another batch is
        writing it, the extra `batch` is missing, or no scheduler answers. Errors of single captures are in
        ``BatchResult.failed`` instead.
    CCToolkitError
        The connection to the scheduler is lost. Another call continues where this one ended.

    Notes
    -----
    Files depend only on the bytes of the captures and on the settings, not on workers or interruptions. Nothing is
    computed twice; a killed worker or driver only loses its current work. Captures are recognised by size and time
    of the file (or by what a store reports for a URL; files of HTTP servers are assumed not to change), else by the
    SHA-256 of their bytes.

    Worker processes import the main script again, so a script (not a notebook) must call this with `workers` under
    ``if __name__ == "__main__":``.

    See Also
    --------
    BatchSettings : what to compute
    summarise : the key figures of a single capture
    fetch_mawi : download a MAWI day

    Examples
    --------
    >>> result = cct.run_batch([cct.example("mixed").ingress.meta.path], "archive")
    >>> flows = pd.read_parquet("archive/flows")
    >>> len(flows), int(flows["is_long"].sum())
    (53, 1)
    >>> result = cct.run_batch(["2024-02-01..2024-02-29"], "archive", workers=8)  # doctest: +SKIP
    """
    sources, without = find_sources(captures)
    settings = settings or BatchSettings()
    if classifier is not None and classifier.slot_ms != settings.slot_ms:
        raise ParameterError(
            f"slot_ms: {classifier.name} needs slots of {classifier.slot_ms:g} ms, not {settings.slot_ms:g}"
        )
    dataset = Dataset.open(output, settings)
    with dataset.reserved():
        batch = _Batch(dataset, sources, classifier, keep, say or (lambda line: None))
        for what, reason in without.items():
            batch.fail(what, reason)
        batch.find_done()
        if batch.waiting or (classifier and not batch.all_classified()):
            with connected(workers, scheduler, memory_bytes) as (client, memory):
                batch.run(client, memory, progress)
        dataset.forget_replaced()
    return batch.result


def _piece(*arguments: Any) -> Outcome | str:
    """The task. An error of a capture is returned, so that it is not a failure of Dask."""
    try:
        return compute_piece(*arguments)
    except (CCToolkitError, OSError, MemoryError) as err:
        return _line(err)


def _classification(dataset: Dataset, capture: str, classifier: BatchClassifier) -> int | str:
    try:
        return classify(dataset, capture, classifier)
    except (CCToolkitError, OSError, MemoryError) as err:
        return _line(err)


def _line(err: BaseException) -> str:
    if isinstance(err, OSError):
        return f"{err.filename}: {err.strerror}" if err.filename else str(err.strerror or err)
    if isinstance(err, CCToolkitError):  # a line; a newline in it is of a file's name
        return str(err)
    return first_line(err)


class _Batch:
    """The driver's loop: the first piece of each capture, further pieces of large ones, then predictions."""

    def __init__(
        self,
        dataset: Dataset,
        sources: list[Source],
        classifier: BatchClassifier | None,
        keep: bool,
        say: Callable[[str], None],
    ) -> None:
        self.dataset, self.sources, self.classifier, self.keep, self.say = (
            dataset,
            sources,
            classifier,
            keep,
            say,
        )
        self.result = BatchResult(dataset.root)
        self.waiting: list[Source] = []
        self._pending: dict[Source, set[int]] = {}  # first blocks of pieces being computed
        self._missing: dict[Source, list[int]] = {}  # blocks that were missing when pieces were submitted
        self._computed: set[Source] = set()

    def find_done(self) -> None:
        """Find out what is already computed, without reading captures."""
        for source in self.sources:
            known = self.dataset.source(source)
            capture = known.get("capture")
            if capture and known.get("sha256") and self.dataset.manifest(capture) is not None:
                with contextlib.suppress(CCToolkitError):  # it will fail when it is read
                    if known.get("version") == source.version():
                        self.result.present.append(capture)
                        continue
            self.waiting.append(source)

    def all_classified(self) -> bool:
        assert self.classifier is not None
        return all(self.dataset.classified(self.classifier.name, c) for c in self.result.present)

    def run(self, client: Any, memory: Memory, progress: bool | None) -> None:
        from distributed import as_completed

        self._client, self._memory = client, memory
        self._what: dict[Any, tuple[str, Any]] = {}
        futures = as_completed(with_results=True, raise_errors=False)
        self._futures = futures
        bar = progress_bar(
            total=len(self.sources),
            initial=len(self.result.present),
            unit="capture",
            disable=None if progress is None else not progress,
            file=sys.stderr,
        )
        with bar:
            for capture in self.result.present:
                self._submit_classification(capture)
            for source in self.waiting:
                self._pending[source] = {0}
                self._submit(source, 0)
            for future, found in futures:
                kind, of = self._what.pop(future.key)
                found = self._answer(future, found)
                if kind == "cca":
                    if isinstance(found, str):
                        self.fail(of, found)
                    continue
                source, first_block = of
                if source in self._pending and self._take(source, first_block, found):
                    bar.update()

    def _answer(self, future: Any, found: Any) -> Any:
        """The result of a task; if Dask gave it up, an error line."""
        if future.status == "finished":
            return found
        error = found[1] if isinstance(found, tuple) else found
        from distributed.client import CancelledError
        from distributed.scheduler import KilledWorker

        if isinstance(error, CancelledError):  # nobody but a scheduler that goes away cancels
            raise CCToolkitError(
                "scheduler: lost the connection; run the same command again to continue where this one ended"
            )
        if isinstance(error, KilledWorker):
            return "its worker died repeatedly (out of memory? see --memory)"
        return f"{type(error).__name__}: {_line(error)}"

    def _submit(self, source: Source, first_block: int) -> None:
        future = self._client.submit(
            _piece, source, self.dataset, self._memory, first_block, self.keep,
            key=f"cct-batch-{source.stem}-{source.key}-{first_block}-{os.getpid()}", pure=False,
        )  # fmt: skip
        self._what[future.key] = ("piece", (source, first_block))
        self._futures.add(future)

    def _submit_classification(self, capture: str) -> None:
        if self.classifier is None or self.dataset.classified(self.classifier.name, capture):
            return
        future = self._client.submit(
            _classification, self.dataset, capture, self.classifier,
            key=f"cct-batch-cca-{capture}-{os.getpid()}", pure=False,
        )  # fmt: skip
        if future.key not in self._what:  # the same capture may be given twice
            self._what[future.key] = ("cca", capture)
            self._futures.add(future)

    def _take(self, source: Source, first_block: int, found: Outcome | str) -> bool:
        """Take the result of a piece; return whether it was the last of its capture."""
        pending = self._pending[source]
        pending.discard(first_block)
        if isinstance(found, str):
            del self._pending[source]
            self.fail(source.url, found)
            return True
        if found.computed:
            self._computed.add(source)
        for note in found.notes:
            self.result.notes.setdefault(found.capture, []).append(note)
            self.say(f"{source.url}: {note}")
        if pending:
            return False
        missing = self.dataset.missing_blocks(found.capture)
        if missing and missing != self._missing.get(source):  # else there is no progress
            self._missing[source] = missing
            for block in self._first_of_pieces(missing):
                pending.add(block)
                self._submit(source, block)
            return False
        del self._pending[source]
        if missing:
            self.fail(
                source.url,
                f"blocks {missing} were computed but are missing: did the file change meanwhile?",
            )
        else:
            self._finish(source, found.capture)
        return True

    def _first_of_pieces(self, missing: list[int]) -> list[int]:
        """First blocks of pieces: each takes as many consecutive missing blocks as fit."""
        most = self._memory.blocks(self.dataset.settings.block_flows)
        first: list[int] = []
        last = -2
        for block in missing:
            if block != last + 1 or block - first[-1] >= most:
                first.append(block)
            last = block
        return first

    def _finish(self, source: Source, capture: str) -> None:
        if self.dataset.manifest(capture) is None:
            try:
                write_manifest(self.dataset, capture)
            except (KeyError, TypeError, ValueError):
                self.dataset.drop_blocks(capture)
                self.fail(
                    source.url, "its files in blocks/ were damaged and have been removed: run the batch again"
                )
                return
        self.dataset.drop_blocks(capture)
        self.dataset.note_source(source, capture=capture)
        (self.result.computed if source in self._computed else self.result.present).append(capture)
        self._submit_classification(capture)

    def fail(self, what: str, reason: str) -> None:
        reason = reason.removeprefix(f"{what}: ")
        self.result.failed[what] = reason
        self.say(f"{what}: {reason}")


def write_manifest(dataset: Dataset, capture: str) -> None:
    """All blocks are complete: write the manifest and the capture's row."""
    head = dataset.head(capture)
    assert head is not None
    blocks = dataset.blocks_of(head)
    rows: dict[str, int] = {}
    long_flows = 0
    for block in range(blocks):
        found = dataset.block(capture, block)
        assert found is not None
        for table, n in found["rows"].items():
            rows[table] = rows.get(table, 0) + n
        long_flows += found["long_flows"]
    meta = head["meta"]
    row = {
        "name": head["name"],
        "sha256": head["sha256"],
        "notes": "; ".join(meta["notes"]),
        "flows": rows["flows"],
        "long_flows": long_flows,
    } | {name: meta[name] for name in _OF_META}
    provenance = {
        "capture": head["name"],
        "sha256": head["sha256"],
        "settings": dataset.settings.as_dict(),
        "version": __version__,
    }
    with TableWriter(dataset.block_path("captures", capture, 0), "captures", provenance) as writer:
        writer.write(pd.DataFrame([row]))
    manifest = {**head, "blocks": blocks, "rows": {**rows, "captures": 1}, "long_flows": long_flows}
    dataset.write_manifest(capture, manifest)


_OF_META = (
    "format", "compression", "truncated", "frames", "packets", "wire_bytes", "captured_bytes", "dropped",
    "first_ts_ns", "last_ts_ns",
)  # fmt: skip
