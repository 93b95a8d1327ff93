"""Reading and writing at indices that are themselves in an array."""

from __future__ import annotations

import functools
import math

import numpy as np

import aiodev
from aiodev.kernels import indexing_bodies as bodies
from aiodev.kernels.conversion import Step, astype, convert_first
from aiodev.kernels.operands import (
    arrays_of,
    broadcast,
    checked_axis,
    checked_out,
    has_no_gaps,
    packed,
    repeated,
    written,
)
from aiodev.kernels.teams import has_teams

__all__ = ["put", "scatter_add", "take", "take_along_axis", "take_first"]

Operand = aiodev.Array | complex

_MODES = {"raise": bodies.RAISE, "wrap": bodies.WRAP, "clip": bodies.CLIP}
#: Taking by one launch, under (name, axis, its type, mode).
_launches = aiodev.LaunchCache(2)
#: What is changed in place by one launch or two, under (name, and axis as above, mode): of the indices and the values.
_changes = aiodev.LaunchCache(2)
_VALUES, _SCRATCH = 1, -1
#: Elements for one index of a launch, about: some µs of work.
_PIECE = 1 << 12
#: Rows of which elements are taken by one index, at least: it finds the places once.
_ROWS = 16
#: Elements that are added side by side, at least: fewer are not worth going through all indices again.
_WIDTH = 16


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
    x, indices, at = _prepare("take", x, indices, axis)
    shape = (*x.shape[:at], *indices.shape, *x.shape[at + 1 :])
    result = checked_out("take", out, shape, x.dtype, x.device)
    if not result.size:
        return result
    _check_length("take", x.shape[at])
    flat = indices.reshape(indices.size)
    source, target = _middle(x, at), result if has_no_gaps(result) else aiodev.empty_like(result)
    outer, _, inner = source.shape
    code = _mode("take", mode)
    numbers: tuple[int, ...]
    if inner == 1 and outer >= _ROWS and not has_teams(x.device):
        group = max(_ROWS, _PIECE // flat.size)
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
    _prepare("take", x, indices, None)
    taken = aiodev.empty(indices.shape, x.dtype, x.device)
    if not indices.size:
        return taken, []
    _check_length("take", x.size)
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
    x, indices, at = _prepare("take_along_axis", x, indices, axis)
    if x.ndim != indices.ndim:
        raise ValueError(f"take_along_axis: x has {x.ndim} dimensions, indices {indices.ndim}; expected as many")
    others = broadcast("take_along_axis", *((*a.shape[:at], 1, *a.shape[at + 1 :]) for a in (x, indices)))
    shape = (*others[:at], indices.shape[at], *others[at + 1 :])
    result = checked_out("take_along_axis", out, shape, x.dtype, x.device)
    if not result.size:
        return result
    _check_length("take_along_axis", x.shape[at])
    source = _middle(repeated(x, (*shape[:at], x.shape[at], *shape[at + 1 :])), at)
    where = _middle(repeated(indices, shape), at)
    target = result if has_no_gaps(result) else aiodev.empty_like(result)
    seen, code, kernel = _middle(target, at), _mode("take_along_axis", mode), bodies.take_along_middle
    lengths: tuple[int, ...] = seen.shape
    arrays = source, where, seen
    if seen.shape[2] == 1:
        kernel, lengths = bodies.take_along_last, seen.shape[:2]
        arrays = source[..., 0], where[..., 0], seen[..., 0]
    _launches.launch(key, operands, result, kernel, lengths, (code, *arrays), (None, 0, 1, 2), made=out is None)
    if target is not result:
        result.copy_from(target)
    return result


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
    x, indices, _ = _prepare("put", x, indices, None, whole=False)
    written("put", x=x)
    given, which, steps = _values("put", x, values, indices.shape)
    if indices.size:
        _check_length("put", x.size)
        target, flat = packed(x), indices.reshape(indices.size)
        args = _mode("put", mode), target.reshape(x.size), flat, given.reshape(flat.size)
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
    indices, so there floats are the same, too. ``mode`` is as for :func:`take`; under ``"raise"`` other values may have been
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
    x, indices, at = _prepare("scatter_add", x, indices, axis, whole=False)
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
    _check_length("scatter_add", seen[1])
    target, count = packed(x), indices.size
    parts = target.reshape(seen), indices.reshape(count), given.reshape(seen[0], count, seen[2])
    kernel, over, sizes = _adding(parts, x.device)
    takes = *(None for _ in sizes), None, 2, 0, which
    steps.append((kernel, over, (*sizes, _mode("scatter_add", mode), *_seen(kernel, parts)), takes))
    _changes.launch_all(key, operands, x, steps, made=False)
    if target is not x:
        x.copy_from(target)
    return x


def _adding(
    parts: tuple[aiodev.Array, aiodev.Array, aiodev.Array], device: aiodev.Device
) -> tuple[aiodev.Kernel, int, tuple[int, ...]]:
    """What adds: the kernel, its indices, and the numbers that it takes first."""
    x, indices, _ = parts
    outer, _, inner = x.shape
    whole = outer * indices.size * inner <= _PIECE  # one index of the launch, with nobody beside it
    if device.type == "cpu" and (inner >= 2 * _WIDTH or whole):
        width = inner if whole else max(_WIDTH, -(-inner // (2 * _cores(device))))
        slices = -(-inner // width)
        return bodies.add_slices, outer * slices, (slices, width)
    if outer == inner == 1:
        return bodies.add_elements, indices.size, ()
    group = max(1, _PIECE // inner)
    return bodies.add_items, -(-outer * indices.size // group), (group,)


def _seen(
    kernel: aiodev.Kernel, parts: tuple[aiodev.Array, aiodev.Array, aiodev.Array]
) -> tuple[aiodev.Array, aiodev.Array, aiodev.Array]:
    """The arrays as a kernel that adds takes them."""
    x, indices, values = parts
    return (x[0, :, 0], indices, values[0, :, 0]) if kernel is bodies.add_elements else parts


@functools.cache
def _cores(device: aiodev.Device) -> int:
    return aiodev.get_device_properties(device).multi_processor_count


# Arguments


def _prepare(
    name: str, x: aiodev.Array, indices: aiodev.Array, axis: int | None, whole: bool = True
) -> tuple[aiodev.Array, aiodev.Array, int]:
    """The array, flattened without an axis if ``whole``, the indices, and the axis from the first."""
    x, indices = arrays_of(name, x=x, indices=indices)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers as indices, got {indices.dtype}")
    if axis is None:
        return (x.reshape(x.size) if whole else x), indices, 0
    return x, indices, checked_axis(name, axis, x.ndim)


def _mode(name: str, mode: str) -> int:
    try:
        return _MODES[mode]
    except KeyError:
        raise ValueError(f"{name}: mode={mode!r}: expected 'raise', 'wrap' or 'clip'") from None


def _check_length(name: str, length: int) -> None:
    if not length:
        raise ValueError(f"{name}: an axis of no elements has none to index")


def _values(
    name: str, x: aiodev.Array, values: Operand, shape: tuple[int, ...]
) -> tuple[aiodev.Array, int, list[Step]]:
    """The values, in the dtype of ``x`` and in the shape; what they are to a remembered launch, and what makes them."""
    if isinstance(values, aiodev.Array):
        arrays_of(name, x=x, values=values)
        if not np.can_cast(values.dtype, x.dtype, "same_kind"):
            raise TypeError(f"{name}: values of {values.dtype} cannot be written to {x.dtype}")
        if broadcast(f"{name}: values", values.shape, shape) != shape:
            raise ValueError(f"{name}: values of the shape {values.shape} do not broadcast to {shape}")
        if values.shape == shape:
            return convert_first(values, _VALUES, x.dtype)
        return repeated(values if values.dtype == x.dtype else astype(values, x.dtype), shape), _VALUES, []
    if not isinstance(values, bool | int | float | complex | np.generic):
        raise TypeError(f"{name}: argument values: expected an array or a number, got {type(values).__name__}")
    if not np.can_cast(np.min_scalar_type(values), x.dtype, "same_kind"):
        raise TypeError(f"{name}: {values!r} cannot be written to {x.dtype}")
    one = aiodev.empty(1, x.dtype, x.device)
    fill: Step = (bodies.fill_one, 1, (x.dtype.type(values), one), (_VALUES, _SCRATCH))
    return aiodev.broadcast_to(one.reshape(()), shape), _SCRATCH, [fill]


def _middle(x: aiodev.Array, at: int) -> aiodev.Array:
    """The array as (outer, axis, inner); a copy where no view is that."""
    return x.reshape(math.prod(x.shape[:at]), x.shape[at], math.prod(x.shape[at + 1 :]))
