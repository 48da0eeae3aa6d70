"""Which public functions may take a table: found by looking, so that a new one cannot be forgotten."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import cctoolkit

#: Packages that have no public functions of their own: they draw, run or print what the others made.
_WITHOUT_PUBLIC_NAMES = ("cctoolkit._support", "cctoolkit.experiments", "cctoolkit.cli")
#: Annotations that leave room for a table. ``Any`` does; a number, a path or an option does not.
_TABLES = re.compile(
    r"\b(DataFrame|Series|Capture|FlowKeys|ndarray|ArrayLike|Run|Recording|SlotDataset|Windows|_Windows|Summary|Any)\b"
)
_NOT_TABLES = re.compile(r"(dict|Mapping)\[str, Any\]( \| None)?$|IO\[bytes\]$")


def packages() -> list[str]:
    """Packages with public names."""
    found = ["cctoolkit"]
    for package in pkgutil.walk_packages(cctoolkit.__path__, "cctoolkit."):
        if package.ispkg and not package.name.startswith(_WITHOUT_PUBLIC_NAMES):
            found.append(package.name)
    return found


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions, constructors and methods, each once, by the shortest name it has."""
    seen: set[int] = set()
    for package in packages():
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if id(value) in seen or not getattr(value, "__module__", "").startswith("cctoolkit"):
                continue
            seen.add(id(value))
            where = f"{package}.{name}".removeprefix("cctoolkit.").removeprefix("analysis.")
            if inspect.isfunction(value):
                yield where, value
            elif inspect.isclass(value):
                yield where, value
                for base in value.__mro__:
                    if not base.__module__.startswith("cctoolkit"):
                        continue
                    for method, function in vars(base).items():
                        called = isinstance(function, types.FunctionType | classmethod | staticmethod)
                        if called and not method.startswith("_") and id(function) not in seen:
                            seen.add(id(function))
                            yield f"{where}.{method}", getattr(value, method)


def may_take_a_table(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that a table fits, by their annotations."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    found = []
    for parameter in parameters:
        annotation = str(parameter.annotation).strip("'\"")
        if parameter.name in ("self", "cls") or parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.annotation is parameter.empty or (
            _TABLES.search(annotation) and not _NOT_TABLES.match(annotation)
        ):
            found.append(parameter.name)
    return found
