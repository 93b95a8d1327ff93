"""Softmax and normalisations along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import checked_axis, delivered, real_number, shared
from aiodev.kernels.elementwise.conversion import astype
from aiodev.kernels.nn import bodies
from aiodev.kernels.reductions.bodies import NEAR
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.tuning import (
    FEW_NORMALISED,
    NORMALISED_EACH,
    NORMALISED_LANES,
    NORMALISED_PARTS,
    NORMALISED_WIDTH,
    TURNED,
    TURNED_FAR,
    TURNED_ROOMS,
    TURNED_ROWS,
)

__all__ = ["layer_norm", "layer_norm_gradients", "log_softmax", "rms_norm", "softmax", "softmax_of_rows"]


@aiodev.operation(reads=["x"], writes="out", in_place="x")
def softmax(
    call: aiodev.Call, x: aiodev.Array, /, *, axis: int = -1, out: aiodev.Array | None = None
) -> aiodev.Array:
    """``exp(x)`` divided by its sum along ``axis``; computed relative to the largest element, so it cannot overflow.

    Of integers and booleans the result is ``float64``. A row with a NaN or an infinity that is its largest is NaN.
    Submits to the current stream; writes to ``out`` if given, which may be ``x`` itself.

    Raises:
        ValueError: there is no such axis, or ``out`` has another shape.
        TypeError: complex numbers, or ``out`` has another dtype than the result.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.softmax(aiodev.asarray([0.0, 0.0, 1000.0, 1000.0], device="cpu")).numpy_blocking()
        array([0. , 0. , 0.5, 0.5])
    """
    return _softmax(call, x, axis, logarithm=False)


@aiodev.operation(reads=["x"], writes="out", in_place="x")
def log_softmax(
    call: aiodev.Call, x: aiodev.Array, /, *, axis: int = -1, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The logarithm of :func:`softmax`, also where that is too small for a float; arguments and errors as there.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([0.0, 1000.0], device="cpu")
        >>> aiodev.kernels.log_softmax(x).numpy_blocking()
        array([-1000.,     0.])
    """
    return _softmax(call, x, axis, logarithm=True)


