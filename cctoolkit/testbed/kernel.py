"""The kernel of the ``uml`` backend: finding and building it.

It is User Mode Linux with time travel: one program without modules, with all congestion controls and queue
disciplines of its source tree. The configuration is in ``kernel/config``. The patch in ``kernel/patch`` derives all
randomness of the guest from the environment variable UMLSEED (without which nothing changes), and sets the tick to
a millisecond, as in usual kernels, instead of a hundredth of a second, so that whatever Linux does by jiffies (the
probability of PIE, delayed acknowledgements) is as fine as elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .._support.atomic import replacing
from .._support.waiting import progress_bar
from ..errors import ParameterError, TestbedUnavailableError
from .traffic import cache_directory

__all__ = ["BUILD_TOOLS", "Kernel", "build_kernel", "check_kernel", "find_kernel", "missing_build_tools"]

#: Environment variable with a kernel to use instead of those in the cache.
VARIABLE = "CCTOOLKIT_UML_KERNEL"
OLDEST = (6, 12)
#: Programs that a build needs besides a usual shell, and their purpose.
BUILD_TOOLS = {
    "make": "runs the build",
    "gcc": "C compiler",
    "ld": "linker",
    "flex": "generates the scanner of the configuration",
    "bison": "generates the parser of the configuration",
    "bc": "computes time constants",
    "patch": "applies the testbed's patch",
    "tar": "unpacks the source",
    "xz": "unpacks the source",
}
_HERE = Path(__file__).with_name("kernel")
_SOURCES = Path("/usr/src")
_CPUINFO = Path("/proc/cpuinfo")
#: Symbols required by the testbed.
_NEEDED = (
    *(
        "UML_TIME_TRAVEL_SUPPORT",
        "HIGH_RES_TIMERS",
        "HOSTFS",
        "MAGIC_SYSRQ",
        "NET_NS",
        "PACKET",
        "VETH",
        "IPV6",
    ),
    *("NET_SCH_HTB", "NET_SCH_NETEM", "TCP_CONG_CUBIC"),
)
_NAMES = {"KBUILD_BUILD_USER": "cctoolkit", "KBUILD_BUILD_HOST": "cctoolkit", "KBUILD_BUILD_VERSION": "1"}
#: Number of steps in a build of 6.12, for the progress bar.
_STEPS = 1330
_ROOM_BYTES = 3 * 10**9
_SIGTERM_AT_PARENTS_DEATH = (1, signal.SIGTERM)  # prctl(PR_SET_PDEATHSIG, …)


_TOO_MANY_REGISTERS = "it does not know this processor's registers (AMX); build from a newer tree (7.2 works)"


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
    """

    path: Path
    sha256: str
    version: str
    has_seccomp: bool = False


