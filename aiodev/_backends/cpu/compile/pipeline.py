"""Custom numba pipeline: what an entry calls is lowered, linked once, and optimised with the entry; nothing else is done to it.

**Problem.** numba makes every function ready to be called: it links what the function calls into its module, optimises that
module, adds it to its engine, generates machine code, and wraps that for Python. An entry that reaches ten functions is
optimised ten times over, each time with more linked in. Nobody here calls any of them: what is wanted is the optimised module
of the entry, which :mod:`aiodev._backends.cpu.compile.object_file` turns into machine code once.

**Solution.** A function keeps its module as it was lowered, with the list of those that it calls (:class:`_PartLibrary`). The
entry links all that it reaches, each once, and is optimised as one module (:class:`_EntryLibrary`). That saves a third of the
time of compiling, and LLVM sees the whole: products of matrices count no references any more.

**Invariant.** What numba may have to call stays callable: only functions that have no wrapper for Python are compiled so
(:func:`linked_only`), and what a function of numba's own links from here has all that it calls in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from llvmlite import binding as llvm
from numba import _dynfunc
from numba.core import codegen
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.cpu import CPUTargetOptions
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering

from aiodev._backends.cpu.compile.errors import ERROR_MODEL, LocatedLower, install_error_model

__all__ = ["BodyCompiler", "EntryCompiler", "entry_flags", "linked_only"]


#: Pointers through which functions that call themselves, or each other, are reached; numba fills them in when it loads.
_UNRESOLVED = ".numba.unresolved$"


class _PartLibrary(codegen.CPUCodeLibrary):
    """A function's own module, as it was lowered, and which libraries it calls: to be linked and optimised with its entry."""

    _whole = False

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """What numba links into a function of its own that calls this one: with all that it calls."""
        if not self._whole:
            self._whole = True
            _link_called(self)
            self._shared_module = None
        return super()._get_module_for_linking()

    def own_module(self) -> Any:
        """A module to link once, beside those of what it calls."""
        return super()._get_module_for_linking()


class _EntryLibrary(codegen.CPUCodeLibrary):
    """An entry with all that it calls, optimised as one module, which ends there."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        _link_called(self)
        _resolve_pointers(self._final_module)
        self._optimize_final_module()
        self._final_module.verify()
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


def _link_called(library: Any) -> None:
    """Link what a library calls, directly or not, each once.

    Each behind all that may call it: LLVM takes no more from a module than what is asked for when it is linked. Functions that
    call each other ask for each other, in whatever order.
    """
    order: list[Any] = []
    seen, ahead = {library}, [(library, iter(library._linking_libraries))]
    while ahead:
        current, left = ahead[-1]
        called = next((one for one in left if one not in seen), None)
        if called is None:
            order.append(current)
            ahead.pop()
        else:
            seen.add(called)
            # Those of another kind have what they call in them.
            ahead.append((called, iter(called._linking_libraries if isinstance(called, _PartLibrary) else ())))
    for called in reversed(order[:-1]):
        module = called.own_module() if isinstance(called, _PartLibrary) else called._get_module_for_linking()
        library._final_module.link_in(module, preserve=True)


def _resolve_pointers(module: Any) -> None:
    """Define the pointers to functions of the module through which it reaches those that lead to itself."""
    for variable in list(module.global_variables):
        if variable.name.startswith(_UNRESOLVED):
            function = variable.name.removeprefix(_UNRESOLVED)
            text = f'declare void @"{function}"()\n@"{variable.name}" = global ptr @"{function}"\n'
            module.link_in(llvm.parse_assembly(text))


class _Lower(Lower):
    """numba's lowering, where functions call themselves, or each other, with arguments of other types."""

    def _lower_call_RecursiveCall(self, function: Any, expression: Any, signature: Any) -> Any:
        compiled = function.dispatcher_type.dispatcher.overloads.get(signature.args)
        if compiled is None:  # it is being compiled: one of those that lead here
            return super()._lower_call_RecursiveCall(function, expression, signature)
        self.library.add_linking_library(compiled.library)
        values = self.fold_call_args(function, signature, expression.args, expression.vararg, expression.kws)
        return self.context.call_internal(self.builder, compiled.fndesc, signature, values)


class _LocatedLower(LocatedLower, _Lower):
    """With exceptions that say their line."""


class _Lowering(BaseNativeLowering):
    """Native lowering into a module, without machine code, wrappers for Python, or anything to call."""

    library_class: type[codegen.CPUCodeLibrary]

    def run_pass(self, state: Any) -> bool:
        target = state.targetctx
        state.library = self.library_class(target.codegen(), state.func_id.func_qualname)
        flags = state.flags.no_compile, state.flags.no_cfunc_wrapper
        state.flags.no_compile = state.flags.no_cfunc_wrapper = True
        try:
            super().run_pass(state)
        finally:
            state.flags.no_compile, state.flags.no_cfunc_wrapper = flags
        state.library._ensure_finalized()
        lowered = state.cr
        # What numba knows a function by, and would call; there is nothing to call.
        name = lowered.fndesc.llvm_func_name
        known = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,))
        target.insert_user_function(known, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=known)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _EntryLowering(_Lowering):
    """Lowers an entry."""

    _name = "aiodev_entry_lowering"
    lowering_class = _Lower
    library_class = _EntryLibrary


@register_pass(mutates_CFG=True, analysis_only=False)
class _BodyLowering(_Lowering):
    """Lowers what an entry calls; exceptions all say their line."""

    _name = "aiodev_body_lowering"
    lowering_class = _LocatedLower
    library_class = _PartLibrary


@register_pass(mutates_CFG=True, analysis_only=False)
class _ForeignLowering(_Lowering):
    """Lowers what numba or another library has for a function that a body calls."""

    _name = "aiodev_foreign_lowering"
    lowering_class = _Lower
    library_class = _PartLibrary


def _pipelines(state: Any, lowering: type[_Lowering]) -> list[Any]:
    """numba's nopython pipeline with another lowering."""
    pipeline = DefaultPassBuilder.define_nopython_pipeline(state)
    pipeline.passes = [(lowering if stage is NativeLowering else stage, text) for stage, text in pipeline.passes]
    pipeline.finalize()
    return [pipeline]


class EntryCompiler(CompilerBase):
    """Compiles an entry, and links what it calls."""

    def define_pipelines(self) -> list[Any]:
        return _pipelines(self.state, _EntryLowering)


class BodyCompiler(CompilerBase):
    """Compiles a function that an entry calls."""

    def define_pipelines(self) -> list[Any]:
        return _pipelines(self.state, _BodyLowering)


@contextlib.contextmanager
def linked_only() -> Iterator[None]:
    """Have numba compile functions that Python cannot call, such as implementations of overloads, to be linked, not called.

    The compiler must be this thread's alone.
    """
    define = Compiler.define_pipelines

    def define_pipelines(self: Any) -> list[Any]:
        if not self.state.flags.no_cpython_wrapper or self.state.flags.force_pyobject:
            return define(self)
        return _pipelines(self.state, _ForeignLowering)

    Compiler.define_pipelines = define_pipelines
    try:
        yield
    finally:
        Compiler.define_pipelines = define


def entry_flags(fastmath: bool | set[str]) -> Flags:
    """Compiler flags of an entry: native code only, called by its symbol."""
    install_error_model()
    flags = Flags()
    options: dict[str, Any] = {"nopython": True, "nogil": True, "error_model": ERROR_MODEL, "fastmath": fastmath}
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    CPUTargetOptions.parse_as_flags(flags, options)
    return flags
