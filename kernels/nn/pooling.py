"""Pooling of images: the largest element or the mean of each window; and what the gradients of that are made of.

Of the largest elements it matters where they are: so a result, its gradient and the gradient of that all look for the same
place in a window, and differ in what they do there. Of equal elements the first one in the window is taken, and a NaN before
all others.
"""

# What is called in bodies is numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import delivered, flags, packed_out
from aiodev.kernels.nn.convolution import pair
from aiodev.kernels.tuning import POOLED_EACH
from aiodev.kernels.warmup import register_sample

__all__ = ["avg_pool2d", "avg_pool2d_of_input", "largest_of_windows", "max_pool2d", "max_pool2d_of_input"]

Pair = int | tuple[int, int]


class _Windows(NamedTuple):
    """What kernels are told of windows; pairs are of lines and columns."""

    window_y: int
    window_x: int
    stride_y: int
    stride_x: int
    padding_y: int
    padding_x: int
    dilation_y: int
    dilation_x: int


@aiodev.operation(reads=["x"], writes="out")
def max_pool2d(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    kernel_size: Pair,
    *,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The largest element of each window of images, of the shape (images, channels, height, width).

    A window that has a NaN gives NaN. The gradient goes to the first of equal elements. Only windows that fit into the padded
    images count.

    Submits to the current stream; writes to ``out`` if given.

    Args:
        kernel_size: lines and columns of a window, or one number for both, as in all that follows.
        stride: the distance of windows; by default they lie side by side.
        padding: lines and columns around each image that are smaller than any element; half of a window at most.
        dilation: the distance of elements in a window.

    Raises:
        ValueError: an option is out of range, a window is larger than a padded image, or ``x`` has not 4 dimensions.
        TypeError: complex numbers, or an option that is no integer.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(16.0, device="cpu").reshape(1, 1, 4, 4)
        >>> aiodev.kernels.max_pool2d(x, 2).numpy_blocking()
        array([[[[ 5.,  7.],
                 [13., 15.]]]])
    """
    own, positions = _windows_of(call.name, x, kernel_size, stride, padding, dilation)
    if x.dtype.kind == "c":
        raise TypeError(f"{call.name}: expected real numbers, got {x.dtype}, which have no order")
    result, target = packed_out(call, (*x.shape[:2], *positions), x.dtype)
    _launch(call, max_planes, max_elements, own, (), call.packed(x), target)
    return delivered(call, result, target)


@aiodev.operation(reads=["values", "x"], name="max_pool2d")
def largest_of_windows(
    call: aiodev.Call,
    values: aiodev.Array,
    x: aiodev.Array,
    /,
    *,
    kernel_size: Pair,
    stride: Pair | None,
    padding: Pair,
    dilation: Pair,
) -> aiodev.Array:
    """Of each window the value at the place where ``x`` is largest."""
    own, positions = _windows_of(call.name, x, kernel_size, stride, padding, dilation)
    result = call.new((*x.shape[:2], *positions), values.dtype)
    _launch(call, pick_planes, pick_elements, own, (), call.packed(x), call.packed(values), result)
    return result


@aiodev.operation(reads=["grads", "x"], name="max_pool2d_of_input")
def max_pool2d_of_input(
    call: aiodev.Call,
    grads: aiodev.Array,
    x: aiodev.Array,
    /,
    *,
    kernel_size: Pair,
    stride: Pair | None,
    padding: Pair,
    dilation: Pair,
) -> aiodev.Array:
    """What windows give back, at the places where ``x`` is largest; added up where windows overlap."""
    own, _ = _windows_of(call.name, x, kernel_size, stride, padding, dilation)
    result = call.new(x.shape, grads.dtype)
    _launch(call, put_planes, put_elements, own, (), call.packed(x), call.packed(grads), result)
    return result


@aiodev.operation(reads=["x"], writes="out")
def avg_pool2d(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    kernel_size: Pair,
    *,
    stride: Pair | None = None,
    padding: Pair = 0,
    count_include_pad: bool = True,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The mean of each window of images; arguments and errors as for :func:`max_pool2d`.

    ``float16`` and ``bfloat16`` are summed in ``float32``.

    Args:
        padding: zeros around each image.
        count_include_pad: whether these count; else a mean is of the elements that are there.

    Raises:
        TypeError: anything but real numbers of floating point.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(16.0, device="cpu").reshape(1, 1, 4, 4)
        >>> aiodev.kernels.avg_pool2d(x, 2).numpy_blocking()
        array([[[[ 2.5,  4.5],
                 [10.5, 12.5]]]])
    """
    flags(call.name, count_include_pad=count_include_pad)
    own, positions = _windows_of(call.name, x, kernel_size, stride, padding, 1)
    if dtypes.kind(x.dtype) != "f":
        raise TypeError(f"{call.name}: expected real numbers of floating point, got {x.dtype}; aiodev.kernels.astype converts")
    result, target = packed_out(call, (*x.shape[:2], *positions), x.dtype)
    _launch(call, average_planes, average_elements, own, (bool(count_include_pad),), call.packed(x), target)
    return delivered(call, result, target)


@aiodev.operation(reads=["grads"], name="avg_pool2d_of_input")
def avg_pool2d_of_input(
    call: aiodev.Call,
    grads: aiodev.Array,
    /,
    *,
    size: tuple[int, int],
    kernel_size: Pair,
    stride: Pair | None,
    padding: Pair,
    count_include_pad: bool,
) -> aiodev.Array:
    """The gradient of images of a size: each window's is spread over its elements."""
    own = _options_of(call.name, kernel_size, stride, padding, 1)
    result = call.new((*grads.shape[:2], *size), grads.dtype)
    _launch(call, spread_planes, spread_elements, own, (bool(count_include_pad),), call.packed(grads), result)
    return result


def _options_of(function: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> _Windows:
    window = pair(function, "kernel_size", kernel_size, 1)
    steps = window if stride is None else pair(function, "stride", stride, 1)
    pads = pair(function, "padding", padding, 0)
    if any(2 * pad > length for pad, length in zip(pads, window, strict=True)):
        raise ValueError(f"{function}: padding {padding!r}: expected half of a window, {window}, at most")
    return _Windows(*window, *steps, *pads, *pair(function, "dilation", dilation, 1))


def _windows_of(
    function: str, x: aiodev.Array, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[_Windows, tuple[int, int]]:
    """The windows, and how many lines and columns of them there are."""
    if x.ndim != 4:
        raise ValueError(f"{function}: argument x: expected 4 dimensions, got the shape {x.shape}")
    own = _options_of(function, kernel_size, stride, padding, dilation)
    height = (x.shape[2] + 2 * own.padding_y - own.dilation_y * (own.window_y - 1) - 1) // own.stride_y + 1
    width = (x.shape[3] + 2 * own.padding_x - own.dilation_x * (own.window_x - 1) - 1) // own.stride_x + 1
    if height < 1 or width < 1:
        raise ValueError(f"{function}: a window of {kernel_size!r} is larger than the padded images, {x.shape[2:]}")
    return own, (height, width)


def _launch(
    call: aiodev.Call,
    by_planes: aiodev.Kernel,
    by_elements: aiodev.Kernel,
    own: _Windows,
    chosen: tuple[bool, ...],
    *arrays: aiodev.Array,
) -> None:
    """Launch a kernel over planes, or over the elements of what it writes, the last of ``arrays``."""
    out = arrays[-1]
    if not out.size:
        return
    planes = [x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for x in arrays]
    if aiodev.capabilities(call.device).simt:
        call.launch(by_elements, planes[-1].shape, *own, *chosen, *planes)
        return
    count = len(planes[-1])
    group = max(1, POOLED_EACH // max(x.size // count for x in planes))
    call.launch(by_planes, -(-count // group), group, *own, *chosen, *planes)


# Places and counts, as all devices find them


def place_of_largest(x, line, column, wy, wx, dy, dx):
    """Line and column of the first of the largest elements of a window that begins at ``line`` and ``column``."""
    height, width = x.shape
    first, best_y, best_x = True, 0, 0
    best = x[0, 0]
    for tap_y in range(wy):
        i = line + tap_y * dy
        if i >= 0 and i < height:
            for tap_x in range(wx):
                j = column + tap_x * dx
                if j >= 0 and j < width:
                    value = x[i, j]
                    if first or value > best or (value != value and best == best):
                        first, best, best_y, best_x = False, value, i, j
    return best_y, best_x


def places_of_four(a, b, c, d):
    """Of two lines of two: whether the second of the upper, and of the lower one is the largest, and whether it is a lower one.

    Without branches, which would often be mispredicted.
    """
    right, below = not ((a >= b) | (a != a)), not ((c >= d) | (c != c))
    e, f = b if right else a, d if below else c
    return right, below, not ((e >= f) | (e != e))


def larger(a, b):
    """The larger of two elements, the first if they are equal, or one that is a NaN."""
    return a if (a >= b) | (a != a) else b


def are_halves(wy, wx, sy, sx, py, px, dy, dx):
    """Whether windows are 2 by 2 and side by side, which is so common that it has loops of its own."""
    return wy == 2 and wx == 2 and sy == 2 and sx == 2 and py == 0 and px == 0 and dy == 1 and dx == 1


def count_of(height, width, line, column, wy, wx, include):
    """How many elements a mean is of."""
    if include:
        return wy * wx
    return (min(height, line + wy) - max(0, line)) * (min(width, column + wx) - max(0, column))


# Over planes: for workers


@aiodev.kernel(uniform=True, reads=["x"])
def max_planes(
    i: int, group: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int, x: Any, out: Any
) -> None:
    """Of some planes, the largest elements of windows."""
    first, last = i * group, min(out.shape[0], (i + 1) * group)
    if are_halves(wy, wx, sy, sx, py, px, dy, dx):
        given, target = x[first:last].reshape(-1), out[first:last].reshape(-1)
        width, columns, to = np.uint64(x.shape[2]), np.uint64(out.shape[2]), np.uint64(0)
        for plane in range(last - first):
            upper = np.uint64(plane * x.shape[1]) * width
            for _ in range(out.shape[1]):
                for j in range(out.shape[2]):
                    k = upper + np.uint64(2 * j)
                    m = k + np.uint64(1)
                    target[to + np.uint64(j)] = larger(larger(given[k], given[m]), larger(given[k + width], given[m + width]))
                upper, to = upper + np.uint64(2) * width, to + columns
    else:
        for plane in range(first, last):
            for line in range(out.shape[1]):
                for column in range(out.shape[2]):
                    max_elements(plane, line, column, wy, wx, sy, sx, py, px, dy, dx, x, out)


@aiodev.kernel(uniform=True, reads=["x", "values"])
def pick_planes(
    i: int, group: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int, x: Any, values: Any, out: Any
) -> None:
    """Of some planes, the values at the largest elements of windows."""
    for plane in range(i * group, min(out.shape[0], (i + 1) * group)):
        source, given, target = x[plane], values[plane], out[plane]
        if wy == 2 and wx == 2 and dy == 1 and dx == 1 and py == 0 and px == 0:
            p = np.uint64(plane)
            for line in range(target.shape[0]):
                top, own = np.uint64(line * sy), np.uint64(line)
                bottom = top + np.uint64(1)
                for j in range(target.shape[1]):
                    k, at = np.uint64(j * sx), np.uint64(j)
                    m = k + np.uint64(1)
                    v0, v1, v2, v3 = values[p, top, k], values[p, top, m], values[p, bottom, k], values[p, bottom, m]
                    right, below, down = places_of_four(x[p, top, k], x[p, top, m], x[p, bottom, k], x[p, bottom, m])
                    v0, v2 = v1 if right else v0, v3 if below else v2
                    out[p, own, at] = v2 if down else v0
        else:
            for line in range(target.shape[0]):
                for column in range(target.shape[1]):
                    y, z = place_of_largest(source, line * sy - py, column * sx - px, wy, wx, dy, dx)
                    target[line, column] = given[y, z]


@aiodev.kernel(uniform=True, reads=["x", "grads"])
def put_planes(
    i: int, group: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int, x: Any, grads: Any, out: Any
) -> None:
    """Of some planes: zeros, with each window's gradient added at its largest element."""
    first, last = i * group, min(out.shape[0], (i + 1) * group)
    halves, zero = are_halves(wy, wx, sy, sx, py, px, dy, dx), out.dtype.type(0)
    places = out[first:last].reshape(-1)
    if not halves or 2 * grads.shape[1] != out.shape[1] or 2 * grads.shape[2] != out.shape[2]:
        for j in range(places.size):
            places[j] = zero
    if halves:
        values, given = x[first:last].reshape(-1), grads[first:last].reshape(-1)
        width, columns, own = np.uint64(x.shape[2]), np.uint64(grads.shape[2]), np.uint64(0)
        for plane in range(last - first):
            upper = np.uint64(plane * x.shape[1]) * width
            for _ in range(grads.shape[1]):
                for j in range(grads.shape[2]):
                    k, g = upper + np.uint64(2 * j), given[own + np.uint64(j)]
                    m = k + np.uint64(1)
                    right, below, down = places_of_four(values[k], values[m], values[k + width], values[m + width])
                    g0, g2 = zero if down else g, g if down else zero
                    v0, v1, v2, v3 = zero if right else g0, g0 if right else zero, zero if below else g2, g2 if below else zero
                    places[k], places[m], places[k + width], places[m + width] = v0, v1, v2, v3
                upper, own = upper + np.uint64(2) * width, own + columns
    else:
        for plane in range(first, last):
            for line in range(grads.shape[1]):
                for column in range(grads.shape[2]):
                    y, z = place_of_largest(x[plane], line * sy - py, column * sx - px, wy, wx, dy, dx)
                    out[plane, y, z] += grads[plane, line, column]


@aiodev.kernel(uniform=True, reads=["x"])
def average_planes(
    i: int, group: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int, include: bool, x: Any, out: Any
) -> None:
    """Of some planes, the means of windows."""
    first, last = i * group, min(out.shape[0], (i + 1) * group)
    if are_halves(wy, wx, sy, sx, py, px, dy, dx):
        given, target, zero = x[first:last].reshape(-1), out[first:last].reshape(-1), out.dtype.type(0) + np.float32(0)
        width, columns, to = np.uint64(x.shape[2]), np.uint64(out.shape[2]), np.uint64(0)
        for plane in range(last - first):
            upper = np.uint64(plane * x.shape[1]) * width
            for _ in range(out.shape[1]):
                for j in range(out.shape[2]):
                    k = upper + np.uint64(2 * j)
                    m = k + np.uint64(1)
                    total = zero + given[k] + given[m] + given[k + width] + given[m + width]
                    target[to + np.uint64(j)] = total * np.float32(0.25)
                upper, to = upper + np.uint64(2) * width, to + columns
    else:
        for plane in range(first, last):
            for line in range(out.shape[1]):
                for column in range(out.shape[2]):
                    average_elements(plane, line, column, wy, wx, sy, sx, py, px, dy, dx, include, x, out)


@aiodev.kernel(uniform=True, reads=["grads"])
def spread_planes(
    i: int, group: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int, include: bool, grads: Any,
    out: Any,
) -> None:  # fmt: skip
    """Of some planes, each window's gradient in equal parts to its elements."""
    first, last = i * group, min(out.shape[0], (i + 1) * group)
    halves, zero = are_halves(wy, wx, sy, sx, py, px, dy, dx), out.dtype.type(0)
    places = out[first:last].reshape(-1)
    if not halves or 2 * grads.shape[1] != out.shape[1] or 2 * grads.shape[2] != out.shape[2]:
        for j in range(places.size):
            places[j] = zero
    if halves:
        given = grads[first:last].reshape(-1)
        width, columns, own = np.uint64(out.shape[2]), np.uint64(grads.shape[2]), np.uint64(0)
        for plane in range(last - first):
            upper = np.uint64(plane * out.shape[1]) * width
            for _ in range(grads.shape[1]):
                for j in range(grads.shape[2]):
                    k, part = upper + np.uint64(2 * j), given[own + np.uint64(j)] * np.float32(0.25)
                    m = k + np.uint64(1)
                    places[k], places[m], places[k + width], places[m + width] = part, part, part, part
                upper, own = upper + np.uint64(2) * width, own + columns
    elif out.itemsize > 2 or (sy >= wy and sx >= wx):
        for plane in range(first, last):
            for line in range(grads.shape[1]):
                for column in range(grads.shape[2]):
                    top, left = line * sy - py, column * sx - px
                    number = count_of(out.shape[1], out.shape[2], top, left, wy, wx, include)
                    part = (grads[plane, line, column] + np.float32(0)) / type(zero + np.float32(0))(number)
                    for y in range(max(0, top), min(out.shape[1], top + wy)):
                        for z in range(max(0, left), min(out.shape[2], left + wx)):
                            out[plane, y, z] += part
    else:  # sums of half precision are rounded once
        for plane in range(first, last):
            for line in range(out.shape[1]):
                for column in range(out.shape[2]):
                    spread_elements(plane, line, column, wy, wx, sy, sx, py, px, dy, dx, include, grads, out)


# Over elements


@aiodev.kernel(ndim=3, reads=["x"])
def max_elements(
    plane: int, line: int, column: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int,
    x: Any, out: Any,
) -> None:  # fmt: skip
    """The largest element of a window."""
    y, z = place_of_largest(x[plane], line * sy - py, column * sx - px, wy, wx, dy, dx)
    out[plane, line, column] = x[plane, y, z]


@aiodev.kernel(ndim=3, reads=["x", "values"])
def pick_elements(
    plane: int, line: int, column: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int,
    x: Any, values: Any, out: Any,
) -> None:  # fmt: skip
    """The value at the largest element of a window."""
    y, z = place_of_largest(x[plane], line * sy - py, column * sx - px, wy, wx, dy, dx)
    out[plane, line, column] = values[plane, y, z]


@aiodev.kernel(ndim=3, reads=["x", "grads"])
def put_elements(
    plane: int, line: int, column: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int,
    x: Any, grads: Any, out: Any,
) -> None:  # fmt: skip
    """The gradients of the windows that have an element and in which it is the largest, in the order of their taps."""
    total = out.dtype.type(0) + np.float32(0)
    for tap_y in range(wy):
        i = line + py - tap_y * dy
        if i >= 0 and i % sy == 0 and i // sy < grads.shape[1]:
            for tap_x in range(wx):
                j = column + px - tap_x * dx
                if j >= 0 and j % sx == 0 and j // sx < grads.shape[2]:
                    y, z = place_of_largest(x[plane], i - py, j - px, wy, wx, dy, dx)
                    if y == line and z == column:
                        total += grads[plane, i // sy, j // sx]
    out[plane, line, column] = total


@aiodev.kernel(ndim=3, reads=["x"])
def average_elements(
    plane: int, line: int, column: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int, include: bool,
    x: Any, out: Any,
) -> None:  # fmt: skip
    """The mean of a window."""
    total = out.dtype.type(0) + np.float32(0)
    top, left = line * sy - py, column * sx - px
    for i in range(max(0, top), min(x.shape[1], top + wy)):
        for j in range(max(0, left), min(x.shape[2], left + wx)):
            total += x[plane, i, j]
    out[plane, line, column] = total / type(total)(count_of(x.shape[1], x.shape[2], top, left, wy, wx, include))


@aiodev.kernel(ndim=3, reads=["grads"])
def spread_elements(
    plane: int, line: int, column: int, wy: int, wx: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int, include: bool,
    grads: Any, out: Any,
) -> None:  # fmt: skip
    """The parts of the gradients of the windows that have an element."""
    total = out.dtype.type(0) + np.float32(0)
    first_y, first_x = max(0, -((wy - 1 - line - py) // sy)), max(0, -((wx - 1 - column - px) // sx))
    for i in range(first_y, min(grads.shape[1], (line + py) // sy + 1)):
        for j in range(first_x, min(grads.shape[2], (column + px) // sx + 1)):
            top, left = i * sy - py, j * sx - px
            number = count_of(out.shape[1], out.shape[2], top, left, wy, wx, include)
            total += grads[plane, i, j] / type(total)(number)
    out[plane, line, column] = total


def _sample(dtype: Any) -> None:
    x = aiodev.ones((1, 2, 4, 4), dtype=dtype)
    max_pool2d(x, 2)
    avg_pool2d(x, 2)


register_sample("max_pool2d", _sample)
register_sample("avg_pool2d", _sample)
