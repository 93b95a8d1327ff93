"""Products of vectors, and what lies on diagonals: kernels for all devices."""

from __future__ import annotations

import math
from typing import Any

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import (
    array_of,
    arrays_of,
    broadcast,
    checked_axis,
    delivered,
    dtype_of,
    repeated,
    whole_number,
)
from aiodev.kernels.composed import composed
from aiodev.kernels.elementwise.conversion import convert
from aiodev.kernels.elementwise.table import multiply
from aiodev.kernels.linalg.stacks import batch_of, result_for
from aiodev.kernels.reductions import sum

__all__ = ["cross", "diagonal", "outer", "trace"]


def outer(x1: aiodev.Array, x2: aiodev.Array, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """The products of each element of one vector with each of another: element ``(i, j)`` is ``x1[i] * x2[j]``.

    Raises:
        ValueError: an argument is not of one dimension.
        TypeError: ``out`` is of a lower kind than the result.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([1.0, 2.0], device="cpu")
        >>> aiodev.kernels.linalg.outer(x, x).numpy_blocking()
        array([[1., 2.],
               [2., 4.]])
    """
    x1, x2 = arrays_of("outer", x1=x1, x2=x2)
    for name, x in (("x1", x1), ("x2", x2)):
        if x.ndim != 1:
            raise ValueError(f"outer: argument {name}: expected 1 dimension, got the shape {x.shape}")
    return multiply(x1[:, None], x2[None, :], out=out)


@aiodev.kernel(ndim=2, reads=("x", "y"))
def cross_elements(i: int, j: int, x: Any, y: Any, out: Any) -> None:
    """One product of vectors along the middle dimension."""
    a0, a1, a2 = x[i, 0, j], x[i, 1, j], x[i, 2, j]
    b0, b1, b2 = y[i, 0, j], y[i, 1, j], y[i, 2, j]
    out[i, 0, j] = a1 * b2 - a2 * b1
    out[i, 1, j] = a2 * b0 - a0 * b2
    out[i, 2, j] = a0 * b1 - a1 * b0


@aiodev.operation(reads=["x1", "x2"], writes="out")
def cross(
    call: aiodev.Call, x1: aiodev.Array, x2: aiodev.Array, /, *, axis: int = -1, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The cross products of vectors of 3 elements along ``axis``; the other dimensions broadcast.

    Raises:
        ValueError: the axis is not there, or is not of 3 elements.
        TypeError: the arguments are truth values.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x, y = (aiodev.asarray(v, device="cpu") for v in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))
        >>> aiodev.kernels.linalg.cross(x, y).numpy_blocking()
        array([0., 0., 1.])
    """
    dtype = dtypes.result_type(x1.dtype, x2.dtype)
    if dtype.kind == "b":
        raise TypeError("cross: arguments x1 and x2: expected numbers, got truth values")
    for name, x in (("x1", x1), ("x2", x2)):
        if x.shape[checked_axis("cross", axis, x.ndim)] != 3:
            raise ValueError(f"cross: argument {name}: expected 3 elements along axis {axis}, got the shape {x.shape}")
    shape = broadcast("cross", x1.shape, x2.shape)
    place = checked_axis("cross", axis, len(shape))
    if shape[place] != 3 or (axis >= 0 and x1.ndim != x2.ndim):
        raise ValueError(f"cross: axis {axis} is another one in the shapes {x1.shape} and {x2.shape}; count it from the last")
    result, target, _ = result_for(call, shape, dtype, 0)
    if result.size:
        sides = math.prod(shape[:place]), 3, math.prod(shape[place + 1 :])
        operands = [call.packed(repeated(x, shape)) for x in (x1, x2)]
        left, right = (convert(call, x, dtype).reshape(sides) for x in operands)
        call.launch(cross_elements, (sides[0], sides[2]), left, right, target.reshape(sides))
    return delivered(call, result, target)


@aiodev.kernel(ndim=2, reads=("x",))
def diagonal_elements(i: int, j: int, down: int, across: int, x: Any, out: Any) -> None:
    """One element of a diagonal."""
    out[i, j] = x[i, j + down, j + across]


@aiodev.operation(reads=["x"], writes="out")
def diagonal(
    call: aiodev.Call, x: aiodev.Array, /, *, offset: int = 0, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The diagonals of matrices; a copy.

    Args:
        offset: how far right of the main diagonal, or left of it if negative.

    Raises:
        ValueError: ``x`` has fewer than 2 dimensions.
        TypeError: ``offset`` is no integer.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(6, device="cpu").reshape(2, 3)
        >>> aiodev.kernels.linalg.diagonal(x).numpy_blocking(), aiodev.kernels.linalg.diagonal(x, offset=1).numpy_blocking()
        (array([0, 4]), array([1, 5]))
    """
    offset = whole_number("diagonal", "offset", offset)
    if x.ndim < 2:
        raise ValueError(f"diagonal: argument x: expected at least 2 dimensions, got the shape {x.shape}")
    rows, columns = x.shape[-2:]
    down, across = max(0, -offset), max(0, offset)
    length = max(0, min(rows - down, columns - across))
    result, target, stack = result_for(call, (*x.shape[:-2], length), x.dtype, 1)
    if result.size:
        call.launch(diagonal_elements, stack.shape, down, across, call.reshape(x, (batch_of(x), rows, columns)), stack)
    return delivered(call, result, target)


@composed
def trace(
    x: aiodev.Array, /, *, offset: int = 0, dtype: Any = None, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The sums of the diagonals of matrices, in the dtypes of :func:`aiodev.kernels.sum`.

    Args:
        offset: how far right of the main diagonal, or left of it if negative.

    Raises:
        ValueError: ``x`` has fewer than 2 dimensions.
        TypeError: ``offset`` is no integer, or ``out`` has another dtype than the sums.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.linalg.trace(aiodev.arange(6, device="cpu").reshape(2, 3)).numpy_blocking()
        array(4)
    """
    array_of("trace", x)
    offset = whole_number("trace", "offset", offset)
    if x.ndim < 2:
        raise ValueError(f"trace: argument x: expected at least 2 dimensions, got the shape {x.shape}")
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype_of("trace", dtype), out=out)
