"""What functions of stacks of matrices do with their arguments, and which library factorises for a device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import packed_out
from aiodev.kernels.cuda_libraries import library_of
from aiodev.kernels.elementwise.conversion import convert
from aiodev.kernels.linalg import batched, lapack

__all__ = ["batch_of", "checked", "factorising", "real_of", "result_for", "square", "stacked"]

DType = np.dtype[Any]


def factorising(call: aiodev.Call) -> Any:
    """The module that submits factorisations for the call's device; all have the functions of :mod:`.lapack`.

    Raises:
        NotImplementedError: there is none.
    """
    return library_of(call, lapack, batched, "cuSOLVER", "factorises")


def checked(function: str, x: aiodev.Array, name: str = "x") -> DType:
    """See that an argument is a stack of matrices; the dtype that it is factorised in: ``float64`` of integers.

    Raises:
        ValueError: it has fewer than 2 dimensions.
        TypeError: its dtype is one that no LAPACK has.
    """
    if x.ndim < 2:
        raise ValueError(f"{function}: argument {name}: expected at least 2 dimensions, got the shape {x.shape}")
    if x.dtype.kind in "biu":
        return np.dtype(np.float64)
    if x.dtype.char not in "fdFD":
        raise TypeError(
            f"{function}: argument {name}: expected float32, float64, complex64 or complex128, got {x.dtype}; "
            f"aiodev.kernels.astype converts"
        )
    return x.dtype


def square(function: str, x: aiodev.Array, name: str = "x") -> DType:
    """See that an argument is a stack of square matrices; the dtype that it is factorised in.

    Raises:
        ValueError: they are not.
    """
    dtype = checked(function, x, name)
    if x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{function}: argument {name}: expected square matrices, got the shape {x.shape}")
    return dtype


def batch_of(x: aiodev.Array) -> int:
    """How many matrices a stack has."""
    return math.prod(x.shape[:-2])


def real_of(dtype: DType) -> DType:
    """The dtype of a number's real part."""
    return np.empty(0, dtype).real.dtype


def stacked(call: aiodev.Call, x: aiodev.Array, dtype: DType) -> aiodev.Array:
    """The matrices as an array of three dimensions, converted."""
    return call.reshape(convert(call, x, dtype), (batch_of(x), *x.shape[-2:]))


def result_for(
    call: aiodev.Call, shape: tuple[int, ...], dtype: DType, last: int = 2
) -> tuple[aiodev.Array, aiodev.Array, aiodev.Array]:
    """The result, what kernels write instead if it has gaps, and that with all but the last dimensions as one."""
    result, target = packed_out(call, shape, dtype)
    return result, target, target.reshape(math.prod(shape[: len(shape) - last]), *shape[len(shape) - last :])
