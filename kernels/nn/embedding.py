"""Embedding: rows of a table at indices, and what goes back to the table."""

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import delivered, packed_out
from aiodev.kernels.elementwise.conversion import astype, convert_elements
from aiodev.kernels.indexing import bodies
from aiodev.kernels.indexing.put import add_in_order
from aiodev.kernels.indexing.take import check_length
from aiodev.kernels.sorting import argsort
from aiodev.kernels.tuning import EMBEDDED_EACH
from aiodev.kernels.warmup import register_sample

__all__ = ["embedding", "embedding_of_weight"]


@aiodev.operation(reads=["indices", "weight"], writes="out")
def embedding(
    call: aiodev.Call, indices: aiodev.Array, weight: aiodev.Array, /, *, out: aiodev.Array | None = None
) -> aiodev.Array:
    """The rows of ``weight`` at ``indices``, behind the shape of these; negative ones count from the end.

    The gradient of ``weight`` is, for each row, the sum of those of its places in the order of ``indices``: the same bits on
    every run. Of an index that is out of bounds waiters get a :class:`~aiodev.KernelError`; its cause is an ``IndexError``.

    Submits to the current stream; writes to ``out`` if given.

    Raises:
        ValueError: ``weight`` has not two dimensions, or no rows.
        TypeError: ``indices`` are no integers.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> table = aiodev.asarray([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> aiodev.kernels.embedding(aiodev.asarray([1, 1, 0], device="cpu"), table).numpy_blocking()
        array([[3., 4.],
               [3., 4.],
               [1., 2.]])
    """
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{call.name}: argument indices: expected integers, got {indices.dtype}")
    if weight.ndim != 2:
        raise ValueError(f"{call.name}: argument weight: expected 2 dimensions, got the shape {weight.shape}")
    result, target = packed_out(call, (*indices.shape, weight.shape[1]), weight.dtype)
    if result.size:
        check_length(call.name, weight.shape[0])
        count, width = indices.size, weight.shape[1]
        flat, group = call.packed(indices).reshape(count), max(1, EMBEDDED_EACH // width)
        blocks = -(-width // bodies.BLOCK)
        arrays = call.packed(weight)[None], flat, target.reshape(1, count, width)
        call.launch(bodies.take_items, -(-count // group) * blocks, group, blocks, bodies.RAISE, *arrays)
    return delivered(call, result, target)


@aiodev.operation(reads=["grads", "indices"], name="embedding_of_weight")
def embedding_of_weight(
    call: aiodev.Call, grads: aiodev.Array, indices: aiodev.Array, /, *, shape: tuple[int, int]
) -> aiodev.Array:
    """The gradient of a table: each row's gradients added up, in the order of the indices."""
    result = call.new(shape, grads.dtype)
    if not result.size:
        return result
    count, (rows, width) = indices.size, shape
    flat, given = call.packed(indices).reshape(count), call.packed(grads).reshape(count, width)
    if aiodev.capabilities(call.device).simt:
        places = call.scratch(count, np.int64)
        call.launch(note_places, count, rows, flat, places)
        order = argsort(places)
        call.launch(add_sorted, (rows, width), astype(order, np.int64), places, given, result)
    elif dtypes.is_stored_only(result.dtype):
        sums = call.scratch(shape, dtypes.compute_dtype(result.dtype))
        add_in_order(call, flat, given, sums)
        call.launch(convert_elements, result.size, sums.reshape(result.size), result.reshape(result.size))
    else:
        add_in_order(call, flat, given, result)
    return result


@aiodev.kernel
def note_places(i: int, rows: int, indices: Any, places: Any) -> None:
    """The row that an index points to."""
    places[i] = bodies.position(indices[i], rows, bodies.RAISE)


@aiodev.kernel(ndim=2, reads=["order", "places", "values"])
def add_sorted(row: int, column: int, order: Any, places: Any, values: Any, out: Any) -> None:
    """One element: the sum of those whose place it is; they follow each other in ``order``, and begin where a search ends."""
    first, last = 0, order.size
    while first < last:
        middle = (first + last) >> 1
        if places[order[middle]] < row:
            first = middle + 1
        else:
            last = middle
    total = out.dtype.type(0) + np.float32(0)
    while first < order.size and places[order[first]] == row:
        total += values[order[first], column]
        first += 1
    out[row, column] = total


def _sample(dtype: Any) -> None:
    embedding(aiodev.zeros(4, np.int64), aiodev.ones((4, 8), dtype=dtype))


register_sample("embedding", _sample)
