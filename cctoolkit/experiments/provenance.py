"""How a result is made: command, version, commit, date, machine."""

from __future__ import annotations

import datetime
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from .._support.threads import cores
from .._support.version import __version__
from .code_hash import ROOT

__all__ = ["machine", "provenance"]


def provenance(command: str, code: str) -> dict[str, Any]:
    """The record of a result made here and now.

    Parameters
    ----------
    command : str
        The command that makes it.
    code : str
        Hash of the code behind it (:func:`.code_hash.code_hash`).

    Returns
    -------
    dict
        ``command``, ``version``, ``commit`` (with a plus if the package has uncommitted changes), ``date``,
        ``machine``, ``code``.
    """
    return {
        "command": command,
        "version": __version__,
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "code": code,
    }


def _commit() -> str | None:
    """The checkout's commit, with a plus if the package has changes."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        changes = subprocess.run(
            ["git", "status", "--porcelain", "--", "cctoolkit"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changes.strip() else "")


def machine() -> str:
    """Processor, cores, NVIDIA GPUs, operating system and Python."""
    processor = platform.processor() or platform.machine()
    path = Path("/proc/cpuinfo")
    if path.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", path.read_text(encoding="utf-8"), re.M)
        processor = found[1] if found else processor
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    n = cores()
    parts = [processor, f"{n} core{'s' * (n > 1)}", *_gpus(), system, f"Python {platform.python_version()}"]
    return ", ".join(parts)


def _gpus() -> list[str]:
    """Names of NVIDIA GPUs, from their driver."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    found = [re.search(r"^Model:\s*(.+)$", file.read_text(encoding="utf-8"), re.M) for file in files]
    return [model[1].strip() for model in found if model]
