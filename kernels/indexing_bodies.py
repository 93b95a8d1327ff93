"""The kernels behind indexing by arrays.

Arrays are seen as (outer, axis, inner), with the indexed axis in the middle. A launch's index stands for several short
items, for one, or for a block of a long one, so that it is always some thousand elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev
from aiodev.lang import atomic_add, prefetch

__all__ = [
    "BLOCK",
    "CLIP",
    "RAISE",
    "WRAP",
    "add_elements",
    "add_items",
    "add_slices",
    "fill_one",
    "put_elements",
    "take_along_last",
    "take_along_middle",
    "take_elements",
    "take_from_rows",
    "take_items",
]

#: Elements of an item that one index takes at most.
BLOCK = 1 << 14
#: Elements of short items, of which some ahead are asked for, since they lie anywhere.
SHORT, AHEAD = 64, 16
#: What becomes of an index that is out of bounds.
RAISE, WRAP, CLIP = range(3)


def position(index: Any, length: int, mode: int) -> Any:
    """Where an index points to.

    Raises:
        IndexError: out of bounds, if that is what to do then.
    """
    found = np.int64(index)  # beside an unsigned 64-bit index, the length would make it a float
    if mode == CLIP:
        return min(max(found, 0), length - 1)
    if mode == WRAP:
        return found % length
    if found < 0:
        found += length
    if found < 0 or found >= length:
        raise IndexError("an index is out of bounds for its axis")
    return found


def nearest(index: Any, length: int) -> Any:
    """The same without an error."""
    found = np.int64(index)
    return min(max(found + length if found < 0 else found, 0), length - 1)


@aiodev.kernel(uniform=True)
def take_elements(i: int, mode: int, x: Any, indices: Any, out: Any) -> None:
    """One element of one dimension."""
    out[i] = x[position(indices[i], x.shape[0], mode)]


@aiodev.kernel(uniform=True, reads=("x", "indices"))
def take_items(i: int, group: int, blocks: int, mode: int, x: Any, indices: Any, out: Any) -> None:
    """Some items, or a block of one."""
    count = indices.shape[0]
    lo = i % blocks * BLOCK
    hi = min(out.shape[2], lo + BLOCK) if blocks > 1 else out.shape[2]
    first = i // blocks * group
    outer, j = first // count, first % count
    for _ in range(first, min(out.shape[0] * count, first + group)):
        if out.shape[2] <= SHORT and j + AHEAD < count:
            prefetch(x[outer, nearest(indices[j + AHEAD], x.shape[1])])
        p = position(indices[j], x.shape[1], mode)
        for k in range(np.uint64(lo), np.uint64(hi)):
            out[np.uint64(outer), np.uint64(j), k] = x[np.uint64(outer), np.uint64(p), k]
        j += 1
        if j == count:
            outer, j = outer + 1, 0


@aiodev.kernel(uniform=True, reads=("x", "indices"))
def take_from_rows(i: int, group: int, mode: int, x: Any, indices: Any, places: Any, out: Any) -> None:
    """Elements of some rows, each row's at the same places; those are found once, and kept in row ``i`` of ``places``."""
    mine = places[i]
    for k in range(indices.shape[0]):
        mine[k] = position(indices[k], x.shape[1], mode)
    for row in range(i * group, min(out.shape[0], (i + 1) * group)):
        target, source = out[row], x[row]
        for k in range(mine.size):
            target[k] = source[np.uint64(mine[k])]


@aiodev.kernel(ndim=3, uniform=True)
def take_along_middle(i: int, j: int, k: int, mode: int, x: Any, indices: Any, out: Any) -> None:
    """One element; its index is its own."""
    out[i, j, k] = x[i, position(indices[i, j, k], x.shape[1], mode), k]


@aiodev.kernel(ndim=2, uniform=True)
def take_along_last(i: int, j: int, mode: int, x: Any, indices: Any, out: Any) -> None:
    """The same along the last of two dimensions."""
    out[i, j] = x[i, position(indices[i, j], x.shape[1], mode)]


@aiodev.kernel
def fill_one(i: int, value: Any, out: Any) -> None:
    """A number that is written or added to several places."""
    out[i] = value


@aiodev.kernel(uniform=True)
def put_elements(i: int, mode: int, x: Any, indices: Any, values: Any) -> None:
    """One element of one dimension."""
    x[position(indices[i], x.shape[0], mode)] = values[i]


@aiodev.kernel(uniform=True)
def add_elements(i: int, mode: int, x: Any, indices: Any, values: Any) -> None:
    """One element of one dimension, atomically."""
    atomic_add(x, position(indices[i], x.shape[0], mode), values[i])


@aiodev.kernel(uniform=True)
def add_items(i: int, group: int, mode: int, x: Any, indices: Any, values: Any) -> None:
    """Some items, atomically: others may add to the same ones."""
    count = indices.shape[0]
    for item in range(i * group, min(x.shape[0] * count, (i + 1) * group)):
        outer, j = item // count, item % count
        p = position(indices[j], x.shape[1], mode)
        for k in range(x.shape[2]):
            atomic_add(x, (outer, p, k), values[outer, j, k])


@aiodev.kernel(uniform=True)
def add_slices(i: int, slices: int, width: int, mode: int, x: Any, indices: Any, values: Any) -> None:
    """All items, in order, but of each the ``width`` elements that no other index of the launch adds to."""
    outer, lo = i // slices, i % slices * width
    hi = min(x.shape[2], lo + width)
    for j in range(indices.shape[0]):
        p = position(indices[j], x.shape[1], mode)
        for k in range(lo, hi):
            x[outer, p, k] += values[outer, j, k]
