"""What AQMs and congestion controls have in common: parameters, state, statistics, and functions compiled by numba.

An algorithm is a class. Its annotated fields are its parameters; the nested classes ``State`` and ``Stats`` name what
it remembers and what it counts; its functions say what it does at each event. Functions have no ``self``: they get
records with these fields, and everything they remember is in them, so one compiled function serves any number of
queues or flows. See :mod:`cctoolkit.aqm` and :mod:`cctoolkit.cca` for how to write one.
"""

from __future__ import annotations

import dataclasses
import inspect
import linecache
import math
import re
import types as pytypes
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, dataclass_transform

import numpy as np

from .errors import CCToolkitError, ParameterError

__all__ = ["Algorithm", "AlgorithmError", "record"]

_NS = {"_s": 1_000_000_000, "_ms": 1_000_000, "_us": 1_000}


class AlgorithmError(CCToolkitError):
    """The code of an AQM or a congestion control does not compile, or failed; the text names the line."""


def record(fields: Mapping[str, Any]) -> np.ndarray:
    """One record with these fields and values, as a structured array of length 1 that numba and C lay out alike.

    Integers become int64, floats float64, booleans one byte, sequences arrays of these.
    """
    values = {name: np.asarray(value) for name, value in fields.items()} or {"unused": np.asarray(0)}
    kinds = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}
    spec = []
    for name, value in values.items():
        if value.dtype.kind not in kinds:
            raise ParameterError(
                f"{name}: {fields[name]!r} is neither number nor boolean, nor an array of these"
            )
        spec.append((name, kinds[value.dtype.kind], value.shape))
    out = np.zeros(1, np.dtype(spec, align=True))
    for name, value in values.items():
        out[name][0] = value
    return out


