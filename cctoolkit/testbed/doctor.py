"""Requirements of the testbed backends on this machine: what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._support.algorithm.kernel_module import PREFIX
from ..errors import ParameterError, TestbedUnavailableError
from . import kernel, kernel_build, traffic

if TYPE_CHECKING:
    from rich.table import Table

    from .plan import Plan

__all__ = ["BACKENDS", "Requirement", "examine", "host_qdiscs", "require", "require_kernel", "table"]

BACKENDS = ("uml", "netns", "mininet")
#: Packages that provide a program, on Debian and Fedora and their derivatives.
_PACKAGES = {
    "ip": ("iproute2", "iproute"),
    "tc": ("iproute2", "iproute-tc"),
    "tcpdump": ("tcpdump", "tcpdump"),
    "mount": ("mount", "util-linux-core"),
    "unshare": ("util-linux", "util-linux-core"),
    "nsenter": ("util-linux", "util-linux-core"),
    "cc": ("gcc libc6-dev", "gcc"),
    "make": ("make", "make"),
    "gcc": ("gcc libc6-dev", "gcc"),
    "ld": ("binutils", "binutils"),
    "flex": ("flex", "flex"),
    "bison": ("bison", "bison"),
    "bc": ("bc", "bc"),
    "patch": ("patch", "patch"),
    "tar": ("tar", "tar"),
    "xz": ("xz-utils", "xz"),
}
_MININET = "apt-get install mininet | https://github.com/mininet/mininet"
#: Queue disciplines that a scenario may need, with the arguments that ``tc`` requires.
_QDISCS = {
    **dict.fromkeys(("htb", "netem", "pfifo", "bfifo", "codel", "fq_codel", "pie", "fq_pie"), ""),
    **dict.fromkeys(("red", "choke"), "limit 100000 avpkt 1000 bandwidth 10mbit"),
    **dict.fromkeys(("fq", "sfq", "sfb", "cake", "dualpi2", "drr", "prio"), ""),
}
_LIB_MODULES = Path("/lib/modules")
_PROC_MODULES = Path("/proc/modules")
_MODULES_DISABLED = Path("/proc/sys/kernel/modules_disabled")
_KERNEL_HELP = (
    "distribution kernels have it as a module (Debian: linux-image-amd64, Fedora: kernel-modules-extra)"
)


@dataclass(frozen=True)
class Requirement:
    """A requirement of a backend.

    Attributes
    ----------
    backend : str
        The backend.
    what : str
        What it needs, such as ``"tcpdump"`` or ``"kernel"``.
    good : bool
        Whether it is available.
    needed : bool
        Whether the backend cannot run without it. If false, only some scenarios need it, or a build.
    detail : str
        Where it is, or what is wrong.
    get : str
        How to get it; empty if it is available.
    """

    backend: str
    what: str
    good: bool
    needed: bool
    detail: str
    get: str = ""


def examine(backends: Sequence[str] = BACKENDS) -> list[Requirement]:
    """Check the requirements of each backend; takes a second.

    Parameters
    ----------
    backends : sequence of str
        Any of ``"uml"``, ``"netns"``, ``"mininet"``.

    Raises
    ------
    ParameterError
        Unknown backend.
    """
    found: list[Requirement] = []
    for backend in backends:
        if backend not in BACKENDS:
            raise ParameterError(f"backend: {backend!r} must be one of {', '.join(BACKENDS)}")
        found += _EXAMINERS[backend]()
    return found


def require(backend: str) -> None:
    """Raise unless a backend can run here.

    Raises
    ------
    TestbedUnavailableError
        A requirement is missing; the text says how to get it.
    """
    missing = [f for f in examine([backend]) if f.needed and not f.good]
    if missing:
        raise TestbedUnavailableError(
            f"{backend}: "
            + "; ".join(f"{f.what}: {f.detail}" + (f" ({f.get})" if f.get else "") for f in missing)
        )


def require_kernel(backend: str, plan: Plan, *, spare: Sequence[str] = ()) -> None:
    """Raise unless the host's kernel has the congestion controls and queue disciplines of a plan, except `spare`.

    Raises
    ------
    TestbedUnavailableError
        The kernel lacks one; the text names it.
    """
    kernel_is = f"{backend}: kernel {platform.release()} has"
    hint = "(the uml backend brings its own kernel)"
    own = [one.owner for one in plan.modules if one.kind == "sch"]
    has = host_qdiscs(own)
    for host in plan.hosts.values():
        for kind in filter(None, map(added_qdisc, host.tc)):
            if kind not in has and kind not in spare:
                raise TestbedUnavailableError(
                    f"{kernel_is} no queue discipline {kind!r}; it has {' '.join(sorted(has))} {hint}"
                )
    ccas = host_ccas()
    for flow in plan.flows:
        if not flow.is_udp and flow.cca not in ccas and not _load_module(f"tcp_{flow.cca}"):
            raise TestbedUnavailableError(
                f"{kernel_is} no congestion control {flow.cca!r}; it has {' '.join(sorted(ccas))} {hint}"
            )


def added_qdisc(line: str) -> str | None:
    """The queue discipline that a line for ``tc -batch`` adds."""
    words = line.split()
    if words[:2] != ["qdisc", "add"]:
        return None
    rest = iter(words[2:])
    for word in rest:
        if word in ("dev", "parent", "handle"):
            next(rest, None)
        elif word not in ("root", "clsact", "ingress"):
            return word
    return None


def _load_module(name: str) -> bool:
    try:
        return subprocess.run(["modprobe", "-q", name], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def table(findings: Sequence[Requirement]) -> Table:
    """Findings as a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    out = Table(title="testbed", title_justify="left")
    for heading in ("backend", "what", "", "found", "how to get it"):
        out.add_column(heading, overflow="fold")
    last = ""
    for f in findings:
        mark = Text("yes", "green") if f.good else Text("no", "red") if f.needed else Text("no", "yellow")
        cells = (f.backend if f.backend != last else "", f.what, mark, f.detail, f.get)
        out.add_row(*(Text(x) if isinstance(x, str) else x for x in cells), end_section=False)
        last = f.backend
    for backend in dict.fromkeys(f.backend for f in findings):
        lacks = [f.what for f in findings if f.backend == backend and f.needed and not f.good]
        out.add_section()
        out.add_row(
            backend, Text("cannot run here" if lacks else "can run here", "bold"), "", ", ".join(lacks), ""
        )
    return out


