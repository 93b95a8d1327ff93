"""Sums, products, means, spreads, extremes and truth values along any axes.

What is summed is summed in ``float64`` (``complex128``) or in 64-bit integers, in an order that the shape alone fixes, so a
result does not depend on the number of threads. A sum of n ``float32`` has the one rounding of its result beside what follows
for ``float64``: an error of at most (16384 + n / 16384) · 2⁻⁵³ times the sum of the absolute values, and some tens of times
less where loops are in vectors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels import reduction_bodies as bodies
from aiodev.kernels.operands import arrays_of, checked_axis, checked_out
from aiodev.kernels.reduction_bodies import BLOCK, COLUMNS, ROWS, Kernels

__all__ = ["all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "sum_plan", "var"]

DType = np.dtype[Any]
Axis = int | tuple[int, ...] | None
_range, _min = range, min
#: Rows from which on each is reduced by one index, however long.
_MANY_ROWS = 256


class _Plan(NamedTuple):
    """How to reduce one dtype."""

    load: Any
    combine: Any
    kernels: Kernels
    identity: Any  #: of the type that is combined
    result: DType


def sum(
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
    (x,) = arrays_of("sum", x=x)
    return _reduce("sum", sum_plan("sum", x.dtype, _dtype(dtype)), x, axis, keepdims, out)


def prod(
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
    (x,) = arrays_of("prod", x=x)
    return _reduce("prod", sum_plan("prod", x.dtype, _dtype(dtype)), x, axis, keepdims, out)


def mean(
    x: aiodev.Array, /, *, axis: Axis = None, keepdims: bool = False, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The mean along ``axis``: of integers and booleans ``float64``, else of the array's type. The mean of nothing is NaN.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.mean(aiodev.asarray([1, 2, 4, 5], device="cpu")).numpy_blocking()
        array(3.)
    """
    (x,) = arrays_of("mean", x=x)
    return _reduce("mean", sum_plan("mean", x.dtype, None), x, axis, keepdims, out)


