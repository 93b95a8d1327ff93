"""Selecting, searching, and counting in bins.

How much is selected, or how many values there are, depends on the data, and an array has its shape when it is made. So
functions whose results have such a shape are awaited: the device counts, the loop goes on, and what is awaited is arrays
whose contents are submitted, as those of any other function. Nothing else here waits for anything.

All that reads the arguments is submitted by the call itself, into room for as much as there can be; when the count is known,
that much is copied. So what is submitted after the call, but before the count is there, may write to the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels import searching_bodies as bodies
from aiodev.kernels.conversion import astype
from aiodev.kernels.indexing import take
from aiodev.kernels.operands import arrays_of, packed
from aiodev.kernels.reductions import max as _max, min as _min, sum as _sum
from aiodev.kernels.searching_bodies import BLOCK
from aiodev.kernels.sorting import argsort, sort
from aiodev.kernels.warming import register_sample

__all__ = [
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "histogram",
    "nonzero",
    "searchsorted",
    "select",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]

#: Elements that are counted in bins of their own, at least; and how many bins there may be in all.
_PIECE, _MOST_BINS = 1 << 16, 1 << 22


class UniqueCounts(NamedTuple):
    """What :func:`unique_counts` gives.

    Example:
        >>> from aiodev.kernels import UniqueCounts
        >>> UniqueCounts._fields
        ('values', 'counts')
    """

    values: aiodev.Array
    counts: aiodev.Array


class UniqueInverse(NamedTuple):
    """What :func:`unique_inverse` gives.

    Example:
        >>> from aiodev.kernels import UniqueInverse
        >>> UniqueInverse._fields
        ('values', 'inverse_indices')
    """

    values: aiodev.Array
    inverse_indices: aiodev.Array


class UniqueAll(NamedTuple):
    """What :func:`unique_all` gives.

    Example:
        >>> from aiodev.kernels import UniqueAll
        >>> UniqueAll._fields
        ('values', 'indices', 'inverse_indices', 'counts')
    """

    values: aiodev.Array
    indices: aiodev.Array
    inverse_indices: aiodev.Array
    counts: aiodev.Array


class _Selection:
    """Which elements of a flat array are selected."""

    def __init__(self, mask: aiodev.Array) -> None:
        self.mask = mask
        self.stream = aiodev.current_stream(mask.device)
        self.blocks = math.ceil(mask.size / BLOCK)
        self.starts = aiodev.zeros(self.blocks + 1, np.int64, mask.device)
        if self.blocks:
            bodies.count_true[self.blocks, self.stream](mask, self.starts)
            bodies.sum_up[1, self.stream](self.starts)

    async def count(self) -> int:
        """How many; waits for the device."""
        return int((await self.starts[-1:].numpy())[0])

    def places(self) -> aiodev.Array:
        """Where they are, and room for as many as there can be."""
        room = aiodev.empty(self.mask.size, np.int64, self.mask.device)
        if self.blocks:
            bodies.select_places[self.blocks, self.stream](self.mask, self.starts, room)
        return room

    def values(self, x: aiodev.Array) -> aiodev.Array:
        """The elements of ``x`` there, and room for as many as there can be."""
        room = aiodev.empty(self.mask.size, x.dtype, x.device)
        if self.blocks:
            bodies.select_values[self.blocks, self.stream](self.mask, x, self.starts, room)
        return room

    def cut(self, room: aiodev.Array, count: int) -> aiodev.Array:
        """What is in use of such room, in memory of its own."""
        out = self.room(count, room.dtype)
        if count:
            self.stream.copy(out, room[:count])
        return out

    def room(self, count: int, dtype: Any) -> aiodev.Array:
        """Memory on the stream of the call, whichever is current when the count is there."""
        with self.stream:
            return aiodev.empty(count, dtype, self.mask.device)


def select(condition: aiodev.Array, x: aiodev.Array, /) -> Coroutine[Any, Any, aiodev.Array]:
    """The elements of ``x`` where ``condition`` is not 0, in C order: NumPy's ``x[condition]``.

    Waits until the device has counted them, without blocking the loop.

    Raises:
        ValueError: the shapes differ.
        KernelError: what computed the condition failed.

    Example:
        >>> import aiodev, aiodev.kernels as kernels
        >>> async def main():
        ...     x = aiodev.asarray([3, -1, 2, -5], device="cpu")
        ...     return await (await kernels.select(kernels.greater(x, 0), x)).numpy()
        >>> asyncio.run(main())
        array([3, 2])
    """
    condition, x = arrays_of("select", condition=condition, x=x)
    if condition.shape != x.shape:
        raise ValueError(f"select: the condition has the shape {condition.shape}, x {x.shape}")
    selection = _Selection(_flat(condition))
    room = selection.values(_flat(x))

    async def found() -> aiodev.Array:
        return selection.cut(room, await selection.count())

    return found()


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
    (x,) = arrays_of("nonzero", x=x)
    if x.ndim == 0:
        raise ValueError("nonzero: an array of no dimensions has no indices")
    selection = _Selection(_flat(x))
    room, shape = selection.places(), x.shape

    async def found() -> tuple[aiodev.Array, ...]:
        count = await selection.count()
        places = selection.cut(room, count)
        return (places,) if len(shape) == 1 else tuple(_part(selection, places, shape, d) for d in range(len(shape)))

    return found()


def _part(selection: _Selection, places: aiodev.Array, shape: tuple[int, ...], d: int) -> aiodev.Array:
    index = selection.room(places.size, np.int64)
    if index.size:
        inner = math.prod(shape[d + 1 :])
        bodies.part_of_place[index.size, selection.stream](inner, shape[d], places, index)
    return index


def unique_values(x: aiodev.Array, /) -> Coroutine[Any, Any, aiodev.Array]:
    """The different elements, in ascending order. Each NaN differs from every other.

    Waits until the device has counted them, without blocking the loop.

    Raises:
        TypeError: complex numbers have no order.
        KernelError: what computed the array failed.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     x = aiodev.asarray([3, 1, 3, 2, 1], device="cpu")
        ...     return await (await aiodev.kernels.unique_values(x)).numpy()
        >>> asyncio.run(main())
        array([1, 2, 3])
    """
    (x,) = arrays_of("unique_values", x=x)
    ordered = sort(_flat(x))
    selection = _Selection(_firsts(ordered))
    room = selection.values(ordered)

    async def found() -> aiodev.Array:
        return selection.cut(room, await selection.count())

    return found()


def unique_counts(x: aiodev.Array, /) -> Coroutine[Any, Any, UniqueCounts]:
    """The different elements, and how often each occurs (``int64``); otherwise as :func:`unique_values`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     found = await aiodev.kernels.unique_counts(aiodev.asarray([3, 1, 3], device="cpu"))
        ...     return await found.values.numpy(), await found.counts.numpy()
        >>> asyncio.run(main())
        (array([1, 3]), array([1, 2]))
    """
    (x,) = arrays_of("unique_counts", x=x)
    ordered = sort(_flat(x))
    selection = _Selection(_firsts(ordered))
    room, starts, n = selection.values(ordered), selection.places(), x.size

    async def found() -> UniqueCounts:
        count = await selection.count()
        return UniqueCounts(selection.cut(room, count), _gaps(selection, starts, n, count))

    return found()


def unique_inverse(x: aiodev.Array, /) -> Coroutine[Any, Any, UniqueInverse]:
    """The different elements, and for each element of ``x`` its place among them, in the shape of ``x``.

    Otherwise as :func:`unique_values`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     found = await aiodev.kernels.unique_inverse(aiodev.asarray([30, 10, 30], device="cpu"))
        ...     return await found.values.numpy(), await found.inverse_indices.numpy()
        >>> asyncio.run(main())
        (array([10, 30]), array([1, 0, 1]))
    """
    everything = _unique_all("unique_inverse", x)

    async def found() -> UniqueInverse:
        values, _, inverse, _ = await everything
        return UniqueInverse(values, inverse)

    return found()


def unique_all(x: aiodev.Array, /) -> Coroutine[Any, Any, UniqueAll]:
    """The different elements; where in the flattened ``x`` each occurs first; the places of all; and how often each occurs.

    Otherwise as :func:`unique_values`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     found = await aiodev.kernels.unique_all(aiodev.asarray([30, 10, 30], device="cpu"))
        ...     return [(await part.numpy()).tolist() for part in found]
        >>> asyncio.run(main())
        [[10, 30], [1, 0], [1, 0, 1], [1, 2]]
    """
    return _unique_all("unique_all", x)


def _unique_all(function: str, x: aiodev.Array) -> Coroutine[Any, Any, UniqueAll]:
    (x,) = arrays_of(function, x=x)
    flat = _flat(x)
    order = argsort(flat)
    ordered = take(flat, order)
    selection = _Selection(_firsts(ordered))
    inverse = aiodev.empty(x.size, np.int64, x.device)
    if x.size:
        bodies.number_pieces[selection.blocks, selection.stream](selection.mask, selection.starts, order, inverse)
    room, first, starts, shape = selection.values(ordered), selection.values(order), selection.places(), x.shape

    async def found() -> UniqueAll:
        count = await selection.count()
        parts = selection.cut(room, count), selection.cut(first, count)
        return UniqueAll(*parts, inverse.reshape(shape), _gaps(selection, starts, math.prod(shape), count))

    return found()


def _firsts(ordered: aiodev.Array) -> aiodev.Array:
    mask = aiodev.empty(ordered.size, np.bool_, ordered.device)
    if mask.size:
        bodies.mark_first[mask.size](ordered, mask)
    return mask


def _gaps(selection: _Selection, starts: aiodev.Array, n: int, count: int) -> aiodev.Array:
    out = selection.room(count, np.int64)
    if count:
        bodies.gaps[count, selection.stream](n, starts[:count], out)
    return out


def _flat(x: aiodev.Array) -> aiodev.Array:
    return packed(x).reshape(x.size)


def searchsorted(
    x1: aiodev.Array, x2: aiodev.Array, /, *, side: str = "left", sorter: aiodev.Array | None = None
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
    x1, x2 = arrays_of("searchsorted", x1=x1, x2=x2)
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 has {x1.ndim} dimensions; expected one")
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side={side!r}; expected 'left' or 'right'")
    common = np.result_type(x1.dtype, x2.dtype)
    if common.kind == "c":
        raise TypeError("searchsorted: complex numbers have no order")
    if common == np.float16:
        common = np.dtype(np.float32)
    if sorter is not None:
        if sorter.shape != x1.shape:
            raise ValueError(f"searchsorted: sorter has the shape {sorter.shape}, x1 {x1.shape}")
        x1 = take(x1, sorter)
    x1, values = (x if x.dtype == common else astype(x, common) for x in (x1, x2))
    out = aiodev.empty(x2.shape, np.int64, x2.device)
    if out.size:
        kernel = bodies.search_left if side == "left" else bodies.search_right
        kernel[out.size, aiodev.current_stream(out.device)](x1, _flat(values), out.reshape(out.size))
    return out


def histogram(
    x: aiodev.Array,
    /,
    bins: int | aiodev.Array | Any = 10,
    *,
    range: tuple[float, float] | None = None,
    weights: aiodev.Array | None = None,
    density: bool = False,
) -> tuple[aiodev.Array, aiodev.Array]:
    """How many elements there are in each of some bins, and the edges of the bins.

    A bin has its left edge and not its right one, but for the last, which has both. What is in no bin, NaN too, does not count.
    Without a range, a NaN or an infinity among the elements makes edges of no use: nothing is counted then.
    Values are compared as ``float64``. The result does not depend on the number of threads. Submits to the current stream.

    Args:
        bins: how many, of one width; or their edges, in ascending order.
        range: the outermost edges, where ``bins`` is a number; the least and the largest element by default.
        weights: what each element counts for, in the shape of ``x``.
        density: divide by the widths and by the sum of all, so that the integral is 1.

    Returns:
        The counts, ``int64`` (``float64`` with weights or as densities), and the edges, ``float64``.

    Raises:
        ValueError: there are no bins, or their edges are out of order; or the shapes differ.
        TypeError: complex numbers have no order.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([0.5, 1.5, 1.7, 3.0], device="cpu")
        >>> counts, edges = aiodev.kernels.histogram(x, 3, range=(0, 3))
        >>> counts.numpy_blocking(), edges.numpy_blocking()
        (array([1, 2, 1]), array([0., 1., 2., 3.]))
    """
    (x,) = arrays_of("histogram", x=x) if weights is None else arrays_of("histogram", x=x, weights=weights)[:1]
    if x.dtype.kind == "c" or (weights is not None and weights.dtype.kind == "c"):
        raise TypeError("histogram: complex numbers have no order")
    if weights is not None and weights.shape != x.shape:
        raise ValueError(f"histogram: weights have the shape {weights.shape}, x {x.shape}")
    even = isinstance(bins, int | np.integer)
    edges = _even_edges(x, int(bins), range) if even else _given_edges(x, bins, range)
    stream, number = aiodev.current_stream(x.device), edges.size - 1
    pieces = max(1, min(math.ceil(x.size / _PIECE), _MOST_BINS // number))
    piece = max(1, math.ceil(x.size / pieces))
    total = np.dtype(np.int64 if weights is None else np.float64)
    parts = aiodev.empty(pieces * number, total, x.device)
    flat = _flat(astype(x, np.float32) if x.dtype == np.float16 else x)
    if weights is None:
        kernel = bodies.count_even if even else bodies.count_uneven
        kernel[pieces, stream](piece, number, flat, edges, parts)
    else:
        kernel = bodies.weigh_even if even else bodies.weigh_uneven
        kernel[pieces, stream](piece, number, flat, _flat(astype(weights, total)), edges, parts)
    counts = parts
    if pieces > 1:
        counts = aiodev.empty(number, total, x.device)
        bodies.add_parts[number, stream](pieces, number, parts, counts)
    if not density:
        return counts, edges
    result = aiodev.empty(number, np.float64, x.device)
    bodies.densities[number, stream](counts, _sum(counts).reshape(1), edges, result)
    return result, edges


def _even_edges(x: aiodev.Array, bins: int, limits: tuple[float, float] | None) -> aiodev.Array:
    if bins < 1:
        raise ValueError(f"histogram: bins={bins}; expected at least one")
    if limits is not None or not x.size:
        low, high = (0.0, 1.0) if limits is None else (float(limits[0]), float(limits[1]))
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValueError(f"histogram: range={limits!r}; expected two finite numbers in ascending order")
        if low == high:
            low, high = low - 0.5, high + 0.5
        return aiodev.asarray(np.linspace(low, high, bins + 1), device=x.device)
    edges = aiodev.empty(bins + 1, np.float64, x.device)
    x = astype(x, np.float32) if x.dtype == np.float16 else x
    least, most = (extreme(x).reshape(1) for extreme in (_min, _max))
    bodies.even_edges[bins + 1, aiodev.current_stream(x.device)](bins, least, most, edges)
    return edges


def _given_edges(x: aiodev.Array, bins: Any, limits: tuple[float, float] | None) -> aiodev.Array:
    if limits is not None:
        raise ValueError("histogram: range is for a number of bins; here are their edges")
    if isinstance(bins, aiodev.Array):  # on the device: its order is the caller's to see to
        (_, edges) = arrays_of("histogram", x=x, bins=bins)
        if edges.ndim != 1 or edges.size < 2:
            raise ValueError(f"histogram: edges have the shape {edges.shape}; expected two or more, in one dimension")
        return _flat(edges if edges.dtype == np.float64 else astype(edges, np.float64))
    host = np.asarray(bins, np.float64)
    if host.ndim != 1 or host.size < 2 or not (host[:-1] <= host[1:]).all():
        raise ValueError("histogram: expected two or more edges in ascending order")
    return aiodev.asarray(host, device=x.device)


# What warm_up calls: the coroutines' kernels, without waiting for their counts.


def _sample_selection(dtype: Any) -> None:
    x = aiodev.ones(4, dtype=dtype)
    for mask in (x, aiodev.ones(4, dtype=np.bool_)):
        selection = _Selection(mask)
        selection.values(x)
    places = selection.places()
    bodies.part_of_place[4, selection.stream](1, 4, places, aiodev.empty(4, np.int64))


def _sample_unique(dtype: Any) -> None:
    x = aiodev.ones(4, dtype=dtype)
    order = argsort(x)
    ordered = sort(take(x, order))
    selection = _Selection(_firsts(ordered))
    inverse = aiodev.empty(4, np.int64)
    bodies.number_pieces[1, selection.stream](selection.mask, selection.starts, order, inverse)
    selection.values(ordered)
    selection.values(order)
    _gaps(selection, selection.places(), 4, 4)


def _sample_histogram(dtype: Any) -> None:
    x = aiodev.ones(4, dtype=dtype)
    for bins in (2, [0.0, 1.0, 2.0]):
        histogram(x, bins)
        histogram(x, bins, weights=x, density=True)


for _name in ("select", "nonzero"):
    register_sample(_name, _sample_selection)
for _name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
    register_sample(_name, _sample_unique)
register_sample("histogram", _sample_histogram)
