"""``cct testbed``: a scenario's file in, what came of it to the terminal and to directories."""

from __future__ import annotations

import sys
from pathlib import Path

from .._support.terminal import listing, show
from ..errors import ParameterError
from ..scenario import read_scenario, read_sweep
from ..scenario.terminal import show_run

__all__ = ["build", "doctor", "run", "sweep"]


def run(
    path: Path, output: Path | None, *, backend: str, sample_s: float, snaplen: int, iperf3: bool = False
) -> None:
    """Run what a TOML file says, keep it in `output` (without it, a directory named as the file) and print a summary.

    Raises
    ------
    ParameterError, TestbedUnavailableError, TestbedError
        What is wrong, and where.
    """
    from .testbed import run_testbed

    jobs = read_sweep(path)
    if len(jobs) > 1 or jobs[0][0]:
        raise ParameterError(f"{path}: has a [sweep]; run it with `cct testbed sweep`")
    scenario = read_scenario(path)
    if not scenario.name:
        scenario = scenario.replace({"name": path.stem})
    output = output or Path(path.stem)
    done = run_testbed(
        scenario,
        output,
        backend=backend,
        sample_s=sample_s,
        snaplen=snaplen,
        iperf3=iperf3,
        progress=sys.stderr.isatty(),
    )
    show_run(done)
    print(f"wrote {output}")


def sweep(
    path: Path, output: Path | None, *, backend: str, sample_s: float, snaplen: int, workers: int | None
) -> None:
    """Run all scenarios of a TOML file with a [sweep] and print the table of what came out.

    Raises
    ------
    ParameterError, TestbedUnavailableError, TestbedError
        What is wrong, and where.
    """
    from .sweep import run_testbed_sweep

    output = output or Path(path.stem)
    table = run_testbed_sweep(
        read_sweep(path),
        output,
        backend=backend,
        sample_s=sample_s,
        snaplen=snaplen,
        workers=workers,
        progress=sys.stderr.isatty(),
    )
    show(listing(table.drop(columns="directory")))
    print(f"wrote {len(table)} runs to {output}")


def build(source: Path | None, jobs: int | None) -> None:
    """Make the kernel of the uml backend, say where it is, and see whether it runs here."""
    from .kernel import build_kernel, check_kernel

    kernel = build_kernel(source, jobs=jobs)
    print(f"Linux {kernel.version}\nsha256 {kernel.sha256}\nwrote {kernel.path}")
    check_kernel(kernel)


def doctor() -> bool:
    """Print what each backend needs, has and lacks; whether any can run here."""
    from .doctor import BACKENDS, examine, table

    findings = examine()
    show(table(findings))
    return any(all(f.good or not f.needed for f in findings if f.backend == b) for b in BACKENDS)
