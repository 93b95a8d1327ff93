"""What the native executor's code comes from (see :mod:`aiodev._native.package`); and code that was compiled ahead."""

from __future__ import annotations

from aiodev._native.package import NativePackage, ahead

__all__ = ["EXECUTOR"]

EXECUTOR = NativePackage(
    "aiodev._backends.cpu.executor",
    "_backends/executor", "_core/backend/trace_log.py", "_backends/cpu/structs.py", "_backends/cpu/tuning.py",
    "_backends/cpu/executor",
)  # fmt: skip


@ahead.append
def _find(package: NativePackage) -> bytes | None:
    from aiodev._backends.cpu.compile import prebuilt  # which imports LLVM

    return prebuilt.find_native(package)
