"""Mistakes in an AQM or congestion control that compile anyway: found in the typed code, reported with their line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype
from numba.core import ir, types
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.ir_utils import find_callname, get_definition, guard
from numba.core.typed_passes import NopythonTypeInference

__all__ = ["CheckingCompiler", "HelperChecks", "Mistake", "share"]

#: Records that belong to the simulator, by type: what functions call them, and the fields that they may set.
_SHARED: dict[types.Type, tuple[str, tuple[str, ...]]] = {}


def share(dtype: np.dtype, name: str, writable: tuple[str, ...]) -> None:
    """Let functions set only the fields `writable` of records of this type, wherever they come from."""
    _SHARED[from_dtype(dtype)] = name, writable


class Mistake(Exception):
    """A mistake, with its line; and with its function, if that is not the one being compiled."""

    def __init__(self, line: int, text: str, function: Any = None) -> None:
        super().__init__(text)
        self.line, self.text, self.function = line, text, function  # numba modifies args


@register_pass(mutates_CFG=False, analysis_only=True)
class _Checks(AnalysisPass):
    _name = "cctoolkit_checks"
    event = True

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        try:
            self._check(state)
        except Mistake as err:
            err.function = state.func_id.func
            raise
        return False

    def _check(self, state: Any) -> None:
        code = state.func_ir
        if not compute_cfg_from_blocks(code.blocks).exit_points():
            raise Mistake(code.loc.line, "never returns: an endless loop")
        if self.event:
            _check_locals(state)
        for block in code.blocks.values():
            for statement in block.body:
                if isinstance(statement, ir.SetAttr):
                    _check_set(state, statement, self.event)
                elif isinstance(statement, ir.Return) and self.event:
                    _check_return(state, statement)
                elif isinstance(statement, ir.Print):
                    raise Mistake(
                        statement.loc.line,
                        "print would run for every packet: count in Stats, or record a value over time in "
                        "queue.probability or the flow's window",
                    )
                elif isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Expr):
                    _check_expression(state, statement.value)


@register_pass(mutates_CFG=False, analysis_only=True)
class HelperChecks(_Checks):
    """The same for functions that the algorithm calls, which may take and return anything."""

    _name = "cctoolkit_helper_checks"
    event = False


def _check_locals(state: Any) -> None:
    """Reject variables that are set, never read, and named like a field."""
    written: dict[str, int] = {}
    read = set()
    for block in state.func_ir.blocks.values():
        for statement in block.body:
            if isinstance(statement, ir.Assign):
                written.setdefault(statement.target.unversioned_name, statement.loc.line)
                value = statement.value
                used = [value] if isinstance(value, ir.Var) else getattr(value, "list_vars", list)()
            else:
                used = [] if isinstance(statement, ir.Del) else statement.list_vars()
            read |= {variable.unversioned_name for variable in used}
    for name, line in written.items():
        for argument, kind in zip(state.func_ir.arg_names, state.args, strict=True):
            if name not in read and isinstance(kind, types.Record) and name in kind.fields:
                raise Mistake(line, f"{name} is set and never read: did you mean {argument}.{name}?")


def _check_set(state: Any, statement: Any, event: bool) -> None:
    record, value = state.typemap[statement.target.name], state.typemap[statement.value.name]
    argument = guard(get_definition, state.func_ir, statement.target)
    name, may = _SHARED.get(record, ("", (statement.attr,)))
    if event and isinstance(argument, ir.Arg) and argument.index == 0:
        name, may = "p", ()
    if statement.attr not in may:
        what = f"only {', '.join(may)} of {name} can be set" if may else f"{name} is read-only"
        raise Mistake(statement.loc.line, what)
    if (
        isinstance(record, types.Record)
        and isinstance(record.typeof(statement.attr), types.Integer)
        and isinstance(value, types.Float)
        and not statement.attr.endswith("_ns")  # a fraction of a nanosecond is no loss
    ):
        raise Mistake(
            statement.loc.line,
            f"{statement.attr} starts as a whole number and would lose the fraction: start it with a decimal "
            f"point ({statement.attr} = 0.0), or write int(…)",
        )


def _check_return(state: Any, statement: Any) -> None:
    if state.return_type == types.none:
        return
    cast = guard(get_definition, state.func_ir, statement.value)
    kind = state.typemap[cast.value.name]
    value = getattr(kind, "literal_value", 0)
    given = (
        "True or False"
        if isinstance(kind, types.Boolean)
        else "a fraction"
        if isinstance(kind, types.Float)
        else ""
    )
    if given or value not in range(4):
        raise Mistake(statement.loc.line, f"must return PASS, MARK or DROP, not {given or value}")


def _check_expression(state: Any, expression: Any) -> None:
    if expression.op == "binop":
        kinds = [state.typemap[v.name] for v in (expression.lhs, expression.rhs)]
        if sum(isinstance(k, types.UnicodeType | types.StringLiteral) for k in kinds) == 1:
            raise Mistake(expression.loc.line, "compares a number with text")
    if expression.op == "call":
        _, module = guard(find_callname, state.func_ir, expression) or (None, None)
        if module in ("random", "numpy.random"):
            raise Mistake(
                expression.loc.line,
                "these random numbers ignore the scenario's seed: write random(queue) in an AQM, "
                "random(flow) in a congestion control",
            )


class CheckingCompiler(CompilerBase):
    """Numba's usual passes, plus the checks once types are known."""

    checks: type[_Checks] = _Checks

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(self.checks, NopythonTypeInference)
        passes.finalize()
        return [passes]
