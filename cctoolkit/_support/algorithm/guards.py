"""What keeps a user's algorithm from hanging or crashing the process: a limit on loops, failures that name their line.

Compiled code cannot be interrupted, and a failure in it does not say where. So the functions that a user supplies, and
those that they call, are compiled with two additions: each iteration of a loop uses up one of the steps that an event
may take, and each line records that it was reached. Algorithms of this package are compiled without.

Both are kept in the process, not per thread: with several simulations in threads, the line may be that of another.
"""

from __future__ import annotations

import functools
import types as pytypes
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir as llvm_ir
from numba.core import ir, types
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.ir_utils import build_definitions, get_definition, guard
from numba.core.untyped_passes import ReconstructSSA
from numba.extending import intrinsic

from .checks import CheckingCompiler, HelperChecks, Mistake
from .origin import is_ours

__all__ = ["STEPS", "EndlessLoopError", "GuardedCompiler", "called", "last_line", "marker"]

#: Loop iterations that one call of an algorithm may take, those of functions that it calls included: a fraction of a
#: second. What ends takes thousands.
STEPS = 100_000_000

_LINE_BITS = 24


class EndlessLoopError(Exception):
    """A function has used up its steps."""


# ---- what compiled code reads and writes -----------------------------------------------------------------------------

_STEPS_LEFT, _MARK = "cctoolkit_steps_left", "cctoolkit_mark"
_cells = np.zeros(2, np.int64)
llvm.add_symbol(_STEPS_LEFT, _cells[0:].ctypes.data)
llvm.add_symbol(_MARK, _cells[1:].ctypes.data)


def _address(builder: Any, name: str) -> Any:
    """The cell `name`: a symbol rather than a number, so that the machine code can be kept."""
    known = builder.module.globals.get(name)
    return known or llvm_ir.GlobalVariable(builder.module, llvm_ir.IntType(64), name)


@intrinsic
def _start(typingctx: Any) -> Any:
    """A call of the algorithm begins."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(llvm_ir.Constant(llvm_ir.IntType(64), STEPS), _address(builder, _STEPS_LEFT))
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def _step(typingctx: Any) -> Any:
    """An iteration of a loop begins."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        cell = _address(builder, _STEPS_LEFT)
        left = builder.sub(builder.load(cell), llvm_ir.Constant(llvm_ir.IntType(64), 1))
        builder.store(left, cell)
        with builder.if_then(builder.icmp_signed("<", left, left.type(0)), likely=False):
            text = f"still looping after {STEPS:,} iterations at one event"
            context.call_conv.return_user_exc(builder, EndlessLoopError, (text,))
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def _reach(typingctx: Any, mark: Any) -> Any:
    """A line begins."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[0], _address(builder, _MARK))
        return context.get_dummy_value()

    return types.void(types.int64), code


# ---- which functions -------------------------------------------------------------------------------------------------


def called(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The user's functions that a function calls, directly or not."""
    found = [function]
    for each in found:  # grows
        cells = zip(each.__code__.co_freevars, getattr(each, "__closure__", None) or (), strict=False)
        scope = getattr(each, "__globals__", {}) | {name: cell.cell_contents for name, cell in cells}
        for name in (*each.__code__.co_names, *each.__code__.co_freevars):
            value = scope.get(name)
            inside = [getattr(value, n, None) for n in each.__code__.co_names]
            for other in inside if isinstance(value, pytypes.ModuleType) else [value]:
                if isinstance(other, Dispatcher) and not is_ours(other) and other.py_func not in found:
                    found.append(other.py_func)
                    yield other.py_func


def marker(function: Callable[..., Any]) -> int:
    """The number that identifies a function when it records a line (the sum of both); the same in all processes."""
    code = function.__code__
    name = f"{function.__qualname__} {code.co_firstlineno}".encode()
    return zlib.crc32(code.co_code, zlib.crc32(name)) << _LINE_BITS


def last_line() -> tuple[int, int]:
    """The marker of the user's function that ran last, and its line."""
    mark = int(_cells[1])
    return mark >> _LINE_BITS << _LINE_BITS, mark & ((1 << _LINE_BITS) - 1)


# ---- compiling -------------------------------------------------------------------------------------------------------


