"""Selecting and searching.

How much is selected depends on the data, and an array has its shape when it is made. So functions whose results have such a
shape are awaited: the device counts, the loop goes on, and what is awaited is arrays whose contents are submitted, as those
of any other function. Nothing else here waits for anything.

All that reads the arguments is submitted by the call itself, into room for as much as there can be; when the count is known,
that much is copied. So what is submitted after the call, but before the count is there, may write to the arguments.

A ``Counted`` is such a result. Functions here await it; those of :mod:`aiodev.array_api` block, as the standard has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import ahead_of_others, arrays_of, delivered, known
from aiodev.kernels.composed import composed
from aiodev.kernels.elementwise.conversion import convert
from aiodev.kernels.indexing import search_bodies as bodies
from aiodev.kernels.indexing.search_bodies import BLOCK
from aiodev.kernels.indexing.take import take_flat
from aiodev.kernels.warmup import register_sample

__all__ = [
    "Counted", "Selection", "flat", "nonzero", "nonzero_blocking", "put_selected", "searchsorted", "select", "submit_nonzero",
    "submit_select",
]  # fmt: skip

T = TypeVar("T")


@aiodev.operation(reads=["mask"], name="select")
def _count(call: aiodev.Call, mask: aiodev.Array) -> aiodev.Array:
    """Of each block of a flat array how many elements before it are not 0, and behind these how many there are."""
    blocks = math.ceil(mask.size / BLOCK)
    if not blocks:
        return aiodev.zeros(1, np.int64, mask.device)
    starts = call.new(blocks + 1, np.int64)
    call.launch(bodies.count_true, blocks, mask, starts)
    call.launch(bodies.sum_up, 1, starts)
    return starts


@aiodev.operation(reads=["mask", "starts"], name="select")
def _place(call: aiodev.Call, mask: aiodev.Array, starts: aiodev.Array) -> aiodev.Array:
    """The places of the elements that are not 0, and room for as many as there can be."""
    room = call.new(mask.size, np.int64)
    if mask.size:
        call.launch(bodies.select_places, starts.size - 1, mask, starts, room)
    return room


@aiodev.operation(reads=["mask", "x", "starts"], name="select")
def _gather(call: aiodev.Call, mask: aiodev.Array, x: aiodev.Array, starts: aiodev.Array) -> aiodev.Array:
    """The elements of ``x`` there, and room for as many as there can be."""
    room = call.new(mask.size, x.dtype)
    if mask.size:
        call.launch(bodies.select_values, starts.size - 1, mask, x, starts, room)
    return room


@aiodev.operation(reads=["mask", "values", "starts"], writes="x", name="put")
def _put(
    call: aiodev.Call, x: aiodev.Array, mask: aiodev.Array, values: aiodev.Array, starts: aiodev.Array
) -> aiodev.Array:
    """Write to the rows of ``x`` where the flat mask is not 0, each the next of the values."""
    target, given = call.packed(x), call.packed(values)
    call.launch(bodies.put_selected, starts.size - 1, mask, starts, given, target.reshape(mask.size, values.shape[1]))
    return delivered(call, x, target)


@aiodev.operation(reads=["places"], name="nonzero")
def _index(call: aiodev.Call, places: aiodev.Array, inner: int, length: int) -> aiodev.Array:
    """Of places in a flattened array the indices along one dimension."""
    index = call.new(places.size, np.int64)
    if places.size:
        call.launch(bodies.part_of_place, places.size, inner, length, places, index)
    return index


class Selection:
    """Which elements of a flat array are selected."""

    def __init__(self, mask: aiodev.Array) -> None:
        self.mask = mask
        self.stream = aiodev.current_stream(mask.device)
        self.starts = _count(mask)

    async def count(self) -> int:
        """How many; waits for the device."""
        return int((await self.starts[-1:].numpy())[0])

    def count_blocking(self) -> int:
        """How many; blocks until the device has counted."""
        return int(self.starts[-1:].numpy_blocking()[0])

    def places(self) -> aiodev.Array:
        """Where they are, and room for as many as there can be."""
        return _place(self.mask, self.starts)

    def values(self, x: aiodev.Array) -> aiodev.Array:
        """The elements of ``x`` there, and room for as many as there can be."""
        return _gather(self.mask, x, self.starts)

    def cut(self, room: aiodev.Array, count: int) -> aiodev.Array:
        """What is in use of such room, in memory of its own, on the stream of the call, whichever is current by now."""
        with self.stream:
            return room[:count].copy()


def put_selected(x: aiodev.Array, mask: aiodev.Array, values: aiodev.Array) -> None:
    """Write ``values`` where a mask of the first dimensions of ``x`` is true, in C order; nothing is waited for.

    Raises:
        ValueError: there are more values than the mask has elements. Where they are not as many as it has true ones, the
            operation fails.
    """
    count = values.shape[0]
    if count > mask.size:
        raise ValueError(f"{count} values cannot be assigned to what a mask chooses of {mask.size} elements")
    inner = math.prod(values.shape[1:])
    if mask.size and inner:
        elements = flat(mask)
        _put(x, elements, values.reshape(count, inner), _count(elements))


class Counted(Generic[T]):
    """A result whose size the device counts; what does not depend on the count is submitted already.

    Attributes:
        selection: what counts.
        make: gives the result, from the count.
    """

    def __init__(self, selection: Selection, make: Callable[[int], T]) -> None:
        self.selection, self.make = selection, make

    async def wait(self) -> T:
        """The result, when the device has counted."""
        return self.make(await self.selection.count())

    def wait_blocking(self) -> T:
        """The result; blocks until the device has counted."""
        return self.make(self.selection.count_blocking())


def select(condition: aiodev.Array, x: aiodev.Array, /) -> Coroutine[Any, Any, aiodev.Array]:
    """The elements of ``x`` where ``condition`` is not 0, in C order: NumPy's ``x[condition]``.

    Waits until the device has counted them, without blocking the loop. The elements are those at the call. Gradients go to what
    was selected.

    Raises:
        ValueError: the shapes differ; a mask of fewer dimensions is an index, ``x[mask]``.
        KernelError: what computed the condition failed.

    Example:
        >>> import aiodev, aiodev.kernels as kernels
        >>> async def main():
        ...     x = aiodev.asarray([3, -1, 2, -5], device="cpu")
        ...     return await (await kernels.select(kernels.greater(x, 0), x)).numpy()
        >>> asyncio.run(main())
        array([3, 2])
    """
    return submit_select(condition, x).wait()


@composed
def submit_select(condition: aiodev.Array, x: aiodev.Array) -> Counted[aiodev.Array]:
    """What :func:`select` waits for."""
    condition, x = arrays_of("select", condition=condition, x=x)
    if condition.shape != x.shape:
        raise ValueError(f"select: expected a condition of x's shape {x.shape}, got {condition.shape}; x[mask] takes others")
    selection = Selection(flat(condition))
    room = selection.values(flat(x))
    return Counted(selection, lambda count: selection.cut(room, count))


def nonzero(x: aiodev.Array, /) -> Coroutine[Any, Any, tuple[aiodev.Array, ...]]:
    """The indices, ``int64``, of the elements that are not 0, in C order: one array for each dimension. NaN is not 0.

    Waits until the device has counted them, without blocking the loop.

    Raises:
        ValueError: an array of no dimensions has no indices.
        KernelError: what computed the array failed.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     x = aiodev.asarray([[0, 1], [2, 0]], device="cpu")
        ...     return [await index.numpy() for index in await aiodev.kernels.nonzero(x)]
        >>> asyncio.run(main())
        [array([0, 1]), array([1, 0])]
    """
    return submit_nonzero(x).wait()


@composed
def submit_nonzero(x: aiodev.Array) -> Counted[tuple[aiodev.Array, ...]]:
    """What :func:`nonzero` waits for."""
    (x,) = arrays_of("nonzero", x=x)
    if x.ndim == 0:
        raise ValueError("nonzero: an array of no dimensions has no indices")
    selection = Selection(flat(x))
    room, shape = selection.places(), x.shape

    def make(count: int) -> tuple[aiodev.Array, ...]:
        places = selection.cut(room, count)
        return (places,) if len(shape) == 1 else tuple(_part(selection, places, shape, d) for d in range(len(shape)))

    return Counted(selection, make)


def nonzero_blocking(x: aiodev.Array) -> tuple[aiodev.Array, ...]:
    """What :func:`nonzero` gives; blocks until the device has counted, unless the host has it without waiting."""
    host = known(x)
    if host is None or not host.ndim:
        with ahead_of_others(x):
            return submit_nonzero(x).wait_blocking()
    return tuple([aiodev.asarray(part, device=x.device) for part in np.nonzero(host)])


def _part(selection: Selection, places: aiodev.Array, shape: tuple[int, ...], d: int) -> aiodev.Array:
    with selection.stream:
        return _index(places, math.prod(shape[d + 1 :]), shape[d])


def flat(x: aiodev.Array) -> aiodev.Array:
    """The elements in C order."""
    seen = x if x.is_contiguous else x.copy()
    return seen.reshape(x.size)


@aiodev.operation(reads=["x1", "x2", "sorter"])
def searchsorted(
    call: aiodev.Call,
    x1: aiodev.Array,
    x2: aiodev.Array,
    /,
    *,
    side: str = "left",
    sorter: aiodev.Array | None = None,
) -> aiodev.Array:
    """Where each element of ``x2`` would have to be put into ``x1``, which is sorted, to keep it so; ``int64``.

    The result has the shape of ``x2``. NaN comes after everything else. Submits to the current stream.

    Args:
        x1: of one dimension, in ascending order; if it is not, the result is not defined.
        side: ``"left"``: before equal elements. ``"right"``: behind them.
        sorter: what puts ``x1`` in order, as :func:`argsort` gives it.

    Raises:
        ValueError: ``x1`` has several dimensions, or ``side`` is something else.
        TypeError: complex numbers have no order.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x1 = aiodev.asarray([10, 20, 20, 30], device="cpu")
        >>> x2 = aiodev.asarray([20, 35, 5], device="cpu")
        >>> aiodev.kernels.searchsorted(x1, x2).numpy_blocking()
        array([1, 4, 0])
    """
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 has {x1.ndim} dimensions; expected one")
    if not isinstance(side, str) or side not in ("left", "right"):
        raise ValueError(f"searchsorted: side={side!r}; expected 'left' or 'right'")
    common = dtypes.compute_dtype(dtypes.result_type(x1.dtype, x2.dtype))
    if common.kind == "c":
        raise TypeError("searchsorted: complex numbers have no order")
    ordered, values = convert(call, x1, common), convert(call, x2, common)
    if sorter is not None:
        if sorter.shape != x1.shape:
            raise ValueError(f"searchsorted: sorter has the shape {sorter.shape}, x1 {x1.shape}")
        ordered = take_flat(call, ordered, sorter)
    if not x1.size:
        return aiodev.zeros(x2.shape, np.int64, x2.device)
    out = call.new(x2.shape, np.int64)
    if out.size:
        kernel = bodies.search_left if side == "left" else bodies.search_right
        count = -(-out.size // bodies.TOGETHER)
        call.launch(kernel, count, x1.size.bit_length(), ordered, call.reshape(values, values.size), out.reshape(out.size))
    return out


# What warm_up calls: the coroutines' kernels, without waiting for their counts.


def _sample_selection(dtype: Any) -> None:
    x = aiodev.ones(4, dtype=dtype)
    for mask in (x, aiodev.ones(4, dtype=np.bool_)):
        selection = Selection(mask)
        selection.values(x)
    _index(selection.places(), 1, 4)


for _name in ("select", "nonzero"):
    register_sample(_name, _sample_selection)