@aiodev.operation(reads=["x", "weight", "bias"], writes="out", in_place="x")
def layer_norm(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    weight: aiodev.Array | None = None,
    bias: aiodev.Array | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-5,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """``(x - mean) / sqrt(variance + eps)`` along ``axis``, times ``weight``, plus ``bias``.

    Args:
        weight: of one dimension, with a factor for each element along the axis; 1 if not given.
        bias: the same for what is added; 0 if not given.

    Raises:
        ValueError: there is no such axis, or a shape does not fit.
        TypeError: complex numbers, or a dtype that does not fit: all have that of the result, ``float64`` of integers.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.layer_norm(aiodev.asarray([1.0, 2.0, 3.0], device="cpu"), eps=0).numpy_blocking().round(3)
        array([-1.225,  0.   ,  1.225])
    """
    x, at, length = _along(call, x, axis)
    result = call.out(x.shape, x.dtype)
    factors = [_factors(call, own, f, x, length) for own, f in (("weight", weight), ("bias", bias))]
    number = dtypes.compute_dtype(x.dtype).type(real_number("layer_norm", "eps", eps))
    if all(factor is None for factor in factors):
        return _over_rows(call, bodies.layer_norm_rows, x, at, number, result)
    both = [_filled(call, 1 - k, length, x) if factor is None else factor for k, factor in enumerate(factors)]
    return _over_rows(call, bodies.layer_norm_scaled_rows, x, at, number, result, *both)


@aiodev.operation(reads=["grads", "x", "weight"], name="layer_norm_gradients")
def layer_norm_gradients(
    call: aiodev.Call, grads: aiodev.Array, x: aiodev.Array, weight: aiodev.Array | None = None, /, *, axis: int, eps: float
) -> tuple[aiodev.Array, aiodev.Array, aiodev.Array]:
    """The gradients of :func:`layer_norm` with respect to ``x``, which has elements, ``weight`` and ``bias``: in one pass."""
    x, at, length = _along(call, x, axis)
    number = dtypes.compute_dtype(x.dtype).type(eps)
    result, of_weight, of_bias = call.new(x.shape, x.dtype), call.new(length, x.dtype), call.new(length, x.dtype)
    factor = _filled(call, 1, length, x) if weight is None else call.packed(weight)
    order = [*(a for a in range(x.ndim) if a != at), at]
    rows = x.size // length
    source, given = (call.packed(one.transpose(*order)).reshape(rows, length) for one in (x, grads))
    moved = _Moved(call, result.transpose(*order))
    group = max(1, NORMALISED_EACH // length, -(-rows // NORMALISED_PARTS))
    count = -(-rows // group)
    parts, width = call.scratch((count, 2, length), np.float64), max(1, NORMALISED_EACH // count)
    target = moved.packed.reshape(rows, length)
    call.launch(bodies.layer_norm_gradient_rows, count, group, number, given, source, factor, parts, target)
    call.launch(bodies.layer_norm_gradient_sums, -(-length // width), width, parts, of_weight, of_bias)
    return moved.finish(result), of_weight, of_bias


@aiodev.operation(reads=["x", "weight"], writes="out", in_place="x")
def rms_norm(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    weight: aiodev.Array | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-6,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """``x / sqrt(mean(x²) + eps)`` along ``axis``, times ``weight``; arguments and errors as for :func:`layer_norm`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([3.0, -4.0, 5.0, 0.0], device="cpu")
        >>> aiodev.kernels.rms_norm(x, eps=0).numpy_blocking().round(3)
        array([ 0.849, -1.131,  1.414,  0.   ])
    """
    x, at, length = _along(call, x, axis)
    result = call.out(x.shape, x.dtype)
    factor = _factors(call, "weight", weight, x, length)
    number = dtypes.compute_dtype(x.dtype).type(real_number("rms_norm", "eps", eps))
    if factor is None:
        return _over_rows(call, bodies.rms_norm_rows, x, at, number, result)
    return _over_rows(call, bodies.rms_norm_scaled_rows, x, at, number, result, factor)


# Softmax


def _softmax(call: aiodev.Call, x: aiodev.Array, axis: int, logarithm: bool) -> aiodev.Array:
    x, at, length = _along(call, x, axis)
    result = call.out(x.shape, x.dtype)
    if not x.size:
        return result
    inner = math.prod(x.shape[at + 1 :])
    if inner > 1:
        shape = x.size // (length * inner), length, inner
        moved = _Moved(call, result)
        _softmax_columns(call, call.packed(x).reshape(shape), moved.packed.reshape(shape), logarithm)
        return moved.finish(result)
    source, target, moved = _rows(call, x, at, result)
    softmax_of_rows(call, source, target, logarithm, _is_in_place(call, source, target))
    return moved.finish(result)


def softmax_of_rows(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, logarithm: bool, same: bool) -> None:
    """Compute the softmax of a matrix's rows, or its logarithm, as a part of a call; ``same``: the result replaces them."""
    rows, length = x.shape
    short = length * x.itemsize <= (TURNED if x.nbytes <= NEAR else TURNED_FAR)
    if short and rows >= TURNED_ROWS and not has_teams(x.device):
        _softmax_short_rows(call, x, out, logarithm)
    elif length <= bodies.BLOCK:
        group = max(1, NORMALISED_EACH // length)
        call.launch(bodies.softmax_rows, -(-rows // group), group, logarithm, same, x, out)
    else:
        _softmax_blocks(call, x, out, logarithm, same)


def _softmax_blocks(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, logarithm: bool, same: bool) -> None:
    rows, length = x.shape
    blocks = -(-length // bodies.BLOCK)
    computed = dtypes.compute_dtype(x.dtype)
    tops, sums = (call.scratch((rows, blocks), computed) for _ in range(2))
    whole = call.scratch((rows, 2), computed)
    call.launch(bodies.softmax_blocks, rows * blocks, blocks, logarithm, same, x, out, tops, sums)
    call.launch(bodies.softmax_statistics, rows, tops, sums, whole)
    call.launch(bodies.softmax_of_blocks, rows * blocks, blocks, logarithm, same, x, out, tops, whole)


def _softmax_short_rows(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, logarithm: bool) -> None:
    rows, length = x.shape
    group = max(2 * NORMALISED_EACH // (TURNED_ROWS * length), -(-rows // (TURNED_ROWS * TURNED_ROOMS)), 1) * TURNED_ROWS
    pieces = -(-rows // group)
    room = call.scratch((pieces, TURNED_ROWS * length), dtypes.compute_dtype(x.dtype))
    lanes = _of_lanes(call, pieces, TURNED_ROWS, x)
    call.launch(bodies.softmax_short_rows, pieces, group, logarithm, x, out, room, *lanes)


def _softmax_columns(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, logarithm: bool) -> None:
    matrices, length, inner = x.shape
    if inner < NORMALISED_WIDTH:
        width = lanes = inner * max(1, min(NORMALISED_LANES // inner, length // 8))
    else:
        width, lanes = min(inner, max(NORMALISED_WIDTH, NORMALISED_EACH // length)), inner
    chunks = -(-lanes // width)
    numbers = chunks, width, inner, logarithm, _is_in_place(call, x, out)
    flat = (a.reshape(matrices, length * inner) for a in (x, out))
    call.launch(bodies.softmax_columns, matrices * chunks, *numbers, *flat, *_of_lanes(call, matrices, lanes, x))


def _is_in_place(call: aiodev.Call, source: aiodev.Array, target: aiodev.Array) -> bool:
    """Whether the result replaces the array, where these are read and written."""
    return call.in_place and source.address == target.address


def _of_lanes(call: aiodev.Call, count: int, lanes: int, x: aiodev.Array) -> tuple[aiodev.Array, aiodev.Array]:
    """For the largest element and a part of the sum of each lane, and for its sum."""
    single = dtypes.compute_dtype(x.dtype)
    return call.scratch((count, 2, lanes), single), call.scratch((count, lanes), np.float64)


# Rows


def _over_rows(
    call: aiodev.Call,
    kernel: aiodev.Kernel,
    x: aiodev.Array,
    at: int,
    number: Any,
    result: aiodev.Array,
    *factors: aiodev.Array,
) -> aiodev.Array:
    """Launch a kernel of rows, with the axis ``at`` as the last of packed arrays, copied where it is not."""
    if not x.size:
        return result
    source, target, moved = _rows(call, x, at, result)
    rows, length = source.shape
    group = max(1, NORMALISED_EACH // length)
    same = _is_in_place(call, source, target)
    call.launch(kernel, -(-rows // group), group, same, number, source, *factors, target)
    return moved.finish(result)


class _Moved:
    """A view of the result, and what is written in its place where that has gaps."""

    __slots__ = ("call", "packed", "wanted")

    def __init__(self, call: aiodev.Call, wanted: aiodev.Array, used: aiodev.Array | None = None) -> None:
        self.call, self.wanted = call, wanted
        if used is None:
            used = wanted if wanted.is_contiguous else call.scratch(wanted.shape, wanted.dtype)
        self.packed = used

    def finish(self, result: aiodev.Array) -> aiodev.Array:
        """The result, filled."""
        delivered(self.call, self.wanted, self.packed)
        return result


def _rows(
    call: aiodev.Call, x: aiodev.Array, at: int, out: aiodev.Array
) -> tuple[aiodev.Array, aiodev.Array, _Moved]:
    """An array and its result as matrices without gaps, whose rows run along the axis ``at``; a few columns as they are."""
    if at == 0 and x.ndim == 2 and x.size <= FEW_NORMALISED:
        return x.T, out.T, _Moved(call, out, out)
    if at != x.ndim - 1:
        order = [*(a for a in range(x.ndim) if a != at), at]
        x, out = x.transpose(*order), out.transpose(*order)
    source, moved = call.packed(x), _Moved(call, out)
    if x.ndim == 2:
        return source, moved.packed, moved
    shape = x.size // x.shape[-1], x.shape[-1]
    return source.reshape(shape), moved.packed.reshape(shape), moved


def _along(call: aiodev.Call, x: aiodev.Array, axis: int) -> tuple[aiodev.Array, int, int]:
    """The array as real numbers of floating point, the axis from the first, and its length."""
    if x.dtype.kind == "c":
        raise TypeError(f"{call.name}: expected real numbers, got {x.dtype}")
    if not x.ndim:
        raise ValueError(f"{call.name}: expected at least 1 dimension, got a single number")
    at = checked_axis(call.name, axis, x.ndim)
    return astype(x, np.float64) if x.dtype.kind in "biu" else x, at, x.shape[at]


def _filled(call: aiodev.Call, value: int, length: int, x: aiodev.Array) -> aiodev.Array:
    """For a factor that is not given."""
    constant = shared(np.full(length, value, x.dtype), x.device)
    return aiodev.full(length, value, x.dtype, x.device) if constant is None else call.constant(constant)


def _factors(
    call: aiodev.Call, argument: str, factor: aiodev.Array | None, x: aiodev.Array, length: int
) -> aiodev.Array | None:
    """A weight or a bias, packed.

    Raises:
        ValueError: it is not of one dimension and the length of the axis.
        TypeError: it has another dtype than ``x``.
    """
    if factor is None:
        return None
    if factor.shape != (length,):
        raise ValueError(f"{call.name}: {argument} has the shape {factor.shape}, the axis the length {length}")
    if factor.dtype != x.dtype:
        raise TypeError(f"{call.name}: {argument} is {factor.dtype}, the result {x.dtype}; aiodev.kernels.astype converts")
    return call.packed(factor)
