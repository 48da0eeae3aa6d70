"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package (PEP 562), so that asking an experiment for help imports nothing heavy.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    modules : mapping
        Modules of the package, and the names each provides. The modules themselves are names, too.
    """
    where = {name: module for module, names in modules.items() for name in names}

    def lookup(name: str) -> Any:
        if name in where:
            return getattr(importlib.import_module(f".{where[name]}", package), name)
        if name in modules:
            return importlib.import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return lookup
