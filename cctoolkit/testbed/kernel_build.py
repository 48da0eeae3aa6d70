"""Building the kernel of the ``uml`` backend, from a Linux source tree and the user's own kernel code.

A kernel with the user's own code (:mod:`.kernel_code`) is built in a tree that stays in the cache, without the sources
that nothing needs (0.2 GB), so that building it again after an edit takes seconds.
"""

from __future__ import annotations

import contextlib
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .._support.atomic import replacing
from .._support.cache_folder import kernel_folder
from .._support.children import ending_with_parent
from .._support.locks import try_lock
from .._support.threads import cores
from .._support.waiting import progress_bar
from ..errors import ParameterError, TestbedUnavailableError
from .kernel import OLDEST, Kernel, kernel_at, version_numbers
from .kernel_code import PLACE, KernelCode, place, read_kernel_code

__all__ = ["BUILD_TOOLS", "build_kernel", "installed_source", "missing_build_tools"]

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
#: Files in a kept tree: a build is under way or was killed; what the tree was made from; symbols that it lacks.
_UNFINISHED, _KEY, _WITHOUT = "cctoolkit-unfinished", "cctoolkit-key", "cctoolkit-without"
#: Where a kept tree loses what nothing needs, and the exceptions: headers that code of the user's own may include.
_PRUNED = ("Documentation", "arch", "crypto", "drivers", "fs", "samples", "security", "sound", "tools")
_KEPT = {("arch", "um"), ("arch", "x86")}
_SOURCE_SUFFIXES = {".c", ".h", ".S", ".dts", ".dtsi", ".rst", ".txt", ".json", ".yaml", ".svg", ".rs"}


def missing_build_tools() -> list[str]:
    """Programs of :data:`BUILD_TOOLS` that are missing."""
    return [name for name in BUILD_TOOLS if shutil.which(name) is None]


def build_kernel(
    source: str | os.PathLike[str] | None = None,
    *,
    code: Sequence[str | os.PathLike[str]] = (),
    jobs: int | None = None,
    progress: bool | None = None,
) -> Kernel:
    """Build a kernel into the cache.

    The build has low priority and uses its own directory; it does not modify the source. The same source, code and
    compiler give the same kernel. A ``.json`` beside the kernel has its hash and origin.

    Parameters
    ----------
    source : path, optional
        A Linux source tree of 6.12 or newer, or a tar archive of one; by default the newest of Debian's
        ``linux-source-*`` packages under ``/usr/src``.
    code : sequence of paths
        Folders with kernel code of your own (:mod:`.kernel_code`): congestion controls, queue disciplines, patches.
        The tree is then kept, so the next build with the same source and patches takes seconds.
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
        `source` is not a Linux source tree, or too old; a folder of `code` has no code, or names that are taken.
    TestbedUnavailableError
        A tool is missing, or the build failed; the text names the tool, or has the compiler's message and the log.
    """
    missing = missing_build_tools()
    if missing:
        raise TestbedUnavailableError(
            f"{', '.join(missing)} not found: install what is missing (Debian: apt-get install build-essential flex "
            "bison bc patch xz-utils; Fedora: dnf install gcc make flex bison bc patch xz)"
        )
    codes = [read_kernel_code(one) for one in code]
    where = Path(source) if source is not None else installed_source()
    folder = kernel_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _building(folder) as work:
        tree = folder / "tree" if codes else work / "linux"
        key = _key(where, codes) if codes and where.exists() else ""
        is_fresh = not codes or _is_stale(tree, key)
        if is_fresh:
            _check_room(folder)
            _prepare(where, codes, tree, work, key)
        with _unfinished(tree):
            if codes:
                place(codes, tree)
            _make(tree, codes, work / "log", folder / "build.log", jobs or cores(), progress)
            if is_fresh and codes:
                _prune(tree)
        return _keep(tree, folder, where, codes)


