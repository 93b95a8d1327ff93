"""Products of matrices and vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import array_of, broadcast, checked_axis, move_last, whole_numbers
from aiodev.kernels.elementwise.conversion import astype, convert
from aiodev.kernels.linalg import cublas, gemv, openblas
from aiodev.kernels.linalg.dots import dot
from aiodev.kernels.linalg.gemm import (
    multiply_elements,
    multiply_once,
    multiply_panels,
    multiply_plain,
    multiply_tiles,
)
from aiodev.kernels.linalg.tiling import batches_of, fitting, is_fit, least_for, panel_of
from aiodev.kernels.tuning import TILED
from aiodev.kernels.warmup import register_sample

__all__ = ["matmul", "matrix_transpose", "multiply_into", "multiply_matrices", "tensordot", "vecdot"]

DType = np.dtype[Any]

#: Rows and columns that an index of a tiled product computes.
_TILE = 4
#: Where BLAS has its functions for a type, in the table's order.
_PLACES = {np.dtype(code): place for place, code in enumerate("fdFD")}
#: For each device whose table is filled, and each of those types: what a launch passes first.
_units: dict[aiodev.Device, dict[DType, tuple[Any, ...]]] = {}


@aiodev.operation(reads=["x1", "x2"], writes="out")
def matmul(
    call: aiodev.Call, x1: aiodev.Array, x2: aiodev.Array, /, *, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The matrix product, with NumPy's rules: vectors, matrices, and batches of matrices of shapes that broadcast.

    On the CPU, ``float32``, ``float64``, ``complex64`` and ``complex128`` go through BLAS, whose calls are spread over the
    device's cores; but products of large real matrices and vectors do not, which are made as fast as memory is read. On CUDA
    these and ``float16``, summed in ``float32``, go through cuBLAS where that is installed. Other types are multiplied by
    loops, and wrap around as they do. Transposed operands and slices of rows or columns are used where they are; what has
    other strides is first copied on the device.

    Submits to the current stream; writes to ``out`` if given.

    Raises:
        ValueError: shapes do not fit, or an argument has no dimensions.
        TypeError: ``out`` has another dtype than the result.

    Example:
        >>> import aiodev, numpy, aiodev.kernels
        >>> x = aiodev.asarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> aiodev.kernels.matmul(x, x.T).numpy_blocking()
        array([[ 5., 11.],
               [11., 25.]])
    """
    if not x1.ndim or not x2.ndim:
        raise ValueError(f"matmul: expected at least 1 dimension, got the shapes {x1.shape} and {x2.shape}")
    if x1.ndim == x2.ndim == 1:
        return dot(call, x1, x2, conjugate=False)
    a = x1 if x1.ndim > 1 else x1[None, :]
    b = x2 if x2.ndim > 1 else x2[:, None]
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matmul: shapes {x1.shape} and {x2.shape} do not fit: {a.shape[-1]} is not {b.shape[-2]}")
    batch = broadcast("matmul: stacks", a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2:-1] if x1.ndim > 1 else (), b.shape[-1:] if x2.ndim > 1 else ()
    dtype = dtypes.result_type(x1.dtype, x2.dtype)
    result = call.out((*batch, *rows, *columns), dtype)
    if dtype.kind == "b":  # as counts that are not zero
        result.copy_from(astype(matmul(astype(x1, np.int32), astype(x2, np.int32)), dtype))
    elif result.size and not gemv.multiply_one(call, x1, x2, result):
        shown = result if x1.ndim > 1 else result[..., None, :]
        shown = shown if x2.ndim > 1 else shown[..., None]
        multiply_into(call, convert(call, a, dtype), convert(call, b, dtype), shown, dtype)
    return result


