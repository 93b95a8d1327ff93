"""What the CUDA executor's code comes from (see :mod:`aiodev._native.package`)."""

from __future__ import annotations

from aiodev._native.package import NativePackage

__all__ = ["EXECUTOR"]

EXECUTOR = NativePackage(
    "aiodev._backends.cuda.executor",
    "_backends/executor", "_core/backend/trace_log.py", "_backends/cuda/structs.py", "_backends/cuda/tuning.py",
    "_backends/cuda/executor",
)  # fmt: skip