def _check_room(folder: Path) -> None:
    room = shutil.disk_usage(folder).free
    if room < _ROOM_BYTES:
        raise TestbedUnavailableError(
            f"{folder}: {room / 1e9:.1f} GB free, but a build needs {_ROOM_BYTES / 1e9:.0f} GB"
        )


def _key(where: Path, codes: Sequence[KernelCode]) -> str:
    """What a kept tree was made from, except for the C files, which may change."""
    digest = hashlib.sha256(_first_output_line(["gcc", "--version"]).encode())
    for path in (*sorted(_HERE.iterdir()), *(patch for code in codes for patch in code.patches)):
        digest.update(path.read_bytes())
    digest.update(str(where.resolve()).encode())
    for path in sorted(where.rglob("*")) if where.is_dir() else [where]:
        about = path.lstat()
        digest.update(f"{path.name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _is_stale(tree: Path, key: str) -> bool:
    try:
        return (tree / _UNFINISHED).exists() or (tree / _KEY).read_text() != key
    except OSError:
        return True


def _prepare(where: Path, codes: Sequence[KernelCode], tree: Path, work: Path, key: str) -> None:
    """Unpack, patch and configure; a failure leaves no tree."""
    shutil.rmtree(tree, ignore_errors=True)
    try:
        _unpack(where, tree, work)
        version = _version(tree, where)
        log = work / "log"
        _patch(_HERE / "patch", tree, log, f"{where}: the testbed's patch does not fit Linux {version}")
        if _has_fixed_room_for_registers(tree):
            _patch(
                _HERE / "patch-registers",
                tree,
                log,
                f"{where}: the patch for registers does not fit Linux {version}",
            )
        for patch in (patch for code in codes for patch in code.patches):
            _patch(patch.resolve(), tree, log, f"{patch}: does not fit Linux {version}")
        (tree / _WITHOUT).write_text(json.dumps(_configure(tree, work)))
        (tree / _KEY).write_text(key)
    except BaseException:
        shutil.rmtree(tree, ignore_errors=True)
        raise


@contextlib.contextmanager
def _unfinished(tree: Path) -> Iterator[None]:
    """Mark a tree while it changes: after a kill, half-written objects would look complete."""
    (tree / _UNFINISHED).touch()
    try:
        yield
    except (ParameterError, TestbedUnavailableError):  # a mistake in the code, to be corrected
        (tree / _UNFINISHED).unlink()
        raise
    (tree / _UNFINISHED).unlink()


def _prune(tree: Path) -> None:
    """Remove the sources that no object depends on, except those that the user's own code may include."""
    used = set()
    for path in tree.rglob(".*.cmd"):
        used.update(re.findall(r"[\w./+-]+\.[chS]\b", path.read_text(errors="replace")))
    for top in _PRUNED:
        for path in (tree / top).rglob("*"):
            inside = path.relative_to(tree)
            if path.is_symlink() or not path.is_file() or inside.parts[:2] in _KEPT:
                continue
            if path.suffix in _SOURCE_SUFFIXES and str(inside) not in used:
                path.unlink()


def _keep(tree: Path, folder: Path, where: Path, codes: Sequence[KernelCode]) -> Kernel:
    """Copy the kernel to the cache, with a note of what it is."""
    kernel = kernel_at(tree / "linux")
    path = folder / f"linux-{kernel.version}-{kernel.sha256[:12]}"
    about: dict[str, Any] = {
        "sha256": kernel.sha256,
        "version": kernel.version,
        "source": where.name,
        **{f"{name.replace('-', '_')}_sha256": hashlib.sha256((_HERE / name).read_bytes()).hexdigest()
           for name in ("config", "patch", "patch-registers")},
        "compiler": _first_output_line(["gcc", "--version"]),
        "without": json.loads((tree / _WITHOUT).read_text()),
    }  # fmt: skip
    if codes:
        about["with"] = {code.name: code.sha256 for code in codes}
        about["qdiscs"] = {name: one for code in codes for name, one in code.qdiscs.items()}
        about["ccas"] = {name: one for code in codes for name, one in code.ccas.items()}
    with replacing(path.with_name(f"{path.name}.json")) as tmp:
        tmp.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    with replacing(path) as tmp:
        shutil.copyfile(tree / "linux", tmp)
        tmp.chmod(0o755)
    path.chmod(0o755)
    return kernel_at(path)


def installed_source() -> Path:
    """The newest Linux source of Debian's packages: an archive, or the directory if it is unpacked.

    Raises
    ------
    TestbedUnavailableError
        There is none.
    """
    found = [p for p in _SOURCES.glob("linux-source-*.tar.*") if version_numbers(p.name) >= OLDEST]
    found += [
        p.parent for p in _SOURCES.glob("linux-source-*/Makefile") if version_numbers(p.parent.name) >= OLDEST
    ]
    if not found:
        raise TestbedUnavailableError(
            "no Linux source: install Debian's package (apt-get install linux-source-6.12, or newer), or unpack 6.12 "
            "or newer from kernel.org and give its directory"
        )
    return max(found, key=lambda p: (version_numbers(p.name), p.is_dir()))


@contextlib.contextmanager
def _building(folder: Path) -> Iterator[Path]:
    """A directory for the build, which first removes leftovers of a killed one; one build at a time."""
    with (folder / "lock").open("w") as handle:
        if not try_lock(handle):
            raise TestbedUnavailableError(f"{folder}: another build is in progress")
        for left in folder.glob("build-*.tmp"):
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix="build-", suffix=".tmp", dir=folder))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _unpack(where: Path, tree: Path, work: Path) -> None:
    """A copy of the source, to modify."""
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
        return
    if not where.is_file():
        raise ParameterError(f"source: {where} does not exist")
    tree.mkdir()
    unpack = ["tar", "-x", "-f", str(where.resolve()), "--strip-components=1"]
    _call(unpack, tree, work / "log", f"{where}: not a tar archive", ParameterError)
    if not (tree / "arch" / "um" / "Kconfig").is_file():
        raise ParameterError(f"source: {where} is not an archive of a Linux source tree (no arch/um/Kconfig)")


