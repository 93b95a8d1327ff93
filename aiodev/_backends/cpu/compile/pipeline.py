"""Custom numba pipeline: lowering records source lines; code generation is deferred to ``object_file``.

numba makes every function ready to be called: it adds the function's module to its engine, generates machine code, links
that, and wraps it for Python. Nobody here calls any of it: what is wanted is the optimised module of the entry, which
:mod:`aiodev._backends.cpu.compile.object_file` turns into machine code once. That saves a sixth of the time of compiling.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core import codegen
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.cpu import CPUTargetOptions
from numba.core.typed_passes import BaseNativeLowering, NativeLowering

from aiodev._backends.cpu.compile.errors import ERROR_MODEL, LocatedLower, install_error_model

__all__ = ["EntryCompiler", "entry_flags"]


class _ModuleLibrary(codegen.CPUCodeLibrary):
    """A library that ends with its optimised module, ready to be linked into its callers'."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LocatedLowering(BaseNativeLowering):
    """Native lowering whose exceptions all say their line, into a :class:`_ModuleLibrary`."""

    _name = "aiodev_native_lowering"

    @property
    def lowering_class(self) -> type[LocatedLower]:
        return LocatedLower

    def run_pass(self, state: Any) -> bool:
        target = state.targetctx
        state.library = _ModuleLibrary(target.codegen(), state.func_id.func_qualname)
        no_compile, state.flags.no_compile = state.flags.no_compile, True
        try:
            super().run_pass(state)
        finally:
            state.flags.no_compile = no_compile
        state.library._ensure_finalized()
        lowered = state.cr
        # What numba knows a function by, and would call; there is nothing to call.
        name = lowered.fndesc.llvm_func_name
        known = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,))
        target.insert_user_function(known, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=known)
        return True


class EntryCompiler(CompilerBase):
    """numba's nopython pipeline with :class:`_LocatedLowering` in place of its own lowering."""

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (_LocatedLowering if found is NativeLowering else found, text) for found, text in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]


def entry_flags(fastmath: bool | set[str]) -> Flags:
    """Compiler flags of an entry: native code only, called by its symbol."""
    install_error_model()
    flags = Flags()
    options: dict[str, Any] = {"nopython": True, "nogil": True, "error_model": ERROR_MODEL, "fastmath": fastmath}
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    CPUTargetOptions.parse_as_flags(flags, options)
    return flags
