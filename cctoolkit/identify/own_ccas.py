"""The user's own congestion controls, named on the command line: ``FILE.py``, ``FILE.py:CLASS``, ``linux:NAME``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from .._support.algorithm.origin import is_ours
from .._support.words import did_you_mean, first_line
from ..cca import Cca
from ..errors import CCToolkitError, ParameterError

__all__ = ["names_of_file", "own_ccas"]


def own_ccas() -> list[str]:
    """Names of the congestion controls for the simulator that the user has defined."""
    return [name for name, cls in Cca.registry.items() if not is_ours(cls) and not cls.linux_only]


def names_of_file(text: str) -> list[str] | None:
    """Names of the congestion controls in a Python file, which is imported; None if the text names no such file.

    Worker processes import the file, too: its folder joins the module search path.

    Parameters
    ----------
    text : str
        ``FILE.py`` for all classes derived from :class:`cctoolkit.cca.Cca` that it defines, or ``FILE.py:CLASS``.

    Raises
    ------
    ParameterError
        There is no such file or class, or the file cannot be imported.
    """
    name, _, wanted = text.partition(".py:") if ".py:" in text else (text.removesuffix(".py"), "", "")
    if name == text:
        return None
    path = Path(f"{name}.py").absolute()
    if not path.is_file():
        raise ParameterError(f"ccas: {path.name}: no such file")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "") != path:
        raise ParameterError(f"ccas: {path.name}: a module {path.stem!r} is loaded already; rename the file")
    if loaded is None and not _finds(path):
        raise ParameterError(f"ccas: {path.name}: there is another module {path.stem!r}; rename the file")
    if loaded is None:
        _load(path)
    found = {cls.__name__: name for name, cls in Cca.registry.items() if cls.__module__ == path.stem}
    if not found:
        raise ParameterError(f"ccas: {path.name}: defines no class derived from cctoolkit.cca.Cca")
    if wanted and wanted not in found:
        raise ParameterError(f"ccas: {path.name}: has no class {wanted!r}{did_you_mean(wanted, found)}")
    return [found[wanted]] if wanted else list(found.values())


def _finds(path: Path) -> bool:
    """Whether worker processes, which import the file by its name, find this one: its folder comes last."""
    try:
        other = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):
        return True
    return other is None or Path(other.origin or "") == path


def _load(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # of a .py file
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    before = [*sys.path]
    sys.path.append(str(path.parent))  # last, so that no file beside it hides a module of ours or Python's
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as err:  # whatever the user's code raises
        del sys.modules[path.stem]
        sys.path[:] = before
        if isinstance(err, CCToolkitError):
            raise
        kind = type(err).__name__
        line, why = _last_line(err, path), first_line(err, "without a text")
        if isinstance(err, SyntaxError):
            line, why = err.lineno, err.msg
        place = path.name if line is None else f"{path.name}, line {line}"
        raise ParameterError(f"ccas: {place}: {kind}: {why}") from None


def _last_line(err: BaseException, path: Path) -> int | None:
    """The last line of the file that led to an error."""
    lines, trace = [], err.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return lines[-1] if lines else None
