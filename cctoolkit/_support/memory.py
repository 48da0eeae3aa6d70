"""How much memory is left, checked before much is taken: an error is better than a killed process."""

from __future__ import annotations

from pathlib import Path

from ..errors import CCToolkitError
from .words import format_bytes

__all__ = ["available_bytes", "require"]


def available_bytes() -> int | None:
    """Memory that this process can still take without swapping, in bytes; None if unknown."""
    found = [_field("/proc/meminfo", "MemAvailable:", 1024), _left_in_group(), _left_of_limit()]
    return min((value for value in found if value is not None), default=None)


def require(need_bytes: float, what: str, advice: str) -> None:
    """Raise unless this much memory is available.

    Parameters
    ----------
    need_bytes : float
        What will be taken.
    what, advice : str
        For the error: what needs the memory, and what to do about it.

    Raises
    ------
    CCToolkitError
        Less is available.
    """
    if need_bytes < 1 << 26:  # not worth asking
        return
    available = available_bytes()
    if available is not None and need_bytes > available:
        raise CCToolkitError(
            f"not enough memory: {what} needs about {format_bytes(need_bytes)}, {format_bytes(available)} are "
            f"available; {advice}"
        )


def _field(path: str, name: str, unit: int) -> int | None:
    try:
        for line in Path(path).read_text(encoding="ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * unit
    except (OSError, ValueError):
        pass
    return None


def _left_in_group() -> int | None:
    """What is left of a container's limit (cgroup v2); caches of files, which the kernel gives back, do not count."""
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # none, or "max"
        return None
    return max(limit - used + (_field(str(group / "memory.stat"), "inactive_file ", 1) or 0), 0)


def _left_of_limit() -> int | None:
    """What is left of ``ulimit -v``."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _field("/proc/self/status", "VmSize:", 1024)
    return None if limit == resource.RLIM_INFINITY or used is None else max(limit - used, 0)
