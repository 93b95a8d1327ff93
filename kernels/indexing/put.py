"""Put: writing at indices that are themselves in an array."""

from __future__ import annotations

import functools
import math

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import broadcast, delivered, repeated, written
from aiodev.kernels.elementwise.conversion import convert
from aiodev.kernels.indexing import bodies
from aiodev.kernels.indexing.take import check_length, mode_of, prepare
from aiodev.kernels.tuning import PUT_BLOCKS, PUT_EACH, PUT_TIMES, PUT_WIDTH, TAKEN_EACH

__all__ = ["add_in_order", "put", "put_slices", "scatter_add"]

Operand = aiodev.Array | complex


@aiodev.operation(reads=["indices", "values"], numbers=["values"], writes="x")
def put(
    call: aiodev.Call, x: aiodev.Array, indices: aiodev.Array, values: Operand, /, *, mode: str = "raise"
) -> aiodev.Array:
    """Write ``values`` to ``x`` at ``indices`` of its elements in C order, in place; returns ``x``.

    Where an index occurs twice, one of its values is written; which is not defined. ``mode`` is as for :func:`take`; under
    ``"raise"`` other elements may have been written when an index is found to be out of bounds.

    Args:
        values: a number, or an array that broadcasts to the shape of ``indices``.

    Raises:
        TypeError: the indices are no integers, or the values cannot become elements of ``x`` without loss.
        ValueError: the shapes do not fit.
        LaunchError: ``x`` is read-only.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.zeros(4, "int64", "cpu")
        >>> aiodev.kernels.put(x, aiodev.asarray([3, 1], device="cpu"), 7).numpy_blocking()
        array([0, 7, 0, 7])
    """
    prepare(call, "put", x, indices, None, whole=False)
    written("put", x=x)
    given = _values(call, x, values, indices.shape)
    if not indices.size:
        return x
    check_length("put", x.size)
    target, flat = call.packed(x), call.reshape(indices, indices.size)
    arrays = target.reshape(x.size), flat, call.reshape(given, flat.size)
    call.launch(bodies.put_elements, flat.size, mode_of("put", mode), *arrays)
    return delivered(call, x, target)


