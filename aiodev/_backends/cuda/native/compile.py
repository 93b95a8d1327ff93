"""How the CUDA executor's functions are compiled: for the CPU, since they call the driver."""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core.ccallback import CFunc

from aiodev._backends.cpu import codecache
from aiodev._backends.cpu.native.compile import inner
from aiodev._backends.cuda.codecache import native_key

__all__ = ["callback", "code_address", "entry_point", "exported", "inner", "int64"]

int64 = types.int64


def exported(signature: Any, *, nogil: bool = False) -> Any:
    """Compile for ``signature``, or load from the disk cache, as a function that Python or a thread calls."""

    def compile(function: Any) -> Any:
        dispatcher = njit(nogil=nogil, error_model="numpy")(function)
        dispatcher._cache = codecache.function_cache(function, native_key(), codecache.native_directory())
        dispatcher.compile(signature)
        return dispatcher

    return compile


def callback(function: Any) -> Any:
    """Compile, or load from the disk cache, as a C function ``void f(void *)`` that needs no GIL; see its ``address``."""
    compiled = CFunc(function, ((int64,), types.void), {}, {"error_model": "numpy"})
    compiled._cache = codecache.function_cache(function, native_key(), codecache.native_directory())
    compiled.compile()
    return compiled


def entry_point(function: Any) -> Any:
    """The compiled function as a plain C callable: half the cost of a call through numba's dispatcher."""
    (overload,) = function.overloads.values()
    return overload.entry_point


def code_address(function: Any) -> int:
    """The native symbol of a compiled function."""
    (overload,) = function.overloads.values()
    address: int = overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name)
    return address
