"""The results that are kept in ``data/results/``: the command that makes each, and the code that it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .code_hash import NOT_SIMULATED

__all__ = ["RESULTS", "Result"]

_HERE = "cctoolkit.experiments"


@dataclass(frozen=True)
class Result:
    """A kept result.

    Parameters
    ----------
    what : str
        A short description.
    command : str
        The command that makes it. ``-o DIR`` is added, and it writes its tables there as Parquet.
    tables : tuple of str
        The tables that are kept.
    code : tuple of str
        Modules that determine the numbers, including everything they import.
    files : tuple of str
        Patterns of other files that determine the numbers.
    without : tuple of str
        Modules and packages that the command does not use with its options.
    book : str
        Module whose ``VIEWS`` show the result on pages.
    why_not : str
        Reason why ``results make`` cannot make it; empty if it can.
    """

    what: str
    command: str
    tables: tuple[str, ...]
    code: tuple[str, ...]
    book: str
    why_not: str = ""
    files: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def runs_here(self) -> bool:
        """Whether ``results make`` can make it."""
        return not self.why_not

    @property
    def on_linux(self) -> bool:
        """Whether it has runs on the testbed's kernel."""
        return _UML in self.code


#: What real Linux adds to what a result depends on: the backend, which is imported by name, and sources in C.
_UML = "cctoolkit.testbed.uml"
#: What an experiment that only simulates does not use. Windows are cut from labelled flows, so nothing asks what limits
#: a flow.
_NOT_USED = (*NOT_SIMULATED, "cctoolkit.analysis.limits")
_LINUX = (
    "cctoolkit/testbed/guest/*",
    "cctoolkit/testbed/kernel/*",
    "hardware/linux/aqm/*.[ch]",
    "hardware/linux/example/*.[ch]",
    "hardware/linux/prague/*.[ch]",
    "hardware/linux/prague/*.patch",
)


def _experiment(name: str, what: str, options: str, *tables: str) -> Result:
    package = f"{_HERE}.{name.replace('-', '_')}"
    command = f"cct experiment {name} {options}".strip()
    parts, book = f"{package}.parts", f"{package}.book"
    if name == "sim-vs-kernel" or "--testbed" in options:
        return Result(what, command, tables, (parts, _UML), book, files=_LINUX)
    return Result(what, command, tables, (parts,), book, without=_NOT_USED)


def _benchmark(where: str, options: str, *code: str, files: tuple[str, ...] = (), **other: Any) -> Result:
    parts = tuple(
        f"cctoolkit.identify.{name}" for name in ("baselines", "benchmark", "bundle", "leaderboard")
    )
    return Result(
        f"the bundled classifier at home and elsewhere, {where}", f"cct benchmark cca {options}",
        ("scores", "reliability"), (*parts, *code), f"{_HERE}.books.benchmark",
        files=("data/models/cca/*", *files), **other,
    )  # fmt: skip


_BENCHMARKS = ("startup", "decode", "analysis", "slots", "report", "sim", "separation", "identify")

