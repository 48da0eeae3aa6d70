"""The examples in public docstrings run, each in an empty folder; what they print is compared."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cctoolkit as cct

#: Where public names live: the package and the modules that are used by their own name.
PLACES = ("cctoolkit", "cctoolkit.analysis.metrics", "cctoolkit.aqm", "cctoolkit.cca", "cctoolkit.identify",
          "cctoolkit.identify.live", "cctoolkit.plot", "cctoolkit.report", "cctoolkit.schema",
          "cctoolkit.separation.jenks", "cctoolkit.separation.buffers", "cctoolkit.separation.controller",
          "cctoolkit.separation.router", "cctoolkit.separation.replay")  # fmt: skip


def public() -> dict[str, Any]:
    """Every public function and class of ours, once, by the name it is used by."""
    found: dict[int, tuple[str, Any]] = {}
    for place in PLACES:
        module = importlib.import_module(place)
        for name in module.__all__:
            value = getattr(module, name)
            ours = getattr(value, "__module__", "").startswith("cctoolkit.")
            if ours and (inspect.isfunction(value) or inspect.isclass(value)):
                found.setdefault(id(value), (f"{place}.{name}", value))
    return dict(found.values())


PUBLIC = public()
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    value = PUBLIC[name]
    names = {"cct": cct, "np": np, "pd": pd}
    finder = doctest.DocTestFinder(recurse=inspect.isclass(value))
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    report: list[str] = []
    for test in finder.find(value, name.rpartition(".")[2], globs=dict(names)):
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