def _version(tree: Path, where: Path) -> str:
    text = (tree / "Makefile").read_text(encoding="utf-8", errors="replace")
    parts = [
        re.search(rf"^{key} = *(\d+)$", text, re.MULTILINE) for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL")
    ]
    version = ".".join(found[1] for found in parts if found)
    if version_numbers(version)[:2] < OLDEST:
        raise ParameterError(f"source: {where} is Linux {version or '?'}; the testbed needs 6.12 or newer")
    return version


def _has_fixed_room_for_registers(tree: Path) -> bool:
    """Before 6.16, room for the registers that were known when it was written: processors with AMX have more."""
    path = tree / "arch" / "x86" / "um" / "user-offsets.c"
    return path.is_file() and "DEFINE_LONGS(HOST_FP_SIZE, 2696)" in path.read_text(errors="replace")


def _patch(patch: Path, tree: Path, log: Path, failed: str) -> None:
    _call(["patch", "-p1", "--forward", "--batch", "-i", str(patch)], tree, log, failed)


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
        preexec_fn=ending_with_parent(lambda: os.nice(15), by=signal.SIGTERM),  # noqa: PLW1509
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
        output = process.stdout.read()
        status = process.wait()
    log.write_bytes(output)
    if status:
        lines = [x for x in output.decode(errors="replace").splitlines() if x.strip()]
        raise error(f"{failed}: {lines[-1].strip() if lines else f'{command[0]} ended with {status}'}")


def _make(
    tree: Path, codes: Sequence[KernelCode], log: Path, kept_log: Path, jobs: int, progress: bool | None
) -> None:
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
        for code in codes:
            what = what.replace(f"{PLACE / code.name}/", f"{code.folder}/")
        raise TestbedUnavailableError(f"the build of the kernel failed: {what} (log: {kept_log})")


def _first_output_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [""])[0]
