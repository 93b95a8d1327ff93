"""Joining: concat, stack, pad, roll, tile and repeat."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import array_of, checked_axis, delivered, packed_out, whole_numbers
from aiodev.kernels.elementwise.conversion import convert
from aiodev.kernels.indexing.search import searchsorted
from aiodev.kernels.indexing.take import take
from aiodev.kernels.manipulation.gather import join, lay, move, turn
from aiodev.kernels.manipulation.views import Axes, broadcast_to, expand_dims
from aiodev.kernels.tuning import TABLES_KEPT
from aiodev.kernels.warmup import register_sample

__all__ = ["concat", "pad", "repeat", "roll", "stack", "tile"]

HostArray = np.ndarray[Any, Any]
_MODES = {"constant": 0, "edge": 1, "reflect": 2, "symmetric": 3, "wrap": 4}


@aiodev.operation(reads=["*arrays"], writes="out", most=TABLES_KEPT)
def concat(
    call: aiodev.Call,
    arrays: Sequence[aiodev.Array],
    /,
    *,
    axis: int | None = 0,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The arrays one after another along ``axis``, or flattened one after another if that is None; types are promoted.

    Raises:
        ValueError: no arrays, or their other dimensions differ.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.concat([x, x]).numpy_blocking()
        array([0, 1, 2, 0, 1, 2])
    """
    pieces = _several("concat", arrays)
    along = axis
    if axis is None:
        pieces, axis = [call.reshape(x, x.size) for x in pieces], 0
    first = pieces[0]
    at = checked_axis("concat", axis, first.ndim)
    for number, x in enumerate(pieces):
        if x.ndim != first.ndim or any(
            a != b for d, (a, b) in enumerate(zip(x.shape, first.shape, strict=True)) if d != at
        ):
            raise ValueError(
                f"concat: array {number} has the shape {x.shape}, the first {first.shape}; only axis {axis} may differ"
            )
    shape = (*first.shape[:at], sum(x.shape[at] for x in pieces), *first.shape[at + 1 :])
    result = call.out(shape, dtypes.result_type(*(x.dtype for x in pieces)))
    if lay(call, arrays, result, at) or join(call, arrays, result, lambda parts: np.concatenate(parts, along)):
        return result
    return _in_parts(call, pieces, result, at)


@aiodev.operation(reads=["*arrays"], writes="out", most=TABLES_KEPT)
def stack(
    call: aiodev.Call, arrays: Sequence[aiodev.Array], /, *, axis: int = 0, out: aiodev.Array | None = None
) -> aiodev.Array:
    """Arrays of one shape along a new dimension at ``axis`` of the result; types are promoted.

    Raises:
        ValueError: no arrays, or their shapes differ.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.stack([x, x], axis=1).numpy_blocking()
        array([[0, 0],
               [1, 1],
               [2, 2]])
    """
    given = _several("stack", arrays)
    if any(x.shape != given[0].shape for x in given):
        raise ValueError(f"stack: expected one shape, got {', '.join(str(x.shape) for x in given)}")
    at = checked_axis("stack", axis, given[0].ndim + 1)
    views = [expand_dims(x, axis=axis) for x in given]
    shape = list(views[0].shape)
    shape[axis] = len(views)
    result = call.out(tuple(shape), dtypes.result_type(*(x.dtype for x in given)))
    if lay(call, given, result, at) or join(call, given, result, lambda parts: np.stack(parts, axis)):
        return result
    return _in_parts(call, views, result, at)


def _in_parts(call: aiodev.Call, arrays: Sequence[aiodev.Array], result: aiodev.Array, axis: int) -> aiodev.Array:
    """Copy the arrays one after another along an axis of the result, piece by piece."""
    begin = 0
    for x in arrays:
        end = begin + x.shape[axis]
        call.copy(result[(slice(None),) * axis + (slice(begin, end),)], convert(call, x, result.dtype))
        begin = end
    return result


