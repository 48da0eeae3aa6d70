"""What is installed from the wheel works where there is no checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from documents import ROOT, code

pytest.importorskip("build", reason="the extra `dev` is not installed")
pytest.importorskip("hatchling", reason="the extra `dev` is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


class Installed:
    """An environment that has cctoolkit from the wheel, and what it needs from the one that runs the tests."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        environment = folder / "environment"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        command = [*pip, "--python", environment, "install", "--no-deps", "--no-index", wheel]
        subprocess.run(command, check=True)
        (packages,) = environment.glob("lib/python*/site-packages")
        self.packages = packages
        # after its own folder; an editable install of the checkout is a .pth file there, which is not read
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        # machine code is found by a digest of its source: what is the same as in the checkout is not compiled again
        for kernel in (ROOT / "cctoolkit").rglob("__pycache__/*.kernel"):
            copy = packages / kernel.relative_to(ROOT)
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(kernel, copy)
        self.bin = environment / "bin"
        self.variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(self, program: str, *arguments: object) -> str:
        done = subprocess.run(
            [self.bin / program, *map(str, arguments)],
            cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{program} {arguments}: {done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def test_the_wheel_has_what_is_looked_up(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    for name in (
        "cctoolkit/py.typed",
        "cctoolkit/__init__.pyi",
        "cctoolkit/testbed/traffic.c",
        "cctoolkit/separation/router_templates/junos.set.j2",
        "cctoolkit/identify/live/ebpf/collector.bpf.c",
        "cctoolkit/bundled_models/cca/model.json",
        "cctoolkit/scenario/example_traces/bufferbloat.ingress.pcap.gz",
    ):
        assert name in names
    assert not [name for name in names if name.startswith(("tests/", "hardware/", "notebooks/"))]
    assert wheel.stat().st_size < 20e6


def test_the_first_commands(installed: Installed) -> None:
    assert installed.run("cct", "--version").startswith("cctoolkit ")
    out = installed.run("cct", "demo")
    page = (installed.folder / "demo.html").read_text(encoding="utf-8")
    assert "wrote demo.html" in out and "cct demo: bufferbloat" in page
    (capture,) = re.findall(r"cct info (\S+)$", out, re.M)
    assert str(installed.packages) in capture
    assert "TCP flows" in installed.run("cct", "info", capture)
    assert [path.name for path in installed.folder.iterdir()] == ["demo.html"]


def test_what_the_package_looks_up(installed: Installed) -> None:
    script = """
import cctoolkit as cct
from cctoolkit.experiments import lessons
from cctoolkit.identify import bundled_models
run = cct.example()
assert len(run.ingress) > len(run.egress) > 1000
assert {"cca", "every-cca", "dragonfly"} <= set(bundled_models())
assert len(cct.paper_numbers("p4-codel")) > 5
print(cct.__file__)
"""
    assert str(installed.packages) in installed.run("python", "-c", script)
    capture = installed.packages / "cctoolkit/scenario/example_traces/mixed.ingress.pcap.gz"
    rules = ("--router", "junos", "--interface", "ge-0/0/0", "--ingress", "ge-0/0/1")
    assert "set " in installed.run("cct", "separate", capture, "-k", 2, "--long", 100_000, *rules)
    assert "codel" in installed.run("cct", "experiment", "list")
    assert "cca" in installed.run("cct", "classify", capture)


def test_the_readme_runs_anywhere(installed: Installed) -> None:
    script = installed.folder / "readme.py"
    script.write_text("\n".join(code(ROOT / "README.md", "python")), encoding="utf-8")
    installed.run("python", script)
