"""The key of the CUDA executor's code in the disk cache (see :mod:`aiodev._backends.executor.code_cache`)."""

from __future__ import annotations

from aiodev._backends.executor import code_cache
from aiodev._core.sources import compiled_by

__all__ = ["SOURCES", "native_key"]

#: What the code comes from.
SOURCES = (*code_cache.SOURCES, "_backends/cuda/structs.py", "_backends/cuda/tuning.py", "_backends/cuda/executor")


def native_key() -> str:
    """Hash of what the executor is compiled from, and by."""
    return compiled_by(*SOURCES)[:32]
