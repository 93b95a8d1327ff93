"""Kernels behind reductions, made for each operation and type from a few plain functions.

An operation has an identity, a ``load`` from an element to what is combined, ``combine``, and ``finish`` from the combined
value and a number to the result. What is combined is wide (``int64``, ``float64``), so that rounding happens once, at the
end. Largest and least are found among integers that are in the order of the floats they stand for, with NaN on top: such a
loop needs no branch, and the compiler keeps it in vectors.

The order of a sum follows from the shape alone: blocks of :data:`BLOCK` elements, each of several partial sums, then the blocks
one after the other. It does not depend on how many threads there are.
On CUDA the same kernels have bodies for teams (:mod:`aiodev.kernels.reductions.cuda`), whose order is another, and follows from
the shape as well.

Rows of few elements, and columns that are few and short, are reduced in order, and where one length comes again and again by a
kernel for it (:mod:`aiodev.kernels.per_length`): the compiler then leaves no loop within a row, and takes many rows in vectors.
Of few columns that are long several rows lie side by side, a power of two, as if they were one row of more columns, which is
folded by halves at the end.

Sums of floats are :func:`aiodev.lang.sum`'s. Only blocks of what is not near are read without asking: in the order that it
chooses for long slices. Where the last cache does not hold an array, its rows are converted element by element: the core waits
for memory then.
A core reads ahead by itself what is read in order. Other loops gain from asking for it earlier only if they compute much with
small elements, and if a part of what they read is in the last cache: up to a quarter. Where all is in a cache, asking costs up
to an eighth, a third in columns; where cores read as fast as memory gives, up to a third.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import lang
from aiodev.kernels.naming import named_kernel
from aiodev.kernels.per_length import PerLength
from aiodev.kernels.reductions import cuda as teams
from aiodev.kernels.reductions.accumulators import store

__all__ = [
    "AHEAD",
    "BLOCK",
    "COLUMNS",
    "NEAR",
    "PIECE",
    "ROWS",
    "WORD",
    "Kernels",
    "Plain",
    "make_kernels",
    "rows_beside",
    "slab_depth",
]

#: Elements that one index of a launch takes of a long row.
BLOCK = 1 << 14
#: Bytes that are read between two requests for more, and how far ahead of them those are.
PIECE, AHEAD = 1 << 10, 18 << 10
#: Bytes of arrays that are largely in the cores' own caches, and how far ahead sums then ask for more.
NEAR, NEAR_AHEAD = 8 << 20, 12 << 10
#: Bytes of arrays of which a last cache of 32 MiB keeps a part.
KEPT, LOST = 24 << 20, 48 << 20
#: Columns that are reduced side by side, at most, and rows at a time.
COLUMNS, ROWS = 1 << 10, 1 << 7
#: Elements of rows of few columns that are reduced side by side, at most; how many times so many rows make a slab, at least.
BESIDE, TIMES = 1 << 10, 1 << 4
#: Bytes of each of four rows that are read between two requests for more; elements of a row up to which that is not worth it.
WIDTH, SHORT = 1 << 9, 64
#: Bytes of the largest elements that are asked for.
WORD = 4

_SUMS = frozenset({"reassoc", "contract"})
Plain = Callable[..., Any]


class Kernels(NamedTuple):
    """The kernels of one operation on one type. All arrays are flat; results may be of no dimensions, too."""

    rows: aiodev.Kernel  #: (i, x, length, identity, number, out): rows of ``length`` elements to results
    blocks: aiodev.Kernel  #: (i, blocks, x, length, identity, parts): blocks of rows to parts
    parts: aiodev.Kernel  #: (i, parts, blocks, identity, number, out): parts of rows to results
    #: (i, slabs, strips, x, length, inner, identity, parts): slabs of rows, side by side, to parts; behind these has to be room
    #: for the rows of few columns that each slab reduces side by side
    columns: aiodev.Kernel
    strips: aiodev.Kernel  #: (i, strips, parts, slabs, inner, number, out): parts of columns to results
    #: (i, x, length, inner, identity, number, out): columns to results, one each
    whole_columns: aiodev.Kernel
    short_rows: PerLength  #: takes what ``rows`` does, in order
    short_columns: PerLength  #: takes what ``whole_columns`` does, in order: all columns of one outer index each


def rows_beside(length: int, inner: int) -> int:
    """How many of ``length`` rows of ``inner`` columns are reduced side by side: 1, or another power of two."""
    rows = 1
    while 2 * rows * inner <= min(BESIDE, length) and 8 * rows <= length:
        rows *= 2
    return rows


def slab_depth(beside: int) -> int:
    """How many rows a slab has of which so many are reduced side by side."""
    return max(ROWS, TIMES * beside)


def make_kernels(
    name: str, load: Plain, combine: Plain, finish: Plain, identity: Any, four: Plain | None = None, sums: bool = False
) -> Kernels:
    """The kernels of an operation; where it ``sums`` floats, ``four`` of which may be added as they are, or none.

    Their loops run over slices: an index that may be negative, as far as the compiler knows, would keep them out of vectors.
    """

    def fold_each(x, identity):
        total = identity
        for k in range(x.size):
            total = combine(total, load(x[k]))
        return total

    def combine_four(a, b, c, d):
        return combine(combine(load(a), load(b)), combine(load(c), load(d)))

    exact = four is None
    four = four or combine_four

    def sum_part(x, lo, hi, identity):
        if hi - lo == BLOCK and x.nbytes > NEAR and not exact:
            return lang.sum(x[lo:hi])
        wide = exact or x.nbytes >= KEPT
        return lang.sum(x[lo:hi], (AHEAD if wide else NEAR_AHEAD) // x.itemsize, wide)

    def fold_pieces(x, lo, hi, identity):
        if x.itemsize > WORD or x.nbytes < KEPT or x.nbytes > LOST:
            return fold_each(x[lo:hi], identity)
        total = identity
        step, ahead = PIECE // x.itemsize, AHEAD // x.itemsize
        for start in range(lo, hi, step):
            stop = min(start + step, hi)
            lang.prefetch(x[start + ahead : stop + ahead])
            total = combine(total, fold_each(x[start:stop], identity))
        return total

    fold_part = sum_part if sums else fold_pieces

    def rows(i, x, length, identity, number, out):
        total = identity
        for lo in range(i * length, (i + 1) * length, BLOCK):
            total = combine(total, fold_part(x, lo, min(lo + BLOCK, (i + 1) * length), identity))
        store(out, i, finish(total, number))

    def blocks(i, blocks, x, length, identity, parts):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        parts[i] = fold_part(x, row * length + lo, row * length + hi, identity)

    def parts(i, parts, blocks, identity, number, out):
        total = identity
        for k in range(i * blocks, (i + 1) * blocks):
            total = combine(total, parts[k])
        store(out, i, finish(total, number))

    def add_four(x, inner, totals):
        a, b = x[: totals.size], x[inner : inner + totals.size]
        c, d = x[2 * inner : 2 * inner + totals.size], x[3 * inner : 3 * inner + totals.size]
        for j in range(totals.size):
            totals[j] = combine(totals[j], four(a[j], b[j], c[j], d[j]))

    def fold_halves(totals, beside, own):
        half = totals.size
        while beside > 1:
            beside, half = beside // 2, half // 2
            low, high = totals[:half], totals[half : 2 * half]
            for j in range(low.size):
                low[j] = combine(low[j], high[j])
        for j in range(own.size):
            own[j] = totals[j]

    def columns(i, slabs, strips, x, length, inner, identity, parts):
        slab, strip = i // strips, i % strips
        beside = rows_beside(length, inner)
        depth, room = slab_depth(beside), beside * inner
        own, top = parts[slab * inner : (slab + 1) * inner], slab % slabs * depth
        totals = own
        if beside > 1:
            totals = parts[parts.size - (slab + 1) * room : parts.size - slab * room]
            beside = rows_beside(min(depth, length - top), inner)
        wide, first = beside * inner, (slab // slabs * length + top) * inner
        last = first + min(depth, length - top) * inner
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, wide)
        totals = totals[left:right]
        for j in range(totals.size):
            totals[j] = identity
        asks = x.itemsize <= WORD and x.nbytes >= KEPT
        step = WIDTH // x.itemsize if asks else right - left
        ahead = max(4 * wide, AHEAD // x.itemsize)
        fours = (last - first) // (4 * wide)
        for q in range(fours):
            for j in range(left, right, step):
                start, width = first + 4 * q * wide + j, min(step, right - j)
                if asks and wide > SHORT:
                    for r in range(4):
                        lang.prefetch(x[start + r * wide + ahead : start + r * wide + ahead + width])
                add_four(x[start:], wide, totals[j - left : j - left + width])
        for start in range(first + 4 * fours * wide, last, wide):
            a = x[start + left : min(start + right, last)]
            for j in range(a.size):
                totals[j] = combine(totals[j], load(a[j]))
        if room > inner:
            fold_halves(totals, beside, own)

    def strips(i, strips, parts, slabs, inner, number, out):
        outer, strip = i // strips, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        totals = parts[outer * slabs * inner + left : outer * slabs * inner + right]
        for slab in range(1, slabs):
            own = parts[(outer * slabs + slab) * inner + left : (outer * slabs + slab) * inner + right]
            for j in range(totals.size):
                totals[j] = combine(totals[j], own[j])
        results = out[outer * inner + left : outer * inner + right]
        for j in range(totals.size):
            results[j] = finish(totals[j], number)

    def whole_columns(i, x, length, inner, identity, number, out):
        if inner <= 0:  # never; so dividing cannot raise
            return
        outer, column = i // inner, i % inner
        total = identity
        for k in range(length):
            total = combine(total, load(x[(outer * length + k) * inner + column]))
        store(out, i, finish(total, number))

    def short_rows(each):
        def rows(i, x, length, identity, number, out):
            count, total = each or length, identity
            for k in range(count):
                total = combine(total, load(x[i * count + k]))
            store(out, i, finish(total, number))

        return named_kernel(name, rows, uniform=True)  # not to be reordered: those beside vectors would be in another way

    def short_columns(each):
        def columns(i, x, length, inner, identity, number, out):
            count, results = each or length, out[i * inner : (i + 1) * inner]
            for j in range(results.size):
                total = identity
                for k in range(count):
                    total = combine(total, load(x[np.uint64((i * count + k) * inner + j)]))
                results[j] = finish(total, number)

        return named_kernel(name, columns, uniform=True)

    bodies = rows, blocks, parts, columns, strips, whole_columns
    named = (named_kernel(name, body, fastmath=_SUMS, uniform=True) for body in bodies)
    kernels = Kernels._make((*named, PerLength(short_rows), PerLength(short_columns)))
    teams.add_kernel_teams(kernels, load, combine, finish, identity)
    return kernels