def find_kernel() -> Kernel:
    """Find the kernel to use: ``$CCTOOLKIT_UML_KERNEL``, else the newest one of :func:`build_kernel` in the cache.

    Raises
    ------
    TestbedUnavailableError
        There is none, or it is not a User Mode Linux kernel.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _kernel(Path(named))
    built = sorted(
        (p for p in (cache_directory() / "kernel").glob("linux-*") if p.suffix != ".json"),
        key=lambda p: (_numbers(p.name), p.stat().st_mtime_ns),
    )
    if not built:
        raise TestbedUnavailableError(
            f"no User Mode Linux kernel: build one with `cct testbed build`, or set {VARIABLE} to its file"
        )
    return _kernel(built[-1])


def _numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(x) for x in found[0].split(".")) if found else ()


def _kernel(path: Path) -> Kernel:
    try:
        path = path.absolute()  # it runs in another directory
        program = path.read_bytes()
        said = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        version = said.stdout.split()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it does not report its version"
        raise TestbedUnavailableError(f"{path}: not a User Mode Linux kernel: {reason}") from None
    if said.returncode or len(version) != 1 or not _numbers(version[0]):
        raise TestbedUnavailableError(f"{path}: not a User Mode Linux kernel: it does not report its version")
    return Kernel(path, hashlib.sha256(program).hexdigest(), version[0], b"seccomp=<on/auto/off>" in program)


def check_kernel(kernel: Kernel) -> None:
    """Boot a kernel and run its first program; takes less than a second.

    Raises
    ------
    TestbedUnavailableError
        It does not run here (a sandbox without ptrace, no executable memory file, …); the text has its message.
    """
    command = (
        *(kernel.path, "rootfstype=hostfs", "rootflags=/", "ro", "mem=256M", "init=/bin/true"),
        *("con=null", "con0=null,fd:1", "panic=-1", "seccomp=auto", "time-travel=inf-cpu"),
    )
    with tempfile.TemporaryDirectory() as home:
        try:
            said = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | {"HOME": home, "UMLSEED": "1"},
                start_new_session=True,
                timeout=60,
                check=False,
            ).stdout.decode(errors="replace")
        except subprocess.TimeoutExpired:
            raise TestbedUnavailableError(f"{kernel.path}: does not boot within a minute") from None
        except OSError as err:
            raise TestbedUnavailableError(f"{kernel.path}: {err.strerror}") from None
    if "exitcode=0x00000000" not in said:  # exit code of its first program, which ends the kernel
        lines = [x.strip() for x in said.splitlines() if x.strip() and "command line:" not in x]
        if "ptrace set fp regs failed" in said:
            raise TestbedUnavailableError(f"{kernel.path}: does not boot here: {_TOO_MANY_REGISTERS}")
        telling = [x for x in lines if re.search(r"panic|fail|denied|not permitted|error", x, re.IGNORECASE)]
        what = (telling or lines[-1:] or ["no output"])[0]
        raise TestbedUnavailableError(f"{kernel.path}: does not boot here: {what}")


# ---- building --------------------------------------------------------------------------------------------------------


def missing_build_tools() -> list[str]:
    """Programs of :data:`BUILD_TOOLS` that are missing."""
    return [name for name in BUILD_TOOLS if shutil.which(name) is None]


def build_kernel(
    source: str | os.PathLike[str] | None = None, *, jobs: int | None = None, progress: bool | None = None
) -> Kernel:
    """Build a kernel into the cache.

    The build has low priority and uses its own directory, which is always removed; it does not modify the source.
    The same source and compiler give the same kernel. A ``.json`` beside the kernel has its hash and origin.

    Parameters
    ----------
    source : path, optional
        A Linux source tree of 6.12 or newer, or a tar archive of one; by default the newest of Debian's
        ``linux-source-*`` packages under ``/usr/src``.
    jobs : int, optional
        Number of parallel compilers; by default one per core.
    progress : bool, optional
        Show a progress bar; by default only if standard error is a terminal.

    Returns
    -------
    Kernel
        The kernel.

    Raises
    ------
    ParameterError
        `source` is not a Linux source tree, or too old.
    TestbedUnavailableError
        A tool is missing, or the build failed; the text names the tool, or has the compiler's message and the log.
    """
    missing = missing_build_tools()
    if missing:
        raise TestbedUnavailableError(
            f"{', '.join(missing)} not found: install what is missing (Debian: apt-get install build-essential flex "
            "bison bc patch xz-utils; Fedora: dnf install gcc make flex bison bc patch xz)"
        )
    where = Path(source) if source is not None else installed_source()
    folder = cache_directory() / "kernel"
    folder.mkdir(parents=True, exist_ok=True)
    room = shutil.disk_usage(folder).free
    if room < _ROOM_BYTES:
        raise TestbedUnavailableError(
            f"{folder}: {room / 1e9:.1f} GB free, but a build needs {_ROOM_BYTES / 1e9:.0f} GB"
        )
    with _building(folder) as work:
        tree = _tree(where, work)
        version = _version(tree, where)
        _check_processor(tree, where)
        _call(["patch", "-p1", "--forward", "--batch", "-i", str(_HERE / "patch")], tree, work / "log",
              f"{where}: the testbed's patch does not fit Linux {version}")  # fmt: skip
        without = _configure(tree, work)
        _make(tree, work / "log", folder / "build.log", jobs or os.cpu_count() or 1, progress)
        kernel = _kernel(tree / "linux")
        path = folder / f"linux-{kernel.version}-{kernel.sha256[:12]}"
        about = {
            "sha256": kernel.sha256,
            "version": kernel.version,
            "source": where.name,
            "config_sha256": hashlib.sha256((_HERE / "config").read_bytes()).hexdigest(),
            "patch_sha256": hashlib.sha256((_HERE / "patch").read_bytes()).hexdigest(),
            "compiler": _first_line(["gcc", "--version"]),
            "without": without,
        }
        with replacing(path.with_name(f"{path.name}.json")) as tmp:
            tmp.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        with replacing(path) as tmp:
            shutil.copyfile(tree / "linux", tmp)
            tmp.chmod(0o755)
        path.chmod(0o755)
    return replace(kernel, path=path)


def installed_source() -> Path:
    """The newest Linux source of Debian's packages: an archive, or the directory if it is unpacked.

    Raises
    ------
    TestbedUnavailableError
        There is none.
    """
    found = [p for p in _SOURCES.glob("linux-source-*.tar.*") if _numbers(p.name) >= OLDEST]
    found += [p.parent for p in _SOURCES.glob("linux-source-*/Makefile") if _numbers(p.parent.name) >= OLDEST]
    if not found:
        raise TestbedUnavailableError(
            "no Linux source: install Debian's package (apt-get install linux-source-6.12, or newer), or unpack 6.12 "
            "or newer from kernel.org and give its directory"
        )
    return max(found, key=lambda p: (_numbers(p.name), p.is_dir()))


@contextlib.contextmanager
def _building(folder: Path) -> Iterator[Path]:
    """A directory for the build, which first removes leftovers of a killed one; one build at a time."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TestbedUnavailableError(f"{folder}: another build is under way") from None
        for left in folder.glob("build-*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix="build-", suffix=".tmp", dir=folder))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _tree(where: Path, work: Path) -> Path:
    """A copy of the source, to modify."""
    tree = work / "linux"
    if where.is_dir():
        if not (where / "arch" / "um" / "Kconfig").is_file():
            raise ParameterError(f"source: {where} is not a Linux source tree (no arch/um/Kconfig)")
        # Files from the user's own builds in the tree would be taken for ours (but vmlinux.lds.S is a source).
        made = (".git", "*.o", "*.a", "*.ko", "*.cmd", "vmlinux", "vmlinux.lds", ".vmlinux*")
        ignore = shutil.ignore_patterns(*made)
        shutil.copytree(where, tree, symlinks=True, ignore=ignore)
        for left in (".config", "include/config", "include/generated", "arch/um/include/generated"):
            path = tree / left
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return tree
    if not where.is_file():
        raise ParameterError(f"source: {where} does not exist")
    tree.mkdir()
    unpack = ["tar", "-x", "-f", str(where.resolve()), "--strip-components=1"]
    _call(unpack, tree, work / "log", f"{where}: not a tar archive", ParameterError)
    if not (tree / "arch" / "um" / "Kconfig").is_file():
        raise ParameterError(f"source: {where} is not an archive of a Linux source tree (no arch/um/Kconfig)")
    return tree


def _version(tree: Path, where: Path) -> str:
    text = (tree / "Makefile").read_text(encoding="utf-8", errors="replace")
    parts = [
        re.search(rf"^{key} = *(\d+)$", text, re.MULTILINE) for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL")
    ]
    version = ".".join(found[1] for found in parts if found)
    if _numbers(version)[:2] < OLDEST:
        raise ParameterError(f"source: {where} is Linux {version or '?'}; the testbed needs 6.12 or newer")
    return version


def _check_processor(tree: Path, where: Path) -> None:
    """Raise, before a build of minutes, if its kernel could not boot here."""
    folder = tree / "arch" / "x86" / "um"
    sources = "".join(path.read_text(errors="replace") for path in folder.rglob("*.[ch]"))
    is_fixed = (
        "HOST_FP_SIZE" in sources and "host_fp_size" not in sources
    )  # room for the registers known then
    if is_fixed and _CPUINFO.is_file() and "amx_tile" in _CPUINFO.read_text(errors="replace").split():
        raise TestbedUnavailableError(f"{where}: would not boot here: {_TOO_MANY_REGISTERS}")


def _configure(tree: Path, work: Path) -> list[str]:
    """Write the configuration; return the symbols that this tree lacks."""
    _call(["make", "ARCH=um", f"KCONFIG_ALLCONFIG={_HERE / 'config'}", "allnoconfig"], tree, work / "log",
          "the kernel's configuration failed")  # fmt: skip
    wanted = re.findall(r"^CONFIG_(\w+)=y$", (_HERE / "config").read_text(encoding="utf-8"), re.MULTILINE)
    has = set(re.findall(r"^CONFIG_(\w+)=y$", (tree / ".config").read_text(encoding="utf-8"), re.MULTILINE))
    missing = [name for name in _NEEDED if name not in has]
    if missing:
        raise TestbedUnavailableError(
            f"this Linux source does not support CONFIG_{missing[0]}, which the testbed needs"
        )
    return [name for name in wanted if name not in has]


def _die_with_parent() -> Callable[[], None]:
    libc = ctypes.CDLL(None)

    def in_child() -> None:
        libc.prctl(*_SIGTERM_AT_PARENTS_DEATH)
        os.nice(15)

    return in_child


@contextlib.contextmanager
def _process(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with low priority that ends, with its children, when this block or this process ends."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "ARCH", "CROSS_COMPILE", "LLVM")
    }
    environment |= _NAMES | {"KBUILD_BUILD_TIMESTAMP": "1970-01-01", "LC_ALL": "C"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent(),  # noqa: PLW1509 (it calls prctl and nice)
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _call(
    command: list[str], folder: Path, log: Path, failed: str, error: type[Exception] = TestbedUnavailableError
) -> None:
    with _process(command, folder) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        status = process.wait()
    log.write_bytes(said)
    if status:
        lines = [x for x in said.decode(errors="replace").splitlines() if x.strip()]
        raise error(f"{failed}: {lines[-1].strip() if lines else f'{command[0]} ended with {status}'}")


def _make(tree: Path, log: Path, kept_log: Path, jobs: int, progress: bool | None) -> None:
    show = sys.stderr.isatty() if progress is None else progress
    last: deque[str] = deque(maxlen=200)
    command = ["make", "ARCH=um", "CC=gcc", f"-j{jobs}", "linux"]
    with (
        _process(command, tree) as process,
        log.open("wb") as file,
        progress_bar(total=_STEPS, unit="step", desc="kernel", disable=not show, leave=False) as bar,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            last.append(line.decode(errors="replace").strip())
            if line.startswith(b"  ") and bar.n < _STEPS:
                bar.update()
        status = process.wait()
    if status:
        with replacing(kept_log) as tmp:
            shutil.copyfile(log, tmp)
        telling = [x for x in last if re.search(r"error|No space left|Killed", x, re.IGNORECASE)]
        what = (telling or list(last)[-1:] or ["no output"])[0]
        raise TestbedUnavailableError(f"the build of the kernel failed: {what} (log: {kept_log})")


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [""])[0]
