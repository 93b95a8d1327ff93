"""What :func:`aiodev.lang.sum` means on a GPU: each thread adds what it reads, one by one, wide."""

from __future__ import annotations

from typing import Any

from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import overload
from numba.cuda.np.numpy_support import as_dtype

from aiodev import lang
from aiodev._backends.cpu.compiler_summing import make_loop

__all__ = ["install"]


def _choose(x: Any, ahead: Any = None, wide: Any = False) -> Any:
    if not isinstance(x, types.Array) or x.ndim != 1 or not isinstance(x.dtype, types.Number | types.Boolean):
        raise TypingError(f"sum: expected a one-dimensional array of numbers, got {x}")
    if not (ahead is None or isinstance(ahead, types.NoneType | types.Omitted | types.Integer)):
        raise TypingError(f"sum: expected an integer for how many elements ahead to ask, got {ahead}")
    return make_loop(as_dtype(x.dtype))


def install() -> None:
    """Tell numba-cuda of it."""
    overload(lang.sum)(_choose)
