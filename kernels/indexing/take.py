"""Take: reading at indices that are themselves in an array."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import broadcast, checked_axis, delivered, packed_out, repeated
from aiodev.kernels.indexing import bodies
from aiodev.kernels.thread_block import has_teams
from aiodev.kernels.tuning import TAKEN_EACH, TAKEN_GROUPS, TAKEN_ROWS

__all__ = [
    "check_length",
    "common_shape",
    "find_places",
    "middle",
    "mode_of",
    "prepare",
    "take",
    "take_along_axis",
    "take_flat",
    "take_together",
]

_MODES = {"raise": bodies.RAISE, "wrap": bodies.WRAP, "clip": bodies.CLIP}


@aiodev.operation(reads=["x", "indices"], writes="out")
def take(
    call: aiodev.Call,
    x: aiodev.Array,
    indices: aiodev.Array,
    /,
    *,
    axis: int | None = None,
    mode: str = "raise",
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The elements, or slices, of ``x`` at ``indices`` along ``axis``; of the flattened array if that is None.

    The shape of ``indices`` takes the place of the axis. A negative index counts from the end.

    Submits to the current stream; writes to ``out`` if given.

    Args:
        mode: what an index that is out of bounds does. ``"raise"``: the operation fails, and waiters get a
            :class:`~aiodev.KernelError` with an ``IndexError`` as its cause; the result is not defined. ``"wrap"``: it is taken
            modulo the length. ``"clip"``: it becomes the first or the last; negative indices become the first.

    Raises:
        ValueError: there is no such axis, or ``out`` has another shape, or the axis has no elements to take.
        TypeError: the indices are no integers.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[1, 2], [3, 4], [5, 6]], device="cpu")
        >>> aiodev.kernels.take(x, aiodev.asarray([2, 0, -1], device="cpu"), axis=0).numpy_blocking()
        array([[5, 6],
               [1, 2],
               [5, 6]])
    """
    x, at = prepare(call, "take", x, indices, axis)
    shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
    result, target = packed_out(call, shape, x.dtype)
    if not result.size:
        return result
    check_length("take", x.shape[at])
    flat, source, code = call.reshape(indices, indices.size), middle(call, x, at), mode_of("take", mode)
    outer, _, inner = source.shape
    if inner == 1 and outer >= TAKEN_ROWS and not has_teams(x.device):
        group = max(min(TAKEN_ROWS, outer // TAKEN_GROUPS), TAKEN_EACH // flat.size)
        groups = -(-outer // group)
        places = call.scratch((groups, flat.size), np.int32 if x.shape[at] < 1 << 31 else np.int64)
        rows = target.reshape(outer, flat.size)
        call.launch(bodies.take_from_rows, groups, group, code, source[:, :, 0], flat, places, rows)
    else:
        _take_items(call, code, source, flat, target)
    return delivered(call, result, target)


def _take_items(call: aiodev.Call, code: int, x: aiodev.Array, indices: aiodev.Array, out: aiodev.Array) -> None:
    """Take items of (outer, axis, inner) into an array without gaps."""
    outer, _, inner = x.shape
    count = indices.size
    if outer == inner == 1:
        call.launch(bodies.take_elements, count, code, x[0, :, 0], indices, out.reshape(count))
        return
    blocks = -(-inner // bodies.BLOCK)
    group = max(1, TAKEN_EACH // inner)
    arrays = x, indices, out.reshape(outer, count, inner)
    call.launch(bodies.take_items, -(-outer * count // group) * blocks, group, blocks, code, *arrays)


@aiodev.operation(reads=["x", "*indices"], name="index")
def take_together(call: aiodev.Call, x: aiodev.Array, indices: Sequence[aiodev.Array], /) -> aiodev.Array:
    """The elements, or slices, of ``x`` at indices into its first dimensions, one array of integers for each.

    Their common shape takes the place of these dimensions. An index that is out of bounds is an error of the operation.

    Raises:
        IndexError: the indices do not broadcast.
        ValueError: a dimension has no elements to take.
    """
    count = len(indices)
    chosen = common_shape(call.name, indices)
    result = call.new((*chosen, *x.shape[count:]), x.dtype)
    if result.size:
        lengths = x.shape[:count]
        for length in lengths:
            check_length(call.name, length)
        steps = [math.prod(lengths[k + 1 :]) for k in range(count)]
        places = find_places(call, indices, lengths, steps, 0, call.scratch(chosen, np.int64))
        inner = result.size // places.size
        _take_items(call, bodies.RAISE, call.reshape(x, (1, math.prod(lengths), inner)), places, result)
    return result


def common_shape(function: str, indices: Iterable[Any]) -> tuple[int, ...]:
    """The shape that indices into several dimensions broadcast to.

    Raises:
        IndexError: there is none; NumPy's class for that.
    """
    try:
        return broadcast(function, *(each.shape for each in indices))
    except ValueError as error:
        raise IndexError(str(error)) from None


def find_places(
    call: aiodev.Call,
    indices: Sequence[aiodev.Array],
    lengths: Sequence[int],
    steps: Sequence[int],
    offset: int,
    out: aiodev.Array,
) -> aiodev.Array:
    """Where the elements are that indices into several dimensions choose together; nowhere, if one is out of bounds.

    They broadcast to the shape of ``out``, which has elements. Returns it in one dimension.
    """
    flat = [call.reshape(repeated(each, out.shape), out.size) for each in indices]
    found = out.reshape(out.size)
    call.launch(bodies.find_places, out.size, lengths[0], steps[0], offset, flat[0], found)
    for length, step, each in zip(lengths[1:], steps[1:], flat[1:], strict=True):
        call.launch(bodies.add_places, out.size, length, step, each, found)
    return found


def take_flat(call: aiodev.Call, x: aiodev.Array, indices: aiodev.Array) -> aiodev.Array:
    """What :func:`take` gives, of arrays of one dimension, as a part of a call: scratch.

    Raises:
        ValueError: there are no elements to take.
        TypeError: the indices are no integers.
    """
    prepare(call, "take", x, indices, None)
    taken = call.scratch(indices.shape, x.dtype)
    if indices.size:
        check_length("take", x.size)
        call.launch(bodies.take_elements, indices.size, bodies.RAISE, x, indices, taken)
    return taken


@aiodev.operation(reads=["x", "indices"], writes="out")
def take_along_axis(
    call: aiodev.Call,
    x: aiodev.Array,
    indices: aiodev.Array,
    /,
    *,
    axis: int = -1,
    mode: str = "raise",
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Elements of ``x`` at indices along ``axis`` that each place of the result has for itself, as those of ``argsort``.

    The other dimensions of ``x`` and ``indices`` broadcast. ``mode``, ``out`` and errors are as for :func:`take`.

    Raises:
        ValueError: the shapes do not fit.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[3, 1, 2], [4, 6, 5]], device="cpu")
        >>> largest = aiodev.asarray([[0], [1]], device="cpu")
        >>> aiodev.kernels.take_along_axis(x, largest, axis=1).numpy_blocking()
        array([[3],
               [6]])
    """
    x, at = prepare(call, "take_along_axis", x, indices, axis)
    if x.ndim != indices.ndim:
        raise ValueError(f"take_along_axis: x has {x.ndim} dimensions, indices {indices.ndim}; expected as many")
    others = broadcast("take_along_axis", *((*a.shape[:at], 1, *a.shape[at + 1 :]) for a in (x, indices)))
    shape = (*others[:at], indices.shape[at], *others[at + 1 :])
    result, target = packed_out(call, shape, x.dtype)
    if not result.size:
        return result
    check_length("take_along_axis", x.shape[at])
    source = middle(call, repeated(x, (*shape[:at], x.shape[at], *shape[at + 1 :])), at)
    where = middle(call, repeated(indices, shape), at)
    seen, code = middle(call, target, at), mode_of("take_along_axis", mode)
    if seen.shape[2] == 1:
        call.launch(
            bodies.take_along_last, seen.shape[:2], code, source[..., 0], where[..., 0], seen[..., 0]
        )
    else:
        call.launch(bodies.take_along_middle, seen.shape, code, source, where, seen)
    return delivered(call, result, target)


# Arguments


def prepare(
    call: aiodev.Call, name: str, x: aiodev.Array, indices: aiodev.Array, axis: int | None, whole: bool = True
) -> tuple[aiodev.Array, int]:
    """The array, flattened without an axis if ``whole``, and the axis from the first."""
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers as indices, got {indices.dtype}")
    if axis is None:
        return (call.reshape(x, x.size) if whole else x), 0
    return x, checked_axis(name, axis, x.ndim)


def mode_of(name: str, mode: str) -> int:
    try:
        return _MODES[mode]
    except (KeyError, TypeError):  # or it has no hash
        raise ValueError(f"{name}: mode={mode!r}: expected 'raise', 'wrap' or 'clip'") from None


def check_length(name: str, length: int) -> None:
    if not length:
        raise ValueError(f"{name}: an axis of no elements has none to index")


def middle(call: aiodev.Call, x: aiodev.Array, at: int) -> aiodev.Array:
    """The array as (outer, axis, inner); a copy where no view is that."""
    return call.reshape(x, (math.prod(x.shape[:at]), x.shape[at], math.prod(x.shape[at + 1 :])))
