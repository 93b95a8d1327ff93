"""The kernels behind selecting and searching.

What is selected is found in two sweeps over blocks of fixed length: the first counts, one index sums up, and the second
writes to where each block's begin.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np

import aiodev

__all__ = ["BLOCK"]

#: Elements of a block.
BLOCK = 1 << 14


@aiodev.kernel(reads=["mask"])
def count_true(i, mask, counts):
    """How many of block ``i`` are not 0."""
    counts[i] = number_of(mask[i * BLOCK : min((i + 1) * BLOCK, mask.size)])


def number_of(mask):
    """How many are not 0."""
    total = np.int64(0)
    for k in range(mask.size):
        total += np.int64(mask[k] != 0)
    return total


@aiodev.kernel
def sum_up(i, counts):
    """Turn counts into what comes before each, and the sum at the end; one index."""
    before = 0
    for k in range(counts.size):
        count = counts[k]
        counts[k] = before
        before += count


@aiodev.kernel
def select_values(i, mask, x, starts, out):
    """Write the elements of block ``i`` that are selected."""
    place = starts[i]
    for k in range(i * BLOCK, min((i + 1) * BLOCK, mask.size)):
        if mask[k] != 0:
            out[place] = x[k]
            place += 1


@aiodev.kernel
def select_places(i, mask, starts, out):
    """Write the places in block ``i`` that are selected."""
    place = starts[i]
    for k in range(i * BLOCK, min((i + 1) * BLOCK, mask.size)):
        if mask[k] != 0:
            out[place] = k
            place += 1


@aiodev.kernel
def part_of_place(i, inner, length, places, out):
    """One index of each place in an array: of a dimension of ``length`` whose steps are ``inner`` elements."""
    out[i] = places[i] // inner % length


# Unique


@aiodev.kernel
def mark_first(i, x, mask):
    """Whether a sorted element differs from the one before it; a NaN differs from all."""
    mask[i] = i == 0 or x[i] != x[i - 1]


@aiodev.kernel
def gaps(i, n, starts, out):
    """Lengths of the pieces that begin at ``starts``, of ``n`` elements."""
    out[i] = (starts[i + 1] if i + 1 < starts.size else n) - starts[i]


@aiodev.kernel
def number_pieces(i, mask, starts, places, out):
    """Write to the place that each sorted element came from how many pieces began before it."""
    number = starts[i] - 1
    for k in range(i * BLOCK, min((i + 1) * BLOCK, mask.size)):
        if mask[k] != 0:
            number += 1
        out[places[k]] = number


# Searching


def below(a: Any, b: Any) -> Any:
    """Whether ``a`` comes before ``b``, NaN being the last."""
    return a < b or (b != b and a == a)


@aiodev.kernel
def search_left(i, x, values, out):
    """How many elements of the sorted ``x`` come before a value."""
    low, high, value = 0, x.size, values[i]
    while low < high:
        middle = (low + high) >> 1
        if below(x[middle], value):
            low = middle + 1
        else:
            high = middle
    out[i] = low


@aiodev.kernel
def search_right(i, x, values, out):
    """How many elements of the sorted ``x`` do not come after a value."""
    low, high, value = 0, x.size, values[i]
    while low < high:
        middle = (low + high) >> 1
        if below(value, x[middle]):
            high = middle
        else:
            low = middle + 1
    out[i] = low
