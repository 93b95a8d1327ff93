"""Writing at indices that are themselves in an array."""

from __future__ import annotations

import functools
import math

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import arrays_of, broadcast, packed, repeated, written
from aiodev.kernels.elementwise.conversion import Step, astype, convert_first
from aiodev.kernels.indexing import bodies
from aiodev.kernels.indexing.take import check_length, mode_of, prepare

__all__ = ["put", "scatter_add"]

Operand = aiodev.Array | complex

#: What is changed in place by one launch or two, under (name, and axis with its type, mode): of the indices and the values.
_changes = aiodev.LaunchCache(2)
_VALUES, _SCRATCH = 1, -1
#: Elements for one index of a launch, about: some µs of work.
_PIECE = 1 << 12
#: Blocks of items that are summed apart, in all, and how many times as many items as places there are then in each, at least.
_BLOCKS, _TIMES = 64, 4
#: Elements that are added side by side, at least: fewer are not worth going through all indices again.
_WIDTH = 16


def put(x: aiodev.Array, indices: aiodev.Array, values: Operand, /, *, mode: str = "raise") -> aiodev.Array:
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
    key, operands = ("put", mode), (indices, values)
    if _changes.repeat(key, indices, values, x) is not None:
        return x
    x, indices, _ = prepare("put", x, indices, None, whole=False)
    written("put", x=x)
    given, which, steps = _values("put", x, values, indices.shape)
    if indices.size:
        check_length("put", x.size)
        target, flat = packed(x), indices.reshape(indices.size)
        args = mode_of("put", mode), target.reshape(x.size), flat, given.reshape(flat.size)
        steps.append((bodies.put_elements, flat.size, args, (None, 2, 0, which)))
        _changes.launch_all(key, operands, x, steps, made=False)
        if target is not x:
            x.copy_from(target)
    return x


def scatter_add(
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
    key, operands = ("scatter_add", axis, axis.__class__, mode), (indices, values)
    if _changes.repeat(key, indices, values, x) is not None:
        return x
    x, indices, at = prepare("scatter_add", x, indices, axis, whole=False)
    written("scatter_add", x=x)
    if x.dtype.kind in "cb":
        raise TypeError(f"scatter_add: elements of {x.dtype} cannot be added to atomically")
    if axis is None:
        shape, seen = indices.shape, (1, x.size, 1)
    else:
        shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
        seen = math.prod(x.shape[:at]), x.shape[at], math.prod(x.shape[at + 1 :])
    given, which, steps = _values("scatter_add", x, values, shape)
    if not given.size:
        return x
    check_length("scatter_add", seen[1])
    target, count = packed(x), indices.size
    parts = target.reshape(seen), indices.reshape(count), given.reshape(seen[0], count, seen[2])
    steps += _adding(parts, mode_of("scatter_add", mode), which)
    _changes.launch_all(key, operands, x, steps, made=False)
    if target is not x:
        x.copy_from(target)
    return x


def _adding(parts: tuple[aiodev.Array, aiodev.Array, aiodev.Array], mode: int, which: int) -> list[Step]:
    """What adds; ``which`` is what the values are to a remembered launch."""
    x, indices, values = parts
    outer, length, inner = x.shape
    count, size, device = indices.size, length * inner, x.device
    wide = inner >= 2 * _WIDTH
    whole = outer * count * inner <= _PIECE  # one index of the launch, with nobody beside it
    few = count >= 2 * _TIMES * length  # places
    blocks = min(_BLOCKS // outer, count // (_TIMES * length), count * inner // _PIECE) if few and not wide else 0
    loops = not aiodev.capabilities(device).simt
    if loops and (wide or whole or (few and blocks < 2)):
        width = max(_WIDTH, -(-inner // (2 * _cores(device)))) if wide and not whole else inner
        slices = -(-inner // width)
        return [(bodies.add_slices, outer * slices, (slices, width, mode, *parts), (None, None, None, 2, 0, which))]
    if loops and blocks:
        sums, strips = aiodev.empty((outer, blocks, size), x.dtype, device), -(-size // bodies.STRIP)
        is_wrong = aiodev.empty(outer * blocks, np.bool_, device)
        apart = blocks, mode, length, indices, values, sums, is_wrong
        together = strips, sums, is_wrong, x.reshape(outer, size)
        return [
            (bodies.add_apart, outer * blocks, apart, (None, None, None, 0, which, _SCRATCH, _SCRATCH)),
            (bodies.add_parts, outer * strips, together, (None, _SCRATCH, _SCRATCH, 2)),
        ]
    if outer == inner == 1:
        args = mode, x[0, :, 0], indices, values[0, :, 0]
        return [(bodies.add_elements, count, args, (None, 2, 0, which))]
    group = max(1, _PIECE // inner)
    return [(bodies.add_items, -(-outer * count // group), (group, mode, *parts), (None, None, 2, 0, which))]


@functools.cache
def _cores(device: aiodev.Device) -> int:
    return aiodev.get_device_properties(device).multi_processor_count


def _values(
    name: str, x: aiodev.Array, values: Operand, shape: tuple[int, ...]
) -> tuple[aiodev.Array, int, list[Step]]:
    """The values, in the dtype of ``x`` and in the shape; what they are to a remembered launch, and what makes them."""
    if isinstance(values, aiodev.Array):
        arrays_of(name, x=x, values=values)
        if not dtypes.can_cast(values.dtype, x.dtype):
            raise TypeError(f"{name}: values of {values.dtype} cannot be written to {x.dtype}")
        if broadcast(f"{name}: values", values.shape, shape) != shape:
            raise ValueError(f"{name}: values of the shape {values.shape} do not broadcast to {shape}")
        if values.shape == shape:
            return convert_first(values, _VALUES, x.dtype)
        return repeated(values if values.dtype == x.dtype else astype(values, x.dtype), shape), _VALUES, []
    if not isinstance(values, bool | int | float | complex | np.generic):
        raise TypeError(f"{name}: argument values: expected an array or a number, got {type(values).__name__}")
    if not dtypes.can_cast(np.min_scalar_type(values), x.dtype):
        raise TypeError(f"{name}: {values!r} cannot be written to {x.dtype}")
    one = aiodev.empty(1, x.dtype, x.device)
    fill: Step = (bodies.fill_one, 1, (x.dtype.type(values), one), (_VALUES, _SCRATCH))
    return aiodev.broadcast_to(one.reshape(()), shape), _SCRATCH, [fill]