def _fields_of(cls: type | None) -> dict[str, Any]:
    """The attributes of a ``State`` or ``Stats`` class with their first values, inherited ones too."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1] if cls else ()):
        found.update({k: v for k, v in vars(base).items() if not k.startswith("__")})
    return found


@dataclass_transform(frozen_default=True)
class Algorithm:
    """Base of :class:`cctoolkit.aqm.Aqm` and :class:`cctoolkit.cca.Cca`.

    A subclass is made a frozen dataclass. Parameters named ``…_s``, ``…_ms`` or ``…_us`` are also there as ``…_ns``
    (int64) in the functions.
    """

    #: Functions that may be defined, all with the arguments :attr:`arguments`; set by the two kinds.
    events: ClassVar[tuple[str, ...]] = ()
    arguments: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[dict[str, type[Algorithm]]]
    #: What scenarios call it; the class's name in lower case unless given.
    name: ClassVar[str]

    class State:
        """What is remembered; the values are those at the start."""

    class Stats:
        """What is counted; nothing may depend on it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "registry" in vars(cls):  # one of the two kinds
            return
        for name, value in list(vars(cls).items()):
            if name.startswith("on_") and name not in cls.events:
                raise ParameterError(
                    f"{cls.__name__}.{name}: no such event; there are {', '.join(cls.events)}"
                )
            if name in cls.events and isinstance(value, pytypes.FunctionType):
                setattr(cls, name, staticmethod(value))
        for name in cls.events:
            function = getattr(cls, name, None)
            if function is not None and len(inspect.signature(function).parameters) != len(cls.arguments):
                raise ParameterError(f"{cls.__name__}.{name}: takes ({', '.join(cls.arguments)})")
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()
        dataclasses.dataclass(frozen=True)(cls)
        cls.registry[cls.name] = cls

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = self._coerced(field.name, getattr(self, field.name), field.type)
            object.__setattr__(self, field.name, value)
        self.check()

    def _coerced(self, name: str, value: Any, annotation: Any) -> Any:
        kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        where = f"{type(self).__name__}.{name}"
        if kind == "bool":
            if not isinstance(value, bool | np.bool_):
                raise ParameterError(f"{where}: {value!r} is not true or false")
            return bool(value)
        if kind in ("int", "float"):
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise ParameterError(f"{where}: {value!r} is not a number")
            if not math.isfinite(value) or value < 0:
                raise ParameterError(f"{where}: {value!r} is not a finite number of at least 0")
            if kind == "int" and value != int(value):
                raise ParameterError(f"{where}: {value!r} is not a whole number")
            return int(value) if kind == "int" else float(value)
        return tuple(value) if isinstance(value, list) else value

    def check(self) -> None:
        """Raise ParameterError for values that cannot work; numbers have been checked to be finite and not negative."""

    def derived(self) -> dict[str, Any]:
        """Further entries of the parameters record, computed once: tables, constants."""
        return {}

    def initial(self) -> dict[str, Any]:
        """First values of state fields that depend on parameters; array sizes too."""
        return {}

    def parameters(self) -> dict[str, Any]:
        """Parameters by name, as given."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def parameter_record(self) -> np.ndarray:
        """What functions get as ``p``."""
        fields: dict[str, Any] = {}
        for name, value in self.parameters().items():
            if isinstance(value, str):  # functions cannot compare text: derived() says what it means
                continue
            fields[name] = value
            for suffix, ns in _NS.items():
                if name.endswith(suffix) and isinstance(value, float):
                    fields[name.removesuffix(suffix) + "_ns"] = round(value * ns)
        return record(fields | self.derived())

    def state_record(self) -> np.ndarray:
        """What functions get as ``s``: a fresh one."""
        return record(_fields_of(self.State) | self.initial())

    def stats_record(self) -> np.ndarray:
        """What functions get as ``stats``: a fresh one."""
        return record(_fields_of(self.Stats))

    def compiled(self, result: Any, *views: np.dtype) -> dict[str, int]:
        """Addresses of the functions, compiled for this algorithm's records and the given further ones.

        Parameters
        ----------
        result : numba type
            What the functions return.
        *views : dtype
            Records that come after ``p``, ``s`` and ``stats``; the last argument is the time.

        Raises
        ------
        AlgorithmError
            Names the user's line.
        """
        dtypes = (
            *(r.dtype for r in (self.parameter_record(), self.state_record(), self.stats_record())),
            *views,
        )
        addresses = {}
        for event in self.events:
            function = getattr(type(self), event, None)
            addresses[event] = 0 if function is None else _address(type(self), function, result, dtypes)
        return addresses


_COMPILED: dict[tuple[Any, ...], Any] = {}  # keeps compiled functions, and so their addresses, alive


def _address(cls: type, function: Callable[..., Any], result: Any, dtypes: tuple[np.dtype, ...]) -> int:
    import numba

    signature = result(*(numba.from_dtype(d) for d in dtypes), numba.int64)
    key = (function, signature)
    if key not in _COMPILED:
        try:
            try:
                compiled = numba.cfunc(signature, cache=True, error_model="numpy")(function)
            except RuntimeError:  # numba found no place for a cache: the code is in no file
                compiled = numba.cfunc(signature, error_model="numpy")(function)
            _COMPILED[key] = compiled
        except Exception as err:  # numba's own errors, and a bare KeyError for an unknown field
            raise AlgorithmError(_explained(cls, function, err)) from None
    return int(_COMPILED[key].address)


def _explained(cls: type, function: Callable[..., Any], err: Exception) -> str:
    """One line for a compilation error: which function and line, and what numba has to say."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(err))
    code = function.__code__
    lines = [
        int(n)
        for file, n in re.findall(r'File "([^"]+)", line (\d+)', text)
        if code.co_filename.endswith(file)
    ]
    loc = getattr(err, "loc", None)
    if loc is not None and loc.line:
        lines.insert(0, loc.line)
    end = max((n for *_, n in code.co_lines() if n), default=code.co_firstlineno)
    line = next((n for n in lines if code.co_firstlineno <= n <= end), code.co_firstlineno)
    source = linecache.getline(code.co_filename, line).strip()
    unknown = re.fullmatch(r"'(\w+)'", text)
    if isinstance(err, KeyError) and unknown:
        what = f"there is no field {unknown[1]!r}"
        numbers = range(code.co_firstlineno, end + 1)
        uses = (n for n in numbers if re.search(rf"\.{unknown[1]}\b", linecache.getline(code.co_filename, n)))
        line = next(uses, line)
        source = linecache.getline(code.co_filename, line).strip()
    elif re.search(r"[Cc]an.?t (convert|cast|unify).*none|cast.*none.*int64|none to int64", text):
        what = "must return PASS, MARK or DROP on every path"
    else:
        useful = [x.strip() for x in text.splitlines() if x.strip() and not x.startswith("Failed in")]
        what = useful[0] if useful else type(err).__name__
    return f"{cls.__name__}.{function.__name__}, line {line}: {source!r}: {what}"