def var(
    x: aiodev.Array,
    /,
    *,
    axis: Axis = None,
    correction: float = 0.0,
    keepdims: bool = False,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The variance along ``axis``: the squared distances from the mean over ``n - correction``, in two passes.

    It is real, of complex numbers too.

    NaN where ``n`` is 0, or no more than the correction.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.var(aiodev.asarray([1.0, 2.0, 3.0], device="cpu"), correction=1).numpy_blocking()
        array(1.)
    """
    return _spread("var", x, axis, correction, keepdims, out)


def std(
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
    return _spread("std", x, axis, correction, keepdims, out)


def max(
    x: aiodev.Array, /, *, axis: Axis = None, keepdims: bool = False, out: aiodev.Array | None = None
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
    (x,) = arrays_of("max", x=x)
    return _reduce("max", _extreme_plan("max", x.dtype), x, axis, keepdims, out, empty=False)


def min(
    x: aiodev.Array, /, *, axis: Axis = None, keepdims: bool = False, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The least element along ``axis``; NaN if there is one. Errors as of :func:`max`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.min(aiodev.asarray([[1, 5], [4, 2]], device="cpu"), axis=1).numpy_blocking()
        array([1, 2])
    """
    (x,) = arrays_of("min", x=x)
    return _reduce("min", _extreme_plan("min", x.dtype), x, axis, keepdims, out, empty=False)


def any(
    x: aiodev.Array, /, *, axis: Axis = None, keepdims: bool = False, out: aiodev.Array | None = None
) -> aiodev.Array:
    """Whether an element along ``axis`` is not 0; of nothing False.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> bool(aiodev.kernels.any(aiodev.asarray([0, 2], device="cpu")).numpy_blocking())
        True
    """
    (x,) = arrays_of("any", x=x)
    return _reduce("any", _truth_plan("any", x.dtype), x, axis, keepdims, out)


def all(
    x: aiodev.Array, /, *, axis: Axis = None, keepdims: bool = False, out: aiodev.Array | None = None
) -> aiodev.Array:
    """Whether no element along ``axis`` is 0; of nothing True.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> bool(aiodev.kernels.all(aiodev.asarray([0, 2], device="cpu")).numpy_blocking())
        False
    """
    (x,) = arrays_of("all", x=x)
    return _reduce("all", _truth_plan("all", x.dtype), x, axis, keepdims, out)


def argmax(
    x: aiodev.Array, /, *, axis: int | None = None, keepdims: bool = False, out: aiodev.Array | None = None
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
    return _place("argmax", x, axis, keepdims, out)


def argmin(
    x: aiodev.Array, /, *, axis: int | None = None, keepdims: bool = False, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The first place of the least element along ``axis``; otherwise as :func:`argmax`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.argmin(aiodev.asarray([3, 1, 1], device="cpu")).numpy_blocking()
        array(1)
    """
    return _place("argmin", x, axis, keepdims, out)


# Plans


def _dtype(dtype: Any) -> DType | None:
    return None if dtype is None else np.dtype(dtype)


def _refuse_half(name: str, dtype: DType) -> None:
    if dtype == np.float16:
        raise TypeError(f"{name}: float16 can be stored and copied, not computed with; astype it to float32 first")


@functools.cache
def sum_plan(name: str, dtype: DType, wanted: DType | None) -> _Plan:
    """Of a sum, a product or a mean."""
    _refuse_half(name, dtype)
    if wanted is None:
        if name == "mean":
            wanted = np.dtype(np.float64) if dtype.kind in "biu" else dtype
        else:
            wanted = {"b": np.dtype(np.int64), "i": np.dtype(np.int64), "u": np.dtype(np.uint64)}.get(dtype.kind, dtype)
    _refuse_half(name, wanted)
    kind = wanted.kind if name != "mean" or dtype.kind in "fc" else "f"
    load, combined = {
        "b": (bodies.signed, np.int64),
        "i": (bodies.signed, np.int64),
        "u": (bodies.unsigned, np.uint64),
        "f": (bodies.double, np.float64),
        "c": (bodies.double_complex, np.complex128),
    }[kind]
    if dtype.kind == "c" and kind != "c":
        raise TypeError(f"{name}: complex numbers cannot be summed as {wanted}")
    combine, identity = (bodies.multiply, 1) if name == "prod" else (bodies.add, 0)
    finish = bodies.mean_of if name == "mean" else bodies.total_of
    return _Plan(load, combine, _kernels(name, load, combine, finish), combined(identity), wanted)


@functools.cache
def _truth_plan(name: str, dtype: DType) -> _Plan:
    _refuse_half(name, dtype)
    combine = bodies.either if name == "any" else bodies.both
    kernels = _kernels(name, bodies.truth, combine, bodies.total_of)
    return _Plan(bodies.truth, combine, kernels, np.uint8(name == "all"), np.dtype(bool))


@functools.cache
def _extreme_plan(name: str, dtype: DType) -> _Plan:
    load, finish, combined = _order(name, dtype, least=name == "min")
    kernels = _kernels(name, load, bodies.larger, finish)
    return _Plan(load, bodies.larger, kernels, combined(np.iinfo(combined).min), dtype)


def _order(name: str, dtype: DType, least: bool) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """What makes integers whose largest is the largest, or the least, element; the way back; and their type."""
    _refuse_half(name, dtype)
    if dtype.kind == "c":
        raise TypeError(f"{name}: complex numbers have no order")
    if dtype.kind == "f":
        if dtype.itemsize == 4:
            pair = (bodies.reversed_key_4, bodies.float_of_reversed_4) if least else (bodies.key_4, bodies.float_of_4)
            return *pair, np.int32
        pair = (bodies.reversed_key_8, bodies.float_of_reversed_8) if least else (bodies.key_8, bodies.float_of_8)
        return *pair, np.int64
    load: Callable[..., Any] = bodies.unsigned if dtype.kind == "u" else bodies.signed
    if not least:
        return load, bodies.total_of, np.uint64 if dtype.kind == "u" else np.int64
    load = bodies.inverted_unsigned if dtype.kind == "u" else bodies.inverted_signed
    return load, bodies.inverse_of, np.uint64 if dtype.kind == "u" else np.int64


@functools.cache
def _kernels(name: str, load: Any, combine: Any, finish: Any) -> Kernels:
    return bodies.make_kernels(name, load, combine, finish)


# Shapes


def _axes(name: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(_range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    found = tuple(sorted(checked_axis(name, a, ndim) for a in given))
    if len(set(found)) != len(found):
        raise ValueError(f"{name}: axis {axis} names one axis twice")
    return found


def _result_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if d in axes else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in axes)


class _Way(NamedTuple):
    """How the elements of one result lie in packed memory."""

    shape: tuple[int, ...]  #: of the results
    outer: int
    length: int  #: elements of a result
    inner: int  #: results whose elements lie side by side; 1 where each result has its elements in one piece
    moved: tuple[int, ...] | None  #: the axes in the order in which the elements have to be copied first


@functools.lru_cache(maxsize=4096)
def _way(name: str, shape: tuple[int, ...], axis: Axis, keepdims: bool, columns: bool) -> _Way:
    axes = _axes(name, axis, len(shape))
    result = _result_shape(shape, axes, keepdims)
    kept = tuple(d for d in _range(len(shape)) if d not in axes)
    length = math.prod(shape[d] for d in axes)
    behind = [d for d in kept if axes and d > axes[0]]
    if not behind or _all_ones(shape, behind):
        return _Way(result, math.prod(shape[d] for d in kept), length, 1, None)
    inner = math.prod(shape[d] for d in behind)
    neighbours = axes[-1] - axes[0] == len(axes) - 1
    if columns and neighbours and inner >= 8:
        return _Way(result, math.prod(shape[: axes[0]]), length, inner, None)
    return _Way(result, math.prod(shape[d] for d in kept), length, 1, (*kept, *axes))


def _all_ones(shape: tuple[int, ...], dimensions: list[int]) -> bool:
    """Whether these dimensions have one element each."""
    return math.prod(shape[d] for d in dimensions) == 1


def _flat(x: aiodev.Array, moved: tuple[int, ...] | None) -> aiodev.Array:
    """The elements in order: a view of what is packed, else a copy."""
    if moved is not None:
        x = x.transpose(*moved)
    return x if x.ndim == 1 and x.strides[0] == x.itemsize else x.reshape(x.size)


def _target(
    name: str, out: aiodev.Array | None, shape: tuple[int, ...], dtype: DType, device: aiodev.Device
) -> tuple[aiodev.Array, aiodev.Array]:
    """What to return, and what to write to: the same memory, or to be copied from one to the other."""
    result = checked_out(name, out, shape, dtype, device)
    if out is None:
        return result, result
    return result, aiodev.empty(shape, dtype, device)


# Launches


def _reduce(
    name: str,
    plan: _Plan,
    x: aiodev.Array,
    axis: Axis,
    keepdims: bool,
    out: aiodev.Array | None,
    *,
    empty: bool = True,
) -> aiodev.Array:
    way = _way(name, x.shape, axis, keepdims, True)
    if way.length == 0 and not empty:
        raise ValueError(f"{name}: an array of shape {x.shape} has no elements along axis {axis}")
    result, target = _target(name, out, way.shape, plan.result, x.device)
    flat = _flat(x, way.moved)
    stream = aiodev.current_stream(flat.device)
    results = target if target.ndim < 2 else target.reshape(target.size)
    if way.inner == 1:
        _reduce_rows(plan, flat, way.outer, way.length, float(way.length), results, stream)
    else:
        _reduce_columns(plan, flat, way, results, stream)
    if target is not result:
        result.copy_from(target)
    return result


def _reduce_rows(
    plan: _Plan, x: aiodev.Array, rows: int, length: int, number: float, out: aiodev.Array, stream: aiodev.Stream
) -> None:
    if length <= 2 * BLOCK or rows >= _MANY_ROWS:
        plan.kernels.rows[rows, stream](x, length, plan.identity, number, out)
        return
    blocks = -(-length // BLOCK)
    parts = aiodev.empty(rows * blocks, plan.identity.dtype, x.device)
    plan.kernels.blocks[rows * blocks, stream](blocks, x, length, plan.identity, parts)
    plan.kernels.parts[rows, stream](parts, blocks, plan.identity, number, out)


def _reduce_columns(plan: _Plan, x: aiodev.Array, way: _Way, out: aiodev.Array, stream: aiodev.Stream) -> None:
    outer, length, inner = way.outer, way.length, way.inner
    slabs, strips = -(-length // ROWS), -(-inner // COLUMNS)
    parts = aiodev.empty(outer * slabs * inner, plan.identity.dtype, x.device)
    plan.kernels.columns[outer * slabs * strips, stream](slabs, strips, x, length, inner, plan.identity, parts)
    plan.kernels.strips[outer * strips, stream](strips, parts, slabs, inner, plan.identity, float(length), out)


@functools.cache
def _spread_kernels(name: str) -> tuple[aiodev.Kernel, aiodev.Kernel, Kernels]:
    finish = bodies.spread_of if name == "var" else bodies.root_of
    return *bodies.make_spread(name), _kernels(name, bodies.double, bodies.add, finish)


def _spread(
    name: str, x: aiodev.Array, axis: Axis, correction: float, keepdims: bool, out: aiodev.Array | None
) -> aiodev.Array:
    (x,) = arrays_of(name, x=x)
    _refuse_half(name, x.dtype)
    way = _way(name, x.shape, axis, keepdims, False)
    real = np.dtype(np.float64) if x.dtype.kind in "biu" else np.empty(0, x.dtype).real.dtype
    result, target = _target(name, out, way.shape, real, x.device)
    flat = _flat(x, way.moved)
    stream, count, length = aiodev.current_stream(x.device), way.outer, way.length
    wide = np.dtype(np.complex128 if x.dtype.kind == "c" else np.float64)
    means = aiodev.empty(count, wide, x.device)
    _reduce_rows(sum_plan("mean", x.dtype, wide), flat, count, length, float(length), means, stream)
    row_kernel, block_kernel, kernels = _spread_kernels(name)
    blocks = 1 if length <= 2 * BLOCK or count >= _MANY_ROWS else -(-length // BLOCK)
    parts = aiodev.empty(count * blocks, np.float64, x.device)
    if blocks == 1:
        row_kernel[count, stream](flat, length, means, parts)
    else:
        block_kernel[count * blocks, stream](blocks, flat, length, means, parts)
    freedom = float(np.maximum(length - correction, 0.0))
    kernels.parts[count, stream](parts, blocks, np.float64(0), freedom, target.reshape(count))
    if target is not result:
        result.copy_from(target)
    return result


@functools.cache
def _place_kernels(name: str, dtype: DType) -> tuple[aiodev.Kernel, aiodev.Kernel, DType]:
    load, _, combined = _order(name, dtype, least=name == "argmin")
    return *bodies.make_places(name, load), np.dtype(combined)


def _place(name: str, x: aiodev.Array, axis: int | None, keepdims: bool, out: aiodev.Array | None) -> aiodev.Array:
    (x,) = arrays_of(name, x=x)
    find, choose, combined = _place_kernels(name, x.dtype)
    way = _way(name, x.shape, axis, keepdims, False)
    count, length = way.outer, way.length
    if length == 0:
        raise ValueError(f"{name}: an array of shape {x.shape} has no elements along axis {axis}")
    result, target = _target(name, out, way.shape, np.dtype(np.int64), x.device)
    flat = _flat(x, way.moved)
    stream, blocks = aiodev.current_stream(x.device), -(-length // BLOCK)
    parts = aiodev.empty(count * blocks, combined, x.device)
    places = aiodev.empty(count * blocks, np.int64, x.device)
    find[count * blocks, stream](blocks, flat, length, parts, places)
    choose[count, stream](blocks, parts, places, target if target.ndim < 2 else target.reshape(target.size))
    if target is not result:
        result.copy_from(target)
    return result
