"""Kernels behind indexing by arrays.

Arrays are seen as (outer, axis, inner), with the indexed axis in the middle. A launch's index stands for several short
items, for one, or for a block of a long one, so that it is always some thousand elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.reductions.bodies import NEAR
from aiodev.lang import atomic_add, prefetch

__all__ = [
    "BLOCK",
    "CLIP",
    "NOWHERE",
    "RAISE",
    "STRIP",
    "WRAP",
    "add_along",
    "add_apart",
    "add_elements",
    "add_items",
    "add_parts",
    "add_places",
    "add_slices",
    "fill_one",
    "find_places",
    "put_elements",
    "put_items",
    "take_along_last",
    "take_along_middle",
    "take_elements",
    "take_from_rows",
    "take_items",
]

#: Elements of an item that one index takes at most.
BLOCK = 1 << 14
#: Elements of short items, of which some ahead are asked for if they are not near: they lie anywhere.
SHORT, AHEAD = 64, 16
#: Elements to which one index adds what blocks have summed.
STRIP = 1 << 8
#: What becomes of an index that is out of bounds.
RAISE, WRAP, CLIP = range(3)
#: A place that no array has, whatever is added to it.
NOWHERE = 1 << 60


def place_of(index: Any, length: int, mode: int) -> Any:
    """Where an index points to; -1 if it is out of bounds, and that is an error."""
    place = np.int64(index)  # beside an unsigned 64-bit index, the length would make it a float
    if place < 0 and index >= 0:  # an unsigned one that is more than an int64 can be
        beyond = np.int64(length - 1 if mode == CLIP else -1)
        return np.int64(np.uint64(index) % np.uint64(length)) if mode == WRAP else beyond
    if mode == CLIP:
        return min(max(place, 0), length - 1)
    if mode == WRAP:
        return place % length
    if place < 0:
        place += length
    return place if 0 <= place < length else -1


def position(index: Any, length: int, mode: int) -> Any:
    """Where an index points to.

    Raises:
        IndexError: out of bounds, if that is what to do then.
    """
    place = place_of(index, length, mode)
    if place < 0:
        raise IndexError("an index is out of bounds for its axis")
    return place


def nearest(index: Any, length: int) -> Any:
    """The place that an index points to, limited to the array, without an error."""
    place = np.int64(index)
    return min(max(place + length if place < 0 else place, 0), length - 1)


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
    item, last = i // blocks * group, min(out.shape[0] * count, (i // blocks + 1) * group)
    asks = x.nbytes > NEAR and out.shape[2] <= SHORT
    while item < last:
        outer, begin = item // count, item % count
        where = indices[begin : min(count, begin + last - item)]
        for j in range(where.size):
            if asks and j + AHEAD < where.size:
                prefetch(x[outer, nearest(where[j + AHEAD], x.shape[1])])
            p = position(where[j], x.shape[1], mode)
            for k in range(np.uint64(lo), np.uint64(hi)):
                out[np.uint64(outer), np.uint64(begin + j), k] = x[np.uint64(outer), np.uint64(p), k]
        item += where.size


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
    """One element along the last of two dimensions; its index is its own."""
    out[i, j] = x[i, position(indices[i, j], x.shape[1], mode)]


@aiodev.kernel
def fill_one(i: int, value: Any, out: Any) -> None:
    """A number that is written or added to several places."""
    out[i] = value


@aiodev.kernel(uniform=True)
def fill_blocks(i: int, out: Any) -> None:
    """Zeros, a block of them."""
    block = out[i * BLOCK : min(out.size, (i + 1) * BLOCK)]
    for k in range(block.size):
        block[k] = 0


@aiodev.kernel(uniform=True)
def find_places(i: int, length: int, step: int, offset: int, indices: Any, out: Any) -> None:
    """Where the elements are that an index into one dimension chooses; nowhere, where it is out of bounds."""
    place = place_of(indices[i], length, RAISE)
    out[i] = place * step + offset if place >= 0 else NOWHERE


@aiodev.kernel(uniform=True)
def add_places(i: int, length: int, step: int, indices: Any, out: Any) -> None:
    """How much further they are by an index into another dimension."""
    place = place_of(indices[i], length, RAISE)
    out[i] = out[i] + place * step if place >= 0 else NOWHERE


@aiodev.kernel(uniform=True)
def put_elements(i: int, mode: int, x: Any, indices: Any, values: Any) -> None:
    """One element of one dimension."""
    x[position(indices[i], x.shape[0], mode)] = values[i]


@aiodev.kernel(uniform=True, reads=("indices", "values"))
def put_items(i: int, group: int, blocks: int, mode: int, x: Any, indices: Any, values: Any) -> None:
    """Some items, or a block of one, as :func:`take_items` reads them."""
    count = indices.shape[0]
    lo = i % blocks * BLOCK
    hi = min(x.shape[2], lo + BLOCK) if blocks > 1 else x.shape[2]
    item, last = i // blocks * group, min(x.shape[0] * count, (i // blocks + 1) * group)
    while item < last:
        outer, begin = item // count, item % count
        where = indices[begin : min(count, begin + last - item)]
        for j in range(where.size):
            p = position(where[j], x.shape[1], mode)
            for k in range(np.uint64(lo), np.uint64(hi)):
                x[np.uint64(outer), np.uint64(p), k] = values[np.uint64(outer), np.uint64(begin + j), k]
        item += where.size


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


@aiodev.kernel(ndim=2, uniform=True, reads=("indices", "values"))
def add_along(i: int, k: int, mode: int, indices: Any, values: Any, out: Any) -> None:
    """One line along the axis: zeros, and each value where its own index says, in order."""
    for j in range(out.shape[1]):
        out[i, j, k] = 0
    for j in range(indices.shape[1]):
        out[i, position(indices[i, j, k], out.shape[1], mode), k] += values[i, j, k]


@aiodev.kernel(uniform=True, reads=("indices", "values"))
def add_apart(i: int, blocks: int, mode: int, length: int, indices: Any, values: Any, parts: Any, is_wrong: Any) -> None:
    """The sums of a block of items, by themselves, those of an outer dimension flat; and whether an index is out of bounds."""
    outer, count, inner = i // blocks, indices.shape[0], values.shape[2]
    share = -(-count // blocks)
    lo, hi = i % blocks * share, min(count, (i % blocks + 1) * share)
    mine, wrong = parts[outer, i % blocks], False
    for k in range(mine.size):
        mine[k] = 0
    if inner == 1:
        where, given = indices[lo:hi], values[outer, lo:hi, 0]
        for j in range(given.size):
            place = place_of(where[j], length, mode)
            wrong |= place < 0
            if place >= 0:
                mine[np.uint64(place)] += given[j]
    else:
        for j in range(lo, hi):
            place = place_of(indices[j], length, mode)
            wrong |= place < 0
            for k in range(np.uint64(inner if place >= 0 else 0)):
                mine[np.uint64(place * inner) + k] += values[np.uint64(outer), np.uint64(j), k]
    is_wrong[i] = wrong


@aiodev.kernel(uniform=True)
def add_parts(i: int, strips: int, parts: Any, is_wrong: Any, x: Any) -> None:
    """Add the sums of all blocks, in some elements.

    Raises:
        IndexError: an index was out of bounds; nothing is added then.
    """
    for block in range(is_wrong.size):
        if is_wrong[block]:
            raise IndexError("an index is out of bounds for its axis")
    outer, left, right = i // strips, i % strips * STRIP, min((i % strips + 1) * STRIP, x.shape[1])
    totals = x[outer, left:right]
    for block in range(parts.shape[1]):
        mine = parts[outer, block, left:right]
        for k in range(totals.size):
            totals[k] += mine[k]
