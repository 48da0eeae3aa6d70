"""The kernel of the ``uml`` backend: found and checked; :mod:`.kernel_build` builds it.

It is User Mode Linux with time travel: one program without modules, with all congestion controls and queue
disciplines of its source tree. The configuration is in ``kernel/config``. The patch in ``kernel/patch`` derives all
randomness of the guest from the environment variable UMLSEED (without which nothing changes), and sets the tick to
a millisecond, as in usual kernels, instead of a hundredth of a second, so that whatever Linux does by jiffies (the
probability of PIE, delayed acknowledgements) is as fine as elsewhere. Trees before 6.16 get ``kernel/patch-registers``,
too: their room for a process's registers is fixed, and too small for processors with AMX.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._support.algorithm.kernel_module import module_name
from .._support.cache_folder import kernel_folder
from ..errors import TestbedUnavailableError

__all__ = [
    "OLDEST",
    "Kernel",
    "check_code",
    "check_kernel",
    "check_modules",
    "find_kernel",
    "kernel_at",
    "version_numbers",
]

#: Environment variable with a kernel to use instead of those in the cache.
VARIABLE = "CCTOOLKIT_UML_KERNEL"
OLDEST = (6, 12)
_TOO_MANY_REGISTERS = (
    "it has no room for this processor's registers (AMX): build it again (cct testbed build)"
)


@dataclass(frozen=True)
class Kernel:
    """A kernel for the ``uml`` backend.

    Attributes
    ----------
    path : Path
        The file.
    sha256 : str
        Hash of the file. Together with seed and scenario, it determines every packet of a run.
    version : str
        Its version, such as ``"6.12.117-cct"``.
    has_seccomp : bool
        Besides ptrace, it can use seccomp filters to run the guest's processes (since 6.16).
    code : dict
        The user's own code in it: name of the folder to the hash of its files.
    modules : dict
        Names of its queue disciplines and congestion controls to their modules (named after their C files).
    """

    path: Path
    sha256: str
    version: str
    has_seccomp: bool = False
    code: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)

    def module(self, kind: str, name: str) -> str:
        """Module of a queue discipline (`kind` ``"sch"``) or congestion control (``"tcp"``): by custom ``sch_NAME``."""
        return self.modules.get(name, module_name(kind, name))


def find_kernel() -> Kernel:
    """Find the kernel to use: ``$CCTOOLKIT_UML_KERNEL``, else the one that ``cct testbed build`` built last.

    Raises
    ------
    TestbedUnavailableError
        There is none, or it is not a User Mode Linux kernel.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return kernel_at(Path(named))
    built = sorted(
        (p for p in kernel_folder().glob("linux-*") if p.suffix != ".json"),
        key=lambda p: (p.stat().st_mtime_ns, version_numbers(p.name)),
    )
    if not built:
        raise TestbedUnavailableError(
            f"no User Mode Linux kernel: build one with `cct testbed build`, or set {VARIABLE} to its file"
        )
    return kernel_at(built[-1])


def version_numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(x) for x in found[0].split(".")) if found else ()


def kernel_at(path: Path) -> Kernel:
    try:
        path = path.absolute()  # it runs in another directory
        program = path.read_bytes()
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        version = done.stdout.split()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it does not report its version"
        raise TestbedUnavailableError(f"{path}: not a User Mode Linux kernel: {reason}") from None
    if done.returncode or len(version) != 1 or not version_numbers(version[0]):
        raise TestbedUnavailableError(f"{path}: not a User Mode Linux kernel: it does not report its version")
    about = _about(path)
    named = about.get("qdiscs", {}) | about.get("ccas", {})
    return Kernel(
        path,
        hashlib.sha256(program).hexdigest(),
        version[0],
        b"seccomp=<on/auto/off>" in program,
        about.get("with", {}),
        {name: one["module"] for name, one in named.items()},
    )


def _about(path: Path) -> dict[str, Any]:
    """What the build recorded beside a kernel, if anything."""
    with contextlib.suppress(OSError, ValueError):
        noted = json.loads(path.with_name(f"{path.name}.json").read_text(encoding="utf-8"))
        return noted if isinstance(noted, dict) else {}
    return {}


