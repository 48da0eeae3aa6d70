"""The ``uml`` backend: a User Mode Linux kernel with all hosts as namespaces, in virtual time, without root.

With ``time-travel=inf-cpu`` the clock of the guest stands still while it computes and jumps to the next timer when
it is idle. So packets have the times of an ideal network, whatever the host does meanwhile, and the same plan, seed
and kernel give the same packets to the byte.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .._support.children import ending_with_parent, staying_on_one_processor
from ..errors import ParameterError, TestbedUnavailableError
from . import traffic
from .errors import TestbedError
from .iperf3 import iperf3_lines
from .kernel import Kernel, find_kernel
from .netlink import needs_netlink, qdisc_messages
from .plan import MACHINE_SYSCTLS, Plan, TapSettings, batch

__all__ = ["EPOCH_NS", "run"]

#: The guest's clock at boot and at the start of the run; in between it is set up and the taps start to listen.
_BOOT_NS = 1_700_000_000_000_000_000
EPOCH_NS = _BOOT_NS + 5_000_000_000
#: How the guest's processes run. Kernels before 6.16 do not know this option, and it is part of their command line.
_MODE = "seccomp=auto"
#: The guest's random numbers depend on the seed, the command line and the size of its memory, which are always the
#: same. The directory of the run is the working directory, whose name never changes.
_COMMAND = (
    "rootfstype=hostfs", "rootflags=/", "ro", "mem=2G", "init=/proc/self/cwd/init", "con=null", "con0=null,fd:1",
    "quiet", "loglevel=3", "panic=-1", _MODE, "time-travel=inf-cpu", f"time-travel-start={_BOOT_NS}",
)  # fmt: skip
#: The taps write this much at once.
_CHUNK_BYTES = 1 << 20
_NO_PTRACE = b"ptrace: Operation not permitted"
_TOOLS = ("ip", "tc", "tcpdump", "mount", "stdbuf")
_VERSIONS = {"iproute2": ("ip", "-V"), "tcpdump": ("tcpdump", "--version")}
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def run(
    plan: Plan,
    directory: Path,
    recording: TapSettings,
    *,
    poll: Callable[[], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Run a plan in a guest.

    Parameters
    ----------
    plan : Plan
        What to run, with namespaces in ``/run/netns``, as in the guest.
    directory : Path
        An empty directory for ``ingress.pcap``, ``egress.pcap``, the results of the traffic program, ``qdisc.json``
        and the output of the guest.
    recording : TapSettings
        What to record.
    poll : function, optional
        Called repeatedly while the guest runs, to answer a controller's requests.
    progress : function, optional
        Called with the time of the run so far in s.

    Returns
    -------
    dict
        Provenance of the run.

    Raises
    ------
    TestbedUnavailableError
        There is no kernel, or it or a tool does not support the plan.
    TestbedError
        The guest failed.
    """
    for tool in (*_TOOLS, "iperf3") if recording.iperf3 else _TOOLS:
        if shutil.which(tool, path=_PATH) is None:
            raise TestbedUnavailableError(
                f"{tool}: not found in {_PATH}; install iproute2, tcpdump, mount, coreutils (and iperf3, if asked for)"
            )
    kernel = find_kernel()
    if directory.resolve().is_relative_to("/dev"):
        raise TestbedUnavailableError(
            f"{directory.parents[1]}: the guest has its own /dev; use another folder"
        )
    versions = _VERSIONS | ({"iperf3": ("iperf3", "--version")} if recording.iperf3 else {})
    with _naming_a_full_disk(directory):
        _write(plan, directory, recording, kernel)
        for arguments in _arguments(kernel):
            _boot([str(kernel.path), *arguments], directory, plan.scenario.seed, poll or _nothing, progress)
            if _NO_PTRACE not in (directory / "console").read_bytes():
                break
        _check(plan, directory)
    return {
        "backend": "uml",
        "kernel": (directory / "kernel").read_text().strip(),
        "kernel_sha256": kernel.sha256,
        **({"kernel_with": kernel.code} if kernel.code else {}),
        "kernel_arguments": arguments,
        "tools": {name: _version(*command) for name, command in versions.items()},
    }


