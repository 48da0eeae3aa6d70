"""The user's cache folder: downloads, compiled code, the testbed's kernel."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ParameterError

__all__ = ["cache_dir"]


def cache_dir(path: str | os.PathLike[str] | None = None) -> Path:
    """`path`, else the environment variable ``CCTOOLKIT_CACHE``, else the user's cache folder.

    Raises
    ------
    ParameterError
        The user has no home folder.
    """
    if path is None:
        path = os.environ.get("CCTOOLKIT_CACHE") or None
    try:
        if path is None:
            import platformdirs

            path = platformdirs.user_cache_dir("cctoolkit")
        return Path(path).expanduser()
    except RuntimeError:
        raise ParameterError("cache: this user has no home folder: set CCTOOLKIT_CACHE to a folder") from None
