"""Reading at indices that are themselves in an array."""

from __future__ import annotations

import math

import numpy as np

import aiodev
from aiodev.kernels.arguments import arrays_of, broadcast, checked_axis, checked_out, has_no_gaps, repeated
from aiodev.kernels.elementwise.conversion import Step
from aiodev.kernels.indexing import bodies
from aiodev.kernels.thread_block import has_teams

__all__ = ["check_length", "mode_of", "prepare", "take", "take_along_axis", "take_first"]

_MODES = {"raise": bodies.RAISE, "wrap": bodies.WRAP, "clip": bodies.CLIP}
#: Taking by one launch, under (name, axis, its type, mode).
_launches = aiodev.LaunchCache(2)
_SCRATCH = -1
#: Elements for one index of a launch, about: some µs of work.
_PIECE = 1 << 12
#: Rows of which elements are taken by one index, at least: it finds the places once. But of few rows so many groups are made.
_ROWS, _GROUPS = 16, 8


def take(
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

    Submits to the current stream; writes to ``out`` if given, which must not overlap ``x``.

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
    key, operands = ("take", axis, axis.__class__, mode), (x, indices)
    found = _launches.repeat(key, x, indices, out)
    if found is not None:
        return found
    x, indices, at = prepare("take", x, indices, axis)
    shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
    result = checked_out("take", out, shape, x.dtype, x.device)
    if not result.size:
        return result
    check_length("take", x.shape[at])
    flat = indices.reshape(indices.size)
    source, target = _middle(x, at), result if has_no_gaps(result) else aiodev.empty_like(result)
    outer, _, inner = source.shape
    code = mode_of("take", mode)
    numbers: tuple[int, ...]
    if inner == 1 and outer >= _ROWS and not has_teams(x.device):
        group = max(min(_ROWS, outer // _GROUPS), _PIECE // flat.size)
        groups = -(-outer // group)
        places = aiodev.empty((groups, flat.size), np.int32 if x.shape[at] < 1 << 31 else np.int64, x.device)
        args = group, code, source[:, :, 0], flat, places, target.reshape(outer, flat.size)
        takes: tuple[int | None, ...] = None, None, 0, 1, _SCRATCH, 2
        _launches.launch(key, operands, result, bodies.take_from_rows, groups, args, takes, made=out is None)
        if target is not result:
            result.copy_from(target)
        return result
    if outer == inner == 1:
        kernel, count, numbers = bodies.take_elements, flat.size, (code,)
        arrays = source[0, :, 0], flat, target.reshape(flat.size)
    else:
        blocks = -(-inner // bodies.BLOCK)
        group = max(1, _PIECE // inner)
        kernel, count, numbers = bodies.take_items, -(-outer * flat.size // group) * blocks, (group, blocks, code)
        arrays = source, flat, target.reshape(outer, flat.size, inner)
    takes = *(None for _ in numbers), 0, 1, 2
    _launches.launch(key, operands, result, kernel, count, (*numbers, *arrays), takes, made=out is None)
    if target is not result:
        result.copy_from(target)
    return result


def take_first(x: aiodev.Array, operand: int, indices: aiodev.Array, chosen: int) -> tuple[aiodev.Array, list[Step]]:
    """What :func:`take` of two operands of a remembered launch gives, both of one dimension: scratch, and what fills it.

    Raises:
        ValueError: there are no elements to take.
        TypeError: the indices are no integers.
    """
    prepare("take", x, indices, None)
    taken = aiodev.empty(indices.shape, x.dtype, x.device)
    if not indices.size:
        return taken, []
    check_length("take", x.size)
    args = bodies.RAISE, x, indices, taken
    return taken, [(bodies.take_elements, indices.size, args, (None, operand, chosen, _SCRATCH))]


def take_along_axis(
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
    key, operands = ("take_along_axis", axis, axis.__class__, mode), (x, indices)
    found = _launches.repeat(key, x, indices, out)
    if found is not None:
        return found
    x, indices, at = prepare("take_along_axis", x, indices, axis)
    if x.ndim != indices.ndim:
        raise ValueError(f"take_along_axis: x has {x.ndim} dimensions, indices {indices.ndim}; expected as many")
    others = broadcast("take_along_axis", *((*a.shape[:at], 1, *a.shape[at + 1 :]) for a in (x, indices)))
    shape = (*others[:at], indices.shape[at], *others[at + 1 :])
    result = checked_out("take_along_axis", out, shape, x.dtype, x.device)
    if not result.size:
        return result
    check_length("take_along_axis", x.shape[at])
    source = _middle(repeated(x, (*shape[:at], x.shape[at], *shape[at + 1 :])), at)
    where = _middle(repeated(indices, shape), at)
    target = result if has_no_gaps(result) else aiodev.empty_like(result)
    seen, code, kernel = _middle(target, at), mode_of("take_along_axis", mode), bodies.take_along_middle
    lengths: tuple[int, ...] = seen.shape
    arrays = source, where, seen
    if seen.shape[2] == 1:
        kernel, lengths = bodies.take_along_last, seen.shape[:2]
        arrays = source[..., 0], where[..., 0], seen[..., 0]
    _launches.launch(key, operands, result, kernel, lengths, (code, *arrays), (None, 0, 1, 2), made=out is None)
    if target is not result:
        result.copy_from(target)
    return result


# Arguments


def prepare(
    name: str, x: aiodev.Array, indices: aiodev.Array, axis: int | None, whole: bool = True
) -> tuple[aiodev.Array, aiodev.Array, int]:
    """The array, flattened without an axis if ``whole``, the indices, and the axis from the first."""
    x, indices = arrays_of(name, x=x, indices=indices)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers as indices, got {indices.dtype}")
    if axis is None:
        return (x.reshape(x.size) if whole else x), indices, 0
    return x, indices, checked_axis(name, axis, x.ndim)


def mode_of(name: str, mode: str) -> int:
    try:
        return _MODES[mode]
    except (KeyError, TypeError):  # or it has no hash
        raise ValueError(f"{name}: mode={mode!r}: expected 'raise', 'wrap' or 'clip'") from None


def check_length(name: str, length: int) -> None:
    if not length:
        raise ValueError(f"{name}: an axis of no elements has none to index")


def _middle(x: aiodev.Array, at: int) -> aiodev.Array:
    """The array as (outer, axis, inner); a copy where no view is that."""
    return x.reshape(math.prod(x.shape[:at]), x.shape[at], math.prod(x.shape[at + 1 :]))
