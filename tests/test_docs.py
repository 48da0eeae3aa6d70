"""The documentation: what it prints can be typed, and the book builds without a warning."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
import zlib
from pathlib import Path

import pytest
from documents import ROOT, blocks, code, commands
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit import cli
from cctoolkit.scenario.scenario import scenario_of
from cctoolkit.testbed.kernel_code import read_kernel_code
from cctoolkit.testbed.plan import make_plan

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "testbed.md",
    ROOT / "docs" / "separation.md",
    ROOT / "docs" / "live.md",
    ROOT / "docs" / "identification.md",
    ROOT / "docs" / "add-a-congestion-control.md",
    ROOT / "docs" / "batch.md",
    ROOT / "docs" / "scale.md",
    ROOT / "docs" / "index.md",
    *GUIDES,
]
READMES = [
    path
    for folder in ("benchmarks", "hardware", "notebooks", "traces")
    for path in (ROOT / folder).rglob("README.md")
]
documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where the documents' paths lead to files; some captures have names that stand for yours."""
    for name in ("traces", "hardware", "notebooks", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name, trace in {
        "trace.pcap.gz": "cubic-bbr.ingress",
        "in.pcap.gz": "cubic-bbr.ingress",
        "out.pcap.gz": "cubic-bbr.egress",
        "day.pcap.gz": "mixed.ingress",
        "202402151400.pcap.gz": "mixed.ingress",
    }.items():
        shutil.copy(ROOT / "traces" / f"{trace}.pcap.gz", tmp_path / name)
    (scenario,) = code(ROOT / "docs" / "simulator.md", "toml")
    single = scenario.partition("[sweep]")[0]
    (tmp_path / "shared.toml").write_text(single, encoding="utf-8")
    (tmp_path / "grid.toml").write_text(f"{single}[sweep]\nduration_s = [1, 2]\n", encoding="utf-8")
    aimd = code(ROOT / "docs" / "add-a-congestion-control.md", "python")[0]
    (tmp_path / "aimd.py").write_text(aimd, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@documents
def test_python_runs_in_order(document: Path, checkout: Path) -> None:
    script = checkout / "document.py"
    script.write_text("\n".join(code(document, "python")), encoding="utf-8")
    if "run_testbed(" in script.read_text(encoding="utf-8"):
        uml_kernel()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        names = runpy.run_path(str(script))
    assert "cct" in names or not script.read_text(encoding="utf-8")


@pytest.mark.slow
@documents
def test_commands_run(
    document: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if any(command.startswith("cct testbed") for command in commands(document)):
        uml_kernel()
    for command in commands(document):
        program, *arguments = shlex.split(re.sub(r"^NUMBA_\w+=\d ", "", command))
        if program == "cct":
            monkeypatch.setattr(sys, "argv", ["cct", *arguments])
            with pytest.raises(SystemExit) as ended:
                cli.main()
                sys.exit(0)
            assert not ended.value.code, f"{command}: {capfd.readouterr().err}"
        elif program == "python":
            subprocess.run([sys.executable, *arguments], check=True)
        elif program == ".venv/bin/python":  # a part of these tests
            assert arguments[:2] == ["-m", "pytest"]
            found = [sys.executable, *arguments, "--collect-only", "-q"]
            subprocess.run(found, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        else:
            assert program == "make", f"{document.name}: who tests {command!r}?"
            targets = re.findall(r"^(\w+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
            assert set(arguments) <= set(targets)


def test_documents_have_what_is_tested() -> None:
    assert {path.stem for path in GUIDES} == {"analyst", "educator", "researcher"}
    for document in (ROOT / "README.md", *GUIDES):
        assert code(document, "python"), document.name
        assert commands(document), document.name
    for document in ROOT.glob("docs/**/*.md"):
        unknown = {block.language for block in blocks(document)} - {
            "python",
            "console",
            "toml",
            "toctree",
            "c",
            "make",
            "diff",
        }
        assert not unknown, f"{document.name}: {unknown}"


def test_the_patch_of_codels_clock_compares_as_our_program_does() -> None:
    (patch,) = [b.text for d in ROOT.glob("docs/**/*.md") for b in blocks(d) if b.language == "diff"]
    before, after = (next(line for line in patch.splitlines() if line.startswith(sign)) for sign in "-+")
    signed = re.compile(r"\(int<32>\) \(([\w.]+) - ([\w.]+)\) >")
    now, due = signed.search(after).groups()
    assert f"{now} > {due}" in before
    assert signed.search((ROOT / "hardware" / "programs" / "codel" / "tofino.p4").read_text(encoding="utf-8"))


def test_the_example_of_kernel_code_is_the_file() -> None:
    document = ROOT / "docs" / "kernel-code.md"
    folder = ROOT / "hardware" / "linux" / "example"
    assert code(document, "c") == [(folder / "sch_lazy.c").read_text(encoding="utf-8")]
    assert code(document, "make") == [(folder / "Makefile").read_text(encoding="utf-8")]
    (scenario,) = code(document, "toml")
    plan = make_plan(scenario_of(tomllib.loads(scenario)))
    parameters = read_kernel_code(folder).qdiscs["lazy"]["parameters"]
    assert [one.name for one in plan.modules] == ["target_us", "limit"] == sorted(parameters, reverse=True)


@pytest.mark.parametrize(
    "document",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *READMES],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            generated = "generated" in target  # by the book's build
            assert generated or (document.parent / target).exists(), target


def test_where_there_is_a_package_the_first_cell_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses IPython's commands only behind the question whether the package is there."""
    from IPython.core.inputtransformer2 import TransformerManager

    spec = importlib.util.spec_from_file_location("notebooks_build", ROOT / "notebooks" / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    sources = build.sources()
    assert len(sources) > 2
    for source in sources:
        cells = build.notebook_of(source).cells
        assert cells[0].cell_type == "markdown"
        assert "install" in cells[1].metadata["tags"]
        folder = source.parent.relative_to(ROOT).as_posix()
        assert f'os.chdir("cctoolkit/{folder}")' in cells[1].source
        text = TransformerManager().transform_cell(cells[1].source)
        monkeypatch.chdir(tmp_path)
        names: dict[str, object] = {}
        exec(compile(text, "cell", "exec"), names)
        assert Path.cwd() == tmp_path
        assert "os" not in names


@pytest.mark.slow
def test_binder_and_colab_start(tmp_path: Path) -> None:
    """What Binder installs exists, and what it runs then runs."""
    (line,) = (ROOT / "binder" / "requirements.txt").read_text().splitlines()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert re.fullmatch(r"--editable \.\[(\w+)\]", line)[1] in extras
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run([ROOT / "binder" / "postBuild"], cwd=ROOT, env=os.environ | {"PATH": path}, check=True)


def test_the_address_of_the_repository_stands_in_one_place() -> None:
    """In the project's metadata. Notebooks get it when they are made; nothing else leads where nothing may be."""
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    found = {
        path.relative_to(ROOT).as_posix()
        for pattern in (
            "*.*",
            "docs/**/*.*",
            "cctoolkit/**/*.py",
            "notebooks/**/*.py",
            "notebooks/**/*.md",
            "binder/*",
        )
        for path in ROOT.glob(pattern)
        if path.suffix in (".md", ".toml", ".py", ".yml", ".cff", ".txt", ".rst")
        and address.partition("//")[2] in path.read_text(encoding="utf-8")
    }
    assert found == {"pyproject.toml"}
    for source in ROOT.glob("notebooks/**/[0-9]*.ipynb"):
        if ".ipynb_checkpoints" not in source.parts:
            assert address in source.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book, its notebooks without outputs; fails on any warning."""
    for package in ("sphinx", "myst_nb", "sphinx_book_theme", "numpydoc", "sphinx_copybutton"):
        pytest.importorskip(package, reason="the extra `docs` is not installed")
    target = tmp_path_factory.mktemp("book")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-c",
        "docs",
        "-b",
        "dirhtml",
        "-W",
        "--keep-going",
        "-q",
        "-d",
    ]
    done = subprocess.run(
        [*command, str(target / "doctrees"), ".", str(target / "html")],
        cwd=ROOT,
        env=os.environ | {"BOOK_NOTEBOOKS": "off"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return target / "html"


def inventory(book: Path) -> set[str]:
    """Names of Python objects that the book documents (the end of Sphinx's objects.inv is compressed lines)."""
    lines = zlib.decompress((book / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    return {line.split()[0] for line in lines if " py:" in line}


@pytest.mark.slow
def test_the_book_builds_and_has_everything(book: Path) -> None:
    documented = inventory(book)
    for name in cct.__all__:
        value = getattr(cct, name)
        if name != "capture":  # a folder of modules
            assert (value.__name__ if inspect.ismodule(value) else f"cctoolkit.{name}") in documented
    for module in ("aqm", "cca", "plot", "errors"):
        for name in set(getattr(cct, module).__all__) - {
            "DROP",
            "DROP_LATE",
            "MARK",
            "PASS",
            "BIG_SHARE",
            "Names",
        }:
            places = {f"cctoolkit.{where}.{name}" for where in (module, f"{module}.base")} | {
                f"cctoolkit.{name}"
            }
            assert places & documented, f"{module}.{name}"
    pages = {path.relative_to(book).parent.as_posix() for path in book.rglob("index.html")}
    for source in ROOT.glob("notebooks/**/[0-9]*.ipynb"):
        if ".ipynb_checkpoints" not in source.parts:
            assert source.relative_to(ROOT).with_suffix("").as_posix() in pages
    reference = (book / "docs" / "api" / "generated" / "cct" / "index.html").read_text(encoding="utf-8")
    for command in ("cct-info", "cct-testbed-run", "cct-experiment-sim-vs-kernel", "cct-synth-mawi"):
        assert f'id="{command}"' in reference
