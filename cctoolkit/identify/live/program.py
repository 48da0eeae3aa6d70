"""The collector's programs, compiled once per version, and their requirements.

Sources are in ``hardware/ebpf``: ``collector.bpf.c`` runs in the kernel, ``collector.c`` loads it.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from ..._support.atomic import replacing
from ..._support.cache_folder import cache_dir
from .errors import CollectorUnavailableError

__all__ = ["missing", "programs", "require"]

_SOURCES = ("collector.bpf.c", "collector.c", "collector.h")
_NEEDED_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_PERFMON": 38, "CAP_BPF": 39}
_INSTEAD = {"CAP_PERFMON", "CAP_BPF"}, 21  # CAP_SYS_ADMIN includes them
_KERNEL = (6, 6)  # tcx
_INSTALL = "apt-get install clang gcc libbpf-dev libelf-dev zlib1g-dev"


def _sources() -> Path:
    here = Path(__file__).parent / "ebpf"
    return here if here.is_dir() else Path(__file__).parents[3] / "hardware" / "ebpf"


def _paths() -> tuple[Path, Path]:
    """Paths of the kernel program and the helper."""
    digest = hashlib.sha256(b"".join((_sources() / name).read_bytes() for name in _SOURCES)).hexdigest()[:16]
    stem = f"collector-{platform.machine()}-{digest}"
    folder = cache_dir().absolute() / "live"
    return folder / f"{stem}.bpf.o", folder / stem


def missing() -> list[str]:
    """What this machine lacks to run the collector, with remedies where there are any; empty if nothing.

    See Also
    --------
    KernelCollector : needs all of it
    CaptureCollector : needs none of it

    Examples
    --------
    >>> isinstance(cct.live.missing(), list)
    True
    """
    if not sys.platform.startswith("linux"):
        return ["Linux"]
    found = []
    release = platform.release()
    numbers = tuple(int(x) for x in release.split("-")[0].split(".")[:2] if x.isdigit())
    if numbers < _KERNEL:
        found.append(f"Linux 6.6 or newer, for tcx (this is {release})")
    spared, instead = _INSTEAD
    lacking = [
        name
        for name, bit in _NEEDED_CAPABILITIES.items()
        if not _has(bit) and not (name in spared and _has(instead))
    ]
    if lacking:
        found.append(f"root, or {' and '.join(lacking)} (sudo cct live …)")
    elif _in_user_namespace():
        found.append("the right to load eBPF programs, which only the host's root has (this is a container)")
    if not all(path.exists() for path in _paths()):
        found += [f"{tool} ({_INSTALL})" for tool in ("clang", "cc") if shutil.which(tool) is None]
        if not any((Path(x) / "bpf/libbpf.h").exists() for x in ("/usr/include", "/usr/local/include")):
            found.append(f"libbpf's headers ({_INSTALL})")
    return found


def _has(capability: int) -> bool:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def _in_user_namespace() -> bool:
    """Whether root here is another user to the host; in the first namespace, all IDs map to themselves."""
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() != ["0", "0", "4294967295"]
    except OSError:  # a kernel without user namespaces
        return False


def require() -> None:
    """Raise if something is missing.

    Raises
    ------
    CollectorUnavailableError
        Something is missing on this machine.
    """
    lacking = missing()
    if lacking:
        raise CollectorUnavailableError(f"live: this machine lacks {'; '.join(lacking)}")


def programs() -> tuple[Path, Path]:
    """The kernel program and the helper, compiled at first use into ``live`` in the user's cache folder.

    Raises
    ------
    CollectorUnavailableError
        They do not compile.
    """
    kernel, helper = _paths()
    include = f"/usr/include/{platform.machine()}-linux-gnu"  # asm/types.h is there on Debian and its kin
    _compile(
        kernel,
        ["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-I", include, "-c"],
        _sources() / "collector.bpf.c",
    )
    _compile(helper, ["cc", "-O2"], _sources() / "collector.c", ["-lbpf", "-lelf", "-lz"])
    return kernel, helper


def _compile(path: Path, command: list[str], source: Path, libraries: list[str] | None = None) -> None:
    if path.exists():
        return
    with replacing(path) as tmp:
        command = [*command, "-o", str(tmp), str(source), *(libraries or [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line or "cannot find" in line]
            what = errors[0].strip() if errors else f"status {done.returncode}"
            raise CollectorUnavailableError(
                f"live: {command[0]} does not compile {source.name}: {what} ({_INSTALL})"
            )
    path.chmod(0o755)
