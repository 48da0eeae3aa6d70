"""Functions compiled by numba, and where their machine code is kept between processes.

numba's own cache asks only whether the *file* of a function has changed, although constants and functions of other
files are compiled into it. Here machine code is kept under a :func:`~.fingerprint.fingerprint` of all that goes into
it: what is found is what would be compiled now, wherever the files lie and whenever they were written.

The first of these folders that can be written to keeps it; all are looked into:

1. ``$NUMBA_CACHE_DIR``, and no other, if that is set;
2. ``__pycache__`` beside the function's file;
3. ``kernels`` in the user's cache folder (:func:`~.cache_folder.cache_dir`);
4. ``cctoolkit-kernels-UID`` in the folder for temporary files, if it belongs to this user alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import pickle
import re
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import _Cache
from numba.core.ccallback import CFunc
from numba.core.compiler import Compiler, CompileResult
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.core.typing.templates import Signature

from .atomic import replacing
from .cache_folder import cache_dir
from .fingerprint import UnknownValueError, fingerprint

__all__ = ["callback", "kernel"]

_config: Any = numba.config
_CHECK_BYTES = 16


def kernel(function: Any = None, **options: Any) -> Any:
    """Compile a function when it is first called, without Python's lock, and keep the machine code.

    Parameters
    ----------
    function : function
        Left out where options are given: ``@kernel(error_model="numpy")``.
    **options
        More for :func:`numba.njit`.

    Examples
    --------
    >>> @kernel
    ... def count_marks(ecn):
    ...     found = 0
    ...     for codepoint in ecn:
    ...         found += codepoint == 3
    ...     return found
    >>> count_marks(np.array([0, 3, 2, 3]))
    2
    """
    if function is None:
        return functools.partial(kernel, **options)
    compiled: Any = numba.njit(nogil=True, **options)(function)
    if not _config.DISABLE_JIT:
        compiled._cache = _KernelCache(function, compiled.targetoptions)
    return compiled


def callback(function: Any, signature: Any, *, pipeline_class: Any = Compiler, **options: Any) -> Any:
    """Compile a function to be called by its address, and keep the machine code; else as :func:`numba.cfunc`."""
    compiled: Any = CFunc(
        function, normalize_signature(signature), {}, options, pipeline_class=pipeline_class
    )
    compiled._cache = _KernelCache(function, options | {"callback": True})
    compiled.compile()
    return compiled


class _KernelCache(_Cache):
    """One function's machine code: a file for each fingerprint, signature and kind of processor."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        name = re.sub(r"[^A-Za-z0-9_.]", "", f"{function.__module__}.{function.__qualname__}")
        self._stem = f"{name[:120]}.{sys.implementation.cache_tag}"
        self._enabled = True

    @functools.cached_property
    def _version(self) -> str:
        """What the names of this version's files begin with. Called for when all names of the module are there."""
        parts = (self._function, self._options, numba.__version__, repr(_config.OPT), _config.BOUNDSCHECK)
        return f"{self._stem}-{fingerprint(parts)[:20]}-"

    def _file_name(self, signature: Any, codegen: Any) -> str | None:
        """None: it cannot be said what goes into the function, so nothing is kept."""
        kinds = (signature.args, signature.return_type) if isinstance(signature, Signature) else signature
        try:
            return f"{self._version}{fingerprint((kinds, codegen.magic_tuple()))[:20]}.kernel"
        except UnknownValueError:
            return None

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        target_context.refresh()
        name = self._file_name(signature, target_context.codegen()) if self._enabled else None
        for folder in _folders(self._function) if name else ():
            with contextlib.suppress(
                Exception
            ):  # not there, damaged, or with a class of a module that has moved
                content = (folder / str(name)).read_bytes()
                payload = content[_CHECK_BYTES:]
                if content[:_CHECK_BYTES] == _check(payload):
                    return CompileResult._rebuild(target_context, *pickle.loads(payload))
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        name = self._file_name(signature, result.codegen) if self._enabled else None
        fit = not result.library.has_dynamic_globals and all(loop.can_cache for loop in result.lifted)
        if name is None or not fit:
            return
        payload = dumps(result._reduce())
        for folder in _folders(self._function, make=True):
            with contextlib.suppress(OSError):
                with replacing(folder / name) as tmp:
                    tmp.write_bytes(_check(payload) + payload)
                self._remove(folder, but=self._version)
                return
        _warn_once()

    def _remove(self, folder: Path, but: str | None = None) -> None:
        """Remove this function's files; those of the version `but` stay."""
        for path in folder.glob(f"{self._stem}-*.kernel"):
            if but is None or not path.name.startswith(but):
                path.unlink(missing_ok=True)

    @property
    def cache_path(self) -> str:
        return str(next(_folders(self._function), ""))

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        for folder in _folders(self._function):
            with contextlib.suppress(OSError):
                self._remove(folder)


def _check(payload: bytes) -> bytes:
    """Damaged machine code would not raise, it would run."""
    return hashlib.blake2b(payload, digest_size=_CHECK_BYTES).digest()


def _folders(function: Callable[..., Any], make: bool = False) -> Iterator[Path]:
    """Where machine code may be, best first."""
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR)
        return
    file = Path(function.__code__.co_filename)
    if file.is_file():
        yield Path(importlib.util.cache_from_source(str(file))).parent
    with contextlib.suppress(RuntimeError):  # no home
        yield cache_dir() / "kernels"
    with contextlib.suppress(OSError):
        yield _private_folder(make)


def _private_folder(make: bool) -> Path:
    """A temporary folder that nobody else can have put machine code into."""
    user = getattr(os, "getuid", lambda: "user")()
    path = Path(tempfile.gettempdir()) / f"cctoolkit-kernels-{user}"
    if make:
        path.mkdir(mode=0o700, exist_ok=True)
    about = path.lstat()
    if user != "user" and (about.st_uid, about.st_mode) != (user, stat.S_IFDIR | 0o700):
        raise PermissionError(path)
    return path


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "no folder for compiled code can be written to, so every process compiles again; "
        "set NUMBA_CACHE_DIR to a folder that can be",
        RuntimeWarning,
        stacklevel=1,
    )
