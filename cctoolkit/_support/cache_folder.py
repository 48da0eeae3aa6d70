"""The user's cache folder: downloads, compiled code, the testbed's kernel."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ParameterError

__all__ = ["cache_dir", "kernel_folder", "testbed_folder"]


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


def testbed_folder() -> Path:
    """Where the testbed keeps what it builds."""
    return cache_dir().absolute() / "testbed"


def kernel_folder() -> Path:
    """Where the testbed's kernels are, each with a ``.json`` that says what it is."""
    return testbed_folder() / "kernel"
