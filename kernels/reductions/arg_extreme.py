"""Kernels of argmax and argmin, with the same chunks as :mod:`aiodev.kernels.reductions.bodies`.

What is compared are integers, such as reductions to the largest element combine. Of equal ones the first has the place.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import lang
from aiodev.kernels.naming import named_kernel
from aiodev.kernels.per_length import PerLength
from aiodev.kernels.reductions import cuda as teams
from aiodev.kernels.reductions.accumulators import larger, store
from aiodev.kernels.reductions.bodies import AHEAD, BLOCK, COLUMNS, PIECE, WORD, Plain, rows_beside, slab_depth

__all__ = ["ArgExtreme", "make_arg_extreme"]


class ArgExtreme(NamedTuple):
    """The first places of the largest elements, of one type."""

    rows: aiodev.Kernel  #: (i, x, length, out): rows to places
    blocks: aiodev.Kernel  #: (i, blocks, x, length, parts, places): blocks of rows to parts, and their places
    parts: aiodev.Kernel  #: (i, blocks, parts, places, out): parts of rows to places
    columns: (
        aiodev.Kernel
    )  #: (i, slabs, strips, x, length, inner, parts, places): slabs of rows, side by side, to parts
    strips: aiodev.Kernel  #: (i, strips, parts, places, slabs, inner, out): parts of columns to places
    whole_columns: aiodev.Kernel  #: (i, x, length, inner, out): columns to places, one each; not by teams
    short_rows: PerLength  #: takes what ``rows`` does
    short_columns: PerLength  #: takes what ``whole_columns`` does: all columns of one outer index each


def make_arg_extreme(name: str, load: Plain, key: Any) -> ArgExtreme:
    """The kernels that find the first of the largest elements, ``load`` giving what is compared."""

    def fold(x):
        largest = load(x[0])
        for k in range(x.size):
            largest = larger(largest, load(x[k]))
        return largest

    def first_of(x, largest):
        place = x.size
        for k in range(x.size):  # to the end: a loop that may leave is not in vectors
            place = min(place, k if load(x[k]) == largest else x.size)
        return place

    def search(x, lo, hi):
        step = PIECE // x.itemsize
        best, place = load(x[lo]), lo
        for start in range(lo, hi, step):
            stop = min(start + step, hi)
            if x.itemsize <= WORD:
                lang.prefetch(x[start + AHEAD // x.itemsize : stop + AHEAD // x.itemsize])
            largest = fold(x[start:stop])
            if largest > best:
                best, place = largest, start
        return best, place + first_of(x[place : min(place + step, hi)], best)

    def rows(i, x, length, out):
        _, place = search(x, i * length, (i + 1) * length)
        store(out, i, place - i * length)

    def blocks(i, blocks, x, length, parts, places):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        best, place = search(x, row * length + lo, row * length + hi)
        parts[i], places[i] = best, place - row * length

    def parts(i, blocks, parts, places, out):
        best = i * blocks
        for k in range(i * blocks + 1, (i + 1) * blocks):
            if parts[k] > parts[best]:
                best = k
        store(out, i, places[best])

    def search_row(row, best, place, r):
        for j in range(best.size):
            value, known = load(row[j]), best[j]
            best[j] = value if value > known else known
            place[j] = r if value > known else place[j]

    def fold_halves(best, place, beside):
        half = best.size
        while beside > 1:
            beside, half = beside // 2, half // 2
            low, high = best[:half], best[half : 2 * half]
            above, below = place[:half], place[half : 2 * half]
            for j in range(low.size):
                known, value, row, other = low[j], high[j], above[j], below[j] + beside
                better = value > known or (value == known and other < row)
                low[j] = value if better else known
                above[j] = other if better else row

    def columns(i, slabs, strips, x, length, inner, parts, places):
        slab, strip = i // strips, i % strips
        beside = rows_beside(length, inner)
        depth, room = slab_depth(beside), beside * inner
        top, start = slab % slabs * depth, slab * inner
        if beside > 1:
            start = parts.size - (slab + 1) * room
            beside = rows_beside(min(depth, length - top), inner)
        wide, first = beside * inner, (slab // slabs * length + top) * inner
        last = first + min(depth, length - top) * inner
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, wide)
        best, place = parts[start + left : start + right], places[start + left : start + right]
        row = x[first + left : first + right]
        for j in range(best.size):
            best[j] = load(row[j])
            place[j] = top
        whole = (last - first) // wide
        for k in range(1, whole):
            search_row(x[first + k * wide + left : first + k * wide + right], best, place, top + k * beside)
        rest = x[first + whole * wide : last]
        search_row(rest, best[: rest.size], place[: rest.size], top + whole * beside)
        if room > inner:
            fold_halves(best, place, beside)
            largest, row = parts[slab * inner : (slab + 1) * inner], places[slab * inner : (slab + 1) * inner]
            for j in range(largest.size):
                largest[j], row[j] = best[j], place[j]

    def strips(i, strips, parts, places, slabs, inner, out):
        outer, strip = i // strips, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        start = outer * slabs * inner
        best, place = parts[start + left : start + right], places[start + left : start + right]
        for slab in range(1, slabs):
            other = (outer * slabs + slab) * inner
            values, own = parts[other + left : other + right], places[other + left : other + right]
            for j in range(best.size):
                value, known = values[j], best[j]
                best[j] = value if value > known else known
                place[j] = own[j] if value > known else place[j]
        results = out[outer * inner + left : outer * inner + right]
        for j in range(best.size):
            results[j] = place[j]

    def whole_columns(i, x, length, inner, out):
        if inner <= 0:  # never; so dividing cannot raise
            return
        start, end = i // inner * length * inner + i % inner, (i // inner + 1) * length * inner
        column = x[start:end:inner]
        best, place = load(column[0]), 0
        for k in range(column.size):
            value = load(column[k])
            if value > best:
                best, place = value, k
        store(out, i, place)

    def search_few(x, first, step, each):
        best, place = load(x[first]), 0
        for k in range(1, each):
            value = load(x[first + np.uint64(k) * step])
            place = k if value > best else place
            best = larger(best, value)
        return place

    def short_rows(each):
        def rows(i, x, length, out):
            count = each or length
            store(out, i, search_few(x, np.uint64(i * count), np.uint64(1), count))

        return named_kernel(name, rows, uniform=True)

    def short_columns(each):
        def columns(i, x, length, inner, out):
            count, results = each or length, out[i * inner : (i + 1) * inner]
            for j in range(results.size):
                results[j] = search_few(x, np.uint64(i * count * inner + j), np.uint64(inner), count)

        return named_kernel(name, columns, uniform=True)

    bodies = rows, blocks, parts, columns, strips, whole_columns
    named = (named_kernel(name, body, uniform=True) for body in bodies)
    kernels = ArgExtreme._make((*named, PerLength(short_rows), PerLength(short_columns)))
    teams.add_arg_extreme_teams(kernels, load, key)
    return kernels
