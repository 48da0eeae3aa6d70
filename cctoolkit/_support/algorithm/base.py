"""What AQMs and congestion controls have in common: parameters, state, statistics, and functions compiled by numba.

An algorithm is a class. Its annotated fields are its parameters; the nested classes ``State`` and ``Stats`` name what
it remembers and what it counts; its functions say what it does at each event. Functions have no ``self``: they get
records with these fields and keep everything in them, so one compiled function serves any number of queues or flows.
:mod:`cctoolkit.aqm` and :mod:`cctoolkit.cca` explain how to write one.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import linecache
import re
import sys
import traceback
import types as pytypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, dataclass_transform

import numpy as np

from ...errors import AlgorithmError, ParameterError
from ..arguments import shown
from .origin import is_ours

__all__ = ["Algorithm", "record"]

_NS = {"_s": 1_000_000_000, "_ms": 1_000_000, "_us": 1_000}


def record(fields: Mapping[str, Any], where: str = "") -> np.ndarray:
    """A record with these fields and values: a structured array of length 1 with the memory layout of C.

    Integers become int64, floats float64, booleans one byte, sequences arrays of these. `where` precedes the field's
    name in an error.
    """
    values = {name: np.asarray(value) for name, value in fields.items()} or {"unused": np.asarray(0)}
    kinds = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}
    spec = []
    for name, value in values.items():
        if value.dtype.kind not in kinds or value.size == 0:
            raise ParameterError(
                f"{where}{name}: {fields[name]!r} must be a number, a boolean, or an array of these "
                "with a fixed size, such as np.zeros(16)"
            )
        spec.append((name, kinds[value.dtype.kind], value.shape))
    out = np.zeros(1, np.dtype(spec, align=True))
    for name, value in values.items():
        out[name][0] = value
    return out


def _fields_of(cls: type | None) -> dict[str, Any]:
    """The attributes of a ``State`` or ``Stats`` class with their initial values, inherited ones included."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1] if cls else ()):
        found.update({k: v for k, v in vars(base).items() if not k.startswith("__")})
    return found


