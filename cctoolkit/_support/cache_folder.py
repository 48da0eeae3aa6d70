"""The user's cache folder: downloads, compiled code, the testbed's kernel."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_dir"]


def cache_dir(path: str | os.PathLike[str] | None = None) -> Path:
    """`path`, else the environment variable ``CCTOOLKIT_CACHE``, else the user's cache folder."""
    if path is None:
        path = os.environ.get("CCTOOLKIT_CACHE") or None
    if path is None:
        import platformdirs

        path = platformdirs.user_cache_dir("cctoolkit")
    return Path(path).expanduser()
