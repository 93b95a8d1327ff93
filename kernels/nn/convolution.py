"""Convolution in two dimensions, and the two operations that are its gradients and each other's.

On CPUs each is one launch over tiles (:mod:`aiodev.kernels.nn.correlation`). Devices with a thread for each element multiply
matrices: the windows are copied to columns, as many images at a time as there is memory for, so that their BLAS has the work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import delivered, packed_out, shared, whole_number, whole_numbers
from aiodev.kernels.linalg.products import multiply_matrices
from aiodev.kernels.nn import correlation, windows
from aiodev.kernels.nn.tiles import Geometry, Tiling, backward_tiling, forward_tiling
from aiodev.kernels.tuning import WINDOW_COLUMNS
from aiodev.kernels.warmup import register_sample

__all__ = ["conv2d", "conv2d_of_input", "conv2d_of_weight", "pair"]

DType = np.dtype[Any]
Pair = int | tuple[int, int]

#: The largest number that an option may be, so that what kernels compute of it is within their integers.
_MOST = (1 << 31) - 1


@aiodev.operation(reads=["x", "weight", "bias"], writes="out")
def conv2d(
    call: aiodev.Call,
    x: aiodev.Array,
    weight: aiodev.Array,
    /,
    bias: aiodev.Array | None = None,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The convolution of images with windows, as neural networks have it: windows are not flipped.

    ``out[n, k, i, j]`` is the sum over ``c``, ``p`` and ``q`` of
    ``x[n, c, i * stride + p * dilation - padding, j * stride + q * dilation - padding] * weight[k, c, p, q]``,
    plus ``bias[k]``; beyond its borders an image is 0. Stride, padding and dilation are each an integer, or one for lines and
    one for columns.
    ``float16`` and ``bfloat16`` are summed in ``float32``. Sums are in an order that the shapes alone fix.

    Submits to the current stream; writes to ``out`` if given.

    Args:
        x: images, of the shape (images, channels, height, width).
        weight: windows, of the shape (results, channels / groups, height, width).
        bias: a number for each result, or None.
        groups: into how many parts the channels are cut, each with windows, and results, of its own.

    Raises:
        ValueError: shapes do not fit, the window is larger than a padded image, or an option is out of range.
        TypeError: the dtypes differ, or are of no real floating point; an option is no integer.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(9.0, device="cpu").reshape(1, 1, 3, 3)
        >>> aiodev.kernels.conv2d(x, aiodev.ones((1, 1, 2, 2), device="cpu")).numpy_blocking()
        array([[[[ 8., 12.],
                 [20., 24.]]]])
    """
    own = _geometry(call, x, weight, bias, stride, padding, dilation, groups)
    result, target = packed_out(call, (own.images, groups * own.rows, *own.positions), x.dtype)
    if not result.size:
        return result
    x, weight = call.packed(x), call.packed(weight)
    bias = None if bias is None else call.packed(bias)
    if aiodev.capabilities(call.device).simt:
        _multiply_columns(call, own, x, weight, bias, target)
    else:
        _correlate(call, forward_tiling(own), x, weight, bias, target)
    return delivered(call, result, target)


