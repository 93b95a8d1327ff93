"""The kernels behind selecting, searching and counting in bins.

What is selected is found in two sweeps over blocks of fixed length: the first counts, one index sums up, and the second
writes to where each block's begin. Bins are counted for each piece of the data by itself, and then added up in the order of
the pieces, so that the result does not depend on the number of threads.
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


@aiodev.kernel
def count_true(i, mask, counts):
    """How many of block ``i`` are not 0."""
    counts[i] = number_of(mask[i * BLOCK : min((i + 1) * BLOCK, mask.size)])


def number_of(mask):
    """How many are not 0."""
    total = 0
    for k in range(mask.size):
        total += np.int64(mask[k] != 0)  # type: ignore[assignment]
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


# Bins


@aiodev.kernel
def even_edges(i, bins, lowest, highest, edges):
    """Edge ``i`` of bins of one width; around a single value, half a unit to both sides."""
    low, high = np.float64(lowest[0]), np.float64(highest[0])
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges[i] = high if i == bins else low + i * ((high - low) / bins)


@aiodev.kernel
def count_even(i, piece, bins, x, edges, parts):
    """Count piece ``i`` in bins of one width."""
    first, last = edges[0], edges[bins]
    mine = parts[i * bins : (i + 1) * bins]
    for b in range(bins):
        mine[b] = 0
    for k in range(i * piece, min((i + 1) * piece, x.size)):
        value = np.float64(x[k])
        if first <= value and value <= last:
            mine[np.uint64(bin_of(value, first, last, bins, edges))] += 1


@aiodev.kernel
def weigh_even(i, piece, bins, x, weights, edges, parts):
    """Add up the weights of piece ``i`` in bins of one width."""
    first, last = edges[0], edges[bins]
    mine = parts[i * bins : (i + 1) * bins]
    for b in range(bins):
        mine[b] = 0
    for k in range(i * piece, min((i + 1) * piece, x.size)):
        value = np.float64(x[k])
        if first <= value and value <= last:
            mine[np.uint64(bin_of(value, first, last, bins, edges))] += weights[k]


def bin_of(value, first, last, bins, edges):
    """The bin of a value that is in one: by its place between the ends, put right by the edges, as NumPy does."""
    found = np.int64((value - first) / (last - first) * bins)
    found = min(found, bins - 1)
    if value < edges[found]:
        found -= 1
    elif found < bins - 1 and value >= edges[found + 1]:
        found += 1
    return found


@aiodev.kernel
def count_uneven(i, piece, bins, x, edges, parts):
    """Count piece ``i`` in bins between any edges."""
    mine = parts[i * bins : (i + 1) * bins]
    for b in range(bins):
        mine[b] = 0
    for k in range(i * piece, min((i + 1) * piece, x.size)):
        value = np.float64(x[k])
        if edges[0] <= value and value <= edges[bins]:
            mine[np.uint64(bin_between(value, bins, edges))] += 1


@aiodev.kernel
def weigh_uneven(i, piece, bins, x, weights, edges, parts):
    """Add up the weights of piece ``i`` in bins between any edges."""
    mine = parts[i * bins : (i + 1) * bins]
    for b in range(bins):
        mine[b] = 0
    for k in range(i * piece, min((i + 1) * piece, x.size)):
        value = np.float64(x[k])
        if edges[0] <= value and value <= edges[bins]:
            mine[np.uint64(bin_between(value, bins, edges))] += weights[k]


def bin_between(value, bins, edges):
    """The bin of a value that is in one: the last whose left edge is not above it."""
    low, high = 0, bins
    while low < high:
        middle = (low + high + 1) >> 1
        if edges[middle] <= value:
            low = middle
        else:
            high = middle - 1
    return min(low, bins - 1)


@aiodev.kernel
def add_parts(i, pieces, bins, parts, out):
    """Add up bin ``i`` over all pieces."""
    total = parts[i]
    for piece in range(1, pieces):
        total += parts[piece * bins + i]
    out[i] = total


@aiodev.kernel
def densities(i, counts, total, edges, out):
    """Per unit of the data's own measure."""
    out[i] = counts[i] / (edges[i + 1] - edges[i]) / total[0]
