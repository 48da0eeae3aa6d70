"""Algorithms in the user's own Linux kernel: named by a scenario, run by the testbed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import ParameterError
from ..cache_folder import kernel_folder

__all__ = ["PREFIX", "KernelModule", "built_in", "module_name"]

#: What precedes the kernel's name of an algorithm in a scenario.
PREFIX = "linux:"
_NAME = re.compile(r"[\w.+-]{1,15}")  # the kernel's names have 16 bytes with the final zero
_WORD = re.compile(r"[\w.,:+-]{1,1024}")  # words may be lists


class KernelModule:
    """Mixin for :class:`cctoolkit.aqm.KernelModule` and :class:`cctoolkit.cca.KernelModule`, which have its fields."""

    module: str
    settings: tuple[tuple[str, int | str], ...]
    name: ClassVar[str]

    def __post_init__(self) -> None:
        where = type(self).__qualname__
        if not isinstance(self.module, str) or not _NAME.fullmatch(self.module):
            raise ParameterError(
                f"{where}.module: {self.module!r} must be its name in the kernel: letters, digits, . + - _"
            )
        given = self.settings
        pairs = given.items() if isinstance(given, Mapping) else given
        checked = []
        for name, value in pairs:
            if not isinstance(name, str) or not name.isidentifier() or name == "name":
                raise ParameterError(f"{where}.settings: {name!r} is not a name of a module parameter")
            if isinstance(value, float) or not (isinstance(value, int) or _WORD.fullmatch(str(value))):
                raise ParameterError(f"{where}.{name}: {value!r} must be a whole number or a word")
            checked.append((name, int(value) if isinstance(value, int) else str(value)))
        object.__setattr__(self, "settings", tuple(sorted(checked)))
        object.__setattr__(self, "name", PREFIX + self.module)

    def parameters(self) -> dict[str, Any]:
        """Parameters of the module by name, as given."""
        return dict(self.settings)

    def with_parameter(self, name: str, value: Any) -> KernelModule:
        """A copy with another value of one parameter."""
        return type(self)(self.module, {**self.parameters(), name: value})  # type: ignore[call-arg]  # a dataclass


def module_name(kind: str, name: str) -> str:
    """Module of a queue discipline (`kind` ``"sch"``) or congestion control (``"tcp"``), by custom ``sch_NAME``."""
    return f"{kind}_{name}".replace("-", "_")


def built_in(kind: str) -> dict[str, Any]:
    """What kernels built with the user's own code (``cct testbed build --with``) contain.

    Parameters
    ----------
    kind : str
        ``"qdiscs"`` or ``"ccas"``.

    Returns
    -------
    dict
        Name to what the build noted about it.
    """
    found: dict[str, Any] = {}
    for path in sorted(kernel_folder().glob("linux-*.json")):
        try:
            found |= json.loads(path.read_text(encoding="utf-8")).get(kind, {})
        except (OSError, ValueError, AttributeError, TypeError):  # not ours to repair here
            continue
    return found