@dataclass_transform(frozen_default=True)
class Algorithm:
    """Base of :class:`cctoolkit.aqm.Aqm` and :class:`cctoolkit.cca.Cca`.

    Subclasses become frozen dataclasses. The functions also see parameters named ``…_s``, ``…_ms`` or ``…_us`` as
    ``…_ns`` (int64).
    """

    #: Functions that may be defined, all with the arguments :attr:`arguments`; `Aqm` and `Cca` set both.
    events: ClassVar[tuple[str, ...]] = ()
    arguments: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[dict[str, type[Algorithm]]]
    #: The name in scenarios; by default the class's name in lower case.
    name: ClassVar[str]
    #: Exists only in the Linux kernel: scenarios may name it, but only the testbed runs it.
    linux_only: ClassVar[bool] = False

    class State:
        """What the algorithm remembers, with initial values."""

    class Stats:
        """What the algorithm counts; decisions must not depend on it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "registry" in vars(cls):  # Aqm or Cca itself
            return
        for name in cls.events:
            function = getattr(vars(cls).get(name), "py_func", vars(cls).get(name))
            if isinstance(function, pytypes.FunctionType):
                setattr(cls, name, staticmethod(function))
        _check_class(cls)
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()
        other = cls.registry.get(cls.name)
        if other is not None and is_ours(other) and not is_ours(cls):
            raise ParameterError(
                f'{cls.__name__}: the name {cls.name!r} is taken; rename the class, or set name = "my_{cls.name}"'
            )
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
                raise ParameterError(f"{where}: {value!r} must be True or False")
            return bool(value)
        if kind in ("int", "float"):
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise ParameterError(f"{where}: {value!r} is not a number")
            if not 0 <= value <= sys.float_info.max:
                raise ParameterError(f"{where}: {value!r} must be finite and not negative")
            if kind == "int" and value != int(value):
                raise ParameterError(f"{where}: {value!r} is not a whole number")
            return int(value) if kind == "int" else float(value)
        return tuple(value) if isinstance(value, list) else value

    def check(self) -> None:
        """Raise ParameterError for values that cannot work; numbers are already known to be finite and not negative."""

    def derived(self) -> dict[str, Any]:
        """More fields for the parameter record, computed once: tables, constants."""
        return {}

    def initial(self) -> dict[str, Any]:
        """Initial values (and array sizes) of state fields that depend on parameters."""
        return {}

    def parameters(self) -> dict[str, Any]:
        """Parameters by name, as given."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def parameter_record(self) -> np.ndarray:
        """The record that functions receive as ``p``."""
        fields: dict[str, Any] = {}
        for name, value in self.parameters().items():
            if isinstance(value, str):  # functions cannot compare text: derived() encodes it as a number
                continue
            fields[name] = value
            for suffix, ns in _NS.items():
                if name.endswith(suffix) and isinstance(value, int | float) and not isinstance(value, bool):
                    if value * ns > 2**62:
                        raise ParameterError(f"{type(self).__name__}.{name}: {value!r} is too long")
                    fields[name.removesuffix(suffix) + "_ns"] = round(value * ns)
        with self._in_range():
            return record(fields | self.derived(), f"{type(self).__name__}.")

    def state_record(self) -> np.ndarray:
        """A fresh record of the kind that functions receive as ``s``."""
        with self._in_range():
            return record(_fields_of(self.State) | self.initial(), f"{type(self).__name__}.State.")

    @contextmanager
    def _in_range(self) -> Iterator[None]:
        """Raise ParameterError where numbers that are too large or too small make the computation of fields fail."""
        try:
            yield
        except ParameterError:
            raise
        except (ArithmeticError, MemoryError, TypeError, ValueError) as err:
            if not is_ours(type(self)):
                raise  # a mistake in the user's code, whose place is in the traceback
            name, given = type(self).__name__, self.parameters().items()
            changed = [
                f"{name}.{key}: {shown(value)}" for key, value in given if value != getattr(type(self), key)
            ]
            raise ParameterError(f"{', '.join(changed)} is too large or too small") from err

    def stats_record(self) -> np.ndarray:
        """A fresh record of the kind that functions receive as ``stats``."""
        return record(_fields_of(self.Stats), f"{type(self).__name__}.Stats.")

    def compiled(self, result: Any, *views: np.dtype) -> dict[str, int]:
        """Addresses of the functions, compiled for this algorithm's records and those in `views`.

        Parameters
        ----------
        result : numba type
            Return type of the functions.
        *views : dtype
            Types of the arguments between ``stats`` and the time, which is last.

        Raises
        ------
        AlgorithmError
            A function does not compile; the text names the line.
        ParameterError
            The algorithm exists only in the Linux kernel.
        """
        if self.linux_only:
            raise ParameterError(
                f"{self.name} exists only in the Linux kernel; run the scenario on the testbed"
            )
        dtypes = (
            *(r.dtype for r in (self.parameter_record(), self.state_record(), self.stats_record())),
            *views,
        )
        addresses = {}
        for event in self.events:
            function = getattr(type(self), event, None)
            addresses[event] = 0 if function is None else _address(type(self), function, result, dtypes)
        return addresses


# ---- compiling -------------------------------------------------------------------------------------------------------

_COMPILED: dict[tuple[Any, ...], Any] = {}  # keeps compiled functions, and so their addresses, alive


def _address(
    cls: type[Algorithm], function: Callable[..., Any], result: Any, dtypes: tuple[np.dtype, ...]
) -> int:
    import numba

    from ..kernels import callback
    from .checks import CheckingCompiler
    from .guards import GuardedCompiler

    key = (function, result, dtypes)
    if key not in _COMPILED:
        signature = result(*(numba.from_dtype(d) for d in dtypes), numba.int64)
        options: dict[str, Any] = {
            "error_model": "numpy",
            "boundscheck": True,
            "pipeline_class": CheckingCompiler if is_ours(function) else GuardedCompiler,
        }
        try:
            _COMPILED[key] = callback(function, signature, **options)
        except Exception as err:  # numba's own errors, and a bare KeyError for an unknown field
            raise AlgorithmError(_explained(cls, function, dtypes, err)) from None
    return int(_COMPILED[key].address)


# ---- error messages --------------------------------------------------------------------------------------------------


