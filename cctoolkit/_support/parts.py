"""Functions compiled into their callers.

numba compiles a function that another one calls as if Python called it too: with wrappers, through all of LLVM's
passes, to machine code; and then all of it again as a part of the caller. For code of many small functions that is half
of the time. Here the caller gets what LLVM has yet to optimise; the rest is done if Python calls the function.
"""

from __future__ import annotations

import functools
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.core.types import unliteral

__all__ = ["Nestable"]


class Nestable(CPUDispatcher):
    """A compiled function that costs little where another one calls it.

    Parameters
    ----------
    function : function
    locals, targetoptions, pipeline_class
        As for numba's dispatchers, of which it is one.
    """

    @functools.cached_property
    def _part(self) -> Any:
        options = self.targetoptions | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        return CPUDispatcher(self.py_func, self.locals, options, pipeline_class=_PartCompiler)

    def add_overload(self, cres: Any) -> None:
        """Keep what has been compiled for Python, with the constants of its parts."""
        for environment in cres._find_referenced_environments():
            cres.library.codegen.set_env(environment.env_name, environment)
        super().add_overload(cres)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What a caller needs in order to type a call; one and the same for all constants that it passes."""
        kws = {name: unliteral(kind) for name, kind in dict(kws).items()}
        return self._part.get_call_template(tuple(map(unliteral, args)), kws)

    def get_overload(self, sig: Any) -> Any:
        """The key under which a caller finds the code."""
        return self._part.get_overload(sig)


class _PartLibrary(JITCodeLibrary):
    """Code for callers only."""

    @property
    def codegen(self) -> Any:
        """What numba asks to store constants, which the callers' library does."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        pass

    def get_pointer_to_function(self, name: str) -> int:
        """No function can be called."""
        self._ensure_finalized()
        return 0

    def finalize(self) -> None:
        """Take in the functions that this one calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True


class _PartCompiler(Compiler):
    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, _PartLibrary(target.codegen(), "part"), *rest)
