"""What :func:`aiodev.lang.sum` means on a GPU: each thread adds what it reads, one by one, wide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import overload

from aiodev import lang

__all__ = ["install"]


def _choose(x: Any) -> Any:
    if not isinstance(x, types.Array) or x.ndim != 1 or not isinstance(x.dtype, types.Number | types.Boolean):
        raise TypingError(f"sum: expected a one-dimensional array of numbers, got {x}")
    if isinstance(x.dtype, types.Complex):
        wide: Any = np.complex128
    elif isinstance(x.dtype, types.Float):
        wide = np.float64
    else:
        wide = np.int64 if not isinstance(x.dtype, types.Integer) or x.dtype.signed else np.uint64

    def code(x: Any) -> Any:
        total = wide(0)
        for k in range(x.size):
            total += wide(x[k])
        return total

    return code


def install() -> None:
    """Tell numba-cuda of it."""
    overload(lang.sum)(_choose)
