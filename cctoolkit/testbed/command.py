"""``cct testbed``: scenarios on real Linux TCP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .._support.atomic import check_target
from .._support.options import CommandGroup, OffloadOption, SampleOption
from .._support.ranges import LEAST_SNAPLEN, MOST_FRAME_BYTES
from .._support.terminal import listing, say, show
from .._support.words import plural
from ..errors import ParameterError

__all__ = ["app"]

app = CommandGroup()
testbed = CommandGroup(no_args_is_help=True, help="Run scenarios on real Linux TCP.")
app.add_typer(testbed, name="testbed")

_Scenario = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A .toml file.")]
_Folder = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Folder for the results.",
        show_default="SCENARIO without .toml, here",
    ),
]
_Backend = Annotated[
    str,
    typer.Option(
        help="`uml` (virtual time, no root), `netns` (this machine's kernel, real time, root) or `mininet`."
    ),
]
_Snaplen = Annotated[
    int, typer.Option(help="Bytes to keep of each captured packet.", min=LEAST_SNAPLEN, max=MOST_FRAME_BYTES)
]


@testbed.command("run")
def run_command(
    scenario: _Scenario,
    output: _Folder = None,
    backend: _Backend = "uml",
    sample: SampleOption = 0.1,
    snaplen: _Snaplen = 96,
    iperf3: Annotated[
        bool,
        typer.Option(help="Generate the traffic with iperf3 instead of the testbed's own program."),
    ] = False,
    offload: OffloadOption = False,
    ack_limit: Annotated[
        int | None,
        typer.Option(
            metavar="PACKETS",
            help="Delay by one netem at the receiver, with this room; its own default is 1000.",
            min=1,
            show_default="delays on both ways, without loss",
        ),
    ] = None,
) -> None:
    """Run a scenario; write captures, labels, TCP_INFO series and queue statistics to a folder.

    Example: `cct testbed run shared.toml -o shared`
    """
    from ..scenario import read_sweep
    from ..scenario.terminal import show_run
    from .testbed import run_testbed

    jobs = read_sweep(scenario)
    if len(jobs) > 1 or jobs[0][0]:
        raise ParameterError(f"{scenario}: has a [sweep]; run it with `cct testbed sweep`")
    ((_, single),) = jobs
    if not single.name:
        single = single.replace({"name": scenario.stem})
    output = output or Path(scenario.stem)
    check_target(output, folder=True)
    done = run_testbed(
        single,
        output,
        backend=backend,
        sample_s=sample,
        snaplen=snaplen,
        iperf3=iperf3,
        offload=offload,
        ack_limit=ack_limit,
        progress=sys.stderr.isatty(),
    )
    show_run(done)
    say(f"wrote {output}")


@testbed.command("sweep")
def sweep_command(
    scenario: _Scenario,
    output: _Folder = None,
    backend: _Backend = "uml",
    sample: SampleOption = 0.1,
    snaplen: _Snaplen = 96,
    offload: OffloadOption = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Number of runs at once.", show_default="one per core; in real time one", min=1),
    ] = None,
) -> None:
    """Run all scenarios of a file with a [sweep] table; write a folder for each, and one table.

    An interrupted sweep resumes.

    Example: `cct testbed sweep grid.toml -o grid`
    """
    from ..scenario import read_sweep
    from .sweep import run_testbed_sweep

    output = output or Path(scenario.stem)
    check_target(output, folder=True)
    table = run_testbed_sweep(
        read_sweep(scenario),
        output,
        backend=backend,
        sample_s=sample,
        snaplen=snaplen,
        offload=offload,
        workers=workers,
        progress=sys.stderr.isatty(),
    )
    show(listing(table.drop(columns="directory")))
    say(f"wrote {plural(len(table), 'run')} to {output}")


@testbed.command()
def build(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE",
            help="A Linux source tree, 6.12 or newer, or an archive of one.",
            show_default="/usr/src/linux-source-*",
        ),
    ] = None,
    code: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="DIR",
            help="Folder with kernel code of your own (C files, patches) to compile in; repeatable.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of compilers at once.", show_default="one per core", min=1)
    ] = None,
) -> None:
    """Build the kernel of the `uml` backend. Needed once; takes some minutes.

    With `--with`, scenarios may name what the folder registers: `aqm = "linux:NAME"`, `cca = "linux:NAME"`. Building
    again after an edit takes seconds.

    Example: `cct testbed build --with hardware/linux/aqm`
    """
    from .._support.algorithm.kernel_module import PREFIX
    from .kernel import check_code, check_kernel
    from .kernel_build import build_kernel

    kernel = build_kernel(source, code=code or (), jobs=jobs)
    for line in (f"Linux {kernel.version}", f"sha256 {kernel.sha256}", f"wrote {kernel.path}"):
        say(line)
    check_kernel(kernel)
    if kernel.code:
        check_code(kernel)
        say(f"with {', '.join(PREFIX + name for name in kernel.modules) or ', '.join(kernel.code)}")


@testbed.command()
def doctor() -> None:
    """Show what each backend needs on this machine, what is missing, and how to get it.

    The exit status is 1 if no backend can run.
    """
    from .doctor import BACKENDS, examine, table

    findings = examine()
    show(table(findings))
    if not any(all(f.good or not f.needed for f in findings if f.backend == b) for b in BACKENDS):
        raise typer.Exit(1)