@aiodev.operation(reads=["indices", "values"], writes="x", name="put")
def put_slices(
    call: aiodev.Call, x: aiodev.Array, indices: aiodev.Array, values: aiodev.Array, /, *, axis: int
) -> aiodev.Array:
    """Write ``values``, which have the shape of ``take(x, indices, axis=axis)``, to a packed ``x``; as for :func:`put`."""
    prepare(call, "put", x, indices, axis, whole=False)
    check_length("put", x.shape[axis])
    outer, inner, count = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :]), indices.size
    blocks, group = -(-inner // bodies.BLOCK), max(1, TAKEN_EACH // inner)
    target, flat = x.reshape(outer, x.shape[axis], inner), call.reshape(indices, count)
    arrays = target, flat, call.reshape(values, (outer, count, inner))
    call.launch(bodies.put_items, -(-outer * count // group) * blocks, group, blocks, bodies.RAISE, *arrays)
    return x


@aiodev.operation(reads=["indices", "values"], numbers=["values"], writes="x")
def scatter_add(
    call: aiodev.Call,
    x: aiodev.Array,
    indices: aiodev.Array,
    values: Operand,
    /,
    *,
    axis: int | None = None,
    mode: str = "raise",
) -> aiodev.Array:
    """Add ``values`` to the elements, or slices, of ``x`` at ``indices`` along ``axis``, in place; returns ``x``.

    It adds to what :func:`take` with the same arguments reads, as often as an index occurs. Single elements and short slices
    are added atomically, in an order that is not defined: integers come out the same on every run, floats may differ in
    their last bits. On the CPU, up to 4096 elements, and slices of 32 elements and more, are added in the order of the
    indices, and what goes to an eighth as many places, or fewer, in an order that follows from the shapes; so there floats
    are the same, too. ``mode`` is as for :func:`take`; under ``"raise"`` other values may have been
    added when an index is found to be out of bounds.

    Args:
        values: a number, or an array that broadcasts to the shape of ``take(x, indices, axis=axis)``.

    Raises:
        TypeError: the indices are no integers, the elements are complex or booleans, or the values cannot become elements of
            ``x`` without loss.
        ValueError: the shapes do not fit.
        LaunchError: ``x`` is read-only.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> counts = aiodev.zeros(4, "i8", "cpu")
        >>> aiodev.kernels.scatter_add(counts, aiodev.asarray([0, 3, 3], device="cpu"), 1).numpy_blocking()
        array([1, 0, 0, 2])
    """
    _, at = prepare(call, "scatter_add", x, indices, axis, whole=False)
    written("scatter_add", x=x)
    if x.dtype.kind in "cb":
        raise TypeError(f"scatter_add: elements of {x.dtype} cannot be added to atomically")
    if axis is None:
        shape, seen = indices.shape, (1, x.size, 1)
    else:
        shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
        seen = math.prod(x.shape[:at]), x.shape[at], math.prod(x.shape[at + 1 :])
    given = _values(call, x, values, shape)
    if not given.size:
        return x
    check_length("scatter_add", seen[1])
    target, count = call.packed(x), indices.size
    arrays = target.reshape(seen), call.reshape(indices, count), call.reshape(given, (seen[0], count, seen[2]))
    _add(call, mode_of("scatter_add", mode), *arrays)
    return delivered(call, x, target)


def _add(call: aiodev.Call, mode: int, x: aiodev.Array, indices: aiodev.Array, values: aiodev.Array) -> None:
    outer, length, inner = x.shape
    count, size, device = indices.size, length * inner, x.device
    wide = inner >= 2 * PUT_WIDTH
    whole = outer * count * inner <= PUT_EACH  # one index of the launch, with nobody beside it
    few = count >= 2 * PUT_TIMES * length  # places
    blocks = min(PUT_BLOCKS // outer, count // (PUT_TIMES * length), count * inner // PUT_EACH) if few and not wide else 0
    loops = not aiodev.capabilities(device).simt
    if loops and (wide or whole or (few and blocks < 2)):
        width = max(PUT_WIDTH, -(-inner // (2 * _cores(device)))) if wide and not whole else inner
        slices = -(-inner // width)
        call.launch(bodies.add_slices, outer * slices, slices, width, mode, x, indices, values)
    elif loops and blocks:
        sums, strips = call.scratch((outer, blocks, size), x.dtype), -(-size // bodies.STRIP)
        is_wrong = call.scratch(outer * blocks, np.bool_)
        call.launch(bodies.add_apart, outer * blocks, blocks, mode, length, indices, values, sums, is_wrong)
        call.launch(bodies.add_parts, outer * strips, strips, sums, is_wrong, x.reshape(outer, size))
    elif outer == inner == 1:
        call.launch(bodies.add_elements, count, mode, x[0, :, 0], indices, values[0, :, 0])
    else:
        group = max(1, PUT_EACH // inner)
        call.launch(bodies.add_items, -(-outer * count // group), group, mode, x, indices, values)


def add_in_order(call: aiodev.Call, indices: aiodev.Array, values: aiodev.Array, out: aiodev.Array) -> None:
    """The sums of rows at indices, each in their order: a worker goes through all of them, for some of the columns."""
    count, width = values.shape
    strip = width if count * width <= PUT_EACH else max(PUT_WIDTH, -(-width // (2 * _cores(out.device))))
    strips = -(-width // strip)
    call.launch(bodies.fill_blocks, -(-out.size // bodies.BLOCK), out.reshape(out.size))
    arrays = out[None], indices, values[None]
    call.launch(bodies.add_slices, strips, strips, strip, bodies.RAISE, *arrays)


@functools.cache
def _cores(device: aiodev.Device) -> int:
    return aiodev.get_device_properties(device).multi_processor_count


def _values(call: aiodev.Call, x: aiodev.Array, values: Operand, shape: tuple[int, ...]) -> aiodev.Array:
    """The values, in the dtype of ``x`` and in the shape."""
    if isinstance(values, aiodev.Array):
        if not dtypes.can_cast(values.dtype, x.dtype, "same_kind"):
            raise TypeError(f"{call.name}: values of {values.dtype} cannot be written to {x.dtype}")
        if broadcast(f"{call.name}: values", values.shape, shape) != shape:
            raise ValueError(f"{call.name}: values of the shape {values.shape} do not broadcast to {shape}")
        return repeated(convert(call, values, x.dtype), shape)
    number = call.number(values)
    if not dtypes.can_cast(np.min_scalar_type(number.value), x.dtype, "same_kind"):
        raise TypeError(f"{call.name}: {number.value!r} cannot be written to {x.dtype}")
    one = call.scratch(1, x.dtype)
    call.launch(bodies.fill_one, 1, number.astype(x.dtype), one)
    return aiodev.broadcast_to(one.reshape(()), shape)
