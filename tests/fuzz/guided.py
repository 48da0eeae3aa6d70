"""Fuzzing of readers written in Python, guided by their coverage: atheris and libFuzzer."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from . import readers
from .watched import MOST_BYTES, MOST_S, Slot


def functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """The plain functions of a module and of its classes; kernels are left alone."""
    for owner in (module, *(o for _, o in inspect.getmembers(module, inspect.isclass))):
        if inspect.isclass(owner) and owner.__module__ != module.__name__:
            continue
        for value in vars(owner).values():
            value = getattr(value, "__func__", value)
            value = value.fget if isinstance(value, property) else value
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                yield value


def _instrumented(name: str) -> readers.Reader:
    """A reader whose Python code reports what it comes past."""
    import atheris

    reader = readers.TARGETS[name]
    for seed in reader.seeds():
        reader.check(seed)  # loads and compiles everything, so that this counts as no case's time
    for module in reader.guides:
        for function in functions(importlib.import_module(module)):
            atheris.instrument_func(function)
    return reader


def fuzz(name: str, cases: int, seed: int, slot: Slot, corpus: Path, folder: Path) -> None:
    """Try `cases` inputs, beginning with those in `corpus`; what is new goes into ``folder/found``. Does not return."""
    import atheris

    reader = _instrumented(name)
    found, seeds = folder / "found", folder / "seeds"
    for path in (found, seeds, corpus):
        path.mkdir(parents=True, exist_ok=True)
    for number, seed_input in enumerate(reader.seeds()):
        (seeds / f"{number}").write_bytes(seed_input)

    def one(data: bytes) -> None:
        slot.begin(data)
        reader.check(data)

    options: dict[str, object] = {
        "runs": cases,
        "seed": seed or 1,
        "max_len": reader.largest,
        "timeout": round(MOST_S),
        "rss_limit_mb": MOST_BYTES >> 20,
        "artifact_prefix": f"{folder}/",
        "print_final_stats": 1,
    }
    if reader.words:
        options["dict"] = folder / "words"
        (folder / "words").write_text("".join(f'"{_quoted(word)}"\n' for word in reader.words))
    arguments = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(found), str(seeds), str(corpus)], one)
    atheris.Fuzz()


def _quoted(word: str) -> str:
    return "".join(c if c.isalnum() or c in "._ -" else f"\\x{ord(c):02x}" for c in word)
