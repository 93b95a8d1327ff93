"""The different elements of an array.

The array is sorted, complex numbers by three keys, and what differs from the element before is selected. How many there are
depends on the data, so the results are awaited, as those of :mod:`aiodev.kernels.indexing.search` are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import numpy as np

import aiodev
from aiodev.kernels.arguments import ahead_of_others, arrays_of, known
from aiodev.kernels.composed import composed
from aiodev.kernels.elementwise.table import imag, real
from aiodev.kernels.indexing import search_bodies as bodies
from aiodev.kernels.indexing.search import Counted, Selection, flat
from aiodev.kernels.indexing.take import take
from aiodev.kernels.sorting import argsort, sort
from aiodev.kernels.sorting.network import LEAST
from aiodev.kernels.tuning import SORTED_HERE
from aiodev.kernels.warmup import register_sample

__all__ = [
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "submit_unique_all",
    "submit_unique_counts",
    "submit_unique_inverse",
    "submit_unique_values",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_blocking",
    "unique_values",
]

T = TypeVar("T")


class UniqueCounts(NamedTuple):
    """The result of :func:`unique_counts`.

    Example:
        >>> from aiodev.kernels import UniqueCounts
        >>> UniqueCounts._fields
        ('values', 'counts')
    """

    values: aiodev.Array
    counts: aiodev.Array


class UniqueInverse(NamedTuple):
    """The result of :func:`unique_inverse`.

    Example:
        >>> from aiodev.kernels import UniqueInverse
        >>> UniqueInverse._fields
        ('values', 'inverse_indices')
    """

    values: aiodev.Array
    inverse_indices: aiodev.Array


class UniqueAll(NamedTuple):
    """The result of :func:`unique_all`.

    Example:
        >>> from aiodev.kernels import UniqueAll
        >>> UniqueAll._fields
        ('values', 'indices', 'inverse_indices', 'counts')
    """

    values: aiodev.Array
    indices: aiodev.Array
    inverse_indices: aiodev.Array
    counts: aiodev.Array


def unique_values(x: aiodev.Array, /) -> Coroutine[Any, Any, aiodev.Array]:
    """The different elements, in ascending order. Each NaN differs from every other.

    Complex numbers are in NumPy's order: by their real parts, then by their imaginary ones; behind these, what has a NaN as
    imaginary part, as real part, and as both. Waits until the device has counted them, without blocking the loop.

    Raises:
        KernelError: what computed the array failed.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     x = aiodev.asarray([3, 1, 3, 2, 1], device="cpu")
        ...     return await (await aiodev.kernels.unique_values(x)).numpy()
        >>> asyncio.run(main())
        array([1, 2, 3])
    """
    return submit_unique_values(x).wait()


@composed
def submit_unique_values(x: aiodev.Array) -> Counted[aiodev.Array]:
    """What :func:`unique_values` waits for."""
    (x,) = arrays_of("unique_values", x=x)
    ordered = _sorted(flat(x))
    selection = Selection(_firsts(ordered))
    room = selection.values(ordered)
    return Counted(selection, lambda count: selection.cut(room, count))


def unique_counts(x: aiodev.Array, /) -> Coroutine[Any, Any, UniqueCounts]:
    """The different elements, and how often each occurs (``int64``); otherwise as :func:`unique_values`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     parts = await aiodev.kernels.unique_counts(aiodev.asarray([3, 1, 3], device="cpu"))
        ...     return await parts.values.numpy(), await parts.counts.numpy()
        >>> asyncio.run(main())
        (array([1, 3]), array([1, 2]))
    """
    return submit_unique_counts(x).wait()


@composed
def submit_unique_counts(x: aiodev.Array) -> Counted[UniqueCounts]:
    """What :func:`unique_counts` waits for."""
    (x,) = arrays_of("unique_counts", x=x)
    ordered = _sorted(flat(x))
    selection = Selection(_firsts(ordered))
    room, starts, n = selection.values(ordered), selection.places(), x.size

    def make(count: int) -> UniqueCounts:
        return UniqueCounts(selection.cut(room, count), _gaps(selection, starts, n, count))

    return Counted(selection, make)


def unique_inverse(x: aiodev.Array, /) -> Coroutine[Any, Any, UniqueInverse]:
    """The different elements, and for each element of ``x`` its place among them, in the shape of ``x``.

    Otherwise as :func:`unique_values`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     parts = await aiodev.kernels.unique_inverse(aiodev.asarray([30, 10, 30], device="cpu"))
        ...     return await parts.values.numpy(), await parts.inverse_indices.numpy()
        >>> asyncio.run(main())
        (array([10, 30]), array([1, 0, 1]))
    """
    return submit_unique_inverse(x).wait()


def submit_unique_inverse(x: aiodev.Array) -> Counted[UniqueInverse]:
    """What :func:`unique_inverse` waits for."""
    everything = _unique_all("unique_inverse", x)

    def make(count: int) -> UniqueInverse:
        values, _, inverse, _ = everything.make(count)
        return UniqueInverse(values, inverse)

    return Counted(everything.selection, make)


def unique_all(x: aiodev.Array, /) -> Coroutine[Any, Any, UniqueAll]:
    """The different elements; where in the flattened ``x`` each occurs first; the places of all; and how often each occurs.

    Otherwise as :func:`unique_values`.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> async def main():
        ...     parts = await aiodev.kernels.unique_all(aiodev.asarray([30, 10, 30], device="cpu"))
        ...     return [(await part.numpy()).tolist() for part in parts]
        >>> asyncio.run(main())
        [[10, 30], [1, 0], [1, 0, 1], [1, 2]]
    """
    return submit_unique_all(x).wait()


def submit_unique_all(x: aiodev.Array) -> Counted[UniqueAll]:
    """What :func:`unique_all` waits for."""
    return _unique_all("unique_all", x)


@composed
def _unique_all(function: str, x: aiodev.Array) -> Counted[UniqueAll]:
    (x,) = arrays_of(function, x=x)
    elements = flat(x)
    order = _order_of(elements)
    ordered = take(elements, order)
    selection = Selection(_firsts(ordered))
    inverse = _number(selection.mask, selection.starts, order)
    room, first, starts, shape = selection.values(ordered), selection.values(order), selection.places(), x.shape

    def make(count: int) -> UniqueAll:
        parts = selection.cut(room, count), selection.cut(first, count)
        return UniqueAll(*parts, inverse.reshape(shape), _gaps(selection, starts, math.prod(shape), count))

    return Counted(selection, make)


def unique_blocking(
    x: aiodev.Array, submit: Callable[[aiodev.Array], Counted[T]], part: Callable[[UniqueAll], T]
) -> T:
    """What a function of this module gives; blocks until the device has counted, unless the host has it without waiting.

    Args:
        submit: what the function submits.
        part: what it gives, of what :func:`unique_all` does.
    """
    host = known(x, SORTED_HERE)
    if host is None:
        with ahead_of_others(x):
            return submit(x).wait_blocking()
    _, first, inverse, counts = np.unique(
        host, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    parts = host.reshape(-1)[first], first, inverse.reshape(x.shape), counts
    return part(UniqueAll(*[aiodev.asarray(one, device=x.device) for one in parts]))


def _sorted(x: aiodev.Array) -> aiodev.Array:
    return take(x, _order_of(x)) if x.dtype.kind == "c" else sort(x)


def _order_of(x: aiodev.Array) -> aiodev.Array:
    """The places of the elements in ascending order; complex numbers by each of their keys, the last one first."""
    if x.dtype.kind != "c":
        return argsort(x)
    order = argsort(imag(x))
    if not x.size:
        return order
    order = take(order, argsort(take(real(x), order)))
    return take(order, argsort(_number_nans(x, order)))


@aiodev.operation(reads=["x", "order"], name="unique_values")
def _number_nans(call: aiodev.Call, x: aiodev.Array, order: aiodev.Array) -> aiodev.Array:
    """Which parts of complex numbers are NaN, in the order."""
    parts = call.new(x.size, np.uint8)
    call.launch(bodies.number_nans, x.size, x, order, parts)
    return parts


@aiodev.operation(reads=["mask", "starts", "order"], name="unique_inverse")
def _number(call: aiodev.Call, mask: aiodev.Array, starts: aiodev.Array, order: aiodev.Array) -> aiodev.Array:
    """For each element its place among the different ones."""
    inverse = call.new(mask.size, np.int64)
    if mask.size:
        call.launch(bodies.number_pieces, starts.size - 1, mask, starts, order, inverse)
    return inverse


@aiodev.operation(reads=["ordered"], name="unique_values")
def _firsts(call: aiodev.Call, ordered: aiodev.Array) -> aiodev.Array:
    """Which elements differ from the one before."""
    mask = call.new(ordered.size, np.bool_)
    if mask.size:
        call.launch(bodies.mark_first, mask.size, ordered, mask)
    return mask


@aiodev.operation(reads=["starts"], name="unique_counts")
def _distances(call: aiodev.Call, starts: aiodev.Array, n: int) -> aiodev.Array:
    """How far it is from each place to the next one, or to ``n``."""
    out = call.new(starts.size, np.int64)
    if starts.size:
        call.launch(bodies.gaps, starts.size, n, starts, out)
    return out


def _gaps(selection: Selection, starts: aiodev.Array, n: int, count: int) -> aiodev.Array:
    with selection.stream:
        return _distances(starts[:count], n)


def _sample_unique(dtype: Any) -> None:
    x = aiodev.ones(4, dtype=dtype)
    order = _order_of(x)
    ordered = _sorted(take(x, order))
    if ordered.dtype.kind != "c":
        sort(aiodev.ones(LEAST, dtype))
    selection = Selection(_firsts(ordered))
    _number(selection.mask, selection.starts, order)
    selection.values(ordered)
    selection.values(order)
    _gaps(selection, selection.places(), 4, 4)


for _name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
    register_sample(_name, _sample_unique)
