"""The package's layout: who imports whom, how many packages there are, and that every public name stays."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cctoolkit as cct

ROOT = Path(__file__).parents[1]
#: What a newcomer sees first; more, and nothing is found at a glance.
MOST_ENTRIES = 18
#: A kernel with more arguments than this says of each what it is.
FEW_ARGUMENTS = 6


def test_imports_go_downwards_and_never_in_circles() -> None:
    pytest.importorskip("importlinter")
    # in a process of its own: it sets up logging for the whole process
    linter = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", linter], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_few_entries_at_the_top() -> None:
    entries = sorted(p.name for p in (ROOT / "cctoolkit").iterdir() if not p.name.startswith("__"))
    assert len(entries) <= MOST_ENTRIES, entries


def test_public_names_stay() -> None:
    """A name that is taken away breaks somebody's notebook; new ones are added to the list beside this file."""
    listed = (ROOT / "tests" / "public_names.txt").read_text().split()
    assert sorted(set(listed) - set(cct.__all__)) == []
    assert sorted(set(cct.__all__) - set(listed)) == [], "add them to tests/public_names.txt"
    for name in listed:
        assert getattr(cct, name) is not None


def test_only_public_names_are_offered() -> None:
    assert set(dir(cct)) == set(cct.__all__)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(
        re.match(r"kernel\b|inlined\b", ast.unparse(decorator)) for decorator in function.decorator_list
    )


@pytest.mark.slow
def test_arguments_of_kernels_are_documented_one_by_one() -> None:
    for path in (ROOT / "cctoolkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.FunctionDef) and _is_kernel(node)):
                continue
            arguments = [a.arg for a in node.args.args]
            if len(arguments) > FEW_ARGUMENTS:
                where = f"{path.relative_to(ROOT)}: {node.name}"
                _, _, section = inspect.cleandoc(ast.get_docstring(node) or "").partition("Parameters\n---")
                described = re.findall(r"^(\w+(?:, \w+)*) :", section.split("\n\n")[0], re.MULTILINE)
                assert [name for names in described for name in names.split(", ")] == arguments, where
