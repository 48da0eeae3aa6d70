"""Parameters of the host's kernel modules, for backends that use its kernel."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from .._support.algorithm.kernel_module import module_name
from ..errors import ParameterError
from .errors import TestbedError
from .plan import ModuleParameter

__all__ = ["set_module_parameters"]

_MODULES = Path("/sys/module")


def set_module_parameters(parameters: Iterable[ModuleParameter]) -> None:
    """Set parameters, loading modules that are not loaded yet.

    Raises
    ------
    ParameterError
        A module lacks a parameter that is needed.
    TestbedError
        A value was refused.
    """
    for one in parameters:
        module = module_name(one.kind, one.owner)
        folder = _MODULES / module
        if not folder.is_dir():
            subprocess.run(["modprobe", "-q", module], capture_output=True, check=False)
        file = folder / "parameters" / one.name
        if file.is_file():
            try:
                file.write_text(f"{one.value}\n")
            except OSError as err:
                raise TestbedError(f"{module}: {one.name} = {one.value}: {err.strerror}") from None
        elif one.needed:
            has = sorted(path.name for path in folder.glob("parameters/*"))
            raise ParameterError(
                f"module {module} has no parameter {one.name}; it has {', '.join(has) or 'none'}"
            )
