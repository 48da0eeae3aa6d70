"""The project's own files agree with each other."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cctoolkit

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

#: conda-forge's names, where they are not PyPI's.
CONDA_NAMES = {
    "isal": ["python-isal"],
    "torch": ["pytorch"],
    "dask[distributed]": ["dask", "distributed"],
    "duckdb": ["python-duckdb"],
}


def _split(requirement: str) -> tuple[str, str]:
    """Name and version; without the marker (``; python_version < …``), which conda does not have."""
    requirement = requirement.partition(";")[0].strip()
    match = re.fullmatch(r"([\w.\[\]-]+?)((?:[<>=!~]=?).*)?", requirement)
    assert match, requirement
    return match[1], match[2] or ""


def test_environment_yml_names_the_packages_of_pyproject() -> None:
    yaml = pytest.importorskip("yaml")
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = dict(_split(entry) for entry in environment["dependencies"] if isinstance(entry, str))
    project = PYPROJECT["project"]
    wanted = list(project["dependencies"])
    for extra in ("train", "notebooks", "batch"):
        wanted += project["optional-dependencies"][extra]
    expected = {"python": project["requires-python"], "pip": ""}
    for requirement in wanted:
        name, version = _split(requirement)
        for conda_name in CONDA_NAMES.get(name, [name]):
            expected[conda_name] = version
    assert conda == expected


def test_versions_agree() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {cctoolkit.__version__}\n" in citation


def test_the_repository_has_one_address() -> None:
    """pyproject.toml says where the repository is; what must spell it out (to clone, to install) says the same."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if files.returncode:
        pytest.skip("not a git checkout")
    address = PYPROJECT["project"]["urls"]["Repository"]
    for name in filter(None, files.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".cff", ".ipynb"}:
            for found in re.findall(
                r"https://github\.com/[\w.-]+/cctoolkit\b", path.read_text(errors="replace")
            ):
                assert found == address, name


def test_every_public_name_resolves() -> None:
    for name in cctoolkit.__all__:
        assert getattr(cctoolkit, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        cctoolkit.nothing  # noqa: B018


def test_import_is_light() -> None:
    """`import cctoolkit` loads no heavy library; what it costs is measured in the benchmarks."""
    heavy = ["torch", "numba", "plotly", "sklearn", "scipy", "pandas", "ipywidgets", "jinja2", "onnxruntime"]
    code = f"import sys, cctoolkit; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_first_figure_of_a_notebook_is_quick() -> None:
    """Plotly imports nbformat, and that jsonschema, of which some versions parse dozens of grammars meanwhile."""
    pytest.importorskip("nbformat", reason="the extra `notebooks` is not installed")
    code = (
        "import sys; from cctoolkit.plot.style import figure; figure()._repr_mimebundle_();"
        "print(*{'nbformat', 'rfc3987_syntax'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["nbformat"]


def test_no_machine_paths() -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if files.returncode:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"(?<![\w.])/(?:" + "work|root|home/[a-z]+" + r")/")
    for name in files.stdout.split("\0"):
        path = ROOT / name
        if (
            name
            and path.is_file()
            and path.suffix in {".py", ".md", ".toml", ".yml", ".sh", ".ipynb", ".j2", ""}
        ):
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue
            assert not pattern.search(text), f"{name} names a path of one machine"


def test_workflows_name_files_that_exist() -> None:
    """Paths that start a workflow, keys of its caches, and the files it runs."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if files.returncode:
        pytest.skip("not a git checkout")
    names = files.stdout.split("\0")
    yaml = pytest.importorskip("yaml")
    for workflow in sorted((ROOT / ".github" / "workflows").iterdir()):
        text = workflow.read_text()
        patterns = (yaml.safe_load(text)[True]["push"] or {}).get("paths", [])  # YAML 1.1: `on` is true
        for keys in re.findall(r"hashFiles\((.*?)\)", text):
            patterns += re.findall(r"'(.+?)'", keys)
        patterns += re.findall(r"\btests/\w+\.py\b", text)
        for pattern in patterns:
            assert any(fnmatch.fnmatchcase(name, pattern) for name in names), f"{workflow.name}: {pattern}"


def test_every_supported_python_is_tested() -> None:
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    versions = jobs["test"]["strategy"]["matrix"]["python"]
    assert versions[0] == oldest == PYPROJECT["tool"]["mypy"]["python_version"]
    assert versions == [f"3.{minor}" for minor in range(11, 11 + len(versions))]
