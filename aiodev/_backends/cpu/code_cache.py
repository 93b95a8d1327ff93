"""The key of the native executor's code in the disk cache (see :mod:`aiodev._native.code_cache`)."""

from __future__ import annotations

from aiodev._core.sources import compiled_by
from aiodev._native import code_cache

__all__ = ["SOURCES", "native_key"]

#: What the code comes from.
SOURCES = (
    *code_cache.SOURCES, "_backends/executor", "_core/backend/trace_log.py",
    "_backends/cpu/structs.py", "_backends/cpu/tuning.py", "_backends/cpu/executor",
)  # fmt: skip


def native_key() -> str:
    """Hash of what the executor is compiled from, and by."""
    return compiled_by(*SOURCES)[:32]
