"""The key of the native executor's code in the disk cache (see :mod:`aiodev._backends.executor.code_cache`)."""

from __future__ import annotations

from aiodev._backends.executor import code_cache
from aiodev._core.sources import compiled_by

__all__ = ["SOURCES", "native_key"]

#: What the code comes from.
SOURCES = (*code_cache.SOURCES, "_backends/cpu/structs.py", "_backends/cpu/tuning.py", "_backends/cpu/executor")


def native_key() -> str:
    """Hash of what the executor is compiled from, and by."""
    return compiled_by(*SOURCES)[:32]