# ---- checks ----------------------------------------------------------------------------------------------------------


def _program(backend: str, name: str, *, needed: bool = True, also: str = "") -> Requirement:
    where = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if where:
        return Requirement(backend, name, True, needed, where)
    return Requirement(backend, name, False, needed, f"not found{also}", _get(name))


def _get(program: str) -> str:
    if program not in _PACKAGES:
        return _MININET
    debian, fedora = _PACKAGES[program]
    return f"apt-get install {debian} | dnf install {fedora}"


def _linux(backend: str) -> Requirement:
    machine = f"{platform.system()} {platform.machine()}"
    good = sys.platform.startswith("linux") and (backend != "uml" or platform.machine() == "x86_64")
    wanted = "Linux on x86_64" if backend == "uml" else "Linux"
    return Requirement(
        backend, "machine", good, True, machine, "" if good else f"{wanted}, for example in a virtual machine"
    )


def _traffic(backend: str) -> Requirement:
    try:
        return Requirement(backend, "traffic program", True, True, str(traffic.binary()))
    except TestbedUnavailableError as err:
        return Requirement(backend, "traffic program", False, True, str(err), _get("cc"))


def _uml() -> Iterator[Requirement]:
    yield _linux("uml")
    try:
        found = kernel.find_kernel()
        kernel.check_kernel(found)
        own = "".join(f", with {PREFIX}{name}" for name in found.modules)
        yield Requirement(
            "uml", "kernel", True, True, f"{found.version}{own}, sha256 {found.sha256[:12]}, {found.path}"
        )
        built = True
    except TestbedUnavailableError as err:
        yield Requirement("uml", "kernel", False, True, str(err), "cct testbed build")
        built = False
    for name in ("ip", "tc", "tcpdump", "mount"):
        yield _program("uml", name)
    yield _traffic("uml")
    if built:
        return
    for name in kernel_build.BUILD_TOOLS:
        yield _program(
            "uml",
            name,
            needed=False,
            also=f"; `cct testbed build` needs it: {kernel_build.BUILD_TOOLS[name]}",
        )
    try:
        yield Requirement("uml", "Linux source", True, False, str(kernel_build.installed_source()))
    except TestbedUnavailableError as err:
        get = "apt-get install linux-source-6.12 | a tree of 6.12 or newer from kernel.org"
        yield Requirement("uml", "Linux source", False, False, str(err).split(":")[0], get)


def _root(backend: str) -> Requirement:
    good = os.geteuid() == 0
    return Requirement(
        backend, "root", good, True, "root" if good else f"user {os.geteuid()}", "" if good else "sudo"
    )


def _namespaces(backend: str) -> Requirement:
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    detail = "can be created" if done.returncode == 0 else done.stderr.strip() or "cannot be created"
    get = "" if done.returncode == 0 else "a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN (--privileged)"
    return Requirement(backend, "namespaces", done.returncode == 0, True, detail, get)