def _check_class(cls: type[Algorithm]) -> None:
    """Reject class bodies that cannot mean what they say."""
    takes = f"({', '.join(cls.arguments)})"
    above = [vars(base) | inspect.get_annotations(base) for base in cls.__mro__[1:]]
    inherited = {name for names in above for name in names}
    parameters = {
        f.name for base in cls.__mro__[1:] for f in getattr(base, "__dataclass_fields__", {}).values()
    }
    annotated = inspect.get_annotations(cls)
    for name, value in vars(cls).items():
        where = f"{cls.__name__}.{name}"
        if isinstance(value, pytypes.FunctionType) and name not in inherited:
            same = len(inspect.signature(value).parameters) == len(cls.arguments)
            if name.startswith("on_") or same or f"on_{name}" in cls.events:
                raise ParameterError(f"{where}: no such event; expected one of {', '.join(cls.events)}")
        plain = isinstance(value, bool | int | float | str | list | tuple | np.ndarray)
        plain = plain and not name.startswith("_") and name not in annotated
        if plain and (name in parameters or name not in inherited):
            kind = type(value).__name__
            raise ParameterError(f"{where}: a parameter needs a type: {name}: {kind} = {value!r}")
    for name in annotated:
        if name not in vars(cls) and not str(annotated[name]).startswith(("ClassVar", "typing.ClassVar")):
            raise ParameterError(f"{cls.__name__}.{name}: a parameter needs a default")
    for name in cls.events:
        function = getattr(cls, name, None)
        given = list(inspect.signature(function).parameters) if function is not None else list(cls.arguments)
        if len(given) != len(cls.arguments) or (
            given != list(cls.arguments) and set(given) == set(cls.arguments)
        ):
            raise ParameterError(f"{cls.__name__}.{name}: must take {takes}, in this order and without self")
    for part in ("State", "Stats"):
        fields = _fields_of(getattr(cls, part))
        for name in inspect.get_annotations(getattr(cls, part)):
            if name not in fields:
                raise ParameterError(
                    f"{cls.__name__}.{part}.{name}: needs an initial value, such as {name} = 0.0"
                )
        record(fields, f"{cls.__name__}.{part}.")


def explained_failure(err: BaseException, used: Iterable[type[Algorithm]]) -> str:
    """One line for an error in running compiled code: what, and in which function and line if that is known.

    Parameters
    ----------
    err : exception
        Its traceback ends in the function only for a ``raise`` or ``assert`` there.
    used : iterable of classes
        The algorithms that may have caused it.
    """
    from .guards import EndlessLoopError, called, last_line, marker

    what = (
        str(err) if isinstance(err, EndlessLoopError) else f"{type(err).__name__}: {err}".removesuffix(": ")
    )
    events = [(cls, f) for cls in used for event in cls.events if (f := getattr(cls, event, None))]
    functions = [(cls, each) for cls, f in events for each in (f, *called(f))]
    for place in traceback.extract_tb(err.__traceback__)[-1:]:
        for cls, function in functions:
            code = function.__code__
            # the folder is that of whichever process compiled it: a notebook's kernels have one each
            same = Path(place.filename).name == Path(code.co_filename).name and place.name == code.co_name
            if same and (place.lineno or 0) in _lines(code):
                return _at_line(cls, function, place.lineno or 0, what)
    reached, line = last_line()
    for cls, function in functions:
        if not is_ours(function) and marker(function) == reached:
            return _at_line(cls, function, line, what)
    return what


def _lines(code: pytypes.CodeType) -> range:
    last = max((n for *_, n in code.co_lines() if n), default=code.co_firstlineno)
    return range(code.co_firstlineno, last + 1)


def _at_line(cls: type, function: Callable[..., Any], line: int, what: str) -> str:
    source = linecache.getline(function.__code__.co_filename, line).strip()
    name = function.__name__ if function.__name__ in cls.events else f"{function.__name__} (called)"  # type: ignore[attr-defined]
    return f"{cls.__name__}.{name}, line {line}: {source!r}: {what}"


def _first_use(function: Callable[..., Any], attribute: str) -> tuple[Callable[..., Any], int, str] | None:
    """Where the function, or one that it calls, first uses an attribute: function, line, name of the object."""
    scope = getattr(function, "__globals__", {})
    called = [getattr(scope.get(name), "py_func", None) for name in function.__code__.co_names]
    for f in (function, *called):
        if f is None:
            continue
        for n in _lines(f.__code__):
            use = re.search(rf"(\w+)\.{attribute}\b", linecache.getline(f.__code__.co_filename, n))
            if use:
                return f, n, use[1]
    return None