@aiodev.operation(reads=["x"], writes="out", most=TABLES_KEPT)
def roll(
    call: aiodev.Call,
    x: aiodev.Array,
    /,
    shift: int | Sequence[int],
    *,
    axis: Axes | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The elements moved by ``shift`` along the axes, those that leave at the end coming in at the beginning.

    Without an axis the flattened array is rolled.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.roll(x, 1).numpy_blocking()
        array([2, 0, 1])
    """
    shifts = whole_numbers("roll: shift", shift)
    axes = None if axis is None else whole_numbers("roll: axis", axis)
    shape: tuple[int, ...] = x.shape if axes is not None else (x.size,)
    total = [0] * len(shape)
    if axes is None:
        total[0] = sum(shifts)
    else:
        shifts = shifts if np.ndim(shift) else shifts * len(axes)
        if len(shifts) != len(axes):
            raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
        for a, s in zip(axes, shifts, strict=True):
            total[checked_axis("roll", a, x.ndim)] += s
    result, target = packed_out(call, x.shape, x.dtype)
    every = None if axes is None else tuple(range(x.ndim))
    if not x.size or move(call, x, x.dtype.type(0), target, lambda places: np.roll(places, total, every)):
        return delivered(call, result, target)
    turned = [at for at, s in enumerate(total) if s % shape[at]]
    if len(turned) == 1:
        at = turned[0]
        inner = math.prod(shape[at + 1 :])
        if turn(call, x, target, shape[at] * inner, total[at] % shape[at] * inner):
            return delivered(call, result, target)
    seen, rolled = (a if axes is not None else call.reshape(a, a.size) for a in (x, target))
    for parts in product(*(_halves(n, s % n) for n, s in zip(shape, total, strict=True))):
        call.copy(rolled[tuple(to for to, _ in parts)], seen[tuple(fro for _, fro in parts)])
    return delivered(call, result, target)


def _halves(length: int, shift: int) -> list[tuple[slice, slice]]:
    """Where the two parts of an axis go, and where they come from."""
    if not shift:
        return [(slice(None), slice(None))]
    rest = length - shift
    return [(slice(shift, None), slice(0, rest)), (slice(0, shift), slice(rest, None))]


def repeat(x: aiodev.Array, repeats: int | Sequence[int] | HostArray, /, *, axis: int | None = None) -> aiodev.Array:
    """Each element ``repeats`` times along ``axis``, or of the flattened array if that is None.

    Args:
        repeats: how often, or how often for each place along the axis: integers on the host. A result's shape is known when it
            is made, so counts that are on the device come to the host first: ``repeat(x, await counts.numpy())``.

    Raises:
        TypeError: ``repeats`` are no integers, or are on the device.
        ValueError: one is negative, there are not as many as places along the axis, or there is no such axis.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.repeat(x, 2).numpy_blocking()
        array([0, 0, 1, 1, 2, 2])
        >>> aiodev.kernels.repeat(x, [3, 0, 1]).numpy_blocking()
        array([0, 0, 0, 2])
    """
    if isinstance(repeats, list | tuple) or (isinstance(repeats, np.ndarray) and repeats.ndim):
        try:
            counts = np.asarray(repeats)
        except (TypeError, ValueError):
            raise TypeError(f"repeat: repeats {repeats!r}: expected an integer, or one for each place") from None
        return _repeat_each(x, counts, axis)
    return _repeat_all(x, repeats, axis=axis)


@aiodev.operation(reads=["x"], name="repeat", most=TABLES_KEPT)
def _repeat_all(call: aiodev.Call, x: aiodev.Array, repeats: Any, /, *, axis: int | None = None) -> aiodev.Array:
    """Each element equally often."""
    if isinstance(repeats, aiodev.Array):
        raise TypeError(
            f"repeat: repeats {repeats!r}: the shape of the result would follow from what is on the device; "
            f"repeat(x, await repeats.numpy()) has it on the host"
        )
    try:
        repeats = operator.index(repeats)
    except TypeError:
        raise TypeError(f"repeat: repeats {repeats!r}: expected an integer, or one for each place") from None
    if repeats < 0:
        raise ValueError(f"repeat: repeats {repeats}: expected 0 or more")
    seen = call.reshape(x, x.size) if axis is None else x
    at = checked_axis("repeat", 0 if axis is None else axis, seen.ndim)
    lengths = (*seen.shape[: at + 1], repeats, *seen.shape[at + 1 :])
    with _possible_shapes("repeat"):
        wide = broadcast_to(expand_dims(seen, axis=at + 1), lengths)
    shape = *seen.shape[:at], seen.shape[at] * repeats, *seen.shape[at + 1 :]
    return _copied(call, x, wide, shape, lambda places: np.repeat(places, repeats, axis))


def _repeat_each(x: aiodev.Array, counts: HostArray, axis: int | None) -> aiodev.Array:
    """Each place along the axis as often as its count says: where each element of the result comes from is searched for."""
    array_of("repeat", x)
    seen = x.reshape(x.size) if axis is None else x
    at = checked_axis("repeat", 0 if axis is None else axis, seen.ndim)
    if counts.ndim != 1 or (counts.dtype.kind not in "iub" and counts.size):
        raise TypeError(f"repeat: repeats {counts!r}: expected an integer, or one for each place")
    if counts.size == 1:
        return repeat(x, int(counts[0]), axis=axis)
    if counts.size != seen.shape[at]:
        raise ValueError(f"repeat: {counts.size} repeats for {seen.shape[at]} places")
    if counts.size and counts.min() < 0:
        raise ValueError(f"repeat: repeats {counts.min()}: expected 0 or more")
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if ends.size else 0
    if not total:
        return aiodev.empty((*seen.shape[:at], 0, *seen.shape[at + 1 :]), x.dtype, x.device)
    places = aiodev.arange(total, device=x.device)
    return take(seen, searchsorted(aiodev.asarray(ends, device=x.device), places, side="right"), axis=at)


@aiodev.operation(reads=["x"], most=TABLES_KEPT)
def tile(call: aiodev.Call, x: aiodev.Array, repetitions: int | Sequence[int], /) -> aiodev.Array:
    """The whole array ``repetitions`` times along each dimension; missing ones are put before the first.

    Raises:
        TypeError: ``repetitions`` are no integers.
        ValueError: one is negative.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.tile(x, 2).numpy_blocking()
        array([0, 1, 2, 0, 1, 2])
    """
    times = whole_numbers("tile: repetitions", repetitions)
    if min(times, default=0) < 0:
        raise ValueError(f"tile: repetitions {times}: expected 0 or more")
    times = (1,) * (x.ndim - len(times)) + times
    with _possible_shapes("tile"):
        seen = x[(None,) * (len(times) - x.ndim)]
    lengths = [n for t, length in zip(times, seen.shape, strict=True) for n in ((length,) if t == 1 else (t, length))]
    index = [i for t in times for i in ((slice(None),) if t == 1 else (None, slice(None)))]
    with _possible_shapes("tile"):
        wide = broadcast_to(seen[tuple(index)], lengths)
    shape = tuple(t * n for t, n in zip(times, seen.shape, strict=True))
    return _copied(call, x, wide, shape, lambda places: np.tile(places, times))


@contextmanager
def _possible_shapes(function: str) -> Iterator[None]:
    """Have what refuses a shape that no array can have name the function."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{function}: {error}") from None


