"""How the native executor's functions are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from aiodev._backends.cpu import codecache

int64 = types.int64

#: For functions that only nopython code calls; LLVM inlines them.
inner = njit(error_model="numpy")


def exported(signature: Any, *, nogil: bool = False) -> Any:
    """Compile for ``signature``, or load from the disk cache, as a function that Python or a worker calls."""

    def compile(function: Any) -> Any:
        dispatcher = njit(nogil=nogil, error_model="numpy")(function)
        dispatcher._cache = codecache.function_cache(function, codecache.native_key(), codecache.native_directory())
        dispatcher.compile(signature)
        return dispatcher

    return compile