def _version(*command: str) -> str:
    """The first line of a tool's version message."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": _PATH})
    return (done.stdout or done.stderr).partition("\n")[0].strip()


def _arguments(kernel: Kernel) -> list[list[str]]:
    """Arguments to try: ptrace if possible, on every machine.

    The kernel's own choice depends on the processor and the sandbox. With seccomp filters, the end of a process is an
    interrupt, and interrupts enter the guest's random numbers, so the bytes of a run would depend on that choice.
    """
    modes = ("seccomp=off", "seccomp=on") if kernel.has_seccomp else (_MODE,)
    return [[mode if argument == _MODE else argument for argument in _COMMAND] for mode in modes]


def _nothing() -> None:
    pass


@contextlib.contextmanager
def _naming_a_full_disk(directory: Path) -> Iterator[None]:
    """Report failures on a full disk, also in the guest, as what they are."""
    try:
        yield
    except (OSError, TestbedError) as err:
        full = isinstance(err, OSError) and err.errno == errno.ENOSPC
        if not full and (isinstance(err, OSError) or shutil.disk_usage(directory).free >= _CHUNK_BYTES):
            raise
        raise TestbedError(f"{directory.parents[1]}: no space left on this disk") from None


def _write(plan: Plan, directory: Path, recording: TapSettings, kernel: Kernel) -> None:
    """Write the input of the guest."""
    steps = directory / "plan"
    steps.mkdir()
    texts = {
        "machine.sysctl": batch(f"{path} {value}" for path, value in MACHINE_SYSCTLS.items()),
        "modules": batch(
            f"{kernel.module(x.kind, x.owner)} {x.name} {x.value} {'needed' if x.needed else 'optional'}"
            for x in plan.modules
        ),
        "links": batch(plan.link_lines()),
        "hosts": batch(plan.hosts),
        "changes": batch(f"{at_ns} change{i}" for i, (at_ns, _) in enumerate(plan.changes)),
        "snaplen": f"{recording.snaplen}\n",
        "epoch_ns": f"{EPOCH_NS}\n",
        "traffic": plan.traffic_text(recording, "/mnt/run/control", ("tc", "-netns", "R", "-batch")),
    }
    if recording.iperf3:
        texts["iperf3"] = batch(iperf3_lines(plan, recording.sample_ns))
    for i, (_, lines) in enumerate(plan.changes):
        texts[f"change{i}"] = batch(lines)
    for name, host in plan.hosts.items():
        # settings of the whole machine are inherited
        own = {path: value for path, value in host.sysctls.items() if MACHINE_SYSCTLS.get(path) != value}
        texts |= {
            f"{name}.sysctl": batch(f"{path} {value}" for path, value in own.items()),
            f"{name}.ip": batch(host.ip),
            f"{name}.tc": batch(line for line in host.tc if not needs_netlink(line)),
            f"{name}.sh": batch(host.commands),
        }
    for name, text in texts.items():
        if text or name == "changes":
            (steps / name).write_text(text, encoding="utf-8")
    (steps / "R.netlink").write_bytes(qdisc_messages(filter(needs_netlink, plan.hosts["R"].tc)))
    (directory / "control").mkdir()
    guest = Path(__file__).with_name("guest")
    programs = {
        "init": guest / "init.sh",
        "traffic": traffic.binary(),
        "netlink": traffic.binary(guest / "netlink.c"),
    }
    for name, source in programs.items():
        shutil.copyfile(source, directory / name)
        (directory / name).chmod(0o755)


def _boot(
    command: list[str],
    directory: Path,
    seed: int,
    poll: Callable[[], None],
    progress: Callable[[float], None] | None,
) -> None:
    """Run the kernel until it halts; it never outlives this process or an exception here.

    It and the processes of its guest wait for each other at every system call, so they are three times as fast on one
    processor as on several.
    """
    # Its management socket goes into the home directory.
    environment = {"PATH": _PATH, "HOME": str(directory.resolve()), "UMLSEED": str(seed)}
    environment |= {name: os.environ[name] for name in ("TMPDIR", "TMP", "TEMP") if name in os.environ}
    with (directory / "console").open("wb") as console:
        try:
            process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ending_with_parent(staying_on_one_processor()),  # noqa: PLW1509
            )
        except OSError as err:
            raise TestbedUnavailableError(f"{command[0]}: {err.strerror}") from None
        with _ending(process):
            pause_s, next_s = 0.0005, 0.0
            while True:
                try:
                    process.wait(pause_s)
                    break
                except subprocess.TimeoutExpired:
                    poll()
                    if progress is not None and time.monotonic() >= next_s:
                        next_s = time.monotonic() + 0.2
                        progress(_reached_s(directory))
                    if poll is _nothing:
                        pause_s = min(2 * pause_s, 0.1)


@contextlib.contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process and its group with this block, or with this process, however it ends.

    A shell kills the group when its input closes. The death of the kernel alone is not enough: processes of the guest
    that it was just starting would sleep forever.
    """
    guard = subprocess.Popen(
        ["/bin/sh", "-c", f"read _; kill -9 -{process.pid}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _reached_s(directory: Path) -> float:
    """Time of the run so far in s."""
    try:
        return int((directory / "progress").read_text()) / 1e9
    except (OSError, ValueError):  # not there yet, or just being written
        return 0.0


def _check(plan: Plan, directory: Path) -> None:
    """Raise an error of the guest, if there is one."""
    error = directory / "error"
    if error.is_file():
        what, *details = error.read_text(encoding="utf-8", errors="replace").splitlines() or ["?"]
        raise _explained(plan, directory, what, details)
    if not (directory / "done").is_file():
        console = (directory / "console").read_text(encoding="utf-8", errors="replace").strip()
        panic = re.search(r"Kernel panic - not syncing: .*", console)
        ending = panic[0] if panic else console.rpartition("\n")[2]
        raise TestbedError(f"the guest stopped: {ending or 'no output'}")
    for tap in ("ingress", "egress"):
        text = (directory / f"{tap}.log").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"(\d+) packets? dropped by kernel", text)
        if found is None or int(found[1]):
            last = text.strip().splitlines()[-1:] or ["nothing"]
            raise TestbedError(f"the {tap} capture is incomplete: tcpdump printed {last[0]!r}")


def _explained(plan: Plan, directory: Path, what: str, details: list[str]) -> Exception:
    kernel = (directory / "kernel").read_text().strip()
    text = " ".join(
        line.strip() for line in details if line.strip() and not line.startswith("Command failed")
    )
    at = re.search(r"Command failed (plan/[\w.]+):(\d+)", "\n".join(details))
    line = (directory / at[1]).read_text().splitlines()[int(at[2]) - 1] if at else ""
    if what == "traffic":
        available = (directory / "ccas").read_text().split()
        for flow in plan.flows:
            if not flow.is_udp and flow.cca not in available:
                return TestbedUnavailableError(
                    f"flows: kernel {kernel} has no congestion control {flow.cca!r}; it has "
                    f"{', '.join(sorted(available))}"
                )
        return TestbedError(text.removeprefix("traffic: ") or "the traffic program failed")
    if "Specified qdisc kind is unknown" in text or "Unknown qdisc" in text:
        words = line.split()
        kind = (
            words[words.index("handle") + 2] if "handle" in words else "dualpi2"
        )  # which tc was not asked for
        return TestbedUnavailableError(f"bottleneck.aqm: kernel {kernel} or its tc has no qdisc {kind!r}")
    if what == "modules" and text.endswith("; it has"):  # no parameters at all: there is no such module
        module = text.partition(" has no parameter")[0]
        return TestbedUnavailableError(
            f"kernel {kernel} has no {module}: build one that has it with cct testbed build --with DIR"
        )
    if what == "modules":
        return ParameterError(f"kernel {kernel}: {text}")
    if what.startswith("commands of "):
        return TestbedUnavailableError(
            f"flows.delayed_ack: more than 2 needs ethtool and veth with GRO: {text}"
        )
    if what.startswith("settings of "):
        return TestbedUnavailableError(f"flows: kernel {kernel} supports accurate ECN only with dctcp")
    return TestbedError(f"{what}: {text or 'failed'}{f' (in: {line})' if line else ''}")
