"""Kernels behind selecting and searching.

What is selected is found in two sweeps over blocks of fixed length: the first counts, one index sums up, and the second
writes to where each block's begin.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

import aiodev

__all__ = ["BLOCK", "TOGETHER"]

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
    """Write the elements of block ``i`` that are selected, each over those before it that are not: nobody can guess which."""
    place, end = starts[i], starts[i + 1]
    for k in range(np.uint64(i * BLOCK), np.uint64(min((i + 1) * BLOCK, mask.size))):
        if place >= end:  # no other block's place is written to, even if the mask has changed since
            break
        out[np.uint64(place)] = x[k]
        place += np.int64(mask[k] != 0)


@aiodev.kernel
def select_places(i, mask, starts, out):
    """Write the places in block ``i`` that are selected, as above."""
    place, end = starts[i], starts[i + 1]
    for k in range(np.uint64(i * BLOCK), np.uint64(min((i + 1) * BLOCK, mask.size))):
        if place >= end:  # no other block's place is written to, even if the mask has changed since
            break
        out[np.uint64(place)] = k
        place += np.int64(mask[k] != 0)


@aiodev.kernel(reads=["mask", "values"])
def put_selected(i, mask, starts, values, out):
    """Write to the rows of block ``i`` that are selected, each the next of the values.

    Raises:
        ValueError: there are not as many values as selected rows; nothing is written then.
    """
    if starts[starts.size - 1] != values.shape[0]:
        raise ValueError("there are not as many values as the mask has true elements")
    place, end = starts[i], starts[i + 1]
    for k in range(i * BLOCK, min((i + 1) * BLOCK, mask.size)):
        if mask[k] and place < end:  # nobody reads beyond the values, even if the mask has changed since
            for j in range(values.shape[1]):
                out[k, j] = values[place, j]
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
def number_nans(i, x, order, out):
    """Which parts of a complex number are NaN: neither, the imaginary one, the real one, both."""
    value = x[order[i]]
    out[i] = 2 * (value.real != value.real) + (value.imag != value.imag)


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


# The answer grows bit by bit, by whether an element comes before the value: a half to go on with would be a branch that nobody
# can guess. The first step goes to the last elements there are, so that no other looks beyond them (Knuth, 6.2.1, exercise 12).
# An index searches for several values side by side, since each step waits for the last one.

#: Values that an index searches for.
TOGETHER = 4


def comes_before(found, value, is_nan):
    """Whether an element comes before a value, NaN being the last; as a number."""
    return np.int64((found < value) | (is_nan & (found == found)))


def comes_not_after(found, value, is_nan):
    """Whether it does, or is equal."""
    return np.int64((found <= value) | is_nan)


def make_search(is_before):
    """(i, bits, x, values, out): for how many elements of the sorted ``x``, whose length has ``bits``, ``is_before`` is 1."""

    def search(i, bits, x, values, out):
        last = values.size - 1
        p = i * TOGETHER
        q, r, s = min(p + 1, last), min(p + 2, last), min(p + 3, last)
        a, b, c, d = values[p], values[q], values[r], values[s]
        top, rest = x[(1 << (bits - 1)) - 1], x.size + 1 - (1 << (bits - 1))
        low_a, low_b = is_before(top, a, a != a) * rest, is_before(top, b, b != b) * rest
        low_c, low_d = is_before(top, c, c != c) * rest, is_before(top, d, d != d) * rest
        for k in range(1, bits):
            shift = bits - 1 - k
            step = (1 << shift) - 1
            low_a += is_before(x[np.uint64(low_a + step)], a, a != a) << shift
            low_b += is_before(x[np.uint64(low_b + step)], b, b != b) << shift
            low_c += is_before(x[np.uint64(low_c + step)], c, c != c) << shift
            low_d += is_before(x[np.uint64(low_d + step)], d, d != d) << shift
        out[p], out[q], out[r], out[s] = low_a, low_b, low_c, low_d

    search.__name__ = search.__qualname__ = "searchsorted"
    return aiodev.kernel(reads=("x", "values"))(search)


search_left, search_right = make_search(comes_before), make_search(comes_not_after)
