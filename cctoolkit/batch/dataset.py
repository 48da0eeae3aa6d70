"""The files of a dataset, and what is already computed.

::

    DATASET/dataset.json                            the settings
            flows/capture=NAME-ADDRESS/block-00000.parquet   and likewise captures, rtt, seconds, rates, slots
            cca/model=MODEL/capture=NAME-ADDRESS/block-00000.parquet
            manifests/NAME-ADDRESS.json             written last: once it exists, everything is there
            blocks/NAME-ADDRESS/                    finished blocks of an unfinished capture
            sources/KEY.json                        versions and addresses of input files
            journal/NAME-ADDRESS.00000.json         resources used to compute it

Except for the journal and ``sources``, files do not depend on who computes them, or when. All are written atomically.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._support.atomic import check_target, replacing, sweep
from .._support.locks import try_lock
from ..errors import ParameterError, SchemaError
from .settings import BatchSettings
from .sources import Source
from .tables import TABLES

__all__ = ["Dataset"]


class Dataset:
    """The files of a dataset.

    Parameters
    ----------
    root : path
        Its directory, which all workers must see under this name.
    settings : BatchSettings
        What to compute.
    """

    def __init__(self, root: str | os.PathLike[str], settings: BatchSettings) -> None:
        self.root = Path(root).resolve()
        self.settings = settings

    @classmethod
    def open(cls, root: str | os.PathLike[str], settings: BatchSettings) -> Dataset:
        """Create or continue a dataset.

        Raises
        ------
        ParameterError
            The directory holds another dataset, or something else, or is a URL.
        SchemaError
            Its ``dataset.json`` is damaged.
        """
        check_target(root, folder=Path(root).is_dir())
        dataset = cls(root, settings)
        about = dataset.root / "dataset.json"
        found = _read(about, settings=dict)
        if found is None:
            if about.exists():
                raise SchemaError(f"{about}: expected a JSON object with the settings; use another directory")
            sweep(dataset.root)  # a first run may have been killed
            if dataset.root.exists() and (not dataset.root.is_dir() or any(dataset.root.iterdir())):
                raise ParameterError(f"output: {root} exists and is not a dataset of cct batch")
            _write(about, {"settings": settings.as_dict()})
        else:
            wanted = settings.as_dict()
            for name, value in found["settings"].items():
                if wanted.get(name) != value:
                    raise ParameterError(
                        f"output: {root} was made with {name} = {value}, not {wanted.get(name)}; use another directory"
                    )
        return dataset

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        """Keep other drivers out; before and after, remove partial files of killed drivers and workers.

        Raises
        ------
        ParameterError
            Another driver is running.
        """
        with (self.root / ".lock").open("a") as handle:
            if not try_lock(handle):
                raise ParameterError(f"output: another batch is writing {self.root}")
            sweep(self.root, below=True)
            yield
            sweep(self.root, below=True)

    # --- tables

    def block_path(self, table: str, capture: str, block: int) -> Path:
        """File of a table for a block of flow numbers; ``captures`` and ``seconds`` have only block 0."""
        return self.root / table / f"capture={capture}" / f"block-{block:05}.parquet"

    def cca_path(self, model: str, capture: str, block: int) -> Path:
        """File of predictions, separate for each model."""
        return self.block_path(f"cca/model={model}", capture, block)

    # --- blocks of a capture, until all are complete

    def head(self, capture: str) -> dict[str, Any] | None:
        """Facts about the whole capture from the first piece: ``meta``, ``flows`` (their number), ``start_ns``."""
        return _read(self.root / "blocks" / capture / "head.json", **_HEAD)

    def write_head(self, capture: str, head: dict[str, Any]) -> None:
        _write(self.root / "blocks" / capture / "head.json", head)

    def block(self, capture: str, block: int) -> dict[str, Any] | None:
        """``rows`` by table and ``long_flows`` of a finished block."""
        return _read(self.root / "blocks" / capture / f"{block:05}.json", **_BLOCK)

    def write_block(self, capture: str, block: int, rows: dict[str, int], long_flows: int) -> None:
        _write(self.root / "blocks" / capture / f"{block:05}.json", {"rows": rows, "long_flows": long_flows})

    def blocks_of(self, head: dict[str, Any]) -> int:
        """Number of blocks of a capture; without flows, one with empty tables."""
        return max(1, -(-int(head["flows"]) // self.settings.block_flows))

    def done_blocks(self, capture: str) -> set[int]:
        """Finished blocks of an unfinished capture."""
        paths = (self.root / "blocks" / capture).glob("[0-9]*.json")
        return {int(path.stem) for path in paths if _read(path, **_BLOCK) is not None}

    def missing_blocks(self, capture: str) -> list[int]:
        """Missing blocks of a capture, which must have a head unless it is finished."""
        head = self.head(capture)
        if head is None or self.manifest(capture) is not None:
            return []
        done = self.done_blocks(capture)
        return [block for block in range(self.blocks_of(head)) if block not in done]

    # --- complete captures

    def manifest(self, capture: str) -> dict[str, Any] | None:
        """Summary of a finished capture, else None."""
        return _read(self.root / "manifests" / f"{capture}.json", **_HEAD, **_BLOCK, blocks=int)

    def write_manifest(self, capture: str, manifest: dict[str, Any]) -> None:
        _write(self.root / "manifests" / f"{capture}.json", manifest)

    def drop_blocks(self, capture: str) -> None:
        """Remove the bookkeeping of an unfinished capture."""
        shutil.rmtree(self.root / "blocks" / capture, ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.root / "blocks").rmdir()

    def captures(self) -> list[str]:
        """The finished captures."""
        return sorted(path.stem for path in (self.root / "manifests").glob("*.json"))

    def classified(self, model: str, capture: str) -> bool:
        return (self.root / "manifests" / f"{capture}.cca" / f"{model}.json").exists()

    def write_classified(self, model: str, capture: str, rows: int) -> None:
        _write(self.root / "manifests" / f"{capture}.cca" / f"{model}.json", {"rows": rows})

    # --- sources

    def source(self, source: Source) -> dict[str, Any]:
        """``version`` and ``sha256`` as of the last reading, ``capture`` of the last results, and ``replaced`` ones."""
        known = _read(self.root / "sources" / f"{source.key}.json", url=str) or {}
        capture = known.get("capture", "")
        inside = isinstance(capture, str) and Path(capture).name == capture  # else it leads to another folder
        return known if inside else {}

    def note_source(self, source: Source, **what: str) -> None:
        known = self.source(source)
        if "capture" in what and known.get("capture", what["capture"]) != what["capture"]:
            what["replaced"] = known["capture"]
        if known | what != known:
            _write(self.root / "sources" / f"{source.key}.json", {"url": source.url, **known, **what})

    def journal(self, capture: str, first_block: int, entry: dict[str, Any]) -> None:
        _write(self.root / "journal" / f"{capture}.{first_block:05}.json", entry)

    def forget_replaced(self) -> list[str]:
        """Remove results of captures whose files have changed and have new results."""
        known = [_read(path, url=str) or {} for path in (self.root / "sources").glob("*.json")]
        replaced = {source.get("replaced") for source in known} - {source.get("capture") for source in known}
        gone = [capture for capture in self.captures() if capture in replaced]
        for capture in gone:
            (
                self.root / "manifests" / f"{capture}.json"
            ).unlink()  # first, so that it no longer counts as finished
            shutil.rmtree(self.root / "manifests" / f"{capture}.cca", ignore_errors=True)
            for table in TABLES:
                for folder in self.root.glob(f"{table}/**/capture={capture}"):
                    shutil.rmtree(folder)
        return gone


#: What the files must have to be used.
_HEAD = {"meta": dict, "flows": int, "start_ns": int, "name": str, "sha256": str}
_BLOCK = {"rows": dict, "long_flows": int}


def _read(path: Path, **wanted: type) -> dict[str, Any] | None:
    """A file of ours; None if it is missing or damaged: then its capture is computed again, with the same result."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    there = isinstance(found, dict) and all(type(found.get(name)) is kind for name, kind in wanted.items())
    return found if there else None


def _write(path: Path, value: dict[str, Any]) -> None:
    with replacing(path) as tmp:
        tmp.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
