"""The examples in public docstrings run, each in an empty folder; what they print is compared."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
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


def _plain(value: Any) -> Any:
    """The Python function behind a compiled one."""
    return getattr(value, "py_func", getattr(value, "_defn", value))


def public() -> dict[str, Any]:
    """Every public function and class of ours, once, by the name it is used by."""
    found: dict[int, tuple[str, Any]] = {}
    for place in PLACES:
        module = importlib.import_module(place)
        for name in module.__all__:
            value = _plain(getattr(module, name))
            ours = getattr(value, "__module__", "").startswith("cctoolkit.")
            if ours and (inspect.isfunction(value) or inspect.isclass(value)):
                found.setdefault(id(value), (f"{place}.{name}", value))
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
    names = {"cct": cct, "np": np, "pd": pd}
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