def matrix_transpose(x: aiodev.Array, /) -> aiodev.Array:
    """The last two dimensions swapped; a view.

    Raises:
        ValueError: it has fewer than two.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.empty((5, 2, 3), device="cpu")
        >>> aiodev.kernels.matrix_transpose(x).shape
        (5, 3, 2)
    """
    array_of("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: expected at least 2 dimensions, got the shape {x.shape}")
    return x.transpose(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


@aiodev.operation(reads=["x1", "x2"], writes="out")
def vecdot(
    call: aiodev.Call, x1: aiodev.Array, x2: aiodev.Array, /, *, axis: int = -1, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The dot products of vectors along ``axis``, of ``x1`` conjugated if it is complex; other dimensions broadcast.

    Sums are of blocks of 4096 products, then of the blocks: the same on every run.

    Raises:
        ValueError: the axis is not there, or has different lengths.
        TypeError: ``out`` has another dtype than the result.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> aiodev.kernels.vecdot(x, x).numpy_blocking()
        array([ 5., 25.])
    """
    left, right = (move_last("vecdot", x, axis) for x in (x1, x2))
    return dot(call, left, right, conjugate=True)


@aiodev.operation(reads=["x1", "x2"])
def tensordot(
    call: aiodev.Call,
    x1: aiodev.Array,
    x2: aiodev.Array,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
) -> aiodev.Array:
    """The sum of products over the last ``axes`` dimensions of ``x1`` and the first of ``x2``, or over those that are named.

    Raises:
        ValueError: those dimensions have different lengths, are not there, or are named twice.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x, y = aiodev.ones((2, 3, 4), device="cpu"), aiodev.ones((4, 3, 5), device="cpu")
        >>> aiodev.kernels.tensordot(x, y, axes=([1, 2], [1, 0])).numpy_blocking()
        array([[12., 12., 12., 12., 12.],
               [12., 12., 12., 12., 12.]])
    """
    if hasattr(axes, "__index__") and not isinstance(axes, np.ndarray | aiodev.Array):
        (axes,) = whole_numbers("tensordot: axes", axes)
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ValueError(f"tensordot: axes={axes}: the shapes are {x1.shape} and {x2.shape}")
        first, second = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        if not isinstance(axes, tuple | list) or len(axes) != 2:
            raise TypeError(f"tensordot: axes {axes!r}: expected an integer, or two sequences of them")
        first, second = (
            [checked_axis("tensordot", a, x.ndim) for a in whole_numbers("tensordot: axes", own)]
            for x, own in zip((x1, x2), axes, strict=True)
        )
        if len(set(first)) != len(first) or len(set(second)) != len(second):
            raise ValueError(f"tensordot: axes {axes!r} name one axis twice")
    if [x1.shape[a] for a in first] != [x2.shape[a] for a in second]:
        raise ValueError(f"tensordot: axes {axes!r} have different lengths in the shapes {x1.shape} and {x2.shape}")
    kept = [a for a in range(x1.ndim) if a not in first], [a for a in range(x2.ndim) if a not in second]
    inner = math.prod(x1.shape[a] for a in first)
    shape = [x1.shape[a] for a in kept[0]], [x2.shape[a] for a in kept[1]]
    left = call.reshape(x1.transpose(kept[0] + first), (math.prod(shape[0]), inner))
    right = call.reshape(x2.transpose(second + kept[1]), (inner, math.prod(shape[1])))
    dtype = dtypes.result_type(x1.dtype, x2.dtype)
    if dtype.kind == "b":
        return matmul(left, right).reshape(*shape[0], *shape[1])
    result = call.new((*shape[0], *shape[1]), dtype)
    if result.size:
        parts = convert(call, left, dtype), convert(call, right, dtype), result.reshape(left.shape[0], right.shape[1])
        multiply_into(call, *parts, dtype)
    return result


def multiply_into(call: aiodev.Call, a: aiodev.Array, b: aiodev.Array, out: aiodev.Array, dtype: DType) -> None:
    """Compute ``a @ b`` into ``out``, which has elements; all have two dimensions or more, that dtype, and shapes that fit."""
    loops = not aiodev.capabilities(out.device).simt
    if loops and dtypes.is_stored_only(dtype):
        computed = dtypes.compute_dtype(dtype)
        whole = aiodev.empty(out.shape, computed, out.device)
        multiply_into(call, convert(call, a, computed), convert(call, b, computed), whole, computed)
        out.copy_from(astype(whole, dtype))
        return
    unit = _unit(call, dtype)
    rows, columns = out.shape[-2:]
    by_loops = unit is None and loops
    if not is_fit(out, packed=by_loops or out.ndim > 3):
        whole = call.scratch(out.shape, dtype)
        multiply_into(call, a, b, whole, dtype)
        call.copy(out, whole)
    elif unit is not None and out.ndim == 2 and rows * columns * a.shape[-1] <= least_for(rows, columns):
        call.launch(multiply_once, 1, *unit, a, b, out)  # of any strides
    else:
        a, b = fitting(call, a, packed=False), fitting(call, b, packed=by_loops)
        for parts in batches_of(a, b, out):
            multiply_matrices(call, unit, *parts)


def _unit(call: aiodev.Call, dtype: DType) -> tuple[Any, ...] | None:
    """What launches pass for BLAS to be called for a type, with the stream ordered after its loading; None if it has none."""
    device = call.device
    if dtype not in _PLACES or not aiodev.capabilities(device).host_code:
        return None
    units = _units.get(device)
    if units is None:
        table, done = openblas.functions(device)
        zero, ones = table[openblas.ZERO :], (table[openblas.ONE :], table[openblas.ONE + 2 :])
        units = {}
        for kind, place in _PLACES.items():  # BLAS takes complex factors by address
            factors = (kind.type(1), kind.type(0)) if kind.kind == "f" else (ones[place - 2], zero)
            units[kind] = table, openblas.GEMM + place, *factors
        if done.query():
            _units[device] = units
        else:
            call.wait(done)
    unit = units[dtype]
    call.constant(unit[0])
    return unit


def multiply_matrices(
    call: aiodev.Call, unit: tuple[Any, ...] | None, a: aiodev.Array, b: aiodev.Array, out: aiodev.Array
) -> None:
    """The product of three-dimensional arrays, stacks of as many matrices or of one, by :func:`_unit` or without."""
    batch, rows, columns = out.shape
    inner = a.shape[-1]
    step_a, step_b = int(a.shape[0] > 1), int(b.shape[0] > 1)
    if inner and aiodev.capabilities(out.device).simt:
        if cublas.multiply(call, a, b, out):
            return
        kernel, over = multiply_elements, out.shape
        if rows >= _TILE and columns >= _TILE and batch * rows * columns >= TILED:
            kernel, over = multiply_tiles, (batch, -(-rows // _TILE), -(-columns // _TILE))
        call.launch(kernel, over, step_a, step_b, a, b, out)
        return
    if columns == 1 and gemv.is_large(a) and gemv.multiply(call, a, b[:, :, 0], out[:, :, 0]):
        return
    if rows == 1 and gemv.is_large(b) and gemv.multiply(call, b.transpose(0, 2, 1), a[:, 0], out[:, 0]):
        return
    height, width = panel_of(rows, columns, inner)
    across = -(-columns // width)
    panels = across * -(-rows // height)
    group = max(1, least_for(rows, columns) // max(1, height * width * inner))
    sizes = group, batch * panels, across, panels, height, width, step_a, step_b
    kernel = multiply_plain if unit is None else multiply_panels
    call.launch(kernel, -(-batch * panels // group), *(unit or ()), *sizes, a, b, out)


def _sample_product(dtype: Any) -> None:
    x = aiodev.ones((4, 4), dtype=dtype)
    for a, b in ((x, x), (x[0], x[0]), (aiodev.ones((2, 4, 4), dtype=dtype), x)):
        matmul(a, b)
    for shape in ((512, 512), (4, 1 << 16)):  # of which products with vectors are shared
        x = aiodev.ones(shape, dtype=dtype)
        matmul(x, x[0])
        matmul(x[:, 0], x)


def _sample_dot(dtype: Any) -> None:
    for length in (4, 1 << 18):
        vecdot(*(aiodev.ones(length, dtype=dtype) for _ in range(2)))


register_sample("matmul", _sample_product)
register_sample("vecdot", _sample_dot)


@aiodev.in_child
def _forget() -> None:
    """Ask for the table anew in a forked child, where the devices start afresh."""
    _units.clear()