def check_kernel(kernel: Kernel) -> None:
    """Boot a kernel and run its first program; takes less than a second.

    Raises
    ------
    TestbedUnavailableError
        It does not run here (a sandbox without ptrace, no executable memory file, …); the text has its message.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = _boot(kernel, "/bin/true", Path(folder))
    if "exitcode=0x00000000" not in output:  # exit code of its first program, which ends the kernel
        lines = [x.strip() for x in output.splitlines() if x.strip() and "command line:" not in x]
        if "ptrace set fp regs failed" in output:
            raise TestbedUnavailableError(f"{kernel.path}: does not boot here: {_TOO_MANY_REGISTERS}")
        telling = [x for x in lines if re.search(r"panic|fail|denied|not permitted|error", x, re.IGNORECASE)]
        what = (telling or lines[-1:] or ["no output"])[0]
        raise TestbedUnavailableError(f"{kernel.path}: does not boot here: {what}")


def check_code(kernel: Kernel) -> None:
    """Boot a kernel and look for the algorithms that the user's own code should have registered.

    Raises
    ------
    TestbedUnavailableError
        One is missing; the text names it and its file.
    """
    about = _about(kernel.path)
    qdiscs, ccas = about.get("qdiscs", {}), about.get("ccas", {})
    script = [
        "#!/bin/sh",
        "export PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "mount -t proc proc /proc",
        "sed 's/^/ccas: /' /proc/sys/net/ipv4/tcp_available_congestion_control",
    ]
    for name in qdiscs:
        script.append(
            f"tc qdisc add dev lo root handle 1: {name} 2>&1 | grep -q -i unknown && echo lacks {name}"
        )
        script.append("tc qdisc del dev lo root 2>/dev/null")
    with tempfile.TemporaryDirectory() as folder:
        init = Path(folder) / "init"
        init.write_text("\n".join(script) + "\n")
        init.chmod(0o755)
        output = _boot(kernel, "/proc/self/cwd/init", Path(folder))
    has = next((line.split()[1:] for line in output.splitlines() if line.startswith("ccas: ")), None)
    if has is None:
        raise TestbedUnavailableError(f"{kernel.path}: does not run a shell: {output.strip()[-200:]}")
    lacks = [name for name in ccas if name not in has]
    lacks += [name for name in qdiscs if f"lacks {name}" in output.splitlines()]
    if lacks:
        module = (qdiscs | ccas)[lacks[0]]["module"]
        raise TestbedUnavailableError(
            f"{kernel.path}: has no {lacks[0]!r}, although {module}.c registers it: does the Kbuild name its object, "
            "and does its initialisation succeed?"
        )


def check_modules(kernel: Kernel, folders: Mapping[str, str]) -> None:
    """Check that a kernel was built with some queue disciplines and congestion controls.

    Parameters
    ----------
    kernel : Kernel
    folders : mapping of str to str
        Name of each to the folder with its code, for ``cct testbed build --with``.

    Raises
    ------
    TestbedUnavailableError
        It was not, or nothing beside the file says so; the text says how to build one that has them.
    """
    lacks = [name for name in folders if name not in kernel.modules]
    if lacks:
        options = " ".join(dict.fromkeys(f"--with {folders[name]}" for name in lacks))
        raise TestbedUnavailableError(
            f"{kernel.path}: Linux {kernel.version} has no {', '.join(lacks)} (according to {kernel.path.name}.json, "
            f"which `cct testbed build` writes): build one with `cct testbed build {options}`"
        )


def _boot(kernel: Kernel, init: str, folder: Path) -> str:
    """Run a kernel with a first program; return its output and the kernel's."""
    command = (
        *(kernel.path, "rootfstype=hostfs", "rootflags=/", "ro", "mem=256M", f"init={init}"),
        *("con=null", "con0=null,fd:1", "panic=-1", "seccomp=auto", "time-travel=inf-cpu"),
    )
    try:
        return subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HOME": str(folder), "UMLSEED": "1"},
            start_new_session=True,
            timeout=60,
            check=False,
        ).stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        raise TestbedUnavailableError(f"{kernel.path}: does not boot within a minute") from None
    except OSError as err:
        raise TestbedUnavailableError(f"{kernel.path}: {err.strerror}") from None
