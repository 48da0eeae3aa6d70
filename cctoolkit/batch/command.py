"""``cct batch``: captures in, a dataset out; a line for each that fails."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ..errors import ParameterError
from .cca import SavedModel
from .run import run_batch
from .settings import BatchSettings

__all__ = ["batch", "parse_bytes"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_bytes(text: str) -> int:
    """``4GB``, ``500 MB``, ``1.5g`` or a number of bytes.

    Raises
    ------
    ParameterError
        None of these.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)b?\s*", text, re.IGNORECASE)
    if not found or not float(found[1]):
        raise ParameterError(f"memory: {text!r} is no size like 4GB")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def batch(
    captures: list[str],
    output: Path,
    *,
    slot_ms: float | None,
    long_flow_bytes: int,
    tunnel: str,
    workers: int | None,
    scheduler: str | None,
    memory: str | None,
    model: str | None,
    keep: bool,
) -> bool:
    """Run it and say what came of it; False if a capture has no results. Slots are what a model wants, by default."""
    classifier = None if model is None else SavedModel(model)
    if slot_ms is None:
        slot_ms = BatchSettings.slot_ms if classifier is None else classifier.slot_ms
    settings = BatchSettings(slot_ms=slot_ms, long_flow_bytes=long_flow_bytes, tunnel=tunnel)  # type: ignore[arg-type]
    done = run_batch(
        captures,
        output,
        settings,
        workers=workers,
        scheduler=scheduler,
        memory_bytes=None if memory is None else parse_bytes(memory),
        classifier=classifier,
        keep=keep,
        say=_say,
    )
    counts = {"computed": done.computed, "there before": done.present, "failed": done.failed}
    print(f"{done.output}: {', '.join(f'{len(some)} {what}' for what, some in counts.items() if some)}")
    return not done.failed


def _say(line: str) -> None:
    from tqdm.auto import tqdm

    tqdm.write(f"cct: {line}", file=sys.stderr)  # above the bar, where there is one
