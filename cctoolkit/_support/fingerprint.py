"""Digests of values and code by what they do, equal in all processes with the same code.

A function includes everything it uses: byte code, constants, defaults and closure, and the globals it refers to, in
whatever module they are defined, and theirs in turn. Locations and times of files do not count.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterator, Set
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

__all__ = ["UnknownValueError", "fingerprint"]

#: Functions of these packages count by name; users of a digest add the versions that matter.
LIBRARIES = sys.stdlib_module_names | {"llvmlite", "numba", "numpy"}

_PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)
_BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    np.ufunc,
)


class UnknownValueError(TypeError):
    """A value without a digest, since its behaviour is unknown."""


def fingerprint(
    value: Any,
    *,
    lines: bool = True,
    follow: Callable[[str], bool] = lambda module: module.partition(".")[0] not in LIBRARIES,
    name_of: Callable[[Any], str] | None = None,
) -> str:
    """Digest of a value: numbers, text, arrays, types, containers and functions, compiled by numba or not.

    Parameters
    ----------
    value : object
        What to digest.
    lines : bool
        Whether line numbers of functions count; compiled code that raises an error names them.
    follow : callable
        Given a module's name, whether its functions count by their code; others count by name.
    name_of : callable, optional
        Represents values of other kinds.

    Returns
    -------
    str
        The SHA-256 in hexadecimal.

    Raises
    ------
    UnknownValueError
        A value of another kind, without `name_of`.

    Notes
    -----
    Globals are found by name alone, so an attribute with the name of a global includes that global too. Methods of
    classes, and functions passed to :func:`numba.extending.overload`, are not included.
    """
    walk = _Walk(lines, follow, name_of)
    walk.add(value, frozenset())
    return walk.digest.hexdigest()


class _Walk:
    def __init__(
        self, lines: bool, follow: Callable[[str], bool], name_of: Callable[[Any], str] | None
    ) -> None:
        self.digest = hashlib.sha256()
        self._options = (lines, follow, name_of)
        self._lines, self._follow, self._name_of = self._options
        self._seen: dict[types.FunctionType, int] = {}
        self._open: set[str] = set()  # modules being walked

    def _feed(self, *words: Any) -> None:
        self.digest.update(repr(words).encode("utf-8", "surrogatepass"))

    def add(self, value: Any, used: Set[str]) -> None:
        """Add a value; of a module or class, only the names in `used`."""
        if isinstance(value, enum.Enum):
            self._feed("member", _name(type(value)), value.name)
            self.add(value.value, used)
        elif type(value) in _PLAIN:
            self._feed(type(value).__name__, value)
        elif isinstance(value, np.dtype):
            self._feed("dtype", repr(value))
        elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            self._feed("array", type(value).__name__, repr(value.dtype), value.shape, value.strides)
            self.digest.update(value.tobytes())
        elif isinstance(value, tuple | list):
            self._feed(_name(type(value)), len(value), getattr(value, "_fields", ()))
            for element in value:
                self.add(element, used)
        elif isinstance(value, dict):
            self._feed("dict", len(value))
            for pair in value.items():
                self.add(pair, used)
        elif isinstance(value, set | frozenset):  # the order differs between processes
            self._feed(type(value).__name__, sorted(self._apart(element) for element in value))
        elif isinstance(value, types.FunctionType):
            self._add_function(value, used)
        elif isinstance(value, Dispatcher):
            self._feed("compiled", sorted(value.targetoptions.items(), key=str))
            self.add(value.py_func, used)
        elif isinstance(value, numba.core.extending._Intrinsic):
            self._feed("intrinsic")
            self.add(value._defn, used)
        elif isinstance(value, numba.types.Type):
            self._add_type(value)
        elif isinstance(value, functools.partial):
            self.add(("partial", value.func, value.args, value.keywords), used)
        elif isinstance(value, types.MethodType):
            self.add(("method", value.__func__, value.__self__), used)
        elif isinstance(value, types.ModuleType):
            self._feed("module", value.__name__)
            if self._follow(value.__name__) and value.__name__ not in self._open:
                self._open.add(value.__name__)
                self._add_names(vars(value), used)
                self._open.remove(value.__name__)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, _BUILT_IN):
            self._feed("built in", _name(value))
        else:
            self._add_unknown(value)

    def _apart(self, value: Any) -> str:
        walk = _Walk(*self._options)
        walk.add(value, frozenset())
        return walk.digest.hexdigest()

    def _add_names(self, scope: dict[str, Any], used: Set[str]) -> None:
        for name in sorted(used & scope.keys()):
            self._feed("name", name)
            self.add(scope[name], used)

    def _add_function(self, function: types.FunctionType, used: Set[str]) -> None:
        if function in self._seen:
            self._feed("again", self._seen[function])
            return
        self._seen[function] = len(self._seen)
        if not self._follow(function.__module__ or ""):
            self._feed("function", _name(function))
            return
        self._feed("function", function.__qualname__)
        codes = list(_codes(function.__code__))
        for code in codes:
            self._add_code(code, function.__doc__)
        self.add((function.__defaults__, function.__kwdefaults__), used)
        names = frozenset(name for code in codes for name in code.co_names)
        for cell in function.__closure__ or ():
            try:
                enclosed = cell.cell_contents
            except ValueError:
                self._feed("empty")
            else:
                self.add(enclosed, names)
        self._add_names(function.__globals__, names)

    def _add_code(self, code: types.CodeType, doc: str | None) -> None:
        self._feed(
            "code", code.co_code, code.co_exceptiontable, code.co_flags,
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
            code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        )  # fmt: skip
        if self._lines:
            self._feed(code.co_firstlineno, code.co_linetable)
        constants = [c for c in code.co_consts if not isinstance(c, types.CodeType)]
        self.add([None if doc is not None and c == doc else c for c in constants], frozenset())

    def _add_type(self, kind: Any) -> None:
        """A numba type: its text has everything except the names in named tuples."""
        self._feed("type", str(kind))
        if hasattr(kind, "instance_class"):
            self._feed(_name(kind.instance_class), kind.fields)
        for part in getattr(kind, "types", ()):
            self._add_type(part)

    def _add_class(self, cls: type) -> None:
        self._feed("class", _name(cls))
        if not self._follow(cls.__module__) or issubclass(cls, BaseException):
            return
        if issubclass(cls, enum.Enum):
            self.add({name: member.value for name, member in cls.__members__.items()}, frozenset())
        elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
            self.add(cls._fields, frozenset())
        else:
            self._add_unknown(cls)

    def _add_unknown(self, value: Any) -> None:
        if self._name_of is None:
            raise UnknownValueError(f"{type(value).__name__}: {value!r}")
        self._feed("value", self._name_of(value))


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', None) or value.__name__}"


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
