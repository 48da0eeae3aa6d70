"""Functions compiled by numba, and the cache of their machine code.

numba's own cache only checks whether the *file* of a function has changed, although constants and functions of
other files are compiled into it. Here machine code is stored under a :func:`~.fingerprint.fingerprint` of
everything that goes into it: what the cache returns is what would be compiled now, wherever the files are and whenever
they were written.

Machine code is read from any of these folders, and written to the first one that is writable:

1. ``$NUMBA_CACHE_DIR``, and no other, if that is set;
2. ``__pycache__`` beside the file of the function;
3. ``kernels`` in the user's cache folder (:func:`~.cache_folder.cache_dir`);
4. ``cctoolkit-kernels-UID`` in the folder for temporary files, if it belongs to this user alone.

Of several processes that need the same function, one compiles it, and the others wait for what it writes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import io
import os
import pickle
import re
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import llvmlite.binding
import numba
from numba.core.caching import _Cache
from numba.core.ccallback import CFunc
from numba.core.compiler import Compiler, CompileResult
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.core.typing.templates import Signature

from ..errors import ParameterError
from .atomic import replacing
from .cache_folder import cache_dir
from .fingerprint import UnknownValueError, fingerprint
from .locks import try_lock
from .parts import Nestable
from .waiting import compiling

__all__ = ["callback", "inlined", "kernel", "part"]

_config: Any = numba.config
_OPTIONS = {"nopython": True, "boundscheck": None}
_CHECK_BYTES = 16
_LONGEST_WAIT_S = 120.0  # a process that forked while it compiled may leave its lock to its child
_PAUSE_S = 0.02


def kernel(function: Any = None, **options: Any) -> Any:
    """Compile a function at its first call, to run without the GIL, and cache the machine code.

    Parameters
    ----------
    function : function
        Omitted if there are options: ``@kernel(error_model="numpy")``.
    **options
        Options of :func:`numba.njit`.

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
    if _config.DISABLE_JIT:
        return function
    compiled = _Kernel(
        function, targetoptions=_OPTIONS | {"nogil": True, "no_cfunc_wrapper": True, **options}
    )
    compiled._cache = _KernelCache(function, compiled.targetoptions)
    return compiled


def part(function: Any = None, **options: Any) -> Any:
    """Compile a function that only kernels call, as a part of each of them; the options are those of `kernel`.

    Parameters
    ----------
    function : function
        Omitted if there are options.
    **options
        Options of :func:`numba.njit`.
    """
    if function is None:
        return functools.partial(part, **options)
    if _config.DISABLE_JIT:
        return function
    return Nestable(function, targetoptions=_OPTIONS | options)


#: Decorator of a part that is repeated in its callers instead of called, so that its results stay in registers. It
#: should take numbers, records and addresses: the references of an array are counted at every call.
inlined: Any = part(forceinline=True)


def callback(function: Any, signature: Any, *, pipeline_class: Any = Compiler, **options: Any) -> Any:
    """Compile a function to be called by address, like :func:`numba.cfunc`, and cache the machine code."""
    compiled: Any = CFunc(
        function, normalize_signature(signature), {}, options, pipeline_class=pipeline_class
    )
    about = getattr(pipeline_class, "about", pipeline_class.__name__)
    compiled._cache = cache = _KernelCache(function, options | {"callback": about})
    with cache.turn():
        compiled.compile()
    return compiled


class _Kernel(Nestable):
    """A compiled function that Python calls, whose machine code is kept."""

    _cache: Any

    def compile(self, sig: Any) -> Any:
        """Load or compile it for these types of arguments."""
        if not isinstance(self._cache, _KernelCache):  # a copy, in another process
            return super().compile(sig)
        with self._cache.turn():
            return super().compile(sig)