def host_qdiscs(more: Sequence[str] = ()) -> set[str]:
    """Queue disciplines of the host's kernel, those of scenarios and `more`; empty if they cannot be tried.

    That needs root and ``tc``.

    Each is tried in a separate namespace, which affects nothing else; the kernel loads modules if needed.
    """
    tried = dict.fromkeys(more, "") | _QDISCS
    lines = [
        f"tc qdisc add dev p root {k} {a} && echo {k}; tc qdisc del dev p root" for k, a in tried.items()
    ]
    script = "ip link add p type veth peer name q\n" + "\n".join(lines)
    try:
        done = subprocess.run(
            ["unshare", "--net", "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return set()
    return set(done.stdout.split())


def _qdiscs(backend: str) -> Iterator[Requirement]:
    has = host_qdiscs()
    release = platform.release()
    yield Requirement(
        backend, "htb", "htb" in has, True, f"kernel {release}", "" if "htb" in has else _KERNEL_HELP
    )
    if "netem" in has:
        yield Requirement(backend, "netem", True, False, f"kernel {release}")
    elif backend == "netns" and Path("/dev/net/tun").exists():
        detail = (
            f"kernel {release} lacks it: the whole round trip is delayed on the way back, by /dev/net/tun; "
        )
        detail += "no loss and no jitter"
        yield Requirement(backend, "netem", False, False, detail, _KERNEL_HELP)
    else:
        yield Requirement(
            backend,
            "netem",
            False,
            False,
            f"kernel {release} lacks it: no rtt_ms, no loss, no jitter",
            _KERNEL_HELP,
        )
    others = [k for k in _QDISCS if k not in ("htb", "netem")]
    lacks = [k for k in others if k not in has]
    detail = f"has {' '.join(k for k in others if k in has) or 'none'}" + (
        f"; not {' '.join(lacks)}" if lacks else ""
    )
    yield Requirement(backend, "queue disciplines", not lacks, False, detail, _KERNEL_HELP if lacks else "")


def host_ccas() -> set[str]:
    """Congestion controls loaded in the host's kernel; others may be available as modules."""
    try:
        return set(Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split())
    except OSError:
        return set()


def _ccas(backend: str) -> Requirement:
    has = host_ccas()
    return Requirement(
        backend,
        "congestion controls",
        bool(has),
        False,
        f"{' '.join(sorted(has))}, and those available as modules",
    )


def _own_modules(backend: str) -> Requirement:
    """Whether the user's own kernel code (docs/kernel-code.md) can be built and loaded here."""
    release = platform.release()
    build = _LIB_MODULES / release / "build"
    headers = f"apt-get install linux-headers-{release} | dnf install kernel-devel-{release}"
    if not _PROC_MODULES.exists():
        lacks, get = f"kernel {release} does not load modules", "the uml backend brings its own kernel"
    elif not build.exists():
        lacks, get = f"{build} does not exist", headers
    elif _MODULES_DISABLED.is_file() and _MODULES_DISABLED.read_text().strip() == "1":
        lacks, get = "loading modules is disabled until the next boot", "reboot"
    else:
        return Requirement(backend, "your own modules", True, False, f"make M=DIR with {build}, then insmod")
    return Requirement(backend, "your own modules", False, False, lacks, get)


def _netns() -> Iterator[Requirement]:
    yield _linux("netns")
    yield _root("netns")
    for name in ("ip", "tc", "tcpdump", "unshare"):
        yield _program("netns", name)
    yield _traffic("netns")
    if shutil.which("unshare"):
        yield _namespaces("netns")
        yield from _qdiscs("netns")
    yield _ccas("netns")
    yield _own_modules("netns")


def _mininet() -> Iterator[Requirement]:
    yield _linux("mininet")
    yield _root("mininet")
    for name in ("ip", "tc", "tcpdump", "unshare", "nsenter", "mnexec"):
        yield _program("mininet", name)
    python = mininet_python()
    detail = f"of {python}" if python else "no Python has it"
    yield Requirement(
        "mininet", "mininet package", python is not None, True, detail, "" if python else _MININET
    )
    yield _traffic("mininet")
    if shutil.which("unshare"):
        yield from _qdiscs("mininet")
    yield _ccas("mininet")
    yield _own_modules("mininet")


def mininet_python() -> str | None:
    """A Python with the Mininet package: this one, or the system's."""
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if not os.access(python, os.X_OK):
            continue
        done = subprocess.run([python, "-c", "import mininet.net"], capture_output=True, check=False)
        if done.returncode == 0:
            return python
    return None


_EXAMINERS: dict[str, Callable[[], Iterator[Requirement]]] = {
    "uml": _uml,
    "netns": _netns,
    "mininet": _mininet,
}
