"""A kernel's function for numba-cuda: plain functions that it calls are compiled with it.

As on the CPU (:mod:`aiodev._backends.cpu.compile.function`), globals and closure are copied with each plain function replaced
by a device function, and so on through what they call.
"""

from __future__ import annotations

import types
from typing import Any

from numba import cuda

from aiodev._backends.compile.callees import is_known, names_of

__all__ = ["device_function"]


def device_function(function: Any, fastmath: bool | set[str]) -> Any:
    """``function`` as a numba-cuda dispatcher that LLVM inlines wherever it is called."""
    return _Copier(fastmath).device_function(function)


class _Copier:
    """Makes device functions of a function and, once each, of the plain functions that it reaches."""

    def __init__(self, fastmath: bool | set[str]) -> None:
        self._fastmath = fastmath
        self._done: dict[int, Any] = {}
        self._busy: set[int] = set()
        self._modules: dict[int, types.ModuleType] = {}

    def device_function(self, function: types.FunctionType) -> Any:
        compiled = self._done.get(id(function))
        if compiled is None:
            self._busy.add(id(function))
            copied = self._copy(function)
            compiled = cuda.jit(device=True, forceinline=True, fastmath=self._fastmath)(copied)
            self._done[id(function)] = compiled
            self._busy.discard(id(function))
        return compiled

    def _copy(self, function: types.FunctionType) -> types.FunctionType:
        names = names_of(function.__code__)
        changed = {
            name: device
            for name in names
            if name in function.__globals__ and (device := self._device(function.__globals__[name], names)) is not None
        }
        cells = tuple(self._cell(cell, names) for cell in function.__closure__ or ())
        if not changed and cells == (function.__closure__ or ()):
            return function
        namespace = {**function.__globals__, **changed}
        copied = types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, cells)
        copied.__qualname__ = function.__qualname__
        copied.__module__ = None  # type: ignore[assignment]  # else numba imports it by its name
        copied.__kwdefaults__, copied.__doc__ = function.__kwdefaults__, function.__doc__
        return copied

    def _cell(self, cell: types.CellType, names: set[str]) -> types.CellType:
        try:
            device = self._device(cell.cell_contents, names)
        except ValueError:  # an empty cell; numba says so better
            return cell
        return cell if device is None else types.CellType(device)

    def _device(self, value: object, names: set[str]) -> Any:
        """The device function for a plain function or for another kernel, or a module with these; None for anything else."""
        if isinstance(value, types.ModuleType) and not is_known(value.__name__):
            return self._with_devices(value, names)
        plain = value if isinstance(value, types.FunctionType) else getattr(value, "__aiodev_body__", None)
        if plain is None or (is_known(plain.__module__ or "") and plain is value):
            return None
        return None if id(plain) in self._busy else self.device_function(plain)

    def _with_devices(self, module: types.ModuleType, names: set[str]) -> types.ModuleType:
        """A copy of a module that has what may be taken from it by these names, with device functions."""
        copied = self._modules.setdefault(id(module), types.ModuleType(module.__name__))
        for name in names.difference(vars(copied)):
            if hasattr(module, name):
                value = getattr(module, name)
                setattr(copied, name, value)  # it may lead back here
                setattr(copied, name, self._device(value, names) or value)
        return copied