RESULTS = {
    "codel": _experiment(
        "codel", "the P4-CoDel paper's table, and what makes its targets differ", "--full",
        "figure5", "table1", "table1_runs", "table1_minute", "figure7", "rtts", "fq_codel", "if_3", "square_root",
        "square_root_error", "clock", "npu",
    ),
    "codel-linux": _experiment(
        "codel", "table I and figure 7 with real Linux", "--part table-1 --part figure-7 --testbed",
        "table1", "table1_runs", "figure7",
    ),
    "abc": _experiment(
        "abc", "the ABC paper's three ways to share a link", "--full",
        "clients", "integers", "why_clients", "why",
    ),
    "abc-delay": _experiment(
        "abc", "ABC's flood and connection with more delay in front of the switch", "--full --only delay", "delay",
    ),
    "abc-bmv2": Result(
        "figure 6 of the ABC paper on BMv2, and where packets are lost", "python -m hardware.launch.abc_flood",
        ("bmv2",), ("hardware.launch.abc_flood", "hardware.programs.abc.experiment"), f"{_HERE}.books.abc_bmv2",
        files=("hardware/programs/abc/*.p4", "hardware/common/*.p4"),
    ),
    "abc-linux": _experiment(
        "abc", "ABC in a Linux kernel", "--only linux --testbed", "linux",
    ),
    "l4s": _experiment(
        "l4s", "iRED, PI2 and DualPI2", "--full --seeds 5",
        "phases", "table3", "drop-delay", "logs", "registers", "readings", "published-logs", "published-registers",
        "slow-start", "growth", "late", "late-registers", "joining", "causes", "identification", "uneven",
    ),
    "l4s-clock": _experiment(
        "l4s", "P4-CoDel's clock in the registers of the L4S paper's switch", "--full --part clock",
        "clock-logs", "clock-registers", "clock-phases",
    ),
    "l4s-drops": _experiment(
        "l4s", "drops of iRED's and P4-CoDel's published programs beside the L4S paper's switch", "--full --part drops",
        "drops", "drops-phases",
    ),
    "l4s-stalled": _experiment(
        "l4s", "the L4S paper's load without the connections that stalled in its logs",
        "--full --part stalled", "stalls", "stalled", "stalled-registers",
    ),
    "l4s-delays": _experiment(
        "l4s", "queueing delays of iRED and PI2 beside the L4S paper's switch, phase by phase",
        "--full --part delays", "delay-registers", "delay-phases",
    ),
    "l4s-linux": _experiment(
        "l4s", "iRED, PI2 and DualPI2 in a Linux kernel with TCP Prague", "--full --part kernel --testbed", "kernel",
    ),
    "l4s-netem-linux": _experiment(
        "l4s", "the L4S paper's load in a Linux kernel, with the RTT in netem at the receiver",
        "--full --part netem --testbed", "netem",
    ),
    "rtt-separation": _experiment(
        "rtt-separation", "the RTT paper's tests in the simulator, with all of the 6000 transfers", "--full",
        *(f"test{number}" for number in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11)), "scaling", "table1",
    ),
    "rtt-separation-linux": _experiment(
        "rtt-separation", "tests 1 and 3 in the simulator and on real Linux", "--testbed",
        "test1", "test3",
    ),
    "dragonfly": _experiment(
        "dragonfly", "the Dragonfly paper's figures on simulated runs, all parts",
        "--full --runs 500 --seconds 10 --seeds 1 --window-ms 10 --window-ms 100 --window-ms 1000",
        "volatility", "inputs", "epochs", "windows", "background", "recall", "learning-curve", "sampling", "splits",
        "published", "baseline",
    ),
    "dragonfly-paper": _experiment(
        "dragonfly", "the Dragonfly paper's single inputs with as many runs as it has, each of a minute",
        "--full --seeds 1 --only inputs --only windows", "inputs", "windows",
    ),
    "dragonfly-minute": _experiment(
        "dragonfly", "Dragonfly and DeePCCI on as many simulated flows as the paper has, with windows up to a minute",
        "--full --runs 500 --seeds 1 --window-ms 6000 --window-ms 10000 --window-ms 60000 "
        "--longest 'Dragonfly, CBIQ only=1000' --longest ours=1000 --only windows",
        "windows", "background",
    ),
    "dragonfly-minute-0": _experiment(
        "dragonfly", "Dragonfly with windows up to a minute, learnt from runs without background flows alone",
        "--full --background 0 --runs 300 --seeds 1 --window-ms 10000 --window-ms 60000 "
        "--longest 'Dragonfly, CBIQ only=1000' --longest DeePCCI=1000 --longest ours=1000 --only windows", "windows",
    ),
    "dragonfly-minute-1500": _experiment(
        "dragonfly", "Dragonfly with windows of a minute, on as many simulated runs as the paper has",
        "--full --runs 1500 --seeds 1 --window-ms 60000 --longest 'Dragonfly, CBIQ only=1000' --longest DeePCCI=1000 "
        "--longest ours=1000 --only windows", "windows", "background",
    ),
    "dragonfly-epochs": _experiment(
        "dragonfly", "the Dragonfly paper's training with windows of 10 s, from runs of a minute",
        "--full --runs 500 --seeds 1 --window-ms 10000 --longest DeePCCI=1000 --only epochs", "epochs",
    ),
    "dragonfly-linux": Result(
        "the Dragonfly paper's classifiers on the same runs in the simulator and on real Linux",
        "cct experiment dragonfly --full --testbed --runs 200 --seconds 11 --seeds 1 --window-ms 100 --window-ms 1000 "
        "--window-ms 10000 --longest 'Dragonfly, CBIQ only=1000' --longest ours=1000 --only linux", ("linux",),
        (f"{_HERE}.dragonfly.parts", _UML), f"{_HERE}.dragonfly.book", files=(*_LINUX, "data/models/cca/*"),
    ),
    "dragonfly-physical": _experiment(
        "dragonfly", "the Dragonfly paper's figures on runs like its physical network, and in its cloud",
        "--full --network physical --runs 500 --seconds 20 --seeds 1 --window-ms 10 --window-ms 100 --window-ms 1000 "
        "--window-ms 6000 --window-ms 10000 --longest DeePCCI=1000 --only cbiq --only inputs --only windows",
        "volatility", "inputs", "windows", "background", "cloud",
    ),
    "dragonfly-baseline": _experiment(
        "dragonfly", "DeePCCI as the Dragonfly paper's authors published it, and as its own paper has it",
        "--full --runs 500 --seconds 11 --seeds 1 --window-ms 100 --window-ms 1000 --window-ms 6000 --window-ms 10000 "
        "--only baseline", "baseline",
    ),
    "dragonfly-baseline-physical": _experiment(
        "dragonfly", "the same on runs like the physical network's without background flows",
        "--full --network physical --background 0 --runs 200 --seconds 12 --seeds 1 --window-ms 10000 --only baseline",
        "baseline",
    ),
    "dragonfly-background-0": _experiment(
        "dragonfly", "networks that learn from runs like the physical network's without background flows alone",
        "--full --network physical --background 0 --runs 300 --seconds 12 --seeds 1 --window-ms 10 --window-ms 100 "
        "--window-ms 1000 --window-ms 10000 --longest 'Dragonfly, CBIQ only=1000' --longest ours=1000 --only windows",
        "windows", "background", "cloud",
    ),
    "dragonfly-background-75": _experiment(
        "dragonfly", "networks that learn from runs like the physical network's with 75 background flows alone",
        "--full --network physical --background 75 --runs 300 --seconds 12 --seeds 1 --window-ms 10 --window-ms 100 "
        "--window-ms 1000 --window-ms 10000 --longest 'Dragonfly, CBIQ only=1000' --longest ours=1000 --only windows",
        "windows", "background", "cloud",
    ),
    "dragonfly-cloud": _experiment(
        "dragonfly", "the Dragonfly paper's networks, trained in its cloud",
        "--full --network cloud --runs 162 --seeds 1 --window-ms 100 --window-ms 6000 --window-ms 60000 --only windows "
        "--longest 'Dragonfly, CBIQ only=100' --longest DeePCCI=6000 --longest ours=100", "windows",
    ),
    "dragonfly-runs": _experiment(
        "dragonfly", "Dragonfly's recall by epoch, and its scores with ever more runs like the physical network's",
        "--full --network physical --background 0 --runs 1500 --seconds 12 --seeds 1 --window-ms 10 --window-ms 100 "
        "--window-ms 1000 --only recall --only learning-curve", "recall", "learning-curve",
    ),
    "dragonfly-sampling": _experiment(
        "dragonfly", "the Dragonfly paper's random sampling on runs like its physical network",
        "--full --network physical --runs 150 --seconds 12 --seeds 1 --window-ms 10000 --only sampling", "sampling",
    ),
    "dragonfly-session": Result(
        "the Dragonfly authors' published session through the bundled models",
        "cct experiment dragonfly --full --seeds 2 --only session --session dragonfly-session.csv.xz "
        "--window-ms 100 --window-ms 1000 --window-ms 10000",
        ("session", "session-answers", "session-learnt"), (f"{_HERE}.dragonfly.parts",), f"{_HERE}.dragonfly.book",
        "the authors' session is not part of this repository", ("data/models/cca/*", "data/models/dragonfly/*"),
        _NOT_USED,
    ),
    "sim-vs-kernel": _experiment(
        "sim-vs-kernel", "the simulator's errors in 190 cases", "",
        "errors", "by_cca", "by_aqm", "by_quantity", "overall", "left_out",
    ),
    "prague-linux": _experiment(
        "sim-vs-kernel", "the simulator's Prague compared with Linux's", "--only prague", "overall", "by_aqm", "errors",
    ),
    "bbr3-linux": _experiment(
        "sim-vs-kernel", "the simulator's BBRv3 compared with Google's", "--only bbr3", "overall", "by_aqm", "errors",
    ),
    "models": Result(
        "scores of the bundled classifiers", "python data/models/build.py",
        ("cca", "others", "seeds", "feature-sets", "dragonfly", "every-cca", "rejection", "simulated",
         "families", "nebby", "nebby-runs"),
        (
            "cctoolkit.identify.dataset", "cctoolkit.identify.evaluation", "cctoolkit.identify.networks",
            "cctoolkit.identify.settings", "cctoolkit.identify.training", "cctoolkit.sim.simulation",
        ),
        f"{_HERE}.books.models",
        "it takes hours on real Linux and of training, and writes its tables itself",
        ("data/models/build.py",),
    ),
    "cca-benchmark": _benchmark("simulated", "--runs 24 --baselines", without=NOT_SIMULATED),
    "cca-benchmark-linux": _benchmark("on real Linux", "--runs 24 --on uml", _UML, files=_LINUX),
    "live": Result(
        "the live collector's rates, and live identification", "python -m benchmarks live",
        ("rates", "costs", "names"), ("benchmarks.live",), f"{_HERE}.books.live",
        files=("hardware/ebpf/*.c", "hardware/ebpf/*.h"),
    ),
    "benchmarks": Result(
        "speeds of reading, analysis, simulation, separation and classification",
        "python -m benchmarks " + " ".join(_BENCHMARKS), ("timings",),
        tuple(f"benchmarks.{name}" for name in _BENCHMARKS), f"{_HERE}.books.benchmarks",
    ),
    "growth": Result(
        "time and memory against packets, flows and cores", "python -m benchmarks growth", ("growth",),
        ("benchmarks.growth", "cctoolkit.report.command"), f"{_HERE}.books.growth",
    ),
    "ns3": Result(
        "the simulator compared with ns-3", "python -m benchmarks ns3", ("timings", "ns3"), ("benchmarks.ns3",),
        f"{_HERE}.books.ns3", files=("benchmarks/ns3_dumbbell.cc",),
    ),
    "batch": Result(
        "processor time and memory of `cct batch`", "python -m benchmarks batch", ("tasks", "sizes"),
        ("benchmarks.batch", "cctoolkit.batch.run", "cctoolkit.batch.piece"), f"{_HERE}.books.batch",
    ),
    "traces": Result(
        "the simulator compared with the bundled captures", "python -m benchmarks traces",
        ("traces",), ("benchmarks.traces",), f"{_HERE}.books.traces", files=("traces/MANIFEST.toml",),
    ),
    "robustness": Result(
        "what fuzzing tried, and the faults that it met", "python -m tests.fuzz --recorded",
        ("targets",), ("cctoolkit.capture.reader", "cctoolkit.schema"), f"{_HERE}.books.robustness",
        files=("tests/fuzz/*.py",),
    ),
}  # fmt: skip
