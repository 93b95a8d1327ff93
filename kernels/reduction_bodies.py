"""The kernels behind reductions, made for each operation and type from a few plain functions.

An operation has an identity, a ``load`` from an element to what is combined, ``combine``, and ``finish`` from the combined
value and a number to the result. What is combined is wide (``int64``, ``float64``), so that rounding happens once, at the
end. Largest and least are found among integers that are in the order of the floats they stand for, with NaN on top: such a
loop needs no branch, and the compiler keeps it in vectors.

The order of a sum follows from the shape alone: blocks of :data:`BLOCK` elements, each in several partial sums, then the blocks
one after the other. It does not depend on how many threads there are.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.reduction_elements import larger

__all__ = [
    "BLOCK",
    "COLUMNS",
    "ROWS",
    "SPAN",
    "Kernels",
    "Places",
    "Spread",
    "make_kernels",
    "make_places",
    "make_scan",
    "make_spread",
]

#: Elements that one index of a launch takes of a long row.
BLOCK = 1 << 14
#: Elements whose largest is found at once where its place is wanted.
SPAN = 1 << 10
#: Columns that are reduced side by side, at most, and rows at a time.
COLUMNS, ROWS = 1 << 11, 1 << 7

_SUMS = frozenset({"reassoc", "contract"})
Plain = Callable[..., Any]


class Kernels(NamedTuple):
    """Those of one operation on one type. All arrays are flat; results may be of no dimensions, too."""

    rows: aiodev.Kernel  #: (i, x, length, identity, number, out): rows of ``length`` elements to results
    blocks: aiodev.Kernel  #: (i, blocks, x, length, identity, parts): blocks of rows to parts
    parts: aiodev.Kernel  #: (i, parts, blocks, identity, number, out): parts of rows to results
    #: (i, slabs, strips, x, length, inner, identity, parts): slabs of rows, side by side, to parts
    columns: aiodev.Kernel
    strips: aiodev.Kernel  #: (i, strips, parts, slabs, inner, number, out): parts of columns to results


class Spread(NamedTuple):
    """Sums of the squared distances from the mean, |x - mean|²; for one type of elements."""

    rows: aiodev.Kernel  #: (i, x, length, identity, number, out): rows to results, the mean and then the distances
    blocks: aiodev.Kernel  #: (i, blocks, x, length, means, parts): blocks of rows to parts
    columns: aiodev.Kernel  #: (i, slabs, strips, x, length, inner, means, parts): slabs of rows, side by side, to parts


class Places(NamedTuple):
    """The first places of the largest elements, of one type."""

    rows: aiodev.Kernel  #: (i, x, length, out): rows to places
    blocks: aiodev.Kernel  #: (i, blocks, x, length, parts, places): blocks of rows to parts, and their places
    parts: aiodev.Kernel  #: (i, blocks, parts, places, out): parts of rows to places
    columns: (
        aiodev.Kernel
    )  #: (i, slabs, strips, x, length, inner, parts, places): slabs of rows, side by side, to parts
    strips: aiodev.Kernel  #: (i, strips, parts, places, slabs, inner, out): parts of columns to places


def make_kernels(name: str, load: Plain, combine: Plain, finish: Plain) -> Kernels:
    """The kernels of an operation.

    Their loops run over slices: an index that may be negative, as far as the compiler knows, would keep them out of vectors.
    """

    def fold(x, total):
        for k in range(x.size):
            total = combine(total, load(x[k]))
        return total

    def rows(i, x, length, identity, number, out):
        total = identity
        for lo in range(i * length, (i + 1) * length, BLOCK):
            total = combine(total, fold(x[lo : min(lo + BLOCK, (i + 1) * length)], identity))
        store(out, i, finish(total, number))

    def blocks(i, blocks, x, length, identity, parts):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        parts[i] = fold(x[row * length + lo : row * length + hi], identity)

    def parts(i, parts, blocks, identity, number, out):
        total = identity
        for k in range(i * blocks, (i + 1) * blocks):
            total = combine(total, parts[k])
        store(out, i, finish(total, number))

    def columns(i, slabs, strips, x, length, inner, identity, parts):
        outer, slab, strip = i // (slabs * strips), i // strips % slabs, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        totals = parts[(outer * slabs + slab) * inner + left : (outer * slabs + slab) * inner + right]
        for j in range(totals.size):
            totals[j] = identity
        first, last = outer * length + slab * ROWS, outer * length + min((slab + 1) * ROWS, length)
        fours = (last - first) // 4
        for q in range(fours):
            r = first + 4 * q
            a, b = x[r * inner + left : r * inner + right], x[(r + 1) * inner + left : (r + 1) * inner + right]
            c, d = (
                x[(r + 2) * inner + left : (r + 2) * inner + right],
                x[(r + 3) * inner + left : (r + 3) * inner + right],
            )
            for j in range(totals.size):
                pair = combine(combine(load(a[j]), load(b[j])), combine(load(c[j]), load(d[j])))
                totals[j] = combine(totals[j], pair)
        for r in range(first + 4 * fours, last):
            a = x[r * inner + left : r * inner + right]
            for j in range(totals.size):
                totals[j] = combine(totals[j], load(a[j]))

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

    return Kernels(*(_kernel(name, body) for body in (rows, blocks, parts, columns, strips)))


def make_spread(name: str, load: Plain, finish: Plain) -> Spread:
    """The kernels of a variance, or of what ``finish`` makes of it."""

    def total_of_all(x, total):
        for k in range(x.size):
            total = total + load(x[k])
        return total

    def fold(x, mean):
        total = 0.0
        for k in range(x.size):
            difference = load(x[k]) - mean
            total += difference.real * difference.real + difference.imag * difference.imag
        return total

    def rows(i, x, length, identity, number, out):
        total = identity
        for lo in range(i * length, (i + 1) * length, BLOCK):
            total += total_of_all(x[lo : min(lo + BLOCK, (i + 1) * length)], identity)
        mean = np.divide(total, np.float64(length))
        squares = 0.0
        for lo in range(i * length, (i + 1) * length, BLOCK):
            squares += fold(x[lo : min(lo + BLOCK, (i + 1) * length)], mean)
        store(out, i, finish(squares, number))

    def blocks(i, blocks, x, length, means, parts):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        parts[i] = fold(x[row * length + lo : row * length + hi], means[row])

    def columns(i, slabs, strips, x, length, inner, means, parts):
        outer, slab, strip = i // (slabs * strips), i // strips % slabs, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        totals = parts[(outer * slabs + slab) * inner + left : (outer * slabs + slab) * inner + right]
        mean = means[outer * inner + left : outer * inner + right]
        for j in range(totals.size):
            totals[j] = 0.0
        for r in range(outer * length + slab * ROWS, outer * length + min((slab + 1) * ROWS, length)):
            row = x[r * inner + left : r * inner + right]
            for j in range(totals.size):
                difference = load(row[j]) - mean[j]
                totals[j] += difference.real * difference.real + difference.imag * difference.imag

    return Spread(*(_kernel(name, body) for body in (rows, blocks, columns)))


def make_scan(name: str, load: Plain, combine: Plain) -> tuple[aiodev.Kernel, aiodev.Kernel]:
    """Running totals.

    (i, blocks, identity, parts) turns what the blocks of row ``i`` come to into what comes before each of them; then
    (i, blocks, x, length, parts, before, width, out) writes the totals of four blocks of a row to a row of ``width``: before
    each element, or after it and behind the others if the row is wider. There are ``(blocks + 3) // 4`` such fours in a row.
    """

    def offsets(i, blocks, identity, parts):
        total = identity
        for k in range(i * blocks, (i + 1) * blocks):
            part = parts[k]
            parts[k] = total
            total = combine(total, part)

    def totals(i, blocks, x, length, parts, before, width, out):
        groups = (blocks + 3) // 4
        row, first = i // groups, 4 * (i % groups)
        start = row * width + (width - length)
        if width > length and first == 0:
            out[start - 1] = parts[row * blocks]
        lo = first * BLOCK
        if lo + 4 * BLOCK <= length:  # four sums at once: each waits for its last one
            near, far = row * length + lo, start + lo
            a, b = x[near : near + BLOCK], x[near + BLOCK : near + 2 * BLOCK]
            c, d = x[near + 2 * BLOCK : near + 3 * BLOCK], x[near + 3 * BLOCK : near + 4 * BLOCK]
            to_a, to_b = out[far : far + BLOCK], out[far + BLOCK : far + 2 * BLOCK]
            to_c, to_d = out[far + 2 * BLOCK : far + 3 * BLOCK], out[far + 3 * BLOCK : far + 4 * BLOCK]
            known = row * blocks + first
            s, t, u, v = parts[known], parts[known + 1], parts[known + 2], parts[known + 3]
            for k in range(BLOCK):
                s_on, t_on = combine(s, load(a[k])), combine(t, load(b[k]))
                u_on, v_on = combine(u, load(c[k])), combine(v, load(d[k]))
                to_a[k], to_b[k] = s if before else s_on, t if before else t_on
                to_c[k], to_d[k] = u if before else u_on, v if before else v_on
                s, t, u, v = s_on, t_on, u_on, v_on
        else:
            for block in range(first, min(first + 4, blocks)):
                total = parts[row * blocks + block]
                for k in range(block * BLOCK, min((block + 1) * BLOCK, length)):
                    after = combine(total, load(x[row * length + k]))
                    out[start + k] = total if before else after
                    total = after

    return _kernel(name, offsets), _kernel(name, totals)


def make_places(name: str, load: Plain) -> Places:
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

    def search(x):
        best, place = load(x[0]), 0
        for start in range(0, x.size, SPAN):
            largest = fold(x[start : min(start + SPAN, x.size)])
            if largest > best:
                best, place = largest, start
        return best, place + first_of(x[place : min(place + SPAN, x.size)], best)

    def rows(i, x, length, out):
        _, place = search(x[i * length : (i + 1) * length])
        store(out, i, place)

    def blocks(i, blocks, x, length, parts, places):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        best, place = search(x[row * length + lo : row * length + hi])
        parts[i], places[i] = best, lo + place

    def parts(i, blocks, parts, places, out):
        best = i * blocks
        for k in range(i * blocks + 1, (i + 1) * blocks):
            if parts[k] > parts[best]:
                best = k
        store(out, i, places[best])

    def columns(i, slabs, strips, x, length, inner, parts, places):
        outer, slab, strip = i // (slabs * strips), i // strips % slabs, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        start = (outer * slabs + slab) * inner
        best, place = parts[start + left : start + right], places[start + left : start + right]
        first = slab * ROWS
        row = x[(outer * length + first) * inner + left : (outer * length + first) * inner + right]
        for j in range(best.size):
            best[j] = load(row[j])
            place[j] = first
        for r in range(first + 1, min(first + ROWS, length)):
            row = x[(outer * length + r) * inner + left : (outer * length + r) * inner + right]
            for j in range(best.size):
                value, known = load(row[j]), best[j]
                best[j] = value if value > known else known
                place[j] = r if value > known else place[j]

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

    return Places(*(_kernel(name, body) for body in (rows, blocks, parts, columns, strips)))


def store(out: Any, i: int, value: Any) -> None:
    """Write result ``i``, which is the only one of an array of no dimensions."""
    if out.ndim == 0:
        out[()] = value
    else:
        out[i] = value


def _kernel(name: str, body: Plain) -> aiodev.Kernel:
    body.__name__ = body.__qualname__ = name  # under which errors name it
    return aiodev.kernel(fastmath=_SUMS)(body)
