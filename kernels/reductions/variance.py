"""Kernels behind variances and standard deviations.

Each block has a mean of its own and a sum of squared distances from that, by :func:`aiodev.lang.moments`, so memory is read
once. Blocks are then merged by their means (Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances, 1979). Means are measured from the first element: what is far from 0 has no digits left for how they differ.
The order follows from the shape alone.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import lang
from aiodev.kernels.naming import named_kernel
from aiodev.kernels.reductions import cuda as teams
from aiodev.kernels.reductions.accumulators import square, store
from aiodev.kernels.reductions.bodies import AHEAD, BLOCK, COLUMNS, KEPT, ROWS, SHORT, WORD, Plain

__all__ = ["Variance", "make_variance"]

#: Sums are not to be reordered: a mean would first be put together, and then be measured from somewhere else.
_EXACT = frozenset({"contract"})


class Variance(NamedTuple):
    """Means, and sums of the squared distances from them, |x - mean|²; for one type of elements. All arrays are flat.

    Means are measured from the first element of their row or column.
    """

    rows: aiodev.Kernel  #: (i, x, length, number, out): rows of ``length`` elements to results
    blocks: aiodev.Kernel  #: (i, blocks, x, length, means, squares): blocks of rows to a mean and a sum each
    parts: aiodev.Kernel  #: (i, means, squares, blocks, length, number, out): blocks of rows to results
    #: (i, slabs, strips, x, length, inner, means, squares): slabs of rows, side by side, to a mean and a sum for each column
    columns: aiodev.Kernel
    strips: aiodev.Kernel  #: (i, strips, means, squares, slabs, length, inner, number, out): slabs of columns to results
    whole_columns: aiodev.Kernel  #: (i, x, length, inner, number, out): columns to results, one each


def make_variance(name: str, load: Plain, finish: Plain, wide: Any) -> Variance:
    """The kernels of a variance, or of what ``finish`` makes of it; ``wide`` is the type of means."""

    def measure(x, origin):
        mean, variance = lang.moments(x, AHEAD // x.itemsize, load(origin))
        return mean, variance * np.float64(x.size)

    def merge(count, mean, squares, further, other, others):
        distance, weight = other - mean, np.divide(further, count + further)
        total = squares + others
        if math.isfinite(total):  # or means, too, may be infinite
            total += square(distance) * (count * weight)
        return mean + distance * weight, total

    def rows(i, x, length, number, out):
        first, last = i * length, (i + 1) * length
        origin = x[first] if length > 0 else x.dtype.type(0)
        mean, squares = measure(x[first : min(first + BLOCK, last)], origin)
        for lo in range(first + BLOCK, last, BLOCK):
            hi = min(lo + BLOCK, last)
            other, others = measure(x[lo:hi], origin)
            mean, squares = merge(np.float64(lo - first), mean, squares, np.float64(hi - lo), other, others)
        store(out, i, finish(squares, number))

    def blocks(i, blocks, x, length, means, squares):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        means[i], squares[i] = measure(x[row * length + lo : row * length + hi], x[row * length])

    def parts(i, means, squares, blocks, length, number, out):
        first = i * blocks
        mean, total = means[first], squares[first]
        for k in range(1, blocks):
            size = min(BLOCK, length - k * BLOCK)
            other, others = means[first + k], squares[first + k]
            mean, total = merge(np.float64(k * BLOCK), mean, total, np.float64(size), other, others)
        store(out, i, finish(total, number))

    def add_four(x, inner, center, sums, squared):
        a, b = x[: sums.size], x[inner : inner + sums.size]
        c, d = x[2 * inner : 2 * inner + sums.size], x[3 * inner : 3 * inner + sums.size]
        for j in range(sums.size):
            middle = load(center[j])
            p, q, r, s = load(a[j]) - middle, load(b[j]) - middle, load(c[j]) - middle, load(d[j]) - middle
            sums[j] += (p + q) + (r + s)
            squared[j] += (square(p) + square(q)) + (square(r) + square(s))

    def columns(i, slabs, strips, x, length, inner, means, squares):
        outer, slab, strip = i // (slabs * strips), i // strips % slabs, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        start = (outer * slabs + slab) * inner
        mean, squared = means[start + left : start + right], squares[start + left : start + right]
        first, last = outer * length + slab * ROWS, outer * length + min((slab + 1) * ROWS, length)
        center = x[first * inner + left : first * inner + right]  # whose distance from the mean squares' errors grow with
        for j in range(mean.size):
            mean[j] = squared[j] = 0.0
        asks = x.itemsize <= WORD and x.nbytes >= KEPT and inner > SHORT
        ahead = max(4 * inner, AHEAD // x.itemsize)
        whole = last - (last - first) % 4
        for r in range(first, whole, 4):
            if asks:
                for k in range(r, r + 4):
                    lang.prefetch(x[k * inner + left + ahead : k * inner + right + ahead])
            add_four(x[r * inner + left :], inner, center, mean, squared)
        for r in range(whole, last):
            row = x[r * inner + left : r * inner + right]
            for j in range(mean.size):
                distance = load(row[j]) - load(center[j])
                mean[j] += distance
                squared[j] += square(distance)
        share, start = np.divide(1.0, np.float64(last - first)), outer * length * inner + left
        origin = x[start : start + mean.size]
        for j in range(mean.size):
            shift = mean[j] * share
            rest = squared[j] - (mean[j].real * shift.real + mean[j].imag * shift.imag)
            squared[j] = 0.0 if rest <= 0.0 else rest
            mean[j] = (load(center[j]) - load(origin[j])) + shift
        for j in range(mean.size):
            if not math.isfinite(squared[j]):
                column = x[first * inner + left + j : last * inner : inner]
                mean[j], squared[j] = measure(column, origin[j])

    def strips(i, strips, means, squares, slabs, length, inner, number, out):
        outer, strip = i // strips, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        start = outer * slabs * inner
        mean, total = means[start + left : start + right], squares[start + left : start + right]
        for slab in range(1, slabs):
            start += inner
            other, others = means[start + left : start + right], squares[start + left : start + right]
            count, further = np.float64(slab * ROWS), np.float64(min(ROWS, length - slab * ROWS))
            for j in range(mean.size):
                mean[j], total[j] = merge(count, mean[j], total[j], further, other[j], others[j])
        results = out[outer * inner + left : outer * inner + right]
        for j in range(results.size):
            results[j] = finish(total[j], number)

    def whole_columns(i, x, length, inner, number, out):
        if inner <= 0:  # never; so dividing cannot raise
            return
        start, end = i // inner * length * inner + i % inner, (i // inner + 1) * length * inner
        _, squares = measure(x[start:end:inner], x.dtype.type(0))
        store(out, i, finish(squares, number))

    bodies = rows, blocks, parts, columns, strips, whole_columns
    kernels = Variance(*(named_kernel(name, body, fastmath=_EXACT, uniform=True) for body in bodies))
    teams.add_variance_teams(kernels, load, finish, wide)
    return kernels
