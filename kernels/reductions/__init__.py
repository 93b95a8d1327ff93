"""Reductions along any axes: sums, products, means, variances, extremes and truth values.

What is summed is summed in ``float64`` (``complex128``) or in 64-bit integers, in an order that the shape alone fixes, so a
result does not depend on the number of threads. A sum of n ``float64`` has an error of at most (16384 + n / 16384) · 2⁻⁵³ times
the sum of the absolute values, and some tens of times less where loops are in vectors. Of ``float32`` up to 32 are added
as such, two by two, before they become ``float64``: that is an error of at most 3 · 10⁻⁷ times the sum of the absolute values,
most often much less, and the rounding of the result; elements above 10³⁷ may overflow. In a sum ``dtype="float64"`` avoids
both; a mean has no such argument: give it what ``astype`` makes of the array.

On the CPU, rows of at most 15 elements, and up to 32 columns of so many, are reduced by a kernel for their length if the array
has more than 4,096 elements. The first launch with a length compiles it, in some tenths of a second, off the loop as always;
:func:`aiodev.kernels.warm_up` does not know the lengths.

An array of no dimensions has no axis 0, as the array API says; NumPy lets it pass for some functions.
"""

from __future__ import annotations

from typing import Any

import aiodev
from aiodev.kernels.arguments import dtype_of
from aiodev.kernels.reductions.launch import Axis, reduce, reduce_arg_extreme, reduce_variance
from aiodev.kernels.reductions.plan import count_plan, extreme_plan, sum_plan, truth_plan

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "sum_plan",
    "var",
]


@aiodev.operation(reads=["x"], writes="out")
def sum(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    dtype: Any = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The sum along ``axis`` (an integer, several, or None for all).

    Of integers and booleans it is ``int64`` (``uint64`` of unsigned ones), else of the array's own type, unless ``dtype`` says
    otherwise. The sum of nothing is 0. Submits to the current stream; writes to ``out`` if given.

    Raises:
        ValueError: there is no such axis, one is named twice, or ``out`` has another shape.
        TypeError: ``out`` has another dtype.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> aiodev.kernels.sum(x).numpy_blocking(), aiodev.kernels.sum(x, axis=0).numpy_blocking()
        (array(10.), array([4., 6.]))
    """
    return reduce(call, sum_plan("sum", x.dtype, dtype_of("sum", dtype)), x, axis, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def prod(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    dtype: Any = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The product along ``axis``; types, arguments and errors as of :func:`sum`. The product of nothing is 1.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.prod(aiodev.asarray([2, 3, 4], device="cpu")).numpy_blocking()
        array(24)
    """
    return reduce(call, sum_plan("prod", x.dtype, dtype_of("prod", dtype)), x, axis, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def mean(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The mean along ``axis``: of integers and booleans ``float64``, else of the array's type. The mean of nothing is NaN.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.mean(aiodev.asarray([1, 2, 4, 5], device="cpu")).numpy_blocking()
        array(3.)
    """
    return reduce(call, sum_plan("mean", x.dtype, None), x, axis, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def var(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The variance along ``axis``: the squared distances from the mean over ``n - correction``, real of complex numbers, too.

    Elements are read once, and computed with in double precision. Distances are taken from the mean of a block's first ones,
    and blocks are merged by their means, which are measured from the first element of all (Chan, Golub and LeVeque, Updating
    Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979). So a spread that is small next to the mean keeps
    its digits.

    Where ``n`` is no more than the correction it is NaN, or infinite if there is a spread, as in NumPy.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.var(aiodev.asarray([1.0, 2.0, 3.0], device="cpu"), correction=1).numpy_blocking()
        array(1.)
    """
    return reduce_variance(call, x, axis, correction, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def std(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The standard deviation along ``axis``: the root of :func:`var`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.std(aiodev.asarray([1.0, 3.0], device="cpu")).numpy_blocking()
        array(1.)
    """
    return reduce_variance(call, x, axis, correction, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def max(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The largest element along ``axis``; NaN if there is one.

    Raises:
        ValueError: the axis has no elements.
        TypeError: complex numbers have no order.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.max(aiodev.asarray([[1, 5], [4, 2]], device="cpu"), axis=1).numpy_blocking()
        array([5, 4])
    """
    return reduce(call, extreme_plan("max", x.dtype), x, axis, keepdims, empty=False)


@aiodev.operation(reads=["x"], writes="out")
def min(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The least element along ``axis``; NaN if there is one. Errors as of :func:`max`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.min(aiodev.asarray([[1, 5], [4, 2]], device="cpu"), axis=1).numpy_blocking()
        array([1, 2])
    """
    return reduce(call, extreme_plan("min", x.dtype), x, axis, keepdims, empty=False)


@aiodev.operation(reads=["x"], writes="out")
def any(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Whether an element along ``axis`` is not 0; of nothing False.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> bool(aiodev.kernels.any(aiodev.asarray([0, 2], device="cpu")).numpy_blocking())
        True
    """
    return reduce(call, truth_plan("any", x.dtype), x, axis, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def all(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Whether no element along ``axis`` is 0; of nothing True.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> bool(aiodev.kernels.all(aiodev.asarray([0, 2], device="cpu")).numpy_blocking())
        False
    """
    return reduce(call, truth_plan("all", x.dtype), x, axis, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def count_nonzero(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """How many elements along ``axis`` are not 0, ``int64``; NaN is not.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.count_nonzero(aiodev.asarray([[0, 2], [3, 4]], device="cpu"), axis=0).numpy_blocking()
        array([1, 2])
    """
    return reduce(call, count_plan(x.dtype), x, axis, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def argmax(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: int | None = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The first place of the largest element along ``axis``, or of a NaN if there is one; ``int64``.

    Without an axis it is the place in the flattened array.

    Raises:
        ValueError: the axis has no elements, or there is no such axis.
        TypeError: complex numbers have no order.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.argmax(aiodev.asarray([3, 7, 7], device="cpu")).numpy_blocking()
        array(1)
    """
    return reduce_arg_extreme(call, x, axis, keepdims)


@aiodev.operation(reads=["x"], writes="out")
def argmin(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    *,
    axis: int | None = None,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The first place of the least element along ``axis``; otherwise as :func:`argmax`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.argmin(aiodev.asarray([3, 1, 1], device="cpu")).numpy_blocking()
        array(1)
    """
    return reduce_arg_extreme(call, x, axis, keepdims)