@register_pass(mutates_CFG=False, analysis_only=False)
class _Guards(FunctionPass):
    _name = "cctoolkit_guards"
    event = True

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        code, function = state.func_ir, state.func_id.func
        _guard_calls(code, function)
        loops = compute_cfg_from_blocks(code.blocks).loops().values()
        headers = {loop.header: min(_lines(code, loop.body)) for loop in loops}
        mark = marker(function)
        for label, block in code.blocks.items():
            block.body = list(_guarded(block, mark, headers.get(label)))
        if self.event:
            first = code.blocks[min(code.blocks)]
            first.body = [*_call(first, first.loc, _start), *first.body]
        code._definitions = build_definitions(code.blocks)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _HelperGuards(_Guards):
    _name = "cctoolkit_helper_guards"
    event = False


def _lines(code: Any, labels: Any) -> Iterator[int]:
    return (statement.loc.line for label in labels for statement in code.blocks[label].body)


def _guarded(block: Any, mark: int, loop: int | None) -> Iterator[Any]:
    """The statements of a block with what is added; `loop` is the line of the loop that begins with the block."""
    at = None
    for statement in block.body:
        value = getattr(statement, "value", None)
        if isinstance(value, ir.Expr) and value.op == "phi":
            yield statement
            continue
        if loop is not None:
            yield from _call(block, statement.loc, _reach, mark + loop)
            yield from _call(block, statement.loc, _step)
            loop = None
        if statement.loc.line != at:
            at = statement.loc.line
            yield from _call(block, statement.loc, _reach, mark + at)
        yield statement
        if isinstance(value, ir.Expr) and value.op == "call":
            at = None  # the function called has noted its own lines


def _call(block: Any, loc: Any, function: Any, *arguments: int) -> Iterator[Any]:
    """The statements that call an intrinsic with constants."""
    names = [block.scope.redefine("$guard", loc) for _ in (function, *arguments, None)]
    for name, value in zip(names[1:], arguments, strict=False):
        yield ir.Assign(ir.Const(value, loc), name, loc)
    yield ir.Assign(ir.Global(function._name, function, loc), names[0], loc)
    result = ir.Expr.call(names[0], names[1:-1], (), loc)
    yield ir.Assign(result, names[-1], loc)


def _guard_calls(code: Any, function: Callable[..., Any]) -> None:
    """Let a function call the guarded form of the user's functions that it calls."""
    for block in code.blocks.values():
        for statement in block.body:
            if not isinstance(statement, ir.Assign):
                continue
            value: Any = statement.value
            if isinstance(value, ir.Expr) and value.op == "getattr":
                owner = guard(get_definition, code, value.value)
                module = owner.value if isinstance(owner, ir.Global | ir.FreeVar) else None
                found = getattr(module, value.attr, None) if isinstance(module, pytypes.ModuleType) else None
            else:
                found = value.value if isinstance(value, ir.Global | ir.FreeVar) else None
            if not isinstance(found, Dispatcher) or is_ours(found.py_func):
                continue
            if function in (found.py_func, *called(found.py_func)):
                name = found.py_func.__name__
                raise Mistake(statement.loc.line, f"{name} calls itself: use a loop", function)
            statement.value = ir.Global(found.py_func.__name__, _helper(found), statement.loc)


@functools.cache
def _helper(dispatcher: Any) -> Any:
    """The guarded form of a function that a user has compiled."""
    options = {
        k: v for k, v in dispatcher.targetoptions.items() if k not in ("nopython", "boundscheck", "cache")
    }
    return numba.njit(pipeline_class=_HelperCompiler, boundscheck=True, **options)(dispatcher.py_func)


class GuardedCompiler(CheckingCompiler):
    """For a user's function that the simulator calls."""

    about = f"guarded, {STEPS}"  # as which its machine code is kept

    def define_pipelines(self) -> list[Any]:
        (passes,) = super().define_pipelines()
        passes.add_pass_after(_Guards, ReconstructSSA)
        passes.finalize()
        return [passes]


class _HelperCompiler(CheckingCompiler):
    """For a function that a user's function calls."""

    checks = HelperChecks

    def define_pipelines(self) -> list[Any]:
        (passes,) = super().define_pipelines()
        passes.add_pass_after(_HelperGuards, ReconstructSSA)
        passes.finalize()
        return [passes]
