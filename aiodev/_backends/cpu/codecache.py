"""numba's disk cache, keyed by content.

numba stamps a cached function with its file's modification time and ignores the constants and globals that it uses. Here
the stamp is a hash of everything that the code is made from (:mod:`aiodev._core.sources`), so what is found is right, in
every process and after every upgrade. The machine's CPU is part of numba's own index.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiodev._core.cachedir import cache, make_folder
from aiodev._core.sources import compiled_by

#: What the native executor's code comes from.
SOURCES = ("_backends/cpu/layout.py", "_backends/cpu/native")


def native_key() -> str:
    """Hash of what the native executor is compiled from, and by."""
    return compiled_by(*SOURCES)[:32]


def native_directory() -> str:
    """Where the native executor's code is cached; "" when nothing is."""
    directory = cache.directory()
    return str(Path(directory) / "native") if directory else ""


def native_is_cached() -> bool:
    """Whether the native executor's code has been compiled on this machine."""
    return is_complete(native_key())


def mark_native_cached() -> None:
    """Say that all of it has."""
    mark_complete(native_key())


def is_complete(key: str) -> bool:
    """Whether all code of a key has been cached."""
    directory = native_directory()
    return bool(directory) and Path(directory, f"{key}.complete").exists()


def mark_complete(key: str) -> None:
    """Say that it has, unless something could not be kept."""
    directory = native_directory()
    if directory and not cache.incomplete:
        Path(directory, f"{key}.complete").touch()


def function_cache(function: Callable[..., Any], key: str, directory: str) -> Any:
    """A cache for a numba dispatcher's ``_cache``: entries under ``directory`` that are valid for ``key``."""
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator

    if not directory:
        return NullCache()

    class Locator(_CacheLocator):
        def get_cache_path(self) -> str:
            return directory

        def get_source_stamp(self) -> str:
            return key

        def get_disambiguator(self) -> str:
            return key[:16]

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            return cls()

    class ContentCache(FunctionCache):
        _impl_class = type("Implementation", (CompileResultCacheImpl,), {"_locator_classes": [Locator]})

        def save_overload(self, sig: Any, data: Any) -> None:
            """Keep what was compiled, or say that it cannot be kept."""
            try:
                make_folder(directory)  # numba's own would be as open as the process's mask allows
                super().save_overload(sig, data)
            except OSError as error:
                cache.report(error)

    return ContentCache(function)
