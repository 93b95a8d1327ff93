"""Softmax and normalisations along an axis."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import (
    array_of,
    arrays_of,
    checked_axis,
    checked_out,
    has_no_gaps,
    packed,
    real_number,
    shared,
)
from aiodev.kernels.elementwise.conversion import astype
from aiodev.kernels.nn import bodies
from aiodev.kernels.reductions.bodies import NEAR
from aiodev.kernels.thread_block import has_teams

__all__ = ["layer_norm", "log_softmax", "rms_norm", "softmax"]

#: Elements for one index of a launch, about: some µs of work.
_PIECE = 1 << 13
#: Columns that are worked on side by side, at least: what a processor fetches at once, and some of its vectors.
_WIDTH = 64
#: Lanes, at most, in which several rows of fewer columns than that are worked on side by side.
_LANES = 256
#: Bytes of rows that become columns for a while, where these are near and where they are not; how many at a time, and in how
#: many rooms at most. It is for threads that have vectors.
_SHORT, _SHORTER, _TILE, _ROOMS = 127, 32, 128, 64
#: Elements of a matrix whose columns are normalised where they are: copies would take longer.
_FEW = 1 << 12
#: By one launch: of an array and two arrays of factors or None, under (name, axis, its type, and for norms eps).
_launches = aiodev.LaunchCache(3)
_repeat = _launches.repeat


class _Call(NamedTuple):
    """A call that may be repeated."""

    key: tuple[Any, ...]
    operands: tuple[Any, ...]
    out: aiodev.Array
    made: bool  #: none was given

    def is_in_place(self, source: aiodev.Array, target: aiodev.Array) -> bool:
        """Whether the result replaces the array, where these are read and written: the key says half of it."""
        return self.out is self.operands[0] and source.address == target.address

    def launch(self, kernel: aiodev.Kernel, pieces: int, args: tuple[Any, ...], takes: tuple[int | None, ...]) -> None:
        """The one launch that it comes to."""
        _launches.launch(self.key, self.operands, self.out, kernel, pieces, args, takes, made=self.made)


def softmax(x: aiodev.Array, /, *, axis: int = -1, out: aiodev.Array | None = None) -> aiodev.Array:
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
    return _softmax(("softmax", axis, axis.__class__, out is x), x, out, logarithm=False)


def log_softmax(x: aiodev.Array, /, *, axis: int = -1, out: aiodev.Array | None = None) -> aiodev.Array:
    """The logarithm of :func:`softmax`, also where that is too small for a float; arguments and errors as there.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([0.0, 1000.0], device="cpu")
        >>> aiodev.kernels.log_softmax(x).numpy_blocking()
        array([-1000.,     0.])
    """
    return _softmax(("log_softmax", axis, axis.__class__, out is x), x, out, logarithm=True)


def layer_norm(
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
    key = "layer_norm", axis, axis.__class__, real_number("layer_norm", "eps", eps), out is x
    found = _repeat(key, x, weight, bias, out)
    if found is not None:
        return found
    given = x
    x = _real("layer_norm", x)
    at, length = _axis_length("layer_norm", x, axis)
    result = checked_out("layer_norm", out, x.shape, x.dtype, x.device)
    call = _Call(key, (given, weight, bias), result, out is None)
    factors = [_factors("layer_norm", name, f, x, length) for name, f in (("weight", weight), ("bias", bias))]
    number = dtypes.compute_dtype(x.dtype).type(key[3])
    if all(factor is None for factor in factors):
        _over_rows(call, bodies.layer_norm_rows, x, at, number)
    else:
        pairs = [
            _filled(1 - k, length, x, 1 + k) if factor is None else (factor, 1 + k) for k, factor in enumerate(factors)
        ]
        _over_rows(call, bodies.layer_norm_scaled_rows, x, at, number, *pairs)
    return result


def rms_norm(
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
    key = "rms_norm", axis, axis.__class__, real_number("rms_norm", "eps", eps), out is x
    found = _repeat(key, x, weight, None, out)
    if found is not None:
        return found
    given = x
    x = _real("rms_norm", x)
    at, length = _axis_length("rms_norm", x, axis)
    result = checked_out("rms_norm", out, x.shape, x.dtype, x.device)
    call = _Call(key, (given, weight, None), result, out is None)
    factors = _factors("rms_norm", "weight", weight, x, length)
    number = dtypes.compute_dtype(x.dtype).type(key[3])
    if factors is None:
        _over_rows(call, bodies.rms_norm_rows, x, at, number)
    else:
        _over_rows(call, bodies.rms_norm_scaled_rows, x, at, number, (factors, 1))
    return result


# Softmax


def _softmax(key: tuple[Any, ...], x: aiodev.Array, out: aiodev.Array | None, logarithm: bool) -> aiodev.Array:
    found = _repeat(key, x, None, None, out)
    if found is not None:
        return found
    (name, axis, *_), given = key, x
    x = _real(name, x)
    at, length = _axis_length(name, x, axis)
    result = checked_out(name, out, x.shape, x.dtype, x.device)
    if not x.size:
        return result
    call = _Call(key, (given, None, None), result, out is None)
    inner = math.prod(x.shape[at + 1 :])
    if inner == 1:
        source, target, moved = _rows(x, at, result)
        short = length * x.itemsize <= (_SHORT if x.nbytes <= NEAR else _SHORTER)
        if short and len(source) >= _TILE and not has_teams(x.device):
            _softmax_short_rows(call, source, target, logarithm)
        elif length <= bodies.BLOCK:
            group = max(1, _PIECE // length)
            args = group, logarithm, call.is_in_place(source, target), source, target
            call.launch(bodies.softmax_rows, -(-len(source) // group), args, (None, None, None, 0, 3))
        else:
            _softmax_blocks(source, target, logarithm, call.is_in_place(source, target))
    else:
        shape = x.size // (length * inner), length, inner
        moved = _Moved(result)
        _softmax_columns(call, packed(x).reshape(shape), moved.packed.reshape(shape), logarithm)
    moved.finish()
    return result


def _softmax_blocks(x: aiodev.Array, out: aiodev.Array, logarithm: bool, same: bool) -> None:
    stream = aiodev.current_stream(out.device)
    rows, length = x.shape
    blocks = -(-length // bodies.BLOCK)
    computed = dtypes.compute_dtype(x.dtype)
    tops, sums = (aiodev.empty((rows, blocks), computed, x.device) for _ in range(2))
    whole = aiodev.empty((rows, 2), computed, x.device)
    bodies.softmax_blocks[rows * blocks, stream](blocks, logarithm, same, x, out, tops, sums)
    bodies.softmax_statistics[rows, stream](tops, sums, whole)
    bodies.softmax_of_blocks[rows * blocks, stream](blocks, logarithm, same, x, out, tops, whole)


def _softmax_short_rows(call: _Call, x: aiodev.Array, out: aiodev.Array, logarithm: bool) -> None:
    rows, length = x.shape
    group = max(2 * _PIECE // (_TILE * length), -(-rows // (_TILE * _ROOMS)), 1) * _TILE
    pieces = -(-rows // group)
    room = aiodev.empty((pieces, _TILE * length), dtypes.compute_dtype(x.dtype), x.device)
    args = group, logarithm, x, out, room, *_of_lanes(pieces, _TILE, x)
    call.launch(bodies.softmax_short_rows, pieces, args, (None, None, 0, 3, -1, -1, -1))


def _softmax_columns(call: _Call, x: aiodev.Array, out: aiodev.Array, logarithm: bool) -> None:
    matrices, length, inner = x.shape
    if inner < _WIDTH:
        width = lanes = inner * max(1, min(_LANES // inner, length // 8))
    else:
        width, lanes = min(inner, max(_WIDTH, _PIECE // length)), inner
    chunks = -(-lanes // width)
    flat = (a.reshape(matrices, length * inner) for a in (x, out))
    args = chunks, width, inner, logarithm, call.is_in_place(x, out), *flat, *_of_lanes(matrices, lanes, x)
    takes = None, None, None, None, None, 0, 3, -1, -1
    call.launch(bodies.softmax_columns, matrices * chunks, args, takes)


def _of_lanes(count: int, lanes: int, x: aiodev.Array) -> tuple[aiodev.Array, aiodev.Array]:
    """For the largest element and a part of the sum of each lane, and for its sum."""
    single = dtypes.compute_dtype(x.dtype)
    return aiodev.empty((count, 2, lanes), single, x.device), aiodev.empty((count, lanes), np.float64, x.device)


# Rows


def _over_rows(
    call: _Call,
    kernel: aiodev.Kernel,
    x: aiodev.Array,
    at: int,
    number: Any,
    *factors: tuple[aiodev.Array, int | None],
) -> None:
    """Launch a kernel of rows, with the axis ``at`` as the last of packed arrays, copied where it is not.

    Of each factor it is said which operand it is, None for one that may be kept.
    """
    if not x.size:
        return
    source, target, moved = _rows(x, at, call.out)
    rows, length = source.shape
    group = max(1, _PIECE // length)
    same = call.is_in_place(source, target)
    args = group, same, number, source, *(factor for factor, _ in factors), target
    takes = None, None, None, 0, *(take for _, take in factors), 3
    call.launch(kernel, -(-rows // group), args, takes)
    moved.finish()


class _Moved:
    """A result without gaps: the one that is wanted, or a stand-in that :meth:`finish` copies there."""

    __slots__ = ("packed", "wanted")

    def __init__(self, wanted: aiodev.Array, used: aiodev.Array | None = None) -> None:
        self.wanted = wanted
        if used is None:
            used = wanted if has_no_gaps(wanted) else aiodev.empty_like(wanted)
        self.packed = used

    def finish(self) -> None:
        """Have the wanted one filled."""
        if self.packed is not self.wanted:
            self.wanted.copy_from(self.packed)


def _rows(x: aiodev.Array, at: int, out: aiodev.Array) -> tuple[aiodev.Array, aiodev.Array, _Moved]:
    """An array and its result as matrices without gaps, whose rows run along the axis ``at``; a few columns as they are."""
    if at == 0 and x.ndim == 2 and x.size <= _FEW:
        return x.T, out.T, _Moved(out, out)
    if at != x.ndim - 1:
        order = [*(a for a in range(x.ndim) if a != at), at]
        x, out = x.transpose(*order), out.transpose(*order)
    source, moved = packed(x), _Moved(out)
    if x.ndim == 2:
        return source, moved.packed, moved
    shape = x.size // x.shape[-1], x.shape[-1]
    return source.reshape(shape), moved.packed.reshape(shape), moved


def _real(name: str, x: aiodev.Array) -> aiodev.Array:
    array_of(name, x)
    if x.dtype.kind == "c":
        raise TypeError(f"{name}: expected real numbers, got {x.dtype}")
    return astype(x, np.float64) if x.dtype.kind in "biu" else x


def _axis_length(name: str, x: aiodev.Array, axis: int) -> tuple[int, int]:
    if not x.ndim:
        raise ValueError(f"{name}: expected at least 1 dimension, got a single number")
    at = checked_axis(name, axis, x.ndim)
    return at, x.shape[at]


def _filled(value: int, length: int, x: aiodev.Array, place: int) -> tuple[aiodev.Array, int | None]:
    """For the factor that is not given as operand ``place``."""
    found = shared(np.full(length, value, x.dtype), x.device)
    return (aiodev.full(length, value, x.dtype, x.device), place) if found is None else (found, None)


def _factors(name: str, argument: str, value: Any, x: aiodev.Array, length: int) -> aiodev.Array | None:
    """A weight or a bias, packed.

    Raises:
        ValueError: it is not of one dimension and the length of the axis.
        TypeError: it has another dtype than ``x``.
    """
    if value is None:
        return None
    _, factor = arrays_of(name, x=x, **{argument: value})
    if factor.shape != (length,):
        raise ValueError(f"{name}: {argument} has the shape {factor.shape}, the axis the length {length}")
    if factor.dtype != x.dtype:
        raise TypeError(f"{name}: {argument} is {factor.dtype}, the result {x.dtype}; aiodev.kernels.astype converts")
    return packed(factor)