@aiodev.operation(reads=["grads", "weight"], name="conv2d_of_input")
def conv2d_of_input(
    call: aiodev.Call,
    grads: aiodev.Array,
    weight: aiodev.Array,
    /,
    *,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> aiodev.Array:
    """The gradient of images of a size, from that of the result: each element goes back to where its window was."""
    images, (rows, channels, *window) = grads.shape[0], weight.shape
    own = Geometry(images, groups, channels, rows // groups, size, tuple(window), stride, padding, dilation)  # type: ignore[arg-type]
    result = call.new((images, groups * channels, *size), grads.dtype)
    if not result.size:
        return result
    grads, weight = call.packed(grads), call.packed(weight)
    if aiodev.capabilities(call.device).simt:
        _scatter_columns(call, own, grads, weight, result)
    else:
        _correlate(call, backward_tiling(own), grads, weight, None, result)
    return result


@aiodev.operation(reads=["grads", "x"], name="conv2d_of_weight")
def conv2d_of_weight(
    call: aiodev.Call,
    grads: aiodev.Array,
    x: aiodev.Array,
    /,
    *,
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> aiodev.Array:
    """The gradient of windows of a size: products of the result's gradient with what the windows have seen, added up."""
    images, channels, *size = x.shape
    rows = grads.shape[1]
    own = Geometry(images, groups, channels // groups, rows // groups, tuple(size), window, stride, padding, dilation)  # type: ignore[arg-type]
    shape = rows, channels // groups, *window
    if not grads.size or not x.size:
        return aiodev.zeros(shape, grads.dtype, grads.device)
    result = call.new(shape, grads.dtype)
    grads, x, computed = call.packed(grads), call.packed(x), dtypes.compute_dtype(grads.dtype)
    if aiodev.capabilities(call.device).simt:
        _multiply_windows(call, own, grads, x, result)
        return result
    tiling = forward_tiling(own)
    *tables, _ = _tables(call, tiling)
    pieces, flat = tiling.chunks * tiling.strips, result.reshape(result.size)
    signals, totals = call.scratch((pieces, tiling.signal), computed), call.scratch((pieces, 4 * correlation.PITCH), computed)
    parts = call.scratch((tiling.chunks, result.size), computed)
    numbers = tiling.chunks, tiling.strips
    call.launch(
        correlation.multiply_signals, pieces, *numbers, *tables, x.reshape(-1), grads.reshape(-1), signals, totals, parts
    )
    call.launch(correlation.add_parts, -(-flat.size // correlation.BLOCK), parts, flat)
    return result


def pair(function: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """An option for lines and for columns.

    Raises:
        TypeError: it is neither an integer nor two.
        ValueError: one is less than ``least``, or beyond 31 bits.
    """
    both = whole_numbers(f"{function}: {name}", value)
    if len(both) == 1 and not isinstance(value, Sequence):
        both *= 2
    if len(both) != 2:
        raise ValueError(f"{function}: {name} {value!r}: expected an integer, or one for lines and one for columns")
    for own in both:
        if whole_number(function, name, own, least) > _MOST:
            raise ValueError(f"{function}: {name}: expected {_MOST} or less, got {own}")
    return both


def _geometry(
    call: aiodev.Call,
    x: aiodev.Array,
    weight: aiodev.Array,
    bias: aiodev.Array | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
) -> Geometry:
    name = call.name
    for own, array in (("x", x), ("weight", weight)):
        if array.ndim != 4:
            raise ValueError(f"{name}: argument {own}: expected 4 dimensions, got the shape {array.shape}")
    if dtypes.kind(x.dtype) != "f":
        raise TypeError(f"{name}: expected real numbers of floating point, got {x.dtype}; aiodev.kernels.astype converts")
    for own, given in (("weight", weight), ("bias", bias)):
        if given is not None and given.dtype != x.dtype:
            raise TypeError(f"{name}: {own} is {given.dtype}, x {x.dtype}; aiodev.kernels.astype converts")
    groups = whole_number(name, "groups", groups, 1)
    images, channels, *size = x.shape
    rows, own_channels, *window = weight.shape
    if not own_channels or not rows or not math.prod(window):
        raise ValueError(f"{name}: weight has the shape {weight.shape}: no windows")
    if rows % groups or channels != groups * own_channels:
        raise ValueError(
            f"{name}: weight has the shape {weight.shape}, x {x.shape}: with groups={groups} there must be a multiple of that "
            f"many windows, of {channels} / {groups} channels"
        )
    if bias is not None and bias.shape != (rows,):
        raise ValueError(f"{name}: bias has the shape {bias.shape}, there are {rows} windows")
    options = (pair(name, own, v, least) for own, v, least in zip(
        ("stride", "padding", "dilation"), (stride, padding, dilation), (1, 0, 1), strict=True
    ))  # fmt: skip
    geometry = Geometry(images, groups, own_channels, rows // groups, tuple(size), tuple(window), *options)  # type: ignore[arg-type]
    if min(geometry.positions) < 1:
        raise ValueError(f"{name}: the window {tuple(window)} is larger than the padded images, {tuple(size)}")
    return geometry


# On CPUs


def _tables(call: aiodev.Call, tiling: Tiling) -> tuple[aiodev.Array, ...]:
    """The plan and the tables of taps, which stay the same for as long as the call is remembered."""
    tables = []
    for host in (tiling.plan, tiling.phases, tiling.taps, tiling.starts):
        table = shared(host, call.device)
        tables.append(aiodev.asarray(host, device=call.device) if table is None else call.constant(table))
    return tuple(tables)


def _correlate(
    call: aiodev.Call,
    tiling: Tiling,
    source: aiodev.Array,
    weight: aiodev.Array,
    bias: aiodev.Array | None,
    out: aiodev.Array,
) -> None:
    computed = dtypes.compute_dtype(out.dtype)
    signals = call.scratch((tiling.pieces, tiling.signal), computed)
    totals = call.scratch((tiling.pieces, 4 * correlation.PITCH), computed)
    operands = source.reshape(-1), weight.reshape(-1), weight.reshape(-1) if bias is None else bias
    given = tiling.pieces, bias is not None, *_tables(call, tiling), *operands, signals, totals, out.reshape(-1)
    call.launch(correlation.correlate_tiles, tiling.pieces, *given)


# Where each element has a thread


def _chunks(own: Geometry) -> list[tuple[int, int]]:
    """How many images' windows are copied to columns at a time."""
    height, width = own.positions
    each = own.groups * own.channels * own.window[0] * own.window[1] * height * width
    count = max(1, min(own.images, WINDOW_COLUMNS // each))
    return [(first, min(own.images, first + count)) for first in range(0, own.images, count)]


def _columns(call: aiodev.Call, own: Geometry, x: aiodev.Array, images: int) -> aiodev.Array:
    """The windows of some images, a matrix for each group: rows are of channels and taps, columns of images and positions."""
    height, width = own.positions
    taps = own.channels * own.window[0] * own.window[1]
    made = call.scratch((own.groups * taps, images, height * width), x.dtype)
    numbers = *own.window, *own.stride, *own.padding, *own.dilation, width
    call.launch(windows.copy_windows, made.shape, *numbers, x, made)
    return made.reshape(own.groups, taps, images * height * width)


def _rows(call: aiodev.Call, own: Geometry, g: aiodev.Array) -> aiodev.Array:
    """The gradients of some results, a matrix for each group: rows are of results, columns of images and positions."""
    images, (height, width) = g.shape[0], own.positions
    made = call.packed(g.reshape(images, own.groups * own.rows, height * width).transpose(1, 0, 2))
    return made.reshape(own.groups, own.rows, images * height * width)


def _matrices(own: Geometry, weight: aiodev.Array) -> aiodev.Array:
    return weight.reshape(own.groups, own.rows, own.channels * own.window[0] * own.window[1])


def _multiply_columns(
    call: aiodev.Call, own: Geometry, x: aiodev.Array, weight: aiodev.Array, bias: aiodev.Array | None, out: aiodev.Array
) -> None:
    height, width = own.positions
    for first, last in _chunks(own):
        columns = _columns(call, own, x[first:last], last - first)
        product = call.scratch((own.groups, own.rows, columns.shape[-1]), x.dtype)
        multiply_matrices(call, None, _matrices(own, weight), columns, product)
        shape = own.groups * own.rows, last - first, height * width
        added, target = (weight.reshape(-1) if bias is None else bias), out[first:last].reshape(shape[1], shape[0], shape[2])
        call.launch(windows.deliver_rows, shape, bias is not None, product.reshape(shape), added, target)


def _scatter_columns(
    call: aiodev.Call, own: Geometry, g: aiodev.Array, weight: aiodev.Array, out: aiodev.Array
) -> None:
    taps, (_, width) = own.channels * own.window[0] * own.window[1], own.positions
    for first, last in _chunks(own):
        rows = _rows(call, own, g[first:last])
        columns = call.scratch((own.groups, taps, rows.shape[-1]), g.dtype)
        multiply_matrices(call, None, _matrices(own, weight).mT, rows, columns)
        shape = last - first, own.groups * own.channels, own.size[0] * own.size[1]
        numbers = *own.window, *own.stride, *own.padding, *own.dilation, own.size[1], width
        source = columns.reshape(own.groups * taps, last - first, rows.shape[-1] // (last - first))
        call.launch(windows.add_windows, shape, *numbers, source, out[first:last].reshape(shape))


def _multiply_windows(
    call: aiodev.Call, own: Geometry, g: aiodev.Array, x: aiodev.Array, out: aiodev.Array
) -> None:
    chunks = _chunks(own)
    parts = call.scratch((len(chunks), out.size), g.dtype)
    for chunk, (first, last) in enumerate(chunks):
        columns, rows = _columns(call, own, x[first:last], last - first), _rows(call, own, g[first:last])
        multiply_matrices(call, None, rows, columns.mT, parts[chunk].reshape(own.groups, own.rows, columns.shape[1]))
    call.launch(windows.add_chunks, out.size, parts, out.reshape(-1))


def _sample(dtype: Any) -> None:
    x, weight = aiodev.ones((2, 4, 6, 6), dtype=dtype), aiodev.ones((4, 4, 3, 3), dtype=dtype)
    conv2d(x, weight)
    conv2d_of_input(x[:, :, :4, :4], weight, size=(6, 6), stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
    conv2d_of_weight(x[:, :, :4, :4], x, window=(3, 3), stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)


register_sample("conv2d", _sample)
