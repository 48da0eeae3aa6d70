"""The examples in public docstrings run, each in an empty folder; what they print is compared."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tools import mostly_slow

import cctoolkit as cct

#: Where public names live: the package and the modules that are used by their own name.
PLACES = ("cctoolkit", "cctoolkit.analysis.metrics", "cctoolkit.aqm", "cctoolkit.cca", "cctoolkit.experiments.lessons",
          "cctoolkit.identify",
          "cctoolkit.identify.live", "cctoolkit.plot", "cctoolkit.report", "cctoolkit.report.bottleneck",
          "cctoolkit.report.findings", "cctoolkit.schema",
          "cctoolkit.separation.jenks", "cctoolkit.separation.buffers", "cctoolkit.separation.controller",
          "cctoolkit.separation.router", "cctoolkit.separation.replay")  # fmt: skip


REFERENCE = Path(__file__).parents[1] / "docs" / "api"


def _plain(value: Any) -> Any:
    """The Python function behind a compiled one."""
    return getattr(value, "py_func", getattr(value, "_defn", value))


def in_reference() -> Iterator[str]:
    """The names that the book's reference lists."""
    for path in sorted(REFERENCE.glob("*.rst")):
        module = "cctoolkit"
        for line in path.read_text().splitlines():
            if heading := re.match(r"\.\. (?:current|auto)?module:: (\S+)", line):
                module = heading[1]
            elif name := re.fullmatch(r"   ~?([A-Za-z_][\w.]*)", line):
                yield f"{module}.{name[1]}"


def public() -> dict[str, Any]:
    """Every public function and class of ours, once, by the name it is used by."""
    names = [f"{place}.{name}" for place in PLACES for name in importlib.import_module(place).__all__]
    found: dict[int, tuple[str, Any]] = {}
    for name in (*names, *in_reference()):
        value = _plain(pkgutil.resolve_name(name))
        ours = getattr(value, "__module__", "").startswith("cctoolkit.")
        if ours and (inspect.isfunction(value) or inspect.isclass(value)):
            found.setdefault(id(value), (name, value))
    return dict(found.values())


PUBLIC = public()

#: Packages whose public names all have an example and related names.
PACKAGES = tuple(
    f"cctoolkit.{package}."
    for package in (
        "_support", "analysis", "aqm", "batch", "capture", "cca", "experiments", "identify", "plot", "report",
        "scenario", "schema", "separation", "sim", "testbed",
    )
)  # fmt: skip
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


#: Examples that train models or simulate many runs.
LONG = {
    f"cctoolkit.identify.{name}"
    for name in ("CCAClassifier", "DeepcciClassifier", "SlotDataset", "build_dataset", "save_models")
}


@pytest.mark.parametrize("name", mostly_slow(PUBLIC, PUBLIC.keys() - LONG))
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    value = PUBLIC[name]
    module = importlib.import_module(value.__module__)
    names = {n: getattr(module, n) for n in module.__all__} | {"cct": cct, "np": np, "pd": pd}
    finder = doctest.DocTestFinder(recurse=inspect.isclass(value))
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    report: list[str] = []
    for test in finder.find(value, name.rpartition(".")[2], globs=dict(names)):
        runner.run(test, out=report.append)
    failed, text = runner.summarize(verbose=False).failed, "".join(report)
    if failed and importlib.util.find_spec("torch") is None and "cctoolkit[train]" in text:
        pytest.skip("the extra `train` is not installed")
    assert failed == 0, text


def exists(name: str, place: str) -> bool:
    """Whether a name in a See Also section exists: where the section stands, in the package, or in full."""
    for full in (f"{place}.{name}", f"cctoolkit.{name}", name):
        with contextlib.suppress(ImportError, AttributeError):
            pkgutil.resolve_name(full)
            return True
    return False


def is_error(value: Any) -> bool:
    """Errors are raised by others and need no example; their docstrings say when."""
    return inspect.isclass(value) and issubclass(value, Exception)


@pytest.mark.parametrize(
    "name", [name for name, value in PUBLIC.items() if value.__module__.startswith(PACKAGES)]
)
def test_has_an_example_and_related_names(name: str) -> None:
    value = PUBLIC[name]
    if is_error(value):
        return
    text = inspect.getdoc(value) or ""
    for section in ("Examples", "See Also"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text, f"{name}: no section {section}"
    assert ">>> " in text
    related = text.split("See Also\n--------\n")[1].split("\n\n")[0]
    for line in related.splitlines():
        names, _, phrase = line.partition(" : ")
        assert phrase.strip(), f"{name}: {line}"
        for related_name in names.split(", "):
            assert exists(related_name, name.rpartition(".")[0]), f"{name}: there is no {related_name}"
