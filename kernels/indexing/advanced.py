"""Advanced indexing, and assignment by any index: what ``x[index]`` and ``x[index] = value`` mean.

Views come first: integers, slices, ``...`` and None are taken by a view that leaves the dimensions of the arrays whole. What is
left are arrays of integers, one a dimension; a mask becomes the places where it is true, and one of no dimensions the only
place of a new dimension, or none. Several are made one index into the dimensions together, on the host where all are there,
else by kernels. An assignment makes one of all dimensions: it takes as much time and memory as what is chosen does, however
large the array is.

A mask that is written already is looked at here, so that nothing waits. One that is not has a number of places that the device
alone will know. A read waits for it. An assignment does not, if the mask is the only array of the index: it goes over the mask,
and takes the values one after the other.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.arguments import ahead_of_others, known
from aiodev.kernels.composed import composed
from aiodev.kernels.elementwise.conversion import astype, where
from aiodev.kernels.elementwise.table import add, equal
from aiodev.kernels.indexing.put import put as put_at, put_slices
from aiodev.kernels.indexing.search import nonzero_blocking, put_selected, submit_select
from aiodev.kernels.indexing.take import common_shape, find_places, take, take_together
from aiodev.kernels.manipulation.views import moveaxis
from aiodev.kernels.reductions import any as any_of

__all__ = ["contains", "get", "put"]

_Host = np.ndarray[Any, Any]
_ALL = slice(None)
#: Elements beside each other for which places are found on the host, at most. Larger: the loop is held; smaller: more launches.
_HERE = 1 << 12


class _Chosen(NamedTuple):
    """An index taken apart."""

    basic: tuple[Any, ...]  #: what is a view, with the dimensions of the arrays whole
    arrays: dict[int, aiodev.Array | _Host]  #: by dimension of that view
    together: bool  #: no slice, ``...`` or None is between arrays and integers: their dimensions stay where the first one was


def get(x: aiodev.Array, index: Any) -> aiodev.Array:
    """The elements that an index with arrays chooses, in an array of their own."""
    if _are_places(index) and x.ndim:  # as mostly
        return take(x, index, axis=0)
    if index.__class__ is tuple and 1 < len(index) <= x.ndim and all(map(_are_places, index)):
        return take_together(x, index)
    return _get(x, index)


@composed
def _get(x: aiodev.Array, index: Any) -> aiodev.Array:
    if _is_mask(index) and index.shape == x.shape:
        mask = known(index)
        if mask is None:
            with ahead_of_others(x, index):
                return submit_select(index.to(x.device), x).wait_blocking()
        x, index = x.reshape(x.size), np.flatnonzero(mask)
    chosen = _take_apart(x, index)
    view = x[chosen.basic]
    dims = sorted(chosen.arrays)
    if len(dims) == 1:
        indices = _on_device(chosen.arrays[dims[0]], view.shape[dims[0]], dims[0], x)
        taken = take(view, indices, axis=dims[0])
        if chosen.together or not dims[0]:
            return taken
        return moveaxis(taken, range(dims[0], dims[0] + indices.ndim), range(indices.ndim))
    rest = [d for d in range(view.ndim) if d not in dims]
    taken = _take_together(view.transpose(*dims, *rest), [chosen.arrays[d] for d in dims], dims)
    before = dims[0] if chosen.together else 0
    if not before:
        return taken
    ndim = taken.ndim - len(rest)
    return moveaxis(taken, range(ndim), range(before, before + ndim))


def _take_together(x: aiodev.Array, indices: Sequence[aiodev.Array | _Host], dims: Sequence[int]) -> aiodev.Array:
    """What indices into the first dimensions choose together; these are called ``dims`` in messages."""
    lengths, rest = x.shape[: len(dims)], x.shape[len(dims) :]
    if any(isinstance(each, aiodev.Array) for each in indices):
        return take_together(x, [_on_device(each, n, d, x) for each, n, d in zip(indices, lengths, dims, strict=True)])
    inside = [_within(np.asarray(each), n, d) for each, n, d in zip(indices, lengths, dims, strict=True)]
    places = np.ravel_multi_index(np.broadcast_arrays(*inside), lengths)
    return take(x.reshape(math.prod(lengths), *rest), aiodev.asarray(places, device=x.device), axis=0)


#: Kinds of arrays whose elements a number of Python's becomes as any operand of a function does.
_TAKES: dict[type, str] = {int: "iufc", float: "fc", complex: "c"}


def put(x: aiodev.Array, index: Any, value: Any) -> None:
    """Write to the elements that an index chooses of an array that may be written to."""
    if _are_places(index) and x.ndim and x.is_contiguous and value.__class__ in _TAKES:  # as mostly
        _put_at(x, index, 0, value)
    else:
        _put(x, index, value)


@composed
def _put(x: aiodev.Array, index: Any, value: Any) -> None:
    if _are_places(index) and x.ndim and x.is_contiguous:
        _put_at(x, index, 0, value)
        return
    items = tuple([_as_array(item) for item in (index if isinstance(index, tuple) else (index,))])
    if not any(isinstance(item, aiodev.Array | np.ndarray) for item in items):
        _fill(x[items], value)
        return
    mask = items[0]
    if len(items) == 1 and mask.dtype == bool and mask.shape == x.shape[: mask.ndim] and _is_one(value):
        condition = mask if isinstance(mask, aiodev.Array) else aiodev.asarray(mask, device=x.device)
        if mask.ndim < x.ndim:
            condition = condition.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))
        if x.dtype.kind in _TAKES.get(value.__class__, ""):
            try:
                where(condition, value, x, out=x)
                return
            except OverflowError:  # which is said in other words
                pass
        where(condition, _converted(value, x), x, out=x)
        return
    items = tuple([_known_mask(item) for item in items])
    arrays = [item for item in items if isinstance(item, aiodev.Array | np.ndarray)]
    if len(arrays) == 1 and _is_mask(arrays[0]):
        _put_masked(x, items, value)
        return
    if len(arrays) == 1 and arrays[0].dtype != bool and _put_slices(x, items, value):
        return
    places = _places_of(x, items)
    values = _broadcast_value(_converted(value, x), places.shape)
    if places.size:
        put_at(x, places.reshape(-1), values.reshape(-1))


def _put_slices(x: aiodev.Array, items: tuple[Any, ...], value: Any) -> bool:
    """Write to slices that one array of integers chooses, by one kernel; False where what they are slices of has gaps."""
    chosen = _take_apart(x, items)
    view = x[chosen.basic]
    ((axis, given),) = chosen.arrays.items()
    if not view.is_contiguous or not (chosen.together or axis == 0):
        return False
    _put_at(view, _on_device(given, view.shape[axis], axis, x), axis, value)
    return True


def _put_at(x: aiodev.Array, indices: aiodev.Array, axis: int, value: Any) -> None:
    """Write to slices of an array without gaps."""
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    values = _broadcast_value(_converted(value, x), shape)
    if values.size:
        put_slices(x, indices, values, axis=axis)


def contains(x: aiodev.Array, value: Any) -> bool:
    """Whether an element equals a value."""
    host = known(x) if isinstance(value, bool | int | float | complex | np.generic) else None
    if host is not None:
        return bool((host == value).any())
    with ahead_of_others(x):
        return bool(any_of(equal(x, value)))


def _are_places(item: Any) -> bool:
    """Whether it is an array of integers on a device."""
    return item.__class__ is aiodev.Array and item.dtype.kind in "iu"


def _is_mask(item: Any) -> bool:
    """Whether it is a mask on a device, of some dimensions."""
    return isinstance(item, aiodev.Array) and item.dtype == bool and item.ndim > 0


def _known_mask(item: Any) -> Any:
    """An item of an index; a mask on the host, if it is written, or has no elements."""
    if not _is_mask(item):
        return item
    mask = known(item) if item.size else np.zeros(item.shape, np.bool_)
    return item if mask is None else mask


def _put_masked(x: aiodev.Array, items: tuple[Any, ...], value: Any) -> None:
    """Write to what one mask on the device chooses of a view, however much that is."""
    at = next(k for k, item in enumerate(items) if _is_mask(item))
    mask = items[at].to(x.device)
    ndim = mask.ndim
    stand_ins = [np.zeros(1, np.int64)] * ndim  # as wide as the mask
    chosen = _take_apart(x, (*items[:at], *stand_ins, *items[at + 1 :]))
    view, first = x[chosen.basic], min(chosen.arrays)
    _check_mask(mask, view.shape[first : first + ndim], first)
    before = first if chosen.together else 0
    view = moveaxis(view, range(first, first + ndim), range(before, before + ndim))
    given, behind = _converted(value, x), view.ndim - before - ndim
    while given.ndim > before + 1 + behind and given.shape[0] == 1:
        given = given[0]
    own = given.ndim - behind - 1  # its dimension along what is chosen
    if own < 0 or given.shape[own] == 1:
        if own >= 0:
            given = given.reshape(*given.shape[:own], *(1,) * ndim, *given.shape[own + 1 :])
        condition = mask.reshape(*mask.shape, *(1,) * behind)
        where(condition, _broadcast_value(given, view.shape), view, out=view)
        return
    given = _broadcast_value(given, (*view.shape[:before], given.shape[own], *view.shape[before + ndim :]))
    put_selected(moveaxis(view, range(before, before + ndim), range(ndim)), mask, moveaxis(given, before, 0))


def _is_one(value: Any) -> bool:
    return not isinstance(value, list | tuple) and getattr(value, "ndim", 0) == 0


# What is written


def _fill(view: aiodev.Array, value: Any) -> None:
    wanted = _broadcast_value(_converted(value, view), view.shape)
    if view.size:
        view.copy_from(wanted)


def _converted(value: Any, x: aiodev.Array) -> aiodev.Array:
    """The value as an array of the dtype and on the device of ``x``."""
    if isinstance(value, aiodev.Array | np.ndarray | np.generic) and value.dtype.kind == "c" and x.dtype.kind not in "bc":
        raise TypeError(f"an array of {value.dtype} cannot be assigned to elements of {x.dtype}, which have one part")
    if isinstance(value, aiodev.Array):
        return value.to(x.device) if value.dtype == x.dtype else astype(value, x.dtype, device=x.device)
    if isinstance(value, np.ndarray | np.generic):
        return aiodev.asarray(value.astype(x.dtype, casting="unsafe"), device=x.device)
    try:
        host = np.array(value, x.dtype)
    except (OverflowError, TypeError, ValueError) as error:
        wrong = f"{value!r} cannot be assigned to elements of {x.dtype}"
        if isinstance(error, OverflowError) or isinstance(value, float | np.floating):  # infinite, or NaN
            raise type(error)(f"{wrong}: {error}") from None
        raise type(error)(f"{wrong}: expected an array, a number, or sequences of numbers that make an array") from None
    return aiodev.asarray(host, device=x.device)


def _broadcast_value(value: aiodev.Array, shape: tuple[int, ...]) -> aiodev.Array:
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0]
    try:
        return value if value.shape == shape else aiodev.broadcast_to(value, shape)
    except ValueError:
        raise ValueError(f"a value of the shape {value.shape} cannot be assigned to elements of the shape {shape}") from None


# What is chosen


def _places_of(x: aiodev.Array, items: tuple[Any, ...]) -> aiodev.Array:
    """Where the elements that an index chooses are, among all in C order; some place beyond them for what is out of bounds."""
    mask = items[0]
    if len(items) == 1 and mask.dtype == bool and mask.ndim and mask.shape == x.shape:
        (places,) = _places(mask.reshape(x.size), (x.size,), 0)
        return _moved(places, x)
    chosen = _take_apart(x, items)
    view = x[chosen.basic]
    dims = sorted(chosen.arrays)
    rest = [d for d in range(view.ndim) if d not in dims]
    if x.ndim == view.ndim == 1:
        return _on_device(chosen.arrays[0], view.shape[0], 0, x)
    offset, steps = _steps_of(x.shape, chosen.basic)
    places = _sum_of([chosen.arrays[d] for d in dims], [steps[d] for d in dims], offset, dims, view)
    before, ndim = dims[0] if chosen.together else 0, places.ndim
    places = places.reshape((1,) * before + places.shape + (1,) * (len(rest) - before))
    further: _Host | None = None
    for k, d in enumerate(rest):
        behind = len(rest) - k - 1 + (ndim if k < before else 0)
        own = np.arange(view.shape[d]).reshape(-1, *(1,) * behind) * steps[d]
        if further is not None and further.size * own.size > _HERE:
            places, further = add(_moved(places, x), _moved(further, x)), None
        further = own if further is None else further + own
    if further is None:
        return _moved(places, x)
    if isinstance(places, np.ndarray) and places.size * further.size <= _HERE:
        return _moved(places + further, x)
    return add(_moved(places, x), _moved(further, x))


def _moved(places: aiodev.Array | _Host, x: aiodev.Array) -> aiodev.Array:
    return places if isinstance(places, aiodev.Array) else aiodev.asarray(places, device=x.device)


def _steps_of(shape: tuple[int, ...], basic: tuple[Any, ...]) -> tuple[int, list[int]]:
    """Of a view of elements in C order, how many are ahead of its first, and how many it goes on by along each dimension."""
    offset, steps, axis = 0, list[int](), 0
    for item in basic:
        if item is None:
            steps.append(0)
            continue
        step = math.prod(shape[axis + 1 :])
        if isinstance(item, slice):
            start, _, stride = item.indices(shape[axis])
            steps.append(step * stride)
        else:
            start = operator.index(item) % shape[axis]
        offset += start * step
        axis += 1
    return offset, steps + [math.prod(shape[k + 1 :]) for k in range(axis, len(shape))]


def _sum_of(
    indices: Sequence[aiodev.Array | _Host], steps: Sequence[int], offset: int, dims: Sequence[int], x: aiodev.Array
) -> aiodev.Array | _Host:
    """Indices times steps, and an offset; nowhere, where one on the device is out of bounds."""
    if not any(isinstance(each, aiodev.Array) for each in indices):
        parts = [_within(np.asarray(each), x.shape[d], d) * n for each, n, d in zip(indices, steps, dims, strict=True)]
        return np.asarray(sum(np.broadcast_arrays(*parts)) + offset)
    return _find_places(
        [_on_device(each, x.shape[d], d, x) for each, d in zip(indices, dims, strict=True)],
        lengths=tuple([x.shape[d] for d in dims]),
        steps=tuple(steps),
        offset=offset,
    )


@aiodev.operation(reads=["*indices"], name="index")
def _find_places(
    call: aiodev.Call, indices: Sequence[aiodev.Array], /, *, lengths: tuple[int, ...], steps: tuple[int, ...], offset: int
) -> aiodev.Array:
    """Where the elements are that indices into several dimensions choose together; nowhere, if one is out of bounds."""
    places = call.new(common_shape(call.name, indices), np.int64)
    if places.size:
        find_places(call, indices, lengths, steps, offset, places)
    return places


def _take_apart(x: aiodev.Array, index: Any) -> _Chosen:
    items = [_as_array(item) for item in (index if isinstance(index, tuple) else (index,))]
    used = sum(_width(item) for item in items)
    if used > x.ndim:
        raise IndexError(f"{used} indices for an array of {x.ndim} dimensions")
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index can have one ellipsis ('...') only")
    basic: list[Any] = []
    arrays: dict[int, aiodev.Array | _Host] = {}
    groups, inside, dim, axis = 0, False, 0, 0  # dim: of the view; axis: of x
    for item in items:
        is_array = isinstance(item, aiodev.Array | np.ndarray)
        if is_array and not _width(item):
            basic.append(None)
            arrays[dim] = np.arange(int(bool(item)))
            dim += 1
        elif is_array:
            for part in _places(item, x.shape[axis : axis + _width(item)], axis):
                basic.append(_ALL)
                arrays[dim] = part
                dim += 1
        elif item is Ellipsis:
            rest = x.ndim - used
            basic += [_ALL] * rest
            dim, axis = dim + rest, axis + rest
        else:
            basic.append(item)
            dim += item is None or isinstance(item, slice)
        apart = item is None or item is Ellipsis or isinstance(item, slice)  # one of no dimensions, too
        groups += not apart and not inside
        inside = not apart
        axis += _width(item)
    common_shape("index", arrays.values())
    return _Chosen(tuple(basic), arrays, groups == 1)


def _as_array(item: Any) -> Any:
    """An item of an index; a sequence, a truth value, and another library's array, becomes an array on the host."""
    if isinstance(item, bool | np.bool_):
        return np.asarray(item)
    is_foreign = hasattr(type(item), "__array__") and not isinstance(item, aiodev.Array | np.ndarray | np.generic)
    if is_foreign or isinstance(item, list | tuple):
        try:
            array = np.asarray(item)
        except ValueError:
            raise IndexError(f"{type(item).__name__}: expected an index that makes an array of integers or booleans") from None
        item = array.astype(np.int64) if array.size == 0 else array
    if isinstance(item, aiodev.Array | np.ndarray) and item.dtype.kind not in "biu":
        raise IndexError(f"arrays that are indices are of integers or booleans, not of {item.dtype}")
    return item


