"""Kernels behind histograms.

Bins are counted for each piece of the data by itself, and then added up in the order of the pieces, so that the result does not
depend on the number of threads.

Among bins of one width, the place of a value between the ends gives its bin. But that is computed, and the edges are rounded:
near an edge, the edge decides. So places are found in vectors for some values at a time, where those that are too near to an
edge are marked; what is left to do for each is a step on a counter. Bin ``b`` is counted at ``b + 1``; what is below the first
or above the last has counters of its own, which nobody reads.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

import aiodev
from aiodev.kernels.reductions.accumulators import float_of_8, float_of_reversed_8, key_8, reversed_key_8
from aiodev.lang import prefetch

__all__ = ["ROOM"]

#: Values whose places are found at once; a piece's counters are followed by room for these.
_VALUES = 256
#: How many more words than bins a piece of :func:`count_even` has.
ROOM = 2 + _VALUES
#: Bytes ahead at which elements are asked for.
_AHEAD = 12 << 10


@aiodev.kernel(uniform=True)
def even_edges(i, bins, lowest, highest, edges):
    """Edge ``i`` of bins of one width; around a single value, half a unit to both sides."""
    low, high = apart(np.float64(lowest[0]), np.float64(highest[0]))
    edges[i] = edge_of(i, bins, low, high)


def apart(low, high):
    """The ends, or around a single value half a unit to both sides."""
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def edge_of(i, bins, low, high):
    """The edge of a bin, as NumPy's ``linspace`` computes it."""
    if i == bins:
        return high
    step = (high - low) / bins
    return low + (i * step if step != 0.0 else i / bins * (high - low))


def extremes(x):
    """The least and the largest, as float64; NaN if there is one."""
    least, largest = reversed_key_8(np.float64(x[0])), key_8(np.float64(x[0]))
    for k in range(x.size):
        least, largest = max(least, reversed_key_8(np.float64(x[k]))), max(largest, key_8(np.float64(x[k])))
    return float_of_reversed_8(least, 0), float_of_8(largest, 0)


def make_edges(bins, measured, low, high, x, edges):
    """Of bins of one width: between the ends given, or else those of the elements."""
    if measured and x.size > 0:
        low, high = extremes(x)
    low, high = apart(low, high)
    for b in range(bins + 1):
        edges[b] = edge_of(b, bins, low, high)


@aiodev.kernel(uniform=True, reads=["x"])
def count_few(i, bins, measured, low, high, x, edges, parts, counts):
    """Count all in bins of one width, and make the edges: between the ends given, or else those of the elements."""
    make_edges(bins, measured, low, high, x, edges)
    mine = parts[: bins + ROOM - _VALUES]
    count_all(x, 0, x.size, bins, edges, mine, parts[bins + ROOM - _VALUES :])
    inner = mine[1 : bins + 1]
    for b in range(inner.size):
        counts[b] = inner[b]


@aiodev.kernel(uniform=True, reads=["x"])
def count_even(i, piece, bins, x, edges, parts):
    """Count piece ``i`` in bins of one width."""
    width = bins + ROOM
    mine, places = parts[i * width : (i + 1) * width - _VALUES], parts[(i + 1) * width - _VALUES : (i + 1) * width]
    count_all(x, i * piece, min((i + 1) * piece, x.size), bins, edges, mine, places)


def count_all(x, begin, end, bins, edges, mine, places):
    """Count elements from one on and before another; ``places`` is room."""
    first, last = edges[0], edges[bins]
    scale = bins / (last - first)
    first = first if scale > 0.0 else np.nan  # between infinite ends there is no place
    # What places and edges may be off by, four times over; infinite or NaN where the scale is, and then all are marked.
    margin = 2.0**-50 * (bins + 1 + (abs(first) + abs(last)) * scale)
    for b in range(mine.size):
        mine[b] = 0
    ahead = _AHEAD // x.itemsize
    for start in range(begin, end, _VALUES):
        values = x[start : min(start + _VALUES, end)]
        prefetch(x[start + ahead : start + ahead + _VALUES])
        find_places(values, first, scale, margin, bins, places[: values.size])
        for k in range(values.size):
            place = places[k]
            if place < 0:
                place = place_near_edge(np.float64(values[k]), -1 - place, first, last, bins, edges)
            mine[np.uint64(place)] += 1


