"""A kernel's function as numba needs it: plain functions that it calls are compiled with it.

numba only calls what is jitted. A body may call any plain function, so its globals and its closure are copied with
each plain function replaced by a jitted one, and so on through what they call. Functions of installed libraries are left
alone, since numba knows those that it knows by their identity.
"""

from __future__ import annotations

import types
from typing import Any

from numba import njit

from aiodev._backends.cpu.compiler_errors import install_error_model
from aiodev._backends.cpu.compiler_pipeline import EntryCompiler

__all__ = ["jit_function"]

#: Packages whose functions numba knows by identity, through overloads.
KNOWN_PACKAGES = frozenset({"aiodev", "builtins", "cmath", "llvmlite", "math", "numba", "numpy", "operator", "scipy"})


def jit_function(function: Any, **options: Any) -> Any:
    """``function`` as a numba dispatcher with native code only."""
    return _Copier(options).jit(function)


class _Copier:
    """Jits a function and, once each, the plain functions that it reaches."""

    def __init__(self, options: dict[str, Any]) -> None:
        install_error_model()
        self._options = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
        self._done: dict[int, Any] = {}
        self._busy: set[int] = set()

    def jit(self, function: types.FunctionType) -> Any:
        found = self._done.get(id(function))
        if found is None:
            self._busy.add(id(function))
            copied = self._copy(function)
            found = self._done[id(function)] = njit(pipeline_class=EntryCompiler, **self._options)(copied)
            self._busy.discard(id(function))
        return found

    def _copy(self, function: types.FunctionType) -> types.FunctionType:
        names = _names(function.__code__)
        changed = {
            name: jitted
            for name in names
            if name in function.__globals__ and (jitted := self._jitted(function.__globals__[name])) is not None
        }
        cells = tuple(self._cell(cell) for cell in function.__closure__ or ())
        if not changed and cells == (function.__closure__ or ()):
            return function
        namespace = {**function.__globals__, **changed}
        copied = types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, cells)
        copied.__module__, copied.__qualname__ = function.__module__, function.__qualname__
        copied.__kwdefaults__, copied.__doc__ = function.__kwdefaults__, function.__doc__
        return copied

    def _cell(self, cell: types.CellType) -> types.CellType:
        try:
            jitted = self._jitted(cell.cell_contents)
        except ValueError:  # an empty cell; numba says so better
            return cell
        return cell if jitted is None else types.CellType(jitted)

    def _jitted(self, value: object) -> Any:
        """The jitted form of a plain function or of another kernel; None for anything else."""
        plain = value if isinstance(value, types.FunctionType) else getattr(value, "__aiodev_body__", None)
        if plain is None or _is_known(plain.__module__ or "") and plain is value:
            return None
        return None if id(plain) in self._busy else self.jit(plain)


def _is_known(module: str) -> bool:
    """Whether numba knows a module's functions by identity. The standard kernels are written as any user's are."""
    return module.partition(".")[0] in KNOWN_PACKAGES and not f"{module}.".startswith("aiodev.kernels.")


def _names(code: types.CodeType) -> set[str]:
    """Every name that code, or code nested in it, looks up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names