#: Numba's messages and what they mean to the author of the function; groups of the first fill the second.
_MEANINGS = (
    (r"No conversion from none to int64", "must return PASS, MARK or DROP on every path"),
    (r"No conversion from Literal\[str\]\((.*)\) to int64", "must return PASS, MARK or DROP, not the text {0!r}"),
    (r"No conversion from (.*) to int64 for '\$\w*return", "must return PASS, MARK or DROP, not {0}"),
    (r"No conversion from .* to none", "must not return anything: set flow.cwnd, flow.ssthresh or flow.pacing_bps"),
    (r"name '(self)' is not defined", "there is no self: p has the parameters, s the state"),
    (r"Untyped global name '(\w+)'.*class 'function'", "{0} is not a compiled function: put @numba.njit before it"),
    (r"Untyped global name '(\w+)'", "{0} cannot be used: it must be a number, an array or a compiled function"),
    (r"opcode \(STORE_GLOBAL\)", "global variables cannot be changed: keep it in State"),
    (r"opcode \(IMPORT_NAME\)", "move the import outside the class"),
    (r"attribute '(append|pop|extend|insert)' of type nestedarray",
     "arrays in the state have a fixed size and no {0}: assign to an index"),
    (r"attribute '(\w+)' of type Module\(<module '(\w+)'", "{1}.{0} cannot be used here"),
    (r"Exception matching is limited", "except cannot name an exception here: check before the operation instead"),
    (r"missing a required argument.*CPUDispatcher\(<function random ",
     "random needs its owner: random(queue) in an AQM, random(flow) in a congestion control"),
    (r"Cannot bind.*CPUDispatcher\(<function (\w+) ", "{0} is called with the wrong arguments"),
    (r"No implementation of function Function\(.*?>>> ([^\n]*)", "numba does not support {0}"),
)  # fmt: skip


def _explained(
    cls: type[Algorithm], function: Callable[..., Any], dtypes: tuple[np.dtype, ...], err: Exception
) -> str:
    """One line for a compilation error: function, line, and what to do about it."""
    from .checks import Mistake

    if isinstance(err, Mistake):
        return _at_line(cls, err.function or function, err.line, err.text)
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(err))
    code = function.__code__
    records = dict(zip(code.co_varnames, dtypes, strict=False))
    places = re.findall(r'(?:File "|Raised from )([^"\n]+?)"?(?:, line | \()(\d+)', text)
    lines = [int(n) for file, n in places if code.co_filename.endswith(file.lstrip("./"))]
    loc = getattr(err, "loc", None)
    if loc is not None and loc.line:
        lines.insert(0, loc.line)
    line = next((n for n in lines if n in _lines(code)), code.co_firstlineno)

    field = re.fullmatch(r"'(\w+)'", text) if isinstance(err, KeyError) else None
    field = field or re.fullmatch(r"module '\w+' has no attribute '(\w+)'", text)
    if field:
        where, line, owner = _first_use(function, field[1]) or (function, line, "")
        what = text if not isinstance(err, KeyError) else _no_field(cls, owner, field[1], records)
        return _at_line(cls, where, line, what)
    unknown = re.search(r"(?:Variable|name) '(?!self')(\w+)' is not defined", text)
    if unknown:
        owners = [f"{owner}.{unknown[1]}" for owner, d in records.items() if unknown[1] in (d.names or ())]
        hint = f": {' or '.join(owners)}?" if owners else ""
        return _at_line(cls, function, line, f"{unknown[1]} is not defined{hint}")
    for pattern, meaning in _MEANINGS:
        found = re.search(pattern, text, re.S)
        if found:
            return _at_line(cls, function, line, meaning.format(*found.groups()))
    useful = [x.strip() for x in text.splitlines() if x.strip() and not x.startswith("Failed in")]
    return _at_line(cls, function, line, useful[0] if useful else type(err).__name__)


def _no_field(cls: type[Algorithm], owner: str, name: str, records: Mapping[str, np.dtype]) -> str:
    names = [
        n for n in (records[owner].names if owner in records else ()) or () if n not in ("unused", "rng")
    ]
    if owner == "p" and name in getattr(cls, "__dataclass_fields__", {}):
        return f"p.{name} is text, which functions cannot see: encode it as a number in derived()"
    near = difflib.get_close_matches(name, names, 1)
    hint = f" ({near[0]}?)" if near else ""
    listed = f"; it has {', '.join(names)}" if names else ""
    return f"{owner or 'a record'} has no field {name!r}{hint}{listed}"