def _copied(
    call: aiodev.Call,
    x: aiodev.Array,
    wide: aiodev.Array,
    shape: tuple[int, ...],
    places: Callable[[HostArray], HostArray],
) -> aiodev.Array:
    """The elements of a view of ``x`` in another shape; ``places`` are those of the elements in it."""
    result = call.new(shape, x.dtype)
    if result.size and not move(call, x, x.dtype.type(0), result, places):
        call.copy(result.reshape(wide.shape), wide)
    return result


def _several(name: str, arrays: Sequence[aiodev.Array]) -> list[aiodev.Array]:
    if not arrays:
        raise ValueError(f"{name}: expected at least one array")
    return list(arrays)


# Padding


@aiodev.kernel(ndim=3, uniform=True)
def pad_axis(i: int, j: int, k: int, mode: int, before: int, length: int, value: Any, out: Any) -> None:
    """One element beside the middle part of an axis, from that part."""
    place = j if j < before else j + length
    if mode == 0:
        out[i, place, k] = value
    else:
        out[i, place, k] = out[i, before + source(mode, place - before, length), k]


def source(mode: int, place: int, length: int) -> int:
    """The element, counted from the first of the middle part, that one beside it repeats."""
    if mode == 1:
        return min(max(place, 0), length - 1)
    if mode == 4:
        return place % length
    period = 2 * length if mode == 3 else max(1, 2 * (length - 1))
    place %= period
    return place if place < length else (period - 1 if mode == 3 else period) - place


