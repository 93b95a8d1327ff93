"""A kernel's function for numba: plain functions that it calls are compiled with it.

numba only calls what is jitted. A body may call any plain function, so its globals and its closure are copied with
each plain function replaced by a jitted one, and so on through what they call. Functions of installed libraries are left
alone, since numba knows those that it knows by their identity.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

from numba import njit
from numba.core.compiler import CompilerBase

from aiodev._backends.compile.callees import is_known, names_of
from aiodev._backends.cpu.compile.errors import install_error_model
from aiodev._backends.cpu.compile.pipeline import BodyCompiler

__all__ = ["jit_function"]


def jit_function(function: Any, compiler: type[CompilerBase] = BodyCompiler, **options: Any) -> Any:
    """``function`` as a numba dispatcher with native code only, by a compiler that is for it alone, not for what it calls."""
    return _Copier(options).jit(function, compiler)


class _Copier:
    """Jits a function and, once each, the plain functions that it reaches.

    A copy is jitted before its names are filled in, so that functions may call themselves and each other.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        install_error_model()
        self._options = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
        self._done: dict[int, Any] = {}
        self._modules: dict[int, types.ModuleType] = {}

    def jit(self, function: types.FunctionType, compiler: type[CompilerBase] = BodyCompiler) -> Any:
        compiled = self._done.get(id(function))
        if compiled is None:
            namespace = dict(function.__globals__)
            cells = tuple(types.CellType() for _ in function.__closure__ or ())
            copied = _copy(function, namespace, cells)
            compiled = self._done[id(function)] = njit(pipeline_class=compiler, **self._options)(copied)
            names = names_of(function.__code__)
            for name in names:
                if name in namespace:
                    namespace[name] = self._jitted(namespace[name], names)
            for cell, original in zip(cells, function.__closure__ or (), strict=True):
                with contextlib.suppress(ValueError):  # an empty cell; numba says so better
                    cell.cell_contents = self._jitted(original.cell_contents, names)
        return compiled

    def _jitted(self, value: Any, names: set[str]) -> Any:
        """The jitted form of a plain function or of another kernel, or a module with these; anything else as it is."""
        if isinstance(value, types.ModuleType) and not is_known(value.__name__):
            return self._with_jitted(value, names)
        plain = value if isinstance(value, types.FunctionType) else getattr(value, "__aiodev_body__", None)
        if plain is None or is_known(plain.__module__ or "") and plain is value:
            return value
        return self.jit(plain)

    def _with_jitted(self, module: types.ModuleType, names: set[str]) -> types.ModuleType:
        """A copy of a module that has what may be taken from it by these names, with functions jitted."""
        copied = self._modules.setdefault(id(module), types.ModuleType(module.__name__))
        for name in names.difference(vars(copied)):
            if hasattr(module, name):
                setattr(copied, name, None)  # it may lead back here
                setattr(copied, name, self._jitted(getattr(module, name), names))
        return copied


def _copy(
    function: types.FunctionType, namespace: dict[str, Any], cells: tuple[types.CellType, ...]
) -> types.FunctionType:
    copied = types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, cells)
    copied.__qualname__ = function.__qualname__
    copied.__module__ = None  # type: ignore[assignment]  # else numba imports it by its name, and a program's would run here
    copied.__kwdefaults__, copied.__doc__ = function.__kwdefaults__, function.__doc__
    return copied