def find_places(values, first, scale, margin, bins, places):
    """Where each value is counted; -1 less that where it is near to an edge. NaN is too small for all bins.

    What is outside is in the middle of one of two more bins: marks are rare, and branches are foreseen.
    """
    for k in range(places.size):
        position = (np.float64(values[k]) - first) * scale
        position = position if position > -0.5 else -0.5
        position = (position if position < bins + 0.5 else bins + 0.5) + 1.0
        place = np.int32(position)
        part = position - np.float64(place)
        places[k] = place if (part > margin) and (part < 1.0 - margin) else -1 - place


def place_near_edge(value, place, first, last, bins, edges):
    """Where a value is counted, which is near to ``place``."""
    if not (first <= value and value <= last):
        return 0
    index = min(max(place - 1, 0), bins - 1)
    while value < edges[np.uint64(index)]:
        index -= 1
    while index < bins - 1 and value >= edges[np.uint64(index + 1)]:
        index += 1
    return index + 1


@aiodev.kernel(uniform=True, reads=("x", "weights"))
def weigh_few(i, bins, measured, low, high, x, weights, edges, sums):
    """Make the edges, as :func:`count_few` does, and add up all weights in their bins."""
    make_edges(bins, measured, low, high, x, edges)
    weigh_all(x, weights, bins, edges, sums)


@aiodev.kernel(uniform=True, reads=("x", "weights"))
def weigh_even(i, piece, bins, x, weights, edges, parts):
    """Add up the weights of piece ``i`` in bins of one width."""
    begin, end = i * piece, min((i + 1) * piece, x.size)
    weigh_all(x[begin:end], weights[begin:end], bins, edges, parts[i * bins : (i + 1) * bins])


def weigh_all(x, weights, bins, edges, mine):
    """Add up weights in bins of one width."""
    first, last = edges[0], edges[bins]
    for b in range(bins):
        mine[b] = 0
    for k in range(x.size):
        value = np.float64(x[k])
        if first <= value and value <= last:
            mine[np.uint64(bin_of(value, first, last, bins, edges))] += np.float64(weights[k])


def bin_of(value, first, last, bins, edges):
    """The bin of a value that is in one: by its place between the ends, put right by the edges, as NumPy does."""
    number = np.int64((value - first) / (last - first) * bins)
    number = min(number, bins - 1)
    if value < edges[number]:
        number -= 1
    elif number < bins - 1 and value >= edges[number + 1]:
        number += 1
    return number


@aiodev.kernel(uniform=True, reads=["x"])
def count_uneven(i, piece, bins, x, edges, parts):
    """Count piece ``i`` in bins between any edges."""
    mine = parts[i * bins : (i + 1) * bins]
    for b in range(bins):
        mine[b] = 0
    for k in range(i * piece, min((i + 1) * piece, x.size)):
        value = np.float64(x[k])
        if edges[0] <= value and value <= edges[bins]:
            mine[np.uint64(bin_between(value, bins, edges))] += 1


@aiodev.kernel(uniform=True, reads=("x", "weights"))
def weigh_uneven(i, piece, bins, x, weights, edges, parts):
    """Add up the weights of piece ``i`` in bins between any edges."""
    mine = parts[i * bins : (i + 1) * bins]
    for b in range(bins):
        mine[b] = 0
    for k in range(i * piece, min((i + 1) * piece, x.size)):
        value = np.float64(x[k])
        if edges[0] <= value and value <= edges[bins]:
            mine[np.uint64(bin_between(value, bins, edges))] += np.float64(weights[k])


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


@aiodev.kernel(uniform=True)
def add_parts(i, pieces, width, first, parts, out):
    """Add up bin ``i`` over all pieces, which are ``width`` apart and have bins from their place ``first`` on."""
    total = parts[first + i]
    for piece in range(1, pieces):
        total += parts[piece * width + first + i]
    out[i] = total


@aiodev.kernel(uniform=True)
def densities(i, counts, total, edges, out):
    """Per unit of the data's own measure."""
    out[i] = counts[i] / (edges[i + 1] - edges[i]) / total[0]


@aiodev.kernel(uniform=True)
def densities_few(i, counts, edges, out):
    """Densities of all bins, and the sum of counts."""
    total = np.float64(0)
    for b in range(counts.size):
        total += counts[b]
    for b in range(out.size):
        out[b] = counts[b] / (edges[b + 1] - edges[b]) / total
