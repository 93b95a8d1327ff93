"""Sums on a GPU: for :func:`aiodev.lang.sum`, ``sum_squares`` and ``moments`` each thread adds what it reads, wide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import overload, register_jitable
from numba.cuda.np.numpy_support import as_dtype

from aiodev import lang
from aiodev._backends.compile.sums import make_distance_loop, make_loop, make_moments
from aiodev._backends.cuda.compile.stored import is_stored

__all__ = ["install"]


def _check(name: str, x: Any, ahead: Any) -> None:
    """Refuse what cannot be added.

    Raises:
        TypingError: it becomes a CompileError.
    """
    if not isinstance(x, types.Array) or x.ndim != 1 or not isinstance(x.dtype, types.Number | types.Boolean):
        raise TypingError(f"{name}: expected a one-dimensional array of numbers, got {x}")
    if not (ahead is None or isinstance(ahead, types.NoneType | types.Omitted | types.Integer)):
        raise TypingError(f"{name}: expected an integer for how many elements ahead to ask, got {ahead}")


def _check_center(name: str, what: str, x: Any, center: Any) -> None:
    if isinstance(center, types.Complex) and not isinstance(x.dtype, types.Complex):
        raise TypingError(f"{name}: expected a real number as the {what} of elements of {x.dtype}, got {center}")


def _dtype_of(x: Any) -> np.dtype[Any]:
    """The dtype that elements are taken as."""
    return np.dtype(np.float32) if is_stored(x.dtype) else as_dtype(x.dtype)


def _choose_sum(x: Any, ahead: Any = None, wide: Any = False) -> Any:
    _check("sum", x, ahead)
    return make_loop(_dtype_of(x))


def _choose_sum_squares(x: Any, center: Any = 0.0, ahead: Any = None) -> Any:
    _check("sum_squares", x, ahead)
    _check_center("sum_squares", "center", x, center)
    sums = register_jitable(make_distance_loop(_dtype_of(x)))

    def squares(x: Any, center: Any = 0.0, ahead: Any = None) -> Any:
        return sums(x, center)[1]

    return squares


def _choose_moments(x: Any, ahead: Any = None, origin: Any = 0.0) -> Any:
    _check("moments", x, ahead)
    _check_center("moments", "origin", x, origin)
    dtype = _dtype_of(x)
    return make_moments(dtype, register_jitable(make_distance_loop(dtype)))


def install() -> None:
    """Tell numba-cuda of them."""
    overload(lang.sum)(_choose_sum)
    overload(lang.sum_squares)(_choose_sum_squares)
    overload(lang.moments)(_choose_moments)