def _width(item: Any) -> int:
    """How many dimensions an item takes."""
    if isinstance(item, aiodev.Array | np.ndarray):
        return item.ndim if item.dtype == bool else 1
    return 0 if item is None or item is Ellipsis else 1


def _places(item: aiodev.Array | _Host, lengths: Sequence[int], axis: int) -> Sequence[aiodev.Array | _Host]:
    """Arrays of integers for an array that is an index: itself, or where a mask is true."""
    if item.dtype != bool:
        return [item]
    _check_mask(item, lengths, axis)
    mask = _known_mask(item)
    return nonzero_blocking(mask) if isinstance(mask, aiodev.Array) else np.nonzero(mask)


def _check_mask(mask: aiodev.Array | _Host, lengths: Sequence[int], axis: int) -> None:
    """Check that a mask has the lengths of its dimensions, or 0, as NumPy's: then it chooses nothing."""
    if any(own not in (0, length) for own, length in zip(mask.shape, lengths, strict=False)) or mask.ndim != len(lengths):
        raise IndexError(f"index: a mask of the shape {mask.shape} for dimensions {axis}… of the lengths {tuple(lengths)}")


def _on_device(indices: aiodev.Array | _Host, length: int, dim: int, x: aiodev.Array) -> aiodev.Array:
    """An index into a dimension as an array on the device of ``x``."""
    if isinstance(indices, aiodev.Array):
        return indices
    return aiodev.asarray(_within(indices, length, dim), device=x.device)


def _within(indices: _Host, length: int, dim: int) -> _Host:
    """Integers on the host, from 0 on."""
    positions = indices.astype(np.int64)
    wrong = (positions < -length) | (positions >= length)
    if wrong.any():
        raise IndexError(f"index {positions[wrong][0]} is out of bounds for dimension {dim} of length {length}")
    return np.where(positions < 0, positions + length, positions)