class _KernelCache(_Cache):
    """Machine code of a function: one file per fingerprint, signature and kind of processor."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        name = re.sub(r"[^A-Za-z0-9_.]", "", f"{function.__module__}.{function.__qualname__}")
        self._stem = f"{name[:120]}.{sys.implementation.cache_tag}"
        self._enabled = True
        self._lock: IO[bytes] | None = None

    @functools.cached_property
    def _version(self) -> str:
        """Prefix of this version's file names. Computed once all names of the module exist."""
        parts = (self._function, self._options, numba.__version__, repr(_config.OPT), _config.BOUNDSCHECK)
        return f"{self._stem}-{fingerprint(parts)[:20]}-"

    def _file_name(self, signature: Any, codegen: Any) -> str | None:
        """Name of the file; None if the function has no fingerprint, so nothing is cached."""
        kinds = (signature.args, signature.return_type) if isinstance(signature, Signature) else signature
        try:
            return f"{self._version}{fingerprint((kinds, codegen.magic_tuple()))[:20]}.kernel"
        except UnknownValueError:
            return None

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        name = self._file_name(signature, target_context.codegen()) if self._enabled else None
        found = self._load(name, target_context)
        if found is None:
            compiling()
            self._wait_for_others(name)
            found = self._load(name, target_context)
        if found is None:
            _skip_blas_check()
        return found

    def _load(self, name: str | None, target_context: Any) -> Any:
        for folder in _folders(self._function) if name else ():
            with contextlib.suppress(
                Exception
            ):  # missing, damaged, or with a class of a module that has moved
                content = (folder / str(name)).read_bytes()
                payload = content[_CHECK_BYTES:]
                if content[:_CHECK_BYTES] == _check(payload):
                    symbols, result = _Unpickler(io.BytesIO(payload)).load()
                    _provide(symbols, target_context)
                    return CompileResult._rebuild(target_context, *result)
        return None

    def _wait_for_others(self, name: str | None) -> None:
        """Lock the file of this name, as others do who are about to write it, or wait until one has."""
        for folder in _folders(self._function, make=True) if name else ():
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                lock = open(folder / f"{name}.lock", "wb")  # noqa: SIM115  # held until the end of the turn
                break
        else:
            return
        until = time.monotonic() + _LONGEST_WAIT_S
        while not try_lock(lock):
            if (folder / str(name)).exists() or time.monotonic() > until:
                lock.close()
                return
            time.sleep(_PAUSE_S)
        self._lock = lock  # also if one has just been written: whoever locks the file removes it

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """While a function is loaded or compiled: others wait no longer, whatever comes of it."""
        try:
            yield
        finally:
            if self._lock is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._lock.name)
                self._lock.close()
                self._lock = None

    def save_overload(self, signature: Any, result: Any) -> None:
        name = self._file_name(signature, result.codegen) if self._enabled else None
        fit = not result.library.has_dynamic_globals and all(loop.can_cache for loop in result.lifted)
        if name is None or not fit:
            return
        payload = dumps((_symbols(result), result._reduce()))
        for folder in _folders(self._function, make=True):
            with contextlib.suppress(OSError):
                with replacing(folder / name) as tmp:
                    tmp.write_bytes(_check(payload) + payload)
                self._remove(folder, but=self._version)
                return
        _warn_once()

    def _remove(self, folder: Path, but: str | None = None) -> None:
        """Remove the files of this function, except those of version `but`."""
        for path in folder.glob(f"{self._stem}-*.kernel*"):
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


class _Unpickler(pickle.Unpickler):
    """Loads machine code without numba's implementations of what it was compiled from, as far as it can."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_rebuild_env.__module__, _rebuild_env.__name__):
            return _environment
        return super().find_class(module, name)


def _environment(module_name: str, constants: list[Any], name: str) -> Environment:
    """The environment of a compiled function.

    numba imports the function's module for it, whose globals only code uses that was not compiled. Of numba itself,
    which has none, that would take longer than all else.
    """
    if not module_name.startswith("numba.") or module_name in sys.modules:
        return cast("Environment", _rebuild_env(module_name, constants, name))
    found = lookup_environment(name)
    if found is None:
        found = Environment({"__name__": module_name})
        found.consts[:] = constants
        found.env_name = name
        Environment._memo[name] = found
    return cast("Environment", found)


def _symbols(result: Any) -> list[str]:
    """Names outside the compiled function that its machine code refers to."""
    module = result.library._final_module
    names = (item.name for item in (*module.functions, *module.global_variables) if item.is_declaration)
    return sorted(name for name in names if not name.startswith("llvm."))


def _provide(symbols: list[str], target_context: Any) -> None:
    """Make the names known to LLVM, which ends the process over a missing one.

    numba would import and list all that it can compile, which takes longer than the kernels of a command. Its
    functions for arrays are almost always enough.
    """
    _add_runtime_symbols()
    if not all(map(llvmlite.binding.address_of_symbol, symbols)):
        _skip_blas_check()
        target_context.refresh()


@functools.cache
def _add_runtime_symbols() -> None:
    for name, address in _nrt_python.c_helpers.items():
        llvmlite.binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


@functools.cache
def _skip_blas_check() -> None:
    """Import numba's array functions without scipy.linalg, which takes longer than numba itself.

    numba imports it only to see whether it is there. A function that calls BLAS imports it when it is compiled.
    """
    from numba.np import linalg

    check = linalg.ensure_blas
    try:
        linalg.ensure_blas = lambda: None
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = check


def _check(payload: bytes) -> bytes:
    """Verify the checksum: damaged machine code would run instead of raising."""
    return hashlib.blake2b(payload, digest_size=_CHECK_BYTES).digest()


def _folders(function: Callable[..., Any], make: bool = False) -> Iterator[Path]:
    """Folders for machine code, best first."""
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR)
        return
    file = Path(function.__code__.co_filename)
    if file.is_file():
        yield Path(importlib.util.cache_from_source(str(file))).parent
    with contextlib.suppress(ParameterError):  # no home directory
        yield cache_dir() / "kernels"
    with contextlib.suppress(OSError):
        yield _private_folder(make)


def _private_folder(make: bool) -> Path:
    """A temporary folder that nobody else can write machine code into."""
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
        "no writable folder for compiled code, so every process compiles again; "
        "set NUMBA_CACHE_DIR to a writable folder",
        RuntimeWarning,
        stacklevel=1,
    )