@aiodev.operation(reads=["x"], numbers=["constant_values"], writes="out", most=TABLES_KEPT)
def pad(
    call: aiodev.Call,
    x: aiodev.Array,
    width: int | Sequence[Any],
    /,
    mode: str = "constant",
    *,
    constant_values: complex = 0,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The array with elements added before and after it along each axis, as NumPy's ``pad``.

    Args:
        width: how many: a number for all sides, a pair (before, after) for all axes, or a pair for each.
        mode: what they are. ``"constant"``: ``constant_values``; ``"edge"``: the outermost element; ``"reflect"`` and
            ``"symmetric"``: the elements mirrored at the outermost, or with it; ``"wrap"``: those of the other end.

    Raises:
        ValueError: an unknown mode, widths that do not fit or are negative, or an axis of no elements to repeat.
        OverflowError: ``constant_values`` is beyond the dtype of ``x``.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.arange(3, device="cpu")
        >>> aiodev.kernels.pad(x, (1, 2), "edge").numpy_blocking()
        array([0, 0, 1, 2, 2, 2])
    """
    if not isinstance(mode, str) or mode not in _MODES:
        raise ValueError(f"pad: mode={mode!r}: expected one of {', '.join(map(repr, _MODES))}")
    fill = call.number(constant_values)
    widths = _widths(width, x.ndim)
    shape = tuple(before + n + after for n, (before, after) in zip(x.shape, widths, strict=True))
    result, target = packed_out(call, shape, x.dtype)
    if not result.size:
        return result
    for axis, (n, pair) in enumerate(zip(x.shape, widths, strict=True)):
        if not n and any(pair) and mode != "constant":
            raise ValueError(f"pad: mode={mode!r}: axis {axis} has no elements to repeat")
    options: dict[str, Any] = {"constant_values": -1} if mode == "constant" else {}
    extended: Any = functools.partial(np.pad, pad_width=widths, mode=mode, **options)
    try:
        value = fill.astype(x.dtype)
    except (TypeError, ValueError) as error:  # which names no argument: of complex numbers, and of NaN
        raise type(error)(f"pad: constant_values {fill.value!r}: {x.dtype} has no such number") from None
    if move(call, x, value, target, extended):
        return delivered(call, result, target)
    middle = tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, widths, strict=True))
    call.copy(target[middle], x)
    for axis, (n, (before, after)) in enumerate(zip(x.shape, widths, strict=True)):
        if before or after:  # over all of the other axes: what is not yet right there is written when it is their turn
            outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
            seen = target.reshape(outer, shape[axis], inner)
            call.launch(pad_axis, (outer, before + after, inner), _MODES[mode], before, n, value, seen)
    return delivered(call, result, target)


def _widths(width: int | Sequence[Any], ndim: int) -> list[tuple[int, int]]:
    try:
        given = np.asarray(width)
    except TypeError as error:
        raise TypeError(f"pad: argument width: {error}") from None
    except ValueError:
        raise ValueError(f"pad: width {width!r} is no number, no pair, and not {ndim} pairs") from None
    try:
        widths = np.broadcast_to(given, (ndim, 2))
    except ValueError:
        raise ValueError(f"pad: width {width!r} is no number, no pair, and not {ndim} pairs") from None
    if widths.dtype.kind not in "iu" or (widths < 0).any():
        raise ValueError(f"pad: width {width!r}: expected integers of 0 or more")
    return [(int(before), int(after)) for before, after in widths]


def _sample_joined(function: Callable[..., aiodev.Array], rows: int, dtype: Any) -> None:
    function([aiodev.ones((rows, rows), dtype=dtype)] * 2)


for _function in (concat, stack):
    for _rows in (4, 64):  # gathered at once, and line by line
        register_sample(_function.__name__, functools.partial(_sample_joined, _function, _rows))
